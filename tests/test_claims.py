"""What the chapters say of the recorded runs in words is what was recorded."""

import re
from functools import cache
from itertools import pairwise

import torch

from vit_tutorial.runs import FOLDER, load_metrics, recorded_runs
from vit_tutorial.what_matters import SWEEPS, effect_interval, read_rows


@cache
def rows_of(sweep: str) -> list[dict]:
    """All recorded runs of a sweep."""
    return read_rows(FOLDER / f"sweeps/{sweep}.jsonl", SWEEPS[sweep])


def recorded(sweep: str, key: str) -> dict[str, list[float]]:
    """One column of a sweep's recorded runs, by recipe: a value for each seed. Runs that broke are left out."""
    values = {}
    for row in rows_of(sweep):
        if "broke" not in row:
            values.setdefault(row["variant"], []).append(row[key])
    return values


def points(sweep: str, key: str = "test_accuracy") -> dict[str, list[float]]:
    """One column of accuracies in per cent."""
    return {name: [100 * share for share in shares] for name, shares in recorded(sweep, key).items()}


def effect_of(values: dict[str, list[float]], variant: str, base: str) -> tuple[float, float, float]:
    """How far a recipe's mean is from that of its base, and the two ends of the 95 % interval."""
    return effect_interval(*(torch.tensor(values[name]).double() for name in (base, variant)))


def runs_of(name: str) -> list[dict]:
    """The recorded runs of a name, one for each seed."""
    return [load_metrics(run) for run in recorded_runs() if re.fullmatch(rf"{name}(-\d)?", run)]


def test_what_chapter_6_says_of_the_recorded_runs():
    def wrong(name: str, *, val: bool = False) -> list[float]:
        return [1 - (r["history"][-1]["val_accuracy"] if val else r["test"]["accuracy"]) for r in runs_of(name)]

    silent = [(torch.tensor(run["test"]["confusion"]).sum(0) == 0).any().item() for run in runs_of("mnist-seed")]
    assert silent.count(True) == 1  # "has lost a digit"
    small, large = wrong("mnist"), wrong("mnist-patch14")
    assert max(small) > min(large) and max(large) > min(small)  # "runs overlap"
    narrow = {size: wrong(f"mnist-fixed{size}", val=True) for size in ("", "-patch7", "-patch4")}
    assert min(narrow["-patch7"]) > max(narrow[""])
    _, low, high = effect_of(narrow, "-patch4", "")
    assert low < 0 < high
    assert max(wrong("mnist", val=True)) < min(wrong("mnist-plain", val=True))
    learned = [run["history"][-1]["train_accuracy"] for name in ("mnist", "mnist-plain") for run in runs_of(name)]
    assert learned[-1] == max(learned)


def test_what_chapter_7_says_of_the_mild_recipe_is_what_was_recorded():
    def curves(name: str) -> tuple[list[float], list[float], int]:
        history = load_metrics(name)["history"]
        train, val = ([entry[f"{part}_accuracy"] for entry in history] for part in ("train", "val"))
        return train, val, val.index(max(val))

    train, val, best = curves("cifar10-tiny-mild")
    assert 0.4 < best / len(val) < 0.6  # "half way"
    assert val[-1] < val[best] - 0.01 and train[-1] > train[best] + 0.01  # one turns down, the other climbs
    _, harder, its_best = curves("cifar10-tiny")
    assert its_best > best and harder[its_best] - harder[-1] < val[best] - val[-1]  # "later and less"
    tested = [load_metrics(name)["test"]["accuracy"] for name in ("cifar10-tiny", "cifar10-tiny-mild")]
    assert harder[-1] > val[-1] and tested[0] > tested[1]  # "ends higher"


def test_what_chapter_7_says_of_the_first_tutorial_is_what_was_recorded():
    run = load_metrics("cifar10-tiny-seed")
    assert 0.71 < run["test"]["accuracy"] < 0.755  # above the other's 60 by "more than ten", below its own figure
    assert "JPEG" in run["data"] and run["images"] == {"train": 45_000, "val": 5_000}
    short = load_metrics("cifar10-tiny-seed-10-passes")
    unlike = {key for key, value in run["recipe"].items() if short["recipe"][key] != value}
    assert unlike == {"epochs", "init"} and run["recipe"]["schedule"] == "constant"
    ours, theirs = (100 * found["history"][9]["val_accuracy"] for found in (run, short))
    assert ours > theirs + 2  # "some points"


