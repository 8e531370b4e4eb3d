"""What a page says of itself to search engines, to other sites and to the browser, and marks that its theme forgets.

``book/_templates/layout.html`` passes each finished page through :func:`mend`.
"""

import re
from html import escape

from docutils import nodes

LENGTH = 220  # letters of a description, at most
IMAGE = "_static/social.jpg"
IMAGE_ALT = "A dahlia, and the same photograph three times, lit where one attention head looks: petals, rim, heart."
# The theme asks for the reader's last choice before there is one, and would show a page without colours until then.
FOLLOW_THE_SYSTEM = """<script>
  if ((localStorage.getItem("mode") || "auto") === "auto") {
    localStorage.setItem("mode", "auto");
    localStorage.setItem("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }
</script>"""
# Marks of the theme and of extensions that tell a screen reader something wrong, and what they should be.
MENDED = {
    r'<summary aria-label="Toggle hidden content">': "<summary>",  # its own words name it
    r'(<button class="btn search-button-field[^>]*?) aria-label="Search"': r"\1",
    r'(<i class="theme-switch [^>]*?) title="[^"]*"': r"\1",  # its button has a name
    r'(<div id="pst-primary-sidebar")(?= class)': r'\1 role="complementary" aria-label="The book"',
    r'role="doc-biblioentry"': 'role="listitem"',
    r"<th\b[^>]*>(<p></p>)?</th>": "<td></td>",
}
SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.DOTALL)


def mend(html: str) -> str:
    """A page whose roles, names and lists are what they say. A signature of many lines is no list of definitions."""
    for wrong, right in MENDED.items():
        html = re.sub(wrong, right, html)
    lists = {"<dl>": '<span class="sig-lines">', "</dl>": "</span>", "<dd>": "<span>", "</dd>": "</span>"}
    return SIGNATURE.sub(lambda found: re.sub(r"</?d[ld]>", lambda tag: lists[tag[0]], found[0]), html)


def prose_of(paragraph: nodes.paragraph) -> str:
    """The paragraph's words, without formulas in TeX."""
    words = (
        text.astext() for text in paragraph.findall(nodes.Text) if not isinstance(text.parent, nodes.math | nodes.raw)
    )
    return " ".join("".join(words).split())


def description(doctree: nodes.document, length: int = LENGTH) -> str:
    """A page's first sentences, as many as fit; of a sentence that is too long, its beginning."""
    paragraphs = (
        paragraph
        for paragraph in doctree.findall(nodes.paragraph)
        if isinstance(paragraph.parent, nodes.section) and "chapter-line" not in paragraph["classes"]
    )
    text = prose_of(next(paragraphs, nodes.paragraph()))
    if len(text) <= length:
        return text
    whole = re.match(rf".{{1,{length}}}(?<! al)[.?!](?=\s)", text)
    return whole[0] if whole else text[:length].rpartition(" ")[0] + " …"


def pages_address(repository: str) -> str:
    """Where GitHub Pages shows the book of a repository."""
    owner, name = repository.rstrip("/").split("/")[-2:]
    return f"https://{owner}.github.io/{name}/"


def give_address(app, config):
    """The address of the pages follows from the repository's, unless ``html: baseurl`` in _config.yml names another."""
    config.html_baseurl = config.html_baseurl or pages_address(config.html_theme_options["repository_url"])


def tags(title: str, about: str, page_url: str, base: str) -> str:
    """The head's elements, for a page with this title, description and address."""
    properties = {
        "og:type": "website",
        "og:title": title,
        "og:description": about,
        "og:url": page_url,
        "og:image": base + IMAGE,
        "og:image:alt": IMAGE_ALT,
    }
    metas = [f'<meta property="{name}" content="{escape(content)}"/>' for name, content in properties.items()]
    named = {"description": about, "twitter:card": "summary_large_image"}
    metas += [f'<meta name="{name}" content="{escape(content)}"/>' for name, content in named.items()]
    return "\n".join(metas)


def complete_head(app, pagename, templatename, context, doctree):
    context["mend"] = mend
    if chapter := re.match(r"notebooks/(\d\d)_", pagename):
        minutes = app.config.myst_substitutions[f"minutes_{chapter[1]}"]
        context["theme_toc_title"] = f"This chapter · {minutes} min"
        context["theme_show_toc_level"] = 2  # exercises stand in a chapter's contents
    context["metatags"] = re.sub(r'<meta name="viewport"[^>]*>', "", context.get("metatags", "")) + FOLLOW_THE_SYSTEM
    if doctree is not None and pagename in app.env.titles:
        title, base = app.env.titles[pagename].astext(), app.config.html_baseurl
        context["metatags"] += tags(title, description(doctree), context["pageurl"], base)


def setup(app):
    app.connect("config-inited", give_address)
    app.connect("html-page-context", complete_head)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
