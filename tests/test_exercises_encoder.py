"""The checks of chapter 4 accept the reference and name each mistake."""

import copy
import math

import torch
import torch.nn.functional as F
from hints import assert_hints

from vit_tutorial.exercises.encoder import (
    block_multiply_adds,
    drop_path,
    drop_path_rates,
    gelu,
    layer_norm,
    norm_is_alive,
    pre_norm_block,
)


def _normalised(x, dims=-1, correction=0):
    return (x - x.mean(dims, keepdim=True)) / (x.var(dims, keepdim=True, correction=correction) + 1e-6).sqrt()


def _centred(x):
    return x - x.mean(-1, keepdim=True)


def _var(x):
    return x.var(-1, keepdim=True, correction=0)


def _layer_norm_in_place(x, weight, bias, eps):
    x -= x.mean(-1, keepdim=True)
    return x / (_var(x) + eps).sqrt() * weight + bias


def test_layer_norm():
    assert_hints(
        "layer_norm",
        layer_norm,
        {
            "in place": _layer_norm_in_place,
            "dim 1": lambda x, w, b, eps: _normalised(x, -2) * w + b,
            "BatchNorm": lambda x, w, b, eps: _normalised(x, 0) * w + b,
            "all tokens of an image": lambda x, w, b, eps: _normalised(x, (-2, -1)) * w + b,
            "whole tensor": lambda x, w, b, eps: _normalised(x, tuple(range(x.ndim))) * w + b,
            "d − 1": lambda x, w, b, eps: _normalised(x, correction=1) * w + b,
            "by the variance": lambda x, w, b, eps: _centred(x) / (_var(x) + eps) * w + b,
            "still in there": lambda x, w, b, eps: x / (_var(x) + eps).sqrt() * w + b,
            "RMSNorm": lambda x, w, b, eps: F.rms_norm(x, w.shape, eps=eps) * w + b,
            "weight and bias are missing": lambda x, w, b, eps: _normalised(x),
            "the weight is missing": lambda x, w, b, eps: _normalised(x) + b,
            "the bias is missing": lambda x, w, b, eps: _normalised(x) * w,
            "before the multiplication": lambda x, w, b, eps: (_normalised(x) + b) * w,
            "outside the root": lambda x, w, b, eps: _centred(x) / (_var(x).sqrt() + eps) * w + b,
            "far too small": lambda x, w, b, eps: _centred(x) / (_var(x) + eps**2).sqrt() * w + b,
            "eps is missing": lambda x, w, b, eps: _centred(x) / _var(x).sqrt() * w + b,
            "1e-12 into the formula": lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b, eps=1e-12),
            "kept at eps": lambda x, w, b, eps: _centred(x) / _var(x).clamp(min=eps).sqrt() * w + b,
            "1e-05 into the formula": lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b),
            "keepdim": lambda x, w, b, eps: _normalised(x).mean(-1),
            "raised": lambda x, w, b, eps: (x - x.mean(-1)) / (x.var(-1, correction=0) + eps).sqrt() * w + b,
        },
    )


def test_layer_norm_does_not_care_how():
    assert_hints("layer_norm", lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b, eps), _a_few_wrong_norms())


def _a_few_wrong_norms():
    return {
        "raised": lambda x, w, b, eps: x @ x,
        "None": lambda x, w, b, eps: None,
        "expected a tensor": lambda x, w, b, eps: 1.0,
    }


def test_gelu():
    assert_hints(
        "gelu",
        gelu,
        {
            "tanh approximation": lambda x: F.gelu(x, approximate="tanh"),
            "1.702": lambda x: x * torch.sigmoid(1.702 * x),
            "Swish": F.silu,
            "ReLU": F.relu,
            "factor ½": lambda x: x * (1 + torch.erf(x / math.sqrt(2))),
            "erf(x) instead": lambda x: x * 0.5 * (1 + torch.erf(x)),
            "Φ(x) alone": lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2))),
            "the 1 is missing": lambda x: x * 0.5 * torch.erf(x / math.sqrt(2)),
            "density": lambda x: x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
            "in place": lambda x: x.mul_(torch.special.ndtr(x)),
            "by itself": lambda x: gelu(x).sum(-1),
        },
    )


def _post_norm(x, norm1, attn, norm2, mlp):
    x = norm1(x + attn(x))
    return norm2(x + mlp(x))


def _no_residual(x, norm1, attn, norm2, mlp):
    return mlp(norm2(attn(norm1(x))))


def _no_second_residual(x, norm1, attn, norm2, mlp):
    return mlp(norm2(x + attn(norm1(x))))


def _no_first_residual(x, norm1, attn, norm2, mlp):
    x = attn(norm1(x))
    return x + mlp(norm2(x))


def _norm1_twice(x, norm1, attn, norm2, mlp):
    x = x + attn(norm1(x))
    return x + mlp(norm1(x))


def _norms_swapped(x, norm1, attn, norm2, mlp):
    return pre_norm_block(x, norm2, attn, norm1, mlp)


