"""What sphinxext-opengraph does not know: where a repository's pages are, and which words do not describe a page."""

from docutils import nodes


def pages_address(repository: str) -> str:
    """Where GitHub Pages shows the book of a repository."""
    owner, name = repository.rstrip("/").split("/")[-2:]
    return f"https://{owner}.github.io/{name}/"


def give_address(app, config):
    """The address of the pages follows from the repository's, unless ``html: baseurl`` in _config.yml names another."""
    config.html_baseurl = config.html_baseurl or pages_address(config.html_theme_options["repository_url"])
    config.ogp_site_url = config.html_baseurl


def leave_out(app, pagename, templatename, context, doctree):
    """A page is described by its first prose, without the line under a chapter's title and without TeX."""
    if doctree is not None:  # it has been rendered
        for node in [*doctree.findall(nodes.math), *doctree.findall(nodes.paragraph)]:
            if isinstance(node, nodes.math) or "chapter-line" in node["classes"]:
                node.parent.remove(node)


def setup(app):
    app.connect("config-inited", give_address)
    app.connect("html-page-context", leave_out, priority=400)  # before sphinxext-opengraph looks
    return {"parallel_read_safe": True, "parallel_write_safe": True}
