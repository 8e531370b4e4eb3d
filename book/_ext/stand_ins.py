"""A banner on top of each page that was built on stand-in data, by what its notebook printed when it ran."""

import re
from pathlib import Path

import nbformat
from docutils import nodes

SAID = re.compile(r"Going on with '(\w+)' instead")
NAMES = {"digits": "small digits", "shapes": "drawn shapes"}


def stand_ins(notebook: nbformat.NotebookNode) -> list[str]:
    """The data sets that an executed notebook went on with, as its outputs tell."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    return sorted(set(SAID.findall(re.sub(r"\s+", " ", text))))


def banner(app, doctree):
    executed = Path(app.srcdir) / "_build/executed" / f"{Path(app.env.docname).name}.ipynb"
    title = next(iter(doctree.findall(nodes.title)), None)
    if not app.env.docname.startswith("notebooks/") or not executed.exists() or title is None:
        return
    if found := stand_ins(nbformat.read(executed, as_version=4)):
        names = " and ".join(NAMES.get(name, name) for name in found)
        text = (
            f"The real images weren't there when this page was built, so {names} stand in for them. The text tells of "
            "the real ones; figures and printed numbers on this page differ from it."
        )
        place = title.parent.index(title) + 1
        title.parent.insert(place, nodes.warning("", nodes.paragraph("", text), classes=["stand-in"]))


def setup(app):
    app.connect("doctree-read", banner)