def _residual_after_norm(x, norm1, attn, norm2, mlp):
    x = norm1(x)
    x = x + attn(x)
    x = norm2(x)
    return x + mlp(x)


def _second_residual_after_norm(x, norm1, attn, norm2, mlp):
    x = norm2(x + attn(norm1(x)))
    return x + mlp(x)


def _first_residual_after_norm(x, norm1, attn, norm2, mlp):
    x = norm1(x)
    x = x + attn(x)
    return x + mlp(norm2(x))


def _parallel(x, norm1, attn, norm2, mlp):
    return x + attn(norm1(x)) + mlp(norm2(x))


def _attention_lost(x, norm1, attn, norm2, mlp):
    return x + mlp(norm2(x + attn(norm1(x))))


def _no_norm(x, norm1, attn, norm2, mlp):
    x = x + attn(x)
    return x + mlp(x)


def _norm_last(x, norm1, attn, norm2, mlp):
    x = x + norm1(attn(x))
    return x + norm2(mlp(x))


def _mlp_first(x, norm1, attn, norm2, mlp):
    x = x + mlp(norm2(x))
    return x + attn(norm1(x))


def _block_in_place(x, norm1, attn, norm2, mlp):
    x += attn(norm1(x))
    x += mlp(norm2(x))
    return x


def test_pre_norm_block():
    assert_hints(
        "pre_norm_block",
        pre_norm_block,
        {
            "post-norm": _post_norm,
            "both residuals are missing": _no_residual,
            "around the MLP is missing": _no_second_residual,
            "around attention is missing": _no_first_residual,
            "norm1 is used twice": _norm1_twice,
            "swapped": _norms_swapped,
            "both residuals were taken": _residual_after_norm,
            "second residual": _second_residual_after_norm,
            "first residual": _first_residual_after_norm,
            "side by side": _parallel,
            "what attention added is lost": _attention_lost,
            "no norm is used": _no_norm,
            "norm(branch(x))": _norm_last,
            "before attention": _mlp_first,
            "the MLP's result is lost": lambda x, norm1, attn, norm2, mlp: x + attn(norm1(x)),
            "attention's result is lost": lambda x, norm1, attn, norm2, mlp: x + mlp(norm2(x)),
            "one norm too many": lambda x, norm1, attn, norm2, mlp: norm2(pre_norm_block(x, norm1, attn, norm2, mlp)),
            "in place": _block_in_place,
        },
    )


def _mask(p, *shape):
    return (torch.rand(*shape) >= p).float()


def _reseeded(x, p, training):
    torch.manual_seed(3)
    return drop_path(x, p, training)


def _drop_path_in_place(x, p, training):
    return x.mul_(_mask(p, len(x), 1, 1) / (1 - p)) if training and p else x


def _three_axes_only(x, p, training):
    return x * _mask(p, len(x), 1, 1) / (1 - p) if training and p else x


def _fixed_number(x, p, training):
    if not training:
        return x
    mask = torch.ones(len(x), *[1] * (x.ndim - 1))
    mask[torch.randperm(len(x))[: round(p * len(x))]] = 0
    return x * mask / (1 - p) if p < 1 else x * 0


def test_drop_path():
    def in_training(drop):
        return lambda x, p, training: drop(x, p) if training and p else x

    assert_hints(
        "drop_path",
        drop_path,
        {
            "in evaluation": lambda x, p, training: drop_path(x, p, True),
            "p = 0": lambda x, p, training: drop_path(x, max(p, 0.1), training),
            "single tokens": in_training(lambda x, p: x * _mask(p, *x.shape[:2], 1) / (1 - p)),
            "channels of an image": in_training(lambda x, p: x * _mask(p, len(x), 1, x.shape[-1]) / (1 - p)),
            "that is dropout": lambda x, p, training: F.dropout(x, p, training),
            "whole batch": in_training(lambda x, p: x * _mask(p, 1) / (1 - p)),
            "not to keep": in_training(lambda x, p: x * _mask(1 - p, len(x), 1, 1) / p),
            "not scaled": in_training(lambda x, p: x * _mask(p, len(x), 1, 1)),
            "divided by p": in_training(lambda x, p: x * _mask(p, len(x), 1, 1) / p),
            "multiplied by 1 − p": in_training(lambda x, p: x * _mask(p, len(x), 1, 1) * (1 - p)),
            "same images": _reseeded,
            "a fixed number": _fixed_number,
            "in place": _drop_path_in_place,
            "x.ndim": _three_axes_only,
            "nothing is dropped": lambda x, p, training: x,
            "zeros and ones": in_training(lambda x, p: x * (torch.rand(len(x), *[1] * (x.ndim - 1)) + 1 - p) / (1 - p)),
            "everything is zeroed": in_training(lambda x, p: x * 0),
        },
    )


