"""Judge every answer of a class: several at once, each in its own process, and resumable after an interruption."""

import ast
import csv
import hashlib
import io
import itertools
import json
import math
import os
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from tqdm import tqdm

from vit_tutorial.borders import at_fault, naming, read_json, write_whole
from vit_tutorial.classroom.answers import Answer, Statement, find_answer, statements
from vit_tutorial.classroom.handouts import book_folder, chapter_cells, chosen_chapters, refuse_unknown
from vit_tutorial.classroom.judge import load_exercises
from vit_tutorial.classroom.sandbox import Limits, check_confinement
from vit_tutorial.classroom.submissions import File, read_submissions
from vit_tutorial.exercises.contents import CHAPTERS
from vit_tutorial.old_names import current_name

COLUMNS = ("student", "exercise", "points", "status", "hint", "seconds")
BETTER = ("missing", "unreadable", "not attempted", "broken", "")  # of an answer in two files; "" is to be judged
MOST_STATEMENTS = 5_000  # in a file; a chapter has some hundreds
VERDICT = {"status", "hint", "seconds"}
KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")  # of the environment


@dataclass(frozen=True)
class Grade:
    """A line of the table, and more for the report.

    Args:
        student: their name on the platform, in the signature, or of the file.
        exercise: its name.
        points: earned.
        status: "right", "wrong" and so on, as the guide lists them.
        hint: why.
        seconds: of CPU time.
        source: the answer.
        path: the file that it was found in.
        worth: the points of a right answer.
        note: what is odd about everything that the student handed in.
    """

    student: str
    exercise: str
    points: float
    status: str
    hint: str
    seconds: float
    source: str = ""
    path: str = ""
    worth: float = 1
    note: str = ""


class Judge:
    """A process that judges answers one after the other; see ``judge``. If an answer crashes it, it is restarted.

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
        with suppress(ValueError):
            return read_json(reply, "")
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
        process, self._process = self._process, None  # first: the thread that asks it may close it, too
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def read_points(path: str | Path) -> dict[str, float]:
    """Points from a TOML file with lines such as ``patchify = 2``.

    Raises:
        ValueError: if it isn't TOML, or a value isn't a number of at least 0.
    """
    content = Path(path).read_bytes()
    with at_fault(f"{path}: "):
        points = tomllib.loads(content.decode("utf-8-sig"))
    for name, value in points.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ValueError(f"{path}: the points of {name} must be a number, 0 or more, got {value!r}")
    return {current_name(name): value for name, value in points.items()}


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
        out: the table, a CSV file. Until all is done, ``out``.partial is beside it, from which the same call resumes.
        points: of each exercise that counts; 1 for each exercise of ``chapters`` otherwise.
        chapters: such as "1-5"; by default, those of which anything was handed in.
        exercises: a file with EXERCISES of your own.
        limits: of each answer.
        jobs: answers at once; by default, as many as there are cores.
        progress: whether to show a bar.

    Returns:
        A grade for each student and exercise.

    Raises:
        ValueError: if there is nothing to read, no exercise is answered and no chapter asked for, a name in ``points``
            isn't an exercise, the chapters aren't there, or answers can't be confined.
    """
    if not hasattr(os, "fork"):
        raise ValueError("grading needs Linux or macOS; on Windows, use WSL or a container")
    limits, out = limits or Limits(), Path(out)
    own = tuple(load_exercises(exercises)) if exercises else ()
    known = {name: chapter for chapter, names in CHAPTERS.items() for name in names} | dict.fromkeys(own, "")
    refuse_unknown(points or (), own)
    book = _book()
    handed = _by_student(read_submissions(submissions), {each.text for kept in book.values() for each in kept})
    names = list(points) if points else _that_count(handed, known, own, chapters)
    if not names:
        raise ValueError(
            f"{submissions} holds no answer to any exercise; --chapters 1-3, say, lists who handed in what"
        )
    points = points or dict.fromkeys(names, 1)
    wanted, notes = _answers(handed, names, known, book)
    check_confinement(limits)
    verdicts = _judged(wanted, limits, exercises, out.with_name(f"{out.name}.partial"), jobs, progress)
    grades = []
    for (student, name), (answer, path) in wanted.items():
        verdict = verdicts[_key(name, answer, limits)]
        earned = points[name] if verdict["status"] == "right" else 0
        origin = {"source": answer.source, "path": path, "worth": points[name], "note": notes.get(student, "")}
        grades.append(Grade(student, name, earned, **verdict, **origin))
    file = io.StringIO()
    table = csv.writer(file)
    table.writerow(COLUMNS)
    table.writerows([_harmless(getattr(row, column)) for column in COLUMNS] for row in grades)
    # Its mark shows spreadsheets that it is UTF-8; a name may hold what is no text.
    write_whole(out, file.getvalue().encode("utf-8-sig", "backslashreplace"))
    out.with_name(f"{out.name}.partial").unlink(missing_ok=True)
    return grades


