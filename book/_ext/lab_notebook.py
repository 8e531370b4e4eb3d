"""The tables of book/lab_notebook.md, made from the runs that come with the package whenever the book is built.

A table of the page is a line of its own, ``{{ lab_patches }}``: the page's words are written, its numbers never.
"""

import math
from collections import Counter

from scipy import stats
from torch import Tensor, tensor

from vit_tutorial.plots import table
from vit_tutorial.recipes import RECIPES
from vit_tutorial.runs import FOLDER, load_metrics, recipe_from_dict, recorded_runs
from vit_tutorial.speed import training_flops
from vit_tutorial.what_matters import FRACTIONS, SWEEPS, effect_interval, read_rows

NAMES = {"mnist": "MNIST", "shapes": "shapes", "cifar10": "CIFAR-10"}
SPLITS = {"test": "test", "val": "validation"}
# Every change, in the tables that have them. Beside a shuffle stands the same model without augmentation.
TABLES = {
    "patches": ("patch-4", "patch-8", "patch-14", "patch-16"),
    "shape": ("wide", "deep"),
    "heads": ("one-head", "many-heads"),
    "positions": ("no-positions", "positions-1d", "positions-2d", "positions-learned"),
    "pooling": ("mean-pool",),
    "norms": ("post-norm", "no-final-norm", "torch-init"),
    "steps": ("no-warmup", "constant-lr", "no-clipping", "no-ema", "adamw", "adamw-quarter-lr"),
    "decay": ("decay-0", "decay-1", "decay-all"),
    "images": ("raw-pixels", "no-augment", "rand-augment", "mixup", "cutmix", "label-smoothing", "softmax-head"),
}
RESNETS = ("resnet", "resnet-equal-time")
SHUFFLES = {
    "ViT": ("no-augment", "shuffled-patches", "shuffled-pixels"),
    "ResNet": ("resnet-no-augment", "resnet-shuffled-patches", "resnet-shuffled-pixels"),
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
    "large patches": (lambda r: r.model.num_patches <= 4, ("patch-14", "patch-16")),
}


def recorded() -> dict[str, list[dict]]:
    """The runs of each sweep that came to an end, as they come with the package."""
    rows = {name: read_rows(FOLDER / "sweeps" / f"{name}.jsonl", SWEEPS[name]) for name in NAMES}
    return {name: [row for row in found if "broke" not in row] for name, found in rows.items()}


def accuracies(rows: list[dict], variant: str, split: str) -> Tensor:
    """Per cent right, a number for each run of a variant."""
    return 100 * tensor([row[f"{split}_accuracy"] for row in rows if row["variant"] == variant]).double()


def effect(rows: list[dict], variant: str, base: str, split: str) -> tuple[float, float, float] | None:
    """The difference of the means and its 95 % interval, with ends of nan where there is none; None without a run."""
    ours, theirs = (accuracies(rows, name, split) for name in (base, variant))
    if not len(ours) or not len(theirs):
        return None
    try:
        return effect_interval(ours, theirs)
    except ValueError:  # a single run, or runs that do not vary
        return (theirs.mean() - ours.mean()).item(), math.nan, math.nan


def clear(found: tuple[float, float, float]) -> bool:
    """Whether an interval excludes 0."""
    return found[1] > 0 or found[2] < 0


def told(found: tuple[float, float, float] | None) -> str:
    """An effect in words, with a star where its interval excludes 0."""
    if found is None:
        return ""
    middle, low, high = found
    text = f"{middle:+.1f}" if math.isnan(low) else f"{middle:+.1f} ± {(high - low) / 2:.1f}"
    return text.replace("-", "−") + " *" * clear(found)


def pace(rows: list[dict], variant: str) -> float | None:
    """Seconds of a variant's fastest run on the machine of the base that has most runs.

    Runs on a fraction of the images take as many steps, and count.
    """
    devices = [row["device"] for row in rows]
    machines = sorted({row["device"] for row in rows if row["variant"] == "base"})
    common = max(machines, key=devices.count, default=None)
    prefix = "" if variant == "base" else f"{variant}-"
    alike = {variant, *(f"{prefix}fraction-{percent}" for percent in FRACTIONS)}
    return min((r["seconds"] for r in rows if r["device"] == common and r["variant"] in alike), default=None)


