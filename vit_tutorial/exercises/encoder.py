"""Exercises of chapter 4: the encoder block."""

import copy
import math
from collections.abc import Callable
from functools import partial
from operator import call

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.probes import gradient_of

EXERCISES: dict[str, Exercise] = {}


def layer_norm(x: Float[Tensor, "... d"], weight: Float[Tensor, " d"], bias: Float[Tensor, " d"], eps: float) -> Tensor:
    """Each token minus its mean, over the root of its variance plus eps; then one scale and one shift per channel."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, keepdim=True, correction=0)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


def _tokens(*shape, scale=1.0, shift=0.0, eps=1e-6):
    """Arguments of layer_norm."""
    return scale * torch.randn(shape) + shift, torch.rand(shape[-1]) + 0.5, torch.randn(shape[-1]), eps


def _over(root=lambda v, eps: (v + eps).sqrt(), dims=-1, correction=0):
    """layer_norm by what it divides by, made of variance and eps, and by the axes of its statistics."""
    return lambda x, w, b, eps: (
        (x - x.mean(dims, keepdim=True)) / root(x.var(dims, keepdim=True, correction=correction), eps) * w + b
    )


def _by_module(x, weight, bias, eps):
    """PyTorch's own layer, with the weights copied in."""
    norm = nn.LayerNorm(x.shape[-1], eps)
    norm.load_state_dict({"weight": weight, "bias": bias})
    return norm(x)


def _or_gradient(fn, x, weight, *others):
    """The result; the gradient of x, if that alone is to learn."""
    result = fn(x, weight, *others)
    return gradient_of(result, x) if x.requires_grad and not weight.requires_grad else result


EXERCISES["layer_norm"] = Exercise(
    reference=layer_norm, truth=lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, eps),
    given=lambda b=2, n=5, d=6: _tokens(b, n, d, scale=2, shift=3), smallest={"d": 2}, tolerance=1e-4,
    run=_or_gradient,
    otherwise="the numbers differ from F.layer_norm on ordinary tokens",
    cases=[
        Case(lambda: _tokens(2, 3, 4, 5), "right for x of 3 axes, wrong for 4. The channels are the last axis: dim=-1",
             _over(dims=2)),
        Case(lambda: _tokens(6), "right for x of 3 axes, wrong for one token (d,): dim=-1, not dim=2"),
        Case(lambda: (torch.ones(1, 6), *_tokens(6)[1:]),
             "eps is missing: a token whose channels are all equal divides zero by zero", _over(lambda v, _: v.sqrt())),
        Case(lambda: _tokens(5, 6, scale=0.01, eps=1e-4), "right on ordinary tokens, wrong on tiny ones: see eps"),
        Case(lambda: ((given := _tokens(2, 5, 6, scale=2))[0].requires_grad_(), *given[1:]),
             "the numbers are right, the gradient of x is not: it must flow through the mean and the variance as well. "
             "torch.no_grad(), .detach() and .data hide a part of the computation from autograd",
             _over(lambda v, eps: (v.detach() + eps).sqrt())),
    ], mistakes={
        "the statistics need keepdim=True to line up with x": lambda x, w, b, eps: (x - x.mean(-1)) / x.var(-1) * w + b,
        "the channels are gone. Don't average the result": lambda x, *others: layer_norm(x, *others).mean(-1),
        "you normalized over the tokens of an image (dim 1). Normalize each token by itself: dim=-1": _over(dims=1),
        "you normalized over the batch, as BatchNorm does. Normalize each token by itself: dim=-1": _over(dims=0),
        "you normalized all tokens of an image together. Normalize each by itself: dim=-1": _over(dims=(1, 2)),
        "you normalized the whole tensor at once. Normalize each token by itself: dim=-1": _over(dims=(0, 1, 2)),
        "the variance divides by d − 1, torch's default. LayerNorm divides by d: correction=0": _over(correction=1),
        "you divided by the variance. Divide by its root": _over(torch.add),
        "the mean is still in there: subtract it before dividing":
            lambda x, w, b, eps: x / (x.var(-1, keepdim=True, correction=0) + eps).sqrt() * w + b,
        "nothing is divided by the root of the variance plus eps": _over(lambda v, eps: 1),
        "that is RMSNorm, which subtracts no mean. LayerNorm does": lambda x, w, b, eps: F.rms_norm(x, w.shape, w) + b,
        "weight and bias are missing: times weight, plus bias": lambda x, w, b, eps: F.layer_norm(x, w.shape, eps=eps),
        "the weight is missing": lambda x, w, b, eps: F.layer_norm(x, w.shape, None, b, eps),
        "the bias is missing": lambda x, w, b, eps: F.layer_norm(x, w.shape, w, None, eps),
        "weight and bias are swapped": lambda x, w, b, eps: layer_norm(x, b, w, eps),
        "the bias was added too early: times weight, then plus bias": lambda x, w, b, eps: layer_norm(x, w, b * w, eps),
        "eps is outside the root. It belongs inside: √(variance + eps)": _over(lambda v, eps: v.sqrt() + eps),
        "eps is squared, or far too small: the root holds variance + eps": _over(lambda v, eps: (v + eps**2).sqrt()),
        "you clamp the variance at eps. Add eps to it: variance + eps": _over(lambda v, eps: v.clamp(min=eps).sqrt()),
        **{f"eps is an argument; you wrote {one} into the formula": _over(lambda v, _, one=one: (v + one).sqrt())
           for one in (1e-5, 1e-6, 1e-12)},
    }, right=[
        _by_module, lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b, eps),
        lambda x, w, b, eps: ((y := x - x.mean(-1, True)) * (y.square().mean(-1, True) + eps).rsqrt()).mul(w).add(b),
    ])  # fmt: skip


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x times the probability that a standard normal variable lies below x (Hendrycks and Gimpel 2016)."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


