"""Exercises of chapter 11: what it costs."""

import math

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vit_tutorial.attention import plain_attention
from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.model import ViT
from vit_tutorial.speed import training_flops

EXERCISES: dict[str, Exercise] = {}


def _counted(config: ViTConfig) -> int:
    """Three times PyTorch's own count of the forward pass for one image; it sees plain products everywhere."""
    model = ViT(config, attend=plain_attention)
    with FlopCounterMode(display=False) as counter:
        model(torch.rand(1, config.in_chans, *config.img_size))
    return 3 * counter.get_total_flops()


def _pixels(c):
    return c.in_chans * c.patch_size[0] * c.patch_size[1]


def _flops(
    factor=6, depth=lambda c: c.depth, attend=2, qkv=3, project=1, mlp=2, cut=lambda c: c.num_patches, pixels=_pixels,
    compared=lambda c: c.num_tokens, ratio=lambda c: c.mlp_ratio, widths=lambda c: 1, rows=1, less=lambda c: 0,
    hidden=int,
):  # fmt: skip
    """training_flops with one part of it replaced by another."""

    def fn(c):
        n, d, m = c.num_tokens, c.embed_dim, compared(c)
        block = (qkv + project) * n * d * d + attend * m * m * d * widths(c) + mlp * n * d * hidden(d * ratio(c))
        head = rows * d * c.num_classes
        return factor * (cut(c) * pixels(c) * d + depth(c) * block + head) - less(c)

    return fn


def _config(**changes):
    sizes = {"img_size": (8, 12), "patch_size": (4, 2), "in_chans": 2, "num_classes": 7, "embed_dim": 8, "depth": 3}
    return ViTConfig(**sizes | {"num_heads": 4, "mlp_ratio": 2.5} | changes)


EXERCISES["training_flops"] = Exercise(reference=training_flops, truth=_counted, cases=[
    Case(lambda: (_config(),), "the count differs from PyTorch's own for 3 blocks of width 8"),
    Case(lambda: (_config(mlp_ratio=2.3),),
         "wrong where embed_dim · mlp_ratio is not whole: the hidden width is int(embed_dim * mlp_ratio)",
         _flops(hidden=float)),
    Case(lambda: (_config(pool="mean"),),
         "wrong for a model without a class token: n is num_tokens, num_patches + 1 only where there is one",
         lambda c: training_flops(_config(mlp_ratio=c.mlp_ratio))),
    Case(lambda: (_config(num_heads=2, depth=2, embed_dim=12),), "right for width 8, wrong for width 12"),
], mistakes={
    "those are the multiply-adds of the forward pass. Each is two operations, and backward is missing": _flops(1),
    "that is the forward pass alone. Backward costs twice as much: times 3 in all": _flops(2),
    "a multiply-add is two operations: a product and a sum": _flops(3),
    "that is twice the forward pass. Backward takes two products, for the input's and the weight's gradient": _flops(4),
    "true, nobody needs the gradient of the images; but here the first product counts three times too":
        _flops(less=lambda c: 2 * c.num_patches * _pixels(c) * c.embed_dim),
    "the products of attention are missing, queries by keys and weights by values": _flops(attend=0),
    "one of attention's two products is missing: queries by keys, and weights by values": _flops(attend=1),
    "attention was counted for each head at full width. The heads share it: head_dim is embed_dim / num_heads":
        _flops(widths=lambda c: c.num_heads),
    "attention's products were counted at the width of one head only; there are num_heads of them":
        _flops(widths=lambda c: 1 / c.num_heads),
    "attention compares patches *and* class token: n is num_tokens": _flops(compared=lambda c: c.num_patches),
    "qkv was counted as one square matrix; it makes three vectors from each token": _flops(qkv=1),
    "the projection after attention is missing": _flops(project=0),
    "the MLP has two matrices": _flops(mlp=1),
    "the MLP's hidden width is embed_dim · mlp_ratio, which is not always 4": _flops(ratio=lambda c: 4),
    "the MLP is missing": _flops(mlp=0),
    "the projection of the patches is missing": _flops(cut=lambda c: 0),
    "the class token is not a patch, so the projection runs over num_patches": _flops(cut=lambda c: c.num_tokens),
    "the image's channels are missing: a patch has in_chans · height · width numbers":
        _flops(pixels=lambda c: _pixels(c) / c.in_chans),
    "three channels are written in by hand; the config has in_chans":
        _flops(pixels=lambda c: _pixels(c) / c.in_chans * 3),
    "the head is missing": _flops(rows=0),
    "the head reads one token only, not all of them": lambda c: _flops(rows=c.num_tokens)(c),
    "there are `depth` blocks, not one": _flops(depth=lambda c: 1),
    "patch_size is (height, width): here 4 by 2, not 4 by 4":
        _flops(pixels=lambda c: c.in_chans * c.patch_size[0] ** 2),
}, right=[_flops()], tolerance=1e-9)  # fmt: skip


