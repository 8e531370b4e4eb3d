"""Rotary positions in two dimensions: pairs of features turn with the patch's place, so scores see differences."""

from collections.abc import Callable
from math import pi

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.validate import check_divisible, check_int, check_number, checked, to_pair

PAIRS = "(f two)"  # (0, 1), (2, 3) … as in RoFormer, EVA and RoPE-ViT
HALVES = "(two f)"  # feature i with i + hd/2, as in GPT-NeoX, DINOv3 and Llama on Hugging Face


@checked
def rotate(
    x: Float[Tensor, "*b n hd"], cos: Float[Tensor, "*h n f"], sin: Float[Tensor, "*h n f"], *, halves: bool = False
) -> Float[Tensor, "*b n hd"]:
    """Turn each pair of features by an angle of its own: (a, b) becomes (a cos − b sin, a sin + b cos).

    Args:
        x: queries or keys, ``(..., n, hd)``.
        cos, sin: of the angles, ``(n, hd/2)`` or with axes for heads in front.
        halves: whether a pair is the features i and i + hd/2; by default it is 2i and 2i + 1.

    Returns:
        ``(..., n, hd)``, of the same lengths and in the dtype of ``x``.

    Raises:
        ValueError: if there is not one angle for each pair of each token.

    Source: Su et al. 2021, "RoFormer"; timm's ``apply_rot_embed``.
    """
    if x.shape[-2:] != (cos.shape[-2], 2 * cos.shape[-1]):
        raise ValueError(
            f"x has {x.shape[-2]} tokens of {x.shape[-1]} features, and there are angles for {cos.shape[-2]} tokens of "
            f"{2 * cos.shape[-1]}: every token needs its own"
        )
    order = HALVES if halves else PAIRS
    a, b = rearrange(x, f"... {order} -> two ... f", two=2)
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos])
    return rearrange(turned, f"two ... f -> ... {order}").to(x.dtype)


def grid_coordinates(grid_size: int | tuple[int, int]) -> Float[Tensor, "n 2"]:
    """Row and column of every patch, counted from 0, the grid row by row; float64."""
    gh, gw = to_pair("grid_size", grid_size)
    return torch.cartesian_prod(torch.arange(gh, dtype=torch.float64), torch.arange(gw, dtype=torch.float64))


def centred_coordinates(grid_size: int | tuple[int, int]) -> Float[Tensor, "n 2"]:
    """Where in the image the middle of every patch is, from −2π at one edge to 2π at the other, whatever the grid.

    Source: Siméoni et al. 2025, "DINOv3"; timm's ``RotaryEmbeddingDinoV3``.
    """
    sides = torch.tensor(to_pair("grid_size", grid_size))
    return 2 * pi * ((2 * grid_coordinates(grid_size) + 1) / sides - 1)


@checked
def axial_angles(
    grid_size: int | tuple[int, int],
    head_dim: int,
    *,
    theta: float = 100.0,
    coordinates: Callable[[tuple[int, int]], Tensor] = grid_coordinates,
) -> Float[Tensor, "n f"]:
    """Angles for every patch: the first half of the pairs turns with the row, the second with the column.

    ``angle[n, i] = row · theta^(−4i/hd)``, and the same for the column.

    Args:
        grid_size: patches, an int or an (gh, gw) pair.
        head_dim: features of a head; divisible by 4, so that row and column each have whole pairs.
        theta: the slowest pairs turn about 1/theta in a step; 100 in RoPE-ViT's axial models and DINOv3, 10000 in
            EVA and ViT-5.
        coordinates: of the patches, ``(n, 2)``; :func:`centred_coordinates` for DINOv3.

    Returns:
        ``(gh·gw, head_dim / 2)``, float64; on a larger grid, the patches that were there keep their angles.

    Raises:
        ValueError: if ``head_dim`` is not divisible by 4.

    Source: Heo et al. 2024, "Rotary position embedding for Vision Transformer"; timm's
    ``RotaryEmbeddingCat`` with ``in_pixels=False``.
    """
    check_int("head_dim", head_dim, 4)
    check_number("theta", theta, 1)
    check_divisible("head_dim", head_dim, "the four parts: two features in a pair × row, column:", 4)
    frequencies = theta ** -(torch.arange(0, head_dim, 4, dtype=torch.float64) / head_dim)
    places = coordinates(to_pair("grid_size", grid_size))
    return rearrange(places[..., None] * frequencies, "n side f -> n (side f)")


