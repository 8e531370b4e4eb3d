"""A training loop that fits on one screen, and what it needs (chapter 6)."""

from vit_tutorial.training.checkpoints import load_checkpoint, save_checkpoint
from vit_tutorial.training.distributed import process_group, rank_and_world
from vit_tutorial.training.ema import EMA
from vit_tutorial.training.loop import (
    AfterEpoch,
    TrainConfig,
    batches_of,
    evaluate,
    fit,
    in_bf16,
    loss_of,
    lr_at,
    make_optimizer,
    predict,
    stop_unless_finite,
    to_input,
    train_epoch,
)
from vit_tutorial.training.optimizers import Muon, MuonWithAdamW, orthogonalize, parameter_groups
from vit_tutorial.training.scores import balanced_accuracy, explain, never_answered

__all__ = [
    "EMA",
    "AfterEpoch",
    "Muon",
    "MuonWithAdamW",
    "TrainConfig",
    "balanced_accuracy",
    "batches_of",
    "evaluate",
    "explain",
    "fit",
    "in_bf16",
    "load_checkpoint",
    "loss_of",
    "lr_at",
    "make_optimizer",
    "never_answered",
    "orthogonalize",
    "parameter_groups",
    "predict",
    "process_group",
    "rank_and_world",
    "save_checkpoint",
    "stop_unless_finite",
    "to_input",
    "train_epoch",
]
