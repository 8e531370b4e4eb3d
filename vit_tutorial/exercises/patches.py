"""Checks of chapter 1, an image becomes a sequence."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from vit_tutorial.exercises.engine import CheckFailed, call, checks, close, compare, expect, expect_shape
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.validate import check_tiles

# No two sizes are alike, so that no two axes can be swapped unnoticed.
BATCH, CHANNELS, GRID, PATCH = 2, 3, (2, 4), (5, 7)
HEIGHT, WIDTH = GRID[0] * PATCH[0], GRID[1] * PATCH[1]


def _images() -> Tensor:
    return torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)


def _cut(images: Tensor) -> Tensor:
    """Patches by slicing, ``(b, gh, gw, c, ph, pw)``: the slow truth that no axis order can get wrong."""
    (gh, gw), (ph, pw) = GRID, PATCH
    rows = [
        torch.stack([images[:, :, i * ph : (i + 1) * ph, j * pw : (j + 1) * pw] for j in range(gw)], 1)
        for i in range(gh)
    ]
    return torch.stack(rows, dim=1)


def num_patches(img_size: tuple[int, int], patch_size: tuple[int, int]) -> int:
    """How many patches tile an image, from two (height, width) pairs; a ValueError where they do not."""
    (height, width), (ph, pw) = check_tiles(img_size, patch_size)
    return (height // ph) * (width // pw)


@checks(num_patches)
def check_num_patches(fn):
    count = call(fn, (32, 32), (8, 8))
    expect(not isinstance(count, tuple), f"expected one number, got {count}: multiply patches per column by per row")
    expect(count != 17, "got 17 for a 32×32 image in 8×8 patches: the class token is no patch; it joins in chapter 2")
    expect(count != 8, "got 4 + 4 = 8 for a 32×32 image in 8×8 patches: rows times columns, not rows plus columns")
    expect(count == 16, f"a 32×32 image has 4·4 = 16 patches of 8×8, got {count}")
    count = call(fn, (32, 64), (8, 8))
    expect(count not in (16, 64), f"a 32×64 image has 4·8 = 32 patches of 8×8, got {count}: one side was squared")
    expect(count == 32, f"a 32×64 image has 4·8 = 32 patches of 8×8, got {count}")
    count = call(fn, (8, 18), (4, 6))
    expect(count == 6, f"an 8×18 image has 2·3 = 6 patches of 4×6, got {count}: height goes with height")
    _check_refusal(fn, (30, 32))
    _check_refusal(fn, (32, 30))
    expect(not isinstance(count, float), f"got {count}: a number of patches is an int. / gives a float, // does not")


def _check_refusal(fn, img_size):
    """No tiling by patches of 4×4, though the areas divide: 960 / 16 = 60."""
    height, width = img_size
    sizes = f"4×4 patches do not tile a {height}×{width} image"
    try:
        count = call(fn, img_size, (4, 4))
    except CheckFailed as failure:
        error = failure.__cause__
        expect(error is not None, f"{sizes}, and None was returned. Raise a ValueError, which nobody can overlook")
        expect(isinstance(error, ValueError), f"{sizes}. A ValueError is wanted, {type(error).__name__} was raised")
        values = all(value in str(error) for value in ("30", "4"))
        expect(values, f"the ValueError says {str(error)!r}: state both values, here 30 and 4, so that one sees why")
        return
    number = isinstance(count, int | float)
    expect(number, f"{sizes}, and {count!r} was returned. Raise a ValueError, which nobody can overlook")
    expect(count != 60, f"{sizes}, but the areas divide, 960 / 16 = 60. Test each side, with %, before you divide")
    expect(count < 60, f"{sizes}: rounded up to {count}, they reach beyond the border. Raise a ValueError")
    expect(False, f"{sizes}: // rounded to {count} in silence. Raise a ValueError")


@checks(patchify)
def check_patchify(fn):
    images = _images()
    n, length = GRID[0] * GRID[1], CHANNELS * PATCH[0] * PATCH[1]
    result = call(fn, images, PATCH)
    expect_shape(result, (BATCH, n, length), f"{n} patches of {CHANNELS}·{PATCH[0]}·{PATCH[1]} numbers were wanted")
    cut = _cut(images)
    mistakes = {
        "the shape is right, the content is scrambled: reshape alone cuts the flat memory into pieces. Split both "
        "sides first, then permute": images.reshape(BATCH, n, length),
        "the patches are right, but flattened as (ph pw c). A Conv2d kernel is stored as (c ph pw)": cut.permute(
            0, 1, 2, 4, 5, 3
        ),
        "the patches come column by column. Go through the grid row by row, as one reads": cut.transpose(1, 2),
        "each patch is transposed: inside a patch, rows come first, (c ph pw)": cut.transpose(4, 5),
    }
    mistakes = {hint: wrong.reshape(BATCH, n, length) for hint, wrong in mistakes.items()}
    truth = cut.reshape(BATCH, n, length)
    compare(result, truth, mistakes, "the numbers differ from slicing the patches out one by one")


@checks(unpatchify)
def check_unpatchify(fn):
    images = _images()
    cut = _cut(images)
    patches = cut.reshape(BATCH, GRID[0] * GRID[1], -1)
    result = call(fn, patches, PATCH, GRID)
    expect_shape(result, (BATCH, CHANNELS, HEIGHT, WIDTH), "the picture is (b, c, gh·ph, gw·pw)")
    columns_first = cut.reshape(BATCH, GRID[1], GRID[0], CHANNELS, *PATCH)
    channels_last = cut.reshape(BATCH, *GRID, *PATCH, CHANNELS)
    mistakes = {
        "reshape alone gives the right shape and a scrambled picture: permute first": patches,
        "the patches were placed column by column; they come row by row": columns_first.permute(0, 3, 2, 4, 1, 5),
        "the patches were read as (ph pw c); they are flattened as (c ph pw)": channels_last.permute(0, 5, 1, 3, 2, 4),
    }
    mistakes = {hint: wrong.reshape(images.shape) for hint, wrong in mistakes.items()}
    compare(result, images, mistakes, "unpatchify(patchify(images)) is not images: which axis went where?")
    try:
        grey = call(fn, patches[:, :, : PATCH[0] * PATCH[1]], PATCH, GRID)
    except CheckFailed as failure:
        raise CheckFailed(
            f"right for {CHANNELS} channels, wrong for 1: c follows from the length ({failure})"
        ) from None
    expect(close(grey, images[:, :1]), f"right for {CHANNELS} channels, wrong for 1: c follows from the patch's length")


def kernel_to_matrix(weight: Float[Tensor, "d c ph pw"]) -> Float[Tensor, "d cphpw"]:
    """The weight of the nn.Linear that does to a flattened patch what this Conv2d kernel does to the picture."""
    return weight.flatten(1)


@checks(kernel_to_matrix)
def check_kernel_to_matrix(fn):
    conv = torch.nn.Conv2d(CHANNELS, 11, kernel_size=PATCH, stride=PATCH, bias=False)
    kernel = conv.weight.detach()
    length = CHANNELS * PATCH[0] * PATCH[1]
    result = call(fn, kernel)
    expect(
        not (isinstance(result, Tensor) and result.shape == (length, 11)),
        f"got ({length}, 11). nn.Linear keeps its weight as (out, in), so d comes first",
    )
    expect_shape(result, (11, length), "one row for each output, c·ph·pw columns")
    mistakes = {
        "the kernel was flattened as (ph pw c); patches are (c ph pw), so no permute is needed": (0, 2, 3, 1),
        "height and width of the kernel are swapped: (c pw ph) instead of (c ph pw)": (0, 1, 3, 2),
    }
    for hint, order in mistakes.items():
        expect(not close(result, kernel.permute(order).reshape(11, length)), hint)
    expect(
        not close(result, kernel.permute(1, 2, 3, 0).reshape(11, length)),
        "the shape is right, but the rows are mixed: reshape cannot transpose. d is in front already",
    )
    images = _images()
    tokens = _cut(images).reshape(BATCH, -1, length) @ result.T
    expect(close(tokens, conv(images).flatten(2).transpose(1, 2), 1e-4), "patches times your matrix differ from Conv2d")


def pad_to_patches(images: Shaped[Tensor, "b c H W"], patch_size: tuple[int, int]) -> Shaped[Tensor, "b c Hp Wp"]:
    """Images with zeros added below and on the right, up to the next multiple of the patch."""
    height, width = images.shape[2:]
    return F.pad(images, (0, -width % patch_size[1], 0, -height % patch_size[0]))


@checks(pad_to_patches)
def check_pad_to_patches(fn):
    images = torch.rand(1, 2, 9, 17) + 1  # no zero inside
    result = call(fn, images, (4, 6))
    shape = tuple(result.shape) if isinstance(result, Tensor) else None
    expect(shape != (1, 2, 8, 12), "the picture was cropped to 8×12. Pad it, so that nothing is lost")
    expect(
        shape != (1, 2, 10, 20),
        "height and width are swapped. F.pad takes the last axis first: (left, right, top, bottom)",
    )
    expect_shape(result, (1, 2, 12, 18), "9×17 pixels in 4×6 patches need 12×18")
    expect(
        not close(result[:, :, -9:, -17:], images),
        "the zeros are above and on the left, so every patch is shifted. Add them below and on the right",
    )
    expect(close(result[:, :, :9, :17], images), "the picture must stand unchanged in the top left corner")
    expect(close(result.sum(), images.sum()), "the padding must be zeros")
    result = call(fn, images[:, :, :8, :12], (4, 6))
    expect_shape(result, (1, 2, 8, 12), "An image that fits already needs no padding: -9 % 4 is 3, but -8 % 4 is 0")
    one_side = "one side fits already, and got a whole patch more: treat each side by itself"
    expect_shape(call(fn, images[:, :, :, :12], (4, 6)), (1, 2, 12, 12), one_side)
    expect_shape(call(fn, images[:, :, :8], (4, 6)), (1, 2, 8, 18), one_side)
