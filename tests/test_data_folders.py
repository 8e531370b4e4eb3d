"""Image folders: what is found, how it is split, and a cache that never lies."""

import hashlib
import io
import json
import os
import shutil
import warnings

import numpy as np
import pytest
import torch
from fake_data import write_image, write_tree

from vit_tutorial.data import Dataset, folders, load_dataset
from vit_tutorial.data.folders import check_split, decode_cached, find_images, folder_changes, split_folder
from vit_tutorial.data.images import ImageFiles, decode_all
from vit_tutorial.data.layout import spelled_alike


def value(dataset) -> list[int]:
    """The number that write_tree wrote into each image."""
    return dataset.images[:, 0, 0, 0].tolist()


def test_images_are_found_in_order_and_other_files_passed_over(tmp_path):
    write_tree(tmp_path, ("bee", "ape"), 2)
    (tmp_path / "ape/.000.png").write_text("what some systems leave behind")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "README").write_text("")
    files, labels, classes = find_images(tmp_path)
    assert classes == ("ape", "bee")
    found = [os.path.relpath(file, tmp_path) for file in files]
    assert found == [f"{name}/00{number}.png" for name in ("ape", "bee") for number in (0, 1)]
    assert labels.tolist() == [0, 0, 1, 1]


def test_labels_follow_the_given_classes(tmp_path):
    """A test folder without a class must not shift the numbers of the others."""
    write_tree(tmp_path, ("bee", "cat"), 1)
    assert find_images(tmp_path, ("ape", "bee", "cat"))[1].tolist() == [1, 2]


