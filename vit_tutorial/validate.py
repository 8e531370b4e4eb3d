"""Checks of arguments that every room shares, and words for messages; each error states both values and the rule."""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

import torch
from jaxtyping import AbstractArray
from torch import Tensor, nn

P, R = ParamSpec("P"), TypeVar("R")
DTYPES = {"Float": " in floating point", "Int64": ", torch.int64", "UInt8": ", torch.uint8", "Bool": ", torch.bool"}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments are what its signature says: numbers, words, lists of them, models, and tensors with
    that number of axes and that dtype.

    How long the axes are, how large the numbers, and what is in a dict is for the function itself to judge, whose
    errors tell more.

    Raises:
        ValueError: from each call with another tensor, or with something else in its place.
    """
    names = list(signature(function).parameters)

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            kind = function.__annotations__.get(name, Any)
            if not _fits(value, kind):
                raise ValueError(f"{name} must be {_wanted(kind)}, got {_got(value, kind, name)}")
        return function(*args, **kwargs)

    return wrapper


def _fits(value: object, kind: Any) -> bool:
    whole, parts = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, str):  # the latter is a name that is imported only to draw
        return True
    if isinstance(kind, UnionType):
        return any(_fits(value, part) for part in parts)
    if whole is tuple and parts[-1] is not Ellipsis:
        return isinstance(value, tuple | list) and len(value) == len(parts) and all(map(_fits, value, parts))
    if whole in (list, tuple, Sequence):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return False
        alike = get_origin(parts[0]) is None and not _shapes(parts[0])  # one of each type tells, be there a million
        return all(_fits(part, parts[0]) for part in ({type(v): v for v in value}.values() if alike else value))
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, {int: Integral, float: Real, dict: Mapping}.get(whole or kind, whole or kind))


def _shapes(kind: Any) -> list[type[AbstractArray]]:
    """The shapes in an annotation, such as those of ``Float[Tensor, "b k"] | None``."""
    if isinstance(kind, type) and issubclass(kind, AbstractArray):
        return [kind]
    return [shape for part in get_args(kind) for shape in _shapes(part)]


def _wanted(kind: Any) -> str:
    """An annotation in words."""
    whole, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, UnionType):
        return " or ".join(_wanted(part) for part in parts if part is not NoneType)
    if whole in (list, Sequence):
        return f"a list of {_wanted(parts[0])}"
    if whole is tuple:
        return f"({', '.join('...' if part is Ellipsis else getattr(part, '__name__', str(part)) for part in parts)})"
    for shape in _shapes(kind):
        return f"({', '.join(shape.dim_str.split())}){DTYPES.get(shape.dtype.__name__, '')}"
    name = (whole or kind).__name__
    return f"a{'n' * (name[0] in 'aeio')} {name}"


def _got(value: object, kind: Any, name: str) -> str:
    """A value in words; and what makes a batch of one image."""
    if isinstance(value, list | tuple) and get_origin(kind) in (list, Sequence):
        kind = get_args(kind)[0]
        value = next((part for part in value if not _fits(part, kind)), value)
    if isinstance(value, Tensor):
        one_less = any(shape.dim_str.startswith("b ") and _fits(value[None], shape) for shape in _shapes(kind))
        return f"{value.dtype} of {tuple(value.shape)}" + f"; {name}[None] is a batch of 1" * one_less
    is_short = value is None or isinstance(value, str | int | float | tuple | list | dict)
    return textwrap.shorten(repr(value), 80) if is_short else f"a {type(value).__name__}"


def check_fields(name: str, entry: Mapping[str, object], kinds: Mapping[str, Any]) -> None:
    """Raise a ValueError unless ``entry`` has a value of each kind, an annotation; what may be None may be lacking."""
    for field, kind in kinds.items():
        if not _fits(value := entry.get(field), kind):
            got = _got(value, kind, field) if field in entry else f"only {[*entry]}"
            raise ValueError(f"{name} must have {field}, {_wanted(kind)}; got {got}")


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


def check_finite(name: str, values: Tensor) -> None:
    """Raise a ValueError if one of the values is NaN or infinite."""
    if bad := int((~values.isfinite()).sum()):
        raise ValueError(f"{name} must be finite, got NaN or infinity in {bad} of {values.numel()} places")


def check_divisible(name: str, value: int, by_name: str, by: int) -> None:
    """Raise a ValueError unless ``by`` divides ``value``."""
    if not (isinstance(value, Integral) and isinstance(by, Integral)) or by < 1 or value % by:
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
