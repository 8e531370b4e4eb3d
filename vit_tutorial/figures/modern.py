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
    words: Mapping[str, str],
    at_equal_steps: Mapping[str, Effect],
    in_equal_time: Mapping[str, Effect],
    passed: Collection[str],
) -> Figure:
    """A row for each part: its effect in points at equal steps, a dot, and in equal time, a square, with intervals.

    Blue is better and orange worse where an interval excludes 0, grey where it doesn't; hollow marks have one seed and
    no interval. Without a mark, a part has no run yet.

    Args:
        words: what each part is called.
        at_equal_steps, in_equal_time: effects of the parts that ran.
        passed: parts that pass the correction; their names are bold.
    """
    fig, ax = plots.subplots(figsize=(6, 0.42 * len(words) + 1.2))
    ax.axvline(0, color="0.4", linewidth=1)
    for row, (part, name) in enumerate(words.items()):
        look = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": 12.5}
        ax.text(-0.02, row, name, ha="right", weight="bold" if part in passed else "normal", **look)
        for x, effects, marker, place in ((1.02, at_equal_steps, "o", row), (1.2, in_equal_time, "s", row + 0.26)):
            if part not in effects:
                continue
            middle, low, high = effects[part]
            colour = BETTER if low > 0 else WORSE if high < 0 else UNCLEAR
            ax.plot([low, high], [place, place], color=colour, linewidth=2)
            ax.plot(middle, place, marker, color=colour, mfc="white" if math.isnan(low) else colour, markersize=5.5)
            ax.text(x, row, f"{middle:+.1f}".replace("-", "−"), **look)
    ax.text(1.02, -1, "steps   time", transform=ax.get_yaxis_transform(), va="center", fontsize=12)
    ax.set(yticks=[], ylim=(len(words) - 0.5, -1.2), xlabel="points against the base")
    ax.spines["left"].set_visible(False)
    return fig
