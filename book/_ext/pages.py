"""The last pass over each page, which no library makes: what stands in one line, and how large each image is."""

import re
from pathlib import Path
from urllib.parse import unquote

import live
import live_figures
import nbformat
import rooms
import stand_ins
import theme
from bs4 import BeautifulSoup, Comment
from figures import size_of, themed

# Notebooks show this one, for Colab, GitHub and JupyterLab find it from anywhere; the book has its own.
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
CODE = re.compile(r'(?<=<div class="highlight"><pre>).*?(?=</pre>)', re.DOTALL)  # a tag ends in its line
COLOURED = re.compile(r'(?<=<div class="highlight"><pre>)(?:(?!</pre>).)*? class="(?:(?!</pre>).)*', re.DOTALL)
PLACE = re.compile(r"<!--code (\d+)-->")
# What must not break: 16 × 16, 5 %, 4.5 ± 0.3, Figure 3.2, a vector (0, 1), the hyphen of ViT-B/16.
WHOLE = re.compile(
    r"(\b(?:\d+(?: [×·] \d+)+|[\d.]+ %|[\d.]+ ± [\d.]+(?: %)?|(?:[Ff]igure|[Cc]hapter|eq\.) \d[\d.]*|ViT-[\w/]+)"
    r"|\((?:\d+, )+\d+\))"
)
# In code: --an-option, 1e-5, vit-tutorial. A browser would break them at their hyphens.
OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
HYPHENATED = re.compile(r"(?<![\w-])(?:--?[A-Za-z][\w.-]{0,20}|[\w.]{1,20}(?:-\w{1,10})+)(?![\w-])")
JOINT = re.compile(
    r"(?<=[(\[])(?![)\]])|^(?=\.$)"
)  # where a line may go on in the next: behind a bracket, before a dot
SHORT, SHORT_IN_A_TABLE = 30, 10  # letters of code that fit a line of the narrowest window, and a column there


def hang(html: str) -> str:
    """Let each long line of code know its indentation: where it breaks, the style sheet sets its rest further in.

    It breaks at spaces; a word too long for any line breaks at its brackets and dots.
    """

    def hung(line: str) -> str:
        start, line, end = re.fullmatch(r"((?:<div[^>]*>)?)(.*?)((?:</div>)*)", line).groups()  # of a function
        text = re.sub(r"<[^>]*>", "", line)
        indent = " " * (len(text) - len(text.lstrip()))
        if len(text) <= SHORT:
            return f"{start}{line}{end}"
        parts = re.split("(<[^>]*>)", line.replace(indent, "", 1))  # every second one is a tag
        parts[::2] = (HYPHENATED.sub(r'<span class="whole">\g<0></span>', part) for part in parts[::2])
        if max(map(len, text.split())) > SHORT:
            parts[::2] = (JOINT.sub("<wbr/>", part) for part in parts[::2])
        return f'{start}{indent}<span class="line" style="--in: {len(indent)}">{"".join(parts)}</span>{end}'

    return CODE.sub(lambda code: "\n".join(map(hung, code[0].split("\n"))), html)


def set_aside(html: str) -> tuple[str, list[str]]:
    """A page without its coloured code, and that code: nine tenths of all tags, of which the last pass needs none."""
    blocks = []

    def placed(code: re.Match) -> str:
        blocks.append(code[0])
        return f"<!--code {len(blocks) - 1}-->"

    return COLOURED.sub(placed, html), blocks


