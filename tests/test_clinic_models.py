"""Models as people write them: what they return, what they take, what in them is random, not finite or not a module."""

import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
import transformers
from einops import rearrange
from torch import nn

from vit_tutorial import ViT, ViTConfig, diagnose
from vit_tutorial.clinic import NOT_FINITE, RANDOM, TESTS
from vit_tutorial.clinic.examined import prepared
from vit_tutorial.clinic.inputs import make_images
from vit_tutorial.clinic.symptoms import as_logits
from vit_tutorial.clinic.trace import FAILURES

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # as a reader runs it, in half the time

CONFIG = ViTConfig(img_size=32, patch_size=8, num_classes=5, embed_dim=24, depth=2, num_heads=3)


class Students(nn.Module):
    """Healthy, and no part has a library's name."""

    def __init__(self, side=32, channels=3, out=None, last=False):
        super().__init__()
        self.cut = nn.Conv2d(channels, 24, 8, 8)
        self.first = nn.Parameter(torch.randn(1, 1, 24))
        self.places = nn.Parameter(torch.randn(1, (side // 8) ** 2 + 1, 24))
        layer = nn.TransformerEncoderLayer(24, 3, 48, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(24), enable_nested_tensor=False)
        self.classes = nn.Linear(24, 5)
        self.out, self.last = out, last

    def forward(self, x):
        x = self.cut(x.permute(0, 3, 1, 2) if self.last else x).flatten(2).mT
        x = self.body(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.places)
        logits = self.classes(x[:, 0])
        return self.out(logits, x) if self.out else logits


def bugs(found) -> list[str]:
    return [finding.bug for finding in found]


# What a model returns -----------------------------------------------------------------------------------------------


@dataclass
class Output:
    hidden: torch.Tensor
    logits: torch.Tensor


OUTPUTS = {
    "a tuple": lambda logits, x: (logits, x),
    "maps first": lambda logits, x: (x, logits),
    "a list": lambda logits, x: [logits],
    "a dict": lambda logits, x: {"features": x[:, 0], "logits": logits},
    "a dict without the name": lambda logits, x: {"tokens": x, "y": logits},
    "a dataclass": lambda logits, x: Output(x, logits),
    "an object": lambda logits, x: SimpleNamespace(logits=logits, loss=None),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_logits_in_what_a_model_returns_are_used(kind):
    logits, x = torch.randn(4, 5), torch.randn(4, 17, 24)
    assert as_logits(OUTPUTS[kind](logits, x)) is logits
    assert diagnose(Students(out=OUTPUTS[kind])) == []


def test_what_has_no_logits_says_what_it_has():
    with pytest.raises(ValueError, match=r"got tuple with \(4, 2, 3, 3\)"):
        as_logits((torch.zeros(4, 2, 3, 3), None))
    with pytest.raises(ValueError, match="got str with no tensor"):
        as_logits("cat")


# What it takes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "channels"), [(32, 3), (72, 1), (224, 3), (40, 4)])
def test_images_of_any_size_are_made(side, channels):
    model = Students(side, channels)
    with prepared(model, torch.device("cpu")):
        images, last = make_images(model)
    assert images.shape == (4, channels, side, side) and not last
    found = diagnose(model)
    assert found == [] and "pass diagnose(model, images)" in found.advice and f"×{side}×{side}" in found.advice


def test_channels_last():
    model = Students(last=True)
    assert diagnose(model) == [] and diagnose(model, torch.randn(2, 32, 32, 3)) == []
    sick = nn.Sequential(model, nn.Softmax(dim=-1))
    assert bugs(diagnose(sick, torch.randn(2, 32, 32, 3))) == ["softmax before cross-entropy"]
    images = torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last)
    assert diagnose(Students(), images) == []


def test_images_that_a_model_does_not_take_are_refused_with_its_words():
    with pytest.raises(ValueError, match=r"Students does not take images \(2, 3, 40, 40\): .*size of tensor"):
        diagnose(Students(), torch.randn(2, 3, 40, 40))


def test_with_and_without_images_the_same_is_tested_and_no_advice_is_a_circle():
    model = Students()
    found = [
        diagnose(model),
        diagnose(model, torch.randn(4, 3, 32, 32)),
        diagnose(model, torch.randn(4, 3, 32, 32), patch_size=8),
    ]
    for each in found:
        assert each == [] and each.passed == found[0].passed and each.not_run == found[0].not_run
        assert not any("images" in why and "try" in why for why in each.not_run.values())
    assert found[2].advice == ""
    known = ViT(CONFIG)
    assert set(diagnose(known, torch.randn(2, 3, 32, 32)).passed) >= set(TESTS) - {
        "dead residual norm",
        "batch-sized class token",
    }


def test_pictures_of_one_colour_do_not_tell_whether_positions_are_there():
    found = diagnose(Students(), torch.rand(4, 3, 1, 1).expand(-1, -1, 32, 32))
    assert found == [] and found.not_run["blind to the order of patches"] == "the patches of each image are alike"


class Loop(nn.Module):
    """Branches in nested lists, added in a loop; patches by a linear layer."""

    def __init__(self, batch_first):
        super().__init__()
        self.to_tokens = nn.Linear(192, 24)
        self.first, self.pos = nn.Parameter(torch.randn(1, 1, 24)), nn.Parameter(torch.randn(1, 17, 24))
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.MultiheadAttention(24, 3, batch_first=batch_first), nn.Linear(24, 24)]) for _ in range(2)
        )
        self.norm, self.classes = nn.LayerNorm(24), nn.Linear(24, 5)

    def forward(self, images):
        x = self.to_tokens(rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8))
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.pos
        for attn, mlp in self.layers:
            x = x + attn(x, x, x)[0]
            x = x + mlp(x).relu()
        return self.classes(self.norm(x)[:, 0])


