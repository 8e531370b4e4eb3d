"""What ``diagnose`` asks of any model: one function for each bug, which returns its evidence, or "" (chapter 12).

A probe that does not apply to a model, or whose answer would mean nothing, raises CannotTell.
"""

import re
from collections.abc import Callable

import torch
from torch import nn

from vit_tutorial.archs.patients import History
from vit_tutorial.clinic import symptoms
from vit_tutorial.clinic.anatomy import Anatomy
from vit_tutorial.clinic.examined import NO_GRADIENT, ExaminedModel, far
from vit_tutorial.clinic.symptoms import SAME, CannotTell
from vit_tutorial.clinic.trace import DoesNotRun, unregistered
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.validate import listed

RESTS = re.compile(r"mask_token")  # stands in for patches that are hidden while pretraining
LIBRARIES = ("transformers", "timm", "torchvision")
NEEDS_PATCH_SIZE = "it needs the patch_size"
ONE_IMAGE = "the model takes only one image at a time"


def outputs_are_probabilities(examined: ExaminedModel) -> str:
    """Logits are free; only a softmax makes every row of outputs non-negative with a sum of 1."""
    outputs = examined.logits
    if outputs.shape[-1] < 2:
        raise CannotTell("a single output has nothing to sum to 1 with")
    if not symptoms.outputs_are_probabilities(examined.model, examined.images):
        return ""
    sums = outputs.sum(dim=-1)
    return f"the outputs of {len(outputs)} images are all at least 0, and each row sums to {sums.mean():.4f}"


def outputs_depend_on_each_other(examined: ExaminedModel) -> str:
    """An image has nothing to do with its neighbours in the batch: exchange them, and its outputs stay the same."""
    outputs = examined.logits
    if len(outputs) < 2:
        raise CannotTell(ONE_IMAGE)
    if not symptoms.images_are_independent(examined.model, examined.images):
        return f"the outputs for image 0 change when the other {len(outputs) - 1} images of the batch are exchanged"
    if far(outputs, outputs[:1].expand_as(outputs)) < SAME:
        raise CannotTell("the outputs are the same for every image")
    return ""


def row_or_size_matters(examined: ExaminedModel) -> str:
    """An image must get the same outputs in every row of a batch, and in a batch of any size.

    The same image is in all rows, so that its neighbours do not matter.
    """
    if examined.draws:
        raise CannotTell("the model draws random numbers, others for another number of images")
    same = examined.images[:1].expand_as(examined.images)
    if symptoms.any_batch_size(examined.model, same):
        return ""
    together = examined.logits
    try:
        with torch.no_grad():
            alone = symptoms.as_logits(examined.model(same[:1]))
    except DoesNotRun as error:
        return f"a batch of {len(together)} images runs, one of 1 raises {error.kind}"
    if alone.shape != (1, *together.shape[1:]):
        shapes = tuple(together.shape), tuple(alone.shape)
        return f"{len(together)} images give outputs of shape {shapes[0]}, a batch of 1 image gives {shapes[1]}"
    if not symptoms.images_are_independent(examined.model, examined.images):
        raise CannotTell("the images of a batch depend on each other")
    return f"the same image gets other outputs alone than in some row of a batch of {len(together)}"


def takes_one_image(examined: ExaminedModel) -> str:
    """A model must take more than one image at a time."""
    try:
        examined.model(examined.images.expand(4, -1, -1, -1))
    except DoesNotRun as error:
        return f"a batch of 1 image runs, one of 4 raises {error.kind}"
    return "a batch of 1 image gives logits, one of 4 does not"


def backward_pass_fails(examined: ExaminedModel) -> str:
    """Outputs that need a gradient must give one."""
    if examined.no_gradient == NO_GRADIENT:
        raise CannotTell(NO_GRADIENT)
    return f"a backward pass of the outputs raises {examined.no_gradient}" if examined.no_gradient else ""


def parameters_are_not_registered(examined: ExaminedModel) -> str:
    """What the outputs are computed from and wants a gradient must be among the parameters, or nothing trains it."""
    strangers = unregistered(examined.model, examined.model(examined.images))
    if not strangers:
        return ""
    shapes = listed([str(tuple(tensor.shape)) for tensor in strangers], 3)
    return f"the outputs have a gradient for {len(strangers)} that model.parameters() does not have, of shape {shapes}"


def parameters_without_gradient(examined: ExaminedModel) -> str:
    """Every parameter must matter for the outputs."""
    dead = symptoms.dead_parameters(examined.model, examined.images)
    dead = [name for name in dead if not RESTS.search(name) and not _rests(examined.model, name, dead)]
    if not dead:
        return ""
    count = sum(1 for _ in examined.model.parameters())
    return f"the outputs do not depend on {len(dead)} of the {count} parameters, {dead[0]} among them"


def _rests(model: nn.Module, name: str, dead: list[str]) -> bool:
    """Whether a parameter is in an idle part of a library's model, such as a head for another task."""
    path = name.split(".")
    for depth in range(1, len(path)):
        prefix = ".".join(path[:depth])
        part = model.get_submodule(prefix)
        names = [f"{prefix}.{key}" for key, _ in part.named_parameters()]
        if type(part).__module__.partition(".")[0] in LIBRARIES and len(names) > 4 and set(names) <= set(dead):
            return True
    return False


