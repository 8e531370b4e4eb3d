"""The drawings of chapter 11, what it costs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vit_tutorial import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, LIGHT = plots.PALETTE[0], plots.PALETTE[4], plots.PALETTE[5]
WAIT = "#B0B0B0"
MARKS = (("o", 10, plots.PALETTE[4]), ("s", 6, "black"), ("^", 8, plots.PALETTE[2]), ("D", 6, plots.PALETTE[3]))
GRAIN = {"edgecolor": "white", "linewidth": 1.5}


def one_gpu(steps: Mapping[str, tuple[float, float]], until: float = 40) -> "Figure":
    """What one GPU does in the first milliseconds: a row of blue bars of computing, grey ones of waiting between them.

    Args:
        steps: by the row's name, a step's milliseconds and how many of them are computing.
        until: milliseconds drawn.
    """
    fig, ax = plots.subplots(figsize=(6, 0.9 + 0.6 * len(steps)))
    for row, (step, computing) in enumerate(steps.values()):
        starts = [i * step for i in range(max(1, round(until / step)))]
        waits = [start + computing for start in starts]
        ax.barh([row] * len(starts), step - computing, 0.6, left=waits, color=WAIT, **GRAIN, label="waits")
        ax.barh([row] * len(starts), computing, 0.6, left=starts, color=BLUE, **GRAIN, label="computes")
    ax.set_yticks(range(len(steps)), list(steps))
    ax.set(xlim=(-0.3, until + 0.5), xlabel="time of one GPU, ms")
    ax.invert_yaxis()
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles[1::-1], labels[1::-1], loc="outside upper center", ncols=2)
    return fig


def shares(taken: Mapping[str, float], told: str) -> "Figure":
    """A bar for each kind of operation, as long as its part of the time, which stands beside it."""
    whole = sum(taken.values())
    parts = [100 * took / whole for took in taken.values()]
    fig, ax = plots.subplots(figsize=(6, 0.6 + 0.55 * len(parts)))
    colours = [BLUE, plots.COLOURS["attention"], plots.COLOURS["norm"]][: len(parts)]
    bars = ax.barh(list(taken), parts, color=colours + ["#BBBBBB"] * (len(parts) - len(colours)))
    ax.bar_label(bars, [f"{part:.0f} %" for part in parts], padding=4)
    ax.set(xlim=(0, 1.15 * max(parts)), xticks=[], xlabel=told)
    ax.invert_yaxis()
    return fig


def roofline(peak: float, bandwidth: float, points: Mapping[str, tuple[float, float]]) -> "Figure":
    """What a machine can do at most, a slope that ends in a flat roof, and what some operations make of it.

    Args:
        peak: operations a second.
        bandwidth: bytes a second.
        points: by name, an operation's arithmetic for each byte that it moves, and what it does in a second.
    """
    fig, ax = plots.subplots(figsize=(6, 3.8))
    ridge = peak / bandwidth
    ends = [x for x, _ in points.values()] + [ridge]
    x = torch.logspace(torch.tensor(min(ends) / 4).log10(), torch.tensor(max(ends) * 16).log10(), 200)
    roof = (x * bandwidth).clamp(max=peak)
    ax.plot(x, roof / 1e9, color="black", linewidth=2)
    ax.fill_between(x, roof / 1e9, color=BLUE, alpha=0.1, linewidth=0)
    ax.axvline(ridge, color="grey", linestyle="--", linewidth=1)
    for name, (intensity, rate) in points.items():
        ax.plot(intensity, rate / 1e9, "o", color=ORANGE, markersize=8)
        look = {"textcoords": "offset points", "fontsize": 12, "va": "center"}
        ax.annotate(name, (intensity, rate / 1e9), (9, -8), **look)
    ax.set(xscale="log", yscale="log", xlabel="operations for each byte moved", ylabel="billion operations a second")
    ax.set_ylim(min(rate for _, rate in points.values()) / 4e9, 2.5 * peak / 1e9)
    top = ax.get_xaxis_transform()
    ax.text(ridge, 1.02, f"ridge: {ridge:.0f}", transform=top, ha="center", fontsize=12)
    return fig


def one_image(panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> "Figure":
    """Panels with a bar for each way to load; its parts, one after the other, are the microseconds of one image.

    Args:
        panels: by title and by way, the parts: loading, launching, learning.
    """
    colours = {"loading": LIGHT, "launching": WAIT, "learning": BLUE}
    ways = max(len(bars) for bars in panels.values())
    fig, axes = plots.subplots(len(panels), 1, figsize=(6, 1 + len(panels) * (0.7 + 0.4 * ways)), squeeze=False)
    for ax, (title, bars) in zip(axes[:, 0], panels.items(), strict=True):
        for row, parts in enumerate(bars.values()):
            end = 0.0
            for part, took in parts.items():
                look = {"color": colours[part], "edgecolor": colours[part], "label": part}
                ax.barh(row, took, 0.6, left=end, **look)
                end += took
            told = " + ".join(f"{took:,.0f}" if took >= 9.5 else f"{took:.1f}" for took in parts.values())
            ax.annotate(f"{told} µs", (end, row), (5, 0), textcoords="offset points", va="center", fontsize=12)
        ax.set_yticks(range(len(bars)), list(bars))
        ax.set(xlim=(0, 1.75 * max(sum(parts.values()) for parts in bars.values())), xticks=[])
        ax.set_title(title, fontsize=13, loc="left")
        ax.invert_yaxis()
    axes[-1, 0].set_xlabel("µs for one image")
    told = {label: dot for ax in axes[:, 0] for dot, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    told = {part: told[part] for part in colours if part in told}
    fig.legend(told.values(), told.keys(), loc="outside upper center", ncols=3)
    return fig


def launches(calls: Mapping[str, int], launch: float, computing: float) -> "Figure":
    """A row for each way: grey blocks, in which Python starts a call, and below each the GPU's sliver of arithmetic.

    Args:
        calls: by the row's name, how many.
        launch: microseconds to start one.
        computing: microseconds of arithmetic in each row, drawn in equal parts.
    """
    fig, ax = plots.subplots(figsize=(6, 0.5 + 0.8 * len(calls)))
    longest = max(count * launch + computing / count for count in calls.values())
    for row, count in enumerate(calls.values()):
        starts = [launch * i for i in range(count)]
        ax.barh([row - 0.18] * count, launch, 0.36, left=starts, color="#BBBBBB", edgecolor="white", linewidth=0.8)
        works = [(launch * (i + 1), computing / count) for i in range(count)]
        ax.broken_barh(works, (row, 0.36), facecolor=BLUE)
        ax.vlines([begin for begin, _ in works], row, row + 0.36, color=BLUE, linewidth=1.2)
        end = count * launch + computing / count
        for up, colour, told in ((-0.18, "black", f"{end:.0f} µs"), (0.18, BLUE, f"GPU: {computing:.0f} µs")):
            ax.text(end + 0.02 * longest, row + up, told, color=colour, va="center", fontsize=12)
    ax.set_yticks(range(len(calls)), [f"{name}\n{count} calls" for name, count in calls.items()])
    ax.set(xlim=(0, 1.33 * longest), xlabel="µs on a GPU, estimated")
    ax.invert_yaxis()
    return fig


def rungs(calls: Mapping[str, int], rest: int, rates: Mapping[str, float], summit: float) -> "Figure":
    """Above, the calls of a step for each way to write the model; below, the images a second, and the summit, dashed.

    Args:
        calls: of forward, loss and backward.
        rest: the calls of the step's other parts, the same for all.
        rates: images a second in forward, loss and backward.
        summit: the most images a second that this machine could do.
    """
    fig, (upper, lower) = plots.subplots(2, 1, figsize=(6, 1.6 + 0.8 * len(rates)))
    dark = upper.barh(list(calls), calls.values(), color=plots.COLOURS["other"])
    light = upper.barh(list(calls), rest, left=list(calls.values()), color="#CCCCCC")
    upper.bar_label(light, [f"{count} + {rest}" for count in calls.values()], padding=4, fontsize=12)
    upper.set(xlim=(0, 1.3 * (max(calls.values()) + rest)), xticks=[])
    upper.set_xlabel("calls in a step", fontsize=12)
    bars = lower.barh(list(rates), rates.values(), color=BLUE)
    lower.bar_label(bars, [f"{rate:,.0f}" for rate in rates.values()], padding=4, fontsize=12)
    lower.axvline(summit, color="grey", linestyle="--")
    top = lower.get_xaxis_transform()
    lower.text(summit, 1.02, f"summit: {summit:,.0f}", transform=top, ha="right", fontsize=12)
    lower.set(xlim=(0, max(1.02 * summit, 1.3 * max(rates.values()))), xticks=[])
    lower.set_xlabel("images a second, here", fontsize=12)
    for ax in (upper, lower):
        ax.invert_yaxis()
    names = ["forward, loss, backward", "rest of the step"]
    fig.legend([dark, light], names, loc="outside upper center", ncols=2, fontsize=12)
    return fig


def per_token(tokens: Sequence[int], times: Mapping[str, Sequence[float]], dim: int) -> "Figure":
    """What one token costs in sequences of several lengths: marks are the clock's, bands the count's.

    Args:
        tokens: lengths.
        times: of one block on a sequence of each length, in seconds, for each way of attention.
        dim: width of the block. The bands are scaled to the last way's times.
    """
    fig, ax = plots.subplots(figsize=(6, 3.5))
    n, longest = torch.tensor(tokens).double(), max(tokens)
    costs = {name: 1e6 * torch.as_tensor(took).double() / n for name, took in times.items()}
    line = torch.tensor([0.0, longest])
    flat = float((list(costs.values())[-1] / (1 + n / (6 * dim))).median())
    matrices, counted = torch.full((2,), flat), flat * (1 + line / (6 * dim))
    ax.fill_between(line, matrices, color=BLUE, alpha=0.2, linewidth=0)
    ax.fill_between(line, matrices, counted, color=plots.COLOURS["attention"], alpha=0.25, linewidth=0)
    ax.text(longest / 2, 0.45 * flat, "matrix products", ha="center", fontsize=12)
    ax.text(0.87 * longest, 1.1 * flat, "comparing and mixing", ha="right", fontsize=12)
    for (name, cost), (mark, size, colour) in zip(costs.items(), MARKS, strict=False):
        hollow = {"markerfacecolor": "none", "markeredgewidth": 2} if mark == "o" else {}
        ax.plot(tokens, cost, mark, markersize=size, color=colour, label=name, **hollow)
    ax.axvline(6 * dim, color="grey", linewidth=1)
    top = ax.get_xaxis_transform()
    ax.text(6 * dim, 1.02, f"6d = {6 * dim:,}", transform=top, ha="center", fontsize=12)
    ax.set(xlabel="tokens", ylabel="µs for one token, here", xlim=(0, 1.02 * max(longest, 6 * dim)))
    ax.set_ylim(0, None)
    fig.legend(loc="outside upper center", ncols=2, fontsize=12)
    return fig


def hours(gpus: Sequence[int], curves: Mapping[int, Sequence[float]], full: Mapping[int, int], at: int) -> "Figure":
    """Hours of a training over the number of GPUs, a line for each number of cables; where one turns flat, it's full.

    Args:
        gpus: how many, in ascending order.
        curves: by the cables of a machine, the hours.
        full: by the cables of a machine, from how many GPUs on they are full.
        at: the number of GPUs that gets a dot and its minutes.
    """
    fig, ax = plots.subplots(figsize=(6, 3.7))
    for (cables, times), colour in zip(curves.items(), (ORANGE, BLUE, plots.PALETTE[2], "black"), strict=False):
        shown = min(at, gpus[-1])
        minutes = 60 * times[gpus.index(shown)]
        until = f" (full at {full[cables]:,})" if full[cables] in gpus else ""
        told = f"{cables} cable{'s' * (cables > 1)}{until}: {minutes:.0f} min"
        ax.plot(gpus, times, color=colour, linewidth=2.5, label=told)
        ax.plot(shown, minutes / 60, "o", color=colour, markersize=9)
        if full[cables] in gpus:
            ax.plot(full[cables], times[gpus.index(full[cables])], "|", color=colour, markersize=16, markeredgewidth=2)
    ax.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="training time")
    ticks = [gpu for gpu in (1, 8, 64, 256, 1024) if gpus[0] <= gpu <= gpus[-1]]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    low, high = (f(t for times in curves.values() for t in times) for f in (min, max))
    names = {"1 week": 168, "1 day": 24, "5 h": 5, "1 h": 1, "10 min": 1 / 6, "3 min": 1 / 20, "30 s": 1 / 120}
    shown = {name: time for name, time in names.items() if low / 2 < time < 2 * high}
    ax.set_yticks(list(shown.values()), list(shown))
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    fig.legend(loc="outside upper center", fontsize=12)
    return fig


def front(
    names: Sequence[str], cost: Float[Tensor, " k"], error: Float[Tensor, " k"], on: Bool[Tensor, " k"], colour: str
) -> "Figure":
    """Runs by what they cost and how often they err; those on the front in colour, joined by steps, named on the left.

    Args:
        error: of test images, in per cent.
        on: whether a run is on the front.
        colour: of the data set.
    """
    fig, ax = plots.subplots(figsize=(6, 4.6))
    order = cost[on].argsort()
    ax.step(cost[on][order], error[on][order], where="post", color=colour, linewidth=2, zorder=0)
    ax.plot(cost[on], error[on], "o", color=colour, markersize=10, label="on the front, by validation")
    grey = {"color": plots.COLOURS["other"], "markersize": 8, "markerfacecolor": "white", "markeredgewidth": 1.5}
    ax.plot(cost[~on], error[~on], "o", label="off the front", **grey)
    dear = sorted(set(cost[~on].tolist()))  # their names stand a little higher and lower in turn
    for name, x, y, is_on in zip(names, cost.tolist(), error.tolist(), on.tolist(), strict=True):
        place, side = ((-9, -4), "right") if is_on else ((8, 6 if dear.index(x) % 2 else -6), "left")
        look = {"ha": side, "va": "center", "fontsize": 11, "color": "black" if is_on else "#666666"}
        ax.annotate(name, (x, y), place, textcoords="offset points", **look)
    ax.set(xscale="log", yscale="log", xlabel="operations of the whole training (T: 10¹²)", ylabel="test error, %")
    ticks = [t for t in (0.5, 1, 2, 3, 5, 10, 20, 30, 50, 70) if error.min() / 1.5 < t < 1.5 * error.max()]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.xaxis.set_major_formatter(lambda value, _: f"{value / 1e12:,g} T")
    spread = float(cost.max() / cost.min())
    ax.set_xlim(float(cost.min()) / 1.5 / spread**0.3, 1.5 * float(cost.max()) * spread**0.4)  # room for names
    ax.minorticks_off()
    ax.margins(y=0.15)
    ax.grid(alpha=0.3)
    fig.legend(loc="outside upper center", ncols=2, fontsize=12)
    return fig


def speedrun(minutes: Sequence[float], curves: Mapping[str, Sequence[float]], to_beat: float, told: str) -> "Figure":
    """Validation accuracy over minutes: the first run in blue, the others in grey, and dashed what's to be beaten.

    Args:
        minutes: after each epoch.
        curves: by the run's name, the accuracies in per cent.
        to_beat: an accuracy in per cent, which ``told`` names.
    """
    fig, ax = plots.subplots(figsize=(6, 3.6))
    for i, (name, curve) in enumerate(curves.items()):
        look = {"color": BLUE, "linewidth": 2.5, "zorder": 2} if i == 0 else {"color": WAIT, "linewidth": 1}
        ax.plot(
            minutes[: len(curve)],
            curve[: len(minutes)],
            label=name if i == 0 else "_" if i > 1 else "other seeds",
            **look,
        )
    ax.axhline(to_beat, color=ORANGE, linestyle="--", label=told)
    ax.set(xlabel="minutes, two CPU cores", ylabel="validation accuracy, %", xlim=(0, None))
    ax.grid(alpha=0.3)
    fig.legend(loc="outside upper center", ncols=3, fontsize=12)
    return fig
