"""Checks of chapter 8, seeing inside: maps recorded, rolled out, measured and put to the test."""

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from vit_tutorial.attention import attention_weights
from vit_tutorial.attention_maps.faithfulness import attention_mass, hide_patches
from vit_tutorial.attention_maps.maps import attention_distance, attention_rollout, record_attention
from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.engine import CheckFailed, call, checks, close, compare, expect, expect_shape, rule_out
from vit_tutorial.model import ViT


def record_maps(model: ViT, images: Float[Tensor, "b c H W"]) -> list[Float[Tensor, "b h n n"]]:
    """The attention weights of every layer, from one forward pass that hooks listen to."""
    with torch.no_grad(), record_attention(model) as maps:
        model(images)
    return maps


@checks(record_maps)
def check_record_maps(fn):
    config = ViTConfig(img_size=(6, 4), patch_size=2, num_classes=5, embed_dim=8, depth=3, num_heads=2)
    b, n = 3, config.num_tokens
    truth: list[Tensor] = []  # from the path that has the matrix
    scores: list[Tensor] = []

    def visible(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores.append(q @ k.mT)
        truth.append((scores[-1] / q.shape[-1] ** 0.5).softmax(dim=-1))
        return truth[-1] @ v

    manual = ViT(config, attend=visible).eval()
    for parameter in manual.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model = ViT(config).eval()
    model.load_state_dict(manual.state_dict())
    images = torch.randn(b, 3, 6, 4)
    logits = manual(images)

    passes: list[int] = []
    counter = model.register_forward_hook(lambda *_: passes.append(1))
    with torch.enable_grad():  # as in a notebook's cell
        result = call(fn, model, images)
        expect(
            torch.is_grad_enabled(),
            "gradients were left switched off for everything that follows: use `with torch.no_grad()`",
        )
    counter.remove()
    expect(
        all(parameter.requires_grad for parameter in model.parameters()),
        "the model was frozen and left so: use `with torch.no_grad()` instead",
    )
    expect(isinstance(result, list | tuple), f"expected a list with a tensor for each layer, got {_kind(result)}")
    expect(
        len(result) == config.depth,
        f"expected {config.depth} maps, one for each layer, got {len(result)}. Does the hook append to one list, "
        "and is it put on every block's attention?",
    )
    expect(
        len(passes) == 1,
        f"the model itself was called {len(passes)} times; the maps must come from hooks in one call of it",
    )
    shape = (b, config.num_heads, n, n)
    for weights in result:
        expect_shape(
            weights,
            shape,
            "each map is (b, h, n, n)",
            {
                (b, n, n): "the heads were averaged. Keep them: what a mean hides cannot be got back",
                (b, n, config.embed_dim): "those are tokens, the layer's input or output. Compute weights from them",
                (b, config.num_heads, n, config.head_dim): "those are the heads' outputs or values, not their weights",
                (b, config.num_heads, n): "only one row of each matrix was kept",
            },
        )
    got, want = torch.stack(list(result)), torch.stack(truth)
    raw = torch.stack(scores)
    x_of_blocks: list[Tensor] = []
    hooks = [block.register_forward_pre_hook(lambda _, inputs: x_of_blocks.append(inputs[0])) for block in model.blocks]
    model(images)
    for hook in hooks:
        hook.remove()

    def from_input(tokens: list[Tensor]) -> Tensor:
        pairs = zip(model.blocks, tokens, strict=True)
        return torch.stack([attention_weights(*block.attn.project(x)[:2]) for block, x in pairs])

    compare(
        got,
        want,
        {
            "those are the scores q kᵀ; the softmax is missing": raw,
            "those are the scores q kᵀ / √hd; the softmax is missing": raw / config.head_dim**0.5,
            "the scores were not divided by √hd before the softmax": raw.softmax(dim=-1),
            "the scores were divided by √d; each head divides by √hd": (raw / config.embed_dim**0.5).softmax(dim=-1),
            "the softmax runs over the queries. Each row must sum to 1: dim=-1": (
                (raw / config.head_dim**0.5).softmax(dim=-2)
            ),
            "queries and keys are swapped": want.mT,
            "the hook reads the block's input. Attention gets it after norm1: hook block.attn": from_input(x_of_blocks),
            "the layers are in reverse order": want.flip(0),
            "queries were compared with values: project gives q, k, v in this order": torch.stack(
                [
                    attention_weights(q, v)
                    for block, x in zip(model.blocks, x_of_blocks, strict=True)
                    for q, _, v in [block.attn.project(block.norm1(x))]
                ]
            ),
        },
        "the maps are not those of a model that computes its weights in the open",
    )
    expect(
        not any(weights.requires_grad for weights in result),
        "the maps carry a graph with them, which keeps every layer's activations in memory: use torch.no_grad()",
    )
    expect(not _hooked(model), "hooks are left on the model: every later pass would go on recording. Remove them")
    expect(not model.training, "the model was put into training mode and left there")
    expect(close(model(images), logits), "the model does not give the same logits any more")

    again = call(fn, model, images)
    expect(
        len(again) == config.depth,
        f"a later call returned {len(again)} maps, those of earlier calls among them: make the list inside the "
        "function",
    )

    broken = torch.randn(b, 3, 6, 4)

    def stumble(*_):
        raise ZeroDivisionError

    stumbling = model.blocks[1].register_forward_pre_hook(stumble)
    try:
        fn(model, broken)
    except Exception:  # the same, or what a reader made of it
        pass
    else:
        raise CheckFailed("an error inside the model must come out of record_maps, not be swallowed")
    finally:
        stumbling.remove()
    expect(
        not _hooked(model),
        "hooks are left on the model when the forward pass fails: remove them in a `finally`",
    )


def _hooked(model: torch.nn.Module) -> bool:
    return any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())


