"""Borrowed weights on few images: what is drawn, what is trained, and the rows that were recorded."""

import re
from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import Ridge

from vit_tutorial.data import Dataset, load_dataset
from vit_tutorial.pretrained import (
    PENALTIES,
    SHARPNESS,
    adapt,
    draw_per_class,
    few_images,
    fine_tune,
    norms_and_biases,
    with_probe,
)
from vit_tutorial.recipes import RECIPES, make_model
from vit_tutorial.runs import load_recorded
from vit_tutorial.training import evaluate, predict

RECIPE = replace(
    RECIPES["digits"], epochs=2, batch_size=16, lr=1e-2, model=replace(RECIPES["digits"].model, embed_dim=12, depth=2)
)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", "train")


def noise_of(counts: list[int]) -> Dataset:
    """Images that are all different, ``counts`` of them in each class."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    images = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
    return Dataset(images, labels, tuple("abcdefgh"[: len(counts)]), "noise")


# Drawing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("per_class", "held_out"), [(2, 1), (4, 1), (10, 2)])
def test_each_class_has_its_images_and_a_fifth_of_them_validate(per_class, held_out):
    train, val = draw_per_class(noise_of([12, 10, 31]), per_class, seed=0)
    assert train.labels.bincount().tolist() == 3 * [per_class - held_out]
    assert val.labels.bincount().tolist() == 3 * [held_out]
    both = torch.cat([train.images, val.images])[:, 0, 0, 0]
    assert len(both.unique()) == 3 * per_class, "an image is in both, or twice in one"


def test_a_draw_follows_from_its_seed():
    one, again, other = (draw_per_class(noise_of([40, 40]), 10, seed)[0].images for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.parametrize(
    ("per_class", "message"),
    [(11, "at most 10, the number of images of b, got 11"), (1, "per_class must be an int of at least 2, got 1")],
)
def test_what_cannot_be_drawn(per_class, message):
    with pytest.raises(ValueError, match=message):
        draw_per_class(noise_of([12, 10]), per_class, seed=0)


# Training ------------------------------------------------------------------------------------------------------------


def test_the_probe_is_the_best_ridge_of_scikit_learn(digits):
    backbone = make_model(RECIPE)
    train, val = draw_per_class(digits, 20, seed=0)
    probed = with_probe(backbone, train, val, RECIPE)
    headless = adapt(backbone, num_classes=0)
    features, held_out = (predict(headless, part, RECIPE).numpy() for part in (train, val))
    targets = 2 * torch.eye(10)[train.labels].numpy() - 1
    fitted = [Ridge(penalty).fit(features, targets) for penalty in PENALTIES]
    right = [(ridge.predict(held_out).argmax(1) == val.labels.numpy()).mean() for ridge in fitted]
    assert len(set(right)) > 2, "the penalties don't matter here, so this would prove nothing"
    best = fitted[right.index(max(right))]
    logits = predict(probed, val, RECIPE)
    factors = logits / torch.from_numpy(best.predict(held_out)).float()
    assert min(abs(factors.median() - sharp) for sharp in SHARPNESS) < 0.01
    torch.testing.assert_close(factors, factors.median().expand_as(factors), rtol=0.02, atol=0)
    assert evaluate(probed, val, RECIPE)["accuracy"] == pytest.approx(max(right))


def test_a_probe_takes_other_classes_and_leaves_the_backbone_as_it_was(digits):
    backbone = make_model(RECIPE)
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    two = Dataset(digits.images[:60], digits.labels[:60] % 2, ("even", "odd"), "parity")
    probed = with_probe(backbone, two[:40], two[40:], RECIPE)
    assert probed.config.num_classes == 2 and probed is not backbone
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, before[name])
        assert name.startswith("head.") or torch.equal(value, probed.state_dict()[name])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_only_norms_biases_and_the_head_move(digits, optimizer):
    model = make_model(RECIPE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = replace(RECIPE, optimizer=optimizer)
    few, all_of_it = (
        fine_tune(model, *draw_per_class(digits, 10, 0), config, *trains) for trains in ((norms_and_biases,), ())
    )
    moved = {name for name, value in few.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {name for name, value in few.named_parameters() if value.ndim == 1 or name.startswith("head.")}
    assert {"blocks.0.norm1.weight", "blocks.1.mlp.fc2.bias", "head.weight"} < moved
    assert all(not torch.equal(value, before[name]) for name, value in all_of_it.named_parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not few.training and not all_of_it.training


# Measuring -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_task(monkeypatch):
    """Digits with a tiny model, whose weights are borrowed from a model that was never trained."""
    task = few_images.Task("digits", RECIPE, "none", scratch={10: 1, 60: 1}, further={10: 1, 60: 1})
    monkeypatch.setattr(few_images, "TASKS", {"small": task})
    monkeypatch.setattr(few_images, "load_recorded", lambda run: (make_model(RECIPE), RECIPE))
    for cached in (few_images._images, few_images._probed):
        cached.cache_clear()


def test_an_interrupted_recording_goes_on_and_large_draws_share_a_rate(small_task, tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    runs = [("small", n, "all weights", seed) for n in (10, 60) for seed in (0, 1)]
    first = few_images.record(runs[:3], file)
    file.write_bytes(file.read_bytes() + b'{"task": "small", "per_cl')  # killed while it wrote
    with pytest.warns(UserWarning, match="line 4 is truncated: its run does not count"):
        rows = few_images.record(runs, file)
    assert rows[:3] == first
    assert [(row["task"], row["per_class"], row["way"], row["seed"]) for row in rows] == runs
    assert [len(row["val_accuracies"]) for row in rows] == [3, 3, 3, 1]  # 20 images choose for their own draw only
    assert rows[3]["rate"] == rows[2]["rate"]
    monkeypatch.setattr(few_images, "measure", lambda *args, **kwargs: pytest.fail("it trains again"))
    assert few_images.record(runs, file) == rows


@pytest.mark.parametrize("way", ["from scratch", "norms and biases", "all weights"])
def test_validation_images_choose_the_rate(small_task, monkeypatch, way):
    def planted(model, train, val, config, trains=None):
        model.lr = config.lr
        return model

    def by_rate(model, dataset, config):
        on_test = len(dataset) == 360
        best, nearly = (0.1, 1.0) if on_test else (0.3, 0.1)  # the test images would choose another
        lr = getattr(model, "lr", 0) / RECIPE.lr
        return {"accuracy": 0.9 if lr == pytest.approx(best) else 0.5, "loss": abs(lr - nearly)}

    monkeypatch.setattr(few_images, "fine_tune", lambda model, *args: planted(adapt(model, num_classes=9), *args))
    monkeypatch.setattr(few_images, "evaluate", by_rate)
    row = few_images.measure("small", 10, way, 0)
    assert (row["rate"], row["test_accuracy"], row["epochs"]) == (0.3, 0.5, 1)
    assert row["val_accuracies"] == {"0.1": 0.5, "0.3": 0.9, "1": 0.5}


def test_a_probe_has_no_rate_to_choose(small_task):
    row = few_images.measure("small", 10, "linear probe", 0)
    assert (row["rate"], row["epochs"], row["val_accuracies"].keys()) == (0, 0, {"0"})
    assert row["val_images"] == 20 and row["test_images"] == 360 and row["seconds"] >= 0


def test_the_recorded_rows_are_whole():
    rows = few_images.load_few_images()
    names = [(row["task"], row["per_class"], row["way"], row["seed"]) for row in rows]
    assert len(set(names)) == len(names)
    for row in rows:
        task = few_images.TASKS[row["task"]]
        assert row["commit"] and not row["commit"].endswith("+"), "recorded from a checkout with changes"
        assert row["lr"] == task.recipe.lr and row["backbone"] == task.backbone
        scratch = row["way"] == "from scratch"
        epochs = (task.scratch if scratch else task.further)[row["per_class"]]
        assert row["epochs"] == (0 if row["way"] == "linear probe" else epochs)
        best = max(row["val_accuracies"].values())
        assert row["val_accuracies"][f"{row['rate']:g}"] == best
    by_task = few_images.by_task(rows)
    assert set(by_task) == set(few_images.TASKS)
    for ways in by_task.values():
        assert {len(draws) for found in ways.values() for draws in found.values()} <= {2, few_images.DRAWS}


def test_the_table_s_numbers_by_hand():
    row = {"task": "drawings", "per_class": 10, "test_images": 400, "seconds": 90.0}
    rows = [
        row | {"way": "all weights", "test_accuracy": 0.4, "seconds": 150.0},
        row | {"way": "all weights", "test_accuracy": 0.6},
        *(row | {"way": "from scratch", "test_accuracy": accuracy} for accuracy in (0.02, 0.01, 0.03)),
        row | {"task": "photographs", "per_class": 100, "way": "linear probe", "test_accuracy": 1.0},
        row | {"per_class": 9, "way": "linear probe", "test_accuracy": 0.0, "test_images": 20},
    ]
    table = few_images.summary(rows)
    assert list(table) == ["images", "of each class", *few_images.WAYS]
    assert list(zip(table["images"], table["of each class"], strict=True)) == [
        ("photographs", 100),
        ("drawings", 9),
        ("drawings", 10),
    ]
    # Wilson's: 1.96 √(p (1 − p) / n + 1.96² / 4 n²) / (1 + 1.96² / n), with n = 400 or 20
    assert table["all weights"] == ["", "", "50.0% ± 4.9%, 90.0 s, 2 draws"]
    assert table["from scratch"] == ["", "", "2.0% ± 1.4%, 90.0 s"]
    assert table["linear probe"] == ["100.0% ± 0.5%, 90.0 s, 1 draw", "0.0% ± 8.1%, 90.0 s, 1 draw", ""]


@pytest.mark.parametrize(("task", "times"), [("photographs", 1), ("large drawings", 2)])
def test_weights_lent_to_larger_images_see_them_as_if_they_were_shrunk(task, times):
    lender, lent = load_recorded(few_images.TASKS[task].backbone)[0], few_images._lent(task)
    images = torch.randn(3, 3, 32 * times, 32 * times, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        shrunk = torch.nn.functional.avg_pool2d(images, times)
        torch.testing.assert_close(lent(images), lender(shrunk), rtol=0, atol=1e-4)


def test_no_borrowed_weights_have_seen_what_they_are_tried_on():
    for task in few_images.TASKS.values():
        seen, own = load_recorded(task.backbone)[1], task.recipe
        apart = seen.classes and own.classes and set(seen.classes).isdisjoint(own.classes)
        assert seen.dataset != own.dataset or apart


# What train says before it starts ------------------------------------------------------------------------------------


@pytest.fixture
def planted(monkeypatch):
    rows = [
        {"task": task, "way": way, "per_class": n, "test_accuracy": accuracy}
        for task, way, n, accuracy in (
            ("photographs", "from scratch", 10, 0.31),
            ("photographs", "from scratch", 10, 0.33),
            ("photographs", "linear probe", 10, 0.5),
            ("photographs", "from scratch", 1000, 0.6),
            ("photographs", "linear probe", 1000, 0.7),
            ("drawings", "from scratch", 10, 0.2),
        )
    ]
    monkeypatch.setattr(few_images, "load_few_images", lambda: rows)


@pytest.mark.parametrize(
    ("per_class", "told"),
    [
        (1, ["10 images", "32%, linear probe 50%", "10 images", "20%"]),
        (90, ["10 images", "32%, linear probe 50%", "10 images", "20%"]),
        (101, ["1,000 images", "60%, linear probe 70%"]),  # drawings were only measured with less than a tenth
        (10**6, ["1,000 images", "60%, linear probe 70%"]),
    ],
)
def test_the_nearest_size_is_told(planted, per_class, told):
    _, *lines, advice = few_images.expected(per_class)
    assert re.findall(r"^  (\S+ images) a class, .*: from scratch (.*)$", "\n".join(lines), re.MULTILINE) == [
        *zip(told[::2], told[1::2], strict=True)
    ]
    assert "trains from scratch" in advice and "chapter 9" in advice


def test_there_is_no_size_below_one(planted):
    with pytest.raises(ValueError, match="per_class must be an int of at least 1, got 0"):
        few_images.expected(0)
