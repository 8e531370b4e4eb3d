"""What ``diagnose`` asks: one function for each bug, which returns its evidence, or "" if it sees none (chapter 12).

A probe that does not apply to a model, or whose answer would mean nothing, raises CannotTell. Those of an
``ExaminedModel`` take any model, those of an ``Anatomy`` a Vision Transformer whose parts are known.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vit_tutorial.archs.patients import History
from vit_tutorial.clinic import symptoms
from vit_tutorial.clinic.anatomy import Anatomy, ExaminedModel, random_like
from vit_tutorial.clinic.symptoms import SAME, CannotTell


def _far(a: Tensor, b: Tensor) -> float:
    """The distance from ``a`` to ``b``, as a fraction of b's length."""
    return ((a - b).norm() / b.norm().clamp(min=1e-12)).item()


# Any model from images to logits -------------------------------------------------------------------------------------


def outputs_are_probabilities(examined: ExaminedModel) -> str:
    """Logits are free; only a softmax makes every row of outputs non-negative with a sum of 1."""
    outputs = examined.logits
    if outputs.shape[-1] < 2:
        raise CannotTell("a single output has nothing to sum to 1 with")
    if not symptoms.outputs_are_probabilities(examined.model, examined.images):
        return ""
    sums = outputs.sum(dim=-1)
    return f"the outputs of {len(outputs)} images are all at least 0, and each row sums to {sums.mean():.4f}"


def outputs_depend_on_each_other(examined: ExaminedModel) -> str:
    """An image has nothing to do with its neighbours in the batch: exchange them, and its outputs stay the same."""
    outputs = examined.logits
    if not symptoms.images_are_independent(examined.model, examined.images):
        return f"the outputs for image 0 change when the other {len(outputs) - 1} images of the batch are exchanged"
    if _far(outputs, outputs[:1].expand_as(outputs)) < SAME:
        raise CannotTell("the outputs are the same for every image")
    return ""


def row_or_size_matters(examined: ExaminedModel) -> str:
    """An image must get the same outputs in every row of a batch, and in a batch of any size.

    The same image is in all rows, so that its neighbours do not matter.
    """
    same = examined.images[:1].expand_as(examined.images)
    if symptoms.any_batch_size(examined.model, same):
        return ""
    together = examined.logits
    try:
        with torch.no_grad():
            alone = symptoms.as_logits(examined.model(same[:1]))
    except (RuntimeError, ValueError) as error:
        return f"a batch of {len(together)} images runs, one of 1 raises {type(error).__name__}"
    if alone.shape != (1, *together.shape[1:]):
        shapes = tuple(together.shape), tuple(alone.shape)
        return f"{len(together)} images give outputs of shape {shapes[0]}, a batch of 1 image gives {shapes[1]}"
    return f"the same image gets other outputs alone than in some row of a batch of {len(together)}"


def parameters_without_gradient(examined: ExaminedModel) -> str:
    """Every parameter must matter for the outputs."""
    dead = symptoms.dead_parameters(examined.model, examined.images)
    if not dead:
        return ""
    count = sum(1 for _ in examined.model.parameters())
    return f"the outputs do not depend on {len(dead)} of the {count} parameters, {dead[0]} among them"


def _check_patches(examined: ExaminedModel) -> None:
    if examined.patch_size is None:
        raise CannotTell("it needs the patch_size")
    if examined.num_patches < 2:
        raise CannotTell("an image is a single patch")


def order_does_not_matter(examined: ExaminedModel) -> str:
    """Without positions a model takes an image for a bag of patches: in any order they give the same outputs."""
    _check_patches(examined)
    if symptoms.patch_order_matters(examined.model, examined.images, examined.patch_size):
        return ""
    return f"the outputs stay the same when each image's {examined.num_patches} patches are put in reverse order"


