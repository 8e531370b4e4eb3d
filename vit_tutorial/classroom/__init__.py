"""The classroom: hand out chapters, hand in answers, grade them. An answer is a function with a name."""

from vit_tutorial.classroom.handouts import write_handouts
from vit_tutorial.classroom.students import book_cell, exercise, hand_in, progress

__all__ = ["book_cell", "exercise", "hand_in", "progress", "write_handouts"]
