"""The last pass over each page: figures in both themes, side rooms, long lines of code, and nothing loaded in vain.

Each page is parsed once, and each executed notebook read once. Pages ask no other host.
"""

import re
from copy import copy
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import live
import live_figures
import nbformat
import rooms
import stand_ins
from bs4 import BeautifulSoup, Comment, Tag
from figures import Twins, as_webp, drawing, figures_of, size_of
from fontTools import subset

# Notebooks show this one, for Colab, GitHub and JupyterLab find it from anywhere; the book has its own.
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
# What the theme puts on every page, and what a page must have to need it; "" for what none needs.
NEEDED_BY = {
    "fontawesome.js": "",  # icons come from fonts
    "thebe": "",
    "design-tabs": ".sd-tab-set",
    "sphinx-design": "[class*='sd-']",
    "toggle": "article .toggle, .admonition.dropdown",
    "copybutton": "div.highlight",
    "clipboard": "div.highlight",
    "searchtools": "#search-results",
    "searchindex": "#search-results",
    "language_data": "#search-results",
    "live.css": "[data-live]",
}

CODE = re.compile(r'(?<=<div class="highlight"><pre>).*?(?=</pre>)', re.DOTALL)  # a tag ends in its line
# Where no line may end: in 16 × 16 and 4.5 ± 0.3, before a per cent sign or a figure's number, in a vector (0, 1).
TOGETHER = re.compile(
    r"(?<=\d) (?=[×·]\s\d)|(?<=\d\s[×·]) (?=\d)|(?<=\d) (?=%)|(?<=igure) (?=\d)|(?<=hapter) (?=\d)|(?<=eq\.) (?=\d)"
    r"|(?<=\d,) (?=\d+(?:, \d+)*\))|(?<=\d) (?=±)|(?<=±) (?=\d)"
)
NAME = re.compile(r"\b(CIFAR-10|ImageNet-\w+|ViT-\w+(?:/\d+)?|\de-\d+)\b")
SHORT = 30  # letters that fit the narrowest window
TAGS = re.compile(r"(<[^>]*>)")
# Of a long word: after what opens a bracket, and before a dot, unless that leaves a short name such as self.
BREAKS = re.compile(r"(?<=[(\[/])(?=\w)|(?:(?<=\w{5})|(?<=[)\]]))(?=\.[A-Za-z_])")
NAMES = re.compile(rf"{BREAKS.pattern}|(?<=[^\W_]_)(?=[^\W_])")  # of a name in a table also after an underscore
WORDS = 13  # letters that a column of words gets in a narrow window
WHOLE = 10  # letters of code that stay in one line there
MATRIX = re.compile(r"tensor\(\[\[([^][]*(?:\],\s*\[[^][]*)*)\]\]")


def breakable(line: str) -> str:
    """Let a line of code end inside a word that is too long for a narrow window: see ``BREAKS``."""
    text, places = unescape(TAGS.sub("", line)), set()
    for word in re.finditer(rf"\S{{{SHORT + 1},}}", text):
        places |= {found.start() for found in BREAKS.finditer(text, *word.span())}
    letters, at = re.findall(r"<[^>]*>|&#?\w+;|.", line), 0
    for i, letter in enumerate(letters if places else ()):
        if letter.startswith("<"):
            continue
        if at in places:
            letters[i] = f"<wbr/>{letter}"
        at += 1
    return "".join(letters)


def hang(html: str) -> str:
    """Let each line of code know its indentation: where it has to break, the style sheet sets its rest further in."""

    def hung(line: str) -> str:
        text = unescape(re.sub(r"<[^>]*>", "", line))
        if len(text) <= SHORT:
            return line
        indent = len(text) - len(text.lstrip())
        line = "".join(part if part.startswith("<") else whole(part) for part in TAGS.split(breakable(line)))
        return f'{" " * indent}<span class="line" style="--in: {indent}">{line.replace(" " * indent, "", 1)}</span>'

    def whole(text: str) -> str:
        """Let no line end at a hyphen inside 1e-4 or --name."""
        hyphened = re.compile(rf"(?<!\S)(?=\S*\w)(?=\S*-)\S{{1,{SHORT}}}(?!\S)")
        return hyphened.sub(r'<span class="whole">\g<0></span>', text)

    return CODE.sub(lambda code: "\n".join(map(hung, code[0].split("\n"))), html)


