"""What the kernels that run the notebooks get from the user's machine: nothing that a figure would show."""

import os

import build
import nbformat
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
