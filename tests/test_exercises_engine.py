"""The engine behind the exercises: what it asks of every answer, what it says, and what it puts back."""

import random
import re
import sys
from dataclasses import replace
from math import inf, nan

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
    reference=centre, given=lambda b=2, n=3, d=4: (torch.randn(b, n, d),), smallest={"d": 2},
    truth=lambda x: torch.stack([row - row.sum() / len(row) for row in x.flatten(0, -2)]).reshape(x.shape),
    mistakes={
        "the mean of all numbers": lambda x: x - x.mean(),
        "the mean over the tokens": lambda x: x - x.mean(dim=1, keepdim=True),
        "the mean is missing": lambda x: x, "leave out keepdim": lambda x: x.mean(dim=-1, keepdim=True),
    },
    otherwise="each row has mean 0",
)  # fmt: skip


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


def gradients_off(x):
    result = centre(x)
    torch.set_grad_enabled(False)
    return result


PROBED = [
    ("wrong for 1. Is a size written in by hand, or does a squeeze()", lambda x: centre(x).squeeze(0)),
    ("right for 2 images, wrong for 3. Is a size", lambda x: torch.stack([centre(x[0]), centre(x[1])])),
    ("right for 4 dim, wrong for 5", lambda x: x - x.sum(-1, keepdim=True) / (4 if x.shape[-1] > 3 else x.shape[-1])),
    ("got (2, 3).", lambda x: x.mean(-1)),
    ("a second call", again), ("gradients were left switched off", gradients_off),
    ("raised NotImplementedError: ", lambda x: torch.nn.Module()(x)),  # PyTorch's own, which has a message
    ("raised SystemExit", lambda x: sys.exit()), ("raised SystemExit", lambda x: exit()),
    ("raised SystemExit: done", lambda x: sys.exit("done")),
    # A wrong shape of a known mistake has its hint whatever the numbers; unknown mistakes are told where they show.
    ("expected shape (2, 3, 4), got (2, 3, 1). leave out keepdim$", lambda x: x.sum(-1, keepdim=True)),
    ("^each row has mean 0. only index 2 of axis 2 is wrong, e.g. at [0, 0, 2]: expected ",
     lambda x: centre(x) + torch.tensor([0.0, 0, 7, 0])),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "answer"), PROBED)
def test_what_the_engine_asks_of_every_answer(hint, answer):
    assert told(CENTRE, centre) == ""
    assert hint in f"^{told(CENTRE, answer)}$"
    assert torch.is_grad_enabled()


def spoils_its_graph(x):
    y = x.exp()
    result = centre(y.log())
    y.add_(1)  # which the logarithm needs in the backward pass
    return result


NOTED = [
    ("", centre), ("the result is torch.float64, ours torch.float32", lambda x: centre(x.double())),
    ("that isn't contiguous", lambda x: centre(x.view(-1, x.shape[-1])).view(x.shape)),
    ("fails for float64", lambda x: x - x @ torch.full((x.shape[-1], 1), 1 / x.shape[-1])),
    ("no gradient flows back", lambda x: centre(x.detach())), ("no gradient flows", torch.no_grad()(centre)),
    ("a part of the computation is hidden", lambda x: x - x.detach().mean(dim=-1, keepdim=True)),
    ("a part of the computation is hidden", lambda x: centre(x) / 2 + centre(x).detach() / 2),
    ("its gradient can't be computed", spoils_its_graph),
    ("no new token", lambda x: centre(x) if x.ndim > 1 else None),
]  # fmt: skip


@pytest.mark.parametrize(("said", "answer"), NOTED)
def test_what_no_statement_asks_is_a_note_beside_correct(said, answer, capsys):
    single = Case(lambda: (torch.tensor([1.0, 3]),), "no new token", truth=torch.tensor([-1.0, 1]))
    asked = replace(CENTRE, notes=[single])
    assert exercise("centre", answer, {"centre": asked}) is answer
    shown = capsys.readouterr().out
    assert shown.startswith("centre: correct. ")
    assert ("\n(Note: " in shown and said in shown) if said else "Note" not in shown
    assert len(shown.splitlines()) == 1 + bool(said)


