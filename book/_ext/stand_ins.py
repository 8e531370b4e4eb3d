"""A banner on each page that was built on stand-in data; no library knows what our notebooks print without theirs."""

import re

import nbformat
from bs4 import BeautifulSoup
from rooms import take_off

SAID = re.compile(r"Going on with '(\w+)' instead")
NAMES = {"digits": "small digits", "shapes": "drawn shapes"}


def stand_ins(notebook: nbformat.NotebookNode) -> list[str]:
    """The data sets that an executed notebook went on with, as its outputs tell."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    return sorted(set(SAID.findall(re.sub(r"\s+", " ", text))))


def warn(page: BeautifulSoup, found: list[str]) -> None:
    """Say under the page's title which data it lacks, in place of the warnings of its cells."""
    names = " and ".join(NAMES.get(name, name) for name in found)
    banner = f"""<div class="admonition warning stand-in"><p class="admonition-title">Warning</p><p>
    The real images weren't there when this page was built, so {names} stand in for them. The text tells of the real
    ones; figures and printed numbers on this page differ from it.</p></div>"""
    page.select_one("article h1").insert_after(BeautifulSoup(banner, "html.parser"))
    for output in page.select("div.output.stderr"):
        if SAID.search(re.sub(r"\s+", " ", output.text)):
            take_off(output)
