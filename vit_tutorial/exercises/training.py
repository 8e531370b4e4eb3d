"""Exercises of chapter 6: training on handwritten digits."""

import math
import re
from functools import partial, reduce

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from vit_tutorial.augment.geometry import random_crop
from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, describe, is_number
from vit_tutorial.model import ViT
from vit_tutorial.training.optimizers import parameter_groups
from vit_tutorial.validate import listed

EXERCISES: dict[str, Exercise] = {}


def _expect(condition: bool, hint: str) -> None:
    if not condition:
        raise CheckFailed(hint)


def mean_over_images(batch_means: Float[Tensor, " steps"], batch_sizes: Int[Tensor, " steps"]) -> Float[Tensor, ""]:
    """The mean over all images, from the mean over each batch and the batch's size."""
    return (batch_means * batch_sizes).sum() / batch_sizes.sum()


EXERCISES["mean_over_images"] = Exercise(
    reference=mean_over_images, truth=lambda m, n: m.repeat_interleave(n).mean(), without=("gradient",),
    given=lambda batches=4: (torch.rand(batches) * 3, torch.tensor([5] * (batches - 1) + [2])),
    shape="One number for the whole epoch", otherwise="that is not the mean over all images, image by image",
    cases=[Case(lambda: (torch.rand(4) * 3, torch.tensor([2, 7, 1, 7])),
                "batches of 2, 7, 1 and 7 images: each mean has its own weight",
                lambda m, n: (m[:-1].sum() * n[0] + m[-1] * n[-1]) / (n[0] * (len(n) - 1) + n[-1]))],
    mistakes={
        "that is a mean of means: images of the small last batch count for more. Weight by size": lambda m, n: m.mean(),
        "that is the sum over all images. Divide by how many they are": lambda m, n: (m * n).sum(),
        "you divided by the number of batches. Divide by the sum of their sizes": lambda m, n: (m * n).sum() / len(m),
        "that is the mean without the last, smaller batch. Its images count too": lambda m, n: m[:-1].mean(),
        "you divided as if the last batch were as large as the others": lambda m, n: (m * n).sum() / (n.max() * len(n)),
        "those are the terms of the sum: one number for the whole epoch": lambda m, n: m * n / n.sum(),
        "the means were added up, without weights and without a division": lambda m, n: m.sum(),
        "you divided the means by the sizes. A larger batch counts more": lambda m, n: (m / n).sum() / (1 / n).sum(),
        "step by step, each batch counts as much as all before it": lambda m, n: reduce(lambda a, b: (a + b) / 2, m),
        "// and int() round down. Divide with /": lambda m, n: (m * n).sum() // n.sum(),
        "the division is upside down: sum of losses over number of images": lambda m, n: n.sum() / (m * n).sum(),
    }, right=[
        lambda m, n: float((m * (n / n.sum())).sum()), lambda m, n: m @ n.to(m.dtype) / n.sum(),
        lambda m, n: sum(float(x) * int(y) for x, y in zip(m, n, strict=True)) / sum(n.tolist()),
    ])  # fmt: skip


def accuracy_per_class(
    labels: Int64[Tensor, " b"], predictions: Int64[Tensor, " b"], num_classes: int
) -> Float[Tensor, " k"]:
    """For each true class the fraction of its images that were recognized; NaN for a class without images."""
    right = torch.bincount(labels[predictions == labels], minlength=num_classes)
    return right / torch.bincount(labels, minlength=num_classes)


def _one_by_one(labels, predictions, num_classes):
    pairs = list(zip(labels.tolist(), predictions.tolist(), strict=True))
    found = [[said == k for true, said in pairs if true == k] for k in range(num_classes)]
    return torch.tensor([sum(right) / len(right) if right else math.nan for right in found])


def _loop(labels, predictions, classes):
    return torch.stack([(predictions[labels == k] == k).float().mean() for k in classes])


def _counted(divide):
    """An answer from three counts for each class: r of right predictions, t of true labels, s of predicted ones."""
    return lambda y, said, k: divide(*(torch.bincount(x, minlength=k) for x in (y[y == said], y, said)))


