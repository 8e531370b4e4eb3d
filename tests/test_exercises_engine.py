"""The engine behind the exercises: what it asks of every answer, what it says, and what it puts back."""

import random
import sys

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from vit_tutorial import patchify
from vit_tutorial.exercises import Case, CheckFailed, Exercise, exercise
from vit_tutorial.exercises.differences import difference, wrong_shape
from vit_tutorial.exercises.engine import judge
from vit_tutorial.exercises.guard import Guard, describe, same

KEPT = []


def centre(x):
    return x - x.mean(dim=-1, keepdim=True)


CENTRE = Exercise(
    reference=centre,
    truth=lambda x: torch.stack([row - row.sum() / len(row) for row in x.flatten(0, -2)]).reshape(x.shape),
    given=lambda b=2, n=3, d=4: (torch.randn(b, n, d),),
    smallest={"d": 2},
    mistakes={
        "the mean of all numbers": lambda x: x - x.mean(),
        "the mean over the tokens": lambda x: x - x.mean(dim=1, keepdim=True),
        "the mean is missing": lambda x: x,
        "leave out keepdim": lambda x: x.mean(dim=-1, keepdim=True),
    },
    otherwise="each row has mean 0",
)


def told(task: Exercise, fn) -> str:
    """The hint for a wrong answer, "" for a right one."""
    try:
        judge(task, Guard(fn, may_change=task.may_change))
    except CheckFailed as failure:
        return str(failure)
    return ""


def again(x):
    seen = any(x.shape == old.shape and torch.equal(x, old) for old in KEPT)
    KEPT.append(x)
    return centre(x) + seen


def transposed_view(x):
    return centre(x.view(-1, x.shape[-1])).view(x.shape)


