"""Chapter 3's exercises: right answers pass, and each wrong answer is told what is wrong with it."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hints import assert_hints

from vit_tutorial.attention import attention_weights
from vit_tutorial.exercises import CheckFailed, exercise
from vit_tutorial.exercises.attention import (
    fuse_qkv,
    merge_heads,
    row_entropy,
    rows_are_independent,
    softmax_rows,
    split_heads,
    weights_from_kernel,
)


def _exp_over(scores, total):
    return scores.exp() / total(scores.exp())


def _shift(scores, largest):
    e = (scores - largest).exp()
    return e / e.sum(-1, keepdim=True)


def _exp_in_place(scores):
    scores -= scores.amax(-1, keepdim=True)
    return scores.softmax(-1)


def test_softmax_rows():
    assert_hints(
        "softmax_rows",
        softmax_rows,
        {
            "your columns sum to 1": lambda s: _exp_over(s, lambda e: e.sum(-2, keepdim=True)),
            "all numbers together": lambda s: _exp_over(s, lambda e: e.sum()),
            "Without keepdim=True": lambda s: _exp_over(s, lambda e: e.sum(-1)),
            "never exponentiated": lambda s: s / s.sum(-1, keepdim=True),
            "does not sum to 1 yet": lambda s: s.exp(),
            "logarithms": lambda s: s.log_softmax(-1),
            "sigmoid": torch.sigmoid,
            "subtracted from a column": lambda s: _shift(s, s.amax(-1)),
            "along axis 1": lambda s: s.softmax(1),
            "powers of 2": lambda s: (s * math.log(2)).softmax(-1),
            "divided by √4": lambda s: (s / s.shape[-1] ** 0.5).softmax(-1),
            "exp overflows": lambda s: _exp_over(s, lambda e: e.sum(-1, keepdim=True)),
            "Do not clip": lambda s: s.clamp(max=80).softmax(-1),
            "not its mean": lambda s: _shift(s, s.mean(-1, keepdim=True)),
            "with its sign": lambda s: _shift(s, s.abs().amax(-1, keepdim=True)),
            "not of the whole matrix": lambda s: _shift(s, s.max()),
            "in place": _exp_in_place,
            "must be exp(score)": lambda s: (2 * s).softmax(-1),
            "returned None": lambda s: None,
        },
    )


def _scores(q, k, scale=None):
    return q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)


def _scaled_by(scale):
    return lambda q, k: _scores(q, k, scale(q, k)).softmax(-1)


def _in_place(q, k):
    q /= q.shape[-1] ** 0.5
    return (q @ k.mT).softmax(-1)


def _without_max(q, k):
    e = _scores(q, k).exp()
    return e / e.sum(-1, keepdim=True)


ATTENTION_WEIGHTS = {
    "k is not transposed": lambda q, k: (q @ k / q.shape[-1] ** 0.5).softmax(-1),
    "q and k have changed places": lambda q, k: _scores(k, q).softmax(-1),
    "but transposed": lambda q, k: _scores(q, k).softmax(-1).mT,
    "those are the scores. Softmax": _scores,
    "The division by √head_dim is missing, and the softmax": lambda q, k: q @ k.mT,
    "the scores are not scaled": _scaled_by(lambda q, k: 1.0),
    "you divided by head_dim, 4": _scaled_by(lambda q, k: 1 / q.shape[-1]),
    "you divided by twice head_dim": lambda q, k: (q @ k.mT / q.shape[-1] ** 1 / 2).softmax(-1),
    "Is a 2 written in by hand": lambda q, k: (q @ k.mT / (q.shape[-1] ** 1 / 2)).softmax(-1),
    "you multiplied by √head_dim": _scaled_by(lambda q, k: q.shape[-1] ** 0.5),
    "number of queries, 5": _scaled_by(lambda q, k: q.shape[-2] ** -0.5),
    "number of keys, 7": _scaled_by(lambda q, k: k.shape[-2] ** -0.5),
    "you divided by √dim = √12": _scaled_by(lambda q, k: ((q.shape[1] if q.ndim == 4 else 1) * q.shape[-1]) ** -0.5),
    "square root of the number of heads, 3": _scaled_by(lambda q, k: q.shape[1] ** -0.5),
    "you divided after the softmax": lambda q, k: (q @ k.mT).softmax(-1) / q.shape[-1] ** 0.5,
    "and again after it": lambda q, k: _scores(q, k).softmax(-1) / q.shape[-1] ** 0.5,
    "softmax ran over the queries: your columns": lambda q, k: _scores(q, k).softmax(-2),
    "(your columns sum to 1), and the scores are not scaled": lambda q, k: (q @ k.mT).softmax(-2),
    "all numbers of the matrix": lambda q, k: _scores(q, k).flatten(-2).softmax(-1).reshape(_scores(q, k).shape),
    "softmax ran over axis 1, the 3 heads": lambda q, k: _scores(q, k).softmax(1),
    "softmax ran over axis 0, the batch": lambda q, k: _scores(q, k).softmax(0 if q.ndim == 4 else -1),
    "sigmoid": lambda q, k: _scores(q, k).sigmoid(),
    "not divided by the sum of their row": lambda q, k: _scores(q, k).exp(),
    "never exponentiated": lambda q, k: _scores(q, k) / _scores(q, k).sum(-1, keepdim=True),
    "logarithms": lambda q, k: _scores(q, k).log_softmax(-1),
    "k is reshaped, not transposed. The shape": lambda q, k: _scores(
        q, k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]).mT
    ).softmax(-1),
    "k is reshaped, not transposed (k.mT), and": lambda q, k: (
        q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
    ).softmax(-1),
    "Batch and heads may stand in front": lambda q, k: (q @ k.transpose(0, 1) / q.shape[-1] ** 0.5).softmax(-1),
    "A batch alone may stand in front": lambda q, k: (
        q @ (k.permute(0, 1, 3, 2) if k.ndim == 4 else k.transpose(0, 1)) / q.shape[-1] ** 0.5
    ).softmax(-1),
    "Leave out the product with the values": lambda q, k: F.scaled_dot_product_attention(q, k, k),
    "in place": _in_place,
    "exp overflows": _without_max,
    "no gradient": lambda q, k: _scores(q.detach(), k.detach()).softmax(-1),
    "each row must sum to 1": lambda q, k: _scores(q, k).softmax(-1) * 3,
    "you divided the scores by 10. ": _scaled_by(lambda q, k: 0.1),
    "rows sum to 1, but the weights are wrong": lambda q, k: (-torch.cdist(q, k)).softmax(-1),
    "expected a tensor": lambda q, k: _scores(q, k).softmax(-1).numpy(),
    "returned None": lambda q, k: None,
}


def test_attention_weights():
    assert_hints("attention_weights", attention_weights, ATTENTION_WEIGHTS)


@pytest.mark.parametrize(
    "right",
    [
        lambda q, k: F.scaled_dot_product_attention(q, k, torch.eye(k.shape[-2]).expand(*k.shape[:-2], -1, -1)),
        lambda q, k: softmax_rows(torch.einsum("...id,...jd->...ij", q, k) / q.shape[-1] ** 0.5),
        lambda q, k: ((q / q.shape[-1] ** 0.25) @ (k / q.shape[-1] ** 0.25).transpose(-1, -2)).softmax(-1).double(),
    ],
    ids=["kernel", "einsum", "scaled before, as double"],
)
def test_other_right_answers_pass(right):
    assert exercise("attention_weights", right) is right


def test_row_entropy():
    assert_hints(
        "row_entropy",
        row_entropy,
        {
            "negative": lambda w: torch.xlogy(w, w).sum(-1),
            "bits": lambda w: -(w * w.clamp_min(1e-30).log2()).sum(-1),
            "the mean of": lambda w: -torch.xlogy(w, w).mean(-1),
            "One number came out": lambda w: -torch.xlogy(w, w).sum(),
            "over the queries": lambda w: -torch.xlogy(w, w).sum(-2),
            "leave out keepdim": lambda w: -torch.xlogy(w, w).sum(-1, keepdim=True),
            "= nan": lambda w: -(w * w.log()).sum(-1),
            "wrong for others": lambda w: -w.amax(-1).log(),
            "inside the logarithm": lambda w: -(w * (w + 1e-5).log()).sum(-1),
            "log 8 = 2.079. Sum": lambda w: 1 - w.amax(-1),
            "in place": lambda w: torch.special.entr(w.clamp_(1e-9)).sum(-1),
        },
    )


def _list_of_heads(x, num_heads):
    return list(x.chunk(num_heads, dim=-1))


def test_split_heads():
    assert_hints(
        "split_heads",
        split_heads,
        {
            "the content is scrambled: a view": lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
            "every third number": lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
            "swap axes 1 and 2": lambda x, h: x.unflatten(-1, (h, -1)),
            "Tokens and head_dim have changed places": lambda x, h: split_heads(x, h).mT,
            "in front of the batch": lambda x, h: split_heads(x, h).transpose(0, 1),
            "how many heads there are": lambda x, h: split_heads(x, x.shape[-1] // h),
            "melted into one axis": lambda x, h: split_heads(x, h).flatten(0, 1),
            "a list of heads": _list_of_heads,
            "swapped first and cut afterwards": lambda x, h: x.transpose(1, 2).reshape(len(x), h, x.shape[1], -1),
            "a copy of the first": lambda x, h: torch.stack([x[..., : x.shape[-1] // h]] * h, dim=1),
            "written in by hand": lambda x, h: (
                x.reshape(-1, x.shape[1], h, x.shape[-1] // h).transpose(1, 2) if h == 3 else split_heads(x, h).flip(1)
            ),
            "out[b, i, t] must be": lambda x, h: split_heads(x, h).flip(1),
        },
    )


def test_merge_heads():
    assert_hints(
        "merge_heads",
        merge_heads,
        {
            "the content is scrambled: reshape": lambda x: x.reshape(x.shape[0], x.shape[2], -1),
            "interleaved": lambda x: x.permute(0, 2, 3, 1).flatten(2),
            "Tokens stand last": lambda x: merge_heads(x).mT,
            "added up or averaged": lambda x: x.mean(1),
            "still two axes": lambda x: x.transpose(1, 2),
            "one below the other": lambda x: x.flatten(1, 2),
            "melted into the heads": lambda x: x.flatten(2),
            "in reverse": lambda x: merge_heads(x.flip(1)),
            "and no others": lambda x: x.transpose(2, 3).reshape(x.shape[0], x.shape[2], -1),
            "written in by hand": lambda x: (
                x.transpose(1, 2).reshape(-1, 5, 12) if x.shape[1] == 3 else x.transpose(1, 2).flatten(2).flip(2)
            ),
            "view size is not compatible": lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1),
            "out[b, t,": lambda x: merge_heads(x).flip(2),
        },
    )


def _by_head(queries, keys, values):
    return torch.cat([part for head in zip(queries, keys, values, strict=True) for part in head])


def _interleaved(*parts):
    return torch.cat([torch.stack(part, dim=1).flatten(0, 1) for part in parts])


def test_fuse_qkv():
    assert_hints(
        "fuse_qkv",
        fuse_qkv,
        {
            "head by head, with query, key": _by_head,
            "of the heads are interleaved": _interleaved,
            "values, then keys, then queries": lambda q, k, v: torch.cat([*v, *k, *q]),
            "keys, then queries, then values": lambda q, k, v: torch.cat([*k, *q, *v]),
            "in reverse order": lambda q, k, v: torch.cat([*q[::-1], *k[::-1], *v[::-1]]),
            "side by side": lambda q, k, v: torch.cat([*q, *k, *v], dim=1),
            "That is transposed": lambda q, k, v: torch.cat([*q, *k, *v]).mT,
            "on a new axis": lambda q, k, v: torch.stack([*q, *k, *v]),
            "on new axes": lambda q, k, v: torch.stack([torch.stack(part) for part in (q, k, v)]),
            "of one kind stand side by side": lambda q, k, v: torch.cat(
                [torch.cat(part, dim=-1) for part in (q, k, v)]
            ),
            "right for the weights. The biases": lambda q, k, v: torch.stack([*q, *k, *v]).reshape(-1, q[0].shape[-1]),
            "an axis of their own": lambda q, k, v: torch.stack([torch.cat(part) for part in (q, k, v)]),
            "must be the queries of head i": lambda q, k, v: torch.cat([*q, *k, *v]).flip(0),
        },
    )


def test_weights_from_kernel():
    def eye(k, n=None):
        n = n or k.shape[-2]
        return torch.eye(k.shape[-2], n, dtype=k.dtype).expand(*k.shape[:-2], -1, -1)

    assert_hints(
        "weights_from_kernel",
        weights_from_kernel,
        {
            "Every row of weights sums to 1": lambda attend, q, k: attend(q, k, torch.ones_like(eye(k))),
            "an identity of 7 rows": lambda attend, q, k: attend(q, k, torch.eye(q.shape[-2]).expand(2, 3, 5, 5)),
            "values of width 4": lambda attend, q, k: attend(q, k, eye(k, k.shape[-1])),
            "you computed the weights by the formula": lambda attend, q, k: attention_weights(q, k),
            "which scales it again": lambda attend, q, k: attend(q / q.shape[-1] ** 0.5, k, eye(k)),
            "those are the scores": lambda attend, q, k: q @ k.mT / q.shape[-1] ** 0.5,
            "the dtype of q": lambda attend, q, k: attend(q, k, eye(k).float()),
            "expected shape (2, 3, 5, 7), got (2, 3, 7, 5)": lambda attend, q, k: attend(q, k, eye(k)).mT,
            "rows must be the kernel's weights": lambda attend, q, k: attend(q, k, eye(k).flip(-1)),
        },
    )


def _moves(layer, x, change, watch):
    other = x.clone()
    other[change] += 10
    return not torch.allclose(layer(x)[watch], layer(other)[watch], atol=1e-4)


def _exactly_alone(layer, x):
    return all(torch.equal(layer(x)[i], layer(x[i : i + 1])[0]) for i in range(len(x)))


def _alone(layer, x):
    return torch.cat([layer(x[i : i + 1]) for i in range(len(x))])


def _changes_in_place(layer, x):
    before = layer(x)
    x[1] += 1
    return torch.allclose(before[0], layer(x)[0])


def test_rows_are_independent():
    assert_hints(
        "rows_are_independent",
        rows_are_independent,
        {
            "True for every layer": lambda layer, x: True,
            "wrong way round": lambda layer, x: not rows_are_independent(layer, x),
            "without its batch axis": lambda layer, x: torch.allclose(
                layer(x), torch.stack([layer(row) for row in x]), atol=1e-5
            ),
            "Tokens are axis 1": lambda layer, x: torch.allclose(
                layer(x), torch.cat([layer(x[:, i : i + 1]) for i in range(x.shape[1])], dim=1), atol=1e-5
            ),
            "Shuffling the rows": lambda layer, x: torch.allclose(layer(x.flip(0)), layer(x).flip(0), atol=1e-5),
            "doubles every number": lambda layer, x: not _moves(layer, x, slice(1, None), slice(None)),
            "healthy attention": _exactly_alone,
            "not only at row 0": lambda layer, x: not _moves(layer, x, slice(1, None), 0),
            "not only at the last": lambda layer, x: not _moves(layer, x, slice(0, 3), 3),
            "not only the next": lambda layer, x: not any(_moves(layer, x, j, i) for i, j in ((0, 2), (2, 0))),
            "two rows in the middle": lambda layer, x: (
                not any(_moves(layer, x, [j for j in range(4) if j != i], i) for i in (0, 3))
            ),
            "Halves of the batch": lambda layer, x: torch.allclose(
                layer(x), torch.cat([layer(half) for half in x.split(2)]), atol=1e-5
            ),
            "two places before": lambda layer, x: not any(_moves(layer, x, [i - 1, (i + 1) % 4], i) for i in range(4)),
            "not only the one before": lambda layer, x: not any(_moves(layer, x, i - 1, i) for i in range(4)),
            "ever lower": lambda layer, x: ((layer(x) - _alone(layer, x)) < 1e-5).all(),
            "ever raise": lambda layer, x: ((_alone(layer, x) - layer(x)) < 1e-5).all(),
            "one hundredth": lambda layer, x: torch.allclose(layer(x), _alone(layer, x), atol=0.1),
            "in place": _changes_in_place,
            "one answer cover all rows": lambda layer, x: layer(x).flatten(1).sum(1) == 0,
            "returned None": lambda layer, x: None,
        },
    )


def _by_pairs(layer, x):
    return not any(_moves(layer, x, j, i) for i in range(len(x)) for j in range(len(x)) if i != j)


def _by_gradients(layer, x):
    x = x.clone().requires_grad_()
    for i, row in enumerate(layer(x)):
        (gradient,) = torch.autograd.grad(row.sum(), x, retain_graph=True)
        if any(gradient[j].any() for j in range(len(x)) if j != i):
            return False
    return True


def _with_numpy(layer, x):
    alone = [layer(row[None]).numpy() for row in x]
    return np.abs(layer(x).numpy() - np.concatenate(alone)).max() < 1e-5


@pytest.mark.parametrize("right", [_by_pairs, _by_gradients, _with_numpy])
def test_other_right_ways_to_find_dependent_rows(right):
    assert exercise("rows_are_independent", right) is right


def test_the_hint_reaches_the_student():
    with pytest.raises(CheckFailed, match="the scores are not scaled"):
        exercise("attention_weights", lambda q, k: (q @ k.mT).softmax(-1))
