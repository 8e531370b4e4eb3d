"""Exercises of chapter 1: an image becomes a sequence."""

from functools import partial
from itertools import permutations, product
from math import ceil

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor

from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.validate import check_tiles

EXERCISES: dict[str, Exercise] = {}


def num_patches(img_size: tuple[int, int], patch_size: tuple[int, int]) -> int:
    """How many patches tile an image, from two (height, width) pairs; a ValueError if they do not."""
    (height, width), (ph, pw) = check_tiles(img_size, patch_size)
    return (height // ph) * (width // pw)


def _slots(img_size, patch_size):
    """Every place at which a patch can begin."""
    for side, patch in zip(img_size, patch_size, strict=True):
        if list(range(0, side, patch))[-1] + patch != side:
            raise ValueError(f"{side} {patch}")
    return len(list(product(*map(range, (0, 0), img_size, patch_size))))


def _count(of):
    """A count from the four sizes, whether or not the patches tile the image."""
    return lambda image, patch: of(*image, *patch)


def _if_they_tile(otherwise):
    """Right if the patches tile the image."""
    return _count(lambda H, W, ph, pw: H // ph * (W // pw) if H % ph == W % pw == 0 else otherwise(H, W, ph, pw))


def _raising(kind, message):
    def fail(*sizes):
        raise kind(message.format(*sizes))

    return _if_they_tile(fail)


EXERCISES["num_patches"] = Exercise(
    reference=num_patches, truth=_slots, exact_type=True, may_return_none=True,
    cases=[
        Case(lambda: ((32, 32), (8, 8)), "A 32×32 image has 4·4 = 16 patches of 8×8"),
        Case(lambda: ((32, 64), (8, 8)), "A 32×64 image has 4·8 = 32 patches of 8×8"),
        Case(lambda: ((8, 18), (4, 6)), "An 8×18 image has 2·3 = 6 patches of 4×6: height goes with height"),
        Case(lambda: ((30, 32), (4, 4)), "4×4 patches can't tile a height of 30: raise a ValueError", says=("30", "4")),
        Case(lambda: ((32, 30), (4, 4)), "4×4 patches do not fit the width of a 32×30 image. Test both sides",
             lambda image, patch: num_patches((image[0], image[1] // patch[1] * patch[1]), patch), says=("30", "4")),
    ],
    mistakes={
        "return one number: rows times columns": _count(lambda H, W, ph, pw: (H // ph, W // pw)),
        "the class token is not a patch; it joins in chapter 2": _count(lambda H, W, ph, pw: H // ph * (W // pw) + 1),
        "rows times columns, not rows plus columns": _count(lambda H, W, ph, pw: H // ph + W // pw),
        "the count per column was squared: height and width may differ": _count(lambda H, W, ph, pw: (H // ph) ** 2),
        "the count per row was squared: height and width may differ": _count(lambda H, W, ph, pw: (W // pw) ** 2),
        "both sides were divided by the patch's width": _count(lambda H, W, ph, pw: H // pw * (W // pw)),
        "the height was divided by the patch's width": _count(lambda H, W, ph, pw: H // pw * (W // ph)),
        "a number of patches is an int. / gives a float, // does not": lambda *sizes: float(num_patches(*sizes)),
        "the areas divide, 960 / 16 = 60, the sides do not. Test each": _count(lambda H, W, ph, pw: H * W // (ph * pw)),
        "// rounded down and lost the border. Raise a ValueError": _count(lambda H, W, ph, pw: H // ph * (W // pw)),
        "you rounded up, so patches reach beyond the border. Raise a ValueError":
            _count(lambda H, W, ph, pw: ceil(H / ph) * ceil(W / pw)),
        "4×4 patches do not tile this image, and None was returned. Raise a ValueError": _if_they_tile(lambda *_: None),
        "expected a ValueError, but AssertionError was raised": _raising(AssertionError, ""),
        "state both values, here 30 and 4": _raising(ValueError, "these sizes do not fit"),
    },
    right=[_raising(ValueError, "{0}×{1} and {2}×{3} do not fit")],
)  # fmt: skip


def _cut(images, patch_size):
    """Patches by slicing, the slow truth that no axis order can get wrong."""
    (ph, pw), (height, width) = patch_size, images.shape[2:]
    corners = product(range(0, height, ph), range(0, width, pw))
    return torch.stack([images[:, :, y : y + ph, x : x + pw].flatten(1) for y, x in corners], dim=1)


def _patchify_as(pattern, cut="b c (gh ph) (gw pw)"):
    return lambda images, patch: rearrange(images, f"{cut} -> {pattern}", ph=patch[0], pw=patch[1])


# In which other orders the three axes of a patch can be flattened, and in which other ways a side can be cut.
ORDERS = [" ".join(order) for order in permutations(("c", "ph", "pw")) if order != ("c", "ph", "pw")]
CUTS = ("(ph gh) (pw gw)", "(ph gh) (gw pw)", "(gh ph) (pw gw)")
EXERCISES["patchify"] = Exercise(
    reference=patchify, truth=_cut,
    given=lambda b=2, c=3, gh=2, gw=4, ph=5, pw=7: (torch.rand(b, c, gh * ph, gw * pw), (ph, pw)),
    cases=[Case(lambda: (torch.rand(2, 9, 12, 3).permute(0, 3, 1, 2)[:, :, 2:8, 3:9], (3, 2)),
                "wrong for images that aren't contiguous in memory, such as a slice. Use reshape, which copies where "
                "it must, instead of view",
                lambda x, patch: patchify(x.as_strided(x.shape, torch.empty(x.shape).stride()), patch))],
    notes=[Case(lambda: (torch.randint(0, 256, (2, 3, 4, 6), dtype=torch.uint8), (2, 3)),
                "it fails for images of bytes. Cutting needs no arithmetic, so a reshape does it for any dtype")],
    mistakes={
        "the content is scrambled: reshape alone cuts up the flat memory. Split both sides first, then permute":
            lambda images, patch: images.reshape(len(images), -1, images.shape[1] * patch[0] * patch[1]),
        **{f"the patches are right, but flattened as ({order}). A Conv2d kernel is stored as (c ph pw)":
           _patchify_as(f"b (gh gw) ({order})") for order in ORDERS},
        "the patches come column by column. Go row by row, as one reads": _patchify_as("b (gw gh) (c ph pw)"),
        **{f"you cut the sides as {cut}, so a patch collects distant pixels. Use (gh ph) (gw pw)":
           _patchify_as("b (gh gw) (c ph pw)", f"b c {cut}") for cut in CUTS},
        "the grid still has two axes; make one of them, row by row": _patchify_as("b gh gw (c ph pw)"),
        "the patches are not flattened: c, ph and pw belong into one axis": _patchify_as("b (gh gw) c ph pw"),
    },
    right=[lambda images, patch: F.unfold(images, patch, stride=patch).mT],
    shape="b images, gh·gw patches, c·ph·pw numbers in each",
    otherwise="the values differ from those of patches sliced out one by one",
)  # fmt: skip


def _unpatchify_as(pattern, joined="(gh ph) (gw pw)", **sizes):
    return lambda patches, patch, grid: rearrange(
        patches, f"{pattern} -> b c {joined}", gh=grid[0], gw=grid[1], ph=patch[0], pw=patch[1], **sizes
    )


def _paste(patches, patch_size, grid_size):
    """Each patch put where it belongs, one by one."""
    (ph, pw), (gh, gw) = patch_size, grid_size
    images = patches.new_zeros(len(patches), patches.shape[2] // (ph * pw), gh * ph, gw * pw)
    for (row, col), patch in zip(product(range(gh), range(gw)), patches.unbind(1), strict=True):
        y, x = row * ph, col * pw
        images[:, :, y : y + ph, x : x + pw] = patch.reshape(len(patches), -1, ph, pw)
    return images


EXERCISES["unpatchify"] = Exercise(
    reference=unpatchify, truth=_paste,
    given=lambda b=2, c=3, gh=2, gw=4, ph=5, pw=7: (torch.rand(b, gh * gw, c * ph * pw), (ph, pw), (gh, gw)),
    mistakes={
        "reshape alone gives the right shape and a scrambled image: permute first":
            lambda patches, patch, grid: patches.reshape(len(patches), -1, grid[0] * patch[0], grid[1] * patch[1]),
        "the patches were placed column by column; they come row by row": _unpatchify_as("b (gw gh) (c ph pw)"),
        **{f"the patches were read as ({order}); they are flattened as (c ph pw)":
           _unpatchify_as(f"b (gh gw) ({order})") for order in ORDERS},
        **{f"you joined the sides as {joined}, so a patch's pixels end up far apart. Use (gh ph) (gw pw)":
           _unpatchify_as("b (gh gw) (c ph pw)", joined) for joined in CUTS},
        "height and width of the image are swapped": lambda *args: unpatchify(*args).transpose(2, 3),
        "three channels are hard-coded: c follows from the patch's length": _unpatchify_as("b (gh gw) (c ph pw)", c=3),
    },
    right=[lambda x, patch, grid: F.fold(x.mT, (grid[0] * patch[0], grid[1] * patch[1]), patch, stride=patch)],
    shape="The images are (b, c, gh·ph, gw·pw)",
    otherwise="unpatchify(patchify(images)) is not images: which axis went where?",
)  # fmt: skip


def kernel_to_matrix(weight: Float[Tensor, "d c ph pw"]) -> Float[Tensor, "d cphpw"]:
    """The weight of the nn.Linear that does to a flattened patch what this Conv2d kernel does to the image."""
    return weight.flatten(1)


def _matrix_of_the_convolution(weight):
    """A matrix by its columns: what the convolution makes of a patch with a single 1 in it."""
    ones = torch.eye(weight[0].numel(), dtype=weight.dtype).reshape(-1, *weight.shape[1:])
    return F.conv2d(ones, weight).flatten(1).T


EXERCISES["kernel_to_matrix"] = Exercise(
    reference=kernel_to_matrix, truth=_matrix_of_the_convolution,
    given=lambda d=11, c=3, ph=5, pw=7: (torch.randn(d, c, ph, pw),),
    mistakes={
        "nn.Linear keeps its weight as (out, in), so d comes first": lambda weight: weight.flatten(1).T,
        **{f"the kernel was flattened as ({order}); patches are (c ph pw), so no permute is needed":
           lambda weight, order=order: rearrange(weight, f"d c ph pw -> d ({order})") for order in ORDERS},
        "the kernel is flipped. Conv2d does not flip it": lambda weight: weight.flip(2, 3).flatten(1),
        "reshape(-1, d) moves no axis, so the transpose after it mixes the rows. d is in front already":
            lambda weight: weight.reshape(-1, len(weight)).T,
        "the shape is right, but the rows are mixed: reshape cannot transpose. d is in front already":
            lambda weight: weight.permute(1, 2, 3, 0).reshape(len(weight), -1),
        "the kernel is scaled. Copy the numbers": lambda weight: weight.flatten(1) / weight[0].numel() ** 0.5,
    },
    right=[lambda weight: rearrange(weight, "d c ph pw -> d (c ph pw)")],
    shape="One row for each output, c·ph·pw columns", otherwise="patches times your matrix differ from Conv2d",
)  # fmt: skip


def pad_to_patches(images: Shaped[Tensor, "b c H W"], patch_size: tuple[int, int]) -> Shaped[Tensor, "b c Hp Wp"]:
    """Images with zeros added below and on the right, up to the next multiple of the patch."""
    height, width = images.shape[2:]
    return F.pad(images, (0, -width % patch_size[1], 0, -height % patch_size[0]))


def _copy_onto_black(images, patch_size):
    *front, height, width = images.shape
    black = images.new_zeros(*front, *(ceil(s / p) * p for s, p in zip((height, width), patch_size, strict=True)))
    black[:, :, :height, :width] = images
    return black


def _pad(sides=lambda across, down: (0, across, 0, down), missing=lambda side, patch: -side % patch, **options):
    """Padding by what is missing on the right, ``across``, and below, ``down``."""

    def fn(images, patch):
        return F.pad(images, sides(missing(images.shape[3], patch[1]), missing(images.shape[2], patch[0])), **options)

    return fn


def _a_patch_more(images, patch, always=True):
    fits = images.shape[2] % patch[0] == images.shape[3] % patch[1] == 0
    return images if fits and not always else _pad(missing=lambda side, patch: patch - side % patch)(images, patch)


EXERCISES["pad_to_patches"] = Exercise(
    reference=pad_to_patches, truth=_copy_onto_black, right=[_copy_onto_black], dtype=True,
    # No zero in the images, so that an added one can be seen.
    given=lambda b=1, c=2, height=9, width=17, ph=4, pw=6: (torch.rand(b, c, height, width) + 1, (ph, pw)),
    cases=[
        Case(lambda: (torch.rand(1, 2, 8, 12), (4, 6)),
             "An image that fits already needs no padding: -9 % 4 is 3, but -8 % 4 is 0", _a_patch_more),
        Case(lambda: (torch.rand(1, 2, 9, 12), (4, 6)), "one side fits, and still grew: treat each by itself",
             partial(_a_patch_more, always=False)),
        Case(lambda: (torch.full((1, 1, 3, 5), 7, dtype=torch.uint8), (2, 3)),
             "images of bytes come back with another dtype: padding keeps it",
             lambda images, patch: pad_to_patches(images, patch).to(torch.promote_types(images.dtype, torch.half))),
    ],
    mistakes={
        "the image was cropped. Pad it, so that nothing is lost": _pad(missing=lambda side, patch: -(side % patch)),
        "height and width are swapped. F.pad takes the last axis first: (left, right, top, bottom)":
            _pad(lambda across, down: (0, down, 0, across)),
        "the zeros must be below and on the right, or patches shift": _pad(lambda across, down: (across, 0, down, 0)),
        "the sizes were rounded to the nearest multiple. Round up, or the image is cropped":
            _pad(missing=lambda side, patch: round(side / patch) * patch - side),
        "the padding is split between both sides, so every patch is shifted. Add it below and on the right":
            _pad(lambda across, down: (across // 2, across - across // 2, down // 2, down - down // 2)),
        "the padding must be zeros": _pad(value=0.5),
        "the border was repeated. The padding must be zeros": _pad(mode="replicate"),
    },
    shape="Each side grows to the next multiple of the patch",
    otherwise="the image must be unchanged, in the top left corner, with zeros around it",
)  # fmt: skip
