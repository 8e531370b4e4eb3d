"""A recorded run can be read back, and its stored weights still do what its metrics say."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from fake_data import write_tree

from vit_tutorial import metrics, runs
from vit_tutorial.archs.patients import attention_scaled_by_dim
from vit_tutorial.attention import plain_attention
from vit_tutorial.data import load_dataset, sources
from vit_tutorial.data.sources import CIFAR_CLASSES
from vit_tutorial.metrics import recipe_from_dict
from vit_tutorial.recipes import RECIPES, load_split, make_model
from vit_tutorial.runs import (
    FOLDER,
    find_run,
    load_classes,
    load_metrics,
    load_recorded,
    load_seeds,
    own_name,
    recorded_runs,
    run_once,
    run_recipe,
)
from vit_tutorial.training import evaluate

MODEL = replace(RECIPES["digits"].model, embed_dim=12, depth=1)
TINY = replace(RECIPES["digits"], epochs=2, batch_size=512, model=MODEL)  # three steps an epoch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    metrics = run_recipe("digits", TINY, folder / "tiny", progress=False)
    return folder, metrics


@pytest.fixture
def in_folder(run, monkeypatch):
    monkeypatch.setattr(runs, "FOLDER", run[0])
    return run


def test_metrics_are_complete(in_folder):
    folder, metrics = in_folder
    assert json.loads((folder / "tiny" / "metrics.json").read_text(encoding="utf-8")) == load_metrics("tiny")
    train, test = load_dataset("digits", "train"), load_dataset("digits", "test")
    assert metrics["samples_seen"] == 2 * len(train)
    assert metrics["data"] == train.variant
    assert len(metrics["history"]) == 2
    confusion = torch.tensor(metrics["test"]["confusion"])
    assert confusion.sum(1).tolist() == test.labels.bincount(minlength=10).tolist()
    assert metrics["test"]["accuracy"] == pytest.approx(confusion.trace().item() / len(test))
    assert metrics["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert metrics["seconds"] == pytest.approx(sum(entry["seconds"] for entry in metrics["history"]))
    assert metrics["recipe"]["seed"] == 0
    assert sorted(path.name for path in (folder / "tiny").iterdir()) == ["metrics.json", "model.safetensors"]


def test_recipe_survives_json():
    for recipe in RECIPES.values():
        assert recipe_from_dict(json.loads(json.dumps(asdict(recipe)))) == recipe


def test_weights_come_back_in_half_precision(in_folder):
    _, metrics = in_folder
    assert recorded_runs() == ["tiny"]
    model, recipe = load_recorded("tiny")
    assert recipe.fresh() == TINY
    assert not model.training
    assert all(
        value.dtype == torch.float32 and torch.equal(value, value.half().float()) for value in model.parameters()
    )
    scores = evaluate(model, load_split(recipe, "test"), recipe)
    assert scores["loss"] == pytest.approx(metrics["test"]["loss"], abs=1e-3)


def test_recording_again_without_weights_deletes_the_old_ones(in_folder):
    folder, _ = in_folder
    shutil.copytree(folder / "tiny", folder / "again")
    run_recipe("digits", replace(TINY, epochs=1), folder / "again", keep_weights=False, progress=False)
    with pytest.raises(ValueError, match="the weights of 'again' were not kept"):
        load_recorded("again")
    shutil.rmtree(folder / "again")


@pytest.mark.parametrize("arch", ["softmax-head", "resnet", "shuffled-patches", "patient:batch-sized class token"])
def test_a_run_comes_back_in_its_own_arch(arch, tmp_path):
    recipe = replace(TINY, arch=arch, epochs=1, model=replace(TINY.model, pool="cls"))
    metrics = run_recipe("digits", recipe, tmp_path, progress=False)
    model, again = load_recorded(tmp_path)
    assert again.fresh() == recipe
    assert type(model) is type(make_model(recipe))
    scores = evaluate(model, load_split(recipe, "test"), recipe)
    assert scores["loss"] == pytest.approx(metrics["test"]["loss"], abs=2e-3)


@pytest.mark.parametrize("bytes_left", [0, 4, 1000, -1])
def test_damaged_weights_are_named(in_folder, monkeypatch, tmp_path, bytes_left):
    shutil.copytree(in_folder[0] / "tiny", tmp_path / "tiny")
    weights = tmp_path / "tiny/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:bytes_left])
    monkeypatch.setattr(runs, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"model.safetensors is damaged: .*; train the run again"):
        load_recorded("tiny")


def test_one_changed_bit_in_the_weights_is_detected(in_folder, tmp_path):
    folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / "tiny")
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-100] ^= 1
    weights.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"model.safetensors is damaged: its checksum is sha256:\w+, was sha256:\w+; train"
    ):
        load_recorded(folder)
    metrics = load_metrics(folder)
    del metrics["checksum"]  # as in runs before it was kept
    (folder / "metrics.json").write_text(json.dumps(metrics))
    assert load_recorded(folder)[1].fresh() == TINY


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "Expecting value.*"),
        (b'{"recipe": "\xff"}', ".*can't decode byte 0xff.*"),
        (b'{"recipe": {}}', "it lacks history, test"),
        (b'{"recipe": ' + b"[" * 100_000, ".*recursion.*"),
        (b"[1]", "it holds a list, not an object with names"),
        (b'{"recipe": null, "history": [], "test": {}}', "recipe is a NoneType"),
        (b'{"recipe": {}, "history": [3], "test": {}}', "history must have an entry with names for each epoch"),
        (b'{"recipe": {}, "history": [], "test": {}}', "the accuracy .* from 0 to 1, got None"),
        (b'{"recipe": {}, "history": [], "test": {"accuracy": NaN}}', "the accuracy .* from 0 to 1, got nan"),
        (b'{"format": 2, "recipe": {}, "history": [], "test": {"accuracy": 0}}', "it lacks name, data, .*"),
    ],
    ids=repr,
)
def test_damaged_metrics_are_named(in_folder, tmp_path, content, what):
    folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / "tiny")
    (folder / "metrics.json").write_bytes(content)
    for load in (load_metrics, load_recorded):
        with pytest.raises(ValueError, match=rf"tiny.metrics\.json is damaged: {what}; train the run again"):
            load(folder)


def test_a_weight_too_large_for_half_precision_stays_finite(monkeypatch, tmp_path):
    """A high learning rate in the last step makes such weights, and the norms after them keep the loss finite."""

    def huge(model, *_, **__):
        with torch.no_grad():
            model.head.bias.fill_(1e6)
        return [{"seconds": 0.0}]

    monkeypatch.setattr(runs, "fit", huge)
    run_recipe("digits", TINY, tmp_path, progress=False)
    weights = load_recorded(tmp_path)[0].state_dict()
    assert (weights["head.bias"] == 1e6).all() and all(value.isfinite().all() for value in weights.values())


def test_a_second_run_in_the_same_folder_is_refused(monkeypatch, tmp_path):
    fit, said = runs.fit, []

    def twice(*arguments, **options):
        with pytest.raises(
            ValueError, match=r"another process is training .*mine: wait for it, or choose another name"
        ):
            run_recipe("digits", TINY, tmp_path / "mine", progress=False)
        said.append(True)
        return fit(*arguments, **options)

    monkeypatch.setattr(runs, "fit", twice)
    run_recipe("digits", replace(TINY, epochs=1), tmp_path / "mine", progress=False)
    assert said and sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["metrics.json", "model.safetensors"]


def test_weights_of_another_model(in_folder, tmp_path):
    folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / "tiny")
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["recipe"]["model"]["embed_dim"] *= 2
    (folder / "metrics.json").write_text(json.dumps(metrics))
    text = r"model.safetensors does not fit the recipe in metrics.json beside it: size mismatch for .*12\]\).*24\]"
    with pytest.raises(ValueError, match=text) as caught:
        load_recorded(folder)
    assert "\n" not in str(caught.value)


def test_fields_of_another_version_are_named():
    fields = asdict(TINY)
    fields["augment"].update(torch_init=True, colour=1)
    with pytest.raises(ValueError, match="Augment has fields that this version does not know: colour, torch_init"):
        recipe_from_dict(fields)


def change(folder: Path, where: str, name: str, *value) -> None:
    """A field of ``metrics.json`` gets another value, or none."""
    metrics = json.loads((folder / "metrics.json").read_bytes())
    place = metrics
    for key in where.split():
        place = place[key]
    place |= dict.fromkeys([name], *value)
    if not value:
        del place[name]
    (folder / "metrics.json").write_text(json.dumps(metrics))


RECIPE = asdict(TINY)
FIELDS = [("recipe", name) for name in RECIPE]
FIELDS += [(f"recipe {part}", name) for part in ("model", "augment") for name in RECIPE[part]]


def test_a_field_that_is_lost_is_not_guessed(in_folder, tmp_path):
    """Without a number only those may be lacking that came later; with it none."""
    for where, name in FIELDS:
        folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / f"{where}-{name}")
        change(folder, where, name)
        with pytest.raises(ValueError, match=rf"metrics\.json holds no recipe of this version: .* lacks .*{name}"):
            load_recorded(folder)
        change(folder, "", "format", 1)
        if name in metrics.LATER_FIELDS:
            assert load_recorded(folder)[1].fresh() == TINY
        else:
            with pytest.raises(ValueError, match=rf"metrics\.json holds no recipe of this version: .* lacks .*{name}"):
                load_recorded(folder)


@pytest.mark.parametrize("value", [None, [], {}, "x", -1.5, [[1]], True, 1e300], ids=repr)
def test_a_field_of_another_kind_is_the_file_s_fault(in_folder, tmp_path, value, no_shape_checks):
    """Or it is as good as the right one, such as True for a flag."""
    top, refused = [("", name) for name in load_metrics("tiny")], 0
    for where, name in FIELDS + top:
        folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / f"{where}-{name}")
        change(folder, where, name, value)
        for load in (load_metrics, load_recorded, load_classes):
            try:
                load(folder)
            except ValueError as error:
                assert str(folder) in str(error)
                refused += 1
    assert refused > 2 * len(FIELDS)


def test_classes_that_are_not_the_model_s_are_refused(in_folder, tmp_path):
    folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / "tiny")
    change(folder, "", "classes", ["a", "b", "c"])
    with pytest.raises(
        ValueError, match=r"metrics\.json is damaged: it names 3 classes, and the model dist.* 10; train"
    ):
        load_classes(folder)


def test_a_later_version_s_metrics_are_refused(in_folder, tmp_path):
    folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / "tiny")
    change(folder, "", "format", 99)
    with pytest.raises(ValueError, match=r"metrics\.json has the format 99, and this version reads those up to 2"):
        load_metrics(folder)


def test_your_own_run_comes_first_only_on_request(in_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "OWN_RUNS", tmp_path)
    folder, metrics = in_folder
    assert find_run("tiny", own_first=True) == folder / "tiny"
    (tmp_path / "tiny").mkdir()
    own = {"recipe": {}, "history": [], "test": {"accuracy": 0.5}}
    (tmp_path / "tiny/metrics.json").write_text(json.dumps(own))
    assert find_run("tiny", own_first=True) == tmp_path / "tiny"
    assert load_metrics(tmp_path / "tiny") == own
    assert find_run("tiny") == folder / "tiny"
    assert load_metrics("tiny")["history"] == metrics["history"]


@pytest.mark.parametrize(("asked", "ran"), [("auto", "fp32"), ("fp32", "fp32"), ("bf16", "bf16")])
def test_metrics_say_which_precision_ran_and_the_recipe_which_was_asked_for(monkeypatch, tmp_path, asked, ran):
    recipe = replace(TINY, precision=asked)
    metrics = run_once("digits", recipe, tmp_path, progress=False)  # on a CPU, where bf16 has to be asked for
    assert (metrics["precision"], metrics["recipe"]["precision"]) == (ran, asked)
    monkeypatch.setattr(runs, "fit", lambda *args, **kwargs: pytest.fail("it trains again"))
    assert run_once("digits", recipe, tmp_path, progress=False)["precision"] == ran


@pytest.mark.parametrize(
    ("arch", "attend"), [("vit", plain_attention), ("patient:scale by √dim", attention_scaled_by_dim)]
)
def test_bf16_on_a_cpu_uses_the_formula_but_keeps_a_patient_s_attention(monkeypatch, tmp_path, arch, attend):
    """PyTorch's kernel is slow there, but a recipe whose bug is its attention must still train with it."""
    trained = []
    monkeypatch.setattr(runs, "fit", lambda model, *_, **__: trained.append(model) or [{"seconds": 0.0}])
    recipe = replace(RECIPES["digits"], arch=arch, precision="bf16", epochs=1)
    runs.run_recipe("bf16", recipe, tmp_path, keep_weights=False, progress=False)
    assert [block.attn.attend for block in trained[0].blocks] == [attend] * recipe.model.depth


