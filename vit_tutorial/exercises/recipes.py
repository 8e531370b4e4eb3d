"""Exercises of chapter 7: training on small photographs."""

from itertools import pairwise

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.recipes import split_product

EXERCISES: dict[str, Exercise] = {}


def update_average(
    average: dict[str, Tensor], weights: dict[str, Tensor], decay: float, step: int
) -> dict[str, Tensor]:
    """The average after step ``step``: ``decay`` of the old one, less in the first steps, and the rest of the new."""
    decay = min(decay, (step + 1) / (step + 10))
    return {name: decay * average[name] + (1 - decay) * weights[name] for name in average}


def _blend(keep):
    """An average that keeps another part of the old one, by decay and step."""

    def fn(average, weights, decay, step):
        kept = keep(decay, step)
        return {name: kept * average[name] + (1 - kept) * weights[name] for name in average}

    return fn


def _early(step):
    return (step + 1) / (step + 10)


def _lerped(average, weights, decay, step):
    kept = min(decay, _early(step))
    return {name: torch.lerp(weights[name], value, kept) for name, value in average.items()}


def _states(step, decay=0.9):
    return (
        {"fc.weight": torch.tensor([[1.0, 2.0, 4.0]]), "fc.bias": torch.tensor([3.0])},
        {"fc.weight": torch.tensor([[2.0, 6.0, 1.0]]), "fc.bias": torch.tensor([-1.0])},
        decay,
        step,
    )


EXERCISES["update_average"] = Exercise(
    reference=update_average,
    truth=_lerped,
    cases=[
        Case(
            given=lambda: _states(200),  # (200 + 1) / (200 + 10) is more than 0.9
            truth={"fc.weight": torch.tensor([[1.1, 2.4, 3.7]]), "fc.bias": torch.tensor([2.6])},
            hint="at step 200 the average must be 0.9 of the old one and 0.1 of the weights, for every tensor of the "
            "dict",
        ),
        Case(given=lambda: _states(8), hint="at step 8 the average must keep 9 / 18 of the old one"),
        Case(
            given=lambda: _states(0),
            hint="at step 0 the average must keep 1 / 10 of the old one",
            caught=_blend(lambda decay, step: min(decay, _early(step)) if step else 0.0),
        ),
        Case(given=lambda: _states(50, 0.5), hint="right for a decay of 0.9, wrong for 0.5"),
        *(
            Case(
                given=lambda step=step: _states(step),
                hint=f"at step {step} the smaller of decay and (step + 1) / (step + 10)",
            )
            for step in (10, 79, 80, 81)
        ),
    ],
    mistakes={
        "average and weights are swapped: `decay` is what the old average keeps": _blend(
            lambda d, s: 1 - min(d, _early(s))
        ),
        "the first steps are like later ones, so the average would remember the initial weights. Early it keeps "
        "(step + 1) / (step + 10) only": _blend(lambda d, s: d),
        "late in the run the larger of the two was taken. The average keeps the *smaller*: decay, from here on": _blend(
            lambda d, s: max(d, _early(s))
        ),
        "that is the middle between the two: use decay": _blend(lambda d, s: 0.5),
        "those are the new weights: nothing of the old average is left": _blend(lambda d, s: 0.0),
        "the average did not move": _blend(lambda d, s: 1.0),
        "the early part is kept to the end: from where it exceeds decay, decay counts": _blend(lambda d, s: _early(s)),
        "the new weights were added in full; their part is 1 − decay": lambda average, weights, d, s: {
            name: min(d, _early(s)) * average[name] + weights[name] for name in average
        },
        "the early part is step / (step + 10); step counts from 0, so add 1 above": _blend(
            lambda d, s: min(d, s / (s + 10))
        ),
        "the early part is (step + 1) / (step + 11): step counts from 0, and 10 stands below": _blend(
            lambda d, s: min(d, (s + 1) / (s + 11))
        ),
        "that is the plain mean over all steps so far, which never forgets": _blend(lambda d, s: min(d, s / (s + 1))),
        "only the first tensor was averaged: every weight is": lambda average, weights, d, s: (
            weights | {"fc.weight": update_average(average, weights, d, s)["fc.weight"]}
        ),
        "a tensor is missing: every weight is averaged": lambda average, weights, d, s: {
            "fc.weight": update_average(average, weights, d, s)["fc.weight"]
        },
        "a list came out; a dict with the same names was wanted": lambda *args: list(update_average(*args).values()),
    },
    right=[_lerped],
    shape="A dict of tensors with the same names",
)


