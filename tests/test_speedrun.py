"""The speedrun's single file trains the recipe of the latest record, and its page shows the recorded runs."""

import ast
import importlib.util
import os
import pickle
import re
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from _ext.lab_notebook import RECORDS, Lab
from fake_data import as_python_2, write_cifar_batches
from notebook_rules import ROOT, page
from scipy import stats

from vit_tutorial.data import Dataset, load_dataset, sources
from vit_tutorial.recipes import RECIPES, make_model
from vit_tutorial.runs import attend_for, load_metrics
from vit_tutorial.training import fit

FILE = ROOT / "benchmarks" / "speedrun.py"
RECIPE = RECIPES[[*RECORDS][-1]]


@pytest.fixture
def speedrun(monkeypatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("speedrun", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    return module


def differing(ours: torch.nn.Module, theirs: torch.nn.Module) -> list[str]:
    """The parameters of ours, by name, that are not bit for bit those of theirs, which come in the same order."""
    pairs = zip(ours.named_parameters(), theirs.parameters(), strict=True)
    return [name for (name, a), b in pairs if not torch.equal(a, b)]


def test_the_file_is_short_and_needs_torch_alone():
    source = FILE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 200
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"torch"}


@pytest.mark.parametrize("seed", [0, 4])
def test_the_whole_model_starts_as_the_recipe_s(speedrun, seed):
    torch.manual_seed(seed)
    ours = speedrun.ViT()
    assert differing(ours, make_model(replace(RECIPE, seed=seed))) == []
    assert differing(ours, make_model(replace(RECIPE, seed=seed + 1))) == [
        name for name, parameter in ours.named_parameters() if parameter.ndim > 1 and name != "pos_embed"
    ]


def test_it_trains_the_recipe_s_weights(speedrun, monkeypatch, capsys):
    """With all settings but three: two blocks, batches of 5 and 3 images, and an EMA that few steps can tell."""
    assert (RECIPE.batch_size, RECIPE.model.depth, RECIPE.ema) == (speedrun.BATCH, speedrun.DEPTH, speedrun.EMA)
    for setting, small in {"BATCH": 5, "DEPTH": 2, "EMA": 0.8}.items():
        monkeypatch.setattr(speedrun, setting, small)
    recipe = replace(RECIPE, batch_size=5, model=replace(RECIPE.model, depth=2), ema=0.8, seed=3)
    labels = torch.arange(20) % 10
    images = (25 * labels[:, None, None, None] + torch.randint(30, (20, 3, 32, 32))).byte()
    train, val = (Dataset(images[part], labels[part], tuple("0123456789"), "") for part in (slice(8), slice(8, 20)))
    theirs = attend_for(make_model(recipe), "cpu", recipe.precision)
    history = fit(theirs, train, val, recipe, progress=False)
    ours, accuracies = speedrun.train(images[:8], labels[:8], (images[8:], labels[8:]), seed=3)
    assert differing(ours, theirs) == []
    assert accuracies == [epoch["val_accuracy"] for epoch in history]
    assert len({*accuracies}) > 1  # it learned something
    assert capsys.readouterr().out.count("validation") == RECIPE.epochs


def test_it_reads_the_files_and_splits_them_as_the_package_does(speedrun, monkeypatch, tmp_path):
    assert speedrun.HELD_OUT == sources.VAL_IMAGES
    monkeypatch.setattr(sources, "VAL_IMAGES", 7)
    monkeypatch.setattr(speedrun, "HELD_OUT", 7)
    monkeypatch.setattr(speedrun, "TRAIN", 50)
    write_cifar_batches(tmp_path, monkeypatch)
    theirs = [load_dataset("cifar10", split, root=tmp_path) for split in ("train", "val", "test")]
    monkeypatch.setitem(sys.modules, "numpy", None)  # importing it fails now
    ours = speedrun.load(tmp_path / "cifar-10-batches-py")
    assert [len(labels) for _, labels in ours] == [43, 7, 10]
    for (images, labels), dataset in zip(ours, theirs, strict=True):
        assert torch.equal(images, dataset.images) and torch.equal(labels, dataset.labels)


def test_a_file_s_code_does_not_run(speedrun, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "batch").write_bytes(pickle.dumps(Evil()))
    with (tmp_path / "batch").open("rb") as file:
        assert isinstance(speedrun.Unpickler(file).load(), speedrun.Unpickler.Stored)
    assert not (tmp_path / "ran").exists()
    pickle.loads((tmp_path / "batch").read_bytes())
    assert (tmp_path / "ran").exists()  # so it would have


def test_a_pickle_of_python_2_by_hand():
    assert as_python_2({"a": [1, None]}) == b"\x80\x02}(T\1\0\0\0a](J\1\0\0\0Neu."
    assert pickle.loads(as_python_2({"a": [1, None]}), encoding="bytes") == {b"a": [1, None]}


def cells(table: str) -> list[list[str]]:
    """The texts of a table's rows, the head first."""
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_the_page_s_tables_are_the_recorded_runs():
    assert {*re.findall(r"\{\{ lab\.(\w+)\(\) \}\}", page("book/speedrun.md"))} == {
        "records", "record_changes", "record_seeds"
    }  # fmt: skip
    runs = [load_metrics("cifar10-speedrun" + seed) for seed in ("", "-1", "-2", "-3", "-4")]
    heads, *rows = cells(Lab().record_seeds())
    assert heads == ["record", "seed", "test, %", "validation, %", "minutes", "on", "torch", "commit"]
    assert rows == [
        [
            "cifar10-speedrun",
            str(seed),
            f"{100 * run['test']['accuracy']:.2f}",
            f"{100 * run['history'][-1]['val_accuracy']:.2f}",
            f"{run['seconds'] / 60:.1f}",
            run["device"],
            run["versions"]["torch"],
            run["commit"][:7],
        ]
        for seed, run in enumerate(runs)
    ]
    accuracies = torch.tensor([100 * run["test"]["accuracy"] for run in runs]).double()
    low, high = stats.ttest_1samp(accuracies.numpy(), 0).confidence_interval(0.95)
    (row,) = cells(Lab().records())[1:]
    assert row[1] == f"{accuracies.mean():.1f} ± {(high - low) / 2:.1f}" == "84.1 ± 0.3"
    assert row[3:6] == [str(len(runs)), f"{runs[0]['seconds'] / 60:.1f}", runs[0]["device"]]
    assert {run["data"] for run in runs} == {row[6]}
    assert {run["recipe"]["seed"] for run in runs} == {*range(len(runs))}
    assert all(run["seconds"] < 30 * 60 for run in runs if run["device"] == row[5])  # the rule
    assert [row[1:4] for row in cells(Lab().record_changes())[1:]] == [
        ["epochs", "30", "25"],
        ["lr", "0.001", "0.0015"],
        ["embed_dim", "192", "128"],
        ["num_heads", "3", "2"],
        ["pool", "cls", "mean"],
    ]
