"""An exercise in plain Markdown becomes one card."""

import pytest
from _ext.cards import gather_exercise
from docutils import nodes


def exercise(begins: str = " ★★☆ · 10 minutes. Write ") -> nodes.section:
    task = nodes.paragraph("", "", nodes.strong("", "Exercise."), nodes.Text(begins), nodes.literal("", "f(x)"))
    html = [nodes.raw("", text, format="html") for text in ("<details><summary>Solution</summary>", "</details>")]
    solution = nodes.literal_block("", "def f(x): return x")
    after = nodes.paragraph("", "On we go.")
    return nodes.section("", nodes.title("", "A"), nodes.block_quote("", task), html[0], solution, html[1], after)


def test_an_exercise_is_one_card_from_its_stars_to_its_solution():
    section = exercise()
    gather_exercise(section[1])
    title, card, after = section.children
    assert (title.astext(), card["classes"], after.astext()) == ("A", ["card-exercise"], "On we go.")
    effort, task, *solution = card.children
    assert effort["classes"] == ["effort"] and effort.astext().endswith("★★☆</span> 10 minutes")
    assert 'aria-label="Difficulty 2 of 3"' in effort.astext() and task.astext() == "Write f(x)"
    assert len(solution) == 3 and solution[-1].astext() == "</details>"


def test_an_exercise_without_effort_is_refused():
    with pytest.raises(ValueError, match="does not begin with its stars"):
        gather_exercise(exercise(begins=" Write ")[1])
