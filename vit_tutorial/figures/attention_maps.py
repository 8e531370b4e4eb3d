"""Chapter 8: attention maps that can't flatter, how far heads look, and maps on trial."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Shaped
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor

from vit_tutorial import plots

ATTENTION, PAPER = plots.COLOURS["attention"], plots.COLOURS["projection"]
# Rules without a model, and maps of a model; each has one look in all figures.
RULES = {"even": (PAPER, ":"), "centre": (plots.PALETTE[2], "--"), "colour": (plots.PALETTE[4], "-")}
LOOKS = RULES | {
    "random": (PAPER, ":o"),
    "random, on the object": (PAPER, "--s"),
    "colour": (plots.PALETTE[4], "-D"),
    "layer 4": (ATTENTION, "-v"),
    "rollout": (plots.PALETTE[2], "-^"),
    "Chefer's": (plots.PALETTE[3], "-*"),
}


def _picture(ax: Axes, image: Shaped[Tensor, "c H W"], title: str = "") -> None:
    """An image without axes."""
    ax.imshow(rearrange(image, "c H W -> H W c").cpu(), cmap="gray")
    ax.set_title(title)
    ax.axis("off")


def _bar(drawn: AxesImage, axes: Iterable[Axes], label: str = "attention", **options) -> Colorbar:
    """A scale that starts where all tokens get the same: its lowest tick says 1/65."""
    bar = drawn.figure.colorbar(drawn, ax=axes, label=label, **options)
    ticks = [tick for tick in bar.get_ticks() if bar.vmin * 2 < tick <= bar.vmax]
    bar.set_ticks([bar.vmin, *ticks], labels=[f"1/{round(1 / bar.vmin)}", *(f"{tick:g}" for tick in ticks)])
    return bar


def _limits(maps: Float[Tensor, "..."], even: float, quantile: float = 0.99) -> tuple[float, float]:
    """A scale from an even share to nearly the highest value."""
    return even, max(maps.flatten().float().quantile(quantile).item(), 1.5 * even)


def _tight(fig: Figure) -> None:
    """Leave hardly any paper between the panels."""
    fig.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0, hspace=0)


def photo_and_map(image: Shaped[Tensor, "c H W"], answer: str, values: Float[Tensor, "gh gw"], even: float) -> Figure:
    """A photograph under the model's answer; beside it the map: the more than an even share, the more violet."""
    fig, axes = plots.subplots(1, 2, figsize=(6, 2.9))
    _picture(axes[0], image, f"“{answer}”")
    drawn = plots.overlay_map(image, values, "last layer, all heads", _limits(values, even, 1.0), axes[1])
    _bar(drawn, axes, shrink=0.85)
    return fig


def flattering_gallery(images: Shaped[Tensor, "b c H W"], clouds: Float[Tensor, "b H W"], names: list[str]) -> Figure:
    """How many tutorials end: a smooth cloud over each image, on a colour scale of its own."""
    fig = plots.show_images(images, names, columns=5, size=1.2)
    for ax, cloud in zip(fig.axes, clouds, strict=False):
        ax.imshow(cloud.cpu(), cmap="viridis", alpha=0.55)
    return fig


def heads_and_mean(image: Shaped[Tensor, "c H W"], maps: Float[Tensor, "layers heads gh gw"], even: float) -> Figure:
    """All maps of one image on one scale, a column for each layer and a row for each head; below them their mean."""
    depth, heads = maps.shape[:2]
    limits = _limits(maps, even, 0.98)
    fig, axes = plots.subplots(heads + 1, depth, figsize=(6.7, 6.7 / depth * (heads + 1) + 1.1), squeeze=False)
    _tight(fig)
    for head in range(heads):
        for layer in range(depth):
            title = f"layer {layer + 1}" if head == 0 else ""
            drawn = plots.overlay_map(image, maps[layer, head], title, limits, axes[head, layer])
    plots.overlay_map(image, maps.mean(dim=(0, 1)), f"all {heads * depth}", limits, axes[-1, 0])
    beside = {"ha": "right", "va": "center", "rotation": 90, "fontsize": 13}
    for ax, name in zip(axes[:, 0], [*(f"head {i + 1}" for i in range(heads)), "mean"], strict=True):
        ax.text(-0.05, 0.5, name, transform=ax.transAxes, **beside)
    for ax in axes[-1, 1:]:
        ax.axis("off")
    _bar(drawn, axes, location="bottom", extend="max", extendfrac=0.03, aspect=40, shrink=0.8)
    return fig


