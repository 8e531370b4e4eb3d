"""A download happens once, whole, or not at all."""

import errno
import multiprocessing
import os
import socket
import time
from pathlib import Path

import pytest

from vit_tutorial.data import downloads
from vit_tutorial.data.downloads import ensure

FILES = ("a", "b")


def fetch(folder: Path) -> Path:
    (folder / "in").mkdir()
    for name in (*FILES, "packed"):
        (folder / "in" / name).write_text(f"whole {name}")
    return folder / "in"


def visible(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.name.endswith(".lock"))


def test_only_the_files_asked_for_arrive(tmp_path):
    ensure("Set", tmp_path / "new", "in/side", FILES, fetch)
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
    ensure("Set", tmp_path, "side", FILES, fetch)
    assert [(tmp_path / "side" / name).read_text() for name in ("a", "b", "notes")] == [
        "whole a",
        "whole b",
        "the user's own",
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("reset"), OSError(errno.ENOSPC, "No space left")])
def test_an_interrupted_download_leaves_nothing_and_the_next_one_works(tmp_path, error):
    def interrupted(folder: Path) -> Path:
        (folder / "a").write_text("who")
        raise error

    with pytest.raises((KeyboardInterrupt, FileNotFoundError)):
        ensure("Set", tmp_path, "side", FILES, interrupted)
    assert visible(tmp_path) == []
    ensure("Set", tmp_path, "side", FILES, fetch)
    assert visible(tmp_path) == ["side", "side/a", "side/b"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    (tmp_path / ".Set.part/in").mkdir(parents=True)
    (tmp_path / ".Set.part/in/a").write_text("who")
    ensure("Set", tmp_path, "side", FILES, fetch)
    assert visible(tmp_path) == ["side", "side/a", "side/b"]
    assert (tmp_path / "side/a").read_text() == "whole a"


def test_a_download_without_its_files_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"its download failed: .*No such file"):
        ensure("Set", tmp_path, "side", (*FILES, "c"), fetch)


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
    with pytest.raises(FileNotFoundError, match=r"Set is not at hand: .*side lacks a, b, and download is off\. Put"):
        ensure("Set", tmp_path, "side", FILES, None)
    assert visible(tmp_path) == []


def test_the_reason_comes_on_one_line(tmp_path):
    def fails(folder: Path) -> Path:
        raise RuntimeError("Error downloading:\nTried here, got:\nrefused")

    with pytest.raises(
        FileNotFoundError, match=r"failed: Error downloading: Tried here, got: refused\. .*VIT_TUTORIAL"
    ):
        ensure("Set", tmp_path, "side", FILES, fails)


def test_a_root_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match=r"file/root cannot take it: .*Not a directory.* that you may write"):
        ensure("Set", tmp_path / "file/root", "side", FILES, fetch)


def test_a_root_that_may_not_be_written(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(downloads, "FileLock", refuse)
    with pytest.raises(FileNotFoundError, match=r"cannot take it: .*Permission denied: .*Set.lock.* VIT_TUTORIAL_DATA"):
        ensure("Set", tmp_path, "side", FILES, fetch)


def test_a_really_read_only_root(tmp_path):
    tmp_path.chmod(0o555)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("this user may write everywhere")
        with pytest.raises(FileNotFoundError, match=r"cannot take it: .*Permission denied"):
            ensure("Set", tmp_path, "side", FILES, fetch)
    finally:
        tmp_path.chmod(0o755)


def test_a_silent_host_is_given_up_and_the_process_keeps_its_own_limit(tmp_path):
    limits = []

    def note(folder: Path) -> Path:
        limits.append(socket.getdefaulttimeout())
        return fetch(folder)

    before = socket.getdefaulttimeout()
    ensure("Set", tmp_path, "side", FILES, note)
    assert limits == [downloads.TIMEOUT]
    assert socket.getdefaulttimeout() == before