def check_patches(examined: ExaminedModel) -> None:
    if examined.patch_size is None:
        raise CannotTell(NEEDS_PATCH_SIZE)
    if examined.num_patches < 2:
        raise CannotTell("an image is a single patch")


def order_does_not_matter(examined: Anatomy) -> str:
    """Without positions a model takes an image for a bag of patches: in any order they give the same outputs."""
    check_patches(examined)
    follow = _tokens_follow_their_patches(examined)
    if follow:
        where = "the last block" if examined.blocks else "the layer that passes tokens on last"
        return f"in another order the {examined.num_patches} patches leave {where} as the same tokens, in that order"
    if symptoms.patch_order_matters(examined.model, examined.images, examined.patch_size) or follow is False:
        return ""
    return f"the outputs stay the same when each image's {examined.num_patches} patches are put in another order"


def _tokens_follow_their_patches(examined: Anatomy) -> bool | None:
    """Whether the tokens of patches in another order are the same in that order, as they are without positions."""
    patches, number = patchify(examined.images, examined.patch_size), examined.num_patches
    grid_size = tuple(side // p for side, p in zip(examined.images.shape[2:], examined.patch_size, strict=True))
    order = symptoms.another_order(number)
    with torch.no_grad():
        before = examined.run(examined.images).leaving
        after = examined.run(unpatchify(patches[:, order], examined.patch_size, grid_size)).leaving
    if before is None or before.ndim != 3 or before.shape != after.shape or before.shape[1] < number:
        return None
    away = []
    for first in range(before.shape[1] - number + 1):
        old, new = (tokens[:, first : first + number] for tokens in (before, after))
        if far(new, old[:, order]) < SAME / 10 and far(new, old) > SAME:
            return True
        away.append(min(far(new, old[:, order]), far(new, old)))
    return None if min(away) < SAME / 10 else False


def _check_stem(examined: ExaminedModel) -> None:
    """Raise CannotTell if more than one convolution, or one whose patches overlap, runs before there are tokens."""
    tokens = (call.start for call in examined.calls if call.given is not None and call.given.ndim == 3)
    first = next(tokens, examined.calls[0].end)
    stem = [call.part for call in examined.calls if isinstance(call.part, nn.Conv2d) and call.start < first]
    if len(stem) > 1 or any(part.kernel_size != part.stride for part in stem):
        raise CannotTell("behind overlapping patches or several convolutions a token sees more by design")


def patches_are_scrambled(examined: Anatomy) -> str:
    """A token is made of one patch, so the pixels of one patch move one token."""
    check_patches(examined)
    if examined.known and not hasattr(examined.proj, "weight"):
        raise CannotTell("behind a stem of several layers a token sees more than a patch by design")
    _check_stem(examined)
    if not examined.blocks and parameters_are_not_registered(examined):
        raise CannotTell("what isn't registered may have run before the first sequence that was seen")
    evidence, near = "", True
    for patch in sorted({0, examined.num_patches // 2, examined.num_patches - 1}):
        moved = symptoms.moved_by_patch(examined.embed, examined.images, examined.patch_size, patch)
        if not moved.any():
            raise CannotTell("the tokens do not depend on the pixels")
        tokens = moved.any(dim=1).nonzero().flatten().tolist()
        if len(tokens) > 1 and moved.shape[1] > 1 and moved.any(dim=0).sum() == 1:
            raise CannotTell("the first sequence that a part of the model takes may be (b, d, n)")
        if len(tokens) > 1 and not evidence:
            evidence = f"the pixels of patch {patch}, of {examined.num_patches}, move {len(tokens)} tokens"
        near &= _are_neighbours(examined, patch, tokens, moved.shape[0] - examined.num_patches)
    if evidence and near:
        raise CannotTell("a token sees its patch and the next ones, as where patches overlap or are shifted by design")
    return evidence


def _are_neighbours(examined: ExaminedModel, patch: int, tokens: list[int], extra: int) -> bool:
    """Whether these tokens are the patch's own and some around it, with the extra ones all in front or all behind."""
    columns = examined.images.shape[3] // examined.patch_size[1]
    if min(columns, examined.num_patches // columns) < 3:  # where all are neighbours
        return False
    row, column = divmod(patch, columns)
    for first in {0, extra}:
        places = [divmod(token - first, columns) for token in tokens]
        if (row, column) in places and all(abs(r - row) < 2 and abs(c - column) < 2 for r, c in places):
            return True
    return False


def output_for_each_token(examined: ExaminedModel) -> str:
    """A head that takes a vector gives one row of logits for an image, not one for each token."""
    outputs = examined.logits
    if outputs.ndim == 2:
        return ""
    return f"{len(outputs)} images give an output of shape {tuple(outputs.shape)}, a row for each token"


# The choice of an epoch -----------------------------------------------------------------------------------------------


def selection_follows_the_test_set(select: Callable[[History], int]) -> str:
    """Change nothing but the test figures of a history: a choice that moves has looked at them."""
    choices = symptoms.choices_of_epoch(select)
    if len(set(choices)) == 1:
        return ""
    return f"with the same validation figures it chose epochs {choices} as the best test accuracy went from 0 to 5"
