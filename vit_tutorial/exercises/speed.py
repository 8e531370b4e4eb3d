"""Checks of chapter 11, what it costs."""

import math

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.engine import call, checks, compare, expect, expect_shape, rule_out
from vit_tutorial.exercises.what_matters import _numbers
from vit_tutorial.speed import training_flops


@checks(training_flops)
def check_training_flops(fn):
    config = ViTConfig(
        img_size=(8, 12), patch_size=(4, 2), in_chans=2, num_classes=7, embed_dim=8, depth=3, num_heads=4, mlp_ratio=2.5
    )
    # Every matrix product as rows × inner × columns: 12 patches of 16 numbers, 13 tokens of 8, four heads of 2.
    products = {
        "patches": [(12, 16, 8)],
        "qkv": 3 * [(13, 8, 24)],
        "scores": 3 * 4 * [(13, 2, 13)],
        "values": 3 * 4 * [(13, 13, 2)],
        "projection": 3 * [(13, 8, 8)],
        "fc1": 3 * [(13, 8, 20)],
        "fc2": 3 * [(13, 20, 8)],
        "head": [(1, 8, 7)],
    }
    parts = {name: sum(math.prod(size) for size in sizes) for name, sizes in products.items()}
    forward, blocks = sum(parts.values()), sum(parts.values()) - parts["patches"] - parts["head"]
    result = call(fn, config)
    expect(
        isinstance(result, int | float | Tensor) and not isinstance(result, bool),
        f"expected a number, got {type(result).__name__}",
    )

    def less(*names: str) -> float:
        return 6 * (forward - sum(parts[name] for name in names))

    wide = parts["scores"] + parts["values"]
    mistakes = {
        "those are the multiply-adds of the forward pass. Each is two operations, and backward is missing": forward,
        "that is the forward pass alone. Backward costs twice as much: times 3 in all": 2 * forward,
        "a multiply-add is two operations: a product and a sum": 3 * forward,
        "true, nobody needs the gradient of the images; but here the first product counts three times too": (
            6 * forward - 2 * parts["patches"]
        ),
        "that is twice the forward pass. Forward costs one part, and backward two: a product for the input's gradient "
        "and one for the weight's": 4 * forward,
        "the products of attention are missing, queries by keys and weights by values": less("scores", "values"),
        "one of attention's two products is missing: queries by keys, and weights by values": less("values"),
        "attention was counted for each head at full width. The heads share it: head_dim is embed_dim / num_heads": (
            6 * (forward + 3 * wide)
        ),
        "attention's products were counted at the width of one head only; there are num_heads of them": 6
        * (forward - wide * 3 // 4),
        "attention compares patches *and* class token: n is num_tokens": 6 * (forward - wide + 3 * 2 * 12 * 12 * 8),
        "qkv was counted as one square matrix; it makes three vectors from each token": 6
        * (forward - parts["qkv"] * 2 // 3),
        "the projection after attention is missing": less("projection"),
        "the MLP has two matrices": less("fc2"),
        "the MLP's hidden width is embed_dim · mlp_ratio, which is not always 4": 6
        * (forward - parts["fc1"] - parts["fc2"] + 2 * 3 * 13 * 8 * 32),
        "the MLP is missing": less("fc1", "fc2"),
        "the projection of the patches is missing": less("patches"),
        "the class token is no patch, so the projection runs over num_patches": 6 * (forward + parts["patches"] // 12),
        "the image's channels are missing: a patch has in_chans · height · width numbers": 6
        * (forward - parts["patches"] // 2),
        "the head is missing": less("head"),
        "the head reads one token only, not all of them": 6 * (forward + 12 * parts["head"]),
        "there are `depth` blocks, not one": 6 * (forward - blocks + blocks // 3),
        "patch_size is (height, width): here 4 by 2, not 4 by 4": 6 * (forward + parts["patches"]),
    }
    tensors = {hint: torch.tensor(float(value)) for hint, value in mistakes.items()}
    compare(
        torch.tensor(float(result)),
        torch.tensor(6.0 * forward),
        tensors,
        f"for {config} wanted {6 * forward}, got {float(result):g}",
        tolerance=1e-6,
    )


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


@checks(fit_cost)
def check_fit_cost(fn):
    from scipy import optimize

    def ask(tokens: Tensor, seconds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The answer for whole tokens, the truth, and what plain least squares gives."""
        result = _numbers(call(fn, tokens.long(), seconds), 2, "a and b")
        columns = torch.stack([tokens, tokens**2], dim=1)
        truth = torch.from_numpy(optimize.nnls(columns.numpy(), seconds.numpy())[0])
        return result, truth, torch.linalg.lstsq(columns, seconds[:, None]).solution[:, 0]

    n = torch.tensor([10.0, 20, 40, 70]).double()
    t = torch.tensor([5.5, 13.0, 45.0, 118.0]).double()  # about 0.3 n + 0.02 n²
    result, truth, _ = ask(n, t)
    with_constant = torch.linalg.lstsq(torch.stack([n, n**2, n**0], dim=1), t[:, None]).solution[:, 0]
    relative = torch.linalg.lstsq(torch.stack([n / t, n**2 / t], dim=1), torch.ones_like(n)[:, None]).solution[:, 0]
    slope = ((n.log() - n.log().mean()) @ (t.log() - t.log().mean())) / (n.log() - n.log().mean()).square().sum()
    power = torch.stack([(t.log().mean() - slope * n.log().mean()).exp(), slope])
    two = torch.linalg.solve(torch.stack([n, n**2], dim=1)[[0, -1]], t[[0, -1]])
    alone = torch.stack([(n @ t) / n.square().sum(), (n**2 @ t) / (n**4).sum()])
    compare(
        result,
        truth,
        {
            "a and b are swapped: first what goes with n, then what goes with n²": truth.flip(0),
            "a constant was fitted too. There is none here: no tokens, no time": with_constant[:2],
            "those are a constant and a factor of n; wanted are the factors of n and n²": (
                torch.linalg.lstsq(torch.stack([n**0, n], dim=1), t[:, None]).solution[:, 0]
            ),
            "relative errors were made small, so the short times count as much as the long. Wanted: Σ (a n + b n² − "
            "t)²": relative,
            "that is a power law, factor and exponent; wanted are the factors of n and n²": power,
            "that is a power law, exponent and factor; wanted are the factors of n and n²": power.flip(0),
            "two of the points decide in yours; all of them count": two,
            "each was fitted without the other; both together have to make up the seconds": alone,
        },
        f"wanted {truth.tolist()}, got {result.tolist()}",
        tolerance=1e-4,
    )
    cases = {
        "b": (torch.tensor([10.0, 20, 40]).double(), torch.tensor([20.0, 30, 35]).double()),
        "a": (torch.tensor([10.0, 20, 40]).double(), torch.tensor([1.0, 8, 60]).double()),
    }
    for name, (n, t) in cases.items():
        result, truth, plain = ask(n, t)
        rule_out(
            result,
            {
                f"{name} is negative. An operation cannot take less than no time: leave {name} out then": plain,
                f"{name} was set to 0, and the other kept as it was. Without {name} the other fits differently: fit it "
                "again": plain.clamp(min=0),
                f"{name} was made positive by dropping its sign. It belongs to 0": plain.abs(),
            },
            tolerance=1e-4,
        )
        compare(
            result,
            truth,
            {},
            f"for tokens {n.tolist()} and seconds {t.tolist()} wanted {truth.tolist()}, got {result.tolist()}",
            tolerance=1e-4,
        )


def pareto_front(cost: Float[Tensor, " k"], accuracy: Float[Tensor, " k"]) -> Bool[Tensor, " k"]:
    """Which runs are on the front: no other costs no more, is at least as accurate, and better in one of the two."""
    cheaper, better = cost[None] <= cost[:, None], accuracy[None] >= accuracy[:, None]
    strictly = (cost[None] < cost[:, None]) | (accuracy[None] > accuracy[:, None])
    return ~(cheaper & better & strictly).any(dim=1)


@checks(pareto_front)
def check_pareto_front(fn):
    cost = torch.tensor([3.0, 1.0, 5.0, 2.0, 2.0, 4.0, 8.0, 8.0, 9.0, 6.0])
    accuracy = torch.tensor([80.0, 50, 75, 70, 60, 85, 90, 90, 90, 40])
    truth = torch.tensor([True, True, False, True, False, True, True, True, False, False])
    result = call(fn, cost, accuracy)
    expect(
        not isinstance(result, Tensor) or result.dtype == torch.bool,
        "expected True or False for each run, in the order given, not numbers",
    )
    expect_shape(result, (len(cost),), "True or False for each run, in the order given")
    flipped = ~torch.stack([((cost >= c) & (accuracy <= a)).sum() > 1 for c, a in zip(cost, accuracy, strict=True)])
    no_worse = torch.stack([((cost <= c) & (accuracy >= a)).sum() == 1 for c, a in zip(cost, accuracy, strict=True)])
    lax = torch.stack([~((cost < c) & (accuracy > a)).any() for c, a in zip(cost, accuracy, strict=True)])
    order = cost.argsort(stable=True)
    best = torch.cummax(accuracy[order], dim=0).values
    running = torch.zeros(len(cost), dtype=torch.bool)
    running[order] = accuracy[order] == best  # keeps what is as good as the best so far, at any price
    mistakes = {
        "turned round: False is on the front": ~truth,
        "cost and accuracy are turned round: the front is cheap *and* accurate": flipped,
        "only the most accurate are left; a cheaper one that is less accurate is on the front too": (
            accuracy == accuracy.max()
        ),
        "all runs are on the front? One is off it when another is cheaper and more accurate": torch.ones_like(truth),
        "two runs of equal cost and accuracy do not push each other out: neither is better": no_worse,
        "a run is off the front too when another costs the same and is more accurate, or is as accurate and costs "
        "less": lax,
        "as accurate as the best so far is not enough: it costs more than the one before it": running,
        "the answers are in the order of cost; the order given was wanted": truth[order],
    }
    for hint, wrong in mistakes.items():
        expect(torch.equal(result, truth) or not torch.equal(result, wrong), hint)
    wrong = (result != truth).nonzero()[:, 0].tolist()
    expect(
        not wrong,
        f"costs {cost.tolist()} and accuracies {accuracy.tolist()}: run{'s' * (len(wrong) > 1)} "
        f"{', '.join(map(str, wrong))} should be the other way",
    )