def test_bad_trees(tmp_path):
    with pytest.raises(ValueError, match="has no folder for each class"):
        find_images(tmp_path)
    write_tree(tmp_path, ("bee",), 1)
    with pytest.raises(ValueError, match="a class 'bee' that is none of ape, cat"):
        find_images(tmp_path, ("ape", "cat"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ValueError,
        match=r"empty holds no image\. Put images of the class into it; if it is no class, move it else",
    ):
        find_images(tmp_path)


def touch_tree(folder, counts: dict[str, int], first: int = 0) -> None:
    """Files that hold their names and are no images, since a split asks for names and copies only."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            (folder / name / f"IMG_{number}.jpg").write_text(f"{folder.name} {name} {number}")


def names(part: ImageFiles) -> set[str]:
    return {"/".join(file.split(os.sep)[-2:]) for file in part.files}


def test_a_tree_without_splits_is_cut_80_10_10(tmp_path):
    write_tree(tmp_path / "own", ("ape", "bee", "cat"), 20)
    parts = {
        split: load_dataset(f"folder:{tmp_path / 'own'}", split, root=tmp_path) for split in ("train", "val", "test")
    }
    everything = sorted(number for part in parts.values() for number in value(part))
    assert everything == [20 * label + number for label in range(3) for number in range(20)]
    for part in parts.values():
        assert part.classes == ("ape", "bee", "cat")
        assert part.labels.tolist() == [number // 20 for number in value(part)]
        assert part.variant == "folder own"
        again = load_dataset(f"folder:{tmp_path / 'own'}", "val", root=tmp_path)
        assert value(again) == value(parts["val"])


def test_the_first_two_tenths_of_the_hashes_are_test_and_validation(tmp_path):
    touch_tree(tmp_path, {"ape": 300, "bee": 200})
    tenth = 2**256 / 10
    expected = {"test": set(), "val": set(), "train": set()}
    for name, count in (("ape", 300), ("bee", 200)):
        for file in (f"{name}/IMG_{number}.jpg" for number in range(count)):
            place = int(hashlib.sha256(file.encode()).hexdigest(), 16)
            expected["test" if place < tenth else "val" if place < 2 * tenth else "train"].add(file)
    assert {split: names(part) for split, part in split_folder(tmp_path).items()} == expected


@pytest.mark.parametrize("seed", range(5))
def test_each_class_is_in_each_split_and_no_training_image_is_ever_for_the_test(tmp_path, seed):
    """A class of three grows: where the hash draws none the nearest fills in, and may only go back to training."""
    touch_tree(tmp_path, {"ape": 3}, first=1000 * seed)
    seen = set()
    for number in range(40):
        parts = split_folder(tmp_path)
        assert all(len(part) for part in parts.values())
        assert not seen & names(parts["test"])
        seen |= names(parts["train"])
        touch_tree(tmp_path, {"ape": 1}, first=1000 * seed + 100 + number)


def test_a_class_with_fewer_images_than_splits(tmp_path):
    touch_tree(tmp_path / "own", {"bee": 2})
    with pytest.raises(ValueError, match="own: no class has 3 different images, one each for test, val, train"):
        split_folder(tmp_path / "own")
    touch_tree(tmp_path / "own", {"ape": 9})
    with pytest.warns(UserWarning, match=r"own: classes with too few images for test, val: bee \(2\)$"):
        parts = split_folder(tmp_path / "own")
    assert [set(parts[split].labels.tolist()) for split in ("train", "val", "test")] == [{0, 1}, {0}, {0}]
    touch_tree(tmp_path / "own/train", {"ape": 2, "bee": 2})
    for name in ("ape", "bee"):
        shutil.rmtree(tmp_path / "own" / name)
    touch_tree(tmp_path / "own/test", {"ape": 2, "bee": 2})
    assert {split: len(part) for split, part in split_folder(tmp_path / "own").items()} == {
        "test": 4,
        "val": 2,
        "train": 2,
    }


@pytest.mark.parametrize("val", ["val", "valid"])
def test_splits_that_are_there_are_used(tmp_path, val):
    own = tmp_path / "own"
    write_tree(own / "train", ("ape", "bee", "cat"), 10)
    write_tree(own / "test", ("ape", "cat"), 2)
    parts = {split: load_dataset(f"folder:{own}", split, root=tmp_path) for split in ("train", "val", "test")}
    assert len(parts["train"]) + len(parts["val"]) == 30
    assert value(parts["test"]) == [0, 1, 20, 21]
    assert parts["test"].labels.tolist() == [0, 0, 2, 2]
    assert not set(value(parts["train"])) & set(value(parts["val"]))
    write_tree(own / val, ("ape", "bee", "cat"), 1)
    assert len(load_dataset(f"folder:{own}", "train", root=tmp_path)) == 30
    assert value(load_dataset(f"folder:{own}", "val", root=tmp_path)) == [0, 20, 40]


def test_folders_whose_use_is_unclear(tmp_path):
    touch_tree(tmp_path / "train", {"ape": 9})
    touch_tree(tmp_path / "spare", {"ape": 3})
    with pytest.warns(UserWarning, match="only the folders train are used, not spare$"):
        split_folder(tmp_path)
    for name in ("val", "valid"):
        touch_tree(tmp_path / name, {"ape": 3})
    with pytest.raises(ValueError, match="has the folders val and valid; only one can be the validation images"):
        split_folder(tmp_path)


def test_classes_that_are_spelled_alike_are_asked_about(tmp_path):
    alike = ["ANGER and anger", "ÄRGER and ärger"]
    assert spelled_alike(["ANGER", "anger", "fear", "ÄRGER", "ärger", "犬", "猫", "!", "%", "cat 1", "cat 2"]) == alike
    touch_tree(tmp_path / "own", {"tabby_cat": 9, "Tabby Cat": 9, "fear": 9})
    with pytest.warns(UserWarning, match=r"one by two names\? Tabby Cat and tabby_cat$"):
        assert len(split_folder(tmp_path / "own")["train"].classes) == 3
    touch_tree(tmp_path / "other", {"cat": 9, "cats": 9})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_folder(tmp_path / "other")


def test_namesakes_are_counted_and_stay_together(tmp_path):
    """A mask lies beside its picture; as a picture of its own it would be in another split."""
    touch_tree(tmp_path, {"ape": 300, "bee": 100})
    alone = {split: names(part) for split, part in split_folder(tmp_path).items()}
    for number in range(300):
        (tmp_path / f"ape/IMG_{number}.png").write_text(f"mask {number}")
    with pytest.warns(
        UserWarning, match=r"600 images have a namesake .* as ape.IMG_0\.jpg and ape.IMG_0\.png; if they are m"
    ):
        parts = split_folder(tmp_path)
    for split, part in parts.items():
        found = names(part)
        assert found >= alone[split]  # no image has moved
        assert found - alone[split] == {name.replace(".jpg", ".png") for name in alone[split] if name[:3] == "ape"}


def test_what_is_skipped_is_counted(tmp_path):
    touch_tree(tmp_path, {"ape": 3, "bee": 3})
    for name in ("ape/1.HEIC", "ape/2.heic", "bee/3.HEIC", "bee/4.gif", "bee/notes", "bee/.DS_Store"):
        (tmp_path / name).touch()
    with pytest.warns(
        UserWarning, match=r"skipped 3 \.heic, 1 \.gif, 1 without extension; images are \.jpg, .*; convert the others$"
    ):
        find_images(tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/5.heic").touch()
    with pytest.raises(ValueError, match=r"cat holds no image that can be read, only 1 \.heic\. Convert them"):
        find_images(tmp_path)


# What a run keeps of a folder, and what of it may change


@pytest.fixture
def trained(tmp_path):
    """A folder, and what a run keeps of it."""
    touch_tree(tmp_path / "own", {"ape": 40, "bee": 40})
    train = split_folder(tmp_path / "own")["train"]
    return tmp_path / "own", {"classes": list(train.classes), "split": train.split}


def test_the_same_folder_elsewhere_is_the_same(trained):
    own, kept = trained
    own.rename(own.parent / "moved")
    assert folder_changes(kept, split_folder(own.parent / "moved")["test"]) == ""
    assert folder_changes(json.loads(json.dumps(kept)), split_folder(own.parent / "moved")["val"]) == ""


def test_added_and_removed_images_are_counted_and_the_test_goes_on(trained):
    own, kept = trained
    touch_tree(own, {"ape": 10}, first=100)
    test = split_folder(own)["test"]
    assert check_split(kept, test, "test") == folder_changes(kept, test) == "10 images were added"
    shutil.rmtree(own / "ape")
    touch_tree(own, {"ape": 39})
    assert check_split(kept, split_folder(own)["test"], "test") == "1 image was removed"


def rename_images(own) -> None:
    for file in sorted((own / "ape").iterdir()):
        file.rename(file.with_name(f"ape-{file.name}"))


def remove_the_test(own) -> None:
    for image in names(split_folder(own)["test"]):  # all of them, so others fill in
        (own / image).unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda own: (own / "bee").rename(own / "wasp"), "class 'bee' was renamed or removed; class 'wasp' is new; 40"),
        (rename_images, r"40 images were removed. The \d new test images may be training images by another"),
        (remove_the_test, r"moved to another split\. Of the 2 test images, 2 were used in training"),
    ],
)
def test_a_folder_that_may_bring_training_images_into_the_test_is_refused(trained, change, message):
    own, kept = trained
    change(own)
    with pytest.raises(ValueError, match=f"folder own cannot test this run: .*{message}"):
        check_split(kept, split_folder(own)["test"], "test")


def test_a_run_without_a_record_of_its_split(trained):
    test = split_folder(trained[0])["test"]
    with pytest.raises(ValueError, match=r"it is not recorded which images it was trained on\. Train it again"):
        check_split({}, test, "test")
    assert folder_changes({}, load_dataset("digits", "test")) == ""  # those do not change


def test_bad_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        load_dataset(f"folder:{tmp_path / 'nowhere'}", root=tmp_path)
    write_tree(tmp_path / "odd/test", ("ape", "bee"), 4)
    with pytest.raises(ValueError, match="odd has a folder test, but none that is called train"):
        load_dataset(f"folder:{tmp_path / 'odd'}", root=tmp_path)


def test_sizes_that_differ_need_an_img_size(tmp_path):
    write_tree(tmp_path / "own", ("ape", "bee"), 20)
    for number in range(10):
        write_image(tmp_path / f"own/ape/large{number}.png", 50 + number, (40, 50))
    with pytest.raises(ValueError, match=r"has \d+×\d+ pixels, .* \d+×\d+ pixels: name the img_size"):
        load_dataset(f"folder:{tmp_path / 'own'}", root=tmp_path)
    dataset = load_dataset(f"folder:{tmp_path / 'own'}", img_size=(5, 7), root=tmp_path)
    assert dataset.image_shape == (3, 5, 7)


def test_a_set_too_large_for_memory_streams_the_same_images(tmp_path):
    write_tree(tmp_path / "own", ("ape", "bee", "cat"), 10)
    options = {"root": tmp_path, "img_size": (4, 5)}
    images = len(split_folder(tmp_path / "own")["train"])
    whole = load_dataset(f"folder:{tmp_path / 'own'}", **options, memory=images * 3 * 4 * 5)
    streamed = load_dataset(f"folder:{tmp_path / 'own'}", **options, memory=images * 3 * 4 * 5 - 1)
    assert isinstance(whole, Dataset)
    assert isinstance(streamed, ImageFiles)
    assert whole.image_shape == streamed.image_shape == (3, 4, 5)
    assert (len(whole), whole.classes, whole.variant) == (len(streamed), streamed.classes, streamed.variant)
    assert torch.equal(whole.labels, streamed.labels)
    numbers = torch.randperm(images).split(10)
    for ours, theirs in zip(whole.batches(numbers), streamed.batches(numbers), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A set, its cache, and how often it was decoded."""
    write_tree(tmp_path / "own", ("ape", "bee"), 3)
    counted = []

    def count(*args, **kwargs):
        counted.append(args)
        return decode_all(*args, **kwargs)

    monkeypatch.setattr(folders, "decode_all", count)

    def load(img_size=None):
        files, labels, classes = find_images(tmp_path / "own")
        return decode_cached(ImageFiles(files, labels, classes, "test", img_size), tmp_path / "cache/own.npz")

    return tmp_path, load, counted


def test_images_are_decoded_once(cached):
    root, load, counted = cached
    first = load()
    assert torch.equal(load(), first)
    assert len(counted) == 1
    assert [path.name for path in (root / "cache").iterdir()] == ["own.npz"]
    (root / "own").rename(root / "moved")  # a folder that was only moved need not be decoded again
    (root / "moved").rename(root / "own")
    load()
    assert len(counted) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda own: write_image(own / "bee/new.png", 99), [0, 1, 2, 20, 21, 22, 99]),
        (lambda own: (own / "bee/000.png").unlink(), [0, 1, 2, 21, 22]),
        (lambda own: os.utime(own / "bee/000.png", (1, 1)), [0, 1, 2, 20, 21, 22]),  # written later
        (lambda own: (own / "bee/000.png").rename(own / "ape/first.png"), [0, 1, 2, 20, 21, 22]),
    ],
)
def test_a_cache_older_than_the_folder_is_rebuilt(cached, change, expected):
    root, load, counted = cached
    load()
    change(root / "own")
    assert load()[:, 0, 0, 0].tolist() == expected
    assert len(counted) == 2


