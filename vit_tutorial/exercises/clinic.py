"""Checks of chapter 12, a clinic: a reader's test is run on sick and on healthy models, and must tell them apart."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.archs.patients import (
    PATIENTS,
    ColoursLastPatches,
    History,
    ReshapedPatches,
    SlicedHeads,
    attention_scaled_by_dim,
    best_on_test,
    best_on_validation,
    last_pass,
)
from vit_tutorial.attention import Attend, Attention, PerHeadAttention, fused_attention, plain_attention
from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.engine import call, checks, expect, yes_or_no
from vit_tutorial.model import ViT
from vit_tutorial.patches import LinearPatchEmbed, PatchEmbed

CONFIG = ViTConfig(
    img_size=(12, 8), patch_size=(4, 2), in_chans=3, num_classes=7, embed_dim=24, depth=2, num_heads=3
)  # fmt: skip
MEAN, FORGETFUL = replace(CONFIG, pool="mean"), replace(CONFIG, drop_rate=0.5)

# What the right answer is, what the test is given, and what to say where it answers otherwise.
Case = tuple[bool, tuple, str]


class After(nn.Module):
    """A model, and something done to what it returns."""

    def __init__(self, model: nn.Module, change: Callable[[Tensor], Tensor]):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, images: Tensor) -> Tensor:
        return self.change(self.model(images))


def _images(b: int = 5) -> Tensor:
    return torch.randn(b, 3, 12, 8)


def _ask(fn: Callable, args: tuple) -> Any:
    """The reader's answer, once it is sure that it left no hook in the model."""
    model = args[0] if isinstance(args[0], nn.Module) else nn.Identity()
    with torch.enable_grad():  # checks run without gradients, and a test may want some
        answer = call(fn, *args)
    expect(
        not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules()),
        "a hook was left in the model. Call its remove(), best in a `finally`",
    )
    return answer


def tell_apart(fn: Callable, cases: Sequence[Case], yes: str, no: str) -> None:
    """Raise CheckFailed unless ``fn`` answers each case rightly; ``yes`` and ``no`` say what the answers mean."""
    answers = [yes_or_no(_ask(fn, args), f"True means {yes}") for _, args, _ in cases]
    truths = [truth for truth, _, _ in cases]
    always = "True" if all(answers) else "False" if not any(answers) else ""
    expect(
        not always,
        f"the answer is {always} for all {len(cases)} candidates, sick and healthy alike. A test must be able to say "
        "both. If yours compares numbers, do so with torch.allclose",
    )
    expect(
        answers != [not truth for truth in truths],
        f"every answer is turned round: True means {yes}, False {no}",
    )
    for answer, (truth, _, hint) in zip(answers, cases, strict=True):
        expect(answer == truth, hint)


def outputs_are_probabilities(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether every row of the model's outputs is at least 0 and sums to 1."""
    with torch.no_grad():
        outputs = model(images)
    sums = outputs.sum(dim=-1)
    return bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums))


@checks(outputs_are_probabilities)
def check_outputs_are_probabilities(fn):
    images, softmax = _images(64), PATIENTS["softmax before cross-entropy"]

    def case(truth: bool, change: Callable[[Tensor], Tensor], hint: str) -> Case:
        return truth, (After(ViT(CONFIG), change), images), hint

    tell_apart(
        fn,
        [
            (False, (ViT(CONFIG), images), "a healthy model's logits were taken for probabilities"),
            (
                True,
                (softmax.make(CONFIG), images),
                "a model that ends in a softmax passed for one with logits. Its rows sum to 1 up to rounding only: "
                "compare with torch.allclose",
            ),
            case(
                True, lambda z: (1e4 * z).softmax(dim=-1), "a very sure softmax returns exact 0 and 1: both may occur"
            ),
            case(
                False,
                lambda z: z.exp() * 2,
                "outputs that are all above 0 were taken for probabilities, but their rows do not sum to 1",
            ),
            case(
                False,
                torch.sigmoid,
                "sigmoids were taken for a softmax. They lie in 0..1 as well; only the sum tells them apart",
            ),
            case(
                False,
                lambda z: z - z.mean(dim=-1, keepdim=True) + 1 / 7,
                "rows that sum to 1 were taken for probabilities, but some of their numbers are negative",
            ),
            case(
                False,
                lambda z: z.softmax(dim=0) * 64 / 7,
                "a softmax over the images of the batch was taken for one over the classes: it is the rows, dim=-1, "
                "that have to sum to 1, each of them",
            ),
        ],
        "that the outputs are probabilities",
        "that they are logits",
    )


