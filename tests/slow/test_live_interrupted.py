"""The page "Draw a digit" when something comes between: another key, a finger, a theme, the printer, a slow network."""

import io
import json
import re
from contextlib import contextmanager

import browser
import pytest
import torch
from _ext.live import examples
from browser import TWO_FRAMES, VIEWS
from pypdf import PdfReader
from test_live_page import DESKTOP, PHONE, answer, draw, pixels_of, places

from vit_tutorial.attention_maps import record_attention
from vit_tutorial.live import MEASURED

INDIGO = {"light": [0x33, 0x22, 0x88], "dark": [0xA9, 0x9B, 0xEA]}


def strokes(page) -> list[str]:
    return page.locator(".live-sheet polyline").evaluate_all("(all) => all.map((line) => line.getAttribute('points'))")


def pasted(page) -> dict:
    """What the page's own Python gives."""
    page.locator("[data-panel=code]").scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    exec(page.locator("[data-panel=code] code").inner_text(), found := {})
    return found


def rounded(logits: torch.Tensor) -> list[str]:
    return [f"{logit:.1f}".replace("-", "−") for logit in logits.tolist()]


def per_cent(share: float) -> str:
    return f"{min(100 * share, 99.9):.1f} %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


# In mid-stroke -----------------------------------------------------------------------------------------------------


def press(page, name: str) -> None:
    """A button, by another hand than the one that draws."""
    page.get_by_role("button", name=name, exact=True).evaluate("(button) => button.click()")


BETWEEN = {
    "Delete": (lambda page: page.keyboard.press("Delete"), 0),
    "Backspace": (lambda page: page.keyboard.press("Backspace"), 1),
    "Clear": (lambda page: press(page, "Clear"), 0),
    "Undo": (lambda page: press(page, "Undo"), 1),
    "an example": (lambda page: press(page, "Draw a 7"), len(examples()[7][0])),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_what_changes_the_sheet_ends_the_stroke(between, live_page):
    change, left = BETWEEN[between]
    with live_page() as visit:
        page = visit.page
        draw(page)
        before = strokes(page)
        first, *others = places(page)
        page.mouse.move(*first)
        page.mouse.down()
        for place in others[:4]:
            page.mouse.move(*place)
        change(page)
        now = strokes(page)
        for place in others[4:]:
            page.mouse.move(*place)
        page.mouse.up()
        assert strokes(page) == now and len(now) == left
        assert now == before or between not in ("Backspace", "Undo")
        draw(page)  # and the next one is a stroke like any other
        assert len(strokes(page)) == (1 if between == "an example" else left + 1)
        for way in examples()[7] * 2:  # the examples are as they were
            page.get_by_role("button", name="Draw a 7").click()
            if between != "an example":
                assert strokes(page) == [" ".join(f"{x},{y}" for x, y in stroke) for stroke in way]
            assert answer(page) == "7"


def test_a_mouse_that_was_let_go_elsewhere_draws_no_further(live_page):
    with live_page() as visit:
        page = visit.page
        spots = places(page)
        page.mouse.move(*spots[0])
        page.mouse.down()
        page.mouse.move(*spots[1])
        begun = strokes(page)
        x, y = spots[4]
        mouse = page.context.new_cdp_session(page)  # the button came up where no page could hear of it
        mouse.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y, "button": "none", "buttons": 0})
        assert strokes(page) == begun and "reads a" in page.locator(".live-heard").inner_text()
        page.mouse.up()
        draw(page)
        assert len(strokes(page)) == 2 and strokes(page)[0] == begun[0]


def test_the_focus_goes_and_the_stroke_ends(live_page):
    with live_page() as visit:
        page = visit.page
        page.locator(".live-sheet").focus()
        page.keyboard.press("Delete")
        page.keyboard.press(" ")
        page.keyboard.down("ArrowRight")
        page.locator(".live-sheet").evaluate("(sheet) => sheet.blur()")  # as when another window comes to the front
        page.keyboard.up("ArrowRight")
        page.locator(".live-sheet").focus()
        begun = strokes(page)
        page.keyboard.press("ArrowDown")
        assert strokes(page) == begun and len(begun) == 1
        page.keyboard.press(" ")
        page.keyboard.press("ArrowDown")
        (start, end), _ = (place.split(",") for place in strokes(page)[1].split()), None
        assert start[0] == end[0]  # straight down: the other arrow isn't held


