"""What only `make check` runs: every page in every view, rehearsals, hostile and generated cases, kills."""

from contextlib import contextmanager
from pathlib import Path

import browser
import pytest


def pytest_collection_modifyitems(items):
    """All are slow. The longest come first, so that no worker is left alone with them at the end."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("slow")
    items.sort(key=lambda item: item.path.name != "test_rehearsal.py")


@pytest.fixture
def live_page(chromium, book):
    """Opens "Draw a digit" with its model at work, at a size and theme, and wants no error of it."""

    @contextmanager
    def opened(view: browser.View = browser.VIEWS["desktop-light"], url: str = ""):
        with browser.visit(chromium, url or f"{book}/book/live.html", view) as visit:
            visit.page.wait_for_selector("[data-panel=break] .live-card h3")
            yield visit
            assert visit.console == []

    return opened
