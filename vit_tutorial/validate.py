"""Checks of arguments that every room shares, and words for messages; each error states both values and the rule."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


def to_pair(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    """An int, or an (height, width) pair, as a pair of positive ints.

    Raises:
        ValueError: if ``size`` is neither.
    """
    pair = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2 or not all(_is_int(side) and side > 0 for side in pair):
        raise ValueError(f"{name} must be a positive int or a pair (height, width) of them, got {size!r}")
    return pair


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_int(name: str, value: int, low: int) -> None:
    """Raise a ValueError unless ``value`` is an int of at least ``low``."""
    if not _is_int(value) or value < low:
        raise ValueError(f"{name} must be an int of at least {low}, got {value!r}")


def check_number(name: str, value: float, low: float) -> None:
    """Raise a ValueError unless ``value`` is a finite number of at least ``low``."""
    if not _is_number(value) or not low <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least {low}, got {value!r}")


def check_divisible(name: str, value: int, by_name: str, by: int) -> None:
    """Raise a ValueError unless ``by`` divides ``value``."""
    if by < 1 or value % by:
        raise ValueError(f"{name} {value} is not divisible by {by_name} {by}")


def check_option(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise a ValueError that lists what is allowed, unless it includes ``value``."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def check_fraction(name: str, value: float) -> None:
    """Raise a ValueError unless 0 ≤ ``value`` < 1."""
    if not _is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Raise a ValueError unless ``value`` is a number from ``low`` to ``high``."""
    if not _is_number(value) or not low <= value <= high:
        raise ValueError(f"{name} must be at least {low} and at most {high}, got {value!r}")


def check_bool(name: str, value: bool) -> None:
    """Raise a ValueError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise a ValueError unless ``value`` is of the class ``kind``."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got {value!r}")


def check_factory(name: str, factory: object) -> None:
    """Raise a ValueError unless ``factory`` can be called to make a module; a module itself is not a factory."""
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ValueError(f"{name} must be a class or function that makes a module, not a module; got {factory!r}")


def check_differentiable(model: nn.Module) -> None:
    """Raise a ValueError if the model was made under ``torch.inference_mode()``, which forbids gradients for good."""
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise ValueError(f"this {type(model).__name__} was made under torch.inference_mode(), so it has no gradients")


def working_dtype(name: str, values: Tensor) -> torch.dtype:
    """In which dtype to compute: float64 stays float64; float32 and the half precisions are computed in float32.

    The package's rule for tables, maps and images: a result has the dtype of what was given, rounded once, at the end.

    Raises:
        ValueError: if ``values`` are not floating point.
    """
    if not values.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {values.dtype}")
    return torch.promote_types(values.dtype, torch.float32)


def check_tiles(
    img_size: int | tuple[int, int], patch_size: int | tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both sizes as pairs; the patches must tile the image.

    Raises:
        ValueError: if a side of the patch does not divide that side of the image.
    """
    image, patch = to_pair("img_size", img_size), to_pair("patch_size", patch_size)
    for axis, image_side, patch_side in zip(("height", "width"), image, patch, strict=True):
        check_divisible(f"img_size {axis}", image_side, f"patch_size {axis}", patch_side)
    return image, patch


def listed(names: Iterable[str], shown: int) -> str:
    """The first few of many names, for a message, and how many more there are."""
    names = list(names)
    return ", ".join(names[:shown]) + f" and {len(names) - shown} more" * (len(names) > shown)
