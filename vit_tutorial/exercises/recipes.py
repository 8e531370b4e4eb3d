"""Exercises of chapter 7: training on small photographs."""

from itertools import pairwise

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.recipes import split_product

EXERCISES: dict[str, Exercise] = {}


def update_ema(average: dict[str, Tensor], weights: dict[str, Tensor], decay: float, step: int) -> dict[str, Tensor]:
    """The EMA after step ``step``: ``decay`` of the old one, less in the first steps, plus the rest of the weights."""
    decay = min(decay, (step + 1) / (step + 10))
    return {name: decay * average[name] + (1 - decay) * weights[name] for name in average}


def _early(s):
    return (s + 1) / (s + 10)


def _blend(keep=lambda d, s: min(d, _early(s))):
    """An EMA that keeps another fraction of the old one, by decay and step."""
    return lambda average, weights, d, s: {
        name: torch.lerp(weights[name], old, keep(d, s)) for name, old in average.items()
    }


def _states(step, decay=0.9):
    weights, biases = torch.tensor([[[1.0, 2, 4]], [[2.0, 6, 1]]]), torch.tensor([[3.0], [-1.0]])
    return *({"fc.weight": w, "fc.bias": b} for w, b in zip(weights, biases, strict=True)), decay, step


EXERCISES["update_ema"] = Exercise(reference=update_ema, truth=_blend(), cases=[
    Case(lambda: _states(200),  # (200 + 1) / (200 + 10) is more than 0.9
         "at step 200 the average must be 0.9 of the old one and 0.1 of the weights, for every tensor of the dict",
         truth={"fc.weight": torch.tensor([[1.1, 2.4, 3.7]]), "fc.bias": torch.tensor([2.6])}),
    Case(lambda: _states(8), "at step 8 the average must keep 9 / 18 of the old one"),
    Case(lambda: _states(0), "at step 0 the average must keep 1 / 10 of the old one",
         _blend(lambda d, s: min(d, _early(s)) if s else 0.0)),
    Case(lambda: _states(50, 0.5), "right for a decay of 0.9, wrong for 0.5"),
    *(Case(lambda s=s: _states(s), f"at step {s} the smaller of decay and (step + 1) / (step + 10) counts")
      for s in (10, 79, 80, 81)),
], mistakes={
    "average and weights are swapped: decay is what the old average keeps": _blend(lambda d, s: 1 - min(d, _early(s))),
    "the first steps keep too much of the initial weights: early on, keep only (step + 1) / (step + 10)":
        _blend(lambda d, s: d),
    "late in the run you took the larger of the two. Keep the *smaller*: from here on, decay":
        _blend(lambda d, s: max(d, _early(s))),
    "that is the middle between the two: use decay": _blend(lambda d, s: 0.5),
    "those are the new weights: nothing of the old average is left": _blend(lambda d, s: 0.0),
    "the average did not move": _blend(lambda d, s: 1.0),
    "the early rule is used to the end: once it exceeds decay, decay counts": _blend(lambda d, s: _early(s)),
    "the new weights were added in full; their part is 1 − decay": lambda average, weights, d, s: {
        name: min(d, _early(s)) * average[name] + weights[name] for name in average
    },
    "the early rule is not step / (step + 10): step counts from 0, so add 1 above":
        _blend(lambda d, s: min(d, s / (s + 10))),
    "the early rule is not (step + 1) / (step + 11): step counts from 0, so add 10 below":
        _blend(lambda d, s: min(d, (s + 1) / (s + 11))),
    "that is the plain mean over all steps so far, which never forgets": _blend(lambda d, s: min(d, s / (s + 1))),
    "only the first tensor was averaged: every weight is":
        lambda average, weights, *args: weights | {"fc.weight": _blend()(average, weights, *args)["fc.weight"]},
    "a tensor is missing: every weight is averaged": lambda *args: {"fc.weight": _blend()(*args)["fc.weight"]},
    "a list was returned; return a dict with the same names": lambda *args: list(_blend()(*args).values()),
}, right=[_blend()], shape="A dict of tensors with the same names")  # fmt: skip


