"""book/build.py runs a notebook when its outputs may have changed, and at no other time."""

import ast
import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import build
import nbformat
import pytest
from jupyter_cache import get_cache
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import NOTEBOOKS, ROOT, code_of, exercise_calls, imports, read

from vit_tutorial.exercises import CHAPTERS

PACKAGE = {  # what stands in the small book's package
    "__init__.py": "from vit_tutorial.config import SIZE\n",
    "config.py": "SIZE = 1\n",
    "one.py": "from vit_tutorial import config\n",
    "late.py": "def late():\n    import vit_tutorial.far.away\n",
    "far/__init__.py": "from .away import FAR\n",
    "far/away.py": "FAR = 'vit_tutorial.spoken'\n",
    "spoken.py": "",
    "runs.py": "",
    "live.py": "from vit_tutorial import runs\n",
    "cli.py": "from vit_tutorial import runs\n",
    "__main__.py": "from vit_tutorial.cli import main\n",
    "exercises/__init__.py": "from vit_tutorial.exercises.engine import exercise\n",
    "exercises/engine.py": "",
    "exercises/good.py": "from vit_tutorial.one import config\n",
    "exercises/other.py": "",
    "recorded/run/metrics.json": "{}",
    "recorded/live/page.json": "{}",
    "words.txt": "",
}


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A book of two notebooks in an empty folder."""
    for name, value in {
        "ROOT": tmp_path,
        "BUILD": tmp_path / "_build",
        "EXECUTED": tmp_path / "_build" / "executed",
        "CACHE": tmp_path / "_build" / ".jupyter_cache",
        "TIMES": tmp_path / "_build" / "notebook_times.json",
        "KEPT": tmp_path / "kept",
    }.items():
        monkeypatch.setattr(build, name, value)
    for name, code in PACKAGE.items():
        file = tmp_path / "vit_tutorial" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "notebooks").mkdir()
    write(tmp_path, "01_good", "print('good', 6 * 7)")
    write(tmp_path, "02_other", "1 + 1")
    return tmp_path


def write(checkout: Path, stem: str, *sources: str, prose: str = "# Title", alt: str = "A line.") -> None:
    figure = {"mystnb": {"image": {"alt": alt}}}
    cells = [new_markdown_cell(prose), *(new_code_cell(source, metadata=copy.deepcopy(figure)) for source in sources)]
    nbformat.write(new_notebook(cells=cells), checkout / "notebooks" / f"{stem}.ipynb")


def keys() -> dict[str, str]:
    return {path.stem: build.notebook_key(path, notebook) for path, notebook in build.notebooks().items()}


def outdated() -> list[str]:
    found = keys()
    return [path.stem for path in build.notebooks() if build.has_to_run(path, found[path.stem])]


def test_a_notebook_runs_once_and_jupyter_book_finds_what_it_gave(checkout, monkeypatch, capfd):
    monkeypatch.setattr(build, "SLOW", 0)
    build.execute()
    shown = capfd.readouterr().out
    assert "2 to execute" in shown
    assert shown.count("WARNING: over 0 s") == 2
    assert outdated() == []
    assert set(json.loads(build.TIMES.read_text())) == {"01_good", "02_other"}
    cache = get_cache(build.CACHE)
    source = nbformat.read(checkout / "notebooks" / "01_good.ipynb", as_version=4)
    assert source.cells[1].outputs == []
    _, merged = cache.merge_match_into_notebook(source)
    assert merged.cells[1].outputs[0].text == "good 42\n"

    # Prose and alt texts are new, and appear beside the outputs that are there.
    write(checkout, "01_good", "print('good', 6 * 7)", prose="# Another title", alt="Another line.")
    build.execute()
    assert "0 to execute" in capfd.readouterr().out
    source = nbformat.read(checkout / "notebooks" / "01_good.ipynb", as_version=4)
    _, merged = get_cache(build.CACHE).merge_match_into_notebook(source)
    assert merged.cells[1].outputs[0].text == "good 42\n"
    assert merged.cells[1].metadata.mystnb.image.alt == "Another line."


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda root: None, []),
        (lambda root: write(root, "01_good", "print('good', 6 * 7)", prose="# Other prose"), []),
        (lambda root: write(root, "01_good", "print('good', 6 * 7)", alt="Another alt text."), []),
        (lambda root: write(root, "01_good", "print('good', 7 * 7)"), ["01_good"]),
        (lambda root: write(root, "01_good", "print('good', 6 * 7)", "2"), ["01_good"]),
        (lambda root: write(root, "03_new", "3"), ["03_new"]),
        (lambda root: (root / "README.md").write_text("new"), []),
        (lambda root: (root / "vit_tutorial" / "one.py").touch(), []),
        (lambda root: (root / "vit_tutorial" / "one.py").write_text("ONE = 3\n"), []),
    ],
)
def test_what_makes_a_notebook_run_again(change, expected, checkout, monkeypatch):
    build.EXECUTED.mkdir(parents=True)
    for path, notebook in build.notebooks().items():
        executed, key_file = build.results(path)
        executed.touch()
        key_file.write_text(build.notebook_key(path, notebook))
    change(checkout)
    assert outdated() == expected
    monkeypatch.setenv("VIT_TUTORIAL_BUDGET", "full")
    assert outdated() == sorted(path.stem for path in build.notebooks())


def test_another_clone_takes_what_was_executed_and_the_oldest_go(checkout, monkeypatch, capfd):
    monkeypatch.setattr(build, "MOST_KEPT", 2)
    path = checkout / "notebooks/01_good.ipynb"
    build.EXECUTED.mkdir(parents=True)
    for age, key in enumerate("abc"):
        build.results(path)[0].write_text(key)
        build.keep(path, key)
        os.utime(build.kept(path, key), (age, age))
    assert sorted(file.name for file in build.KEPT.iterdir()) == ["01_good-b.ipynb", "01_good-c.ipynb"]

    for other, notebook in build.notebooks().items():
        build.results(other)[0].write_text(nbformat.writes(notebook))
        build.keep(other, build.notebook_key(other, notebook))
    shutil.rmtree(build.BUILD)  # as in a fresh clone
    build.execute()
    assert "2 notebooks, 0 to execute" in capfd.readouterr().out
    assert outdated() == []


def test_a_key_knows_which_data_are_there_and_not_where(checkout, monkeypatch, tmp_path_factory):
    found = []
    for place in ("one", "other", "empty"):
        root = tmp_path_factory.mktemp(place)
        (root / ("MNIST/raw" if place != "empty" else "nothing")).mkdir(parents=True)
        monkeypatch.setenv("VIT_TUTORIAL_DATA", str(root))
        found.append(keys()["01_good"])
    assert found[0] == found[1] != found[2]
    monkeypatch.setattr(build, "machine", lambda: ["another processor"])
    assert keys()["01_good"] != found[2]


BEHIND = {  # a notebook's code, and the files of the small package that it depends on
    "1 + 1": set(),
    "import torch\nfrom vit_tutorials import one": set(),
    "import vit_tutorial": {"__init__.py", "config.py"},
    "%pip install vit_tutorial.one\nimport vit_tutorial": {"__init__.py", "config.py"},
    "from vit_tutorial import one": {"__init__.py", "config.py", "one.py"},
    "from vit_tutorial.one import config": {"__init__.py", "config.py", "one.py"},
    "import vit_tutorial.one as first": {"__init__.py", "config.py", "one.py"},
    "def f():\n    from vit_tutorial import one": {"__init__.py", "config.py", "one.py"},
    "import vit_tutorial.late": {"__init__.py", "config.py", "late.py", "far/__init__.py", "far/away.py", "spoken.py"},
    "from vit_tutorial.far import FAR": {"__init__.py", "config.py", "far/__init__.py", "far/away.py", "spoken.py"},
    "import_module('vit_tutorial.one')": {"__init__.py", "config.py", "one.py"},
    "from vit_tutorial.runs import load": {"__init__.py", "config.py", "runs.py", "recorded/run/metrics.json"},
    "import vit_tutorial.live": {
        "__init__.py", "config.py", "live.py", "runs.py", "recorded/run/metrics.json", "recorded/live/page.json"
    },
    "from vit_tutorial.exercises import exercise": {
        "__init__.py", "config.py", "exercises/__init__.py", "exercises/engine.py"
    },
    "from vit_tutorial.exercises import exercise\ncut = exercise('cut', cut)": {
        "__init__.py", "config.py", "one.py", "exercises/__init__.py", "exercises/engine.py", "exercises/good.py"
    },
    "run([python, '-m', 'vit_tutorial', 'train'])": {
        "__init__.py", "config.py", "runs.py", "cli.py", "__main__.py", "recorded/run/metrics.json"
    },
    "this is no Python": set(PACKAGE),
    "from . import one": set(PACKAGE),
}  # fmt: skip


@pytest.mark.parametrize("code", BEHIND)
def test_a_notebook_depends_on_what_it_imports(code, checkout):
    """A change in any other file of the package leaves its key as it is; a change in one of these does not."""
    write(checkout, "01_good", code)
    expected = BEHIND[code] | ({"words.txt"} if BEHIND[code] else set())  # data of unknown use count
    before, found = keys(), set()
    for name in PACKAGE:
        file = checkout / "vit_tutorial" / name
        file.write_text(f"{PACKAGE[name]}# a comment\n")
        if keys()["01_good"] != before["01_good"]:
            found.add(name)
        file.write_text(PACKAGE[name])
    assert found == expected
    assert keys() == before
    (checkout / "vit_tutorial" / "__pycache__").mkdir()
    (checkout / "vit_tutorial" / "__pycache__" / "one.pyc").write_bytes(b"bytecode")
    assert keys() == before


def test_a_module_that_moves_is_a_change(checkout):
    write(checkout, "01_good", "from vit_tutorial import one")
    before = keys()
    (checkout / "vit_tutorial" / "one").mkdir()
    (checkout / "vit_tutorial" / "one.py").rename(checkout / "vit_tutorial" / "one" / "__init__.py")
    assert keys()["01_good"] != before["01_good"]
    assert keys()["02_other"] == before["02_other"]


# The book's own chapters ------------------------------------------------------------------------------------------


def behind(stem: str) -> set[str]:
    """The files of the package on which a chapter depends, named from the package's folder."""
    files = build.files_behind(stem, code_of(stem))
    return {file.relative_to(build.ROOT / "vit_tutorial").as_posix() for file in files}


