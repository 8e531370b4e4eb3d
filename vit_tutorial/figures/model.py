"""Chapter 5: what a model is made of, digits, how two trainings went, and where a model looks."""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_tutorial import plots

ORANGE = plots.PALETTE[4]
PARTS = (plots.COLOURS["mlp"], plots.COLOURS["attention"], "#CFC6F2", "#BBBBBB")  # the third is a paler second
ROWS = ((plots.COLOURS["ours"], "-", "o"), (ORANGE, "--", "s"), (plots.COLOURS["other"], ":", "^"))  # of curves


def _squares(shares: Sequence[float]) -> list[int]:
    """Whole numbers that sum to 100; what is cut off most gets one more."""
    whole = [int(share) for share in shares]
    for _ in range(100 - sum(whole)):
        lost = [share - n for share, n in zip(shares, whole, strict=True)]
        whole[lost.index(max(lost))] += 1
    return whole


def hundred_squares(percent: dict[str, Sequence[float]], titles: Sequence[str]) -> Figure:
    """A hundred squares for each title, coloured by part: how little of a model compares tokens.

    Args:
        percent: for each part, its percentage of every title's whole.
        titles: of the panels.
    """
    fig, axes = plots.subplots(1, len(titles), figsize=(6, 3.6), squeeze=False)
    for i, (ax, title) in enumerate(zip(axes[0], titles, strict=True)):
        colours = [
            PARTS[part % len(PARTS)]
            for part, squares in enumerate(_squares([float(shares[i]) for shares in percent.values()]))
            for _ in range(squares)
        ]
        for cell, colour in enumerate(colours):
            ax.add_patch(Rectangle((cell % 10, cell // 10), 0.9, 0.9, color=colour, lw=0))
        ax.set(xlim=(-0.1, 10), ylim=(10, -0.1), aspect="equal", title=title)
        ax.axis("off")
    legend = [Rectangle((0, 0), 1, 1, color=PARTS[part % len(PARTS)], lw=0) for part in range(len(percent))]
    fig.legend(legend, percent, loc="outside lower center", ncols=2, fontsize=12)
    return fig


def _paper(ax: Axes, digit: Float[Tensor, "1 h w"], patch: int | None) -> None:
    """A digit in dark ink on the page's paper, in a thin frame, and lines between patches of a given size."""
    ax.imshow(digit[0].cpu().numpy(), cmap="gray_r", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color="0.6", linewidth=1)
    for edge in torch.arange(patch, digit.shape[-1], patch) - 0.5 if patch else ():
        ax.axhline(edge, color="0.6", linewidth=1)
        ax.axvline(edge, color="0.6", linewidth=1)


def digits(
    pictures: Float[Tensor, "b 1 h w"],
    titles: Sequence[object],
    columns: int = 5,
    patch: int | None = None,
    wrong: Collection[int] = (),
) -> Figure:
    """Digits as ink on paper, coarse but readable, each with a title.

    Args:
        pictures: 1 is ink, 0 paper.
        titles: one for each.
        columns: digits in a row.
        patch: the side of a patch, for lines between them.
        wrong: which have an orange title, by number.
    """
    rows = -(-len(pictures) // columns)
    fig, axes = plots.subplots(rows, columns, figsize=(1.2 * columns, 1.5 * rows), squeeze=False)
    for ax in axes.flat[len(pictures) :]:
        ax.axis("off")
    for i, (picture, title) in enumerate(zip(pictures, titles, strict=True)):
        ax = axes.flat[i]
        _paper(ax, picture, patch)
        style = {"color": ORANGE, "weight": "bold"} if i in wrong else {}
        ax.set_title(str(title), **style)
    return fig


def two_trainings(histories: dict[str, list[dict[str, float]]], floor: float) -> Figure:
    """Loss and accuracy by epoch: one loss goes to nearly zero, the other stops above the floor; both read well.

    Args:
        histories: by name; each epoch has ``"train"``, a loss, and ``"accuracy"``, a fraction.
        floor: the least loss that a model with a softmax can reach, a dotted line.
    """
    fig, (left, right) = plots.subplots(1, 2, figsize=(6, 3.4))
    for i, (name, history) in enumerate(histories.items()):
        colour, line, _ = ROWS[i % len(ROWS)]
        epochs = range(1, len(history) + 1)
        marker = "o" if len(history) == 1 else None
        left.plot(epochs, [epoch["train"] for epoch in history], line, color=colour, label=name, marker=marker)
        right.plot(epochs, [100 * epoch["accuracy"] for epoch in history], line, color=colour, marker=marker)
    left.axhline(floor, color="black", linestyle=":", linewidth=1.5)
    left.text(len(history), floor - 0.06, f"floor, {floor:.3f}", ha="right", va="top", fontsize=12)
    left.set(xlabel="epoch", title="training loss", ylim=(0, None))
    right.set(xlabel="epoch", title="test accuracy, %", ylim=(0, 102))
    fig.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=12)
    return fig


def confusions(counts: Int[Tensor, "k k"]) -> Figure:
    """Counts of true class (row) and answer (column): nearly all on the diagonal, a few mistakes beside it."""
    fig, ax = plots.subplots(figsize=(4.4, 4.2))
    plots.confusion_matrix(counts.cpu(), [str(i) for i in range(len(counts))], ax)
    return fig


def discs(
    pictures: Float[Tensor, "b 1 h w"],
    titles: Sequence[object],
    rows: dict[str, Float[Tensor, "b n"]],
    patch: int,
) -> Figure:
    """Digits with a disc on each patch, as large as the class token's attention to it: here on ink, there on paper.

    Args:
        pictures: 1 is ink, 0 paper.
        titles: one for each.
        rows: the weights of each row of pictures, by what stands at its left.
        patch: the side of a patch.
    """
    count = len(pictures)
    fig, axes = plots.subplots(len(rows), count, figsize=(6, 1.45 * len(rows)), squeeze=False)
    side = pictures.shape[-1]
    middles = torch.arange(side // patch) * patch + (patch - 1) / 2
    y, x = torch.meshgrid(middles, middles, indexing="ij")
    area = 420 * (4 / count) ** 2  # of a picture's discs together
    for row, (name, weights) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(name, fontsize=12, rotation=0, ha="right", va="center")
        for ax, picture, title, seen in zip(row, pictures, titles, weights.cpu(), strict=True):
            _paper(ax, 0.55 * picture, patch)  # grey, so that a disc shows on ink
            ax.scatter(x.flatten(), y.flatten(), s=area * seen, color=plots.COLOURS["class token"], alpha=0.85)
            if ax.get_subplotspec().is_first_row():
                ax.set_title(str(title))
    return fig


def starts(
    widths: Sequence[int], outputs: dict[str, list[float]], histories: dict[str, list[list[dict[str, float]]]]
) -> Figure:
    """What a fresh MLP gives out by its width, and accuracies by epoch, a line a seed, for each rule to start.

    Args:
        widths: of a token.
        outputs: the standard deviation of the MLP's output at each width, by rule.
        histories: of each seed's training, by rule.
    """
    fig, (left, right) = plots.subplots(1, 2, figsize=(6, 3.5))
    for i, rule in enumerate(outputs):
        colour, line, marker = ROWS[i % len(ROWS)]
        style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 5}
        left.plot(widths, outputs[rule], label=rule, **style)
        for history in histories[rule]:
            epochs = range(1, len(history) + 1)
            right.plot(epochs, [100 * epoch["accuracy"] for epoch in history], **style | {"linewidth": 1.2})
    left.set(xscale="log", yscale="log", xlabel="width", title="output of one MLP (std)")
    left.set_xticks(widths[::2], [str(width) for width in widths[::2]])
    left.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    left.minorticks_off()
    right.set(xlabel="epoch", title="test accuracy, %", ylim=(0, 102))
    fig.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(outputs), fontsize=11)
    return fig


def losses_and_gradients(
    logit: Float[Tensor, " n"], curves: dict[str, tuple[Float[Tensor, " n"], Float[Tensor, " n"]]], floor: float
) -> Figure:
    """Loss, and size of its gradient, over the true class's logit: with a second softmax neither says how wrong it is.

    Args:
        logit: that of the true class.
        curves: losses and sizes of the gradient, by name.
        floor: a dotted line for the loss.
    """
    fig, axes = plots.subplots(1, 2, figsize=(6, 3.5))
    for i, (name, values) in enumerate(curves.items()):
        colour, line, _ = ROWS[i % len(ROWS)]
        for ax, y, label in zip(axes, values, ("loss", "size of the gradient"), strict=True):
            ax.plot(logit, y, line, color=colour, label=name)
            ax.set(ylabel=label, ylim=(0, None))
    axes[0].axhline(floor, color="black", linestyle=":", linewidth=1.5, label="floor")
    fig.supxlabel("logit of the true class (the others are 0)", fontsize=13)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=11)
    return fig
