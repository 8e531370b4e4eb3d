"""The live figures: they show what Python computes, by keyboard alone, and the picture stays for whoever needs it."""

import gzip
import json
import re
from contextlib import contextmanager
from functools import cache

import browser
import colours
import live_figures
import numpy as np
import pytest
import torch
from _ext.live import MODULES, bundle, enliven
from browser import View
from bs4 import BeautifulSoup
from live_figures import FIGURES, WORDS, Live, element, place
from notebook_rules import NOTEBOOKS, ROOT, cells, read
from torch.testing import assert_close

from vit_tutorial import sincos_2d
from vit_tutorial.attention_maps import attention_distance, record_attention
from vit_tutorial.data import load_dataset
from vit_tutorial.figures import attention as figures
from vit_tutorial.plots import COLOURS
from vit_tutorial.runs import FOLDER, load_metrics, load_recorded
from vit_tutorial.training import to_input
from vit_tutorial.what_matters import SWEEPS, effect_interval, read_rows

HEAVIEST = 15_000  # bytes of a figure's script and data, gzipped
DESKTOP, PHONE, NIGHT = View(1280, 900, "light"), View(360, 740, "light"), View(390, 844, "dark")
MODULE = {live.module: number for number, live in FIGURES.items()}
TEXT = json.loads(WORDS.read_text(encoding="utf-8"))
SHEETS = [ROOT / f"book/_static/{name}" for name in ("custom.css", "print.css", "live/figures.css", "live/live.css")]
STYLE = colours.sheet() + "".join(sheet.read_text(encoding="utf-8") for sheet in SHEETS[:3])
PICTURE = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='400' height='200'/>"
THEME = """
html { --pst-color-text-base: #323232; --pst-color-text-muted: #48566b; --pst-color-background: #fff;
  --pst-color-surface: #f5f5f5; --pst-color-border: #c9c9c9; --pst-color-link: #176de8; --pst-color-primary: #176de8; }
html[data-theme="dark"] { --pst-color-text-base: #ced6dd; --pst-color-text-muted: #9ca4af;
  --pst-color-background: #121212; --pst-color-surface: #202020; --pst-color-border: #48566b;
  --pst-color-link: #5fb4ff; --pst-color-primary: #5fb4ff; }
body { margin: 0 0.75rem; background: var(--pst-color-background); color: var(--pst-color-text-base); }
* { box-sizing: border-box; } [hidden] { display: none !important; }
"""


PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A chapter</title>
<link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width"><script>
document.documentElement.dataset.mode = "light";
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
</script><style>{style}</style></head>
<body><main class="bd-content"><article><h1>A chapter</h1>{figures}</article></main></body></html>"""
FIGURE = """<div class="cell">
<div class="cell_output"><img alt="A picture." width="400" height="200" src="{picture}"></div>
</div><p class="figure-caption"><strong>{number}</strong> {caption}</p>"""


def chapter(*captions: str) -> BeautifulSoup:
    """A page with a picture above each caption."""
    told = [re.fullmatch(r"(Figure \S+) (.*)", caption).groups() for caption in captions]
    figures = "".join(FIGURE.format(picture=PICTURE, number=number, caption=caption) for number, caption in told)
    return BeautifulSoup(PAGE.format(style=THEME + STYLE, figures=figures), "html.parser")


@cache
def data_of(module: str) -> dict:
    live = FIGURES[MODULE[module]]
    return live.data() | (live.later() if live.later else {})


# Where they stand ----------------------------------------------------------------------------------------------------


def test_each_belongs_to_a_caption_of_its_chapter_and_has_its_module_and_words():
    for number, live in FIGURES.items():
        (path,) = [path for path in NOTEBOOKS if path.stem.startswith(f"{int(number.partition('.')[0]):02d}_")]
        assert any(
            cell.source.startswith(f"**Figure {number}.** {live.caption}") for cell in cells(read(path), "markdown")
        )
        assert (MODULES / f"figures/{live.module}.mjs").exists() and {"name", "invitation"} <= set(TEXT[live.module])
    assert set(TEXT) == {"shared", *MODULE}


@pytest.fixture
def one(monkeypatch):
    """One live figure without data, to be placed."""
    monkeypatch.setattr(live_figures, "FIGURES", {"3.3": Live("attention", dict, "Attention mixes")})


def test_a_caption_that_moved_stops_the_build(one, tmp_path):
    with pytest.raises(ValueError, match=r"the page has 'Figure 3.3. Two patches, framed.'"):
        place(chapter("Figure 3.3. Two patches, framed."), "", tmp_path)


@pytest.mark.parametrize("module", MODULE)
def test_each_is_light(module):
    number = MODULE[module]
    whole = bundle(MODULES / f"figures/{module}.mjs") + element(number, FIGURES[number], TEXT, "../")
    assert len(gzip.compress(whole.encode(), 9)) <= HEAVIEST


def test_the_book_s_colours_stand_in_one_style_sheet_which_is_written_from_them():
    written = colours.sheet()
    for thing, colour in COLOURS.items():
        assert f"  --{thing.replace(' ', '-')}: {colour};\n" in written.split("}")[0]
    for sheet in SHEETS[2:]:
        text = sheet.read_text(encoding="utf-8")
        assert not set(re.findall(r"#[0-9a-f]{6}", text)) & set(re.findall(r"#[0-9a-f]{6}", written.lower()))
        assert "var(--attention)" in text
    painted = "".join((MODULES / f"{module}.mjs").read_text(encoding="utf-8") for module in ("panels", "attention"))
    for name in ("class-token", "projection", "positions", "attention", "query", "key", "value"):
        assert f'"{name}"' in painted and f"--{name}: #" in written  # paint.mjs asks for the property


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A folder with a page for each live figure."""
    folder, patch = tmp_path_factory.mktemp("figures"), pytest.MonkeyPatch()
    for number, live in FIGURES.items():
        patch.setattr(live_figures, "FIGURES", {number: live})
        page = chapter(f"Figure {number}. {live.caption}")
        place(page, "", folder / "_static")
        page.select_one("link[rel=stylesheet]").decompose()  # it is in the page
        enliven(page)
        (folder / f"{live.module}.html").write_text(str(page), encoding="utf-8")
    patch.undo()
    return folder


@pytest.fixture
def opened(chromium, pages):
    """Opens a figure's page and, by keyboard, the figure; no error may come, and nothing of another host."""

    @contextmanager
    def opened(module: str, view: View = DESKTOP):
        with browser.serve(pages) as url, browser.visit(chromium, f"{url}/{module}.html", view) as visit:
            visit.page.locator(".fig-switch").focus()
            visit.page.keyboard.press("Enter")
            visit.page.wait_for_selector(".fig-stage [role=status]:not(:empty, .fig-loading)")
            yield visit
            assert visit.console == []

    return opened


def slide(page, label: str, steps: int) -> None:
    """Move a slider by its arrow keys."""
    page.get_by_role("slider", name=label, exact=True).focus()
    for _ in range(abs(steps)):
        page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")


def choose(page, label: str, option: str) -> None:
    """Pick from a menu by typing, as the keyboard does it."""
    menu = page.get_by_role("combobox", name=label, exact=True)
    menu.focus()
    menu.select_option(label=option)


def said(page) -> str:
    """What the figure's live regions say, with ASCII's minus."""
    return " ".join(page.locator(".fig-stage [role=status]").all_inner_texts()).replace("−", "-")


def table(page, selector: str = "tbody") -> list[list[str]]:
    rows = page.locator(f".fig-stage {selector} tr").all()
    return [[cell.inner_text().replace("−", "-") for cell in row.locator("th, td").all()] for row in rows]


