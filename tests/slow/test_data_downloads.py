"""Downloads that are killed, that two processes want at once, and that take longer than anybody waits for."""

import multiprocessing
import os
import re
import signal
import time
from pathlib import Path

import pytest
import torchvision
from fake_data import packed_cifar, packed_mnist
from local_host import Way, local_host

from vit_tutorial.cli import main
from vit_tutorial.data import load_dataset, sources

OFFICIAL = torchvision.datasets.CIFAR10
pytestmark = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system cannot fork")


@pytest.fixture
def host(tmp_path, monkeypatch):
    """CIFAR-10 with few images, from one host alone."""
    with local_host(packed_cifar(tmp_path / "made", monkeypatch)) as server:
        monkeypatch.setattr(sources, "CIFAR_MIRRORS", ())
        monkeypatch.setattr(sources, "VAL_IMAGES", 5)
        monkeypatch.setattr(OFFICIAL, "url", server.url(OFFICIAL.filename))
        yield server


def load(root: Path) -> None:
    """In a process of its own, which must not run the clean-up that pytest left in it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        os._exit(0 if len(load_dataset("cifar10", "test", root=root)) == 10 else 1)
    except BaseException:
        os._exit(2)


def started(root: Path) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=load, args=(root,))
    process.start()
    return process


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda by: by.name)
def test_a_download_that_is_killed_is_not_used_and_is_resumed(host, tmp_path, by):
    size = len(host.files[OFFICIAL.filename])
    host.ways[OFFICIAL.filename] = Way(speed=50_000)
    process, part = started(tmp_path / "root"), tmp_path / "root/.CIFAR-10.part" / f"{OFFICIAL.filename}.part"
    while process.is_alive() and (not part.exists() or part.stat().st_size < size // 3):
        time.sleep(0.02)
    os.kill(process.pid, by)
    process.join(30)
    assert process.exitcode not in (0, None)
    seen = {path.name for path in (tmp_path / "root").iterdir()}
    assert seen == {".CIFAR-10.lock", ".CIFAR-10.part"}
    left = part.stat().st_size
    assert size // 3 <= left < size

    host.ways.clear()
    again = started(tmp_path / "root")
    again.join(60)
    assert again.exitcode == 0
    assert host.ranges == [None, f"bytes={left}-"]
    assert not part.parent.exists()


def test_a_process_that_is_killed_while_it_unpacks_leaves_nothing_that_is_used(host, tmp_path, monkeypatch):
    def unpack_half_and_die(packed, folder):
        (folder / OFFICIAL.base_folder).mkdir()
        (folder / OFFICIAL.base_folder / "test_batch").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(torchvision.datasets.utils, "extract_archive", unpack_half_and_die)
        process = started(tmp_path / "root")
        process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "root" / OFFICIAL.base_folder).exists()
    assert len(load_dataset("cifar10", "test", root=tmp_path / "root")) == 10


def test_two_processes_at_once_and_a_host_that_breaks_off(host, tmp_path):
    """One fetches, in three pieces, and the other waits."""
    size = len(host.files[OFFICIAL.filename])
    host.ways[OFFICIAL.filename] = Way(speed=200_000, cuts=[size // 3, size // 3])
    processes = [started(tmp_path / "root") for _ in range(2)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert host.ranges == [None, f"bytes={size // 3}-", f"bytes={2 * (size // 3)}-"]


def test_two_processes_of_which_the_first_is_killed(host, tmp_path):
    host.ways[OFFICIAL.filename] = Way(speed=50_000)
    first = started(tmp_path / "root")
    while first.is_alive() and not host.requests:
        time.sleep(0.02)
    second = started(tmp_path / "root")
    time.sleep(1)
    os.kill(first.pid, signal.SIGKILL)
    host.ways.clear()
    second.join(60)
    assert second.exitcode == 0
    assert len(host.requests) == 2


# The step before the notebooks, with its real patience ------------------------------------------------------------


@pytest.fixture
def whole(tmp_path, monkeypatch):
    """Hosts of a CIFAR-10 of its real size, of which none is fast, and MNIST's."""
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("VIT_TUTORIAL_STRICT", "0")
    files = packed_mnist(monkeypatch) | dict.fromkeys(("one", "two", "three"), bytes(170_498_071))
    with local_host(files) as server:
        monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [server.url("")])
        monkeypatch.setattr(sources, "CIFAR_MIRRORS", (server.url("one"), server.url("two")))
        monkeypatch.setattr(OFFICIAL, "url", server.url("three"))
        yield server


def test_what_70_kilobytes_a_second_would_bring_is_left_and_told(whole, capsys):
    whole.ways = {name: Way(speed=70_000) for name in ("two", "three")}
    del whole.files["one"]
    main(["data", "--minutes", "10", "mnist", "cifar10"])
    _, mnist, cifar = capsys.readouterr().out.splitlines()
    assert mnist == "MNIST: fetched from 127.0.0.1"
    slow = r"127\.0\.0\.1: at \d\d kB/s it would take (\d\d) minutes more"
    told = re.fullmatch(
        rf"CIFAR-10: not available \(127\.0\.0\.1: 404 Not Found; {slow}; {slow}\); drawn shapes stand in\. "
        r"To wait for it: vit-tutorial data cifar10",
        cifar,
    )
    assert told and all(35 < int(minutes) < 60 for minutes in told.groups())
    assert whole.requests[-4:] == ["one", "two", "three", "two"]


def test_hosts_that_accept_and_keep_silent_hold_nothing_up(whole, capsys):
    whole.ways = dict.fromkeys(("one", "two", "three"), Way(cuts=[0] * 9, stalls=True))
    main(["data", "--minutes", "10", "cifar10"])
    silent = "; ".join(["127.0.0.1: timed out"] * 3)
    assert capsys.readouterr().out.endswith(f"CIFAR-10: not available ({silent}); drawn shapes stand in\n")
    assert whole.requests == ["one", "two", "three"]
