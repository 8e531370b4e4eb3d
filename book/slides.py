"""Slides of the chapters that lectures are about, from the built pages: `make slides`. They open from disk, too.

A slide has what a page shows between its paragraphs: a heading, a card, a figure with its caption, code in view with
its result, a formula, a list, a table. The sentence that leads up to it comes along; all other prose goes to the
speaker's notes. What is folded on the page is left out. The deck runs to the right; an exercise hangs below the slide
that it follows. reveal.js, out of the package sphinx-revealjs, turns the slides; book/slides.css dresses them. A live
figure waits behind a button under its picture, as on the page; while a reader is in it, its keys are its own.
"""

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from copy import copy
from html import escape
from itertools import pairwise
from pathlib import Path

import build
import yaml
from _ext.live import MODULES, bundle
from bs4 import BeautifulSoup, Tag

HTML = build.BUILD / "html"
SLIDES = HTML / "slides"
STYLE = Path(__file__).with_suffix(".css")
CHAPTERS = ("01_patches", "02_positions", "03_attention", "04_encoder", "05_model", "08_attention_maps")
LEFT_OUT = ("What you built", "Questions to think about", "Further reading")  # sections that are read at home
REVEAL = ("dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js", "LICENSE")
WORDS = 30  # of a sentence that stands on a slide by itself
WIDTH, HEIGHT = 1110, 500  # pixels of a slide of 1280 × 720 that code may fill
LETTERS = (18, 34)  # pixels: the smallest that the back row reads, and the largest for code
LETTER = 0.61, 1.35  # width and height of a letter of code, in its size
WIDE = 1.45  # width over height of a figure, from which on its caption stands below it

TEMPLATE = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Slides</title>
<link rel="icon" href="../_static/favicon.svg">
<link rel="stylesheet" href="reveal/reveal.css">
<link rel="stylesheet" href="../_static/pygments.css">
<link rel="stylesheet" href="slides.css">
<link rel="stylesheet" href="../_static/live/figures.css">
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="reveal/reveal.js"></script>
<script src="reveal/notes.js"></script>
<script>
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)").matches && !/print-pdf/.test(location.search);
root.dataset.mode = root.dataset.theme = dark ? "dark" : "light";
const turn = () => {{ root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; }};
const inFigure = (element) => element.closest(".fig-stage");
Reveal.initialize({{
  width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t", controls: false,
  transition: "none", plugins: [RevealNotes],
  keyboard: {{ 84: turn }},
  keyboardCondition: ({{ target, key }}) => !inFigure(target) && !(target.localName === "button" && key === " "),
}});
Reveal.registerKeyboardShortcut("T", "Light or dark");
addEventListener("keydown", ({{ target, key }}) => {{ if (key === "Escape" && inFigure(target)) target.blur(); }});
</script>
{live}
</body>
</html>
"""


# What a page shows --------------------------------------------------------------------------------------------------


def sentences(paragraph: Tag) -> list[str]:
    """The HTML of a paragraph's sentences."""
    return re.split(r"(?<=[.?!])\s+(?=[A-Z“]|<(?!/))", paragraph.decode_contents().strip())


def short(html: str) -> bool:
    return len(text_of(html).split()) <= WORDS


def text_of(html: str) -> str:
    return BeautifulSoup(html, "html.parser").get_text()


def first_words(paragraph: Tag | None) -> str:
    """As many of a paragraph's sentences as a slide may have."""
    kept = []
    for sentence in sentences(paragraph) if paragraph else ():
        if not short(" ".join([*kept, sentence])):
            break
        kept.append(sentence)
    return " ".join(kept)


def fitting(lines: list[str], height: float = HEIGHT) -> float:
    """The size in pixels at which lines of code fill a slide, but not more; not below the smallest letters."""
    longest = max(map(len, lines), default=1)
    size = min(WIDTH / (LETTER[0] * longest), height / (LETTER[1] * max(len(lines), 1)), LETTERS[1])
    return max(size, LETTERS[0])


def parts(section: Tag) -> Iterator[Tag]:
    """What stands on a page, one thing after the other, however deep its section."""
    for child in section.find_all(True, recursive=False):
        if child.name == "section":
            yield from parts(child)
        else:
            yield child


# A slide ------------------------------------------------------------------------------------------------------------


class Slide:
    """One slide: what it shows, and what is said with it."""

    def __init__(self, body: str, kind: str, below: bool = False):
        self.body, self.kind, self.below, self.notes = body, kind, below, []

    def html(self, heading: str) -> str:
        notes = "\n".join(self.notes)
        above = f'<p class="where">{heading}</p>' if heading and self.kind not in ("title", "section") else ""
        aside = f'<aside class="notes">{notes}</aside>' if notes else ""
        return f'<section><div class="slide {self.kind}">{above}\n{self.body}</div>{aside}</section>'


