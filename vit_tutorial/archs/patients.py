"""Fifteen sick Vision Transformers: each has one bug, as the smallest change to a healthy model (chapter 12)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.attention import Attention, AttentionHead
from vit_tutorial.config import ViTConfig
from vit_tutorial.encoder import Block
from vit_tutorial.model import ViT, init_weights
from vit_tutorial.patches import PatchEmbed
from vit_tutorial.validate import checked

History = Sequence[dict[str, float]]


def last_epoch(history: History) -> int:
    """Healthy: which epoch counts was decided before training."""
    return len(history) - 1


def best_on_validation(history: History) -> int:
    """Healthy: chosen, but not on the test images."""
    return max(range(len(history)), key=lambda i: history[i]["val_accuracy"])


def best_on_test(history: History) -> int:
    """Sick: the reported accuracy was also what chose the epoch."""
    return max(range(len(history)), key=lambda i: history[i]["test_accuracy"])


class SoftmaxHead(ViT):
    """Returns probabilities, which cross-entropy takes for logits."""

    def forward_head(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b k"]:
        return super().forward_head(x).softmax(dim=-1)


class HeadOnAllTokens(ViT):
    """Never selects a token. As published it returns (b, n, k); with a mean over n, as here, it trains."""

    def forward_head(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b k"]:
        return self.head(x).mean(dim=1)


class SequenceFirstAttention(Attention):
    """What nn.MultiheadAttention does without batch_first=True: it reads (b, n, d) as n images of b tokens."""

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


class DeadNormBlock(Block):
    """The branch is computed from the raw stream; the lambda ignores the normalised tokens it receives."""

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        attended = self.drop_path(self.attn(x))
        x = self.residual(x, self.norm1, lambda normed: attended)
        transformed = self.drop_path(self.mlp(x))
        return self.residual(x, self.norm2, lambda normed: transformed)

    @staticmethod
    def residual(x: Tensor, norm: nn.Module, branch: Callable[[Tensor], Tensor]) -> Tensor:
        return x + branch(norm(x))


class ReshapedPatches(PatchEmbed):
    """One reshape gives the right shape, but a token holds pixels that are neighbours in memory, not in a patch."""

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        weight = self.proj.weight.flatten(1)
        patches = images.reshape(len(images), -1, weight.shape[1])
        return F.linear(patches, weight, self.proj.bias)


class ColoursLastPatches(PatchEmbed):
    """Flattens a patch as (ph pw c), while the weights, those of a convolution, expect (c ph pw)."""

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        ph, pw = self.patch_size
        order = "b c (gh ph) (gw pw) -> b (gh gw) (ph pw c)"
        patches = rearrange(images, order, ph=ph, pw=pw)
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class SlicedHeads(nn.Module):
    """Each head sees its own slice of a token, and nothing mixes the heads afterwards."""

    def __init__(self, dim: int, num_heads: int, *, qkv_bias: bool = True, drop: float = 0.0):
        super().__init__()
        hd = dim // num_heads
        heads = [AttentionHead(hd, hd, qkv_bias=qkv_bias) for _ in range(num_heads)]
        self.heads = nn.ModuleList(heads)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        slices = x.chunk(len(self.heads), dim=-1)
        out = [head(part) for head, part in zip(self.heads, slices, strict=True)]
        return self.drop(torch.cat(out, dim=-1))


def attention_scaled_by_dim(
    q: Float[Tensor, "b h n hd"], k: Float[Tensor, "b h n hd"], v: Float[Tensor, "b h n hd"]
) -> Float[Tensor, "b h n hd"]:
    """Scores divided by √dim of the whole token; the paper divides by √head_dim."""
    dim = q.shape[1] * q.shape[3]
    return F.scaled_dot_product_attention(q, k, v, scale=dim**-0.5)


def attention_over_queries(
    q: Float[Tensor, "b h n hd"], k: Float[Tensor, "b h m hd"], v: Float[Tensor, "b h m hd"]
) -> Float[Tensor, "b h n hd"]:
    """The softmax runs over the queries: each key's weights sum to 1, and a query's to anything from 0 to n."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return scores.softmax(dim=-2) @ v


