"""The engine behind the exercises: right, wrong, broken and not attempted."""

import pytest

from vit_tutorial import patchify
from vit_tutorial.checks import CheckFailed, exercise


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


def test_wrong_answer_stops_the_notebook_with_an_assertion_error():
    with pytest.raises(AssertionError, match="scrambled"):
        exercise("patchify", lambda images, patch: images.reshape(len(images), -1, 3 * patch[0] * patch[1]))


def test_an_exception_in_the_answer_says_what_was_passed_in():
    def mine(images, patch_size):
        return images @ patch_size

    with pytest.raises(CheckFailed, match=r"mine\(Tensor\(2, 3, 10, 28\), \(5, 7\)\) raised TypeError") as failure:
        exercise("patchify", mine)
    assert isinstance(failure.value.__cause__, TypeError)


def test_unknown_exercise_lists_what_there_is():
    with pytest.raises(ValueError, match=r"no exercise 'patchfy'; there are .*patchify"):
        exercise("patchfy", patchify)