def figure_slide(images: list[Tag], caption: Tag | None, lead: str, live: Tag | None = None) -> Slide:
    """A figure, its caption below it or, where it is tall, beside it; what makes it live always below it."""
    ratio = int(images[0]["width"]) / int(images[0]["height"])
    shown = "".join(map(str, images))
    words = f'<p class="caption">{caption_of(caption)}</p>' if caption else ""
    if ratio < WIDE and not live:
        return Slide(f'<div class="beside"><div class="figure">{shown}</div><div>{lead}{words}</div></div>', "tall")
    return Slide(f'{lead}<div class="figure">{shown}</div>{live or ""}{words}', "wide")


def caption_of(caption: Tag) -> str:
    """The number of a figure, and what there is to see, in the first words."""
    number = caption.find("strong").decode()
    rest = copy(caption)
    rest.find("strong").decompose()
    return f"{number} {first_words(rest) or sentences(rest)[0]}"


def code_slides(cell: Tag, lead: str) -> Iterator[Slide]:
    """Code in view and what it prints; on a slide of its own, where the two don't fit on one."""
    code = cell.select_one(".cell_input pre")
    printed = [pre for pre in cell.select(".cell_output :is(pre, .matrices)") if pre.get_text().strip()]
    lines = [pre.get_text().rstrip("\n").split("\n") for pre in (code, *printed)]
    room = HEIGHT - (60 if lead else 0) - 40 * len(printed)
    together = fitting([line for some in lines for line in some], room)
    least = LETTERS[0] * LETTER[1] * sum(map(len, lines))
    if printed and least > room:
        yield Slide(f"{lead}{_pre(code, fitting(lines[0], HEIGHT - 60))}", "code")
        for pre, some in zip(printed, lines[1:], strict=True):
            yield Slide(_pre(pre, fitting(some), "output"), "code")
    else:
        results = "".join(_pre(pre, together, "output") for pre in printed)
        yield Slide(f"{lead}{_pre(code, together)}{results}", "code")


def table_slide(table: Tag, lead: str) -> Slide:
    """A table in letters as large as its rows allow."""
    rows = ["".join(cell.get_text().strip() + 4 * " " for cell in row.select("th, td")) for row in table.select("tr")]
    return Slide(f'{lead}<div style="font-size: {fitting(rows, HEIGHT / 1.4):.1f}px">{table}</div>', "table")


def _pre(pre: Tag, size: float, kind: str = "") -> str:
    code = pre.decode_contents().rstrip()
    return f'<div class="highlight {kind}" style="font-size: {size:.1f}px"><pre>{code}</pre></div>'


def exercise_slide(card: Tag, heading: str) -> Slide:
    """The task of an exercise; its hint, cell and solution stay on the page."""
    effort, *rest = card.find_all(True, recursive=False)
    task = [part for part in rest if part.name in ("p", "ul", "div") and "cell" not in part.get("class", ())]
    body = f'<h3>{heading}</h3><p class="effort">{effort.decode_contents()}</p>{"".join(map(str, task))}'
    return Slide(body, f"exercise {_length(body)}", below=True)


def _length(html: str) -> str:
    """How long a text is, for the size of its letters."""
    words = len(text_of(html).split())
    return "long" if words > 90 else "medium" if words > 45 else "brief"


# A deck -------------------------------------------------------------------------------------------------------------


