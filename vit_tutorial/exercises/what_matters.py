"""Exercises of chapter 10: what matters."""

import math

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.what_matters.sweeps import effect_interval

EXERCISES: dict[str, Exercise] = {}


def _scipy_interval(base, changed):
    from scipy import stats  # here, for it takes a second, which no other exercise needs to wait for

    interval = stats.ttest_ind(changed.numpy(), base.numpy(), equal_var=False).confidence_interval(0.95)
    return (changed.mean() - base.mean()).item(), float(interval.low), float(interval.high)


def _welch(a, b, n, m):
    """Degrees of freedom from the two variances of the means and what each is divided by."""
    return (a + b) ** 2 / (a**2 / n + b**2 / m)


def _interval(
    variances=lambda a, b, n, m: (a, b),
    square=lambda a, b, n, m: a + b,
    freedom=lambda a, b, n, m: _welch(a, b, n - 1, m - 1),
    middle=lambda base, changed: changed.mean() - base.mean(),
    quantile=0.975,
):
    """effect_interval with a part replaced: a and b are the variances of the means, of n and m runs."""

    def fn(base, changed):
        from scipy import stats

        n, m = len(base), len(changed)
        given = *variances(base.var() / n, changed.var() / m, n, m), n, m
        center, half = middle(base, changed), stats.t.ppf(quantile, float(freedom(*given))) * square(*given) ** 0.5
        return float(center), float(center - half), float(center + half)

    return fn


def _from_ends(change):
    return lambda base, changed: change(*effect_interval(base, changed))


def _runs(base, changed, dtype=torch.float64):
    return lambda: (torch.tensor(base, dtype=dtype), torch.tensor(changed, dtype=dtype))


EFFECT_INTERVAL = {
    "that is base minus changed. A change that helps has a positive effect: changed minus base":
        lambda base, changed: effect_interval(changed, base),
    "1.96 holds for many seeds. With few, the standard deviation itself is uncertain: take Student's t":
        _interval(freedom=lambda *_: 1e9),
    "that t leaves 5 % on *each* side, a 90 % interval: 0.975 leaves 2.5 % on each": _interval(quantile=0.95),
    "that t leaves 0.5 % on each side, a 99 % interval: 0.975 leaves 2.5 % on each": _interval(quantile=0.995),
    "low and high are swapped": _from_ends(lambda d, low, high: (d, high, low)),
    "the interval is centred on 0. Centre it on the difference":
        _from_ends(lambda d, low, high: (d, low - d, high - d)),
    "that is the half width, twice. Return the difference, the low end and the high end":
        _from_ends(lambda d, low, high: (d, high - d, high - d)),
    "two numbers were returned. Return the difference, the low end and the high end":
        _from_ends(lambda d, low, high: (low, high)),
    "the order is the difference, the low end, the high end": _from_ends(lambda d, low, high: (low, d, high)),
    "n + m − 2 degrees of freedom need equal variances. Use Welch's": _interval(freedom=lambda a, b, n, m: n + m - 2),
    "the variances were pooled, as if they were equal. Each side has its own: s²/n + s²/m": _interval(
        square=lambda a, b, n, m: ((n - 1) * n * a + (m - 1) * m * b) / (n + m - 2) * (1 / n + 1 / m),
        freedom=lambda a, b, n, m: n + m - 2,
    ),
    "the degrees of freedom are those of the smaller side alone: use Welch's formula":
        _interval(freedom=lambda a, b, n, m: min(n, m) - 1),
    "in the degrees of freedom, divide by n − 1 and m − 1, not by n and m": _interval(freedom=_welch),
    "in the degrees of freedom the sum on top is squared":
        _interval(freedom=lambda a, b, n, m: _welch(a, b, n - 1, m - 1) / (a + b)),
    "the variance divides by n − 1, since the mean was estimated from the same values":
        _interval(lambda a, b, n, m: (a * (n - 1) / n, b * (m - 1) / m)),
    "that is the variance of single runs. A mean of n runs varies less: divide each variance by its n":
        _interval(lambda a, b, n, m: (a * n, b * m)),
    "the base's seeds vary as well: add the variance of its mean": _interval(lambda a, b, n, m: (0 * a, b)),
    "the changed runs vary as well: add the variance of their mean": _interval(lambda a, b, n, m: (a, 0 * b)),
    "each variance was divided by the other side's number of runs":
        _interval(lambda a, b, n, m: (a * n / m, b * m / n)),
    "the errors were added. Add their squares, and take the root of the sum":
        _interval(square=lambda a, b, n, m: (a.sqrt() + b.sqrt()) ** 2),
    "the root is missing: t times a variance": _interval(square=lambda a, b, n, m: (a + b) ** 2),
    "that is the difference of the medians. Take the means":
        _interval(middle=lambda base, changed: changed.median() - base.median()),
    "that is a percentage of the base. Return the difference of the means":
        _interval(middle=lambda base, changed: 100 * (changed.mean() - base.mean()) / base.mean()),
}  # fmt: skip
EXERCISES["effect_interval"] = Exercise(
    reference=effect_interval, truth=_scipy_interval, mistakes=EFFECT_INTERVAL,
    cases=[
        Case(_runs([90.0, 91, 92], [94.0, 96, 98, 104]), "SciPy's Welch interval is another one"),
        Case(_runs([0.4, 0.8], [0.3, 0.35, 0.2, 0.5, 0.15]), "right with 3 and 4 runs, wrong with 2 and 5",
             lambda base, changed: effect_interval(base, changed[:4])),
        Case(_runs([90.0, 91.5, 92], [94.0, 96, 98.5, 104], torch.float32), "right for float64, wrong for float32"),
    ],
    right=[_scipy_interval, lambda base, changed: torch.tensor(effect_interval(base, changed))],
    shape="Three numbers: the difference and the two ends of the interval",
    otherwise="SciPy's Welch interval is another one", tolerance=1e-4,
)  # fmt: skip


