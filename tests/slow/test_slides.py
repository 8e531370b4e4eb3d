"""The slides in a browser, from disk and without a network: each shows all of itself, in letters that are read."""

import browser
import pytest
import slides
from notebook_rules import ROOT, exercise_calls, read

DECKS = ROOT / "_build/html/slides"
FAULTS = """() => [...Reveal.getCurrentSlide().querySelectorAll('.slide *')].filter(visible).flatMap((e) => {
  const {top, right, bottom, left} = e.getBoundingClientRect(), zoom = e.currentCSSZoom;
  const text = [...e.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  return e.closest('math, svg, sup') ? [] : [
    (top < -1 || left < -1 || right > 1281 || bottom > 715) && 'beyond the edge',
    /pre|div/.test(e.localName) && e.scrollWidth > e.clientWidth + 1 && 'cut',
    text && parseFloat(getComputedStyle(e).fontSize) * zoom < 17 && 'small',
    e.localName === 'img' && !e.naturalWidth && 'missing',
  ].filter(Boolean).map((fault) => `${fault}: ${called(e)}`);
})"""


def show(chromium, stem):
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    page.add_init_script(browser.PRELUDE)
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("request", lambda request: request.url.startswith("file:") or pytest.fail(request.url))
    page.goto((DECKS / f"{stem}.html").as_uri())
    return page


@pytest.mark.parametrize("stem", slides.CHAPTERS)
def test_every_slide_shows_all_of_itself_and_a_live_figure_runs(stem, chromium):
    page, faults = show(chromium, stem), []
    for _ in range(page.evaluate("Reveal.getTotalSlides()")):
        faults += page.evaluate(FAULTS)
        if (switch := page.locator("section.present .fig-switch")).count():
            switch.press("Space")
            page.locator("section.present .fig-stage :is(input, select)").first.wait_for()
            faults += [fault for fault in page.evaluate(FAULTS) if not fault.startswith("small")]
            switch.click()
            switch.blur()
        page.keyboard.press("Space")
    assert page.evaluate("Reveal.isLastSlide()") and faults == []
    assert page.locator(".card-exercise").count() == len(exercise_calls(read(ROOT / f"notebooks/{stem}.ipynb")))


def test_a_spoilt_slide_is_found(chromium):
    page = show(chromium, "01_patches")
    page.evaluate("Reveal.getCurrentSlide().querySelector('.slide').innerHTML += '<p>word</p>'.repeat(99)")
    assert any("beyond the edge" in found for found in page.evaluate(FAULTS))
