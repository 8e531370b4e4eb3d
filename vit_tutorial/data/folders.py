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
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from vit_tutorial.data.copies import NOT_FOUND, contents, state_of
from vit_tutorial.data.headers import UnreadableImages, check_headers, stop_if_unreadable
from vit_tutorial.data.images import Dataset, ImageFiles, decode_all, find_faults
from vit_tutorial.data.layout import SHOWN, find_images, find_splits, spelled_alike, split_names, tables_in
from vit_tutorial.data.tables import read_labels
from vit_tutorial.validate import listed

SPLIT_SEED = 0
HEX = 12  # digits of an image's hash
ALWAYS_TRAIN = "g"  # above every hash
WORDS = {"train": "training", "val": "validation", "test": "test"}
Part = tuple[tuple[str, ...], Int64[Tensor, " num"]]  # files and class indices


def image_folder(
    path: Path,
    split: str,
    img_size: tuple[int, int] | None,
    cache: Path,
    memory: int,
    labels: str = "",
    label_columns: str = "",
) -> Dataset | ImageFiles:
    """A split of the images in ``PATH/{train,val,test}/<class>/*`` or ``PATH/<class>/*``; see :func:`split_folder`.

    Args:
        img_size: see :class:`~vit_tutorial.data.images.ImageFiles`.
        cache: folder for the decoded images.
        memory: most bytes that are decoded at once; a larger split stays on disk.
        labels: see :func:`split_folder`.
        label_columns: see :func:`split_folder`.

    Raises:
        FileNotFoundError: if there is no such folder or table.
        ValueError: if it is laid out in another way, has a single class or too few images, or holds files that can't be
            read as images, which the message names.
    """
    splits = split_folder(path, labels, label_columns)
    dataset = replace(splits[split], img_size=img_size)
    if len(dataset.classes) == 1:
        named = f": --labels {found[0]}" if (found := tables_in(path)) else " with --labels"
        table = "" if labels else f", or name the table that has them{named}"
        raise ValueError(
            f"{path} has a single class, {dataset.classes[0]!r}, and a model that always says it is always right. "
            f"It needs two classes at least: make a folder for each{table}"
        )
    caches = {
        name: cache / f"{hashlib.sha256(f'{path.resolve()} {name}'.encode()).hexdigest()[:16]}.npz" for name in splits
    }
    unseen = {name: part for name, part in splits.items() if not _was_decoded(part, caches[name])}
    _check_files(sorted(file for part in unseen.values() for file in part.files))
    others = sorted(file for name in unseen if name != "train" for file in unseen[name].files)
    faults = find_faults(others) if split == "train" and memory else []  # before a training, not after it
    if len(dataset) * math.prod(dataset.image_shape) > memory:
        stop_if_unreadable(faults)
        return dataset
    try:
        images = decode_cached(dataset, caches[split])
    except UnreadableImages as error:
        faults += error.faults
    stop_if_unreadable(sorted(faults))
    return Dataset(
        images, dataset.labels, dataset.classes, dataset.variant, split=dataset.split, trained_on=dataset.trained_on
    )


def _check_files(files: Sequence[str]) -> None:
    """A look at all headers; if one is bad, at all that's behind the others, so that all are named at once."""
    try:
        check_headers(files)
    except UnreadableImages as error:
        stop_if_unreadable(find_faults(files) or error.faults)


