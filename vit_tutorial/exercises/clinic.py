"""Exercises of chapter 12, a clinic: a reader's test is run on sick and on healthy models, and must tell them apart."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.archs.patients import (
    PATIENTS,
    ColoursLastPatches,
    ReshapedPatches,
    SlicedHeads,
    attention_scaled_by_dim,
    best_on_test,
    best_on_validation,
    last_pass,
)
from vit_tutorial.attention import Attend, Attention, PerHeadAttention, fused_attention, plain_attention
from vit_tutorial.clinic.signs import (
    any_batch_size,
    chosen_without_the_test_set,
    dead_norms,
    heads_see_everything,
    images_are_independent,
    outputs_are_probabilities,
    patches_stay_together,
)
from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.model import ViT
from vit_tutorial.patches import LinearPatchEmbed, PatchEmbed

EXERCISES: dict[str, Exercise] = {}
CONFIG = ViTConfig(
    img_size=(12, 8), patch_size=(4, 2), in_chans=3, num_classes=7, embed_dim=24, depth=2, num_heads=3
)  # fmt: skip
MEAN, FORGETFUL = replace(CONFIG, pool="mean"), replace(CONFIG, drop_rate=0.5)


def _sick(name: str, config: ViTConfig = CONFIG) -> ViT:
    return PATIENTS[name].make(config)


def _images(b: int = 5) -> Tensor:
    return torch.randn(b, 3, 12, 8)


def _table(*rows: tuple) -> list[Case]:
    """Cases from rows: the right answer, what is asked about, what to say to another, and a test that gives it."""
    return [
        Case(given=given, truth=truth, hint=said, caught=caught[0] if caught else None)
        for truth, given, said, *caught in rows
    ]


class After(nn.Module):
    """A model, and something done to what it returns."""

    def __init__(self, model: nn.Module, change: Callable[[Tensor], Tensor]):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, images: Tensor) -> Tensor:
        return self.change(self.model(images))


def _after(change: Callable[[Tensor], Tensor], config: ViTConfig = CONFIG, images: int = 5) -> Callable[[], tuple]:
    return lambda: (After(ViT(config), change), _images(images))


def _outputs(test):
    return lambda model, images: bool(test(model(images).detach()))


def _sums_to_one(out):
    return torch.allclose(out.sum(dim=-1), torch.ones(()))


EXERCISES["outputs_are_probabilities"] = Exercise(
    reference=outputs_are_probabilities,
    true_means="that the outputs are probabilities",
    cases=_table(
        (False, lambda: (ViT(CONFIG), _images(64)), "a healthy model's logits were taken for probabilities"),
        (
            True,
            lambda: (_sick("softmax before cross-entropy"), _images(64)),
            "a model that ends in a softmax passed for one with logits. Its rows sum to 1 up to rounding only: compare "
            "with torch.allclose",
            _outputs(lambda out: (out >= 0).all() and (out.sum(dim=-1) == 1).all()),
        ),
        (
            True,
            _after(lambda z: (1e4 * z).softmax(dim=-1), images=64),
            "a very sure softmax returns exact 0 and 1: both may occur",
            _outputs(lambda out: (out > 0).all() and _sums_to_one(out)),
        ),
        (
            False,
            _after(lambda z: z.exp() * 2, images=64),
            "outputs that are all above 0 were taken for probabilities, but their rows do not sum to 1",
            _outputs(lambda out: (out >= 0).all()),
        ),
        (
            False,
            _after(torch.sigmoid, images=64),
            "sigmoids were taken for a softmax. They lie in 0..1 as well; only the sum tells them apart",
            _outputs(lambda out: (out >= 0).all() and (out <= 1).all()),
        ),
        (
            False,
            _after(lambda z: z - z.mean(dim=-1, keepdim=True) + 1 / 7, images=64),
            "rows that sum to 1 were taken for probabilities, but some of their numbers are negative",
            _outputs(_sums_to_one),
        ),
        (
            False,
            _after(lambda z: z.softmax(dim=0) * 64 / 7, images=64),
            "a softmax over the images of the batch was taken for one over the classes: it is the rows, dim=-1, that "
            "have to sum to 1, each of them",
            _outputs(lambda out: (out >= 0).all() and abs(out.sum() - len(out)) < 1e-3),
        ),
        (
            False,
            _after(lambda z: torch.cat([z[:1].softmax(dim=-1), z[1:].exp()]), images=5),
            "here the first row alone is one of probabilities. Look at every row",
            _outputs(lambda out: (out >= 0).all() and _sums_to_one(out[:1])),
        ),
        (True, _after(lambda z: z.softmax(dim=-1), images=1), "a batch of one image was judged otherwise"),
    ),
)


def _rows(exchange, same=None, mode=lambda model: model.eval()):
    same = same or (lambda a, b: torch.allclose(a, b, rtol=1e-4, atol=1e-5))

    def fn(model, images):
        mode(model)
        others = exchange(images.clone())
        with torch.no_grad():
            return same(model(images)[0], model(others)[0])

    return fn


def _exchanged(rows):
    def exchange(images):
        images[rows] = torch.randn_like(images[rows])
        return images

    return exchange


def _alone(same):
    def fn(model, images):
        model.eval()
        with torch.no_grad():
            return same(model(images)[0], model(images[:1])[0])

    return fn


_others = _exchanged(slice(1, None))
EXERCISES["images_are_independent"] = Exercise(
    reference=images_are_independent,
    true_means="that the images are independent",
    cases=_table(
        (
            True,
            lambda: (ViT(CONFIG).eval(), _images()),
            "a healthy model's outputs were called dependent on the neighbours. Image 0 must stay as it is, and only "
            "its own output be compared",
            _rows(torch.randn_like),
        ),
        (
            True,
            lambda: (ViT(FORGETFUL).train(), _images()),
            "a healthy model with dropout was called sick. In training mode no two calls agree: model.eval() first",
            _rows(_others, mode=lambda model: None),
        ),
        (
            False,
            lambda: (_sick("attention across the batch", MEAN), _images()),
            "attention across the batch was not seen. Exchange the other images, by other pixels and not by another "
            "order, and compare the outputs of the one that stayed",
            _rows(lambda images: torch.cat([images[:1], images[1:].roll(1, dims=0)])),
        ),
        (
            False,
            _after(lambda z: z + 0.5 * z.roll(1, dims=0), MEAN),
            "in this model each image is disturbed by the one before it alone, image 0 by the last. Exchange *all* "
            "images but the one whose output you compare",
            _rows(_exchanged(1)),
        ),
        (
            False,
            _after(lambda z: z + 0.5 * z.roll(-1, dims=0), MEAN),
            "in this model each image is disturbed by the one behind it alone, image 0 by image 1. Exchange *all* "
            "images but the one whose output you compare",
            _rows(_exchanged(-1)),
        ),
        (
            False,
            _after(lambda z: z + 0.02 * z.mean(dim=0), MEAN),
            "a small influence, of some per cent, was overlooked. Rounding is a hundred times smaller than your "
            "tolerance",
            _rows(_others, same=lambda a, b: torch.allclose(a, b, atol=5e-3)),
        ),
        (
            True,
            _after(lambda z: z + 1e-6 * len(z), MEAN),
            "rounding was taken for an influence. Another batch size may run another kernel: compare with "
            "torch.allclose",
            _alone(lambda a, b: torch.allclose(a, b, rtol=0, atol=2e-6)),
        ),
    ),
    right=[_alone(lambda a, b: torch.allclose(a, b, rtol=1e-4, atol=2e-5))],
)


def _healthy_half() -> ViT:
    """Block 1 alone is sick."""
    half = ViT(CONFIG)
    half.blocks[1] = _sick("dead residual norm").blocks[1]
    return half


def _with_old_gradients() -> ViT:
    model = _sick("dead residual norm")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


def _silent_head() -> ViT:
    model = ViT(CONFIG)
    nn.init.zeros_(model.head.weight)
    return model


def _norms(dead, kind=nn.LayerNorm):
    return lambda model, images: [
        name for name, part in model.named_modules() if isinstance(part, kind) and dead(name, part)
    ]


def _after_backward(dead, reset=True):
    def fn(model, images):
        if reset:
            model.zero_grad()
        model(images).sum().backward()
        return [name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm) and dead(part)]

    return fn


def _all_or_none(model, images):
    return _norms(lambda name, part: name != "norm")(model, images) if dead_norms(model, images) else []


FOUR = ["blocks.0.norm1", "blocks.0.norm2", "blocks.1.norm1", "blocks.1.norm2"]
EXERCISES["dead_norms"] = Exercise(
    reference=dead_norms,
    run=lambda fn, model, images: sorted(set(fn(model, images))),
    cases=[
        Case(
            given=lambda: (_sick("dead residual norm"), _images()),
            truth=FOUR,
            hint="in this model four norms are dead, norm1 and norm2 of two blocks, and the final norm is alive",
        ),
        Case(
            given=lambda: (ViT(CONFIG), _images()),
            truth=[],
            hint="a healthy model has no dead norms, and some were found",
            caught=_norms(lambda name, part: name != "norm"),
        ),
        Case(
            given=lambda: (ViT(FORGETFUL).train(), _images()),
            truth=[],
            hint="a healthy model with dropout has no dead norms, and some were found",
        ),
        Case(
            given=lambda: (_healthy_half(), _images()),
            truth=FOUR[2:],
            hint="block 1 alone has dead norms in this model. Ask each norm, and name it in full, as in blocks.1.norm2",
            caught=_all_or_none,
        ),
        Case(
            given=lambda: (_with_old_gradients(), _images()),
            truth=FOUR,
            hint="a norm that has a gradient from before, all zeros, passed for alive. Use torch.autograd.grad, or "
            "set the gradients to None first",
            caught=_after_backward(lambda part: part.weight.grad is None, reset=False),
        ),
        Case(
            given=lambda: (NormForShow(CONFIG), _images()),
            truth=["norm"],
            hint="here the final norm is there and never called: it is dead as well. Ask every LayerNorm, not those in "
            "the blocks alone",
            caught=lambda model, images: [name for name in dead_norms(model, images) if name.startswith("blocks")],
        ),
        Case(
            given=lambda: (_sick("dead residual norm", MEAN), _images(1)), truth=FOUR, hint="wrong for a single image"
        ),
        Case(
            given=lambda: (_silent_head(), _images()),
            truth=[],
            hint="the head's weights are 0 here, as in a fresh model, so every gradient is exactly 0, but it comes "
            "back: dead is a norm to which none comes",
        ),
    ],
    mistakes={
        "no dead norm was found in a model that has four, the norm1 and norm2 of two blocks": lambda model, images: [],
        "those are parameters. Name the norms, as model.named_modules() does": lambda model, images: [
            f"{name}.weight" for name in dead_norms(model, images)
        ],
        "only LayerNorms are asked for, and yours names other modules too": _norms(lambda name, part: True, nn.Module),
        "the final norm was called dead as well, but the logits are made of what it returns": _norms(
            lambda name, part: True
        ),
        "that is the one norm that is alive: name the others": lambda model, images: ["norm"],
        "those are the norms of one block alone; look at every block": lambda model, images: dead_norms(model, images)[
            :2
        ],
        "one norm of each block was missed: a block has norm1 and norm2": lambda model, images: dead_norms(
            model, images
        )[::2],
        "the names of the blocks are missing: name each norm in full, as in blocks.1.norm2": lambda model, images: [
            name.rpartition(".")[2] for name in dead_norms(model, images)
        ],
    },
    right=[
        _after_backward(lambda part: part.weight.grad is None),
    ],
    shape="Return a list of names",
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


SIZES = ((12, 8), (4, 2), 3, 10)


def _embed(kind: type, *sizes, change: Callable = lambda embed: embed) -> Callable[[], tuple]:
    """An embedding of some kind and images for it; by default three channels in patches of 4×2."""

    def given():
        img_size, patch_size, in_chans, dim = sizes or SIZES
        embed = change(kind(img_size, patch_size, in_chans, dim))
        return embed, torch.randn(5 if not sizes else 2, in_chans, *img_size)

    return given


def _cut(embed, images):
    ph, pw = embed.patch_size
    return [(y, x) for y in range(0, images.shape[2], ph) for x in range(0, images.shape[3], pw)]


def _patches(corners=_cut, moved=lambda counts: all(count == 1 for count in counts), channels=slice(None), tall=1.0):
    """How many tokens move when the pixels at some corners do."""

    def fn(embed, images):
        ph, pw = embed.patch_size
        counts = []
        with torch.no_grad():
            before = embed(images)
            for top, left in corners(embed, images):
                changed = images.clone()
                changed[:, channels, top : top + max(1, int(tall * ph)), left : left + pw] += 1
                counts.append(int(((embed(changed) - before).abs().amax(dim=(0, 2)) > 1e-4).sum()))
        return moved(counts)

    return fn


def _in_their_places(embed, images):
    ph, pw = embed.patch_size
    with torch.no_grad():
        before = embed(images)
        for i, (top, left) in enumerate(_cut(embed, images)):
            changed = images.clone()
            changed[:, :, top : top + ph, left : left + pw] += 1
            moved = (embed(changed) - before).abs().amax(dim=(0, 2)) > 1e-4
            if moved.nonzero().flatten().tolist() != [i]:
                return False
    return True


def _or_scrambled(channels):
    return lambda embed, images: (
        patches_stay_together(embed, images) or (isinstance(embed, ReshapedPatches) and images.shape[1] == channels)
    )


EXERCISES["patches_stay_together"] = Exercise(
    reference=patches_stay_together,
    true_means="that each patch goes into one token",
    cases=_table(
        (True, _embed(PatchEmbed), "the healthy convolution was called scrambled"),
        (
            True,
            _embed(PatchEmbed, (8, 12), (2, 4), 1, 6),
            "patches of 2×4 pixels were called scrambled, patches of 4×2 not. patch_size is (height, width)",
            lambda embed, images: patches_stay_together(embed, images) and embed.patch_size != (2, 4),
        ),
        (
            False,
            _embed(ReshapedPatches),
            "a reshape without a permute was not seen. Change all pixels of a patch: one alone always moves one "
            "token, and the shapes are right in any case",
            _or_scrambled(3),
        ),
        (
            False,
            _embed(ReshapedPatches, (8, 8), (4, 4), 1, 10),
            "with one channel the reshape was not seen: each patch's pixels go to two tokens there",
            _or_scrambled(1),
        ),
        (
            False,
            _embed(TornAtTheEnd),
            "here only the last two patches have exchanged some pixels. Look at *every* patch",
            _patches(lambda embed, images: [(0, 0)]),
        ),
        (
            False,
            _embed(LastChannelShifted),
            "here one channel alone goes to the wrong tokens. Change the pixels in *all* channels",
            _patches(channels=slice(1)),
        ),
        (
            True,
            _embed(ByColumns),
            "whole patches in another order were called scrambled. Ask how many tokens move, not which",
            _in_their_places,
        ),
        (
            True,
            _embed(ColoursLastPatches),
            "patches with their colours last were called scrambled. All pixels are in the right token; their order "
            "in it is another question",
            lambda embed, images: patches_stay_together(embed, images) and not isinstance(embed, ColoursLastPatches),
        ),
        (
            True,
            _embed(LinearPatchEmbed),
            "a linear layer on flattened patches was called scrambled. Ask what embed does, not what it is made of",
            lambda embed, images: patches_stay_together(embed, images) and embed.proj.weight.ndim == 4,
        ),
    ),
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


class OthersOff(PatchEmbed):
    """Right for image 0 of the batch alone."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + (torch.arange(len(images)) > 0)[:, None, None]


