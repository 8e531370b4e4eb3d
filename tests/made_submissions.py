"""A class that never was: submissions whose scores are known, in all the states that students leave notebooks in."""

import copy
import inspect
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from notebook_rules import NOTEBOOKS, exercise_calls, paired, read

from vit_tutorial.classroom.handouts import handout
from vit_tutorial.exercises import CHAPTERS, find


@dataclass(frozen=True)
class Intended:
    """An answer, and the status that it has to get."""

    source: str
    status: str


@dataclass
class Student:
    """A submission: file names with contents, and what is intended for each exercise."""

    name: str
    kind: str
    files: dict[str, bytes] = field(default_factory=dict)
    intended: dict[str, Intended] = field(default_factory=dict)


@cache
def _pairs(stem: str) -> dict:
    (path,) = (path for path in NOTEBOOKS if path.stem[3:] == stem)
    return paired(read(path))


def right_answers(stem: str, name: str) -> list[Intended]:
    """The chapter's solution."""
    return [Intended(_pairs(stem)[name][2], "right")]


# Answers with bad intentions, or none -----------------------------------------------------------------------------

_TRICKS = """
#### refused: imports the reference
from {module} import {reference} as {name}
#### refused: calls the reference
import {module}

def {name}(*args):
    return {module}.{reference}(*args)
#### refused: asks the engine
def {name}(*args):
    from vit_tutorial.exercises import find
    return find('{name}').reference(*args)
#### refused: searches the memory
import gc

def {name}(*args):
    t = [o for o in gc.get_objects() if type(o).__name__ == 'Exercise']
    return t[0].reference(*args)
#### refused: patches the checks
def {name}(*args):
    import vit_tutorial.exercises.outcomes as o
    o.compare = lambda *a: ''
    return 1
#### wrong: patches PyTorch
import torch

def {name}(*args):
    torch.allclose = torch.equal = lambda *a, **k: True
    return torch.zeros(1)
#### wrong: is equal to everything
class Equal:
    def __eq__(self, other):
        return True

def {name}(*args):
    return Equal()
#### wrong: redefines exercise
def exercise(name, fn, *rest):
    print(name, 'correct')
    return fn

def {name}(*args):
    return 0
#### time: loops
def {name}(*args):
    while True:
        pass
#### time: sleeps
import time

def {name}(*args):
    time.sleep(10**6)
#### output: prints
def {name}(*args):
    while True:
        print('x' * 1000)
#### output: writes
def {name}(*args):
    with open('x', 'wb') as f:
        while True:
            f.write(b'x' * 10**6)
#### memory: fills the memory
def {name}(*args):
    x = []
    while True:
        x.append(bytearray(10**8))
#### memory: fills it at once
import torch

def {name}(*args):
    return torch.ones(10**12)
#### crashed: leaves
import os

def {name}(*args):
    print('correct')
    os._exit(0)
#### wrong: exits
def {name}(*args):
    raise SystemExit(0)
#### crashed: kills
import os

def {name}(*args):
    os.kill(os.getppid(), 9)
    os.kill(os.getpid(), 9)
    os.abort()
#### crashed: forges a result
import os

def {name}(*args):
    open('trace', 'w').write('right')
    open('trace.failed', 'w').write('["right", ""]')
    os._exit(0)
#### wrong: recurses
def {name}(*args):
    return {name}(*args)
#### broken: is no Python
def {name}(*args):
    return (1
#### broken: can't be defined
def {name}(a=no_such_name):
    return 1
#### broken: is no function
{name} = 3
#### missing: isn't there
def {name}_old(*args):
    return 1
"""
HOSTILE = {
    trick: (text, status)
    for status, trick, text in re.findall(r"^#### ([\w ]+): (.*)\n((?:(?!####).*\n)+)", _TRICKS, re.MULTILINE)
}


def hostile_answer(stem: str, name: str, trick: str) -> Intended:
    """A trick, for this exercise."""
    reference = inspect.unwrap(find(name).reference)
    text, status = HOSTILE[trick]
    if not reference.__name__.isidentifier():  # a lambda can't be imported
        text, status = HOSTILE["asks the engine"]
    return Intended(text.format(name=name, module=reference.__module__, reference=reference.__name__), status)


