"""How the book draws a figure: as SVG where it can, and twice, with a dark twin in which data keep their colours."""

import base64
import io

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from dark import (
    DIM_INK,
    INDIGO,
    INK,
    LIGHT_BLUE,
    LIGHT_INDIGO,
    PAPER,
    SHADED_PAPER,
    both,
    darkened,
    is_ink,
    is_paper,
    svg_of,
)
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, same_color, to_hex, to_rgb
from matplotlib.patches import Rectangle
from PIL import Image

from vit_tutorial import plots


@pytest.fixture
def axes():
    fig, ax = plt.subplots()
    yield ax
    plt.close(fig)


def test_the_books_colours_are_neither_ink_nor_paper():
    assert not any(is_ink(colour) or is_paper(colour) for colour in plots.COLOURS.values())
    assert is_ink("black") and is_ink("0.3") and is_paper("white")
    assert not is_ink("none") and not is_paper("none")


def test_ink_turns_light_and_comes_back(axes):
    (black,), (blue,), (indigo,) = (axes.plot([0, 1], color=colour) for colour in ("black", "#0072B2", INDIGO))
    axes.set(title="title", xlabel="x")
    before = axes.title.get_color()
    with darkened(axes.figure):
        assert same_color(black.get_color(), INK)
        assert same_color(blue.get_color(), LIGHT_BLUE)
        assert same_color(indigo.get_color(), LIGHT_INDIGO)
        assert same_color(axes.title.get_color(), INK) and same_color(axes.xaxis.label.get_color(), INK)
        assert all(same_color(label.get_color(), INK) for label in axes.get_xticklabels())
        assert same_color(axes.spines["left"].get_edgecolor(), INK)
        assert axes.get_facecolor()[3] == axes.figure.get_facecolor()[3] == 0
    assert (black.get_color(), axes.title.get_color()) == ("black", before)
    assert axes.get_facecolor() == axes.figure.get_facecolor() == (1, 1, 1, 1)


def test_blue_lines_and_marks_turn_lighter_and_pale_ones_stay_quiet_but_not_bars_nor_what_lies_on_an_image(axes):
    other = axes.figure.add_axes([0, 0, 0.1, 0.1])
    other.imshow([[0.0, 1.0]], cmap="viridis")
    (on_image,) = other.plot([0, 1], color="#0072B2")
    (green,), divider = axes.plot([0, 1], "o", color="#009E73", mfc="white"), axes.axvline(0.5, color="0.8")
    (grey,) = axes.plot([0, 1], "s-", color="0.4")  # its marks have the line's colour
    dots, level, bars = axes.scatter([0], [0], c="#0072B2"), axes.hlines(0, 0, 1, "#D55E00"), axes.bar([0], [1])
    bars[0].set_facecolor("#0072B2")
    with darkened(axes.figure):
        assert to_hex(green.get_markeredgecolor()) == "#009e73" and to_hex(green.get_markerfacecolor()) == PAPER
        assert to_hex(divider.get_color()) == to_hex((0.25, 0.25, 0.25))
        assert [to_hex(get()) for get in (grey.get_color, grey.get_markerfacecolor, grey.get_markeredgecolor)] == [
            INK
        ] * 3
        assert [to_hex(marks.get_edgecolor()[0]) for marks in (dots, level)] == [LIGHT_BLUE.lower(), "#d55e00"]
        assert to_hex(bars[0].get_facecolor()) == to_hex(on_image.get_color()) == "#0072b2"
    assert (divider.get_color(), on_image.get_color()) == ("0.8", "#0072B2")


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


@pytest.mark.parametrize("colour", plots.colours.INKS)
def test_letters_in_the_books_colours_get_the_ink_for_dark_paper(colour, axes):
    on_paper, pale = axes.text(0.2, 0.5, "a", color=colour), axes.text(0.7, 0.5, "b", color=colour, alpha=0.5)
    axes.add_patch(Rectangle((0.4, 0.4), 0.2, 0.2, color="#cfe3f1"))
    on_light = axes.text(0.5, 0.5, "c", color=colour, ha="center")
    with darkened(axes.figure):
        assert same_color(on_paper.get_color(), plots.colours.INKS[colour][1])
        assert same_color(pale.get_color(), plots.colours.INKS[colour][1]) and pale.get_alpha() == 0.5
        assert same_color(on_light.get_color(), colour)
    assert on_paper.get_color() == colour


def test_grey_letters_stay_dimmer_than_black_ones(axes):
    grey, black = axes.text(0.2, 0.5, "a", color="dimgrey"), axes.text(0.7, 0.5, "b", color="0.2")
    with darkened(axes.figure):
        assert same_color(grey.get_color(), DIM_INK) and same_color(black.get_color(), INK)
    assert grey.get_color() == "dimgrey"


