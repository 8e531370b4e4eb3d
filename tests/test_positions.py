"""Positions against the double loop of the paper's formula, and against timm."""

import math

import pytest
import torch
from einops import rearrange
from timm.layers.pos_embed import resample_abs_pos_embed
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
from torch import nn

from vit_tutorial import resample_pos_embed, sincos_1d, sincos_2d
from vit_tutorial.positions import make_pos_embed

GRIDS = [(2, 2), (3, 5), (14, 14), (7, 1), (1, 6)]


def double_loop(num_positions, dim):
    """The formula, one number at a time; i is the even column of a pair."""
    table = torch.zeros(num_positions, dim)
    for position in range(num_positions):
        for column in range(dim):
            i = column if column % 2 == 0 else column - 1
            angle = position / 10000 ** (i / dim)
            table[position, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    return table


def test_hand_computed():
    """dim 4: the first pair turns by 1 for each position, the second by 10000^(−2/4) = 1/100."""
    s, c = math.sin, math.cos
    expected = [[0, 1, 0, 1], [s(1), c(1), s(0.01), c(0.01)], [s(2), c(2), s(0.02), c(0.02)]]
    torch.testing.assert_close(sincos_1d(3, 4), torch.tensor(expected))


# the 9 columns are those of a published tutorial's model
@pytest.mark.parametrize(("num_positions", "dim"), [(5, 9), (7, 10), (197, 768), (1, 1), (3, 1), (1, 2), (65, 33)])
def test_sincos_1d_equals_the_double_loop(num_positions, dim):
    table = sincos_1d(num_positions, dim)
    assert table.dtype == torch.float32
    torch.testing.assert_close(table, double_loop(num_positions, dim), rtol=0, atol=1e-6)


def test_far_positions_are_exact():
    """In float32 alone, sin of a large angle would be wrong by more than 1e-4 here."""
    torch.testing.assert_close(sincos_1d(10_000, 6)[9_999], double_loop(10_000, 6)[9_999], rtol=0, atol=1e-6)


def test_sin_of_its_own_column_is_caught():
    """The frequent mistake: cos takes the exponent of its own column, not of its pair."""
    wrong = double_loop(7, 10)
    for column in range(1, 10, 2):
        wrong[:, column] = (torch.arange(7) / 10000 ** (column / 10)).cos()
    assert (sincos_1d(7, 10) - wrong).abs().max() > 0.1


def test_similarity_depends_on_the_distance_only():
    table = sincos_1d(20, 12)
    products = table @ table.T
    for distance in range(20):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-5)


def test_sincos_2d_hand_computed():
    """dim 4 has frequency 1 only: sin and cos of the row, then of the column."""
    s, c = math.sin, math.cos
    expected = [[0, 1, 0, 1], [0, 1, s(1), c(1)], [0, 1, s(2), c(2)], [s(1), c(1), 0, 1]]
    torch.testing.assert_close(sincos_2d((2, 3), 4)[:4], torch.tensor(expected))


@pytest.mark.parametrize("grid_size", GRIDS)
@pytest.mark.parametrize("dim", [4, 12, 64])
def test_sincos_2d_equals_timm(grid_size, dim):
    """timm keeps the sines and the cosines of a half in two blocks; ours alternate. The numbers are the same."""
    timm = build_sincos2d_pos_embed(list(grid_size), dim, interleave_sin_cos=True)
    expected = rearrange(timm, "n (half sincos pair) -> n (half pair sincos)", half=2, sincos=2)
    torch.testing.assert_close(sincos_2d(grid_size, dim), expected, rtol=0, atol=1e-5)


def test_a_transposed_grid_is_caught():
    """Same shape, same set of rows after swapping the halves, another place for each."""
    table = sincos_2d((3, 5), 8)
    transposed = rearrange(sincos_2d((5, 3), 8), "(gw gh) d -> (gh gw) d", gh=3)
    assert table.shape == transposed.shape
    assert not torch.allclose(table, transposed, atol=0.1)
    torch.testing.assert_close(table, transposed.roll(4, dims=1))
    assert not torch.allclose(table, sincos_2d((5, 3), 8), atol=0.1)


