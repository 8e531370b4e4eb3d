"""A block put together from parts: LayerScale, RMSNorm, SwiGLU, QK-norm, rotary positions, or whatever you pass."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.attention import Attend, Attention, fused_attention
from vit_tutorial.encoder import NORM_EPS, DropPath, Mlp
from vit_tutorial.validate import check_factory, check_int, check_number, working_dtype

LayerNorm = partial(nn.LayerNorm, eps=NORM_EPS)


class LayerScale(nn.Module):
    """Multiplies each feature by a learned number that starts near 0: at first a deep stack is close to the identity.

    Args:
        dim: width of a token.
        init_values: 1e-5 in timm and DINOv3, 1e-4 in ViT-5; CaiT takes 0.1 up to 18 blocks.

    Shapes:
        ``(..., dim)`` to ``(..., dim)``.

    Raises:
        ValueError: if ``init_values`` is negative.

    Source: Touvron et al. 2021, "Going deeper with image Transformers".
    """

    def __init__(self, dim: int, init_values: float = 1e-5):
        super().__init__()
        check_number("init_values", init_values, 0)
        self.gamma = nn.Parameter(torch.full((dim,), float(init_values)))

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return x * self.gamma


class RMSNorm(nn.RMSNorm):
    """Divides a token by the root mean square of its features, and subtracts nothing; PyTorch's, written out.

    Args:
        dim: width of a token.
        eps: is added to the mean square.

    Shapes:
        ``(..., dim)`` to ``(..., dim)``.

    Source: Zhang and Sennrich 2019, "Root mean square layer normalization"; timm's ``RmsNorm``.
    """

    def __init__(self, dim: int, eps: float = NORM_EPS):
        super().__init__(dim, eps)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        values = x.to(working_dtype("x", x))
        mean_square = values.square().mean(dim=-1, keepdim=True)
        return (values * (mean_square + self.eps).rsqrt() * self.weight).to(x.dtype)


class SwiGLU(nn.Module):
    """An MLP with two first layers: one of them goes through the SiLU and gates the other by multiplication.

    Three matrices of hidden width 2/3 · h have as many parameters as an MLP's two of width h.

    Args:
        dim: width of a token.
        hidden_dim: width of the gate and of what it gates.
        act: of an MLP in its place; a SwiGLU's gate always has the SiLU.
        drop: dropout after the product and after the last layer.

    Shapes:
        ``(..., dim)`` to ``(..., dim)``.

    Raises:
        ValueError: if ``hidden_dim`` is not an int of at least 1.

    Source: Shazeer 2020, "GLU variants improve Transformer"; timm's ``SwiGLU``, and its ``SwiGLUPacked`` with
    ``fc1_g`` and ``fc1_x`` on top of each other in one ``fc1``.
    """

    def __init__(self, dim: int, hidden_dim: int, *, act: str = "silu", drop: float = 0.0):
        super().__init__()
        check_int("hidden_dim", hidden_dim, 1)
        self.fc1_g = nn.Linear(dim, hidden_dim)
        self.fc1_x = nn.Linear(dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return self.drop(self.fc2(self.drop(F.silu(self.fc1_g(x)) * self.fc1_x(x))))


class ModernAttention(Attention):
    """:class:`~vit_tutorial.attention.Attention` whose queries and keys may be normalised, and then turned.

    Args:
        qk_norm: makes a norm over the features of a head, as in ``qk_norm=RMSNorm``. Scores are then bounded by the
            norm's weights, not by the lengths that queries and keys grow to.
        rope: makes the rotation from (num_heads, head_dim), as in ``rope=partial(axial_rope, grid_size=(8, 8))``.

    The others, shapes and errors are those of :class:`~vit_tutorial.attention.Attention`.

    Raises:
        ValueError: if ``qk_norm`` or ``rope`` is a module, not what makes one.

    Source: for the norms Henry et al. 2020, "Query-key normalization for transformers", and Dehghani et al. 2023,
    "Scaling Vision Transformers to 22 billion parameters"; names as in timm's ``AttentionRope``.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        attend: Attend = fused_attention,
        drop: float = 0.0,
        qk_norm: Callable[[int], nn.Module] = nn.Identity,
        rope: Callable[[int, int], nn.Module] = nn.Identity,
    ):
        super().__init__(dim, num_heads, qkv_bias=qkv_bias, attend=attend, drop=drop)
        check_factory("qk_norm", qk_norm)
        check_factory("rope", rope)
        self.q_norm, self.k_norm = qk_norm(dim // num_heads), qk_norm(dim // num_heads)
        self.rope = rope(num_heads, dim // num_heads)

    def project(self, x: Float[Tensor, "b n d"]) -> tuple[Float[Tensor, "b h n hd"], ...]:
        """Queries, keys and values of every head, as they meet."""
        q, k, v = super().project(x)
        return self.rope(self.q_norm(q)).to(v.dtype), self.rope(self.k_norm(k)).to(v.dtype), v


class ModernBlock(nn.Module):
    """A pre-norm block whose parts you choose; by default it is :class:`~vit_tutorial.encoder.Block`.

    ``ViT(config, block=partial(ModernBlock, mlp=SwiGLU, norm=RMSNorm, init_values=1e-5))`` is a whole model of them.

    Args:
        attn: makes the attention layer, with the arguments of :class:`~vit_tutorial.attention.Attention`.
        mlp: makes the MLP from (dim, hidden_dim, act=, drop=).
        norm: makes each of the two norms from dim.
        init_values: of :class:`LayerScale` on both branches; None for none.

    The others, shapes and errors are those of :class:`~vit_tutorial.encoder.Block`; parameters have timm's names.

    Raises:
        ValueError: if ``attn``, ``mlp`` or ``norm`` does not make a layer.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        act: str = "gelu",
        attend: Attend = fused_attention,
        attn: Callable[..., nn.Module] = Attention,
        mlp: Callable[..., nn.Module] = Mlp,
        norm: Callable[[int], nn.Module] = LayerNorm,
        init_values: float | None = None,
        drop: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        for name, factory in (("attn", attn), ("mlp", mlp), ("norm", norm)):
            check_factory(name, factory)
        self.norm1 = norm(dim)
        self.attn = attn(dim, num_heads, qkv_bias=qkv_bias, attend=attend, drop=drop)
        self.ls1 = nn.Identity() if init_values is None else LayerScale(dim, init_values)
        self.norm2 = norm(dim)
        self.mlp = mlp(dim, int(dim * mlp_ratio), act=act, drop=drop)
        self.ls2 = nn.Identity() if init_values is None else LayerScale(dim, init_values)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x))))
        x = x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))
        return x
