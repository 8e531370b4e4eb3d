"""An image becomes a sequence: cut it into patches, and project each one to a token (chapter 1)."""

import torch
from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vit_tutorial.validate import check_divisible, check_tiles, to_pair


def patchify(images: Shaped[Tensor, "b c H W"], patch_size: int | tuple[int, int]) -> Shaped[Tensor, "b n d"]:
    """Cut images into non-overlapping patches and flatten each one.

    Args:
        images: ``(b, c, H, W)``, any dtype.
        patch_size: pixels, an int or an (height, width) pair.

    Returns:
        ``(b, n, c·ph·pw)``: the grid row by row, each patch flattened as ``(c ph pw)``, the order of a Conv2d kernel.

    Raises:
        ValueError: if ``images`` is not a batch, or the patches do not tile it.

    Source: Dosovitskiy et al. 2021, section 3.1.
    """
    if images.ndim != 4:
        raise ValueError(f"images must have 4 axes (b, c, H, W), got {images.ndim}: {tuple(images.shape)}")
    _, (ph, pw) = check_tiles(tuple(images.shape[2:]), patch_size)
    return rearrange(images, "b c (gh ph) (gw pw) -> b (gh gw) (c ph pw)", ph=ph, pw=pw)


def unpatchify(
    patches: Shaped[Tensor, "b n d"], patch_size: int | tuple[int, int], grid_size: tuple[int, int]
) -> Shaped[Tensor, "b c H W"]:
    """Undo :func:`patchify`.

    Args:
        patches: ``(b, n, c·ph·pw)``.
        patch_size: pixels, an int or an (height, width) pair.
        grid_size: patches per column and per row, ``(gh, gw)``.

    Returns:
        ``(b, c, gh·ph, gw·pw)``.

    Raises:
        ValueError: if the number of patches or their length does not fit.
    """
    if patches.ndim != 3:
        raise ValueError(f"patches must have 3 axes (b, n, c·ph·pw), got {patches.ndim}: {tuple(patches.shape)}")
    ph, pw = to_pair("patch_size", patch_size)
    gh, gw = to_pair("grid_size", grid_size)
    if patches.shape[1] != gh * gw:
        raise ValueError(f"{patches.shape[1]} patches do not fill a grid of {gh}×{gw} = {gh * gw}")
    check_divisible("patch length", patches.shape[2], "ph·pw =", ph * pw)
    return rearrange(patches, "b (gh gw) (c ph pw) -> b c (gh ph) (gw pw)", gh=gh, gw=gw, ph=ph, pw=pw)


class _Embed(nn.Module):
    """What the two ways of embedding patches share: their arguments, and the check of the images."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
    ):
        super().__init__()
        self.img_size, self.patch_size = check_tiles(img_size, patch_size)
        self.in_chans = in_chans
        self.proj = self._projection(embed_dim)

    def _check(self, images: Tensor) -> None:
        if images.ndim != 4:
            raise ValueError(f"images must have 4 axes (b, c, H, W), got {images.ndim}: {tuple(images.shape)}")
        if images.shape[1] != self.in_chans:
            raise ValueError(f"images have {images.shape[1]} channels, the model takes in_chans {self.in_chans}")
        if tuple(images.shape[2:]) != self.img_size:
            raise ValueError(f"images are {tuple(images.shape[2:])} pixels, the model takes img_size {self.img_size}")
        if not torch.is_floating_point(images):
            raise ValueError(f"images must be floating point, got {images.dtype}: scale them to 0..1 first")


class LinearPatchEmbed(_Embed):
    """Patches to tokens as the paper writes it: flatten each patch, multiply by one matrix (equation 1).

    Args, shapes and errors are those of :class:`PatchEmbed`, which computes the same function.
    """

    def _projection(self, embed_dim: int) -> nn.Module:
        return nn.Linear(self.in_chans * self.patch_size[0] * self.patch_size[1], embed_dim)

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        self._check(images)
        return self.proj(patchify(images, self.patch_size))


class PatchEmbed(_Embed):
    """Patches to tokens as everyone implements it: a convolution whose kernel is as large as its stride.

    Args:
        img_size: pixels, an int or an (height, width) pair.
        patch_size: pixels, an int or an (height, width) pair; must divide ``img_size``.
        in_chans: channels of the image.
        embed_dim: width of a token.

    Shapes:
        ``(b, in_chans, H, W)``, in the dtype of the weights unless under autocast, to ``(b, n, embed_dim)``, the grid
        row by row.

    Raises:
        ValueError: if the patches do not tile the image, or an input has another size or channel count, or integers.
    """

    def _projection(self, embed_dim: int) -> nn.Module:
        return nn.Conv2d(self.in_chans, embed_dim, kernel_size=self.patch_size, stride=self.patch_size)

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        self._check(images)
        return rearrange(self.proj(images), "b d gh gw -> b (gh gw) d")
