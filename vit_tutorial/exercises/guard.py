"""Between a reader's answer and the notebook: side effects are caught, described in words, and undone."""

import contextlib
import io
import math
import random
import reprlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class CheckFailed(AssertionError):
    """An exercise's answer is wrong; the message is a hint that names the mistake."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook: the hint alone, without lines of ours that hold other hints."""
        return [f"CheckFailed: {self}"]


class Raised(Exception):
    """What an answer raised, as an outcome that can be compared with another."""

    def __init__(self, error: BaseException, call: str = "", line: str = ""):
        super().__init__(f"{call} raised {type(error).__name__}: {error}{line}")
        self.kind, self.message = type(error), str(error)


class NotAttempted(Exception):
    """The stub is as it was."""


@contextlib.contextmanager
def same_modes() -> Iterator[None]:
    """Put back the default dtype and device and the grad mode, which an answer may change."""
    dtype, device, grad = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_grad_enabled(grad)


@contextlib.contextmanager
def same_generators() -> Iterator[None]:
    """Put back the state of the random number generators; those of GPUs are neither seeded nor used."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


class Guard:
    """A reader's function that can be called like itself.

    Args:
        fn: the reader's function.
        may_change: whether the exercise is to change what it is given.
        may_return_none: whether None is a result.

    Attributes:
        returned: what the last call returned.
        printed: what all calls printed.
    """

    buffer = io.StringIO  # what an answer prints goes into

    def __init__(self, fn: Callable, *, may_change: bool = False, may_return_none: bool = False):
        self.fn, self.may_change, self.may_return_none = fn, may_change, may_return_none
        self.returned: Any = None
        self.printed = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the reader's function.

        Raises:
            Raised: if it raises, ``sys.exit()`` included.
            NotAttempted: if it raises a bare NotImplementedError.
            CheckFailed: if it returns None, changes what it was given, or leaves a hook in a model.
        """
        inputs = [*args, *kwargs.values()]
        given = [*map(describe, args), *(f"{key}={describe(value)}" for key, value in kwargs.items())]
        call = f"{getattr(self.fn, '__name__', 'your function')}({', '.join(given)})"
        before, output = list(_contents(inputs)), self.buffer()
        try:
            with same_modes(), contextlib.redirect_stdout(output):
                grad = torch.is_grad_enabled()
                self.returned = self.fn(*args, **kwargs)
                left_off = grad and not torch.is_grad_enabled()
        except (Exception, SystemExit) as error:
            if isinstance(error, NotImplementedError) and not error.args:  # PyTorch's own has a message
                raise NotAttempted from None
            raise Raised(error, call, _line(self.fn, error)) from None
        finally:
            self.printed += output.getvalue()
        if self.returned is None and not self.may_return_none:
            raise CheckFailed(f"{call} returned None. Is a `return` missing?")
        if left_off:
            raise CheckFailed(f"{call}: gradients were left switched off. Use `with torch.no_grad()`")
        if not self.may_change and (changed := _first_change(before, list(_contents(inputs)))):
            raise CheckFailed(f"{call}: {changed}")
        return self.returned


def _line(fn: Callable, error: BaseException) -> str:
    """The line of the reader's own code at which ``error`` arose."""
    file = getattr(getattr(fn, "__code__", None), "co_filename", None)
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" (in your line `{lines[-1]}`)" if lines and lines[-1] else ""


def _contents(value: Any) -> Iterator[tuple[str, Any]]:
    """Everything in ``value`` that an answer could change: (what to call it, a copy)."""
    if isinstance(value, Tensor | np.ndarray):
        kept = value.detach().clone() if isinstance(value, Tensor) else value.copy()
        yield f"the input of shape {tuple(value.shape)}", kept
    elif isinstance(value, nn.Module):
        for key, tensor in value.state_dict().items():
            yield f"{key} of the {type(value).__name__}", tensor.detach().clone()
        yield "hook", sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in value.modules())
    elif isinstance(value, dict):
        yield "the keys of a dictionary", list(value)
        yield from _contents(list(value.values()))
    elif isinstance(value, list | tuple):
        yield "the length of a list", len(value)
        for item in value:
            yield from _contents(item)


