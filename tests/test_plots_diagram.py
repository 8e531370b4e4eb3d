"""The drawing of the model: well formed, safe to put on a page many times over, and readable on a phone."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest

from vit_tutorial import plots
from vit_tutorial.plots.diagram import BLUE, MARK, MARK_INK, PARTS, PLACES, WIDTH, model_diagram

SVG = "{http://www.w3.org/2000/svg}"
ALL = [None, *PARTS]


def parse(part):
    return ElementTree.fromstring(model_diagram(part).svg)


@pytest.mark.parametrize("part", ALL)
def test_is_an_image_with_a_name_and_a_description(part):
    root = parse(part)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    assert [child.tag for child in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert part is None or part in root[0].text
    assert "flower" in root[1].text


@pytest.mark.parametrize("part", ALL)
def test_nothing_leaks_from_one_diagram_into_another_on_the_same_page(part):
    svg = model_diagram(part).svg
    names = [name for element in parse(part).iter() for name in element.attrib]
    assert not {"id", "class", "href"} & set(names)
    assert not re.search(r"<(style|script|image|foreignObject|use)|url\(|@import", svg)
    assert svg.count("http") == 1  # the namespace


@pytest.mark.parametrize("part", ALL)
def test_letters_are_large_enough_on_a_phone(part):
    root = parse(part)
    width = float(root.get("viewBox").split()[2])
    sizes = [float(element.get("font-size")) for element in root.iter() if element.get("font-size")]
    assert sizes and min(sizes) * 350 / width >= 10  # CSS pixels, at 350 of them across
    assert root.get("width") == root.get("viewBox").split()[2]


@pytest.mark.parametrize("part", ALL)
def test_everything_lies_inside_the_picture(part):
    root = parse(part)
    _, _, width, height = map(float, root.get("viewBox").split())
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height


def test_each_part_is_highlighted_and_the_others_are_not():
    outlined = {}
    for part in PARTS:
        strong = [rect for rect in parse(part).iter(f"{SVG}rect") if rect.get("fill") == "#EAF3FA"]
        assert len(strong) == 1 and strong[0].get("stroke") == BLUE
        outlined[part] = strong[0].get("x"), strong[0].get("y")
    assert len(set(outlined.values())) == len(PARTS)
    assert not any(rect.get("fill") == "#EAF3FA" for rect in parse(None).iter(f"{SVG}rect"))
    assert len({model_diagram(part).svg for part in ALL}) == len(ALL)


def test_a_thing_has_the_colour_that_it_has_in_figures_and_text():
    rects = {rect.get("stroke") for rect in parse(None).iter(f"{SVG}rect")}
    for thing in ("norm", "attention", "mlp", "projection"):
        assert plots.COLOURS[thing] in rects, thing
    fills = {rect.get("fill") for rect in parse(None).iter(f"{SVG}rect")}
    assert plots.COLOURS["class token"] in fills


def test_notebooks_show_it():
    diagram = model_diagram("encoder")
    assert diagram._repr_svg_() == diagram.svg
    assert repr(diagram).startswith("An image of a flower") and "<" not in repr(diagram)


def test_unknown_parts_and_places():
    with pytest.raises(ValueError, match=r"patches, positions, attention, encoder, model or None; got 'decoder'"):
        model_diagram("decoder")
    with pytest.raises(ValueError, match=r"places must be among cut, projection, .*, scores; got tail"):
        model_diagram(marks={"tail": 1})


def test_marks_sit_in_squares_at_their_places_and_apart():
    marks = {place: number for number, place in enumerate(PLACES, start=1)}
    root = ElementTree.fromstring(model_diagram(marks=marks).svg)
    found = [rect for rect in root.iter(f"{SVG}rect") if rect.get("fill") == MARK_INK]
    sides = [[float(rect.get(name)) for name in ("x", "y", "width", "height")] for rect in found]
    middles = [(x + w / 2, y + h / 2) for x, y, w, h in sides]
    assert middles == [middle for place in PLACES for middle in PLACES[place]]
    for (x, y, w, h), (other_x, other_y, other_w, other_h) in combinations(sides, 2):
        assert x + w < other_x or other_x + other_w < x or y + h < other_y or other_y + other_h < y
    words = {(text.get("x"), text.text) for text in root.iter(f"{SVG}text")}
    for place, number in marks.items():
        for x, _ in PLACES[place]:
            assert (f"{x:g}", str(number)) in words, place
    assert root[1].text.endswith(f"Marked: {', '.join(f'{n} at the {place}' for place, n in marks.items())}.")


def test_letters_of_a_mark_are_read_on_it_and_on_a_phone():
    root = ElementTree.fromstring(model_diagram(marks={"head": 10}).svg)
    (square,) = (rect for rect in root.iter(f"{SVG}rect") if rect.get("fill") == MARK_INK)
    parts = [int(MARK_INK[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    assert 1.05 / (luminance + 0.05) >= 4.5  # white on it
    (size,) = (float(text.get("font-size")) for text in root.iter(f"{SVG}text") if text.get("font-size"))
    assert size * 350 / WIDTH >= 10
    assert float(square.get("height")) == MARK < float(square.get("width"))  # room for two digits


def test_the_committed_copy_is_current():
    """Otherwise run: python -m vit_tutorial.plots.diagram > book/_static/model.svg"""
    committed = Path(__file__).parent.parent / "book/_static/model.svg"
    assert committed.read_text(encoding="utf-8") == model_diagram().svg
