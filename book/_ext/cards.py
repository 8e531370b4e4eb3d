"""Cards, captions and exercises from plain Markdown: the directives that libraries have would be raw text in Colab.

> **Predict.** …      a blockquote that begins with a bold word is a card: Predict, Pitfall, Takeaway, Patient
> **Exercise.** …     begins a card that goes on to the end of the solution: stars and time, task, hint, cell, solution
**Figure 3.2.** …     a paragraph that begins so is the caption of the figure above it, and links to what draws it
[![Open In Colab]…    the line under a chapter's title
{{ chapters }}        in a page of the book: a card for each chapter, by the README and _toc.yml
{{ exercises }}       in a table: a row for each chapter, with the names of its exercises
"""

import re
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.transforms import SphinxTransform

from vit_tutorial.exercises import CHAPTERS

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


def link_to_drawing(caption: nodes.paragraph, chapter: str) -> None:
    """Let the caption of a figure end in a link to the function that drew it, if the cell above calls one."""
    above = caption.parent[max(0, caption.parent.index(caption) - 1)]
    code = "".join(block.astext() for block in above.findall(nodes.literal_block))
    if (called := re.findall(r"\bfigures\.(\w+)\(", code)) and "cell" in above.get("classes", ()):
        page = f"../_modules/vit_tutorial/figures/{chapter}.html#{called[-1]}"
        caption += [nodes.Text(" "), nodes.reference("", "Its code", refuri=page, classes=["drawn-by"])]


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
                link_to_drawing(paragraph, Path(self.env.docname).name[3:])
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


def chapter_cards(root: Path) -> str:
    """A grid of cards for each part of the book that has chapters, as MyST."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(.*?)\]\((notebooks/\w+)\.ipynb\) \| (.*?) \| \[!", readme, re.MULTILINE)
    cards = {
        file: f":::{{grid-item-card}} {title}\n:link: ../{file}\n:link-type: doc\n:class-card: chapter-card\n\n"
        f"{what}\n\n{{{{ minutes_{file[10:12]} }}}} minutes\n:::\n"
        for title, file, what in rows
    }
    made = ""
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        if own := "".join(cards.get(chapter["file"], "") for chapter in part["chapters"]):
            made += f"### {part['caption']}\n\n::::{{grid}} 1 1 2 2\n:gutter: 3\n\n{own}::::\n\n"
    return made.strip()


def exercise_rows(_: Path) -> str:
    """A row of a table for each chapter."""
    return "\n".join(
        f"| [{number}](../notebooks/{number:02}_{name}.ipynb) | {', '.join(f'`{exercise}`' for exercise in names)} |"
        for number, (name, names) in enumerate(CHAPTERS.items(), 1)
    )


def fill(app, docname, source):
    """Put in what is the same for all chapters, before the page is parsed."""
    for place, make in {"{{ chapters }}": chapter_cards, "{{ exercises }}": exercise_rows}.items():
        if place in source[0] and docname.startswith("book/"):
            source[0] = source[0].replace(place, make(Path(app.srcdir)))


def setup(app):
    app.connect("config-inited", give_minutes)
    app.connect("source-read", fill)
    app.add_transform(Cards)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