def cut_and_mix(
    images: Float[Tensor, "b c H W"],
    targets: Float[Tensor, "b k"],
    boxes: Int64[Tensor, "b 4"],
    partner: Int64[Tensor, " b"],
) -> tuple[Float[Tensor, "b c H W"], Float[Tensor, "b k"]]:
    """Put a box (top, left, height, width) of the partner into each image; targets mix by the pixels replaced."""
    mixed, fractions = images.clone(), []
    height, width = images.shape[2:]
    for i, (top, left, tall, wide) in enumerate(boxes.tolist()):
        rows = slice(max(0, top), max(0, min(top + tall, height)))
        cols = slice(max(0, left), max(0, min(left + wide, width)))
        mixed[i, :, rows, cols] = images[partner[i], :, rows, cols]
        fractions.append((rows.stop - rows.start) * (cols.stop - cols.start) / (height * width))
    fraction = torch.tensor(fractions)[:, None]
    return mixed, (1 - fraction) * targets + fraction * targets[partner]


def _cut(change=lambda boxes: boxes, fraction=lambda f, *_: f, pixels=lambda x, p: (x[p], x), named=lambda p: p):
    """cut_and_mix without a loop, and with a part replaced: the boxes, the fraction, the pixels (inside, outside)."""

    def fn(images, targets, boxes, partner):
        top, left, tall, wide = change(boxes)[:, :, None].unbind(1)
        y, x = (torch.arange(side) for side in images.shape[2:])
        inside = ((y >= top) & (y < top + tall))[:, None, :, None] & ((x >= left) & (x < left + wide))[:, None, None]
        mixed = torch.where(inside, *pixels(images, partner))
        changed = (mixed != images).any(dim=1).float().mean((1, 2))
        f = fraction(inside.float().mean((1, 2, 3)), boxes, changed)[:, None]
        return mixed, torch.lerp(targets, targets[named(partner)], f)

    return fn


# One box inside, one that is cut below and right, one cut above and left, one that covers more than half.
BOXES = [[1, 2, 3, 5], [3, 5, 5, 6], [-2, -1, 4, 3], [0, 0, 5, 9]]


def _to_mix(images=None, boxes=BOXES):
    targets, partner = torch.eye(3)[torch.tensor([0, 1, 2, 1])], torch.tensor([1, 2, 3, 0])  # not its own inverse
    return torch.rand(4, 2, 6, 10) + 1 if images is None else images, targets, torch.tensor(boxes), partner


EXERCISES["cut_and_mix"] = Exercise(reference=cut_and_mix, truth=_cut(), cases=[
    Case(_to_mix),
    Case(lambda: _to_mix(torch.tensor([1.0, 1, 2, 2])[:, None, None, None].expand(4, 2, 6, 10).clone()),
         "these images look alike, so a replaced pixel need not differ. Count the box's pixels, not what changed",
         _cut(fraction=lambda f, boxes, changed: changed)),
    Case(lambda: (torch.rand(1, 3, 4, 4), torch.eye(2)[:1], torch.tensor([[1, 1, 2, 2]]), torch.tensor([0])),
         "wrong for a batch of one image, which is its own partner"),
    Case(lambda: _to_mix(boxes=[[0, 0, 6, 10], [0, 0, 1, 1], [-5, 1, 6, 3], [5, 9, 3, 3]]),
         "a box may be as large as the image or have a single pixel inside"),
], mistakes={
    "the images were not mixed": lambda images, targets, *_: (images.clone(), targets),
    "the targets were not mixed: an image that is half a ship should say so": _cut(fraction=lambda f, *_: 0 * f),
    "the fraction is that of the whole box. Where it sticks out over the border, fewer pixels were replaced":
        _cut(fraction=lambda f, b, _: b[:, 2] * b[:, 3] / 60),
    "the targets are swapped: the fraction of the box belongs to the partner": _cut(fraction=lambda f, *_: 1 - f),
    "box and rest are swapped: the box comes from the partner, the rest stays": _cut(pixels=lambda x, p: (x, x[p])),
    "top and left, height and width are swapped: rows come first": _cut(lambda b: b[:, [1, 0, 3, 2]]),
    "height and width were read as the box's lower and right end":
        _cut(lambda b: torch.cat([b[:, :2], b[:, 2:] - b[:, :2]], 1)),
    "the box was filled with zeros, not with the partner's pixels": _cut(pixels=lambda x, p: (0 * x, x)),
    "all images have the box of the first one. Each has its own": _cut(lambda b: b[:1].expand_as(b)),
    "the partner of image i is images[partner[i]]. You took the image whose partner i is":
        _cut(pixels=lambda x, p: (x[p.argsort()], x)),
    "a negative top or left counts from the other end in Python: cut the box at 0":
        _cut(lambda b: b % torch.tensor([6, 10, 99, 99])),
    "a box that begins above or left of the image vanished: cut off only the part outside":
        _cut(lambda b: b * (b.amin(1, True) >= 0)),
    "a box that begins above or left of the image kept its full size: what lies outside is lost":
        _cut(lambda b: b.clamp(min=0)),
    "the box came from another place of the partner: pixels keep their places":
        _cut(pixels=lambda x, p: (x[p].flip(-1), x)),
    "the targets are those of the larger part. Mix them by the fraction of pixels":
        _cut(fraction=lambda f, *_: (f > 0.5).float()),
    "all targets were mixed by the mean fraction. Each image has its own":
        _cut(fraction=lambda f, *_: f.mean().expand_as(f)),
    "the targets come from another partner than the pixels": _cut(named=lambda p: p.argsort()),
    "all targets were mixed half and half. The fraction is that of the pixels":
        _cut(fraction=lambda f, *_: torch.full_like(f, 0.5)),
}, right=[_cut()], shape="Two tensors: the images, which keep their size, and a row of targets for each",
    otherwise="each image has its partner's pixels inside its box and its own elsewhere, and the target (1 − fraction) "
    "· its own + fraction · its partner's, with the fraction of replaced pixels",
    without=("gradient",))  # fmt: skip


