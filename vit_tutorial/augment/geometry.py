"""Random crops, flips, rotations and erasing of whole batches, drawn for each image separately (chapter 6).

All functions take and return images as ``(b, c, H, W)`` floating point in 0..1, and draw from ``generator``, which is
on the images' device. The result has the images' dtype; half precisions are computed in float32. None reads a value
back from the device, so a GPU never waits for the host.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Generator, Tensor

from vit_tutorial.validate import check_between, check_int, check_number, checked, working_dtype

Images = Float[Tensor, "b c H W"]


def widened(images: Tensor) -> Tensor:
    """The images in the dtype to compute in."""
    return images.to(working_dtype("images", images))


def between(images: Tensor, low: float, high: float, generator: Generator | None, *shape: int) -> Tensor:
    """Uniform numbers of shape ``(b, *shape)`` on the images' device."""
    draw = torch.rand(len(images), *shape, device=images.device, generator=generator)
    return low + (high - low) * draw


@checked
def random_crop(
    images: Shaped[Tensor, "b c H W"], padding: int, generator: Generator | None = None
) -> Shaped[Tensor, "b c H W"]:
    """Pad with zeros on all sides, then crop to the original size at a random place: a shift of ±padding pixels.

    Raises:
        ValueError: if ``padding`` is not below the image's shorter side: a window could miss the whole image.
    """
    b, _, height, width = images.shape
    check_int("padding", padding, 0)
    if padding >= min(height, width):
        raise ValueError(f"padding must be below the shorter side of images of {height}×{width}, got {padding}")
    padded = F.pad(images, [padding] * 4)
    top, left = torch.randint(2 * padding + 1, (2, b, 1), device=images.device, generator=generator)
    rows = top + torch.arange(height, device=images.device)
    cols = left + torch.arange(width, device=images.device)
    image = torch.arange(b, device=images.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


@checked
def resized_crop(
    images: Images,
    tall: Float[Tensor, " b"],
    wide: Float[Tensor, " b"],
    down: Float[Tensor, " b"],
    right: Float[Tensor, " b"],
) -> Images:
    """Enlarge a part of each image to the whole size, bilinear.

    Args:
        tall, wide: sides of the part, as fractions of the image's.
        down, right: where it is: 0 at the top or left edge, 1 at the opposite one.
    """
    theta = torch.zeros(len(images), 2, 3, device=images.device, dtype=widened(images).dtype)
    theta[:, 0, 0], theta[:, 0, 2] = wide, (1 - wide) * (2 * right - 1)
    theta[:, 1, 1], theta[:, 1, 2] = tall, (1 - tall) * (2 * down - 1)
    return _sample(images, theta, padding_mode="border")


def _sample(images: Images, theta: Float[Tensor, "b 2 3"], padding_mode: str = "zeros") -> Images:
    wide = widened(images)
    if not len(images):  # affine_grid refuses it
        return images
    grid = F.affine_grid(theta.to(wide.dtype), [len(images), 1, *images.shape[2:]], align_corners=False)
    return F.grid_sample(wide, grid, padding_mode=padding_mode, align_corners=False).to(images.dtype)


@checked
def random_resized_crop(images: Images, lowest: float, generator: Generator | None = None) -> Images:
    """Cut out a part of ``lowest`` to all of the area, its aspect ratio ¾ to 4/3 times the image's, and enlarge it.

    torchvision draws again if the part is wider or taller than the image; here it gets the image's width or height.

    Raises:
        ValueError: if ``lowest`` is not from 0 to 1.

    Source: Szegedy et al. 2015, section 6, as torchvision's ``RandomResizedCrop``.
    """
    check_between("lowest", lowest, 0, 1)
    area = between(images, lowest, 1, generator)
    aspect_ratio = (between(images, -1, 1, generator) * math.log(4 / 3)).exp()
    tall, wide = ((area * by).sqrt().clamp(max=1) for by in (1 / aspect_ratio, aspect_ratio))
    return resized_crop(images, tall, wide, *between(images, 0, 1, generator, 2).unbind(1))


@checked
def random_flip(images: Shaped[Tensor, "b c H W"], generator: Generator | None = None) -> Shaped[Tensor, "b c H W"]:
    """Mirror each image left to right with probability ½."""
    flip = between(images, 0, 1, generator, 1, 1, 1) < 0.5
    return torch.where(flip, images.flip(-1), images)


@checked
def affine(
    images: Images,
    angle: Float[Tensor, " b"],
    size: Float[Tensor, " b"],
    shear: Float[Tensor, " b"],
    shift: Float[Tensor, "b 2"],
) -> Images:
    """Shear, scale and rotate each image about its middle, then shift it; zeros come in at the border.

    Args:
        angle: clockwise, in radians. A rotation keeps angles and lengths on rectangular images too.
        size: factor; 2 shows everything twice as large.
        shear: pixels to the right for each pixel down.
        shift: to the right as a fraction of the width, and down as a fraction of the height.

    Source: grid sampling of Jaderberg et al. 2015, section 3.3, bilinear.
    """
    b, _, height, width = images.shape
    if not height * width:
        return images
    # For each pixel of the result we need the place it comes from: the inverse of what the image goes through.
    cos, sin = angle.cos() / size, angle.sin() / size
    # grid_sample measures both sides as −1..1, so on a rectangle the aspect ratio comes in wherever x and y mix.
    rows = [cos + shear * sin, (sin - shear * cos) * (height / width), -sin * (width / height), cos]
    inverse = torch.stack(rows, dim=1).reshape(b, 2, 2)
    origin = -(inverse * 2 * shift[:, None, :]).sum(2, keepdim=True)
    return _sample(images, torch.cat([inverse, origin], dim=2))


@checked
def random_affine(
    images: Images,
    *,
    degrees: float = 0.0,
    shift: float = 0.0,
    scale: float = 0.0,
    shear: float = 0.0,
    generator: Generator | None = None,
) -> Images:
    """:func:`affine` with amounts drawn for each image.

    Args:
        degrees: largest angle, either way.
        shift: largest shift either way, as a fraction of the side.
        scale: largest change of size, as a fraction: 0.1 gives 0.9 to 1.1.
        shear: largest shear either way, in pixels across for each pixel down.

    Raises:
        ValueError: if one of them is negative or not finite, or ``scale`` is above 0.99.
    """
    for name, most in (("degrees", degrees), ("shift", shift), ("shear", shear)):
        check_number(name, most, 0)
    check_between("scale", scale, 0, 0.99)
    angle = between(images, -1, 1, generator) * math.radians(degrees)
    size = 1 + between(images, -scale, scale, generator)
    sheared = between(images, -shear, shear, generator)
    return affine(images, angle, size, sheared, between(images, -shift, shift, generator, 2))


@checked
def random_erase(images: Images, probability: float, generator: Generator | None = None) -> Images:
    """With ``probability``, fill a rectangle of 2 to 33 % of the image with noise.

    Raises:
        ValueError: if ``probability`` is not from 0 to 1.

    Source: Zhong et al. 2020, algorithm 1, with an aspect ratio of ½ to 2 times the image's.
    """
    check_between("probability", probability, 0, 1)
    area = between(images, 0.02, 0.33, generator)
    aspect_ratio = (between(images, -1, 1, generator) * math.log(2)).exp()
    inside = random_boxes(images, (area * aspect_ratio).sqrt(), (area / aspect_ratio).sqrt(), generator)
    inside &= between(images, 0, 1, generator, 1, 1) < probability
    noise = torch.rand(images.shape, device=images.device, generator=generator)
    return torch.where(inside[:, None], noise, widened(images)).to(images.dtype)


@checked
def random_boxes(
    images: Images,
    tall: Float[Tensor, " b"],
    wide: Float[Tensor, " b"],
    generator: Generator | None,
    over_border: bool = False,
) -> Bool[Tensor, "b H W"]:
    """True in a rectangle at a random place; its sides are the fractions ``tall`` and ``wide`` of the image's.

    It lies completely inside, or its centre is anywhere and it is cut off at the border.
    """
    boxes = []
    for side, fraction in ((images.shape[2], tall), (images.shape[3], wide)):
        half = side * fraction / 2
        margin = torch.zeros_like(half) if over_border else half
        middle = margin + (side - 2 * margin) * between(images, 0, 1, generator)
        pixel = torch.arange(side, device=images.device) + 0.5
        boxes.append((pixel - middle[:, None]).abs() < half[:, None])
    return boxes[0][:, :, None] & boxes[1][:, None, :]
