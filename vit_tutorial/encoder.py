"""The block that is stacked: attention and an MLP, each normalised first and added to the stream (chapter 4)."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.attention import Attend, Attention, fused_attention
from vit_tutorial.validate import check_factory, check_fraction, check_int, check_option

NORM_EPS = 1e-6  # timm and torchvision; nn.LayerNorm's own default is 1e-5, Hugging Face's ViT has 1e-12
ACTIVATIONS = {"gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU(approximate="tanh")}


class Mlp(nn.Module):
    """Two linear layers with a GELU in between, on each token by itself. ``(..., dim)`` to ``(..., dim)``.

    Args:
        dim: width of a token.
        hidden_dim: width between the two layers.
        act: ``"gelu"`` or ``"gelu_tanh"``.
        drop: dropout after each layer.

    Raises:
        ValueError: if ``act`` is unknown or ``hidden_dim`` not an int of at least 1.
    """

    def __init__(self, dim: int, hidden_dim: int, *, act: str = "gelu", drop: float = 0.0):
        super().__init__()
        check_option("act", act, ACTIVATIONS)
        check_int("hidden_dim", hidden_dim, 1)
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.act = ACTIVATIONS[act]()
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class DropPath(nn.Module):
    """In training, zero each image of the batch with probability ``p``, and divide the others by 1 − p.

    On a residual branch this skips the branch for those images. In evaluation it does nothing.

    Raises:
        ValueError: unless 0 ≤ p < 1.

    Source: Huang et al. 2016, "Deep networks with stochastic depth".
    """

    def __init__(self, p: float = 0.0):
        super().__init__()
        check_fraction("p", p)
        self.p = p

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        if not self.training or self.p == 0:
            return x
        keep = x.new_empty(x.shape[0], *[1] * (x.ndim - 1)).bernoulli_(1 - self.p)
        return x * keep / (1 - self.p)


class Block(nn.Module):
    """One pre-norm encoder block: two residual lines (Dosovitskiy et al. 2021, equations 2 and 3).

    Args:
        dim: width of a token; must be divisible by ``num_heads``.
        num_heads: attention heads.
        mlp_ratio: hidden width of the MLP, as a multiple of ``dim``.
        qkv_bias: whether queries, keys and values have a bias.
        act: ``"gelu"`` or ``"gelu_tanh"``.
        attend: the function that each head runs; see :class:`~vit_tutorial.attention.Attention`.
        attn: makes the attention layer; you can pass your own class with the arguments of
            :class:`~vit_tutorial.attention.Attention`.
        drop: dropout after attention's last projection and after each layer of the MLP.
        drop_path: probability of skipping a branch; see :class:`DropPath`.

    Shapes:
        ``(b, n, dim)`` to ``(b, n, dim)``.

    Raises:
        ValueError: if ``attn`` does not make a layer.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        act: str = "gelu",
        attend: Attend = fused_attention,
        attn: Callable[..., nn.Module] = Attention,
        drop: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        check_factory("attn", attn)
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attn = attn(dim, num_heads, qkv_bias=qkv_bias, attend=attend, drop=drop)
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act=act, drop=drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x