def equal_width(depth: int, base_depth: int, base_dim: int, num_heads: int) -> int:
    """The width at which ``depth`` blocks have about as many parameters as ``base_depth`` blocks of ``base_dim``."""
    exact = base_dim * math.sqrt(base_depth / depth)
    return num_heads * max(1, round(exact / num_heads))


def _exact(depth, base_depth, base_dim):
    return base_dim * math.sqrt(base_depth / depth)


def _nearest(distance):
    """The multiple of the heads with the least ``distance(width, depth, base_depth, base_dim)``, by trying them all."""
    return lambda depth, base_depth, dim, heads: min(
        range(heads, 4 * dim, heads), key=lambda width: distance(width, depth, base_depth, dim)
    )


_by_trying = _nearest(lambda width, *sizes: abs(width - _exact(*sizes)))


def _multiple(of, rounded=round, least=1):
    """A multiple of the heads near another width."""
    return lambda depth, base_depth, dim, heads: heads * max(least, rounded(of(depth, base_depth, dim) / heads))


EQUAL_WIDTH = {
    "you kept depth times width. A block's matrices grow with the *square* of the width":
        _multiple(lambda depth, base_depth, dim: dim * base_depth / depth),
    "you kept depth times width, rounded down. A block's matrices grow with the *square* of the width":
        lambda depth, base_depth, dim, heads: dim * base_depth // depth,
    "the wrong way round: more blocks must be narrower, fewer must be wider":
        _multiple(lambda depth, base_depth, dim: _exact(base_depth, depth, dim)),
    "that is the base's width: it has to make up for the depth": lambda depth, base_depth, dim, heads: dim,
    "that is the width of one head; a token is num_heads times as wide": lambda *sizes: equal_width(*sizes) // sizes[3],
    "it is not divisible by the heads": lambda *sizes: round(_exact(*sizes[:3])),
    "it is the multiple of the heads below. Take the *nearest* one": _multiple(_exact, math.floor),
    "it is the multiple of the heads above. Take the *nearest* one": _multiple(_exact, math.ceil),
    "a width has to be an int, as round(…) without digits gives": lambda *sizes: float(equal_width(*sizes)),
    "return one number, not a list": lambda *sizes: [equal_width(*sizes)],
    "that is the multiple nearest in *parameters*. Take the one nearest to the exact width":
        _nearest(lambda width, depth, base_depth, dim: abs(depth * width**2 - base_depth * dim**2)),
    "the exact width was rounded before it was brought to a multiple: round once":
        _multiple(lambda *sizes: math.floor(_exact(*sizes))),
}  # fmt: skip
EXERCISES["equal_width"] = Exercise(
    reference=equal_width, truth=_by_trying, mistakes=EQUAL_WIDTH, right=[_by_trying], exact_type=True,
    cases=[
        Case(lambda: (1, 4, 96, 3), "one block instead of four of width 96 may be twice as wide"),
        Case(lambda: (16, 4, 96, 3), "sixteen blocks instead of four of width 96 must be half as wide"),
        Case(lambda: (6, 4, 96, 12), "the exact width is 78.4, and the nearest multiple of 12 is 84"),
        Case(lambda: (9, 4, 100, 5), "the exact width is 66.7, and the nearest multiple of 5 is 65"),
        Case(lambda: (1, 2, 11, 10), "the exact width is 15.6, nearer to 20 than to 10 (in parameters, 10 is nearer)"),
        Case(lambda: (3, 5, 11, 28), "the exact width is 14.2, and the nearest multiple of 28 is 28"),
        Case(lambda: (400, 1, 48, 12), "the exact width is 2.4, but each head needs a feature: 12 is the least",
             _multiple(_exact, least=0)),
    ],
)  # fmt: skip


