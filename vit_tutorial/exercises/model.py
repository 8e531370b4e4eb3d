"""Exercises of chapter 5: the whole Vision Transformer."""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.guard import CheckFailed, same

EXERCISES: dict[str, Exercise] = {}


def forward_features(model: nn.Module, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
    """Images to the normalised tokens of the last block, from ``model``'s parts in the order of equations 1 to 4."""
    x = model.patch_embed(images)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x], dim=1)
    return model.norm(model.blocks(x + model.pos_embed))


class Model(nn.Module):
    """The parts of a ViT made of torch's own layers, every one with random parameters, so that each is felt."""

    def __init__(self, img_size: tuple[int, int], patch: int, dim: int, depth: int, num_classes: int):
        super().__init__()
        num_patches = (img_size[0] // patch) * (img_size[1] // patch)
        conv = nn.Conv2d(2, dim, kernel_size=patch, stride=patch)
        self.patch_embed = nn.Sequential(conv, nn.Flatten(2), _Transpose())
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.blocks = nn.Sequential(*(_MixTokens(num_patches + 1, dim) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)


class _Transpose(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class _MixTokens(nn.Module):
    """Stands for an encoder block. It knows which token is which, so any change of their order is seen."""

    def __init__(self, num_tokens: int, dim: int):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(num_tokens, num_tokens))
        self.project = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        return x + torch.tanh(self.mix[:n, :n] @ self.project(x))


def _cat(model, x, last=False):
    cls = model.cls_token.expand(len(x), -1, -1)
    return torch.cat([x, cls] if last else [cls, x], dim=1)


def _features(
    tokens=lambda model, x: _cat(model, x) + model.pos_embed, finish=lambda model, x: model.norm(model.blocks(x))
):
    """forward_features from how the tokens are made of the patches, and what is done to them."""
    return lambda model, images: finish(model, tokens(model, model.patch_embed(images)))


def _block_by_block(model, x, keep=True):
    for block in model.blocks:
        y = block(x)
        x = y if keep else x
    return model.norm(y)


def _normed_each_time(model, x):
    for block in model.blocks:
        x = model.norm(block(x))
    return x


def _norms_the_class_token_alone(model, x):
    x = model.blocks(x)
    return torch.cat([model.norm(x[:, :1]), x[:, 1:]], dim=1)


def _reaching_every_parameter(fn, model, images):
    """What comes out; where it is right, its gradient must reach all parameters but the head's."""
    result, truth = fn(model, images), forward_features(model, images)
    if same(result, truth, 1e-5):
        named = {name: value for name, value in model.named_parameters() if not name.startswith("head")}
        if not result.requires_grad:
            raise CheckFailed(
                "no gradient reaches the model, so it cannot be trained: no torch.no_grad(), detach or data here"
            )
        gradients = torch.autograd.grad(result.pow(2).sum(), list(named.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(named, gradients, strict=True):
            if gradient is None:
                raise CheckFailed(
                    f"no gradient reaches {name}, so it would never be trained: use it without .data or detach"
                )
    return result


def _token_by_token(model, images):
    """The same in another order: class token and patches get their positions apart, blocks run one by one."""
    patches = model.patch_embed(images) + model.pos_embed[:, 1:]
    cls = (model.cls_token + model.pos_embed[:, :1]).repeat(len(patches), 1, 1)
    return _block_by_block(model, torch.cat([cls, patches], dim=1))


EXERCISES["forward_features"] = Exercise(
    reference=forward_features,
    truth=_token_by_token,
    run=_reaching_every_parameter,
    given=lambda b=3, gh=2, gw=4, depth=2, d=5: (
        Model((2 * gh, 2 * gw), patch=2, dim=d, depth=depth, num_classes=7).eval(),
        torch.randn(b, 2, 2 * gh, 2 * gw),
    ),
    smallest={"d": 2},
    without=("float64",),
    mistakes={
        "the class token has no position: the positions were added to the patches before it was put "
        "in front": _features(lambda model, x: _cat(model, x + model.pos_embed[:, 1:])),
        "the class token has no position: the patches got those from row 0 on, before it was put in front": _features(
            lambda model, x: _cat(model, x + model.pos_embed[:, :-1])
        ),
        "the class token stands last. Equation 1 puts it first, and the head will read token 0": _features(
            lambda model, x: _cat(model, x, last=True) + model.pos_embed
        ),
        "the final LayerNorm is missing, equation 4": _features(finish=lambda model, x: model.blocks(x)),
        "only the class token went through the final norm. Norm all tokens; it looks at one at a time": _features(
            finish=_norms_the_class_token_alone
        ),
        "the norm ran before the blocks. In a pre-norm model it stands after the last one": _features(
            finish=lambda model, x: model.blocks(model.norm(x))
        ),
        "the norm ran twice, before the blocks and after them. It stands after the last one only": _features(
            finish=lambda model, x: model.norm(model.blocks(model.norm(x)))
        ),
        "the norm ran after each block. It stands after the last one only": _features(
            finish=lambda model, x: _normed_each_time(model, x)
        ),
        "the positions were never added, so the model cannot know where a patch was": _features(_cat),
        "the positions were added after the blocks, when the tokens have exchanged everything already": _features(
            _cat, lambda model, x: model.norm(model.blocks(x) + model.pos_embed)
        ),
        "the positions were added behind the norm, when the tokens have exchanged everything already": _features(
            _cat, lambda model, x: model.norm(model.blocks(x)) + model.pos_embed
        ),
        "the blocks did not run": _features(finish=lambda model, x: model.norm(x)),
        "only the first of the blocks ran": _features(finish=lambda model, x: model.norm(model.blocks[0](x))),
        "only the last of the blocks counts: each must run on what the one before it returned": _features(
            finish=lambda model, x: _block_by_block(model, x, keep=False)
        ),
        "zeros stand where the class token should be: take model.cls_token": _features(
            lambda model, x: torch.cat([torch.zeros_like(x[:, :1]), x], dim=1) + model.pos_embed
        ),
        "the class token joined after the blocks, so it has seen no patch": _features(
            lambda model, x: x + model.pos_embed[:, 1:], lambda model, x: model.norm(_cat(model, model.blocks(x)))
        ),
        "the class token is missing: one token more than there are patches was wanted": _features(
            lambda model, x: x + model.pos_embed[:, 1:]
        ),
        "one token for each image came out. All tokens were wanted; pooling is the next step": lambda model, images: (
            forward_features(model, images)[:, 0]
        ),
        "the head has run already. forward_features stops before it, at the tokens": lambda model, images: model.head(
            forward_features(model, images)
        ),
        "the class token has a batch of 1. Expand it to the number of images before it joins: "
        "cls_token.expand(b, -1, -1)": (
            lambda model, images: torch.cat([model.cls_token, model.patch_embed(images)], dim=1)
        ),
        "an activation was added; the blocks have their own": _features(
            lambda model, x: torch.relu(_cat(model, x) + model.pos_embed)
        ),
        "no gradient reaches pos_embed": _features(lambda model, x: _cat(model, x) + model.pos_embed.data),
        "no gradient reaches the model": lambda model, images: forward_features(model, images).detach(),
    },
    right=[
        _token_by_token,
        _features(lambda model, x: torch.cat([model.cls_token.repeat(len(x), 1, 1), x], 1) + model.pos_embed),
    ],
    shape="One class token and the patches, for each image",
    otherwise="the tokens differ from equations 1 to 4: embed, class token, positions, blocks, norm",
)


def pool_tokens(tokens: Float[Tensor, "b n d"], pool: str, num_prefix_tokens: int = 1) -> Float[Tensor, "b d"]:
    """One vector for each image: token 0, or the mean of the patch tokens, which stand behind the prefix."""
    return tokens[:, 0] if pool == "cls" else tokens[:, num_prefix_tokens:].mean(dim=1)


def _pool_by_loop(tokens, pool, num_prefix_tokens=1):
    if pool == "cls":
        return torch.stack([image[0] for image in tokens])
    patches = range(num_prefix_tokens, tokens.shape[1])
    return torch.stack([sum(image[j] for j in patches) / len(patches) for image in tokens])


def _cls_or(mean):
    def fn(tokens, pool, num_prefix_tokens=1):
        return tokens[:, 0] if pool == "cls" else mean(tokens, num_prefix_tokens)

    return fn


def _mean_or(cls):
    def fn(tokens, pool, num_prefix_tokens=1):
        return cls(tokens, num_prefix_tokens) if pool == "cls" else pool_tokens(tokens, pool, num_prefix_tokens)

    return fn


def _whatever_pool_says(read):
    return lambda tokens, pool, num_prefix_tokens=1: read(tokens, num_prefix_tokens)


def _pooled(pool, prefix=1, **options):
    return Case(given=lambda: (torch.randn(3, 7, 5), pool, prefix), **options)


# What is read in the class token's place.
READINGS = {
    "a slice keeps its axis, so (b, 1, d) came out. Index the token, do not slice it": lambda tokens, prefix: tokens[
        :, :1
    ],
    "that is the whole first image: the batch is axis 0, the tokens are axis 1": lambda tokens, prefix: tokens[0],
    "pool='cls' read the last token; the class token is the first": lambda tokens, prefix: tokens[:, -1],
    "pool='cls' read token 1, a patch; the class token is token 0": lambda tokens, prefix: tokens[:, 1],
    "that is one number of each token; the tokens are axis 1, and one whole token is wanted": lambda tokens, prefix: (
        tokens[:, :, 0]
    ),
}
EXERCISES["pool_tokens"] = Exercise(
    reference=pool_tokens,
    truth=_pool_by_loop,
    given=lambda b=3, n=7, d=5: (torch.randn(b, n, d), "mean", 1),
    smallest={"n": 2},
    cases=[
        _pooled("cls", hint="pool='cls' must give token 0 of each image"),
        _pooled(
            "cls",
            3,
            hint="pool='cls' must give token 0, however many tokens stand in front of the patches",
            caught=_mean_or(lambda tokens, prefix: tokens[:, prefix - 1]),
        ),
        _pooled(
            "mean",
            0,
            hint="with num_prefix_tokens=0 there is no class token, but the first patch was left out",
            caught=_cls_or(lambda tokens, prefix: tokens[:, 1:].mean(1)),
        ),
        _pooled(
            "mean",
            3,
            hint="with num_prefix_tokens=3 three tokens stand in front of the patches; skip them all",
            caught=_cls_or(lambda tokens, prefix: tokens[:, min(prefix, 1) :].mean(1)),
        ),
        Case(given=lambda: (torch.randn(1, 7, 5), "cls", 1), hint="wrong for a batch of one image with pool='cls'"),
        Case(
            given=lambda: (torch.randn(3, 7, 5), "mean"),
            hint="num_prefix_tokens must be 1 where it is not given: keep its default",
            caught=lambda tokens, pool, prefix=0: pool_tokens(tokens, pool, prefix),
        ),
    ],
    mistakes={
        "the mean includes the class token. Skip the first num_prefix_tokens": _cls_or(lambda t, prefix: t.mean(1)),
        "pool='mean' gave the class token. Is `pool` used?": lambda tokens, pool, prefix=1: tokens[:, 0],
        "pool='cls' gave the mean. Is `pool` used?": lambda tokens, pool, prefix=1: tokens[:, prefix:].mean(1),
        **{hint: _mean_or(read) for hint, read in READINGS.items()},
        **{f"{hint}. (And `pool` is not used)": _whatever_pool_says(read) for hint, read in READINGS.items()},
        "the mean keeps its axis, so (b, 1, d) came out: leave out keepdim": _cls_or(
            lambda tokens, prefix: tokens[:, prefix:].mean(1, keepdim=True)
        ),
        "the mean ran over everything, so one number came out. Name the axis of the tokens": _cls_or(
            lambda tokens, prefix: tokens[:, prefix:].mean()
        ),
        "the mean ran over the batch: each image has its own vector": _cls_or(
            lambda tokens, prefix: tokens[:, prefix:].mean(0)
        ),
        "the mean ran over the d numbers of a token, not over the tokens": _cls_or(
            lambda tokens, prefix: tokens[:, prefix:].mean(2)
        ),
        "that is the sum of the patch tokens, not their mean": _cls_or(
            lambda tokens, prefix: tokens[:, prefix:].sum(1)
        ),
        "the sum over the patch tokens was divided by the number of all tokens, the class token included": _cls_or(
            lambda tokens, prefix: tokens[:, prefix:].sum(1) / tokens.shape[1]
        ),
        "the last token was left out; the class token is the first": _cls_or(
            lambda tokens, prefix: tokens[:, : tokens.shape[1] - prefix].mean(1)
        ),
        "one token too many was left out: the first patch belongs in": _cls_or(
            lambda tokens, prefix: tokens[:, prefix + 1 :].mean(1)
        ),
        "that is the largest value, not the mean": _cls_or(lambda tokens, prefix: tokens[:, prefix:].amax(1)),
        "that is the median, not the mean": _cls_or(lambda tokens, prefix: tokens[:, prefix:].median(1).values),
    },
    right=[_pool_by_loop],
    shape="One vector for each image",
    otherwise="pool='mean' must give the mean over the patch tokens of each image, pool='cls' token 0",
)


def count_parameters(
    embed_dim: int, depth: int, mlp_dim: int, num_patches: int, patch_dim: int, num_classes: int
) -> int:
    """Parameters of a ViT with a class token, learned positions, biases everywhere and a final norm."""
    d, norm = embed_dim, 2 * embed_dim
    embed = (patch_dim + 1) * d + d + (num_patches + 1) * d
    block = norm + 3 * d * (d + 1) + d * (d + 1) + norm + (d + 1) * mlp_dim + (mlp_dim + 1) * d
    return embed + depth * block + norm + (d + 1) * num_classes


def _counted_by_torch(d: int, depth: int, mlp_dim: int, num_patches: int, patch_dim: int, num_classes: int) -> int:
    """The same number from torch's own modules, on a device without memory."""
    with torch.device("meta"):
        parts = [
            nn.Linear(patch_dim, d),
            nn.Embedding(1 + num_patches + 1, d),
            nn.LayerNorm(d),
            nn.Linear(d, num_classes),
        ]
        parts += [nn.TransformerEncoderLayer(d, nhead=1, dim_feedforward=mlp_dim) for _ in range(depth)]
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


# What each plausible omission loses, and what to say then. For the sizes of the first case no two lose equally many.
OMISSIONS: dict[str, Callable[[int, int, int, int, int, int], int]] = {
    "one vector of embed_dim is missing. It is the class token, its row of the positions (there are num_patches + "
    "1), or the bias of the patch projection": lambda d, depth, m, n, p, k: d,
    "two vectors of embed_dim are missing. The final LayerNorm has a weight and a bias; or the class token and its "
    "position are both missing": lambda d, depth, m, n, p, k: 2 * d,
    "the table of positions, num_patches + 1 rows, is learned": lambda d, depth, m, n, p, k: (n + 1) * d,
    "the head has a bias": lambda d, depth, m, n, p, k: k,
    "the head is missing": lambda d, depth, m, n, p, k: (d + 1) * k,
    "the patch projection is missing, patch_dim to embed_dim": lambda d, depth, m, n, p, k: (p + 1) * d,
    "the class token and the table of positions are parameters too": lambda d, depth, m, n, p, k: (n + 2) * d,
    "one vector of embed_dim in each block is missing: the bias of the attention's output projection, or that of the "
    "MLP's second layer": lambda d, depth, m, n, p, k: depth * d,
    "the MLP's first layer has a bias, mlp_dim numbers": lambda d, depth, m, n, p, k: depth * m,
    "four vectors of embed_dim in each block are missing. It has two LayerNorms, with a weight and a bias each; and "
    "the four matrices of its attention have a bias each": lambda d, depth, m, n, p, k: depth * 4 * d,
    "no LayerNorm is counted. Each has a weight and a bias: two in a block, one at the end": (
        lambda d, depth, m, n, p, k: depth * 4 * d + 2 * d
    ),
    "each block has two LayerNorms. One of them, or the weight or the bias of both, is missing": (
        lambda d, depth, m, n, p, k: depth * 2 * d
    ),
    "a LayerNorm has 2·embed_dim parameters, a weight and a bias": lambda d, depth, m, n, p, k: (2 * depth + 1) * d,
    "each block's attention ends with an output projection, embed_dim to embed_dim": (
        lambda d, depth, m, n, p, k: depth * (d + 1) * d
    ),
    "each block's attention ends with an output projection; its matrix is missing": (
        lambda d, depth, m, n, p, k: depth * d * d
    ),
    "queries, keys and values have a matrix each, so three, and the output projection a fourth": (
        lambda d, depth, m, n, p, k: depth * 2 * d * (d + 1)
    ),
    "queries, keys and values have biases, three times embed_dim in each block": lambda d, depth, m, n, p, k: (
        depth * 3 * d
    ),
    "the biases of the linear layers are missing": lambda d, depth, m, n, p, k: depth * (5 * d + m) + d + k,
    "the two linear layers of the MLP have biases, mlp_dim and embed_dim": lambda d, depth, m, n, p, k: depth * (d + m),
    "the MLP has two layers, embed_dim to mlp_dim and back": lambda d, depth, m, n, p, k: depth * (m * d + d),
    "the attention is missing: four matrices, embed_dim to embed_dim, in each block": (
        lambda d, depth, m, n, p, k: depth * 4 * d * (d + 1)
    ),
    "the MLP is missing: embed_dim to mlp_dim and back, in each block": (
        lambda d, depth, m, n, p, k: depth * (2 * m * d + m + d)
    ),
}


def _lose(term):
    return lambda *sizes: count_parameters(*sizes) - term(*sizes)


EXERCISES["count_parameters"] = Exercise(
    reference=count_parameters,
    truth=_counted_by_torch,
    cases=[
        Case(given=lambda: (10, 4, 44, 21, 75, 17), hint="the count differs from that of PyTorch's own modules"),
        Case(
            given=lambda: (768, 12, 3072, 196, 768, 1000),
            truth=86_567_656,
            hint="right for a small model, but ViT-B/16 has 86,567,656 parameters",
            caught=lambda *sizes: 15_507 if sizes[0] == 768 else count_parameters(*sizes),
        ),
    ],
    mistakes={
        **{hint: _lose(term) for hint, term in OMISSIONS.items()},
        "only one block was counted, there are `depth`": lambda d, depth, *others: count_parameters(d, 1, *others),
        "the head reads the class token alone, so it has embed_dim · num_classes weights, once": lambda *sizes: (
            count_parameters(*sizes) + sizes[0] * sizes[5]
        ),
        "one row of positions too many: there are num_patches + 1": lambda *sizes: count_parameters(*sizes) + sizes[0],
    },
    right=[lambda *sizes: float(count_parameters(*sizes)), lambda *sizes: torch.tensor(count_parameters(*sizes))],
    tolerance=1e-9,
)


def cross_entropy(logits: Float[Tensor, "b k"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
    """Mean over the batch of −ln softmax(logits)[label], safe for large logits."""
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_normaliser = shifted.exp().sum(dim=1).log()
    return (log_normaliser - shifted[torch.arange(len(labels), device=labels.device), labels]).mean()


def _picked(z, y):
    return z[torch.arange(len(y)), y]


def _loss(result):
    """One number, as a tensor that can be compared with PyTorch's."""
    return torch.as_tensor(result) if isinstance(result, int | float) else result


def _of_probabilities(p):
    """−log of a probability: right, until one overflows or underflows."""
    return lambda z, y: -_picked(p(z), y).log().mean()


def _one_maximum_for_all(z, y):
    shifted = z - z.max()
    return (shifted.exp().sum(1).log() - _picked(shifted, y)).mean()


EXERCISES["cross_entropy"] = Exercise(
    reference=cross_entropy,
    truth=F.cross_entropy,
    given=lambda b=6, k=4: (2 * torch.randn(b, k), torch.randint(k, (b,))),
    smallest={"k": 2},
    cases=[
        Case(
            given=lambda: (2 * torch.randn(6, 4) + 1000, torch.tensor([3, 0, 1, 1, 2, 0])),
            hint="with 1000 added to every logit the loss must stay as it was: e^1000 overflows. Subtract the "
            "largest logit of each row first",
            caught=_of_probabilities(lambda z: z.exp() / z.exp().sum(1, keepdim=True)),
        ),
        Case(
            given=lambda: (torch.tensor([[0.0, 200.0]]), torch.tensor([0])),
            hint="for logits (0, 200) and label 0 the loss is 200: the probability underflows to 0 before the "
            "logarithm is taken. Subtract logarithms; do not take the logarithm of a quotient",
            caught=_of_probabilities(lambda z: z.softmax(1)),
        ),
        Case(
            given=lambda: (torch.tensor([[0.0, 1.0], [400.0, 401.0]]), torch.tensor([1, 1])),
            hint="the largest logit of the whole batch was subtracted, so other rows underflow. Each row has its own",
            caught=_one_maximum_for_all,
        ),
        Case(
            given=lambda: (torch.tensor([[0.0, 60.0]]), torch.tensor([0])),
            hint="for logits (0, 60) and label 0 the loss is 60. A small number added inside the logarithm, or a "
            "clamp, hides how wrong the model is",
            caught=lambda z, y: -_picked(z.softmax(1), y).clamp_min(1e-8).log().mean(),
        ),
    ],
    mistakes={
        "that is the sum over the batch. Take the mean, or the step grows with the batch": lambda z, y: F.cross_entropy(
            z, y, reduction="sum"
        ),
        "the sign: a log-probability is negative, the loss is minus it": lambda z, y: -F.cross_entropy(z, y),
        "the softmax is applied twice: the input is logits, and one softmax is enough": lambda z, y: F.cross_entropy(
            z.softmax(1), y
        ),
        "the softmax runs over the batch. Classes are axis 1": lambda z, y: F.nll_loss(z.log_softmax(0), y),
        "one loss for each image was returned; return their mean": lambda z, y: F.cross_entropy(z, y, reduction="none"),
        "divided by the number of all entries, images times classes. There is one loss for each "
        "image: divide by the images": (lambda z, y: -(F.one_hot(y, z.shape[1]) * z.log_softmax(1)).mean()),
        "divided by the number of classes. There is one loss for each image: divide by the images": lambda z, y: (
            F.cross_entropy(z, y, reduction="sum") / z.shape[1]
        ),
        "logits[:, labels] is a table, every label for every image. Each image has its own label: "
        "gather it": lambda z, y: (z.logsumexp(1)[:, None] - z[:, y]).mean(),
        "the largest logit was subtracted in the sum, but not from the label's logit, so it does not "
        "cancel": lambda z, y: ((z - z.amax(1, keepdim=True)).logsumexp(1) - _picked(z, y)).mean(),
        "the largest of each column was subtracted. It must be the same for all classes of an image, or it does not "
        "cancel: the largest of the row": lambda z, y: F.cross_entropy(z - z.amax(0), y),
        "all classes are averaged. Only the label's log-probability counts": lambda z, y: -z.log_softmax(1).mean(),
        "the normaliser is missing: the label's logit alone is no log-probability": lambda z, y: F.nll_loss(z, y),
        "that is the mean probability of the labels; the logarithm is missing": lambda z, y: _picked(
            z.softmax(1), y
        ).mean(),
        "that is log2, so bits. PyTorch's cross-entropy takes the natural logarithm": lambda z, y: (
            F.cross_entropy(z, y) / math.log(2)
        ),
        "that is log10. PyTorch's cross-entropy takes the natural logarithm": lambda z, y: (
            F.cross_entropy(z, y) / math.log(10)
        ),
        "that is the loss of the most likely class; the label's was wanted": lambda z, y: F.cross_entropy(
            z, z.argmax(1)
        ),
        "the logarithm of the mean probability is not the mean of the logarithms": lambda z, y: (
            -_picked(z.softmax(1), y).mean().log()
        ),
    },
    right=[
        F.cross_entropy,
        lambda z, y: (z.logsumexp(1) - z.gather(1, y[:, None])[:, 0]).mean(),
        lambda z, y: -(F.one_hot(y, z.shape[1]) * z.log_softmax(1)).sum(1).mean(),
    ],
    run=lambda fn, z, y: _loss(fn(z, y)),
    shape="The loss is one number",
    otherwise="the loss differs from PyTorch's own cross-entropy",
    tolerance=1e-4,
)


def confusion_counts(labels: Int[Tensor, " b"], predictions: Int[Tensor, " b"], num_classes: int) -> Int[Tensor, "k k"]:
    """How often class ``row`` was taken for class ``column``, ``(num_classes, num_classes)``."""
    return torch.bincount(labels * num_classes + predictions, minlength=num_classes**2).reshape(num_classes, -1)


def _by_loop(labels, predictions, num_classes):
    matrix = torch.zeros(num_classes, num_classes)
    for label, prediction in zip(labels.tolist(), predictions.tolist(), strict=True):
        matrix[label, prediction] += 1
    return matrix


def _adds_once(labels, predictions, num_classes):
    matrix = torch.zeros(num_classes, num_classes, dtype=torch.long)
    matrix[labels, predictions] += 1
    return matrix


def _in_parts(total, factor=1):
    def fn(*args):
        counts = confusion_counts(*args)
        return factor * counts / total(counts).clamp(min=1)

    return fn


SHARES = "those are fractions. Counts were wanted: they can be added up and turned into fractions later"
EXERCISES["confusion_counts"] = Exercise(
    reference=confusion_counts,
    truth=_by_loop,
    cases=[
        Case(
            given=lambda: (torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2]), torch.tensor([0, 0, 0, 1, 1, 2, 2, 0, 0]), 4),
            hint="class 3 occurs in neither list, and still has a row and a column",
        ),
        Case(
            given=lambda: (torch.full((700,), 1), torch.randint(2, (700,)), 3),
            hint="one pair occurs more than 255 times: uint8 ends there. Count in a wider integer",
            caught=lambda labels, predictions, k: confusion_counts(labels, predictions, k).byte(),
        ),
        Case(given=lambda: (torch.randint(12, (300,)), torch.randint(12, (300,)), 12), hint="wrong for 12 classes"),
        Case(given=lambda: (torch.tensor([2]), torch.tensor([0]), 3), hint="wrong for a single image"),
    ],
    mistakes={
        "rows and columns are swapped: the row is the true class": lambda labels, predictions, k: confusion_counts(
            predictions, labels, k
        ),
        "no count is above 1: `matrix[labels, predictions] += 1` adds once for a pair, however often "
        "it occurs": _adds_once,
        "rows and columns are swapped, and no count is above 1: += adds once for a pair, however often it occurs": (
            lambda labels, predictions, k: _adds_once(predictions, labels, k)
        ),
        "the table has as many rows as classes occur. A class that occurs in neither list still has "
        "a row and a column": (
            lambda labels, predictions, k: confusion_counts(
                labels, predictions, int(max(labels.max(), predictions.max())) + 1
            )
        ),
        "These are the counts in one row; reshape them to num_classes × num_classes": lambda *args: confusion_counts(
            *args
        ).flatten(),
        f"{SHARES} (of all images)": _in_parts(lambda counts: counts.sum()),
        f"{SHARES} (of a row)": _in_parts(lambda counts: counts.sum(1, keepdim=True)),
        f"{SHARES} (of a column)": _in_parts(lambda counts: counts.sum(0)),
        f"{SHARES} (per cent of all images)": _in_parts(lambda counts: counts.sum(), 100),
        "the right ones are left out: the diagonal counts them": lambda *args: confusion_counts(*args).fill_diagonal_(
            0
        ),
    },
    right=[_by_loop, lambda labels, said, k: F.one_hot(labels, k).T @ F.one_hot(said, k)],
    shape="One row and one column for each class",
    otherwise="row i, column j: how often class i was taken for class j",
)


def softmax_loss_floor(num_classes: int) -> float:
    """The smallest cross-entropy that a model with a softmax as its last layer can reach: ln(1 + (C − 1) / e)."""
    return math.log1p((num_classes - 1) / math.e)


def _floor_by_torch(num_classes):
    """The best that a softmax can give is a one for the true class; PyTorch takes this as logits."""
    return F.cross_entropy(torch.eye(num_classes, dtype=torch.float64), torch.arange(num_classes)).item()


EXERCISES["softmax_loss_floor"] = Exercise(
    reference=softmax_loss_floor,
    truth=_floor_by_torch,
    cases=[
        Case(given=lambda: (10,), truth=1.4611501717, hint="for 10 classes it is 1.461: put (1, 0, …, 0) in as logits"),
        Case(
            given=lambda: (4,),
            hint="right for 10 classes, wrong for 4",
            caught=lambda classes: 1.4611501717,
        ),
        Case(given=lambda: (1000,), hint="right for few classes, wrong for 1,000"),
    ],
    mistakes={
        "0 would need infinite logits. Here each is a probability, so at most 1": lambda c: 0.0,
        "ln C is the loss of a model that guesses. A softmax can do better: 1 for the true class": math.log,
        "log2 gives bits; PyTorch's cross-entropy takes the natural logarithm": lambda c: math.log2(
            1 + (c - 1) / math.e
        ),
        "log10: PyTorch's cross-entropy takes the natural logarithm": lambda c: math.log10(1 + (c - 1) / math.e),
        "the logarithm is missing: the loss is a difference of logarithms": lambda c: 1 + (c - 1) / math.e,
        "the sign of the exponent: e^0 / e^1 is 1/e for each wrong class, not e": lambda c: math.log(
            1 + (c - 1) * math.e
        ),
        "there are C − 1 wrong classes: the true one was counted among them": lambda c: math.log(1 + c / math.e),
        "ln(e + C − 1) is the normaliser alone. Subtract the true class's logit, 1": lambda c: math.log(math.e + c - 1),
        "that is the probability of the true class. The loss is minus its logarithm": lambda c: (
            math.e / (math.e + c - 1)
        ),
        "the sign: that is the log-probability, the loss is minus this": lambda c: -math.log(1 + (c - 1) / math.e),
    },
    right=[_floor_by_torch, lambda c: np.float32(softmax_loss_floor(c)), lambda c: torch.tensor(softmax_loss_floor(c))],
    shape="One number",
    otherwise="put probabilities (1, 0, …, 0) into the cross-entropy as logits",
    tolerance=1e-6,
)
