"""`make pdf`: what becomes of links on paper, and that a printed page cuts nothing off."""

import re
from pathlib import Path

import pdf
import pytest
import yaml
from _ext.head import pages_address
from bs4 import BeautifulSoup
from notebook_rules import NOTEBOOKS, REPOSITORY, ROOT
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter

CHROMIUM = pdf.installed()
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium isn't installed")
STYLE = ROOT / "book/_static"
PAPER = {"width": 643, "height": 972}  # what the margins leave of A4, in CSS pixels


def built(title: str, body: str) -> str:
    """A page as the book's build leaves it, with the style sheets of the book but not of the theme."""
    sheets = "".join(f'<link rel="stylesheet" href="{STYLE / name}">' for name in ("custom.css", "print.css"))
    section = f'<section id="top"><h1>{title}<a class="headerlink" href="#top">#</a></h1>{body}</section>'
    return f"<html><head>{sheets}</head><body><article>{section}</article></body></html>"


FIRST = """
<p class="chapter-line"><a href="https://colab.org/1"><img src="../_static/colab-badge.svg"></a> · 40 minutes</p>
<p><a class="elsewhere" href="https://a.org/x#y">paper</a>, <a href="https://b.org">code</a>,
<a href="https://a.org/x#y">again</a>, <a class="told" href="https://arxiv.org/abs/1">arXiv:1</a>,
<a class="next" href="two.html">chapter 2</a>, <a class="place" href="two.html#one">there</a>,
<a class="here" href="#one">here</a>, <a class="unprinted" href="../book/api.html#x">the API</a>,
<a class="image" href="../_images/a.png">an image</a></p>
<section id="one"><h2>One</h2><img src="../_images/a.png" loading="lazy"><img class="only-dark" src="../_images/b.png">
<details><summary>Solution</summary><p>Forty-two.</p></details></section>
<div class="cell tag_hide-input"><details class="hide"><summary>Code</summary><pre>plt.figure()</pre></details></div>
"""
SECOND = '<section id="one"><h2>Two</h2><p>The end, <a href="one.html#one">almost</a>.</p></section>'
BUILT = {
    "book/intro": built("The Book", "<p>Welcome.</p>"),
    "notebooks/one": built('1 · "First" \\ & last', FIRST),
    "notebooks/two": built("2 · Second", SECOND),
}
PARTS = {"": ["book/intro"], "The parts": ["notebooks/one", "notebooks/two"]}


@pytest.fixture
def first():
    return pdf.printed(BUILT["notebooks/one"], "notebooks/one", list(BUILT))


def test_links_that_leave_the_book_are_numbered_and_told_at_the_end(first):
    assert [note.text for note in first.select("sup.link-note")] == ["1", "2", "1", "3"]
    published = pages_address(REPOSITORY["url"]).removeprefix("https://")
    notes = ["a.org/x#y", "b.org", f"{published}book/api.html#x"]
    assert [note.text for note in first.select(".link-notes li")] == notes
    assert first.select_one(".elsewhere")["href"] == "https://a.org/x#y"
    assert first.select_one(".told").next_sibling.name != "sup"


def test_the_addresses_stand_in_the_last_section_and_no_page_has_them_alone(first):
    assert first.select_one(".link-notes").parent["id"] == "one--one"


def test_short_code_is_marked_so_that_it_stays_on_one_page():
    body = "".join(f'<pre id="{name}">' + n * "pass\n" + "</pre>" for name, n in (("nine", 9), ("ten", 10)))
    article = pdf.printed(built("Code", body), "notebooks/one", ["notebooks/one"])
    assert [code["id"] for code in article.select("pre.short")] == ["one--nine"]


def test_the_joined_book_has_the_style_sheets_of_every_page_once():
    figures = f'<link rel="stylesheet" href="{STYLE / "live/figures.css"}">'
    pages = BUILT | {"notebooks/two": BUILT["notebooks/two"].replace("</head>", f"{figures}</head>")}
    soup = BeautifulSoup(pdf.join(pages, PARTS, {}), "html.parser")
    sheets = [Path(pdf.JOINED.parent, link["href"]).resolve() for link in soup.select("head link")]
    assert sheets == [STYLE / name for name in ("custom.css", "print.css", "live/figures.css")]