def method_of_nobody(data: bytes) -> bytes:
    """A zip file that is packed in a way which Python doesn't know."""
    return data.replace(b"PK\1\2" + data[data.find(b"PK\1\2") + 4 :][:6] + b"\0\0", b"PK\1\2\x14\3\x14\0\0\0\x63\0")


def with_entries(**entries):
    """A whole file with other entries in it."""

    def damage(data: bytes) -> bytes:
        with np.load(io.BytesIO(data)) as kept:
            inside = {**kept, **entries}
        file = io.BytesIO()
        np.savez(file, **{name: value for name, value in inside.items() if value is not None})
        return file.getvalue()

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:200] + b"\xff" * 50 + data[250:],
        method_of_nobody,
        lambda data: b"",
        lambda data: b"\x93NUMPY\1\0" + data[8:],
        with_entries(images=np.array([None, "object"], dtype=object)),
        with_entries(images=np.zeros((6, 3, 6, 8), np.float32)),
        with_entries(images=np.zeros((5, 3, 6, 8), np.uint8)),
        with_entries(images=None),
        with_entries(mark=None),
    ],
    ids=["half", "overwritten", "method", "empty", "header", "objects", "floats", "fewer", "no images", "no mark"],
)
def test_a_damaged_cache_is_rebuilt(cached, damage):
    root, load, counted = cached
    images = load()
    cache = root / "cache/own.npz"
    before = cache.read_bytes()
    cache.write_bytes(damage(before))
    assert cache.read_bytes() != before
    assert torch.equal(load(), images)
    load()
    assert len(counted) == 2


