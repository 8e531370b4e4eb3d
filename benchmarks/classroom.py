"""Grade a class of 300 that never was, and say what went wrong: ``python benchmarks/classroom.py [STUDENTS] [SEED]``.

The submissions are those of ``tests/made_submissions.py``: right, wrong, blank and hostile ones, in all the states
that students leave notebooks in. It prints minutes, megabytes and scores that aren't as intended.
"""

import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from made_submissions import make_students, unlike_intended, write_class  # noqa: E402

from vit_tutorial.classroom.grading import grade  # noqa: E402
from vit_tutorial.classroom.reports import write_reports  # noqa: E402
from vit_tutorial.exercises import CHAPTERS  # noqa: E402


def largest_judges(until: threading.Event, seen: list[tuple[float, float]]) -> None:
    """Note, every five seconds, the time and the megabytes that our child processes' largest takes."""
    start = time.monotonic()
    while not until.wait(5):
        sizes = [0.0]
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
            except OSError:  # it has ended
                continue
            if int(lines["PPid"]) == os.getpid() and "VmRSS" in lines:
                sizes.append(int(lines["VmRSS"].split()[0]) / 1e3)
        seen.append((time.monotonic() - start, max(sizes)))


def main(number: int = 300, seed: int = 0) -> None:
    with tempfile.TemporaryDirectory() as folder:
        students = list(make_students(number, list(CHAPTERS), seed))
        write_class(students, Path(folder) / "in")
        until, seen, start = threading.Event(), [], time.monotonic()
        watch = threading.Thread(target=largest_judges, args=(until, seen))
        watch.start()
        grades = grade(Path(folder) / "in", Path(folder) / "grades.csv", jobs=2)
        until.set()
        watch.join()
        minutes = (time.monotonic() - start) / 60
        report = write_reports(ROOT / "_build/classroom", grades)
        scores = unlike_intended(students, grades)
    answers = sum(len(student.intended) for student in students)
    third = max(1, len(seen) // 3)
    early, late = (max(size for _, size in part) for part in (seen[:third], seen[-third:]))
    print(f"{number} students, {answers:,} answers in {minutes:.1f} minutes")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"largest judge: {early:.0f} MB in the first third, {late:.0f} MB in the last; this process {own:.0f} MB")
    print(f"the report: {report.relative_to(ROOT)}")
    print(f"{len(scores)} scores not as intended", *scores, sep="\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
