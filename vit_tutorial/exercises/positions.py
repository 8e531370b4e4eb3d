"""Checks of chapter 2, order matters."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vit_tutorial.exercises.engine import CheckFailed, call, checks, close, expect, expect_shape, rule_out, yes_or_no
from vit_tutorial.positions import resample_pos_embed, sincos_1d, sincos_2d


def add_cls_token(tokens: Float[Tensor, "b n d"], cls_token: Float[Tensor, "1 1 d"]) -> Float[Tensor, "b m d"]:
    """Put the one class token in front of each image's tokens: ``(b, n, d)`` to ``(b, n + 1, d)``."""
    return torch.cat([cls_token.expand(tokens.shape[0], -1, -1), tokens], dim=1)


@checks(add_cls_token)
def check_add_cls_token(fn):
    tokens, cls_token = torch.randn(3, 5, 4), torch.randn(1, 1, 4)
    try:
        result = call(fn, tokens, cls_token)
    except CheckFailed:
        one = call(fn, tokens[:1], cls_token)  # a failure here is of another kind: let it through
        expect(
            not close(one, torch.cat([cls_token, tokens[:1]], dim=1)),
            "it works for a batch of one only: torch.cat does not broadcast the (1, 1, d) class token. Expand it",
        )
        raise
    expect(
        not close(result, tokens + cls_token),
        "the class token was added to every patch. It is a token of its own, in front of them: torch.cat",
    )
    usual = {
        (4, 5, 4): "joined along the batch, that makes one more image. Tokens are axis 1",
        (3, 5, 8): "joined along the features, that makes wider tokens. Tokens are axis 1",
        (3, 8, 4): "each image got the class token of every image of the batch. It wants one",
    }
    expect_shape(result, (3, 6, 4), "one more token for each image", usual)
    everywhere = cls_token.expand(3, 1, 4)
    expect(
        not close(result[:, -1:], everywhere),
        "the class token stands at the end. In front it is token 0, whatever the size of the image",
    )
    expect(close(result[:, 1:], tokens), "tokens 1 to n must be the patch tokens, unchanged and in their order")
    expect(
        close(result[:1, :1], cls_token),
        "token 0 is not the class token that was passed in. A new one in each call could not be learned",
    )
    expect(close(result[:, :1], everywhere), "only the first image has the class token in front")
    try:
        call(fn, tokens[:2], cls_token)
    except CheckFailed as failure:
        raise CheckFailed(f"a batch of 3 works, a batch of 2 fails: take b from the tokens ({failure})") from None
    with torch.enable_grad():
        result = call(fn, tokens, cls_token.requires_grad_())
        expect(
            result.requires_grad,
            "no gradient reaches the class token, so it never learns: .data, .detach() and torch.tensor(…) cut it off",
        )
        result.sum().backward()
    expect(cls_token.grad is not None, "no gradient reaches the class token that was passed in, but a copy of it")
    expect(close(cls_token.grad, torch.full((1, 1, 4), 3.0)), "for a batch of 3 the gradients of 3 copies must add up")


def order_blind(encode: Callable[[Tensor], Tensor], tokens: Float[Tensor, "b n d"]) -> bool:
    """Whether ``encode``, ``(b, n, d)`` to ``(b, k)``, gives the same when tokens 1 to n are shuffled."""
    order = torch.cat([torch.tensor([0]), 1 + torch.randperm(tokens.shape[1] - 1)])
    return torch.allclose(encode(tokens), encode(tokens[:, order]), atol=1e-5)


def _without_order(x: Tensor, axis: int) -> Tensor:
    """The slices of ``x`` along ``axis``, sorted by their first number: equal for two orders of the same slices."""
    slices = x.movedim(axis, 0).flatten(1)
    return slices[slices[:, 0].argsort()]


