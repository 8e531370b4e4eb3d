"""book/colab.py runs a chapter where a reader of Colab would: alone, with the package from git and nowhere else."""

import colab
from nbformat import write
from nbformat.v4 import new_code_cell, new_notebook
from notebook_rules import ROOT, SLUG, VERSION

ALONE = f"""
import importlib.util, os, subprocess, torch
assert os.listdir() == ["01_small.ipynb"] and importlib.util.find_spec("vit_tutorial") is None
release = ["git", "ls-remote", "--exit-code", "https://github.com/{SLUG}", "refs/tags/v{VERSION}"]
assert subprocess.run(release).returncode == 0
print("printed")
"""


def test_a_chapter_is_alone_and_fails_on_an_error_or_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "released").mkdir()
    variables = colab.released(tmp_path / "released")

    def wrong(code: str) -> str:
        write(new_notebook(cells=[new_code_cell(code)]), tmp_path / "01_small.ipynb")
        return colab.problems(tmp_path / "01_small.ipynb", variables)

    assert wrong(ALONE) == ""
    assert "no good" in wrong("raise ValueError('no good')")
    assert "UserWarning: be warned" in wrong("import warnings\nwarnings.warn('be warned')")
