"""Rotary positions against timm's, by hand, and by what they are for: a score sees differences alone."""

from functools import partial
from math import cos, sin

import pytest
import torch
from timm.layers import AttentionRope, RmsNorm, RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed
from timm.layers.pos_embed_sincos import apply_rot_embed_cat
from torch import nn
from torch.testing import assert_close

from vit_tutorial import resample_pos_embed, sincos_2d
from vit_tutorial.modern import (
    MixedRope,
    ModernAttention,
    RMSNorm,
    Rope,
    axial_angles,
    axial_rope,
    centred_coordinates,
    relative_position_index,
    rotate,
)

BATCH, HEADS, HEAD_DIM, GRID = 2, 3, 8, (3, 5)
PATCHES = GRID[0] * GRID[1]


def _queries(n=PATCHES):
    return torch.randn(BATCH, HEADS, n, HEAD_DIM)


def _every_place(vector, rope):
    """The same vector of every head in the place of every patch, turned."""
    return rope(vector[None, :, None].expand(1, HEADS, PATCHES, HEAD_DIM))[0]


def _depend_on_differences_alone(scores):
    """Whether pairs of patches with the same offset have the same score, for every head."""
    index = relative_position_index(GRID).flatten()
    for offset in index.unique():
        same = scores.flatten(1)[:, index == offset]
        if not torch.allclose(same, same[:, :1], atol=1e-4):
            return False
    return True


# Turning


@pytest.mark.parametrize(("halves", "pairs"), [(False, ((0, 1), (2, 3))), (True, ((0, 2), (1, 3)))])
def test_a_patch_by_hand(halves, pairs):
    # Four features: one pair turns with the row, one with the column, each at frequency 1. Patch (1, 2) of 2×3.
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = torch.empty(4)
    for (a, b), place in zip(pairs, (1, 2), strict=True):
        expected[a] = x[a] * cos(place) - x[b] * sin(place)
        expected[b] = x[a] * sin(place) + x[b] * cos(place)
    rope = axial_rope(1, 4, grid_size=(2, 3), num_prefix_tokens=0, halves=halves)
    assert_close(rope(x.expand(1, 1, 6, 4))[0, 0, 5], expected)


def test_the_slower_pairs_by_hand():
    # With 8 features and theta 100 the frequencies of an axis are 1 and 100^(−4/8) = 0.1. Row 2, column 1 of 3×2.
    assert_close(axial_angles((3, 2), 8)[5], torch.tensor([2.0, 0.2, 1.0, 0.1], dtype=torch.float64))


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("theta", [100.0, 10000.0])
def test_axial_positions_equal_timm_s(halves, theta):
    theirs = RotaryEmbeddingCat(
        HEAD_DIM, in_pixels=False, feat_shape=list(GRID), temperature=theta, rotate_half=halves
    ).get_embed()
    ours, q = axial_rope(HEADS, HEAD_DIM, grid_size=GRID, num_prefix_tokens=0, theta=theta, halves=halves), _queries()
    assert_close(ours(q), apply_rot_embed_cat(q, theirs, half=halves))
    assert not torch.allclose(ours(q), apply_rot_embed_cat(q, theirs, half=not halves), atol=0.1)


def test_dinov3_s_positions_equal_timm_s():
    theirs = RotaryEmbeddingDinoV3(HEAD_DIM, temperature=100.0, feat_shape=list(GRID)).get_embed()
    ours = axial_rope(
        HEADS, HEAD_DIM, grid_size=GRID, num_prefix_tokens=0, coordinates=centred_coordinates, halves=True
    )
    q = _queries()
    assert_close(ours(q), apply_rot_embed_cat(q, theirs, half=True), rtol=1e-4, atol=1e-5)


