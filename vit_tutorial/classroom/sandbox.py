"""Run a function in a process of its own, with limits and without access to other files: see the teacher's guide."""

import ctypes
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vit_tutorial.classroom.confinement import confine, readable

NEW_USER, NEW_PIDS, NEW_NET = 0x10000000, 0x20000000, 0x40000000  # of Linux' sched.h
DIE_WITH_PARENT, DUMPABLE = 1, 4  # of Linux' prctl.h
MOST_PROCESSES = 64
NOT_CONFINED = 251  # exit code


@dataclass(frozen=True)
class Limits:
    """What an answer may use.

    Args:
        seconds: of CPU time; three times as much wall-clock time.
        memory: megabytes beyond what PyTorch itself takes.
        file: megabytes that a file may have.
        unconfined: run it even where it can't be kept out of other folders. Never as root.
    """

    seconds: int = 10
    memory: int = 2000
    file: int = 100
    unconfined: bool = False


def run_sandboxed(work: Callable[[], None], folder: Path, limits: Limits) -> tuple[str, float]:
    """Run ``work`` in a fork that can write only in ``folder``; where the system can't confine it, it doesn't run.

    Returns:
        "" if it returned, "time" if it was stopped, or how it crashed; and the seconds of CPU time.
    """
    optional = limits.unconfined and os.geteuid() != 0
    readable()  # once, not in every fork
    pid = os.fork()
    if not pid:
        try:
            _give_up(folder, limits, optional)
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
    if code == NOT_CONFINED:
        return "it didn't run: it couldn't be confined to its folder", seconds
    if number in set(signal.Signals):
        return f"it ended by {signal.Signals(number).name}", seconds
    return (f"it ended with exit code {code}" if code else ""), seconds


def _kill(pid: int) -> None:
    """End a process and all of its group."""
    with suppress(ProcessLookupError, PermissionError):  # it is gone, or macOS says that only its remains are left
        os.killpg(pid, signal.SIGKILL)


def _give_up(folder: Path, limits: Limits, optional: bool) -> None:
    """Give up what an answer doesn't need: other files, the network, other processes.

    Args:
        folder: what it keeps.
        limits: what it may use.
        optional: whether to go on if the system can't confine it. Else the process ends here.
    """
    import resource  # not on Windows, where the other commands run

    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the grader's pipes among them
        os.dup2(nothing, stream)
    for number in map(int, os.listdir("/dev/fd")):
        if number > 2:
            with suppress(OSError):  # the listing's own is closed already
                os.close(number)
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
    try:
        confine(folder, alone=own)
    except OSError:
        if not optional:
            os._exit(NOT_CONFINED)


def _enter_own_space() -> bool:
    """Leave the network, and hide other processes from children; False if the system doesn't allow it."""
    return sys.platform == "linux" and ctypes.CDLL(None).unshare(NEW_USER | NEW_NET | NEW_PIDS) == 0


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def why_unconfined() -> str:
    """Why this system can't confine answers to their folders; "" if it can."""
    if not hasattr(os, "fork"):
        return "this system has no fork"
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="answer-") as folder, open(reading, "rb") as said:
        if not (pid := os.fork()):
            try:
                confine(Path(folder), alone=False)
                os.write(writing, b"confined")
            except OSError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(pid, 0)
        why = said.read().decode() or "the process that tried to confine itself was ended"
    return "" if why == "confined" else why


def check_confinement(limits: Limits) -> None:
    """Refuse to run answers if they could reach the files of whoever grades.

    Raises:
        ValueError: if this system can't confine them, unless ``limits.unconfined``; as root, always.
    """
    if not (why := why_unconfined()) or (limits.unconfined and os.geteuid() != 0):
        return
    rule = "an answer could read and delete all that you can"
    if os.geteuid() == 0:
        raise ValueError(f"{why}: {rule}, and you are root. Grade as an ordinary user, in a container")
    raise ValueError(f"{why}: {rule}. Grade in a container; with nothing to lose in there, add --unconfined")


def _address_space() -> int:
    """Bytes that this process has mapped; 0 if the system doesn't say, and then memory isn't limited."""
    import resource

    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0


def hide_from_children() -> None:
    """Keep a fork from reading this process' memory and pipes under /proc."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DUMPABLE, 0)


def read_left(path: Path) -> bytes:
    """Read a file that an answer may have put there, unless it is a link, a pipe or a device.

    Raises:
        OSError: if it isn't there, or isn't a plain file of its own.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise OSError(f"{path} isn't a plain file")
        return file.read()
