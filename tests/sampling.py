"""Which of many cases each change has to pass; `make check` tries all."""

from collections.abc import Iterable

import pytest


def first(number: int, cases: Iterable) -> list:
    """All ``cases`` for parametrize; those after the first ``number`` are run by `make check` alone."""
    return [case if index < number else pytest.param(case, marks=pytest.mark.slow) for index, case in enumerate(cases)]
