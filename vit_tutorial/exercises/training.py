"""Checks of chapter 6, training on handwritten digits."""

import math
from collections import Counter

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from vit_tutorial.augment.geometry import random_crop
from vit_tutorial.exercises.engine import CheckFailed, call, checks, close, compare, expect, expect_shape
from vit_tutorial.training.loop import parameter_groups


def mean_over_images(batch_means: Float[Tensor, " steps"], batch_sizes: Int[Tensor, " steps"]) -> Float[Tensor, ""]:
    """The mean over all images, from the mean over each batch and the batch's size."""
    return (batch_means * batch_sizes).sum() / batch_sizes.sum()


@checks(mean_over_images)
def check_mean_over_images(fn):
    sizes = torch.tensor([5, 5, 5, 2])
    images = torch.rand(17) * 3
    means = torch.stack([batch.mean() for batch in images.split(sizes.tolist())])
    result = call(fn, means, sizes)
    result = torch.as_tensor(result, dtype=torch.float32)
    expect_shape(result, (), "one number for the whole pass")
    compare(
        result,
        images.mean(),
        {
            "that is the mean of the batches' means: an image of the small last batch counts for more than others. "
            "Weight each mean by its batch's size": means.mean(),
            "that is the sum over all images. Divide by how many they are": images.sum(),
            "you divided by the number of batches. The weights are batch sizes, so divide by their sum": images.sum()
            / len(sizes),
            "that is the mean without the last, smaller batch. Its images count too": images[:15].mean(),
            "you divided by the largest batch times the number of batches, but the last batch is smaller": images.sum()
            / 20,
        },
        "the mean differs from the mean over all 17 images",
    )
    sizes = torch.tensor([2, 7, 1, 7])
    means = torch.stack([batch.mean() for batch in images.split(sizes.tolist())])
    result = torch.as_tensor(call(fn, means, sizes), dtype=torch.float32)
    expect(close(result, images.mean()), "batches of 2, 7, 1 and 7 images: each mean has its own weight")


def accuracy_per_class(
    labels: Int64[Tensor, " b"], predictions: Int64[Tensor, " b"], num_classes: int
) -> Float[Tensor, " k"]:
    """For each true class the share of its images that were recognised; NaN for a class without images."""
    right = torch.bincount(labels[predictions == labels], minlength=num_classes)
    return right / torch.bincount(labels, minlength=num_classes)


@checks(accuracy_per_class)
def check_accuracy_per_class(fn):
    # Class 3 has no image but is predicted once; class 4, the last, has images and is never predicted.
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2, 4])
    predictions = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 1, 0])
    counts, predicted = torch.tensor([4.0, 2, 3, 0, 1]), torch.tensor([4.0, 3, 2, 1, 0])
    right = torch.tensor([3.0, 1, 1, 0, 0])
    result = call(fn, labels, predictions, 5)
    expect_shape(result, (5,), "one number for each class, also for one that is never predicted or has no image")
    truth = right / counts
    mistakes = {
        "those are counts. Divide by how many images the class has": right,
        "you divided by how often a class was *predicted* (that is precision). Divide by how often it is *true*": right
        / predicted,
        "you divided by how often a class was *predicted* (that is precision), at least 1. Divide by how often it is "
        "*true*": right / predicted.clamp(min=1),
        "you divided by the number of all images, so the classes cannot reach 1": right / 10,
        "those are percentages; shares between 0 and 1 were wanted": 100 * truth,
        "that is the share of all images that are not confused with this class, which is high even for a class that is "
        "never found": torch.stack([((labels == k) == (predictions == k)).float().mean() for k in range(5)]),
        "each class got the accuracy over all images": torch.full((5,), 0.5),
    }
    nan = -7.0  # a mark, since NaN is not equal to itself
    for hint, wrong in mistakes.items():
        expect(not close(result.float().nan_to_num(nan), wrong.nan_to_num(nan)), hint)
    expect(
        not close(result.float(), truth.nan_to_num(0)),
        "class 3 has no image. Nothing is known about it: NaN was wanted, not 0, which says that all were wrong",
    )
    expect(
        not close(result.float(), truth.nan_to_num(1)), "class 3 has no image. Nothing is known about it: NaN, not 1"
    )
    expect(close(result.float().nan_to_num(nan), truth.nan_to_num(nan)), f"wanted {truth.tolist()}, got {result}")
    expect_shape(
        call(fn, torch.tensor([0, 1]), torch.tensor([0, 0]), 4),
        (4,),
        "here the last two of four classes have no image; take the number of classes from num_classes",
    )