def fit_cost(tokens: Real[Tensor, " k"], seconds: Float[Tensor, " k"]) -> tuple[float, float]:
    """The ``a, b`` at least 0 for which ``a n + b n²`` is closest to the seconds, by least squares."""
    n, t = tokens.double(), seconds.double()
    columns = torch.stack([n, n**2], dim=1)
    a, b = torch.linalg.lstsq(columns, t[:, None]).solution[:, 0].tolist()
    if a < 0:
        return 0.0, float((n**2 @ t) / (n**4).sum())
    if b < 0:
        return float((n @ t) / (n**2).sum()), 0.0
    return a, b


def _scipy_fit(tokens, seconds):
    from scipy import optimize

    n = tokens.double()
    return tuple(optimize.nnls(torch.stack([n, n**2], dim=1).numpy(), seconds.double().numpy())[0].tolist())


def _lstsq(t, *columns):
    return torch.linalg.lstsq(torch.stack(columns, dim=1).double(), t.double()[:, None]).solution[:, 0].tolist()


def _where_negative(then):
    """Plain least squares, with something else done where a factor is negative."""
    return lambda n, t: found if min(found := _lstsq(t, n, n**2)) >= 0 else then(n, t, *found)


def _power(n, t):
    slope, height = _lstsq(t.log(), n.log(), n**0.0)
    return math.exp(height), slope


def _points(n, t):
    return lambda: (torch.tensor(n), torch.tensor(t, dtype=torch.float64))


EXERCISES["fit_cost"] = Exercise(reference=fit_cost, truth=_scipy_fit, cases=[
    Case(_points([10, 20, 40, 70], [5.5, 13.0, 45.0, 118.0])),  # about 0.3 n + 0.02 n²
    Case(_points([10, 20, 40], [20.0, 30.0, 35.0]),
         "plain least squares makes b negative here. An operation cannot take less than no time: leave b out",
         _where_negative(lambda n, t, a, b: (a, b))),
    Case(_points([10, 20, 40], [1.0, 8.0, 60.0]),
         "plain least squares makes a negative here. An operation cannot take less than no time: leave a out",
         _where_negative(lambda n, t, a, b: fit_cost(n, t) if b < 0 else (a, b))),
    Case(_points([1000, 3000, 9000, 20000], [2.0, 9.0, 61.0, 270.0]),
         "wrong for many tokens: n² and n⁴ are large, so use double()"),
], mistakes={
    "a and b are swapped: first what goes with n, then what goes with n²": lambda n, t: fit_cost(n, t)[::-1],
    "a constant was fitted too. There is none here: no tokens, no time": lambda n, t: _lstsq(t, n, n**2, n**0)[:2],
    "those are a constant and a factor of n; return the factors of n and n²": lambda n, t: _lstsq(t, n**0, n),
    "those are the factors of n² and n⁴; return those of n and n²": lambda n, t: _lstsq(t, n**2, n**4),
    "you fitted relative errors, where short times count as much as long ones. Minimize Σ (a n + b n² − t)²":
        lambda n, t: _lstsq(t / t, n / t, n**2 / t),
    "that is a power law, factor and exponent; return the factors of n and n²": _power,
    "that is a power law, exponent and factor; return the factors of n and n²": lambda n, t: _power(n, t)[::-1],
    "two of the points decide in yours; all of them count":
        lambda n, t: _lstsq(t[[0, -1]], n[[0, -1]], n[[0, -1]] ** 2),
    "each was fitted without the other; both together have to make up the seconds":
        lambda n, t: (*_lstsq(t, n), *_lstsq(t, n**2)),
    "the negative one was set to 0 and the other kept. Without it the other fits differently: fit it again":
        _where_negative(lambda n, t, a, b: (max(0.0, a), max(0.0, b))),
    "a was set to 0, and b kept as it was. Without a, b fits differently: fit it again":
        _where_negative(lambda n, t, a, b: fit_cost(n, t) if b < 0 else (0.0, b)),
    "a negative factor was made positive by dropping its sign. It belongs to 0":
        _where_negative(lambda n, t, a, b: (abs(a), abs(b))),
    "both became 0 where one was negative. Only that one does": _where_negative(lambda *_: (0.0, 0.0)),
}, right=[_scipy_fit], shape="Two numbers, a and b",
    otherwise="the sum of (a n + b n² − t)² is not as small as it can be", tolerance=1e-6)  # fmt: skip


