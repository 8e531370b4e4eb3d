"""The shape of a Vision Transformer as data: one frozen config, and the named sizes that were published."""

from dataclasses import dataclass

from vit_tutorial.old_names import WithOldNames
from vit_tutorial.validate import (
    check_bool,
    check_divisible,
    check_fraction,
    check_int,
    check_number,
    check_option,
    check_tiles,
)

OPTIONS = {
    "pos_embed": ("learned", "sincos_1d", "sincos_2d", "none"),
    "pool": ("cls", "mean"),
    "act": ("gelu", "gelu_tanh"),
}


@dataclass(frozen=True)
class ViTConfig:
    """Everything that determines the shape of a ViT. Defaults are ViT-B/16 (Dosovitskiy et al. 2021, Table 1).

    Args:
        img_size: pixels, an int or an (height, width) pair.
        patch_size: pixels, an int or an (height, width) pair; must divide ``img_size``.
        in_chans: channels of the image; 1 for grey, 3 for colour.
        num_classes: outputs of the head; with 0 there is no head, and the model returns features.
        embed_dim: width of every token; must be divisible by ``num_heads``.
        depth: number of encoder blocks.
        num_heads: attention heads in each block.
        mlp_ratio: hidden width of the MLP, as a multiple of ``embed_dim``.
        qkv_bias: whether queries, keys and values have a bias.
        pos_embed: ``"learned"``, ``"sincos_1d"``, ``"sincos_2d"`` or ``"none"``.
        pool: ``"cls"`` reads a class token; ``"mean"`` has none and averages the patch tokens.
        act: ``"gelu"``, or its tanh approximation ``"gelu_tanh"``.
        final_norm: LayerNorm after the last block; pre-norm blocks need it (chapter 4).
        drop_rate: dropout after the positions and after each projection except the query-key-value one.
        drop_path_rate: probability of skipping the last block; earlier ones rise to it linearly.

    Raises:
        ValueError: if the sizes do not fit together or an option is unknown.
    """

    img_size: int | tuple[int, int] = 224
    patch_size: int | tuple[int, int] = 16
    in_chans: int = 3
    num_classes: int = 1000
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    pos_embed: str = "learned"
    pool: str = "cls"
    act: str = "gelu"
    final_norm: bool = True
    drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self):
        img_size, patch_size = check_tiles(self.img_size, self.patch_size)
        object.__setattr__(self, "img_size", img_size)
        object.__setattr__(self, "patch_size", patch_size)
        for name, low in (("in_chans", 1), ("num_classes", 0), ("embed_dim", 1), ("depth", 1), ("num_heads", 1)):
            check_int(name, getattr(self, name), low)
        check_number("mlp_ratio", self.mlp_ratio, 0)
        if int(self.embed_dim * self.mlp_ratio) < 1:
            raise ValueError(f"embed_dim {self.embed_dim} times mlp_ratio {self.mlp_ratio} must be at least 1")
        check_divisible("embed_dim", self.embed_dim, "num_heads", self.num_heads)
        if self.pos_embed == "sincos_2d":
            check_divisible("embed_dim", self.embed_dim, "the four parts of pos_embed='sincos_2d':", 4)
        for name, allowed in OPTIONS.items():
            check_option(name, getattr(self, name), allowed)
        for name in ("qkv_bias", "final_norm"):
            check_bool(name, getattr(self, name))
        for name in ("drop_rate", "drop_path_rate"):
            check_fraction(name, getattr(self, name))

    @property
    def grid_size(self) -> tuple[int, int]:
        """Patches per column and per row, ``(gh, gw)``."""
        return self.img_size[0] // self.patch_size[0], self.img_size[1] // self.patch_size[1]

    @property
    def num_patches(self) -> int:
        """Patches of an image, gh · gw."""
        return self.grid_size[0] * self.grid_size[1]

    @property
    def num_prefix_tokens(self) -> int:
        """The number of tokens before the patches, one class token or none."""
        return int(self.pool == "cls")

    @property
    def num_tokens(self) -> int:
        """The number of tokens that an image becomes, with the class token if there is one."""
        return self.num_prefix_tokens + self.num_patches

    @property
    def head_dim(self) -> int:
        """How many of a token's features each head sees, embed_dim / num_heads."""
        return self.embed_dim // self.num_heads


def _published(embed_dim: int, depth: int, num_heads: int, patch_size: int) -> ViTConfig:
    return ViTConfig(embed_dim=embed_dim, depth=depth, num_heads=num_heads, patch_size=patch_size)


PRESETS = WithOldNames({
    # Dosovitskiy et al. 2021, Table 1 (B, L, H); Touvron et al. 2021 and Steiner et al. 2022 (Ti, S).
    "vit_ti_16": _published(192, 12, 3, patch_size=16),
    "vit_s_16": _published(384, 12, 6, patch_size=16),
    "vit_s_32": _published(384, 12, 6, patch_size=32),
    "vit_b_16": _published(768, 12, 12, patch_size=16),
    "vit_b_32": _published(768, 12, 12, patch_size=32),
    "vit_l_16": _published(1024, 24, 16, patch_size=16),
    "vit_l_32": _published(1024, 24, 16, patch_size=32),
    "vit_h_14": _published(1280, 32, 16, patch_size=14),
    # Models of five published tutorials; two have the same one. The first is "Building a Vision Transformer Model From
    # Scratch", the third "An Annotated Vision Transformer".
    "building_a_vit": ViTConfig(
        img_size=32, patch_size=16, in_chans=1, num_classes=10, embed_dim=9, depth=3, num_heads=3,
        pos_embed="sincos_1d", final_norm=False,
    ),
    "cifar10_tiny": ViTConfig(
        img_size=32, patch_size=4, num_classes=10, embed_dim=48, depth=4, num_heads=4, act="gelu_tanh", final_norm=False
    ),
    "annotated_vit": ViTConfig(num_heads=8),
    "cifar10_small": ViTConfig(img_size=32, patch_size=4, num_classes=10, embed_dim=192, depth=6, num_heads=3),
})  # fmt: skip
