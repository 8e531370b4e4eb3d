"""The slides: what becomes of a page, and what a browser shows. `make test` runs it once the pages are built."""

import json
import re

import browser
import pytest
import slides
from bs4 import BeautifulSoup
from live_figures import FIGURES
from notebook_rules import ROOT, exercise_calls, read
from test_browser import HTML

DECKS = pytest.mark.parametrize("stem", slides.CHAPTERS)
PAGE = """<article><section id="a"><h1>3 · Attention<a class="headerlink" href="#a">#</a></h1>
<p class="chapter-line">badge</p><p>A photograph is a grid. What now?</p>
<section id="b"><h2>Three tokens</h2><p>Take a roof. Take a tree.</p>
<blockquote class="card-note card-predict"><p><strong>Predict.</strong> Who wins?</p></blockquote>
<p>The roof does. It always did.</p><p>So look:</p>
<div class="cell"><div class="cell_input"><pre>1 + 1</pre></div><div class="cell_output"><pre>2</pre></div></div>
<div class="cell tag_hide-input"><details class="hide"><summary>Code</summary><pre>plt.plot()</pre></details>
<div class="cell_output"><img src="../_images/f.svg" alt="A line that rises." width="700" height="300"></div></div>
<p class="figure-caption"><strong>Figure 3.1.</strong> It rises. <a href="02_positions.html">Why?</a></p>
<details class="deeper"><summary>Going deeper</summary><p>Proof.</p></details>
<div class="cell tag_hide-input"><div class="cell_output"><pre>checked</pre></div></div></section>
<section><h3>Exercise 3.1: Add</h3><div class="card-exercise"><p class="effort">★☆☆ 5 minutes</p>
<p>Write <code>add</code>.</p>
<details><summary>Hint</summary></details><div class="cell"><pre>def add</pre></div></div></section>
<section><h2>Further reading</h2><p>A paper.</p></section></section></article>"""


def small_deck() -> list[slides.Slide]:
    article = slides.article_of(BeautifulSoup(PAGE, "html.parser"))
    return [slide for _, some in slides.deck(article, "The Book") for slide in some]


def words(html: str) -> str:
    return " ".join(BeautifulSoup(html, "html.parser").get_text(" ").split())


def test_what_stands_on_the_slides_of_a_page():
    assert [(slide.kind.split()[0], words(slide.body)) for slide in small_deck()] == [
        ("title", "The Book 3 · Attention A photograph is a grid. What now?"),
        ("section", "Three tokens Take a roof. Take a tree."),
        ("words", "Predict. Who wins?"),
        ("words", "The roof does. It always did."),
        ("code", "So look: 1 + 1 2"),
        ("wide", "Figure 3.1. It rises. Why?"),
        ("exercise", "Exercise 3.1: Add ★☆☆ 5 minutes Write add ."),
    ]


def test_all_prose_is_in_the_notes_and_nothing_folded_is():
    notes = words(" ".join(note for slide in small_deck() for note in slide.notes))
    assert all(part in notes for part in ("What now?", "Take a tree.", "It always did.", "So look:", "It rises."))
    assert "Proof" not in notes and "A paper" not in notes


def test_only_an_exercise_hangs_below():
    assert [slide.below for slide in small_deck()] == [False] * 6 + [True]


def test_a_live_figure_comes_along_with_its_picture():
    invitation = f"""<div class="live-figure" data-live="figures/attention"><p class="fig-invitation">Heat it.</p>
<button class="fig-switch" aria-controls="live-3-1">Make it live</button><div class="fig-stage" id="live-3-1"></div>
<script type="application/json">{json.dumps({"data": 1})}</script></div>"""
    page = BeautifulSoup(
        PAGE.replace('<details class="deeper">', f'{invitation}<details class="deeper">'), "html.parser"
    )
    slide = next(each for _, some in slides.deck(slides.article_of(page), "") for each in some if each.kind == "wide")
    body = BeautifulSoup(slide.body, "html.parser")
    assert [part["class"][0] for part in body.find_all(recursive=False)] == ["figure", "live-figure", "caption"]
    assert json.loads(body.select_one(".live-figure script").string) == {"data": 1}
    assert body.select_one("#live-3-1.fig-stage") and body.button.get_text() == "Make it live"


def test_links_lead_to_the_pages_and_no_id_stands_twice():
    article = slides.article_of(BeautifulSoup(PAGE, "html.parser"))
    assert [link["href"] for link in article.select("a")] == ["../notebooks/02_positions.html"]
    assert not article.select("[id], details, .headerlink")


def test_code_fills_a_slide_and_never_becomes_too_small():
    assert slides.fitting(["x = 1"]) == slides.LETTERS[1]
    assert slides.fitting(["x" * 88] * 10) == pytest.approx(slides.WIDTH / (88 * slides.LETTER[0]))
    assert slides.fitting(["x"] * 200) == slides.LETTERS[0]


