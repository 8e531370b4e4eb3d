"""The outcome of an answer for a case, the expected one, and how they differ."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vit_tutorial.exercises.declaration import UNKNOWN, Case, Exercise
from vit_tutorial.exercises.differences import difference, wrong_shape
from vit_tutorial.exercises.guard import CheckFailed, Guard, NotAttempted, Raised, describe, is_verdict, same


def arguments(case: Case) -> tuple:
    """The case's arguments: the same for each call, whatever an answer did to those before."""
    torch.default_generator.manual_seed(0)
    args = case.given()
    torch.default_generator.manual_seed(1)
    return args


class RecordedAnswer:
    """An answer that ran in another process, by its outcome for each case; see ``classroom``.

    Args:
        cases: all questions, as the engine asks them.
        outcomes: one for each case; a CheckFailed or NotAttempted is raised when its case is asked for.
    """

    def __init__(self, cases: Sequence[Case], outcomes: Sequence[Any]):
        self.cases = cases
        self._outcomes = dict(zip(map(id, cases), outcomes, strict=True))

    def outcome(self, case: Case) -> Any:
        found = self._outcomes[id(case)]
        if isinstance(found, CheckFailed | NotAttempted):
            raise found
        return found


def outcome(task: Exercise, fn: Callable | RecordedAnswer, case: Case) -> Any:
    """The outcome of ``fn`` for a case; an exception is an outcome, too."""
    if isinstance(fn, RecordedAnswer):
        return fn.outcome(case)
    try:
        with torch.enable_grad():
            return task.run(fn, *arguments(case))
    except (CheckFailed, NotAttempted):
        raise
    except Raised as raised:
        return raised
    except Exception as error:
        # Not the answer's own exception: what it returned can't be used.
        return Unusable(fn.returned) if isinstance(fn, Guard) else Raised(error)


@dataclass
class Unusable:
    """A returned value that can't be used."""

    value: Any


def expected(task: Exercise, case: Case) -> Any:
    """The right outcome."""
    if case.truth is not UNKNOWN:
        return case.truth
    try:
        return task.run(task.truth, *arguments(case))
    except ValueError as error:
        return Raised(error)


def alike(got: Any, want: Any, task: Exercise) -> bool:
    """Whether two outcomes are the same within the exercise's tolerance; not if they cannot even be compared."""
    with suppress(Exception):
        return same(got, want, task.tolerance)
    return False


def compare(task: Exercise, case: Case, got: Any, want: Any) -> str:
    """What is wrong with an outcome, "" if nothing is."""
    said = case.hint or task.otherwise
    wrong_kind = case.hint or task.shape or task.otherwise
    if isinstance(want, Raised):
        if not isinstance(got, Raised):
            return f"{describe(got)} was returned. {said}".rstrip()
        if got.kind is not want.kind:
            return f"expected a {want.kind.__name__}, but {got.kind.__name__} was raised. {said}".rstrip()
        if not all(part in got.message for part in case.says):
            return f"the ValueError says {got.message!r}: state both values, here {' and '.join(case.says)}"
        return ""
    if isinstance(got, Raised):
        return f"{got}. {said}".rstrip(". ")
    if isinstance(got, Unusable):
        return f"you returned {describe(got.value)}; expected {kind(want)}. {wrong_kind}".rstrip()
    right = alike(got, want, task)
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


def kind(value: Any) -> str:
    """What sort of result it is, in words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    names = {bool: "True or False", int: "a whole number", float: "a number", str: "a string"}
    return names.get(type(value), f"a {type(value).__name__}")
