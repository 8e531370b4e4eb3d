"""The drawings of chapter 3: a pencil's matrices, who reads whom, how heads share one matrix, what a layer costs."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import cycle

import matplotlib.pyplot as plt
import torch
from einops import rearrange
from jaxtyping import Float, Shaped
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from vit_tutorial.plots import COLOURS, Diagram, subplots
from vit_tutorial.plots.diagram import tint

VIOLET = COLOURS["attention"]
WEIGHTS = LinearSegmentedColormap.from_list("weights", ["white", VIOLET])
TOKENS = [COLOURS[part] for part in ("class token", "positions", "norm", "mlp")]  # tell tokens apart, and mean no part


def _number(value: float) -> str:
    """2, 1/3 or 3.7: a fraction if it's short."""
    fraction = Fraction(value).limit_denominator(12)
    return str(fraction) if abs(fraction - value) < 1e-6 and len(str(fraction)) < 4 else f"{value:.2g}"


def _matrix(ax: Axes, corner: tuple[float, float], title: str, matrix: Tensor, colour: str, above: bool) -> None:
    """Numbers on tiles, which are the stronger the larger the number, under or over the matrix's name."""
    left, top = corner
    (rows, columns), strongest = matrix.shape, max(1e-9, float(matrix.max()))
    for i, row in enumerate(matrix.tolist()):
        for j, value in enumerate(row):
            tile = {"color": tint(colour, 0.12 + 0.28 * max(0, value) / strongest), "linewidth": 0}
            ax.add_patch(plt.Rectangle((left + j, top + i), 0.94, 0.94, **tile))
            ax.text(left + j + 0.47, top + i + 0.5, _number(value), ha="center", va="center", fontsize=12)
    y = top - 0.45 if above else top + rows + 0.45
    ax.text(left + columns / 2, y, title, ha="center", va="center", weight="bold", color=colour, fontsize=12)


def on_one_sheet(
    queries: Shaped[Tensor, "n hd"],
    keys: Shaped[Tensor, "n hd"],
    values: Shaped[Tensor, "n vd"],
    steps: tuple[Tensor, Tensor, Tensor],
    names: Sequence[str],
) -> Figure:
    """All of attention: queries left of the scores, keys above them; weights left of the outputs, values above those.

    Args:
        queries, keys, values: a row for each token.
        steps: scores, weights and outputs.
        names: of the tokens.
    """
    scores, weights, outputs = steps
    n, hd, vd = len(queries), queries.shape[1], values.shape[1]
    top = max(hd, n) + 1  # of the lower row
    second, third, last = hd + 0.5, hd + n + 2.5, hd + 2 * n + 3
    fig, ax = subplots(figsize=(6.2, 4.1))
    _matrix(ax, (0, top), "queries", queries, COLOURS["query"], False)
    _matrix(ax, (second, top - hd - 0.5), "keys, as columns", keys.T, COLOURS["key"], True)
    _matrix(ax, (second, top), "scores", scores, "#555555", False)
    _matrix(ax, (third, top), "weights", weights, VIOLET, False)
    _matrix(ax, (last, top - n - 0.5), "values", values, COLOURS["value"], True)
    _matrix(ax, (last, top), "outputs", outputs, COLOURS["value"], False)
    ax.text(third - 1, top + n / 2, "softmax\n→", ha="center", va="center", fontsize=11)
    for i, name in enumerate(names):
        ax.text(-0.2, top + i + 0.5, name, ha="right", va="center", weight="bold", fontsize=12)
        ax.text(third + i + 0.47, top - 0.35, name, ha="center", va="center", fontsize=11)
        ax.text(last + vd + 0.15, top - n + i, name, va="center", fontsize=11)
    ax.set(xlim=(-2, last + vd + 1.7), ylim=(top + n + 1, top - max(n, hd) - 1.3), aspect="equal")
    ax.axis("off")
    return fig