def test_what_chapter_7_says_of_the_second_tutorial_is_what_was_recorded():
    ours = load_metrics("cifar10-small")
    assert round(100 * ours["test"]["accuracy"] - 60) == 25 and round(100 * ours["test"]["accuracy"] - 76.8) == 8
    assert ours["recipe"]["epochs"] == 30 and "JPEG" in ours["data"]
    runs = [load_metrics(f"cifar10-small{end}-10-passes") for end in ("", "-seed")]
    short, theirs = ([entry["val_accuracy"] for entry in run["history"]] for run in runs)
    assert len(short) == len(theirs) == 10
    assert all(one > other for one, other in zip(short, theirs, strict=True))  # "after every one of them"
    tested = [run["test"]["accuracy"] for run in runs]
    assert round(100 * (short[-1] - theirs[-1])) == round(100 * (tested[0] - tested[1])) == 19  # "at the end by 19"
    assert runs[0]["history"][-1]["train_accuracy"] > short[-1]  # "had passed"
    magnitudes = [run["recipe"]["augment"]["rand_magnitude"] for run in (runs[0], ours)]
    assert magnitudes == [0.3, 0.5]
    first = load_metrics("cifar10-small-glorot-20-passes")
    assert first["test"]["accuracy"] < ours["test"]["accuracy"]
    unlike = {key for key, value in first["recipe"].items() if ours["recipe"][key] != value}
    assert unlike == {"epochs", "lr", "init", "label_smoothing", "augment"}
    assert first["recipe"]["init"] == "xavier" and first["recipe"]["lr"] == 4 * ours["recipe"]["lr"]


def test_what_chapter_7_says_of_the_better_start_is_what_was_recorded():
    found = {name: value for name, (value,) in points("cifar10-small", "val_accuracy").items()}
    base = found["base"]
    mimetic = [found[f"mimetic-init{rate}"] for rate in ("", "-lr-0.002", "-lr-0.001", "-lr-0.0005")]
    assert 0.5 < found["lr-0.0015"] - base < 1.5  # "brings one"
    assert 1.5 < found["positions-2d"] - base < 2.5  # "fixed, bring two points"
    assert 5.5 < mimetic[0] - base < 6.5  # "brings six at the base's own rate"
    steps = [later - before for before, later in pairwise(mimetic)]
    assert [round(step) for step in steps] == [3, 2, -1]  # "about three and two points more", "takes one back"
    assert [round(value) for value in (base, max(mimetic))] == [57, 68]
    assert 9 < max(mimetic) - found["lr-0.0015"] < 10.5  # "each at the best rate tried for it by about ten"
    ablation = points("cifar10", "val_accuracy")
    means = {name: sum(values) / len(values) for name, values in ablation.items()}
    assert 1.5 < means["base"] - means["rand-augment"] < 2.5  # "cost the smaller model two points"
    assert max(ablation["base"]) - min(ablation["base"]) < 1  # "within a point of each other"


def test_what_chapter_7_says_of_mistakes_is_what_was_recorded():
    for run in map(load_metrics, recorded_runs()):
        if run["recipe"]["dataset"] == "cifar10":
            counts = torch.tensor(run["test"]["confusion"]).fill_diagonal_(0)
            worst = [divmod(place, 10) for place in counts.flatten().topk(3).indices.tolist()]
            assert (5, 3) in worst and (8, 0) not in worst  # dog and cat, ship and airplane


def test_what_chapter_7_says_of_the_learning_rates_is_what_was_recorded():
    base = SWEEPS["cifar10"].recipes["base"].lr
    losses = {base: recorded("cifar10", "val_loss")["base"][0]}  # seed 0, as the others have
    accuracies = {base: recorded("cifar10", "val_accuracy")["base"][0]}
    for name in SWEEPS["cifar10-lr"].recipes:
        rate = SWEEPS["cifar10-lr"].recipes[name].lr
        (losses[rate],) = recorded("cifar10-lr", "val_loss")[name]
        (accuracies[rate],) = recorded("cifar10-lr", "val_accuracy")[name]
    best = min(losses, key=losses.get)
    assert best == base and len(losses) == 6 and abs(losses[0.003] - losses[0.01]) < 0.01  # "not told apart"
    assert 0.02 < accuracies[best] - accuracies[best / 10] < 0.1  # "some points"
    assert 0.5 < accuracies[4 * best] / accuracies[best] < 0.6  # "nearly half of it"
