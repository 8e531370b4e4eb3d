"""The book as one PDF to hand out: `make pdf` joins the built pages, and a headless Chromium prints them.

Left out are the API, which one searches and nobody reads from end to end, and the pages about what a screen can do. So
is all folded code, since what imports, draws and checks is no reading matter; side rooms, hints and solutions are open.
book/_static/print.css, which a single page that is printed obeys too, has the rules of the paper.
"""

import json
import os
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

ROOT = build.ROOT
HTML = build.BUILD / "html"
JOINED = build.BUILD / "pdf" / "book.html"
PDF = build.BUILD / "the-vision-transformer-from-scratch.pdf"
LEFT_OUT = {"book/api", "book/live", "book/accessibility", "book/changes"}
SHORT = 10  # lines of code that stay on one page
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER = """The PDF is printed by Chromium or Chrome, and neither is here. On Debian: sudo apt install chromium.
If yours has another name or place: make pdf CHROMIUM=/path/to/chrome"""

TEMPLATE = """<!DOCTYPE html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<title>{title}</title>
{head}
<style>
{feet}
</style>
</head>
<body>
<div class="title-page">
<p class="book-title">{title}</p>
<div class="title-pictures">{pictures}</div>
<p>{imprint}</p>
</div>
<nav class="book-contents">
<h1>Contents</h1>
{contents}
</nav>
<div class="bd-main"><div class="bd-content"><div class="bd-article-container">
{articles}
</div></div></div>
</body>
</html>
"""
IMPRINT = """Printed on {today:%d %B %Y} from <a href="{url}">{url}</a>.<br>There each chapter is a notebook that runs,
with the cells that draw its figures and check its numbers: where the text names a cell that isn’t here, it’s there.<br>
Code: MIT. Prose and figures: CC BY 4.0."""


def contents() -> dict[str, list[str]]:
    """The parts of the book and their pages, in the order of _toc.yml; the front page has no part."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = {part["caption"]: [chapter["file"] for chapter in part["chapters"]] for part in toc["parts"]}
    kept = {part: [page for page in pages if page not in LEFT_OUT] for part, pages in parts.items()}
    return {"": [toc["root"]], **{part: pages for part, pages in kept.items() if pages}}


def anchor(page: str, fragment: str = "") -> str:
    """The id of a place in the joined book: several pages may have a section of the same name."""
    return f"{Path(page).name}--{fragment}" if fragment else Path(page).name


def from_joined(address: str, page: str) -> str:
    """The address of a file that a built page names, as the joined book has to name it."""
    return Path(os.path.relpath(HTML / Path(page).parent / address, JOINED.parent)).as_posix()


def repository() -> str:
    """The address of the book's repository."""
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]


def turn_links(article: Tag, page: str, pages: list[str]) -> list[str]:
    """Point links at the joined pages, number those that leave the book, and return the addresses of these.

    A link to a page that isn't printed leads to where that is published; an image that opens itself becomes an image.
    """
    published, addresses = pages_address(repository()), []
    for link in article.select("a[href]"):
        target, mark, fragment = link["href"].partition("#")
        inside = os.path.normpath(Path(page).parent / target).removesuffix(".html") if target else page
        if "://" not in target and inside in pages:
            link["href"] = f"#{anchor(inside, fragment)}"
        elif "://" in target or target.endswith(".html"):
            link["href"] = link["href"] if "://" in target else f"{published}{inside}.html{mark}{fragment}"
            if not link.text.startswith(("http", "arXiv:", "doi:")):  # those tell their address on paper, too
                addresses += [link["href"]] if link["href"] not in addresses else []
                note = Tag(name="sup", attrs={"class": "link-note"})
                note.string = str(addresses.index(link["href"]) + 1)
                (link.strong.append if link.strong else link.insert_after)(note)
        else:
            link.unwrap()
    return addresses


def printed(html: str, page: str, pages: list[str]) -> Tag:
    """The article of a built page, ready to stand among the others."""
    article = BeautifulSoup(html, "html.parser").select_one("article")
    for element in article.select(".headerlink, .only-dark, script, a:has(> img[src*=colab-badge])"):
        element.decompose()
    for line in article.select("p.chapter-line"):
        line.contents[0].replace_with(line.contents[0].lstrip(" ·"))
    for element in article.select("[id]"):
        element["id"] = anchor(page, element["id"])
    for element in article.select("[src]"):
        element["src"] = from_joined(element["src"], page)
        del element["loading"]
    for comment in article.select("pre .c1"):
        if comment.text.startswith("# @title"):  # it names the cell in Colab; on paper its summary does
            line = comment.find_parent(class_="line") or comment
            line.next_sibling.replace_with(line.next_sibling[1:])
            line.decompose()
    for caption in article.select("caption"):  # Chromium tears a table's caption off, but not a paragraph before it
        caption.name, caption["class"] = "p", "table-caption"
        caption.find_parent("table").insert_before(caption.extract())
    for caption in article.select("p.figure-caption"):  # a page without room for both takes the text that follows first
        above = caption.find_previous_sibling()
        if picture := above and above.select_one(".cell_output"):
            caption.wrap(Tag(name="div", attrs={"class": "floating"})).insert(0, picture.extract())
    for code in article.select("pre"):
        if code.text.count("\n") < SHORT:
            code["class"] = [*code.get("class", []), "short"]
    addresses = turn_links(article, page, pages)
    if addresses:
        notes = "".join(f"<li>{escape(address.removeprefix('https://'))}</li>" for address in addresses)
        notes = f'<div class="link-notes"><p>Links</p><ol>{notes}</ol></div>'
        article.select("section")[-1].append(BeautifulSoup(notes, "html.parser"))  # so that they don't part from it
    article["id"], article["style"] = anchor(page), f"page: leaf-{anchor(page)}"
    return article