class Rope(nn.Module):
    """Turns queries or keys by fixed angles, which follow from the sizes and so are not stored with the weights.

    Args:
        angles: ``(n, hd/2)``, a row for every token; rows of 0 leave theirs alone.
        halves: see :func:`rotate`.

    Shapes:
        ``(b, h, n, hd)`` to ``(b, h, n, hd)``.

    Raises:
        ValueError: if it is given another number of tokens.
    """

    def __init__(self, angles: Float[Tensor, "n f"], *, halves: bool = False):
        super().__init__()
        self.halves = halves
        # Not the angles: in half precision, those far out would lose their meaning.
        self.cos = nn.Buffer(angles.cos().float(), persistent=False)
        self.sin = nn.Buffer(angles.sin().float(), persistent=False)

    def forward(self, x: Float[Tensor, "b h n hd"]) -> Float[Tensor, "b h n hd"]:
        return rotate(x, self.cos, self.sin, halves=self.halves)


@checked
def axial_rope(
    num_heads: int,
    head_dim: int,
    *,
    grid_size: int | tuple[int, int],
    num_prefix_tokens: int = 1,
    theta: float = 100.0,
    coordinates: Callable[[tuple[int, int]], Tensor] = grid_coordinates,
    halves: bool = False,
) -> Rope:
    """A :class:`Rope` of :func:`axial_angles`, the same for all heads; tokens in front of the patches stay as they are.

    Args and errors are those of :func:`axial_angles` and :func:`rotate`, and:

    Args:
        num_heads: does not matter here.
        num_prefix_tokens: how many belong to no patch: class token and registers.
    """
    check_int("num_prefix_tokens", num_prefix_tokens, 0)
    angles = axial_angles(grid_size, head_dim, theta=theta, coordinates=coordinates)
    return Rope(F.pad(angles, (0, 0, num_prefix_tokens, 0)), halves=halves)


class MixedRope(nn.Module):
    """Turns queries or keys by angles that depend on row and column at once, at frequencies that are learned.

    ``angle[n, i] = column · freqs[0, i] + row · freqs[1, i]``: each pair of each head has a direction in the image,
    at first a random one of its head or the one across it, where axial angles only know the two axes.

    Args:
        num_heads: each has frequencies of its own.
        head_dim: features of a head; divisible by 4.
        grid_size: patches, an int or an (gh, gw) pair.
        num_prefix_tokens: how many belong to no patch, and are not turned.
        theta: the slowest pairs start at about 1/theta in a step.

    Shapes:
        ``(b, h, n, hd)`` to ``(b, h, n, hd)``.

    Raises:
        ValueError: if ``head_dim`` is not divisible by 4, or it is given another number of tokens.

    Source: Heo et al. 2024; timm's ``RotaryEmbeddingMixed``, whose ``freqs`` hold those of all blocks.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        grid_size: int | tuple[int, int],
        num_prefix_tokens: int = 1,
        theta: float = 10.0,
    ):
        super().__init__()
        check_int("num_heads", num_heads, 1)
        check_divisible("head_dim", head_dim, "the four parts: two features in a pair × two directions:", 4)
        lengths = theta ** -(torch.arange(0, head_dim, 4) / head_dim)
        direction = 2 * pi * torch.rand(num_heads, 1)
        directions = torch.cat([direction.expand(-1, len(lengths)), direction.expand(-1, len(lengths)) + pi / 2], dim=1)
        self.freqs = nn.Parameter(torch.stack([directions.cos(), directions.sin()]) * lengths.repeat(2))
        places = F.pad(grid_coordinates(grid_size), (0, 0, num_prefix_tokens, 0))
        self.places = nn.Buffer(places.flip(-1).float(), persistent=False)

    def forward(self, x: Float[Tensor, "b h n hd"]) -> Float[Tensor, "b h n hd"]:
        column, row = self.places[..., None].float().unbind(dim=1)
        along_columns, along_rows = self.freqs[:, :, None].float()
        angles = column * along_columns + row * along_rows  # not by a matrix product, which autocast would round
        return rotate(x, angles.cos(), angles.sin())
