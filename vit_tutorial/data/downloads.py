"""Fetching a data set once and whole: behind a lock, into a folder of its own, then moved into place (chapter 6)."""

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from filelock import FileLock

TIMEOUT = 30  # seconds that a host may keep silent; without it, a firewall can make a download wait for ever
CANNOT_STORE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR, errno.EEXIST)


def ensure(title: str, root: Path, folder: str, files: Sequence[str], fetch: Callable[[Path], Path] | None) -> None:
    """See to it that ``files`` lie in ``root / folder``.

    Several processes may ask at once: one fetches, the others wait for it. A download that breaks off leaves nothing
    behind, or, where the process was killed, a hidden folder that the next attempt clears away.

    Args:
        title: the data set's name, for messages.
        files: what has to be there.
        fetch: downloads into the folder it is given, and returns the one below it in which the files then are; None
            where downloading is not wanted.

    Raises:
        FileNotFoundError: the files are missing and cannot be fetched or stored; the message says why and what to do.
    """
    place = root / folder

    def missing() -> list[str]:
        return [file for file in files if not (place / file).is_file()]

    if not missing():
        return
    lacking = f"{title} is not at hand: {place} lacks {', '.join(missing())}"
    remedy = f"Put the files there, or name the folder that holds {folder} in VIT_TUTORIAL_DATA."
    if fetch is None:
        raise FileNotFoundError(f"{lacking}, and download is off. {remedy}")
    part = root / f".{title}.part"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{title}.lock"), patience(TIMEOUT):
            if not missing():  # another process fetched them while this one waited
                return
            try:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                fetched = fetch(part)
                place.mkdir(parents=True, exist_ok=True)
                for file in files:
                    os.replace(fetched / file, place / file)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except (OSError, RuntimeError, HTTPException) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, OSError) and error.errno in CANNOT_STORE:
            advice = "Name a folder that you may write and that has room in VIT_TUTORIAL_DATA."
            raise FileNotFoundError(f"{lacking}, and {root} cannot take it: {reason}. {advice}") from error
        raise FileNotFoundError(f"{lacking}, and its download failed: {reason}. {remedy}") from error


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """torchvision sets no time limit for a silent host; the default of the process is set for a while instead."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