def _kind(value) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def rollout(maps: list[Float[Tensor, "b h n n"]]) -> Float[Tensor, "b n n"]:
    """The product over all layers of (mean of the heads + identity), each row scaled to sum to 1."""
    return attention_rollout(maps)


@checks(rollout)
def check_rollout(fn):
    # By hand: two layers, three tokens, one head; (A + I) / 2 is [[1, 0, 0], [¼, ¾, 0], [0, 0, 1]] and then
    # [[½, ½, 0], [0, 1, 0], [¼, 0, ¾]].
    first = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0, 1]])
    second = torch.tensor([[0.0, 1, 0], [0, 1, 0], [0.5, 0, 0.5]])
    by_hand = torch.tensor([[[0.625, 0.375, 0], [0.25, 0.75, 0], [0.25, 0, 0.75]]])
    maps = [first[None, None], second[None, None]]
    result = call(fn, maps)
    expect_shape(
        result,
        (1, 3, 3),
        "from each token of the last layer to each of the input: (b, n, n)",
        {
            (1, 1, 3, 3): "the heads' axis is left: take the mean over the heads",
            (3, 3): "the batch axis is gone",
            (1, 3): "only one row is left; keep the whole matrix",
        },
    )
    eye = torch.eye(3)
    halves = [(first + eye) / 2, (second + eye) / 2]
    compare(
        result,
        by_hand,
        {
            "the product runs from the last layer to the first. A later layer mixes what earlier ones made: it stands "
            "on the left": (halves[0] @ halves[1])[None],
            "the identity is missing: a token also keeps itself, through the residual connection": (
                (second @ first)[None]
            ),
            "the layers were averaged. They follow one another, so multiply": ((halves[0] + halves[1]) / 2)[None],
            "the layers were multiplied entry by entry; rollout is a matrix product, @": (halves[0] * halves[1])[None],
            "the rows sum to 4, not to 1: scale each layer after the identity is added": (
                ((second + eye) @ (first + eye))[None]
            ),
            "the identity counts twice in the first layer. Start from the identity and multiply both layers on": (
                (halves[1] @ ((halves[0] + eye) / 2))[None]
            ),
            "that is the last layer alone": halves[1][None],
            "that is the first layer alone": halves[0][None],
            "the result is transposed": by_hand.mT,
        },
        "on the case by hand (two layers, three tokens) the result must be "
        "[[0.625, 0.375, 0], [0.25, 0.75, 0], [0.25, 0, 0.75]]",
    )

    # Weights of which some were thrown away: rows no longer sum to 1, so dividing by 2 is not enough.
    n = 4
    thinned = [weights * (weights > 0.2) for weights in torch.rand(3, 1, 2, n, n).softmax(dim=-1)]

    def multiply(scale) -> Tensor:
        out = torch.eye(n)[None]
        for weights in thinned:
            out = scale(weights.mean(dim=1) + torch.eye(n)) @ out
        return out

    compare(
        call(fn, thinned),
        multiply(lambda mixed: mixed / mixed.sum(dim=-1, keepdim=True)),
        {
            "every row was divided by 2. That is right only while rows of weights sum to 1; here small weights were "
            "set to 0. Divide by what the row sums to": multiply(lambda mixed: mixed / 2),
            "`keepdim=True` is missing: each *column* j was divided by the sum of row j": multiply(
                lambda mixed: mixed / mixed.sum(dim=-1)
            ),
            "columns were made to sum to 1, not rows": multiply(lambda mixed: mixed / mixed.sum(dim=-2, keepdim=True)),
            "each weight matrix was scaled before the identity was added; scale the sum": multiply(
                lambda mixed: (
                    ((mixed - torch.eye(n)) / (mixed - torch.eye(n)).sum(dim=-1, keepdim=True) + torch.eye(n)) / 2
                )
            ),
        },
        "where small weights were set to 0, the rows must be scaled to sum to 1 again, layer by layer",
    )

    maps = list(torch.rand(3, 2, 4, 5, 5).softmax(dim=-1))  # 3 layers, b = 2, h = 4, n = 5
    eye = torch.eye(5)
    truth = torch.stack([_product([(w[i].mean(dim=0) + eye) / 2 for w in maps]) for i in range(2)])
    result = call(fn, maps)
    expect_shape(result, (2, 5, 5), "(b, n, n): each image for itself")
    compare(
        result,
        truth,
        {
            "the largest head was taken; rollout is of the mean of the heads": torch.stack(
                [_product([_scaled(w[i].amax(dim=0) + eye) for w in maps]) for i in range(2)]
            ),
            "only the first head was rolled out": torch.stack(
                [_product([(w[i, 0] + eye) / 2 for w in maps]) for i in range(2)]
            ),
            "the heads were summed: then the residual connection counts too little": torch.stack(
                [_product([_scaled(w[i].sum(dim=0) + eye) for w in maps]) for i in range(2)]
            ),
            "the images of the batch were mixed": _product([(w.mean(dim=(0, 1)) + eye) / 2 for w in maps]).expand(
                2, 5, 5
            ),
        },
        "with two images, three layers and four heads the result is wrong",
    )


