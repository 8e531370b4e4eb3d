"""What the engine checks in every exercise, in addition to its declaration."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, Guard, NotAttempted, same
from vit_tutorial.exercises.outcomes import outcome

# What the sizes are called from which an exercise's arguments are made.
WORDS = {
    "b": "images", "c": "channels", "n": "tokens", "m": "keys", "h": "heads", "hd": "numbers in a head", "d": "dim",
    "k": "classes", "depth": "blocks", "gh": "rows of patches", "gw": "columns of patches",
    "ph": "rows of pixels in a patch", "pw": "columns of pixels in a patch",
}  # fmt: skip


def questions(task: Exercise) -> Iterator[Case]:
    """The case of the chapter, those of the declaration, other sizes, and a second call."""
    yield from [Case(task.given), *task.cases] if task.given else task.cases
    if not task.given:
        return
    for name, size in inspect.signature(task.given).parameters.items() if "sizes" not in task.without else ():
        for other in (task.smallest.get(name, 1), size.default + 1):
            squeezed = ", or does a squeeze() drop an axis of one" if other == 1 else ""
            said = f"right for {size.default} {WORDS.get(name, name)}, wrong for {other}. Is a size written in by hand"
            if other != size.default:
                yield Case(lambda changed={name: other}: task.given(**changed), f"{said}{squeezed}?")
    if "again" not in task.without:
        yield Case(task.given, AGAIN)


def notes(task: Exercise) -> Iterator[Case]:
    """What no statement asks unless its exercise has a case for it: a failure is a note beside "correct"."""
    yield from task.notes
    for probe, (change, said) in CHANGES.items() if task.given else ():
        if probe not in task.without:
            yield Case(lambda change=change: change_tensors(task.given(), change), said)


def change_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with each tensor in it, in lists and tuples too, replaced by ``change`` of it."""
    if type(value) in (list, tuple):
        return type(value)(change_tensors(item, change) for item in value)
    return change(value) if type(value) is Tensor else value


def _scattered(x: Tensor) -> Tensor:
    """The same numbers, with the axes laid out in memory the other way round."""
    axes = tuple(reversed(range(x.ndim)))
    return x.permute(axes).contiguous().permute(axes)


AGAIN = (
    "right at first, but a second call with the same input gives another result. Is something kept from call to call, "
    "in a global or in a default argument?"
)
# The probes whose failure is a note: what each does to the tensors of the first case, and what it says.
CHANGES = {
    "strides": (_scattered, "it fails for a tensor that isn't contiguous, as after a transpose "
                "or a slice. reshape, which copies where it must, does what view can't"),
    "float64": (lambda x: x.double() if x.is_floating_point() else x, "it is right for float32 and fails for float64. "
                "dtype=x.dtype, or torch.zeros_like and its kin, give new tensors the dtype of the input"),
}  # fmt: skip


def gradient_note(task: Exercise, guard: Guard) -> str:
    """The note if gradients do not flow through a right answer as they do through the reference."""
    if "gradient" in task.without or not task.given:
        return ""
    want, wanted = gradients(task, task.reference)
    if want is None:
        return ""
    try:
        got, flowing = gradients(task, guard)
    except (CheckFailed, NotAttempted, RuntimeError) as error:  # the last of autograd
        return f"its gradient can't be computed: {error}"
    if got is None:
        return "no gradient flows back to the input, so nothing before it could learn"
    same_flow = same(flowing, wanted, max(1e-4, task.tolerance))
    return "" if same_flow else "a part of the computation is hidden from autograd, so its gradient is wrong"


def gradients(task: Exercise, fn: Callable) -> tuple[Tensor | None, list[Tensor]]:
    """A tensor that ``fn`` returned with a graph, None if there is none, and the gradients of the inputs."""
    leaves: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        if x.is_floating_point():
            leaves.append(x := x.to(torch.float32 if "float64" in task.without else torch.float64).requires_grad_())
        return x

    result = outcome(task, fn, Case(lambda: change_tensors(task.given(), leaf)))
    if not isinstance(result, Tensor) or not result.requires_grad or not leaves:
        return None, []
    return result, flowing(result, leaves)


def flowing(result: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of ``leaves``, for gradients of the result that are drawn and always the same."""
    weights = torch.randn(result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = torch.autograd.grad((result.double() * weights).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, found, strict=True)]


def gradient_of(result: Any, leaf: Tensor) -> Tensor:
    """The gradient of ``leaf``, if a statement asks for it.

    Raises:
        CheckFailed: if none flows.
    """
    if isinstance(result, Tensor) and result.requires_grad:
        return flowing(result, [leaf])[0]
    raise CheckFailed(
        "the numbers are right, but no gradient flows back to the input, so nothing before it could learn. "
        "torch.no_grad(), .detach(), .data, .item(), .numpy() and torch.tensor(…) cut it"
    )
