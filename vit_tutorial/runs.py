"""Finished real runs: what was measured, where it comes from, and the weights (written by ``vit-tutorial train``)."""

import json
import platform
import re
import subprocess
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, fields, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load, save
from torch import Tensor, nn

from vit_tutorial.archs.registry import ARCHS
from vit_tutorial.attention import Attention, fused_attention, plain_attention
from vit_tutorial.borders import at_fault, read_json, write_whole
from vit_tutorial.data.copies import look_alikes
from vit_tutorial.data.folders import check_split
from vit_tutorial.data.images import Dataset, ImageFiles
from vit_tutorial.data.sources import CLASSES
from vit_tutorial.metrics import FORMAT, read_metrics, recipe_of
from vit_tutorial.old_names import current_name
from vit_tutorial.recipes import Recipe, RecordedRecipe, load_split, make_model
from vit_tutorial.training.checkpoints import config_of
from vit_tutorial.training.distributed import rank_and_world
from vit_tutorial.training.loop import AfterEpoch, evaluate, fit, in_bf16
from vit_tutorial.validate import check_between

FOLDER = Path(__file__).parent / "recorded"  # ships with the package
OWN_RUNS = Path("runs")  # the user's, in the working directory


def run_recipe(
    name: str,
    recipe: Recipe,
    folder: Path,
    *,
    device: str = "cpu",
    keep_weights: bool = True,
    keep_epochs: Collection[int] = (),
    progress: bool = True,
    after_epoch: AfterEpoch | None = None,
) -> dict:
    """Train a recipe to the end and record it in ``folder``; an interrupted run resumes from its checkpoint there.

    The test set is read once, after the last epoch. Of several processes only the first writes.

    Args:
        name: of the recipe.
        recipe: data, model and training.
        folder: for the metrics, the weights and, until the run ends, a checkpoint.
        device: where to train.
        keep_weights: whether to store the final weights, in half precision.
        keep_epochs: store the weights after these epochs too, counted from 1; ``load_recorded(folder, epoch)`` reads
            them.
        progress: whether to show a progress bar.
        after_epoch: see :func:`~vit_tutorial.training.fit`.

    Returns:
        the metrics, as stored in ``metrics.json``.

    Raises:
        FileNotFoundError: if the data are missing and cannot be fetched.
        OSError: if ``folder`` cannot be written; the message names the file.
        ValueError: if recipe and data do not fit, the checkpoint in ``folder`` is damaged or belongs to another run,
            another process is training there, or images of a folder were moved or renamed meanwhile.
        FloatingPointError: if a loss or a weight is not finite.
    """
    recipe = _fresh(recipe)
    train, val = load_split(recipe, "train"), load_split(recipe, "val")
    model = attend_for(make_model(recipe), device, recipe.precision)
    checkpoint = folder / "checkpoint.pt"
    made = provenance(device)  # now, because the checkout may move on while this runs
    writes = rank_and_world()[0] == 0

    def keep_and_show(model: nn.Module, history: list[dict[str, float]]) -> None:
        if len(history) in keep_epochs:
            write_whole(_weights_of(folder, len(history)), _packed(model))
        if after_epoch:
            after_epoch(model, history)

    with running_alone(folder) if writes else nullcontext():
        history = fit(
            model,
            train,
            val,
            recipe,
            device=device,
            checkpoint=checkpoint,
            progress=progress,
            after_epoch=keep_and_show,
        )
        test = load_split(recipe, "test")
        check_split({"classes": train.classes, "split": train.split}, test, "test")
        metrics = {
            "format": FORMAT,
            "name": name,
            "recipe": asdict(recipe),
            "precision": "bf16" if in_bf16(device, recipe.precision) else "fp32",  # what "auto" came to
            "parameters": sum(p.numel() for p in model.parameters()),
            "data": train.variant,
            "fingerprint": {"train": train.fingerprint, "val": val.fingerprint},
            "classes": list(train.classes),
            "split": train.split,
            "images": {"train": len(train), "val": len(val)},
            "samples_seen": len(train) * recipe.epochs,
            "history": history,
            "test": _test_scores(model, train, test, recipe),
            "seconds": sum(entry["seconds"] for entry in history),
            **made,
        }
        if writes:
            weights = _weights_of(folder)
            if keep_weights:
                content = _packed(model)
                metrics["checksum"] = _checksum(content)
                write_whole(weights, content)
            else:
                weights.unlink(missing_ok=True)
            write_whole(folder / "metrics.json", (json.dumps(metrics, indent=1) + "\n").encode())
            checkpoint.unlink(missing_ok=True)
    return metrics


