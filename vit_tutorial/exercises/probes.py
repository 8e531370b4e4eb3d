"""What the engine asks of every exercise, beside what its declaration asks."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, Guard, same
from vit_tutorial.exercises.outcomes import outcome

# What the sizes are called from which an exercise's arguments are made.
WORDS = {
    "b": "images", "c": "channels", "n": "tokens", "m": "keys", "h": "heads", "hd": "numbers in a head", "d": "dim",
    "k": "classes", "depth": "blocks", "gh": "rows of patches", "gw": "columns of patches",
    "ph": "rows of pixels in a patch", "pw": "columns of pixels in a patch",
}  # fmt: skip


def questions(task: Exercise) -> Iterator[Case]:
    """The case of the chapter, those of the declaration, and what the engine asks of every exercise."""
    if task.given is None:
        yield from task.cases
        return
    yield Case(given=task.given)
    yield from task.cases
    sizes = {name: size.default for name, size in inspect.signature(task.given).parameters.items()}
    for name, size in sizes.items() if "sizes" not in task.without else ():
        for other in dict.fromkeys((max(1, task.smallest.get(name, 1)), size + 1)):
            reason = "Is a size written in by hand" + (
                "?" if other > 1 else ", or does a squeeze() drop an axis of one?"
            )
            words = WORDS.get(name, name)
            if other != size:
                yield Case(
                    given=lambda changed={name: other}: task.given(**changed),
                    hint=f"right for {size} {words}, wrong for {other}. {reason}",
                )
    if "again" not in task.without:
        yield Case(
            given=task.given,
            hint="right at first, but a second call with the same input gives another result. Is something kept from "
            "call to call, in a global or in a default argument?",
        )
    if "strides" not in task.without:
        yield Case(
            given=lambda: change_tensors(task.given(), scattered),
            hint="right, but not for a tensor whose numbers do not stand in memory in order, as after a transpose or a "
            "slice. Use reshape, which copies where it must, instead of view",
        )
    if "float64" not in task.without:
        yield Case(
            given=lambda: change_tensors(task.given(), lambda x: x.double() if x.is_floating_point() else x),
            hint="right for float32, wrong for float64. Give new tensors the dtype of the input: dtype=x.dtype, or "
            "torch.zeros_like and its kin",
        )


def change_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with each tensor in it, in lists and tuples too, replaced by ``change`` of it."""
    if type(value) in (list, tuple):
        return type(value)(change_tensors(item, change) for item in value)
    return change(value) if type(value) is Tensor else value


def scattered(x: Tensor) -> Tensor:
    """The same numbers, with the axes laid out in memory the other way round."""
    axes = tuple(reversed(range(x.ndim)))
    return x.permute(axes).contiguous().permute(axes)


def check_gradient(task: Exercise, guard: Guard) -> None:
    """Raise CheckFailed unless gradients flow through the answer as they flow through the reference."""
    dtype = torch.float32 if "float64" in task.without else torch.float64
    case = Case(given=lambda: change_tensors(task.given(), lambda x: _leaf(x, dtype)))
    (want, wanted), (got, flowing) = _gradients(task, task.reference, case), _gradients(task, guard, case)
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


def _leaf(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).requires_grad_() if x.is_floating_point() else x


def _gradients(task: Exercise, fn: Callable, case: Case) -> tuple[Tensor | None, list[Tensor]]:
    """A tensor that ``fn`` returned with a graph, None if there is none, and the gradients of the inputs."""
    leaves: list[Tensor] = []

    def kept() -> tuple:
        args = case.given()
        change_tensors(args, lambda x: leaves.append(x) or x)
        return args

    result = outcome(task, fn, Case(given=kept))
    leaves = [leaf for leaf in leaves if leaf.requires_grad]
    if not isinstance(result, Tensor) or not result.requires_grad or not leaves:
        return None, []
    weights = torch.randn(result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = torch.autograd.grad((result.double() * weights).sum(), leaves, allow_unused=True)
    return result, [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, found, strict=True)]
