"""Before the blocks and behind them: a convolutional stem, fewer patches or more tokens, and attention as the pool."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.attention import Attend, fused_attention
from vit_tutorial.config import ViTConfig
from vit_tutorial.encoder import Mlp
from vit_tutorial.model import ViT
from vit_tutorial.modern.blocks import LayerNorm, ModernBlock
from vit_tutorial.patches import PatchEmbed
from vit_tutorial.validate import check_divisible, check_factory, check_fraction, check_int, checked


class ConvStem(PatchEmbed):
    """Patches to tokens by 3×3 convolutions that halve the image until a pixel is left of each patch, and a 1×1 one.

    This is the border of what is called a plain ViT: a token sees a little of its neighbours before any attention.

    Args, shapes and errors are those of :class:`~vit_tutorial.patches.PatchEmbed`, and:

    Raises:
        ValueError: if a side of the patches is not a power of 2, or ``embed_dim`` cannot be halved as often.

    Source: Xiao et al. 2021, "Early convolutions help Transformers see better"; a ViT of torchvision with
    ``conv_stem_configs``.
    """

    def _projection(self, embed_dim: int) -> nn.Module:
        halvings = [side.bit_length() - 1 for side in self.patch_size]
        if any(side != 1 << times for side, times in zip(self.patch_size, halvings, strict=True)):
            raise ValueError(f"patch_size {self.patch_size} must be powers of 2: each convolution halves the image")
        depth = max(halvings)
        check_divisible("embed_dim", embed_dim, f"2^{depth - 1} for {depth} halvings:", 1 << max(depth - 1, 0))
        layers, chans = [], self.in_chans
        for i in range(depth):
            width, stride = embed_dim >> (depth - 1 - i), tuple(1 + (i < times) for times in halvings)
            layers += [nn.Conv2d(chans, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            chans = width
        return nn.Sequential(*layers, nn.Conv2d(chans, embed_dim, 1))


class PatchDropout(nn.Module):
    """In training, leaves out a fraction of the patches of each image, others for each; the steps get cheaper.

    Args:
        prob: the fraction that goes.
        num_prefix_tokens: how many tokens in front always stay: class token and registers.

    Shapes:
        ``(b, n, d)`` to ``(b, m, d)``: the prefix and ``max(1, int((1 − prob) · patches))`` patches in random order,
        or everything in evaluation mode.

    Raises:
        ValueError: unless 0 ≤ prob < 1.

    Source: Liu et al. 2022, "PatchDropout"; timm's ``PatchDropout``.
    """

    def __init__(self, prob: float = 0.5, num_prefix_tokens: int = 1):
        super().__init__()
        check_fraction("prob", prob)
        self.prob, self.num_prefix_tokens = prob, num_prefix_tokens

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b m d"]:
        if not self.training or self.prob == 0:
            return x
        prefix, patches = x[:, : self.num_prefix_tokens], x[:, self.num_prefix_tokens :]
        number = max(1, int(patches.shape[1] * (1 - self.prob)))
        kept = torch.randn(patches.shape[:2], device=x.device).argsort(dim=-1)[:, :number]
        return torch.cat([prefix, patches.take_along_dim(kept[..., None], dim=1)], dim=1)


class SequencePool(nn.Module):
    """The weighted mean of all tokens, with weights from one linear layer and a softmax: no class token is needed.

    Args:
        dim: width of a token.

    Shapes:
        ``(b, n, dim)`` to ``(b, dim)``.

    Source: Hassani et al. 2021, "Escaping the big data paradigm with compact Transformers", where it is called SeqPool
    and makes a ViT a CVT.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.attention_pool = nn.Linear(dim, 1)
        nn.init.trunc_normal_(self.attention_pool.weight, std=0.02)  # so that it starts as the mean, nearly

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        weights = self.attention_pool(x).softmax(dim=1)
        return (weights.mT @ x).squeeze(dim=1)


