"""The classroom: hand-outs without solutions, answers found wherever they stand, hand-in files, reports."""

import ast
import io
import json
import re
import struct
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from notebook_rules import NOTEBOOKS, ROOT, SLUG, cells, code_of, exercise_calls, paired, read

from vit_tutorial.classroom import grading, hand_in, progress, students, submissions, write_handouts
from vit_tutorial.classroom import handouts as handout_files
from vit_tutorial.classroom.answers import find_answer, statements
from vit_tutorial.classroom.grading import Grade, read_points
from vit_tutorial.classroom.handouts import NAME, chosen_chapters
from vit_tutorial.classroom.reports import write_reports
from vit_tutorial.classroom.similarity import alike, runs, similarity, tokens
from vit_tutorial.classroom.submissions import OTHER, read_submissions
from vit_tutorial.exercises import Exercise

RIGHT = """def patchify(images, patch_size):
    b, c, h, w = images.shape
    p, q = patch_size
    return images.reshape(b, c, h // p, p, w // q, q).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * q)
"""

# Hand-outs --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def handouts(tmp_path_factory):
    url = "https://github.com/me/course/tree/main/week 1"
    return write_handouts(tmp_path_factory.mktemp("handouts"), points={"patchify": 2.5, "unpatchify": 1}, url=url)


def squeezed(text: str) -> str:
    """Code or prose without spaces, quotes alike; JSON's escapes are gone already."""
    return re.sub(r"\s", "", text).replace('"', "'")


def test_handouts_have_no_solution_or_answer_not_even_in_pieces(handouts):
    assert [file.name for file in handouts] == [path.name for path in NOTEBOOKS]
    for path, file in zip(NOTEBOOKS, handouts, strict=True):
        original, copy = read(path), read(file)
        nbformat.validate(copy)
        assert exercise_calls(copy) != []
        text = "\n".join(cell.source for cell in copy.cells)
        assert "Solution</summary>" not in text and "Answers</summary>" not in text
        hints = [sum(cell.source.count("<summary>Hint</summary>") for cell in book.cells) for book in (original, copy)]
        assert hints[0] == hints[1] > 0
        for cell in cells(original, "markdown"):
            for answers in re.findall(r"<summary>Answers</summary>(.*?)</details>", cell.source, re.DOTALL):
                for line in answers.strip().split("\n"):
                    assert line not in text
        for number, name, _ in exercise_calls(copy):
            below = "".join(squeezed(cell.source) for cell in copy.cells[number + 1 :])
            for line in ast.unparse(ast.parse(paired(original)[name][2]).body[-1]).split("\n")[1:]:
                if len(squeezed(line)) >= 22 and not line.strip().startswith(('"', "raise ", "for ", "if ", "with ")):
                    assert squeezed(line) not in below, f"{file.name}: {line}"


def test_a_handout_keeps_all_but_the_solutions(handouts):
    """Each cell is the chapter's own, or a call that runs it, or one of the four that were added."""
    original, copy = read(NOTEBOOKS[0]), read(handouts[0])
    added = [cell for cell in copy.cells if cell.id.startswith("handout-")]
    assert [cell.id for cell in added] == [f"handout-{name}" for name in ("name", "last", "progress", "hand-in")]
    assert copy.cells[1] is added[0] and copy.cells[-1].source == "classroom.hand_in()"
    code = {cell.id: cell.source for cell in cells(original, "code")}
    kept = {cell.id: cell.source for cell in cells(copy, "code") if cell.id in code}
    assert kept.keys() == code.keys()
    setup, *called = [key for key, source in kept.items() if source != code[key]]
    assert kept[setup] == code[setup].replace("vit_tutorial.exercises import", "vit_tutorial.classroom import")
    assert {"einops", "way-back"} <= set(called) and all(
        f'\nbook_cell("01_patches", "{key}", [' in kept[key] for key in called
    )
    assert "minutes · 2.5 points. Write `patchify(" in handouts[0].read_text(encoding="utf-8")
    assert "minutes · 1 point. Write `unpatchify(" in handouts[0].read_text(encoding="utf-8")


