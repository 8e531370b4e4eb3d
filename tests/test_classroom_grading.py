"""The grader: every score as intended, whatever a submission does."""

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from made_submissions import HOSTILE, hostile_answer, right_answers
from notebook_rules import ROOT

from vit_tutorial.classroom import grading, sandbox
from vit_tutorial.classroom.answers import Answer
from vit_tutorial.classroom.grading import Judge, grade
from vit_tutorial.classroom.judge import Refused, _tripwire, forbidden_name
from vit_tutorial.classroom.sandbox import Limits
from vit_tutorial.classroom.trace import pack, read_trace, unpack, write_trace
from vit_tutorial.exercises import CHAPTERS, CheckFailed, find
from vit_tutorial.exercises.engine import judge
from vit_tutorial.exercises.guard import Guard, NotAttempted, Raised, describe, same_generators
from vit_tutorial.exercises.outcomes import Unusable

LIMITS = Limits(seconds=2, memory=500, file=20)
WHY = sandbox.why_unconfined()
pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY)


@pytest.fixture(scope="module")
def judged():
    judge = Judge(LIMITS)
    yield lambda name, source, borrowed=(): judge(name, Answer(source, borrowed, ""))
    judge.close()


@pytest.mark.parametrize("trick", HOSTILE)
def test_tricks_gain_nothing(judged, trick):
    wanted = hostile_answer("patches", "patchify", trick)
    if wanted.status != "missing":
        got = judged("patchify", wanted.source)
        if trick != "is no Python":  # found before anything is judged
            assert got["status"] == wanted.status, got
    after = judged("num_patches", "def num_patches(i, p):\n    return i[0] // p[0] + i[1] // p[1]")
    assert after["hint"] == "rows times columns, not rows plus columns", "the next answer is judged as ever"


def test_the_grader_refuses_pytorch_s_softmax_as_the_notebook_does(judged):
    got = judged("softmax_rows", "def softmax_rows(scores):\n    return scores.softmax(-1)")
    assert got["status"] == "wrong" and "come from PyTorch's softmax" in got["hint"]


def test_an_answer_sees_a_bare_environment_and_an_empty_folder(judged):
    source = """
import os

def patchify(images, p):
    raise ValueError(f"{sorted(os.environ)} {os.listdir()}")
"""
    assert "['HOME', 'LANG', 'PATH', 'TMPDIR'] ['answer.py']" in judged("patchify", source)["hint"]


LEANS = """
def unpatchify(patches, p, g):
    patchify
    import vit_tutorial
    from vit_tutorial import ViT, patchify as other
    {more}
    x = patches.reshape(len(patches), *g, -1, *p).permute(0, 3, 1, 4, 2, 5)
    return x.flatten(4).flatten(2, 3)
"""


def test_an_answer_may_borrow_and_lean_on_the_package(judged):
    right = LEANS.format(more="other(patches.reshape(len(patches), 1, g[0], -1), 1)")
    assert judged("unpatchify", right, ("patchify",))["status"] == "right"
    assert "name 'patchify' is not defined" in judged("unpatchify", right)["hint"]
    assert (
        judged("unpatchify", right.replace("other(", "vit_tutorial.unpatchify("), ("patchify",))["status"] == "refused"
    )


def test_no_answer_gets_the_place_of_a_trusted_module():
    """A dictionary that is freed leaves its id to the next one."""
    for _ in range(100):
        module = {"__name__": "vit_tutorial.exercises"}
        reference = _tripwire("unpatchify", lambda: "called", {id(module): module})
        del module
        with pytest.raises(Refused, match="which is what unpatchify should do"):
            eval("reference()", {"reference": reference})


