"""Run the code of a chapter as on a GPU, with either budget: ``python tests/rehearsal.py 06_training full``.

The GPU is pretended, data sets keep a few hundred images, recipes two epochs, and without the real data: what a page
says of recorded runs rests, every other assertion holds.
"""

import contextlib
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = {"train": 256, "val": 64, "test": 64}
EPOCHS = 2
# Chapters measure larger things on a GPU than this machine should: what is written, and what is run instead.
SMALLER = {
    "11_speed": {"8192 if device": "64 if device", "512 if device": "8 if device", "at_once = 32": "at_once = 1"},
}


def code_of(stem: str) -> list[str]:
    """The chapter's code cells, smaller where ``SMALLER`` says so.

    Raises:
        ValueError: if the chapter does not have what ``SMALLER`` replaces.
    """
    import nbformat

    notebook = nbformat.read(ROOT / f"notebooks/{stem}.ipynb", as_version=4)
    cells = [cell.source.replace("    %pip", "    pass  #") for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in SMALLER.get(stem, {}).items():
        if not any(old in cell for cell in cells):
            raise ValueError(f"{stem} has no {old!r}")
        cells = [cell.replace(old, new) for cell in cells]
    return cells


def run_cells(stem: str, cells: list[str]) -> None:
    """Run the code, cell by cell, on a pretended GPU and in a folder of its own; an error names its cell."""
    from pretended_gpu import pretended_gpu

    names = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), pretended_gpu():
        for number, cell in enumerate(cells):
            try:
                exec(compile(cell, f"{stem}, code cell {number}", "exec"), names)
            except Exception as error:
                error.add_note(f"in {stem}, code cell {number}:\n{cell}")
                raise


def rehearse(stem: str, budget: str) -> None:
    """Run every cell of the chapter with few images and epochs."""
    from IPython.core.interactiveshell import InteractiveShell

    from vit_tutorial import data, recipes

    whole = data.load_dataset

    def few(name, split="train", **options):
        dataset = whole(name, split, **{**options, "download": False})
        small = name == "digits" or name.startswith("folder:")
        return dataset if small else dataset[: IMAGES[split]]

    for place in (data, recipes):
        place.load_dataset = few
    for name, recipe in recipes.RECIPES.items():
        recipes.RECIPES[name] = replace(recipe, epochs=min(recipe.epochs, EPOCHS))
    os.environ |= {"VIT_TUTORIAL_BUDGET": budget, "VIT_TUTORIAL_DATA": "no-such-folder", "MPLBACKEND": "agg"}
    InteractiveShell.instance()  # for display handles
    run_cells(stem, code_of(stem))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    rehearse(*sys.argv[1:3])
