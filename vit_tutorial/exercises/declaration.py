"""What is known about an exercise, as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

UNKNOWN = object()  # a case without a result of its own


@dataclass(frozen=True)
class Case:
    """One question to an answer.

    Args:
        given: makes the arguments, new ones for each call.
        hint: for an answer that fails here with an unknown mistake.
        caught: a wrong answer that fails here first, for the tests.
        truth: the right result, if the exercise's ``truth`` should not compute it.
        says: what the message of the expected ValueError must contain.
    """

    given: Callable[[], tuple]
    hint: str = ""
    caught: Callable | None = None
    truth: Any = UNKNOWN
    says: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """What is known about an exercise.

    Args:
        reference: the answer that the chapter goes on with when nothing was attempted.
        truth: the same function from an independent source; if it raises a ValueError, an answer must do so too.
        given: makes the first case's arguments from named sizes with defaults. The engine tries other sizes, too.
        cases: further questions, each with its hint.
        mistakes: wrong functions by their hints, the commoner before the rarer.
        right: other right answers, for the tests.
        otherwise: the hint for wrong values from an unknown mistake.
        shape: the hint for a wrong shape from an unknown mistake.
        explain: called with the wrong result, the truth and the arguments; says what is wrong, or "".
        run: how an answer is called, if its outcome is not simply what it returns.
        true_means: for an answer that says yes or no, what True means.
        tolerance: relative and absolute.
        dtype: whether the result must have the truth's dtype.
        exact_type: whether a number must have the truth's type, such as int.
        smallest: the smallest size the engine may try, where 1 is too small.
        notes: questions about what the statement does not ask; an answer that fails one gets a note, and is accepted.
        without: the probes that make no sense here: "sizes" and "again", whose failure is refused as the statement's
            own demands are; "strides", "float64" and "gradient", which are notes.
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
    notes: Sequence[Case] = ()
    without: Sequence[str] = ()
    may_change: bool = False
    may_return_none: bool = False
