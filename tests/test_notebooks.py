"""Every exercise in the notebooks has a stub that can be left as it is, and a solution that its check accepts."""

import ast
import importlib
import inspect
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
from notebook_rules import NOTEBOOKS, exercise_calls, imports, paired, read, solutions, tree

from vit_tutorial.exercises import CHAPTERS, CheckFailed, exercise, find


@cache  # to read and parse a notebook takes longer than most of its exercises
def parts_of(path: Path) -> tuple[str, dict[str, tuple[str, str, str]]]:
    """A notebook's imports, and each exercise's function name, stub and solution."""
    return imports(read(path)), paired(read(path))


def solution(lines: str, pairs: dict[str, tuple[str, str, str]], name: str):
    """The function that the solution of exercise ``name`` defines."""
    namespace: dict = {}
    exec(lines, namespace)
    for earlier in takewhile(lambda other: other != name, pairs):
        namespace[pairs[earlier][0]] = find(earlier).reference
    function, _, code = pairs[name]
    exec(code, namespace)
    return namespace[function]


def run_solution(lines: str, pairs: dict[str, tuple[str, str, str]], name: str) -> None:
    """Check the solution of exercise ``name``."""
    answer = solution(lines, pairs, name)
    assert exercise(name, answer) is answer


ALL = [
    pytest.param(path, name, id=f"{path.stem}-{name}")
    for path in NOTEBOOKS
    for _, name, _ in exercise_calls(read(path))
]


@pytest.mark.parametrize(("path", "name"), ALL)
def test_solution_passes_its_check(path, name):
    run_solution(*parts_of(path), name)


@pytest.mark.parametrize(("path", "name"), ALL)
def test_stub_says_it_was_not_attempted_and_has_the_solution_s_arguments(path, name, capsys):
    lines, pairs = parts_of(path)
    function, stub, _ = pairs[name]
    definitions = [node for node in tree(stub).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    namespace: dict = {}
    exec(lines, namespace)
    exec("\n".join(ast.unparse(node) for node in definitions), namespace)
    reference = find(name).reference
    capsys.readouterr()
    assert exercise(name, namespace[function]) is reference
    assert "not attempted yet" in capsys.readouterr().out
    assert "# your code here" in stub
    answer = solution(lines, pairs, name)
    assert list(inspect.signature(answer).parameters) == list(inspect.signature(namespace[function]).parameters)


def test_a_chapter_s_exercises_are_those_of_its_module():
    for path in NOTEBOOKS:
        names = list(paired(read(path)))
        assert names == list(CHAPTERS.get(path.stem[3:], ())), path.stem
        if names:
            module = importlib.import_module(f"vit_tutorial.exercises.{path.stem[3:]}")
            assert set(names) == set(module.EXERCISES), path.stem


WRONG = "def num_patches(img_size, patch_size):\n    return img_size[0] // patch_size[0] + img_size[1] // patch_size[1]"


def test_a_wrong_solution_is_found():
    lines, pairs = parts_of(NOTEBOOKS[0])
    with pytest.raises(CheckFailed, match="rows times columns"):
        run_solution(lines, pairs | {"num_patches": (*pairs["num_patches"][:2], WRONG)}, "num_patches")


def test_a_missing_solution_is_found():
    notebook = read(NOTEBOOKS[0])
    number, _ = solutions(notebook)[-1]
    del notebook.cells[number]
    with pytest.raises(ValueError, match="has 0 solutions below it, not one"):
        paired(notebook)
