"""Whether a map tells the truth: against the object's mask, and by hiding what it points at (chapter 8)."""

import torch
from einops import reduce, repeat
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from vit_tutorial.attention_maps.maps import check_chosen, check_ours, gradients_on
from vit_tutorial.validate import check_divisible, check_tiles, checked, to_pair, working_dtype


@checked
def mask_coverage(
    mask: Bool[Tensor, "b H W"], grid_size: tuple[int, int], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "b gh gw"]:
    """The fraction of each patch's pixels that belong to the object.

    Raises:
        ValueError: if the grid does not divide the mask.
    """
    gh, gw = to_pair("grid_size", grid_size)
    for axis, pixels, patches in zip(("height", "width"), mask.shape[1:], (gh, gw), strict=True):
        check_divisible(f"mask {axis}", pixels, "the map's grid of", patches)
    return reduce(mask.to(dtype), "b (gh ph) (gw pw) -> b gh gw", "mean", gh=gh, gw=gw)


@checked
def attention_mass(maps: Float[Tensor, "b gh gw"], mask: Bool[Tensor, "b H W"]) -> Float[Tensor, " b"]:
    """The fraction of a map that is on the object; a patch counts as far as the object covers it.

    A uniform map gets the object's fraction of the image. A map of zeros has none, and gets nan. The result has the
    dtype of the maps.

    Raises:
        ValueError: if the map's grid does not divide the mask, or maps are not floating point.
    """
    wide = maps.to(working_dtype("maps", maps))
    coverage = mask_coverage(mask.to(maps.device), tuple(maps.shape[1:]), wide.dtype)
    return ((wide * coverage).sum(dim=(1, 2)) / wide.sum(dim=(1, 2))).to(maps.dtype)


@checked
def pointing_game(maps: Float[Tensor, "b gh gw"], mask: Bool[Tensor, "b H W"]) -> Float[Tensor, " b"]:
    """Whether the map points at the object: 1, a hit, if at least half of its highest patch belongs to it, else 0.

    Patches that are equally high share the point. So a uniform map gets the fraction of patches that are hits.

    Raises:
        ValueError: if the map's grid does not divide the mask.

    Source: Zhang et al. 2018, "Top-down neural attention by excitation backprop", section 4.1. Their maps have a value
    for each pixel; here the patch takes the pixel's place.
    """
    highest = _highest(maps)
    hits = mask_coverage(mask.to(maps.device), tuple(maps.shape[1:])) >= 0.5
    return (highest & hits).sum(dim=(1, 2)).to(maps.dtype) / highest.sum(dim=(1, 2)).to(maps.dtype)


@checked
def peak_coverage(maps: Float[Tensor, "b gh gw"], mask: Bool[Tensor, "b H W"]) -> Float[Tensor, " b"]:
    """The fraction of the map's highest patch that belongs to the object: a pointing game with a point for each pixel.

    Patches that are equally high share the point. So a uniform map gets the object's fraction of the image.

    Raises:
        ValueError: if the map's grid does not divide the mask.
    """
    return attention_mass(_highest(maps).to(maps.dtype), mask)


def _highest(maps: Float[Tensor, "b gh gw"]) -> Bool[Tensor, "b gh gw"]:
    return maps == maps.amax(dim=(1, 2), keepdim=True)


@checked
def hide_patches(
    images: Float[Tensor, "b c H W"],
    patches: Int64[Tensor, "b hidden"],
    patch_size: int | tuple[int, int],
    value: float | Float[Tensor, "c 1 1"] | Float[Tensor, "b c 1 1"] = 0.0,
) -> Float[Tensor, "b c H W"]:
    """The images with some patches painted over.

    Args:
        patches: indices of the patches to hide, the grid row by row, ``(b, hidden)``: equally many in each image.
        value: the colour, one number or one for each channel; the same for all images, or one for each.

    Raises:
        ValueError: if an image has no row of indices, there is no such patch, or the patches do not tile the image.
    """
    _, (ph, pw) = check_tiles(tuple(images.shape[2:]), patch_size)
    gh, gw = images.shape[2] // ph, images.shape[3] // pw
    patches = patches.to(images.device)
    check_chosen("patch", patches, len(images), gh * gw)
    hidden = torch.zeros(len(images), gh * gw, device=images.device).scatter_(1, patches, 1)
    hidden = repeat(hidden, "b (gh gw) -> b 1 (gh ph) (gw pw)", gh=gh, ph=ph, pw=pw)
    return torch.where(hidden == 1, value.to(images) if isinstance(value, Tensor) else value, images)


@checked
def patch_saliency(
    model: nn.Module, images: Float[Tensor, "b c H W"], classes: Int64[Tensor, " b"]
) -> Float[Tensor, "b gh gw"]:
    """How much the logit of a class depends on each patch: gradient × pixel, without its sign, summed over the patch.

    The gradients of the model's parameters are left alone.

    Args:
        model: this package's.
        images: ``(b, c, H, W)``, as the model takes them.
        classes: the class of each image, ``(b,)``.

    Raises:
        ValueError: if the model is not this package's or was made in inference mode, there is not one class for each
            image, or the model does not have it.

    Source: Simonyan et al. 2014, "Deep inside convolutional networks", and the product with the input after it.
    """
    check_ours(model)
    with gradients_on():
        pixels = images.detach().clone().requires_grad_()
        logits = model(pixels)
        classes = classes.to(logits.device).clone()
        check_chosen("class", classes, *logits.shape)
        (gradient,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), pixels)
    gh, gw = model.config.grid_size
    return reduce((gradient * images).abs(), "b c (gh ph) (gw pw) -> b gh gw", "sum", gh=gh, gw=gw)
