"""5,000 damaged files, at every reader: what comes out is right, or an error that names the file. Nothing else changes.

All happens in one temporary folder, where files of the user's own lie beside what is damaged.
"""

import io
import json
import random
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_data import write_mnist
from PIL import Image
from safetensors.torch import save_file

from vit_tutorial import ViT
from vit_tutorial.classroom.answers import find_answer, statements
from vit_tutorial.classroom.grading import read_points
from vit_tutorial.classroom.submissions import read_submissions
from vit_tutorial.data import load_dataset, sources
from vit_tutorial.data.folders import decode_cached
from vit_tutorial.data.images import ImageFiles, decode
from vit_tutorial.data.tables import read_labels
from vit_tutorial.pretrained import load_pretrained
from vit_tutorial.recipes import RECIPES, make_model
from vit_tutorial.runs import load_classes, load_metrics, load_recorded, run_recipe
from vit_tutorial.training.checkpoints import config_of, load_checkpoint, save_checkpoint
from vit_tutorial.training.ema import EMA
from vit_tutorial.training.loop import make_optimizer
from vit_tutorial.what_matters.sweeps import read_rows
from vit_tutorial.what_matters.variants import Sweep

SMALL = replace(RECIPES["digits"], epochs=1, images=64, model=replace(RECIPES["digits"].model, embed_dim=12, depth=1))
SWEEP = Sweep({"base": SMALL}, seeds=2)
CASES = 5_000
CANARY = b"the user's own"
CODE = "def patchify(images, patch_size):\n    return images\n\n\npatchify = exercise('patchify', patchify)\n"
SEEDS = 10


@dataclass
class Reader:
    """A file, what reads it, and whether what it says names the file (a reader of one of many says whose it is)."""

    file: str
    content: bytes
    read: Callable[[Path], object]
    names_it: bool = True


def packed(kind: str) -> bytes:
    image, file = Image.fromarray(np.arange(20 * 24 * 3, dtype=np.uint8).reshape(20, 24, 3)), io.BytesIO()
    image.save(file, format=kind)
    return file.getvalue()


def zipped(files: dict[str, str]) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()


def readers(home: Path) -> Iterator[Reader]:
    """Every kind of file that the package reads."""
    run_recipe("base", SMALL, home / "run", progress=False)
    metrics = (home / "run/metrics.json").read_bytes()
    yield Reader("run/metrics.json", metrics, lambda f: (load_metrics(f.parent), load_recorded(f.parent)))
    yield Reader("run/metrics.json", metrics, lambda f: load_classes(f.parent))
    weights = (home / "run/model.safetensors").read_bytes()
    yield Reader("run/model.safetensors", weights, lambda f: load_recorded(f.parent))
    model, data = make_model(SMALL), load_dataset("digits")
    optimizer, ema = make_optimizer(model, SMALL), EMA(model, SMALL.ema)
    save_checkpoint(home / "c.pt", model, optimizer, ema, SMALL, [], data)
    content = (home / "c.pt").read_bytes()
    yield Reader("c.pt", content, lambda f: load_checkpoint(f, model, optimizer, ema, SMALL, data))
    yield Reader("c.pt", content, config_of)
    kept = json.loads(metrics)
    row = {"variant": "base", "seed": 0, "test_accuracy": 0.5, "recipe": kept["recipe"], **kept["history"][-1]}
    rows = (json.dumps(row) + "\n" + json.dumps(row | {"seed": 1}) + "\n").encode()
    yield Reader("rows.jsonl", rows, lambda f: read_rows(f, SWEEP))
    state = ViT(replace(SMALL.model, pos_embed="learned")).state_dict()
    for legacy in (False, True):
        torch.save(state, file := io.BytesIO(), _use_new_zipfile_serialization=not legacy)
        yield Reader(f"w{legacy}.pth", file.getvalue(), lambda f: load_pretrained(f, num_heads=3))
    save_file(state, home / "w.safetensors")
    weights = (home / "w.safetensors").read_bytes()
    yield Reader("w.safetensors", weights, lambda f: load_pretrained(f, num_heads=3))
    for kind, ending in {
        "PNG": "png",
        "JPEG": "jpg",
        "BMP": "bmp",
        "PPM": "ppm",
        "TIFF": "tif",
        "WEBP": "webp",
    }.items():
        yield Reader(f"x.{ending}", packed(kind), lambda f: decode(str(f), (8, 8)))
    (home / "p").mkdir()
    for number in range(3):
        Image.new("RGB", (6, 6), (number,) * 3).save(home / f"p/{number}.png")
    files = ImageFiles(tuple(str(home / f"p/{n}.png") for n in range(3)), torch.tensor([0, 1, 0]), ("a", "b"), "")
    right = decode_cached(files, home / "k.npz")

    def cached(file: Path) -> None:
        assert torch.equal(decode_cached(files, file), right), "another picture"

    yield Reader("k.npz", (home / "k.npz").read_bytes(), cached)
    table = b"file,label\n0.png,a\n1.png,b\n2.png,a\n"
    yield Reader("t.csv", table, lambda f: read_labels(home / "p", f), names_it=False)  # it may name a picture instead
    write_mnist(home / "MNIST/raw")
    for name in sources.MNIST_FILES[2:]:
        content = (home / "MNIST/raw" / name).read_bytes()
        yield Reader(f"MNIST/raw/{name}", content, lambda f: load_dataset("mnist", "test", root=home), names_it=False)
    yield Reader("points.toml", b"patchify = 2\nunpatchify = 1.5\n", read_points)
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": CODE.splitlines(keepends=True)}] * 2})
    handed = json.dumps({"format": "vit-tutorial hand-in", "student": "a", "answers": {"patchify": {"source": CODE}}})
    for name, content in {
        "in/a.ipynb": notebook.encode(),
        "in/a.json": handed.encode(),
        "in/a.py": CODE.encode(),
        "in/a.zip": zipped({"a/b.ipynb": notebook, "c.py": CODE}),
    }.items():
        yield Reader(name, content, graded)


