"""Relative positions: what a score owes to where the key is, seen from the query, rather than to where both are."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_tutorial.attention import Attend, fused_attention, plain_attention
from vit_tutorial.modern.blocks import ModernAttention
from vit_tutorial.validate import check_int, to_pair, working_dtype


def relative_offsets(grid_size: int | tuple[int, int]) -> Int64[Tensor, "2 n n"]:
    """By how many rows, and by how many columns, patch j is before patch i: the place of i minus that of j."""
    gh, gw = to_pair("grid_size", grid_size)
    places = torch.cartesian_prod(torch.arange(gh), torch.arange(gw)).T
    return places[:, :, None] - places[:, None]


def relative_position_index(grid_size: int | tuple[int, int], num_prefix_tokens: int = 0) -> Int64[Tensor, "n n"]:
    """Which row of a table of biases belongs to each pair of tokens: pairs with the same offset share a row.

    Args:
        grid_size: patches, an int or an (gh, gw) pair.
        num_prefix_tokens: tokens in front that have no place in the grid. Three rows at the end of the table are
            theirs: prefix to patch, patch to prefix, prefix to prefix.

    Returns:
        ``(n, n)`` with n = num_prefix_tokens + gh·gw; values below (2gh − 1)(2gw − 1), and the three after it.

    Source: Liu et al. 2021, "Swin Transformer"; for a class token Bao et al. 2022, "BEiT"; timm's
    ``gen_relative_position_index``.
    """
    gh, gw = to_pair("grid_size", grid_size)
    rows, cols = relative_offsets((gh, gw))
    index = (rows + gh - 1) * (2 * gw - 1) + cols + gw - 1
    if num_prefix_tokens:
        number = (2 * gh - 1) * (2 * gw - 1)
        index = F.pad(index, (num_prefix_tokens, 0, num_prefix_tokens, 0))
        index[:num_prefix_tokens] = number
        index[:, :num_prefix_tokens] = number + 1
        index[:num_prefix_tokens, :num_prefix_tokens] = number + 2
    return index


class BiasedAttention(ModernAttention):
    """Adds a learned bias to each score, one for every head and every offset from a query's patch to a key's.

    Args:
        grid_size: patches, an int or an (gh, gw) pair.
        num_prefix_tokens: how many tokens belong to no patch: class token and registers.
        attend: ``fused_attention`` or ``plain_attention``: the bias joins the scores before the softmax, where a
            function of queries, keys and values has no place for it.

    The others, shapes and errors are those of :class:`~vit_tutorial.modern.ModernAttention`.

    Raises:
        ValueError: if ``attend`` is another function, or the tokens are not as many as prefix and grid make.

    Source: Liu et al. 2021; the table has the name and layout of torchvision's and timm's Swin and BEiT.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        grid_size: int | tuple[int, int],
        num_prefix_tokens: int = 1,
        qkv_bias: bool = True,
        attend: Attend = fused_attention,
        drop: float = 0.0,
        qk_norm: Callable[[int], nn.Module] = nn.Identity,
    ):
        _check_attend(attend)
        super().__init__(dim, num_heads, qkv_bias=qkv_bias, attend=attend, drop=drop, qk_norm=qk_norm)
        gh, gw = to_pair("grid_size", grid_size)
        rows = (2 * gh - 1) * (2 * gw - 1) + 3 * bool(num_prefix_tokens)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(rows, num_heads))
        self.index = nn.Buffer(relative_position_index((gh, gw), num_prefix_tokens), persistent=False)

    def bias(self) -> Float[Tensor, "h n n"]:
        """The bias of every score."""
        return rearrange(self.relative_position_bias_table[self.index], "i j h -> h i j").contiguous()

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        _check_tokens(x, len(self.index))
        q, k, v = self.project(x)
        if self.attend is fused_attention:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias().to(q.dtype))
        else:
            out = self._weights(q, k) @ v
        return self.drop(self.proj(rearrange(out, "b h n hd -> b n (h hd)")))

    def weights(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n n"]:
        """The attention weights on ``x``, ``(b, h, n, n)``."""
        return self._weights(*self.project(x)[:2])

    def _weights(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT * q.shape[-1] ** -0.5 + self.bias().to(q.dtype)).softmax(dim=-1)


class ShawAttention(ModernAttention):
    """Adds a learned vector to each key, and one to each value, which depend on how far it is from the query's patch.

    Distances beyond ``max_distance`` count as that, so the vectors fit any grid. In two dimensions, the first half of
    a vector is of the distance in rows, the second of that in columns. All heads share them.

    Args:
        grid_size: patches, an int or an (gh, gw) pair.
        num_prefix_tokens: how many tokens belong to no patch; what has one of them in it is a distance of its own.
        max_distance: in patches.
        attend: ``fused_attention`` or ``plain_attention``, which are the same here: no kernel knows such keys.

    The others, shapes and errors are those of :class:`~vit_tutorial.modern.ModernAttention`.

    Raises:
        ValueError: if the features of a head cannot be halved, ``attend`` is another function, or the tokens are not
            as many as prefix and grid make.

    Source: Shaw et al. 2018, "Self-attention with relative position representations"; in two
    dimensions as in `s-chh's measurements <https://github.com/s-chh/2D-Positional-Encoding-Vision-Transformer>`_.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        grid_size: int | tuple[int, int],
        num_prefix_tokens: int = 1,
        max_distance: int = 2,
        qkv_bias: bool = True,
        attend: Attend = fused_attention,
        drop: float = 0.0,
        qk_norm: Callable[[int], nn.Module] = nn.Identity,
    ):
        _check_attend(attend)
        super().__init__(dim, num_heads, qkv_bias=qkv_bias, attend=attend, drop=drop, qk_norm=qk_norm)
        check_int("max_distance", max_distance, 0)
        head_dim = dim // num_heads
        if head_dim % 2:
            raise ValueError(f"head_dim {head_dim} has no halves, one for the rows and one for the columns")
        self.rel_k = nn.Parameter(torch.zeros(2, 2 * max_distance + 2, head_dim // 2))
        self.rel_v = nn.Parameter(torch.zeros(2, 2 * max_distance + 2, head_dim // 2))
        # As the key sees it: that of j minus that of i. Row 0 of the tables is for pairs with a prefix token.
        distances = (-relative_offsets(grid_size)).clamp(-max_distance, max_distance) + max_distance + 1
        padded = F.pad(distances, (num_prefix_tokens, 0, num_prefix_tokens, 0))
        self.index = nn.Buffer(padded, persistent=False)

    def vectors(self, tables: Float[Tensor, "2 m half"]) -> Float[Tensor, "n n hd"]:
        """For each query i and each key j what is added to j, from ``rel_k`` or ``rel_v``."""
        rows, cols = self.index
        return torch.cat([tables[0][rows], tables[1][cols]], dim=-1)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        _check_tokens(x, self.index.shape[1])
        q, k, v = self.project(x)
        weights = self._weights(q, k)
        out = weights @ v + torch.einsum("bhij,ijf->bhif", weights, self.vectors(self.rel_v).to(v.dtype))
        return self.drop(self.proj(rearrange(out, "b h n hd -> b n (h hd)")))

    def weights(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n n"]:
        """The attention weights on ``x``, ``(b, h, n, n)``."""
        return self._weights(*self.project(x)[:2])

    def _weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT + torch.einsum("bhif,ijf->bhij", q, self.vectors(self.rel_k).to(q.dtype))
        return (scores * q.shape[-1] ** -0.5).softmax(dim=-1)


def resample_bias_table(
    table: Float[Tensor, "m h"],
    old_grid: int | tuple[int, int],
    new_grid: int | tuple[int, int],
    num_prefix_tokens: int = 0,
) -> Float[Tensor, "r h"]:
    """Stretch the biases of offsets to another grid by bicubic interpolation; those of prefix tokens stay.

    The largest offset of one grid becomes the largest of the other, so a step of one patch gets another bias.

    Args:
        table: ``((2gh − 1)(2gw − 1), h)``, and three rows more if there are prefix tokens.
        old_grid: the grid it was learned on, an int or an (gh, gw) pair.
        new_grid: the grid that is wanted.
        num_prefix_tokens: as in :func:`relative_position_index`.

    Returns:
        the table of the new grid, in its dtype; ``table`` itself if the grids are equal.

    Raises:
        ValueError: if ``old_grid`` does not account for the rows of the table, or these are not floating point.

    Source: Liu et al. 2021; timm's ``resize_rel_pos_bias_table_simple``.
    """
    old, new = to_pair("old_grid", old_grid), to_pair("new_grid", new_grid)
    height, width = 2 * old[0] - 1, 2 * old[1] - 1
    extra = 3 * bool(num_prefix_tokens)
    if len(table) != height * width + extra:
        raise ValueError(
            f"the table has {len(table)} rows, but old_grid {old[0]}×{old[1]} with num_prefix_tokens "
            f"{num_prefix_tokens} makes {height}·{width} + {extra} = {height * width + extra}"
        )
    if old == new:
        return table
    image = rearrange(table[: height * width], "(rows cols) h -> 1 h rows cols", rows=height)
    image = image.to(working_dtype("table", table))
    image = F.interpolate(image, size=(2 * new[0] - 1, 2 * new[1] - 1), mode="bicubic").to(table.dtype)
    return torch.cat([rearrange(image, "1 h rows cols -> (rows cols) h"), table[height * width :]])


def _check_attend(attend: Attend) -> None:
    if attend not in (plain_attention, fused_attention):
        raise ValueError(
            f"attend must be plain_attention or fused_attention, got {attend!r}: relative positions join the scores "
            "within attention, where another function of (q, k, v) has no place for them"
        )


def _check_tokens(x: Tensor, number: int) -> None:
    if x.shape[1] != number:
        raise ValueError(
            f"{x.shape[1]} tokens come in, but num_prefix_tokens and grid_size make {number}: relative positions need "
            "every patch, also in training"
        )
