"""The training loop does what it says, part by part; and a run can stop, go on, and be repeated."""

import errno
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fake_data import write_tree
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from torch import nn

from vit_tutorial import ViT, ViTConfig, training
from vit_tutorial.augment import Augment
from vit_tutorial.data import load_dataset
from vit_tutorial.training import (
    TrainConfig,
    balanced_accuracy,
    batches_of,
    evaluate,
    fit,
    loss_of,
    lr_at,
    make_optimizer,
    parameter_groups,
    predict,
    stop_unless_finite,
    to_input,
    train_epoch,
)
from vit_tutorial.training.checkpoints import load_checkpoint, save_checkpoint
from vit_tutorial.training.ema import EMA
from vit_tutorial.training.optimizers import Muon, orthogonalize

MODEL = ViTConfig(
    img_size=8, patch_size=4, in_chans=1, num_classes=10, embed_dim=12, depth=2, num_heads=3, drop_rate=0.1
)
CONFIG = TrainConfig(epochs=3, batch_size=32, lr=3e-3, ema=0.9, augment=Augment(crop=1))


def small_model(**changes) -> ViT:
    torch.manual_seed(0)
    return ViT(replace(MODEL, **changes))


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", "train")[:200], load_dataset("digits", "val")[:50]


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


# Schedule


def test_schedule_by_hand():
    config = TrainConfig(lr=2.0, warmup=0.2)
    rates = [lr_at(step, 10, config) for step in range(10)]
    # Two steps up, then a half cosine over the other eight.
    expected = [1, 2, 2, 1 + math.cos(math.pi / 8), 1 + math.sqrt(0.5), 1 + math.cos(3 * math.pi / 8), 1]
    assert rates[:7] == pytest.approx(expected)
    assert rates[7:] == pytest.approx([2 - rates[5], 2 - rates[4], 2 - rates[3]])
    assert lr_at(7, 10, replace(config, schedule="constant")) == 2


@pytest.mark.parametrize(("steps", "warmup"), [(50, 0.1), (37, 0.31), (20, 0.0)])
def test_schedule_is_that_of_torch(steps, warmup):
    config = TrainConfig(lr=0.3, warmup=warmup)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=config.lr)
    rise = int(warmup * steps)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps - rise)
    if rise:
        up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / rise, total_iters=rise - 1)
        scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [up, scheduler], milestones=[rise])
    for step in range(steps):
        assert lr_at(step, steps, config) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-9)
        optimizer.step()
        scheduler.step()


# Optimizer


def test_only_matrices_decay():
    model = small_model()
    decay, rest = parameter_groups(model, 0.3)
    assert (decay["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed = {names[id(parameter)] for parameter in decay["params"]}
    assert {name for name in decayed if name.startswith("blocks.1.")} == {
        f"blocks.1.{layer}.weight" for layer in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    }
    assert {name for name in decayed if not name.startswith("blocks")} == {"patch_embed.proj.weight", "head.weight"}
    assert len(decay["params"]) + len(rest["params"]) == len(names)


def test_muon_takes_the_matrices_of_the_blocks_and_nothing_else():
    model, before = small_model(), small_model()
    config = TrainConfig(lr=0.02, optimizer="muon", weight_decay=0.1, beta2=0.95)
    optimizer = make_optimizer(model, config)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    muon = {names[id(parameter)] for parameter in optimizer.param_groups[0]["params"]}
    layers = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    assert muon == {f"blocks.{i}.{layer}.weight" for i in range(2) for layer in layers}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(names)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.1, 0.0]
    assert {group["lr"] for group in optimizer.param_groups} == {0.02}

    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    pairs = zip(model.parameters(), before.parameters(), strict=True)
    assert all(not torch.equal(value, start) for value, start in pairs)
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def muon_after(optimizer_class, shape, steps=4, **options):
    """How far an optimizer moves a matrix in a few steps, each with its own gradient."""
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.randn(shape))
    start = matrix.detach().clone()
    optimizer = optimizer_class([matrix], lr=0.02, weight_decay=0.5, **options)
    for _ in range(steps):
        matrix.grad = torch.randn(shape)
        optimizer.step()
    return matrix.detach() - start


