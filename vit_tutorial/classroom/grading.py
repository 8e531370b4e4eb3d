"""Every answer of a class, judged: several at once, each by its own process, and interrupted, it goes on."""

import csv
import hashlib
import json
import os
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from tqdm import tqdm

from vit_tutorial.classroom.answers import Answer, Statement, find_answer, statements
from vit_tutorial.classroom.apart import Limits, check_confinement
from vit_tutorial.classroom.handouts import NOTEBOOKS, chapter_cells, chosen_chapters
from vit_tutorial.classroom.judge import load_exercises
from vit_tutorial.classroom.submissions import File, read_submissions
from vit_tutorial.exercises.contents import CHAPTERS

COLUMNS = ("student", "exercise", "points", "status", "hint", "seconds")
BETTER = ("missing", "unreadable", "not attempted", "broken", "")  # of an answer in two files; "" is to be judged
KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")  # of the environment


@dataclass(frozen=True)
class Grade:
    """A line of the table, with the answer, the file that it was found in, and the points of a right one."""

    student: str
    exercise: str
    points: float
    status: str
    hint: str
    seconds: float
    source: str = ""
    path: str = ""
    worth: float = 1


class Judge:
    """A process that judges answers one after the other; see ``judge``. If one takes it down, it is started again.

    Args:
        limits: of each answer.
        exercises: the teacher's own file, or "".
    """

    def __init__(self, limits: Limits, exercises: str = ""):
        self.limits, self.exercises = limits, exercises
        self._process: subprocess.Popen | None = None

    def __call__(self, name: str, answer: Answer) -> dict:
        """Status, hint and seconds."""
        if answer.status:
            return {"status": answer.status, "hint": answer.hint, "seconds": 0.0}
        request = {"name": name, "source": answer.source, "borrowed": answer.borrowed, "limits": asdict(self.limits)}
        if self._process is None:
            self._start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            reply = self._process.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if reply:
            return json.loads(reply)
        self.close()
        return {"status": "crashed", "hint": "it took the judge down with it", "seconds": 0.0}

    def _start(self) -> None:
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        kept |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, "-c", "from vit_tutorial.classroom.judge import main; main()", self.exercises]
        # In a session of its own, so that Ctrl-C reaches us alone.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=kept,
            start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def read_points(path: str | Path) -> dict[str, float]:
    """Points from a TOML file with lines such as ``patchify = 2``.

    Raises:
        ValueError: if it isn't TOML, or a number isn't one.
    """
    try:
        points = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, value in points.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ValueError(f"{path}: the points of {name} must be a number, 0 or more, got {value!r}")
    return points


def grade(
    submissions: str | Path,
    out: str | Path,
    *,
    points: Mapping[str, float] | None = None,
    chapters: str = "",
    exercises: str = "",
    limits: Limits | None = None,
    jobs: int = 0,
    progress: bool = True,
) -> list[Grade]:
    """Judge all answers, and write the table.

    Args:
        submissions: a folder or a zip.
        out: the table, a CSV file. Beside it lies ``out``.partial until all is done, from which the same call goes on.
        points: of each exercise that counts; 1 for each exercise of ``chapters`` otherwise.
        chapters: such as "1-5"; without them, those of which anything was handed in.
        exercises: a file with EXERCISES of your own.
        limits: of each answer.
        jobs: answers at once; all cores unless told.
        progress: whether to show a bar.

    Returns:
        A grade for each student and exercise.

    Raises:
        ValueError: if there is nothing to read, or an exercise in ``points`` isn't known, or answers can't be confined.
    """
    if not hasattr(os, "fork"):
        raise ValueError("grading needs Linux or macOS; on Windows, use WSL or a container")
    limits, out = limits or Limits(), Path(out)
    own = tuple(load_exercises(exercises)) if exercises else ()
    known = {name: chapter for chapter, names in CHAPTERS.items() for name in names} | dict.fromkeys(own, "")
    if unknown := set(points or ()) - set(known):
        raise ValueError(f"there are points for {', '.join(sorted(unknown))}, which are no exercises")
    book = _book()
    handed = _by_student(read_submissions(submissions), {each.text for kept in book.values() for each in kept})
    names = list(points) if points else _that_count(handed, known, own, chapters)
    points = points or dict.fromkeys(names, 1)
    wanted = _answers(handed, names, known, book)
    check_confinement(limits)
    verdicts = _judged(wanted, limits, exercises, out.with_name(f"{out.name}.partial"), jobs, progress)
    grades = []
    for (student, name), (answer, path) in wanted.items():
        verdict = verdicts[_key(name, answer, limits)]
        earned = points[name] if verdict["status"] == "right" else 0
        grades.append(Grade(student, name, earned, **verdict, source=answer.source, path=path, worth=points[name]))
    with open(out, "w", newline="", encoding="utf-8-sig") as file:  # the mark tells spreadsheets that it is UTF-8
        table = csv.writer(file)
        table.writerow(COLUMNS)
        table.writerows([_harmless(getattr(row, column)) for column in COLUMNS] for row in grades)
    out.with_name(f"{out.name}.partial").unlink(missing_ok=True)
    return grades


