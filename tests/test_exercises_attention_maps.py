"""The checks of chapter 8 accept the reference and name each mistake."""

from functools import reduce

import torch
import torch.nn.functional as F
from einops import rearrange
from hints import assert_hints

from vit_tutorial import attention_weights
from vit_tutorial.attention_maps import mask_coverage
from vit_tutorial.exercises.attention_maps import (
    hide_top,
    mass_on_object,
    mean_distance,
    record_maps,
    rollout,
    weight_gradient,
)


def _record(
    weights=lambda q, k, v: attention_weights(q, k),
    part=lambda block: block.attn,
    change=lambda maps: maps,
    careful=True,
):
    """record_maps with a part of it replaced."""

    def fn(model, images):
        maps, hooks = [], []

        def keep(block):
            def hook(_, inputs):
                q, k, v = block.attn.project(inputs[0])
                maps.append(weights(q, k, v))

            return hook

        for block in model.blocks:
            hooks.append(part(block).register_forward_pre_hook(keep(block)))
        try:
            with torch.no_grad():
                model(images)
        finally:
            if careful:
                for hook in hooks:
                    hook.remove()
        return change(maps)

    return fn


def _with_graph(model, images):
    maps = []
    hooks = [
        block.attn.register_forward_pre_hook(lambda attn, inputs: maps.append(attn.weights(inputs[0])))
        for block in model.blocks
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    return maps


def _swallow(model, images):
    try:
        return record_maps(model, images)
    except ZeroDivisionError:
        return []


def _one_call_for_each_layer(model, images):
    return [record_maps(model, images)[layer] for layer in range(3)]


def _tokens(model, images):
    kept = []
    hooks = [block.attn.register_forward_hook(lambda _, __, out: kept.append(out)) for block in model.blocks]
    model(images)
    for hook in hooks:
        hook.remove()
    return kept


def _left_training(model, images):
    maps = record_maps(model, images)
    model.train()
    return maps


def _changes_the_model(model, images):
    maps = record_maps(model, images)
    model.blocks[0].attn.attend = lambda q, k, v: v
    return maps


def _one_list(model, images, kept=[]):  # noqa: B006, the mistake
    kept += record_maps(model, images)
    return kept


def _no_gradients_ever(model, images):
    torch.set_grad_enabled(False)
    return record_maps(model, images)


def _freezes(model, images):
    return record_maps(model.requires_grad_(False), images)


def test_record_maps():
    assert_hints(
        "record_maps",
        record_maps,
        {
            "expected a list": lambda m, x: torch.stack(record_maps(m, x)),
            "expected 3 maps": _record(change=lambda maps: maps[-1:]),
            "called 3 times": _one_call_for_each_layer,
            "heads were averaged": _record(change=lambda maps: [a.mean(1) for a in maps]),
            "those are tokens": _tokens,
            "heads' outputs or values": _record(lambda q, k, v: v),
            "only one row": _record(change=lambda maps: [a[:, :, 0] for a in maps]),
            "q kᵀ; the softmax is missing": _record(lambda q, k, v: q @ k.mT),
            "q kᵀ / √hd; the softmax is missing": _record(lambda q, k, v: q @ k.mT / q.shape[-1] ** 0.5),
            "were not divided by √hd": _record(lambda q, k, v: (q @ k.mT).softmax(-1)),
            "divided by √d;": _record(lambda q, k, v: (q @ k.mT / 8**0.5).softmax(-1)),
            "runs over the queries": _record(lambda q, k, v: (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2)),
            "queries and keys are swapped": _record(change=lambda maps: [a.mT for a in maps]),
            "after norm1": _record(part=lambda block: block),
            "reverse order": _record(change=lambda maps: maps[::-1]),
            "compared with values": _record(lambda q, k, v: attention_weights(q, v)),
            "in the open": _record(lambda q, k, v: attention_weights(q + 1, k)),
            "carry a graph": _with_graph,
            "a later call": _one_list,
            "left switched off": _no_gradients_ever,
            "was frozen": _freezes,
            "every later pass": _record(careful=False),
            "when the forward pass fails": _careless(),
            "not be swallowed": _swallow,
            "training mode": _left_training,
            "same logits": _changes_the_model,
            "return` missing": lambda m, x: None,
        },
    )


def _careless():
    def fn(model, images):
        maps, hooks = [], []
        for block in model.blocks:
            hooks.append(
                block.attn.register_forward_pre_hook(lambda attn, inputs: maps.append(attn.weights(inputs[0])))
            )
        with torch.no_grad():
            model(images)
        for hook in hooks:
            hook.remove()
        return maps

    return fn


def _roll(fuse=lambda a: a.mean(1), scale=lambda a: a / a.sum(-1, keepdim=True), join=lambda old, new: new @ old):
    """rollout with a part of it replaced."""

    def fn(maps):
        return reduce(join, [scale(fuse(a) + torch.eye(a.shape[-1])) for a in maps])

    return fn


def _roll_in_place(maps):
    for a in maps:
        a += torch.eye(a.shape[-1])
        a /= a.sum(-1, keepdim=True)
    return reduce(lambda old, new: new @ old, [a.mean(1) for a in maps])


def _identity_twice(maps):
    out = torch.eye(maps[0].shape[-1])
    for a in maps:
        layer = a.mean(1) + torch.eye(a.shape[-1])
        layer = layer / layer.sum(-1, keepdim=True)
        out = layer @ out if len(out.shape) == 3 else layer @ ((layer + out) / 2) @ torch.linalg.inv(layer)
    return out


def test_rollout():
    assert_hints(
        "rollout",
        rollout,
        {
            "in place": _roll_in_place,
            "heads' axis is left": lambda maps: _roll(fuse=lambda a: a)(maps),
            "batch axis is gone": lambda maps: rollout(maps)[0],
            "only one row": lambda maps: rollout(maps)[:, 0],
            "last layer to the first": _roll(join=lambda old, new: old @ new),
            "identity is missing": lambda maps: reduce(lambda old, new: new @ old, [a.mean(1) for a in maps]),
            "layers were averaged": _roll(join=lambda old, new: (old + new) / 2),
            "entry by entry": _roll(join=lambda old, new: old * new),
            "sum to 4": _roll(scale=lambda a: a),
            "identity counts twice": _identity_twice,
            "last layer alone": _roll(join=lambda old, new: new),
            "first layer alone": _roll(join=lambda old, new: old),
            "transposed": lambda maps: rollout(maps).mT,
            "[[0.625": lambda maps: rollout(maps).sqrt(),
            "divided by 2": _roll(scale=lambda a: a / 2),
            "keepdim": _roll(scale=lambda a: a / a.sum(-1) if a.shape[0] == 1 else a / a.sum(-1, keepdim=True)),
            "columns were made": lambda maps: (
                _roll(scale=lambda a: a / a.sum(-2, keepdim=True))(maps) if maps[0].shape[-1] == 4 else rollout(maps)
            ),
            "before the identity": _roll(
                fuse=lambda a: a.mean(1) / a.mean(1).sum(-1, keepdim=True), scale=lambda a: a / 2
            ),
            "layer by layer": lambda maps: rollout(maps) ** 2 if maps[0].shape[-1] == 4 else rollout(maps),
            "largest head": _only_for_many(lambda a: a.amax(1)),
            "only the first head": _only_for_many(lambda a: a[:, 0]),
            "heads were summed": _only_for_many(lambda a: a.sum(1)),
            "images of the batch were mixed": lambda maps: rollout(
                [a.mean(0, keepdim=True).expand_as(a) for a in maps]
            ),
            "two images, three layers": lambda maps: rollout(maps).flip(0),
        },
    )


def _only_for_many(fuse):
    """Wrong where a map has more than two heads."""
    return lambda maps: _roll(fuse=fuse)(maps) if maps[0].shape[1] == 4 else rollout(maps)


def _split(pattern):
    return lambda grad, v: rearrange(grad, pattern, h=v.shape[1]) @ v.mT


def _heads(grad, v):
    return rearrange(grad, "b n (h hd) -> b h n hd", h=v.shape[1])


def test_weight_gradient():
    assert_hints(
        "weight_gradient",
        weight_gradient,
        {
            "heads were summed over": lambda g, v: weight_gradient(g, v).sum(1),
            "at the head's output": _heads,
            "over the head's width": lambda g, v: _heads(g, v).mT @ v,
            "(2, 3, 4, 5). the product runs over the tokens": lambda g, v: (_heads(g, v).mT @ v @ v.mT)[:, :, :, :5],
            "rows and columns are swapped": lambda g, v: v @ _heads(g, v).mT,
            "(hd h)": _split("b n (hd h) -> b h n hd"),
            "reshape alone": lambda g, v: g.reshape(v.shape) @ v.mT,
            "divided by √hd": lambda g, v: weight_gradient(g, v) / v.shape[-1] ** 0.5,
            "set to 0": lambda g, v: weight_gradient(g, v).clamp(min=0),
            "multiplied with itself": lambda g, v: _heads(g, v) @ _heads(g, v).mT,
            "autograd has another": lambda g, v: weight_gradient(g, v) * 2,
        },
    )


def _distance(tokens=lambda w, c: w[:, :, c.num_prefix_tokens :, c.num_prefix_tokens :], scale=True, **changes):
    """mean_distance with a part of it replaced."""

    def fn(weights, config):
        gh, gw = config.grid_size
        ph, pw = changes.get("size", lambda size: size)(config.patch_size)
        numbers = torch.arange(gh * gw)
        rows, cols = changes.get("places", lambda i, gh, gw: (i // gw, i % gw))(numbers, gh, gw)
        down, right = ph * (rows[:, None] - rows), pw * (cols[:, None] - cols)
        far = changes.get("far", lambda down, right: (down**2 + right**2) ** 0.5)(down.float(), right.float())
        shares = tokens(weights, config)
        if scale:
            shares = shares / shares.sum(-1, keepdim=True)
        return (shares * far).sum(-1).mean(-1)

    return fn


def test_mean_distance():
    assert_hints(
        "mean_distance",
        mean_distance,
        {
            "in place": lambda w, c: mean_distance(w.mul_(2), c),
            "for each patch; take the mean": lambda w, c: mean_distance(w, c)[..., None].expand(-1, -1, c.num_patches),
            "for each token": lambda w, c: mean_distance(w, c)[..., None].expand(-1, -1, c.num_tokens),
            "batch axis is gone": lambda w, c: mean_distance(w, c).mean(0),
            "heads were averaged": lambda w, c: mean_distance(w, c).mean(1),
            "one number for all": lambda w, c: mean_distance(w, c).mean(),
            "in patches; the patches are 4 pixels wide": _distance(size=lambda size: (1, 1)),
            "width of the patches was taken": _distance(size=lambda size: size[::-1]),
            "missing from the sum": _distance(scale=False),
            "take the root": _distance(far=lambda down, right: down**2 + right**2),
            "attention to itself was left out": _distance(
                lambda w, c: w[:, :, 1:, 1:] * (1 - torch.eye(c.num_patches))
            ),
            "along the streets": _distance(far=lambda down, right: down.abs() + right.abs()),
            "columns of the matrix": _after_the_hand(_distance(lambda w, c: w[:, :, 1:, 1:].mT)),
            "column by column": _distance(places=lambda i, gh, gw: (i % gh, i // gh)),
            "the last token was left out": _after_the_hand(_distance(lambda w, c: w[:, :, :-1, :-1])),
            "height and width of a patch are swapped": _after_the_hand(_distance(size=lambda size: size[::-1])),
            "3×4 patches of 2×5": _after_the_hand(lambda w, c: 2 * mean_distance(w, c)),
            "a row of two patches": lambda w, c: 2 * mean_distance(w, c),
            "not always 1": lambda w, c: (
                mean_distance(w, c) if c.pool == "cls" else mean_distance(w, c) * w[:, :, 1:].mean()
            ),
        },
    )


def _after_the_hand(wrong):
    """Wrong, but right on the case done by hand."""
    return lambda w, c: mean_distance(w, c) if c.num_patches == 2 else wrong(w, c)


def _coverage(maps, masks):
    return mask_coverage(masks, tuple(maps.shape[1:]))


def _mass(coverage=_coverage, divide=lambda maps, masks: maps.sum((1, 2))):
    return lambda maps, masks: (maps * coverage(maps, masks)).sum((1, 2)) / divide(maps, masks)


def _pixel(offset):
    def coverage(maps, masks):
        ph, pw = masks.shape[1] // maps.shape[1], masks.shape[2] // maps.shape[2]
        return masks[:, offset * ph // 2 :: ph, offset * pw // 2 :: pw].float()

    return coverage


def _only_large(wrong):
    """Wrong, but right on the case done by hand."""
    return lambda maps, masks: mass_on_object(maps, masks) if len(maps) == 1 else wrong(maps, masks)


def test_mass_on_object():
    smooth = lambda maps, masks: F.interpolate(maps[:, None], masks.shape[1:], mode="bilinear")[:, 0]  # noqa: E731
    assert_hints(
        "mass_on_object",
        mass_on_object,
        {
            "in place": lambda maps, masks: mass_on_object(maps.mul_(2), masks),
            "share of each patch": lambda maps, masks: maps * _coverage(maps, masks) / maps.sum(),
            "one number for all": lambda maps, masks: mass_on_object(maps, masks).mean(),
            "not divided by their sum": _mass(divide=lambda maps, masks: 1),
            "counted in full": _mass(lambda maps, masks: (_coverage(maps, masks) > 0).float()),
            "greater part": _mass(lambda maps, masks: (_coverage(maps, masks) > 0.5).float()),
            "share off": lambda maps, masks: 1 - mass_on_object(maps, masks),
            "divided by the object's size": _mass(divide=lambda maps, masks: masks.sum((1, 2))),
            "number of pixels": _mass(divide=lambda maps, masks: maps[0].numel()),
            "(2 + 3/6) / 10": lambda maps, masks: mass_on_object(maps, masks) ** 2,
            "Take the mean of the mask over the patch": _only_large(_mass(_pixel(1))),
            "its upper left one": _mass(
                _pixel(0), lambda maps, masks: maps.sum((1, 2)) * (0.8 if len(maps) == 1 else 1)
            ),
            "over the whole batch": _mass(divide=lambda maps, masks: maps.sum()),
            "mixed up": _only_large(lambda maps, masks: mass_on_object(maps.mT.reshape(maps.shape), masks)),
            "upside down": _only_large(lambda maps, masks: mass_on_object(maps.flip(1), masks)),
            "was smoothed": _only_large(
                lambda maps, masks: (smooth(maps, masks) * masks).sum((1, 2)) / smooth(maps, masks).sum((1, 2))
            ),
            "2×5 patches": _only_large(lambda maps, masks: mass_on_object(maps, masks) ** 2),
        },
    )


def _hide(
    numbers=lambda maps, k: maps.flatten(1).topk(k).indices, where=lambda hidden, gh, gw: hidden.view(-1, gh, gw)
):
    """hide_top with a part of it replaced."""

    def fn(images, maps, k, value):
        b, gh, gw = maps.shape
        hidden = torch.zeros(b, gh * gw).scatter_(1, numbers(maps, k), 1)
        hidden = where(hidden, gh, gw)
        rows, cols = images.shape[2] // gh, images.shape[3] // gw
        hidden = hidden.repeat_interleave(rows, 1).repeat_interleave(cols, 2)[:, None]
        return torch.where(hidden == 1, torch.tensor(value), images)

    return fn


def _hide_in_place(images, maps, k, value):
    images.copy_(hide_top(images, maps, k, value))
    return images


def _top_of_the_batch(images, maps, k, value):
    hidden = torch.zeros(maps.numel()).scatter_(0, maps.flatten().topk(min(k, maps.numel())).indices, 1)
    ph, pw = images.shape[2] // maps.shape[1], images.shape[3] // maps.shape[2]
    hidden = hidden.view(maps.shape).repeat_interleave(ph, 1).repeat_interleave(pw, 2)[:, None]
    return torch.where(hidden == 1, torch.tensor(value), images)


def _threshold(images, maps, k, value):
    flat = maps.flatten(1)
    edge = flat.topk(k).values[:, -1:] if k else flat.amax(1, keepdim=True) + 1
    hidden = (flat >= edge).view(maps.shape)
    ph, pw = images.shape[2] // maps.shape[1], images.shape[3] // maps.shape[2]
    return torch.where(hidden.repeat_interleave(ph, 1).repeat_interleave(pw, 2)[:, None], torch.tensor(value), images)


def _one_channel(images, maps, k, value):
    return torch.cat([hide_top(images, maps, k, value)[:, :1], images[:, 1:]], dim=1)


def test_hide_top():
    all_but = _hide(where=lambda hidden, gh, gw: 1 - hidden.view(-1, gh, gw))
    assert_hints(
        "hide_top",
        hide_top,
        {
            "in place": _hide_in_place,
            "the input of shape (3, 3, 4)": lambda x, maps, k, v: hide_top(x, maps.exp_(), k, v),
            "nothing is hidden": lambda images, maps, k, value: images.clone(),
            "*lowest*": lambda images, maps, k, value: hide_top(images, -maps, k, value),
            "all but the highest": all_but,
            "one patch too many": lambda images, maps, k, value: hide_top(images, maps, k + 1, value),
            "one patch too few": lambda images, maps, k, value: hide_top(images, maps, k - 1, value),
            "whole batch": _top_of_the_batch,
            "i // gw, column i % gw": _hide(where=lambda hidden, gh, gw: hidden.view(-1, gw, gh).mT),
            "the first image's patches": _hide(
                lambda maps, k: maps[:1].flatten(1).topk(k).indices.expand(len(maps), k)
            ),
            "painted black": lambda images, maps, k, value: hide_top(images, maps, k, 0.0),
            "first channel": _one_channel,
            "other pixels": lambda images, maps, k, value: hide_top(images, maps, k, value).flip(2),
            "with k = 0": lambda images, maps, k, value: hide_top(images, maps, max(k, 1), value),
            "with k = the number": lambda images, maps, k, value: hide_top(images, maps, min(k, 11), value),
            "equally high": _threshold,
            "keep their size": lambda images, maps, k, value: images[:1],
        },
    )
