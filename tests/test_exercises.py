"""Every exercise: right answers pass, and each mistake is told by its own hint."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vit_tutorial.exercises import CHAPTERS, CheckFailed, engine, exercise, find
from vit_tutorial.exercises.guard import Guard

NAMES = [name for names in CHAPTERS.values() for name in names]


def refused(name, fn, hint="") -> str:
    """The hint that a wrong answer gets."""
    with pytest.raises(CheckFailed) as failure:
        exercise(name, fn)
        pytest.fail(f"{name}: a wrong answer is accepted: {hint}")
    return str(failure.value)


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_pass(name, capsys):
    task = find(name)
    for answer in (task.reference, *task.right):
        assert exercise(name, answer) is answer
    assert f"{name}: correct" in capsys.readouterr().out


@pytest.fixture
def remembered(monkeypatch):
    """Every mistake is compared with all others: what each makes of a case is computed once for a test."""
    questions, outcome, cases, outcomes = engine.questions, engine._outcome_or_refusal, {}, {}

    def listed(task):
        if id(task) not in cases:
            cases[id(task)] = list(questions(task))
        return iter(cases[id(task)])

    def once(task, fn, case):
        if isinstance(fn, Guard):  # the answer that is judged
            return outcome(task, fn, case)
        if (id(fn), id(case)) not in outcomes:
            outcomes[id(fn), id(case)] = outcome(task, fn, case)
        return outcomes[id(fn), id(case)]

    monkeypatch.setattr(engine, "questions", listed)
    monkeypatch.setattr(engine, "_outcome_or_refusal", once)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("remembered", "no_shape_checks")
def test_each_mistake_gets_its_own_hint(name):
    task = find(name)
    wrong = list(task.mistakes.items()) + [(case.hint, case.caught) for case in task.cases if case.caught]
    assert len(wrong) >= 3, f"{name}: {len(wrong)} wrong answers tried, at least 3 wanted"
    for hint, mistake in wrong:
        said = refused(name, mistake, hint)
        assert hint in said, f"{name}: wanted {hint!r}, got {said!r}"


@pytest.mark.parametrize("name", [name for name in NAMES if any(case.caught for case in find(name).notes)])
def test_what_the_statement_does_not_ask_is_a_note(name, capsys):
    for case in find(name).notes:
        if case.caught:
            assert exercise(name, case.caught) is case.caught
            assert f"(Note: {case.hint})" in capsys.readouterr().out


ODD = {
    "None": lambda: None,
    "set": lambda: {1, 2},
    "generator": lambda: (x for x in (1, 2)),
    "string": lambda: "seven",
    "None in a tuple": lambda: (None, None, None),
    "None in a list": lambda: [None, torch.ones(2)],
    "dict": lambda: {"a": None},
    "object": object,
    "function": lambda: print,
    "meta tensor": lambda: torch.ones(2, 3, device="meta"),
    "empty tensor": lambda: torch.ones(0),
    "sparse tensor": lambda: torch.eye(3).to_sparse(),
    "complex tensor": lambda: torch.ones(2, dtype=torch.complex64),
    "quantized tensor": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "NaN": lambda: float("nan"),
    "complex": lambda: 1j,
    "huge int": lambda: 10**400,
    "list that holds itself": lambda: (inside := []).append(inside) or inside,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("remembered", "no_shape_checks")
def test_odd_results_are_told_in_words(name):
    """Never another exception than CheckFailed, and never "correct"."""
    for odd, make in ODD.items():
        assert refused(name, lambda *args, **kwargs: make()), odd  # noqa: B023


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_may_raise_exit_print_or_change_modes(name, capsys):
    task = find(name)

    def leaves(*args):
        raise SystemExit(3)

    def talks(*args):
        print("hello")
        before = torch.get_default_dtype()
        result = task.reference(*args)
        torch.set_default_dtype(torch.float64 if before == torch.float32 else torch.float32)
        return result

    assert "raised SystemExit: 3" in refused(name, leaves)
    assert exercise(name, talks) is talks
    assert torch.get_default_dtype() == torch.float32
    assert "The first line: hello" in capsys.readouterr().out


@pytest.mark.parametrize(
    "answer",
    [
        lambda s: torch.softmax(s, -1),
        lambda s: s.softmax(dim=-1),
        nn.Softmax(-1),
        lambda s: s.log_softmax(-1).exp(),
        lambda s: F.softmin(-s, -1),
        lambda s: F.softmax(s.flatten(0, -2), -1).reshape(s.shape),
    ],
)
def test_pytorch_s_softmax_is_refused_by_whatever_name(answer):
    assert "come from PyTorch's softmax" in refused("softmax_rows", answer)
