"""Every patient is named, no healthy model is, and a model is after the diagnosis what it was before."""

import copy
from dataclasses import replace

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from einops import rearrange
from torch import nn

from vit_tutorial import PRESETS, Attention, ViT, ViTConfig, diagnose
from vit_tutorial.clinic import (
    PATIENTS,
    SELECTION,
    TESTS,
    Finding,
    SlicedHeads,
    best_on_test,
    best_on_validation,
    last_pass,
)

RECTANGLE = ViTConfig(
    img_size=(12, 8), patch_size=(4, 2), in_chans=3, num_classes=5, embed_dim=24, depth=2, num_heads=3
)  # fmt: skip
GREY = ViTConfig(
    img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=16, depth=3, num_heads=2, pos_embed="sincos_1d"
)  # fmt: skip
COLOUR = replace(GREY, in_chans=3, img_size=16, patch_size=4, pos_embed="sincos_2d", act="gelu_tanh", drop_rate=0.1)
CONFIGS = {"rectangle": RECTANGLE, "grey": GREY, "colour": COLOUR}


def bugs(model: nn.Module | None = None, **options) -> list[str]:
    return [finding.bug for finding in diagnose(model, **options)]


def trained(model: nn.Module, config: ViTConfig, steps: int = 8) -> nn.Module:
    """The model after a few large steps, so that no weight is where it was."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    images = torch.randn(32, config.in_chans, *config.img_size)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images), torch.arange(32) % config.num_classes).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("steps", [0, 8], ids=["fresh", "trained"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", PATIENTS)
def test_each_patient_has_its_bug_and_no_other(name, config, steps):
    patient = PATIENTS[name]
    if name == "colours last" and config.in_chans == 1:
        pytest.skip("with one channel there is no such bug")
    model = trained(patient.make(config), config, steps)
    found = diagnose(model, select=patient.select)
    assert [finding.bug for finding in found] == [name]
    assert any(letter.isdigit() for letter in found[0].evidence) and found[0].remedy.endswith(".")


@pytest.mark.parametrize("steps", [0, 8], ids=["fresh", "trained"])
@pytest.mark.parametrize("changes", [{}, {"pool": "mean"}, {"pos_embed": "none"}, {"qkv_bias": False}, {"depth": 1}])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_healthy_model_has_no_findings(config, changes, steps):
    config = replace(config, **changes)
    assert bugs(trained(ViT(config), config, steps), select=last_pass) == []


@pytest.mark.parametrize("name", PRESETS)
def test_presets_at_reduced_size(name):
    config = PRESETS[name]
    patch = (min(config.patch_size[0], 4), min(config.patch_size[1], 4))
    small = replace(
        config, img_size=(3 * patch[0], 2 * patch[1]), patch_size=patch, num_classes=5, depth=2,
        embed_dim=config.num_heads * min(config.head_dim, 8),
    )  # fmt: skip
    assert bugs(ViT(small)) == ([] if config.final_norm else ["no final norm"])


TIMM = {
    "tiny": {},
    "rectangle": {"img_size": (32, 16), "patch_size": (8, 4)},
    "no class token": {"class_token": False, "global_pool": "avg"},
    "mean beside a class token": {"global_pool": "avg"},
    "norms of queries and keys": {"qk_norm": True},
    "no position for the class token, on purpose": {"no_embed_class": True},
    "registers": {"reg_tokens": 2},
    "norm in front": {"pre_norm": True},
    "attention pooling": {"global_pool": "map"},
    "no head": {"num_classes": 0},
    "layer scale": {"init_values": 1e-5},
    "any size": {"dynamic_img_size": True},
    "grey": {"in_chans": 1},
}


@pytest.mark.parametrize("changes", TIMM.values(), ids=TIMM)
def test_timm(changes):
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
    assert bugs(timm.models.VisionTransformer(**{**sizes, **changes})) == []


def test_timm_by_name():
    assert bugs(timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2)) == []


def torchvision_model(**changes) -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 3, "hidden_dim": 24, "mlp_dim": 48}
    return torchvision.models.VisionTransformer(**{**sizes, **changes})


@pytest.mark.parametrize("changes", [{}, {"num_classes": 4}, {"representation_size": 12}, {"dropout": 0.1}])
def test_torchvision(changes):
    assert bugs(torchvision_model(**changes)) == []


# Bugs in other libraries' models, and in the form in which they were published ------------------------------------


def test_a_softmax_in_torchvision_s_model():
    model = torchvision_model()
    model.heads.append(nn.Softmax(dim=-1))
    assert bugs(model) == ["softmax before cross-entropy"]


def test_batch_first_forgotten_in_torchvision_s_model():
    model = torchvision_model()
    for layer in model.encoder.layers:
        layer.self_attention.batch_first = False
    assert bugs(model) == ["attention across the batch"]


def test_no_final_norm_in_timm_s_model():
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    assert bugs(timm.models.VisionTransformer(**sizes, final_norm=False)) == ["no final norm"]


def test_no_final_norm_in_front_of_a_head_with_a_tanh():
    model = torchvision_model(representation_size=12)  # a tanh hides the size of what it gets
    model.encoder.ln = nn.Identity()
    assert bugs(model) == ["no final norm"]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("scale", "word"), [(1.0, "by 1 "), (1 / 8, "by 8 "), (24**-0.5, "by √24 ")])
def test_other_scales_are_named_by_their_number(scale, word, fused):
    def attend(q, k, v):
        if fused:
            return F.scaled_dot_product_attention(q, k, v, scale=scale)
        return (q @ k.mT * scale).softmax(dim=-1) @ v

    (finding,) = diagnose(ViT(RECTANGLE, attend=attend))
    assert finding.bug == "scale by √dim" and word in finding.evidence


class OutputPerToken(ViT):
    def forward(self, images):
        return self.head(self.forward_features(images))


class StrictClassToken(ViT):
    """As published: the number of rows is that of the batch, and no other will do."""

    def __init__(self, config):
        super().__init__(config)
        self.cls_token = nn.Parameter(torch.randn(6, 1, config.embed_dim))

    def forward_features(self, images):
        x = torch.cat([self.cls_token, self.patch_embed(images)], dim=1)
        return self.norm(self.blocks(x + self.pos_embed))


class StrictBatch(StrictClassToken):
    """One class token for all, and still no other batch than that of six images."""

    def forward_features(self, images):
        x = torch.cat([self.cls_token.mean(dim=0, keepdim=True).expand(6, -1, -1), self.patch_embed(images)], dim=1)
        return self.norm(self.blocks(x + self.pos_embed))


class PositionsByRow(ViT):
    """A table for tokens of shape (n, b, d), added to tokens of shape (b, n, d)."""

    def forward_features(self, images):
        x = self.patch_embed(images)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return self.norm(self.blocks(x + self.pos_embed[0, : len(x), None]))


def test_published_forms():
    (finding,) = diagnose(OutputPerToken(RECTANGLE))
    assert finding.bug == "head on all tokens" and "(4, 13, 5)" in finding.evidence
    (finding,) = diagnose(StrictClassToken(RECTANGLE))
    assert finding.bug == "batch-sized class token"
    torch.manual_seed(0)
    assert bugs(PositionsByRow(RECTANGLE)) == ["batch-sized class token"]


def test_a_strict_class_token_whose_rows_are_equal_is_found_by_another_batch_size():
    model = StrictBatch(RECTANGLE)
    (finding,) = diagnose(model)
    assert finding.bug == "batch-sized class token"
    assert "a batch of 6 images runs" in finding.evidence and "RuntimeError" in finding.evidence


def test_two_bugs_give_two_findings_in_the_clinic_s_order():
    config = replace(RECTANGLE, final_norm=False)
    assert bugs(PATIENTS["dead residual norm"].make(config)) == ["dead residual norm", "no final norm"]
    assert [*TESTS, SELECTION] == list(PATIENTS)


class NormForShow(ViT):
    """Calls its final norm, and does not use what it returns."""

    def forward_features(self, images):
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), self.patch_embed(images)], dim=1)
        x = self.blocks(x + self.pos_embed)
        self.norm(x)
        return x


class SlicedAtTheEnd(nn.Module):
    """Only the last head sees a slice."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.full, self.sliced = Attention(dim, num_heads), SlicedHeads(dim, num_heads)

    def forward(self, x):
        return torch.cat([self.full(x)[..., :-8], self.sliced(x)[..., -8:]], dim=-1)


