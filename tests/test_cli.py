"""The command line: overrides reach the recipe, and errors are one line."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_data import write_image, write_mnist, write_tree
from notebook_rules import ROOT
from PIL import Image

from vit_tutorial import cli, runs
from vit_tutorial.borders import reason
from vit_tutorial.classroom.sandbox import why_unconfined
from vit_tutorial.cli import main
from vit_tutorial.data import load_dataset
from vit_tutorial.data.sources import weights_file
from vit_tutorial.live import export_model
from vit_tutorial.recipes import RECIPES
from vit_tutorial.runs import load_recorded
from vit_tutorial.training import evaluate
from vit_tutorial.what_matters import Sweep

SMALL = replace(RECIPES["digits"], batch_size=512, model=replace(RECIPES["digits"].model, embed_dim=12, depth=1))
TINY = ["--model.depth=1", "--model.embed-dim=12", "--augment.crop=0", "--epochs=2", "--quiet", "--device=cpu"]
TINY += ["--batch-size=512"]  # three steps an epoch


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def last_line(error: pytest.ExceptionInfo) -> str:
    """What an error prints; a SystemExit with a message has exit code 1."""
    assert isinstance(error.value.code, str)
    assert "\n" not in error.value.code
    return error.value.code


def test_train_and_evaluate(own_folder, capsys):
    main(["train", "digits", *TINY, "--seed", "3", "--augment.shift", "0.1"])
    metrics = json.loads((own_folder / "runs/digits-3/metrics.json").read_text())
    recipe = metrics["recipe"]
    assert (recipe["epochs"], recipe["model"]["depth"], recipe["seed"], recipe["augment"]["shift"]) == (2, 1, 3, 0.1)
    assert (recipe["lr"], recipe["model"]["num_heads"]) == (RECIPES["digits"].lr, RECIPES["digits"].model.num_heads)
    shown = f"digits-3: test accuracy {metrics['test']['accuracy']:.2%} after 2 epochs"
    assert shown in capsys.readouterr().out
    main(["evaluate", "digits-3", "--device", "cpu"])
    out = capsys.readouterr().out
    assert out.startswith("digits-3, your own run: test accuracy ")
    assert f"after its training: {metrics['test']['accuracy']:.2%}; weights: runs/digits-3/" in out


def test_export_writes_what_the_page_loads(own_folder, capsys):
    main(["export", "mnist", "page.js"])
    name, exported = re.fullmatch(
        r"\(globalThis.models \?\?= {}\)\[(.*?)\] = (.*);\n", Path("page.js").read_text()
    ).groups()
    assert json.loads(name) == "mnist"
    assert json.loads(exported) == json.loads(json.dumps(export_model(*load_recorded("mnist"))))
    assert capsys.readouterr().out == f"mnist: {Path('page.js').stat().st_size / 1000:.0f} kB in page.js\n"
    for name, message in {"nope": "no finished run 'nope'", "mnist-fixed": "final_norm=False, not True"}.items():
        with pytest.raises(SystemExit, match=message):
            main(["export", name, "page.js"])


def test_evaluate_with_a_folder_that_has_changed(own_folder, monkeypatch, capsys):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(own_folder / "root"))
    write_tree(own_folder / "mine", ("cat", "dog"), 30)
    data = ["--dataset=folder:mine", "--model.in-chans=3", "--model.num-classes=2"]
    main(["train", "digits", *TINY, *data])
    metrics = json.loads((own_folder / "runs/digits/metrics.json").read_text())
    assert metrics["classes"] == ["cat", "dog"]
    assert {split: len(metrics["split"][split]) // 12 for split in ("train", "val")} == metrics["images"]
    evaluate = ["evaluate", "digits", "--device", "cpu"]
    main(evaluate)
    assert "since then" not in capsys.readouterr().out
    write_image(own_folder / "mine/dog/new.png", 3)
    main(evaluate)
    assert "since then: 1 image was added; no test image was used in training" in capsys.readouterr().out
    (own_folder / "mine/dog").rename(own_folder / "mine/fox")
    with pytest.raises(SystemExit) as error:
        main(evaluate)
    text = "folder mine cannot test this run: class 'dog' was renamed or removed; class 'fox' is new; 31"
    assert text in last_line(error)
    write_tree(own_folder / "mine", ("gnu",), 30)  # another number of classes, too
    with pytest.raises(SystemExit) as error:
        main(evaluate)
    assert "class 'fox' is new; class 'gnu' is new" in last_line(error)


def test_a_finished_run_is_not_replaced(own_folder, monkeypatch):
    command, metrics = ["train", "digits", *TINY], own_folder / "runs/digits/metrics.json"
    main(command)
    before = metrics.read_bytes()
    with pytest.raises(SystemExit) as error:
        main([*command, "--epochs", "1"])
    assert last_line(error).endswith(
        "digits holds a finished run: give this one another --name, or move the folder elsewhere"
    )
    assert metrics.read_bytes() == before
    main([*command, "--epochs", "1", "--name", "other"])
    monkeypatch.setattr(cli, "FOLDER", own_folder / "runs")
    main([*command, "--epochs", "1", "--record"])  # this is how a recorded run is replaced
    assert json.loads(metrics.read_text())["recipe"]["epochs"] == 1


def test_a_run_with_a_checkpoint_resumes(own_folder, monkeypatch, capsys):
    """Even if it was killed after writing its metrics and before deleting its checkpoint."""
    kept = own_folder / "runs/digits/checkpoint.pt"
    with monkeypatch.context() as patch:
        patch.setattr(runs, "evaluate", lambda *_: shutil.copy(kept, own_folder) and evaluate(*_))
        main(["train", "digits", *TINY])
    shutil.copy(own_folder / "checkpoint.pt", kept)
    main(["train", "digits", *TINY])
    first, second = re.findall("digits: test accuracy .* after 2 epochs in .*", capsys.readouterr().out)
    assert first == second and not kept.exists()


def test_record_writes_into_the_package(own_folder, monkeypatch):
    monkeypatch.setattr(cli, "FOLDER", own_folder / "package")
    monkeypatch.setattr(runs, "FOLDER", own_folder / "package")
    main(["train", "digits", *TINY, "--record", "--name", "mine", "--no-weights"])
    assert [path.name for path in (own_folder / "package/mine").iterdir()] == ["metrics.json"]
    assert runs.recorded_runs() == ["mine"]


def test_sweep_prints_runs_that_broke(own_folder, monkeypatch, capsys):
    ended = {"variant": "base", "seed": 0, "val_accuracy": 0.25, "test_accuracy": 0.5}
    broke = {"variant": "base", "seed": 1, "broke": "the loss is nan at step 3 of 9"}
    monkeypatch.setattr(cli, "run_sweep", lambda *given, **options: None)
    monkeypatch.setattr(cli, "load_sweep", lambda name, broken=False: [broke] if broken else [ended])
    main(["sweep", "mnist", "--quiet", "--device", "cpu"])
    printed = capsys.readouterr().out
    assert "base: val accuracy 25.00% (25.00%) test accuracy 50.00% (50.00%)" in printed
    assert "base: seed 1 diverged: the loss is nan at step 3 of 9" in printed


def test_sweep_prints_means_and_writes_rows(own_folder, monkeypatch, capsys):
    base = replace(SMALL, epochs=1)
    monkeypatch.setitem(cli.SWEEPS, "cifar10-lr", Sweep({"base": base, "decay-0": replace(base, weight_decay=0.0)}))
    command = ["sweep", "cifar10-lr", "--only", "decay-0", "--seeds", "0", "2", "--quiet", "--device", "cpu"]
    main(command)
    rows = [json.loads(line) for line in (own_folder / "runs/sweeps/cifar10-lr.jsonl").read_text().splitlines()]
    assert [(row["variant"], row["seed"]) for row in rows] == [("decay-0", 0), ("decay-0", 2)]
    printed = capsys.readouterr().out
    for split in ("val", "test"):
        first, second = (row[f"{split}_accuracy"] for row in rows)
        assert f"{split} accuracy {(first + second) / 2:.2%} ({first:.2%}, {second:.2%})" in printed
    before = (own_folder / "runs/sweeps/cifar10-lr.jsonl").read_text()
    main(command)
    assert (own_folder / "runs/sweeps/cifar10-lr.jsonl").read_text() == before


def train_photos(folder, monkeypatch, *options: str) -> dict:
    """The metrics after training on a red, a green and a blue class."""
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(folder / "root"))
    for label, name in enumerate(("blue", "green", "red")):
        for shade in range(20):
            colour = [5 * shade] * 3
            colour[2 - label] = 255
            write_image(folder / f"photos/{name}/{shade:02}.png", tuple(colour), (40, 30 + shade % 2))
    main(["train", "photos", "--device=cpu", *options])
    return json.loads((folder / "runs/photos/metrics.json").read_text())


def test_photos_take_sizes_and_classes_from_the_folder_and_new_ones_are_named(own_folder, monkeypatch, capsys):
    metrics = train_photos(own_folder, monkeypatch, "--epochs=8", "--quiet")
    assert metrics["classes"] == ["blue", "green", "red"]
    model = metrics["recipe"]["model"]
    assert (model["num_classes"], model["in_chans"]) == (3, 3)
    assert (model["img_size"], model["patch_size"]) == ([24, 24], [3, 3])  # 30 pixels, so 8 patches of 3, not of 8
    main(["evaluate", "photos", "--device", "cpu"])
    write_image(own_folder / "new.png", (20, 20, 240), (50, 90))
    write_image(own_folder / "other.jpg", (250, 40, 40), (24, 24))
    capsys.readouterr()
    main(["predict", "photos", "new.png", "other.jpg", "--maps", "maps.png", "--device", "cpu"])
    first, second, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"new.png: blue [\d.]+%, (green|red) [\d.]+%, (green|red) [\d.]+%", first)
    assert second.startswith("other.jpg: red ")
    for line in (first, second):
        best, *others = (float(percent) for percent in re.findall(r"([\d.]+)%", line))
        assert best > 50 and best + sum(others) == pytest.approx(100, abs=0.2)
    assert last == "maps: maps.png"
    with Image.open(own_folder / "maps.png") as figure:
        assert figure.width > figure.height > 100


def test_measuring_the_time_changes_nothing(own_folder, capsys):
    for option in ("--quiet", "--no-weights"):
        main(["train", "digits", *[word for word in TINY if word != "--quiet"], "--name", option[2:], option])
    quiet, loud = (json.loads((own_folder / f"runs/{n}/metrics.json").read_text()) for n in ("quiet", "no-weights"))
    assert "2 epochs take about" in capsys.readouterr().out
    for first, second in zip(quiet["history"], loud["history"], strict=True):
        assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_a_recorded_grey_run_names_its_digits(own_folder, capsys):
    digits = load_dataset("digits", "test")[:20]
    names = [f"{i}.png" for i in range(20)]
    for name, image in zip(names, digits.images, strict=True):
        Image.fromarray(image[0].numpy()).save(name)
    main(["predict", "digits", *names, "--device", "cpu"])
    best = [re.search(r"png: (\d) ", line)[1] for line in capsys.readouterr().out.splitlines()]
    assert sum(name == str(int(label)) for name, label in zip(best, digits.labels, strict=True)) >= 17
    main(["predict", "mnist-published", names[0], "--device", "cpu"])  # it returns probabilities: no second softmax
    assert float(re.search(r"[\d.]+(?=%)", capsys.readouterr().out)[0]) > 24


def test_a_digit_on_paper_is_read_as_white_on_black_and_the_command_says_so(own_folder, capsys):
    digit = load_dataset("digits", "test").images[0, 0].numpy()
    Image.fromarray(digit).save("white.png")
    Image.fromarray(255 - digit).save("black.png")
    main(["predict", "digits", "white.png", "black.png", "--maps", "maps.png", "--device", "cpu"])
    white, said, black, maps = capsys.readouterr().out.splitlines()
    assert said == "black.png: dark on light, so inverted" and maps == "maps: maps.png"
    assert white.removeprefix("white.png") == black.removeprefix("black.png")
    Image.new("RGB", (90, 60), "white").save("blank.png")
    with pytest.raises(SystemExit) as error:
        main(["predict", "digits", "blank.png", "--device", "cpu"])
    assert last_line(error).startswith("vit-tutorial: blank.png: no ink was found")


def test_data_reports_sizes(capsys, own_folder, monkeypatch):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(own_folder))
    write_tree(own_folder / "mine", ("cat", "dog"), 10)
    write_image(own_folder / "mine/cat/wide.png", 0, (50, 20))  # sizes may differ
    main(["data", "digits", "folder:mine"])
    out = capsys.readouterr().out
    assert f"data root: {own_folder}" in out
    assert "digits: train 1,257, val 180, test 360" in out
    assert "train 17, val 2, test 2 (folder mine)" in out
    assert "folder:mine: 2 classes: cat 11, dog 10\n" in out


def test_missing_data_do_not_hide_the_others(monkeypatch, capsys, own_folder):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(own_folder))
    real = cli.load_dataset

    def offline(name, split, **options):
        if name == "mnist":
            raise FileNotFoundError("mnist: tried here and there")
        return real(name, split, **options)

    monkeypatch.setattr(cli, "load_dataset", offline)
    with pytest.raises(SystemExit, match="missing, and cannot be fetched: mnist"):
        main(["data", "mnist", "digits"])
    printed = capsys.readouterr()
    assert "mnist: tried here and there" in printed.err and "digits: train 1,257" in printed.out


def test_what_does_not_arrive_in_time_is_no_error_unless_nothing_may_stand_in(monkeypatch, capsys, own_folder):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(own_folder))
    monkeypatch.setenv("VIT_TUTORIAL_DOWNLOAD", "0")
    monkeypatch.setenv("VIT_TUTORIAL_STRICT", "0")
    write_mnist(own_folder / "MNIST/raw")
    main(["data", "--minutes", "0.1"])
    told = capsys.readouterr().out.splitlines()
    assert told == [
        f"data root: {own_folder}",
        "MNIST: already here",
        "CIFAR-10: not available (download is off); drawn shapes stand in",
    ]
    monkeypatch.setenv("VIT_TUTORIAL_STRICT", "1")
    main(["data", "--minutes", "0.1", "mnist"])
    with pytest.raises(SystemExit, match=r"STRICT is set, so nothing may stand in for cifar10$"):
        main(["data", "--minutes", "0.1", "mnist", "cifar10"])


def test_data_fetches_published_weights_too(monkeypatch, capsys, own_folder):
    monkeypatch.setenv("TORCH_HOME", str(own_folder))
    monkeypatch.setenv("VIT_TUTORIAL_DOWNLOAD", "0")
    with pytest.raises(SystemExit, match="missing, and cannot be fetched: vit_b_32"):
        main(["data", "vit_b_32"])
    _, file = weights_file("vit_b_32")
    file.parent.mkdir(parents=True)
    file.touch()
    main(["data", "vit_b_32"])
    assert capsys.readouterr().out.endswith("\nvit_b_32: already here\n")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["evaluate", "nope"], "vit-tutorial: there is no finished run 'nope'"),
        (["data", "nope"], "vit-tutorial: name must be one of .*'nope'"),
        (
            ["train", "digits", "--model.num-classes", "9", "--model.in-chans", "3"],
            "model.in_chans 1, the recipe has 9 and 3$",
        ),
        (["predict", "digits", "nope.png"], "vit-tutorial: there is no file nope.png"),
        (["train", "digits", *TINY, "--lr", "1e30", "--clip-grad", "0"], "the loss is nan at step .* Try a lower lr"),
        (["train", "digits", *TINY, "--name", "\0"], "vit-tutorial: .*null"),
        *(
            (["train", "digits", *TINY, "--name", name], f"--name must name one folder, as in my-run, got '{name}'")
            for name in ("../x", ".", "/x", "a/b")
        ),
        (["handout", "out", "--url", "here"], "--url wants a folder such as https://github.com/.*, got 'here'"),
        (["handout", "out", "--points", "nope"], "No such file or directory: 'nope'"),
        (["grade", "nope", "--out", "g.csv"], "there is no nope; submissions must be a folder or a zip"),
        (["train", "digits", "--device", "gpu"], "--device must be cpu, cuda or cuda:N, got 'gpu'"),
        (["evaluate", "digits", "--device", "cuda:99"], r"--device cuda:99 is not available, CUDA GPUs found: \d"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(command, message, no_shape_checks, own_folder):
    with pytest.raises(SystemExit) as error:
        main(command)
    assert re.search(message, last_line(error))
    assert not [path for path in own_folder.rglob("*") if path != own_folder / "runs"]


def test_an_interrupted_run_says_how_to_resume(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_recipe", stop)
    with pytest.raises(SystemExit) as error:
        main(["train", "digits"])
    assert "the same command resumes" in last_line(error)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "digits", "--epochs", "0"], "epochs must be an int of at least 1, got 0"),
        (["train", "mnist", "--arch", "vitt"], "arch must be one of vit, post-norm, softmax-head"),
        (["train"], "Expected one of {mnist-published, mnist-fixed"),
        (["predict", "digits"], "predict needs at least one IMAGE"),
        (["grade", "answers", "--out", "g.csv", "--seconds", "0"], "--seconds must be 1 or more, got 0"),
        (["data", "--minutes", "0"], "--minutes must be more than 0, got 0"),
    ],
)
def test_wrong_usage_is_named(command, message, capsys):
    with pytest.raises(SystemExit) as error:
        main(command)
    assert error.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def help_of(capsys, *command: str) -> str:
    with pytest.raises(SystemExit) as error:
        main([*command, "--help"])
    assert not error.value.code
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_help_lists_commands_recipes_and_every_field(capsys):
    out = help_of(capsys)
    for command in ("train", "sweep", "evaluate", "predict", "diagnose", "data", "handout", "grade"):
        assert f"• {command} " in out
    out = help_of(capsys, "train")
    for part in (*RECIPES, "vit-tutorial train mnist --epochs 3 --model.depth 2", "--record", "--quiet"):
        assert part in out
    out = help_of(capsys, "train", "mnist")
    assert "--model.depth" in out and "(default: 9)" in out  # the recipe's own epochs
    assert "see ``random_crop``" in out and ":func:" not in out  # the docstrings' own words, without links
    assert all(name in help_of(capsys, "sweep") for name in cli.SWEEPS)


@pytest.mark.skipif(bool(why_unconfined()), reason="answers can't be confined here")
def test_a_class_is_handed_out_and_graded(own_folder, capsys):
    (own_folder / "points.toml").write_text("num_patches = 2\n", encoding="utf-8")
    main(
        ["handout", "out", "--chapters", "1-2", "--points", "points.toml", "--url", "https://github.com/me/x/tree/main"]
    )
    assert capsys.readouterr().out == "2 hand-outs: 01_patches.ipynb, 02_positions.ipynb in out\n"
    (own_folder / "in").mkdir()
    (own_folder / "in/ada.py").write_text("num_patches = lambda i, p: i[0] // p[0] + i[1] // p[1]", encoding="utf-8")
    (own_folder / "in/eve.py").write_text("x = 3", encoding="utf-8")
    shutil.copy("out/01_patches.ipynb", "in/max.ipynb")
    main(["grade", "in", "--out", "g.csv", "--report", "report", "--points", "points.toml", "--jobs", "1", "--quiet"])
    first, *_, last, odd = capsys.readouterr().out.splitlines()
    assert (first, last) == ("3 students, 0 of 3 answers right; see g.csv", "the class: report/class.html")
    assert odd == "eve: none of these exercises was found in eve.py"
    table = (own_folder / "g.csv").read_text(encoding="utf-8-sig").splitlines()
    assert table[1].startswith('ada,num_patches,0,wrong,"rows times columns, not rows plus columns",')
    assert table[2:] == ["eve,num_patches,0,missing,,0.0", "max,num_patches,0,not attempted,,0.0"]


def draw_a_one(path: str) -> None:
    image = Image.new("L", (8, 8))
    image.paste(255, (3, 1, 5, 7))
    image.save(path)


@contextmanager
def files_below(size: int) -> Iterator[None]:
    """A full disk is simulated: writing beyond a limit on file sizes fails as there, with another errno."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.skipif(sys.platform == "win32", reason="this system limits no file's size")
