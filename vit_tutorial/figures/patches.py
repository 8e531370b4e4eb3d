"""Chapter 1: patches of a photograph, their numbers in memory, and a convolution that cuts."""

from collections.abc import Iterable

from einops import rearrange
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from vit_tutorial import plots

INKS = [plots.PALETTE[k] for k in (5, 1, 2, 3, 4, 0)]  # a colour for each patch


def cost_by_patch_size(cost_of: dict[int, tuple[float, float]]) -> Figure:
    """Multiply-adds of a layer's matrices and of comparing tokens, against the patch size.

    The second line is twice as steep. Where it's lower, attention isn't what costs.

    Args:
        cost_of: both, by the patch's side in pixels.
    """
    fig, ax = plots.subplots()
    names = ("matrices, 12·n·d²", "mlp", "o-"), ("comparing tokens, 2·n²·d", "attention", "s--")
    for (label, colour, style), work in zip(names, zip(*cost_of.values(), strict=True), strict=True):
        ax.loglog(list(cost_of), [w / 1e9 for w in work], style, color=plots.COLOURS[colour], label=label)
    ax.set(xlabel="patch size in pixels", ylabel="10⁹ multiply-adds\nin one layer")
    ax.set_xticks(ticks := [size for size in cost_of if size & (size - 1) == 0 or size == max(cost_of)], ticks)
    ax.minorticks_off()
    ax.legend()
    return fig


def numbered_patches(image: Float[Tensor, "c H W"], patch_size: tuple[int, int]) -> Figure:
    """An image, and beside it its patches, the first row and the diagonal's with their places in the sequence."""
    (_, H, W), (ph, pw), gap = image.shape, patch_size, 4
    gh, gw = H // ph, W // pw
    fig, axes = plots.subplots(1, 2, figsize=(6, 3.3))
    for ax, pixels in zip(axes, (image, plots.spread_patches(image, patch_size, gap)), strict=True):
        ax.imshow(rearrange(pixels, "c H W -> H W c"), cmap="gray")
        ax.axis("off")
    for number in sorted({0, 1, *range(0, gh * gw, gw + 1)}) if gw < 10 else ():
        row, column = divmod(number, gw)
        across, down = column * (pw + gap) + pw / 2, row * (ph + gap) + ph / 2
        style = {"ha": "center", "va": "center_baseline", "weight": "bold", "fontsize": 11, "color": "black"}
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
        axes[1].text(across, down, number, bbox=paper, **style)
    axes[0].set_title(f"{H} × {W} pixels")
    axes[1].set_title(f"{gh} × {gw} = {gh * gw} patches")
    return fig