@checks(order_blind)
def check_order_blind(fn):
    tokens = torch.randn(3, 12, 5)
    seen = []

    def blind(x):
        seen.append(x.clone())
        return 2 * x[:, 0] + x[:, 1:].double().exp().mean(dim=1).to(x.dtype)

    def weigh(*weights):
        return lambda x: (x * torch.tensor(weights)[:, None]).sum(dim=1)

    def answer(encode, given):
        return yes_or_no(call(fn, encode, given))

    verdict = answer(blind, tokens)
    expect(len(seen) > 1, "call `encode` twice: on the tokens as they are, and on the shuffled ones")
    moved = [x for x in seen if not torch.equal(x, tokens)]
    expect(len(moved) > 0, "`encode` saw the same tokens each time: shuffle them for the second call")
    for x in moved:
        expect_shape(x, (3, 12, 5), "that reached `encode`: shuffle the tokens and keep them all")
        for axis, name in ((0, "images of the batch"), (2, "features of a token")):
            same = torch.equal(_without_order(x, axis), _without_order(tokens, axis))
            expect(not same, f"the {name} were shuffled, axis {axis}. Tokens are axis 1")
        expect(
            torch.equal(x[:, 0], tokens[:, 0]),
            "token 0 moved. The class token is read at place 0: shuffle tokens 1 to n only",
        )
        places = int((x != tokens).any(dim=2).any(dim=0).sum())
        expect(places > 2, "only two tokens changed places, and some encoders are blind to that alone: torch.randperm")
    rising = answer(weigh(*range(12)), tokens)
    expect(verdict or not rising, "the answer is the wrong way round: blind means that the output does NOT change")
    expect(verdict, "an encoder that averages its patch tokens was called not blind: how are the outputs compared?")
    expect(not rising, "an encoder that weighs each token by its place was called blind: how are the outputs compared?")
    calls = iter(range(1000))
    expect(
        answer(lambda x: x[:, 0] + 1e-7 * next(calls), tokens),
        "outputs 1e-7 apart were called different. Sums in another order are rounded differently: torch.allclose",
    )
    expect(
        answer(lambda x: 0 * x[:, 0] + 1e-7 * next(calls), tokens),
        "outputs near 0 and 1e-7 apart were called different: give torch.allclose an atol of 1e-5, its own is 1e-8",
    )
    placed = weigh(*range(12))
    expect(
        not answer(lambda x: placed(x) - placed(x).mean(dim=1, keepdim=True), tokens),
        "outputs of equal sum were called equal: compare them number by number",
    )
    last = torch.zeros(3, 5)
    last[2, 4] = 1
    expect(
        not answer(lambda x: placed(x) * last, tokens),
        "outputs that differ in one number of the last image were called equal: `encode` gives (b, k), compare all of "
        "it",
    )
    expect(
        not answer(lambda x: 1e-4 * placed(x), tokens),
        "outputs 1e-3 apart were called equal: the tolerance is too wide, 1e-5 is enough for rounding",
    )
    for sign in (1, -1):
        steps = iter(range(1000))
        expect(
            not answer(lambda x, sign=sign, steps=steps: 0 * x[:, 0] + sign * next(steps), tokens),
            "outputs 1 apart were called equal: take abs() of the difference before max()",
        )
    palindrome = weigh(0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1)
    expect(
        not answer(palindrome, tokens),
        "reversing is one order of many, and some encoders are blind to that one alone: torch.randperm",
    )

    def neighbours(x):  # blind to the place where a circle of tokens begins
        return (x[:, 1:] * x[:, 1:].roll(1, dims=1)).sum(dim=1)

    expect(
        not answer(neighbours, tokens),
        "moving all tokens along keeps who stands beside whom, and some encoders see that alone: torch.randperm",
    )


def _table(num_positions: int, dim: int, value: Callable[[int, int], float]) -> Tensor:
    return torch.tensor([[value(p, c) for c in range(dim)] for p in range(num_positions)], dtype=torch.float32)