@pytest.mark.parametrize("shape", [(6, 36), (36, 6), (7, 7)])
def test_muon_is_pytorchs_but_for_bf16(shape):
    def distance(moved, other):
        return ((moved - other).norm() / other.norm()).item()

    theirs = partial(muon_after, torch.optim.Muon, shape)
    scaled = {"adjust_lr_fn": "match_rms_adamw"}
    ours = muon_after(Muon, shape)
    assert distance(ours, theirs(**scaled)) < 0.01  # bf16 keeps 8 bits of a number
    # What is left out would show: the look ahead, the right momentum, the scale.
    others = scaled | {"nesterov": False}, scaled | {"momentum": 0.5}, {}
    assert all(distance(ours, theirs(**other)) > 0.03 for other in others)


def test_muon_moves_each_matrix_as_if_it_were_alone():
    shapes = ((6, 10), (10, 6), (6, 10), (6, 6))

    def after(*numbers: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        starts = [torch.randn(shape) for shape in shapes]
        matrices = {number: torch.nn.Parameter(starts[number]) for number in numbers}
        optimizer = Muon(list(matrices.values()), lr=0.02)
        for step in range(3):
            for number, matrix in matrices.items():
                torch.manual_seed(10 * step + number)
                # The third has no gradient at first, so its average is younger than that of its twin in shape.
                matrix.grad = 10**number * torch.randn(matrix.shape) if (step, number) != (0, 2) else None
            optimizer.step()
        return [matrix.detach() for matrix in matrices.values()]

    together, alone = after(0, 1, 2, 3), [after(number)[0] for number in range(4)]
    torch.testing.assert_close(together, alone)
    assert not torch.allclose(alone[0], alone[2])


def test_muon_needs_blocks():
    with pytest.raises(ValueError, match="'muon' is for the matrices in a model's blocks, and Linear has none there"):
        make_optimizer(torch.nn.Linear(3, 2), replace(CONFIG, optimizer="muon"))


@pytest.mark.parametrize("shape", [(4,), (3, 3, 3, 3)])
def test_muon_refuses_what_is_no_matrix(shape):
    with pytest.raises(
        ValueError, match=r"Muon takes matrices, \(rows, columns\); got a parameter of " + re.escape(str(shape))
    ):
        Muon([torch.nn.Parameter(torch.randn(shape))], lr=0.1)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6)])
def test_orthogonalize_changes_singular_values_and_nothing_else(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / matrix.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    torch.testing.assert_close(orthogonalize(matrix), left @ torch.diag(values) @ right)
    torch.testing.assert_close(orthogonalize(100 * matrix), orthogonalize(matrix))
    assert ((values > 0.6) & (values < 1.3)).all()
    assert orthogonalize(torch.zeros(shape)).abs().sum() == 0  # no gradient, no step, no NaN


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "muon"])
def test_each_optimizer_goes_on_from_its_checkpoint(digits, tmp_path, optimizer, monkeypatch):
    config = replace(CONFIG, optimizer=optimizer, epochs=2)
    alone, stopped = small_model(), small_model()
    fit(alone, *digits, config, progress=False)

    def stop(*arguments):
        save_checkpoint(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training.loop, "save_checkpoint", stop)
        fit(stopped, *digits, config, progress=False, checkpoint=tmp_path / "c.pt")
    resumed = small_model()
    fit(resumed, *digits, config, progress=False, checkpoint=tmp_path / "c.pt")
    assert same_weights(alone, resumed)
    assert not same_weights(alone, stopped)


# Loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_cross_entropy(smoothing):
    logits, labels = torch.randn(7, 5), torch.randint(5, (7,))
    loss = loss_of(logits, F.one_hot(labels, 5).float(), TrainConfig(label_smoothing=smoothing))
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, label_smoothing=smoothing))


