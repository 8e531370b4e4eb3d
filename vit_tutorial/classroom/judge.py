"""The process that judges: it loads PyTorch once, forks for each answer, and reads what the fork wrote down.

The fork runs the answer and doesn't know the right results; this process knows them and never runs the answer. So
nothing that an answer prints, patches or redefines can change its verdict.
"""

import __future__

import ast
import dataclasses
import gc
import importlib.util
import inspect
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vit_tutorial.borders import at_fault, kind_and_reason
from vit_tutorial.classroom.sandbox import Limits, hide_from_children, read_left, run_sandboxed
from vit_tutorial.classroom.trace import read_trace, write_trace
from vit_tutorial.exercises.contents import CHAPTERS
from vit_tutorial.exercises.declaration import Exercise
from vit_tutorial.exercises.engine import find, judge
from vit_tutorial.exercises.guard import CheckFailed, Guard, NotAttempted, Raised, describe, same_generators
from vit_tutorial.exercises.outcomes import RecordedAnswer

MOST_PRINTED, MOST_SAID = 10**6, 1000  # characters
# What no answer needs, and what reaches for the checks and their references.
FORBIDDEN = """
    gc inspect ctypes importlib builtins eval exec compile globals __import__ __builtins__ __globals__ __code__
    __closure__ __subclasses__ __self__ _getframe _current_frames f_globals f_locals f_back tb_frame gi_frame
    sys.modules vit_tutorial.exercises vit_tutorial.classroom
"""


class Refused(BaseException):
    """The answer uses what it should replace; its own ``except Exception`` can't catch this."""


class TooMuch(BaseException):
    """The answer printed more than anyone would read."""


class Limited(io.StringIO):
    """A stream that an endless loop of prints can't fill."""

    def write(self, text: str) -> int:
        if self.tell() > MOST_PRINTED:
            raise TooMuch
        return super().write(text)


class Watched(Guard):
    """An answer whose prints are limited, and whose every call begins in its own folder, wherever the last one went."""

    buffer = Limited
    folder: Path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.folder.mkdir(exist_ok=True)
        os.chdir(self.folder)
        return super().__call__(*args, **kwargs)


def forbidden_name(source: str, own: str = "") -> str:
    """The first name in an answer that gives access to the checks or their references; "" if there is none.

    Args:
        source: the answer.
        own: the module of the teacher's own exercises.
    """
    behind = [*FORBIDDEN.split(), *([own] if own else [])]
    for node in ast.walk(ast.parse(source)):
        used = []
        if isinstance(node, ast.Import):
            used = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            used = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Name):
            used = [node.id]
        elif isinstance(node, ast.Attribute):
            used = [node.attr, ast.unparse(node)] if node.attr in ("modules", "exercises", "classroom") else [node.attr]
            used = [name for name in used if name not in ("compile", "eval")]  # torch.compile, model.eval
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used = [node.value] if node.value.startswith(("__", "vit_tutorial.")) else []
        for name in used:
            if any(name == each or name.startswith(f"{each}.") for each in behind):
                return name
    return ""


def grade_answer(
    name: str, source: str, borrowed: Sequence[str], limits: Limits, among: Mapping[str, Exercise], own: str
) -> dict:
    """Status, hint and seconds of one answer.

    Args:
        name: the exercise.
        source: the answer with all it needs.
        borrowed: other exercises whose references it may call.
        limits: of the process that runs it.
        among: the teacher's own exercises.
        own: the name of their module.
    """
    task = find(name, among)
    if behind := forbidden_name(source, own):
        hint = f"it uses `{behind}`, which no answer needs, and which leads behind the scenes of the check"
        return {"status": "refused", "hint": hint, "seconds": 0.0}
    references = {other: find(other, among).reference for other in borrowed}
    with tempfile.TemporaryDirectory(prefix="answer-", ignore_cleanup_errors=True) as folder:
        trace = Path(folder) / "trace"
        ended, seconds = run_sandboxed(partial(_answer, name, task, source, references, trace), Path(folder), limits)
        status, hint = _verdict(task, trace, ended, limits)
    return {"status": status, "hint": hint, "seconds": round(seconds, 2)}


def _verdict(task: Exercise, trace: Path, ended: str, limits: Limits) -> tuple[str, str]:
    if ended == "time":
        return "time", f"it didn't end within {limits.seconds} s: is there an endless loop?"
    failed = trace.with_suffix(".failed")
    if not ended and failed.exists():
        with suppress(ValueError), at_fault(""):  # an answer may have written something else
            status, hint = json.loads(read_left(failed))
            if status in ("broken", "refused", "output", "memory"):
                return status, str(hint)[:MOST_SAID]
    elif not ended:
        with suppress(ValueError):
            return verdict(task, read_trace(task, trace))
    return "crashed", ended or "it ended without a result"


def verdict(task: Exercise, answer: Guard | RecordedAnswer) -> tuple[str, str]:
    """Status and hint of an answer, or of its trace."""
    try:
        with same_generators():
            judge(task, answer)
    except NotAttempted:
        return "not attempted", ""
    except CheckFailed as failure:
        return "wrong", str(failure)[:MOST_SAID]
    return "right", ""


def guarded(task: Exercise, fn: Callable, kind: type[Guard] = Guard) -> Guard:
    """The function as the engine calls it."""
    return kind(fn, may_change=task.may_change, may_return_none=task.may_return_none)


