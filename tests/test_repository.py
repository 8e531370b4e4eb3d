"""The repository has one address and one version, and what its workflows call is there."""

import os
import re
import subprocess

import pytest
import yaml
from notebook_rules import NOTEBOOKS, REPOSITORY, ROOT, SLUG, VERSION, badge, page

WORKFLOWS = {path.stem: page(f".github/workflows/{path.name}") for path in (ROOT / ".github/workflows").glob("*.yml")}
PAGES = [ROOT / "pyproject.toml", ROOT / "CITATION.cff", *ROOT.glob("*.md"), *ROOT.glob("book/*.md"), *NOTEBOOKS]


def forgotten(text: str) -> list[str]:
    """Addresses of this repository and versions of this package that aren't those of _config.yml and pyproject.toml."""
    found = re.findall(r"github\.com/([\w-]+/vit-tutorial)\b(?!-)", text.replace(SLUG, ""))
    found += set(re.findall(r"google\.com/github/(.+?)/notebooks/\d", text)) - {f"{SLUG}/blob/{REPOSITORY['branch']}"}
    found += set(re.findall(r"git\+https://github\.com/([^\s\"'`\\]*)", text)) - {f"{SLUG}@v{VERSION}"}
    found += set(re.findall(r"^version(?:: | = \")([\w.]+)", text, re.MULTILINE)) - {VERSION}
    return found


def test_address_and_version_are_the_same_everywhere():
    assert [(path.name, *found) for path in PAGES if (found := forgotten(path.read_text(encoding="utf-8")))] == []
    assert all(badge(path.name) in page("README.md") for path in NOTEBOOKS)
    for name in ("README.md", "book/running.md"):
        assert f"git+https://github.com/{SLUG}@v{VERSION}" in page(name)
    assert f'version = "{VERSION}"' in page("pyproject.toml") and f"version: {VERSION}\n" in page("CITATION.cff")


def test_what_was_forgotten_is_found():
    old = f"git clone https://github.com/me/vit-tutorial, git+https://github.com/{SLUG}@v9.9\nversion: 9.9"
    assert set(forgotten(old)) == {"9.9", "me/vit-tutorial", f"{SLUG}@v9.9"}
    assert forgotten(badge("01_patches.ipynb").replace("/blob/", "/blob/old-")) == [f"{SLUG}/blob/old-main"]


def test_what_the_workflows_call_is_there():
    everything = "\n".join([*WORKFLOWS.values(), page(".github/actions/data/action.yml")])
    targets = set(re.findall(r"\bmake ([a-z]\w*)", re.sub(r"#.*", "", everything)))
    assert {"install", "book", "unit"} <= targets <= set(re.findall(r"^([a-z]\w*):", page("Makefile"), re.MULTILINE))
    named = re.findall(r"(?<![\w/.])(?:\./)?(?:\.ci|\.github/actions|book)/[\w./]+", everything)
    assert len(named) > 5 and all((ROOT / name).exists() for name in named)


@pytest.mark.parametrize(("tag", "released"), [(f"v{VERSION}", True), (f"v{VERSION}9", False)])
def test_only_the_package_s_own_version_is_released(tag, released):
    steps = yaml.safe_load(WORKFLOWS["release"])["jobs"]["build"]["steps"]
    script = next(step["run"] for step in steps if step.get("name") == "The tag is the package's version")
    environment = os.environ | {"GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-ec", script], cwd=ROOT, env=environment, capture_output=True)
    assert (done.returncode == 0) == released