def test_half_measures():
    assert bugs(NormForShow(RECTANGLE)) == ["dead residual norm", "no final norm"]
    model = ViT(RECTANGLE)
    model.blocks[1].attn = SlicedAtTheEnd(24, 3)
    (finding,) = diagnose(model)
    assert finding.bug == "per-head slices" and "block 1, number 23" in finding.evidence


class HeadOnTheSequence(ViT):
    def __init__(self, config):
        super().__init__(config)
        self.head = nn.Linear(13 * 24, 5)

    def forward_head(self, x):
        return self.head(x.flatten(1))


class HeadOnTheMaximum(ViT):
    def forward_head(self, x):
        return self.head(x.amax(dim=1))


class HandmadeNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        x = x - x.mean(dim=-1, keepdim=True)
        return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * self.weight + self.bias


def test_what_it_cannot_see():
    """The limits that the chapter and the docstring name are real."""
    model = ViT(RECTANGLE)
    for block in model.blocks:
        block.attn = nn.Sequential(SlicedHeads(24, 3), nn.Linear(24, 24))
    assert bugs(model) == []
    assert bugs(HeadOnTheSequence(RECTANGLE)) == bugs(HeadOnTheMaximum(RECTANGLE)) == []
    model = PATIENTS["dead residual norm"].make(RECTANGLE)
    for block in model.blocks:
        block.norm1, block.norm2 = HandmadeNorm(24), HandmadeNorm(24)
    assert bugs(model) == []
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "global_pool": "avg"}
    assert bugs(timm.models.VisionTransformer(**sizes, pool_include_prefix=True)) == ["head on all tokens"]


