"""No library knows our recorded runs: ``{{ lab.compare(…) }}`` in a page makes a table of them."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from scipy import stats

from vit_tutorial.metrics import recipe_from_dict
from vit_tutorial.plots import Table, table
from vit_tutorial.recipes import RECIPES
from vit_tutorial.runs import load_metrics, load_seeds, recorded_runs
from vit_tutorial.speed import training_flops
from vit_tutorial.what_matters import FRACTIONS, SWEEPS, accuracies, compare, effect, load_sweep, p_value
from vit_tutorial.what_matters.effects import SPLITS, effect_text, excludes_zero

NAMES = {"MNIST": "mnist", "shapes": "shapes", "CIFAR-10": "cifar10"}
ROWS = {label: load_sweep(name) for label, name in NAMES.items()}
OTHERS = re.compile("base|.*(fraction|resnet|shuffled)")  # all but changes of one thing in the base
CHANGES = {
    label: [name for name in dict.fromkeys(row["variant"] for row in rows) if not OTHERS.match(name)]
    for label, rows in ROWS.items()
}
PUBLISHED = {"A": "mnist-published", "B": "cifar10-tiny-published", "C": "cifar10-small-published"}
# What a published recipe chose, in the words of the sweeps: (how to see it, the change that undoes our choice).
CHOICES = {
    "softmax before the loss": (lambda r: r.arch == "softmax-head", "softmax-head"),
    "no final norm": (lambda r: not r.model.final_norm, "no-final-norm"),
    "PyTorch’s initialization": (lambda r: r.init == "torch", "torch-init"),
    "constant rate": (lambda r: r.schedule == "constant", "constant-lr"),
    "no warm-up": (lambda r: r.schedule != "constant" and not r.warmup, "no-warmup"),
    "raw pixels": (lambda r: (r.mean, r.std) == (0, 1), "raw-pixels"),
    "Adam or AdamW": (lambda r: r.optimizer != "muon", "adamw-quarter-lr"),
    "no clipping": (lambda r: not r.clip_grad, "no-clipping"),
    "no EMA": (lambda r: not r.ema, "no-ema"),
    "no weight decay": (lambda r: not r.weight_decay, "decay-0"),
    "decay on everything": (lambda r: r.weight_decay and r.decay_all, "decay-all"),
    "no augmentation": (lambda r: not any(vars(r.augment).values()), "no-augment"),
    "fixed 1-D positions": (lambda r: r.model.pos_embed == "sincos_1d", "positions-1d"),
    "large patches": (lambda r: r.model.num_patches <= 4, "patch-14 patch-16"),
}
# The speedrun's records, the latest last, each with the run whose recipe it changed. Further seeds end in -1, -2, …
RECORDS = {"cifar10-speedrun": "cifar10-small"}


def changes(before: dict, after: dict) -> Iterator[tuple[str, Any, Any]]:
    """The settings in which two recipes differ, with both values."""
    for name, value in before.items():
        if isinstance(value, dict):
            yield from changes(value, after[name])
        elif value != after[name] and name != "seed":
            yield name, value, after[name]


def mean_text(values: list[float]) -> str:
    """The mean and half its 95 % interval, such as ``84.1 ± 0.3``."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{sum(values) / len(values):.1f} ± {half:.1f}"


def html(shown: Table) -> str:
    """A table in a box that scrolls where the page is narrow."""
    return f'<div class="pst-scrollable-table-container lab-table">{shown._repr_html_()}</div>'


def shown(caption: str, formats: dict[str, str] | None = None):
    """Make a method that yields rows one that returns their table."""

    def html_of(rows: list[dict]) -> str:
        return html(table(caption, {name: [row[name] for row in rows] for name in rows[0]}, formats))

    return lambda rows_of: lambda self: html_of(list(rows_of(self)))