BEHIND = """
import gc
from importlib import import_module
import vit_tutorial.exercises.engine as e
x = f.__globals__
from vit_tutorial import exercises
import vit_tutorial; vit_tutorial.exercises
exec('1')
sys.modules
getattr(f, '__globals__')
from sys import modules
import my_exercises
__builtins__['eval']
"""
HONEST = """
import sys, os
model.eval()
torch.compile(f)
list(model.modules())
sys.float_info.eps
x.__class__.__name__
'exec it'
re.compile('gc')
from vit_tutorial import ViT
self.exercises = 3
"""


@pytest.mark.parametrize("source", BEHIND.strip().split("\n"))
def test_what_looks_behind_the_scenes_is_found(source):
    assert forbidden_name(source, "my_exercises")


def test_honest_code_does_not_look_behind_the_scenes():
    assert forbidden_name(HONEST) == ""


# Processes --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["its own space", "the same space"])
def space(request, monkeypatch):
    """Where the system refuses a space of its own, as many containers do, the rest works all the same."""
    if request.param == "the same space":
        monkeypatch.setattr(sandbox, "NEW_USER", 1)  # no such flag


@pytest.mark.usefixtures("space")
def test_a_process_of_its_own(tmp_path):
    def work():
        Path("here").write_text(f"{sys.argv == before} {Path.cwd() == tmp_path} {sorted(os.environ)}", encoding="utf-8")
        print("into nothing")

    before = list(sys.argv)
    ended, seconds = sandbox.run_sandboxed(work, tmp_path, LIMITS)
    assert ended == "" and 0 <= seconds < 2
    assert (tmp_path / "here").read_text(encoding="utf-8") == "True True ['HOME', 'LANG', 'PATH', 'TMPDIR']"


@pytest.mark.usefixtures("space")
@pytest.mark.parametrize(
    ("work", "ended"),
    [
        (lambda: os._exit(3), "it ended with exit code 3"),
        (lambda: ctypes.string_at(0), "it ended by SIGSEGV"),
        (lambda: time.sleep(60), "time"),
        (lambda: 1 / 0, ""),
    ],
)
def test_how_a_process_ends(tmp_path, work, ended):
    assert sandbox.run_sandboxed(work, tmp_path, Limits(seconds=1))[0].startswith(ended)


@pytest.mark.parametrize(("seconds", "ended"), [(6.0, "time"), (0.1, "it ended by SIGKILL")])
def test_a_crowded_machine_s_kernel_stops_an_endless_loop_early(tmp_path, monkeypatch, seconds, ended):
    """Its count runs ahead of the seconds that are reported; whoever kills themselves has used next to none."""

    def killed(pid, options, wait=os.wait4):
        found, _, _ = wait(pid, options)
        return found, signal.SIGKILL if found else 0, SimpleNamespace(ru_utime=seconds, ru_stime=0.0)

    monkeypatch.setattr(os, "wait4", killed)
    assert sandbox.run_sandboxed(lambda: None, tmp_path, Limits(seconds=10)) == (ended, seconds)


@pytest.mark.usefixtures("space")
def test_nothing_is_left_running(tmp_path):
    """A child that the answer starts and leaves behind is ended with it."""

    def work():
        if not os.fork():
            time.sleep(1)
            (tmp_path / "late").touch()
            os._exit(0)

    assert sandbox.run_sandboxed(work, tmp_path, LIMITS)[0] == ""
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


@pytest.mark.usefixtures("space")
def test_the_grader_and_the_network_are_out_of_reach(tmp_path):
    def reaches(do) -> bool:
        try:
            do()
        except OSError:
            return False
        return True

    def work():
        seen = [reaches(lambda: os.kill(parent, 0)), reaches(lambda: socket.create_connection(address, timeout=1))]
        (tmp_path / "seen").write_text(json.dumps(seen), encoding="utf-8")

    parent = os.getpid()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert reaches(lambda: socket.create_connection(address, timeout=1).close())
        sandbox.run_sandboxed(work, tmp_path, LIMITS)
    seen = json.loads((tmp_path / "seen").read_text(encoding="utf-8"))
    assert seen == [False, False]


