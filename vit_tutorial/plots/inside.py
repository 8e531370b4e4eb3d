"""What a model looks at and what it has learned, as pictures (chapter 8)."""

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float, Shaped
from torch import Tensor

from vit_tutorial.plots.basics import show_images, spread_patches, subplots
from vit_tutorial.plots.colours import COLOURS, PALETTE
from vit_tutorial.validate import check_divisible, check_int, checked

if TYPE_CHECKING:  # see basics.py
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# Black and white in an image under a map: so near each other that a pale object isn't taken for a lit one.
DARKEST, LIGHTEST = 0.6, 0.95


@checked
def overlay_map(
    image: Shaped[Tensor, "c H W"],
    values: Float[Tensor, "gh gw"],
    title: str,
    limits: tuple[float, float],
    ax: "Axes | None" = None,
) -> "AxesImage":
    """A map over the patches, drawn on its image in pale grey; the grid of patches is not smoothed away.

    Only the map has colour: the more attention a patch gets, the more colour. Low values are nearly transparent, so
    that the image shows through.

    Args:
        image: ``(c, H, W)``, floating point in 0..1 or uint8.
        values: of each patch, ``(gh, gw)``.
        title: names layer and head; without them a map cannot be judged.
        limits: values of the colour scale's two ends, the lower first. They are not taken from the map: on a scale of
            its own, noise looks like structure.

    Returns:
        the map as drawn, for a colour bar.

    Raises:
        ValueError: if the map's grid does not divide the image, or the limits do not rise.
    """
    import matplotlib.pyplot as plt

    low, high = limits
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"the limits of a colour scale must be finite and rise, got {low} and {high}")
    ax = ax or plt.figure().gca()
    sides = []
    for axis, pixels, patches in zip(("height", "width"), image.shape[1:], values.shape, strict=True):
        check_divisible(f"image {axis}", pixels, "the map's grid of", patches)
        sides.append(pixels // patches)
    grey = image.float().mean(dim=0) / (255 if image.dtype == torch.uint8 else 1)
    ax.imshow(DARKEST + (LIGHTEST - DARKEST) * grey.cpu().numpy(), cmap="gray", vmin=0, vmax=1)
    pixels = repeat(values.float(), "gh gw -> (gh ph) (gw pw)", ph=sides[0], pw=sides[1])
    ax.set_title(title)
    ax.axis("off")
    return ax.imshow(pixels.cpu().numpy(), cmap=_thin_to_full(), vmin=low, vmax=high, interpolation="nearest")


def _thin_to_full() -> "Colormap":
    """From nothing to the colour of attention; on paper, from white."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    colour = to_rgb(COLOURS["attention"])
    return LinearSegmentedColormap.from_list("attention", [(*colour, 0.0), (*colour, 0.95)])


@checked
def show_maps(
    images: Shaped[Tensor, "b c H W"],
    maps: Float[Tensor, "b gh gw"],
    titles: list[str],
    columns: int = 4,
    limits: tuple[float, float] | None = None,
    label: str = "attention",
    size: float = 1.5,
) -> "Figure":
    """Maps on their images, all on one colour scale, which is drawn beside them.

    Args:
        images, maps, titles: one for each panel; see :func:`overlay_map`.
        columns: panels in a row.
        limits: values of the scale's two ends; from 0 to the largest of all maps otherwise, or to 1 where that is 0.
            If a map goes beyond, the scale ends in an arrow.
        label: what the scale shows.
        size: inches of a panel's side.

    Raises:
        ValueError: if images, maps and titles are not equally many, or there are none, the maps' grid does not divide
            the images, or the limits do not rise.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    if not 0 < len(images) == len(maps) == len(titles):
        raise ValueError(
            f"there are {len(images)} images, {len(maps)} maps and {len(titles)} titles; they must be equally many, "
            "and at least 1"
        )
    check_int("columns", columns, 1)
    columns, limits = min(columns, len(maps)), limits or (0.0, float(maps.max()) or 1.0)
    rows = math.ceil(len(maps) / columns)
    fig, axes = subplots(rows, columns, figsize=(columns * size + 0.9, rows * (size + 0.35)), squeeze=False)
    for ax in axes.flat[len(maps) :]:
        ax.axis("off")
    for ax, *panel in zip(axes.flat, images, maps, titles, strict=False):
        overlay_map(*panel, limits, ax)
    beyond = "max" if float(maps.max()) > limits[1] else "neither"
    fig.colorbar(ScalarMappable(Normalize(*limits), _thin_to_full()), ax=axes, label=label, extend=beyond)
    return fig


@checked
def attention_grid(
    image: Shaped[Tensor, "c H W"],
    maps: Float[Tensor, "layers heads gh gw"],
    limits: tuple[float, float] | None = None,
) -> "Figure":
    """The maps of one image, a column for each layer and a row for each head, counted from 1, on one colour scale.

    Args and errors are those of :func:`show_maps`.
    """
    layers, heads = maps.shape[:2]
    titles = [f"layer {layer + 1},\nhead {head + 1}" for head in range(heads) for layer in range(layers)]
    images, panels = repeat(image, "c H W -> b c H W", b=len(titles)), rearrange(maps, "l h gh gw -> (h l) gh gw")
    return show_maps(images, panels, titles, layers, limits=limits, size=1.35)


@checked
def distance_by_depth(
    distances: Float[Tensor, "layers heads"], everywhere: float | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Mean attention distance in pixels against depth, a dot for each head.

    Args:
        everywhere: the distance of a head that looks at all patches alike; drawn as a dashed line.
    """
    import matplotlib.pyplot as plt

    ax = ax or plt.figure().gca()
    for layer, heads in enumerate(distances.tolist(), 1):
        ax.plot([layer] * len(heads), heads, "o", color=PALETTE[0], markersize=8, alpha=0.7)
    if everywhere is not None:
        ax.axhline(everywhere, linestyle="--", color="grey")
    ax.set(xlabel="layer", ylabel="mean distance, pixels", xticks=range(1, len(distances) + 1))
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.05 * float(distances.max()), 1.05 * (everywhere or 0)))
    return ax


@checked
def similarity_grid(
    table: Float[Tensor, "n d"], grid_size: tuple[int, int], title: str = "", ax: "Axes | None" = None
) -> "Axes":
    """How similar the position vectors are: for each place in the grid, a small grid of cosine similarities with all.

    Args:
        table: the positions of the patches, without the class token's, ``(gh·gw, d)``.
        grid_size: (rows, columns) of patches.

    Raises:
        ValueError: if the table does not have one row for each patch.

    Source: Dosovitskiy et al. 2021, figure 7 (centre).
    """
    import matplotlib.pyplot as plt

    gh, gw = grid_size
    if len(table) != gh * gw:
        raise ValueError(f"the table has {len(table)} rows, a grid of {gh}×{gw} patches needs {gh * gw}")
    ax = ax or plt.figure(figsize=(5.4, 5)).gca()
    unit = F.normalize(table.detach(), dim=1)
    tiles = rearrange(unit @ unit.T, "(row col) (gh gw) -> 1 (row gh) (col gw)", row=gh, gh=gh)
    spread = spread_patches(tiles, grid_size, gap=1, paper=math.nan)[0]
    drawn = ax.imshow(spread.cpu().numpy(), cmap="PuOr", vmin=-1, vmax=1, interpolation="nearest")
    ax.set(title=title, xlabel="column of the patch", ylabel="row of the patch")
    ax.set_xticks([(gw - 1) / 2 + i * (gw + 1) for i in range(gw)], range(1, gw + 1))
    ax.set_yticks([(gh - 1) / 2 + i * (gh + 1) for i in range(gh)], range(1, gh + 1))
    ax.figure.colorbar(drawn, ax=ax, label="cosine similarity")
    return ax


@checked
def patch_filters(weight: Float[Tensor, "d c ph pw"], columns: int = 12) -> "Figure":
    """What the patch projection looks for, a picture for each of its outputs; grey is 0, and one scale fits all.

    Args:
        weight: of the projection, ``patch_embed.proj.weight``; c 1 or 3.

    Raises:
        ValueError: if there are not 1 or 3 channels.

    Source: Dosovitskiy et al. 2021, figure 7 (left), which shows their principal components.
    """
    if weight.shape[1] not in (1, 3):
        raise ValueError(f"filters of 1 or 3 channels can be shown as colours, these have {weight.shape[1]}")
    check_int("columns", columns, 1)
    weight = weight.detach()
    return show_images(0.5 + weight / (2 * weight.abs().max()), columns=columns, size=6 / columns)
