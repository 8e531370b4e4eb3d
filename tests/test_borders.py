"""Other people's bytes can't end a command with an error of some library's, and ours are whole or not there."""

import ast
import errno
import os
import pickle
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
import torch
from notebook_rules import ROOT
from safetensors import SafetensorError

from vit_tutorial.borders import at_fault, is_out_of_memory, naming, read_json, reason, write_whole

FOREIGN = [  # what libraries have raised on damaged files, and what nobody thought of
    *(ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, ZeroDivisionError, RecursionError),
    *(NotImplementedError, AssertionError, EOFError, OSError, UnicodeError, RuntimeError, SyntaxError, SystemExit),
    *(struct.error, zlib.error, zipfile.BadZipFile, pickle.UnpicklingError, SafetensorError, StopIteration),
]


@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.__name__)
def test_whatever_a_library_raises_is_the_file_s_fault(kind):
    told = r"^a\.pt is damaged: (it lacks )?'?oh'?; train again$"
    with pytest.raises(ValueError, match=told) as caught, at_fault("a.pt is damaged: ", "; train again"):
        raise kind("oh")
    assert type(caught.value) is ValueError and type(caught.value.__cause__) is kind


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), UserWarning("x"), RuntimeError("CUDA out of memory. Tried")], ids=repr
)
def test_what_is_nobody_s_fault_passes(error):
    with pytest.raises(type(error)) as caught, at_fault("a.pt: "):
        raise error
    assert caught.value is error


def test_for_one_of_many_a_lack_of_memory_is_its_fault_too():
    with pytest.raises(ValueError, match=r"^a\.ipynb: MemoryError$"), at_fault("a.ipynb: ", memory=True):
        raise MemoryError


def test_the_line_that_tells_most():
    assert reason(RuntimeError("Error(s) in loading:\n\tMissing key.\n\tsize mismatch")) == "size mismatch"
    assert reason(ValueError("first\nsecond")) == "first"
    assert reason(KeyError("model")) == "it lacks 'model'" and reason(EOFError()) == "EOFError"
    assert len(reason(ValueError("word " * 1000))) <= 200


def test_memory_that_is_used_up_has_many_names():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value) and is_out_of_memory(torch.OutOfMemoryError())
    assert is_out_of_memory(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
    for said in ("can't start new thread", "could not create a primitive", "CUBLAS_STATUS_ALLOC_FAILED when calling"):
        assert is_out_of_memory(RuntimeError(said))
    assert not is_out_of_memory(RuntimeError("size mismatch")) and not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", "Expecting property name.*"),
        (b"[1]", "it holds a list, not an object with names"),
        (b"null", "it holds a NoneType, not an object with names"),
        (b'{"a": "\xff"}', ".*can't decode byte 0xff.*"),
        (b'{"a": ' + b"[" * 100_000, ".*recursion.*"),
        (b'{"a": ' + b"1" * 10_000 + b"}", "Exceeds the limit.*"),
    ],
    ids=range(6),
)
def test_what_is_no_json_object_is_named(content, what):
    with pytest.raises(ValueError, match=f"^x: {what}!$"):
        read_json(content, "x: ", "!")
    assert read_json(b'{"a": 1}', "x: ") == {"a": 1}


# Files --------------------------------------------------------------------------------------------------------------


def test_a_failed_attempt_leaves_the_older_file_and_nothing_else(tmp_path, monkeypatch):
    write_whole(tmp_path / "a", b"older")

    def half(path, content):
        with path.open("wb") as file:
            file.write(content[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as a full disk says it: without a path

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match=r"No space left on device: '.*/a'"):
        write_whole(tmp_path / "a", b"newer")
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_bytes() == b"older"


def test_a_link_stays_a_link_and_a_mode_a_mode(tmp_path):
    (tmp_path / "grades").write_bytes(b"older")
    (tmp_path / "grades").chmod(0o600)
    (tmp_path / "link").symlink_to("grades")
    write_whole(tmp_path / "link", b"newer")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "grades").read_bytes() == b"newer"
    assert stat.S_IMODE((tmp_path / "grades").stat().st_mode) == 0o600


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no such names for pipes")
def test_what_is_no_file_is_written_to_as_it_is(tmp_path):
    reading, writing = os.pipe()
    write_whole(f"/dev/fd/{writing}", b"content")
    assert os.read(reading, 100) == b"content"
    with pytest.raises(OSError, match=rf"'{tmp_path}'"):
        write_whole(tmp_path, b"content")


def test_a_full_disk_gets_the_file_s_name():
    with pytest.raises(OSError, match="No space left on device: 'table'"), naming("table"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# The package itself -------------------------------------------------------------------------------------------------

READERS = {
    *("json.loads", "json.load", "tomllib.loads", "tomllib.load", "csv.reader", "csv.DictReader", "pickle.load"),
    *("zipfile.ZipFile", "archive.open", "archive.read", "torch.load", "np.load", "load", "load_file", "Image.open"),
    *("requests.get", "spec.loader.exec_module", "symtable.symtable", "decoder.raw_decode", "pickle.loads"),
}
BORDERS = {"at_fault", "faults_of"}
OURS = {  # what comes out of these we have written ourselves, or their caller has the border
    "classroom/handouts.py": {"json.loads"},  # the book's chapters
    "classroom/students.py": {"json.loads"},
    "classroom/judge.py": {"json.loads"},  # the grader's requests
    "classroom/submissions.py": {"archive.open"},
    "classroom/confinement.py": {"load"},  # an instruction of the kernel's filters
    "classroom/answers.py": {"symtable.symtable"},
    "speed.py": {"json.loads"},  # PyTorch's profile
    "data/downloads.py": {"requests.get"},
}
LISTS = {  # except (…) that is no border: what our own functions say, and what a system call may say
    *("classroom/trace.py", "classroom/confinement.py", "classroom/judge.py", "cli.py", "runs.py", "borders.py"),
}


def bare(code: str, ours: set[str] = frozenset()) -> list[str]:
    """Readers outside of a border, and lists of exceptions."""
    found = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.arg):  # an annotation reads nothing
            return
        if isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            inside = inside or any(ast.unparse(call.func) in BORDERS for call in calls)
        if isinstance(node, ast.Name | ast.Attribute) and (name := ast.unparse(node)) in READERS - ours and not inside:
            found.append(f"{name} in line {node.lineno}")
        if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
            found.append(f"except {ast.unparse(node.type)}")
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(code), False)
    return found


@pytest.mark.parametrize(
    "path",
    [
        path.relative_to(ROOT / "vit_tutorial").as_posix()
        for path in sorted((ROOT / "vit_tutorial").rglob("*.py"))
        if not {"exercises", "clinic"} & set(path.parts)  # a reader's function, a stranger's model: no files
    ],
)
def test_every_reader_stands_at_a_border(path):
    found = bare((ROOT / "vit_tutorial" / path).read_text(encoding="utf-8"), OURS.get(path, set()))
    assert [each for each in found if path not in LISTS or not each.startswith("except")] == []


def test_a_planted_reader_and_a_planted_list_are_found():
    assert bare("with at_fault('x'):\n    json.loads(y)") == []
    assert bare("with open(p) as f, at_fault('x'), np.load(f) as k:\n    pass") == []
    assert bare("with open(p) as f:\n    json.loads(f.read())") == ["json.loads in line 2"]
    assert bare("ask = partial(requests.get, url)") == ["requests.get in line 1"]
    assert bare("try:\n    f()\nexcept (ValueError, KeyError):\n    pass") == ["except (ValueError, KeyError)"]
