"""Exercises of chapter 3: every token looks at every other."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vit_tutorial.attention import attention_weights
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, same

EXERCISES: dict[str, Exercise] = {}


def softmax_rows(scores: Tensor) -> Tensor:
    """Softmax over the last axis, written out: the largest score of each row is subtracted first."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def _over(total, exp=torch.exp):
    """Exponentials over a total of them."""
    return lambda scores: exp(scores) / total(exp(scores))


def _row_sums(e):
    return e.sum(-1, keepdim=True)


def _less(largest):
    """Right, but that another number is subtracted from the scores."""
    return lambda scores: _over(_row_sums)(scores - largest(scores))


def _scores_of(*rows):
    return lambda: (torch.tensor(rows),)


EXERCISES["softmax_rows"] = Exercise(
    reference=softmax_rows,
    truth=lambda scores: scores.softmax(-1),
    given=lambda n=4: (torch.randn(n, n),),  # square, so that no broadcasting raises an error
    cases=[
        Case(
            given=lambda: (torch.randn(2, 3, 5, 7),),
            hint="right for one matrix, wrong for scores of shape (2, 3, 5, 7). Count the axis from the end, dim=-1: "
            "then heads and batches may stand in front",
        ),
        Case(
            given=_scores_of([1000.0, 999.0, 998.0]),
            hint="exp overflows: scores of 1000, 999, 998 give inf / inf = nan. Subtract the largest score of the row "
            "first; the quotient stays the same",
            caught=_over(_row_sums),
        ),
        Case(
            given=_scores_of([-1000.0, -1001.0, -1002.0]),
            hint="-1000, -1001, -1002 give 0 / 0 = nan, since every exponential is 0. Subtract the largest score of "
            "the row always, and with its sign: not its absolute value, and not only when it is large",
            caught=_less(lambda s: s.abs().amax(-1, keepdim=True)),
        ),
        Case(
            given=_scores_of([0.0, 1.0, 2.0], [1000.0, 1001.0, 1002.0]),
            hint="a row whose scores lie far below those of another row gives 0 / 0 = nan. Subtract the largest "
            "score of each row, not of the whole matrix",
            caught=_less(lambda s: s.max()),
        ),
        Case(
            given=_scores_of([0.0, 1000.0]),
            hint="a row with scores 0 and 1000 overflows still. Subtract the largest score of the row, not its mean "
            "or its smallest: then no exponential is above 1",
            caught=_less(lambda s: s.mean(-1, keepdim=True)),
        ),
        Case(given=lambda: (torch.randn(1, 6),), hint="wrong for a single row: its axis must stay"),
    ],
    mistakes={
        "your columns sum to 1, not your rows. A row is one query: sum over the last axis, dim=-1": _over(
            lambda e: e.sum(-2, keepdim=True)
        ),
        "all numbers together sum to 1. Each row must: sum over dim=-1, not over everything": _over(lambda e: e.sum()),
        "each column is divided by the sum of a row. Without keepdim=True the sums have shape (4,), and broadcasting "
        "lines them up with the columns; on a square matrix that raises no error": _over(lambda e: e.sum(-1)),
        "the scores are divided by their sum, but never exponentiated. Weights must be positive: exp comes first": (
            lambda s: s / _row_sums(s)
        ),
        "those are the exponentials. They are positive, but a row does not sum to 1 yet": torch.exp,
        "those are logarithms of the weights. Softmax is exp(score) over the sum of exps, with no log": lambda s: (
            s.log_softmax(-1)
        ),
        "this is a sigmoid: each score is squashed by itself. In a softmax the scores of a row compete": torch.sigmoid,
        "those are powers of 2. They served the pencil, where scores count in units of ln 2; here it is exp(score)": (
            lambda s: (s * math.log(2)).softmax(-1)
        ),
        "the scores are divided by √4 first. That division belongs to attention; a softmax takes scores as they are": (
            lambda s: (s / s.shape[-1] ** 0.5).softmax(-1)
        ),
        "without keepdim=True neither the largest score nor the sum lines up with its row: they are "
        "taken from the columns": (lambda s: _over(lambda e: e.sum(-1))(s - s.amax(-1))),
        "the largest score of a row is subtracted from a column. Keep the axis: amax(dim=-1, keepdim=True)": _less(
            lambda s: s.amax(-1)
        ),
        "on scores of shape (2, 3, 5, 7) your weights sum to 1 along axis 1. Count the axis from the "
        "end, dim=-1": lambda s: s.softmax(1),
        "Do not clip large scores: 1000, 999, 998 must have the weights of 2, 1, 0. Subtract the largest of the row": (
            lambda s: s.clamp(max=80).softmax(-1)
        ),
    },
    right=[lambda s: (s - s.logsumexp(-1, keepdim=True)).exp(), lambda s: s.double().softmax(-1)],
    otherwise="each row must be exp(score) divided by the sum of exp(score) over that row",
    tolerance=2e-5,
)