def pieces(rows: dict[str, Float[Tensor, "n d"]], which: Iterable[int], shape: tuple[int, int, int]) -> Figure:
    """Some patches as pictures, a row for each way to cut: true pieces of the image, or stripes from all over it.

    Args:
        rows: all patches of an image, flattened as ``(c ph pw)``, by the name of the way they were cut.
        which: those to be shown, at most seven of them.
        shape: (c, ph, pw) of a patch.
    """
    which = list(which)[:7]
    fig, axes = plots.subplots(len(rows), len(which), figsize=(6, 1.1 * len(rows)), squeeze=False)
    for row, (name, patches) in zip(axes, rows.items(), strict=True):
        row[0].set_ylabel(name)
        for ax, number in zip(row, which, strict=True):
            ax.imshow(rearrange(patches[number].reshape(shape), "c ph pw -> ph pw c"), cmap="gray", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
    for ax, number in zip(axes[0], which, strict=True):
        ax.set_title(number, fontsize=12)
    return fig


def _cells(
    ax: Axes,
    numbers: list,
    colours: list,
    corner: tuple[float, float],
    frame: tuple[int, int] | None = None,
    fontsize: float = 12,
):
    """A grid of numbers on pale cells; its first columns and rows may have a frame."""
    left, top = corner
    for i, row in enumerate(numbers):
        for j, number in enumerate(row):
            pale = [0.25 + 0.75 * part for part in to_rgb(colours[i][j])]
            ax.add_patch(Rectangle((left + j, top + i), 0.94, 0.94, color=pale, linewidth=0))
            text = f"{number:g}".replace("-", "−")
            ax.text(left + j + 0.47, top + i + 0.5, text, ha="center", va="center", fontsize=fontsize)
    if frame:
        ax.add_patch(Rectangle((left - 0.03, top - 0.03), *frame, fill=False, linewidth=2.2))


def in_memory(image: Int[Tensor, "H W"], patches: Int[Tensor, "n p"]) -> Figure:
    """Where the numbers of an image's patches lie in memory, and where they have to go to lie together.

    Args:
        image: its pixels, numbered as they lie in memory.
        patches: which of them each patch holds.
    """
    inks = {x: INKS[i % len(INKS)] for i, row in enumerate(patches.tolist()) for x in row}
    before, after, (H, W), held = image.flatten().tolist(), patches.flatten().tolist(), image.shape, patches.shape[1]
    fig, ax, size = *plots.subplots(figsize=(6, 3.9)), min(12, 250 / len(before))
    _cells(ax, image.tolist(), [[inks[x] for x in row] for row in image.tolist()], (0, 0), fontsize=size)
    ax.text(W + 0.3, H / 2, f"the picture: {H} × {W} pixels,\na colour for each patch", va="center", fontsize=12)
    strips = (
        (before, H + 1.7, -0.4, "in memory: a bare reshape takes these"),
        (after, H + 4.5, 0.4, "after cutting: patch 0"),
    )
    for numbers, top, depth, text in strips:
        _cells(ax, [numbers], [[inks[x] for x in numbers]], (0, top), fontsize=size)
        edge = top - 0.15 if depth < 0 else top + 1.1
        ax.plot([0.05, 0.05, held - 0.1, held - 0.1], [edge, edge + depth, edge + depth, edge], "k", linewidth=1.5)
        ax.text(held + 0.3, edge + depth, text, va="center", fontsize=12)
    for i, x in enumerate(before):
        ax.plot((i + 0.47, after.index(x) + 0.47), (H + 2.7, H + 4.45), color=inks[x], linewidth=1.8)
    ax.set(xlim=(-0.1, len(before) + 0.1), ylim=(H + 6.3, -0.1), aspect="equal")
    ax.axis("off")
    return fig


def kernels_and_tokens(
    pixels: Float[Tensor, "H W"], kernels: Float[Tensor, "d ph pw"], maps: Float[Tensor, "d gh gw"]
) -> Figure:
    """A convolution that cuts, step by step: image, kernels, their maps, and the maps in a row for each token.

    A patch keeps its colour all the way; the framed patch times the framed kernel, added up, is the framed number.
    """
    (H, W), (d, ph, pw), (_, gh, gw) = pixels.shape, kernels.shape, maps.shape
    ink_of = [[INKS[(i * gw + j) % len(INKS)] for j in range(gw)] for i in range(gh)]
    in_a_row, n = [ink for row in ink_of for ink in row], gh * gw
    fig, ax = plots.subplots(figsize=(6, 6))
    of_pixels = [[ink_of[i // ph][j // pw] for j in range(W)] for i in range(H)]
    _cells(ax, pixels.tolist(), of_pixels, (0, 0), (pw, ph))
    for k in range(d):
        grey, corner = [[plots.COLOURS["projection"]] * pw] * ph, k * (max(ph, gh) + 0.6)
        _cells(ax, kernels[k].tolist(), grey, (W + 1.5, corner), (pw, ph) if k == 0 else None)
        _cells(ax, maps[k].tolist(), ink_of, (W + pw + 3, corner), (1, 1) if k == 0 else None)
    rows, low = maps.flatten(1), max(H, d * (max(ph, gh) + 0.6) - 0.6) + 4
    _cells(ax, rows.tolist(), [in_a_row] * d, (W + 2, low), (1, 1))
    _cells(ax, rows.T.tolist(), [[ink] * d for ink in in_a_row], (2, low - 1), (1, 1))
    names = (W / 2, -1.5, "image", pixels[None]), (W + 1.5 + pw / 2, -1.5, "kernels", kernels[:, None])
    names += (W + pw + 3 + gw / 2, -1.5, "output", maps), (W + 2 + n / 2, low - 1.5, "flatten", rows)
    for x, y, name, numbers in (*names, (2 + d / 2, low - 2.5, "transpose", rows.T)):
        ax.text(x, y, name, ha="center", weight="bold", fontsize=12)
        ax.text(x, y + 0.8, tuple(numbers.shape), ha="center", fontsize=11)
    for x, y, arrow in (
        (W + 0.75, 2, "→"),
        (W + pw + 2.25, 2, "→"),
        (W + pw + 3 + gw / 2, low - 3.2, "↓"),
        ((W + d + 4) / 2, low + 1, "←"),
    ):
        ax.text(x, y, arrow, ha="center", va="center", fontsize=15)
    sum_of = " + ".join(f"{k:g}·{p:g}" for k, p in zip(kernels[0].flatten(), pixels[:ph, :pw].flatten(), strict=True))
    ax.text(0, H + 0.6, f"{sum_of} = {maps[0, 0, 0]:g}".replace("+ -", "− "), va="center", fontsize=12)
    ax.text(1.8, low - 0.5, "token 0", ha="right", va="center", fontsize=12)
    ax.set(xlim=(-0.1, W + max(pw + gw + 1, n) + 2.1), ylim=(low + max(n - 1, d) + 0.1, -2.6), aspect="equal")
    ax.axis("off")
    return fig
