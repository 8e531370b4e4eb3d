"""Checkpoints: everything that an interrupted run needs to end as if nothing had happened, written atomically."""

import io
import os
import pickle
import textwrap
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from vit_tutorial.data.folders import folder_changes
from vit_tutorial.data.images import Dataset, ImageFiles
from vit_tutorial.training.ema import EMA
from vit_tutorial.training.optimizers import MuonWithAdamW

DAMAGED = (zipfile.BadZipFile, zlib.error, pickle.UnpicklingError, EOFError, RuntimeError, ValueError)


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer | MuonWithAdamW,
    ema: EMA | None,
    config: Any,
    history: list[dict[str, float]],
    data: Dataset | ImageFiles | None = None,
) -> None:
    """Write ``path`` as :func:`write_whole` does: a reader finds the old checkpoint or the new one.

    Of ``data`` it keeps the names of the classes, and which images they are: for a folder those of each split, for a
    named set the fingerprint.

    Raises:
        OSError: if it cannot be written; the message has the path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "config": repr(config),
        "history": history,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "ema": ema.state if ema else None,
        "classes": list(data.classes) if data else [],
        "split": data.split if data else None,
        "fingerprint": data.fingerprint if isinstance(data, Dataset) else None,
    }
    file = io.BytesIO()
    torch.save(state, file)
    write_whole(path, file.getvalue())


def write_whole(path: Path, content: bytes) -> None:
    """Write beside ``path``, then rename, so that ``path`` is never incomplete; a failed attempt leaves nothing.

    Raises:
        OSError: if it cannot be written; the message has the path.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def load_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer | MuonWithAdamW,
    ema: EMA | None,
    config: Any,
    data: Dataset | ImageFiles | None = None,
) -> list[dict[str, float]]:
    """Restore in place what :func:`save_checkpoint` wrote; returns the history.

    Only tensors and plain data are read, no code.

    Raises:
        OSError: if the file does not exist or cannot be read.
        ValueError: if the file is damaged, or belongs to a run with another config, another model or other images than
            those of ``data``; the message says what has changed.
    """
    state = _read(path, next(model.parameters()).device)
    there = state["config"]
    if data and (changes := folder_changes(state, data)):
        raise ValueError(
            f"{path} cannot go on with {data.variant}: {changes}. Undo that, or move it elsewhere to start afresh"
        )
    then, now = state.get("fingerprint"), data.fingerprint if isinstance(data, Dataset) else None
    if then and now and then != now:  # older checkpoints have none
        raise ValueError(
            f"{path} was trained on other images, or in another order, than {data.variant}: fingerprint {then}, now "
            f"{now}. Validation images are drawn by position. Move it elsewhere to start afresh"
        )
    if there != repr(config):
        raise ValueError(
            f"{path} belongs to another run: {_difference(there, repr(config))}. Move it elsewhere, or rename this run"
        )
    try:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"{path} belongs to another model: {reason(error)}. Move it elsewhere, or rename this run"
        ) from error
    if ema:
        for name, value in state["ema"].items():
            ema.state[name].copy_(value)
    return state["history"]


def config_of(path: str | Path) -> str:
    """The ``repr`` of the config whose run this checkpoint belongs to.

    Raises:
        OSError: if the file does not exist or cannot be read.
        ValueError: if it is damaged.
    """
    return _read(path, "cpu")["config"]


def _read(path: str | Path, device: torch.device | str) -> dict:
    content = Path(path).read_bytes()
    try:
        if damaged := zipfile.ZipFile(io.BytesIO(content)).testzip():  # torch.load itself checks no checksum
            raise zipfile.BadZipFile(f"wrong checksum in {damaged}")
        state = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        state["config"]  # or a KeyError
    except (*DAMAGED, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a whole checkpoint: {reason(error, 0)}. Move it elsewhere to start afresh"
        ) from error
    return state


def reason(error: Exception, line: int = -1) -> str:
    """One line of an error's text, shortened; if it has no text, its kind."""
    lines = str(error).splitlines() or [type(error).__name__]
    return textwrap.shorten(lines[line], 200, placeholder="…")


def _difference(there: str, here: str) -> str:
    """Two configs from the first field on that differs, shortened."""
    start = next((i for i, pair in enumerate(zip(there, here, strict=False)) if pair[0] != pair[1]), 0)
    start = max(there.rfind(" ", 0, start), there.rfind("(", 0, start)) + 1
    return f"it has {there[start : start + 30]}…, this run {here[start : start + 30]}…"
