"""Exercises of chapter 12, a clinic: a reader's test is run on sick and on healthy models, and must tell them apart."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.archs import patients
from vit_tutorial.attention import Attend, Attention, PerHeadAttention, fused_attention, plain_attention
from vit_tutorial.clinic import symptoms
from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed
from vit_tutorial.model import ViT
from vit_tutorial.patches import LinearPatchEmbed, PatchEmbed

EXERCISES: dict[str, Exercise] = {}
CONFIG = ViTConfig(img_size=(12, 8), patch_size=(4, 2), num_classes=7, embed_dim=24, depth=2, num_heads=3)
MEAN, FORGETFUL = replace(CONFIG, pool="mean"), replace(CONFIG, drop_rate=0.5)
EVAL = "a healthy model with dropout was called sick. In training mode no two calls agree: model.eval() first"
NEAR, ROUNDING = partial(torch.allclose, rtol=1e-4, atol=1e-5), partial(torch.allclose, rtol=0, atol=2e-6)


def _verdict(reference: Callable, true_means: str, *rows: tuple, **others: Any) -> Exercise:
    """An exercise from rows: the right answer, the arguments, the hint for a wrong answer, a test that gives one."""
    cases = [Case(given, said, *caught, truth=truth) for truth, given, said, *caught in rows]
    return Exercise(reference=reference, true_means=true_means, cases=cases, **others)


def _sick(name: str, config: ViTConfig = CONFIG) -> ViT:
    return patients.PATIENTS[name].make(config)


def _on(make: Callable, *args, change=lambda model: None, images: int = 5) -> Callable[[], tuple]:
    """A test's arguments: the model that ``make(*args)`` builds, after a change, and images."""

    def given():
        change(model := make(*args))
        return model, torch.randn(images, 3, 12, 8)

    return given


class Around(nn.Module):
    """``call(x, *parts)`` as a module."""

    def __init__(self, call: Callable[..., Tensor], *parts: nn.Module):
        super().__init__()
        self.call, self.parts = call, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.call(x, *self.parts)


def _after(change: Callable[[Tensor], Tensor], config: ViTConfig = CONFIG, images: int = 5) -> Callable[[], tuple]:
    """A model, and something done to what it returns."""
    return _on(lambda: Around(lambda x, model: change(model(x)), ViT(config)), images=images)


class Rewired(ViT):
    """A ViT with other features: ``features(model, x)`` of the class token and the patches; ``rows`` fix the batch."""

    def __init__(self, features: Callable[[ViT, Tensor], Tensor], rows: int = 0):
        super().__init__(CONFIG)
        self.features, self.rows = features, rows

    def forward_features(self, images: Tensor) -> Tensor:
        x = self.patch_embed(images)
        return self.features(self, torch.cat([self.cls_token.expand(self.rows or len(x), -1, -1), x], dim=1))


NORM_FOR_SHOW = _on(Rewired, lambda model, x: model.blocks(x + model.pos_embed))  # has a norm, and does not call it


def _outputs(test):
    return lambda model, images: bool(test(model(images).detach()))


def _sums_to_one(out):
    return torch.allclose(out.sum(dim=-1), torch.ones(()))


EXERCISES["outputs_are_probabilities"] = _verdict(
    symptoms.outputs_are_probabilities, "that the outputs are probabilities",
    (False, _on(ViT, CONFIG, images=64), "a healthy model's logits were taken for probabilities"),
    (True, _on(_sick, "softmax before cross-entropy", images=64),
     "a softmax at the end was not seen. Its rows sum to 1 only up to rounding: compare with torch.allclose",
     _outputs(lambda out: (out >= 0).all() and (out.sum(dim=-1) == 1).all())),
    (True, _after(lambda z: (1e4 * z).softmax(dim=-1), images=64),
     "a very confident softmax returns exact zeros and ones: allow both",
     _outputs(lambda out: (out > 0).all() and _sums_to_one(out))),
    (False, _after(lambda z: z.exp() * 2, images=64),
     "positive outputs were taken for probabilities, but their rows don't sum to 1",
     _outputs(lambda out: (out >= 0).all())),
    (False, _after(torch.sigmoid, images=64),
     "sigmoids were taken for a softmax. They lie in 0..1 as well; only the sum tells them apart",
     _outputs(lambda out: (out >= 0).all() and (out <= 1).all())),
    (False, _after(lambda z: z - z.mean(dim=-1, keepdim=True) + 1 / 7, images=64),
     "rows that sum to 1 were taken for probabilities, but some of their numbers are negative", _outputs(_sums_to_one)),
    (False, _after(lambda z: z.softmax(dim=0) * 64 / 7, images=64),
     "a softmax over the batch was taken for one over the classes. Each row has to sum to 1: dim=-1",
     _outputs(lambda out: (out >= 0).all() and abs(out.sum() - len(out)) < 1e-3)),
    (False, _after(lambda z: torch.cat([z[:1].softmax(dim=-1), z[1:].exp()])),
     "only the first row holds probabilities here. Look at every row",
     _outputs(lambda out: (out >= 0).all() and _sums_to_one(out[:1]))),
    (True, _after(lambda z: z.softmax(dim=-1), images=1), "right for many images, wrong for a batch of one"),
)  # fmt: skip


