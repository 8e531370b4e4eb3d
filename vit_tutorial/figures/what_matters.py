"""The drawings of chapter 10, what matters."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vit_tutorial import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Effect = tuple[float, float, float]  # points of accuracy, and the two ends of their interval
BETTER, WORSE, UNCLEAR = plots.PALETTE[0], plots.PALETTE[4], "#8A8A8A"
STYLES = ("o-", "s--", "^:", "D-.")
TICKS = {-60: "−60", -10: "", 0: "0", 10: ""}  # of points against the base; four labels would touch


def _colour(effect: Effect) -> str:
    """Blue for better, orange for worse, grey where the interval holds 0."""
    return BETTER if effect[1] > 0 else WORSE if effect[2] < 0 else UNCLEAR


def _signed(value: float, spec: str = "+.1f") -> str:
    """Points with their sign, as a reader sees them."""
    return "0" if abs(value) < 0.05 else format(value, spec).replace("-", "−")


def every_pair(base: Float[Tensor, " n"], changed: Float[Tensor, " m"], names: tuple[str, str]) -> "Figure":
    """A dot for each run, and a line for each pair of them: blue where the changed one is better.

    The best and the worst pair are thick, with their points. Runs of equal accuracy stand on top of each other.

    Args:
        names: of the base, above, and of what's changed, below.

    Raises:
        ValueError: if there are no runs of one.
    """
    fig, ax = plots.subplots(figsize=(6.4, 2.9))
    high, low = (
        height + 0.15 * ((runs[:, None] - runs).abs() < 0.05).tril(-1).sum(dim=1)
        for height, runs in ((1, base), (0, changed))
    )
    pairs = changed[:, None] - base
    if not pairs.numel():
        raise ValueError(f"both need runs, but there are {len(base)} and {len(changed)}")
    for i, bottom in enumerate(changed.tolist()):
        for j, top in enumerate(base.tolist()):
            gain, extreme = pairs[i, j], pairs[i, j] in (pairs.min(), pairs.max())
            look = {"linewidth": 3 if extreme else 1.2, "alpha": 1 if extreme else 0.55, "zorder": 1}
            ax.plot([top, bottom], [high[j], low[i]], color=BETTER if gain > 0 else WORSE, **look)
    for gain, place, side in ((pairs.max(), base.min(), "right"), (pairs.min(), base.max(), "left")):
        told, look = f"{_signed(gain.item())} points", {"ha": side, "va": "center", "fontsize": 12}
        shift = (-8 if side == "right" else 8, 0)
        ax.annotate(told, (place, 1), shift, textcoords="offset points", color=BETTER if gain > 0 else WORSE, **look)
    ax.plot(base, high, "o", changed, low, "o", color="#7F7F7F", markersize=8)
    ax.set_yticks([1, 0], [name.replace(" ", "\n", 1) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.32, y=0.2)
    ax.set_xlabel("validation accuracy, per cent")
    ax.spines["left"].set_visible(False)
    return fig


def promises_kept(kept: Mapping[int, tuple[float, float]]) -> "Figure":
    """How often 95 % intervals contain the truth, over the number of runs: with 1.96, and with Student's t.

    Args:
        kept: both fractions for each number of runs.
    """
    fig, ax = plots.subplots(figsize=(6, 3))
    ax.axhline(0.95, color="grey", linestyle=":", label="promised")
    for i, (name, style, colour) in enumerate((("1.96", "s--", WORSE), ("Student's t", "o-", BETTER))):
        ax.plot(list(kept), [both[i] for both in kept.values()], style, color=colour, label=name)
    for runs, (naive, _) in kept.items():
        ax.annotate(f"{naive:.0%}", (runs, naive), (6, -14), textcoords="offset points", color=WORSE, fontsize=12)
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    ax.set(xlabel="runs of each recipe", ylabel="intervals that\ncontain the truth")
    ax.set_xticks(list(kept))
    ax.margins(x=0.1, y=0.2)
    fig.legend(loc="outside upper center", ncols=3, fontsize=12)
    return fig


def thirty_changes(
    effects: Mapping[str, Mapping[str, Effect]], words: Mapping[str, str], lessons: Mapping[str, Sequence[str]]
) -> "Figure":
    """A row for each change, a panel for each data set: dots are mean effects, lines their intervals.

    Blue is better, orange worse, grey where the interval holds 0; distances grow with the square root.

    Args:
        effects: for each data set, of each change.
        words: what each change is called; changes with the same words share a row.
        lessons: changes that stand on top, under these headings; the others follow, by their largest effect.
    """
    by_words = [{words[change]: effect for change, effect in found.items()} for found in effects.values()]
    lines, first = [], []
    for heading, changes in lessons.items():
        named = dict.fromkeys(words[change] for change in changes if change in words)
        lines += [(heading, False), *((name, True) for name in named)]
        first += named
    rest = dict.fromkeys(name for found in by_words for name in found if name not in first)
    largest = {name: max(abs(found[name][0]) for found in by_words if name in found) for name in rest}
    lines += [("The rest", False), ("", False), *((name, True) for name in sorted(rest, key=largest.get, reverse=True))]
    places = np.cumsum([2.1 if change else 1.5 for _, change in lines])
    fig, axes = plots.subplots(1, len(effects), figsize=(5.4, 0.2 * places[-1] + 1.2), sharey=True, squeeze=False)
    for ax, label, found in zip(axes[0], effects, by_words, strict=True):
        rows = {place: found[name] for place, (name, change) in zip(places, lines, strict=True) if name in found}
        _effects_panel(ax, label, rows, heads=len(first) + len(lessons) + 1, lines=places)
    for place, (name, change) in zip(places, lines, strict=True):
        where = {"transform": axes[0, 0].get_yaxis_transform(), "va": "center", "fontsize": 12.5}
        axes[0, 0].text(0, place - 0.85 * change, name, weight="normal" if change else "bold", **where).set_in_layout(
            False
        )
    axes[0, 0].set_ylim(places[-1] + 0.6, places[0] - 0.9)
    fig.supxlabel("points against the base", fontsize=13)
    return fig


def _effects_panel(ax: "Axes", label: str, rows: Mapping[float, Effect], heads: int, lines: Sequence[float]) -> None:
    """A data set's effects by their rows, each with its points on the right; its name again in line ``heads``."""
    for row, effect in rows.items():
        for tick in TICKS:
            ax.plot([tick] * 2, [row - 0.38, row + 0.38], color="0.4" if tick == 0 else "0.85", linewidth=0.9, zorder=1)
        colour = _colour(effect)
        ax.plot(effect[1:], [row, row], color=colour, linewidth=2.2)
        ax.plot(effect[0], row, "o", color=colour, markersize=5.5)
        points = _signed(effect[0], "+.0f" if abs(effect[0]) >= 9.95 else "+.1f")
        look = {"ha": "right", "va": "center", "fontsize": 12, "color": "dimgrey" if colour == UNCLEAR else colour}
        ax.annotate(points, (1, row), (33, 0), ax.get_yaxis_transform(), "offset points", annotation_clip=False, **look)
    ax.set_title(label, fontsize=13, x=0.6)
    ax.text(0.6, lines[heads], label, transform=ax.get_yaxis_transform(), fontsize=13, ha="center", va="center")
    ax.patch.set_visible(False)  # a name that runs over it shows
    ax.set_xscale("function", functions=(lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda y: np.sign(y) * y**2))
    ax.set_xlim(-95, 13)
    ax.set_xticks(list(TICKS), list(TICKS.values()), fontsize=12)
    ax.minorticks_off()
    ax.tick_params(axis="x", length=0, labeltop=True)
    ax.tick_params(axis="y", length=0, labelleft=False)
    ax.spines[:].set_visible(False)


