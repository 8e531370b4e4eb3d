"""Seeing inside: recording attention maps, rollout, gradients, and whether they tell the truth (chapter 8)."""

from vit_tutorial.attention_maps.faithfulness import (
    attention_mass,
    hide_patches,
    mask_coverage,
    patch_saliency,
    peak_coverage,
    pointing_game,
)
from vit_tutorial.attention_maps.maps import (
    attention_distance,
    attention_gradients,
    attention_map,
    attention_rollout,
    gradient_rollout,
    record_attention,
)

__all__ = [
    "attention_distance",
    "attention_gradients",
    "attention_map",
    "attention_mass",
    "attention_rollout",
    "gradient_rollout",
    "hide_patches",
    "mask_coverage",
    "patch_saliency",
    "peak_coverage",
    "pointing_game",
    "record_attention",
]
