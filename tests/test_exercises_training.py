"""The checks of chapter 6 accept the reference and name each mistake."""

import math

import pytest
import torch
import torch.nn.functional as F
from hints import assert_hints

from vit_tutorial.exercises import exercise
from vit_tutorial.exercises.training import (
    accuracy_per_class,
    mean_over_images,
    mix_pairs,
    parameter_groups,
    random_crop,
    smooth_labels,
    warmup_cosine,
)


def _in_place(means, sizes):
    means *= sizes
    return means.sum() / sizes.sum()


def test_mean_over_images():
    assert_hints(
        "mean_over_images",
        mean_over_images,
        {
            "mean of the batches' means": lambda means, sizes: means.mean(),
            "sum over all images": lambda means, sizes: (means * sizes).sum(),
            "divided by the number of batches": lambda means, sizes: (means * sizes).sum() / len(means),
            "without the last": lambda means, sizes: means[:-1].mean(),
            "largest batch times": lambda means, sizes: (means * sizes).sum() / (sizes[0] * len(sizes)),
            "one number": lambda means, sizes: means * sizes / sizes.sum(),
            "in place": _in_place,
            "its own weight": lambda means, sizes: (
                (means[:-1].sum() * sizes[0] + means[-1] * sizes[-1]) / (sizes[0] * (len(sizes) - 1) + sizes[-1])
            ),
            "all 17 images": lambda means, sizes: means.median(),
        },
    )


def test_accuracy_per_class():
    def right(labels, predictions, k):
        return torch.bincount(labels[labels == predictions], minlength=k)

    def counts(labels, k):
        return torch.bincount(labels, minlength=k)

    assert_hints(
        "accuracy_per_class",
        accuracy_per_class,
        {
            "those are counts": right,
            "precision": lambda labels, predictions, k: right(labels, predictions, k) / counts(predictions, k),
            "number of all images": lambda labels, predictions, k: right(labels, predictions, k) / len(labels),
            "percentages": lambda labels, predictions, k: 100 * right(labels, predictions, k) / counts(labels, k),
            "not confused": lambda labels, predictions, k: torch.stack(
                [((labels == i) == (predictions == i)).float().mean() for i in range(k)]
            ),
            "over all images": lambda labels, predictions, k: (labels == predictions).float().mean().repeat(k),
            "NaN was wanted": lambda labels, predictions, k: (
                right(labels, predictions, k) / counts(labels, k).clamp(min=1)
            ),
            "NaN, not 1": lambda labels, predictions, k: (right(labels, predictions, k) / counts(labels, k)).nan_to_num(
                1
            ),
            "expected shape (5,)": lambda labels, predictions, k: torch.tensor(
                [(predictions[labels == i] == i).float().mean() for i in labels.unique()]
            ),
            "at least 1": lambda labels, predictions, k: (
                right(labels, predictions, k) / counts(predictions, k).clamp(min=1)
            ),
            "from num_classes": lambda labels, predictions, k: accuracy_per_class(
                labels, predictions, int(labels.max()) + 1
            ),
            "wanted [": lambda labels, predictions, k: accuracy_per_class(labels, predictions, k) ** 2,
        },
    )


def test_accuracy_per_class_may_be_a_loop():
    def loop(labels, predictions, num_classes):
        return torch.stack([(predictions[labels == k] == k).float().mean() for k in range(num_classes)])

    assert exercise("accuracy_per_class", loop) is loop


def _schedule(rise, fall):
    def fn(step, total, warm, peak):
        return peak * (rise(step, total, warm) if step < warm else fall(step, total, warm))

    return fn


def _rise(step, total, warm):
    return (step + 1) / warm


def _progress(step, total, warm):
    return (step - warm) / (total - warm)


def _half(x):
    return (1 + math.cos(math.pi * x)) / 2


