"""Exercises of chapter 5: the whole Vision Transformer."""

import math
from functools import reduce

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.exercises.probes import gradient_of

EXERCISES: dict[str, Exercise] = {}


def forward_features(model: nn.Module, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
    """Images to the normalised tokens of the last block, from ``model``'s parts in the order of equations 1 to 4."""
    x = model.patch_embed(images)
    x = torch.cat([model.cls_token.expand(len(x), -1, -1), x], dim=1)
    return model.norm(model.blocks(x + model.pos_embed))


class Model(nn.Module):
    """The parts of a ViT made of torch's own layers, every one with random parameters, so that each is felt."""

    def __init__(self, num_patches: int, dim: int, depth: int):
        super().__init__()
        self.patch_embed = _PatchEmbed(2, dim, kernel_size=2, stride=2)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.blocks = nn.Sequential(*(_MixTokens(num_patches + 1, dim) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, 7)
        for parameter in self.norm.parameters():
            nn.init.normal_(parameter)


class _PatchEmbed(nn.Conv2d):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).flatten(2).mT


class _MixTokens(nn.Module):
    """Stands for an encoder block. It knows which token is which, so any change of their order is seen."""

    def __init__(self, num_tokens: int, dim: int):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(num_tokens, num_tokens))
        self.project = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        return x + torch.tanh(self.mix[:n, :n] @ self.project(x))


def _cat(m, x):
    return torch.cat([m.cls_token.expand(len(x), -1, -1), x], dim=1)


def _tokens(make, finish=lambda m, x: m.norm(m.blocks(x))):
    """forward_features by how the model m makes tokens of the patches x, and what it does to them."""
    return lambda m, images: finish(m, make(m, m.patch_embed(images)))


def _finish(finish):
    return _tokens(lambda m, x: _cat(m, x) + m.pos_embed, finish)


def _tokens_or_gradients(fn, model, images):
    """The tokens; for images that ask for gradients, whether one reaches each parameter but the head's."""
    result = fn(model, images)
    if not images.requires_grad:
        return result
    learning = [value for name, value in model.named_parameters() if not name.startswith("head")]
    if not result.requires_grad:
        return torch.zeros(len(learning))
    found = torch.autograd.grad(result.pow(2).sum(), learning, allow_unused=True)
    return torch.tensor([float(gradient is not None) for gradient in found])


def _token_by_token(model, images):
    """The same in another order: class token and patches get their positions separately, blocks run one by one."""
    patches = model.patch_embed(images) + model.pos_embed[:, 1:]
    cls = (model.cls_token + model.pos_embed[:, :1]).repeat(len(patches), 1, 1)
    return model.norm(reduce(lambda x, block: block(x), model.blocks, torch.cat([cls, patches], dim=1)))