def linear_head_behind_a_norm():
    model = ViT(replace(RECTANGLE, final_norm=False))
    model.head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 5))
    return model


class LinearPatches(nn.Module):
    """A linear layer over (ph pw c), trained in that order: no other was ever meant."""

    def __init__(self):
        super().__init__()
        self.img_size, self.patch_size, self.in_chans, self.proj = (12, 8), (4, 2), 3, nn.Linear(24, 24)

    def forward(self, images):
        return self.proj(rearrange(images, "b c (gh ph) (gw pw) -> b (gh gw) (ph pw c)", ph=4, pw=2))


def with_linear_patches():
    model = ViT(RECTANGLE)
    model.patch_embed = LinearPatches()
    return model


def with_a_resting_head():
    model = ViT(RECTANGLE)
    model.auxiliary = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 5))
    return model


def with_attention_that_returns_its_weights():
    class Both(Attention):
        def forward(self, x):
            return super().forward(x), None

    class First(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.norm1, self.attn, self.norm2, self.mlp = block.norm1, block.attn, block.norm2, block.mlp
            self.attn.__class__ = Both

        def forward(self, x):
            x = x + self.attn(self.norm1(x))[0]
            return x + self.mlp(self.norm2(x))

    model = ViT(RECTANGLE)
    model.blocks = nn.Sequential(*(First(block) for block in model.blocks))
    return model


HEALTHY = {
    "a norm in the head": linear_head_behind_a_norm,
    "a linear projection with colours last": with_linear_patches,
    "a class token as short as the norm's ε": lambda: timm.create_model(
        "deit3_small_patch16_224", img_size=32, depth=2
    ),
    "a head that rests in evaluation": with_a_resting_head,
    "attention that returns its weights as well": with_attention_that_returns_its_weights,
}


@pytest.mark.parametrize("make", HEALTHY.values(), ids=HEALTHY)
def test_healthy_models_of_other_makes_have_no_findings(make):
    assert bugs(make()) == []


def test_a_norm_in_front_raises_no_alarm_by_rounding():
    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 8, "depth": 1, "num_heads": 2, "num_classes": 3}
    for seed in range(12):
        torch.manual_seed(seed)
        assert bugs(timm.models.VisionTransformer(**sizes, pre_norm=True)) == []


class AcrossTheBatch(nn.Module):
    def __init__(self, attn):
        super().__init__()
        self.attn = attn

    def forward(self, x, **options):
        return self.attn(x.transpose(0, 1)).transpose(0, 1)


