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
        ValueError: when ``images`` is not a batch, or the patches do not tile it.

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
        ValueError: when the number of patches or their length does not fit.
    """
    if patches.ndim != 3:
        raise ValueError(f"patches must have 3 axes (b, n, c·ph·pw), got {patches.ndim}: {tuple(patches.shape)}")
    ph, pw = to_pair("patch_size", patch_size)
    gh, gw = to_pair("grid_size", grid_size)
    if patches.shape[1] != gh * gw:
        raise ValueError(f"{patches.shape[1]} patches do not fill a grid of {gh}×{gw} = {gh * gw}")
    check_divisible("patch length", patches.shape[2], "ph·pw =", ph * pw)
    return rearrange(patches, "b (gh gw) (c ph pw) -> b c (gh ph) (gw pw)", gh=gh, gw=gw, ph=ph, pw=pw)


def _check_images(images: Tensor, img_size: tuple[int, int], in_chans: int, dtype: torch.dtype) -> None:
    if images.ndim != 4:
        raise ValueError(f"images must have 4 axes (b, c, H, W), got {images.ndim}: {tuple(images.shape)}")
    if images.shape[1] != in_chans:
        raise ValueError(f"images have {images.shape[1]} channels, the model takes in_chans {in_chans}")
    if tuple(images.shape[2:]) != img_size:
        raise ValueError(f"images are {tuple(images.shape[2:])} pixels, the model takes img_size {img_size}")
    if not torch.is_floating_point(images):
        raise ValueError(f"images must be floating point, got {images.dtype}: scale them to 0..1 first")
    # Autocast converts every floating point dtype but float64.
    if images.dtype != dtype and (images.dtype == torch.float64 or not torch.is_autocast_enabled(images.device.type)):
        raise ValueError(f"images are {images.dtype}, the weights {dtype}: they must be equal; try images.to({dtype})")


class LinearPatchEmbed(nn.Module):
    """Patches to tokens as the paper writes it: flatten each patch, multiply by one matrix (equation 1).

    Args and errors are those of :class:`PatchEmbed`, which computes the same function.
    """

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
        self.proj = nn.Linear(in_chans * self.patch_size[0] * self.patch_size[1], embed_dim)

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        _check_images(images, self.img_size, self.in_chans, self.proj.weight.dtype)
        return self.proj(patchify(images, self.patch_size))


class PatchEmbed(nn.Module):
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
        ValueError: when the patches do not tile the image, or an input has another size, channel count or dtype.
    """

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
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=self.patch_size, stride=self.patch_size)

    def forward(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        _check_images(images, self.img_size, self.in_chans, self.proj.weight.dtype)
        return rearrange(self.proj(images), "b d gh gw -> b (gh gw) d")