def test_links_inside_the_book_lead_to_its_pages(first):
    found = {name: first.select_one(f".{name}")["href"] for name in ("next", "place", "here")}
    assert found == {"next": "#two", "place": "#two--one", "here": "#one--one"}
    assert "an image" in first.text
    assert first.select_one(".image") is None


def test_a_card_has_the_number_of_its_address_inside():
    body = '<a href="https://a.org"><img src="a.png"><span><strong>Draw</strong> a digit.</span></a>'
    link = pdf.printed(built("Card", body), "notebooks/one", ["notebooks/one"]).select_one("a[href]")
    assert link.text == "Draw1 a digit."
    assert link.sup.parent.name == "strong"


CODE = """<pre><span class="line"><span class="c1"># @title Set-up</span></span>
<span class="k">import</span> os  <span class="c1"># kept</span>
</pre><pre><span class="c1"># @title Code</span>
plot()
</pre>"""


def test_code_loses_the_line_that_names_its_cell_and_no_other():
    article = pdf.printed(built("Code", CODE), "notebooks/one", ["notebooks/one"])
    assert [code.text for code in article.select("pre")] == ["import os  # kept\n", "plot()\n"]


def test_a_caption_stands_before_its_table_and_goes_with_the_picture_above():
    body = """<div class="cell"><details class="hide"></details><div class="cell_output"><img src="a.png"></div></div>
    <p class="figure-caption">Figure 1.</p><p>Text.</p>
    <div><table><caption>Table.</caption><tr><td>1</td></tr></table></div>
    <p>Words alone.</p><p class="figure-caption">Figure 2.</p>"""
    article = pdf.printed(built("Captions", body), "notebooks/one", ["notebooks/one"])
    (figure,) = article.select(".floating")
    assert [child.name for child in figure.find_all(True, recursive=False)] == ["div", "p"]
    assert (figure.select_one("img") is not None, figure.text.strip()) == (True, "Figure 1.")
    assert figure.find_next_sibling().text == "Text."
    assert article.select("caption") == []
    assert article.table.find_previous_sibling("p", class_="table-caption").text == "Table."


def test_what_is_for_a_screen_only_is_gone(first):
    assert not first.select(".headerlink, .only-dark, [loading], [src*=badge]")
    assert first.select_one(".chapter-line").text == "40 minutes"
    image = Path(pdf.JOINED.parent, first.select_one("img")["src"]).resolve()
    assert image == (pdf.HTML / "_images/a.png").resolve()


def test_every_link_of_the_joined_book_has_one_target():
    soup = BeautifulSoup(pdf.join(BUILT, PARTS, {}), "html.parser")
    ids = [element["id"] for element in soup.select("[id]")]
    targets = {link["href"][1:] for link in soup.select("a[href^='#']")}
    assert len(ids) == len(set(ids))
    assert targets <= set(ids)
    assert {"intro", "one", "two", "two--one"} <= targets


def test_the_contents_are_those_of_the_book_but_for_the_api_and_what_a_screen_can_do():
    pages = [page for pages in pdf.contents().values() for page in pages]
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]
    assert pages == [file for file in files if file not in pdf.LEFT_OUT]
    assert set(files) > pdf.LEFT_OUT
    assert "A first look" not in pdf.contents()  # its only page is the one to draw on
    assert [page for page in pages if page.startswith("notebooks/")] == [f"notebooks/{path.stem}" for path in NOTEBOOKS]
    lines = BeautifulSoup(pdf.join(BUILT, PARTS, {"intro": 3, "one": 4, "two": 16}), "html.parser")
    assert [[span.text for span in line.select("span")] for line in lines.select(".book-contents a")] == [
        ["Introduction", "3"],
        ['1 · "First" \\ & last', "4"],
        ["2 · Second", "16"],
    ]