# Transcripts ------------------------------------------------------------------------------------------------------


class Odd:
    __name__ = "an odd one"


ODD = [
    None, True, 3, -2.5, float("inf"), "text", (), [1, [2.0, "x"], (None,)], {"a": 1, 2: {"b": (3,)}},
    torch.arange(6).reshape(2, 3).T, torch.tensor(1.5), torch.zeros(0, 3), torch.ones(2, dtype=torch.bool),
    torch.ones(2, dtype=torch.bfloat16), torch.nn.Parameter(torch.ones(2)), torch.ones(1).expand(4),
]  # fmt: skip


def unlike(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype != b.dtype or not torch.equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is not type(b) or len(a) != len(b) or any(map(unlike, a, b))
    return type(a) is not type(b) or a != b


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_a_transcript_keeps_values(value):
    node = json.loads(json.dumps(pack(value, tensors := {})))
    assert not unlike(value, unpack(node, tensors))


@pytest.mark.parametrize(
    "value", [Odd(), object(), 10**400, torch.ones(2, device="meta"), torch.ones(2).to_sparse(), print]
)
def test_a_transcript_describes_what_it_does_not_keep(value):
    node = json.loads(json.dumps(pack([value], tensors := {})))
    (back,) = unpack(node, tensors)
    assert type(back).__name__ == type(value).__name__ and not tensors
    if not isinstance(value, int):
        assert describe(back) == describe(value)


def test_a_transcript_keeps_kinds_of_lists_and_dictionaries_as_plain_ones():
    for value, plain in ((Counter("aab"), {"a": 2, "b": 1}), (torch.Size([2, 3]), (2, 3))):
        back = unpack(json.loads(json.dumps(pack(value, {}))), {})
        assert type(back) is type(plain) and back == plain


def test_a_transcript_keeps_errors():
    raised = Raised(ValueError("30 and 4"), "f(x)", " (in your line `y`)")
    for error in (raised, CheckFailed("a hint"), NotAttempted()):
        back = unpack(json.loads(json.dumps(pack(error, {}))), {})
        assert type(back) is type(error) and str(back) == str(error)
    back = unpack(pack(raised, {}), {})
    assert (back.kind, back.message) == (ValueError, "30 and 4")
    assert describe(unpack(pack(Unusable(torch.ones(2, 3)), {}), {}).value) == "Tensor(2, 3)"
    (inside := []).append(inside)
    assert "odd" in json.dumps(pack(inside, {}))


def said(task, answer) -> str:
    try:
        with same_generators():
            judge(task, answer)
    except CheckFailed as failure:
        return str(failure)
    return "right"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["num_patches", "pad_to_patches", "add_cls_token", "split_heads", "layer_norm", "parameter_groups"]
)
def test_a_transcript_is_judged_as_the_answer_itself(name, tmp_path):
    task = find(name)
    for answer in [task.reference, *task.right, *task.mistakes.values(), lambda *args: Odd(), lambda *args: None]:
        kind = {"may_change": task.may_change, "may_return_none": task.may_return_none}
        blind = replace(task, reference=print, truth=None, mistakes={}, right=(), explain=None)
        with same_generators():
            write_trace(blind, Guard(answer, **kind), tmp_path / "told", lambda found: None)
        assert said(task, read_trace(task, tmp_path / "told")) == said(task, Guard(answer, **kind))


