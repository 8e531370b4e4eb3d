"""Formulas are MathML: each of them, in letters that come with the book; one that fails stops the build."""

import re
from html import unescape
from itertools import chain

import pytest
from docutils import nodes
from fontTools.ttLib import TTFont
from formulas import FONT, mathml
from markdown_it import MarkdownIt
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from notebook_rules import NOTEBOOKS, ROOT, cells, read
from sphinx.errors import SphinxError

PARSER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin).use(amsmath_plugin)
STRETCHED_BAR = '<mo stretchy="true">\u0332</mo></mover>'


def all_formulas() -> dict[str, list[nodes.Node]]:
    """The formulas of each page, by the page's name."""
    texts = {f"book/{path.stem}": [path.read_text(encoding="utf-8")] for path in (ROOT / "book").glob("*.md")}
    texts |= {f"notebooks/{path.stem}": [cell.source for cell in cells(read(path), "markdown")] for path in NOTEBOOKS}
    found = {}
    for name, parts in texts.items():
        tokens = [part for text in parts for token in PARSER.parse(text) for part in (token, *(token.children or ()))]
        maths = [token for token in tokens if token.type.startswith(("math", "amsmath"))]
        kinds = [nodes.math if token.type == "math_inline" else nodes.math_block for token in maths]
        found[name] = [kind(text=token.content) for kind, token in zip(kinds, maths, strict=True)]
    return found


def test_every_formula_has_its_letters_in_the_font_and_no_bar_that_must_stretch():
    """Chromium ends such a bar too early, and shrinks a bracket below it. A bar over one letter doesn't stretch."""
    letters, found = set(TTFont(FONT).getBestCmap()), [*chain(*all_formulas().values())]
    assert len(found) > 400
    for formula in found:
        shown = unescape(re.sub("<[^>]*>|\ufe00", "", mathml(formula)))  # which only chooses among shapes of a letter
        assert {char for char in shown if ord(char) not in letters} == set(), formula.astext()
        assert STRETCHED_BAR not in mathml(formula), formula.astext()
    assert STRETCHED_BAR in mathml(nodes.math(text=r"\overline{\bigl(a + b\bigr)}"))


def test_a_formula_by_hand_and_a_broken_one():
    formula = nodes.math(text=r"\frac{\mathbf{q}}{2}")
    assert mathml(formula) == "<math><mfrac><mi>𝐪</mi><mn>2</mn></mfrac></math>"
    assert mathml(nodes.math_block(text="x")).startswith('<math display="block">')
    with pytest.raises(SphinxError, match=r"no formula: '\\\\nosuchcommand'"):
        mathml(nodes.math(text=r"\nosuchcommand"))