def compare(rows_of: dict[str, list[dict]], variants: tuple[str, ...], caption: str, base: str = "base") -> str:
    """A table of variants below their base, for each data set that has them. A phone has room for the effects."""
    columns = {"run": []} | {f"{what}: effect": [] for what in SPLITS} | {f"{what}, %": [] for what in SPLITS}
    columns |= {"runs": [], "s": []}
    for name, rows in rows_of.items():
        there = [v for v in variants if any(row["variant"] == v for row in rows)]
        for variant in (base, *there) if there else ():
            columns["run"].append(f"{NAMES[name]}, {base}" if variant == base else variant)
            for split in SPLITS:
                found = None if variant == base else effect(rows, variant, base, split)
                columns[f"{split}: effect"].append(told(found))
                columns[f"{split}, %"].append(accuracies(rows, variant, split).mean().item())
            columns["runs"].append(len(accuracies(rows, variant, "val")))
            spent = pace(rows, variant)
            columns["s"].append(spent and round(spent))
    return html(caption, columns, dict.fromkeys((f"{split}, %" for split in SPLITS), ".1f"))


def html(caption: str, columns: dict, formats: dict[str, str] | None = None) -> str:
    """A table in a box that scrolls where the page is narrow."""
    shown = table(caption, columns, formats)._repr_html_()
    return f'<div class="pst-scrollable-table-container lab-table">{shown}</div>'


def single_changes(rows: list[dict]) -> list[str]:
    """The recorded changes of the tables above, in their order."""
    there = {row["variant"] for row in rows}
    return [variant for variants in TABLES.values() for variant in variants if variant in there]


def the_bases(rows_of: dict[str, list[dict]]) -> str:
    columns = {"data": [], "runs": [], "of each change": [], "epochs": [], "rate": [], "positions": [], "optimizer": []}
    for name, rows in rows_of.items():
        recipe, runs = SWEEPS[name].recipes["base"], Counter(row["variant"] for row in rows)
        counts = sorted({runs[variant] for variant in single_changes(rows)})
        values = NAMES[name], runs["base"], " or ".join(map(str, counts)), recipe.epochs, f"{recipe.lr:g}"
        values += recipe.model.pos_embed, recipe.optimizer
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return html("The bases of the three sweeps.", columns)


def over_fractions(rows_of: dict[str, list[dict]]) -> str:
    """How far the ResNet is ahead of the ViT on each fraction of the images."""
    columns = {"data": [], "epochs": []} | {f"{percent} %": [] for percent in (*sorted(FRACTIONS), 100)}
    for name, rows in rows_of.items():
        for model, words in zip(RESNETS, ("as many", "as much time"), strict=True):
            columns["data"].append(NAMES[name])
            columns["epochs"].append(words)
            for percent in (*sorted(FRACTIONS), 100):
                ends = f"fraction-{percent}"
                vit, resnet = (ends, f"{model}-{ends}") if percent < 100 else ("base", model)
                columns[f"{percent} %"].append(told(effect(rows, resnet, vit, "val")))
    return html("Validation points of the ResNet ahead of the ViT, by the fraction of the training images.", columns)


def of_the_tutorials(rows_of: dict[str, list[dict]]) -> str:
    """What single choices of published recipes cost in our bases."""
    recipes = {letter: RECIPES[name] for letter, name in PUBLISHED.items()}
    columns = {"choice": list(CHOICES), "made by": []} | {label: [] for label in NAMES.values()}
    for made, variants in CHOICES.values():
        columns["made by"].append(" ".join(letter for letter, recipe in recipes.items() if made(recipe)))
        for name, label in NAMES.items():
            names = variants if isinstance(variants, tuple) else (variants,)
            there = [v for v in names if any(row["variant"] == v for row in rows_of[name])]
            columns[label].append(told(effect(rows_of[name], there[0], "base", "val")) if there else "")
    return html("Validation points of single choices of three published recipes, each in our base.", columns)


def equal_variances(rows_of: dict[str, list[dict]]) -> str:
    """Bartlett's test of whether all recipes of a sweep have the same variance."""
    columns = {"data": [], "images": [], "recipes": [], "p": []}
    for name, rows in rows_of.items():
        for split, what in SPLITS.items():
            runs = [accuracies(rows, variant, split) for variant in ("base", *single_changes(rows))]
            runs = [values.numpy() for values in runs if len(values) > 1 and values.var() > 0]
            columns["data"].append(NAMES[name])
            columns["images"].append(what)
            columns["recipes"].append(len(runs))
            p = stats.bartlett(*runs).pvalue if len(runs) > 1 else None
            columns["p"].append("" if p is None else "< 0.001" if p < 0.001 else f"{p:.1g}")
    return html("Bartlett's test: how likely such unequal variances are if all recipes had the same.", columns)


