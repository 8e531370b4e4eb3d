"""Checks of chapter 5, the whole Vision Transformer."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vit_tutorial.exercises.engine import call, checks, close, compare, expect, expect_shape


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


@checks(forward_features)
def check_forward_features(fn):
    batch, dim, n = 3, 5, 8
    model = Model((4, 8), patch=2, dim=dim, depth=2, num_classes=7).eval()
    images = torch.randn(batch, 2, 4, 8)
    result = call(fn, model, images)

    patches = model.patch_embed(images)
    cls, pos = model.cls_token.expand(batch, -1, -1), model.pos_embed
    x = torch.cat([cls, patches], dim=1)

    def finish(x: Tensor) -> Tensor:
        return model.norm(model.blocks(x))

    truth = finish(x + pos)
    shape = tuple(result.shape) if isinstance(result, Tensor) else None
    expect(
        shape not in ((batch, 7), (batch, n + 1, 7)),
        f"got {shape}, so the head has run already. forward_features stops before it, at the tokens",
    )
    expect(
        shape not in ((batch, dim), (batch, 1, dim)),
        "got one token for each image. All tokens were wanted; pooling is the next step",
    )
    expect(shape != (batch, n, dim), f"got {n} tokens: the class token is missing, {n + 1} were wanted")
    expect_shape(result, (batch, n + 1, dim), "one class token and the patches, for each image")
    mistakes = {
        "the class token has no position: the positions were added to the patches before it was put in front": [
            finish(torch.cat([cls, patches + pos[:, 1:]], 1)),
            finish(torch.cat([cls, patches + pos[:, :-1]], 1)),
        ],
        "the class token stands last. Equation 1 puts it first, and the head will read token 0": [
            finish(torch.cat([patches, cls], 1) + pos)
        ],
        "the final LayerNorm is missing, equation 4": [model.blocks(x + pos)],
        "only the class token went through the final norm. Norm all tokens; it looks at one at a time": [
            torch.cat([model.norm(model.blocks(x + pos)[:, :1]), model.blocks(x + pos)[:, 1:]], 1)
        ],
        "the norm ran before the blocks. In a pre-norm model it stands after the last one": [
            model.blocks(model.norm(x + pos)),
            model.blocks(model.norm(x) + pos),
        ],
        "the norm ran twice, before the blocks and after them. It stands after the last one only": [
            finish(model.norm(x + pos)),
            finish(model.norm(x) + pos),
        ],
        "the norm ran after each block. It stands after the last one only": [
            model.norm(model.blocks[1](model.norm(model.blocks[0](x + pos))))
        ],
        "the positions were never added, so the model cannot know where a patch was": [finish(x)],
        "the positions were added after the blocks, when the tokens have exchanged everything already": [
            model.norm(model.blocks(x) + pos),
            model.norm(model.blocks(x)) + pos,
        ],
        "the blocks did not run": [model.norm(x + pos)],
        "only the first of the blocks ran": [model.norm(model.blocks[0](x + pos))],
        "only the last of the blocks counts: each must run on what the one before it returned": [
            model.norm(model.blocks[1](x + pos))
        ],
        "zeros stand where the class token should be: take model.cls_token": [
            finish(torch.cat([torch.zeros_like(cls), patches], 1) + pos)
        ],
        "the class token joined after the blocks, so it has seen no patch": [
            model.norm(torch.cat([cls, model.blocks(patches + pos[:, 1:])], 1))
        ],
    }
    for hint, wrongs in mistakes.items():
        expect(not any(close(result, wrong) for wrong in wrongs), hint)
    expect(close(result, truth), "the tokens differ from equations 1 to 4: embed, class token, positions, blocks, norm")

    parameters = {name: value for name, value in model.named_parameters() if not name.startswith("head")}
    with torch.enable_grad():
        result = call(fn, model, images)
        expect(
            result.requires_grad,
            "no gradient reaches the model, so it cannot be trained: no torch.no_grad(), detach or data here",
        )
        gradients = torch.autograd.grad(result.pow(2).sum(), list(parameters.values()), allow_unused=True)
    for name, gradient in zip(parameters, gradients, strict=True):
        expect(
            gradient is not None,
            f"no gradient reaches {name}, so it would never be trained: use it without .data or detach",
        )


def pool_tokens(tokens: Float[Tensor, "b n d"], pool: str, num_prefix_tokens: int = 1) -> Float[Tensor, "b d"]:
    """One vector for each image: token 0, or the mean of the patch tokens, which stand behind the prefix."""
    return tokens[:, 0] if pool == "cls" else tokens[:, num_prefix_tokens:].mean(dim=1)


@checks(pool_tokens)
def check_pool_tokens(fn):
    batch, n, dim = 3, 7, 5
    tokens = torch.randn(batch, n, dim)
    first = torch.stack([tokens[i, 0] for i in range(batch)])
    result = call(fn, tokens, "cls", 1)
    shape = tuple(result.shape) if isinstance(result, Tensor) else None
    expect(shape != (batch, 1, dim), "got (b, 1, d): a slice keeps its axis. Index the token, do not slice it")
    expect(shape != (n, dim), "that is the whole first image: the batch is axis 0, the tokens are axis 1")
    expect(
        shape != (batch, n), "that is one number of each token; the tokens are axis 1, and one whole token is wanted"
    )
    expect_shape(result, (batch, dim), "one vector for each image")
    expect(not close(result, tokens[:, -1]), "pool='cls' read the last token; the class token is the first")
    expect(not close(result, tokens[:, 1]), "pool='cls' read token 1, a patch; the class token is token 0")
    for mean in (tokens[:, 1:].mean(1), tokens.mean(1)):
        expect(not close(result, mean), "pool='cls' gave the mean. Is `pool` used?")
    expect(close(result, first), "pool='cls' must give token 0 of each image")
    expect(
        close(call(fn, tokens, "cls", 3), first),
        "pool='cls' must give token 0, however many tokens stand in front of the patches",
    )

    result = call(fn, tokens, "mean", 1)
    shape = tuple(result.shape) if isinstance(result, Tensor) else None
    expect(shape not in ((batch, n), (batch, n - 1)), "the mean ran over the d numbers of a token, not over the tokens")
    expect(shape not in ((n, dim), (n - 1, dim)), "the mean ran over the batch: each image has its own vector")
    expect(shape != (), "one number: the mean ran over everything. Name the axis of the tokens")
    expect_shape(result, (batch, dim), "one vector for each image")
    expect(not close(result, first), "pool='mean' gave the class token. Is `pool` used?")
    expect(not close(result, tokens.mean(1)), "the mean includes the class token. Skip the first num_prefix_tokens")
    expect(not close(result, tokens[:, 1:].sum(1)), "that is the sum of the patch tokens, not their mean")
    expect(
        not close(result, tokens[:, 1:].sum(1) / n),
        "the sum over the patch tokens was divided by the number of all tokens, the class token included",
    )
    expect(not close(result, tokens[:, :-1].mean(1)), "the last token was left out; the class token is the first")
    expect(not close(result, tokens[:, 2:].mean(1)), "one token too many was left out: the first patch belongs in")
    expect(not close(result, tokens[:, 1:].amax(1)), "that is the largest value, not the mean")
    patches_only = torch.stack([sum(tokens[i, j] for j in range(1, n)) / (n - 1) for i in range(batch)])
    expect(close(result, patches_only), "pool='mean' must give the mean over the patch tokens of each image")
    for prefix, hint in [
        (0, "with num_prefix_tokens=0 there is no class token, but the first patch was left out"),
        (3, "with num_prefix_tokens=3 three tokens stand in front of the patches; skip them all"),
    ]:
        truth = torch.stack([sum(tokens[i, j] for j in range(prefix, n)) / (n - prefix) for i in range(batch)])
        expect(close(call(fn, tokens, "mean", prefix), truth), hint)
    result = call(fn, tokens, "mean")
    expect(close(result, patches_only), "num_prefix_tokens must be 1 where it is not given: keep its default")
    for pool in ("cls", "mean"):
        with torch.enable_grad():
            result = call(fn, tokens.clone().requires_grad_(), pool, 1)
        expect(
            result.requires_grad,
            f"pool={pool!r}: no gradient flows back to the tokens: a detach, .data or no_grad cuts it",
        )


def _number(result: Any) -> int | float:
    """A number as Python's own, be it Python's, NumPy's or a tensor with one element."""
    if hasattr(result, "item") and math.prod(result.shape) == 1:
        result = result.item()
    is_number = isinstance(result, int | float) and not isinstance(result, bool)
    expect(is_number, f"expected one number, got {type(result).__name__}")
    return result


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


