"""Exercises of chapter 2: order matters."""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, NotAttempted, same
from vit_tutorial.positions import resample_pos_embed, sincos_1d, sincos_2d

EXERCISES: dict[str, Exercise] = {}


def order_blind(encode: Callable[[Tensor], Tensor], tokens: Float[Tensor, "b n d"]) -> bool:
    """Whether ``encode``, ``(b, n, d)`` to ``(b, k)``, gives the same if tokens 1 to n are shuffled."""
    order = torch.cat([torch.tensor([0]), 1 + torch.randperm(tokens.shape[1] - 1)])
    return torch.allclose(encode(tokens), encode(tokens[:, order]), atol=1e-5)


def _watched(fn, encode, tokens):
    """The answer, or what was wrong with the tokens that it showed to ``encode``."""
    seen = []

    def watch(x):
        seen.append(x.detach().clone())
        return encode(x) if x.shape[1:] == tokens.shape[1:] else x[:, 0]

    answer = fn(watch, tokens)
    shuffled = [x for x in seen if not (x.shape == tokens.shape and torch.equal(x, tokens))]
    if not shuffled:
        return "not shuffled" if len(seen) > 1 else "called once"
    for x in shuffled:
        if x.shape[1:] != tokens.shape[1:]:
            return "other tokens"
        for axis in (0, 2) if x.shape == tokens.shape else ():
            if torch.equal(x.sort(axis).values, tokens.sort(axis).values):
                return f"axis {axis}"
        if len(x) == len(tokens) and not torch.equal(x[:, 0], tokens[:, 0]):
            return "token 0"
    return answer


def _by_place(x, *weights):
    return (x * torch.tensor(weights or range(12))[:, None]).sum(dim=1)


def _shuffle(tokens, first=1):
    return tokens[:, torch.cat([torch.arange(first), first + torch.randperm(tokens.shape[1] - first)])]


_close = partial(torch.allclose, atol=1e-5)


def _blind(change=_shuffle, alike=_close):
    return lambda encode, tokens: bool(alike(encode(tokens), encode(change(tokens))))


def _patches(change):
    """Blind to one change of the patch tokens."""
    return _blind(lambda tokens: torch.cat([tokens[:, :1], change(tokens[:, 1:])], dim=1))


def _tell(truth, hint, encode, caught=None, b=6):
    """A case. Features rise from token to token, so that an encoder can see whether they were shuffled."""
    return Case(lambda: (encode, torch.randn(b, 12, 7).sort(dim=1).values), hint, caught, truth)


