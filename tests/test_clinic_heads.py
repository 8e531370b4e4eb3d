"""Attention that isn't what its own weights say is found, in whatever way it is written; designs are not."""

import pytest
import timm
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from vit_tutorial import Attention, ViT, ViTConfig, diagnose
from vit_tutorial.clinic import heads
from vit_tutorial.clinic.anatomy import Anatomy
from vit_tutorial.clinic.examined import ExaminedModel, prepared

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # as a reader runs it, in half the time

CONFIG = ViTConfig(
    img_size=(12, 8), patch_size=(4, 2), in_chans=3, num_classes=5, embed_dim=24, depth=2, num_heads=3
)  # fmt: skip


class Own(nn.Module):
    """Attention with its steps as arguments, under names that no library has."""

    def __init__(self, *, names="Wq Wk Wv", split=None, merge=None, weigh=None, attend=None, qk_norm=False):
        super().__init__()
        self.nheads, self.makers = 3, names.split()
        for name in self.makers:
            setattr(self, name, nn.Linear(24, 24 if len(self.makers) == 3 else 72))
        self.mix = nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.1))
        self.q_norm = self.k_norm = nn.LayerNorm(8) if qk_norm else None
        self.split, self.merge, self.weigh, self.attend = split, merge, weigh, attend

    def forward(self, x):
        b, n, d = x.shape
        if len(self.makers) == 3:
            q, k, v = (getattr(self, name)(x) for name in self.makers)
        else:
            q, k, v = getattr(self, self.makers[0])(x).chunk(3, dim=-1)
        q, k, v = (self.split(t) if self.split else t.reshape(b, n, 3, 8).transpose(1, 2) for t in (q, k, v))
        if self.q_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.attend:
            out = self.attend(q, k, v)
        else:
            scores = q @ k.mT / 8**0.5
            out = (self.weigh(scores) if self.weigh else scores.softmax(dim=-1)) @ v
        return self.mix(self.merge(out) if self.merge else out.transpose(1, 2).reshape(b, n, d))


def with_own(**how) -> ViT:
    torch.manual_seed(0)
    model = ViT(CONFIG)
    for block in model.blocks:
        block.attn = Own(**how)
    return model


def causal(scores):
    n = scores.shape[-1]
    return scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(dim=-1)


def banded(scores):
    n = torch.arange(scores.shape[-1])
    return scores.masked_fill((n[:, None] - n).abs() > 3, -torch.inf).softmax(dim=-1)


SICK = {
    "queries": ({"weigh": lambda s: s.softmax(dim=-2)}, heads.AXIS, "over the queries"),
    "heads": ({"weigh": lambda s: s.softmax(dim=1)}, heads.AXIS, "over the heads"),
    "no scale": ({"weigh": lambda s: (s * 8**0.5).softmax(dim=-1)}, heads.SCALE, "divided by 1 "),
    "an odd scale": ({"weigh": lambda s: (s * 0.37).softmax(dim=-1)}, heads.SCALE, "divided by 7.6"),
    "scaled behind": ({"weigh": lambda s: (s * 8**0.5).softmax(dim=-1) / 8**0.5}, heads.SCALE, "behind the softmax"),
    "split by view": ({"split": lambda t: t.reshape(len(t), 3, 13, 8)}, heads.TRANSPOSE, "without a transpose"),
    "glued by view": ({"merge": lambda out: out.reshape(len(out), 13, 24)}, heads.TRANSPOSE, "glued"),
    "both by view": (
        {"split": lambda t: t.reshape(len(t), 3, 13, 8), "merge": lambda out: out.reshape(len(out), 13, 24)},
        heads.TRANSPOSE,
        "split and glued",
    ),
    "wrong transpose": (
        {"merge": lambda out: out.mT.reshape(len(out), 13, 24)},
        heads.TRANSPOSE,
        "the wrong transpose",
    ),
    "heads for tokens": (
        {"split": lambda t: t.reshape(len(t), 13, 3, 8), "merge": lambda out: out.reshape(len(out), 13, 24)},
        heads.TRANSPOSE,
        "over the heads of each token",
    ),
    "causal": ({"weigh": causal}, heads.MASKED, "only those before it: 91 of 169"),
    "a band": ({"weigh": banded}, heads.MASKED, "only some"),
    "no softmax": ({"weigh": lambda s: s}, heads.NO_SOFTMAX, "without a softmax"),
    "a sigmoid": ({"weigh": torch.sigmoid}, heads.UNEXPLAINED, "than its own weights say"),
    "values squared": ({"attend": lambda q, k, v: (q @ k.mT).softmax(-1) @ v**2}, heads.UNEXPLAINED, "weights say"),
}


