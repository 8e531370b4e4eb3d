"""Weights of models with today's parts: which parts their names tell, and what timm lays out in another way."""

import re
from collections.abc import Callable
from functools import partial
from math import isqrt

import torch
from torch import Tensor, nn

from vit_tutorial.attention import Attend, fused_attention
from vit_tutorial.config import ViTConfig
from vit_tutorial.encoder import Mlp
from vit_tutorial.model import ViT
from vit_tutorial.modern import (
    AttentionPoolLatent,
    ModernAttention,
    ModernBlock,
    ModernViT,
    RMSNorm,
    SequencePool,
    SwiGLU,
)
from vit_tutorial.modern.blocks import LayerNorm
from vit_tutorial.validate import check_kind

# Names of weights that a plain ViT has not and ModernViT has.
MODERN = re.compile(r"^reg_token$|^attn_pool\.|^blocks\.\d+\.(ls[12]\.gamma$|attn\.[qk]_norm\.|mlp\.fc1_[gx]\.)")


# What the sizes are read from, and the shape that it must have.
SHAPES = {
    "patch_embed.proj.weight": "(d, c, ph, pw) of a Conv2d",
    "pos_embed": "(1, n, d) of one row per token",
    "blocks.0.mlp.fc1.weight": "(hidden, d) of a Linear",
    "head.weight": "(classes, d) of a Linear",
    "cls_token": "(1, 1, d) of one token",
    "reg_token": "(1, r, d) of r tokens",
    "attn_pool.mlp.fc1.weight": "(hidden, d) of a Linear",
}


def read_shape(state: dict[str, Tensor], name: str) -> tuple[int, ...]:
    """The shape of one of the tensors in ``SHAPES``.

    Raises:
        ValueError: if it has another number of axes, or one of length 0: such a tensor takes no bytes in a file,
            whatever its other axes claim.
    """
    check_kind(name, state[name], Tensor)
    shape = tuple(state[name].shape)
    if len(shape) != SHAPES[name].count(",") + 1 or 0 in shape:
        raise ValueError(f"{name} must be the {SHAPES[name]}, got {shape}")
    return shape


def unpacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights with the gate of a SwiGLU in a layer of its own, where timm's ``SwiGLUPacked`` has one for both.

    A packed first layer has twice as many rows as the second has columns; the gate is in front.
    """
    found = dict(state)
    for name in [name for name in state if re.fullmatch(r"blocks\.\d+\.mlp\.fc1\.weight", name)]:
        second = state.get(name.replace("fc1", "fc2"))
        if second is None or second.ndim != 2 or state[name].shape[:1] != (2 * second.shape[1],):
            continue
        for packed in (name, name.replace("weight", "bias")):
            if packed in found:
                gate, gated = found.pop(packed).chunk(2)
                found |= {packed.replace("fc1", "fc1_g"): gate, packed.replace("fc1", "fc1_x"): gated}
    return found


def num_registers(state: dict[str, Tensor]) -> int:
    """How many registers a model with these weights has."""
    return read_shape(state, "reg_token")[1] if "reg_token" in state else 0


def with_our_positions(state: dict[str, Tensor], num_patches: int | None = None) -> dict[str, Tensor]:
    """The same model with a row of positions for class token and patches, as ours has: none for registers.

    timm's registers may have positions of their own, which are added to them here, and with ``no_embed_class`` the
    class token has none, which a row of zeros is.

    Args:
        state: weights under our names.
        num_patches: by default, the first square number that the rows may hold, if there are registers.
    """
    registers, first = num_registers(state), int("cls_token" in state)
    if "pos_embed" not in state or (num_patches is None and not registers):
        return state
    positions, rows = state["pos_embed"], read_shape(state, "pos_embed")[1]
    if num_patches is None:
        possible = [rows - others for others in (first + registers, first, 0) if rows > others]
        num_patches = next((n for n in possible if isqrt(n) ** 2 == n), rows - first)
    if rows == num_patches and first:
        return state | {"pos_embed": torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)}
    if registers and rows == first + registers + num_patches:
        before, own, patches = positions.split([first, registers, num_patches], dim=1)
        return state | {"pos_embed": torch.cat([before, patches], dim=1), "reg_token": state["reg_token"] + own}
    return state


def maker(state: dict[str, Tensor], rope: Callable[[int, int], nn.Module] = nn.Identity) -> Callable[..., ViT]:
    """What makes a model with the parts that weights under our names are of, from its sizes: ``ViT``, if it is plain.

    A norm without a bias is an RMSNorm. What LayerScale starts at does not matter here. Parts that are made for a grid,
    as relative positions are, have none of this.

    Args:
        state: the weights.
        rope: makes the rotations of each block, which weights don't tell.
    """

    def has(pattern: str) -> bool:
        return any(re.search(pattern, name) for name in state)

    def norm(place: str) -> Callable[[int], nn.Module]:
        return LayerNorm if has(rf"^{place}\.bias$") else RMSNorm

    if rope is nn.Identity and not has(MODERN.pattern) and has(r"\.norm1\.bias$"):
        return ViT
    has_latent = has(r"^attn_pool\.latent$")
    qk_norm = norm(r"blocks\.\d+\.attn\.q_norm") if has(r"\.q_norm\.") else nn.Identity
    block = partial(
        ModernBlock,
        attn=partial(ModernAttention, qk_norm=qk_norm, rope=rope),
        mlp=SwiGLU if has(r"\.fc1_g\.") else Mlp,
        norm=norm(r"blocks\.\d+\.norm1"),
        init_values=1.0 if has(r"\.ls1\.gamma$") else None,
    )
    registers = num_registers(state)

    def make(config: ViTConfig, attend: Attend = fused_attention) -> ModernViT:
        pool = SequencePool if has(r"^attn_pool\.attention_pool\.") else None
        if has_latent:
            ratio = read_shape(state, "attn_pool.mlp.fc1.weight")[0] / config.embed_dim
            pool = partial(AttentionPoolLatent, num_heads=config.num_heads, mlp_ratio=ratio, act=config.act)
        return ModernViT(config, attend, block=block, norm=norm("norm"), reg_tokens=registers, attn_pool=pool)

    return make