def deck(article: Tag, book: str) -> list[tuple[str, list[Slide]]]:
    """The slides of a chapter's article, section by section: the section's heading and what belongs to it."""
    title = article.h1.get_text()
    found: list[tuple[str, list[Slide]]] = [("", [])]
    slides, heading, exercise, paragraph, after_predict = found[0][1], "", "", None, False

    def lead() -> str:
        """The sentence that leads up to what comes now."""
        last = sentences(paragraph)[-1] if paragraph else ""
        shown = not last or any(last in slide.body for slide in slides[-1:])
        return f'<p class="lead">{last}</p>' if short(last) and not shown else ""

    elements = list(parts(article.find("section")))
    for element, below in pairwise([*elements, Tag(name="end")]):
        classes = element.get("class", ())
        if element.name == "h1":
            opening = next(part for part in elements if part.name == "p" and not part.get("class"))
            body = f'<p class="book">{escape(book)}</p><h1>{title}</h1><p>{first_words(opening)}</p>'
            slides.append(Slide(body, "title"))
        elif element.name == "h2":
            heading = element.decode_contents()
            found.append((heading, []))
            slides = found[-1][1]
            if below.name == "p" and not below.get("class"):
                slides.append(Slide(f"<h2>{heading}</h2><p>{first_words(below)}</p>", "section"))
        elif element.name == "h3":
            exercise = element.decode_contents()
        elif element.name == "p" and "figure-caption" not in classes:
            answer = after_predict and not element.get_text().endswith(":") and first_words(element)
            if answer:
                slides.append(Slide(f'<p class="answer">{answer}</p>', f"words {_length(answer)}"))
            if slides:
                slides[-1].notes.append(str(element))
            paragraph, after_predict = element, False
            continue
        elif element.name == "blockquote":
            slides.append(Slide(str(element), f"words {_length(str(element))}"))
            paragraph, after_predict = None, "card-predict" in classes
            continue
        elif "card-exercise" in classes:
            slides.append(exercise_slide(element, exercise))
        elif "cell" in classes and "tag_hide-cell" not in classes:
            folded = "tag_hide-input" in classes
            if not folded:
                slides += code_slides(element, lead())
            if images := element.select(".cell_output img"):
                caption = below if "figure-caption" in below.get("class", ()) else None
                words = "" if caption or not folded else lead()
                slides.append(figure_slide(images, caption, words, element.select_one(".live-figure")))
                if caption:
                    slides[-1].notes.append(str(caption))
            slides += [table_slide(table, lead()) for table in element.select(".cell_output table")]
        elif "formula" in classes or element.name in ("ul", "ol") or "highlight" in str(classes):
            slides.append(Slide(f"{lead()}{element}", f"words {_length(str(element))}"))
        elif table := element.select_one("table"):
            slides.append(table_slide(table, lead()))
        else:
            continue
        paragraph, after_predict = None, False
    return [(heading, slides) for heading, slides in found if text_of(heading).strip() not in LEFT_OUT]


def article_of(page: BeautifulSoup) -> Tag:
    """A page's article, without what a page is read with, and with addresses that hold from the slides' folder."""
    article = page.select_one("article")
    for live in article.select(".live-figure"):
        live.find_previous_sibling("div").append(live)
        live["data-prevent-swipe"] = ""  # a finger in it turns no slide
    unlike = ":not(.live-figure *)"
    for element in article.select(f".headerlink, script{unlike}, style, details, .chapter-line, button{unlike}"):
        element.decompose()
    for element in article.select(f"[id]{unlike}"):
        del element["id"]
    for image in article.select("img"):
        del image["loading"]
    for link in article.select("a[href]"):
        if "://" not in link["href"]:
            link["href"] = f"../notebooks/{link['href']}"
        link["tabindex"] = "-1"  # arrow keys turn the slides
    return article


def write(stem: str, book: str) -> tuple[Path, int]:
    """The deck of a chapter: its file, and how many slides it has."""
    page = BeautifulSoup((HTML / f"notebooks/{stem}.html").read_text(encoding="utf-8"), "html.parser")
    article = article_of(page)
    columns, count = [], 0
    for heading, slides in deck(article, book):
        for slide in slides:
            count += 1
            if slide.below:
                columns[-1].append(slide.html(heading))
            else:
                columns.append([slide.html(heading)])
    slides = "\n".join(column[0] if len(column) == 1 else f"<section>{''.join(column)}</section>" for column in columns)
    path = SLIDES / f"{stem}.html"
    modules = dict.fromkeys(element["data-live"] for element in article.select("[data-live]"))
    live = "\n".join(bundle(MODULES / f"{name}.mjs") for name in modules)
    html = TEMPLATE.format(title=escape(article.h1.get_text()), slides=slides, live=live)
    path.write_text(html, encoding="utf-8")
    return path, count


def reveal() -> Path:
    """The folder of reveal.js.

    Raises:
        SystemExit: if the package that ships it is not installed.
    """
    package = importlib.util.find_spec("sphinx_revealjs")
    if package is None:
        sys.exit("The slides need reveal.js, which the package sphinx-revealjs ships: pip install sphinx-revealjs")
    return Path(package.submodule_search_locations[0]) / "_static/revealjs"


def main() -> None:
    source = reveal()  # where there is none, say so before the notebooks run
    if not (HTML / "index.html").exists():
        build.execute()
        build.html()
    (SLIDES / "reveal").mkdir(parents=True, exist_ok=True)
    for name in REVEAL:
        shutil.copy(source / name, SLIDES / "reveal" / Path(name).name)
    shutil.copy(STYLE, SLIDES)
    book = yaml.safe_load((build.ROOT / "_config.yml").read_text(encoding="utf-8"))["title"]
    for stem in CHAPTERS:
        path, count = write(stem, book)
        print(f"{count:4} slides  {path.as_uri()}")


if __name__ == "__main__":
    main()
