"""What an exercise teaches is what the package does."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vit_tutorial import ViT, ViTConfig, plain_attention
from vit_tutorial.augment import cutmix
from vit_tutorial.exercises.recipes import update_ema
from vit_tutorial.exercises.what_matters import equal_width
from vit_tutorial.recipes import RECIPES
from vit_tutorial.speed import training_flops
from vit_tutorial.training import EMA
from vit_tutorial.what_matters import SWEEPS


def test_update_average_is_what_the_package_does():
    model = torch.nn.Linear(3, 2)
    average = EMA(model, 0.8)
    mine = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(12):
        with torch.no_grad():
            model.weight += torch.randn(2, 3)
        average.update(step)
        mine = update_ema(mine, model.state_dict(), 0.8, step)
    torch.testing.assert_close(mine, average.state)


def test_cutmix_of_the_package_mixes_targets_as_the_exercise_does():
    images, targets = torch.arange(1.0, 7)[:, None, None, None].expand(6, 1, 8, 8), torch.eye(6)
    mixed, mixed_targets = cutmix(images, targets, 1.0, torch.Generator().manual_seed(0))
    fractions = torch.stack([(mixed == i + 1).float().mean((1, 2, 3)) for i in range(6)], dim=1)
    torch.testing.assert_close(mixed_targets, fractions)


@pytest.mark.parametrize("name", ["cifar10-tiny", "cifar10-small"])
def test_training_flops_are_what_pytorch_counts(name):
    config = RECIPES[name].model
    model = ViT(replace(config), attend=plain_attention)
    with FlopCounterMode(display=False) as counter:
        model(torch.rand(2, 3, 32, 32))
    assert 3 * counter.get_total_flops() / 2 == training_flops(config)


@pytest.mark.parametrize("depth", [1, 3, 7, 16])
def test_equal_width_keeps_the_number_of_parameters(depth):
    def matrices(depth, dim):
        model = ViT(ViTConfig(img_size=8, patch_size=4, embed_dim=dim, depth=depth, num_heads=2, num_classes=3))
        return sum(parameter.numel() for parameter in model.blocks.parameters() if parameter.ndim > 1)

    assert matrices(depth, equal_width(depth, 4, 120, 2)) == pytest.approx(matrices(4, 120), rel=0.04)


@pytest.mark.parametrize("name", ["mnist", "shapes", "cifar10"])
def test_equal_width_is_what_the_sweeps_have(name):
    base, *others = (SWEEPS[name].recipes[variant].model for variant in ("base", "wide", "deep"))
    for model in others:
        assert equal_width(model.depth, base.depth, base.embed_dim, base.num_heads) == model.embed_dim
