"""Chapters are told as they should be, and a chapter that breaks a rule is found."""

import copy
import inspect
import re

import nbformat
import pytest
import torch
from build import fold
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_rules import NOTEBOOKS, read
from telling import telling_problems

from vit_tutorial import claims
from vit_tutorial.plots import table

claim = inspect.unwrap(claims.claim)  # reads its caller's line: no check of signatures may stand between


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_chapter_is_well_told(path):
    assert list(telling_problems(read(path), path.stem)) == []


def well_told() -> nbformat.NotebookNode:
    def folded(code: str, **mystnb):
        metadata = fold("Check")
        metadata["mystnb"] |= mystnb
        return new_code_cell(f"# @title Check\n{code}", metadata=metadata)

    alt = {"image": {"alt": "A line that rises from left to right, as it should."}}
    cards = "\n\n".join(f"> **Predict.** How many are {i}?" for i in range(3))
    return new_notebook(
        cells=[
            new_markdown_cell("# 1 · A title\n\nHow many are there?"),
            folded("import torch"),
            new_markdown_cell(f"## A section\n\nIt is right about **97 %** of the time, 3.5 × as fast.\n\n{cards}"),
            folded('claim("about 97 %", 0.96 < a < 0.98)\nclaim("3.5 ×", b > 3)'),
            folded("plt.plot(x)", **alt),
            new_markdown_cell("**Figure 1.1.** It rises."),
            new_markdown_cell("### Exercise 1.1: count\n\n> **Exercise.** ★☆☆ · 5 minutes. Count."),
            new_code_cell("def count(x):\n    return len(x)"),
            new_markdown_cell("## Recap\n\n97 % again, on 224 × 224 pixels. [They](https://x.org) found 12 %."),
        ]
    )


def test_a_well_told_chapter_has_no_problems():
    assert list(telling_problems(well_told(), "01_x")) == []


def _source(cell: int, old: str, new: str):
    def change(notebook):
        assert old in notebook.cells[cell].source
        notebook.cells[cell].source = notebook.cells[cell].source.replace(old, new)

    return change


def _add(source: str, kind=new_markdown_cell):
    return lambda notebook: notebook.cells.append(kind(source))


