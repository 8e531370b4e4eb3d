"""Notebooks keep to the rules, and a notebook that breaks one is found."""

import copy

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import INSTALL, NOTEBOOKS, SLUG, badge, problems, read


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_keeps_to_the_rules(path):
    assert problems(read(path), path.name, badge(path.name), INSTALL) == []


def good_notebook() -> nbformat.NotebookNode:
    alt = {"mystnb": {"image": {"alt": "A line that rises from left to right, as it should."}}}
    hint = "<details><summary>Hint</summary>\n\nUse fingers.\n\n</details>"
    figure = "import matplotlib.pyplot as plt\n\nplt.plot([1, 2])\nplt.show()"
    title = f"# 1 · A title\n\n[![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)]({badge('01_x.ipynb')})"
    notebook = new_notebook(
        cells=[
            new_markdown_cell(title),
            new_code_cell(f'import importlib.util\n\nif False:\n    %pip install "{INSTALL}"'),
            new_code_cell("def show(x):\n    plots.heatmap(x)\n    plt.show()"),
            new_code_cell(figure, metadata=alt),
            new_markdown_cell(
                "### Exercise 1: count\n\nThe set `{a}` and $x^{n}$.\n\n$$\nx_{1}\n$$\n\n"
                f"```python\n# a comment\n```\n\n{hint}"
            ),
        ]
    )
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def found_in(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(problems(notebook, "01_x.ipynb", badge("01_x.ipynb"), INSTALL))


def test_a_good_notebook_has_no_problems():
    assert found_in(good_notebook()) == ""


def _set(cell: int, **changes):
    return lambda notebook: notebook.cells[cell].update(changes)


def _source(cell: int, old: str, new: str):
    def change(notebook):
        assert old in notebook.cells[cell].source
        notebook.cells[cell].source = notebook.cells[cell].source.replace(old, new)

    return change


def _add(cell: nbformat.NotebookNode):
    return lambda notebook: notebook.cells.append(cell)


def _alt(text: str):
    return lambda notebook: notebook.cells[3].metadata.mystnb.image.update(alt=text)


BROKEN = {
    "outputs": (_set(3, outputs=[new_output("stream", text="1")]), "cell 3: has outputs"),
    "execution count": (_set(3, execution_count=1), "cell 3: has outputs or an execution count"),
    "no alt": (_set(3, metadata={}), "cell 3: draws, but has no alt text"),
    "no alt in a loop": (_add(new_code_cell("for i in range(2):\n    plots.bars(i)")), "cell 5: draws"),
    "no alt through a function": (_add(new_code_cell("show(3)")), "cell 5: draws"),
    "no alt on the diagram": (_add(new_code_cell('model_diagram("patches")')), "cell 5: draws"),
    "a path as alt": (_alt("../_build/jupyter_execute/0123456789abcdef.png"), "alt text is no sentence"),
    "empty alt": (_alt(""), "alt text is no sentence"),
    "double quotes in alt": (_alt('A line that is called "the line", from left to right.'), "alt text is no sentence"),
    "another chapter's badge": (_source(0, "01_x.ipynb", "02_y.ipynb"), "no Colab badge of its own"),
    "a fork's badge": (_source(0, f"github/{SLUG}", "github/someone/else"), "no Colab badge of its own"),
    "no badge": (_set(0, source="# 1 · A title"), "no Colab badge of its own"),
    "no title": (_source(0, "# 1 · A title", "A title"), "cell 0 is no title"),
    "a second title": (_add(new_markdown_cell("# 2 · Again")), "not exactly one title"),
    "other set-up": (_source(1, SLUG, "someone/else"), "does not install"),
    "exercise numbers": (_source(4, "Exercise 1", "Exercise 2"), "numbered [2]"),
    "no hint": (_source(4, "<summary>Hint", "<summary>More"), "Exercise 1: count: not exactly one folded hint"),
    "an open hint": (_source(4, "\n\n</details>", ""), "Exercise 1: count: not exactly one folded hint"),
    "an empty hint": (_source(4, "Use fingers.", ""), "Exercise 1: count: not exactly one folded hint"),
    "a hint for two": (
        _source(4, "### Exercise 1: count", "### Exercise 1: count\n\n### Exercise 2: sum"),
        "not exactly one",
    ),
    "directive": (_add(new_markdown_cell("```{note}\nText\n```")), "MyST directive"),
    "colon directive": (_add(new_markdown_cell(":::{note}\nText\n:::")), "MyST directive"),
    "role": (_add(new_markdown_cell("See {cite}`someone2021`.")), "MyST role"),
    "label": (_add(new_markdown_cell("(my-label)=\n## Heading")), "MyST label"),
    "image tag": (_add(new_markdown_cell('<img src="x.png">')), "raw HTML"),
    "CDN": (_add(new_markdown_cell("[x](https://cdn.jsdelivr.net/npm/x)")), "a CDN's address"),
    "inline display maths": (_add(new_markdown_cell("$$x^2$$")), "line of its own"),
    "open display maths": (_add(new_markdown_cell("$$\nx^2")), "not closed"),
    "same id twice": (lambda notebook: notebook.cells[1].update(id=notebook.cells[2].id), "not unique"),
    "kernel": (lambda notebook: notebook.metadata.kernelspec.update(name="my-env"), "kernel is not python3"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_notebook_is_found(change, message):
    notebook = copy.deepcopy(good_notebook())
    change(notebook)
    assert message in found_in(notebook)
