"""The checks of chapter 2 accept the reference and name each mistake."""

import torch
import torch.nn.functional as F
from einops import rearrange
from hints import assert_hints

from vit_tutorial import resample_pos_embed, sincos_1d, sincos_2d
from vit_tutorial.exercises import exercise
from vit_tutorial.exercises.positions import add_cls_token, order_blind, position_similarity, shift_matrix


def _first_image_only(tokens, cls_token):
    front = torch.zeros_like(tokens[:, :1])
    front[0] = cls_token[0]
    return torch.cat([front, tokens], dim=1)


def test_add_cls_token():
    assert_hints(
        "add_cls_token",
        add_cls_token,
        {
            "batch of one only": lambda tokens, cls: torch.cat([cls, tokens], dim=1),
            "added to every patch": lambda tokens, cls: tokens + cls,
            "along the batch": lambda tokens, cls: torch.cat([cls.expand(1, tokens.shape[1], -1), tokens], dim=0),
            "along the features": lambda tokens, cls: torch.cat([cls.expand_as(tokens), tokens], dim=2),
            "every image of the batch": lambda tokens, cls: torch.cat(
                [cls.expand(len(tokens), len(tokens), -1), tokens], dim=1
            ),
            "at the end": lambda tokens, cls: torch.cat([tokens, cls.expand(len(tokens), -1, -1)], dim=1),
            "unchanged and in their order": lambda tokens, cls: add_cls_token(tokens.flip(1), cls),
            "passed in": lambda tokens, cls: add_cls_token(tokens, torch.randn(1, 1, tokens.shape[2])),
            "first image": _first_image_only,
            "no gradient": lambda tokens, cls: add_cls_token(tokens, cls.detach()),
            "must add up": lambda tokens, cls: torch.cat(
                [torch.cat([cls, cls.detach().expand(len(tokens) - 1, -1, -1)]), tokens], dim=1
            ),
            "a batch of 2 fails": lambda tokens, cls: torch.cat([cls.expand(3, -1, -1), tokens], dim=1),
            "but a copy": lambda tokens, cls: add_cls_token(tokens, torch.nn.Parameter(cls.clone())),
            "raised IndexError": lambda tokens, cls: torch.cat([cls[0, 0], tokens], dim=1),
        },
    )


def test_add_cls_token_by_repeat_is_right_too():
    def fn(tokens, cls_token):
        return torch.cat([cls_token.repeat(len(tokens), 1, 1), tokens], dim=1)

    assert exercise("add_cls_token", fn) is fn


def _blind_after(change, same=torch.allclose):
    return lambda encode, tokens: same(encode(tokens), encode(change(tokens)))


def _loosely_blind_after(change):
    return _blind_after(change, lambda a, b: torch.allclose(a, b, atol=1e-5))


def _shuffle(tokens, axis=1, first=1):
    order = torch.cat([torch.arange(first), first + torch.randperm(tokens.shape[axis] - first)])
    return tokens.index_select(axis, order)


def _shuffle_in_place(tokens):
    tokens[:, 1:] = tokens[:, 1 + torch.randperm(tokens.shape[1] - 1)]
    return tokens


def test_order_blind():
    assert_hints(
        "order_blind",
        order_blind,
        {
            "in place": lambda encode, tokens: torch.allclose(encode(tokens), encode(_shuffle_in_place(tokens))),
            "twice": lambda encode, tokens: encode(tokens) is not None,
            "the same tokens each time": _blind_after(lambda tokens: tokens),
            "keep them all": _blind_after(lambda tokens: tokens[:, :-1]),
            "images of the batch": _blind_after(lambda tokens: tokens.roll(1, dims=0)),
            "features of a token": _blind_after(lambda tokens: tokens.flip(2)),
            "token 0 moved": _blind_after(lambda tokens: _shuffle(tokens, first=0)),
            "wrong way round": lambda encode, tokens: not order_blind(encode, tokens),
            "called not blind": _blind_after(_shuffle, lambda a, b: False),
            "called blind": _blind_after(_shuffle, lambda a, b: a.shape == b.shape),
            "rounded differently": _blind_after(_shuffle, lambda a, b: (a - b).abs().max() < 1e-8),
            "atol": _blind_after(_shuffle),
            "reversing": _loosely_blind_after(lambda tokens: torch.cat([tokens[:, :1], tokens[:, 1:].flip(1)], dim=1)),
            "only two tokens": _loosely_blind_after(lambda tokens: tokens[:, [0, 2, 1, *range(3, tokens.shape[1])]]),
            "number by number": _blind_after(_shuffle, lambda a, b: torch.allclose(a.sum(), b.sum(), atol=1e-4)),
            "moving all": _loosely_blind_after(lambda tokens: torch.cat([tokens[:, :1], tokens[:, 1:].roll(1, 1)], 1)),
            "one number of the last image": _blind_after(_shuffle, lambda a, b: torch.allclose(a[0], b[0], atol=1e-5)),
            "too wide": _blind_after(_shuffle, lambda a, b: torch.allclose(a, b, atol=0.1)),
            "abs()": _blind_after(_shuffle, lambda a, b: (a - b).max() < 1e-5),
            "True or False": _blind_after(_shuffle, lambda a, b: (a - b).abs() < 1e-5),
        },
    )


