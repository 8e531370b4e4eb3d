"""The house is in order: a stem for each chapter, floors that imports go down and never up, façades, light imports."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from notebook_rules import NOTEBOOKS, ROOT, badge, exercise_calls, imports, read, tree

PACKAGE = ROOT / "vit_tutorial"
# A room imports rooms of lower floors, the topmost line here, and no others: not even its neighbours.
FLOORS = """
validate claims old_names
config plots
patches
positions
attention
encoder
model
archs
data augment
training
recipes
runs
attention_maps
pretrained
what_matters
live speed
clinic
exercises
classroom
cli __init__
__main__
"""
FLOOR = {room: floor for floor, line in enumerate(FLOORS.split("\n")) for room in line.split()}


def room_of(path: Path, package: Path = PACKAGE) -> str:
    """The file or folder in the package that holds ``path``, such as ``training`` for ``training/loop.py``."""
    return path.relative_to(package).parts[0].removesuffix(".py")


def rooms(package: Path = PACKAGE) -> set[str]:
    return {room_of(path, package) for path in package.rglob("*.py")}


def imported_rooms(source: str, here: str, known: set[str]) -> set[str]:
    """The rooms that a module imports, anywhere in it; a name of the package's own façade counts as ``__init__``."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the room"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for package, room, *_ in (f"{name}.".split(".") for name in names):
            if package == "vit_tutorial":
                found.add(room if room in known else "__init__")
    return found - {here}


def upward(package: Path = PACKAGE) -> list[str]:
    """Every import that does not go down, one line each."""
    known, found = rooms(package), []
    for path in sorted(package.rglob("*.py")):
        here = room_of(path, package)
        for other in sorted(imported_rooms(path.read_text(encoding="utf-8"), here, known)):
            if FLOOR[other] >= FLOOR[here]:
                found.append(f"{path.relative_to(package).as_posix()} imports {other}")
    return found


# Chapters and their stems -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_chapter_has_its_room_its_proof_and_its_exercises(path):
    name = path.stem.partition("_")[2]
    assert (PACKAGE / f"{name}.py").is_file() or (PACKAGE / name / "__init__.py").is_file()
    assert list((ROOT / "tests").glob(f"test_{name}*.py"))
    assert (PACKAGE / "exercises" / f"{name}.py").is_file() == bool(exercise_calls(read(path)))


def test_every_chapter_s_number_is_its_place():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{number:02}" for number in range(1, len(NOTEBOOKS) + 1)]


def test_the_api_page_has_every_room():
    page = (ROOT / "book/api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`(\w+)`\]\(api-\1\) \|", page, re.MULTILINE)
    documented = re.findall(
        r"^\(api-(\w+)\)=\n\n## .+\n\n```{eval-rst}\n\.\. automodule:: vit_tutorial\.\1\n", page, re.MULTILINE
    )
    assert sorted(listed) == sorted(documented) == sorted(rooms() - {"cli", "__init__", "__main__"})


# Floors and façades -----------------------------------------------------------------------------------------------


def test_every_room_has_a_floor():
    assert rooms() == set(FLOOR)
    chapters = [path.stem.partition("_")[2] for path in NOTEBOOKS]
    assert sorted(chapters, key=FLOOR.get) == chapters, "a chapter's room lies above those of earlier chapters"


def test_nothing_imports_upward():
    assert upward() == []


@pytest.mark.parametrize(
    "line",
    [
        "from vit_tutorial.training.loop import fit",
        "from vit_tutorial import training",
        "import vit_tutorial.training",
        "def late():\n    from vit_tutorial.training import fit",
        "from vit_tutorial import ViT",
        "from vit_tutorial.archs import ResNet",
    ],
)
def test_an_upward_import_is_found(line, tmp_path):
    for name in ("training", "model", "archs", "config"):
        (tmp_path / f"{name}.py").touch()
    (tmp_path / "__init__.py").write_text("from vit_tutorial.model import ViT\n")
    (tmp_path / "model.py").write_text(f"from vit_tutorial.config import ViTConfig\n\n{line}\n")
    (found,) = upward(tmp_path)
    assert found.startswith("model.py imports ")