ROOT = math.sqrt(2)
EXERCISES["gelu"] = Exercise(
    reference=gelu, truth=lambda x: x * torch.special.ndtr(x), otherwise="the numbers differ from x·Φ(x)",
    given=lambda b=2, n=31: (torch.linspace(-5, 5, b * n).reshape(b, n),),
    shape="the GELU acts on each number by itself",
    cases=[
        Case(lambda: (torch.linspace(-4, 4, 7),), "right for two axes, wrong for one: x may have any shape"),
        Case(lambda: (torch.linspace(-4, 4, 48).reshape(2, 3, 2, 4),), "right for two axes, wrong for four: x may have "
             "any shape"),
        Case(lambda: (torch.linspace(-4, 4, 6, dtype=torch.float64).reshape(2, 3),), "right for float32, wrong for "
             "float64: x may have any floating-point dtype"),
    ], mistakes={
        "that is the tanh approximation. The exact GELU uses torch.erf": lambda x: F.gelu(x, approximate="tanh"),
        "that is x·sigmoid(1.702·x), an approximation. The exact one uses erf": lambda x: x * (1.702 * x).sigmoid(),
        "that is x·sigmoid(x), called SiLU or Swish. Φ is the normal distribution's, not the logistic one's": F.silu,
        "that is ReLU: it multiplies by 0 or 1. The GELU multiplies by Φ(x), which lies between": F.relu,
        "the factor ½ is missing: erf runs from −1 to 1, so 1 + erf runs from 0 to 2": lambda x: 2 * gelu(x),
        "erf(x) instead of erf(x/√2): Φ(x) = ½·(1 + erf(x/√2))": lambda x: x * 0.5 * (1 + torch.erf(x)),
        "x is multiplied by √2 inside erf. Divide by it: erf(x/√2)": lambda x: x * 0.5 * (1 + torch.erf(x * ROOT)),
        "√2 divides x, inside erf: erf(x/√2), not erf(x)/√2": lambda x: x * 0.5 * (1 + torch.erf(x) / ROOT),
        "the root is missing: erf(x/√2), not erf(x/2)": lambda x: x * 0.5 * (1 + torch.erf(x / 2)),
        "that is Φ(x) alone. Multiply by x": torch.special.ndtr,
        "the 1 is missing: Φ(x) = ½·(1 + erf(x/√2))": lambda x: x * 0.5 * torch.erf(x / ROOT),
        "½ multiplies the whole bracket: ½·(1 + erf), not ½ + erf": lambda x: x * (0.5 + torch.erf(x / ROOT)),
        "that is x times the probability of a value above x: a sign inside erf": lambda x: x * torch.special.ndtr(-x),
        "that is x times the normal density. Φ is its integral": lambda x: x * (-x * x / 2).exp() / math.tau**0.5,
        "math.erf takes one number, torch.erf a tensor": lambda x: x * 0.5 * (1 + math.erf(x / ROOT)),
        "the GELU acts on each number by itself": lambda x: gelu(x).sum(-1),
    }, right=[F.gelu, lambda x: x * torch.distributions.Normal(0, 1).cdf(x)])  # fmt: skip


