"""Every exercise: right answers pass, and each mistake is told by its own hint."""

import pytest

from vit_tutorial.exercises import CHAPTERS, CheckFailed, exercise, find

NAMES = [name for names in CHAPTERS.values() for name in names]


def refused(name, fn) -> str:
    """The hint that a wrong answer gets."""
    with pytest.raises(CheckFailed) as failure:
        exercise(name, fn)
    return str(failure.value)


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_pass(name, capsys):
    task = find(name)
    for answer in (task.reference, *task.right):
        assert exercise(name, answer) is answer
    assert f"{name}: correct" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_each_mistake_gets_its_own_hint(name):
    task = find(name)
    wrong = list(task.mistakes.items()) + [(case.hint, case.caught) for case in task.cases if case.caught]
    assert len(wrong) >= 3, f"{name}: {len(wrong)} wrong answers tried, at least 3 wanted"
    for hint, mistake in wrong:
        said = refused(name, mistake)
        assert hint in said, f"{name}: wanted {hint!r}, got {said!r}"