def keep_together(page: BeautifulSoup) -> None:
    """Let no line end within a size such as 16 × 16, in "Figure 3.2" or "5 %", nor at the hyphen of CIFAR-10."""
    for text in page.find_all(string=True):
        parts = NAME.split(TOGETHER.sub("\u00a0", text))
        if parts == [text] or isinstance(text, Comment):
            continue
        if not text.find_parent("article") or text.find_parent(["pre", "code", "script", "style", "math", "svg"]):
            continue
        for i, part in enumerate(parts):  # every second one is a name
            text.insert_before(page.new_tag("span", attrs={"class": "whole"}, string=part) if i % 2 else part)
        text.extract()


def keep_whole(page: BeautifulSoup) -> None:
    """Let no line end inside code in a sentence if it's short, and of longer code inside no word that is.

    A longer word may break where ``BREAKS`` says, and after an underscore in what is still too long.
    """
    for code in page.select("article code:not(pre code, table code)"):
        for part in [code] if len(code.text) <= SHORT else code.select(".pre"):
            if len(part.text) <= SHORT:
                part["class"] = [*part.get("class", []), "whole"]
            elif part.string:
                words = BREAKS.split(part.string)
                part.clear()
                for piece in (p for word in words for p in ([word] if len(word) <= SHORT else NAMES.split(word))):
                    kept = {"class": "whole"} if len(piece) <= SHORT else {}
                    part.extend([page.new_tag("span", attrs=kept, string=piece), page.new_tag("wbr")])
                part.contents[-1].extract()


def show_matrices(page: BeautifulSoup) -> None:
    """Set what PyTorch prints of a matrix as one, a table of its numbers between the words around it."""
    for printed in page.select(".cell_output .text_plain pre"):
        words = MATRIX.split(printed.text.strip())
        if len(words) == 1 or "\n" not in printed.text.strip():
            continue
        shown = page.new_tag("div", attrs={"class": "matrices"})
        for i, part in enumerate(words):
            if i % 2 == 0:
                shown.append(re.sub(r"\s+", " ", part))
                continue
            shown.append(whole := page.new_tag("span", attrs={"class": "whole"}, string="tensor("))
            whole.append(table := page.new_tag("table"))
            for row in re.split(r"\],\s*\[", part):
                table.append(line := page.new_tag("tr"))
                for number in row.split(","):
                    line.extend([page.new_tag("td", string=number.strip()), " "])
                table.append("\n")  # its text still has rows and columns
        printed.replace_with(shown)


def give_room(page: BeautifulSoup) -> None:
    """Tell a table's columns how wide they have to be in a narrow window: a cell of words takes three lines or more.

    The first column stays in view while others scroll, so it gets less, and is not squeezed in a wide window either.
    Code that isn't short may break where ``BREAKS`` says, and in a narrow window after an underscore.
    """
    for table in page.select("article table:is(.table, .vit-table)"):
        if output := table.find_parent("div", class_="text_html"):
            output["class"].append("pst-scrollable-table-container")
        for column in zip(*(row.find_all(["th", "td"]) for row in table.select("tr")), strict=True):
            head, *cells = (len(cell.text) + len(cell.select("code")) for cell in column)  # code has a rim
            longest = max(cells, default=0)
            room = longest if longest < WHOLE else min(round(max(head, longest) / 3), WORDS)
            room = room if column[0].find_previous_sibling() else min(longest, WHOLE)
            column[0]["style"] = f"{column[0].get('style', '')};--room:{room}ch".lstrip(";")
        for code in table.select("code"):
            if len(code.text) < WHOLE:
                code["class"] = [*code.get("class", []), "whole"]
        for word in table.select("code:not(.whole) .pre"):
            parts = NAMES.split(word.text)
            for part in parts[:-1]:
                only = {"class": "narrow"} if part.endswith("_") else {}
                piece = page.new_tag("span", attrs={"class": "pre"}, string=part)
                word.insert_before(piece, page.new_tag("wbr", attrs=only))
            word.string = parts[-1]


def lighten(page: BeautifulSoup) -> None:
    """Take off the scripts and style sheets that this page does not need, and let it show before the others come."""
    has = {selector: page.select_one(selector) is not None for selector in set(NEEDED_BY.values()) - {""}}
    for element in page.select("head script, head link, body > script"):
        told = f"{element.get('src', '')} {element.get('href', '')} {element.string or ''}".lower()
        if any(name in told and not has.get(selector) for name, selector in NEEDED_BY.items()):
            element.decompose()
        elif "src" in element.attrs and "documentation_options" not in told and not has["#search-results"]:
            element["defer"] = ""
    for sheet in page.select("link[href*='styles/theme.css']"):  # it only imports this one, at a round trip's cost
        sheet["href"] = sheet["href"].replace("styles/theme.css", "basic.css")


