"""What hides in an accuracy: classes that are never answered, a class that is most of the set, copies (chapter 6)."""

from collections.abc import Sequence

from vit_tutorial.validate import check_fields, checked, listed

SHOWN = 10  # classes in a line
OF_SCORES = {"confusion": Sequence[Sequence[int]]} | dict.fromkeys(("trained_on", "look_alikes"), int | None)
OF_SCORES |= dict.fromkeys(("accuracy_without", "accuracy_unlike"), float | None)


@checked
def balanced_accuracy(confusion: Sequence[Sequence[int]]) -> float:
    """The accuracy of each class, averaged over the classes that have images.

    Args:
        confusion: a row for each true class, in it a count for each predicted one; see
            :func:`~vit_tutorial.training.evaluate`.
    """
    _check_square(confusion)
    recalls = [row[label] / sum(row) for label, row in enumerate(confusion) if sum(row)]
    return sum(recalls) / len(recalls)


@checked
def never_answered(confusion: Sequence[Sequence[int]]) -> list[int]:
    """The classes that have images and are never predicted."""
    _check_square(confusion)
    return [label for label, row in enumerate(confusion) if sum(row) and not sum(each[label] for each in confusion)]


def _check_square(confusion: Sequence[Sequence[int]]) -> None:
    counts = [count for row in confusion for count in row]
    if {len(row) for row in confusion} != {len(confusion)} or min(counts) < 0 or not any(counts):
        raise ValueError(f"confusion must have k counts for each of k classes, of one image at least; got {confusion}")


@checked
def interval(right: int, total: int) -> tuple[float, float]:
    """Between which accuracies the true one lies, with a confidence of 95 %, if ``right`` of ``total`` were right.

    Source: Wilson 1927, without a correction for continuity.
    """
    from scipy.stats import binomtest

    return tuple(binomtest(right, total).proportion_ci(0.95, "wilson"))


@checked
def explain(scores: dict, classes: Sequence[str], split: str = "test") -> list[str]:
    """What belongs beside an accuracy, in lines.

    Args:
        scores: what :func:`~vit_tutorial.training.evaluate` returns, or ``"test"`` of a run's metrics.
        classes: the classes' names, in order.
        split: what the images are called.
    """
    check_fields("scores", scores, OF_SCORES)
    confusion, balanced = scores["confusion"], balanced_accuracy(scores["confusion"])
    if len(classes) != len(confusion):
        raise ValueError(f"{len(confusion)} rows of counts need a class each, got {len(classes)} classes")
    if "trained_on" in scores and "accuracy_without" not in scores:
        raise ValueError(f"scores must have accuracy_without beside trained_on, got {scores}")
    counts = [sum(row) for row in confusion]
    largest, total = max(range(len(counts)), key=counts.__getitem__), sum(counts)
    always = f"always saying {classes[largest]!r}, the largest class, would give {counts[largest] / total:.2%}"
    low, high = interval(sum(row[label] for label, row in enumerate(confusion)), total)
    lines = [
        f"95% interval {low:.1%} to {high:.1%}, of {total:,} images; "
        f"balanced accuracy {balanced:.2%}, the mean over the classes; {always}"
    ]
    if silent := never_answered(confusion):
        named = [f"{classes[label]!r} ({counts[label]:,} {split} image{'s' * (counts[label] > 1)})" for label in silent]
        lines.append(f"never answered: {listed(named, SHOWN)}")
    if without := [repr(classes[label]) for label, count in enumerate(counts) if not count]:
        lines.append(f"no {split} image of {listed(without, SHOWN)}, so nothing is known about {_them(len(without))}")
    if copies := scores.get("trained_on"):
        rest = _rest(scores["accuracy_without"], total - copies)
        lines.append(f"{copies:,} of {total:,} {split} images are training images as well: {rest}")
    if near := scores.get("look_alikes"):
        images = f"{near:,} {'more ' * bool(scores.get('trained_on'))}{split} image{'s' * (near > 1)}"
        look = "looks" if near == 1 else "look"
        line = f"{images} {look} like a training image, as it is or mirrored: perhaps the same picture once more"
        if "accuracy_unlike" in scores:
            line += f"; {_rest(scores['accuracy_unlike'], total - (copies or 0) - near)}"
        lines.append(line)
    return lines


def _rest(accuracy: float | None, count: int) -> str:
    return "there are no others" if accuracy is None else f"{accuracy:.2%} on the {count:,} others"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"