BROKEN = {
    "folded in the book alone": (lambda nb: nb.cells[1].metadata.pop("cellView"), "cell 1: is not folded everywhere"),
    "another title": (_source(1, "Check", "Set-up"), "cell 1: is not folded everywhere"),
    "hidden without a title": (_source(1, "# @title Check\n", ""), "cell 1: is hidden, but does not begin"),
    "a padded print": (_add('print(f"{x:>8}")', new_code_cell), "cell 9: pads what it prints"),
    "a heading too deep": (_add("#### Deep"), "heading out of order"),
    "no caption": (_source(5, "**Figure 1.1.** ", ""), "draws, but the next cell"),
    "another number": (_source(5, "1.1", "1.2"), "draws, but the next cell"),
    "exercise without a card": (_source(6, "> **Exercise.** ", ""), "exercises must be"),
    "exercise without minutes": (_source(6, " · 5 minutes", ""), "exercises must be"),
    "another chapter's exercise": (_source(6, "Exercise 1.1", "Exercise 2.1"), "exercises must be"),
    "two Predict cards": (_source(2, "> **Predict.** How many are 2?", ""), "2 Predict cards"),
    "no recap": (_source(8, "## Recap", "## End"), "no recap"),
    "an assertion": (_source(3, "claim(", "assert b\nclaim("), "cell 3: asserts, which stops a reader"),
    "a claim that the text does not make": (_source(2, "97 %", "98 %"), "claims “about 97 %”"),
    "a number without a claim": (_add("It takes 12 ms."), "“12 ms” has no claim"),
    "part of a claimed number": (_add("It is 7 %."), "“7 %” has no claim"),
    "a number in a card": (_add("> **Pitfall.** Only 12.5 percent."), "“12.5 percent” has no claim"),
    "too many words": (_add("word " * 2500), "words on the spine"),
    "an aside": (_add("So it is. (Unless it is otherwise, which happens.)"), "sentences in brackets"),
    "a long cell": (_add("x = 1\n" * 26, new_code_cell), "26 lines in view"),
    "imports": (_add("import a, b\nimport c\nimport d\nimport e", new_code_cell), "4 import lines in view"),
    "plumbing": (_add("print(1)", new_code_cell), "1 of 3 lines in view import, print"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_a_badly_told_chapter_is_found(change, message):
    notebook = copy.deepcopy(well_told())
    change(notebook)
    assert message in "\n".join(telling_problems(notebook, "01_x"))


# The kit itself -----------------------------------------------------------------------------------------------------


ACCURACY = {"test": torch.tensor(0.9), "by seed": torch.tensor([0.9, 0.925])}
FAILED = {  # told with what came, where the condition has numbers
    lambda gain=5.25: claim("by 6 points", 5.5 < gain < 6.5): "The text says “by 6 points”; here: gain = 5.25.",
    lambda: claim(
        "about 97 %",  # over some lines, and a character of two bytes before it
        0.96 < ACCURACY["test"] < 0.98,
    ): "The text says “about 97 %”; here: ACCURACY['test'] = 0.9.",
    lambda: claim("“×” in all", all(x > 1 for x in ACCURACY["by seed"])): (
        "The text says ““×” in all”; here: ACCURACY['by seed'] = [0.9, 0.925]."
    ),
    lambda a=1, b=3: claim(None, round(b - a) == 3): "The text counts on round(b - a) == 3; here: round(b - a) = 2.",
    lambda: claim("to the last bit", torch.equal(torch.ones(9), torch.zeros(9))): (
        "The text says “to the last bit”; not so here."
    ),
    lambda: claim("seven", False and nothing > 7): "The text says “seven”; not so here.",  # noqa: SIM223
    eval("lambda: claim(None, 1 > 2)"): "The text counts on something else; not so here.",  # no source to read
}


@pytest.mark.parametrize(("failing", "line"), FAILED.items(), ids=FAILED.values())
def test_a_claim_that_fails_is_one_line_for_a_reader_and_an_error_for_the_build(failing, line, capsys, monkeypatch):
    monkeypatch.delenv("VIT_TUTORIAL_CHECK", raising=False)
    failing()
    assert capsys.readouterr().out == line + "\n"
    monkeypatch.setenv("VIT_TUTORIAL_CHECK", "1")
    with pytest.raises(AssertionError, match=f"^{re.escape(line)}$"):
        failing()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("check", ["0", "1"])
def test_a_claim_that_holds_or_is_about_another_run_says_nothing(check, capsys, monkeypatch):
    monkeypatch.setenv("VIT_TUTORIAL_CHECK", check)
    claim("about 97 %", torch.tensor(0.97) > 0.96)
    claim("about 97 %", False, when=False)
    assert capsys.readouterr() == ("", "")


def test_what_a_claim_compares_is_read_and_not_done_again(capsys, monkeypatch):
    """Only calls that change nothing are made twice."""
    monkeypatch.delenv("VIT_TUTORIAL_CHECK", raising=False)
    drawn = [3, 2, 1]
    claim("three", drawn.pop() == 3)
    assert drawn == [3, 2]
    assert capsys.readouterr().out == "The text says “three”; here: drawn = [3, 2].\n"


@pytest.mark.parametrize("value", [0.97, (True,), None, torch.ones(2) > 0, "yes"])
def test_what_is_always_true_is_no_claim(value):
    with pytest.raises(TypeError, match="one truth value"):
        claim("about 97 %", value)


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


def test_a_table_without_columns_of_one_length_is_refused():
    with pytest.raises(ValueError, match=r"all of one length, got \{'a': 2, 'b': 1\}"):
        table("Costs.", {"a": [1, 2], "b": [1]})
    with pytest.raises(ValueError, match=r"\['c'\] belong to no column"):
        table("Costs.", {"a": [1, 2]}, {"c": ".1f"})
