"""Image folders: what is found, how it is split, and a cache that never lies."""

import os

import numpy as np
import pytest
import torch
from fake_data import write_image, write_tree

from vit_tutorial.data import Dataset, folders, load_dataset
from vit_tutorial.data.folders import decode_cached, find_images
from vit_tutorial.data.images import ImageFiles, decode_all


def value(dataset) -> list[int]:
    """The number that write_tree wrote into each image."""
    return dataset.images[:, 0, 0, 0].tolist()


def test_images_are_found_in_order_and_other_files_passed_over(tmp_path):
    write_tree(tmp_path, ("bee", "ape"), 2)
    (tmp_path / "ape/notes.txt").write_text("no image")
    (tmp_path / "ape/.000.png").write_text("what some systems leave behind")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "README").write_text("")
    files, labels, classes = find_images(tmp_path)
    assert classes == ("ape", "bee")
    assert [os.path.relpath(file, tmp_path) for file in files] == [
        "ape/000.png",
        "ape/001.png",
        "bee/000.png",
        "bee/001.png",
    ]
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
    with pytest.raises(ValueError, match=r"empty holds no image\. Remove the folder, or put images into it"):
        find_images(tmp_path)


def test_a_tree_without_splits_is_cut_80_10_10(tmp_path):
    write_tree(tmp_path / "own", ("ape", "bee", "cat"), 10)
    parts = {
        split: load_dataset(f"folder:{tmp_path / 'own'}", split, root=tmp_path) for split in ("train", "val", "test")
    }
    assert {split: len(part) for split, part in parts.items()} == {"train": 24, "val": 3, "test": 3}
    everything = sorted(number for part in parts.values() for number in value(part))
    assert everything == [20 * label + number for label in range(3) for number in range(10)]
    for part in parts.values():
        assert part.classes == ("ape", "bee", "cat")
        assert part.labels.tolist() == [number // 20 for number in value(part)]
        assert part.variant == "folder own"
        again = load_dataset(f"folder:{tmp_path / 'own'}", "val", root=tmp_path)
        assert value(again) == value(parts["val"])


def test_splits_that_are_there_are_used(tmp_path):
    write_tree(tmp_path / "train", ("ape", "bee", "cat"), 10)
    write_tree(tmp_path / "test", ("ape", "cat"), 2)
    parts = {
        split: load_dataset(f"folder:{tmp_path}", split, root=tmp_path / "root") for split in ("train", "val", "test")
    }
    assert {split: len(part) for split, part in parts.items()} == {"train": 27, "val": 3, "test": 4}
    assert not set(value(parts["train"])) & set(value(parts["val"]))
    write_tree(tmp_path / "val", ("ape", "bee", "cat"), 1)
    assert len(load_dataset(f"folder:{tmp_path}", "train", root=tmp_path / "root")) == 30
    assert value(load_dataset(f"folder:{tmp_path}", "val", root=tmp_path / "root")) == [0, 20, 40]


def test_bad_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is no folder"):
        load_dataset(f"folder:{tmp_path / 'nowhere'}", root=tmp_path)
    write_tree(tmp_path / "few", ("ape", "bee"), 4)
    with pytest.raises(ValueError, match="few has 8 images to train on; val needs a tenth: 10 at least"):
        load_dataset(f"folder:{tmp_path / 'few'}", root=tmp_path)
    write_tree(tmp_path / "odd/test", ("ape", "bee"), 4)
    with pytest.raises(ValueError, match="odd has a folder test, but none that is called train"):
        load_dataset(f"folder:{tmp_path / 'odd'}", root=tmp_path)


def test_sizes_that_differ_need_an_img_size(tmp_path):
    write_tree(tmp_path / "own", ("ape",), 20)
    for number in range(10):
        write_image(tmp_path / f"own/ape/large{number}.png", 30, (40, 50))
    with pytest.raises(ValueError, match=r"has \d+×\d+ pixels, .* \d+×\d+ pixels: name the img_size"):
        load_dataset(f"folder:{tmp_path / 'own'}", root=tmp_path)
    dataset = load_dataset(f"folder:{tmp_path / 'own'}", img_size=(5, 7), root=tmp_path)
    assert dataset.image_shape == (3, 5, 7)


def test_a_set_too_large_for_memory_streams_the_same_images(tmp_path):
    write_tree(tmp_path / "own", ("ape", "bee", "cat"), 10)
    options = {"root": tmp_path, "img_size": (4, 5)}
    whole = load_dataset(f"folder:{tmp_path / 'own'}", **options, memory=24 * 3 * 4 * 5)
    streamed = load_dataset(f"folder:{tmp_path / 'own'}", **options, memory=24 * 3 * 4 * 5 - 1)
    assert isinstance(whole, Dataset)
    assert isinstance(streamed, ImageFiles)
    assert whole.image_shape == streamed.image_shape == (3, 4, 5)
    assert (len(whole), whole.classes, whole.variant) == (len(streamed), streamed.classes, streamed.variant)
    assert torch.equal(whole.labels, streamed.labels)
    numbers = torch.randperm(24).split(10)
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


@pytest.mark.parametrize("change", ["added", "removed", "written", "renamed"])
def test_a_cache_older_than_the_folder_is_rebuilt(cached, change):
    root, load, counted = cached
    load()
    file = root / "own/bee/000.png"
    if change == "added":
        write_image(root / "own/bee/new.png", 99)
    elif change == "removed":
        file.unlink()
    elif change == "written":
        write_image(file, 98)
        os.utime(file, (1, 1))
    else:
        file.rename(root / "own/ape/first.png")
    images = load()
    assert len(counted) == 2
    assert (
        images[:, 0, 0, 0].tolist()
        == {
            "added": [0, 1, 2, 20, 21, 22, 99],
            "removed": [0, 1, 2, 21, 22],
            "written": [0, 1, 2, 98, 21, 22],
            "renamed": [0, 1, 2, 20, 21, 22],
        }[change]
    )


def test_a_cache_of_another_size_is_rebuilt(cached):
    _, load, counted = cached
    assert load((4, 4)).shape[2:] == (4, 4)
    assert load((2, 3)).shape[2:] == (2, 3)
    assert len(counted) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"no archive",
        lambda data: data[:200] + b"\xff" * 50 + data[250:],
    ],
)
def test_a_damaged_cache_is_rebuilt(cached, damage):
    root, load, counted = cached
    images = load()
    cache = root / "cache/own.npz"
    cache.write_bytes(damage(cache.read_bytes()))
    assert torch.equal(load(), images)
    assert len(counted) == 2
    load()
    assert len(counted) == 2


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(28, "No space left")])
def test_a_cache_that_cannot_be_written_is_done_without(cached, monkeypatch, error):
    root, load, _ = cached

    def refuse(file, **_):
        file.write_bytes(b"half")
        raise error

    monkeypatch.setattr(np, "savez", refuse)
    with pytest.warns(UserWarning, match=f"own.npz cannot be written .*{error.strerror}.* every load decodes"):
        images = load()
    assert images.shape == (6, 3, 6, 8)
    assert list((root / "cache").iterdir()) == []


def test_a_truncated_image_is_named_and_nothing_is_cached(cached):
    root, load, _ = cached
    file = root / "own/bee/001.png"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"bee/001.png is no whole image: .*\. Replace or delete it"):
        load()
    assert not (root / "cache").exists()
