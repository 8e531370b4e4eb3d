"""Exercises of chapter 8: attention maps, recorded, rolled out, measured and put to the test."""

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


def _stumble(*_):
    raise ZeroDivisionError


def _judged_record(fn, model, images):
    """The maps, stacked, if the call left the model as it was."""

    def demand(right, said):
        if not right:
            raise CheckFailed(said)

    with torch.no_grad():
        logits = model(images)
    passes: list[int] = []
    counter = model.register_forward_hook(lambda *_: passes.append(1))
    maps = fn(model, images)
    counter.remove()
    depth = len(model.blocks)
    demand(isinstance(maps, list | tuple), f"expected a list with a tensor for each layer, got {describe(maps)}")
    demand(all(isinstance(a, Tensor) for a in maps), f"expected a tensor for each layer, got {describe(maps)}")
    demand(
        len(maps) == depth,
        f"expected {depth} maps, one for each layer, got {len(maps)}. Does the hook append to one list made inside the "
        "function, and is it put on every block's attention?",
    )
    demand(len(passes) == 1, f"the model was called {len(passes)} times; the maps must come from hooks in one call")
    result = torch.stack([a.detach() for a in maps])
    frozen = not all(parameter.requires_grad for parameter in model.parameters())
    demand(not frozen, "the model was frozen and left so: use `with torch.no_grad()` instead")
    demand(not _hooked(model), "hooks are left on the model: every later pass would go on recording. Remove them")
    demand(not model.training, "the model was put into training mode and left there")
    with torch.no_grad():
        demand(torch.allclose(model(images), logits), "the model does not give the same logits any more")
    demand(
        not any(a.requires_grad for a in maps),
        "the maps carry a graph with them, which keeps every layer's activations in memory: use torch.no_grad()",
    )
    stumbling = model.blocks[-1].register_forward_pre_hook(_stumble)
    try:
        fn(model, images + 1)
    except (CheckFailed, NotAttempted):
        raise
    except Exception:  # the same, or what a reader made of it
        stumbling.remove()
    else:
        raise CheckFailed("an error inside the model must come out of record_maps, not be swallowed")
    demand(not _hooked(model), "hooks are left on the model when the forward pass fails: remove them in a `finally`")
    return result


def _in_the_open(model, images):
    """From the path that has the matrix."""
    maps, paths = [], [block.attn.attend for block in model.blocks]

    def visible(q, k, v):
        maps.append((q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1))
        return maps[-1] @ v

    try:
        for block in model.blocks:
            block.attn.attend = visible
        with torch.no_grad():
            model(images)
    finally:
        for block, path in zip(model.blocks, paths, strict=True):
            block.attn.attend = path
    return maps