def test_a_model_without_blocks_is_asked_for_what_it_passes_on_last():
    assert diagnose(Loop(True)) == []
    (finding,) = diagnose(Loop(False))  # whose class token never sees a pixel
    assert finding.bug == "attention across the batch"


# Random, or not finite ----------------------------------------------------------------------------------------------


class Drops(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.1)


class FreshDropout(nn.Module):
    def forward(self, x):
        return nn.Dropout(0.1)(x)


class DropsPaths(nn.Module):
    def forward(self, x):
        return x * (torch.rand(len(x), 1, 1) < 0.8)


def with_behind_the_mlp(part: nn.Module, model: ViT) -> ViT:
    for block in model.blocks:
        block.mlp = nn.Sequential(block.mlp, part)
    return model


@pytest.mark.parametrize("images", [None, torch.randn(4, 3, 32, 32)], ids=["none", "given"])
@pytest.mark.parametrize("kind", [Drops, FreshDropout])
def test_dropout_that_stays_on_is_named_and_the_rest_is_tested_without_it(kind, images):
    found = diagnose(with_behind_the_mlp(kind(), ViT(CONFIG)), images)
    assert bugs(found) == [RANDOM] and "without dropout they are the same" in found[0].evidence
    assert "attention across the batch" in found.passed and "F.dropout" in found[0].remedy
    sick = with_behind_the_mlp(kind(), ViT(replace(CONFIG, final_norm=False)))
    assert bugs(diagnose(sick, images)) == [RANDOM, "no final norm"]


@pytest.mark.parametrize("images", [None, torch.randn(4, 3, 32, 32)], ids=["none", "given"])
def test_what_else_is_random_is_named_and_the_rest_is_tested_with_the_same_numbers(images):
    found = diagnose(with_behind_the_mlp(DropsPaths(), ViT(CONFIG)), images)
    assert bugs(found) == [RANDOM] and "DropPath" in found[0].remedy and "attention across the batch" in found.passed
    assert (images is None) == ("row or size of the batch matters" not in found.not_run)
    sick = with_behind_the_mlp(DropsPaths(), ViT(replace(CONFIG, final_norm=False)))
    assert bugs(diagnose(sick, images)) == [RANDOM, "no final norm"]


