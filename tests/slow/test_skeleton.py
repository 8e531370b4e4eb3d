"""What `make chapter` and `make exercise` write passes the rules as it is, and nothing is overwritten."""

import os
import shutil
import subprocess
import sys

import pytest
from notebook_rules import NOTEBOOKS, ROOT
from skeleton import main

CHAPTER = f"{len(NOTEBOOKS) + 1:02}_made_up"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of the repository with a new chapter, and an exercise in it and in another one."""
    clone = tmp_path_factory.mktemp("clone") / "book"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "_build", "_static", "recorded"))
    main(["chapter", CHAPTER], clone)
    main(["exercise", CHAPTER, "made_up_in_it"], clone)
    main(["exercise", "10_what_matters", "made_up_elsewhere"], clone)
    return clone


def ran(clone, *command: str) -> str:
    """What a command says; "" if all is well."""
    environment = os.environ | {"PYTHONPATH": str(clone)}
    done = subprocess.run([sys.executable, "-m", *command], cwd=clone, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""


def test_skeletons_pass_the_rules(clone):
    about = ("notebook_rules", "telling", "house", "notebooks", "exercises", "teaching", "made_up")
    chosen = f"{CHAPTER} or made_up or told[10_what or every_chapter or every_room or two_tokens"
    files = [f"tests/test_{name}.py" for name in about]
    assert ran(clone, "pytest", "-q", "-p", "no:cacheprovider", *files, "-k", chosen) == ""
    written = ["notebooks", "vit_tutorial", "tests/test_made_up.py"]
    assert ran(clone, "ruff", "check", "--no-cache", *written) == ""
    assert ran(clone, "ruff", "format", "--no-cache", "--check", *written) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chapter", CHAPTER], f"name begins with {len(NOTEBOOKS) + 2}_"),
        (["chapter", f"{len(NOTEBOOKS) + 2}_model"], "vit_tutorial/model.py is there already; nothing was written"),
        (["exercise", "03_attention", "merge_heads"], "there is an exercise 'merge_heads' already"),
        (["exercise", "f"], "a chapter and a name, as in 03_attention merge_heads; got 'f', ''"),
    ],
)
def test_nothing_is_overwritten(clone, arguments, message):
    before = {path: path.stat().st_mtime_ns for path in clone.rglob("*")}
    with pytest.raises(SystemExit, match=message):
        main(arguments, clone)
    assert {path: path.stat().st_mtime_ns for path in clone.rglob("*")} == before
