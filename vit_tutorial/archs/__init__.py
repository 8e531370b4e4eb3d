"""What a recipe can train in the ViT's place: a ResNet, post-norm blocks, shuffled images, sick models, new parts."""

from vit_tutorial.archs.baselines import PostNormBlock, ResidualBlock, ResNet, Shuffled, post_norm, resnet_like
from vit_tutorial.archs.modern import MODERN, dinov3, vit5
from vit_tutorial.archs.patients import PATIENTS, Patient, make_patient
from vit_tutorial.archs.registry import ARCHS, FIELDS, OWN_WEIGHTS, check_arch

__all__ = [
    "ARCHS",
    "FIELDS",
    "MODERN",
    "OWN_WEIGHTS",
    "PATIENTS",
    "Patient",
    "PostNormBlock",
    "ResNet",
    "ResidualBlock",
    "Shuffled",
    "check_arch",
    "dinov3",
    "make_patient",
    "post_norm",
    "resnet_like",
    "vit5",
]