def pre_norm_block(
    x: Float[Tensor, "b n d"], norm1: Callable, attn: Callable, norm2: Callable, mlp: Callable
) -> Float[Tensor, "b n d"]:
    """Two residual lines: equations 2 and 3 of Dosovitskiy et al. 2021."""
    x = x + attn(norm1(x))
    return x + mlp(norm2(x))


def _block_input(b=2, n=5, d=6):
    """Tokens, and the four functions of PyTorch's own pre-norm layer."""
    layer = nn.TransformerEncoderLayer(d, 1, d + 5, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64)
    for parameter in [*layer.norm1.parameters(), *layer.norm2.parameters()]:
        nn.init.uniform_(parameter, 0.5, 1.5)  # fresh norms are all alike; no mix-up would show

    def attn(x):
        return layer.self_attn(x, x, x, need_weights=False)[0]

    def mlp(x):
        return layer.linear2(F.gelu(layer.linear1(x)))

    attn.layer = layer
    return torch.randn(b, n, d).double(), layer.norm1, attn, layer.norm2, mlp


def _block(second=lambda x, y, n, f: y + f(n(y)), first=lambda x, n, f: x + f(n(x))):
    """Two lines, each with its norm n and its branch f: y from the block's input x, and the output from both."""
    return lambda x, norm1, attn, norm2, mlp: second(x, first(x, norm1, attn), norm2, mlp)


def _both(line):
    return _block(lambda x, y, n, f: line(y, n, f), line)


def _with_parts(*order):
    """A right block that takes its parts in another order."""
    return lambda x, *parts: pre_norm_block(x, *(parts[i] for i in order))


EXERCISES["pre_norm_block"] = Exercise(
    reference=pre_norm_block, truth=lambda x, norm1, attn, *_: attn.layer(x), given=_block_input,
    shape="a block keeps the shape, so that blocks can be stacked",
    otherwise="the numbers differ from nn.TransformerEncoderLayer(norm_first=True)",
    cases=[Case(lambda: (torch.ones(2, 3, 4), *[nn.Identity()] * 4), truth=torch.full((2, 3, 4), 4.0),
                hint="with parts that return what they are given, the result is 4·x, and x stays as it was")],
    mistakes={
        "that is post-norm, the order of 2017. Normalize the input of each branch": _both(lambda x, n, f: n(x + f(x))),
        "nothing is added: both residuals are missing": _both(lambda x, n, f: f(n(x))),
        "the residual around the MLP is missing": _block(lambda x, y, n, f: f(n(y))),
        "the residual around attention is missing": _block(first=lambda x, n, f: f(n(x))),
        "the MLP's result was added to the block's input: attention's is lost": _block(lambda x, y, n, f: x + f(n(y))),
        "norm1 is used twice and norm2 never": _with_parts(0, 1, 0, 3),
        "norm1 and norm2 are swapped": _with_parts(2, 1, 0, 3),
        "attention and the MLP are swapped: attn comes first": _with_parts(0, 3, 2, 1),
        "the MLP runs before attention": _with_parts(2, 3, 0, 1),
        "both residuals start from normalized tokens. Add to x itself": _both(lambda x, n, f: n(x) + f(n(x))),
        "the second residual starts from norm2's output. Add to its input": _block(lambda x, y, n, f: n(y) + f(n(y))),
        "the first residual starts from norm1's output. Add to x itself": _block(first=lambda x, n, f: n(x) + f(n(x))),
        "the branches run side by side. The MLP reads what attention made": _block(lambda x, y, n, f: y + f(n(x))),
        "the MLP reads attention's result alone. It reads the sum, x + attn(norm1(x))":
            _block(lambda x, y, n, f: x + y + f(n(y)), lambda x, n, f: f(n(x))),
        "x was added twice: the first line's result has x in it already": _block(lambda x, y, n, f: x + y + f(n(y))),
        "no norm is used: x + attn(x), then x + mlp(x)": _both(lambda x, n, f: x + f(x)),
        "norm1 is not used: attention reads norm1(x)": _block(first=lambda x, n, f: x + f(x)),
        "norm2 is not used: the MLP reads norm2(x)": _block(lambda x, y, n, f: y + f(y)),
        "the norms come after the branches. Put them before: x + branch(norm(x))": _both(lambda x, n, f: x + n(f(x))),
        "the MLP's result is lost: keep or return x + mlp(norm2(x))": _block(lambda x, y, n, f: y),
        "attention's result is lost: x + attn(norm1(x)) must be kept, in x": _block(first=lambda x, n, f: x),
        "one norm too many, at the end: only the model as a whole has that": _block(lambda x, y, n, f: n(y + f(n(y)))),
    }, right=[lambda x, norm1, attn, norm2, mlp: (y := attn(norm1(x)).add(x)).add(mlp(norm2(y)))])  # fmt: skip


