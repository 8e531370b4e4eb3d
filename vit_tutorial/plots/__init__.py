"""Figures that are drawn in more than one place, and what all drawings share. They import matplotlib when they draw."""

from vit_tutorial.plots.basics import confusion_matrix, heatmap, show_images, spread_patches, subplots, use_style
from vit_tutorial.plots.colours import COLOURS, PALETTE
from vit_tutorial.plots.diagram import Diagram, model_diagram
from vit_tutorial.plots.inside import (
    attention_grid,
    distance_by_depth,
    overlay_map,
    patch_filters,
    show_maps,
    similarity_grid,
)
from vit_tutorial.plots.tables import Table, table
from vit_tutorial.plots.training import LiveCurves, training_curves

__all__ = [
    "COLOURS",
    "PALETTE",
    "Diagram",
    "LiveCurves",
    "Table",
    "attention_grid",
    "confusion_matrix",
    "distance_by_depth",
    "heatmap",
    "model_diagram",
    "overlay_map",
    "patch_filters",
    "show_images",
    "show_maps",
    "similarity_grid",
    "spread_patches",
    "subplots",
    "table",
    "training_curves",
    "use_style",
]
