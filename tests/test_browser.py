"""Three pages in a real browser, in a wide window and on a phone, light and dark; tests/slow has the others."""

from collections import Counter

import browser
import pytest
from browser import CHECKS, VIEWS
from notebook_rules import ROOT

HTML = ROOT / "_build" / "html"
SCREENSHOTS = ROOT / "_build" / "screenshots"
TALLEST = 40_000  # pixels of a picture: only the package's page is longer, and looks the same all the way down
PAGES = ["book/intro", "notebooks/03_attention", "search"]
# A page is loaded once in each width, in the dark, as the reader's system asks for it. It is turned to the light by its
# button in a wide window, by the system on a phone; the light comes last, for then keys are pressed and rooms opened.
LOADED = {"desktop": VIEWS["desktop-dark"], "phone": VIEWS["phone-dark"]}


def look_at(name, width, chromium, book):
    """Every check has nothing to say of the page, in either theme; a picture of each is kept."""
    lines = []
    with browser.visit(chromium, f"{book}/{name}.html", LOADED[width]) as visit:
        for theme in ("dark", "light"):
            if theme == "light":
                visit = browser.turn(visit, "light", by_button=width == "desktop")
            picture = SCREENSHOTS / f"{name.rpartition('/')[2]}-{width}-{theme}.jpg"
            height = min(visit.page.evaluate("document.documentElement.scrollHeight"), TALLEST)
            part = {"x": 0, "y": 0, "width": visit.view.width, "height": height}
            visit.page.screenshot(path=picture, full_page=True, clip=part, type="jpeg", quality=60)
            for check in CHECKS:
                faults = Counter(check(visit))
                counted = [f"  {count} × {fault}" if count > 1 else f"  {fault}" for fault, count in faults.items()]
                lines += [f"{theme}, {check.__name__}: {check.__doc__} But:", *counted] if faults else []
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


@pytest.mark.parametrize("width", LOADED)
@pytest.mark.parametrize("name", PAGES)
def test_page(name, width, chromium, book):
    look_at(name, width, chromium, book)


def search_for(term, name, chromium, book):
    """The first hit is the page ``name``, and the page of results is sound."""
    with browser.visit(chromium, f"{book}/search.html", VIEWS["phone-light"]) as visit:
        hits = browser.hits(visit.page, term)
        assert hits[0] == f"{name}.html", hits[:5]
        assert browser.overflow(visit) == browser.axe(visit) == visit.console == []


def test_the_first_hit_teaches_it(chromium, book):
    search_for("softmax", "notebooks/03_attention", chromium, book)


def test_the_search_button_leads_to_results(chromium, book):
    with browser.visit(chromium, f"{book}/notebooks/03_attention.html", VIEWS["desktop-light"]) as visit:
        visit.page.locator(".search-button__button:visible").first.click()
        visit.page.keyboard.type("softmax")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_url("**/search.html?q=softmax*")
