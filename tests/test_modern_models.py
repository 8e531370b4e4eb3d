"""DINOv3 and ViT-5 put together from the parts, and the other rooms with models of such parts in them."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.models import Eva
from torch import nn
from torch.testing import assert_close

from vit_tutorial import (
    Attention,
    Mlp,
    ViT,
    ViTConfig,
    attention_weights,
    diagnose,
    fused_attention,
    plain_attention,
    resample_pos_embed,
)
from vit_tutorial.archs import FIELDS, dinov3, vit5
from vit_tutorial.attention_maps import attention_distance, attention_gradients, attention_map, record_attention
from vit_tutorial.clinic import TESTS_OF_ATTENTION, attention_over_queries, attention_scaled_by_dim
from vit_tutorial.modern import (
    AttentionPoolLatent,
    BiasedAttention,
    ConvStem,
    MixedRope,
    ModernAttention,
    ModernBlock,
    ModernViT,
    RMSNorm,
    SequencePool,
    ShawAttention,
    SwiGLU,
    axial_rope,
    without_registers,
)
from vit_tutorial.speed import training_flops
from vit_tutorial.training.optimizers import MuonWithAdamW, parameter_groups

SIZES = {"img_size": (24, 16), "patch_size": 4, "in_chans": 3, "num_classes": 5, "embed_dim": 24, "depth": 2}
CONFIG = ViTConfig(**SIZES, num_heads=3, qkv_bias=False)
ROTARY_ONLY = replace(CONFIG, pos_embed="none")  # as DINOv3 has it


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
    ours = dinov3(ROTARY_ONLY, mlp).eval()
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
    small, large = (replace(CONFIG, img_size=size, **FIELDS[f"modern:{make.__name__}"]) for size in (32, 48))
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
    model = make(replace(CONFIG, **FIELDS[f"modern:{make.__name__}"]))
    model(_images()).square().sum().backward()
    assert all(parameter.grad.norm() > 0 for parameter in model.parameters())
    torch.manual_seed(3)
    plain = ViT(CONFIG).state_dict()
    torch.manual_seed(3)
    ours = ModernViT(CONFIG, reg_tokens=4).state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in plain.items())


# Other rooms


def _models() -> dict[str, ModernViT]:
    """One for each kind of attention and pool, all with registers; and the two from papers."""
    places = {"grid_size": CONFIG.grid_size, "num_prefix_tokens": 1 + 4}
    attentions = {
        "mixed": partial(ModernAttention, rope=partial(MixedRope, **places)),
        "biased": partial(BiasedAttention, **places),
        "Shaw": partial(ShawAttention, **places),
    }
    make, mean = partial(ModernViT, reg_tokens=4), replace(CONFIG, pool="mean")
    models = {name: make(CONFIG, block=partial(ModernBlock, attn=attn)) for name, attn in attentions.items()}
    models |= {"DINOv3": dinov3(ROTARY_ONLY), "DINOv3, gated": dinov3(ROTARY_ONLY, SwiGLU), "ViT-5": vit5(CONFIG)}
    models["SeqPool and a stem"] = make(mean, patch_embed=ConvStem, attn_pool=SequencePool)
    models["MAP head"] = make(mean, attn_pool=partial(AttentionPoolLatent, num_heads=3))
    models["patch dropout"] = make(CONFIG, patch_drop=0.5)
    return {name: _shake(model).eval() for name, model in models.items()}


ROTARY = ["mixed", "DINOv3", "DINOv3, gated", "ViT-5"]
POSITIONED = [*ROTARY, "biased", "Shaw"]
ALL = [*POSITIONED, "SeqPool and a stem", "MAP head", "patch dropout"]


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_recorded_maps_are_the_weights_that_were_used(name):
    model, taken, given = _models()[name], [], []
    for block in model.blocks:
        block.attn.register_forward_pre_hook(lambda part, args: taken.append(args[0]))
        block.attn.proj.register_forward_pre_hook(lambda part, args: given.append(args[0]))
    with record_attention(model) as maps:
        model(_images())
    assert len(maps) == CONFIG.depth
    for weights, x, heads, attn in zip(maps, taken, given, (block.attn for block in model.blocks), strict=True):
        out = weights @ attn.project(x)[2]
        if name == "Shaw":
            out = out + torch.einsum("bhij,ijf->bhif", weights, attn.vectors(attn.rel_v))
        assert_close(out.transpose(1, 2).flatten(2), heads, rtol=1e-4, atol=1e-5)
        q, k, _ = Attention.project(attn, x)  # as if there were nothing between the projection and the scores
        assert torch.allclose(attention_weights(q, k), weights, atol=0.01) == (name not in POSITIONED)


@pytest.mark.parametrize("name", ["ViT-5", "biased", "Shaw"])
def test_gradients_of_weights_are_those_of_a_slight_change(name):
    """A weight is changed where it is used: by the softmax that makes it."""
    model, images = _models()[name].double(), _images().double()
    maps, gradients = attention_gradients(model, images, torch.tensor([1, 2]))
    attn = model.blocks[1].attn
    step = 1e-4 * torch.randn_like(maps[1])

    def logits(sign):
        def forward(x):
            v = attn.project(x)[2]
            weights = maps[1] + sign * step
            out = weights @ v
            if name == "Shaw":
                out = out + torch.einsum("bhij,ijf->bhif", weights, attn.vectors(attn.rel_v))
            return attn.proj(out.transpose(1, 2).flatten(2))

        attn.forward = forward
        out = model(images)
        return out[0, 1] + out[1, 2]

    with torch.no_grad():
        change = (logits(1) - logits(-1)) / 2
    assert_close((gradients[1] * step).sum(), change, rtol=1e-4, atol=1e-12)


def test_maps_are_drawn_without_registers():
    model = _models()["ViT-5"]
    with record_attention(model) as maps:
        model(_images())
    with pytest.raises(ValueError, match=r"the maps are of 29 tokens, the config has 25"):
        attention_map(maps[0], CONFIG)
    weights = without_registers(maps[0], CONFIG)
    assert_close(weights[..., 0, 0], maps[0][..., 0, 0])
    assert_close(weights[..., 3, 1:], maps[0][..., 3 + 4, 5:])
    assert attention_map(weights, CONFIG).shape == (2, 3, 6, 4)
    assert attention_distance(weights, CONFIG).shape == (2, 3)
    assert without_registers(weights, CONFIG).shape == weights.shape
    with pytest.raises(ValueError, match=r"the weights are of 24 tokens, the config has 25"):
        without_registers(weights[..., 1:, 1:], CONFIG)


@pytest.mark.parametrize("attend", [plain_attention, fused_attention])
def test_training_flops_of_a_model_are_those_of_its_parts(attend):
    plain = training_flops(CONFIG)
    assert training_flops(ViT(CONFIG, attend)) == plain
    n, d, depth = CONFIG.num_tokens, CONFIG.embed_dim, CONFIG.depth
    registers = 4 * 12 * d * d + 2 * d * ((n + 4) ** 2 - n**2)
    assert training_flops(ModernViT(CONFIG, attend, reg_tokens=4)) == plain + 6 * depth * registers
    gated = ModernViT(CONFIG, attend, block=partial(ModernBlock, mlp=SwiGLU))
    assert training_flops(gated) == plain + 6 * depth * n * 4 * d * d
    fewer = ViTConfig(**SIZES | {"img_size": (12, 16)}, num_heads=3)
    lost = 6 * 12 * 4 * 4 * 3 * d  # all patches are embedded before half of them go
    assert training_flops(ModernViT(CONFIG, attend, patch_drop=0.5)) == training_flops(fewer) + lost
    rotary = partial(axial_rope, grid_size=CONFIG.grid_size)
    block = partial(ModernBlock, attn=partial(ModernAttention, rope=rotary), norm=RMSNorm, init_values=1e-4)
    model = ModernViT(CONFIG, attend, block=block).half()
    assert training_flops(model) == plain, "these have no matrix products"
    assert model.cls_token.device.type == "cpu"
    assert model.cls_token.dtype == torch.float16


def test_the_optimizer_lets_positions_and_learned_tokens_be():
    for name, model in _models().items():
        decay, rest = parameter_groups(model, 0.1)
        kept = {id(parameter) for parameter in rest["params"]}
        spared = {key.rpartition(".")[2] for key, p in model.named_parameters() if id(p) in kept and p.ndim > 1}
        assert spared <= {
            "cls_token", "pos_embed", "reg_token", "freqs", "rel_k", "rel_v", "relative_position_bias_table", "latent"
        }, name  # fmt: skip
        assert all(parameter.ndim in (2, 4) for parameter in decay["params"]), name
        MuonWithAdamW(model, [decay, rest], 1e-3, (0.9, 0.95)).step()


@pytest.mark.parametrize("given", [True, False], ids=["on images", "on its own"])
@pytest.mark.parametrize("name", ALL)
def test_a_healthy_model_of_the_parts_is_called_healthy(name, given):
    model = _models()[name]
    found = diagnose(model, _images() if given else None)
    assert not found, str(found)
    assert not any("did not run" in why for why in found.not_run.values()), str(found)
    of_attention = ("scale by √dim", "softmax over the wrong axis", *TESTS_OF_ATTENTION)
    untested = [bug for bug in of_attention if bug in found.not_run]
    assert bool(untested) == (name == "Shaw"), str(found)
    if untested:
        assert found.not_run["scale by √dim"] == "blocks.0.attn has rel_k, rel_v beside its weights"


def test_sick_models_of_the_parts_are_named():
    class DeadNorm(ModernBlock):
        def forward(self, x):
            self.norm1(x)
            return x + self.ls1(self.attn(x)) + self.ls2(self.mlp(self.norm2(x)))

    class AllTokens(ModernViT):
        def forward_head(self, x):
            return self.head(x).mean(dim=1)

    class NoClassPosition(ModernViT):
        def forward_features(self, images):
            x = self.patch_embed(images) + self.pos_embed[:, 1:]
            first = [token.expand(len(x), -1, -1) for token in (self.cls_token, self.reg_token)]
            return self.norm(self.blocks(torch.cat([*first, x], dim=1)))

    class Scaled(BiasedAttention):
        def forward(self, x):
            q, k, v = self.project(x)
            weights = (q @ k.mT * x.shape[-1] ** -0.5 + self.bias()).softmax(dim=-1)
            return self.proj((weights @ v).transpose(1, 2).flatten(2))

    places = {"grid_size": CONFIG.grid_size, "num_prefix_tokens": 1 + 4}
    rotary = partial(ModernBlock, attn=partial(ModernAttention, rope=partial(axial_rope, **places)))
    biased = partial(ModernBlock, attn=partial(Scaled, **places))
    dead = partial(DeadNorm, norm=RMSNorm, init_values=1e-4)
    sick = {
        "dead residual norm": ModernViT(CONFIG, block=dead, norm=RMSNorm, reg_tokens=4),
        "head on all tokens": AllTokens(CONFIG, reg_tokens=4),
        "no position on the class token": NoClassPosition(CONFIG, reg_tokens=4),
        "scale by √dim": ModernViT(CONFIG, attention_scaled_by_dim, block=rotary, reg_tokens=4),
        "softmax over the wrong axis": ModernViT(CONFIG, attention_over_queries, block=rotary, reg_tokens=4),
    }
    for bug, model in sick.items():
        assert [finding.bug for finding in diagnose(_shake(model))] == [bug]
    assert [finding.bug for finding in diagnose(_shake(ModernViT(CONFIG, block=biased, reg_tokens=4)))] == [
        "scale by √dim"
    ]
