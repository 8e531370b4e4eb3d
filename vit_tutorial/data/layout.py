"""How a folder of images is laid out: which folders are splits, which are classes, what is in them (chapter 6)."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from vit_tutorial.data.headers import IMG_EXTENSIONS
from vit_tutorial.validate import listed

CONVERTIBLE = {  # images as well, of kinds that are not read here
    *(".heic", ".heif", ".avif", ".gif", ".jp2", ".jxl", ".svg", ".psd", ".tga", ".ico", ".pdf"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".dcm"),
}
SPLIT_NAMES = {  # of which split a folder holds the images
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
FILLERS = {"set", "data", "dataset", "image", "images", "img", "imgs", "photos", "pictures", "split"}  # train_images
SHOWN = 5  # names in a message


def split_names(names: Sequence[str]) -> dict[str, str]:
    """Which of the folders' names name a split, and which one: ``"train"``, ``"val"`` or ``"test"``.

    Case and fillers don't count: Training, test_set, ValidImages. Another word has to be in the name of a training
    folder and of another split: seg_train and seg_test are splits, "train station" and "blood test" are not.
    """
    told: dict[str, tuple[str, frozenset[str]]] = {}
    for name in names:
        words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
        words = [part for word in words for part in re.sub(r"(?<=.)(set|data)$", r" \1", word).split()]
        splits = [SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES]
        if len(splits) == 1:
            told[name] = splits[0], frozenset(words).difference(SPLIT_NAMES, FILLERS)
    by_rest: dict[frozenset[str], set[str]] = {}
    for split, rest in told.values():
        by_rest.setdefault(rest, set()).add(split)
    return {
        name: split
        for name, (split, rest) in told.items()
        if not rest or ("train" in by_rest[rest] and len(by_rest[rest]) > 1)
    }


def find_splits(path: Path) -> dict[str, Path]:
    """The folders that hold the splits, by ``"train"``, ``"val"`` and ``"test"``; ``"train"`` alone if all is in one.

    A folder with a split's name is a split if there are folders in it; with images in it, it is a class.

    Raises:
        ValueError: if splits have no folders for the classes, one is there twice, training images are missing, or it
            can't be told whether a folder is a split or a class.
    """
    path = _unwrapped(path)
    folders = _folders(path)
    named = split_names([folder.name for folder in folders])
    flat = [folder.name for folder in folders if _has_images(folder)]
    own = {folder.name: named[folder.name] for folder in folders if folder.name in named.keys() - set(flat)}
    own = {name: split for name, split in own.items() if _folders(path / name)}
    classes = [name for name in flat if name not in named]
    if flat and not own and not classes and len(flat) == len(folders):
        raise ValueError(
            f"{path} has images in {listed(flat, SHOWN)}, but no folder for each class there, as {flat[0]}/cat and "
            f"{flat[0]}/dog would be. Sort them into such folders, or name the table of their classes with --labels"
        )
    if not own:
        return {"train": path}
    if classes and len(set(own.values())) == 1:
        name = next(iter(own))
        inner = listed((folder.name for folder in _folders(path / name)), SHOWN)
        raise ValueError(
            f"{path}: is {name} a split or a class? It holds folders ({inner}), and {listed(classes, SHOWN)} beside it "
            f"images. For a split, move those elsewhere; for a class, move the images in its folders up into {name}"
        )
    for split, what in (("train", "training"), ("val", "validation"), ("test", "test")):
        if len(twice := [name for name in own if own[name] == split]) > 1:
            raise ValueError(f"{path} has the folders {' and '.join(twice)}; only one can be the {what} images")
    if "train" not in own.values():
        raise ValueError(f"{path} has a folder {next(iter(own))}, but none that is called train")
    if unused := [folder.name for folder in folders if folder.name not in own]:
        without = [name for name in flat if name in named]
        why = f"; there is no folder for each class in {', '.join(without)}" if without else ""
        used = ", ".join(sorted(own, key=lambda name: list(SPLIT_NAMES.values()).index(own[name])))
        warnings.warn(f"{path}: only the folders {used} are used, not {', '.join(unused)}{why}", stacklevel=2)
    return {split: _unwrapped(path / name, split) for name, split in own.items()}


def _unwrapped(path: Path, split: str = "") -> Path:
    """The only thing in a folder, as a zip leaves it: a folder without own images, named after no other split."""
    while len(folders := _folders(path)) == 1 and not _has_images(path):
        (inner,) = folders
        if split_names([inner.name]).get(inner.name, split) != split or _has_images(inner) or not images_in(inner):
            break
        warnings.warn(f"{path} holds nothing but the folder {inner.name}, so that one is taken", stacklevel=2)
        path = inner
    return path


def _folders(path: Path) -> list[Path]:
    """Without hidden ones, and without what a Mac's zips bring along."""
    there = (e.name for e in os.scandir(path) if e.is_dir() and e.name[0] != "." and e.name != "__MACOSX")
    return [path / name for name in sorted(there)]