def test_a_full_disk_is_one_line_and_leaves_no_part(own_folder):
    with files_below(20_000), pytest.raises(SystemExit) as error:
        main(["train", "digits", *TINY])
    assert last_line(error) == "vit-tutorial: [Errno 27] File too large: 'runs/digits/checkpoint.pt'"
    assert list(own_folder.iterdir()) == [own_folder / "runs"] and not list((own_folder / "runs").iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="this system limits no file's size")
def test_a_full_disk_leaves_what_was_written_before_and_is_named(own_folder):
    """Whatever a command writes is whole, or as it was."""
    draw_a_one("x.png")
    Path("in/ada").mkdir(parents=True)
    Path("in/ada/a.py").write_text("def num_patches(i, p):\n    return 1" + "\n# filler" * 1000)
    commands = {
        "o.js": ["export", "digits", "o.js"],
        "o.png": ["predict", "digits", "x.png", "--maps", "o.png", "--device", "cpu"],
        "out/01_patches.ipynb": ["handout", "out", "--chapters", "1"],
    }
    if not why_unconfined():
        commands["g.csv"] = ["grade", "in", "--out", "g.csv", "--chapters", "1", "--quiet", "--report", "r"]
    for name, command in commands.items():
        main(command)
        whole = {path: path.read_bytes() for path in own_folder.rglob("*") if path.is_file()}
        with files_below(40 if name == "g.csv" else 2_000), pytest.raises(SystemExit) as error:
            main(command)
        assert re.search(rf"File too large: '{name}(\.partial)?'$", last_line(error))
        kept = {path: path.read_bytes() for path in own_folder.rglob("*") if path.is_file()}
        assert {path: content for path, content in kept.items() if path.suffix != ".partial"} == whole


