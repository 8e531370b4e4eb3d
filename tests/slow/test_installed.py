"""The wheel holds all that the commands need: hand-outs and grades are the same as from a clone."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

from made_submissions import right_answers
from notebook_rules import NOTEBOOKS, ROOT

RUN = "import sys, vit_tutorial; from vit_tutorial.cli import main; print(vit_tutorial.__file__); main(sys.argv[1:])"


def test_handouts_and_grades_from_the_wheel_are_those_from_a_clone(tmp_path):
    for name in ("vit_tutorial", "notebooks"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", tmp_path]
    subprocess.run([*command, tmp_path / "source"], check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")

    answers = "\n\n".join(right_answers("patches", name)[0].source for name in ("num_patches", "unpatchify"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/ada.py").write_text(answers, encoding="utf-8")
    for package in (ROOT, tmp_path / "site"):
        out = "site" if package != ROOT else "clone"
        for arguments in (["handout", f"{out}-out"], ["grade", "in", "--out", f"{out}-out/g.csv", "--chapters", "1"]):
            ran = subprocess.run(
                [sys.executable, "-c", RUN, *arguments],
                cwd=tmp_path,
                env=os.environ | {"PYTHONPATH": str(package)},
                capture_output=True,
                text=True,
            )
            assert ran.returncode == 0 and ran.stdout.startswith(str(package / "vit_tutorial")), ran.stderr
    made, other = (
        {path.name: re.sub(rb",[\d.]+(?=\r?\n)", b"", path.read_bytes()) for path in (tmp_path / out).iterdir()}
        for out in ("clone-out", "site-out")
    )  # without the seconds at the end of a grade's line
    assert made == other
    assert set(made) == {"g.csv", *(path.name for path in NOTEBOOKS)}
    assert made["g.csv"].count(b",right,") == 2
