"""A hostile answer writes in its own folder and nowhere else, and reads nobody's files.

Nothing hostile runs before its own process has tried, and failed, to put a harmless file into the canary, a folder that
the test makes for itself. What is hostile names the canary by its whole path, so that it could reach nothing else if
all that is tested here were broken.
"""

import contextlib
import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from vit_tutorial.classroom import confinement, grading, sandbox
from vit_tutorial.classroom.answers import Answer
from vit_tutorial.classroom.grading import Judge
from vit_tutorial.classroom.judge import Watched
from vit_tutorial.classroom.sandbox import Limits

fcntl = pytest.importorskip("fcntl", reason="not on Windows")
LIMITS = Limits(seconds=5, memory=500, file=20)
NOBODY = 65534
has_landlock = sys.platform == "linux" and ctypes.CDLL(None).syscall(confinement.CREATE_RULESET, None, 0, 1) > 0
pytestmark = pytest.mark.skipif(not has_landlock, reason="this system has no Landlock")


def test_confinement_is_on():
    assert sandbox.why_unconfined() == ""


class Ground:
    """A canary and, beside it, an answer's own folder."""

    def __init__(self, folder: Path):
        self.canary, self.own = folder / "canary", folder / "own"
        (self.canary / "home").mkdir(parents=True)
        self.own.mkdir()
        self.secret = self.canary / "home/secret"
        self.other = self.canary / "ada.py"  # another submission
        self.secret.write_text("whole", encoding="utf-8")
        self.other.write_text("def patchify(): pass\n", encoding="utf-8")
        self.before = self.state()

    def paths(self) -> list[Path]:
        return [self.canary, *sorted(self.canary.rglob("*"))]

    def state(self) -> list[tuple]:
        """All that one could have changed of the canary."""
        found = []
        for path in self.paths():
            kept = path.lstat()
            whole = (kept.st_ino, kept.st_mode, kept.st_uid, kept.st_gid, kept.st_nlink, kept.st_size, kept.st_mtime_ns)
            content = path.read_text(encoding="utf-8") if path.is_file() else ""
            found.append((str(path), *whole, content, os.listxattr(path)))
        return found

    def run(self, hostile) -> dict[str, str]:
        """What became of each of ``hostile(self)``, by its name; "unconfined" if none of them was tried."""

        def work():
            said = {}
            try:
                (self.canary / "probe").touch()
                said["probe"] = "unconfined"
            except OSError:
                for name, attempt in hostile(self).items():
                    try:
                        said[name] = f"done: {attempt()}"
                    except OSError as error:
                        said[name] = f"refused: {error}"
            (self.own / "said").write_text(json.dumps(said), encoding="utf-8")

        self.grader = os.getpid()
        assert sandbox.run_sandboxed(work, self.own, LIMITS)[0] == ""
        return json.loads((self.own / "said").read_text(encoding="utf-8"))


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


def through(link: Path, target: Path) -> Path:
    link.symlink_to(target)
    return link