EXERCISES["forward_features"] = Exercise(
    reference=forward_features, truth=_token_by_token, run=_tokens_or_gradients,
    given=lambda b=3, gh=2, gw=4, depth=2, d=5: (Model(gh * gw, d, depth).eval(), torch.randn(b, 2, 2 * gh, 2 * gw)),
    smallest={"d": 2}, without=("float64", "gradient"), shape="One class token and the patches, for each image",
    notes=[Case(lambda: (Model(8, 5, 2).eval(), torch.randn(3, 2, 4, 8, requires_grad=True)),
                "no gradient reaches some of the model's parameters, so they never learn: no_grad(), .detach() or "
                ".data cut it off", caught)
           for caught in (_tokens(lambda m, x: _cat(m, x) + m.pos_embed.data),
                          lambda m, images: forward_features(m, images).detach())],
    otherwise="the tokens differ from equations 1 to 4: embed, class token, positions, blocks, norm",
    mistakes={
        "the class token has no position: put it in front first": _tokens(lambda m, x: _cat(m, x + m.pos_embed[:, 1:])),
        "the class token has no position; a patch got row 0": _tokens(lambda m, x: _cat(m, x + m.pos_embed[:, :-1])),
        "the class token comes last. It belongs first": _tokens(lambda m, x: _cat(m, x).roll(-1, 1) + m.pos_embed),
        "the final LayerNorm is missing, equation 4": _finish(lambda m, x: m.blocks(x)),
        "only the class token went through the final norm. Norm all tokens; it looks at one at a time":
            _finish(lambda m, x: torch.cat([m.norm(m.blocks(x)[:, :1]), m.blocks(x)[:, 1:]], dim=1)),
        "the norm ran before the blocks. It belongs after the last one": _finish(lambda m, x: m.blocks(m.norm(x))),
        "the norm ran before the blocks too. It belongs after them": _finish(lambda m, x: m.norm(m.blocks(m.norm(x)))),
        "the norm ran after each block. It belongs after the last one only":
            _finish(lambda m, x: reduce(lambda x, block: m.norm(block(x)), m.blocks, x)),
        "the positions were never added, so the model cannot know where a patch was": _tokens(_cat),
        "the positions were added after the blocks, when the tokens have exchanged everything already":
            _tokens(_cat, lambda m, x: m.norm(m.blocks(x) + m.pos_embed)),
        "the positions were added after the norm, when the tokens have exchanged everything already":
            _tokens(_cat, lambda m, x: m.norm(m.blocks(x)) + m.pos_embed),
        "the blocks did not run": _finish(lambda m, x: m.norm(x)),
        "only the first of the blocks ran": _finish(lambda m, x: m.norm(m.blocks[0](x))),
        "only the last block counts. Chain them: model.blocks(x)": _finish(lambda m, x: m.norm(m.blocks[-1](x))),
        "zeros replace the class token, model.cls_token": _tokens(lambda m, x: F.pad(x, (0, 0, 1, 0)) + m.pos_embed),
        "the class token joined after the blocks, so it has seen no patch":
            _tokens(lambda m, x: x + m.pos_embed[:, 1:], lambda m, x: m.norm(_cat(m, m.blocks(x)))),
        "the class token is missing: it is one token more": _tokens(lambda m, x: x + m.pos_embed[:, 1:]),
        "one token for each image came out. Return all; pooling is next": lambda *a: forward_features(*a)[:, 0],
        "the head has run already. forward_features stops at the tokens": lambda m, x: m.head(forward_features(m, x)),
        "the class token has a batch of 1. Expand it to b images: cls_token.expand(b, -1, -1)":
            lambda m, images: torch.cat([m.cls_token, m.patch_embed(images)], dim=1),
        "an activation was added; the blocks have their own": _tokens(lambda m, x: F.relu(_cat(m, x) + m.pos_embed)),
    }, right=[_token_by_token, _tokens(lambda m, x: torch.cat([m.cls_token.repeat(len(x), 1, 1), x], 1) + m.pos_embed)],
)  # fmt: skip


def pool_tokens(tokens: Float[Tensor, "b n d"], pool: str, num_prefix_tokens: int = 1) -> Float[Tensor, "b d"]:
    """One vector for each image: token 0, or the mean of the patch tokens, which come after the prefix."""
    return tokens[:, 0] if pool == "cls" else tokens[:, num_prefix_tokens:].mean(dim=1)


def _pool_by_loop(tokens, pool, prefix=1):
    places = [0] if pool == "cls" else range(prefix, tokens.shape[1])
    return torch.stack([sum(image[j] for j in places) / len(places) for image in tokens])


def _cls_or(mean):
    return lambda t, pool, i=1: t[:, 0] if pool == "cls" else mean(t, i)


def _mean_or(cls):
    return lambda t, pool, i=1: cls(t, i) if pool == "cls" else t[:, i:].mean(1)


def _always(read):
    """What ``pool`` says is not used."""
    return lambda t, pool, i=1: read(t, i)


def _pooled(pool, prefix, *said, b=3):
    return Case(lambda: (torch.randn(b, 7, 5), pool, prefix), *said)


