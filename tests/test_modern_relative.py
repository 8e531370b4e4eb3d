"""Relative positions against torchvision's Swin, timm's BEiT and plain loops, and on another size than trained."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.layers.pos_embed_rel import gen_relative_position_index, resize_rel_pos_bias_table_simple
from timm.models.beit import Attention as BeitAttention
from torch import nn
from torch.testing import assert_close
from torchvision.models.swin_transformer import ShiftedWindowAttention

from vit_tutorial import ViT, ViTConfig, fused_attention, plain_attention, resample_pos_embed
from vit_tutorial.modern import (
    BiasedAttention,
    ModernBlock,
    RMSNorm,
    ShawAttention,
    relative_position_index,
    resample_bias_table,
)

BATCH, DIM, HEADS, GRID = 2, 24, 3, (3, 5)
PATCHES, HEAD_DIM = GRID[0] * GRID[1], DIM // HEADS
ATTENDS = [plain_attention, fused_attention]


def _shake(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return module


# Swin's table


def test_the_index_by_hand():
    # A row of three: offsets −2 to 2 are rows 0 to 4. A query in column 0 sees the key in column 2 at offset −2.
    assert relative_position_index((1, 3)).tolist() == [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    assert relative_position_index((1, 2), 2).tolist() == [[5, 5, 3, 3], [5, 5, 3, 3], [4, 4, 1, 0], [4, 4, 2, 1]]


def test_the_index_is_timm_s():
    for prefix in (0, 1):
        expected = gen_relative_position_index(GRID, class_token=bool(prefix))
        assert torch.equal(relative_position_index(GRID, prefix), expected)
    assert not torch.equal(relative_position_index(GRID).T, expected[1:, 1:]), "query and key exchanged should fail"


@pytest.mark.parametrize("attend", ATTENDS)
def test_biased_attention_equals_a_window_of_torchvision_s_swin(attend):
    theirs = _shake(ShiftedWindowAttention(DIM, list(GRID), [0, 0], HEADS)).eval()
    ours = BiasedAttention(DIM, HEADS, grid_size=GRID, num_prefix_tokens=0, attend=attend)
    state = theirs.state_dict()
    assert torch.equal(state.pop("relative_position_index"), ours.index.flatten())
    ours.load_state_dict(state, strict=True)
    x = torch.randn(BATCH, PATCHES, DIM)
    assert_close(ours(x), theirs(x.unflatten(1, GRID)).flatten(1, 2))
    with torch.no_grad():
        ours.relative_position_bias_table.copy_(ours.relative_position_bias_table.flip(0))
    assert not torch.allclose(ours(x), theirs(x.unflatten(1, GRID)).flatten(1, 2), atol=0.05)


@pytest.mark.parametrize("attend", ATTENDS)
def test_biased_attention_equals_beit_s_with_a_class_token(attend):
    theirs = _shake(BeitAttention(DIM, HEADS, window_size=GRID)).eval()
    ours = BiasedAttention(DIM, HEADS, grid_size=GRID, qkv_bias=False, attend=attend)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(BATCH, 1 + PATCHES, DIM)
    assert_close(ours(x), theirs(x))
    assert_close(ours.weights(x).sum(dim=-1), torch.ones(BATCH, HEADS, 1 + PATCHES))


def test_without_biases_it_is_plain_attention_and_keys_may_be_normed():
    x = torch.randn(BATCH, 3 + PATCHES, DIM)
    ours = BiasedAttention(DIM, HEADS, grid_size=GRID, num_prefix_tokens=3, qk_norm=RMSNorm)
    q, k, v = ours.project(x)
    expected = F.scaled_dot_product_attention(F.rms_norm(q, (8,), eps=1e-6), F.rms_norm(k, (8,), eps=1e-6), v)
    assert_close(ours(x), ours.proj(expected.transpose(1, 2).flatten(2)))
    assert ours.relative_position_bias_table.shape == (5 * 9 + 3, HEADS)


# Shaw's vectors


def _by_loops(layer, x, prefix, furthest, sign=1):
    """Equations 3 and 4 of the paper, one query, key and head at a time; rows and columns have half a vector each."""
    q, k, v = layer.qkv(x).chunk(3, dim=-1)
    out = torch.zeros_like(q)

    def vector(tables, i, j):
        halves = []
        for table, place in ((tables[0], lambda n: n // GRID[1]), (tables[1], lambda n: n % GRID[1])):
            if i < prefix or j < prefix:
                halves.append(table[0])
            else:
                distance = sign * (place(j - prefix) - place(i - prefix))
                halves.append(table[1 + furthest + max(-furthest, min(furthest, distance))])
        return torch.cat(halves)

    for b in range(len(x)):
        for h in range(HEADS):
            part = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
            for i in range(x.shape[1]):
                keys = torch.stack([k[b, j, part] + vector(layer.rel_k, i, j) for j in range(x.shape[1])])
                values = torch.stack([v[b, j, part] + vector(layer.rel_v, i, j) for j in range(x.shape[1])])
                weights = (keys @ q[b, i, part] / HEAD_DIM**0.5).softmax(dim=0)
                out[b, i, part] = weights @ values
    return layer.proj(out)


@pytest.mark.parametrize(("prefix", "furthest"), [(0, 1), (1, 2), (2, 9)])
@torch.no_grad()
def test_shaw_s_attention_equals_loops(prefix, furthest):
    layer = _shake(ShawAttention(DIM, HEADS, grid_size=GRID, num_prefix_tokens=prefix, max_distance=furthest))
    assert layer.rel_k.shape == (2, 2 * furthest + 2, HEAD_DIM // 2)
    x = torch.randn(1, prefix + PATCHES, DIM)
    assert_close(layer(x), _by_loops(layer, x, prefix, furthest), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(layer(x), _by_loops(layer, x, prefix, furthest, sign=-1), atol=0.05)
    assert not torch.allclose(layer(x), _by_loops(layer, x, prefix, 0), atol=0.05), "without distances it should fail"


@torch.no_grad()
def test_shaw_s_vectors_by_hand():
    # One head of two features in a row of three patches: the query 1 on features (1, 0) scores (row part, column part).
    layer = ShawAttention(2, 1, grid_size=(1, 3), num_prefix_tokens=0, max_distance=1, qkv_bias=False)
    layer.qkv.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    layer.rel_k[1] = torch.tensor([9.0, -1.0, 0.0, 1.0])[:, None]  # prefix; to the left; the same column; to the right
    x = torch.ones(1, 3, 2)  # q = (1, 1), k = 0
    scores = torch.tensor([[0.0, 1.0, 1.0], [-1.0, 0.0, 1.0], [-1.0, -1.0, 0.0]]) / 2**0.5
    assert_close(layer.weights(x)[0, 0], scores.softmax(dim=-1))


# Both


@pytest.mark.parametrize("make", [BiasedAttention, ShawAttention])
@torch.no_grad()
def test_scores_of_equal_patches_depend_on_the_offset_alone(make):
    layer = _shake(make(DIM, HEADS, grid_size=GRID, num_prefix_tokens=0))
    logits = layer.weights(torch.randn(1, 1, DIM).expand(1, PATCHES, DIM))[0].log()
    index = relative_position_index(GRID)
    for i, j in ((0, 1), (4, 9)):  # by columns, by rows
        offset = index[i, j]
        middle = index[j, j]
        pairs = [(a, b) for a in range(PATCHES) for b in range(PATCHES) if index[a, b] == offset]
        differences = torch.stack([logits[:, a, b] - logits[:, a, a] for a, b in pairs])  # the softmax's sum is gone
        assert_close(differences, differences[:1].expand_as(differences), rtol=1e-3, atol=1e-4)
        assert index[pairs[-1][0], pairs[-1][0]] == middle


@pytest.mark.parametrize("make", [BiasedAttention, ShawAttention])
def test_they_start_as_plain_attention_and_every_parameter_learns(make):
    config = ViTConfig((12, 20), 4, 3, 5, embed_dim=DIM, depth=2, num_heads=HEADS, pos_embed="none")
    model = ViT(config, block=partial(ModernBlock, attn=partial(make, grid_size=config.grid_size)))
    plain = ViT(config)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if ".rel" not in name})
    images = torch.randn(BATCH, 3, 12, 20)
    assert_close(model(images), plain(images), rtol=1e-4, atol=1e-5)
    model(images).square().sum().backward()
    assert all(parameter.grad.norm() > 0 for parameter in model.parameters())


# Another size than trained: 48×48 pixels after 32×32, in patches of 4


SMALL, LARGE = (8, 8), (12, 12)


def _config(pixels):
    return ViTConfig(pixels, 4, 3, 5, embed_dim=DIM, depth=1, num_heads=HEADS)


def test_shaw_s_vectors_fit_any_grid_where_positions_are_stretched():
    models = [
        ViT(_config(size), block=partial(ModernBlock, attn=partial(ShawAttention, grid_size=grid)))
        for size, grid in ((32, SMALL), (48, LARGE))
    ]
    state = _shake(models[0]).state_dict()
    state["pos_embed"] = resample_pos_embed(state["pos_embed"], SMALL, LARGE)
    models[1].load_state_dict(state, strict=True)
    assert models[1](torch.randn(BATCH, 3, 48, 48)).shape == (BATCH, 5)
    small, large = (model.blocks[0].attn for model in models)
    patches = large.vectors(large.rel_k)[1:, 1:].unflatten(1, LARGE).unflatten(0, LARGE)
    overlap = patches[:8, :8, :8, :8].flatten(0, 1).flatten(1, 2)
    assert_close(overlap, small.vectors(small.rel_k)[1:, 1:], rtol=0, atol=0)


def test_a_table_of_biases_is_stretched_so_one_step_gets_another_bias():
    models = [
        ViT(_config(size), block=partial(ModernBlock, attn=partial(BiasedAttention, grid_size=grid)))
        for size, grid in ((32, SMALL), (48, LARGE))
    ]
    state = _shake(models[0]).state_dict()
    name = "blocks.0.attn.relative_position_bias_table"
    table = state[name]
    state["pos_embed"] = resample_pos_embed(state["pos_embed"], SMALL, LARGE)
    state[name] = resample_bias_table(table, SMALL, LARGE, num_prefix_tokens=1)
    models[1].load_state_dict(state, strict=True)
    assert models[1](torch.randn(BATCH, 3, 48, 48)).shape == (BATCH, 5)
    small, large = (model.blocks[0].attn.bias()[:, 1:, 1:] for model in models)
    assert_close(large[:, 0, 0], small[:, 0, 0], rtol=1e-4, atol=1e-4)  # no offset: the middle stays
    assert not torch.allclose(large[:, 0, 1], small[:, 0, 1], atol=0.05)
    assert_close(models[1].blocks[0].attn.bias()[:, 0], table[-3:].T[:, [2] + [0] * 144])


@pytest.mark.parametrize("extra", [0, 3])
def test_the_stretched_table_is_timm_s(extra):
    table = torch.randn(15 * 15 + extra, HEADS)
    ours = resample_bias_table(table, 8, 12, num_prefix_tokens=extra)
    assert_close(ours, resize_rel_pos_bias_table_simple(table, LARGE, (23 * 23 + extra, HEADS)))
    assert resample_bias_table(table, 8, 8, num_prefix_tokens=extra) is table
    uneven = resample_bias_table(torch.ones(5 * 9, HEADS), GRID, (4, 6))
    assert_close(uneven, torch.ones(7 * 11, HEADS))


# Bad input


def test_errors_state_the_numbers_and_the_rule(no_shape_checks):
    for make in (BiasedAttention, ShawAttention):
        with pytest.raises(ValueError, match=r"15 tokens come in, but num_prefix_tokens and grid_size make 16"):
            make(DIM, HEADS, grid_size=GRID)(torch.randn(BATCH, PATCHES, DIM))
        with pytest.raises(
            ValueError, match=r"attend must be plain_attention or fused_attention, got <function .*<lambda"
        ):
            make(DIM, HEADS, grid_size=GRID, attend=lambda q, k, v: v)
    with pytest.raises(ValueError, match=r"head_dim 3 has no halves"):
        ShawAttention(9, 3, grid_size=GRID)
    with pytest.raises(ValueError, match=r"max_distance must be an int of at least 0, got -1"):
        ShawAttention(DIM, HEADS, grid_size=GRID, max_distance=-1)
    with pytest.raises(
        ValueError, match=r"the table has 45 rows, but old_grid 3×5 with num_prefix_tokens 1 makes .* 48"
    ):
        resample_bias_table(torch.zeros(45, 3), GRID, SMALL, num_prefix_tokens=1)
    with pytest.raises(ValueError, match=r"table must be \(m, h\) in floating point, got torch.int64 of \(45, 3\)"):
        resample_bias_table(torch.zeros(45, 3).long(), GRID, SMALL)
    assert isinstance(BiasedAttention(DIM, HEADS, grid_size=GRID).q_norm, nn.Identity)


@pytest.mark.parametrize("make", [BiasedAttention, ShawAttention])
def test_in_half_precision_scores_are_scaled_before_they_overflow(make):
    """q·k is 64 · 60² = 230,400, and half precision ends at 65,504; the score is an eighth of it."""
    layer = make(64, 1, grid_size=1, num_prefix_tokens=0).half()
    q = torch.full((1, 1, 1, 64), 60.0).half()
    assert layer._scores(q, q).item() == 28_800