def test_a_tall_figure_has_its_caption_beside_it():
    image = BeautifulSoup('<img src="f.svg" width="500" height="500">', "html.parser").img
    assert slides.figure_slide([image], None, "").kind == "tall"


def test_without_reveal_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(slides.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install sphinx-revealjs"):
        slides.main()


# In a browser ------------------------------------------------------------------------------------------------------

# All that is wrong with the slide in view, in a window of its own size.
FAULTS = """() => {
  const slide = Reveal.getCurrentSlide().querySelector('.slide'), edge = slide.getBoundingClientRect(), faults = [];
  if (slide.scrollHeight > slide.clientHeight + 1 || slide.scrollWidth > slide.clientWidth + 1) faults.push('overflow');
  for (const e of shown('.slides section.present .slide *')) {
    if (e.closest('math') && e.localName !== 'math') continue;
    const {top, right, bottom, left} = e.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(e).fontSize) * (e.localName === 'text' ? e.getScreenCTM().a : 1);
    if (top < edge.top - 1 || left < edge.left - 1 || right > edge.right + 1 || bottom > edge.bottom - 20)
      faults.push(`beyond the edge: ${called(e)}`);
    if (/pre|table|math/.test(e.localName) && e.scrollWidth > e.clientWidth + 1) faults.push(`cut: ${called(e)}`);
    const text = [...e.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
    if (text && size < 17.9 && !e.closest('math, sup, sub')) faults.push(`${size} px: ${called(e)}`);
    if (e.localName === 'img' && !e.naturalWidth) faults.push(`not to be seen: ${called(e)}`);
    if (e.localName === 'img' && (e.alt.length < 10 || !e.alt.includes(' '))) faults.push(`no alt text: ${called(e)}`);
  }
  return faults;
}"""
SEEN = """async () => {
  const images = [...Reveal.getCurrentSlide().querySelectorAll('img')].filter((image) => image.checkVisibility());
  await Promise.allSettled(images.map((image) => image.decode()));
}"""


@pytest.fixture
def deck(request, chromium):
    """An open deck: a page whose ``goto`` takes one of the chapters."""
    if not slides.SLIDES.exists():
        pytest.fail("_build/html/slides is missing: run `make slides` first")
    page = chromium.new_page(viewport={"width": 1280, "height": 720}, color_scheme="light")
    page.add_init_script(browser.PRELUDE)
    said = []
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))

    def open_deck(stem: str, query: str = ""):
        page.goto(f"{(slides.SLIDES / stem).with_suffix('.html').as_uri()}{query}")
        page.wait_for_function("window.Reveal?.isReady()")
        return page

    yield open_deck
    page.close()
    assert said == []


def at(page) -> tuple[int, int]:
    place = page.evaluate("Reveal.getIndices()")
    return place["h"], place["v"]


@DECKS
def test_every_slide_shows_all_of_itself(stem, deck):
    """It goes through the deck by the space bar, from disk and without a network."""
    page, faults, exercises = deck(stem), [], 0
    for number in range(1, 1 + page.evaluate("Reveal.getTotalSlides()")):
        page.evaluate(SEEN)
        faults += [f"slide {number}: {fault}" for fault in page.evaluate(FAULTS)]
        exercises += page.evaluate("Reveal.getCurrentSlide().querySelectorAll('.exercise').length")
        page.keyboard.press("Space")
    assert page.evaluate("Reveal.isLastSlide()")
    assert faults == []
    assert exercises == len(exercise_calls(read(ROOT / f"notebooks/{stem}.ipynb")))


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        ("slide.innerHTML += '<p>word</p>'.repeat(40)", "overflow"),
        ("slide.innerHTML += '<p style=\"font-size: 12px\">small</p>'", "12 px"),
        ("slide.innerHTML += `<pre>${'x'.repeat(200)}</pre>`", "cut"),
        ("slide.innerHTML += '<p style=\"position: absolute; left: 1270px\">far</p>'", "beyond the edge"),
        ('slide.innerHTML += \'<img src="../_images/none.png" alt="" width="9" height="9">\'', "no alt text"),
    ],
)
def test_a_spoilt_slide_is_found(spoil, fault, chromium):
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    page.add_init_script(browser.PRELUDE)
    page.goto((slides.SLIDES / "01_patches.html").as_uri())
    page.wait_for_function("window.Reveal?.isReady()")
    assert page.evaluate(FAULTS) == []
    page.evaluate(f"() => {{ const slide = Reveal.getCurrentSlide().querySelector('.slide'); {spoil}; }}")
    assert any(fault in found for found in page.evaluate(FAULTS))
    page.close()