def _model(b=3, h=2, hd=4, depth=3, gh=3, **changes):
    config = ViTConfig(
        img_size=(2 * gh, 4), patch_size=2, num_classes=5, embed_dim=h * hd, depth=depth, num_heads=h, **changes
    )
    model = ViT(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model, torch.randn(b, 3, 2 * gh, 4)


def _record(weights=lambda q, k, v: attention_weights(q, k), part=lambda block: block.attn, change=lambda maps: maps,
            careful=True, safe=True, no_grad=True):  # fmt: skip
    """record_maps with a part of it replaced."""

    def fn(model, images):
        maps: list[Tensor] = []

        def keep(block):
            return lambda _, inputs: maps.append(weights(*block.attn.project(inputs[0])))

        hooks = [part(block).register_forward_pre_hook(keep(block)) for block in model.blocks]
        finished = False
        try:
            with torch.set_grad_enabled(not no_grad):
                model(images)
            finished = True
        finally:
            for hook in hooks if careful and (safe or finished) else ():
                hook.remove()
        return change(maps)

    return fn


def _tokens(model, images):
    kept: list[Tensor] = []
    hooks = [block.attn.register_forward_hook(lambda _, __, out: kept.append(out)) for block in model.blocks]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return kept


def _swallow(model, images):
    try:
        return record_maps(model, images)
    except ZeroDivisionError:
        return []


def _one_list(model, images, kept=[]):  # noqa: B006, the mistake
    kept += record_maps(model, images)
    return kept


EXERCISES["record_maps"] = Exercise(
    reference=record_maps,
    truth=_in_the_open,
    run=_judged_record,
    given=lambda b=3, h=2, hd=4, depth=3, gh=3: _model(b, h, hd, depth, gh),
    cases=[Case(given=lambda: _model(pool="mean"), hint="wrong for a model without a class token")],
    mistakes={
        "the heads were averaged. Keep them: what a mean hides cannot be got back": _record(
            change=lambda maps: [a.mean(1) for a in maps]
        ),
        "those are tokens, the layer's input or output. Compute weights from them": _tokens,
        "those are the heads' outputs or values, not their weights": _record(lambda q, k, v: v),
        "only one row of each matrix was kept": _record(change=lambda maps: [a[:, :, 0] for a in maps]),
        "those are the scores q kᵀ; the softmax is missing": _record(lambda q, k, v: q @ k.mT),
        "those are the scores q kᵀ / √hd; the softmax is missing": _record(
            lambda q, k, v: q @ k.mT / q.shape[-1] ** 0.5
        ),
        "the scores were not divided by √hd before the softmax": _record(lambda q, k, v: (q @ k.mT).softmax(-1)),
        "the scores were divided by √d; each head divides by √hd": _record(
            lambda q, k, v: (q @ k.mT / (q.shape[1] * q.shape[-1]) ** 0.5).softmax(-1)
        ),
        "the softmax runs over the queries. Each row must sum to 1: dim=-1": _record(
            lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2)
        ),
        "queries and keys are swapped": _record(lambda q, k, v: attention_weights(k, q)),
        "the matrices are transposed: row i belongs to query i": _record(change=lambda maps: [a.mT for a in maps]),
        "the hook reads the block's input. Attention gets it after norm1: hook block.attn": _record(part=lambda b: b),
        "the layers are in reverse order": _record(change=lambda maps: maps[::-1]),
        "queries were compared with values: project gives q, k, v in this order": _record(
            lambda q, k, v: attention_weights(q, v)
        ),
        "the batch axis is gone: is there a squeeze() or an index [0]?": _record(change=lambda m: [a[0] for a in m]),
        "the maps carry a graph with them, which keeps every layer's activations in memory: use torch.no_grad()": (
            _record(no_grad=False)
        ),
        "the maps must come from hooks in one call": lambda model, images: [
            record_maps(model, images)[i] for i in range(len(model.blocks))
        ],
        "every later pass would go on recording": _record(careful=False),
        "when the forward pass fails: remove them in a `finally`": _record(safe=False),
        "an error inside the model must come out of record_maps, not be swallowed": _swallow,
        "made inside the function": _one_list,
        "frozen and left so": lambda model, images: record_maps(model.requires_grad_(False), images),
        "put into training mode and left there": lambda model, images: (record_maps(model, images), model.train())[0],
    },
    right=[_record(), _in_the_open],
    shape="each map is (b, h, n, n)",
    otherwise="the maps are not those of a model that computes its weights in the open",
    without=("float64", "gradient"),
)


def rollout(maps: list[Float[Tensor, "b h n n"]]) -> Float[Tensor, "b n n"]:
    """The product over all layers of (mean of the heads + identity), each row scaled to sum to 1."""
    return attention_rollout(maps)


def _roll_slowly(maps):
    """Image by image and head by head, in float64."""
    images = []
    for i in range(len(maps[0])):
        out = torch.eye(maps[0].shape[-1]).double()
        for a in maps:
            layer = sum(head.double() for head in a[i]) / a.shape[1] + torch.eye(len(out)).double()
            out = torch.stack([row / row.sum() for row in layer]) @ out
        images.append(out)
    return torch.stack(images).to(maps[0].dtype)


def _rows(a):
    return a / a.sum(-1, keepdim=True)


