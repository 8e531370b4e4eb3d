"""Where other people's bytes come in, and ours go out: errors that name the file, files that are whole or not there.

A library that reads a damaged file raises whatever its code stumbles over: there is no list of that. So each of these
calls stands in a ``with at_fault(…)`` of its own, and all it raises is the file's fault.
"""

import json
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

OUT_OF_MEMORY = re.compile(
    "out.?of.?memory|not enough memory|allocate memory|bad.?alloc|alloc_failed"
    "|start new thread|map segment|could not create a (primitive|memory)",  # of Python, the loader and oneDNN
    re.IGNORECASE,
)


def reason(error: BaseException) -> str:
    """The line of an error's text that tells most, shortened; if it has no text, its kind."""
    said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    lines = said.strip().splitlines() or [type(error).__name__]
    return textwrap.shorten(lines[-1 if lines[0].endswith(":") else 0], 200, placeholder="…")


def kind_and_reason(error: BaseException) -> str:
    """For the errors of other people's code."""
    return f"{type(error).__name__}: {reason(error)}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is used up, Python's or a GPU's: PyTorch raises a RuntimeError then."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | OSError | ImportError) and OUT_OF_MEMORY.search(repr(error)) is not None
    )


@contextmanager
def at_fault(
    who: str,
    advice: str = "",
    *,
    kind: type[Exception] = ValueError,
    why: Callable[[BaseException], str] = reason,
    memory: bool = False,
) -> Iterator[None]:
    """Whatever a library raises within this block is the fault of the file, the host or the person named in ``who``.

    Only the library's call belongs in it, so that no mistake of ours hides there. What is nobody's fault passes: an
    interrupt, a lack of memory, a warning that was made an error.

    Args:
        who: begins the message, such as ``"a.pt is damaged: "``.
        advice: ends it.
        kind: of the error that is raised instead; the first one stays its ``__cause__``.
        why: what to say of the first one.
        memory: whether a lack of memory is its fault, too, because others are still to come.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # a file of Python may end itself
        if isinstance(error, Warning) or (is_out_of_memory(error) and not memory):
            raise
        raise kind(f"{who}{why(error)}{advice}") from error


def read_json(content: bytes | str, who: str, advice: str = "") -> dict[str, Any]:
    """The object that a JSON text holds.

    Raises:
        ValueError: if it is none, whatever it is instead; the message begins with ``who`` and ends with ``advice``.
    """
    with at_fault(who, advice):
        found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError(f"{who}it holds a {type(found).__name__}, not an object with names{advice}")
    return found


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """A full disk says that it is full, but not in which file: here an OSError gets the name of ``path``."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: str | Path, content: bytes) -> None:
    """Write beside ``path``, then rename, so that ``path`` is never incomplete; a failed attempt leaves nothing.

    A link stays a link, a file keeps its mode, and what is no file, such as ``/dev/stdout``, is written to as it is.

    Raises:
        OSError: if it cannot be written; the message has the path.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.part")
    try:
        with naming(path):
            if path.exists() and not path.is_file():
                path.write_bytes(content)
                return
            part.write_bytes(content)
            if target.exists():
                shutil.copymode(target, part)
            os.replace(part, target)
    finally:
        with suppress(OSError):  # it was renamed, or never made
            part.unlink()
