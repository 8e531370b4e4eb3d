"""Exercises of chapter 3: every token looks at every other."""

import math
import re
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.attention import attention_weights, plain_attention
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, Guard, same

EXERCISES: dict[str, Exercise] = {}


def softmax_rows(scores: Tensor) -> Tensor:
    """Softmax over the last axis, written out: the largest score of each row is subtracted first."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


_close = partial(torch.allclose, atol=1e-5)
_row_sums = partial(torch.sum, dim=-1, keepdim=True)


def _over(total=_row_sums, less=lambda s: 0):
    """Exponentials over a total of them, of scores from which a number was subtracted."""
    return lambda s: (s - less(s)).exp() / total((s - less(s)).exp())


def _rows(*rows):
    return lambda: (torch.tensor(rows),)


class _Called(TorchFunctionMode):
    """Notes the names of all functions of PyTorch that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


_NO_SOFTMAX = (
    "the weights are right, but they come from PyTorch's softmax, and it's to be written: exp, then the row's sum"
)


def _written_out(fn, scores, asked=False):
    """The weights; where it is ``asked``, an answer that has them from PyTorch is refused."""
    with _Called() as called:
        weights = fn(scores)
    if (
        asked
        and isinstance(fn, Guard)
        and any(re.search("softm|attention|cross_entropy", name) for name in called.names)
    ):
        raise CheckFailed(_NO_SOFTMAX)
    return weights


EXERCISES["softmax_rows"] = Exercise(
    reference=softmax_rows, truth=lambda scores: scores.softmax(-1), tolerance=2e-5,
    given=lambda n=4: (torch.randn(n, n),),  # square, so that no broadcasting raises an error
    run=_written_out,
    cases=[
        Case(lambda: (torch.randn(2, 3, 5, 7),), "right for one matrix, wrong for shape (2, 3, 5, 7): use dim=-1"),
        Case(_rows([1000.0, 999.0, 998.0]),
             "exp overflows: 1000, 999, 998 give inf / inf = nan. Subtract the row's largest score first", _over()),
        Case(_rows([-1000.0, -1001.0, -1002.0]),
             "-1000, -1001, -1002 give 0 / 0 = nan. Subtract the largest score of the row always, and with its sign",
             _over(less=lambda s: s.abs().amax(-1, keepdim=True))),
        Case(_rows([0.0, 1.0, 2.0], [1000.0, 1001.0, 1002.0]),
             "a row far below another one gives 0 / 0 = nan. Subtract the largest score of each row, not of the matrix",
             _over(less=lambda s: s.max())),
        Case(_rows([0.0, 1000.0]),
             "0 and 1000 in a row still overflow. Subtract the row's largest score, not its mean or its smallest",
             _over(less=lambda s: s.mean(-1, keepdim=True))),
        Case(lambda: (torch.randn(2, 3), True), _NO_SOFTMAX, lambda s: F.softmax(s, -1)),
        Case(lambda: (torch.randn(1, 6),), "wrong for a single row: its axis must stay"),
        Case(lambda: (torch.randn(2, 4, dtype=torch.float64),), "right for float32, wrong for float64: use any dtype"),
    ],
    notes=[Case(_rows([3, 1, 2], [0, 0, 5]), "it fails for scores that are whole numbers",
                lambda s: torch.empty_like(s).copy_(softmax_rows(s)),
                torch.tensor([[3.0, 1, 2], [0, 0, 5]]).softmax(-1))],
    mistakes={
        "your columns sum to 1, not your rows. Sum over the last axis, dim=-1": _over(lambda e: e.sum(-2, True)),
        "all numbers together sum to 1. Each row must: sum over dim=-1, not over everything": _over(lambda e: e.sum()),
        "each column is divided by a row's sum: keepdim=True is missing, and on a square matrix no error tells you":
            _over(lambda e: e.sum(-1)),
        "the scores are divided by their sum, but never exponentiated: exp comes first": lambda s: s / _row_sums(s),
        "those are the exponentials. They are positive, but a row does not sum to 1 yet": torch.exp,
        "those are logarithms of the weights. Softmax has no log": lambda s: s.log_softmax(-1),
        "this is a sigmoid: each score is squashed by itself. In a softmax the scores of a row compete": torch.sigmoid,
        "those are powers of 2, as on paper. Here it is exp(score)": lambda s: (s * math.log(2)).softmax(-1),
        "the scores are divided by √4. Only attention does that": lambda s: (s / s.shape[-1] ** 0.5).softmax(-1),
        "without keepdim=True neither the largest score nor the sum lines up with its row, but with a column":
            _over(lambda e: e.sum(-1), lambda s: s.amax(-1)),
        "the largest score of a row is subtracted from a column. Keep the axis: amax(dim=-1, keepdim=True)":
            _over(less=lambda s: s.amax(-1)),
        "scores of shape (2, 3, 5, 7) give weights that sum to 1 along axis 1: use dim=-1": lambda s: s.softmax(1),
        "large scores were clipped, but 1000, 999, 998 must have the weights of 2, 1, 0. Subtract the row's largest":
            lambda s: s.clamp(max=80).softmax(-1),
    },
    right=[lambda s: (s - s.logsumexp(-1, keepdim=True)).exp()],
    otherwise="each row must be exp(score) divided by the sum of exp(score) over that row",
)  # fmt: skip


