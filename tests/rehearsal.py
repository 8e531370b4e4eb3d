"""Run the code of a chapter as on a GPU, with either budget: ``python tests/rehearsal.py 06_training full``.

The GPU is pretended. What stands in for the real data has few images, so that every recipe is soon over. So nothing is
held to what the page claims: as for a reader who has changed something, a claim that fails is a line.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = {"train": 16, "val": 64, "test": 64}
OWN = {  # sets that stay whole
    "08_attention_maps": ("shapes",),
    "09_pretrained": ("digits", "shapes"),
    "12_clinic": ("digits",),
}
# What is written, and what is run instead: few images teach little, and in a few epochs as much as in many; nothing is
# compiled for a GPU that isn't there, and chapter 11 measures larger things on a GPU than this machine should.
INSTEAD = {
    "06_training": {
        "recipe = replace(recipe, dataset=data)": "recipe = replace(recipe, dataset=data, epochs=2)",
        "epochs=16,": "epochs=2,",
    },
    "07_recipes": {'recipe = RECIPES["cifar10-small"]': 'recipe = replace(RECIPES["cifar10-small"], epochs=3)'},
    "08_attention_maps": {"shapes_test[:600]": "shapes_test[:200]", "trial = test[:300]": "trial = test[:30]"},
    "09_pretrained": {
        "else (COUNTS, 5, 4)": "else ((10, 100, 1000), 2, 1)",
        "300: 60, 1000: 60}": "1000: 10}",
        "300: 200, 1000: 200}": "1000: 20}",
        "longer * 60, lr)": "longer * 15, lr)",
    },
    "10_what_matters": {"    epochs=4,": "    epochs=1,"},
    "11_speed": {"8192 if device": "64 if device", "512 if device": "8 if device", "at_once = 32": "at_once = 1"}
    | {"range(32)": "range(1)", "for _ in range(6)": "for _ in range(1)"},  # once is enough where no time counts
    "12_clinic": {
        "epochs=10, batch_size=64": "epochs=2, batch_size=64",
        'cross-entropy", 1000)': 'cross-entropy", 50)',
        "range(1, 1001)": "range(1, 51)",
    },
}


def code_of(stem: str) -> list[str]:
    """The chapter's code cells, changed where ``INSTEAD`` says so.

    Raises:
        ValueError: if the chapter does not have what ``INSTEAD`` replaces.
    """
    import nbformat

    notebook = nbformat.read(ROOT / f"notebooks/{stem}.ipynb", as_version=4)
    cells = [cell.source.replace("    %pip", "    pass  #") for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in INSTEAD.get(stem, {}).items():
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
    """Run every cell of the chapter with few images."""
    from IPython.core.interactiveshell import InteractiveShell

    from vit_tutorial import data, recipes

    whole = data.load_dataset

    cells = code_of(stem)

    def few(name, split="train", **options):
        dataset = whole(name, split, **{**options, "download": False})
        return dataset if name in OWN.get(stem, ()) or name.startswith("folder:") else dataset[: IMAGES[split]]

    for place in (data, recipes):
        place.load_dataset = few
    os.environ |= {"VIT_TUTORIAL_CHECK": "0", "VIT_TUTORIAL_BUDGET": budget, "VIT_TUTORIAL_DATA": "no-such-folder", "MPLBACKEND": "agg"}
    InteractiveShell.instance()  # for display handles
    run_cells(stem, cells)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    rehearse(*sys.argv[1:3])