def test_input_is_normalised():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3)
    expected = torch.tensor([-1.0, -0.6, 1.0]).reshape(1, 1, 1, 3)
    torch.testing.assert_close(to_input(images, TrainConfig(mean=0.5, std=0.5)), expected)
    torch.testing.assert_close(to_input(images.float() / 255, TrainConfig(mean=0.5, std=0.5)), expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_pixels_that_are_no_numbers_are_named(value):
    images = torch.rand(5, 2, 3, 4)
    assert to_input(images, CONFIG).isfinite().all()
    images[3, 1, 2, 0] = images[4, 0, 0, 0] = value
    with pytest.raises(ValueError, match=r"NaN or infinity in 2 of 5 images: \[3, 4\]"):
        to_input(images, CONFIG)
    with pytest.raises(ValueError, match=r"images must be bytes, torch\.uint8, or floating .*, got torch\.int64"):
        to_input(torch.ones(1, 1, 2, 2).long(), CONFIG)


# EMA


def test_average_by_hand():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 8.0)
    ema = EMA(model, decay=0.5)
    seen = []
    for step, weight in enumerate([0.0, 4.0, 6.0]):
        nn.init.constant_(model.weight, weight)
        ema.update(step + 100)  # far from the start, where the decay is the full 0.5
        seen.append(ema.state["weight"].item())
    assert seen == [4.0, 4.0, 5.0]
    with ema.weights():
        assert model.weight.item() == 5.0
    assert model.weight.item() == 6.0


def test_average_of_a_model_that_counts_its_batches():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    ema = EMA(model, decay=0.5)
    model(torch.randn(8, 2))
    ema.update(100)
    torch.testing.assert_close(ema.state["1.running_mean"], model[1].running_mean / 2)  # it began at 0
    with ema.weights():
        torch.testing.assert_close(model[1].running_mean, ema.state["1.running_mean"])
    assert model[1].num_batches_tracked == 1


def test_bf16_is_for_gpus_that_have_units_for_it(monkeypatch):
    for has_units in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, it=has_units: it)
        assert training.in_bf16("cuda") == has_units and not training.in_bf16(torch.device("cpu"))
        assert training.in_bf16("cpu", "bf16") and not training.in_bf16("cuda", "fp32")


def test_precision_is_that_of_the_forward_pass_and_of_muon(digits, monkeypatch):
    train = digits[0][:64]
    losses = {}

    def noting(matrix, *steps):
        seen.append((matrix @ matrix.mT).dtype)
        return orthogonalize(matrix, *steps)

    monkeypatch.setattr(training.optimizers, "orthogonalize", noting)
    for precision in ("auto", "fp32", "bf16"):
        model, config = small_model(), replace(CONFIG, epochs=1, optimizer="muon", precision=precision)
        seen = []
        model.blocks[0].mlp.fc1.register_forward_hook(lambda _, inputs, output, seen=seen: seen.append(output.dtype))
        losses[precision] = train_epoch(model, make_optimizer(model, config), train, 0, config)[0]
        assert len(seen) > 4 and set(seen) == {torch.bfloat16 if precision == "bf16" else torch.float32}
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert losses["auto"] == losses["fp32"] != losses["bf16"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], abs=0.03)


# Passes


def test_a_pass_sees_each_image_once_in_a_new_order():
    config = TrainConfig(batch_size=8)
    first, second = batches_of(21, 0, config), batches_of(21, 1, config)
    assert [len(batch) for batch in first] == [8, 8, 5]
    assert sorted(torch.cat(first).tolist()) == list(range(21))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    assert torch.equal(torch.cat(first), torch.cat(batches_of(21, 0, config)))


