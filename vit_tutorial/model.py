"""The whole Vision Transformer, put together from the parts (chapter 5)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.attention import Attend, fused_attention
from vit_tutorial.config import ViTConfig
from vit_tutorial.encoder import NORM_EPS, Block
from vit_tutorial.patches import PatchEmbed
from vit_tutorial.positions import make_pos_embed
from vit_tutorial.validate import check_factory


class ViT(nn.Module):
    """A Vision Transformer. Its parameters have timm's names, so timm's weights load strictly.

    Args:
        config: the sizes; see :class:`~vit_tutorial.config.ViTConfig`.
        attend: the function that every head runs; you can pass your own.
        block: makes each block; you can pass your own class with the arguments of
            :class:`~vit_tutorial.encoder.Block`, or ``functools.partial(Block, attn=MyAttention)``.
        patch_embed: makes the patch embedding; you can pass your own class with the arguments of
            :class:`~vit_tutorial.patches.PatchEmbed`.

    Shapes:
        images ``(b, in_chans, H, W)``, in the dtype of the weights unless under autocast, to logits
        ``(b, num_classes)``. There is no softmax: cross-entropy takes logits.

    Raises:
        ValueError: if ``config`` is not a ViTConfig, ``block`` or ``patch_embed`` does not make a layer, or a block of
            your own returns another shape than it is given; if a batch of images has another rank, size or channel
            count than ``config`` says, or integers.

    Source: Dosovitskiy et al. 2021, section 3.1, equations 1 to 4.
    """

    def __init__(
        self,
        config: ViTConfig,
        attend: Attend = fused_attention,
        *,
        block: Callable[..., nn.Module] = Block,
        patch_embed: Callable[..., nn.Module] = PatchEmbed,
    ):
        super().__init__()
        if not isinstance(config, ViTConfig):
            raise ValueError(f"config must be a ViTConfig, for example PRESETS['vit_b_16']; got {config!r}")
        check_factory("block", block)
        check_factory("patch_embed", patch_embed)
        self.config = config
        dim = config.embed_dim
        self.patch_embed = patch_embed(config.img_size, config.patch_size, config.in_chans, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if config.pool == "cls" else None
        self.pos_embed = make_pos_embed(config.pos_embed, config.grid_size, dim, config.num_prefix_tokens)
        self.pos_drop = nn.Dropout(config.drop_rate)
        self.blocks = nn.Sequential(
            *(
                block(
                    dim,
                    config.num_heads,
                    mlp_ratio=config.mlp_ratio,
                    qkv_bias=config.qkv_bias,
                    act=config.act,
                    attend=attend,
                    drop=config.drop_rate,
                    drop_path=config.drop_path_rate * i / max(config.depth - 1, 1),
                )
                for i in range(config.depth)
            )
        )
        if block is not Block:
            for own in self.blocks:
                own.register_forward_hook(_check_shape)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS) if config.final_norm else nn.Identity()
        self.head = nn.Linear(dim, config.num_classes) if config.num_classes else nn.Identity()
        init_weights(self)

    def forward_features(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        """Images to the normalised tokens of the last block, ``(b, num_tokens, embed_dim)``."""
        x = self.patch_embed(images)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        if self.pos_embed is not None:
            x = x + self.pos_embed
        return self.norm(self.blocks(self.pos_drop(x)))

    def forward_head(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b k"]:
        """Tokens to logits, ``(b, num_classes)``: read the class token, or the mean of the patch tokens."""
        return self.head(x[:, 0] if self.config.pool == "cls" else x.mean(dim=1))

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b k"]:
        return self.forward_head(self.forward_features(images))


def _check_shape(block: nn.Module, args: tuple[Tensor, ...], out: object) -> None:
    if not isinstance(out, Tensor) or out.shape != args[0].shape:
        got = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise ValueError(
            f"a block must return a tensor of the shape that it is given, {tuple(args[0].shape)}; "
            f"{type(block).__name__} returns {got}"
        )


@torch.no_grad()
def init_weights(model: ViT) -> None:
    """Initialize in place: every matrix by Glorot's uniform rule, biases zero, the rest normal with std 0.02.

    ``qkv`` holds three matrices in one, so each third is drawn for itself; the patch projection counts as the
    matrix that it is. The head's small weights make the first loss close to ln(num_classes).

    Source: the paper's own code (google-research/vision_transformer), where queries, keys and values are three layers;
    there the head and the class token start at zero.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            for part in module.weight.chunk(3) if name.endswith("qkv") else [module.weight]:
                nn.init.xavier_uniform_(part.flatten(1))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    small = [model.cls_token, getattr(model.head, "weight", None)]
    if model.config.pos_embed == "learned":
        small.append(model.pos_embed)
    for parameter in small:
        if parameter is not None:
            nn.init.normal_(parameter, std=0.02)
