"""The tests of the closing checklist, one function for each bug; each returns its evidence or "" (chapter 12)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vit_tutorial.archs.patients import History
from vit_tutorial.clinic.anatomy import Anatomy, random_like

SAME = 1e-4  # what rounding may change, as a share of the whole


def _far(a: Tensor, b: Tensor) -> float:
    """How far ``a`` is from ``b``, as a share of b's length."""
    return ((a - b).norm() / b.norm().clamp(min=1e-12)).item()


def outputs_are_probabilities(body: Anatomy) -> str:
    """Logits are free; only a softmax makes every row of random images' outputs non-negative with a sum of 1."""
    with torch.no_grad():
        output = body.run(body.images).output
    sums = output.sum(dim=-1)
    if output.shape[-1] < 2 or output.min() < 0 or (sums - 1).abs().max() > SAME:
        return ""
    return f"the outputs of {len(output)} random images are all at least 0, and each row sums to {sums.mean():.4f}"


def rows_depend_on_each_other(body: Anatomy) -> str:
    """An image has nothing to do with its neighbours in the batch: the gradient for their pixels is exactly 0.

    To exchange them and compare would miss a branch that layer scale makes small at the start.
    """
    if len(body.images) < 2:
        return ""
    images = body.images.clone().requires_grad_()
    tokens = body.run(images).leaving[0]
    (gradient,) = torch.autograd.grad((tokens * random_like(tokens)).sum(), images)
    heard = gradient.flatten(1).norm(dim=1)
    strangers = int((heard[1:] > 0).sum())
    if not strangers:
        return ""
    share = (heard[1:].max() / heard.max()).item()
    return (
        f"the tokens of image 0 depend on the pixels of {strangers} other images in the batch, with a gradient of up "
        f"to {share:.1g} of the largest"
    )


def norms_without_gradient(body: Anatomy) -> str:
    """A parameter that the output does not depend on is not in its graph: there is no gradient, not even zero.

    Asked of the blocks and the final norm; an auxiliary head may well rest while the model is evaluated.
    """
    inside = {part for whole in (*body.blocks, body.norm) for part in whole.modules()}
    norms = {
        f"{name}.{key}": value.detach().clone().requires_grad_()
        for name, part in body.model.named_modules()
        if isinstance(part, nn.LayerNorm | nn.RMSNorm) and part in inside
        for key, value in part.named_parameters()
    }
    if not norms:
        return ""
    output = body.run(body.images, swapped=norms).output
    gradients = torch.autograd.grad(output.sum(), list(norms.values()), allow_unused=True)
    dead = [name for (name, gradient) in zip(norms, gradients, strict=True) if gradient is None]
    if not dead:
        return ""
    return f"{len(dead)} of the norms' {len(norms)} parameters get no gradient, {dead[0]} among them"


def head_hears_all_tokens(body: Anatomy) -> str:
    """The gradient of what the head takes tells which tokens it is made of: the class token, or the patches."""
    run = body.run(body.images)
    if run.output.ndim == 3:
        return f"{len(body.images)} images give an output of shape {tuple(run.output.shape)}, a row for each token"
    if body.cls_token is None:
        return ""
    direction = random_like(run.features[0, ..., :].reshape(-1, run.features.shape[-1])[0])
    (heard,) = torch.autograd.grad((run.features @ direction).sum(), run.normed, allow_unused=True)
    if heard is None:  # a norm that is called, and whose result nobody reads
        return ""
    lengths = heard.norm(dim=-1)[0]
    if lengths.min() < (1 - SAME) * lengths.max() or lengths.max() == 0:
        return ""
    return f"the class token and the other {len(lengths) - 1} tokens count alike for the head, 1/{len(lengths)} each"


def _pixels_of(body: Anatomy, patch: int) -> Tensor:
    """How each pixel of an image moves a patch's token, in one random direction, (c, H, W)."""
    images = body.images.clone().requires_grad_()
    tokens = body.run(images).entering
    token = tokens[0, tokens.shape[1] - body.num_patches + patch]
    (gradient,) = torch.autograd.grad(token @ random_like(token), images)
    return gradient[0]


