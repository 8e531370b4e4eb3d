"""Four pages in a real browser, in a wide window and on a phone, light and dark; tests/slow has the others."""

from collections import Counter

import browser
import pytest
from browser import CHECKS, VIEWS
from notebook_rules import ROOT, cells, read
from notebook_rules import page as text_of

HTML = ROOT / "_build" / "html"
SCREENSHOTS = ROOT / "_build" / "screenshots"
TALLEST = 40_000  # pixels of a picture: only the package's page is longer, and looks the same all the way down
PAGES = ["book/intro", "notebooks/03_attention", "book/api", "search"]
# A page is loaded once in each width, and turned there: light to dark by its button, and back; dark to light by the
# system. The light comes last, for then the keys are pressed and the rooms opened.
LOADED = {"desktop": VIEWS["desktop-light"], "phone": VIEWS["phone-dark"]}
THEMES = ("dark", "light")


def markdown_of(name: str) -> str:
    """The text behind a page; "" where it is made."""
    if (notebook := ROOT / f"{name}.ipynb").exists():
        return "\n\n".join(cell.source for cell in cells(read(notebook), "markdown"))
    return text_of(f"{name}.md") if (ROOT / f"{name}.md").exists() else ""


def look_at(name, width, chromium, book, remembered):
    """Every check has nothing to say of the page, in either theme; a picture of each is kept."""
    opened, lines = LOADED[width], []
    state = remembered if opened.by_button else None
    with browser.visit(chromium, f"{book}/{name}.html", opened, remembered=state, source=markdown_of(name)) as visit:
        for theme in THEMES:
            if (view := VIEWS[f"{width}-{theme}"]) != opened or view.by_button:
                visit = browser.turn(visit, view)
            picture = SCREENSHOTS / f"{name.rpartition('/')[2]}-{width}-{theme}.jpg"
            height = min(visit.page.evaluate("document.documentElement.scrollHeight"), TALLEST)
            part = {"x": 0, "y": 0, "width": view.width, "height": height}
            visit.page.screenshot(path=picture, full_page=True, clip=part, type="jpeg", quality=60)
            for check in CHECKS:
                faults = Counter(check(visit))
                counted = [f"  {count} × {fault}" if count > 1 else f"  {fault}" for fault, count in faults.items()]
                lines += [f"{theme}, {check.__name__}: {check.__doc__} But:", *counted] if faults else []
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.mark.parametrize("width", LOADED)
@pytest.mark.parametrize("name", PAGES)
def test_page(name, width, chromium, book, remembered):
    look_at(name, width, chromium, book, remembered)


def search_for(term, name, chromium, book):
    """The first hit is the page ``name``, and the page of results is sound."""
    with browser.visit(chromium, f"{book}/search.html", VIEWS["phone-light"]) as visit:
        hits = browser.hits(visit.page, term)
        assert hits[0] == f"{name}.html", hits[:5]
        assert browser.formulas(visit) == browser.overflow(visit) == browser.axe(visit) == visit.console == []


def test_the_first_hit_teaches_it(chromium, book):
    search_for("softmax", "notebooks/03_attention", chromium, book)


# From the right of the magnifying glass to where the words begin.
ROOM_BESIDE_THE_GLASS = """() => shown('.bd-search').map((form) => {
  const input = form.querySelector('input'), glass = form.querySelector('svg, i');
  const words = input.getBoundingClientRect().left + parseFloat(getComputedStyle(input).paddingLeft);
  return words - glass.getBoundingClientRect().right;
})"""


def test_the_search_button_leads_to_results(chromium, book):
    with browser.visit(chromium, f"{book}/notebooks/03_attention.html", VIEWS["desktop-light"]) as visit:
        visit.page.locator(".search-button__button:visible").first.click()
        (room,) = visit.page.evaluate(ROOM_BESIDE_THE_GLASS)
        assert 0 < room < 20
        visit.page.keyboard.type("softmax")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**/search.html?q=softmax*")
        (room,) = visit.page.evaluate(ROOM_BESIDE_THE_GLASS)
        assert 0 < room < 20