def _roll(fuse=lambda a: a.mean(1), scale=_rows, join=lambda old, new: new @ old):
    """rollout with a part of it replaced."""
    return lambda maps: reduce(join, [scale(fuse(a) + torch.eye(a.shape[-1], dtype=a.dtype)) for a in maps])


def _by_hand():
    first = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0, 1]])
    return ([first[None, None], torch.tensor([[0.0, 1, 0], [0, 1, 0], [0.5, 0, 0.5]])[None, None]],)


def _thinned():
    return ([a * (a > 0.2) for a in torch.rand(3, 1, 2, 4, 4).softmax(dim=-1)],)


EXERCISES["rollout"] = Exercise(
    reference=rollout,
    truth=_roll_slowly,
    given=lambda depth=3, b=2, h=4, n=5: (list((3 * torch.rand(depth, b, h, n, n)).softmax(dim=-1)),),
    cases=[
        Case(
            given=_by_hand,
            hint="on two layers of three tokens, [[1, 0, 0], [½, ½, 0], [0, 0, 1]] and [[0, 1, 0], [0, 1, 0], "
            "[½, 0, ½]], the result must be [[0.625, 0.375, 0], [0.25, 0.75, 0], [0.25, 0, 0.75]]",
        ),
        Case(given=_thinned, hint="where small weights were set to 0, rows must be scaled to sum to 1, layer by layer"),
    ],
    mistakes={
        "the heads' axis is left: take the mean over the heads": _roll(fuse=lambda a: a),
        "the largest head was taken; rollout is of the mean of the heads": _roll(fuse=lambda a: a.amax(1)),
        "only the first head was rolled out": _roll(fuse=lambda a: a[:, 0]),
        "the heads were summed: then the residual connection counts too little": _roll(fuse=lambda a: a.sum(1)),
        "the heads were summed, and every row divided by 2": _roll(lambda a: a.sum(1), lambda a: a / 2),
        "the heads were rolled out one by one, and averaged at the end: take their mean in each layer": lambda maps: (
            _roll(fuse=lambda a: a)(maps).mean(1)
        ),
        "the images of the batch were mixed: each for itself": lambda maps: rollout(
            [a.mean(0, keepdim=True).expand_as(a) for a in maps]
        ),
        "the batch axis is gone": lambda maps: rollout(maps)[0],
        "only one row is left; keep the whole matrix": lambda maps: rollout(maps)[:, 0],
        "the product runs from the last layer to the first. A later layer mixes what earlier ones made: it stands on "
        "the left": _roll(join=lambda old, new: old @ new),
        "the identity is missing: a token also keeps itself, through the residual connection": lambda maps: reduce(
            lambda old, new: new @ old, [_rows(a.mean(1)) for a in maps]
        ),
        "the layers were averaged. They follow one another, so multiply": lambda maps: torch.stack(
            [_rows(a.mean(1) + torch.eye(a.shape[-1])) for a in maps]
        ).mean(0),
        "the layers were averaged, one after the other. They follow one another, so multiply": _roll(
            join=lambda old, new: (old + new) / 2
        ),
        "the layers were multiplied entry by entry; rollout is a matrix product, @": _roll(
            join=lambda old, new: old * new
        ),
        "the rows do not sum to 1: scale each layer after the identity is added": _roll(scale=lambda a: a),
        "that is the last layer alone": _roll(join=lambda old, new: new),
        "that is the first layer alone": _roll(join=lambda old, new: old),
        "the result is transposed": lambda maps: rollout(maps).mT,
        "columns were made to sum to 1, not rows": _roll(scale=lambda a: a / a.sum(-2, keepdim=True)),
        "`keepdim=True` is missing: each *column* j was divided by the sum of row j": _roll(
            scale=lambda a: a / a.sum(-1)
        ),
        "every row was divided by 2. That is right only while rows of weights sum to 1; here small weights were set to "
        "0. Divide by what the row sums to": _roll(scale=lambda a: a / 2),
        "each weight matrix was scaled before the identity was added; scale the sum": _roll(
            lambda a: _rows(a.mean(1)), lambda a: a / 2
        ),
        "the rows were scaled once, at the end: scale each layer": lambda maps: _rows(_roll(scale=lambda a: a)(maps)),
        "the identity counts twice in the first layer. Start from the identity and multiply all "
        "layers on": lambda maps: rollout(
            [(maps[0].mean(1, True) + torch.eye(maps[0].shape[-1])) / 2, *[a.mean(1, True) for a in maps[1:]]]
        ),
        "right for float32, wrong for float64": lambda maps: reduce(
            lambda out, a: _rows(a.mean(1) + torch.eye(a.shape[-1])) @ out, maps, torch.eye(maps[0].shape[-1])
        ),
    },
    right=[_roll()],
    shape="from each token of the last layer to each of the input: (b, n, n)",
    otherwise="the result is not the product of the layers, the last on the left",
)