def _scores(q, k, scale=None):
    return q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)


def _scaled_by(scale):
    return lambda q, k: _scores(q, k, scale(q, k)).softmax(-1)


def _then(of_scores):
    """The right scores, and something else done to them than a softmax over the keys."""
    return lambda q, k: of_scores(_scores(q, k))


def _dots(q, k):
    """Single dot products, in double precision."""
    q, k = q.double(), k.double()
    scores = torch.stack([(q * k[..., j : j + 1, :]).sum(-1) for j in range(k.shape[-2])], dim=-1)
    return (scores / math.sqrt(q.shape[-1])).softmax(-1)


def _divisor(weights, _, q, k):
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


def _q_and_k(*front, n=5, m=7, hd=4):
    return torch.randn(*front, n, hd), torch.randn(*front, m, hd)


EXERCISES["attention_weights"] = Exercise(
    reference=attention_weights, truth=_dots, explain=_divisor,
    given=lambda n=5, m=7, hd=4: _q_and_k(n=n, m=m, hd=hd),
    cases=[
        Case(lambda: _q_and_k(2, 3),
             "right for one head, but not with batch and heads in front. k.T and transpose(0, 1) swap other axes: k.mT",
             lambda q, k: (q @ k.transpose(0, 1) / q.shape[-1] ** 0.5).softmax(-1)),
        Case(lambda: _q_and_k(3),
             "right for one head, and with batch and heads, but not with a batch alone: k.mT, whatever is in front",
             lambda q, k: _scores(q, k.permute(0, 1, 3, 2).mT if k.ndim == 4 else k.transpose(0, 1).mT).softmax(-1)),
        Case(lambda: _q_and_k(hd=9),
             "right for head_dim 4, wrong for 9. Is a 2 hard-coded? Or head_dim**1/2, which is head_dim / 2 in Python?",
             lambda q, k: (q @ k.mT / (q.shape[-1] ** 1 / 2)).softmax(-1)),
        Case(lambda: (torch.cat([torch.full((1, 4), 40.0), torch.zeros(1, 4)]), torch.full((2, 4), 40.0)),
             "large scores give nan: exp overflows. Subtract the row's largest score first, as torch.softmax does",
             _then(_over())),
        Case(lambda: _q_and_k(1, 1, n=1, m=3), "wrong for one image, one head and one query: all four axes must stay"),
    ],
    mistakes={
        "the scores are not scaled. Divide q kᵀ by √head_dim before the softmax": _scaled_by(lambda q, k: 1.0),
        "those are the scores. Softmax over each row is missing": _scores,
        "those are the scores q kᵀ. The division by √head_dim is missing, and the softmax": lambda q, k: q @ k.mT,
        "softmax ran over the queries: columns sum to 1. Each row must: dim=-1": _then(lambda s: s.softmax(-2)),
        "you divided by head_dim. Divide by its square root": _scaled_by(lambda q, k: 1 / q.shape[-1]),
        "k is not transposed, so (5, 4) and (7, 4) cannot be multiplied. A score is query times key: q @ k.mT":
            lambda q, k: (q @ k / q.shape[-1] ** 0.5).softmax(-1),
        "q and k are swapped. Each query has a row: q times kᵀ": lambda q, k: _scores(k, q).softmax(-1),
        "these are the right weights, but transposed: row i belongs to query i": _then(lambda s: s.softmax(-1).mT),
        "you divided by √dim, the width of all heads. A score sums over one head: divide by √head_dim, q.shape[-1]":
            _scaled_by(lambda q, k: ((q.shape[1] if q.ndim == 4 else 1) * q.shape[-1]) ** -0.5),
        "you divided by twice head_dim: Python reads / head_dim**1/2 as / head_dim / 2. Write head_dim**0.5":
            _scaled_by(lambda q, k: 0.5 / q.shape[-1]),
        "you multiplied by √head_dim. Divide by it": _scaled_by(lambda q, k: q.shape[-1] ** 0.5),
        "you divided by the root of the number of queries. Divide by √head_dim, the length of a query: q.shape[-1]":
            _scaled_by(lambda q, k: q.shape[-2] ** -0.5),
        "you divided by the root of the number of keys. Divide by √head_dim, the length of a query: q.shape[-1]":
            _scaled_by(lambda q, k: k.shape[-2] ** -0.5),
        "you divided by the root of the number of heads, q.shape[1]. Divide by √head_dim: q.shape[-1]":
            _scaled_by(lambda q, k: q.shape[1] ** -0.5),
        "you divided after the softmax, so rows sum to 1/√head_dim. Scale the scores, before the softmax":
            lambda q, k: (q @ k.mT).softmax(-1) / q.shape[-1] ** 0.5,
        "you divided by √head_dim before the softmax and again after it. Rows must sum to 1":
            lambda q, k: _scores(q, k).softmax(-1) / q.shape[-1] ** 0.5,
        "softmax ran over the queries, and the scores are not scaled by √head_dim": lambda q, k: (q @ k.mT).softmax(-2),
        "softmax ran over the whole matrix. Each row must sum to 1: dim=-1":
            _then(lambda s: s.flatten(-2).softmax(-1).reshape(s.shape)),
        "softmax ran over axis 1, so heads sum to 1. Keys compete, not heads: dim=-1": _then(lambda s: s.softmax(1)),
        "softmax ran over axis 0, so images sum to 1. Keys compete, not images: dim=-1":
            _then(lambda s: s.softmax(0 if s.ndim > 2 else -1)),
        "that is a sigmoid: it judges each key by itself. In a softmax the keys of a row compete": _then(torch.sigmoid),
        "those are exp(scores). They are not divided by the sum of their row yet": _then(torch.exp),
        "the scores are divided by their row's sum, but not exponentiated: softmax": _then(lambda s: s / _row_sums(s)),
        "those are logarithms of the weights: log_softmax instead of softmax": _then(lambda s: s.log_softmax(-1)),
        "k is reshaped, not transposed: right shape, but the numbers are in other places. k.mT":
            lambda q, k: _scores(q, k.reshape(k.mT.shape).mT).softmax(-1),
        "k is reshaped, not transposed (k.mT), and the scores are not scaled by √head_dim":
            lambda q, k: (q @ k.reshape(k.mT.shape)).softmax(-1),
        "That is the shape of an output. Leave out the values": lambda q, k: F.scaled_dot_product_attention(q, k, k),
    },
    right=[lambda q, k: F.scaled_dot_product_attention(q, k, _eye(k)),
           lambda q, k: softmax_rows(torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5),
           lambda q, k: ((q / q.shape[-1] ** 0.25) @ (k / q.shape[-1] ** 0.25).transpose(-1, -2)).softmax(-1).double()],
    shape="One row for each query, one column for each key",
    otherwise="row i is softmax(q[i] · k[j] / √head_dim) over all j",
)  # fmt: skip


