"""DINOv3 and ViT-5 put together from the parts, and the other rooms with models of such parts in them."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.models import Eva
from torch import nn
from torch.testing import assert_close

from vit_tutorial import Mlp, ViT, ViTConfig, resample_pos_embed
from vit_tutorial.modern import (
    ModernAttention,
    ModernBlock,
    ModernViT,
    RMSNorm,
    Rope,
    SwiGLU,
    axial_angles,
    axial_rope,
    centred_coordinates,
)

SIZES = {"img_size": (24, 16), "patch_size": 4, "in_chans": 3, "num_classes": 5, "embed_dim": 24, "depth": 2}
CONFIG = ViTConfig(**SIZES, num_heads=3, qkv_bias=False)


def dinov3(config: ViTConfig, mlp=Mlp) -> ModernViT:
    """LayerScale, four registers, and no positions but the rotary ones; the large ones have SwiGLU."""
    places = {"grid_size": config.grid_size, "coordinates": centred_coordinates, "halves": True}
    attn = partial(ModernAttention, rope=partial(axial_rope, num_prefix_tokens=1 + 4, **places))
    norm = partial(nn.LayerNorm, eps=1e-5)
    block = partial(ModernBlock, attn=attn, mlp=mlp, norm=norm, init_values=1e-5)
    return ModernViT(replace(config, pos_embed="none"), block=block, norm=norm, reg_tokens=4)


def vit5(config: ViTConfig) -> ModernViT:
    """LayerScale, RMSNorm, QK-norm, rotary and learned positions, four registers with places of their own."""

    def rope(num_heads: int, head_dim: int) -> Rope:
        nowhere = torch.zeros(1, head_dim // 2)  # the class token
        registers = axial_angles((2, 2), head_dim, theta=100.0)
        return Rope(torch.cat([nowhere, registers, axial_angles(config.grid_size, head_dim, theta=10000.0)]))

    attn = partial(ModernAttention, qk_norm=RMSNorm, rope=rope)
    block = partial(ModernBlock, attn=attn, norm=RMSNorm, init_values=1e-4)
    return ModernViT(config, block=block, norm=RMSNorm, reg_tokens=4)


def _shake(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return module


def _images(config=CONFIG):
    return torch.randn(2, config.in_chans, *config.img_size)


# The two models


@pytest.mark.parametrize("mlp", [Mlp, SwiGLU])
def test_dinov3_equals_timm_s(mlp):
    gated = mlp is SwiGLU
    theirs = Eva(
        **SIZES, num_heads=3, qkv_bias=False, global_pool="token", init_values=1e-5, swiglu_mlp=gated,
        swiglu_align_to=8 * gated, rope_type="dinov3", rope_temperature=100, rope_rotate_half=True,
        use_rot_pos_emb=True, use_abs_pos_emb=False, num_reg_tokens=4, use_fc_norm=False,
        norm_layer=partial(nn.LayerNorm, eps=1e-5),
    )  # fmt: skip
    _shake(theirs).eval()
    state = {
        name.replace("gamma_1", "ls1.gamma").replace("gamma_2", "ls2.gamma"): value
        for name, value in theirs.state_dict().items()
    }
    ours = dinov3(CONFIG, mlp).eval()
    ours.load_state_dict(state, strict=True)
    images = _images()
    assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-4)


def _vit5_step_by_step(state, images, config):
    """The paper's model on a state dict, one operation after the other; registers are at the end there."""
    d, h = config.embed_dim, config.num_heads
    hd = d // h

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * state[f"{name}.weight"]

    def turned(x, rows, cols, theta):
        """Each pair as a complex number, (b, n, h, hd); the first half of the pairs by rows, the second by columns."""
        frequency = torch.tensor([theta ** (-2 * i / (hd / 2)) for i in range(hd // 4)])
        angle = torch.cat([rows[:, None] * frequency, cols[:, None] * frequency], dim=1)
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)[:, None]).flatten(-2)

    def placed(x):
        first, patches, registers = x.split([1, config.num_patches, 4], dim=1)
        gh, gw = config.grid_size
        at = torch.arange(gh * gw)
        corners = torch.arange(4)
        patches = turned(patches, at // gw, at % gw, 10000.0)
        return torch.cat([first, patches, turned(registers, corners // 2, corners % 2, 100.0)], dim=1)

    x = F.conv2d(images, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=config.patch_size)
    x = x.flatten(2).transpose(1, 2) + state["pos_embed"][:, 1:]
    first = (state["cls_token"] + state["pos_embed"][:, :1]).expand(len(x), -1, -1)
    x = torch.cat([first, x, state["reg_token"].expand(len(x), -1, -1)], dim=1)
    for i in range(config.depth):
        at = f"blocks.{i}"
        y = norm(x, f"{at}.norm1") @ state[f"{at}.attn.qkv.weight"].T
        q, k, v = y.unflatten(-1, (3, h, hd)).unbind(2)
        q, k = placed(norm(q, f"{at}.attn.q_norm")), placed(norm(k, f"{at}.attn.k_norm"))
        weights = (torch.einsum("bihf,bjhf->bhij", q, k) / hd**0.5).softmax(-1)
        y = torch.einsum("bhij,bjhf->bihf", weights, v).flatten(2)
        y = y @ state[f"{at}.attn.proj.weight"].T + state[f"{at}.attn.proj.bias"]
        x = x + state[f"{at}.ls1.gamma"] * y
        y = F.linear(norm(x, f"{at}.norm2"), state[f"{at}.mlp.fc1.weight"], state[f"{at}.mlp.fc1.bias"])
        y = F.linear(F.gelu(y), state[f"{at}.mlp.fc2.weight"], state[f"{at}.mlp.fc2.bias"])
        x = x + state[f"{at}.ls2.gamma"] * y
    return F.linear(norm(x, "norm")[:, 0], state["head.weight"], state["head.bias"])


@torch.no_grad()
def test_vit5_equals_the_paper_s_steps():
    model = _shake(vit5(CONFIG)).eval()
    images = _images()
    expected = _vit5_step_by_step(model.state_dict(), images, CONFIG)
    assert_close(model(images), expected, rtol=1e-4, atol=1e-4)
    for block in model.blocks:
        block.attn.rope = nn.Identity()
    assert not torch.allclose(model(images), expected, atol=0.05), "without rotary positions it should fail"


def test_vit5_has_the_parts_that_its_paper_lists():
    names = [name for name, _ in vit5(CONFIG).named_parameters()]
    assert not [name for name in names if name.endswith("qkv.bias") or "fc1_g" in name]
    for part in ("reg_token", "pos_embed", "blocks.0.ls1.gamma", "blocks.1.attn.q_norm.weight", "norm.weight"):
        assert part in names
    assert "norm.bias" not in names


@pytest.mark.parametrize("make", [dinov3, vit5])
def test_both_run_on_48_pixels_after_32(make):
    small, large = (replace(CONFIG, img_size=size) for size in (32, 48))
    state = make(small).state_dict()
    if "pos_embed" in state:
        state["pos_embed"] = resample_pos_embed(state["pos_embed"], small.grid_size, large.grid_size)
    model = make(large)
    model.load_state_dict(state, strict=True)
    assert model(_images(large)).shape == (2, 5)
    with pytest.raises(ValueError, match=r"images are \(48, 48\) pixels, the model takes img_size \(32, 32\)"):
        make(small)(_images(large))


@pytest.mark.parametrize("make", [dinov3, vit5])
def test_every_parameter_learns_and_the_plain_model_starts_as_it_did(make):
    model = make(CONFIG)
    model(_images()).square().sum().backward()
    assert all(parameter.grad.norm() > 0 for parameter in model.parameters())
    torch.manual_seed(3)
    plain = ViT(CONFIG).state_dict()
    torch.manual_seed(3)
    ours = ModernViT(CONFIG, reg_tokens=4).state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in plain.items())
