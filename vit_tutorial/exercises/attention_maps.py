"""Exercises of chapter 8: attention maps, recorded, rolled out, measured and put to the test."""

import copy
from contextlib import suppress
from functools import reduce

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from vit_tutorial.attention import attention_weights
from vit_tutorial.attention_maps.faithfulness import attention_mass, hide_patches, mask_coverage
from vit_tutorial.attention_maps.maps import attention_distance, attention_rollout, record_attention
from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, NotAttempted, describe
from vit_tutorial.model import ViT

EXERCISES: dict[str, Exercise] = {}


def record_maps(model: ViT, images: Float[Tensor, "b c H W"]) -> list[Float[Tensor, "b h n n"]]:
    """The attention weights of every layer, from one forward pass that hooks listen to."""
    with torch.no_grad(), record_attention(model) as maps:
        model(images)
    return maps


def _hooked(model):
    return any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())


def _demand(right, said):
    if not right:
        raise CheckFailed(said)


GRAPH = "the maps carry a graph with them, which keeps every layer's activations in memory: use torch.no_grad()"


@torch.no_grad()
def _logits(model, images):
    return model(images)


def _judged_record(fn, model, images):
    """The maps, stacked, after checking that the call left the model as it was."""
    calls, logits, depth = [], _logits(model, images), len(model.blocks)
    counter = model.register_forward_hook(lambda *_: calls.append(1))
    maps = fn(model, images)
    counter.remove()
    _demand(isinstance(maps, list | tuple), f"expected a list with a tensor for each layer, got {describe(maps)}")
    _demand(all(isinstance(a, Tensor) for a in maps), f"expected a tensor for each layer, got {describe(maps)}")
    _demand(len(maps) == depth, f"expected {depth} maps, one for each layer, got {len(maps)}. Does the hook append to "
            "one list made inside the function, and is it put on every block's attention?")  # fmt: skip
    _demand(len(calls) == 1, f"the model was called {len(calls)} times; the maps must come from hooks in one call")
    result = torch.stack([a.detach() for a in maps])
    learns = all(parameter.requires_grad for parameter in model.parameters())
    _demand(learns, "the model was frozen and left so: use `with torch.no_grad()` instead")
    _demand(not _hooked(model), "hooks are left on the model: every later pass would go on recording. Remove them")
    _demand(not model.training, "the model was put into training mode and left there")
    _demand(torch.allclose(_logits(model, images), logits), "the model's logits have changed")
    _demand(not any(a.requires_grad for a in maps), GRAPH)
    stumbling = model.blocks[-1].register_forward_pre_hook(lambda *_: 1 / 0)
    try:
        fn(model, images + 1)
    except (CheckFailed, NotAttempted):
        raise
    except Exception:  # the same, or what a reader made of it
        stumbling.remove()
    else:
        raise CheckFailed("an error inside the model must come out of record_maps, not be swallowed")
    _demand(not _hooked(model), "hooks are left on the model when the forward pass fails: remove them in a `finally`")
    return result


def _in_the_open(model, images):
    """From the path that has the matrix, in a copy."""
    maps, model = [], copy.deepcopy(model)

    def visible(q, k, v):
        maps.append((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1))
        return maps[-1] @ v

    for block in model.blocks:
        block.attn.attend = visible
    _logits(model, images)
    return maps