def test_a_cache_that_cannot_be_written_is_done_without(cached, monkeypatch):
    root, load, _ = cached

    def refuse(file, **_):
        file.write_bytes(b"half")
        raise OSError(28, "No space left")

    monkeypatch.setattr(np, "savez", refuse)
    with pytest.warns(UserWarning, match="own.npz cannot be written .*No space left.* every load decodes"):
        images = load()
    assert images.shape == (6, 3, 6, 8)
    assert list((root / "cache").iterdir()) == []


def test_a_truncated_image_is_named_and_nothing_is_cached(cached):
    root, load, _ = cached
    file = root / "own/bee/001.png"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"bee/001.png is not a whole image, "):
        load()
    assert not (root / "cache").exists()


def test_a_folder_that_did_not_change_is_not_looked_through_again(tmp_path, monkeypatch):
    """Each training begins with it; only what was never decoded is looked at, and only what changed."""
    write_tree(tmp_path / "own", ("ape", "bee"), 30)
    looked = {"headers": [], "whole": []}

    def see(kind, function):
        monkeypatch.setattr(folders, function, lambda files: looked[kind].append(len(files)) or [])

    see("headers", "check_headers")
    see("whole", "find_faults")

    def load(img_size=6, **options):
        """As a training does; returns how many files it looked at."""
        for each in looked.values():
            each.clear()
        parts = [
            load_dataset(f"folder:{tmp_path / 'own'}", split, root=tmp_path, img_size=img_size, **options)
            for split in ("train", "val", "test")
        ]
        return [len(part) for part in parts], list(looked["headers"]), list(looked["whole"])

    (train, val, test), headers, whole = load()
    assert (headers, whole) == ([60, val + test, test], [val + test])
    assert load() == load(img_size=(3, 4)) == ([train, val, test], [0, 0, 0], [0])
    assert load(memory=0) == ([train, val, test], [0, 0, 0], [])
    written = split_folder(tmp_path / "own")["test"].files[0]
    os.utime(written, (1, 1))
    assert load() == ([train, val, test], [test, test, test], [test])
    os.replace(written, tmp_path / "kept")
    os.symlink(tmp_path / "nowhere", written)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=f"^{written} is not a file that can be opened$"):
        load_dataset(f"folder:{tmp_path / 'own'}", "train", root=tmp_path, img_size=6)


