"""What is mended in the theme's pages, and what is left out of them."""

from pathlib import Path

import pydata_sphinx_theme
import pytest
from bs4 import BeautifulSoup
from fontTools.ttLib import TTFont
from theme import keep_icons, lighten, mend

HEAD = """<head><script src="_static/scripts/fontawesome.js"></script>
<script src="_static/documentation_options.js"></script><script>const THEBE_JS_URL = "x"</script>
<script src="searchindex.js"></script><script src="copybutton.js"></script>
<link rel="stylesheet" href="sphinx-design.min.css"/><link rel="stylesheet" href="custom.css"/></head>"""


@pytest.mark.parametrize(
    ("body", "file"),
    [
        ("", ""),
        ('<div class="highlight">x</div>', "copybutton.js"),
        ('<p class="sd-card">x</p>', "sphinx-design.min.css"),
        ('<p id="search-results">x</p>', "searchindex.js"),
    ],
)
def test_a_page_loads_what_it_needs(body, file):
    page = BeautifulSoup(HEAD + body, "html.parser")
    lighten(page)
    files = {tag.get("src") or tag.get("href") for tag in page.select("script, link")}
    assert files - {file} == {"_static/documentation_options.js", "custom.css"} and file in {*files, ""}
    waits = {tag["src"]: "defer" in tag.attrs for tag in page.select("script")}
    assert not waits.pop("_static/documentation_options.js")  # a script in the page goes on with it
    assert all(waits.values()) is ("search-results" not in body)


def test_marks_of_the_theme_are_mended():
    wrong = """<details class="hide"><summary aria-label="Toggle hidden content">Set-up</summary></details>
    <button class="search-button-field" aria-label="Search"></button><i class="theme-switch" title="Light"></i>
    <div id="pst-primary-sidebar"></div><div role="doc-biblioentry"></div>
    <table><tr><th class="head"><p></p></th><th>x</th></tr></table>
    <dt class="sig">f(<dl><dd>x,</dd></dl>)</dt><dd><dl><dt>a</dt><dd>b</dd></dl></dd>"""
    right = """<details class="hide"><summary>Set-up</summary></details>
    <button class="search-button-field"></button><i class="theme-switch"></i>
    <div aria-label="The book" id="pst-primary-sidebar" role="complementary"></div><div role="listitem"></div>
    <table><tr><td><p></p></td><th>x</th></tr></table>
    <dt class="sig">f(<span class="sig-lines"><span>x,</span></span>)</dt><dd><dl><dt>a</dt><dd>b</dd></dl></dd>"""
    viewport = '<meta name="viewport"/>'
    page = BeautifulSoup(f"<head>{viewport}{viewport}</head><body>{wrong}</body>", "html.parser")
    mend(page)
    assert page.body == BeautifulSoup(f"<body>{right}</body>", "html.parser").body
    assert [tag.name for tag in page.head.children] == ["script", "meta"]


def test_fonts_of_icons_keep_what_is_shown(tmp_path):
    theme = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static"
    for name in ("styles/pydata-sphinx-theme.css", "vendor/fontawesome/webfonts/fa-solid-900.woff2"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((theme / name).read_bytes())
    keep_icons(tmp_path, {"fa-rocket", "fa-lg"})
    font = tmp_path / "vendor/fontawesome/webfonts/fa-solid-900.woff2"
    letters = TTFont(font).getBestCmap()
    assert 0xF135 in letters and 0xF0EB in letters  # a rocket, and the light bulb of hints
    assert 0xF0C9 not in letters and font.stat().st_size < 10_000