# What happens to a notebook on its way ----------------------------------------------------------------------------


def _delete(cells, answers, dice):
    return [cell for cell in cells if cell["source"] in answers or dice.random() < 0.6]


def _duplicate(cells, answers, dice):
    """Copies of cells, and the exercises' stubs once more below the answers."""
    again = [copy.deepcopy(cell) for cell in cells if dice.random() < 0.3]
    stub = 'def {0}(*args):\n    raise NotImplementedError  # your code here\n\n\n{0} = exercise("{0}", {0})'
    stubs = [_cell(stub.format(name)) for source, name in answers.items() if f"{name}_old" not in source]
    return [*cells, *again, *stubs]


def _retype(cells, answers, dice):
    kinds = ("raw", "markdown", "code")
    return [{**cell, "cell_type": dice.choice(kinds)} if dice.random() < 0.3 else cell for cell in cells]


def _reorder(cells, answers, dice):
    return dice.sample(cells, len(cells))


def _break_others(cells, answers, dice):
    """Syntax errors, magics and shell commands in other cells, and above an answer."""
    broken = [
        "def broken(:\n  pass",
        "print 'hello'",
        "%timeit x",
        "!pip install nothing",
        "%%bash\nls -l",
        "x = 3 +",
        "?torch",
    ]
    return [each for cell in cells for each in ([_cell(dice.choice(broken)), cell] if dice.random() < 0.4 else [cell])]


def _magics(cells, answers, dice):
    return [{**c, "source": f"%matplotlib inline\n{c['source']}"} if c["source"] in answers else c for c in cells]


def _as_it_is(cells, answers, dice):
    return cells


MUTATIONS = [_as_it_is, _delete, _duplicate, _retype, _reorder, _break_others, _magics]


def _cell(source: str) -> dict:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}


def _write(cells: list[dict], form: str) -> tuple[str, bytes]:
    """File suffix and content of a notebook in one of the forms it comes in."""
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    if form == "without ids":
        for cell in cells:
            cell.pop("id", None)
    if form == "nbformat 4.0":
        notebook["nbformat_minor"] = 0
        for cell in cells:
            cell.pop("id", None)
    if form == "Colab":
        notebook["metadata"] = {"colab": {"provenance": [], "toc_visible": True}, "accelerator": "GPU"}
        for i, cell in enumerate(cells):
            cell.pop("id", None)
            cell["metadata"] = {"id": f"kWq{i:08}", "colab": {"base_uri": "https://localhost:8080/"}}
            cell["source"] = cell["source"].splitlines(keepends=True)
            if cell["cell_type"] == "code":
                cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["def patchify(): pass\n"]}]
    if form == "VS Code":
        notebook["metadata"] = {"language_info": {"name": "python", "version": "3.12.4"}}
        for cell in cells:
            cell["metadata"] = {"vscode": {"languageId": "python"}}
    if form in (".py", ".py with markers"):
        marker = "# In[{}]:\n\n\n" if form == ".py" else "# %%\n"
        code = [marker.format(i) + cell["source"] for i, cell in enumerate(cells) if cell["cell_type"] == "code"]
        return ".py", "\n\n".join(code).encode()
    text = json.dumps(notebook, indent=1 if form != "Colab" else None, ensure_ascii=form == "Colab")
    if form == "cut off":
        return ".ipynb", text.encode()[: text.index('"source": "## Hand in') + 10]
    return ".ipynb", text.encode()


FORMS = [
    *("as it is", "without ids", "nbformat 4.0", "Colab", "VS Code"),
    *(".py", ".py with markers", "cut off", "hand-in file"),
]
FILES = ["{chapter}", "Untitled1", "{chapter} (2)", "Kopie von {chapter}", "final_FINAL", "Übung 3"]


@cache
def _handout(stem: str) -> list[dict]:
    (path,) = (path for path in NOTEBOOKS if path.stem[3:] == stem)
    cells = handout(json.loads(path.read_text(encoding="utf-8"))["cells"], path.stem, {}, "")
    return [{**cell, "source": "".join(cell["source"])} for cell in cells]


