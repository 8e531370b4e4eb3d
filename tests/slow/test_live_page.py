"""The page "Draw a digit" in a real browser, from the built book."""

import gzip
import json
import posixpath
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import browser
import pytest
import torch
from browser import TWO_FRAMES, View
from notebook_rules import ROOT
from test_book import page as built

from vit_tutorial.live import MEASURED

HTML = ROOT / "_build" / "html"
HEAVIEST = 640_000  # bytes of the page and its own files, gzipped
DESKTOP, PHONE = View(1280, 900, "light"), View(360, 740, "light")
THREE = [(30, 20), (50, 12), (68, 25), (60, 42), (42, 48), (62, 54), (70, 72), (50, 88), (30, 80)]


def places(page) -> list[tuple[float, float]]:
    """Where THREE, in per cent of the sheet, lies in the window."""
    page.locator(".live-sheet").scroll_into_view_if_needed()
    box = page.locator(".live-sheet").bounding_box()
    return [(box["x"] + x / 100 * box["width"], box["y"] + y / 100 * box["height"]) for x, y in THREE]


def draw(page) -> None:
    """A 3, with the mouse."""
    first, *others = places(page)
    page.mouse.move(*first)
    page.mouse.down()
    for place in others:
        page.mouse.move(*place, steps=5)
    page.mouse.up()


def answer(page) -> str:
    page.evaluate(TWO_FRAMES)  # the page draws in the next
    return page.locator(".live-says b").inner_text()


READ = """(selector) => {
  const canvas = document.querySelector(selector), {width, height} = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  copy.drawImage(canvas, 0, 0);
  return [...copy.getImageData(0, 0, width, height).data];
}"""


def pixels_of(page, selector: str) -> torch.Tensor:
    """``(pixels, 4)``: red, green, blue and alpha of a canvas."""
    return torch.tensor(page.evaluate(READ, selector), dtype=torch.uint8).reshape(-1, 4)


def guess_everywhere(page) -> None:
    for ask in page.locator(".live-guess").all():
        ask.locator("button").first.click()


# Drawing -----------------------------------------------------------------------------------------------------------


def test_what_the_mouse_draws_is_read_shown_and_taken_along(live_page):
    with live_page() as visit:
        page = visit.page
        assert answer(page) == "4" and page.locator(".live-sheet polyline").count() == 2  # ours
        draw(page)
        assert answer(page) == "3" and page.locator(".live-sheet polyline").count() == 1
        assert "reads a 3" in page.locator(".live-heard").inner_text()
        page.locator("[data-panel=code]").scroll_into_view_if_needed()
        page.locator("[data-panel=logits]").scroll_into_view_if_needed()
        page.wait_for_timeout(200)
        exec(page.locator("[data-panel=code] code").inner_text(), pasted := {})
        assert torch.equal(pasted["digit"].flatten(), pixels_of(page, ".live-seen")[:, 0])
        told = page.locator("[data-panel=logits] tbody td:nth-child(2)").all_inner_texts()
        assert told == [f"{logit:.1f}".replace("-", "−") for logit in pasted["logits"].tolist()]
        page.get_by_role("button", name="Clear").click()
        assert answer(page) == "?" and not pixels_of(page, ".live-seen")[:, :3].any()


def test_a_finger_draws_and_does_not_scroll(live_page):
    with live_page(PHONE) as visit:
        page = visit.page
        touches, before = [{"x": x, "y": y} for x, y in places(page)], page.evaluate("scrollY")
        finger = page.context.new_cdp_session(page)
        finger.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": touches[:1]})
        for a, b in pairwise(touches):
            for part in (0.25, 0.5, 0.75, 1):
                point = {axis: a[axis] + part * (b[axis] - a[axis]) for axis in "xy"}
                finger.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
        finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert answer(page) == "3" and page.evaluate("scrollY") == before


def focus(page, selector: str) -> None:
    """Press Tab until an element that the selector names has the focus."""
    for _ in range(250):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"the Tab key never comes to {selector}")


