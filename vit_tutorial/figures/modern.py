"""Chapter 13: what the parts of today's blocks do, and what each is worth."""

import math
from collections.abc import Collection, Mapping, Sequence

from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_tutorial import plots

BETTER, WORSE, UNCLEAR = plots.PALETTE[0], plots.PALETTE[4], "#8A8A8A"
STYLES = ("o-", "s--", "^:", "D-.")
Effect = tuple[float, float, float]  # points of accuracy, and the two ends of their interval


def score_maps(maps: Sequence[Float[Tensor, "n"]], places: Sequence[tuple[int, int]]) -> Figure:
    """How much the framed patch's query likes the key of each place, a map for each query.

    Args:
        maps: the scores of each query with the keys of a square grid.
        places: row and column of each query.
    """
    fig, axes = plots.subplots(1, len(maps), figsize=(6.4, 2.5), squeeze=False)
    limits = {"vmin": min(each.min() for each in maps), "vmax": max(each.max() for each in maps)}
    for ax, scores, (row, column) in zip(axes[0], maps, places, strict=True):
        side = math.isqrt(len(scores))
        drawn = ax.imshow(scores.reshape(side, side), cmap="Purples", **limits)
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec=plots.PALETTE[1], linewidth=3))
        ax.set_title(f"{side} × {side}\nrow {row}, column {column}", fontsize=12)
        ax.set(xticks=[], yticks=[])
    fig.colorbar(drawn, ax=axes[0], label="score", shrink=0.8)
    return fig


def on_larger_grids(named: Mapping[str, Sequence[Sequence[float]]], grids: Sequence[int]) -> Figure:
    """How much of the left neighbour's colour is named, over the side of the grid, a line for each run.

    Args:
        named: for each kind of positions and each seed, the fraction of the variance on each grid.
        grids: their sides, the one of the training first.
    """
    fig, ax = plots.subplots(figsize=(6.4, 3.8))
    for i, (kind, runs) in enumerate(named.items()):
        look = {"color": plots.PALETTE[i % len(plots.PALETTE)], "linewidth": 1.6, "markersize": 6}
        for j, run in enumerate(runs):
            ax.plot(grids, run, STYLES[i % len(STYLES)], label=kind if j == 0 else None, **look)
    ax.axhline(0, color="0.5", linewidth=1)
    ax.set_xticks(list(grids), [f"{grid} × {grid}" for grid in grids])
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}".replace("-", "−"))
    ax.set(xlabel=f"grid of patches; trained on {grids[0]} × {grids[0]}", ylabel="variance that it names")
    fig.legend(loc="outside upper center", ncols=2, fontsize=12, columnspacing=1)
    return fig


def long_tokens(images: UInt8[Tensor, "b c H W"], lengths: Mapping[str, Float[Tensor, "b gh gw"]]) -> Figure:
    """A row for each image: the image, and how long each patch's token is in each model, over the median.

    Args:
        images: as they're stored, 0 to 255.
        lengths: of the tokens behind the last block, by model.
    """
    fig, axes = plots.subplots(len(images), 1 + len(lengths), figsize=(6, 1.75 * len(images)), squeeze=False)
    longest = max(each.max().item() for each in lengths.values())
    for i, (row, image) in enumerate(zip(axes, images, strict=True)):
        row[0].imshow(image.permute(1, 2, 0).squeeze(-1), cmap="gray")
        for ax, (name, each) in zip(row[1:], lengths.items(), strict=True):
            drawn = ax.imshow(each[i], cmap="viridis", vmin=0, vmax=longest)
            told = f"longest: {each[i].max():.1f}"
            ax.set_title(f"{name}\n{told}" if i == 0 else told, fontsize=12)
        for ax in row:
            ax.set(xticks=[], yticks=[])
    fig.colorbar(drawn, ax=axes[:, -1], label="length over the median", shrink=0.7)
    return fig


def growing_scores(grown: Mapping[str, Sequence[Float[Tensor, " steps"]]]) -> Figure:
    """The largest attention score after each step of a training, a line for each run, on a logarithmic axis.

    Args:
        grown: for each kind of attention, its runs.
    """
    fig, ax = plots.subplots(figsize=(6.4, 3.2))
    for i, (kind, runs) in enumerate(grown.items()):
        for j, run in enumerate(runs):
            look = {"color": plots.PALETTE[1 - i % 2], "linestyle": "--" if i == 0 else "-", "linewidth": 1.8}
            ax.plot(range(1, len(run) + 1), run, label=kind if j == 0 else None, **look)
    ax.set(xlabel="step", ylabel="largest score", yscale="log")
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    fig.legend(loc="outside upper center", ncols=2, fontsize=12)
    return fig


def effects_of_parts(
    effects: Mapping[str, Effect | None], passed: Collection[str], times: Mapping[str, float]
) -> Figure:
    """A row for each part: its effect in points with the 95 % interval, and its time as a multiple of the base's.

    Blue is better and orange worse where an interval excludes 0, grey where it doesn't; hollow marks have one seed and
    no interval, and rows without a mark have no run yet.

    Args:
        effects: by what the parts are called; None without a run.
        passed: those that pass the correction; they are named in bold.
        times: seconds of a run over those of the base.
    """
    fig, ax = plots.subplots(figsize=(6, 0.4 * len(effects) + 1.2))
    ax.axvline(0, color="0.4", linewidth=1)
    for row, (name, effect) in enumerate(effects.items()):
        ax.text(-0.02, row, name, transform=ax.get_yaxis_transform(), ha="right", va="center", fontsize=12.5,
                weight="bold" if name in passed else "normal")  # fmt: skip
        if effect is None:
            continue
        middle, low, high = effect
        colour = BETTER if low > 0 else WORSE if high < 0 else UNCLEAR
        ax.plot([low, high], [row, row], color=colour, linewidth=2.2)
        ax.plot(middle, row, "o", color=colour, mfc="white" if math.isnan(low) else colour, markersize=6.5)
        told = f"{middle:+.1f}".replace("-", "−") + (f"   {times[name]:.1f} ×" if times.get(name, 0) > 0 else "")
        ax.text(1.02, row, told, transform=ax.get_yaxis_transform(), va="center", fontsize=12)
    ax.set(yticks=[], ylim=(len(effects) - 0.5, -0.8), xlabel="points against the base")
    ax.text(1.02, -1, "points, time", transform=ax.get_yaxis_transform(), va="center", fontsize=12)
    ax.spines["left"].set_visible(False)
    return fig
