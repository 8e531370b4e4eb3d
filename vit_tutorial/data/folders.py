"""Image folders: finding the images, splitting them, and decoding them once into a cache (chapter 6)."""

import hashlib
import math
import os
import uuid
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from vit_tutorial.data.images import Dataset, ImageFiles, decode_all

SPLIT_SEED = 0
# As torchvision.datasets.ImageFolder has them, whose import takes a second.
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def image_folder(
    path: Path, split: str, img_size: tuple[int, int] | None, cache: Path, memory: int
) -> Dataset | ImageFiles:
    """A split of the images in ``PATH/{train,val,test}/<class>/*`` or ``PATH/<class>/*``.

    Each missing split is a tenth of the training images, drawn by a fixed seed.

    Args:
        img_size: see :class:`~vit_tutorial.data.images.ImageFiles`.
        cache: folder for the decoded images.
        memory: most bytes that are decoded at once; a larger split stays on disk.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it is laid out in another way, has too few images, or holds a damaged one.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder.")
    there = [name for name in ("train", "val", "test") if (path / name).is_dir()]
    if there and "train" not in there:
        raise ValueError(f"{path} has a folder {there[0]}, but none that is called train")
    files, labels, classes = find_images(path / "train" if there else path)
    dataset = ImageFiles(files, labels, classes, f"folder {path.resolve().name}", img_size)
    if split in there[1:]:
        files, labels, _ = find_images(path / split, classes)
        dataset = replace(dataset, files=files, labels=labels)
    else:
        absent = [name for name in ("val", "test") if name not in there]
        tenth = len(dataset) // 10
        if absent and not tenth:
            raise ValueError(f"{path} has {len(dataset)} images to train on; {absent[0]} needs a tenth: 10 at least")
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(SPLIT_SEED))
        start = absent.index(split) * tenth if split in absent else len(absent) * tenth
        end = start + tenth if split in absent else len(dataset)
        dataset = dataset[order[start:end]]
    if len(dataset) * math.prod(dataset.image_shape) > memory:
        return dataset
    key = hashlib.sha256(f"{path.resolve()} {split}".encode()).hexdigest()[:16]
    images = decode_cached(dataset, cache / f"{key}.npz")
    return Dataset(images, dataset.labels, classes, dataset.variant)


def find_images(
    folder: Path, classes: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], Int64[Tensor, " num"], tuple[str, ...]]:
    """The images of a tree ``<class>/*``; hidden files and files without an image's extension are skipped.

    Args:
        classes: the classes' names in order; the subfolders' names, sorted, otherwise.

    Returns:
        paths, class indices and the classes' names.

    Raises:
        ValueError: if there is no class folder, one that ``classes`` does not name, or one without an image.
    """
    found = tuple(sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith(".")))
    if not found:
        raise ValueError(f"{folder} has no folder for each class with that class's images in it")
    classes = classes or found
    if unknown := set(found) - set(classes):
        raise ValueError(f"{folder} has a class {min(unknown)!r} that is none of {', '.join(classes)}")
    files, labels = [], []
    for name in found:
        names = sorted(n for n in os.listdir(folder / name) if n.lower().endswith(IMG_EXTENSIONS) and n[0] != ".")
        if not names:
            raise ValueError(f"{folder / name} holds no image. Remove the folder, or put images into it")
        files += [os.path.join(folder, name, file) for file in names]
        labels += [classes.index(name)] * len(names)
    return tuple(files), torch.tensor(labels), classes


def decode_cached(dataset: ImageFiles, cache: Path) -> UInt8[Tensor, "num 3 H W"]:
    """All images of a set, read from the file ``cache`` if it is whole and made from these very files.

    If the cache cannot be written, a warning says so, and every load decodes all images again.

    Raises:
        ValueError: if a file is not a whole image, or sizes differ and no ``img_size`` is given.
    """
    mark = _fingerprint(dataset)
    try:
        with open(cache, "rb") as file, np.load(file) as kept:
            if str(kept["mark"]) == mark:
                return torch.from_numpy(kept["images"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # there is none, or a damaged one
    images = decode_all(dataset.files, dataset.img_size, progress=True)
    part = cache.with_name(f".{uuid.uuid4().hex}.npz")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        try:
            np.savez(part, images=images.numpy(), mark=np.array(mark))
            os.replace(part, cache)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"{cache} cannot be written ({error}), so every load decodes all images anew", stacklevel=2)
    return images


def _fingerprint(dataset: ImageFiles) -> str:
    """Changes whenever an image is added, removed, renamed or written, or another size is wanted."""
    digest = hashlib.sha256(repr(dataset.img_size).encode())
    for file in dataset.files:
        status = os.stat(file)
        digest.update(f"{file.split(os.sep)[-2:]}|{status.st_size}|{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