EXERCISES["accuracy_per_class"] = Exercise(
    reference=accuracy_per_class, truth=_one_by_one,
    given=lambda b=900, k=5: ((torch.rand(b) ** 2 * k).long(), (torch.rand(b) ** 2 * k).long(), k),  # > 255 of class 0
    shape="One number for each class, also for one that is never predicted or has no image",
    otherwise="for each class: its images that were recognized, divided by its images",
    cases=[
        Case(lambda: (torch.tensor([0, 0, 1, 1, 2, 4]), torch.tensor([0, 1, 1, 1, 3, 2]), 5),
             "class 3 has no image: NaN, as nothing is known. Class 4 has one, which was never recognized: 0"),
        Case(lambda: (torch.tensor([0, 1]), torch.tensor([0, 0]), 4), "two classes have no image: use num_classes",
             lambda labels, said, k: accuracy_per_class(labels, said, int(labels.max()) + 1)),
    ], mistakes={
        "those are counts. Divide by how many images the class has": _counted(lambda r, t, s: r),
        "that is precision, divided by how often a class is *predicted*. Use *true*": _counted(lambda r, t, s: r / s),
        "that is precision, clamped: divide by *true*, not *predicted*": _counted(lambda r, t, s: r / s.clamp(min=1)),
        "you divided by the number of all images, so the classes cannot reach 1": _counted(lambda r, t, s: r / t.sum()),
        "those are percentages; return fractions between 0 and 1": _counted(lambda r, t, s: 100 * r / t),
        "that is the fraction of all images not confused with this class: high even for a class that is never found":
            _counted(lambda r, t, s: 1 - (t + s - 2 * r) / t.sum()),
        "each class got the accuracy over all images": _counted(lambda r, t, s: (r.sum() / t.sum()).expand(len(t))),
        "one number over all images: return one for each class": _counted(lambda r, t, s: r.sum() / t.sum()),
        "class 3 has no image: NaN, since 0 would mean all wrong": _counted(lambda r, t, s: r / t.clamp(min=1)),
        "class 3 has no image. Nothing is known about it: NaN, not 1": _counted(lambda r, t, s: (r / t).nan_to_num(1)),
        "classes without images are missing: loop over range(num_classes)": lambda y, s, k: _loop(y, s, y.unique()),
        "bincount ends at the largest label: give it minlength": lambda y, s, k: y[y == s].bincount() / y.bincount(),
        "that is intersection over union. Divide by the true ones only": _counted(lambda r, t, s: r / (t + s - r)),
        "those are the fractions that were *not* recognized": _counted(lambda r, t, s: 1 - r / t),
        "uint8 ends at 255, and a class has more images": _counted(lambda r, t, s: r.byte() / t.byte()),
    }, right=[
        lambda y, said, k: _loop(y, said, range(k)),
        lambda y, said, k: (F.one_hot(y, k) * F.one_hot(said, k)).sum(0) / F.one_hot(y, k).sum(0),
    ])  # fmt: skip


def warmup_cosine(step: int, total_steps: int, warmup_steps: int, peak_lr: float) -> float:
    """The learning rate of ``step``, counted from 0: up in a straight line, then down half a cosine."""
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / (total_steps - warmup_steps)
    return peak_lr * (1 + math.cos(math.pi * progress)) / 2


def _rates(fn, total, warm, peak):
    """The rates of all steps."""
    rates = [fn(step, total, warm, peak) for step in range(total)]
    _expect(all(map(is_number, rates)), f"a learning rate is one number, got {describe(rates[:4])} first")
    return torch.tensor([float(rate) for rate in rates], dtype=torch.float64)


def _by_schedulers(step, total, warm, peak):
    """What PyTorch's schedulers have come to after so many steps."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    if step < warm:
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warm, total_iters=max(1, warm - 1))
    else:
        schedule, step = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warm), step - warm
    for _ in range(step):
        optimizer.step()
        schedule.step()
    return schedule.get_last_lr()[0]


def _half(x):
    return (1 + math.cos(math.pi * x)) / 2


def _rise(factor):
    """A schedule by the peak's factor in step s of the warm-up's w steps, of t in all."""
    return lambda s, t, w, p: p * factor(s, t, w) if s < w else warmup_cosine(s, t, w, p)


def _fall(factor):
    """A schedule by the peak's factor i steps after the warm-up, which n steps follow."""
    return lambda s, t, w, p: p * factor(s - w, t - w) if s >= w else warmup_cosine(s, t, w, p)