def test_a_bookmark_says_its_title_once(tmp_path):
    writer = PdfWriter()
    for _ in range(3):
        writer.add_blank_page(100, 100)
    parent = writer.add_outline_item(title="RecapRecap", page_number=0)
    writer.add_outline_item(title="Two linesTwo lines", page_number=1, parent=parent)
    writer.add_outline_item(title="Recap", page_number=2)
    writer.add_named_destination("three", 2)
    pdf.mend_titles(writer.outline)
    writer.write(tmp_path / "x.pdf")
    recap, (lines,), last = PdfReader(tmp_path / "x.pdf").outline
    assert [entry.title for entry in (recap, lines, last)] == ["Recap", "Two lines", "Recap"]
    assert pdf.page_numbers(tmp_path / "x.pdf") == {"three": 3}


@pytest.mark.parametrize("variables", [{"PATH": ""}, {"CHROMIUM": "/nowhere/chrome"}])
def test_without_a_browser_it_says_what_to_install(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="sudo apt install chromium"):
        pdf.browser()


@needs_chromium
def test_the_printed_book_has_numbers_bookmarks_and_no_address_of_this_machine(tmp_path, monkeypatch):
    page, paper = tmp_path / "book.html", tmp_path / "book.pdf"
    monkeypatch.setattr(pdf, "JOINED", page)  # it names style sheets and images from where it stands
    numbers = {}
    for _ in range(2):
        page.write_text(pdf.join(BUILT, PARTS, numbers), encoding="utf-8")
        pdf.print_pdf(page, paper)
        numbers = pdf.page_numbers(paper)
    reader = PdfReader(paper)
    texts = [sheet.extract_text() for sheet in reader.pages]
    assert numbers["intro"] < numbers["one"] < numbers["two"] == len(texts)
    assert re.search(rf"2 · Second\s*{numbers['two']}", texts[1])
    assert '1 · "First" \\ & last' in texts[numbers["one"] - 1].split("\n", 1)[1]  # in its foot as well
    assert "Forty-two." in texts[numbers["one"] - 1]
    assert "plt.figure" not in "".join(texts)
    assert [entry.title for entry in reader.outline if not isinstance(entry, list)] == [
        "Contents",
        "Introduction",
        '1 · "First" \\ & last',
        "2 · Second",
    ]
    notes = [note.get_object() for sheet in reader.pages for note in sheet.get("/Annots", ())]
    addresses = {note["/A"]["/URI"] for note in notes if "/URI" in note.get("/A", ())}
    assert "https://a.org/x#y" in addresses
    assert [address for address in addresses if not address.startswith("https://")] == []


FIGURE = """<div style="height: 170mm">Filler.</div><div class="cell"><div class="cell_output">
<div style="height: 120mm">PICTURE</div></div></div><p class="figure-caption">Figure 1.</p><p>It follows.</p>
<blockquote class="card-note"><p>So does a card.</p></blockquote><h2>Next</h2>
<details><summary>Hint</summary><p>Help.</p></details>"""


@needs_chromium
def test_a_figure_that_finds_no_room_lets_its_text_go_first_and_no_handle_has_a_triangle(tmp_path, monkeypatch):
    page, paper = tmp_path / "book.html", tmp_path / "book.pdf"
    monkeypatch.setattr(pdf, "JOINED", page)
    page.write_text(pdf.join(BUILT | {"notebooks/two": built("Two", FIGURE)}, PARTS, {}), encoding="utf-8")
    pdf.print_pdf(page, paper)
    *_, first, second = (sheet.extract_text() for sheet in PdfReader(paper).pages)
    assert [text in first for text in ("Filler.", "It follows.", "So does a card.", "PICTURE")] == [True] * 3 + [False]
    assert [text in second for text in ("PICTURE", "Figure 1.", "Next", "Hint", "Help.")] == [True] * 5
    assert "▸" not in second


# What a box must not do on paper: reach over the edge, or hold more than it shows. (For one that reaches over the edge
# Chromium would shrink the whole book.)
CUT = """() => [...document.querySelectorAll("article, article :is(pre, table, img, .output, div.formula math)")]
    .filter((box) => box.getBoundingClientRect().right > box.closest("article").getBoundingClientRect().right + 1
        || box.matches("article, pre, .output") && box.scrollWidth > box.clientWidth + 1
        || getComputedStyle(box).overflowY != "visible" && box.scrollHeight > box.clientHeight + 1)
    .map((box) => box.closest("article").id + ": " + box.outerHTML.slice(0, 200))"""