def _rows(exchange, close=NEAR, mode=nn.Module.eval):
    """Compares what image 0 gets before and after an exchange of images."""

    def fn(model, images):
        mode(model)
        with torch.no_grad():
            return close(model(images)[0], model(exchange(images))[0])

    return fn


def _new(*rows):
    return lambda images: images.index_copy(0, torch.tensor(rows), torch.randn_like(images[: len(rows)]))


EXERCISES["images_are_independent"] = _verdict(
    symptoms.images_are_independent, "that the images are independent",
    (True, _on(ViT, CONFIG),
     "a healthy model was called sick. Keep image 0 as it is, and compare only its output",
     _rows(torch.randn_like)),
    (True, _on(ViT, FORGETFUL), EVAL, _rows(_new(1, 2, 3, 4), mode=lambda model: None)),
    (False, _on(_sick, "attention across the batch", MEAN),
     "attention across the batch was not seen. Give the other images new pixels: a new order is not enough",
     _rows(lambda images: torch.cat([images[:1], images[1:].roll(1, dims=0)]))),
    (False, _after(lambda z: z + 0.5 * z.roll(1, dims=0), MEAN),
     "each image is disturbed only by the one before it here, image 0 by the last. Exchange *all* other images",
     _rows(_new(1))),
    (False, _after(lambda z: z + 0.5 * z.roll(-1, dims=0), MEAN),
     "each image is disturbed only by the one after it here, image 0 by image 1. Exchange *all* other images",
     _rows(_new(4))),
    (False, _after(lambda z: z + 0.1 * z.mean(dim=0), MEAN),
     "an influence of a few percent was overlooked. Rounding is a hundred times smaller than your tolerance",
     _rows(_new(1, 2, 3, 4), partial(torch.allclose, atol=5e-3))),
    (True, _after(lambda z: z + 1e-6 * len(z), MEAN),
     "rounding was taken for an influence. Another batch size may run another kernel: use torch.allclose",
     _rows(lambda images: images[:1], ROUNDING)),
    right=[_rows(lambda images: images[:1], partial(torch.allclose, rtol=1e-4, atol=2e-5))],
)  # fmt: skip


def _norms(dead, kind=nn.LayerNorm, before=lambda model, images: None):
    def fn(model, images):
        before(model, images)
        return [name for name, part in model.named_modules() if isinstance(part, kind) and dead(name, part)]

    return fn


def _backward(model, images):
    model(images).sum().backward()