def test_in_the_dark_a_confusion_matrix_brightens_with_its_counts():
    fig = plots.confusion_matrix(torch.tensor([[60, 1], [20, 50]]), ["ape", "bee"]).figure
    (ax,) = fig.axes
    with darkened(fig):
        assert all(same_color(count.get_color(), INK) for count in ax.texts)
        few, many = (sum(seen) for seen in colours_at(fig, (ax, 0.6, 0.9), (ax, 0.1, 0.4)))
        right = colours_at(fig, (ax, 0.1, 0.9))[0]
    plt.close(fig)
    assert sum(int(PAPER[at : at + 2], 16) for at in (1, 3, 5)) < few < 120 < many
    assert max(right) < 128  # dark enough for light letters


def test_letters_on_a_thin_fill_turn_light_and_on_a_thick_one_they_stay(axes):
    axes.bar([0, 1], [1, 1], color=[("#D55E00", 0.6), ("#D55E00", 0.9)])
    thin, thick = axes.text(0, 0.5, "thin"), axes.text(1, 0.5, "thick")
    with darkened(axes.figure):
        assert same_color(thin.get_color(), INK) and same_color(thick.get_color(), "black")


def test_a_pale_band_gets_no_light_edge(axes):
    band = axes.axhspan(0.2, 0.4, color="0.95")
    with darkened(axes.figure):
        assert to_hex(band.get_facecolor()) == to_hex(band.get_edgecolor()) == SHADED_PAPER
    assert to_hex(band.get_edgecolor()) == "#f2f2f2"


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