def cut_and_mix(
    images: Float[Tensor, "b c H W"],
    targets: Float[Tensor, "b k"],
    boxes: Int64[Tensor, "b 4"],
    partner: Int64[Tensor, " b"],
) -> tuple[Float[Tensor, "b c H W"], Float[Tensor, "b k"]]:
    """Put a box (top, left, height, width) of the partner into each image; targets mix by the pixels replaced."""
    mixed, shares = images.clone(), []
    height, width = images.shape[2:]
    for i, (top, left, tall, wide) in enumerate(boxes.tolist()):
        rows = slice(max(0, top), max(0, min(top + tall, height)))
        cols = slice(max(0, left), max(0, min(left + wide, width)))
        mixed[i, :, rows, cols] = images[partner[i], :, rows, cols]
        shares.append((rows.stop - rows.start) * (cols.stop - cols.start) / (height * width))
    share = torch.tensor(shares)[:, None]
    return mixed, (1 - share) * targets + share * targets[partner]


def _pixel_by_pixel(images, targets, boxes, partner):
    mixed, fractions = images.clone(), torch.zeros(len(images), dtype=targets.dtype)
    height, width = images.shape[2:]
    for i, (top, left, tall, wide) in enumerate(boxes.tolist()):
        for y in range(height):
            for x in range(width):
                if top <= y < top + tall and left <= x < left + wide:
                    mixed[i, :, y, x] = images[partner[i], :, y, x]
                    fractions[i] += 1 / (height * width)
    return mixed, _mix(fractions, targets, partner)


def _mix(fractions, targets, partner):
    return targets + fractions[:, None] * (targets[partner] - targets)


def _cut(pixels=lambda box, size: box, from_partner=lambda partner: partner, fill=None, mix=None):
    """cut_and_mix with a part of it replaced by another."""

    def fn(images, targets, boxes, partner):
        mixed, height, width = images.clone(), images.shape[2], images.shape[3]
        fractions = []
        for i, box in enumerate(boxes.tolist()):
            top, left, tall, wide = pixels(box, (height, width))
            rows = slice(max(0, top), max(0, min(top + tall, height)))
            cols = slice(max(0, left), max(0, min(left + wide, width)))
            mixed[i, :, rows, cols] = images[from_partner(partner)[i], :, rows, cols] if fill is None else fill
            fractions.append((rows.stop - rows.start) * (cols.stop - cols.start) / (height * width))
        fractions = torch.tensor(fractions)
        return mixed, mix(fractions, boxes, targets, partner) if mix else _mix(fractions, targets, partner)

    return fn


def _without_a_loop(images, targets, boxes, partner):
    top, left, tall, wide = boxes[:, :, None].unbind(1)
    rows, cols = (torch.arange(side) for side in images.shape[2:])
    inside = ((rows >= top) & (rows < top + tall))[:, :, None] & ((cols >= left) & (cols < left + wide))[:, None]
    mixed = torch.where(inside[:, None], images[partner], images)
    return mixed, torch.lerp(targets, targets[partner], inside.to(targets.dtype).mean((1, 2))[:, None])


def _rest_of_the_partner(images, targets, boxes, partner):
    mixed, mixed_targets = cut_and_mix(images, targets, boxes, partner)
    return torch.where(mixed == images, images[partner], images), mixed_targets