def attacks(ground: Ground) -> dict:
    """Each raises OSError where it's refused. All of them name the canary."""
    canary, own, secret = ground.canary, ground.own, ground.secret
    mine = own / "mine"
    mine.write_text("mine", encoding="utf-8")
    libc, inode = ctypes.CDLL(None, use_errno=True), secret.stat()

    def call(function, *args):
        if function(*args) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def opened(path, flags):
        os.close(os.open(path, flags))

    def leave(then):
        os.chdir(canary / "home")  # that's no crime; what follows names the file that the test made there
        then()

    def relative():
        found = os.open(canary / "home", os.O_PATH)
        os.unlink("secret", dir_fd=found)

    def by_handle():
        """The test has the secret open for writing, under a low and a high number."""
        for number in range(3, 2000):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(number), inode):
                    return os.write(number, b"gone")
        raise OSError("no open handle was left")

    return {
        "read": secret.read_text,
        "read another submission": ground.other.read_text,
        "list": lambda: os.listdir(canary),
        "delete": secret.unlink,
        "delete a folder": (canary / "home").rmdir,
        "delete the tree": lambda: shutil.rmtree(canary),
        "overwrite": lambda: secret.write_text("gone"),
        "append": lambda: opened(secret, os.O_WRONLY | os.O_APPEND),
        "truncate": lambda: os.truncate(secret, 0),
        "truncate as it opens": lambda: opened(secret, os.O_RDONLY | os.O_TRUNC),
        "truncate with neither right": lambda: opened(secret, 3 | os.O_TRUNC),
        "create": (canary / "new").touch,
        "create a folder": (canary / "new").mkdir,
        "create a pipe": lambda: os.mkfifo(canary / "new"),
        "create without a name": lambda: opened(canary, os.O_TMPFILE | os.O_RDWR),
        "rename": lambda: secret.rename(canary / "new"),
        "move it here": lambda: secret.rename(own / "stolen"),
        "put another in its place": lambda: mine.replace(secret),
        "link it here": lambda: os.link(secret, own / "linked"),
        "link into it": lambda: os.link(mine, canary / "new"),
        "symlink into it": lambda: (canary / "new").symlink_to(mine),
        "chmod": lambda: secret.chmod(0o777),
        "chmod a folder": lambda: canary.chmod(0o777),
        "chmod by the newest call": lambda: call(libc.syscall, 452, -100, bytes(secret), 0o777, 0),
        "chown": lambda: os.chown(secret, os.getuid(), os.getgid()),
        "utime": lambda: os.utime(secret, (0, 0)),
        "an attribute": lambda: os.setxattr(secret, "user.canary", b"gone"),
        "flags": lambda: fcntl.ioctl(os.open(mine, os.O_RDONLY), 0x40086602, b"\0" * 8),
        "follow a symlink": lambda: through(own / "to-secret", secret).write_text("gone"),
        "read through a symlink": lambda: through(own / "to-secret-2", secret).read_text(),
        "follow a symlink to a folder": lambda: (through(own / "to-home", canary / "home") / "secret").unlink(),
        "climb": lambda: (own / f"../{canary.name}/home/secret").unlink(),
        "write through /proc": lambda: Path(f"/proc/self/root{secret}").write_text("gone"),
        "read through /proc": lambda: Path(f"/proc/self/root{secret}").read_text(),
        "through the grader's root": lambda: Path(f"/proc/{ground.grader}/root{secret}").write_text("gone"),
        "through /proc's working folder": lambda: Path(f"/proc/self/cwd/../{canary.name}/home/secret").unlink(),
        "through a handle's link": lambda: Path(f"/proc/self/fd/{os.open(secret, os.O_PATH)}").write_text("gone"),
        "by an open handle": by_handle,
        "by a folder's handle": relative,
        "after leaving": lambda: leave(Path("secret").unlink),
        "overwrite after leaving": lambda: leave(lambda: Path("secret").write_text("gone")),
        "by a program": lambda: subprocess.run(["/usr/bin/touch", secret], check=True),
        "from a space of its own": lambda: call(libc.unshare, 0x10000000 | 0x00020000),
        "mount": lambda: call(libc.mount, b"none", bytes(canary), b"tmpfs", 0, None),
        "a socket": socket.socket,
        "a pair of sockets": socket.socketpair,
    }  # fmt: skip


