"""The engine behind the exercises: right, wrong, broken and not attempted."""

import numpy as np
import pytest
import torch

from vit_tutorial import patchify
from vit_tutorial.exercises import CheckFailed, exercise
from vit_tutorial.exercises.engine import call, compare, expect_shape, yes_or_no


def test_right_answer_is_handed_back(capsys):
    def mine(images, patch_size):
        return patchify(images, patch_size)

    assert exercise("patchify", mine) is mine
    assert "patchify: correct" in capsys.readouterr().out


def test_not_attempted_gives_the_reference(capsys):
    def mine(images, patch_size):
        raise NotImplementedError

    assert exercise("patchify", mine) is patchify
    assert "not attempted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "mine"),
    [
        ("softmax_rows", lambda scores: torch.softmax(scores.long(), -1)),
        ("patchify", lambda images, patch_size: torch.nn.Module()(images)),
    ],
)
def test_what_pytorch_does_not_implement_is_a_wrong_answer(name, mine):
    with pytest.raises(CheckFailed, match="raised NotImplementedError: ") as failure:
        exercise(name, mine)
    assert isinstance(failure.value.__cause__, NotImplementedError)


def test_what_pytorch_does_not_implement_is_a_wrong_answer_in_a_check_of_its_own():
    """This check wants a ValueError, and no other."""

    def mine(img_size, patch_size):
        if img_size[0] % patch_size[0] or img_size[1] % patch_size[1]:
            raise NotImplementedError("not for these sizes")
        return img_size[0] // patch_size[0] * (img_size[1] // patch_size[1])

    with pytest.raises(CheckFailed, match=r"A ValueError is wanted, NotImplementedError was raised"):
        exercise("num_patches", mine)


def test_a_check_leaves_the_generators_of_gpus_alone(monkeypatch):
    """They are not put back, so whatever is drawn there after two exercises would be the same."""
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.random.get_rng_state()
    exercise("patchify", patchify)
    assert not seeded and torch.equal(torch.random.get_rng_state(), before)


def test_wrong_answer_stops_the_notebook_with_an_assertion_error():
    with pytest.raises(AssertionError, match="scrambled"):
        exercise("patchify", lambda images, patch: images.reshape(len(images), -1, 3 * patch[0] * patch[1]))


def test_an_exception_in_the_answer_says_what_was_passed_in():
    def mine(images, patch_size):
        return images @ patch_size

    with pytest.raises(CheckFailed, match=r"mine\(Tensor\(2, 3, 10, 28\), \(5, 7\)\) raised TypeError") as failure:
        exercise("patchify", mine)
    assert isinstance(failure.value.__cause__, TypeError)


def test_lists_and_functions_are_described_in_short():
    def mine(queries, kernel):
        raise TypeError("no")

    with pytest.raises(CheckFailed, match=r"mine\(\[Tensor\(2, 3\), Tensor\(2, 3\)\], patchify\) raised"):
        call(mine, [torch.ones(2, 3), torch.ones(2, 3)], patchify)


def test_a_module_is_described_by_its_class():
    def mine(model, heads):
        raise TypeError("no")

    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    with pytest.raises(CheckFailed, match=r"mine\(Sequential, heads=\[Linear\]\) raised TypeError: no$"):
        call(mine, model, heads=[model[0]])


@pytest.mark.parametrize("answer", [True, np.bool_(True), torch.tensor(True), torch.tensor([[2.0]])])
def test_yes_in_any_guise(answer):
    assert yes_or_no(answer) is True


@pytest.mark.parametrize("answer", [None, "yes", [True], torch.ones(2), np.ones(0)])
def test_neither_yes_nor_no(answer):
    with pytest.raises(CheckFailed, match=r"expected True or False, got \w+.* One answer for all\?"):
        yes_or_no(answer, "One answer for all?")


def test_compare_names_the_mistake_that_gives_the_result():
    truth, mistakes = torch.ones(2), {"you doubled": 2 * torch.ones(2), "one number": torch.tensor(1.0)}
    compare(torch.ones(2, dtype=torch.float64), truth, mistakes, "wrong")
    for result, hint in [(2 * truth, "you doubled"), (truth.sum() / 2, "one number"), (3 * truth, "wrong")]:
        with pytest.raises(CheckFailed, match=f"^{hint}$"):
            compare(result, truth, mistakes, "wrong")


def test_a_wrong_shape_may_have_its_own_hint():
    for shape, hint in [((3, 2), "transposed"), ((2,), "one row each")]:
        with pytest.raises(CheckFailed, match=rf"expected shape \(2, 3\), got .*\. {hint}$"):
            expect_shape(torch.ones(shape), (2, 3), "one row each", {(3, 2): "transposed"})


def test_unknown_exercise_lists_what_there_is():
    with pytest.raises(ValueError, match=r"no exercise 'patchfy'; there are .*patchify"):
        exercise("patchfy", patchify)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"weight": x}, lambda x: {"both": [x, x]}])
def test_an_answer_that_changes_its_input_is_told_so(wrap):
    def fn(given):
        while not isinstance(given, torch.Tensor):
            given = next(iter(given.values() if isinstance(given, dict) else given))
        given[:, 1] = 0
        return given

    with pytest.raises(CheckFailed, match=r"the input of shape \(2, 3\) was changed in place"):
        call(fn, wrap(torch.ones(2, 3)))
    assert call(lambda given: 3, wrap(torch.ones(2, 3))) == 3


def test_an_answer_that_changes_a_module_is_told_so():
    def in_place(layer):
        layer.bias.data += 1
        return 3

    def replaced(layer):
        layer.bias = torch.nn.Parameter(layer.bias + 1)
        return 3

    for fn in (in_place, replaced):
        with pytest.raises(CheckFailed, match=r"bias of the Linear was changed in place.* or work on a copy"):
            call(fn, torch.nn.Linear(2, 3))
    assert call(lambda layer: 3, torch.nn.Linear(2, 3)) == 3
