"""Exercises of chapter 6: training on handwritten digits."""

import math
import re

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

EXERCISES: dict[str, Exercise] = {}


def _expect(condition: bool, hint: str) -> None:
    if not condition:
        raise CheckFailed(hint)


def mean_over_images(batch_means: Float[Tensor, " steps"], batch_sizes: Int[Tensor, " steps"]) -> Float[Tensor, ""]:
    """The mean over all images, from the mean over each batch and the batch's size."""
    return (batch_means * batch_sizes).sum() / batch_sizes.sum()


def _image_by_image(means, sizes):
    return torch.cat([mean.expand(int(size)) for mean, size in zip(means, sizes, strict=True)]).mean()


def _step_by_step(means, sizes):
    mean = means[0]
    for other in means[1:]:
        mean = (mean + other) / 2
    return mean


EXERCISES["mean_over_images"] = Exercise(
    reference=mean_over_images,
    truth=_image_by_image,
    given=lambda batches=4: (torch.rand(batches) * 3, torch.tensor([5] * (batches - 1) + [2])),
    cases=[
        Case(
            given=lambda: (torch.rand(4) * 3, torch.tensor([2, 7, 1, 7])),
            hint="batches of 2, 7, 1 and 7 images: each mean has its own weight",
            caught=lambda m, n: (m[:-1].sum() * n[0] + m[-1] * n[-1]) / (n[0] * (len(n) - 1) + n[-1]),
        )
    ],
    mistakes={
        "that is the mean of the batches' means: an image of the small last batch counts for more than others. "
        "Weight each mean by its batch's size": lambda m, n: m.mean(),
        "that is the sum over all images. Divide by how many they are": lambda m, n: (m * n).sum(),
        "you divided by the number of batches. The weights are batch sizes, so divide by their sum": lambda m, n: (
            (m * n).sum() / len(m)
        ),
        "that is the mean without the last, smaller batch. Its images count too": lambda m, n: m[:-1].mean(),
        "you divided by the largest batch times the number of batches, but the last batch is smaller": lambda m, n: (
            (m * n).sum() / (n.max() * len(n))
        ),
        "those are the terms of the sum: one number for the whole epoch": lambda m, n: m * n / n.sum(),
        "the means were added up, without weights and without a division": lambda m, n: m.sum(),
        "you divided the means by the sizes. A larger batch counts more, not less: multiply": lambda m, n: (
            (m / n).sum() / (1 / n).sum()
        ),
        "you averaged step by step, so each batch counts as much as all before it": _step_by_step,
        "// and int() round down. Divide with /": lambda m, n: (m * n).sum() // n.sum(),
        "the division is upside down: sum of losses over number of images": lambda m, n: n.sum() / (m * n).sum(),
    },
    right=[
        lambda m, n: float((m * (n / n.sum())).sum()),
        lambda m, n: m @ n.to(m.dtype) / n.sum(),
        lambda m, n: sum(float(x) * int(y) for x, y in zip(m, n, strict=True)) / sum(n.tolist()),
    ],
    shape="One number for the whole epoch",
    otherwise="the mean differs from the mean over all images, image by image",
    without=("gradient",),
)


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
    """An answer from three counts for each class: of right predictions, of labels, of predictions."""

    def fn(labels, predictions, k):
        return divide(*(torch.bincount(x, minlength=k) for x in (labels[labels == predictions], labels, predictions)))

    return fn