class SkipsRarely(nn.Module):
    """Layer dropout, as a library has it: it doesn't ask whether it is training, and most passes are whole."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return x if random.random() < 0.1 else self.layer(x)


class FreshClassToken(nn.Module):
    """A class token made in forward: another one in each pass, and nothing trains it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        tokens = self.model.cut(images).flatten(2).mT
        first = nn.Parameter(torch.randn(1, 1, 24)).expand(len(images), -1, -1)
        return self.model.classes(self.model.body(torch.cat([first, tokens], dim=1) + self.model.places)[:, 0])


def test_what_is_random_in_a_few_passes_is_found_and_no_neighbour_is_blamed():
    model = Students()
    model.body = SkipsRarely(model.body)
    images, places = torch.randn(4, 3, 32, 32), np.random.get_state()[2]
    state = torch.get_rng_state()
    (finding,) = diagnose(model, images)
    assert finding.bug == RANDOM and torch.equal(torch.get_rng_state(), state) and np.random.get_state()[2] == places


def test_parameters_that_are_made_in_forward():
    model = Students()
    del model.first
    found = diagnose(FreshClassToken(model))
    assert bugs(found) == [RANDOM, "parameters that aren't registered"] and "(1, 1, 24)" in found[1].evidence


class AttentionThatAlwaysDrops(nn.Module):
    """Dropout of the fused kernel, told to drop in every mode."""

    def __init__(self, dim, heads, *args, **options):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.args, self.options = args, options

    def forward(self, x):
        q, k, v = rearrange(self.qkv(x), "b n (three h hd) -> three b h n hd", three=3, h=self.heads)
        x = F.scaled_dot_product_attention(q, k, v, *self.args, **self.options)
        return self.proj(rearrange(x, "b h n hd -> b n (h hd)"))


@pytest.mark.parametrize(("args", "options"), [((), {"dropout_p": 0.2}), ((None, 0.2), {}), ((None, 0.2, False), {})])
def test_dropout_of_the_fused_kernel_is_found_and_its_weights_are_looked_at_without_it(args, options):
    model = ViT(CONFIG)
    for block in model.blocks:
        block.attn = AttentionThatAlwaysDrops(24, 3, *args, **options)
    found = diagnose(model)
    assert bugs(found) == [RANDOM] and "without dropout they are the same" in found[0].evidence
    assert "scale by √dim" in found.passed


class Root(nn.Module):
    def forward(self, x):
        return (x - 100).sqrt()


def test_the_first_part_that_is_not_finite_is_named():
    model = ViT(CONFIG)
    model.blocks[1].mlp.act = Root()
    (finding,) = diagnose(model)
    assert finding.bug == NOT_FINITE and "blocks.1.mlp.act (Root)" in finding.evidence
    assert "lower rate" not in finding.remedy and "blocks.1.mlp.act" in finding.remedy
    (finding,) = diagnose(Students(out=lambda logits, x: logits / 0))
    assert finding.bug == NOT_FINITE and "Students itself, outside of its parts" in finding.evidence


# Parts that are not modules, and what real ViTs carry ---------------------------------------------------------------


def odd(**parts) -> ViT:
    model = ViT(CONFIG)
    for name, value in parts.items():
        for block in model.blocks:
            block.attn.__dict__[name] = value
    return model


@pytest.mark.parametrize(
    "parts", [{"q_norm": None, "k_norm": None}, {"norm": 1e-6}, {"norm": len, "q_norm": 3}], ids=str
)
def test_attributes_of_attention_that_are_no_modules(parts):
    assert diagnose(odd(**parts)) == []


def test_a_norm_that_is_a_function_or_a_number():
    class Functional(ViT):
        def forward_features(self, images):
            x = torch.cat([self.cls_token.expand(len(images), -1, -1), self.patch_embed(images)], dim=1)
            return F.layer_norm(self.blocks(x + self.pos_embed), (24,))

    model = Functional(CONFIG)
    for value in (1e-6, None):
        del model.norm
        model.norm = value
        assert diagnose(model) == []


