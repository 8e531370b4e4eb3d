"""The house is in order: a stem for each chapter, pages that list them all, light imports. Lint checks the floors."""

import ast
import importlib
import json
import pkgutil
import re
import subprocess
import sys

import pytest
from notebook_rules import NOTEBOOKS, ROOT, code_of, exercise_calls, imports, page, read

PACKAGE = ROOT / "vit_tutorial"
STEMS = [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_has_its_room_its_tests_and_its_exercises(path):
    name = path.stem.partition("_")[2]
    assert (PACKAGE / f"{name}.py").is_file() or (PACKAGE / name / "__init__.py").is_file()
    assert list((ROOT / "tests").glob(f"test_{name}*.py"))
    assert (PACKAGE / "exercises" / f"{name}.py").is_file() == bool(exercise_calls(read(path)))


@pytest.mark.parametrize("path", sorted((PACKAGE / "figures").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_drawing_is_short_says_what_one_sees_and_is_called(path):
    module = ast.parse(path.read_text(encoding="utf-8"))
    called = code_of(next(stem for stem in STEMS if stem[3:] == path.stem))
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 40, f"{node.name} has more than 40 lines"
            assert ast.get_docstring(node), f"{node.name} doesn't say what one sees"
            assert node.name.startswith("_") or f"figures.{node.name}(" in called, f"nothing calls {node.name}"


def test_the_contents_and_the_readme_list_every_chapter_in_its_place():
    assert [stem[:2] for stem in STEMS] == [f"{number:02}" for number in range(1, len(STEMS) + 1)]
    assert re.findall(r"file: notebooks/(\w+)", page("_toc.yml")) == STEMS
    titles = [read(path).cells[0].source.split("\n")[0].removeprefix("# ") for path in NOTEBOOKS]
    rows = re.findall(r"^\| \[(.*?)\]\(notebooks/(\w+)\.ipynb\)", page("README.md"), re.MULTILINE)
    assert rows == list(zip(titles, STEMS, strict=True))


def test_the_api_page_has_every_room():
    rooms = {room.name for room in pkgutil.iter_modules([str(PACKAGE)])} - {"cli", "__main__"}
    assert set(re.findall(r"automodule:: vit_tutorial\.(\w+)", page("book/api.md"))) == rooms


def test_a_module_s_name_is_nothing_else():
    """`vit_tutorial.attention` is the module, whoever imported what before."""
    for found in pkgutil.walk_packages([str(PACKAGE)], "vit_tutorial."):
        package, _, name = found.name.rpartition(".")
        if name != "__main__":
            module = importlib.import_module(found.name)
            assert getattr(sys.modules[package], name) is module, found.name


def test_no_import_brings_along_what_nobody_has_asked_for():
    """A fresh Python runs the imports of each chapter in turn."""
    steps = {"the package": "import vit_tutorial", "the command": "import vit_tutorial.cli"}
    for path in NOTEBOOKS:
        ours = [line for line in imports(read(path)).splitlines() if "vit_tutorial" in line]
        steps[path.stem] = "\n".join(line for line in ours if "vit_tutorial.figures" not in line)  # they draw
    steps["a heavy import, which is found"] = "import scipy"
    code = """
import json, sys
for name, lines in json.loads(sys.argv[1]).items():
    exec(lines, {})
    if heavy := {"matplotlib", "scipy", "sklearn", "torchvision"} & set(sys.modules):
        sys.exit(f"{name}: {heavy}")
"""
    done = subprocess.run([sys.executable, "-c", code, json.dumps(steps)], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == "a heavy import, which is found: {'scipy'}\n"


def destructive(code: str) -> list[str]:
    """Texts in code that tell someone to get rid of something; docstrings tell what the code does."""
    nodes = list(ast.walk(ast.parse(code)))
    described = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in described]
    rule = re.compile(r"(^|[.;:,] |\b(or|then|please) )(delete|remove|erase|overwrite|discard|rm)\b ", re.IGNORECASE)
    return [text for text in texts if isinstance(text, str) and rule.search(text)]


def test_no_advice_destroys_a_file():
    """Of what a reader has, nothing is ever to be deleted: it can be moved, mended or converted."""
    bad = 'raise E(f"{x} is damaged. Delete it, and it\'s fetched again")\nprint("replace or remove them")'
    assert len(destructive(bad)) == 2
    assert not destructive('"""Remove a link."""\nhook.remove()\nsay("an answer could delete all that you can")')
    rooms = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "exercises"]  # there, hooks are removed
    assert len(rooms) > 50
    assert {path.name: found for path in rooms if (found := destructive(path.read_text("utf-8")))} == {}
