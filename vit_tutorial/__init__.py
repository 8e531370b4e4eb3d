"""The Vision Transformer from scratch: the package behind the book. The README says which chapter builds which file."""

from vit_tutorial.attention import (
    Attention,
    AttentionHead,
    PerHeadAttention,
    attention_weights,
    fuse_heads,
    fused_attention,
    plain_attention,
)
from vit_tutorial.clinic import diagnose
from vit_tutorial.config import PRESETS, ViTConfig
from vit_tutorial.encoder import Block, DropPath, Mlp
from vit_tutorial.model import ViT, init_weights
from vit_tutorial.patches import LinearPatchEmbed, PatchEmbed, patchify, unpatchify
from vit_tutorial.positions import resample_pos_embed, sincos_1d, sincos_2d

__all__ = [
    "PRESETS",
    "Attention",
    "AttentionHead",
    "Block",
    "DropPath",
    "LinearPatchEmbed",
    "Mlp",
    "PatchEmbed",
    "PerHeadAttention",
    "ViT",
    "ViTConfig",
    "attention_weights",
    "diagnose",
    "fuse_heads",
    "fused_attention",
    "init_weights",
    "patchify",
    "plain_attention",
    "resample_pos_embed",
    "sincos_1d",
    "sincos_2d",
    "unpatchify",
]
