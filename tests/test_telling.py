"""Chapters are told as they should be, and a chapter that breaks a rule is found."""

import claiming
import pytest
import torch
from claiming import claim
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_rules import NOTEBOOKS, read
from telling import telling_problems

from vit_tutorial.plots import table


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_chapter_is_well_told(path):
    assert list(telling_problems(read(path), path.stem)) == []


FAULTS = {  # of each of the rules' functions, what it says
    "asserts, which stops a reader": new_code_cell("assert b"),
    "heading out of order": new_markdown_cell("#### Deep"),
    "draws, but the next cell": new_code_cell("plt.plot(x)", metadata={"mystnb": {"image": {"alt": "A line."}}}),
    "exercises must be": new_markdown_cell("### Exercise 1.99: count"),
    "“12.5 ms” has no claim": new_markdown_cell("It takes 12.5 ms."),
    "words on the spine": new_markdown_cell("word " * 3000),
    "only the set-up and what goes deeper is folded": new_code_cell("# @title Code of this figure"),
    "needs nothing_like_it, which neither it": new_code_cell("nothing_like_it"),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_chapter_with_a_fault_is_found(message):
    chapter = read(NOTEBOOKS[0])
    chapter.cells.append(FAULTS[message])
    assert message in "\n".join(telling_problems(chapter, NOTEBOOKS[0].stem))


# Claims ---------------------------------------------------------------------------------------------------------------


def test_a_claim_that_fails_says_what_was_measured():
    claim("about 97 %", torch.tensor(0.97) > 0.96)
    claim("about 97 %", False, when=False)  # about another run
    with pytest.raises(AssertionError, match=r"the text says “by 6 points”; here: .*gain = 5\.25"):
        (lambda gain: claim("by 6 points", 5.5 < gain < 6.5))(5.25)
    with pytest.raises(TypeError, match="a claim takes truth values"):
        claim("about 97 %", 0.97)


def test_claims_run_after_their_cell_with_the_notebook_s_names_and_leave_no_trace(tmp_path, monkeypatch):
    lines = ["import torch", "from claiming import after, claim", "", "@after('two')", "def _(n):", "    torch.rand(1)"]
    (tmp_path / "made.py").write_text("\n".join([*lines, "    claim('it is 4', n == 4)"]))
    monkeypatch.setattr(claiming, "CLAIMS", tmp_path)
    notebook = new_notebook(cells=[new_code_cell("n = 4", id="one"), new_code_cell("n += 1", id="two")])
    claiming.inject(notebook, "made")
    assert [cell.id for cell in notebook.cells] == ["one", "two", "two-claims"]
    state = torch.get_rng_state()
    claiming.check("made", "two", {"n": 4})
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(AssertionError, match="it is 4”; here: n = 5"):
        claiming.check("made", "two", {"n": 5})
    with pytest.raises(NameError, match=r"wants \['n'\]"):
        claiming.check("made", "two", {})
    claiming.strip(notebook)
    assert len(notebook.cells) == 2
    del notebook.cells[1]
    with pytest.raises(ValueError, match=r"after cells that aren't there: \['two'\]"):
        claiming.inject(notebook, "made")


# Tables ---------------------------------------------------------------------------------------------------------------


def test_a_table_by_hand():
    shown = table("A day's costs.", {"a <b>": ["x", "y"], "n": [50176, -3], "part": [0.12345, None]}, {"part": ".1%"})
    assert repr(shown).splitlines() == [
        "A day's costs.",
        "a <b>       n    part",
        "x      50,176  12.3\N{NO-BREAK SPACE}%",
        "y          −3",
    ]
    html = shown._repr_html_()
    assert "<caption>A day’s costs.</caption>" in html
    assert '<th scope="col" style="text-align:left">a &lt;b&gt;</th>' in html
    assert '<th scope="row" style="text-align:left">y</th><td style="text-align:right">−3</td>' in html