def row_entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats, where 0 · log 0 counts as 0: ``(..., n, m)`` to ``(..., n)``."""
    return -torch.xlogy(weights, weights).sum(dim=-1)


def _entropy_of_floats(weights):
    """Row by row in Python's own numbers, through which no gradient flows."""
    rows = weights.reshape(-1, weights.shape[-1]).tolist()
    return torch.tensor([-sum(w * math.log(w) for w in row if w) for row in rows]).reshape(weights.shape[:-1])


EXERCISES["row_entropy"] = Exercise(
    reference=row_entropy, given=lambda b=2, n=3, m=8: (torch.randn(b, n, m).softmax(-1),),
    truth=lambda weights: torch.distributions.Categorical(probs=weights, validate_args=False).entropy(),
    # Rows sum to 1, so only gradients that keep the sum count: an answer may normalize the rows itself.
    run=lambda fn, weights: fn(weights / _row_sums(weights)),
    cases=[
        Case(lambda: (torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]),), truth=torch.tensor([0.0, math.log(2)]),
             hint="a weight of exactly 0 gives 0 · (−inf) = nan. It should count as 0, as in torch.xlogy(w, w)",
             caught=lambda w: -(w * w.log()).sum(-1)),
        Case(lambda: (torch.full((2, 3, 8), 1 / 8),), truth=torch.full((2, 3), math.log(8)),
             hint="a row of eight equal weights has entropy log 8 = 2.079"),
        Case(lambda: (torch.randn(5, 7).softmax(-1),), "wrong without a batch: axes in front are optional"),
        Case(lambda: (torch.randn(2, 3, 5, 7).softmax(-1),), "wrong with batch and heads in front"),
    ],
    mistakes={
        "your entropies are negative, as the log of a weight is: add a minus": lambda w: torch.xlogy(w, w).sum(-1),
        "that is the entropy in bits. torch.log gives nats: log 8 = 2.079 for 8 equal weights":
            lambda w: -(w * w.clamp_min(1e-30).log2()).sum(-1),
        "that is the mean of −w·log w over the row. Entropy is the sum": lambda w: -torch.xlogy(w, w).mean(-1),
        "One number came out for all rows. Sum over the last axis only": lambda w: -torch.xlogy(w, w).sum(),
        "The sum ran over the queries, axis -2. Sum over the keys: dim=-1": lambda w: -torch.xlogy(w, w).sum(-2),
        "The summed axis should go: leave out keepdim": lambda w: -_row_sums(torch.xlogy(w, w)),
        "the weight in front of the logarithm is missing: −w·log w": lambda w: -w.clamp_min(1e-30).log().sum(-1),
        "that is the log of the largest weight alone. Sum −w·log w over the whole row": lambda w: -w.amax(-1).log(),
        "don't add a small number in the log: torch.xlogy needs none": lambda w: -(w * (w + 1e-5).log()).sum(-1),
        "that is 1 minus the largest weight, another measure of spread. Sum −w·log w": lambda w: 1 - w.amax(-1),
        "a softmax was taken of weights, which are a softmax already": lambda w: row_entropy(w.softmax(-1)),
        "that is the perplexity, exp of the entropy. Leave out the exp": lambda w: row_entropy(w).exp(),
    },
    right=[_entropy_of_floats, lambda w: torch.special.entr(w).sum(-1),
           lambda w: -(w * w.clamp_min(1e-30).log()).sum(-1),
           lambda w: torch.distributions.Categorical(w).entropy()],
    shape="Weights (..., n, m) give one entropy for each row, (..., n)", otherwise="sum −w·log w over the row",
)  # fmt: skip


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(b, n, h·hd)`` to ``(b, h, n, hd)``."""
    b, n, dim = x.shape
    return x.reshape(b, n, num_heads, dim // num_heads).transpose(1, 2)


EXERCISES["split_heads"] = Exercise(
    reference=split_heads, given=lambda b=2, n=5, h=3, hd=4: (torch.randn(b, n, h * hd), h),
    truth=lambda x, h: torch.stack([x[..., i * x.shape[2] // h : (i + 1) * x.shape[2] // h] for i in range(h)], dim=1),
    mistakes={
        "the content is scrambled. Reshape to (b, n, h, hd), not straight to (b, h, n, hd), then swap axes 1 and 2":
            lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
        "The heads come after the tokens: swap axes 1 and 2": lambda x, h: x.unflatten(-1, (h, -1)),
        "each head takes every third number. Cut the last axis as (h hd), not (hd h): head 0 takes the first head_dim":
            lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
        "num_heads is the number of heads. Each is dim / num_heads wide": lambda x, h: split_heads(x, x.shape[-1] // h),
        "Tokens and head_dim are swapped": lambda x, h: split_heads(x, h).mT,
        "The heads come before the batch": lambda x, h: split_heads(x, h).transpose(0, 1),
        "Batch and heads are merged into one axis. Keep both": lambda x, h: split_heads(x, h).flatten(0, 1),
        "a list of heads came out. Stack them on a new axis, after the batch": lambda x, h: list(x.chunk(h, dim=-1)),
        "the numbers are scrambled: the axes were swapped before the cut. Cut the last axis first":
            lambda x, h: x.transpose(1, 2).reshape(len(x), h, x.shape[1], -1),
        "every head is a copy of the first. Head i takes the numbers from i · head_dim on":
            lambda x, h: torch.stack([x[..., : x.shape[-1] // h]] * h, dim=1),
        "the heads are in reverse. Head 0 takes the first numbers": lambda x, h: split_heads(x, h).flip(1),
    },
    right=[lambda x, h: rearrange(x, "b n (h hd) -> b h n hd", h=h), lambda x, h: torch.stack(x.chunk(h, -1), dim=1)],
    shape="Batch, heads, tokens, head_dim", otherwise="out[b, i, t] must be x[b, t, i·head_dim : (i+1)·head_dim]",
)  # fmt: skip


def merge_heads(x: Tensor) -> Tensor:
    """Undo :func:`split_heads`: ``(b, h, n, hd)`` to ``(b, n, h·hd)``."""
    return x.transpose(1, 2).flatten(2)


EXERCISES["merge_heads"] = Exercise(
    reference=merge_heads, truth=lambda x: torch.cat(list(x.unbind(1)), dim=-1),
    given=lambda b=2, h=3, n=5, hd=4: (torch.randn(b, h, n, hd),),
    mistakes={
        "the content is scrambled: a reshape straight from (b, h, n, hd) mixes tokens. Swap axes 1 and 2 before":
            lambda x: x.reshape(len(x), x.shape[2], -1),
        "view cannot cut a transposed tensor: use reshape or flatten, which copy, or contiguous() before":
            lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1),
        "Tokens come last. They belong second: one row for each token": lambda x: merge_heads(x).mT,
        "the heads are interleaved. Head 0 comes whole: (h hd)": lambda x: x.permute(0, 2, 3, 1).flatten(2),
        "Heads and head_dim are still two axes. Make them one": lambda x: x.transpose(1, 2),
        "The heads were added up or averaged. Put them side by side": lambda x: x.mean(1),
        "The heads are put one below the other, like more tokens. Put them side by side": lambda x: x.flatten(1, 2),
        "Tokens are merged into the heads. Heads and head_dim become one axis, tokens stay": lambda x: x.flatten(2),
        "the heads are side by side in reverse. Head 0 comes first": lambda x: merge_heads(x.flip(1)),
        "the tokens' rows are scrambled: swap axes 1 and 2, and no others, before the reshape":
            lambda x: x.transpose(2, 3).reshape(x.shape[0], x.shape[2], -1),
    },
    right=[lambda x: rearrange(x, "b h n hd -> b n (h hd)"), lambda x: torch.cat(list(x.unbind(1)), dim=2)],
    shape="Batch, tokens, and all heads side by side",
    otherwise="out[b, t, i·head_dim : (i+1)·head_dim] must be x[b, i, t]",
)  # fmt: skip


def fuse_qkv(queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """One ``(3·h·hd, dim)`` weight from three lists of h weights ``(hd, dim)``: all queries, all keys, all values."""
    return torch.cat([*queries, *keys, *values])


ORDERS = ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
KINDS = ("queries", "keys", "values")
EXERCISES["fuse_qkv"] = Exercise(
    reference=fuse_qkv, truth=lambda *kinds: torch.stack([row for parts in kinds for part in parts for row in part]),
    given=lambda h=4, hd=2, d=8: tuple([torch.randn(hd, d) for _ in range(h)] for _ in range(3)),
    cases=[Case(lambda: tuple([torch.randn(2) for _ in range(4)] for _ in range(3)),
                "right for the weights, wrong for biases of shape (2,), with one axis less: join along axis 0",
                lambda q, k, v: torch.stack([*q, *k, *v]).reshape(-1, q[0].shape[-1]))],
    mistakes={
        "the rows go head by head, with query, key and value of each. First all queries, then all keys, then values":
            lambda *kinds: torch.cat([part for head in zip(*kinds, strict=True) for part in head]),
        "The weights are side by side. A row makes one number, so put them one below the other: dim=0":
            lambda q, k, v: torch.cat([*q, *k, *v], dim=1),
        "The weights are stacked on a new axis. Join their rows: torch.cat": lambda q, k, v: torch.stack([*q, *k, *v]),
        "the rows of the heads are interleaved: the first of every head, then the second. Keep a head's rows together":
            lambda *kinds: torch.cat([torch.stack(parts, dim=1).flatten(0, 1) for parts in kinds]),
        **{f"the order is {', then '.join(KINDS[i] for i in order)}. It must be queries, then keys, then values":
           lambda *kinds, order=order: fuse_qkv(*(kinds[i] for i in order)) for order in ORDERS},
        "the heads are in reverse order. Head 0 comes first": lambda *kinds: fuse_qkv(*(x[::-1] for x in kinds)),
        "That is transposed. nn.Linear keeps its weight as (out, in)": lambda *kinds: fuse_qkv(*kinds).mT,
        "The weights are stacked on new axes. Make one axis of the first three":
            lambda *kinds: torch.stack([torch.stack(parts) for parts in kinds]),
        "The heads of one kind are side by side. Put them, too, one below the other: dim=0":
            lambda *kinds: torch.cat([torch.cat(parts, dim=-1) for parts in kinds]),
        "Queries, keys and values still have an axis of their own. Make one of the first two":
            lambda *kinds: torch.stack([torch.cat(parts) for parts in kinds]),
    },
    right=[lambda *kinds: torch.cat([torch.cat(parts) for parts in kinds])],
    shape="Three times all heads, one below the other",
    otherwise="rows i·hd to (i+1)·hd must be the queries of head i, and so on",
)  # fmt: skip


def weights_from_kernel(attend: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor) -> Tensor:
    """The ``(..., n, m)`` weights inside ``attend``: weights times the identity are the weights."""
    m = k.shape[-2]
    return attend(q, k, torch.eye(m, dtype=q.dtype, device=q.device).expand(*k.shape[:-2], m, m))


def _one_key_at_a_time(attend, q, k):
    return torch.cat([attend(q, k, column) for column in _eye(k).split(1, dim=-1)], dim=-1)


def _eye(k, m=None):
    n = k.shape[-2]
    return torch.eye(n, m or n, dtype=k.dtype).expand(*k.shape[:-2], -1, -1)


def _asked(values, change=lambda weights: weights):
    """What the kernel makes of values made from k, changed."""
    return lambda attend, q, k: change(attend(q, k, values(k)))


EXERCISES["weights_from_kernel"] = Exercise(
    reference=weights_from_kernel, truth=_one_key_at_a_time, without=("gradient",),
    given=lambda b=2, h=3, n=5, m=7, hd=4: (F.scaled_dot_product_attention, *_q_and_k(b, h, n=n, m=m, hd=hd)),
    cases=[
        Case(lambda: (lambda q, k, v: (-torch.cdist(q, k)).exp() @ v, *_q_and_k(2, 3)),
             "right for PyTorch's kernel, wrong for one whose rows don't sum to 1: return attend(q, k, v) as it is"),
        Case(lambda: (plain_attention, *_q_and_k()),
             "right with batch and heads in front, wrong for queries (n, hd) alone: the axes in front are k.shape[:-2]",
             lambda attend, q, k: attend(q, k, torch.eye(k.shape[-2]).repeat(*k.shape[:-3], k.shape[-3], 1, 1))),
        Case(lambda: (plain_attention, *_q_and_k(2)),
             "right with batch and heads in front, wrong with a single axis: the axes in front are k.shape[:-2]",
             lambda attend, q, k: attend(q, k, _eye(k) if k.ndim == 2 else _eye(k)[(None,) * (4 - k.ndim)])),
        Case(lambda: (plain_attention, *_q_and_k(2, 1, 3)),
             "right with batch and heads in front, wrong with three axes: the axes in front are k.shape[:-2]"),
    ],
    mistakes={
        "v was all ones. Each row of weights sums to 1, so ones come out. Each key needs its own value: the identity":
            _asked(lambda k: torch.ones_like(_eye(k))),
        "there are 7 keys, so the kernel wants 7 values: an identity of 7 rows, with k's batch and heads in front":
            lambda attend, q, k: attend(q, k, _eye(q)),
        "That is an output for values of width head_dim. The identity must have as many columns as there are keys":
            _asked(lambda k: _eye(k, k.shape[-1])),
        "you used the formula, or a kernel of your own. Call the one you are given: its weights may be others":
            lambda attend, q, k: attention_weights(q, k),
        "you scaled q before the kernel, which scales it again. Pass q as it is":
            lambda attend, q, k: attend(q / q.shape[-1] ** 0.5, k, _eye(k)),
        "those are the scores, not the weights the kernel used": lambda attend, q, k: _scores(q, k),
        "That is transposed: rows belong to queries": _asked(_eye, lambda w: w.mT),
        "the columns are in reverse: row j of v belongs to key j": _asked(lambda k: _eye(k).flip(-1)),
        "the rows were made to sum to 1. Return what the kernel gives": _asked(_eye, lambda w: w / _row_sums(w)),
        "a softmax was taken of weights, which are a softmax already": _asked(_eye, lambda w: w.softmax(-1)),
    },
    right=[_one_key_at_a_time, torch.no_grad()(weights_from_kernel)],
    shape="One row for each query, one column for each key",
    otherwise="rows must be the kernel's weights: attend(q, k, v) with the identity as v",
)  # fmt: skip


def rows_are_independent(layer: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether each row of the batch comes out as it does when it is alone."""
    alone = torch.cat([layer(row[None]) for row in x])
    return torch.allclose(layer(x), alone, atol=1e-5)


