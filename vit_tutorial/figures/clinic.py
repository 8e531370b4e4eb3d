"""Chapter 12: loss curves that tell little, and what each sick part does beside a healthy one."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from vit_tutorial import plots

HEALTHY, SICK, GREY = plots.PALETTE[0], plots.PALETTE[4], "0.65"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _colour(name: str) -> str:
    """Blue for a healthy model, orange for a sick one."""
    return HEALTHY if "healthy" in name else SICK


def _pair(names: Sequence[str], **options) -> tuple[Figure, list[Axes]]:
    """An empty figure with a panel for each model, side by side."""
    fig, axes = plots.subplots(1, len(names), figsize=(6, 3.3), squeeze=False, sharey=True, **options)
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(name, color=_colour(name))
    return fig, list(axes[0])


def line_up(curves: Sequence[Sequence[float]], accuracies: Sequence[float], columns: int = 4) -> Figure:
    """Training losses by epoch: a panel for each model, its curve thick, those of all the others thin behind it.

    Args:
        curves: a loss for each epoch, of each model.
        accuracies: of each model, 0 to 1, for the titles.
    """
    rows = -(-len(curves) // columns)
    fig, axes = plots.subplots(rows, columns, figsize=(6, 1.4 * rows), sharex=True, sharey=True, squeeze=False)
    for ax, letter, ours, right in zip(axes.flat, LETTERS, curves, accuracies, strict=False):
        for curve in curves:
            ax.plot(range(1, len(curve) + 1), curve, color=GREY, linewidth=0.8)
        ax.plot(range(1, len(ours) + 1), ours, color=plots.PALETTE[3], linewidth=3)
        ax.set_title(f"{letter}: {100 * right:.0f} %")
        ax.set(ylim=(0, 2.5), yticks=(0, 1, 2))
        ax.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    for ax in axes.flat[len(curves) :]:
        ax.axis("off")
    for ax in axes.flat[max(0, len(curves) - columns) : len(curves)]:  # those without another below
        ax.tick_params(labelbottom=True)
    fig.supxlabel("epochs", fontsize=12)
    fig.supylabel("training loss", fontsize=12)
    return fig


def effects(effects: Mapping[str, tuple[float, float, float]], least: float = -19) -> Figure:
    """Points gained over the healthy twin, a row for each model: the mean, and the ends of its 95 % interval.

    Hollow dots: the interval contains 0. What lies below ``least`` is written at the edge.
    """
    fig, ax = plots.subplots(figsize=(6, 0.36 * len(effects) + 1))
    ax.axvline(0, color=HEALTHY, linewidth=1)
    for place, (middle, low, high) in enumerate(effects.values()):
        clear = low > 0 or high < 0
        note = f"{middle:+.0f}" if middle > least else f"◂ {middle:.1f} ± {(high - low) / 2:.1f}"
        at, side = (high + 0.4, "left") if middle > 0 else (low - 0.4, "right")  # not across the line at 0
        at, side = (at, side) if middle > least else (least + 0.5, "left")
        if clear:
            ax.text(at, place, note.replace("-", "−"), ha=side, va="center", color=SICK, fontsize=11)
        ax.plot([low, high], [place, place], color=SICK)
        ax.plot(middle, place, "o", color=SICK, markersize=7, mfc=SICK if clear else "white", mew=1.5)
    ax.set_yticks(range(len(effects)), list(effects), fontsize=11)
    ax.set(ylim=(len(effects) - 0.4, -0.6), xlim=(least, 5))
    ax.set_xlabel("points of test accuracy\nagainst the healthy twin", fontsize=11)
    return fig


def by_heart(losses: Mapping[str, Sequence[float]], level: float, note: str, named: Sequence[str] = ()) -> Figure:
    """Losses by step, on a logarithmic axis if there are many steps; a dashed line at ``level``.

    The healthy model and those in ``named`` are thick and have their names at the end; the others are thin and grey.
    """
    fig, ax = plots.subplots(figsize=(6, 2.9))
    most = max(len(curve) for curve in losses.values())
    for name, curve in losses.items():
        told = name in named or name == "healthy"
        look = {"color": _colour(name), "linewidth": 3, "zorder": 3} if told else {"color": GREY, "linewidth": 1}
        ax.plot(range(1, len(curve) + 1), curve, **look)
        if told:
            ax.text(len(curve) * 1.03, curve[-1] + 0.1, name, color=_colour(name), fontsize=12)
    ax.axhline(level, color="0.5", linestyle="--", linewidth=1)
    ax.text(most * 1.03, level - 0.04, note, va="top", fontsize=12)
    ax.set(xlabel="step", ylabel="loss on 16 images", ylim=(0, 2.6), xlim=(None, most * 1.3))
    if most > 200:
        ax.set(xscale="log", xlim=(0.9, most * 2.2))
    return fig


def scores(scores: Mapping[str, Float[Tensor, "b k"]]) -> Figure:
    """The scores of several images, a line for each, a panel for each model."""
    fig, axes = _pair(list(scores))
    for ax, (name, lines) in zip(axes, scores.items(), strict=True):
        ax.plot(lines.T, color=_colour(name), linewidth=1.2)
        ax.set(xlabel="class", xticks=range(0, lines.shape[1], 3))
    axes[0].set_ylabel("score")
    return fig


def dots(values: Mapping[str, Float[Tensor, " n"]], xlabel: str, ylabel: str, notes: Sequence[str] = ()) -> Figure:
    """Numbers in their order, a dot each, one colour for the healthy and one for the sick model.

    Args:
        notes: names of equal parts of the axis, with a thin line between two.
    """
    fig, ax = plots.subplots(figsize=(6, 2.9))
    for name, numbers in values.items():
        ax.plot(numbers, ".", color=_colour(name), label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if notes:
        part = len(numbers) / len(notes)
        ax.set_xticks([(i + 0.5) * part for i in range(len(notes))], notes, fontsize=11)
        for i in range(1, len(notes)):
            ax.axvline(i * part - 0.5, color="0.8", linewidth=1)
    ax.legend(fontsize=12, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def token_of_each_pixel(tokens: Mapping[str, Int[Tensor, "H W"]]) -> Figure:
    """Pixels, each with the number of the token that it goes to and in its colour; token 0 in a box for each pixel."""
    fig, axes = _pair(list(tokens))
    tints = torch.tensor([[207, 227, 243], [247, 220, 198], [211, 235, 216]])
    for ax, (name, grid) in zip(axes, tokens.items(), strict=True):
        ax.imshow(tints[grid % 3])
        for (top, left), token in zip(
            torch.cartesian_prod(*map(torch.arange, grid.shape)), grid.flatten(), strict=True
        ):
            weight = "bold" if token == 0 else "normal"
            color = _colour(name) if token == 0 else "black"
            ax.text(left, top, int(token), ha="center", va="center", fontsize=11, color=color, weight=weight)
        ax.spines[:].set_visible(False)
        ax.set(xticks=[], yticks=[])
    return fig


def lengths(lengths: Mapping[str, Float[Tensor, " depth"]], laws: Mapping[str, Float[Tensor, " depth"]]) -> Figure:
    """Lengths of a vector by the number of blocks, and laws to compare with, dashed."""
    fig, ax = plots.subplots(figsize=(6, 3.2))
    most = max(values.max().item() for values in lengths.values())
    for name, values in lengths.items():
        ax.plot(range(1, len(values) + 1), values, color=_colour(name), linewidth=3, label=name)
    for (name, values), line in zip(laws.items(), ("--", ":"), strict=False):
        ax.plot(range(1, len(values) + 1), values, color="0.3", linestyle=line, linewidth=1.5, label=name)
    ax.set(xlabel="blocks", ylabel="length of the vector", ylim=(0, 1.4 * most))
    ax.legend(fontsize=12, loc="upper left")
    return fig


def matrices(
    matrices: Mapping[str, Float[Tensor, "n m"]], xlabel: str, ylabel: str, sums: Sequence[int] = ()
) -> Figure:
    """Matrices side by side, each on its own scale from 0: the brighter, the larger.

    Args:
        sums: rows whose sum is written at their right end.
    """
    fig, axes = _pair(list(matrices))
    for ax, matrix in zip(axes, matrices.values(), strict=True):
        ax.imshow(matrix, cmap="cividis", vmin=0)
        ax.set_xlabel(xlabel)
        for row in sums:
            ax.text(matrix.shape[1], row, f"Σ {matrix[row].sum():.2f}", va="center", fontsize=11)
    axes[0].set_ylabel(ylabel)
    return fig


def by_rank(weights: Mapping[str, Float[Tensor, " n"]]) -> Figure:
    """Attention weights from the largest down, and a dashed line where all would be equal."""
    fig, ax = plots.subplots(figsize=(6, 2.9))
    for name, heights in weights.items():
        ax.plot(range(1, len(heights) + 1), heights, "o-", color=_colour(name), label=name)
    ax.axhline(1 / len(heights), color="0.5", linestyle="--", label="uniform")
    ax.set(xlabel="key, by rank", ylabel="attention weight", ylim=(0, None))
    ax.legend(fontsize=12)
    return fig


def parts_of_tokens(parts: Mapping[str, Float[Tensor, " n"]]) -> Figure:
    """A row for each model, and in it a disk for each token, whose area is the token's part; the largest is written."""
    fig, ax = plots.subplots(figsize=(6, 0.55 * len(parts) + 0.9))
    for row, (name, part) in enumerate(parts.items()):
        ax.scatter(range(len(part)), [row] * len(part), s=600 * part, color=_colour(name))
        most = part.max().item()
        ax.text(len(part), row, "all" if most > 0.999 else f"{most:.3f} each", va="center", fontsize=11)
    ax.set_yticks(range(len(parts)), list(parts), fontsize=11)
    ax.set_xticks([0, len(part) / 2], ["class token", "patches"], fontsize=11)
    ax.set(xlim=(-1, len(part) + 3.5), ylim=(len(parts) - 0.4, -0.6))
    return fig