def test_order_blind_may_answer_with_a_tensor():
    fn = _blind_after(_shuffle, lambda a, b: ((a - b).abs() < 1e-5).all())
    assert exercise("order_blind", fn) is fn


def _sincos(num_positions, dim, exponent=lambda c: c // 2 * 2, first=0, functions=(torch.sin, torch.cos)):
    position = torch.arange(first, first + num_positions)
    columns = [functions[c % 2](position / 10000 ** (exponent(c) / dim)) for c in range(dim)]
    return torch.stack(columns, dim=1)


def _even_only(num_positions, dim):
    table = torch.zeros(num_positions, dim)
    angle = torch.arange(num_positions)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
    table[:, ::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table


def test_sincos_1d():
    assert_hints(
        "sincos_1d",
        sincos_1d,
        {
            "expected shape": lambda n, dim: sincos_1d(n, dim)[None],
            "swapped": lambda n, dim: _sincos(n, dim, functions=(torch.cos, torch.sin)),
            "before all cosines": lambda n, dim: torch.cat([sincos_1d(n, dim)[:, ::2], sincos_1d(n, dim)[:, 1::2]], 1),
            "start at 1": lambda n, dim: _sincos(n, dim, first=1),
            "too slowly": lambda n, dim: _sincos(n, dim, exponent=lambda c: c // 2),
            "too fast": lambda n, dim: _sincos(n, dim, exponent=lambda c: c // 2 * 4),
            "two frequencies": lambda n, dim: _sincos(n, dim, exponent=lambda c: c),
            "grow": lambda n, dim: _sincos(n, dim, exponent=lambda c: -(c // 2 * 2)),
            "frequency 1": lambda n, dim: _sincos(n, dim, exponent=lambda c: 0),
            "columns [0, 2, 4, 6, 8] differ": lambda n, dim: sincos_1d(n, dim) * torch.tensor([-1, 1]).repeat(dim // 2),
            "dim=9 fails": _even_only,
            "an odd dim has one cosine less": lambda n, dim: _even_only(n, dim + dim % 2),
            "float64": lambda n, dim: sincos_1d(n, dim).double(),
            "those of dim 9": lambda n, dim: sincos_1d(n, dim + dim % 2)[:, :dim],
        },
    )


def _normalised_in_place(table):
    table /= table.norm(dim=1, keepdim=True)
    return table @ table.T


def test_position_similarity():
    assert_hints(
        "position_similarity",
        position_similarity,
        {
            "in place": _normalised_in_place,
            "expected shape": lambda table: position_similarity(table.T),
            "that is the dot product: divide": lambda table: table @ table.T,
            "over √dim": lambda table: table @ table.T / table.shape[1] ** 0.5,
            "only the row's": lambda table: table @ table.T / table.norm(dim=1, keepdim=True),
            "only the column's": lambda table: table @ table.T / table.norm(dim=1),
            "out twice": lambda table: table @ table.T / table.norm(dim=1, keepdim=True) ** 2,
            "dim=1": lambda table: F.normalize(table, dim=0) @ F.normalize(table, dim=0).T,
            "correlation": lambda table: torch.corrcoef(table),
            "1 − cosine": lambda table: 1 - position_similarity(table),
            "distance between rows": lambda table: torch.cdist(table, table),
            "the angle": lambda table: position_similarity(table).clamp(-1, 1).acos(),
            "diagonal is not 1": lambda table: 2 * position_similarity(table),
            "other entries": lambda table: torch.exp(-torch.cdist(table, table)),
        },
    )


def _turns(offset, dim, exponent=2):
    frequency = 10000 ** -(exponent * torch.arange(dim // 2) / dim)
    sin, cos = (offset * frequency).sin(), (offset * frequency).cos()
    return torch.block_diag(*torch.stack([cos, sin, -sin, cos], dim=-1).reshape(-1, 2, 2))


def _fitted_to_position_0(offset, dim):
    table = sincos_1d(offset + 1, dim)
    return torch.outer(table[offset], table[0]) / table[0].square().sum()


def test_shift_matrix():
    def halves(offset, dim):
        order = torch.cat([torch.arange(0, dim, 2), torch.arange(1, dim, 2)])
        return shift_matrix(offset, dim)[order][:, order]

    def sin_on_the_diagonal(offset, dim):
        matrix = torch.zeros(dim, dim)
        for i, (row, col) in enumerate(zip(range(0, dim, 2), range(1, dim, 2), strict=True)):
            angle = torch.tensor(offset / 10000 ** (2 * i / dim))
            matrix[row, row] = matrix[col, col] = angle.sin()
            matrix[row, col], matrix[col, row] = angle.cos(), -angle.cos()
        return matrix

    assert_hints(
        "shift_matrix",
        shift_matrix,
        {
            "expected shape": lambda offset, dim: shift_matrix(offset, dim)[0],
            "shifts back": lambda offset, dim: shift_matrix(offset, dim).T,
            "same angle": lambda offset, dim: _turns(offset, dim, exponent=0),
            "by 1 whatever": lambda offset, dim: shift_matrix(1, dim),
            "too slowly": lambda offset, dim: _turns(offset, dim, exponent=1),
            "i + dim/2": halves,
            "cos is on the diagonal": sin_on_the_diagonal,
            "[0] only": _fitted_to_position_0,
            "Try one pair": lambda offset, dim: torch.eye(dim),
            "identity": lambda offset, dim: shift_matrix(offset or 1, dim),
            "negative offset": lambda offset, dim: shift_matrix(abs(offset), dim),
        },
    )


def test_shift_matrix_by_least_squares_is_right_too():
    def fn(offset, dim):
        table = sincos_1d(200, dim).double()
        start = max(0, -offset)
        rows = slice(start, start + 100)
        shifted = slice(start + offset, start + offset + 100)
        return torch.linalg.lstsq(table[rows], table[shifted]).solution.T

    assert exercise("shift_matrix", fn) is fn


def _grid(rows, cols, dim, pattern="(gh gw) d"):
    """One table for the grid's rows, one for its columns, joined into ``dim``."""
    gh, gw = len(rows), len(cols)
    return rearrange(
        torch.cat([rows[:, None].expand(-1, gw, -1), cols[None].expand(gh, -1, -1)], dim=-1)[..., :dim],
        f"gh gw d -> {pattern}",
    )


def test_sincos_2d():
    def halves_swapped(grid, dim):
        return sincos_2d(grid, dim).roll(dim // 2, dims=1)

    def column_by_column(grid, dim):
        return _grid(sincos_1d(grid[0], dim // 2), sincos_1d(grid[1], dim // 2), dim, "(gw gh) d")

    def added(grid, dim):
        return (sincos_1d(grid[0], dim)[:, None] + sincos_1d(grid[1], dim)[None]).flatten(0, 1)

    def wide_frequencies(grid, dim):
        return _grid(sincos_1d(grid[0], dim)[:, : dim // 2], sincos_1d(grid[1], dim)[:, : dim // 2], dim)

    assert_hints(
        "sincos_2d",
        sincos_2d,
        {
            "expected shape": lambda grid, dim: sincos_2d(grid, dim).reshape(*grid, dim),
            "the halves are swapped: the grid's row": halves_swapped,
            "flattened column by column: patches": column_by_column,
            "swapped, and the grid": lambda grid, dim: column_by_column(grid, dim).roll(dim // 2, dims=1),
            "hold the grid's row": lambda grid, dim: sincos_2d(grid, dim)[:, : dim // 2].repeat(1, 2),
            "hold the grid's column": lambda grid, dim: sincos_2d(grid, dim)[:, dim // 2 :].repeat(1, 2),
            "were added": added,
            "1-D table": lambda grid, dim: sincos_1d(grid[0] * grid[1], dim),
            "a table of dim columns": wide_frequencies,
            "timm's order": lambda grid, dim: rearrange(
                sincos_2d(grid, dim), "n (half pair two) -> n (half two pair)", half=2, two=2
            ),
            "float64": lambda grid, dim: sincos_2d(grid, dim).double(),
            "take turns": lambda grid, dim: rearrange(sincos_2d(grid, dim), "n (two half) -> n (half two)", two=2),
            "first half": lambda grid, dim: torch.cat(
                [1 - sincos_2d(grid, dim)[:, :6], sincos_2d(grid, dim)[:, 6:]], 1
            ),
            "second half": lambda grid, dim: torch.cat(
                [sincos_2d(grid, dim)[:, :6], 1 - sincos_2d(grid, dim)[:, 6:]], 1
            ),
        },
    )


def _resample(
    pos_embed, old, new, *, shape=None, split="one (gh gw) d -> one d gh gw", merge="one (gh gw) d", **options
):
    """A bicubic stretch with something changed."""
    options = {"size": new, "mode": "bicubic", "antialias": True} | options
    old = shape or old
    picture = rearrange(pos_embed[:, 1:], split, gh=old[0], gw=old[1])
    return torch.cat([pos_embed[:, :1], rearrange(F.interpolate(picture, **options), f"one d gh gw -> {merge}")], dim=1)


def _flat(pos_embed, size):
    return F.interpolate(pos_embed.transpose(1, 2), size=size, mode="linear").transpose(1, 2)


def _in_place(pos_embed, old, new):
    pos_embed -= pos_embed.mean()
    return resample_pos_embed(pos_embed, old, new)


def test_resample_pos_embed():
    def everything_is_a_patch(pos_embed, old, new):
        return resample_pos_embed(pos_embed, old, new, num_prefix_tokens=0)

    def reshaped_to_the_front(pos_embed, old, new):
        picture = pos_embed[:, 1:].reshape(1, -1, *old)
        stretched = F.interpolate(picture, size=new, mode="bicubic", antialias=True)
        return torch.cat([pos_embed[:, :1], stretched.flatten(2).transpose(1, 2)], dim=1)

    def reshaped_back(pos_embed, old, new):
        stretched = rearrange(resample_pos_embed(pos_embed, old, new)[:, 1:], "one n d -> one d n")
        return torch.cat([pos_embed[:, :1], stretched.reshape(1, -1, pos_embed.shape[2])], dim=1)

    def mean_class_token(pos_embed, old, new):
        stretched = resample_pos_embed(pos_embed, old, new)
        return torch.cat([stretched[:, 1:].mean(dim=1, keepdim=True), stretched[:, 1:]], dim=1)

    assert_hints(
        "resample_pos_embed",
        resample_pos_embed,
        {
            "make no 3×5 grid": everything_is_a_patch,
            "in place": _in_place,
            "put the class token back": lambda p, old, new: resample_pos_embed(p, old, new)[:, 1:],
            "the new grid has": lambda p, old, new: p.clone(),
            "to the end": lambda p, old, new: resample_pos_embed(p, old, new).roll(-1, dims=1),
            "stretched with the patches": lambda p, old, new: _flat(p, 1 + new[0] * new[1]),
            "row 0 changed": mean_class_token,
            "flat sequence": lambda p, old, new: torch.cat([p[:, :1], _flat(p[:, 1:], new[0] * new[1])], dim=1),
            "old grid was read": lambda p, old, new: _resample(p, old, new, shape=old[::-1]),
            "(width, height)": lambda p, old, new: _resample(p, old, new, size=new[::-1]),
            "column by column": lambda p, old, new: _resample(p, old, new, merge="one (gw gh) d"),
            "d to the front": reshaped_to_the_front,
            "d to the back": reshaped_back,
            "bilinear without": lambda p, old, new: _resample(p, old, new, mode="bilinear", antialias=False),
            "that is bilinear: ": lambda p, old, new: _resample(p, old, new, mode="bilinear"),
            "is missing": lambda p, old, new: _resample(p, old, new, antialias=False),
            "align_corners": lambda p, old, new: _resample(p, old, new, align_corners=True),
            "nearest": lambda p, old, new: _resample(p, old, new, mode="nearest", antialias=False),
            "no bicubic stretch": lambda p, old, new: torch.cat(
                [p[:, :1], 2 * resample_pos_embed(p, old, new)[:, 1:]], dim=1
            ),
        },
    )