EXERCISES["accuracy_per_class"] = Exercise(
    reference=accuracy_per_class,
    truth=_one_by_one,
    # Class 0 has more than 255 images.
    given=lambda b=900, k=5: ((torch.rand(b) ** 2 * k).long(), (torch.rand(b) ** 2 * k).long(), k),
    cases=[
        Case(
            given=lambda: (torch.tensor([0, 0, 1, 1, 2, 4]), torch.tensor([0, 1, 1, 1, 3, 2]), 5),
            hint="class 3 has no image, so nothing is known about it: NaN. Class 4, the last one, has one, and was "
            "never recognized: 0",
        ),
        Case(
            given=lambda: (torch.tensor([0, 1]), torch.tensor([0, 0]), 4),
            hint="here the last two of four classes have no image; take the number of classes from num_classes",
            caught=lambda labels, said, k: accuracy_per_class(labels, said, int(labels.max()) + 1),
        ),
    ],
    mistakes={
        "those are counts. Divide by how many images the class has": _counted(lambda right, true, said: right),
        "you divided by how often a class was *predicted* (that is precision). Divide by how often it is *true*": (
            _counted(lambda right, true, said: right / said)
        ),
        "you divided by how often a class was *predicted* (that is precision), at least 1. Divide by how often it is "
        "*true*": _counted(lambda right, true, said: right / said.clamp(min=1)),
        "you divided by the number of all images, so the classes cannot reach 1": _counted(
            lambda right, true, said: right / true.sum()
        ),
        "those are percentages; fractions between 0 and 1 were wanted": _counted(
            lambda right, true, _: 100 * right / true
        ),
        "that is the fraction of all images that are not confused with this class, which is high even for a class that "
        "is never found": _counted(lambda right, true, said: 1 - (true + said - 2 * right) / true.sum()),
        "each class got the accuracy over all images": _counted(
            lambda right, true, said: (right.sum() / true.sum()).expand(len(true))
        ),
        "one number over all images: return one for each class": _counted(
            lambda right, true, said: right.sum() / true.sum()
        ),
        "class 3 has no image. Nothing is known about it: NaN was wanted, not 0, which says that all were wrong": (
            _counted(lambda right, true, said: right / true.clamp(min=1))
        ),
        "class 3 has no image. Nothing is known about it: NaN, not 1": _counted(
            lambda right, true, said: (right / true).nan_to_num(1)
        ),
        "one number for each class, also for one without images: loop over range(num_classes), not over the labels "
        "that occur": lambda labels, said, k: _loop(labels, said, labels.unique()),
        "torch.bincount stops at the largest label that occurs. Give it "
        "minlength=num_classes": lambda labels, said, k: (
            torch.bincount(labels[labels == said]) / torch.bincount(labels)
        ),
        "you divided by all images that are *or* were called so (intersection over union), not by those that are": (
            _counted(lambda right, true, said: right / (true + said - right))
        ),
        "those are the fractions that were *not* recognized": _counted(lambda right, true, said: 1 - right / true),
        "uint8 ends at 255, and a class has more images": _counted(lambda right, true, _: right.byte() / true.byte()),
    },
    right=[
        lambda labels, said, k: _loop(labels, said, range(k)),
        lambda labels, said, k: (F.one_hot(labels, k) * F.one_hot(said, k)).sum(0) / F.one_hot(labels, k).sum(0),
    ],
    shape="One number for each class, also for one that is never predicted or has no image",
    otherwise="for each class: its images that were recognized, divided by its images",
)


def warmup_cosine(step: int, total_steps: int, warmup_steps: int, peak_lr: float) -> float:
    """The learning rate of ``step``, counted from 0: up in a straight line, then down half a cosine."""
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / (total_steps - warmup_steps)
    return peak_lr * (1 + math.cos(math.pi * progress)) / 2


def _rates(fn, total, warm, peak):
    """The rates of all steps."""
    rates = [fn(step, total, warm, peak) for step in range(total)]
    for rate in rates:
        _expect(is_number(rate), f"a learning rate is one number, got {describe(rate)}")
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


def _schedule(rise=lambda s, t, w: (s + 1) / w, fall=lambda s, t, w: _half((s - w) / (t - w))):
    """A schedule by what it multiplies the peak with, for each step, all steps and those of the warm-up."""
    return lambda step, total, warm, peak: peak * (rise if step < warm else fall)(step, total, warm)


RISES = {
    "step 0 has learning rate 0, so a whole batch is wasted. Step 0 gets peak_lr / warmup_steps": lambda s, t, w: s / w,
    "the rise takes total_steps, not warmup_steps": lambda s, t, w: (s + 1) / t,
    "the peak comes late: step number warmup_steps - 1 has it already": lambda s, t, w: (s + 1) / (w + 1),
    "the rise is half a cosine; a straight line was wanted": lambda s, t, w: 1 - _half((s + 1) / w),
}
FALLS = {
    "the cosine started with step 0: the rate jumps down when the warm-up ends. Count progress from there": (
        lambda s, t, w: _half(s / t)
    ),
    "progress starts at the end of the warm-up, but is divided by total_steps, so the rate never falls to 0": (
        lambda s, t, w: _half((s - w) / t)
    ),
    "1 + cos goes from 2 to 0: halve it": lambda s, t, w: 2 * _half((s - w) / (t - w)),
    "a cosine alone turns negative half way: add 1 and halve": lambda s, t, w: 2 * _half((s - w) / (t - w)) - 1,
    "that is a quarter of a cosine, which falls ever faster and stops at a slope. Half of one ends flat": (
        lambda s, t, w: math.cos(math.pi / 2 * (s - w) / (t - w))
    ),
    "the rate falls and rises again: that is a whole period, 2π. Half of one was wanted": (
        lambda s, t, w: _half(2 * (s - w) / (t - w))
    ),
    "that is a straight line down; half a cosine was wanted": lambda s, t, w: 1 - (s - w) / (t - w),
    "the cosine rises from 0: 1 + cos falls, 1 − cos rises": lambda s, t, w: 1 - _half((s - w) / (t - w)),
    "0 is reached one step early. It belongs to step number total_steps, one past the last": (
        lambda s, t, w: _half((s - w) / max(1, t - w - 1))
    ),
    "the cosine is one step ahead: step number warmup_steps still has the peak": (
        lambda s, t, w: _half((s - w + 1) / (t - w))
    ),
    "the rate stays at its peak after the warm-up. (Is there a // where a / should stand?)": lambda s, t, w: 1,
    "the angle must run from 0 to π. The factor π is missing": lambda s, t, w: _half((s - w) / (t - w) / math.pi),
    "math.cos takes radians: the angle runs to π, not to 180": lambda s, t, w: (
        (1 + math.cos(180 * (s - w) / (t - w))) / 2
    ),
}


