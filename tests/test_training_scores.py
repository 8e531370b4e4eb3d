"""What hides in an accuracy is said beside it."""

import pytest
from sklearn.metrics import balanced_accuracy_score

from vit_tutorial.training import balanced_accuracy, explain, never_answered
from vit_tutorial.training.scores import interval


def answers(confusion) -> tuple[list[int], list[int]]:
    """Labels and predictions that make this confusion matrix."""
    pairs = [(i, j) for i, row in enumerate(confusion) for j, count in enumerate(row) for _ in range(count)]
    return [i for i, _ in pairs], [j for _, j in pairs]


CASES = {  # confusion: never answered
    ((190, 0), (12, 0)): [1],
    ((0, 3), (0, 9)): [0],
    ((5, 1, 0), (2, 4, 0), (1, 2, 0)): [2],
    ((5, 1, 0), (2, 4, 0), (0, 0, 0)): [],  # no image of the third, so its silence is no fault
    ((1, 0, 0), (7, 0, 0), (2, 0, 0)): [1, 2],
    ((0, 2, 0), (0, 0, 3), (4, 0, 0)): [],  # always wrong, yet all are answered
}


@pytest.mark.filterwarnings("ignore:y_pred contains classes")
@pytest.mark.parametrize("confusion", CASES, ids=str)
def test_the_mean_over_the_classes_and_those_never_answered(confusion):
    assert balanced_accuracy(confusion) == pytest.approx(balanced_accuracy_score(*answers(confusion)))
    assert never_answered(confusion) == CASES[confusion]


def test_a_high_accuracy_that_hides_a_class():
    lines = explain({"confusion": [[190, 0], [12, 0]], "accuracy": 190 / 202}, ("healthy", "sick"))
    assert lines == [
        "95% interval 89.9% to 96.6%, of 202 images; "
        "balanced accuracy 50.00%, the mean over the classes; always saying 'healthy', the largest class, "
        "would give 94.06%",
        "never answered: 'sick' (12 test images)",
    ]


def test_one_image_is_one_image():
    assert explain({"confusion": [[3, 0], [1, 0]]}, ("a", "b"))[1] == "never answered: 'b' (1 test image)"


def test_a_class_without_a_test_image():
    lines = explain({"confusion": [[3, 1, 0], [1, 3, 0], [0, 0, 0]]}, ("a", "b", "c"))
    assert lines[1:] == ["no test image of 'c', so nothing is known about it"]


def test_copies_and_what_is_left():
    scores = {"confusion": [[3, 1], [1, 3]], "trained_on": 6, "accuracy_without": 0.5}
    assert explain(scores, ("a", "b"))[1:] == ["6 of 8 test images are training images as well: 50.00% on the 2 others"]
    scores |= {"trained_on": 8, "accuracy_without": None}
    assert explain(scores, ("a", "b"))[1:] == ["8 of 8 test images are training images as well: there are no others"]


def test_many_classes_do_not_fill_the_screen():
    confusion = [[5] + [0] * 29 for _ in range(30)]
    line = explain({"confusion": confusion}, [f"class {i}" for i in range(30)])[1]
    assert line.endswith("'class 10' (5 test images) and 19 more")


def test_look_alikes_are_a_question():
    scores = {"confusion": [[3, 1], [1, 3]], "look_alikes": 1}
    line = "1 test image looks like a training image, as it is or mirrored: perhaps the same picture once more"
    assert explain(scores, ("a", "b"))[1:] == [line]
    scores |= {"look_alikes": 2, "trained_on": 2, "accuracy_without": 0.5}
    assert explain(scores, ("a", "b"))[2].startswith("2 more test images look like a training image")
    assert explain(scores | {"accuracy_unlike": 0.25}, ("a", "b"))[2].endswith(
        "perhaps the same picture once more; 25.00% on the 4 others"
    )
    assert explain(scores | {"accuracy_unlike": None}, ("a", "b"))[2].endswith("; there are no others")
    assert len(explain({"confusion": [[3, 1], [1, 3]], "look_alikes": 0}, ("a", "b"))) == 1


@pytest.mark.parametrize(("right", "total"), [(10, 17), (0, 20), (20, 20), (9_712, 10_000), (1, 1)])
def test_the_interval_has_the_rates_from_which_this_one_is_196_standard_deviations_away(right, total):
    """That is what Wilson solved; ten of seventeen say little."""
    low, high = interval(right, total)
    for rate in (low, high):
        if 1e-9 < rate < 1 - 1e-9:
            assert abs(right / total - rate) == pytest.approx(1.959964 * (rate * (1 - rate) / total) ** 0.5, rel=1e-5)
    assert low <= right / total <= high and low < high
    assert (right, total) != (10, 17) or (low, high) == pytest.approx((0.360, 0.784), abs=1e-3)