def test_drop_path_rates():
    assert_hints(
        "drop_path_rates",
        drop_path_rates,
        {
            "stays below": lambda rate, depth: [rate * i / depth for i in range(depth)],
            "first block should have rate 0": lambda rate, depth: [rate * (i + 1) / depth for i in range(depth)],
            "falls": lambda rate, depth: drop_path_rates(rate, depth)[::-1],
            "same rate": lambda rate, depth: [rate] * depth,
            "chances to keep": lambda rate, depth: [1 - p for p in drop_path_rates(rate, depth)],
            "ZeroDivisionError": lambda rate, depth: [rate * i / (depth - 1) for i in range(depth)],
            "one rate for each block": lambda rate, depth: [rate * i / depth for i in range(depth + 1)],
        },
    )


def test_drop_path_rates_may_be_a_tensor():
    wrong = {"(5,)": lambda rate, depth: rate, "0.075": lambda rate, depth: [0.1] * depth, "None": lambda *_: None}
    assert_hints("drop_path_rates", lambda rate, depth: torch.linspace(0, rate, depth), wrong)


def test_block_multiply_adds():
    def mlp(n, d, ratio):
        return 2 * n * d * ratio * d

    def attention(n, d):
        return 4 * n * d * d + 2 * n * n * d

    assert_hints(
        "block_multiply_adds",
        block_multiply_adds,
        {
            "two numbers": lambda n, d, ratio: sum(block_multiply_adds(n, d, ratio)),
            "swapped": lambda n, d, ratio: block_multiply_adds(n, d, ratio)[::-1],
            "counted operations": lambda n, d, ratio: (2 * attention(n, d), 2 * mlp(n, d, ratio)),
            "four matrices, not three": lambda n, d, ratio: (3 * n * d * d + 2 * n * n * d, mlp(n, d, ratio)),
            "four projections: queries": lambda n, d, ratio: (n * d * d + 2 * n * n * d, mlp(n, d, ratio)),
            "n × n twice": lambda n, d, ratio: (4 * n * d * d + n * n * d, mlp(n, d, ratio)),
            "dot product over the channels": lambda n, d, ratio: (4 * n * d * d + 2 * n * n, mlp(n, d, ratio)),
            "mixing is missing": lambda n, d, ratio: (4 * n * d * d, mlp(n, d, ratio)),
            "projections are missing": lambda n, d, ratio: (2 * n * n * d, mlp(n, d, ratio)),
            "two layers": lambda n, d, ratio: (attention(n, d), mlp(n, d, ratio) // 2),
            "you wrote 4": lambda n, d, ratio: (attention(n, d), mlp(n, d, 4)),
            "on every token": lambda n, d, ratio: (attention(n, d), mlp(1, d, ratio)),
            "not n²": lambda n, d, ratio: (attention(n, d), n * mlp(n, d, ratio)),
            "not r·d": lambda n, d, ratio: (attention(n, d), 2 * n * ratio * d),
        },
    )


def _by_gradient(block, name, x):
    """Another right answer: ask autograd whether the output depends on the weight."""
    block.eval()
    output = block(x)
    weight = block.get_submodule(name).weight
    (gradient,) = torch.autograd.grad(output, weight, torch.randn_like(output), allow_unused=True)
    return gradient is not None and bool(gradient.any())


def _by_changing_a_copy(change, same):
    """Does the output of a copy stay the same when the norm's weight is changed in it?"""

    @torch.no_grad()
    def fn(block, name, x):
        twin = copy.deepcopy(block).eval()
        before = twin(x)
        change(twin.get_submodule(name).weight)
        return not same(before, twin(x))

    return fn


def _weights_left_at_zero(block, name, x):
    before = block(x)
    torch.nn.init.zeros_(block.get_submodule(name).weight)
    return not torch.equal(before, block(x))


def _without_eval(block, name, x):
    before = block(x)
    norm = block.get_submodule(name)
    norm.weight.data += 1
    after = block(x)
    norm.weight.data -= 1
    return not torch.equal(before, after)


def _old_gradient(block, name, x):
    block.eval()(x).square().sum().backward()
    return block.get_submodule(name).weight.grad is not None


def _any_norm(block, name, x):
    return norm_is_alive(block, "norm1", x)


def _gradient_of_the_sum(block, name, x):
    weight = block.get_submodule(name).weight
    (gradient,) = torch.autograd.grad(block.eval()(x).sum(), weight, allow_unused=True)
    return gradient is not None and bool(gradient.abs().max() > 1e-3)


def test_norm_is_alive():
    wrong = {
        "it runs": lambda block, name, x: name in dict(block.named_modules()),
        "called dead": lambda block, name, x: False,
        "inverted": lambda block, name, x: not norm_is_alive(block, name, x),
        "norm1.weight of the TransformerEncoderLayer was changed": _weights_left_at_zero,
        "dropout alone": _without_eval,
        "left over": _old_gradient,
        "as LayerScale may do": _by_changing_a_copy(torch.nn.init.normal_, torch.allclose),
        "0 to begin with": _by_changing_a_copy(torch.nn.init.zeros_, torch.equal),
        "use `name`": _any_norm,
        "not their sum": _gradient_of_the_sum,
        "True or False": lambda block, name, x: block(x),
    }
    assert_hints("norm_is_alive", norm_is_alive, wrong)
    assert_hints("norm_is_alive", _by_gradient, wrong)