def warmup_cosine(step: int, total_steps: int, warmup_steps: int, peak_lr: float) -> float:
    """The learning rate of ``step``, counted from 0: up in a straight line, then down half a cosine."""
    if step < warmup_steps:
        return peak_lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / (total_steps - warmup_steps)
    return peak_lr * (1 + math.cos(math.pi * progress)) / 2


@checks(warmup_cosine)
def check_warmup_cosine(fn):
    total, warm, peak = 60, 12, 0.3
    rates = torch.tensor([float(call(fn, step, total, warm, peak)) for step in range(total)])
    expect(
        rates[0].item() != 0,
        "step 0 has learning rate 0, so a whole batch is wasted. Step 0 gets peak_lr / warmup_steps",
    )
    expect(not close(rates, rates[:1].expand(total)), "the rate does not change with the step")
    rising = rates[:warm]
    truth = torch.tensor([0.025 * (step + 1) for step in range(warm)])
    expect(not close(rising, truth / peak), "the rate rises to 1: multiply by peak_lr")
    expect(
        not close(rising, torch.linspace(peak / total, warm * peak / total, warm)),
        "the rise takes total_steps, not warmup_steps",
    )
    expect(close(rising, truth), f"the first {warm} steps must rise by {peak}/{warm} each to {peak}, got {rising}")
    falling = rates[warm:]
    # torch's own cosine, as an independent truth
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warm)
    cosine = []
    for _ in range(total - warm):
        cosine.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    whole = torch.arange(total) / total
    rest = torch.arange(total - warm) / (total - warm)
    compare(
        falling,
        torch.tensor(cosine),
        {
            "the cosine started with step 0: the rate jumps down when the warm-up ends. Count progress from there": (
                peak * (1 + torch.cos(math.pi * whole[warm:])) / 2
            ),
            "progress starts at the end of the warm-up, but is divided by total_steps, so the rate never falls to 0": (
                peak * (1 + torch.cos(math.pi * whole[: total - warm])) / 2
            ),
            "1 + cos goes from 2 to 0: halve it": peak * (1 + torch.cos(math.pi * rest)),
            "a cosine alone turns negative half way: add 1 and halve": peak * torch.cos(math.pi * rest),
            "that is a quarter of a cosine, which falls ever faster and stops at a slope. Half of one ends flat": (
                peak * torch.cos(math.pi / 2 * rest)
            ),
            "the rate falls and rises again: that is a whole period, 2π. Half of one was wanted": (
                peak * (1 + torch.cos(2 * math.pi * rest)) / 2
            ),
            "that is a straight line down; half a cosine was wanted": peak * (1 - rest),
            "0 is reached one step early. It belongs to step number total_steps, one past the last": peak
            * (1 + torch.cos(math.pi * torch.arange(total - warm) / (total - warm - 1)))
            / 2,
            "the cosine is one step ahead: step number warmup_steps still has the peak": peak
            * (1 + torch.cos(math.pi * (torch.arange(total - warm) + 1) / (total - warm)))
            / 2,
            "the rate stays at its peak after the warm-up. (Is there a // where a / should stand?)": torch.full(
                (total - warm,), peak
            ),
            "the angle must run from 0 to π. The factor π is missing": peak * (1 + torch.cos(rest)) / 2,
        },
        "after the warm-up the rate must be peak · (1 + cos(π · progress)) / 2, with progress from 0 to 1",
        tolerance=1e-4,
    )
    for step in (0, 1, total // 2):
        value, wanted = float(call(fn, step, total, 0, peak)), peak * (1 + math.cos(math.pi * step / total)) / 2
        expect(
            math.isclose(value, wanted, rel_tol=1e-6),
            f"without warm-up, step {step} has {wanted:g}, on a cosine that begins at step 0; got {value:g}",
        )


class _Named(nn.Module):
    """Parameters with the names that a ViT's have, one of each kind."""

    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 6))
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 6))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(1, 6, 2, stride=2)})
        block = {"norm1": nn.LayerNorm(6), "attn": nn.ModuleDict({"qkv": nn.Linear(6, 18)}), "fc1": nn.Linear(6, 8)}
        self.blocks = nn.ModuleList([nn.ModuleDict(block)])
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)


