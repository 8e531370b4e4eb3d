"""The first look at image files: which can't be read as images, why, and what to do about it (chapter 6)."""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from PIL import Image, UnidentifiedImageError

WORKERS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
NAMED = 50  # files that one message names
CONVERT = "convert it to JPEG or PNG"
# What often goes by an image's name, by its first bytes, and what to do about it.
OTHERS = {
    rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)": ("a web page (HTML)", "download the image itself"),
    rb"\s*<(\?xml|svg)": ("a drawing or another text in XML (SVG)", CONVERT),
    rb".{4}ftyp(heic|heix|heim|heis|hevc|hevx|mif1|msf1)": ("a photograph in HEIC, which isn't read here", CONVERT),
    rb".{4}ftypavi[fs]": ("an image in AVIF, which isn't read here", CONVERT),
    rb".{4}ftyp": ("a film (MP4 or of its kind)", "save the frames that you want as JPEG or PNG"),
    rb"version https://git-lfs": ("a Git LFS pointer, not the image itself", "run git lfs pull"),
    rb"%PDF": ("a PDF", "save its pages as JPEG or PNG"),
    rb"PK\x03\x04": ("a zip file", "unpack it"),
    rb"\s*[{\[]": ("a text, perhaps a server's answer (JSON)", "download the image itself"),
}


@contextmanager
def opened(path: str) -> Iterator[Image.Image]:
    """An image file, of which the header has been read, within a ``with`` block.

    Raises:
        ValueError: if it is not a whole image or cannot be opened, has too many pixels, or its pixels are floats or
            integers of 32 bits, so that nothing says which value is white. The message says what to do.
    """
    if not os.path.isfile(path):  # opening a pipe would wait for somebody to write
        raise ValueError(f"{path} is not a file that can be opened")
    try:
        with Image.open(path) as image:
            mode = image.mode
            known = mode != "F" and (mode != "I" or image.format in ("PNG", "PPM"))  # these two have 16 bits at most
            if known:
                yield image
                return
    except PermissionError as error:
        raise ValueError(f"{path} cannot be opened: {error.strerror}") from error
    except Image.DecompressionBombError as error:
        pixels = max(int(number) for number in re.findall(r"\d+", str(error)))
        raise ValueError(
            f"{path} has {pixels:,} pixels, more than the {2 * Image.MAX_IMAGE_PIXELS:,} that are read: save it smaller"
        ) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path} {_fault(path, error)}") from error
    raise ValueError(f"{path} has pixels of PIL's mode {mode!r}; which value is white? Save it with 8 or 16 bits")


def _fault(path: str, error: Exception) -> str:
    """What is wrong with a file that PIL can't read, and what to do about it."""
    with open(path, "rb") as file:
        start = file.read(512)
    if not start:
        return "is empty, 0 bytes: copy or download it again"
    for pattern, (what, remedy) in OTHERS.items():
        if re.match(pattern, start, re.IGNORECASE | re.DOTALL):
            return f"is {what}: {remedy}"
    if isinstance(error, UnidentifiedImageError):
        return f"is not a whole image, or of a kind that isn't read here: copy or download it again, or {CONVERT}"
    return f"is not a whole image: {error}. Copy or download it again, or move it elsewhere"


def check_headers(files: Sequence[str]) -> list[tuple[int, int]]:
    """(width, height) of each image, from its header; a file that has not changed is looked at once in a process.

    Raises:
        UnreadableImages: if files can't be read as images.
    """
    with ThreadPoolExecutor(WORKERS) as pool:
        looks = list(pool.map(_look, files))
    stop_if_unreadable([look for look in looks if isinstance(look, str)])
    return looks


def _look(path: str) -> tuple[int, int] | str:
    status = os.stat(path) if os.path.exists(path) else None
    return _look_once(path, status and (status.st_size, status.st_mtime_ns, status.st_mode))


@cache
def _look_once(path: str, state: tuple | None) -> tuple[int, int] | str:
    """The size in the file's header; or why there is none. ``state`` only tells whether the file has changed."""
    try:
        with opened(path) as image:
            return image.size
    except ValueError as error:
        return str(error)


class UnreadableImages(ValueError):
    """Files that can't be read as images; the message names them all, with what to do about each.

    Attributes:
        faults: a sentence about each.
    """

    def __init__(self, faults: Sequence[str]):
        self.faults = list(faults)
        count = f"{len(faults)} files can't be read as images: " if len(faults) > 1 else ""
        more = f"; and {len(faults) - NAMED} more" * (len(faults) > NAMED)
        super().__init__(f"{count}{'; '.join(faults[:NAMED])}{more}")


def stop_if_unreadable(faults: Sequence[str]) -> None:
    """Raise an error that names all files which can't be read, if there are any."""
    if faults:
        raise UnreadableImages(faults)