def _scores(q, k, scale=None):
    return q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)


def _scaled_by(scale):
    return lambda q, k: _scores(q, k, scale(q, k)).softmax(-1)


def _then(of_scores):
    """The right scores, and something else done to them than a softmax over the keys."""
    return lambda q, k: of_scores(_scores(q, k))


def _reshaped(k):
    return k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])


def _dots(q, k):
    """Single dot products, in double precision."""
    q, k = q.double(), k.double()
    scores = torch.stack([(q * k[..., j : j + 1, :]).sum(-1) for j in range(k.shape[-2])], dim=-1)
    return (scores / math.sqrt(q.shape[-1])).softmax(-1)


def _divisor(weights: Tensor, _: Tensor, q: Tensor, k: Tensor) -> str:
    """The number that the scores were divided by before the softmax, if there is one."""
    logs = weights.detach().double().log()
    if not logs.isfinite().all():
        return ""
    if not same(weights.sum(-1), torch.ones(weights.shape[:-1]), 1e-5):
        return "each row must sum to 1, and yours does not. Softmax over the keys comes last: dim=-1"
    logs, scores = (x - x.mean(-1, keepdim=True) for x in (logs, (q @ k.mT).double()))
    scale = (logs * scores).sum() / scores.square().sum()
    hd = q.shape[-1]
    fits = same(logs, scale * scores, 1e-4)
    return f"you divided the scores by {1 / scale:.4g}. Divide by √head_dim, here √{hd} = {hd**0.5:.4g}" if fits else ""


def _one_head(n=5, m=7, hd=4):
    return lambda: (torch.randn(n, hd), torch.randn(m, hd))


