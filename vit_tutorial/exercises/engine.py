"""The engine behind all exercises: an exercise is data, and one function judges an answer by it."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor

from vit_tutorial.exercises.contents import CHAPTERS
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, Guard, NotAttempted, Raised, describe, same_generators
from vit_tutorial.exercises.outcomes import RecordedAnswer, alike, arguments, compare, expected, outcome
from vit_tutorial.exercises.probes import gradient_note, notes, questions
from vit_tutorial.old_names import renamed


def exercise(name: str, fn: Any, among: Mapping[str, Exercise] | None = None) -> Callable:
    """Check a reader's function.

    Args:
        name: the exercise.
        fn: the reader's answer.
        among: exercises of your own, by their names.

    Returns:
        ``fn`` if it is right. The reference if ``fn`` raises a bare NotImplementedError, as an exercise does before it
        is attempted, so that the notebook runs on.

    Raises:
        CheckFailed: if ``fn`` is wrong; the message names the mistake.
        ValueError: if there is no exercise of that name.
    """
    task = find(name, among)
    if not callable(fn):
        raise CheckFailed(f"{name} must be a function, got {describe(fn)}. Pass it without calling it")
    guard = Guard(fn, may_change=task.may_change, may_return_none=task.may_return_none)
    try:
        with same_generators():
            judge(task, guard)
            said = note(task, guard)
    except NotAttempted:
        print(f"{name}: not attempted yet. The chapter goes on with the reference.")
        return task.reference
    print(f"{name}: correct. The chapter goes on with your function.")
    if said:
        print(f"(Note: {said})")
    if guard.printed:
        print(f"(It prints; that was hidden here. The first line: {guard.printed.splitlines()[0][:80]})")
    return fn


def find(name: str, among: Mapping[str, Exercise] | None = None) -> Exercise:
    """The declaration of an exercise, one of ``among`` before the book's; only its own chapter is loaded.

    Raises:
        ValueError: if there is no exercise of that name.
    """
    if among and name in among:
        return among[name]
    name = renamed(name)
    for chapter, names in CHAPTERS.items():
        if name in names:
            return importlib.import_module(f"vit_tutorial.exercises.{chapter}").EXERCISES[name]
    known = ", ".join(sorted([*(among or ()), *(name for names in CHAPTERS.values() for name in names)]))
    raise ValueError(f"there is no exercise {name!r}; there are {known}")


def judge(task: Exercise, guard: Guard | RecordedAnswer) -> None:
    """Raise CheckFailed with a hint unless the answer is right in every case."""
    cases = guard.cases if isinstance(guard, RecordedAnswer) else list(questions(task))
    for case in cases:
        got, want = outcome(task, guard, case), expected(task, case)
        if problem := compare(task, case, got, want):
            said = hint(task, guard, cases, case, got, want) or explanation(task, case, got, want)
            raise CheckFailed(said or problem)


def note(task: Exercise, guard: Guard) -> str:
    """The first thing that a right answer can't do although the reference can; "" if there is none."""
    for case in notes(task):
        if compare(task, case, _outcome_or_refusal(task, guard, case), expected(task, case)):
            return case.hint
    if said := gradient_note(task, guard):
        return said
    first = next(questions(task))
    got, want = (_outcome_or_refusal(task, fn, first) for fn in (guard, task.reference))
    other = isinstance(got, Tensor) and isinstance(want, Tensor) and got.dtype != want.dtype
    return f"the result is {got.dtype}, ours {want.dtype}" if other else ""


def explanation(task: Exercise, case: Case, got: Any, want: Any) -> str:
    """What the exercise itself can say about wrong values."""
    with suppress(Exception):  # it can't explain results of another kind; then the problem itself is the hint
        if task.explain and isinstance(got, Tensor) and (got.shape, got.device) == (want.shape, want.device):
            return task.explain(got, want, *arguments(case))
    return ""


def hint(task: Exercise, guard: Guard | RecordedAnswer, cases: list[Case], failed: Case, got: Any, want: Any) -> str:
    """The hint of the mistake whose outcomes are most like the answer's; "" if no mistake matches."""
    answers = [_outcome_or_refusal(task, guard, case) for case in cases]
    verdict = isinstance(want, bool)
    if verdict and task.true_means:
        truths = [expected(task, case) for case in cases]
        inverted = [alike(answer, not truth, task) for answer, truth in zip(answers, truths, strict=True)]
        if all(inverted) and len(set(truths)) == 2:
            return f"every answer is inverted: True means {task.true_means}"
    first = [(failed.hint, failed.caught)] if failed.caught else []  # the mistake that this case was made for
    others = [(case.hint, case.caught) for case in task.cases if case.caught and case is not failed]
    fits, of_this_shape = {}, []
    for said, mistake in [*first, *task.mistakes.items(), *others]:
        made = _outcome_or_refusal(task, mistake, failed)
        if alike(got, made, task):
            outcomes = [_outcome_or_refusal(task, mistake, case) for case in cases]
            agree = [alike(*pair, task) for pair in zip(answers, outcomes, strict=True)]
            if not verdict or all(agree):  # yes and no are alike too easily
                fits[said] = sum(agree)
        elif all(isinstance(x, Tensor) for x in (got, made, want)) and got.shape == made.shape != want.shape:
            of_this_shape.append(f"expected shape {tuple(want.shape)}, got {tuple(got.shape)}. {said}")
    return max(fits, key=fits.get) if fits else next(iter(of_this_shape), "")


def _outcome_or_refusal(task: Exercise, fn: Callable | RecordedAnswer, case: Case) -> Any:
    try:
        return outcome(task, fn, case)
    except (CheckFailed, NotAttempted) as error:
        return Raised(error)