def drop_path(x: Float[Tensor, "b ..."], p: float, training: bool) -> Float[Tensor, "b ..."]:
    """In training, zero each image with probability p and divide the others by 1 − p; in evaluation, x as it is."""
    if not training or p == 0:
        return x
    keep = torch.rand(x.shape[0], *[1] * (x.ndim - 1), device=x.device) >= p
    return x * keep / (1 - p)


# What is asked of drop_path. Draws differ from answer to answer, so we compare what they must have in common.
def _kind(fn, *args):
    result = fn(*args)
    return torch.zeros_like(result) if isinstance(result, Tensor) else result


def _draws(fn, x, p, training):
    """Statistics of 30 calls: whether tokens, channels and images are zeroed alike; the least and the largest fraction
    of zeroed images (p if close); whether images and their number vary; least and largest factor of the others."""
    factors = torch.stack([fn(x, p, training) / x for _ in range(30)])
    zero, stays = factors == 0, factors[factors != 0]
    units = [(zero == zero.narrow(axis, 0, 1)).all().item() for axis in (3, 2, 1)]
    images = zero.flatten(2).all(2)
    fractions = [p if abs(one - p) < 0.1 else round(one, 1) for one in images.float().mean(1).tolist()]
    varied = [len(images.unique(dim=0)) > 1, len(images.sum(1).unique()) > 1]
    scales = stays.aminmax() if len(stays) else (0, 0)
    return torch.tensor([*units, min(fractions), max(fractions), *varied, *scales], dtype=torch.float32)


def _draws_in_words(got, want, question, x, p, training):
    """The first of these numbers that is wrong."""
    if question is not _draws:
        return ""
    if (got[:3] != want[:3]).any():
        unit = "images" if got[:2].all() else "tokens" if got[0] else "channels" if got[1] else "numbers"
        return f"you drop single {unit}{', the same in all images' * bool(got[2])}. Draw once for each image: (b, 1, 1)"
    if (got[3:5] != want[3:5]).any():
        return f"with p = {p} a fraction of {got[3]:.1f} to {got[4]:.1f} of the images was dropped, from call to call"
    return f"the images that stay must be divided by 1 − p = {1 - p}, so that the mean stays"


def _gradient(fn, x, p, training):
    """1 if the gradient is what each image was multiplied by."""
    leaf = x.clone().requires_grad_()
    result = fn(leaf, p, training)
    (gradient,) = torch.autograd.grad(result.sum(), leaf) if result.requires_grad else (0 * x - 1,)
    return torch.isclose(gradient.double(), result.detach().double() / x).all().float()[None]


def _keeps_dtype(fn, x, p, training):
    """1 if the result has the dtype of x."""
    return torch.tensor([float(fn(x, p, training).dtype == x.dtype)])


def _asked(question, *shape, p=0.25, training=True, dtype=torch.float32):
    """Arguments, with no zero in the images."""
    return lambda: (question, torch.rand(shape, dtype=dtype) + 1, p, training)


def _per_image(x):
    return [len(x)] + [1] * (x.ndim - 1)


def _in_training(drop):
    return lambda x, p, training: drop(x, p) if training and p else x


def _masked(shape=_per_image, scale=lambda p: 1 / (1 - p), draw=lambda p, s: torch.rand(s) >= p):
    return _in_training(lambda x, p: x * draw(p, shape(x)) * scale(p))


