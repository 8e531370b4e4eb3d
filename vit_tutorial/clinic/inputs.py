"""Images that a model takes: their channels, size and number, by what its parts say or by trying (chapter 12)."""

from itertools import product
from math import isqrt, prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.clinic.examined import random_like
from vit_tutorial.clinic.symptoms import as_logits
from vit_tutorial.clinic.trace import FAILURES, DoesNotRun
from vit_tutorial.validate import check_finite, to_pair

CHANNELS = (1, 3, 4)
SIDES = (32, 28, 64, 224, 96, 128, 384, 256, 48, 16, 8)  # of images that are tried where the model says nothing
BATCHES = (4, 8, 16, 32, 64, 128, 1)  # numbers of images that are tried


def is_channels_last(model: nn.Module, images: Float[Tensor, "b ..."]) -> bool:
    """Whether a batch is ``(b, H, W, c)``, as Keras and Flax have it."""
    first = next((part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    if first is not None:
        return images.shape[-1] == first != images.shape[1]
    return images.shape[-1] in CHANNELS and images.shape[1] >= 8


def check_images(images: Tensor) -> None:
    """Raise a ValueError unless these are a floating-point batch of at least 2 images."""
    if images.ndim != 4 or len(images) < 2 or not images.is_floating_point():
        got = f"{tuple(images.shape)}, {images.dtype}"
        raise ValueError(f"images must be floating point, (b, c, H, W) with b at least 2; got {got}")
    check_finite("images", images)


def make_images(model: nn.Module) -> tuple[Float[Tensor, "b c H W"], bool]:
    """Random images that the model takes, and whether it takes them with the channels last.

    Their size is what some part of the model says, or what its positions tell, or a usual one. There are 4 of them, or
    as many as the model insists on, be it 1.

    Raises:
        ValueError: if it takes none of those that were tried.
    """
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    sizes, failures = _sizes(model), []
    rows = [p.shape[0] for p in model.parameters() if p.ndim == 3 and 1 < p.shape[0] <= BATCHES[-2]]
    others = dict.fromkeys([*_whole(_attributes(model, ("batch_size",)), BATCHES[-2]), *sorted(rows), *BATCHES[1:]])
    small = [size for i, size in enumerate(sizes) if i == 0 or max(size) <= 64]
    for batches, tried in ((BATCHES[:1], sizes), (others, small)):
        for (height, width), c, b, last in product(tried, _channels(model), batches, (False, True)):
            images = random_like(torch.empty(b, c, height, width, device=weight.device, dtype=weight.dtype))
            try:
                with torch.no_grad():
                    out = as_logits(model(images.movedim(1, -1) if last else images))
            except FAILURES as error:
                failures.append(str(error) if isinstance(error, DoesNotRun) else str(DoesNotRun(error)))
                continue
            if out.ndim in (2, 3) and len(out) == b:
                return images, last
            failures.insert(0, f"it returned {tuple(out.shape)} for {b} images")
    raise ValueError(
        f"{type(model).__name__} is not a Vision Transformer of vit_tutorial, timm, torchvision or Hugging Face, and "
        f"random images of {', '.join(f'{h}×{w}' for h, w in sizes)} pixels did not make logits (b, k): {failures[0]}. "
        "Pass a batch that it takes: diagnose(model, images)"
    )


def _attributes(model: nn.Module, names: tuple[str, ...]) -> list:
    """What the parts of a model, or their configs, say under these names."""
    holders = [holder for part in model.modules() for holder in (part, getattr(part, "config", None)) if holder]
    return [value for holder in holders for name in names if (value := getattr(holder, name, None)) is not None]


def _pairs(values: list) -> list[tuple[int, int]]:
    """Those that are a size in pixels."""
    pairs = []
    for value in values:
        try:
            pairs.append(to_pair("size", value))
        except ValueError:
            continue
    return list(dict.fromkeys(pairs))


def _channels(model: nn.Module) -> tuple[int, ...]:
    first = next((part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    names = ("in_chans", "in_channels", "num_channels", "channels", "n_channels")
    said = [first] if first else _attributes(model, names)
    return tuple(_whole(said, 16)[:1] or (3, 1))


def _whole(values: list, most: int) -> list[int]:
    """The whole numbers from 1 to the most that is allowed."""
    return [value for value in values if isinstance(value, int) and 0 < value <= most]


def _sizes(model: nn.Module) -> list[tuple[int, int]]:
    said = _pairs(_attributes(model, ("img_size", "image_size", "input_size", "img_dim", "image_dim")))
    patches = _patch_sizes(model, _channels(model))
    patches += [part.kernel_size for part in model.modules() if _cuts(part)]
    for name, parameter in model.named_parameters():
        if (parameter.ndim == 3 and len(parameter) == 1) or (parameter.ndim == 2 and "pos" in name.lower()):
            for extra in range(3):
                side = isqrt(max(parameter.shape[-2] - extra, 0))
                if side > 1 and side * side == parameter.shape[-2] - extra:
                    said += [(side * ph, side * pw) for ph, pw in patches[:1]]
    few = [side for side in sorted(SIDES) for p in patches[:1] if all(side % q == 0 and side // q > 2 for q in p)]
    return list(dict.fromkeys([*said, *((side, side) for side in (*few, *SIDES))]))


def _cuts(part: nn.Module) -> bool:
    """Whether this is a convolution that cuts images into patches side by side."""
    return isinstance(part, nn.Conv2d) and part.kernel_size == part.stride and prod(part.stride) > 1


def _patch_sizes(model: nn.Module, channels: tuple[int, ...]) -> list[tuple[int, int]]:
    """What the first convolution cuts, or a part says, or the first linear layer takes."""
    first = next((part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)), None)
    said = [first.kernel_size] if first is not None and _cuts(first) else []
    said += _attributes(model, ("patch_size",))
    for c in channels if isinstance(first, nn.Linear) else ():
        side = isqrt(first.in_features // c)
        said += [side] * (side > 1 and side * side * c == first.in_features)
    return _pairs(said)


def guess_patch_size(model: nn.Module, images: Float[Tensor, "b c H W"]) -> tuple[int, int] | None:
    """A patch size that the model seems to have, if it tiles the images."""
    for patch_size in _patch_sizes(model, images.shape[1:2]):
        if all(side % p == 0 for side, p in zip(images.shape[2:], patch_size, strict=True)):
            return patch_size
    return None
