"""Every token looks at every other: one formula, and the ways to run it over many heads (chapter 3)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.validate import check_divisible

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention_weights(q: Float[Tensor, "... n hd"], k: Float[Tensor, "... m hd"]) -> Float[Tensor, "... n m"]:
    """How much each query looks at each key: softmax(q kᵀ / √head_dim), the single formula of this package.

    The queries are scaled before the product: in float16 it would be infinite from 65,520 on.

    Args:
        q: queries, ``(..., n, hd)``.
        k: keys, ``(..., m, hd)``.

    Returns:
        ``(..., n, m)``; each row is a probability distribution.

    Raises:
        ValueError: if queries and keys differ in head_dim.

    Source: Vaswani et al. 2017, equation 1.
    """
    _check_head_dim(q, k)
    return ((q * q.shape[-1] ** -0.5) @ k.mT).softmax(dim=-1)


def plain_attention(
    q: Float[Tensor, "... n hd"], k: Float[Tensor, "... m hd"], v: Float[Tensor, "... m vd"]
) -> Float[Tensor, "... n vd"]:
    """The weighted mean of the values, with :func:`attention_weights` as weights. Builds the whole (n, m) matrix.

    Args:
        q: queries, ``(..., n, hd)``.
        k: keys, ``(..., m, hd)``.
        v: values, ``(..., m, vd)``.

    Returns:
        ``(..., n, vd)``.

    Raises:
        ValueError: if queries and keys differ in head_dim, or keys and values in number.
    """
    _check_number(k, v)
    return attention_weights(q, k) @ v


def fused_attention(
    q: Float[Tensor, "... n hd"], k: Float[Tensor, "... m hd"], v: Float[Tensor, "... m vd"]
) -> Float[Tensor, "... n vd"]:
    """The same function as :func:`plain_attention`, in one kernel, which never holds the (n, m) matrix in memory.

    If no fused kernel suits the input, PyTorch falls back on the formula. On a CPU in bf16 its kernel can be several
    times slower than the formula: a model that is trained there may get ``attend=plain_attention`` (chapter 11).

    Args, shapes and errors are those of :func:`plain_attention`.
    """
    _check_head_dim(q, k)
    _check_number(k, v)  # the kernel does not look, and reads beyond a v that is too short
    return F.scaled_dot_product_attention(q, k, v)


def _check_head_dim(q: Tensor, k: Tensor) -> None:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"head_dim of q, {q.shape[-1]}, and of k, {k.shape[-1]}, must be equal")


def _check_number(k: Tensor, v: Tensor) -> None:
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"the number of keys, {k.shape[-2]}, and of values, {v.shape[-2]}, must be equal")


class AttentionHead(nn.Module):
    """One head: queries, keys and values by three projections of its own, then ``attend``.

    Args:
        dim: width of a token.
        head_dim: width of a query, key and value, and so of what comes out.
        qkv_bias: whether queries, keys and values have a bias.
        attend: ``(q, k, v) -> out`` over the last two axes; you can pass your own.

    Shapes:
        ``(b, n, dim)`` to ``(b, n, head_dim)``.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, dim: int, head_dim: int, *, qkv_bias: bool = True, attend: Attend = plain_attention):
        super().__init__()
        self.query = nn.Linear(dim, head_dim, bias=qkv_bias)
        self.key = nn.Linear(dim, head_dim, bias=qkv_bias)
        self.value = nn.Linear(dim, head_dim, bias=qkv_bias)
        self.attend = attend

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n hd"]:
        return self.attend(self.query(x), self.key(x), self.value(x))


class PerHeadAttention(nn.Module):
    """Multi-head attention as the paper writes it: a loop over heads. It launches many small operations, which costs
    time on a GPU; :func:`fuse_heads` avoids that.

    Args, shapes and errors are those of :class:`Attention`.
    """

    def __init__(
        self, dim: int, num_heads: int, *, qkv_bias: bool = True, attend: Attend = plain_attention, drop: float = 0.0
    ):
        super().__init__()
        check_divisible("dim", dim, "num_heads", num_heads)
        self.heads = nn.ModuleList(
            AttentionHead(dim, dim // num_heads, qkv_bias=qkv_bias, attend=attend) for _ in range(num_heads)
        )
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.drop(self.proj(torch.cat([head(x) for head in self.heads], dim=-1)))


class Attention(nn.Module):
    """Multi-head self-attention with one projection for all queries, keys and values of all heads.

    Args:
        dim: width of a token; must be divisible by ``num_heads``.
        num_heads: heads; each sees ``dim / num_heads`` features.
        qkv_bias: whether queries, keys and values have a bias.
        attend: ``(q, k, v) -> out`` over the last two axes; you can pass your own.
        drop: dropout after the output projection. There is none inside the weights, so they stay probabilities.

    Shapes:
        ``(b, n, dim)`` to ``(b, n, dim)``.

    Raises:
        ValueError: if ``num_heads`` does not divide ``dim``.

    Source: Dosovitskiy et al. 2021, appendix A; names as in timm.
    """

    def __init__(
        self, dim: int, num_heads: int, *, qkv_bias: bool = True, attend: Attend = fused_attention, drop: float = 0.0
    ):
        super().__init__()
        check_divisible("dim", dim, "num_heads", num_heads)
        self.num_heads = num_heads
        self.attend = attend
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(drop)

    def project(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "three b h n hd"]:
        """Queries, keys and values of every head, stacked on a new first axis."""
        return rearrange(self.qkv(x), "b n (three h hd) -> three b h n hd", three=3, h=self.num_heads)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        out = rearrange(self.attend(*self.project(x)), "b h n hd -> b n (h hd)")
        return self.drop(self.proj(out))

    def weights(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n n"]:
        """The attention weights on ``x``, ``(b, h, n, n)``, computed by the formula whatever ``attend`` is."""
        q, k, _ = self.project(x)
        return attention_weights(q, k)


@torch.no_grad()
def fuse_heads(per_head: PerHeadAttention, attend: Attend = fused_attention) -> Attention:
    """The :class:`Attention` that computes what ``per_head`` computes, with its weights copied.

    The rows of ``qkv.weight`` are all queries, then all keys, then all values; within each, head by head.

    Args:
        per_head: the loop over heads; it is not changed.
        attend: of the new layer.
    """
    heads = per_head.heads
    dim = heads[0].query.in_features
    has_bias = heads[0].query.bias is not None
    fused = Attention(dim, len(heads), qkv_bias=has_bias, attend=attend, drop=per_head.drop.p)
    fused.to(per_head.proj.weight).train(per_head.training)
    parts = [getattr(head, name) for name in ("query", "key", "value") for head in heads]
    fused.qkv.weight.copy_(torch.cat([part.weight for part in parts]))
    if has_bias:
        fused.qkv.bias.copy_(torch.cat([part.bias for part in parts]))
    fused.proj.load_state_dict(per_head.proj.state_dict())
    return fused
