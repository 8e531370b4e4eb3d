"""Sweeps: many runs that are compared, resumable, with their results as rows of data (chapters 7 and 10)."""

import hashlib
import math
import shutil
import warnings
from collections.abc import Collection
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from filelock import Timeout
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from vit_tutorial.borders import at_fault, read_json
from vit_tutorial.metrics import FORMAT, recipe_from_dict
from vit_tutorial.old_names import OLD_NAMES, renamed
from vit_tutorial.recipes import Recipe
from vit_tutorial.runs import (
    FOLDER,
    OWN_RUNS,
    append_row,
    load_metrics,
    locked,
    provenance,
    read_lines,
    run_recipe,
)
from vit_tutorial.validate import check_int, check_option, checked
from vit_tutorial.what_matters.variants import SWEEPS, Sweep

LAST = ("val_accuracy", "val_loss", "train_accuracy", "train_loss")  # a row keeps these of the run's last epoch


def run_sweep(
    name: str,
    sweep: Sweep,
    folder: Path,
    *,
    only: Collection[str] = (),
    seeds: Collection[int] = (),
    device: str = "cpu",
    progress: bool = True,
) -> list[dict]:
    """Train a sweep's missing runs, and add a row for each to ``folder/name.jsonl``.

    Runs recorded with the package count as done; for runs of your own beside them, ask for other seeds.

    An interrupted sweep resumes where it stopped, even in the middle of a run. Several processes can work on one sweep:
    a run in progress elsewhere is skipped with a warning. Stale and truncated rows are rerun; a diverged run is
    recorded as ``broke``.

    Args:
        only: which of the sweep's recipes; all if empty.
        seeds: which random seeds, for each of these recipes; all of the sweep's if empty.

    Returns:
        all rows that are in ``folder`` afterwards.

    Raises:
        ValueError: if the sweep has no such recipe, or a seed is negative; after all others, if a run can't go on.
    """
    only = [renamed(recipe) for recipe in only]
    for recipe in only:
        check_option(f"recipe of the sweep {name!r}", recipe, sweep.recipes)
    for seed in seeds:
        check_int("seed", seed, 0)
    runs = [(variant, seed) for seed in seeds for variant in sweep.recipes] if seeds else sweep.runs()
    wanted = [(variant, seed) for variant, seed in runs if not only or variant in only]

    def there() -> set[tuple[str, int]]:
        files = {place / f"{name}.jsonl" for place in (FOLDER / "sweeps", folder)}
        return {(row["variant"], row["seed"]) for file in files for row in read_rows(file, sweep)}

    folder.mkdir(parents=True, exist_ok=True)
    before, elsewhere, faults = there(), [], []
    missing = [run for run in wanted if run not in before]
    with tqdm(total=len(wanted), initial=len(wanted) - len(missing), unit=" runs", disable=not progress) as bar:
        for variant, seed in missing:
            bar.set_postfix_str(f"{variant}, seed {seed}")
            recipe = replace(sweep.recipes[variant], seed=seed)
            # Holds the checkpoint until the run is done. The digest keeps older recipes of this name out of the way.
            digest = hashlib.sha256(repr(recipe).encode()).hexdigest()[:8]
            at_work = folder / f".{name}-{variant}-{seed}-{digest}"
            try:
                with locked(folder / f"{at_work.name}.lock", timeout=0):
                    if (variant, seed) not in there():  # another process may have finished it meanwhile
                        append_row(folder / f"{name}.jsonl", _run(name, variant, recipe, at_work, device))
                        shutil.rmtree(at_work, ignore_errors=True)
            except Timeout:
                elsewhere.append((variant, seed))
            except ValueError as error:  # such as a damaged checkpoint; the other runs go on
                faults.append(f"{variant}, seed {seed}: {error}")
            bar.update()
    if left := [f"{variant}, seed {seed}" for variant, seed in elsewhere if (variant, seed) not in there()]:
        warnings.warn(f"left to other processes, which have not finished them yet: {'; '.join(left)}", stacklevel=2)
    if faults:
        raise ValueError("; ".join(faults))
    return read_rows(folder / f"{name}.jsonl", sweep)


def _run(name: str, variant: str, recipe: Recipe, folder: Path, device: str) -> dict:
    """Train a run and return its row; a finished run whose row could not be written is not trained again."""
    try:
        if (folder / "metrics.json").exists():
            return _row(variant, load_metrics(folder))
        return _row(variant, run_recipe(name, recipe, folder, device=device, keep_weights=False, progress=False))
    except FloatingPointError as error:
        return _broken_row(variant, recipe, str(error).split(",")[0], provenance(device))


def _row(variant: str, metrics: dict) -> dict:
    """A finished run's row."""
    history, last = metrics["history"], metrics["history"][-1]
    return {
        "format": metrics.get("format", 1),
        "variant": variant,
        "seed": metrics["recipe"]["seed"],
        "test_accuracy": metrics["test"]["accuracy"],
        **{key: last[key] for key in LAST},
        "train_losses": [round(entry["train_loss"], 4) for entry in history],
        # As if every epoch took as long as the fastest: the machine may have been busy with other work.
        "seconds": round(len(history) * min(entry["seconds"] for entry in history), 1),
        "recipe": metrics["recipe"],
        **{key: metrics[key] for key in ("parameters", "data", "device", "commit", "date")},
        "torch": metrics["versions"]["torch"],
    }