EXERCISES["order_blind"] = Exercise(
    reference=order_blind, run=_watched, true_means="that the output does NOT change",
    cases=[
        _tell(True, "an encoder that averages its patches was called not blind: how are the outputs compared?",
              lambda x: 2 * x[:, 0] + x[:, 1:].double().exp().mean(1).to(x.dtype), _blind(alike=lambda a, b: False)),
        _tell(False, "an encoder that weighs each token by its place was called blind: how are the outputs compared?",
              lambda x: _by_place(x), _blind(alike=lambda a, b: a.shape == b.shape)),
        _tell(True, "outputs 1e-7 apart were called different. Rounding depends on the order of a sum: torch.allclose",
              lambda x: x[:, 0].abs() + 1 + x[:, 1:].exp().mean(dim=1), _blind(alike=torch.equal)),
        _tell(True, "outputs near 0, 1e-7 apart, were called different: give torch.allclose atol=1e-5, its own is 1e-8",
              lambda x: x[:, 1:].sum(dim=1) - x[:, 1:].double().sum(dim=1).to(x.dtype),  # the rounding alone
              _blind(alike=torch.allclose)),
        _tell(False, "outputs of equal sum were called equal: compare them number by number",
              lambda x: _by_place(x) - _by_place(x).mean(dim=1, keepdim=True),
              _blind(alike=lambda a, b: _close(a.sum(1) / 100, b.sum(1) / 100))),
        _tell(False, "a difference in one number of the last image went unseen: `encode` gives (b, k), compare it all",
              lambda x: F.pad(_by_place(x)[-1:, -1:], (6, 0, len(x) - 1, 0)),
              _blind(alike=lambda a, b: _close(a[0], b[0]))),
        _tell(False, "outputs 1e-3 apart were called equal: the tolerance is too wide, 1e-5 is enough for rounding",
              lambda x: 1e-4 * _by_place(x), _blind(alike=partial(torch.allclose, atol=0.1))),
        *(_tell(False, "outputs far apart were called equal: take abs() of the difference before max()",
                lambda x, sign=sign: sign * _by_place(x),
                _blind(alike=lambda a, b, sign=sign: (sign * (a - b)).max() < 1e-5)) for sign in (1, -1)),
        _tell(False, "reversing is just one order, and some encoders are blind to that one alone: torch.randperm",
              lambda x: _by_place(x, 0, 1, 2, 3, 4, 5, 6, 5, 4, 3, 2, 1), _patches(lambda x: x.flip(1))),
        _tell(False, "rolling keeps each token's neighbours, and some encoders see nothing else: torch.randperm",
              lambda x: (x[:, 1:] * x[:, 1:].roll(1, dims=1)).sum(dim=1), _patches(lambda x: x.roll(1, dims=1))),
        _tell(False, "only two tokens changed places, and some encoders are blind to that alone: torch.randperm",
              lambda x: (x != x.sort(dim=1).values).any(dim=2).sum(dim=1, keepdim=True).clamp(min=2).to(x.dtype),
              _patches(lambda x: x[:, [1, 0, *range(2, 11)]])),
        _tell(True, "right for six images, wrong for one", lambda x: x[:, 1:].amax(dim=(1, 2))[:, None], b=1),
    ],
    mistakes={
        "call `encode` twice: on the tokens as they are, and shuffled": lambda encode, x: encode(x) is not None,
        "`encode` saw the same tokens each time: shuffle them for the second call": _blind(lambda x: x),
        "some tokens never reached `encode`: shuffle the tokens and keep them all": _blind(lambda x: x[:, :-1]),
        "the images of the batch were shuffled, axis 0. Tokens are axis 1": _blind(lambda x: x.roll(1, dims=0)),
        "the features of a token were shuffled, axis 2. Tokens are axis 1": _blind(lambda x: x.flip(2)),
        "token 0 moved, where the class token is read: shuffle tokens 1 to n only": _blind(partial(_shuffle, first=0)),
    },
    right=[lambda encode, tokens: ((encode(tokens) - encode(_shuffle(tokens))).abs() < 1e-5).all(),
           lambda encode, tokens: _close(*encode(torch.cat([tokens, _shuffle(tokens)])).chunk(2))],
)  # fmt: skip


def add_cls_token(tokens: Float[Tensor, "b n d"], cls_token: Float[Tensor, "1 1 d"]) -> Float[Tensor, "b m d"]:
    """Put the one class token in front of each image's tokens: ``(b, n, d)`` to ``(b, n + 1, d)``."""
    return torch.cat([cls_token.expand(tokens.shape[0], -1, -1), tokens], dim=1)


def _or_gradient(fn, tokens, cls_token):
    """The result; the gradient of the class token, if that alone is to learn."""
    result = fn(tokens, cls_token)
    if tokens.requires_grad or not cls_token.requires_grad:
        return result
    if not result.requires_grad:
        return "no gradient"
    (gradient,) = torch.autograd.grad(result.sum(), cls_token, allow_unused=True)
    return "the gradient of a copy" if gradient is None else gradient


def _in_front(expand):
    return lambda tokens, cls_token: torch.cat([expand(cls_token, len(tokens)), tokens], dim=1)


def _which_part(got, want, *_):
    if got.shape[1] == 1:  # a gradient
        return ""
    if same(got[:, 1:], want[:, 1:]):
        return "token 0 is not the class token that was passed in. A new one in each call could not be learned"
    return "tokens 1 to n must be the patch tokens, unchanged and in their order"