@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_keyboard_alone_does_everything(view, live_page):
    with live_page(view) as visit:
        page, press = visit.page, visit.page.keyboard.press

        def text(selector: str) -> str:
            page.evaluate(TWO_FRAMES)
            return page.locator(selector).first.inner_text()

        focus(page, ".live-sheet")
        press("Delete")
        for _ in range(7):
            press("ArrowUp")
        press(" ")
        for _ in range(14):
            press("ArrowDown")
        press(" ")
        assert answer(page) == "1" and page.locator(".live-sheet polyline").count() == 1
        press("ArrowLeft")
        press(" ")
        press("Shift+ArrowLeft")
        press("Backspace")
        assert page.locator(".live-sheet polyline").count() == 1
        focus(page, ".live-examples button:nth-of-type(6)")
        press("Enter")
        assert answer(page) == "5"

        focus(page, "[data-panel=patches] [role=listbox]")
        press("ArrowDown")
        lit = int(re.search(r"Patch (\d+)", text("[data-panel=patches] p"))[1])
        press("ArrowLeft")
        assert f"Patch {lit - 1} is 49" in text("[data-panel=patches] p")
        focus(page, "[data-panel=sizes] input")
        press("ArrowRight")
        page.wait_for_function("document.querySelectorAll('[data-panel=patches] .live-tile').length === 49")
        assert answer(page) == "5"
        focus(page, "[data-panel=tokens] [role=listbox]")
        for _ in range(8):
            press("ArrowUp")
        assert "learned, the same for every image" in text("[data-panel=tokens] .live-term")
        focus(page, "[data-panel=attention] [role=listbox]")  # the query
        press("ArrowDown")
        page.keyboard.press("Tab")  # the head
        press("ArrowRight")
        press("ArrowDown")
        assert "Where patch 1 looks, in layer 2, head 2" in text("[data-panel=attention]")
        page.keyboard.press("Tab")  # the key
        press("ArrowDown")
        assert "key of patch 8" in text("[data-panel=attention] .live-sum")

        focus(page, "[data-panel=shuffle] .live-controls button")
        dealt = page.locator("[data-panel=shuffle] .live-hand").first.inner_text()
        press("Enter")
        assert page.locator("[data-panel=shuffle] .live-hand").first.inner_text() != dealt
        page.keyboard.press("Tab")
        press("Enter")
        assert "You called it. It still says 5" in text("[data-panel=shuffle] .live-verdict")
        focus(page, "[data-panel=break] .live-chip input")
        press("ArrowRight")
        assert text("[data-panel=break] h3") == "Skip a layer"
        focus(page, "[data-panel=break] .live-slider input")
        press("ArrowRight")
        assert text("[data-panel=break] output") == "2"
        page.keyboard.press("Tab")
        press(" ")
        assert "5" in text("[data-panel=break] .live-verdict")


# What the panels show ----------------------------------------------------------------------------------------------


