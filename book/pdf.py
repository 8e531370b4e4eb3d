"""The book as one PDF to hand out: `make pdf` joins the built pages, and a headless Chromium prints them at 80 %.

Left out are the API and the pages about what a screen can do. book/_static/print.css, which a single page that is
printed obeys too, has the rules of the paper: folded code stays away; side rooms, hints and solutions are open.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from html import escape
from pathlib import Path

import build
import yaml
from _ext.head import pages_address
from bs4 import BeautifulSoup, Tag
from pypdf import PdfReader, PdfWriter
from pypdf.generic import NameObject, TextStringObject

HTML = build.BUILD / "html"
JOINED = HTML / "book/printed.html"  # one folder deep, as all printed pages are: addresses of files stay
PDF = build.BUILD / "the-vision-transformer-from-scratch.pdf"
LEFT_OUT = {"book/api", "book/live", "book/accessibility", "book/changes"}

TEMPLATE = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<title>{title}</title>
{head}
</head>
<body style="zoom: 0.8">
<div class="title-page">
<p style="font: 600 27pt/1.2 system-ui, sans-serif">{title}</p>
<p>{pictures}</p>
<p>Printed on {today:%d %B %Y} from <a href="{url}">{url}</a>.<br>There each chapter is a notebook that runs, with the
cells that draw its figures and check its numbers: where the text names a cell that isn’t here, it’s there.<br>
Code: MIT. Prose and figures: CC BY 4.0.</p>
</div>
<nav class="book-contents"><h1>Contents</h1><table width="100%">{contents}</table></nav>
<div class="bd-main"><div class="bd-content"><div class="bd-article-container">
{articles}
</div></div></div>
"""


def contents() -> dict[str, list[str]]:
    """The parts of the book and their pages, in the order of _toc.yml; the front page has no part."""
    toc = yaml.safe_load((build.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = {part["caption"]: [chapter["file"] for chapter in part["chapters"]] for part in toc["parts"]}
    kept = {part: [page for page in pages if page not in LEFT_OUT] for part, pages in parts.items()}
    return {"": [toc["root"]], **{part: pages for part, pages in kept.items() if pages}}


def printed(html: str, page: str, pages: list[str], published: str) -> Tag:
    """The article of a built page, its ids behind the page's name; links to pages left out lead to ``published``."""
    article, name = (
        BeautifulSoup(html.replace(' loading="lazy"', ""), "html.parser").select_one("article"),
        Path(page).name,
    )
    for element in article.select(".headerlink, .only-dark, script, a:has(> img[src*=colab-badge])"):
        element.decompose()
    for element in article.select("[id]"):
        element["id"] = f"{name}--{element['id']}"
    for link in article.select("a[href]"):
        target, mark, fragment = link["href"].partition("#")
        inside = os.path.normpath(Path(page).parent / target).removesuffix(".html") if target else page
        if inside in pages:
            link["href"] = f"#{Path(inside).name}--{fragment}".removesuffix("--")
        elif "://" not in target:
            link["href"] = f"{published}{inside}.html{mark}{fragment}"
    article["id"], article["style"] = name, f"page: leaf-{name}"
    return article


def join(built: dict[str, str], parts: dict[str, list[str]], numbers: dict[str, int]) -> str:
    """The whole book as one page, from the built pages' HTML; ``numbers`` has what page each of them begins on."""
    url = yaml.safe_load((build.ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
    articles = {page: printed(html, page, list(built), pages_address(url)) for page, html in built.items()}
    front = parts[""][0]
    title, articles[front].h1.string = articles[front].h1.text, "Introduction"
    heads = [sheet for html in built.values() for sheet in re.findall(r'<link[^>]*rel="stylesheet"[^>]*>', html)]
    feet, lines = [], []
    for part, pages in parts.items():
        lines += [f"<tr><th align=left height=40>{escape(part)}</th></tr>"] if part else []
        for page in pages:
            name, text = Path(page).name, articles[page].h1.text
            number = f"<td align=right>{numbers.get(name, '')}</td>"
            lines.append(f'<tr><td><a href="#{name}">{escape(text)}</a></td>{number}</tr>')
            feet.append(f"@page leaf-{name} {{ @bottom-left {{ content: {json.dumps(text, ensure_ascii=False)} }} }}")
    looks = ("photograph", "petals", "rim", "heart")
    return TEMPLATE.format(
        title=escape(title),
        head="\n".join(
            [*dict.fromkeys(heads), "<style>@page title { @bottom-right { content: '' } }", *feet, "</style>"]
        ),
        pictures="".join(f'<img src="../_static/look-{look}.jpg" alt="" width="24%"> ' for look in looks),
        today=date.today(),
        url=url,
        contents="\n".join(lines),
        articles="\n".join(map(str, articles.values())),
    )


def installed() -> str | None:
    """Chromium or Chrome: what CHROMIUM names, else the first that the PATH has."""
    usual = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    names = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else usual
    return next(filter(None, map(shutil.which, names)), None)


def browser() -> str:
    """The installed browser; SystemExit if there is none."""
    return installed() or sys.exit(
        "no Chromium or Chrome is here: apt install chromium, or make pdf CHROMIUM=/its/path"
    )


def print_pdf(html: Path, pdf: Path) -> dict[str, int]:
    """Let Chromium print HTML; returns the page number of each place that links name. SystemExit if it fails."""
    pdf.unlink(missing_ok=True)
    command = [browser(), "--headless", "--disable-gpu", "--disable-background-networking", "--no-pdf-header-footer"]
    command += ["--generate-pdf-document-outline", "--virtual-time-budget=60000", f"--print-to-pdf={pdf}"]
    command += ["--no-sandbox"]  # root has no sandbox in a container; the one page that is opened is our own
    done = subprocess.run([*command, html.as_uri()], capture_output=True, text=True)
    if done.returncode or not pdf.exists():
        sys.exit(f"Chromium printed nothing:\n{done.stderr}")
    reader = PdfReader(pdf)
    places = reader.named_destinations
    return {name.removeprefix("/"): 1 + reader.get_destination_page_number(place) for name, place in places.items()}


def mend_titles(outline: list) -> None:
    """Say a bookmark's title once: Chromium says it twice where the heading has moved to the next page."""
    for entry in outline:
        if isinstance(entry, list):
            mend_titles(entry)
        else:
            entry.node[NameObject("/Title")] = TextStringObject(re.sub(r"^(.+)\1$", r"\1", entry.title))


def main() -> None:
    browser()  # where there is none, say so before the notebooks run
    if not (HTML / "index.html").exists():
        build.execute()
        build.html()
    parts, numbers = contents(), {}
    built = {page: (HTML / f"{page}.html").read_text(encoding="utf-8") for pages in parts.values() for page in pages}
    for _ in range(2):  # the first print tells the page numbers that the contents of the second show
        JOINED.write_text(join(built, parts, numbers), encoding="utf-8")
        numbers = print_pdf(JOINED, PDF)
    JOINED.unlink()
    writer = PdfWriter(clone_from=PDF)
    mend_titles(writer.outline)
    writer.page_mode = "/UseOutlines"
    writer.write(PDF)
    print(f"{len(writer.pages)} pages, {PDF.stat().st_size / 1e6:.1f} MB:\n  {PDF}")


if __name__ == "__main__":
    main()