def test_the_badge_opens_the_teacher_s_copy_or_is_gone(handouts, tmp_path):
    address = "(https://colab.research.google.com/github/me/course/blob/main/week%201/01_patches.ipynb)"
    assert read(handouts[0]).cells[0].source.count(address) == 1
    (plain,) = write_handouts(tmp_path, "1")
    assert "colab" not in read(plain).cells[0].source
    with pytest.raises(ValueError, match=r"got 'https://example\.org'"):
        write_handouts(tmp_path, "1", url="https://example.org")


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [("", range(1, len(NOTEBOOKS) + 1)), ("1-3,8", [1, 2, 3, 8]), ("5", [5]), (" 2 - 3 , 2", [2, 3])],
)
def test_chapters_by_number(asked, numbers):
    assert [int(stem[:2]) for stem in chosen_chapters(asked)] == list(numbers)


@pytest.mark.parametrize("asked", ["0", "99", "3-1", "one", "1,", "1-2-3"])
def test_chapters_that_there_are_not(asked):
    with pytest.raises(ValueError, match=re.escape(repr(asked))):
        chosen_chapters(asked)


def test_handouts_never_overwrite_the_chapters():
    with pytest.raises(ValueError, match="choose another folder"):
        write_handouts(ROOT / "notebooks")


RIGHT = """def patchify(images, patch_size):
    ph, pw = patch_size
    return rearrange(images, CUT, ph=ph, pw=pw)


patchify = exercise("patchify", patchify)"""
WRONG = """def num_patches(i, p):
    return i[0] // p[0] + i[1] // p[1]


num_patches = exercise("num_patches", num_patches)"""


def run(notebook: nbformat.NotebookNode, folder, *, errors: bool = False) -> list[str]:
    """What each code cell prints."""
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=errors)
    client.execute(cwd=str(folder))
    return [
        "".join(out.get("text", out.get("data", {}).get("text/plain", "")) for out in cell.outputs)
        for cell in cells(notebook, "code")
    ]


@pytest.mark.slow
def test_a_wrong_answer_in_a_handout_says_so_and_all_below_it_runs_and_is_handed_in(handouts, tmp_path):
    notebook = read(handouts[0])
    by_name = {name: notebook.cells[number] for number, name, _ in exercise_calls(notebook)}
    by_name["num_patches"].source = WRONG
    by_name["patchify"].source = RIGHT.replace("CUT", '"b c (gh ph) (gw pw) -> b (gh gw) (c ph pw)"')
    printed = run(notebook, tmp_path)  # an error would stop it
    told = next(text for text in printed if "num_patches: wrong." in text)
    assert told.startswith("num_patches: wrong. rows times columns, not rows plus columns")
    assert "goes on with the reference" in told
    assert printed[-2].endswith("1 of 5 right. Next: num_patches.\n")
    assert "1 of 5 right" in printed[-1] and "There's no name in it" in printed[-1]
    written = json.loads((tmp_path / "hand-in-01_patches.json").read_text(encoding="utf-8"))
    statuses = {name: answer["status"] for name, answer in written["answers"].items()}
    assert statuses.pop("num_patches") == "wrong" and statuses.pop("patchify") == "right"
    assert set(statuses.values()) == {"not attempted"}


def test_no_chapter_takes_the_names_of_a_handout(handouts):
    """What a student may call at any time is still what it was."""
    for file in handouts:
        code = [cell.source for cell in cells(read(file), "code") if not cell.id.startswith("handout-")]
        names = "(classroom|progress|hand_in|STUDENT)"
        assert not re.search(rf"^\s*(def|class|from .* import .*) {names}\b|^{names} *=", "\n".join(code), re.MULTILINE)
        assert "from vit_tutorial.exercises import exercise" not in "\n".join(code)


def test_links_lead_to_the_copies_or_to_the_book(handouts, tmp_path):
    """No link is left that opens nothing: in Colab, and in a folder that holds a few chapters."""
    links = r"\]\((?!https?:|#)([^)\s]*\.(?:ipynb|md)[^)\s]*)\)"
    linked = [
        link for file in handouts for cell in cells(read(file), "markdown") for link in re.findall(links, cell.source)
    ]
    assert linked == []
    text = handouts[1].read_text(encoding="utf-8")
    assert "](https://colab.research.google.com/github/me/course/blob/main/week%201/03_attention.ipynb)" in text
    written = write_handouts(tmp_path, "1-2")
    text = "".join(cell.source for file in written for cell in cells(read(file), "markdown"))
    assert set(re.findall(links, text)) == {"01_patches.ipynb", "02_positions.ipynb"}
    assert f"](https://github.com/{SLUG}/blob/main/notebooks/07_recipes.ipynb)" in text
    assert f"](https://github.com/{SLUG}/blob/main/book/references.md)" in text