def test_mixed_positions_equal_timm_s_in_every_block_and_start_alike():
    theirs = RotaryEmbeddingMixed(HEADS * HEAD_DIM, 2, HEADS, feat_shape=list(GRID))
    ours, q = MixedRope(HEADS, HEAD_DIM, grid_size=GRID, num_prefix_tokens=0), _queries()
    for block in range(2):
        ours.load_state_dict({"freqs": theirs.freqs[:, block]})
        assert_close(ours(q), apply_rot_embed_cat(q, theirs.get_embed()[block]))
    torch.manual_seed(1)
    expected = RotaryEmbeddingMixed(HEADS * HEAD_DIM, 1, HEADS).freqs[:, 0]
    torch.manual_seed(1)
    assert_close(MixedRope(HEADS, HEAD_DIM, grid_size=GRID).freqs, expected)


def test_lengths_stay_and_so_do_tokens_without_a_place():
    for make in (axial_rope, MixedRope):
        q = _queries(4 + PATCHES)
        turned = make(HEADS, HEAD_DIM, grid_size=GRID, num_prefix_tokens=4)(q)
        assert_close(turned.norm(dim=-1), q.norm(dim=-1))
        assert_close(turned[:, :, :5], q[:, :, :5], rtol=0, atol=0)  # the patch at (0, 0) as well
        assert not torch.allclose(turned[:, :, 5], q[:, :, 5])


# What it is for


@pytest.mark.parametrize("make", [axial_rope, MixedRope])
def test_scores_depend_on_differences_alone(make):
    rope = make(HEADS, HEAD_DIM, grid_size=GRID, num_prefix_tokens=0)
    query, key = torch.randn(2, HEADS, HEAD_DIM)
    scores = _every_place(query, rope) @ _every_place(key, rope).mT
    assert _depend_on_differences_alone(scores)
    assert scores.std() > 0.1, "scores that are all alike would pass too"


