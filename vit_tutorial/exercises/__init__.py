"""Exercises: run a reader's function, and say *which* mistake it makes.

A chapter ends an exercise with ``patchify = exercise("patchify", patchify)``.
"""

from vit_tutorial.exercises.engine import CheckFailed, exercise

__all__ = [
    "CheckFailed",
    "exercise",
]

from vit_tutorial.exercises import (  # noqa: F401
    attention,
    attention_maps,
    clinic,
    encoder,
    model,
    patches,
    positions,
    pretrained,
    recipes,
    speed,
    training,
    what_matters,
)