def test_the_space_bar_waits_for_the_mouse(live_page):
    with live_page() as visit:
        page = visit.page
        first, *others = places(page)
        page.mouse.move(*first)
        page.mouse.down()
        page.mouse.move(*others[0])
        page.keyboard.press(" ")
        for place in others[1:]:
            page.mouse.move(*place)
        page.mouse.up()
        assert len(strokes(page)) == 1
        page.keyboard.press("ArrowDown")
        assert len(strokes(page)) == 1 and page.locator(".live-sheet.inked").count() == 0


def test_a_second_finger_draws_nothing_and_a_stroke_that_is_taken_away_ends(live_page):
    with live_page(PHONE) as visit:
        page = visit.page
        finger = page.context.new_cdp_session(page)

        def touch(kind: str, *points: tuple[float, float]) -> None:
            told = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)]
            finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": told})

        spots = places(page)
        touch("Start", spots[0])
        touch("Move", spots[1])
        touch("Start", spots[1], spots[8])
        touch("Move", spots[2], spots[7])
        touch("Move", spots[3], spots[6])
        touch("End")
        (one,) = strokes(page)
        assert len(one.split()) == 4
        touch("Start", spots[5])
        touch("Move", spots[6])
        touch("Cancel")
        touch("Start", spots[0])
        touch("End")
        assert [len(stroke.split()) for stroke in strokes(page)] == [4, 2, 2]  # a dot is a line to itself


def test_a_stroke_goes_on_in_another_theme_and_another_window(live_page):
    with live_page() as visit:
        page = visit.page
        first, *others = places(page)
        page.mouse.move(*first)
        page.mouse.down()
        for place in others[:4]:
            page.mouse.move(*place)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.evaluate(TWO_FRAMES)
        for place in others[4:]:
            page.mouse.move(*place)
        assert len(strokes(page)) == 1 and answer(page) == "3"
        page.set_viewport_size({"width": 700, "height": 900})
        page.mouse.move(*places(page)[0], steps=5)
        page.mouse.up()
        (one,) = strokes(page)
        assert all(0 <= int(number) <= 280 for number in re.findall(r"-?\d+", one))
        draw(page)
        assert len(strokes(page)) == 2


def test_a_stroke_that_leaves_the_sheet_selects_no_text(live_page):
    with live_page() as visit:
        page = visit.page
        page.mouse.move(*places(page)[0])
        page.mouse.down()
        page.mouse.move(640, 880, steps=8)
        page.mouse.move(900, 880, steps=4)
        page.mouse.up()
        assert page.evaluate("getSelection().toString()") == "" and len(strokes(page)) == 1


# On paper ----------------------------------------------------------------------------------------------------------


def test_paper_shows_one_digit(live_page):
    """Panels out of view wait until they are scrolled to; the printer doesn't scroll."""
    with live_page() as visit:
        page = visit.page
        draw(page)
        paper = " ".join(sheet.extract_text() for sheet in PdfReader(io.BytesIO(page.pdf(format="A4"))).pages)
        told = page.locator("[data-panel=logits] tbody td:nth-child(2)").all_inner_texts()
        pages = re.sub(r"\s+", " ", paper)
        scores = pages[pages.index("digit logit probability") :]
        logits = pasted(page)["logits"]
        assert told == rounded(logits)
        for digit, logit in enumerate(rounded(logits)):
            assert f"{digit} {logit} " in scores
        assert "Or let us draw" not in pages and "Redraw" not in pages  # what is for clicking


