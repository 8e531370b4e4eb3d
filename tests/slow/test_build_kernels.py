"""What the kernels that run the notebooks get from the user's machine: nothing that a figure would show."""

import json
import os
import subprocess
import sys

import build
import nbformat
from test_build import checkout, write


def test_no_setting_of_the_user_s_reaches_a_figure(checkout, tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    (home / "matplotlibrc").write_text("lines.linewidth: 9\n")
    asked = "import matplotlib, matplotlib.font_manager; print(matplotlib.rcParams['lines.linewidth'])"
    subprocess.run([sys.executable, "-c", asked], env={"MPLCONFIGDIR": str(home)}, check=True)
    [listed] = home.glob("fontlist-*.json")
    fonts = json.loads(listed.read_text())
    fonts["ttflist"] = [font for font in fonts["ttflist"] if font["name"] != "STIXGeneral"]
    listed.write_text(json.dumps(fonts))
    for name, value in {"MPLCONFIGDIR": home, "MATPLOTLIBRC": home, "MPLBACKEND": "agg"}.items():
        monkeypatch.setenv(name, str(value))
    has_stix = "any(font.name == 'STIXGeneral' for font in matplotlib.font_manager.fontManager.ttflist)"
    write(checkout, "01_good", asked, "print('inline' in matplotlib.get_backend())", f"print({has_stix})")

    def printed(environment: dict[str, str]) -> list[str]:
        path = tmp_path_factory.mktemp("run") / "good.ipynb"
        assert build.run(nbformat.read(checkout / "notebooks/01_good.ipynb", as_version=4), path, environment)
        outputs = [output for cell in build.code_cells(nbformat.read(path, as_version=4)) for output in cell.outputs]
        return [output.text.strip() for output in outputs if output.name == "stdout"]

    assert printed(build.surroundings()) == ["1.5", "True", "True"]
    assert printed(dict(os.environ)) == ["9.0", "False", "False"]  # what those settings would do