EXERCISES["add_cls_token"] = Exercise(
    reference=add_cls_token, run=_or_gradient, explain=_which_part,
    truth=lambda tokens, cls: torch.stack([torch.vstack([cls[0], one]) for one in tokens]),
    given=lambda b=3, n=5, d=4: (torch.randn(b, n, d), torch.randn(1, 1, d)),
    notes=[Case(lambda: (torch.randn(3, 5, 4), torch.randn(1, 1, 4).requires_grad_()),
                "the class token that was passed in gets another gradient than the sum over its copies, so it would "
                "not learn as it should. .data, .detach(), torch.tensor(…) and nn.Parameter(…) cut it off", caught)
           for caught in (_in_front(lambda cls, b: torch.cat([cls, cls.detach().expand(b - 1, -1, -1)])),
                          _in_front(lambda cls, b: cls.detach().expand(b, -1, -1)),
                          _in_front(lambda cls, b: torch.nn.Parameter(cls.clone()).expand(b, -1, -1)))],
    mistakes={
        "right for a batch of one only. torch.cat does not broadcast: expand cls_token": _in_front(lambda cls, b: cls),
        "the class token was added to every patch. It is one more token: torch.cat": lambda tokens, cls: tokens + cls,
        "joined along the batch, it makes one more image. Tokens are axis 1":
            lambda tokens, cls: torch.cat([cls.expand(1, tokens.shape[1], -1), tokens], dim=0),
        "joined along the features, it makes wider tokens. Tokens are axis 1":
            lambda tokens, cls: torch.cat([cls.expand_as(tokens), tokens], dim=2),
        "each image got b class tokens. It needs one": _in_front(lambda cls, b: cls.expand(b, b, -1)),
        "the class token replaced patch 0. It joins the n patches": lambda x, cls: add_cls_token(x[:, 1:], cls),
        "the class token is at the end. It is token 0, in front": lambda x, cls: add_cls_token(x, cls).roll(-1, 1),
        "only the first image has the class token": _in_front(lambda cls, b: F.pad(cls, (0, 0, 0, 0, 0, b - 1))),
        "the batch size 3 is hard-coded: take b from the tokens": _in_front(lambda cls, b: cls.expand(3, -1, -1)),
    },
    right=[_in_front(lambda cls, b: cls.repeat(b, 1, 1)),
           lambda tokens, cls: F.pad(tokens, (0, 0, 1, 0)) + F.pad(cls, (0, 0, 0, tokens.shape[1]))],
    shape="one more token for each image, (b, n + 1, d)",
    otherwise="Make the class token (b, 1, d) with expand, then join it to the tokens along axis 1",
)  # fmt: skip


