"""The wheel holds all that the commands need: hand-outs and grades are the same as from a clone."""

import csv
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from made_submissions import right_answers
from notebook_rules import NOTEBOOKS, ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="grading needs fork")
RUN = "import sys, vit_tutorial; from vit_tutorial.cli import main; print(vit_tutorial.__file__); main(sys.argv[1:])"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds the package as `pip install` puts it there."""
    tmp = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("vit_tutorial", "notebooks"):
        shutil.copytree(ROOT / name, tmp / "source" / name, ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", tmp, tmp / "source"]
    subprocess.run(command, check=True)
    (wheel,) = tmp.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp / "site")
    return tmp / "site"


def run(package, folder, *arguments) -> str:
    environment = os.environ | {"PYTHONPATH": str(package)}
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(package / "vit_tutorial"))
    return ran.stdout


def test_grades_from_the_wheel_are_those_from_a_clone(installed, tmp_path):
    """An answer may lean on what its chapter imports and defines, and the notebook's cells needn't be handed in."""
    (tmp_path / "in").mkdir()
    leans = (
        "def unpatchify(x, p, g):\n    cut = '{}'\n    return rearrange(x, cut, gh=g[0], gw=g[1], ph=p[0], pw=p[1])\n"
    )
    leans = leans.format("b (gh gw) (c ph pw) -> b c (gh ph) (gw pw)")
    whole = right_answers("patches", "num_patches")[0].source
    (tmp_path / "in/ada.py").write_text(f"{leans}\n\n{whole}", encoding="utf-8")
    tables = []
    for package in (ROOT, installed):
        run(package, tmp_path, "grade", "in", "--out", "out.csv", "--quiet", "--chapters", "1")
        with open(tmp_path / "out.csv", encoding="utf-8-sig", newline="") as file:
            tables.append(
                {row["exercise"]: (row["points"], row["status"], row["hint"]) for row in csv.DictReader(file)}
            )
    assert tables[0] == tables[1]
    assert tables[1]["num_patches"] == tables[1]["unpatchify"] == ("1", "right", "")


def test_handouts_from_the_wheel_are_those_from_a_clone(installed, tmp_path):
    for package, out in ((ROOT, "a"), (installed, "b")):
        run(package, tmp_path, "handout", out)
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [path.name for path in NOTEBOOKS]
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
