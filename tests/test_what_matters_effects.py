"""Effects of a sweep's changes, and their table."""

import math

from vit_tutorial.what_matters import compare, effect
from vit_tutorial.what_matters.effects import effect_text, seconds


def row(variant: str, val: float, test: float, spent: float = 9.6, device: str = "CPU") -> dict:
    return {"variant": variant, "val_accuracy": val, "test_accuracy": test, "seconds": spent, "device": device}


# By hand: validation means of 0.6 and 0.5; test means of 0.7 and 0.7.
ROWS = [row("base", 0.59, 0.7), row("base", 0.61, 0.7), row("wide", 0.49, 0.69), row("wide", 0.51, 0.71)]
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
