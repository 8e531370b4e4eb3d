"""Skeletons of a chapter and of an exercise, in every place that has to know of them.

    python book/skeleton.py chapter 13_example
    python book/skeleton.py exercise 13_example mean_of_tokens

They pass the tests as they are, so that you can replace one thing after the other. Nothing is overwritten.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat
from build import ROOT, fold, title_of
from nbformat.v4 import new_code_cell, new_markdown_cell

MODULE = '''"""TODO: what chapter {number} builds."""

from jaxtyping import Float
from torch import Tensor


def average(tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
    """The mean of each image's tokens."""
    return tokens.mean(dim=1)
'''
TESTS = '''"""TODO: what is proved of chapter {number}."""

import torch

from vit_tutorial.{name} import average


def test_two_tokens_by_hand():
    assert average(torch.tensor([[[1.0, 2], [3, 6]]])).tolist() == [[2, 4]]
'''
FIGURES = '''"""Chapter {number}: TODO."""

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from vit_tutorial import plots


def bars(values: Float[Tensor, "d"]) -> Figure:
    """TODO: what one sees."""
    fig, ax = plots.subplots(figsize=(6, 2.5))
    ax.bar(range(len(values)), values.tolist(), color=plots.COLOURS["ours"])
    ax.set(xlabel="TODO: what, and its unit", ylabel="TODO")
    return fig
'''
CLAIMS = '''"""What chapter {number} says in numbers, held to what its cells computed."""

import torch
from claiming import after, claim


@after("mean")
def half_of_each(tokens, mean):
    claim("50 % of each", torch.equal(mean, 0.5 * tokens.sum(1)))
'''
EDITS = """# TODO: six edits that a reader would make, a cell that runs again among them
["other numbers"]
cell = "mean"
old = "[1.0, 2]"
new = "[7.0, 8]"
""" + "".join(f'\n["TODO: edit {i}"]\ncell = "mean"\nagain_after = "mean"\n' for i in range(2, 7))
CELLS = [
    "# {title}\n\n{line}\n\nTODO: what a reader would like to know, and a picture that makes them want the answer.",
    '# @title Set-up\nimport importlib.util\n\nif importlib.util.find_spec("vit_tutorial") is None:\n{install}\n\n'
    "import torch\n\nfrom vit_tutorial import {imported}\nfrom vit_tutorial.figures import {name} as figures\n"
    "from vit_tutorial.plots import model_diagram\n\ntorch.manual_seed(0)\nplots.use_style()",
    'model_diagram("model")',
    "**Figure {number}.1.** TODO: what to see.\n\n## A first question\n\n> **Predict.** What is the mean of [1, 2] and "
    "[3, 6]?\n\nTODO\n\n> **Predict.** TODO?\n\nTODO\n\n> **Predict.** TODO?",
    "tokens = torch.tensor([[[1.0, 2], [3, 6]]])  # (1, 2, 2)\nmean = {name}.average(tokens)\nfigures.bars(mean[0])",
    "**Figure {number}.2.** TODO: what to see. A mean takes 50 % of each.\n\n> **Takeaway.** TODO: the answer, "
    "with its number.",
    "## What you built\n\nTODO\n\n## Recap\n\n- TODO\n\n## Further reading\n\n- TODO",
]
ALT = "TODO: what is seen in this figure, and what it shows."
API = "(api-{name})=\n\n## {topic}\n\n```{{eval-rst}}\n.. automodule:: vit_tutorial.{name}\n   :members:\n```\n\n"
TEACHING = (
    "\n## {title}\n\n**Aim.** Students TODO.\n\n| exercise | minutes | where |\n|---|--:|---|\n\n**Misconceptions**\n\n"
    + "".join(f'{i}. *"TODO."* TODO. Cure: "A first question".\n' for i in (1, 2, 3))
    + "\n**To discuss.** TODO? TODO?\n\n**Exam question.** (a) TODO\n\n**Model answer.** (a) TODO\n\n"
    "**Rubric.** (a) TODO.\n"
)
TASK = (
    "### Exercise {number}: TODO\n\n> **Exercise.** ★☆☆ · 5 minutes. Write `{name}(tokens)`. TODO: from `(b, n, d)` to "
    "`(b, d)`, the mean of each image's tokens.\n\n<details><summary>Hint</summary>\n\nTODO\n\n</details>"
)
STUB = 'def {name}(tokens):\n    raise NotImplementedError  # your code here\n\n\n{name} = exercise("{name}", {name})'
SOLUTION = (
    "<details><summary>Solution</summary>\n\n```python\ndef {name}(tokens):\n    return tokens.mean(dim=1)\n```\n\n"
    "</details>"
)
EXERCISES = '''"""Exercises of chapter {chapter}: TODO."""

