"""A download happens once, whole, or not at all."""

import errno
import hashlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import torchvision
from fake_data import packed_mnist
from filelock import FileLock
from local_host import Way, answers, local_host

from vit_tutorial.data import downloads, fetch, load_dataset, sources
from vit_tutorial.data.downloads import HostFault, TooSlow, download, ensure
from vit_tutorial.data.load import fetch_and_report

FILES = ("a", "b")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Below a megabyte a second for a tenth of one, a mirror is slow."""
    for name, value in {"SLOW": 1e6, "WINDOW": 0.1, "PAUSE": 0.0}.items():
        monkeypatch.setattr(downloads, name, value)


def fetch_both(folder: Path) -> Path:
    (folder / "in").mkdir()
    for name in (*FILES, "packed"):
        (folder / "in" / name).write_text(f"whole {name}")
    return folder / "in"


def visible(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.name.endswith(".lock"))


def test_only_the_files_asked_for_arrive(tmp_path):
    ensure("Set", tmp_path / "new", "in/side", FILES, fetch_both)
    assert visible(tmp_path / "new") == ["in", "in/side", "in/side/a", "in/side/b"]
    assert (tmp_path / "new/in/side/b").read_text() == "whole b"


def test_what_is_there_is_used_as_it_is(tmp_path, monkeypatch):
    """Even in a root that may not be written: no lock is taken."""
    monkeypatch.setattr(downloads, "FileLock", None)
    for name in FILES:
        (tmp_path / name).write_text("mine")
    ensure("Set", tmp_path, ".", FILES, lambda _: pytest.fail("fetched"))
    assert (tmp_path / "a").read_text() == "mine"


def test_a_folder_that_lacks_a_file_is_completed_and_other_files_stay(tmp_path):
    (tmp_path / "side").mkdir()
    (tmp_path / "side/a").write_text("old")
    (tmp_path / "side/notes").write_text("the user's own")
    ensure("Set", tmp_path, "side", FILES, fetch_both)
    assert [(tmp_path / "side" / name).read_text() for name in ("a", "b", "notes")] == [
        "whole a",
        "whole b",
        "the user's own",
    ]


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt,
        ConnectionResetError(errno.ECONNRESET, "Connection reset"),
        OSError(errno.ENOSPC, "No space left"),
    ],
)
def test_an_interrupted_download_leaves_nothing_and_the_next_one_works(tmp_path, error):
    def interrupted(folder: Path) -> Path:
        (folder / "a").write_text("who")
        raise error

    with pytest.raises((KeyboardInterrupt, FileNotFoundError)):
        ensure("Set", tmp_path, "side", FILES, interrupted)
    assert visible(tmp_path) == []
    ensure("Set", tmp_path, "side", FILES, fetch_both)
    assert visible(tmp_path) == ["side", "side/a", "side/b"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    (tmp_path / ".Set.part/in").mkdir(parents=True)
    (tmp_path / ".Set.part/in/a").write_text("who")
    ensure("Set", tmp_path, "side", FILES, fetch_both)
    assert visible(tmp_path) == ["side", "side/a", "side/b"]
    assert (tmp_path / "side/a").read_text() == "whole a"


def test_of_what_a_killed_process_left_a_download_is_resumed(tmp_path):
    (tmp_path / ".Set.part/in").mkdir(parents=True)
    (tmp_path / ".Set.part/packed.part").write_text("half")
    seen = []
    ensure("Set", tmp_path, "side", FILES, lambda folder: seen.extend(folder.iterdir()) or fetch_both(folder))
    assert seen == [tmp_path / ".Set.part/packed.part"]


def test_another_process_is_waited_for_with_patience(tmp_path):
    with (
        FileLock(tmp_path / ".Set.lock"),
        pytest.raises(FileNotFoundError, match=r"lacks a, b, and another process has been fetching it for 0\.1 sec"),
    ):
        ensure("Set", tmp_path, "side", FILES, fetch_both, patience=0.1)


def test_a_download_without_its_files_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"its download failed: .*No such file"):
        ensure("Set", tmp_path, "side", (*FILES, "c"), fetch_both)


def slow_fetch(folder: Path) -> Path:
    with open(folder.parent / "count", "a") as count:
        count.write("x")
    (folder / "a").write_text("who")
    time.sleep(0.3)
    (folder / "a").write_text("whole a")
    (folder / "b").write_text("whole b")
    return folder


def ask(root: Path, start) -> None:
    start.wait()
    ensure("Set", root, "side", FILES, slow_fetch)
    # sys.exit would run the clean-up that pytest left in this copy of its process
    os._exit(0 if (root / "side/a").read_text() == "whole a" and (root / "side/b").exists() else 1)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system cannot fork")
def test_processes_that_ask_at_once_fetch_once(tmp_path):
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    processes = [context.Process(target=ask, args=(tmp_path, start)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "x"


def test_download_switched_off(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Set is missing: .*side lacks a, b, and download is off\. Put"):
        ensure("Set", tmp_path, "side", FILES, None)
    assert visible(tmp_path) == []


def test_a_root_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match=r"file/root cannot take it: .*Not a directory.* that you may write"):
        ensure("Set", tmp_path / "file/root", "side", FILES, fetch_both)


def test_a_root_that_may_not_be_written(tmp_path, monkeypatch):
    def refuse(path, timeout):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(downloads, "FileLock", refuse)
    with pytest.raises(FileNotFoundError, match=r"cannot take it: .*Permission denied: .*Set.lock.* VIT_TUTORIAL_DATA"):
        ensure("Set", tmp_path, "side", FILES, fetch_both)


CONTENT = bytes(range(256)) * 1000
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def host():
    with local_host({"file": CONTENT, "mirror/file": CONTENT, "damaged/file": CONTENT[::-1]}) as server:
        yield server


def asked(host) -> list[tuple[str, str | None]]:
    """Every request: the path, and from which byte on."""
    return [(path, told and told[6:-1]) for path, told in zip(host.requests, host.ranges, strict=True)]


@pytest.mark.parametrize("checksum", [MD5, MD5[:12], "sha256:" + hashlib.sha256(CONTENT).hexdigest()[:8]])
def test_a_file_arrives_as_it_was_sent(host, tmp_path, checksum, capsys):
    sent_by = download([host.url("file"), host.url("mirror/file")], tmp_path / "file", checksum)
    assert sent_by == "127.0.0.1"
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert host.requests == ["file"]  # the mirror was not needed
    assert "file from 127.0.0.1:   0%" in capsys.readouterr().err
    assert visible(tmp_path) == ["file"]


def test_mirrors_are_tried_in_turn(host, tmp_path):
    urls = [host.url(path) for path in ("nowhere", "damaged/file", "mirror/file", "file")]
    download(urls, tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert host.requests == ["nowhere", "damaged/file", "mirror/file"]


def test_every_mirror_s_failure_is_named(host, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        refused = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(HostFault) as error:
            download([refused, host.url("nowhere"), host.url("damaged/file")], tmp_path / "file", MD5, progress=False)
    first, second, third = str(error.value).split("; ")
    assert first == f"{refused}: Connection refused"
    assert second == f"{host.url('nowhere')}: 404 Not Found"
    wrong = hashlib.md5(CONTENT[::-1]).hexdigest()
    assert third.startswith(host.url("damaged/file")) and third.endswith(f"its md5 is {wrong}, not {MD5[4:]}")
    assert visible(tmp_path) == []


# Slow mirrors, and silent ones -------------------------------------------------------------------------------------


def test_a_slow_mirror_is_left_and_the_next_one_goes_on_from_there(host, tmp_path):
    host.ways["file"] = Way(speed=200_000)
    download([host.url("file"), host.url("mirror/file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    (first, whole), (second, rest) = asked(host)
    assert (first, whole, second) == ("file", None, "mirror/file")
    assert 0 < int(rest) < len(CONTENT) // 2


def test_the_last_mirror_is_taken_at_any_speed_and_its_bar_tells_the_minutes(host, tmp_path, capsys):
    host.ways = {"file": Way(speed=500_000), "mirror/file": Way(speed=700_000)}
    download([host.url("file"), host.url("mirror/file")], tmp_path / "file", MD5)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert host.requests == ["file", "mirror/file"]
    assert ", 1 minute left" in capsys.readouterr().err  # rounded up


def test_where_the_last_mirror_fails_a_slow_one_is_taken(host, tmp_path):
    host.ways["file"] = Way(speed=500_000)
    urls = [host.url(path) for path in ("file", "nowhere", "damaged/file")]
    download(urls, tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path for path, _ in asked(host)][-1] == "file"


@pytest.mark.parametrize("sent", [0, 100_000])
def test_a_mirror_that_falls_silent_is_left(host, tmp_path, sent):
    host.ways["file"] = Way(cuts=[sent], stalls=True)
    download([host.url("file"), host.url("mirror/file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert asked(host) == [("file", None), ("mirror/file", str(sent) if sent else None)]


def test_a_silent_host_is_given_up_and_the_process_keeps_its_own_limit(host, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 0.1)
    host.silent_for = 1.0
    before = socket.getdefaulttimeout()
    with pytest.raises(HostFault, match="timed out"):
        download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert host.limits == [before]  # while it was asked; other connections of the process are not hurried


def test_patience_ends_when_it_is_clear_that_it_won_t_do(host, tmp_path):
    host.ways["file"] = Way(speed=70_000)  # 256 kB in 3.7 seconds
    with pytest.raises(TooSlow, match=r"file: at \d+ kB/s it would take 1 minute more$"):
        download([host.url("file")], tmp_path / "file", MD5, progress=False, patience=1.5)
    host.ways.clear()
    download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert 0 < int(host.ranges[-1][6:-1]) < 100_000  # what had come was not lost


# Breaks ------------------------------------------------------------------------------------------------------------


def test_the_last_mirror_is_resumed_after_breaks(host, tmp_path):
    host.ways["file"] = Way(cuts=[100_000, 70_000])
    download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert asked(host) == [("file", None), ("file", "100000"), ("file", "170000")]


def test_a_host_that_ignores_ranges_starts_again(host, tmp_path):
    host.ways["file"] = Way(cuts=[100_000, 30_000], ranges=False)
    download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert asked(host) == [("file", None), ("file", "100000"), ("file", "100000")]
    assert visible(tmp_path) == ["file"]


def test_a_mirror_that_starts_again_and_is_slow_costs_nothing(host, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:200_000])
    host.ways["file"] = Way(speed=200_000, ranges=False)
    download([host.url("file"), host.url("mirror/file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert asked(host) == [("file", "200000"), ("mirror/file", "200000")]


def test_a_host_that_always_breaks_off_is_given_up_and_the_next_call_resumes(host, tmp_path):
    host.ways["file"] = Way(cuts=[100_000] + [0] * 20)
    with pytest.raises(HostFault, match=r"file: .*0 bytes read, 156000 more expected|broke off"):
        download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert len(host.requests) == 1 + 1 + downloads.BREAKS
    assert visible(tmp_path) == ["file.part"]
    host.ways.clear()
    download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert host.ranges[-1] == "bytes=100000-"


def test_a_host_that_always_starts_again_and_breaks_off_is_given_up(host, tmp_path):
    """Much arrives each time, and none of it is new."""
    host.ways["file"] = Way(cuts=[100_000] * 20, ranges=False)
    with pytest.raises(HostFault):
        download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert len(host.requests) == 1 + 1 + downloads.BREAKS


def test_a_file_that_is_gone_when_it_is_to_be_resumed(host, tmp_path):
    class Once(dict):
        def get(self, path):
            return self.pop(path, None)

    host.files, host.ways["file"] = Once(host.files), Way(cuts=[100_000])
    with pytest.raises(HostFault, match=r"file: 404 Not Found$"):
        download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert visible(tmp_path) == ["file.part"]


@pytest.mark.parametrize("left", [b"rubbish", CONTENT[:-1] + b"?", CONTENT + b"?", CONTENT[:200_000]], ids=len)
def test_what_an_earlier_process_left_is_used_only_if_the_whole_is_right(host, tmp_path, left):
    (tmp_path / "file.part").write_bytes(left)
    download([host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    resumed = CONTENT.startswith(left)
    assert asked(host) == [("file", str(len(left)))] + [("file", None)] * (not resumed)


def test_wrong_bytes_are_fetched_from_a_mirror_once_more_and_no_more(host, tmp_path):
    (tmp_path / "file.part").write_bytes(b"rubbish")
    with pytest.raises(HostFault, match="damaged"):
        download([host.url("damaged/file")], tmp_path / "file", MD5, progress=False)
    assert asked(host) == [("damaged/file", "7"), ("damaged/file", None)]
    assert visible(tmp_path) == []


@pytest.mark.parametrize("span", ["bytes 3-9/10", "bytes */256000", "bytes 7-9/" + "1" * 5000, "nonsense"])
def test_another_part_than_was_asked_for_is_the_host_s_fault(host, tmp_path, span):
    (tmp_path / "file.part").write_bytes(CONTENT[:7])
    host.ways["file"] = Way(span=span)
    download([host.url("file"), host.url("mirror/file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert asked(host) == [("file", "7"), ("mirror/file", "7")]


# Whatever goes wrong on a host's side is its fault -----------------------------------------------------------------


def test_a_redirect_is_followed(host, tmp_path):
    host.ways["moved"] = Way(moved=host.url("file"))
    download([host.url("moved")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "address",
    [
        "http://[half",
        "http://",
        "http://127.0.0.1:99999/",
        "file:///etc/hostname",
        "moved",
        "http://a..b/",
        "http://.../x",
        "http://%zz/",
    ],
)
def test_a_redirect_to_nowhere_is_the_host_s_fault(host, tmp_path, address):
    host.ways["moved"] = Way(moved=address)
    with pytest.raises(HostFault) as error:
        download([host.url("moved")], tmp_path / "file", MD5, progress=False)
    assert str(error.value).startswith(f"{host.url('moved')}: ") and "\n" not in str(error.value)
    download([host.url("moved"), host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 2000 Very OK\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\n\r\n",
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\n\r\npart",
        b"HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe/\r\n\r\n",
        OK + b"Content-Length: 7\r\n\r\n<html/>",
        OK + b"Content-Length: many\r\n\r\nfew",
        OK + b"Content-Length: -5\r\n\r\nfew",
        OK + b"Content-Length: 5, 6\r\n\r\nfew",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 7\r\n\r\nnot zip",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nwhat\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nwh",
        OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
        OK + b"X: y\r\n" * 200 + b"\r\n",
    ],
    ids=range(15),
)
def test_an_answer_that_is_none_is_the_host_s_fault(host, tmp_path, raw):
    with answers(raw) as url:
        with pytest.raises(HostFault, match=f"^{url}: [^\n]+$"):
            download([url], tmp_path / "file", MD5, progress=False)
        download([url, host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", OK + b"Transfer-Encoding: chunked\r\n\r\n1;"])
def test_a_host_that_sends_a_byte_now_and_then_is_given_up(host, tmp_path, monkeypatch, head):
    """No read is ever silent for long: the first never ends its headers, the second the length of a chunk."""
    monkeypatch.setattr(downloads, "TIMEOUT", 0.2)
    with answers(head, then=b"x") as url:
        with pytest.raises(HostFault, match=f"^{url}: timed out$"):
            download([url], tmp_path / "file", MD5, progress=False)
        download([url, host.url("file")], tmp_path / "file", MD5, progress=False)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system has no such signals")
def test_ctrl_c_waits_for_no_host(tmp_path, request):
    """A thread is still reading then, and closing the connection would wait for it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with answers(OK + b"Transfer-Encoding: chunked\r\n\r\n1;", then=b"x") as url:
        threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            download([url], tmp_path / "file", MD5, progress=False)