# What is read in the class token's place, from the tokens t behind a prefix of i.
READINGS = {
    "a slice keeps its axis, so (b, 1, d) came out. Index the token, do not slice it": lambda t, i: t[:, :1],
    "that is the whole first image: the batch is axis 0, the tokens are axis 1": lambda t, i: t[0],
    "pool='cls' read the last token; the class token is the first": lambda t, i: t[:, -1],
    "pool='cls' read token 1, a patch; the class token is token 0": lambda t, i: t[:, 1],
    "that is one number of each token; the tokens are axis 1, and one whole token is wanted": lambda t, i: t[:, :, 0],
}
EXERCISES["pool_tokens"] = Exercise(
    reference=pool_tokens, truth=_pool_by_loop, right=[_pool_by_loop], shape="One vector for each image",
    given=lambda b=3, n=7, d=5: (torch.randn(b, n, d), "mean", 1), smallest={"n": 2},
    otherwise="pool='mean' must give the mean over the patch tokens of each image, pool='cls' token 0",
    cases=[
        _pooled("cls", 1, "pool='cls' must give token 0 of each image"),
        _pooled("cls", 3, "pool='cls' must give token 0, however many tokens come before the patches",
                _mean_or(lambda t, i: t[:, i - 1])),
        _pooled("mean", 0, "with num_prefix_tokens=0 there is no class token, but the first patch was left out",
                _cls_or(lambda t, i: t[:, 1:].mean(1))),
        _pooled("mean", 3, "with num_prefix_tokens=3 three tokens come before the patches; skip them all",
                _cls_or(lambda t, i: t[:, min(i, 1) :].mean(1))),
        _pooled("cls", 1, "wrong for a batch of one image with pool='cls'", b=1),
        Case(lambda: (torch.randn(3, 7, 5), "mean"), "num_prefix_tokens must be 1 by default",
             lambda tokens, pool, prefix=0: pool_tokens(tokens, pool, prefix)),
    ], mistakes={
        "the mean includes the class token. Skip the first num_prefix_tokens": _cls_or(lambda t, i: t.mean(1)),
        "pool='mean' gave the class token. Is `pool` used?": _always(lambda t, i: t[:, 0]),
        "pool='cls' gave the mean. Is `pool` used?": _always(lambda t, i: t[:, i:].mean(1)),
        **{hint: _mean_or(read) for hint, read in READINGS.items()},
        **{f"{hint}. (And `pool` is not used)": _always(read) for hint, read in READINGS.items()},
        "the mean keeps its axis: (b, 1, d) came out. No keepdim": _cls_or(lambda t, i: t[:, i:].mean(1, keepdim=True)),
        "the mean ran over everything: one number came out. Name the axis": _cls_or(lambda t, i: t[:, i:].mean()),
        "the mean ran over the batch: each image has its own vector": _cls_or(lambda t, i: t[:, i:].mean(0)),
        "the mean ran over the d numbers of a token, not over the tokens": _cls_or(lambda t, i: t[:, i:].mean(2)),
        "that is the sum of the patch tokens, not their mean": _cls_or(lambda t, i: t[:, i:].sum(1)),
        "you divided by all tokens, the class token included": _cls_or(lambda t, i: t[:, i:].sum(1) / t.shape[1]),
        "the last token was left out; the class token is first": _cls_or(lambda t, i: t[:, : t.shape[1] - i].mean(1)),
        "one token too many was left out: the first patch belongs in": _cls_or(lambda t, i: t[:, i + 1 :].mean(1)),
        "that is the largest value, not the mean": _cls_or(lambda t, i: t[:, i:].amax(1)),
        "that is the median, not the mean": _cls_or(lambda t, i: t[:, i:].median(1).values),
    })  # fmt: skip


def count_parameters(
    embed_dim: int, depth: int, mlp_dim: int, num_patches: int, patch_dim: int, num_classes: int
) -> int:
    """Parameters of a ViT with a class token, learned positions, biases everywhere and a final norm."""
    d, norm = embed_dim, 2 * embed_dim
    embed = (patch_dim + 1) * d + d + (num_patches + 1) * d
    block = norm + 3 * d * (d + 1) + d * (d + 1) + norm + (d + 1) * mlp_dim + (mlp_dim + 1) * d
    return embed + depth * block + norm + (d + 1) * num_classes