def _is_image(file: str) -> bool:
    return not os.path.basename(file).startswith(".") and file.lower().endswith(IMG_EXTENSIONS)


def _has_images(folder: Path) -> bool:
    return any(_is_image(entry.name) and not entry.is_dir() for entry in os.scandir(folder))


def images_in(folder: Path) -> list[str]:
    """The images of a folder and of the folders in it, sorted."""
    return [file for file in files_in(folder) if _is_image(file)]


def files_in(folder: Path) -> Iterator[str]:
    """All files of a folder and of the folders in it, sorted; hidden ones are skipped, links are followed.

    A folder that can't be opened is left out, as a warning says.
    """

    def tell(error: OSError) -> None:
        warnings.warn(f"{error.filename} cannot be opened, so it is left out: {error.strerror}", stacklevel=4)

    seen = set()
    for place, inner, files in os.walk(folder, onerror=tell, followlinks=True):
        seen.add(os.path.realpath(place))
        inner[:] = sorted(
            name
            for name in inner
            if name[0] != "." and name != "__MACOSX" and os.path.realpath(os.path.join(place, name)) not in seen
        )
        yield from (os.path.join(place, name) for name in sorted(files) if name[0] != ".")


def find_images(
    folder: Path, classes: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], Int64[Tensor, " num"], tuple[str, ...]]:
    """The images of a tree ``<class>/*``, also those in folders within a class, as a warning says.

    Hidden files are skipped, and so are files without an image's extension; a warning counts the latter.

    Args:
        classes: the classes' names in order; the subfolders' names, sorted, otherwise.

    Returns:
        paths, class indices and the classes' names.

    Raises:
        ValueError: if there is no class folder, one that ``classes`` does not name, or one without an image.
    """
    found = tuple(each.name for each in _folders(folder))
    if not found:
        raise ValueError(f"{folder} has no folder for each class with that class's images in it{_instead(folder)}")
    classes = classes or found
    if unknown := set(found) - set(classes):
        raise ValueError(f"{folder} has a class {min(unknown)!r} that is none of {', '.join(classes)}")
    files, labels, skipped, deeper = [], [], Counter(), Counter()
    for name in found:
        there = list(files_in(folder / name))
        images = [file for file in there if _is_image(file)]
        rest = (file for file in there if not _is_image(file))
        others = Counter(os.path.splitext(file)[1].lower() or "without extension" for file in rest)
        if not images:
            what = f" that can be read, only {_counted(others)}" if others else ""
            do = "Convert them to JPEG or PNG" if others.keys() & CONVERTIBLE else "Put images of the class into it"
            rest = "if it is no class, move it elsewhere, or name a folder with the classes alone"
            raise ValueError(f"{folder / name} holds no image{what}. {do}; {rest}")
        skipped += others
        files += images
        labels += [classes.index(name)] * len(images)
        deeper += Counter(place for file in images if (place := os.path.dirname(file)) != str(folder / name))
    if loose := sum(_is_image(entry.name) and entry.is_file() for entry in os.scandir(folder)):
        warnings.warn(f"{folder}: {loose} images beside the folders of the classes are not used", stacklevel=2)
    if skipped:
        kinds = ", ".join(IMG_EXTENSIONS)
        more = "; convert the others" if skipped.keys() & CONVERTIBLE else ""
        warnings.warn(f"{folder}: skipped {_counted(skipped)}; images are {kinds}{more}", stacklevel=2)
    if deeper:
        said = (f"{count} in folder {os.path.relpath(place, folder)}" for place, count in sorted(deeper.items()))
        warnings.warn(
            f"{folder}: images of folders within a class are that class's: {listed(said, SHOWN)}", stacklevel=2
        )
    return tuple(files), torch.tensor(labels), classes


def _instead(folder: Path) -> str:
    """What is there instead of class folders, and what to do about it."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name[0] != ".")
    zips = [name for name in names if name.lower().endswith((".zip", ".tar", ".tgz", ".gz", ".rar", ".7z"))]
    images = sum(map(_is_image, names))
    if zips:
        return f". Unpack {listed(zips, SHOWN)} first"
    if images:
        table = f": --labels {tables[0]}" if (tables := tables_in(folder)) else " with --labels"
        return f". Sort its {images} images into such folders, or name the table that has their classes{table}"
    return ""


def spelled_alike(names: Sequence[str]) -> list[str]:
    """Names that differ in case, blanks and punctuation alone, such as "ANGER and anger"."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(re.sub(r"[\W_]+", " ", name).strip().casefold() or name, []).append(name)
    return [" and ".join(same) for same in alike.values() if len(same) > 1]


def tables_in(path: Path) -> list[str]:
    """The tables beside the images, which may have their labels."""
    return sorted(str(path / e.name) for e in os.scandir(path) if e.name.lower().endswith((".csv", ".tsv")))


def _counted(kinds: Counter) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
