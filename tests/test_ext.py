"""What the book's own Sphinx extensions make of a page."""

from _ext.rooms import tidy
from _ext.stand_ins import stand_ins
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output


def test_stand_ins_are_found_in_what_a_notebook_printed():
    def ran(*texts):
        outputs = [new_output("stream", name="stdout", text=text) for text in texts]
        return new_notebook(cells=[new_markdown_cell("Going on with 'x' instead"), new_code_cell("", outputs=outputs)])

    assert stand_ins(ran("accuracy 97 %")) == []
    assert stand_ins(ran("refused. Going on\nwith 'shapes' instead.", "Going on with 'digits' instead.")) == [
        "digits",
        "shapes",
    ]


def folded_cell(title: str, output: str) -> str:
    return (
        f'<div class="cell tag_hide-cell"><details class="hide above-input"><summary><p>{title}</p></summary>'
        f'<div class="cell_input"><pre>x = 1</pre></div><div class="cell_output">{output}</div></details></div>'
    )


ROOM = "<details><summary>Going deeper: why?</summary><p>Because.</p></details>"


def test_what_goes_deeper_stands_in_its_room_with_its_result_in_view():
    page = ROOM + folded_cell("Going deeper: measured", "<p>12</p>") + folded_cell("Going deeper: drawn", "<p>13</p>")
    soup = BeautifulSoup(tidy(page + "<p>On we go.</p>"), "html.parser")
    assert [element.name for element in soup.find_all(recursive=False)] == ["details", "p"]
    room = soup.details
    assert [cell.select_one("summary").text for cell in room.select("div.cell")] == ["Code", "Code"]
    assert [output.text for output in room.select("div.cell > div.cell_output")] == ["12", "13"]
    assert all("x = 1" in fold.text for fold in room.select("details.hide"))


def test_other_cells_stay_where_they_are():
    for other in (
        folded_cell("The numbers above, checked", "12"),
        "<p>Text.</p>" + folded_cell("Going deeper: x", "12"),
    ):
        assert tidy(ROOM + other) == ROOM + other
    alone = folded_cell("Going deeper: x", "12")
    assert tidy("<details><summary>Hint</summary></details>" + alone).endswith(alone)


def test_an_exercise_that_no_one_attempted_says_nothing():
    output = '<div class="output stream"><pre>{}</pre></div>'
    noise = output.format("patchify: not attempted yet. The chapter goes on with the reference.\n")
    page = '<div class="cell"><div class="cell_output">{}</div></div>'
    assert tidy(page.format(noise)) == '<div class="cell"></div>'
    other = output.format("patchify: right")
    assert tidy(page.format(noise + other)) == page.format(other)