def patches_are_scrambled(examined: ExaminedModel) -> str:
    """A token is made of one patch, so the pixels of one patch move one token."""
    _check_patches(examined)
    if isinstance(examined, Anatomy) and not hasattr(examined.proj, "weight"):
        raise CannotTell("behind a stem of several layers a token sees more than a patch by design")
    for patch in sorted({0, examined.num_patches // 2, examined.num_patches - 1}):
        moved = symptoms.moved_by_patch(examined.embed, examined.images, examined.patch_size, patch)
        if not moved.any():
            raise CannotTell("the tokens do not depend on the pixels")
        tokens = int(moved.any(dim=1).sum())
        if tokens > 1 and moved.shape[1] > 1 and moved.any(dim=0).sum() == 1:
            raise CannotTell("the first sequence that a part of the model takes may be (b, d, n)")
        if tokens > 1:
            return f"the pixels of patch {patch}, of {examined.num_patches}, move {tokens} tokens"
    return ""


def output_for_each_token(examined: ExaminedModel) -> str:
    """A head that takes a vector gives one row of logits for an image, not one for each token."""
    outputs = examined.logits
    if outputs.ndim == 2:
        return ""
    return f"{len(outputs)} images give an output of shape {tuple(outputs.shape)}, a row for each token"


# A Vision Transformer whose parts are known ---------------------------------------------------------------------------


def rows_depend_on_each_other(examined: Anatomy) -> str:
    """An image has nothing to do with its neighbours in the batch: the gradient for their pixels is exactly 0.

    Exchanging them and comparing would miss a branch that layer scale makes small at the start. The gradient is that of
    the last block's tokens, since a class token may not depend on anything, and of what follows, up to the logits.
    """
    if len(examined.images) < 2:
        raise CannotTell("the model takes only one image at a time")
    images = examined.images.clone().requires_grad_()
    run = examined.run(images)
    of_image_0 = [values[0] for values in (run.leaving, run.features, run.output)]
    (gradient,) = torch.autograd.grad(sum((values * random_like(values)).sum() for values in of_image_0), images)
    influence = gradient.flatten(1).norm(dim=1)
    if not influence.any():
        raise CannotTell("the outputs do not depend on the pixels")
    strangers = int((influence[1:] > 0).sum())
    if not strangers:
        return ""
    fraction = (influence[1:].max() / influence.max()).item()
    return (
        f"the tokens or logits of image 0 depend on the pixels of {strangers} other images in the batch, with a "
        f"gradient of up to {fraction:.1g} of the largest"
    )


def norms_without_gradient(examined: Anatomy) -> str:
    """The outputs must depend on every norm of the blocks and on the final one; another may rest while evaluating."""
    inside = {part for whole in (*examined.blocks, examined.norm) for part in whole.modules()}
    norms = [
        f"{name}.{key}"
        for name, part in examined.model.named_modules()
        if isinstance(part, nn.LayerNorm | nn.RMSNorm) and part in inside
        for key, _ in part.named_parameters()
    ]
    if not norms:
        raise CannotTell("the blocks have no LayerNorm or RMSNorm with parameters")
    dead = [name for name in symptoms.dead_parameters(examined.model, examined.images) if name in norms]
    if not dead:
        return ""
    return f"{len(dead)} of the norms' {len(norms)} parameters get no gradient, {dead[0]} among them"


def head_depends_on_all_tokens(examined: Anatomy) -> str:
    """The gradient of what the head takes tells which tokens it is made of: the class token, or the patches."""
    if evidence := output_for_each_token(examined):
        return evidence
    if examined.cls_token is None:
        raise CannotTell("the model has no class token")
    run = examined.run(examined.images)
    direction = random_like(run.features[0, ..., :].reshape(-1, run.features.shape[-1])[0])
    (influence,) = torch.autograd.grad((run.features @ direction).sum(), run.normed, allow_unused=True)
    if influence is None or not influence.any():  # None: a norm that is called, and whose result nobody reads
        raise CannotTell("the head does not depend on the tokens that leave the last norm")
    lengths = influence.norm(dim=-1)[0]
    if lengths.min() < (1 - SAME) * lengths.max():
        return ""
    return f"the class token and the other {len(lengths) - 1} tokens count alike for the head, 1/{len(lengths)} each"


def stream_reaches_the_head(examined: Anatomy) -> str:
    """A LayerNorm divides by the size of its input: behind it, tokens that are 10 times as large are the same.

    Random tokens of size 1 stand in for the block's own, which may be so short at the start that the norm's ε counts.
    """
    last, lengths = examined.blocks[-1], []
    with torch.no_grad():
        for size in (1, 10):
            run = examined.run(examined.images, change={last: lambda out, size=size: size * random_like(out)})
            lengths.append(run.features.norm())
    if not lengths[0]:  # a norm of width 1, or with weights of 0
        raise CannotTell("the head gets only zeros")
    growth = (lengths[1] / lengths[0]).item()
    if growth < 5:
        return ""
    return f"multiplying the last block's tokens by 10 multiplies the head's input by {growth:.1f}"


def _attend(attn: nn.Module, x: Tensor) -> Tensor:
    if isinstance(attn, nn.MultiheadAttention):
        return attn(x, x, x, need_weights=False)[0]
    out = attn(x)
    return out[0] if isinstance(out, tuple) else out  # some return their weights as well


def heads_see_a_slice(examined: Anatomy) -> str:
    """Every number that attention returns depends on every number of a token, unless a head gets a slice of it."""
    attended, tells = examined.run(examined.images).attended, False
    for i, attn in enumerate(examined.attentions):
        dim = attended[i].shape[-1]
        for number in (0, dim - 1):  # of the first head, and of the last
            count = symptoms.count_dependencies(lambda x, attn=attn: _attend(attn, x), attended[i], number)
            if 0 < count <= dim / 2:
                return f"in block {i}, number {number} of a token depends on only {count} of its {dim} numbers"
            tells |= count > 0
    if not tells:
        raise CannotTell("attention does not depend on its input")
    return ""


# The usual names, where queries, keys and values have a layer each.
SEPARATE = (("q", "k", "v"), ("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("to_q", "to_k", "to_v"))


def _first(attn: nn.Module, names: tuple[str, ...], kind: type) -> object:
    return next((part for name in names if isinstance(part := getattr(attn, name, None), kind)), None)


def _num_heads(attn: nn.Module) -> int | None:
    return _first(attn, ("num_heads", "num_attention_heads", "heads", "n_heads", "head"), int)


def _recompute(attn: nn.Module, x: Tensor, scale: float | None = None, over: int = -1) -> Tensor | None:
    """What attention must return, from its weights; None if their layout is not known.

    Args:
        scale: of the scores; 1/√head_dim if None.
        over: the axis of the scores, ``(b, h, n, n)``, over which the softmax runs.
    """
    three = next((names for names in SEPARATE if all(_first(attn, (name,), nn.Linear) for name in names)), ())
    proj = _first(attn, ("proj", "out_proj", "o_proj", "out", "to_out", "o"), nn.Module)
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
    if over == -1:
        out = F.scaled_dot_product_attention(q, k, v, scale=scale)
    else:
        out = (q @ k.mT * (scale or q.shape[-1] ** -0.5)).softmax(dim=over) @ v
    out = rearrange(out, "b h n hd -> b n (h hd)")
    return proj(getattr(attn, "norm", nn.Identity())(out))


def scores_are_scaled_otherwise(examined: Anatomy) -> str:
    """Recompute what attention returns from its own weights: only the right scale gives the same numbers."""
    tells = False
    with torch.no_grad():
        attended = examined.run(examined.images).attended
        for i, attn in enumerate(examined.attentions):
            x, dim = attended[i], attended[i].shape[-1]
            right, out = _recompute(attn, x), _attend(attn, x)
            if right is None:
                continue
            width = dim // _num_heads(attn)
            tells |= _far(_recompute(attn, x, 2 * width**-0.5), right) > SAME
            if (error := _far(right, out)) < SAME:
                continue
            mistakes = {f"√{dim}": dim**-0.5, "1": 1.0, f"{width}": 1 / width, f"1/√{width}": width**0.5}
            for name, scale in mistakes.items():
                if _far(_recompute(attn, x, scale), out) < 0.01 * error:
                    return (
                        f"in block {i} the scores are divided by {name} where head_dim is {width}, "
                        f"which moves what attention returns by {error:.1%} of its length"
                    )
    if not tells:
        raise CannotTell("the scale changes nothing in this attention, or its layers have unusual names")
    return ""


def softmax_runs_over_another_axis(examined: Anatomy) -> str:
    """Recompute what attention returns with the softmax over each other axis of the scores."""
    tells = False
    with torch.no_grad():
        attended = examined.run(examined.images).attended
        for i, attn in enumerate(examined.attentions):
            x, out = attended[i], _attend(attn, attended[i])
            if (right := _recompute(attn, x)) is None:
                continue
            tells |= _far(_recompute(attn, x, over=-2), right) > SAME
            if (error := _far(right, out)) < SAME:
                continue
            for axis, name in {-2: "queries", -3: "heads", 0: "images"}.items():
                if _far(_recompute(attn, x, over=axis), out) < 0.01 * error:
                    return (
                        f"in block {i} the softmax runs over the {name}, not the keys, "
                        f"which moves what attention returns by {error:.1%} of its length"
                    )
    if not tells:
        raise CannotTell("the axis of the softmax changes nothing here, or attention's layers have unusual names")
    return ""


def _pixels_of(examined: Anatomy, patch: int) -> Tensor:
    """How each pixel of an image moves a patch's token, in one random direction, (c, H, W)."""
    images = examined.images.clone().requires_grad_()
    tokens = examined.embed(images)
    token = tokens[0, tokens.shape[1] - examined.num_patches + patch]
    (gradient,) = torch.autograd.grad(token @ random_like(token), images)
    return gradient[0]


def weights_are_read_in_another_order(examined: Anatomy) -> str:
    """One pixel moves its patch's token by one column of the projection; the column tells the order of the pixels."""
    weight = getattr(examined.proj, "weight", None)
    patch, (ph, pw) = examined.num_patches // 2, examined.patch_size
    if weight is None or weight.ndim != 4 or weight[0].numel() != examined.images.shape[1] * ph * pw:
        raise CannotTell("the projection is not a convolution, whose weights alone have an order of their own")
    if examined.images.shape[1] == 1 or ph * pw == 1:
        raise CannotTell("with one channel, or one pixel in a patch, there is only one order")
    row, col = divmod(patch, examined.images.shape[3] // pw)
    seen = _pixels_of(examined, patch)[:, row * ph : (row + 1) * ph, col * pw : (col + 1) * pw]
    expected = random_like(weight.flatten(1)[:, 0]) @ weight.flatten(1).detach()
    colours_last = rearrange(expected, "(ph pw c) -> c ph pw", ph=ph, pw=pw)
    if not seen.any():
        raise CannotTell("the tokens do not depend on the pixels")
    if _far(seen, expected.reshape(seen.shape)) < SAME or _far(seen, colours_last) > SAME:
        return ""
    return (
        f"the {seen.numel()} pixels of a patch meet the projection's columns in the order (ph pw c), "
        f"and its weights are in the order (c ph pw)"
    )


def rows_have_tokens_of_their_own(examined: Anatomy) -> str:
    """The same image must give the same tokens in every row of the batch, and in a batch of any size.

    Random numbers stand in for class token and positions, since rows that start at zero are equal at first.
    """
    b = len(examined.images)
    same = examined.images[:1].expand_as(examined.images)
    drawn = {name: random_like(value) for name, value in filter(None, (examined.cls_token, examined.pos_embed))}
    with torch.no_grad():
        tokens = examined.run(same, swapped=drawn).entering
        apart = max(_far(row, tokens[0]) for row in tokens)
        if apart > SAME:
            return f"the same image in {b} rows of a batch gives tokens that differ by {apart:.2%} of their length"
        for size in {1, 3} - {b}:
            try:
                examined.model(same[:1].expand(size, -1, -1, -1))
            except (RuntimeError, ValueError) as error:
                return f"a batch of {b} images runs, one of {size} raises {type(error).__name__}"
    return ""


def class_position_is_unused(examined: Anatomy) -> str:
    """If the table has a row for the class token, the token that enters the first block must depend on it."""
    if examined.cls_token is None or examined.pos_embed is None:
        raise CannotTell("the model has no class token, or no positions")
    name, table = examined.pos_embed
    table = table.detach().clone().requires_grad_()
    tokens = examined.run(examined.images, swapped={name: table}).entering
    if table.shape[-2] != tokens.shape[1]:
        raise CannotTell("the table has no row for the class token, which is a choice")
    # A plain sum would not do: behind a LayerNorm it is constant, and its gradient 0 up to rounding.
    (gradient,) = torch.autograd.grad((tokens * random_like(tokens)).sum(), table)
    used = gradient.abs().sum(dim=-1).flatten() > 0
    if not used.any():
        raise CannotTell("the tokens do not depend on the positions")
    if used[0]:
        return ""
    return (
        f"of the {len(used)} rows of positions the tokens use {int(used.sum())}; row 0, the class token's, is not read"
    )


# The choice of an epoch -----------------------------------------------------------------------------------------------


def selection_follows_the_test_set(select: Callable[[History], int]) -> str:
    """Change nothing but the test figures of a history: a choice that moves has looked at them."""
    choices = symptoms.choices_of_epoch(select)
    if len(set(choices)) == 1:
        return ""
    return f"with the same validation figures it chose epochs {choices} as the best test accuracy went from 0 to 5"