def _scaled(matrix: Tensor) -> Tensor:
    return matrix / matrix.sum(dim=-1, keepdim=True)


def _product(layers: list[Tensor]) -> Tensor:
    out = layers[0]
    for layer in layers[1:]:
        out = layer @ out
    return out


def weight_gradient(at_proj: Float[Tensor, "b n d"], v: Float[Tensor, "b h n hd"]) -> Float[Tensor, "b h n n"]:
    """The gradient at the attention weights, from that at the heads' outputs, side by side, and the values."""
    return rearrange(at_proj, "b n (h hd) -> b h n hd", h=v.shape[1]) @ v.mT


@checks(weight_gradient)
def check_weight_gradient(fn):
    b, h, n, hd = 2, 3, 5, 4
    weights, v = torch.rand(b, h, n, n).softmax(dim=-1), torch.randn(b, h, n, hd)
    at_proj = torch.randn(b, n, h * hd)
    with torch.enable_grad():  # autograd's own answer, on the path that has the matrix
        leaf = weights.clone().requires_grad_()
        side_by_side = rearrange(leaf @ v, "b h n hd -> b n (h hd)")
        (truth,) = torch.autograd.grad(side_by_side, leaf, at_proj)
    result = call(fn, at_proj, v)
    expect_shape(
        result,
        (b, h, n, n),
        "a gradient for each weight: (b, h, n, n)",
        {
            (b, n, n): "the heads were summed over: split d into h heads first",
            (b, h, n, hd): "that is the gradient at the head's output. Multiply it by the values, transposed",
            (b, h, hd, hd): "the product runs over the tokens. It must run over the head's width",
            (b, h, hd, n): "the product runs over the tokens",
        },
    )
    split = rearrange(at_proj, "b n (h hd) -> b h n hd", h=h)
    compare(
        result,
        truth,
        {
            "rows and columns are swapped: row i belongs to the query, whose output has the gradient": truth.mT,
            "d was split as (hd h): heads stand side by side, (h hd)": rearrange(at_proj, "b n (hd h) -> b h n hd", h=h)
            @ v.mT,
            "d was split by reshape alone, without moving the axes: tokens and heads are mixed up": at_proj.reshape(
                b, h, n, hd
            )
            @ v.mT,
            "that is weight × gradient already; return the gradient alone": truth * weights,
            "the gradient was divided by √hd, which belongs to the scores; A v has no such factor": truth / hd**0.5,
            "negative gradients were set to 0; that comes later, when the heads are fused": truth.clamp(min=0),
            "the gradient at the output was multiplied with itself; v is missing": split @ split.mT,
        },
        "autograd has another gradient at the weights, on the path that holds them",
    )


