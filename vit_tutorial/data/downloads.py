"""Fetching files once and whole: from mirrors, behind a lock, into a hidden folder, then into place (chapter 6)."""

import errno
import hashlib
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from tqdm import tqdm

from vit_tutorial.borders import at_fault

SLOW = 300_000  # bytes a second: a mirror that stays below it
WINDOW = 10  # for so many seconds, or keeps silent as long, is left for the next one
CONNECT = 5  # seconds for a connection, to each of a host's addresses
TIMEOUT = 30  # seconds that the last mirror may keep silent, before that counts as a break
SLOWEST = 1_000  # bytes a second: below that, even the last mirror's bytes count as a break
BREAKS = 4  # in a row, without much arriving in between, that the last mirror may have
PAUSE = 1.0  # seconds after the first of them, and twice as many after each further one
CHUNK = 2**16  # bytes
CANNOT_STORE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
)


class HostFault(OSError):
    """A host didn't send what it should have; it has no ``errno``, which an error of this machine's disk has."""


class TooSlow(HostFault):
    """The host would send it, given more time."""


def download(
    urls: Sequence[str],
    path: Path,
    checksum: str,
    progress: bool = True,
    patience: float = math.inf,
    most: int = 2**40,
) -> str:
    """Fetch one file from the first of several mirrors that sends it fast enough, else from any that sends it at all.

    A mirror that is slow, falls silent or breaks off is left while another remains. The last one may be slower; if it
    fails, so are those that had sent something. What has arrived stays in ``path`` with ``.part`` at its
    end: the next mirror, or the next call, goes on from there, and the checksum of the whole decides.

    Args:
        urls: where it is, the same file at each.
        path: where it goes.
        checksum: of the file, such as ``"md5:…"`` or ``"sha256:…"``; its first digits are enough.
        progress: whether to show a progress bar.
        patience: seconds after which to give up, or as soon as it is clear that they won't be enough.
        most: bytes that the file may have; a host that sends more is left.

    Returns:
        The name of the host that sent it.

    Raises:
        HostFault: if no mirror sent it; the message says what each did instead. :class:`TooSlow` if one would have,
            given more patience.
        OSError: if ``path`` cannot be written.
    """
    algorithm, _, wanted = checksum.partition(":")
    part = path.with_name(f"{path.name}.part")
    deadline = time.monotonic() + patience
    failures, again, kind = {}, [], HostFault

    def mirrors() -> Iterator[tuple[str, bool]]:
        yield from ((url, url == urls[-1]) for url in urls)
        yield from ((url, True) for url in again)

    for url, is_last in mirrors():
        if failures and time.monotonic() > deadline:
            break
        while True:
            before = _size(part)
            try:
                _receive(url, part, is_last, progress, deadline, most)
            except HostFault as fault:
                failures[url] = str(fault)
                kind = TooSlow if isinstance(fault, TooSlow) else kind
                if not is_last and (isinstance(fault, TooSlow) or _size(part) > before):
                    again.append(url)
                break
            got = _hash(part, algorithm)
            if got.startswith(wanted):
                os.replace(part, path)
                return urlsplit(url).hostname
            part.unlink()
            if not before:
                failures[url] = f"it sent a damaged file, or another one: its {algorithm} is {got}, not {wanted}"
                break
            # else the bytes that were there before may be to blame: once more, from the first one
    if not _size(part):
        part.unlink(missing_ok=True)
    raise kind("; ".join(f"{url}: {reason}" for url, reason in failures.items()))


def _receive(url: str, part: Path, is_last: bool, progress: bool, deadline: float, most: int) -> None:
    """Fetch what ``part`` lacks; from the last mirror across breaks, as long as each try brings it further."""
    start = furthest = _size(part)
    breaks = 0
    while True:
        try:
            return _append(url, part, is_last, progress, deadline, most)
        except TooSlow:
            raise
        except HostFault:
            got = _size(part)
            breaks = 0 if got >= furthest + CHUNK else breaks + 1
            furthest = max(furthest, got)
            if not is_last or furthest == start or breaks > BREAKS or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE * 2 ** max(breaks - 1, 0))