def as_nobody(work) -> None:
    """Run ``work`` as an ordinary user, in a fork; its failures are ours."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work()
        except BaseException as error:
            os.write(writing, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading, encoding="utf-8") as said:
        assert said.read() == ""


@pytest.mark.parametrize("version", ["this kernel's", "of 2021"])
@pytest.mark.parametrize("space", ["its own space", "the same space"])
@pytest.mark.parametrize("user", ["as we are", "an ordinary user"])
def test_the_canary_stays_whole(user, space, version, monkeypatch):
    """Where the system gives no process space, and with the Landlock of Linux 5.13, which knew no truncation."""
    if user == "an ordinary user" and os.geteuid() != 0:
        pytest.skip("we are one already")
    if space == "the same space":
        monkeypatch.setattr(sandbox, "NEW_USER", 1)  # no such flag
    if version == "of 2021":
        monkeypatch.setattr(confinement, "RIGHTS", dict.fromkeys(range(100), 13))

    def attacked():
        with open(ground.secret, "r+b") as file:
            high = fcntl.fcntl(file, fcntl.F_DUPFD, 1000)
            said = ground.run(attacks)
            os.close(high)
        assert len(said) > 40
        whys = "Permission denied", "Operation not permitted", "Invalid cross-device link", "no open handle"
        assert {name: what for name, what in said.items() if not any(why in what for why in whys)} == {}
        assert ground.state() == ground.before

    with tempfile.TemporaryDirectory(prefix="ground-") as folder:
        ground = Ground(Path(folder))
        if user == "as we are":
            attacked()
        else:
            for path in (Path(folder), *ground.paths(), ground.own):
                os.chown(path, NOBODY, NOBODY)
            ground.before = ground.state()
            as_nobody(attacked)


def test_what_it_may(ground):
    """What an answer needs is still there."""

    def honest(ground: Ground) -> dict:
        own = ground.own

        def renamed():
            (own / "folder").mkdir()
            (own / "a").write_text("abc", encoding="utf-8")
            (own / "a").rename(own / "folder/b")
            shutil.rmtree(own / "folder")
            return sorted(path.name for path in own.iterdir())

        def scratch():
            with tempfile.NamedTemporaryFile() as file:
                return Path(file.name).parent == own

        return {
            "write, move, delete": renamed,
            "a temporary file": scratch,
            "nothing": lambda: Path("/dev/null").write_text("gone", encoding="utf-8"),
            "the processor": lambda: os.cpu_count() and Path("/proc/cpuinfo").read_text(encoding="utf-8") != "",
            "chance": lambda: len(Path("/dev/urandom").open("rb").read(4)),
        }

    assert ground.run(honest) == {
        "write, move, delete": "done: []", "a temporary file": "done: True", "nothing": "done: 4",
        "the processor": "done: True", "chance": "done: 4",
    }  # fmt: skip


def test_an_unconfined_process_is_noticed_and_attacks_nothing(ground, monkeypatch):
    """The seeded fault: the confinement is switched off."""
    monkeypatch.setattr(sandbox, "confine", lambda folder, alone: None)
    assert ground.run(lambda ground: pytest.fail("this must not run")) == {"probe": "unconfined"}
    assert ground.state() != ground.before


def test_where_it_cannot_be_had_nothing_runs(ground, monkeypatch):
    monkeypatch.setattr(confinement, "CREATE_RULESET", 10**6)  # no such call
    monkeypatch.setattr(grading, "_book", dict)  # it takes long
    unconfined = Limits(seconds=5, unconfined=True)

    def ran(limits):
        ended, _ = sandbox.run_sandboxed((ground.own / "ran").touch, ground.own, limits)
        done = (ground.own / "ran").exists()
        (ground.own / "ran").unlink(missing_ok=True)
        return done, ended

    refused = (False, "it didn't run: it couldn't be confined to its folder")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ran(LIMITS) == refused
    assert ran(unconfined) == (True, "")
    sandbox.check_confinement(unconfined)
    with pytest.raises(ValueError, match=r"no Landlock.*add --unconfined"):
        grading.grade(ground.canary, ground.own / "out.csv", limits=LIMITS)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ran(unconfined) == ran(LIMITS) == refused
    with pytest.raises(ValueError, match=r"no Landlock.*you are root"):
        grading.grade(ground.canary, ground.own / "out.csv", limits=unconfined)
    assert list(ground.own.iterdir()) == [] and ground.state() == ground.before


def test_every_part_of_it_is_asked_for(ground, monkeypatch):
    """Without the filter, or without Landlock's rules, the process sees it and stops."""
    for part in ("_filter_calls", "_landlock"):
        with monkeypatch.context() as patch:
            patch.setattr(confinement, part, lambda *args: None)
            assert "not refused" in sandbox.why_unconfined()
            assert "didn't run" in sandbox.run_sandboxed((ground.own / "ran").touch, ground.own, LIMITS)[0]
    assert list(ground.own.iterdir()) == []


def answered(machine: str, alone: bool, number: int, *arguments: int, architecture: int = 0) -> str:
    """What the kernel does with a system call."""
    lines, at, value = confinement.program(machine, alone), 0, 0
    call = struct.pack("=IIQ", number, architecture or confinement.MACHINES[machine][1], 0)
    call += struct.pack("=6Q", *arguments, *[0] * (6 - len(arguments)))
    while True:
        code, then, otherwise, operand = lines[at]
        at += 1
        if code == 0x20:
            value = int.from_bytes(call[operand : operand + 4], sys.byteorder)
        elif code == 0x54:
            value &= operand
        elif code == 0x06:
            return {0x7FFF0000: "allowed", 0x50001: "denied", 0x50026: "absent", 0x80000000: "killed"}[operand]
        else:
            at += then if {0x15: value == operand, 0x25: value > operand}[code] else otherwise


