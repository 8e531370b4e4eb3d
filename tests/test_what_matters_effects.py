"""Effects of a sweep's changes, and their table."""

import math
from dataclasses import asdict, replace

import pytest
from scipy import stats

from vit_tutorial.archs import FIELDS, MODERN
from vit_tutorial.what_matters import (
    CHANGES,
    SWEEPS,
    accuracies,
    compare,
    effect,
    gains,
    load_sweep,
    p_value,
    single_changes,
)
from vit_tutorial.what_matters.effects import effect_text, seconds


def row(
    variant: str, val: float, test: float, seed: int = 0, spent: float = 9.6, device: str = "CPU", sweep: str = "mnist"
) -> dict:
    measured = {"val_accuracy": val, "test_accuracy": test, "seconds": spent, "device": device}
    return {"variant": variant, "seed": seed, "recipe": asdict(SWEEPS[sweep].recipes[variant]), **measured}


# By hand: validation means of 0.6 and 0.5; test means of 0.7 and 0.7.
ROWS = [row("base", 0.59, 0.7), row("base", 0.61, 0.7, 1), row("wide", 0.49, 0.69), row("wide", 0.51, 0.71, 1)]
ROWS += [row("deep", 0.63, 0.7)]


def test_a_table_by_hand():
    table = compare("Shape.", {"MNIST": ROWS, "no runs": []}, ["wide", "deep", "patch-4"])
    assert table.header == ("run", "test: effect", "val: effect", "test, %", "val, %", "runs", "s")
    assert table.rows == (
        ("MNIST, base", "", "", "70.0", "60.0", "2", "10"),
        # Standard error √(2 + 2) / √2 = 1.414 points; t of two degrees of freedom is 4.303, of one 12.706.
        ("wide", "+0.0 ± 12.7", "−10.0 ± 6.1 *", "70.0", "50.0", "2", "10"),
        ("deep", "+0.0", "+3.0", "70.0", "63.0", "1", "10"),  # a single run has no interval
    )


def test_an_effect_without_a_run_is_empty():
    assert math.isnan(effect(ROWS, "patch-4")[0]) and effect_text(effect(ROWS, "patch-4")) == ""


def test_seconds_are_those_of_the_fastest_run_on_the_common_machine():
    runs = [row("base", 0.5, 0.5, spent=spent) for spent in (10, 9, 8)]
    runs += [row("fraction-10", 0.5, 0.5, spent=7), row("base", 0.5, 0.5, spent=1, device="GPU")]
    assert seconds(runs, "base") == 7 and seconds(runs, "wide") is None


def test_pairs_of_equal_seeds_by_hand():
    rows = [row("base", 0.80, 0.8, 0), row("base", 0.90, 0.9, 1), row("base", 0.7, 0.7, 5)]
    rows += [row("wide", 0.92, 0.9, 1), row("wide", 0.83, 0.8, 0), row("wide", 0.3, 0.3, 4)]
    assert gains(rows, "wide").tolist() == pytest.approx([3, 2])  # seeds 0 and 1; 4 and 5 have no partner
    middle, low, high = effect(rows, "wide", by_seed=True)
    # A standard deviation of √½ and two runs: a standard error of ½; t of one degree of freedom is 12.706.
    assert (middle, high - middle, middle - low) == pytest.approx((2.5, 6.353, 6.353), abs=1e-3)
    assert p_value(rows, "wide", by_seed=True) == pytest.approx(0.126, abs=1e-3)  # t = 5: 1 − 2/π · arctan 5
    assert effect(rows, "wide")[0] == pytest.approx(100 * (2.05 / 3 - 0.8))  # all runs of both


def test_what_only_averages_weights_is_compared_seed_by_seed():
    rows = [row("base", 0.80, 0.8, 0), row("base", 0.90, 0.9, 1), row("base", 0.2, 0.2, 2)]
    rows += [row("no-ema", 0.81, 0.8, 0), row("no-ema", 0.93, 0.9, 1)]
    assert effect(rows, "no-ema") == effect(rows, "no-ema", by_seed=True) and effect(rows, "no-ema")[0] == 2
    one, none, same = rows[:4], rows[:3], [*rows[:3], row("no-ema", 0.8, 0, 0), row("no-ema", 0.9, 0, 1)]
    assert [math.isnan(effect(few, "no-ema")[0]) for few in (one, none, same)] == [False, True, False]
    assert all(math.isnan(effect(few, "no-ema")[1]) and math.isnan(p_value(few, "no-ema")) for few in (one, none, same))