EXERCISES["warmup_cosine"] = Exercise(
    reference=warmup_cosine, truth=_by_schedulers, run=_rates,
    otherwise="up by peak_lr / warmup_steps each step, then down as peak_lr · (1 + cos(π · progress)) / 2",
    given=lambda steps=30, warmup_steps=12: (steps, warmup_steps, 0.3), smallest={"steps": 13},  # one after the warm-up
    cases=[
        Case(lambda: (20, 0, 0.3), "without warm-up the cosine begins at step 0"),
        Case(lambda: (24, 6, 5.0), "right for a peak of 0.3, wrong for 5: is it written in by hand?"),
    ], mistakes={
        "the rate does not change with the step": lambda s, t, w, p: p,
        "the rate rises to 1, not peak_lr": lambda s, t, w, p: (s + 1) / w if s < w else warmup_cosine(s, t, w, p),
        "peak_lr is missing": lambda s, t, w, p: warmup_cosine(s, t, w, 1),
        "step 0 has rate 0, which wastes a batch. It gets peak_lr / warmup_steps": _rise(lambda s, t, w: s / w),
        "the rise takes total_steps, not warmup_steps": _rise(lambda s, t, w: (s + 1) / t),
        "the peak comes late: step number warmup_steps - 1 has it already": _rise(lambda s, t, w: (s + 1) / (w + 1)),
        "the rise is half a cosine; it should be a straight line": _rise(lambda s, t, w: 1 - _half((s + 1) / w)),
        "the cosine started with step 0: the rate jumps down when the warm-up ends. Count progress from there":
            lambda s, t, w, p: warmup_cosine(s, t, w * (s < w), p),
        "progress starts at the end of the warm-up, but is divided by total_steps: the rate never falls to 0":
            lambda s, t, w, p: warmup_cosine(s, t + w * (s >= w), w, p),
        "1 + cos goes from 2 to 0: halve it": _fall(lambda i, n: 2 * _half(i / n)),
        "a cosine alone turns negative half way: add 1 and halve": _fall(lambda i, n: math.cos(math.pi * i / n)),
        "that is a quarter of a cosine. Half of one ends flat": _fall(lambda i, n: math.cos(math.pi / 2 * i / n)),
        "the rate falls and rises again: that is a whole period, 2π. Use half": _fall(lambda i, n: _half(2 * i / n)),
        "that is a straight line down; it should be half a cosine": _fall(lambda i, n: 1 - i / n),
        "the cosine rises from 0: 1 + cos falls, 1 − cos rises": _fall(lambda i, n: 1 - _half(i / n)),
        "0 is reached one step early: it belongs to step total_steps": _fall(lambda i, n: _half(i / max(1, n - 1))),
        "the cosine is one step ahead: step warmup_steps still has the peak": _fall(lambda i, n: _half((i + 1) / n)),
        "the rate stays at its peak after the warm-up. (Is there a // where a / should stand?)": _fall(lambda i, n: 1),
        "the angle must run from 0 to π. The factor π is missing": _fall(lambda i, n: _half(i / n / math.pi)),
        "math.cos takes radians: the angle runs to π, not to 180": _fall(lambda i, n: _half(180 * i / n / math.pi)),
        "without a warm-up you divide by 0. No step is smaller than 0: ask `step < warmup_steps` first":
            lambda s, t, w, p: min(p * (s + 1) / w, warmup_cosine(s, t, w, p)),
        "without a warm-up, step 0 has the peak already": lambda s, t, w, p: warmup_cosine(s, t, w, p) * (s >= (not w)),
        "without a warm-up, step 1 is on the cosine already": lambda s, t, w, p: warmup_cosine(s, t, w, p) if w else p,
    }, right=[lambda *args: torch.tensor(warmup_cosine(*args))])  # fmt: skip