def test_an_epoch_against_a_loop_written_out(digits):
    train, _ = digits
    config = TrainConfig(epochs=1, batch_size=64, lr=1e-2, weight_decay=0.2, clip_grad=0.5, label_smoothing=0.1)
    # Without biases at the keys: softmax cancels them, so their gradient is rounding error, which Adam blows up.
    ours, theirs = (small_model(drop_rate=0.0, qkv_bias=False) for _ in range(2))
    optimizer = make_optimizer(ours, config)
    loss, accuracy = train_epoch(ours, optimizer, train, 0, config)

    decay = [p for n, p in theirs.named_parameters() if n.endswith("weight") and p.ndim > 1]
    rest = [p for n, p in theirs.named_parameters() if not (n.endswith("weight") and p.ndim > 1)]
    adam = torch.optim.AdamW([{"params": decay, "weight_decay": 0.2}, {"params": rest, "weight_decay": 0.0}])
    total = right = 0
    for step, batch in enumerate(batches_of(200, 0, config)):
        logits = theirs((train.images[batch] / 255 - 0.5) / 0.5)
        mean = F.cross_entropy(logits, train.labels[batch], label_smoothing=0.1)
        adam.zero_grad()
        mean.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        for group in adam.param_groups:
            group["lr"] = lr_at(step, 4, config)
        adam.step()
        total, right = total + mean.item() * len(batch), right + (logits.argmax(1) == train.labels[batch]).sum().item()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert (loss, accuracy) == pytest.approx((total / 200, right / 200), abs=1e-5)


def test_fit_learns_and_reports_plain_data(digits):
    model = small_model(drop_rate=0.0)
    history = fit(model, *digits, replace(CONFIG, epochs=15, lr=1e-2, augment=Augment()), progress=False)
    assert len(history) == 15
    assert all(type(value) is float for entry in history for value in entry.values())
    assert history[-1]["train_loss"] < 0.7 * history[0]["train_loss"]
    assert history[-1]["val_accuracy"] > 0.5
    # What was reported last is what the returned weights give: the average is in the model.
    assert evaluate(model, digits[1], CONFIG)["loss"] == pytest.approx(history[-1]["val_loss"], abs=1e-6)


def test_same_seed_same_result_and_another_seed_another(digits):
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed * 100)  # the state outside does not matter
        model = small_model()
        history = fit(model, *digits, replace(CONFIG, seed=seed, epochs=2), progress=False)
        runs.append((model, [entry["train_loss"] for entry in history]))
    (first, losses), (second, losses_again), (third, _) = runs
    assert losses == losses_again
    assert same_weights(first, second)
    assert not same_weights(first, third)


def test_the_first_bad_step_is_named():
    losses = torch.tensor([1.0, 2.0, math.inf, math.nan])
    config = TrainConfig(epochs=2, lr=0.5, warmup=0.0)
    rate = lr_at(6, 8, config)
    with pytest.raises(FloatingPointError, match=f"loss is inf at step 6 of 8, learning rate {rate:.2g}.*lr than 0.5"):
        stop_unless_finite(losses, 1, config)
    stop_unless_finite(losses[:2], 1, config)


@pytest.mark.parametrize(("lr", "what"), [(1e30, "the validation loss is nan"), (1e45, "cls_token is not finite")])
def test_a_run_that_diverges_in_its_last_step_is_stopped(digits, tmp_path, lr, what):
    """No training loss is taken after it. The checkpoint must not hold it either: it could never go on."""
    train, path = digits[0], tmp_path / "c.pt"
    config = replace(CONFIG, epochs=1, batch_size=len(train), lr=lr, warmup=0.0, clip_grad=0.0, ema=0.0)
    said = re.escape(f"{what} after step 0 of 1, learning rate {lr:.2g}. Try a lower lr")
    with pytest.raises(FloatingPointError, match=said):
        fit(small_model(), *digits, config, progress=False, checkpoint=path)
    assert not path.exists()


