"""Notebooks keep to the rules, and a notebook that breaks one is found."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from notebook_rules import INSTALL, NOTEBOOKS, badge, problems, read


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_keeps_to_the_rules(path):
    assert problems(read(path), path.name, badge(path.name), INSTALL) == []


FAULTS = {  # of each of the rules' functions, what it says
    "draws, but has no alt text": new_code_cell("def show(x):\n    plots.heatmap(x)\n\n\nshow(3)"),
    "there is not exactly one title": new_markdown_cell("# 2 · Again"),
    "a MyST role": new_markdown_cell("See {cite}`someone2021`."),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_notebook_with_a_fault_is_found(message):
    notebook, name = read(NOTEBOOKS[0]), NOTEBOOKS[0].name
    notebook.cells.append(FAULTS[message])
    assert message in "\n".join(problems(notebook, name, badge(name), INSTALL))
