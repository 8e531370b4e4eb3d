"""The checks of chapter 7 accept the reference and name each mistake."""

from itertools import pairwise

import pytest
import torch
from hints import assert_hints

from vit_tutorial.augment.mixing import cutmix
from vit_tutorial.exercises import exercise
from vit_tutorial.exercises.recipes import (
    cut_and_mix,
    expected_calibration_error,
    loss_weights,
    most_confused_pairs,
    split_product,
    update_average,
)
from vit_tutorial.training.ema import Average


def _blend(share):
    def fn(average, weights, decay, step):
        keep = share(decay, step)
        return {name: keep * average[name] + (1 - keep) * weights[name] for name in average}

    return fn


def _in_place(average, weights, decay, step):
    decay = min(decay, (step + 1) / (step + 10))
    for name in average:
        average[name].lerp_(weights[name], 1 - decay)
    return average


def _early(step):
    return (step + 1) / (step + 10)


def test_update_average():
    assert_hints(
        "update_average",
        update_average,
        {
            "average and weights are swapped": _blend(lambda d, s: 1 - min(d, _early(s))),
            "larger of the two": _blend(lambda d, s: max(d, _early(s))),
            "middle between": _blend(lambda d, s: 0.5),
            "nothing of the old": _blend(lambda d, s: 0.0),
            "did not move": _blend(lambda d, s: 1.0),
            "added in full": lambda a, w, d, s: {name: d * a[name] + w[name] for name in a},
            "remember the initial weights": _blend(lambda d, s: d),
            "add 1 above": _blend(lambda d, s: min(d, s / (s + 10))),
            "never forgets": _blend(lambda d, s: min(d, s / (s + 1))),
            "at step 8": _blend(lambda d, s: min(d, (s + 1) / 20)),
            "at step 0": _blend(lambda d, s: min(d, _early(s)) if s else 0.0),
            "in place": _in_place,
            "expected a dict": lambda a, w, d, s: list(a.values()),
            "is missing": lambda a, w, d, s: {"fc.weight": update_average(a, w, d, s)["fc.weight"]},
        },
    )


def test_update_average_is_what_the_package_does():
    model = torch.nn.Linear(3, 2)
    average = Average(model, 0.8)
    mine = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(12):
        with torch.no_grad():
            model.weight += torch.randn(2, 3)
        average.update(step)
        mine = update_average(mine, model.state_dict(), 0.8, step)
    torch.testing.assert_close(mine, average.state)


def _cut(pixels=lambda box, size: box, from_partner=None, share=None, fill=None):
    """cut_and_mix with a part of it replaced by another."""

    def fn(images, targets, boxes, partner):
        mixed, height, width = images.clone(), images.shape[2], images.shape[3]
        shares = []
        for i, box in enumerate(boxes.tolist()):
            top, left, tall, wide = pixels(box, (height, width))
            rows = slice(max(0, top), max(0, min(top + tall, height)))
            cols = slice(max(0, left), max(0, min(left + wide, width)))
            other = partner[i] if from_partner is None else from_partner(partner)[i]
            mixed[i, :, rows, cols] = images[other, :, rows, cols] if fill is None else fill
            shares.append((rows.stop - rows.start) * (cols.stop - cols.start) / (height * width))
        shares = torch.tensor(shares)
        if share is not None:
            return mixed, share(shares, boxes, targets, partner)
        return mixed, targets + shares[:, None] * (targets[partner] - targets)

    return fn


def _mix(shares, targets, partner):
    return targets + shares[:, None] * (targets[partner] - targets)


def _changes_images(images, targets, boxes, partner):
    result = cut_and_mix(images, targets, boxes, partner)
    images.copy_(result[0])
    return images, result[1]


def _swapped(images, targets, boxes, partner):
    mixed, mixed_targets = cut_and_mix(images, targets, boxes, partner)
    return torch.where(mixed == images, images[partner], images), mixed_targets


