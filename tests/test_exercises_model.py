"""The checks of chapter 5 accept the reference and name each mistake."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hints import assert_hints

from vit_tutorial.exercises import CheckFailed, exercise
from vit_tutorial.exercises.model import (
    confusion_counts,
    count_parameters,
    cross_entropy,
    forward_features,
    missing_parameters,
    pool_tokens,
    softmax_loss_floor,
)


def _cat(model, x, last=False):
    cls = model.cls_token.expand(len(x), -1, -1)
    return torch.cat([x, cls] if last else [cls, x], dim=1)


def _changes_the_class_token(model, images):
    model.cls_token += 1
    return forward_features(model, images)


def test_forward_features():
    def embed(model, images):
        return _cat(model, model.patch_embed(images))

    def norms_the_class_token_alone(model, images):
        x = model.blocks(embed(model, images) + model.pos_embed)
        return torch.cat([model.norm(x[:, :1]), x[:, 1:]], dim=1)

    def norms_each_block(model, images):
        x = embed(model, images) + model.pos_embed
        for block in model.blocks:
            x = model.norm(block(x))
        return x

    def forgets_each_block(model, images):
        x = embed(model, images) + model.pos_embed
        for block in model.blocks:
            y = block(x)
        return model.norm(y)

    def makes_its_own_class_token(model, images):
        x = model.patch_embed(images)
        return model.norm(model.blocks(torch.cat([torch.zeros_like(x[:, :1]), x], dim=1) + model.pos_embed))

    assert_hints(
        "forward_features",
        forward_features,
        {
            "cannot be trained": lambda model, images: forward_features(model, images).detach(),
            "no gradient reaches pos_embed": lambda model, images: model.norm(
                model.blocks(embed(model, images) + model.pos_embed.data)
            ),
            "the class token has no position": lambda model, images: model.norm(
                model.blocks(_cat(model, model.patch_embed(images) + model.pos_embed[:, 1:]))
            ),
            "stands last": lambda model, images: model.norm(
                model.blocks(_cat(model, model.patch_embed(images), last=True) + model.pos_embed)
            ),
            "the final LayerNorm is missing": lambda model, images: model.blocks(
                embed(model, images) + model.pos_embed
            ),
            "the norm ran before the blocks": lambda model, images: model.blocks(
                model.norm(embed(model, images) + model.pos_embed)
            ),
            "ran twice": lambda model, images: model.norm(
                model.blocks(model.norm(embed(model, images) + model.pos_embed))
            ),
            "after each block": norms_each_block,
            "only the class token": norms_the_class_token_alone,
            "only the last of the blocks": forgets_each_block,
            "zeros stand": makes_its_own_class_token,
            "never added": lambda model, images: model.norm(model.blocks(embed(model, images))),
            "added after the blocks": lambda model, images: model.norm(
                model.blocks(embed(model, images)) + model.pos_embed
            ),
            "blocks did not run": lambda model, images: model.norm(embed(model, images) + model.pos_embed),
            "only the first": lambda model, images: model.norm(model.blocks[0](embed(model, images) + model.pos_embed)),
            "joined after the blocks": lambda model, images: model.norm(
                _cat(model, model.blocks(model.patch_embed(images) + model.pos_embed[:, 1:]))
            ),
            "class token is missing": lambda model, images: model.norm(
                model.blocks(model.patch_embed(images) + model.pos_embed[:, 1:])
            ),
            "pooling is the next step": lambda model, images: forward_features(model, images)[:, 0],
            "head has run": lambda model, images: model.head(forward_features(model, images)),
            "raised RuntimeError": lambda model, images: torch.cat([model.cls_token, model.patch_embed(images)], dim=1),
            "in place": _changes_the_class_token,
            "differ from equations": lambda model, images: model.norm(
                model.blocks(torch.relu(embed(model, images) + model.pos_embed))
            ),
        },
    )


@pytest.mark.parametrize(
    "embed",
    [
        lambda model, x: torch.cat([model.cls_token.repeat(len(x), 1, 1), x], 1) + model.pos_embed,
        lambda model, x: torch.cat(
            [(model.cls_token + model.pos_embed[:, :1]).expand(len(x), -1, -1), x + model.pos_embed[:, 1:]], 1
        ),
    ],
)
def test_forward_features_may_be_written_otherwise(embed):
    def fn(model, images):
        x = embed(model, model.patch_embed(images))
        for block in model.blocks:
            x = block(x)
        return model.norm(x)

    assert exercise("forward_features", fn) is fn


def test_a_hint_says_model_not_all_its_layers():
    with pytest.raises(CheckFailed, match=r"\(Model, Tensor\(3, 2, 4, 8\)\) raised"):
        exercise("forward_features", lambda model, images: model.patch_embed(images) + model.pos_embed)


def _cls_or(mean):
    def fn(tokens, pool, num_prefix_tokens=1):
        return tokens[:, 0] if pool == "cls" else mean(tokens, num_prefix_tokens)

    return fn


def test_pool_tokens():
    assert_hints(
        "pool_tokens",
        pool_tokens,
        {
            "flows back to the tokens": lambda *args: pool_tokens(*args).detach(),
            "read the last token": lambda tokens, pool, prefix: tokens[:, -1],
            "that is the whole first image": lambda tokens, pool, prefix: tokens[0],
            "a slice keeps its axis": lambda tokens, pool, prefix: tokens[:, :1],
            "pool='cls' gave the mean": lambda tokens, pool, prefix: tokens[:, prefix:].mean(1),
            "pool='mean' gave the class token": lambda tokens, pool, prefix: tokens[:, 0],
            "read token 1": lambda tokens, pool, prefix: tokens[:, 1],
            "one number of each token": lambda tokens, pool, prefix: tokens[:, :, 0],
            "however many tokens": lambda tokens, pool, prefix: (
                tokens[:, prefix - 1] if pool == "cls" else tokens[:, 0]
            ),
            "ran over everything": _cls_or(lambda tokens, prefix: tokens[:, prefix:].mean()),
            "includes the class token": _cls_or(lambda tokens, prefix: tokens.mean(1)),
            "over the batch": _cls_or(lambda tokens, prefix: tokens[:, prefix:].mean(0)),
            "over the d numbers": _cls_or(lambda tokens, prefix: tokens[:, prefix:].mean(2)),
            "sum of the patch tokens": _cls_or(lambda tokens, prefix: tokens[:, prefix:].sum(1)),
            "was divided by the number of all": _cls_or(
                lambda tokens, prefix: tokens[:, prefix:].sum(1) / tokens.shape[1]
            ),
            "the last token was left out": _cls_or(lambda tokens, prefix: tokens[:, :-prefix].mean(1)),
            "one token too many": _cls_or(lambda tokens, prefix: tokens[:, prefix + 1 :].mean(1)),
            "the largest value": _cls_or(lambda tokens, prefix: tokens[:, prefix:].amax(1)),
            "with num_prefix_tokens=0": _cls_or(lambda tokens, prefix: tokens[:, 1:].mean(1)),
            "with num_prefix_tokens=3": _cls_or(lambda tokens, prefix: tokens[:, min(prefix, 1) :].mean(1)),
            "keep its default": lambda tokens, pool, prefix=0: pool_tokens(tokens, pool, prefix),
        },
    )


def _lose(term):
    """The count without a term of (d, depth, mlp_dim, n, patch_dim, k)."""
    return lambda *sizes: count_parameters(*sizes) - term(*sizes)


def test_count_parameters():
    assert_hints(
        "count_parameters",
        count_parameters,
        {
            "its row of the positions": _lose(lambda d, depth, m, n, p, k: d),
            "patch projection is missing": _lose(lambda d, depth, m, n, p, k: (p + 1) * d),
            "parameters too": _lose(lambda d, depth, m, n, p, k: (n + 2) * d),
            "MLP's second layer": _lose(lambda d, depth, m, n, p, k: depth * d),
            "MLP's first layer": _lose(lambda d, depth, m, n, p, k: depth * m),
            "attention is missing": _lose(lambda d, depth, m, n, p, k: depth * 4 * d * (d + 1)),
            "MLP is missing": _lose(lambda d, depth, m, n, p, k: depth * (2 * m * d + m + d)),
            "final LayerNorm": _lose(lambda d, depth, m, n, p, k: 2 * d),
            "table of positions": _lose(lambda d, depth, m, n, p, k: (n + 1) * d),
            "head has a bias": _lose(lambda d, depth, m, n, p, k: k),
            "head is missing": _lose(lambda d, depth, m, n, p, k: (d + 1) * k),
            "four matrices of its attention": _lose(lambda d, depth, m, n, p, k: depth * 4 * d),
            "no LayerNorm is counted": _lose(lambda d, depth, m, n, p, k: depth * 4 * d + 2 * d),
            "One of them": _lose(lambda d, depth, m, n, p, k: depth * 2 * d),
            "2·embed_dim parameters": _lose(lambda d, depth, m, n, p, k: (2 * depth + 1) * d),
            "ends with an output projection, embed_dim": _lose(lambda d, depth, m, n, p, k: depth * (d + 1) * d),
            "its matrix is missing": _lose(lambda d, depth, m, n, p, k: depth * d * d),
            "the output projection a fourth": _lose(lambda d, depth, m, n, p, k: depth * 2 * d * (d + 1)),
            "keys and values have biases": _lose(lambda d, depth, m, n, p, k: depth * 3 * d),
            "biases of the linear layers": _lose(lambda d, depth, m, n, p, k: depth * (5 * d + m) + d + k),
            "mlp_dim and embed_dim": _lose(lambda d, depth, m, n, p, k: depth * (d + m)),
            "two layers, embed_dim to mlp_dim": _lose(lambda d, depth, m, n, p, k: depth * (m * d + d)),
            "only one block": lambda d, depth, m, n, p, k: count_parameters(d, 1, m, n, p, k),
            "too many": lambda d, depth, m, n, p, k: count_parameters(d, depth, m, n, p, k) + d * k,
            "ViT-B/16": lambda d, depth, m, n, p, k: count_parameters(10, 4, 44, 21, 75, 17),
        },
    )


@pytest.mark.parametrize("kind", [float, np.int64, torch.tensor])
def test_count_parameters_may_be_another_kind_of_number(kind):
    def fn(*sizes):
        return kind(count_parameters(*sizes))

    assert exercise("count_parameters", fn) is fn


def test_no_two_omissions_lose_equally_many_parameters():
    """A dictionary with equal keys would swallow a hint."""
    assert len(missing_parameters(10, 4, 44, 21, 75, 17)) == 23


def test_softmax_loss_floor():
    e = math.e
    assert_hints(
        "softmax_loss_floor",
        softmax_loss_floor,
        {
            "infinite logits": lambda classes: 0.0,
            "a model that guesses": lambda classes: math.log(classes),
            "gives bits": lambda classes: math.log2(1 + (classes - 1) / e),
            "log10": lambda classes: math.log10(1 + (classes - 1) / e),
            "the logarithm is missing": lambda classes: 1 + (classes - 1) / e,
            "got nan for 10 classes. Put": lambda classes: math.nan,
            "sign of the exponent": lambda classes: math.log(1 + (classes - 1) * e),
            "the true one was counted": lambda classes: math.log(1 + classes / e),
            "the normaliser alone": lambda classes: math.log(e + classes - 1),
            "the probability of the true class": lambda classes: e / (e + classes - 1),
            "the log-probability": lambda classes: -math.log(1 + (classes - 1) / e),
            "for 4 classes": lambda classes: 1.46115,
            "one number": lambda classes: "1.46",
        },
    )
    assert abs(softmax_loss_floor(10) - 1.461) < 5e-4  # ln(1 + 9/e), by pencil


@pytest.mark.parametrize("kind", [np.float32, torch.tensor])
def test_softmax_loss_floor_may_be_another_kind_of_number(kind):
    def fn(classes):
        return kind(softmax_loss_floor(classes))

    assert exercise("softmax_loss_floor", fn) is fn


def _naive(logits, labels):
    return -(logits.exp() / logits.exp().sum(1, keepdim=True)).log()[range(len(labels)), labels].mean()


def _log_of_softmax(logits, labels):
    return -logits.softmax(1).log()[range(len(labels)), labels].mean()


def _one_maximum_for_all(logits, labels):
    shifted = logits - logits.max()
    return (shifted.exp().sum(1).log() - shifted[range(len(labels)), labels]).mean()


def test_cross_entropy():
    assert_hints(
        "cross_entropy",
        cross_entropy,
        {
            "the gradient is not": lambda z, y: (
                z.logsumexp(1) - torch.tensor([z[i, k].item() for i, k in enumerate(y)])
            ).mean(),
            "sum over the batch": lambda z, y: F.cross_entropy(z, y, reduction="sum"),
            "the sign": lambda z, y: -F.cross_entropy(z, y),
            "applied twice": lambda z, y: F.cross_entropy(z.softmax(1), y),
            "runs over the batch": lambda z, y: F.nll_loss(z.log_softmax(0), y),
            "one loss for each image": lambda z, y: F.cross_entropy(z, y, reduction="none"),
            "number of all entries": lambda z, y: -(F.one_hot(y, z.shape[1]) * z.log_softmax(1)).mean(),
            "number of classes": lambda z, y: F.cross_entropy(z, y, reduction="sum") / z.shape[1],
            "every label for every image": lambda z, y: (z.logsumexp(1)[:, None] - z[:, y]).mean(),
            "not from the label's logit": lambda z, y: (
                (z - z.amax(1, keepdim=True)).logsumexp(1) - z[range(len(y)), y]
            ).mean(),
            "largest of each column": lambda z, y: F.cross_entropy(z - z.amax(0), y),
            "all classes are averaged": lambda z, y: -z.log_softmax(1).mean(),
            "normaliser is missing": lambda z, y: F.nll_loss(z, y),
            "the logarithm is missing": lambda z, y: z.softmax(1)[range(len(y)), y].mean(),
            "log2": lambda z, y: F.cross_entropy(z, y) / math.log(2),
            "log10": lambda z, y: F.cross_entropy(z, y) / math.log(10),
            "overflows": _naive,
            "underflows to 0": _log_of_softmax,
            "Each row has its own": _one_maximum_for_all,
            "no gradient can flow": lambda z, y: F.cross_entropy(z, y).item(),
            "torch's own": lambda z, y: F.cross_entropy(z, y) + 0.1,
        },
    )


@pytest.mark.parametrize(
    "fn",
    [
        F.cross_entropy,
        lambda z, y: (z.logsumexp(1) - z.gather(1, y[:, None])[:, 0]).mean(),
        lambda z, y: -(F.one_hot(y, z.shape[1]) * z.log_softmax(1)).sum(1).mean(),
    ],
)
def test_cross_entropy_may_be_written_otherwise(fn):
    assert exercise("cross_entropy", fn) is fn


def _adds_once(labels, predictions, num_classes):
    matrix = torch.zeros(num_classes, num_classes, dtype=torch.long)
    matrix[labels, predictions] += 1
    return matrix


def _as_many_as_occur(labels, predictions, num_classes):
    return confusion_counts(labels, predictions, int(max(labels.max(), predictions.max())) + 1)


def test_confusion_counts():
    assert_hints(
        "confusion_counts",
        confusion_counts,
        {
            "adds once for a pair": _adds_once,
            "rows and columns are swapped": lambda labels, predictions, k: confusion_counts(predictions, labels, k),
            "got 3×3": _as_many_as_occur,
            "those are shares": lambda labels, predictions, k: confusion_counts(labels, predictions, k) / len(labels),
            "reshape them": lambda labels, predictions, k: confusion_counts(labels, predictions, k).flatten(),
            "wanted [[3, 1": lambda labels, predictions, k: 2 * confusion_counts(labels, predictions, k),
        },
    )


@pytest.mark.parametrize("total", [lambda counts: counts.sum(0).clamp(min=1), lambda counts: counts.sum() / 100])
def test_shares_of_confusions_by_column_or_in_per_cent(total):
    def fn(labels, predictions, num_classes):
        counts = confusion_counts(labels, predictions, num_classes)
        return counts / total(counts)

    with pytest.raises(CheckFailed, match="those are shares"):
        exercise("confusion_counts", fn)


def test_counts_are_not_rounded_for_the_reader():
    with pytest.raises(CheckFailed, match="wanted"):
        exercise("confusion_counts", lambda *args: confusion_counts(*args) + 0.9)


def test_confusion_counts_may_be_a_loop():
    def fn(labels, predictions, num_classes):
        matrix = torch.zeros(num_classes, num_classes)
        for label, prediction in zip(labels, predictions, strict=True):
            matrix[label, prediction] += 1
        return matrix

    assert exercise("confusion_counts", fn) is fn


def test_a_wrong_answer_of_zero_parameters_fails():
    with pytest.raises(CheckFailed, match="too few"):
        exercise("count_parameters", lambda *sizes: 0)