# Runs recorded with the package


def test_all_recorded_weights_are_small():
    assert sum(path.stat().st_size for path in FOLDER.glob("*/model.safetensors")) <= 10e6


@pytest.mark.parametrize("name", recorded_runs() or [pytest.param("", marks=pytest.mark.skip("nothing is recorded"))])
def test_a_recorded_run_is_whole(name):
    metrics = load_metrics(name)
    assert metrics["name"] in RECIPES
    assert ("checksum" in metrics) == (FOLDER / name / "model.safetensors").exists()
    assert len(metrics["history"]) == metrics["recipe"]["epochs"]
    recipe = recipe_from_dict(metrics["recipe"])
    assert recipe.dataset == metrics["recipe"]["dataset"] and recipe.arch == metrics["recipe"]["arch"]
    with torch.device("meta"):
        assert sum(p.numel() for p in make_model(recipe).parameters()) == metrics["parameters"]
    assert not metrics["commit"].endswith("+"), "recorded from a checkout with changes"


def test_the_seeds_of_a_recipe_come_in_order_and_without_its_other_runs():
    assert [run["recipe"]["seed"] for run in load_seeds("cifar10-speedrun")] == [0, 1, 2, 3, 4]
    assert len(load_seeds("mnist-published")) == 3 and load_metrics("mnist-published-15-epochs")
    assert load_seeds("mnist-publishe.") == load_seeds("nothing") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", recorded_runs() or [pytest.param("", marks=pytest.mark.skip("nothing is recorded"))])
