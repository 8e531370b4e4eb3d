"""book/colab.py runs a chapter where a reader of Colab would: alone, with the package from git and nowhere else."""

import subprocess

import colab
import pytest
from nbformat import write
from nbformat.v4 import new_code_cell, new_notebook
from notebook_rules import INSTALL, ROOT, SLUG, VERSION


@pytest.fixture
def wrong(tmp_path):
    """What `colab.py` has to say of a notebook with these lines."""

    def run(code: str) -> str:
        write(new_notebook(cells=[new_code_cell(code)]), tmp_path / "01_small.ipynb")
        return colab.problems(tmp_path / "01_small.ipynb")

    return run


def test_a_chapter_is_alone_with_colab_s_packages_and_without_ours(wrong, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    alone = "import importlib.util, os, torch, nbclient\nassert os.listdir() == ['01_small.ipynb']\n"
    assert wrong(f"{alone}assert importlib.util.find_spec('vit_tutorial') is None\nprint('said')") == ""


def test_an_error_and_a_warning_fail(wrong):
    assert "no good" in wrong("raise ValueError('no good')")
    assert "UserWarning: be warned" in wrong("import warnings\nwarnings.warn('be warned')")


def test_what_is_installed_over_colab_s_packages_is_told(tmp_path):
    for name in ("vit-tutorial", "torch", "brand-new"):
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    assert colab.replaced(tmp_path) == ["torch"]


def test_git_takes_the_package_from_here_or_from_the_url(tmp_path, monkeypatch):
    """Without a network: the release that the set-up cell asks for is that of another repository."""
    assert INSTALL.endswith(f"{SLUG}@v{VERSION}")

    def release() -> str:
        settings = colab.settings(tmp_path, f'%pip install -q "{INSTALL}"')
        assert settings["VIT_TUTORIAL_CHECK"] == "1"  # a claim that fails ends the run
        command = ["git", "ls-remote", f"https://github.com/{SLUG}", f"refs/tags/v{VERSION}"]
        return subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout.split()[0]

    def git(*arguments: object) -> str:
        return subprocess.run(["git", *map(str, arguments)], capture_output=True, text=True, check=True).stdout.strip()

    for _ in range(2):
        assert release() == git("-C", ROOT, "rev-parse", "HEAD")
    git("init", "-q", tmp_path / "other")
    git("-C", tmp_path / "other", "-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "c", "--allow-empty")
    git("-C", tmp_path / "other", "tag", f"v{VERSION}")
    monkeypatch.setenv("URL", str(tmp_path / "other"))
    assert release() == git("-C", tmp_path / "other", "rev-parse", "HEAD")
