"""The command line: overrides reach the recipe, errors are one line, and two processes train what one trains."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from vit_tutorial import cli, recorded
from vit_tutorial.cli import main
from vit_tutorial.data import NAMES
from vit_tutorial.recipes import RECIPES
from vit_tutorial.variants import Sweep

TINY = ["--model.depth=1", "--model.embed-dim=12", "--augment.crop=0", "--epochs=2", "--quiet", "--device=cpu"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def last_line(error: pytest.ExceptionInfo) -> str:
    """What an error prints; the exit code of a SystemExit that carries a message is 1."""
    assert isinstance(error.value.code, str)
    assert "\n" not in error.value.code
    return error.value.code


def test_train_and_evaluate(own_folder, capsys):
    main(["train", "digits", *TINY, "--seed", "3", "--augment.shift", "0.1"])
    metrics = json.loads((own_folder / "runs/digits-3/metrics.json").read_text())
    recipe = metrics["recipe"]
    assert (recipe["epochs"], recipe["model"]["depth"], recipe["seed"], recipe["augment"]["shift"]) == (2, 1, 3, 0.1)
    assert (recipe["lr"], recipe["model"]["num_heads"]) == (RECIPES["digits"].lr, RECIPES["digits"].model.num_heads)
    shown = f"digits-3: test accuracy {metrics['test']['accuracy']:.2%} after 2 passes"
    assert shown in capsys.readouterr().out
    main(["evaluate", "digits-3", "--device", "cpu"])
    assert f"recorded: {metrics['test']['accuracy']:.2%}" in capsys.readouterr().out


def test_record_writes_into_the_package(own_folder, monkeypatch):
    monkeypatch.setattr(cli, "FOLDER", own_folder / "package")
    monkeypatch.setattr(recorded, "FOLDER", own_folder / "package")
    main(["train", "digits", *TINY, "--record", "--name", "mine", "--no-weights"])
    assert [path.name for path in (own_folder / "package/mine").iterdir()] == ["metrics.json"]
    assert recorded.recorded_runs() == ["mine"]


def test_sweep_prints_runs_that_broke(own_folder, monkeypatch, capsys):
    ended = {"variant": "base", "seed": 0, "test_accuracy": 0.5}
    broken = {"variant": "base", "seed": 1, "broke": "the loss is nan at step 3 of 9"}
    monkeypatch.setattr(cli, "run_sweep", lambda *given, **options: [ended, broken])
    assert main(["sweep", "mnist", "--quiet", "--device", "cpu"]) in (0, None)
    printed = capsys.readouterr().out
    assert "base: test accuracy 50.00% (50.00%)" in printed
    assert "base: seed 1 broke: the loss is nan at step 3 of 9" in printed


def test_sweep_prints_means_and_writes_rows(own_folder, monkeypatch, capsys):
    base = replace(RECIPES["digits"], epochs=1, model=replace(RECIPES["digits"].model, embed_dim=12, depth=1))
    monkeypatch.setitem(cli.SWEEPS, "cifar10-lr", Sweep({"base": base, "decay-0": replace(base, weight_decay=0.0)}))
    command = ["sweep", "cifar10-lr", "--only", "decay-0", "--seeds", "0", "2", "--quiet", "--device", "cpu"]
    main(command)
    rows = [json.loads(line) for line in (own_folder / "runs/sweeps/cifar10-lr.jsonl").read_text().splitlines()]
    assert [(row["variant"], row["seed"]) for row in rows] == [("decay-0", 0), ("decay-0", 2)]
    accuracies = [row["test_accuracy"] for row in rows]
    shown = f"decay-0: test accuracy {sum(accuracies) / 2:.2%} ({accuracies[0]:.2%}, {accuracies[1]:.2%})"
    assert shown in capsys.readouterr().out
    before = (own_folder / "runs/sweeps/cifar10-lr.jsonl").read_text()
    main(command)
    assert (own_folder / "runs/sweeps/cifar10-lr.jsonl").read_text() == before


def test_data_reports_sizes(capsys, own_folder, monkeypatch):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(own_folder))
    main(["data", "digits", "shapes"])
    out = capsys.readouterr().out
    assert f"data root: {own_folder}" in out
    assert "digits: train 1,257, val 180, test 360" in out
    assert "shapes: train 20,000" in out


def test_data_without_names_means_all(monkeypatch, capsys):
    class Nothing:
        variant = "nothing"

        def __len__(self):
            return 0

    asked = []
    monkeypatch.setattr(cli, "load_dataset", lambda name, split: asked.append(name) or Nothing())
    main(["data"])
    assert set(asked) == set(NAMES)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(NAMES)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["evaluate", "nope"], "vit-tutorial: there is no finished run 'nope'"),
        (["data", "nope"], "vit-tutorial: name must be one of .*'nope'"),
        (["train", "digits", "--model.num-classes", "9"], "digits needs model.num_classes 10, the recipe has 9"),
        (["train", "digits", *TINY, "--lr", "1e30", "--clip-grad", "0"], "the loss is nan at step .* Try a lower lr"),
        (["sweep", "mnist", "--only", "nope"], "recipe of the sweep 'mnist' must be one of base, .*; got 'nope'"),
        (["train", "digits", *TINY, "--name", "\0"], "vit-tutorial: .*null"),
    ],
)
def test_errors_are_one_line(command, message, no_shape_checks):
    with pytest.raises(SystemExit) as error:
        main(command)
    assert re.search(message, last_line(error))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(SystemExit) as error:
        main(["train", "digits", "--device", "cuda"])
    assert "finds no CUDA GPU here; use --device cpu" in last_line(error)


def test_an_interrupted_run_says_how_to_go_on(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_recipe", stop)
    with pytest.raises(SystemExit) as error:
        main(["train", "digits"])
    assert "the same command goes on" in last_line(error)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "digits", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["train", "digits", "--bogus", "1"], "--bogus"),
        (["train", "imagenet"], "invalid choice: 'imagenet'"),
        (["evaluate", "digits", "--bogus"], "unrecognized arguments: --bogus"),
        ([], "required"),
    ],
)
def test_wrong_usage_is_named(command, message, capsys):
    with pytest.raises(SystemExit) as error:
        main(command)
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_help_lists_recipes_and_every_field(capsys):
    with pytest.raises(SystemExit) as error:
        main(["train", "mnist", "--help"])
    assert not error.value.code
    out = capsys.readouterr().out
    for part in (*RECIPES, "--record", "--epochs", "--model.depth", "--augment.mixup", "the highest learning rate"):
        assert part in out
    with pytest.raises(SystemExit) as error:
        main(["train", "--help"])
    assert not error.value.code


def test_two_processes_train_what_one_trains(own_folder):
    main(["train", "digits", *TINY, "--name", "one"])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "vit_tutorial", "train", "digits", *TINY, "--name", "two"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1  # one process speaks and writes
    one, two = (json.loads((own_folder / f"runs/{name}/metrics.json").read_text()) for name in ("one", "two"))
    assert (one["processes"], two["processes"]) == (1, 2)
    for first, second in zip(one["history"], two["history"], strict=True):
        for key in ("train_loss", "train_accuracy", "val_loss"):
            assert second[key] == pytest.approx(first[key], abs=1e-4), key
    assert two["test"]["loss"] == pytest.approx(one["test"]["loss"], abs=1e-4)
