"""Small files in the layouts of the real data sets, for tests without data and network."""

import gzip
import hashlib
import io
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torchvision
from PIL import Image

from vit_tutorial.data.sources import CIFAR_CLASSES, MNIST_FILES

SIZES = {"train": 30, "t10k": 12}  # images in the small MNIST


def mnist_file(name: str) -> bytes:
    """One of MNIST's four files, unpacked, with few images: number i is filled with i and labelled i mod 10."""
    num = SIZES[name.split("-")[0]]
    if "labels" in name:
        return bytes([0, 0, 8, 1]) + num.to_bytes(4, "big") + bytes(i % 10 for i in range(num))
    sizes = b"".join(size.to_bytes(4, "big") for size in (num, 28, 28))
    return bytes([0, 0, 8, 3]) + sizes + b"".join(bytes([i]) * 28 * 28 for i in range(num))


def write_mnist(raw: Path) -> None:
    raw.mkdir(parents=True)
    for name in MNIST_FILES:
        (raw / name).write_bytes(mnist_file(name))


def packed_mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What MNIST's hosts serve, by name; torchvision is told the checksums."""
    files = {f"{name}.gz": gzip.compress(mnist_file(name)) for name in MNIST_FILES}
    sums = [(name, hashlib.md5(content).hexdigest()) for name, content in files.items()]
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", sums)
    return files


def as_python_2(value) -> bytes:
    """A pickle as CIFAR-10's authors wrote theirs, with Python 2 and an old NumPy: texts and pixels are plain bytes."""

    def part(value) -> bytes:
        if isinstance(value, dict):
            return b"}(" + b"".join(part(each) for pair in value.items() for each in pair) + b"u"
        if isinstance(value, list | tuple):
            opened, closed = (b"](", b"e") if isinstance(value, list) else (b"(", b"t")
            return opened + b"".join(map(part, value)) + closed
        if isinstance(value, np.ndarray):
            made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + part((0,)) + part("b") + b"tR"
            kind = b"cnumpy\ndtype\n" + part(("u1", 0, 1)) + b"R" + part((3, "|", None, None, None, -1, -1, 0)) + b"b"
            return made + b"(" + part(1) + part(value.shape) + kind + b"I00\n" + part(value.tobytes()) + b"tb"
        if isinstance(value, int):
            return b"J" + value.to_bytes(4, "little", signed=True)
        content = value.encode() if isinstance(value, str) else value
        return b"N" if value is None else b"T" + len(content).to_bytes(4, "little") + content

    return b"\x80\x02" + part(value) + b"."


def write_cifar_batches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's CIFAR-10 with 10 images in each file, and torchvision told their checksums."""
    official = torchvision.datasets.CIFAR10
    folder = root / official.base_folder
    folder.mkdir(parents=True, exist_ok=True)

    def write(file: str, content: dict) -> str:
        (folder / file).write_bytes(as_python_2(content))
        return hashlib.md5((folder / file).read_bytes()).hexdigest()

    def batch(file: str) -> dict:
        rng = np.random.default_rng(zlib.crc32(file.encode()))
        return {"data": rng.integers(0, 256, (10, 3072), dtype=np.uint8), "labels": list(range(10))}

    for kind in ("train_list", "test_list"):
        sums = [[file, write(file, batch(file))] for file, _ in getattr(official, kind)]
        monkeypatch.setattr(official, kind, sums)
    file = official.meta["filename"]
    meta = {**official.meta, "md5": write(file, {"label_names": list(CIFAR_CLASSES)})}
    monkeypatch.setattr(official, "meta", meta)


def packed_cifar(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What CIFAR-10's host serves, made in ``root``; torchvision is told the checksums."""
    official = torchvision.datasets.CIFAR10
    write_cifar_batches(root, monkeypatch)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(root / official.base_folder, official.base_folder)
    monkeypatch.setattr(official, "tgz_md5", hashlib.md5(archive.getvalue()).hexdigest())
    return {official.filename: archive.getvalue()}


def write_image(path: Path, value: int | tuple[int, int, int], size: tuple[int, int] = (8, 6)) -> None:
    """One colour all over; ``size`` is (width, height), as PIL has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value,) * 3 if isinstance(value, int) else value).save(path)


def write_tree(folder: Path, classes: tuple[str, ...], each: int, suffix: str = "png") -> None:
    """``each`` images for each class; the pixels of an image tell its class and number: 20·class + number."""
    for label, name in enumerate(classes):
        for number in range(each):
            write_image(folder / name / f"{number:03}.{suffix}", 20 * label + number)