@pytest.mark.parametrize("num_prefix_tokens", [0, 1, 2])
def test_the_table_of_a_model(num_prefix_tokens):
    """What is trained is a parameter, what follows from the sizes is not even stored."""
    num_tokens = num_prefix_tokens + 15
    tables = {
        "learned": torch.zeros(num_tokens, 8),
        "sincos_1d": double_loop(num_tokens, 8),  # the prefix tokens are the first positions
        "sincos_2d": torch.cat([torch.zeros(num_prefix_tokens, 8), sincos_2d((3, 5), 8)]),  # or have no place at all
    }
    for kind, expected in tables.items():
        model = nn.Module()
        model.pos_embed = make_pos_embed(kind, (3, 5), 8, num_prefix_tokens)
        torch.testing.assert_close(model.pos_embed.data, expected[None], rtol=0, atol=1e-6)
        names = ["pos_embed"] if kind == "learned" else []
        assert [name for name, _ in model.named_parameters()] == list(model.state_dict()) == names
        assert len(list(model.buffers())) == 1 - len(names)
        assert model.to(torch.float64).pos_embed.dtype == torch.float64  # it moves with the model, stored or not
    assert make_pos_embed("none", (3, 5), 8, num_prefix_tokens) is None


RESIZES = [
    ((4, 4), (8, 8)),
    ((3, 5), (6, 4)),
    ((14, 14), (16, 24)),
    ((8, 6), (3, 6)),
    ((2, 7), (7, 2)),
    ((5, 5), (5, 6)),
]


@pytest.mark.parametrize(("old", "new"), RESIZES)
@pytest.mark.parametrize("num_prefix_tokens", [0, 1, 2])
def test_resample_equals_timm(old, new, num_prefix_tokens):
    pos_embed = torch.randn(1, num_prefix_tokens + old[0] * old[1], 6)
    ours = resample_pos_embed(pos_embed, old, new, num_prefix_tokens)
    timm = resample_abs_pos_embed(pos_embed, list(new), list(old), num_prefix_tokens)
    torch.testing.assert_close(ours, timm, rtol=0, atol=0)
    assert torch.equal(ours[:, :num_prefix_tokens], pos_embed[:, :num_prefix_tokens])


def test_resample_to_the_same_grid_is_the_identity():
    pos_embed = torch.randn(1, 16, 6)
    assert resample_pos_embed(pos_embed, (3, 5), (3, 5)) is pos_embed


def test_resample_hand_computed():
    """One row becomes another: constants stay, an edge between them stays where it was, features do not mix."""
    pos_embed = torch.tensor([[[9.0, 9.0], [2.0, 0.0], [2.0, 0.0], [2.0, 1.0], [2.0, 1.0]]])
    stretched = resample_pos_embed(pos_embed, (1, 4), (3, 8))
    grid = rearrange(stretched[0, 1:], "(gh gw) d -> d gh gw", gh=3)
    assert stretched[0, 0].tolist() == [9, 9]
    torch.testing.assert_close(grid[0], torch.full((3, 8), 2.0))
    torch.testing.assert_close(grid[1, 0], grid[1, 2])  # the rows of the new grid are alike, as there was one
    torch.testing.assert_close(grid[1, 0, :4] + grid[1, 0, 4:].flip(0), torch.ones(4))  # and the edge is in the middle
    # The cubic kernel (a = −1/2) at distances 1/4, 3/4, 5/4, 7/4 from the first column right of the middle.
    weights = [111 / 128, 29 / 128, -9 / 128, -3 / 128]
    assert sum(weights) == 1
    torch.testing.assert_close(grid[1, 0, 4].item(), weights[0] + weights[2], rtol=0, atol=1e-6)


def test_resample_swapped_axes_are_caught():
    pos_embed = torch.randn(1, 16, 6)
    right = resample_pos_embed(pos_embed, (3, 5), (6, 4))
    assert (right - resample_pos_embed(pos_embed, (5, 3), (6, 4))).abs().max() > 0.1
    assert (right - resample_pos_embed(pos_embed, (3, 5), (4, 6))).abs().max() > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sincos_1d(0, 8), "num_positions must be an int of at least 1, got 0"),
        (lambda: sincos_1d(5, 0), "dim must be an int of at least 1, got 0"),
        (lambda: sincos_2d((2, 3), 6), "dim 6 is not divisible by the four parts .* 4"),
        (lambda: make_pos_embed("sinus", 2, 8), "kind must be one of learned, sincos_1d, sincos_2d, none; got 'sinus'"),
        (lambda: resample_pos_embed(torch.zeros(1, 15, 6), (3, 5), (6, 4)), "15 rows, but .* 1 .* 3×5 make 16"),
        (lambda: resample_pos_embed(torch.zeros(1, 16, 6).int(), 4, 2, 0), "in floating point, got torch.int32"),
        (lambda: resample_pos_embed(torch.zeros(1, 16, 6), (3, 5), (6, 4, 2)), r"new_grid must be .*, got \(6, 4, 2\)"),
    ],
)
def test_bad_input(call, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        call()