def _counted_by_difference(images, targets, boxes, partner):
    """The pixels that differ are counted, not those of the box."""
    mixed, _ = cut_and_mix(images, targets, boxes, partner)
    return mixed, _mix((mixed != images).any(dim=1).float().mean(dim=(1, 2)), targets, partner)


def _to_mix(images=None):
    # One box inside, one that is cut below and right, one cut above and left, one that covers more than half.
    boxes = torch.tensor([[1, 2, 3, 5], [4, 7, 5, 6], [-2, -1, 4, 3], [0, 0, 5, 9]])
    targets, partner = torch.eye(3)[torch.tensor([0, 1, 2, 1])], torch.tensor([1, 2, 3, 0])  # not its own inverse
    return torch.rand(4, 2, 6, 10) + 1 if images is None else images, targets, boxes, partner


EXERCISES["cut_and_mix"] = Exercise(
    reference=cut_and_mix,
    truth=_pixel_by_pixel,
    cases=[
        Case(given=_to_mix),
        Case(
            given=lambda: _to_mix(torch.tensor([1.0, 1, 2, 2])[:, None, None, None].expand(4, 2, 6, 10).clone()),
            hint="the images look alike here, so that a replaced pixel need not differ. Count the pixels of the box, "
            "not those that changed",
            caught=_counted_by_difference,
        ),
        Case(
            given=lambda: (torch.rand(1, 3, 4, 4), torch.eye(2)[:1], torch.tensor([[1, 1, 2, 2]]), torch.tensor([0])),
            hint="wrong for a batch of one image, which is its own partner",
        ),
        Case(
            given=lambda: (
                *_to_mix()[:2],
                torch.tensor([[0, 0, 6, 10], [0, 0, 1, 1], [-5, 1, 6, 3], [5, 9, 3, 3]]),
                _to_mix()[3],
            ),
            hint="a box may be as large as the image or have a single pixel inside",
        ),
    ],
    mistakes={
        "the images were not mixed": lambda images, targets, boxes, partner: (images.clone(), targets),
        "the targets were not mixed: an image that is half a ship should be called so": _cut(mix=lambda f, b, t, p: t),
        "the fraction is that of the whole box. Where it sticks out over the border, fewer pixels were replaced": _cut(
            mix=lambda f, b, t, p: _mix(b[:, 2] * b[:, 3] / 60, t, p)
        ),
        "the targets are swapped: the fraction of the box belongs to the partner": _cut(
            mix=lambda f, b, t, p: _mix(1 - f, t, p)
        ),
        "box and rest are swapped: the box comes from the partner, the rest stays": _rest_of_the_partner,
        "top and left, height and width are swapped: rows come first": _cut(
            lambda box, _: [box[1], box[0], box[3], box[2]]
        ),
        "height and width were read as the box's lower and right end": _cut(
            lambda box, _: [box[0], box[1], box[2] - box[0], box[3] - box[1]]
        ),
        "the box was filled with zeros, not with the partner's pixels": _cut(fill=0.0),
        "all images have the box of the first one. Each has its own": lambda i, t, b, p: cut_and_mix(
            i, t, b[:1].expand_as(b), p
        ),
        "the partner of image i is images[partner[i]]. You took the image whose partner i is": _cut(
            from_partner=lambda partner: partner.argsort()
        ),
        "a negative top or left counts from the other end in Python: cut the box at 0": _cut(
            lambda box, size: [box[0] % size[0], box[1] % size[1], *box[2:]]
        ),
        "a box that begins above or left of the image vanished: only the part outside is cut off": _cut(
            lambda box, _: [0, 0, 0, 0] if min(box[:2]) < 0 else box
        ),
        "a box that begins above or left of the image kept its full size: what lies outside is lost": _cut(
            lambda box, _: [max(0, box[0]), max(0, box[1]), *box[2:]]
        ),
        "the box came from another place of the partner: pixels keep their places": lambda i, t, b, p: (
            torch.where(cut_and_mix(i, t, b, p)[0] == i, i, i[p].flip(-1)),
            cut_and_mix(i, t, b, p)[1],
        ),
        "the targets are those of the larger part. Mix them by the fraction of pixels": _cut(
            mix=lambda f, b, t, p: torch.where(f[:, None] > 0.5, t[p], t)
        ),
        "all targets were mixed by the mean fraction. Each image has its own": _cut(
            mix=lambda f, b, t, p: _mix(f.mean().expand(len(f)), t, p)
        ),
        "the targets come from another partner than the pixels": _cut(mix=lambda f, b, t, p: _mix(f, t, p.argsort())),
        "all targets were mixed half and half. The fraction is that of the pixels": _cut(
            mix=lambda f, b, t, p: (t + t[p]) / 2
        ),
    },
    right=[_pixel_by_pixel, _without_a_loop],
    shape="Two tensors: the images, which keep their size, and a row of targets for each",
    otherwise="an image must hold its partner's pixels inside its box and its own elsewhere, and its target be "
    "(1 − fraction) · target + fraction · partner's target, by the fraction of replaced pixels",
    without=("gradient",),
)


