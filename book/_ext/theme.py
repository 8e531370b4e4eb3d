"""All that depends on the HTML of sphinx-book-theme: marks and files that no library mends or leaves out for it.

Whoever leaves Jupyter Book 1 or the theme rewrites this file, and the selectors of custom.css.
"""

import re
from pathlib import Path

from bs4 import BeautifulSoup
from fontTools import subset

# The theme asks for the reader's last choice before there is one, and would show a page without colours until then.
FOLLOW_THE_SYSTEM = """
  if ((localStorage.getItem("mode") || "auto") === "auto") {
    localStorage.setItem("mode", "auto");
    localStorage.setItem("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }
"""
# What stands on every page, and what a page must have to need it; "" for what none needs.
NEEDED_BY = {
    "fontawesome.js|thebe": "",  # icons come from fonts
    "design-tabs": ".sd-tab-set",
    "sphinx-design": "[class*='sd-']",
    "toggle": "article .toggle, .admonition.dropdown",
    "copybutton|clipboard": "div.highlight",
    "searchtools|searchindex|language_data": "#search-results",
    "live.css": "[data-live]",
}
# Attributes that tell a screen reader something wrong: the words inside name these.
WRONG_NAMES = {"details.hide > summary": "aria-label", ".search-button-field": "aria-label", ".theme-switch": "title"}


def mend(page: BeautifulSoup) -> None:
    """Give a page one viewport, the system's colours from the start, and roles and names that are what they say."""
    for second in page.select("meta[name=viewport]")[1:]:
        second.decompose()
    page.head.insert(0, page.new_tag("script", string=FOLLOW_THE_SYSTEM))
    for selector, attribute in WRONG_NAMES.items():
        for element in page.select(f"{selector}[{attribute}]"):
            del element[attribute]
    for image in page.select("article img[src]"):  # or the theme would dim it in the dark, and put a card below it
        image["class"] = [*image.get("class", []), "dark-light"]
    for sidebar in page.select("#pst-primary-sidebar"):
        sidebar["role"], sidebar["aria-label"] = "complementary", "The book"
    for entry in page.select("[role=doc-biblioentry]"):
        entry["role"] = "listitem"
    for corner in page.select("th"):
        if not corner.text.strip():
            corner.name, corner.attrs = "td", {}
    for part in page.select("dt.sig :is(dl, dd)"):  # a signature of many lines is no list of definitions
        part.name, part.attrs = "span", {"class": ["sig-lines"]} if part.name == "dl" else {}


def lighten(page: BeautifulSoup) -> None:
    """Take off the scripts and style sheets that this page does not need, and let it show before the others come."""
    unneeded = [name for name, need in NEEDED_BY.items() if not (need and page.select_one(need))]
    searches = page.select_one("#search-results")
    for element in page.select("head script, head link, body > script"):
        told = f"{element.get('src', '')} {element.get('href', '')} {element.string or ''}".lower()
        if any(re.search(name, told) for name in unneeded):
            element.decompose()
        elif "src" in element.attrs and "documentation_options" not in told and not searches:
            element["defer"] = ""
    for sheet in page.select("link[href*='styles/theme.css']"):  # it only imports this one, at a round trip's cost
        sheet["href"] = sheet["href"].replace("styles/theme.css", "basic.css")
    if page.select_one("#pst-secondary-sidebar"):  # without it the text would be set twice, wide and then narrow
        whole = {"rel": "expect", "href": "#pst-secondary-sidebar", "blocking": "render"}
        page.head.append(page.new_tag("link", attrs=whole))


def keep_icons(static: Path, names: set[str]) -> None:
    """Make the fonts of icons as small as what is shown of them: those with these names, and the style sheets' own."""
    style = "".join(path.read_text(encoding="utf-8") for path in (static / "styles").glob("*.css"))
    codes = set(map(ord, re.findall(r'--pst-icon-[\w-]+:"(.)"', style)))
    for rule, char in re.findall(r'([^{}]*)\{(?:content|--fa):"\\?(.|[ef]\w+)"', style):  # Font Awesome 6, or 7
        if names & set(re.findall(r"\.(fa-[\w-]+)", rule)) or ".fa-" not in rule:
            codes.add(ord(char) if len(char) == 1 else int(char, 16))
    options = subset.Options(flavor="woff2", glyph_names=False, hinting=False)
    for path in (static / "vendor/fontawesome/webfonts").glob("*.woff2"):
        font, subsetter = subset.load_font(path, options), subset.Subsetter(options)
        subsetter.populate(unicodes=codes)
        subsetter.subset(font)
        subset.save_font(font, path, options)


def title_contents(app, pagename, templatename, context, doctree) -> None:
    """Say over a chapter's contents how long it takes, and list its exercises there."""
    if chapter := re.match(r"notebooks/(\d\d)_", pagename):
        context["theme_toc_title"] = f"This chapter · {app.config.myst_substitutions[f'minutes_{chapter[1]}']} min"
        context["theme_show_toc_level"] = 2


def setup(app):
    app.connect("html-page-context", title_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
