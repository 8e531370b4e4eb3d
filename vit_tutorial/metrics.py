"""What ``metrics.json`` holds, and the recipe in it: checked when read, so that no default stands for a lost field."""

from dataclasses import fields
from pathlib import Path

from vit_tutorial.augment.policy import Augment
from vit_tutorial.borders import at_fault, read_json
from vit_tutorial.config import ViTConfig
from vit_tutorial.recipes import Recipe

FORMAT = 2  # the number of the shape of metrics.json; one without a number has format 1
KINDS = {"recipe": dict, "history": list, "test": dict}
# What runs of format 1 may lack: a recipe's fields that are younger have their defaults then.
LATER_FIELDS = {"decay_all", "precision", "fraction", "images", "labels", "label_columns", "classes", "resized_crop"}
LATER = dict.fromkeys(("name", "data", "device", "commit", "date", "precision"), str)
LATER |= {"fingerprint": dict, "classes": list, "split": dict | None, "images": dict, "versions": dict}
LATER |= {"parameters": int, "samples_seen": int, "processes": int, "seconds": int | float}


def read_metrics(path: Path) -> dict:
    """The metrics of a run, as they were written.

    Raises:
        ValueError: if the file is damaged, lacks something, or comes from a later version.
    """
    damaged, again = f"{path} is damaged: ", "; train the run again"
    metrics = read_json(path.read_bytes(), damaged, again)
    number = metrics.get("format", 1)
    if number not in (1, FORMAT):
        raise ValueError(f"{path} has the format {number!r}, and this version reads those up to {FORMAT}{again}")
    kinds = KINDS | (LATER if number > 1 else {})
    if missing := [name for name in kinds if name not in metrics]:
        raise ValueError(f"{damaged}it lacks {', '.join(missing)}{again}")
    if odd := [name for name, kind in kinds.items() if not isinstance(metrics[name], kind)]:
        raise ValueError(f"{damaged}{odd[0]} is a {type(metrics[odd[0]]).__name__}{again}")
    if not all(isinstance(entry, dict) for entry in metrics["history"]):
        raise ValueError(f"{damaged}history must have an entry with names for each epoch{again}")
    if not isinstance(accuracy := metrics["test"].get("accuracy"), int | float) or not 0 <= accuracy <= 1:
        raise ValueError(f"{damaged}the accuracy on the test images must be from 0 to 1, got {accuracy!r}{again}")
    return metrics


def recipe_of(folder: Path, metrics: dict) -> Recipe:
    """The recipe of a run's metrics; an error names the file in ``folder``."""
    with at_fault(f"{folder / 'metrics.json'} holds no recipe of this version: "):
        return recipe_from_dict(metrics["recipe"], metrics.get("format", 1))


def recipe_from_dict(values: object, number: int = 1) -> Recipe:
    """The inverse of :func:`dataclasses.asdict`, also after a round trip through JSON.

    Args:
        values: the fields of a recipe, its model and its augmentation.
        number: the format that they were written in; in format 1 younger fields may be lacking.

    Raises:
        ValueError: if there are fields that this version does not know, one is lacking, or a value is out of range.
    """
    if not isinstance(values, dict):
        raise ValueError(f"a recipe must be an object with its fields, got {values!r:.60}")
    parts = {"model": ViTConfig, "augment": Augment}
    made = {name: _make(kind, values[name], number) for name, kind in parts.items() if name in values}
    return _make(Recipe, {**values, **made}, number)


def _make(kind: type, values: object, number: int):
    if not isinstance(values, dict):
        raise ValueError(f"the run's {kind.__name__} must be an object with its fields, got {values!r:.60}")
    wanted = {field.name for field in fields(kind)}
    if unknown := values.keys() - wanted:
        names = ", ".join(sorted(unknown))
        raise ValueError(
            f"the run's {kind.__name__} has fields that this version does not know: {names}; train it again"
        )
    if lacking := wanted - values.keys() - (LATER_FIELDS if number == 1 else set()):
        raise ValueError(f"the run's {kind.__name__} lacks {', '.join(sorted(lacking))}; train it again")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
