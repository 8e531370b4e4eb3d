"""What runs inside a model during one forward pass: the calls of its parts, in order (chapter 12)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn


class Call:
    """One call of a part.

    Args:
        part: the module, and its ``name`` in the model, "" for the model itself.
        args, options: what it was given.
        start: its place in the order of all that began and ended; so is ``end``.

    Attributes:
        out: what it returned.
    """

    def __init__(self, part: nn.Module, name: str, args: tuple, options: dict, start: int = 0):
        self.part, self.name, self.args, self.options = part, name, args, options
        self.start, self.end = start, -1
        self.out: object = None

    @property
    def given(self) -> Tensor | None:
        """The first tensor that it was given."""
        return next((value for value in (*self.args, *self.options.values()) if isinstance(value, Tensor)), None)

    @property
    def returned(self) -> Tensor | None:
        """What it returned, or the first tensor in it."""
        return first_tensor(self.out)

    def again(self, x: Tensor) -> Tensor:
        """What the part returns for another first tensor, with all else that it was given."""
        given = self.given
        args = [x if value is given else value for value in self.args]
        options = {name: x if value is given else value for name, value in self.options.items()}
        return first_tensor(self.part(*args, **options))

    def holds(self, other: "Call") -> bool:
        """Whether the other call ran within this one."""
        return self.start < other.start and other.end < self.end


def first_tensor(value: object) -> Tensor | None:
    """The value, or the first of its entries, if that is a tensor."""
    if isinstance(value, tuple | list) and value:
        value = value[0]
    return value if isinstance(value, Tensor) else None


@contextmanager
def hooked(hooks: list) -> Iterator[None]:
    """Take the hooks off at the end of a ``with`` block."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def trace(model: nn.Module, images: Tensor) -> list[Call]:
    """The calls of all parts for these images, in the order in which they began; the model's own is the first.

    What a linear layer returned is kept as a copy, since models may go on in place.
    """
    calls: list[Call] = []
    running: list[Call] = []
    clock = iter(range(10**9))
    hooks = []
    for name, part in model.named_modules():
        hooks.append(part.register_forward_pre_hook(partial(_begin, calls, running, clock, name), with_kwargs=True))
        hooks.append(part.register_forward_hook(partial(_end, running, clock), with_kwargs=True))
    with hooked(hooks):
        model(images)
    return calls


def _begin(
    calls: list[Call], running: list[Call], clock: Iterator[int], name: str, part: nn.Module, args: tuple, options: dict
) -> None:
    calls.append(Call(part, name, args, options, next(clock)))
    running.append(calls[-1])


def _end(running: list[Call], clock: Iterator[int], part: nn.Module, args: tuple, options: dict, out: object) -> None:
    call = running.pop()
    call.end = next(clock)
    call.out = out.clone() if isinstance(part, nn.Linear) and isinstance(out, Tensor) else out


@torch.no_grad()
def first_not_finite(model: nn.Module, images: Tensor) -> tuple[str, nn.Module]:
    """The name and the part that first made a NaN or an infinity of numbers that were finite.

    A part is blamed for what happens in it between its own parts. The model itself is the last resort.
    """
    blamed: list[tuple[str, nn.Module]] = []

    def look(name: str) -> Callable:
        def hook(part: nn.Module, args: tuple, options: dict, out: object) -> None:
            if not blamed and not _all_finite(out) and _all_finite((*args, *options.values())):
                blamed.append((name, part))

        return hook

    with hooked([part.register_forward_hook(look(name), with_kwargs=True) for name, part in model.named_modules()]):
        model(images)
    return blamed[0] if blamed else ("", model)


def _all_finite(value: object) -> bool:
    """Whether no tensor in it has a NaN or an infinity. A mask may have −inf, and is not asked."""
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool((value.isfinite() | (value == -torch.inf)).all())
    if isinstance(value, dict):
        value = tuple(value.values())
    return all(map(_all_finite, value)) if isinstance(value, tuple | list) else True