def images_are_independent(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether the outputs for image 0 stay, when all other images of the batch are exchanged."""
    model.eval()
    others = torch.randn_like(images)
    others[0] = images[0]
    with torch.no_grad():
        return torch.allclose(model(images)[0], model(others)[0], rtol=1e-4, atol=1e-5)


@checks(images_are_independent)
def check_images_are_independent(fn):
    images, across = _images(), PATIENTS["attention across the batch"]

    def case(truth: bool, change: Callable[[Tensor], Tensor], hint: str) -> Case:
        return truth, (After(ViT(MEAN), change), images), hint

    tell_apart(
        fn,
        [
            (True, (ViT(CONFIG).eval(), images), "the rows of a healthy model were called dependent"),
            (
                True,
                (ViT(FORGETFUL).train(), images),
                "a healthy model with dropout was called sick. In training mode no two calls agree: model.eval() first",
            ),
            (
                False,
                (across.make(MEAN), images),
                "attention across the batch was not seen. Exchange the other images, by other pixels and not by "
                "another order, and compare the outputs of the one that stayed",
            ),
            case(
                False,
                lambda z: z + 0.5 * z.roll(1, dims=0),
                "in this model each image is disturbed by the one before it alone, image 0 by the last. Exchange "
                "*all* images but the one whose output you compare",
            ),
            case(
                False,
                lambda z: z + 0.5 * z.roll(-1, dims=0),
                "in this model each image is disturbed by the one behind it alone, image 0 by image 1. Exchange *all* "
                "images but the one whose output you compare",
            ),
            case(
                False,
                lambda z: z + 0.02 * z.mean(dim=0),
                "a small influence, of some per cent, was overlooked. Rounding is a hundred times smaller than your "
                "tolerance",
            ),
            case(
                True,
                lambda z: z + 1e-6 * len(z),
                "rounding was taken for an influence. Another batch size may run another kernel: compare with "
                "torch.allclose",
            ),
        ],
        "that the images are independent",
        "that they are not",
    )


def dead_norms(model: nn.Module, images: Float[Tensor, "b c H W"]) -> list[str]:
    """The names of all LayerNorms that the output does not depend on."""
    norms = {name: part for name, part in model.named_modules() if isinstance(part, nn.LayerNorm)}
    weights = [norm.weight for norm in norms.values()]
    gradients = torch.autograd.grad(model(images).sum(), weights, allow_unused=True)
    return [name for name, gradient in zip(norms, gradients, strict=True) if gradient is None]


@checks(dead_norms)
def check_dead_norms(fn):
    images = _images()

    def ask(model: nn.Module) -> set[str]:
        answer = _ask(fn, (model, images))
        expect(
            isinstance(answer, list | tuple | set) and all(isinstance(name, str) for name in answer),
            f"expected a list of names, got {type(answer).__name__}",
        )
        expect(
            not any(name.endswith((".weight", ".bias")) for name in answer),
            "those are parameters. Name the norms, as model.named_modules() does",
        )
        return set(answer)

    sick = PATIENTS["dead residual norm"].make(CONFIG)
    wrong = ask(sick)
    every = {name for name, part in sick.named_modules() if isinstance(part, nn.LayerNorm)}
    dead = every - {"norm"}
    expect(wrong != {"norm"}, "that is the one norm that is alive: name the others")
    expect(bool(wrong), "no dead norm was found in a model that has four, the norm1 and norm2 of two blocks")
    expect(
        not wrong & ({name for name, _ in sick.named_modules()} - every),
        f"{', '.join(sorted(wrong - every))}: only LayerNorms are asked for",
    )
    expect(wrong != every, "the final norm was called dead as well, but the logits are made of what it returns")
    expect(wrong == dead, f"dead are {', '.join(sorted(dead))}; you found {', '.join(sorted(wrong))}")
    found = ask(ViT(CONFIG))
    expect(not found, f"a healthy model has no dead norms; you found {', '.join(sorted(found))}")
    found = ask(ViT(FORGETFUL).train())
    expect(not found, f"with dropout, {', '.join(sorted(found))} of a healthy model was called dead")
    half = ViT(CONFIG)
    half.blocks[1] = sick.blocks[1]
    expect(
        ask(half) == {"blocks.1.norm1", "blocks.1.norm2"},
        "block 1 alone has dead norms in this model. Ask each norm, and name it in full, as in blocks.1.norm2",
    )
    for parameter in sick.parameters():
        parameter.grad = torch.zeros_like(parameter)
    expect(
        ask(sick) == dead,
        "a norm that has a gradient from before, all zeros, passed for alive. Use torch.autograd.grad, or set the "
        "gradients to None first",
    )


class ByColumns(PatchEmbed):
    """Whole patches, but the grid column by column."""

    def forward(self, images: Tensor) -> Tensor:
        return rearrange(self.proj(images), "b d gh gw -> b (gw gh) d")


class TornAtTheEnd(PatchEmbed):
    """The last two patches have exchanged their lower halves."""

    def forward(self, images: Tensor) -> Tensor:
        ph, pw = self.patch_size
        torn = images.clone()
        lower = slice(images.shape[2] - ph // 2, None)
        torn[:, :, lower, -pw:] = images[:, :, lower, -2 * pw : -pw]
        torn[:, :, lower, -2 * pw : -pw] = images[:, :, lower, -pw:]
        return super().forward(torn)


class LastChannelShifted(PatchEmbed):
    """The last channel stands a patch further to the right."""

    def forward(self, images: Tensor) -> Tensor:
        shifted = images.clone()
        shifted[:, -1] = images[:, -1].roll(self.patch_size[1], dims=-1)
        return super().forward(shifted)


def patches_stay_together(embed: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether to change the pixels of one patch changes one token, for every patch."""
    ph, pw = embed.patch_size
    with torch.no_grad():
        before = embed(images)
        for top in range(0, images.shape[2], ph):
            for left in range(0, images.shape[3], pw):
                changed = images.clone()
                changed[:, :, top : top + ph, left : left + pw] += 1
                moved = (embed(changed) - before).abs().amax(dim=(0, 2)) > 1e-4
                if moved.sum() != 1:
                    return False
    return True


@checks(patches_stay_together)
def check_patches_stay_together(fn):
    sizes = ((12, 8), (4, 2), 3, 10)
    tell_apart(
        fn,
        [
            (True, (PatchEmbed(*sizes), _images()), "the healthy convolution was called scrambled"),
            (
                True,
                (PatchEmbed((8, 12), (2, 4), 1, 6), torch.randn(2, 1, 8, 12)),
                "patches of 2×4 pixels were called scrambled, patches of 4×2 not. patch_size is (height, width)",
            ),
            (
                False,
                (ReshapedPatches(*sizes), _images()),
                "a reshape without a permute was not seen. Change all pixels of a patch: one alone always moves one "
                "token, and the shapes are right in any case",
            ),
            (
                False,
                (ReshapedPatches((8, 8), (4, 4), 1, 10), torch.randn(2, 1, 8, 8)),
                "with one channel the reshape was not seen: each patch's pixels go to two tokens there",
            ),
            (
                False,
                (TornAtTheEnd(*sizes), _images()),
                "here only the last two patches have exchanged some pixels. Look at *every* patch",
            ),
            (
                False,
                (LastChannelShifted(*sizes), _images()),
                "here one channel alone goes to the wrong tokens. Change the pixels in *all* channels",
            ),
            (
                True,
                (ByColumns(*sizes), _images()),
                "whole patches in another order were called scrambled. Ask how many tokens move, not which",
            ),
            (
                True,
                (ColoursLastPatches(*sizes), _images()),
                "patches with their colours last were called scrambled. All pixels are in the right token; their order "
                "in it is another question",
            ),
            (
                True,
                (LinearPatchEmbed(*sizes), _images()),
                "a linear layer on flattened patches was called scrambled. Ask what embed does, not what it is made of",
            ),
        ],
        "that each patch goes into one token",
        "that patches are torn apart",
    )


class WithoutBias(PatchEmbed):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) - self.proj.bias