def weight_gradient(at_proj: Float[Tensor, "b n d"], v: Float[Tensor, "b h n hd"]) -> Float[Tensor, "b h n n"]:
    """The gradient at the attention weights, from that at the heads' outputs, side by side, and the values."""
    return rearrange(at_proj, "b n (h hd) -> b h n hd", h=v.shape[1]) @ v.mT


def _autograd(at_proj, v):
    leaf = v.new_zeros(*v.shape[:3], v.shape[2]).requires_grad_()
    side_by_side = rearrange(leaf @ v, "b h n hd -> b n (h hd)")
    return torch.autograd.grad(side_by_side, leaf, at_proj)[0]


def _heads(grad, v, pattern="(h hd)"):
    return rearrange(grad, f"b n {pattern} -> b h n hd", h=v.shape[1])


EXERCISES["weight_gradient"] = Exercise(
    reference=weight_gradient,
    truth=_autograd,
    given=lambda b=2, h=3, n=5, hd=4: (torch.randn(b, n, h * hd), torch.randn(b, h, n, hd)),
    mistakes={
        "the heads were summed over: split d into h heads first": lambda g, v: weight_gradient(g, v).sum(1),
        "that is the gradient at the head's output. Multiply it by the values, transposed": _heads,
        "the product runs over the tokens. It must run over the head's width": lambda g, v: _heads(g, v).mT @ v,
        "rows and columns are swapped: row i belongs to the query, whose output has the gradient": lambda g, v: (
            v @ _heads(g, v).mT
        ),
        "d was split as (hd h): heads stand side by side, (h hd)": lambda g, v: _heads(g, v, "(hd h)") @ v.mT,
        "d was split by reshape alone, without moving the axes: tokens and heads are mixed up": lambda g, v: (
            g.reshape(v.shape) @ v.mT
        ),
        "the gradient was divided by √hd, which belongs to the scores; A v has no such factor": lambda g, v: (
            weight_gradient(g, v) / v.shape[-1] ** 0.5
        ),
        "negative gradients were set to 0; that comes later, when the heads are fused": lambda g, v: weight_gradient(
            g, v
        ).clamp(min=0),
        "the gradient at the output was multiplied with itself; v is missing": lambda g, v: (
            _heads(g, v) @ _heads(g, v).mT
        ),
        "the heads were averaged; each weight has its own gradient": lambda g, v: weight_gradient(g, v).mean(1),
        "a softmax was put on top: a gradient is no weight": lambda g, v: weight_gradient(g, v).softmax(-1),
        "three heads are written in by hand; v.shape[1] has their number": lambda g, v: (
            rearrange(g, "b n (h hd) -> b h n hd", h=3) @ v.mT
        ),
    },
    right=[lambda g, v: torch.einsum("bnhc,bhmc->bhnm", g.unflatten(-1, (v.shape[1], -1)), v)],
    shape="a gradient for each weight: (b, h, n, n)",
    otherwise="autograd has another gradient at the weights, on the path that holds them",
)


def mean_distance(weights: Float[Tensor, "b h n n"], config: ViTConfig) -> Float[Tensor, "b h"]:
    """How far patches look, in pixels: distance between centers, weighted by attention, mean over the patches."""
    return attention_distance(weights, config)