def own_and_common_scale(
    images: Shaped[Tensor, "b c H W"], maps: Float[Tensor, "b gh gw"], common: tuple[float, float]
) -> Figure:
    """The same maps twice: above, each on its own scale, where anything looks like a finding; below, on one for all."""
    fig, axes = plots.subplots(2, len(maps), figsize=(1.6 * len(maps), 4.3), squeeze=False)
    for image, values, column in zip(images, maps, axes.T, strict=True):
        own = values.min().item(), values.max().item()
        for ax, (low, high) in zip(column, (own, common), strict=True):
            plots.overlay_map(image, values, f"{low:.3f} to\n{high:.3f}", (low, high), ax)
            ax.title.set_fontsize(11)
    return fig


def reach(distances: dict[str, Float[Tensor, "layers heads"]], everywhere: float, side: int) -> Figure:
    """How far each head's patches look, layer by layer, a panel for each model.

    The dashed line is a head that looks at all patches equally, the band one that looks only at its neighbours.
    """
    fig, axes = plots.subplots(1, len(distances), figsize=(6.7, 3.7), sharey=True, squeeze=False)
    highest = max(everywhere, *(each.max().item() for each in distances.values()))
    for ax, (name, each) in zip(axes[0], distances.items(), strict=True):
        plots.distance_by_depth(each, everywhere, ax)
        ax.axhspan(side, 1.5 * side, color=plots.PALETTE[2], alpha=0.25, linewidth=0)
        ax.set(title=name, ylim=(0, highest + 2), yticks=range(0, int(highest) + 2, side))
        ax.label_outer()
    dots, line = axes[0, 0].lines[0], axes[0, 0].lines[-1]
    marks = {"a head": dots, "all patches equally": line, "only neighbours": axes[0, 0].patches[-1]}
    fig.legend(marks.values(), marks, loc="outside lower center", ncols=3, fontsize=12, columnspacing=1)
    return fig


