"""What every check is made of: call a reader's function, compare what it gives, and register the check."""

import math
from collections.abc import Callable
from typing import Any

import torch


class CheckFailed(AssertionError):
    """An exercise's answer is wrong; the message is a hint that names the mistake."""


def call(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call a reader's function; an exception in it becomes a hint that says what was passed in.

    Raises:
        CheckFailed: when ``fn`` raises, returns nothing, or changes a tensor or a module that it was given. A bare
            NotImplementedError passes through: nothing was attempted.
    """
    name = getattr(fn, "__name__", "your function")
    given = ", ".join([*(_describe(arg) for arg in args), *(f"{key}={_describe(arg)}" for key, arg in kwargs.items())])
    inputs = [*args, *kwargs.values()]
    before = [(what, tensor.clone()) for what, tensor in _tensors_in(inputs)]
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        if isinstance(error, NotImplementedError) and not error.args:  # PyTorch's own has a message
            raise
        raise CheckFailed(f"{name}({given}) raised {type(error).__name__}: {error}") from error
    if result is None:
        raise CheckFailed(f"{name}({given}) returned None. Is a `return` missing?")
    for (what, kept), (_, now) in zip(before, _tensors_in(inputs), strict=False):
        if not torch.equal(now, kept):
            raise CheckFailed(
                f"{name}({given}): {what} was changed in place, and the caller still needs it. +=, *=, /=, an "
                "assignment to a slice and methods that end in _ do so: make a new tensor, or work on a copy"
            )
    return result


def _tensors_in(values: Any) -> list[tuple[str, torch.Tensor]]:
    """All tensors among values, in lists, dictionaries and modules too, with what to call them."""
    if isinstance(values, torch.Tensor):
        return [(f"the input of shape {tuple(values.shape)}", values)]
    if isinstance(values, torch.nn.Module):
        return [(f"{key} of the {type(values).__name__}", tensor) for key, tensor in values.state_dict().items()]
    if isinstance(values, dict):
        values = list(values.values())
    return [found for value in values for found in _tensors_in(value)] if isinstance(values, list | tuple) else []


def _describe(value: Any) -> str:
    """A tensor by its shape, a function by its name, a module by its class, a list or dict by what is in it."""
    if isinstance(value, torch.Tensor):
        return f"Tensor{tuple(value.shape)}"
    if isinstance(value, torch.nn.Module):  # its repr has a line for each layer
        return type(value).__name__
    if isinstance(value, list):
        return f"[{', '.join(map(_describe, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_describe(item)}" for key, item in value.items()) + "}"
    return getattr(value, "__name__", None) or repr(value)


def expect(condition: bool, hint: str) -> None:
    """Raise CheckFailed with ``hint`` unless ``condition`` holds."""
    if not condition:
        raise CheckFailed(hint)


def yes_or_no(answer: Any, hint: str = "") -> bool:
    """``answer`` as a bool, be it Python's, NumPy's or a tensor's single number; CheckFailed where it is none."""
    shape = tuple(getattr(answer, "shape", ()))
    is_one = isinstance(answer, bool) or (hasattr(answer, "shape") and math.prod(shape) == 1)
    got = type(answer).__name__ + (f" of shape {shape}" if shape else "")
    expect(is_one, f"expected True or False, got {got}. {hint}".strip())
    return bool(answer)


def expect_shape(
    result: Any, shape: tuple[int, ...], hint: str = "", mistakes: dict[tuple[int, ...], str] | None = None
) -> None:
    """Raise CheckFailed unless ``result`` is a tensor of ``shape``.

    ``mistakes`` has hints for certain wrong shapes; ``hint`` says what usually goes wrong with any other.
    """
    expect(isinstance(result, torch.Tensor), f"expected a tensor, got {type(result).__name__}")
    got = tuple(result.shape)
    expect(got == shape, f"expected shape {shape}, got {got}. {(mistakes or {}).get(got, hint)}".strip())


def close(result: Any, truth: torch.Tensor, tolerance: float = 1e-5) -> bool:
    """Whether ``result`` has the shape of ``truth`` and its values, up to ``tolerance``."""
    if not isinstance(result, torch.Tensor) or result.shape != truth.shape:
        return False
    return torch.allclose(result.to(truth.dtype), truth, rtol=tolerance, atol=tolerance)


def rule_out(result: Any, mistakes: dict[str, torch.Tensor], tolerance: float = 1e-5) -> None:
    """Raise CheckFailed with the hint of the first of ``mistakes`` that gives this very ``result``."""
    for hint, wrong in mistakes.items():
        expect(not close(result, wrong, tolerance), hint)


def compare(
    result: Any, truth: torch.Tensor, mistakes: dict[str, torch.Tensor], otherwise: str, tolerance: float = 1e-5
) -> None:
    """Raise CheckFailed unless ``result`` is ``truth``: with a mistake's hint, or ``otherwise`` where none gives it."""
    if not close(result, truth, tolerance):
        rule_out(result, mistakes, tolerance)
        raise CheckFailed(otherwise)


_EXERCISES: dict[str, tuple[Callable[[Callable], None], Callable]] = {}


def checks(reference: Callable) -> Callable:
    """Register ``check_<name>`` as the check of exercise ``<name>``, and ``reference`` as its stand-in."""

    def register(check: Callable[[Callable], None]) -> Callable[[Callable], None]:
        _EXERCISES[check.__name__.removeprefix("check_")] = check, reference
        return check

    return register


def exercise(name: str, fn: Callable) -> Callable:
    """Check a reader's function.

    Args:
        name: the exercise.
        fn: the reader's answer.

    Returns:
        ``fn`` when it is right. The reference when ``fn`` raises a bare NotImplementedError, as an exercise does before
        it is attempted, so that the notebook runs on.

    Raises:
        CheckFailed: when ``fn`` is wrong; the message names the mistake.
        ValueError: when there is no exercise of that name.
    """
    if name not in _EXERCISES:
        raise ValueError(f"there is no exercise {name!r}; there are {', '.join(sorted(_EXERCISES))}")
    check, reference = _EXERCISES[name]
    # The same seed for every attempt: a hint must not come and go.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)  # the CPU's alone, for those of GPUs are not put back
        try:
            check(fn)
        except NotImplementedError:
            print(f"{name}: not attempted yet. The chapter goes on with the reference.")
            return reference
    print(f"{name}: correct. The chapter goes on with your function.")
    return fn