def on_fewer_images(
    curves: Mapping[str, Mapping[str, Sequence[Float[Tensor, " n"]]]], fractions: Sequence[float]
) -> "Figure":
    """A panel for each data set: accuracy over the fraction of the training images, a curve for each model.

    Hollow marks are means, the dots beside them single runs.

    Args:
        curves: for each data set and model, the accuracies of its runs at each fraction.
    """
    fig, axes = plots.subplots(len(curves), 1, figsize=(6.4, 2 * len(curves)), sharex=True, squeeze=False)
    per_cent = 100 * np.asarray(fractions)
    for ax, (label, models) in zip(axes[:, 0], curves.items(), strict=True):
        for i, (model, runs) in enumerate(models.items()):
            style, colour = STYLES[i % len(STYLES)], plots.PALETTE[i % len(plots.PALETTE)]
            means = [each.mean().item() for each in runs]
            ax.plot(per_cent, means, style, color=colour, label=model, mfc="white", markersize=9)
            for place, each in zip(per_cent, runs, strict=True):
                beside = place * (1.15 + 0.08 * i)
                ax.plot([beside] * len(each), each, ".", color=colour, markersize=5)
        ax.set(xscale="log")
        ax.set_title(label, loc="left")
        ax.set_xticks(per_cent, [f"{each:g}" for each in per_cent])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[-1, 0].set_xlabel("fraction of the training images, per cent")
    fig.supylabel("validation accuracy, %", fontsize=13)
    handles = axes[0, 0].get_legend_handles_labels()
    fig.legend(*handles, loc="outside upper center", ncols=3, fontsize=12, columnspacing=1)
    return fig