class Half(torch.autograd.Function):
    """The right numbers, and half their gradient."""

    @staticmethod
    def forward(ctx, x):
        return centre(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient / 2


PROBED = {
    "wrong for 1. Is a size written in by hand, or does a squeeze()": lambda x: centre(x).squeeze(0),
    "right for 2 images, wrong for 3. Is a size": lambda x: torch.stack([centre(x[0]), centre(x[1])]),
    "right for 4 dim, wrong for 5": lambda x: x - x.sum(-1, keepdim=True) / (4 if x.shape[-1] > 3 else x.shape[-1]),
    "do not stand in memory in order": transposed_view,
    "wrong for float64": lambda x: x - x @ torch.full((x.shape[-1], 1), 1 / x.shape[-1]),
    "no gradient flows back": lambda x: centre(x.detach()),
    "the gradient is not: a part": lambda x: x - x.detach().mean(dim=-1, keepdim=True),
    "the gradient is not: a": Half.apply,
    "a second call": again,
}


@pytest.mark.parametrize(("hint", "answer"), PROBED.items(), ids=PROBED)
def test_what_the_engine_asks_of_every_answer(hint, answer):
    assert told(CENTRE, centre) == ""
    assert hint in told(CENTRE, answer)


def test_the_mistake_is_named_that_agrees_in_most_cases():
    """On rows of equal means, the first case, both mistakes give the same."""
    task = Exercise(
        reference=centre,
        truth=centre,
        cases=[Case(given=lambda: (torch.tensor([[1.0, 3], [3, 1]]),)), Case(given=lambda: (torch.eye(2) * 3,))],
        mistakes={"all numbers": lambda x: x - x.mean() + 1, "the first row": lambda x: x - x[0].mean() + 1},
    )
    assert told(task, lambda x: x - x[0].mean() + 1) == "all numbers"  # they agree on both: the commoner
    uneven = Case(given=lambda: (torch.tensor([[1.0, 2], [5, 9]]),))
    task = Exercise(reference=centre, truth=centre, cases=[*task.cases, uneven], mistakes=task.mistakes)
    assert told(task, lambda x: x - x[0].mean() + 1) == "the first row"


def test_a_wrong_shape_of_a_known_mistake_has_its_hint_whatever_the_numbers():
    assert told(CENTRE, lambda x: x.sum(-1, keepdim=True)) == (
        "expected shape (2, 3, 4), got (2, 3, 1). leave out keepdim"
    )
    assert "got (2, 3)." in told(CENTRE, lambda x: x.mean(-1))


def test_unknown_mistakes_are_told_where_they_show():
    wrong = told(CENTRE, lambda x: centre(x) + torch.tensor([0.0, 0, 7, 0]))
    assert wrong.startswith("each row has mean 0. only index 2 of axis 2 is wrong, e.g. at [0, 0, 2]: expected ")


def test_a_mistake_that_run_refuses_by_itself_does_not_speak_for_others():
    def run(fn, x):
        result = fn(x)
        if not isinstance(result, tuple):
            raise CheckFailed("a pair is wanted")
        return result[0]

    task = Exercise(
        reference=lambda x: (x + 1, x),
        truth=lambda x: (x + 1, x),
        cases=[Case(given=lambda: (torch.ones(2),))],
        mistakes={"a pair": lambda x: x + 1, "add one": lambda x: (x, x)},
        run=run,
    )
    assert told(task, lambda x: [x]) == "a pair is wanted"
    assert told(task, lambda x: (x, x)) == "add one"


WANT = torch.tensor([[1.0, 2, 4], [3, 5, 9]])


@pytest.mark.parametrize(
    ("got", "seen"),
    [
        (-WANT, "the sign is turned round, e.g. at [0, 0]: expected 1, got -1"),
        (WANT / 3, "yours is 0.3333 times the right result"),
        (WANT - 2, "yours is off by -2 everywhere"),
        (WANT + torch.tensor([[0.0], [1]]), "only index 1 of axis 0 is wrong"),
        (WANT + torch.tensor([0.0, 2, 1]), "only index 0 of axis 1 is right"),
        (WANT.flip(1), "reversed along axis 1"),
        (WANT.roll(1, 1), "shifted by one along axis 1"),
        (WANT * torch.tensor([[2.0], [3]]), "along axis 1 yours is right up to a factor"),
        (
            WANT + torch.rand(2, 3, generator=torch.Generator().manual_seed(0)) / 1000,
            "nearly right, off by at most 0.00077",
        ),
        (torch.tensor([[1.0, 3, 2], [5, 4, 9]]), "the right ones in the wrong places"),
        (WANT / (WANT != 4), "some numbers are infinite"),
        ((WANT - 4) / (WANT - 4), "some numbers are NaN"),
        (WANT > 3, "the result has dtype torch.bool, expected torch.float32"),
        (WANT**2, "e.g. at [0, 1]: expected 2, got 4"),
    ],
)
def test_what_strikes_one_about_wrong_numbers(got, seen):
    assert seen in difference(got, WANT, 1e-5)
    assert difference(WANT, WANT, 1e-5) == ""


def test_what_strikes_one_about_a_wrong_shape():
    assert wrong_shape(WANT.T, WANT, 1e-5) == "the numbers are right, the axes stand in another order"
    assert wrong_shape(WANT.flatten(), WANT, 1e-5) == "the numbers are right; only the axes are cut otherwise"
    assert wrong_shape(WANT.T.flatten(), WANT, 1e-5) == wrong_shape(WANT[:1], WANT, 1e-5) == ""


# Verdicts ---------------------------------------------------------------------------------------------------------

POSITIVE = Exercise(
    reference=lambda x: bool((x > 0).all()),
    cases=[
        Case(given=lambda: (torch.ones(3),), truth=True, hint="ones are positive"),
        Case(given=lambda: (-torch.ones(3),), truth=False, hint="minus one is not positive"),
        Case(given=lambda: (torch.tensor([1.0, 0, 1]),), truth=False, hint="zero is not positive"),
        Case(given=lambda: (torch.tensor([1.0, -1]),), truth=False, hint="each number counts"),
    ],
    mistakes={"one positive number is not enough": lambda x: bool((x > 0).any())},
    true_means="that all numbers are positive",
)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (POSITIVE.reference, ""),
        (lambda x: (x > 0).all(), ""),
        (lambda x: np.bool_((x.numpy() > 0).all()), ""),
        (lambda x: True, "minus one is not positive"),
        (lambda x: False, "ones are positive"),
        (lambda x: not bool((x > 0).all()), "every answer is turned round: True means that all numbers are positive"),
        (lambda x: bool((x > 0).any()), "one positive number is not enough"),
        (lambda x: bool((x >= 0).all()), "zero is not positive"),
        (lambda x: x > 0, "expected True or False, got Tensor(3,)"),
        (lambda x: "yes", "expected True or False, got 'yes'"),
    ],
)
def test_yes_and_no(answer, hint):
    said = told(POSITIVE, answer)
    assert (hint in said) if hint else said == ""


