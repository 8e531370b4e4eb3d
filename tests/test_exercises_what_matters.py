"""The checks of chapter 10 accept the reference and name each mistake."""

import math

import pytest
import torch
from hints import assert_hints
from scipy import stats

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.exercises.what_matters import crossing, effect_interval, equal_width, shift
from vit_tutorial.what_matters import SWEEPS


def _interval(square=None, freedom=None, middle=None, quantile=0.975):
    """effect_interval with a part of it replaced by another."""

    def fn(base, changed):
        n, m, s, r = len(base), len(changed), base.var(), changed.var()
        of_means = (s / n + r / m) if square is None else square(base, changed)
        a, b = s / n, r / m
        df = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1)) if freedom is None else freedom(base, changed)
        center = changed.mean() - base.mean() if middle is None else middle(base, changed)
        half = float(stats.t.ppf(quantile, float(df))) * of_means.sqrt()
        return float(center), float(center - half), float(center + half)

    return fn


def _pooled(base, changed):
    n, m = len(base), len(changed)
    return ((n - 1) * base.var() + (m - 1) * changed.var()) / (n + m - 2) * (1 / n + 1 / m)


def _welch(a, b, n, m):
    return (a + b) ** 2 / (a**2 / n + b**2 / m)


def _reordered(*order):
    return lambda base, changed: tuple(effect_interval(base, changed)[i] for i in order)


def test_effect_interval():
    def half(b, c):
        return effect_interval(b, c)[2] - effect_interval(b, c)[0]

    def biased(b):
        return b.var(unbiased=False) / len(b)

    assert_hints(
        "effect_interval",
        effect_interval,
        {
            "base minus changed": lambda b, c: effect_interval(c, b),
            "low and high are swapped": _reordered(0, 2, 1),
            "lies around 0": lambda b, c: (effect_interval(b, c)[0], -half(b, c), half(b, c)),
            "half width, twice": lambda b, c: (effect_interval(b, c)[0], half(b, c), half(b, c)),
            "1.96 holds for many": lambda b, c: tuple(
                float(c.mean() - b.mean() + k * 1.96 * (b.var() / len(b) + c.var() / len(c)).sqrt()) for k in (0, -1, 1)
            ),
            "90 %": _interval(quantile=0.95),
            "n + m − 2": _interval(freedom=lambda b, c: len(b) + len(c) - 2),
            "were pooled": _interval(_pooled, lambda b, c: len(b) + len(c) - 2),
            "smaller side alone": _interval(freedom=lambda b, c: min(len(b), len(c)) - 1),
            "not by n and m": _interval(
                freedom=lambda b, c: _welch(b.var() / len(b), c.var() / len(c), len(b), len(c))
            ),
            "sum above is squared": _interval(
                freedom=lambda b, c: (
                    (b.var() / len(b) + c.var() / len(c))
                    / ((b.var() / len(b)) ** 2 / (len(b) - 1) + (c.var() / len(c)) ** 2 / (len(c) - 1))
                )
            ),
            "variance divides by n − 1": _interval(
                lambda b, c: biased(b) + biased(c),
                lambda b, c: _welch(biased(b), biased(c), len(b) - 1, len(c) - 1),
            ),
            "spread of single runs": _interval(
                lambda b, c: b.var() + c.var(), lambda b, c: _welch(b.var(), c.var(), len(b) - 1, len(c) - 1)
            ),
            "the base's seeds scatter": _interval(lambda b, c: c.var() / len(c), lambda b, c: len(c) - 1),
            "the changed runs scatter": _interval(lambda b, c: b.var() / len(b), lambda b, c: len(b) - 1),
            "the other side's number": _interval(
                lambda b, c: b.var() / len(c) + c.var() / len(b),
                lambda b, c: _welch(b.var() / len(c), c.var() / len(b), len(b) - 1, len(c) - 1),
            ),
            "errors were added up": _interval(
                lambda b, c: ((b.var() / len(b)).sqrt() + (c.var() / len(c)).sqrt()) ** 2
            ),
            "root is missing": _interval(lambda b, c: (b.var() / len(b) + c.var() / len(c)) ** 2),
            "medians": _interval(middle=lambda b, c: c.median() - b.median()),
            "wanted [7.0": _interval(quantile=0.99),
            "with 2 and 5 runs": lambda b, c: effect_interval(b, c) if len(b) == 3 else effect_interval(b, c[:4]),
            "expected 3 numbers": lambda b, c: effect_interval(b, c)[:2],
        },
    )


