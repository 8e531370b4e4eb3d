"""Real images and drawn ones by name: where they are kept, and how they are split (chapter 6)."""

from vit_tutorial.data.images import Dataset, ImageFiles
from vit_tutorial.data.load import NAMES, SPLITS, data_root, fetch, load_dataset
from vit_tutorial.data.shapes import draw_shapes

__all__ = [
    "NAMES",
    "SPLITS",
    "Dataset",
    "ImageFiles",
    "data_root",
    "draw_shapes",
    "fetch",
    "load_dataset",
]
