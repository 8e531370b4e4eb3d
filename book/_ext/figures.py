"""Figures in both themes, from one SVG each; no library gives a drawing the colours of a dark page.

A notebook's kernel draws on white paper. Here each colour becomes CSS's ``light-dark()``, which an ``<img>`` follows
with its page's theme: ink turns light, data keep their colours. It has its paper with it, so that it can also be read
where a browser doesn't tell it of the page's theme. Images in it become WebP.
"""

import base64
import colorsys
import io
import re
from xml.etree import ElementTree

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from PIL import Image

from vit_tutorial.plots.colours import COLOURS, INKS
from vit_tutorial.plots.diagram import PIXELS

INK, PAPER, DIM_INK, SHADED = 0xE6 / 255, 0x12 / 255, 0xA6 / 255, 0x26 / 255  # the third: grey letters; the last: maps
LIGHT_BLUE = "#3A93D0"  # of lines and marks, and darker than the palette's sky blue
SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"

ElementTree.register_namespace("", SVG[1:-1])
ElementTree.register_namespace("xlink", LINK[1:-5])


def dark(colour: str, role: str) -> str:
    """What a colour becomes in the dark: of a "letter", "line", "fill", the diagram's "box" or a "cell" of data."""
    colour, (hue, light, saturation) = colour.upper(), colorsys.rgb_to_hls(*to_rgb(colour))
    if max(to_rgb(colour)) - min(to_rgb(colour)) < 0.04 and colour not in PIXELS.values():
        grey = PAPER + (1 - light) * (INK - PAPER)
        if role == "letter":  # a white one stands on something painted
            grey = light if light > 0.9 else max(grey, DIM_INK)
        return colour if role == "fill" and 0.45 < light < 0.9 else to_hex([grey] * 3).upper()
    if role == "letter" or (colour == COLOURS["attention"] and role != "cell"):
        return INKS.get(colour, (colour, colour))[1]
    if role == "line" and colour == COLOURS["query"]:
        return LIGHT_BLUE
    if role == "box" and colour not in PIXELS.values() and (light > 0.78 or 0.66 < hue < 0.75):  # pale, or a weight
        return to_hex(colorsys.hls_to_rgb(hue, 1 - 0.93 * light, saturation * (0.6 if light > 0.78 else 1))).upper()
    return colour


def end_of_map(image: Image.Image) -> str | None:
    """The colour of the book at the end of an image's colour map, if that begins at white; None for other images."""
    pixels = np.asarray(image.convert("RGB")).reshape(-1, 3) / 255
    for colour in COLOURS.values():
        end = np.array(to_rgb(colour))
        weights = (1 - pixels[:, end.argmin(), None]) / (1 - end.min())
        if np.ptp(end) > 0.1 and 0.05 < weights.max() < 1.02 and np.abs(1 - weights * (1 - end) - pixels).max() < 0.02:
            return colour
    return None


def filter_of(colour: str) -> str:
    """What makes of a map from white to a colour, in the dark theme, one from dark paper to the dark theme's colour."""
    end, name, matrix = np.array(to_rgb(colour)), colour[1:], np.eye(4, 5)
    slope = (np.array(to_rgb(dark(colour, "fill"))) - SHADED) / (1 - end.min())
    matrix[:3, :3], matrix[:3, end.argmin()], matrix[:3, 4] = 0, -slope, SHADED + slope
    values = f'<feColorMatrix values="{" ".join(map(str, matrix.ravel().round(4)))}"/>'
    style = f"@media (prefers-color-scheme: dark) {{ .map-{name} {{ filter: url(#dark-{name}) }} }}"
    return f'<style>{style}</style><filter id="dark-{name}" color-interpolation-filters="sRGB">{values}</filter>'


def box_of(element: ElementTree.Element) -> np.ndarray:
    """Where an element lies, left and top, right and bottom; of letters where their line begins, or its middle."""
    x, y, width, height = (float(element.get(name, "0")) for name in ("x", "y", "width", "height"))
    y = -y if element.tag == f"{SVG}image" else y  # matplotlib's stand on their heads
    numbers = [x, y, x + width, y + height]
    if "d" in element.attrib or element.get("transform", "").startswith("translate"):
        numbers = re.findall(r"-?[\d.]+", element.get("d") or element.get("transform").partition(")")[0])
    points = np.array(numbers, float).reshape(-1, 2)
    return np.array([points.min(axis=0), points.max(axis=0)])