def _with_batches_only(fn, layer, x):
    """Not every layer takes a row without its batch axis."""

    def strict(rows):
        if rows.ndim != 3:
            raise CheckFailed("`layer` got a row without its batch axis. Send x[i : i + 1] or row[None]")
        return layer(rows)

    return fn(strict, x)


def _attention(batch_first):
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first).eval().requires_grad_(False)
    return lambda x: layer(x, x, x)[0]


def _moves(layer, x, change, watch):
    other = x.clone()
    other[change] += 10
    return not torch.allclose(layer(x)[watch], layer(other)[watch], atol=1e-4)


def _none_moves(pairs):
    """No row to watch moves, of pairs of rows to change and row to watch."""
    return lambda layer, x: not any(_moves(layer, x, change, watch) for change, watch in pairs)


def _apart(close, size=1, dim=0):
    """The output for the whole is close to those for its parts."""
    return lambda layer, x: bool(close(layer(x), torch.cat([layer(part) for part in x.split(size, dim)], dim)))


def _by_gradients(layer, x):
    influence = torch.autograd.functional.jacobian(layer, x).abs().sum((1, 2, 4, 5))
    return not (influence - influence.diagonal().diag()).any()


def _case(truth, layer, hint, caught=None):
    return Case(lambda: (layer, torch.randn(4, 3, 8)), hint, caught, truth)