def style_sheets(built: dict[str, str]) -> list[str]:
    """The addresses of the style sheets of all pages, each once: a live figure's is named only where there is one."""
    heads = {page: BeautifulSoup(html.partition("<body")[0], "html.parser") for page, html in built.items()}
    links = [(page, link["href"]) for page, head in heads.items() for link in head.select("link[rel=stylesheet]")]
    return list(dict.fromkeys(from_joined(address, page) for page, address in links))


def contents_list(parts: dict[str, list[str]], titles: dict[str, str], numbers: dict[str, int]) -> str:
    """The lines of the table of contents; a page number that isn't known yet leaves its place."""
    lines = []
    for part, pages in parts.items():
        lines += [f"<p>{escape(part)}</p>"] if part else []
        for page in pages:
            number = numbers.get(anchor(page), "")
            lines.append(f'<a href="#{anchor(page)}"><span>{escape(titles[page])}</span><span>{number}</span></a>')
    return "\n".join(lines)


def join(built: dict[str, str], parts: dict[str, list[str]], numbers: dict[str, int]) -> str:
    """The whole book as one page, from the built pages' HTML; ``numbers`` has what page each of them begins on."""
    articles = {page: printed(html, page, list(built)) for page, html in built.items()}
    front = parts[""][0]
    title = articles[front].h1.text
    articles[front].h1.string = "Introduction"
    titles = {page: article.h1.text for page, article in articles.items()}
    pictures = [from_joined(f"../_static/look-{name}.jpg", front) for name in ("photograph", "petals", "rim", "heart")]
    url = repository()
    return TEMPLATE.format(
        title=escape(title),
        head="\n".join(f'<link rel="stylesheet" href="{escape(sheet)}">' for sheet in style_sheets(built)),
        feet="\n".join(
            f"@page leaf-{anchor(page)} {{ @bottom-left {{ content: {json.dumps(text, ensure_ascii=False)} }} }}"
            for page, text in titles.items()
        ),
        pictures="".join(f'<img src="{picture}" alt="">' for picture in pictures),
        imprint=IMPRINT.format(today=date.today(), url=url),
        contents=contents_list(parts, titles, numbers),
        articles="\n".join(map(str, articles.values())),
    )


def installed() -> str | None:
    """Chromium or Chrome: what CHROMIUM names, else the first that the PATH has."""
    names = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else BROWSERS
    return next(filter(None, map(shutil.which, names)), None)


def browser() -> str:
    """The installed browser.

    Raises:
        SystemExit: if there is none.
    """
    return installed() or sys.exit(NO_BROWSER)


def print_pdf(html: Path, pdf: Path) -> None:
    """Let Chromium print a page of HTML, once its images and fonts are there.

    Raises:
        SystemExit: if nothing was printed.
    """
    pdf.unlink(missing_ok=True)
    command = [browser(), "--headless", "--disable-gpu", "--disable-background-networking", "--no-pdf-header-footer"]
    command += ["--no-sandbox"]  # root has no sandbox in a container; the one page that is opened is our own
    command += ["--generate-pdf-document-outline", "--virtual-time-budget=60000", f"--print-to-pdf={pdf}"]
    done = subprocess.run([*command, html.as_uri()], capture_output=True, text=True)
    if done.returncode or not pdf.exists():
        sys.exit(f"Chromium printed nothing:\n{done.stderr}")


def page_numbers(pdf: Path) -> dict[str, int]:
    """The page, counted from 1, of each place in a PDF that a link leads to."""
    reader = PdfReader(pdf)
    places = reader.named_destinations
    return {name.removeprefix("/"): 1 + reader.get_destination_page_number(place) for name, place in places.items()}


def mend_titles(outline: list) -> None:
    """Say a bookmark's title once: Chromium says it twice where the heading has moved to the next page."""
    for entry in outline:
        if isinstance(entry, list):
            mend_titles(entry)
        elif entry.title == 2 * (once := entry.title[: len(entry.title) // 2]):
            entry.node[NameObject("/Title")] = TextStringObject(once)


def built_pages(parts: dict[str, list[str]]) -> dict[str, str]:
    """The HTML of the pages to print, by their names."""
    return {page: (HTML / f"{page}.html").read_text(encoding="utf-8") for pages in parts.values() for page in pages}


def main() -> None:
    browser()  # where there is none, say so before the notebooks run
    if not (HTML / "index.html").exists():
        build.execute()
        build.html()
    parts = contents()
    built = built_pages(parts)
    JOINED.parent.mkdir(parents=True, exist_ok=True)
    numbers = {}
    for _ in range(2):  # the first print tells the page numbers that the contents of the second show
        JOINED.write_text(join(built, parts, numbers), encoding="utf-8")
        print_pdf(JOINED, PDF)
        numbers = page_numbers(PDF)
    writer = PdfWriter(clone_from=PDF)
    mend_titles(writer.outline)
    writer.page_mode = "/UseOutlines"
    writer.add_metadata({"/Author": "the contributors", "/Subject": "An annotated, executable book"})
    writer.write(PDF)
    print(f"{len(writer.pages)} pages, {PDF.stat().st_size / 1e6:.1f} MB:\n  {PDF}")


if __name__ == "__main__":
    main()
