"""The whole book in a real browser, and small pages with one fault each that the checks have to find."""

import re

import browser
import pytest
from browser import CHECKS, VIEWS, View
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
def test_page(name, width, chromium, book, remembered):
    look_at(name, width, chromium, book, remembered)


@pytest.mark.parametrize(("term", "name"), SEARCHES.items(), ids=list(SEARCHES))
def test_the_first_hit_teaches_it(term, name, chromium, book):
    search_for(term, name, chromium, book)


# Pages with one fault each -----------------------------------------------------------------------------------------

SOUND = """<!doctype html>
<html lang="en"><head><title>Sound</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width">
<style>
  body { background: white; color: black }
  [data-theme=dark] body { background: #111; color: #eee }
  a { color: inherit; display: inline-block; min-height: 24px }
  .card-predict { border-left: 3px solid blue }
</style>
<script>
  document.documentElement.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
</script></head>
<body><a class="skip" href="#main">Skip to the text</a>
<nav aria-label="Book"><a href="page.html">The next chapter</a></nav>
<main id="main" tabindex="-1"><article><h1>Sound</h1><section>
<p>Let <math><mi>x</mi></math> be a <a href="page.html">number</a>. It costs <code>$2$</code>.</p>
<blockquote class="card-predict"><p><strong>Predict.</strong> Is it small?</p></blockquote>
<div class="cell_output"><img src="figure.svg" alt="A line that rises." width="200" height="100"></div>
<p class="figure-caption"><strong>Figure 1.1.</strong> It rises.</p>
<details><summary>Solution</summary><p>It is four.</p></details>
</section></article></main></body></html>"""
SOURCE = "Let $x$ be a [number](page). It costs `$2$`.\n\n> **Predict.** Is it small?\n"
FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100"><text y="50" font-size="{}">up</text></svg>'
IMAGE = '<img src="figure.svg" alt="A line that falls." width="200" height="100">'
ROOM = "<details><summary>More</summary>3</details>"