EXERCISES["drop_path"] = Exercise(
    reference=drop_path, truth=lambda x, p, training: x, explain=_draws_in_words,
    run=lambda fn, question, *args: question(fn, *args),
    cases=[
        Case(_asked(call, 200, 5, 6, training=False), "in evaluation nothing is dropped or scaled: return x as it is",
             lambda x, p, training: drop_path(x, p, True)),
        Case(_asked(call, 200, 5, 6, p=0.0), "with p = 0 nothing changes", lambda x, p, t: drop_path(x, p or 0.1, t)),
        Case(_asked(_kind, 200, 5, 6), "draw a mask of shape (b, 1, 1); it broadcasts"),
        Case(_asked(_kind, 1, 5, 6), "right for 200 images, wrong for one: does a squeeze() drop its axis?",
             _in_training(lambda x, p: drop_path(x, p, True).squeeze(0))),
        Case(_asked(_draws, 200, 5, 6), truth=torch.tensor([1, 1, 0, 0.25, 0.25, 1, 1, 4 / 3, 4 / 3])),
        *(Case(_asked(_kind, *shape), "x may have any number of axes: use x.ndim, not 3")
          for shape in [(7, 3), (2, 3, 4, 5), (5,)]),
    ], notes=[
        Case(_asked(_gradient, 40, 5, 6), "its gradient is wrong: no_grad(), .detach() or .data hides x from autograd",
             lambda x, p, training: drop_path(x.detach(), p, training), torch.ones(1)),
        Case(_asked(_keeps_dtype, 4, 5, 6, dtype=torch.float64), "float64 comes back as another dtype, or fails",
             _in_training(lambda x, p: drop_path(x, p, True).float()), torch.ones(1)),
    ], mistakes={
        "the wrong way round: drop images in training, not in evaluation": lambda x, p, t: drop_path(x, p, not t),
        "the factor 1 − p belongs in training, as a divisor. In evaluation x comes back as it is":
            lambda x, p, training: _masked(scale=lambda p: 1)(x, p, True) if training else x * (1 - p),
        "you drop single tokens. Draw once for each image: shape (b, 1, 1)": _masked(lambda x: (*x.shape[:2], 1)),
        "you drop channels. Draw once for each image: shape (b, 1, 1)": _masked(lambda x: (len(x), 1, x.shape[-1])),
        "you drop single numbers: that is dropout. Draw once for each image: a mask of shape (b, 1, 1)": F.dropout,
        "you drop single numbers, the same in all images": _masked(lambda x: x.shape[1:]),
        "nothing is dropped in training: zero each image with probability p": lambda x, p, training: x,
        "everything is zeroed in training. p is the chance for one image": _in_training(lambda x, p: 0 * x),
        "one draw decides for the whole batch. Draw for each image: a mask of shape (b, 1, 1)": _masked(lambda x: 1),
        "no image is zeroed. Compare the random numbers with p": _masked(draw=lambda p, s: torch.rand(s) + 1 - p),
        "p is the chance to drop, not to keep": _masked(scale=lambda p: 1 / p, draw=lambda p, s: torch.rand(s) < p),
        "randn is normal. Use torch.rand, which is uniform": _masked(draw=lambda p, s: torch.randn(s) >= p),
        "two calls drop the same images: don't set a seed": lambda *args: torch.manual_seed(3) and drop_path(*args),
        "you drop a fixed number of images, so one alone is never dropped or always. Draw for each image":
            _masked(draw=lambda p, s: (torch.randperm(s[0]) >= round(p * s[0])).reshape(s)),
        "the images that stay are not scaled, so the mean shrinks. Divide by 1 − p": _masked(scale=lambda p: 1),
        "the images that stay were divided by p. Divide by 1 − p, the chance to stay": _masked(scale=lambda p: 1 / p),
        "the images that stay were multiplied by 1 − p. Divide by it": _masked(scale=lambda p: 1 - p),
        "x may have any number of axes: use x.ndim, not the 3 of (b, 1, 1)": _masked(lambda x: (len(x), 1, 1)),
    }, right=[
        _in_training(lambda x, p: x * x.new_empty(_per_image(x)).bernoulli_(1 - p) / (1 - p)),
        lambda x, p, training: torch.stack([F.dropout(x.new_ones(()), p, training) * one for one in x]),
    ])  # fmt: skip


def drop_path_rates(drop_path_rate: float, depth: int) -> list[float]:
    """The rate of each block: 0 for the first, drop_path_rate for the last, a straight line between."""
    return [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]


def _each(rate_of):
    """The rates of n blocks by the number i of each."""
    return lambda rate, depth: [rate_of(rate, i, depth) for i in range(depth)]