@checks(count_parameters)
def check_count_parameters(fn):
    # Chosen so that no two of the differences below are equal; a test sees to it.
    d, depth, mlp_dim, n, patch_dim, k = 10, 4, 44, 21, 75, 17
    result = _number(call(fn, d, depth, mlp_dim, n, patch_dim, k))
    truth = _counted_by_torch(d, depth, mlp_dim, n, patch_dim, k)
    for missing, hint in missing_parameters(d, depth, mlp_dim, n, patch_dim, k).items():
        expect(truth - result != missing, f"{missing:,} too few: {hint}")
    few = truth - result
    expect(few == 0, f"got {result:,}, wanted {truth:,}: {abs(few):,} too {'few' if few > 0 else 'many'}")
    result = _number(call(fn, 768, 12, 3072, 196, 768, 1000))
    expect(result == 86_567_656, f"right for a small model, but ViT-B/16 has 86,567,656 parameters, got {result:,}")


def missing_parameters(d: int, depth: int, mlp_dim: int, n: int, patch_dim: int, k: int) -> dict[int, str]:
    """How many parameters each plausible omission loses, and what to say then."""
    block = 4 * d * (d + 1) + d * mlp_dim + mlp_dim + mlp_dim * d + d + 4 * d
    return {
        d: "one vector of embed_dim. It is the class token, its row of the positions (there are num_patches + 1), "
        "or the bias of the patch projection",
        2 * d: "two vectors of embed_dim. The final LayerNorm has a weight and a bias; or the class token and its "
        "position are both missing",
        n * d + d: "the table of positions, num_patches + 1 rows, is learned",
        k: "the head has a bias",
        d * k + k: "the head is missing",
        (patch_dim + 1) * d: "the patch projection is missing, patch_dim to embed_dim",
        n * d + 2 * d: "the class token and the table of positions are parameters too",
        depth
        * d: "one vector of embed_dim in each block: the bias of the attention's output projection, or that of the "
        "MLP's second layer",
        depth * mlp_dim: "the MLP's first layer has a bias, mlp_dim numbers",
        depth * 4 * d: "four vectors of embed_dim in each block. It has two LayerNorms, with a weight and a bias each; "
        "and the four matrices of its attention have a bias each",
        depth * 4 * d + 2 * d: "no LayerNorm is counted. Each has a weight and a bias: two in a block, one at the end",
        depth * 2 * d: "each block has two LayerNorms. One of them, or the weight or the bias of both, is missing",
        (2 * depth + 1) * d: "a LayerNorm has 2·embed_dim parameters, a weight and a bias",
        depth * d * (d + 1): "each block's attention ends with an output projection, embed_dim to embed_dim",
        depth * d * d: "each block's attention ends with an output projection; its matrix is missing",
        depth
        * 2
        * d
        * (d + 1): "queries, keys and values have a matrix each, so three, and the output projection a fourth",
        depth * 3 * d: "queries, keys and values have biases, three times embed_dim in each block",
        depth * 4 * d + depth * (mlp_dim + d) + d + k: "the biases of the linear layers are missing",
        depth * (mlp_dim + d): "the two linear layers of the MLP have biases, mlp_dim and embed_dim",
        depth * (mlp_dim * d + d): "the MLP has two layers, embed_dim to mlp_dim and back",
        depth * 4 * d * (d + 1): "the attention is missing: four matrices, embed_dim to embed_dim, in each block",
        depth * (2 * mlp_dim * d + mlp_dim + d): "the MLP is missing: embed_dim to mlp_dim and back, in each block",
        (depth - 1) * block: "only one block was counted, there are `depth`",
    }