class ReshapedHeads(Attention):
    """Heads are split and glued by reshapes alone: a head gets all features of n/h tokens, not n tokens' features."""

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        b, n, d = x.shape
        heads = (b, self.num_heads, n, d // self.num_heads)
        q, k, v = (part.reshape(heads) for part in self.qkv(x).chunk(3, dim=-1))
        return self.drop(self.proj(self.attend(q, k, v).reshape(b, n, d)))


class AlwaysDropout(nn.Dropout):
    """Dropout that evaluation doesn't stop: F.dropout drops unless it's told training=False."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p)


class AlwaysDroppingBlock(Block):
    """The dropout of both branches stays on in evaluation."""

    def __init__(self, dim: int, num_heads: int, **options):
        super().__init__(dim, num_heads, **options)
        self.attn.drop = self.mlp.drop = AlwaysDropout(self.mlp.drop.p)


class BatchSizedClassToken(ViT):
    """A class token for each row of the batch. As published, other batch sizes fail; here rows are reused."""

    ROWS = 64

    def __init__(self, config: ViTConfig):
        super().__init__(config)
        tokens = 0.02 * torch.randn(self.ROWS, 1, config.embed_dim)
        self.cls_token = nn.Parameter(tokens)

    def forward_features(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        x = self.patch_embed(images)
        rows = torch.arange(len(x), device=x.device) % self.ROWS
        x = torch.cat([self.cls_token[rows], x], dim=1)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        return self.norm(self.blocks(self.pos_drop(x)))


class NoClassPosition(ViT):
    """Positions are added before the class token is put in front, so row 0 of the table is never read."""

    def forward_features(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        x = self.patch_embed(images) + self.pos_embed[:, 1:]
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.norm(self.blocks(self.pos_drop(x)))


def _slice_heads(config: ViTConfig) -> ViT:
    model = ViT(config)
    healthy = {name: value.clone() for name, value in model.state_dict().items() if ".attn." not in name}
    for block in model.blocks:
        block.attn = SlicedHeads(config.embed_dim, config.num_heads, qkv_bias=config.qkv_bias, drop=config.drop_rate)
    init_weights(model)
    model.load_state_dict(healthy, strict=False)  # all but attention is initialized as in a healthy model
    return model


@dataclass(frozen=True)
class Patient:
    """A bug, and how to build a model that has it.

    Args:
        name: of the bug.
        symptom: what you see of it.
        published: where it was found, or how it comes about, as a clause.
        build: makes the sick model from a config.
        select: picks the epoch of a history that counts; sick in one patient only.
        needs: what a config must have for the bug to matter, in words and as a test.
        changes: fields of the config that cause the bug, if a config can.
    """

    name: str
    symptom: str
    published: str
    build: Callable[[ViTConfig], nn.Module] = ViT
    select: Callable[[History], int] = last_epoch
    needs: tuple[str, Callable[[ViTConfig], bool]] = ("nothing", lambda config: True)
    changes: dict[str, object] = field(default_factory=dict)

    def make(self, config: ViTConfig) -> nn.Module:
        """The sick model: ``ViT(config)`` with the bug and nothing else changed. Set the random seed beforehand.

        Weights are initialized as in the healthy model, wherever the bug leaves them the same shape.

        Raises:
            ValueError: if the bug would change nothing in a model of these sizes.
        """
        self.check(config)
        return self.build(replace(config, **self.changes))

    def check(self, config: ViTConfig) -> None:
        """Raise a ValueError if the bug would change nothing in a model of these sizes."""
        what, is_met = self.needs
        if not is_met(config):
            raise ValueError(f"{self.name!r} needs {what}, or the bug changes nothing; got {config}")


_HAS_CLASS_TOKEN = ("pool 'cls'", lambda config: config.pool == "cls")
_HAS_CLASS_POSITION = (
    "pool 'cls' and positions",
    lambda config: config.pool == "cls" and config.pos_embed != "none",
)
_HAS_HEADS = ("num_heads above 1", lambda config: config.num_heads > 1)

PATIENTS = {
    patient.name: patient
    for patient in (
        Patient(
            "softmax before cross-entropy",
            "the loss falls, and stops far above 0",
            "found in a published tutorial, and in BrianPulfer/PapersReimplementations",
            SoftmaxHead,
        ),
        Patient(
            "attention across the batch",
            "a class token never sees a pixel; with mean pooling, an image is judged by its neighbours in the batch",
            "found in a published tutorial, and in an example that pytorch/examples has deleted since; its documented "
            "losses, 2.308 in training and 2.3029 in validation, are all but ln 10",
            lambda config: ViT(config, block=partial(Block, attn=SequenceFirstAttention)),
        ),
        Patient(
            "dead residual norm",
            "the norms of the blocks keep their initial weights forever",
            "found in a published tutorial",
            lambda config: ViT(config, block=DeadNormBlock),
        ),
        Patient(
            "reshape without permute",
            "every shape is right; the patches, shown as images, are stripes",
            "found in gupta-abhay/pytorch-vit, #7; also what you get if you complete a published tutorial with one "
            "more reshape",
            lambda config: ViT(config, patch_embed=ReshapedPatches),
            needs=(
                "more than one patch in a row, or several channels and patches",
                lambda config: config.grid_size[1] > 1 or (config.in_chans > 1 and config.num_patches > 1),
            ),
        ),
        Patient(
            "colours last",
            "none after training from scratch; with another library's weights it predicts nonsense",
            "what you get if you load a convolution's weights into lucidrains/vit-pytorch, whose own order is not a "
            "bug; its #184 compares the two",
            lambda config: ViT(config, patch_embed=ColoursLastPatches),
            needs=(
                "in_chans above 1 and patches of several pixels",
                lambda config: config.in_chans > 1 and config.patch_size != (1, 1),
            ),
        ),
        Patient(
            "no final norm",
            "the head reads vectors that get longer with every block",
            "found in two published tutorials, one of them in two editions",
            changes={"final_norm": False},
        ),
        Patient(
            "per-head slices",
            "fewer parameters than the paper's attention, and heads that never exchange information",
            "found in BrianPulfer/PapersReimplementations",
            _slice_heads,
            needs=_HAS_HEADS,
        ),
        Patient(
            "scale by √dim",
            "attention is closer to uniform than it should be",
            "found in omihub777/ViT-CIFAR, which reports 90.9 % on CIFAR-10 all the same",
            lambda config: ViT(config, attend=attention_scaled_by_dim),
            needs=_HAS_HEADS,
        ),
        Patient(
            "batch-sized class token",
            "the same image gets other logits in another row of the batch",
            "found in several public repositories, the example deleted from pytorch/examples among them; in some of "
            "them with positions for each row as well",
            BatchSizedClassToken,
            needs=_HAS_CLASS_TOKEN,
        ),
        Patient(
            "head on all tokens",
            "the output has an extra token axis, or the class token counts no more than any other token",
            "found in a published tutorial",
            HeadOnAllTokens,
            needs=_HAS_CLASS_TOKEN,
        ),
        Patient(
            "no position on the class token",
            "one row of the table never changes",
            "found in labmlai/annotated_deep_learning_paper_implementations, since mended; DeiT III and big_vision "
            "rightly leave out its row as well as the position, which timm calls no_embed_class",
            NoClassPosition,
            needs=_HAS_CLASS_POSITION,
        ),
        Patient(
            "softmax over the wrong axis",
            "a query's weights don't sum to 1, so that attention returns no mean of the values",
            "found in 3 of 14 student models that we read, and in several public repositories; some take the axis of "
            "the heads",
            lambda config: ViT(config, attend=attention_over_queries),
            needs=("more than one token", lambda config: config.num_tokens > 1),
        ),
        Patient(
            "heads without a transpose",
            "with h heads, a token reads only the n/h tokens next to it in the sequence",
            "found in several public repositories, in some of them at only one of the two reshapes",
            lambda config: ViT(config, block=partial(Block, attn=ReshapedHeads)),
            needs=("num_heads above 1 and more than one token", lambda c: c.num_heads > 1 and c.num_tokens > 1),
        ),
        Patient(
            "random while evaluating",
            "the same image, asked twice, gets two answers",
            "found in many public repositories: F.dropout without training=self.training, nn.Dropout made in forward, "
            "DropPath that doesn't ask",
            lambda config: ViT(config, block=AlwaysDroppingBlock),
            changes={"drop_rate": 0.1},
        ),
        Patient(
            "selection on the test set",
            "the reported accuracy is higher than on new images",
            "found in many training scripts, which keep the epoch with the best test accuracy; the example deleted "
            "from pytorch/examples kept the weights with the least loss on CIFAR-10's test images",
            select=best_on_test,
        ),
    )
}


@checked
def make_patient(name: str, config: ViTConfig) -> nn.Module:
    """A patient's model by name, or the ``ViT`` for ``"healthy"``. Set the random seed beforehand.

    Raises:
        ValueError: if there is no such patient, or the bug would change nothing in a model of these sizes.
    """
    if name == "healthy":
        return ViT(config)
    if name not in PATIENTS:
        raise ValueError(f"there is no patient {name!r}; there are healthy, {', '.join(PATIENTS)}")
    return PATIENTS[name].make(config)
