"""Each figure twice, for the light theme and for the dark one, with its size, so that nothing moves when it comes.

``book/dark.py`` draws the dark twin of a plot. That of the diagram is made here: paper and ink change places.
"""

import base64
import colorsys
import hashlib
import os
import re
import struct
from copy import copy
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup

from vit_tutorial.plots.colours import COLOURS
from vit_tutorial.plots.diagram import PIXELS, tint

LIGHT_INDIGO = "#A99BEA"  # attention's colour in dark mode, as the style sheet has it
ATTENTION_BOX = tint(COLOURS["attention"])


def dark_of(output: nbformat.NotebookNode) -> bytes | None:
    """The dark twin of a notebook's output; None where there is none."""
    if svg := output.get("data", {}).get("image/svg+xml"):
        return dark_svg("".join(svg)).encode()
    dark = output.get("metadata", {}).get("image/png", {}).get("dark")
    return dark and base64.b64decode(dark)


def dark_svg(svg: str) -> str:
    """The diagram for dark paper: pale colours turn dark and inks light; strong ones, the flower and the table stay."""

    def turned(found: re.Match) -> str:
        name, colour = found.groups()
        if name == "fill" and colour in PIXELS.values():
            return found[0]
        if name == "stroke" and colour == COLOURS["attention"]:
            return f'{name}="{LIGHT_INDIGO}"'
        hue, light, saturation = colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))
        in_table = 0.66 < hue < 0.75 and saturation > 0.05 and colour != ATTENTION_BOX
        pale, ink = light > 0.78 or (saturation < 0.1 and light > 0.45), saturation < 0.15 and light < 0.45
        if in_table or not (pale or ink):
            return found[0]
        rgb = colorsys.hls_to_rgb(hue, 1 - 0.93 * light, saturation * (0.6 if pale else 1))
        return f'{name}="#{"".join(f"{round(255 * value):02X}" for value in rgb)}"'

    return re.sub(r'(fill|stroke)="(#[0-9A-F]{6})"', turned, svg)


def _light_of(output: nbformat.NotebookNode) -> tuple[str, bytes]:
    """The name that MyST-NB gives an output's image, and its content."""
    if svg := output["data"].get("image/svg+xml"):
        content, kind = os.linesep.join("".join(svg).splitlines()).encode(), "svg"
    else:
        content, kind = base64.b64decode(output["data"]["image/png"]), "png"
    return f"{hashlib.sha256(content).hexdigest()}.{kind}", content


def dark_twins(notebook: nbformat.NotebookNode) -> dict[str, bytes]:
    """The dark images of an executed notebook, by the names of the light ones."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return {_light_of(output)[0]: dark for output in outputs if (dark := dark_of(output))}


def size_of(image: bytes) -> tuple[str, str]:
    """Width and height of a PNG, or of an SVG that says so, in pixels."""
    if image.startswith(b"\x89PNG"):
        return tuple(map(str, struct.unpack(">II", image[16:24])))
    return tuple(re.search(rf'<svg[^>]*\b{side}="(\d+)'.encode(), image)[1].decode() for side in ("width", "height"))


def pair(body: str, twins: dict[str, bytes], images: Path) -> str:
    """The page's HTML with a dark image beside each that has a twin, which is written into the folder ``images``."""
    soup = BeautifulSoup(body, "html.parser")
    for image in soup.select("img[src]"):
        name = Path(image["src"]).name
        if name in twins:
            image["width"], image["height"] = size_of(twins[name])
            image["loading"] = "lazy"
            twin = copy(image)
            twin["src"] = image["src"].replace(name, f"dark-{name}")
            image["class"], twin["class"] = [*image.get("class", []), "only-light"], ["only-dark"]
            image.insert_after(twin)
            images.mkdir(parents=True, exist_ok=True)
            (images / f"dark-{name}").write_bytes(twins[name])
    return str(soup)


def pair_page(app, pagename, templatename, context, doctree):
    if "body" not in context:
        return
    executed = Path(app.srcdir) / "_build/executed" / f"{Path(pagename).name}.ipynb"
    drawing = Path(app.srcdir) / "book/_static/model.svg"
    if pagename.startswith("notebooks/") and executed.exists():
        twins = dark_twins(nbformat.read(executed, as_version=4))
    elif "model.svg" in context["body"]:
        twins = {drawing.name: dark_svg(drawing.read_text(encoding="utf-8")).encode()}
    else:
        return
    context["body"] = pair(context["body"], twins, Path(app.outdir) / "_images")


def setup(app):
    app.connect("html-page-context", pair_page, priority=860)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
