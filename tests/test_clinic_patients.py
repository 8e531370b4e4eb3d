"""Each patient has its bug and nothing else: against independent constructions, and against the healthy model."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from vit_tutorial import ViT, ViTConfig, plain_attention
from vit_tutorial.attention import Attention
from vit_tutorial.clinic import (
    PATIENTS,
    AlwaysDroppingBlock,
    ColoursLastPatches,
    DeadNormBlock,
    ReshapedHeads,
    ReshapedPatches,
    SequenceFirstAttention,
    SlicedHeads,
    attention_over_queries,
    attention_scaled_by_dim,
    best_on_test,
    best_on_validation,
    last_epoch,
    make_patient,
)
from vit_tutorial.patches import PatchEmbed

# Unequal everywhere, so that a swapped axis shows: 3×4 patches of 4×2 pixels, 3 heads of 8.
CONFIG = ViTConfig(
    img_size=(12, 8), patch_size=(4, 2), in_chans=3, num_classes=5, embed_dim=24, depth=2, num_heads=3
)  # fmt: skip
IMAGES = (2, 3, 12, 8)
HARMLESS = {"selection on the test set"}  # its model is healthy


def seeded(name: str, config: ViTConfig = CONFIG) -> nn.Module:
    torch.manual_seed(0)
    return make_patient(name, config).eval()


@pytest.mark.parametrize("name", PATIENTS)
def test_a_patient_starts_with_the_healthy_model_s_weights(name):
    healthy, sick = seeded("healthy"), seeded(name)
    ours = healthy.state_dict()
    replaced = {"per-head slices": ".attn.", "batch-sized class token": "cls_token"}.get(name, "nothing")
    for key, value in sick.state_dict().items():
        assert replaced in key or torch.equal(value, ours[key]), key


@pytest.mark.parametrize("name", sorted(set(PATIENTS) - HARMLESS))
def test_a_patient_s_logits_differ_from_the_healthy_model_s(name):
    healthy, sick, images = seeded("healthy"), seeded(name), torch.randn(IMAGES)
    assert sick(images).shape == (2, 5)
    assert not torch.allclose(sick(images), healthy(images), atol=1e-3)


@pytest.mark.parametrize("name", PATIENTS)
def test_a_patient_trains(name):
    # A class token that attends across the batch only sees class tokens, never a pixel: see below.
    config = replace(CONFIG, pool="mean") if name == "attention across the batch" else CONFIG
    model, images, labels = seeded(name, config).train(), torch.randn(16, *IMAGES[1:]), torch.arange(16) % 5
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


def test_attention_across_the_batch_is_pytorch_s_default():
    ours = SequenceFirstAttention(12, 3)
    theirs = nn.MultiheadAttention(12, 3)  # batch_first is False
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias)
        theirs.out_proj.load_state_dict(ours.proj.state_dict())
    x = torch.randn(4, 7, 12)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0], rtol=1e-4, atol=1e-5)


def test_across_the_batch_a_class_token_is_blind():
    model = seeded("attention across the batch")
    logits = model(torch.randn(4, *IMAGES[1:]))
    torch.testing.assert_close(logits, logits[:1].expand(4, -1))
    mean = seeded("attention across the batch", replace(CONFIG, pool="mean"))
    assert mean(torch.randn(4, *IMAGES[1:])).std(dim=0).min() > 0.01


def test_a_dead_norm_is_called_and_changes_nothing():
    block, x, calls = DeadNormBlock(12, 3), torch.randn(2, 5, 12), []
    before = block(x)
    for norm in (block.norm1, block.norm2):
        norm.register_forward_hook(lambda *_: calls.append(1))
        nn.init.constant_(norm.weight, 7.0)
    assert torch.equal(block(x), before) and len(calls) == 2
    expected = x + block.attn(x)
    torch.testing.assert_close(before, expected + block.mlp(expected))


def test_reshaped_patches_hold_pixels_in_the_order_of_memory():
    embed = ReshapedPatches((4, 6), (2, 3), 1, 5)
    images = torch.arange(24.0).reshape(1, 1, 4, 6)
    # Token 0 holds pixels 0 to 5, a whole row of the image; its patch would be 0 1 2 6 7 8.
    expected = embed.proj.weight.flatten(1) @ torch.arange(6.0) + embed.proj.bias
    torch.testing.assert_close(embed(images)[0, 0], expected)


def test_colours_last_is_healthy_once_the_weights_are_reordered():
    healthy, sick = PatchEmbed((12, 8), (4, 2), 3, 5), ColoursLastPatches((12, 8), (4, 2), 3, 5)
    weight = rearrange(healthy.proj.weight, "d c ph pw -> d (ph pw c)")
    sick.proj.load_state_dict({"weight": weight.reshape(5, 3, 4, 2), "bias": healthy.proj.bias})
    images = torch.randn(IMAGES)
    torch.testing.assert_close(sick(images), healthy(images), rtol=1e-4, atol=1e-5)


def test_sliced_heads_are_small_attentions_side_by_side():
    heads, x = SlicedHeads(12, 3), torch.randn(2, 5, 12)
    parts = []
    for head, part in zip(heads.heads, (x[..., :4], x[..., 4:8], x[..., 8:]), strict=True):
        parts.append(plain_attention(head.query(part), head.key(part), head.value(part)))
    torch.testing.assert_close(heads(x), torch.cat(parts, dim=-1))
    full = 12 * 13 * 3 + 12 * 13
    assert sum(p.numel() for p in heads.parameters()) == 3 * 3 * (4 * 5) < full


def test_the_wrong_scale_is_a_smaller_query():
    q, k, v = torch.randn(3, 2, 3, 5, 4)
    torch.testing.assert_close(
        attention_scaled_by_dim(q, k, v), plain_attention(q / 3**0.5, k, v), rtol=1e-4, atol=1e-5
    )


def test_over_the_queries_each_key_hands_out_one_value_in_all():
    q, k = torch.zeros(2, 1, 1, 2, 2)
    v = torch.tensor([[1.0, 3.0], [5.0, 7.0]])[None, None]
    # Equal scores: each query gets half of each value, as it does over the keys. With a third query it's a third.
    torch.testing.assert_close(attention_over_queries(q, k, v), torch.tensor([[[[3.0, 5.0]] * 2]]))
    q = torch.zeros(1, 1, 3, 2)
    torch.testing.assert_close(attention_over_queries(q, k, v), torch.tensor([[[[2.0, 10 / 3]] * 3]]))
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    torch.testing.assert_close(attention_over_queries(q, k, v).sum(dim=-2), v.sum(dim=-2), rtol=1e-4, atol=1e-5)


def test_a_class_token_without_a_position_learns_it_by_itself():
    healthy, sick, images = seeded("healthy"), seeded("no position on the class token"), torch.randn(IMAGES)
    with torch.no_grad():
        sick.cls_token += sick.pos_embed[:, :1]
    torch.testing.assert_close(sick(images), healthy(images), rtol=1e-4, atol=1e-5)


def test_reshaped_heads_are_the_right_ones_if_token_and_features_already_lie_head_by_head():
    sick, healthy, x = ReshapedHeads(12, 3), Attention(12, 3), torch.randn(2, 6, 12)
    healthy.load_state_dict(sick.state_dict())

    def by_hand(x):
        """Token after token of q, k and v laid out in a row, cut into as many equal pieces as there are heads."""
        q, k, v = (part.flatten(1) for part in sick.qkv(x).chunk(3, dim=-1))
        pieces = [[part.chunk(3, dim=1)[head].unflatten(1, (6, 4)) for part in (q, k, v)] for head in range(3)]
        out = torch.cat([plain_attention(*piece).flatten(1) for piece in pieces], dim=1)
        return sick.proj(out.unflatten(1, (6, 12)))

    torch.testing.assert_close(sick(x), by_hand(x), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(sick(x), healthy(x), atol=1e-2)
    single = ReshapedHeads(12, 1)
    healthy = Attention(12, 1)
    healthy.load_state_dict(single.state_dict())
    torch.testing.assert_close(single(x), healthy(x), rtol=1e-4, atol=1e-5)  # one head has nothing to transpose


def test_reshaped_heads_keep_each_token_among_its_neighbours():
    heads, x = ReshapedHeads(12, 3), torch.randn(1, 6, 12)
    moved = heads(x + torch.eye(6)[3][None, :, None]) - heads(x)  # token 3 is one of the middle two
    assert (moved.abs().amax(dim=-1)[0] > 1e-5).tolist() == [False, False, True, True, False, False]


def test_dropout_that_stays_on_changes_the_answers_and_not_the_training():
    config = replace(CONFIG, drop_rate=0.1)
    sick, healthy, images = seeded("random while evaluating"), seeded("healthy", config), torch.randn(IMAGES)
    assert sick.config == config and not torch.equal(sick(images), sick(images))
    assert torch.equal(healthy(images), healthy(images))
    trained = []
    for model in (sick.train(), healthy.train()):
        torch.manual_seed(0)
        trained.append(model(images))
    assert torch.equal(*trained)
    calm = AlwaysDroppingBlock(24, 3).eval()  # at a rate of 0 there is nothing to draw
    assert torch.equal(calm(torch.ones(1, 2, 24)), calm(torch.ones(1, 2, 24)))


def test_a_batch_sized_class_token_depends_on_the_row():
    model = seeded("batch-sized class token")
    rows = model(torch.randn(1, 3, 12, 8).expand(model.ROWS + 1, -1, -1, -1))
    assert not torch.allclose(rows[0], rows[1], atol=1e-4)
    torch.testing.assert_close(rows[0], rows[-1], rtol=1e-4, atol=1e-5)


def test_the_head_on_all_tokens_is_the_mean_of_its_logits():
    model, images = seeded("head on all tokens"), torch.randn(IMAGES)
    tokens = model.forward_features(images)
    torch.testing.assert_close(model(images), torch.stack([model.head(t).mean(dim=0) for t in tokens]))


def test_three_ways_to_choose_an_epoch():
    history = [{"val_accuracy": v, "test_accuracy": t} for v, t in ((0.7, 0.9), (0.8, 0.6), (0.75, 0.7))]
    assert (last_epoch(history), best_on_validation(history), best_on_test(history)) == (2, 1, 0)
    assert {patient.select for patient in PATIENTS.values()} == {last_epoch, best_on_test}


IMPOSSIBLE = [
    ("head on all tokens", {"pool": "mean"}, "pool 'cls'"),
    ("no position on the class token", {"pos_embed": "none"}, "pool 'cls' and positions"),
    ("per-head slices", {"num_heads": 1}, "num_heads above 1"),
    ("softmax over the wrong axis", {"pool": "mean", "patch_size": (12, 8)}, "more than one token"),
    ("heads without a transpose", {"num_heads": 1}, "num_heads above 1"),
    ("heads without a transpose", {"pool": "mean", "patch_size": (12, 8)}, "more than one token"),
    ("colours last", {"in_chans": 1}, "in_chans above 1"),
    ("colours last", {"patch_size": 1}, "several pixels"),
    ("reshape without permute", {"patch_size": (4, 8), "in_chans": 1}, "more than one patch in a row"),
]


@pytest.mark.parametrize(("name", "changes", "message"), IMPOSSIBLE)
def test_a_bug_that_would_change_nothing_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=f"{name}.*needs.*{message}"):
        make_patient(name, replace(CONFIG, **changes))


def test_unknown_patients_are_refused():
    with pytest.raises(ValueError, match="no patient 'flu'; there are healthy, softmax"):
        make_patient("flu", CONFIG)


def test_there_are_fifteen_and_healthy_is_the_vit():
    assert len(PATIENTS) == 15 and all(name == patient.name for name, patient in PATIENTS.items())
    assert type(seeded("healthy")) is ViT