def _groups_of(fn, asked, model, decay):
    """The decay of each parameter, -1 where it is in no group and infinity in two; or that of each group."""
    groups = fn(model, decay)
    _expect(isinstance(groups, list | tuple), f"expected a list of two dicts, got {describe(groups)}")
    amounts = {id(parameter): -1.0 for parameter in model.parameters()}
    for group in groups:
        is_group = isinstance(group, dict) and "params" in group
        _expect(is_group, "each group must be a dict with the key 'params', as optimizers take it")
        amount, inside = group.get("weight_decay"), group["params"]
        _expect(is_number(amount), "a group has no 'weight_decay', a number. AdamW's own default is not 0")
        _expect(isinstance(inside, list | tuple), "'params' must be lists: a generator can be read once only")
        for p in inside:
            _expect(isinstance(p, nn.Parameter), "'params' must hold the parameters themselves, not their names")
            _expect(id(p) in amounts, "a group holds a parameter that is not the model's: use its own, not copies")
            amounts[id(p)] = float(amount) if amounts[id(p)] == -1 else math.inf
    return torch.tensor([*amounts.values()] if asked == "parameters" else [float(g["weight_decay"]) for g in groups])


def _groups(decays):
    """Two groups, of the parameters p that decay by their names n and themselves, and of the others."""
    return lambda model, decay: [
        {"params": [p for n, p in model.named_parameters() if bool(decays(n, p)) == yes], "weight_decay": yes * decay}
        for yes in (True, False)
    ]


TABLES = ("cls_token", "pos_embed")
MATRICES = r"(head|patch_embed\.proj|blocks\.\d+\.(attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2))\.weight"


def _is_matrix(name, parameter):
    return parameter.ndim > 1 and name not in TABLES


def _explain_groups(got, want, asked, model, decay):
    if asked == "groups":
        return f"the groups must decay by {decay} and by 0, got {got.tolist()}"
    problems = {
        "in no group, so it would never be trained": got == -1, "in two groups": got.isinf(),
        f"in a group that decays by neither {decay} nor 0": ~torch.isin(got, want),
        "should not decay": got > want, "should decay": got < want,
    }  # fmt: skip
    said, wrong = next((said, wrong) for said, wrong in problems.items() if wrong.any())
    names = [name for (name, _), here in zip(model.named_parameters(), wrong.tolist(), strict=True) if here]
    return f"{listed(names, 3)} {said}"


def _vit(depth, k):
    return ViT(ViTConfig(img_size=4, patch_size=2, in_chans=1, num_classes=k, embed_dim=6, depth=depth, num_heads=2))


EXERCISES["parameter_groups"] = Exercise(
    reference=parameter_groups, truth=_groups(lambda n, p: re.fullmatch(MATRICES, n)),
    run=_groups_of, explain=_explain_groups, given=lambda depth=2, k=3: ("parameters", _vit(depth, k), 0.05),
    cases=[Case(lambda: ("groups", _vit(1, 3), 0.1),
                "every parameter is in the right place, but return two groups, the one that decays first",
                lambda *args: parameter_groups(*args)[::-1])],
    mistakes={
        "a list of two dicts": lambda model, decay: {"params": list(model.parameters()), "weight_decay": decay},
        "'params'": lambda model, decay: [list(model.parameters()), []],
        "no 'weight_decay'": lambda model, decay: [{"params": list(model.parameters())}],
        "not their names": lambda model, decay: [{"params": ["head.weight"], "weight_decay": decay}],
        "not copies": lambda model, decay: [{"params": [nn.Parameter(torch.ones(3))], "weight_decay": decay}],
        "must be lists": lambda model, decay: [{"params": model.parameters(), "weight_decay": decay}],
        "in no group, so": lambda *args: parameter_groups(*args)[:1],
        "in two groups": lambda model, decay: parameter_groups(model, decay) + _groups(_is_matrix)(model, 0)[:1],
        "in a group that decays by neither 0.05 nor 0": lambda model, decay: parameter_groups(model, 2 * decay),
        "everything decays: norms, biases, positions and the class token shouldn't": _groups(lambda n, p: True),
        "nothing decays: the matrices go into the group with weight_decay": _groups(lambda n, p: False),
        "the groups are swapped: matrices decay, the rest does not": _groups(lambda n, p: not _is_matrix(n, p)),
        "positions and class token decay. Both have three axes: don't count axes": _groups(lambda n, p: p.ndim > 1),
        "the position table decays; it has three axes": _groups(lambda n, p: p.ndim > 1 and n != "cls_token"),
        "the class token decays; it has three axes": _groups(lambda n, p: p.ndim > 1 and n != "pos_embed"),
        "norms, positions and class token decay: skipping biases is not enough": _groups(lambda n, p: "bias" not in n),
        "a norm's weight decays; it belongs near 1": _groups(lambda n, p: "bias" not in n and n not in TABLES),
        "the final norm decays: its name is just norm": _groups(lambda n, p: _is_matrix(n, p) or n == "norm.weight"),
        "a bias decays": _groups(lambda n, p: "norm" not in n and n not in TABLES),
        "the patch projection doesn't decay. With four axes it is still a matrix": _groups(lambda n, p: p.ndim == 2),
        "the head does not decay; it is a matrix as well": _groups(lambda n, p: _is_matrix(n, p) and "head" not in n),
        "mlp.fc1.weight should decay": _groups(lambda n, p: _is_matrix(n, p) and "fc1" not in n),
    }, right=[_groups(_is_matrix), _groups(lambda n, p: p.ndim in (2, 4)), lambda *a: tuple(parameter_groups(*a))],
)  # fmt: skip


