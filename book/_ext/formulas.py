"""Formulas as MathML, made when the book is built: Sphinx leaves them to a script, or makes pictures of them.

Their letters are in book/_static/formulas.woff2, a part of TeX Gyre Pagella Math. To make it again, with more letters:

    python book/_ext/formulas.py texgyrepagella-math.otf
"""

import sys
from pathlib import Path

from docutils import nodes
from fontTools import subset
from math_core import LatexError, LatexToMathML
from sphinx.errors import SphinxError

FONT = Path(__file__).parent.parent / "_static/formulas.woff2"
# Latin, Greek and what is bold, slanted, script or double-struck of it; accents, arrows, operators, fences.
LETTERS = [
    *(0xA0, 0xAC, 0xAF, 0xB0, 0xB1, 0xB7, 0xD7, 0xF7, 0x2C6, 0x2DC, 0x3D1, 0x3D5, 0x3F1, 0x3F5, 0x20D7, 0x332, 0x338),
    *(0x2016, 0x2026, 0x2032, 0x2033, 0x203E, 0x21A6, 0x21D0, 0x21D2, 0x21D4, 0x27E8, 0x27E9),
    *range(0x20, 0x7F), *range(0x302, 0x308), *range(0x391, 0x3CA), *range(0x2100, 0x2150), *range(0x2190, 0x2195),
    *range(0x2200, 0x2300), *range(0x2308, 0x230C), *range(0x1D400, 0x1D468), *range(0x1D49C, 0x1D4B6),
    *range(0x1D538, 0x1D552), *range(0x1D6A8, 0x1D756), *range(0x2061, 0x2065),
]  # fmt: skip
CONVERTER = LatexToMathML(fancy_error=False)


def mathml(node: nodes.math | nodes.math_block) -> str:
    """A formula in MathML.

    Raises:
        SphinxError: if it cannot be rendered.
    """
    try:
        return CONVERTER.convert_with_local_state(node.astext(), displaystyle=isinstance(node, nodes.math_block))
    except LatexError as error:
        raise SphinxError(f"{node.source}:{node.line}: no formula: {node.astext()!r}: {error}") from error


def visit(translator, node) -> None:
    """Write a formula, in the text or in a block of its own, which scrolls where it is too wide.

    Not in the class "math": there the theme, and scripts such as MathJax, expect TeX that is yet to be rendered.
    """
    tag = "div" if isinstance(node, nodes.math_block) else "span"
    translator.body.append(f"{translator.starttag(node, tag, '', CLASS='formula notranslate')}{mathml(node)}</{tag}>")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit, None), (visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def make_font(whole: str) -> None:
    """Write FONT from a whole one. A prime gets the shape that it has above a letter: browsers don't look for it."""
    options = subset.Options(flavor="woff2", hinting=False, desubroutinize=True, layout_features=[])
    options.drop_tables += ["FFTM", "GPOS", "DSIG"]
    font = subset.load_font(whole, options)
    for table in font["cmap"].tables:
        if table.isUnicode():
            table.cmap[0x2032] = "minute.st"
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=LETTERS)
    subsetter.subset(font)
    subset.save_font(font, FONT, options)


if __name__ == "__main__":
    make_font(sys.argv[1])
