"""Chapters, their modules and the tests of these agree with what the README and the contents say."""

import re

import pytest
import yaml
from notebook_rules import NOTEBOOKS, ROOT, badge, code_of, page, read

CHAPTERS = [
    "01_patches",
    "02_positions",
    "03_attention",
    "04_encoder",
    "05_model",
    "06_training",
    "07_recipes",
    "08_attention_maps",
    "09_pretrained",
    "10_what_matters",
    "11_speed",
    "12_clinic",
]


def test_chapters_are_the_same_in_the_folder_the_contents_and_the_readme():
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [chapter["file"] for part in contents["parts"] for chapter in part["chapters"]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS] == CHAPTERS
    assert [file for file in files if file.startswith("notebooks/")] == [f"notebooks/{stem}" for stem in CHAPTERS]
    assert re.findall(r"^\| \[.*?\]\(notebooks/(\w+)\.ipynb\)", readme, re.MULTILINE) == CHAPTERS
    for path in NOTEBOOKS:
        title = read(path).cells[0].source.split("\n")[0].removeprefix("# ")
        assert f"[{title}](notebooks/{path.name})" in readme
        assert badge(path.name) in readme


def modules_of(stem: str) -> list[str]:
    """The modules that a chapter builds, as the README says: the one of its name, or others."""
    (row,) = [line for line in page("README.md").splitlines() if line.startswith("| `vit_tutorial/` |")]
    others = {int(number): names for number, names in re.findall(r"\b(\d+) ((?:`\w+`(?:, )?)+)", row)}
    return re.findall(r"`(\w+)`", others.get(int(stem[:2]), f"`{stem[3:]}`"))


@pytest.mark.parametrize("stem", CHAPTERS)
def test_a_chapter_has_its_modules_its_checks_and_their_tests(stem):
    modules = modules_of(stem)
    for name in modules:
        module = ROOT / "vit_tutorial" / name
        assert module.with_suffix(".py").is_file() or (module / "__init__.py").is_file(), module
        assert name == stem[3:] or re.search(rf"vit_tutorial(\.| import .*\b){name}\b", code_of(stem)), name
    checks = "training" if stem == "06_training" else stem[3:]
    for file in (f"vit_tutorial/checks/{checks}.py", f"tests/test_checks_{checks}.py", f"tests/test_{modules[0]}.py"):
        assert (ROOT / file).is_file(), file
