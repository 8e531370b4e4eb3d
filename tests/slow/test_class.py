"""A class of thirty with submissions in all states."""

import csv

from made_submissions import make_students, unlike_intended, write_class
from test_classroom_grading import LIMITS, pytestmark

from vit_tutorial.classroom.grading import grade
from vit_tutorial.exercises import CHAPTERS


def test_thirty_submissions_in_all_states_get_the_scores_that_are_intended(tmp_path):
    """The whole class of 300: ``python benchmarks/classroom.py``."""
    students = list(make_students(30, ["patches", "attention", "encoder"], seed=1, slow=3))
    write_class(students, tmp_path / "in")
    grades = grade(tmp_path / "in", tmp_path / "out.csv", limits=LIMITS, jobs=1, progress=False)
    assert unlike_intended(students, grades) == []
    with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["student", "exercise", "points", "status", "hint", "seconds"]
    assert len(rows) == 30 * sum(len(CHAPTERS[stem]) for stem in ("patches", "attention", "encoder"))
    assert sum(float(row["points"]) for row in rows) == sum(row["status"] == "right" for row in rows) > 30
