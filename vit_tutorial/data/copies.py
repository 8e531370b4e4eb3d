"""Copies: which files hold the same bytes, and which images look the same (chapter 6)."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

SIDE = 16  # pixels of the small grey images that are compared
ALIKE = 3  # grey levels, root mean square: a JPEG of the same picture, at another size, is nearer
FLAT = 8  # standard deviation in grey levels, below which an image has nothing to compare
LUMA = [0.299, 0.587, 0.114]  # of red, green and blue
NOT_FOUND = "copies in another size, format or crop aren't found by this"


def contents(files: Sequence[str]) -> list[tuple[int, str]]:
    """A key for each file, which is equal for files of equal bytes; what can't be read is equal to nothing.

    Only files of a size that occurs twice are read.
    """
    states = [state_of(file) for file in files]
    sizes = Counter(size for size, _ in states)
    return [
        (size, _digest(file, size, time) if sizes[size] > 1 else "")
        for file, (size, time) in zip(files, states, strict=True)
    ]


def state_of(file: str) -> tuple[int, int]:
    """Size and time of a regular file; −1 for what is none, such as a link to nothing."""
    status = os.stat(file) if os.path.isfile(file) else None
    return (status.st_size, status.st_mtime_ns) if status else (-1, 0)


@cache
def _digest(file: str, size: int, time: int) -> str:
    """Of the file's bytes; size and time tell whether it was written since."""
    if size < 0 or not os.access(file, os.R_OK):
        return file
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def look_alikes(train: UInt8[Tensor, "n c H W"], test: UInt8[Tensor, "m c H W"]) -> Bool[Tensor, " m"]:
    """Which test images are nearly equal to a training image, as it is or mirrored, once both are small and grey.

    So the same picture is found in another format or size. Crops, rotations and shots of the same scene are not.

    Args:
        train: ``(n, c, H, W)``.
        test: ``(m, c, H, W)``.
    """
    known, asked = _small(train), _small(test)
    near = torch.zeros(len(asked), dtype=torch.bool)
    for images in (known, known.flip(-1)):
        rows = images.flatten(1)
        for start in range(0, len(asked), 500):
            part = asked[start : start + 500].flatten(1)
            squares = (part**2).sum(1)[:, None] + (rows**2).sum(1) - 2 * part @ rows.T
            near[start : start + 500] |= (squares < ALIKE**2 * part.shape[1]).any(1)
    return near & (asked.flatten(1).std(1) > FLAT)


def _small(images: UInt8[Tensor, "n c H W"]) -> Float[Tensor, "n h w"]:
    """Grey as PIL makes it, averaged down to ``SIDE`` pixels."""
    side, channels = min(SIDE, *images.shape[2:]), images.shape[1]
    weights = torch.tensor(LUMA if channels == 3 else [1 / channels] * channels)
    parts = (torch.einsum("nchw,c->nhw", part.float(), weights) for part in images.split(1000))
    return torch.cat([F.adaptive_avg_pool2d(part, side) for part in parts])
