"""What the README, the front page, the API page and the page on running say is so."""

import re
import textwrap
from pathlib import Path

import pytest
import torch
from _ext.cards import minutes
from notebook_rules import NOTEBOOKS, ROOT, code_of, page

from vit_tutorial import PRESETS
from vit_tutorial.archs import MODERN
from vit_tutorial.cli import duration
from vit_tutorial.clinic import PATIENTS
from vit_tutorial.data import data_root
from vit_tutorial.recipes import RECIPES
from vit_tutorial.runs import load_metrics, recorded_runs
from vit_tutorial.what_matters import SWEEPS

CHAPTERS = [path.stem for path in NOTEBOOKS]


def python_blocks(name: str) -> list[str]:
    """The Python on a page. Blocks in a list are indented."""
    return [
        textwrap.dedent(code) for code in re.findall(r"^ *```python\n(.*?)```", page(name), re.DOTALL | re.MULTILINE)
    ]


def test_the_readme_s_code_runs_and_prints_what_it_says(capsys):
    (code,) = python_blocks("README.md")
    exec(code, {})
    assert capsys.readouterr().out.strip() == re.search(r"# (.*)", code)[1]


def test_the_code_of_running_it_runs():
    (load_timm,) = python_blocks("book/running.md")
    exec(load_timm, scope := {})
    torch.testing.assert_close(scope["model"].state_dict(), dict(scope["timm_model"].state_dict()))


def test_minutes_come_from_the_notebooks(tmp_path):
    found = minutes(ROOT / "notebooks")
    assert list(found) == [f"minutes_{stem[:2]}" for stem in CHAPTERS]
    assert all(15 <= int(number) <= 120 for number in found.values())
    (tmp_path / "03_attention.ipynb").write_text("# 3 · Attention\n\nbadge · a while")
    with pytest.raises(ValueError, match=r"03_attention\.ipynb does not say"):
        minutes(tmp_path)


def test_the_front_page_s_figures():
    recipe = load_metrics("cifar10-small")
    model = recipe["recipe"]["model"]
    assert f"{recipe['images']['train']:,} photographs of 32 × 32 pixels" in page("book/intro.md")
    assert f"{recipe['parameters'] / 1e6:.1f} million parameters" in page("book/intro.md")
    assert model["img_size"] == [32, 32] and model["depth"] * model["num_heads"] == 18
    assert "from a published 92 % to 99 %" in page("README.md")
    assert 0.99 <= min(load_metrics(run)["test"]["accuracy"] for run in ("mnist", "mnist-1", "mnist-2")) < 1


def test_the_settings_of_running_it_are_read():
    quick = {stem for stem in CHAPTERS if 'os.environ.get("VIT_TUTORIAL_BUDGET", "full" if device' in code_of(stem)}
    assert quick == {"06_training", "07_recipes", "10_what_matters"}
    settings, read = (
        set(re.findall(r"VIT_TUTORIAL_\w+", page(f))) for f in ("book/running.md", "vit_tutorial/data/load.py")
    )
    assert settings == {"VIT_TUTORIAL_BUDGET", "VIT_TUTORIAL_DATA", "VIT_TUTORIAL_DOWNLOAD", "VIT_TUTORIAL_STRICT"}
    assert settings - {"VIT_TUTORIAL_BUDGET"} <= read


def test_running_it_names_the_folder_of_the_data(monkeypatch):
    for name in ("VIT_TUTORIAL_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (default,) = re.findall(r"`(~/\S+)`", page("book/running.md"))
    assert data_root() == Path(default).expanduser()


@pytest.mark.parametrize("names", [PRESETS, SWEEPS, PATIENTS, MODERN], ids=["PRESETS", "SWEEPS", "PATIENTS", "MODERN"])
def test_the_api_page_lists_the_names(names):
    assert f"Names: {', '.join(f'`{name}`' for name in names)}.\n" in page("book/api.md")


def test_modules_in_the_api_page_s_table_are_documented_on_it():
    rows = re.findall(r"^\| \[`(\w+)`\]\(api-\w+\) \|(.*)\|$", page("book/api.md"), re.MULTILINE)
    documented = set(re.findall(r"automodule:: vit_tutorial\.(\S+)", page("book/api.md")))
    assert len(rows) >= 20
    for module, words in rows:
        for name in re.findall(r"`(\w+)`", words):
            assert {f"{module}.{name}", name} & documented, name
        assert module in documented


def table(first_heading: str, name: str = "book/api.md") -> list[str]:
    """The rows of the page's table whose first column has this heading."""
    lines = page(name).split(f"| {first_heading} |")[1].splitlines()
    return lines[2 : lines.index("")]


def test_recipes_on_the_api_page_are_those_recorded():
    """Time is that of the fastest pass times the passes, for the machine may have had other work too."""
    rows = []
    for name, recipe in RECIPES.items():
        runs = [load_metrics(run) for run in recorded_runs() if re.fullmatch(rf"{name}(-\d)?", run)]
        data, cost, accuracy = recipe.dataset, "–", "–"
        if runs:
            passes = [(entry["seconds"], run["device"]) for run in runs for entry in run["history"]]
            seconds, device = min(passes)
            data, cost = runs[0]["data"], f"{duration(seconds * recipe.epochs)}, {device}"
            accuracy = ", ".join(f"{100 * run['test']['accuracy']:.2f}" for run in runs)
        rows.append(f"| `{name}` | {accuracy} | {cost} | {recipe.epochs} | {data} |")
    assert table("recipe") == rows
