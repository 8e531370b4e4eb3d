"""book/build.py runs a notebook when its outputs may have changed, and at no other time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import build
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import NOTEBOOKS, ROOT, code_of, exercise_calls, imports, page, read


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A book of two notebooks in an empty folder."""
    places = {"ROOT": "", "BUILD": "_build", "EXECUTED": "_build/executed", "CACHE": "_build/.jupyter_cache"}
    for name, place in (places | {"KEPT": "kept"}).items():
        monkeypatch.setattr(build, name, tmp_path / place)
    monkeypatch.setattr(build, "files_behind", lambda stem, code: set())
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "notebooks").mkdir()
    write(tmp_path, "01_good", "2 + 2")
    write(tmp_path, "02_other", "1 + 1")
    return tmp_path


def write(checkout: Path, stem: str, *sources: str, prose: str = "# Title", alt: str = "A line.") -> None:
    figure = {"mystnb": {"image": {"alt": alt}}}
    cells = [new_markdown_cell(prose), *(new_code_cell(source, metadata=figure) for source in sources)]
    nbformat.write(new_notebook(cells=cells), checkout / "notebooks" / f"{stem}.ipynb")


def keys() -> dict[str, str]:
    return {path.stem: build.notebook_key(path, notebook) for path, notebook in build.notebooks().items()}


def test_the_oldest_results_go_and_a_book_to_be_published_lacks_nothing(checkout, monkeypatch):
    def run(notebook, path, environment):
        notebook.cells[1].outputs = [new_output("stream", text="Going on with\n'digits' instead")]
        nbformat.write(notebook, path)
        return True

    monkeypatch.setattr(build, "MOST_KEPT", 1)
    monkeypatch.setattr(build, "run", run)
    monkeypatch.setattr(build, "surroundings", dict)
    monkeypatch.setenv("VIT_TUTORIAL_STRICT", "1")
    for source in "123":
        write(checkout, "01_good", source)
        build.execute(chapters=["01_good"])
    assert [nbformat.read(path, as_version=4).cells[1].source for path in build.KEPT.iterdir()] == ["3"]
    build.execute()
    with pytest.raises(SystemExit, match="data or weights were missing"):
        build.html()


def test_what_makes_a_notebook_run_again(checkout, monkeypatch, tmp_path):
    before = keys()
    write(checkout, "01_good", "2", prose="Prose")
    assert [name for name, key in keys().items() if key != before[name]] == ["01_good"]
    seen = [keys()["01_good"]]
    for place in ("one", "other"):  # which data are there, and not where
        (tmp_path / place / "MNIST/raw").mkdir(parents=True)
        monkeypatch.setenv("VIT_TUTORIAL_DATA", str(tmp_path / place))
        seen.append(keys()["01_good"])
    assert seen[0] != seen[1] == seen[2]
    monkeypatch.setenv("VIT_TUTORIAL_BUDGET", "full")
    seen.append(keys()["01_good"])
    monkeypatch.setattr(build, "machine", lambda: ["another processor"])
    seen.append(keys()["01_good"])
    monkeypatch.setattr(build, "files_behind", lambda stem, code: {checkout / "pyproject.toml"})
    assert len({*seen, keys()["01_good"]}) == 5


def behind(stem: str) -> set[str]:
    """The files of the package on which a chapter depends, named from the package's folder."""
    return {file.relative_to(ROOT / "vit_tutorial").as_posix() for file in build.files_behind(stem, code_of(stem))}


def test_a_chapter_that_is_not_there_is_not_passed_over():
    with pytest.raises(SystemExit, match="no such chapter: 05_modle; there are 01_patches, 02_"):
        build.execute(chapters=["notebooks/05_modle.ipynb"])


@pytest.mark.slow
def test_a_chapter_depends_on_the_modules_that_it_loads():
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
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=json.dumps(steps), capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = dict(map(json.loads, done.stdout.splitlines()))
    assert set(loaded) == {path.stem for path in NOTEBOOKS}
    for stem, files in loaded.items():
        loads = {Path(file).relative_to(ROOT / "vit_tutorial").as_posix() for file in files}
        assert loads - behind(stem) <= {"exercises/contents.py"}, stem
        recorded = re.search(r"\bload_(recorded|metrics|sweep)\b", code_of(stem))
        assert not recorded or "recorded/mnist/metrics.json" in behind(stem), stem
    assert {stem for stem in loaded if "exercises/patches.py" in behind(stem)} == {"01_patches"}
    assert {stem for stem in loaded if "cli.py" in behind(stem)} == set()  # none starts the command


def test_only_the_engine_imports_by_a_name_that_is_made_up_as_it_runs():
    """What build.py can't see it must be told: it knows that the engine loads a chapter's own exercises."""
    dynamic = re.compile(r"import_module|__import__\(|def __getattr__|\brunpy\b")
    found = {path.name for path in (ROOT / "vit_tutorial").rglob("*.py") if dynamic.search(path.read_text("utf-8"))}
    assert found == {"engine.py", "__init__.py"}
    # The package imports its rooms when they are asked for, by their names.
    assert {"attention.py", "clinic/diagnosis.py"} <= {
        path.relative_to(ROOT / "vit_tutorial").as_posix() for path in build.files_behind("01_x", "import vit_tutorial")
    }
    assert not any(dynamic.search(code_of(path.stem)) for path in NOTEBOOKS)


def test_what_chapters_say_where_data_are_missing_is_looked_for():
    sources = " ".join([page("vit_tutorial/data/load.py"), *(code_of(path.stem) for path in NOTEBOOKS)])
    assert all(words.strip("'") in sources for words in build.MISSING)
    outputs = [new_output("stream", text=text) for text in ("The published\nweights aren't", " here: below, …")]
    assert build.stand_ins(new_notebook(cells=[new_code_cell(outputs=outputs)])) == [build.MISSING[1]]
