"""Checkpoints: everything that an interrupted run needs to end as if nothing had happened, written atomically."""

import io
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from vit_tutorial.borders import at_fault, write_whole
from vit_tutorial.data.folders import folder_changes
from vit_tutorial.data.images import Dataset, ImageFiles
from vit_tutorial.training.ema import EMA
from vit_tutorial.training.optimizers import MuonWithAdamW

FORMAT = 1  # the number of a checkpoint's shape; the first ones have none, and may lack what came later
KINDS = {"config": str, "history": list, "model": dict, "optimizer": dict, "ema": dict | None}
LATER = {"format": int, "classes": list, "split": dict | None, "fingerprint": str | None}
AFRESH = ". Move it elsewhere to start afresh"


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: Optimizer | MuonWithAdamW,
    ema: EMA | None,
    config: Any,
    history: list[dict[str, float]],
    data: Dataset | ImageFiles | None = None,
) -> None:
    """Write ``path`` as :func:`~vit_tutorial.borders.write_whole` does: a reader finds the old one or the new one.

    Of ``data`` it keeps the names of the classes, and which images they are: for a folder those of each split, for a
    named set the fingerprint.

    Raises:
        OSError: if it cannot be written; the message has the path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "format": FORMAT,
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
    if then and now and then != now:
        raise ValueError(
            f"{path} was trained on other images, or in another order, than {data.variant}: fingerprint {then}, now "
            f"{now}. Validation images are drawn by position. Move it elsewhere to start afresh"
        )
    if there != repr(config):
        raise ValueError(
            f"{path} belongs to another run: {_difference(there, repr(config))}. Move it elsewhere, or rename this run"
        )
    with at_fault(f"{path} belongs to another model: ", ". Move it elsewhere, or rename this run"):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if ema:
            ema.load_state_dict(state["ema"])
    return state["history"]


def config_of(path: str | Path) -> str:
    """The ``repr`` of the config whose run this checkpoint belongs to.

    Raises:
        OSError: if the file does not exist or cannot be read.
        ValueError: if it is damaged.
    """
    return _read(path, "cpu")["config"]


def _read(path: str | Path, device: torch.device | str) -> dict:
    content, damaged = Path(path).read_bytes(), f"{path} is not a whole checkpoint: "
    with at_fault(damaged, AFRESH):
        if bad := zipfile.ZipFile(io.BytesIO(content)).testzip():  # torch.load itself checks no checksum
            raise zipfile.BadZipFile(f"wrong checksum in {bad}")
        state = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
    if not isinstance(state, dict):
        raise ValueError(f"{damaged}it holds a {type(state).__name__}{AFRESH}")
    if "format" in state and state["format"] != FORMAT:
        raise ValueError(f"{path} has the format {state['format']!r}, this version writes {FORMAT}{AFRESH}")
    kinds = KINDS | (LATER if "format" in state else {})
    wrong = [name for name, kind in kinds.items() if name not in state or not isinstance(state[name], kind)]
    if not wrong and not all(isinstance(entry, dict) for entry in state["history"]):
        wrong = ["history"]
    if wrong:
        raise ValueError(f"{damaged}it has no {', no '.join(wrong)} as it was written{AFRESH}")
    return state


def _difference(there: str, here: str) -> str:
    """Two configs from the first field on that differs, shortened."""
    start = next((i for i, pair in enumerate(zip(there, here, strict=False)) if pair[0] != pair[1]), 0)
    start = max(there.rfind(" ", 0, start), there.rfind("(", 0, start)) + 1
    return f"it has {there[start : start + 30]}…, this run {here[start : start + 30]}…"
