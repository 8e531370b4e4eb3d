"""Drawings of chapter 9: what mistakes cost, names, pictures that grow, memory, and what labels buy."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from vit_tutorial import plots
from vit_tutorial.plots import COLOURS, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _percent(axis) -> None:
    """Fractions along an axis as per cent."""
    axis.set_major_formatter(lambda value, _: f"{value:.0%}")


def _bars(ax: "Axes", shares: Mapping[str, float], colours: str | Sequence[str], spec: str = ".0%") -> None:
    """Fractions as horizontal bars from 0 to 100 %, with their names and numbers."""
    bars = ax.barh(range(len(shares)), list(shares.values()), color=colours)
    ax.bar_label(bars, [f"{share:{spec}}" for share in shares.values()], padding=4, fontsize=12)
    ax.set_yticks(range(len(shares)), list(shares), fontsize=12)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, 1.2), xticks=[])
    ax.spines["bottom"].set_visible(False)
    ax.invert_yaxis()


def _as_picture(ax: "Axes", pixels: Float[Tensor, "c H W"] | UInt8[Tensor, "c H W"]) -> None:
    """An image with a frame, so that a pale one has an edge."""
    ax.imshow(pixels.permute(1, 2, 0).cpu(), cmap="gray")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color=COLOURS["other"])


def answers(accuracies: Mapping[str, float], right: Sequence[str]) -> "Figure":
    """Bars of accuracy for one file, loaded in several ways; those without a mistake, ``right``, are blue."""
    fig, ax = plots.subplots(figsize=(6.4, 0.5 + 0.42 * len(accuracies)))
    _bars(ax, accuracies, [COLOURS["ours" if name in right else "other"] for name in accuracies])
    return fig


def as_the_model_sees(
    seen: Mapping[str, Mapping[str, Float[Tensor, "3 H W"]]], accuracies: Mapping[str, Mapping[str, float]]
) -> "Figure":
    """A row for each kind of image, a column for each way to prepare it: the image as the model takes it."""
    ways = list(next(iter(seen.values())))
    fig, axes = plots.subplots(len(seen), len(ways), figsize=(6.4, 0.6 + 1.4 * len(seen)), squeeze=False)
    for row, (kind, images) in zip(axes, seen.items(), strict=True):
        row[0].set_ylabel(kind, fontsize=12)
        for ax, (way, image) in zip(row, images.items(), strict=True):
            _as_picture(ax, image)
            ax.set_xlabel(f"{accuracies[kind][way]:.1%}", fontsize=13)
    for ax, way in zip(axes[0], ways, strict=True):
        ax.set_title(textwrap.fill(way, 12), fontsize=11)
    return fig


def named(image: UInt8[Tensor, "3 H W"], names: Sequence[tuple[str, float]], title: str = "") -> "Figure":
    """An image, and bars for the likeliest names that a model gives it."""
    fig, (left, right) = plots.subplots(1, 2, figsize=(6.4, 2.7))
    left.imshow(image.permute(1, 2, 0).cpu())
    left.axis("off")
    _bars(right, {textwrap.fill(name, 15): chance for name, chance in names}, COLOURS["ours"], ".1%")
    right.set_title(title, fontsize=12, loc="left")
    return fig


def one_weight(names: Mapping[str, tuple[str, str, str, str]]) -> "Figure":
    """A weight's name in several libraries, cut into the same four coloured pieces: block, part, layer, tensor."""
    pieces = {  # where each begins, in letters, and its colour
        "which block": (0, PALETTE[0]),
        "which part": (32, PALETTE[4]),
        "which layer": (50, PALETTE[2]),
        "tensor": (62, COLOURS["other"]),
    }
    fig, ax = plots.subplots(figsize=(6.4, 0.6 + 0.66 * len(names)))
    ax.set(xlim=(0, 69), ylim=(2 * len(names) + 0.9, -0.6))
    ax.axis("off")
    for piece, (start, colour) in pieces.items():
        ax.text(start, 0, piece, color=colour, fontsize=12, va="center")
    for row, (library, parts) in enumerate(names.items()):
        ax.text(0, 2 * row + 1.3, library, fontsize=12, va="center")
        for part, (start, colour) in zip(parts, pieces.values(), strict=True):
            ax.text(start, 2 * row + 2.1, part, color=colour, fontsize=11, va="center", family="monospace")
    return fig