def _model(b=3, h=2, hd=4, depth=3, gh=3, pool="cls"):
    sizes = {"img_size": (2 * gh, 4), "patch_size": 2, "num_classes": 5, "embed_dim": h * hd, "num_heads": h}
    model = ViT(ViTConfig(**sizes, depth=depth, pool=pool)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model, torch.randn(b, 3, 2 * gh, 4)


def _record(weights=lambda q, k, v: attention_weights(q, k), change=lambda a: a, part=lambda block: block.attn,
            order=1, into=None, remove=lambda finished: True, graph=False, swallow=()):  # fmt: skip
    """record_maps with a part of it replaced."""

    def fn(model, images):
        maps, finished = [] if into is None else into, False

        def keep(attn):
            return lambda _, inputs: maps.append(change(weights(*attn.project(inputs[0]))))

        hooks = [part(block).register_forward_pre_hook(keep(block.attn)) for block in model.blocks]
        try:
            with torch.set_grad_enabled(graph), suppress(*swallow):
                model(images)
            finished = True
        finally:
            for hook in hooks if remove(finished) else ():
                hook.remove()
        return maps[::order]

    return fn


EXERCISES["record_maps"] = Exercise(reference=record_maps, truth=_in_the_open, run=_judged_record,
    given=lambda b=3, h=2, hd=4, depth=3, gh=3: _model(b, h, hd, depth, gh),
    cases=[Case(lambda: _model(pool="mean"), "wrong for a model without a class token")], mistakes={
    "the heads were averaged. Keep them: what a mean hides cannot be got back": _record(change=lambda a: a.mean(1)),
    "those are tokens, the layer's input or output. Compute weights from them":
        _record(lambda q, k, v: v.transpose(1, 2).flatten(2)),
    "those are the heads' outputs or values, not their weights": _record(lambda q, k, v: v),
    "only one row of each matrix was kept": _record(change=lambda a: a[:, :, 0]),
    "those are the scores q kᵀ; the softmax is missing": _record(lambda q, k, v: q @ k.mT),
    "those are the scores q kᵀ / √hd; the softmax is missing": _record(lambda q, k, v: q @ k.mT / q.shape[-1] ** 0.5),
    "the scores were not divided by √hd before the softmax": _record(lambda q, k, v: (q @ k.mT).softmax(-1)),
    "the scores were divided by √d; each head divides by √hd":
        _record(lambda q, k, v: (q @ k.mT / (q.shape[1] * q.shape[-1]) ** 0.5).softmax(-1)),
    "the softmax runs over the queries. Each row must sum to 1: dim=-1":
        _record(lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2)),
    "queries and keys are swapped": _record(lambda q, k, v: attention_weights(k, q)),
    "the matrices are transposed: row i belongs to query i": _record(change=lambda a: a.mT),
    "the hook reads the block's input. Attention gets it after norm1: hook block.attn": _record(part=lambda b: b),
    "the layers are in reverse order": _record(order=-1),
    "queries were compared with values: project gives q, k, v in this order":
        _record(lambda q, k, v: attention_weights(q, v)),
    "the batch axis is gone: is there a squeeze() or an index [0]?": _record(change=lambda a: a[0]),
    GRAPH: _record(graph=True),
    "the maps must come from hooks in one call":
        lambda model, images: [record_maps(model, images)[i] for i in range(len(model.blocks))],
    "every later pass would go on recording": _record(remove=lambda finished: False),
    "when the forward pass fails: remove them in a `finally`": _record(remove=lambda finished: finished),
    "an error inside the model must come out of record_maps, not be swallowed": _record(swallow=[ZeroDivisionError]),
    "made inside the function": _record(into=[]),
    "frozen and left so": lambda model, images: record_maps(model.requires_grad_(False), images),
    "put into training mode and left there": lambda model, images: (record_maps(model, images), model.train())[0],
}, right=[_record(), _in_the_open], shape="each map is (b, h, n, n)",
    otherwise="the maps are not those of a model that computes its weights in the open",
    without=("float64", "gradient"))  # fmt: skip


def rollout(maps: list[Float[Tensor, "b h n n"]]) -> Float[Tensor, "b n n"]:
    """The product over all layers of (mean of the heads + identity), each row scaled to sum to 1."""
    return attention_rollout(maps)


def _rows(a):
    return a / a.sum(-1, keepdim=True)


def _roll(fuse=lambda a: a.mean(1), scale=_rows, join=lambda old, new: new @ old, identity=1):
    """rollout with a part of it replaced."""
    return lambda maps: reduce(join, [scale(fuse(a) + identity * torch.eye(a.shape[-1], dtype=a.dtype)) for a in maps])