class LastNumberOff(PatchEmbed):
    """One is added to the last number of each token."""

    def forward(self, images: Tensor) -> Tensor:
        tokens = super().forward(images)
        return tokens + torch.eye(tokens.shape[-1])[-1]


class Transposed(PatchEmbed):
    """Each patch is read column by column."""

    def forward(self, images: Tensor) -> Tensor:
        patches = rearrange(images, "b c (gh ph) (gw pw) -> b (gh gw) (c pw ph)", ph=2, pw=2)
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


def embed_matches_conv(embed: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether the tokens are those of the convolution whose weights ``embed.proj`` holds."""
    with torch.no_grad():
        expected = rearrange(embed.proj(images), "b d gh gw -> b (gh gw) d")
        return torch.allclose(embed(images), expected, rtol=1e-4, atol=1e-5)


@checks(embed_matches_conv)
def check_embed_matches_conv(fn):
    sizes = ((12, 8), (4, 2), 3, 10)
    small = ((4, 6), (2, 2), 3, 8)

    def shaken(embed: PatchEmbed) -> PatchEmbed:
        nn.init.normal_(embed.proj.bias)
        return embed

    tell_apart(
        fn,
        [
            (True, (shaken(PatchEmbed(*sizes)), _images()), "the convolution itself was said to differ from it"),
            (
                True,
                (shaken(PatchEmbed((8, 12), (2, 4), 1, 6)), torch.randn(2, 1, 8, 12)),
                "with patches of 2×4 pixels the convolution was said to differ from itself. The grid goes row by row",
            ),
            (
                False,
                (shaken(ColoursLastPatches(*sizes)), _images()),
                "the weights are read in the order (ph pw c), and that was not seen. A constant image, a sum or a "
                "sorted list cannot tell the orders apart: compare token by token, number by number",
            ),
            (False, (shaken(ReshapedPatches(*sizes)), _images()), "scrambled patches were not seen"),
            (
                False,
                (shaken(ByColumns(*sizes)), _images()),
                "the tokens stand column by column, and that was not seen. Compare each with the one in its place",
            ),
            (
                False,
                (shaken(Transposed(*small)), torch.randn(2, 3, 4, 6)),
                "rows and columns within a patch are swapped, and that was not seen. The colours are not all",
            ),
            (False, (shaken(WithoutBias(*sizes)), _images()), "the bias is missing, and that was not seen"),
            (
                False,
                (shaken(TornAtTheEnd(*sizes)), _images()),
                "the last two patches are torn, and that was not seen. Compare all tokens",
            ),
            (
                False,
                (shaken(LastNumberOff(*sizes)), _images()),
                "the last number of each token is off, and that was not seen. Compare all numbers",
            ),
        ],
        "that the tokens are those of the convolution",
        "that they are not",
    )


class NormForShow(ViT):
    """Has a norm, and does not call it."""

    def forward_features(self, images: Tensor) -> Tensor:
        x = self.patch_embed(images)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return self.blocks(x + self.pos_embed)


def ends_with_norm(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether the logits stay, when what the last block returns is made 10 times as large."""
    model.eval()
    with torch.no_grad():
        before = model(images)
        hook = model.blocks[-1].register_forward_hook(lambda block, inputs, out: 10 * out)
        try:
            after = model(images)
        finally:
            hook.remove()
    return torch.allclose(before, after, rtol=1e-3, atol=1e-3)


@checks(ends_with_norm)
def check_ends_with_norm(fn):
    images = _images()
    none = PATIENTS["no final norm"]
    narrow = " (or your tolerance is too narrow for ε and rounding: rtol=1e-3 and atol=1e-3 will do)"
    biased = none.make(CONFIG)
    nn.init.normal_(biased.head.bias, std=3)
    at_the_head = none.make(CONFIG)
    at_the_head.head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 7))
    tell_apart(
        fn,
        [
            (True, (ViT(CONFIG).eval(), images), f"a healthy model was said to lack its final norm{narrow}"),
            (
                True,
                (ViT(MEAN).eval(), images),
                f"a healthy model with mean pooling was said to lack its final norm{narrow}",
            ),
            (
                False,
                (none.make(CONFIG), images),
                "the missing norm was not seen. Make what the last block returns larger: without a norm the logits "
                "must follow",
            ),
            (
                False,
                (NormForShow(CONFIG), images),
                "this model has a LayerNorm called norm and never runs it. Ask what the model does, not what it has",
            ),
            (
                True,
                (at_the_head, images),
                "here the norm is a part of the head, and that will do. Ask what the model does, not what its parts "
                f"are called{narrow}",
            ),
            (
                False,
                (biased, images),
                "a head with large biases hid the missing norm. The logits need not grow in proportion; with a norm "
                "they do not change at all",
            ),
            (
                True,
                (ViT(FORGETFUL).train(), images),
                "a healthy model with dropout was called sick. In training mode no two calls agree: model.eval() first",
            ),
        ],
        "that a norm stands before the head",
        "that none does",
    )