def looks(picture: Float[Tensor, "3 H W"], maps: Mapping[str, Float[Tensor, "gh gw"]]) -> "Figure":
    """A picture, and beside it where the class token of each model looks, as multiples of an even share."""
    fig, axes = plots.subplots(1, 1 + len(maps), figsize=(6.4, 3))
    axes[0].imshow(picture.permute(1, 2, 0).cpu())
    axes[0].set_title("the picture")
    for ax, (whose, values) in zip(axes[1:], maps.items(), strict=True):
        drawn = ax.imshow(values.cpu(), cmap="Purples", vmin=0, vmax=2)
        ax.set_title(whose)
    for ax in axes:
        ax.axis("off")
    bar = fig.colorbar(drawn, ax=axes, location="bottom", aspect=40, shrink=0.6, ticks=(0, 1, 2))
    bar.set_label("× an even share", fontsize=12)
    bar.outline.set_visible(False)
    return fig


def grown(versions: Mapping[str, Float[Tensor, "3 H W"]], patch_size: int) -> "Figure":
    """One image grown in several ways, with the grid of its patches; larger images are drawn larger."""
    sides = [image.shape[-1] for image in versions.values()]
    fig, axes = plots.subplots(1, len(versions), figsize=(6.4, 2.6), width_ratios=sides)
    for ax, side, (title, image) in zip(axes, sides, versions.items(), strict=True):
        ax.imshow(image.permute(1, 2, 0).cpu() / 255, extent=(0, side, side, 0))
        for cut in range(0, side + 1, patch_size):
            ax.axhline(cut, color="white", linewidth=0.8)
            ax.axvline(cut, color="white", linewidth=0.8)
        ax.set_title(textwrap.fill(title, 10), fontsize=12)
        ax.axis("off")
    return fig


def two_tables(accuracies: Mapping[str, Mapping[str, float]], as_trained: float) -> "Figure":
    """For each way that pictures grow a pair of bars: positions by the formula, and the old ones stretched.

    A dotted line is the accuracy at the size in training.
    """
    fig, ax = plots.subplots(figsize=(6.4, 3.4))
    colours = [COLOURS["other"], COLOURS["shapes"], *PALETTE]
    tables = list(next(iter(accuracies.values())))
    starts = [(0.4 * len(tables) + 0.2) * group for group in range(len(accuracies))]
    for place, (table, colour) in enumerate(zip(tables, colours, strict=False)):
        at = [start + 0.4 * place for start in starts]
        heights = [found[table] for found in accuracies.values()]
        bars = ax.bar(at, heights, 0.38, color=colour, label=table)
        ax.bar_label(bars, [f"{height:.1%}" for height in heights], padding=2, fontsize=11)
    ax.axhline(as_trained, color="dimgrey", linestyle=":", zorder=0)
    middles = [start + 0.2 * (len(tables) - 1) for start in starts]
    ax.set_xticks(middles, [textwrap.fill(way, 15) for way in accuracies])
    ax.tick_params(axis="x", length=0)
    ax.set(ylabel="accuracy", ylim=(0, 1.1), yticks=(0, 0.5, 1))
    _percent(ax.yaxis)
    fig.legend(loc="outside upper center", ncols=len(tables), fontsize=12)
    return fig


def memory(file: int, parts: Mapping[str, int]) -> "Figure":
    """Two bars in gigabytes: a file of weights, and what training holds, stacked from its parts."""
    fig, ax = plots.subplots(figsize=(6.4, 3.7))
    ax.bar(0, file / 1e9, 0.7, color=PALETTE[0])
    ax.annotate(f"{file / 1e9:.2f} GB", (0, file / 1e9), (0, 4), textcoords="offset points", ha="center")
    colours, stacked = [PALETTE[0], PALETTE[1], PALETTE[3], COLOURS["other"], *PALETTE], 0
    for (part, size), colour in zip(parts.items(), colours, strict=False):
        ax.bar(1, size / 1e9, 0.7, bottom=stacked / 1e9, color=colour)
        ax.text(1.42, (stacked + size / 2) / 1e9, f"{part}: {size / 1e9:.2f} GB", va="center", fontsize=12)
        stacked += size
    total = f"{stacked / 1e9:.1f} GB, {stacked / file:.0f} times the file"
    ax.annotate(total, (1, stacked / 1e9), (0, 4), textcoords="offset points", ha="center")
    ax.set(xlim=(-0.45, 3.3), ylim=(0, 1.1 * stacked / 1e9), yticks=[])
    ax.set_xticks((0, 1), ("the file", "training"), fontsize=13)
    ax.tick_params(axis="x", length=0)
    ax.spines["left"].set_visible(False)
    return fig


