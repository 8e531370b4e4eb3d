"""Run the code of a chapter as on a GPU, with either budget: ``python tests/slow/rehearsal.py 06_training full``.

The GPU is pretended. What stands in for the real data has few images, so that every recipe is soon over.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {"train": 16, "val": 64, "test": 64}
OWN = {"08_attention_maps": ("shapes",), "09_pretrained": ("digits", "shapes"), "12_clinic": ("digits",)}
# What is written, and what is run instead: few images teach little, and in a few epochs as much as in many; nothing is
# compiled for a GPU that isn't there, and chapter 11 measures larger things on a GPU than this machine should.
INSTEAD = {
    "02_positions": {"model, epochs=10,": "model, epochs=1,"},
    "03_attention": {" 400, 0.01": " 10, 0.01", " 600, 3e-3": " 10, 3e-3", "for _ in range(3)": "for _ in range(1)"},
    "04_encoder": {"every = 300": "every = 20", "seeds = 12, 40": "seeds = 2, 4", "twins = 100": "twins = 12"},
    "05_model": {"seed, epochs = 0, 12": "seed, epochs = 0, 1", "range(3), 4  #": "range(1), 1  #"},
    "06_training": {"replace(recipe, dataset=data)": "replace(recipe, dataset=data, epochs=2)", "else 40": "else 2"},
    "07_recipes": {
        'recipe = RECIPES["cifar10-small"]': 'recipe = replace(RECIPES["cifar10-small"], epochs=3)',
        "photographs[1000:]": "photographs[4:]",
    },
    "08_attention_maps": {"NUM_TRIALS = 300": "NUM_TRIALS = 60", "NUM_HIDDEN = 200": "NUM_HIDDEN = 20"},
    "09_pretrained": {"range(2), 30": "range(1), 3", "number = 500": "number = 60", "300, 1000), 10": "300), 2"},
    "10_what_matters": {"base_seeds = 4, 3, 4": "base_seeds = 1, 3, 4", "shift_epochs = 0, 3": "shift_epochs = 0, 1"},
    "11_speed": {
        "8192 if device": "64 if device",
        "512 if device": "8 if device",
        "at_once = 32": "at_once = 1",
        "192, 3, 6": "192, 3, 1",
        "rounds = 3": "rounds = 1",
        "2**17, 48": "2**9, 48",
        "2**24": "2**12",
        "if has_bf16 and importlib": "if False and importlib",
    },
    "12_clinic": {
        "epochs=6, batch_size=48": "epochs=2, batch_size=48",
        "steps = 200": "steps = 50",
        "seeds, kinds = range(8)": "seeds, kinds = range(2)",
    },
    "13_modern": {
        "150, 0.02, range(3)": "3, 0.02, range(1)",
        "150, 0.05, range(3)": "3, 0.05, range(1)",
        "0.03, 100, range(3)": "0.03, 20, range(1)",
        "250, 0.01, range(3)": "3, 0.01, range(1)",
    },
}


def code_of(stem: str) -> list[str]:
    """The chapter's code cells, altered where ``INSTEAD`` says so.

    Raises:
        ValueError: if the chapter does not have what is to be replaced.
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
    os.environ |= {
        "VIT_TUTORIAL_BUDGET": budget,
        "VIT_TUTORIAL_DATA": "no-such-folder",
        "VIT_TUTORIAL_DOWNLOAD": "0",
        "MPLBACKEND": "agg",
    }
    InteractiveShell.instance()  # for display handles
    run_cells(stem, cells)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    rehearse(*sys.argv[1:])
