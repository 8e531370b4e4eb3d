"""Every patient is diagnosed, no healthy model is, and a diagnosis leaves the model as it was."""

import copy
import random
from dataclasses import replace

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
import transformers
from einops import rearrange
from sampling import first
from torch import nn

from vit_tutorial import ViT, ViTConfig, diagnose
from vit_tutorial.clinic import (
    NOT_FINITE,
    PATIENTS,
    RANDOM,
    SELECTION,
    TESTS,
    TESTS_OF_ATTENTION,
    TESTS_OF_OUTPUTS,
    best_on_test,
    best_on_validation,
    heads,
    last_epoch,
)

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # as a reader runs it, in half the time

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
    """The model after a few large steps, so that every weight has moved."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    images = torch.randn(32, config.in_chans, *config.img_size)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images), torch.arange(32) % config.num_classes).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("steps", [0, 8], ids=["fresh", "trained"])
@pytest.mark.parametrize("config", first(1, CONFIGS.values()), ids=CONFIGS)
@pytest.mark.parametrize("name", PATIENTS)
def test_each_patient_has_its_bug_and_no_other(name, config, steps):
    patient = PATIENTS[name]
    if name == "colours last" and config.in_chans == 1:
        pytest.skip("this bug needs several channels")
    model = trained(patient.make(config), config, steps)
    found = diagnose(model, select=patient.select)
    assert [finding.bug for finding in found] == [name]
    assert any(letter.isdigit() for letter in found[0].evidence) and found[0].remedy.endswith(".")


@pytest.mark.parametrize("steps", [0, 8], ids=["fresh", "trained"])
@pytest.mark.parametrize("changes", [{}, {"pool": "mean"}, {"pos_embed": "none"}, {"qkv_bias": False}, {"depth": 1}])
@pytest.mark.parametrize("config", first(1, CONFIGS.values()), ids=CONFIGS)
def test_the_healthy_model_has_no_findings(config, changes, steps):
    config = replace(config, **changes)
    assert bugs(trained(ViT(config), config, steps), select=last_epoch) == []


# Generated cases: a test that cannot tell stays silent --------------------------------------------------------------

WEIGHTS = ("as they are", "zero", "one", "large", "small", "trained")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def generated(seed: int, least_dim: int = 1) -> tuple[ViTConfig, nn.Module]:
    """A healthy model of a random config: any width, often 1, one head or several, deep or shallow, not square."""
    draw = random.Random(seed)
    (gh, gw), (ph, pw) = [(draw.randint(1, 4), draw.randint(1, 4)) for _ in range(2)]
    num_heads = draw.choice((1, 1, 2, 3))
    head_dim = draw.choice([width for width in (1, 2, 4, 8) if width * num_heads >= least_dim])
    dim = num_heads * head_dim
    config = ViTConfig(
        img_size=(gh * ph, gw * pw),
        patch_size=(ph, pw),
        in_chans=draw.choice((1, 3, 5)),
        num_classes=draw.choice((1, 2, 5)),
        embed_dim=dim,
        depth=draw.choice((1, 1, 2, 3)),
        num_heads=num_heads,
        mlp_ratio=draw.choice((1, 4)),
        qkv_bias=draw.random() < 0.5,
        pos_embed=draw.choice(("learned", "sincos_1d") if dim % 4 == 0 else ("learned",)),
        pool=draw.choice(("cls", "mean")),
        drop_rate=draw.choice((0, 0.2)),
    )
    torch.manual_seed(seed)
    model, weights = ViT(config), WEIGHTS[seed % len(WEIGHTS)]
    if weights == "trained":
        trained(model, config, steps=3)
    with torch.no_grad():
        for parameter in model.parameters():
            if weights in ("zero", "one"):
                parameter.fill_(weights == "one")
            elif weights == "large":
                parameter.normal_(std=2)
            elif weights == "small":
                parameter.mul_(1e-3)
    return config, model.to(draw.choice(DTYPES))


@pytest.mark.parametrize("seed", first(12, range(60)))
def test_generated_healthy_models_have_no_findings(seed):
    assert diagnose(generated(seed)[1]) == []


class Wrapped(nn.Module):
    """A model whose parts have other names."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, images):
        return self.inner(images)