def split_folder(path: Path, labels: str = "", label_columns: str = "") -> dict[str, ImageFiles]:
    """The images of a folder's three splits.

    A split without a folder of its own is about a tenth of each class in ``train``. Every image is assigned by a hash
    of its class and file name alone, so adding images moves no others. If the hash would leave a class without an image
    in a split, the image with the nearest hash is taken; more images may then send that one back to the training
    images. Files of equal content are one image, with the highest of their hashes, and only trained on if they are in
    several classes, unless hardly any others are there. Files whose names differ in the ending alone have the hash of
    the first. Classes with fewer images than splits are only trained on. Warnings name such classes, and those that are
    spelled alike, and count the copies, the files with a namesake, and those test and validation images that are
    training images as well.

    Args:
        labels: a table with the images' classes, instead of folders; see
            :func:`~vit_tutorial.data.tables.read_labels`. Folders ``train`` and ``test`` are splits here, too.
        label_columns: its columns.

    Raises:
        FileNotFoundError: if there is no such folder or table.
        ValueError: if it is laid out in another way, or no class has an image for each split.
    """
    if path.is_file() and zipfile.is_zipfile(path):
        raise ValueError(f"{path} is a zip file. Unpack it, and name the folder that comes out")
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder.")
    variant = f"folder {path.resolve().name}"
    if labels:
        parts, classes, table = _by_table(path, labels, label_columns)
        variant += f", classes from {table}"
    else:
        parts, classes = _by_folders(path)
    files, numbers = parts.pop("train")
    drawn = [split for split in ("test", "val") if split not in parts]
    keys, hashes, stems = contents(files), _hashes(path, files), [os.path.splitext(file)[0] for file in files]
    first = dict(zip(reversed(stems), reversed(hashes), strict=True))  # of each stem
    marks = _one_per_picture([first[stem] for stem in stems], keys, numbers.tolist())
    chosen, few = _drawn(marks, numbers, drawn)
    if contradicted := len(few) == len(classes) and ALWAYS_TRAIN in marks:  # hardly anything else is there
        chosen, few = _drawn(_one_per_picture([first[stem] for stem in stems], keys, [0] * len(files)), numbers, drawn)
    if len(few) == len(classes):
        raise ValueError(f"{path}: no class has {len(chosen)} different images, one each for {', '.join(chosen)}")
    if few:
        names = ", ".join(f"{classes[label]} ({count})" for label, count in few.items())
        warnings.warn(f"{path}: classes with too few images for {', '.join(drawn)}: {names}", stacklevel=2)
    if alike := spelled_alike(classes):
        warnings.warn(f"{path}: different classes, or one by two names? {listed(alike, SHOWN)}", stacklevel=2)
    kept = "so few others are there that they are tested on, too" if contradicted else "they are only trained on"
    _warn_of_copies(path, files, keys, numbers.tolist(), drawn, kept)
    _warn_of_namesakes(path, files, stems)
    seen = {split: _trained_on(path, split, files, there) for split, (there, _) in parts.items()}
    for split, indices in chosen.items():
        indices.sort(key=hashes.__getitem__)  # mixes the classes
        parts[split] = tuple(files[i] for i in indices), numbers[indices]
    record = {split: "".join(_hashes(path, files)) for split, (files, _) in sorted(parts.items())}
    return {
        split: ImageFiles(*part, classes, variant, split=record, trained_on=seen.get(split))
        for split, part in parts.items()
    }


def _by_folders(path: Path) -> tuple[dict[str, Part], tuple[str, ...]]:
    """The splits that are there, "train" first, and the classes' names."""
    places = find_splits(path)
    files, labels, classes = find_images(places["train"])
    given = {split: find_images(places[split], classes)[:2] for split in ("val", "test") if split in places}
    return {"train": (files, labels), **given}, classes


def _by_table(path: Path, labels: str, columns: str) -> tuple[dict[str, Part], tuple[str, ...], str]:
    """As :func:`_by_folders`, of the images that a table names; and the table, in words."""
    files, numbers, classes, said = read_labels(path, Path(labels).expanduser(), columns)
    tops = [Path(file).relative_to(path).parts[0] for file in files]
    named = split_names(sorted(set(tops)))
    if set(tops) != named.keys() or "train" not in named.values():
        return {"train": (files, numbers)}, classes, said
    parts = {}
    for split in ("train", "val", "test"):
        if rows := [i for i, top in enumerate(tops) if named[top] == split]:
            parts[split] = tuple(files[i] for i in rows), numbers[rows]
    return parts, classes, said


def _one_per_picture(hashes: Sequence[str], contents: Sequence, labels: Sequence[int]) -> list[str]:
    """For each file the highest hash among its copies; ``ALWAYS_TRAIN`` if they are in several classes."""
    highest, label_of, contradicted = {}, {}, set()
    for mark, key, label in zip(hashes, contents, labels, strict=True):
        highest[key] = max(highest.get(key, ""), mark)
        if label_of.setdefault(key, label) != label:
            contradicted.add(key)
    return [ALWAYS_TRAIN if key in contradicted else highest[key] for key in contents]


def _drawn(
    hashes: Sequence[str], labels: Int64[Tensor, " num"], drawn: Sequence[str]
) -> tuple[dict[str, list[int]], dict[int, int]]:
    """The indices for each split that is drawn and for ``"train"``; and the size of each class that is too small."""
    chosen, few = {split: [] for split in (*drawn, "train")}, {}
    for label in range(int(labels.max()) + 1):
        members = (labels == label).nonzero().flatten().tolist()
        row = sorted({hashes[i] for i in members} - {ALWAYS_TRAIN})
        split_of, start = {}, 0
        if len(row) < len(chosen):
            few[label] = len(members)
        for number, split in enumerate(drawn if len(row) >= len(chosen) else (), start=1):
            below = sum(mark < f"{number * 16**HEX // 10:0{HEX}x}" for mark in row)
            end = min(max(below, start + 1), len(row) - len(chosen) + number)
            split_of |= dict.fromkeys(row[start:end], split)
            start = end
        for i in members:
            chosen[split_of.get(hashes[i], "train")].append(i)
    return chosen, few