def test_cut_and_mix():
    def negative(box, size):
        return [box[0] % size[0], box[1] % size[1], *box[2:]]

    def vanished(box, size):
        return [box[0], box[1], 0, 0] if box[0] < 0 else box

    assert_hints(
        "cut_and_mix",
        cut_and_mix,
        {
            "two tensors": lambda images, *rest: cut_and_mix(images, *rest)[0],
            "in place": _changes_images,
            "were not mixed": lambda images, targets, boxes, partner: (images, targets),
            "box and rest are swapped": _swapped,
            "filled with zeros": _cut(fill=0.0),
            "rows come first": _cut(lambda box, size: [box[1], box[0], box[3], box[2]]),
            "lower and right end": _cut(lambda box, size: [box[0], box[1], box[2] - box[0], box[3] - box[1]]),
            "box of the first one": lambda i, t, b, p: cut_and_mix(i, t, b[:1].expand_as(b), p),
            "whose partner i is": _cut(from_partner=lambda partner: partner.argsort()),
            "counts from the other end": _cut(negative),
            "vanished": _cut(vanished),
            "kept its full size": _cut(lambda box, size: [max(0, box[0]), max(0, box[1]), *box[2:]]),
            "keep their places": lambda i, t, b, p: (
                torch.where(cut_and_mix(i, t, b, p)[0] == i, i, i[p].flip(-1)),
                t,
            ),
            "targets were not mixed": _cut(share=lambda s, b, t, p: t),
            "targets are swapped": _cut(share=lambda s, b, t, p: _mix(1 - s, t, p)),
            "whole box": _cut(share=lambda s, b, t, p: _mix(b[:, 2] * b[:, 3] / 60, t, p)),
            "larger part": _cut(share=lambda s, b, t, p: torch.where(s[:, None] > 0.5, t[p], t)),
            "mean share": _cut(share=lambda s, b, t, p: _mix(s.mean().expand(4), t, p)),
            "another partner than": _cut(share=lambda s, b, t, p: _mix(s, t, p.argsort())),
            "half and half": _cut(share=lambda s, b, t, p: (t + t[p]) / 2),
            "replaced pixels": _cut(share=lambda s, b, t, p: _mix(s**2, t, p)),
        },
    )


def test_cut_and_mix_without_a_loop():
    def vectorised(images, targets, boxes, partner):
        top, left, tall, wide = boxes[:, :, None].unbind(1)
        rows, cols = (torch.arange(side) for side in images.shape[2:])
        inside = ((rows >= top) & (rows < top + tall))[:, :, None] & ((cols >= left) & (cols < left + wide))[:, None]
        share = inside.float().mean((1, 2))[:, None]
        mixed = torch.where(inside[:, None], images[partner], images)
        return mixed, torch.lerp(targets, targets[partner], share)

    assert exercise("cut_and_mix", vectorised) is vectorised


def test_cutmix_of_the_package_mixes_targets_as_the_exercise_does():
    images, targets = torch.arange(1.0, 7)[:, None, None, None].expand(6, 1, 8, 8), torch.eye(6)
    mixed, mixed_targets = cutmix(images, targets, 1.0, torch.Generator().manual_seed(0))
    shares = torch.stack([(mixed == i + 1).float().mean((1, 2, 3)) for i in range(6)], dim=1)
    torch.testing.assert_close(mixed_targets, shares)


def _split(scale=lambda s: (s.sqrt(), s.sqrt()), kept=lambda rank: slice(0, rank)):
    def fn(product, rank):
        u, s, vh = torch.linalg.svd(product)
        (one, other), strong = scale(s), kept(rank)
        return u[:, strong] * one[strong], vh[strong].T * other[strong]

    return fn


def _columns_of_vh(product, rank):
    u, s, vh = torch.linalg.svd(product)
    return u[:, :rank] * s[:rank].sqrt(), vh[:, :rank] * s[:rank].sqrt()