def keep_whole(page: BeautifulSoup) -> None:
    """Give what must not break the class that says so, and short code too; cells that take many lines have another."""
    for text in page.find_all(string=WHOLE):
        elsewhere = text.find_parent(["pre", "code", "script", "style", "math", "svg"])
        if text.find_parent("article") and not elsewhere and not isinstance(text, Comment):
            parts = enumerate(WHOLE.split(text))  # every second one is what was found
            text.replace_with(
                *(page.new_tag("span", attrs={"class": "whole"}, string=x) if i % 2 else x for i, x in parts)
            )
    for code in page.select("article code:not(pre code)"):
        if len(code.text) <= (SHORT_IN_A_TABLE if code.find_parent("table") else SHORT):
            code["class"] = [*code.get("class", []), "whole"]
            continue
        for word in code.select(".pre"):
            if OPTION.fullmatch(word.text):
                word["class"] = [*word["class"], "whole"]
        for text in code.find_all(string=True):  # a long name goes on after an underscore, a dot or a bracket
            long = len(text) > SHORT and not re.search(r"\s|://", text)
            if (long or code.find_parent("table")) and not text.find_parent(class_="whole"):
                first, *others = re.split(r"(?<=[_.(\[])(?=\w)", text)
                text.replace_with(first, *(part for other in others for part in (page.new_tag("wbr"), other)))
    for sign in page.select(".sig .p"):
        if sign.text == "[":  # of a long type
            sign.insert_after(page.new_tag("wbr"))
    for cell in page.select("article :is(td, th)"):
        if len(cell.text) > SHORT:
            cell["class"] = [*cell.get("class", []), "words"]


def size_images(page: BeautifulSoup, folder: Path) -> None:
    """Keep room for each image of a page in ``folder``. Those below the first figure come when they are near."""
    at_once = {"colab-badge.svg"}
    for image in page.select("article img"):
        if "width" not in image.attrs or "height" not in image.attrs:
            image["width"], image["height"] = map(str, size_of((folder / unquote(image["src"])).read_bytes()))
        if len(at_once) < 2:
            at_once.add(Path(image["src"]).name)
        if Path(image["src"]).name not in at_once:
            image["loading"] = "lazy"


def finish(html: str, folder: Path, out: Path, notebook: nbformat.NotebookNode | None) -> BeautifulSoup:
    """A page as readers get it, for a page that lies in ``folder`` of the book ``out``."""
    page, up = BeautifulSoup(html, "html.parser"), "../" * len(folder.relative_to(out).parts)
    theme.mend(page)
    theme.lighten(page)
    if page.math:
        font = f"{up}_static/formulas.woff2"
        page.head.append(page.new_tag("link", rel="preload", href=font, attrs={"as": "font", "crossorigin": ""}))
    if notebook:
        rooms.tidy(page)
        if found := stand_ins.stand_ins(notebook):
            stand_ins.warn(page, found)
    for image in page.select(f"img[src='{COLAB_BADGE}']"):
        image["src"] = f"{up}_static/colab-badge.svg"
    size_images(page, folder)
    keep_whole(page)
    live_figures.place(page, up, out / "_static")
    live.enliven(page)
    return page


def finish_pages(app, exception) -> None:
    if exception or app.builder.name != "html":
        return
    source, out, icons = Path(app.srcdir), Path(app.outdir), set()
    for drawing in (out / "_images").glob("*.svg"):
        drawing.write_text(themed(drawing.read_text(encoding="utf-8")), encoding="utf-8")
    live.write_files(out / "_static")
    for path in sorted(out.rglob("*.html")):
        html = path.read_text(encoding="utf-8")
        if "_static" in path.relative_to(out).parts or "<head" not in html:  # the first page only leads to another
            continue
        executed = source / "_build/executed" / f"{path.stem}.ipynb"
        here = path.parent.name == "notebooks" and executed.exists()
        notebook = nbformat.read(executed, as_version=4) if here else None
        html, blocks = set_aside(html)
        page = finish(html, path.parent, out, notebook)
        rest, *placed = PLACE.split(str(page))  # every second one is a number
        for number, after in zip(placed[::2], placed[1::2], strict=True):
            rest += blocks[int(number)] + after
        path.write_text(hang(rest), encoding="utf-8")
        icons |= {name for icon in page.select("[class*='fa-']") for name in icon["class"]}
    theme.keep_icons(out / "_static", icons)


def setup(app):
    app.connect("build-finished", finish_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