def two_sizes(
    rows: Mapping[str, UInt8[Tensor, "b 1 H W"]], labels: Int64[Tensor, " b"], accuracies: Mapping[str, float]
) -> "Figure":
    """The first digit of each class, in a row for each way they are enlarged, with the accuracy on all of them."""
    first = [(labels == label).nonzero()[0, 0].item() for label in labels.unique()]
    fig, axes = plots.subplots(len(rows), len(first), figsize=(6.6, 0.2 + 0.8 * len(rows)), squeeze=False)
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for ax, index in zip(line, first, strict=True):
            _as_picture(ax, images[index])
        label = f"{name}\n{accuracies[name]:.0%}"
        line[0].set_ylabel(label, fontsize=12, rotation=0, ha="right", va="center", labelpad=6)
    return fig


def labels_buy(accuracies: Mapping[str, Mapping[int, Sequence[float]]], levels: Mapping[str, float]) -> "Figure":
    """Test accuracy over the number of labels: the mean of the draws as a line, worst to best as a band.

    Dotted lines are the levels of what needs no such labels.
    """
    fig, ax = plots.subplots(figsize=(6.4, 3.7))
    for (name, found), colour in zip(accuracies.items(), PALETTE, strict=False):
        means = [sum(draws) / len(draws) for draws in found.values()]
        ax.plot(list(found), means, "o-", color=colour, label=name)
        shift = 6 if name == next(iter(accuracies)) else -16  # the first line's numbers above, others' below
        for count, mean in zip(found, means, strict=True):
            ax.annotate(f"{mean:.0%}", (count, mean), (0, shift), textcoords="offset points", ha="center", fontsize=11)
        ax.fill_between(list(found), [*map(min, found.values())], [*map(max, found.values())], color=colour, alpha=0.15)
    for (name, level), style in zip(levels.items(), (":", "--", "-."), strict=False):
        ax.axhline(level, color="dimgrey", linestyle=style, linewidth=1.5, label=name, zorder=0)
    counts = list(next(iter(accuracies.values())))
    ax.set(xscale="log", xlabel="labelled images", ylabel="test accuracy", ylim=(0, 1.1), yticks=(0, 0.5, 1))
    ax.set_xticks(counts, [f"{count:,}" for count in counts], minor=False)
    ax.minorticks_off()
    _percent(ax.yaxis)
    ax.legend(loc="lower right", fontsize=11)
    return fig


def how_many_images(tasks: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]]) -> "Figure":
    """Test accuracy over the images of each class, a panel for each task.

    Args:
        tasks: for each task and way to train, the accuracies of the draws by the number of images. Lines go through
            their means, a dot is a draw.
    """
    fig, axes = plots.subplots(len(tasks), figsize=(6.4, 0.7 + 2.3 * len(tasks)), sharex=True, squeeze=False)
    looks = list(zip(("o", "s", "^", "D", "v", "P"), [COLOURS["other"], *PALETTE], strict=False))
    for ax, (task, ways) in zip(axes[:, 0], tasks.items(), strict=True):
        for (way, found), (marker, colour) in zip(ways.items(), looks, strict=False):
            means = [sum(draws) / len(draws) for draws in found.values()]
            ax.plot(list(found), means, "-", color=colour, linewidth=2)
            for count, draws in found.items():
                label = way if ax is axes[0, 0] and count == next(iter(found)) else None
                ax.plot([count] * len(draws), draws, marker, color=colour, markersize=6, alpha=0.7, label=label)
        ax.set_title(task, fontsize=13, loc="left")
        ax.set(xscale="log", ylabel="test accuracy", ylim=(0, 1.03), yticks=(0, 0.25, 0.5, 0.75, 1))
        ax.grid(axis="y", alpha=0.3)
        _percent(ax.yaxis)
    counts = sorted({count for ways in tasks.values() for found in ways.values() for count in found})
    axes[-1, 0].set_xticks(counts, [f"{count:,}" for count in counts])
    axes[-1, 0].minorticks_off()
    axes[-1, 0].set_xlabel("images of each class")
    fig.legend(loc="outside upper center", ncols=2, fontsize=12)
    return fig
