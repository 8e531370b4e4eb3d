"""The drawings of chapter 6: curves, a ladder of recipes, effects of ingredients, rows of digits."""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.figure import Figure
from torch import Tensor

from vit_tutorial import plots

OURS, OTHER, WARN = plots.COLOURS["ours"], plots.COLOURS["other"], plots.PALETTE[4]


def confusion(counts: Int[Tensor, "k k"], classes: Sequence[str]) -> Figure:
    """Rows are what was written, columns what was read: right answers on the diagonal, mistakes in orange."""
    fig, ax = plots.subplots(figsize=(6, 5.6))  # room for four digits in a cell
    plots.confusion_matrix(counts, list(classes), ax)
    return fig


def losses_by_rate(losses: dict[str, Float[Tensor, " steps"]], clueless: float) -> Figure:
    """A training loss for each learning rate, step by step, on a log axis; dotted, that of knowing nothing."""
    fig, ax = plots.subplots(figsize=(5.6, 3.4))
    ax.axhline(clueless, color="black", linestyle=":", linewidth=1.5, label="ln k")
    for (rate, values), colour in zip(losses.items(), itertools.cycle(plots.PALETTE[:5])):
        ax.plot(range(1, len(values) + 1), values, color=colour, label=rate)
    ax.set(xlabel="step", ylabel="training loss", yscale="log")
    fig.legend(loc="outside upper center", ncols=4, fontsize=11)
    return fig


def ladder(wrong: dict[str, Sequence[float]]) -> Figure:
    """Mistakes in per cent, on a log axis: a dot for each run, the means joined, in orange where they about halve.

    Args:
        wrong: of each rung's runs, from the first rung to the last.
    """
    fig, ax = plots.subplots(figsize=(5.2, 4.9))
    beside = {"va": "center", "transform": ax.get_yaxis_transform()}
    means = [sum(runs) / len(runs) for runs in wrong.values()]
    for row, (former, later) in enumerate(itertools.pairwise(means)):
        colour = WARN if later < 0.52 * former else OTHER
        ax.plot([former, later], [row, row + 1], color=colour, linewidth=3, alpha=0.7, zorder=1)
    for row, (rung, runs) in enumerate(wrong.items()):
        heights = row + 0.17 * (torch.arange(len(runs)) - (len(runs) - 1) / 2)
        ax.plot(runs, heights, "o", color=OURS, markersize=8, markeredgecolor="white")
        ax.text(-0.04, row, f"{row + 1} {rung}", ha="right", **beside)
        ax.text(1.03, row, f"{means[row]:.1f} %", **beside)
    low, high = 0.8 * min(map(min, wrong.values())), 1.25 * max(map(max, wrong.values()))
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= tick <= high]
    ax.set(xscale="log", xlabel="wrong test images, %", xlim=(low, high), ylim=(len(wrong) - 0.5, -0.5), yticks=[])
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.grid(axis="x", alpha=0.3)
    return fig


def softmaxes(
    losses: dict[str, Sequence[Sequence[float]]],
    floor: float,
    chances: Float[Tensor, " n"],
    pulls: dict[str, Float[Tensor, " n"]],
) -> Figure:
    """Left, the training loss of each run over the epochs, above its floor; right, the pull on the true logit.

    Args:
        losses: of the runs with two softmaxes and with one; the first run of the first kind is dashed.
        floor: the lowest loss that two softmaxes allow.
        chances: probabilities of the true class.
        pulls: for each kind, how hard the loss pulls at its logit there.
    """
    colours = dict(zip(losses, (WARN, OURS), strict=True))
    fig, (left, right) = plots.subplots(1, 2, figsize=(6, 3.5))
    for kind, runs in losses.items():
        for number, run in enumerate(runs):
            style = ".--" if kind == next(iter(losses)) and number == 0 else ".-"
            left.plot(range(1, len(run) + 1), run, style, color=colours[kind])
        right.plot(chances, pulls[kind], color=colours[kind], label=kind)
    left.axhline(floor, color="black", linestyle=":", linewidth=1.5, label=f"floor, {floor:.3f}")
    left.set(xlabel="epoch", title="training loss", ylim=(0, 2.1))
    left.xaxis.get_major_locator().set_params(integer=True)
    right.set(xlabel="probability p of its class", title="pull on its logit", ylim=(0, 1.05))
    fig.legend(loc="outside upper center", ncols=3, fontsize=11)
    return fig


def effects(groups: dict[str, dict[str, tuple[float, float, float]]], far: float = -2.6) -> Figure:
    """Changes in accuracy with their 95 % intervals, sorted within each group; blue where the interval excludes 0.

    Args:
        groups: for each group of changes, the middle and both ends of each, in points.
        far: what lies beyond is told in words.
    """
    fig, ax = plots.subplots(figsize=(4.9, 5.6))
    beside, row = {"ha": "right", "va": "center", "transform": ax.get_yaxis_transform()}, 0
    for group, changes in groups.items():
        ax.text(-0.03, row, group, weight="bold", **beside)
        for name, (middle, low, high) in sorted(changes.items(), key=lambda change: change[1]):
            row += 1
            colour = OURS if low > 0 or high < 0 else OTHER
            ax.text(-0.03, row, name, **beside)
            if middle < far:
                words = f"◀ {middle:.1f} ({low:.1f} to {high:.1f})".replace("-", "−")
                ax.text(far, row, words, color=colour, va="center", fontsize=12)
            else:
                ax.plot([low, high], [row, row], color=colour)
                ax.plot(middle, row, "o", color=colour)
        row += 1.3
    ax.axvline(0, color="black", linewidth=1)
    ax.set(yticks=[], ylim=(row - 0.7, -0.5), xlabel="change in accuracy, points")
    ax.set_xlim(left=1.02 * far)
    return fig


def schedules(rates: dict[str, Sequence[float]], warm: int) -> Figure:
    """Learning rates over the steps of a run, ours first; the dotted line ends its warm-up."""
    fig, ax = plots.subplots(figsize=(5.2, 3.1))
    looks = (("-", OURS), ("--", OTHER), ("-.", WARN), (":", "black"))
    for number, (name, values) in enumerate(rates.items()):
        style, colour = looks[number % len(looks)]
        ax.plot(values, style, color=colour, label=name)
    ax.axvline(warm, color="grey", linestyle=":", linewidth=1.5, label="end of the warm-up")
    ax.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
    fig.legend(loc="outside upper center", ncols=3, fontsize=11)
    return fig


def rows_of_digits(rows: dict[str, Shaped[Tensor, "n 1 H W"]], titles: Sequence[str] | None = None) -> Figure:
    """A row of digits for each name, which stands beside it; the titles go over the digits, row by row."""
    count = len(next(iter(rows.values())))
    fig = plots.show_images(torch.cat([*rows.values()]), titles and list(titles), count, size=0.95)
    for ax, name in zip(fig.axes[::count], rows, strict=True):
        ax.text(-0.12, 0.5, name, ha="right", va="center", fontsize=13, transform=ax.transAxes)
    for ax in fig.axes:
        ax.title.set_fontsize(12)
    return fig