def _split(scale=lambda s: (s.sqrt(), s.sqrt()), kept=lambda rank, d: slice(0, rank)):
    def fn(product, rank):
        u, s, vh = torch.linalg.svd(product)
        (one, other), strong = scale(s), kept(rank, len(s))
        return u[:, strong] * one[strong], vh[strong].T * other[strong]

    return fn


def _columns_of_vh(product, rank):
    u, s, vh = torch.linalg.svd(product)
    return u[:, :rank] * s[:rank].sqrt(), vh[:, :rank] * s[:rank].sqrt()


def _by_eigenvectors(product, rank):
    """The right directions are eigenvectors of the product's square; the left ones follow."""
    values, vectors = torch.linalg.eigh(product.double().T @ product.double())
    v, s = vectors.flip(1)[:, :rank], values.flip(0)[:rank].sqrt()
    return (product.double() @ v / s.sqrt()), v * s.sqrt()


def _rebuilt(fn, product, rank):
    """Factors may be turned against each other: what counts is their product and how large each is."""
    left, right = fn(product, rank)
    if left.shape != (len(product), rank) or right.shape != (len(product), rank):
        return torch.tensor([*left.shape, *right.shape])
    sizes = torch.stack([torch.linalg.svdvals(left), torch.linalg.svdvals(right)])
    return torch.cat([(left @ right.T).flatten(), sizes.flatten()])


def _matrix(d=5):
    u, v = (torch.linalg.qr(torch.randn(d, d)).Q for _ in range(2))
    return (u * 2.0 ** torch.arange(3, 3 - d, -1)) @ v.T


EXERCISES["split_product"] = Exercise(
    reference=split_product,
    truth=_by_eigenvectors,
    run=_rebuilt,
    given=lambda d=5, rank=3: (_matrix(d), min(rank, d)),
    mistakes={
        "right is (r, d): svd gives Vᵀ, whose *rows* are the directions. Both factors are (d, "
        "r)": lambda product, rank: (
            split_product(product, rank)[0],
            split_product(product, rank)[1].T,
        ),
        "the directions are the *rows* of what svd gives last; you took columns": _columns_of_vh,
        "the weakest directions were kept; svd puts the strongest first": _split(
            kept=lambda rank, d: slice(d - rank, d)
        ),
        "both factors carry the whole singular values, so the product has their squares": _split(lambda s: (s, s)),
        "each factor has half of every singular value, and halves multiply to a quarter of its square": _split(
            lambda s: (s / 2, s / 2)
        ),
        "the singular values are missing": _split(lambda s: (s**0, s**0)),
        "the roots are on one side only: each side needs them": _split(lambda s: (s.sqrt(), s**0)),
        "the product is right, but the two are not equally large: the left has all. Give each the root": _split(
            lambda s: (s, s**0)
        ),
        "the product is right, but the two are not equally large: the right has all. Give each the root": _split(
            lambda s: (s**0, s)
        ),
        "left and right are swapped: that is the product's transpose": lambda product, rank: split_product(
            product, rank
        )[::-1],
        "every direction was kept: leave all but the first r out": lambda product, rank: split_product(
            product, len(product)
        ),
        "the last of the r directions is missing": _split(kept=lambda rank, d: slice(0, rank - 1)),
    },
    right=[_by_eigenvectors, lambda product, rank: [-factor for factor in split_product(product, rank)]],
    shape="Two matrices (d, r), left and right",
    otherwise="left @ right.T must be the product with its r strongest directions alone, both sides equally large",
    tolerance=1e-4,
    without=("gradient",),
)


