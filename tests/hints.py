"""What the tests of the checks share."""

from collections.abc import Callable

import pytest

from vit_tutorial.exercises import CheckFailed, exercise


def assert_hints(name: str, reference: Callable, wrong: dict[str, Callable]) -> None:
    """The reference passes; each wrong answer fails with a hint that contains its key, and no two hints are alike."""
    assert len(wrong) >= 3, f"{name}: {len(wrong)} wrong answers tried, at least 3 wanted"
    assert exercise(name, reference) is reference
    hints = []
    for fragment, fn in wrong.items():
        with pytest.raises(CheckFailed) as failure:
            exercise(name, fn)
        assert fragment in str(failure.value), f"{name}: wanted a hint with {fragment!r}, got {failure.value}"
        hints.append(str(failure.value))
    assert len(set(hints)) == len(hints), f"{name}: two wrong answers share a hint: {hints}"
