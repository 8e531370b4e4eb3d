"""A notebook's figures on its page: for the light theme and for the dark one, small files, room kept until they come.

``book/dark.py`` draws the dark twin of a plot. That of the diagram is made here: paper and ink change places.
"""

import base64
import colorsys
import hashlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from dark import LIGHT_INDIGO, SHADED_PAPER
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from vit_tutorial.plots.colours import COLOURS, INKS
from vit_tutorial.plots.diagram import PIXELS, tint

ATTENTION_BOX = tint(COLOURS["attention"])


@dataclass(frozen=True)
class Twins:
    """An image for each theme, SVG or PNG, and its size on the page in pixels."""

    light: bytes
    dark: bytes | None
    size: tuple[int, int]


def dark_svg(svg: str) -> str:
    """The diagram for dark paper: pale colours turn dark and inks light; strong ones and the flower stay."""

    def turned(element: str, name: str, colour: str) -> str:
        hue, light, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
        letter, cell = element == "text", element == "cell" and saturation > 0.1
        if name == "fill" and (colour in PIXELS.values() or cell or (letter and colour == "#FFFFFF")):
            return colour  # as light as in the picture, and the number on a badge
        if colour in INKS and (letter or (name == "stroke" and colour == COLOURS["attention"])):
            return INKS[colour][1]
        if 0.66 < hue < 0.75 and saturation > 0.05 and colour != ATTENTION_BOX:  # a weight: the more, the lighter
            weight = (1 - to_rgb(colour)[0]) / (1 - to_rgb(COLOURS["attention"])[0])
            ends = zip(to_rgb(SHADED_PAPER), to_rgb(LIGHT_INDIGO), strict=True)
            return to_hex([(1 - weight) * none + weight * whole for none, whole in ends]).upper()
        pale, ink = light > 0.78 or (saturation < 0.1 and light > 0.45), saturation < 0.15 and light < 0.45
        if not (pale or ink):
            return colour
        return to_hex(colorsys.hls_to_rgb(hue, 1 - 0.93 * light, saturation * (0.6 if pale else 1))).upper()

    def turn(found: re.Match) -> str:
        element = "cell" if 'stroke="#FFFFFF" stroke-width="0.8"' in found[0] else found[1]
        return re.sub(
            r'(fill|stroke)="(#[0-9A-F]{6})"', lambda part: f'{part[1]}="{turned(element, *part.groups())}"', found[0]
        )

    return re.sub(r"<(\w+)[^>]*>", turn, svg)


def size_of(image: bytes) -> tuple[int, int]:
    """Width and height in pixels of an image, or of an SVG that says so."""
    if image.lstrip().startswith((b"<svg", b"<?xml")):
        head = re.search(rb"<svg[^>]*>", image)[0].decode()
        return tuple(round(float(re.search(rf'\b{side}="([\d.]+)', head)[1])) for side in ("width", "height"))
    with Image.open(io.BytesIO(image)) as opened:
        return opened.size


def drawing(svg: str) -> Twins:
    """The diagram, and what it becomes on dark paper."""
    return Twins(svg.encode(), dark_svg(svg).encode(), size_of(svg.encode()))


def twins_of(output: nbformat.NotebookNode) -> Twins | None:
    """The images in a notebook's output; None if it has none."""
    data, metadata = output.get("data", {}), output.get("metadata", {})
    for kind, decode in {"image/svg+xml": str.encode, "image/png": base64.b64decode}.items():
        if kind in data:
            light, said = "".join(data[kind]), metadata.get(kind, {})
            if kind == "image/svg+xml" and "dark" not in said:
                return drawing(light)
            dark, light = said.get("dark"), decode(light)
            size = (said["width"], said["height"]) if "width" in said else size_of(light)
            return Twins(light, dark and decode(dark), size)
    return None


def figures_of(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, Twins]]:
    """An executed notebook's images, by the names that MyST-NB gives their files."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if twins := twins_of(output):
                svg = b"<svg" in twins.light[:500]
                content = os.linesep.join(twins.light.decode().splitlines()).encode() if svg else twins.light
                yield f"{hashlib.sha256(content).hexdigest()}.{'svg' if svg else 'png'}", twins


def as_webp(png: bytes, cache: Path) -> bytes:
    """A PNG as WebP: without loss, unless it is a photograph, for which that takes twice as much.

    ``cache`` is a folder that remembers, for this takes the most time of all.
    """
    known = cache / f"{hashlib.sha256(png).hexdigest()}.webp"
    if not known.exists():
        image = Image.open(io.BytesIO(png))
        if image.mode == "RGBA" and image.getextrema()[3] == (255, 255):
            image = image.convert("RGB")
        exact, close = io.BytesIO(), io.BytesIO()
        image.save(exact, "webp", lossless=True)
        image.save(close, "webp", quality=90, use_sharp_yuv=True)
        cache.mkdir(parents=True, exist_ok=True)
        known.write_bytes((exact if exact.tell() < 2 * close.tell() else close).getvalue())
    return known.read_bytes()