def test_the_mistake_is_named_that_agrees_in_most_cases():
    """On rows of equal means, the first case, both mistakes give the same."""
    mistakes = {"all numbers": lambda x: x - x.mean() + 1, "the first row": lambda x: x - x[0].mean() + 1}
    cases = [Case(lambda: (torch.tensor([[1.0, 3], [3, 1]]),)), Case(lambda: (torch.eye(2) * 3,))]
    task = Exercise(reference=centre, truth=centre, cases=cases, mistakes=mistakes)
    assert told(task, lambda x: x - x[0].mean() + 1) == "all numbers"  # they agree on both: the commoner
    task = replace(task, cases=[*cases, Case(lambda: (torch.tensor([[1.0, 2], [5, 9]]),))])
    assert told(task, lambda x: x - x[0].mean() + 1) == "the first row"


def test_a_mistake_that_run_refuses_by_itself_does_not_speak_for_others():
    def run(fn, x):
        result = fn(x)
        if not isinstance(result, tuple):
            raise CheckFailed("a pair is wanted")
        return result[0]

    mistakes = {"a pair": lambda x: x + 1, "add one": lambda x: (x, x)}
    right, cases = lambda x: (x + 1, x), [Case(lambda: (torch.ones(2),))]
    task = Exercise(reference=right, truth=right, cases=cases, mistakes=mistakes, run=run)
    assert told(task, lambda x: [x]) == "a pair is wanted"
    assert told(task, lambda x: (x, x)) == "add one"


WANT = torch.tensor([[1.0, 2, 4], [3, 5, 9]])


@pytest.mark.parametrize(
    ("got", "seen"),
    [
        (-WANT, "the sign is flipped, e.g. at [0, 0]: expected 1, got -1"),
        (WANT / 3, "yours is 0.3333 times the right result"), (WANT - 2, "yours is off by -2 everywhere"),
        (WANT + torch.tensor([[0.0], [1]]), "only index 1 of axis 0 is wrong"),
        (WANT + torch.tensor([0.0, 2, 1]), "only index 0 of axis 1 is right"),
        (WANT.flip(1), "reversed along axis 1"), (WANT.roll(1, 1), "shifted by one along axis 1"),
        (WANT * torch.tensor([[2.0], [3]]), "along axis 1 yours is right up to a factor"),
        (WANT + torch.eye(2, 3) / 2000, "nearly right, off by at most 0.0005"),
        (torch.tensor([[1.0, 3, 2], [5, 4, 9]]), "right, but in the wrong places"),
        (WANT / (WANT != 4), "some numbers are infinite"), ((WANT - 4) / (WANT - 4), "some numbers are NaN"),
        (WANT > 3, "the result has dtype torch.bool, expected torch.float32"),
        (WANT**2, "e.g. at [0, 1]: expected 2, got 4"),
    ],
)  # fmt: skip
def test_what_strikes_one_about_wrong_numbers(got, seen):
    assert seen in difference(got, WANT, 1e-5)
    assert difference(WANT, WANT, 1e-5) == ""


def test_what_strikes_one_about_a_wrong_shape():
    assert wrong_shape(WANT.T, WANT, 1e-5) == "the values are right, but the axes are in another order"
    assert wrong_shape(WANT.flatten(), WANT, 1e-5) == "the values are right, but the axes are split differently"
    assert wrong_shape(WANT.T.flatten(), WANT, 1e-5) == wrong_shape(WANT[:1], WANT, 1e-5) == ""


# Verdicts and refusals --------------------------------------------------------------------------------------------

POSITIVE = Exercise(
    reference=lambda x: bool((x > 0).all()), true_means="that all numbers are positive",
    mistakes={"one positive number is not enough": lambda x: bool((x > 0).any())},
    cases=[
        Case(lambda: (torch.ones(3),), "ones are positive", truth=True),
        Case(lambda: (-torch.ones(3),), "minus one is not positive", truth=False),
        Case(lambda: (torch.tensor([1.0, 0, 1]),), "zero is not positive", truth=False),
        Case(lambda: (torch.tensor([1.0, -1]),), "each number counts", truth=False),
    ],
)  # fmt: skip