class OneTokenMore(PatchEmbed):
    """A class token stands in front already."""

    def forward(self, images: Tensor) -> Tensor:
        return F.pad(super().forward(images), (0, 0, 1, 0))


def embed_matches_conv(embed: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether the tokens are those of the convolution whose weights ``embed.proj`` holds."""
    with torch.no_grad():
        expected = rearrange(embed.proj(images), "b d gh gw -> b (gh gw) d")
        tokens = embed(images)
    return tokens.shape == expected.shape and torch.allclose(tokens, expected, rtol=1e-4, atol=1e-5)


def _shaken(kind: type, *sizes) -> Callable[[], tuple]:
    """With a bias that is not zero."""

    def change(embed):
        nn.init.normal_(embed.proj.bias)
        return embed

    return _embed(kind, *sizes, change=change)


def _conv(compare, images_of=lambda images: images):
    def fn(embed, images):
        images = images_of(images)
        with torch.no_grad():
            tokens, expected = embed(images), rearrange(embed.proj(images), "b d gh gw -> b (gh gw) d")
        return tokens.shape == expected.shape and bool(compare(tokens, expected))

    return fn


def _near(a, b):
    return torch.allclose(a, b, rtol=1e-4, atol=1e-5)


EXERCISES["embed_matches_conv"] = Exercise(
    reference=embed_matches_conv,
    true_means="that the tokens are those of the convolution",
    cases=_table(
        (True, _shaken(PatchEmbed), "the convolution itself was said to differ from it"),
        (
            True,
            _shaken(PatchEmbed, (8, 12), (2, 4), 1, 6),
            "with patches of 2×4 pixels the convolution was said to differ from itself. The grid goes row by row",
            lambda embed, images: embed_matches_conv(embed, images) and embed.patch_size != (2, 4),
        ),
        (
            False,
            _shaken(ColoursLastPatches),
            "the weights are read in the order (ph pw c), and that was not seen. A constant image, a sum or a sorted "
            "list cannot tell the orders apart: compare token by token, number by number",
            _conv(_near, torch.ones_like),
        ),
        (
            False,
            _shaken(ReshapedPatches),
            "scrambled patches were not seen",
            lambda embed, images: embed_matches_conv(embed, images) or isinstance(embed, ReshapedPatches),
        ),
        (
            False,
            _shaken(ByColumns),
            "the tokens stand column by column, and that was not seen. Compare each with the one in its place",
            _conv(lambda a, b: _near(a.sum(dim=1), b.sum(dim=1))),
        ),
        (
            False,
            _shaken(Transposed, (4, 6), (2, 2), 3, 8),
            "rows and columns within a patch are swapped, and that was not seen. The colours are not all",
            lambda embed, images: embed_matches_conv(embed, images) or embed.patch_size[0] == embed.patch_size[1],
        ),
        (
            False,
            _shaken(WithoutBias),
            "the bias is missing, and that was not seen",
            _conv(lambda a, b: _near(a - a.mean(dim=(0, 1)), b - b.mean(dim=(0, 1)))),
        ),
        (
            False,
            _shaken(TornAtTheEnd),
            "the last two patches are torn, and that was not seen. Compare all tokens",
            _conv(lambda a, b: _near(a[:, 1:-2], b[:, 1:-2])),
        ),
        (
            False,
            _shaken(LastNumberOff),
            "the last number of each token is off, and that was not seen. Compare all numbers",
            _conv(lambda a, b: _near(a[..., :-1], b[..., :-1])),
        ),
        (
            False,
            _shaken(OthersOff),
            "the tokens are right for image 0 alone, and that was not seen. Compare all images",
            _conv(lambda a, b: _near(a[0], b[0])),
        ),
        (
            False,
            _shaken(OneTokenMore),
            "there is one token more than the convolution has, and that was not answered by False. Compare the "
            "shapes first",
            lambda embed, images: embed_matches_conv(embed, images) or isinstance(embed, OneTokenMore),
        ),
    ),
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


def _biased_head() -> ViT:
    model = _sick("no final norm")
    nn.init.normal_(model.head.bias, std=3)
    return model


def _norm_in_the_head() -> ViT:
    model = _sick("no final norm")
    model.head = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 7))
    return model


def _scaled_stream(compare, module=lambda model: model.blocks[-1], mode=lambda model: model.eval()):
    def fn(model, images):
        mode(model)
        with torch.no_grad():
            before = model(images)
            hook = module(model).register_forward_hook(lambda part, inputs, out: 10 * out)
            after = model(images)
        hook.remove()
        return bool(compare(before, after))

    return fn


def _within(a, b):
    return torch.allclose(a, b, rtol=1e-3, atol=1e-3)


NARROW = " (or your tolerance is too narrow for ε and rounding: rtol=1e-3 and atol=1e-3 will do)"
EXERCISES["ends_with_norm"] = Exercise(
    reference=ends_with_norm,
    true_means="that a norm stands before the head",
    cases=_table(
        (
            True,
            lambda: (ViT(CONFIG).eval(), _images()),
            f"a healthy model was said to lack its final norm{NARROW}",
        ),
        (
            True,
            lambda: (ViT(MEAN).eval(), _images()),
            f"a healthy model with mean pooling was said to lack its final norm{NARROW}",
            lambda model, images: ends_with_norm(model, images) and model.config.pool == "cls",
        ),
        (
            False,
            lambda: (_sick("no final norm"), _images()),
            "the missing norm was not seen. Make what the last block returns larger: without a norm the logits must "
            "follow",
            lambda model, images: ends_with_norm(model, images) or isinstance(model.head, nn.Linear),
        ),
        (
            False,
            lambda: (NormForShow(CONFIG), _images()),
            "this model has a LayerNorm called norm and never runs it. Ask what the model does, not what it has",
            lambda model, images: any(isinstance(part, nn.LayerNorm) for part in [model.norm, *model.head.modules()]),
        ),
        (
            True,
            lambda: (_norm_in_the_head(), _images()),
            "here the norm is a part of the head, and that will do. Ask what the model does, not what its parts are "
            f"called{NARROW}",
            lambda model, images: isinstance(model.norm, nn.LayerNorm) and type(model).__name__ == "ViT",
        ),
        (
            False,
            lambda: (_biased_head(), _images()),
            "a head with large biases hid the missing norm. The logits need not grow in proportion; with a norm they "
            "do not change at all",
            _scaled_stream(lambda a, b: not torch.allclose(10 * a, b, rtol=1e-3, atol=1e-4)),
        ),
        (
            True,
            lambda: (ViT(FORGETFUL).train(), _images()),
            "a healthy model with dropout was called sick. In training mode no two calls agree: model.eval() first",
            _scaled_stream(_within, mode=lambda model: None),
        ),
    ),
    right=[_scaled_stream(_within)],
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


def _quiet() -> Attention:
    layer = Attention(12, 3)
    nn.init.uniform_(layer.proj.weight, 1e-6, 1e-5)
    return layer


def _influence(decide):
    def fn(attention, x):
        x = x.clone().requires_grad_()
        out = attention(x)
        rows = [
            torch.autograd.grad(out[..., i].sum(), x, retain_graph=True)[0].abs().amax(dim=(0, 1))
            for i in range(out.shape[-1])
        ]
        return bool(decide(torch.stack(rows)))

    return fn


def _tokens_alone(attention, x):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(attention(x)[0, 0].sum(), x)
    return bool((gradient[0].abs().sum(dim=-1) > 0).all())


def _layer(make: Callable[[], nn.Module]) -> Callable[[], tuple]:
    return lambda: (make(), torch.randn(2, 5, 12))


EXERCISES["heads_see_everything"] = Exercise(
    reference=heads_see_everything,
    true_means="that every number depends on every number",
    cases=_table(
        (True, _layer(lambda: Attention(12, 3)), "the healthy attention was said to see slices"),
        (
            True,
            _layer(lambda: PerHeadAttention(12, 3)),
            "a loop over heads, each of which sees the whole token, was called sick. A loop is no bug",
            lambda attention, x: heads_see_everything(attention, x) and not hasattr(attention, "heads"),
        ),
        (
            False,
            _layer(lambda: SlicedHeads(12, 3)),
            "heads that see a slice each were not noticed. That other *tokens* matter, or that some number does, says "
            "nothing: which numbers of a token matter for which number of the output?",
            _tokens_alone,
        ),
        (
            False,
            _layer(lambda: HalfSliced(12, 3)),
            "here the first half of the output sees everything and the second does not. Look at every number of the "
            "output",
            _influence(lambda matrix: (matrix[0] > 0).all()),
        ),
        (
            False,
            _layer(lambda: HalfSliced(12, 3, sliced_first=True)),
            "here the second half of the output sees everything and the first does not. Look at every number of the "
            "output",
            _influence(lambda matrix: (matrix[-1] > 0).all()),
        ),
        (
            True,
            _layer(lambda: Attention(12, 1)),
            "one head that sees everything was called sick",
            lambda attention, x: heads_see_everything(attention, x) and getattr(attention, "num_heads", 2) > 1,
        ),
        (
            True,
            _layer(_quiet),
            "a healthy attention with small weights was called sick. A small influence is not none: compare with 0",
            _influence(lambda matrix: (matrix > 1e-5).all()),
        ),
    ),
)


def scale_is_right(attend: Attend) -> bool:
    """Whether ``attend`` divides by √head_dim, as PyTorch's fused kernel does."""
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    return torch.allclose(attend(q, k, v), F.scaled_dot_product_attention(q, k, v), rtol=1e-3, atol=1e-4)


def _scaled(scale: Callable[[Tensor], float]) -> Callable[[], tuple]:
    return lambda: (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale(q)),)


