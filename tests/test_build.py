"""book/build.py runs a notebook when its outputs may have changed, and at no other time."""

import copy
import json
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_cache import get_cache
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import ROOT

sys.path.insert(0, str(ROOT / "book"))
import build


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A book of two notebooks in an empty folder."""
    for name, value in {
        "ROOT": tmp_path,
        "BUILD": tmp_path / "_build",
        "EXECUTED": tmp_path / "_build" / "executed",
        "CACHE": tmp_path / "_build" / ".jupyter_cache",
        "TIMES": tmp_path / "_build" / "notebook_times.json",
    }.items():
        monkeypatch.setattr(build, name, value)
    (tmp_path / "vit_tutorial" / "checks").mkdir(parents=True)
    (tmp_path / "vit_tutorial" / "one.py").write_text("ONE = 1\n")
    (tmp_path / "vit_tutorial" / "checks" / "two.py").write_text("TWO = 2\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "notebooks").mkdir()
    write(tmp_path, "01_good", "print('good', 6 * 7)")
    write(tmp_path, "02_other", "1 + 1")
    return tmp_path


def write(checkout: Path, stem: str, *sources: str, prose: str = "# Title", alt: str = "A line.") -> None:
    figure = {"mystnb": {"image": {"alt": alt}}}
    cells = [new_markdown_cell(prose), *(new_code_cell(source, metadata=copy.deepcopy(figure)) for source in sources)]
    nbformat.write(new_notebook(cells=cells), checkout / "notebooks" / f"{stem}.ipynb")


def outdated() -> list[str]:
    package = build.package_key()
    return [
        path.stem
        for path, notebook in build.notebooks().items()
        if build.has_to_run(path, build.notebook_key(notebook, package))
    ]


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


def test_a_failing_notebook_shows_its_cell_and_is_run_again_alone(checkout, capfd):
    write(checkout, "02_other", "first = 1", "raise ValueError(f'no good: {first}')")
    with pytest.raises(SystemExit, match=r"failed: 02_other\.ipynb"):
        build.execute()
    shown = capfd.readouterr().out
    assert "raise ValueError(f'no good: {first}')" in shown
    assert "no good: 1" in shown
    assert outdated() == ["02_other"]
    with pytest.raises(SystemExit, match=r"not executed yet: 02_other\.ipynb"):
        build.html()


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
        (lambda root: (root / "vit_tutorial" / "__pycache__").mkdir(), []),
        (lambda root: (root / "vit_tutorial" / "one.py").write_text("ONE = 3\n"), ["01_good", "02_other"]),
        (lambda root: (root / "vit_tutorial" / "checks" / "two.py").write_text("TWO = 3\n"), ["01_good", "02_other"]),
        (lambda root: (root / "vit_tutorial" / "data.json").write_text("{}"), ["01_good", "02_other"]),
        (
            lambda root: (root / "vit_tutorial" / "one.py").rename(root / "vit_tutorial" / "1.py"),
            ["01_good", "02_other"],
        ),
    ],
)
def test_what_makes_a_notebook_run_again(change, expected, checkout, monkeypatch):
    package = build.package_key()
    build.EXECUTED.mkdir(parents=True)
    for path, notebook in build.notebooks().items():
        executed, key_file = build.results(path)
        executed.touch()
        key_file.write_text(build.notebook_key(notebook, package))
    change(checkout)
    assert outdated() == expected
    monkeypatch.setenv("VIT_TUTORIAL_BUDGET", "full")
    assert outdated() == sorted(path.stem for path in build.notebooks())


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