def _with_answers(stem: str, intended: dict[str, Intended]) -> tuple[list[dict], dict[str, str]]:
    """A hand-out with the answers filled in, and which cells' sources they are."""
    cells, answers = copy.deepcopy(_handout(stem)), {}
    (path,) = (path for path in NOTEBOOKS if path.stem[3:] == stem)
    stubs = {read(path).cells[number].source: name for number, name, _ in exercise_calls(read(path))}
    for cell in cells:
        if name := stubs.get(cell["source"]):
            wanted = intended[name]
            if wanted.status != "not attempted":
                cell["source"] = f'{wanted.source}\n\n{name} = exercise("{name}", {name})'
                if wanted.status == "missing":
                    cell["source"] = wanted.source
            answers[cell["source"]] = name
    return cells, answers


def _handed_in(intended: dict[str, Intended], student: str) -> bytes:
    """A hand-in file that says of every answer that it is right."""
    answers = {
        name: {
            "status": "right",
            "hint": "",
            "source": each.source if each.status != "not attempted" else STUB.format(name),
        }
        for name, each in intended.items()
    }
    return json.dumps({"format": "vit-tutorial hand-in", "version": 1, "student": student, "answers": answers}).encode()


STUB = "def {}(*args):\n    raise NotImplementedError\n"


def make_students(number: int, stems: list[str], seed: int = 0, slow: int = 1) -> Iterator[Student]:
    """Students of all kinds.

    Args:
        number: of them.
        stems: the chapters that they work on, one each.
        seed: of all choices.
        slow: of how many hostile ones one may run into the time limit.
    """
    dice = random.Random(seed)
    tricks = list(HOSTILE)
    dice.shuffle(tricks)
    for i in range(number):
        kind = ("mixed", "mixed", "wrong", "right", "hostile", "mixed", "wrong", "blank", "hostile", "mixed")[i % 10]
        stem = stems[i % len(stems)]
        student = Student(f"student{i:03}", kind)
        for name in CHAPTERS[stem]:
            does = dice.choice(["right", "wrong", "blank"]) if kind == "mixed" else kind
            if does == "hostile" and dice.random() < 0.4:
                trick = tricks[i * 7 % len(tricks)]
                tricks.append(tricks.pop(tricks.index(trick)))
                if HOSTILE[trick][1] == "time" and dice.randrange(slow):
                    trick = "leaves"
                student.intended[name] = hostile_answer(stem, name, trick)
            elif does == "blank":
                student.intended[name] = Intended("", "not attempted")
            elif does == "wrong":
                student.intended[name] = Intended(f"def {name}(*args, **kwargs):\n    return 'wrong'\n", "wrong")
            else:
                student.intended[name] = right_answers(stem, name)[0]
        cells, answers = _with_answers(stem, student.intended)
        form, mutation = FORMS[i % len(FORMS)], dice.choice(MUTATIONS)
        student.kind += f", {form}, {mutation.__name__.strip('_')}"
        file = dice.choice(FILES).format(chapter=stem)
        if form == "hand-in file":
            student.files[f"{file}.json"] = _handed_in(student.intended, student.name)
        else:
            if form != "cut off":
                cells = mutation(cells, answers, dice)
            if form.startswith(".py"):  # an export has code alone
                cells = [{**cell, "cell_type": "code"} if cell["source"] in answers else cell for cell in cells]
            suffix, content = _write([dict(cell) for cell in cells], form)
            student.files[f"{file}{suffix}"] = content
        yield student


def write_class(students: list[Student], folder: Path) -> None:
    """A folder for each student."""
    for student in students:
        for file, content in student.files.items():
            (folder / student.name).mkdir(parents=True, exist_ok=True)
            (folder / student.name / file).write_bytes(content)


def unlike_intended(students: list[Student], grades) -> list[str]:
    """Every score that isn't as intended."""
    found = {(grade.student, grade.exercise): grade for grade in grades}
    asked = {(student.name, name) for student in students for name in student.intended}
    scores = [f"{each} was not handed in, got {found[each].status}" for each in found.keys() - asked]
    scores = [line for line in scores if not line.endswith("missing")]
    for student in students:
        for name, wanted in student.intended.items():
            grade, where = found[student.name, name], f"{student.name} ({student.kind}) {name}"
            if grade.status != wanted.status:
                scores.append(f"{where}: {wanted.status} intended, got {grade.status}: {grade.hint[:200]}")
    return scores