def _pair_by_pair(weights, config):
    (ph, pw), gw, skip = config.patch_size, config.grid_size[1], config.num_prefix_tokens
    total = torch.zeros(weights.shape[:2], dtype=weights.dtype)
    for i in range(config.num_patches):
        row = weights[:, :, skip + i, skip:]
        for j in range(config.num_patches):
            far = ((ph * (i // gw - j // gw)) ** 2 + (pw * (i % gw - j % gw)) ** 2) ** 0.5
            total += row[:, :, j] / row.sum(dim=-1) * far
    return total / config.num_patches


def _distance(tokens=lambda w, c: w[:, :, c.num_prefix_tokens :, c.num_prefix_tokens :], scale=True,
              far=torch.hypot, size=lambda size: size, places=lambda i, gh, gw: (i // gw, i % gw)):  # fmt: skip
    """mean_distance with a part of it replaced."""

    def fn(weights, config):
        ph, pw = size(config.patch_size)
        rows, cols = places(torch.arange(config.num_patches), *config.grid_size)
        down, right = ph * (rows[:, None] - rows).to(weights.dtype), pw * (cols[:, None] - cols).to(weights.dtype)
        part = tokens(weights, config)
        return ((_rows(part) if scale else part) * far(down, right)).sum(-1).mean(-1)

    return fn


def _looks(b=2, h=3, gh=3, gw=4, ph=2, pw=5, pool="cls"):
    config = ViTConfig(
        img_size=(gh * ph, gw * pw),
        patch_size=(ph, pw),
        num_classes=2,
        embed_dim=4 * h,
        depth=1,
        num_heads=h,
        pool=pool,
    )
    scores = 3 * torch.rand(b, h, config.num_tokens, config.num_tokens)
    return (scores + torch.linspace(0, 1, config.num_tokens)).softmax(dim=-1), config


EXERCISES["mean_distance"] = Exercise(
    reference=mean_distance,
    truth=_pair_by_pair,
    given=lambda b=2, h=3, gh=3, gw=4, ph=2, pw=5: _looks(b, h, gh, gw, ph, pw),
    smallest={"gh": 2, "gw": 2},
    cases=[
        Case(
            given=lambda: (
                torch.tensor([[[[0.1, 0.2, 0.7], [0.5, 0.375, 0.125], [0.5, 0.125, 0.375]]]]),
                _looks(1, 1, 1, 2, 3, 4)[1],
            ),
            truth=torch.tensor([[1.0]]),
            hint="in a row of two patches 4 pixels apart, of which each gives the other a quarter and itself the "
            "rest of what the class token leaves, the distance is 1",
        ),
        Case(
            given=lambda: _looks(pool="mean"),
            hint="a model that averages its patches has no class token: leave out config.num_prefix_tokens tokens, not "
            "always 1",
            caught=lambda w, c: (
                _distance(lambda w, c: w[:, :, 1:, 1:])(w, c) if c.pool == "cls" else mean_distance(w, c) / 2
            ),
        ),
    ],
    mistakes={
        "that is a distance for each patch; take the mean over the patches that look": lambda w, c: mean_distance(w, c)[
            ..., None
        ].expand(-1, -1, c.num_patches),
        "that is a distance for each token; leave the class token out, and take the mean": lambda w, c: mean_distance(
            w, c
        )[..., None].expand(-1, -1, c.num_tokens),
        "the batch axis is gone: keep one distance for each image": lambda w, c: mean_distance(w, c).mean(0),
        "the heads were averaged: keep one distance for each": lambda w, c: mean_distance(w, c).mean(1),
        "that is one number for all: keep images and heads apart": lambda w, c: mean_distance(w, c).mean(),
        "that is in patches; the patches are so many pixels high and wide": _distance(size=lambda size: (1, 1)),
        "height and width of a patch are swapped: patch_size is (height, width)": _distance(
            size=lambda size: size[::-1]
        ),
        "what goes to the class token is missing from the sum: scale the weights that are left to sum to 1": _distance(
            scale=False
        ),
        "distances were squared: take the root before the mean": _distance(far=lambda down, right: down**2 + right**2),
        "attention to itself was left out; it counts, with distance 0": _distance(
            lambda w, c: w[:, :, 1:, 1:] * (1 - torch.eye(c.num_patches))
        ),
        "that is the way along the streets, |down| + |right|; the distance is its straight line": _distance(
            far=lambda down, right: down.abs() + right.abs()
        ),
        "columns of the matrix were read: a row says where its token looks": _distance(lambda w, c: w[:, :, 1:, 1:].mT),
        "the patches were numbered column by column; the grid runs row by row": _distance(
            places=lambda i, gh, gw: (i % gh, i // gh)
        ),
        "the last token was left out; the class token is the first": _distance(lambda w, c: w[:, :, :-1, :-1]),
        "the distances were summed over the patches that look; take their mean": lambda w, c: (
            mean_distance(w, c) * c.num_patches
        ),
        "the farther, the same: every patch was counted equally, without the weights": _distance(
            lambda w, c: torch.ones_like(w[:, :, 1:, 1:])
        ),
    },
    right=[_distance()],
    shape="one distance for each image and head: (b, h)",
    otherwise="on a grid of 3×4 patches of 2×5 pixels the distances are wrong",
)


def mass_on_object(maps: Float[Tensor, "b gh gw"], masks: Bool[Tensor, "b H W"]) -> Float[Tensor, " b"]:
    """The share of each map that lies on the object; a patch counts as far as the object covers it."""
    return attention_mass(maps, masks)


def _coverage(maps, masks):
    return mask_coverage(masks, tuple(maps.shape[1:]), maps.dtype)


def _mass(coverage=_coverage, divide=lambda maps, masks: maps.sum((1, 2))):
    return lambda maps, masks: (maps * coverage(maps, masks)).sum((1, 2)) / divide(maps, masks)


def _pixel_by_pixel(maps, masks):
    (b, gh, gw), (height, width) = maps.shape, masks.shape[1:]
    on = torch.zeros(b, dtype=maps.dtype)
    for y in range(height):
        for x in range(width):
            on += maps[:, y * gh // height, x * gw // width] * masks[:, y, x]
    return on * gh * gw / (height * width) / maps.sum(dim=(1, 2))


def _pixel(offset):
    def coverage(maps, masks):
        ph, pw = masks.shape[1] // maps.shape[1], masks.shape[2] // maps.shape[2]
        return masks[:, offset * ph // 2 :: ph, offset * pw // 2 :: pw].to(maps.dtype)

    return coverage


def _smooth(maps, masks):
    large = F.interpolate(maps[:, None], masks.shape[1:], mode="bilinear")[:, 0]
    return (large * masks).sum((1, 2)) / large.sum((1, 2))


def _corner():
    """The object fills the upper right patch of 2×3 pixels, and one pixel of the lower left one."""
    mask = torch.zeros(1, 4, 6, dtype=torch.bool)
    mask[0, :2, 3:] = mask[0, 3, 0] = True
    return torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), mask


EXERCISES["mass_on_object"] = Exercise(
    reference=mass_on_object,
    truth=_pixel_by_pixel,
    given=lambda b=3, gh=2, gw=5, ph=4, pw=3: (torch.rand(b, gh, gw) + 0.1, torch.rand(b, gh * ph, gw * pw) < 0.4),
    cases=[
        Case(
            given=_corner,
            hint="on a 2×2 map [[1, 2], [3, 4]] with an object that covers one patch in full and a sixth of another, "
            "the share must be (2 + 3/6) / 10",
        ),
        Case(given=lambda: (torch.rand(2, 2, 2), torch.zeros(2, 4, 6) > 0), hint="without an object the share is 0"),
    ],
    mistakes={
        "that is the share of each patch; sum over the grid": lambda maps, masks: (
            maps * _coverage(maps, masks) / maps.sum()
        ),
        "that is one number for all images; keep one for each": lambda maps, masks: mass_on_object(maps, masks).mean(),
        "the map's values were not divided by their sum: a share is a part of the whole": _mass(divide=lambda *_: 1),
        "every patch that the object touches was counted in full; count it as far as it is covered": _mass(
            lambda maps, masks: (_coverage(maps, masks) > 0).float()
        ),
        "only patches that the object covers for the greater part were counted": _mass(
            lambda maps, masks: (_coverage(maps, masks) > 0.5).float()
        ),
        "that is the share off the object": lambda maps, masks: 1 - mass_on_object(maps, masks),
        "the sum over the object was divided by the object's size; divide by the sum of the map": _mass(
            divide=lambda maps, masks: masks.sum((1, 2))
        ),
        "the sum over the object was divided by the number of patches": _mass(divide=lambda maps, _: maps[0].numel()),
        "one pixel of each patch was looked at. Take the mean of the mask over the patch": _mass(_pixel(1)),
        "one pixel of each patch was looked at, its upper left one. Take the mean of the mask over it": _mass(
            _pixel(0)
        ),
        "the maps were scaled over the whole batch; each image's map has its own sum": _mass(
            divide=lambda maps, _: maps.sum()
        ),
        "rows and columns of the grid are mixed up": lambda maps, masks: mass_on_object(
            maps.mT.reshape(maps.shape), masks
        ),
        "the map is upside down": lambda maps, masks: mass_on_object(maps.flip(1), masks),
        "the map was smoothed when it was enlarged: a patch has one value for all its pixels": _smooth,
        "the covered pixels were summed, not averaged: a share cannot exceed 1": lambda maps, masks: (
            mass_on_object(maps, masks) * (masks[0].numel() // maps[0].numel())
        ),
        "the map was put through a softmax; its values count as they are, divided by their sum": lambda maps, masks: (
            mass_on_object(maps.flatten(1).softmax(-1).view(maps.shape), masks)
        ),
    },
    right=[_mass()],
    shape="one share for each image: (b,)",
    otherwise="the share on the object is wrong on a grid of 2×5 patches of 4×3 pixels",
)


def hide_top(
    images: Float[Tensor, "b c H W"], maps: Float[Tensor, "b gh gw"], k: int, value: float
) -> Float[Tensor, "b c H W"]:
    """The images with the ``k`` patches on which their map is highest painted over with ``value``."""
    patch_size = images.shape[2] // maps.shape[1], images.shape[3] // maps.shape[2]
    return hide_patches(images, maps.flatten(1).topk(k).indices, patch_size, value)


def _paint(images, hidden, value):
    """Paint where ``hidden`` (b, gh, gw) says, patch by patch."""
    out, (gh, gw) = images.clone(), hidden.shape[1:]
    ph, pw = images.shape[2] // gh, images.shape[3] // gw
    for i, row, col in hidden.nonzero().tolist():
        out[i, :, row * ph : (row + 1) * ph, col * pw : (col + 1) * pw] = value
    return out


def _paint_sorted(images, maps, k, value):
    chosen = [sorted(range(a.numel()), key=lambda j: -float(a.flatten()[j]))[:k] for a in maps]
    hidden = torch.tensor([[j in row for j in range(maps[0].numel())] for row in chosen])
    return _paint(images, hidden.view(maps.shape), value)


def _hide(
    numbers=lambda maps, k: maps.flatten(1).topk(k).indices, where=lambda hidden, gh, gw: hidden.view(-1, gh, gw)
):
    """hide_top with a part of it replaced."""

    def fn(images, maps, k, value):
        hidden = torch.zeros(len(maps), maps[0].numel()).scatter_(1, numbers(maps, k), 1)
        return _paint(images, where(hidden, *maps.shape[1:]), value)

    return fn


def _threshold(images, maps, k, value):
    flat = maps.flatten(1)
    return _paint(images, (flat >= flat.sort(1, True).values[:, k - 1 : k]).view(maps.shape), value)


def _strict_threshold(images, maps, k, value):
    flat = maps.flatten(1)
    edge = flat.sort(1, True).values[:, k : k + 1] if k < flat.shape[1] else flat.amin(1, True) - 1
    return _paint(images, (flat > edge).view(maps.shape), value)


def _of_the_batch(images, maps, k, value):
    hidden = torch.zeros(maps.numel()).scatter_(0, maps.flatten().topk(k).indices, 1)
    return _paint(images, hidden.view(maps.shape), value)


def _counted(fn, images, maps, k, value):
    """Where all patches are equally high, it is free which are hidden, but not how many."""
    out = fn(images, maps, k, value)
    return (out == value).flatten(1).sum(1) if maps.numel() > 1 and bool((maps == maps.max()).all()) else out


EXERCISES["hide_top"] = Exercise(
    reference=hide_top,
    truth=_paint_sorted,
    run=_counted,
    given=lambda b=3, c=2, gh=3, gw=4, ph=2, pw=5, k=5: (
        torch.rand(b, c, gh * ph, gw * pw) + 1,
        torch.randn(b, gh, gw),
        min(k, gh * gw - 1),
        0.25,
    ),
    smallest={"gh": 2, "gw": 2},
    cases=[
        Case(
            given=lambda: (torch.rand(2, 2, 6, 20) + 1, torch.ones(2, 3, 4), 5, 0.25),
            hint="patches that are equally high were all hidden, or none: there must be exactly k. A threshold "
            "cannot do that; topk can",
            caught=_threshold,
        ),
        Case(
            given=lambda: (torch.rand(2, 2, 6, 20) + 1, torch.rand(2, 3, 4), 0, 0.25),
            hint="with k = 0 nothing may be hidden",
            caught=lambda images, maps, k, value: hide_top(images, maps, max(k, 1), value),
        ),
        Case(
            given=lambda: (torch.rand(2, 2, 6, 20) + 1, torch.rand(2, 3, 4), 12, 0.25),
            hint="with k = the number of patches all must be hidden",
            caught=lambda images, maps, k, value: hide_top(images, maps, min(k, 11), value),
        ),
    ],
    mistakes={
        "nothing is hidden": lambda images, maps, k, value: images.clone(),
        "the *lowest* patches were hidden; topk gives the highest": lambda images, maps, k, value: hide_top(
            images, -maps, k, value
        ),
        "all but the highest patches were hidden": _hide(where=lambda hidden, gh, gw: 1 - hidden.view(-1, gh, gw)),
        "one patch too many is hidden": lambda x, maps, k, v: hide_top(x, maps, min(k + 1, maps[0].numel()), v),
        "one patch too few is hidden": lambda images, maps, k, value: hide_top(images, maps, max(k - 1, 0), value),
        "the k highest of the whole batch were hidden; each image has its own k": _of_the_batch,
        "patch numbers run along rows: number i is row i // gw, column i % gw": _hide(
            where=lambda hidden, gh, gw: hidden.view(-1, gw, gh).mT
        ),
        "the first image's patches were hidden in all images": _hide(
            lambda maps, k: maps[:1].flatten(1).topk(k).indices.expand(len(maps), k)
        ),
        "the patches were painted black, and not with the value that was asked for": lambda images, maps, k, value: (
            hide_top(images, maps, k, 0.0)
        ),
        "only the first channel was painted over": lambda images, maps, k, value: torch.cat(
            [hide_top(images, maps, k, value)[:, :1], images[:, 1:]], dim=1
        ),
        "the patches were multiplied by the value, not painted over with it": lambda images, maps, k, value: (
            torch.where(hide_top(images, maps, k, -1.0) == -1, images * value, images)
        ),
        "the largest absolute values were taken; wanted are the highest": lambda images, maps, k, value: hide_top(
            images, maps.abs(), k, value
        ),
        "exactly k. A threshold cannot do that; topk can": _strict_threshold,
    },
    right=[_paint_sorted, _hide()],
    shape="the images keep their size",
    otherwise="other pixels were painted over than those of the k highest patches",
)
