"""Augmentation of whole batches on the device they lie on: colours, RandAugment, and all of them together (chapter 6).

All functions take and give images as ``(b, c, H, W)`` floating point in 0..1, and draw from ``generator``, which lies
on the images' device. None reads a value back from the device, so a GPU never waits for the host.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from vit_tutorial.augment.geometry import (
    Images,
    affine,
    between,
    random_affine,
    random_crop,
    random_erase,
    random_flip,
    random_resized_crop,
)
from vit_tutorial.augment.mixing import Targets, cutmix, mixup
from vit_tutorial.validate import check_int, check_number


def random_colour(images: Images, strength: float, generator: Generator | None = None) -> Images:
    """Change brightness, contrast and saturation, each by a random factor of 1 ± strength."""
    brightness, contrast, saturation = (1 + between(images, -strength, strength, generator, 1, 1, 1) for _ in range(3))
    images = images * brightness
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = mean + (images - mean) * contrast
    grey = images.mean(dim=1, keepdim=True)
    return (grey + (images - grey) * saturation).clamp(0, 1)


def posterise(images: Images, bits: Float[Tensor, "b 1 1 1"]) -> Images:
    """Leave 2 to the power of ``bits`` brightness levels; 8 bits or more leave the image as it is."""
    levels = 2**bits
    return torch.where(bits < 8, (images * levels).floor().clamp(max=levels - 1) / (levels - 1), images)


def solarise(images: Images, threshold: Float[Tensor, "b 1 1 1"]) -> Images:
    """Invert what is brighter than the threshold."""
    return torch.where(images > threshold, 1 - images, images)


def autocontrast(images: Images, share: Float[Tensor, "b 1 1 1"]) -> Images:
    """Stretch each channel to 0..1, and blend the image with that by ``share``; an even channel stays as it is."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    stretched = (images - low) / (high - low).clamp(min=1e-3)
    return torch.where(high - low > 1e-3, torch.lerp(images, stretched, share), images)


def rand_augment(images: Images, magnitude: float, generator: Generator | None = None, *, num_ops: int = 2) -> Images:
    """In the manner of RandAugment: for each image ``num_ops`` operations, drawn anew out of eight, at ``magnitude``.

    The operations: nothing, turn, slant, shift, brightness-contrast-saturation, posterise, solarise, autocontrast. How
    much each does is drawn up to the magnitude; at magnitude 0 no image changes.

    Args:
        magnitude: 0..1; 1 turns by 30°, slants by 0.3, shifts by 30 %, changes colours by 90 %, leaves 3 bits, inverts
            above 0.4, stretches the contrast fully.

    Source: Cubuk et al. 2020, section 3; of the paper's fourteen operations those that vary smoothly with magnitude.
    """
    for _ in range(num_ops):
        choice = torch.randint(8, (len(images),), device=images.device, generator=generator)
        amount = between(images, -magnitude, magnitude, generator)
        strength = amount.abs()[:, None, None, None]
        shift = between(images, -0.3 * magnitude, 0.3 * magnitude, generator, 2)
        # One resampling serves turn, slant and shift, the slow ones: each image has a single amount that is not 0.
        moved = affine(
            images,
            angle=torch.where(choice == 1, amount * math.radians(30), 0.0),
            size=torch.ones_like(amount),
            slant=torch.where(choice == 2, amount * 0.3, 0.0),
            shift=torch.where(choice[:, None] == 3, shift, 0.0),
        )
        outcomes = {
            (1, 2, 3): moved,
            (4,): random_colour(images, 0.9 * magnitude, generator),
            (5,): posterise(images, (8 - 5 * strength).round()),
            (6,): solarise(images, 1 - 0.6 * strength),
            (7,): autocontrast(images, strength),
        }
        for numbers, outcome in outcomes.items():
            chosen = (choice >= numbers[0]) & (choice <= numbers[-1])
            images = torch.where(chosen[:, None, None, None], outcome, images)
    return images


@dataclass(frozen=True)
class Augment:
    """Which augmentations a recipe uses, and how strongly; zero means off. Call it with a batch of images and targets.

    Args:
        crop: padding in pixels; see ``random_crop``.
        resized_crop: smallest share of the area that is cut out and enlarged; see ``random_resized_crop``.
        flip: whether to mirror.
        degrees: largest turn either way; this and the next three: see ``random_affine``.
        shift: largest shift either way, as a share of the side.
        scale: largest change of size, as a share.
        shear: largest slant either way, in pixels across for each pixel down.
        rand_magnitude: 0..1; see ``rand_augment``.
        erase: probability; see ``random_erase``.
        mixup: alpha; see ``mixup``. Where both this and cutmix are on, each image takes one of them by chance.
        cutmix: alpha; see ``cutmix``.

    Raises:
        ValueError: when a value is out of its range.
    """

    crop: int = 0
    resized_crop: float = 0.0
    flip: bool = False
    degrees: float = 0.0
    shift: float = 0.0
    scale: float = 0.0
    shear: float = 0.0
    rand_magnitude: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self):
        check_int("crop", self.crop, 0)
        for name in ("mixup", "cutmix"):
            check_number(name, getattr(self, name), 0)
        highest = {"degrees": 180, "scale": 0.99}
        highest |= dict.fromkeys(("resized_crop", "shift", "shear", "rand_magnitude", "erase"), 1)
        for name, limit in highest.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= limit:
                raise ValueError(f"{name} must be at least 0 and at most {limit}, got {value!r}")

    def __call__(self, images: Images, targets: Targets, generator: Generator | None = None) -> tuple[Images, Targets]:
        if self.flip:
            images = random_flip(images, generator)
        if self.degrees or self.shift or self.scale or self.shear:
            images = random_affine(
                images, degrees=self.degrees, shift=self.shift, scale=self.scale, shear=self.shear, generator=generator
            )
        if self.crop:
            images = random_crop(images, self.crop, generator)
        if self.resized_crop:
            images = random_resized_crop(images, self.resized_crop, generator)
        if self.rand_magnitude:
            images = rand_augment(images, self.rand_magnitude, generator=generator)
        if self.erase:
            images = random_erase(images, self.erase, generator)
        if self.mixup and self.cutmix:
            blended, blended_targets = mixup(images, targets, self.mixup, generator)
            cut, cut_targets = cutmix(images, targets, self.cutmix, generator)
            blend = between(images, 0, 1, generator) < 0.5
            images = torch.where(blend[:, None, None, None], blended, cut)
            targets = torch.where(blend[:, None], blended_targets, cut_targets)
        elif self.mixup:
            images, targets = mixup(images, targets, self.mixup, generator)
        elif self.cutmix:
            images, targets = cutmix(images, targets, self.cutmix, generator)
        return images, targets