def by_luck(rows_of: dict[str, list[dict]]) -> str:
    """How many intervals exclude 0, and how many would for nothing."""
    columns = {"data": [], "changes": [], "validation": [], "test": [], "by luck": []}
    for name, rows in rows_of.items():
        changes = single_changes(rows)
        columns["data"].append(NAMES[name])
        columns["changes"].append(len(changes))
        for split, what in SPLITS.items():
            columns[what].append(sum(clear(effect(rows, variant, "base", split)) for variant in changes))
        columns["by luck"].append(0.05 * len(changes))
    return html("Intervals that exclude 0.", columns, {"by luck": ".1f"})


def of_test_images(rows_of: dict[str, list[dict]]) -> str:
    """How far accuracies move by the choice of the test images alone."""
    images = {}
    for run in recorded_runs():
        metrics = load_metrics(run)
        images[metrics["recipe"]["dataset"]] = sum(map(sum, metrics["test"]["confusion"]))
    columns = {"data": [], "test images": [], "base, %": [], "± of it": [], "± if q is 1 %": [], "± if q is 1 − p": []}
    for name, rows in rows_of.items():
        right = accuracies(rows, "base", "test").mean().item() / 100
        values = NAMES[name], images[name], 100 * right
        values += tuple(196 * math.sqrt(q / images[name]) for q in (right * (1 - right), 0.01, 1 - right))
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    formats = {"base, %": ".1f"} | dict.fromkeys(list(columns)[3:], ".2f")
    return html("1.96 standard deviations, in points, of the choice of test images.", columns, formats)


def of_whole_runs(_: dict[str, list[dict]]) -> str:
    """What the recorded runs of whole recipes took; of several seeds the first."""
    columns = {"run": [], "test, %": [], "s": [], "on": [], "10¹² multiply-adds": [], "images seen": []}
    for run in recorded_runs():
        metrics = load_metrics(run)
        if metrics["recipe"]["seed"]:
            continue
        flops = training_flops(recipe_from_dict(metrics["recipe"]).model) / 2 * metrics["samples_seen"]
        seconds = len(metrics["history"]) * min(entry["seconds"] for entry in metrics["history"])
        values = run, 100 * metrics["test"]["accuracy"], round(seconds), metrics["device"]
        for column, value in zip(columns.values(), (*values, flops / 1e12, metrics["samples_seen"]), strict=True):
            column.append(value)
    return html("Whole recipes.", columns, {"10¹² multiply-adds": ",.2f", "test, %": ".2f"})


CAPTIONS = {
    "patches": "Patch size.",
    "shape": "One wide block, and sixteen narrow ones, with as many parameters as the base.",
    "heads": "Number of heads.",
    "positions": "Positions; the base has a fixed 2-D table on MNIST and the shapes, a learned one on CIFAR-10.",
    "pooling": "What the head reads: the mean of the patches, where the base has a class token.",
    "norms": "The norms behind attention and MLP, no norm at the end, and PyTorch's initialization.",
    "steps": "Schedule, clipping, EMA and optimizer, each changed at the base's learning rate.",
    "decay": "Weight decay: none, 1, and the base's on norms and biases too.",
    "images": "Pixels, augmentation, targets and the loss.",
}


def tables(rows_of: dict[str, list[dict]] | None = None) -> dict[str, str]:
    """Every table of the page by its name there."""
    rows_of = rows_of or recorded()
    found = {name: compare(rows_of, variants, CAPTIONS[name]) for name, variants in TABLES.items()}
    found["resnet"] = compare(rows_of, RESNETS, "A ResNet in the ViT's place, on all images.")
    for model, (base, *shuffled) in SHUFFLES.items():
        caption = f"The {model} on shuffled images, beside the same without augmentation."
        found[f"shuffled_{model.lower()}"] = compare(rows_of, tuple(shuffled), caption, base)
    makers = (the_bases, over_fractions, of_the_tutorials, equal_variances, by_luck, of_test_images, of_whole_runs)
    found |= {maker.__name__: maker(rows_of) for maker in makers}
    return {f"lab_{name}": text for name, text in found.items()}


def give_tables(app, config):
    config.myst_substitutions = {**config.myst_substitutions, **tables()}


def setup(app):
    app.connect("config-inited", give_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