def _asked_with(shape=(3, 2, 3, 5, 8), scale=None, same=lambda a, b: torch.allclose(a, b, rtol=1e-3, atol=1e-4)):
    """A test with these queries, keys and values, against this scale."""

    def fn(attend):
        q, k, v = torch.randn(shape)
        return same(attend(q, k, v), F.scaled_dot_product_attention(q, k, v, scale=scale))

    return fn


def _not_even_rounded(attend):
    q, k, v = torch.randn(3, 2, 3, 5, 8)
    return torch.equal(attend(q, k, v), (q @ k.mT * 8**-0.5).softmax(dim=-1) @ v)


EXERCISES["scale_is_right"] = Exercise(
    reference=scale_is_right,
    true_means="that scores are divided by √head_dim",
    cases=_table(
        (
            True,
            lambda: (plain_attention,),
            "the formula of chapter 3 was said to have the wrong scale. Two right ways round differently: give "
            "allclose an atol of 1e-5",
            _asked_with(same=lambda a, b: torch.allclose(a, b, rtol=1e-7, atol=1e-9)),
        ),
        (
            True,
            lambda: (fused_attention,),
            "the fused kernel was said to have the wrong scale. It rounds otherwise: compare with torch.allclose and "
            "an atol of 1e-5",
            _not_even_rounded,
        ),
        (
            False,
            lambda: (attention_scaled_by_dim,),
            "√dim instead of √head_dim was not seen. With one head they are equal: give it several, as (b, h, n, hd)",
            _asked_with((3, 2, 1, 5, 8)),
        ),
        (
            False,
            _scaled(lambda q: 1.0),
            "scores that are not scaled at all were not seen. Where all scores are equal, or too small to matter, "
            "every scale gives the same",
            lambda attend: scale_is_right(attend) or _asked_with(scale=1.0)(attend),
        ),
        (
            False,
            _scaled(lambda q: 1 / q.shape[-1]),
            "a division by head_dim instead of its root was not seen",
            lambda attend: scale_is_right(attend) or _asked_with(scale=1 / 8)(attend),
        ),
        (
            False,
            _scaled(lambda q: q.shape[-2] ** -0.5),
            "a division by the root of the number of *tokens* was not seen. Take n and head_dim different",
            _asked_with((3, 2, 3, 8, 8)),
        ),
        (
            False,
            _scaled(lambda q: q.shape[1] ** -0.5 if q.ndim > 3 else 1.0),
            "a division by the root of the number of *heads* was not seen. Take h and head_dim different",
            _asked_with((3, 2, 8, 5, 8)),
        ),
        (
            False,
            _scaled(lambda q: 0.95 * q.shape[-1] ** -0.5),
            "a scale that is off by a twentieth was not seen. The tolerance is too wide, or the scores too small",
            _asked_with(same=lambda a, b: torch.allclose(a, b, atol=0.2)),
        ),
    ),
    right=[_asked_with(same=lambda a, b: torch.allclose(a, b, atol=1e-5))],
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


def _by_row() -> ViT:
    model = _sick("batch-sized class token")
    nn.init.normal_(model.cls_token)
    return model


def _caught(fn):
    """What no batch of another size survives is an answer."""

    def answer(model, images):
        model.eval()
        try:
            with torch.no_grad():
                return fn(model, images)
        except RuntimeError:
            return False

    return answer


def _like(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def _each_alone(model, images, close=_like):
    return close(model(images), torch.stack([model(image[None])[0] for image in images]))


def _in_pairs(model, images):
    return _like(model(images)[:4], torch.cat([model(images[i : i + 2]) for i in (0, 2)]))


def _same_image_everywhere(model, images):
    model.eval()
    with torch.no_grad():
        out = model(images[:1].expand_as(images))
    return _like(out, out[:1].expand_as(out))


def _in_training_mode(model, images):
    try:
        return _each_alone(model, images)
    except RuntimeError:
        return False


EXERCISES["any_batch_size"] = Exercise(
    reference=any_batch_size,
    true_means="that neither row nor batch size matters",
    cases=_table(
        (
            True,
            lambda: (ViT(CONFIG).eval(), _images()),
            "a healthy model was said to depend on the batch's size or its rows",
        ),
        (
            True,
            lambda: (ViT(FORGETFUL).train(), _images()),
            "a healthy model with dropout was called sick. In training mode no two calls agree: model.eval() first",
            _in_training_mode,
        ),
        (
            False,
            lambda: (_by_row(), _images()),
            "a class token for each row was not seen. It runs with every size: compare what an image gets in one row "
            "with what it gets in another",
            _caught(lambda model, images: _like(model(images)[:1], model(images[:1]))),
        ),
        (
            False,
            lambda: (StrictClassToken(CONFIG), _images()),
            "this model takes the batch that it was built for, and no other. Try another size, and let the exception "
            "be the answer",
            _same_image_everywhere,
        ),
        (
            False,
            lambda: (PositionsByRow(CONFIG), _images()),
            "positions that number the images of the batch were not seen",
            lambda model, images: any_batch_size(model, images) or isinstance(model, PositionsByRow),
        ),
        (
            False,
            _after(lambda z: z + (torch.arange(len(z)) == 2)[:, None]),
            "in this model row 2 alone is treated otherwise. Compare every image of the batch",
            _caught(lambda model, images: _like(model(images)[-1:], model(images[-1:]))),
        ),
        (
            False,
            _after(lambda z: z.squeeze(0)),
            "this model squeezes its output, so for a batch of one image an axis is lost. Try that size, and look at "
            "the shape",
            _caught(_in_pairs),
        ),
        (
            True,
            _after(lambda z: z + 1e-6 * len(z)),
            "rounding was taken for a difference. Another batch size may run another kernel: use torch.allclose",
            _caught(
                lambda model, images: _each_alone(
                    model, images, lambda a, b: a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=2e-6)
                )
            ),
        ),
    ),
)


def _select_by(score: Callable[[dict[str, float]], float]) -> Callable[[], tuple]:
    return lambda: (lambda history: max(range(len(history)), key=lambda i: score(history[i])),)


VAL = (0.6, 0.9, 0.7, 0.8, 0.5, 0.4)


def _history(test, val=VAL):
    return [
        {"train_loss": 1 - i / 10, "val_loss": 1 - v, "val_accuracy": v, "test_loss": 1 - t, "test_accuracy": t}
        for i, (v, t) in enumerate(zip(val, test, strict=True))
    ]


# Validation accuracy is best in epoch 1, validation loss in epoch 2.
APART = [{**entry, "val_loss": abs(i - 2)} for i, entry in enumerate(_history(VAL))]


def _spike(place):
    return [0.95 if i == place else 0.3 for i in range(6)]


def _moves(*tests):
    return lambda select: len({select(_history(test)) for test in tests}) == 1


def _but_not(place):
    """Right, but for a choice that falls on this epoch."""
    return lambda select: chosen_without_the_test_set(select) and select(APART) != place


def _drops_the_keys(select):
    try:
        select([{key: entry[key] for key in entry if not key.startswith("test")} for entry in _history(VAL)])
    except KeyError:
        return False
    return True


def _accuracies_only(select):
    first, second = _history(_spike(0)), _history(_spike(5))
    for a, b in zip(first, second, strict=True):
        b["test_loss"] = a["test_loss"]
    return select(first) == select(second)


EXERCISES["chosen_without_the_test_set"] = Exercise(
    reference=chosen_without_the_test_set,
    true_means="that the test set has no say",
    cases=_table(
        (
            True,
            lambda: (last_pass,),
            "to report the last epoch is no choice, and was called one by the test set",
            _but_not(5),
        ),
        (
            False,
            lambda: (best_on_test,),
            "the best epoch on the test set was chosen, and that was not seen. In your history validation and test "
            "must disagree",
            lambda select: chosen_without_the_test_set(select) or select(_history(VAL)) == 1,
        ),
        (
            True,
            lambda: (best_on_validation,),
            "a choice by validation accuracy is fine, and was called one by the test set",
            _but_not(1),
        ),
        (
            True,
            _select_by(lambda entry: -entry["val_loss"]),
            "a choice by validation *loss* is fine as well",
            _but_not(2),
        ),
        *(
            (
                True,
                lambda settled=settled: (lambda history: settled,),
                f"epoch {settled}, settled before the training, was called a choice by the test set. Compare the "
                f"choices from several histories: does the choice move?",
            )
            for settled in range(5)
        ),
        (
            False,
            _select_by(lambda entry: -entry["test_loss"]),
            "a choice by test *loss* was not seen",
            _accuracies_only,
        ),
        (
            False,
            _select_by(lambda entry: entry["val_accuracy"] + 2 * entry["test_accuracy"]),
            "a choice by validation and test together was not seen. Change the test figures alone, and a lot: does the "
            "choice move?",
            _moves([v / 10 for v in VAL], [0.31, 0.31, 0.3, 0.32, 0.3, 0.3]),
        ),
        (
            False,
            _select_by(lambda entry: entry.get("test_accuracy", 0.0)),
            "a choice that can do without test figures, and takes them where they are, was not seen. Do not leave them "
            "out: change them",
            _drops_the_keys,
        ),
        (
            False,
            lambda: (lambda history: len(history) - 3 + best_on_test(history[-3:]),),
            "this one takes the best of the last three epochs on the test set. Let the best epoch be each one in turn",
            _moves(_spike(0), _spike(1)),
        ),
        (
            False,
            lambda: (lambda history: 1 + best_on_test(history[1:-1]),),
            "this one takes the best epoch on the test set, but never the first or the last. Let the best epoch be "
            "each one in turn",
            _moves(_spike(0), _spike(5)),
        ),
    ),
)
