"""Borrowed weights on images of your own: a linear probe, and training further (chapter 9)."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_tutorial.data import Dataset, ImageFiles
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.load import adapt
from vit_tutorial.training.loop import TrainConfig, fit, predict
from vit_tutorial.validate import check_finite, check_int, check_number, checked

PENALTIES = tuple(10.0**power for power in range(-2, 5))
SHARPNESS = (1.0, 2.0, 4.0, 8.0, 16.0)  # a probe's outputs are about −1 and 1; as logits they are too unsure
HELD_OUT = 5  # one image of so many is for validation

Images = Dataset | ImageFiles
Trains = Callable[[str, nn.Parameter], bool]


@checked
def draw_per_class(dataset: Images, per_class: int, seed: int) -> tuple[Images, Images]:
    """``per_class`` images of each class, drawn with a seed: four fifths of them to train on, a fifth to validate.

    Raises:
        ValueError: if a class has fewer images, or ``per_class`` is below 2.
    """
    check_int("per_class", per_class, 2)
    generator, held_out, parts = torch.Generator().manual_seed(seed), max(1, per_class // HELD_OUT), []
    for index, name in enumerate(dataset.classes):
        there = (dataset.labels == index).nonzero().flatten()
        if len(there) < per_class:
            raise ValueError(f"per_class must be at most {len(there)}, the number of images of {name}, got {per_class}")
        parts.append(there[torch.randperm(len(there), generator=generator)[:per_class]])
    drawn = torch.stack(parts)
    return dataset[drawn[:, held_out:].flatten()], dataset[drawn[:, :held_out].flatten()]


@checked
def linear_probe(
    features: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], num_classes: int, ridge: float
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """Weight and bias of the linear layer with the least squared error on targets −1 and 1, and a ridge penalty."""
    check_number("ridge", ridge, 0)
    check_finite("features", features)
    targets = 2 * torch.eye(num_classes, dtype=features.dtype)[labels] - 1
    mean, target_mean = features.mean(dim=0), targets.mean(dim=0)
    centred = features - mean
    gram = centred.T @ centred + ridge * torch.eye(features.shape[1], dtype=features.dtype)
    weight = torch.linalg.solve(gram, centred.T @ (targets - target_mean)).T
    return weight, target_mean - weight @ mean


@checked
def with_probe(model: ViT, train: Images, val: Images, config: TrainConfig) -> ViT:
    """A copy of ``model`` whose head is a linear probe: of those with each of ``PENALTIES`` the one best on ``val``.

    Its outputs are multiplied by one of ``SHARPNESS``, that with the least cross-entropy on ``val``.

    Args:
        model: its head is ignored.
        train: images to fit the probe to, with any classes.
        val: images of the same classes, to choose the penalty.
        config: its ``mean``, ``std`` and ``batch_size`` are used.

    Source: Dosovitskiy et al. 2021, section 4.1.
    """
    headless, num_classes = adapt(model, num_classes=0), len(train.classes)
    features, held_out = (predict(headless, part, config).cpu() for part in (train, val))
    labels, answers = train.labels.cpu(), val.labels.cpu()
    probes = [linear_probe(features, labels, num_classes, ridge) for ridge in PENALTIES]

    def on_val(probe: tuple[Tensor, Tensor]) -> Tensor:
        return held_out @ probe[0].T + probe[1]

    weight, bias = best = max(probes, key=lambda probe: int((on_val(probe).argmax(dim=1) == answers).sum()))
    scale = min(SHARPNESS, key=lambda factor: F.cross_entropy(factor * on_val(best), answers).item())
    probed = adapt(headless, num_classes=num_classes)
    probed.load_state_dict(probed.state_dict() | {"head.weight": scale * weight, "head.bias": scale * bias})
    return probed


def everything(name: str, parameter: nn.Parameter) -> bool:
    """All weights, for :func:`fine_tune`."""
    return True


def norms_and_biases(name: str, parameter: nn.Parameter) -> bool:
    """Norms, biases and the head, for :func:`fine_tune`.

    Source: Ben Zaken et al. 2022, arXiv:2106.10199, trains the biases alone.
    """
    return parameter.ndim == 1 or name.startswith("head.")


@checked
def fine_tune(model: ViT, train: Images, val: Images, config: TrainConfig, trains: Trains = everything) -> ViT:
    """A copy of ``model``, trained further.

    Args:
        model: with a head for the images' classes, such as that of :func:`with_probe`.
        train: images to train on.
        val: images to validate on, after each epoch.
        config: how to train. Search its ``lr`` below what is used from scratch.
        trains: whether a parameter is trained, by its name and values.

    Raises:
        ValueError, FloatingPointError: as :func:`~vit_tutorial.training.fit`.
    """
    tuned = copy.deepcopy(model)
    for name, parameter in tuned.named_parameters():
        parameter.requires_grad_(trains(name, parameter))
    fit(tuned, train, val, config, device=next(tuned.parameters()).device, progress=False)
    return tuned.eval()
