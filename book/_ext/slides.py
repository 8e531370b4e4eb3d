"""Cuts a chapter's sections into those of which sphinx-revealjs makes slides; nothing else knows what a chapter is of.

A slide has a card, a figure, code in view with its result, a formula, a list or a table, and the sentence that leads up
to it. All prose goes to the speaker's notes, what is folded is left out, an exercise hangs below the slide before it.
"""

import re
import shutil
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from urllib.parse import urljoin

import live
import live_figures
from bs4 import BeautifulSoup
from docutils import nodes
from sphinx_revealjs.builders import RevealjsHTMLBuilder

CHAPTERS = ("01_patches", "02_positions", "03_attention", "04_encoder", "05_model", "08_attention_maps")
LEFT_OUT = ("What you built", "Questions to think about", "Further reading")  # sections that are read at home
WORDS = 30  # of sentences that stand on a slide by themselves
LINES = 22  # of code in letters that the back row reads
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z“])")
LISTS = nodes.math_block | nodes.Sequential | nodes.literal_block | nodes.table
UNUSED = shutil.ignore_patterns("*.map", "*.esm.js", "theme", "highlight")


def words(paragraph: nodes.Element, since: int = 0) -> nodes.paragraph:
    """As many of a paragraph's sentences as a slide may have, and at least one."""
    sentences, kept = [[]], nodes.paragraph()
    for child in paragraph.children:
        for i, part in enumerate(SENTENCE.split(child) if isinstance(child, nodes.Text) else [child]):
            sentences += [[]] if i else []
            sentences[-1].append(nodes.Text(part) if isinstance(part, str) else part.deepcopy())
    for sentence in sentences[since:]:
        longer = nodes.paragraph("", "", *kept.children, nodes.Text(" "), *sentence)
        if kept.children and len(longer.astext().split()) > WORDS:
            break
        kept = longer
    return kept


def in_view(section: nodes.Element) -> Iterator[nodes.Element]:
    """What stands on a page, one thing after the other, however deep its section, without what is folded."""
    folded = 0
    for child in section.children:
        if isinstance(child, nodes.section):
            yield from () if child[0].astext() in LEFT_OUT else in_view(child)
        elif isinstance(child, nodes.raw) and "details" in child.astext():
            folded += child.astext().count("<details") - child.astext().count("</details")
        elif not folded:
            yield child


def headings(element: nodes.Element) -> list[list[nodes.Node]]:
    """The titles of the chapter, the section and the exercise that something stands in."""
    above = headings(element.parent) if element.parent else []
    return [*above, element[0].children] if isinstance(element, nodes.section) else above


def shown(element: nodes.Element, after: nodes.Element) -> Iterator[tuple[bool, list[nodes.Node]]]:
    """What something on a page becomes: for each slide whether a sentence leads up to it, and what it shows."""
    classes, above = element.get("classes", ()), headings(element)
    if isinstance(element, nodes.title):
        text = after if len(above) > 1 else element.parent[2]  # a line with the time stands under a chapter's title
        if len(above) < 3 and isinstance(text, nodes.paragraph):
            yield False, [nodes.rubric("", "", *above[-1], **{"heading-level": len(above)}), words(text)]
    elif "card-exercise" in classes:
        task = [part for part in in_view(element) if isinstance(part, nodes.paragraph | nodes.bullet_list)]
        yield False, [nodes.rubric("", "", *above[-1], **{"heading-level": 3}), *task]
    elif "cell" in classes and "tag_hide-cell" not in classes:
        texts = [element[0], *chain(*(output.findall(nodes.literal_block) for output in element[1:]))]
        images = list(element.findall(nodes.image))
        only_draws = images and "\n" not in texts[0].astext().strip()
        if "tag_hide-input" not in classes and not only_draws:
            short = sum(text.astext().count("\n") for text in texts) < LINES
            yield from [(True, texts)] if short else [(True, [text]) for text in texts]
        if images:
            caption, output = words(after), nodes.container("", *images, classes=["cell_output"])
            caption["classes"] = ["figure-caption"]
            shows = [nodes.container("", output, classes=["cell"]), caption]
            yield False, shows if "figure-caption" in after.get("classes", ()) else shows[:1]
        yield from ((True, [raw]) for raw in element.findall(nodes.raw) if "<table" in raw.astext())
    elif "card-note" in classes or any(isinstance(node, LISTS) for node in element.findall()):
        yield "card-note" not in classes, [element]