def test_paper_shows_long_lines_whole(live_page):
    with live_page() as visit:
        page = visit.page
        for _ in range(12):
            draw(page)
        page.locator("[data-panel=code]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        cut = "(box) => box.scrollHeight - box.clientHeight"
        assert page.locator(".live-code").evaluate(cut) > 100
        page.emulate_media(media="print")
        assert page.locator(".live-code").evaluate(cut) <= 1


def test_in_the_dark_theme_paper_has_the_colours_of_the_light_one(live_page):
    with live_page(VIEWS["desktop-dark"]) as visit:
        page = visit.page

        def painted() -> list[int]:
            page.evaluate(TWO_FRAMES)
            colours = pixels_of(page, ".live-tiles.maps canvas")
            return colours[colours[:, 3].argmax(), :3].tolist()

        page.locator("[data-panel=attention]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        assert painted() == INDIGO["dark"]
        page.locator("[data-panel=draw]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert painted() == INDIGO["light"]
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.locator("[data-panel=attention]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        assert painted() == INDIGO["dark"]


# A slow network ----------------------------------------------------------------------------------------------------


@contextmanager
def slow(chromium, book, file: str):
    """The page where a model's file hangs, and a function that lets it come."""
    context = chromium.new_context(viewport={"width": DESKTOP.width, "height": DESKTOP.height})
    page, hanging, faults = context.new_page(), [], []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.route(f"**/{file}", lambda route: hanging.append(route))
    page.goto(f"{book}/book/live.html", wait_until="commit")
    page.wait_for_selector(".live-sheet")
    yield page, lambda: hanging.pop().continue_()
    assert faults == []
    context.close()


def test_a_model_that_is_on_its_way_is_told_and_reads_what_was_drawn_meanwhile(chromium, book):
    with slow(chromium, book, "mnist.js") as (page, come):
        for selector in (".live-says", ".live-heard", "[data-panel=bar]"):
            assert "The model is on its way" in page.locator(selector).inner_text()
        widths = "(all) => all.map((bar) => bar.getBoundingClientRect().width)"
        assert set(page.locator(".live-bars .fill").evaluate_all(widths)) == {0}
        assert page.locator("[data-panel=bar] .live-lit").is_hidden()
        draw(page)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # there's nothing to print yet, and nothing breaks
        come()
        page.wait_for_selector("[data-panel=break] .live-card h3")
        assert answer(page) == "3" and "reads a 3" in page.locator(".live-heard").inner_text()
        assert "on its way" not in page.locator("article").inner_text()


def test_who_changes_their_mind_while_a_model_comes_keeps_what_they_chose_last(chromium, book):
    with slow(chromium, book, "mnist-patch4.js") as (page, come):
        page.wait_for_selector("[data-panel=sizes] input")
        page.get_by_text("4 × 4").click()
        assert "Fetching a model" in page.locator("[data-panel=sizes]").inner_text()
        page.get_by_text("7 × 7").click()
        come()
        page.wait_for_function("globalThis.models['mnist-patch4']")
        page.evaluate(TWO_FRAMES)
        assert page.locator("[data-panel=patches] .live-tile").count() == 16
        assert page.locator("[data-panel=sizes] [value=mnist]").is_checked()
        assert "Fetching" not in page.locator("[data-panel=sizes]").inner_text()
        page.get_by_text("4 × 4").click()  # it has come meanwhile
        page.wait_for_function("document.querySelectorAll('[data-panel=patches] .live-tile').length === 49")


# What is said, and what isn't --------------------------------------------------------------------------------------


def test_an_empty_sheet_has_no_answer_anywhere(live_page):
    with live_page() as visit:
        page = visit.page
        page.get_by_role("button", name="Clear").click()
        for panel in ("stream", "logits"):
            page.locator(f"[data-panel={panel}]").scroll_into_view_if_needed()
            page.wait_for_timeout(100)
        cells = page.locator("[data-panel=logits] tbody td").all_inner_texts()
        assert len(cells) == 40 and not "".join(cells)
        assert "The sheet is empty" in page.locator("[data-panel=logits] caption").inner_text()
        assert not "".join(page.locator("[data-panel=stream] td.answer").all_inner_texts())
        draw(page)
        page.locator("[data-panel=logits]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        assert page.locator("[data-panel=logits] tbody tr.best th").all_inner_texts() == ["3"]
        assert "empty" not in page.locator("[data-panel=logits]").inner_text()


@torch.no_grad()
def test_each_map_and_each_strip_says_how_strong_it_is(live_page):
    with live_page() as visit:
        page = visit.page
        draw(page)
        page.locator("[data-panel=attention]").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        tiles = page.locator(".live-tiles.maps .live-tile")
        told, names = tiles.all_inner_texts(), [tile.get_attribute("aria-label") for tile in tiles.all()]
        strips = page.locator("[data-panel=attention] .live-term > span").all_inner_texts()
        page.locator("[data-panel=stream] > p").scroll_into_view_if_needed()
        page.wait_for_timeout(100)
        grey = page.locator("[data-panel=stream] > p").inner_text()
        found = pasted(page)
        model, recipe, digit = (found[name] for name in ("model", "recipe", "digit"))
        with record_attention(model) as maps:
            model(found["to_input"](digit[None, None], recipe))
        strongest = [per_cent(row.max().item()) for weights in maps for row in weights[0, :, 0, 1:]]
        assert told == strongest and len(told) == 12
        assert all(name.endswith(f"strongest patch {weight}") for name, weight in zip(names, strongest, strict=True))
        assert [strip.rpartition("Full colour: ±")[1] for strip in strips] == ["Full colour: ±"] * 4
        longest = max(
            x[0, 1:].norm(dim=-1).max().item() for x in streams(model, found["to_input"](digit[None, None], recipe))
        )
        assert grey == f"The strongest grey is a length of {longest:.1f}."


def streams(model, pixels) -> list[torch.Tensor]:
    """The tokens before the first layer, and after each."""
    found = []
    model.blocks.register_forward_pre_hook(lambda part, args: found.append(args[0]))
    for block in model.blocks:
        block.register_forward_hook(lambda part, args, out: found.append(out))
    model(pixels)
    return found


def test_a_mean_of_several_orders_is_called_one_and_shows_them(live_page):
    rows = json.loads(MEASURED.read_text(encoding="utf-8"))["runs"]["mnist"]
    five = [row["accuracy"] for row in rows if row["name"] == "shufflePatches"]
    assert max(five) - min(five) > 0.3 and len(five) == 5  # a bare mean hides that
    with live_page() as visit:
        page = visit.page
        for ask in page.locator(".live-guess").all():
            ask.locator("button").first.click()
        scores = page.locator("[data-panel=shuffle] .live-card").nth(1).locator(".live-scores")
        assert scores.locator(".live-score").last.inner_text().split("\n") == ["mean of 5", per_cent(sum(five) / 5)]
        assert ", ".join(map(per_cent, five)) in scores.locator("p").last.inner_text()
        alone = page.locator("[data-panel=break] .live-scores")
        assert alone.locator(".live-score").last.inner_text().startswith("after") and alone.locator("p").count() == 1


def test_where_nothing_can_be_copied_the_lines_are_selected(live_page):
    with live_page() as visit:
        page = visit.page
        page.evaluate(
            "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
        )  # as on a page by plain http
        page.get_by_role("button", name="Copy", exact=True).click()
        assert "Ctrl+C" in page.locator("[data-panel=code] [role=status]").inner_text()
        assert page.evaluate("getSelection().toString()").startswith("from vit_tutorial.live import draw_strokes")


def test_a_slider_says_its_value_not_its_place(live_page):
    with live_page() as visit:
        page = visit.page
        page.get_by_text("Change the temperature").click()
        heat = page.get_by_role("slider", name="Temperature")
        assert heat.get_attribute("aria-valuetext") == "0.25"
        heat.press("ArrowRight")
        assert heat.get_attribute("aria-valuetext") == "0.5"
