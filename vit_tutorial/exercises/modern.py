"""Exercises of chapter 13: the parts of today's blocks."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.modern import relative_position_index as index_of_package
from vit_tutorial.modern import rotate

EXERCISES: dict[str, Exercise] = {}


def rotate_pairs(x: Float[Tensor, "*b n hd"], angles: Float[Tensor, "n f"]) -> Float[Tensor, "*b n hd"]:
    """Turn features 2i and 2i + 1 of each token by ``angles[token, i]``."""
    return rotate(x, angles.cos(), angles.sin())


def _as_complex(x, angles):
    """Each pair as a complex number, times a number of length 1."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def _turned(change):
    """The two new features of each pair, from a, b, cos and sin."""

    def fn(x, angles):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack(change(a, b, angles.cos(), angles.sin()), dim=-1).flatten(-2)

    return fn


def _in_place(a, b, cos, sin):
    a = a * cos - b * sin
    return a, a * sin + b * cos


EXERCISES["rotate_pairs"] = Exercise(
    reference=rotate_pairs, truth=_as_complex, tolerance=1e-4, shape="the shape of x",
    given=lambda b=2, n=5, f=3: (torch.randn(b, n, 2 * f), 3 * torch.randn(n, f)),
    cases=[Case(lambda: (torch.randn(2, 3, 4, 6), torch.randn(4, 3)),
                "right for (b, n, hd), wrong with an axis for heads, (b, h, n, hd): count axes from the end",
                lambda x, angles: _as_complex(x, angles) if x.ndim == 3 else x),
           Case(lambda: (torch.tensor([[[1.0, 0, 0, 1]]]), torch.full((1, 2), torch.pi / 2)),
                "a quarter turn takes (1, 0) to (0, 1), and (0, 1) to (−1, 0)")],
    mistakes={
        "features i and i + hd/2 were paired. Here a pair is 2i and 2i + 1, neighbours":
            lambda x, angles: rotate(x, angles.cos(), angles.sin(), halves=True),
        "turned the other way round: the minus belongs to the first feature, a cos − b sin":
            lambda x, angles: rotate_pairs(x, -angles),
        "cos and sin are swapped: an angle of 0 must change nothing":
            _turned(lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin)),
        "both have a plus: a rotation has one minus, in the first feature":
            _turned(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos)),
        "the second feature was computed from the new first one. Keep the old one until both are done":
            _turned(_in_place),
        "the pairs came apart: new a's first, then new b's. Stack along a new last axis, then flatten":
            lambda x, angles: rotate_pairs(x, angles).unflatten(-1, (-1, 2)).mT.flatten(-2),
        "pairs were only scaled by cos: the other half of the rotation, with sin, is missing":
            _turned(lambda a, b, cos, sin: (a * cos, b * cos)),
        "every token was turned by the angles of token 0":
            lambda x, angles: rotate_pairs(x, angles[:1].expand_as(angles)),
    },
    right=[_turned(lambda a, b, cos, sin: (a * cos - b * sin, a * sin + b * cos)),
           lambda x, angles: x * angles.cos().repeat_interleave(2, -1)
           + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * angles.sin().repeat_interleave(2, -1)],
)  # fmt: skip


def relative_position_index(gh: int, gw: int) -> Int64[Tensor, "n n"]:
    """For each pair of patches the number of its offset, from 0 to (2gh − 1)(2gw − 1) − 1."""
    return index_of_package((gh, gw))


def _counted(gh, gw):
    """Pair by pair, as the statement has it."""
    places = [(row, column) for row in range(gh) for column in range(gw)]
    numbers = [[(r - s + gh - 1) * (2 * gw - 1) + c - d + gw - 1 for s, d in places] for r, c in places]
    return torch.tensor(numbers)


def _index(number):
    """Another number, from the offsets in rows and columns and the sides of the grid."""

    def fn(gh, gw):
        places = torch.cartesian_prod(torch.arange(gh), torch.arange(gw))
        rows, columns = (places[:, None] - places).unbind(-1)
        return number(rows, columns, gh, gw)

    return fn