@pytest.mark.parametrize("names", ["Wq Wk Wv", "to_qkv"])
@pytest.mark.parametrize("kind", SICK)
def test_what_makes_attention_differ_from_its_weights_is_named(kind, names):
    how, bug, words = SICK[kind]
    (finding,) = diagnose(with_own(names=names, **how))
    assert finding.bug == bug and words in finding.evidence and "blocks.0.attn" in finding.evidence
    assert finding.test == "heads.explain"


def rotate(q, k, v):
    """Rotary positions, one angle for each token."""
    angle = torch.arange(q.shape[-2])[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03])

    def turn(x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)

    return F.scaled_dot_product_attention(turn(q), turn(k), v)


DESIGNS = {
    "plain": ({}, ""),
    "fused": ({"attend": F.scaled_dot_product_attention}, ""),
    "packed": ({"names": "to_qkv"}, ""),
    "keys named first": ({"names": "keys queries values"}, ""),
    "a norm of queries and keys": ({"qk_norm": True}, ""),
    "rotary positions": ({"attend": rotate}, "as rotary or relative positions do"),
    "cosine attention": (
        {"attend": lambda q, k, v: (10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1) @ v},
        "as in cosine attention",
    ),
}


@pytest.mark.parametrize("kind", DESIGNS)
def test_designs_are_not_taken_for_bugs(kind):
    how, words = DESIGNS[kind]
    found = diagnose(with_own(**how))
    assert found == []
    assert found.not_run.get(heads.UNEXPLAINED, "").endswith(words) or words in found.not_run[heads.UNEXPLAINED]
    assert bool(words) == (heads.UNEXPLAINED in found.not_run)


def test_a_mistake_in_another_order_within_a_packed_projection():
    """As in a tutorial that many have copied: its weights are divided behind the softmax."""

    class Packed(Attention):
        def forward(self, x):
            q, k, v = rearrange(self.qkv(x), "b n (h hd qkv) -> qkv b h n hd", qkv=3, h=self.num_heads)
            out = (q @ k.mT).softmax(dim=-1) / 24**0.5 @ v
            return self.proj(rearrange(out, "b h n hd -> b n (h hd)"))

    model = ViT(CONFIG)
    for block in model.blocks:
        block.attn = Packed(24, 3)
    (finding,) = diagnose(model)
    assert finding.bug == heads.SCALE and "divided by √24 behind the softmax" in finding.evidence


@pytest.mark.parametrize("packed", ["(qkv h hd)", "(h hd qkv)", "(h qkv hd)"])
def test_every_order_within_a_packed_projection_is_healthy(packed):
    class Packed(Attention):
        def project(self, x):
            return rearrange(self.qkv(x), f"b n {packed} -> qkv b h n hd", qkv=3, h=self.num_heads)

    model = ViT(CONFIG)
    for block in model.blocks:
        block.attn = Packed(24, 3)
    found = diagnose(model)
    assert found == [] and found.not_run == {}


def test_a_layer_with_parameters_of_its_own_is_not_judged():
    model = timm.models.VisionTransformerRelPos(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3)
    found = diagnose(model)
    assert found == [] and "beside its weights" in found.not_run[heads.SCALE]


def test_who_reads_whom_of_a_causal_layer():
    model = with_own(weigh=causal)
    with prepared(model, torch.device("cpu")):
        examined = Anatomy.find(ExaminedModel.of(model, torch.randn(2, 3, 12, 8), (4, 2)))
        reads = heads.who_reads_whom(examined.layers[0])
    assert torch.equal(reads, torch.ones(13, 13).tril().bool())
