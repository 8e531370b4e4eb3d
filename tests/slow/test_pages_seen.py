"""The whole book in a real browser, and small pages with one fault each that the checks have to find."""

import re

import browser
import pytest
from browser import CHECKS, VIEWS
from notebook_rules import page as text_of
from test_browser import HTML, LOADED, PAGES, look_at, search_for

REST = sorted({*re.findall(r"(?:root|file): (\S+)", text_of("_toc.yml"))} - {*PAGES})
# What a reader may look for, and the page that teaches it.
SEARCHES = {
    "patchify": "notebooks/01_patches",
    "positional embedding": "notebooks/02_positions",
    "patch embedding": "notebooks/01_patches",
    "class token": "notebooks/02_positions",
    "LayerNorm": "notebooks/04_encoder",
    "DropPath": "notebooks/04_encoder",
    "mixup": "notebooks/06_training",
    "distillation": "notebooks/06_training",
    "learning rate": "notebooks/07_recipes",
    "attention rollout": "notebooks/08_attention_maps",
    "deletion curve": "notebooks/08_attention_maps",
}


def test_the_book_s_pages_are_all_visited():
    assert {f"{name}.html" for name in (*PAGES, *REST)} >= {
        path.relative_to(HTML).as_posix() for folder in ("book", "notebooks") for path in (HTML / folder).glob("*.html")
    }


@pytest.mark.parametrize("width", LOADED)
@pytest.mark.parametrize("name", REST)
def test_page(name, width, chromium, book):
    look_at(name, width, chromium, book)


@pytest.mark.parametrize(("term", "name"), SEARCHES.items(), ids=list(SEARCHES))
def test_the_first_hit_teaches_it(term, name, chromium, book):
    search_for(term, name, chromium, book)


# A small page with a fault for each check

PAGE = """<!doctype html><html lang="en"><head><title>A page</title><link rel="icon" href="data:,">
<style>body {{ background: white }} button {{ outline: solid }}</style></head>
<body><main><article>{}</article></main></body></html>"""
FAULTS = {
    "shift": (
        """<script>addEventListener('load', () => requestAnimationFrame(() => requestAnimationFrame(() =>
        document.querySelector('article').prepend(document.createElement('textarea')))))</script>
        <style>textarea { display: block; height: 400px }</style><p>Text.</p>""",
        "of the window moved",
    ),
    "theme": ("<style>body { background: #222 }</style>", "the page's colour is rgb(34, 34, 34)"),
    "overflow": (
        '<style>html { overflow-x: clip }</style><p style="width: 2000px">wide</p>',
        "beyond the edge: <p> wide",
    ),
    "letters": ("<p style='font-size: 10px'>1</p>", "10.0 px: <p> 1"),
    "axe": ('<p style="color: #999; background: #aaa">Text.</p>', "color-contrast: p"),
    "tab_order": ('<button style="outline: none">unseen</button>', "a stop is not seen: <button> unseen"),
    "solutions": (
        '<details><summary>Solution</summary><p>Four.</p></details><div style="position: fixed; inset: 0"></div>',
        "does not open and close",
    ),
    "console": ('<img src="https://example.org/x.png" alt="">', "https://example.org/x.png"),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_fault_is_found(check, chromium, tmp_path):
    fault, message = FAULTS[check.__name__]
    (tmp_path / "page.html").write_text(PAGE.format(fault), encoding="utf-8")
    with browser.serve(tmp_path) as url, browser.visit(chromium, f"{url}/page.html", VIEWS["desktop-light"]) as visit:
        assert message in "\n".join(check(visit))