def _split(scale=lambda s: (s.sqrt(), s.sqrt()), kept=lambda rank, d: slice(0, rank), rows=lambda vh: vh):
    """split_product with a part of it replaced."""

    def fn(product, rank):
        u, s, vh = torch.linalg.svd(product)
        (one, other), strong = scale(s), kept(rank, len(s))
        return u[:, strong] * one[strong], rows(vh)[strong].T * other[strong]

    return fn


def _by_eigenvectors(product, rank):
    """The right directions are eigenvectors of the product's square; the left ones follow."""
    values, vectors = torch.linalg.eigh(product.double().T @ product.double())
    v, s = vectors.flip(1)[:, :rank], values.flip(0)[:rank].sqrt()
    return (product.double() @ v / s.sqrt()), v * s.sqrt()


def _rebuilt(fn, product, rank):
    """Factors may be rotated against each other: what counts is their product and the size of each."""
    left, right = fn(product, rank)
    if left.shape != (len(product), rank) or right.shape != (len(product), rank):
        return torch.tensor([*left.shape, *right.shape])
    sizes = torch.stack([torch.linalg.svdvals(left), torch.linalg.svdvals(right)])
    return torch.cat([(left @ right.T).flatten(), sizes.flatten()])


def _product(d=5, rank=3):
    u, _, vh = torch.linalg.svd(torch.randn(d, d))
    return u * 2.0 ** torch.arange(3, 3 - d, -1) @ vh, min(rank, d)


EXERCISES["split_product"] = Exercise(reference=split_product, truth=_by_eigenvectors, run=_rebuilt, given=_product,
    mistakes={
    "right is (r, d): svd gives Vᵀ, whose *rows* are the directions. Both factors are (d, r)":
        lambda product, rank: (split_product(product, rank)[0], split_product(product, rank)[1].T),
    "the directions are the *rows* of what svd gives last; you took columns": _split(rows=lambda vh: vh.T),
    "you kept the weakest directions; svd puts the strongest first": _split(kept=lambda r, d: slice(d - r, d)),
    "both factors have the full singular values, so the product has their squares": _split(lambda s: (s, s)),
    "each factor has half of every singular value; halves multiply to a quarter of its square":
        _split(lambda s: (s / 2, s / 2)),
    "the singular values are missing": _split(lambda s: (s**0, s**0)),
    "the roots are on one side only: each side needs them": _split(lambda s: (s.sqrt(), s**0)),
    "the product is right, but the left factor has all of the singular values. Give each the root":
        _split(lambda s: (s, s**0)),
    "the product is right, but the right factor has all of the singular values. Give each the root":
        _split(lambda s: (s**0, s)),
    "left and right are swapped: that is the product's transpose": lambda *args: split_product(*args)[::-1],
    "every direction was kept: keep the first r only": lambda product, _: split_product(product, len(product)),
    "the last of the r directions is missing": _split(kept=lambda rank, d: slice(0, rank - 1)),
}, right=[_by_eigenvectors, lambda product, rank: [-factor for factor in split_product(product, rank)]],
    shape="Two matrices (d, r), left and right",
    otherwise="left @ right.T must be the product with its r strongest directions alone, both sides equally large",
    tolerance=1e-4, without=("gradient",))  # fmt: skip