def most_confused_pairs(confusion: Int64[Tensor, "k k"], count: int) -> list[tuple[int, int, int]]:
    """The ``count`` most frequent mistakes as (true class, predicted class, times), the most frequent first."""
    mistakes = confusion.clone().fill_diagonal_(-1)
    top = mistakes.flatten().topk(count)
    k = len(confusion)
    return [
        (index // k, index % k, times) for index, times in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def _sorted_pairs(confusion, count):
    k = len(confusion)
    pairs = [(i, j, int(confusion[i, j])) for i in range(k) for j in range(k) if i != j]
    return sorted(pairs, key=lambda entry: entry[2], reverse=True)[:count]


def _triples(matrix, count, largest=True):
    top, k = matrix.flatten().topk(count, largest=largest), len(matrix)
    places = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [(place // k, place % k, value) for place, value in places]


def _off(confusion, fill=0):
    return confusion.clone().fill_diagonal_(fill)


def _of_each_row(confusion, count):
    top = _off(confusion).max(dim=1)
    found = [(row, int(top.indices[row]), int(top.values[row])) for row in range(len(confusion))]
    return sorted(found, key=lambda entry: -entry[2])[:count]


def _by_times(fn, confusion, count):
    """Triples as lists of whole numbers; which of equally many comes first is left open."""
    found = fn(confusion, count)
    if not isinstance(found, list | tuple):
        return found
    found = [[*triple] for triple in found]
    return sorted(found, key=lambda triple: (-triple[2], *triple[:2])) if _falls(found) else found


def _falls(found):
    return all(len(triple) == 3 for triple in found) and all(a[2] >= b[2] for a, b in pairwise(found))


def _table(*rows):
    return torch.tensor(rows)


FOUR = _table([50, 7, 1, 0], [9, 40, 3, 6], [2, 12, 30, 5], [0, 14, 8, 20])
EXERCISES["most_confused_pairs"] = Exercise(
    reference=most_confused_pairs,
    truth=_sorted_pairs,
    run=_by_times,
    cases=[
        Case(given=lambda: (FOUR.clone(), 4), hint="the four most frequent mistakes are 3→1, 2→1, 1→0 and 3→2"),
        Case(given=lambda: (FOUR.clone(), 1), hint="with count 1 a single pair was wanted, in a list"),
        Case(
            given=lambda: (_table([3, 0], [0, 4]), 2),
            hint="where two mistakes were never made, the diagonal came back instead. Mask it with -1, not with 0, "
            "or leave it out",
            caught=lambda confusion, count: _triples(_off(confusion), count),
        ),
        Case(
            given=lambda: (_table([9, 2, 4], [7, 9, 1], [3, 5, 9]), 3), hint="right for four classes, wrong for three"
        ),
    ],
    mistakes={
        "the diagonal counts what was right. Leave it out": _triples,
        "rows and columns are swapped: a row is a *true* class, a column a *predicted* one": lambda confusion, count: (
            _triples(_off(confusion, -1).T.contiguous(), count)
        ),
        "the rarest mistakes come first: sort the other way round": lambda confusion, count: _triples(
            _off(confusion, 10**6), count, largest=False
        ),
        "those are the right ones, but in rising order: the most frequent comes first": lambda confusion, count: (
            most_confused_pairs(confusion, count)[::-1]
        ),
        "only one half of the matrix was searched. Class a taken for b and b taken for a are two mistakes": (
            lambda confusion, count: _triples(_off(confusion).triu(), count)
        ),
        "only the lower half of the matrix was searched. Class a taken for b and b taken for a are two mistakes": (
            lambda confusion, count: _triples(_off(confusion).tril(), count)
        ),
        "both directions were added up. A cat taken for a dog is not a dog taken for a cat": lambda confusion, count: (
            _triples((_off(confusion) + _off(confusion).T).triu(), count)
        ),
        "the worst mistake of each row was taken. One row may hold two of the worst": _of_each_row,
        "each entry must be a triple: true class, predicted class, times": lambda confusion, count: [
            pair[:2] for pair in most_confused_pairs(confusion, count)
        ],
        "too many pairs came out: `count` of them were asked for": lambda confusion, count: most_confused_pairs(
            confusion, len(confusion) * (len(confusion) - 1)
        ),
        "classes are whole numbers: rows come from // and columns from %": lambda confusion, count: [
            (row + col / len(confusion), col, times) for row, col, times in most_confused_pairs(confusion, count)
        ],
        "a row has as many entries as there are classes: divide the place by len(confusion), not by count": (
            lambda confusion, count: [
                ((row * len(confusion) + col) // count, (row * len(confusion) + col) % count, times)
                for row, col, times in most_confused_pairs(confusion, count)
            ]
        ),
    },
    right=[_sorted_pairs, lambda *args: [list(triple) for triple in _sorted_pairs(*args)]],
    shape="A list of triples: true class, predicted class, times",
)


def expected_calibration_error(
    probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"], num_bins: int
) -> Float[Tensor, ""]:
    """Mean gap between confidence and accuracy over bins of equal width, each weighted by its number of images."""
    confidence, predictions = probabilities.max(dim=1)
    right = (predictions == labels).to(confidence.dtype)
    place = (confidence * num_bins).ceil().long().clamp(1, num_bins) - 1
    gaps = torch.zeros(num_bins, dtype=confidence.dtype).index_add(0, place, confidence - right)
    return gaps.abs().sum() / len(labels)


def _plain(result):
    """One number, as a tensor that can be compared."""
    return torch.tensor(result) if isinstance(result, float) else result


def _calibration(weigh=None, gap=lambda sure, right: (sure - right).mean().abs(), bins=None, confidence=None):
    """The error with a part of it replaced by another."""

    def fn(probabilities, labels, num_bins):
        sure, predictions = probabilities.max(dim=1)
        right = (predictions == labels).to(sure.dtype)
        sure = confidence(probabilities, labels) if confidence else sure
        edges = torch.linspace(0, 1, num_bins + 1, dtype=sure.dtype)
        groups = bins(sure, num_bins) if bins else [(sure > low) & (sure <= high) for low, high in pairwise(edges)]
        filled = [group for group in groups if group.any()]
        gaps = torch.stack([gap(sure[group], right[group]) for group in filled])
        weights = torch.stack([group.to(sure.dtype).mean() for group in filled])
        return weigh(gaps, weights, num_bins) if weigh else (weights * gaps).sum()

    return fn


def _signed(sure, right):
    return (sure - right).mean()


def _with_nan(probabilities, labels, num_bins):
    sure, predictions = probabilities.max(dim=1)
    right = (predictions == labels).float()
    place = (sure * num_bins).ceil() - 1
    return torch.stack(
        [(sure - right)[place == i].mean().abs() * (place == i).float().mean() for i in range(num_bins)]
    ).sum()


def _floored(sure, num_bins, last=False):
    place = (sure * num_bins).floor().clamp(max=num_bins - 1 if last else num_bins)
    return [place == i for i in range(num_bins)]


def _both_ends(sure, num_bins):
    return [(sure >= i / num_bins) & (sure <= (i + 1) / num_bins) for i in range(num_bins)]


def _equal_counts(sure, num_bins):
    return [torch.isin(torch.arange(len(sure)), part) for part in sure.argsort().chunk(num_bins)]


def _stretched(sure, num_bins):
    place = ((sure - sure.min()) / (sure.max() - sure.min()) * num_bins).ceil().clamp(1, num_bins)
    return [place == i + 1 for i in range(num_bins)]


def _predictions(confidence, right, k=4):
    """Probabilities and labels with these confidences, right or wrong. The runner-up takes less than the winner."""
    confidence, right = torch.tensor(confidence), torch.tensor(right, dtype=torch.bool)
    n = len(confidence)
    predicted = torch.arange(n) % k
    probabilities = ((1 - confidence) / (k - 1))[:, None].repeat(1, k)
    probabilities[torch.arange(n), predicted] = confidence
    return probabilities, torch.where(right, predicted, (predicted + 1) % k)


# Four bins; nothing falls into the first, nothing on an edge, and the model is certain of one image, wrongly.
SURE = [0.30, 0.41, 0.61, 0.55, 0.70, 0.65, 0.90, 1.00, 0.81, 0.95, 0.85, 0.76]
RIGHT = [0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0]
EXERCISES["expected_calibration_error"] = Exercise(
    reference=expected_calibration_error,
    truth=_calibration(),
    given=lambda bins=4: (*_predictions(SURE, RIGHT), bins),
    cases=[
        # By hand: sure by 0.9 and right half the time, sure by 0.6 and right always: ½ · 0.4 + ½ · 0.4.
        Case(
            given=lambda: (
                torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]]),
                torch.tensor([0, 1, 1, 1]),
                10,
            ),
            truth=torch.tensor(0.4),
            hint="half the images at 0.9 and right half the time, half at 0.6 and always right: the error is 0.4",
        ),
        Case(
            given=lambda: (*_predictions([0.5, 0.5, 0.9], [1, 0, 0]), 4),
            hint="a confidence on the edge of two bins belongs to one of them, whichever, and not to both",
            caught=_calibration(bins=_both_ends),
        ),
        Case(given=lambda: (torch.tensor([[0.2, 0.8]]), torch.tensor([1]), 5), hint="wrong for a single image"),
    ],
    mistakes={
        "the result is NaN: a bin without images gave 0 / 0. Leave it out, or add up before you divide": _with_nan,
        "all bins count the same. Weight each by its fraction of the images": _calibration(lambda g, w, bins: g.mean()),
        "you divided by num_bins, empty ones included. Weight each bin by its fraction of the images": _calibration(
            lambda g, w, bins: g.sum() / bins
        ),
        "that is the sum of the bins' gaps. Weight each by its fraction of the images": _calibration(
            lambda g, w, bins: g.sum()
        ),
        "gaps of different sign cancel: take the absolute value in each bin, before you add up": _calibration(
            gap=_signed
        ),
        "that is the absolute value of the sum, where gaps of different sign have cancelled: take it "
        "in each bin": _calibration(lambda g, w, bins: (w * g).sum().abs(), gap=_signed),
        "that is accuracy minus confidence, and gaps of different sign cancel": _calibration(
            gap=lambda sure, right: -_signed(sure, right)
        ),
        "the gaps were squared": _calibration(gap=lambda sure, right: _signed(sure, right) ** 2),
        "that is the largest gap. The mean over bins was wanted, weighted by their images": _calibration(
            lambda g, w, bins: g.max()
        ),
        "the absolute value was taken image by image. In a bin, what is too sure and what is not sure enough even out: "
        "average first": _calibration(gap=lambda sure, right: (sure - right).abs().mean()),
        "those are percentages; a fraction between 0 and 1 was wanted": lambda *args: (
            100 * expected_calibration_error(*args)
        ),
        "the confidence is the largest probability, whether it is right or not. You took the true "
        "class's": _calibration(confidence=lambda p, labels: p[torch.arange(len(p)), labels]),
        "an image with confidence 1 fell out of the last bin": _calibration(bins=_floored),
        "an image with confidence 1 fell out of the last bin, and out of the number of images": _calibration(
            lambda g, w, bins: (g * w).sum() / w.sum(), bins=_floored
        ),
        "the bins hold equally many images. Bins of equal width were wanted: 0 to 1/4, 1/4 to 1/2, …": _calibration(
            bins=_equal_counts
        ),
        "the bins reach from the lowest confidence to the highest. They divide 0 to 1": _calibration(bins=_stretched),
        "num_bins is given, and is not the number of classes": lambda p, labels, bins: expected_calibration_error(
            p, labels, p.shape[1]
        ),
        "one number for each bin came out; their weighted sum was wanted": _calibration(lambda g, w, bins: g * w),
    },
    right=[
        _calibration(),
        _calibration(bins=lambda sure, num_bins: _floored(sure, num_bins, last=True)),
        lambda *args: float(expected_calibration_error(*args)),
    ],
    run=lambda fn, *args: _plain(fn(*args)),
    shape="One number for all images",
    otherwise="the result differs from Σ (images in bin / all images) · |accuracy in bin − mean confidence in bin|",
    tolerance=1e-4,
    without=("gradient",),
)


def loss_weights(counts: Integer[Tensor, " p"]) -> Float[Tensor, " p"]:
    """What each process multiplies its mean loss by, so that the mean of all gradients is that of the whole batch."""
    return counts * (len(counts) / counts.sum().item())


def _as_weights(change):
    """Weights by another rule, from the counts as floats."""
    return lambda counts: change(counts.double()).float()


EXERCISES["loss_weights"] = Exercise(
    reference=loss_weights,
    truth=lambda counts: torch.tensor([c / (sum(counts.tolist()) / len(counts)) for c in counts.tolist()]),
    cases=[
        Case(
            given=lambda: (torch.tensor([5, 4, 2]),),
            hint="with these weights the mean over processes is not the gradient of the mean over all 11 images",
        ),
        Case(
            given=lambda: (torch.tensor([4, 4]),),
            hint="with equal shards every weight is 1",
            caught=lambda counts: counts * 3 / counts.sum(),
        ),
        Case(given=lambda: (torch.tensor([7]),), hint="a single process has the weight 1"),
        Case(
            given=lambda: (torch.tensor([200, 120], dtype=torch.uint8),),
            hint="wrong for counts that are bytes: 200 times 2 is beyond 255. Divide first, or go to floating point",
            caught=lambda counts: (counts * len(counts)) / counts.sum(),
        ),
        Case(given=lambda: (torch.tensor([5, 0, 1]),), hint="a process without images has the weight 0"),
    ],
    mistakes={
        "all processes count the same, so an image on the smallest one counts most": _as_weights(torch.ones_like),
        "the weights are fractions that add up to 1. But the processes' gradients are *averaged*: that divides by "
        "their number once more": _as_weights(lambda c: c / c.sum()),
        "the weights are the numbers of images. The mean gradient would grow with the batch": _as_weights(lambda c: c),
        "the larger a shard, the *more* its mean counts; this is turned round": _as_weights(
            lambda c: c.sum() / (len(c) * c)
        ),
        "each weight is 1 over the number of processes, which the averaging does already": _as_weights(
            lambda c: torch.ones_like(c) / len(c)
        ),
        "you divided by the largest shard; divide by the mean one": _as_weights(lambda c: c / c.max()),
        "you divided by the smallest shard; divide by the mean one": _as_weights(lambda c: c / c.min()),
        "you divided by the number of processes; divide by the images of the mean shard": _as_weights(
            lambda c: c / len(c)
        ),
        "one number came out; one weight for each process was wanted": lambda counts: counts.sum(),
        "whole numbers were rounded down: use /, not //": lambda counts: counts * len(counts) // counts.sum(),
    },
    right=[_as_weights(lambda c: c / c.mean()), lambda counts: counts / counts.float().mean()],
    shape="One weight for each process, a tensor of floating point",
)
