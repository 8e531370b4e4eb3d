"""Exercises: run a reader's function, and say *which* mistake it makes.

A chapter ends an exercise with ``patchify = exercise("patchify", patchify)``.
"""

from vit_tutorial.exercises.contents import CHAPTERS
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.engine import exercise, find
from vit_tutorial.exercises.guard import CheckFailed

__all__ = ["CHAPTERS", "Case", "CheckFailed", "Exercise", "exercise", "find"]