def _append(url: str, part: Path, is_last: bool, progress: bool, deadline: float, most: int) -> None:
    """Ask once for what ``part`` lacks, and append what arrives."""
    import requests  # takes a while

    have = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    silence = TIMEOUT if is_last else WINDOW
    ask = partial(requests.get, url, headers=headers, stream=True, timeout=(CONNECT, silence))
    response = _within(4 * silence, ask)  # it may send us on to others
    with response:
        if have and response.status_code == 416:
            return  # there is no more
        have, total = _span(response, have)
        if (total or 0) > most:
            raise HostFault(f"it would send {total:,} bytes, and the file has no more than {most:,}")
        # A host that sends all again may be slower or break off earlier: the longer file stays.
        target = part if have or not _size(part) else part.with_suffix(".again")
        name = f"{part.stem} from {urlsplit(response.url).hostname}"
        try:
            with target.open("ab" if have else "wb") as file, _bar(name, have, total, progress) as bar:
                for chunk in _chunks(response, have, total, most, is_last, deadline, bar):
                    file.write(chunk)
        finally:
            if target != part and _size(target) > _size(part):
                os.replace(target, part)


def _within(seconds: float, ask: Callable[[], Any], stop: Callable[[], None] = lambda: None) -> Any:
    """What a host answers; whatever goes wrong is its fault, or the network's.

    The libraries' own limits start anew with each byte, so a host could send one now and then for ever. Here a thread
    asks. If that takes too long, ``stop`` ends what it does, or it is left alone with it.
    """
    answers, faults, done = [], [], threading.Event()

    def work() -> None:
        try:
            with at_fault("", kind=HostFault, why=_innermost):
                answers.append(ask())
        except Exception as fault:
            faults.append(fault)
        done.set()

    threading.Thread(target=work, daemon=True).start()
    try:
        done.wait(seconds)
    finally:  # also if somebody interrupts
        if late := not done.is_set():
            with suppress(OSError, RuntimeError, ValueError):  # it has just ended by itself
                stop()
    if late:
        raise HostFault("timed out")
    for fault in faults:
        raise fault
    return answers[0]


def _innermost(error: BaseException) -> str:
    """What the first error said, which the libraries in between have wrapped three times over."""
    while error.__context__:
        error = error.__context__
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split()) or type(error).__name__


def _chunks(
    response: "requests.Response", have: int, total: int | None, most: int, is_last: bool, deadline: float, bar: tqdm
) -> Iterator[bytes]:
    """What a host sends, as it arrives, unless that takes too long, breaks off or is more than ``most``."""
    begun = since = time.monotonic()
    first = then = have
    silence, slow, kind = (TIMEOUT, SLOWEST, HostFault) if is_last else (WINDOW, SLOW, TooSlow)
    while True:
        # Closing would wait for the thread that reads; a shut-down ends its reading.
        chunk = _within(2 * silence, partial(response.raw.read1, CHUNK), response.raw.shutdown)
        if not chunk:
            break
        have, now = have + len(chunk), time.monotonic()
        if have > most:
            raise HostFault(f"it sent more than the {most:,} bytes that the file may have")
        yield chunk
        bar.update(len(chunk))
        if now - since < WINDOW and now < deadline:
            continue
        lately, speed = (have - then) / (now - since), (have - first) / (now - begun)
        if lately < slow:
            raise kind(f"only {lately / 1000:.0f} kB/s")
        left = 0 if total is None else (total - have) / speed
        minutes = "?" if total is None else math.ceil(left / 60)
        more = f"{minutes} minute{'s' * (minutes != 1)}"
        if now + left > deadline:
            raise TooSlow(f"at {speed / 1000:.0f} kB/s it would take {more} more")
        bar.set_postfix_str(f"{more} left")
        since, then = now, have
    if total is not None and have < total:
        raise HostFault(f"it broke off after {have:,} of {total:,} bytes")


