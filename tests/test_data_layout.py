"""Folders as they come: splits and classes by any name, folders in folders, and no nonsense read in silence."""

import os
import warnings
import zipfile
from collections import Counter

import pytest
from fake_data import write_tree

from vit_tutorial.data import load_dataset
from vit_tutorial.data.folders import split_folder
from vit_tutorial.data.layout import find_images, split_names


def fill(folder, count: int = 4) -> None:
    """Files by images' names, each with its own content."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.jpg").write_text(f"{folder} {number}")


def found(path) -> dict[str, dict[str, int]]:
    """How many images of which class are in which split."""
    parts = split_folder(path)
    return {name: dict(Counter(part.classes[label] for label in part.labels.tolist())) for name, part in parts.items()}


@pytest.mark.parametrize(
    "names",
    [
        ("train", "validation", "test"),
        ("Training", "Validation", "Testing"),
        ("TRAIN", "Val", "Test"),
        ("training_set", "valid_set", "test_set"),
        ("trainset", "valset", "testset"),
        ("Train Images", "ValidImages", "TestData"),
        ("seg_train", "seg_val", "seg_test"),
        ("pets-train", "pets-valid", "pets-test"),
    ],
    ids=str,
)
def test_splits_by_any_name(tmp_path, names):
    for name, count in zip(names, (6, 3, 2), strict=True):
        for each in ("ape", "bee"):
            fill(tmp_path / name / each, count)
    expected = {"train": 6, "val": 3, "test": 2}
    assert found(tmp_path) == {split: {"ape": count, "bee": count} for split, count in expected.items()}


def test_names_that_only_contain_a_split_s_name_are_no_splits():
    assert split_names(["train station", "blood test", "contest", "trainer", "detrain", "test_train", "ape"]) == {}
    assert split_names(["train station", "bus station test"]) == {}
    assert split_names(["Train", "my test", "spare"]) == {"Train": "train"}


def test_a_split_in_a_folder_of_its_own_name(tmp_path):
    for split in ("seg_train", "seg_test"):
        for each in ("ape", "bee"):
            fill(tmp_path / split / split / each, 5)
    with pytest.warns(UserWarning, match="seg_train holds nothing but the folder seg_train, so that one is taken"):
        assert found(tmp_path)["test"] == {"ape": 5, "bee": 5}


def test_splits_in_folders_of_the_same_name_may_hold_classes_only(tmp_path):
    for split in ("train", "test"):
        for each in ("ape", "bee"):
            fill(tmp_path / split / split / each, 8)
    with pytest.warns(UserWarning, match="holds nothing but the folder t"):
        assert found(tmp_path)["test"] == {"ape": 8, "bee": 8}


def test_a_folder_in_a_folder_as_a_zip_leaves_it(tmp_path):
    for each in ("ape", "bee"):
        fill(tmp_path / "archive/set" / each, 9)
    fill(tmp_path / "__MACOSX/archive")
    with pytest.warns(UserWarning, match="holds nothing but the folder archive, so that one is taken"):
        parts = found(tmp_path)
    assert sum(sum(part.values()) for part in parts.values()) == 18
    assert parts["train"].keys() == {"ape", "bee"}


@pytest.mark.parametrize("name", ["train", "Test", "validation"])
def test_a_class_by_a_split_s_name(tmp_path, name):
    for each in (name, "bus"):
        fill(tmp_path / each, 20)
    assert found(tmp_path)["train"].keys() == {name, "bus"}
    for split in ("train", "test"):
        for each in (name, "bus"):
            fill(tmp_path / "both" / split / each, 20)
    assert found(tmp_path / "both")["test"] == {name: 20, "bus": 20}


def test_a_split_or_a_class_is_asked_for_where_it_can_t_be_told(tmp_path):
    fill(tmp_path / "train/monday")
    fill(tmp_path / "train/tuesday")
    fill(tmp_path / "bus")
    message = r"is train a split or a class\? It holds folders \(monday, tuesday\), and bus beside it images"
    with pytest.raises(ValueError, match=message):
        split_folder(tmp_path)


def test_splits_without_class_folders_are_not_taken_for_two_classes(tmp_path):
    for split in ("train", "test"):
        fill(tmp_path / split, 20)
    with pytest.raises(ValueError, match=r"has images in test, train, but no folder for each class there, .* --labels"):
        split_folder(tmp_path)


def test_a_test_without_class_folders_is_left_out_and_named(tmp_path):
    for each in ("ape", "bee"):
        fill(tmp_path / "train" / each, 20)
    fill(tmp_path / "test", 5)
    message = "only the folders train are used, not test; there is no folder for each class in test$"
    with pytest.warns(UserWarning, match=message):
        parts = found(tmp_path)
    assert sum(sum(part.values()) for part in parts.values()) == 40


def test_images_of_folders_within_a_class_are_used_and_named(tmp_path):
    fill(tmp_path / "ape", 3)
    fill(tmp_path / "bee", 3)
    fill(tmp_path / "bee/second day/morning", 5)
    fill(tmp_path / "bee/.thumbnails", 5)
    with pytest.warns(UserWarning, match="are that class's: 5 in folder bee.second day.morning$"):
        files, labels, _ = find_images(tmp_path)
    assert labels.tolist() == [0] * 3 + [1] * 8
    assert len(set(files)) == 11 and not any("thumbnails" in file for file in files)


def test_images_beside_the_classes_are_counted(tmp_path):
    for each in ("ape", "bee"):
        fill(tmp_path / each, 3)
    fill(tmp_path, 4)
    with pytest.warns(UserWarning, match="4 images beside the folders of the classes are not used$"):
        assert len(find_images(tmp_path)[0]) == 6


def test_a_link_in_a_circle_ends(tmp_path):
    fill(tmp_path / "ape", 3)
    fill(tmp_path / "elsewhere/bee", 3)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/ape").symlink_to(tmp_path / "ape")
    (tmp_path / "set/bee").symlink_to(tmp_path / "elsewhere/bee")
    (tmp_path / "ape/again").symlink_to(tmp_path / "ape")
    assert len(find_images(tmp_path / "set")[0]) == 6


NAMES = ["a b", "naïve ☃", "-r", "per%cent", "{brace}", "'quote'", "[x]", "a.jpg", "new\nline", "CON", "日本"]


def test_classes_and_files_of_any_name(tmp_path):
    for name in NAMES:
        fill(tmp_path / name, 3)
        (tmp_path / name / f"{name}.JPG").write_text(name)
    (tmp_path / os.fsdecode(b"\xe9t\xe9")).mkdir()  # latin-1
    (tmp_path / os.fsdecode(b"\xe9t\xe9/1.png")).touch()
    files, labels, classes = find_images(tmp_path)
    assert len(files) == 4 * len(NAMES) + 1 and set(NAMES) < set(classes)
    assert all(classes[label] in file for file, label in zip(files, labels.tolist(), strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sum(len(part) for part in split_folder(tmp_path).values()) == len(files)


def test_an_archive_is_to_be_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as pack:
        pack.writestr("ape/1.jpg", "x")
    with pytest.raises(ValueError, match=r"set\.zip is a zip file\. Unpack it, and name the folder that comes out$"):
        load_dataset(f"folder:{tmp_path / 'set.zip'}")
    with pytest.raises(ValueError, match=r"has no folder for each class .*\. Unpack set\.zip first$"):
        load_dataset(f"folder:{tmp_path}")


def test_images_without_folders(tmp_path):
    fill(tmp_path, 7)
    message = (
        r"no folder for each class .*\. Sort its 7 images into such folders, or name the table that has their classes"
    )
    with pytest.raises(ValueError, match=rf"{message} with --labels$"):
        split_folder(tmp_path)
    (tmp_path / "all.csv").touch()
    with pytest.raises(ValueError, match=rf"{message}: --labels \S+all\.csv$"):
        split_folder(tmp_path)


def test_a_single_class_is_refused_and_a_table_beside_it_named(tmp_path):
    """It would be 100 % right for ever."""
    write_tree(tmp_path / "set", ("images",), 12)
    with pytest.raises(
        ValueError,
        match=r"a single class, 'images', .* two .*: make a folder for each, or .* them with --labels$",
    ):
        load_dataset(f"folder:{tmp_path / 'set'}", root=tmp_path)
    (tmp_path / "set/Labels.CSV").touch()
    with pytest.raises(ValueError, match=r"for each, or name the table that has them: --labels \S+Labels\.CSV$"):
        load_dataset(f"folder:{tmp_path / 'set'}", root=tmp_path)


def test_no_advice_destroys(tmp_path):
    (tmp_path / "ape").mkdir()
    for content, do in (([], "Put images of the class"), (["a.txt", "b"], "Put images"), (["a.heic"], "Convert them")):
        for name in content:
            (tmp_path / "ape" / name).touch()
        with pytest.raises(ValueError, match=f"holds no image.*{do}") as error:
            find_images(tmp_path)
        assert "move" in str(error.value) and not {"remove", "delete"} & set(str(error.value).lower().split())


def test_a_folder_that_can_t_be_opened_is_left_out_and_told(tmp_path, monkeypatch):
    write_tree(tmp_path, ("ape", "bee"), 3)
    write_tree(tmp_path / "bee", ("locked",), 2)
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.warns(UserWarning, match=r"bee.locked cannot be opened, so it is left out: Permission denied$"):
        assert len(find_images(tmp_path)[0]) == 6