# What is refused --------------------------------------------------------------------------------------------------


def half(number):
    if number % 2:
        raise ValueError(f"{number} is not divisible by 2")
    return number // 2


HALF = Exercise(
    reference=half,
    truth=half,
    cases=[Case(given=lambda: (6,)), Case(given=lambda: (7,), hint="7 is odd", says=("7", "2"))],
    exact_type=True,
)


def refusing(kind, *message):
    def fn(number):
        if number % 2:
            raise kind(*message)
        return number // 2

    return fn


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (half, ""),
        (lambda number: number // 2, "3 was returned. 7 is odd"),
        (refusing(TypeError, "7 and 2"), "A ValueError is wanted, TypeError was raised. 7 is odd"),
        (refusing(ValueError, "odd"), "the ValueError says 'odd': state both values, here 7 and 2"),
        (refusing(NotImplementedError, "7 and 2"), "NotImplementedError was raised"),
        (lambda number: number / 2 if number % 2 == 0 else half(number), "you returned 3.0; expected"),
    ],
)
def test_a_refusal_is_wanted_where_the_truth_refuses(answer, hint):
    said = told(HALF, answer)
    assert (hint in said) if hint else said == ""


# The notebook is protected ------------------------------------------------------------------------------------------


def test_right_answer_is_handed_back(capsys):
    def mine(images, patch_size):
        return patchify(images, patch_size)

    assert exercise("patchify", mine) is mine
    assert capsys.readouterr().out == "patchify: correct. The chapter goes on with your function.\n"


def test_not_attempted_gives_the_reference(capsys):
    def mine(images, patch_size):
        raise NotImplementedError

    assert exercise("patchify", mine) is patchify
    assert "not attempted" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [3, None, patchify(torch.ones(1, 1, 2, 2), 1)])
def test_what_is_no_function_is_named(wrong):
    with pytest.raises(CheckFailed, match=r"patchify must be a function, got .*without calling it"):
        exercise("patchify", wrong)


def test_unknown_exercise_lists_what_there_is():
    with pytest.raises(ValueError, match=r"no exercise 'patchfy'; there are .*patchify"):
        exercise("patchfy", patchify)


def test_what_pytorch_does_not_implement_is_a_wrong_answer():
    assert "raised NotImplementedError: " in told(CENTRE, lambda x: torch.nn.Module()(x))


def test_an_exception_in_the_answer_says_what_was_passed_in_and_in_which_line():
    def mine(images, patch_size):
        both = images, patch_size
        return both[0] @ both[1]

    with pytest.raises(CheckFailed) as failure:
        exercise("patchify", mine)
    assert "mine(Tensor(2, 3, 10, 28), (5, 7)) raised TypeError" in str(failure.value)
    assert "(in your line `return both[0] @ both[1]`)" in str(failure.value)


@pytest.mark.parametrize("leave", [sys.exit, exit, lambda: sys.exit("done")])
def test_an_answer_cannot_leave_the_notebook(leave):
    assert "raised SystemExit" in told(CENTRE, lambda x: leave() or x)


def test_an_interrupt_is_the_reader_s_own():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(CENTRE, interrupted)


def test_a_print_is_hidden_and_mentioned(capsys):
    def talks(images, patch_size):
        print("shape", images.shape)
        return patchify(images, patch_size)

    exercise("patchify", talks)
    out = capsys.readouterr().out.splitlines()
    assert out[1] == "(It prints; that was hidden here. The first line: shape torch.Size([2, 3, 10, 28]))"
    assert len(out) == 2


def test_global_state_is_put_back():
    def reckless(images, patch_size):
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        torch.set_default_dtype(torch.float64)
        patches = patchify(images, patch_size)
        torch.set_default_device("meta")
        return patches

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    assert exercise("patchify", reckless) is reckless
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert np.array_equal(before[2], np.random.get_state()[1])
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.zeros(1).device.type == "cpu"


def test_gradients_left_off_are_named_and_switched_on_again():
    def off(x):
        result = centre(x)
        torch.set_grad_enabled(False)
        return result

    assert "gradients were left switched off" in told(CENTRE, off)
    assert torch.is_grad_enabled()


