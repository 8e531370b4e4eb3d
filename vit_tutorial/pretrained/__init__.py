"""Weights that others have trained: fetched once, checked, and made to fit (chapter 9)."""

from vit_tutorial.pretrained.load import NAMES, Published, adapt, load_pretrained, published
from vit_tutorial.pretrained.models import from_huggingface, from_timm, from_torchvision
from vit_tutorial.pretrained.state_dicts import convert, from_state_dict, load_weights, read_config
from vit_tutorial.pretrained.transfer import (
    PENALTIES,
    SHARPNESS,
    draw_per_class,
    everything,
    fine_tune,
    linear_probe,
    norms_and_biases,
    with_probe,
)

__all__ = [
    "NAMES",
    "PENALTIES",
    "SHARPNESS",
    "Published",
    "adapt",
    "convert",
    "draw_per_class",
    "everything",
    "fine_tune",
    "from_huggingface",
    "from_state_dict",
    "from_timm",
    "from_torchvision",
    "linear_probe",
    "load_pretrained",
    "load_weights",
    "norms_and_biases",
    "published",
    "read_config",
    "with_probe",
]