def softmax_loss_floor(num_classes: int) -> float:
    """The smallest cross-entropy that a model with a softmax as its last layer can reach: ln(1 + (C − 1) / e)."""
    return math.log1p((num_classes - 1) / math.e)


@checks(softmax_loss_floor)
def check_softmax_loss_floor(fn):
    for classes in (10, 4):
        # The best that a softmax can give is a one for the true class; torch takes this as logits.
        best = torch.eye(classes, dtype=torch.float64)
        truth = F.cross_entropy(best, torch.arange(classes)).item()
        result = _number(call(fn, classes))
        rest, e = classes - 1, math.e
        mistakes = {
            "0 would need infinite logits. Here each is a probability, so at most 1": 0.0,
            "ln C is the loss of a model that guesses. A softmax can do better: 1 for the true class": math.log(
                classes
            ),
            "log2 gives bits; PyTorch's cross-entropy takes the natural logarithm": truth / math.log(2),
            "log10: PyTorch's cross-entropy takes the natural logarithm": truth / math.log(10),
            "the logarithm is missing: the loss is a difference of logarithms": 1 + rest / e,
            "the sign of the exponent: e^0 / e^1 is 1/e for each wrong class, not e": math.log1p(rest * e),
            "there are C − 1 wrong classes: the true one was counted among them": math.log1p(classes / e),
            "ln(e + C − 1) is the normaliser alone. Subtract the true class's logit, 1": math.log(e + rest),
            "that is the probability of the true class. The loss is minus its logarithm": e / (e + rest),
            "the sign: that is the log-probability, the loss is minus this": -truth,
        }
        for hint, wrong in mistakes.items():
            expect(not abs(result - wrong) <= 1e-4, f"got {result:.3f} for {classes} classes. {hint}")
        expect(
            abs(result - truth) < 1e-4,
            f"got {result:.4f} for {classes} classes. Put probabilities (1, 0, …, 0) into the cross-entropy as logits",
        )


