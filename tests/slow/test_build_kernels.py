"""What the kernels that run the notebooks get: nothing of the user's that a figure shows, and rounding if asked."""

import os
import subprocess
import sys

import build
import nbformat
from notebook_rules import ROOT
from test_build import checkout, write


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
