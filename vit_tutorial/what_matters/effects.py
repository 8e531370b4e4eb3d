"""What single changes did in a sweep: effects with intervals, and a table of them (chapter 10, the lab notebook)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from vit_tutorial.metrics import recipe_from_dict
from vit_tutorial.plots.tables import Table, table
from vit_tutorial.validate import check_fields, check_option, checked
from vit_tutorial.what_matters.sweeps import effect_interval
from vit_tutorial.what_matters.variants import CHANGES, FRACTIONS

SPLITS = {"test": "test", "val": "validation"}


def _with(rows: Sequence[dict], **kinds: type) -> Sequence[dict]:
    """The rows, each of which has values of these kinds.

    Raises:
        ValueError: if one has not.
    """
    for row in rows:
        check_fields("a row", row, kinds)
    return rows


def _runs(rows: Sequence[dict], variant: str, **kinds: type) -> Sequence[dict]:
    return _with([row for row in _with(rows, variant=str) if row["variant"] == variant], **kinds)


@checked
def accuracies(rows: Sequence[dict], variant: str, split: str = "val") -> Float[Tensor, " n"]:
    """A variant's accuracies in per cent, one for each of its runs among the rows of a sweep.

    Args:
        split: ``"val"`` or ``"test"``.
    """
    check_option("split", split, SPLITS)
    name = f"{split}_accuracy"
    return 100 * torch.tensor([row[name] for row in _runs(rows, variant, **{name: float})]).double()


@checked
def single_changes(rows: Sequence[dict]) -> dict[str, str]:
    """What the book calls the changes of a single thing that a sweep has runs of, by their variants."""
    there = {row["variant"] for row in _with(rows, variant=str)}
    return {name: words for kind in CHANGES.values() for name, words in kind.items() if name in there}


@checked
def gains(rows: Sequence[dict], variant: str, base: str = "base", split: str = "val") -> Float[Tensor, " n"]:
    """How many points each run of a variant is above the base's run with the same seed, where there is one."""
    check_option("split", split, SPLITS)
    name = f"{split}_accuracy"
    ours, theirs = (
        {row["seed"]: 100 * row[name] for row in _runs(rows, which, **{"seed": int, name: float})}
        for which in (base, variant)
    )
    return torch.tensor([theirs[seed] - ours[seed] for seed in sorted(ours.keys() & theirs.keys())]).double()


@checked
def same_training(rows: Sequence[dict], variant: str, base: str = "base") -> bool:
    """Whether two recipes differ in nothing but EMA, which averages weights and changes no step.

    Then runs with equal seeds are one and the same, and only a comparison seed by seed makes sense.
    """
    found = [_runs(rows, name, recipe=dict)[:1] for name in (base, variant)]
    ours, theirs = ([replace(recipe_from_dict(row["recipe"]), seed=0, ema=0.0) for row in each] for each in found)
    return ours == theirs != []


def _is_by_seed(rows: Sequence[dict], variant: str, base: str, by_seed: bool | None) -> bool:
    return same_training(rows, variant, base) if by_seed is None else by_seed


@checked
def effect(
    rows: Sequence[dict], variant: str, base: str = "base", split: str = "val", *, by_seed: bool | None = None
) -> tuple[float, float, float]:
    """How many points of accuracy a variant is above its base, and the two ends of the 95 % interval.

    The ends are NaN without an interval: a side has a single run, or nothing varies. Without a run, all are NaN.

    Args:
        by_seed: compare runs of equal seeds pair by pair, with an interval from the differences alone; otherwise all
            runs of both, as if they were independent, with Welch's interval. By default pair by pair if both are the
            same training; see :func:`same_training`.
    """
    if _is_by_seed(rows, variant, base, by_seed):
        differences = gains(rows, variant, base, split)
        middle = differences.mean().item()
        if len(differences) < 2 or differences.var() == 0:
            return middle, math.nan, math.nan
        from scipy import stats  # takes a second to import

        low, high = stats.ttest_1samp(differences.numpy(), 0).confidence_interval(0.95)
        return middle, float(low), float(high)
    ours, theirs = accuracies(rows, base, split), accuracies(rows, variant, split)
    if min(len(ours), len(theirs)) < 2 or ours.var() + theirs.var() == 0:
        return (theirs.mean() - ours.mean()).item(), math.nan, math.nan
    return effect_interval(ours, theirs)