def test_stored_weights_give_the_stored_accuracy(name):
    if not (FOLDER / name / "model.safetensors").exists():
        pytest.skip(f"the weights of {name} were not kept")
    metrics, (model, recipe) = load_metrics(name), load_recorded(name)
    try:
        test = load_split(recipe, "test", download=False)
    except FileNotFoundError as error:
        pytest.skip(f"no data: {error}")
    if test.variant != metrics["data"]:
        pytest.skip(f"other data: {test.variant}")
    stored, within = metrics["test"]["accuracy"], 1e-3  # the weights were rounded to halves
    if recipe.dataset == "cifar10" or name not in RECIPES:
        # Checksums hold the weights, and the other runs the evaluation. Here three standard errors of a sample will do.
        test = test[:: len(test) // 500]  # of every class, as some sets are sorted
        within = 3 * (stored * (1 - stored) / len(test)) ** 0.5
    assert evaluate(model, test, recipe)["accuracy"] == pytest.approx(stored, abs=within)


# Once, and epoch by epoch --------------------------------------------------------------------------------------------


def test_a_finished_run_is_shown_again_with_its_model(tmp_path):
    seen = []
    options = {"progress": False, "after_epoch": lambda model, history: seen.append((model, history))}
    metrics = run_once("digits", TINY, tmp_path / "mine", **options)
    run_once("digits", TINY, tmp_path / "mine", **options)
    model, history = seen.pop()
    assert history == metrics["history"] and not model.training
    assert evaluate(model, load_split(TINY, "test"), TINY)["loss"] == pytest.approx(metrics["test"]["loss"], abs=1e-3)
    (tmp_path / "mine/model.safetensors").unlink()
    run_once("digits", TINY, tmp_path / "mine", **options)
    assert len(seen) == 2


def test_a_finished_run_is_not_trained_again_nor_one_of_an_older_version(monkeypatch, tmp_path):
    """An older version's recipe lacks the fields that came later."""
    metrics = run_once("digits", TINY, tmp_path, progress=False)
    monkeypatch.setattr(runs, "fit", lambda *args, **kwargs: pytest.fail("it trains again"))
    assert run_once("digits", TINY, tmp_path, progress=False) == json.loads(json.dumps(metrics))
    del metrics["recipe"]["images"], metrics["format"]
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    assert run_once("digits", TINY, tmp_path, progress=False) == json.loads(json.dumps(metrics))
    with pytest.raises(ValueError, match=r"with another images: 0, not 9\. Choose another name"):
        run_once("digits", replace(TINY, images=9), tmp_path, progress=False)


def test_another_recipe_gets_another_name_whether_the_first_is_finished_or_half_trained(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    longer, seeded = replace(TINY, epochs=3), replace(TINY, seed=1)
    assert own_name("mine", TINY) == own_name("mine", longer) == "mine"

    def stop(model, history):
        if len(history) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_once("mine", TINY, Path("runs/mine"), progress=False, after_epoch=stop)
    assert (own_name("mine", TINY), own_name("mine", longer)) == ("mine", "mine-2")
    run_once("mine", TINY, Path("runs/mine"), progress=False)
    assert (own_name("mine", TINY), own_name("mine", longer)) == ("mine", "mine-2")
    run_once("mine-2", longer, Path("runs/mine-2"), progress=False)
    assert [own_name("mine", each) for each in (TINY, longer, seeded)] == ["mine", "mine-2", "mine-3"]
    assert own_name("mine", load_recorded("mine-2")[1]) == "mine-2"


def test_weights_are_kept_after_each_epoch_that_is_asked_for_also_by_a_run_that_goes_on(tmp_path):
    seen = []

    def stop_after_two(model, history):
        seen.append((len(history), evaluate(model, load_split(recipe, "val"), recipe)["loss"], history[-1]["val_loss"]))
        if len(history) == 3 and len(seen) == 3:
            raise KeyboardInterrupt

    recipe = replace(TINY, epochs=4, ema=0.9)
    options = {"keep_epochs": (1, 4), "progress": False, "after_epoch": stop_after_two}
    with pytest.raises(KeyboardInterrupt):
        run_recipe("digits", recipe, tmp_path, **options)
    metrics = run_recipe("digits", recipe, tmp_path, **options)
    assert [epoch for epoch, *_ in seen] == [1, 2, 3, 3, 4]  # the third was not finished
    assert all(here == pytest.approx(noted, abs=1e-6) for _, here, noted in seen)  # the EMA, which was evaluated
    assert sorted(path.name for path in tmp_path.glob("epoch-*")) == ["epoch-1.safetensors", "epoch-4.safetensors"]
    (first, _), (fourth, _), (last, _) = (load_recorded(tmp_path, epoch) for epoch in (1, 4, None))
    val = load_split(recipe, "val")
    assert evaluate(first, val, recipe)["loss"] == pytest.approx(metrics["history"][0]["val_loss"], abs=1e-3)
    for name, value in last.state_dict().items():
        assert torch.equal(fourth.state_dict()[name], value)
    with pytest.raises(ValueError, match="after epoch 2 were not kept"):
        load_recorded(tmp_path, 2)


# Data that are split otherwise than a run's --------------------------------------------------------------------------


@pytest.fixture
def sorted_and_shuffled(tmp_path, monkeypatch):
    """A run on CIFAR-10's images in a tree, which is sorted by class; and a root with the same images, shuffled."""
    monkeypatch.setattr(sources, "VAL_IMAGES", 10)
    for split, each in (("train", 5), ("test", 1)):
        write_tree(tmp_path / "sorted/cifar10" / split, CIFAR_CLASSES, each)
    shutil.copytree(tmp_path / "sorted", tmp_path / "shuffled")
    kinds = sources.find_images

    def mixed(tree, classes):
        files, labels, classes = kinds(tree, classes)
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(1))
        return tuple(files[i] for i in order), labels[order], classes

    def use(order):
        monkeypatch.setenv("VIT_TUTORIAL_DATA", str(tmp_path / order))
        monkeypatch.setattr(sources, "find_images", mixed if order == "shuffled" else kinds)

    use("sorted")
    recipe = replace(
        RECIPES["cifar10-tiny"], epochs=1, model=replace(RECIPES["cifar10-tiny"].model, img_size=8, depth=1)
    )
    run_recipe("cifar10-tiny", recipe, tmp_path / "known", progress=False)
    return tmp_path / "known", recipe, use


def numbers(dataset):
    """What each image is, in any order; all its pixels have one value."""
    return {value.item() for value in dataset.images[:, 0, 0, 0]}


def test_a_run_is_asked_for_its_own_validation_images_only(sorted_and_shuffled):
    known, recipe, use = sorted_and_shuffled
    _, recorded = load_recorded(known)
    learned, held_out = (numbers(load_split(recorded, split)) for split in ("train", "val"))
    assert len(learned) == 40 and len(held_out) == 10 and not learned & held_out
    use("shuffled")
    assert len(numbers(load_split(recipe, "val")) & learned) >= 7  # what a score on them would be worth
    was, now = load_metrics(known)["fingerprint"]["val"], load_split(recipe, "val").fingerprint
    for split in ("val", "train"):
        with pytest.raises(ValueError, match=r"run 'known' was trained on CIFAR-10 \(PNG copy\) with the split \w{16}"):
            load_split(recorded, split)
    with pytest.raises(ValueError, match=rf"{was}; here is CIFAR-10 \(PNG copy\) with the split {now}\. .* Take test"):
        load_split(replace(recorded, batch_size=1), "val")
    assert len(load_split(recorded, "test")) == 10
    assert len(load_split(recorded.fresh(), "val")) == 10  # to train anew
    assert run_recipe("cifar10-tiny", recorded, known.parent / "new", progress=False)["fingerprint"]["val"] == now


def test_a_run_that_does_not_know_its_split_is_asked_for_test_images(in_folder, tmp_path):
    folder = shutil.copytree(in_folder[0] / "tiny", tmp_path / "old")
    metrics = load_metrics(folder)
    del metrics["fingerprint"], metrics["format"]
    (folder / "metrics.json").write_text(json.dumps(metrics))
    _, recorded = load_recorded(folder)
    with pytest.raises(
        ValueError, match=r"'old' was trained on scikit-learn's digits with a split that was not recorded"
    ):
        load_split(recorded, "val")
    assert len(load_split(recorded, "test")) == 360


def test_a_checkpoint_does_not_go_on_with_images_in_another_order(sorted_and_shuffled, tmp_path):
    _, recipe, use = sorted_and_shuffled
    longer = replace(recipe, epochs=2)

    def stop(model, history):
        if len(history) == 2:  # so there is a checkpoint of the first epoch
            raise KeyboardInterrupt

    def run(**options):
        return run_recipe("cifar10-tiny", longer, tmp_path / "cut", progress=False, **options)

    with pytest.raises(KeyboardInterrupt):
        run(after_epoch=stop)
    use("shuffled")
    with pytest.raises(
        ValueError, match=r"checkpoint\.pt was trained on other images, or in another order, than CIFAR"
    ):
        run()
    use("sorted")
    assert len(run()["history"]) == 2


@pytest.mark.parametrize("dataset", ["mnist", "cifar10", "digits", "shapes"])
def test_recorded_runs_name_their_split(dataset):
    kept = [m for m in map(load_metrics, recorded_runs()) if m["recipe"]["dataset"] == dataset]
    (variant,), (split,) = {m["data"] for m in kept}, {tuple(sorted(m["fingerprint"].items())) for m in kept}
    assert dict(split).keys() == {"train", "val"}
    try:
        val = load_dataset(dataset, "val", download=False)
    except FileNotFoundError as error:
        pytest.skip(f"no data: {error}")
    if val.variant != variant:
        pytest.skip(f"other data: {val.variant}")
    assert val.fingerprint == dict(split)["val"]