_MATRICES = {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "blocks.0.fc1.weight", "head.weight"}


@checks(parameter_groups)
def check_parameter_groups(fn):
    model = _Named()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = call(fn, model, 0.05)
    expect(isinstance(groups, list | tuple), f"expected a list of two dicts, got {type(groups).__name__}")
    expect(
        all(isinstance(group, dict) and "params" in group for group in groups),
        "each group must be a dict with the key 'params', as optimizers take it",
    )
    expect(
        all(isinstance(group["params"], list) for group in groups),
        "'params' must be lists: a generator is empty once it was read",
    )
    expect(
        all("weight_decay" in group for group in groups),
        "a group has no 'weight_decay'. An optimizer would give it its own default, which is not 0 in AdamW",
    )
    given = [parameter for group in groups for parameter in group["params"]]
    expect(
        all(isinstance(parameter, nn.Parameter) for parameter in given),
        "'params' must hold the parameters themselves, not their names or pairs",
    )
    expect(
        all(id(parameter) in names for parameter in given),
        "a group holds a parameter that is not the model's: hand over the same objects, not copies",
    )
    times = Counter(names[id(parameter)] for parameter in given)
    missing = sorted(set(names.values()) - set(times))
    expect(not missing, f"{', '.join(missing)} is in no group, so it would never be trained")
    doubled = sorted(name for name, count in times.items() if count > 1)
    expect(not doubled, f"{', '.join(doubled)} is in two groups")
    amounts = {group["weight_decay"] for group in groups}
    expect(amounts <= {0, 0.05}, f"the groups must decay by 0.05 and by 0, got {sorted(amounts)}")
    decayed = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    hints = {
        "everything decays: put norms, biases, positions and the class token into a group with weight_decay 0": (
            decayed == set(names.values())
        ),
        "nothing decays: the matrices go into the group with weight_decay": not decayed,
        "the groups are swapped: matrices decay, the rest does not": decayed == set(names.values()) - _MATRICES,
        "the position table or the class token decays. They have three axes, so counting axes is not enough": (
            bool(decayed & {"pos_embed", "cls_token"})
        ),
        "a norm's weight decays. It is a vector that should stay near 1, not be pulled to 0": bool(
            decayed & {"norm.weight", "blocks.0.norm1.weight"}
        ),
        "a bias decays": any(name.endswith("bias") for name in decayed),
        "the patch projection does not decay. Its kernel has four axes, and is a matrix all the same (chapter 1)": (
            "patch_embed.proj.weight" not in decayed
        ),
        "the head does not decay; it is a matrix like the others": "head.weight" not in decayed,
    }
    for hint, made in hints.items():
        expect(not made, hint)
    expect(decayed == _MATRICES, f"{', '.join(sorted(_MATRICES))} should decay, got {', '.join(sorted(decayed))}")
    expect(
        [group["weight_decay"] for group in groups] == [0.05, 0],
        "every parameter is in the right place, but two groups were wanted, first the one that decays",
    )