EXERCISES["relative_position_index"] = Exercise(
    reference=relative_position_index, truth=_counted, tolerance=0, shape="(n, n), with n = gh · gw",
    given=lambda gh=3, gw=4: (gh, gw), smallest={"gh": 1, "gw": 1},
    cases=[Case(lambda: (4, 2), "right for 3 × 4 patches, wrong for 4 × 2"),
           Case(lambda: (3, 3), "right for oblong grids, wrong for a square one")],
    mistakes={
        "the key's place minus the query's: it's the query's, i, minus the key's, j":
            lambda gh, gw: _counted(gh, gw).T,
        "the offsets were not moved up, so some numbers are negative: add gh − 1 and gw − 1":
            _index(lambda r, c, gh, gw: r * (2 * gw - 1) + c),
        "the absolute value makes left and right one offset: add gh − 1 and gw − 1 instead":
            _index(lambda r, c, gh, gw: r.abs() * (2 * gw - 1) + c.abs()),
        "that counts along the sequence, and two offsets share a number: a row has 2gw − 1 offsets in columns, not gw":
            _index(lambda r, c, gh, gw: (r + gh - 1) * gw + c + gw - 1),
        "two offsets share a number: multiply by 2gw − 1, how many offsets in columns there are, not by 2gh − 1":
            _index(lambda r, c, gh, gw: (r + gh - 1) * (2 * gh - 1) + c + gw - 1),
        "offsets in rows and in columns were added, so many pairs share a number: multiply the rows by 2gw − 1":
            _index(lambda r, c, gh, gw: r + gh - 1 + c + gw - 1),
        "columns were multiplied, not rows: row by row, as a page is read":
            _index(lambda r, c, gh, gw: (c + gw - 1) * (2 * gh - 1) + r + gh - 1),
        "the numbers begin at 1: the first row of the table is number 0":
            lambda gh, gw: _counted(gh, gw) + 1,
    },
    right=[_index(lambda r, c, gh, gw: (r + gh - 1) * (2 * gw - 1) + c + gw - 1)],
)  # fmt: skip


