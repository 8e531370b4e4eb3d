"""The parts of today's blocks, each by itself in a ViT, two pairs, and the blocks of two papers (chapter 13)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from vit_tutorial.config import ViTConfig
from vit_tutorial.encoder import Mlp
from vit_tutorial.model import ViT
from vit_tutorial.modern import (
    AttentionPoolLatent,
    BiasedAttention,
    ConvStem,
    MixedRope,
    ModernAttention,
    ModernBlock,
    ModernViT,
    RMSNorm,
    Rope,
    SequencePool,
    ShawAttention,
    SwiGLU,
    axial_angles,
    axial_rope,
    centred_coordinates,
)
from vit_tutorial.validate import checked


@checked
def dinov3(config: ViTConfig, mlp: Callable[..., nn.Module] = Mlp) -> ModernViT:
    """LayerScale, four registers, and no positions but the rotary ones; the "plus" ones and the 7B have ``mlp=SwiGLU``.

    Source: Siméoni et al. 2025, "DINOv3"; timm's ``Eva`` with ``rope_type="dinov3"``.
    """
    rope = partial(axial_rope, **_places(config, 4), coordinates=centred_coordinates, halves=True)
    norm = partial(nn.LayerNorm, eps=1e-5)
    parts = {"attn": partial(ModernAttention, rope=rope), "mlp": mlp, "norm": norm, "init_values": 1e-5}
    return ModernViT(config, block=partial(ModernBlock, **parts), norm=norm, reg_tokens=4)


@checked
def vit5(config: ViTConfig) -> ModernViT:
    """LayerScale, RMSNorm, QK-norm, rotary and learned positions, four registers with places of their own.

    Source: "ViT-5", arXiv:2602.08071.
    """

    def rope(num_heads: int, head_dim: int) -> Rope:
        nowhere = torch.zeros(config.num_prefix_tokens, head_dim // 2)
        registers = axial_angles((2, 2), head_dim, theta=100.0)
        return Rope(torch.cat([nowhere, registers, axial_angles(config.grid_size, head_dim, theta=10000.0)]))

    attn = partial(ModernAttention, qk_norm=RMSNorm, rope=rope)
    block = partial(ModernBlock, attn=attn, norm=RMSNorm, init_values=1e-4)
    return ModernViT(config, block=block, norm=RMSNorm, reg_tokens=4)


def _places(config: ViTConfig, registers: int = 0) -> dict[str, object]:
    return {"grid_size": config.grid_size, "num_prefix_tokens": config.num_prefix_tokens + registers}


def _vit(config: ViTConfig, **parts) -> ViT:
    """A ViT whose blocks have these parts."""
    return ViT(config, block=partial(ModernBlock, **parts))


def _with_rope(config: ViTConfig) -> Callable[..., ModernAttention]:
    return partial(ModernAttention, rope=partial(axial_rope, **_places(config)))


def _equal_swiglu(dim: int, hidden_dim: int, **options) -> SwiGLU:
    """With as many parameters as an MLP of this width: three matrices of 2/3 of it."""
    return SwiGLU(dim, round(hidden_dim * 2 / 3), **options)


MODERN: dict[str, Callable[[ViTConfig], nn.Module]] = {
    "rope": lambda c: _vit(c, attn=_with_rope(c)),
    "rope-mixed": lambda c: _vit(c, attn=partial(ModernAttention, rope=partial(MixedRope, **_places(c)))),
    "relative": lambda c: _vit(c, attn=partial(ShawAttention, **_places(c))),
    "bias-table": lambda c: _vit(c, attn=partial(BiasedAttention, **_places(c))),
    "registers": lambda c: ModernViT(c, reg_tokens=4),
    "qk-norm": lambda c: _vit(c, attn=partial(ModernAttention, qk_norm=RMSNorm)),
    "layer-scale": lambda c: _vit(c, init_values=1e-5),
    "rms-norm": lambda c: ModernViT(c, block=partial(ModernBlock, norm=RMSNorm), norm=RMSNorm),
    "swiglu": lambda c: _vit(c, mlp=_equal_swiglu),
    "sequence-pool": lambda c: ModernViT(c, attn_pool=SequencePool),
    "attention-pool": lambda c: ModernViT(c, attn_pool=partial(AttentionPoolLatent, num_heads=c.num_heads, act=c.act)),
    "patch-dropout": lambda c: ModernViT(c, patch_drop=0.5),
    "conv-stem": lambda c: ViT(c, patch_embed=ConvStem),
    "rope-layer-scale": lambda c: _vit(c, attn=_with_rope(c), init_values=1e-5),
    "swiglu-layer-scale": lambda c: _vit(c, mlp=_equal_swiglu, init_values=1e-5),
    "dinov3": dinov3,
    "vit5": vit5,
}

# What a config must say to describe these: positions within attention replace the table, and a pool the class token.
FIELDS = {
    **{name: {"pos_embed": "none"} for name in ("rope", "rope-mixed", "relative", "bias-table", "rope-layer-scale")},
    **{name: {"pool": "mean"} for name in ("sequence-pool", "attention-pool")},
    "dinov3": {"pos_embed": "none", "qkv_bias": False},
    "vit5": {"pos_embed": "learned", "qkv_bias": False},
}