EXERCISES["drop_path_rates"] = Exercise(
    reference=drop_path_rates, shape="one rate for each block",
    run=lambda fn, *args: rates.tolist() if getattr(rates := fn(*args), "ndim", 0) == 1 else rates,  # arrays, too
    truth=lambda rate, depth: torch.linspace(0, rate, depth, dtype=torch.float64).tolist(),
    cases=[
        Case(lambda: (0.3, 5), "for drop_path_rate 0.3 and depth 5 the rates are 0, 0.075, 0.15, 0.225, 0.3"),
        Case(lambda: (0.7, 12), "right for 0.3 and 5 blocks, wrong for 0.7 and 12"),
        Case(lambda: (0.2, 1), "a single block is the first one: its rate is 0",
             lambda rate, depth: drop_path_rates(rate, depth) if depth > 1 else [rate]),
        Case(lambda: (0.4, 2), "of two blocks the first has rate 0 and the second drop_path_rate",
             _each(lambda r, i, n: r * i / max(n - 1, 2 * (n > 1), 1))),
        Case(lambda: (0.0, 4), "with drop_path_rate 0 every block has rate 0"),
    ], mistakes={
        "the last block stays below the rate: depth blocks have depth − 1 steps": _each(lambda r, i, n: r * i / n),
        "the first block has rate 0, as in timm (Huang et al. 2016 go higher)": _each(lambda r, i, n: r * (i + 1) / n),
        "ZeroDivisionError: depth 1 has no step. A single block has rate 0": _each(lambda r, i, n: r * i / (n - 1)),
        "the line falls. The first blocks are skipped least, the last most": lambda r, n: drop_path_rates(r, n)[::-1],
        "every block has the same rate. The first should have 0, and then it rises": _each(lambda r, i, n: r),
        "these are the chances to keep. Return those to drop": _each(lambda r, i, n: 1 - drop_path_rates(r, n)[i]),
        "there is one rate too many: return one for each block": lambda r, n: [r * i / n for i in range(n + 1)],
        "the last rate is missing: a range, or arange, stops before its end": lambda r, n: drop_path_rates(r, n)[:-1],
        "return a list with one rate for each block, not a number": lambda rate, depth: rate,
        "a step is rate / (depth − 1), not the whole rate": _each(lambda r, i, n: r * i),
        "drop_path_rate is missing: the line ends at it, not at 1": lambda rate, depth: drop_path_rates(1, depth),
        "the line should be straight: each step is the same": _each(lambda r, i, n: r * (i / max(n - 1, 1)) ** 2),
        "the rates are rounded. Return them as they are": _each(lambda r, i, n: round(drop_path_rates(r, n)[i], 2)),
    }, right=[lambda rate, depth: torch.linspace(0, rate, depth), lambda *args: tuple(drop_path_rates(*args))],
)  # fmt: skip


def block_multiply_adds(num_tokens: int, dim: int, mlp_ratio: float) -> tuple[int, int]:
    """Multiply-adds of one block for one image: (attention, MLP). Norms, biases and the softmax are not counted."""
    projections = 4 * num_tokens * dim * dim  # queries, keys, values, and the one at the end
    mixing = 2 * num_tokens * num_tokens * dim  # scores, and the weighted mean of the values
    return projections + mixing, 2 * num_tokens * dim * int(dim * mlp_ratio)


def _counted_by_torch(n, d, ratio):
    """The same from PyTorch's count of matrix products, where a multiply-add is two operations."""
    x, matrix, hidden = torch.empty(n, d, device="meta"), torch.empty(d, d, device="meta"), math.floor(d * ratio)
    with FlopCounterMode(display=False) as attention:
        q, k, v = x @ matrix, x @ matrix, x @ matrix
        (q @ k.T) @ v @ matrix
    with FlopCounterMode(display=False) as mlp:
        nn.Sequential(nn.Linear(d, hidden), nn.Linear(hidden, d)).to("meta")(x)
    return attention.get_total_flops() // 2, mlp.get_total_flops() // 2


def _attention(off):
    """Attention's count, off by so much."""
    return lambda n, d, ratio: (block_multiply_adds(n, d, ratio)[0] + off(n, d), block_multiply_adds(n, d, ratio)[1])


def _mlp(count):
    """Another count for the MLP, from n, d, the ratio r and the hidden width h."""
    return lambda n, d, ratio: (block_multiply_adds(n, d, ratio)[0], count(n, d, ratio, int(d * ratio)))


