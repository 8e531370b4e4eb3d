"""Figures that a reader can change, below the pictures of chapters: a library's would need a server, or a kernel.

Notebooks know nothing of this. On a finished page, each caption that :data:`FIGURES` names gets an invitation below it,
with the figure's data and words as JSON; ``book/_ext/live.py`` adds the module that draws. Without JavaScript and on
paper the picture stays alone.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import live_data
from bs4 import BeautifulSoup

LANGUAGE = "en"
WORDS = Path(__file__).parent.parent / f"_static/live/text/figures.{LANGUAGE}.json"


class Live(NamedTuple):
    module: str  # of book/_static/live/figures; its words in the catalogue have the same name
    data: Callable[[], dict]  # what it draws, computed when the book is built
    caption: str  # how the caption goes on, so that a figure that moved isn't mistaken for another
    later: Callable[[], dict] | None = None  # data in a file of their own, which comes when a reader starts the figure


FIGURES = {
    "1.2": Live("patches", live_data.patches, "A sentence of 49 words, read like a page"),
    "2.7": Live("positions", live_data.positions, "Three tables, seen from patch 27: a stripe, a cross and a spot."),
    "3.3": Live("attention", live_data.attention, "Attention mixes what is there."),
    "7.2": Live("recipes", live_data.recipes, "One model, two recipes."),
    "8.5": Live("heads", live_data.heads, "A dot for each head.", live_data.every_row),
    "8.7": Live("growing", live_data.growing, "The mean over all heads and layers as the second training goes on"),
    "10.4": Live("forest", live_data.forest, "What each change does to the validation accuracy"),
    "12.3": Live("ward", live_data.ward, "CIFAR-10 after two epochs: each patient against a healthy model"),
}


def element(number: str, live: Live, words: dict, up: str) -> str:
    """The HTML of an invitation, with all that the module needs.

    Raises:
        ValueError: if the catalogue has no words for the module.
    """
    if live.module not in words:
        raise ValueError(f"{WORDS.name} has words for {', '.join(words)}, and none for {live.module!r}")
    text = words["shared"] | words[live.module]
    given = {"text": text, "data": live.data()}
    if live.later:
        given["later"] = f"{up}_static/live/{live.module}.js"
    told = json.dumps(given, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    stage = f"live-{number.replace('.', '-')}"
    return f"""<div class="live-figure" data-live="figures/{live.module}">
<p class="fig-invitation"><strong>{text["try"]}</strong> {text["invitation"]}</p>
<button type="button" class="fig-switch" aria-expanded="false" aria-controls="{stage}">{text["start"]}</button>
<div class="fig-stage" id="{stage}" role="group" aria-label="{text["name"]}" hidden></div>
<script type="application/json">{told}</script>
</div>"""


def place(page: BeautifulSoup, up: str, static: Path) -> None:
    """Put the live figures of a chapter's page under their pictures.

    Args:
        up: leads from the page to the book's root.
        static: the book's folder ``_static``, which gets the data that come later.

    Raises:
        ValueError: if the page has captions of a chapter and not that of one of its live figures, or no picture above.
    """
    captions = {
        caption.strong.get_text().split()[-1].rstrip("."): caption for caption in page.select("p.figure-caption")
    }
    chapters = {number.partition(".")[0] for number in captions}
    due = {number: live for number, live in FIGURES.items() if number.partition(".")[0] in chapters}
    for number, live in due.items():
        found = " ".join(captions[number].get_text().split()) if number in captions else "no such figure"
        wanted = f"Figure {number}. {live.caption}"
        if not found.startswith(wanted):
            raise ValueError(f"live figure {live.module!r} belongs to the caption {wanted!r}; the page has {found!r}")
        above = captions[number].find_previous_sibling()
        if above is None or not above.select_one(".cell_output img"):
            raise ValueError(f"live figure {live.module!r} finds no picture above {wanted!r}")
        words = json.loads(WORDS.read_text(encoding="utf-8"))
        captions[number].insert_after(BeautifulSoup(element(number, live, words, up), "html.parser"))
        if live.later:
            file = static / f"live/{live.module}.js"
            file.parent.mkdir(parents=True, exist_ok=True)
            told = json.dumps(live.later(), separators=(",", ":"))
            file.write_text(f"(globalThis.liveFigures ??= {{}}).{live.module} = {told};\n", encoding="utf-8")
    if due:
        style = {"rel": "stylesheet", "href": f"{up}_static/live/figures.css"}
        page.head.append(page.new_tag("link", attrs=style))
