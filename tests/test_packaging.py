"""What pyproject.toml, requirements.txt, pre-commit's file and the citation say agrees."""

import re
import tomllib

import yaml
from notebook_rules import ROOT, SLUG

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def names_and_bounds(requirements: list[str]) -> dict[str, str]:
    matches = [re.match(r"([\w.-]+)(\[[^\]]*\])?(.*)", requirement) for requirement in requirements]
    return {match[1].lower(): match[3].strip() for match in matches}


def test_requirements_agree_with_pyproject():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n")
    lines = [line for line in lines if line and not line.startswith("#")]
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert lines.pop() == "-e .[book]"
    listed = names_and_bounds(lines)
    assert {"torch", "torchvision", "matplotlib", "pillow", "jupyter-book", "nbmake"} <= set(listed)
    assert listed.items() <= names_and_bounds(PYPROJECT["project"]["dependencies"] + extras["book"]).items()
    assert listed["jupyter-book"].endswith("<2")


def test_the_package_has_lower_bounds_only():
    bounds = names_and_bounds(PYPROJECT["project"]["dependencies"])
    assert all(re.fullmatch(r">=[\d.]+", bound) for bound in bounds.values()), bounds


def test_pre_commit_formats_with_the_ruff_that_lint_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    rev = next(hook["rev"] for hook in hooks if hook["repo"].endswith("ruff-pre-commit"))
    bound = names_and_bounds(PYPROJECT["project"]["optional-dependencies"]["test"])["ruff"]
    assert bound.startswith(f">={'.'.join(rev.removeprefix('v').split('.')[:2])},")


def test_citation_and_package_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PYPROJECT["project"]["version"]
    assert citation["repository-code"] == PYPROJECT["project"]["urls"]["Repository"] == f"https://github.com/{SLUG}"
    assert citation["license"] == PYPROJECT["project"]["license"]  # a list is valid, but Zenodo refuses it
    assert {"cff-version", "title", "message", "type", "authors", "abstract", "keywords"} <= set(citation)