def test_a_figure_that_would_answer_the_exercise_below_it_is_called_by_name(handouts):
    for stem, name, shown in (("03_attention", "fuse_qkv", "for kind in kinds for head in small_loop.heads"),):
        (file,) = (file for file in handouts if file.stem == stem)
        assert shown in code_of(stem)
        code = [cell.source for cell in cells(read(file), "code")]
        assert not any(shown in text for text in code)
        assert any(f'book_cell("{stem}"' in text and f'["{name}"])' in text for text in code)


@pytest.mark.parametrize(("name", "said"), [("patchfy", "is patchify meant?"), ("my_own", "no such exercise: --")])
def test_points_for_what_is_no_exercise_are_refused(tmp_path, name, said):
    with pytest.raises(ValueError, match=f"points for {name}, .*{re.escape(said)}"):
        write_handouts(tmp_path / "new", "1", {"num_patches": 1, name: 2})
    assert not (tmp_path / "new").exists()
    assert len(write_handouts(tmp_path, "1", {name: 2}, own=[name])) == 1


def test_without_the_chapters_nothing_is_handed_out_or_graded(tmp_path, monkeypatch):
    """Graded without their code, answers that lean on it would be wrong."""
    monkeypatch.setattr(handout_files, "PLACES", [tmp_path / "a", tmp_path / "b"])
    grading._book.cache_clear()
    (tmp_path / "work.py").write_text("def num_patches(i, p): return 1", encoding="utf-8")
    for refused in (lambda: write_handouts(tmp_path / "out"), lambda: grading.grade(tmp_path, tmp_path / "out.csv")):
        with pytest.raises(ValueError, match=r"neither in .*a nor in .*b, and hand-outs and grading need them"):
            refused()


# What a student does with a notebook: a helper and a constant of their own, a second thought, a wrong answer.
SESSION = [
    'STUDENT = "Ada L."',
    "from einops import rearrange\nimport torch\nfrom vit_tutorial.exercises import exercise",
    RIGHT.replace("CUT", '"wrong"').split("\n\n\n")[0],
    'CUT = "b c (gh ph) (gw pw) -> b (gh gw) (c ph pw)"\n%timeit -n1 -r1 pass',
    RIGHT,
    "this is no Python",
    'def rows(a, b):\n    return a + b\n\ndef num_patches(i, p):\n    return rows(i[0] // p[0], i[1] // p[1])\n\n'
    'num_patches = exercise("num_patches", num_patches)',
    'def unpatchify(patches, p, g):\n    return only_here(patches)\n\nunpatchify = exercise("unpatchify", unpatchify)',
    "from vit_tutorial.classroom import book_cell, hand_in, handouts, progress\nprogress()",
    "hand_in()",
]  # fmt: skip


def test_hand_in_collects_functions_with_all_they_need_and_the_grader_finds_them(tmp_path):
    book = new_notebook(cells=[new_code_cell("seen = 1\nseen + 41", id="a"), new_code_cell("unseen = 2", id="b")])
    (tmp_path / "book").mkdir()
    nbformat.write(book, tmp_path / "book/01_patches.ipynb")
    session = [*SESSION, "from pathlib import Path\nhandouts.PLACES = [Path('book')]"]
    for cell, name in {"a": "patchify", "b": "unpatchify", "c": "num_patches"}.items():
        session.append(f"book_cell('01_patches', '{cell}', ['{name}'])")
    notebook = new_notebook(cells=[new_code_cell(text) for text in session])
    printed = run(notebook, tmp_path, errors=True)
    assert "patchify          right" in printed[8] and "1 of 5 right. Next: num_patches." in printed[8]
    assert "num_patches       wrong          rows times columns, not rows plus columns" in printed[8]
    assert "pad_to_patches    missing" in printed[8]
    assert printed[-3] == "seen = 1\nseen + 41\n\n42", "the book's cell is shown when the answer is right"
    assert printed[-2] == ""
    assert "01_patches has no cell 'c' in vit-tutorial" in notebook.cells[-1].outputs[0].evalue
    written = tmp_path / "hand-in-01_patches-Ada-L.json"
    content = json.loads(written.read_text(encoding="utf-8"))
    assert (content["format"], content["version"], content["student"]) == ("vit-tutorial hand-in", 1, "Ada L.")
    source = content["answers"]["patchify"]["source"]
    assert "CUT = " in source and "from einops" in source and "wrong" not in source and "torch" not in source
    assert "def rows" in content["answers"]["num_patches"]["source"]
    files = read_submissions(written)
    assert {file.only for file in files} >= {"patchify", "num_patches"}
    assert {file.student for file in files} == {"Ada L."}


