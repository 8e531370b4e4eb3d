"""The engine behind all exercises: an exercise is data, and one function judges an answer by it."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.exercises.contents import CHAPTERS
from vit_tutorial.exercises.differences import difference, wrong_shape
from vit_tutorial.exercises.guard import (
    CheckFailed,
    Guard,
    NotAttempted,
    Raised,
    describe,
    is_verdict,
    same,
    same_generators,
)

# What the sizes are called from which an exercise's arguments are made.
WORDS = {
    "b": "images", "c": "channels", "n": "tokens", "m": "keys", "h": "heads", "hd": "numbers in a head", "d": "dim",
    "k": "classes", "depth": "blocks", "gh": "rows of patches", "gw": "columns of patches",
    "ph": "rows of pixels in a patch", "pw": "columns of pixels in a patch",
}  # fmt: skip
UNKNOWN = object()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One question to an answer.

    Args:
        given: makes the arguments, anew for each call.
        hint: what to say to an answer that fails here and whose mistake is not known.
        truth: the right result, where the exercise's ``truth`` is not to compute it.
        says: what the message of the expected ValueError must contain.
        caught: a wrong answer that fails here first, for the tests.
    """

    given: Callable[[], tuple]
    hint: str = ""
    truth: Any = UNKNOWN
    says: Sequence[str] = ()
    caught: Callable | None = None


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """What is known about an exercise.

    Args:
        reference: the answer that the chapter goes on with when nothing was attempted.
        truth: the same function from an independent source; where it raises a ValueError, so must an answer.
        given: makes the first case's arguments from named sizes with defaults. The engine tries other sizes, too.
        cases: further questions, each with its hint.
        mistakes: wrong functions by their hints, the commoner before the rarer.
        right: other right answers, for the tests.
        otherwise: what to say to wrong numbers of an unknown mistake.
        shape: what to say to a wrong shape of an unknown mistake.
        explain: called with the wrong result, the truth and the arguments; says what is wrong, or "".
        run: how an answer is called, where its outcome is not simply what it returns.
        true_means: for an answer that says yes or no, what True means.
        tolerance: relative and absolute.
        dtype: whether the result must have the truth's dtype.
        exact_type: whether a number must be of the truth's type, an int say.
        smallest: the smallest size the engine may try, where 1 is too small.
        without: the probes that make no sense here: "sizes", "strides", "float64", "gradient", "again".
        may_change: whether an answer is to change what it is given.
        may_return_none: whether None is a result.
    """

    reference: Callable
    truth: Callable | None = None
    given: Callable[..., tuple] | None = None
    cases: Sequence[Case] = ()
    mistakes: dict[str, Callable] = field(default_factory=dict)
    right: Sequence[Callable] = ()
    otherwise: str = ""
    shape: str = ""
    explain: Callable[..., str] | None = None
    run: Callable[..., Any] = lambda fn, *args: fn(*args)
    true_means: str = ""
    tolerance: float = 1e-5
    dtype: bool = False
    exact_type: bool = False
    smallest: dict[str, int] = field(default_factory=dict)
    without: Sequence[str] = ()
    may_change: bool = False
    may_return_none: bool = False


def exercise(name: str, fn: Any) -> Callable:
    """Check a reader's function.

    Args:
        name: the exercise.
        fn: the reader's answer.

    Returns:
        ``fn`` if it is right. The reference if ``fn`` raises a bare NotImplementedError, as an exercise does before it
        is attempted, so that the notebook runs on.

    Raises:
        CheckFailed: if ``fn`` is wrong; the message names the mistake.
        ValueError: if there is no exercise of that name.
    """
    task = find(name)
    if not callable(fn):
        raise CheckFailed(f"{name} must be a function, got {describe(fn)}. Pass it without calling it")
    guard = Guard(fn, may_change=task.may_change, may_return_none=task.may_return_none)
    try:
        with same_generators():
            judge(task, guard)
    except NotAttempted:
        print(f"{name}: not attempted yet. The chapter goes on with the reference.")
        return task.reference
    print(f"{name}: correct. The chapter goes on with your function.")
    if guard.printed:
        print(f"(It prints; that was hidden here. The first line: {guard.printed.splitlines()[0][:80]})")
    return fn


def find(name: str) -> Exercise:
    """The declaration of an exercise; only its own chapter is loaded.

    Raises:
        ValueError: if there is no exercise of that name.
    """
    for chapter, names in CHAPTERS.items():
        if name in names:
            return importlib.import_module(f"vit_tutorial.exercises.{chapter}").EXERCISES[name]
    known = ", ".join(sorted(name for names in CHAPTERS.values() for name in names))
    raise ValueError(f"there is no exercise {name!r}; there are {known}")


def judge(task: Exercise, guard: Guard) -> None:
    """Raise CheckFailed with a hint unless the answer is right in every case."""
    cases = list(questions(task))
    for case in cases:
        got, want = outcome(task, guard, case), expected(task, case)
        if problem := compare(task, case, got, want):
            raise CheckFailed(
                hint(task, guard, cases, case, got, want) or explanation(task, case, got, want) or problem
            )
    if "gradient" not in task.without and task.given:
        check_gradient(task, guard)


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


def arguments(case: Case) -> tuple:
    """The case's arguments: the same for each call, whatever an answer did to those before."""
    torch.default_generator.manual_seed(0)
    args = case.given()
    torch.default_generator.manual_seed(1)
    return args


