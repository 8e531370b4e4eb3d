"""Checks of chapter 10, what matters."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vit_tutorial.exercises.engine import call, checks, compare, expect, expect_shape
from vit_tutorial.what_matters.sweeps import effect_interval

# scipy.stats and scipy.optimize take a second to import, which the other chapters need not wait for: so they are
# imported where they are used.


def _numbers(result, count: int, names: str) -> Tensor:
    """``result`` as a tensor of ``count`` numbers, be it a tuple, a list or a tensor."""
    parts = list(result) if isinstance(result, tuple | list) or getattr(result, "ndim", 0) == 1 else []
    single = all(isinstance(part, int | float) or getattr(part, "shape", None) in ((), (1,)) for part in parts)
    expect(len(parts) == count and single, f"expected {count} numbers, {names}; got {result!r}")
    return torch.tensor([float(part) for part in parts], dtype=torch.float64)


@checks(effect_interval)
def check_effect_interval(fn):
    from scipy import stats

    names = "the difference and the two ends of the interval"
    base, changed = torch.tensor([90.0, 91, 92]).double(), torch.tensor([94.0, 96, 98, 104]).double()
    result = _numbers(call(fn, base, changed), 3, names)
    # Means 91 and 98; variances 1 and 56/3, so of the means 1/3 and 14/3; their sum is 5.
    freedom = 25 / ((1 / 3) ** 2 / 2 + (14 / 3) ** 2 / 3)

    def ends(square: float, df: float, quantile: float = 0.975, middle: float = 7.0) -> Tensor:
        half = (stats.t.ppf(quantile, df) if df else 1.96) * math.sqrt(square)
        return torch.tensor([middle, middle - half, middle + half], dtype=torch.float64)

    truth = stats.ttest_ind(changed.numpy(), base.numpy(), equal_var=False).confidence_interval(0.95)
    truth = torch.tensor([7.0, truth.low, truth.high], dtype=torch.float64)
    half = float(truth[2] - truth[0])
    compare(
        result,
        truth,
        {
            "that is base minus changed. A change that helps has a positive effect: changed minus base": (
                ends(5, freedom, middle=-7.0)
            ),
            "low and high are swapped": truth[[0, 2, 1]],
            "the interval lies around 0. It belongs around the difference": torch.tensor([7.0, -half, half]).double(),
            "that is the half width, twice. Return the difference, the low end and the high end": (
                torch.tensor([7.0, half, half]).double()
            ),
            "1.96 holds for many seeds. With few the spread itself is uncertain: take Student's t": ends(5, 0),
            "that t has 5 % on *each* side, an interval of 90 %: 0.975 leaves 2.5 % on each": ends(5, freedom, 0.95),
            "Welch's degrees of freedom were wanted; yours are n + m − 2, which needs equal spreads": ends(5, 5),
            "the spreads were pooled, as if they were equal. Each side has its own: s²/n + s²/m": (
                ends(11.6 * (1 / 3 + 1 / 4), 5)
            ),
            "the degrees of freedom are those of the smaller side alone; use Welch's formula": ends(5, 2),
            "in the degrees of freedom, divide by n − 1 and m − 1, not by n and m": (
                ends(5, 25 / ((1 / 3) ** 2 / 3 + (14 / 3) ** 2 / 4))
            ),
            "in the degrees of freedom the sum above is squared": ends(5, 5 / ((1 / 3) ** 2 / 2 + (14 / 3) ** 2 / 3)),
            "the variance divides by n − 1, since the mean was estimated from the same values": (
                ends(2 / 9 + 14 / 4, (2 / 9 + 14 / 4) ** 2 / ((2 / 9) ** 2 / 2 + (14 / 4) ** 2 / 3))
            ),
            "that is the spread of single runs. The mean of n runs is surer: divide each variance by its n": (
                ends(1 + 56 / 3, (1 + 56 / 3) ** 2 / (1 / 2 + (56 / 3) ** 2 / 3))
            ),
            "the base's seeds scatter as well: add the variance of its mean": ends(14 / 3, 3),
            "the changed runs scatter as well: add the variance of their mean": ends(1 / 3, 2),
            "each variance was divided by the other side's number of runs": (
                ends(1 / 4 + 56 / 9, (1 / 4 + 56 / 9) ** 2 / ((1 / 4) ** 2 / 2 + (56 / 9) ** 2 / 3))
            ),
            "the errors were added up; their squares add up, and the root is taken of the sum": (
                ends((math.sqrt(1 / 3) + math.sqrt(14 / 3)) ** 2, freedom)
            ),
            "the root is missing: t times a variance": ends(25, freedom),
            "that is the difference of the medians; means were wanted": ends(5, freedom, middle=5.0),
        },
        f"for {base.tolist()} and {changed.tolist()} wanted {[round(x, 4) for x in truth.tolist()]}, got "
        f"{[round(x, 4) for x in result.tolist()]}",
        tolerance=1e-3,
    )
    few, more = torch.tensor([0.4, 0.8]).double(), torch.tensor([0.3, 0.35, 0.2, 0.5, 0.15]).double()
    truth = stats.ttest_ind(more.numpy(), few.numpy(), equal_var=False).confidence_interval(0.95)
    truth = torch.tensor([-0.3, truth.low, truth.high], dtype=torch.float64)
    compare(
        _numbers(call(fn, few, more), 3, names),
        truth,
        {},
        f"with 2 and 5 runs it is another one: wanted {[round(x, 4) for x in truth.tolist()]}",
        tolerance=1e-3,
    )


def equal_width(depth: int, base_depth: int, base_dim: int, num_heads: int) -> int:
    """The width at which ``depth`` blocks have about as many parameters as ``base_depth`` blocks of ``base_dim``."""
    exact = base_dim * math.sqrt(base_depth / depth)
    return num_heads * max(1, round(exact / num_heads))


@checks(equal_width)
def check_equal_width(fn):
    cases = [(1, 4, 96, 3), (16, 4, 96, 3), (6, 4, 96, 12), (9, 4, 100, 5), (400, 1, 48, 12)]
    for depth, base_depth, base_dim, heads in cases:
        result = call(fn, depth, base_depth, base_dim, heads)
        is_number = isinstance(result, int | float | Tensor) and not isinstance(result, bool)
        expect(is_number, f"expected a number, got {type(result).__name__}")
        whole = isinstance(result, int)
        asked = f"for depth {depth} instead of {base_depth} at width {base_dim}, {heads} heads"
        result, ratio = float(result), base_depth / depth
        expect(result > 0, f"{asked}: got {result:g}. A token has at least one number for each head")
        exact = base_dim * math.sqrt(ratio)
        places = range(heads, 4 * base_dim, heads)
        wanted = min(places, key=lambda width: abs(width - exact))  # by trying them all
        mistakes = {
            "depth times width stays the same in yours; a block's matrices grow with the *square* of the width": (
                base_dim * ratio
            ),
            "turned round: more blocks must be narrower, fewer must be wider": base_dim / math.sqrt(ratio),
            "that is the base's width: it has to make up for the depth": base_dim,
            "that is the width of one head; a token is num_heads times as wide": wanted / heads,
        }
        for hint, wrong in mistakes.items():
            near = {wrong, heads * round(wrong / heads), round(wrong), int(wrong)}
            expect(result == wanted or result not in near, f"{asked}: got {result:g}. {hint}")
        expect(
            result % heads == 0,
            f"{asked}: got {result:g}, which is not divisible by the heads",
        )
        expect(
            result == wanted,
            f"{asked}: got {result:g}, wanted {wanted}: the multiple of {heads} that is *nearest* to {exact:.2f}, not "
            f"the one {'below' if result < wanted else 'above'}",
        )
        expect(whole, f"{asked}: {result:g} is right, but a width has to be an int, as round(…) without digits gives")


def crossing(shares: Float[Tensor, " k"], a: Float[Tensor, " k"], b: Float[Tensor, " k"]) -> float:
    """The smallest share at which two curves meet, straight lines over the logarithm of the shares; nan if nowhere."""
    x, gap = shares.log(), a - b
    for i in range(len(gap)):
        if gap[i] == 0:
            return float(shares[i])
        if i + 1 < len(gap) and gap[i] * gap[i + 1] < 0:
            part = gap[i] / (gap[i] - gap[i + 1])
            return float(torch.exp(x[i] + part * (x[i + 1] - x[i])))
    return math.nan


@checks(crossing)
def check_crossing(fn):
    shares = torch.tensor([0.01, 0.03, 0.1, 0.3, 1.0]).double()
    a, b = torch.tensor([10.0, 40, 70, 80, 84]).double(), torch.tensor([30.0, 50, 66, 75, 90]).double()

    def ask(*given: Tensor) -> Tensor:
        result = call(fn, *given)
        is_number = isinstance(result, int | float | Tensor) and torch.as_tensor(result).numel() == 1
        expect(is_number, f"expected one number, got {result!r}")
        return torch.tensor(float(result), dtype=torch.float64)

    def number(value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64)

    # a − b is −20, −10, 4, 5, −6: it is 0 after 10/14 of the way from 0.03 to 0.1, and again further right.
    truth = 0.03 * (0.1 / 0.03) ** (10 / 14)
    result = ask(shares, a, b)
    expect(not result.isnan(), "nan, but the curves meet between 0.03 and 0.1")
    compare(
        result,
        number(truth),
        {
            "the line was drawn over the shares themselves. Take their logarithm first, and exp of the result": (
                number(0.03 + 0.07 * 10 / 14)
            ),
            "that is the last place where they meet; the smallest share was wanted": (
                number(0.3 * (1 / 0.3) ** (5 / 11))
            ),
            "that is the logarithm of the share: take exp of it": number(math.log(truth)),
            "that is the logarithm of the share, to base 10: take 10 to the power of it": number(math.log10(truth)),
            "the way was measured from the wrong end: at 0.03 the gap is larger, so they meet further from it": (
                number(0.03 * (0.1 / 0.03) ** (4 / 14))
            ),
            "that is half way between two shares. Where the gap is 0 depends on how large it is at both": (
                number(math.sqrt(0.003))
            ),
            "that is the arithmetic middle of two shares; the gap says where between them": number(0.065),
            "that is the first share after the crossing; they meet between it and the one before": number(0.1),
            "that is the last share before the crossing; they meet between it and the next": number(0.03),
            "that is a position in the list, not a share": number(1 + 10 / 14),
            "that is the accuracy at the crossing; the share was wanted": number(40 + 30 * 10 / 14),
        },
        f"wanted {truth:.5f}, got {float(result):.5f}",
    )
    expect(
        bool((ask(shares, b, a) - truth).abs() < 1e-6),
        "with a and b swapped the curves still meet at the same share: the gap changes its sign, whichever way",
    )
    expect(
        bool(ask(shares, a, a + 1).isnan()),
        "one curve is above the other everywhere, so they do not meet: return float('nan')",
    )
    touching = torch.tensor([3.0, 2, 0, 1, 2]).double()
    expect(
        bool((ask(shares, touching, torch.zeros(5).double()) - 0.1).abs() < 1e-6),
        "the curves meet exactly at a measured share, 0.1, without crossing: a gap of 0 has no sign",
    )
    expect(
        bool((ask(shares, touching.flip(0)[[0, 1, 3, 4, 2]], torch.zeros(5).double()) - 1).abs() < 1e-6),
        "the curves meet exactly at the last share, 1.0; the last point counts as well",
    )
    expect(
        bool((ask(shares, a, a) - 0.01).abs() < 1e-6),
        "two curves that are equal everywhere meet at the first share already",
    )


def shift(images: Shaped[Tensor, "b c H W"], dx: int, dy: int) -> Shaped[Tensor, "b c H W"]:
    """The images moved ``dx`` pixels to the right and ``dy`` down, with zeros where nothing came from."""
    height, width = images.shape[2:]
    moved = torch.zeros_like(images)
    if abs(dx) < width and abs(dy) < height:
        kept = images[:, :, max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)]
        moved[:, :, max(0, dy) : height - max(0, -dy), max(0, dx) : width - max(0, -dx)] = kept
    return moved


@checks(shift)
def check_shift(fn):
    images = torch.rand(2, 3, 5, 7) + 1
    b, c, height, width = images.shape

    def by_hand(dx: int, dy: int, outside: str = "zero") -> Tensor:
        """Pixel by pixel, where each one comes from."""
        moved = torch.zeros_like(images)
        for y in range(height):
            for x in range(width):
                row, col = y - dy, x - dx
                if outside == "edge":
                    row, col = min(max(row, 0), height - 1), min(max(col, 0), width - 1)
                elif outside == "round":
                    row, col = row % height, col % width
                if 0 <= row < height and 0 <= col < width:
                    moved[:, :, y, x] = images[:, :, row, col]
        return moved

    for dx, dy in ((2, 1), (-3, 1), (0, -2), (-1, 2), (0, 0), (7, 1), (-9, 0), (2, 5)):
        result = call(fn, images, dx, dy)
        expect_shape(result, (b, c, height, width), "the images keep their size: what is pushed out is lost")
        where = f"dx {dx}, dy {dy}: "
        right = by_hand(dx, dy)
        if abs(dx) >= width or abs(dy) >= height:
            compare(result, right, {}, where + "everything is pushed out, so the images are black")
        mistakes = {
            "a negative shift was ignored": by_hand(max(dx, 0), max(dy, 0)),
            "the images were not moved": images,
            "what leaves on one side comes back on the other. Fill with zeros": by_hand(dx, dy, "round"),
            "the border was repeated. Fill with zeros": by_hand(dx, dy, "edge"),
            "dx and dy are swapped: dx runs along the width, the last axis": by_hand(dy, dx),
            "they moved the other way: positive dx is to the right, positive dy down": by_hand(-dx, -dy),
            "rows moved the other way: positive dy is down": by_hand(dx, -dy),
            "columns moved the other way: positive dx is to the right": by_hand(-dx, dy),
            "only the columns moved": by_hand(dx, 0),
            "only the rows moved": by_hand(0, dy),
        }
        compare(
            result,
            right,
            {where + hint: wrong for hint, wrong in mistakes.items() if not torch.equal(wrong, right)},
            where + "each pixel must come from dx columns further left and dy rows further up, or be 0",
        )
    moved = call(fn, torch.full((1, 1, 3, 3), 200, dtype=torch.uint8), 1, 0)
    expect(moved.dtype == torch.uint8, f"images of bytes came back as {moved.dtype}: keep the type they have")