def fraction_needed(fractions: Float[Tensor, " k"], accuracies: Float[Tensor, " k"], target: float) -> float:
    """The smallest fraction at which a curve, straight lines over its logarithm, is at the target; nan if nowhere."""
    if accuracies[0] >= target:
        return float(fractions[0])
    x = fractions.log()
    for i in range(len(x) - 1):
        if accuracies[i + 1] >= target:
            part = (target - accuracies[i]) / (accuracies[i + 1] - accuracies[i])
            return float(torch.exp(x[i] + part * (x[i + 1] - x[i])))
    return math.nan


def _by_brentq(fractions, accuracies, target):
    """SciPy's zero of what is still missing, between the first two points where there is one."""
    from scipy.optimize import brentq

    x, missing = fractions.log().numpy(), target - accuracies.numpy()
    if missing[0] <= 0:
        return float(fractions[0])
    ends = [(x[i], x[i + 1]) for i in range(len(x) - 1) if missing[i] > 0 >= missing[i + 1]]
    return math.exp(brentq(np.interp, *ends[0], args=(x, missing))) if ends else math.nan


def _reach(
    place=lambda x, y, part: x + part * (y - x),
    x=torch.log,
    back=torch.exp,
    order=1,
    missing=math.nan,
    first=lambda fractions: float(fractions[0]),
    reached=lambda accuracy, target: accuracy >= target,
):
    """fraction_needed with the place between two points, the axis, the order or an end replaced."""

    def fn(fractions, accuracies, target):
        if reached(accuracies[0], target) and first:
            return first(fractions)
        axis = x(fractions)
        for i in range(len(axis) - 1)[::order]:
            low, high = accuracies[i], accuracies[i + 1]
            if low < target and reached(high, target):
                return float(back(place(axis[i], axis[i + 1], (target - low) / (high - low))))
        return missing

    return fn


def _extrapolated(fractions, accuracies, target):
    slope = (accuracies[1] - accuracies[0]) / (fractions[1] / fractions[0]).log()
    return float(fractions[0] * torch.exp((target - accuracies[0]) / slope))