def most_confused_pairs(confusion: Int64[Tensor, "k k"], count: int) -> list[tuple[int, int, int]]:
    """The ``count`` most frequent mistakes as (true class, predicted class, times), the most frequent first."""
    return _triples(_off(confusion, -1), count)


def _triples(matrix, count, largest=True):
    times, places = matrix.flatten().topk(count, largest=largest)
    return [(*divmod(place, len(matrix)), n) for place, n in zip(places.tolist(), times.tolist(), strict=True)]


def _off(confusion, fill=0):
    return confusion.clone().fill_diagonal_(fill)


def _sorted_pairs(confusion, count):
    k = len(confusion)
    pairs = [(i, j, int(confusion[i, j])) for i in range(k) for j in range(k) if i != j]
    return sorted(pairs, key=lambda triple: -triple[2])[:count]


def _by_times(fn, confusion, count):
    """Triples as lists; which of equally many comes first is left open."""
    found = fn(confusion, count)
    if not isinstance(found, list | tuple):
        return found
    found = [[*triple] for triple in found]
    falls = all(len(triple) == 3 for triple in found) and all(a[2] >= b[2] for a, b in pairwise(found))
    return sorted(found, key=lambda triple: (-triple[2], *triple[:2])) if falls else found


FOUR = torch.tensor([[50, 7, 1, 0], [9, 40, 3, 6], [2, 12, 30, 5], [0, 14, 8, 20]])
EXERCISES["most_confused_pairs"] = Exercise(reference=most_confused_pairs, truth=_sorted_pairs, run=_by_times, cases=[
    Case(lambda: (FOUR.clone(), 4), "the four most frequent mistakes are 3→1, 2→1, 1→0 and 3→2"),
    Case(lambda: (FOUR.clone(), 1), "with count 1, return a list with a single pair"),
    Case(lambda: (torch.tensor([[3, 0], [0, 4]]), 2),
         "two mistakes never happen here, and the diagonal came back instead. Mask it with -1, not 0, or skip it",
         lambda c, n: _triples(_off(c), n)),
    Case(lambda: (torch.tensor([[9, 2, 4], [7, 9, 1], [3, 5, 9]]), 3), "right for four classes, wrong for three"),
], mistakes={
    "the diagonal counts what was right. Leave it out": _triples,
    "rows and columns are swapped: a row is a *true* class, a column a *predicted* one":
        lambda c, n: _triples(_off(c, -1).T.contiguous(), n),
    "the rarest mistakes come first: sort the other way round": lambda c, n: _triples(_off(c, 10**6), n, largest=False),
    "those are the right ones, but in ascending order: the most frequent comes first":
        lambda c, n: most_confused_pairs(c, n)[::-1],
    "you searched only the upper half. Class a taken for b and b taken for a are two mistakes":
        lambda c, n: _triples(_off(c).triu(), n),
    "you searched only the lower half. Class a taken for b and b taken for a are two mistakes":
        lambda c, n: _triples(_off(c).tril(), n),
    "both directions were added up. A cat taken for a dog is not a dog taken for a cat":
        lambda c, n: _triples((_off(c) + _off(c).T).triu(), n),
    "the worst mistake of each row was taken. One row may hold two of the worst":
        lambda c, n: _sorted_pairs(_off(c) * (_off(c) == _off(c).amax(1, keepdim=True)), n),
    "pairs that never happened fill the list, with 0 times: it always has `count` entries":
        lambda c, n: [triple for triple in most_confused_pairs(c, n) if triple[2]],
    "each entry must be a triple: true class, predicted class, times":
        lambda c, n: [pair[:2] for pair in most_confused_pairs(c, n)],
    "too many pairs were returned: return `count` of them":
        lambda c, n: most_confused_pairs(c, len(c) * (len(c) - 1)),
    "classes are whole numbers: rows come from // and columns from %":
        lambda c, n: [(i + j / len(c), j, times) for i, j, times in most_confused_pairs(c, n)],
    "a row has one entry for each class: divide the place by len(confusion), not by count":
        lambda c, n: [(*divmod(i * len(c) + j, n), times) for i, j, times in most_confused_pairs(c, n)],
}, right=[_sorted_pairs, lambda *args: [list(triple) for triple in _sorted_pairs(*args)]],
    shape="A list of triples: true class, predicted class, times")  # fmt: skip


def expected_calibration_error(
    probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"], num_bins: int
) -> Float[Tensor, ""]:
    """Mean gap between confidence and accuracy over bins of equal width, each weighted by its number of images."""
    confidence, predictions = probabilities.max(dim=1)
    right = (predictions == labels).to(confidence.dtype)
    place = (confidence * num_bins).ceil().long().clamp(1, num_bins) - 1
    gaps = torch.zeros(num_bins, dtype=confidence.dtype).index_add(0, place, confidence - right)
    return gaps.abs().sum() / len(labels)