@pytest.mark.parametrize(
    ("command", "lower"),
    [
        (["train", "digits", *TINY], "lower --batch-size, or make fewer tokens with a larger --model.patch-size"),
        (["evaluate", "digits"], "lower --batch-size"),
        (["predict", "digits", "x.png"], "lower --batch-size, or name fewer images"),
    ],
    ids=["train", "evaluate", "predict"],
)
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["python", "gpu", "cpu"],
)
def test_out_of_memory_is_one_line_with_what_to_lower(own_folder, monkeypatch, command, lower, error):
    def full(*_, **__):
        raise error

    draw_a_one("x.png")
    monkeypatch.setattr(torch.nn.Linear, "forward", full)
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert last_line(caught) == f"vit-tutorial: out of memory ({reason(error)}): {lower}"


def test_an_error_of_our_own_is_not_swallowed(own_folder, monkeypatch):
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda *_: {}["ours"])
    with pytest.raises(KeyError, match="ours"):
        main(["evaluate", "digits"])


def test_fewer_images_at_once_give_the_same_accuracy(own_folder, capsys):
    main(["evaluate", "digits", "--device", "cpu"])
    whole = capsys.readouterr().out
    main(["evaluate", "digits", "--device", "cpu", "--batch-size", "7"])
    assert capsys.readouterr().out == whole


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_ctrl_c_during_the_imports_is_one_line():
    code = """
import builtins, os, signal, sys
real = builtins.__import__
def slow(name, *rest, **options):
    if name == "torch":
        os.kill(os.getpid(), signal.SIGINT)
        try:
            return real(name, *rest, **options)
        except BaseException:
            sys.exit("an interrupt that a library may lose")
    return real(name, *rest, **options)
builtins.__import__ = slow
import runpy
sys.argv = ["vit-tutorial", "train", "digits"]
runpy.run_module("vit_tutorial", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "vit-tutorial: interrupted before it began\n")
