"""A reader changes something and runs on: whatever ends in an error is about the edit.

`edits/<name>.toml` has a chapter's edits, each under what a reader would say they did. Those of different cells share a
run.

    ["patches of 16"]
    cell = "cut"                    # this cell
    old = "patch_size = 32"         # has this
    new = "patch_size = 16"         # and gets that
    ["the training, once more"]
    cell = "train"
    again_after = "figure"          # is run once more, after this cell (which may be itself)
"""

import os
import tomllib
from pathlib import Path

import nbclient
import nbformat
import pytest
from notebook_rules import NOTEBOOKS, ROOT, read

FOLDER = Path(__file__).parent / "edits"
EDITS = {path: tomllib.loads((FOLDER / f"{path.stem[3:]}.toml").read_text(encoding="utf-8")) for path in NOTEBOOKS}


def together(edits: dict[str, dict]) -> list[dict[str, dict]]:
    """Edits that one run can have: of each cell at most one."""
    runs: list[dict[str, dict]] = []
    for name, edit in edits.items():
        free = (run for run in runs if edit["cell"] not in {other["cell"] for other in run.values()})
        run = next(free, None)
        if run is None:
            runs.append(run := {})
        run[name] = edit
    return runs


RUNS = {f"{path.stem}: {'; '.join(run)}": (path, run) for path, edits in EDITS.items() for run in together(edits)}


def edited(notebook: nbformat.NotebookNode, cell: str, old: str = "", new: str = "", again_after: str = ""):
    """The notebook as the reader leaves it.

    Raises:
        ValueError: if a cell isn't there, or hasn't what is to be replaced.
    """
    by_id = {found.id: found for found in notebook.cells}
    if cell not in by_id or old not in by_id[cell].source or (again_after and again_after not in by_id):
        raise ValueError(f"there's no cell {cell!r} with {old!r}, or no cell {again_after!r} to run it after")
    if old:
        by_id[cell].source = by_id[cell].source.replace(old, new)
    if again_after:
        place = notebook.cells.index(by_id[again_after]) + 1
        notebook.cells.insert(place, nbformat.from_dict(by_id[cell] | {"id": f"{cell}-again"}))
    return notebook


def run_all(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in a folder of its own; an error names its cell."""
    kernel = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    theirs = {"OMP_NUM_THREADS": "1", "VIT_TUTORIAL_BUDGET": "quick", "VIT_TUTORIAL_DOWNLOAD": "0"}
    kernel.execute(env=os.environ | theirs | {"PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("run", RUNS)
def test_after_an_edit_everything_runs(run, tmp_path):
    path, edits = RUNS[run]
    notebook = read(path)
    for edit in edits.values():
        notebook = edited(notebook, **edit)
    run_all(notebook, tmp_path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_has_six_edits_and_a_cell_that_runs_again(path):
    edits = EDITS[path].values()
    assert len(edits) >= 6 and any("again_after" in edit for edit in edits)
    for edit in edits:
        edited(read(path), **edit)


def test_an_edit_that_breaks_a_later_cell_is_found(tmp_path):
    cells = [nbformat.v4.new_code_cell(source, id=f"c{i}") for i, source in enumerate(["n = 4", "assert n == 4"])]
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="assert n == 4"):
        run_all(edited(nbformat.v4.new_notebook(cells=cells), "c0", "4", "5"), tmp_path)