@pytest.mark.parametrize("machine", confinement.MACHINES)
def test_the_filter_on_both_machines(machine):
    """One of them isn't the one that this runs on. Numbers by hand, from asm/unistd.h of each."""
    intel = machine == "x86_64"
    read, write, fchmodat, kill, clone, ioctl, openat = (
        (0, 1, 268, 62, 56, 16, 257) if intel else (63, 64, 53, 129, 220, 29, 56)
    )

    def says(*call, alone=True, architecture=0):
        return answered(machine, alone, *call, architecture=architecture)

    assert says(read, 3) == says(write, 3) == says(kill, 1, 9) == says(462) == "allowed"
    assert says(fchmodat) == says(kill, 1, 9, alone=False) == says(425) == says(452) == "denied"
    assert says(463) == says(435) == says(437) == says(0x40000000 + 90) == "absent"
    assert says(read, architecture=0x40000003) == "killed"
    thread, process, user = 0x3D0F00, 0x01200011, 0x10000011
    assert (says(clone, thread), says(clone, process), says(clone, user)) == ("allowed", "allowed", "denied")
    assert (says(ioctl, 3, 0x5401), says(ioctl, 3, 0x40086602), says(ioctl, 3, 1 << 32 | 0x6601)) == (
        "allowed", "denied", "denied",
    )  # fmt: skip
    flags = {0o0: "allowed", 0o1: "allowed", 0o1101: "allowed", 0o1102: "allowed", 0o1000: "denied", 0o1003: "denied"}
    assert {flag: says(openat, -100 % 2**64, 0, flag) for flag in flags} == flags


# In the grader ----------------------------------------------------------------------------------------------------


def test_each_call_begins_in_the_answer_s_own_folder(ground):
    def emptied(ground: Ground) -> dict:
        def calls():
            answer = Watched(lambda: (os.getcwd(), os.chdir(ground.canary))[0])
            answer.folder = ground.own
            first = answer()
            shutil.rmtree(ground.own, ignore_errors=True)  # what is in it goes, and it stays
            return {first, answer(), answer()} == {str(ground.own)}

        return {"calls": calls}

    assert ground.run(emptied) == {"calls": "done: True"}


RIGHT = """
import os
seen = []

def num_patches(img_size, patch_size):
    {hostile}
    if img_size[0] % patch_size[0] or img_size[1] % patch_size[1]:
        raise ValueError(f"{{img_size}} {{patch_size}}")
    return (img_size[0] // patch_size[0]) * (img_size[1] // patch_size[1])
"""


def test_an_answer_in_the_grader(ground):
    """As a whole, from the judge's process on."""
    canary, secret = str(ground.canary), str(ground.secret)
    judge = Judge(LIMITS)

    def judged(hostile):
        got = judge("num_patches", Answer(RIGHT.format(hostile=hostile), (), ""))
        return f"{got['status']}: {got['hint']}"

    try:
        assert "Permission denied" in judged(f"open({canary + '/probe'!r}, 'w')"), "or nothing else is tried"
        assert judged(f"os.chdir({canary!r}); os.path.exists('answer.py') and os.remove('answer.py')") == "right: "
        assert "wrong: " in (got := judged(f"open({secret!r}).read()")) and "Permission denied" in got
        judged(f"os.path.lexists('trace') or os.symlink({secret!r}, 'trace')")  # it's not written through
        assert judged("os.makedirs('trace', exist_ok=True)") == "crashed: it ended without a result"
        assert judged("os._exit(open('trace.failed', 'w').write('[1]') * 0)").startswith("crashed: ")
        assert judged("pass") == "right: "
    finally:
        judge.close()
    assert ground.state() == ground.before


def test_what_an_answer_left_is_read_only_if_it_is_a_plain_file(ground):
    left = ground.own / "left"
    left.write_text("told", encoding="utf-8")
    assert sandbox.read_left(left) == b"told"
    (ground.own / "linked").hardlink_to(left)
    os.mkfifo(ground.own / "pipe")
    for path in (left, through(ground.own / "link", ground.secret), ground.own / "pipe", ground.own):
        with pytest.raises(OSError, match=r"isn't a plain file|symbolic link|directory"):
            sandbox.read_left(path)
