"""What a student calls in a notebook: ``progress()``, ``hand_in()``, and what runs cells that a hand-out lacks."""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from vit_tutorial.borders import write_whole
from vit_tutorial.classroom.answers import Answer, find_answer, read_cell, statements
from vit_tutorial.classroom.handouts import EXERCISE, book_folder
from vit_tutorial.classroom.judge import define, guarded, verdict
from vit_tutorial.classroom.submissions import FORMAT
from vit_tutorial.exercises import engine
from vit_tutorial.exercises.contents import CHAPTERS
from vit_tutorial.exercises.declaration import Exercise
from vit_tutorial.exercises.engine import find
from vit_tutorial.exercises.guard import CheckFailed
from vit_tutorial.old_names import current_name

VERSION = 1


def exercise(name: str, fn: Any, among: Mapping[str, Exercise] | None = None) -> Callable:
    """Check a student's function as the book's ``exercise`` does, but go on if it is wrong.

    Args:
        name: the exercise.
        fn: the student's answer.
        among: exercises of your own, by their names.

    Returns:
        ``fn`` if it is right, else the reference, so that the cells below run.

    Raises:
        ValueError: if there is no exercise of that name.
    """
    try:
        return engine.exercise(name, fn, among)
    except CheckFailed as failure:
        # On the stream that notebooks colour.
        print(f"{name}: wrong. {failure}", file=sys.stderr)
        print("The chapter goes on with the reference. Fix your function and run its cell again.", file=sys.stderr)
        return find(name, among).reference


def progress(among: Mapping[str, Exercise] | None = None) -> None:
    """Print which exercises of the chapter are right, and what is next.

    Args:
        among: exercises of your own, by their names.
    """
    _show(_checked(among))


def hand_in(among: Mapping[str, Exercise] | None = None) -> Path:
    """Check all answers, print a table, and write them into one file, which Colab downloads.

    Args:
        among: exercises of your own, by their names.

    Returns:
        The file: JSON with each function and everything in the notebook that it needs. ``vit-tutorial grade`` reads it.
    """
    rows = _checked(among)
    student = str(_namespace().get("STUDENT", "")).strip()
    chapters = [f"{i:02}_{name}" for i, (name, own) in enumerate(CHAPTERS.items(), 1) if set(own) & set(rows)]
    parts = ["hand-in", *chapters, re.sub(r"[^\w-]+", "-", student).strip("-")]
    file = Path("-".join(part for part in parts if part) + ".json")
    columns = ("status", "hint", "source")
    answers = {name: dict(zip(columns, (*row[1:], row[0].source), strict=True)) for name, row in rows.items()}
    content = {"format": FORMAT, "version": VERSION, "student": student}
    content |= {"package": metadata.version("vit-tutorial"), "answers": answers}
    write_whole(file, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode(errors="backslashreplace"))
    _show(rows)
    if not student:
        print("There's no name in it: write yours into the cell at the top, run that, and run this again.")
    print(f"Hand in the file {file}")
    if "google.colab" in sys.modules:
        sys.modules["google.colab"].files.download(str(file))
    return file


def book_cell(chapter: str, cell: str, names: Sequence[str]) -> None:
    """Run a cell of the installed book, and show its code once the answers that it would give away are right.

    Args:
        chapter: such as "01_patches".
        cell: its id in that notebook.
        names: the exercises.

    Raises:
        ValueError: if the installed book has no such cell.
    """
    notebook = json.loads((book_folder() / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    code = next((read_cell(each)[1] for each in notebook["cells"] if each["id"] == cell), None)
    if code is None:
        version = metadata.version("vit-tutorial")
        raise ValueError(f"{chapter} has no cell {cell!r} in vit-tutorial {version}: the hand-out is another version's")
    namespace = _namespace()
    if all(_is_right(name, namespace.get(name)) for name in names):
        print(f"{code}\n")
    shell = _shell()
    if shell is None:
        exec(code, namespace)
    else:
        shell.run_cell(code).raise_error()


def _is_right(name: str, fn: Any) -> bool:
    task = find(name)
    return callable(fn) and fn is not task.reference and verdict(task, guarded(task, fn))[0] == "right"


def _shell() -> Any:
    """IPython's shell; None outside IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _namespace() -> dict:
    """The notebook's names, or the program's."""
    shell = _shell()
    return vars(sys.modules["__main__"]) if shell is None else shell.user_ns


def _executed() -> list[tuple[str, str]]:
    """Every cell that was run since the kernel started, in that order; outside IPython the program itself."""
    shell = _shell()
    if shell is not None:
        return [("code", text) for text in shell.history_manager.input_hist_parsed]
    file = _namespace().get("__file__")
    if file is None:
        raise ValueError("answers are found in a notebook, in IPython or in a file; this is none of them")
    return [("code", Path(file).read_text(encoding="utf-8"))]


def _checked(among: Mapping[str, Exercise] | None) -> dict[str, tuple[Answer, str, str]]:
    """Answer, status and hint of each exercise of the chapters of which one was run."""
    cells = _executed()
    run = dict.fromkeys(current_name(name) for _, text in cells for name in EXERCISE.findall(text))
    names = [name for own in CHAPTERS.values() if set(own) & set(run) for name in own]
    names += [name for name in among or () if name not in names]
    own = statements(cells)
    rows = {}
    for name in names:
        answer = find_answer(name, own, names)
        rows[name] = (answer, *_status(name, answer, among))
    return rows


def _status(name: str, answer: Answer, among: Mapping[str, Exercise] | None) -> tuple[str, str]:
    if answer.status:
        return answer.status, answer.hint
    references = {other: find(other, among).reference for other in answer.borrowed}
    with contextlib.redirect_stdout(io.StringIO()):
        try:  # as the grader will see it: without anything that is only left over in the notebook
            fn = define(name, answer.source, references)
        except ValueError as error:
            return "broken", str(error)
        task = find(name, among)
        return verdict(task, guarded(task, fn))


def _show(rows: Mapping[str, tuple[Answer, str, str]]) -> None:
    width = max(map(len, rows), default=0)
    for name, (_, status, hint) in rows.items():
        print(f"{name:<{width}}  {status:<13}  {hint}".rstrip())
    left = [name for name, (_, status, _) in rows.items() if status != "right"]
    after = f"Next: {left[0]}." if left else "All done." if rows else "No exercise was run yet."
    print(f"{len(rows) - len(left)} of {len(rows)} right. {after}")
    if any(status == "missing" for _, status, _ in rows.values()):
        print("What is missing is in a cell that wasn't run: run all cells, then this one again.")