EXERCISES["block_multiply_adds"] = Exercise(
    reference=block_multiply_adds, truth=_counted_by_torch, tolerance=0,
    # One of the two counts, so that a mistake in one does not hide that in the other.
    run=lambda fn, i, *a: pair[i] if isinstance(pair := fn(*a), list | tuple | Tensor) and len(pair) == 2 else pair,
    cases=[
        Case(lambda: (0, 50, 12, 3.0), "attention on 50 tokens of 12 takes 88,800 multiply-adds, the first number"),
        Case(lambda: (1, 50, 12, 3.0), "the MLP of ratio 3.0 takes 43,200 multiply-adds there, the second number"),
        Case(lambda: (0, 7, 10, 2.673), "attention is right for 50 tokens of 12, wrong for 7 tokens of 10"),
        Case(lambda: (1, 7, 10, 2.673), "the hidden width is int(dim * mlp_ratio), rounded down: 10 · 2.673 makes 26"),
    ], mistakes={
        "return two numbers, (attention, mlp), not their sum": lambda *sizes: sum(block_multiply_adds(*sizes)),
        "the two are swapped: return (attention, mlp)": lambda *sizes: block_multiply_adds(*sizes)[::-1],
        "you counted operations. A multiplication and the addition after it are one multiply-add":
            lambda *sizes: tuple(2 * count for count in block_multiply_adds(*sizes)),
        "attention's last projection is missing: four matrices, not three": _attention(lambda n, d: -n * d * d),
        "attention has four projections, not one: q, k, v, and the last": _attention(lambda n, d: -3 * n * d * d),
        "attention multiplies n × n twice: for scores, and averaging values": _attention(lambda n, d: -n * n * d),
        "each of the n × n scores takes d multiply-adds, not one": _attention(lambda n, d: 2 * n * n - 2 * n * n * d),
        "attention's mixing is missing: n × n scores, and mean of values": _attention(lambda n, d: -2 * n * n * d),
        "attention's four projections are missing": _attention(lambda n, d: -4 * n * d * d),
        "attention's projections run on every token": _attention(lambda n, d: 4 * (1 - n) * d * d),
        "each token meets every other: mixing costs n², not n": _attention(lambda n, d: 2 * n * (1 - n) * d),
        "the class token is one of num_tokens already: no + 1": lambda n, *sizes: block_multiply_adds(n + 1, *sizes),
        "biases are not counted: matrix products only": lambda n, d, ratio: (
            4 * n * (d + 1) * d + 2 * n * n * d, n * (d + 1) * int(d * ratio) + n * (int(d * ratio) + 1) * d),
        "the softmax is not counted: matrix products only": _attention(lambda n, d: n * n),
        "the MLP has two layers: one up to mlp_ratio·dim, one back": _mlp(lambda n, d, r, h: n * d * h),
        "mlp_ratio is an argument; you wrote 4 into the formula": _mlp(lambda n, d, r, h: 8 * n * d * d),
        "the MLP runs on every token: multiply by num_tokens": _mlp(lambda n, d, r, h: 2 * d * h),
        "the MLP never compares tokens, so its cost grows with n, not n²": _mlp(lambda n, d, r, h: 2 * n * n * d * h),
        "a layer from d to r·d takes d·r·d multiply-adds for each token, not r·d": _mlp(lambda n, d, r, h: 2 * n * h),
        "the MLP's second layer is r·d × d, back to dim, not r·d × r·d": _mlp(lambda n, d, r, h: n * h * (d + h)),
        "mlp_ratio was rounded. Round the width, int(dim * mlp_ratio)": _mlp(lambda n, d, r, h: 2 * n * d * d * int(r)),
        "the hidden width is whole: int(dim * mlp_ratio), 26 and not 26.73": _mlp(lambda n, d, r, h: 2 * n * d * d * r),
        "the hidden width is rounded down, by int(): 26, not 27": _mlp(lambda n, d, r, h: 2 * n * d * round(d * r)),
        "int() rounds the product. Round the width, dim * mlp_ratio": _mlp(lambda n, d, r, h: int(2 * n * d * d * r)),
    }, right=[lambda n, d, ratio: [2 * n * d * (2 * d + n), n * d * int(d * ratio) * 2.0]])  # fmt: skip


@torch.no_grad()
def norm_is_alive(block: nn.Module, name: str, x: Float[Tensor, "b n d"]) -> bool:
    """Whether the block's output depends on the LayerNorm called ``name``: change it in a copy, and compare."""
    twin = copy.deepcopy(block).eval()  # in evaluation, since dropout would make any two calls differ
    before = twin(x)
    _normal(twin.get_submodule(name))
    return not torch.equal(before, twin(x))


def _normal(norm, init=nn.init.normal_):
    for parameter in norm.parameters():
        init(parameter)


DIM, ZERO = 6, partial(_normal, init=nn.init.zeros_)
LAYER = partial(nn.TransformerEncoderLayer, DIM, 3, DIM + 5, dropout=0.0, batch_first=True)


class _Patient(nn.Module):
    """Two residual lines whose norms are run and their results thrown away; those named in ``alive`` are used.

    ``loudness`` is a factor of all branches, as in LayerScale; ``last`` runs on the output, ``change`` on a new norm1.
    """

    def __init__(self, *alive: str, loudness=1.0, last=lambda y: y, change=lambda norm: norm):
        super().__init__()
        self.norm1, self.norm2, self.drop = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.alive, self.loudness, self.last = alive, loudness, last
        change(self.eval().norm1)

    def forward(self, x):
        for name, branch in (("norm1", self.fc1), ("norm2", self.fc2)):
            normed = self.get_submodule(name)(x)
            x = x + self.loudness * self.drop(branch(normed if name in self.alive else x))
        return self.last(x)