@pytest.mark.parametrize("view", [DESKTOP, PHONE, NIGHT], ids=["desktop", "phone", "night"])
@pytest.mark.parametrize("module", MODULE)
def test_each_opens_and_closes_by_keyboard_fits_and_can_be_used_by_all(module, view, opened):
    with opened(module, view) as visit:
        page = visit.page
        assert page.locator(".cell_output").is_hidden() and page.locator(".fig-stage").is_visible()
        assert page.locator(".fig-switch").get_attribute("aria-expanded") == "true"
        assert browser.overflow(visit) == [] and browser.axe(visit) == []
        stops = "() => shown('.live-figure :is(button, input, select, [tabindex])')"
        page.evaluate("() => document.activeElement.blur()")
        reached = set()
        for _ in range(page.evaluate(f"({stops})().length") + 2):
            page.keyboard.press("Tab")
            where = page.evaluate(f"() => ({stops})().indexOf(document.activeElement)")
            if where >= 0:
                assert page.evaluate("() => ringed(document.activeElement)")
                reached.add(where)
        radios = page.locator(".fig-stage input[type=radio]").count()  # one stop for all of them
        assert len(reached) == page.evaluate(f"({stops})().length") - max(radios - 1, 0)
        page.locator(".fig-switch").focus()
        page.keyboard.press("Enter")
        assert page.locator(".cell_output").is_visible() and page.locator(".fig-stage").is_hidden()


@pytest.mark.parametrize("module", MODULE)
def test_without_javascript_and_on_paper_there_is_the_picture_alone(module, opened, chromium, pages):
    with opened(module) as visit:
        visit.page.emulate_media(media="print")
        assert visit.page.locator(".cell_output img").is_visible() and visit.page.locator(".live-figure").is_hidden()
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{pages}/{module}.html")
    assert page.locator(".cell_output img").is_visible() and page.locator(".live-figure").is_hidden()
    context.close()
    page = chromium.new_page()  # from disk it works all the same
    page.goto(f"file://{pages}/{module}.html")
    page.click(".fig-switch")
    page.wait_for_selector(".fig-stage [role=status]:not(:empty, .fig-loading)")
    page.close()


def test_data_that_do_not_come_are_told(chromium, pages, tmp_path):
    (tmp_path / "heads.html").write_bytes((pages / "heads.html").read_bytes())
    page = chromium.new_page()
    page.goto(f"file://{tmp_path}/heads.html")
    page.click(".fig-switch")
    page.wait_for_function("document.querySelector('.fig-stage').textContent.includes('live/heads.js is missing')")
    assert page.locator(".fig-stage").inner_text().startswith(TEXT["shared"]["failed"])
    file = tmp_path / "_static/live/heads.js"
    file.parent.mkdir(parents=True)
    file.write_text("(globalThis.liveFigures ??= {", encoding="utf-8")  # half of it
    for _ in range(2):
        page.click(".fig-switch")
    page.wait_for_function("document.querySelector('.fig-stage').textContent.includes('damaged')")
    file.write_bytes((pages / "_static/live/heads.js").read_bytes())
    for _ in range(2):
        page.click(".fig-switch")
    page.wait_for_selector(".fig-stage .fig-pair")
    page.close()


def test_data_on_their_way_are_told_and_drawn_once(chromium, pages):
    page, hanging = chromium.new_page(), []
    with browser.serve(pages) as url:
        page.route("**/heads.js", lambda route: hanging.append(route))
        page.goto(f"{url}/heads.html")
        for _ in range(3):  # live, back, live again
            page.click(".fig-switch")
        assert page.locator(".fig-stage").inner_text() == TEXT["shared"]["loading"]
        (request,) = hanging
        request.continue_()
        page.wait_for_selector(".fig-stage .fig-pair")
        assert page.locator(".fig-stage .fig-pair").count() == 1 and not page.locator(".fig-loading").count()
    page.close()


# What they show ------------------------------------------------------------------------------------------------------