FRACTIONS = [0.01, 0.03, 0.1, 0.3, 1.0]
RISING, WAVY = [30.0, 50, 66, 75, 90], [30.0, 50, 70, 55, 90]


def _curve(accuracies, target, fractions=FRACTIONS):
    return lambda: (*(torch.tensor(values, dtype=torch.float64) for values in (fractions, accuracies)), target)


FRACTION_NEEDED = {
    "nan, but the curve reaches 60 between 0.03 and 0.1": lambda fractions, accuracies, target: math.nan,
    "the line was drawn over the fractions themselves. Take their logarithm first, and exp of the result":
        _reach(x=list, back=float),
    "that is the logarithm of the fraction: take exp of it": _reach(back=float),
    "that is the logarithm of the fraction, to base 10: take 10 to the power of it": _reach(x=torch.log10, back=float),
    "the logarithm is to base 10 and the way back to base e: use the same base for both": _reach(x=torch.log10),
    "the distance was measured from the wrong end: 60 is nearer to 66 than to 50":
        _reach(lambda x, y, part: y - part * (y - x)),
    "that is half way between two fractions. How far to go depends on both accuracies":
        _reach(lambda x, y, part: (x + y) / 2),
    "that is the mean of two fractions. The accuracies say where between them":
        _reach(lambda x, y, part: (x + y) / 2, list, float),
    "that is the first measured fraction at or above the target. The curve reaches it before that":
        _reach(lambda x, y, part: y),
    "that is the last measured fraction below the target. The curve reaches it after that":
        _reach(lambda x, y, part: x),
    "that is a position in the list, not a fraction": _reach(x=lambda fs: torch.arange(len(fs)).double(), back=float),
    "that is all fractions; return one number": lambda fractions, accuracies, target: fractions,
    "that is the accuracy. Return the fraction": lambda fractions, accuracies, target: float(target),
    "None where it is not reached; return math.nan": _reach(missing=None),
}  # fmt: skip
EXERCISES["fraction_needed"] = Exercise(
    reference=fraction_needed, truth=_by_brentq, mistakes=FRACTION_NEEDED,
    cases=[
        Case(_curve(RISING, 60.0), "the curve is at 60 after 10/16 of the way from 0.03 to 0.1, in the logarithm"),
        Case(_curve(RISING, 95.0), "the curve never comes to 95: return math.nan", _reach(missing=1.0)),
        Case(_curve(RISING, 20.0), "the smallest fraction is above the target already: return that fraction",
             _extrapolated),
        Case(_curve(RISING, 30.0), "the curve begins exactly at the target, with the smallest fraction",
             _reach(reached=lambda accuracy, target: accuracy > target, first=None)),
        Case(_curve(RISING, 90.0), "the last fraction is exactly at the target: that counts as reached",
             lambda f, a, t: math.nan if a[-1] == t else fraction_needed(f, a, t)),
        Case(_curve(WAVY, 60.0), "the curve reaches 60, falls below it, and reaches it again: the first time counts",
             _reach(order=-1)),
        Case(_curve([30.0, 65, 50, 55, 58], 60.0),
             "the curve reaches 60 and ends below it. np.interp looks numbers up in a row that rises from end to end",
             lambda fractions, accuracies, target: math.nan if accuracies.max() < target
             else math.exp(np.interp(target, accuracies, fractions.log()))),
        Case(_curve([70.0, 50, 40, 65, 90], 60.0),
             "the curve begins above 60 and then falls below it: the first time counts", _reach(first=None)),
        Case(_curve([40.0, 80], 55.0, [0.2, 0.5]), "right for five points, wrong for two"),
    ],
    right=[_by_brentq, lambda *args: torch.tensor(fraction_needed(*args), dtype=torch.float64)],
    shape="One number", tolerance=1e-6, may_return_none=True,
)  # fmt: skip


