"""What the Vision Transformer is compared with: the order of norms that it replaced (chapter 10)."""

from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.encoder import Block
from vit_tutorial.model import ViT
from vit_tutorial.recipes import Recipe, make_model


class PostNormBlock(Block):
    """A block as the first transformer had it: the norms stand on the residual stream, after each sum.

    Source: Vaswani et al. 2017, section 3.1.
    """

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        x = self.norm1(x + self.drop_path(self.attn(x)))
        return self.norm2(x + self.drop_path(self.mlp(x)))


def post_norm(recipe: Recipe) -> ViT:
    """The recipe's model with post-norm blocks, which end with a norm, so there is none after the last."""
    model = make_model(recipe)
    for block in model.blocks:
        block.__class__ = PostNormBlock  # the same parts in another order
    model.norm = nn.Identity()
    return model
