"""A training loop that fits on one screen, and what it needs: schedule, parameter groups, evaluation (chapter 6)."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from vit_tutorial.augment.policy import Augment
from vit_tutorial.data.images import Dataset, ImageFiles
from vit_tutorial.training.checkpoints import load_checkpoint, save_checkpoint
from vit_tutorial.training.distributed import rank_and_world
from vit_tutorial.training.ema import EMA
from vit_tutorial.training.optimizers import MuonWithAdamW, parameter_groups
from vit_tutorial.validate import check_bool, check_fraction, check_int, check_kind, check_number, check_option, checked

PRECISIONS = ("auto", "fp32", "bf16")
AfterEpoch = Callable[[nn.Module, list[dict[str, float]]], None]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained.

    Args:
        epochs: how often every training image is seen.
        batch_size: images in a step, over all processes.
        lr: the highest learning rate.
        schedule: ``"cosine"`` (linear warm-up, then cosine to 0) or ``"constant"``.
        warmup: fraction of all steps in which the learning rate rises.
        optimizer: ``"adamw"``, ``"adam"``, or ``"muon"`` for the matrices in the blocks with AdamW for the rest.
        weight_decay: on matrices only; norms, biases, positions and class token have none.
        decay_all: decay those too.
        beta2: Adam's second decay rate.
        label_smoothing: fraction of the target that is spread over all classes.
        clip_grad: largest norm of the gradient; 0 turns it off.
        ema: decay per step of the exponential moving average of the weights, which is evaluated; 0 turns it off.
        mean: inputs are (pixel − mean) / std, pixels in 0..1.
        std: see ``mean``; above 0.
        augment: random changes to the training images; see ``vit_tutorial.augment``.
        precision: of the forward pass in training, and of Muon's products: ``"fp32"``, ``"bf16"``, or ``"auto"``; see
            ``in_bf16``.
        compile: run the model through ``torch.compile``.
        seed: of the weights, the order and the augmentation.

    Raises:
        ValueError: if a value is out of range or an option unknown.
    """

    epochs: int = 10
    batch_size: int = 128
    lr: float = 1e-3
    schedule: str = "cosine"
    warmup: float = 0.1
    optimizer: str = "adamw"
    weight_decay: float = 0.05
    decay_all: bool = False
    beta2: float = 0.999
    label_smoothing: float = 0.0
    clip_grad: float = 1.0
    ema: float = 0.0
    mean: float = 0.5
    std: float = 0.5
    augment: Augment = field(default_factory=Augment)
    precision: str = "auto"
    compile: bool = False
    seed: int = 0

    def __post_init__(self):
        for name, allowed in (
            ("schedule", ("cosine", "constant")),
            ("optimizer", ("adamw", "adam", "muon")),
            ("precision", PRECISIONS),
        ):
            check_option(name, getattr(self, name), allowed)
        for name, low in (("epochs", 1), ("batch_size", 1), ("seed", 0)):
            check_int(name, getattr(self, name), low)
        for name in ("lr", "weight_decay", "clip_grad", "mean", "std"):
            check_number(name, getattr(self, name), 0)
        if self.std == 0:
            raise ValueError("std must be above 0: pixels are divided by it")
        for name in ("decay_all", "compile"):
            check_bool(name, getattr(self, name))
        for name in ("warmup", "beta2", "label_smoothing", "ema"):
            check_fraction(name, getattr(self, name))
        check_kind("augment", self.augment, Augment)


@checked
def lr_at(step: int, total_steps: int, config: TrainConfig) -> float:
    """The learning rate of a step.

    Args:
        step: its index in the whole run, from 0.
        total_steps: of all epochs.
        config: the schedule.
    """
    check_int("step", step, 0)
    check_int("total_steps", total_steps, 1)
    if config.schedule == "constant":
        return config.lr
    warmup_steps = int(config.warmup * total_steps)
    if step < warmup_steps:
        return config.lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return config.lr * (1 + math.cos(math.pi * progress)) / 2


