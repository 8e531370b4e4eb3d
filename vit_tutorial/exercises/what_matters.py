"""Exercises of chapter 10: what matters."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.what_matters.sweeps import effect_interval

EXERCISES: dict[str, Exercise] = {}

# scipy.stats takes a second to import, which the other chapters need not wait for: so it is imported where it is used.


def _scipy_interval(base, changed):
    from scipy import stats

    interval = stats.ttest_ind(changed.numpy(), base.numpy(), equal_var=False).confidence_interval(0.95)
    return (changed.mean() - base.mean()).item(), float(interval.low), float(interval.high)


def _welch(a, b, n, m):
    """Degrees of freedom from the two variances of the means and what each is divided by."""
    return (a + b) ** 2 / (a**2 / n + b**2 / m)


def _of_mean(runs, **options):
    return runs.var(**options) / len(runs)


def _interval(square=None, freedom=None, middle=None, quantile=0.975):
    """effect_interval with a part of it replaced by another."""

    def fn(base, changed):
        from scipy import stats

        a, b = _of_mean(base), _of_mean(changed)
        df = freedom(base, changed) if freedom else _welch(a, b, len(base) - 1, len(changed) - 1)
        center = middle(base, changed) if middle else changed.mean() - base.mean()
        half = float(stats.t.ppf(quantile, float(df))) * (square(base, changed) if square else a + b).sqrt()
        return float(center), float(center - half), float(center + half)

    return fn


def _pooled(base, changed):
    n, m = len(base), len(changed)
    return ((n - 1) * base.var() + (m - 1) * changed.var()) / (n + m - 2) * (1 / n + 1 / m)


def _by_variances(of_base, of_changed):
    """With other variances of the means, in the width and in the degrees of freedom."""
    return _interval(
        lambda b, c: of_base(b, c) + of_changed(b, c),
        lambda b, c: _welch(of_base(b, c), of_changed(b, c), len(b) - 1, len(c) - 1),
    )


def _from_ends(change):
    return lambda base, changed: change(*effect_interval(base, changed))


def _runs(base, changed):
    return lambda: (torch.tensor(base, dtype=torch.float64), torch.tensor(changed, dtype=torch.float64))


EXERCISES["effect_interval"] = Exercise(
    reference=effect_interval,
    truth=_scipy_interval,
    cases=[
        Case(given=_runs([90.0, 91, 92], [94.0, 96, 98, 104]), hint="SciPy's Welch interval is another one"),
        Case(
            given=_runs([0.4, 0.8], [0.3, 0.35, 0.2, 0.5, 0.15]),
            hint="right with 3 and 4 runs, wrong with 2 and 5",
            caught=lambda b, c: effect_interval(b, c) if len(b) == 3 else effect_interval(b, c[:4]),
        ),
        Case(
            given=lambda: (torch.tensor([90.0, 91.5, 92]), torch.tensor([94.0, 96, 98.5, 104])),
            hint="right for float64, wrong for float32",
        ),
    ],
    mistakes={
        "that is base minus changed. A change that helps has a positive effect: changed minus base": lambda b, c: (
            effect_interval(c, b)
        ),
        "1.96 holds for many seeds. With few the spread itself is uncertain: take Student's t": lambda b, c: tuple(
            float(c.mean() - b.mean() + k * 1.96 * (_of_mean(b) + _of_mean(c)).sqrt()) for k in (0, -1, 1)
        ),
        "that t has 5 % on *each* side, an interval of 90 %: 0.975 leaves 2.5 % on each": _interval(quantile=0.95),
        "that t has half a per cent on each side, an interval of 99 %: 0.975 leaves 2.5 % on each": _interval(
            quantile=0.995
        ),
        "low and high are swapped": _from_ends(lambda d, low, high: (d, high, low)),
        "the interval lies around 0. It belongs around the difference": _from_ends(
            lambda d, low, high: (d, low - d, high - d)
        ),
        "that is the half width, twice. Return the difference, the low end and the high end": _from_ends(
            lambda d, low, high: (d, high - d, high - d)
        ),
        "two numbers came out. Return the difference, the low end and the high end": _from_ends(
            lambda d, low, high: (low, high)
        ),
        "the order is the difference, the low end, the high end": _from_ends(lambda d, low, high: (low, d, high)),
        "Welch's degrees of freedom were wanted; yours are n + m − 2, which needs equal spreads": _interval(
            freedom=lambda b, c: len(b) + len(c) - 2
        ),
        "the spreads were pooled, as if they were equal. Each side has its own: s²/n + s²/m": _interval(
            _pooled, lambda b, c: len(b) + len(c) - 2
        ),
        "the degrees of freedom are those of the smaller side alone; use Welch's formula": _interval(
            freedom=lambda b, c: min(len(b), len(c)) - 1
        ),
        "in the degrees of freedom, divide by n − 1 and m − 1, not by n and m": _interval(
            freedom=lambda b, c: _welch(_of_mean(b), _of_mean(c), len(b), len(c))
        ),
        "in the degrees of freedom the sum above is squared": _interval(
            freedom=lambda b, c: (
                (_of_mean(b) + _of_mean(c)) / (_of_mean(b) ** 2 / (len(b) - 1) + _of_mean(c) ** 2 / (len(c) - 1))
            )
        ),
        "the variance divides by n − 1, since the mean was estimated from the same values": _by_variances(
            lambda b, c: _of_mean(b, unbiased=False), lambda b, c: _of_mean(c, unbiased=False)
        ),
        "that is the spread of single runs. The mean of n runs is surer: divide each variance by its n": _by_variances(
            lambda b, c: b.var(), lambda b, c: c.var()
        ),
        "the base's seeds scatter as well: add the variance of its mean": _interval(
            lambda b, c: _of_mean(c), lambda b, c: len(c) - 1
        ),
        "the changed runs scatter as well: add the variance of their mean": _interval(
            lambda b, c: _of_mean(b), lambda b, c: len(b) - 1
        ),
        "each variance was divided by the other side's number of runs": _by_variances(
            lambda b, c: b.var() / len(c), lambda b, c: c.var() / len(b)
        ),
        "the errors were added up; their squares add up, and the root is taken of the sum": _interval(
            lambda b, c: (_of_mean(b).sqrt() + _of_mean(c).sqrt()) ** 2
        ),
        "the root is missing: t times a variance": _interval(lambda b, c: (_of_mean(b) + _of_mean(c)) ** 2),
        "that is the difference of the medians; means were wanted": _interval(
            middle=lambda b, c: c.median() - b.median()
        ),
        "a per cent of the base came out; the difference of the means was wanted": _interval(
            middle=lambda b, c: 100 * (c.mean() - b.mean()) / b.mean()
        ),
    },
    right=[_scipy_interval, lambda b, c: torch.tensor(effect_interval(b, c))],
    shape="Three numbers: the difference and the two ends of the interval",
    otherwise="SciPy's Welch interval is another one",
    tolerance=1e-4,
)


def equal_width(depth: int, base_depth: int, base_dim: int, num_heads: int) -> int:
    """The width at which ``depth`` blocks have about as many parameters as ``base_depth`` blocks of ``base_dim``."""
    exact = base_dim * math.sqrt(base_depth / depth)
    return num_heads * max(1, round(exact / num_heads))


def _exact(depth, base_depth, base_dim):
    return base_dim * math.sqrt(base_depth / depth)


def _by_trying(depth, base_depth, base_dim, num_heads):
    exact = _exact(depth, base_depth, base_dim)
    return min(range(num_heads, 4 * base_dim, num_heads), key=lambda width: abs(width - exact))


def _by_count(depth, base_depth, base_dim, num_heads):
    wanted = base_depth * base_dim**2
    return min(range(num_heads, 4 * base_dim, num_heads), key=lambda width: abs(depth * width**2 - wanted))


def _to_multiple(of):
    """From another width, to the nearest multiple."""
    return lambda depth, base_depth, dim, heads: heads * max(1, round(of(depth, base_depth, dim) / heads))


def _asked(*sizes, **options):
    return Case(given=lambda: sizes, **options)


EXERCISES["equal_width"] = Exercise(
    reference=equal_width,
    truth=_by_trying,
    cases=[
        _asked(1, 4, 96, 3, hint="one block instead of four of width 96 may be twice as wide"),
        _asked(16, 4, 96, 3, hint="sixteen blocks instead of four of width 96 must be half as wide"),
        _asked(6, 4, 96, 12, hint="the exact width is 78.4, and the nearest multiple of 12 is 84"),
        _asked(9, 4, 100, 5, hint="the exact width is 66.7, and the nearest multiple of 5 is 65"),
        _asked(
            1,
            2,
            11,
            10,
            hint="the exact width is 15.6, and 20 is nearer to it than 10. Nearest in width was asked, not in "
            "parameters, whose square would prefer the other side",
        ),
        _asked(
            3,
            5,
            11,
            28,
            hint="the exact width is 14.2, and the nearest multiple of 28 is 28",
        ),
        _asked(
            400,
            1,
            48,
            12,
            hint="the exact width is 2.4: a token has at least one number for each head, so 12 is the least",
            caught=lambda d, bd, dim, h: h * round(_exact(d, bd, dim) / h),
        ),
    ],
    mistakes={
        "depth times width stays the same in yours; a block's matrices grow with the *square* of the "
        "width": _to_multiple(lambda depth, base_depth, dim: dim * base_depth / depth),
        "depth times width stays the same in yours, rounded down; a block's matrices grow with the "
        "*square* of the width": (lambda d, bd, dim, h: dim * bd // d),
        "turned round: more blocks must be narrower, fewer must be wider": _to_multiple(
            lambda depth, base_depth, dim: dim * math.sqrt(depth / base_depth)
        ),
        "that is the base's width: it has to make up for the depth": lambda d, bd, dim, h: dim,
        "that is the width of one head; a token is num_heads times as wide": lambda d, bd, dim, h: (
            equal_width(d, bd, dim, h) // h
        ),
        "it is not divisible by the heads": lambda d, bd, dim, h: round(_exact(d, bd, dim)),
        "it is the multiple of the heads below; the *nearest* one was wanted": lambda d, bd, dim, h: max(
            h, h * math.floor(_exact(d, bd, dim) / h)
        ),
        "it is the multiple of the heads above; the *nearest* one was wanted": lambda d, bd, dim, h: (
            h * math.ceil(_exact(d, bd, dim) / h)
        ),
        "a width has to be an int, as round(…) without digits gives": lambda *sizes: float(equal_width(*sizes)),
        "a list came out; one number was wanted": lambda *sizes: [equal_width(*sizes)],
        "that is the multiple with the nearest number of *parameters*; the one nearest to the exact "
        "width was wanted": _by_count,
        "the exact width was rounded first and then brought to a multiple: round once": lambda d, bd, dim, h: (
            h * max(1, round(math.floor(_exact(d, bd, dim)) / h))
        ),
    },
    right=[_by_trying],
    exact_type=True,
)


def crossing(fractions: Float[Tensor, " k"], a: Float[Tensor, " k"], b: Float[Tensor, " k"]) -> float:
    """The smallest fraction at which two curves meet, straight lines over its logarithm; nan if nowhere."""
    x, gap = fractions.log(), a - b
    for i in range(len(gap)):
        if gap[i] == 0:
            return float(fractions[i])
        if i + 1 < len(gap) and gap[i].sign() != gap[i + 1].sign() != 0:
            part = gap[i] / (gap[i] - gap[i + 1])
            return float(torch.exp(x[i] + part * (x[i + 1] - x[i])))
    return math.nan


def _bisected(fractions, a, b):
    """The first zero of the gap, found by halving where its sign changes."""
    x, gap = fractions.double().log().tolist(), (a - b).double().tolist()
    for i, value in enumerate(gap):
        if value == 0:
            return math.exp(x[i])
        if i + 1 < len(gap) and (value < 0) != (gap[i + 1] < 0) and gap[i + 1] != 0:
            low, high = 0.0, 1.0
            for _ in range(60):
                half = (low + high) / 2
                low, high = (half, high) if (value + half * (gap[i + 1] - value) < 0) == (value < 0) else (low, half)
            return math.exp(x[i] + low * (x[i + 1] - x[i]))
    return math.nan


def _cross(place, x=torch.log, back=torch.exp, order=1, missing=math.nan, ends=True, falling=True):
    """crossing with the place between two points, the axis or the order replaced."""

    def fn(fractions, a, b):
        gap, axis = a - b, x(fractions)
        for i in range(len(gap))[::order]:
            if ends and gap[i] == 0:
                return float(fractions[i])
            if i + 1 < len(gap) and gap[i] * gap[i + 1] < 0 and (falling or gap[i] < 0):
                return float(back(place(axis[i], axis[i + 1], gap[i], gap[i + 1])))
        return missing

    return fn


def _zero(x, y, gap, after):
    return x + gap / (gap - after) * (y - x)


def _same(x):
    return x


def _height(fractions, a, b):
    for i in range(len(a) - 1):
        if (a[i] - b[i]) * (a[i + 1] - b[i + 1]) < 0:
            return float(_zero(a[i], a[i + 1], a[i] - b[i], a[i + 1] - b[i + 1]))
    return math.nan


FRACTIONS = [0.01, 0.03, 0.1, 0.3, 1.0]
A, B = [10.0, 40, 70, 80, 84], [30.0, 50, 66, 75, 90]
TOUCHING = [3.0, 2, 0, 1, 2]


def _curves(a, b, fractions=FRACTIONS):
    return lambda: tuple(torch.tensor(values, dtype=torch.float64) for values in (fractions, a, b))


EXERCISES["crossing"] = Exercise(
    reference=crossing,
    truth=_bisected,
    cases=[
        # a − b is −20, −10, 4, 5, −6: it is 0 after 10/14 of the way from 0.03 to 0.1, and again further right.
        Case(
            given=_curves(A, B),
            hint="the curves meet after 10/14 of the way from 0.03 to 0.1, in the logarithm: at 0.0709",
        ),
        Case(
            given=_curves(B, A),
            hint="with a and b swapped the curves still meet at the same fraction: the gap changes its sign, "
            "whichever way",
            caught=_cross(_zero, falling=False),
        ),
        Case(
            given=_curves(A, [value + 1 for value in A]),
            hint="one curve is above the other everywhere, so they do not meet: return math.nan",
            caught=_cross(_zero, missing=1.0),
        ),
        Case(
            given=_curves(TOUCHING, [0.0] * 5),
            hint="the curves meet exactly at a measured fraction, 0.1, without crossing: a gap of 0 has no sign",
            caught=_cross(_zero, ends=False),
        ),
        Case(
            given=_curves([2.0, 1, 1, 0.5, 0], [0.0] * 5),
            hint="the curves meet exactly at the last fraction, 1.0; the last point counts as well",
            caught=lambda f, a, b: crossing(f[:-1], a[:-1], b[:-1]) if a[-1] == b[-1] else crossing(f, a, b),
        ),
        Case(
            given=_curves([0.0, 1, 2, 3, 4], [0.0] * 5),
            hint="the curves meet at the first fraction, and part then; the first point counts as well",
        ),
        Case(
            given=_curves(A, A),
            hint="two curves that are equal everywhere meet at the first fraction already",
            caught=lambda f, a, b: math.nan if torch.equal(a, b) else crossing(f, a, b),
        ),
        Case(given=_curves([1.0, 4], [2.0, 1], [0.2, 0.5]), hint="right for five points, wrong for two"),
    ],
    mistakes={
        "nan, but the curves meet between 0.03 and 0.1": lambda f, a, b: math.nan,
        "the line was drawn over the fractions themselves. Take their logarithm first, and exp of the result": _cross(
            _zero, _same, _same
        ),
        "that is the last place where they meet; the smallest fraction was wanted": _cross(_zero, order=-1),
        "that is the logarithm of the fraction: take exp of it": _cross(_zero, back=_same),
        "that is the logarithm of the fraction, to base 10: take 10 to the power of it": _cross(
            _zero, x=torch.log10, back=_same
        ),
        "the logarithm is to base 10 and the way back to base e: both have to be the same": _cross(
            _zero, x=torch.log10
        ),
        "the way was measured from the wrong end: where the gap is larger, they meet further from it": _cross(
            lambda x, y, gap, after: y - gap / (gap - after) * (y - x)
        ),
        "that is half way between two fractions. Where the gap is 0 depends on how large it is at both": _cross(
            lambda x, y, gap, after: (x + y) / 2
        ),
        "that is the arithmetic middle of two fractions; the gap says where between them": _cross(
            lambda x, y, gap, after: (x + y) / 2, _same, _same
        ),
        "that is the first fraction after the crossing; they meet between it and the one before": _cross(
            lambda x, y, gap, after: y
        ),
        "that is the last fraction before the crossing; they meet between it and the next": _cross(
            lambda x, y, gap, after: x
        ),
        "that is a position in the list, not a fraction": _cross(
            _zero, lambda fractions: torch.arange(len(fractions)).double(), _same
        ),
        "that is the accuracy at the crossing; the fraction was wanted": _height,
        "that is all fractions; one number was wanted": lambda f, a, b: f,
        "None where they do not meet; math.nan was wanted": lambda f, a, b: (
            None if math.isnan(crossing(f, a, b)) else crossing(f, a, b)
        ),
    },
    right=[_bisected, lambda *args: torch.tensor(crossing(*args), dtype=torch.float64)],
    shape="One number",
    tolerance=1e-6,
    may_return_none=True,
)


def shift(images: Shaped[Tensor, "b c H W"], dx: int, dy: int) -> Shaped[Tensor, "b c H W"]:
    """The images moved ``dx`` pixels to the right and ``dy`` down, with zeros where nothing came from."""
    height, width = images.shape[2:]
    moved = torch.zeros_like(images)
    if abs(dx) < width and abs(dy) < height:
        kept = images[:, :, max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)]
        moved[:, :, max(0, dy) : height - max(0, -dy), max(0, dx) : width - max(0, -dx)] = kept
    return moved


def _pixel_by_pixel(images, dx, dy):
    """Where each pixel comes from."""
    height, width = images.shape[2:]
    rows = [[(y - dy, x - dx) for x in range(width)] for y in range(height)]
    black = images[:, :, 0, 0] * 0
    return torch.stack(
        [
            torch.stack([images[:, :, y, x] if 0 <= y < height and 0 <= x < width else black for y, x in row], dim=-1)
            for row in rows
        ],
        dim=-2,
    )


def _at_the_border(images, dx, dy):
    height, width = images.shape[2:]
    rows, cols = torch.arange(height) - dy, torch.arange(width) - dx
    return images[:, :, rows.clamp(0, height - 1)][..., cols.clamp(0, width - 1)]


def _moved_by(dx, dy, **options):
    return Case(given=lambda: (torch.rand(2, 3, 5, 7) + 1, dx, dy), hint=f"wrong for dx {dx}, dy {dy}", **options)


EXERCISES["shift"] = Exercise(
    reference=shift,
    truth=_pixel_by_pixel,
    given=lambda b=2, c=3, height=5, width=7: (torch.rand(b, c, height, width) + 1, 2, 1),
    cases=[
        *(_moved_by(*moves) for moves in ((-3, 1), (0, -2), (-1, 2), (0, 0))),
        Case(
            given=lambda: (torch.rand(2, 3, 5, 7) + 1, 7, 1),
            hint="dx 7 on images 7 wide: everything is pushed out, so the images are black",
            caught=lambda images, dx, dy: images.clone() if dx >= images.shape[3] else shift(images, dx, dy),
        ),
        Case(
            given=lambda: (torch.rand(2, 3, 5, 7) + 1, -9, 0),
            hint="dx -9 on images 7 wide: everything is pushed out, so the images are black",
        ),
        Case(
            given=lambda: (torch.rand(2, 3, 5, 7) + 1, 2, 5),
            hint="dy 5 on images 5 high: everything is pushed out, so the images are black",
        ),
        Case(
            given=lambda: (torch.full((1, 1, 3, 3), 200, dtype=torch.uint8), 1, 0),
            hint="images of bytes came back with another dtype: keep the one they have",
            caught=lambda images, dx, dy: shift(images if images.is_floating_point() else images.float(), dx, dy),
        ),
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
        "what comes in is 0; yours has another number there": lambda i, dx, dy: torch.where(
            shift(i, dx, dy) == 0, 1, shift(i, dx, dy)
        ),
        "the channels moved along: only rows and columns do": lambda i, dx, dy: shift(i, dx, dy).roll(1, 1),
    },
    right=[_pixel_by_pixel],
    shape="The images keep their size",
    otherwise="each pixel must come from dx columns further left and dy rows further up, or be 0",
    dtype=True,
    smallest={"height": 3, "width": 4},
)