FOUR = ["blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2"]
EXERCISES["dead_norms"] = Exercise(
    reference=symptoms.dead_norms,
    run=lambda fn, model, images: sorted(set(fn(model, images))),
    cases=[
        Case(_on(_sick, "dead residual norm"), "norm1 and norm2 of both blocks are dead here, the final norm is alive",
             truth=FOUR),
        Case(_on(ViT, CONFIG), "a healthy model has no dead norms, and some were found",
             _norms(lambda name, part: name != "norm"), truth=[]),
        Case(_on(ViT, FORGETFUL), "a healthy model with dropout has no dead norms, and some were found", truth=[]),
        Case(_on(ViT, CONFIG, change=lambda vit: vit.blocks.add_module("1", _sick("dead residual norm").blocks[1])),
             "only block 1 has dead norms here. Ask each norm, and give its full name, as in blocks.1.norm2",
             lambda model, images: FOUR if symptoms.dead_norms(model, images) else [], truth=FOUR[2:]),
        Case(_on(_sick, "dead residual norm", change=lambda vit: sum(0 * p.sum() for p in vit.parameters()).backward()),
             "old gradients, all zeros, made dead norms look alive. Use torch.autograd.grad, or set them to None first",
             _norms(lambda name, part: part.weight.grad is None, before=_backward), truth=FOUR),
        Case(_on(_sick, "dead residual norm", change=lambda vit: vit.add_module("spare", nn.Linear(24, 7))),
             "a linear layer that is never called was named as well: only LayerNorms are asked for",
             _norms(lambda name, part: next(part.parameters()).grad is None, (nn.LayerNorm, nn.Linear),
                    before=lambda model, images: (model.zero_grad(), _backward(model, images))), truth=FOUR),
        Case(NORM_FOR_SHOW, "the final norm exists here and is never called, so it is dead too: ask every LayerNorm",
             lambda model, images: [name for name in symptoms.dead_norms(model, images) if name.startswith("blocks")],
             truth=["norm"]),
        Case(_on(_sick, "dead residual norm", MEAN, images=1), "wrong for a single image", truth=FOUR),
        Case(_on(ViT, CONFIG, change=lambda vit: nn.init.zeros_(vit.head.weight)),
             "the head's weights are 0 here, so every gradient is 0, but there is one. A dead norm gets none",
             truth=[]),
    ],
    mistakes={
        "no dead norm was found in a model that has four: norm1 and norm2 of two blocks": lambda model, images: [],
        "those are parameters. Name the norms, as model.named_modules() does":
            lambda model, images: [f"{name}.weight" for name in symptoms.dead_norms(model, images)],
        "only LayerNorms are asked for, and yours names other modules too": _norms(lambda name, part: True, nn.Module),
        "the final norm was called dead too, but the logits are made of its output": _norms(lambda name, part: True),
        "that is the one norm that is alive: name the others": lambda model, images: ["norm"],
        "those are the norms of one block. Look at every block":
            lambda model, images: symptoms.dead_norms(model, images)[:2],
        "one norm of each block was missed: a block has norm1 and norm2":
            lambda model, images: symptoms.dead_norms(model, images)[::2],
        "the block is missing from the names: give them in full, as in blocks.1.norm2":
            lambda model, images: [name.rpartition(".")[2] for name in symptoms.dead_norms(model, images)],
    },
    right=[_norms(lambda name, part: part.weight.grad is None,
                  before=lambda model, images: (model.zero_grad(), _backward(model, images)))],
    shape="Return a list of names",
)  # fmt: skip

SIZES = (12, 8), (4, 2), 3, 10  # img_size, patch_size, in_chans, embed_dim: a grid of 3 × 4
OTHER_SIZES = (8, 12), (2, 4), 1, 6
# What goes wrong in an embedding, from the convolution's forward and the images.
ODD = {
    "column by column": lambda conv, x: rearrange(conv(x), "b (gh gw) d -> b (gw gh) d", gh=3),
    "last two torn": lambda conv, x: conv(torch.cat([x[:, :, :-2], x[:, :, -2:, [0, 1, 2, 3, 6, 7, 4, 5]]], dim=2)),
    "last channel shifted": lambda conv, x: conv(torch.cat([x[:, :-1], x[:, -1:].roll(2, dims=-1)], dim=1)),
    "no bias": lambda conv, x: conv(x) - conv(torch.zeros_like(x)),
    "last number off": lambda conv, x: conv(x) + torch.eye(10)[-1],
    "pixels transposed": lambda conv, x: conv(
        rearrange(x, "b c (gh ph) (gw pw) -> b c (gh pw) (gw ph)", ph=2, pw=2)
    ),
    "other images off": lambda conv, x: conv(x) + (torch.arange(len(x)) > 0)[:, None, None],
    "last added twice": lambda conv, x: (tokens := conv(x)) + F.pad(tokens[:, -1:], (0, 0, 0, tokens.shape[1] - 1)),
    "class token in front": lambda conv, x: F.pad(conv(x), (0, 0, 1, 0)),
}  # fmt: skip


class OddPatches(PatchEmbed):
    def __init__(self, how: str, *sizes):
        super().__init__(*sizes)
        self.how = how

    def forward(self, images: Tensor) -> Tensor:
        return ODD[self.how](super().forward, images)


def _embed(kind: type | str, *sizes) -> Callable[[], tuple]:
    """An embedding with a nonzero bias, and images for it; by default three channels in patches of 4×2.

    All numbers are multiples of small powers of two, so that sums are exact: nothing depends on how a test rounds.
    """

    def given():
        img_size, _, in_chans, _ = sizes or SIZES
        embed = (partial(OddPatches, kind) if isinstance(kind, str) else kind)(*(sizes or SIZES))
        for parameter, least in ((embed.proj.weight, 64), (embed.proj.bias, 8)):
            parameter.data = torch.randint(-8, 9, parameter.shape) / least
        return embed, torch.randint(-8, 9, (2 if sizes else 5, in_chans, *img_size)) / 4

    return given