def facade_problems(source: str) -> list[str]:
    """What a façade holds besides its docstring, imports and ``__all__``, one line each."""
    docstring, *rest = ast.parse(source).body
    assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant), "no docstring"
    return [
        ast.unparse(node)
        for node in rest
        if not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    ]


FACADES = sorted(PACKAGE.rglob("__init__.py"))


@pytest.mark.parametrize("path", FACADES, ids=lambda path: path.parent.name)
def test_an_init_is_a_facade(path):
    assert facade_problems(path.read_text(encoding="utf-8")) == []


def test_code_in_a_facade_is_found():
    source = '"""A room."""\n\nfrom a import b\n\n__all__ = ["b"]\n\n\ndef c():\n    pass\n'
    assert facade_problems(source) == ["def c():\n    pass"]


@pytest.mark.parametrize("path", FACADES, ids=lambda path: path.parent.name)
def test_a_module_s_name_is_nothing_else(path):
    """`vit_tutorial.attention` is the module, whoever imported what before."""
    modules = {file.stem for file in path.parent.glob("*.py")} | {
        file.parent.name for file in path.parent.glob("*/*.py")
    }
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module != ".".join(path.parent.relative_to(ROOT).parts):
            assert not {alias.asname or alias.name for alias in node.names} & modules
        if isinstance(node, ast.Assign):
            assert not set(ast.literal_eval(node.value)) & modules


# What an import costs ---------------------------------------------------------------------------------------------

HEAVY = ("matplotlib", "scipy", "sklearn", "torchvision")


def brought_along(steps: dict[str, str]) -> dict[str, list[str]]:
    """The heavy packages that a fresh Python has loaded after each step's code, one step after the other."""
    code = "import json, sys\nfor name, lines in json.loads(sys.argv[1]).items():\n    exec(lines, {})\n"
    code += f"    print(json.dumps([name, [heavy for heavy in {HEAVY} if heavy in sys.modules]]))"
    command = [sys.executable, "-c", code, json.dumps(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return dict(map(json.loads, done.stdout.splitlines()))


def test_no_import_brings_along_what_nobody_has_asked_for():
    steps = {"the package": "import vit_tutorial", "the command": "import vit_tutorial.cli"}
    for path in NOTEBOOKS:
        ours = [line for line in imports(read(path)).splitlines() if "vit_tutorial" in line]
        assert ours
        steps[path.stem] = "\n".join(ours)
    assert brought_along(steps) == {name: [] for name in steps}


def test_the_first_cell_of_the_book_is_light():
    first = next(cell for cell in read(NOTEBOOKS[0]).cells if cell.cell_type == "code")
    assert "import torch" in first.source
    assert brought_along({"first cell": ast.unparse(tree(first.source))}) == {"first cell": []}


def test_what_is_brought_along_is_found():
    steps = {"light": "import json", "heavy": "import scipy"}
    assert brought_along(steps) == {"light": [], "heavy": ["scipy"]}


def test_chapters_are_the_same_in_the_folder_the_contents_and_the_readme():
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [chapter["file"] for part in contents["parts"] for chapter in part["chapters"]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    stems = [path.stem for path in NOTEBOOKS]
    assert [file for file in files if file.startswith("notebooks/")] == [f"notebooks/{stem}" for stem in stems]
    assert re.findall(r"^\| \[.*?\]\(notebooks/(\w+)\.ipynb\)", readme, re.MULTILINE) == stems
    for path in NOTEBOOKS:
        title = read(path).cells[0].source.split("\n")[0].removeprefix("# ")
        assert f"[{title}](notebooks/{path.name})" in readme
        assert badge(path.name) in readme
