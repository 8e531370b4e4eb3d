"""Formulas are MathML: each of them, in letters that come with the book; one that fails stops the build."""

import re
from html import unescape

import pytest
from docutils import nodes
from fontTools.ttLib import TTFont
from formulas import FONT, mathml
from markdown_it import MarkdownIt
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from notebook_rules import NOTEBOOKS, ROOT, cells, read
from sphinx.application import Sphinx
from sphinx.errors import SphinxError

PARSER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin).use(amsmath_plugin)


def formulas_in(markdown: str) -> list[nodes.Node]:
    """The formulas of a text, in its order."""
    found = []
    for token in PARSER.parse(markdown):
        for part in (token, *(token.children or ())):
            if part.type.startswith(("math", "amsmath")):
                kind = nodes.math if part.type == "math_inline" else nodes.math_block
                found.append(kind(text=part.content))
    return found


def all_formulas() -> dict[str, list[nodes.Node]]:
    """The formulas of each page, by the page's name."""
    texts = {f"notebooks/{path.stem}": [cell.source for cell in cells(read(path), "markdown")] for path in NOTEBOOKS}
    texts |= {f"book/{path.stem}": [path.read_text(encoding="utf-8")] for path in (ROOT / "book").glob("*.md")}
    return {name: [formula for text in parts for formula in formulas_in(text)] for name, parts in texts.items()}


def test_every_formula_has_its_letters_in_the_font():
    letters = set(TTFont(FONT).getBestCmap())
    formulas = [formula for page in all_formulas().values() for formula in page]
    assert len(formulas) > 400
    for formula in formulas:
        shown = unescape(re.sub("<[^>]*>|\ufe00", "", mathml(formula)))  # which only chooses among shapes of a letter
        assert {char for char in shown if ord(char) not in letters} == set(), formula.astext()


def test_no_bar_that_must_stretch():
    """Chromium ends it too early, and shrinks a bracket below it. A bar over one letter doesn't stretch."""
    bar = '<mo stretchy="true">\u0332</mo></mover>'
    assert bar in mathml(nodes.math(text=r"\overline{\bigl(a + b\bigr)}"))
    assert bar not in mathml(nodes.math(text=r"\bar{\mathbf{A}}^{(\ell)}"))
    assert [formula.astext() for page in all_formulas().values() for formula in page if bar in mathml(formula)] == []


def test_a_formula_by_hand():
    formula = nodes.math(text=r"\frac{\mathbf{q}}{2}")
    assert mathml(formula) == "<math><mfrac><mi>𝐪</mi><mn>2</mn></mfrac></math>"
    assert mathml(nodes.math_block(text="x")).startswith('<math display="block">')


@pytest.mark.parametrize("broken", [r"\frac{1", r"\nosuchcommand", r"x^1^2", r"\left( x"])
def test_a_broken_formula_stops_the_build(broken, tmp_path):
    (tmp_path / "conf.py").write_text(
        'extensions = ["myst_parser", "formulas"]\nmyst_enable_extensions = ["dollarmath"]\n'
        'html_math_renderer = "mathml"'
    )
    page = tmp_path / "index.md"
    for formula in ("x^2", broken):
        page.write_text(f"# Title\n\nHere ${formula}$ stands.\n")
        app = Sphinx(tmp_path, tmp_path, tmp_path / "out", tmp_path / "trees", "html", status=None, freshenv=True)
        if formula != broken:
            app.build()
            assert (
                "<msup><mi>x</mi><mn>2</mn></msup></math></span> stands." in (tmp_path / "out/index.html").read_text()
            )
        else:
            with pytest.raises(SphinxError, match="no formula"):
                app.build()
