"""What runs inside a model during one forward pass: the calls of its parts, in order (chapter 12)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps

import torch
from torch import Tensor, nn

from vit_tutorial.clinic.symptoms import CannotTell

# What other people's code raises when it is given something that does not fit.
FAILURES = (RuntimeError, ValueError, AssertionError, TypeError, AttributeError, LookupError)


class DoesNotRun(CannotTell):
    """A model, or a part of it, that raised an error of its own; the message has it."""

    def __init__(self, error: Exception):
        first = str(error).splitlines()[0] if str(error) else "without a word"
        super().__init__(f"{type(error).__name__}: {first}")
        self.kind = type(error).__name__


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
        try:
            return first_tensor(self.part(*args, **options))
        except FAILURES as error:
            raise DoesNotRun(error) from error

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


@contextmanager
def opened(model: nn.Module) -> Iterator[None]:
    """In this context ``part.forward(x)`` is ``part(x)``, and an error of the model itself is a DoesNotRun.

    A direct call of ``forward``, which many people write, would pass by the hooks.
    """
    parts = [part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule)]
    before = [part.__dict__.get("forward") for part in parts]
    hooks = []
    for part in parts:
        part.forward, told = _through_hooks(part, whole=part is model)
        hooks.append(part.register_forward_pre_hook(told))
    try:
        with hooked(hooks):
            yield
    finally:
        for part, forward in zip(parts, before, strict=True):
            del part.forward
            if forward is not None:
                part.forward = forward


def _through_hooks(part: nn.Module, *, whole: bool) -> tuple[Callable, Callable]:
    """A forward that calls the part unless the part calls it, and the hook by which it knows."""
    own, called = part.forward, []

    @wraps(own)
    def forward(*args: object, **options: object) -> object:
        if not called:
            return part(*args, **options)
        called.pop()
        try:
            return own(*args, **options)
        except FAILURES as error:
            if not whole or isinstance(error, DoesNotRun):
                raise
            raise DoesNotRun(error) from error

    return forward, lambda part, args: called.append(True)


def unregistered(model: nn.Module, outputs: Tensor) -> list[Tensor]:
    """What the outputs were computed from that wants a gradient, and is no parameter of the model."""
    known = {id(parameter) for parameter in model.parameters()}
    seen, found, waiting = set(), {}, [outputs.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            found[id(leaf)] = leaf
        waiting += [after for after, _ in node.next_functions]
    return list(found.values())


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
