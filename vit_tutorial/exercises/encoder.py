"""Checks of chapter 4, the encoder block."""

import copy
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vit_tutorial.exercises.engine import call, checks, close, compare, expect, expect_shape, yes_or_no

# No two sizes are alike, so that no two axes can be swapped unnoticed.
BATCH, TOKENS, DIM, HEADS, HIDDEN = 2, 5, 6, 3, 11


def layer_norm(x: Float[Tensor, "... d"], weight: Float[Tensor, " d"], bias: Float[Tensor, " d"], eps: float) -> Tensor:
    """Each token minus its mean, over the root of its variance plus eps; then one scale and one shift per channel."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, keepdim=True, correction=0)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


@checks(layer_norm)
def check_layer_norm(fn):
    x, weight, bias, eps = 2 * torch.randn(BATCH, TOKENS, DIM) + 3, torch.rand(DIM) + 0.5, torch.randn(DIM), 1e-6
    result = call(fn, x, weight, bias, eps)
    expect_shape(result, (BATCH, TOKENS, DIM), "the statistics need keepdim=True to line up with x")

    def over(dims: int | tuple[int, ...], correction: int = 0) -> Tensor:
        return (x - x.mean(dims, keepdim=True)) / x.var(dims, keepdim=True, correction=correction).sqrt()

    token = over(-1)
    variance = x.var(-1, keepdim=True, correction=0)
    mistakes = {
        "you normalised over the tokens of an image (dim 1). Each token is normalised for itself: dim=-1": (
            over(1) * weight + bias
        ),
        "you normalised over the batch, as BatchNorm does. Each token is normalised for itself: dim=-1": (
            over(0) * weight + bias
        ),
        "you normalised all tokens of an image together. Each token has its own mean and variance: dim=-1 only": (
            over((1, 2)) * weight + bias
        ),
        "you normalised the whole tensor with one mean and one variance. Each token has its own: dim=-1": (
            over((0, 1, 2)) * weight + bias
        ),
        "the variance divides by d − 1, torch's default. LayerNorm divides by d: correction=0": (
            over(-1, correction=1) * weight + bias
        ),
        "you divided by the variance. Divide by its root": (x - x.mean(-1, keepdim=True)) / variance * weight + bias,
        "the mean is still in there: subtract it before dividing": x / variance.sqrt() * weight + bias,
        "that is RMSNorm, which subtracts no mean. LayerNorm does": (
            x / x.square().mean(-1, keepdim=True).sqrt() * weight + bias
        ),
        "weight and bias are missing: multiply by weight, then add bias": token,
        "the weight is missing": token + bias,
        "the bias is missing": token * weight,
        "the bias was added before the multiplication. First times weight, then plus bias": (token + bias) * weight,
    }
    truth = F.layer_norm(x, (DIM,), weight, bias, eps)
    compare(result, truth, mistakes, "the numbers differ from F.layer_norm on ordinary tokens", tolerance=1e-4)

    x, eps = 1e-3 * torch.randn(TOKENS, DIM), 1e-4  # two axes, and so quiet that eps decides
    result = call(fn, x, weight, bias, eps)
    constant = call(fn, torch.ones(1, DIM), weight, bias, eps)
    expect(
        bool(torch.as_tensor(constant).isfinite().all()),
        "eps is missing: a token whose channels are all equal divides zero by zero",
    )
    centred, variance = x - x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    mistakes = {
        "eps stands outside the root, (x − mean) / (std + eps). It belongs inside, with the variance": (
            centred / (variance.sqrt() + eps) * weight + bias
        ),
        "eps is squared, or far too small: the root holds variance + eps": (
            centred / (variance + eps**2).sqrt() * weight + bias
        ),
        "the variance is kept at eps or above. It is added: variance + eps": (
            centred / variance.clamp(min=eps).sqrt() * weight + bias
        ),
    } | {
        f"eps is an argument; you wrote {written} into the formula": centred / (variance + written).sqrt() * weight
        + bias
        for written in (1e-5, 1e-6, 1e-12)
    }
    truth = F.layer_norm(x, (DIM,), weight, bias, eps)
    compare(result, truth, mistakes, "right on ordinary tokens, wrong on very quiet ones. What does eps do?")


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x times the probability that a standard normal variable lies below x (Hendrycks and Gimpel 2016)."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


@checks(gelu)
def check_gelu(fn):
    x = torch.linspace(-5, 5, 41).reshape(1, 41)
    result = call(fn, x)
    expect_shape(result, (1, 41), "the GELU acts on each number by itself")
    cdf = torch.special.ndtr(x)
    mistakes = {
        "that is the tanh approximation. The exact GELU uses torch.erf": F.gelu(x, approximate="tanh"),
        "that is x·sigmoid(1.702·x), the rough approximation. The exact GELU uses torch.erf": x * (1.702 * x).sigmoid(),
        "that is x·sigmoid(x), called SiLU or Swish. Φ is the normal distribution's, not the logistic one's": F.silu(x),
        "that is ReLU: it multiplies by 0 or 1. The GELU multiplies by Φ(x), which lies between": x.relu(),
        "the factor ½ is missing: erf runs from −1 to 1, so 1 + erf runs from 0 to 2": 2 * x * cdf,
        "erf(x) instead of erf(x/√2): Φ(x) = ½·(1 + erf(x/√2))": x * 0.5 * (1 + torch.erf(x)),
        "that is Φ(x) alone. Multiply by x": cdf,
        "the 1 is missing: Φ(x) = ½·(1 + erf(x/√2))": x * 0.5 * torch.erf(x / math.sqrt(2)),
        "that is x times the normal density. Φ is its integral, the distribution function": (
            x * (-x.square() / 2).exp() / math.sqrt(2 * math.pi)
        ),
    }
    compare(result, x * cdf, mistakes, "the numbers differ from x·Φ(x)")


def pre_norm_block(
    x: Float[Tensor, "b n d"], norm1: Callable, attn: Callable, norm2: Callable, mlp: Callable
) -> Float[Tensor, "b n d"]:
    """Two residual lines: equations 2 and 3 of Dosovitskiy et al. 2021."""
    x = x + attn(norm1(x))
    return x + mlp(norm2(x))


@checks(pre_norm_block)
def check_pre_norm_block(fn):
    layer = nn.TransformerEncoderLayer(
        DIM, HEADS, HIDDEN, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    norm1, norm2 = layer.norm1, layer.norm2
    for parameter in [*norm1.parameters(), *norm2.parameters()]:
        nn.init.uniform_(parameter, 0.5, 1.5)  # fresh norms are all alike; no mix-up would show

    def attn(tokens):
        return layer.self_attn(tokens, tokens, tokens, need_weights=False)[0]

    def mlp(tokens):
        return layer.linear2(F.gelu(layer.linear1(tokens)))

    x = torch.randn(BATCH, TOKENS, DIM)
    result = call(fn, x, norm1, attn, norm2, mlp)
    expect_shape(result, (BATCH, TOKENS, DIM), "a block keeps the shape, so that blocks can be stacked")
    truth = layer(x)
    after_attn, after_mlp = x + attn(norm1(x)), x + mlp(norm2(x))
    post, norm_last = norm1(x + attn(x)), x + norm1(attn(x))
    first_normed = norm1(x) + attn(norm1(x))
    mistakes = {
        "that is post-norm, the order of 2017: you normalised after adding. Normalise the branch's input instead": (
            norm2(post + mlp(post))
        ),
        "nothing is added: both residuals are missing": mlp(norm2(attn(norm1(x)))),
        "the residual around the MLP is missing": mlp(norm2(after_attn)),
        "the residual around attention is missing": attn(norm1(x)) + mlp(norm2(attn(norm1(x)))),
        "norm1 is used twice and norm2 never": after_attn + mlp(norm1(after_attn)),
        "norm1 and norm2 are swapped": x + attn(norm2(x)) + mlp(norm1(x + attn(norm2(x)))),
        "both residuals were taken from the normalised tokens. Add each branch to x as it came: x + attn(norm1(x))": (
            norm2(first_normed) + mlp(norm2(first_normed))
        ),
        "the second residual was taken from norm2's output. Add the MLP to the stream as it was before norm2": (
            norm2(after_attn) + mlp(norm2(after_attn))
        ),
        "the first residual was taken from norm1's output. Add attention to x as it came": (
            first_normed + mlp(norm2(first_normed))
        ),
        "the branches run side by side, both on x. The MLP comes after attention and sees its result": (
            x + attn(norm1(x)) + mlp(norm2(x))
        ),
        "the MLP's result was added to the block's input, so what attention added is lost": x + mlp(norm2(after_attn)),
        "no norm is used: x + attn(x), then x + mlp(x)": x + attn(x) + mlp(x + attn(x)),
        "the norms stand after the branches, x + norm(branch(x)). They belong before: x + branch(norm(x))": (
            norm_last + norm2(mlp(norm_last))
        ),
        "the MLP's result is lost: x + mlp(norm2(x)) must be kept, in x, or returned": after_attn,
        "attention's result is lost: x + attn(norm1(x)) must be kept, in x": after_mlp,
        "there is one norm too many, on the stream at the end. The model has it once, after its last block": (
            norm2(truth)
        ),
        "the MLP runs before attention": after_mlp + attn(norm1(after_mlp)),
    }
    compare(result, truth, mistakes, "the numbers differ from nn.TransformerEncoderLayer(norm_first=True)")


def drop_path(x: Float[Tensor, "b ..."], p: float, training: bool) -> Float[Tensor, "b ..."]:
    """In training, zero each image with probability p and divide the others by 1 − p; in evaluation, x as it is."""
    if not training or p == 0:
        return x
    keep = torch.rand(x.shape[0], *[1] * (x.ndim - 1), device=x.device) >= p
    return x * keep / (1 - p)


@checks(drop_path)
def check_drop_path(fn):
    p, images = 0.2, 2000
    x = torch.rand(images, TOKENS, DIM) + 1  # no zero inside
    expect(
        close(call(fn, x, p, False), x),
        "in evaluation nothing may be dropped and nothing scaled: return x when training is False",
    )
    expect(close(call(fn, x, 0.0, True), x), "with p = 0 nothing may change")
    result = call(fn, x, p, True)
    expect_shape(result, tuple(x.shape), "draw a mask of shape (b, 1, 1); it broadcasts")
    factor = result / x
    dropped = factor == 0
    per_image = dropped.flatten(1)
    whole = torch.equal(per_image, per_image[:, :1].expand_as(per_image))
    tokens_whole = torch.equal(dropped, dropped[:, :, :1].expand_as(dropped))
    channels_whole = torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    expect(whole or not tokens_whole, "you drop single tokens. Draw once for each image: a mask of shape (b, 1, 1)")
    expect(whole or not channels_whole, "you drop channels of an image. Draw once for each image: (b, 1, 1)")
    expect(whole, "you drop single numbers: that is dropout. Draw once for each image: a mask of shape (b, 1, 1)")
    share = per_image[:, 0].float().mean().item()
    if share in (0, 1):  # by one draw for all, or is it always so?
        always = all(((call(fn, x[:3], p, True) == 0).float().mean().item() == share) for _ in range(100))
        expect(not (always and share), "everything is zeroed in training. p is the chance for one image")
        constant = close(factor, torch.full_like(factor, factor.mean()))
        expect(not (always and constant), "nothing is dropped in training: zero each image with probability p")
        expect(not always, "no image is zeroed: the mask must hold zeros and ones. Compare the random number with p")
    expect(share not in (0, 1), "one draw decides for the whole batch. Draw for each image: a mask of shape (b, 1, 1)")
    anew = not torch.equal(result, call(fn, x, p, True))
    expect(anew, "two calls drop the same images: draw anew each time, and set no seed inside")
    expect(
        abs(share - (1 - p)) > 0.06,
        f"with p = {p} a share of {share:.2f} was dropped: p is the chance to drop, not to keep",
    )
    expect(abs(share - p) < 0.06, f"with p = {p} a share of {share:.2f} was dropped")
    scale = factor[~dropped]
    mistakes = {
        f"the images that stay are not scaled, so the mean shrinks. Divide by 1 − p = {1 - p}": 1.0,
        "the images that stay were divided by p. Divide by 1 − p, the chance to stay": 1 / p,
        "the images that stay were multiplied by 1 − p. Divide by it": 1 - p,
    }
    compare(
        scale,
        torch.full_like(scale, 1 / (1 - p)),
        {hint: torch.full_like(scale, wrong) for hint, wrong in mistakes.items()},
        f"the images that stay must be divided by 1 − p = {1 - p}, so that the mean stays",
    )
    alone = [bool((call(fn, x[:1], 0.5, True) == 0).all()) for _ in range(50)]
    expect(
        any(alone) and not all(alone),
        "an image alone in its batch always meets the same fate: you drop a fixed number. Draw for each image apart",
    )
    for shape in [(7, 3), (2, 3, 4, 5)]:
        expect_shape(call(fn, torch.rand(shape), p, True), shape, "x may have any number of axes: use x.ndim, not 3")


def drop_path_rates(drop_path_rate: float, depth: int) -> list[float]:
    """The rate of each block: 0 for the first, drop_path_rate for the last, a straight line between."""
    return [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]


@checks(drop_path_rates)
def check_drop_path_rates(fn):
    def rates(rate: float, depth: int) -> Tensor:
        given = torch.as_tensor(call(fn, rate, depth), dtype=torch.float32)
        expect_shape(given, (depth,), "one rate for each block")
        return given

    mistakes = {
        "the last block stays below the rate: from first to last there are depth − 1 steps": [
            0.0, 0.06, 0.12, 0.18, 0.24,
        ],
        "the first block should have rate 0 (Huang et al. 2016 start a step higher; timm and torchvision do not)": [
            0.06, 0.12, 0.18, 0.24, 0.3,
        ],
        "the line falls. The first blocks are skipped least, the last ones most": [0.3, 0.225, 0.15, 0.075, 0.0],
        "every block has the same rate. The first should have 0, and then it rises": [0.3] * 5,
        "these are the chances to keep. Return the chances to drop": [1.0, 0.925, 0.85, 0.775, 0.7],
    }  # fmt: skip
    compare(
        rates(0.3, 5),
        torch.tensor([0.0, 0.075, 0.15, 0.225, 0.3]),
        {hint: torch.tensor(wrong) for hint, wrong in mistakes.items()},
        "for drop_path_rate 0.3 and depth 5 the rates are 0, 0.075, 0.15, 0.225, 0.3",
    )
    expect(close(rates(0.2, 1), torch.zeros(1)), "a single block is the first one: its rate is 0")


def block_multiply_adds(num_tokens: int, dim: int, mlp_ratio: float) -> tuple[int, int]:
    """Multiply-adds of one block for one image: (attention, MLP). Norms, biases and the softmax are not counted."""
    projections = 4 * num_tokens * dim * dim  # queries, keys, values, and the one at the end
    mixing = 2 * num_tokens * num_tokens * dim  # scores, and the weighted mean of the values
    return projections + mixing, 2 * num_tokens * dim * int(dim * mlp_ratio)


@checks(block_multiply_adds)
def check_block_multiply_adds(fn):
    n, d, hidden, ratio = 50, 12, 36, 3.0
    x, matrix = torch.empty(n, d, device="meta"), torch.empty(d, d, device="meta")
    with FlopCounterMode(display=False) as counter:  # PyTorch counts a multiply-add as two operations
        q, k, v = x @ matrix, x @ matrix, x @ matrix
        (q @ k.T) @ v @ matrix
    attention = counter.get_total_flops() // 2
    with FlopCounterMode(display=False) as counter:
        nn.Sequential(nn.Linear(d, hidden), nn.Linear(hidden, d)).to("meta")(x)
    mlp = counter.get_total_flops() // 2

    pair = call(fn, n, d, ratio)
    expect(isinstance(pair, tuple | list) and len(pair) == 2, f"expected two numbers (attention, mlp), got {pair!r}")
    expect(tuple(pair) != (mlp, attention), "the two are swapped: return (attention, mlp)")
    expect(
        tuple(pair) != (2 * attention, 2 * mlp),
        "you counted operations. A multiplication and the addition after it are one multiply-add",
    )
    projection, mix = n * d * d, n * n * d
    hints = {
        3 * projection + 2 * mix: "the projection after the heads is missing from attention: four matrices, not three",
        projection + 2 * mix: "attention has four projections: queries, keys, values, and the one after the heads",
        4 * projection
        + mix: "attention multiplies n × n twice: q kᵀ makes the scores, and the weights average the values",
        4 * projection + 2 * n * n: "each of the n × n scores is a dot product over the channels, not one multiply-add",
        4 * projection: "attention's mixing is missing: the n × n scores, and the weighted mean of the values",
        2 * mix: "attention's four projections are missing",
    }
    expect(pair[0] not in hints, hints.get(pair[0], ""))
    expect(pair[0] == attention, f"attention on {n} tokens of {d} takes {attention} multiply-adds, got {pair[0]}")
    hints = {
        mlp // 2: "the MLP has two layers: one up to mlp_ratio·dim, one back",
        2 * n * d * 4 * d: "mlp_ratio is an argument; you wrote 4 into the formula",
        mlp // n: "the MLP runs on every token: multiply by num_tokens",
        mlp * n: "the MLP never compares tokens, so its cost grows with n, not n²",
        2 * n * hidden: "a layer from d to r·d numbers takes d·r·d multiply-adds for each token, not r·d",
    }
    expect(pair[1] not in hints, hints.get(pair[1], ""))
    expect(pair[1] == mlp, f"the MLP with ratio {ratio} on {n} tokens of {d} takes {mlp} multiply-adds, got {pair[1]}")


@torch.no_grad()
def norm_is_alive(block: nn.Module, name: str, x: Float[Tensor, "b n d"]) -> bool:
    """Whether the block's output depends on the LayerNorm called ``name``: change it in a copy, and compare."""
    twin = copy.deepcopy(block).eval()  # in evaluation, for dropout would make any two calls differ
    before = twin(x)
    norm = twin.get_submodule(name)
    norm.weight.normal_()
    norm.bias.normal_()
    return not torch.equal(before, twin(x))