def _sincos(position: int, column: int, dim: int) -> float:
    """One number of the table, as the paper writes it."""
    angle = position / 10000 ** (2 * (column // 2) / dim)
    return math.cos(angle) if column % 2 else math.sin(angle)


def _sincos_table(num_positions: int, dim: int) -> Tensor:
    return _table(num_positions, dim, lambda p, c: _sincos(p, c, dim))


@checks(sincos_1d)
def check_sincos_1d(fn):
    n, dim = 7, 10
    truth = _sincos_table(n, dim)
    result = call(fn, n, dim)
    expect_shape(result, (n, dim), "one row for each position, one column for each feature, no batch axis")

    def with_frequency(of_column):
        return _table(n, dim, lambda p, c: (math.cos if c % 2 else math.sin)(p * of_column(c)))

    mistakes = {
        "sin and cos are swapped: sin stands in the even columns. Row 0 reads 0, 1, 0, 1, …": (
            torch.stack([truth[:, 1::2], truth[:, ::2]], dim=-1).flatten(1)
        ),
        "all sines stand before all cosines, a common variant. Here they alternate: stack on a new last axis": (
            torch.cat([truth[:, ::2], truth[:, 1::2]], dim=1)
        ),
        "the positions start at 1: row 0 must be position 0": _table(n, dim, lambda p, c: _sincos(p + 1, c, dim)),
        "the frequencies fall too slowly: the exponent of pair i is 2i/dim, not i/dim": (
            with_frequency(lambda c: 10000 ** -(c // 2 / dim))
        ),
        "the frequencies fall too fast: the exponent is 2i over dim, not over the number of pairs": (
            with_frequency(lambda c: 10000 ** -(c // 2 / (dim / 4)))
        ),
        "sin and cos of one pair have two frequencies: column 2i + 1 has the exponent 2i/dim of its neighbour": (
            with_frequency(lambda c: 10000 ** -(c / dim))
        ),
        "the frequencies grow: the position is divided by 10000^(2i/dim). Is a minus sign missing?": (
            with_frequency(lambda c: 10000 ** (c // 2 * 2 / dim))
        ),
        "every column has frequency 1: divide the position by 10000^(2i/dim)": with_frequency(lambda c: 1),
    }
    rule_out(result, mistakes, 1e-3)
    wrong = [c for c in range(dim) if not close(result[:, c], truth[:, c])]
    expect(not wrong, f"columns {wrong} differ from the formula")
    try:
        odd = call(fn, 5, 9)
    except CheckFailed as failure:
        raise CheckFailed(f"dim=10 is right, dim=9 fails: it has 5 sines, but only 4 cosines ({failure})") from None
    expect_shape(odd, (5, 9), "an odd dim has one cosine less")
    expect(
        close(odd, _sincos_table(5, 9)),
        "dim=10 is right, dim=9 is not. The frequencies are those of dim 9, and the last cosine is left out",
    )
    _expect_single_precision(result)


def _expect_single_precision(table: Tensor) -> None:
    expect(
        table.dtype == torch.float32,
        f"the numbers are right, but they are {table.dtype}. Added to the tokens, they would make these {table.dtype}, "
        "too, and the next layer refuses them: .float() at the end",
    )


def position_similarity(table: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """The cosine of the angle between each two rows of a table."""
    rows = table / table.norm(dim=1, keepdim=True)
    return rows @ rows.T


@checks(position_similarity)
def check_position_similarity(fn):
    table = torch.randn(6, 4) + 1
    result = call(fn, table)
    expect_shape(result, (6, 6), "rows are compared with rows: (n, d) times (d, n)")
    truth = F.cosine_similarity(table[:, None], table[None], dim=-1)
    dot, norm = table @ table.T, table.norm(dim=1, keepdim=True)
    centred = F.normalize(table - table.mean(dim=1, keepdim=True))
    columns = F.normalize(table, dim=0)
    mistakes = {
        "that is the dot product: divide by the lengths of both rows, so that only the direction counts": dot,
        "that is the dot product over √dim, as attention has it. The cosine divides by both lengths": dot / 2,
        "only the row's length was divided out: the other vector has one too": dot / norm,
        "only the column's length was divided out: the other vector has one too": dot / norm.T,
        "one length was divided out twice, the other not at all": dot / norm**2,
        "the columns of the table were made length 1. A position is a row: norm over dim=1": columns @ columns.T,
        "that is the correlation: the mean of each row was taken off first": centred @ centred.T,
        "that is a distance, 1 − cosine: equal positions must have similarity 1": 1 - truth,
        "that is the distance between rows: equal positions must have similarity 1": torch.cdist(table, table),
        "that is the angle: its cosine is wanted": truth.clamp(-1, 1).acos(),
    }
    rule_out(result, mistakes, 1e-3)
    expect(close(result.diagonal(), torch.ones(6)), "the diagonal is not 1: each position equals itself")
    expect(close(result, truth), "the diagonal is 1, but other entries are not the cosine between rows i and j")


def shift_matrix(offset: int, dim: int) -> Float[Tensor, "d d"]:
    """The M with ``sincos_1d(…)[p + offset] = M @ sincos_1d(…)[p]`` for every p: it turns each pair of columns."""
    angle = offset * 10000.0 ** -(torch.arange(0, dim, 2) / dim)
    sin, cos = angle.sin(), angle.cos()
    turns = torch.stack([cos, sin, -sin, cos], dim=-1).reshape(-1, 2, 2)
    return torch.block_diag(*turns)


@checks(shift_matrix)
def check_shift_matrix(fn):
    offset, dim = 3, 8
    pairs = range(dim // 2)
    result = call(fn, offset, dim)
    expect_shape(result, (dim, dim), "it turns dim numbers into dim numbers")
    result = result.float()

    def turns(angles, partners=lambda i: (2 * i, 2 * i + 1)):
        matrix = torch.zeros(dim, dim)
        for i, angle in enumerate(angles):
            a, b = partners(i)
            matrix[a, a] = matrix[b, b] = math.cos(angle)
            matrix[a, b], matrix[b, a] = math.sin(angle), -math.sin(angle)
        return matrix

    angles = [offset / 10000 ** (2 * i / dim) for i in pairs]
    mistakes = {
        "that shifts back, from p + 3 to p: a sign is wrong, or the matrix is transposed": turns([-a for a in angles]),
        "every pair turns by the same angle: pair i turns by offset / 10000^(2i/dim)": turns([offset for _ in pairs]),
        "that shifts by 1 whatever the offset": turns([a / offset for a in angles]),
        "the frequencies fall too slowly: the exponent of pair i is 2i/dim": turns(
            [offset / 10000 ** (i / dim) for i in pairs]
        ),
        "column i was paired with i + dim/2. In this table partners are neighbours, 2i and 2i + 1": turns(
            angles, lambda i: (i, i + dim // 2)
        ),
        "sin and cos are swapped: at offset 0 nothing may turn, so cos is on the diagonal": turns(
            [math.pi / 2 - a for a in angles]
        ),
    }
    rule_out(result, mistakes, 1e-3)
    table = _sincos_table(40, dim)
    shifted = table[:-offset] @ result.T
    right = [p for p in range(len(shifted)) if close(shifted[p], table[p + offset], 1e-4)]
    expect(
        len(right) in (0, len(shifted)),
        f"M @ table[p] is table[p + {offset}] for p in {right[:5]} only: one matrix must serve every p",
    )
    expect(len(right) > 0, f"M @ table[p] is not table[p + {offset}]. Try one pair of columns first")
    expect(close(call(fn, 0, dim).float(), torch.eye(dim), 1e-4), "offset 0 must give the identity")
    table, back = _sincos_table(40, 6), call(fn, -5, 6).float()
    expect(close(table[5:] @ back.T, table[:-5], 1e-4), "a negative offset must shift back: −5 with dim 6 does not")


@checks(sincos_2d)
def check_sincos_2d(fn):
    (gh, gw), dim = (3, 5), 12
    half = dim // 2
    result = call(fn, (gh, gw), dim)
    expect_shape(result, (gh * gw, dim), "one row for each patch; the grid's row and column fill dim/2 columns each")

    def table(value):
        return _table(gh * gw, dim, lambda p, c: value(p // gw, p % gw, c))

    truth = table(lambda y, x, c: _sincos(y if c < half else x, c % half, half))
    grid = truth.reshape(gh, gw, dim)
    mistakes = {
        "the halves are swapped: the grid's row fills the first half, its column the second": truth.roll(half, dims=1),
        "the grid is flattened column by column: patches come row by row": grid.transpose(0, 1).reshape(-1, dim),
        "the halves are swapped, and the grid is flattened column by column": (
            grid.transpose(0, 1).reshape(-1, dim).roll(half, dims=1)
        ),
        "both halves hold the grid's row, so all patches of a row have one position": truth[:, :half].repeat(1, 2),
        "both halves hold the grid's column, so all patches of a column have one position": truth[:, half:].repeat(
            1, 2
        ),
        "the two tables were added, so places (0, 1) and (1, 0) are the same: concatenate two halves": table(
            lambda y, x, c: _sincos(y, c, dim) + _sincos(x, c, dim)
        ),
        "that is the 1-D table over the patch's number: row and column want a half each": _sincos_table(gh * gw, dim),
        "the frequencies are those of a table of dim columns: each half is a whole sincos_1d of dim/2": table(
            lambda y, x, c: _sincos(y if c < half else x, c % half, dim)
        ),
        "in each half all sines stand before all cosines (timm's order): here they alternate, as in sincos_1d": (
            truth.reshape(-1, 2, half // 2, 2).transpose(2, 3).flatten(1)
        ),
        "row and column take turns: the row fills the first half, the column the second": (
            truth.reshape(-1, 2, half).transpose(1, 2).flatten(1)
        ),
    }
    rule_out(result, mistakes, 1e-3)
    for name, part in (("first half, the grid's row,", slice(half)), ("second half, its column,", slice(half, None))):
        expect(close(result[:, part], truth[:, part]), f"the {name} differs from sincos_1d of the coordinate")
    _expect_single_precision(result)


@checks(resample_pos_embed)
def check_resample_pos_embed(fn):
    old, new, dim = (3, 5), (6, 4), 2
    pos_embed = torch.randn(1, 16, dim)
    prefix, patches = pos_embed[:, :1], pos_embed[0, 1:]
    try:
        result = call(fn, pos_embed, old, new)
    except CheckFailed:
        try:
            all_patches = call(fn, pos_embed, (4, 4), new)
        except CheckFailed:
            all_patches = None
        expect(
            tuple(getattr(all_patches, "shape", ())) != (1, 24, dim),
            "16 rows make no 3×5 grid: the class token has no place in it. Set row 0 aside, and put it back in front",
        )
        raise
    usual = {(1, 24, dim): "put the class token back in front", (1, 16, dim): "the new grid has 6·4 patches"}
    expect_shape(result, (1, 25, dim), "a class token and 6·4 patches", usual)
    expect(not torch.equal(result[:, -1:], prefix), "the class token went to the end: it stays token 0")

    def stretch(rows=patches, grid=old, **options):
        options = {"size": new, "mode": "bicubic", "antialias": True} | options
        channels = [F.interpolate(channel.reshape(1, 1, *grid), **options) for channel in rows.T]
        return torch.cat(channels, dim=1).flatten(2).transpose(1, 2)

    def flat(rows, size):
        return F.interpolate(rows.T[None], size=size, mode="linear").transpose(1, 2)

    rule_out(result, {"the class token was stretched with the patches: set row 0 aside": flat(pos_embed[0], 25)}, 1e-3)
    expect(
        torch.equal(result[:, :1], prefix),
        "row 0 changed. The class token has no place in the picture: keep it bitwise",
    )
    truth = stretch()
    picture = truth.reshape(1, *new, dim)
    mistakes = {
        "the flat sequence was stretched. Its neighbours are not those of the picture: make a picture first": (
            flat(patches, 24)
        ),
        "the old grid was read with height and width swapped": stretch(grid=old[::-1]),
        "the new size was given as (width, height): torch wants (height, width)": stretch(size=new[::-1]),
        "the new picture was flattened column by column": picture.transpose(1, 2).flatten(1, 2),
        "the picture is scrambled, for reshape cannot move d to the front: reshape to (1, gh, gw, d), then permute": (
            stretch(patches.reshape(dim, 15).T)
        ),
        "the new picture is scrambled, for reshape cannot move d to the back: permute first": (
            picture.permute(0, 3, 1, 2).reshape(1, 24, dim)
        ),
        "that is bilinear without antialias: mode='bicubic', antialias=True": stretch(mode="bilinear", antialias=False),
        "that is bilinear: mode='bicubic'": stretch(mode="bilinear"),
        "antialias=True is missing: it counts where the grid shrinks, and changes torch's cubic": stretch(
            antialias=False
        ),
        "align_corners=True pins the outermost centres: leave it off, as timm does": stretch(align_corners=True),
        "that is the nearest neighbour, positions in steps: mode='bicubic'": stretch(mode="nearest", antialias=False),
    }
    rule_out(result[:, 1:], mistakes, 1e-3)
    expect(close(result[:, 1:], truth), "row 0 is right, but the patches are no bicubic stretch of each channel")
    expect(close(call(fn, pos_embed, old, old), pos_embed, 1e-4), "with an unchanged grid nothing may change")
