"""Image folders: finding the images, splitting them, and decoding them once into a cache (chapter 6)."""

import hashlib
import math
import os
import uuid
import warnings
import zipfile
from collections import Counter
from collections.abc import Sequence
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
FOLDERS = {"train": "train", "val": "val", "valid": "val", "test": "test"}  # of which split each holds the images
HEX = 12  # digits of an image's hash


def image_folder(
    path: Path, split: str, img_size: tuple[int, int] | None, cache: Path, memory: int
) -> Dataset | ImageFiles:
    """A split of the images in ``PATH/{train,val,test}/<class>/*`` or ``PATH/<class>/*``; see :func:`split_folder`.

    Args:
        img_size: see :class:`~vit_tutorial.data.images.ImageFiles`.
        cache: folder for the decoded images.
        memory: most bytes that are decoded at once; a larger split stays on disk.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it is laid out in another way, has too few images, or holds a damaged one.
    """
    dataset = replace(split_folder(path)[split], img_size=img_size)
    if len(dataset) * math.prod(dataset.image_shape) > memory:
        return dataset
    key = hashlib.sha256(f"{path.resolve()} {split}".encode()).hexdigest()[:16]
    images = decode_cached(dataset, cache / f"{key}.npz")
    return Dataset(images, dataset.labels, dataset.classes, dataset.variant, split=dataset.split)


def split_folder(path: Path) -> dict[str, ImageFiles]:
    """The images of a folder's three splits.

    A split without a folder of its own is about a tenth of each class in ``train``. Every image is assigned by a hash
    of its class and file name alone, so adding images moves no others. If the hash would leave a class without an image
    in a split, the image with the nearest hash is taken; more images may then send that one back to the training
    images. Classes with fewer images than splits are only trained on, and a warning names them.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it is laid out in another way, or no class has an image for each split.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder.")
    there = {entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith(".")}
    own = [name for name in FOLDERS if name in there]
    if own and own[0] != "train":
        raise ValueError(f"{path} has a folder {own[0]}, but none that is called train")
    if {"val", "valid"} <= there:
        raise ValueError(f"{path} has the folders val and valid; only one of them can be the validation images")
    if own and there > set(own):
        unused = ", ".join(sorted(there - set(own)))
        warnings.warn(f"{path}: only the folders {', '.join(own)} are used, not {unused}", stacklevel=2)
    files, labels, classes = find_images(path / "train" if own else path)
    found = {FOLDERS[name]: find_images(path / name, classes)[:2] for name in own[1:]}
    hashes, drawn = _hashes(path, files), [split for split in ("test", "val") if split not in found]
    chosen = {split: [] for split in (*drawn, "train")}
    few = []
    for label, name in enumerate(classes):
        row = sorted((labels == label).nonzero().flatten().tolist(), key=hashes.__getitem__)
        if len(row) < len(chosen):
            few.append(f"{name} ({len(row)})")
        start = 0
        for number, split in enumerate(drawn if len(row) >= len(chosen) else (), start=1):
            below = sum(hashes[i] < f"{number * 16**HEX // 10:0{HEX}x}" for i in row)
            end = min(max(below, start + 1), len(row) - len(chosen) + number)
            chosen[split] += row[start:end]
            start = end
        chosen["train"] += row[start:]
    if len(few) == len(classes):
        raise ValueError(f"{path}: no class has {len(chosen)} images, one each for {', '.join(chosen)}")
    if few:
        warnings.warn(f"{path}: classes with too few images for {', '.join(drawn)}: {', '.join(few)}", stacklevel=2)
    for split, indices in chosen.items():
        indices.sort(key=hashes.__getitem__)  # mixes the classes
        found[split] = tuple(files[i] for i in indices), labels[indices]
    record = {split: "".join(_hashes(path, files)) for split, (files, _) in sorted(found.items())}
    variant = f"folder {path.resolve().name}"
    return {split: ImageFiles(*part, classes, variant, split=record) for split, part in found.items()}


def _hashes(path: Path, files: Sequence[str]) -> list[str]:
    """Of the files' names below ``path``, with ``/`` on every system."""
    names = (file.removeprefix(f"{path}{os.sep}").replace(os.sep, "/") for file in files)
    return [hashlib.sha256(os.fsencode(name)).hexdigest()[:HEX] for name in names]


