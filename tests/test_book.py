"""The built pages: complete, with the outputs that nbmake got, readable without eyes and without a network."""

import gzip
import re
from copy import copy
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup
from notebook_rules import NOTEBOOKS, ROOT, badge, cells, code_of, exercise_calls, read
from rooms import NOT_ATTEMPTED
from test_formulas import all_formulas

from vit_tutorial.data import load_dataset

HTML = ROOT / "_build" / "html"
EXECUTED = ROOT / "_build" / "executed"
CONTENTS = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = [CONTENTS["root"], *(chapter["file"] for part in CONTENTS["parts"] for chapter in part["chapters"])]
# What makes a browser fetch something. Links (a href) do not, until someone follows them.
FETCHES = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "embed": "src",
}
RAW = re.compile(r"```|\{[a-z:]+\}`|\{\{|\$\$|\$[^$\n]{1,80}\$|\\[()[\]]|\\(frac|math[a-z]+|text|sqrt|sum|begin)\b")
CARDS = ("exercise", "predict", "pitfall", "takeaway", "patient")


@cache
def page(name: str) -> BeautifulSoup:
    """A built page, for reading only. The words of its code are plain: their colours are most of what is to parse."""
    path = HTML / f"{name}.html"
    if not path.exists():
        pytest.fail(f"{path.relative_to(ROOT)} is missing: run `make book` first")
    code = re.compile(r"(?<=<pre>).*?(?=</pre>)", re.DOTALL)
    html = code.sub(lambda found: re.sub(r"</?span[^>]*>", "", found[0]), path.read_text(encoding="utf-8"))
    return BeautifulSoup(html, "html.parser")


def problems(soup: BeautifulSoup, folder: Path) -> list[str]:
    """Everything that is wrong with a page that stands in ``folder``, one line each."""
    found = []
    for tag, attribute in FETCHES.items():
        for element in soup.find_all(tag, attrs={attribute: True}):
            if element.get("rel") == ["canonical"]:  # names the page's own address, and fetches nothing
                continue
            found += _fetch_problems(tag, element[attribute], folder)
    for element in soup.find_all("script"):
        if re.search(r"https?://[^\s\"']+\.js\b", element.string or ""):
            found.append(f"an inline script names a script elsewhere: {element.string[:80]}")
    for element in soup.select("a[href]"):
        target = urlsplit(element["href"])
        if not target.scheme and target.path and not (folder / unquote(target.path)).exists():
            found.append(f"a link leads nowhere: {element['href']}")
    for selector in (".problematic", ".system-message", "div.output.traceback", "div.output.stderr", "merror"):
        found += [f"{selector}: {element.get_text()[:80].strip()}" for element in soup.select(selector)]
    for element in soup.select("div.cell_output"):
        if "Traceback (most recent call last)" in element.get_text():
            found.append("a cell's output is a traceback")
    for image in soup.select("article img"):
        alt = image.get("alt", "").strip()
        if len(alt) < 10 or " " not in alt or re.search(r"\.(png|svg|jpe?g)\b", alt):
            found.append(f"an image without a real alt text: {alt!r}")
    article = copy(soup.select_one("article"))
    for element in article.select("pre, code, script, math") if article else []:
        element.extract()
    if raw := article and RAW.search(article.get_text()):
        found.append(f"Markdown or maths that was not rendered: {raw[0]}")
    tables = [table for table in soup.select("article .cell_output table") if not table.find_parent(class_="matrices")]
    found += [f"a table without a caption: {table.get_text()[:80]}" for table in tables if not table.caption]
    return found


def _fetch_problems(tag: str, address: str, folder: Path) -> list[str]:
    target = urlsplit(address)
    if target.scheme == "data":
        return []
    if target.netloc:
        return [f"<{tag}> asks another host: {address}"]
    return [] if (folder / unquote(target.path)).exists() else [f"<{tag}> names a missing file: {address}"]


@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound(name):
    assert problems(page(name), (HTML / name).parent) == []


@pytest.mark.parametrize(("name", "formulas"), all_formulas().items())
def test_each_formula_of_a_page_is_shown(name, formulas):
    article = page(name).select_one("article")
    assert len(article.select("math")) == len(formulas)
    assert len(article.select("math[display=block]")) == len([f for f in formulas if f.tagname == "math_block"])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light(name):
    """What it loads at once, packed as a server packs it, and what comes while one reads."""
    soup, folder = page(name), (HTML / name).parent
    files = [tag["src"] for tag in soup.select("script[src], img[src]")]
    files += [tag["href"] for tag in soup.select("link[rel=stylesheet], link[rel=preload]")]
    read = [(HTML / f"{name}.html"), *(folder / unquote(urlsplit(file).path) for file in set(files))]
    packed = (".html", ".css", ".js", ".svg")
    sizes = [len(gzip.compress(f.read_bytes())) if f.suffix in packed else f.stat().st_size for f in read]
    assert sum(sizes) < 1_000_000
    imports = [file.name for file in read if file.suffix == ".css" and "@import" in file.read_text(encoding="utf-8")]
    assert imports == []  # each would cost one more round trip before anything is shown
    assert all(image.get("width") and image.get("height") for image in soup.select("article img"))
    assert all(image.get("loading") == "lazy" for image in soup.select("article img:not([src*=badge])")[1:])