def shuffled_alike(ways: Mapping[str, Float[Tensor, "n c h w"]]) -> "Figure":
    """The same images in a row for each image and a column for each way of shuffling them.

    Args:
        ways: the images, shuffled in each way.
    """
    columns = torch.stack([*ways.values()], dim=1).flatten(0, 1)
    titles = [*ways, *[""] * (len(columns) - len(ways))]
    fig = plots.show_images(columns, titles, columns=len(ways), size=1.6)
    for ax in fig.axes:  # on a dark page black images would have no edge
        ax.title.set_fontsize(12)
        ax.axis("on")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=plots.COLOURS["other"])
    return fig


def leads(ahead: Mapping[str, Mapping[str, Effect]]) -> "Figure":
    """A panel for each data set, a bar for each kind of images: how far one model leads another, with its interval.

    Grey where the interval holds 0.

    Args:
        ahead: the lead for each data set and kind of images.
    """
    fig, axes = plots.subplots(len(ahead), 1, figsize=(6.4, 1.55 * len(ahead)), sharex=True, squeeze=False)
    for ax, (label, kinds) in zip(axes[:, 0], ahead.items(), strict=True):
        ax.axvline(0, color="black", linewidth=1)
        for row, effect in enumerate(kinds.values()):
            colour = plots.PALETTE[1] if effect[1] > 0 else UNCLEAR
            ax.barh(row, effect[0], height=0.4, color=colour, alpha=0.35)
            ax.plot(effect[1:], [row, row], color=colour, linewidth=2)
            ax.plot(effect[0], row, "s", color=colour, markersize=7)
            points = f"{_signed(effect[0])} ± {effect[0] - effect[1]:.1f}"
            ax.text(1.02, row, points, transform=ax.get_yaxis_transform(), va="center", fontsize=12)
        ax.set_title(label, fontsize=13, loc="left")
        ax.grid(axis="x", alpha=0.3)
        ax.set_yticks(range(len(kinds)), list(kinds), fontsize=12)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_ylim(len(kinds) - 0.5, -0.5)
    axes[-1, 0].set_xlabel("points by which the ResNet leads the ViT", fontsize=13)
    return fig


def on_shifted_images(curves: Mapping[str, Mapping[int, float]], marks: Mapping[str, float]) -> "Figure":
    """Accuracy over the shift of the images in pixels, a curve for each model.

    Args:
        curves: for each model, per cent right by shift.
        marks: shifts that get a dotted line, by what they are called.
    """
    fig, ax = plots.subplots(figsize=(6.4, 3.7))
    for i, (label, curve) in enumerate(curves.items()):
        look = {"color": plots.PALETTE[i % len(plots.PALETTE)], "label": label}
        if i == 0:  # large and hollow: another curve may lie upon it
            look |= {"mfc": "white", "markersize": 12, "linewidth": 3.5}
        ax.plot(list(curve), list(curve.values()), STYLES[i % len(STYLES)], **look)
    for i, (told, place) in enumerate(marks.items()):
        ax.axvline(place, color="grey", linewidth=1, linestyle=":")
        last = i == len(marks) - 1
        look = {"color": "dimgrey", "fontsize": 12, "ha": "left" if last else "right"}
        ax.annotate(told, (place, 4), (4 if last else -4, 0), textcoords="offset points", **look)
    ax.set(xlabel="shift in pixels", ylabel="validation accuracy, %", ylim=(0, 100))
    fig.legend(loc="outside upper center", ncols=3, fontsize=12, columnspacing=1)
    return fig