class AttentionPoolLatent(nn.Module):
    """A learned query attends to all tokens, and an MLP follows: what is also called a MAP head.

    Args:
        dim: width of a token; must be divisible by ``num_heads``.
        num_heads: attention heads.
        mlp_ratio: hidden width of the MLP, as a multiple of ``dim``.
        act: of the MLP, ``"gelu"`` or ``"gelu_tanh"``.

    Shapes:
        ``(b, n, dim)`` to ``(b, dim)``.

    Raises:
        ValueError: if ``num_heads`` does not divide ``dim``.

    Source: Zhai et al. 2022, "Scaling Vision Transformers", after Lee et al. 2019, "Set Transformer";
    timm's module of this name, with the LayerNorm that its ``VisionTransformer`` gives it.
    """

    def __init__(self, dim: int, num_heads: int = 8, *, mlp_ratio: float = 4.0, act: str = "gelu"):
        super().__init__()
        check_divisible("dim", dim, "num_heads", num_heads)
        self.num_heads = num_heads
        self.latent = nn.Parameter(torch.empty(1, 1, dim))
        nn.init.trunc_normal_(self.latent, std=dim**-0.5)
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm = LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act=act)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b d"]:
        q = rearrange(self.q(self.latent), "one n (h hd) -> one h n hd", h=self.num_heads).expand(len(x), -1, -1, -1)
        k, v = rearrange(self.kv(x), "b n (two h hd) -> two b h n hd", two=2, h=self.num_heads)
        x = self.proj(rearrange(F.scaled_dot_product_attention(q, k, v), "b h n hd -> b n (h hd)"))
        return (x + self.mlp(self.norm(x))).squeeze(dim=1)


@checked
def without_registers(weights: Float[Tensor, "*b n n"], config: ViTConfig) -> Float[Tensor, "*b m m"]:
    """Attention weights of class token and patches alone, as what draws maps wants them.

    Args:
        weights: of a :class:`ModernViT`, ``(..., n, n)``.
        config: of the model; what it has no tokens for are registers.

    Returns:
        ``(..., m, m)`` with m = ``config.num_tokens``. A row sums to 1 without what went to registers.

    Raises:
        ValueError: if there are fewer tokens than the config has.
    """
    registers = weights.shape[-1] - config.num_tokens
    if registers < 0:
        raise ValueError(f"the weights are of {weights.shape[-1]} tokens, the config has {config.num_tokens}")
    tokens = torch.arange(weights.shape[-1], device=weights.device)
    kept = (tokens < config.num_prefix_tokens) | (tokens >= config.num_prefix_tokens + registers)
    return weights[..., kept, :][..., kept]


class ModernViT(ViT):
    """A ViT with registers, patch dropout, a pool or another last norm; without them it is ``ViT``.

    Args:
        norm: makes the last norm from the width; blocks have their own.
        reg_tokens: learned tokens between class token and patches that have no position. The blocks may leave notes in
            them; they are gone before the head, also from a mean.
        patch_drop: see :class:`PatchDropout`.
        attn_pool: makes what reads the patches' tokens in place of ``config.pool``, from the width, as in
            ``attn_pool=SequencePool``.

    The others, shapes and errors are those of :class:`~vit_tutorial.model.ViT`.

    Raises:
        ValueError: if ``reg_tokens`` is not an int of at least 0, ``patch_drop`` not a fraction, or ``norm`` or
            ``attn_pool`` does not make a layer.

    Source: for the registers Darcet et al. 2024, "Vision Transformers need registers"; names as in timm's
    ``VisionTransformer`` with ``no_embed_class``, whose class token has no position either.
    """

    def __init__(
        self,
        config: ViTConfig,
        attend: Attend = fused_attention,
        *,
        block: Callable[..., nn.Module] = ModernBlock,
        patch_embed: Callable[..., nn.Module] = PatchEmbed,
        norm: Callable[[int], nn.Module] = LayerNorm,
        reg_tokens: int = 0,
        patch_drop: float = 0.0,
        attn_pool: Callable[[int], nn.Module] | None = None,
    ):
        super().__init__(config, attend, block=block, patch_embed=patch_embed)
        check_factory("norm", norm)
        check_int("reg_tokens", reg_tokens, 0)
        dim = config.embed_dim
        self.reg_token = nn.Parameter(0.02 * torch.randn(1, reg_tokens, dim)) if reg_tokens else None
        self.patch_drop = PatchDropout(patch_drop, config.num_prefix_tokens + reg_tokens)
        if config.final_norm:
            self.norm = norm(dim)
        if attn_pool is not None:
            check_factory("attn_pool", attn_pool)
        self.attn_pool = attn_pool(dim) if attn_pool else None

    def forward_features(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        """Images to the normalised tokens of the last block, without the registers."""
        x, first = self.patch_embed(images), self.config.num_prefix_tokens
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        if self.reg_token is not None:
            x = torch.cat([x[:, :first], self.reg_token.expand(len(x), -1, -1), x[:, first:]], dim=1)
        x = self.norm(self.blocks(self.patch_drop(self.pos_drop(x))))
        if self.reg_token is not None:
            x = torch.cat([x[:, :first], x[:, first + self.reg_token.shape[1] :]], dim=1)
        return x

    def forward_head(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b k"]:
        """Tokens to logits, ``(b, num_classes)``, by the pool if there is one."""
        if self.attn_pool is None:
            return super().forward_head(x)
        return self.head(self.attn_pool(x[:, self.config.num_prefix_tokens :]))