import torch
from torch import Tensor

from vit_tutorial.exercises.declaration import Exercise

EXERCISES: dict[str, Exercise] = {{}}
'''
EXERCISE = '''

def {name}(tokens: Tensor) -> Tensor:
    """TODO: the mean of each image's tokens, ``(b, n, d)`` to ``(b, d)``."""
    return tokens.mean(dim=1)


EXERCISES["{name}"] = Exercise(
    reference={name},
    truth=lambda tokens: torch.einsum("bnd -> bd", tokens) / tokens.shape[1],
    given=lambda b=2, n=3, d=4: (torch.randn(b, n, d),),
    mistakes={{
        "TODO: that's the sum. Divide it by the number of tokens": lambda tokens: tokens.sum(dim=1),
        "TODO: axis 2 was averaged, the features. Tokens are axis 1": lambda tokens: tokens.mean(dim=2),
        "TODO: axis 0 was averaged, the images. Tokens are axis 1": lambda tokens: tokens.mean(dim=0),
    }},
    right=[lambda tokens: tokens.mT.mean(dim=-1)],
)
'''


class Files(dict):
    """The texts of the repository's files. Nothing is written before all changes are made."""

    def __init__(self, root: Path):
        self.root = root

    def __missing__(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def create(self, name: str, text: str) -> None:
        if (self.root / name).exists():
            raise ValueError(f"{name} is there already; nothing was written")
        self[name] = text

    def insert(self, name: str, pattern: str, text: str, above: bool = False) -> None:
        """Insert a text below the last line that matches, or above it."""
        *_, line = re.finditer(rf"^.*{pattern}.*\n", self[name], re.MULTILINE)
        place = line.start() if above else line.end()
        self[name] = self[name][:place] + text + self[name][place:]

    def write(self) -> None:
        for name, text in self.items():
            print(f"{'changed' if (self.root / name).exists() else 'new':9}{name}")
            (self.root / name).write_text(text, encoding="utf-8")


def new_cell(template: str, words: dict) -> nbformat.NotebookNode:
    if not re.match(r"# @title|model_diagram|tokens = |def ", template):
        return new_markdown_cell(template.format(**words))
    cell = new_code_cell(template.format(**words))
    if title := title_of(cell):
        cell.metadata.update(fold(title))
    elif "def " not in template:
        cell.metadata["mystnb"] = {"image": {"alt": ALT}}
    if "tokens = " in template:
        cell.id = "mean"  # its claims and edits call it so
    return cell


def chapter(root: Path, stem: str) -> None:
    """Write a chapter after the last one.

    Raises:
        ValueError: if it has another number or no name, or one of its files is there.
    """
    last, name, files = max((root / "notebooks").glob("*.ipynb")).stem, stem[3:], Files(root)
    number, row = int(last[:2]) + 1, rf"^\| .*notebooks/{last}\."
    if not re.fullmatch(rf"{number:02}_[a-z][a-z0-9_]*", stem):
        raise ValueError(f"the next chapter's name begins with {number:02}_, as in {number:02}_example; got {stem!r}")
    book = nbformat.reads(files[f"notebooks/{last}.ipynb"], as_version=4)
    line = re.search(r"^\[!\[Open In Colab.*? · about ", book.cells[0].source, re.MULTILINE)[0].replace(last, stem)
    topic = name.replace("_", " ").capitalize()
    words = {"number": number, "name": name, "topic": topic, "title": f"{number} · {topic}"}
    words["line"] = f"{line}20 minutes, plus exercises · You need: [chapter {number - 1}]({last}.ipynb)"
    words["imported"] = ", ".join(sorted([name, "plots"]))
    words["install"] = re.search("^ *%pip.*$", book.cells[1].source, re.MULTILINE)[0]
    book.cells = [new_cell(template, words) for template in CELLS]
    files.create(f"notebooks/{stem}.ipynb", nbformat.writes(book) + "\n")
    files.create(f"vit_tutorial/{name}.py", MODULE.format(**words))
    files.create(f"vit_tutorial/figures/{name}.py", FIGURES.format(**words))
    files.create(f"tests/test_{name}.py", TESTS.format(**words))
    files.create(f"tests/claims/{name}.py", CLAIMS.format(**words))
    files.create(f"tests/slow/edits/{name}.toml", EDITS)
    files.insert("_toc.yml", f"notebooks/{last}", f"      - file: notebooks/{stem}\n")
    link = f"[{words['title']}](notebooks/{stem}.ipynb)"
    files.insert("README.md", row, f"| {link} | TODO: what one can do after it. | {line.partition(' · ')[0]} |\n")
    files.insert("pyproject.toml", rf'^    "{last[3:]}', f'    "{name}",\n', above=True)
    files.insert("vit_tutorial/exercises/contents.py", "^}", f'    "{name}": "",\n', above=True)
    up = f"../notebooks/{stem}.ipynb"
    files.insert("book/api.md", row, f"| [`{name}`](api-{name}) | TODO ([chapter {number}]({up})) |\n")
    files.insert("book/api.md", r"^\(api-config\)=", API.format(**words), above=True)
    row_of_term = f"| [{words['title']}]({up}) | {number - 1} | 20 | 0 | 0 | A first question |\n"
    files.insert("book/teaching.md", row, row_of_term)
    files["book/teaching_chapters.md"] += TEACHING.format(**words)
    files.write()
    print(f"Next: replace each TODO (git add -N . && git diff); make exercise CHAPTER={stem} NAME=…; make test")


def exercise(root: Path, stem: str, name: str = "") -> None:
    """Write an exercise into a chapter, below its others.

    Raises:
        ValueError: if there is no such chapter, or there is such an exercise.
    """
    path, module, files = f"notebooks/{stem}.ipynb", f"vit_tutorial/exercises/{stem[3:]}.py", Files(root)
    listed, chapters, guide = "vit_tutorial/exercises/contents.py", "book/teaching_chapters.md", "book/teaching.md"
    if not (root / path).exists() or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError(f"wanted are a chapter and a name, as in 03_attention merge_heads; got {stem!r}, {name!r}")
    if re.search(rf"\b{name}\b", files[listed]):
        raise ValueError(f"there is an exercise {name!r} already; nothing was written")
    book = nbformat.reads(files[path], as_version=4)
    count = sum(cell.source.count("### Exercise ") for cell in book.cells)
    words = {"chapter": int(stem[:2]), "name": name, "number": f"{int(stem[:2])}.{count + 1}"}
    end = next(i for i, cell in enumerate(book.cells) if "## What you built" in cell.source)
    above, heading, below = book.cells[end].source.partition("## What you built")
    new = [new_cell(template, words) for template in (TASK, STUB, SOLUTION)]
    if above:
        new, book.cells[end].source = [new_markdown_cell(above.strip()), *new], heading + below
    book.cells[end:end] = new
    line, set_up = "from vit_tutorial.exercises import exercise\n", book.cells[1]
    if line not in set_up.source:
        set_up.source = set_up.source.replace("from vit_tutorial.figures", f"{line}from vit_tutorial.figures")
    files[path] = nbformat.writes(book) + "\n"
    if not (root / module).exists():
        files.create(module, EXERCISES.format(**words))
    files[module] += EXERCISE.format(**words)
    entry = re.search(rf'"{stem[3:]}": [^:]*?",\n', files[listed])[0]
    glue = "" if '""' in entry else " " if len(entry.split("\n")[-2] + name) < 112 else ' "\n    "'
    files[listed] = files[listed].replace(entry, f'{entry[:-3]}{glue}{name}",\n')
    table = re.compile(rf"(?s)\n## {words['chapter']} · .*?\| where \|\n(\|[^\n]*\n)+")
    files[chapters] = table.sub(rf"\g<0>| `{name}` | 5 | home |\n", files[chapters])
    home = re.compile(rf"^(\| .*notebooks/{stem}\..*\| )(\d+)( \|[^|]*\|)$", re.MULTILINE)
    files[guide] = home.sub(lambda row: f"{row[1]}{int(row[2]) + 5}{row[3]}", files[guide])
    files.write()
    print(f"Next: replace each TODO (git diff); move {name} to its place in each file; make test")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["chapter", "exercise"])
    parser.add_argument("names", nargs="+")
    chosen = parser.parse_args(arguments)
    try:
        {"chapter": chapter, "exercise": exercise}[chosen.what](root, *chosen.names)
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
