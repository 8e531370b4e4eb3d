"""Old names go on working: in notebooks, commands, runs, sweeps and answers."""

import json
from pathlib import Path

import pytest

from vit_tutorial import recipes
from vit_tutorial.classroom.answers import find_answer, statements
from vit_tutorial.classroom.grading import read_points
from vit_tutorial.classroom.submissions import FORMAT, read_submissions
from vit_tutorial.cli import main
from vit_tutorial.config import PRESETS
from vit_tutorial.exercises import CHAPTERS, find
from vit_tutorial.old_names import OLD_NAMES, current_name
from vit_tutorial.runs import find_run, load_metrics, recorded_runs
from vit_tutorial.what_matters import SWEEPS, load_sweep

EXERCISES = {name for names in CHAPTERS.values() for name in names}
PLACES = {  # what a name may be the name of, and how one gets it
    "recipe": (recipes.RECIPES, recipes.RECIPES.__getitem__),
    "constant": (vars(recipes), lambda name: getattr(recipes, name)),
    "preset": (PRESETS, PRESETS.__getitem__),
    "exercise": (EXERCISES, find),
    "run": (recorded_runs(), find_run),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("old", OLD_NAMES)
def test_an_old_name_finds_what_the_new_one_does(old):
    found = [(get(old), get(OLD_NAMES[old])) for known, get in PLACES.values() if OLD_NAMES[old] in known]
    assert all(by_old is by_new or by_old == by_new for by_old, by_new in found)
    assert found or any(OLD_NAMES[old] in sweep.recipes for sweep in SWEEPS.values())


def test_an_old_name_warns_and_an_unknown_one_is_refused():
    with pytest.warns(DeprecationWarning, match="mnist_000 is now called building_a_vit"):
        PRESETS["mnist_000"]
    with pytest.warns(DeprecationWarning, match="MNIST_SEED is now called MNIST_PUBLISHED"):
        assert recipes.MNIST_SEED
    with pytest.raises(KeyError, match="mnist_001"):
        PRESETS["mnist_001"]
    with pytest.raises(AttributeError, match="has no attribute 'MNIST_SEEDS'"):
        assert recipes.MNIST_SEEDS


def test_recorded_files_are_read_under_the_new_names():
    assert load_metrics("mnist-logits")["name"] == "mnist-published"  # its file says mnist-seed
    assert "no-ema" in {row["variant"] for row in load_sweep("mnist")}  # no-average


def test_an_own_run_keeps_its_old_name(tmp_path, monkeypatch):
    monkeypatch.setattr("vit_tutorial.runs.OWN_RUNS", tmp_path)
    (tmp_path / "mnist-seed").mkdir()
    (tmp_path / "mnist-seed/metrics.json").touch()
    assert find_run("mnist-seed", own_first=True) == tmp_path / "mnist-seed"
    assert find_run("mnist-seed").name == "mnist-published"  # the chapters read what was recorded


def test_an_old_answer_counts_as_one_to_the_renamed_exercise(tmp_path):
    cell = (
        'def update_average(a, b, c, d):\n    return a\n\nupdate_average = exercise("update_average", update_average)'
    )
    answer = find_answer("update_ema", statements([("code", cell)]), EXERCISES)
    assert (answer.status, answer.source) == ("", "def update_ema(a, b, c, d):\n    return a\n")
    handed = json.dumps({"format": FORMAT, "answers": {"update_average": {"source": cell}}})
    (tmp_path / "hand-in.json").write_text(handed, encoding="utf-8")
    assert [file.only for file in read_submissions(tmp_path)] == ["update_ema"]
    (tmp_path / "points.toml").write_text("update_average = 2", encoding="utf-8")
    assert read_points(tmp_path / "points.toml") == {"update_ema": 2}


def test_the_command_takes_an_old_name_and_says_the_new_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["train", "mnist-seed", "--name", "mnist-seed", "--epochs", "0"])
    said = capsys.readouterr().err
    assert said.startswith("vit-tutorial: mnist-seed is now called mnist-published\nvit-tutorial: epochs must be")
    (tmp_path / "runs/mnist-seed").mkdir(parents=True)
    with pytest.raises(SystemExit):
        main(["train", "mnist-seed", "--epochs", "0"])
    assert f"{Path('runs/mnist-seed')} resumes with --name mnist-seed\n" in capsys.readouterr().err
    assert current_name("mnist-seed-7") == "mnist-seed-7"  # nobody recorded that: a run of somebody's own
