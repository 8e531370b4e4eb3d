"""Effects of single choices, with intervals: sweeps, and what they compare (chapter 10)."""

from vit_tutorial.archs.baselines import PostNormBlock, ResidualBlock, ResNet, Shuffled, post_norm, resnet_like
from vit_tutorial.what_matters.effects import accuracies, compare, effect, gains, p_value, single_changes
from vit_tutorial.what_matters.sweeps import effect_interval, load_sweep, read_rows, run_sweep
from vit_tutorial.what_matters.variants import CHANGES, FRACTIONS, SWEEPS, Sweep

__all__ = [
    "CHANGES",
    "FRACTIONS",
    "SWEEPS",
    "PostNormBlock",
    "ResNet",
    "ResidualBlock",
    "Shuffled",
    "Sweep",
    "accuracies",
    "compare",
    "effect",
    "effect_interval",
    "gains",
    "load_sweep",
    "p_value",
    "post_norm",
    "read_rows",
    "resnet_like",
    "run_sweep",
    "single_changes",
]
