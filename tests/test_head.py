"""A page's head, and the marks of the theme that are mended."""

import pytest
from _ext.head import MENDED, description, mend, pages_address, tags
from docutils import nodes
from docutils.utils import new_document


def page(*paragraphs: nodes.paragraph) -> nodes.document:
    document = new_document("page")
    document += nodes.section("", nodes.title("", "3 · Attention"), nodes.note("", nodes.paragraph("", "A banner.")))
    document[0].extend(paragraphs)
    return document


def about(text: str, length: int = 60) -> str:
    line = nodes.paragraph("", "Part 1 · about 45 minutes", classes=["chapter-line"])
    return description(page(line, nodes.paragraph("", text), nodes.paragraph("", "Later.")), length)


def test_a_description_is_the_first_sentences_that_fit():
    assert about("Look around. Is it a cat?") == "Look around. Is it a cat?"
    assert (
        about("Look around. Is it\na cat? You cannot tell until you have looked around.") == "Look around. Is it a cat?"
    )
    assert about("Read Vaswani et al. first, and then everybody else who ever wrote of it.").endswith("else who ever …")
    assert len(about("word " * 40)) <= 62


def test_a_description_has_no_formulas():
    paragraph = nodes.paragraph("", "", nodes.Text("The root "), nodes.math("", r"\sqrt d"), nodes.Text(" matters."))
    assert description(page(paragraph)) == "The root matters."


def test_the_pages_address_follows_from_the_repository_s():
    assert pages_address("https://github.com/owner/the.repo") == "https://owner.github.io/the.repo/"


def test_quotes_do_not_end_a_tag():
    head = tags('"What?" & more', "About", "https://a.b/c.html", "https://a.b/")
    assert 'property="og:title" content="&quot;What?&quot; &amp; more"/>' in head
    assert 'property="og:image" content="https://a.b/_static/social.jpg"/>' in head


SIGNATURE = '<dt class="sig py"><b>f(</b>\n<dl>\n<dd>x,</dd>\n</dl>\n)</dt>'
FAULTS = [
    ('<summary aria-label="Toggle hidden content">\n<p>Set-up</p>', "<summary>\n<p>Set-up</p>"),
    ('<button class="btn search-button-field" aria-label="Search">', '<button class="btn search-button-field">'),
    ('<i class="theme-switch fa-sun" title="Light">', '<i class="theme-switch fa-sun">'),
    ('<div id="pst-primary-sidebar" class="a">',
     '<div id="pst-primary-sidebar" role="complementary" aria-label="The book" class="a">'),
    ('<div class="citation" role="doc-biblioentry">', '<div class="citation" role="listitem">'),
    ('<tr><th class="head"><p></p></th><th>x</th></tr>', "<tr><td></td><th>x</th></tr>"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "right"), FAULTS)
def test_a_wrong_mark_is_mended(wrong, right):
    assert mend(wrong) == right and mend(right) == right


def test_every_mend_has_its_example():
    assert len(FAULTS) == len(MENDED)


def test_a_signature_of_many_lines_is_no_list_of_definitions():
    body = "<dd><dl><dt>a</dt><dd>b</dd></dl></dd>"
    assert mend(SIGNATURE + body) == (
        '<dt class="sig py"><b>f(</b>\n<span class="sig-lines">\n<span>x,</span>\n</span>\n)</dt>' + body
    )