def inside_the_triangle(
    values: Float[Tensor, "n vd"], outputs: Float[Tensor, "n vd"], weights: Float[Tensor, "n n"], names: Sequence[str]
) -> Figure:
    """The values as squares in the plane, by their first two numbers, and the outputs as dots between them; lines as
    thick as its weights hold the first output."""
    fig, ax = subplots(figsize=(5.6, 3.4))
    values, outputs = values[:, :2], outputs[:, :2]
    around = torch.atan2(*(values - values.mean(dim=0)).T).argsort()  # corner after corner
    ax.add_patch(plt.Polygon(values[around], color="0.93"))
    for value, weight in zip(values, weights[0], strict=True):
        ax.plot(*torch.stack([outputs[0], value]).T, color=VIOLET, alpha=0.4, linewidth=8 * weight)
        middle = (outputs[0] + value) / 2
        ax.annotate(_number(float(weight)), middle, (5, 5), textcoords="offset points", fontsize=12, color=VIOLET)
    words = {"textcoords": "offset points", "fontsize": 12}
    for i, (name, value, output) in enumerate(zip(names, values, outputs, strict=True)):
        ax.plot(*value, "s", color=COLOURS["value"], markersize=8)
        ax.plot(*output, "o", color=VIOLET, markersize=8)
        ax.annotate(f"value of {name}", value, (8, 4 if value[1] > output[1] else -16), **words)
        left = {"xytext": (-7, 3), "ha": "right"} if i else {"xytext": (7, 5)}
        ax.annotate(name, output, **left, color=VIOLET, weight="bold", **words)
    ax.set(aspect="equal", xlabel="first number", ylabel="second number")
    ax.locator_params(nbins=4, integer=True)
    ax.margins(0.12, 0.14)
    ax.set_xlim(right=ax.get_xlim()[1] + 4)
    return fig


def _patches(image: Tensor, n: int) -> tuple[tuple[int, int], float]:
    """Rows and columns of n square patches, and a patch's side in pixels."""
    side = (image.shape[-2] * image.shape[-1] / n) ** 0.5
    return (round(image.shape[-2] / side), round(image.shape[-1] / side)), side


def _panel(ax: Axes, picture: Tensor, grid: tuple[int, int], asks: tuple[int, int], **options):
    """A picture or a map over the grid's patches, the one that asks in the queries' blue."""
    rows, columns = grid
    drawn = ax.imshow(picture, extent=(0, columns, rows, 0), interpolation="nearest", **options)
    for edges, line in ((range(1, rows), ax.axhline), (range(1, columns), ax.axvline)):
        for edge in edges:
            line(edge, color="0.75", linewidth=0.6)
    for colour, width in (("white", 4.5), (COLOURS["query"], 3)):
        ax.add_patch(plt.Rectangle(asks[::-1], 1, 1, fill=False, edgecolor=colour, linewidth=width, zorder=3))
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color="0.6", linewidth=0.8)
    return drawn


def who_reads_whom(
    image: Float[Tensor, "1 c H W"],
    maps: Mapping[str, Float[Tensor, "n n"]],
    asking: Sequence[tuple[float, float]] = ((0.35, 0.75), (0.75, 0.35)),
) -> Figure:
    """A row for each patch that asks: the photograph with this patch framed, then its row of weights in each map.

    Args:
        image: the photograph.
        maps: weights by title.
        asking: places of patches, from the top and from the left, as fractions of the image.
    """
    grid, _ = _patches(image, len(next(iter(maps.values()))))
    side = min(2, 5.9 / (1 + len(maps)))  # inches
    size = (side * (1 + len(maps)) + 0.7, (side + 0.1) * len(asking) + 0.3)
    fig, axes = subplots(len(asking), 1 + len(maps), figsize=size, squeeze=False)
    for row, place in zip(axes, asking, strict=True):
        asks = tuple(int(fraction * side) for fraction, side in zip(place, grid, strict=True))
        _panel(row[0], rearrange(image[0], "c H W -> H W c"), grid, asks)
        for ax, weights in zip(row[1:], maps.values(), strict=True):
            seen = weights[asks[0] * grid[1] + asks[1]].reshape(grid)
            drawn = _panel(ax, seen, grid, asks, cmap=WEIGHTS, norm=PowerNorm(0.5, 0, 1))  # so 0.02 differs from 0
    for ax, title in zip(axes[0], ["photograph", *maps], strict=True):
        ax.set_title(title)
    bar = fig.colorbar(drawn, ax=axes, label="weight", shrink=0.8)
    bar.set_ticks([0, 0.02, 0.2, 0.5, 1], labels=["0", "0.02", "0.2", "0.5", "1"])
    return fig


def with_and_without_root(
    read: Mapping[str, Mapping[int, float]], gradients: Mapping[str, Mapping[int, float]]
) -> Figure:
    """Left, how many tokens a row reads from as heads get wider; right, how long its gradient is; both logarithmic.

    Args:
        read, gradients: a line by its label, each with a number by head_dim.
    """
    fig, axes = subplots(1, 2, figsize=(6.2, 3.3))
    titles = ("tokens a row reads from", "length of the gradient")
    for ax, lines, title in zip(axes, (read, gradients), titles, strict=True):
        looks = cycle(zip(("o-", "s--", "^:", "D-."), (VIOLET, "#7F7F7F", *TOKENS), strict=False))
        for (label, line), (mark, colour) in zip(lines.items(), looks, strict=False):
            ax.plot(list(line), list(line.values()), mark, color=colour, label=label)
        ax.set(xscale="log", yscale="log", title=title)
        ax.set_xlabel("head_dim", fontsize=12)
        ax.set_xticks(list(line), [f"{width:,}" for width in line])
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.tick_params(labelsize=12)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=12)
    return fig