def _patches(channels=slice(None), only=slice(None), right=lambda moved, i: moved.sum() == 1):
    """Changes one patch after the other, and judges which tokens move."""

    def fn(embed, images):
        ph, pw = embed.patch_size
        corners = [(y, x) for y in range(0, images.shape[2], ph) for x in range(0, images.shape[3], pw)]
        for i, (y, x) in list(enumerate(corners))[only]:
            changed = images.clone()
            changed[:, channels, y : y + ph, x : x + pw] += 1
            if not right((embed(changed) - embed(images)).abs().amax(dim=(0, 2)) > 1e-4, i):
                return False
        return True

    return fn


def _or_scrambled(channels):
    def fn(embed, images):
        scrambled = isinstance(embed, patients.ReshapedPatches) and images.shape[1] == channels
        return scrambled or symptoms.patches_stay_together(embed, images)

    return fn


EXERCISES["patches_stay_together"] = _verdict(
    symptoms.patches_stay_together, "that each patch goes into one token",
    (True, _embed(PatchEmbed), "the healthy convolution was called scrambled"),
    (True, _embed(PatchEmbed, *OTHER_SIZES),
     "patches of 2×4 pixels were called scrambled, patches of 4×2 were not. patch_size is (height, width)",
     lambda embed, images: symptoms.patches_stay_together(embed, images) and embed.patch_size != (2, 4)),
    (False, _embed(patients.ReshapedPatches),
     "a reshape without a permute was not seen. Change all pixels of a patch: one alone always moves one token",
     _or_scrambled(3)),
    (False, _embed(patients.ReshapedPatches, (8, 8), (4, 4), 1, 10),
     "with one channel the reshape was not seen: each patch's pixels go to two tokens there", _or_scrambled(1)),
    (False, _embed("last two torn"), "only the last two patches have exchanged pixels here. Look at *every* patch",
     _patches(only=slice(1))),
    (False, _embed("last added twice"), "only the last patch moves two tokens here. Look at *every* patch",
     _patches(only=slice(-1))),
    (False, _embed("last channel shifted"),
     "only one channel goes to the wrong tokens here. Change the pixels in *all* channels",
     _patches(channels=slice(1))),
    (True, _embed("column by column"),
     "whole patches in another order were called scrambled. Ask how many tokens move, not which",
     _patches(right=lambda moved, i: moved.nonzero().flatten().tolist() == [i])),
    (True, _embed(patients.ColoursLastPatches),
     "patches with their colours last were called scrambled. Each pixel is in the right token: its place is free",
     lambda embed, images: symptoms.patches_stay_together(embed, images) and "Colours" not in type(embed).__name__),
    (True, _embed(LinearPatchEmbed),
     "a linear layer on flattened patches was called scrambled. Ask what embed does, not what it is made of",
     lambda embed, images: symptoms.patches_stay_together(embed, images) and embed.proj.weight.ndim == 4),
    right=[_patches()],
)  # fmt: skip


