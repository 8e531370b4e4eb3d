"""Each figure twice, for the light theme and for the dark one; ``book/dark.py`` says where the second comes from."""

import base64
import hashlib
from copy import copy
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup


def dark_of(output: nbformat.NotebookNode) -> bytes | None:
    """The dark PNG of a notebook's output; None where there is none."""
    dark = output.get("metadata", {}).get("image/png", {}).get("dark")
    return dark and base64.b64decode(dark)


def dark_twins(notebook: nbformat.NotebookNode) -> dict[str, bytes]:
    """The dark PNGs of an executed notebook, by the name that MyST-NB gives the light ones."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ()) if dark_of(output)]
    lights = [base64.b64decode(output.data["image/png"]) for output in outputs]
    return {
        f"{hashlib.sha256(light).hexdigest()}.png": dark_of(output)
        for light, output in zip(lights, outputs, strict=True)
    }


def pair(body: str, twins: dict[str, bytes], images: Path) -> str:
    """The page's HTML with a dark image beside each that has a twin, which is written into the folder ``images``."""
    soup = BeautifulSoup(body, "html.parser")
    for image in soup.select("div.cell_output img[src]"):
        name = Path(image["src"]).name
        if name in twins:
            twin = copy(image)
            twin["src"] = image["src"].replace(name, f"dark-{name}")
            image["class"], twin["class"] = [*image.get("class", []), "only-light"], ["only-dark"]
            twin["loading"] = image["loading"] = "lazy"
            image.insert_after(twin)
            images.mkdir(parents=True, exist_ok=True)
            (images / f"dark-{name}").write_bytes(twins[name])
    return str(soup)


def pair_page(app, pagename, templatename, context, doctree):
    executed = Path(app.srcdir) / "_build/executed" / f"{Path(pagename).name}.ipynb"
    if pagename.startswith("notebooks/") and "body" in context and executed.exists():
        twins = dark_twins(nbformat.read(executed, as_version=4))
        context["body"] = pair(context["body"], twins, Path(app.outdir) / "_images")


def setup(app):
    app.connect("html-page-context", pair_page, priority=860)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
