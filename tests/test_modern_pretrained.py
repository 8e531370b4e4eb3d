"""timm's models with the parts of today's blocks: as whole models, as weights, and fitted to another size."""

from dataclasses import replace
from functools import partial

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers import RmsNorm, SwiGLU, SwiGLUPacked
from timm.models import Eva, VisionTransformer
from torch import nn
from torch.testing import assert_close

from vit_tutorial import Block, ViT, ViTConfig
from vit_tutorial.archs import post_norm
from vit_tutorial.modern import (
    ConvStem,
    ModernAttention,
    ModernBlock,
    ModernViT,
    SequencePool,
    ShawAttention,
    axial_rope,
)
from vit_tutorial.pretrained import adapt, from_state_dict, from_timm, load_pretrained, load_weights
from vit_tutorial.pretrained.state_dicts import with_parts

SIZES = {"img_size": 30, "patch_size": 6, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
AVERAGE = {"global_pool": "avg", "class_token": False, "fc_norm": False}
GATED = {"mlp_layer": SwiGLU, "act_layer": nn.SiLU}
MODERN = {
    "LayerScale": {"init_values": 0.1},
    "QK-norm": {"qk_norm": True},
    "RMSNorm": {"norm_layer": RmsNorm},
    "SwiGLU": GATED,
    "SwiGLUPacked": GATED | {"mlp_layer": SwiGLUPacked},
    "MAP head": {"global_pool": "map", "class_token": False},
    "MAP head beside a class token": {"global_pool": "map", "reg_tokens": 4},
    "registers": {"reg_tokens": 4, "no_embed_class": True},
    "registers with positions": {"reg_tokens": 4},
    "registers without a class token": AVERAGE | {"reg_tokens": 2},
    "all": GATED | {"init_values": 0.1, "qk_norm": True, "norm_layer": RmsNorm, "reg_tokens": 3, "qkv_bias": False},
}


def _timm(**options):
    torch.manual_seed(1)
    model = VisionTransformer(**SIZES | options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def _same(ours, theirs):
    images = torch.randn(2, 3, *ours.config.img_size)
    with torch.no_grad():
        assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODERN)
def test_timm_s_models_with_modern_parts_come_over(name):
    theirs = _timm(**MODERN[name])
    before = torch.random.get_rng_state()
    for ours in (from_timm(theirs), with_parts(theirs.state_dict(), num_heads=3)):
        assert isinstance(ours, ModernViT)
        assert not ours.training
        assert torch.equal(torch.random.get_rng_state(), before)
        _same(ours, theirs)
        torch.random.set_rng_state(before)


def test_what_weights_do_not_tell_is_read_from_the_model():
    tanh = partial(nn.GELU, approximate="tanh")
    for options in ({"norm_layer": partial(RmsNorm, eps=0.1)}, {"global_pool": "map", "act_layer": tanh}):
        theirs = _timm(**options)
        _same(from_timm(theirs), theirs)
        other = with_parts(theirs.state_dict(), num_heads=3)
        images = torch.randn(2, 3, 30, 30)
        assert not torch.allclose(other(images), theirs(images), atol=1e-5)  # the wrong answer
    oblong = _timm(img_size=(18, 42), reg_tokens=4, no_embed_class=True)
    _same(from_timm(oblong), oblong)
    plain = _timm(no_embed_class=True)
    assert type(from_timm(plain)) is ViT
    _same(from_timm(plain), plain)


def test_a_model_of_ours_comes_back_from_its_weights():
    config = ViTConfig(**SIZES, pool="mean")
    ours = ModernViT(config, attn_pool=SequencePool, reg_tokens=2, block=partial(ModernBlock, init_values=0.1)).eval()
    _same(with_parts(ours.state_dict(), num_heads=3), ours)


def test_gates_in_the_wrong_half_are_refused():
    wrong = partial(timm.layers.GluMlp, act_layer=nn.SiLU)
    with pytest.raises(ValueError, match=r"blocks.0.mlp.act must gate by the first half of fc1, .* gate_last is True"):
        from_timm(_timm(mlp_layer=lambda act_layer, **sizes: wrong(**sizes)))


@pytest.mark.parametrize("name", ["registers", "all", "MAP head"])
def test_another_size_and_other_classes(name):
    ours = from_timm(_timm(**MODERN[name]))
    assert adapt(ours, img_size=30) is ours
    larger = adapt(ours, img_size=48, num_classes=3)
    assert type(larger) is ModernViT
    assert larger(torch.randn(2, 3, 48, 48)).shape == (2, 3)
    again = adapt(larger, img_size=30)
    kept = {key: value for key, value in ours.state_dict().items() if key != "pos_embed" and "head" not in key}
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in kept.items())
    dropping = ModernViT(ours.config, patch_drop=0.25)
    assert adapt(dropping, num_classes=3).patch_drop.prob == 0.25


