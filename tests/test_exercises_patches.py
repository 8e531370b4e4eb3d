"""The checks of chapter 1 accept the reference and name each mistake."""

import torch
import torch.nn.functional as F
from einops import rearrange
from hints import assert_hints

from vit_tutorial import patchify, unpatchify
from vit_tutorial.exercises import exercise
from vit_tutorial.exercises.patches import kernel_to_matrix, num_patches, pad_to_patches


def test_num_patches():
    assert_hints(
        "num_patches",
        num_patches,
        {
            "one number": lambda image, patch: (image[0] // patch[0], image[1] // patch[1]),
            "class token": lambda image, patch: (image[0] // patch[0]) * (image[1] // patch[1]) + 1,
            "rows plus columns": lambda image, patch: image[0] // patch[0] + image[1] // patch[1],
            "one side was squared": lambda image, patch: (image[0] // patch[0]) ** 2,
            "height goes with height": lambda image, patch: (image[0] // patch[1]) * (image[1] // patch[1]),
            "in silence": lambda image, patch: (image[0] // patch[0]) * (image[1] // patch[1]),
            "Test each side": lambda image, patch: image[0] * image[1] // (patch[0] * patch[1]),
            "2·3 = 6 patches of 4×6, got 4": lambda image, patch: (image[0] // patch[1]) * (image[1] // patch[0]),
            "rounded up to 64": lambda image, patch: -(-image[0] // patch[0]) * -(-image[1] // patch[1]),
            "a 32×30 image": _height_alone,
            "AssertionError was raised": _asserted,
            "state both values": lambda image, patch: _refused(image, patch, "these sizes do not fit"),
            "None was returned": lambda image, patch: _unless_they_tile(image, patch, None),
            "an int": lambda image, patch: float(num_patches(image, patch)),
        },
    )


def _unless_they_tile(image, patch, otherwise):
    fits = image[0] % patch[0] == 0 and image[1] % patch[1] == 0
    return image[0] // patch[0] * (image[1] // patch[1]) if fits else otherwise


def _refused(image, patch, message):
    count = _unless_they_tile(image, patch, None)
    if count is None:
        raise ValueError(message)
    return count


def _asserted(image, patch):
    count = _unless_they_tile(image, patch, None)
    assert count is not None
    return count


def _height_alone(image, patch):
    if image[0] % patch[0]:
        raise ValueError(f"{image[0]} is no multiple of {patch[0]}")
    return image[0] // patch[0] * (image[1] // patch[1])


def test_num_patches_may_state_the_pairs():
    def fn(image, patch):
        return _refused(image, patch, f"{image} and {patch} do not fit")

    assert exercise("num_patches", fn) is fn


def _patchify_as(pattern):
    def fn(images, patch_size):
        return rearrange(images, f"b c (gh ph) (gw pw) -> {pattern}", ph=patch_size[0], pw=patch_size[1])

    return fn


def _patchify_in_place(images, patch_size):
    images -= images.mean()
    return patchify(images, patch_size)


def test_patchify():
    assert_hints(
        "patchify",
        patchify,
        {
            "reshape alone": lambda images, patch: images.reshape(
                len(images), -1, images.shape[1] * patch[0] * patch[1]
            ),
            "(ph pw c)": _patchify_as("b (gh gw) (ph pw c)"),
            "column by column": _patchify_as("b (gw gh) (c ph pw)"),
            "transposed": _patchify_as("b (gh gw) (c pw ph)"),
            "expected shape": _patchify_as("b gh gw (c ph pw)"),
            "in place": _patchify_in_place,
            "differ from slicing": lambda images, patch: patchify(images.flip(1), patch),
            "returned None": lambda images, patch: None,
            "raised EinopsError": lambda images, patch: _patchify_as("b (gh gw) (c ph)")(images, patch),
        },
    )


def _unpatchify_as(pattern):
    def fn(patches, patch_size, grid_size):
        (ph, pw), (gh, gw) = patch_size, grid_size
        return rearrange(patches, f"{pattern} -> b c (gh ph) (gw pw)", gh=gh, gw=gw, ph=ph, pw=pw)

    return fn


def _three_colours(patches, patch_size, grid_size):
    (ph, pw), (gh, gw) = patch_size, grid_size
    return rearrange(patches, "b (gh gw) (c ph pw) -> b c (gh ph) (gw pw)", c=3, gh=gh, gw=gw, ph=ph, pw=pw)


def test_unpatchify():
    assert_hints(
        "unpatchify",
        unpatchify,
        {
            "reshape alone": lambda patches, patch, grid: patches.reshape(
                len(patches), -1, grid[0] * patch[0], grid[1] * patch[1]
            ),
            "column by column": _unpatchify_as("b (gw gh) (c ph pw)"),
            "(ph pw c)": _unpatchify_as("b (gh gw) (ph pw c)"),
            "expected shape": lambda patches, patch, grid: unpatchify(patches, patch, grid).transpose(2, 3),
            "wrong for 1": _three_colours,
        },
    )


def test_kernel_to_matrix():
    assert_hints(
        "kernel_to_matrix",
        kernel_to_matrix,
        {
            "(out, in)": lambda weight: weight.flatten(1).T,
            "(ph pw c)": lambda weight: rearrange(weight, "d c ph pw -> d (ph pw c)"),
            "(c pw ph)": lambda weight: rearrange(weight, "d c ph pw -> d (c pw ph)"),
            "rows are mixed": lambda weight: weight.permute(1, 2, 3, 0).reshape(len(weight), -1),
            "differ from Conv2d": lambda weight: weight.flatten(1) / weight[0].numel() ** 0.5,
        },
    )


def _pad(left, right, top, bottom):
    def fn(images, patch_size):
        down, across = -images.shape[2] % patch_size[0], -images.shape[3] % patch_size[1]
        return F.pad(images, (left * across, right * across, top * down, bottom * down))

    return fn


def _a_patch_more(images, patch):
    return F.pad(images, (0, patch[1] - images.shape[3] % patch[1], 0, patch[0] - images.shape[2] % patch[0]))


def test_pad_to_patches():
    assert_hints(
        "pad_to_patches",
        pad_to_patches,
        {
            "cropped": lambda images, patch: images[
                :, :, : images.shape[2] // patch[0] * patch[0], : images.shape[3] // patch[1] * patch[1]
            ],
            "last axis first": lambda images, patch: F.pad(
                images, (0, -images.shape[2] % patch[0], 0, -images.shape[3] % patch[1])
            ),
            "above and on the left": _pad(1, 0, 1, 0),
            "must be zeros": lambda images, patch: F.pad(
                images, (0, -images.shape[3] % patch[1], 0, -images.shape[2] % patch[0]), value=0.5
            ),
            "by itself": lambda images, patch: (
                images
                if images.shape[2] % patch[0] == images.shape[3] % patch[1] == 0
                else _a_patch_more(images, patch)
            ),
            "needs no padding": _a_patch_more,
        },
    )


def test_a_hint_does_not_depend_on_the_random_state_nor_change_it():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert_hints(
        "unpatchify", unpatchify, {"expected shape": lambda *_: torch.zeros(1), "tensor": lambda *_: 3, "None": print}
    )
    assert torch.equal(before, torch.get_rng_state())
