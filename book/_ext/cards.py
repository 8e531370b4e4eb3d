"""Cards, captions and exercises from plain Markdown: the directives that libraries have would be raw text in Colab.

> **Predict.** …      a blockquote that begins with a bold word is a card: Predict, Pitfall, Takeaway, Patient
> **Exercise.** …     begins a card that goes on to the end of the solution: stars and time, task, hint, cell, solution
**Figure 3.2.** …     a paragraph that begins so is the caption of the figure above it
[![Open In Colab]…    the line under a chapter's title
{{ minutes_03 }}      in a page of the book: how long chapter 3 takes, by the line under its title
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform

CARDS = ("predict", "pitfall", "takeaway", "patient")
EFFORT = re.compile(r"\s*([★☆]{3}) · (\d+ minutes)\. ")


def first_bold(paragraph: nodes.Node) -> str:
    """The bold text that a paragraph begins with; "" if it begins otherwise."""
    first = next((child for child in paragraph.children if child.astext()), None)  # MyST begins with an empty text
    return first.astext().strip() if isinstance(first, nodes.strong) else ""


def effort_line(task: nodes.paragraph) -> nodes.paragraph:
    """Take ``Exercise. ★★☆ · 10 minutes.`` off the beginning of a task, and give the line that says so.

    Raises:
        ValueError: if the task begins otherwise.
    """
    bold = next(task.findall(nodes.strong))
    text = bold.next_node(nodes.Text, descend=False, siblings=True)
    found = EFFORT.match(text or "")
    if not found:
        raise ValueError(f"an exercise does not begin with its stars and minutes: {task.astext()[:60]!r}")
    stars, time = found.groups()
    task.remove(bold)
    task.replace(text, nodes.Text(text[found.end() :]))
    spoken = f'<span role="img" aria-label="Difficulty {stars.count("★")} of 3">{stars}</span>'
    return nodes.paragraph("", "", nodes.raw("", spoken, format="html"), nodes.Text(f" {time}"), classes=["effort"])


def gather_exercise(quote: nodes.block_quote) -> None:
    """Put an exercise into one container, from its task to the end of its solution.

    Raises:
        ValueError: if it has no solution.
    """
    section, first = quote.parent, quote.parent.index(quote)
    raw = [(i, node.astext()) for i, node in enumerate(section) if i > first and isinstance(node, nodes.raw)]
    solution = next((i for i, html in raw if "<summary>Solution" in html), None)
    if solution is None:
        raise ValueError(f"an exercise has no solution: {quote.astext()[:60]!r}")
    last = next(i for i, html in raw if i > solution and "</details>" in html)
    rest = section[first + 1 : last + 1]
    card = nodes.container("", effort_line(quote[0]), *quote.children, *rest, classes=["card-exercise"])
    section[first : last + 1] = [card]


class Cards(SphinxTransform):
    default_priority = 800

    def apply(self, **kwargs):
        for quote in list(self.document.findall(nodes.block_quote)):
            word = re.match(r"\w*", first_bold(quote.children[0]) if quote.children else "")[0].lower()
            if word == "exercise":
                gather_exercise(quote)
            elif word in CARDS:
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