@pytest.mark.parametrize("seed", first(12, range(60)))
def test_generated_healthy_models_have_no_findings_by_their_outputs_alone(seed):
    config, model = generated(seed, least_dim=3)  # with two features a LayerNorm gives ±1, which almost hides positions
    images = torch.randn(3, config.in_chans, *config.img_size, dtype=model.head.weight.dtype)
    assert diagnose(Wrapped(model), images, patch_size=config.patch_size) == []


def test_what_no_test_can_tell_is_reported():
    narrow = replace(RECTANGLE, embed_dim=1, num_heads=1)
    found = diagnose(ViT(narrow))
    assert found == [] and found.not_run["no final norm"] == "the head gets only zeros"
    zero = ViT(RECTANGLE)
    nn.init.zeros_(zero.patch_embed.proj.weight)
    for bug in ("attention across the batch", "reshape without permute", "colours last"):
        assert "do not depend on the pixels" in diagnose(zero).not_run[bug]
    nn.init.zeros_(zero.patch_embed.proj.bias)
    for block in zero.blocks:
        nn.init.zeros_(block.attn.qkv.weight)
    assert "the scale changes nothing" in diagnose(zero).not_run["scale by √dim"]
    for single in (ViT(replace(RECTANGLE, num_classes=1)), Readers(num_classes=1)):
        assert "a single output" in diagnose(single, torch.randn(IMAGES)).not_run["softmax before cross-entropy"]
    assert diagnose(ViT(RECTANGLE)).not_run == {}
    assert set(diagnose(ViT(replace(RECTANGLE, pool="mean"))).not_run) == {
        "head on all tokens",
        "no position on the class token",
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", list(TESTS))
def test_patients_in_half_precision(name, dtype):
    model = PATIENTS[name].make(RECTANGLE).to(dtype)
    assert bugs(model) == [name] and all(parameter.dtype == dtype for parameter in model.parameters())


# Weights that are not finite ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_is_named_and_nothing_else(value):
    model = ViT(RECTANGLE)
    for name, parameter in model.named_parameters():
        spoiled = copy.deepcopy(model)
        with torch.no_grad():
            spoiled.get_parameter(name).flatten()[-1] = value
        for found in (diagnose(spoiled), diagnose(Wrapped(spoiled), torch.randn(2, 3, 12, 8))):
            (finding,) = found
            assert finding.bug == NOT_FINITE and f"{name} has 1 NaN or infinite number" in finding.evidence
        assert parameter.isfinite().all() and set(diagnose(spoiled).not_run) == {*TESTS, *TESTS_OF_ATTENTION}
    assert bugs(spoiled, select=best_on_test) == [NOT_FINITE, SELECTION]


def test_outputs_that_are_not_finite():
    model = ViT(RECTANGLE)
    nn.init.constant_(model.head.weight, 3e38)
    (finding,) = diagnose(model)
    assert finding.bug == NOT_FINITE and "outputs of 4 images" in finding.evidence


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


def torchvision_model(**changes) -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 3, "hidden_dim": 24, "mlp_dim": 48}
    return torchvision.models.VisionTransformer(**{**sizes, **changes})


@pytest.mark.parametrize("changes", [{}, {"num_classes": 4}, {"representation_size": 12}, {"dropout": 0.1}])
def test_torchvision(changes):
    assert bugs(torchvision_model(**changes)) == []


def huggingface_model(**changes) -> nn.Module:
    sizes = {
        "image_size": (12, 8), "patch_size": (4, 2), "hidden_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 3, "intermediate_size": 48, "num_labels": 5,
    }  # fmt: skip
    return transformers.ViTForImageClassification(transformers.ViTConfig(**{**sizes, **changes}))


HUGGINGFACE = [{}, {"attn_implementation": "eager"}, {"qkv_bias": False}, {"image_size": 16, "patch_size": 4}]


@pytest.mark.parametrize("changes", HUGGINGFACE)
def test_huggingface(changes):
    found = diagnose(huggingface_model(**changes))
    assert found == [] and found.not_run == {}


# Bugs in other libraries' models, and in the form in which they were published ------------------------------------


def with_neighbours_behind_the_blocks():
    model = torchvision_model()
    model.encoder.register_forward_hook(lambda encoder, args, out: out + out.mean(dim=0))
    return model