def test_warmup_cosine():
    assert_hints(
        "warmup_cosine",
        warmup_cosine,
        {
            "wasted": _schedule(lambda s, t, w: s / w, lambda *a: _half(_progress(*a))),
            "does not change": lambda s, t, w, peak: peak,
            "rises to 1": lambda s, t, w, peak: (s + 1) / w if s < w else peak * _half(_progress(s, t, w)),
            "not warmup_steps": _schedule(lambda s, t, w: (s + 1) / t, lambda *a: _half(_progress(*a))),
            "the first 12 steps": _schedule(lambda s, t, w: ((s + 1) / w) ** 2, lambda *a: _half(_progress(*a))),
            "jumps down": _schedule(_rise, lambda s, t, w: _half(s / t)),
            "never falls to 0": _schedule(_rise, lambda s, t, w: _half((s - w) / t)),
            "halve it": _schedule(_rise, lambda *a: 2 * _half(_progress(*a))),
            "turns negative": _schedule(_rise, lambda *a: math.cos(math.pi * _progress(*a))),
            "quarter of a cosine": _schedule(_rise, lambda *a: math.cos(math.pi / 2 * _progress(*a))),
            "whole period": _schedule(_rise, lambda *a: _half(2 * _progress(*a))),
            "straight line down": _schedule(_rise, lambda *a: 1 - _progress(*a)),
            "stays at its peak": _schedule(_rise, lambda *a: 1),
            "one step early": _schedule(_rise, lambda s, t, w: _half((s - w) / (t - w - 1))),
            "one step ahead": _schedule(_rise, lambda s, t, w: _half((s - w + 1) / (t - w))),
            "π is missing": _schedule(_rise, lambda *a: _half(_progress(*a) / math.pi)),
            "after the warm-up": _schedule(_rise, lambda *a: _half(_progress(*a) ** 2)),
            "raised ZeroDivisionError": lambda s, t, w, peak: warmup_cosine(s, t, w, peak) if w else peak * (s + 1) / w,
            "without warm-up, step 0": lambda s, t, w, peak: warmup_cosine(s, t, w, peak) if w else 0.0,
            "without warm-up, step 1": lambda s, t, w, peak: warmup_cosine(s, t, w, peak) if w else peak,
        },
    )


def _groups(is_matrix):
    def fn(model, weight_decay):
        named = list(model.named_parameters())
        return [
            {"params": [p for name, p in named if is_matrix(name, p)], "weight_decay": weight_decay},
            {"params": [p for name, p in named if not is_matrix(name, p)], "weight_decay": 0.0},
        ]

    return fn


def _is_matrix(name, parameter):
    return parameter.ndim > 1 and name not in ("cls_token", "pos_embed")


def _without_zero(model, weight_decay):
    first, second = _groups(_is_matrix)(model, weight_decay)
    return [first, {"params": second["params"]}]


def _twice(model, weight_decay):
    first, second = _groups(_is_matrix)(model, weight_decay)
    return [first, {**second, "params": list(model.parameters())}]


def test_parameter_groups():
    assert_hints(
        "parameter_groups",
        parameter_groups,
        {
            "a list of two dicts": lambda model, decay: {"params": list(model.parameters()), "weight_decay": decay},
            "'params'": lambda model, decay: [list(model.parameters()), []],
            "no 'weight_decay'": _without_zero,
            "not their names": lambda model, decay: [
                {"params": [name for name, _ in model.named_parameters()], "weight_decay": decay}
            ],
            "not copies": lambda model, decay: [
                {"params": [torch.nn.Parameter(p.clone()) for p in model.parameters()], "weight_decay": decay}
            ],
            "in no group": lambda model, decay: _groups(_is_matrix)(model, decay)[:1],
            "in two groups": _twice,
            "by 0.05 and by 0": lambda model, decay: _groups(_is_matrix)(model, 2 * decay),
            "everything decays": _groups(lambda name, p: True),
            "nothing decays": _groups(lambda name, p: False),
            "swapped": _groups(lambda name, p: not _is_matrix(name, p)),
            "counting axes": _groups(lambda name, p: p.ndim > 1),
            "a norm's weight decays": _groups(
                lambda name, p: "bias" not in name and name not in ("cls_token", "pos_embed")
            ),
            "a bias decays": _groups(lambda name, p: "norm" not in name and name not in ("cls_token", "pos_embed")),
            "patch projection": _groups(lambda name, p: p.ndim == 2),
            "head does not decay": _groups(lambda name, p: _is_matrix(name, p) and not name.startswith("head")),
            "should decay": _groups(lambda name, p: _is_matrix(name, p) and "fc1" not in name),
            "must be lists": lambda model, decay: [
                {**group, "params": iter(group["params"])} for group in parameter_groups(model, decay)
            ],
            "first the one that decays": lambda model, decay: parameter_groups(model, decay)[::-1],
        },
    )


