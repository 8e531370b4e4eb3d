"""Mixup and CutMix: each image takes over a part of another one and of its target (chapter 6).

Images and ``generator`` are as in ``geometry``.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from vit_tutorial.augment.geometry import Images, random_boxes
from vit_tutorial.validate import checked, working_dtype

Targets = Float[Tensor, "b k"]


@checked
def mixup(images: Images, targets: Targets, alpha: float, generator: Generator | None = None) -> tuple[Images, Targets]:
    """Blend each image and its target with another of the batch; the fraction kept is drawn from Beta(alpha, alpha).

    Args:
        targets: one-hot or soft, ``(b, k)``, floating point.
        alpha: above 0; 1 draws fractions uniformly, less draws more of those near 0 and 1.

    Raises:
        ValueError: if images are not ``(b, c, H, W)`` in floating point, ``targets`` are class indices or not one for
            each image, or ``alpha`` is not finite and above 0.

    Source: Zhang et al. 2018, section 2; the fraction is drawn for each image, not once for the batch.
    """
    targets = _beside(images, targets)
    kept = _beta(images, alpha, generator)
    partner = torch.randperm(len(images), device=images.device, generator=generator)
    return _blend(images, partner, kept[:, None, None, None]), _blend(targets, partner, kept[:, None])


@checked
def cutmix(
    images: Images, targets: Targets, alpha: float, generator: Generator | None = None
) -> tuple[Images, Targets]:
    """Put a rectangle of another image of the batch into each; targets mix by the pixels actually replaced.

    Args and errors are those of :func:`mixup`.

    Source: Yun et al. 2019, section 3.1: the fraction kept is drawn from Beta(alpha, alpha), the rectangle has the
    image's aspect ratio and is cut at the border.
    """
    targets = _beside(images, targets)
    partner = torch.randperm(len(images), device=images.device, generator=generator)
    side = (1 - _beta(images, alpha, generator)).sqrt()
    inside = random_boxes(images, side, side, generator, over_border=True)
    kept = 1 - inside.float().mean((1, 2))
    return torch.where(inside[:, None], images[partner], images), _blend(targets, partner, kept[:, None])


def _blend(values: Tensor, partner: Tensor, kept: Tensor) -> Tensor:
    own = values.to(working_dtype("images", values))
    return torch.lerp(own[partner], own, kept.to(own.dtype)).to(values.dtype)


def _beside(images: Tensor, targets: Tensor) -> Tensor:
    """The targets on the images' device, after checking that they fit the images."""
    if len(targets) != len(images):
        raise ValueError(f"{len(images)} images need as many targets, got {len(targets)}")
    return targets.to(images.device)


def _beta(images: Images, alpha: float, generator: Generator | None) -> Float[Tensor, " b"]:
    """Beta(alpha, alpha) for each image: one gamma draw over the sum of two, as torch.distributions does it."""
    if not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be above 0 and finite, got {alpha}")
    concentration = torch.full((len(images), 2), float(alpha), device=images.device)
    gamma = torch._standard_gamma(concentration, generator=generator).clamp(min=1e-30)
    return gamma[:, 0] / gamma.sum(1)
