"""An exercise in plain Markdown becomes one card."""

import pytest
from _ext.cards import gather_exercise
from docutils import nodes


def exercise(
    begins: str = " ★★☆ · 10 minutes. Write ", ends: str = "<details><summary>Solution</summary>"
) -> nodes.section:
    task = nodes.paragraph("", "", nodes.strong("", "Exercise."), nodes.Text(begins), nodes.literal("", "f(x)"))
    return nodes.section(
        "",
        nodes.title("", "Exercise 3.1: A function"),
        nodes.block_quote("", task),
        nodes.raw("", "<details><summary>Hint</summary>", format="html"),
        nodes.paragraph("", "Think."),
        nodes.raw("", "</details>", format="html"),
        nodes.container("", nodes.literal_block("", "def f(x): ..."), classes=["cell"]),
        nodes.raw("", ends, format="html"),
        nodes.literal_block("", "def f(x): return x"),
        nodes.raw("", "</details>", format="html"),
        nodes.paragraph("", "On we go."),
    )


def test_an_exercise_is_one_card_from_its_stars_to_its_solution():
    section = exercise()
    gather_exercise(section[1])
    title, card, after = section.children
    assert title.astext() == "Exercise 3.1: A function" and after.astext() == "On we go."
    assert card["classes"] == ["card-exercise"]
    effort, task, *rest = card.children
    assert effort["classes"] == ["effort"] and effort.astext().endswith("★★☆</span> 10 minutes")
    assert 'aria-label="Difficulty 2 of 3"' in effort.astext()
    assert task.astext() == "Write f(x)"
    assert [type(node) for node in rest][-3:] == [nodes.raw, nodes.literal_block, nodes.raw]
    assert rest[-1].astext() == "</details>" and len(rest) == 7


def test_an_exercise_without_effort_or_solution_is_refused():
    with pytest.raises(ValueError, match="does not begin with its stars"):
        gather_exercise(exercise(begins=" Write ")[1])
    with pytest.raises(ValueError, match=r"no solution: 'Exercise\. ★★☆"):
        gather_exercise(exercise(ends="<details><summary>Answers</summary>")[1])