def deck(chapter: nodes.section) -> list[nodes.section]:
    """A chapter's slides, each with a box of what it shows and a comment, which is what is said with it."""
    slides, lead, predicted = [], [], False
    for element, after in pairwise([*in_view(chapter), nodes.comment()]):
        found, classes = list(shown(element, after)), element.get("classes", ())
        prose = isinstance(element, nodes.paragraph) and "chapter-line" not in classes
        if predicted and prose and not element.astext().endswith(":"):
            found = [(False, [words(element)])]
        for led, content in found:
            where = [] if isinstance(element, nodes.title) else chain(*headings(element)[1:2])
            shows = [nodes.paragraph("", "", *where, classes=["where"]), *(lead if led else []), *content]
            box = nodes.container("", *shows, classes=["slide", *({"card-exercise"} & {*classes})])
            slides, lead = [*slides, nodes.section("", box.deepcopy(), nodes.comment())], []
        if prose:
            slides[-1][1] += nodes.paragraph("", "", *element.deepcopy().children)
            lead = [words(element, since=-1)]
        predicted = "card-predict" in classes
    return slides


def cut(app, doctree: nodes.document, docname: str) -> None:
    """Give sphinx-revealjs a chapter whose sections are slides: those of the second level go right, others down."""
    if app.builder.name == "decks" and Path(docname).name in CHAPTERS:
        chapter = next(doctree.findall(nodes.section))
        for node in chapter.findall(nodes.Element):
            node["ids"] = []
            node.attributes.pop("language", None)  # else sphinx-revealjs leaves the colours of code to a script
        first, *slides = deck(chapter)
        chapter.children = []
        chapter += first.children
        for slide in slides:
            (chapter[-1] if "card-exercise" in slide[0]["classes"] else chapter).append(slide)


class Decks(RevealjsHTMLBuilder):
    """The decks alone, beside the pages, with nothing that extensions give to those but live figures."""

    name = "decks"

    def init(self) -> None:
        self.events.listeners.pop("html-page-context", None)
        self.get_outdated_docs = lambda: [f"notebooks/{stem}" for stem in CHAPTERS]
        super().init()

    def finish(self) -> None:
        pages = Path(self.outdir, "../html").resolve()
        shutil.copytree(Path(self.outdir, "_static"), pages / "slides/_static", ignore=UNUSED)
        for stem in CHAPTERS:
            html = Path(self.outdir, f"notebooks/{stem}.html").read_text(encoding="utf-8")
            page = BeautifulSoup(html.replace('"../_static', '"_static'), "html.parser")
            for other in page.select("head script, .slides script, head link:not([href*=reveal], [href*=slides])"):
                other.decompose()
            for link in page.select("a[href]"):
                link["href"] = re.sub("^/", "../", urljoin(f"/notebooks/{stem}.html", link["href"]))
            for slide in page.select(".slide"):  # the pages' style sheets ask for both
                slide.name, slide.parent["class"] = "article", "bd-content"
            for image in page.select("img"):  # the pages' own, in both themes
                image["class"] = "dark-light"
            live_figures.place(page, "../", pages / "_static")
            live.enliven(page)
            (pages / f"slides/{stem}.html").write_text(str(page), encoding="utf-8")


def setup(app):
    app.setup_extension("sphinx_revealjs")
    app.add_builder(Decks)
    app.connect("doctree-resolved", cut)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
