"""Augmentation of whole batches on their own device (chapter 6)."""

from vit_tutorial.augment.geometry import (
    affine,
    random_affine,
    random_crop,
    random_erase,
    random_flip,
    random_resized_crop,
    resized_crop,
)
from vit_tutorial.augment.mixing import cutmix, mixup
from vit_tutorial.augment.policy import Augment, autocontrast, posterise, rand_augment, random_colour, solarise

__all__ = [
    "Augment",
    "affine",
    "autocontrast",
    "cutmix",
    "mixup",
    "posterise",
    "rand_augment",
    "random_affine",
    "random_colour",
    "random_crop",
    "random_erase",
    "random_flip",
    "random_resized_crop",
    "resized_crop",
    "solarise",
]