FAULTS = {
    "weight": {'<img src="heavy.png" alt="">': "heavy.png 1."},
    "shift": {
        """<script>addEventListener('load', () => requestAnimationFrame(() => requestAnimationFrame(() =>
        document.querySelector('article').prepend(document.createElement('textarea')))))</script>
        <style>textarea { display: block; height: 400px }</style>""": "of the window moved",
    },
    "theme": {
        "<script>document.documentElement.dataset.theme = 'dark'</script>": "the theme is dark",
        "<style>body { background: #222 }</style>": "the page's colour is rgb(34, 34, 34)",
        "<style>img { filter: brightness(0.8) }</style>": "a filter changes its colours",
    },
    "overflow": {
        '<p style="width: 2000px">wide</p>': "the page is 20",
        '<details><summary>Room</summary><p style="width: 2000px">wide</p></details>': "the page is 20",
        '<style>html { overflow-x: clip }</style><p style="width: 2000px">wide</p>': "beyond the edge: <p> wide",
        '<pre style="width: 50px; overflow: hidden">a long line of code</pre>': "cut off: <pre>",
        '<p style="width: 60px"><code class="whole">(b, n, d)</code></p>': "broken in two: <code.whole> (b, n, d)",
    },
    "formulas": {
        "<p>$$ x^2 $$</p>": "raw TeX: $$ x^2 $$",
        r"<p>\frac{1}{2}</p>": "raw TeX",
        r"<p>\(x\)</p>": "raw TeX",
        "<math><merror>x</merror></math>": "an error: <merror> x",
        "<math><mi>y</mi></math>": "1 formulas in the source, 2 on the page",
        "<style>math { font-size: 0 }</style>": "not to be seen",
    },
    "cards": {
        '<blockquote class="card-pitfall">Beware.</blockquote>': "0 pitfall cards in the source",
        "<style>.card-predict { border: none }</style>": "a predict card has no colour of its own",
        '<blockquote class="card-pitfall" style="border-left: 3px solid blue">Beware.</blockquote>': "no colour of",
    },
    "alt_texts": {
        '<img src="figure.svg" alt="../_images/figure.svg">': "no real alt text",
        '<img src="figure.svg">': "no real alt text",
        '<img src="gone.png" alt="A line that falls.">': "not to be seen: <img> gone.png",
    },
    "captions": {
        f'<div class="cell_output">{IMAGE}</div>': "no caption: <img> figure.svg",
        '<div class="cell_output"><table><tr><td>1</td></tr></table></div>': "no caption: <table>",
        '<p class="figure-caption">Figure 1.3. It falls.</p>': "out of order",
    },
    "letters": {
        "<section><p style='font-size: 15px'>Text.</p></section>": "15.0 px: <p> Text.",
        "<table><tr><td style='font-size: 10px'>1</td></tr></table>": "10.0 px: <td> 1",
        IMAGE.replace("figure", "small"): "7.0 px: <text> up",
        f"<div class='tag_hide-cell' style='font-size: 12px'>{ROOM}</div>": "12.0 px: <summary> More",
        IMAGE.replace("200", "60"): "6.0 px: <text> up",
    },
    "axe": {
        "<button></button>": "button-name: button",
        '<p style="color: #999; background: #aaa">Text.</p>': "color-contrast: p",
        "<pre><b>one</b></pre><pre><b>two</b></pre><pre><b style='color: #bbb'>three</b></pre>": "color-contrast: pre",
        "<pre><b>one</b></pre><div style='background: #222'><pre><b>two</b></pre></div>": "color-contrast: div",
    },
    "tab_order": {
        "<script>document.querySelector('.skip').remove()</script>": "the first stop skips nothing",
        "<script>document.querySelector('.skip').setAttribute('href', '#gone')</script>": "the first stop leads to",
        '<a href="page.html" style="outline: none">unseen</a>': "a stop is not seen: <a> unseen",
        "<button></button>": "a stop without a name: <button>",
        '<span tabindex="0"><math tabindex="0"><mi>y</mi></math></span>': "a formula is a stop: <math> y",
        '<a href="page.html" tabindex="2">early</a><a href="page.html" tabindex="1">earliest</a>': "leads back up",
        "<button onkeydown='event.preventDefault()'>trap</button>": "no end after",
    },
    "solutions": {
        "<script>document.querySelector('summary').onclick = (e) => e.preventDefault()</script>": "click shows nothing",
        "<style>details::details-content { display: none }</style>": "a click shows nothing",
        '<div style="position: fixed; inset: 0"></div>': "a click shows nothing",
        "<script>document.querySelector('summary').onkeydown = (e) => e.preventDefault()</script>": "does not close",
        "<style>summary { outline: none }</style>": "focus is not seen",
    },
    "console": {
        "<script>console.warn('careful')</script>": "careful",
        "<script>throw new Error('broken')</script>": "broken",
        '<script src="gone.js"></script>': "404",
    },
    "hosts": {'<img src="https://example.org/x.png" alt="">': "https://example.org/x.png"},
}
SEEDS = [
    pytest.param(check, fault, message, id=f"{check.__name__}-{message}")
    for check in CHECKS
    for fault, message in FAULTS[check.__name__].items()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the small pages and their pictures lie."""
    import numpy as np
    from PIL import Image

    folder = tmp_path_factory.mktemp("pages")
    (folder / "figure.svg").write_text(FIGURE.format(20))
    (folder / "small.svg").write_text(FIGURE.format(7))
    noise = np.random.default_rng(0).integers(256, size=(800, 700, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "heavy.png")
    return folder


@pytest.fixture(scope="module")
def small(chromium, folder):
    """Opens a small page."""
    with browser.serve(folder) as url:

        def opened(content: str, view: View = VIEWS["desktop-light"], **options):
            (folder / "page.html").write_text(content, encoding="utf-8")
            return browser.visit(chromium, f"{url}/page.html", view, source=SOURCE, **options)

        yield opened


@pytest.mark.parametrize("view", VIEWS)
def test_a_sound_page_has_no_faults(view, small):
    with small(SOUND, VIEWS[view]) as visit:
        assert {check.__name__: faults for check in CHECKS if (faults := check(visit))} == {}


@pytest.mark.parametrize(("check", "fault", "message"), SEEDS)
def test_a_fault_is_found(check, fault, message, small):
    with small(SOUND.replace("</section>", f"{fault}</section>")) as visit:
        assert message in "\n".join(check(visit))


def test_what_only_a_phone_or_the_dark_shows_is_found(small):
    table = '<div class="pst-scrollable-table-container" style="overflow: auto"><table><tr><th style="{}">a</th>'
    table += '<td style="min-width: 2000px">1</td></tr></table></div>'
    for style, faults in (("position: sticky; left: 0", 0), ("", 1)):
        with small(SOUND.replace("</section>", f"{table.format(style)}</section>"), VIEWS["phone-light"]) as visit:
            found = browser.overflow(visit)
            assert len(found) == faults and all("its rows lose their names" in fault for fault in found)
    for style, faults in (("", 0), ("background: white", 1)):
        picture = IMAGE.replace(">", f' style="{style}">')
        with small(SOUND.replace("</section>", f"{picture}</section>"), VIEWS["phone-dark"]) as visit:
            found = browser.theme(visit)
            assert len(found) == faults and all("on white: <img>" in fault for fault in found)


def test_axe_gets_its_page_back_as_it_was(small):
    """Axe is spared closed rooms, and code whose colours it has seen, but for its links."""
    rooms = "<details><summary>Out</summary><details><summary>In</summary>3</details></details>"
    code = 3 * '<pre>1 <b>2</b> <a href="#">3</a></pre>'
    with small(SOUND.replace("</section>", f"{code}{rooms}</section>")) as visit:
        before = visit.page.content()
        visit.page.evaluate(browser.SPARE)
        spared = [visit.page.locator(f"article {what}").count() for what in ("pre b", "pre a", "details", "details p")]
        assert spared == [1, 3, 2, 0]  # the first of three pieces, every link; the outer rooms without what they hold
        visit.page.evaluate(browser.PUT_BACK)
        assert visit.page.content() == before


def test_a_button_that_does_nothing_is_found(small):
    with small(SOUND.replace("<nav", '<button class="theme-switch-button">Theme</button><nav')) as visit:
        dark = browser.turn(visit, VIEWS["desktop-dark"])
        assert browser.theme(dark)[0] == "the theme is light"


def test_a_choice_that_is_forgotten_is_found(small):
    with small(SOUND, VIEWS["desktop-dark"], remembered={}) as visit:
        assert browser.theme(visit)[0] == "the theme is light"


def test_a_page_turns_with_the_system(small):
    """The sound page follows the system when it is loaded, and no later."""
    follows = "matchMedia('(prefers-color-scheme: dark)').onchange = ({matches}) => {"
    follows += "document.documentElement.dataset.theme = matches ? 'dark' : 'light'}"
    for script, faults in ((follows, []), ("", ["the theme is dark", "the page's colour is rgb(17, 17, 17)"])):
        with small(SOUND.replace("</script>", f"{script}</script>"), VIEWS["phone-dark"]) as visit:
            assert browser.theme(browser.turn(visit, VIEWS["phone-light"])) == faults


def test_the_order_of_hits_is_seen(small):
    results = '<div id="search-results"><li><a href="b.html?x#y">b</a></li><li><a href="a.html">a</a></li></div>'
    with small(f'{results}<p class="search-summary">found 2</p>') as visit:
        assert browser.hits(visit.page, "a") == ["b.html", "a.html"]


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_a_browser_ci_fails_and_others_skip(ci, outcome, monkeypatch):
    monkeypatch.setenv("CI", ci)
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(outcome, match="no Chromium or Chrome"):
        browser.installed()