EXERCISES["rows_are_independent"] = Exercise(
    reference=rows_are_independent, run=_with_batches_only, true_means="that no row depends on another one",
    cases=[
        _case(True, lambda x: 2 * x,
              "False for a layer that doubles every number. Don't look at the row that you changed, but at the others",
              _none_moves([(slice(1, None), slice(None))])),
        _case(True, lambda x: x.cumsum(dim=1),
              "False for a layer that mixes the tokens of a row, as attention does. Tokens are axis 1; rows are axis 0",
              _apart(_close, dim=1)),
        Case(lambda: (_attention(batch_first=True), torch.randn(4, 3, 8)), truth=True,
             hint="False for healthy attention. A batch of one is rounded differently: allclose, not equal or =="),
        Case(lambda: (_attention(batch_first=False), torch.randn(4, 3, 8)), truth=False,
             hint="True for attention without batch_first. Shuffles and small changes hide it: send each row alone",
             caught=lambda layer, x: _close(layer(x.flip(0)), layer(x).flip(0))),
        _case(False, lambda x: x - x.mean(dim=0, keepdim=True),
              "True for a layer that subtracts the mean of the batch: every row depends on every other"),
        _case(False, lambda x: x.cumsum(dim=0),
              "True for a sick layer: each row depends on those before it. Look at every row, not only at row 0",
              _none_moves([(slice(1, None), 0)])),
        _case(False, lambda x: x.flip(0).cumsum(dim=0).flip(0),
              "True for a sick layer: each row depends on those after it. Look at every row, not only at the last",
              _none_moves([(slice(0, 3), 3)])),
        _case(False, lambda x: x + x.roll(1, dims=0),
              "True for a sick layer: each row depends on the one before it. Change every other row, not only the next",
              _none_moves([(2, 0), (0, 2)])),
        _case(False, lambda x: torch.cat([x[:1], x[1:3] + x[1:3].flip(0), x[3:]]),
              "True for a sick layer: two rows in the middle depend on each other. Look at every row",
              _none_moves([([1, 2, 3], 0), ([0, 1, 2], 3)])),
        _case(False, lambda x: x + torch.cat([pair.flip(0) for pair in x.split(2)]),
              "True for a sick layer: rows 0 and 1 depend on each other, as do 2 and 3. Send each alone, not halves",
              _apart(_close, size=2)),
        _case(False, lambda x: x + x.roll(-1, dims=0),
              "True for a sick layer: each row depends on the next one. Change all other rows, not only the one before",
              _none_moves([(i - 1, i) for i in range(4)])),
        _case(False, lambda x: x + x.roll(2, dims=0),
              "True for a sick layer: each row depends on the one two before. Change all others, not only neighbours",
              _none_moves([([i - 1, (i + 1) % 4], i) for i in range(4)])),
        *(_case(False, lambda x, sign=sign: x + sign * x.abs().sum(dim=0, keepdim=True),
                f"True for a sick layer: other rows only ever {word} the output here. Compare the absolute difference",
                _apart(lambda a, b, sign=sign: (sign * (b - a) < 1e-5).all()))
          for sign, word in ((-1, "lower"), (1, "raise"))),
        _case(False, lambda x: x + 0.01 * x.mean(dim=0, keepdim=True),
              "True for a sick layer: the other rows count for only one hundredth. A tolerance of 1e-5 finds it",
              _apart(lambda a, b: torch.allclose(a, b, atol=0.1))),
        Case(lambda: (lambda x: torch.cat([x[:4], x[4:].cumsum(dim=0)]), torch.randn(6, 3, 8)), truth=False,
             hint="True for a sick layer on 6 rows: the last two depend on each other. Try len(x) rows, not 4",
             caught=_none_moves([(j, i) for i in range(4) for j in range(4) if i != j])),
    ],
    right=[_by_gradients,
           lambda layer, x: not any(_moves(layer, x, torch.arange(len(x)) != i, i) for i in range(len(x)))],
    shape="One answer for all rows",
)  # fmt: skip
