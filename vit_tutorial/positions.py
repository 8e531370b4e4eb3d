"""Where a patch was: the table of positions, learned or fixed, and stretching it to another grid (chapter 2)."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.config import OPTIONS
from vit_tutorial.validate import check_divisible, check_int, check_option, checked, to_pair, working_dtype


def sincos_1d(num_positions: int, dim: int) -> Float[Tensor, "n d"]:
    """The sinusoidal table of the original transformer: even columns sin, odd columns cos.

    ``table[p, 2i] = sin(p / 10000^(2i/dim))`` and ``table[p, 2i+1] = cos(p / 10000^(2i/dim))``.

    Args:
        num_positions: rows, one for each position.
        dim: columns; may be odd.

    Returns:
        ``(num_positions, dim)``, float32, values in −1..1.

    Raises:
        ValueError: if a size is below 1.

    Source: Vaswani et al. 2017, section 3.5.
    """
    for name, size in (("num_positions", num_positions), ("dim", dim)):
        check_int(name, size, 1)
    # In float64 until the end: sin(p·f) in float32 is off by up to 1e-5 for positions in the hundreds.
    position = torch.arange(num_positions, dtype=torch.float64)
    frequency = 10000.0 ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = position[:, None] * frequency
    table = rearrange(torch.stack([angle.sin(), angle.cos()], dim=-1), "n half two -> n (half two)")
    return table[:, :dim].float()


def sincos_2d(grid_size: int | tuple[int, int], dim: int) -> Float[Tensor, "n d"]:
    """Rows in the first half of the columns, columns of the grid in the second; each half is :func:`sincos_1d`.

    Args:
        grid_size: patches, an int or an (gh, gw) pair.
        dim: columns; divisible by 4, so that each half holds pairs of sin and cos.

    Returns:
        ``(gh·gw, dim)``, the grid row by row.

    Raises:
        ValueError: if ``dim`` is not divisible by 4.

    Source: Beyer et al. 2022, "Better plain ViT baselines"; the values of timm's ``build_sincos2d_pos_embed``, which
    lists all sines of a half before its cosines.
    """
    gh, gw = to_pair("grid_size", grid_size)
    check_divisible("dim", dim, "the four parts sin, cos × row, column:", 4)
    rows = sincos_1d(gh, dim // 2)[:, None].expand(gh, gw, dim // 2)
    cols = sincos_1d(gw, dim // 2)[None].expand(gh, gw, dim // 2)
    return rearrange(torch.cat([rows, cols], dim=-1), "gh gw d -> (gh gw) d")


def make_pos_embed(
    kind: str, grid_size: int | tuple[int, int], dim: int, num_prefix_tokens: int = 1
) -> nn.Parameter | nn.Buffer | None:
    """The table that a model adds to its tokens, ``(1, num_prefix_tokens + gh·gw, dim)``.

    Args:
        kind: ``"learned"`` is a parameter, zero until it is initialized. ``"sincos_1d"`` and ``"sincos_2d"`` are
            buffers, which follow from the sizes and so are not stored with the weights. ``"none"`` is None.
        grid_size: patches, an int or an (gh, gw) pair.
        dim: width of a token.
        num_prefix_tokens: rows in front that belong to no patch (the class token). ``"sincos_1d"`` counts them as the
            first positions, as the original transformer did; in ``"sincos_2d"`` they have no place in the grid, so
            their rows are zero.

    Raises:
        ValueError: if ``kind`` is unknown, or ``"sincos_2d"`` and ``dim`` is not divisible by 4.
    """
    check_option("kind", kind, OPTIONS["pos_embed"])
    gh, gw = to_pair("grid_size", grid_size)
    check_int("num_prefix_tokens", num_prefix_tokens, 0)
    if kind == "none":
        return None
    if kind == "learned":
        return nn.Parameter(torch.zeros(1, num_prefix_tokens + gh * gw, dim))
    if kind == "sincos_1d":
        table = sincos_1d(num_prefix_tokens + gh * gw, dim)
    else:
        table = F.pad(sincos_2d((gh, gw), dim), (0, 0, num_prefix_tokens, 0))
    return nn.Buffer(table[None], persistent=False)


@checked
def resample_pos_embed(
    pos_embed: Float[Tensor, "one n d"],
    old_grid: int | tuple[int, int],
    new_grid: int | tuple[int, int],
    num_prefix_tokens: int = 1,
) -> Float[Tensor, "one m d"]:
    """Stretch learned positions to another grid by bicubic interpolation; prefix tokens stay as they are.

    Args:
        pos_embed: ``(1, num_prefix_tokens + gh·gw, dim)``.
        old_grid: the grid it was learned on, an int or an (gh, gw) pair.
        new_grid: the grid that is wanted.
        num_prefix_tokens: rows in front that belong to no patch (the class token).

    Returns:
        ``(1, num_prefix_tokens + new gh·gw, dim)``, in its dtype; ``pos_embed`` itself if the grids are equal.

    Raises:
        ValueError: if ``old_grid`` does not account for the rows of ``pos_embed``, or these are not floating point.

    Source: Dosovitskiy et al. 2021, section 3.2; timm's ``resample_abs_pos_embed``.
    """
    old, new = to_pair("old_grid", old_grid), to_pair("new_grid", new_grid)
    check_int("num_prefix_tokens", num_prefix_tokens, 0)
    if pos_embed.shape[1] != num_prefix_tokens + old[0] * old[1]:
        raise ValueError(
            f"pos_embed has {pos_embed.shape[1]} rows, but num_prefix_tokens {num_prefix_tokens} "
            f"+ old_grid {old[0]}×{old[1]} make {num_prefix_tokens + old[0] * old[1]}"
        )
    if old == new:
        return pos_embed
    prefix, patches = pos_embed[:, :num_prefix_tokens], pos_embed[:, num_prefix_tokens:]
    image = rearrange(patches, "one (gh gw) d -> one d gh gw", gh=old[0]).to(working_dtype("pos_embed", pos_embed))
    # By size=, because scale_factor= can be off by one.
    image = F.interpolate(image, size=new, mode="bicubic", antialias=True).to(pos_embed.dtype)
    return torch.cat([prefix, rearrange(image, "one d gh gw -> one (gh gw) d")], dim=1)
