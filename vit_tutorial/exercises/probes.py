"""What the engine asks of every exercise, beside what its declaration asks."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, Guard, same
from vit_tutorial.exercises.outcomes import Told, outcome

# What the sizes are called from which an exercise's arguments are made.
WORDS = {
    "b": "images", "c": "channels", "n": "tokens", "m": "keys", "h": "heads", "hd": "numbers in a head", "d": "dim",
    "k": "classes", "depth": "blocks", "gh": "rows of patches", "gw": "columns of patches",
    "ph": "rows of pixels in a patch", "pw": "columns of pixels in a patch",
}  # fmt: skip


def questions(task: Exercise) -> Iterator[Case]:
    """The case of the chapter, those of the declaration, and what the engine asks of every exercise."""
    yield from [Case(task.given), *task.cases] if task.given else task.cases
    if not task.given:
        return
    for name, size in inspect.signature(task.given).parameters.items() if "sizes" not in task.without else ():
        for other in (task.smallest.get(name, 1), size.default + 1):
            squeezed = ", or does a squeeze() drop an axis of one" if other == 1 else ""
            said = f"right for {size.default} {WORDS.get(name, name)}, wrong for {other}. Is a size written in by hand"
            if other != size.default:
                yield Case(lambda changed={name: other}: task.given(**changed), f"{said}{squeezed}?")
    for probe, (change, said) in CHANGES.items():
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


# The probes beside other sizes: what each does to the tensors of the first case, and what it says.
CHANGES = {
    "again": (lambda x: x, "right at first, but a second call with the same input gives another result. Is something "
              "kept from call to call, in a global or in a default argument?"),
    "strides": (_scattered, "right, but not for a tensor whose numbers do not stand in memory in order, as after a "
                "transpose or a slice. Use reshape, which copies where it must, instead of view"),
    "float64": (lambda x: x.double() if x.is_floating_point() else x, "right for float32, wrong for float64. Give new "
                "tensors the dtype of the input: dtype=x.dtype, or torch.zeros_like and its kin"),
}  # fmt: skip


def check_gradient(task: Exercise, guard: Guard | Told) -> None:
    """Raise CheckFailed unless gradients flow through the answer as they flow through the reference."""
    (want, wanted), (got, flowing) = gradients(task, task.reference), gradients(task, guard)
    if want is None:
        return
    if got is None:
        raise CheckFailed(
            "the numbers are right, but no gradient flows back to the input, so nothing before it could learn. "
            "torch.no_grad(), .detach(), .data, .item(), .numpy() and torch.tensor(…) cut it"
        )
    if not same(flowing, wanted, max(1e-4, task.tolerance)):
        raise CheckFailed(
            "the numbers are right, the gradient is not: a part of the computation is hidden from autograd, by "
            "torch.no_grad(), .detach(), .data or .item()"
        )


def gradients(task: Exercise, fn: Callable | Told) -> tuple[Tensor | None, list[Tensor]]:
    """A tensor that ``fn`` returned with a graph, None if there is none, and the gradients of the inputs."""
    if isinstance(fn, Told):
        return fn.gradients()
    leaves: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        if x.is_floating_point():
            leaves.append(x := x.to(torch.float32 if "float64" in task.without else torch.float64).requires_grad_())
        return x

    result = outcome(task, fn, Case(lambda: change_tensors(task.given(), leaf)))
    if not isinstance(result, Tensor) or not result.requires_grad or not leaves:
        return None, []
    weights = torch.randn(result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = torch.autograd.grad((result.double() * weights).sum(), leaves, allow_unused=True)
    return result, [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, found, strict=True)]