def _counted_by_torch(d, depth, m, n, p, k):
    """The same number from torch's own modules, on a device without memory."""
    with torch.device("meta"):
        parts = [nn.Linear(p, d), nn.Embedding(1 + n + 1, d), nn.LayerNorm(d), nn.Linear(d, k)]
        parts += [nn.TransformerEncoderLayer(d, nhead=1, dim_feedforward=m) for _ in range(depth)]
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


# What each plausible slip loses, for embed_dim d, depth L, mlp_dim m, num_patches n, patch_dim p and num_classes k.
# For the sizes of the first case no two lose equally many.
LOST = {
    "one embed_dim is missing: class token, its position, or the patch projection's bias": lambda d, L, m, n, p, k: d,
    "2·embed_dim are missing: the final LayerNorm, or the class token and its position": lambda d, L, m, n, p, k: 2 * d,
    "the table of positions, num_patches + 1 rows, is learned": lambda d, L, m, n, p, k: (n + 1) * d,
    "the head has a bias": lambda d, L, m, n, p, k: k,
    "the head is missing": lambda d, L, m, n, p, k: (d + 1) * k,
    "the patch projection is missing, patch_dim to embed_dim": lambda d, L, m, n, p, k: (p + 1) * d,
    "the class token and the table of positions are parameters too": lambda d, L, m, n, p, k: (n + 2) * d,
    "each block lacks embed_dim: the output bias of its attention, or of its MLP": lambda d, L, m, n, p, k: L * d,
    "the MLP's first layer has a bias, mlp_dim numbers": lambda d, L, m, n, p, k: L * m,
    "each block lacks 4·embed_dim: its two LayerNorms, or its attention's biases": lambda d, L, m, n, p, k: L * 4 * d,
    "no LayerNorm is counted: two in a block, one at the end": lambda d, L, m, n, p, k: L * 4 * d + 2 * d,
    "each block has two LayerNorms. One is missing, or both weights or biases": lambda d, L, m, n, p, k: L * 2 * d,
    "a LayerNorm has 2·embed_dim parameters, a weight and a bias": lambda d, L, m, n, p, k: (2 * L + 1) * d,
    "attention ends with an output projection, embed_dim to embed_dim": lambda d, L, m, n, p, k: L * (d + 1) * d,
    "attention ends with an output projection; its matrix is missing": lambda d, L, m, n, p, k: L * d * d,
    "queries, keys, values and the output have a matrix each, so four": lambda d, L, m, n, p, k: L * 2 * d * (d + 1),
    "queries, keys and values have biases, three times embed_dim in each block": lambda d, L, m, n, p, k: L * 3 * d,
    "the biases of the linear layers are missing": lambda d, L, m, n, p, k: L * (5 * d + m) + d + k,
    "the two linear layers of the MLP have biases, mlp_dim and embed_dim": lambda d, L, m, n, p, k: L * (d + m),
    "the MLP has two layers, embed_dim to mlp_dim and back": lambda d, L, m, n, p, k: L * (m * d + d),
    "the attention is missing: in each block four matrices with biases": lambda d, L, m, n, p, k: L * 4 * d * (d + 1),
    "the MLP is missing, embed_dim to mlp_dim and back in each block": lambda d, L, m, n, p, k: L * (2 * m * d + m + d),
    "the head reads the class token alone: embed_dim · num_classes weights, once": lambda d, L, m, n, p, k: -d * k,
    "one row of positions too many: there are num_patches + 1": lambda d, L, m, n, p, k: -d,
}  # fmt: skip
EXERCISES["count_parameters"] = Exercise(
    reference=count_parameters, truth=_counted_by_torch, tolerance=1e-9,
    cases=[
        Case(lambda: (10, 4, 44, 21, 75, 17), "the count differs from that of PyTorch's own modules"),
        Case(lambda: (768, 12, 3072, 196, 768, 1000), "right for a small model, but ViT-B/16 has 86,567,656 parameters",
             lambda *sizes: 15_507 if sizes[0] == 768 else count_parameters(*sizes), truth=86_567_656),
    ], mistakes={hint: lambda *sizes, term=term: count_parameters(*sizes) - term(*sizes) for hint, term in LOST.items()}
    | {"only one block was counted, there are `depth`": lambda d, depth, *others: count_parameters(d, 1, *others)},
    right=[lambda *sizes: float(count_parameters(*sizes)), lambda *sizes: torch.tensor(count_parameters(*sizes))],
)  # fmt: skip