EXERCISES["attention_weights"] = Exercise(
    reference=attention_weights,
    truth=_dots,
    given=lambda n=5, m=7, hd=4: (torch.randn(n, hd), torch.randn(m, hd)),
    cases=[
        Case(
            given=lambda: (torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)),
            hint="right for one head, but not with batch and heads in front. Batch and heads may stand in front: "
            "swap only the last two axes, with k.mT or k.transpose(-2, -1); k.T and k.transpose(0, 1) reach for "
            "other axes",
            caught=lambda q, k: (q @ k.transpose(0, 1) / q.shape[-1] ** 0.5).softmax(-1),
        ),
        Case(
            given=lambda: (torch.randn(3, 5, 4), torch.randn(3, 7, 4)),
            hint="right for one head, and with batch and heads, but not with a batch alone. A batch alone may stand in "
            "front, too: k.mT turns the last two axes, whatever is before them",
            caught=lambda q, k: _scores(q, k.permute(0, 1, 3, 2).mT if k.ndim == 4 else k.transpose(0, 1).mT).softmax(
                -1
            ),
        ),
        Case(
            given=_one_head(hd=9),
            hint="right for head_dim 4, wrong for 9, whose root is 3. Is a 2 written in by hand? Or (head_dim**1/2), "
            "which Python reads as head_dim / 2?",
            caught=lambda q, k: (q @ k.mT / (q.shape[-1] ** 1 / 2)).softmax(-1),
        ),
        Case(
            given=lambda: (torch.cat([torch.full((1, 4), 40.0), torch.zeros(1, 4)]), torch.full((2, 4), 40.0)),
            hint="large scores give nan, because exp overflows. torch.softmax subtracts the largest score of the row "
            "first, and not of the whole matrix; so must you",
            caught=lambda q, k: _over(_row_sums)(_scores(q, k)),
        ),
        Case(
            given=lambda: (torch.randn(1, 1, 1, 4), torch.randn(1, 1, 3, 4)),
            hint="wrong for one image, one head and one query: all four axes must stay",
        ),
    ],
    mistakes={
        "the scores are not scaled. Divide q kᵀ by √head_dim before the softmax": _scaled_by(lambda q, k: 1.0),
        "those are the scores. Softmax over each row is missing": _scores,
        "those are the scores q kᵀ. The division by √head_dim is missing, and the softmax": lambda q, k: q @ k.mT,
        "softmax ran over the queries: your columns sum to 1. A row is one query, and its weights over all keys must "
        "sum to 1: dim=-1": _then(lambda s: s.softmax(-2)),
        "you divided by head_dim. Divide by its square root: the standard deviation of the scores "
        "grows like √head_dim": (_scaled_by(lambda q, k: 1 / q.shape[-1])),
        "k is not transposed, so shapes (5, 4) and (7, 4) cannot be multiplied. A score is the dot product of a "
        "query with a key: q @ k.mT": lambda q, k: (q @ k / q.shape[-1] ** 0.5).softmax(-1),
        "q and k have changed places: there is one row for each query. Multiply q by the transpose of k": lambda q, k: (
            _scores(k, q).softmax(-1)
        ),
        "these are the right weights, but transposed: row i belongs to query i": lambda q, k: (
            _scores(q, k).softmax(-1).mT
        ),
        "you divided by √dim, the width of all heads together. A score sums over one head, so the scale is √head_dim: "
        "q.shape[-1]": _scaled_by(lambda q, k: ((q.shape[1] if q.ndim == 4 else 1) * q.shape[-1]) ** -0.5),
        "you divided by twice head_dim: Python reads scores / head_dim**1/2 as (scores / head_dim) / 2. Write "
        "head_dim**0.5": lambda q, k: (q @ k.mT / q.shape[-1] ** 1 / 2).softmax(-1),
        "you multiplied by √head_dim. Divide by it": _scaled_by(lambda q, k: q.shape[-1] ** 0.5),
        "you divided by the square root of the number of queries. The scale is √head_dim, the length of one query: "
        "q.shape[-1]": _scaled_by(lambda q, k: q.shape[-2] ** -0.5),
        "you divided by the square root of the number of keys. The scale is √head_dim, the length of one query: "
        "q.shape[-1]": _scaled_by(lambda q, k: k.shape[-2] ** -0.5),
        "you divided by the square root of the number of heads, q.shape[1]. The scale is √head_dim: q.shape[-1]": (
            _scaled_by(lambda q, k: q.shape[1] ** -0.5)
        ),
        "you divided after the softmax. Rows sum to 1/√head_dim then; scale the scores, before the "
        "softmax": lambda q, k: (q @ k.mT).softmax(-1) / q.shape[-1] ** 0.5,
        "you divided by √head_dim before the softmax and again after it. Rows must sum to 1": lambda q, k: (
            _scores(q, k).softmax(-1) / q.shape[-1] ** 0.5
        ),
        "softmax ran over the queries (your columns sum to 1), and the scores are not scaled by "
        "√head_dim": lambda q, k: (q @ k.mT).softmax(-2),
        "softmax ran over all numbers of the matrix at once. Each row must sum to 1: dim=-1": _then(
            lambda s: s.flatten(-2).softmax(-1).reshape(s.shape)
        ),
        "softmax ran over axis 1, the heads: these weights sum to 1 over heads. Heads do not "
        "compete; keys do: dim=-1": (_then(lambda s: s.softmax(1))),
        "softmax ran over axis 0, the batch: these weights sum to 1 over the images. Keys compete, "
        "not images: dim=-1": (_then(lambda s: s.softmax(0 if s.ndim > 2 else -1))),
        "that is a sigmoid of the scaled scores: each key is judged by itself. In a softmax the keys of a row "
        "compete, and the row sums to 1": _then(torch.sigmoid),
        "those are exp(scores). They are not divided by the sum of their row yet": _then(torch.exp),
        "the scores are divided by the sum of their row, but never exponentiated. Weights must be positive: softmax": (
            _then(lambda s: s / _row_sums(s))
        ),
        "those are logarithms of the weights: log_softmax instead of softmax": _then(lambda s: s.log_softmax(-1)),
        "k is reshaped, not transposed. The shape is right, but the numbers are in other places: k.mT": lambda q, k: (
            _scores(q, _reshaped(k).mT).softmax(-1)
        ),
        "k is reshaped, not transposed (k.mT), and the scores are not scaled by √head_dim": lambda q, k: (
            q @ _reshaped(k)
        ).softmax(-1),
        "That is the shape of an output. Leave out the product with the values": lambda q, k: (
            F.scaled_dot_product_attention(q, k, k)
        ),
    },
    right=[
        lambda q, k: F.scaled_dot_product_attention(
            q, k, torch.eye(k.shape[-2], dtype=q.dtype).expand(*k.shape[:-2], -1, -1)
        ),
        lambda q, k: softmax_rows(torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5),
        lambda q, k: ((q / q.shape[-1] ** 0.25) @ (k / q.shape[-1] ** 0.25).transpose(-1, -2)).softmax(-1).double(),
    ],
    explain=_divisor,
    shape="One row for each query, one column for each key",
    otherwise="row i is softmax(q[i] · k[j] / √head_dim) over all j",
)