@checked
def to_input(images: Shaped[Tensor, "b c H W"], config: TrainConfig) -> Float[Tensor, "b c H W"]:
    """Convert bytes, or floating point in 0..1, to the model's input.

    Raises:
        ValueError: if images are neither, or a pixel is NaN or infinite.
    """
    if images.dtype == torch.uint8:
        return _normalize(images.float() / 255, config)
    if not images.is_floating_point():
        raise ValueError(f"images must be bytes, torch.uint8, or floating point in 0..1, got {images.dtype}")
    bad = (~images.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"pixels must be finite, got NaN or infinity in {len(bad)} of {len(images)} images: {bad[:5]}")
    return _normalize(images, config)


def _normalize(images: Tensor, config: TrainConfig) -> Tensor:
    return (images - config.mean) / config.std


@checked
def loss_of(logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"], config: TrainConfig) -> Float[Tensor, ""]:
    """Cross-entropy against targets that may be soft.

    Raises:
        ValueError: if logits and targets differ in shape.
    """
    if logits.shape != targets.shape:
        raise ValueError(
            f"logits are {tuple(logits.shape)}, targets {tuple(targets.shape)}: they must be equal. "
            f"Set the model's num_classes to {targets.shape[-1]}"
        )
    return F.cross_entropy(logits, targets, label_smoothing=config.label_smoothing)


@checked
def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | MuonWithAdamW,
    train: Dataset | ImageFiles,
    epoch: int,
    config: TrainConfig,
    ema: EMA | None = None,
    bar: tqdm | None = None,
) -> tuple[float, float]:
    """One epoch: every training image is seen once.

    All randomness of an epoch follows from the seed and the epoch's index, so a run can go on at any epoch. The forward
    pass and Muon's products are in bf16 if :func:`in_bf16` says so; weights, loss and evaluation are always fp32.

    Args:
        model: trained in place, on its own device.
        optimizer: of its parameters; see :func:`make_optimizer`.
        train: the training images; their labels are below the model's ``num_classes``.
        epoch: its index, from 0.
        config: how to train.
        ema: moved towards the model after each step.
        bar: moved on by the images of each step.

    Returns:
        the mean loss and the accuracy, in 0..1, of the model as it was at each step.

    Raises:
        ValueError: if the model is for another number of classes.
        FloatingPointError: if the loss is not finite.
    """
    device, (rank, world) = next(model.parameters()).device, rank_and_world()
    torch.manual_seed(_mix(config.seed, epoch, rank, 1))  # dropout
    generator = torch.Generator(device).manual_seed(_mix(config.seed, epoch, rank))  # augmentation
    batches = batches_of(len(train), epoch, config)
    sizes, steps = [len(batch) for batch in batches], len(batches)
    # The sums stay on the device until the end: reading them at each step would make a GPU wait.
    losses, correct = torch.zeros(steps, device=device), torch.zeros((), device=device)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=in_bf16(device, config.precision))
    model.train()
    for i, (images, labels) in enumerate(train.batches([batch[rank::world] for batch in batches], device)):
        step = epoch * steps + i
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step, steps * config.epochs, config)
        targets = F.one_hot(labels, len(train.classes)).float()
        images, targets = config.augment(images.float() / 255, targets, generator)
        with autocast:
            logits = model(_normalize(images, config)).float()  # to_input's look at each pixel would make a GPU wait
        # Processes average their gradients; weighting by their fraction makes that the mean over the whole batch.
        loss = loss_of(logits, targets, config) * (len(labels) * world / sizes[i])
        optimizer.zero_grad()
        loss.backward()
        if config.clip_grad:
            nn.utils.clip_grad_norm_(model.parameters(), config.clip_grad)
        with autocast:
            optimizer.step()
        if ema:
            ema.update(step)
        losses[i] = loss.detach() * (sizes[i] / world)
        correct += (logits.argmax(-1) == targets.argmax(-1)).sum()
        if bar is not None:
            bar.update(sizes[i])
    if world > 1:
        dist.all_reduce(losses)
        dist.all_reduce(correct)
    stop_unless_finite(losses, epoch, config)
    return losses.sum().item() / sum(sizes), correct.item() / sum(sizes)


