"""What a chapter says, held to what its cells computed: `tests/claims/<name>.py`, run in the chapter's kernel.

Each function there stands after a cell, and its arguments are names of the notebook. The build injects one cell for all
of a cell's functions into the copy that nbmake runs, and takes it out before anything is rendered.
"""

import importlib.util
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

CLAIMS = Path(__file__).parent / "claims"
TAG = "claims"


def after(cell: str) -> Callable[[Callable], Callable]:
    """Let a function run after the cell with this id."""

    def stands(function: Callable) -> Callable:
        function.after = cell
        return function

    return stands


def claim(phrase: str | None, holds: Any, *, when: Any = True) -> None:
    """Hold a phrase of the chapter to a measurement.

    Args:
        phrase: as the text has it; a test looks for it there. None if there are no words that could be quoted.
        holds: whether the measurement agrees: a bool, or a tensor or array with one element.
        when: whether the phrase is about this run: False if stand-in data or another budget were used.

    Raises:
        AssertionError: if the measurement doesn't agree, with what the calling function knows.
        TypeError: if ``holds`` or ``when`` is not a truth value.
    """
    truths = [value.item() if getattr(value, "shape", None) in ((), (1,)) else value for value in (holds, when)]
    if not all(isinstance(value, bool) for value in truths):
        raise TypeError(f"a claim takes truth values, such as 0.96 < accuracy < 0.98; got {holds!r} and {when!r}")
    if truths == [False, True]:
        known = inspect.currentframe().f_back.f_locals
        raise AssertionError(
            f"the text says “{phrase}”; here: {', '.join(f'{k} = {v!r:.300}' for k, v in known.items())}"
        )


def claims_file(name: str) -> Path:
    return CLAIMS / f"{name}.py"


@cache
def module(name: str) -> ModuleType:
    """The claims of a chapter."""
    spec = importlib.util.spec_from_file_location(f"claims_of_{name}", claims_file(name))
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def functions(name: str) -> list[Callable]:
    """A chapter's functions with claims, in their order; none if it has no such file."""
    if not claims_file(name).exists():
        return []
    return [value for value in vars(module(name)).values() if hasattr(value, "after")]


def anchors(name: str) -> set[str]:
    """Ids of the cells after which there are claims."""
    return {function.after for function in functions(name)}


def cell_after(name: str, cell: str) -> nbformat.NotebookNode:
    """The cell that runs what stands after a cell."""
    code = f"__import__('claiming').check({name!r}, {cell!r}, globals())"
    return new_code_cell(code, id=f"{cell[:50]}-{TAG}", metadata={"tags": [TAG]})


def check(name: str, cell: str, names: dict[str, Any]) -> None:
    """Run a chapter's claims after a cell with the notebook's names; what is drawn at random there changes nothing.

    Raises:
        NameError: if the notebook lacks a name.
    """
    import torch

    for function in functions(name):
        if function.after == cell:
            wanted = list(inspect.signature(function).parameters)
            if missing := [argument for argument in wanted if argument not in names]:
                raise NameError(f"{function.__name__} wants {missing}, which the notebook hasn't defined by then")
            with torch.random.fork_rng():
                function(**{argument: names[argument] for argument in wanted})


def inject(notebook: nbformat.NotebookNode, name: str) -> None:
    """Let each cell be followed by its claims.

    Raises:
        ValueError: if claims stand after a cell that isn't there.
    """
    wanted = anchors(name)
    if lost := wanted - {cell.get("id") for cell in notebook.cells}:
        raise ValueError(f"tests/claims/{name}.py has claims after cells that aren't there: {sorted(lost)}")
    cells = [(cell, cell_after(name, cell.id)) if cell.get("id") in wanted else (cell,) for cell in notebook.cells]
    notebook.cells = [cell for pair in cells for cell in pair]


def strip(notebook: nbformat.NotebookNode) -> None:
    notebook.cells = [cell for cell in notebook.cells if TAG not in cell.metadata.get("tags", [])]