def cross_entropy(logits: Float[Tensor, "b k"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
    """Mean over the batch of −ln softmax(logits)[label], safe for large logits."""
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_normaliser = shifted.exp().sum(dim=1).log()
    return (log_normaliser - shifted[torch.arange(len(labels), device=labels.device), labels]).mean()


def _log_of(p):
    """−log of a probability: right, until one overflows or underflows."""
    return lambda z, y: F.nll_loss(p(z).log(), y)


def _shifted_by(largest):
    """The loss without any safety but this subtraction."""
    return lambda z, y: F.nll_loss((x := z - largest(z)) - x.exp().sum(1, keepdim=True).log(), y)


def _loss_or_gradient(fn, logits, labels):
    """The loss, as a tensor; the gradient of the logits, if they are to learn."""
    loss = fn(logits, labels)
    if logits.requires_grad:
        return gradient_of(loss, logits)
    return torch.as_tensor(loss) if isinstance(loss, int | float) else loss


EXERCISES["cross_entropy"] = Exercise(
    reference=cross_entropy, truth=F.cross_entropy, tolerance=1e-4,
    run=_loss_or_gradient, without=("gradient",),
    given=lambda b=6, k=4: (2 * torch.randn(b, k), torch.randint(k, (b,))), smallest={"k": 2},
    shape="The loss is one number", otherwise="the loss differs from PyTorch's own cross-entropy",
    cases=[
        Case(lambda: (2 * torch.randn(6, 4) + 1000, torch.tensor([3, 0, 1, 1, 2, 0])),
             "adding 1000 to every logit must not change the loss: e^1000 overflows. Subtract each row's largest logit",
             _log_of(lambda z: z.exp() / z.exp().sum(1, keepdim=True))),
        Case(lambda: (2 * torch.randn(6, 4) - 1000, torch.tensor([3, 0, 1, 1, 2, 0])),
             "with logits near −1000 each exponential is 0. Subtract each row's largest logit, even a negative one",
             _shifted_by(lambda z: z.amax(1, keepdim=True).clamp(min=0))),
        Case(lambda: (torch.tensor([[0.0, 200.0]]), torch.tensor([0])), caught=_log_of(lambda z: z.softmax(1)),
             hint="for logits (0, 200) and label 0 the loss is 200: its probability underflows. Subtract logarithms"),
        Case(lambda: (torch.tensor([[0.0, 1.0], [400.0, 401.0]]), torch.tensor([1, 1])), caught=_shifted_by(torch.max),
             hint="the largest logit of the whole batch was subtracted, so other rows underflow. Each row has its own"),
        Case(lambda: (torch.tensor([[0.0, 60.0]]), torch.tensor([0])), caught=_log_of(lambda z: z.softmax(1) + 1e-8),
             hint="for logits (0, 60) and label 0 the loss is 60. A clamp, or a small number in the log, hides that"),
        Case(lambda: (torch.randn(6, 4, requires_grad=True), torch.tensor([3, 0, 1, 1, 2, 0])),
             "the loss is right, its gradient is not, so nothing could be trained with it: a part of the computation "
             "is hidden from autograd", lambda z, y: F.cross_entropy((z + z.detach()) / 2, y)),
    ], mistakes={
        "no gradient flows back to the input": lambda z, y: F.cross_entropy(z, y).item(),
        "that is the sum over the batch. Take the mean": lambda z, y: F.cross_entropy(z, y, reduction="sum"),
        "the sign: a log-probability is negative, the loss is minus it": lambda z, y: -F.cross_entropy(z, y),
        "the softmax is applied twice: it runs on logits, once": lambda z, y: F.cross_entropy(z.softmax(1), y),
        "the softmax runs over the batch. Classes are axis 1": lambda z, y: F.nll_loss(z.log_softmax(0), y),
        "one loss for each image was returned; return their mean": lambda z, y: F.cross_entropy(z, y, reduction="none"),
        "you divided by images times classes. Divide by the images": lambda z, y: F.cross_entropy(z, y) / z.shape[1],
        "you divided by classes, not by images": lambda z, y: F.cross_entropy(z, y, reduction="sum") / z.shape[1],
        "logits[:, labels] is a table. Each image has one label": lambda z, y: z.logsumexp(1).mean() - z[:, y].mean(),
        "subtract the largest logit from the label's logit, too": lambda z, y: F.cross_entropy(z, y) - z.amax(1).mean(),
        "each column's largest was subtracted; only the row's cancels": lambda z, y: F.cross_entropy(z - z.amax(0), y),
        "all classes are averaged. Only the label's log-probability counts": lambda z, y: -z.log_softmax(1).mean(),
        "the normaliser is missing: the label's logit alone isn't a log-probability": lambda z, y: F.nll_loss(z, y),
        "that is the mean probability; the logarithm is missing": lambda z, y: -F.nll_loss(z.softmax(1), y),
        "that is log2, so bits. Take the natural logarithm": lambda z, y: F.cross_entropy(z, y) / math.log(2),
        "that is log10. Take the natural logarithm, as PyTorch does": lambda z, y: F.cross_entropy(z, y) / math.log(10),
        "that is the loss of the likeliest class, not the label's": lambda z, y: F.cross_entropy(z, z.argmax(1)),
        "log of the mean probability is not the mean of the logs": lambda z, y: -(-F.nll_loss(z.softmax(1), y)).log(),
    }, right=[
        F.cross_entropy,
        lambda z, y: (z.logsumexp(1) - z.gather(1, y[:, None])[:, 0]).mean(),
        lambda z, y: -(F.one_hot(y, z.shape[1]) * z.log_softmax(1)).sum(1).mean(),
    ])  # fmt: skip


def confusion_counts(labels: Int[Tensor, " b"], predictions: Int[Tensor, " b"], num_classes: int) -> Int[Tensor, "k k"]:
    """How often class ``row`` was taken for class ``column``, ``(num_classes, num_classes)``."""
    return torch.bincount(labels * num_classes + predictions, minlength=num_classes**2).reshape(num_classes, -1)


def _by_loop(labels, predictions, num_classes):
    matrix = torch.zeros(num_classes, num_classes)
    for label, prediction in zip(labels.tolist(), predictions.tolist(), strict=True):
        matrix[label, prediction] += 1
    return matrix


def _changed(change):
    """The right counts after a change."""
    return lambda *args: change(confusion_counts(*args))


FRACTIONS = "those are fractions. Return counts: they can be added up, and turned into fractions later"
EXERCISES["confusion_counts"] = Exercise(
    reference=confusion_counts, truth=_by_loop,
    shape="One row and one column for each class", otherwise="row i, column j: how often class i was taken for class j",
    cases=[
        Case(lambda: (torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2]), torch.tensor([0, 0, 0, 1, 1, 2, 2, 0, 0]), 4),
             "class 3 occurs in neither list, and still needs a row and a column"),
        Case(lambda: (torch.full((700,), 1), torch.randint(2, (700,)), 3),
             "one pair occurs more than 255 times: uint8 overflows. Count in a wider integer", _changed(Tensor.byte)),
        Case(lambda: (torch.randint(12, (300,)), torch.randint(12, (300,)), 12), "wrong for 12 classes"),
        Case(lambda: (torch.tensor([2]), torch.tensor([0]), 3), "wrong for a single image"),
    ], mistakes={
        "rows and columns are swapped: the row is the true class": _changed(Tensor.t),
        "no count is above 1: += adds once for a pair, however often it occurs": _changed(lambda c: c.clamp(max=1)),
        "rows and columns are swapped, and += adds once for a pair: all ≤ 1": _changed(lambda c: c.t().clamp(max=1)),
        "the table has as many rows as classes occur. One that occurs in neither list still has a row and a column":
            lambda labels, said, k: confusion_counts(labels, said, int(max(labels.max(), said.max())) + 1),
        "These are the counts in one row; reshape them to num_classes × num_classes": _changed(Tensor.flatten),
        f"{FRACTIONS} (of all images)": _changed(lambda counts: counts / counts.sum()),
        f"{FRACTIONS} (of a row)": _changed(lambda counts: counts / counts.sum(1, keepdim=True).clamp(min=1)),
        f"{FRACTIONS} (of a column)": _changed(lambda counts: counts / counts.sum(0).clamp(min=1)),
        f"{FRACTIONS} (per cent of all images)": _changed(lambda counts: 100 * counts / counts.sum()),
        "the correct ones are left out: the diagonal counts them": _changed(lambda counts: counts.fill_diagonal_(0)),
    }, right=[_by_loop, lambda labels, said, k: F.one_hot(labels, k).T @ F.one_hot(said, k)])  # fmt: skip


