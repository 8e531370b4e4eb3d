"""Side rooms in one piece, and no noise: what a portable notebook spells out, and no library leaves out of a page.

- A folded cell that goes on with a "Going deeper" stands inside it, its result in view once that is open.
- An exercise that no one has attempted says nothing.
- Titles of rooms and tables have the text's apostrophes.
"""

import re

from bs4 import BeautifulSoup, Tag

GOING_DEEPER = "Going deeper"
NOT_ATTEMPTED = ": not attempted yet."


def tidy(page: BeautifulSoup) -> None:
    for output in page.select("div.cell_output > div.output.stream"):
        if NOT_ATTEMPTED in output.text and output.text.count("\n") <= 2:
            take_off(output)
    for title in page.select("article :is(summary, caption)"):
        for words in title.find_all(string=re.compile("'")):
            if not words.find_parent("code"):
                words.replace_with(words.replace("'", "’"))
    for room in page.select("details:not(.hide)"):
        if room.summary and room.summary.text.strip().startswith(GOING_DEEPER):
            while _goes_on(cell := room.find_next_sibling()):
                room.append(cell.extract())
                _show_result(cell)


def take_off(output: Tag) -> None:
    """Leave out an output, and its cell's place for outputs if that was all."""
    parent = output.parent
    output.decompose()
    if not parent.find(True):
        parent.decompose()


def _goes_on(element: Tag | None) -> bool:
    """Whether this is a cell whose code and result are folded under a title that goes deeper."""
    if element is None or element.name != "div" or "tag_hide-cell" not in element.get("class", ()):
        return False
    summary = element.select_one("details.hide > summary")
    return summary is not None and summary.text.strip().startswith(GOING_DEEPER)


def _show_result(cell: Tag) -> None:
    """The code stays folded; what it shows comes out."""
    fold = cell.select_one("details.hide")
    for title in fold.summary.select("p"):
        title.string = "Code"
    for output in fold.select("div.cell_output"):
        fold.insert_after(output.extract())
