"""Augmentation of whole batches on their own device: colours, RandAugment, and all of them together (chapter 6).

Images and ``generator`` are as in ``geometry``.
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
    widened,
)
from vit_tutorial.augment.mixing import Targets, cutmix, mixup
from vit_tutorial.validate import check_between, check_bool, check_int, check_number, checked


@checked
def random_colour(images: Images, strength: float, generator: Generator | None = None) -> Images:
    """Change brightness, contrast and saturation, each by a random factor of 1 ± strength."""
    check_number("strength", strength, 0)
    brightness, contrast, saturation = (1 + between(images, -strength, strength, generator, 1, 1, 1) for _ in range(3))
    changed = widened(images) * brightness
    mean = changed.mean(dim=(1, 2, 3), keepdim=True)
    changed = mean + (changed - mean) * contrast
    grey = changed.mean(dim=1, keepdim=True)
    return (grey + (changed - grey) * saturation).clamp(0, 1).to(images.dtype)


@checked
def posterise(images: Images, bits: Float[Tensor, "b 1 1 1"]) -> Images:
    """Leave 2 to the power of ``bits`` brightness levels; 8 bits or more leave the image as it is."""
    levels = 2**bits
    fewer = (widened(images) * levels).floor().clamp(max=levels - 1) / (levels - 1)
    return torch.where(bits < 8, fewer, images).to(images.dtype)


@checked
def solarise(images: Images, threshold: Float[Tensor, "b 1 1 1"]) -> Images:
    """Invert what is brighter than the threshold."""
    return torch.where(images > threshold, 1 - widened(images), images).to(images.dtype)


@checked
def autocontrast(images: Images, fraction: Float[Tensor, "b 1 1 1"]) -> Images:
    """Move each channel by ``fraction`` towards itself stretched to 0..1; a uniform channel stays as it is."""
    own = widened(images)
    low, high = own.amin((2, 3), keepdim=True), own.amax((2, 3), keepdim=True)
    stretched = (own - low) / (high - low).clamp(min=1e-3)
    return torch.where(high - low > 1e-3, torch.lerp(own, stretched, fraction.to(own.dtype)), own).to(images.dtype)


@checked
def rand_augment(images: Images, magnitude: float, generator: Generator | None = None, *, num_ops: int = 2) -> Images:
    """After RandAugment: for each image ``num_ops`` of eight operations, drawn independently, at ``magnitude``.

    The operations: nothing, rotate, shear, shift, brightness-contrast-saturation, posterise, solarise, autocontrast.
    How much each does is drawn up to the magnitude; at magnitude 0 no image changes.

    Args:
        magnitude: 0..1; 1 rotates by 30°, shears by 0.3, shifts by 30 %, changes colours by 90 %, leaves 3 bits,
            inverts above 0.4, stretches the contrast fully.

    Raises:
        ValueError: if the magnitude is out of its range.

    Source: Cubuk et al. 2020, section 3; of the paper's fourteen operations those that vary smoothly with magnitude.
    """
    check_between("magnitude", magnitude, 0, 1)
    check_int("num_ops", num_ops, 0)
    dtype, images = images.dtype, widened(images)
    for _ in range(num_ops):
        choice = torch.randint(8, (len(images),), device=images.device, generator=generator)
        amount = between(images, -magnitude, magnitude, generator)
        strength = amount.abs()[:, None, None, None]
        shift = between(images, -0.3 * magnitude, 0.3 * magnitude, generator, 2)
        # One resampling does the slow ones, rotate, shear and shift: each image has a single amount that is not 0.
        moved = affine(
            images,
            angle=torch.where(choice == 1, amount * math.radians(30), 0.0),
            size=torch.ones_like(amount),
            shear=torch.where(choice == 2, amount * 0.3, 0.0),
            shift=torch.where(choice[:, None] == 3, shift, 0.0),
        )
        outcomes = {
            (1, 2, 3): moved,
            (4,): random_colour(images, 0.9 * magnitude, generator),
            (5,): posterise(images, (8 - 5 * strength).round()),
            (6,): solarise(images, 1 - 0.6 * strength),
            (7,): autocontrast(images, strength),
        }
        for choices, outcome in outcomes.items():
            chosen = (choice >= choices[0]) & (choice <= choices[-1])
            images = torch.where(chosen[:, None, None, None], outcome, images)
    return images.to(dtype)


@dataclass(frozen=True)
class Augment:
    """Which augmentations a recipe uses, and how strongly; zero means off. Call it with a batch of images and targets.

    Args:
        crop: padding in pixels, less than the image's shorter side; see ``random_crop``.
        resized_crop: smallest fraction of the area that is cut out and enlarged; see ``random_resized_crop``.
        flip: whether to mirror.
        degrees: largest rotation either way; this and the next three: see ``random_affine``.
        shift: largest shift either way, as a fraction of the side.
        scale: largest change of size, as a fraction.
        shear: largest shear either way, in pixels across for each pixel down.
        rand_magnitude: 0..1; see ``rand_augment``.
        erase: probability; see ``random_erase``.
        mixup: alpha; see ``mixup``. If both this and cutmix are on, each image gets one of them at random.
        cutmix: alpha; see ``cutmix``.

    Raises:
        ValueError: if a value is out of its range.
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
        check_bool("flip", self.flip)
        for name in ("mixup", "cutmix"):
            check_number(name, getattr(self, name), 0)
        highest = {"degrees": 180, "scale": 0.99}
        highest |= dict.fromkeys(("resized_crop", "shift", "shear", "rand_magnitude", "erase"), 1)
        for name, limit in highest.items():
            check_between(name, getattr(self, name), 0, limit)

    @checked
    def __call__(self, images: Images, targets: Targets, generator: Generator | None = None) -> tuple[Images, Targets]:
        dtype, images = images.dtype, widened(images)
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
        return images.to(dtype), targets