# Two layers of three tokens, one head, one image.
FIRST, SECOND = [[1.0, 0, 0], [0.5, 0.5, 0], [0, 0, 1]], [[0.0, 1, 0], [0, 1, 0], [0.5, 0, 0.5]]
EXERCISES["rollout"] = Exercise(reference=rollout, truth=_roll(),
    given=lambda depth=3, b=2, h=4, n=5: (list((3 * torch.rand(depth, b, h, n, n)).softmax(dim=-1)),), cases=[
    Case(lambda: ([torch.tensor([[FIRST]]), torch.tensor([[SECOND]])],),
         truth=torch.tensor([[[0.625, 0.375, 0], [0.25, 0.75, 0], [0.25, 0, 0.75]]]), hint="on two layers of 3 tokens, "
         "[[1, 0, 0], [½, ½, 0], [0, 0, 1]] and [[0, 1, 0], [0, 1, 0], [½, 0, ½]], the result must be "
         "[[0.625, 0.375, 0], [0.25, 0.75, 0], [0.25, 0, 0.75]]"),
    Case(lambda: ([a * (a > 0.2) for a in torch.rand(3, 1, 2, 4, 4).softmax(dim=-1)],),
         "where small weights were set to 0, rows must be scaled to sum to 1, layer by layer"),
], mistakes={
    "the heads' axis is left: take the mean over the heads": _roll(lambda a: a),
    "the largest head was taken; rollout is of the mean of the heads": _roll(lambda a: a.amax(1)),
    "only the first head was rolled out": _roll(lambda a: a[:, 0]),
    "the heads were summed: then the residual connection counts too little": _roll(lambda a: a.sum(1)),
    "the heads were summed, and every row divided by 2": _roll(lambda a: a.sum(1), lambda a: a / 2),
    "each head was rolled out alone, and averaged at the end: average the heads in each layer":
        lambda maps: _roll(lambda a: a)(maps).mean(1),
    "the images of the batch were mixed: roll out each by itself":
        lambda maps: rollout([a.mean(0, keepdim=True).expand_as(a) for a in maps]),
    "the batch axis is gone": lambda maps: rollout(maps)[0],
    "only one row is left; keep the whole matrix": lambda maps: rollout(maps)[:, 0],
    "the product runs from last to first. A later layer mixes what earlier ones made: it goes on the left":
        _roll(join=lambda old, new: old @ new),
    "the identity is missing: a token also keeps itself, through the residual connection": _roll(identity=0),
    "the layers were averaged. They follow one another, so multiply":
        lambda maps: torch.stack([_roll()([a]) for a in maps]).mean(0),
    "the layers were averaged, one after the other. They follow one another, so multiply":
        _roll(join=lambda old, new: (old + new) / 2),
    "the layers were multiplied entry by entry; rollout is a matrix product, @": _roll(join=lambda old, new: old * new),
    "the rows do not sum to 1: scale each layer after the identity is added": _roll(scale=lambda a: a),
    "that is the last layer alone": _roll(join=lambda old, new: new),
    "that is the first layer alone": _roll(join=lambda old, new: old),
    "the result is transposed": lambda maps: rollout(maps).mT,
    "columns were made to sum to 1, not rows": _roll(scale=lambda a: a / a.sum(-2, keepdim=True)),
    "`keepdim=True` is missing: each *column* j was divided by the sum of row j": _roll(scale=lambda a: a / a.sum(-1)),
    "every row was divided by 2, but where weights were set to 0 it sums to less: divide by what it sums to":
        _roll(scale=lambda a: a / 2),
    "each weight matrix was scaled before the identity was added; scale the sum":
        _roll(lambda a: _rows(a.mean(1)), lambda a: a / 2),
    "the rows were scaled once, at the end: scale each layer": lambda maps: _rows(_roll(scale=lambda a: a)(maps)),
    "the identity counts twice in the first layer. Start from the identity and multiply all layers on":
        lambda maps: rollout(
            [(maps[0].mean(1, True) + torch.eye(maps[0].shape[-1])) / 2, *[a.mean(1, True) for a in maps[1:]]]
        ),
}, right=[_roll()], shape="from each token of the last layer to each of the input: (b, n, n)",
    otherwise="the result is not the product of the layers, the last on the left")  # fmt: skip