def cross_entropy(logits: Float[Tensor, "b k"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
    """Mean over the batch of −ln softmax(logits)[label], safe for large logits."""
    shifted = logits - logits.max(dim=1, keepdim=True).values
    log_normaliser = shifted.exp().sum(dim=1).log()
    return (log_normaliser - shifted[torch.arange(len(labels), device=labels.device), labels]).mean()


@checks(cross_entropy)
def check_cross_entropy(fn):
    batch, classes = 6, 4
    logits = 2 * torch.randn(batch, classes)
    labels = torch.tensor([3, 0, 1, 1, 2, 0])
    truth = F.cross_entropy(logits.double(), labels)
    result = call(fn, logits, labels)
    expect(
        not (isinstance(result, Tensor) and result.shape == (batch,)),
        "one loss for each image was returned; return their mean",
    )
    result = torch.as_tensor(result)
    expect_shape(result, (), "the loss is one number")
    p = logits.double().softmax(dim=1)
    shifted = logits.double() - logits.double().amax(1, keepdim=True)
    by_column = logits.double() - logits.double().amax(0)
    mistakes = {
        "that is the sum over the batch. Take the mean, or the step grows with the batch": batch * truth,
        "the sign: a log-probability is negative, the loss is minus it": -truth,
        "the softmax is applied twice: the input is logits, and one softmax is enough": F.cross_entropy(p, labels),
        "the softmax runs over the batch. Classes are axis 1": F.nll_loss(logits.double().log_softmax(0), labels),
        "divided by the number of all entries, images times classes. There is one loss for each image: divide by the "
        "images": truth / classes,
        "divided by the number of classes. There is one loss for each image: divide by the images": batch
        * truth
        / classes,
        "logits[:, labels] is a table, every label for every image. Each image has its own label: gather it": (
            logits.double().logsumexp(1)[:, None] - logits.double()[:, labels]
        ).mean(),
        "the largest logit was subtracted in the sum, but not from the label's logit, so it does not cancel": (
            shifted.exp().sum(1).log() - logits.double()[range(batch), labels]
        ).mean(),
        "the largest of each column was subtracted. It must be the same for all classes of an image, or it does not "
        "cancel: the largest of the row": F.cross_entropy(by_column, labels),
        "all classes are averaged. Only the label's log-probability counts": -p.log().mean(),
        "the normaliser is missing: the label's logit alone is no log-probability": F.nll_loss(logits.double(), labels),
        "that is the mean probability of the labels; the logarithm is missing": p[range(batch), labels].mean(),
        "that is log2, so bits. PyTorch's cross-entropy takes the natural logarithm": truth / math.log(2),
        "that is log10. PyTorch's cross-entropy takes the natural logarithm": truth / math.log(10),
    }
    otherwise = f"got {float(result):.4f}, torch's own cross-entropy is {truth:.4f}"
    compare(result.double(), truth, mistakes, otherwise, tolerance=1e-4)

    with torch.enable_grad():
        leaf, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        result = call(fn, leaf, labels)
        expect(
            isinstance(result, Tensor) and result.requires_grad,
            "the value is right, but no gradient can flow through it: return a tensor, without float, item or detach",
        )
        (gradient,) = torch.autograd.grad(result, leaf, allow_unused=True)
        (wanted,) = torch.autograd.grad(F.cross_entropy(theirs, labels), theirs)
    expect(
        close(gradient, wanted, 1e-4),
        "the value is right, but the gradient is not: a part of the sum is cut off from it. torch.tensor([...]), "
        "detach and item make plain numbers; pick the labels' logits with gather or an index",
    )

    result = torch.as_tensor(call(fn, logits + 1000, labels))
    expect(
        close(result.double(), truth, 1e-3),
        f"with 1000 added to every logit the loss must stay {truth:.4f}, got {float(result):.4f}: e^1000 overflows. "
        "Subtract the largest logit of each row first",
    )
    result = torch.as_tensor(call(fn, torch.tensor([[0.0, 200.0]]), torch.tensor([0])))
    expect(
        close(result.double(), torch.tensor(200.0).double(), 1e-3),
        f"for logits (0, 200) and label 0 the loss is 200, got {float(result)}: the probability underflows to 0 before "
        "the logarithm is taken. Subtract logarithms; do not take the logarithm of a quotient",
    )
    result = torch.as_tensor(call(fn, torch.tensor([[0.0, 1.0], [400.0, 401.0]]), torch.tensor([1, 1])))
    expect(
        close(result.double(), torch.tensor(math.log1p(math.exp(-1))).double(), 1e-3),
        "the largest logit of the whole batch was subtracted, so other rows underflow. Each row has its own",
    )


def confusion_counts(labels: Int[Tensor, " b"], predictions: Int[Tensor, " b"], num_classes: int) -> Int[Tensor, "k k"]:
    """How often class ``row`` was taken for class ``column``, ``(num_classes, num_classes)``."""
    return torch.bincount(labels * num_classes + predictions, minlength=num_classes**2).reshape(num_classes, -1)


@checks(confusion_counts)
def check_confusion_counts(fn):
    classes = 4  # class 3 occurs nowhere
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    predictions = torch.tensor([0, 0, 0, 1, 1, 2, 2, 0, 0])
    truth = torch.tensor([[3.0, 1, 0, 0], [0, 1, 1, 0], [2, 0, 1, 0], [0, 0, 0, 0]])
    result = call(fn, labels, predictions, classes)
    expect(
        not (isinstance(result, Tensor) and result.shape == (3, 3)),
        "got 3×3 for 4 classes: class 3 occurs in neither list, and still has a row and a column",
    )
    flat = {(classes**2,): "These are the counts in one row; reshape them to num_classes × num_classes"}
    expect_shape(result, (classes, classes), "one row and one column for each class", flat)
    expect(
        not close(result, truth.clamp(max=1)) and not close(result, truth.T.clamp(max=1)),
        "no count is above 1: `matrix[labels, predictions] += 1` adds once for a pair, however often it occurs",
    )
    expect(not close(result, truth.T), "rows and columns are swapped: the row is the true class")
    for total in (truth.sum(1, keepdim=True), truth.sum(0), truth.sum()):
        share = truth / total.clamp(min=1)
        expect(
            not close(result, share) and not close(result, 100 * share),
            "those are shares. Counts were wanted: they can be added up and turned into shares later",
        )
    expect(close(result, truth), f"wanted {truth.long().tolist()}, got {result.tolist()}")