def test_effect_interval_by_hand():
    """Two and two runs that scatter alike: variance 2, of each mean 1; two degrees of freedom, where t is 4.303."""
    base, changed = torch.tensor([1.0, 3.0]), torch.tensor([5.0, 7.0])
    half = 4.30265 * math.sqrt(2)
    assert effect_interval(base, changed) == pytest.approx((4, 4 - half, 4 + half), abs=1e-4)


def test_no_interval_without_scatter():
    with pytest.raises(ValueError, match="at least 2 runs, got 3 and 1"):
        effect_interval(torch.randn(3), torch.randn(1))
    with pytest.raises(ValueError, match=r"do not scatter .*: \[1.0, 1.0\] and \[2.0, 2.0, 2.0\]"):
        effect_interval(torch.ones(2), 2 * torch.ones(3))


def test_effect_interval_holds_the_truth_in_95_of_100_cases():
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(1000, 6, generator=generator, dtype=torch.float64)
    found = [effect_interval(row[:3], row[3:] + 2) for row in draws]
    assert 0.93 < sum(low < 2 < high for _, low, high in found) / len(found) < 0.985


def test_equal_width():
    def exact(depth, base_depth, base_dim):
        return base_dim * math.sqrt(base_depth / depth)

    assert_hints(
        "equal_width",
        equal_width,
        {
            "*square* of the width": lambda d, bd, dim, h: dim * bd // d,
            "turned round": lambda d, bd, dim, h: h * round(dim * math.sqrt(d / bd) / h),
            "that is the base's width": lambda d, bd, dim, h: dim,
            "width of one head": lambda d, bd, dim, h: equal_width(d, bd, dim, h) // h,
            "not divisible by the heads": lambda d, bd, dim, h: round(exact(d, bd, dim)),
            "not the one below": lambda d, bd, dim, h: max(h, h * math.floor(exact(d, bd, dim) / h)),
            "not the one above": lambda d, bd, dim, h: h * math.ceil(exact(d, bd, dim) / h),
            "at least one number": lambda d, bd, dim, h: h * round(exact(d, bd, dim) / h),
            "expected a number": lambda d, bd, dim, h: [96],
            "has to be an int": lambda d, bd, dim, h: float(equal_width(d, bd, dim, h)),
        },
    )


@pytest.mark.parametrize("depth", [1, 3, 7, 16])
def test_equal_width_keeps_the_number_of_parameters(depth):
    def matrices(depth, dim):
        model = ViT(ViTConfig(img_size=8, patch_size=4, embed_dim=dim, depth=depth, num_heads=2, num_classes=3))
        return sum(parameter.numel() for parameter in model.blocks.parameters() if parameter.ndim > 1)

    assert matrices(depth, equal_width(depth, 4, 120, 2)) == pytest.approx(matrices(4, 120), rel=0.04)


@pytest.mark.parametrize("name", ["mnist", "shapes", "cifar10"])
def test_equal_width_is_what_the_sweeps_have(name):
    base, *others = (SWEEPS[name].recipes[variant].model for variant in ("base", "wide", "deep"))
    for model in others:
        assert equal_width(model.depth, base.depth, base.embed_dim, base.num_heads) == model.embed_dim


def _cross(place, x=torch.log, back=torch.exp, order=1, missing=math.nan, ends=True, sign=True):
    """crossing with the place between two points, the axis or the order replaced."""

    def fn(shares, a, b):
        gap, x_axis = a - b, x(shares)
        for i in range(len(gap))[::order]:
            if ends and gap[i] == 0:
                return float(shares[i])
            if i + 1 < len(gap) and gap[i] * gap[i + 1] < 0 and (sign or gap[i] < 0):
                return float(back(place(x_axis[i], x_axis[i + 1], gap[i], gap[i + 1])))
        return missing

    return fn


