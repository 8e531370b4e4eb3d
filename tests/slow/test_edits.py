"""A reader changes something and runs on: whatever ends in an error is about the edit.

`edits/<name>.toml` has a chapter's edits, each under what a reader would say they did:

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

EDITS = {
    f"{path.stem}: {name}": (path, edit)
    for path in NOTEBOOKS
    if (file := Path(__file__).parent / f"edits/{path.stem[3:]}.toml").exists()
    for name, edit in tomllib.loads(file.read_text(encoding="utf-8")).items()
}


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


@pytest.mark.parametrize("edit", EDITS)
def test_after_an_edit_everything_runs(edit, tmp_path):
    path, changes = EDITS[edit]
    run_all(edited(read(path), **changes), tmp_path)


def test_every_chapter_has_six_edits():
    assert all(sum(path.stem in edit for edit in EDITS) >= 6 for path in NOTEBOOKS)


def test_an_edit_that_breaks_a_later_cell_is_found(tmp_path):
    cells = [nbformat.v4.new_code_cell(source, id=f"c{i}") for i, source in enumerate(["n = 4", "assert n == 4"])]
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="assert n == 4"):
        run_all(edited(nbformat.v4.new_notebook(cells=cells), "c0", "4", "5"), tmp_path)