def filters_and_positions(
    filters: Float[Tensor, "d c ph pw"], tables: dict[str, Float[Tensor, "n d"]], size: tuple[int, int]
) -> Figure:
    """What the projection looks for, longest first, grey where a weight is 0; below, each position's similarity to all.

    Args:
        tables: of positions, without the class token's, by name.
        size: rows and columns of the grid of patches.
    """
    tallest = filters[filters.flatten(1).norm(dim=1).argsort(descending=True)[:64]]
    tiles = F.pad(0.5 + tallest / (2 * tallest.abs().max()), (1, 0, 1, 0), value=1.0)
    tiles = rearrange(tiles[: len(tiles) // 8 * 8], "(r c) k h w -> k (r h) (c w)", c=8)
    fig, axes = plots.subplots(1 + len(tables), 1, figsize=(5.4, 4.6 * (1 + len(tables))))
    _picture(axes[0], tiles, "filters of the projection")
    for ax, (name, table) in zip(axes[1:], tables.items(), strict=True):
        plots.similarity_grid(table, size, name, ax)
    return fig


def by_method(
    images: Shaped[Tensor, "b c H W"], names: list[str], maps: dict[str, Float[Tensor, "b gh gw"]],
    below: dict[str, list[str]],
) -> Figure:  # fmt: skip
    """Some images, a row for each, and their maps by some methods, scaled to sum to 1 and on one scale.

    Args:
        below: of methods that are asked for a class, which class it was, by the method's name.
    """
    maps = {name: each / each.sum(dim=(-2, -1), keepdim=True) for name, each in maps.items()}
    even = 1 / next(iter(maps.values()))[0].numel()
    limits = _limits(torch.stack([*maps.values()]), even)
    size = len(images), 1 + len(maps)
    fig, axes = plots.subplots(*size, figsize=(1.17 * size[1], 1.5 * size[0] + 0.9), squeeze=False)
    fig.get_layout_engine().set(w_pad=0.02, h_pad=0.04, wspace=0, hspace=0)
    for i, row in enumerate(axes):
        _picture(row[0], images[i], f"true: {names[i]}" if i else f"\ntrue: {names[i]}")
        for ax, (name, each) in zip(row[1:], maps.items(), strict=True):
            title = [name] * (i == 0) + ([f"“{below[name][i]}”"] if name in below else [])
            drawn = plots.overlay_map(images[i], each[i], "\n".join(title), limits, ax)
        for ax in row:
            ax.title.set_fontsize(12)
    _bar(drawn, axes, "fraction of the map", location="bottom", extend="max", extendfrac=0.03, aspect=40, shrink=0.8)
    return fig


def growing(
    images: Shaped[Tensor, "b c H W"], masks: Bool[Tensor, "b H W"], stages: dict[str, Float[Tensor, "b gh gw"]],
    rows: dict[str, list[float]], even: float,
) -> Figure:  # fmt: skip
    """Some images and their maps at stages of a training; in orange the object's outline.

    Args:
        rows: numbers of each stage for the titles, by what they count.
    """
    limits = _limits(torch.cat([*stages.values()]), even, 0.995)
    size = len(images), 1 + len(stages)
    fig, axes = plots.subplots(*size, figsize=(1.17 * size[1], 1.25 * size[0] + 1.5), squeeze=False)
    _tight(fig)
    for i, row in enumerate(axes):
        _picture(row[0], images[i])
        for ax, maps in zip(row[1:], stages.values(), strict=True):
            drawn = plots.overlay_map(images[i], maps[i], "", limits, ax)
            ax.contour(masks[i].cpu(), [0.5], colors=plots.PALETTE[1], linewidths=1.5)
    axes[0, 0].set_title("\n".join(f"{name}:" for name in rows), fontsize=12, loc="right")
    for ax, stage, *numbers in zip(axes[0, 1:], stages, *rows.values(), strict=True):
        ax.set_title("\n".join([stage, *(f"{100 * number:.0f} %" for number in numbers)]), fontsize=12)
    _bar(drawn, axes, location="bottom", extend="max", extendfrac=0.03, aspect=40, shrink=0.8)
    return fig


def against_rules(
    measured: dict[str, dict[str, dict[str, tuple[float, float]]]], rules: dict[str, dict[str, float]], hollow: str
) -> Figure:
    """A panel for each measure: dots for each model's maps, with intervals; lines for rules that never saw a model.

    Args:
        measured: mean and half of the interval, by measure, model, and method.
        rules: the mean, by measure and rule.
        hollow: the model whose dots are hollow.
    """
    methods = list(next(iter(next(iter(measured.values())).values())))
    fig, axes = plots.subplots(1, len(measured), figsize=(6.2, 0.45 * len(methods) + 2.0), sharey=True, squeeze=False)
    for ax, (measure, models) in zip(axes[0], measured.items(), strict=True):
        for place, (model, by_method) in enumerate(models.items()):
            means, halves = zip(*by_method.values(), strict=True)
            up = [line + 0.3 * (place / max(1, len(models) - 1) - 0.5) for line in range(len(methods))]
            look = {"mfc": "white"} if model == hollow else {}
            mark = {"color": ATTENTION, "fmt": "osD^v"[place % 5], "markersize": 7, "lw": 1.5, "label": model}
            ax.errorbar([100 * m for m in means], up, xerr=[100 * h for h in halves], **mark, **look)
        for name, mean in rules[measure].items():
            colour, style = RULES.get(name, (PAPER, "-."))
            ax.axvline(100 * mean, ls=style, lw=2, color=colour, label=name, zorder=0)
        ax.set(xlabel="per cent", xlim=(-4, 108), xticks=(0, 50, 100), title=measure)
    axes[0, 0].set_yticks(range(len(methods)), methods, fontsize=13)
    axes[0, 0].invert_yaxis()
    marks, names = axes[0, 0].get_legend_handles_labels()
    fig.legend(marks, names, loc="outside lower center", ncols=3, fontsize=12, columnspacing=1)
    return fig


def with_holes(whole: Float[Tensor, "c H W"], holed: dict[str, Float[Tensor, "c H W"]], answers: list[str]) -> Figure:
    """An image whole and with patches painted over, which are outlined; above each, the model's answer."""
    pictures = {"whole": whole} | holed
    fig, axes = plots.subplots(1, len(pictures), figsize=(1.55 * len(pictures), 2.1), squeeze=False)
    fig.get_layout_engine().set(w_pad=0.03, wspace=0)
    for ax, (name, picture), answer in zip(axes[0], pictures.items(), answers, strict=True):
        _picture(ax, picture, f"{name}\n“{answer}”")
        ax.title.set_fontsize(12)
        painted = (picture != whole).any(dim=0)
        if painted.any():
            ax.contour(painted.cpu(), [0.5], colors="white", linewidths=1)
    return fig


def deletion_curves(counts: list[int], curves: dict[str, dict[str, Float[Tensor, "counts"]]], patches: int) -> Figure:
    """Accuracy as more and more patches are hidden, a panel for each model and a line for each way to choose them."""
    fig, axes = plots.subplots(1, len(curves), figsize=(6.7, 4.8), sharey=True, squeeze=False)
    for ax, (model, by_name) in zip(axes[0], curves.items(), strict=True):
        for name, curve in by_name.items():
            colour, line = LOOKS.get(name, ("black", "-"))
            look = {"lw": 3 if name in ("colour", "Chefer's") else 1.5, "ms": 12 if "*" in line else 7}
            ax.plot(counts, [100 * value for value in curve.tolist()], line, color=colour, label=name, **look)
        ax.set(title=model, xlabel=f"patches hidden, of {patches}", xticks=counts, ylim=(-2, 104))
        ax.set_xticks(counts, ["" if 0 < count < max(counts) / 6 else count for count in counts])
    axes[0, 0].set_ylabel("accuracy, per cent")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=12)
    return fig


def answers_kept(kept: dict[str, dict[str, dict[int, float]]]) -> Figure:
    """How many answers are left, in per cent, if one row is replaced in one layer; a panel for each model.

    Args:
        kept: fractions, by model, row, and layer counted from 1.
    """
    columns = min(2, len(kept))
    lines, rows = math.ceil(len(kept) / columns), max(len(changes) for changes in kept.values())
    fig, axes = plots.subplots(lines, columns, figsize=(6.7, lines * (0.36 * rows + 1.1)), squeeze=False, sharey=True)
    for ax in axes.flat[len(kept) :]:
        ax.axis("off")
    for ax, (model, changes) in zip(axes.flat, kept.items(), strict=False):
        table = torch.tensor([[*by_layer.values()] for by_layer in changes.values()])
        ax.imshow(table, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        for y, values in enumerate(table.tolist()):
            for x, value in enumerate(values):
                ink = "black" if value > 0.6 else "white"
                ax.text(x, y, f"{100 * value:.0f}", ha="center", va="center", color=ink, fontsize=12)
        ax.set(title=model, xlabel="layer", xticks=range(table.shape[1]), yticks=range(len(table)))
        ax.set_xticklabels(next(iter(changes.values())))
        ax.set_yticklabels(changes)
    return fig