def smooth_labels(labels: Int64[Tensor, " b"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """Targets that give each class ``smoothing / num_classes``, and the rest to the true one."""
    return (1 - smoothing) * F.one_hot(labels, num_classes).float() + smoothing / num_classes


def _by_cross_entropy(labels, num_classes, smoothing):
    """The targets in PyTorch's loss: its gradient by the logits is softmax less target."""
    logits = torch.zeros(len(labels), num_classes, requires_grad=True)
    F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum").backward()
    return 1 / num_classes - logits.grad


def _rows(of):
    """Targets from the true class's and the others' number, which are made of k classes, smoothing s and b labels."""

    def fn(labels, k, smoothing):
        true, other = of(k, smoothing, len(labels))
        return torch.full((len(labels), k), float(other)).scatter(1, labels[:, None], true)

    return fn


EXERCISES["smooth_labels"] = Exercise(
    reference=smooth_labels, truth=_by_cross_entropy,
    given=lambda b=7, k=5: (torch.randint(k, (b,)), k, 0.2), shape="One row of probabilities for each label",
    otherwise="each row adds up to 1, as the targets of PyTorch's cross-entropy with label_smoothing",
    cases=[
        Case(lambda: (torch.tensor([2, 0]), 3, 0.0), "with smoothing 0 the targets must be one-hot",
             lambda labels, k, s: smooth_labels(labels, k, 0.2)),
        Case(lambda: (torch.tensor([2, 0]), 3, 1.0), "with smoothing 1 all classes get the same"),
        Case(lambda: (torch.tensor([0, 1]), 4, 0.2), "two of the four classes have no image: use num_classes",
             lambda labels, k, s: smooth_labels(labels, int(labels.max()) + 1, s)),
    ], mistakes={
        "nothing was smoothed: that is one-hot": _rows(lambda k, s, b: (1, 0)),
        "the rows add up to 1.2: take smoothing from the true class first": _rows(lambda k, s, b: (1 + s / k, s / k)),
        "the others alone share the smoothing. All k should": _rows(lambda k, s, b: (1 - s, s / max(1, k - 1))),
        "the true class takes part too: it gets 1 − smoothing + smoothing / k": _rows(lambda k, s, b: (1 - s, s / k)),
        "you divided by k − 1. All k classes share the smoothing, the true one too":
            _rows(lambda k, s, b: (1 - s + s / max(1, k - 1), s / max(1, k - 1))),
        "smoothing and 1 − smoothing are swapped": lambda labels, k, s: smooth_labels(labels, k, 1 - s),
        "each class got all of the smoothing: divide it by the number of classes": _rows(lambda k, s, b: (1, s)),
        "what the true class lost went nowhere: add smoothing / num_classes": _rows(lambda k, s, b: (1 - s, 0)),
        "you divided by the number of images, not of classes": _rows(lambda k, s, b: (1 - s + s / b, s / b)),
        "the smoothing is written in by hand: take the argument": _rows(lambda k, s, b: (0.9 + 0.1 / k, 0.1 / k)),
        "one_hot gives integers, which round down. Make it floating point first": lambda *a: smooth_labels(*a).long(),
        "one row for each label, one column for each class": lambda *args: smooth_labels(*args).mT,
        "the wrong class is true: they count from 0": lambda labels, k, s: smooth_labels((labels - 1) % k, k, s),
    }, right=[
        _rows(lambda k, s, b: (1 - s + s / k, s / k)), lambda labels, k, s: (1 - s) * torch.eye(k)[labels] + s / k,
        lambda labels, k, s: torch.lerp(F.one_hot(labels, k).double(), torch.full((), 1 / k).double(), s),
    ])  # fmt: skip


def _places(result, images, padding, mode="constant"):
    """For each image the place (top, left) of the window in the padded image; None if it isn't such a window."""
    height, width = images.shape[2:]
    padded = F.pad(images.double(), [padding] * 4, mode=mode)
    places = [(-1, -1)] * len(images)
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            window = padded[:, :, top : top + height, left : left + width]
            for i in (result == window).all(dim=(1, 2, 3)).nonzero()[:, 0].tolist():
                places[i] = top, left
    return None if (-1, -1) in places else places


MANY = 2000  # images that show how often each place is drawn; two shifts agree in one of 5


def _crops(fn, images, padding):
    """What is wrong, in words; or how often each row and column is drawn: 0 never, 0.5 too rarely, 1 as expected."""
    result, again, count = fn(images, padding), fn(images, padding), 2 * padding + 1
    _expect(isinstance(result, Tensor), f"expected the cropped images as a tensor, got {describe(result)}")
    if result.shape[2:] == tuple(side + 2 * padding for side in images.shape[2:]):
        return "not cut"
    expected = f"expected shape {tuple(images.shape)} and {images.dtype}, got {tuple(result.shape)} and {result.dtype}"
    _expect(result.shape == images.shape, f"{expected}: the images keep their size")
    _expect(result.dtype == images.dtype, f"{expected}: cutting needs no arithmetic, so the dtype stays")
    places = _places(result, images, padding)
    if places is None:
        modes = [mode for mode in ("circular", "reflect", "replicate") if _places(result, images, padding, mode)]
        return "".join(modes) or ("by channel" if _places(result[:, :1], images[:, :1], padding) else "no window")
    if len(images) != MANY:
        return torch.ones(2, count)
    tops, lefts = torch.tensor(places).T
    words = {
        "unshifted": torch.equal(result, images), "again": torch.equal(result, again), "alike": len(set(places)) == 1,
        "no rows": len(tops.unique()) == 1, "no columns": len(lefts.unique()) == 1,
        "together": len(set(places)) < len(tops.unique()) * len(lefts.unique()),
        "in groups": any((a == a.roll(k)).float().mean() > 0.4 for a in (tops, lefts) for k in (1, MANY // 2)),
    }  # fmt: skip
    if any(words.values()):
        return next(word for word, found in words.items() if found)
    often = torch.stack([torch.bincount(side, minlength=count) for side in (tops, lefts)]) / MANY * count
    return torch.where(often > 0.75, 1 + (often > 1.4), 0.5 * (often > 0))


def _explain_places(got, want, images, padding):
    if (got > 0).all():
        return "some places are drawn more often than others. All should be equally likely, those at the ends too"
    rows, columns = (row.nonzero()[:, 0].tolist() for row in got)
    places = f"padding {padding} has {2 * padding + 1} places in each direction"
    return f"{places}, but only rows {rows} and columns {columns} appear"


def _draw(n, p, *_, less=0):
    return torch.randint(2 * p + 1 - less, (n,)).tolist()


def _windows(tops=_draw, lefts=None, mode="constant"):
    """A crop at places that functions of the number n of images and the padding p draw; one may do both."""

    def fn(images, p):
        height, width = images.shape[2:]
        first = tops(len(images), p)
        places = zip(F.pad(images, [p] * 4, mode=mode), first, (lefts or tops)(len(images), p, first), strict=True)
        return torch.stack([x[:, top : top + height, left : left + width] for x, top, left in places])

    return fn


EXERCISES["random_crop"] = Exercise(
    reference=random_crop, truth=_windows(), run=_crops, right=[_windows()], explain=_explain_places,
    given=lambda b=20, c=2, height=5, width=7, padding=2: (torch.rand(b, c, height, width) + 1, padding),  # no zeros
    smallest={"height": 4, "width": 4},
    otherwise="return a window of the padded image, at a random place for each image",
    cases=[Case(lambda: (torch.rand(MANY, 1, 4, 5) + 1, 2)),
           Case(lambda: (torch.randint(1, 256, (20, 3, 4, 6), dtype=torch.uint8), 1))],
    mistakes={
        "the images were padded and not cropped to their old size": lambda x, p: F.pad(x, [p] * 4),
        "the images keep their size": lambda x, p: x[:, :, p:-p, p:-p],
        "so the dtype stays": lambda x, p: random_crop(x.float(), p),
        "no image was shifted": lambda x, p: x.clone(),
        "what leaves on one side comes back on the other: pad with zeros, don't roll": _windows(mode="circular"),
        "the border is filled with mirrored pixels: pad with zeros": _windows(mode="reflect"),
        "the border is filled with the outermost pixels: pad with zeros": _windows(mode="replicate"),
        "the channels of an image were shifted differently: one place for the whole image":
            lambda x, p: random_crop(x.flatten(0, 1)[:, None], p).reshape(x.shape),
        "an image isn't a window of itself padded with zeros": lambda x, p: random_crop(x, p) * 2,
        "all images of the batch were shifted alike. Draw a place for each": _windows(lambda n, p, *_: _draw(1, p) * n),
        "images moved left and right only, or all by one row: draw one for each": _windows(lambda n, p: [p] * n, _draw),
        "images moved up and down only, never left or right": _windows(_draw, lambda n, p, _: [p] * n),
        "rows and columns shift alike, along the diagonal only: draw twice": _windows(_draw, lambda n, p, rows: rows),
        "images share shifts, in pairs or halves: draw one for each": _windows(lambda n, p, *_: 2 * _draw(n // 2, p)),
        "the last place is never drawn: randint excludes its upper bound": _windows(partial(_draw, less=1)),
        "has 5 places in each direction, but only rows [0, 1, 2] and": _windows(partial(_draw, less=2), _draw),
        "some places are drawn more often than others":
            _windows(_draw, lambda n, p, _: (torch.rand(n) * 2 * p).round().long().tolist()),
        "with padding 1 an image moved by more than one pixel: use the argument": lambda x, p: random_crop(x, 2),
        "a second call gave the same shifts: set no seed": lambda *args: torch.manual_seed(1) and random_crop(*args),
    })  # fmt: skip


def mix_pairs(
    images: Float[Tensor, "b c H W"],
    targets: Float[Tensor, "b k"],
    fraction: Float[Tensor, " b"],
    partner: Int64[Tensor, " b"],
) -> tuple[Float[Tensor, "b c H W"], Float[Tensor, "b k"]]:
    """``fraction`` of each image and of its target, and 1 − fraction of its partner's."""
    kept = fraction[:, None, None, None]
    mixed = kept * images + (1 - kept) * images[partner]
    return mixed, fraction[:, None] * targets + (1 - fraction[:, None]) * targets[partner]


def _one_of_two(fn, asked, *args):
    result = fn(*args)
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    _expect(is_pair, f"expected two tensors, images and targets; got {describe(result)}")
    return result[asked]


def _blended(images, targets, fraction, partner):
    """Image by image, with its partner."""
    sides = list(enumerate(zip(fraction, partner, strict=True)))
    return tuple(torch.stack([s * x[i] + (1 - s) * x[other] for i, (s, other) in sides]) for x in (images, targets))


def _images(blend):
    """A mistake in the images x, for fractions s and partners p."""
    return lambda x, y, s, p: (blend(x, s, p), y)


def _mix(of):
    """A mistake in the fractions and partners with which the images are mixed."""
    return _images(lambda x, s, p: mix_pairs(x, x[:, 0, 0], *of(s, p))[0])


def _targets(of):
    """A mistake in the fractions and partners with which the targets are mixed."""
    return lambda x, y, s, p: (mix_pairs(x, y, s, p)[0], mix_pairs(x, y, *of(s, p))[1])


def _in_place(images, fraction, partner):
    images = images.clone()
    for i, (s, other) in enumerate(zip(fraction, partner, strict=True)):
        images[i] = s * images[i] + (1 - s) * images[other]
    return images


def _mix_given(asked, b=5, c=2, height=4, width=6, k=3, partner=None):
    partner = (torch.arange(b) * 2 + 1) % b if partner is None else torch.tensor(partner)
    return asked, torch.rand(b, c, height, width), torch.rand(b, k).softmax(1), torch.rand(b), partner


EXERCISES["mix_pairs"] = Exercise(
    reference=mix_pairs, truth=_blended, run=_one_of_two, without=("gradient",),
    given=lambda b=5, c=2, height=4, width=6, k=3: _mix_given(0, b, c, height, width, k),
    shape="The images keep their shape, and the targets have one row for each image",
    otherwise="the images differ from fraction · image + (1 − fraction) · partner, image by image",
    cases=[
        Case(lambda: _mix_given(1), "a row of targets is fraction · target + (1 − fraction) · the partner's"),
        Case(lambda: _mix_given(1, b=1), "wrong targets for a batch of one. Does a squeeze() drop an axis of one?"),
        Case(lambda: _mix_given(0, 4, 1, 2, 3, 2, [1, 1, 0, 3]),
             "two images may have the same partner, and an image may be its own"),
    ], mistakes={
        "the images are swapped: `fraction` is the image's, 1 − fraction its partner's": _mix(lambda s, p: (1 - s, p)),
        "all images were mixed by one fraction. Each has its own": _mix(lambda s, p: (s[:1].expand(len(s)), p)),
        "all images were mixed by the mean fraction. Each has its own": _mix(lambda s, p: (s.mean().expand(len(s)), p)),
        "you took the image whose partner i is, not images[partner[i]]": _mix(lambda s, p: (s, p.argsort())),
        "the images were not mixed": _mix(lambda s, p: (s * 0 + 1, p)),
        "the images are the partners alone": _mix(lambda s, p: (s * 0, p)),
        "you took the next image, not images[partner[i]]": _mix(lambda s, p: (s, torch.arange(len(p)).roll(-1))),
        "you took the image before, not images[partner[i]]": _mix(lambda s, p: (s, torch.arange(len(p)).roll(1))),
        "images were replaced one by one, so some partners were blends already. Use originals": _images(_in_place),
        "the image isn't multiplied by fraction": _images(lambda x, s, p: x + (1 - s)[:, None, None, None] * x[p]),
        "both got fraction: partners get 1 − fraction": _images(lambda x, s, p: s[:, None, None, None] * (x + x[p])),
        "fraction meets the images' last axis: use shape (b, 1, 1, 1)": _images(lambda x, s, p: s * x + (1 - s) * x[p]),
        "fraction meets images' last axis: use shape (b, 1, 1, 1)": _images(lambda x, s, p: x * s + x[p] * (1 - s)),
        "the targets were not mixed: an image that is a quarter 3 should say so": _targets(lambda s, p: (s * 0 + 1, p)),
        "the targets are swapped: `fraction` belongs to the image's own target": _targets(lambda s, p: (1 - s, p)),
        "the targets are the larger part's. Mix them as the images": _targets(lambda s, p: ((s > 0.5).float(), p)),
        "all targets were mixed by one fraction": _targets(lambda s, p: (s[:1].expand(len(s)), p)),
        "the targets come from another partner than the images": _targets(lambda s, p: (s, p.argsort())),
        "the targets are those of the partner alone": _targets(lambda s, p: (s * 0, p)),
        "the targets were mixed half and half. Mix them as the images": _targets(lambda s, p: (s * 0 + 0.5, p)),
    }, right=[_blended, lambda x, y, s, p: [torch.lerp(z[p], z, s.reshape(-1, *[1] * (z.ndim - 1))) for z in (x, y)]],
)  # fmt: skip