def attend_for(model: nn.Module, device: str, precision: str) -> nn.Module:
    """The model itself, with plain attention where PyTorch's kernel is many times slower (chapter 11)."""
    if device == "cpu" and in_bf16(device, precision):
        for part in model.modules():
            if isinstance(part, Attention) and part.attend is fused_attention:  # any other is part of the recipe
                part.attend = plain_attention
    return model


def append_row(path: Path, row: dict) -> None:
    """Add a line of JSON to a file, after its last whole line."""
    with locked(path.with_name(f".{path.name}.lock")):
        content = path.read_bytes() if path.exists() else b""
        write_whole(path, whole_lines(content) + json.dumps(row).encode() + b"\n")


def whole_lines(content: bytes) -> bytes:
    """Without a truncated last line."""
    return content[: content.rfind(b"\n") + 1]


def read_lines(path: Path, read: Callable[[bytes, str], Any] = read_json) -> dict[int, Any]:
    """What ``read`` makes of each line of a file, by the line's number; nothing if there is no file.

    A truncated last line, left by a killed process or a full disk, is skipped with a warning, and so is a line that
    ``read`` refuses.

    Args:
        read: of a line, and the words with which its ValueError begins.
    """
    content = path.read_bytes() if path.exists() else b""
    whole, found = whole_lines(content), {}
    lines = whole.splitlines()
    if len(whole) < len(content):
        warnings.warn(f"{path}, line {len(lines) + 1} is truncated: its run does not count", stacklevel=3)
    for number, line in enumerate(lines, start=1):
        try:
            found[number] = read(line, f"{path}, line {number} is not a row of this version: ")
        except ValueError as error:
            warnings.warn(f"{error}. Its run does not count", stacklevel=3)
    return found


def _test_scores(model: nn.Module, train: Dataset | ImageFiles, test: Dataset | ImageFiles, recipe: Recipe) -> dict:
    """What :func:`~vit_tutorial.training.evaluate` returns; of a folder in memory also ``look_alikes``, how many test
    images look like training images without being copies of them, and ``accuracy_unlike``, on those that are neither.
    """
    scores = evaluate(model, test, recipe)
    if test.split is not None and isinstance(train, Dataset) and isinstance(test, Dataset):
        near = look_alikes(train.images, test.images)
        known = near if test.trained_on is None else near | test.trained_on
        scores["look_alikes"] = int(known.sum()) - scores.get("trained_on", 0)
        if scores["look_alikes"]:
            unlike = evaluate(model, replace(test, trained_on=known), recipe)
            scores["accuracy_unlike"] = unlike["accuracy_without"]
    return scores


def run_once(name: str, recipe: Recipe, folder: Path, **options) -> dict:
    """Do what :func:`run_recipe` does, unless this run is finished in ``folder``: then return its metrics at once.

    Args:
        options: of :func:`run_recipe`. ``after_epoch`` is also called once with the model and the history of a finished
            run, so that its curves are shown again; not if its weights were not kept.

    Raises:
        ValueError: if a run of another recipe is finished there, and as :func:`run_recipe`.
    """
    if not (folder / "metrics.json").exists():
        return run_recipe(name, recipe, folder, **options)
    metrics = load_metrics(folder)
    if differ := _differences(folder, metrics, recipe):
        key, (there, here) = next(iter(differ.items()))
        raise ValueError(
            f"{folder} holds a finished run with another {key}: {there}, not {here}. "
            "Choose another name, or move the folder elsewhere"
        )
    after_epoch = options.get("after_epoch")
    if after_epoch and _weights_of(folder).exists():
        after_epoch(load_recorded(folder)[0].to(options.get("device", "cpu")), metrics["history"])
    return metrics