class HalfSliced(nn.Module):
    """Half of the output is healthy; the other half, by default the second, comes from heads that see a slice."""

    def __init__(self, dim: int, num_heads: int, *, sliced_first: bool = False):
        super().__init__()
        layers = [Attention(dim, num_heads), SlicedHeads(dim, num_heads)]
        self.first, self.second = layers[::-1] if sliced_first else layers

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return torch.cat([self.first(x)[..., :half], self.second(x)[..., half:]], dim=-1)


def heads_see_everything(attention: nn.Module, x: Float[Tensor, "b n d"]) -> bool:
    """Whether each number of the output depends on each number of a token."""
    x = x.clone().requires_grad_()
    out = attention(x)
    for i in range(out.shape[-1]):
        (gradient,) = torch.autograd.grad(out[..., i].sum(), x, retain_graph=True)
        if (gradient.abs().amax(dim=(0, 1)) == 0).any():
            return False
    return True


@checks(heads_see_everything)
def check_heads_see_everything(fn):
    x, quiet = torch.randn(2, 5, 12), Attention(12, 3)
    nn.init.uniform_(quiet.proj.weight, 1e-6, 1e-5)
    tell_apart(
        fn,
        [
            (True, (Attention(12, 3), x), "the healthy attention was said to see slices"),
            (
                True,
                (PerHeadAttention(12, 3), x),
                "a loop over heads, each of which sees the whole token, was called sick. A loop is no bug",
            ),
            (
                False,
                (SlicedHeads(12, 3), x),
                "heads that see a slice each were not noticed. That other *tokens* matter, or that some number does, "
                "says nothing: which numbers of a token matter for which number of the output?",
            ),
            (
                False,
                (HalfSliced(12, 3), x),
                "here the first half of the output sees everything and the second does not. Look at every number of "
                "the output",
            ),
            (
                False,
                (HalfSliced(12, 3, sliced_first=True), x),
                "here the second half of the output sees everything and the first does not. Look at every number of "
                "the output",
            ),
            (True, (Attention(12, 1), x), "one head that sees everything was called sick"),
            (
                True,
                (quiet, x),
                "a healthy attention with small weights was called sick. A small influence is not none: compare with 0",
            ),
        ],
        "that every number depends on every number",
        "that heads see a slice",
    )


