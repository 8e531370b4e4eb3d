"""What the search index says of terms, and in which order."""

import pytest
from _ext.ranking import TERMS, add_terms, order, uses


def test_only_the_article_s_words_count():
    html = "<nav>softmax</nav><article><p>Softmax, <b>soft</b>max!</p><p title='softmax'>rows</p></article>softmax"
    assert uses(html, lambda word: word.removesuffix("s")) == {"softmax": 2, "row": 1}


def test_the_page_that_uses_a_word_most_comes_first():
    index = {"docnames": ["a", "b", "c"], "terms": {"head": [0, 1, 2], "rare": 1}, "titleterms": {"root": [0, 2]}}
    said = {"a": "", "b": "head", "c": "head root head"}
    order(index, {name: uses(f"<article>{text}</article>", str) for name, text in said.items()})
    assert index["terms"] == {"head": [2, 1, 0], "rare": 1} and index["titleterms"] == {"root": [2, 0]}


def test_a_term_leads_to_its_section():
    index = {"alltitles": {"The class token": [[4, "the-class-token"]]}, "indexentries": {}}
    add_terms(index, {"The class token": "class token, cls"})
    assert index["indexentries"] == {name: [[4, "the-class-token", True]] for name in ("class token", "cls")}


@pytest.mark.parametrize("places", [[], [[4, "recap"], [5, "recap"]]])
def test_a_heading_that_is_gone_or_not_alone_fails_the_build(places):
    with pytest.raises(ValueError, match=rf"{len(places)} sections are called 'Recap'"):
        add_terms({"alltitles": {"Recap": places}, "indexentries": {}}, {"Recap": "summary"})


def test_a_term_leads_to_one_section():
    names = [name for line in TERMS.values() for name in line.split(", ")]
    assert sorted(set(names)) == sorted(names) and all(name == name.lower() for name in names)