def _harmless(value: object) -> object:
    """A spreadsheet takes text that begins like this for a formula, and text here comes from students."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


@cache
def _book() -> dict[str, list[Statement]]:
    """What the chapters themselves state, without their exercises."""
    cells = {path.stem[3:]: chapter_cells(path) for path in NOTEBOOKS.glob("*.ipynb")}
    return {stem: [replace(each, ours=True) for each in statements(kept)] for stem, kept in cells.items()}


def _by_student(files: Iterable[File], book: Container[str]) -> dict[str, list[tuple[File, list[Statement]]]]:
    """Each student's files with their statements; those whose text is in the book are marked as such."""
    handed: dict[str, list[tuple[File, list[Statement]]]] = {}
    for file in files:
        checks = [Statement("", checks=file.only)] if file.only else []
        own = [replace(each, ours=each.text in book) for each in statements(file.cells)]
        handed.setdefault(file.student, []).append((file, own + checks))
    return dict(sorted(handed.items()))


def _that_count(handed: Mapping, known: Mapping[str, str], own: Sequence[str], chapters: str) -> list[str]:
    """The exercises of the chapters that were asked for, and the teacher's own.

    Otherwise those of each file's chapter: the one of which it defines most functions.
    """
    asked = {stem[3:] for stem in chosen_chapters(chapters)} if chapters else set()
    for _, written in (each for files in handed.values() for each in files if not chapters):
        defined = {name for each in written if each.defines and not each.ours for name in each.writes} & known.keys()
        held = Counter(known[name] for name in defined)
        asked |= {chapter for chapter, number in held.items() if number == max(held.values())}
    return [name for name, chapter in known.items() if chapter in asked and name not in own] + list(own)


def _answers(handed: Mapping, names: Sequence[str], known: Mapping[str, str], book: Mapping) -> dict:
    """(answer, path) by student and exercise. A later file counts, unless it holds less."""
    wanted = {}
    for student, files in handed.items():
        for name in names:
            best = (Answer(), "")
            for file, own in files:
                if file.problem:
                    found = Answer(status="unreadable", hint=file.problem)
                elif file.only in ("", name):
                    found = find_answer(name, [*book.get(known[name], ()), *own], known)
                else:
                    continue
                if found.status != "missing" and BETTER.index(found.status) >= BETTER.index(best[0].status):
                    best = (found, file.path)
            wanted[student, name] = best
    return wanted


def _key(name: str, answer: Answer, limits: Limits) -> str:
    return hashlib.sha256(repr((name, answer, limits)).encode(errors="replace")).hexdigest()


def _judged(wanted: Mapping, limits: Limits, exercises: str, partial: Path, jobs: int, progress: bool) -> dict:
    """Verdicts by key; like answers are judged once. Those in ``partial`` were judged before an interruption."""
    verdicts = {}
    if partial.exists():
        for line in partial.read_text(encoding="utf-8").splitlines():
            if line.endswith("}"):  # the last one may be cut off
                verdicts |= json.loads(line)
    left = {}
    for (_, name), (answer, _) in wanted.items():
        if (key := _key(name, answer, limits)) not in verdicts:
            left[key] = name, answer
    judges: list[Judge] = []
    mine = threading.local()  # a judge for each thread

    def judged(name: str, answer: Answer) -> dict:
        if not hasattr(mine, "judge"):
            judges.append(Judge(limits, exercises))
            mine.judge = judges[-1]
        return mine.judge(name, answer)

    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1)
    try:
        with open(partial, "a", encoding="utf-8") as file:
            tasks = {pool.submit(judged, *each): key for key, each in left.items()}
            for task in tqdm(as_completed(tasks), total=len(tasks), unit=" answers", disable=not progress):
                verdicts[tasks[task]] = task.result()
                file.write(json.dumps({tasks[task]: task.result()}) + "\n")
                file.flush()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for judge in judges:
            judge.close()
        pool.shutdown()
    return verdicts