def _zero(x, y, gap, after):
    return x + gap / (gap - after) * (y - x)


def _same(x):
    return x


def test_crossing():
    assert_hints(
        "crossing",
        crossing,
        {
            "over the shares themselves": _cross(_zero, _same, _same),
            "last place": _cross(_zero, order=-1),
            "logarithm of the share: take": _cross(_zero, back=_same),
            "to base 10": _cross(_zero, x=torch.log10, back=_same),
            "wrong end": _cross(lambda x, y, gap, after: y - gap / (gap - after) * (y - x)),
            "half way": _cross(lambda x, y, gap, after: (x + y) / 2),
            "arithmetic middle": _cross(lambda x, y, gap, after: (x + y) / 2, _same, _same),
            "first share after": _cross(lambda x, y, gap, after: y),
            "last share before": _cross(lambda x, y, gap, after: x),
            "a position in the list": _cross(_zero, lambda shares: torch.arange(len(shares)).double(), _same),
            "the accuracy at the crossing": lambda s, a, b: (
                float(_zero(a[1], a[2], a[1] - b[1], a[2] - b[2])) if (a[1] - b[1]) * (a[2] - b[2]) < 0 else math.nan
            ),
            "swapped the curves still meet": _cross(_zero, sign=False),
            "do not meet": _cross(_zero, missing=1.0),
            "without crossing": _cross(_zero, ends=False),
            "at the last share": lambda s, a, b: (
                crossing(s, a, b) if (a != b)[:-1].all() is False or (a != b)[-1] else math.nan
            ),
            "but the curves meet": lambda s, a, b: math.nan,
            "one number": lambda s, a, b: s,
            "equal everywhere": lambda s, a, b: math.nan if torch.equal(a, b) else crossing(s, a, b),
        },
    )


def _padded(pad, roll=False):
    def fn(images, dx, dy):
        height, width = images.shape[2:]
        rows, cols = torch.arange(height) - dy, torch.arange(width) - dx
        if roll:
            return images.roll((dy, dx), (2, 3))
        return images[:, :, rows.clamp(0, height - 1)][..., cols.clamp(0, width - 1)]

    return fn


def _in_place(images, dx, dy):
    return images.copy_(shift(images, dx, dy))


def _slices(images, dx, dy):
    """Leaves the images as they are where the shift is as large as the image."""
    return images if dx >= images.shape[3] else shift(images, dx, dy)


def test_shift():
    assert_hints(
        "shift",
        shift,
        {
            "were not moved": lambda images, dx, dy: images.clone(),
            "comes back on the other": _padded("round", roll=True),
            "border was repeated": _padded("edge"),
            "dx and dy are swapped": lambda images, dx, dy: shift(images, dy, dx),
            "moved the other way: positive dx is to the right, positive dy": lambda i, dx, dy: shift(i, -dx, -dy),
            "rows moved the other way": lambda i, dx, dy: shift(i, dx, -dy),
            "columns moved the other way": lambda i, dx, dy: shift(i, -dx, dy),
            "only the columns": lambda i, dx, dy: shift(i, dx, 0),
            "only the rows": lambda i, dx, dy: shift(i, 0, dy),
            "negative shift was ignored": lambda i, dx, dy: shift(i, max(dx, 0), max(dy, 0)),
            "changed in place": _in_place,
            "keep their size": lambda i, dx, dy: shift(i, dx, dy)[:, :, 1:],
            "pushed out, so the images are black": _slices,
            "dx columns further left": lambda i, dx, dy: shift(i, dx, dy) * 2,
            "keep the type": lambda i, dx, dy: shift(i.float(), dx, dy),
        },
    )


def test_shift_keeps_bytes_and_what_can_be_undone():
    images = torch.zeros(1, 1, 6, 9, dtype=torch.uint8)
    images[:, :, 2:4, 3:6] = 7
    moved = shift(images, 3, -2)
    assert moved.dtype == torch.uint8 and moved[0, 0, 0:2, 6:9].eq(7).all() and moved.sum() == images.sum()
    assert torch.equal(shift(moved, -3, 2), images)