def _sincos_table(num_positions, dim):
    """The table number by number, as the paper writes it."""
    angles = [[p / 10000 ** (2 * (c // 2) / dim) for c in range(dim)] for p in range(num_positions)]
    return torch.tensor([[(math.sin, math.cos)[c % 2](angle) for c, angle in enumerate(row)] for row in angles])


def _sincos(exponent=lambda c: c // 2 * 2, *, base=10000, first=0, turn=lambda angle, n: angle, over=lambda dim: dim):
    """The table with something changed."""

    def fn(num_positions, dim):
        position = torch.arange(first, first + num_positions)
        angles = [turn(position / base ** (exponent(c) / over(dim)), num_positions) for c in range(dim)]
        return torch.stack([angle.cos() if c % 2 else angle.sin() for c, angle in enumerate(angles)], dim=1)

    return fn


def _even_only(num_positions, dim):
    table = torch.zeros(num_positions, dim)
    angle = torch.arange(num_positions)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
    table[:, ::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table


def _wrong_columns(got, want, *_):
    wrong = [c for c in range(want.shape[1]) if not same(got[:, c], want[:, c], 2e-3)]
    return f"columns {wrong} differ from the formula" if 0 < len(wrong) < want.shape[1] else ""


EXERCISES["sincos_1d"] = Exercise(
    reference=sincos_1d, truth=_sincos_table, given=lambda n=7, d=10: (n, d),
    explain=_wrong_columns, tolerance=1e-4, dtype=True,
    cases=[Case(lambda: (5, 9), "right for even dim, wrong for dim=9: it has 5 sines and 4 cosines. Leave out the last",
                _even_only)],
    mistakes={
        "sin and cos are swapped: sin belongs in the even columns. Row 0 reads 0, 1, 0, 1, …":
            _sincos(turn=lambda angle, n: math.pi / 2 - angle),
        "all sines come before all cosines, a common variant. Here they alternate":
            lambda n, dim: sincos_1d(n, dim)[:, [*range(0, dim, 2), *range(1, dim, 2)]],
        "the positions start at 1: row 0 must be position 0": _sincos(first=1),
        "the frequencies fall too slowly: the exponent of pair i is 2i/dim, not i/dim": _sincos(lambda c: c // 2),
        "the frequencies fall too fast: the exponent is 2i over dim, not dim/2. torch.arange(0, dim, 2) is 2i already":
            _sincos(lambda c: c // 2 * 4),
        "the frequencies fall too fast: divide 2i by dim, not by dim − 2": _sincos(over=lambda dim: max(dim - 2, 1)),
        "a pair's sin and cos have different frequencies: both have the exponent 2i/dim": _sincos(lambda c: c),
        "the frequencies grow: divide by 10000^(2i/dim). Is a minus missing?": _sincos(lambda c: -(c // 2 * 2)),
        "every column has frequency 1: divide the position by 10000^(2i/dim)": _sincos(lambda c: 0),
        "the base is 10000, with four zeros": _sincos(base=1000),
        "// rounds the angles down to whole numbers: divide with /": _sincos(turn=lambda angle, n: angle.floor()),
        "sin and cos take radians, not degrees: no factor is needed": _sincos(turn=lambda angle, n: angle.deg2rad()),
        "there is no 2π: the first hand turns by one radian per step": _sincos(turn=lambda angle, n: math.tau * angle),
        "the odd columns hold cosines, not sines": lambda n, dim: sincos_1d(n, dim)[:, torch.arange(dim) // 2 * 2],
        "the positions were divided by their number. A step is always 1": _sincos(turn=lambda angle, n: angle / n),
        "dim=10 is right, dim=9 is not. The frequencies are those of dim 9, and the last cosine is left out":
            lambda n, dim: sincos_1d(n, dim + dim % 2)[:, :dim],
        "an odd dim has one cosine fewer": lambda n, dim: sincos_1d(n, dim + dim % 2),
        "positions are rows, features columns": lambda n, dim: sincos_1d(n, dim).T,
        "there is no batch axis": lambda n, dim: sincos_1d(n, dim)[None],
        "the numbers are right, but not float32: added to the tokens, they change their dtype. End with .float()":
            lambda n, dim: sincos_1d(n, dim).double(),
    },
    right=[_sincos()],
    shape="one row for each position, one column for each feature, no batch axis",
    otherwise="Column 2i is sin(p / 10000^(2i/dim)), column 2i + 1 is the cosine of the same",
)  # fmt: skip


def position_similarity(table: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """The cosine of the angle between each two rows of a table."""
    rows = table / table.norm(dim=1, keepdim=True)
    return rows @ rows.T


def _dot_over(lengths):
    """The dot products, divided by something made of the rows' lengths, ``(n, 1)``."""
    return lambda table: table @ table.T / lengths(table.norm(dim=1, keepdim=True))


def _cosines_of_floats(table):
    """One by one in Python's own numbers, through which no gradient flows."""
    rows = table.tolist()
    dots = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows] for a in rows]
    lengths = [math.hypot(*row) for row in rows]
    return torch.tensor(dots, dtype=torch.float64) / torch.tensor([[a * b for b in lengths] for a in lengths])


EXERCISES["position_similarity"] = Exercise(
    reference=position_similarity, given=lambda n=6, d=4: (torch.randn(n, d) + 1,),
    truth=lambda table: F.cosine_similarity(table[:, None], table[None], dim=-1),
    mistakes={
        "that is the dot product: divide by the lengths of both rows, to compare directions": _dot_over(lambda norm: 1),
        "the dot product over √dim is attention's: divide by both lengths": lambda x: x @ x.T / x.shape[1] ** 0.5,
        "only the row's length was divided out: the other vector has one too": _dot_over(lambda norm: norm),
        "only the column's length was divided out: the other vector has one too": _dot_over(lambda norm: norm.T),
        "one length was divided out twice, the other not at all": _dot_over(lambda norm: norm**2),
        "the squares of the lengths were divided out: a root is missing": _dot_over(lambda norm: (norm * norm.T) ** 2),
        "a / b * c is (a / b) * c: put the product of the lengths in brackets": _dot_over(lambda norm: norm / norm.T),
        "the whole table's length was divided out. Each row has its own: dim=1": _dot_over(lambda x: x.norm() ** 2),
        "the columns were made length 1, not rows: dim=1": lambda x: F.normalize(x, dim=0) @ F.normalize(x, dim=0).T,
        "that is the correlation: keep the mean": lambda x: position_similarity(x - x.mean(dim=1, keepdim=True)),
        "that is a distance, 1 − cosine: equal positions must have similarity 1": lambda x: 1 - position_similarity(x),
        "that is the distance between rows: equal positions must have similarity 1": lambda x: torch.cdist(x, x),
        "that is the angle: its cosine is wanted": lambda table: position_similarity(table).clamp(-1, 1).acos(),
        "that is the cosine without its sign: opposite rows have −1": lambda table: position_similarity(table).abs(),
        "rows are compared with rows: (n, d) times (d, n)": lambda table: position_similarity(table.T),
        "each row was compared with itself only. Every row meets every other": lambda x: F.cosine_similarity(x, x),
    },
    right=[_cosines_of_floats, lambda table: F.normalize(table, dim=1) @ F.normalize(table, dim=1).T],
    explain=lambda got, want, table: ("the diagonal is 1, but other entries are not the cosine between rows i and j"
        if same(got.diagonal(), want.diagonal(), 1e-4) else "the diagonal is not 1: each position equals itself"),
    shape="rows are compared with rows: (n, d) times (d, n)",
    otherwise="Entry i, j is the cosine of the angle between rows i and j",
)  # fmt: skip


def shift_matrix(offset: int, dim: int) -> Float[Tensor, "d d"]:
    """The M with ``sincos_1d(…)[p + offset] = M @ sincos_1d(…)[p]`` for every p: it turns each pair of columns."""
    angle = offset * 10000.0 ** -(torch.arange(0, dim, 2) / dim)
    sin, cos = angle.sin(), angle.cos()
    turns = torch.stack([cos, sin, -sin, cos], dim=-1).reshape(-1, 2, 2)
    return torch.block_diag(*turns)


def _turns(exponent=lambda i: 2 * i, block=lambda s, c: [[c, s], [-s, c]]):
    """The matrix block by block, by default the right one."""

    def fn(offset, dim):
        angles = [offset / 10000 ** (exponent(i) / dim) for i in range(dim // 2)]
        return torch.block_diag(*(torch.tensor(block(math.sin(angle), math.cos(angle))) for angle in angles))

    return fn


def _by_least_squares(offset, dim):
    table = sincos_1d(200, dim).double()
    start = max(0, -offset)
    return torch.linalg.lstsq(table[start : start + 90], table[start + offset : start + offset + 90]).solution.T


def _on_the_table(fn, offset, dim):
    """The matrix times TᵀT / n of the table T: its effect on positions, since many matrices are nearly as good."""
    matrix = fn(offset, dim)
    table = sincos_1d(100, dim).double()
    return matrix.double() @ (table.T @ table / 100) if matrix.shape == (dim, dim) else matrix


def _where_it_serves(got, want, offset, dim):
    table = sincos_1d(100, dim).double()
    shifted = table @ (got @ torch.linalg.pinv(table.T @ table / 100, rtol=1e-12)).T
    right = [p for p in range(90) if p + offset >= 0 and same(shifted[p], table[p + offset], 1e-4)]
    if right:
        return f"M @ table[p] is table[p + {offset}] for p in {right[:5]} only: one matrix must serve every p"
    return f"M @ table[p] is not table[p + {offset}]. Try one pair of columns first" if offset > 0 else ""


EXERCISES["shift_matrix"] = Exercise(
    reference=shift_matrix, truth=_turns(), given=lambda pairs=4: (3, 2 * pairs),
    run=_on_the_table, explain=_where_it_serves, tolerance=1e-4,
    cases=[
        Case(lambda: (0, 8), "offset 0 must give the identity", lambda offset, dim: shift_matrix(offset or 1, dim)),
        Case(lambda: (-5, 6), "a negative offset must shift back: −5 with dim 6 does not",
             lambda offset, dim: shift_matrix(abs(offset), dim)),
    ],
    mistakes={
        "that shifts back, from p + 3 to p: a wrong sign, or transposed": _turns(block=lambda s, c: [[c, -s], [s, c]]),
        "a minus is missing: cos(x + a) = cos a cos x − sin a sin x": _turns(block=lambda s, c: [[c, s], [s, c]]),
        "every pair turns by the same angle: pair i turns by offset / 10000^(2i/dim)": _turns(lambda i: 0),
        "that shifts by 1 whatever the offset": lambda offset, dim: shift_matrix(1, dim),
        "the frequencies fall too slowly: the exponent of pair i is 2i/dim": _turns(lambda i: i),
        "the frequencies fall too fast: i counts pairs here, so the exponent is 2i/dim": _turns(lambda i: 4 * i),
        "the frequencies grow: the offset is divided by 10000^(2i/dim)": _turns(lambda i: -2 * i),
        "column i was paired with i + dim/2. In this table partners are neighbours, 2i and 2i + 1":
            lambda offset, dim: rearrange(shift_matrix(offset, dim), "(i a) (j b) -> (a i) (b j)", a=2, b=2),
        "sin and cos are swapped: cos belongs on the diagonal": _turns(block=lambda s, c: [[s, c], [-c, s]]),
        "sin and cos take radians, not degrees: no factor is needed": lambda k, dim: shift_matrix(math.radians(k), dim),
        "M @ table[p] is table[p + 3] for p in [0] only: one matrix must serve every p":
            lambda k, dim: torch.outer((table := sincos_1d(abs(k) + 1, dim))[k], table[0]) / table[0].square().sum(),
        "only the first pair has its block. There are dim/2 blocks": lambda *sizes: shift_matrix(*sizes)[:2, :2],
        "the blocks were not joined: torch.block_diag sets them on a diagonal":
            lambda offset, dim: torch.einsum("iaib->iab", shift_matrix(offset, dim).reshape(dim // 2, 2, dim // 2, 2)),
    },
    right=[_by_least_squares],
    shape="It turns dim numbers into dim numbers",
    otherwise="M @ table[p] must be table[p + offset] for every p. Try one pair of columns first",
)  # fmt: skip


def _of_both(table):
    """One table for the grid's rows and one for its columns, side by side."""
    return lambda grid, dim: torch.cat(
        [table(grid[0], dim).repeat_interleave(grid[1], dim=0), table(grid[1], dim).repeat(grid[0], 1)], dim=1
    )


def _as(pattern, **sizes):
    return lambda grid, dim: rearrange(sincos_2d(grid, dim), pattern, gh=grid[0], **sizes)


EXERCISES["sincos_2d"] = Exercise(
    reference=sincos_2d, truth=_of_both(lambda n, dim: _sincos_table(n, dim // 2)),
    given=lambda gh=3, gw=5, pairs=3: ((gh, gw), 4 * pairs), tolerance=1e-4,
    mistakes={
        "the halves are swapped: first the row, then the column": lambda grid, d: sincos_2d(grid, d).roll(d // 2, 1),
        "the grid is flattened column by column: patches come row by row": _as("(gh gw) d -> (gw gh) d"),
        "the halves are swapped, and the grid is flattened column by column": lambda grid, d: sincos_2d(grid[::-1], d),
        "both halves hold the row: the second is the column's": lambda g, d: sincos_2d(g, d)[:, : d // 2].repeat(1, 2),
        "both halves hold the column: the first is the row's": lambda g, d: sincos_2d(g, d)[:, d // 2 :].repeat(1, 2),
        "the two tables were added, so places (0, 1) and (1, 0) are the same: concatenate two halves":
            lambda grid, dim: (sincos_1d(grid[0], dim)[:, None] + sincos_1d(grid[1], dim)).flatten(0, 1),
        "that is a 1-D table: row and column get a half each": lambda grid, d: sincos_1d(math.prod(grid), d),
        "the frequencies are those of a table of dim columns: each half is a whole sincos_1d of dim/2":
            _of_both(lambda n, dim: sincos_1d(n, dim)[:, : dim // 2]),
        "in each half all sines come before all cosines (timm's order): here they alternate, as in sincos_1d":
            _as("(gh gw) (half pair two) -> (gh gw) (half two pair)", half=2, two=2),
        "row and column take turns: give each a half": _as("(gh gw) (two half) -> (gh gw) (half two)", two=2),
        "each half must be sincos_1d of dim/2: yours make 2·dim columns": lambda grid, d: sincos_2d(grid, 2 * d),
        "the grid still has two axes: flatten it, row by row": _as("(gh gw) d -> gh gw d"),
    },
    right=[_of_both(lambda n, dim: sincos_1d(n, dim // 2))],
    explain=lambda got, want, grid, dim: (
        "the second half, its column, differs from sincos_1d" if same(got[:, : dim // 2], want[:, : dim // 2], 1e-4)
        else "the first half, the grid's row, differs from sincos_1d of the coordinate"),
    shape="one row for each patch; the grid's row and column fill dim/2 columns each",
    otherwise="Each row is sincos_1d of the patch's row, then sincos_1d of its column",
)  # fmt: skip


def _or_without_class_token(fn, pos_embed, old, new):
    """The result. An answer that fails, but stretches a table without a class token, has forgotten that token."""
    try:
        return fn(pos_embed, old, new)
    except Exception as error:
        if pos_embed.shape[1] == 16 and not isinstance(error, CheckFailed | NotAttempted):
            with suppress(Exception):
                fn(pos_embed, (4, 4), new)
                return "all rows stretched"
        raise


def _keeping_cls(stretch):
    return lambda table, *grids: torch.cat([table[:, :1], stretch(table[:, 1:], *grids)], dim=1)


@_keeping_cls
def _by_pillow(rows, old, new):
    """Each channel as an image of its own, stretched by another library."""
    import numpy as np
    from PIL import Image

    images = [Image.fromarray(channel.reshape(old).float().numpy()) for channel in rows[0].T]
    images = [np.array(image.resize(new[::-1], Image.Resampling.BICUBIC)) for image in images]
    return torch.stack([torch.from_numpy(image).flatten() for image in images], dim=1)[None].to(rows.dtype)


_bicubic = partial(F.interpolate, mode="bicubic", antialias=True)


def _resample(*, shape=lambda old: old, merge="one (gh gw) d", size=lambda old, new: {"size": new}, **options):
    """A bicubic stretch with something changed."""

    def stretch(rows, old, new):
        gh, gw = shape(old)
        image = rearrange(rows, "one (gh gw) d -> one d gh gw", gh=gh, gw=gw)
        return rearrange(_bicubic(image, **size(old, new), **options), f"one d gh gw -> {merge}")

    return _keeping_cls(stretch)


def _flat(rows, size):
    return F.interpolate(rows.mT, size=size, mode="linear").mT


def _square(rows, old, new):
    side = int(rows.shape[1] ** 0.5)
    return _bicubic(rows.reshape(1, side, side, -1).permute(0, 3, 1, 2), new).flatten(2).mT


EXERCISES["resample_pos_embed"] = Exercise(
    reference=resample_pos_embed, truth=_by_pillow, run=_or_without_class_token, tolerance=1e-4,
    given=lambda gh=3, gw=5, new_gh=6, new_gw=4, d=2: (torch.randn(1, 1 + gh * gw, d), (gh, gw), (new_gh, new_gw)),
    smallest={"new_gw": 2},  # PyTorch's antialiased bicubic is wrong where the width shrinks to 1
    cases=[
        Case(lambda: (torch.randn(1, 16, 2), (3, 5), (3, 5)), "with an unchanged grid nothing may change"),
        Case(lambda: (torch.randn(1, 25, 2), (4, 6), (6, 4)),
             "from 4×6 to 6×4 the number of patches stays and the grid does not: compare grids, not numbers"),
        Case(lambda: (torch.randn(1, 197, 2), (14, 14), (61, 61)),
             "from 14×14 to 61×61, scale_factor=61 / 14 makes 60×60: ask for the grid by size=",
             _resample(size=lambda old, new: {"scale_factor": (new[0] / old[0], new[1] / old[1])})),
    ],
    mistakes={
        "16 rows don't make a 3×5 grid: the class token has no place in it. Set row 0 aside, and put it back in front":
            lambda *args: resample_pos_embed(*args, num_prefix_tokens=0),
        "put the class token back in front": lambda *args: resample_pos_embed(*args)[:, 1:],
        "the new grid has 6·4 patches": lambda table, old, new: table.clone(),
        "the class token went to the end: it stays token 0": lambda *args: resample_pos_embed(*args).roll(-1, 1),
        "the class token was stretched, too: set row 0 aside": lambda table, _, new: _flat(table, 1 + math.prod(new)),
        "row 0 changed. The class token has no place in the image: keep it as it is":
            lambda *args: torch.cat([(rows := resample_pos_embed(*args)[:, 1:]).mean(1, keepdim=True), rows], dim=1),
        "the flat table was stretched: make it an image": _keeping_cls(lambda x, _, new: _flat(x, math.prod(new))),
        "the old grid was read with height and width swapped": _resample(shape=lambda old: old[::-1]),
        "the new size is (height, width), not (width, height)": _resample(size=lambda old, new: {"size": new[::-1]}),
        "the new image was flattened column by column": _resample(merge="one (gw gh) d"),
        "the image is scrambled: reshape cannot move d to the front. Reshape to (1, gh, gw, d), then permute":
            _keeping_cls(lambda rows, old, new: _bicubic(rows.reshape(1, -1, *old), new).flatten(2).mT),
        "the new image is scrambled: reshape cannot move d to the back. Permute first":
            lambda *args: _keeping_cls(lambda rows: rows.mT.reshape(rows.shape))(resample_pos_embed(*args)),
        "that is bilinear without antialias: mode='bicubic', antialias=True":
            _resample(mode="bilinear", antialias=False),
        "that is bilinear: mode='bicubic'": _resample(mode="bilinear"),
        "antialias=True is missing: it averages where the grid shrinks, and changes torch's cubic":
            _resample(antialias=False),
        "align_corners=True pins the outermost centres: leave it off, as timm does": _resample(align_corners=True),
        "that is the nearest neighbour, positions in steps: mode='bicubic'": _resample(mode="nearest", antialias=False),
        "a grid need not be a square: take its height and width from old_grid": _keeping_cls(_square),
    },
    right=[_resample()],
    explain=lambda got, want, *_: (
        "row 0 is right, but the patches are not a bicubic stretch of each channel" if same(got[:, :1], want[:, :1])
        else "row 0 changed. The class token has no place in the image: keep it as it is"),
    shape="A class token, then the patches of the new grid",
    otherwise="Row 0 stays, the others become an image, (1, d, gh, gw), which is stretched and flattened again",
)  # fmt: skip
