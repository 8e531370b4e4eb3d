"""The lab notebook shows every recorded run of the sweeps, as many as there are."""

import html
import re

import pytest
import torch
from _ext import lab_notebook
from notebook_rules import page

from vit_tutorial.what_matters import SWEEPS, effect_interval

TABLES = lab_notebook.tables()


def test_the_page_has_every_table_once():
    used = re.findall(r"^\{\{ (\w+) \}\}$", page("book/lab_notebook.md"), re.MULTILINE)
    assert sorted(used) == sorted(TABLES)


def test_every_recorded_recipe_is_in_a_table():
    singles = {variant for variants in lab_notebook.TABLES.values() for variant in variants}
    others = {*lab_notebook.RESNETS, *(name for names in lab_notebook.SHUFFLES.values() for name in names)}
    for name in lab_notebook.NAMES:
        planned = {variant for variant in SWEEPS[name].recipes if "fraction" not in variant}
        assert planned <= singles | others | {"base"}, name
    shown = "".join(TABLES.values())
    for rows in lab_notebook.recorded().values():
        for variant in {row["variant"] for row in rows if "fraction" not in row["variant"]}:
            assert re.search(rf"[> ]{variant}</th>", shown), variant


def row(variant: str, val: float, test: float, seed: int, seconds: float = 9.6, device: str = "CPU") -> dict:
    values = {"val_accuracy": val, "test_accuracy": test, "seconds": seconds, "device": device}
    return {"variant": variant, "seed": seed} | values


# By hand: validation means of 0.6 and 0.5; test means of 0.7 and 0.7.
ROWS = [row("base", 0.59, 0.7, 0), row("base", 0.61, 0.7, 1), row("wide", 0.49, 0.69, 0), row("wide", 0.51, 0.71, 1)]


def lines(text: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html.unescape(text))
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_table_by_hand():
    assert lines(lab_notebook.compare({"mnist": ROWS}, ("wide", "deep"), "Shape."))[1:] == [
        ["MNIST, base", "", "", "70.0", "60.0", "2", "10"],
        # Standard error √(2 + 2) / √2 = 1.414 points; t of two degrees of freedom is 4.303, of one 12.706.
        ["wide", "+0.0 ± 12.7", "−10.0 ± 6.1 *", "70.0", "50.0", "2", "10"],
    ]


def test_a_single_run_has_an_effect_and_no_interval():
    alone = [*ROWS, row("deep", 0.63, 0.7, 0)]
    deep = ["deep", "+0.0", "+3.0", "70.0", "63.0", "1", "10"]
    assert lines(lab_notebook.compare({"mnist": alone}, ("deep",), "Shape."))[2] == deep


def test_a_table_without_its_runs_is_empty():
    assert len(lines(lab_notebook.compare({"mnist": ROWS}, ("patch-4",), "Patches."))) == 1


def test_more_runs_change_the_table_and_nothing_else_has_to():
    more = {name: [*rows, *rows] for name, rows in lab_notebook.recorded().items()}
    found = lab_notebook.tables(more)
    assert found.keys() == TABLES.keys() and found["lab_shape"] != TABLES["lab_shape"]


def test_seconds_are_those_of_the_fastest_run_on_the_common_machine():
    runs = [row("base", 0.5, 0.5, seed, seconds=10 - seed) for seed in range(3)]
    runs += [row("fraction-10", 0.5, 0.5, 0, seconds=7), row("base", 0.5, 0.5, 3, seconds=1, device="GPU")]
    assert lab_notebook.pace(runs, "base") == 7


def test_effects_are_the_package_s():
    rows = lab_notebook.recorded()["mnist"]
    base, changed = (lab_notebook.accuracies(rows, name, "val") for name in ("base", "softmax-head"))
    middle, low, high = effect_interval(base, changed)
    assert f">{middle:+.1f} ± {(high - low) / 2:.1f} *</td>".replace("-", "−") in TABLES["lab_images"]
    torch.testing.assert_close(middle, (changed.mean() - base.mean()).item())


def test_shapes_do_not_vary_equally():
    """What the page says of pooling: some recipes vary more than others."""
    (p,) = (line[3] for line in lines(TABLES["lab_equal_variances"]) if line[:2] == ["shapes", "test"])
    assert float(p.removeprefix("< ")) < 0.05


@pytest.mark.parametrize("name", lab_notebook.CHOICES)
def test_every_choice_of_a_tutorial_was_made_by_one(name):
    (line,) = (line for line in lines(TABLES["lab_of_the_tutorials"]) if line[0] == name)
    assert re.fullmatch(r"[ABC]( [BC])*", line[1])