def _span(response: "requests.Response", have: int) -> tuple[int, int | None]:
    """The first byte that a host sends, asked for those after the first ``have``; and the total, if it is known."""
    if have and response.status_code == 206:
        header = response.headers.get("Content-Range", "")
        span = re.fullmatch(r"bytes (\d{1,15})-\d{1,15}/(\d{1,15}|\*)", header)
        if not span or int(span[1]) != have:
            raise HostFault(f"asked for the bytes from {have} on, it sent the range {header!r}")
        return have, None if span[2] == "*" else int(span[2])
    if response.status_code != 200:
        raise HostFault(f"{response.status_code} {response.reason or ''}".strip())
    return 0, response.raw.length_remaining  # a host may ignore what was asked for, and send all


def _bar(name: str, have: int, total: int | None, progress: bool) -> tqdm:
    """A progress bar, with room for how many minutes are left."""
    bar_format = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt} of {total_fmt}, {rate_fmt}{postfix}"
    options = {"unit": "B", "unit_scale": True, "bar_format": bar_format, "leave": False}
    return tqdm(desc=name, initial=have, total=total, disable=not progress, **options)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _hash(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def ensure(
    title: str,
    root: Path,
    folder: str,
    files: Sequence[str],
    fetch: Callable[[Path], Path] | None,
    variable: str = "VIT_TUTORIAL_DATA",
    patience: float = math.inf,
) -> None:
    """Make sure that ``files`` are in ``root / folder``.

    Several processes may ask at once: one fetches, the others wait for it. A download that breaks off, or whose process
    is killed, leaves at most a hidden folder. The next attempt resumes a download that is in there, and clears the rest
    away.

    Args:
        title: a name for the files, for messages.
        files: the files that must be there.
        fetch: downloads into the folder it is given, and returns the one below it in which the files then are; None
            to download nothing, as with ``$VIT_TUTORIAL_DOWNLOAD`` set to 0.
        variable: the environment variable that names ``root``.
        patience: seconds to wait for another process.

    Raises:
        FileNotFoundError: if the files are missing and cannot be fetched or stored; the message says why and what to
            do.
    """
    place = root / folder

    def missing() -> list[str]:
        return [file for file in files if not (place / file).is_file()]

    if not missing():
        return
    lacking = f"{title} is missing: {place} lacks {', '.join(missing())}"
    remedy = f"Put the files there, or name the folder that holds {folder} in {variable}."
    if fetch is None or os.environ.get("VIT_TUTORIAL_DOWNLOAD") == "0":
        raise FileNotFoundError(f"{lacking}, and download is off. {remedy}") from HostFault("download is off")
    part = root / f".{title}.part"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{title}.lock", timeout=-1 if patience == math.inf else patience):
            if not missing():  # another process fetched them while this one waited
                return
            try:
                _clear(part)
                part.mkdir(exist_ok=True)
                fetched = fetch(part)
                place.mkdir(parents=True, exist_ok=True)
                for file in files:
                    os.replace(fetched / file, place / file)
            finally:
                _clear(part)
    except Timeout as error:
        reason = f"another process has been fetching it for {patience:g} seconds"
        raise FileNotFoundError(f"{lacking}, and {reason}. {remedy}") from error
    except OSError as error:
        reason = " ".join(str(error).split())
        if error.errno in CANNOT_STORE:
            advice = f"Name a folder that you may write and that has room in {variable}."
            raise FileNotFoundError(f"{lacking}, and {root} cannot take it: {reason}. {advice}") from error
        raise FileNotFoundError(f"{lacking}, and its download failed: {reason}. {remedy}") from error


def _clear(part: Path) -> None:
    """Remove a hidden folder and its contents, except for downloads that the next attempt can resume."""
    for path in part.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".part":
            path.unlink()
    with suppress(OSError):  # it isn't there, or holds such a download
        part.rmdir()