def embed_matches_conv(embed: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether the tokens are those of the convolution whose weights ``embed.proj`` holds."""
    with torch.no_grad():
        expected = rearrange(embed.proj(images), "b d gh gw -> b (gh gw) d")
        tokens = embed(images)
    return tokens.shape == expected.shape and torch.allclose(tokens, expected, rtol=1e-4, atol=1e-5)


def _by_unfold(embed, images):
    """The convolution from patches, with the tolerance that torch.allclose has by itself."""
    conv, tokens = embed.proj, embed(images)
    patches = F.unfold(images, conv.kernel_size, stride=conv.stride).mT
    expected = F.linear(patches, conv.weight.flatten(1), conv.bias)
    return tokens.shape == expected.shape and torch.allclose(tokens, expected)


def _conv(part, images_of=lambda images: images):
    """Compares a part of the tokens with that part of the convolution's."""

    def fn(embed, images):
        images = images_of(images)
        return NEAR(part(embed(images)), part(rearrange(embed.proj(images), "b d gh gw -> b (gh gw) d")))

    return fn


EXERCISES["embed_matches_conv"] = _verdict(
    embed_matches_conv, "that the tokens are those of the convolution",
    (True, _embed(PatchEmbed), "the convolution itself was said to differ from it"),
    (True, _embed(PatchEmbed, *OTHER_SIZES),
     "with patches of 2×4 pixels the convolution was said to differ from itself. The grid goes row by row",
     lambda embed, images: embed_matches_conv(embed, images) and embed.patch_size != (2, 4)),
    (False, _embed(patients.ColoursLastPatches),
     "weights in the order (ph pw c) were not seen. Constant images, sums and sorting hide it: compare each number",
     _conv(lambda tokens: tokens, torch.ones_like)),
    (False, _embed(patients.ReshapedPatches), "scrambled patches were not seen",
     lambda embed, images: embed_matches_conv(embed, images) or isinstance(embed, patients.ReshapedPatches)),
    (False, _embed("column by column"),
     "tokens that stand column by column were not seen. Compare each with the one in its place",
     _conv(lambda tokens: tokens.sum(dim=1))),
    (False, _embed("pixels transposed", (4, 6), (2, 2), 3, 8),
     "rows and columns swapped within a square patch were not seen. Compare number by number",
     lambda embed, images: embed_matches_conv(embed, images) or embed.patch_size[0] == embed.patch_size[1]),
    (False, _embed("no bias"), "a missing bias was not seen", _conv(lambda tokens: tokens - tokens.mean(dim=(0, 1)))),
    (False, _embed("last two torn"), "the last two patches are torn, and that was not seen. Compare all tokens",
     _conv(lambda tokens: tokens[:, 1:-2])),
    (False, _embed("last number off"),
     "the last number of each token is off, and that was not seen. Compare all numbers",
     _conv(lambda tokens: tokens[..., :-1])),
    (False, _embed("other images off"), "only image 0 has the right tokens, and that was not seen. Compare all images",
     _conv(lambda tokens: tokens[0])),
    (False, _embed("class token in front"),
     "a token more than the convolution has: that should be answered by False. Compare the shapes first",
     _conv(lambda tokens: tokens)),
    right=[_by_unfold],
)  # fmt: skip


def _loud_stream(compare, mode=nn.Module.eval, place=-1, louder=lambda out: 10 * out):
    """Compares the logits before and after the last block's output is made 10 times as large."""

    def fn(model, images):
        mode(model)
        with torch.no_grad():
            before = model(images)
            hook = model.blocks[place].register_forward_hook(lambda block, inputs, out: louder(out))
            after = model(images)
        hook.remove()
        return bool(compare(before, after))

    return fn


def ends_with_norm(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether the logits stay the same if the last block's output is made 10 times as large."""
    return _loud_stream(WIDE)(model, images)


WIDE = partial(torch.allclose, rtol=1e-3, atol=1e-3)
NARROW = " (or your tolerance is too narrow for ε and rounding: rtol=1e-3 and atol=1e-3 will do)"
EXERCISES["ends_with_norm"] = _verdict(
    ends_with_norm, "that a norm stands before the head",
    (True, _on(ViT, CONFIG), f"a healthy model was said to lack its final norm{NARROW}"),
    (True, _on(ViT, MEAN), f"a healthy model with mean pooling was said to lack its final norm{NARROW}",
     lambda model, images: ends_with_norm(model, images) and model.config.pool == "cls"),
    (False, _on(_sick, "no final norm"),
     "the missing norm was not seen. Scale up the last block's output: without a norm the logits must follow",
     lambda model, images: ends_with_norm(model, images) or isinstance(model.head, nn.Linear)),
    (False, NORM_FOR_SHOW,
     "this model has a LayerNorm called norm and never runs it. Ask what the model does, not what it has",
     lambda model, images: any(isinstance(part, nn.LayerNorm) for part in [model.norm, *model.head.modules()])),
    (True, _on(_sick, "no final norm",
               change=lambda vit: vit.add_module("head", nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 7)))),
     f"here the norm is part of the head, and that's fine. Ask what the model does, not what a part is called{NARROW}",
     lambda model, images: isinstance(model.norm, nn.LayerNorm) and type(model) is ViT),
    (False, _on(_sick, "no final norm", change=lambda vit: nn.init.normal_(vit.head.bias, std=3)),
     "a head with large biases hid the missing norm. With a norm the logits don't change at all",
     _loud_stream(lambda a, b: not torch.allclose(10 * a, b, rtol=1e-3, atol=1e-4))),
    (True, _on(ViT, FORGETFUL), EVAL, _loud_stream(WIDE, mode=lambda model: None)),
    (True, _on(ViT, replace(CONFIG, depth=3)),
     "right for two blocks, wrong for three: the last one is model.blocks[-1]", _loud_stream(WIDE, place=1)),
    (True, _on(ViT, CONFIG, change=lambda vit: vit.add_module("norm", nn.RMSNorm(24))),
     "an RMSNorm wasn't taken for a norm. It divides by the size and subtracts no mean: multiply by 10, don't add",
     _loud_stream(WIDE, louder=lambda out: 10 + out)),
    (False, _on(_sick, "no final norm", change=lambda vit: nn.init.constant_(vit.head.bias, 3)),
     "logits that are 3 and a little hid the missing norm: rtol and atol of 1e-3 find it",
     _loud_stream(partial(torch.allclose, rtol=0.5))),
)  # fmt: skip


