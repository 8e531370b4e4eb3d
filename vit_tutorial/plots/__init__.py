"""Figures that more than one place draws; nothing else in the package imports matplotlib."""

from vit_tutorial.plots.basics import PALETTE, confusion_matrix, heatmap, show_images, spread_patches, use_style
from vit_tutorial.plots.inside import (
    attention_grid,
    distance_by_depth,
    overlay_map,
    patch_filters,
    position_similarity,
    show_maps,
)

__all__ = [
    "PALETTE",
    "attention_grid",
    "confusion_matrix",
    "distance_by_depth",
    "heatmap",
    "overlay_map",
    "patch_filters",
    "position_similarity",
    "show_images",
    "show_maps",
    "spread_patches",
    "use_style",
]