def outcome(task: Exercise, fn: Callable, case: Case) -> Any:
    """What ``fn`` makes of a case; an exception is an outcome, too."""
    try:
        with torch.enable_grad():
            return task.run(fn, *arguments(case))
    except (CheckFailed, NotAttempted):
        raise
    except Raised as raised:
        return raised
    except Exception as error:
        # Not the answer's own exception: what it returned was of no use to us.
        return Unusable(fn.returned) if isinstance(fn, Guard) else Raised(error)


@dataclass
class Unusable:
    """Something returned of which nothing can be made."""

    value: Any


def expected(task: Exercise, case: Case) -> Any:
    """The right outcome."""
    if case.truth is not UNKNOWN:
        return case.truth
    try:
        return task.run(task.truth, *arguments(case))
    except ValueError as error:
        return Raised(error)


def compare(task: Exercise, case: Case, got: Any, want: Any) -> str:
    """What is wrong with an outcome, "" if nothing is."""
    said = case.hint or task.otherwise
    wrong_kind = case.hint or task.shape or task.otherwise
    if isinstance(want, Raised):
        if not isinstance(got, Raised):
            return f"{describe(got)} was returned. {said}".rstrip()
        if got.kind is not want.kind:
            return f"A {want.kind.__name__} is wanted, {got.kind.__name__} was raised. {said}".rstrip()
        if not all(part in got.message for part in case.says):
            return f"the ValueError says {got.message!r}: state both values, here {' and '.join(case.says)}"
        return ""
    if isinstance(got, Raised):
        return f"{got}. {said}".rstrip(". ")
    if isinstance(got, Unusable):
        return f"you returned {describe(got.value)}; expected {kind(want)}. {wrong_kind}".rstrip()
    try:
        right = same(got, want, task.tolerance)
    except Exception:  # a result of such a kind that it cannot even be compared
        right = False
    if right and task.dtype and isinstance(want, Tensor) and got.dtype != want.dtype:
        return f"the result is {got.dtype}, expected {want.dtype}: keep the dtype. {said}".rstrip()
    if right and not (task.exact_type and type(got) is not type(want)):
        return ""
    if isinstance(want, bool):
        return said if is_verdict(got) else f"expected True or False, got {describe(got)}. {wrong_kind}".rstrip()
    if isinstance(want, Tensor) and isinstance(got, Tensor):
        if got.shape != want.shape:
            seen = wrong_shape(got, want, task.tolerance)
            return _join(f"expected shape {tuple(want.shape)}, got {tuple(got.shape)}", seen, wrong_kind)
        if got.device != want.device:
            return f"the result is on the device {got.device}, expected {want.device}"
        return _join(said, difference(got, want, task.tolerance))
    if kind(got) != kind(want):
        return f"you returned {describe(got)}; expected {kind(want)}. {wrong_kind}".rstrip()
    return f"{said} (you returned {describe(got)}; expected {describe(want)})".lstrip()


def _join(*parts: str) -> str:
    return ". ".join(part.rstrip(".") for part in parts if part)


def explanation(task: Exercise, case: Case, got: Any, want: Any) -> str:
    """What the exercise itself can say of wrong numbers."""
    tensors = isinstance(got, Tensor) and isinstance(want, Tensor)
    if task.explain and tensors and (got.shape, got.device) == (want.shape, want.device):
        return task.explain(got, want, *arguments(case))
    return ""


def kind(value: Any) -> str:
    """What sort of result it is, in words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return {bool: "True or False", int: "a whole number", float: "a number", str: "a string"}.get(
        type(value), f"a {type(value).__name__}"
    )


def hint(task: Exercise, guard: Guard, cases: list[Case], failed: Case, got: Any, want: Any) -> str:
    """The hint of the mistake whose outcomes are most like the answer's; "" if none does as the answer did."""
    answers = [_outcome_or_refusal(task, guard, case) for case in cases]
    verdict = isinstance(want, bool)
    if verdict and task.true_means and _turned_round(answers, [expected(task, case) for case in cases]):
        return f"every answer is turned round: True means {task.true_means}"
    special = [failed, *(case for case in task.cases if case is not failed)]  # what this case was made for comes first
    mistakes = [(case.hint, case.caught) for case in special if case.caught]
    mistakes[bool(failed.caught) : 0] = task.mistakes.items()
    fits, of_this_shape = {}, []
    for said, mistake in mistakes:
        made = _outcome_or_refusal(task, mistake, failed)
        if _alike(got, made, task):
            outcomes = [_outcome_or_refusal(task, mistake, case) for case in cases]
            alike = [_alike(*pair, task) for pair in zip(answers, outcomes, strict=True)]
            if not verdict or all(alike):  # yes and no are alike too easily
                fits[said] = sum(alike)
        elif all(isinstance(x, Tensor) for x in (got, made, want)) and got.shape == made.shape != want.shape:
            of_this_shape.append(f"expected shape {tuple(want.shape)}, got {tuple(got.shape)}. {said}")
    return max(fits, key=fits.get) if fits else next(iter(of_this_shape), "")


def _turned_round(answers: list, truths: list) -> bool:
    pairs = zip(answers, truths, strict=True)
    return all(_alike(answer, not truth, None) for answer, truth in pairs) and len(set(truths)) == 2


def _alike(got: Any, made: Any, task: Exercise | None) -> bool:
    try:
        return same(got, made, task.tolerance if task else 0)
    except Exception:  # results of kinds that cannot be compared
        return False


def _outcome_or_refusal(task: Exercise, fn: Callable, case: Case) -> Any:
    try:
        return outcome(task, fn, case)
    except (CheckFailed, NotAttempted) as error:
        return Raised(error)


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