def shift(images: Shaped[Tensor, "b c H W"], dx: int, dy: int) -> Shaped[Tensor, "b c H W"]:
    """The images moved ``dx`` pixels to the right and ``dy`` down, with zeros where nothing came from."""
    height, width = images.shape[2:]
    moved = torch.zeros_like(images)
    if abs(dx) < width and abs(dy) < height:
        kept = images[:, :, max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)]
        moved[:, :, max(0, dy) : height - max(0, -dy), max(0, dx) : width - max(0, -dx)] = kept
    return moved


def _by_matrices(images, dx, dy):
    """A matrix from the left that moves rows, and one from the right that moves columns."""
    rows, cols = (torch.arange(size) for size in images.shape[2:])
    down, right = rows[:, None] - dy == rows, cols[:, None] + dx == cols
    return down.to(images.dtype) @ images @ right.to(images.dtype)


def _at_the_border(images, dx, dy):
    height, width = images.shape[2:]
    rows, cols = torch.arange(height) - dy, torch.arange(width) - dx
    return images[:, :, rows.clamp(0, height - 1)][..., cols.clamp(0, width - 1)]


def _moved(dx, dy):
    return lambda b=2, c=3, height=5, width=7: (torch.rand(b, c, height, width) + 1, dx, dy)


EXERCISES["shift"] = Exercise(
    reference=shift, truth=_by_matrices, right=[_by_matrices], given=_moved(2, 1),
    dtype=True, smallest={"height": 3, "width": 4},
    cases=[
        *(Case(_moved(dx, dy), f"wrong for dx {dx}, dy {dy}") for dx, dy in ((-3, 1), (0, -2), (-1, 2), (0, 0))),
        Case(_moved(7, 1), "dx 7 on images 7 wide: everything is pushed out, so the images are black",
             lambda images, dx, dy: images.clone() if dx >= images.shape[3] else shift(images, dx, dy)),
        Case(_moved(-9, 0), "dx -9 on images 7 wide: everything is pushed out, so the images are black"),
        Case(_moved(2, 5), "dy 5 on images 5 high: everything is pushed out, so the images are black"),
        Case(lambda: (torch.full((1, 1, 3, 3), 200, dtype=torch.uint8), 1, 0),
             "images of bytes came back with another dtype: keep the one they have",
             lambda images, dx, dy: shift(images if images.is_floating_point() else images.float(), dx, dy)),
    ],
    mistakes={
        "dx and dy are swapped: dx runs along the width, the last axis": lambda i, dx, dy: shift(i, dy, dx),
        "they moved the other way: positive dx is to the right, positive dy down": lambda i, dx, dy: shift(i, -dx, -dy),
        "what leaves on one side comes back on the other. Fill with zeros": lambda i, dx, dy: i.roll((dy, dx), (2, 3)),
        "the images were not moved": lambda i, dx, dy: i.clone(),
        "the border was repeated. Fill with zeros": _at_the_border,
        "rows moved the other way: positive dy is down": lambda i, dx, dy: shift(i, dx, -dy),
        "columns moved the other way: positive dx is to the right": lambda i, dx, dy: shift(i, -dx, dy),
        "only the columns moved": lambda i, dx, dy: shift(i, dx, 0),
        "only the rows moved": lambda i, dx, dy: shift(i, 0, dy),
        "a negative shift was ignored": lambda i, dx, dy: shift(i, max(dx, 0), max(dy, 0)),
        "the images keep their size: what is pushed out is lost": lambda i, dx, dy: shift(i, dx, dy)[:, :, abs(dy) :],
        "fill with 0; yours has another number there": lambda i, dx, dy: shift(i - 1, dx, dy) + 1,
        "the channels moved along: only rows and columns do": lambda i, dx, dy: shift(i, dx, dy).roll(1, 1),
    },
    shape="The images keep their size",
    otherwise="each pixel must come from dx columns further left and dy rows further up, or be 0",
)  # fmt: skip
