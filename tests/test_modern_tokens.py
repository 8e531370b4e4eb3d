"""Stem, patch dropout, pools and registers against timm's and torchvision's, and what must not be left in a mean."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.layers import AttentionPoolLatent as TimmPool
from timm.layers import PatchDropout as TimmPatchDropout
from timm.models import VisionTransformer
from torch import nn
from torch.testing import assert_close
from torchvision.models.vision_transformer import ConvStemConfig
from torchvision.models.vision_transformer import VisionTransformer as TorchvisionViT

from vit_tutorial import Block, ViT, ViTConfig
from vit_tutorial.modern import (
    AttentionPoolLatent,
    ConvStem,
    ModernAttention,
    ModernViT,
    PatchDropout,
    RMSNorm,
    SequencePool,
    axial_rope,
)

BATCH, TOKENS, DIM, HEADS = 2, 7, 12, 3
SIZES = {"img_size": (8, 12), "patch_size": 4, "in_chans": 3, "num_classes": 5, "embed_dim": DIM, "depth": 2}
CONFIG = ViTConfig(**SIZES, num_heads=HEADS)
MEAN = ViTConfig(**SIZES, num_heads=HEADS, pool="mean")


def _tokens():
    return torch.randn(BATCH, TOKENS, DIM)


def _images():
    return torch.randn(BATCH, 3, 8, 12)


def _shake(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return module


# The stem


def test_conv_stem_equals_torchvision_s():
    widths = (DIM // 2, DIM)
    configs = [ConvStemConfig(width, kernel_size=3, stride=2) for width in widths]
    configs.append(ConvStemConfig(DIM, kernel_size=1, stride=1))
    theirs = TorchvisionViT(8, 4, 1, HEADS, DIM, 24, conv_stem_configs=configs)
    last = nn.Conv2d(DIM, DIM, 1)  # theirs has a norm behind the 1×1 convolution too, and a further 1×1 one
    theirs.conv_proj[2] = nn.Identity()
    theirs.conv_proj.conv_last.load_state_dict(last.state_dict())
    _shake(theirs.conv_proj)
    ours = ConvStem(8, 4, 3, DIM)
    flat = [part for part in theirs.conv_proj.modules() if isinstance(part, nn.Conv2d | nn.BatchNorm2d)]
    for mine, part in zip([p for p in ours.proj if not isinstance(p, nn.ReLU)], flat, strict=True):
        mine.load_state_dict(part.state_dict(), strict=True)
    images = torch.randn(BATCH, 3, 8, 8)
    for training in (True, False):
        assert_close(ours.train(training)(images), theirs.train(training)._process_input(images))


def test_conv_stem_makes_one_token_of_a_patch_that_knows_its_neighbours():
    for patch_size, grid in ((8, 6), ((2, 4), 48), (1, 384)):
        stem = ConvStem((16, 24), patch_size, 3, DIM)
        assert stem(torch.randn(1, 3, 16, 24)).shape == (1, grid, DIM)
    stem = ConvStem((16, 24), 8, 3, DIM).eval()
    images = torch.randn(1, 3, 16, 24)
    changed = images.clone()
    changed[..., :8, 8:16] += 1
    moved = (stem(images) - stem(changed)).abs().amax(dim=-1)[0] > 1e-6
    assert moved.tolist() == [False, True, True, False, True, True], "what is below and to the right sees it too"
    model = ViT(CONFIG, patch_embed=ConvStem)
    assert model(_images()).shape == (BATCH, 5)


# Fewer patches


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_patch_dropout_equals_timm_s_under_the_same_draws(prefix):
    x = _tokens()
    for prob in (0.3, 0.5, 0.9):
        torch.manual_seed(1)
        expected = TimmPatchDropout(prob, num_prefix_tokens=prefix)(x)
        torch.manual_seed(1)
        out = PatchDropout(prob, prefix)(x)
        assert_close(out, expected, rtol=0, atol=0)
        assert out.shape[1] == prefix + max(1, int((TOKENS - prefix) * (1 - prob)))
        assert_close(out[:, :prefix], x[:, :prefix], rtol=0, atol=0)


def test_patch_dropout_keeps_other_patches_of_each_image_each_once_and_all_in_evaluation():
    x = torch.arange(10.0)[None, :, None].expand(50, -1, 1)
    out = PatchDropout(0.5)(x)[..., 0]
    assert (out[:, 0] == 0).all()
    kept = out[:, 1:].int().sort(dim=1).values
    assert kept.shape[1] == 4
    assert (kept.diff(dim=1) > 0).all(), "a patch came twice"
    assert len(kept.unique(dim=0)) > 20, "all images lost the same patches"
    assert set(kept.flatten().tolist()) == set(range(1, 10))
    assert PatchDropout(0.5).eval()(x) is x
    assert PatchDropout(0.0)(x) is x


def test_a_model_trains_on_fewer_patches_and_is_tested_on_all(no_shape_checks):
    seen = []
    model = ModernViT(CONFIG, patch_drop=0.5, reg_tokens=2)
    model.blocks[0].register_forward_hook(lambda part, args, out: seen.append(out.shape[1]))
    model(_images())
    model.eval()(_images())
    assert seen == [1 + 2 + 3, 1 + 2 + 6]
    rope = partial(axial_rope, grid_size=CONFIG.grid_size, num_prefix_tokens=1)
    block = partial(Block, attn=partial(ModernAttention, rope=rope))
    with pytest.raises(ValueError, match=r"x has 4 tokens of 4 features, and there are angles for 7 tokens"):
        ModernViT(CONFIG, block=block, patch_drop=0.5)(_images())


# Pools


def test_sequence_pool_by_hand_and_by_a_loop():
    pool = SequencePool(1)
    pool.load_state_dict({"attention_pool.weight": torch.tensor([[1.0]]), "attention_pool.bias": torch.tensor([7.0])})
    # Scores 0 and ln 3 beside the bias, which a softmax cancels: weights 1/4 and 3/4 of 0 and 1.0986123.
    three = torch.tensor(3.0).log()
    assert_close(pool(torch.tensor([[[0.0], [three]]])), (three * 0.75)[None, None])
    pool, x = SequencePool(DIM), _tokens()
    for image, out in zip(x, pool(x), strict=True):
        weights = torch.stack([pool.attention_pool(token) for token in image]).softmax(dim=0)
        assert_close(out, sum(weight * token for weight, token in zip(weights, image, strict=True)))


def test_attention_pool_loads_timm_s_weights_strictly():
    theirs = _shake(TimmPool(DIM, num_heads=HEADS, mlp_ratio=2.5, norm_layer=partial(nn.LayerNorm, eps=1e-6))).eval()
    ours, x = AttentionPoolLatent(DIM, HEADS, mlp_ratio=2.5), _tokens()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert_close(ours(x), theirs(x))
    assert not torch.allclose(ours(x), x.mean(dim=1), atol=0.1)


def test_a_model_with_timm_s_pool_equals_timm_s():
    theirs = VisionTransformer(**SIZES, num_heads=HEADS, class_token=False, global_pool="map", reg_tokens=2)
    theirs = _shake(theirs).eval()
    state = theirs.state_dict()
    state["reg_token"] = state["reg_token"] + state["pos_embed"][:, :2]  # theirs have positions
    state["pos_embed"] = state["pos_embed"][:, 2:]
    ours = ModernViT(MEAN, reg_tokens=2, attn_pool=partial(AttentionPoolLatent, num_heads=HEADS)).eval()
    ours.load_state_dict(state, strict=True)
    images = _images()
    assert_close(ours.forward_features(images), theirs.forward_features(images)[:, 2:], rtol=1e-4, atol=1e-5)
    assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-5)


# Registers


def test_without_choices_the_model_is_the_plain_one():
    for config in (CONFIG, MEAN):
        theirs, ours, images = _shake(ViT(config)), ModernViT(config), _images()
        ours.load_state_dict(theirs.state_dict(), strict=True)
        assert_close(ours(images), theirs(images), rtol=0, atol=0)


def test_registers_equal_timm_s_beside_a_class_token():
    theirs = VisionTransformer(**SIZES, num_heads=HEADS, reg_tokens=4, no_embed_class=True)
    theirs, ours, images = _shake(theirs).eval(), ModernViT(CONFIG, reg_tokens=4).eval(), _images()
    state = theirs.state_dict()
    state["pos_embed"] = F.pad(state["pos_embed"], (0, 0, 1, 0))  # theirs has no row for the class token
    ours.load_state_dict(state, strict=True)
    assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-5)
    assert ours.forward_features(images).shape == (BATCH, 7, DIM)


def test_registers_are_not_in_the_mean():
    make = partial(VisionTransformer, **SIZES, num_heads=HEADS, class_token=False, global_pool="avg", fc_norm=False)
    make = partial(make, reg_tokens=4, no_embed_class=True)
    theirs = _shake(make()).eval()
    ours, images = ModernViT(MEAN, reg_tokens=4).eval(), _images()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-5)
    left_in = make(pool_include_prefix=True).eval()
    left_in.load_state_dict(theirs.state_dict())
    assert not torch.allclose(ours(images), left_in(images), atol=0.05), "registers left in the pool should fail"


def test_registers_are_read_and_learn_though_they_are_gone_before_the_head():
    for pool in (None, SequencePool):
        model = ModernViT(MEAN, reg_tokens=4, attn_pool=pool)
        images = _images()
        before = model(images)
        before.square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        assert model.reg_token.grad.norm() > 0
        with torch.no_grad():
            model.reg_token.add_(torch.randn_like(model.reg_token))
        assert not torch.allclose(model(images), before, atol=1e-3)


def test_the_last_norm_is_chosen_too():
    assert isinstance(ModernViT(CONFIG, norm=RMSNorm).norm, RMSNorm)
    assert isinstance(ModernViT(ViTConfig(**SIZES, num_heads=HEADS, final_norm=False), norm=RMSNorm).norm, nn.Identity)


# Bad input


def test_errors_state_the_numbers_and_the_rule(no_shape_checks):
    with pytest.raises(ValueError, match=r"patch_size \(6, 6\) must be powers of 2"):
        ConvStem(12, 6, 3, DIM)
    with pytest.raises(ValueError, match=r"embed_dim 12 is not divisible by 2\^3 for 4 halvings: 8"):
        ConvStem(32, 16, 3, DIM)
    with pytest.raises(ValueError, match=r"images are \(8, 8\) pixels, the model takes img_size \(8, 12\)"):
        ConvStem((8, 12), 4, 3, DIM)(torch.randn(1, 3, 8, 8))
    with pytest.raises(ValueError, match=r"prob must be at least 0 and below 1, got 1"):
        PatchDropout(1)
    with pytest.raises(ValueError, match=r"reg_tokens must be an int of at least 0, got -1"):
        ModernViT(CONFIG, reg_tokens=-1)
    with pytest.raises(ValueError, match=r"attn_pool must be a class or function that makes a module, .* SequencePool"):
        ModernViT(CONFIG, attn_pool=SequencePool(DIM))
    with pytest.raises(ValueError, match=r"dim 12 is not divisible by num_heads 8"):
        AttentionPoolLatent(DIM)