@pytest.mark.parametrize("name", ["registers", "registers with positions", "all"])
def test_a_file_is_fitted_to_another_size(name, tmp_path):
    theirs = _timm(**MODERN[name])
    save_file(theirs.state_dict(), tmp_path / "weights.safetensors")
    _same(load_pretrained(tmp_path / "weights.safetensors", num_heads=3), theirs)
    larger = load_pretrained(tmp_path / "weights.safetensors", num_heads=3, img_size=48, num_classes=3)
    assert larger.config == replace(from_timm(theirs).config, img_size=48, num_classes=3)
    torch.testing.assert_close(larger.pos_embed, adapt(from_timm(theirs), img_size=48).pos_embed)


def test_parts_that_are_made_for_a_grid_are_not_adapted(no_shape_checks):
    config = ViTConfig(**SIZES)
    rope = partial(ModernAttention, rope=partial(axial_rope, grid_size=5))
    others = {
        "Rope": ViT(config, block=partial(Block, attn=rope)),
        "ShawAttention": ViT(config, block=partial(Block, attn=partial(ShawAttention, grid_size=5))),
        "ConvStem": ViT(ViTConfig(**SIZES | {"img_size": 32, "patch_size": 8}), patch_embed=ConvStem),
        "PostNormBlock": post_norm(config),
    }
    for kind, model in others.items():
        with pytest.raises(ValueError, match=rf"adapt does not know how to make a {kind} for another size"):
            adapt(model, num_classes=3)


def test_a_plain_model_says_what_modern_weights_have():
    with pytest.raises(ValueError, match=r"a LayerScale in its blocks, .*: our ViT cannot compute it"):
        load_weights(ViT(ViTConfig(**SIZES)), _timm(init_values=0.1).state_dict())


ROTARY = {"use_rot_pos_emb": True, "use_abs_pos_emb": False, "qkv_bias": False, "use_fc_norm": False}
TOKEN = ROTARY | {"global_pool": "token", "init_values": 0.1}
EVAS = {
    "DINOv3": TOKEN | {"rope_type": "dinov3", "rope_temperature": 100, "rope_rotate_half": True, "num_reg_tokens": 4},
    "DINOv3, gated": TOKEN | {"rope_type": "dinov3", "swiglu_mlp": True, "swiglu_align_to": 8, "num_reg_tokens": 4},
    "RoPE-ViT, axial": TOKEN | {"rope_grid_indexing": "xy", "rope_temperature": 100.0, "attn_type": "rope"},
    "RoPE-ViT, mixed": TOKEN | {"rope_type": "mixed", "rope_grid_indexing": "xy", "attn_type": "rope"},
    "mixed by rows": TOKEN | {"rope_type": "mixed"},
    "with biases": TOKEN | {"qkv_bias": True, "use_abs_pos_emb": True, "no_embed_class": True, "num_reg_tokens": 2},
    "packed, of means": ROTARY | {"global_pool": "avg", "class_token": False, "swiglu_mlp": True},
    "another grid than before": TOKEN | {"ref_feat_shape": 3, "rope_grid_offset": 0.5, "qk_norm": True},
    "fitted at each call": TOKEN | {"rope_type": "dinov3", "dynamic_img_size": True},
}


def _eva(**options):
    torch.manual_seed(1)
    model = Eva(**SIZES | {"img_size": (18, 30), "head_init_scale": 1.0} | options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


@pytest.mark.parametrize("name", EVAS)
def test_timm_s_rotary_models_come_over(name):
    theirs = _eva(**{"embed_dim": 24, "num_heads": 3} | EVAS[name])
    before = torch.random.get_rng_state()
    ours = from_timm(theirs.train())
    theirs.eval()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not ours.training
    _same(ours, theirs)
    for block in ours.blocks:
        block.attn.rope = nn.Identity()
    images = torch.randn(2, 3, 18, 30)
    assert not torch.allclose(ours(images), theirs(images), atol=0.01), "without rotation it should fail"


NOT_FROM_EVA = {
    r"blocks of the kind EvaBlockPostNorm: their norms follow": {"use_post_norm": True},
    r"unexpected \(blocks.0.attn.norm.weight": {"scale_attn_inner": True},
    r"global_pool 'avg' and a class token": {"global_pool": "avg"},
    r"unexpected \(fc_norm.weight": {"use_fc_norm": True},
}


@pytest.mark.parametrize("message", NOT_FROM_EVA)
def test_what_ours_lacks_is_named(message):
    with pytest.raises(ValueError, match=message):
        from_timm(_eva(**TOKEN | NOT_FROM_EVA[message]))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"init_values": 1.0}, "a LayerScale"),
        ({"qk_norm": True}, "norms for queries and keys"),
        ({"reg_tokens": 2}, "register tokens"),
        ({"init_values": 0.1, "reg_tokens": 2}, "a LayerScale .* register tokens"),
        ({"mlp_layer": timm.layers.SwiGLUPacked}, "a gated MLP"),
        ({"norm_layer": RmsNorm}, "Norms without a bias are RMSNorms"),
    ],
)
def test_a_plain_model_is_not_made_of_weights_with_other_parts(options, named):
    with pytest.raises(ValueError, match=rf"{named}.*ModernViT can: load_pretrained reads it from a file"):
        from_state_dict(_timm(**options).state_dict(), num_heads=3)


def test_registers_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"reg_token must be the \(1, r, d\) of r tokens, got \(3,\)"):
        with_parts(_timm().state_dict() | {"reg_token": torch.zeros(3)}, num_heads=3)