def pareto_front(cost: Real[Tensor, " k"], accuracy: Real[Tensor, " k"]) -> Bool[Tensor, " k"]:
    """Which runs are on the front: no other costs no more, is at least as accurate, and better in one of the two."""
    cheaper, better = cost[None] <= cost[:, None], accuracy[None] >= accuracy[:, None]
    strictly = (cost[None] < cost[:, None]) | (accuracy[None] > accuracy[:, None])
    return ~(cheaper & better & strictly).any(dim=1)


def _unbeaten(cost, accuracy):
    """Pair by pair."""
    runs = list(zip(cost.tolist(), accuracy.tolist(), strict=True))
    return torch.tensor([all(d > c or b < a or (d, b) == (c, a) for d, b in runs) for c, a in runs])


def _front(beaten):
    """Which runs no other beats, by another idea of when cost d and accuracy b beat c and a."""

    def fn(cost, accuracy):
        other = ~torch.eye(len(cost), dtype=torch.bool)
        return ~(beaten(cost[:, None], cost[None], accuracy[:, None], accuracy[None]) & other).any(dim=1)

    return fn


def _running_best(cost, accuracy, keep=lambda value, best: value >= best):
    """Through the runs by cost, keeping what is as good as the best so far."""
    on, best = torch.zeros(len(cost), dtype=torch.bool), -math.inf
    for i in cost.argsort(stable=True).tolist():
        on[i], best = keep(float(accuracy[i]), best), max(best, float(accuracy[i]))
    return on


COSTS, ACCURACIES = [3.0, 1, 5, 2, 2, 4, 8, 8, 9, 6], [80.0, 50, 75, 70, 60, 85, 90, 90, 90, 40]
EXERCISES["pareto_front"] = Exercise(reference=pareto_front, truth=_unbeaten, cases=[
    Case(lambda: (torch.tensor(COSTS), torch.tensor(ACCURACIES)), "some runs should be the other way"),
    Case(lambda: (torch.tensor([4.0]), torch.tensor([10.0])), "a single run is on the front"),
    Case(lambda: (torch.tensor([2.0, 2.0, 2.0]), torch.tensor([50.0, 70.0, 70.0])),
         "of three runs of equal cost the two best are on the front"),
], notes=[
    Case(lambda: (torch.tensor([5, 1, 3]), torch.tensor([2, 1, 9])), "it fails for integers"),
], mistakes={
    "the answers are inverted: False is on the front": lambda c, a: ~pareto_front(c, a),
    "cost and accuracy are both inverted: the front is cheap *and* accurate": lambda c, a: pareto_front(-c, -a),
    "you looked for high cost: a run should be cheap and accurate": lambda c, a: pareto_front(-c, a),
    "only the most accurate are left; a cheaper one that is less accurate is on the front too":
        lambda c, a: a == a.max(),
    "all runs are on the front? One is off it when another is cheaper and more accurate": lambda c, a: a == a,
    "two runs of equal cost and accuracy do not push each other out: neither is better":
        _front(lambda c, d, a, b: (d <= c) & (b >= a)),
    "a run is off the front too when another is better in one of cost and accuracy and equal in the other":
        _front(lambda c, d, a, b: (d < c) & (b > a)),
    "a run is off the front too when another is as accurate and costs less":
        _front(lambda c, d, a, b: (d <= c) & (b > a)),
    "a run is off the front too when another costs the same and is more accurate":
        _front(lambda c, d, a, b: (d < c) & (b >= a)),
    "as accurate as the best so far is not enough: it costs more than the one before it": _running_best,
    "of two runs of equal cost and accuracy both are on the front, not only the first":
        lambda c, a: _running_best(c, a, lambda value, best: value > best),
    "the answers are in the order of cost; keep the order given":
        lambda c, a: pareto_front(c, a)[c.argsort(stable=True)],
    "expected True or False for each run, in the order given, not the numbers of the runs":
        lambda c, a: pareto_front(c, a).nonzero()[:, 0],
    "return a tensor of booleans, not a list": lambda c, a: pareto_front(c, a).tolist(),
    "return True or False for each run, not 1 or 0: compare, or use .bool()": lambda c, a: pareto_front(c, a).int(),
}, right=[_unbeaten], shape="True or False for each run, in the order given")  # fmt: skip
