"""Exercises of chapter 4: the encoder block."""

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vit_tutorial.exercises.declaration import Case, Exercise

EXERCISES: dict[str, Exercise] = {}


def layer_norm(x: Float[Tensor, "... d"], weight: Float[Tensor, " d"], bias: Float[Tensor, " d"], eps: float) -> Tensor:
    """Each token minus its mean, over the root of its variance plus eps; then one scale and one shift per channel."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, keepdim=True, correction=0)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


def _tokens(*shape, scale=1.0, shift=0.0, eps=1e-6):
    """Arguments of layer_norm."""
    return scale * torch.randn(shape) + shift, torch.rand(shape[-1]) + 0.5, torch.randn(shape[-1]), eps


def _centered(x):
    return x - x.mean(-1, keepdim=True)


def _var(x):
    return x.var(-1, keepdim=True, correction=0)


def _normed(x, eps=0.0, dims=-1, correction=0):
    return (x - x.mean(dims, keepdim=True)) / (x.var(dims, keepdim=True, correction=correction) + eps).sqrt()


def _scaled(norm):
    """What ``norm(x, eps)`` returns, times the weight, plus the bias."""
    return lambda x, w, b, eps: norm(x, eps) * w + b


LAYER_NORM = {
    "the statistics need keepdim=True to line up with x":
        lambda x, w, b, eps: (x - x.mean(-1)) / x.var(-1) * w + b,
    "the channels are gone. Take no mean of the result": lambda x, w, b, eps: _normed(x, eps).mean(-1),
    "you normalized over the tokens of an image (dim 1). Each token is normalized by itself: dim=-1":
        _scaled(lambda x, eps: _normed(x, eps, 1)),
    "you normalized over the batch, as BatchNorm does. Each token is normalized by itself: dim=-1":
        _scaled(lambda x, eps: _normed(x, eps, 0)),
    "you normalized all tokens of an image together. Each token has its own mean and variance: dim=-1 only":
        _scaled(lambda x, eps: _normed(x, eps, (1, 2))),
    "you normalized the whole tensor with one mean and one variance. Each token has its own: dim=-1":
        _scaled(lambda x, eps: _normed(x, eps, (0, 1, 2))),
    "the variance divides by d − 1, torch's default. LayerNorm divides by d: correction=0":
        _scaled(lambda x, eps: _normed(x, eps, correction=1)),
    "you divided by the variance. Divide by its root": _scaled(lambda x, eps: _centered(x) / (_var(x) + eps)),
    "the mean is still in there: subtract it before dividing": _scaled(lambda x, eps: x / (_var(x) + eps).sqrt()),
    "nothing is divided by the root of the variance plus eps": _scaled(lambda x, eps: _centered(x)),
    "that is RMSNorm, which subtracts no mean. LayerNorm does": lambda x, w, b, eps: F.rms_norm(x, w.shape, w) + b,
    "weight and bias are missing: multiply by weight, then add bias": lambda x, w, b, eps: _normed(x, eps),
    "the weight is missing": lambda x, w, b, eps: _normed(x, eps) + b,
    "the bias is missing": lambda x, w, b, eps: _normed(x, eps) * w,
    "weight and bias are swapped": lambda x, w, b, eps: _normed(x, eps) * b + w,
    "the bias was added before the multiplication. First times weight, then plus bias":
        lambda x, w, b, eps: (_normed(x, eps) + b) * w,
    "eps stands outside the root, (x − mean) / (std + eps). It belongs inside, with the variance":
        _scaled(lambda x, eps: _centered(x) / (_var(x).sqrt() + eps)),
    "eps is squared, or far too small: the root holds variance + eps": _scaled(lambda x, eps: _normed(x, eps**2)),
    "the variance is kept at eps or above. It is added: variance + eps":
        _scaled(lambda x, eps: _centered(x) / _var(x).clamp(min=eps).sqrt()),
    **{
        f"eps is an argument; you wrote {one} into the formula": _scaled(lambda x, eps, one=one: _normed(x, one))
        for one in (1e-5, 1e-6, 1e-12)
    },
}  # fmt: skip
EXERCISES["layer_norm"] = Exercise(
    reference=layer_norm,
    truth=lambda x, w, b, eps: F.layer_norm(x, x.shape[-1:], w, b, eps),
    given=lambda b=2, n=5, d=6: _tokens(b, n, d, scale=2, shift=3),
    cases=[
        Case(
            given=lambda: _tokens(2, 3, 4, 5),
            hint="right for x of 3 axes, wrong for 4. The channels are the last axis: dim=-1, not dim=2",
            caught=_scaled(lambda x, eps: _normed(x, eps, 2)),
        ),
        Case(given=lambda: _tokens(6), hint="right for x of 3 axes, wrong for one token (d,): dim=-1, not dim=2"),
        Case(
            given=lambda: (torch.ones(1, 6), *_tokens(6)[1:]),
            hint="eps is missing: a token whose channels are all equal divides zero by zero",
            caught=_scaled(lambda x, eps: _normed(x)),
        ),
        Case(
            given=lambda: _tokens(5, 6, scale=0.01, eps=1e-4),
            hint="right on ordinary tokens, wrong on very quiet ones. What does eps do?",
        ),
    ],
    mistakes=LAYER_NORM,
    right=[
        lambda x, w, b, eps: F.layer_norm(x, w.shape, w, b, eps),
        lambda x, w, b, eps: torch.addcmul(b, _centered(x) * (_centered(x).square().mean(-1, True) + eps).rsqrt(), w),
    ],
    smallest={"d": 2},
    otherwise="the numbers differ from F.layer_norm on ordinary tokens",
    tolerance=1e-4,
)


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x times the probability that a standard normal variable lies below x (Hendrycks and Gimpel 2016)."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


ROOT = math.sqrt(2)
EXERCISES["gelu"] = Exercise(
    reference=gelu,
    truth=lambda x: x * torch.special.ndtr(x),
    given=lambda b=2, n=31: (torch.linspace(-5, 5, b * n).reshape(b, n),),
    mistakes={
        "that is the tanh approximation. The exact GELU uses torch.erf": lambda x: F.gelu(x, approximate="tanh"),
        "that is x·sigmoid(1.702·x), a rough approximation. The exact GELU uses torch.erf": lambda x: (
            x * (1.702 * x).sigmoid()
        ),
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
        "that is x times the probability to lie above x: a sign inside erf": lambda x: x * torch.special.ndtr(-x),
        "that is x times the normal density. Φ is its integral, the distribution function": lambda x: (
            x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        ),
        "math.erf takes one number, torch.erf a tensor": lambda x: x * 0.5 * (1 + math.erf(x / ROOT)),
        "the GELU acts on each number by itself": lambda x: gelu(x).sum(-1),
    },
    right=[F.gelu, lambda x: x * torch.distributions.Normal(0, 1).cdf(x)],
    shape="the GELU acts on each number by itself",
    otherwise="the numbers differ from x·Φ(x)",
)


def pre_norm_block(
    x: Float[Tensor, "b n d"], norm1: Callable, attn: Callable, norm2: Callable, mlp: Callable
) -> Float[Tensor, "b n d"]:
    """Two residual lines: equations 2 and 3 of Dosovitskiy et al. 2021."""
    x = x + attn(norm1(x))
    return x + mlp(norm2(x))


class _Parts:
    """The four functions of a pre-norm block, out of PyTorch's layer, for any dtype."""

    def __init__(self, dim: int):
        sizes = {"d_model": dim, "nhead": 1, "dim_feedforward": dim + 5, "dtype": torch.float64}
        self.layer = nn.TransformerEncoderLayer(
            **sizes, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        for parameter in [*self.layer.norm1.parameters(), *self.layer.norm2.parameters()]:
            nn.init.uniform_(parameter, 0.5, 1.5)  # fresh norms are all alike; no mix-up would show

    def norm1(self, x: Tensor) -> Tensor:
        return self.layer.norm1(x.double()).to(x.dtype)

    def attn(self, x: Tensor) -> Tensor:
        return self.layer.self_attn(*[x.double()] * 3, need_weights=False)[0].to(x.dtype)

    def norm2(self, x: Tensor) -> Tensor:
        return self.layer.norm2(x.double()).to(x.dtype)

    def mlp(self, x: Tensor) -> Tensor:
        return self.layer.linear2(F.gelu(self.layer.linear1(x.double()))).to(x.dtype)


def _block_input(b=2, n=5, d=6):
    parts = _Parts(d)
    return torch.randn(b, n, d), parts.norm1, parts.attn, parts.norm2, parts.mlp


def _lines(first=lambda x, n, f: x + f(n(x)), second=lambda x, y, n, f: y + f(n(y))):
    """Two lines, each with its norm n and its branch f: y from the block's input x, and the output from both."""
    return lambda x, norm1, attn, norm2, mlp: second(x, first(x, norm1, attn), norm2, mlp)


def _both(line):
    return _lines(line, lambda x, y, n, f: line(y, n, f))


def _with_parts(*order):
    """A right block that takes its parts in another order."""
    return lambda x, *parts: pre_norm_block(x, *(parts[i] for i in order))


PRE_NORM_BLOCK = {
    "that is post-norm, the order of 2017: you normalized after adding. Normalize the branch's input instead":
        _both(lambda x, n, f: n(x + f(x))),
    "nothing is added: both residuals are missing": _both(lambda x, n, f: f(n(x))),
    "the residual around the MLP is missing": _lines(second=lambda x, y, n, f: f(n(y))),
    "the residual around attention is missing": _lines(lambda x, n, f: f(n(x))),
    "the MLP's result was added to the block's input, so what attention added is lost":
        _lines(second=lambda x, y, n, f: x + f(n(y))),
    "norm1 is used twice and norm2 never": _with_parts(0, 1, 0, 3),
    "norm1 and norm2 are swapped": _with_parts(2, 1, 0, 3),
    "attention and the MLP are swapped: attn comes first": _with_parts(0, 3, 2, 1),
    "the MLP runs before attention": _with_parts(2, 3, 0, 1),
    "both residuals were taken from the normalized tokens. Add each branch to x as it came: x + attn(norm1(x))":
        _both(lambda x, n, f: n(x) + f(n(x))),
    "the second residual was taken from norm2's output. Add the MLP to the stream as it was before norm2":
        _lines(second=lambda x, y, n, f: n(y) + f(n(y))),
    "the first residual was taken from norm1's output. Add attention to x as it came":
        _lines(lambda x, n, f: n(x) + f(n(x))),
    "the branches run side by side, both on x. The MLP comes after attention and sees its result":
        _lines(second=lambda x, y, n, f: y + f(n(x))),
    "the MLP reads attention's result alone. It reads the sum, x + attn(norm1(x))":
        _lines(lambda x, n, f: f(n(x)), lambda x, y, n, f: x + y + f(n(y))),
    "x was added twice: the second line adds to the result of the first, which has x in it":
        _lines(second=lambda x, y, n, f: x + y + f(n(y))),
    "no norm is used: x + attn(x), then x + mlp(x)": _both(lambda x, n, f: x + f(x)),
    "norm1 is not used: attention reads norm1(x)": _lines(lambda x, n, f: x + f(x)),
    "norm2 is not used: the MLP reads norm2(x)": _lines(second=lambda x, y, n, f: y + f(y)),
    "the norms stand after the branches, x + norm(branch(x)). They belong before: x + branch(norm(x))":
        _both(lambda x, n, f: x + n(f(x))),
    "the MLP's result is lost: x + mlp(norm2(x)) must be kept, in x, or returned":
        _lines(second=lambda x, y, n, f: y),
    "attention's result is lost: x + attn(norm1(x)) must be kept, in x": _lines(lambda x, n, f: x),
    "there is one norm too many, on the stream at the end. The model has it once, after its last block":
        _lines(second=lambda x, y, n, f: n(y + f(n(y)))),
}  # fmt: skip
EXERCISES["pre_norm_block"] = Exercise(
    reference=pre_norm_block,
    truth=lambda x, norm1, *_: norm1.__self__.layer(x.double()).to(x.dtype),
    given=_block_input,
    cases=[
        Case(
            given=lambda: (torch.ones(2, 3, 4), *[nn.Identity()] * 4),
            truth=torch.full((2, 3, 4), 4.0),
            hint="with parts that pass on what they are given, 4·x comes out, and x stays as it was",
        )
    ],
    mistakes=PRE_NORM_BLOCK,
    right=[lambda x, norm1, attn, norm2, mlp: (y := attn(norm1(x)).add(x)).add(mlp(norm2(y)))],
    shape="a block keeps the shape, so that blocks can be stacked",
    otherwise="the numbers differ from nn.TransformerEncoderLayer(norm_first=True)",
)


def drop_path(x: Float[Tensor, "b ..."], p: float, training: bool) -> Float[Tensor, "b ..."]:
    """In training, zero each image with probability p and divide the others by 1 − p; in evaluation, x as it is."""
    if not training or p == 0:
        return x
    keep = torch.rand(x.shape[0], *[1] * (x.ndim - 1), device=x.device) >= p
    return x * keep / (1 - p)


# What is asked of drop_path. Draws differ from answer to answer, so we compare what they must have in common.
def _returned(fn, *args):
    return fn(*args)


def _kind(fn, *args):
    result = fn(*args)
    return torch.zeros_like(result) if isinstance(result, Tensor) else result


def _draws(fn, x, p, training):
    """30 calls in numbers.

    Whether tokens and channels are zeroed as a whole, and all images alike; the smallest and the largest fraction of
    zeroed images, p where it is close; whether the images differ from call to call, and how many they are; the smallest
    and the largest factor of what stays.
    """
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
    return torch.isclose(gradient, result.detach() / x).all().float()[None]


def _asked(question, *shape, p=0.25, training=True, dtype=torch.float32):
    """Arguments, with no zero in the images."""
    return lambda: (question, torch.rand(shape, dtype=dtype) + 1, p, training)


def _per_image(x):
    return [len(x)] + [1] * (x.ndim - 1)


def _in_training(drop):
    return lambda x, p, training: drop(x, p) if training and p else x


def _masked(shape=_per_image, scale=lambda p: 1 / (1 - p), draw=lambda p, shape: torch.rand(shape) >= p):
    return _in_training(lambda x, p: x * draw(p, shape(x)) * scale(p))


def _reseeded(x, p, training):
    torch.manual_seed(3)
    return drop_path(x, p, training)


DROP_PATH = {
    "that is the wrong way round: images are dropped in training, not in evaluation":
        lambda x, p, training: drop_path(x, p, not training),
    "the factor 1 − p belongs into training, as a divisor. In evaluation x comes back as it is":
        lambda x, p, training: _masked(scale=lambda p: 1)(x, p, True) if training else x * (1 - p),
    "you drop single tokens. Draw once for each image: a mask of shape (b, 1, 1)":
        _masked(lambda x: [*x.shape[:2], *_per_image(x)[2:]]),
    "you drop channels of an image. Draw once for each image: a mask of shape (b, 1, 1)":
        _masked(lambda x: [*_per_image(x)[:-1], x.shape[-1]]),
    "you drop single numbers: that is dropout. Draw once for each image: a mask of shape (b, 1, 1)": F.dropout,
    "you drop single numbers, the same in all images": _masked(lambda x: [1, *x.shape[1:]]),
    "nothing is dropped in training: zero each image with probability p": lambda x, p, training: x,
    "everything is zeroed in training. p is the chance for one image": _in_training(lambda x, p: 0 * x),
    "one draw decides for the whole batch. Draw for each image: a mask of shape (b, 1, 1)":
        _masked(lambda x: [1] * x.ndim),
    "no image is zeroed: the mask must hold zeros and ones. Compare the random number with p":
        _masked(draw=lambda p, shape: torch.rand(shape) + 1 - p),
    "p is the chance to drop, not to keep": _masked(scale=lambda p: 1 / p, draw=lambda p, shape: torch.rand(shape) < p),
    "randn is normally distributed. torch.rand draws evenly between 0 and 1":
        _masked(draw=lambda p, shape: torch.randn(shape) >= p),
    "two calls drop the same images: draw anew each time, and set no seed inside": _reseeded,
    "an image alone in its batch always meets the same fate: you drop a fixed number. Draw for each image apart":
        _masked(draw=lambda p, shape: (torch.randperm(shape[0]) >= round(p * shape[0])).reshape(shape)),
    "the images that stay are not scaled, so the mean shrinks. Divide by 1 − p": _masked(scale=lambda p: 1),
    "the images that stay were divided by p. Divide by 1 − p, the chance to stay": _masked(scale=lambda p: 1 / p),
    "the images that stay were multiplied by 1 − p. Divide by it": _masked(scale=lambda p: 1 - p),
    "x may have any number of axes: use x.ndim, not the 3 axes of a mask (b, 1, 1)": _masked(lambda x: (len(x), 1, 1)),
}  # fmt: skip
EXERCISES["drop_path"] = Exercise(
    reference=drop_path,
    truth=lambda x, p, training: x,
    run=lambda fn, question, *args: question(fn, *args),
    cases=[
        Case(
            given=_asked(_returned, 200, 5, 6, training=False),
            hint="in evaluation nothing may be dropped and nothing scaled: return x when training is False",
            caught=lambda x, p, training: drop_path(x, p, True),
        ),
        Case(
            given=_asked(_returned, 200, 5, 6, p=0.0),
            hint="with p = 0 nothing may change",
            caught=lambda x, p, training: drop_path(x, max(p, 0.1), training),
        ),
        Case(given=_asked(_kind, 200, 5, 6), hint="draw a mask of shape (b, 1, 1); it broadcasts"),
        Case(
            given=_asked(_kind, 1, 5, 6),
            hint="right for 200 images, wrong for one: does a squeeze() drop its axis?",
            caught=_in_training(lambda x, p: drop_path(x, p, True).squeeze(0)),
        ),
        Case(given=_asked(_draws, 200, 5, 6), truth=torch.tensor([1, 1, 0, 0.25, 0.25, 1, 1, 4 / 3, 4 / 3])),
        *(
            Case(given=_asked(_kind, *shape), hint="x may have any number of axes: use x.ndim, not 3")
            for shape in [(7, 3), (2, 3, 4, 5), (5,)]
        ),
        Case(
            given=_asked(_gradient, 40, 5, 6),
            hint="the numbers are right, but the gradient isn't: no_grad(), .detach() or .data hides x from autograd",
            truth=torch.ones(1),
            caught=lambda x, p, training: drop_path(x.detach(), p, training),
        ),
        Case(
            given=_asked(_kind, 4, 5, 6, dtype=torch.float64),
            hint="right for float32, wrong for float64",
            caught=_in_training(lambda x, p: drop_path(x, p, True).float()),
        ),
    ],
    mistakes=DROP_PATH,
    right=[
        _in_training(lambda x, p: x * x.new_empty(_per_image(x)).bernoulli_(1 - p) / (1 - p)),
        lambda x, p, training: torch.stack([F.dropout(x.new_ones(()), p, training) * one for one in x]),
    ],
    explain=_draws_in_words,
    dtype=True,
)


def drop_path_rates(drop_path_rate: float, depth: int) -> list[float]:
    """The rate of each block: 0 for the first, drop_path_rate for the last, a straight line between."""
    return [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]


def _as_list(fn, *args):
    """Tensors and arrays may stand for lists."""
    rates = fn(*args)
    return rates.tolist() if getattr(rates, "ndim", 0) == 1 else rates


def _each(rate_of):
    """The rates by the number of the block."""
    return lambda rate, depth: [rate_of(rate, i, depth) for i in range(depth)]


DROP_PATH_RATES = {
    "the last block stays below the rate: from first to last there are depth − 1 steps":
        _each(lambda rate, i, depth: rate * i / depth),
    "the first block should have rate 0 (Huang et al. 2016 start a step higher; timm and torchvision do not)":
        _each(lambda rate, i, depth: rate * (i + 1) / depth),
    "ZeroDivisionError: with depth 1 there is no step. A single block is the first one: its rate is 0":
        _each(lambda rate, i, depth: rate * i / (depth - 1)),
    "the line falls. The first blocks are skipped least, the last ones most":
        lambda rate, depth: drop_path_rates(rate, depth)[::-1],
    "every block has the same rate. The first should have 0, and then it rises": _each(lambda rate, i, depth: rate),
    "these are the chances to keep. Return the chances to drop":
        _each(lambda rate, i, depth: 1 - drop_path_rates(rate, depth)[i]),
    "there is one rate too many: one for each block is wanted":
        lambda rate, depth: [rate * i / depth for i in range(depth + 1)],
    "the last rate is missing: a range, or arange, stops before its end":
        lambda rate, depth: drop_path_rates(rate, depth)[:-1],
    "a list with one rate for each block was wanted, not a number": lambda rate, depth: rate,
    "a step is rate / (depth − 1), not the whole rate": _each(lambda rate, i, depth: rate * i),
    "drop_path_rate is missing: the line ends at it, not at 1": lambda rate, depth: drop_path_rates(1, depth),
    "the line should be straight: the same step from block to block":
        _each(lambda rate, i, depth: rate * (i / max(depth - 1, 1)) ** 2),
    "the rates are rounded. Return them as they are":
        _each(lambda rate, i, depth: round(drop_path_rates(rate, depth)[i], 2)),
}  # fmt: skip
EXERCISES["drop_path_rates"] = Exercise(
    reference=drop_path_rates,
    truth=lambda rate, depth: torch.linspace(0, rate, depth, dtype=torch.float64).tolist(),
    run=_as_list,
    cases=[
        Case(
            given=lambda: (0.3, 5), hint="for drop_path_rate 0.3 and depth 5 the rates are 0, 0.075, 0.15, 0.225, 0.3"
        ),
        Case(given=lambda: (0.7, 12), hint="right for 0.3 and 5 blocks, wrong for 0.7 and 12"),
        Case(
            given=lambda: (0.2, 1),
            hint="a single block is the first one: its rate is 0",
            caught=lambda rate, depth: drop_path_rates(rate, depth) if depth > 1 else [rate],
        ),
        Case(given=lambda: (0.0, 4), hint="with drop_path_rate 0 every block has rate 0"),
    ],
    mistakes=DROP_PATH_RATES,
    right=[lambda rate, depth: torch.linspace(0, rate, depth), lambda *args: tuple(drop_path_rates(*args))],
    shape="one rate for each block",
)


def block_multiply_adds(num_tokens: int, dim: int, mlp_ratio: float) -> tuple[int, int]:
    """Multiply-adds of one block for one image: (attention, MLP). Norms, biases and the softmax are not counted."""
    projections = 4 * num_tokens * dim * dim  # queries, keys, values, and the one at the end
    mixing = 2 * num_tokens * num_tokens * dim  # scores, and the weighted mean of the values
    return projections + mixing, 2 * num_tokens * dim * int(dim * mlp_ratio)


def _counted_by_torch(n, d, ratio):
    """The same from products that PyTorch counts, a multiply-add as two operations."""
    x, matrix, hidden = torch.empty(n, d, device="meta"), torch.empty(d, d, device="meta"), math.floor(d * ratio)
    with FlopCounterMode(display=False) as attention:
        q, k, v = x @ matrix, x @ matrix, x @ matrix
        (q @ k.T) @ v @ matrix
    with FlopCounterMode(display=False) as mlp:
        nn.Sequential(nn.Linear(d, hidden), nn.Linear(hidden, d)).to("meta")(x)
    return attention.get_total_flops() // 2, mlp.get_total_flops() // 2


def _part(fn, which, *args):
    """One of the two counts, so that a mistake in one does not hide that in the other."""
    pair = fn(*args)
    return pair[which] if isinstance(pair, list | tuple | Tensor) and len(pair) == 2 else pair


def _attention(count):
    return lambda n, d, ratio: (count(n, d), block_multiply_adds(n, d, ratio)[1])


def _mlp(count):
    return lambda n, d, ratio: (block_multiply_adds(n, d, ratio)[0], count(n, d, ratio))


BLOCK_MULTIPLY_ADDS = {
    "two numbers were wanted, (attention, mlp), not their sum": lambda *sizes: sum(block_multiply_adds(*sizes)),
    "the two are swapped: return (attention, mlp)": lambda *sizes: block_multiply_adds(*sizes)[::-1],
    "you counted operations. A multiplication and the addition after it are one multiply-add":
        lambda *sizes: tuple(2 * count for count in block_multiply_adds(*sizes)),
    "the projection after the heads is missing from attention: four matrices, not three":
        _attention(lambda n, d: 3 * n * d * d + 2 * n * n * d),
    "attention has four projections: queries, keys, values, and the one after the heads":
        _attention(lambda n, d: n * d * d + 2 * n * n * d),
    "attention multiplies n × n twice: q kᵀ makes the scores, and the weights average the values":
        _attention(lambda n, d: 4 * n * d * d + n * n * d),
    "each of the n × n scores is a dot product over the channels, not one multiply-add":
        _attention(lambda n, d: 4 * n * d * d + 2 * n * n),
    "attention's mixing is missing: the n × n scores, and the weighted mean of the values":
        _attention(lambda n, d: 4 * n * d * d),
    "attention's four projections are missing": _attention(lambda n, d: 2 * n * n * d),
    "attention's projections run on every token": _attention(lambda n, d: 4 * d * d + 2 * n * n * d),
    "each token meets every other: mixing costs n², not n": _attention(lambda n, d: 4 * n * d * d + 2 * n * d),
    "the class token is one of num_tokens already: no + 1": lambda n, *sizes: block_multiply_adds(n + 1, *sizes),
    "biases are not counted: matrix products only": lambda n, d, ratio: (
        4 * n * (d + 1) * d + 2 * n * n * d, n * (d + 1) * int(d * ratio) + n * (int(d * ratio) + 1) * d
    ),
    "the softmax is not counted: matrix products only": _attention(lambda n, d: 4 * n * d * d + n * n * (2 * d + 1)),
    "the MLP has two layers: one up to mlp_ratio·dim, one back": _mlp(lambda n, d, ratio: n * d * int(d * ratio)),
    "mlp_ratio is an argument; you wrote 4 into the formula": _mlp(lambda n, d, ratio: 8 * n * d * d),
    "the MLP runs on every token: multiply by num_tokens": _mlp(lambda n, d, ratio: 2 * d * int(d * ratio)),
    "the MLP never compares tokens, so its cost grows with n, not n²":
        _mlp(lambda n, d, ratio: 2 * n * n * d * int(d * ratio)),
    "a layer from d to r·d numbers takes d·r·d multiply-adds for each token, not r·d":
        _mlp(lambda n, d, ratio: 2 * n * int(d * ratio)),
    "the MLP's second layer is r·d × d, back to dim, not r·d × r·d":
        _mlp(lambda n, d, ratio: n * int(d * ratio) * (d + int(d * ratio))),
    "mlp_ratio itself was rounded. Round the width, int(dim * mlp_ratio)":
        _mlp(lambda n, d, ratio: 2 * n * d * d * int(ratio)),
    "the hidden width is a whole number: int(dim * mlp_ratio), 26 and not 26.73":
        _mlp(lambda n, d, ratio: 2 * n * d * d * ratio),
    "the hidden width is rounded down: int(dim * mlp_ratio), 26 and not 27":
        _mlp(lambda n, d, ratio: 2 * n * d * round(d * ratio)),
    "int() stands around the product. Round the hidden width: 2 · n · d · int(dim * mlp_ratio)":
        _mlp(lambda n, d, ratio: int(2 * n * d * d * ratio)),
}  # fmt: skip
EXERCISES["block_multiply_adds"] = Exercise(
    reference=block_multiply_adds,
    truth=_counted_by_torch,
    run=_part,
    cases=[
        Case(
            given=lambda: (0, 50, 12, 3.0),
            hint="attention on 50 tokens of 12 takes 88,800 multiply-adds: return it as the first of two numbers",
        ),
        Case(
            given=lambda: (1, 50, 12, 3.0),
            hint="the MLP with ratio 3.0 on 50 tokens of 12 takes 43,200 multiply-adds, the second of two numbers",
        ),
        Case(given=lambda: (0, 7, 10, 2.673), hint="attention is right for 50 tokens of 12, wrong for 7 tokens of 10"),
        Case(
            given=lambda: (1, 7, 10, 2.673),
            hint="the hidden width is int(dim * mlp_ratio), rounded down: 10 · 2.673 makes 26",
        ),
    ],
    mistakes=BLOCK_MULTIPLY_ADDS,
    right=[lambda n, d, ratio: [2 * n * d * (2 * d + n), n * d * int(d * ratio) * 2.0]],
    tolerance=0,
)


@torch.no_grad()
def norm_is_alive(block: nn.Module, name: str, x: Float[Tensor, "b n d"]) -> bool:
    """Whether the block's output depends on the LayerNorm called ``name``: change it in a copy, and compare."""
    twin = copy.deepcopy(block).eval()  # in evaluation, for dropout would make any two calls differ
    before = twin(x)
    norm = twin.get_submodule(name)
    norm.weight.normal_()
    norm.bias.normal_()
    return not torch.equal(before, twin(x))


DIM = 6


class _Patient(nn.Module):
    """Two residual lines whose norms are run and their results thrown away; those named in ``alive`` are used.

    ``loudness`` is a factor of all branches, as LayerScale has one.
    """

    def __init__(self, *alive: str, loudness: float = 1.0, training: bool = False):
        super().__init__()
        self.norm1, self.norm2, self.drop = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.Dropout(0.5)
        self.fc1, self.fc2, self.alive, self.loudness = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), alive, loudness
        self.train(training)

    def forward(self, x):
        for name, branch in (("norm1", self.fc1), ("norm2", self.fc2)):
            normed = self.get_submodule(name)(x)
            x = x + self.loudness * self.drop(branch(normed if name in self.alive else x))
        return x


