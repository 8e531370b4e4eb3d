"""What the kernels that run the notebooks get from the user's machine, and how a notebook that fails is told."""

import json
import os
import subprocess
import sys

import build
import nbformat
import pytest
from test_build import checkout, outdated, write


def test_no_setting_of_the_user_s_reaches_a_figure(checkout, tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    (home / "matplotlibrc").write_text("lines.linewidth: 9\n")
    asked = "import matplotlib, matplotlib.font_manager; print(matplotlib.rcParams['lines.linewidth'])"
    subprocess.run([sys.executable, "-c", asked], env={"MPLCONFIGDIR": str(home)}, check=True)
    [listed] = home.glob("fontlist-*.json")
    fonts = json.loads(listed.read_text())
    fonts["ttflist"] = [font for font in fonts["ttflist"] if font["name"] != "STIXGeneral"]
    listed.write_text(json.dumps(fonts))
    monkeypatch.setenv("MPLCONFIGDIR", str(home))
    monkeypatch.setenv("MATPLOTLIBRC", str(home))
    monkeypatch.setenv("MPLBACKEND", "agg")
    has_stix = "any(font.name == 'STIXGeneral' for font in matplotlib.font_manager.fontManager.ttflist)"
    write(checkout, "01_good", asked, "print('inline' in matplotlib.get_backend())", f"print({has_stix})")

    def printed(environment: dict[str, str]) -> list[str]:
        source = nbformat.read(checkout / "notebooks" / "01_good.ipynb", as_version=4)
        path = tmp_path_factory.mktemp("run") / "good.ipynb"
        assert build.run(source, path, environment)
        outputs = [output for cell in build.code_cells(nbformat.read(path, as_version=4)) for output in cell.outputs]
        return [output.text.strip() for output in outputs if output.name == "stdout"]

    ours = build.surroundings()
    assert ours["VIT_TUTORIAL_CHECK"] == "1"  # a claim that fails ends the run
    assert printed(ours) == ["1.5", "True", "True"]
    assert printed(dict(os.environ)) == ["9.0", "False", "False"]  # what those settings would do


def test_a_failing_notebook_shows_its_cell_and_is_run_again_alone(checkout, capfd):
    write(checkout, "02_other", "first = 1", "raise ValueError(f'no good: {first}')")
    with pytest.raises(SystemExit, match=r"failed: 02_other\.ipynb"):
        build.execute()
    shown = capfd.readouterr().out
    assert "raise ValueError(f'no good: {first}')" in shown
    assert "no good: 1" in shown
    assert outdated() == ["02_other"]
    with pytest.raises(SystemExit, match=r"not executed yet: 02_other\.ipynb"):
        build.html()
