"""Checks of chapter 3, attention."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_tutorial.attention import attention_weights
from vit_tutorial.exercises.engine import CheckFailed, call, checks, close, compare, expect, expect_shape, yes_or_no


def softmax_rows(scores: Tensor) -> Tensor:
    """Softmax over the last axis, written out: the largest score of each row is subtracted first."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def row_entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats, where 0 · log 0 counts as 0: ``(..., n, m)`` to ``(..., n)``."""
    return -torch.xlogy(weights, weights).sum(dim=-1)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(b, n, h·hd)`` to ``(b, h, n, hd)``."""
    b, n, dim = x.shape
    return x.reshape(b, n, num_heads, dim // num_heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Undo :func:`split_heads`: ``(b, h, n, hd)`` to ``(b, n, h·hd)``."""
    return x.transpose(1, 2).flatten(2)


def fuse_qkv(queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """One ``(3·h·hd, dim)`` weight from three lists of h weights ``(hd, dim)``: all queries, all keys, all values."""
    return torch.cat([*queries, *keys, *values])


def weights_from_kernel(attend: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor) -> Tensor:
    """The ``(..., n, m)`` weights inside ``attend``: weights times the identity are the weights."""
    m = k.shape[-2]
    return attend(q, k, torch.eye(m, dtype=q.dtype, device=q.device).expand(*k.shape[:-2], m, m))


def rows_are_independent(layer: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether each row of the batch comes out as it does when it is alone."""
    alone = torch.cat([layer(row[None]) for row in x])
    return torch.allclose(layer(x), alone, atol=1e-5)


@checks(softmax_rows)
def check_softmax_rows(fn):
    scores = torch.randn(4, 4)
    result = call(fn, scores)
    expect_shape(result, (4, 4), "Softmax keeps the shape.")
    e = scores.exp()
    mistakes = {
        "your columns sum to 1, not your rows. A row is one query: sum over the last axis, dim=-1.": e / e.sum(0),
        "all numbers together sum to 1. Each row must: sum over dim=-1, not over everything.": e / e.sum(),
        "each column is divided by the sum of a row. Without keepdim=True the sums have shape (4,), and broadcasting "
        "lines them up with the columns; on a square matrix that raises no error.": e / e.sum(-1),
        "the scores are divided by their sum, but never exponentiated. Weights must be positive: exp comes first.": (
            scores / scores.sum(-1, keepdim=True)
        ),
        "those are the exponentials. They are positive, but a row does not sum to 1 yet.": e,
        "those are logarithms of the weights. Softmax is exp(score) over the sum of exps, with no log.": (
            scores.log_softmax(-1)
        ),
        "this is a sigmoid: each score is squashed by itself. In a softmax the scores of a row compete.": (
            scores.sigmoid()
        ),
        "those are powers of 2. They served the pencil, where scores count in units of ln 2; here it is exp(score).": (
            (scores * math.log(2)).softmax(-1)
        ),
        "the scores are divided by √4 first. That division belongs to attention; a softmax takes scores as they are.": (
            (scores / 2).softmax(-1)
        ),
    }
    shifted = (scores - scores.amax(-1)).exp()
    mistakes["the largest score of a row is subtracted from a column. Keep the axis: amax(dim=-1, keepdim=True)."] = (
        shifted / shifted.sum(-1, keepdim=True)
    )
    otherwise = "each row must be exp(score) divided by the sum of exp(score) over that row."
    compare(result, scores.softmax(-1), mistakes, otherwise)

    batch = torch.randn(2, 3, 5, 7)
    result = call(fn, batch)
    expect_shape(result, (2, 3, 5, 7), "Softmax keeps the shape.")
    for axis in (0, 1, 2):
        expect(
            not close(result, batch.softmax(axis)),
            f"on scores of shape (2, 3, 5, 7) your weights sum to 1 along axis {axis}. Count the axis from the end, "
            "dim=-1: then heads and batches may stand in front.",
        )
    expect(close(result, batch.softmax(-1)), "right for one matrix, wrong for a batch (2, 3, 5, 7): use dim=-1.")

    high = torch.tensor([[1000.0, 999.0, 998.0]])
    result = call(fn, high)
    expect(
        not result.isnan().any(),
        "exp overflows: scores of 1000, 999, 998 give inf / inf = nan. Subtract the largest score of the row first; "
        "the quotient stays the same.",
    )
    expect(
        close(result, high.softmax(-1)),
        "1000, 999, 998 must have the weights of 2, 1, 0. Do not clip large scores: subtract the largest of the row.",
    )
    low = torch.tensor([[-1000.0, -1001.0, -1002.0]])
    expect(
        close(call(fn, low), low.softmax(-1)),
        "-1000, -1001, -1002 give 0 / 0 = nan, since every exponential is 0. Subtract the largest score of the row "
        "always, and with its sign: not its absolute value, and not only when it is large.",
    )
    apart = torch.tensor([[0.0, 1.0, 2.0], [1000.0, 1001.0, 1002.0]])
    expect(
        close(call(fn, apart), apart.softmax(-1)),
        "a row whose scores lie far below those of another row gives 0 / 0 = nan. Subtract the largest score of "
        "each row, not of the whole matrix.",
    )
    wide = torch.tensor([[0.0, 1000.0]])
    expect(
        close(call(fn, wide), wide.softmax(-1)),
        "a row with scores 0 and 1000 overflows still. Subtract the largest score of the row, not its mean or its "
        "smallest: then no exponential is above 1.",
    )


def _weights_mistakes(q: Tensor, k: Tensor) -> dict[str, Tensor]:
    """What the usual mistakes in attention_weights give, by their hints."""
    (*lead, n, hd), m = q.shape, k.shape[-2]
    scores = q @ k.mT
    scaled = scores / hd**0.5
    mistakes = {
        "those are the scores. Softmax over each row is missing.": scaled,
        "those are the scores q kᵀ. The division by √head_dim is missing, and the softmax.": scores,
        "the scores are not scaled. Divide q kᵀ by √head_dim before the softmax.": scores.softmax(-1),
        f"you divided by head_dim, {hd}. Divide by its square root: the standard deviation of the scores grows "
        "like √head_dim.": (scores / hd).softmax(-1),
        "you divided by twice head_dim: Python reads scores / head_dim**1/2 as (scores / head_dim) / 2. Write "
        "head_dim**0.5.": (scores / hd / 2).softmax(-1),
        "you multiplied by √head_dim. Divide by it.": (scores * hd**0.5).softmax(-1),
        f"you divided by the square root of the number of queries, {n}. The scale is √head_dim, the length of one "
        "query: q.shape[-1].": (scores / n**0.5).softmax(-1),
        f"you divided by the square root of the number of keys, {m}. The scale is √head_dim, the length of one "
        "query: q.shape[-1].": (scores / m**0.5).softmax(-1),
        "you divided after the softmax. Rows sum to 1/√head_dim then; scale the scores, before the softmax.": (
            scores.softmax(-1) / hd**0.5
        ),
        "you divided by √head_dim before the softmax and again after it. Rows must sum to 1.": (
            scaled.softmax(-1) / hd**0.5
        ),
        "softmax ran over the queries: your columns sum to 1. A row is one query, and its weights over all keys "
        "must sum to 1: dim=-1.": scaled.softmax(-2),
        "softmax ran over the queries (your columns sum to 1), and the scores are not scaled by √head_dim.": (
            scores.softmax(-2)
        ),
        "softmax ran over all numbers of the matrix at once. Each row must sum to 1: dim=-1.": (
            scaled.flatten(-2).softmax(-1).unflatten(-1, (n, m))
        ),
        "that is a sigmoid of the scaled scores: each key is judged by itself. In a softmax the keys of a row "
        "compete, and the row sums to 1.": scaled.sigmoid(),
        "those are exp(scores). They are not divided by the sum of their row yet.": scaled.exp(),
        "the scores are divided by the sum of their row, but never exponentiated. Weights must be positive: softmax.": (
            scaled / scaled.sum(-1, keepdim=True)
        ),
        "those are logarithms of the weights: log_softmax instead of softmax.": scaled.log_softmax(-1),
        "k is reshaped, not transposed. The shape is right, but the numbers are in other places: k.mT.": (
            (q @ k.reshape(*lead, hd, m) / hd**0.5).softmax(-1)
        ),
        "k is reshaped, not transposed (k.mT), and the scores are not scaled by √head_dim.": (
            (q @ k.reshape(*lead, hd, m)).softmax(-1)
        ),
    }
    if len(lead) == 2:
        b, h = lead
        mistakes |= {
            f"you divided by √dim = √{h * hd}, the width of all {h} heads together. A score sums over one head, "
            "so the scale is √head_dim: q.shape[-1].": (scores / (h * hd) ** 0.5).softmax(-1),
            f"you divided by the square root of the number of heads, {h}. The scale is √head_dim: q.shape[-1], "
            "not q.shape[1].": (scores / h**0.5).softmax(-1),
            f"softmax ran over axis 1, the {h} heads: these weights sum to 1 over heads. Heads do not compete; keys "
            "do: dim=-1.": scaled.softmax(1),
            f"softmax ran over axis 0, the batch: these weights sum to 1 over the {b} images. Keys compete, not "
            "images: dim=-1.": scaled.softmax(0),
        }
    return mistakes


@checks(attention_weights)
def check_attention_weights(fn):
    q, k = torch.randn(5, 4), torch.randn(7, 4)
    try:
        result = call(fn, q, k)
    except CheckFailed:
        _expect_transposed(fn)
        raise
    _check_weights(result, q, k)

    both = (
        "right for one head, but {}. Batch and heads may stand in front: swap only the last two axes, with k.mT or "
        "k.transpose(-2, -1); k.T and k.transpose(0, 1) reach for other axes."
    )
    batch_alone = (
        "right for one head, and with batch and heads, but {}. A batch alone may stand in front, too: k.mT turns the "
        "last two axes, whatever is before them."
    )
    for lead, hint in (((2, 3), both), ((3,), batch_alone)):
        q, k = torch.randn(*lead, 5, 4), torch.randn(*lead, 7, 4)
        try:
            result = call(fn, q, k)
        except CheckFailed as failure:
            raise CheckFailed(hint.format(failure)) from failure
        _check_weights(result, q, k)

    q, k = torch.randn(5, 9), torch.randn(7, 9)
    expect(
        close(call(fn, q, k), (q @ k.mT / 3).softmax(-1)),
        "right for head_dim 4, wrong for 9, whose root is 3. Is a 2 written in by hand? Or (head_dim**1/2), which "
        "Python reads as head_dim / 2?",
    )
    large = torch.full((1, 4), 40.0)
    expect(
        not call(fn, torch.cat([large, 0 * large]), torch.cat([large, large])).isnan().any(),
        "large scores give nan, because exp overflows. torch.softmax subtracts the largest score of the row first, and "
        "not of the whole matrix; so must you.",
    )
    with torch.enable_grad():
        result = call(fn, torch.randn(5, 4, requires_grad=True), torch.randn(7, 4))
        expect(result.requires_grad, "no gradient flows back to q: a .detach(), .data, .item() or new tensor cuts it.")


def _expect_transposed(fn: Callable) -> None:
    """Fail when ``fn`` multiplies q by k as it is, which raises no error with as many tokens as numbers in each."""
    q, k = torch.randn(4, 4), torch.randn(4, 4)
    result = call(fn, q, k)
    for forgotten in ((q @ k / 2).softmax(-1), (q @ k).softmax(-1), (q @ k / 2).softmax(-2), q @ k / 2, q @ k):
        expect(
            not close(result, forgotten),
            "k is not transposed, so shapes (5, 4) and (7, 4) cannot be multiplied. A score is the dot product of a "
            "query with a key: q @ k.mT.",
        )


def _check_weights(result: Any, q: Tensor, k: Tensor) -> None:
    (*lead, n, hd), m = q.shape, k.shape[-2]
    # The truth by another road: single dot products, in double precision.
    truth = torch.stack([(q.double() * k.double()[..., j : j + 1, :]).sum(-1) / 2 for j in range(m)], dim=-1)
    truth = truth.softmax(-1)
    if isinstance(result, Tensor) and result.shape == (*lead, m, n):
        expect(not close(result.mT, truth), "these are the right weights, but transposed: row i belongs to query i.")
        raise CheckFailed(
            f"expected shape {(*lead, n, m)}, one row for each query, got {(*lead, m, n)}. q and k have changed "
            "places: multiply q by the transpose of k."
        )
    mistakes = {(*lead, n, hd): "That is the shape of an output. Leave out the product with the values."}
    expect_shape(result, (*lead, n, m), "One row for each query, one column for each key.", mistakes)
    if not close(result.sum(-1), torch.ones(*lead, n)):
        otherwise = "each row must sum to 1, and yours does not. Softmax over the keys comes last: dim=-1."
    elif divisor := _divisor(result, q @ k.mT):
        otherwise = f"you divided the scores by {divisor:.4g}. Divide by √head_dim, here √{hd} = {hd**0.5:.4g}."
    else:
        otherwise = "rows sum to 1, but the weights are wrong. Row i is softmax(q[i] · k[j] / √head_dim) over all j."
    compare(result, truth, _weights_mistakes(q, k), otherwise)


def _divisor(weights: Tensor, scores: Tensor) -> float | None:
    """The number that ``scores`` were divided by before the softmax that gave ``weights``, if there is one."""
    logs = weights.double().log()
    logs, scores = (x - x.mean(-1, keepdim=True) for x in (logs, scores.double()))
    scale = (logs * scores).sum() / scores.square().sum()
    return float(1 / scale) if close(logs, scale * scores, 1e-4) else None


@checks(row_entropy)
def check_row_entropy(fn):
    uniform = torch.full((2, 3, 8), 1 / 8)
    result = call(fn, uniform)
    mistakes = {
        (): "One number came out for all rows together. Each row has its own entropy: sum over the last axis only.",
        (2, 8): "The sum ran over the queries, axis -2. A row is a distribution over the keys: sum over dim=-1.",
        (2, 3, 1): "The summed axis should go: leave out keepdim.",
    }
    expect_shape(result, (2, 3), "Weights (..., n, m) give one entropy for each row, (..., n).", mistakes)
    expect(
        bool((result >= 0).all()), "your entropies are negative, since the log of a weight is: put a minus in front."
    )
    truth = torch.full((2, 3), 8.0).log()
    mistakes = {
        "that is the entropy in bits. The natural logarithm, torch.log, gives nats: log 8 = 2.079 here.": (
            torch.full((2, 3), 3.0)
        ),
        "that is the mean of −w·log w over the row. Entropy is the sum.": truth / 8,
        "a small number is added inside the logarithm, and it shows. torch.xlogy(w, w) needs none.": (
            -(uniform * (uniform + 1e-5).log()).sum(-1)
        ),
    }
    compare(result, truth, mistakes, "a row of eight equal weights has entropy log 8 = 2.079. Sum −w·log w over it.")
    weights = torch.randn(2, 5, 7).softmax(-1)
    truth = torch.distributions.Categorical(probs=weights).entropy()
    expect(close(call(fn, weights), truth), "right for equal weights, wrong for others. Sum −w·log w over the row.")
    sure = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    result = call(fn, sure)
    expect(
        not result.isnan().any(),
        "a weight of exactly 0 gives 0 · log 0 = 0 · (−inf) = nan. It should count as 0; torch.xlogy(w, w) does that.",
    )
    expect(
        close(result, torch.tensor([0.0, 0.6931472]), 1e-4),
        "a row that is sure of one key has entropy 0, and one of two equal keys log 2. A weight of 0 must add nothing.",
    )


@checks(split_heads)
def check_split_heads(fn):
    b, n, h, hd = 2, 5, 3, 4
    x = torch.arange(b * n * h * hd, dtype=torch.float32).reshape(b, n, h * hd)
    result = call(fn, x, h)
    expect(
        not isinstance(result, list | tuple),
        "a list of heads came out. Stack them on a new axis, the one after the batch.",
    )
    mistakes = {
        (b, n, h, hd): "The heads are cut, but they stand behind the tokens. Attention works on the last two axes, so "
        "these must be tokens and head_dim: swap axes 1 and 2.",
        (b, h, hd, n): "Tokens and head_dim have changed places.",
        (h, b, n, hd): "The heads stand in front of the batch.",
        (b, hd, n, h): "num_heads is how many heads there are, not how wide one is: that is dim / num_heads.",
        (b * h, n, hd): "Batch and heads are melted into one axis. Keep them apart.",
    }
    expect_shape(result, (b, h, n, hd), "Batch, heads, tokens, head_dim.", mistakes)
    truth = torch.stack([x[..., i * hd : (i + 1) * hd] for i in range(h)], dim=1)
    mistakes = {
        "the shape is right, the content is scrambled: a view or reshape straight to (b, h, n, hd) keeps memory in its "
        "old order, so a head mixes tokens. Cut only the last axis, to (b, n, h, hd), then swap axes 1 and 2.": (
            x.reshape(b, h, n, hd)
        ),
        "each head takes every third number. Head 0 must take the first head_dim numbers, head 1 the next: cut the "
        "last axis as (h hd), not (hd h).": x.reshape(b, n, hd, h).permute(0, 3, 1, 2),
        "every head is a copy of the first. Head i takes the numbers from i · head_dim on.": (
            x[:, None, :, :hd].expand(b, h, n, hd)
        ),
        "the numbers are scrambled: the axes were swapped first and cut afterwards. Cut the last axis first.": (
            x.transpose(1, 2).reshape(b, h, n, hd)
        ),
    }
    compare(result, truth, mistakes, "out[b, i, t] must be x[b, t, i·head_dim : (i+1)·head_dim].")
    x = torch.randn(3, 2, 6)
    expect(
        close(call(fn, x, 2), torch.stack(x.split(3, dim=-1), dim=1)),
        "right for (2, 5, 12) with 3 heads, wrong for (3, 2, 6) with 2 heads: are sizes written in by hand?",
    )


@checks(merge_heads)
def check_merge_heads(fn):
    b, h, n, hd = 2, 3, 5, 4
    x = torch.arange(b * h * n * hd, dtype=torch.float32).reshape(b, h, n, hd)
    result = call(fn, x)
    mistakes = {
        (b, n, hd): "The heads were added up or averaged. Put them side by side.",
        (b, h * hd, n): "Tokens stand last. They come second: one row for each token.",
        (b, n, h, hd): "Heads and head_dim are still two axes. Make them one.",
        (b, h, n * hd): "Tokens are melted into the heads. Heads and head_dim become one axis, tokens stay.",
        (b, h * n, hd): "The heads are put one below the other, like more tokens. Put them side by side.",
    }
    expect_shape(result, (b, n, h * hd), "Batch, tokens, and all heads side by side.", mistakes)
    truth = torch.cat([x[:, i] for i in range(h)], dim=-1)
    mistakes = {
        "the shape is right, the content is scrambled: reshape straight from (b, h, n, hd) reads memory in its "
        "old order, so that a token's row holds other tokens. Swap axes 1 and 2 before.": x.reshape(b, n, h * hd),
        "the heads are interleaved: one number of each head in turn. Head 0 comes whole, then head 1: (h hd), not "
        "(hd h).": x.permute(0, 2, 3, 1).reshape(b, n, h * hd),
        "the tokens' rows are scrambled: swap axes 1 and 2, and no others, before the reshape.": (
            x.transpose(2, 3).reshape(b, n, h * hd)
        ),
        "the heads are side by side in reverse. Head 0 comes first.": torch.cat([x[:, i] for i in (2, 1, 0)], dim=-1),
    }
    compare(result, truth, mistakes, "out[b, t, i·head_dim : (i+1)·head_dim] must be x[b, i, t].")
    x = torch.randn(3, 2, 7, 3)
    expect(
        close(call(fn, x), torch.cat([x[:, 0], x[:, 1]], dim=-1)),
        "right for (2, 3, 5, 4), wrong for (3, 2, 7, 3): are sizes written in by hand?",
    )


@checks(fuse_qkv)
def check_fuse_qkv(fn):
    h, hd, dim = 4, 2, 8
    parts = torch.randn(3, h, hd, dim)  # query, key, value
    result = call(fn, *(list(part) for part in parts))
    mistakes = {
        (hd, 3 * h * dim): "The weights stand side by side. Each has one row per number it makes, so put them one "
        "below the other: dim=0.",
        (dim, 3 * h * hd): "That is transposed. nn.Linear keeps its weight as (numbers out, numbers in).",
        (3 * hd, h * dim): "The heads of one kind stand side by side. Put them, too, one below the other: dim=0.",
        (3 * h, hd, dim): "The weights are stacked on a new axis. Join them along the rows they have: torch.cat.",
        (3, h, hd, dim): "The weights are stacked on new axes. Make one axis of the first three.",
        (3, h * hd, dim): "Queries, keys and values still have an axis of their own. Make one of the first two.",
    }
    expect_shape(result, (3 * h * hd, dim), "Three times all heads, one below the other.", mistakes)
    rows = (3 * h * hd, dim)
    names = ("queries", "keys", "values")
    mistakes = {
        "the rows go head by head, with query, key and value of each head together. Put all queries first, then all "
        "keys, then all values; head by head only within each.": parts.transpose(0, 1).reshape(rows),
        "the rows of the heads are interleaved: the first of every head, then the second. A head's rows stay "
        "together.": parts.transpose(1, 2).reshape(rows),
        "the heads stand in reverse order. Head 0 comes first.": parts.flip(1).reshape(rows),
    }
    for order in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        said = ", then ".join(names[i] for i in order)
        mistakes[f"the order is {said}. It must be queries, then keys, then values."] = parts[list(order)].reshape(rows)
    compare(result, parts.reshape(rows), mistakes, "rows i·hd to (i+1)·hd must be the queries of head i, and so on.")
    biases = torch.randn(3, h, hd)
    hint = f"right for the weights. The biases of the heads, of shape ({hd},), have one axis less: join along axis 0."
    try:
        result = call(fn, *(list(part) for part in biases))
    except CheckFailed as failure:
        raise CheckFailed(f"{hint} {failure}") from failure
    expect(close(result, biases.flatten()), hint)


@checks(weights_from_kernel)
def check_weights_from_kernel(fn):
    q, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)
    kernel = F.scaled_dot_product_attention
    try:
        result = call(fn, kernel, q, k)
    except CheckFailed as failure:
        raise CheckFailed(
            f"{failure}. There are 7 keys here, so the kernel wants 7 values: an identity of 7 rows, with k's batch "
            "and heads in front if the kernel does not broadcast."
        ) from failure
    mistakes = {
        (2, 3, 5, 4): "That is an output for values of width 4. The identity must have as many columns as there are "
        "keys, 7.",
        (2, 3, 7, 5): "That is transposed: rows belong to queries.",
    }
    expect_shape(result, (2, 3, 5, 7), "One row for each query, one column for each key.", mistakes)
    truth = (q.double() @ k.double().mT / 2).softmax(-1)
    mistakes = {
        "v was all ones. Every row of weights sums to 1, so ones come out as ones and tell nothing. Each key needs a "
        "value that can be told from the others: the identity.": torch.ones(2, 3, 5, 7),
        "you scaled q before the kernel, which scales it again. Pass q as it is.": (q @ k.mT / 4).softmax(-1),
        "those are the scores, not the weights the kernel used.": q @ k.mT / 2,
    }
    compare(result, truth, mistakes, "rows must be the kernel's weights: attend(q, k, v) with the identity as v.")

    def peculiar(q, k, v):
        return (-torch.cdist(q, k)).softmax(-1) @ v  # weights by distance, not by dot product

    truth = peculiar(q, k, torch.eye(7))
    result = call(fn, peculiar, q, k)
    expect(
        not close(result, (q @ k.mT / 2).softmax(-1)),
        "you computed the weights by the formula, or with a kernel of your own. Ask the one you are given: it may "
        "weigh in another way, and this exercise finds out how.",
    )
    expect(
        close(result, truth), "right for PyTorch's kernel, wrong for another one. Call attend once, with v = identity."
    )
    q, k = q.double(), k.double()
    try:
        result = call(fn, kernel, q, k)
    except CheckFailed as failure:
        raise CheckFailed(f"the identity must have the dtype of q, float64 here: {failure}") from failure
    expect(close(result, kernel(q, k, torch.eye(7, dtype=q.dtype).expand(2, 3, 7, 7))), "wrong for float64 queries.")


@checks(rows_are_independent)
def check_rows_are_independent(fn):
    x = torch.randn(4, 3, 8)

    def says(layer: Callable[[Tensor], Tensor]) -> bool:
        seen = []
        with torch.enable_grad():  # an answer may look at gradients
            answer = call(fn, lambda x: seen.append(x.shape) or layer(x), x)
        expect(
            all(len(shape) == 3 for shape in seen),
            "`layer` got a row without its batch axis, and not every layer takes that. Send x[i : i + 1] or row[None].",
        )
        return yes_or_no(answer, "Does one answer cover all rows?")

    sick = nn.MultiheadAttention(8, 2).eval().requires_grad_(False)  # batch_first forgotten
    independent = says(lambda x: 2 * x)
    expect(
        independent or not says(lambda x: sick(x, x, x)[0]),
        "the answers are the wrong way round: True means that no row depends on another one.",
    )
    expect(
        independent,
        "False for a layer that doubles every number, so each row depends on itself alone. Do you look at the row "
        "that you changed? Look at the others.",
    )
    expect(
        says(lambda x: x.cumsum(dim=1)),
        "False for a layer that mixes the tokens of a row, as attention does. Tokens are axis 1; rows are axis 0.",
    )
    healthy = nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(False)
    expect(
        says(lambda x: healthy(x, x, x)[0]),
        "False for healthy attention. Its rows agree up to rounding only: a batch of one runs through other kernels "
        "than a batch of four. Compare with torch.allclose, not torch.equal or ==.",
    )
    spread = [
        says(lambda x: sick(x, x, x)[0]),
        says(lambda x: x - x.mean(dim=0, keepdim=True)),
    ]
    one_way = {
        "row i depends on all rows before it, so row 0 looks healthy and the last does not. Look at every row, not "
        "only at row 0.": says(lambda x: x.cumsum(dim=0)),
        "row i depends on all rows after it, so row 0 changes and the last does not. Look at every row, not only at "
        "the last.": says(lambda x: x.flip(0).cumsum(dim=0).flip(0)),
        "each row depends on one other row only, the one before it, and row 0 on the last. Change every other row, "
        "not only the next.": says(lambda x: x + x.roll(1, dims=0)),
    }
    expect(
        not (all(spread) and all(one_way.values())),
        "True for every layer, also for attention without batch_first. Change the other rows by a lot, run the layer "
        "again, and see whether this row's output moves.",
    )
    expect(
        not spread[0],
        "True for attention without batch_first: image 0 attends to the other images there. Shuffling the rows, or "
        "changing them a little, does not show it. Change them by a lot, or send each through alone.",
    )
    expect(not spread[1], "True for a layer that subtracts the mean of the batch: every row depends on every other.")
    for hint, answer in one_way.items():
        expect(not answer, f"True for a sick layer: {hint}")

    def middle(x: Tensor) -> Tensor:
        """Rows 1 and 2 mix; the first and the last stay alone."""
        y = x.clone()
        y[1:3] += x[1:3].flip(0)
        return y

    hidden = {
        "only two rows in the middle depend on each other. Look at every row, not at the first and the last.": middle,
        "rows 0 and 1 depend on each other, and so do rows 2 and 3. Halves of the batch sent through apart do not show "
        "it: send each row alone.": lambda x: x + torch.cat([pair.flip(0) for pair in x.split(2)]),
        "each row depends on the next one. Change all other rows, not only the one before.": (
            lambda x: x + x.roll(-1, dims=0)
        ),
        "each row depends on the one two places before it. Change all other rows, not only the neighbours.": (
            lambda x: x + x.roll(2, dims=0)
        ),
        "other rows only ever lower the output here. Compare the absolute difference.": (
            lambda x: x - x.abs().sum(dim=0, keepdim=True)
        ),
        "other rows only ever raise the output here. Compare the absolute difference.": (
            lambda x: x + x.abs().sum(dim=0, keepdim=True)
        ),
        "the other rows count for one hundredth only. A tolerance of 1e-5 leaves room for rounding, and finds it.": (
            lambda x: x + 0.01 * x.mean(dim=0, keepdim=True)
        ),
    }
    for hint, layer in hidden.items():
        expect(not says(layer), f"True for a sick layer: {hint}")
