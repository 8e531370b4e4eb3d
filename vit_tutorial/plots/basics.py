"""The style of all figures, and those of any chapter: images, matrices, counts of mistakes."""

from typing import TYPE_CHECKING, Any

import torch
from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor

from vit_tutorial.plots.colours import PALETTE
from vit_tutorial.validate import check_int, check_tiles, checked

if TYPE_CHECKING:  # matplotlib takes longer to import than all of this package: whatever draws imports it then
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def subplots(*args: Any, **options: Any) -> tuple["Figure", Any]:
    """``plt.subplots`` for a function that returns its figure: as a cell's last line it is shown, once and no more.

    Args:
        args, options: those of ``plt.subplots``.

    Returns:
        the figure, closed for pyplot, and its axes.
    """
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(*args, **options)
    plt.close(fig)
    return fig, axes


def use_style() -> None:
    """Set matplotlib's defaults for the book: text that is readable on a phone, colours that anyone can tell apart."""
    from matplotlib import cycler, rcParams

    rcParams.update(
        {
            "figure.figsize": (6, 3.6),
            "figure.dpi": 140,
            "figure.constrained_layout.use": True,
            "font.size": 13,
            "axes.titlesize": 13,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.formatter.min_exponent": 5,  # on a log axis 1000, for an exponent's letters are small
            "axes.prop_cycle": cycler(color=PALETTE),
            "image.cmap": "viridis",
            "lines.linewidth": 2,
            "legend.frameon": False,
        }
    )


@checked
def show_images(
    images: Shaped[Tensor, "b c H W"], titles: list[str] | None = None, columns: int = 4, size: float = 1.6
) -> "Figure":
    """A grid of images, grey or colour, floating point in 0..1 or uint8.

    Args:
        images: ``(b, c, H, W)`` with c 1 or 3.
        titles: one for each image.
        columns: images in a row.
        size: inches of an image's side.

    Raises:
        ValueError: if ``images`` has another shape or is empty, or there is not one title for each.
    """
    if images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(f"images must be (b, c, H, W) with b at least 1 and c 1 or 3, got {tuple(images.shape)}")
    if titles and len(titles) != len(images):
        raise ValueError(f"there are {len(images)} images and {len(titles)} titles; they must be equally many")
    check_int("columns", columns, 1)
    images, columns = images.detach(), min(columns, len(images))
    images = images.float() if images.is_floating_point() else images
    rows = -(-len(images) // columns)
    fig, axes = subplots(rows, columns, figsize=(columns * size, rows * (size + 0.3 * bool(titles))), squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for i, (ax, image) in enumerate(zip(axes.flat, images, strict=False)):
        white = 255 if image.dtype == torch.uint8 else 1
        ax.imshow(rearrange(image, "c H W -> H W c").cpu().numpy(), cmap="gray", vmin=0, vmax=white)
        if titles:
            ax.set_title(titles[i])
    return fig


@checked
def spread_patches(
    image: Shaped[Tensor, "c H W"], patch_size: int | tuple[int, int], gap: int = 4, paper: float = 1.0
) -> Shaped[Tensor, "c Hg Wg"]:
    """The image with a gap of ``gap`` pixels of brightness ``paper`` after each patch, so that the patches are visible.

    Raises:
        ValueError: if the patches do not tile the image.
    """
    check_int("gap", gap, 0)
    _, (ph, pw) = check_tiles(tuple(image.shape[1:]), patch_size)
    grid = rearrange(image, "c (gh ph) (gw pw) -> c gh gw ph pw", ph=ph, pw=pw)
    grid = torch.nn.functional.pad(grid, (0, gap, 0, gap), value=paper)
    picture = rearrange(grid, "c gh gw ph pw -> c (gh ph) (gw pw)")
    return picture[:, :-gap, :-gap] if gap else picture


@checked
def heatmap(
    values: Float[Tensor, "rows cols"],
    ax: "Axes | None" = None,
    *,
    xlabel: str = "",
    ylabel: str = "",
    label: str = "",
) -> "Axes":
    """A matrix ``(rows, cols)`` as colours, with a scale over all its values that is labelled ``label``."""
    import matplotlib.pyplot as plt

    values, ax = values.detach().float(), ax or plt.figure().gca()
    picture = ax.imshow(values.cpu().numpy(), cmap="viridis", aspect="auto", interpolation="nearest")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.figure.colorbar(picture, ax=ax, label=label)
    return ax


@checked
def confusion_matrix(matrix: Shaped[Tensor, "k k"], class_names: list[str], ax: "Axes | None" = None) -> "Axes":
    """Counts of true class (row) against predicted class (column): correct ones in blue, mistakes in orange.

    The more frequent a mistake, the stronger its cell. A pair that does not occur leaves the page as it is. Colours are
    laid on thinly, so that few mistakes are nearly the page, white or dark, and letters of its ink can be read.

    Raises:
        ValueError: if there is not one name for each class.
    """
    import matplotlib.pyplot as plt

    if len(class_names) != len(matrix):
        raise ValueError(
            f"the matrix is {tuple(matrix.shape)}, so it takes {len(matrix)} names, got {len(class_names)}"
        )
    ax = ax or plt.figure(figsize=(5.4, 5)).gca()
    most = max(1, int(matrix.clone().fill_diagonal_(0).max()))
    blue, orange = PALETTE[0], PALETTE[4]
    for i, row in enumerate(matrix.tolist()):
        for j, count in enumerate(row):
            if count:
                colour = (blue, 0.35) if i == j else (orange, 0.08 + 0.62 * count / most)
                ax.add_patch(plt.Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, color=colour, lw=0))
                ax.text(j, i, count, ha="center", va="center", fontsize=11, weight="bold" if i == j else "normal")
    k = len(matrix)
    ax.set(xlim=(-0.5, k - 0.5), ylim=(k - 0.5, -0.5), aspect="equal")
    ticks = range(len(class_names))
    ax.set(xticks=ticks, yticks=ticks, xlabel="predicted class", ylabel="true class")
    slanted = {} if max(map(len, class_names)) < 3 else {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticklabels(class_names, **slanted)
    ax.set_yticklabels(class_names)
    return ax