def test_even_the_last_mirror_has_a_least_speed(host, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "SLOWEST", 500_000)
    host.ways["file"] = Way(speed=50_000)
    with pytest.raises(HostFault, match=r"file: only \d+ kB/s$"):
        download([host.url("file")], tmp_path / "file", MD5, progress=False)


@pytest.mark.parametrize(
    "head", [b"Content-Length: 999999999999\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n", b"\r\n"]
)
def test_a_host_that_sends_without_end_is_left(host, tmp_path, head):
    with answers(OK + head, then=b"10000\r\n" + bytes(2**16) + b"\r\n", pause=0.0) as url:
        with pytest.raises(HostFault, match=r"it (would send 999,999,999,999 bytes|sent more than the 300,000 bytes)"):
            download([url], tmp_path / "file", MD5, progress=False, most=300_000)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * 300_000
        download([url, host.url("file")], tmp_path / "file", MD5, progress=False, most=300_000)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_the_reason_is_the_host_s_and_not_what_went_wrong_before(tmp_path):
    try:
        raise RuntimeError("long ago")
    except RuntimeError:
        with answers(b"") as url, pytest.raises(HostFault) as error:
            download([url], tmp_path / "file", MD5, progress=False)
    assert "long ago" not in str(error.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
def test_a_disk_that_is_full_is_not_the_host_s_fault(host, tmp_path):
    def fetched(folder: Path) -> Path:
        (folder / "file.part").symlink_to("/dev/full")
        download([host.url("file"), host.url("mirror/file")], folder / "file", MD5, progress=False)
        return folder

    with pytest.raises(
        FileNotFoundError, match=r"cannot take it: .*No space left on device\. Name a folder .* in THERE"
    ):
        ensure("Set", tmp_path, "side", ["file"], fetched, "THERE")
    assert host.requests == ["file"]


# What is said of it ------------------------------------------------------------------------------------------------


@pytest.fixture
def mnist_host(monkeypatch, tmp_path):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(tmp_path / "root"))
    with local_host(packed_mnist(monkeypatch)) as host:
        monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [host.url("")])
        yield host