def test_a_forged_transcript_is_none(tmp_path):
    for content in (b"", b"right", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "):
        (tmp_path / "told").write_bytes(content)
        with pytest.raises(ValueError, match="not a trace"):
            read_trace(find("patchify"), tmp_path / "told")


# A class ----------------------------------------------------------------------------------------------------------


WRONG = "def num_patches(i, p):\n    return i[0] // p[0] + i[1] // p[1]\n"


def test_interrupted_it_goes_on_and_like_answers_are_judged_once(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for i in range(6):
        (tmp_path / f"in/s{i}.py").write_text(WRONG.replace("i[0]", f"i[{i // 2}]"), encoding="utf-8")
    asked = []

    def judged(self, name, answer):
        asked.append(answer)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return {"status": "wrong", "hint": "=no formula", "seconds": 0.0}

    monkeypatch.setattr(Judge, "__call__", judged)
    options = {"points": {"num_patches": 3}, "jobs": 1, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        grade(tmp_path / "in", tmp_path / "out.csv", **options)
    assert not (tmp_path / "out.csv").exists()
    assert len(grade(tmp_path / "in", tmp_path / "out.csv", **options)) == 6
    first = [answer.source for answer in asked].count(asked[0].source)
    assert first == 1 and len({answer.source for answer in asked}) == 3, "three different answers, the first one once"
    assert "'=no formula" in (tmp_path / "out.csv").read_text(encoding="utf-8-sig")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.csv"]


def test_a_judge_that_two_threads_close_at_once_is_closed_once():
    """An interruption closes it while the thread that waits for it finds it gone, and closes it, too."""
    closed, judge = [], Judge(LIMITS)
    stream = SimpleNamespace(close=lambda: closed.append("stream"))
    judge._process = SimpleNamespace(
        kill=judge.close, wait=lambda: closed.append("process"), stdin=stream, stdout=stream
    )
    judge.close()
    assert closed == ["process", "stream", "stream"]


def test_an_interrupted_grading_goes_on_however_its_notes_were_torn(tmp_path, monkeypatch):
    """Twice interrupted, each time amid a line; other lines are damaged in every way, and their answers judged anew."""
    (tmp_path / "in").mkdir()
    for i in range(8):
        (tmp_path / f"in/s{i}.py").write_text(WRONG.replace("i[0]", f"i[{i}]"), encoding="utf-8")
    asked, left = [], 0

    def judged(self, name, answer):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        asked.append(answer.source)
        return {"status": "wrong", "hint": answer.source, "seconds": 0.0}

    monkeypatch.setattr(Judge, "__call__", judged)
    options = {"points": {"num_patches": 1}, "jobs": 1, "progress": False}
    partial = tmp_path / "out.csv.partial"
    for allowed, whole in ((3, 2), (4, 2 + 3)):
        left = allowed
        with pytest.raises(KeyboardInterrupt):
            grade(tmp_path / "in", tmp_path / "out.csv", **options)
        partial.write_bytes(partial.read_bytes()[:-20])  # its last line is torn
        assert sum(line.endswith(b"}}") for line in partial.read_bytes().splitlines()) == whole
    left = 8
    damage = [b"", b"\xff\x00", b"[]", b"3", b'{"x": 1}', b'{"x": {"status": "right"}}', b"[" * 10**5, b'{"a": {}}{']
    with open(partial, "ab") as file:
        file.write(b"\n".join([b"", *damage]))
    grades = grade(tmp_path / "in", tmp_path / "out.csv", **options)
    assert [each.hint for each in grades] == [each.source for each in grades] and len(set(asked)) == 8
    assert len(asked) == 8 + 2, "twice only those of the two torn lines"
    assert not partial.exists()


RIGHT = """def num_patches(i, p):
    if i[0] % p[0] or i[1] % p[1]:
        raise ValueError(f"{i} {p}")
    return (i[0] // p[0]) * (i[1] // p[1])
"""
OTHER = "def pad_to_patches(images, p):\n    return images\n"
STUB = "def num_patches(i, p):\n    raise NotImplementedError\n"


@pytest.mark.parametrize(
    ("files", "rows"),
    [
        # Someone signs with Ada's name: that overwrites nothing.
        ({"a.py": RIGHT, "b.py": WRONG}, {"Ada (a.py)": "right", "Ada (b.py)": "wrong"}),
        ({"Ada/1.py": RIGHT, "b.py": WRONG}, {"Ada": "right", "Ada (b.py)": "wrong"}),
        (
            {"a.py": RIGHT, "b.json": WRONG, "c.py": OTHER},
            {"Ada (a.py)": "right", "Ada (b.json)": "wrong", "Ada (c.py)": "missing"},
        ),
        # One student: another exercise, the same answer once more, an empty stub.
        ({"a.py": RIGHT, "b.py": OTHER}, {"Ada": "right"}),
        ({"a.py": RIGHT, "b.json": "import math\n" + RIGHT}, {"Ada": "right"}),
        ({"a.py": RIGHT, "b.py": STUB}, {"Ada": "right"}),
        # The platform knows whose they are: the later one counts.
        ({"Ada/1.py": WRONG, "Ada/2.py": RIGHT}, {"Ada": "right"}),
    ],
)
def test_files_that_only_say_whose_they_are_and_disagree_are_two_rows(tmp_path, monkeypatch, files, rows):
    for number, (name, source) in enumerate(files.items()):
        (path := tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        content = f"STUDENT = 'Ada'\n{source}"
        if path.suffix == ".json":
            answers = {"num_patches": {"source": source}}
            content = json.dumps({"format": "vit-tutorial hand-in", "student": "Ada", "answers": answers})
        path.write_text(content, encoding="utf-8")
        os.utime(path, (number, number))

    def judged(self, name, answer):
        status = answer.status or ("right" if RIGHT.strip() in answer.source else "wrong")
        return {"status": status, "hint": "", "seconds": 0.0}

    monkeypatch.setattr(Judge, "__call__", judged)
    points = {"num_patches": 1, "pad_to_patches": 1}
    grades = grade(tmp_path / "in", tmp_path / "out.csv", points=points, jobs=1, progress=False)
    assert {each.student: each.status for each in grades if each.exercise == "num_patches"} == rows
    told = {each.student: each.note for each in grades}
    if len(rows) == 1:
        assert set(told.values()) == {""}
    for row, note in told.items() if len(rows) > 1 else ():
        others = [name for name in files if name not in row and not (row == "Ada" and "/" in name)]
        assert note.endswith(f"disagrees on num_patches: {', '.join(sorted(others))}")


def test_who_handed_in_something_without_any_answer_is_told(tmp_path):
    for student, source in {"ada": WRONG, "max": "x = 3\n"}.items():
        (tmp_path / f"in/{student}").mkdir(parents=True)
        (tmp_path / f"in/{student}/work.py").write_text(source, encoding="utf-8")
    ada, max_ = grade(
        tmp_path / "in", tmp_path / "out.csv", points={"num_patches": 1}, limits=LIMITS, jobs=1, progress=False
    )
    assert (ada.note, max_.note) == ("", "none of these exercises was found in max/work.py")
    (tmp_path / "in/ada/work.py").unlink()
    with pytest.raises(ValueError, match="holds no answer to any exercise"):
        grade(tmp_path / "in", tmp_path / "out.csv")


OBJECT = """
class Count:
    def __call__(self, i, p):
        return i[0] // p[0] + i[1] // p[1]

num_patches = Count()
"""


def test_a_callable_object_alone_makes_its_chapter_count(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/ada.py").write_text(OBJECT, encoding="utf-8")
    grades = grade(tmp_path / "in", tmp_path / "out.csv", limits=LIMITS, jobs=1, progress=False)
    assert [each.exercise for each in grades] == list(CHAPTERS["patches"])
    assert grades[0].status == "wrong" and "rows times columns" in grades[0].hint


def test_points_and_several_files(tmp_path):
    """A later file counts, but not if it holds less; what can't be read costs only what stands nowhere else."""
    (tmp_path / "in/ada").mkdir(parents=True)
    right = "def num_patches(i, p):\n    if i[0] % p[0] or i[1] % p[1]:\n        raise ValueError(f'{i} {p}')\n"
    (tmp_path / "in/ada/1.py").write_text(right + "    return (i[0] // p[0]) * (i[1] // p[1])\n", encoding="utf-8")
    (tmp_path / "in/ada/2.py").write_text("def num_patches(i, p):\n    raise NotImplementedError\n", encoding="utf-8")
    (tmp_path / "in/ada/3.ipynb").write_text("{", encoding="utf-8")
    points = {"num_patches": 2.5, "patchify": 1}
    first, second = grade(tmp_path / "in", tmp_path / "out.csv", points=points, limits=LIMITS, jobs=1, progress=False)
    assert (first.status, first.points, first.path) == ("right", 2.5, "ada/1.py")
    assert (second.status, second.points) == ("unreadable", 0)
    with pytest.raises(ValueError, match=r"points for patchfy, .* is patchify meant\?"):
        grade(tmp_path / "in", tmp_path / "out.csv", points={"patchfy": 1})


def test_a_mistake_costs_one_exercise_and_a_chapter_s_helper_is_no_answer(tmp_path, monkeypatch):
    """As if chapter 2 had a helper `shift`: chapter 10 has an exercise of that name."""
    wrong = "import torch\ndef sincos_1d(n, dim):\n    return torch.zeros(n, dim)"
    solutions = [right_answers("positions", "sincos_2d")[0].source, right_answers("what_matters", "shift")[0].source]
    chapter = (ROOT / "notebooks/02_positions.ipynb").read_text(encoding="utf-8")
    helper, book = "def shift(images):\n    return images.roll(1, dims=-1)", grading._book()
    ours = [replace(each, ours=True) for each in grading.statements([("code", helper)])]
    monkeypatch.setattr(grading, "_book", lambda: {**book, "positions": [*book["positions"], *ours]})
    for student, own in {"ada": [], "max": solutions}.items():
        (tmp_path / f"in/{student}").mkdir(parents=True)
        (tmp_path / f"in/{student}/1.py").write_text("\n\n".join(own), encoding="utf-8")
        (tmp_path / f"in/{student}/2.ipynb").write_text(chapter, encoding="utf-8")
        (tmp_path / f"in/{student}/3.py").write_text(f"{wrong}\n{helper}", encoding="utf-8")
    points = {"sincos_1d": 1, "sincos_2d": 1, "shift": 1}
    grades = grade(tmp_path / "in", tmp_path / "out.csv", points=points, limits=LIMITS, jobs=1, progress=False)
    assert [each.status for each in grades] == ["wrong", "not attempted", "missing", "wrong", "right", "right"]


OWN = """
from vit_tutorial.exercises import Exercise

EXERCISES = {
    "double": Exercise(
        reference=lambda x: 2 * x, truth=lambda x: x + x, given=lambda n=3: (__import__("torch").randn(n),),
        mistakes={"that is the square, not the double": lambda x: x * x}, otherwise="twice each number",
    )
}
"""


@pytest.mark.slow
def test_an_exercise_of_one_s_own(tmp_path):
    (tmp_path / "my_exercises.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "in").mkdir()
    answers = {
        "ada": "lambda x: x + x",
        "max": "lambda x: x**2",
        "eve": "lambda x: __import__('my_exercises').EXERCISES['double'].reference(x)",
    }
    for student, answer in answers.items():
        (tmp_path / f"in/{student}.py").write_text(f"double = {answer}\n", encoding="utf-8")
    own = str(tmp_path / "my_exercises.py")
    grades = grade(tmp_path / "in", tmp_path / "out.csv", exercises=own, limits=LIMITS, jobs=1, progress=False)
    assert {grade.student: grade.status for grade in grades} == {"ada": "right", "eve": "refused", "max": "wrong"}
    assert grades[2].hint == "that is the square, not the double"
    with pytest.raises(ValueError, match="no dictionary EXERCISES"):
        (tmp_path / "empty.py").write_text("", encoding="utf-8")
        grade(tmp_path / "in", tmp_path / "out.csv", exercises=str(tmp_path / "empty.py"))