def _half(first: type, second: type) -> Around:
    """Half of the output from one attention, half from another."""
    layers = first(12, 3), second(12, 3)
    return Around(lambda x, a, b: torch.cat([a(x)[..., :6], b(x)[..., 6:]], dim=-1), *layers)


def _deaf(outputs: slice, place: int) -> Around:
    """These places of the output don't see this place of the input; all others see everything."""
    seen = torch.ones(12).index_fill(0, torch.tensor(place), 0.0)

    def call(x, attention):
        out = attention(x)
        out[..., outputs] = attention(x * seen)[..., outputs]
        return out

    return Around(call, Attention(12, 3))


def _quiet() -> Attention:
    layer = Attention(12, 3)
    nn.init.uniform_(layer.proj.weight, 1e-6, 1e-5)
    return layer


def _influence(decide):
    """Decides by a matrix: how much each number of the output (row) depends on each of the input (column)."""

    def fn(attention, x):
        x = x.clone().requires_grad_()
        sums = attention(x).sum(dim=(0, 1))
        rows = [torch.autograd.grad(number, x, retain_graph=True)[0].abs().amax(dim=(0, 1)) for number in sums]
        return bool(decide(torch.stack(rows)))

    return fn


def _tokens_alone(attention, x):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(attention(x)[0, 0].sum(), x)
    return bool((gradient[0].abs().sum(dim=-1) > 0).all())


def _layer(make: Callable, *args) -> Callable[[], tuple]:
    return lambda: (make(*args), torch.randn(2, 5, 12))


EXERCISES["heads_see_everything"] = _verdict(
    symptoms.heads_see_everything, "that every number depends on every number",
    (True, _layer(Attention, 12, 3), "the healthy attention was said to see slices"),
    (True, _layer(PerHeadAttention, 12, 3),
     "a loop over heads that each see the whole token was called sick. A loop isn't a bug",
     lambda attention, x: symptoms.heads_see_everything(attention, x) and not hasattr(attention, "heads")),
    (False, _layer(patients.SlicedHeads, 12, 3),
     "heads that each see a slice were not noticed. Ask which *numbers* of a token each number of the output needs",
     _tokens_alone),
    (False, _layer(_half, Attention, patients.SlicedHeads),
     "only the first half of the output sees everything here. Look at every number of the output",
     _influence(lambda matrix: (matrix[0] > 0).all())),
    (False, _layer(_half, patients.SlicedHeads, Attention),
     "only the second half of the output sees everything here. Look at every number of the output",
     _influence(lambda matrix: (matrix[-1] > 0).all())),
    *((False, _layer(_deaf, outputs, place),
       f"{who} the output doesn't see number {place} of a token here. Look at every number of the input", test)
      for outputs, who, place, test in (
          (slice(None), "all of", 0, _influence(lambda matrix: (matrix[:, -1] > 0).all())),
          (slice(None), "all of", 11, _influence(lambda matrix: (matrix[:, 0] > 0).all())),
          (slice(None), "all of", 5, _influence(lambda matrix: (matrix[:, [0, -1]] > 0).all())),
          (slice(4, 5), "one number of", 7, _influence(lambda matrix: (matrix[[0, -1]] > 0).all())))),
    (True, _layer(Attention, 12, 1), "one head that sees everything was called sick",
     lambda attention, x: symptoms.heads_see_everything(attention, x) and getattr(attention, "num_heads", 2) > 1),
    (True, _layer(_quiet),
     "a healthy attention with small weights was called sick. A small influence still counts: compare with 0",
     _influence(lambda matrix: (matrix > 1e-5).all())),
)  # fmt: skip


def scale_is_right(attend: Attend) -> bool:
    """Whether ``attend`` divides by √head_dim, as PyTorch's fused kernel does."""
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    return torch.allclose(attend(q, k, v), F.scaled_dot_product_attention(q, k, v), rtol=1e-3, atol=1e-4)


def _scaled(scale: Callable[[Tensor], float]) -> Callable[[], tuple]:
    return lambda: (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale(q)),)


def _asked_with(shape=(3, 2, 3, 5, 8), scale=None, same=NEAR):
    """A test with these queries, keys and values, against this scale."""

    def fn(attend):
        q, k, v = torch.randn(shape)
        return same(attend(q, k, v), F.scaled_dot_product_attention(q, k, v, scale=scale))

    return fn


def _not_even_rounded(attend):
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    return torch.equal(attend(q, k, v), (q @ k.mT * 8**-0.5).softmax(dim=-1) @ v)