def row_entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats, where 0 · log 0 counts as 0: ``(..., n, m)`` to ``(..., n)``."""
    return -torch.xlogy(weights, weights).sum(dim=-1)


EXERCISES["row_entropy"] = Exercise(
    reference=row_entropy,
    truth=lambda weights: torch.distributions.Categorical(probs=weights, validate_args=False).entropy(),
    given=lambda b=2, n=3, m=8: (torch.randn(b, n, m).softmax(-1),),
    cases=[
        Case(
            given=lambda: (torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]),),
            truth=torch.tensor([0.0, math.log(2)]),
            hint="a weight of exactly 0 gives 0 · log 0 = 0 · (−inf) = nan. It should count as 0; torch.xlogy(w, w) "
            "does that: a row that is sure of one key has entropy 0, and one of two equal keys log 2",
            caught=lambda w: -(w * w.log()).sum(-1),
        ),
        Case(
            given=lambda: (torch.full((2, 3, 8), 1 / 8),),
            truth=torch.full((2, 3), math.log(8)),
            hint="a row of eight equal weights has entropy log 8 = 2.079",
        ),
        Case(given=lambda: (torch.randn(5, 7).softmax(-1),), hint="wrong without a batch: axes in front are optional"),
        Case(given=lambda: (torch.randn(2, 3, 5, 7).softmax(-1),), hint="wrong with batch and heads in front"),
    ],
    mistakes={
        "your entropies are negative, since the log of a weight is: put a minus in front": lambda w: torch.xlogy(
            w, w
        ).sum(-1),
        "that is the entropy in bits. The natural logarithm, torch.log, gives nats: log 8 = 2.079 "
        "for 8 equal weights": (lambda w: -(w * w.clamp_min(1e-30).log2()).sum(-1)),
        "that is the mean of −w·log w over the row. Entropy is the sum": lambda w: -torch.xlogy(w, w).mean(-1),
        "One number came out for all rows together. Each row has its own entropy: sum over the last "
        "axis only": lambda w: -torch.xlogy(w, w).sum(),
        "The sum ran over the queries, axis -2. A row is a distribution over the keys: sum over dim=-1": lambda w: (
            -torch.xlogy(w, w).sum(-2)
        ),
        "The summed axis should go: leave out keepdim": lambda w: -torch.xlogy(w, w).sum(-1, keepdim=True),
        "the weight in front of the logarithm is missing: −w·log w": lambda w: -w.clamp_min(1e-30).log().sum(-1),
        "that is the logarithm of the largest weight alone. Every weight of the row counts: sum −w·log w": lambda w: (
            -w.amax(-1).log()
        ),
        "a small number is added inside the logarithm, and it shows. torch.xlogy(w, w) needs none": lambda w: (
            -(w * (w + 1e-5).log()).sum(-1)
        ),
        "that is 1 less the largest weight, another measure of choosiness. Sum −w·log w": lambda w: 1 - w.amax(-1),
        "a softmax was taken of weights that are one already": lambda w: row_entropy(w.softmax(-1)),
        "that is the perplexity, exp of the entropy. Leave out the exp": lambda w: row_entropy(w).exp(),
    },
    right=[lambda w: torch.special.entr(w).sum(-1), lambda w: -(w * w.clamp_min(1e-30).log()).sum(-1)],
    shape="Weights (..., n, m) give one entropy for each row, (..., n)",
    otherwise="sum −w·log w over the row",
)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(b, n, h·hd)`` to ``(b, h, n, hd)``."""
    b, n, dim = x.shape
    return x.reshape(b, n, num_heads, dim // num_heads).transpose(1, 2)


EXERCISES["split_heads"] = Exercise(
    reference=split_heads,
    truth=lambda x, h: torch.stack([x[..., i * x.shape[2] // h : (i + 1) * x.shape[2] // h] for i in range(h)], dim=1),
    given=lambda b=2, n=5, h=3, hd=4: (torch.randn(b, n, h * hd), h),
    mistakes={
        "the shape is right, the content is scrambled: a view or reshape straight to (b, h, n, hd) keeps memory in "
        "its old order, so a head mixes tokens. Cut only the last axis, to (b, n, h, hd), then swap "
        "axes 1 and 2": lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
        "The heads are cut, but they stand behind the tokens. Attention works on the last two axes, so these must be "
        "tokens and head_dim: swap axes 1 and 2": lambda x, h: x.unflatten(-1, (h, -1)),
        "each head takes every third number. Head 0 must take the first head_dim numbers, head 1 the next: cut the "
        "last axis as (h hd), not (hd h)": lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
        "num_heads is how many heads there are, not how wide one is: that is dim / num_heads": lambda x, h: split_heads(
            x, x.shape[-1] // h
        ),
        "Tokens and head_dim have changed places": lambda x, h: split_heads(x, h).mT,
        "The heads stand in front of the batch": lambda x, h: split_heads(x, h).transpose(0, 1),
        "Batch and heads are melted into one axis. Keep them apart": lambda x, h: split_heads(x, h).flatten(0, 1),
        "a list of heads came out. Stack them on a new axis, the one after the batch": lambda x, h: list(
            x.chunk(h, dim=-1)
        ),
        "the numbers are scrambled: the axes were swapped first and cut afterwards. Cut the last "
        "axis first": lambda x, h: x.transpose(1, 2).reshape(len(x), h, x.shape[1], -1),
        "every head is a copy of the first. Head i takes the numbers from i · head_dim on": lambda x, h: torch.stack(
            [x[..., : x.shape[-1] // h]] * h, dim=1
        ),
        "the heads are in reverse. Head 0 takes the first numbers": lambda x, h: split_heads(x, h).flip(1),
    },
    right=[
        lambda x, h: rearrange(x, "b n (h hd) -> b h n hd", h=h),
        lambda x, h: torch.stack(x.chunk(h, dim=-1), dim=1),
    ],
    shape="Batch, heads, tokens, head_dim",
    otherwise="out[b, i, t] must be x[b, t, i·head_dim : (i+1)·head_dim]",
)


def merge_heads(x: Tensor) -> Tensor:
    """Undo :func:`split_heads`: ``(b, h, n, hd)`` to ``(b, n, h·hd)``."""
    return x.transpose(1, 2).flatten(2)


EXERCISES["merge_heads"] = Exercise(
    reference=merge_heads,
    truth=lambda x: torch.cat(list(x.unbind(1)), dim=-1),
    given=lambda b=2, h=3, n=5, hd=4: (torch.randn(b, h, n, hd),),
    mistakes={
        "the shape is right, the content is scrambled: reshape straight from (b, h, n, hd) reads memory in its old "
        "order, so that a token's row holds other tokens. Swap axes 1 and 2 before": lambda x: x.reshape(
            len(x), x.shape[2], -1
        ),
        "view size is not compatible with a transposed tensor: use reshape or flatten, which copy, "
        "or contiguous() before": (lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)),
        "Tokens stand last. They come second: one row for each token": lambda x: merge_heads(x).mT,
        "the heads are interleaved: one number of each head in turn. Head 0 comes whole, then head "
        "1: (h hd), not (hd h)": (lambda x: x.permute(0, 2, 3, 1).flatten(2)),
        "Heads and head_dim are still two axes. Make them one": lambda x: x.transpose(1, 2),
        "The heads were added up or averaged. Put them side by side": lambda x: x.mean(1),
        "The heads are put one below the other, like more tokens. Put them side by side": lambda x: x.flatten(1, 2),
        "Tokens are melted into the heads. Heads and head_dim become one axis, tokens stay": lambda x: x.flatten(2),
        "the heads are side by side in reverse. Head 0 comes first": lambda x: merge_heads(x.flip(1)),
        "the tokens' rows are scrambled: swap axes 1 and 2, and no others, before the reshape": lambda x: x.transpose(
            2, 3
        ).reshape(x.shape[0], x.shape[2], -1),
    },
    right=[lambda x: rearrange(x, "b h n hd -> b n (h hd)"), lambda x: torch.cat(list(x.unbind(1)), dim=2)],
    shape="Batch, tokens, and all heads side by side",
    otherwise="out[b, t, i·head_dim : (i+1)·head_dim] must be x[b, i, t]",
)


def fuse_qkv(queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """One ``(3·h·hd, dim)`` weight from three lists of h weights ``(hd, dim)``: all queries, all keys, all values."""
    return torch.cat([*queries, *keys, *values])


def _row_by_row(*kinds):
    """A row of the whole for each row of each part, in order."""
    return torch.stack([row for parts in kinds for part in parts for row in part])


def _projections(h=4, hd=2, d=8):
    return tuple([torch.randn(hd, d) for _ in range(h)] for _ in range(3))


def _in_order(order):
    return lambda *parts: fuse_qkv(*(parts[i] for i in order))


ORDERS = ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
KINDS = ("queries", "keys", "values")
EXERCISES["fuse_qkv"] = Exercise(
    reference=fuse_qkv,
    truth=_row_by_row,
    given=_projections,
    cases=[
        Case(
            given=lambda: tuple([torch.randn(2) for _ in range(4)] for _ in range(3)),
            hint="right for the weights. The biases of the heads, of shape (2,), have one axis less: join along axis 0",
            caught=lambda q, k, v: torch.stack([*q, *k, *v]).reshape(-1, q[0].shape[-1]),
        )
    ],
    mistakes={
        "the rows go head by head, with query, key and value of each head together. Put all queries first, then all "
        "keys, then all values; head by head only within each": lambda q, k, v: torch.cat(
            [part for head in zip(q, k, v, strict=True) for part in head]
        ),
        "The weights stand side by side. Each has one row per number it makes, so put them one below "
        "the other: dim=0": (lambda q, k, v: torch.cat([*q, *k, *v], dim=1)),
        "The weights are stacked on a new axis. Join them along the rows they have: torch.cat": lambda q, k, v: (
            torch.stack([*q, *k, *v])
        ),
        "the rows of the heads are interleaved: the first of every head, then the second. A head's "
        "rows stay together": (lambda *parts: torch.cat([torch.stack(part, dim=1).flatten(0, 1) for part in parts])),
        **{
            f"the order is {', then '.join(KINDS[i] for i in order)}. It must be queries, then keys, then values": (
                _in_order(order)
            )
            for order in ORDERS
        },
        "the heads stand in reverse order. Head 0 comes first": lambda q, k, v: torch.cat(
            [*q[::-1], *k[::-1], *v[::-1]]
        ),
        "That is transposed. nn.Linear keeps its weight as (numbers out, numbers in)": lambda q, k, v: (
            torch.cat([*q, *k, *v]).mT
        ),
        "The weights are stacked on new axes. Make one axis of the first three": lambda *parts: torch.stack(
            [torch.stack(part) for part in parts]
        ),
        "The heads of one kind stand side by side. Put them, too, one below the other: dim=0": lambda *parts: torch.cat(
            [torch.cat(part, dim=-1) for part in parts]
        ),
        "Queries, keys and values still have an axis of their own. Make one of the first two": lambda *parts: (
            torch.stack([torch.cat(part) for part in parts])
        ),
    },
    right=[lambda *parts: torch.cat([torch.cat(part) for part in parts])],
    shape="Three times all heads, one below the other",
    otherwise="rows i·hd to (i+1)·hd must be the queries of head i, and so on",
)


def weights_from_kernel(attend: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor) -> Tensor:
    """The ``(..., n, m)`` weights inside ``attend``: weights times the identity are the weights."""
    m = k.shape[-2]
    return attend(q, k, torch.eye(m, dtype=q.dtype, device=q.device).expand(*k.shape[:-2], m, m))


def _by_distance(q, k, v):
    """A kernel that weighs by distance, not by dot product, and whose rows do not sum to 1."""
    return (-torch.cdist(q, k)).exp() @ v


def _one_key_at_a_time(attend, q, k):
    columns = []
    for j in range(k.shape[-2]):
        v = torch.zeros(*k.shape[:-1], 1, dtype=q.dtype)
        v[..., j, :] = 1
        columns.append(attend(q, k, v))
    return torch.cat(columns, dim=-1)


def _eye(k, m=None):
    n = k.shape[-2]
    return torch.eye(n, m or n, dtype=k.dtype).expand(*k.shape[:-2], -1, -1)


def _q_and_k(b=2, h=3, n=5, m=7, hd=4):
    return torch.randn(b, h, n, hd), torch.randn(b, h, m, hd)


EXERCISES["weights_from_kernel"] = Exercise(
    reference=weights_from_kernel,
    truth=_one_key_at_a_time,
    given=lambda b=2, h=3, n=5, m=7, hd=4: (F.scaled_dot_product_attention, *_q_and_k(b, h, n, m, hd)),
    cases=[
        Case(
            given=lambda: (_by_distance, *_q_and_k()),
            hint="right for PyTorch's kernel, wrong for another one. Call attend once, with v = identity, and return "
            "what it gives: the kernel's weights need not sum to 1",
        ),
        Case(
            given=lambda: (F.scaled_dot_product_attention, *(x.double() for x in _q_and_k())),
            hint="the identity must have the dtype of q, float64 here",
            caught=lambda attend, q, k: attend(q, k, _eye(k).float()),
        ),
    ],
    mistakes={
        "v was all ones. Every row of weights sums to 1, so ones come out as ones and tell nothing. Each key needs a "
        "value that can be told from the others: the identity": lambda attend, q, k: attend(
            q, k, torch.ones_like(_eye(k))
        ),
        "there are 7 keys here, so the kernel wants 7 values: an identity of 7 rows, with k's batch and heads in "
        "front if the kernel does not broadcast": lambda attend, q, k: attend(
            q, k, torch.eye(q.shape[-2], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
        ),
        "That is an output for values of width head_dim. The identity must have as many columns as there are keys": (
            lambda attend, q, k: attend(q, k, _eye(k, k.shape[-1]))
        ),
        "you computed the weights by the formula, or with a kernel of your own. Ask the one you are given: it may "
        "weigh in another way, and this exercise finds out how": lambda attend, q, k: attention_weights(q, k),
        "you scaled q before the kernel, which scales it again. Pass q as it is": lambda attend, q, k: attend(
            q / q.shape[-1] ** 0.5, k, _eye(k)
        ),
        "those are the scores, not the weights the kernel used": lambda attend, q, k: _scores(q, k),
        "That is transposed: rows belong to queries": lambda attend, q, k: attend(q, k, _eye(k)).mT,
        "the columns are in reverse: row j of v belongs to key j": lambda attend, q, k: attend(q, k, _eye(k).flip(-1)),
        "the weights were divided by the sum of their row. Return what the kernel gives": lambda attend, q, k: (
            attend(q, k, _eye(k)) / attend(q, k, _eye(k)).sum(-1, keepdim=True)
        ),
        "a softmax was taken of weights that are one already": lambda attend, q, k: attend(q, k, _eye(k)).softmax(-1),
    },
    right=[_one_key_at_a_time],
    shape="One row for each query, one column for each key",
    otherwise="rows must be the kernel's weights: attend(q, k, v) with the identity as v",
)


def rows_are_independent(layer: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether each row of the batch comes out as it does when it is alone."""
    alone = torch.cat([layer(row[None]) for row in x])
    return torch.allclose(layer(x), alone, atol=1e-5)


def _with_batches_only(fn, layer, x):
    """Not every layer takes a row without its batch axis."""

    def strict(rows):
        if rows.ndim != 3:
            raise CheckFailed(
                "`layer` got a row without its batch axis, and not every layer takes that. Send x[i : i + 1] or "
                "row[None]"
            )
        return layer(rows)

    return fn(strict, x)


def _attention(batch_first):
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first).eval().requires_grad_(False)
    return lambda x: layer(x, x, x)[0]


def _middle(x):
    """Rows 1 and 2 mix; the first and the last stay alone."""
    y = x.clone()
    y[1:3] += x[1:3].flip(0)
    return y


def _pairs(x):
    return x + torch.cat([pair.flip(0) for pair in x.split(2)])


def _moves(layer, x, change, watch):
    other = x.clone()
    other[change] += 10
    return not torch.allclose(layer(x)[watch], layer(other)[watch], atol=1e-4)


def _none_moves(pairs):
    """No row to watch moves, of pairs of rows to change and row to watch."""
    return lambda layer, x: not any(_moves(layer, x, change, watch) for change, watch in pairs)


def _alone(layer, x):
    return torch.cat([layer(x[i : i + 1]) for i in range(len(x))])


def _by_gradients(layer, x):
    x = x.clone().requires_grad_()
    for i, row in enumerate(layer(x)):
        (gradient,) = torch.autograd.grad(row.sum(), x, retain_graph=True)
        if any(gradient[j].any() for j in range(len(x)) if j != i):
            return False
    return True


def _tokens_alone(layer, x):
    alone = torch.cat([layer(x[:, i : i + 1]) for i in range(x.shape[1])], dim=1)
    return torch.allclose(layer(x), alone, atol=1e-5)


def _case(truth, layer, said, caught=None):
    return Case(given=lambda: (layer, torch.randn(4, 3, 8)), truth=truth, hint=said, caught=caught)


def _sick_attention_case():
    return Case(
        given=lambda: (_attention(batch_first=False), torch.randn(4, 3, 8)),
        truth=False,
        hint="True for attention without batch_first: image 0 attends to the other images there. Shuffling the rows, "
        "or changing them a little, does not show it. Change them by a lot, or send each through alone",
        caught=lambda layer, x: torch.allclose(layer(x.flip(0)), layer(x).flip(0), atol=1e-5),
    )


EXERCISES["rows_are_independent"] = Exercise(
    reference=rows_are_independent,
    run=_with_batches_only,
    true_means="that no row depends on another one",
    cases=[
        _case(
            True,
            lambda x: 2 * x,
            "False for a layer that doubles every number, so each row depends on itself alone. Do you look at the "
            "row that you changed? Look at the others",
            lambda layer, x: not _moves(layer, x, slice(1, None), slice(None)),
        ),
        _case(
            True,
            lambda x: x.cumsum(dim=1),
            "False for a layer that mixes the tokens of a row, as attention does. Tokens are axis 1; rows are axis 0",
            _tokens_alone,
        ),
        Case(
            given=lambda: (_attention(batch_first=True), torch.randn(4, 3, 8)),
            truth=True,
            hint="False for healthy attention. Its rows agree up to rounding only: a batch of one runs through other "
            "kernels than a batch of four. Compare with torch.allclose, not torch.equal or ==",
        ),
        _sick_attention_case(),
        _case(
            False,
            lambda x: x - x.mean(dim=0, keepdim=True),
            "True for a layer that subtracts the mean of the batch: every row depends on every other",
        ),
        _case(
            False,
            lambda x: x.cumsum(dim=0),
            "True for a sick layer: row i depends on all rows before it, so row 0 looks healthy and the last does "
            "not. Look at every row, not only at row 0",
            _none_moves([(slice(1, None), 0)]),
        ),
        _case(
            False,
            lambda x: x.flip(0).cumsum(dim=0).flip(0),
            "True for a sick layer: row i depends on all rows after it, so row 0 changes and the last does not. Look "
            "at every row, not only at the last",
            _none_moves([(slice(0, 3), 3)]),
        ),
        _case(
            False,
            lambda x: x + x.roll(1, dims=0),
            "True for a sick layer: each row depends on one other row only, the one before it, and row 0 on the "
            "last. Change every other row, not only the next",
            _none_moves([(2, 0), (0, 2)]),
        ),
        _case(
            False,
            _middle,
            "True for a sick layer: only two rows in the middle depend on each other. Look at every row, not at the "
            "first and the last",
            _none_moves([([1, 2, 3], 0), ([0, 1, 2], 3)]),
        ),
        _case(
            False,
            _pairs,
            "True for a sick layer: rows 0 and 1 depend on each other, and so do rows 2 and 3. Halves of the batch "
            "sent through apart do not show it: send each row alone",
            lambda layer, x: torch.allclose(layer(x), torch.cat([layer(half) for half in x.split(2)]), atol=1e-5),
        ),
        _case(
            False,
            lambda x: x + x.roll(-1, dims=0),
            "True for a sick layer: each row depends on the next one. Change all other rows, not only the one before",
            _none_moves([(i - 1, i) for i in range(4)]),
        ),
        _case(
            False,
            lambda x: x + x.roll(2, dims=0),
            "True for a sick layer: each row depends on the one two places before it. Change all other rows, not "
            "only the neighbours",
            _none_moves([([i - 1, (i + 1) % 4], i) for i in range(4)]),
        ),
        _case(
            False,
            lambda x: x - x.abs().sum(dim=0, keepdim=True),
            "True for a sick layer: other rows only ever lower the output here. Compare the absolute difference",
            lambda layer, x: bool(((layer(x) - _alone(layer, x)) < 1e-5).all()),
        ),
        _case(
            False,
            lambda x: x + x.abs().sum(dim=0, keepdim=True),
            "True for a sick layer: other rows only ever raise the output here. Compare the absolute difference",
            lambda layer, x: bool(((_alone(layer, x) - layer(x)) < 1e-5).all()),
        ),
        _case(
            False,
            lambda x: x + 0.01 * x.mean(dim=0, keepdim=True),
            "True for a sick layer: the other rows count for one hundredth only. A tolerance of 1e-5 leaves room for "
            "rounding, and finds it",
            lambda layer, x: torch.allclose(layer(x), _alone(layer, x), atol=0.1),
        ),
    ],
    right=[_by_gradients, _none_moves([(j, i) for i in range(4) for j in range(4) if i != j])],
    shape="One answer for all rows",
)