def _between(sure, num_bins):
    """The images of each bin: above its lower edge, at most at its upper one."""
    return [(sure > low) & (sure <= high) for low, high in pairwise(torch.linspace(0, 1, num_bins + 1).to(sure))]


def _signed(sure, right):
    return (sure - right).mean()


def _calibration(weigh=lambda gaps, weights, k: (weights * gaps).sum(), gap=lambda *pair: _signed(*pair).abs(),
                 bins=_between, confidence=lambda p, labels: p.amax(1), empty=False):  # fmt: skip
    """The error with a part of it replaced by another."""

    def fn(probabilities, labels, num_bins):
        sure = confidence(probabilities, labels)
        right = (probabilities.argmax(1) == labels).to(sure.dtype)
        groups = [group for group in bins(sure, num_bins) if empty or group.any()]
        gaps = torch.stack([gap(sure[group], right[group]) for group in groups])
        return weigh(gaps, torch.stack([group.to(sure.dtype).mean() for group in groups]), num_bins)

    return fn


def _numbered(place):
    """Bins from the number of each image's bin, counted from 0."""
    return lambda sure, num_bins: [place(sure, num_bins) == i for i in range(num_bins)]


FLOORED = _numbered(lambda sure, k: (sure * k).floor())


def _predictions(confidence, right, k=4):
    """Probabilities and labels with these confidences, right or wrong. The runner-up takes less than the winner."""
    confidence, right = torch.tensor(confidence), torch.tensor(right, dtype=torch.bool)
    predicted = torch.arange(len(confidence)) % k
    probabilities = ((1 - confidence) / (k - 1))[:, None].repeat(1, k)
    probabilities.scatter_(1, predicted[:, None], confidence[:, None])
    return probabilities, torch.where(right, predicted, (predicted + 1) % k)