def rms_norm(x: Float[Tensor, "... d"], weight: Float[Tensor, "d"], eps: float = 1e-6) -> Float[Tensor, "... d"]:
    """Divide each token by the root of its mean square plus eps, then multiply by ``weight``."""
    return x * (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * weight


def _rms(size=lambda x: x.square().mean(-1, keepdim=True), root=torch.sqrt, eps_inside=True):
    def fn(x, weight, eps=1e-6):
        return x / (root(size(x) + eps) if eps_inside else root(size(x)) + eps) * weight

    return fn


EXERCISES["rms_norm"] = Exercise(
    reference=rms_norm, truth=lambda x, weight, eps: F.rms_norm(x, weight.shape, weight, eps), shape="the shape of x",
    given=lambda b=2, n=5, d=6: (3 * torch.randn(b, n, d) + 1, torch.randn(d), 1e-6), smallest={"d": 2},
    cases=[Case(lambda: (torch.randn(7, 5) + 1, torch.randn(5), 1e-6),
                "right for (b, n, d), wrong for (n, d): the features are the last axis, -1",
                lambda x, weight, eps: _rms(lambda x: x.square().mean(min(2, x.ndim - 1), keepdim=True)
                                            if x.ndim == 3 else x.square().mean(0, keepdim=True))(x, weight, eps)),
           Case(lambda: (torch.randn(2, 3, 8) + 1, torch.randn(8), 0.5),
                "wrong for a larger eps: it's an argument, and it's added to the mean square, inside the root")],
    mistakes={
        "that's LayerNorm: nothing is subtracted here": lambda x, weight, eps: F.layer_norm(x, weight.shape, weight),
        "the mean is missing, so tokens get length 1: divide by the root of the mean square, not of the sum":
            _rms(lambda x: x.square().sum(-1, keepdim=True)),
        "the root is missing: divide by the root of the mean square": _rms(root=lambda x: x),
        "divided by the standard deviation, which subtracts the mean first": _rms(lambda x: x.var(-1, keepdim=True)),
        "the mean went over all tokens. Each token has its own": _rms(lambda x: x.square().mean()),
        "the mean went over the tokens, axis -2, not over the features, axis -1":
            _rms(lambda x: x.square().mean(-2, keepdim=True)),
        "`weight` is missing: multiply by it at the end":
            lambda x, weight, eps: rms_norm(x, torch.ones_like(weight), eps),
        "that's the mean of absolute values: square first, take the root after the mean":
            _rms(lambda x: x.abs().mean(-1, keepdim=True).square()),
        "eps is added to the root. It's added to the mean square, inside": _rms(eps_inside=False),
        "1e-6 stands in place of eps": lambda x, weight, eps: rms_norm(x, weight),
    },
    right=[_rms(), lambda x, weight, eps: weight * x / (x.norm(dim=-1, keepdim=True) ** 2 / x.shape[-1] + eps) ** 0.5],
)  # fmt: skip


def with_registers(
    blocks: Callable[[Tensor], Tensor], tokens: Float[Tensor, "b n d"], registers: Float[Tensor, "1 r d"]
) -> Float[Tensor, "b n d"]:
    """Run the blocks with registers between class token and patches, and take the registers out again."""
    number = registers.shape[1]
    x = torch.cat([tokens[:, :1], registers.expand(len(tokens), -1, -1), tokens[:, 1:]], dim=1)
    x = blocks(x)
    return torch.cat([x[:, :1], x[:, 1 + number :]], dim=1)


def _mixing(x):
    """Blocks in which every token hears of those before it, each with its own weight: places matter."""
    heard = (x * torch.linspace(1, 2, x.shape[1], dtype=x.dtype)[:, None]).cumsum(dim=1)
    return x + heard / x.shape[1]


def _registers_by_image(blocks, tokens, registers):
    """Image by image, as lists of tokens."""
    kept = []
    for image in tokens:
        out = blocks(torch.stack([image[0], *registers[0], *image[1:]])[None])[0]
        kept.append(torch.stack([out[0], *out[1 + registers.shape[1] :]]))
    return torch.stack(kept)


def _around(put, take):
    def fn(blocks, tokens, registers):
        r = registers.shape[1]
        return take(blocks(put(tokens, registers.expand(len(tokens), -1, -1))), r)

    return fn


def _between(tokens, registers):
    return torch.cat([tokens[:, :1], registers, tokens[:, 1:]], dim=1)


def _without(x, r):
    return torch.cat([x[:, :1], x[:, 1 + r :]], dim=1)


EXERCISES["with_registers"] = Exercise(
    reference=with_registers, truth=_registers_by_image,
    given=lambda b=3, n=5, r=2, d=4: (_mixing, torch.randn(b, n, d), torch.randn(1, r, d)), smallest={"n": 2},
    shape="as many tokens as came in: the registers are taken out again",
    cases=[Case(lambda: (nn.Identity(), torch.randn(2, 6, 3), torch.randn(1, 4, 3)),
                "blocks that change nothing must give back the tokens as they were"),
           Case(lambda: (_mixing, torch.randn(2, 6, 3), torch.randn(1, 1, 3)),
                "right for several registers, wrong for one")],
    mistakes={
        "the registers are still there: take them out behind the blocks": _around(_between, lambda x, r: x),
        "the last tokens were cut off, which are patches. The registers are behind the class token":
            _around(_between, lambda x, r: x[:, :-r]),
        "the first tokens were cut off, and the class token with them": _around(_between, lambda x, r: x[:, r:]),
        "the registers stand in front of the class token: token 0 stays in front":
            _around(lambda x, reg: torch.cat([reg, x], 1), lambda x, r: x[:, r:]),
        "the registers stand behind the patches: they come between class token and patches":
            _around(lambda x, reg: torch.cat([x, reg], 1), lambda x, r: x[:, :-r]),
        "the blocks never saw the registers": lambda blocks, tokens, registers: blocks(tokens),
        "the blocks did not run": lambda blocks, tokens, registers: tokens.clone(),
        "patches were replaced by registers. They're additional tokens":
            _around(lambda x, reg: torch.cat([x[:, :1], reg, x[:, 1 + reg.shape[1] :]], 1), lambda x, r: x),
        "only the first image got the registers":
            _around(lambda x, reg: _between(x, torch.cat([reg[:1], torch.zeros_like(reg[1:])])), _without),
        "the registers were averaged into one":
            lambda blocks, tokens, registers: with_registers(blocks, tokens, registers.mean(1, keepdim=True)),
    },
    right=[_around(_between, _without),
           _around(_between, lambda x, r: x[:, [0, *range(1 + r, x.shape[1])]])],
    without=("strides",),
)  # fmt: skip


def patch_dropout(
    tokens: Float[Tensor, "b n d"], noise: Float[Tensor, "b patches"], number: int
) -> Float[Tensor, "b m d"]:
    """Keep the class token and each image's ``number`` patches with the smallest noise, in the order of the noise."""
    kept = noise.argsort(dim=1)[:, :number]
    return torch.cat([tokens[:, :1], tokens[:, 1:].take_along_dim(kept[..., None], dim=1)], dim=1)


def _dropped_in_a_loop(tokens, noise, number):
    images = []
    for image, numbers in zip(tokens, noise.tolist(), strict=True):
        order = sorted(range(len(numbers)), key=numbers.__getitem__)[:number]
        images.append(torch.stack([image[0], *(image[1 + i] for i in order)]))
    return torch.stack(images)


def _keeping(which=lambda noise, number: noise.argsort(1)[:, :number], shift=1, first=True):
    def fn(tokens, noise, number):
        kept = tokens.take_along_dim((which(noise, number) + shift)[..., None], dim=1)
        return torch.cat([tokens[:, :1], kept], dim=1) if first else kept

    return fn


EXERCISES["patch_dropout"] = Exercise(
    reference=patch_dropout, truth=_dropped_in_a_loop,
    given=lambda b=3, n=7, d=4: (torch.randn(b, n + 1, d), torch.rand(b, n), (n + 1) // 2), smallest={"n": 2},
    shape="(b, 1 + number, d): the class token and `number` patches",
    cases=[Case(lambda: (torch.randn(2, 6, 3), torch.rand(2, 5), 5),
                "if all patches are kept, they are all there, in the order of their noise"),
           Case(lambda: (torch.randn(4, 9, 3), torch.rand(4, 8), 1), "right for several patches, wrong for one")],
    mistakes={
        "all images lost the same patches: each row of `noise` belongs to its image":
            _keeping(lambda noise, number: noise.argsort(1)[:1, :number].expand(len(noise), -1)),
        "the patches with the largest noise were kept, not those with the smallest":
            _keeping(lambda noise, number: noise.argsort(1, descending=True)[:, :number]),
        "the class token moved the count by one: noise 0 belongs to tokens[:, 1]": _keeping(shift=0),
        "the class token is gone: it always stays, in front": _keeping(first=False),
        "the kept patches are back in their old order. They come in the order of their noise":
            _keeping(lambda noise, number: noise.argsort(1)[:, :number].sort(1).values),
        "the first patches were kept, whatever the noise":
            _keeping(lambda noise, number: torch.arange(number).expand(len(noise), -1)),
        "argsort twice gives each patch's rank. Once gives the patches in their order":
            _keeping(lambda noise, number: noise.argsort(1).argsort(1)[:, :number]),
        "the others were set to 0 and are still there. They have to go, or nothing gets cheaper":
            lambda tokens, noise, number: tokens * F.pad(
                (noise.argsort(1).argsort(1) < number).to(tokens.dtype), (1, 0), value=1)[..., None],
        "`number` patches went. `number` is how many stay":
            lambda tokens, noise, number: patch_dropout(tokens, noise, noise.shape[1] - number),
    },
    right=[_keeping(), _keeping(lambda noise, number: noise.topk(number, dim=1, largest=False).indices),
           lambda tokens, noise, number: torch.cat([tokens[:, :1], tokens[:, 1:][
               torch.arange(len(noise))[:, None], noise.argsort(1)[:, :number]]], 1)],
)  # fmt: skip
