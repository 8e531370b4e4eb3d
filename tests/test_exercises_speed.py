"""The checks of chapter 11 accept the reference and name each mistake."""

import math
from dataclasses import replace

import pytest
import torch
from hints import assert_hints
from scipy import optimize
from torch.utils.flop_counter import FlopCounterMode

from vit_tutorial import ViT, plain_attention
from vit_tutorial.exercises.speed import fit_cost, pareto_front, training_flops
from vit_tutorial.recipes import RECIPES


def test_training_flops():
    def pixels_of(config):
        return config.patch_size[0] * config.patch_size[1]

    def flops(
        factor=6, blocks=None, attend=2, qkv=3, project=1, mlp=2, patches=None, heads=1, channels=None, **changes
    ):
        def fn(config):
            n, d, depth = config.num_tokens, config.embed_dim, config.depth if blocks is None else blocks
            channels_ = config.in_chans if channels is None else channels
            pixels = channels_ * pixels_of(config)
            hidden = int(d * changes.get("ratio", config.mlp_ratio))
            m = changes.get("compared", n)
            block = qkv * n * d * d + attend * m * m * d + project * n * d * d + mlp * n * d * hidden
            cut = config.num_patches if patches is None else patches(config)
            return factor * (cut * pixels * d + depth * block + heads * d * config.num_classes)

        return fn

    assert_hints(
        "training_flops",
        training_flops,
        {
            "expected a number": lambda config: [training_flops(config)],
            "multiply-adds of the forward pass": flops(1),
            "forward pass alone": flops(2),
            "a product and a sum": flops(3),
            "twice the forward pass": flops(4),
            "the gradient of the images": lambda config: (
                training_flops(config) - 2 * config.num_patches * config.in_chans * pixels_of(config) * config.embed_dim
            ),
            "queries by keys and weights by values": flops(attend=0),
            "one of attention's": flops(attend=1),
            "at full width": flops(attend=8),
            "width of one head only": flops(attend=0.5),
            "class token: n is num_tokens": flops(compared=12),
            "one square matrix": flops(qkv=1),
            "projection after attention": flops(project=0),
            "two matrices": flops(mlp=1),
            "not always 4": flops(ratio=4),
            "the MLP is missing": flops(mlp=0),
            "projection of the patches is missing": flops(patches=lambda config: 0),
            "runs over num_patches": flops(patches=lambda config: config.num_tokens),
            "channels are missing": flops(channels=1),
            "the head is missing": flops(heads=0),
            "one token only": flops(heads=13),
            "not one": flops(blocks=1),
            "not 4 by 4": flops(channels=4),
            "wanted": lambda config: 7,
        },
    )


@pytest.mark.parametrize("name", ["cifar10-tiny", "cifar10-small"])
def test_training_flops_are_what_pytorch_counts(name):
    config = RECIPES[name].model
    model = ViT(replace(config), attend=plain_attention)
    with FlopCounterMode(display=False) as counter:
        model(torch.rand(2, 3, 32, 32))
    assert 3 * counter.get_total_flops() / 2 == training_flops(config)


def _lstsq(columns, t):
    return torch.linalg.lstsq(torch.stack(columns, dim=1).double(), t[:, None]).solution[:, 0].tolist()


def _line(n, t):
    """Slope and height at 0 of a straight line."""
    slope, height = _lstsq([n, n**0], t)
    return slope, height


def _right_where_positive(then):
    """Plain least squares, with something else done where a coefficient is negative."""

    def fn(n, t):
        found = _lstsq([n, n**2], t)
        return tuple(found) if min(found) >= 0 else then(n, t, found)

    return fn