def _first_change(before: list, after: list) -> str:
    for (name, kept), (_, now) in zip(before, after, strict=False):
        if name == "hook":
            if now > kept:
                return "a hook was left in the model: every later pass would go on recording. Remove it in a `finally`"
        elif not same(now, kept):
            return (
                f"{name} was changed in place, and the caller still needs it. +=, *=, /=, an assignment to a slice and "
                "methods that end in _ do so: make a new one, or work on a copy"
            )
    return ""


def describe(value: Any, depth: int = 3) -> str:
    """A tensor by its shape, a function by its name, a module by its class, a list or dict by what is in it."""
    if isinstance(value, Tensor):
        return f"Tensor{tuple(value.shape)}"
    if isinstance(value, nn.Module):  # its repr has a line for each layer
        return type(value).__name__
    if type(value) in (list, tuple) and len(value) <= 8 and depth:
        inside = ", ".join(describe(item, depth - 1) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if type(value) is dict and len(value) <= 8 and depth:
        return "{" + ", ".join(f"{key!r}: {describe(item, depth - 1)}" for key, item in value.items()) + "}"
    if isinstance(value, str | int | float | bool | None):
        return reprlib.repr(value)
    return getattr(value, "__name__", None) or f"a {type(value).__name__}"


def is_number(value: Any) -> bool:
    """Whether ``value`` is one number: Python's, NumPy's, or a tensor or an array without axes."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and value.device.type != "meta" and not value.is_complex()
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, int | float | np.number | np.bool_)


def is_verdict(value: Any) -> bool:
    """Whether ``value`` says yes or no: a bool, Python's or NumPy's, or a tensor with one element."""
    one = isinstance(value, Tensor) and value.numel() == 1 and value.device.type != "meta"
    return one or isinstance(value, bool | np.bool_)


def same(got: Any, want: Any, tolerance: float = 0.0) -> bool:
    """Whether two results are alike: tensors of one shape, numbers, or lists and dictionaries of these.

    Numbers may be Python's or tensors without axes; a list, or a tensor or an array with one axis, may stand for a
    tuple. A tensor of booleans is not one of numbers. NaN equals NaN.
    """
    if isinstance(want, Raised):
        return isinstance(got, Raised) and (got.kind, got.message) == (want.kind, want.message)
    if isinstance(want, Tensor) and want.ndim:
        if not isinstance(got, Tensor) or (got.shape, got.device, got.layout) != (want.shape, want.device, want.layout):
            return False
        if got.is_quantized or (got.dtype == torch.bool) != (want.dtype == torch.bool):
            return False
        wide = torch.complex128 if got.is_complex() or want.is_complex() else torch.float64
        return torch.allclose(got.detach().to(wide), want.detach().to(wide), tolerance, tolerance, equal_nan=True)
    if isinstance(want, np.ndarray):
        return isinstance(got, np.ndarray) and np.array_equal(got, want)
    if isinstance(want, bool | np.bool_):
        return is_verdict(got) and bool(got) == bool(want)
    if is_number(want):
        if not is_number(got) or isinstance(got, bool):
            return False
        a, b = float(got), float(want)
        close = math.isfinite(b) and abs(a - b) <= tolerance * (1 + abs(b))
        return close or a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(want, dict):
        alike = isinstance(got, dict) and got.keys() == want.keys()
        return alike and all(same(got[key], want[key], tolerance) for key in want)
    if isinstance(want, list | tuple):
        if isinstance(got, Tensor | np.ndarray) and got.ndim == 1 and str(got.device) != "meta":
            got = got.tolist()
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return False
        return all(same(g, w, tolerance) for g, w in zip(got, want, strict=True))
    return isinstance(got, type(want)) and bool(got == want)
