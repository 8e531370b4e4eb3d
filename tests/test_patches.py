"""Patches against slicing, torch's unfold and Conv2d, and the two published mistakes."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange

from vit_tutorial import LinearPatchEmbed, PatchEmbed, patchify, unpatchify

# image (c, H, W), patch: square, rectangular, one patch only, patches of one pixel, patches of unequal sides
SIZES = [
    ((3, 8, 8), 4),
    ((1, 6, 15), (2, 5)),
    ((4, 5, 7), (5, 7)),
    ((2, 3, 4), 1),
    ((3, 12, 20), (6, 4)),
]


def test_hand_computed():
    """A 2×4 picture, numbered as one reads, in 2×2 patches."""
    image = torch.arange(8).reshape(1, 1, 2, 4)
    assert patchify(image, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]


def test_channels_come_first_within_a_patch():
    image = torch.stack([torch.zeros(2, 2), torch.ones(2, 2)])[None]
    assert patchify(image, 2).tolist() == [[[0, 0, 0, 0, 1, 1, 1, 1]]]


@pytest.mark.parametrize(("shape", "patch_size"), SIZES)
def test_equals_unfold(shape, patch_size):
    images = torch.rand(2, *shape)
    expected = F.unfold(images, kernel_size=patch_size, stride=patch_size).transpose(1, 2)
    assert torch.equal(patchify(images, patch_size), expected)


@pytest.mark.parametrize(("shape", "patch_size"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_round_trip_is_exact(shape, patch_size, dtype):
    images = (torch.rand(2, *shape) * 255).to(dtype)
    ph, pw = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    patches = patchify(images, patch_size)
    assert torch.equal(unpatchify(patches, patch_size, (shape[1] // ph, shape[2] // pw)), images)


def test_a_plain_reshape_is_caught_by_the_round_trip():
    images = torch.rand(2, 3, 8, 12)
    scrambled = images.reshape(2, 6, 48)
    assert scrambled.shape == patchify(images, 4).shape
    assert not torch.equal(unpatchify(scrambled, 4, (2, 3)), images)


@pytest.mark.parametrize(("shape", "patch_size"), SIZES)
def test_linear_equals_conv_through_a_weight_reshape(shape, patch_size):
    sizes = {"img_size": shape[1:], "patch_size": patch_size, "in_chans": shape[0], "embed_dim": 11}
    linear, conv = LinearPatchEmbed(**sizes), PatchEmbed(**sizes)
    linear.proj.weight.data = conv.proj.weight.data.flatten(1)
    linear.proj.bias.data = conv.proj.bias.data
    images = torch.randn(2, *shape)
    torch.testing.assert_close(linear(images), conv(images), rtol=1e-5, atol=1e-5)


def test_channels_last_order_is_caught_by_the_kernel():
    """Patches flattened as (ph pw c) do not fit a Conv2d's weights."""
    conv = PatchEmbed(img_size=8, patch_size=4, in_chans=3, embed_dim=5)
    images = torch.randn(2, 3, 8, 8)
    patches = rearrange(images, "b c (gh ph) (gw pw) -> b (gh gw) (ph pw c)", ph=4, pw=4)
    tokens = F.linear(patches, conv.proj.weight.flatten(1), conv.proj.bias)
    assert (tokens - conv(images)).abs().max() > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: patchify(torch.zeros(3, 8, 8), 4), r"4 axes \(b, c, H, W\), got 3: \(3, 8, 8\)"),
        (lambda: patchify(torch.zeros(1, 3, 8, 9), 4), "width 9 is not divisible by patch_size width 4"),
        (lambda: unpatchify(torch.zeros(1, 5, 16), 4, (2, 2)), "5 patches do not fill a grid of 2×2 = 4"),
        (lambda: unpatchify(torch.zeros(1, 4, 17), 4, (2, 2)), "patch length 17 is not divisible by ph·pw = 16"),
        (lambda: unpatchify(torch.zeros(4, 16), 4, (2, 2)), "3 axes .*, got 2"),
        (lambda: PatchEmbed(img_size=30, patch_size=4), "img_size height 30 is not divisible by patch_size height 4"),
        (lambda: LinearPatchEmbed(img_size=30, patch_size=4), "img_size height 30 is not divisible by .* 4"),
    ],
)
def test_bad_sizes(call, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("layer", [LinearPatchEmbed, PatchEmbed])
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(3, 8, 12), r"4 axes \(b, c, H, W\), got 3"),
        (torch.zeros(1, 1, 8, 12), "images have 1 channels, the model takes in_chans 3"),
        (torch.zeros(1, 3, 12, 8), r"images are \(12, 8\) pixels, the model takes img_size \(8, 12\)"),
        (torch.zeros(1, 3, 8, 12, dtype=torch.uint8), "must be floating point, got torch.uint8"),
    ],
)
def test_bad_images(layer, images, message, no_shape_checks):
    embed = layer(img_size=(8, 12), patch_size=4, in_chans=3, embed_dim=6)
    with pytest.raises(ValueError, match=message):
        embed(images)


@pytest.mark.parametrize("layer", [LinearPatchEmbed, PatchEmbed])
def test_weights_of_any_precision_and_autocast(layer, no_shape_checks):
    embed, images = layer(img_size=(8, 12), patch_size=4, in_chans=3, embed_dim=6), torch.randn(2, 3, 8, 12)
    exact = embed(images)
    with torch.autocast("cpu", torch.bfloat16):
        for given in (images, images.half(), images.bfloat16()):
            torch.testing.assert_close(embed(given).float(), exact, rtol=0.05, atol=0.05)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        embed.to(dtype)
        assert embed(images.to(dtype)).dtype == dtype


@pytest.mark.parametrize("layer", [LinearPatchEmbed, PatchEmbed])
def test_the_checks_do_not_break_a_compiled_graph(layer, no_shape_checks):
    embed, images = layer(img_size=(8, 12), patch_size=4, in_chans=3, embed_dim=6), torch.randn(2, 3, 8, 12)
    compiled = torch.compile(embed, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images), embed(images))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(images.half()), embed(images.half()))