def weight_gradient(at_proj: Float[Tensor, "b n d"], v: Float[Tensor, "b h n hd"]) -> Float[Tensor, "b h n n"]:
    """The gradient at the attention weights, from that at the heads' outputs, side by side, and the values."""
    return rearrange(at_proj, "b n (h hd) -> b h n hd", h=v.shape[1]) @ v.mT


def _autograd(at_proj, v):
    leaf = v.new_zeros(*v.shape[:3], v.shape[2]).requires_grad_()
    side_by_side = rearrange(leaf @ v, "b h n hd -> b n (h hd)")
    return torch.autograd.grad(side_by_side, leaf, at_proj)[0]


def _heads(grad, v, pattern="(h hd)"):
    return rearrange(grad, f"b n {pattern} -> b h n hd", h=v.shape[1])


EXERCISES["weight_gradient"] = Exercise(reference=weight_gradient, truth=_autograd,
    given=lambda b=2, h=3, n=5, hd=4: (torch.randn(b, n, h * hd), torch.randn(b, h, n, hd)), mistakes={
    "the heads were summed over: split d into h heads first": lambda g, v: weight_gradient(g, v).sum(1),
    "that is the gradient at the head's output. Multiply it by the values, transposed": _heads,
    "the product runs over the tokens. It must run over the head's width": lambda g, v: _heads(g, v).mT @ v,
    "rows and columns are swapped: row i belongs to the query, whose output has the gradient":
        lambda g, v: v @ _heads(g, v).mT,
    "d was split as (hd h): heads stand side by side, (h hd)": lambda g, v: _heads(g, v, "(hd h)") @ v.mT,
    "reshape alone, without moving the axes, mixes up tokens and heads": lambda g, v: g.reshape(v.shape) @ v.mT,
    "the gradient was divided by √hd, which belongs to the scores; A v has no such factor":
        lambda g, v: weight_gradient(g, v) / v.shape[-1] ** 0.5,
    "negative gradients were set to 0; that comes later, when the heads are fused":
        lambda g, v: weight_gradient(g, v).clamp(min=0),
    "the gradient at the output was multiplied with itself; v is missing": lambda g, v: _heads(g, v) @ _heads(g, v).mT,
    "the heads were averaged; each weight has its own gradient": lambda g, v: weight_gradient(g, v).mean(1),
    "a softmax was put on top: a gradient is not a weight": lambda g, v: weight_gradient(g, v).softmax(-1),
    "three heads are written in by hand; v.shape[1] has their number":
        lambda g, v: rearrange(g, "b n (h hd) -> b h n hd", h=3) @ v.mT,
}, right=[_autograd, lambda g, v: torch.einsum("bnhc,bhmc->bhnm", g.unflatten(-1, (v.shape[1], -1)), v)],
    shape="a gradient for each weight: (b, h, n, n)",
    otherwise="autograd has another gradient at the weights, on the path that holds them")  # fmt: skip


def mean_distance(weights: Float[Tensor, "b h n n"], config: ViTConfig) -> Float[Tensor, "b h"]:
    """How far patches look, in pixels: distance between centers, weighted by attention, mean over the patches."""
    return attention_distance(weights, config)


