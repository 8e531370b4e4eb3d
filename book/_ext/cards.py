"""Plain Markdown, dressed: the style sheet gets classes to hold on to.

> **Predict.** …      a blockquote that begins with a bold word is a card: Exercise, Predict, Pitfall, Takeaway, Patient
**Figure 3.2.** …     a paragraph that begins so is the caption of the figure above it
[![Open In Colab]…    the line under a chapter's title
{{ minutes_03 }}      in a page of the book: how long chapter 3 takes, by the line under its title
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform

CARDS = ("exercise", "predict", "pitfall", "takeaway", "patient")


def first_bold(paragraph: nodes.Node) -> str:
    """The bold text that a paragraph begins with; "" if it begins otherwise."""
    first = next((child for child in paragraph.children if child.astext()), None)  # MyST begins with an empty text
    return first.astext().strip() if isinstance(first, nodes.strong) else ""


class Cards(SphinxTransform):
    default_priority = 800

    def apply(self, **kwargs):
        for quote in self.document.findall(nodes.block_quote):
            word = re.match(r"\w*", first_bold(quote.children[0]) if quote.children else "")[0].lower()
            if word in CARDS:
                quote["classes"] += ["card-note", f"card-{word}"]
        for paragraph in self.document.findall(nodes.paragraph):
            if re.fullmatch(r"(Figure|Table) \d+\.\d+\.", first_bold(paragraph)):
                paragraph["classes"].append("figure-caption")
            elif any("colab-badge" in image.get("uri", "") for image in paragraph.findall(nodes.image)):
                paragraph["classes"].append("chapter-line")


def minutes(notebooks: Path) -> dict[str, str]:
    """How long each chapter takes.

    Raises:
        ValueError: if a chapter does not say so.
    """
    found = {}
    for path in sorted(notebooks.glob("*.ipynb")):
        said = re.search(r"about (\d+) minutes", path.read_text(encoding="utf-8"))
        if not said:
            raise ValueError(f"{path.name} does not say `about N minutes` under its title")
        found[f"minutes_{path.stem[:2]}"] = said[1]
    return found


def give_minutes(app, config):
    config.myst_substitutions = {**config.myst_substitutions, **minutes(Path(app.srcdir) / "notebooks")}


def setup(app):
    app.connect("config-inited", give_minutes)
    app.add_transform(Cards)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