def refusing(kind, *message):
    def fn(number):
        if number % 2:
            raise kind(*message)
        return number // 2

    return fn


half = refusing(ValueError, "7 is not divisible by 2")
ODD = Case(lambda: (7,), "7 is odd", says=("7", "2"))
HALF = Exercise(reference=half, truth=half, cases=[Case(lambda: (6,)), ODD], exact_type=True)


@pytest.mark.parametrize(
    ("task", "answer", "hint"),
    [
        (POSITIVE, POSITIVE.reference, ""),
        (POSITIVE, lambda x: (x > 0).all(), ""),
        (POSITIVE, lambda x: np.bool_((x.numpy() > 0).all()), ""),
        (POSITIVE, lambda x: True, "minus one is not positive"),
        (POSITIVE, lambda x: False, "ones are positive"),
        (POSITIVE, lambda x: bool((x <= 0).any()),
         "every answer is inverted: True means that all numbers are positive"),
        (POSITIVE, lambda x: bool((x > 0).any()), "one positive number is not enough"),
        (POSITIVE, lambda x: bool((x >= 0).all()), "zero is not positive"),
        (POSITIVE, lambda x: x > 0, "expected True or False, got Tensor(3,)"),
        (POSITIVE, lambda x: "yes", "expected True or False, got 'yes'"),
        # A refusal is wanted where the truth refuses.
        (HALF, half, ""),
        (HALF, lambda number: number // 2, "3 was returned. 7 is odd"),
        (HALF, refusing(TypeError, "7 and 2"), "expected a ValueError, but TypeError was raised. 7 is odd"),
        (HALF, refusing(ValueError, "odd"), "the ValueError says 'odd': state both values, here 7 and 2"),
        (HALF, refusing(NotImplementedError, "7 and 2"), "NotImplementedError was raised"),
        (HALF, lambda number: number / 2 if number % 2 == 0 else half(number), "you returned 3.0; expected"),
    ],
)  # fmt: skip
def test_verdicts_and_refusals(task, answer, hint):
    said = told(task, answer)
    assert (hint in said) if hint else said == ""


# The notebook is protected ------------------------------------------------------------------------------------------


def test_right_answer_is_handed_back_and_one_that_prints_is_told(capsys):
    def talks(images, patch_size):
        print("shape", images.shape)
        return patchify(images, patch_size)

    correct = "patchify: correct. The chapter goes on with your function.\n"
    for mine in (lambda images, patch_size: patchify(images, patch_size), talks):
        assert exercise("patchify", mine) is mine
    hidden = "(It prints; that was hidden here. The first line: shape torch.Size([2, 3, 10, 28]))\n"
    assert capsys.readouterr().out == correct + correct + hidden


def test_not_attempted_gives_the_reference(capsys):
    def mine(images, patch_size):
        raise NotImplementedError

    assert exercise("patchify", mine) is patchify
    assert "not attempted" in capsys.readouterr().out


def test_what_is_no_function_and_what_is_no_exercise_is_named():
    for wrong in (3, None, patchify(torch.ones(1, 1, 2, 2), 1)):
        with pytest.raises(CheckFailed, match=r"patchify must be a function, got .*without calling it"):
            exercise("patchify", wrong)
    with pytest.raises(ValueError, match=r"no exercise 'patchfy'; there are .*patchify"):
        exercise("patchfy", patchify)


def test_an_exception_in_the_answer_says_what_was_passed_in_and_in_which_line():
    def mine(images, patch_size):
        both = images, patch_size
        return both[0] @ both[1]

    raised, line = "mine(Tensor(2, 3, 10, 28), (5, 7)) raised TypeError", "(in your line `return both[0] @ both[1]`)"
    with pytest.raises(CheckFailed, match=f"{re.escape(raised)}.*{re.escape(line)}"):
        exercise("patchify", mine)


def test_an_interrupt_is_the_reader_s_own():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told(CENTRE, interrupted)


def test_global_state_is_put_back():
    def reckless(images, patch_size):
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        torch.set_default_dtype(torch.float64)
        patches = patchify(images, patch_size)
        torch.set_default_device("meta")
        return patches

    def states():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    before = states()
    assert exercise("patchify", reckless) is reckless
    assert states() == before
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.zeros(1).device.type == "cpu"


def test_the_generators_of_gpus_are_left_alone(monkeypatch):
    """They are not put back, so whatever is drawn there after two exercises would be the same."""
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    exercise("patchify", patchify)
    assert not seeded


def linear():
    return torch.nn.Linear(2, 3)


@pytest.mark.parametrize(
    ("change", "given", "hint"),
    [
        (lambda x: x.mul_(2), lambda: torch.ones(2, 3), r"the input of shape \(2, 3\) was changed in place"),
        (lambda x: x[0].mul_(2), lambda: [torch.ones(2, 3)], r"the input of shape \(2, 3\) was changed in place"),
        (lambda x: x["a"][1].mul_(2), lambda: {"a": [torch.ones(2, 3)] * 2}, r"shape \(2, 3\) was changed in place"),
        (lambda x: x.append(3), lambda: [1, 2], "the length of a list was changed in place"),
        (lambda x: x.append(3), lambda: [torch.ones(2)], "the length of a list was changed in place"),
        (lambda x: x.bias.data.add_(1), linear, "bias of the Linear was changed in place.* or work on a copy"),
        (lambda x: setattr(x, "bias", torch.nn.Parameter(x.bias + 1)), linear, "bias of the Linear was changed"),
        (lambda x: x.register_forward_hook(print), linear, "a hook was left in the model"),
    ],
)  # fmt: skip
def test_an_answer_that_changes_what_it_is_given_is_told_so(change, given, hint):
    def answer(x):
        change(x)
        return 3

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

ONES = torch.ones(2)
ALIKE = [
    (ONES, torch.ones(2)), (ONES.double(), ONES), (ONES, (1.0, 1.0)), (ONES.to(torch.complex64), ONES),
    (torch.tensor([nan]), torch.tensor([nan])), (torch.tensor(3), 3), (np.float32(3), 3.0), (nan, nan), (inf, inf),
    (np.bool_(True), True), (torch.tensor([[True]]), True), ("a", "a"), ({"a": 1}, {"a": torch.tensor(1)}),
    ([("a", 1)], (["a", 1.0],)),
]  # fmt: skip
DIFFERENT = [
    ([1.0, 1.0], ONES), ({1.0, 2.0}, (1.0, 2.0)), (torch.ones(2, 1), ONES), (ONES, ONES.bool()),
    (torch.ones(2, device="meta"), ONES), (ONES.to_sparse(), ONES), (True, 1), (torch.ones((), device="meta"), 1.0),
    (3.0, inf), (-inf, inf), (1, True), ({"a": 1}, {"b": 1}), (["a", None], ["a", "b"]),
]  # fmt: skip


@pytest.mark.parametrize(("pairs", "alike"), [(ALIKE, True), (DIFFERENT, False)])
def test_which_results_are_alike(pairs, alike):
    for got, want in pairs:
        assert same(got, want, 1e-6) is alike, (got, want)


def test_how_values_are_described():
    assert describe([torch.ones(2, 3), (4, "x")]) == "[Tensor(2, 3), (4, 'x')]"
    assert describe(torch.nn.Sequential(linear())) == "Sequential"
    assert describe({"w": torch.ones(2)}) == "{'w': Tensor(2,)}"
    assert describe(patchify) == "patchify"
    assert describe(x for x in ()) == "<genexpr>"
    assert describe({1, 2}) == "a set"


def test_exercises_of_one_s_own():
    own = {"double": Exercise(reference=lambda x: 2 * x, truth=lambda x: x + x, given=lambda n=3: (torch.randn(n),))}
    answer = lambda x: 2.0 * x  # noqa: E731
    assert exercise("double", answer, own) is answer
    with pytest.raises(CheckFailed, match=r"yours is 1\.5 times the right result"):
        exercise("double", lambda x: 3 * x, own)
    with pytest.raises(ValueError, match=r"no exercise 'halve'.* double, "):
        exercise("halve", answer, own)