@checked
def in_bf16(device: torch.device | str, precision: str = "auto") -> bool:
    """Whether the forward pass and Muon's products are in bf16 on a device.

    With ``"auto"`` it is on GPUs that have units for it; a T4, for example, would only emulate them. On a CPU it has to
    be requested: not all have such units, and two CPUs that differ only in that should give the same run.

    Everything else is fp32, with PyTorch's own settings: a GPU that has TF32 rounds what goes into a convolution, here
    the patch embedding, to 10 bits, unless ``torch.backends.cudnn.allow_tf32`` is false.
    """
    check_option("precision", precision, PRECISIONS)
    if precision != "auto":
        return precision == "bf16"
    return torch.device(device).type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


@checked
def batches_of(num_images: int, epoch: int, config: TrainConfig) -> list[Int64[Tensor, " _"]]:
    """The indices of all images in the order of epoch ``epoch``, cut into batches; the last one may be smaller.

    If it has fewer images than there are processes, it is left out: each process needs one.
    """
    order = torch.randperm(num_images, generator=torch.Generator().manual_seed(_mix(config.seed, epoch)))
    return [batch for batch in order.split(config.batch_size) if len(batch) >= rank_and_world()[1]]


@checked
def fit(
    model: nn.Module,
    train: Dataset | ImageFiles,
    val: Dataset | ImageFiles,
    config: TrainConfig,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    after_epoch: AfterEpoch | None = None,
) -> list[dict[str, float]]:
    """Train ``model`` in place.

    Args:
        model: takes ``(b, c, H, W)``, gives logits ``(b, k)``, k the number of classes of the data.
        train: the training images.
        val: the validation images, which are evaluated after each epoch.
        config: how to train.
        device: where to train; the model stays there.
        checkpoint: a file that is rewritten after each epoch, and from which an interrupted run goes on.
        progress: whether to show a progress bar.
        after_epoch: called with the model, in evaluation mode and with the weights that were evaluated, and the history
            so far; of several processes only the first calls it. See ``plots.LiveCurves``.

    Returns:
        the history, an entry for each epoch: train and validation loss and accuracy, learning rate at the end,
        seconds for both.

    Raises:
        ValueError: if the model is for another number of classes, the batch cannot be divided among the processes, or
            the checkpoint belongs to another run or to a folder that has changed since.
        FloatingPointError: if a loss or a weight is not finite; the message has the step, the learning rate and what
            to try.
    """
    rank, world = rank_and_world()
    if config.batch_size % world:
        raise ValueError(f"batch_size {config.batch_size} is not divisible by the number of processes {world}")
    model.to(device)
    train, val = train.to(device), val.to(device)
    optimizer = make_optimizer(model, config)
    ema = EMA(model, config.ema) if config.ema else None
    evaluated = ema.weights if ema else nullcontext
    history = []
    if checkpoint and Path(checkpoint).exists():
        history = load_checkpoint(checkpoint, model, optimizer, ema, config, train)
    run = DistributedDataParallel(model) if world > 1 else model
    run = torch.compile(run) if config.compile else run
    images = len(train) * config.epochs
    with tqdm(
        total=images,
        initial=len(train) * len(history),
        unit=" images",
        unit_scale=True,
        disable=not progress or rank > 0,
    ) as bar:
        for epoch in range(len(history), config.epochs):
            start = time.perf_counter()
            train_loss, train_accuracy = train_epoch(run, optimizer, train, epoch, config, ema, bar)
            with evaluated():
                scores = evaluate(model, val, config)
            _stop_unless_sound(model, scores["loss"], epoch, len(batches_of(len(train), epoch, config)), config)
            history.append(
                {
                    "train_loss": train_loss,
                    "train_accuracy": train_accuracy,
                    "val_loss": scores["loss"],
                    "val_accuracy": scores["accuracy"],
                    "lr": optimizer.param_groups[0]["lr"],
                    "seconds": time.perf_counter() - start,
                }
            )
            bar.set_postfix_str(
                f"epoch {epoch + 1}/{config.epochs}: loss {train_loss:.3f}, accuracy {train_accuracy:.2%}, "
                f"validation {scores['accuracy']:.2%}"
            )
            if after_epoch and rank == 0:
                with evaluated():
                    after_epoch(model.eval(), history)
            if checkpoint and rank == 0:
                save_checkpoint(checkpoint, model, optimizer, ema, config, history, train)
    if ema:
        model.load_state_dict(ema.state)
    return history