def test_the_twin_is_a_picture_of_the_same_size_whose_paper_shows_through(axes):
    axes.imshow([[0.0, 1.0]], cmap="viridis")
    content, metadata = both(axes.figure)
    assert list(content) == ["image/png"]
    light, said = content["image/png"], metadata["image/png"]
    pictures = [Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA") for data in (light, said["dark"])]
    assert pictures[0].size == pictures[1].size == pytest.approx((2 * said["width"], 2 * said["height"]), abs=1)
    assert [picture.getpixel((0, 0)) for picture in pictures] == [(255, 255, 255, 255), (255, 255, 255, 0)]
    middle = (pictures[0].width * 3 // 8, pictures[0].height // 2)
    assert pictures[0].getpixel(middle) == pictures[1].getpixel(middle)


def test_twins_have_their_panels_at_the_same_places():
    with plt.rc_context({"figure.constrained_layout.use": True}):
        fig, panels = plt.subplots(1, 2, figsize=(6.6, 3.1))
    for ax in panels:
        image = ax.imshow(np.eye(8))
        ax.set(title="title", xlabel="column")
    fig.colorbar(image, ax=panels, shrink=0.9, label="value")
    content, metadata = both(fig)
    light, dark = (
        np.array(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
        for data in (content["image/png"], metadata["image/png"]["dark"])
    )
    assert light.shape == dark.shape
    is_yellow = [(abs(picture - np.array([253, 231, 37])) < 20).all(axis=-1) for picture in (light, dark)]
    assert is_yellow[0].mean() > 0.03 and (is_yellow[0] != is_yellow[1]).mean() < 0.002  # but for blended edges
    assert fig.get_layout_engine() is not None
    plt.close(fig)


def colours_at(fig, *places) -> list[tuple[int, ...]]:
    """What is seen at each place, an axes and fractions of its width and height, on the page's dark paper."""
    file = io.BytesIO()
    fig.savefig(file, format="png", dpi=fig.dpi, facecolor="none")
    drawn = Image.open(file).convert("RGBA")
    seen = Image.alpha_composite(Image.new("RGBA", drawn.size, PAPER), drawn).convert("RGB")
    boxes = [ax.get_window_extent() for ax, _, _ in places]
    return [
        seen.getpixel((round(box.x0 + x * box.width), round(seen.height - box.y0 - y * box.height)))
        for box, (_, x, y) in zip(boxes, places, strict=True)
    ]


def test_the_bar_beside_maps_on_photographs_has_their_colours_in_the_dark_too():
    maps, limits = torch.tensor([[[0.0, 1.0]]]), (0.0, 0.9)
    fig = plots.show_maps(torch.ones(1, 1, 8, 8), maps, ["on white"], limits=limits)
    panel, bar = fig.axes
    with darkened(fig):
        places = ((panel, 0.25, 0.5), (panel, 0.75, 0.5), (bar, 0.5, 0.02), (bar, 0.5, 0.98), (bar, 0.5, 1.02))
        low, high, bar_low, bar_high, arrow = colours_at(fig, *places)
    plt.close(fig)
    assert low == (243, 243, 243) and max(high) < 160  # as in the light: nobody may tint a photograph
    np.testing.assert_allclose([bar_low, bar_high, arrow], [low, high, high], atol=15)  # the arrow has no paper


def test_a_bar_inside_another_axes_has_its_maps_colours_in_the_dark_too(axes):
    drawn = plots.overlay_map(torch.ones(1, 8, 8), torch.tensor([[0.0, 1.0]]), "a", (0.0, 1.0), axes)
    strip = axes.inset_axes([1.1, 0, 0.1, 1])
    axes.figure.colorbar(drawn, cax=strip)
    with darkened(axes.figure):
        low, high, bar_low, bar_high = colours_at(
            axes.figure, (axes, 0.25, 0.5), (axes, 0.75, 0.5), (strip, 0.5, 0.02), (strip, 0.5, 0.98)
        )
    assert low == (243, 243, 243)
    np.testing.assert_allclose([bar_low, bar_high], [low, high], atol=15)


@pytest.mark.parametrize("colours", [LinearSegmentedColormap.from_list("weights", ["white", INDIGO]), "Purples"])
def test_a_map_that_begins_at_white_paper_begins_at_dark_paper_and_so_does_its_bar(colours, axes):
    drawn = axes.imshow([[0.0, 1.0]], cmap=colours, aspect="auto")
    between = axes.axhline(0.25, color="white")
    bar = axes.figure.colorbar(drawn, ax=axes)
    bar.set_ticks([0, 0.5], labels=["none", "half"])
    with darkened(axes.figure):
        assert same_color(between.get_color(), PAPER)
        assert [label.get_text() for label in bar.ax.get_yticklabels()] == ["none", "half"]
        low, high, bar_low, bar_high = colours_at(
            axes.figure, (axes, 0.25, 0.8), (axes, 0.75, 0.8), (bar.ax, 0.5, 0.02), (bar.ax, 0.5, 0.98)
        )
    assert low == tuple(round(255 * part) for part in to_rgb(SHADED_PAPER)) and min(high) > 100
    assert colours == "Purples" or to_hex([part / 255 for part in high]).upper() == LIGHT_INDIGO
    np.testing.assert_allclose([bar_low, bar_high], [low, high], atol=8)
    assert to_hex(drawn.get_cmap()(0.0)) >= "#fc" and between.get_color() == "white"
    assert [label.get_text() for label in bar.ax.get_yticklabels()] == ["none", "half"]


@pytest.mark.parametrize("colours", ["gray", "viridis", "PuOr"])
def test_other_maps_and_lines_on_them_stay(colours, axes):
    drawn = axes.imshow([[0.0, 1.0]], cmap=colours)
    between = axes.axhline(0.25, color="white")
    with darkened(axes.figure):
        assert drawn.get_cmap().name == colours and between.get_color() == "white"


def test_lines_and_letters_are_an_svg_with_text(axes):
    axes.plot([0, 1], color="black")
    axes.set(title="What a line says", xlabel="steps")
    content, metadata = both(axes.figure)
    assert list(content) == ["image/svg+xml"]
    light, said = content["image/svg+xml"], metadata["image/svg+xml"]
    for svg in (light, said["dark"]):
        assert svg.startswith("<svg") and ">What a line says</text>" in svg and "Date" not in svg
    assert INK in said["dark"] and INK not in light and 'style="fill: #ffffff"' not in said["dark"]
    points = light.split('viewBox="0 0 ')[1].split('"')[0].split()
    assert [said["width"], said["height"]] == [round(float(side) / 72 * 96) for side in points]
    assert svg_of(axes.figure) == svg_of(axes.figure)


def test_what_would_be_a_heavy_svg_is_a_png(axes):
    axes.scatter(*np.random.default_rng(0).normal(size=(2, 5000)))
    assert list(both(axes.figure)[0]) == ["image/png"]


@pytest.mark.parametrize("draw", ["imshow", "pcolormesh"])
def test_pixels_are_a_png_unless_they_are_hidden(draw, axes):
    drawn = getattr(axes, draw)([[0.0, 1.0]])
    assert list(both(axes.figure)[0]) == ["image/png"]
    drawn.set_visible(False)
    assert list(both(axes.figure)[0]) == ["image/svg+xml"]


def test_an_empty_figure_shows_nothing():
    empty = plt.figure()
    assert both(empty) is None
    plt.close(empty)
