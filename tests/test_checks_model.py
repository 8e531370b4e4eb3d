"""The checks of chapter 5 accept the reference and name each mistake."""

import math

import pytest
import torch
import torch.nn.functional as F
from hints import assert_hints

from vit_tutorial.checks import CheckFailed, exercise
from vit_tutorial.checks.model import (
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

    assert_hints(
        "forward_features",
        forward_features,
        {
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


def _cls_or(mean):
    def fn(tokens, pool, num_prefix_tokens=1):
        return tokens[:, 0] if pool == "cls" else mean(tokens, num_prefix_tokens)

    return fn


def test_pool_tokens():
    assert_hints(
        "pool_tokens",
        pool_tokens,
        {
            "read the last token": lambda tokens, pool, prefix: tokens[:, -1],
            "that is the whole first image": lambda tokens, pool, prefix: tokens[0],
            "a slice keeps its axis": lambda tokens, pool, prefix: tokens[:, :1],
            "pool='cls' gave the mean": lambda tokens, pool, prefix: tokens[:, prefix:].mean(1),
            "pool='mean' gave the class token": lambda tokens, pool, prefix: tokens[:, 0],
            "includes the class token": _cls_or(lambda tokens, prefix: tokens.mean(1)),
            "over the batch": _cls_or(lambda tokens, prefix: tokens[:, prefix:].mean(0)),
            "over the d numbers": _cls_or(lambda tokens, prefix: tokens[:, prefix:].mean(2)),
            "sum of the patch tokens": _cls_or(lambda tokens, prefix: tokens[:, prefix:].sum(1)),
            "with num_prefix_tokens=0": _cls_or(lambda tokens, prefix: tokens[:, 1:].mean(1)),
            "with num_prefix_tokens=3": _cls_or(lambda tokens, prefix: tokens[:, min(prefix, 1) :].mean(1)),
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
            "num_patches + 1": _lose(lambda d, depth, m, n, p, k: d),
            "final LayerNorm": _lose(lambda d, depth, m, n, p, k: 2 * d),
            "table of positions": _lose(lambda d, depth, m, n, p, k: (n + 1) * d),
            "head has a bias": _lose(lambda d, depth, m, n, p, k: k),
            "head is missing": _lose(lambda d, depth, m, n, p, k: (d + 1) * k),
            "two LayerNorms, with": _lose(lambda d, depth, m, n, p, k: depth * 4 * d),
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
            "ViT-B/16": lambda d, depth, m, n, p, k: count_parameters(10, 3, 44, 21, 75, 17),
        },
    )


def test_no_two_omissions_lose_equally_many_parameters():
    """A dictionary with equal keys would swallow a hint."""
    assert len(missing_parameters(10, 3, 44, 21, 75, 17)) == 17


def test_softmax_loss_floor():
    e = math.e
    assert_hints(
        "softmax_loss_floor",
        softmax_loss_floor,
        {
            "infinite logits": lambda classes: 0.0,
            "a model that guesses": lambda classes: math.log(classes),
            "gives bits": lambda classes: math.log2(1 + (classes - 1) / e),
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
            "sum over the batch": lambda z, y: F.cross_entropy(z, y, reduction="sum"),
            "the sign": lambda z, y: -F.cross_entropy(z, y),
            "applied twice": lambda z, y: F.cross_entropy(z.softmax(1), y),
            "runs over the batch": lambda z, y: F.nll_loss(z.log_softmax(0), y),
            "one loss for each image": lambda z, y: F.cross_entropy(z, y, reduction="none"),
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
            "wanted [[3, 1": lambda labels, predictions, k: 2 * confusion_counts(labels, predictions, k),
        },
    )


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