def _harmless(value: object) -> object:
    """Keep a spreadsheet from taking a student's text for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


@cache
def _book() -> dict[str, list[Statement]]:
    """What the chapters themselves state, without their exercises.

    Raises:
        ValueError: if the chapters aren't there.
    """
    cells = {path.stem[3:]: chapter_cells(path) for path in book_folder().glob("*.ipynb")}
    return {stem: [replace(each, ours=True) for each in statements(kept)] for stem, kept in cells.items()}


def _by_student(files: Iterable[File], book: Container[str]) -> dict[str, list[tuple[File, list[Statement]]]]:
    """Each student's files with their statements; those whose text is in the book are marked as such."""
    handed: dict[str, list[tuple[File, list[Statement]]]] = {}
    for file in files:
        checks = [Statement("", checks=file.only)] if file.only else []
        own = [replace(each, ours=each.text in book) for each in statements(file.cells)]
        handed.setdefault(file.student, []).append((file, own + checks))
    return dict(sorted(handed.items()))


def _that_count(handed: Mapping, known: Mapping[str, str], mine: Sequence[str], chapters: str) -> list[str]:
    """The exercises of the chapters that were asked for, and the teacher's own.

    Otherwise those of each file's chapter: the one of which it defines most functions.
    """
    asked = {stem[3:] for stem in chosen_chapters(chapters)} if chapters else set()
    for _, written in (each for files in handed.values() for each in files if not chapters):
        own = [each for each in written if not each.ours]
        defined = {name for each in own for name in each.defines} & known.keys()
        defined = defined or {name for each in own for name in each.perhaps} & known.keys()
        held = Counter(known[name] for name in defined)
        asked |= {chapter for chapter, number in held.items() if number == max(held.values())}
    return [name for name, chapter in known.items() if chapter in asked and name not in mine] + list(mine)


def _answers(handed: Mapping, names: Sequence[str], known: Mapping[str, str], book: Mapping) -> tuple[dict, dict]:
    """(answer, path) by student and exercise, and what is odd by student. A later file counts, unless it holds less."""
    wanted, notes = {}, {}
    for student, files in handed.items():
        found = [(file, _found_in(file, own, names, known, book)) for file, own in files]
        rows, disputed = _separated(student, found)
        for row, theirs in rows.items():
            for name in names:
                best = (Answer(), "")
                for file, answers in theirs:
                    answer = answers.get(name, Answer())
                    if answer.status != "missing" and BETTER.index(answer.status) >= BETTER.index(best[0].status):
                        best = (answer, file.path)
                wanted[row, name] = best
            if disputed:
                others = ", ".join(sorted({file.path for file, _ in found} - {file.path for file, _ in theirs}))
                notes[row] = f"another file says that it is {student}'s, too, and disagrees on {disputed}: {others}"
            elif all(wanted[row, name][0].status == "missing" for name in names):
                paths = ", ".join(dict.fromkeys(file.path for file, _ in theirs))
                notes[row] = f"none of these exercises was found in {paths}"
    return wanted, notes


