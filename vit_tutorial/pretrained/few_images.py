"""How good a model can you get from n images of each class? Recorded measurements, and how they are made (chapter 9).

``record`` trains what is missing and adds a row for each training to a file; ``load_few_images`` reads the rows that
ship with the package.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import process_time

from einops import repeat

from vit_tutorial.data import Dataset
from vit_tutorial.data.sources import shapes
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.transfer import draw_per_class, everything, fine_tune, norms_and_biases, with_probe
from vit_tutorial.recipes import RECIPES, Recipe, load_split, make_model
from vit_tutorial.runs import FOLDER, append_row, attend_for, load_recorded, provenance, read_lines
from vit_tutorial.training.loop import evaluate
from vit_tutorial.training.scores import interval
from vit_tutorial.validate import check_int

RECORDED = FOLDER / "few-images" / "rows.jsonl"
DRAWS = 3
RATES = (0.1, 0.3, 1.0)  # of the recipe's learning rate
ENOUGH = 100  # so many validation images choose a rate for all draws; fewer choose for their own draw only
WAYS = ("from scratch", "linear probe", "norms and biases", "all weights")  # the last two begin with the probe as head


@dataclass(frozen=True)
class Task:
    """Images to classify, and weights to borrow.

    Args:
        title: of the images, in words.
        recipe: the images, and how a model is trained on them from scratch.
        backbone: the recorded run whose weights are borrowed. It saw none of these classes.
        scratch: epochs from scratch, by the number of images of each class.
        further: epochs for borrowed weights, likewise.
    """

    title: str
    recipe: Recipe
    backbone: str
    scratch: dict[int, int]
    further: dict[int, int]


DRAWINGS = replace(RECIPES["shapes"], batch_size=64, precision="bf16")
TASKS = {
    "photographs": Task(
        title="photographs of 32×32 pixels, like those that the borrowed weights know",
        recipe=replace(RECIPES["cifar10-half"], classes=("dog", "frog", "horse", "ship", "truck"), batch_size=64),
        backbone="cifar10-half",
        scratch={10: 150, 100: 60, 1000: 15, 4000: 5},
        further={10: 30, 100: 10, 1000: 4, 4000: 2},
    ),
    "drawings": Task(
        title="drawings of 32×32 pixels, which they don't know",
        recipe=DRAWINGS,
        backbone="cifar10-tiny",
        scratch={10: 200, 100: 40, 1000: 12, 10_000: 2},
        further={10: 60, 100: 25, 1000: 4, 10_000: 1},
    ),
}
TASKS["large drawings"] = replace(
    TASKS["drawings"],
    title="drawings of 64×64 pixels, which they don't know",
    recipe=replace(DRAWINGS, model=replace(DRAWINGS.model, img_size=64, patch_size=8)),
    scratch={10: 200, 100: 40, 1000: 12},
    further={10: 60, 100: 25, 1000: 4},
)


@cache
def _images(task: str, per_class: int) -> tuple[Dataset, Dataset]:
    """Those to draw from, and the test images. Drawings are made as many and as large as they have to be."""
    recipe = TASKS[task].recipe
    if recipe.dataset == "shapes":
        size = recipe.model.img_size[0]
        return shapes("train", per_class * recipe.model.num_classes, size), shapes("test", size=size)
    return load_split(recipe, "train"), load_split(recipe, "test")


def _lent(task: str) -> ViT:
    """The backbone, for the task's images: where they are k times as large, so are its patches.

    Each number of its kernels is repeated k × k times, and divided by k²: it sees what it would see of shrunk images.
    """
    model, wanted = load_recorded(TASKS[task].backbone)[0], TASKS[task].recipe.model
    grown = ViT(replace(model.config, img_size=wanted.img_size, patch_size=wanted.patch_size))
    times, name = wanted.patch_size[0] // model.config.patch_size[0], "patch_embed.proj.weight"
    kernel = repeat(model.patch_embed.proj.weight, "d c h w -> d c (h k) (w l)", k=times, l=times)
    grown.load_state_dict(model.state_dict() | {name: kernel / times**2})
    return grown


@cache
def _probed(task: str, per_class: int, seed: int) -> tuple[ViT, float]:
    """The backbone with a probe as its head, and the seconds that it took."""
    start, recipe = process_time(), TASKS[task].recipe
    backbone = attend_for(_lent(task), "cpu", recipe.precision)
    probed = with_probe(backbone, *draw_per_class(_images(task, per_class)[0], per_class, seed), recipe)
    return probed, process_time() - start


def measure(task: str, per_class: int, way: str, seed: int, rates: Iterable[float] = RATES) -> dict:
    """Train on ``per_class`` images of each class, a fifth of them for validation, and test once.

    Args:
        task: one of ``TASKS``.
        per_class: images of each class, a number in the task's ``scratch``.
        way: one of ``WAYS``.
        seed: draws the images, and trains.
        rates: fractions of the recipe's learning rate; the one best on the validation images is tested. A probe has
            none.

    Returns:
        a row of :func:`load_few_images`.
    """
    about, made = TASKS[task], provenance("cpu")
    (pool, test), recipe = _images(task, per_class), replace(about.recipe, seed=seed)
    train, val = draw_per_class(pool, per_class, seed)
    epochs = (about.scratch if way == "from scratch" else about.further)[per_class]

    def trained(rate: float) -> tuple[ViT, float]:
        """A model, and the seconds that it took."""
        if way == "linear probe":
            return _probed(task, per_class, seed)
        model = make_model(recipe) if way == "from scratch" else _probed(task, per_class, seed)[0]
        config, start = replace(recipe, epochs=epochs, lr=rate * recipe.lr), process_time()
        trains = norms_and_biases if way == "norms and biases" else everything
        model = fine_tune(attend_for(model, "cpu", recipe.precision), train, val, config, trains)
        return model, process_time() - start

    tried = {rate: trained(rate) for rate in ((0.0,) if way == "linear probe" else rates)}
    on_val = {rate: evaluate(model, val, recipe) for rate, (model, _) in tried.items()}
    rate = max(tried, key=lambda rate: (on_val[rate]["accuracy"], -on_val[rate]["loss"]))
    model, seconds = tried[rate]
    return {
        "task": task,
        "per_class": per_class,
        "way": way,
        "seed": seed,
        "test_accuracy": evaluate(model, test, recipe)["accuracy"],
        "test_images": len(test),
        "val_accuracies": {f"{rate:g}": scores["accuracy"] for rate, scores in on_val.items()},
        "val_images": len(val),
        "rate": rate,
        "epochs": epochs if rate else 0,
        "seconds": round(seconds, 1),
        "data": pool.variant,
        "lr": recipe.lr,
        "backbone": about.backbone,
        "precision": recipe.precision,
        **{key: made[key] for key in ("device", "commit", "date")},
        "torch": made["versions"]["torch"],
    }


def record(runs: Iterable[tuple[str, int, str, int]], path: Path) -> list[dict]:
    """Do the ``runs`` (task, images of each class, way, seed) that ``path`` lacks, and add a row for each; all rows."""
    for run in runs:
        rows = {(r["task"], r["per_class"], r["way"], r["seed"]): r for r in read_lines(path).values()}
        first = rows.get((*run[:3], 0))
        shared = first and first["val_images"] >= ENOUGH
        if run not in rows:
            append_row(path, measure(*run, rates=(first["rate"],) if shared else RATES))
    return list(read_lines(path).values())


def load_few_images() -> list[dict]:
    """The rows recorded with the package, one for each training; see :func:`measure`.

    A row has ``task``, ``per_class``, ``way`` and ``seed``; ``test_accuracy`` on ``test_images`` images, read once;
    ``val_accuracies`` by the fraction of the recipe's learning rate ``lr``, on ``val_images`` images; ``rate``, the
    fraction they chose, 0 for a probe; ``epochs``; ``seconds`` of CPU time for this one training; ``backbone``,
    ``data``, ``precision``, ``device``, ``torch``, ``commit`` and ``date``.
    """
    return list(read_lines(RECORDED).values())


def by_task(rows: Iterable[dict], value: str = "test_accuracy") -> dict[str, dict[str, dict[int, list[float]]]]:
    """One value of each row, by task, way and number of images of each class: a list over the draws."""
    found = {}
    for row in rows:
        found.setdefault(row["task"], {}).setdefault(row["way"], {}).setdefault(row["per_class"], []).append(row[value])
    return {task: {way: dict(sorted(ways[way].items())) for way in WAYS if way in ways} for task, ways in found.items()}


def summary(rows: Iterable[dict]) -> dict[str, list]:
    """Columns of a table, a line for each task and number of images; see ``vit_tutorial.plots.table``.

    For each way a text: the mean accuracy of the draws, half of the 95 % interval that so many test images leave, and
    the CPU time of one training, the fastest draw's; also how many draws there are, where they aren't ``DRAWS``.
    """
    cells: dict[tuple[str, int], dict[str, list[dict]]] = {}
    for row in rows:
        cells.setdefault((row["task"], row["per_class"]), {}).setdefault(row["way"], []).append(row)
    lines = sorted(cells, key=lambda line: (list(TASKS).index(line[0]), line[1]))
    columns = {"images": [task for task, _ in lines], "of each class": [per_class for _, per_class in lines]}
    return columns | {way: [_told(cells[line].get(way, [])) for line in lines] for way in WAYS}


def _told(draws: list[dict]) -> str:
    if not draws:
        return ""
    mean, total = sum(row["test_accuracy"] for row in draws) / len(draws), draws[0]["test_images"]
    low, high = interval(round(mean * total), total)
    few = f", {len(draws)} draw{'s' * (len(draws) > 1)}" * (len(draws) != DRAWS)
    return f"{mean:.1%} ± {(high - low) / 2:.1%}, {min(row['seconds'] for row in draws):.1f} s{few}"


def expected(per_class: int) -> list[str]:
    """Lines that say what was measured with about ``per_class`` images of each class, to print before a training.

    A task that was measured with ten times as many or as few only is left out, unless none is nearer.

    Raises:
        ValueError: if ``per_class`` is below 1.
    """
    check_int("per_class", per_class, 1)
    by_distance = []
    for task, ways in by_task(load_few_images()).items():
        distance, nearest = min((abs(math.log10(size / per_class)), size) for found in ways.values() for size in found)
        means = {way: sum(found[nearest]) / len(found[nearest]) for way, found in ways.items() if nearest in found}
        told = ", ".join(f"{way} {mean:.0%}" for way, mean in means.items())
        by_distance.append((distance, f"  {nearest:,} images a class, {TASKS[task].title}: {told}"))
    closest = min(distance for distance, _ in by_distance)
    return [
        "for comparison, what a small model got, from scratch and with borrowed weights (chapter 9):",
        *(line for distance, line in by_distance if distance <= max(closest, 1)),  # not ten times as many, or as few
        "  this command trains from scratch; chapter 9 shows how to borrow weights",
    ]