@checks(random_crop)
def check_random_crop(fn):
    count, channels, height, width, padding = 200, 2, 5, 7, 2
    images = torch.rand(count, channels, height, width) + 0.5  # no zero inside
    result = call(fn, images, padding)
    shape = tuple(result.shape) if isinstance(result, Tensor) else None
    expect(
        shape != (count, channels, height + 2 * padding, width + 2 * padding),
        "the images were padded and not cut: a window of the old size was wanted",
    )
    expect_shape(result, (count, channels, height, width), "the images keep their size")
    expect(not torch.equal(result, images), "no image was shifted")
    shifts = _shifts(result, images, padding)
    if shifts is None:
        rolled = _shifts(result, images, padding, mode="circular")
        expect(rolled is None, "what leaves on one side comes back on the other: pad with zeros, do not roll")
        mirrored = _shifts(result, images, padding, mode="reflect")
        expect(mirrored is None, "the border is filled with mirrored pixels: pad with zeros")
        expect(
            _shifts(result[:, :1], images[:, :1], padding) is None,
            "the channels of an image were shifted differently: one place for the whole image",
        )
        raise CheckFailed(f"an image is no window of the image with {padding} zeros on each side")
    tops, lefts = shifts
    expect(
        len(set(zip(tops, lefts, strict=True))) > 1,
        "all images of the batch were shifted alike. Draw a place for each image: with one place for the batch, a "
        "step sees 128 images with the same shift",
    )
    expect(len(set(tops)) > 1, "the images were shifted left and right only, never up or down")
    expect(len(set(lefts)) > 1, "the images were shifted up and down only, never left or right")
    expect(tops != lefts, "rows and columns have the same shift, so images move along the diagonal only: draw twice")
    for places in (tops, lefts):
        expect(
            set(places) != set(range(2 * padding)),
            "the last place is never drawn. There are 2·padding + 1 of them, and randint leaves its upper bound out",
        )
        expect(
            set(places) == set(range(2 * padding + 1)),
            f"padding {padding} has {2 * padding + 1} places in each direction, but only {sorted(set(places))} appear",
        )
    expect(
        _shifts(call(fn, images, 1), images, 1) is not None,
        "with padding 1 an image was shifted by more than one pixel, or not padded so: use the argument, not a number",
    )
    expect(
        not torch.equal(call(fn, images, padding), result), "a second call gave the same shifts: draw anew each time"
    )


def _shifts(result: Tensor, images: Tensor, padding: int, mode: str = "constant") -> tuple[list[int], list[int]] | None:
    """For each image the place (top, left) of the window in the padded image; None where one is no such window."""
    height, width = images.shape[2:]
    padded = F.pad(images, [padding] * 4, mode=mode)
    tops, lefts = [-1] * len(images), [-1] * len(images)
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            window = padded[:, :, top : top + height, left : left + width]
            for i in (result == window).all(dim=(1, 2, 3)).nonzero()[:, 0].tolist():
                tops[i], lefts[i] = top, left
    return None if -1 in tops else (tops, lefts)