def _layer(norm_first):
    return nn.TransformerEncoderLayer(DIM, 3, DIM + 5, dropout=0.0, batch_first=True, norm_first=norm_first)


def _changed(block, change):
    """``block`` after a change of its first norm."""
    change(block.norm1)
    return block


def _with_old_gradient(norm):
    norm.weight.grad = torch.ones(DIM)


def _randomize(norm):
    norm.weight.normal_()
    norm.bias.normal_()


def _zero(norm):
    norm.weight.zero_()
    norm.bias.zero_()


def _by_changing(change, equal=torch.equal, find_norm=nn.Module.get_submodule, mode=nn.Module.eval):
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


# What each case shows: its block, a norm in it, whether that is alive, and an answer that goes wrong there.
NORMS = {
    "a healthy pre-norm block was called dead": (lambda: _layer(True), "norm1", True, lambda *_: False),
    "a dead norm was called alive. It exists and it runs, but nobody uses its result: look at the output": (
        _Patient, "norm1", False, lambda block, name, x: name in dict(block.named_modules()),
    ),
    "a dead norm in training mode was called alive: dropout alone makes two calls differ. Call block.eval() first": (
        lambda: _Patient(training=True), "norm1", False, _by_changing(_randomize, mode=lambda block: block),
    ),
    "a gradient left over from an earlier step was taken for life: clear it first": (
        lambda: _changed(_Patient(), _with_old_gradient), "norm1", False,
        _by_gradient(lambda grad: grad is not None, own=lambda block: block),
    ),
    "in a block whose norm1 is alive and whose norm2 is dead, norm1 was called dead: judge `name` alone": (
        lambda: _Patient("norm1"), "norm1", True,
        lambda block, name, x: all(norm_is_alive(block, one, x) for one in ("norm1", "norm2")),
    ),
    "in a block whose norm1 is alive and whose norm2 is dead, the two were not told apart: use `name`": (
        lambda: _Patient("norm1"), "norm2", False, lambda block, name, x: norm_is_alive(block, "norm1", x),
    ),
    "norm1 of a post-norm block was called dead. There norm2 follows, whose outputs sum to a constant: compare the "
    "outputs, not their sum": (
        lambda: _layer(False), "norm1", True,
        _by_gradient(lambda grad: grad is not None and bool(grad.abs().max() > 1e-3), torch.sum),
    ),
    "a norm was called dead in a block whose branches are multiplied by 0.000001, as LayerScale may do: the output "
    "moves by as little. A dead norm leaves every bit as it is, so compare with torch.equal": (
        lambda: _Patient("norm1", "norm2", loudness=1e-6), "norm1", True, _by_changing(_randomize, torch.allclose),
    ),
    "a norm whose weight and bias are 0 to begin with was called dead: setting them to 0, or multiplying them, changes "
    "nothing there": (
        lambda: _changed(_Patient("norm1"), torch.no_grad()(_zero)), "norm1", True, _by_changing(_zero),
    ),
    "a norm deeper inside the block, 0.norm1, was called dead: use block.get_submodule(name)": (
        lambda: nn.Sequential(_Patient("norm1")), "0.norm1", True,
        _by_changing(_randomize, find_norm=getattr),
    ),
    "a norm deeper inside the block, 0.norm2, was called alive: use block.get_submodule(name)": (
        lambda: nn.Sequential(_Patient("norm1")), "0.norm2", False, None,
    ),
    "a norm was called alive whose branch is multiplied by 0: it has a gradient, but only zeros in it": (
        lambda: _Patient("norm1", loudness=0.0), "norm1", False, _by_gradient(lambda grad: grad is not None),
    ),
}  # fmt: skip
EXERCISES["norm_is_alive"] = Exercise(
    reference=norm_is_alive,
    cases=[
        Case(
            given=lambda make=make, name=name: (make(), name, torch.rand(2, 5, DIM) + 1),
            truth=truth,
            hint=hint,
            caught=caught,
        )
        for hint, (make, name, truth, caught) in NORMS.items()
    ],
    mistakes={
        "a fresh norm has weight 1 and bias 0 already: setting them to that changes nothing": (
            _by_changing(nn.LayerNorm.reset_parameters)
        ),
    },
    right=[_by_gradient(lambda grad: grad is not None and bool(grad.any()))],
    true_means="that the output depends on the norm",
)