def test_parts_of_today_by_hand_and_how_many_are_left_of_them():
    """Pairs of seeds 0 to 2; the base's other runs count only where runs are taken for independent."""
    bases = [row("base", val, val, seed, sweep="modern") for seed, val in enumerate((0.60, 0.61, 0.62, 0.99, 0.99))]
    gained = {"rope": (3, 3.1, 3.2), "registers": (1, 2, 3), "swiglu": (-1, 0, 1.3)}
    parts = [
        row(name, 0.6 + (seed + points) / 100, 0, seed, sweep="modern")
        for name, each in gained.items()
        for seed, points in enumerate(each)
    ]
    rows = parts + bases
    assert all(gains(rows, name).tolist() == pytest.approx(each) for name, each in gained.items())
    middle, low, high = effect(rows, "registers", by_seed=True)
    # Standard deviation 1 of three: standard error 0.577; t of two degrees of freedom is 4.303.
    assert (middle, high - middle, middle - low) == pytest.approx((2, 2.484, 2.484), abs=1e-3)
    luck = [p_value(rows, name, by_seed=True) for name in gained]
    # With two degrees of freedom p is 1 − t / √(t² + 2), here of t = 53.69, 3.464 and 0.150.
    assert luck == pytest.approx([3.47e-4, 0.0742, 0.895], rel=2e-3)
    # Benjamini and Hochberg: the smallest times 3, the next times 3/2, the largest as it is.
    assert stats.false_discovery_control(luck).tolist() == pytest.approx([1.04e-3, 0.1113, 0.895], rel=2e-3)
    assert effect(rows, "registers")[0] == pytest.approx(63 - 76.2)


def test_the_sweep_of_parts_changes_one_thing_at_a_time():
    """The part, the fields of the config that describe it, and nothing of the training."""
    sweep = SWEEPS["modern"]
    base, mean_pool, *_ = sweep.recipes.values()
    assert [name for name in sweep.recipes if name not in ("base", "mean-pool")] == [*MODERN]
    assert replace(base, precision="auto") == SWEEPS["cifar10"].recipes["base"]
    assert mean_pool == replace(SWEEPS["cifar10"].recipes["mean-pool"], precision="bf16")
    for name, part in list(sweep.recipes.items())[2:]:
        assert part.arch == f"modern:{name}"
        assert replace(part, arch="vit", model=base.model) == base
        changed = {key: value for key, value in vars(part.model).items() if value != getattr(base.model, key)}
        assert changed.items() <= FIELDS.get(part.arch, {}).items()
    assert sweep.runs()[:19] == [(name, 0) for name in sweep.recipes] and len(sweep.runs()) == 3 * 19 + 3
    for name, part in SWEEPS["modern-equal-time"].recipes.items():
        assert replace(part, epochs=5) == sweep.recipes[name] != part
    for name, part in SWEEPS["modern-longer"].recipes.items():
        assert replace(part, epochs=5, precision="bf16") == sweep.recipes[name] and part.epochs == 10


@pytest.mark.parametrize("name", ["mnist", "shapes", "cifar10"])
def test_recorded_runs_without_ema_are_the_base_s_runs(name):
    losses = {(row["variant"], row["seed"]): row["train_losses"] for row in load_sweep(name)}
    assert all(losses["no-ema", seed] == losses["base", seed] != losses["wide", seed] for seed in range(3))


@pytest.mark.parametrize("by_seed", [None, True])
def test_p_is_below_a_twentieth_where_the_interval_excludes_0(by_seed):
    rows = load_sweep("shapes")
    found = [(effect(rows, v, by_seed=by_seed), p_value(rows, v, by_seed=by_seed)) for v in single_changes(rows)]
    assert len(found) == 29 and all((low > 0 or high < 0) == (p < 0.05) for (_, low, high), p in found)


def test_p_against_scipy():
    rows = load_sweep("mnist")
    wide, base = accuracies(rows, "wide").numpy(), accuracies(rows, "base").numpy()
    assert p_value(rows, "wide") == stats.ttest_ind(wide, base, equal_var=False).pvalue
    assert p_value(rows, "wide", by_seed=True) == pytest.approx(stats.ttest_rel(wide, base[:3]).pvalue)


def test_every_single_change_of_a_sweep_has_words():
    others = ("base", "fraction", "resnet", "shuffled")
    named = {variant for kind in CHANGES.values() for variant in kind}
    tried = {v for name in ("mnist", "shapes", "cifar10") for v in SWEEPS[name].recipes}
    assert named == {v for v in tried if not any(word in v for word in others)}