def define(name: str, source: str, references: Mapping[str, Callable], file: str = "answer") -> Callable:
    """The function that an answer defines.

    Args:
        name: the function.
        source: the answer and everything of its author's that it needs.
        references: the functions of other exercises that it calls.
        file: where the source is, so that a hint can quote the line that failed.

    Raises:
        ValueError: if it can't be defined, or isn't a function.
    """
    namespace = {"__name__": "answer", **references}
    try:
        exec(compile(source, file, "exec", __future__.annotations.compiler_flag), namespace)
    except (Exception, SystemExit) as error:
        raise ValueError(f"defining it raised {type(error).__name__}: {error}") from None
    if not callable(fn := namespace.get(name)):
        raise ValueError(f"{name} must be a function, got {describe(fn)}")
    return fn


def _answer(name: str, task: Exercise, source: str, references: dict[str, Callable], trace: Path) -> None:
    """What the fork does."""

    def watch(found: Any) -> None:
        if isinstance(found, Raised):
            if found.kind is MemoryError or "allocate memory" in found.message:
                raise MemoryError
            if found.kind is OSError and "File too large" in found.message:
                raise TooMuch

    file = trace.with_name("answer.py")
    file.write_text(source, encoding="utf-8")
    task = _without_results(name, task)
    try:
        fn = define(name, source, references, str(file))
        answer = guarded(task, fn, Watched)
        answer.folder = trace.parent
        with same_generators():
            write_trace(task, answer, trace, watch)
        return
    except ValueError as error:
        failed = "broken", str(error)
    except TooMuch:
        failed = "output", "it prints or writes without end"
    except MemoryError:
        failed = "memory", "it needs too much memory"
    except Refused as refused:
        failed = "refused", str(refused)
    trace.with_suffix(".failed").write_text(json.dumps(failed), encoding="utf-8")


def _without_results(name: str, task: Exercise) -> Exercise:
    """The questions alone; what would answer them is hidden, as far as Python can."""
    reference = task.reference
    given_away = [reference, *_made_of(name, reference)]
    ours = {key: module for key, module in sys.modules.items() if key.partition(".")[0] == "vit_tutorial" and module}
    # All but the guard: what it calls is the answer itself. They are kept, or an answer's globals might get the place,
    # and so the id, of a module that is gone.
    trusted = {id(vars(module)): vars(module) for key, module in ours.items() if key != Guard.__module__}
    for module in ours.values():
        for key, value in list(vars(module).items()):
            if any(value is each for each in given_away):
                setattr(module, key, _tripwire(name, value, trusted))
    for key, module in ours.items():
        if key.startswith(("vit_tutorial.exercises", "vit_tutorial.classroom")):
            getattr(module, "EXERCISES", {}).clear()
            sys.modules[key] = None
    for key in ("exercises", "classroom"):
        vars(ours["vit_tutorial"]).pop(key, None)
    cases = [dataclasses.replace(case, caught=None) for case in task.cases]
    nothing = {"mistakes": {}, "notes": (), "right": (), "otherwise": "", "shape": "", "explain": None}
    return dataclasses.replace(task, reference=_gone, truth=None, cases=cases, **nothing)


def _gone(*args: Any) -> None:
    raise Refused("it calls what isn't there any more")


def _made_of(name: str, reference: Callable) -> list[Callable]:
    """The functions of the chapter's own module that the reference calls; calling them is calling it."""
    room = next((f"vit_tutorial.{chapter}" for chapter, names in CHAPTERS.items() if name in names), None)
    reference = inspect.unwrap(reference)
    code, known = getattr(reference, "__code__", None), getattr(reference, "__globals__", {})
    called = [known[each] for each in code.co_names if each in known] if code else []
    return [each for each in called if room and callable(each) and str(each.__module__).startswith(room)]


def _tripwire(name: str, hidden: Callable, trusted: Mapping[int, dict]) -> Callable:
    """A wrapper that only the package's own code may call."""

    def found(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals
        module = sys.modules.get(str(caller.get("__name__")))
        late = str(caller.get("__name__")).startswith("vit_tutorial.") and module and vars(module) is caller
        if id(caller) not in trusted and not late:
            raise Refused(f"it calls {hidden.__module__}.{hidden.__qualname__}, which is what {name} should do")
        return hidden(*args, **kwargs)

    return found


def load_exercises(path: str | Path) -> Mapping[str, Exercise]:
    """The EXERCISES of a teacher's own file.

    Raises:
        ValueError: if it has none.
    """
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or not Path(path).is_file():
        raise ValueError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    with at_fault(f"{path} cannot be run: ", why=kind_and_reason):
        spec.loader.exec_module(module)
    if not isinstance(getattr(module, "EXERCISES", None), dict):
        raise ValueError(f"{path} has no dictionary EXERCISES")
    return module.EXERCISES


def main() -> None:
    """Read requests from standard input, a line of JSON each, and answer them on standard output."""
    path = sys.argv[1]  # of the teacher's own exercises, or ""
    among, own = (load_exercises(path), Path(path).stem) if path else ({}, "")
    torch.set_num_threads(1)  # before the first fork, and for good: a fork has no other threads
    hide_from_children()
    seen = set()
    for line in sys.stdin:
        request = json.loads(line)
        request["limits"] = Limits(**request["limits"])
        try:
            if request["name"] not in seen:  # what the checks import late is loaded once, not by every fork
                task = find(request["name"], among)
                verdict(task, guarded(task, task.reference))
                seen.add(request["name"])
                gc.freeze()  # forks share memory that isn't written to
            graded = grade_answer(among=among, own=own, **request)
        except Exception as error:  # of the check itself; the other answers are still to come
            hint = f"the check itself failed, {type(error).__name__}: {error}"
            graded = {"status": "crashed", "hint": hint, "seconds": 0.0}
        print(json.dumps(graded), flush=True)