def test_a_patch_is_lit_wherever_it_is(live_page):
    with live_page() as visit:
        page = visit.page
        page.locator("[data-panel=patches] .live-tile").nth(5).hover()
        page.wait_for_timeout(100)
        for panel, lead in (("patches", 0), ("tokens", 1), ("attention", 1)):
            page.locator(f"[data-panel={panel}]").scroll_into_view_if_needed()
            page.mouse.move(0, 0)
            page.wait_for_timeout(100)
            for grid in page.locator(f"[data-panel={panel}] .live-tiles:not(.maps)").all():
                lit = grid.locator(".live-tile").evaluate_all("(all) => all.map((tile) => tile.matches('.lit'))")
                assert [i for i, on in enumerate(lit) if on] == [5 + lead]
        assert "lit: patch 6" in page.locator("[data-panel=bar]").inner_text()
        page.locator("[data-panel=shuffle]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        assert page.locator("[data-panel=shuffle] .live-hand .lit").first.inner_text() == "6"  # it kept its position
        page.locator("[data-panel=stream]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        boxes = page.locator("[data-panel=stream] .live-lit").evaluate_all("(all) => all.map((box) => box.style.left)")
        assert boxes == ["25%"] * 5  # the second of four columns


def test_one_guesses_first_and_then_sees_what_was_measured(live_page):
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["runs"]["mnist"]
    told = lambda row: f"{row['accuracy']:.{1 if row['accuracy'] > 0.99 else 0}%}".replace("%", " %")  # noqa: E731
    with live_page() as visit:
        page = visit.page
        assert page.locator(".live-score").count() == 0
        assert not "".join(page.locator(".live-verdict").all_inner_texts())
        guess_everywhere(page)
        cards = page.locator("[data-panel=shuffle] .live-card").all()
        together, patches, bag, shuffled = (
            [card.locator(".live-bars").nth(i).inner_text() for i in (0, 1)] for card in cards
        )
        assert together[0] == together[1] and patches[0] != patches[1] and bag[0] == together[0] != bag[1]
        assert shuffled == [bag[1], bag[1]]
        (card,) = page.locator("[data-panel=break] .live-card").all()
        healthy, muted = card.locator(".live-score b").all_inner_texts()
        assert [healthy, muted] == [told(rows[0]), told(rows[1])]
        page.get_by_text("Look at everything equally").click()
        assert card.locator(".live-score").count() == 0
        guess_everywhere(page)
        (uniform,) = (row for row in rows if row["name"] == "uniform")
        assert card.locator(".live-score b").last.inner_text() == told(uniform)


def test_a_guess_is_judged_for_the_digit_and_the_order_that_it_was_made_for(live_page):
    with live_page() as visit:
        page = visit.page
        guess_everywhere(page)
        last = page.locator("[data-panel=shuffle] .live-card").last
        told, pressed = last.locator(".live-verdict"), last.locator(".live-guess [aria-pressed=true]")
        unchanged = "Unchanged by the shuffle: all ten probabilities are the same."
        assert "You called it." in told.inner_text() and unchanged in told.inner_text() and pressed.count() == 1
        last.get_by_text("Shuffle again").click()
        assert unchanged in told.inner_text() and "called" not in told.inner_text() and pressed.count() == 0
        last.locator(".live-guess button").nth(1).click()
        assert "Not quite." in told.inner_text() and unchanged in told.inner_text()
        page.get_by_role("button", name="Draw a 7").click()
        last.scroll_into_view_if_needed()
        page.wait_for_timeout(200)
        assert "Not quite." not in told.inner_text() and pressed.count() == 0


def test_the_other_theme_paints_in_its_own_colours(live_page):
    with live_page() as visit:
        visit.page.locator("[data-panel=attention]").scroll_into_view_if_needed()
        for theme, colour in (("light", [0x33, 0x22, 0x88]), ("dark", [0xA9, 0x9B, 0xEA])):
            visit.page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
            visit.page.wait_for_timeout(100)
            painted = pixels_of(visit.page, ".live-tiles.maps canvas")
            assert painted[painted[:, 3].argmax(), :3].tolist() == colour


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_everyone_can_use_all_of_it(width, theme, live_page):
    with live_page(View(width, 900, theme)) as visit:
        guess_everywhere(visit.page)
        for room in visit.page.locator("details.live-lines").all():
            room.evaluate("(room) => { room.open = true; }")
        visit.page.evaluate(browser.SCROLL)
        assert browser.axe(visit, everywhere=True) == []
        assert browser.overflow(visit) == browser.letters(visit) == []
        assert visit.page.locator(".live-code").evaluate("(e) => e.scrollWidth <= e.clientWidth")
        assert visit.page.evaluate("document.getAnimations().length") == 0


# Where it comes from -----------------------------------------------------------------------------------------------


def test_the_page_is_light(chromium, book):
    """What it asks for before anyone scrolls."""
    page = chromium.new_page()
    page.goto(f"{book}/book/live.html")
    urls = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    page.close()
    names = {posixpath.basename(urlsplit(url).path) for url in urls}
    assert "mnist.js" in names and not names & {"mnist-patch4.js", "still.svg"}
    files = [HTML / "book/live.html", *(path for path in (HTML / "_static/live").iterdir() if path.name in names)]
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= HEAVIEST


def test_other_pages_load_nothing_of_it():
    page = (HTML / "book" / "accessibility.html").read_text(encoding="utf-8")
    assert "live.css" not in page and 'type="module"' not in page


def test_it_works_from_disk(live_page):
    with live_page(url=(HTML / "book/live.html").as_uri()) as visit:
        draw(visit.page)
        assert answer(visit.page) == "3"
        visit.page.get_by_text("4 × 4").click()
        visit.page.wait_for_function("document.querySelectorAll('[data-panel=patches] .live-tile').length === 49")
        assert answer(visit.page) == "3"


def test_links_lead_to_sections_that_there_are():
    links = built("book/live").select(".live-source a")
    assert len(links) >= 8
    for link in links:
        target = urlsplit(link["href"])
        page = built(posixpath.normpath(f"book/{target.path}").removesuffix(".html"))
        assert page.find(id=target.fragment) is not None, link["href"]


# When something is missing -----------------------------------------------------------------------------------------


def test_without_javascript_there_is_a_picture(chromium, book):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{book}/book/live.html")
    assert (
        page.locator(".live-still img").is_visible() and "needs JavaScript" in page.locator(".live-still").inner_text()
    )
    context.close()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace('"float16":"', '"float16":"AAAA', 1), "damaged weights"),
        (lambda text: text[: len(text) // 2], "mnist.js is missing or damaged"),
        (None, "mnist.js is missing or damaged"),
    ],
    ids=["changed", "cut", "gone"],
)
def test_damaged_weights_are_told_beside_a_picture(damage, message, chromium, book):
    context = chromium.new_context()
    page = context.new_page()
    body = damage and damage((HTML / "_static/live/mnist.js").read_text(encoding="utf-8"))
    page.route("**/mnist.js", lambda route: route.fulfill(body=body) if body else route.abort())
    page.goto(f"{book}/book/live.html")
    page.wait_for_selector(".live-failed")
    assert message in page.locator(".live-failed").inner_text()
    assert page.locator(".live-still img").is_visible() and not page.locator(".live-sheet").count()
    context.close()