# Four bins; nothing falls into the first, nothing on an edge, and the model is certain of one image, wrongly.
SURE = [0.30, 0.41, 0.61, 0.55, 0.70, 0.65, 0.90, 1.00, 0.81, 0.95, 0.85, 0.76]
RIGHT = [0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0]
EXERCISES["expected_calibration_error"] = Exercise(reference=expected_calibration_error, truth=_calibration(),
    given=lambda bins=4: (*_predictions(SURE, RIGHT), bins), cases=[
    # By hand: sure by 0.9 and right half the time, sure by 0.6 and right always: ½ · 0.4 + ½ · 0.4.
    Case(lambda: (*_predictions([0.9, 0.9, 0.6, 0.6], [1, 0, 1, 1], 2), 10), truth=torch.tensor(0.4),
         hint="half the images at 0.9 and right half the time, half at 0.6 and always right: the error is 0.4"),
    Case(lambda: (*_predictions([0.5, 0.5, 0.9], [1, 0, 0]), 4),
         "a confidence on the edge of two bins belongs to one of them, whichever, and not to both",
         _calibration(bins=lambda s, k: [(s >= i / k) & (s <= (i + 1) / k) for i in range(k)])),
    Case(lambda: (torch.tensor([[0.2, 0.8]]), torch.tensor([1]), 5), "wrong for a single image"),
], mistakes={
    "the result is NaN: a bin without images gave 0 / 0. Leave it out, or add up before you divide":
        _calibration(empty=True),
    "all bins count the same. Weight each by its fraction of the images": _calibration(lambda g, w, k: g.mean()),
    "you divided by num_bins, empty ones included. Weight each bin by its fraction of the images":
        _calibration(lambda g, w, k: g.sum() / k),
    "that is the sum of the bins' gaps. Weight each by its fraction of the images":
        _calibration(lambda g, w, k: g.sum()),
    "gaps of different sign cancel: take the absolute value in each bin, before you add up": _calibration(gap=_signed),
    "that is the absolute value of the sum, where gaps of different sign have cancelled: take it in each bin":
        _calibration(lambda g, w, k: (w * g).sum().abs(), gap=_signed),
    "that is accuracy minus confidence, and gaps of different sign cancel":
        _calibration(gap=lambda sure, right: -_signed(sure, right)),
    "the gaps were squared": _calibration(gap=lambda sure, right: _signed(sure, right) ** 2),
    "that is the largest gap. Return the mean over bins, weighted by their images":
        _calibration(lambda g, w, k: g.max()),
    "the absolute value was taken image by image. Within a bin too sure and not sure enough cancel: average first":
        _calibration(gap=lambda sure, right: (sure - right).abs().mean()),
    "those are percentages; return a fraction between 0 and 1":
        lambda *args: 100 * expected_calibration_error(*args),
    "you took the true class's probability. The confidence is the largest one, right or wrong":
        _calibration(confidence=lambda p, labels: p[torch.arange(len(p)), labels]),
    "an image with confidence 1 fell out of the last bin": _calibration(bins=FLOORED),
    "an image with confidence 1 fell out of the last bin, and out of the number of images":
        _calibration(lambda g, w, k: (g * w).sum() / w.sum(), bins=FLOORED),
    "the bins hold equally many images. Use bins of equal width: 0 to 1/4, 1/4 to 1/2, …":
        _calibration(bins=_numbered(lambda s, k: s.argsort().argsort() * k // len(s))),
    "the bins reach from the lowest confidence to the highest. They divide 0 to 1":
        _calibration(bins=_numbered(lambda s, k: ((s - s.min()) / (s.max() - s.min()) * k - 1).ceil().relu())),
    "num_bins is given, and is not the number of classes":
        lambda p, labels, bins: expected_calibration_error(p, labels, p.shape[1]),
    "one number for each bin was returned; return their weighted sum": _calibration(lambda g, w, k: g * w),
}, right=[
    _calibration(),
    _calibration(bins=_numbered(lambda sure, k: (sure * k).floor().clamp(max=k - 1))),
    lambda *args: float(expected_calibration_error(*args)),
],
    run=lambda fn, *args: torch.tensor(found) if isinstance(found := fn(*args), float) else found,
    shape="One number for all images",
    otherwise="the result differs from Σ (images in bin / all images) · |accuracy in bin − mean confidence in bin|",
    tolerance=1e-4, without=("gradient",))  # fmt: skip


def loss_weights(counts: Integer[Tensor, " p"]) -> Float[Tensor, " p"]:
    """What each process multiplies its mean loss by, so that the mean of all gradients is that of the whole batch."""
    return counts * (len(counts) / counts.sum().item())


def _as_weights(change):
    """Weights by another rule, from the counts as floats."""
    return lambda counts: change(counts.double()).float()


EXERCISES["loss_weights"] = Exercise(reference=loss_weights,
    truth=lambda counts: torch.tensor([c / (sum(counts.tolist()) / len(counts)) for c in counts.tolist()]), cases=[
    Case(lambda: (torch.tensor([5, 4, 2]),),
         "with these weights the mean over processes is not the gradient of the mean over all 11 images"),
    Case(lambda: (torch.tensor([4, 4]),), "with equal shards every weight is 1", lambda c: c * 3 / c.sum()),
    Case(lambda: (torch.tensor([7]),), "a single process has the weight 1"),
    Case(lambda: (torch.tensor([200, 120], dtype=torch.uint8),),
         "wrong for uint8 counts: 200 times 2 overflows. Divide first, or convert to floating point",
         lambda counts: (counts * len(counts)) / counts.sum()),
    Case(lambda: (torch.tensor([5, 0, 1]),), "a process without images has the weight 0"),
], mistakes={
    "all processes count the same, so an image on the smallest one counts most": _as_weights(torch.ones_like),
    "the weights add up to 1. But gradients are *averaged*, which divides by the number of processes once more":
        _as_weights(lambda c: c / c.sum()),
    "the weights are the numbers of images. The mean gradient would grow with the batch": _as_weights(lambda c: c),
    "this is upside down: the larger a shard, the *more* its mean counts":
        _as_weights(lambda c: c.sum() / (len(c) * c)),
    "each weight is 1 over the number of processes, which the averaging does already":
        _as_weights(lambda c: c**0 / len(c)),
    "you divided by the largest shard; divide by the mean one": _as_weights(lambda c: c / c.max()),
    "you divided by the smallest shard; divide by the mean one": _as_weights(lambda c: c / c.min()),
    "you divided by the number of processes; divide by the mean shard": _as_weights(lambda c: c / len(c)),
    "one number was returned; return one weight for each process": lambda counts: counts.sum(),
    "whole numbers were rounded down: use /, not //": lambda counts: counts * len(counts) // counts.sum(),
}, right=[_as_weights(lambda c: c / c.mean()), lambda counts: counts / counts.float().mean()],
    shape="One weight for each process, a tensor of floating point")  # fmt: skip