@checked
def p_value(
    rows: Sequence[dict], variant: str, base: str = "base", split: str = "val", *, by_seed: bool | None = None
) -> float:
    """How often luck alone would bring an effect as large as this one, either way, if the change did nothing.

    It's below 0.05 where the interval of :func:`effect` excludes 0, and NaN where there is none.

    Args:
        by_seed: as for :func:`effect`.
    """
    from scipy import stats

    if math.isnan(effect(rows, variant, base, split, by_seed=by_seed)[1]):
        return math.nan
    if _is_by_seed(rows, variant, base, by_seed):
        return float(stats.ttest_1samp(gains(rows, variant, base, split).numpy(), 0).pvalue)
    ours, theirs = accuracies(rows, base, split), accuracies(rows, variant, split)
    return float(stats.ttest_ind(theirs.numpy(), ours.numpy(), equal_var=False).pvalue)


@checked
def excludes_zero(effect: tuple[float, float, float]) -> bool:
    """Whether an effect's interval excludes 0; False without an interval."""
    return effect[1] > 0 or effect[2] < 0


@checked
def effect_text(effect: tuple[float, float, float]) -> str:
    """An effect such as ``+1.2 ± 0.4 *``; the star says that the interval excludes 0. Empty without a run."""
    middle, low, high = effect
    if math.isnan(middle):
        return ""
    text = f"{middle:+.1f}" if math.isnan(low) else f"{middle:+.1f} ± {(high - low) / 2:.1f}"
    return text.replace("-", "−") + " *" * excludes_zero(effect)


@checked
def seconds(rows: Sequence[dict], variant: str) -> float | None:
    """Seconds of a variant's fastest run, on the machine that made most runs of the sweep; None without one.

    Runs on a fraction of the images take as many steps, and count.
    """
    devices = [row["device"] for row in _with(rows, variant=str, device=str)]
    machines = sorted({row["device"] for row in rows if row["variant"] == "base"})
    common = max(machines, key=devices.count, default=None)
    prefix = "" if variant == "base" else f"{variant}-"
    alike = {variant, *(f"{prefix}fraction-{percent}" for percent in FRACTIONS)}
    found = _with([row for row in rows if row["device"] == common and row["variant"] in alike], seconds=float)
    return min((row["seconds"] for row in found), default=None)


@checked
def compare(caption: str, sweeps: Mapping[str, Sequence[dict]], variants: Sequence[str], base: str = "base") -> Table:
    """A table of variants below their base: effects, mean accuracies in per cent, number of runs, seconds.

    Args:
        sweeps: the rows of each sweep, as :func:`load_sweep` returns them, by what the table calls it. One without
            any of the variants is left out.
    """
    columns = {name: [] for name in ("run", "test: effect", "val: effect", "test, %", "val, %", "runs", "s")}
    for label, rows in sweeps.items():
        there = [variant for variant in variants if len(accuracies(rows, variant))]
        for variant in (base, *there) if there else ():
            cells = [f"{label}, {base}" if variant == base else variant]
            cells += ["" if variant == base else effect_text(effect(rows, variant, base, split)) for split in SPLITS]
            cells += [accuracies(rows, variant, split).mean().item() for split in SPLITS]
            spent = seconds(rows, variant)
            cells += [len(accuracies(rows, variant)), spent and round(spent)]
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
    return table(caption, columns, {"val, %": ".1f", "test, %": ".1f"})