class AcrossInTheHead(ViT):
    """Here even the class token's features are unmixed; only the logits are mixed."""

    def forward_head(self, x):
        logits = super().forward_head(x)
        return logits + 0.5 * logits.mean(dim=0)


def test_neighbours_that_change_only_the_logits_are_found():
    assert bugs(AcrossInTheHead(RECTANGLE)) == ["attention across the batch"]


def sick_huggingface_model(bug: str) -> nn.Module:
    model = huggingface_model()
    if bug == "softmax before cross-entropy":
        model.classifier = nn.Sequential(model.classifier, nn.Softmax(dim=-1))
    if bug == "no final norm":
        model.vit.layernorm = nn.Identity()
    for layer in model.vit.layers:
        if bug == "scale by √dim":
            layer.attention.scaling = 24**-0.5
        if bug == "attention across the batch":
            layer.attention.forward = across(layer.attention.forward)
        if bug == "dead residual norm":
            layer.layernorm_before.forward = lambda x: x
    return model


def across(forward):
    def sick(x, *args, **options):
        out, weights = forward(x.transpose(0, 1), *args, **options)
        return out.transpose(0, 1), weights

    return sick


@pytest.mark.parametrize(
    "bug",
    [
        "softmax before cross-entropy",
        "attention across the batch",
        "dead residual norm",
        "no final norm",
        "scale by √dim",
    ],
)
def test_bugs_in_huggingface_s_model(bug):
    assert bugs(sick_huggingface_model(bug)) == [bug]


def test_batch_first_forgotten_in_torchvision_s_model():
    model = torchvision_model()
    for layer in model.encoder.layers:
        layer.self_attention.batch_first = False
    assert bugs(model) == ["attention across the batch"]


def test_no_final_norm_in_front_of_a_head_with_a_tanh():
    model = torchvision_model(representation_size=12)  # a tanh hides the size of its input
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


@pytest.mark.parametrize(("axis", "word"), [(-2, "the queries"), (1, "the heads"), (0, "the images")])
def test_softmax_over_another_axis_is_named(axis, word):
    def attend(q, k, v):
        return (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=axis) @ v

    found = diagnose(ViT(RECTANGLE, attend=attend))
    assert [finding.bug for finding in found if "axis" in finding.bug] == ["softmax over the wrong axis"]
    assert word in found[-1].evidence and len(found) == 1 + (axis == 0)  # the last mixes images, which is found as well