def chapters_behind(name: str) -> set[str]:
    return {path.stem for path in NOTEBOOKS if name in behind(path.stem)}


def test_a_hint_s_typo_runs_its_own_chapter_alone(tmp_path, monkeypatch):
    for folder in ("vit_tutorial", "notebooks"):
        ignored = shutil.ignore_patterns("*.safetensors", "__pycache__", ".*")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    before = keys()

    def changed(name: str) -> set[str]:
        file = tmp_path / "vit_tutorial" / name
        content = file.read_bytes()
        file.write_bytes(content + b"\n")
        after = keys()
        file.write_bytes(content)
        return {stem for stem in after if after[stem] != before[stem]}

    assert changed("exercises/patches.py") == {"01_patches"}
    assert changed("exercises/attention.py") == {"03_attention"}
    assert changed("exercises/engine.py") == set(before)
    assert changed("patches.py") == set(before)
    assert changed("cli.py") == {"11_speed"}  # which starts the command
    run = next((tmp_path / "vit_tutorial" / "recorded").glob("*/metrics.json"))
    assert changed(run.relative_to(tmp_path / "vit_tutorial").as_posix()) == chapters_behind("runs.py")


def test_chapters_that_read_recorded_runs_say_so():
    reading = {path.stem for path in NOTEBOOKS if re.search(r"\b(load_recorded|load_metrics)\b", code_of(path.stem))}
    assert reading <= chapters_behind("runs.py") < {path.stem for path in NOTEBOOKS}
    for path in (ROOT / "vit_tutorial").rglob("*.py"):
        named = [node for node in ast.walk(ast.parse(path.read_text())) if getattr(node, "value", "") == "recorded"]
        assert bool(named) == (path.name == "runs.py"), path