def scale_is_right(attend: Attend) -> bool:
    """Whether ``attend`` divides by √head_dim, as PyTorch's fused kernel does."""
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    return torch.allclose(attend(q, k, v), F.scaled_dot_product_attention(q, k, v), rtol=1e-3, atol=1e-4)


@checks(scale_is_right)
def check_scale_is_right(fn):
    def scaled(scale: Callable[[Tensor], float]) -> Attend:
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale(q))

    tell_apart(
        fn,
        [
            (
                True,
                (plain_attention,),
                "the formula of chapter 3 was said to have the wrong scale. Two right ways round differently: give "
                "allclose an atol of 1e-5",
            ),
            (
                True,
                (fused_attention,),
                "the fused kernel was said to have the wrong scale. It rounds otherwise: compare with torch.allclose "
                "and an atol of 1e-5",
            ),
            (
                False,
                (attention_scaled_by_dim,),
                "√dim instead of √head_dim was not seen. With one head they are equal: give it several, as "
                "(b, h, n, hd)",
            ),
            (
                False,
                (scaled(lambda q: 1.0),),
                "scores that are not scaled at all were not seen. Where all scores are equal, or too small to matter, "
                "every scale gives the same",
            ),
            (False, (scaled(lambda q: 1 / q.shape[-1]),), "a division by head_dim instead of its root was not seen"),
            (
                False,
                (scaled(lambda q: q.shape[-2] ** -0.5),),
                "a division by the root of the number of *tokens* was not seen. Take n and head_dim different",
            ),
            (
                False,
                (scaled(lambda q: 0.95 * q.shape[-1] ** -0.5),),
                "a scale that is off by a twentieth was not seen. The tolerance is too wide, or the scores too small",
            ),
        ],
        "that scores are divided by √head_dim",
        "that they are not",
    )


