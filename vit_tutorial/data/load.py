"""Real images and drawn ones by name: where they are kept, and how they are split (chapter 6)."""

import contextlib
import math
import os
import re
import sys
import warnings
from pathlib import Path

from filelock import Timeout

from vit_tutorial.data import sources
from vit_tutorial.data.downloads import TooSlow
from vit_tutorial.data.folders import image_folder
from vit_tutorial.data.images import Dataset, ImageFiles
from vit_tutorial.validate import check_option, to_pair

NAMES = ("mnist", "cifar10", "digits", "shapes")
SPLITS = ("train", "val", "test")
STAND_INS = {"mnist": "small digits stand in", "cifar10": "drawn shapes stand in"}


def cache_root() -> Path:
    """This book's folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vit-tutorial"


def data_root() -> Path:
    """``$VIT_TUTORIAL_DATA``, else a folder in the user's cache."""
    root = os.environ.get("VIT_TUTORIAL_DATA")
    return Path(root).expanduser() if root else cache_root()


def fetch(*names: str) -> None:
    """Fetch what a chapter needs before it is needed, and print a line for each that says where it came from.

    With ``$VIT_TUTORIAL_DOWNLOAD`` set to 0, as when the book is built, it does nothing.

    Args:
        names: ``"mnist"``, ``"cifar10"``, or torchvision's weights such as ``"vit_b_16"``.

    Raises:
        ValueError: if there is nothing of that name.
    """
    if os.environ.get("VIT_TUTORIAL_DOWNLOAD") != "0":
        for name in names:
            with contextlib.redirect_stderr(sys.stdout):  # the bar; a notebook shows the rest in red
                print(fetch_and_report(name)[1])


def fetch_and_report(name: str, patience: float = math.inf, progress: bool = True) -> tuple[bool, str]:
    """Fetch a set or weights: whether they are there now, and a line about it.

    Args:
        name: as for :func:`fetch`.
        patience: seconds after which to give up and use a stand-in.
        progress: whether to show progress bars.

    Raises:
        ValueError: if there is nothing of that name.
    """
    check_option("name", name, (*STAND_INS, *sources.WEIGHTS))
    title = sources.TITLES.get(name, name)
    try:
        host = sources.fetch_files(name, data_root(), progress=progress, patience=patience)
    except FileNotFoundError as error:
        reason = re.sub(r"https?://([^/:\s]+)\S*: ", r"\1: ", " ".join(str(error.__cause__).split()))
        message = f"{title}: not available ({reason}); {STAND_INS.get(name, 'random weights stand in')}"
        given_time = isinstance(error.__cause__, TooSlow | Timeout)
        return False, message + f". To wait for it: vit-tutorial data {name}" * given_time
    return True, f"{title}: fetched from {host}" if host else f"{title}: already here"


def load_dataset(
    name: str,
    split: str = "train",
    *,
    img_size: int | tuple[int, int] | None = None,
    root: str | Path | None = None,
    download: bool = True,
    fallback: str | None = None,
    memory: int = 2 * 2**30,
    labels: str = "",
    label_columns: str = "",
) -> Dataset | ImageFiles:
    """A split of a data set, as bytes in memory, or, if an image folder is too large for that, still on disk.

    What is in the root is used as it is: MNIST as torchvision keeps it; CIFAR-10 as torchvision keeps it or as
    ``cifar10/{train,test}/<class>/*`` images; what is missing is downloaded.

    Args:
        name: ``"mnist"``, ``"cifar10"``, ``"digits"`` (scikit-learn's, always there), ``"shapes"`` (drawn by us), or
            ``"folder:PATH"`` for your own images in ``PATH/{train,val,test}/<class>/*``, where ``Training``,
            ``validation`` and the like will do. Each missing split is about a tenth of each class, drawn by a hash of
            the files' names; with ``PATH/<class>/*`` alone, that makes 80, 10 and 10 %. Images that are added later
            move no others, and copies of an image stay with it.
        split: ``"train"``, ``"val"`` or ``"test"``. MNIST's and CIFAR-10's ``"val"`` are 5,000 of the training images,
            drawn by a fixed seed.
        img_size: pixels wanted, an int or a (height, width) pair; None keeps them. An image of a folder is resized by
            its shorter side and cut out in the middle.
        root: folder of the data; :func:`data_root` otherwise.
        download: whether to download what is missing; with ``$VIT_TUTORIAL_DOWNLOAD`` set to 0 nothing is.
        fallback: the set to use instead, after a warning, if ``name`` is not available; not if ``$VIT_TUTORIAL_STRICT``
            is set to anything but 0, as when the book is published.
        memory: a folder whose split takes more bytes than this is streamed.
        labels: of a folder, a CSV file with the images' classes, instead of folders for them.
        label_columns: its columns with files and classes, as in ``"file,class"``; guessed and told otherwise. See
            ``vit_tutorial.data.tables.read_labels``.

    Raises:
        ValueError: if a name, split or size is impossible, or a file damaged; the message names the file and what to
            do.
        FileNotFoundError: if the data is missing and cannot be fetched; the message says what was tried.
    """
    if name not in NAMES and not name.startswith("folder:"):
        raise ValueError(f"name must be one of {', '.join(NAMES)} or folder:PATH; got {name!r}")
    check_option("split", split, SPLITS)
    if (labels or label_columns) and not name.startswith("folder:"):
        raise ValueError(f"labels are for a folder:PATH; {name!r} has its own, got {labels or label_columns!r}")
    if label_columns and not labels:
        raise ValueError(f"label_columns {label_columns!r} are columns of a table: name that in labels")
    img_size = None if img_size is None else to_pair("img_size", img_size)
    root = Path(root) if root is not None else data_root()
    try:
        if name == "mnist":
            dataset = sources.mnist(root, split, download)
        elif name == "cifar10":
            dataset = sources.cifar10(root, split, download)
        elif name == "digits":
            dataset = sources.digits(split)
        elif name == "shapes":
            dataset = sources.shapes(split)
        else:
            path = Path(name.removeprefix("folder:")).expanduser()
            return image_folder(path, split, img_size, root / "folders", memory, labels, label_columns)
    except FileNotFoundError as error:
        if fallback is None:
            raise
        if os.environ.get("VIT_TUTORIAL_STRICT", "0") != "0":
            raise FileNotFoundError(f"{error} VIT_TUTORIAL_STRICT is set, so {fallback!r} may not stand in.") from error
        warnings.warn(f"{error} Going on with {fallback!r} instead.", stacklevel=2)
        return load_dataset(fallback, split, img_size=img_size, root=root, download=download)
    return dataset if img_size is None else dataset.resize(img_size)
