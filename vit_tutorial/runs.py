"""Finished real runs: what was measured, where it comes from, and the weights (written by ``vit-tutorial train``)."""

import json
import os
import platform
import subprocess
import time
from dataclasses import asdict, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vit_tutorial.archs.registry import ARCHS
from vit_tutorial.attention import Attention, fused_attention, plain_attention
from vit_tutorial.augment.policy import Augment
from vit_tutorial.config import ViTConfig
from vit_tutorial.data import load_dataset
from vit_tutorial.recipes import Recipe, load_split, make_model
from vit_tutorial.training.checkpoints import reason
from vit_tutorial.training.distributed import rank_and_world
from vit_tutorial.training.loop import evaluate, fit, in_bf16

FOLDER = Path(__file__).parent / "recorded"  # comes with the package
OWN_RUNS = Path("runs")  # of the user, below the working directory


def run_recipe(
    name: str,
    recipe: Recipe,
    folder: Path,
    *,
    device: str = "cpu",
    keep_weights: bool = True,
    progress: bool = True,
) -> dict:
    """Train a recipe to the end, going on where an interrupted run stopped, and record it in ``folder``.

    The test set is read once, after the last pass. Of several processes only the first writes.

    Args:
        name: of the recipe.
        recipe: what to train on what, and how.
        folder: where the metrics, the weights and until the end a checkpoint go.
        device: where to train.
        keep_weights: whether to store the final weights, in half precision.
        progress: whether to show a progress bar.

    Returns:
        the metrics, as they stand in ``metrics.json``.

    Raises:
        FileNotFoundError: when the data are not there and cannot be fetched.
        ValueError: when recipe and data do not fit, or the checkpoint in ``folder`` is of another run.
        FloatingPointError: when the loss is not finite.
    """
    train, val = load_split(recipe, "train"), load_split(recipe, "val")
    model = make_model(recipe)
    if device == "cpu" and in_bf16(device, recipe.precision):
        for part in model.modules():
            if isinstance(part, Attention) and part.attend is fused_attention:  # another one is what the recipe trains
                part.attend = plain_attention  # PyTorch's kernel is many times slower there (chapter 11)
    checkpoint = folder / "checkpoint.pt"
    made = provenance(device)  # now: the checkout may move on while this runs
    history = fit(model, train, val, recipe, device=device, checkpoint=checkpoint, progress=progress)
    metrics = {
        "name": name,
        "recipe": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "data": train.variant,
        "classes": list(train.classes),
        "images": {"train": len(train), "val": len(val)},
        "samples_seen": len(train) * recipe.epochs,
        "history": history,
        "test": evaluate(model, load_split(recipe, "test"), recipe),
        "seconds": sum(entry["seconds"] for entry in history),
        **made,
    }
    if rank_and_world()[0] == 0:
        folder.mkdir(parents=True, exist_ok=True)
        weights = folder / "model.safetensors"
        weights.unlink(missing_ok=True)
        if keep_weights:
            save_file({key: _cast(v, torch.half).contiguous().cpu() for key, v in model.state_dict().items()}, weights)
        part = folder / ".metrics.json.part"
        part.write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
        os.replace(part, folder / "metrics.json")
        checkpoint.unlink(missing_ok=True)
    return metrics


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value  # a batch norm counts its batches


def provenance(device: str) -> dict:
    """Where and with what a run is made: processes, device, versions, commit and date."""
    return {
        "processes": rank_and_world()[1],
        "device": _device_name(device),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("torch", "torchvision", "numpy")}},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    # What the processor can do tells two machines apart, whose seconds must not be compared.
    return f"CPU ({torch.backends.cpu.get_cpu_capability()}), {threads} thread{'s' if threads > 1 else ''}"


@cache  # of the code that this process runs: the checkout may move on beneath it
def _commit() -> str:
    """The checkout's commit, with a ``+`` where files of the package differ from it; empty outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout

    try:
        tracked = git("ls-files", "runs.py")
        return (
            git("rev-parse", "HEAD").strip() + ("+" if git("status", "--porcelain", "*.py") else "") if tracked else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return ""


def recorded_runs() -> list[str]:
    """The names of all recorded runs."""
    return sorted(path.parent.name for path in FOLDER.glob("*/metrics.json"))


def find_run(run: str | Path, *, own_first: bool = False) -> Path:
    """The folder of a run: one that was recorded, or one of your own in ``runs/``.

    Args:
        run: its name, or the folder itself.
        own_first: which of them, where both have this name; the chapters read what was recorded.

    Raises:
        ValueError: when there is no such run.
    """
    places = (OWN_RUNS, FOLDER) if own_first else (FOLDER, OWN_RUNS)
    for folder in [run] if isinstance(run, Path) else [place / run for place in places]:
        if (folder / "metrics.json").exists():
            return folder
    raise ValueError(f"there is no finished run {str(run)!r}; recorded are: {', '.join(recorded_runs()) or 'none'}")


def load_metrics(run: str | Path) -> dict:
    """What a run measured.

    Args:
        run: its name, or its folder.

    Raises:
        ValueError: when there is no such run.
    """
    return json.loads((find_run(run) / "metrics.json").read_text(encoding="utf-8"))


def load_classes(run: str | Path) -> tuple[str, ...]:
    """The names of the classes that a run's model tells apart, in order.

    Raises:
        ValueError: when there is no such run, or it is of a folder and older than the names in its metrics.
        FileNotFoundError: when they come with the data, which are not there and cannot be fetched.
    """
    metrics = load_metrics(run)
    dataset = metrics["recipe"]["dataset"]
    if "classes" not in metrics and dataset.startswith("folder:"):
        raise ValueError(f"{find_run(run)} does not name its classes, as it is of an older version: train it again")
    return tuple(metrics["classes"] if "classes" in metrics else load_dataset(dataset, "test").classes)


def load_recorded(run: str | Path) -> tuple[nn.Module, Recipe]:
    """A run's model, of its recipe's architecture and with its weights, in evaluation mode; and its recipe.

    Args:
        run: its name, or its folder.

    Raises:
        ValueError: when there is no such run, its weights were not kept, are damaged or do not fit its recipe, or the
            recipe has fields that this version does not know.
    """
    folder = find_run(run)
    path = folder / "model.safetensors"
    if not path.exists():
        raise ValueError(f"the weights of {folder.name!r} were not kept; its metrics are in {folder}")
    recipe = recipe_from_dict(load_metrics(folder)["recipe"])
    model = ARCHS[recipe.arch](recipe.model)
    try:
        model.load_state_dict({key: _cast(value, torch.float) for key, value in load_file(path).items()})
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {reason(error)}; train the run again") from error
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit the recipe in metrics.json beside it: {reason(error)}") from error
    return model.eval(), recipe


def recipe_from_dict(values: dict) -> Recipe:
    """The recipe that :func:`dataclasses.asdict`, and JSON after it, turned into ``values``.

    Raises:
        ValueError: when there are fields that this version does not know, or a value is out of range.
    """
    model = {key: tuple(value) if isinstance(value, list) else value for key, value in values["model"].items()}
    parts = {"model": _make(ViTConfig, model), "augment": _make(Augment, values["augment"])}
    return _make(Recipe, {**values, **parts})


def _make(kind: type, values: dict):
    if unknown := values.keys() - {field.name for field in fields(kind)}:
        names = ", ".join(sorted(unknown))
        raise ValueError(
            f"the run's {kind.__name__} has fields that this version does not know: {names}; train it again"
        )
    return kind(**values)