def test_the_modules_that_a_chapter_loads_are_behind_it():
    """The truth: what is in ``sys.modules`` after a chapter's imports and its exercises."""
    code = """
import importlib, json, sys
for stem, lines, exercises in json.load(sys.stdin):
    for name in [name for name in sys.modules if name.partition(".")[0] == "vit_tutorial"]:
        del sys.modules[name]
    exec(lines, {})
    if exercises:
        importlib.import_module(f"vit_tutorial.exercises.{stem[3:]}")
    files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "vit_tutorial"]
    print(json.dumps([stem, files]))
"""
    steps = []
    for path in NOTEBOOKS:
        ours = [line for line in imports(read(path)).splitlines() if "vit_tutorial" in line]  # others load none of it
        steps.append((path.stem, "\n".join(ours), bool(exercise_calls(read(path)))))
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(steps), capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    loaded = dict(map(json.loads, done.stdout.splitlines()))
    assert set(loaded) == {path.stem for path in NOTEBOOKS}
    for stem, files in loaded.items():
        files = {Path(file).relative_to(ROOT / "vit_tutorial").as_posix() for file in files}
        assert "__init__.py" in files
        assert files <= behind(stem), stem


def test_a_chapter_s_exercises_are_those_of_its_stem():
    for path in NOTEBOOKS:
        names = [name for _, name, _ in exercise_calls(read(path))]
        assert set(names) <= set(CHAPTERS.get(path.stem[3:], ())), path.stem


def test_only_the_engine_imports_by_a_name_that_is_made_up_as_it_runs():
    """What build.py cannot see it must be told: it knows that the engine loads a chapter's own exercises.

    The classroom runs what students wrote, and no chapter asks it to.
    """
    dynamic = re.compile(r"import_module|__import__|def __getattr__|\brunpy\b|\bexec\(")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "vit_tutorial").rglob("*.py")
        if dynamic.search(path.read_text(encoding="utf-8"))
    ]
    classroom = ["vit_tutorial/classroom/judge.py", "vit_tutorial/classroom/students.py"]
    assert sorted(found) == [*classroom, "vit_tutorial/exercises/engine.py"]
    assert not any(re.search(rf"{dynamic.pattern}|\bclassroom\b", code_of(path.stem)) for path in NOTEBOOKS)


def test_a_progress_bar_leaves_its_last_state():
    outputs = [
        new_output("stream", name="stdout", text="start\n 10%"),
        new_output("stream", name="stdout", text="\r 50%"),
        new_output("stream", name="stdout", text="\r100%\r\nend\n"),
        new_output("stream", name="stderr", text="a\rb"),
        new_output("display_data", data={"text/plain": "c"}),
        new_output("stream", name="stdout", text="d"),
    ]
    tidy = build.tidy_streams(outputs)
    assert [output.get("text") for output in tidy] == ["start\n100%\r\nend\n", "b", None, "d"]