def _explain_rates(got, want, total, warm, peak):
    step = int((~torch.isclose(got, want, 1e-5, 1e-5)).nonzero()[0])
    if step < warm:
        return (
            next(iter(RISES))
            if got[0] == 0
            else (f"the first {warm} steps must rise by {peak}/{warm} each to {peak}, got {got[:warm].tolist()}")
        )
    return (
        f"{'after the' if warm else 'without'} warm-up, the rate must be peak · (1 + cos(π · progress)) / 2, with "
        f"progress from 0 to 1: step {step} of {total} has {want[step].item():.5g}, yours {got[step].item():.5g}"
    )


EXERCISES["warmup_cosine"] = Exercise(
    reference=warmup_cosine,
    truth=_by_schedulers,
    run=_rates,
    given=lambda steps=30, warmup_steps=12: (steps, warmup_steps, 0.3),
    smallest={"steps": 13},  # one after the warm-up
    cases=[
        Case(given=lambda: (20, 0, 0.3), hint="without warm-up the cosine begins at step 0"),
        Case(given=lambda: (24, 6, 5.0), hint="right for a peak of 0.3, wrong for 5: is it written in by hand?"),
    ],
    mistakes={
        "the rate does not change with the step": lambda step, total, warm, peak: peak,
        "the rate rises to 1: multiply by peak_lr": lambda step, total, warm, peak: (
            (step + 1) / warm if step < warm else warmup_cosine(step, total, warm, peak)
        ),
        "peak_lr is missing": lambda step, total, warm, peak: warmup_cosine(step, total, warm, 1),
        **{hint: _schedule(rise=rise) for hint, rise in RISES.items()},
        **{hint: _schedule(fall=fall) for hint, fall in FALLS.items()},
        "without a warm-up you divide by 0. No step is smaller than 0: ask `step < warmup_steps` first": (
            lambda step, total, warm, peak: min(peak * (step + 1) / warm, warmup_cosine(step, total, warm, peak))
        ),
        "without a warm-up, step 0 has the peak, at which the cosine begins": lambda step, total, warm, peak: (
            warmup_cosine(step, total, warm, peak) * (step >= (not warm))
        ),
        "without a warm-up, step 1 is on the cosine already: the rate stays at the peak": (
            lambda step, total, warm, peak: warmup_cosine(step, total, warm, peak) if warm else peak
        ),
    },
    right=[lambda step, total, warm, peak: torch.tensor(warmup_cosine(step, total, warm, peak))],
    explain=_explain_rates,
)


def _groups_of(fn, asked, model, decay):
    """The decay of each parameter, -1 where it is in no group and infinity in two; or that of each group."""
    groups = fn(model, decay)
    _expect(isinstance(groups, list | tuple), f"expected a list of two dicts, got {describe(groups)}")
    for group in groups:
        _expect(
            isinstance(group, dict) and "params" in group,
            "each group must be a dict with the key 'params', as optimizers take it",
        )
        _expect(
            is_number(group.get("weight_decay")),
            "a group has no 'weight_decay', a number. An optimizer would give it its own default, which is not 0 in "
            "AdamW",
        )
        _expect(
            isinstance(group["params"], list | tuple),
            "'params' must be lists: a generator is empty once it was read, and a set has no order",
        )
    amounts = {id(parameter): -1.0 for parameter in model.parameters()}
    for parameter, amount in ((item, group["weight_decay"]) for group in groups for item in group["params"]):
        _expect(
            isinstance(parameter, nn.Parameter),
            "'params' must hold the parameters themselves, not their names or pairs",
        )
        _expect(
            id(parameter) in amounts,
            "a group holds a parameter that is not the model's: hand over the same objects, not copies",
        )
        amounts[id(parameter)] = float(amount) if amounts[id(parameter)] == -1 else math.inf
    return torch.tensor(list(amounts.values()) if asked == "parameters" else [float(g["weight_decay"]) for g in groups])