def softmax_loss_floor(num_classes: int) -> float:
    """The smallest cross-entropy that a model with a softmax as its last layer can reach: ln(1 + (C − 1) / e)."""
    return math.log1p((num_classes - 1) / math.e)


EXERCISES["softmax_loss_floor"] = Exercise(
    reference=softmax_loss_floor, tolerance=1e-6,
    # The best that a softmax can give is a one for the true class; PyTorch takes this as logits.
    truth=lambda c: F.cross_entropy(torch.eye(c, dtype=torch.float64), torch.arange(c)).item(),
    shape="One number", otherwise="put probabilities (1, 0, …, 0) into the cross-entropy as logits",
    cases=[
        Case(lambda: (10,), "for 10 classes it is 1.461: put (1, 0, …, 0) in as logits", truth=1.4611501717),
        Case(lambda: (4,), "right for 10 classes, wrong for 4", lambda classes: 1.4611501717),
        Case(lambda: (1000,), "right for few classes, wrong for 1,000"),
    ], mistakes={
        "0 would need infinite logits. Here each is a probability, so at most 1": lambda c: 0.0,
        "ln C is the loss of a model that guesses. A softmax can do better: 1 for the true class": math.log,
        "log2 gives bits; take the natural logarithm, as PyTorch does": lambda c: math.log2(1 + (c - 1) / math.e),
        "log10: PyTorch's cross-entropy takes the natural logarithm": lambda c: math.log10(1 + (c - 1) / math.e),
        "the logarithm is missing: the loss is a difference of logarithms": lambda c: 1 + (c - 1) / math.e,
        "the sign of the exponent: a wrong class has e^0 / e^1 = 1/e, not e": lambda c: math.log(1 + (c - 1) * math.e),
        "there are C − 1 wrong classes: the true one was counted among them": lambda c: math.log(1 + c / math.e),
        "ln(e + C − 1) is the normaliser alone. Subtract the true class's logit, 1": lambda c: math.log(math.e + c - 1),
        "that is the probability of the true class. The loss is −ln of it": lambda c: math.e / (math.e + c - 1),
        "the sign: that is the log-probability, the loss is minus this": lambda c: -math.log(1 + (c - 1) / math.e),
    }, right=[
        lambda c: np.float32(softmax_loss_floor(c)), lambda c: F.cross_entropy(torch.eye(c), torch.arange(c)),
    ],
)  # fmt: skip