def _broken_row(variant: str, recipe: Recipe, reason: str, where: dict) -> dict:
    """A diverged run's row."""
    return {
        "format": FORMAT,
        "variant": variant,
        "seed": recipe.seed,
        "broke": reason,
        "recipe": asdict(recipe),
        **{key: where[key] for key in ("device", "commit", "date")},
        "torch": where["versions"]["torch"],
    }


def read_rows(path: Path, sweep: Sweep) -> list[dict]:
    """The rows of a file whose recipe is still the sweep's, in the sweep's order.

    Skipped with a warning are a truncated last line, a row that is not JSON, lacks results or has a recipe that cannot
    be built, and the second row of a variant and seed.
    """
    rows, first = {}, {}
    for number, (row, counts) in read_lines(path, partial(_read_row, sweep)).items():
        run = (row["variant"], row["seed"])
        if counts and first.setdefault(run, number) < number:
            what = f"{path}, line {number} has the run of line {first[run]}, {run[0]!r} with seed {run[1]}"
            warnings.warn(f"{what}: that one counts", stacklevel=2)
        elif counts:
            rows[run] = row
    order = list(sweep.recipes)
    return sorted(rows.values(), key=lambda row: (order.index(row["variant"]), row["seed"]))


def _read_row(sweep: Sweep, line: bytes, odd: str) -> tuple[dict, bool]:
    """A row, and whether its recipe is still the sweep's.

    Raises:
        ValueError: if it is none of this version; the message begins with ``odd``.
    """
    row = read_json(line, odd)
    results = {} if "broke" in row else dict.fromkeys(("test_accuracy", *LAST), int | float)
    for name, kind in {"variant": str, "seed": int, **results}.items():
        if not isinstance(row.get(name), kind):
            raise ValueError(f"{odd}its {name} is {row.get(name)!r:.60}" if name in row else f"{odd}it lacks {name}")
    row["variant"] = OLD_NAMES.get(row["variant"], row["variant"])
    with at_fault(odd):
        recipe = recipe_from_dict(row.get("recipe"), row.get("format", 1))
    wanted = sweep.recipes.get(row["variant"])
    return row, wanted is not None and recipe == replace(wanted, seed=recipe.seed) and recipe.seed == row["seed"]


@checked
def effect_interval(base: Float[Tensor, " n"], changed: Float[Tensor, " m"]) -> tuple[float, float, float]:
    """The difference of two means, ``changed`` minus ``base``, and the two ends of its 95 % interval.

    Args:
        base: one result per run, at least two.
        changed: the same for the runs with one thing changed.

    Raises:
        ValueError: if a side has fewer than two runs or a result that is NaN or infinite, or if neither side varies.

    Source: Welch 1947, "The generalization of 'Student's' problem when several different population variances are
    involved"; chapter 10.
    """
    from scipy import stats  # takes a second to import; nothing else here needs it

    if min(len(base), len(changed)) < 2:
        raise ValueError(f"each side needs at least 2 runs, got {len(base)} and {len(changed)}")
    for name, results in (("base", base), ("changed", changed)):
        if not results.isfinite().all():
            raise ValueError(f"results must be finite, and a run that broke has none: {name} has {results.tolist()}")
    difference = (changed.mean() - base.mean()).item()
    a, b = base.var().item() / len(base), changed.var().item() / len(changed)
    if a + b == 0:
        raise ValueError(
            f"results must vary on at least one side to give an interval, got {base.tolist()} and {changed.tolist()}"
        )
    freedom = (a + b) ** 2 / (a**2 / (len(base) - 1) + b**2 / (len(changed) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(a + b)
    return difference, difference - half, difference + half


def load_sweep(name: str, *, broken: bool = False) -> list[dict]:
    """The results of a sweep, one row per finished run: those recorded with the package, then your own.

    A row has ``variant`` and ``seed``; ``test_accuracy``, ``val_accuracy``, ``val_loss``, ``train_accuracy`` and
    ``train_loss`` after the last epoch; ``train_losses`` after each; ``seconds``, the fastest epoch's times the number
    of epochs (in the first recordings: the measured total); ``parameters``, ``device``, ``data``, ``recipe``,
    ``torch``, ``commit`` and ``date``.

    Args:
        broken: return the diverged runs instead; in place of results they have ``broke``, which names the step.

    Raises:
        ValueError: if there is no such sweep.
    """
    check_option("name", name, SWEEPS)
    recorded, own = (read_rows(place / "sweeps" / f"{name}.jsonl", SWEEPS[name]) for place in (FOLDER, OWN_RUNS))
    there = {(row["variant"], row["seed"]) for row in recorded}
    rows = recorded + [row for row in own if (row["variant"], row["seed"]) not in there]
    return [row for row in rows if ("broke" in row) == broken]