# What a hand would move or press, and the box that invites it.
TO_PRESS = """() => [...document.querySelectorAll("article :is(button, select, input, .live-figure)")]
    .filter((element) => element.checkVisibility())
    .map((element) => element.closest("article").id + ": " + element.outerHTML.slice(0, 200))"""


# The triangle of a handle, though nothing on paper can be opened.
TRIANGLES = """() => [...document.querySelectorAll("article summary")]
    .filter((title) => getComputedStyle(title, "::before").display != "none")
    .map((title) => title.closest("article").id + ": " + title.textContent)"""


# A figure that floats, and the box that would be drawn over it: only lines make way by themselves.
COVERED = """() => {
    const boxes = [...document.querySelectorAll("article :is(h2, h3, h4, pre, table, details, [class*='card-'])")];
    return [...document.querySelectorAll(".floating")].flatMap((figure) => boxes
        .map((box) => [box, box.getBoundingClientRect(), figure.getBoundingClientRect()])
        .filter(([box, a, b]) => !box.contains(figure) && !figure.contains(box) && a.height
            && a.top < b.bottom - 1 && b.top < a.bottom - 1)
        .map(([box]) => box.closest("article").id + ": " + figure.textContent + box.textContent.slice(0, 80)));
}"""


# A picture whose sides are no longer in proportion.
SQUEEZED = """() => [...document.querySelectorAll("article img")]
    .filter((image) => image.checkVisibility() && getComputedStyle(image).objectFit == "fill"
        && Math.abs(image.width / image.height / (image.naturalWidth / image.naturalHeight) - 1) > 0.03)
    .map((image) => image.closest("article").id + ": " + image.alt)"""


def in_print(page: Path, *scripts: str) -> list[str]:
    """What the scripts find on a page of HTML, as it would be printed."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = chromium.new_page(viewport=PAPER)
        tab.emulate_media(media="print")
        tab.goto(page.as_uri(), wait_until="load")
        tab.evaluate("document.fonts.ready")
        return [found for script in scripts for found in tab.evaluate(script)]


@needs_chromium
def test_no_box_of_the_book_is_cut_in_print_and_nothing_waits_for_a_hand():
    parts = pdf.contents()
    if not (pdf.HTML / "index.html").exists():
        pytest.fail("_build/html/index.html is missing: run `make book` first")
    pdf.JOINED.parent.mkdir(exist_ok=True)
    pdf.JOINED.write_text(pdf.join(pdf.built_pages(parts), parts, {}), encoding="utf-8")
    assert in_print(pdf.JOINED, CUT, TO_PRESS, TRIANGLES, COVERED, SQUEEZED) == []
    assert "@title" not in pdf.JOINED.read_text(encoding="utf-8")


@needs_chromium
@pytest.mark.parametrize(
    "box", ['<pre style="white-space: pre !important">{}</pre>', "<table><tr><td>{}</td></tr></table>"]
)
def test_a_cut_box_is_found(tmp_path, box):
    page = tmp_path / "page.html"
    for text, cut in (("short", False), ("x" * 200, True)):
        page.write_text(built("Title", box.format(text)), encoding="utf-8")
        assert any(box[1:4] in found for found in in_print(page, CUT)) == cut


@needs_chromium
@pytest.mark.parametrize(("style", "covered"), [("", False), ("display: block !important", True)])
def test_a_covered_figure_is_found(tmp_path, monkeypatch, style, covered):
    monkeypatch.setattr(pdf, "JOINED", tmp_path / "book.html")
    figure = FIGURE.replace('class="card-note"', f'class="card-note" style="{style}"').replace("<p>It follows.</p>", "")
    text = pdf.join(BUILT | {"notebooks/two": built("Two", figure)}, PARTS, {})
    pdf.JOINED.write_text(text, encoding="utf-8")
    assert any("So does a card." in found for found in in_print(pdf.JOINED, COVERED)) == covered