def rows_of_the_weight(weight: Float[Tensor, "rows d"], num_heads: int) -> Figure:
    """The fused weight: the queries' rows in blue, the keys' in orange, the values' in green, each head by head."""
    fig, ax = subplots(figsize=(5.4, 3.7))
    third, d = len(weight) // 3, weight.shape[1]
    strength = 0.1 + 0.3 * (weight - weight.min()) / (weight.max() - weight.min())
    for part, (name, title) in enumerate({"query": "queries", "key": "keys", "value": "values"}.items()):
        top, colours = part * third, LinearSegmentedColormap.from_list(name, ["white", COLOURS[name]])
        place = {"extent": (0, d, top + third, top), "aspect": "auto", "interpolation": "nearest"}
        ax.imshow(strength[top : top + third], cmap=colours, vmin=0, vmax=1, **place)
        ax.add_patch(plt.Rectangle((-0.1 * d, top), 0.09 * d, third - 0.1, color=COLOURS[name], clip_on=False))
        middle = {"ha": "center", "va": "center", "color": "white", "weight": "bold", "rotation": 90}
        ax.text(-0.055 * d, top + third / 2, title, fontsize=11, **middle)
        for head in range(num_heads):
            y = top + head * third / num_heads
            ax.axhline(y, color="white", linewidth=2 if head else 4)
            ax.text(-0.12 * d, y + third / num_heads / 2, f"head {head}", ha="right", va="center", fontsize=11)
    ax.set(xticks=[0.5, d - 0.5], yticks=[], xlim=(0, d), ylim=(3 * third, 0))
    ax.set_xticklabels([0, d - 1], fontsize=11)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(f"numbers of a token, 0 to {d - 1}", fontsize=11)
    ax.set_title(f"qkv.weight: {3 * third} rows × {d} columns", fontsize=11)
    return fig


GLIDE = """@media screen and (prefers-reduced-motion: no-preference) {
.vt-view, .vt-swap, .vt-cut { animation: 5s ease-in-out both }
.vt-view { animation-name: vt-view } .vt-swap { animation-name: vt-swap } .vt-cut { animation-name: vt-cut } }
@keyframes vt-view { 0%, 10% { transform: translate(var(--row)) } 34%, 100% { transform: none } }
@keyframes vt-swap { 0%, 10% { transform: translate(var(--row)) } 34%, 42% { transform: translate(var(--view)) }
66%, 100% { transform: none } }
@keyframes vt-cut { 0%, 72% { transform: translate(var(--row)) } 96%, 100% { transform: none } }"""
CELL, LINE, GAP = 30, 26, 14  # of the moving picture: from number to number, from row to row, between blocks


def _places(tensor: Tensor, left: int, top: int) -> dict[int, tuple[int, int]]:
    """Where a tensor's numbers stand: its first axis goes from block to block, its last along a row."""
    block, row, column = torch.meshgrid(*map(torch.arange, tensor.shape), indexing="ij")
    across, down = left + block * (CELL * tensor.shape[2] + GAP) + CELL * column, top + LINE * row
    places = zip(across.flatten().tolist(), down.flatten().tolist(), strict=True)
    return dict(zip(tensor.flatten().tolist(), places, strict=True))


def _tiles(kind: str, places: dict, colours: dict, **origins: dict) -> str:
    """Numbers at rest, each in its token's colour, with the places that they come from."""
    drawn = []
    for number, (left, top) in places.items():
        came = [f"--{name}: {start[number][0] - left}px, {start[number][1] - top}px" for name, start in origins.items()]
        drawn.append(
            f'<g class="vt-{kind}" style="{"; ".join(came)}">'
            f'<rect x="{left}" y="{top}" width="{CELL - 2}" height="{LINE - 2}" rx="3" fill="{colours[number]}"/>'
            f'<text x="{left + 14}" y="{top + 17}" text-anchor="middle" font-size="14" fill="#1F1F1F">{number}</text>'
            "</g>"
        )
    return "".join(drawn)