@pytest.mark.parametrize("name", PAGES)
def test_the_head_tells_what_the_page_is(name):
    soup = page(name)
    metas = {meta.get("name") or meta.get("property"): meta["content"] for meta in soup.select("meta[content]")}
    assert len(soup.select("meta[name=viewport]")) == 1
    assert 40 < len(metas["description"]) <= 222 and metas["og:title"] == soup.h1.get_text()
    assert "minutes ·" not in metas["description"]  # the line under a chapter's title
    (canonical,) = (link["href"] for link in soup.select("link[rel=canonical]"))
    base = canonical.removesuffix(f"{name}.html")
    assert canonical == metas["og:url"] == f"{base}{name}.html"
    assert (HTML / metas["og:image"].removeprefix(base)).exists()
    assert soup.select_one("link[rel=icon]")["href"].endswith("favicon.svg")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_card_is_there_and_each_exercise_in_the_contents(path):
    soup = page(f"notebooks/{path.stem}")
    text = "\n\n".join(cell.source for cell in cells(read(path), "markdown"))
    written = {kind: len(re.findall(rf"^> \*\*{kind.title()}\b", text, re.MULTILINE)) for kind in CARDS}
    assert {kind: len(soup.select(f"article .card-{kind}")) for kind in CARDS} == written
    cards = soup.select("article .card-exercise")
    calls = exercise_calls(read(path))
    assert len(cards) == len(calls)
    for card, (_, name, _) in zip(cards, calls, strict=True):
        heading = card.find_previous_sibling()
        assert heading.name == "h3" and heading.get_text().startswith("Exercise ")
        assert [fold.summary.text for fold in card.select("details")] == ["Hint", "Solution"]
        assert name in card.select_one("div.cell").text and card.select_one(".effort [role=img]")
        assert soup.select(f".bd-toc a[href='#{card.parent['id']}']")


def test_signatures_are_python():
    for signature in page("book/api").select("dt.sig"):
        assert not re.search(r"<(?!=)\w|\b0x\w{6}", signature.text), signature.text


def test_the_front_page_leads_to_the_book():
    if not (HTML / "index.html").exists():
        pytest.fail("_build/html/index.html is missing: run `make book` first")
    assert f"{CONTENTS['root']}.html" in (HTML / "index.html").read_text(encoding="utf-8")


def test_the_intro_links_to_every_chapter_and_says_how_long_it_takes():
    cards = {
        card.select_one("a[href]")["href"]: card.get_text(" ")
        for card in page("book/intro").select("article .sd-card")
        if re.search(r"\d minutes", card.get_text())
    }
    assert list(cards) == [f"../notebooks/{path.stem}.html" for path in NOTEBOOKS]
    for path, text in zip(NOTEBOOKS, cards.values(), strict=True):
        first = read(path).cells[0].source
        assert first.split("\n")[0].removeprefix("# ") in text
        assert re.search(r"about (\d+) minutes", first)[1] == re.search(r"(\d+) minutes", text)[1]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_chapter_shows_what_nbmake_got(path):
    soup = page(f"notebooks/{path.stem}")
    executed = read(EXECUTED / path.name)
    assert [cell.source for cell in cells(executed, "code")] == [cell.source for cell in cells(read(path), "code")]
    assert len(soup.select("article div.cell")) == len(cells(executed, "code"))

    outputs = [output for cell in cells(executed, "code") for output in cell.outputs]
    text = soup.select_one("article").get_text()
    streams = [output for output in outputs if output.output_type == "stream" and output.name == "stdout"]
    printed = [output.text.rstrip().split("\n")[-1].split("\r")[-1] for output in streams]
    assert len(printed) >= len(exercise_calls(read(path)))
    assert [line for line in printed if line not in text and NOT_ATTEMPTED not in line] == []
    assert NOT_ATTEMPTED not in text and "█" not in text  # nor a progress bar that has stopped
    drawn = [output for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(soup.select("div.cell_output img")) == len(drawn) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_on_stand_in_data_says_so_at_its_top(path):
    code, named = code_of(path.stem), set()
    for name in ("mnist", "cifar10"):
        by_its_run = "load_dataset(recipe.dataset" in code and f'"{name}-' in code
        named |= {name} if f'load_dataset("{name}"' in code or by_its_run else set()
    missing = [name for name in named if not is_there(name)]
    article = page(f"notebooks/{path.stem}").select_one("article")
    told = [output.text for output in article.select(".cell_output") if "isn't here" in output.text]
    banners = article.select(".stand-in")
    assert bool(banners) == bool(missing or told), (missing, told)
    assert all("stand in for them" in banner.text for banner in banners)


def is_there(name: str) -> bool:
    try:
        load_dataset(name, "test", download=False)
    except FileNotFoundError:
        return False
    return True


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_figures_bear_the_alt_text_of_their_cells(path):
    figures = page(f"notebooks/{path.stem}").select("article div.cell_output img")
    alts = {
        cell.metadata["mystnb"]["image"]["alt"]: "hide-cell" in cell.metadata.get("tags", ())
        for cell in cells(read(path), "code")
        if "image" in cell.metadata.get("mystnb", {})
    }
    missing = set(alts) - {figure["alt"] for figure in figures}
    assert {figure["alt"] for figure in figures} <= set(alts)
    assert all(alts[alt] for alt in missing), "only a cell whose result is folded may have nothing to draw"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_colab_opens_this_notebook(path):
    soup = page(f"notebooks/{path.stem}")
    button = [link["href"] for link in soup.select(".dropdown-launch-buttons a[href*='colab']")]
    link = [link["href"] for link in soup.select("article a[href*='colab.research.google.com']")]
    assert button == link == [badge(path.name)]


def test_a_fault_is_found(tmp_path):
    soup = BeautifulSoup("<script src='//example.org/x.js'></script><article>Let {cite}`x`.</article>", "html.parser")
    assert problems(soup, tmp_path) == [
        "<script> asks another host: //example.org/x.js",
        "Markdown or maths that was not rendered: {cite}`",
    ]
