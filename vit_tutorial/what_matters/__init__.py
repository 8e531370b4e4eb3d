"""Effects of single choices, with intervals: sweeps, and what they compare (chapter 10)."""

from vit_tutorial.archs.baselines import PostNormBlock, ResidualBlock, ResNet, Shuffled, post_norm, resnet_like
from vit_tutorial.what_matters.effects import compare, effect
from vit_tutorial.what_matters.sweeps import effect_interval, load_sweep, read_rows, run_sweep
from vit_tutorial.what_matters.variants import FRACTIONS, SWEEPS, Sweep

__all__ = [
    "FRACTIONS",
    "SWEEPS",
    "PostNormBlock",
    "ResNet",
    "ResidualBlock",
    "Shuffled",
    "Sweep",
    "compare",
    "effect",
    "effect_interval",
    "load_sweep",
    "post_norm",
    "read_rows",
    "resnet_like",
    "run_sweep",
]
