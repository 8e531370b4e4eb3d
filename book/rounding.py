"""Which claims hang on rounding? Run chapters whose trainings start a millionth off, and list what no longer holds.

    python book/rounding.py                                every chapter, three times
    python book/rounding.py notebooks/05_model.ipynb       this one

Processors round differently, and a training makes another model out of a last bit. What a page says has to hold for
that one, too, or the book can't be built on a reader's machine. So the first cell here moves each matrix that an
optimizer gets, by a factor of 1 ± 0.000001 or so; a claim that fails says so in a line and doesn't end the run.
"""

import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2
FIRST_CELL = """
def start_a_millionth_off():  # a function, so that the chapter's own names touch nothing here
    import torch

    start = torch.optim.Optimizer.__init__

    def moved(self, params, defaults):
        start(self, params, defaults)
        for parameter in [p for group in self.param_groups for p in group["params"] if p.ndim == 2]:
            generator = torch.Generator().manual_seed(1000 * {number} + len(parameter))  # equal starts stay equal
            by = 1 + 1e-6 * torch.randn(parameter.shape, generator=generator)
            parameter.data.mul_(by.to(parameter))

    torch.optim.Optimizer.__init__ = moved

start_a_millionth_off()
"""


def not_surviving(path: Path, number: int) -> list[str]:
    """The claims that fail in run ``number`` of a notebook, and the cells that end in an error."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(FIRST_CELL.format(number=number)))
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=600, kernel_name="python3", allow_errors=True, resources=resources)
        client.execute(env=os.environ | {"OMP_NUM_THREADS": "1", "VIT_TUTORIAL_CHECK": "0"})
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                title = cell.source.strip().partition("\n")[0]
                found.append(f"{title}: {output.ename}: {output.evalue}")
            elif output.get("name") == "stdout":
                found += re.findall(r"^The text (?:says|counts on) (.*)\.$", output.text, re.MULTILINE)
    return found


def main(paths: list[Path], times: int = 3) -> None:
    """A line for each chapter and run; exit with 1 where something doesn't survive."""

    def report(run: tuple[int, Path]) -> bool:
        number, path = run
        found = not_surviving(path, number)
        print(f"  {path.stem:20} run {number}:", "; ".join(found) or "all holds", flush=True)
        return bool(found)

    with ThreadPoolExecutor(WORKERS) as pool:
        failed = sum(pool.map(report, product(range(1, times + 1), paths)))
    if failed:
        sys.exit(f"{failed} of {times * len(paths)} runs disagree with their text. Wider bounds, or another sentence?")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb")))
