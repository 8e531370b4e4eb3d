"""`make pdf`: pages, links and bookmarks of a small book, and that nothing of the whole one is cut off in print."""

from pathlib import Path

import browser
import pdf
from notebook_rules import REPOSITORY, ROOT
from playwright.sync_api import sync_playwright
from pypdf import PdfReader

FIRST = """<p><a href="https://a.org/x#y">paper</a>, <a href="two.html#one">there</a>, <a href="#one">here</a>,
<a href="../book/api.html#x">the API</a></p><section id="one"><h2>One</h2>
<details><summary>Solution</summary><p>Forty-two.</p></details></section>
<div class="cell tag_hide-input"><details class="hide"><summary>Code</summary><pre>plt.figure()</pre></details></div>"""
SECOND = """<section id="one"><div style="height: 220mm">Filler.</div><figure>
<div style="height: 120mm">PICTURE</div></figure><p class="figure-caption">Figure 1.</p></section>"""
PARTS = {"": ["book/intro"], "The parts": ["notebooks/one", "notebooks/two"]}


def built(title: str, body: str) -> str:
    """A page as the book's build leaves it, with the style sheets of the book but not of the theme."""
    sheets = (f'<link rel="stylesheet" href="{ROOT}/book/_static/{name}.css">' for name in ("custom", "print"))
    return f"<html><head>{''.join(sheets)}</head><article><section><h1>{title}</h1>{body}</section></article></html>"


def test_a_small_book_has_numbers_bookmarks_links_and_a_figure_in_one_piece(tmp_path):
    bodies = {"book/intro": ("The Book", ""), "notebooks/one": ('1 · "One" \\ &amp; last', FIRST)}
    pages = {page: built(*body) for page, body in (bodies | {"notebooks/two": ("2 · Two", SECOND)}).items()}
    page, paper, numbers = tmp_path / "book.html", tmp_path / "book.pdf", {}
    for _ in range(2):
        page.write_text(pdf.join(pages, PARTS, numbers), encoding="utf-8")
        numbers = pdf.print_pdf(page, paper)
    reader = PdfReader(paper)
    texts = [" ".join(sheet.extract_text().split()) for sheet in reader.pages]
    assert [numbers[name] for name in ("intro", "one", "two")] == [3, 4, 5] and len(texts) == 6
    assert "2 · Two 5" in texts[1] and texts[3].count('1 · "One" \\ & last') == 2  # once in its foot
    titles = [entry.title for entry in reader.outline if not isinstance(entry, list)]
    assert titles == ["Contents", "Introduction", '1 · "One" \\ & last', "2 · Two"]
    assert "Forty-two." in texts[3] and "plt.figure" not in "".join(texts)
    assert "PICTURE" not in texts[4] and "PICTURE Figure 1." in texts[5]
    notes = [note.get_object() for sheet in reader.pages for note in sheet.get("/Annots", ())]
    addresses = {note["/A"]["/URI"] for note in notes if "/URI" in note.get("/A", ())}
    api = f"{pdf.pages_address(REPOSITORY['url'])}book/api.html#x"
    assert addresses == {"https://a.org/x#y", api, REPOSITORY["url"]}
    assert reader.trailer["/Root"]["/MarkInfo"]["/Marked"] and "two--one" in numbers


# What a box must not do on paper: reach over the edge, hold more than it shows, wait for a hand, or squeeze a picture.
WRONG = """() => [...document.querySelectorAll("article, article *")].filter((box) => box.checkVisibility()
    && (box.matches("article, pre, table, img, .output, div.formula math")
        && box.getBoundingClientRect().right > box.closest("article").getBoundingClientRect().right + 1
    || box.matches("article, pre, .output") && box.scrollWidth > box.clientWidth + 1
    || box.matches("pre, .output") && box.scrollHeight > box.clientHeight + 1
    || box.matches("button, select, input, .live-figure")
    || box.matches("img") && getComputedStyle(box).objectFit == "fill"
        && Math.abs(box.width / box.height / (box.naturalWidth / box.naturalHeight) - 1) > 0.03))
    .map((box) => box.closest("article").id + ": " + box.outerHTML.slice(0, 200))"""


def wrong(html: str, page: Path) -> list[str]:
    page.write_text(html, encoding="utf-8")
    with sync_playwright() as playwright:
        tab = browser.launch(playwright, browser.installed()).new_page(viewport={"width": 643, "height": 972})  # of A4
        tab.emulate_media(media="print")
        tab.goto(page.as_uri())
        page.unlink()
        return tab.evaluate(WRONG)


def test_no_box_of_the_book_is_cut_and_nothing_waits_for_a_hand(tmp_path):
    parts = pdf.contents()
    pages = {page: (pdf.HTML / f"{page}.html").read_text("utf-8") for pages in parts.values() for page in pages}
    assert wrong(pdf.join(pages, parts, {}), pdf.JOINED) == []
    for text in ("short", "x" * 200):
        assert bool(wrong(built("Title", f"<table><td>{text}</td></table>"), tmp_path / "a.html")) == (text != "short")
