"""Each name in the registry builds what it says, and only from a config that describes it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.archs import ARCHS, OWN_WEIGHTS, PostNormBlock, ResNet, Shuffled, patients
from vit_tutorial.archs.patients import SoftmaxHead
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.recipes import INITS, Recipe, make_model

CONFIG = ViTConfig(img_size=(12, 8), patch_size=(4, 2), num_classes=5, embed_dim=24, depth=2, num_heads=3)

# What distinguishes an architecture from the healthy ViT: the class of the model, or of one of its parts.
PARTS = {
    "vit": ViT,
    "post-norm": PostNormBlock,
    "softmax-head": SoftmaxHead,
    "resnet": ResNet,
    "shuffled-patches": Shuffled,
    "shuffled-pixels": Shuffled,
    "resnet-shuffled-patches": Shuffled,
    "resnet-shuffled-pixels": Shuffled,
    "patient:softmax before cross-entropy": SoftmaxHead,
    "patient:attention across the batch": patients.SequenceFirstAttention,
    "patient:dead residual norm": patients.DeadNormBlock,
    "patient:reshape without permute": patients.ReshapedPatches,
    "patient:colours last": patients.ColoursLastPatches,
    "patient:no final norm": nn.Identity,
    "patient:per-head slices": patients.SlicedHeads,
    "patient:scale by √dim": ViT,
    "patient:batch-sized class token": patients.BatchSizedClassToken,
    "patient:head on all tokens": patients.HeadOnAllTokens,
    "patient:no position on the class token": patients.NoClassPosition,
    "patient:softmax over the wrong axis": ViT,
    "patient:heads without a transpose": patients.ReshapedHeads,
    "patient:random while evaluating": patients.AlwaysDropout,
}


def config_of(arch: str) -> ViTConfig:
    drop_rate = 0.1 if arch == "patient:random while evaluating" else 0.0
    return replace(CONFIG, final_norm=arch not in ("post-norm", "patient:no final norm"), drop_rate=drop_rate)


def build(arch: str) -> nn.Module:
    torch.manual_seed(0)
    return ARCHS[arch](config_of(arch))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_name_builds_what_it_says(arch):
    model, healthy, images = build(arch), build("vit"), torch.randn(3, 3, 12, 8)
    assert any(type(part) is PARTS[arch] for part in model.modules())
    assert model(images).shape == (3, 5)
    if isinstance(model, ViT):
        assert model.config == config_of(arch)  # so recorded sizes are the model's
    assert torch.allclose(model(images), healthy(images), atol=1e-4) == (arch == "vit")


def test_the_softmax_head_is_the_vit_followed_by_a_softmax():
    images = torch.randn(3, 3, 12, 8)
    assert torch.equal(build("softmax-head")(images), build("vit")(images).softmax(dim=-1))


@pytest.mark.parametrize("inside", ["vit", "resnet"])
@pytest.mark.parametrize(("what", "patch_size"), [("patches", (4, 2)), ("pixels", (1, 1))])
def test_a_shuffled_model_is_the_plain_one_on_shuffled_images(inside, what, patch_size):
    arch = f"shuffled-{what}" if inside == "vit" else f"resnet-shuffled-{what}"
    model, plain, images = build(arch).eval(), build(inside).eval(), torch.randn(3, 3, 12, 8)
    assert all(torch.equal(value, plain.state_dict()[key[6:]]) for key, value in model.state_dict().items())
    pieces = patchify(images, patch_size)
    order = torch.randperm(pieces.shape[1], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        model(images), plain(unpatchify(pieces[:, order], patch_size, (12 // patch_size[0], 8 // patch_size[1])))
    )


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_recipe_s_init_reaches_every_layer_or_is_refused(arch, init):
    if init != "xavier" and arch in OWN_WEIGHTS:
        with pytest.raises(ValueError, match=f"init must be 'xavier' for arch '{arch}'"):
            Recipe(dataset="shapes", model=config_of(arch), arch=arch, init=init)
        return
    drawn = make_model(Recipe(dataset="shapes", model=config_of(arch), arch=arch, init=init, seed=5))
    torch.manual_seed(5)
    expected = ARCHS[arch](config_of(arch))
    INITS[init](expected)
    torch.testing.assert_close(drawn.state_dict(), expected.state_dict(), rtol=0, atol=0)