def test_parameter_groups_may_be_a_tuple():
    def in_a_tuple(model, weight_decay):
        return tuple(parameter_groups(model, weight_decay))

    assert exercise("parameter_groups", in_a_tuple) is in_a_tuple


def _windows(tops, lefts, mode="constant"):
    """A crop at the places that two functions of the number of images and the padding give."""

    def fn(images, padding):
        height, width = images.shape[2:]
        padded = F.pad(images, [padding] * 4, mode=mode)
        first = tops(len(images), padding)
        places = zip(first, lefts(len(images), padding, first), strict=True)
        return torch.stack(
            [x[:, top : top + height, left : left + width] for x, (top, left) in zip(padded, places, strict=True)]
        )

    return fn


def _draw(count, padding, *_):
    return torch.randint(2 * padding + 1, (count,)).tolist()


def _same(count, padding, *_):
    return torch.randint(2 * padding + 1, (1,)).tolist() * count


def _middle(count, padding, *_):
    return [padding] * count


def _crop_in_place(images, padding):
    images.copy_(random_crop(images, padding))
    return images


def _by_channel(images, padding):
    b, c, height, width = images.shape
    return random_crop(images.reshape(b * c, 1, height, width), padding).reshape(images.shape)


def _seeded(images, padding):
    torch.manual_seed(1)
    return random_crop(images, padding)


def test_random_crop():
    assert_hints(
        "random_crop",
        random_crop,
        {
            "not cut": lambda images, padding: F.pad(images, [padding] * 4),
            "keep their size": lambda images, padding: images[:, :, padding:-padding, padding:-padding],
            "in place": _crop_in_place,
            "no image was shifted": lambda images, padding: images.clone(),
            "do not roll": _windows(_draw, _draw, "circular"),
            "mirrored": _windows(_draw, _draw, "reflect"),
            "channels of an image": _by_channel,
            "no window": lambda images, padding: random_crop(images, padding) * 2,
            "shifted alike": _windows(_same, _same),
            "never up or down": _windows(_middle, _draw),
            "never left or right": _windows(_draw, _middle),
            "along the diagonal": _windows(_draw, lambda count, padding, first: first),
            "randint": _windows(
                lambda count, padding: torch.randint(2 * padding, (count,)).tolist(),
                lambda count, padding, _: torch.randint(2 * padding, (count,)).tolist(),
            ),
            "5 places in each direction": _windows(
                lambda count, padding: (padding + torch.randint(padding + 1, (count,))).tolist(), _draw
            ),
            "with padding 1": lambda images, padding: random_crop(images, 2),
            "second call": _seeded,
        },
    )


def test_random_crop_may_be_a_loop():
    loop = _windows(_draw, _draw)
    assert exercise("random_crop", loop) is loop


