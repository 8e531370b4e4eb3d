"""timm's models with rotary positions, DINOv3 and RoPE-ViT among them, as models of ours (chapter 9)."""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_tutorial.model import ViT
from vit_tutorial.modern import MixedRope, Rope
from vit_tutorial.pretrained.parts import maker, unpacked, with_our_positions
from vit_tutorial.pretrained.state_dicts import load_weights, read_config


def from_eva(model: nn.Module) -> ViT:
    """A :class:`~vit_tutorial.modern.ModernViT` that computes the logits of ``model``, an ``Eva`` of timm.

    That is timm's class for DINOv3, RoPE-ViT and others. Ours takes images of the size of ``model.patch_embed`` alone.
    Fixed angles are timm's own, whatever their kind, and learned frequencies are copied.

    Raises:
        ValueError: if it has a part or an option that ours lacks, as EVA-02's norms within attention and MLP are.
    """
    has_class_token, heads = model.cls_token is not None, model.blocks[0].attn.num_heads
    if (model.global_pool, has_class_token) not in (("token", True), ("avg", False)):
        raise ValueError(
            f"our ViT reads the class token, or averages the patches and has none; this model has global_pool "
            f"{model.global_pool!r} and {'a' if has_class_token else 'no'} class token"
        )
    if kinds := {type(block).__name__ for block in model.blocks} - {"EvaBlock"}:
        raise ValueError(f"our ViT cannot compute blocks of the kind {', '.join(kinds)}: their norms follow the sums")
    num_patches = model.patch_embed.num_patches
    state = with_our_positions(unpacked(_renamed(model.state_dict())), num_patches)
    state, rope = _with_rope(state, model)
    table = {"pos_embed": torch.empty(1, has_class_token + num_patches, model.embed_dim)}  # there may be none
    config = read_config(table | state, num_heads=heads, img_size=model.patch_embed.img_size)
    with torch.random.fork_rng():
        ours = maker(state, rope)(config if "pos_embed" in state else replace(config, pos_embed="none"))
    load_weights(ours, state)
    for part in ours.modules():
        if isinstance(part, nn.LayerNorm | nn.RMSNorm):
            part.eps = model.norm.eps
    return ours.eval()


def _renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights under our names: LayerScale's, and queries, keys and values in one layer."""
    found = {re.sub(r"\.gamma_([12])$", r".ls\1.gamma", name): value for name, value in state.items()}
    for name in [name for name in found if name.endswith(".attn.q_bias")]:
        q, v = found.pop(name), found.pop(name.replace("q_bias", "v_bias"))
        found[name.replace("q_bias", "qkv.bias")] = torch.cat([q, torch.zeros_like(q), v])
    return found


def _with_rope(state: dict[str, Tensor], model: nn.Module) -> tuple[dict[str, Tensor], Callable[[int, int], nn.Module]]:
    """The weights with each block's frequencies in it, and what makes the rotations of a block."""
    if model.rope is None:
        return state, nn.Identity
    grid, prefix = model.patch_embed.grid_size, model.num_prefix_tokens
    if "rope.freqs" in state:
        freqs = state["rope.freqs"] if model.rope.grid_indexing == "xy" else state["rope.freqs"].flip(0)
        rest = {name: value for name, value in state.items() if name != "rope.freqs"}
        own = {f"blocks.{i}.attn.rope.freqs": freqs[:, i] for i in range(len(model.blocks))}
        return rest | own, partial(MixedRope, grid_size=grid, num_prefix_tokens=prefix)
    sin, cos = deepcopy(model.rope).eval().get_embed(grid).double().chunk(2, dim=-1)
    angles, halves = torch.atan2(sin, cos), model.blocks[0].attn.rotate_half
    angles = angles[:, : angles.shape[1] // 2] if halves else angles[:, ::2]  # each of a pair has the pair's
    return state, lambda num_heads, head_dim: Rope(F.pad(angles, (0, 0, prefix, 0)), halves=halves)
