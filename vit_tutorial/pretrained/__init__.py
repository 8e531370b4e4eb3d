"""Weights that others have trained: fetched once, checked, and made to fit (chapter 9)."""

from vit_tutorial.pretrained.load import NAMES, Published, adapt, load_pretrained, published
from vit_tutorial.pretrained.models import from_huggingface, from_timm, from_torchvision
from vit_tutorial.pretrained.state_dicts import convert, from_state_dict, load_weights, read_config

__all__ = [
    "NAMES",
    "Published",
    "adapt",
    "convert",
    "from_huggingface",
    "from_state_dict",
    "from_timm",
    "from_torchvision",
    "load_pretrained",
    "load_weights",
    "published",
    "read_config",
]