PIXELS = """() => [...document.querySelectorAll("canvas")].map((canvas) =>
  [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data])"""


def test_patches_are_cut_as_in_python(opened):
    with opened("patches") as visit:
        page = visit.page
        assert "7 × 7 = 49 tokens of 3,072 numbers, 2,401 pairs." in said(page)
        slide(page, "patch size", 3)  # 56, 112, 224
        assert "1 token of 150,528 numbers" in said(page)
        slide(page, "patch size", -3)
        slide(page, "token", 9)
        # the bare reshape's token 9 begins with number 9 · 3072 of memory, in line 123 of red
        assert "Token 9 by rearrange is rows 32 to 63, columns 64 to 95" in said(page)
        assert "By reshape it is 13.7 lines of red." in said(page)
        # but for the frame, the right side shows what Python's reshape makes of the photograph on the left
        image, drawn = (
            torch.tensor(each, dtype=torch.uint8).reshape(248, 248, 4)[..., :3] for each in page.evaluate(PIXELS)
        )
        keep = torch.cat([torch.arange(36 * i, 36 * i + 32) for i in range(7)])  # without the gaps
        photo, scrambled = (each[keep][:, keep].permute(2, 0, 1).contiguous() for each in (image, drawn))
        bare = photo.reshape(49, 3, 32, 32)
        for token in (0, 30, 48):  # far from the frame in the photograph's lines
            top, left = 32 * (token // 7), 32 * (token % 7)
            there = scrambled[:, top : top + 32, left : left + 32]
            assert (there == bare[token]).float().mean() > 0.95
            assert (there == photo[:, top : top + 32, left : left + 32]).float().mean() < 0.5


def cosines(rows: torch.Tensor) -> torch.Tensor:
    rows = rows.double() / rows.double().norm(dim=1, keepdim=True)
    return rows @ rows.T


def test_positions_are_as_alike_as_in_python(opened):
    learned = load_recorded("cifar10-tiny-mild")[0].pos_embed[0, 1:].detach()
    one = sincos_2d((64, 1), 64)[:, :32]  # one clock of 32 numbers that counts along the sequence
    tables = {"two clocks": sincos_2d((8, 8), 32), "one clock": one, "learned": learned}
    with opened("positions") as visit:
        page = visit.page
        slide(page, "grid column", 1)  # patch 28
        for name, rows in tables.items():
            choose(page, "table", name)
            alike, words = cosines(rows)[28], said(page)
            for where, patch in {"above": 20, "below": 36, "left": 27, "right": 29}.items():
                told = float(re.search(rf"{where} (-?\d+\.\d+)", words)[1])
                assert told == pytest.approx(alike[patch].item(), abs=0.0051)
            least, cosine = re.search(r"Least alike: patch (\d+), (-?[\d.]+)\.", words).groups()
            assert alike[int(least)] - alike.min() < 0.006 and abs(float(cosine) - alike.min()) < 0.0051

        def shown() -> dict:
            cells = page.locator(".fig-cells g").all()
            return {cell.locator("text").inner_html(): cell.locator("rect").get_attribute("fill") for cell in cells}

        before, order = shown(), page.locator(".fig-cells text").all_text_contents()
        page.get_by_role("button", name="Shuffle the tokens").focus()
        page.keyboard.press("Enter")
        assert page.locator(".fig-cells text").all_text_contents() != order
        assert shown() == before and "not one cosine changed" in said(page)
        page.get_by_role("button", name="Put them back").press("Enter")
        assert page.locator(".fig-cells text").all_text_contents() == order


@cache
def pencil() -> dict:
    """Chapter 3's example, as the notebook computes it."""
    (path,) = [path for path in NOTEBOOKS if path.stem.startswith("03_")]
    (code,) = [cell.source for cell in cells(read(path), "code") if cell.id == "pencil"]
    exec(code, scope := {"torch": torch, "figures": figures})
    return scope


def weights_shown(page) -> torch.Tensor:
    rows = table(page, "table:first-of-type tbody")[:3]
    return torch.tensor([[float(each.split()[0]) for each in row[1:4]] for row in rows])


def test_attention_is_the_pencil_s(opened):
    found = pencil()
    data = data_of("attention")
    for name in ("queries", "keys", "values"):
        assert data[name] == found[name].tolist()
    with opened("attention") as visit:
        page = visit.page
        assert_close(weights_shown(page), found["weights"], rtol=0, atol=0.0051)
        assert "0.50 of the roof, 0.25 of the tree, 0.25 of the sky, and gets (6.00, 3.00)." in said(page)
        slide(page, "temperature", 4)  # 2
        halved = (np.log(2) * found["scores"] / 2).softmax(dim=1)
        assert_close(weights_shown(page), halved.float(), rtol=0, atol=0.0051)
        x, y = halved[0] @ found["values"]
        assert f"and gets ({x:.2f}, {y:.2f})" in said(page)
        # a query of one's own, another reader, and a value that walks by the arrow keys
        page.get_by_role("button", name="Start again").press("Enter")
        page.get_by_label("tree, query: roof-like").fill("4")
        page.get_by_role("radio", name="show the output of roof").focus()
        page.keyboard.press("ArrowDown")
        page.get_by_role("slider", name="value of sky").focus()
        page.keyboard.press("ArrowUp")
        queries, values = found["queries"].clone(), found["values"].clone()
        queries[1, 0], values[2] = 4, torch.tensor([0, 1])
        weights = (np.log(2) * (queries @ found["keys"].T) / 2).softmax(dim=1)
        assert_close(weights_shown(page), weights, rtol=0, atol=0.0051)
        x, y = weights[1] @ values
        assert f"The tree takes {weights[1, 0]:.2f} of the roof" in said(page) and f"({x:.2f}, {y:.2f})" in said(page)
        assert page.get_by_label("sky, value, number 2").input_value() == "1"


def test_a_value_follows_the_pointer(opened):
    with opened("attention") as visit:
        page = visit.page
        page.locator(".fig-plane").scroll_into_view_if_needed()
        box = page.get_by_role("slider", name="value of sky").locator("rect").bounding_box()
        unit = page.locator(".fig-plane").bounding_box()["width"] / 18
        start = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(*start)
        page.mouse.down()
        page.mouse.move(start[0] + 5 * unit, start[1] - 3 * unit, steps=4)
        page.mouse.up()
        assert [page.get_by_label(f"sky, value, number {axis}").input_value() for axis in (1, 2)] == ["5", "3"]
        x, y = pencil()["weights"][0] @ torch.tensor([[12.0, 0], [0, 12], [5, 3]])
        assert f"({x:.2f}, {y:.2f})" in said(page)


def test_only_the_first_button_drags_and_only_while_it_is_down(opened):
    with opened("attention") as visit:
        page = visit.page
        page.locator(".fig-plane").scroll_into_view_if_needed()
        box = page.get_by_role("slider", name="value of sky").locator("rect").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        sky = page.get_by_label("sky, value, number 1")
        page.mouse.move(x, y)
        page.mouse.down(button="right")
        page.mouse.move(x + 60, y, steps=3)
        page.mouse.up(button="right")
        assert sky.input_value() == "0"
        page.mouse.move(x, y)
        page.mouse.down()
        mouse = page.context.new_cdp_session(page)  # the button came up where no page could hear of it
        moved = {"type": "mouseMoved", "x": x + 60, "y": y, "button": "none", "buttons": 0}
        mouse.send("Input.dispatchMouseEvent", moved)
        assert sky.input_value() == "0"
        page.mouse.up()


def measured(sweep: str, column: str) -> dict[str, torch.Tensor]:
    rows = [row for row in read_rows(FOLDER / f"sweeps/{sweep}.jsonl", SWEEPS[sweep]) if "broke" not in row]
    names = {row["variant"] for row in rows}
    return {name: torch.tensor([row[column] for row in rows if row["variant"] == name]).double() for name in names}


def test_the_forest_s_rows_are_effect_intervals(opened):
    with opened("forest") as visit:
        page = visit.page
        for name, sweep, told in (("MNIST", "mnist", "13 of 29"), ("shapes", "shapes", "17 of 29")):
            choose(page, "data", name)
            runs = {variant: 100 * values for variant, values in measured(sweep, "val_accuracy").items()}
            rows = {row[0]: row[2:] for row in table(page)}
            assert len(rows) == 29 and told in said(page)  # as the chapter says
            for change, variant in {"no positions": "no-positions", "CutMix": "cutmix"}.items():
                middle, low, high = effect_interval(runs["base"], runs[variant])
                effect, interval = rows[change]
                ends = [float(end) for end in interval.split(" to ")]
                assert [float(effect), *ends] == pytest.approx([middle, low, high], abs=0.0551)
        choose(page, "order", "worst first")
        effects = [float(row[2]) for row in table(page)]
        assert effects == sorted(effects)
        page.get_by_label("only where the interval leaves out 0").focus()
        page.keyboard.press("Space")
        assert len(table(page)) == 17
        assert all(not float(row[3].split(" to ")[0]) < 0 < float(row[3].split(" to ")[1]) for row in table(page))
        choose(page, "kind", "optimization")
        kept = {row[0] for row in table(page)}
        assert kept and kept <= set(data_of("forest")["kinds"]["optimization"])


def test_the_ward_tells_what_was_measured(opened):
    found = measured("clinic", "test_accuracy")
    with opened("ward") as visit:
        page = visit.page
        assert said(page) == TEXT["ward"]["nobody"]
        groups = page.locator(".fig-ward > div").all()
        assert len(groups) == 15
        for group in groups:
            group.get_by_role("button").first.press("Enter")
            group.get_by_role("button").last.press("Enter")  # too late: a guess is a guess
        answers = {group.get_attribute("aria-label"): group.locator("p").inner_text() for group in groups}
        right = sum(answer.startswith("✓") for answer in answers.values())
        assert f"{right} of 15 right. All judged. Only in 8 of 15 pairs" in said(page)
        for name, variant in {"Patient 1": "softmax before cross-entropy", "Patient 6": "no final norm"}.items():
            middle, *_ = effect_interval(100 * found["healthy"], 100 * found[variant])
            told = re.search(r"\. ([+−][\d.]+) \(", answers[name])[1].replace("−", "-")
            assert float(told) == pytest.approx(middle, abs=0.051)
        assert "sickness shows" in answers["Patient 1"] and "does better" in answers["Patient 6"]
        for patient in data_of("ward")["patients"]:  # as many dots on either side give nothing away
            assert all(
                len(patient[column]["healthy"]) == len(patient[column]["sick"]) for column in ("accuracy", "loss")
            )


def test_recipes_epoch_by_epoch(opened):
    long, short, theirs = (
        load_metrics(f"cifar10-small{name}")["history"] for name in ("", "-10-epochs", "-published-10-epochs")
    )
    with opened("recipes") as visit:
        page = visit.page
        slide(page, "epoch", 5)  # 10
        rows = {row[0]: row[1:] for row in table(page)}
        named = {"ours, 30 epochs": long, "ours, 10 epochs": short, "the guide's, 10 epochs": theirs}
        for name, history in named.items():
            peak = max(entry["lr"] for entry in history)
            accuracy, rate = (float(each.rstrip(" %")) for each in rows[name])
            assert accuracy == pytest.approx(100 * history[9]["val_accuracy"], abs=0.051)
            assert rate == pytest.approx(100 * history[9]["lr"] / peak, abs=0.51)
        lead = 100 * (short[9]["val_accuracy"] - long[9]["val_accuracy"])
        assert f"leads by {lead:.1f} points" in said(page)
        slide(page, "epoch", 20)  # 30
        rise = 100 * (long[-1]["val_accuracy"] - short[-1]["val_accuracy"])
        assert f"After epoch 30 the long one is {rise:.1f} points above its end" in said(page)


@torch.no_grad()
def maps_of(run: str, images) -> tuple[torch.Tensor, object]:
    model, recipe = load_recorded(run)
    with record_attention(model) as maps:
        model(to_input(images.images, recipe))
    return torch.stack(maps), model.config


def test_growing_maps_are_the_chapter_s(opened):
    history = load_metrics("shapes-by-epoch")["history"]
    with opened("growing") as visit:
        page = visit.page
        assert said(page).startswith("Untrained: 14 %") and "An even map has 13 % there." in said(page)
        slide(page, "epoch", 1)
        assert "After epoch 1, 40 % of the answers are right, and 45 % of this" in said(page)  # as chapter 8 says
        slide(page, "epoch", 2)
        assert f"{100 * history[-1]['val_accuracy']:.0f} % of the answers are right, and 52 %" in said(page)
        choose(page, "layer", "2")
        choose(page, "head", "1")
        many = load_dataset("shapes", "test")[:200]
        maps, config = maps_of("shapes-by-epoch", many)
        covered = many.masks.float().unflatten(1, (8, 4)).unflatten(3, (8, 4)).mean(dim=(2, 4)).flatten(1)
        row = maps[1, :, 0, 0, 1:]
        on = 100 * ((row * covered).sum(dim=1) / row.sum(dim=1)).mean()
        assert f"{on:.0f} % of this attention lies on the object" in said(page)
        assert config.num_patches == 64


def test_heads_read_what_python_says(opened):
    images = load_dataset("shapes", "test")
    data = data_of("heads")
    ten = images[torch.tensor([images.labels.tolist().index(label) for label in range(10)])]
    maps, config = maps_of("shapes", ten)
    rows = torch.tensor([int(digit, 36) for digit in data["rows"]]).reshape(maps[..., 1:, 1:].shape)
    decoded = data["top"] * (rows / (data["levels"] - 1)) ** 2
    # half a step on the scale of roots
    roots = (decoded.sqrt() - maps[..., 1:, 1:].clamp(max=data["top"]).sqrt()).abs().max()
    assert roots <= 0.501 * data["top"] ** 0.5 / (data["levels"] - 1)
    with opened("heads") as visit:
        page = visit.page
        choose(page, "image", "star")
        choose(page, "layer", "3")
        choose(page, "head", "2")
        slide(page, "grid row", -2)
        slide(page, "grid column", 3)  # row 1, column 6
        weights = maps[2, 6, 1, 1 + 8 * 1 + 6, 1:]
        away = torch.tensor([[4 * ((i - 1) ** 2 + (j - 6) ** 2) ** 0.5 for j in range(8)] for i in range(8)]).flatten()
        here = (weights * away).sum() / weights.sum()
        mean = attention_distance(maps[2], config)[:, 1].mean()
        told = [float(each) for each in re.findall(r"(\d+\.\d)", said(page))]
        assert told == pytest.approx([here.item(), mean.item(), 16.5], abs=0.051)
        page.locator(".fig-over svg").scroll_into_view_if_needed()
        box = page.locator(".fig-over svg").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 2.5 / 8, box["y"] + box["height"] * 4.5 / 8)
        row, column = (page.get_by_role("slider", name=f"grid {axis}").input_value() for axis in ("row", "column"))
        assert (row, column) == ("4", "2")


def test_a_finger_does_what_the_mouse_does(opened):
    with opened("positions", PHONE) as visit:
        page = visit.page
        page.locator(".fig-cells g").nth(9).locator("rect").tap()
        assert said(page).startswith("Patch 9:")