def mean_distance(weights: Float[Tensor, "b h n n"], config: ViTConfig) -> Float[Tensor, "b h"]:
    """How far patches look, in pixels: distance between centres, weighted by attention, mean over the patches."""
    return attention_distance(weights, config)


@checks(mean_distance)
def check_mean_distance(fn):
    # By hand: a row of two patches, 4 pixels from centre to centre. In the second head the class token has
    # half of each patch's attention.
    row = ViTConfig(img_size=(3, 8), patch_size=(3, 4), num_classes=2, embed_dim=8, depth=1, num_heads=2)
    part = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.375, 0.125], [0.5, 0.125, 0.375]])
    other = torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, 1, 0]])
    weights = torch.stack([other, part])[None]
    result = call(fn, weights, row)
    expect_shape(
        result,
        (1, 2),
        "one distance for each image and head: (b, h)",
        {
            (1, 2, 2): "that is a distance for each patch; take the mean over the patches that look",
            (1, 2, 3): "that is a distance for each token; leave the class token out, and take the mean",
            (2,): "the batch axis is gone: keep one distance for each image",
            (1,): "the heads were averaged: keep one distance for each",
            (): "that is one number for all: keep images and heads apart",
        },
    )
    compare(
        result,
        torch.tensor([[4.0, 1.0]]),
        {
            "that is in patches; the patches are 4 pixels wide": torch.tensor([[1.0, 0.25]]),
            "the width of the patches was taken for their height: patch_size is (height, width)": torch.tensor(
                [[3.0, 0.75]]
            ),
            "what goes to the class token is missing from the sum: scale the weights that are left to sum to 1": (
                torch.tensor([[4.0, 0.5]])
            ),
            "distances were squared: take the root before the mean": torch.tensor([[16.0, 4.0]]),
            "attention to itself was left out; it counts, with distance 0": torch.tensor([[4.0, 4.0]]),
        },
        "a row of two patches 4 pixels apart: a head that looks only at the other patch has distance 4, one that gives "
        "it a quarter and itself the rest has distance 1",
    )

    config = ViTConfig(img_size=(6, 20), patch_size=(2, 5), num_classes=2, embed_dim=12, depth=1, num_heads=3)
    gh, gw, n = *config.grid_size, config.num_tokens
    weights = (4 * torch.rand(2, 3, n, n)).softmax(dim=-1)
    weights[:, :, :, 1] += torch.linspace(0, 1, n)  # uneven, so that rows differ from columns
    weights = weights / weights.sum(dim=-1, keepdim=True)

    def mean_of(between, matrix: Tensor = weights[:, :, 1:, 1:], scale: bool = True) -> Tensor:
        total = torch.zeros(2, 3)
        for i in range(gh * gw):
            share = matrix[:, :, i] / matrix[:, :, i].sum(dim=-1, keepdim=True) if scale else matrix[:, :, i]
            for j in range(gh * gw):
                total += share[:, :, j] * between(i, j)
        return total / (gh * gw)

    def steps(i: int, j: int, width: int = gw) -> tuple[int, int]:
        return abs(i // width - j // width), abs(i % width - j % width)

    def straight(i: int, j: int) -> float:
        down, right = steps(i, j)
        return ((2 * down) ** 2 + (5 * right) ** 2) ** 0.5

    def swapped(i: int, j: int) -> float:
        down, right = steps(i, j)
        return ((5 * down) ** 2 + (2 * right) ** 2) ** 0.5

    def by_columns(i: int, j: int) -> float:
        right, down = steps(i, j, gh)
        return ((2 * down) ** 2 + (5 * right) ** 2) ** 0.5

    result = call(fn, weights, config)
    expect_shape(result, (2, 3), "one distance for each image and head: (b, h)")
    compare(
        result,
        mean_of(straight),
        {
            "height and width of a patch are swapped: patch_size is (height, width)": mean_of(swapped),
            "that is the way along the streets, |down| + |right|; the distance is its straight line": mean_of(
                lambda i, j: 2 * steps(i, j)[0] + 5 * steps(i, j)[1]
            ),
            "columns of the matrix were read: a row says where its token looks": mean_of(
                straight, weights[:, :, 1:, 1:].mT
            ),
            "the patches were numbered column by column; the grid runs row by row": mean_of(by_columns),
            "the last token was left out; the class token is the first": mean_of(straight, weights[:, :, :-1, :-1]),
            "that is in patches": mean_of(lambda i, j: (steps(i, j)[0] ** 2 + steps(i, j)[1] ** 2) ** 0.5),
            "weights were not scaled to sum to 1 without the class token": mean_of(straight, scale=False),
        },
        "on a grid of 3×4 patches of 2×5 pixels the distances are wrong",
    )
    pooled = ViTConfig(**{**vars(config), "pool": "mean"})
    patches = weights[:, :, 1:, 1:]
    expect(
        close(call(fn, patches, pooled), mean_of(straight)),
        "a model that averages its patches has no class token: leave out config.num_prefix_tokens tokens, not always 1",
    )


def mass_on_object(maps: Float[Tensor, "b gh gw"], masks: Bool[Tensor, "b H W"]) -> Float[Tensor, " b"]:
    """The share of each map that lies on the object; a patch counts as far as the object covers it."""
    return attention_mass(maps, masks)


@checks(mass_on_object)
def check_mass_on_object(fn):
    # By hand: 4×6 pixels; the object fills the upper right patch of 2×3 pixels, and one pixel of the lower left one.
    mask = torch.zeros(1, 4, 6, dtype=torch.bool)
    mask[0, :2, 3:] = True
    mask[0, 3, 0] = True
    maps = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    result = call(fn, maps, mask)
    expect_shape(
        result,
        (1,),
        "one share for each image: (b,)",
        {
            (1, 2, 2): "that is the share of each patch; sum over the grid",
            (): "that is one number for all images; keep one for each",
        },
    )
    compare(
        result,
        torch.tensor([0.25]),
        {
            "the map's values were not divided by their sum: a share is a part of the whole": torch.tensor([2.5]),
            "every patch that the object touches was counted in full; count it as far as it is covered": torch.tensor(
                [0.5]
            ),
            "only patches that the object covers for the greater part were counted": torch.tensor([0.2]),
            "that is the share off the object": torch.tensor([0.75]),
            "the sum over the object was divided by the object's size; divide by the sum of the map": torch.tensor(
                [2.5 / 7]
            ),
            "the sum over the object was divided by the number of pixels or patches": torch.tensor([2.5 / 4]),
        },
        "on a 2×2 map [[1, 2], [3, 4]] with an object that covers one patch in full and a sixth of another, the share "
        "must be (2 + 3/6) / 10",
    )
    b, gh, gw, ph, pw = 3, 2, 5, 4, 3
    maps, masks = torch.rand(b, gh, gw) + 0.1, torch.rand(b, gh * ph, gw * pw) < 0.4
    masks[1, :, :5] = True

    def share(values: Tensor) -> Tensor:
        """Pixel by pixel, with a number of ``values`` for each patch."""
        on = torch.zeros(b)
        for y in range(gh * ph):
            for x in range(gw * pw):
                on += values[:, y // ph, x // pw] * masks[:, y, x]
        return on / (values.sum(dim=(1, 2)) * ph * pw)

    result = call(fn, maps, masks)
    expect_shape(result, (b,), "one share for each image: (b,)")
    centre = (maps * masks[:, ph // 2 :: ph, pw // 2 :: pw]).sum(dim=(1, 2)) / maps.sum(dim=(1, 2))
    corner = (maps * masks[:, ::ph, ::pw]).sum(dim=(1, 2)) / maps.sum(dim=(1, 2))
    compare(
        result,
        share(maps),
        {
            "one pixel of each patch was looked at. Take the mean of the mask over the patch": centre,
            "one pixel of each patch was looked at, its upper left one. Take the mean of the mask over it": corner,
            "the maps were scaled over the whole batch; each image's map has its own sum": (
                share(maps) * maps.sum(dim=(1, 2)) / maps.sum()
            ),
            "rows and columns of the grid are mixed up": share(maps.mT.reshape(b, gh, gw)),
            "the map is upside down": share(maps.flip(1)),
            "the map was smoothed when it was enlarged: a patch has one value for all its pixels": _smooth(maps, masks),
        },
        "the share on the object is wrong on a grid of 2×5 patches of 4×3 pixels",
    )


def _smooth(maps: Tensor, masks: Tensor) -> Tensor:
    large = torch.nn.functional.interpolate(maps[:, None], size=masks.shape[1:], mode="bilinear")[:, 0]
    return (large * masks).sum(dim=(1, 2)) / large.sum(dim=(1, 2))


def hide_top(
    images: Float[Tensor, "b c H W"], maps: Float[Tensor, "b gh gw"], k: int, value: float
) -> Float[Tensor, "b c H W"]:
    """The images with the ``k`` patches on which their map is highest painted over with ``value``."""
    patch_size = images.shape[2] // maps.shape[1], images.shape[3] // maps.shape[2]
    return hide_patches(images, maps.flatten(1).topk(k).indices, patch_size, value)


@checks(hide_top)
def check_hide_top(fn):
    b, c, gh, gw, ph, pw, k = 3, 2, 3, 4, 2, 5, 5
    images, maps = torch.rand(b, c, gh * ph, gw * pw) + 1, torch.rand(b, gh, gw)
    value = 0.25

    def painted(hidden: Tensor) -> Tensor:
        """``hidden`` (b, gh, gw) says which patches."""
        out = images.clone()
        for i in range(b):
            for row in range(gh):
                for col in range(gw):
                    if hidden[i, row, col]:
                        out[i, :, row * ph : (row + 1) * ph, col * pw : (col + 1) * pw] = value
        return out

    def highest(values: Tensor, count: int = k) -> Tensor:
        """Which of each image's patches have fewer than ``count`` others above them."""
        flat = values.flatten(1)
        return ((flat[:, :, None] < flat[:, None, :]).sum(dim=2) < count).reshape(values.shape)

    result = call(fn, images, maps, k, value)
    expect_shape(result, tuple(images.shape), "the images keep their size")
    truth = painted(highest(maps))
    numbers = torch.where(highest(maps), 0, 1).flatten(1)
    rule_out(
        result,
        {
            "nothing is hidden": images,
            "the *lowest* patches were hidden; topk gives the highest": painted(highest(-maps)),
            "all but the highest patches were hidden": painted(~highest(maps)),
            "one patch too many is hidden": painted(highest(maps, k + 1)),
            "one patch too few is hidden": painted(highest(maps, k - 1)),
            "the k highest of the whole batch were hidden; each image has its own k": painted(
                highest(maps.reshape(1, b * gh, gw)).reshape(b, gh, gw)
            ),
            "patch numbers run along rows: number i is row i // gw, column i % gw": painted(
                numbers.reshape(b, gw, gh).mT == 0
            ),
            "the first image's patches were hidden in all images": painted(highest(maps)[:1].expand(b, -1, -1)),
            "the patches were painted black, and not with the value that was asked for": torch.where(
                truth == value, 0.0, truth
            ),
            "only the first channel was painted over": torch.cat([truth[:, :1], images[:, 1:]], dim=1),
        },
    )
    expect(
        close(result, truth),
        "on a grid of 3×4 patches of 2×5 pixels, other pixels were painted over than those of the k highest patches",
    )
    expect(close(call(fn, images, maps, 0, value), images), "with k = 0 nothing may be hidden")
    everything = call(fn, images, maps, gh * gw, value)
    expect(close(everything, torch.full_like(images, value)), "with k = the number of patches all must be hidden")
    level = torch.ones(b, gh, gw)
    painted_over = (call(fn, images, level, k, value) == value).float().mean()
    expect(
        close(painted_over, torch.tensor(k / (gh * gw))),
        "patches that are equally high were all hidden: there must be exactly k. A threshold cannot do that; topk can",
    )
