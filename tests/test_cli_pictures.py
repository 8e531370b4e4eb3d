"""The command on pictures of one's own: nothing silently wrong, and nothing hidden in one number."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_data import write_image, write_tree
from PIL import Image

from vit_tutorial.cli import main
from vit_tutorial.data.copies import look_alikes
from vit_tutorial.data.folders import split_folder
from vit_tutorial.pretrained.few_images import expected
from vit_tutorial.recipes import load_split
from vit_tutorial.runs import load_recorded
from vit_tutorial.training.loop import evaluate

TINY = ["--epochs=1", "--quiet", "--device=cpu", "--model.depth=1", "--model.embed-dim=12"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(tmp_path / "root"))
    return tmp_path


def test_a_class_that_is_never_answered_is_named(own_folder, capsys):
    """Nothing to learn, and one class is most of the set: the accuracy alone would look well."""
    noise = np.random.default_rng(0)
    for name, count in (("healthy", 120), ("sick", 12)):
        (own_folder / "set" / name).mkdir(parents=True)
        for number in range(count):
            pixels = noise.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(own_folder / f"set/{name}/{number}.png")
    main(["train", "photos", "--dataset=folder:set", *TINY, "--epochs=4"])
    main(["evaluate", "photos", "--device", "cpu"])
    confusion = json.loads((own_folder / "runs/photos/metrics.json").read_text())["test"]["confusion"]
    assert not confusion[0][1] and not confusion[1][1]
    share = sum(confusion[0]) / sum(map(sum, confusion))
    said = capsys.readouterr().out
    assert said.count(f"test accuracy {share:.2%}") == 2
    beside = f"balanced accuracy 50.00%, the mean over the classes; always saying 'healthy', .* would give {share:.2%}"
    assert len(re.findall(beside, said)) == 2
    assert said.count(f"never answered: 'sick' ({sum(confusion[1])} test images)") == 2


def test_the_accuracy_without_the_test_images_that_were_trained_on(own_folder, capsys):
    write_tree(own_folder / "set/train", ("cat", "dog"), 20)
    write_tree(own_folder / "set/test", ("cat", "dog"), 5)  # all of them copies
    for number in range(4):
        write_image(own_folder / f"set/test/dog/new{number}.png", 200 + number)
    with pytest.warns(UserWarning, match="10 of 14 test images are training images as well, byte for byte"):
        main(["train", "photos", "--dataset=folder:set", *TINY])
    test = json.loads((own_folder / "runs/photos/metrics.json").read_text())["test"]
    main(["evaluate", "photos", "--device", "cpu"])
    said = re.findall(
        r"10 of 14 test images are training images as well: ([\d.]+)% on the 4 others", capsys.readouterr().out
    )
    assert test["trained_on"] == 10 and said == [f"{100 * test['accuracy_without']:.2f}"] * 2


def test_the_same_picture_in_another_format_is_asked_about(own_folder, capsys):
    for number in range(40):
        small = np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((60, 60), Image.Resampling.BICUBIC)
        for split, suffix in (("train", "png"), ("test", "jpg")):
            folder = own_folder / f"set/{split}/{'ab'[number % 2]}"
            folder.mkdir(parents=True, exist_ok=True)
            if (split == "train" and number < 36) or (split == "test" and number >= 33):
                image.save(folder / f"{number}.{suffix}")
    main(["train", "photos", "--dataset=folder:set", *TINY])
    test = json.loads((own_folder / "runs/photos/metrics.json").read_text())["test"]
    trained = {int(Path(file).stem) for file in split_folder(own_folder / "set")["train"].files}
    assert test["look_alikes"] == len(trained & {33, 34, 35}) > 1  # the others are for validation
    model, recipe = load_recorded(Path("runs/photos"))
    images, set_ = load_split(recipe, "train").images, load_split(recipe, "test")
    unlike = set_[~look_alikes(images, set_.images)]
    assert test["accuracy_unlike"] == pytest.approx(evaluate(model, unlike, recipe)["accuracy"])
    main(["evaluate", "photos", "--device=cpu"])
    said = f"{test['look_alikes']} test images look like a training image, .*; {test['accuracy_unlike']:.2%} on the"
    assert len(re.findall(rf"{said} {7 - test['look_alikes']} others", capsys.readouterr().out)) == 2


def test_classes_from_a_table(own_folder, capsys):
    write_tree(own_folder / "set", ("images",), 60)
    rows = [f"{number:03},{number % 2},{('low', 'high')[number > 19]}" for number in range(60)]
    (own_folder / "set/labels.csv").write_text("\n".join(["id,odd,level", *rows]))
    data = ["folder:set", "--labels=set/labels.csv"]
    with pytest.raises(SystemExit, match=r"which column has the classes\? Name both with --label-columns"):
        main(["data", *data])
    columns = "--label-columns=id,level"
    with pytest.warns(UserWarning, match="60 images of 2 classes"):
        main(["data", *data, columns])
    assert "folder:set: 2 classes: high 40, low 20\n" in capsys.readouterr().out
    main(["train", "photos", "--dataset", *data, columns, *TINY])
    metrics = json.loads((own_folder / "runs/photos/metrics.json").read_text())
    assert metrics["classes"] == ["high", "low"]
    assert metrics["data"] == "folder set, classes from labels.csv (id, level)"
    assert (metrics["recipe"]["labels"], metrics["recipe"]["label_columns"]) == ("set/labels.csv", "id,level")
    main(["evaluate", "photos", "--device", "cpu"])
    accuracy = f"test accuracy {metrics['test']['accuracy']:.2%}"
    assert capsys.readouterr().out.count(accuracy) == 2


@pytest.mark.slow
def test_a_warning_is_one_line_without_code(capsys, own_folder):
    write_tree(own_folder / "mine", ("cat", "dog"), 10)
    (own_folder / "mine/dog/notes.txt").touch()
    done = subprocess.run(
        [sys.executable, "-m", "vit_tutorial", "data", "folder:mine"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"vit-tutorial: mine: skipped 1 \.txt; images are .*\n", done.stderr)
    train = [sys.executable, "-m", "vit_tutorial", "train", "photos", "--dataset=folder:mine", *TINY]
    done = subprocess.run(train, capture_output=True, text=True, check=True)
    assert done.stderr.count("skipped 1 .txt") == 1  # though each split is asked for by itself


def test_files_that_are_no_images_are_all_named_before_anything_trains(own_folder, capsys):
    """And the data command goes on with the next folder."""
    write_tree(own_folder / "set", ("cat", "dog"), 30)
    (own_folder / "set/cat/003.png").write_text("<!doctype html>")
    (own_folder / "set/dog/007.png").write_bytes(b"")
    (own_folder / "set/dog/020.png").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    message = (
        r"3 files can't be read as images: \S+003.png is a web page .*007.png is empty.*020.png is a photograph in HEIC"
    )
    write_tree(own_folder / "other", ("ape", "bee"), 10)
    for command in (
        ["train", "photos", "--dataset=folder:set", "--quiet", "--device=cpu"],
        ["data", "folder:set", "folder:nope", "folder:set/cat", "folder:other"],
    ):
        with pytest.raises(SystemExit) as error:
            main(command)
        assert re.search(message, error.value.code)
    assert not (own_folder / "runs").exists()
    assert "\nvit-tutorial: set/cat has no folder for each class" in error.value.code
    assert error.value.code.endswith("\nvit-tutorial: missing, and cannot be fetched: folder:nope")
    said = capsys.readouterr().out
    assert "folder:set: 2 classes: cat 30, dog 30\n" in said and "folder:other: 2 classes: ape 10, bee 10\n" in said


def test_names_with_anything_in_them(own_folder, capsys):
    names = ["naïve ☃", "new\nline", "%s {x}", os.fsdecode(b"\xe9t\xe9")]  # the last one is no UTF-8
    for label, name in enumerate(names):
        for number in range(9):
            write_image(own_folder / f"a set #1/{name}/{number}.png", 20 * label + number)
    main(["data", "folder:a set #1"])
    main(["train", "photos", "--dataset=folder:a set #1", *TINY])
    main(["evaluate", "photos", "--device=cpu"])
    main(["predict", "photos", f"a set #1/{names[-1]}/1.png", "--device=cpu"])
    assert json.loads((own_folder / "runs/photos/metrics.json").read_text())["classes"] == sorted(names)
    assert "4 classes: %s {x} 9, naïve ☃ 9, " in capsys.readouterr().out


def test_a_folder_is_told_what_so_many_images_were_worth(own_folder, capsys):
    write_tree(own_folder / "mine", ("cat", "dog"), 100)
    loud = [option for option in TINY if option != "--quiet"]
    main(["train", "photos", "--dataset=folder:mine", *loud])
    out = capsys.readouterr().out
    wanted = expected(80)
    assert len(wanted) > 2 and wanted[1].startswith("  100 images a class, ")
    assert "\n".join(wanted) + "\n" in out
    main(["train", "digits", *loud])
    assert wanted[0] not in capsys.readouterr().out


@pytest.mark.parametrize(("most", "refused"), [(2000, False), (1199, True)])
def test_a_photograph_of_many_pixels_is_no_attack(own_folder, monkeypatch, recwarn, most, refused):
    """PIL warns of one above its limit, and refuses it from twice that on."""
    image = np.full((40, 60), 255, np.uint8)
    image[10:30, 28:32] = 0
    Image.fromarray(image).save(own_folder / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    if refused:
        with pytest.raises(SystemExit, match=r"a\.png has 2,400 pixels, more than the 2,398 that are read"):
            main(["predict", "digits", "a.png", "--device=cpu"])
    else:
        main(["predict", "digits", "a.png", "--device=cpu"])
    assert not [str(warning.message) for warning in recwarn]


@pytest.mark.parametrize("run", ["digits", "photos"])
def test_one_of_many_images_stops_no_other(own_folder, capsys, run):
    if run == "photos":
        write_tree(own_folder / "set", ("cat", "dog"), 10)
        main(["train", "photos", "--dataset=folder:set", *TINY])
    ink = np.zeros((8, 8), np.uint8)
    ink[1:7, 3:5] = 255
    for name in ("a.png", "c.png"):
        Image.fromarray(ink).save(own_folder / name)
    (own_folder / "b.png").write_text("<html>")
    capsys.readouterr()
    main(["predict", run, "a.png", "c.png", "--device=cpu"])
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit) as error:
        main(["predict", run, "a.png", "b.png", "nope.png", "c.png", "--maps=maps.png", "--device=cpu"])
    assert capsys.readouterr().out == alone + "maps: maps.png\n" and alone.count(".png: ") == 2
    message = r"vit-tutorial: 2 files can't be read as images: b\.png is a web page .*; there is no file nope\.png"
    assert re.fullmatch(message, error.value.code)
    with pytest.raises(SystemExit, match=r"^vit-tutorial: b\.png is a web page"):
        main(["predict", run, "b.png", "--device=cpu"])
