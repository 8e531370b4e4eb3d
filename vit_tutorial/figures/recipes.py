"""Drawings of chapter 7, on recipes for small photographs."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float
from torch import Tensor

from vit_tutorial import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History = Sequence[Mapping[str, float]]


def _curve(ax: "Axes", history: History, part: str, **look: Any) -> list[float]:
    """Accuracy in % over the epochs, which is also returned."""
    values = [100 * entry[f"{part}_accuracy"] for entry in history]
    ax.plot(range(1, len(values) + 1), values, **look)
    ax.set(xlabel="epoch", ylabel="accuracy in %")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return values


def _reported(ax: "Axes", epoch: int, accuracy: float) -> None:
    """A cross for what somebody else reports."""
    ax.plot(epoch, accuracy, "x", color="black", mew=2, ms=8, label="the guide, as reported")


def one_run(history: History, reported: float) -> "Figure":
    """Training and validation accuracy of one run, and a cross for what the guide reports after as many epochs."""
    fig, ax = plots.subplots(figsize=(6.2, 3.6))
    _curve(ax, history, "val", color=plots.COLOURS["ours"], lw=2.5, label="validation")
    _curve(ax, history, "train", color=plots.COLOURS["other"], lw=1.5, label="training, on changed photographs")
    _reported(ax, len(history), reported)
    ax.legend(loc="lower right")
    return fig


def two_recipes(histories: Mapping[str, History], reported: float) -> "Figure":
    """Validation accuracy over the epochs: ours blue, the guide's grey, short runs of ours dashed.

    Args:
        histories: by label; a label that begins with "ours" is drawn as ours.
        reported: the guide's accuracy after as many epochs as the longest run.
    """
    fig, ax = plots.subplots(figsize=(6.2, 3.8))
    longest = max(map(len, histories.values()))
    for label, history in histories.items():
        ours = label.startswith("ours")
        style = "--" if ours and len(history) < longest else "-"
        values = _curve(ax, history, "val", color=plots.COLOURS["ours" if ours else "other"], ls=style, label=label)
        ax.plot(len(values), values[-1], "o", color=plots.COLOURS["ours" if ours else "other"])
        ax.text(len(values), values[-1] + 1.5, f"{values[-1]:.1f}", ha="center", weight="bold")
    _reported(ax, longest, reported)
    ax.margins(y=0.12)
    ax.legend(loc="lower right", fontsize=12)
    return fig


def rates(recorded: Mapping[float, float], live: Mapping[float, float]) -> "Figure":
    """Validation accuracy over the peak learning rate: long recorded runs above, short ones of this page below.

    Args:
        recorded: accuracy in 0..1 by rate.
        live: the same for the runs of this page.
    """
    fig, ax = plots.subplots(figsize=(6.2, 3.6))
    for found, label, colour, marker in (
        (recorded, "recorded", plots.COLOURS["ours"], "o-"),
        (live, "trained on this page", plots.PALETTE[1], "s--"),
    ):
        ordered = sorted(found)
        ax.plot(ordered, [100 * found[rate] for rate in ordered], marker, color=colour, label=label)
    best = max(recorded, key=recorded.get)
    ax.axhline(100 * recorded[best], color="grey", ls=":", lw=1.2)
    ax.annotate(
        f"best: {best:g}", (best, 100 * recorded[best]), (0, 6), textcoords="offset points", ha="center", weight="bold"
    )
    ax.set(xscale="log", xlabel="peak learning rate", ylabel="validation accuracy in %")
    ax.set_xticks(sorted(recorded), [f"{rate:g}" for rate in sorted(recorded)], fontsize=12)
    ax.minorticks_off()
    ax.margins(y=0.15)
    ax.legend(fontsize=12)
    return fig


def worth(effects: Mapping[str, tuple[float, float, float]], once: Mapping[str, float]) -> "Figure":
    """What each part adds, in points: a dot with its 95 % interval, or a hollow dot for a single run.

    Args:
        effects: effect, lower and upper end, by part.
        once: effect of one run against one run, by part.
    """
    points = {name: effect for name, (effect, *_) in effects.items()} | dict(once)
    order = sorted(points, key=points.get)
    fig, ax = plots.subplots(figsize=(6.6, 0.42 * len(order) + 1.1))
    for place, name in enumerate(order):
        value, (low, high) = points[name], effects.get(name, (0, 0, 0))[1:]
        sure = name in effects
        beyond = plots.COLOURS["ours"] if low > 0 else plots.COLOURS["key"] if high < 0 else plots.COLOURS["other"]
        colour = beyond if sure else plots.COLOURS["ours"]
        if sure:
            ax.plot([low, high], [place, place], color=colour, lw=3, alpha=0.6)
        ax.plot(value, place, "o", color=colour, mfc=colour if sure else "none", mew=2, ms=8)
        told = f"{value:+.1f}".replace("-", "−")
        ax.text(14.8, place, told, ha="right", va="center", color=colour, weight="bold")
    ax.axvline(0, color="black", lw=1)
    ax.set_yticks(range(len(order)), order, fontsize=12)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ends = [end for effect in effects.values() for end in effect]
    ax.set(xlim=(min([-8, *ends]) - 0.5, max([15, *ends])), xlabel="points of validation accuracy")
    return fig


def changed(rows: Mapping[str, Float[Tensor, "b c H W"]]) -> "Figure":
    """The same photographs in each row, under what was done to them."""
    columns = len(next(iter(rows.values())))
    fig = plots.show_images(torch.cat(list(rows.values())), columns=columns, size=1.6)
    fig.set_size_inches(1.5 * columns, 1.8 * len(rows))
    for ax in fig.axes:  # else black borders melt into a dark page
        side = ax.get_xlim()[1] + 0.5
        ax.add_patch(plt.Rectangle((-0.5, -0.5), side, side, fill=False, ec="0.55", lw=1)).set_clip_on(False)
    for ax, name in zip(fig.axes[::columns], rows, strict=True):
        ax.set_title(" ", fontsize=14)  # room for the name, which is wider
        ax.text(-0.5, -2.5, name, fontsize=14).set_in_layout(False)
    return fig


def by_heart(histories: Mapping[str, History]) -> "Figure":
    """Validation (full) and training accuracy (dotted) of long runs, and a dot at each best validation epoch."""
    fig, ax = plots.subplots(figsize=(6.4, 3.8))
    for (label, history), colour in zip(histories.items(), ("#7F7F7F", *plots.PALETTE), strict=False):
        values = _curve(ax, history, "val", color=colour, lw=2.5, label=f"{label}: validation")
        _curve(ax, history, "train", color=colour, ls=":", label=f"{label}: training")
        best = max(range(len(values)), key=values.__getitem__)
        ax.plot(best + 1, values[best], "o", color=colour, ms=9)
    ax.set_ylim(60, 101)
    ax.legend(loc="lower right", fontsize=11)
    return fig


def two_in_one(
    mixed: Float[Tensor, "b c H W"], boxes: Sequence[Sequence[int]], targets: Float[Tensor, "b k"], names: Sequence[str]
) -> "Figure":
    """Mixed photographs with an outline around what was brought, and the two classes' shares below.

    Args:
        boxes: top, left, height and width, as they were asked for; they may stick out.
        names: of the classes.
    """
    fig = plots.show_images(mixed, columns=len(mixed), size=1.6)
    fig.set_size_inches(1.7 * len(mixed), 2.4)
    height, width = mixed.shape[2:]
    for ax, (top, left, tall, wide), target in zip(fig.axes, boxes, targets, strict=True):
        corner = max(left, 0), max(top, 0)
        size = min(left + wide, width) - corner[0], min(top + tall, height) - corner[1]
        edge = {"fill": False, "ec": plots.PALETTE[1], "lw": 2.5}
        ax.add_patch(plt.Rectangle((corner[0] - 0.5, corner[1] - 0.5), *size, **edge))
        shares = [f"{100 * share:.0f} % {names[k]}" for share, k in zip(*target.topk(2), strict=True) if share > 0]
        ax.text(width / 2, height + 2, "\n".join(shares), ha="center", va="top", fontsize=13)
    return fig


def products(found: Mapping[str, Float[Tensor, "2 d d"]]) -> "Figure":
    """Two square matrices a model, one below the other: who looks at whom, and what is passed on; blue above 0."""
    fig, axes = plots.subplots(2, len(found), figsize=(2.2 * len(found), 5.2), squeeze=False)
    for column, (title, pair) in zip(axes.T, found.items(), strict=True):
        for ax, product in zip(column, pair, strict=True):
            drawn = ax.imshow(product, cmap="RdBu", vmin=-2, vmax=2)
            ax.set(xticks=[], yticks=[])
        column[0].set_title(title)
    axes[0, 0].set_ylabel("who looks at whom")
    axes[1, 0].set_ylabel("what is passed on")
    label = "entry / standard deviation, mean of the blocks"
    fig.colorbar(drawn, ax=axes, label=label, extend="both", location="bottom", aspect=40, shrink=0.8)
    return fig


def where_a_patch_looks(seen: Mapping[str, Float[Tensor, "gh gw"]], patch: tuple[int, int]) -> "Figure":
    """How one patch spreads its attention over the grid of patches, for several models; the ring is the patch."""
    fig, axes = plots.subplots(1, len(seen), figsize=(1.75 * len(seen), 2.5), squeeze=False, sharey=True)
    most = max(float(values.max()) for values in seen.values())
    for ax, (title, values) in zip(axes.flat, seen.items(), strict=True):
        drawn = ax.imshow(values, vmin=0, vmax=most)
        ax.plot(patch[1], patch[0], "o", mfc="none", mec="white", ms=11, mew=1.5)
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize=12)
    fig.colorbar(drawn, ax=axes, label="attention", location="bottom", aspect=40, shrink=0.7)
    return fig


def gains(reached: Mapping[str, float], reported: float) -> "Figure":
    """A bar for each run, accuracy in %; blue is what it gains on the one above, the dotted line what is reported."""
    fig, ax = plots.subplots(figsize=(6.6, 0.85 * len(reached) + 1))
    values = list(reached.values())
    ax.barh(0, values[0], 0.6, color=plots.COLOURS["other"])
    for place, (low, high) in enumerate(pairwise(values), start=1):
        ax.barh(place, low, 0.6, color=plots.COLOURS["other"], alpha=0.25)
        ax.barh(place, high - low, 0.6, left=low, color=plots.COLOURS["ours"])
    for place, (low, high) in enumerate(pairwise([0, *values])):
        gained = f" ({high - low:+.1f})" if place else ""
        ax.text(max(high, 0 if place else reported) + 1.5, place, f"{high:.1f} %{gained}", va="center")
    ax.axvline(reported, color="black", ls=":", lw=1.5)
    ax.set_yticks(range(len(reached)), reached)
    ax.tick_params(axis="y", length=0)
    ax.invert_yaxis()
    ax.set(xlim=(0, 118), xticks=range(0, 101, 20), xlabel="right on the test photographs, in %")
    return fig


def reliability(runs: Mapping[str, Sequence[tuple[float, float, int]]], fewest: int = 20) -> "Figure":
    """Above, right answers over confidence, with the diagonal of a calibrated model; below, photographs in each bin.

    Args:
        runs: by label, for each bin its mean confidence and accuracy in 0..1, and its number of photographs.
        fewest: a bin with fewer photographs has no dot.
    """
    looks = (("o-", plots.COLOURS["ours"]), ("s--", plots.COLOURS["key"]), ("^:", plots.PALETTE[2]))
    fig, (top, low) = plots.subplots(2, 1, figsize=(6.2, 4.8), sharex=True, height_ratios=(3, 1))
    top.plot([0, 100], [0, 100], ":", color="grey", lw=1.5, label="calibrated")
    for number, ((label, bins), (style, colour)) in enumerate(zip(runs.items(), looks, strict=False)):
        filled = [each for each in bins if each[2] >= fewest]
        top.plot([100 * sure for sure, *_ in filled], [100 * right for _, right, _ in filled], style, color=colour)
        top.plot([], [], style, color=colour, label=label)
        width, shift = 80 / len(bins) / len(runs), number - (len(runs) - 1) / 2
        middles = [100 * (i + 0.5) / len(bins) + width * shift for i in range(len(bins))]
        low.bar(middles, [count for *_, count in bins], width=width, color=colour)
    top.set(ylabel="right, in %", xlim=(0, 101), ylim=(0, 101))
    top.legend(loc="upper left", fontsize=12)
    low.set(xlabel="confidence in %", ylabel="images")
    return fig