def test_fit_cost():
    def power(n, t):
        slope, height = _line(n.log(), t.log())
        return math.exp(height), slope

    assert_hints(
        "fit_cost",
        fit_cost,
        {
            "a and b are swapped": lambda n, t: fit_cost(n, t)[::-1],
            "a constant was fitted too": lambda n, t: _lstsq([n, n**2, n**0], t)[:2],
            "a constant and a factor of n": lambda n, t: _line(n, t)[::-1],
            "relative errors": lambda n, t: _lstsq([n / t, n**2 / t], t / t),
            "factor and exponent": power,
            "exponent and factor": lambda n, t: power(n, t)[::-1],
            "two of the points decide": lambda n, t: _lstsq([n[[0, -1]], n[[0, -1]] ** 2], t[[0, -1]]),
            "without the other": lambda n, t: (float((n * t).sum() / (n @ n)), float((n**2 * t).sum() / (n**4).sum())),
            "b is negative": _right_where_positive(lambda n, t, found: tuple(found)),
            "a is negative": _right_where_positive(
                lambda n, t, found: fit_cost(n, t) if found[1] < 0 else tuple(found)
            ),
            "b was set to 0": _right_where_positive(lambda n, t, found: tuple(max(0.0, value) for value in found)),
            "a was set to 0": _right_where_positive(
                lambda n, t, found: fit_cost(n, t) if found[1] < 0 else (0.0, found[1])
            ),
            "b was made positive": _right_where_positive(lambda n, t, found: tuple(map(abs, found))),
            "the same dtype": lambda n, t: torch.linalg.lstsq(torch.stack([n, n**2], dim=1), t[:, None]),
            "expected 2 numbers": lambda n, t: fit_cost(n, t)[0],
            "wanted [": lambda n, t: (2 * fit_cost(n, t)[0], fit_cost(n, t)[1]),
        },
    )


def test_fit_cost_finds_what_was_put_in():
    n = torch.tensor([64.0, 256, 1024, 2304])
    assert fit_cost(n, 3e-6 * n + 2e-9 * n**2) == pytest.approx((3e-6, 2e-9), rel=1e-3)


def test_fit_cost_is_scipy_s_on_random_points():
    generator = torch.Generator().manual_seed(1)
    zeros = 0
    for _ in range(50):
        n = torch.rand(5, generator=generator, dtype=torch.float64) * 50 + 1
        t = torch.rand(5, generator=generator, dtype=torch.float64) * n ** (
            0.5 + 2 * torch.rand(1, generator=generator)
        )
        truth = optimize.nnls(torch.stack([n, n**2], dim=1).numpy(), t.numpy())[0]
        zeros += 0 in truth
        assert fit_cost(n, t) == pytest.approx(tuple(truth), rel=1e-6, abs=1e-9)
    assert 5 < zeros < 45


def _front(beaten):
    """Which runs no other beats, by another idea of beating."""
    return lambda cost, accuracy: ~beaten(cost[:, None], cost[None], accuracy[:, None], accuracy[None]).any(dim=1)


def _running_best(cost, accuracy):
    order = cost.argsort(stable=True)
    on = torch.zeros(len(cost), dtype=torch.bool)
    on[order] = accuracy[order] == accuracy[order].cummax(dim=0).values
    return on


def test_pareto_front():
    other = ~torch.eye(10, dtype=torch.bool)
    assert_hints(
        "pareto_front",
        pareto_front,
        {
            "False is on the front": lambda c, a: ~pareto_front(c, a),
            "cheap *and* accurate": lambda c, a: pareto_front(-c, -a),
            "only the most accurate": lambda c, a: a == a.max(),
            "all runs are on the front": lambda c, a: torch.ones(len(c), dtype=torch.bool),
            "do not push each other out": _front(lambda c, d, a, b: (d <= c) & (b >= a) & other),
            "costs the same and is more accurate": _front(lambda c, d, a, b: (d < c) & (b > a)),
            "as accurate as the best so far": _running_best,
            "in the order of cost": lambda c, a: pareto_front(c, a)[c.argsort(stable=True)],
            "not numbers": lambda c, a: pareto_front(c, a).nonzero()[:, 0],
            "expected a tensor": lambda c, a: pareto_front(c, a).tolist(),
            "should be the other way": lambda c, a: pareto_front(c, a) & (c != 3),
        },
    )


def test_pareto_front_by_hand():
    """The third costs more than the second and is worse; the last is dear and best."""
    assert pareto_front(torch.tensor([1.0, 2, 3, 9]), torch.tensor([60.0, 80, 70, 81])).tolist() == [
        True,
        True,
        False,
        True,
    ]
    assert pareto_front(torch.tensor([4.0]), torch.tensor([10.0])).tolist() == [True]