def test_hand_in_of_a_program_with_an_exercise_of_one_s_own_and_colab_downloads_it(tmp_path, monkeypatch, capsys):
    program, downloaded = tmp_path / "work.py", []
    program.write_text("def double(x):\n    return x * x\n\n\ndouble = exercise('double', double, EXERCISES)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(students, "_shell", lambda: None)
    monkeypatch.setattr(students, "_namespace", lambda: {"__file__": str(program), "STUDENT": 4711})
    colab = SimpleNamespace(files=SimpleNamespace(download=downloaded.append))
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    square = {"that's the square": lambda x: x * x}
    own = Exercise(
        reference=lambda x: 2 * x, truth=lambda x: x + x, given=lambda n=3: (torch.randn(n),), mistakes=square
    )
    file = hand_in({"double": own})
    assert downloaded == [str(file)] == ["hand-in-4711.json"]
    assert "double  wrong          that's the square\n0 of 1 right. Next: double." in capsys.readouterr().out
    monkeypatch.setattr(students, "_namespace", dict)
    with pytest.raises(ValueError, match="in a notebook, in IPython or in a file"):
        progress()


# Answers ----------------------------------------------------------------------------------------------------------


def found(name: str, *texts: str, kind: str = "code", **options) -> str:
    """The source of an answer in cells."""
    answer = find_answer(name, statements([(kind, text) for text in texts]), **options)
    return answer.source or f"{answer.status}: {answer.hint}"


def value(source: str, name: str = "f"):
    exec(source, scope := {})
    return scope[name]()


def test_helpers_below_imports_decorators_classes_and_annotations_come_along():
    source = found(
        "f", "from functools import cache as c, wraps", "@c\ndef f(a: N = 2):\n    return H().h() + a",
        "class H:\n    def h(self): return math.floor(K)", "import math\nN, K = int, 1.5",
    )  # fmt: skip
    exec(source.replace("@c\n", ""), scope := {"c": lambda f: f})
    assert scope["f"]() == 3
    assert "wraps" in source and "@c" in source


def test_an_untouched_stub_never_beats_an_attempt():
    stub = 'def f():\n    """Write me."""\n    raise NotImplementedError  # your code here'
    assert value(found("f", "def f(): return 4", f'{stub}\n\nf = exercise("f", f)')) == 4
    assert find_answer("f", statements([("code", stub)])).status == "not attempted"
    assert found("g", stub) == "missing: "


def test_a_cell_that_was_turned_into_text_counts_where_there_is_no_code():
    own = statements([("raw", "def f(): return 1"), ("code", "def f(): return 2"), ("raw", "def f(): return 3")])
    assert value(find_answer("f", own).source) == 2
    assert value(found("f", "def f(): return 7", kind="markdown")) == 7


def test_magics_questions_and_broken_cells_do_not_matter():
    cells = ["%matplotlib inline\n!ls\nx = %who_ls\nx?\ndef f():\n    %time 1\n    return 9", "def (",
             "%%bash\nls | wc", "y = (10\n%  4)", "def g():\n    return y"]  # fmt: skip
    assert value(found("f", *cells)) == 9
    assert value(found("g", *cells), "g") == 2


def test_a_broken_answer_says_where():
    assert found("f", "x = 1\ndef f():\n    return (1\n\ndef g():\n    return 2") == (
        "broken: '(' was never closed in the line `return (1`"
    )
    assert value(found("g", "x = 1\ndef f():\n    return (1\n\ndef g():\n    return 2"), "g") == 2
    assert value(found("f", "def f(): return 1", "def f(: return 2")) == 1, "that cell was never run"
    assert found("f", "def f(:", kind="raw").startswith("broken: invalid syntax")


def test_other_exercises_are_borrowed_whether_attempted_or_not():
    text = "def g():\n    raise NotImplementedError\ndef wrong(): return 0\ndef k(): return 0\nh = exercise('h', wrong)"
    own = statements([("code", f"{text}\ndef f(): return g() + h() + k() + m()")])
    answer = find_answer("f", own, {"f", "g", "h", "k", "m"})
    assert answer.borrowed == ("g", "h", "k", "m") and "return 0" not in answer.source
    twice = "def f(): return 1\ndef twice(f): return lambda: 2 * f()\nf = twice(f)\nf = exercise('f', f)"
    assert value(found("f", twice, exercises={"f"})) == 2


def test_an_import_or_a_number_is_an_answer_only_where_it_is_checked():
    text = "from vit_tutorial import patchify as f"
    assert found("f", text) == found("f", "f = 3") == found("f", "for f in (1, 2): pass") == "missing: "
    assert found("f", "f = 3", 'exercise("f", f)') == "f = 3\n"
    assert found("f", text, 'f = exercise("f", f)') == f"{text}\n"
    assert value(found("g", "from os import sep as f", "def g(): return f", exercises={"f", "g"}), "g") == "/"


def test_the_chapter_s_own_code_comes_first_and_is_no_answer():
    chapter = [replace(each, ours=True) for each in statements([("code", "k = 1\nm = 2\ndef f(): return 0")])]
    own = statements([("code", "k = 10\ndef f(): return k + m\nexercise('g', g)")])
    assert value(find_answer("f", [*chapter, *own]).source) == 12
    assert find_answer("f", [*chapter, *own[:1]]).status == "missing"
    assert (
        value(find_answer("h", [*chapter, *statements([("code", "def h(): return f()")])], {"f", "h"}).source, "h") == 0
    )


WRAPPED = "def f(): return g()\ndef g(): return 2"


@pytest.mark.parametrize(
    "texts",
    [
        # the last definition, and what it needs, wherever that stands
        ["x = 1", "def f(): return 0", "def g(): return x", "x = 3; z = 1", "def f(): return g() + z"],
        ["x = 1\nx = x + 1", "x += 2", "def f(): return x"],
        ["def f(): return a", "a = b + g()", "b = 1", "def g(): return h()\ndef h(): return 3"],
        ["def g(): return K", "x = g()", "K = 4", "def f(): return x"],
        ["def f(): return 3", "old = f", "def g(): return f()", "def f(): return old() + 1", "K = 5"],
        ["def f(): return 4", "f = f()"],  # an object is the answer only where no function is
        # what no def at the top defines
        ["def mine(): return 4", 'f = exercise("f", mine)'],
        ["try:\n    import no_such_module\n    def f(): return 3\nexcept ImportError:\n    def f(): return 4"],
        ["with open(__import__('os').devnull):\n    def f(): return 4"],
        ["from typing import Callable\nf: Callable = lambda: 4"],
        ["class F:\n    def __call__(self): return 4\n\nf = F()"],
        ["from functools import partial\nf = partial(max, 3, 4)"],
        ["def f(): return 4\n\nif not f:\n    def f(): return 5"],
        # a wrapper of one's older self wraps the older one
        [WRAPPED, "from functools import wraps\nold = f\n@wraps(old)\ndef f(*args): return 2 * old(*args)"],
        [WRAPPED, "def f(old=f): return 2 * old()"],
        [WRAPPED, "old = f\nf = lambda: 2 * old()"],
        [WRAPPED, "def twice(fn): return lambda: 2 * fn()\n@twice\ndef f(): return 2"],
        [WRAPPED, "def twice(fn): return lambda: 2 * fn()\nolder = {'f': f}\nf = exercise('f', twice(older['f']))"],
        [WRAPPED, "class F:\n    old = f\n    def __call__(self): return 2 * F.old()\nf = exercise('f', F())"],
    ],
)
def test_the_answer_that_counts_returns_4(texts):
    assert value(found("f", *texts, exercises={"f"})) == 4


# Submissions ------------------------------------------------------------------------------------------------------


def notebook(*sources: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": source} for source in sources]}).encode()


def zipped(files: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "student"),
    [
        ("ada/01.ipynb", "ada"),
        ("ada/week 1/01.ipynb", "ada"),
        ("Ada Lovelace_4711_assignsubmission_file_/01.ipynb", "Ada Lovelace_4711"),
        ("Ada Lovelace_4711_assignsubmission_file_01_patches.ipynb", "Ada Lovelace_4711"),
        ("lovelaceada_4711_815_01_patches-1.ipynb", "lovelaceada_4711"),
        ("lovelaceada_LATE_4711_815_x.ipynb", "lovelaceada_4711"),
        ("whatever.ipynb", "Signed"),
    ],
)
def test_whose_it_is(tmp_path, name, student):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(notebook('STUDENT = " Signed "  # @param', "def f(): pass"))
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints/old.ipynb").write_bytes(notebook("def f(): pass"))
    (file,) = read_submissions(tmp_path)
    assert (file.student, file.signed) == (student, "Signed")


@pytest.mark.parametrize(
    ("line", "signed"),
    [("STUDENT = 4711", "4711"), ("STUDENT='O\\'Hara'  # \"x\"", "O\\'Hara"), (NAME, ""), ("STUDENT = x", "")],
)
def test_signatures(tmp_path, line, signed):
    (tmp_path / "work.py").write_text(f"{line}\ndef f(): pass")
    (file,) = read_submissions(tmp_path)
    assert (file.signed, file.student) == (signed, signed or "work")


def test_zips_in_zips_and_a_folder_around_all(tmp_path):
    inner = zipped({"a/x": b"def f(): pass", "b/": b""})
    content = {"All/ada/1.py": b"def f(): 1", "All/max/2.ipynb": notebook("def f(): 2"), "All/eve/3.zip": inner}
    (tmp_path / "all.zip").write_bytes(zipped(content | {"All/__MACOSX/y.py": b"def f(): 3"}))
    files = read_submissions(tmp_path / "all.zip")
    assert {file.student: file.cells[0][1] for file in files} == {
        "ada": "def f(): 1", "max": "def f(): 2", "eve": "def f(): pass"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x00\x01", "isn't JSON"),
        (b"{", "broken JSON"),
        (b'{"cells": 3}', "no cells"),
        (b"", "isn't JSON"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, content, problem):
    (tmp_path / "ada.ipynb").write_bytes(content)
    (file,) = read_submissions(tmp_path)
    assert problem in file.problem and file.student == "ada"


def test_what_a_zip_holds_has_a_limit_over_all_of_it(tmp_path, monkeypatch):
    """Zips in zips count together, for each student anew."""
    monkeypatch.setattr(submissions, "_Room", partial(submissions._Room, size=3_000, files=6))
    answer = b"def f(): 1  #" + b"x" * 800
    (tmp_path / "ada.zip").write_bytes(zipped({f"{i}.py": answer for i in range(9)}))
    (tmp_path / "max.zip").write_bytes(zipped({f"{i}.zip": zipped({"a.py": answer}) for i in range(9)}))
    (tmp_path / "tom.zip").write_bytes(zipped({f"{i}.py": b"def f(): 1" for i in range(99)}))
    (tmp_path / "eve.zip").write_bytes(zipped({"a.py": answer, "b.py": answer}))
    files = read_submissions(tmp_path)
    said = {name: {file.problem for file in files if file.student == name} for name in ("ada", "max", "tom", "eve")}
    assert said["eve"] == {""}
    for name in ("ada", "max", "tom"):
        assert "with it, its zip holds more than" in "".join(said[name]) and "" in said[name]
    assert len(files) < 40, "a thousand files of one student would hide the others"


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_file_in_a_zip_is_not_larger_than_the_zip_says(tmp_path, packing):
    """A bomb: 100 MB of zeros, packed into some kilobytes, that claim to be 30 bytes."""
    with zipfile.ZipFile(packed := io.BytesIO(), "w", packing) as archive:
        archive.writestr("a.py", bytes(100_000_000))
    claimed = packed.getvalue().replace(struct.pack("<L", 100_000_000), struct.pack("<L", 30))
    (tmp_path / "ada.zip").write_bytes(claimed)
    tracemalloc.start()
    read_submissions(tmp_path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 99_000_000


CHAIN = "".join(f"a{i} = a{i - 1} + 1\n" for i in range(1, 3000))
HOSTILE_FILES = {
    "brackets": ("m.ipynb", '{"cells": [{"cell_type": "code", "source": ' + "[" * 200_000),
    "deep json": ("m.json", '{"format": "vit-tutorial hand-in", "answers": ' + "[" * 200_000),
    "a chain": ("m.py", f"a0 = 1\n{CHAIN}\ndef patchify(images, patch_size):\n    return a2999\n"),
    "a sum": ("m.py", "def patchify(images, patch_size):\n    return 1" + " + 1" * 900 + "\n"),
    "half a letter": ("m.ipynb", '{"cells": [{"cell_type": "code", "source": "def f(): 1 # \\ud800 \\ud83d"}]}'),
    "a name that is no text": (
        "m.json",
        '{"format": "vit-tutorial hand-in", "student": "\\ud800", "answers": '
        '{"patchify": {"source": "def patchify(i, p): 1"}}}',
    ),
    "an empty cell": ("m.ipynb", '{"cells": [null, 3, [], {"source": {"a": 1}}, {"source": [null]}]}'),
    "a number": ("m.ipynb", '{"cells": [{"cell_type": "code", "source": ' + "1" * 10_000 + "}]}"),
    "many": ("m.py", "a=1\n" * 20_000),
    "much": ("m.py", "a = 1\n" * 200_000),
    "null bytes": ("m.py", "def patchify(i, p):\n    return \0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE_FILES)
def test_no_hand_in_stops_a_class(tmp_path, monkeypatch, kind):
    """Everything but the answers' own processes: read, found, compared, written and reported."""
    name, text = HOSTILE_FILES[kind]
    for student, file, content in (("ada", "a.py", RIGHT), ("mallory", name, text), ("zoe", "z.py", RIGHT)):
        (tmp_path / "in" / student).mkdir(parents=True)
        (tmp_path / "in" / student / file).write_text(content)
    monkeypatch.setattr(grading, "check_confinement", lambda limits: None)
    verdict = {"status": "right", "hint": "", "seconds": 0.0}
    monkeypatch.setattr(grading.Judge, "__call__", lambda *_: verdict)
    grades = grading.grade(tmp_path / "in", tmp_path / "g.csv", chapters="1", progress=False)
    page = write_reports(tmp_path / "report", grades)
    right = {each.student for each in grades if (each.exercise, each.status) == ("patchify", "right")}
    assert {"ada", "zoe"} <= right and {each.student for each in grades} == {"ada", "mallory", "zoe"}
    assert "mallory" in (tmp_path / "g.csv").read_text(encoding="utf-8-sig") and "mallory" in page.read_text("utf-8")


def test_a_broken_zip_and_one_with_too_much_say_so(tmp_path):
    (tmp_path / "ada.zip").write_bytes(b"PK nothing")
    deep = zipped({"a.py": b"def f(): 1"})
    for _ in range(4):
        deep = zipped({"a.zip": deep})
    (tmp_path / "max.zip").write_bytes(deep)
    problems = {file.student: file.problem for file in read_submissions(tmp_path)}
    assert "broken zip" in problems["ada"] and "zipped 3 times" in problems["max"]


def test_whoever_handed_in_something_else_is_not_forgotten_and_a_photo_beside_answers_is(tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada/work.py").write_text("def f(): return 1")
    (tmp_path / "ada/photo.jpg").write_bytes(b"x")
    (tmp_path / "list of names.csv").write_text("ada, max")
    (tmp_path / "Max_12_assignsubmission_file_01_patches.pdf").write_bytes(b"x")
    (tmp_path / "eve_4711_815_note.txt").write_text("I was ill")
    problems = {file.student: file.problem for file in read_submissions(tmp_path)}
    assert problems == {"ada": "", "Max_12": OTHER, "eve_4711": OTHER}


def test_a_damaged_file_in_a_zip_costs_that_file(tmp_path):
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ada/1.py", "def f(): return 1\n" * 100)
        archive.writestr("max/2.py", "def f(): return 2")
    whole = bytearray(packed.getvalue())
    whole[40:44] = b"\xff\xff\xff\xff"  # within what is compressed
    (tmp_path / "all.zip").write_bytes(whole)
    problems = {file.student: file.problem for file in read_submissions(tmp_path / "all.zip")}
    assert "broken zip" in problems["ada"] and problems["max"] == ""


def test_a_notebook_that_is_cut_off_keeps_its_first_cells(tmp_path):
    whole = notebook("def f(): return 'ü\\n'", "def g(): return 2")
    (tmp_path / "ada.ipynb").write_bytes(whole[:-10])
    (file,) = read_submissions(tmp_path)
    assert file.cells == (("code", "def f(): return 'ü\\n'"),)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings(tmp_path, encoding):
    (tmp_path / "ada.py").write_bytes("def f(): return 'Übung'\r\n".encode(encoding))
    (file,) = read_submissions(tmp_path)
    assert value(found("f", file.cells[0][1])) == "Übung"


def test_nothing_to_read(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match="has no notebook"):
        read_submissions(tmp_path)
    with pytest.raises(ValueError, match="there is no"):
        read_submissions(tmp_path / "nowhere")


# Points, likeness, reports ----------------------------------------------------------------------------------------


def test_points(tmp_path):
    (tmp_path / "points.toml").write_text("patchify = 2  # twice\nunpatchify = 0.5\n", encoding="utf-8")
    assert read_points(tmp_path / "points.toml") == {"patchify": 2, "unpatchify": 0.5}
    for bad in ("patchify = 'x'", "patchify = -1", "patchify =", "patchify = true"):
        (tmp_path / "points.toml").write_text(bad, encoding="utf-8")
        with pytest.raises(ValueError, match=r"points\.toml"):
            read_points(tmp_path / "points.toml")


LOOP = """
def cut(images, size):
    found = []
    for top in range(0, images.shape[2], size[0]):
        for left in range(0, images.shape[3], size[1]):
            found.append(images[:, :, top : top + size[0], left : left + size[1]].flatten(1))
    return torch.stack(found, 1)
"""


def test_renamed_answers_are_alike_and_other_ones_are_not():
    copied = LOOP.replace("found", "out").replace("top", "y").replace("left: int", "x").replace("cut", "mine")
    copied = copied.replace("out = []", 'out = []  # mine\n    "my own work"')
    assert tokens(LOOP) == tokens(copied)
    other = (
        "def cut(i, s):\n    x = i.unfold(2, s[0], s[0]).unfold(3, s[1], s[1])\n    return x.flatten(4).flatten(2, 3)"
    )
    assert similarity(runs(tokens(LOOP)), runs(tokens(other))) < 0.2
    class_ = [("ada", "f", LOOP), ("max", "f", copied), ("eve", "f", f"{other}\n" * 3), ("bob", "g", LOOP)]
    assert alike(class_) == {"f": [("ada", "max", 1.0)]}


def test_what_half_the_class_wrote_and_what_is_short_is_no_copy():
    assert alike([(str(i), "f", LOOP) for i in range(10)]) == {}
    assert alike([("ada", "f", "def f(x): return x.flatten(1)"), ("max", "f", "def f(y): return y.flatten(1)")]) == {}


def test_reports_are_pages_that_hide_no_html_in_an_answer(tmp_path):
    evil = "def f():\n    return '<script>alert(1)</script>'"
    grades = [
        Grade("Ada <b>", "patchify", 2, "right", "", 0.1, evil, "ada/1.ipynb", worth=3),
        Grade("Ada <b>", "unpatchify", 0, "wrong", "rows & columns", 0.1, evil),
        Grade("../max", "patchify", 0, "wrong", "rows & columns", 0.1),
        Grade("../max", "unpatchify", 0, "refused", "it calls it", 0.1),
        *(Grade("Emil", name, 0, "unreadable", OTHER, 0.0, "", "a.pdf") for name in ("patchify", "unpatchify")),
    ]
    page = write_reports(tmp_path, grades).read_text(encoding="utf-8")
    assert "3 students, 2 exercises. 1 right, 2 wrong, 2 unreadable, 1 refused." in page
    assert page.count("<svg") == 2 and "patchify: 1 of 3 right" in page
    assert page.count(OTHER) == 1 and f"<td>all</td> <td>a.pdf: {OTHER}</td>" in page
    assert "<td>unpatchify</td> <td class=number>1 ×</td> <td>rows &amp; columns</td>" in page
    students = sorted(path.name for path in (tmp_path / "students").iterdir())
    assert students == ["001-Ada-b-.html", "002-..-max.html", "003-Emil.html"]
    own = (tmp_path / "students" / students[0]).read_text(encoding="utf-8")
    assert "Points: 2 of 4." in own and "alert(1)</script>" not in own
    assert "Ada &lt;b&gt;" in own and "rows &amp; columns" in own


def test_what_a_teacher_has_to_look_at_comes_first_and_is_whole(tmp_path):
    """Whatever costs points without being wrong, whoever has no answer at all, and whose files disagree."""
    odd = ["output", "memory", "time", "broken", "crashed", "refused", "unreadable"]
    grades = [Grade(f"s {status}", name, 0, status, "so", 0.1, path="x") for status in odd for name in ("f", "g")]
    grades += [Grade("s fine", "f", 1, "right", "", 0.1), Grade("s fine", "g", 0, "not attempted", "", 0.1)]
    grades += [Grade("s nothing", name, 0, "missing", "", 0.0, note="nothing in essay.py") for name in ("f", "g")]
    page = write_reports(tmp_path, grades).read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", page) == ["To look at", "Points", "Which exercises", "Which mistakes"]
    table = page[page.index("<h2>To look at") : page.index("<h2>Points")]
    assert re.findall(r">s (\w+)</a>", table) == ["nothing", *reversed(odd)]
    assert "<td>all</td> <td>nothing in essay.py</td>" in table
