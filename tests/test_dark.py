"""The dark twin of a figure: ink and paper change places, data keep their colours."""

import base64
import io

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from _ext.figures import LIGHT_INDIGO as SAME_INDIGO
from _ext.figures import dark_of, dark_svg, dark_twins, pair, size_of
from bs4 import BeautifulSoup
from dark import INDIGO, INK, LIGHT_INDIGO, PAPER, SHADED_PAPER, darkened, is_ink, is_paper, print_both
from IPython.core import pylabtools
from matplotlib.colors import ListedColormap, same_color, to_hex
from matplotlib.patches import Rectangle
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from vit_tutorial import plots


@pytest.fixture
def axes():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def test_the_books_colours_are_neither_ink_nor_paper():
    assert not any(is_ink(colour) or is_paper(colour) for colour in plots.COLOURS.values())
    assert plots.COLOURS["attention"] == INDIGO
    assert is_ink("black") and is_ink("0.3") and is_paper("white")
    assert not is_ink("none") and not is_paper("none")


def test_ink_turns_light_and_comes_back(axes):
    (black,), (blue,), (indigo,) = (axes.plot([0, 1], color=colour) for colour in ("black", "#0072B2", INDIGO))
    axes.set(title="title", xlabel="x")
    before = axes.title.get_color()
    with darkened(axes.figure):
        assert same_color(black.get_color(), INK)
        assert same_color(blue.get_color(), "#0072B2")
        assert same_color(indigo.get_color(), LIGHT_INDIGO)
        assert same_color(axes.title.get_color(), INK) and same_color(axes.xaxis.label.get_color(), INK)
        assert all(same_color(label.get_color(), INK) for label in axes.get_xticklabels())
        assert same_color(axes.spines["left"].get_edgecolor(), INK)
        assert axes.get_facecolor()[3] == axes.figure.get_facecolor()[3] == 0
    assert (black.get_color(), axes.title.get_color()) == ("black", before)
    assert axes.get_facecolor() == axes.figure.get_facecolor() == (1, 1, 1, 1)


def test_letters_on_what_is_painted_stay_and_others_do_not(axes):
    axes.bar([0, 1, 2], [2, 1, 1], color=["#E69F00", "white", "0.95"])
    on, above, on_white = axes.text(0, 1, "on"), axes.text(0, 2.5, "above"), axes.text(1, 0.5, "white")
    far = axes.annotate("far", (0, 1), (0.8, 2.5), arrowprops={"arrowstyle": "->"})
    axes.set(xlim=(-1, 2), ylim=(0, 3))
    with darkened(axes.figure):
        assert same_color(on.get_color(), "black")
        assert all(same_color(text.get_color(), INK) for text in (above, on_white, far))
        assert same_color(far.arrow_patch.get_edgecolor(), INK)
        assert [to_hex(bar.get_facecolor()) for bar in axes.patches] == ["#e69f00", PAPER, SHADED_PAPER]


def test_letters_on_an_image_stay(axes):
    axes.imshow(np.zeros((4, 4)))
    text = axes.text(1, 1, "here")
    with darkened(axes.figure):
        assert same_color(text.get_color(), "black")


@pytest.mark.parametrize("image", [False, True])
def test_the_key_to_an_image_s_colours_keeps_them(axes, image):
    if image:
        axes.imshow([[0.0, 1.0]], cmap=ListedColormap(["white", INDIGO]))
    axes.legend(handles=[Rectangle((0, 0), 1, 1, color=INDIGO, label="ran")])
    with darkened(axes.figure):
        (patch,) = axes.get_legend().get_patches()
        assert same_color(patch.get_facecolor(), INDIGO if image else LIGHT_INDIGO)


def both(figure) -> tuple[bytes, dict]:
    return print_both(figure, "png", base64=True, light=pylabtools.print_figure)


def test_the_twin_is_a_picture_of_the_same_size_whose_paper_shows_through(axes):
    axes.imshow([[0.0, 1.0]], cmap="viridis")
    light, metadata = both(axes.figure)
    pictures = [Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA") for data in (light, metadata["dark"])]
    assert pictures[0].size == pictures[1].size
    assert [picture.getpixel((0, 0)) for picture in pictures] == [(255, 255, 255, 255), (255, 255, 255, 0)]
    middle = (pictures[0].width * 3 // 8, pictures[0].height // 2)
    assert pictures[0].getpixel(middle) == pictures[1].getpixel(middle)


def test_an_empty_figure_and_other_formats_are_as_before(axes):
    empty = plt.figure()
    assert both(empty) is None
    plt.close(empty)
    assert isinstance(print_both(axes.figure, "svg", light=pylabtools.print_figure), str)


def test_a_page_shows_the_twin_of_each_figure(axes, tmp_path):
    axes.plot([0, 1])
    light, metadata = both(axes.figure)
    output = new_output("display_data", {"image/png": light}, metadata={"image/png": metadata})
    other = new_output("display_data", {"image/png": light})
    assert dark_of(other) is None
    notebook = nbformat.from_dict(new_notebook(cells=[new_code_cell(outputs=[output])]))
    ((name, dark),) = dark_twins(notebook).items()
    image = '<div class="cell_output"><img alt="A line." src="../_images/{}"/></div>'
    soup = BeautifulSoup(pair(image.format(name) + image.format("x.png"), {name: dark}, tmp_path), "html.parser")
    first, twin, without = soup.select("img")
    assert (first["class"], twin["class"], without.get("class")) == (["only-light"], ["only-dark"], None)
    assert twin["src"] == f"../_images/dark-{name}" and twin["alt"] == "A line."
    assert (tmp_path / f"dark-{name}").read_bytes() == base64.b64decode(metadata["dark"])


def test_the_diagram_s_paper_turns_dark_and_its_flower_stays():
    assert LIGHT_INDIGO.lower() == SAME_INDIGO.lower()
    shapes = {
        '<rect fill="#FFFFFF" stroke="#1F1F1F"/>': '<rect fill="#121212" stroke="#E2E2E2"/>',
        '<rect fill="#BFE0F5" stroke="none"/>': '<rect fill="#BFE0F5" stroke="none"/>',  # the sky above the flower
        '<rect fill="#0072B2"/>': '<rect fill="#0072B2"/>',
        f'<path stroke="{INDIGO}"/>': f'<path stroke="{SAME_INDIGO}"/>',
        '<rect fill="#EEECF5"/>': '<rect fill="#EEECF5"/>',  # a cell of the attention table
    }
    for light, dark in shapes.items():
        assert dark_svg(light) == dark
    svg = plots.model_diagram("model").svg
    output = new_output("display_data", {"image/svg+xml": svg})
    assert dark_of(output) == dark_svg(svg).encode() != svg.encode()
    assert size_of(svg.encode()) == ("480", "634")
    ((name, _),) = dark_twins(nbformat.from_dict(new_notebook(cells=[new_code_cell(outputs=[output])]))).items()
    assert name.endswith(".svg")


def test_a_figure_has_its_size(axes):
    data = base64.b64decode(both(axes.figure)[0])
    assert size_of(data) == tuple(str(side) for side in Image.open(io.BytesIO(data)).size)