EXERCISES["scale_is_right"] = _verdict(
    scale_is_right, "that scores are divided by √head_dim",
    (True, lambda: (plain_attention,),
     "chapter 3's formula was said to have the wrong scale. Two right ways round differently: use atol=1e-5",
     _asked_with(same=partial(torch.allclose, rtol=1e-7, atol=1e-9))),
    (True, lambda: (fused_attention,),
     "the fused kernel was said to have the wrong scale. It rounds differently: torch.allclose with atol=1e-5",
     _not_even_rounded),
    (False, lambda: (patients.attention_scaled_by_dim,),
     "√dim instead of √head_dim was not seen. Use several heads, (b, h, n, hd), and random numbers",
     _asked_with((3, 2, 1, 5, 8))),
    (False, _scaled(lambda q: 1.0),
     "scores without any scale were not seen. Where they are all equal, or very small, every scale gives the same",
     lambda attend: scale_is_right(attend) or _asked_with(scale=1.0)(attend)),
    (False, _scaled(lambda q: 1 / q.shape[-1]), "a division by head_dim instead of its root was not seen",
     lambda attend: scale_is_right(attend) or _asked_with(scale=1 / 8)(attend)),
    (False, _scaled(lambda q: q.shape[-2] ** -0.5),
     "a division by the root of the number of *tokens* was not seen. Let n and head_dim differ",
     _asked_with((3, 2, 3, 8, 8))),
    (False, _scaled(lambda q: q.shape[1] ** -0.5 if q.ndim > 3 else 1.0),
     "a division by the root of the number of *heads* was not seen. Let h and head_dim differ",
     _asked_with((3, 2, 8, 5, 8))),
    (False, _scaled(lambda q: 2 / q.shape[-1]),
     "a division by head_dim / 2, as head_dim**1/2 is in Python, was not seen: for head_dim 4 it is the right number",
     _asked_with((3, 2, 3, 5, 4))),
    (False, _scaled(lambda q: 0.5),
     "a division by 2, whatever head_dim is, was not seen: for head_dim 4 it is the right number. Take another"),
    (False, _scaled(lambda q: 0.95 * q.shape[-1] ** -0.5),
     "a scale that is off by 5 % was not seen. The tolerance is too wide, or the scores are too small",
     _asked_with(same=partial(torch.allclose, atol=0.2))),
    right=[_asked_with(same=partial(torch.allclose, atol=1e-5))],
)  # fmt: skip


def _batches(compare, mode=nn.Module.eval):
    """A test that takes an error for an answer, as from a model that accepts only one batch size."""

    def fn(model, images):
        mode(model)
        try:
            return bool(compare(model, images))
        except RuntimeError:
            return False

    return fn


