"""Copies: which files of a set hold the same bytes, under whatever names (chapter 6)."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from functools import cache

NOT_FOUND = "copies in another size, format or crop aren't looked for"


def contents(files: Sequence[str]) -> list[tuple[int, str]]:
    """A key for each file, which is equal for files of equal bytes; what can't be read is equal to nothing.

    Only files of a size that occurs twice are read.
    """
    states = [_state(file) for file in files]
    sizes = Counter(size for size, _ in states)
    return [
        (size, _digest(file, size, time) if sizes[size] > 1 else "")
        for file, (size, time) in zip(files, states, strict=True)
    ]


def _state(file: str) -> tuple[int, int]:
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
