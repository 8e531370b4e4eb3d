"""Fetching files once and whole: behind a lock, into a folder of their own, then moved into place (chapter 6)."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock
from pooch import HTTPDownloader, file_hash

TIMEOUT = 30  # seconds that a host may keep silent; without it, a firewall can make a download wait forever
CANNOT_STORE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR, errno.EEXIST)


def download(urls: Sequence[str], path: Path, checksum: str, progress: bool = True) -> None:
    """Fetch one file, from the first of several mirrors that has it.

    Args:
        urls: where it is, the same file at each.
        path: where it goes.
        checksum: of the file, such as ``"md5:…"`` or ``"sha256:…"``; its first digits are enough.
        progress: whether to show a progress bar.

    Raises:
        OSError: no mirror sent it, or ``path`` cannot be written; the message says what each mirror did instead.
    """
    algorithm, _, wanted = checksum.partition(":")
    failures = []
    for url in urls:
        try:
            HTTPDownloader(progressbar=progress, chunk_size=2**16, timeout=TIMEOUT)(url, path, None)
        except OSError as error:
            if error.errno in CANNOT_STORE:
                raise
            failures.append(f"{url}: {_reason(error)}")
            continue
        got = file_hash(path, algorithm)
        if got.startswith(wanted):
            return
        failures.append(f"{url} sent a damaged file, or another one: its {algorithm} is {got}, not {wanted}")
    raise OSError("; ".join(failures))


def _reason(error: BaseException) -> str:
    """What the system said: the libraries in between wrap it three times over."""
    while error.__context__:
        error = error.__context__
    return str(error) or type(error).__name__


def ensure(
    title: str,
    root: Path,
    folder: str,
    files: Sequence[str],
    fetch: Callable[[Path], Path] | None,
    variable: str = "VIT_TUTORIAL_DATA",
) -> None:
    """Make sure that ``files`` are in ``root / folder``.

    Several processes may ask at once: one fetches, the others wait for it. A download that breaks off leaves nothing
    behind, or, if the process was killed, a hidden folder that the next attempt clears away.

    Args:
        title: a name for the files, for messages.
        files: what has to be there.
        fetch: downloads into the folder it is given, and returns the one below it in which the files then are; None
            to download nothing.
        variable: the environment variable that names ``root``.

    Raises:
        FileNotFoundError: the files are missing and cannot be fetched or stored; the message says why and what to do.
    """
    place = root / folder

    def missing() -> list[str]:
        return [file for file in files if not (place / file).is_file()]

    if not missing():
        return
    lacking = f"{title} is not at hand: {place} lacks {', '.join(missing())}"
    remedy = f"Put the files there, or name the folder that holds {folder} in {variable}."
    if fetch is None:
        raise FileNotFoundError(f"{lacking}, and download is off. {remedy}")
    part = root / f".{title}.part"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{title}.lock"):
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
    except OSError as error:
        reason = " ".join(str(error).split())
        if error.errno in CANNOT_STORE:
            advice = f"Name a folder that you may write and that has room in {variable}."
            raise FileNotFoundError(f"{lacking}, and {root} cannot take it: {reason}. {advice}") from error
        raise FileNotFoundError(f"{lacking}, and its download failed: {reason}. {remedy}") from error