def test_a_line_tells_where_a_set_came_from(mnist_host, capsys):
    fetch("mnist")
    assert capsys.readouterr().out.endswith("MNIST: fetched from 127.0.0.1\n")
    fetch("mnist")
    assert capsys.readouterr().out == "MNIST: already here\n"
    with pytest.raises(ValueError, match=r"name must be one of .*'digits'"):
        fetch("digits")


def test_a_line_tells_why_there_is_none_and_what_stands_in(mnist_host):
    mnist_host.files.clear()
    assert fetch_and_report("mnist") == (
        False,
        "MNIST: not available (127.0.0.1: 404 Not Found); small digits stand in",
    )


def test_a_set_that_takes_too_long_is_left_and_nothing_waits_in_a_cell(mnist_host, monkeypatch, capsys):
    """After the step that fetches, the notebooks' kernels find the same."""
    name = f"{sources.MNIST_FILES[0]}.gz"
    mnist_host.ways[name] = Way(cuts=[50], stalls=True)
    monkeypatch.setattr(downloads, "TIMEOUT", 0.1)
    monkeypatch.setattr(sources, "VAL_IMAGES", 5)
    there, said = fetch_and_report("mnist", patience=0.05, progress=False)
    assert not there and "127.0.0.1: timed out" in said and "small digits stand in" in said
    monkeypatch.setenv("VIT_TUTORIAL_DOWNLOAD", "0")
    mnist_host.requests.clear()
    fetch("mnist")
    with pytest.warns(UserWarning, match=r"MNIST is missing: .* and download is off\. .* Going on with 'digits'"):
        load_dataset("mnist", "test", fallback="digits")
    assert mnist_host.requests == []
    assert capsys.readouterr().out == ""


def test_to_wait_is_offered_where_that_helps(monkeypatch, tmp_path):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(tmp_path))
    official = torchvision.datasets.CIFAR10
    with local_host({official.filename: CONTENT}) as host:
        host.ways[official.filename] = Way(speed=70_000)
        monkeypatch.setattr(sources, "CIFAR_MIRRORS", (host.url("nowhere"),))
        monkeypatch.setattr(official, "url", host.url(official.filename))
        there, said = fetch_and_report("cifar10", patience=1.0, progress=False)
    assert not there
    assert said.startswith("CIFAR-10: not available (127.0.0.1: 404 Not Found; 127.0.0.1: at ")
    assert said.endswith("minute more); drawn shapes stand in. To wait for it: vit-tutorial data cifar10")