def _groups(decays):
    def fn(model, decay):
        named = list(model.named_parameters())
        return [
            {"params": [p for name, p in named if decays(name, p)], "weight_decay": decay},
            {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0},
        ]

    return fn


def _is_matrix(name, parameter):
    return parameter.ndim > 1 and name not in ("cls_token", "pos_embed")


def _explain_groups(got, want, asked, model, decay):
    if asked == "groups":
        return f"the groups must decay by {decay} and by 0, got {got.tolist()}"
    names = [name for name, _ in model.named_parameters()]

    def where(wrong, said):
        found = [name for name, here in zip(names, wrong.tolist(), strict=True) if here]
        return f"{', '.join(found[:3])}{f' and {len(found) - 3} more' * (len(found) > 3)} {said}" if found else ""

    others = sorted(set(got.tolist()) - {*want.tolist(), -1, math.inf})
    return (
        where(got == -1, "in no group, so it would never be trained")
        or where(got.isinf(), "in two groups")
        or (f"the groups must decay by {decay} and by 0, got {others}" if others else "")
        or "; ".join(filter(None, (where(got > want, "should not decay"), where(got < want, "should decay"))))
    )


MATRICES = r"(head|patch_embed\.proj|blocks\.\d+\.(attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2))\.weight"
DECAYING = {
    "everything decays: put norms, biases, positions and the class token into a group with weight_decay 0": (
        lambda name, p: True
    ),
    "nothing decays: the matrices go into the group with weight_decay": lambda name, p: False,
    "the groups are swapped: matrices decay, the rest does not": lambda name, p: not _is_matrix(name, p),
    "the position table or the class token decays. They have three axes, so counting axes is not enough": (
        lambda name, p: p.ndim > 1
    ),
    "the position table decays; it has three axes, as the class token": lambda name, p: (
        p.ndim > 1 and name != "cls_token"
    ),
    "the class token decays; it has three axes, as the positions": lambda name, p: p.ndim > 1 and name != "pos_embed",
    "a norm's weight, the positions and the class token decay. Leaving out biases is not enough": (
        lambda name, p: "bias" not in name
    ),
    "a norm's weight decays. It is a vector that should stay near 1, not be pulled to 0": (
        lambda name, p: "bias" not in name and name not in ("cls_token", "pos_embed")
    ),
    "the final norm's weight decays: it is called norm": lambda name, p: _is_matrix(name, p) or name == "norm.weight",
    "a bias decays": lambda name, p: "norm" not in name and name not in ("cls_token", "pos_embed"),
    "the patch projection does not decay. Its kernel has four axes, and is a matrix all the same (chapter 1)": (
        lambda name, p: p.ndim == 2
    ),
    "the head does not decay; it is a matrix like the others": lambda name, p: (
        _is_matrix(name, p) and "head" not in name
    ),
    "mlp.fc1.weight should decay": lambda name, p: _is_matrix(name, p) and "fc1" not in name,
}


def _vit(depth, k):
    return ViT(ViTConfig(img_size=4, patch_size=2, in_chans=1, num_classes=k, embed_dim=6, depth=depth, num_heads=2))


EXERCISES["parameter_groups"] = Exercise(
    reference=parameter_groups,
    truth=_groups(lambda name, p: bool(re.fullmatch(MATRICES, name))),
    run=_groups_of,
    given=lambda depth=2, k=3: ("parameters", _vit(depth, k), 0.05),
    cases=[
        Case(
            given=lambda: ("groups", _vit(1, 3), 0.1),
            hint="every parameter is in the right place, but two groups were wanted, first the one that decays",
            caught=lambda model, decay: parameter_groups(model, decay)[::-1],
        ),
    ],
    mistakes={
        "a list of two dicts": lambda model, decay: {"params": list(model.parameters()), "weight_decay": decay},
        "'params'": lambda model, decay: [list(model.parameters()), []],
        "no 'weight_decay'": lambda model, decay: [{"params": list(model.parameters())}],
        "not their names": lambda model, decay: [{"params": ["head.weight"], "weight_decay": decay}],
        "not copies": lambda model, decay: [{"params": [nn.Parameter(torch.ones(3))], "weight_decay": decay}],
        "must be lists": lambda model, decay: [{"params": model.parameters(), "weight_decay": decay}],
        "in no group, so": lambda model, decay: parameter_groups(model, decay)[:1],
        "in two groups": lambda model, decay: parameter_groups(model, decay) + _groups(_is_matrix)(model, 0)[:1],
        "the groups must decay by 0.05 and by 0, got [0.1": lambda model, decay: parameter_groups(model, 2 * decay),
        **{hint: _groups(decays) for hint, decays in DECAYING.items()},
    },
    right=[
        _groups(_is_matrix),
        _groups(lambda name, p: p.ndim in (2, 4)),
        lambda model, decay: tuple(parameter_groups(model, decay)),
    ],
    explain=_explain_groups,
)