@pytest.mark.parametrize("scale", [1e-4, 1e-6])
def test_attention_across_the_batch_behind_a_small_layer_scale(scale):
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    model = timm.models.VisionTransformer(**sizes, init_values=scale)
    for block in model.blocks:
        block.attn = AcrossTheBatch(block.attn)
    assert bugs(model) == ["attention across the batch"]


def test_class_tokens_of_rows_that_start_at_zero():
    model = PATIENTS["batch-sized class token"].make(RECTANGLE)
    nn.init.zeros_(model.cls_token)
    assert bugs(model) == ["batch-sized class token"]


class SeparateLayers(nn.Module):
    """Queries, keys and values from a layer each."""

    def __init__(self, dim, head, scale):
        super().__init__()
        self.head, self.scale = head, scale
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        q, k, v = (rearrange(layer(x), "b n (h d) -> b h n d", h=self.head) for layer in (self.q, self.k, self.v))
        return self.o(rearrange((q @ k.mT * self.scale).softmax(dim=-1) @ v, "b h n d -> b n (h d)"))


@pytest.mark.parametrize(("width", "found"), [(8, []), (24, ["scale by √dim"])])
def test_the_scale_where_queries_keys_and_values_have_layers_of_their_own(width, found):
    model = ViT(RECTANGLE)
    for block in model.blocks:
        block.attn = SeparateLayers(24, 3, width**-0.5)
    assert bugs(model) == found


# Selection --------------------------------------------------------------------------------------------------------


def test_selection():
    for select in (last_pass, best_on_validation, lambda history: 0):
        assert diagnose(select=select) == []
    for select in (
        best_on_test,
        lambda history: min(range(len(history)), key=lambda i: history[i]["test_loss"]),
        lambda history: max(
            range(len(history)), key=lambda i: history[i]["val_accuracy"] + history[i]["test_accuracy"]
        ),
    ):
        assert bugs(select=select) == [SELECTION]
    assert diagnose() == []


# Nothing is left behind -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: PATIENTS["dead residual norm"].make(COLOUR), torchvision_model])
def test_the_model_is_as_it_was(make):
    model = make()
    model.train()
    next(iter(model.children())).eval()  # a mode of its own
    frozen = next(model.parameters()).requires_grad_(False)
    images = torch.randn(2, 3, *((16, 16) if isinstance(model, ViT) else (32, 32)))
    model(images).sum().backward()
    state, modes = copy.deepcopy(model.state_dict()), [part.training for part in model.modules()]
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    generator = torch.get_rng_state()
    diagnose(model)
    assert torch.equal(torch.get_rng_state(), generator)
    assert [part.training for part in model.modules()] == modes
    torch.testing.assert_close(dict(model.state_dict()), dict(state), rtol=0, atol=0)
    assert not frozen.requires_grad
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert (parameter.grad is None) == (grad is None) and (grad is None or torch.equal(parameter.grad, grad))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_under_no_grad_frozen_and_twice_the_same():
    model = PATIENTS["reshape without permute"].make(RECTANGLE).requires_grad_(False)
    with torch.no_grad():
        first = diagnose(model)
    assert first == diagnose(model) != []
    frozen = PATIENTS["dead residual norm"].make(RECTANGLE).requires_grad_(False)
    assert bugs(frozen) == ["dead residual norm"]
    assert bugs(ViT(RECTANGLE).double()) == []


def test_a_finding_is_frozen():
    with pytest.raises(AttributeError):
        Finding("a", "b", "c").bug = "d"


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="Sequential is no Vision Transformer"):
        diagnose(nn.Sequential(nn.Linear(2, 2)))
    for name, message in {
        "vit_tiny_r_s16_p8_224": "n at least 64",
        "xcit_nano_12_p16_224": "its pos_embed is no tensor",
        "vit_relpos_small_patch16_224": "has no attribute 'pos_embed'",
    }.items():
        with pytest.raises(ValueError, match=message):
            diagnose(timm.create_model(name, img_size=64, depth=1))
    model = ViT(RECTANGLE)
    model.patch_embed = nn.Sequential(model.patch_embed)
    with pytest.raises(ValueError, match="its Sequential has neither img_size nor image_size"):
        diagnose(model)
    model = ViT(RECTANGLE)
    model.compile()
    with pytest.raises(ValueError, match="compiled"):
        diagnose(model)
