"""Shapes in signatures are checked here, at test time, by beartype through jaxtyping's import hook."""

from pathlib import Path

import jaxtyping
import pytest
import torch

jaxtyping.install_import_hook("vit_tutorial", "shape_checks.check_signature")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def no_shape_checks():
    """Turn the signature checks off, to see the error that a user gets who has none."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# A browser, and the built book for it -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    import browser  # with all it needs, only where a page is looked at
    from playwright.sync_api import sync_playwright

    path = browser.installed()
    with sync_playwright() as playwright:
        chromium = browser.launch(playwright, path)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def book():
    """The address of the book."""
    import browser

    html = Path(__file__).parents[1] / "_build/html"
    if not (html / "index.html").exists():
        pytest.fail("_build/html/index.html is missing: run `make book` first")
    with browser.serve(html) as url:
        yield url
