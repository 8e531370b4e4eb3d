"""The first look at image files: which can't be read as images, why, and what to do about it (chapter 6)."""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from threading import Lock

from PIL import Image, ImageOps, UnidentifiedImageError

from vit_tutorial.borders import at_fault

WORKERS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
NAMED = 50  # files that one message names
FORMATS = {  # by PIL's names, with the endings of file names; no others are opened, since some start other programs
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png",),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "GIF": (),  # by other names alone: those that are called .gif are films, or say that there is no image
}
IMG_EXTENSIONS = tuple(ending for endings in FORMATS.values() for ending in endings)
LARGE = 2**24  # pixels; images with more are decoded one at a time, since each thread would need their memory
_one_at_a_time = Lock()
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
    rb"%!|\xc5\xd0\xd3\xc6": ("a program in PostScript, which isn't run here", CONVERT),
    rb"PK\x03\x04": ("a zip file", "unpack it"),
    rb"\s*[{\[]": ("a text, perhaps a server's answer (JSON)", "download the image itself"),
}


def faults_of(path: str) -> AbstractContextManager[None]:
    """Whatever PIL raises within the block is the file's fault: a ValueError that names it, and says what to do."""
    return at_fault(f"{path} ", why=partial(_fault, path), memory=True)


def _fault(path: str, error: BaseException) -> str:
    """What is wrong with a file that PIL can't read, and what to do about it."""
    if isinstance(error, PermissionError):
        return f"cannot be opened: {error.strerror}"
    if isinstance(error, MemoryError):
        return "has more pixels than there is memory for: save it smaller"
    if isinstance(error, Image.DecompressionBombError):
        pixels = max(int(number) for number in re.findall(r"\d+", str(error)))
        return f"has {pixels:,} pixels, more than the {2 * Image.MAX_IMAGE_PIXELS:,} that are read: save it smaller"
    with open(path, "rb") as file:
        start = file.read(512)
    if not start:
        return "is empty, 0 bytes: copy or download it again"
    for pattern, (what, remedy) in OTHERS.items():
        if re.match(pattern, start, re.IGNORECASE | re.DOTALL):
            return f"is {what}: {remedy}"
    if isinstance(error, UnidentifiedImageError):
        return f"is not a whole image, or of a kind that isn't read here: copy or download it again, or {CONVERT}"
    why = str(error) or type(error).__name__
    return f"is not a whole image: {why}. Copy or download it again, or move it elsewhere"


@contextmanager
def _opened(path: str) -> Iterator[Image.Image]:
    """An image file, of which the header has been read, within a ``with`` block; see :func:`decoded`."""
    if not os.path.isfile(path):  # opening a pipe would wait for somebody to write
        what = "is a folder, not an image" if os.path.isdir(path) else "is not a file that can be opened"
        raise ValueError(f"{path} {what}" if os.path.lexists(path) else f"there is no file {path}")
    with ExitStack() as stack:
        with faults_of(path):
            image = stack.enter_context(Image.open(path, formats=tuple(FORMATS)))
        if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):  # they have 16 bits at most
            mode = f"pixels of PIL's mode {image.mode!r}"
            raise ValueError(f"{path} has {mode}; which value is white? Save it with 8 or 16 bits")
        yield image


@contextmanager
def decoded(path: str, side: int = 0) -> Iterator[tuple[Image.Image, bool]]:
    """An image file, upright, within a ``with`` block; and whether its colours have 16 bits, of which PIL reads 8.

    Args:
        side: a JPEG may come smaller, with no side below this; 0 for all of its pixels.

    Raises:
        ValueError: if it is not a whole image of one of ``FORMATS`` or cannot be opened, has too many pixels, or its
            pixels are floats or integers of 32 bits, so that nothing says which value is white. The message says what
            to do.
    """
    with _opened(path) as image, ExitStack() as stack:
        cut = image.mode[0] != "I" and any(";16" in str(tile) for tile in image.tile)
        with faults_of(path):
            if side:
                image.draft(None, (side, side))
            if image.width * image.height > LARGE:
                stack.enter_context(_one_at_a_time)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
        yield image, cut


def check_headers(files: Sequence[str]) -> list[tuple[int, int]]:
    """(width, height) of each image, from its header; a file that has not changed is looked at once in a process.

    Raises:
        UnreadableImages: if files can't be read as images.
    """
    with ThreadPoolExecutor(WORKERS) as pool:
        looks = list(pool.map(_look, files))
    stop_if_unreadable([look for look in looks if isinstance(look, str)])
    return looks


def state_of(path: str) -> tuple[int, int, int] | None:
    """What changes when a file does, as part of a cache's key; None if it isn't there."""
    status = os.stat(path) if os.path.exists(path) else None
    return status and (status.st_size, status.st_mtime_ns, status.st_mode)


def _look(path: str) -> tuple[int, int] | str:
    return _look_once(path, state_of(path))


@cache
def _look_once(path: str, state: tuple | None) -> tuple[int, int] | str:
    """The size in the file's header; or why there is none. ``state`` only tells whether the file has changed."""
    try:
        with _opened(path) as image:
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
