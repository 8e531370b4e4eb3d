"""A figure is one SVG that follows its page's theme; images, and what lies on them, stay as they are."""

import io
import re

import matplotlib.pyplot as plt
import pytest
from figures import dark, size_of, themed
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image

from vit_tutorial.plots import model_diagram


@pytest.fixture
def drawn() -> str:
    """A bar, an image of white and black, and a map from white to indigo, 100 pixels each, with letters."""
    fig, axes = plt.subplots(1, 3, figsize=(3, 1))
    fig.subplots_adjust(0, 0, 1, 1, 0)
    axes[0].bar([0], [0.5], width=2, color="#D55E00")
    axes[0].set(xlim=(-1, 1), ylim=(0, 1))
    axes[1].imshow([[1, 0]], "gray", aspect="auto")
    axes[2].imshow([[0, 1]], LinearSegmentedColormap.from_list("", ["white", "#332288"]), aspect="auto")
    for i, y, words in ((0, 0.2, "bar"), (0, 0.7, "above"), (1, 0, "image"), (2, 0, "map")):
        axes[i].text(0, y, words, color="#0072B2" if i else "black")
        axes[i].axis("off")
    with plt.rc_context({"svg.fonttype": "none"}):
        fig.savefig(file := io.BytesIO(), format="svg")
    return themed(file.getvalue().decode())


def test_letters_keep_their_colour_on_what_keeps_its_own(drawn):
    said = [style.split("; fill: ")[1:][-1:] for style in re.findall(r'<text style="([^"]*)"', drawn)]
    assert said == [["#000000"], [], ["#0072b2"], ["light-dark(#0072b2, #62B5EA)"]]
    assert re.search(r"<svg[^>]*fill: light-dark\(#000000, #E6E6E6\)", drawn)  # of what says nothing


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_figure_has_its_page_s_paper_and_data_keep_their_colours(theme, drawn, chromium, tmp_path):
    (tmp_path / "a.svg").write_text(drawn)
    (tmp_path / "a.html").write_text(f'<body style="margin: 0; color-scheme: {theme}"><img src="a.svg" width="300">')
    page = chromium.new_page(color_scheme={"light": "dark", "dark": "light"}[theme])  # of the system, not of the page
    page.goto((tmp_path / "a.html").as_uri())
    page.locator("img").evaluate("image => image.decode()")
    seen = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    colours = [
        bytes(seen.getpixel(at)).hex() for at in ((10, 10), (10, 90), (105, 90), (190, 90), (205, 90), (290, 90))
    ]
    turned = ("ffffff", "ffffff", "332288") if theme == "light" else ("121212", "262626", "a99bea")
    assert colours == [turned[0], "d55e00", "ffffff", "000000", *turned[1:]]


def test_the_diagram_s_paper_turns_dark_and_its_flower_stays():
    shown = themed(model_diagram().svg)
    assert 'fill="#BFE0F5" stroke="none" stroke-width="1" />' in shown  # the sky above the flower
    assert "fill: light-dark(#FFFFFF, #121212)" in shown and "fill: light-dark(#332288, #A99BEA)" in shown
    assert [dark(grey, "letter") for grey in ("#000000", "#696969", "#FFFFFF")] == ["#E6E6E6", "#A6A6A6", "#FFFFFF"]
    assert size_of(shown.encode()) == (480, 634) and size_of(b'<?xml?><svg width="72pt" height="36.1pt">') == (96, 48)