def show_twins(image: Tag, twins: Twins, images: Path, cache: Path) -> None:
    """Give an image its size and its dark twin, and both of them a small file in the folder ``images``."""
    name = Path(image["src"]).name
    image["width"], image["height"] = map(str, twins.size)
    shown = [(image, name, twins.light)]
    if twins.dark:
        twin = copy(image)
        image["class"], twin["class"] = [*image.get("class", []), "only-light"], [*image.get("class", []), "only-dark"]
        image.insert_after(twin)
        shown.append((twin, f"dark-{name}", twins.dark))
    images.mkdir(parents=True, exist_ok=True)
    for tag, file, content in shown:
        if file.endswith(".png"):
            (images / file).unlink(missing_ok=True)
            file, content = file.replace(".png", ".webp"), as_webp(content, cache)
        (images / file).write_bytes(content)
        tag["src"] = tag["src"].replace(name, file)


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


def finish(html: str, folder: Path, out: Path, notebook: nbformat.NotebookNode | None, drawn: Twins, cache: Path):
    """A page as readers get it, for a page that lies in ``folder`` of the book ``out``."""
    page, up = BeautifulSoup(hang(html), "html.parser"), "../" * len(folder.relative_to(out).parts)
    lighten(page)
    if page.select_one("#pst-secondary-sidebar"):  # without it the text would be set twice, wide and then narrow
        whole = {"rel": "expect", "href": "#pst-secondary-sidebar", "blocking": "render"}
        page.head.append(page.new_tag("link", attrs=whole))
    if page.math:
        font = f"{up}_static/formulas.woff2"
        page.head.append(page.new_tag("link", rel="preload", href=font, attrs={"as": "font", "crossorigin": ""}))
    if notebook:
        rooms.tidy(page)
        if found := stand_ins.stand_ins(notebook):
            stand_ins.warn(page, found)
    twins = dict(figures_of(notebook)) if notebook else {"model.svg": drawn}
    for image in page.select("img[src]"):
        if image["src"] == COLAB_BADGE:
            image["src"] = f"{up}_static/colab-badge.svg"
        elif Path(image["src"]).name in twins:
            show_twins(image, twins[Path(image["src"]).name], out / "_images", cache)
    size_images(page, folder)
    keep_together(page)
    keep_whole(page)
    show_matrices(page)
    give_room(page)
    live_figures.place(page, up, out / "_static")
    live.enliven(page)
    return page


def icons_of(page: BeautifulSoup) -> set[str]:
    """The names of the icons on a page."""
    classes = {name for icon in page.select("[class*='fa-']") for name in icon["class"]}
    return {name for name in classes if name.startswith("fa-")}


def keep_icons(static: Path, names: set[str]) -> None:
    """Make the fonts of icons as small as what is shown of them."""
    style = "".join(path.read_text(encoding="utf-8") for path in (static / "styles").glob("*.css"))
    codes = set(map(ord, re.findall(r'--pst-icon-[\w-]+:"(.)"', style)))  # which style sheets show by themselves
    for rule, char in re.findall(r'([^{}]*):(?:before|after)\{content:"\\?(.|f\w+)"', style):
        if names & set(re.findall(r"\.(fa-[\w-]+)", rule)) or ".fa-" not in rule:
            codes.add(ord(char) if len(char) == 1 else int(char, 16))
    for path in (static / "vendor/fontawesome/webfonts").glob("*.woff2"):
        options = subset.Options(flavor="woff2", glyph_names=False, hinting=False)
        font = subset.load_font(path, options)
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=codes)
        subsetter.subset(font)
        subset.save_font(font, path, options)


def finish_pages(app, exception) -> None:
    if exception or app.builder.name != "html":
        return
    source, out, icons = Path(app.srcdir), Path(app.outdir), set()
    drawn = drawing((source / "book/_static/model.svg").read_text(encoding="utf-8"))
    live.write_files(out / "_static")
    for path in sorted(out.rglob("*.html")):
        if "_static" in path.relative_to(out).parts:
            continue
        executed = source / "_build/executed" / f"{path.stem}.ipynb"
        here = path.parent.name == "notebooks" and executed.exists()
        notebook = nbformat.read(executed, as_version=4) if here else None
        page = finish(path.read_text(encoding="utf-8"), path.parent, out, notebook, drawn, source / "_build/webp")
        path.write_text(str(page), encoding="utf-8")
        icons |= icons_of(page)
    keep_icons(out / "_static", icons)


def setup(app):
    app.connect("build-finished", finish_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
