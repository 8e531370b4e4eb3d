"""Chapter 4: the encoder block, what its parts do to the tokens, and two orders of its norms."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_tutorial import plots
from vit_tutorial.plots import COLOURS, PALETTE

STREAM, OTHER = PALETTE[0], PALETTE[1]  # the blue line of the diagram, and what it's compared with
STYLES = [(STREAM, "o", "-"), ("0.4", "s", "--"), (OTHER, "^", ":"), (PALETTE[2], "D", "-.")]


def tokens_as_colours(
    image: Float[Tensor, "c H W"], steps: Sequence[Float[Tensor, "n d"]], titles: Sequence[str]
) -> Figure:
    """An image, and its tokens after each attention layer, a square each: they turn into one grey.

    Colours are a token's place along the three directions in which the tokens differ most; grey is their mean.

    Args:
        steps: the tokens before the first layer, and after each.
        titles: one for each of these.
    """
    fig, axes = plots.subplots(1, len(steps) + 1, figsize=(1.5 * len(steps) + 1.5, 2.1))
    axes[0].imshow(rearrange(image, "c H W -> H W c"))
    axes[0].set_title("image")
    for ax, x, title in zip(axes[1:], steps, titles, strict=True):
        apart = (x - x.mean(dim=0)) / x.square().mean().sqrt()
        main = 0.5 + apart @ torch.linalg.svd(apart).Vh[:3].T / 12
        ax.imshow(rearrange(main, "(gh gw) rgb -> gh gw rgb", gh=math.isqrt(len(x))).clamp(0, 1))
        ax.set_title(title)
    for ax in axes:
        ax.axis("off")
    return fig


def block(order: str) -> Figure:
    """One block: the stream is a thick line; two branches leave it, compute, and are added back.

    Args:
        order: ``"pre-norm"``, with the norms in the branches, or ``"post-norm"``, with the norms on the stream.
    """
    fig, ax = plots.subplots(figsize=(6, 1.6))
    ax.annotate("", (22.2, 0), (0, 0), arrowprops={"arrowstyle": "-|>", "linewidth": 5, "color": STREAM})
    for start, branch, norm in [(0.9, "attention", "norm1"), (11.2, "MLP", "norm2")]:
        pre = order == "pre-norm"
        plus = start + (8.3 if pre else 5.6)
        ax.plot([start, start, plus, plus], [0, 2.3, 2.3, 0.45], color="0.25", linewidth=1.6, zorder=1)
        _box(ax, start + (3.6 if pre else 0.7), 4.2, 2.3, branch, COLOURS[branch.lower()])
        _box(ax, start + 0.4 if pre else plus + 0.9, 2.9, 2.3 * pre, norm, COLOURS["norm"])
        ax.plot(plus, 0, "o", markersize=17, zorder=5, color="white", markeredgecolor="0.25", markeredgewidth=1.6)
        ax.text(plus, -0.03, "+", ha="center", va="center", zorder=6)
    ax.set(xlim=(-0.2, 22.3), ylim=(-1, 3.2))
    ax.axis("off")
    return fig


def _box(ax: Axes, left: float, width: float, y: float, text: str, colour: str) -> None:
    """A part of a block: a pale box that hides the lines behind it."""
    at, height = (left, y - 0.65), 1.3
    ax.add_patch(Rectangle(at, width, height, color="white", zorder=3))
    ax.add_patch(Rectangle(at, width, height, fc=(colour, 0.3), ec=colour, zorder=3))
    ax.text(left + width / 2, y, text, ha="center", va="center", zorder=4)


def tokens_differ(differ: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """How much the tokens of an image differ, block by block, a line for each initialization; logarithmic.

    Args:
        differ: by the kind of stack, fractions before the first block and after each, for each initialization.
    """
    fig, ax = plots.subplots(figsize=(6, 3.2))
    for (name, runs), (colour, marker, style) in zip(differ.items(), cycle(STYLES), strict=False):
        for number, run in enumerate(runs):
            label = name if number == 0 else None
            ax.plot([100 * value for value in run], marker + style, ms=4, lw=1.5, color=colour, label=label)
    ax.set(yscale="log", ylabel="tokens differ by (%)", xlabel="blocks", ylim=(1e-5, 200))
    ax.set_yticks([1e-4, 1e-2, 1, 100], ["0.0001", "0.01", "1", "100"])
    ax.minorticks_off()
    ax.legend()
    return fig


def loudness(stream: Sequence[float], adds: Mapping[str, Sequence[float]], raw: Sequence[float]) -> Figure:
    """Left, how loud the stream is, and what each branch adds; right, the stream with norms and without, logarithmic.

    Args:
        stream, raw: root mean square before the first block and after each, with norms and without.
        adds: that of each block's branches, by name.
    """
    fig, (left, right) = plots.subplots(1, 2, figsize=(6, 3.3))
    left.plot(stream, color=STREAM, lw=4, label="the stream")
    for (name, values), marker in zip(adds.items(), "os", strict=True):
        colour = COLOURS[name.lower()]
        left.plot(range(1, len(values) + 1), values, marker, ms=4, color=colour, label=f"{name} adds")
    left.set(xlabel="blocks", ylabel="loudness (RMS)", ylim=(0, 1.7 * max(stream)))
    left.legend(fontsize=11, loc="upper left")
    right.plot(stream, color=STREAM, lw=4, label="with norms")
    right.plot(raw, "--", color="0.25", label="without norms")
    right.set(yscale="log", xlabel="blocks", ylim=(0.3, 30 * max(raw)))
    right.yaxis.set_major_formatter("{x:,.0f}")
    right.minorticks_off()
    right.legend(fontsize=11, loc="upper left")
    return fig


def normalized(panels: Mapping[str, Float[Tensor, "n d"]]) -> Figure:
    """Tokens (rows) by channels (columns), before a norm and after norms along either axis, on one scale."""
    # without the map's ends, which are nearly black
    lighter = ListedColormap(plt.get_cmap("PuOr_r")(torch.linspace(0.12, 0.88, 256)))
    fig, axes = plots.subplots(1, len(panels), figsize=(6, 3.2), sharey=True)
    for ax, (title, values) in zip(axes, panels.items(), strict=True):
        drawn = ax.imshow(values, cmap=lighter, vmin=-3, vmax=3, aspect="auto")
        ax.set(title=title, xlabel="channel")
        ax.locator_params(integer=True, nbins=4)
    axes[0].set_ylabel("token")
    fig.colorbar(drawn, ax=axes, label="value", extend="both")
    return fig


def gates(x: Float[Tensor, " n"], factors: Mapping[str, Float[Tensor, " n"]]) -> Figure:
    """What activation functions multiply their input by, left, and what comes out, right."""
    fig, axes = plots.subplots(1, 2, figsize=(6.2, 2.8), sharex=True)
    looks = [("0.5", "--"), (COLOURS["mlp"], "-"), (PALETTE[0], ":"), (PALETTE[4], "-.")]
    for (name, factor), (colour, style) in zip(factors.items(), cycle(looks), strict=False):
        for ax, y in zip(axes, (factor, x * factor), strict=True):
            ax.plot(x, y, style, color=colour, lw=2.5, label=name)
    axes[0].set_title("x is multiplied by")
    axes[1].set_title("result")
    axes[1].legend()
    for ax in axes:
        ax.set_xlabel("x")
    return fig


def explained(curves: Mapping[str, Float[Tensor, "seeds t"]], every: int) -> Figure:
    """How much of a product's variance nets explain while they learn, a line for each seed.

    Args:
        curves: fractions, by the kind of net.
        every: training steps between two values.
    """
    fig, ax = plots.subplots(figsize=(6, 3.2))
    for (name, runs), (colour, marker, style) in zip(curves.items(), cycle(STYLES), strict=False):
        at = [every * (i + 1) for i in range(runs.shape[1])]
        for number, run in enumerate(runs):
            label = name if number == 0 else None
            ax.plot(at, 100 * run, marker + style, ms=3, lw=1.5, color=colour, label=label)
    ax.set(xlabel="training step", ylabel="variance explained (%)", ylim=(0, 104))
    ax.legend(loc="lower right")
    return fig


def losses_by_rate(reached: Mapping[tuple[str, float], Sequence[float]], guessing: float) -> Figure:
    """The loss at the end of training against the learning rate: a mark for each seed, a line through their means.

    Args:
        reached: losses by name and learning rate.
        guessing: the loss of a guess, dotted.
    """
    fig, ax = plots.subplots(figsize=(6, 3.3))
    names = list(dict.fromkeys(name for name, _ in reached))
    looks = [(STREAM, "o", "-"), (OTHER, "s", "-"), (PALETTE[2], "^", "--"), (PALETTE[3], "D", "--")]
    for place, (name, (colour, marker, style)) in enumerate(zip(names, cycle(looks), strict=False)):
        rates = sorted(rate for other, rate in reached if other == name)
        centres = [rate * 1.2 ** (place - (len(names) - 1) / 2) for rate in rates]  # beside the others
        ax.plot(centres, [sum(reached[name, r]) / len(reached[name, r]) for r in rates], style, color=colour)
        for centre, rate in zip(centres, rates, strict=True):
            beside = [
                centre * 1.04 ** (i - (len(reached[name, rate]) - 1) / 2) for i in range(len(reached[name, rate]))
            ]
            ax.plot(beside, reached[name, rate], marker, ms=6, color=colour, label=name if rate == rates[0] else None)
    ax.axhline(guessing, color="0.4", linestyle=":", lw=1.5, label="guessing")
    ticks = sorted({rate for _, rate in reached})
    ax.set(xscale="log", xlabel="learning rate", ylabel="training loss", ylim=(0, 1.25 * guessing))
    ax.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
    ax.minorticks_off()
    fig.legend(loc="outside upper center", ncols=2, fontsize=12)
    return fig


def who_ran(ran: Bool[Tensor, "images branches"]) -> Figure:
    """The coin flips of DropPath: a row for each image, two columns a block; what was skipped is hollow."""
    fig, ax = plots.subplots(figsize=(6, 3.2))
    looks = [{"fc": COLOURS[name], "lw": 0} for name in ("attention", "mlp")]
    hollow = {"fc": "white", "ec": "0.6", "lw": 0.8}
    for image, flips in enumerate(ran.tolist()):
        for branch, it_ran in enumerate(flips):
            at = branch + (-0.42 if branch % 2 == 0 else -0.5), image - 0.44
            ax.add_patch(Rectangle(at, 0.9, 0.88, **(looks[branch % 2] if it_ran else hollow)))
    images, branches = ran.shape
    ax.set(xlabel="block", ylabel="image", xlim=(-0.6, branches - 0.4), ylim=(images - 0.4, -0.6))
    ax.set_xticks([2 * i + 0.5 for i in range(branches // 2)], range(1, branches // 2 + 1))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    handles = [Rectangle((0, 0), 1, 1, **look) for look in (hollow, *looks)]
    fig.legend(handles, ["skipped", "attention ran", "MLP ran"], loc="outside upper center", ncols=3, fontsize=12)
    return fig


def twins(runs: Mapping[str, Sequence[Sequence[float]]], window: int = 10) -> Figure:
    """Training losses of two models that look alike, a line for each seed; moving average.

    Args:
        runs: losses of each step, by name and seed.
        window: steps of the average.
    """
    fig, ax = plots.subplots(figsize=(6, 3))
    looks = [("0.25", "--"), (COLOURS["norm"], "-"), (STREAM, ":"), (OTHER, "-.")]
    for (name, seeds), (colour, style) in zip(runs.items(), cycle(looks), strict=False):
        for number, losses in enumerate(seeds):
            near = min(window, len(losses))
            smooth = F.avg_pool1d(torch.tensor([losses]), near, stride=1)[0]
            at = range(near, len(losses) + 1)
            ax.plot(at, smooth, style, color=colour, lw=1.6, label=name if number == 0 else None)
    ax.set(xlabel="step", ylabel="training loss", ylim=(0, None))
    ax.legend()
    return fig
