"""The classroom: hand out chapters, hand in answers, grade them. An answer is a function with a name."""

from vit_tutorial.classroom.handouts import write_handouts
from vit_tutorial.classroom.students import exercise, hand_in, progress, sealed

__all__ = ["exercise", "hand_in", "progress", "sealed", "write_handouts"]
