"""Ten classes of coloured shapes on cluttered backgrounds, with the object's mask: data that needs no download."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from vit_tutorial.validate import check_int

SIZE = 32  # pixels
BLOTS = 4  # specks and strokes in the background, all smaller than any shape
DULL = 0.1  # how far the colours of the background may be from grey, as a fraction of what is possible
CHUNK = 500  # images drawn at once: few enough for the processor's cache, which makes it three times faster

# Which points (u, v) are in an upright shape of radius 1 with its middle at the origin; v points down.
INSIDE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "circle": lambda u, v: u**2 + v**2 < 0.8,
    "ring": lambda u, v: ((u**2 + v**2).sqrt() - 0.78).abs() < 0.22,
    "square": lambda u, v: torch.maximum(u.abs(), v.abs()) < 0.8,
    "frame": lambda u, v: (torch.maximum(u.abs(), v.abs()) - 0.65).abs() < 0.2,
    "triangle": lambda u, v: (v < 0.58) & (v > 1.9 * u.abs() - 1.17),
    "diamond": lambda u, v: u.abs() * 1.5 + v.abs() < 1.05,
    "star": lambda u, v: (u**2 + v**2).sqrt() < 0.72 + 0.28 * torch.cos(5 * torch.atan2(u, -v)),
    "cross": lambda u, v: (torch.maximum(u.abs(), v.abs()) < 0.95) & (torch.minimum(u.abs(), v.abs()) < 0.3),
    "bars": lambda u, v: (torch.maximum(u.abs(), v.abs()) < 0.9) & (u.abs() > 0.3),
    "moon": lambda u, v: ((u - 0.38) ** 2 + v**2 < 1) & ((u - 0.88) ** 2 + v**2 > 0.64),
}
SHAPES = tuple(INSIDE)


def draw_shapes(
    num: int, seed: int, size: int = SIZE
) -> tuple[UInt8[Tensor, "num 3 H W"], Int64[Tensor, " num"], Bool[Tensor, "num H W"]]:
    """Draw ``num`` images of ``size``×``size`` pixels, about the same number of each class in :data:`SHAPES`.

    Each holds one shape of random place, size, angle and vivid colour, over a gradient between two dull colours with
    dull specks and strokes. Only the shape tells the class. The same seed gives the same images.

    Returns:
        images ``(num, 3, size, size)`` as bytes, labels ``(num,)``, masks ``(num, size, size)``, true where the shape
        covers at least half of a pixel.

    Raises:
        ValueError: if ``num`` or ``size`` is less than 1.
    """
    check_int("num", num, 1)
    check_int("size", size, 1)
    generator = torch.Generator().manual_seed(seed)
    chunks = [_draw(min(CHUNK, num - start), generator, size) for start in range(0, num, CHUNK)]
    images, labels, masks = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return images, labels, masks


def _draw(
    num: int, generator: torch.Generator, size: int
) -> tuple[UInt8[Tensor, "num 3 H W"], Int64[Tensor, " num"], Bool[Tensor, "num H W"]]:
    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    def dull_colour() -> Tensor:
        colour = between(0, 1, num, 3, 1, 1)
        return torch.lerp(colour.mean(1, keepdim=True), colour, DULL)

    labels = torch.randperm(num, generator=generator) % len(SHAPES)
    angle = between(0, 2 * math.pi, num)
    u, _ = _own_axes(size, torch.zeros(num, 2), torch.full((num,), 1.4), angle)
    slope = (u[:, None] + 1) / 2
    images = torch.lerp(dull_colour(), dull_colour(), slope)
    for _ in range(BLOTS):
        u, v = _own_axes(size, between(-1, 1, num, 2), between(0.06, 0.16, num), between(0, math.pi, num))
        length = torch.where(between(0, 1, num) < 0.5, 1.0, 4.0)[:, None, None]
        images = torch.where(((u / length) ** 2 + v**2 < 1)[:, None], dull_colour(), images)

    # The shape is drawn at twice the size and averaged, so its edge is smooth.
    place, radius = between(-0.38, 0.38, num, 2), between(0.4, 0.6, num)
    tilt = between(-math.pi / 6, math.pi / 6, num)
    cover = torch.empty(num, 1, size, size)
    for index, name in enumerate(SHAPES):
        chosen = labels == index
        inside = INSIDE[name](*_own_axes(2 * size, place[chosen], radius[chosen], tilt[chosen]))
        cover[chosen] = F.avg_pool2d(inside[:, None].float(), 2)

    # A vivid colour: one channel high, one low, one anything, in any order.
    levels = torch.stack([between(0.75, 1, num), between(0, 0.25, num), between(0, 1, num)], dim=1)
    colour = levels.gather(1, between(0, 1, num, 3).argsort(1))
    images = images + (colour[:, :, None, None] - images) * cover
    images = images + 0.03 * torch.randn(images.shape, generator=generator)
    return (images.clamp(0, 1) * 255).round().to(torch.uint8), labels, cover[:, 0] >= 0.5


def _own_axes(
    size: int, centre: Float[Tensor, "num 2"], radius: Float[Tensor, " num"], angle: Float[Tensor, " num"]
) -> tuple[Float[Tensor, "num s s"], Float[Tensor, "num s s"]]:
    """Every pixel of a ``size``×``size`` image over −1..1, in the rotated and scaled coordinates of several shapes."""
    axis = (torch.arange(size) + 0.5) / size * 2 - 1
    dx, dy = axis - centre[:, 0, None, None], axis[:, None] - centre[:, 1, None, None]
    cos, sin = (part[:, None, None] / radius[:, None, None] for part in (angle.cos(), angle.sin()))
    return dx * cos + dy * sin, dy * cos - dx * sin