class StudentAttention(nn.Module):
    """Queries, keys and values by a layer each, and a softmax that forgot what its axes are."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        q, k, v = (
            rearrange(part(x), "b n (h hd) -> b h n hd", h=self.num_heads)
            for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        return self.out(rearrange(torch.softmax(scores, dim=1) @ v, "b h n hd -> b n (h hd)"))


def test_softmax_over_another_axis_as_students_write_it():
    model = ViT(RECTANGLE)
    model.blocks[1].attn = StudentAttention(24, 3)
    (finding,) = diagnose(model)
    assert (
        finding.bug == "softmax over the wrong axis"
        and "in blocks.1.attn the softmax runs over the heads" in finding.evidence
    )


class OutputPerToken(ViT):
    def forward(self, images):
        return self.head(self.forward_features(images))


class StrictClassToken(ViT):
    """As published: it has as many rows as the batch and takes no other batch size."""

    def __init__(self, config):
        super().__init__(config)
        self.cls_token = nn.Parameter(torch.randn(6, 1, config.embed_dim))

    def forward_features(self, images):
        x = torch.cat([self.cls_token, self.patch_embed(images)], dim=1)
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


def test_two_bugs_give_two_findings_in_the_clinic_s_order():
    config = replace(RECTANGLE, final_norm=False)
    assert bugs(PATIENTS["dead residual norm"].make(config)) == ["dead residual norm", "no final norm"]
    assert [*TESTS, heads.TRANSPOSE, RANDOM, SELECTION] == list(PATIENTS)


class NormForShow(ViT):
    """Calls its final norm and ignores the result."""

    def forward_features(self, images):
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), self.patch_embed(images)], dim=1)
        x = self.blocks(x + self.pos_embed)
        self.norm(x)
        return x


def test_a_norm_whose_result_is_ignored():
    assert bugs(NormForShow(RECTANGLE)) == ["dead residual norm", "no final norm"]


def linear_head_behind_a_norm():
    model = ViT(replace(RECTANGLE, final_norm=False))
    model.head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 5))
    return model


class LinearPatches(nn.Module):
    """A linear layer over (ph pw c), trained in that order: not a bug."""

    def __init__(self):
        super().__init__()
        self.img_size, self.patch_size, self.in_chans, self.proj = (12, 8), (4, 2), 3, nn.Linear(24, 24)

    def forward(self, images):
        return self.proj(rearrange(images, "b c (gh ph) (gw pw) -> b (gh gw) (ph pw c)", ph=4, pw=2))


def with_linear_patches():
    model = ViT(RECTANGLE)
    model.patch_embed = LinearPatches()
    return model


HEALTHY = {
    "a norm in the head": linear_head_behind_a_norm,
    "a linear projection with colours last": with_linear_patches,
    "a class token as short as the norm's ε": lambda: timm.create_model(
        "deit3_small_patch16_224", img_size=32, depth=2
    ),
}


@pytest.mark.parametrize("make", HEALTHY.values(), ids=HEALTHY)
def test_healthy_models_of_other_makes_have_no_findings(make):
    assert bugs(make()) == []


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
    """Queries, keys and values from separate layers."""

    def __init__(self, dim, head, scale):
        super().__init__()
        self.head, self.scale = head, scale
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        q, k, v = (rearrange(layer(x), "b n (h d) -> b h n d", h=self.head) for layer in (self.q, self.k, self.v))
        return self.o(rearrange((q @ k.mT * self.scale).softmax(dim=-1) @ v, "b h n d -> b n (h d)"))


@pytest.mark.parametrize(("width", "found"), [(8, []), (24, ["scale by √dim"])])
def test_the_scale_with_separate_layers_for_queries_keys_and_values(width, found):
    model = ViT(RECTANGLE)
    for block in model.blocks:
        block.attn = SeparateLayers(24, 3, width**-0.5)
    assert bugs(model) == found


# A model that a reader has written --------------------------------------------------------------------------------


class Readers(nn.Module):
    """No name and no part shared with ours."""

    def __init__(self, width=20, conv=True, *, bug="", num_classes=5):
        super().__init__()
        self.bug, self.conv = bug, conv
        self.to_tokens = nn.Conv2d(3, width, (4, 2), (4, 2)) if conv else nn.Linear(24, width)
        self.rest = nn.Dropout(0.1)
        self.where = nn.Parameter(torch.randn(1, 12, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=bug != "across", norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.classes = nn.Linear(width, num_classes)
        self.rows = nn.Parameter(torch.randn(4, 1, width)) if bug in ("rows", "strict") else None
        self.spare = nn.Linear(2, 2) if bug == "spare" else None

    def forward(self, pixels):
        if self.conv:
            x = self.to_tokens(pixels)
            x = x.reshape(len(x), 12, -1) if self.bug == "reshape" else x.flatten(2).mT
        elif self.bug == "reshape":
            x = self.to_tokens(pixels.reshape(len(pixels), 12, 24))
        else:
            x = self.to_tokens(rearrange(pixels, "b c (gh ph) (gw pw) -> b (gh gw) (ph pw c)", ph=4, pw=2))
        x = self.rest(x)
        x.add_(x.mean(dim=1, keepdim=True))  # in place, mixes all tokens
        x = x if self.bug == "order" else x + self.where
        if self.rows is not None:
            x = x + (self.rows if self.bug == "strict" else self.rows[torch.arange(len(x)) % 4])
        x = self.body(x)
        x = self.classes(x if self.bug == "each token" else x.mean(dim=1))
        return {"softmax": x.softmax(dim=-1), "squeeze": x.squeeze(0)}.get(self.bug, x)


READERS = {
    "": [],
    "softmax": ["softmax before cross-entropy"],
    "across": ["attention across the batch"],
    "rows": ["row or size of the batch matters"],
    "strict": ["row or size of the batch matters"],
    "squeeze": ["row or size of the batch matters"],
    "spare": ["dead parameters"],
    "reshape": ["reshape without permute"],
    "each token": ["head on all tokens"],
}
IMAGES = (4, 3, 12, 8)


@pytest.mark.parametrize("conv", [True, False])
@pytest.mark.parametrize("bug", READERS)
def test_any_model_by_its_outputs(bug, conv):
    found = diagnose(Readers(conv=conv, bug=bug), torch.randn(IMAGES), patch_size=(4, 2))
    assert [finding.bug for finding in found] == READERS[bug]
    assert all(any(letter.isdigit() for letter in finding.evidence) for finding in found)
    cannot = {"no position on the class token"} | ({"colours last"} if not conv else set())
    assert set(found.not_run) - {"head on all tokens", "per-head slices"} == cannot
    assert not set(found.not_run) & set(found.passed)
    assert {*found.passed, *found.not_run, *READERS[bug]} >= {*TESTS_OF_OUTPUTS, *TESTS_OF_ATTENTION}


def test_a_model_that_is_blind_to_the_order_of_patches():
    model = Readers(bug="order")
    (finding, dead) = diagnose(model, torch.randn(IMAGES), patch_size=(4, 2))[::-1]
    assert finding.bug == "blind to the order of patches" and "12 patches" in finding.evidence
    assert dead.bug == "dead parameters" and "1 of the 31 parameters, where " in dead.evidence


def test_tests_that_need_the_patch_size_are_named_without_it():
    found = diagnose(Readers(bug="reshape", conv=False), torch.randn(IMAGES))
    assert found == [] and found.advice == "Pass patch_size, in pixels, if the model cuts images into patches."
    assert {bug for bug, why in found.not_run.items() if why == "it needs the patch_size"} == {
        "reshape without permute",
        "blind to the order of patches",
        "colours last",
    }
    (finding,) = diagnose(Readers(bug="reshape"), torch.randn(IMAGES))  # a convolution says it
    assert finding.bug == "reshape without permute"


def test_outputs_that_ignore_the_image_tell_nothing_about_neighbours():
    model = PATIENTS["attention across the batch"].make(RECTANGLE)  # its class token never sees a pixel
    found = diagnose(model, torch.randn(IMAGES), patch_size=(4, 2))
    assert found.not_run["blind to the order of patches"] == "the outputs are the same for every image"
    assert [finding.bug for finding in found] == bugs(model) == ["attention across the batch"]


def test_a_head_initialized_with_zeros_hides_nothing():
    images = torch.randn(4, 3, 32, 32)
    found = diagnose(torchvision_model(), images, patch_size=8)
    assert found == [] and not set(found.not_run) & set(TESTS_OF_OUTPUTS)
    nn.init.zeros_((blank := torchvision_model()).encoder.pos_embedding)  # zeros, but trainable
    assert bugs(blank, images=images, patch_size=8) == []
    sick = with_neighbours_behind_the_blocks()
    assert not sick.heads.head.weight.any()
    assert bugs(sick) == bugs(sick, images=images, patch_size=8) == ["attention across the batch"]


class WithoutGradient(Wrapped):
    @torch.no_grad()
    def forward(self, images):
        return self.inner(images)


def test_a_model_without_gradients():
    found = diagnose(WithoutGradient(Readers(bug="across")), torch.randn(IMAGES))
    assert [finding.bug for finding in found] == ["attention across the batch"]
    assert "no gradient" in found.not_run["dead parameters"]


def test_any_model_may_return_an_object_with_logits():
    model = huggingface_model()
    assert diagnose(model, torch.randn(IMAGES), patch_size=(4, 2)) == []
    model = sick_huggingface_model("softmax before cross-entropy")
    assert bugs(model, images=torch.randn(IMAGES)) == ["softmax before cross-entropy"]


def test_images_that_do_not_fit_are_refused(no_shape_checks):
    model = Readers()
    for images, message in (
        (torch.randn(1, 3, 12, 8), r"b at least 2; got \(1, 3, 12, 8\), torch.float32"),
        (torch.randn(3, 12, 8), r"got \(3, 12, 8\)"),
        (torch.zeros(IMAGES, dtype=torch.uint8), "must be floating point.*torch.uint8"),
    ):
        with pytest.raises(ValueError, match=message):
            diagnose(model, images)
    with pytest.raises(ValueError, match="img_size width 8 is not divisible by patch_size width 3"):
        diagnose(model, torch.randn(IMAGES), patch_size=(4, 3))
    with pytest.raises(ValueError, match="patch_size 4 is for a model with images"):
        diagnose(ViT(RECTANGLE), patch_size=4)
    with pytest.raises(ValueError, match="no model"):
        diagnose(images=torch.randn(IMAGES))
    with pytest.raises(ValueError, match="model must be a Module, got a function"):
        diagnose(lambda images: images.mean(dim=(2, 3)), torch.randn(IMAGES))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (nn.Identity(), r"4 images should give logits \(b, k\), got \(4, 3, 12, 8\)"),
        (nn.Flatten(0, 2), r"logits \(b, k\), got \(144, 8\)"),
        (nn.AdaptiveMaxPool2d(1, return_indices=True), "must return logits, or an object that has them; got tuple"),
    ],
)
def test_outputs_that_are_not_logits_are_refused(head, message):
    with pytest.raises(ValueError, match=message):
        diagnose(Wrapped(head), torch.randn(IMAGES))


# Selection --------------------------------------------------------------------------------------------------------


def test_selection():
    for select in (last_epoch, best_on_validation, lambda history: 0):
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


# The model is left as it was ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: PATIENTS["dead residual norm"].make(COLOUR), torchvision_model])
def test_the_model_is_as_it_was(make):
    def hooks() -> list:
        return [[*part._forward_hooks, *part._forward_pre_hooks] for part in model.modules()]

    model = make()
    model.train()
    next(iter(model.children())).eval()  # another mode than the rest
    frozen = next(model.parameters()).requires_grad_(False)
    images = torch.randn(2, 3, *((16, 16) if isinstance(model, ViT) else (32, 32)))
    model(images).sum().backward()
    state, modes = copy.deepcopy(model.state_dict()), [part.training for part in model.modules()]
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    generator, found = torch.get_rng_state(), hooks()
    diagnose(model)
    diagnose(model, images, patch_size=4)
    assert torch.equal(torch.get_rng_state(), generator)
    assert [part.training for part in model.modules()] == modes
    torch.testing.assert_close(dict(model.state_dict()), dict(state), rtol=0, atol=0)
    assert not frozen.requires_grad
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert (parameter.grad is None) == (grad is None) and (grad is None or torch.equal(parameter.grad, grad))
    assert hooks() == found


def test_under_no_grad_frozen_and_twice_the_same():
    model = PATIENTS["reshape without permute"].make(RECTANGLE).requires_grad_(False)
    with torch.no_grad():
        first = diagnose(model)
    assert first == diagnose(model) != []
    frozen = PATIENTS["dead residual norm"].make(RECTANGLE).requires_grad_(False)
    assert bugs(frozen) == ["dead residual norm"]
    assert bugs(ViT(RECTANGLE).double()) == []


def test_under_autocast_and_in_inference_mode():
    model, sick, other = ViT(RECTANGLE), PATIENTS["scale by √dim"].make(RECTANGLE), Readers()
    dtypes = set()
    model.patch_embed.register_forward_hook(lambda part, args, tokens: dtypes.add(tokens.dtype))
    for context in (torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        with context:
            assert bugs(model) == [] and dtypes == {torch.float32}
            assert bugs(sick) == ["scale by √dim"]
            assert bugs(other, images=torch.randn(IMAGES), patch_size=(4, 2)) == []


def test_a_model_made_in_inference_mode():
    with torch.inference_mode():
        model = ViT(RECTANGLE)
        with pytest.raises(
            ValueError, match=r"this ViT was made under torch.inference_mode\(\), so it has no gradients"
        ):
            diagnose(model)
    with pytest.raises(ValueError, match="inference_mode"):
        diagnose(model, torch.randn(IMAGES))


def test_other_models_are_refused():
    with pytest.raises(ValueError, match=r"Sequential is not a Vision Transformer.*diagnose\(model, images\)"):
        diagnose(nn.Sequential(nn.Linear(2, 2)))
    model = ViT(RECTANGLE)
    model.compile()
    with pytest.raises(ValueError, match="compiled"):
        diagnose(model)