def moved_rows(moved: Float[Tensor, " n"]) -> Figure:
    """How far training has moved each row of a table, as bars."""
    fig, ax = plots.subplots(figsize=(6, 2.6))
    ax.bar(range(len(moved)), moved, color=SICK)
    ax.text(0, 0.03 * moved.max(), f"{moved[0]:.2g}", color=SICK, ha="center")
    ax.set(xlabel="row of the position table (0: class token)", ylabel="largest change")
    ax.set_xticks(range(0, len(moved), 4))
    return fig


def luck(sizes: Sequence[int], gains: Mapping[int, Sequence[float]]) -> Figure:
    """By how many points the best of some equally good tries lies above the truth, for test sets of several sizes."""
    fig, ax = plots.subplots(figsize=(6, 3))
    for tries, points in gains.items():
        ax.plot(sizes, points, "o-", label=f"best of {tries}")
    ax.set(xscale="log", xlabel="test images", ylabel="points too high", ylim=(0, None))
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=11)
    ax.minorticks_off()
    ax.legend(fontsize=12)
    return fig


def who_is_caught(caught: Mapping[str, Sequence[bool | None]], columns: Sequence[str]) -> Figure:
    """A row of dots for each check, a column for each model: large if it's sent back, none if it wasn't asked."""
    fig, ax = plots.subplots(figsize=(6, 0.42 * len(caught) + 0.9))
    for row, said in enumerate(caught.values()):
        for column, back in enumerate(said):
            if back is not None:
                ax.scatter(column, row, color=SICK if back else GREY, s=110 if back else 14)
        count = f"{sum(map(bool, said))} of {sum(back is not None for back in said[1:])}"
        ax.text(len(columns), row, count, va="center", fontsize=12)
    ax.set_yticks(range(len(caught)), list(caught), fontsize=12)
    ax.set_xticks(range(len(columns)), columns, fontsize=11)
    ax.set(xlim=(-0.7, len(columns) + 2.2), ylim=(len(caught) - 0.5, -0.6))
    ax.set_xlabel("✓ healthy, and the patients by number", fontsize=12)
    ax.spines[:].set_visible(False)
    return fig
