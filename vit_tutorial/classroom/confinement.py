"""What keeps an answer inside its own folder: Landlock for files, a seccomp filter for what Landlock leaves out.

A process applies both to itself, without special rights; it can't undo them, and every process that it starts has them
too. An answer may write in its own folder, and read what Python and PyTorch load. It can't open, change, move or list
anything else, change modes, owners or times, open a socket, start a program, or touch another process. It can still
find out that a path exists, and how large a file is.

Sources: https://docs.kernel.org/userspace-api/landlock.html and seccomp_filter.html beside it.
"""

import ctypes
import os
import site
import struct
import sys
import sysconfig
from functools import cache
from pathlib import Path

# Of linux/landlock.h: its system calls, and what a rule may allow.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, _, MAKE_DIR, MAKE_REG = (1 << i for i in range(9))
MAKE_SYM, REFER, TRUNCATE = 1 << 12, 1 << 13, 1 << 14
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many of them there are; 16 from version 5 on
READ = READ_FILE | READ_DIR
OWN = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE

# Of linux/prctl.h, linux/audit.h and asm/unistd.h: (x86_64, aarch64), None where the machine lacks the call.
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
LAST = 462  # of the calls that were looked at; later ones don't exist for an answer
DENIED = {
    "modes": {"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    "owners": {"chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54)},
    "times": {"utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88)},
    "attributes": {"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7)}
    | {"removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16)},
    "files": {"truncate": (76, 45), "inotify_init": (253, None), "inotify_init1": (294, 26)},
    "sockets": {"socket": (41, 198), "socketpair": (53, 199)},
    "shared memory": {"shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195)},
    "queues": {"semget": (64, 190), "semctl": (66, 191), "semop": (65, 193), "semtimedop": (220, 192)}
    | {"msgget": (68, 186), "msgctl": (71, 187), "msgsnd": (69, 189), "msgrcv": (70, 188)}
    | {"mq_open": (240, 180), "mq_unlink": (241, 181)},
    "keys": {"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    "memory of others": {"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)}
    | {"pidfd_getfd": (438, 438), "process_madvise": (440, 440)},
    "ways round": {"unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241)}
    | {"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)}
    | {"userfaultfd": (323, 282), "mount_setattr": (442, 442)},
}
# Those that reach other processes. Where an answer has a process space of its own, there are none.
SIGNALS = {
    "signals": {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138)}
    | {"rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424)},
    "groups": {"setsid": (112, 157), "setpgid": (109, 154)},  # or it would outlive its group's end
}
ABSENT = {"clone3": (435, 435), "openat2": (437, 437)}  # a filter can't read their flags; C libraries do without
OPEN, OPENAT, CLONE, IOCTL, PRLIMIT = (2, None), (257, 56), (56, 220), (16, 29), (302, 261)
NEW_SPACES = 0x7E020000  # CLONE_NEW*


def confine(folder: Path, alone: bool) -> None:
    """Let this process, and all that it starts, write in ``folder`` alone, and read what Python needs. For good.

    Args:
        folder: its own.
        alone: whether it has a process namespace of its own; else it may not send signals.

    Raises:
        OSError: if this system can't do that, or if a test of it fails.
    """
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in MACHINES:
        raise OSError(
            f"answers can be confined on Linux, on {' or '.join(MACHINES)}; this is {sys.platform}, {machine}"
        )
    _drop_capabilities()
    _call(
        "the kernel refuses no-new-privileges", ctypes.CDLL(None, use_errno=True).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    )
    _landlock(folder)
    _filter_calls(program(machine, alone))
    for what, attempt in {  # each harmless where it isn't refused
        "opening the root folder": lambda: os.open("/", os.O_RDONLY),
        "changing a mode": lambda: os.chmod(folder, 0o700),
    }.items():
        try:
            attempt()
        except PermissionError:
            continue
        raise OSError(f"{what} was not refused")


def _call(problem: str, result: int) -> int:
    if result < 0:
        raise OSError(f"{problem}: {os.strerror(ctypes.get_errno())}")
    return result


def _drop_capabilities() -> None:
    """After this, root is subject to file permissions, too."""
    version3 = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    result = ctypes.CDLL(None, use_errno=True).capset(version3, ctypes.create_string_buffer(24))
    _call("capabilities can't be given up", result)


def _landlock(folder: Path) -> None:
    call = ctypes.CDLL(None, use_errno=True).syscall
    version = _call("this kernel has no Landlock, or it is switched off", call(CREATE_RULESET, None, 0, 1))
    handled = (1 << RIGHTS.get(version, 16)) - 1
    # All rights of files, TCP, and from version 6 on signals and abstract sockets beyond this process.
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _call("Landlock refuses", call(CREATE_RULESET, attributes, len(attributes), 0))
    for path, allowed in [
        (folder, OWN),
        (Path("/dev/null"), READ | WRITE_FILE),
        *((path, READ) for path in readable()),
    ]:
        try:
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError, PermissionError):  # what isn't there, or isn't ours anyway
            continue
        if not path.is_dir():
            allowed &= READ_FILE | WRITE_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed & handled, found))
        _call(f"Landlock refuses a rule for {path}", call(ADD_RULE, rules, 1, rule, 0))
        os.close(found)
    _call("Landlock refuses", call(RESTRICT_SELF, rules, 0))
    os.close(rules)


@cache
def readable() -> tuple[Path, ...]:
    """What Python and PyTorch load late, and what they ask about the processor. No home, no checkout, no /proc."""
    system = ["/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime"]
    system += ["/dev/zero", "/dev/random", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo"]
    system += ["/sys/devices/system/cpu", "/sys/devices/system/node"]
    python = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    python += [f"{prefix}/lib" for prefix in (sys.prefix, sys.base_prefix)]
    python += [*site.getsitepackages(), site.getusersitepackages()]
    # Of a checkout the package alone, and of that not the solutions.
    ours = [
        path for path in Path(__file__).resolve().parents[1].iterdir() if path.name not in ("exercises", "classroom")
    ]
    return tuple(dict.fromkeys([*map(Path, system + python), *ours]))


def program(machine: str, alone: bool) -> list[tuple[int, int, int, int]]:
    """The kernel's answer to each system call, for its filter.

    Args:
        machine: such as x86_64.
        alone: whether signals are allowed.

    Returns:
        Instructions as in linux/filter.h: (code, lines to jump if true, if false, number).
    """
    column, architecture = MACHINES[machine]

    def load(offset):
        return (0x20, 0, 0, offset)

    def argument(i):
        return load(16 + 8 * i)  # its lower half

    def equal(value, then=0, otherwise=0):
        return (0x15, then, otherwise, value)

    def masked(mask):
        return (0x54, 0, 0, mask)

    allow, deny, absent, kill = ((0x06, 0, 0, action) for action in (0x7FFF0000, 0x50001, 0x50026, 0x80000000))
    truncates = [masked(os.O_TRUNC | 3), equal(os.O_TRUNC, 1), equal(os.O_TRUNC | 3, 0, 1), deny, allow]  # read-only
    looked_at = [
        (OPEN, [argument(1), *truncates]),  # older Landlocks let it truncate what it may read
        (OPENAT, [argument(2), *truncates]),
        (CLONE, [argument(0), masked(NEW_SPACES), equal(0, 1), deny, allow]),
        (IOCTL, [argument(1), masked(0xFFFFFF00), equal(0x5400, 1), deny, allow]),  # those of terminals; none has one
        (PRLIMIT, [argument(0), equal(0, 1), deny, allow]),  # of itself
    ]
    lines = [load(4), equal(architecture, 1), kill, load(0), (0x25, 0, 1, LAST), absent]
    for numbers, block in looked_at:
        if numbers[column] is not None:
            lines += [equal(numbers[column], 0, len(block)), *block]
    for calls, action in (
        [(ABSENT, absent)]
        + [(each, deny) for each in DENIED.values()]
        + [(each, deny) for each in SIGNALS.values() if not alone]
    ):
        for numbers in calls.values():
            if numbers[column] is not None:
                lines += [equal(numbers[column], 0, 1), action]
    return [*lines, allow]


def _filter_calls(program: list[tuple[int, int, int, int]]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    header = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(code)))
    result = ctypes.CDLL(None, use_errno=True).prctl(SET_SECCOMP, FILTER, header, 0, 0)
    _call("the kernel refuses a filter of system calls", result)