def test_wrong_turns_are_caught_by_their_scores():
    """Pairs of queries that are not the pairs of keys; a table that is added; queries alone; the column for the row."""
    query, key = torch.randn(2, HEADS, HEAD_DIM)
    rope, halves = (
        axial_rope(HEADS, HEAD_DIM, grid_size=GRID, num_prefix_tokens=0, halves=halves) for halves in (False, True)
    )
    swapped = Rope(axial_angles(GRID, HEAD_DIM).roll(HEAD_DIM // 4, dims=-1))
    table = sincos_2d(GRID, HEAD_DIM)
    k = _every_place(key, rope)
    wrong = {
        "halves against pairs": _every_place(query, halves) @ k.mT,
        "added": (query[:, None] + table) @ (key[:, None] + table).mT,
        "queries alone": _every_place(query, rope) @ key[:, :, None].expand(-1, -1, PATCHES),
        "row and column exchanged": _every_place(query, swapped) @ k.mT,
    }
    for name, scores in wrong.items():
        assert not _depend_on_differences_alone(scores), name


@pytest.mark.parametrize("norm", [None, "layer", "rms"])
@pytest.mark.parametrize("halves", [False, True])
def test_attention_loads_timm_s_weights_strictly(norm, halves):
    theirs_norm, ours_norm = {
        None: (None, nn.Identity),
        "layer": (nn.LayerNorm, nn.LayerNorm),
        "rms": (RmsNorm, RMSNorm),
    }[norm]
    dim, prefix = HEADS * HEAD_DIM, 2
    theirs = AttentionRope(
        dim, HEADS, num_prefix_tokens=prefix, qk_norm=norm is not None, norm_layer=theirs_norm, rotate_half=halves
    ).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    table = RotaryEmbeddingCat(
        HEAD_DIM, in_pixels=False, feat_shape=list(GRID), temperature=100.0, rotate_half=halves
    ).get_embed()
    rope = partial(axial_rope, grid_size=GRID, num_prefix_tokens=prefix, halves=halves)
    ours = ModernAttention(dim, HEADS, qk_norm=ours_norm, rope=rope)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(BATCH, prefix + PATCHES, dim)
    assert_close(ours(x), theirs(x, rope=table), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(ours(x), theirs(x), atol=1e-2)
    values = ours.qkv(x)[..., 2 * dim :].unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
    assert_close(ours.project(x)[2], values, rtol=0, atol=0)


# Another size than trained: 48×48 pixels after 32×32, in patches of 4


SMALL, LARGE = (8, 8), (12, 12)


def _overlap(per_patch):
    """The part of the larger grid that is the smaller one."""
    return per_patch.unflatten(-2, LARGE)[..., :8, :8, :].flatten(-3, -2)


def test_on_a_larger_grid_patches_that_were_there_are_turned_as_before_where_a_stretched_table_moves():
    assert_close(_overlap(axial_angles(LARGE, HEAD_DIM)), axial_angles(SMALL, HEAD_DIM), rtol=0, atol=0)
    small = MixedRope(HEADS, HEAD_DIM, grid_size=SMALL, num_prefix_tokens=0)
    large = MixedRope(HEADS, HEAD_DIM, grid_size=LARGE, num_prefix_tokens=0)
    large.load_state_dict(small.state_dict(), strict=True)
    q = _queries(144)
    turned = large(q)
    assert turned.shape == q.shape
    assert_close(_overlap(turned), small(_overlap(q)))
    table = torch.randn(1, 64, HEAD_DIM)
    stretched = resample_pos_embed(table, SMALL, LARGE, num_prefix_tokens=0)
    assert stretched.shape == (1, 144, HEAD_DIM)
    assert not torch.allclose(_overlap(stretched), table, atol=0.1)


def test_dinov3_s_angles_are_stretched_over_the_image():
    """Three patches in the place of one: the middle one is where that was."""
    angles = partial(axial_angles, head_dim=HEAD_DIM, coordinates=centred_coordinates)
    finer = angles((9, 15)).unflatten(0, (9, 15))[1::3, 1::3].flatten(0, 1)
    assert_close(finer, angles(GRID))
    assert_close(angles((4, 1)).abs().max(), torch.tensor(2 * torch.pi * 0.75, dtype=torch.float64))


def test_half_precision_keeps_places_far_out():
    exact = axial_rope(HEADS, HEAD_DIM, grid_size=(3, 300), num_prefix_tokens=0)
    q = _queries(900)
    expected = exact(q)
    off = (exact.bfloat16()(q.bfloat16()).float() - expected).abs().max()
    assert off < 0.05
    angles = axial_angles((3, 300), HEAD_DIM).bfloat16()  # rounded before, not after, cosine and sine
    assert (rotate(q, angles.float().cos(), angles.float().sin()) - expected).abs().max() > 1
    mixed, queries = MixedRope(HEADS, HEAD_DIM, grid_size=GRID), _queries(1 + PATCHES)
    expected = mixed(queries)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(mixed(queries), expected, rtol=0, atol=0)


# Bad input


def test_errors_state_the_numbers_and_the_rule(no_shape_checks):
    with pytest.raises(ValueError, match=r"head_dim 6 is not divisible by the four parts: .* 4"):
        axial_angles(GRID, 6)
    with pytest.raises(ValueError, match=r"head_dim 6 is not divisible by the four parts: .* 4"):
        MixedRope(2, 6, grid_size=GRID)
    with pytest.raises(ValueError, match=r"x has 15 tokens of 8 features, and there are angles for 16 tokens of 8"):
        axial_rope(HEADS, HEAD_DIM, grid_size=GRID)(_queries())
    with pytest.raises(ValueError, match=r"x has 15 tokens of 8 features, and there are angles for 16 tokens of 8"):
        MixedRope(HEADS, HEAD_DIM, grid_size=GRID)(_queries())
    with pytest.raises(ValueError, match=r"rope must be a class or function that makes a module, not a module"):
        ModernAttention(24, 3, rope=axial_rope(3, 8, grid_size=GRID))


def test_turning_has_gradients():
    q = _queries(1 + PATCHES).requires_grad_()
    rope = MixedRope(HEADS, HEAD_DIM, grid_size=GRID)
    (rope(q) * torch.randn_like(q)).sum().backward()
    assert (q.grad != 0).all()
    assert (rope.freqs.grad != 0).all()