def graded(file: Path) -> None:
    """What becomes of a hand-in before an answer runs; another student's stays as it is."""
    (file.parent / "zoe").mkdir(exist_ok=True)
    (file.parent / "zoe/z.py").write_text(CODE)
    found = read_submissions(file.parent)
    assert [each.cells for each in found if each.student == "zoe"] == [(("code", CODE),)]
    for each in found:
        find_answer("patchify", statements(each.cells), ["patchify"])


def damaged(content: bytes, rng: random.Random) -> bytes:
    """A part is missing, doubled or foreign; bits are changed; a number or a word is another one."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place, length = rng.randrange(len(content) + 1), rng.choice((1, 2, 4, 8, 30, 300))
        kind = rng.randrange(8)
        if kind == 0:
            del content[place:]
        elif kind == 1:
            del content[place : place + length]
        elif kind == 2:
            content[place:place] = content[place : place + length]
        elif kind == 3:
            content[place : place + length] = rng.randbytes(length)
        elif kind == 4:
            content[place : place + length] = rng.choice((b"\0", b"\xff", b"[", b'"', b"9", b"\n")) * length
        elif kind == 5 and content:
            content[place % len(content)] ^= 1 << rng.randrange(8)
        elif kind == 6:
            content[:] = content[place:] + content[:place]
        else:
            words = rng.sample(
                (b"null", b"-1", b"1e999", b"NaN", b"{}", b"[]", b'""', b"true", b"99999999999999999999"), 1
            )
            content[place : place + length] = words[0]
    return bytes(content)


def reshaped(name: str, content: bytes, rng: random.Random) -> bytes:
    """A file that is whole, and of another shape: a value is gone, or of another kind."""
    rows = content.splitlines() if name.endswith(".jsonl") else [content]
    number = rng.randrange(len(rows))
    is_torch = name.endswith((".pt", ".pth"))
    loaded = torch.load(io.BytesIO(content), weights_only=True) if is_torch else json.loads(rows[number])
    node = loaded
    while isinstance(node, dict | list) and node:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.4:
            if rng.random() < 0.5:
                del node[key]
            else:
                node[key] = rng.choice((None, -1, 1.5, "x", [], {}, [[]], True, 10**30, 1e308))
            break
        node = node[key]
    if is_torch:
        torch.save(loaded, file := io.BytesIO())
        return file.getvalue()
    rows[number] = json.dumps(loaded).encode()
    return b"\n".join(rows) + b"\n" * name.endswith(".jsonl")


@contextmanager
def canaries(home: Path) -> Iterator[None]:
    """Files of the user's own, which are there afterwards as they were."""
    places = [home / name for name in ("mine.txt", "in.txt", "run.txt", "MNIST.txt")]
    for place in places:
        place.write_bytes(CANARY)
    yield
    assert [place.read_bytes() for place in places] == [CANARY] * len(places)


def try_all(home: Path, cases: int, seed: int) -> dict[str, int]:
    """How many cases came through, how many were refused; what is neither, in words."""
    rng, counts, faults = random.Random(seed), {"read": 0, "refused": 0}, []
    with canaries(home), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = list(readers(home))
        for number in range(cases):
            reader = every[number % len(every)]
            file = home / reader.file
            file.parent.mkdir(exist_ok=True)
            if reader.file.endswith((".json", ".ipynb", ".jsonl", ".pt", ".pth")) and rng.random() < 0.5:
                content = reshaped(reader.file, reader.content, rng)
            else:
                content = damaged(reader.content, rng)
            file.write_bytes(content)
            try:
                reader.read(file)
                counts["read"] += 1
            except (ValueError, OSError) as error:
                counts["refused"] += 1
                if reader.names_it and str(file) not in str(error) and str(file.parent) not in str(error):
                    faults.append(f"{reader.file}: does not name the file: {error}")
            except Exception as error:
                faults.append(f"{reader.file}, {len(content)} bytes, case {number}: {type(error).__name__}: {error}")
            if reader.file.startswith(("run/", "MNIST/")):
                file.write_bytes(reader.content)  # the others lean on it
            else:
                file.unlink()
    return counts | {"faults": faults}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_damaged_file_is_read_or_named(tmp_path, monkeypatch, seed, no_shape_checks):
    monkeypatch.setattr(sources, "VAL_IMAGES", 5)
    found = try_all(tmp_path, CASES // SEEDS, seed)
    assert found.pop("faults") == []
    assert sum(found.values()) == CASES // SEEDS and found["refused"] > CASES // SEEDS // 3
    print(found)