def _distance(tokens=lambda w, c: w[:, :, c.num_prefix_tokens :, c.num_prefix_tokens :], scale=_rows,
              far=torch.hypot, size=lambda size: size, places=lambda i, gh, gw: (i // gw, i % gw)):  # fmt: skip
    """mean_distance with a part of it replaced."""

    def fn(weights, config):
        ph, pw = size(config.patch_size)
        rows, cols = places(torch.arange(config.num_patches), *config.grid_size)
        down, right = ph * (rows[:, None] - rows).to(weights.dtype), pw * (cols[:, None] - cols).to(weights.dtype)
        return (scale(tokens(weights, config)) * far(down, right)).sum(-1).mean(-1)

    return fn


def _by_meshgrid(weights, config):
    """From coordinates in float32, whatever the weights are."""
    axes = (size * torch.arange(count) for size, count in zip(config.patch_size, config.grid_size, strict=True))
    places = torch.stack([axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij")], dim=1).float()
    kept = _rows(weights[:, :, config.num_prefix_tokens :, config.num_prefix_tokens :])
    return torch.einsum("bhij,ij->bhi", kept, torch.cdist(places, places)).mean(-1)


def _looks(b=2, h=3, gh=3, gw=4, ph=2, pw=5, pool="cls"):
    sizes = {"img_size": (gh * ph, gw * pw), "patch_size": (ph, pw), "embed_dim": 4 * h, "num_heads": h}
    config = ViTConfig(**sizes, num_classes=2, depth=1, pool=pool)
    scores = 3 * torch.rand(b, h, config.num_tokens, config.num_tokens)
    return (scores + torch.linspace(0, 1, config.num_tokens)).softmax(dim=-1), config


TWO_PATCHES = [[0.1, 0.2, 0.7], [0.5, 0.375, 0.125], [0.5, 0.125, 0.375]]
EXERCISES["mean_distance"] = Exercise(reference=mean_distance, truth=_distance(),
    given=lambda b=2, h=3, gh=3, gw=4, ph=2, pw=5: _looks(b, h, gh, gw, ph, pw), smallest={"gh": 2, "gw": 2}, cases=[
    Case(lambda: (torch.tensor([[TWO_PATCHES]]), _looks(1, 1, 1, 2, 3, 4)[1]), truth=torch.tensor([[1.0]]),
         hint="in a row of two patches 4 pixels apart, of which each gives the other a quarter and itself the rest "
         "of what the class token leaves, the distance is 1"),
    Case(lambda: _looks(pool="mean"),
         "a model that averages its patches has no class token: leave out config.num_prefix_tokens, not always 1",
         _distance(lambda w, c: w[:, :, 1:, 1:])),
], mistakes={
    "that is a distance for each patch; take the mean over the patches that look":
        lambda w, c: mean_distance(w, c)[..., None].repeat(1, 1, c.num_patches),
    "that is a distance for each token; leave the class token out, and take the mean":
        lambda w, c: mean_distance(w, c)[..., None].repeat(1, 1, c.num_tokens),
    "the batch axis is gone: keep one distance for each image": lambda w, c: mean_distance(w, c).mean(0),
    "the heads were averaged: keep one distance for each": lambda w, c: mean_distance(w, c).mean(1),
    "that is one number for all: keep images and heads apart": lambda w, c: mean_distance(w, c).mean(),
    "that is in patches; multiply by a patch's height and width in pixels": _distance(size=lambda size: (1, 1)),
    "height and width of a patch are swapped: patch_size is (height, width)": _distance(size=lambda s: s[::-1]),
    "the class token's part is missing from the sum: scale the weights that are left to sum to 1":
        _distance(scale=lambda w: w),
    "distances were squared: take the root before the mean": _distance(far=lambda down, right: down**2 + right**2),
    "attention to itself was left out; it counts, with distance 0":
        _distance(lambda w, c: w[:, :, 1:, 1:] * (1 - torch.eye(c.num_patches))),
    "that is the Manhattan distance, |down| + |right|; the distance is the straight line":
        _distance(far=lambda down, right: down.abs() + right.abs()),
    "columns of the matrix were read: a row says where its token looks": _distance(lambda w, c: w[:, :, 1:, 1:].mT),
    "the patches were numbered column by column; the grid runs row by row":
        _distance(places=lambda i, gh, gw: (i % gh, i // gh)),
    "the last token was left out; the class token is the first": _distance(lambda w, c: w[:, :, :-1, :-1]),
    "the distances were summed over the patches that look; take their mean":
        lambda w, c: mean_distance(w, c) * c.num_patches,
    "every patch was counted equally: weight each distance by its attention":
        _distance(lambda w, c: torch.ones_like(w[:, :, 1:, 1:])),
}, right=[_distance(), _by_meshgrid], shape="one distance for each image and head: (b, h)",
    otherwise="on a grid of 3×4 patches of 2×5 pixels the distances are wrong")  # fmt: skip


def mass_on_object(maps: Float[Tensor, "b gh gw"], masks: Bool[Tensor, "b H W"]) -> Float[Tensor, " b"]:
    """The fraction of each map that is on the object; a patch counts as far as the object covers it."""
    return attention_mass(maps, masks)


def _mass(coverage=lambda covered: covered, divide=lambda a, masks: a.sum((1, 2)), add=lambda x: x.sum((1, 2))):
    """mass_on_object with a part of it replaced."""
    return lambda a, m: add(a * coverage(mask_coverage(m, tuple(a.shape[1:]), a.dtype))) / divide(a, m)


def _enlarged(maps, masks, mode="nearest"):
    """Pixel by pixel, on a map of the image's size."""
    large = F.interpolate(maps[:, None], masks.shape[1:], mode=mode)[:, 0]
    return (large * masks).sum((1, 2)) / large.sum((1, 2))


# The object fills the upper right patch of 2×3 pixels, and one pixel of the lower left one.
CORNER = [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
EXERCISES["mass_on_object"] = Exercise(reference=mass_on_object, truth=_enlarged,
    given=lambda b=3, gh=2, gw=5, ph=4, pw=3: (torch.rand(b, gh, gw) + 0.1, torch.rand(b, gh * ph, gw * pw) < 0.4),
    cases=[
    Case(lambda: (torch.tensor([[[1.0, 2], [3, 4]]]), torch.tensor([CORNER]) > 0), truth=torch.tensor([0.25]),
         hint="on a 2×2 map [[1, 2], [3, 4]] with an object that covers one patch and a sixth of another, the "
         "fraction must be (2 + 3/6) / 10"),
    Case(lambda: (torch.rand(2, 2, 2), torch.zeros(2, 4, 6) > 0), "without an object the fraction is 0"),
], mistakes={
    "that is the fraction of each patch; sum over the grid": _mass(add=lambda x: x, divide=lambda a, _: a.sum()),
    "that is one number for all images; keep one for each": lambda a, m: mass_on_object(a, m).mean(),
    "the map's values were not divided by their sum: a fraction is a part of the whole": _mass(divide=lambda *_: 1),
    "every patch that the object touches was counted in full; count it as far as it is covered":
        _mass(lambda covered: (covered > 0).float()),
    "you counted only patches that are more than half covered; count each as far as it is covered":
        _mass(lambda covered: (covered > 0.5).float()),
    "that is the fraction off the object": lambda a, m: 1 - mass_on_object(a, m),
    "the sum over the object was divided by the object's size; divide by the sum of the map":
        _mass(divide=lambda maps, masks: masks.sum((1, 2))),
    "the sum over the object was divided by the number of patches; divide by the sum of the map":
        _mass(divide=lambda maps, _: maps[0].numel()),
    "one pixel of each patch was looked at. Take the mean of the mask over the patch":
        lambda a, m: mass_on_object(a, m[:, 2::4, 1::3]),
    "one pixel of each patch was looked at, its upper left one. Take the mean of the mask over it":
        lambda a, m: mass_on_object(a, m[:, ::4, ::3]),
    "the maps were scaled over the whole batch; divide each by its own sum": _mass(divide=lambda a, _: a.sum()),
    "rows and columns of the grid are mixed up": lambda a, m: mass_on_object(a.mT.reshape(a.shape), m),
    "the map is upside down": lambda a, m: mass_on_object(a.flip(1), m),
    "the map was smoothed when it was enlarged: a patch has one value for all its pixels":
        lambda a, m: _enlarged(a, m, "bilinear"),
    "the covered pixels were summed, not averaged: a fraction cannot exceed 1":
        lambda a, m: mass_on_object(a, m) * (m[0].numel() // a[0].numel()),
    "the map was put through a softmax; divide its values, as they are, by their sum":
        lambda a, m: mass_on_object(a.flatten(1).softmax(-1).view(a.shape), m),
}, right=[_mass(), _enlarged], shape="one fraction for each image: (b,)",
    otherwise="the fraction on the object is wrong on a grid of 2×5 patches of 4×3 pixels")  # fmt: skip


def hide_top(
    images: Float[Tensor, "b c H W"], maps: Float[Tensor, "b gh gw"], k: int, value: float
) -> Float[Tensor, "b c H W"]:
    """The images with the ``k`` patches on which their map is highest painted over with ``value``."""
    patch_size = images.shape[2] // maps.shape[1], images.shape[3] // maps.shape[2]
    return hide_patches(images, maps.flatten(1).topk(k).indices, patch_size, value)


def _rank(values):
    """How many values of the row are higher."""
    return values.argsort(dim=-1, descending=True).argsort(dim=-1)


def _hide(hidden=lambda a, k: _rank(a) < k, grid=lambda hidden, gh, gw: hidden.view(-1, gh, gw),
          paint=lambda images, value: torch.full_like(images, value)):  # fmt: skip
    """hide_top with a part replaced: the patches, from flat maps, their places on the grid, what they are painted."""

    def fn(images, maps, k, value):
        painted = grid(hidden(maps.flatten(1), k), *maps.shape[1:])[:, None].to(images.dtype)
        return torch.where(F.interpolate(painted, images.shape[2:]) > 0, paint(images, value), images)

    return fn


def _counted(fn, images, maps, k, value):
    """If all patches are equally high, any may be hidden, but only k of them."""
    out = fn(images, maps, k, value)
    return (out == value).flatten(1).sum(1) if maps.numel() > 1 and bool((maps == maps.max()).all()) else out


def _to_hide(b=3, c=2, gh=3, gw=4, ph=2, pw=5, k=5):
    return torch.rand(b, c, gh * ph, gw * pw) + 1, torch.randn(b, gh, gw), k, 0.25


EXERCISES["hide_top"] = Exercise(reference=hide_top, truth=_hide(), run=_counted, given=_to_hide,
    smallest={"gh": 2, "gw": 2}, cases=[
    Case(lambda: (torch.rand(2, 2, 6, 20) + 1, torch.ones(2, 3, 4), 5, 0.25),
         "patches that are equally high were all hidden, or none: hide exactly k. A threshold cannot; topk can",
         _hide(lambda a, k: a >= a.sort(1, True).values[:, k - 1 : k])),
    Case(lambda: _to_hide(k=0), "with k = 0 nothing may be hidden", _hide(lambda a, k: _rank(a) < max(k, 1))),
    Case(lambda: _to_hide(k=12), "with k = the number of patches all must be hidden",
         _hide(lambda a, k: _rank(a) < min(k, 11))),
], mistakes={
    "nothing is hidden": lambda images, *_: images.clone(),
    "the *lowest* patches were hidden; topk gives the highest": _hide(lambda a, k: _rank(-a) < k),
    "all but the highest patches were hidden": _hide(lambda a, k: _rank(a) >= k),
    "one patch too many is hidden": _hide(lambda a, k: _rank(a) <= k),
    "one patch too few is hidden": _hide(lambda a, k: _rank(a) < k - 1),
    "the k highest of the whole batch were hidden; each image has its own k":
        _hide(lambda a, k: _rank(a.flatten()).view_as(a) < k),
    "patches are counted row by row: patch i is in row i // gw, column i % gw":
        _hide(grid=lambda hidden, gh, gw: hidden.view(-1, gw, gh).mT),
    "the first image's patches were hidden in all images": _hide(lambda a, k: (_rank(a[:1]) < k).expand_as(a)),
    "the patches were painted black; paint them with the value that was asked for":
        _hide(paint=lambda images, _: 0 * images),
    "only the first channel was painted over":
        _hide(paint=lambda images, value: torch.cat([0 * images[:, :1] + value, images[:, 1:]], dim=1)),
    "the patches were multiplied by the value, not painted over with it": _hide(paint=torch.mul),
    "the largest absolute values were taken; hide the highest": _hide(lambda a, k: _rank(a.abs()) < k),
    "hide exactly k. A threshold cannot; topk can": _hide(lambda a, k: a > a.sort(1, True).values[:, k : k + 1]),
}, right=[_hide()], shape="the images keep their size",
    otherwise="the pixels painted over aren't those of the k highest patches")  # fmt: skip