LIVE = [(f"{int(stem[:2])}", stem) for stem in slides.CHAPTERS]
LIVE = [(number, stem) for chapter, stem in LIVE for number in FIGURES if number.partition(".")[0] == chapter]


def show_live(page, number: str):
    """The slide of a live figure, and the figure on it."""
    page.evaluate(
        """number => {
          const live = document.getElementById(`live-${number.replace('.', '-')}`).parentElement;
          const {h, v} = Reveal.getIndices(live.closest('section'));
          Reveal.slide(h, v);
        }""",
        number,
    )
    return page.locator("section.present .live-figure")


@pytest.mark.parametrize(("number", "stem"), LIVE)
def test_a_live_figure_runs_on_its_slide_and_shows_all_of_itself(number, stem, deck):
    """From disk; every control at both of its ends, for some of them change how much there is to show."""
    page = deck(stem)
    live = show_live(page, number)
    where, stage, switch = at(page), live.locator(".fig-stage"), live.locator(".fig-switch")
    assert page.locator("section.present .figure").is_visible() and not stage.is_visible()
    switch.press("Space")
    stage.locator("input, select").first.wait_for()
    assert not page.locator("section.present .figure, section.present .caption").filter(visible=True).count()
    before, faults = stage.screenshot(), page.evaluate(FAULTS)
    for control in stage.locator("input[type=range], select").all():
        for key in ("End", "Home"):
            control.press(key)
            faults += page.evaluate(FAULTS)
    assert faults == []
    assert stage.screenshot() != before
    assert at(page) == where
    switch.click()
    assert page.locator("section.present .figure").is_visible() and not stage.is_visible()
    page.keyboard.press("ArrowRight")
    assert at(page) != where, "outside of the figure the arrows turn the slides"


def test_keys_in_a_live_figure_are_its_own_until_escape(deck):
    page = deck("03_attention")
    live = show_live(page, "3.3")
    where = at(page)
    live.locator(".fig-switch").click()
    heat, handle = live.locator("input[type=range]"), live.locator(".fig-handle").first
    for key in ("ArrowRight", "PageUp", "Space", "n", "t", "o"):
        heat.press(key)
    handle.press("ArrowRight")
    assert at(page) == where and not page.evaluate("Reveal.isOverview()")
    assert heat.input_value() > "0" and handle.get_attribute("aria-valuenow") == "13"
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("Escape")
    assert not page.evaluate("Reveal.isOverview()")
    page.keyboard.press("ArrowRight")
    assert at(page) != where


def test_arrows_move_and_t_turns_light_and_dark(deck):
    page = deck("01_patches")
    below = page.evaluate("Reveal.getHorizontalSlides().findIndex((column) => column.classList.contains('stack'))")
    for _ in range(below):
        page.keyboard.press("ArrowRight")
    assert at(page) == (below, 0)
    page.keyboard.press("ArrowDown")
    assert at(page) == (below, 1) and page.evaluate("!!Reveal.getCurrentSlide().querySelector('.exercise')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert at(page)[0] == below
    paper = "getComputedStyle(document.querySelector('.slide')).backgroundColor"
    light = page.evaluate(paper)
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark" and page.evaluate(paper) != light


def test_a_page_of_paper_for_each_slide(deck, tmp_path):
    from pypdf import PdfReader

    page = deck("01_patches", "?print-pdf")
    page.wait_for_selector(".pdf-page")
    page.pdf(path=tmp_path / "deck.pdf", prefer_css_page_size=True, print_background=True)
    printed = PdfReader(tmp_path / "deck.pdf").pages
    assert len(printed) == len(
        re.findall(r'<div class="slide ', (slides.SLIDES / "01_patches.html").read_text("utf-8"))
    )
    texts = [" ".join(page.extract_text().split()) for page in printed]
    assert "An image becomes" in texts[0]
    (figure,) = [text for text in texts if "Figure 1.2." in text]
    assert "live" not in figure, "paper has the picture alone"


def test_a_deck_asks_no_other_host():
    for stem in slides.CHAPTERS:
        soup = BeautifulSoup((slides.SLIDES / f"{stem}.html").read_text(encoding="utf-8"), "html.parser")
        fetched = [tag.get("src") or tag["href"] for tag in soup.select("[src], link[href]")]
        assert all(not re.match(r"\w+:|//", address) for address in fetched)
        assert all((slides.SLIDES / address).exists() for address in fetched)
        leading = [link["href"].split("#")[0] for link in soup.select("a[href]") if "://" not in link["href"]]
        assert all((slides.SLIDES / address).resolve().is_relative_to(HTML) for address in leading)
        assert all((slides.SLIDES / address).exists() for address in leading)