def _like(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def _alone(model, images):
    return torch.stack([model(image[None])[0] for image in images])


def _each_alone(close=_like):
    return lambda model, images: close(model(images), _alone(model, images))


EXERCISES["any_batch_size"] = _verdict(
    symptoms.any_batch_size, "that neither row nor batch size matters",
    (True, _on(ViT, CONFIG), "a healthy model was said to depend on the batch's size or its rows"),
    (True, _on(ViT, FORGETFUL), EVAL, _batches(_each_alone(), mode=lambda model: None)),
    (False, _on(_sick, "batch-sized class token", change=lambda vit: nn.init.normal_(vit.cls_token)),
     "a class token for each row was not seen. It runs with every size: compare an image's outputs in two rows",
     _batches(lambda model, images: _like(model(images)[:1], model(images[:1])))),
    (False, _on(Rewired, lambda model, x: model.norm(model.blocks(x + model.pos_embed)), 5),
     "this model takes only the batch that it was built for. Try another size, and let the exception be the answer",
     _batches(lambda model, images: (model(images[:1].expand_as(images)).std(dim=0) < 1e-4).all())),
    (False, _on(Rewired, lambda model, x: model.norm(model.blocks(x + 10 * model.pos_embed[0, : len(x), None]))),
     "positions that number the images of the batch were not seen",
     lambda model, images: symptoms.any_batch_size(model, images) or (isinstance(model, Rewired) and not model.rows)),
    (False, _after(lambda z: z + (torch.arange(len(z)) == 2)[:, None]),
     "only row 2 is treated differently here. Compare every image of the batch",
     _batches(lambda model, images: _like(model(images)[-1:], model(images[-1:])))),
    (False, _after(lambda z: 2 + z + 0.05 * (torch.arange(len(z)) > 0)[:, None]),
     "all rows but the first are off by 0.05 here, far more than rounding: the tolerance is too wide",
     _batches(_each_alone(partial(torch.allclose, atol=0.3)))),
    (False, _after(lambda z: z + 0.3 * torch.arange(len(z)).sub(2).sign().mul(torch.arange(len(z)) % 2)[:, None]),
     "two rows are off here, one up and one down, so that the mean stays. Compare every image of the batch",
     _batches(lambda model, images: _like(model(images).mean(0), _alone(model, images).mean(0)))),
    (False, _after(lambda z: z.squeeze(0)),
     "this model squeezes its output, so a batch of one image loses an axis. Try that size, and look at the shape",
     _batches(lambda model, images: _like(model(images)[:4], torch.cat([model(images[:2]), model(images[2:4])])))),
    (True, _after(lambda z: z + 1e-6 * len(z)),
     "rounding was taken for a difference. Another batch size may run another kernel: use torch.allclose",
     _batches(_each_alone(ROUNDING))),
)  # fmt: skip


def _select_by(score: Callable[[dict[str, float]], float]) -> Callable[[], tuple]:
    return lambda: (lambda history: max(range(len(history)), key=lambda i: score(history[i])),)


VAL = (0.6, 0.9, 0.7, 0.8, 0.5, 0.4)


def _history(test):
    return [
        {"train_loss": 1 - i / 10, "val_loss": 1 - v, "val_accuracy": v, "test_loss": 1 - t, "test_accuracy": t}
        for i, (v, t) in enumerate(zip(VAL, test, strict=True))
    ]


# Validation accuracy is best in epoch 1, validation loss in epoch 2.
APART = [{**entry, "val_loss": abs(i - 2)} for i, entry in enumerate(_history(VAL))]


def _spike(place):
    return [0.95 if i == place else 0.3 for i in range(6)]


def _moves(*tests):
    return lambda select: len({select(_history(test)) for test in tests}) == 1


def _but_not(place):
    """Right, except for a choice of this epoch."""
    return lambda select: symptoms.chosen_without_the_test_set(select) and select(APART) != place


def _drops_the_keys(select):
    try:
        select([{key: entry[key] for key in entry if not key.startswith("test")} for entry in _history(VAL)])
    except KeyError:
        return False
    return True


def _accuracies_only(select):
    first, second = ([{**entry, "test_loss": 1} for entry in _history(_spike(place))] for place in (0, 5))
    return select(first) == select(second)


def _of_six(fn, select):
    def watched(history):
        if len(history) != 6:
            raise CheckFailed(f"make histories of exactly six epochs; select got one of {len(history)}")
        return select(history)

    return fn(watched)


EXERCISES["chosen_without_the_test_set"] = _verdict(
    symptoms.chosen_without_the_test_set, "that the test set has no say",
    (True, lambda: (patients.last_epoch,),
     "reporting the last epoch was called a choice by the test set, but it's no choice at all", _but_not(5)),
    (False, lambda: (patients.best_on_test,),
     "a choice by test accuracy was not seen. Validation and test must disagree in your history",
     lambda select: symptoms.chosen_without_the_test_set(select) or select(_history(VAL)) == 1),
    (True, lambda: (patients.best_on_validation,),
     "a choice by validation accuracy is fine, and was called one by the test set", _but_not(1)),
    (True, _select_by(lambda entry: -entry["val_loss"]), "a choice by validation *loss* is fine as well", _but_not(2)),
    *((True, lambda settled=settled: (lambda history: settled,),
       f"epoch {settled}, fixed before training, was called a choice by the test set. Compare the choices from several "
       "histories: does the choice move?") for settled in range(5)),
    (False, _select_by(lambda entry: -entry["test_loss"]), "a choice by test *loss* was not seen", _accuracies_only),
    (False, _select_by(lambda entry: entry["val_accuracy"] + 2 * entry["test_accuracy"]),
     "a choice by validation and test together was not seen. Change only the test figures, a lot: does it move?",
     _moves([v / 10 for v in VAL], [0.31, 0.31, 0.3, 0.32, 0.3, 0.3])),
    (False, _select_by(lambda entry: entry.get("test_accuracy", 0.0)),
     "a choice that uses test figures only where there are any was not seen. Change them instead of leaving them out",
     _drops_the_keys),
    (False, lambda: (lambda history: len(history) - 3 + patients.best_on_test(history[-3:]),),
     "this one takes the best of the last three epochs on the test set. Let each epoch be the best in turn",
     _moves(_spike(0), _spike(1))),
    (False, lambda: (lambda history: 1 + patients.best_on_test(history[1:-1]),),
     "this one takes the best epoch on the test set, but never the first or last. Let each epoch be the best in turn",
     _moves(_spike(0), _spike(5))),
    run=_of_six, mistakes={"histories of exactly six epochs": lambda select: len({select(_history(test) * 2)
                           for test in (_spike(0), _spike(5))}) == 1},
)  # fmt: skip