def smooth_labels(labels: Int64[Tensor, " b"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """Targets that give each class ``smoothing / num_classes``, and the rest to the true one."""
    return (1 - smoothing) * F.one_hot(labels, num_classes).float() + smoothing / num_classes


def _by_cross_entropy(labels, num_classes, smoothing):
    """The targets in PyTorch's loss: its gradient by the logits is softmax less target."""
    logits = torch.zeros(len(labels), num_classes, requires_grad=True)
    F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum").backward()
    return 1 / num_classes - logits.grad


def _two_numbers(of):
    """Targets from two numbers, that of the true class and that of the others."""

    def fn(labels, k, smoothing):
        true, other = of(k, smoothing, len(labels))
        return torch.full((len(labels), k), float(other)).scatter(1, labels[:, None], true)

    return fn


def _explain_sums(got, want, *_):
    sums = [sum(row) for row in got.tolist()]
    return "" if all(abs(one - 1) < 1e-4 for one in sums) else f"each row must add up to 1, got {sums[:4]}"


SMOOTHED = {
    "nothing was smoothed: that is one-hot": lambda k, s, b: (1, 0),
    "the fractions add up to 1.2. What all classes get must be taken from the true one first": (
        lambda k, s, b: (1 + s / k, s / k)
    ),
    "the true class got 1 − smoothing and the others smoothing / (k − 1). Here *all* k classes share the smoothing, "
    "the true one too": lambda k, s, b: (1 - s, s / max(1, k - 1)),
    "the true class takes part in the sharing as well: it gets 1 − smoothing + smoothing / k": (
        lambda k, s, b: (1 - s, s / k)
    ),
    "you divided by k − 1. All k classes share the smoothing, the true one too": (
        lambda k, s, b: (1 - s + s / max(1, k - 1), s / max(1, k - 1))
    ),
    "smoothing and 1 − smoothing are swapped": lambda k, s, b: (s + (1 - s) / k, (1 - s) / k),
    "each class got all of the smoothing: divide it by the number of classes": lambda k, s, b: (1, s),
    "what was taken from the true class was given to nobody: add smoothing / num_classes": lambda k, s, b: (1 - s, 0),
    "you divided by the number of images; divide by the number of classes": lambda k, s, b: (1 - s + s / b, s / b),
    "the smoothing is written in by hand: take it from the argument": lambda k, s, b: (0.9 + 0.1 / k, 0.1 / k),
}
EXERCISES["smooth_labels"] = Exercise(
    reference=smooth_labels,
    truth=_by_cross_entropy,
    given=lambda b=7, k=5: (torch.randint(k, (b,)), k, 0.2),
    cases=[
        Case(
            given=lambda: (torch.tensor([2, 0]), 3, 0.0),
            hint="with smoothing 0 the targets must be one-hot",
            caught=lambda labels, k, s: smooth_labels(labels, k, 0.2),
        ),
        Case(given=lambda: (torch.tensor([2, 0]), 3, 1.0), hint="with smoothing 1 all classes get the same"),
        Case(
            given=lambda: (torch.tensor([0, 1]), 4, 0.2),
            hint="here the last two of four classes have no image; take the number of classes from num_classes",
            caught=lambda labels, k, s: smooth_labels(labels, int(labels.max()) + 1, s),
        ),
    ],
    mistakes={
        **{hint: _two_numbers(of) for hint, of in SMOOTHED.items()},
        "one_hot gives integers, and what is written into integers is rounded down. Make it floating point first": (
            lambda labels, k, s: smooth_labels(labels, k, s).long()
        ),
        "one row for each label, one column for each class": lambda labels, k, s: smooth_labels(labels, k, s).mT,
        "the wrong class is the true one: they count from 0": lambda labels, k, s: smooth_labels(
            (labels - 1) % k, k, s
        ),
    },
    right=[
        _two_numbers(lambda k, s, b: (1 - s + s / k, s / k)),
        lambda labels, k, s: (1 - s) * torch.eye(k)[labels] + s / k,
        lambda labels, k, s: torch.lerp(F.one_hot(labels, k).double(), torch.full((), 1 / k).double(), s),
    ],
    explain=_explain_sums,
    shape="One row of probabilities for each label",
    otherwise="the loss differs from PyTorch's cross-entropy with label_smoothing",
)


def _places(result, images, padding, mode="constant"):
    """For each image the place (top, left) of the window in the padded image; None where one is no such window."""
    height, width = images.shape[2:]
    padded = F.pad(images.double(), [padding] * 4, mode=mode)
    places = [(-1, -1)] * len(images)
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            window = padded[:, :, top : top + height, left : left + width]
            for i in (result == window).all(dim=(1, 2, 3)).nonzero()[:, 0].tolist():
                places[i] = top, left
    return None if (-1, -1) in places else places


MANY = 2000  # images that show how often each place is drawn


def _crops(fn, images, padding):
    """A word for what is wrong; or how often each row and column is drawn: 0 never, 0.5 too rarely, 1 as it should."""
    result, again = fn(images, padding), fn(images, padding)
    _expect(isinstance(result, Tensor), f"expected the cropped images as a tensor, got {describe(result)}")
    if result.shape[2:] == tuple(side + 2 * padding for side in images.shape[2:]):
        return "not cut"
    expected = f"expected shape {tuple(images.shape)} and {images.dtype}, got {tuple(result.shape)} and {result.dtype}"
    _expect(result.shape == images.shape, f"{expected}: the images keep their size")
    _expect(result.dtype == images.dtype, f"{expected}: cutting needs no arithmetic, so the dtype stays")
    places = _places(result, images, padding)
    if places is None:
        modes = [mode for mode in ("circular", "reflect", "replicate") if _places(result, images, padding, mode)]
        by_channel = _places(result[:, :1], images[:, :1], padding)
        return "".join(modes) or ("by channel" if by_channel else "no window")
    tops, lefts = torch.tensor(places).T
    words = {
        "unshifted": torch.equal(result, images),
        "again": torch.equal(result, again),
        "alike": len(set(places)) == 1,
        "no rows": len(tops.unique()) == 1,
        "no columns": len(lefts.unique()) == 1,
        "together": torch.equal(tops, lefts) or len(set(places)) < len(tops.unique()) * len(lefts.unique()),
        "in groups": any(  # by chance one in 5 agrees with its neighbour, or with its counterpart in the other half
            (side == side.roll(lag)).float().mean() > 0.4 for side in (tops, lefts) for lag in (1, MANY // 2)
        ),
    }
    if len(images) == MANY and any(words.values()):
        return next(word for word, found in words.items() if found)
    often = torch.stack([torch.bincount(side, minlength=2 * padding + 1) for side in (tops, lefts)])
    often = often / len(images) * (2 * padding + 1)
    return torch.where(often > 0.75, 1 + (often > 1.4), 0.5 * (often > 0)) if len(images) == MANY else often * 0 + 1


def _explain_places(got, want, images, padding):
    rows, columns = (row.nonzero()[:, 0].tolist() for row in got)
    if (got > 0).all():
        return "some places are drawn more often than others. All are to be equally likely, those at the ends too"
    places = f"padding {padding} has {2 * padding + 1} places in each direction"
    return f"{places}, but only rows {rows} and columns {columns} appear"


def _windows(tops, lefts, mode="constant"):
    """A crop at the places that two functions of the number of images and the padding give."""

    def fn(images, padding):
        height, width = images.shape[2:]
        first = tops(len(images), padding)
        places = zip(F.pad(images, [padding] * 4, mode=mode), first, lefts(len(images), padding, first), strict=True)
        return torch.stack([x[:, top : top + height, left : left + width] for x, top, left in places])

    return fn


def _draw(count, padding, *_):
    return torch.randint(2 * padding + 1, (count,)).tolist()


def _draw_one(count, padding, *_):
    return torch.randint(2 * padding + 1, (1,)).tolist() * count


def _draw_less(count, padding, *_):
    return torch.randint(2 * padding, (count,)).tolist()


def _draw_pairs(count, padding, *_):
    return torch.randint(2 * padding + 1, (count,)).repeat_interleave(2)[:count].tolist()


def _middle(count, padding, *_):
    return [padding] * count


def _by_channel(images, padding):
    return random_crop(images.flatten(0, 1)[:, None], padding).reshape(images.shape)


def _seeded(images, padding):
    torch.manual_seed(1)
    return random_crop(images, padding)


EXERCISES["random_crop"] = Exercise(
    reference=random_crop,
    truth=_windows(_draw, _draw),
    run=_crops,
    # Without a zero inside.
    given=lambda b=20, c=2, height=5, width=7, padding=2: (torch.rand(b, c, height, width) + 1, padding),
    smallest={"height": 4, "width": 4},
    cases=[
        Case(given=lambda: (torch.rand(MANY, 1, 4, 5) + 1, 2)),
        Case(given=lambda: (torch.randint(1, 256, (20, 3, 4, 6), dtype=torch.uint8), 1)),
    ],
    mistakes={
        "the images were padded and not cut: a window of the old size was wanted": lambda images, p: F.pad(
            images, [p] * 4
        ),
        "the images keep their size": lambda images, padding: images[:, :, padding:-padding, padding:-padding],
        "so the dtype stays": lambda images, padding: random_crop(images.float(), padding),
        "no image was shifted": lambda images, padding: images.clone(),
        "what leaves on one side comes back on the other: pad with zeros, do not roll": _windows(
            _draw, _draw, "circular"
        ),
        "the border is filled with mirrored pixels: pad with zeros": _windows(_draw, _draw, "reflect"),
        "the border is filled with the outermost pixels: pad with zeros": _windows(_draw, _draw, "replicate"),
        "the channels of an image were shifted differently: one place for the whole image": _by_channel,
        "an image is no window of itself with zeros on each side": lambda images, p: random_crop(images, p) * 2,
        "all images of the batch were shifted alike. Draw a place for each image: with one place for the batch, a "
        "step sees 128 images with the same shift": _windows(_draw_one, _draw_one),
        "the images were shifted left and right only, never up or down (or all by the same): draw a row for each": (
            _windows(_middle, _draw)
        ),
        "the images were shifted up and down only, never left or right": _windows(_draw, _middle),
        "rows and columns have the same shift, so images move along the diagonal only: draw twice": _windows(
            _draw, lambda count, padding, first: first
        ),
        "images share their shifts, in pairs or in halves of the batch: draw one place for each image": _windows(
            _draw_pairs, _draw_pairs
        ),
        "the last place is never drawn. There are 2·padding + 1 of them, and randint leaves its upper bound out": (
            _windows(_draw_less, _draw_less)
        ),
        "has 5 places in each direction, but only rows [0, 1, 2] and": _windows(
            lambda count, padding: torch.randint(padding + 1, (count,)).tolist(), _draw
        ),
        "some places are drawn more often than others": _windows(
            _draw, lambda count, padding, _: (torch.rand(count) * 2 * padding).round().long().tolist()
        ),
        "with padding 1 an image was shifted by more than one pixel: take the argument, not a number": (
            lambda images, padding: random_crop(images, 2)
        ),
        "a second call gave the same shifts: draw anew each time, and set no seed": _seeded,
    },
    right=[_windows(_draw, _draw)],
    explain=_explain_places,
    otherwise="a window of the padded image was wanted, at a random place for each image",
)


def mix_pairs(
    images: Float[Tensor, "b c H W"],
    targets: Float[Tensor, "b k"],
    share: Float[Tensor, " b"],
    partner: Int64[Tensor, " b"],
) -> tuple[Float[Tensor, "b c H W"], Float[Tensor, "b k"]]:
    """``share`` of each image and of its target, and 1 − share of its partner's."""
    kept = share[:, None, None, None]
    mixed = kept * images + (1 - kept) * images[partner]
    return mixed, share[:, None] * targets + (1 - share[:, None]) * targets[partner]


def _one_of_two(fn, asked, *args):
    result = fn(*args)
    _expect(
        isinstance(result, tuple | list) and len(result) == 2,
        f"expected two tensors, images and targets; got {describe(result)}",
    )
    return result[asked]


def _blended(images, targets, share, partner):
    """Image by image, with its partner."""
    sides = list(enumerate(zip(share, partner, strict=True)))
    return tuple(torch.stack([s * x[i] + (1 - s) * x[other] for i, (s, other) in sides]) for x in (images, targets))


def _mix(images=lambda s, p: (s, p), targets=lambda s, p: (s, p)):
    """An answer by the shares and partners with which it mixes images and targets."""

    def fn(x, y, share, partner):
        return mix_pairs(x, y, *images(share, partner))[0], mix_pairs(x, y, *targets(share, partner))[1]

    return fn


def _in_its_own_copy(images, targets, share, partner):
    images = images.clone()
    for i, (s, other) in enumerate(zip(share, partner, strict=True)):
        images[i] = s * images[i] + (1 - s) * images[other]
    return images, targets


def _mix_given(b, c, height, width, k, partner=None):
    partner = (torch.arange(b) * 2 + 1) % b if partner is None else torch.tensor(partner)
    return torch.rand(b, c, height, width), torch.rand(b, k).softmax(1), torch.rand(b), partner


EXERCISES["mix_pairs"] = Exercise(
    reference=mix_pairs,
    truth=_blended,
    run=_one_of_two,
    given=lambda b=5, c=2, height=4, width=6, k=3: (0, *_mix_given(b, c, height, width, k)),
    cases=[
        Case(
            given=lambda: (1, *_mix_given(5, 2, 4, 6, 3)),
            hint="the targets differ from share · target + (1 − share) · partner's target, row by row",
        ),
        Case(
            given=lambda: (1, *_mix_given(1, 2, 4, 6, 3)),
            hint="the targets of a batch of one image are wrong. Does a squeeze() drop an axis of one?",
        ),
        Case(
            given=lambda: (0, *_mix_given(4, 1, 2, 3, 2, partner=[1, 1, 0, 3])),
            hint="two images may have the same partner, and an image may be its own",
        ),
    ],
    mistakes={
        "the images are swapped: `share` belongs to the image itself, 1 − share to its partner": _mix(
            lambda s, p: (1 - s, p)
        ),
        "all images were mixed by one share. Each has its own": _mix(lambda s, p: (s[:1].expand(len(s)), p)),
        "all images were mixed by the mean of the shares. Each has its own": _mix(
            lambda s, p: (s.mean().expand(len(s)), p)
        ),
        "the partner of image i is images[partner[i]]. You took the image whose partner i is": _mix(
            lambda s, p: (s, p.argsort())
        ),
        "the images were not mixed": _mix(lambda s, p: (s * 0 + 1, p)),
        "the images are the partners alone": _mix(lambda s, p: (s * 0, p)),
        "you took the next image of the batch; the partner of image i is images[partner[i]]": _mix(
            lambda s, p: (s, torch.arange(len(p)).roll(-1))
        ),
        "you took the image before; the partner of image i is images[partner[i]]": _mix(
            lambda s, p: (s, torch.arange(len(p)).roll(1))
        ),
        "one image after the other was replaced, so some partners were blends already. Take partners from the "
        "untouched images": _in_its_own_copy,
        "the images add up to more than they were: the partner's share is 1 − share": lambda images, targets, s, p: (
            images + (1 - s)[:, None, None, None] * images[p],
            targets,
        ),
        "both were multiplied by share; the partner's is 1 − share": lambda images, targets, s, p: (
            s[:, None, None, None] * (images + images[p]),
            targets,
        ),
        "share has one axis and meets the images' last one. Give it the shape (b, 1, 1, 1)": (
            lambda images, targets, s, p: (s * images + (1 - s) * images[p], targets)
        ),
        "share has one axis and meets the last one of the images. Give it the shape (b, 1, 1, 1)": (
            lambda images, targets, s, p: (images * s + images[p] * (1 - s), targets)
        ),
        "the targets were not mixed: an image that is a quarter of a 3 should be called so": _mix(
            targets=lambda s, p: (s * 0 + 1, p)
        ),
        "the targets are swapped: `share` belongs to the image itself, and to its own target": _mix(
            targets=lambda s, p: (1 - s, p)
        ),
        "the targets are those of the larger part. Mix them by the same share as the images": _mix(
            targets=lambda s, p: ((s > 0.5).float(), p)
        ),
        "all targets were mixed by one share": _mix(targets=lambda s, p: (s[:1].expand(len(s)), p)),
        "the targets come from another partner than the images": _mix(targets=lambda s, p: (s, p.argsort())),
        "the targets are those of the partner alone": _mix(targets=lambda s, p: (s * 0, p)),
        "the targets were mixed half and half. Mix them as the images": _mix(targets=lambda s, p: (s * 0 + 0.5, p)),
    },
    right=[
        _blended,
        lambda images, targets, share, partner: [
            torch.lerp(x[partner], x, share.reshape(-1, *[1] * (x.ndim - 1))) for x in (images, targets)
        ],
    ],
    shape="The images keep their shape, and the targets have one row for each image",
    otherwise="the images differ from share · image + (1 − share) · partner, image by image",
    without=("gradient",),
)