def _beside_a_large_number(y):
    """Sums and means of all outputs hold so large a number that rounding hides every change of the others."""
    return y + F.one_hot(torch.tensor(0), y.numel()).reshape(y.shape) * 1e12


def _norm(hint, truth, make, caught=None, name="norm1"):
    """A case: whether this norm is alive in the block that ``make`` makes."""
    return Case(lambda: (make(), name, torch.rand(2, 4, DIM) + 1), hint, caught, truth)


def _by_changing(change=_normal, equal=torch.equal, find_norm=nn.Module.get_submodule, mode=nn.Module.eval):
    """Whether the output of a copy changes with its norm."""

    @torch.no_grad()
    def fn(block, name, x):
        twin = mode(copy.deepcopy(block))
        before = twin(x)
        change(find_norm(twin, name))
        return not equal(before, twin(x))

    return fn


def _by_gradient(judge, loss=lambda y: (y * torch.arange(y.numel()).reshape(y.shape).sin()).sum(), own=copy.deepcopy):
    """Whether a loss has a gradient for the norm's weight."""

    def fn(block, name, x):
        twin = own(block).eval()
        loss(twin(x)).backward()
        return judge(twin.get_submodule(name).weight.grad)

    return fn


EXERCISES["norm_is_alive"] = Exercise(
    reference=norm_is_alive, true_means="that the output depends on the norm",
    cases=[
        _norm("a healthy pre-norm block was called dead", True, lambda: LAYER(norm_first=True), lambda *_: False),
        _norm("a dead norm was called alive. It exists and it runs, but nobody uses its result: look at the output",
              False, _Patient, lambda block, name, x: name in dict(block.named_modules())),
        _norm("a dead norm was called alive: dropout alone makes two calls differ. Call block.eval() first",
              False, lambda: _Patient().train(), _by_changing(mode=lambda block: block)),
        _norm("a gradient left over from an earlier step made a dead norm look alive: clear it first",
              False, lambda: _Patient(change=lambda norm: setattr(norm.weight, "grad", torch.ones(DIM))),
              _by_gradient(lambda grad: grad is not None, own=lambda block: block)),
        _norm("in a block whose norm1 is alive and whose norm2 is dead, norm1 was called dead: judge `name` alone",
              True, lambda: _Patient("norm1"), lambda b, _, x: all(norm_is_alive(b, n, x) for n in ("norm1", "norm2"))),
        _norm("in a block whose norm1 is alive and whose norm2 is dead, both got the same answer: use `name`",
              False, lambda: _Patient("norm1"), lambda block, name, x: norm_is_alive(block, "norm1", x), "norm2"),
        _norm("norm1 of a post-norm block was called dead. Its outputs sum to a constant: compare them, not their sum",
              True, LAYER, _by_gradient(lambda grad: grad is not None and bool(grad.abs().max() > 1e-3), torch.sum)),
        _norm("a norm was called dead in a block whose outputs change, but not their mean: compare all outputs",
              True, lambda: _Patient("norm1", last=_beside_a_large_number),
              _by_changing(equal=lambda a, b: a.mean() == b.mean())),
        _norm("a norm was called dead whose branch is scaled by 1e-6. A dead one changes no bit: use torch.equal",
              True, lambda: _Patient("norm1", "norm2", loudness=1e-6), _by_changing(equal=torch.allclose)),
        _norm("a norm whose weight and bias are 0 was called dead: there, setting to 0 or multiplying changes nothing",
              True, lambda: _Patient("norm1", change=ZERO), _by_changing(ZERO)),
        _norm("a norm deeper inside the block, 0.norm1, was called dead: use block.get_submodule(name)",
              True, lambda: nn.Sequential(_Patient("norm1")), _by_changing(find_norm=getattr), "0.norm1"),
        _norm("a norm deeper inside the block, 0.norm2, was called alive: use block.get_submodule(name)",
              False, lambda: nn.Sequential(_Patient("norm1")), name="0.norm2"),
    ],
    # Whether a branch that is multiplied by 0 makes its norm dead, the statement leaves open.
    notes=[_norm("a norm is called alive whose branch is multiplied by 0: it has a gradient, but only zeros in it",
                 False, lambda: _Patient("norm1", loudness=0.0), _by_gradient(lambda grad: grad is not None))],
    mistakes={"a fresh norm has weight 1 and bias 0 already: setting them to that changes nothing":
                 _by_changing(nn.LayerNorm.reset_parameters)},
    right=[_by_gradient(lambda grad: grad is not None and bool(grad.any()))])  # fmt: skip
