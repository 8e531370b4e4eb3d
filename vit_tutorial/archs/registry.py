"""Every architecture that a recipe can name; each needs only a config."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from vit_tutorial.archs import modern
from vit_tutorial.archs.baselines import Shuffled, post_norm, resnet_like
from vit_tutorial.archs.patients import PATIENTS, SoftmaxHead, last_epoch
from vit_tutorial.config import ViTConfig
from vit_tutorial.model import ViT
from vit_tutorial.validate import check_option

Builder = Callable[[ViTConfig], nn.Module]


def _shuffled(build: Builder, *, pixels: bool) -> Builder:
    """A builder whose model sees every image with its patches, or its pixels, shuffled."""

    def shuffled(config: ViTConfig) -> Shuffled:
        return Shuffled(build(config), config.img_size, (1, 1) if pixels else config.patch_size)

    return shuffled


ARCHS: dict[str, Builder] = {
    "vit": ViT,
    "post-norm": post_norm,
    "softmax-head": SoftmaxHead,
    "resnet": resnet_like,
    "shuffled-patches": _shuffled(ViT, pixels=False),
    "shuffled-pixels": _shuffled(ViT, pixels=True),
    "resnet-shuffled-patches": _shuffled(resnet_like, pixels=False),
    "resnet-shuffled-pixels": _shuffled(resnet_like, pixels=True),
    # A bug in the choice of an epoch leaves the model healthy.
    **{f"patient:{name}": patient.make for name, patient in PATIENTS.items() if patient.select is last_epoch},
    **{f"modern:{name}": build for name, build in modern.MODERN.items()},
}

# By architecture: fields of the config that it is described by, and what they must be.
FIELDS = {f"patient:{name}": patient.changes for name, patient in PATIENTS.items()}
FIELDS |= {f"modern:{name}": fields for name, fields in modern.FIELDS.items()}

# These keep the weights they are built with: they lack layers that the other initializations set.
OWN_WEIGHTS = {name for name in ARCHS if "resnet" in name or "shuffled" in name} | {"patient:per-head slices"}


def check_arch(arch: str, config: ViTConfig) -> None:
    """Check that an architecture can be built from a config, and that the config describes it.

    Raises:
        ValueError: if there is no such architecture; if a patient's bug would change nothing in a model of these
            sizes, or a part doesn't fit them; if a field of the config is not what the architecture has.
    """
    check_option("arch", arch, ARCHS)
    if patient := PATIENTS.get(arch.removeprefix("patient:")):
        patient.check(config)
    for name, value in FIELDS.get(arch, {}).items():
        if getattr(config, name) != value:
            raise ValueError(f"arch {arch!r} needs model.{name} {value}, got {getattr(config, name)}")
    if arch.startswith("modern:"):
        # One block shows whether its parts fit. Not on "meta", whose first model takes a second.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            ARCHS[arch](replace(config, depth=1))