def _warn_of_copies(
    path: Path, files: Sequence[str], contents: Sequence, labels: Sequence[int], drawn: Sequence[str], kept: str
) -> None:
    """Count the files that are copies of others, and name one that is in two classes."""
    first: dict = {}
    for i, key in enumerate(contents):
        first.setdefault(key, i)
    again = [i for i, key in enumerate(contents) if first[key] != i]
    if again and drawn:
        said = f"{len(again)} of {len(files)} images are copies of others, byte for byte; copies go to the same split"
        warnings.warn(f"{path}: {said}; {NOT_FOUND}", stacklevel=3)
    if torn := [i for i in again if labels[i] != labels[first[contents[i]]]]:
        names = " and ".join(os.path.relpath(files[i], path) for i in (first[contents[torn[0]]], torn[0]))
        more = f", and {len(torn) - 1} more" * (len(torn) > 1)
        warnings.warn(f"{path}: the same picture is in two classes: {names}{more}; {kept}", stacklevel=3)


def _warn_of_namesakes(path: Path, files: Sequence[str], stems: Sequence[str]) -> None:
    """Count the files whose names differ from another's in the ending alone, as those of masks often do."""
    counts = Counter(stems)
    if same := [file for file, stem in zip(files, stems, strict=True) if counts[stem] > 1]:
        names = " and ".join(os.path.relpath(file, path) for file in same[:2])
        said = f"{len(same)} images have a namesake with another ending, such as {names}"
        do = "if they are masks or drafts of one another, move those elsewhere, since all are taken for pictures"
        warnings.warn(f"{path}: {said}; {do}", stacklevel=3)


def _trained_on(path: Path, split: str, train: Sequence[str], files: Sequence[str]) -> Bool[Tensor, " num"]:
    """Which files of a given split are copies of training images; a warning counts them."""
    keys = contents([*train, *files])
    known = set(keys[: len(train)])
    seen = torch.tensor([key in known for key in keys[len(train) :]])
    if seen.any():
        said = f"{int(seen.sum())} of {len(seen)} {WORDS[split]} images are training images as well, byte for byte"
        warnings.warn(f"{path}: {said}; {NOT_FOUND}", stacklevel=3)
    return seen


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


def decode_cached(dataset: ImageFiles, cache: Path) -> UInt8[Tensor, "num 3 H W"]:
    """All images of a set, read from the file ``cache`` if it is whole and made from these very files.

    If the cache cannot be written, a warning says so, and every load decodes all images again.

    Raises:
        ValueError: if a file is not a whole image, or sizes differ and no ``img_size`` is given.
    """
    marks = {"mark": _fingerprint(dataset.files, dataset.img_size), "files": _fingerprint(dataset.files)}
    if _kept(cache, "mark") == marks["mark"]:
        images = _kept(cache, "images")
        if images is not None and images.dtype == np.uint8 and images.shape[:2] == (len(dataset), 3):
            return torch.from_numpy(images)
    images = decode_all(dataset.files, dataset.img_size, progress=True)
    part = cache.with_name(f".{uuid.uuid4().hex}.npz")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        try:
            np.savez(part, images=images.numpy(), **marks)
            os.replace(part, cache)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"{cache} cannot be written ({error}), so every load decodes all images anew", stacklevel=2)
    return images


def _was_decoded(dataset: ImageFiles, cache: Path) -> bool:
    """Whether these very files were decoded into the cache, in whatever size: then there is nothing wrong with them."""
    return cache.exists() and _kept(cache, "files") == _fingerprint(dataset.files)


def _kept(cache: Path, name: str) -> np.ndarray | str | None:
    """An entry of a cache; None if there is none, or it can't be read, so that it is made anew."""
    try:
        with open(cache, "rb") as file, np.load(file) as kept:
            entry = kept[name]
    except Exception:  # of any kind: a damaged file is taken for numbers
        return None
    return entry if entry.ndim else str(entry)


def _fingerprint(files: Sequence[str], img_size: tuple[int, int] | None = None) -> str:
    """Changes whenever an image is added, removed, renamed or written, or another size is wanted."""
    digest, above = hashlib.sha256(repr(img_size).encode()), os.path.commonpath(files)
    for file in files:
        size, time = state_of(file)
        again = "" if file.lower().endswith((".jpg", ".jpeg")) else "8 to 16 bits"  # were read in another way once
        name = os.path.relpath(file, above).split(os.sep)
        digest.update(f"{name}|{size}|{time}{again}\n".encode())
    return digest.hexdigest()
