"""What a recipe can train in the ViT"s place: a ResNet, an older order of norms, shuffled images, sick models."""

from vit_tutorial.archs.baselines import PostNormBlock, ResidualBlock, ResNet, Shuffled, post_norm, resnet_like
from vit_tutorial.archs.patients import PATIENTS, Patient, make_patient

__all__ = [
    "PATIENTS",
    "Patient",
    "PostNormBlock",
    "ResNet",
    "ResidualBlock",
    "Shuffled",
    "make_patient",
    "post_norm",
    "resnet_like",
]
