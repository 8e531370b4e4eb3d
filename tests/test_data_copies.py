"""Copies of a picture never stand on both sides of a split; where they were put there, it is counted."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_data import write_tree
from PIL import Image

from vit_tutorial.data import load_dataset
from vit_tutorial.data.copies import contents, look_alikes
from vit_tutorial.data.folders import check_split, split_folder
from vit_tutorial.data.images import decode_all


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def pictures(part) -> set[str]:
    return {Path(file).read_text() for file in part.files}


def test_equal_bytes_and_nothing_else_have_an_equal_key(tmp_path):
    for name, text in {"a": "one", "b": "two", "c": "one", "d": "three"}.items():
        write(tmp_path / name, text)
    a, b, c, d = contents([str(tmp_path / name) for name in "abcd"])
    assert a == c and len({a, b, d}) == 3
    write(tmp_path / "c", "six")  # of the same length
    a, _, c, _ = contents([str(tmp_path / name) for name in "abcd"])
    assert a != c


def test_what_can_t_be_read_is_equal_to_nothing(tmp_path):
    """They are named later, by the look at their headers; a pipe would wait for a writer."""
    for name in "ab":
        os.mkfifo(tmp_path / name)
    for name in "cd":
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
    assert len(set(contents([str(tmp_path / name) for name in "abcd"]))) == 4


@pytest.mark.parametrize("seed", range(3))
def test_copies_stay_together_whatever_their_names(tmp_path, seed):
    for label in ("ape", "bee"):
        for number in range(60):
            for copy in range(1 + number % 3):
                write(tmp_path / label / f"{seed} {number}-{copy}.jpg", f"{label} {number}")
    with pytest.warns(
        UserWarning, match=r"120 of 240 images are copies of others, byte for byte; .* aren't found by this$"
    ):
        parts = split_folder(tmp_path)
    assert sum(len(part) for part in parts.values()) == 240
    assert all(len(part) for part in parts.values())
    found = [pictures(part) for part in parts.values()]
    assert sum(map(len, found)) == len(set.union(*found)) == 120


def test_a_class_of_copies_of_one_picture_has_one_picture(tmp_path):
    """Three files would be enough for three splits; one picture is not."""
    for number in range(9):
        write(tmp_path / "ape" / f"{number}.jpg", "always the same")
        write(tmp_path / "bee" / f"{number}.jpg", f"bee {number}")
    with pytest.warns(UserWarning, match=r"too few images for test, val: ape \(9\)"):
        parts = split_folder(tmp_path)
    assert [(part.labels == 0).sum().item() for part in parts.values()].count(9) == 1


def test_a_new_copy_never_brings_a_training_image_into_the_test(tmp_path):
    for label in ("ape", "bee"):
        for number in range(30):
            write(tmp_path / label / f"{number}.jpg", f"{label} {number}")
    train = split_folder(tmp_path)["train"]
    kept = {"classes": list(train.classes), "split": train.split}
    trained = pictures(train)
    for number in range(30):
        shutil.copy(tmp_path / f"ape/{number}.jpg", tmp_path / f"ape/copy of {number}.jpg")
    with pytest.warns(UserWarning, match="30 of 90 images are copies"):
        test = split_folder(tmp_path)["test"]
    assert not pictures(test) & trained
    assert "30 images were added" in check_split(kept, test, "test")


def test_a_picture_in_two_classes_is_named_and_never_tested(tmp_path):
    for number in range(40):
        write(tmp_path / "ape" / f"{number}.jpg", f"ape {number}")
        write(tmp_path / "bee" / f"{number}.jpg", f"bee {number}" if number > 9 else f"ape {number}")
    message = r"the same picture is in two classes: ape.\d.jpg and bee.\d.jpg, and 9 more; they are only trained on"
    with pytest.warns(UserWarning, match=message):
        parts = split_folder(tmp_path)
    both = {f"ape {number}" for number in range(10)}
    assert both <= pictures(parts["train"])
    assert not both & (pictures(parts["test"]) | pictures(parts["val"]))


def test_where_all_pictures_are_in_two_classes_they_are_tested_on_too(tmp_path):
    """Nothing can be learned there, and a copy in another class is no help in a test."""
    for label in ("ape", "bee"):
        for number in range(9):
            write(tmp_path / label / f"{number}.jpg", f"{number}")
    message = r"ape.0\.jpg and bee.0\.jpg, and 8 more; so few others are there that they are tested on, too$"
    with pytest.warns(UserWarning, match=message):
        parts = split_folder(tmp_path)
    assert all(set(part.labels.tolist()) == {0, 1} for part in parts.values())
    found = [pictures(part) for part in parts.values()]
    assert sum(map(len, found)) == len(set.union(*found)) == 9  # both copies are in the same split


def test_where_the_splits_are_given_their_copies_are_counted_and_marked(tmp_path):
    own = tmp_path / "own"
    write_tree(own / "train", ("ape", "bee"), 10)
    write_tree(own / "test", ("ape", "bee"), 12)  # the first ten of each are those of train
    for memory in (2**30, 0):
        with pytest.warns(UserWarning, match=r"own: 20 of 24 test images are training images as well, byte for byte"):
            test = load_dataset(f"folder:{own}", "test", root=tmp_path, memory=memory)
        assert test.trained_on.tolist() == ([True] * 10 + [False] * 2) * 2
        assert test[torch.tensor([11, 3])].trained_on.tolist() == [False, True]
        assert load_dataset(f"folder:{own}", "train", root=tmp_path, memory=memory).trained_on is None


def pictures_of(number: int, size: tuple[int, int] = (96, 80)) -> Image.Image:
    """Smooth, as photographs are, and different for each number."""
    small = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


CHANGES = {
    "JPEG": lambda image, file: image.save(file.with_suffix(".jpg"), quality=70),
    "smaller": lambda image, file: image.resize((60, 50)).save(file),
    "mirrored": lambda image, file: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(file),
    "grey": lambda image, file: image.convert("L").save(file),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_picture_in_another_form_looks_alike_and_others_do_not(tmp_path, change):
    for number in range(40):
        pictures_of(number).save(tmp_path / f"{number}.png")
    (tmp_path / "test").mkdir()
    for number in range(30, 50):  # the first ten of these are in train
        CHANGES[change](pictures_of(number), tmp_path / f"test/{number}.png")
    train = decode_all(sorted(map(str, tmp_path.glob("*.png"))), (64, 64))
    test = decode_all(sorted(map(str, (tmp_path / "test").iterdir())), (64, 64))
    assert look_alikes(train, test).tolist() == [True] * 10 + [False] * 10


def test_nothing_on_two_images_is_nothing_in_common():
    flat = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    assert look_alikes(flat, flat).tolist() == [False, False]


def test_hand_written_digits_are_different_pictures():
    """Small, grey, and of ten kinds: what looks alike by chance would be found here."""
    train, test = load_dataset("digits", "train"), load_dataset("digits", "test")
    assert not look_alikes(train.images, test.images).any()
    assert look_alikes(train.images, train.images[:50]).all()