@checked
def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer | MuonWithAdamW:
    """The config's optimizer, with decay on matrices only, or on everything."""
    betas = (0.9, config.beta2)
    groups = parameter_groups(model, config.weight_decay)
    if config.decay_all:
        groups = [{**group, "weight_decay": config.weight_decay} for group in groups]
    if config.optimizer == "muon":
        return MuonWithAdamW(model, groups, config.lr, betas)
    make = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return make(groups, lr=config.lr, betas=betas, fused=True)


@torch.no_grad()
@checked
def predict(model: nn.Module, dataset: Dataset | ImageFiles, config: TrainConfig) -> Float[Tensor, "n k"]:
    """Logits for every image, in order, in evaluation mode and full precision.

    Args:
        model: it computes on its own device.
        dataset: n images.
        config: its ``mean``, ``std`` and ``batch_size`` are used.

    Returns:
        ``(n, k)``, on the model's device.
    """
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    batches = dataset.batches(torch.arange(len(dataset)).split(config.batch_size), device)
    logits = [model(to_input(images, config)) for images, _ in batches]
    model.train(was_training)
    return torch.cat(logits)


@checked
def evaluate(model: nn.Module, dataset: Dataset | ImageFiles, config: TrainConfig) -> dict[str, Any]:
    """How well a model does on a whole set; args are those of :func:`predict`.

    Returns:
        ``loss``, the mean, without label smoothing; ``accuracy``, in 0..1; ``confusion``, k lists of k counts: a list
        for each true class, in it a count for each predicted one. Where some of the images are training images as well,
        ``trained_on``, their number, and ``accuracy_without`` them, None if there are no others.

    Raises:
        ValueError: if the model is for another number of classes.
    """
    logits = predict(model, dataset, config)
    labels = dataset.labels.to(logits.device)
    num_classes = len(dataset.classes)
    targets = F.one_hot(labels, num_classes).float()
    loss = loss_of(logits, targets, replace(config, label_smoothing=0.0)).item()
    predicted = logits.argmax(-1)
    counts = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    right = (predicted == labels).float()
    scores = {
        "loss": loss,
        "accuracy": right.mean().item(),
        "confusion": counts.reshape(num_classes, num_classes).tolist(),
    }
    if dataset.trained_on is not None and dataset.trained_on.any():
        others = right[~dataset.trained_on.to(right.device)]
        rest = others.mean().item() if len(others) else None
        scores |= {"trained_on": len(right) - len(others), "accuracy_without": rest}
    return scores


@checked
def stop_unless_finite(losses: Float[Tensor, " steps"], epoch: int, config: TrainConfig) -> None:
    """Raise a FloatingPointError that names the first step of the epoch whose loss is not finite."""
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        step, total_steps = epoch * len(losses) + int(bad[0]), len(losses) * config.epochs
        raise _diverged(f"the loss is {losses[bad[0]].item()} at", step, total_steps, config)


def _stop_unless_sound(model: nn.Module, val_loss: float, epoch: int, steps: int, config: TrainConfig) -> None:
    """As :func:`stop_unless_finite`, after an epoch of ``steps``: no later loss shows what the last step did."""
    bad = [name for name, value in model.state_dict().items() if not value.isfinite().all()]
    if bad or not math.isfinite(val_loss):
        what = f"{bad[0]} is not finite" if bad else f"the validation loss is {val_loss}"
        raise _diverged(f"{what} after", (epoch + 1) * steps - 1, steps * config.epochs, config)


def _diverged(what: str, step: int, total_steps: int, config: TrainConfig) -> FloatingPointError:
    return FloatingPointError(
        f"{what} step {step} of {total_steps}, learning rate {lr_at(step, total_steps, config):.2g}. Try a lower lr "
        f"than {config.lr:g}, a longer warmup than {config.warmup:g} of the steps, or clip_grad 1 (now "
        f"{config.clip_grad:g})"
    )


def _mix(*numbers: int) -> int:
    """One seed out of several numbers, so that neither neighbouring seeds nor epochs share their randomness."""
    value = 0
    for number in numbers:
        value = (value * 1_000_003 + number + 1) % 2**63
    return value
