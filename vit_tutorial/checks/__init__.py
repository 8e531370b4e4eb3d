"""Exercises: run a reader's function, and say *which* mistake it makes.

A chapter ends an exercise with ``patchify = exercise("patchify", patchify)``. Each ``check_<function>`` stands in the
file that is named like its chapter (of chapter 6, ``training``), beside the reference that stands in for an exercise
nobody has attempted yet.
"""

from vit_tutorial.checks import (
    attention,
    attention_maps,
    cifar10,
    clinic,
    encoder,
    model,
    patches,
    positions,
    pretrained,
    training,
    what_matters,
)
from vit_tutorial.checks.engine import CheckFailed, exercise

__all__ = [
    "CheckFailed",
    "attention",
    "attention_maps",
    "cifar10",
    "clinic",
    "encoder",
    "exercise",
    "model",
    "patches",
    "positions",
    "pretrained",
    "training",
    "what_matters",
]