def smooth_labels(labels: Int64[Tensor, " b"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """Targets that give each class ``smoothing / num_classes``, and the rest to the true one."""
    return (1 - smoothing) * F.one_hot(labels, num_classes).float() + smoothing / num_classes


@checks(smooth_labels)
def check_smooth_labels(fn):
    k, smoothing = 5, 0.2
    labels = torch.tensor([3, 0, 4, 3, 1, 0, 2])
    result = call(fn, labels, k, smoothing)
    expect_shape(result, (7, k), "one row of probabilities for each label")
    expect(result.is_floating_point(), f"the targets must be floating point, got {result.dtype}")
    hot = torch.eye(k)[labels]
    sums = result.sum(dim=1)
    mistakes = {
        "nothing was smoothed: that is one-hot": hot,
        "the shares add up to 1.2. What all classes get must be taken from the true one first": hot + smoothing / k,
        "the true class got 1 − smoothing and the others smoothing / (k − 1). Here *all* k classes share the "
        "smoothing, the true one too": hot * (1 - smoothing) + (1 - hot) * smoothing / (k - 1),
        "the true class takes part in the sharing as well: it gets 1 − smoothing + smoothing / k": hot * (1 - smoothing)
        + (1 - hot) * smoothing / k,
        "you divided by k − 1. All k classes share the smoothing, the true one too": hot * (1 - smoothing)
        + smoothing / (k - 1),
        "smoothing and 1 − smoothing are swapped": hot * smoothing + (1 - smoothing) / k,
        "each class got all of the smoothing: divide it by the number of classes": hot * (1 - smoothing) + smoothing,
        "you divided by the number of images; divide by the number of classes": hot * (1 - smoothing)
        + smoothing / len(labels),
    }
    for hint, wrong in mistakes.items():
        expect(not close(result.float(), wrong), hint)
    expect(close(sums.float(), torch.ones(7)), f"each row must add up to 1, got {sums.tolist()}")
    logits = torch.randn(7, k)
    ours = -(result * logits.log_softmax(dim=1)).sum(dim=1).mean()
    theirs = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    expect(close(ours.float(), theirs, 1e-4), "the loss differs from PyTorch's cross-entropy with label_smoothing")
    expect(close(call(fn, labels, k, 0.0).float(), hot), "with smoothing 0 the targets must be one-hot")
    expect_shape(
        call(fn, torch.tensor([0, 1]), 4, smoothing),
        (2, 4),
        "here the last two of four classes have no image; take the number of classes from num_classes",
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


@checks(mix_pairs)
def check_mix_pairs(fn):
    b, k = 5, 3
    images, targets = torch.rand(b, 2, 4, 6), torch.eye(k)[torch.tensor([0, 1, 2, 0, 1])]
    share = torch.tensor([0.9, 0.25, 0.6, 0.75, 0.1])
    partner = torch.tensor([2, 0, 4, 1, 3])  # neither its own inverse nor a shift by some places
    result = call(fn, images, targets, share, partner)
    expect(
        isinstance(result, tuple | list) and len(result) == 2,
        f"expected two tensors, images and targets; got {type(result).__name__}",
    )
    expect_shape(result[0], (b, 2, 4, 6), "the images keep their shape")
    expect_shape(result[1], (b, k), "a row of targets for each image")

    def blend(what: Tensor, share: Tensor, other: Tensor) -> Tensor:
        return torch.stack([s * x + (1 - s) * y for s, x, y in zip(share, what, what[other], strict=True)])

    inverse, one_by_one = partner.argsort(), images.clone()
    for i, s in enumerate(share):
        one_by_one[i] = s * one_by_one[i] + (1 - s) * one_by_one[partner[i]]
    compare(
        result[0],
        blend(images, share, partner),
        {
            "the images are swapped: `share` belongs to the image itself, 1 − share to its partner": blend(
                images, 1 - share, partner
            ),
            "all images were mixed by one share. Each has its own": blend(images, share[:1].expand(b), partner),
            "all images were mixed by the mean of the shares. Each has its own": blend(
                images, share.mean().expand(b), partner
            ),
            "the partner of image i is images[partner[i]]. You took the image whose partner i is": blend(
                images, share, inverse
            ),
            "the images were not mixed": images,
            "you took the next image of the batch; the partner of image i is images[partner[i]]": blend(
                images, share, torch.arange(b).roll(-1)
            ),
            "you took the image before; the partner of image i is images[partner[i]]": blend(
                images, share, torch.arange(b).roll(1)
            ),
            "one image after the other was replaced, so some partners were blends already. Take partners from the "
            "untouched images": one_by_one,
            "the images add up to more than they were: the partner's share is 1 − share": images
            + (1 - share)[:, None, None, None] * images[partner],
        },
        "the images differ from share · image + (1 − share) · partner, image by image",
    )
    compare(
        result[1],
        blend(targets, share, partner),
        {
            "the targets were not mixed: an image that is a quarter of a 3 should be called so": targets,
            "the targets are swapped: `share` belongs to the image itself, and to its own target": blend(
                targets, 1 - share, partner
            ),
            "the targets are those of the larger part. Mix them by the same share as the images": torch.where(
                share[:, None] >= 0.5, targets, targets[partner]
            ),
            "all targets were mixed by one share": blend(targets, share[:1].expand(b), partner),
            "the targets come from another partner than the images": blend(targets, share, inverse),
            "the targets are those of the partner alone": targets[partner],
        },
        "the targets differ from share · target + (1 − share) · partner's target, row by row",
    )