def test_a_stopped_run_leaves_the_last_good_checkpoint(digits, tmp_path, monkeypatch):
    config, path = replace(CONFIG, epochs=2), tmp_path / "c.pt"
    whole = fit(small_model(), *digits, config, progress=False, checkpoint=path)
    good = path.read_bytes()

    def half(part, content):
        with part.open("wb") as file:
            file.write(content[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")  # as a full disk says it: without a path

    model = small_model()
    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match=r"No space left on device: '.*c\.pt'"):
        save_checkpoint(path, model, make_optimizer(model, config), None, config, whole)
    assert path.read_bytes() == good and list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_cut_anywhere_or_with_one_bit_changed_is_named(tmp_path):
    """torch.load alone says "[Errno 22] Invalid argument" at most cuts, and loads most changed bits unnoticed."""
    model, path = small_model(), tmp_path / "c.pt"
    optimizer = make_optimizer(model, CONFIG)
    save_checkpoint(path, model, optimizer, None, CONFIG, [])
    good, weights = path.read_bytes(), small_model()
    refused = partial(
        pytest.raises, ValueError, match=r"c\.pt is not a whole checkpoint: .+\. Move it elsewhere to start afresh"
    )
    for place in range(0, len(good), len(good) // 101):
        path.write_bytes(good[:place])
        with refused():
            load_checkpoint(path, model, optimizer, None, CONFIG)
        changed = bytearray(good)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            load_checkpoint(path, model, optimizer, None, CONFIG)
        except ValueError as error:
            assert "c.pt is not a whole checkpoint" in str(error)
        else:  # a bit of the padding between the tensors
            assert same_weights(model, weights)


# Evaluation


def test_evaluation_is_without_dropout_and_leaves_the_mode(digits):
    model, (_, val) = small_model(drop_rate=0.5), digits
    model.train()
    assert torch.equal(predict(model, val, CONFIG), predict(model, val, CONFIG))
    assert model.training
    model.eval()
    torch.testing.assert_close(
        predict(model, val, replace(CONFIG, batch_size=7)), model(to_input(val.images, CONFIG)).detach()
    )
    assert not model.training


def test_evaluation_against_sklearn(digits):
    model, (_, val) = small_model(), digits
    fit(model, *digits, CONFIG, progress=False)
    scores = evaluate(model, val, CONFIG)
    logits = model.eval()(to_input(val.images, CONFIG)).detach()
    predicted = logits.argmax(1).numpy()
    expected = confusion_matrix(val.labels.numpy(), predicted, labels=range(10))
    assert np.array_equal(scores["confusion"], expected)
    assert not np.array_equal(expected, expected.T)  # else rows and columns could be mixed up unseen
    assert scores["accuracy"] == pytest.approx(np.trace(expected) / 50)
    assert scores["loss"] == pytest.approx(F.cross_entropy(logits, val.labels).item(), abs=1e-6)
    smoothed = evaluate(model, val, replace(CONFIG, label_smoothing=0.3))
    assert smoothed["loss"] == pytest.approx(scores["loss"])
    assert balanced_accuracy(scores["confusion"]) == pytest.approx(balanced_accuracy_score(val.labels, predicted))
    seen = torch.arange(50) % 3 == 0
    marked = evaluate(model, replace(val, trained_on=seen), CONFIG)
    rest = (torch.from_numpy(predicted) == val.labels)[~seen].double().mean().item()
    assert (marked["trained_on"], marked["accuracy_without"]) == (17, pytest.approx(rest))
    assert evaluate(model, replace(val, trained_on=seen | True), CONFIG)["accuracy_without"] is None
    assert evaluate(model, replace(val, trained_on=seen & False), CONFIG) == scores


@pytest.mark.parametrize("num_classes", [9, 11, 1, 0])
def test_a_model_for_another_number_of_classes(digits, num_classes, no_shape_checks):
    model = small_model(num_classes=num_classes)
    width = num_classes or MODEL.embed_dim
    message = rf"logits are \({{}}, {width}\), targets \({{}}, 10\): .* num_classes to 10"
    with pytest.raises(ValueError, match=message.format(32, 32)):
        fit(model, *digits, CONFIG, progress=False)
    with pytest.raises(ValueError, match=message.format(50, 50)):
        evaluate(model, digits[1], CONFIG)


# Checkpoints


def test_checkpoint_of_another_model_is_refused(digits, tmp_path):
    """A plain TrainConfig does not say which model it was."""
    path, config = tmp_path / "c.pt", replace(CONFIG, epochs=1)
    fit(small_model(), *digits, config, progress=False, checkpoint=path)
    with pytest.raises(
        ValueError,
        match=r"c\.pt belongs to another model: .*Missing key.*blocks\.2.*….*Move it elsewhere, or rename this run",
    ):
        fit(small_model(depth=MODEL.depth + 1), *digits, config, progress=False, checkpoint=path)


def test_checkpoint_of_another_run_is_refused(digits, tmp_path):
    path = tmp_path / "c.pt"
    config = replace(CONFIG, epochs=1)
    fit(small_model(), *digits, config, progress=False, checkpoint=path)
    with pytest.raises(
        ValueError, match=r"c\.pt belongs to another run: it has lr=0.003.*, this run lr=0.004.*Move it elsewhere"
    ):
        fit(small_model(), *digits, replace(config, lr=4e-3), progress=False, checkpoint=path)


def test_a_run_does_not_go_on_with_a_folder_that_has_changed(tmp_path):
    write_tree(tmp_path / "own", ("ape", "bee"), 20)
    config, path = replace(CONFIG, epochs=1), tmp_path / "c.pt"
    options = {"img_size": MODEL.img_size, "root": tmp_path}

    def run():
        splits = [load_dataset(f"folder:{tmp_path / 'own'}", split, **options) for split in ("train", "val")]
        model = small_model(in_chans=3, num_classes=2)
        return fit(model, *splits, config, progress=False, checkpoint=path)

    assert run() == run()
    (tmp_path / "own/bee/003.png").rename(tmp_path / "own/bee/new.png")
    message = (
        r"c\.pt cannot go on with folder own: 1 image was added; 1 image was removed\. Undo that, or move it elsewhere"
    )
    with pytest.raises(ValueError, match=message):
        run()
    (tmp_path / "own/bee/new.png").rename(tmp_path / "own/bee/003.png")
    (tmp_path / "own/bee").rename(tmp_path / "own/wasp")
    with pytest.raises(ValueError, match="folder own: class 'bee' was renamed or removed; class 'wasp' is new; "):
        run()


def test_checkpoint_reads_no_code(tmp_path):
    model, path = small_model(), tmp_path / "c.pt"
    optimizer = make_optimizer(model, CONFIG)

    class Trap:
        def __reduce__(self):
            return print, ("run!",)

    torch.save({"config": Trap()}, path)
    with pytest.raises(ValueError, match=r"c\.pt is not a whole checkpoint: .*Move it elsewhere"):
        load_checkpoint(path, model, optimizer, None, CONFIG)


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "epochs must be an int of at least 1, got 0"),
        ({"lr": math.nan}, "lr must be a finite number of at least 0, got nan"),
        ({"mean": (0.4, 0.4, 0.4)}, r"mean must be a finite number of at least 0, got \(0.4, 0.4, 0.4\)"),
        ({"std": 0.0}, "std must be above 0"),
        ({"beta2": 2.0}, "beta2 must be at least 0 and below 1, got 2.0"),
        ({"schedule": "linear"}, "schedule must be one of cosine, constant; got 'linear'"),
        ({"decay_all": 1}, "decay_all must be True or False, got 1"),
    ],
)
def test_bad_settings_are_named(arguments, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**arguments)


# GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_no_host_synchronisation_inside_an_epoch(digits):
    train = digits[0].to("cuda")
    model = small_model().to("cuda")
    optimizer = make_optimizer(model, CONFIG)
    counts = []
    for batch_size in (100, 10):
        config = replace(CONFIG, batch_size=batch_size)
        ema = EMA(model, 0.9)
        train_epoch(model, optimizer, train, 0, config, ema)
        torch.cuda.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning) as seen:
            train_epoch(model, optimizer, train, 0, config, ema)
        torch.cuda.set_sync_debug_mode("default")
        counts.append(sum("synchronizing" in str(warning.message) for warning in seen))
    # Those at the beginning and the end of an epoch; 18 steps more add none.
    assert counts[0] == counts[1]


# Several processes


@pytest.mark.parametrize(
    ("device", "processes", "message"),
    [
        ("cuda", 3, r"3 processes need a GPU each, and PyTorch finds 2 here: start at most 2 \(--nproc-per-node\)"),
        ("cuda:1", 2, "2 processes cannot share cuda:1: say cuda, and each takes a GPU of its own"),
    ],
)
def test_more_processes_than_gpus_are_refused(monkeypatch, device, processes, message):
    for name, value in {"RANK": 1, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": processes}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=message), training.process_group(device):
        pytest.fail("was started")
