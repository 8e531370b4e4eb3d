"""Kernels run a notebook once, with its claims, without the user's settings of figures, and rounded if asked."""

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext

import build
import nbformat
import pytest
from jupyter_cache import get_cache
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook_rules import ROOT
from test_build import checkout, keys, write

TEN = "print('10 %', end='\\r', flush=True)\nprint('100 %')"


def test_a_notebook_runs_once_and_jupyter_book_finds_what_it_gave(checkout, monkeypatch, capfd):
    write(checkout, "01_good", TEN)
    build.execute()
    assert "2 notebooks, 2 to execute" in capfd.readouterr().out
    write(checkout, "01_good", TEN, prose="# Another title", alt="Another line.")
    monkeypatch.setattr(build, "BUILD", checkout / "of another clone")
    build.execute()
    assert "2 notebooks, 0 to execute" in capfd.readouterr().out
    build.fill_cache()
    source = nbformat.read(checkout / "notebooks/01_good.ipynb", as_version=4)
    _, merged = get_cache(build.CACHE).merge_match_into_notebook(source)
    assert merged.cells[1].outputs[0].text == "100 %\n"  # the last state of a progress bar
    assert merged.cells[1].metadata.mystnb.image.alt == "Another line."

    write(checkout, "02_other", "first = 1", "raise ValueError(f'no good: {first}')")
    with pytest.raises(SystemExit, match=r"failed: 02_other\.ipynb"):
        build.execute()
    assert "no good: 1" in capfd.readouterr().out
    with pytest.raises(SystemExit, match=r"not executed yet: 02_other\.ipynb"):
        build.html()


def test_claims_run_with_their_chapter_and_are_not_kept(checkout, monkeypatch, capfd):
    (checkout / "tests/claims").mkdir(parents=True)
    shutil.copy(ROOT / "tests/claiming.py", checkout / "tests")
    monkeypatch.setattr(build.claiming, "CLAIMS", checkout / "tests/claims")
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), new_code_cell("n = 4", id="one")])
    nbformat.write(notebook, checkout / "notebooks/01_good.ipynb")
    seen = [keys()["01_good"]]
    for number in (5, 4):
        lines = [
            "from claiming import after, claim",
            "@after('one')",
            "def _(n):",
            f"    claim('as told', n == {number})",
        ]
        (checkout / "tests/claims/good.py").write_text("\n".join(lines))
        build.claiming.module.cache_clear()
        seen.append(keys()["01_good"])
        with pytest.raises(SystemExit) if number == 5 else nullcontext():
            build.execute(chapters=["01_good"])
        assert ("the text says “as told”; here: n = 4" in capfd.readouterr().out) == (number == 5)
    assert len(set(seen)) == 3
    [kept] = build.KEPT.glob("01_good-*.ipynb")
    assert [cell.source for cell in nbformat.read(kept, as_version=4).cells] == ["# Title", "n = 4"]


def test_no_setting_of_the_user_s_reaches_a_figure(checkout, tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    (home / "matplotlibrc").write_text("lines.linewidth: 9\n")
    for name, value in {"MPLCONFIGDIR": home, "MATPLOTLIBRC": home, "MPLBACKEND": "agg"}.items():
        monkeypatch.setenv(name, str(value))
    asked = "import matplotlib; print(matplotlib.rcParams['lines.linewidth'], 'inline' in matplotlib.get_backend())"
    write(checkout, "01_good", asked)

    def printed(environment: dict[str, str]) -> str:
        path = tmp_path_factory.mktemp("run") / "good.ipynb"
        assert build.run(nbformat.read(checkout / "notebooks/01_good.ipynb", as_version=4), path, environment)
        return build.code_cells(nbformat.read(path, as_version=4))[0].outputs[-1].text

    assert printed(build.surroundings()) == "1.5 True\n"
    assert printed(dict(os.environ)) == "9.0 False\n"  # what those settings would do


def test_with_rounding_a_training_starts_a_millionth_off():
    code = """
import copy, runpy, torch
runpy.run_path("book/rounding.py", run_name="__main__")
layer, norm = torch.nn.Linear(3, 5), torch.nn.LayerNorm(4)
twin, before = copy.deepcopy(layer), layer.weight.detach().clone()
for module in (layer, twin, norm):
    torch.optim.SGD(module.parameters(), lr=0.1)
assert torch.equal(layer.weight, twin.weight) and bool((norm.weight == 1).all())
assert 0 < (layer.weight - before).abs().max() < 1e-5
"""
    environment = os.environ | {"VIT_TUTORIAL_ROUNDING": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