def view_then_transpose(
    x: Shaped[Tensor, "n d"],
    view: Shaped[Tensor, "n h hd"],
    transposed: Shaped[Tensor, "h n hd"],
    *,
    at_once: Shaped[Tensor, "h n hd"],
) -> Diagram:
    """Numbers glide from their row in memory to a view, and on to where a transpose puts them; then to another view.
    A colour for each token. At rest, and where no motion is wanted, all of it is seen.

    Args:
        x: whole numbers that all differ; the others have the same, and `view` has a block for each token.
        view, transposed, at_once: what became of it.
    """
    n, h, hd = view.shape
    wide, width, below = CELL * hd + GAP, 20 + CELL * x.numel(), 170 + LINE * h
    right = 10 + n * wide + 2 * GAP
    colours = {number: tint(TOKENS[i % len(TOKENS)], 0.36) for i, row in enumerate(x.tolist()) for number in row}
    row, cut = _places(x.reshape(1, 1, -1), 10, 32), _places(view, 10, 116)
    drawn = _tiles("row", row, colours) + _tiles("view", cut, colours, row=row)
    drawn += _tiles("swap", _places(transposed, 10, below), colours, row=row, view=cut)
    drawn += _tiles("cut", _places(at_once, right, 116), colours, row=row)
    says = [(10, 22, "in memory, token after token"), (10, below - 28, "then transpose")]
    says += [(10, 88, "view(n, h, hd)"), (right, 88, "view(h, n, hd)")]
    names = [("token", n, 10, 106), ("head", h, 10, below - 10), ("head", h, right, 106)]
    says += [(left + i * wide, y, f"{name} {i}") for name, count, left, y in names for i in range(count)]
    letters = "".join(f'<text x="{left}" y="{y}" fill="#1F1F1F">{said}</text>' for left, y, said in says)
    width, height = max(width, right + h * wide), max(below, 116) + LINE * n + 8
    return Diagram(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="15" style="max-width:100%;height:auto">'
        f"<title>view, then transpose</title><desc>{n} tokens, {h} heads: numbers in memory; after view and transpose "
        f"a block for each head, with a row for each token; after another view the rows are mixed.</desc>"
        f"<style>{GLIDE}</style>{letters}{drawn}</svg>\n"
    )


def memory_and_time(
    tokens: Sequence[int], memory: Mapping[str, Sequence[float]], time: Mapping[str, Sequence[float]]
) -> Figure:
    """Left, a layer's peak memory in megabytes over the number of tokens; right, its time in milliseconds.

    Args:
        tokens: how many there were.
        memory, time: bytes and seconds of each way to run the layer.
    """
    fig, axes = subplots(1, 2, figsize=(6.6, 3.4))
    looks = ["o:", "s--", "D-", "^-.", "v:"], [COLOURS["projection"], VIOLET, "0.1", *TOKENS]
    for ax, lines, unit, title in ((axes[0], memory, 1e6, "peak memory (MB)"), (axes[1], time, 1e-3, "milliseconds")):
        for (name, line), mark, ink in zip(lines.items(), *map(cycle, looks), strict=False):
            ring = {"markersize": 11, "markerfacecolor": "none"} if mark == "o:" else {}  # around the others' marks
            ax.plot(tokens, [value / unit for value in line], mark, color=ink, label=name, **ring)
        ax.set(xscale="log", yscale="log", title=title)
        ax.set_xlabel("tokens", fontsize=12)
        ax.set_xticks(tokens[::2], [f"{n:,}" for n in tokens[::2]])
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.tick_params(labelsize=12)
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=12)
    return fig


def influence_on_each_other(matrices: Mapping[str, Float[Tensor, "b b"]]) -> Figure:
    """For each layer, how much picture j of a batch influences output i, as a tint; a 0 where it's exactly nothing."""
    fig, axes = subplots(1, len(matrices), figsize=(3.3 * len(matrices), 3.1), squeeze=False)
    top = max(float(matrix.max()) for matrix in matrices.values())
    for ax, (title, matrix) in zip(axes[0], matrices.items(), strict=True):
        drawn = ax.imshow(matrix, cmap=WEIGHTS, norm=PowerNorm(0.5, 0, top))
        for i, j in (matrix == 0).nonzero().tolist():
            ax.text(j, i, "0", ha="center", va="center", color="0.5", fontsize=14)
        ticks = range(len(matrix))
        ax.set(title=title, xlabel="input picture j", xticks=ticks, yticks=ticks)
        ax.spines[:].set(visible=True, color="0.6", linewidth=0.8)
    axes[0, 0].set_ylabel("output picture i")
    fig.colorbar(drawn, ax=axes, label="influence of j on i", shrink=0.9)
    return fig