def patches_are_scrambled(body: Anatomy) -> str:
    """A patch is a rectangle of ph×pw pixels, so no pixel outside of one may move its token."""
    if not hasattr(body.proj, "weight"):  # a stem of several layers, whose tokens see more by design
        return ""
    ph, pw = body.patch_size
    for patch in sorted({0, body.num_patches // 2, body.num_patches - 1}):
        rows, cols = (_pixels_of(body, patch).abs().sum(dim=0) > 0).nonzero(as_tuple=True)
        height, width = (int(side.max() - side.min()) + 1 if len(side) else 0 for side in (rows, cols))
        if height > ph or width > pw:
            return (
                f"patch token {patch} is made of pixels from a region of {height}×{width}, where a patch has {ph}×{pw}"
            )
    return ""


def stream_reaches_the_head(body: Anatomy) -> str:
    """A LayerNorm divides by the size of what it gets: make the last block's output 10 times as large, and behind a
    norm nothing changes.

    Random tokens of size 1 stand in for the block's own, which may be so short at the start that the norm's ε counts.
    """
    last, lengths = body.blocks[-1], []
    with torch.no_grad():
        for size in (1, 10):
            run = body.run(body.images, change={last: lambda out, size=size: size * random_like(out)})
            lengths.append(run.features.norm())
    growth = (lengths[1] / lengths[0]).item()
    if growth < 5:
        return ""
    return f"10 times as large tokens from the last block make what the head takes {growth:.1f} times as large"


def _attend(attn: nn.Module, x: Tensor) -> Tensor:
    if isinstance(attn, nn.MultiheadAttention):
        return attn(x, x, x, need_weights=False)[0]
    out = attn(x)
    return out[0] if isinstance(out, tuple) else out  # some return their weights as well


def heads_see_a_slice(body: Anatomy) -> str:
    """Every number that attention returns depends on every number of a token, unless a head was given a part of it."""
    attended = body.run(body.images).attended
    for i, attn in enumerate(body.attentions):
        x = attended[i].detach().requires_grad_()
        out = _attend(attn, x)
        for place in (0, out.shape[-1] - 1):  # of the first head, and of the last
            number = out[..., place]
            (gradient,) = torch.autograd.grad((number * random_like(number)).sum(), x, retain_graph=True)
            heard = int((gradient.abs().sum(dim=(0, 1)) > 0).sum())
            if 0 < heard <= x.shape[-1] / 2:
                return f"in block {i}, number {place} of a token depends on {heard} of its {x.shape[-1]} numbers only"
    return ""


# The usual names, where queries, keys and values have a layer each.
SEPARATE = (("q", "k", "v"), ("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("to_q", "to_k", "to_v"))


def _first(attn: nn.Module, names: tuple[str, ...], kind: type) -> object:
    return next((part for name in names if isinstance(part := getattr(attn, name, None), kind)), None)


def _num_heads(attn: nn.Module) -> int | None:
    return _first(attn, ("num_heads", "heads", "n_heads", "head"), int)


def _recompute(attn: nn.Module, x: Tensor, scale: float | None = None) -> Tensor | None:
    """What attention must return, from its weights; None where they are not laid out as one knows them."""
    three = next((names for names in SEPARATE if all(_first(attn, (name,), nn.Linear) for name in names)), ())
    proj = _first(attn, ("proj", "out_proj", "out", "to_out", "o"), nn.Module)
    if isinstance(attn, nn.MultiheadAttention) and attn.in_proj_weight is not None:
        qkv = F.linear(x, attn.in_proj_weight, attn.in_proj_bias)
    elif three:
        qkv = torch.cat([getattr(attn, name)(x) for name in three], dim=-1)
    elif hasattr(attn, "qkv"):
        qkv = attn.qkv(x)
    else:
        return None
    if proj is None or not _num_heads(attn) or qkv.shape[-1] != 3 * x.shape[-1]:  # heads may share keys and values
        return None
    q, k, v = rearrange(qkv, "b n (three h hd) -> three b h n hd", three=3, h=_num_heads(attn))
    q, k = getattr(attn, "q_norm", nn.Identity())(q), getattr(attn, "k_norm", nn.Identity())(k)
    out = rearrange(F.scaled_dot_product_attention(q, k, v, scale=scale), "b h n hd -> b n (h hd)")
    return proj(getattr(attn, "norm", nn.Identity())(out))


def scores_are_scaled_otherwise(body: Anatomy) -> str:
    """Recompute what attention returns from its own weights: only the right scale gives the same numbers."""
    with torch.no_grad():
        attended = body.run(body.images).attended
        for i, attn in enumerate(body.attentions):
            x, dim = attended[i], attended[i].shape[-1]
            right, out = _recompute(attn, x), _attend(attn, x)
            if right is None or (error := _far(right, out)) < SAME:
                continue
            width = dim // _num_heads(attn)
            mistakes = {f"√{dim}": dim**-0.5, "1": 1.0, f"{width}": 1 / width, f"1/√{width}": width**0.5}
            for name, scale in mistakes.items():
                if _far(_recompute(attn, x, scale), out) < 0.01 * error:
                    return (
                        f"in block {i} the scores are divided by {name} where head_dim is {width}, "
                        f"which moves what attention returns by {error:.1%} of its length"
                    )
    return ""


def weights_are_read_in_another_order(body: Anatomy) -> str:
    """One pixel moves its patch's token by one column of the projection; the column tells the order of the pixels."""
    weight = getattr(body.proj, "weight", None)
    patch, (ph, pw) = body.num_patches // 2, body.patch_size
    if weight is None or weight.ndim != 4 or weight[0].numel() != body.images.shape[1] * ph * pw:
        return ""  # only a convolution's weights have an order of their own; a linear layer's are what they are read as
    row, col = divmod(patch, body.images.shape[3] // pw)
    seen = _pixels_of(body, patch)[:, row * ph : (row + 1) * ph, col * pw : (col + 1) * pw]
    expected = random_like(weight.flatten(1)[:, 0]) @ weight.flatten(1).detach()
    colours_last = rearrange(expected, "(ph pw c) -> c ph pw", ph=ph, pw=pw)
    if _far(seen, expected.reshape(seen.shape)) < SAME or _far(seen, colours_last) > SAME:
        return ""
    return (
        f"the {seen.numel()} pixels of a patch meet the projection's columns in the order (ph pw c), "
        f"and its weights lie in the order (c ph pw)"
    )


def rows_have_tokens_of_their_own(body: Anatomy) -> str:
    """The same image must give the same tokens in every row of the batch, and in a batch of any size.

    Random numbers stand in for class token and positions, since rows that start at zero are equal at first.
    """
    b = len(body.images)
    same = body.images[:1].expand_as(body.images)
    drawn = {name: random_like(value) for name, value in filter(None, (body.cls_token, body.pos_embed))}
    with torch.no_grad():
        tokens = body.run(same, swapped=drawn).entering
        apart = max(_far(row, tokens[0]) for row in tokens)
        if apart > SAME:
            return f"the same image in {b} rows of a batch gives tokens that differ by {apart:.2%} of their length"
        for size in {1, 3} - {b}:
            try:
                body.model(same[:1].expand(size, -1, -1, -1))
            except (RuntimeError, ValueError) as error:
                return f"a batch of {b} images runs, one of {size} raises {type(error).__name__}"
    return ""


def class_position_is_unused(body: Anatomy) -> str:
    """If the table has a row for the class token, the token that enters the first block must depend on it."""
    if body.cls_token is None or body.pos_embed is None:
        return ""
    name, table = body.pos_embed
    table = table.detach().clone().requires_grad_()
    tokens = body.run(body.images, swapped={name: table}).entering
    if table.shape[-2] != tokens.shape[1]:  # a table without such a row is a choice
        return ""
    # A plain sum would not do: behind a LayerNorm it is constant, and its gradient 0 up to rounding.
    (gradient,) = torch.autograd.grad((tokens * random_like(tokens)).sum(), table)
    used = gradient.abs().sum(dim=-1).flatten() > 0
    if used[0] or not used.any():
        return ""
    return (
        f"of the {len(used)} rows of positions the tokens use {int(used.sum())}; row 0, the class token's, is not read"
    )


def selection_follows_the_test_set(select: Callable[[History], int]) -> str:
    """Change nothing but the test figures of a history: a choice that moves has looked at them."""
    passes = 6
    val = [0.61, 0.72, 0.83, 0.80, 0.81, 0.79]  # the best is neither the first pass nor the last
    choices = []
    for best in range(passes):
        test = [0.7 + 0.2 * (i == best) for i in range(passes)]
        history = [
            {
                "train_loss": 2 - 0.3 * i,
                "val_loss": 1 - val[i],
                "val_accuracy": val[i],
                "test_loss": 1 - test[i],
                "test_accuracy": test[i],
            }
            for i in range(passes)
        ]
        choices.append(select(history))
    if len(set(choices)) == 1:
        return ""
    return f"with the same validation figures it chose the passes {choices} as the best test accuracy went from 0 to 5"