def own_name(name: str, recipe: Recipe) -> str:
    """A name for your run of a recipe: ``name``, or the first of ``name-2``, ``name-3``, … that no other recipe has.

    A recipe whose run is finished or half-trained in ``runs/`` gets that run's name again.

    Raises:
        ValueError: if the metrics or a checkpoint found there are damaged.
    """
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(candidate for candidate in names if not _is_anothers(OWN_RUNS / candidate, recipe))


def _is_anothers(folder: Path, recipe: Recipe) -> bool:
    """Whether a run of another recipe is finished or half-trained in ``folder``."""
    if (folder / "metrics.json").exists():
        return bool(_differences(folder, load_metrics(folder), recipe))
    checkpoint = folder / "checkpoint.pt"
    return checkpoint.exists() and config_of(checkpoint) != repr(_fresh(recipe))


def _differences(folder: Path, metrics: dict, recipe: Recipe) -> dict[str, tuple]:
    """The fields in which a run's recipe differs from this one, with both values."""
    there, here = asdict(recipe_of(folder, metrics)), asdict(_fresh(recipe))
    return {key: (there[key], here[key]) for key in here if there[key] != here[key]}


def _fresh(recipe: Recipe) -> Recipe:
    return recipe.fresh() if isinstance(recipe, RecordedRecipe) else recipe


def _weights_of(folder: Path, epoch: int | None = None) -> Path:
    return folder / ("model.safetensors" if epoch is None else f"epoch-{epoch}.safetensors")


def _packed(model: nn.Module) -> bytes:
    return save({key: _half(value).contiguous().cpu() for key, value in model.state_dict().items()})


@contextmanager
def running_alone(folder: Path) -> Iterator[None]:
    """Make ``folder`` and keep other processes out of it within a ``with`` block; remove it if it ends up empty.

    Raises:
        ValueError: if another process is at work there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise ValueError(f"another process is training {folder}: wait for it, or choose another name") from error
    finally:
        with suppress(OSError):  # it is not empty
            folder.rmdir()


@contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Hold the lock file ``path`` within a ``with`` block, then delete it.

    Raises:
        filelock.Timeout: if another process holds it for more than ``timeout`` seconds; −1 waits forever.
    """
    with FileLock(path, timeout=timeout):
        try:
            yield
        finally:
            with suppress(OSError):  # Windows cannot delete an open file
                path.unlink()