def folder_changes(kept: dict, dataset: Dataset | ImageFiles) -> str:
    """How the folder of ``dataset`` differs from what a run has ``kept`` of it, in words; empty if it does not.

    Args:
        kept: ``classes``, their names, and ``split``, the images' hashes, as in ``metrics.json`` and in checkpoints.
        dataset: a split of the folder as it is now; other data than folders do not change.
    """
    if dataset.split is None:
        return ""
    if not kept.get("split"):
        return "it is not recorded which images it was trained on"
    before, after = _split_of(kept["split"]), _split_of(dataset.split)
    counts = {
        "added": len(after.keys() - before.keys()),
        "removed": len(before.keys() - after.keys()),
        "moved to another split": sum(after.get(image, split) != split for image, split in before.items()),
    }
    return "; ".join(
        [f"class {name!r} was renamed or removed" for name in kept["classes"] if name not in dataset.classes]
        + [f"class {name!r} is new" for name in dataset.classes if name not in kept["classes"]]
        + [f"{n} image{'s were' if n > 1 else ' was'} {what}" for what, n in counts.items() if n]
    )


def check_split(kept: dict, dataset: Dataset | ImageFiles, split: str) -> str:
    """Stop if the images of a split aren't those that the run, which ``kept`` this, had under the split's name.

    Args:
        kept: a run's ``metrics.json``, or of it ``name``, ``data``, ``classes``, ``split`` and ``fingerprint``.
        dataset: the split as it is now.
        split: ``"test"``, ``"val"`` or ``"train"``.

    Returns:
        those of :func:`folder_changes` that do no harm, in words.

    Raises:
        ValueError: if validation or training images of a named set are others than those that the run had, in number or
            order; its test images were never trained on, whatever their order. If the classes of a folder are others,
            an image of the split was in another one then, or may have been by another name, since such images are gone
            and there are new ones.
    """
    if dataset.split is None:
        _check_fingerprint(kept, dataset, split)
        return ""
    changes = folder_changes(kept, dataset)
    if not changes:
        return ""
    before, after = _split_of(kept.get("split") or {}), _split_of(dataset.split)
    others = {image for image, then in before.items() if then != split}
    now = {image for image, then in after.items() if then == split}
    if not before or list(dataset.classes) != list(kept["classes"]):
        why = ""
    elif others & now:
        used = "used in training" if split == "test" else "in another split"
        why = f" Of the {len(now)} {split} images, {len(others & now)} were {used}."
    elif others - after.keys() and now - before.keys():
        kind = "training images" if split == "test" else "images of another split"
        why = f" The {len(now - before.keys())} new {split} images may be {kind} by another name."
    else:
        return changes
    what = "test this run" if split == "test" else f"be used as the {split} images of this run"
    raise ValueError(f"{dataset.variant} cannot {what}: {changes}.{why} Train it again")


def _check_fingerprint(kept: dict, dataset: Dataset | ImageFiles, split: str) -> None:
    then, now = (kept.get("fingerprint") or {}).get(split), dataset.fingerprint
    if split == "test" or (then and then == now):
        return
    was = f"the split {then}" if then else "a split that was not recorded"
    raise ValueError(
        f"run {kept['name']!r} was trained on {kept['data']} with {was}; here is {dataset.variant} with the split "
        f"{now}. Which of these {split} images it was trained on is unknown, so its accuracy on them says nothing. "
        "Take test images, which no run was trained on, or train it again on these data"
    )


def _split_of(record: dict[str, str]) -> dict[str, str]:
    """The split of each image, by its hash."""
    return {row[i : i + HEX]: split for split, row in record.items() for i in range(0, len(row), HEX)}


def find_images(
    folder: Path, classes: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], Int64[Tensor, " num"], tuple[str, ...]]:
    """The images of a tree ``<class>/*``.

    Hidden files are skipped, and so are files without an image's extension; a warning counts the latter.

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
    files, labels, skipped = [], [], Counter()
    for name in found:
        there = sorted(n for n in os.listdir(folder / name) if n[0] != ".")
        names = [n for n in there if n.lower().endswith(IMG_EXTENSIONS)]
        rest = (n for n in there if not n.lower().endswith(IMG_EXTENSIONS))
        others = Counter(os.path.splitext(n)[1].lower() or "without extension" for n in rest)
        if not names:
            what = f" that can be read, only {_counted(others)}" if others else ""
            raise ValueError(f"{folder / name} holds no image{what}. Remove the folder, or put images into it")
        skipped += others
        files += [os.path.join(folder, name, file) for file in names]
        labels += [classes.index(name)] * len(names)
    if skipped:
        kinds = ", ".join(IMG_EXTENSIONS)
        warnings.warn(f"{folder}: skipped {_counted(skipped)}; images are {kinds}", stacklevel=2)
    return tuple(files), torch.tensor(labels), classes


def _counted(kinds: Counter) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


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
        again = "" if file.lower().endswith((".jpg", ".jpeg")) else "16 bits"  # were clipped at 255 once
        digest.update(f"{file.split(os.sep)[-2:]}|{status.st_size}|{status.st_mtime_ns}{again}\n".encode())
    return digest.hexdigest()