class _DeadNorms(nn.Module):
    """A sick block: its norms are run and their results thrown away; those named in ``alive`` are used.

    ``loudness`` is a factor of all branches, as LayerScale has one.
    """

    def __init__(self, alive: tuple[str, ...] = (), loudness: float = 1.0):
        super().__init__()
        self.loudness = loudness
        self.norm1, self.norm2, self.drop = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.Dropout(0.5)
        self.fc1, self.fc2, self.alive = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), alive

    def forward(self, x):
        for name, branch in (("norm1", self.fc1), ("norm2", self.fc2)):
            normed = self.get_submodule(name)(x)
            x = x + self.loudness * self.drop(branch(normed if name in self.alive else x))
        return x


@checks(norm_is_alive)
def check_norm_is_alive(fn):
    x = torch.randn(BATCH, TOKENS, DIM)

    def answer(block: nn.Module, name: str) -> bool:
        with torch.enable_grad():  # an answer may look at gradients
            return yes_or_no(call(fn, block, name, x))

    def layer(norm_first: bool) -> nn.Module:
        return nn.TransformerEncoderLayer(DIM, HEADS, HIDDEN, dropout=0.0, batch_first=True, norm_first=norm_first)

    healthy = answer(layer(norm_first=True), "norm1")
    dead = answer(_DeadNorms().eval(), "norm1")
    expect(healthy or not dead, "the answers are inverted: True means that the output depends on the norm")
    expect(healthy, "a healthy pre-norm block was called dead")
    expect(
        not dead, "a dead norm was called alive. It exists and it runs, but nobody uses its result: look at the output"
    )
    expect(
        not answer(_DeadNorms().train(), "norm1"),
        "a dead norm in training mode was called alive: dropout alone makes two calls differ. Call block.eval() first",
    )
    stale = _DeadNorms().eval()
    stale.norm1.weight.grad = torch.ones(DIM)
    expect(not answer(stale, "norm1"), "a gradient left over from an earlier step was taken for life: clear it first")
    half = _DeadNorms(alive=("norm1",)).eval()
    expect(
        answer(half, "norm1") and not answer(half, "norm2"),
        "in a block whose norm1 is alive and whose norm2 is dead, the two were not told apart: use `name`",
    )
    expect(
        answer(layer(norm_first=False), "norm1"),
        "norm1 of a post-norm block was called dead. There norm2 follows, whose outputs sum to a constant: "
        "compare the outputs, not their sum",
    )
    quiet = _DeadNorms(alive=("norm1", "norm2"), loudness=1e-6).eval()
    expect(
        answer(quiet, "norm1"),
        "a norm was called dead in a block whose branches are multiplied by 0.000001, as LayerScale may do: the output "
        "moves by as little. A dead norm leaves every bit as it is, so compare with torch.equal",
    )
    fresh = _DeadNorms(alive=("norm1",)).eval()
    nn.init.zeros_(fresh.norm1.weight)
    expect(
        answer(fresh, "norm1"),
        "a norm whose weight and bias are 0 to begin with was called dead: setting them to 0 changes nothing there",
    )
    nested = nn.Sequential(half)
    expect(
        answer(nested, "0.norm1") and not answer(nested, "0.norm2"),
        "a norm deeper inside the block, such as 0.norm1, was judged wrongly: use block.get_submodule(name)",
    )