SIZES = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
SMALL = {
    "image_size": 32, "patch_size": 8, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 48,
}  # fmt: skip
REAL = {
    "LayerScale and a mask token": lambda: transformers.Dinov2ForImageClassification(
        transformers.Dinov2Config(**SMALL)
    ),
    "registers": lambda: transformers.Dinov2WithRegistersForImageClassification(
        transformers.Dinov2WithRegistersConfig(**SMALL)
    ),
    "a distillation token": lambda: transformers.DeiTForImageClassificationWithTeacher(
        transformers.DeiTConfig(**SMALL)
    ),
    "relative bias": lambda: transformers.BeitForImageClassification(
        transformers.BeitConfig(**SMALL, use_relative_position_bias=True)
    ),
    "a head for another task": lambda: transformers.SiglipForImageClassification(
        transformers.SiglipConfig(vision_config=SMALL)
    ),
    "no head": lambda: transformers.ViTModel(transformers.ViTConfig(**SMALL)),
    "rotary positions": lambda: timm.models.Eva(**SIZES, use_rot_pos_emb=True, qkv_fused=False, swiglu_mlp=True),
    "RMSNorm": lambda: timm.models.VisionTransformer(**SIZES, norm_layer="rmsnorm"),
    "norms behind the branches": lambda: timm.models.VisionTransformer(
        **SIZES, block_fn=timm.models.vision_transformer.ResPostBlock
    ),
    "SwiGLU": lambda: timm.models.VisionTransformer(**SIZES, mlp_layer=timm.layers.SwiGLU),
    "class attention": lambda: timm.models.Cait(**SIZES),
    "post-norm": lambda: nn.Sequential(
        nn.Conv2d(3, 24, 8, 8),
        nn.Flatten(2),
        Tokens(),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 3, 48, batch_first=True), 2),
        Mean(),
        nn.Linear(24, 5),
    ),
    "a network in front": lambda: timm.create_model("vit_tiny_r_s16_p8_224", img_size=32, depth=1, patch_size=1),
    "an overlapping stem and no class token": lambda: nn.Sequential(
        nn.Conv2d(3, 24, 12, 8, padding=2),
        nn.Flatten(2),
        Tokens(),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 3, 48, batch_first=True), 2, nn.LayerNorm(24)),
        Mean(),
        nn.Linear(24, 5),
    ),
}


class Tokens(nn.Module):
    """(b, d, n) to (b, n, d), with positions."""

    def __init__(self):
        super().__init__()
        self.pos = nn.Parameter(torch.randn(1, 16, 24))

    def forward(self, x):
        return rearrange(x, "b d n -> b n d") + self.pos


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


@pytest.mark.parametrize("kind", REAL)
def test_healthy_models_of_real_kinds_have_no_findings(kind):
    torch.manual_seed(0)
    model = REAL[kind]()
    for found in (diagnose(model), diagnose(model, torch.randn(2, 3, 32, 32))):
        assert found == [] and "TypeCheckError" not in str(found)


# The report ---------------------------------------------------------------------------------------------------------


def test_the_report_is_a_table_in_a_notebook_and_text_elsewhere():
    model = Students()
    model.spare = nn.Linear(2, 2)
    found = diagnose(model, torch.randn(2, 3, 32, 32))
    (finding,) = found
    html, text = found._repr_html_(), str(found)
    for word in ("bug", "evidence", "repair", "test"):
        assert f">{word}</th>" in html
    for said in (finding.bug, finding.evidence, finding.remedy, "probes.parameters_without_gradient"):
        assert said in text and said.replace("'", "’") in html
    assert text.startswith(f"1 bug found, {len(found.passed)} others looked for and not found")
    healthy = diagnose(ViT(replace(CONFIG, pool="mean")))
    assert str(healthy).startswith("no bug found, ") and ">none</th>" in healthy._repr_html_()
    for why in set(healthy.not_run.values()):  # each reason once
        assert f"{healthy}\n".count(f": {why}\n") == 1 and healthy._repr_html_().count(f">{why}<") == 1


def test_what_other_code_raises_is_a_reason_and_no_crash(monkeypatch):
    assert AssertionError in FAILURES

    class Picky(Students):
        def forward(self, x):
            assert len(x) != 1, "batches of one are not for me"
            return super().forward(x)

    (finding,) = diagnose(Picky(), torch.randn(2, 3, 32, 32))
    assert finding.bug == "row or size of the batch matters" and "AssertionError" in finding.evidence