class StrictClassToken(ViT):
    """A class token for each row, and no batch of another size."""

    def __init__(self, config: ViTConfig):
        super().__init__(config)
        self.cls_token = nn.Parameter(torch.zeros(5, 1, config.embed_dim))

    def forward_features(self, images: Tensor) -> Tensor:
        x = torch.cat([self.cls_token, self.patch_embed(images)], dim=1)
        return self.norm(self.blocks(x + self.pos_embed))


class PositionsByRow(ViT):
    """Positions along the batch: one for each image, the same for all its tokens."""

    def forward_features(self, images: Tensor) -> Tensor:
        x = self.patch_embed(images)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return self.norm(self.blocks(x + 10 * self.pos_embed[0, : len(x), None]))


def any_batch_size(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether an image gets the same output alone as in any row of the batch."""
    model.eval()
    with torch.no_grad():
        try:
            together = model(images)
            alone = torch.stack([model(image[None])[0] for image in images])
        except RuntimeError:
            return False
    return together.shape == alone.shape and torch.allclose(together, alone, rtol=1e-3, atol=1e-4)


@checks(any_batch_size)
def check_any_batch_size(fn):
    images, by_row = _images(5), PATIENTS["batch-sized class token"].make(CONFIG)
    nn.init.normal_(by_row.cls_token)
    tell_apart(
        fn,
        [
            (True, (ViT(CONFIG).eval(), images), "a healthy model was said to depend on the batch's size or its rows"),
            (
                True,
                (ViT(FORGETFUL).train(), images),
                "a healthy model with dropout was called sick. In training mode no two calls agree: model.eval() first",
            ),
            (
                False,
                (by_row, images),
                "a class token for each row was not seen. It runs with every size: compare what an image gets in one "
                "row with what it gets in another",
            ),
            (
                False,
                (StrictClassToken(CONFIG), images),
                "this model takes the batch that it was built for, and no other. Try another size, and let the "
                "exception be the answer",
            ),
            (
                False,
                (PositionsByRow(CONFIG), images),
                "positions that number the images of the batch were not seen",
            ),
            (
                False,
                (After(ViT(CONFIG), lambda z: z + (torch.arange(len(z)) == 2)[:, None]), images),
                "in this model row 2 alone is treated otherwise. Compare every image of the batch",
            ),
            (
                False,
                (After(ViT(CONFIG), lambda z: z.squeeze(0)), images),
                "this model squeezes its output, so for a batch of one image an axis is lost. Try that size, and look "
                "at the shape",
            ),
            (
                True,
                (After(ViT(CONFIG), lambda z: z + 1e-6 * len(z)), images),
                "rounding was taken for a difference. Another batch size may run another kernel: use torch.allclose",
            ),
        ],
        "that neither row nor batch size matters",
        "that one of them does",
    )


def chosen_without_the_test_set(select: Callable[[History], int]) -> bool:
    """Whether the choice stays, when only the test figures of a history change."""
    choices = set()
    for best in range(6):
        history = [
            {
                "train_loss": 1 - i / 10,
                "val_loss": abs(i - 3) / 10,
                "val_accuracy": 0.9 - abs(i - 3) / 10,
                "test_loss": 1 - 0.5 * (i == best),
                "test_accuracy": 0.4 + 0.5 * (i == best),
            }
            for i in range(6)
        ]
        choices.add(select(history))
    return len(choices) == 1


@checks(chosen_without_the_test_set)
def check_chosen_without_the_test_set(fn):
    def select_by(score: Callable[[dict[str, float]], float]) -> Callable[[History], int]:
        return lambda history: max(range(len(history)), key=lambda i: score(history[i]))

    tell_apart(
        fn,
        [
            (True, (last_pass,), "to report the last pass is no choice, and was called one by the test set"),
            (
                True,
                (best_on_validation,),
                "a choice by validation accuracy is fine, and was called one by the test set",
            ),
            (True, (select_by(lambda entry: -entry["val_loss"]),), "a choice by validation *loss* is fine as well"),
            *(
                (
                    True,
                    (lambda history, settled=settled: settled,),
                    f"pass {settled}, settled before the training, was called a choice by the test set. Compare the "
                    "choices from several histories: does the choice move?",
                )
                for settled in range(5)
            ),
            (
                False,
                (best_on_test,),
                "the best pass on the test set was chosen, and that was not seen. In your history validation and test "
                "must disagree",
            ),
            (False, (select_by(lambda entry: -entry["test_loss"]),), "a choice by test *loss* was not seen"),
            (
                False,
                (select_by(lambda entry: entry["val_accuracy"] + 2 * entry["test_accuracy"]),),
                "a choice by validation and test together was not seen. Change the test figures alone, and a lot: "
                "does the choice move?",
            ),
            (
                False,
                (select_by(lambda entry: entry.get("test_accuracy", 0.0)),),
                "a choice that can do without test figures, and takes them where they are, was not seen. Do not leave "
                "them out: change them",
            ),
            (
                False,
                (lambda history: len(history) - 3 + best_on_test(history[-3:]),),
                "this one takes the best of the last three passes on the test set. Let the best pass be each one in "
                "turn",
            ),
            (
                False,
                (lambda history: 1 + best_on_test(history[1:-1]),),
                "this one takes the best pass on the test set, but never the first or the last. Let the best pass be "
                "each one in turn",
            ),
        ],
        "that the test set has no say",
        "that it has one",
    )