def test_smooth_labels():
    def hot(labels, k):
        return F.one_hot(labels, k).float()

    assert_hints(
        "smooth_labels",
        smooth_labels,
        {
            "one-hot": lambda labels, k, s: hot(labels, k),
            "floating point": lambda labels, k, s: F.one_hot(labels, k),
            "1.2": lambda labels, k, s: hot(labels, k) + s / k,
            "the true one too": lambda labels, k, s: torch.where(hot(labels, k) > 0, 1 - s, s / (k - 1)),
            "takes part in the sharing": lambda labels, k, s: torch.where(hot(labels, k) > 0, 1 - s, s / k),
            "swapped": lambda labels, k, s: hot(labels, k) * s + (1 - s) / k,
            "got all of the smoothing": lambda labels, k, s: hot(labels, k) * (1 - s) + s,
            "divided by k − 1": lambda labels, k, s: hot(labels, k) * (1 - s) + s / (k - 1),
            "number of images": lambda labels, k, s: hot(labels, k) * (1 - s) + s / len(labels),
            "add up to 1": lambda labels, k, s: smooth_labels(labels, k, s) * 2,
            "differs from PyTorch": lambda labels, k, s: smooth_labels(labels, k, s / 2),
            "smoothing 0": lambda labels, k, s: smooth_labels(labels, k, 0.2),
            "one row": lambda labels, k, s: smooth_labels(labels, k, s).mT,
            "from num_classes": lambda labels, k, s: smooth_labels(labels, int(labels.max()) + 1, s),
        },
    )


def _mix(image_share=lambda s: s, target_share=lambda s: s, image_partner=lambda p: p, target_partner=lambda p: p):
    def fn(images, targets, share, partner):
        mixed, _ = mix_pairs(images, targets, image_share(share), image_partner(partner))
        return mixed, mix_pairs(images, targets, target_share(share), target_partner(partner))[1]

    return fn


def _mix_in_place(images, targets, share, partner):
    for i, (s, other) in enumerate(zip(share, partner, strict=True)):
        images[i] = s * images[i] + (1 - s) * images[other]
        targets[i] = s * targets[i] + (1 - s) * targets[other]
    return images, targets


def _mix_in_own_clone(images, targets, share, partner):
    return _mix_in_place(images.clone(), targets.clone(), share, partner)


def test_mix_pairs():
    def first(share):
        return share[:1].expand(len(share)).clone()

    def larger(images, targets, share, partner):
        return mix_pairs(images, targets, share, partner)[0], torch.where(
            share[:, None] > 0.5, targets, targets[partner]
        )

    assert_hints(
        "mix_pairs",
        mix_pairs,
        {
            "the images are swapped": _mix(image_share=lambda s: 1 - s),
            "mixed by one share. Each": _mix(image_share=first),
            "mean of the shares": _mix(image_share=lambda s: s.mean().expand(len(s)).clone()),
            "whose partner i is": _mix(image_partner=torch.argsort),
            "next image of the batch": _mix(image_partner=lambda p: torch.arange(len(p)).roll(-1)),
            "the image before": _mix(image_partner=lambda p: torch.arange(len(p)).roll(1)),
            "blends already": _mix_in_own_clone,
            "images were not mixed": lambda images, targets, s, p: (images, mix_pairs(images, targets, s, p)[1]),
            "more than they were": lambda images, targets, s, p: (
                images + (1 - s)[:, None, None, None] * images[p],
                targets,
            ),
            "image by image": _mix(image_share=lambda s: s**2),
            "targets were not mixed": lambda images, targets, s, p: (mix_pairs(images, targets, s, p)[0], targets),
            "targets are swapped": _mix(target_share=lambda s: 1 - s),
            "larger part": larger,
            "all targets were mixed": _mix(target_share=first),
            "another partner": _mix(target_partner=torch.argsort),
            "partner alone": lambda images, targets, s, p: (mix_pairs(images, targets, s, p)[0], targets[p]),
            "row by row": _mix(target_share=lambda s: s**2),
            "in place": _mix_in_place,
            "two tensors": lambda images, targets, s, p: mix_pairs(images, targets, s, p)[0],
            "raised RuntimeError": lambda images, targets, s, p: (images * s + images[p] * (1 - s), targets),
        },
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_by_hand(smoothing):
    torch.testing.assert_close(
        smooth_labels(torch.tensor([1]), 2, smoothing), torch.tensor([[smoothing / 2, 1 - smoothing / 2]])
    )
    assert (
        warmup_cosine(0, 8, 4, 1.0) == 0.25 and warmup_cosine(3, 8, 4, 1.0) == 1 and warmup_cosine(6, 8, 4, 1.0) == 0.5
    )
    assert mean_over_images(torch.tensor([1.0, 4.0]), torch.tensor([2, 1])) == 2
