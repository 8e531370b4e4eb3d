"""What single changes did in a sweep: effects with intervals, and a table of them (chapter 10, the lab notebook)."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vit_tutorial.plots.tables import Table, table
from vit_tutorial.what_matters.sweeps import effect_interval
from vit_tutorial.what_matters.variants import FRACTIONS

SPLITS = {"test": "test", "val": "validation"}


def accuracies(rows: Sequence[dict], variant: str, split: str = "val") -> Float[Tensor, " n"]:
    """A variant's accuracies in per cent, one for each of its runs among the rows of a sweep.

    Args:
        split: ``"val"`` or ``"test"``.
    """
    return 100 * torch.tensor([row[f"{split}_accuracy"] for row in rows if row["variant"] == variant]).double()


def effect(rows: Sequence[dict], variant: str, base: str = "base", split: str = "val") -> tuple[float, float, float]:
    """How many points of accuracy a variant is above its base, and the two ends of the 95 % interval.

    The ends are NaN without an interval: a side has a single run, or neither side varies. Without a run, all are NaN.
    """
    ours, theirs = accuracies(rows, base, split), accuracies(rows, variant, split)
    if min(len(ours), len(theirs)) < 2 or ours.var() + theirs.var() == 0:
        return (theirs.mean() - ours.mean()).item(), math.nan, math.nan
    return effect_interval(ours, theirs)


def excludes_zero(effect: tuple[float, float, float]) -> bool:
    """Whether an effect's interval excludes 0; False without an interval."""
    return effect[1] > 0 or effect[2] < 0


def effect_text(effect: tuple[float, float, float]) -> str:
    """An effect such as ``+1.2 ± 0.4 *``; the star says that the interval excludes 0. Empty without a run."""
    middle, low, high = effect
    if math.isnan(middle):
        return ""
    text = f"{middle:+.1f}" if math.isnan(low) else f"{middle:+.1f} ± {(high - low) / 2:.1f}"
    return text.replace("-", "−") + " *" * excludes_zero(effect)


def seconds(rows: Sequence[dict], variant: str) -> float | None:
    """Seconds of a variant's fastest run, on the machine that made most runs of the sweep; None without one.

    Runs on a fraction of the images take as many steps, and count.
    """
    devices = [row["device"] for row in rows]
    machines = sorted({row["device"] for row in rows if row["variant"] == "base"})
    common = max(machines, key=devices.count, default=None)
    prefix = "" if variant == "base" else f"{variant}-"
    alike = {variant, *(f"{prefix}fraction-{percent}" for percent in FRACTIONS)}
    return min((row["seconds"] for row in rows if row["device"] == common and row["variant"] in alike), default=None)


def compare(caption: str, sweeps: Mapping[str, Sequence[dict]], variants: Sequence[str], base: str = "base") -> Table:
    """A table of variants below their base: effects, mean accuracies in per cent, number of runs, seconds.

    Args:
        sweeps: the rows of each sweep, as :func:`load_sweep` returns them, by what the table calls it. One without
            any of the variants is left out.
    """
    columns = {name: [] for name in ("run", "test: effect", "val: effect", "test, %", "val, %", "runs", "s")}
    for label, rows in sweeps.items():
        there = [variant for variant in variants if any(row["variant"] == variant for row in rows)]
        for variant in (base, *there) if there else ():
            cells = [f"{label}, {base}" if variant == base else variant]
            cells += ["" if variant == base else effect_text(effect(rows, variant, base, split)) for split in SPLITS]
            cells += [accuracies(rows, variant, split).mean().item() for split in SPLITS]
            spent = seconds(rows, variant)
            cells += [len(accuracies(rows, variant)), spent and round(spent)]
            for column, cell in zip(columns.values(), cells, strict=True):
                column.append(cell)
    return table(caption, columns, {"val, %": ".1f", "test, %": ".1f"})
