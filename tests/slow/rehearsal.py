"""Run the code of a chapter as on a GPU, with either budget: ``python tests/slow/rehearsal.py 06_training full``.

Or as after a reader's changes, on the CPU: ``python tests/slow/rehearsal.py 06_training quick changed``.

The GPU is pretended. What stands in for the real data has few images, so that every recipe is soon over. So nothing is
held to what the page claims: as for a reader who has changed something, a claim that fails is a line.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = {"train": 16, "val": 64, "test": 64}
OWN = {  # sets that stay whole
    "08_attention_maps": ("shapes",),
    "09_pretrained": ("digits", "shapes"),
    "12_clinic": ("digits",),
}
# What is written, and what is run instead: few images teach little, and in a few epochs as much as in many; nothing is
# compiled for a GPU that isn't there, and chapter 11 measures larger things on a GPU than this machine should.
INSTEAD = {
    "02_positions": {"    epochs=10,": "    epochs=1,", "epochs=12": "epochs=1"},
    "03_attention": {"num_steps=400": "num_steps=10", "num_steps=1600": "num_steps=10", "steps=600": "steps=10"}
    | {"for _ in range(6)": "for _ in range(1)"},
    "04_encoder": {"steps=200": "steps=5", "rate, 60, seed": "rate, 12, seed", "3e-3, 60, seed": "3e-3, 12, seed"}
    | {"steps=100": "steps=12"},
    "05_model": {"epochs=15": "epochs=1"},
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
    "10_what_matters": {"base_seeds = 4, 3, 4": "base_seeds = 1, 3, 4", "shift_epochs = 0, 3": "shift_epochs = 0, 1"},
    "11_speed": {"8192 if device": "64 if device", "512 if device": "8 if device", "at_once = 32": "at_once = 1"}
    | {"192, 3, 6": "192, 3, 1", "rounds = 3": "rounds = 1", "2**17, 48": "2**9, 48"}  # where no time counts
    | {"2**24": "2**12", "if has_bf16 and importlib": "if False and importlib"},
    "12_clinic": {
        "epochs=10, batch_size=64": "epochs=2, batch_size=64",
        'cross-entropy", 1000)': 'cross-entropy", 50)',
        "range(1, 1001)": "range(1, 51)",
    },
}


SEED = {"torch.manual_seed(0)\ndevice": "torch.manual_seed(1)\ndevice"}
# Numbers in view, and what a reader may make of them: seeds, epochs, sizes; and an entry more where there are some.
CHANGED = {
    "01_patches": SEED | {"ph = pw = 32": "ph = pw = 16", "d = 5 ": "d = 7 ", "96:320, 208:432": "0:224, 100:324"},
    "02_positions": {
        "torch.manual_seed(0)\ntorch": "torch.manual_seed(1)\ntorch",
        "torch.randn(3, 16, 32)": "torch.randn(5, 16, 32)",
        "27, 28, 35": "18, 19, 26",
        "(12, 20)": "(10, 14)",
    },
    "03_attention": SEED
    | {
        "[96:320, 208:432]": "[0:224, 100:324]",
        "torch.randn(8, 49, 3)": "torch.randn(16, 49, 3)",
        "2, 5, 12, 3": "3, 7, 32, 4",
    },
    "04_encoder": SEED
    | {
        "dim, num_heads = 96, 3": "dim, num_heads = 64, 4",
        "patch_size=32": "patch_size=56",
        "sincos_2d((7, 7), dim)": "sincos_2d((4, 4), dim)",
    },
    "05_model": {
        "sizes = ((224, 224), (16, 16)": "sizes = ((224, 224), (32, 32)",
        "test_size=0.2": "test_size=0.3",
        "batch_size=64": "batch_size=32",
        "2, 48, 3, 4": "4, 32, 2, 2",
        "seed=0": "seed=3",
        "epochs=30": "epochs=2",
    },
    "06_training": SEED
    | {
        "patch_size=7": "patch_size=4",
        "embed_dim=32": "embed_dim=48",
        "depth=2": "depth=3",
        "else 40": "else 2",
        "(2, 4, 8)": "(1, 3)",
        "epochs=3)": "epochs=2)",
    },
    "07_recipes": SEED
    | {
        "images=4000": "images=1500",
        "epochs=3": "epochs=2",
        "batch_size=64": "batch_size=32",
        "expand(64,": "expand(32,",
    },
    "08_attention_maps": SEED
    | {
        "else 2  # try another": "else 3",
        "maps[-1][:, 1, 0]": "maps[-1][:, 0, 0]",
        "(0, 1, 2, 4, 8, 16)": "(0, 1, 4, 8)",
        '    "even": lambda': '    "reversed": lambda row: row.flip(-1),\n    "even": lambda',
    },
    "09_pretrained": SEED | {"(256, 384)": "(224, 320)", "count, (16,)": "count, (32,)", "lr=1e-3": "lr=5e-4"},
    "10_what_matters": SEED
    | {
        '"positions-learned")': '"positions-1d")',
        "worlds=600": "worlds=200",
        '        "no warm-up"': '        "no clipping": replace(base, clip_grad=0.0),\n        "no warm-up"',
        "seeds=3,": "seeds=2,",
        "base_seeds=6": "base_seeds=3",
        "(3, 10, 30)": "(2, 20)",
    },
    "11_speed": SEED
    | {
        "else 1024": "else 512",
        "dim, heads = 192, 3": "dim, heads = 128, 4",
        "[144, 256, 400, 576, 784, 1024, 1296]": "[64, 128, 256, 512]",
        "epochs=300, batch=4096": "epochs=100, batch=16_384",
    },
    "12_clinic": SEED
    | {
        "patch_size=2,\n": "patch_size=4,\n",
        "embed_dim=32": "embed_dim=48",
        "depth=2": "depth=3",
        "epochs=2, batch_size=64, lr=6e-3": "epochs=3, batch_size=32, lr=3e-3",
        "nhead=4": "nhead=4, batch_first=True",
    },
}


def code_of(stem: str, changed: bool = False) -> list[str]:
    """The chapter's code cells, altered where ``INSTEAD`` says so and, if ``changed``, by a reader as well.

    Raises:
        ValueError: if the chapter does not have what is to be replaced.
    """
    import nbformat

    notebook = nbformat.read(ROOT / f"notebooks/{stem}.ipynb", as_version=4)
    cells = [cell.source.replace("    %pip", "    pass  #") for cell in notebook.cells if cell.cell_type == "code"]
    in_view = [number < 2 or not cell.startswith("# @title") for number, cell in enumerate(cells)]  # or sets things up
    everywhere = [True] * len(cells)
    replaced = [(everywhere, INSTEAD.get(stem, {})), (in_view, CHANGED.get(stem, {}) if changed else {})]
    for old, new, where in [(old, new, where) for where, pairs in replaced for old, new in pairs.items()]:
        if not any(old in cell for cell, here in zip(cells, where, strict=True) if here):
            raise ValueError(f"{stem} has no {old!r}")
        cells = [cell.replace(old, new) if here else cell for cell, here in zip(cells, where, strict=True)]
    return cells


def run_cells(stem: str, cells: list[str], gpu: bool = True) -> None:
    """Run the code, cell by cell, on a pretended GPU and in a folder of its own; an error names its cell."""
    from pretended_gpu import pretended_gpu

    names = {"__name__": "__main__"}
    place = pretended_gpu() if gpu else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), place:
        for number, cell in enumerate(cells):
            try:
                exec(compile(cell, f"{stem}, code cell {number}", "exec"), names)
            except Exception as error:
                error.add_note(f"in {stem}, code cell {number}:\n{cell}")
                raise


def rehearse(stem: str, budget: str, changed: str = "") -> None:
    """Run every cell of the chapter with few images; with ``changed``, after a reader's changes and without a GPU."""
    from IPython.core.interactiveshell import InteractiveShell

    from vit_tutorial import data, recipes

    whole = data.load_dataset

    cells = code_of(stem, bool(changed))

    def few(name, split="train", **options):
        dataset = whole(name, split, **{**options, "download": False})
        return dataset if name in OWN.get(stem, ()) or name.startswith("folder:") else dataset[: IMAGES[split]]

    for place in (data, recipes):
        place.load_dataset = few
    os.environ |= {
        "VIT_TUTORIAL_CHECK": "0",
        "VIT_TUTORIAL_BUDGET": budget,
        "VIT_TUTORIAL_DATA": "no-such-folder",
        "VIT_TUTORIAL_DOWNLOAD": "0",
        "MPLBACKEND": "agg",
    }
    InteractiveShell.instance()  # for display handles
    run_cells(stem, cells, gpu=not changed)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    rehearse(*sys.argv[1:])