class Lab:
    """The tables, for the page to call."""

    def __eq__(self, other):  # or Sphinx would take it for a changed setting, and read all pages anew for the slides
        return type(self) is type(other)

    def compare(self, caption: str, variants: str, base: str = "base") -> str:
        return html(compare(caption, ROWS, variants.split(), base))

    @shown("The bases of the three sweeps.")
    def bases(self):
        for label, name in NAMES.items():
            recipe, runs = SWEEPS[name].recipes["base"], Counter(row["variant"] for row in ROWS[label])
            each = " or ".join(map(str, sorted({runs[variant] for variant in CHANGES[label]})))
            row = {"data": label, "runs": runs["base"], "of each change": each, "epochs": recipe.epochs}
            yield row | {"rate": f"{recipe.lr:g}", "positions": recipe.model.pos_embed, "optimizer": recipe.optimizer}

    @shown("Validation points of the ResNet ahead of the ViT, by the fraction of the training images.")
    def fractions(self):
        for label, runs in ROWS.items():
            for resnet, epochs in {"resnet": "as many", "resnet-equal-time": "as much time"}.items():
                few = {f"{n} %": effect(runs, f"{resnet}-fraction-{n}", f"fraction-{n}") for n in sorted(FRACTIONS)}
                ahead = few | {"100 %": effect(runs, resnet)}
                yield {"data": label, "epochs": epochs} | {name: effect_text(found) for name, found in ahead.items()}

    @shown("Validation points of single choices of three published recipes, each in our base.")
    def choices(self):
        for choice, (made, variants) in CHOICES.items():
            row = {"choice": choice, "made by": " ".join(x for x, name in PUBLISHED.items() if made(RECIPES[name]))}
            for label, runs in ROWS.items():
                row[label] = next(filter(None, (effect_text(effect(runs, name)) for name in variants.split())), "")
            yield row

    @shown("Bartlett's test: how likely such unequal variances are if all recipes had the same.")
    def variances(self):
        for label, runs in ROWS.items():
            for split, images in SPLITS.items():
                groups = [accuracies(runs, variant, split) for variant in ("base", *CHANGES[label])]
                groups = [group.numpy() for group in groups if len(group) > 1 and group.var() > 0]
                p = stats.bartlett(*groups).pvalue
                row = {"data": label, "images": images, "recipes": len(groups)}
                yield row | {"p": "< 0.001" if p < 0.001 else f"{p:.1g}"}

    @shown("Intervals that exclude 0.", {"by luck": ".1f"})
    def luck(self):
        for label, runs in ROWS.items():
            row = {"data": label, "changes": len(CHANGES[label])}
            for name, split in {"validation": "val", "test": "test"}.items():
                row[name] = sum(excludes_zero(effect(runs, change, split=split)) for change in CHANGES[label])
                found = [p_value(runs, change, split=split) for change in CHANGES[label]]
                row[f"{name}, corrected"] = int((stats.false_discovery_control(found) < 0.05).sum())
            yield row | {"by luck": 0.05 * row["changes"]}

    @shown("Validation points against the base: all runs as if independent, and run against run with the same seed.")
    def by_seed(self):
        for label, runs in ROWS.items():
            for change in CHANGES[label]:
                both = [effect(runs, change, by_seed=each) for each in (False, True)]
                if change != "no-ema" and both[0][1] > 0:
                    yield {"data": label, "change": change} | dict(
                        zip(("independent", "seed by seed"), map(effect_text, both), strict=True)
                    )

    @shown(
        "1.96 standard deviations, in points, of the choice of test images.",
        {"base, %": ".1f", "± of it": ".2f", "± if q is 1 %": ".2f", "± if q is 1 − p": ".2f"},
    )
    def test_images(self):
        tests = {run["recipe"]["dataset"]: run["test"]["confusion"] for run in map(load_metrics, recorded_runs())}
        for label, images in ((label, sum(map(sum, tests[name]))) for label, name in NAMES.items()):
            p = accuracies(ROWS[label], "base", "test").mean().item() / 100
            variances = {"± of it": p * (1 - p), "± if q is 1 %": 0.01, "± if q is 1 − p": 1 - p}
            points = {column: 196 * math.sqrt(variance / images) for column, variance in variances.items()}
            yield {"data": label, "test images": images, "base, %": 100 * p} | points

    @shown("Whole recipes.", {"10¹² multiply-adds": ",.2f", "test, %": ".2f"})
    def whole_runs(self):
        for name, run in ((name, load_metrics(name)) for name in recorded_runs()):
            if run["recipe"]["seed"] == 0:  # of several seeds the first
                flops = training_flops(recipe_from_dict(run["recipe"]).model) / 2 * run["samples_seen"]
                spent = len(run["history"]) * min(entry["seconds"] for entry in run["history"])
                row = {"run": name, "test, %": 100 * run["test"]["accuracy"], "s": round(spent), "on": run["device"]}
                yield row | {"10¹² multiply-adds": flops / 1e12, "images seen": run["samples_seen"]}

    @shown("The records, the latest last.", {"minutes": ".1f"})
    def records(self):
        for name, runs in ((name, load_seeds(name)) for name in RECORDS):
            timed = [run["seconds"] / 60 for run in runs if run["device"] == runs[0]["device"]]
            row = {"record": name, "test, %": mean_text([100 * run["test"]["accuracy"] for run in runs])}
            row["validation, %"] = mean_text([100 * run["history"][-1]["val_accuracy"] for run in runs])
            row |= {"seeds": len(runs), "minutes": max(timed), "on": runs[0]["device"], "data": runs[0]["data"]}
            yield row

    @shown("What each record changed.")
    def record_changes(self):
        for name, before in RECORDS.items():
            old, new = (asdict(recipe_from_dict(load_metrics(run)["recipe"])) for run in (before, name))
            for setting, *values in changes(old, new):
                was, now = map(str, values)  # as words: a rate is not rounded
                yield {"record": name, "setting": setting, "before": was, "now": now, "taken from": before}

    @shown("Every seed.", {"test, %": ".2f", "validation, %": ".2f", "minutes": ".1f"})
    def record_seeds(self):
        for record in RECORDS:
            for run in load_seeds(record):
                row = {"record": record, "seed": run["recipe"]["seed"], "test, %": 100 * run["test"]["accuracy"]}
                row |= {"validation, %": 100 * run["history"][-1]["val_accuracy"], "minutes": run["seconds"] / 60}
                yield row | {"on": run["device"], "torch": run["versions"]["torch"], "commit": run["commit"][:7]}


def setup(app):
    app.connect("config-inited", lambda app, config: config.myst_substitutions.update(lab=Lab()))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