@pytest.mark.parametrize("memory", [2**30, 1])
def test_all_that_is_damaged_is_named_before_a_training(tmp_path, memory):
    """A damaged test image would be found after it."""
    write_tree(tmp_path / "own", ("ape", "bee"), 30)
    parts = split_folder(tmp_path / "own")
    damaged = sorted(parts[name].files[0] for name in ("test", "val"))
    for file in damaged:
        with open(file, "r+b") as stream:
            stream.truncate(os.path.getsize(file) - 30)
    options = {"root": tmp_path, "img_size": 6, "memory": memory}
    with pytest.raises(ValueError, match=f"^2 files .*: {damaged[0]} is not a whole .*; {damaged[1]} is not a whole"):
        load_dataset(f"folder:{tmp_path / 'own'}", "train", **options)
    assert len(load_dataset(f"folder:{tmp_path / 'own'}", "train", **{**options, "memory": 0})) == len(parts["train"])
    with open(parts["train"].files[0], "wb"):
        pass  # now its header is bad, too: then all are looked into
    with pytest.raises(ValueError, match=r"^3 files can't be read as images: ") as error:
        load_dataset(f"folder:{tmp_path / 'own'}", "train", **{**options, "memory": 0})
    assert all(file in str(error.value) for file in (*damaged, parts["train"].files[0]))
