"""Every chapter's hand-out, as a student runs it who gets everything wrong: it ends, and hands in every answer."""

import json

import pytest
from nbclient import NotebookClient
from notebook_rules import NOTEBOOKS, exercise_calls, read

from vit_tutorial.classroom import write_handouts


@pytest.mark.parametrize("number", range(1, len(NOTEBOOKS) + 1))
def test_a_handout_with_wrong_answers_alone_runs_to_its_end_and_hands_all_of_them_in(number, tmp_path):
    (file,) = write_handouts(tmp_path, str(number))
    notebook = read(file)
    names = []
    for i, name, fn in exercise_calls(notebook):
        notebook.cells[i].source = f'def {fn}(*args, **kwargs):\n    return "wrong"\n\n{fn} = exercise("{name}", {fn})'
        names.append(name)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    (handed_in,) = tmp_path.glob("hand-in-*.json")
    answers = json.loads(handed_in.read_text(encoding="utf-8"))["answers"]
    assert {name: answer["status"] for name, answer in answers.items()} == dict.fromkeys(names, "wrong")
