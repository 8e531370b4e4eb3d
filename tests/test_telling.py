"""Chapters are told as they should be, and a chapter that breaks a rule is found."""

import inspect
import re

import pytest
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell
from notebook_rules import NOTEBOOKS, read
from telling import telling_problems

from vit_tutorial import claims
from vit_tutorial.plots import table

claim = inspect.unwrap(claims.claim)  # reads its caller's line: no check of signatures may stand between


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
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_chapter_with_a_fault_is_found(message):
    chapter = read(NOTEBOOKS[0])
    chapter.cells.append(FAULTS[message])
    assert message in "\n".join(telling_problems(chapter, NOTEBOOKS[0].stem))


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