def lies_on(box: np.ndarray, ground: np.ndarray) -> bool:
    """Whether a box is inside another, and not at its edge."""
    inside = (box[0] > ground[0] - 2) & (box[1] < ground[1] + 2)
    return bool((inside & (box.mean(axis=0) > ground[0] + 1) & (box.mean(axis=0) < ground[1] - 1)).all())


def themed(svg: str) -> str:
    """A drawing on white paper, of matplotlib or ``plots.diagram``, for both themes.

    What lies on an image, letters on a fill that stays, and the paper under a thin image keep their colours.
    """
    root = ElementTree.fromstring(re.sub(r'(<path id="m[^>]*?)stroke: #\w{6}', r"\1", svg))  # a mark has its use's
    root.set("style", f"{root.get('style', '')}; color-scheme: light dark; fill: light-dark(#000000, #E6E6E6)")
    opaque, images, fills, ends = [], [], [], set()
    for element in root.iter(f"{SVG}image"):
        image = Image.open(io.BytesIO(base64.b64decode(element.get(LINK).partition(",")[2])))
        element.set(LINK, f"data:image/webp;base64,{base64.b64encode(as_webp(image)).decode()}")
        is_opaque = np.median(np.asarray(image.convert("RGBA"))[..., 3]) == 255  # but for what isn't a number
        if is_opaque and (end := end_of_map(image)):
            ends.add(end)
            element.set("class", f"map-{end[1:]}")
        else:
            images.append(box_of(element))
            opaque += images[-1:] * bool(is_opaque)
    for element in list(root.iter())[1:]:
        kind, style = element.tag.removeprefix(SVG), element.get("style", "")
        colours = {name: element.get(name) for name in ("fill", "stroke") if "#" in element.get(name, "")}
        colours |= dict(re.findall(r"\b(fill|stroke): (#\w{6})", style))
        letters = kind in ("text", "g") and bool({"x", "transform"} & set(element.attrib))
        is_cell = element.get("stroke-width") == "0.8" or len(images) > len(opaque)  # a token's, or key to a thin map
        shape = "cell" if is_cell else "box" if "fill" in element.attrib else "fill"
        box, said = box_of(element), []
        is_paper = any(lies_on(image, box) for image in opaque)
        if not is_paper and any(lies_on(box, ground) for ground in images + fills * letters):
            said = ["fill: #000000"] * (letters and "fill" not in colours)
        else:
            for name, colour in colours.items():
                is_line = kind == "use" or (name == "stroke" and colour != colours.get("fill"))
                role = "letter" if letters else "line" if is_line else shape
                if (turned := dark(colour, role)) != colour.upper():
                    said.append(f"{name}: light-dark({colour}, {turned})")
            is_thin = re.search(r"opacity: 0\.([0-6]|7\b)", style)  # letters on it, too, have to be light on dark paper
            if kind == "path" and "fill" in colours and not is_thin and "fill" not in " ".join(said):
                fills.append(box)
        if said:
            element.set("style", "; ".join([style, *said] if style else said))
    filters = "".join(map(filter_of, sorted(ends)))
    return f"{ElementTree.tostring(root, 'unicode').removesuffix('</svg>')}{filters}</svg>"


def size_of(image: bytes) -> tuple[int, int]:
    """Width and height of an image, or of an SVG that says so, in pixels of a page."""
    if head := re.search(rb"<svg[^>]*>", image[:1000]):
        sides = re.findall(rb' (?:width|height)="([\d.]+)(pt)?', head[0])
        return tuple(round(float(number) * (96 / 72 if points else 1)) for number, points in sides)
    return Image.open(io.BytesIO(image)).size


def as_webp(image: Image.Image) -> bytes:
    """An image without loss, unless it is a photograph, for which that takes twice as much."""
    exact, close = io.BytesIO(), io.BytesIO()
    image.save(exact, "webp", lossless=True)
    image.save(close, "webp", quality=90, use_sharp_yuv=True)
    return (exact if exact.tell() < 2 * close.tell() else close).getvalue()