def test_the_generators_of_gpus_are_left_alone(monkeypatch):
    """They are not put back, so whatever is drawn there after two exercises would be the same."""
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    exercise("patchify", patchify)
    assert not seeded


def _append(given):
    given.append(3)
    return 3


def _set(given):
    while not isinstance(given, torch.Tensor):
        given = next(iter(given.values() if isinstance(given, dict) else given))
    given[:, 1] = 0
    return 3


def _bias(layer):
    layer.bias.data += 1
    return 3


def _replaced(layer):
    layer.bias = torch.nn.Parameter(layer.bias + 1)
    return 3


def _hook(layer):
    layer.register_forward_hook(print)
    return 3


@pytest.mark.parametrize(
    ("answer", "given", "hint"),
    [
        (_set, lambda: torch.ones(2, 3), r"the input of shape \(2, 3\) was changed in place"),
        (_set, lambda: [torch.ones(2, 3)], r"the input of shape \(2, 3\) was changed in place"),
        (_set, lambda: {"both": [torch.ones(2, 3)] * 2}, r"the input of shape \(2, 3\) was changed in place"),
        (_append, lambda: [1, 2], "the length of a list was changed in place"),
        (_append, lambda: [torch.ones(2)], "the length of a list was changed in place"),
        (_bias, lambda: torch.nn.Linear(2, 3), "bias of the Linear was changed in place.* or work on a copy"),
        (_replaced, lambda: torch.nn.Linear(2, 3), "bias of the Linear was changed in place"),
        (_hook, lambda: torch.nn.Linear(2, 3), "a hook was left in the model"),
    ],
)
def test_an_answer_that_changes_what_it_is_given_is_told_so(answer, given, hint):
    with pytest.raises(CheckFailed, match=hint):
        Guard(answer)(given())
    assert Guard(answer, may_change=True)(given()) == 3 or hint.startswith("a hook")
    assert Guard(lambda given: 3)(given()) == 3


def test_a_hint_appears_alone_in_a_notebook():
    shell = InteractiveShell.instance()
    shown = []
    shell._showtraceback = lambda kind, value, lines: shown.extend(lines)
    shell.user_ns.update(exercise=exercise, patchify=lambda images, patch_size: None)
    shell.run_cell('exercise("patchify", patchify)')
    assert shown == ["CheckFailed: <lambda>(Tensor(2, 3, 10, 28), (5, 7)) returned None. Is a `return` missing?"]


# Results and what they are called -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("got", "want", "alike"),
    [
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2, dtype=torch.float64), torch.ones(2), True),
        ([1.0, 1.0], torch.ones(2), False),
        (torch.ones(2), (1.0, 1.0), True),
        ({1.0, 2.0}, (1.0, 2.0), False),
        (torch.ones(2, 1), torch.ones(2), False),
        (torch.ones(2), torch.ones(2, dtype=torch.bool), False),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), True),
        (torch.ones(2, device="meta"), torch.ones(2), False),
        (torch.ones(2).to_sparse(), torch.ones(2), False),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2), True),
        (torch.tensor(3), 3, True),
        (np.float32(3), 3.0, True),
        (True, 1, False),
        (torch.ones((), device="meta"), 1.0, False),
        (float("nan"), float("nan"), True),
        (3.0, float("inf"), False),
        (float("-inf"), float("inf"), False),
        (float("inf"), float("inf"), True),
        (np.bool_(True), True, True),
        (torch.tensor([[True]]), True, True),
        (1, True, False),
        ("a", "a", True),
        ({"a": 1}, {"a": torch.tensor(1)}, True),
        ({"a": 1}, {"b": 1}, False),
        ([("a", 1)], (["a", 1.0],), True),
        (["a", None], ["a", "b"], False),
    ],
)
def test_which_results_are_alike(got, want, alike):
    assert same(got, want, 1e-6) is alike


def test_how_values_are_described():
    assert describe([torch.ones(2, 3), (4, "x")]) == "[Tensor(2, 3), (4, 'x')]"
    assert describe(torch.nn.Sequential(torch.nn.Linear(2, 3))) == "Sequential"
    assert describe({"w": torch.ones(2)}) == "{'w': Tensor(2,)}"
    assert describe(patchify) == "patchify"
    assert describe(x for x in ()) == "<genexpr>"
    assert describe({1, 2}) == "a set"
