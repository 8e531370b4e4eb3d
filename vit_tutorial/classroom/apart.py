"""A function in a process of its own, with limits. That's a fence and no wall: see the teacher's guide."""

import ctypes
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NEW_USER, NEW_PIDS, NEW_NET = 0x10000000, 0x20000000, 0x40000000  # of Linux' sched.h
DIE_WITH_PARENT, DUMPABLE = 1, 4  # of Linux' prctl.h
MOST_PROCESSES = 64


@dataclass(frozen=True)
class Limits:
    """What an answer may use.

    Args:
        seconds: of CPU time; three times as many may pass on the clock.
        memory: megabytes beyond what PyTorch itself takes.
        file: megabytes of a file that it writes.
    """

    seconds: int = 10
    memory: int = 2000
    file: int = 100


def run_apart(work: Callable[[], None], folder: Path, limits: Limits) -> tuple[str, float]:
    """Run ``work`` in a fork, in ``folder``.

    Returns:
        "" if it ended by itself, "time" if it was ended, or how it crashed; and the seconds of CPU time.
    """
    pid = os.fork()
    if not pid:
        try:
            _confine(folder, limits)
            work()
        finally:
            os._exit(0)  # whatever happened: a fork must never return into the program it was made from
    deadline, wait = time.monotonic() + 3 * limits.seconds, 0.002
    while not (ended := os.wait4(pid, os.WNOHANG))[0]:
        if late := time.monotonic() > deadline:
            _kill(pid)
            ended = os.wait4(pid, 0)
            break
        time.sleep(wait := min(1.5 * wait, 0.05))
    else:
        late = False
        _kill(pid)  # what it left running
    code, seconds = os.waitstatus_to_exitcode(ended[1]), ended[2].ru_utime + ended[2].ru_stime
    number = -code if code < 0 else code - 128
    # The kernel's limit counts whole ticks, and on a crowded machine these run ahead of the seconds that were used.
    if late or (number in (signal.SIGXCPU, signal.SIGKILL) and seconds >= limits.seconds / 2):
        return "time", seconds
    if number in set(signal.Signals):
        return f"it ended by {signal.Signals(number).name}", seconds
    return (f"it ended with exit code {code}" if code else ""), seconds


def _kill(pid: int) -> None:
    """End a process and all of its group."""
    with suppress(ProcessLookupError, PermissionError):  # it is gone, or macOS says that only its remains are left
        os.killpg(pid, signal.SIGKILL)


def _confine(folder: Path, limits: Limits) -> None:
    """Give up what an answer doesn't need. Where Linux lets us, it sees no network and no other process."""
    import resource  # not on Windows, where the other commands run

    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the grader's pipes among them
        os.dup2(nothing, stream)
    os.closerange(3, 1024)
    own = _enter_own_space()
    _die_with_parent()
    if own:
        if child := os.fork():  # the first process in the new space; when it ends, so does all that it started
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os._exit(128 - code if code < 0 else code)
        _die_with_parent()
        resource.setrlimit(resource.RLIMIT_NPROC, (MOST_PROCESSES, MOST_PROCESSES))
    os.environ.clear()
    os.environ.update(PATH=os.defpath, HOME=str(folder), TMPDIR=str(folder), LANG="C.UTF-8")
    tempfile.tempdir = str(folder)
    os.chdir(folder)
    taken = _address_space()
    for kind, most in (
        (resource.RLIMIT_CPU, limits.seconds),
        (resource.RLIMIT_AS, taken + limits.memory * 10**6),
        (resource.RLIMIT_FSIZE, limits.file * 10**6),
        (resource.RLIMIT_CORE, 0),
    ):
        if kind != resource.RLIMIT_AS or taken:
            resource.setrlimit(kind, (most, most + (kind == resource.RLIMIT_CPU)))


def _enter_own_space() -> bool:
    """Leave the network, and let children see no other processes; False where the system allows neither."""
    return sys.platform == "linux" and ctypes.CDLL(None).unshare(NEW_USER | NEW_NET | NEW_PIDS) == 0


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def has_own_space() -> bool:
    """Whether this system keeps answers from the network and from other processes."""
    if not (pid := os.fork()):
        os._exit(0 if _enter_own_space() else 1)
    return os.waitpid(pid, 0)[1] == 0


def _address_space() -> int:
    """Bytes that this process has mapped; 0 where the system doesn't say, and then memory isn't limited."""
    import resource

    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0


def hide_from_children() -> None:
    """Keep a fork from reading this process' memory and pipes under /proc."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DUMPABLE, 0)
