"""What ``diagnose`` asks of a model's parts: one function for each bug, which returns its evidence, or "" (chapter 12).

A probe that does not apply to a model, or whose answer would mean nothing, raises CannotTell.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from einops import rearrange
from torch import Tensor, nn

from vit_tutorial.clinic import symptoms
from vit_tutorial.clinic.anatomy import Anatomy, is_norm
from vit_tutorial.clinic.examined import far, random_like
from vit_tutorial.clinic.layers import role_of
from vit_tutorial.clinic.probes import ONE_IMAGE, check_patches, output_for_each_token
from vit_tutorial.clinic.symptoms import SAME, CannotTell
from vit_tutorial.clinic.trace import Call, DoesNotRun, hooked

NO_BLOCKS = "no row of blocks was found that pass tokens (b, n, d) on"


def rows_depend_on_each_other(examined: Anatomy) -> str:
    """An image has nothing to do with its neighbours in the batch: the gradient for their pixels is exactly 0.

    Exchanging them and comparing would miss a branch that layer scale makes small at the start. The gradient is that of
    the last block's tokens, since a class token may not depend on anything, and of what follows, up to the logits.
    """
    if len(examined.images) < 2:
        raise CannotTell(ONE_IMAGE)
    images = examined.images.clone().requires_grad_()
    run = examined.run(images)
    b = len(images)
    leaving = run.leaving  # of some models (n, b, d)
    if leaving is not None and (len(leaving) != b or (leaving.ndim == 3 and leaving.shape[1] == b)):
        leaving = None
    of_image_0 = [values[0] for values in (leaving, run.features, run.output) if values is not None]
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
    inside = {part for whole in (*examined.blocks, examined.norm) if whole for part in whole.modules()}
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
    if run.normed is None:
        raise CannotTell(NO_BLOCKS)
    if examined.patch_size is not None and run.normed.shape[1] <= examined.num_patches:
        raise CannotTell("fewer tokens leave the last norm than there are patches and a class token")
    read = run.features if run.features.ndim == 2 else run.output  # of a head that takes tokens, what it is for
    (influence,) = torch.autograd.grad((read @ random_like(read[0])).sum(), run.normed, allow_unused=True)
    if influence is None or not influence.any():  # None: a norm that is called, and whose result nobody reads
        raise CannotTell("the head does not depend on the tokens that leave the last norm")
    if len(influence) != len(examined.images) or influence.shape[1] == len(influence):
        raise CannotTell("the tokens may be axis 0")
    lengths = influence.norm(dim=-1)[0]
    if len(lengths) < 2:
        raise CannotTell("a single token leaves the last norm")
    if examined.patch_size is not None and not lengths[1 : -examined.num_patches].any():  # registers that nobody reads
        lengths = torch.cat([lengths[:1], lengths[1:][-examined.num_patches :]])
    if lengths.min() < (1 - SAME) * lengths.max():
        return ""
    return f"the class token and the other {len(lengths) - 1} tokens count alike for the head, 1/{len(lengths)} each"


def _ends_in_a_norm(examined: Anatomy, block: nn.Module) -> bool:
    """Whether a block returns what a norm in it gave, as blocks after the first Transformer do."""
    whole = next(call for call in examined.calls if call.part is block)
    inside = (call for call in examined.calls if whole.holds(call) and is_norm(call.part))
    return any(call.out.shape == whole.returned.shape and torch.equal(call.out, whole.returned) for call in inside)


def _forgets_the_size(examined: Anatomy, block: nn.Module) -> bool:
    """Whether a block gives the same for tokens that are 10 times as large."""
    call = next(call for call in examined.calls if call.part is block)
    tokens = random_like(call.given)
    with torch.no_grad():
        return far(call.again(10 * tokens), call.again(tokens)) < 0.01


def stream_reaches_the_head(examined: Anatomy) -> str:
    """A LayerNorm divides by the size of its input: behind it, tokens that are 10 times as large are the same.

    Random tokens of size 1 stand in for the block's own, which may be so short at the start that the norm's ε counts.
    """
    if not examined.blocks:
        raise CannotTell(NO_BLOCKS)
    last, lengths = examined.blocks[-1], []
    if not any(is_norm(part) for block in examined.blocks for part in block.modules()):
        raise CannotTell("the blocks have no LayerNorm or RMSNorm, so that one behind them is not to be expected")
    if _ends_in_a_norm(examined, last):
        raise CannotTell("each block ends in a norm, so that the last one's tokens have a size that is bounded")
    if _forgets_the_size(examined, last):
        raise CannotTell("each block starts with a norm of the stream itself, whose size is bounded by that")
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


def blocks_have_no_residual(examined: Anatomy) -> str:
    """With all its weights at 0, but for those of norms, a block passes tokens on, unless it has no residual.

    A block is only asked if the next one takes what it returns: residuals may be added outside.
    """
    calls = [next(call for call in examined.calls if call.part is block) for block in examined.blocks]
    chained = [call for call in calls if any(other.given is call.returned for other in calls)]
    if not chained:
        raise CannotTell("no block was found whose tokens go straight on to the next")
    for call in chained:
        others = [part for part in call.part.modules() if "norm" not in type(part).__name__.lower()]
        silent = [parameter for part in others for parameter in part.parameters(recurse=False)]
        with torch.no_grad(), _at_zero(silent):
            passed = call.again(random_like(call.given))
        if not passed.any():
            return f"with {len(silent)} weights and biases at 0, all but those of norms, {call.name} passes nothing on"
    return ""


@contextmanager
def _at_zero(parameters: Iterable[Tensor]) -> Iterator[None]:
    kept = [(parameter, parameter.data) for parameter in parameters]
    try:
        for parameter, data in kept:
            parameter.data = torch.zeros_like(data)
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


def _differ(tokens: Tensor) -> bool:
    return not torch.allclose(tokens, tokens[:, :1].expand_as(tokens))


def stream_loses_attention(examined: Anatomy) -> str:
    """What attention gave reaches a block's output beside the MLP too, unless the MLP's residual skips attention.

    Asked are blocks whose MLP reads the sum of the stream and of what attention gave, and is in a residual itself.
    """
    asked = False
    for layer in examined.layers:
        whole = next((c for c in examined.calls if c.part in examined.blocks and c.holds(layer.call)), None)
        inside = (c for c in examined.calls if whole and whole.holds(c) and c.start > layer.call.end)
        linears = [call for call in inside if isinstance(call.part, nn.Linear)][-2:]
        if len(linears) < 2 or linears[0].out.shape != linears[1].given.shape:
            continue
        (first, last), attention = linears, layer.call.part.parameters()
        mlp, attention, read = list(last.part.parameters()), list(attention), []
        tokens = random_like(whole.given)

        def returned(silent: list[Tensor], whole: Call = whole, tokens: Tensor = tokens) -> Tensor:
            with torch.no_grad(), _at_zero(silent):
                return whole.again(tokens.clone())  # a block may go on in place

        with hooked([first.part.register_forward_pre_hook(lambda part, args, read=read: read.append(args[0].clone()))]):
            with_both, with_mlp = returned([]), returned(attention)
        with_attention, with_neither = returned(mlp), returned([*attention, *mlp])
        if len(read) != 2 or torch.equal(*read) or not (_differ(read[1]) and _differ(with_neither)):
            continue
        asked = True
        if torch.equal(with_attention, with_neither) and not torch.equal(with_both, with_mlp):
            return f"with the weights of {last.name} at 0, what {whole.name} returns doesn't depend on its attention"
    if not asked:
        raise CannotTell("no block was found whose MLP reads the stream with what attention gave")
    return ""


def blocks_are_one(examined: Anatomy) -> str:
    """Each block has weights of its own: a container that holds the same one twice was filled by a slip."""
    for name, container in examined.model.named_modules():
        inside = list(container._modules.values()) if isinstance(container, nn.ModuleList | nn.Sequential) else []
        blocks = [part for part in inside if part is not None and sum(1 for _ in part.parameters()) > 4]
        if len(blocks) > len(set(blocks)):
            return f"{name} holds {len(blocks)} blocks, and {len(set(blocks))} of them are different"
    return ""


def _queries_of_slices(examined: Anatomy) -> str:
    """Whether the queries of the heads are made of parts of a token that are a token together."""
    for i, block in enumerate(examined.blocks):
        whole = next(call for call in examined.calls if call.part is block)
        inside = [call for call in examined.calls if whole.holds(call) and isinstance(call.part, nn.Linear)]
        queries = [call for call in inside if role_of(call.name) == "q" and call.given is not None]
        dim, widths = whole.given.shape[-1], {call.given.shape[-1] for call in queries}
        if len(widths) == 1 and (width := widths.pop()) < dim <= width * len(queries):
            return f"in block {i}, the queries of a head are made of only {width} of a token's {dim} numbers"
    return ""


def heads_see_a_slice(examined: Anatomy) -> str:
    """Every number that attention returns depends on every number of a token, unless a head gets a slice of it."""
    if evidence := _queries_of_slices(examined):
        return evidence
    attentions = examined.attentions or [layer.call.part for layer in examined.layers]
    if not attentions:
        raise CannotTell("no block has a part called attention")
    tells = False
    for i, part in enumerate(attentions):
        call = next(call for call in examined.calls if call.part is part)
        dim = call.given.shape[-1]
        for number in (0, call.returned.shape[-1] - 1):  # of the first head, and of the last
            count = symptoms.count_dependencies(call.again, call.given, number)
            if 0 < count <= dim / 2:
                return f"in block {i}, number {number} of a token depends on only {count} of its {dim} numbers"
            tells |= count > 0
    if not tells:
        raise CannotTell("attention does not depend on its input")
    return ""


def head_reads_a_patch(examined: Anatomy) -> str:
    """A head that reads one token reads the class token, which no pixel has touched before the first block."""
    images = examined.images.clone().requires_grad_()
    run = examined.run(images)
    if run.entering is None or run.normed is None or run.normed.shape[:2] != run.entering.shape[:2]:
        raise CannotTell(NO_BLOCKS)
    read = run.features if run.features.ndim == 2 else run.output  # of a head that takes tokens, what it is for
    wanted = (read * random_like(read)).sum()
    (influence,) = torch.autograd.grad(wanted, run.normed, allow_unused=True, retain_graph=True)
    tokens = [] if influence is None else influence[0].any(dim=-1).nonzero().flatten().tolist()
    if not tokens:
        raise CannotTell("the head does not depend on the tokens that leave the last norm")
    if len(tokens) > 1:
        return ""
    token = run.entering[:, tokens[0]]
    (pixels,) = torch.autograd.grad((token * random_like(token)).sum(), images, allow_unused=True)
    part = 0.0 if pixels is None else (pixels[0] != 0).any(dim=0).float().mean().item()
    if part == 0 or part > 0.9:  # a class token, or one that is made of the whole image
        return ""
    size = run.entering.shape[1]
    return f"of {size} tokens the head reads number {tokens[0]} alone, which is made of {part:.0%} of the pixels"


def _pixels_of(examined: Anatomy, patch: int) -> Tensor:
    """How each pixel of an image moves a patch's token, in one random direction, (c, H, W)."""
    images = examined.images.clone().requires_grad_()
    tokens = examined.embed(images)
    token = tokens[0, tokens.shape[1] - examined.num_patches + patch]
    (gradient,) = torch.autograd.grad(token @ random_like(token), images)
    return gradient[0]