def _found_in(file: File, own: Sequence[Statement], names: Sequence[str], known: Mapping, book: Mapping) -> dict:
    """The answers in a file by exercise."""
    too_many = f"{len(own):,} statements, and no more than {MOST_STATEMENTS:,} are read"
    if problem := file.problem or too_many * (len(own) > MOST_STATEMENTS):
        return dict.fromkeys(names, Answer(status="unreadable", hint=problem))
    asked = [name for name in names if file.only in ("", name)]
    found = {}
    for name in asked:
        try:
            with at_fault("its statements lead too far: ", memory=True):
                found[name] = find_answer(name, [*book.get(known[name], ()), *own], known)
        except ValueError as error:
            found[name] = Answer(status="unreadable", hint=str(error))
    return found


def _separated(student: str, found: list[tuple[File, dict]]) -> tuple[dict[str, list], str]:
    """A student's files by row of the table, and the exercises on which they disagree.

    What the platform lists under a student is theirs. A file that only claims so gets its own row if its answers differ
    from those in the others: anyone can sign with any name.
    """
    parts: dict[str, list] = {}
    said: dict[str, dict[str, set]] = {}  # by exercise and part
    for file, answers in found:
        part = file.path if file.claimed else ""
        parts.setdefault(part, []).append((file, answers))
        for name, answer in answers.items():
            if not answer.status:
                said.setdefault(name, {}).setdefault(part, set()).add(_content(answer))
    disputed = [n for n, by in said.items() if any(a.isdisjoint(b) for a, b in itertools.combinations(by.values(), 2))]
    if not disputed:
        return {student: found}, ""
    return {f"{student} ({part})" if part else student: files for part, files in parts.items()}, ", ".join(disputed)


def _content(answer: Answer) -> frozenset[str]:
    """What an answer states, whatever the order, the layout, the comments and the imports."""
    with suppress(ValueError), at_fault(""):  # as it is, if it is nested too deeply
        nodes = ast.parse(answer.source).body
        return frozenset(ast.dump(node) for node in nodes if not isinstance(node, ast.Import | ast.ImportFrom))
    return frozenset([answer.source])


def _key(name: str, answer: Answer, limits: Limits) -> str:
    return hashlib.sha256(repr((name, answer, limits)).encode(errors="replace")).hexdigest()


def _judged(wanted: Mapping, limits: Limits, exercises: str, partial: Path, jobs: int, progress: bool) -> dict:
    """Verdicts by key; equal answers are judged once. Those in ``partial`` were judged before an interruption."""
    verdicts, whole = _judged_before(partial)
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
    with open(partial, "ab", buffering=0) as file:  # nothing is left to be written when it is closed
        file.write(b"" if whole else b"\n")

        def keep(task: Future) -> None:
            verdicts[tasks[task]] = task.result()
            with naming(partial):
                file.write((json.dumps({tasks[task]: task.result()}) + "\n").encode())

        tasks = {pool.submit(judged, *each): key for key, each in left.items()}
        try:
            for task in tqdm(as_completed(tasks), total=len(tasks), unit=" answers", disable=not progress):
                keep(task)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for task, key in tasks.items():  # before the judges are closed: what they say then is about that
                if key not in verdicts and task.done() and not task.cancelled() and task.exception() is None:
                    keep(task)
            for judge in judges:
                judge.close()
            pool.shutdown()
    return verdicts


def _judged_before(partial: Path) -> tuple[dict[str, dict], bool]:
    """Verdicts of an earlier call, and whether its last line is whole.

    A line that an interruption or a full disk damaged doesn't count: its answer is judged again.
    """
    text = partial.read_text(encoding="utf-8", errors="replace") if partial.exists() else ""
    verdicts = {}
    for line in text.splitlines():
        with suppress(ValueError):
            loaded = read_json(line, "")
            verdicts |= {key: each for key, each in loaded.items() if isinstance(each, dict) and set(each) == VERDICT}
    return verdicts, not text or text.endswith("\n")