def _checksum(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def _half(value: Tensor) -> Tensor:
    """Half precision, unless it is an integer, such as a batch norm's count, or a value would become infinite."""
    half = value.half() if value.is_floating_point() else value
    return half if half.isfinite().all() else value


def provenance(device: str) -> dict:
    """Where a run comes from: processes, device, versions, commit and date."""
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
    # What a processor can do distinguishes machines, whose seconds must not be compared; AMX multiplies bf16.
    units = torch.backends.cpu.get_cpu_capability() + ", AMX" * torch.cpu._is_amx_tile_supported()
    return f"CPU ({units}), {threads} thread{'s' if threads > 1 else ''}"


@cache  # this process keeps running the code it loaded, even if the checkout moves on
def _commit() -> str:
    """The checkout's commit, with a ``+`` where files of the package differ from it; empty outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", *arguments]  # read only, so that a simultaneous commit does not fail
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout

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
        run: its name, also an old one, or the folder itself.
        own_first: if both have this name, take your own; the chapters read what was recorded.

    Raises:
        ValueError: if there is no such run.
    """
    places = (OWN_RUNS, FOLDER) if own_first else (FOLDER, OWN_RUNS)
    names = () if isinstance(run, Path) else (run, current_name(run))
    for folder in [run] if isinstance(run, Path) else [place / name for place in places for name in names]:
        if (folder / "metrics.json").exists():
            return folder
    raise ValueError(f"there is no finished run {str(run)!r}; recorded are: {', '.join(recorded_runs()) or 'none'}")


def load_metrics(run: str | Path) -> dict:
    """What a run measured.

    Args:
        run: its name, or its folder.

    Raises:
        ValueError: if there is no such run, or its ``metrics.json`` is damaged.
    """
    metrics = read_metrics(find_run(run) / "metrics.json")
    if "name" in metrics:
        metrics["name"] = current_name(metrics["name"])
    return metrics


def load_seeds(name: str) -> list[dict]:
    """What the recorded runs of a recipe measured, seed 0 first: further seeds' names end in -1, -2, and so on.

    Args:
        name: of the recipe; an empty list is returned if it has no recorded run.
    """
    runs = [load_metrics(run) for run in recorded_runs() if re.fullmatch(rf"{re.escape(name)}(-\d+)?", run)]
    return sorted(runs, key=lambda run: run["recipe"]["seed"])


def load_classes(run: str | Path) -> tuple[str, ...]:
    """The names of the classes that a run's model distinguishes, in order.

    Raises:
        ValueError: if there is no such run, its metrics are damaged or name another number of classes than its model
            has, or it was trained on a folder before metrics named their classes.
    """
    folder, metrics = find_run(run), load_metrics(run)
    recipe = recipe_of(folder, metrics)
    if "classes" not in metrics and recipe.dataset.startswith("folder:"):
        raise ValueError(f"{folder} does not name its classes because it comes from an older version: train it again")
    classes = tuple(map(str, metrics["classes"] if "classes" in metrics else CLASSES[recipe.dataset]))
    if len(classes) != recipe.model.num_classes:
        found = f"{len(classes)} classes, and the model distinguishes {recipe.model.num_classes}"
        raise ValueError(f"{folder / 'metrics.json'} is damaged: it names {found}; train the run again")
    return classes


def load_recorded(run: str | Path, epoch: int | None = None) -> tuple[nn.Module, RecordedRecipe]:
    """A run's model, with its stored weights and in evaluation mode, and its recipe.

    The recipe remembers which images the run was trained on: if this machine's data are split differently,
    ``load_split(recipe, "val")`` raises an error. Load the images for this model in that way, not by the data set's
    name.

    Args:
        run: its name, or its folder.
        epoch: the weights as they were after this epoch, if the run kept them; see :func:`run_recipe`.

    Raises:
        ValueError: if there is no such run, its metrics are damaged, its weights were not kept, are damaged or do not
            fit its recipe, or the recipe has fields that this version does not know.
    """
    folder = find_run(run)
    path = _weights_of(folder, epoch)
    if not path.exists():
        which = "" if epoch is None else f" after epoch {epoch}"
        raise ValueError(f"the weights of {folder.name!r}{which} were not kept; its metrics are in {folder}")
    metrics = load_metrics(folder)
    recipe = recipe_of(folder, metrics)
    content = path.read_bytes()
    kept, found = metrics.get("checksum") if epoch is None else None, _checksum(content)
    if kept not in (None, found):  # older runs have none
        raise ValueError(f"{path} is damaged: its checksum is {found}, was {kept}; train the run again")
    with at_fault(f"{path} is damaged: ", "; train the run again"):
        state = {name: value.float() if value.is_floating_point() else value for name, value in load(content).items()}
    with at_fault(f"{path} does not fit the recipe in metrics.json beside it: "):
        check_between("depth", recipe.model.depth, 1, len(state))  # before a billion blocks are made
        model = ARCHS[recipe.arch](recipe.model)
        model.load_state_dict(state)
    trained_on = {key: metrics.get(key) for key in ("name", "data", "split", "fingerprint")}
    trained_on |= {"name": folder.name, "classes": list(metrics.get("classes") or CLASSES.get(recipe.dataset, ()))}
    values = {part.name: getattr(recipe, part.name) for part in fields(recipe)}
    return model.eval(), RecordedRecipe(**values, trained_on=trained_on)