def weights_are_read_in_another_order(examined: Anatomy) -> str:
    """One pixel moves its patch's token by one column of the projection; the column tells the order of the pixels."""
    check_patches(examined)
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
    if far(seen, expected.reshape(seen.shape)) < SAME or far(seen, colours_last) > SAME:
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
    if not examined.blocks:
        raise CannotTell(NO_BLOCKS)
    drawn = {name: random_like(value) for name, value in filter(None, (examined.cls_token, examined.pos_embed))}
    with torch.no_grad():
        tokens = examined.run(same, swapped=drawn).entering
        apart = max(far(row, tokens[0]) for row in tokens)
        if apart > SAME:
            return f"the same image in {b} rows of a batch gives tokens that differ by {apart:.2%} of their length"
        for size in {1, 3} - {b}:
            try:
                examined.model(same[:1].expand(size, -1, -1, -1))
            except DoesNotRun as error:
                return f"a batch of {b} images runs, one of {size} raises {error.kind}"
    return ""


def class_position_is_unused(examined: Anatomy) -> str:
    """If the table has a row for the class token, the token that enters the first block must depend on it."""
    if examined.cls_token is None or examined.pos_embed is None:
        raise CannotTell("the model has no class token, or no positions")
    if not examined.blocks:
        raise CannotTell(NO_BLOCKS)
    name, table = examined.pos_embed
    table = table.detach().clone().requires_grad_()
    tokens = examined.run(examined.images, swapped={name: table}).entering
    patches_alone = None if examined.patch_size is None else table.shape[-2] == examined.num_patches
    if patches_alone or (patches_alone is None and table.shape[-2] != tokens.shape[1]):  # there may be registers
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