def test_split_product():
    assert_hints(
        "split_product",
        split_product,
        {
            "weakest directions": _split(kept=lambda rank: slice(5 - rank, 5)),
            "their squares": _split(lambda s: (s, s)),
            "halves multiply": _split(lambda s: (s / 2, s / 2)),
            "values are missing": _split(lambda s: (s**0, s**0)),
            "product's transpose": lambda product, rank: split_product(product, rank)[::-1],
            "one side only": _split(lambda s: (s.sqrt(), s**0)),
            "Give each the root": _split(lambda s: (s, s**0)),
            "*rows* are": _columns_of_vh,
            "left has a column": lambda product, rank: split_product(product, 5),
            "with rows": lambda product, rank: (split_product(product, rank)[0], split_product(product, rank)[1].T),
            "expected two matrices": lambda product, rank: product,
        },
    )


def test_split_product_is_the_best_of_its_rank():
    product = torch.randn(7, 7)
    left, right = split_product(product, 3)
    rest = torch.linalg.svdvals(product)[3:]  # Eckart and Young: no matrix of rank 3 is nearer than this
    torch.testing.assert_close((product - left @ right.T).norm(), rest.norm())


def test_most_confused_pairs():
    def pairs(confusion, count):
        return most_confused_pairs(confusion, count)

    def triples(matrix, count, largest=True):
        top = matrix.flatten().topk(count, largest=largest)
        places, k = zip(top.indices.tolist(), top.values.tolist(), strict=True), len(matrix)
        return [(place // k, place % k, value) for place, value in places]

    def in_place(confusion, count):
        return triples(confusion.fill_diagonal_(0), count)

    def off(confusion):
        return confusion.clone().fill_diagonal_(0)

    def rarest(confusion, count):
        return [(0, 3, 0), (3, 0, 0), (0, 2, 1), (2, 0, 2)]

    def of_each_row(confusion, count):
        top = off(confusion).max(dim=1)
        found = [(row, int(top.indices[row]), int(top.values[row])) for row in range(4)]
        return sorted(found, key=lambda entry: -entry[2])

    assert_hints(
        "most_confused_pairs",
        most_confused_pairs,
        {
            "in place": in_place,
            "expected a list": lambda confusion, count: torch.tensor(pairs(confusion, count)),
            "4 pairs were asked for": lambda confusion, count: pairs(confusion, 12),
            "a triple": lambda confusion, count: [pair[:2] for pair in pairs(confusion, count)],
            "Leave it out": triples,
            "rows and columns are swapped": lambda confusion, count: triples(off(confusion).T.contiguous(), count),
            "rarest": rarest,
            "from the fourth to the first": lambda confusion, count: pairs(confusion, count)[::-1],
            "one half of the matrix": lambda confusion, count: triples(off(confusion).triu(), count),
            "added up": lambda confusion, count: triples((off(confusion) + off(confusion).T).triu(), count),
            "worst mistake of each row": of_each_row,
            "with -1, not with 0": lambda confusion, count: triples(off(confusion), count),
            "come from //": lambda confusion, count: [(row + 0.25, col, n) for row, col, n in pairs(confusion, count)],
            "wanted [": lambda confusion, count: [(0, 1, 7)] * count,
        },
    )


def test_most_confused_pairs_may_be_a_loop():
    def loop(confusion, count):
        k = len(confusion)
        all_pairs = [(i, j, int(confusion[i, j])) for i in range(k) for j in range(k) if i != j]
        return sorted(all_pairs, key=lambda entry: entry[2], reverse=True)[:count]

    assert exercise("most_confused_pairs", loop) is loop


def _calibration(weigh=None, gap=lambda sure, right: (sure - right).mean().abs(), bins=None, confidence=None):
    """The error with a part of it replaced by another."""

    def fn(probabilities, labels, num_bins):
        sure, predictions = probabilities.max(dim=1)
        right = (predictions == labels).float()
        if confidence:
            sure = confidence(probabilities, labels)
        edges = torch.linspace(0, 1, num_bins + 1)
        groups = [(sure > low) & (sure <= high) for low, high in pairwise(edges)]
        groups = bins(sure, num_bins) if bins else groups
        groups = [group for group in groups if group.any()]
        gaps = torch.stack([gap(sure[group], right[group]) for group in groups])
        weights = torch.stack([group.float().mean() for group in groups])
        return (weights * gaps).sum() if weigh is None else weigh(gaps, weights)

    return fn


def _signed(sure, right):
    return (sure - right).mean()


def _with_nan(probabilities, labels, num_bins):
    sure, predictions = probabilities.max(dim=1)
    right = (predictions == labels).float()
    place = (sure * num_bins).ceil() - 1
    gaps = torch.stack([(sure - right)[place == i].mean().abs() for i in range(num_bins)])
    return gaps.mean()


def _without_the_certain(sure, num_bins):
    place = (sure * num_bins).floor()
    return [place == i for i in range(num_bins)]


def _equal_counts(sure, num_bins):
    parts = sure.argsort().chunk(num_bins)
    return [torch.isin(torch.arange(len(sure)), part) for part in parts]


def _stretched(sure, num_bins):
    place = ((sure - sure.min()) / (sure.max() - sure.min()) * num_bins).ceil().clamp(1, num_bins)
    return [place == i + 1 for i in range(num_bins)]


def _changes_probabilities(probabilities, labels, num_bins):
    result = expected_calibration_error(probabilities, labels, num_bins)
    probabilities /= 2
    return result


def test_expected_calibration_error():
    right = expected_calibration_error
    assert_hints(
        "expected_calibration_error",
        right,
        {
            "in place": _changes_probabilities,
            "expected shape ()": lambda p, labels, k: right(p, labels, k).repeat(k),
            "0 / 0": _with_nan,
            "all bins count the same": _calibration(lambda gaps, weights: gaps.mean()),
            "empty ones included": _calibration(lambda gaps, weights: gaps.sum() / 4),
            "sum of the bins' gaps": _calibration(lambda gaps, weights: gaps.sum()),
            "take the absolute value in each bin": _calibration(gap=_signed),
            "accuracy minus confidence": _calibration(gap=lambda sure, right: -_signed(sure, right)),
            "squared": _calibration(gap=lambda sure, right: _signed(sure, right) ** 2),
            "largest gap": _calibration(lambda gaps, weights: gaps.max()),
            "image by image": _calibration(gap=lambda sure, right: (sure - right).abs().mean()),
            "percentages": lambda p, labels, k: 100 * right(p, labels, k),
            "the true class's": _calibration(confidence=lambda p, labels: p[torch.arange(len(p)), labels]),
            "out of the last bin": _calibration(bins=_without_the_certain),
            "and out of the number": _calibration(
                lambda gaps, weights: (gaps * weights).sum() / weights.sum(), bins=_without_the_certain
            ),
            "equally many": _calibration(bins=_equal_counts),
            "lowest confidence to the highest": _calibration(bins=_stretched),
            "differs from": lambda p, labels, k: right(p, labels, k) ** 3,
            "not the number of classes": lambda p, labels, k: right(p, labels, p.shape[1]),
        },
    )


def test_calibration_of_a_case_computed_by_hand():
    # Sure by 0.9 and right half the time; sure by 0.6 and right always: ½ · 0.4 + ½ · 0.4.
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    labels = torch.tensor([0, 1, 1, 1])
    assert expected_calibration_error(probabilities, labels, 10) == pytest.approx(0.4)


def test_loss_weights():
    assert_hints(
        "loss_weights",
        loss_weights,
        {
            "all processes count the same": lambda counts: torch.ones(3),
            "*averaged*": lambda counts: counts / counts.sum(),
            "would grow with the batch": lambda counts: counts,
            "turned round": lambda counts: counts.sum() / (len(counts) * counts),
            "does already": lambda counts: torch.ones(3) / 3,
            "largest shard": lambda counts: counts / counts.max(),
            "smallest shard": lambda counts: counts / counts.min(),
            "images of the mean shard": lambda counts: counts / len(counts),
            "one weight for each": lambda counts: counts.sum(),
            "is not the gradient": lambda counts: torch.tensor([1.0, 2.0, 3.0]),
            "with equal shards": lambda counts: counts * 3 / counts.sum(),
        },
    )
