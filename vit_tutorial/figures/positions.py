"""Chapter 2: letters as bags of patches, tables of positions, and what positions are worth on digits."""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_tutorial import plots

MARK = plots.PALETTE[4]  # marks a patch
BEHIND_A_MIRROR = (("white", "-"), ("#1F1F4F", (0, (1.5, 1))))  # colours and dashes of its frame


def letters(patches: Float[Tensor, "n p"], order: Sequence[int]) -> Figure:
    """The patches of a letter, each with its number and colour, as they were and in another order."""
    fig, ax = plots.subplots(figsize=(6, 2.6))
    across, side = (math.isqrt(size) for size in patches.shape)
    step = 1.1 * side
    whole = across * step - 0.1 * side
    for left, numbers in ((0, range(len(patches))), (1.667 * whole, order)):
        for place, number in enumerate(numbers):
            x, y = left + step * (place % across), step * (place // across)
            ax.add_patch(Rectangle((x, y), side, side, color="0.94", linewidth=0))
            colour = plots.PALETTE[number % len(plots.PALETTE)]
            for dy, dx in patches[number].reshape(side, side).nonzero().tolist():  # a little wide: no seam shows
                ax.add_patch(Rectangle((x + dx, y + dy), 1.02, 1.02, linewidth=0, color=colour))
            down, right = (2 * part >= across for part in divmod(number, across))  # its number: in the outer corner
            corner = x + (side - 1) * right + 0.5, y + (side - 1) * down + 0.5
            ax.text(*corner, number, fontsize=13, ha="center", va="center_baseline")
    ax.text(1.333 * whole, whole / 2, "→", fontsize=20, ha="center", va="center")
    ax.set(xlim=(-0.1, 2.667 * whole + 0.2), ylim=(whole + 0.2, -0.1), aspect="equal")
    ax.axis("off")
    return fig


def seen_from(
    cosines: dict[str, Float[Tensor, "gh gw"]],
    places: Sequence[tuple[int, int]],
    mirrored: bool = False,
    lowest: float = 0,
) -> Figure:
    """How similar a patch's position is to all others, over the grid: a bright spot, a stripe or a cross around it.

    Args:
        cosines: with every patch of the grid, by the panel's title.
        places: (row, column) of each panel's own patch, which gets an orange frame.
        mirrored: whether its mirror image gets a dashed frame.
        lowest: what is as dark as can be.
    """
    widths = [values.shape[1] / values.shape[0] for values in cosines.values()]
    fig, axes = plots.subplots(1, len(cosines), figsize=(6, 3.1), width_ratios=widths, squeeze=False)
    for ax, (title, values), (row, col) in zip(axes[0], cosines.items(), places, strict=True):
        image = ax.imshow(values.numpy(), vmin=lowest, vmax=1, interpolation="nearest")
        frames = [(col, MARK, "-")]
        frames += [(values.shape[1] - 1 - col, *frame) for frame in BEHIND_A_MIRROR] if mirrored else []
        for left, colour, dashes in frames:
            style = {"edgecolor": colour, "linestyle": dashes, "linewidth": 2.2, "zorder": 3}
            ax.add_patch(Rectangle((left - 0.5, row - 0.5), 1, 1, fill=False, clip_on=False, **style))
        ax.set(title=title, xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    label, middle = "cosine with the framed patch", (1 + lowest) / 2
    bar = fig.colorbar(image, ax=axes, label=label, orientation="horizontal", shrink=0.6)
    bar.set_ticks([lowest, middle, 1], labels=[f"≤ {lowest:g}", f"{middle:g}", "1"])
    return fig


def dials(num_hands: int, num_positions: int, dim: int) -> Figure:
    """The first hands of a table with ``dim`` columns, at the first positions: fast ones spread, slow ones stay."""
    down, across = math.ceil(num_hands / 4), min(num_hands, 4)
    fig, axes = plots.subplots(down, across, figsize=(6, 2.2 * down), squeeze=False)
    for ax in axes.flat[num_hands:]:
        ax.axis("off")
    for i, ax in enumerate(axes.flat[:num_hands]):
        speed = 10000 ** (-2 * i / dim)  # radians per step
        ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.7"))
        for p in range(num_positions):
            x, y, colour = math.sin(p * speed), math.cos(p * speed), plt.cm.viridis(0.25 + 0.7 * p / num_positions)
            ax.plot([0, x], [0, y], color=colour, linewidth=1.5)
            ax.plot(x, y, "o", color=colour, markersize=6)
            if i == 0 or p in (0, num_positions - 1):
                ax.text(1.27 * x, 1.27 * y, p, ha="center", va="center_baseline", fontsize=11)
        ax.set(xlim=(-1.4, 1.4), ylim=(-1.35, 1.4), aspect="equal")
        ax.set_title(f"hand {i}\n{2 * math.pi / speed:.0f} steps/turn", fontsize=12)
        ax.axis("off")
    return fig


def columns_of(table: Float[Tensor, "n d"]) -> Figure:
    """The table as a map, a row for each position: columns on the left change fast, those on the right hardly."""
    fig, ax = plots.subplots(figsize=(6, 3))
    plots.heatmap(table, ax, xlabel="column of the table", ylabel="position", label="value")
    fig.axes[-1].set_yticks([-1, 0, 1], ["−1", "0", "1"])  # the scale's
    return fig


def all_pairs(similarity: Float[Tensor, "n n"], row: int) -> Figure:
    """The cosine of all pairs of positions, and one row of it as a curve: a peak, then waves."""
    fig, (pairs, curve) = plots.subplots(1, 2, figsize=(6, 3), width_ratios=[1, 1.15])
    shades = {"vmin": 0.3, "vmax": 1}  # the same in both
    pairs.imshow(similarity, interpolation="nearest", **shades)
    pairs.set_title("all pairs", fontsize=13)
    pairs.set(xlabel="position", ylabel="position")
    curve.plot(similarity[row], color="0.6", linewidth=1, zorder=1)
    curve.scatter(range(len(similarity)), similarity[row], c=similarity[row], s=26, **shades)
    curve.set_title(f"row {row}", fontsize=13)
    curve.set(xlabel="position", ylabel="cosine", ylim=(min(0.3, float(similarity[row].min())), 1.03))
    return fig


def _grid(ax: Axes, picture: Float[Tensor, "h w"], patch: int) -> None:
    """A small picture with lines between its patches."""
    ax.imshow(picture, cmap="gray", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    for cut in torch.arange(patch, len(picture), patch) - 0.5:
        ax.axhline(cut, color=plots.PALETTE[5], linewidth=0.7)
        ax.axvline(cut, color=plots.PALETTE[5], linewidth=0.7)


def two_rows(rows: dict[str, Float[Tensor, "b 1 h w"]], patch: int) -> Figure:
    """Pictures and what shuffling their patches makes of them, one below the other."""
    fig, axes = plots.subplots(len(rows), len(next(iter(rows.values()))), figsize=(6, 2.25), squeeze=False)
    for row, (name, pictures) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(name)
        for ax, picture in zip(row, pictures.cpu(), strict=True):
            _grid(ax, picture[0], patch)
    return fig


def runs(scores: dict[str, dict[str, list[float]]], guessing: float) -> Figure:
    """A dot for each run's accuracy and a bar for their mean, by kind of positions: having some matters, not which.

    Args:
        scores: by what was tested, two of them, and kind of positions.
        guessing: the accuracy of chance, a dashed line.
    """
    fig, ax = plots.subplots(figsize=(6, 3.3))
    names = {"none": "none", "sincos_1d": "one clock", "sincos_2d": "two clocks", "learned": "learned"}
    kinds = list(next(iter(scores.values())))
    for (tested, by_kind), colour, shift in zip(scores.items(), (plots.PALETTE[0], MARK), (-0.2, 0.2), strict=True):
        for i, accuracies in enumerate(by_kind.values()):
            spread = torch.linspace(-0.06, 0.06, len(accuracies)) if len(accuracies) > 1 else torch.zeros(1)
            ax.plot(i + shift + spread, [100 * a for a in accuracies], "o", color=colour, alpha=0.7, markersize=8)
            mean = 100 * sum(accuracies) / len(accuracies)
            ax.hlines(
                mean, i + shift - 0.18, i + shift + 0.18, color=colour, linewidth=2.5, label=tested if i == 0 else ""
            )
            ax.text(i + shift, 100 * max(accuracies) + 3.5, f"{mean:.0f}", ha="center", fontsize=12)
    ax.axhline(100 * guessing, color="0.5", linewidth=1, linestyle="--", zorder=1)
    ax.text(-0.38, 100 * guessing + 2.5, "guessing", fontsize=12)
    ax.set(xlabel="positions", ylabel="test accuracy in %", ylim=(0, 109), yticks=range(0, 101, 20))
    ax.set_xticks(range(len(kinds)), [names.get(kind, kind) for kind in kinds])
    ax.legend(loc="center left", bbox_to_anchor=(0, 0.35))
    return fig
