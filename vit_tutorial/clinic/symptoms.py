"""Symptoms: what tells a sick model from a healthy one, one short function for each (chapter 12).

The chapter's exercises have the reader write most of them, and :func:`~vit_tutorial.clinic.diagnose` asks them.
``True`` means healthy, except for ``outputs_are_probabilities``, where it is the bug. Those that take a model run it in
evaluation mode and leave it as it was.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call

from vit_tutorial.archs.patients import History
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.validate import check_finite, checked, to_pair

SAME = 1e-4  # what rounding may change, as a fraction of the whole


class CannotTell(ValueError):
    """A test does not apply to a model, or either answer would mean nothing; the message says why."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """The model in evaluation mode for the length of a ``with`` block; afterwards each part has its own mode again."""
    modes = {part: part.training for part in model.modules()}
    try:
        yield model.eval()
    finally:
        for part, mode in modes.items():
            part.training = mode


LOGITS = ("logits", "logit", "output", "outputs", "out", "pred", "preds", "prediction", "scores")
FEATURES = ("pooler_output", "last_hidden_state")  # where Hugging Face's models without a head put theirs


def as_logits(output: object) -> Tensor:
    """What a model returned, or the logits in it: by their name in an object or a dict, else the first (b, k) in it.

    The states of a model without a head are averaged over the tokens.

    Raises:
        ValueError: if there is no such tensor.
    """
    if isinstance(output, Tensor):
        return output
    named = output if isinstance(output, Mapping) else vars(output) if hasattr(output, "__dict__") else {}
    if hasattr(output, "_asdict"):
        named = output._asdict()
    for name in (*LOGITS, *FEATURES):
        if isinstance(value := named.get(name), Tensor):
            return value.mean(dim=1) if name == "last_hidden_state" else value
    values = [*named.values()] or (list(output) if isinstance(output, tuple | list) else [])
    values = [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]
    for ndim in (2, 3):  # a tuple may hold attention maps or hidden states as well
        if found := [value for value in values if value.ndim == ndim]:
            return found[0]
    shapes = ", ".join(str(tuple(value.shape)) for value in values) or "no tensor"
    raise ValueError(
        f"a model must return logits, or an object that has them; got {type(output).__name__} with {shapes}"
    )


@checked
def outputs_are_probabilities(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether every row of the model's outputs is at least 0 and sums to 1."""
    check_finite("images", images)
    with evaluating(model), torch.no_grad():
        return are_probabilities(as_logits(model(images)))


def are_probabilities(outputs: Float[Tensor, "*b k"]) -> bool:
    """Whether every row is at least 0 and sums to 1."""
    sums = outputs.sum(dim=-1)
    return bool((outputs >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), rtol=SAME)


@checked
def images_are_independent(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether the outputs for image 0 stay the same when all other images of the batch are exchanged."""
    check_finite("images", images)
    others = images + torch.randn_like(images)
    others[0] = images[0]
    with evaluating(model), torch.no_grad():
        before, after = (as_logits(model(batch))[0] for batch in (images, others))
    return torch.allclose(before, after, rtol=1e-4, atol=1e-5)


@checked
def any_batch_size(model: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether each image gets the same outputs alone as in its row of the batch; an error for either is a no."""
    check_finite("images", images)
    with evaluating(model), torch.no_grad():
        try:
            together = as_logits(model(images))
            alone = torch.stack([as_logits(model(image[None]))[0] for image in images])
        except (RuntimeError, ValueError, AssertionError, LookupError, TypeError):
            return False
    return together.shape == alone.shape and torch.allclose(together, alone, rtol=1e-3, atol=1e-4)


@checked
def patch_order_matters(model: nn.Module, images: Float[Tensor, "b c H W"], patch_size: int | tuple[int, int]) -> bool:
    """Whether the outputs change when the patches of ``patch_size`` pixels are put in another order.

    It is a random one, since reversing them keeps their distances, and so the outputs of some healthy models.

    Raises:
        CannotTell: if the outputs are the same for every image, or the patches are the same in each of them.
    """
    check_finite("images", images)
    ph, pw = to_pair("patch_size", patch_size)
    grid_size = (images.shape[2] // ph, images.shape[3] // pw)
    patches = patchify(images, patch_size)
    mixed = patches[:, another_order(patches.shape[1])]
    if (mixed - patches).norm() <= SAME * patches.norm():
        raise CannotTell("the patches of each image are alike")
    with evaluating(model), torch.no_grad():
        before, after = (as_logits(model(batch)) for batch in (images, unpatchify(mixed, patch_size, grid_size)))
    from_image_to_image = (before - before.mean(dim=0)).norm()
    if from_image_to_image <= SAME * before.norm():
        raise CannotTell("the outputs are the same for every image")
    return bool((after - before).norm() > SAME * from_image_to_image)


def another_order(number: int) -> list[int]:
    """A random order of so many patches in which none is where it was."""
    cycle = torch.randperm(number, generator=torch.Generator().manual_seed(0)).tolist()
    following = dict(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    return [following[patch] for patch in range(number)]


@checked
def dead_parameters(model: nn.Module, images: Float[Tensor, "b c H W"]) -> list[str]:
    """The names of the parameters on which the outputs do not depend.

    Such a parameter is not in the outputs' graph, so it gets no gradient, not even one of 0. Frozen parameters are
    treated like the others, and no ``grad`` is touched.

    Raises:
        CannotTell: if the outputs have no gradient at all.
    """
    asked = {name: p.detach().requires_grad_() for name, p in model.named_parameters() if p.is_floating_point()}
    with evaluating(model), torch.enable_grad():
        outputs = as_logits(called_with(model, asked, images))
    if not outputs.requires_grad:
        raise CannotTell("the outputs have no gradient with respect to any parameter")
    gradients = torch.autograd.grad(outputs.sum(), list(asked.values()), allow_unused=True)
    return [name for name, gradient in zip(asked, gradients, strict=True) if gradient is None]


def called_with(model: nn.Module, swapped: dict[str, Tensor], images: Tensor) -> object:
    """What the model returns with other tensors in the place of these parameters and buffers, however they are shared.

    ``functional_call`` itself leaves a module that two paths lead to with the stand-ins, so each place is named once.
    """
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    stand_ins = {id(named[name]): value for name, value in swapped.items()}
    places = {}
    for path, part in model.named_modules():
        for key, tensor in (*part._parameters.items(), *part._buffers.items()):
            if id(tensor) in stand_ins:
                places[f"{path}.{key}" if path else key] = stand_ins[id(tensor)]
    return functional_call(model, places, (images,), tie_weights=False)


@checked
def dead_norms(model: nn.Module, images: Float[Tensor, "b c H W"]) -> list[str]:
    """The names of the LayerNorms on whose weight the outputs do not depend."""
    dead = set(dead_parameters(model, images))
    norms = (name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm))
    return [name for name in norms if f"{name}.weight" in dead]


def moved_by_patch(
    embed: Callable[[Tensor], Tensor], images: Float[Tensor, "b c H W"], patch_size: tuple[int, int], patch: int
) -> Bool[Tensor, "n d"]:
    """Which numbers of which tokens change when the pixels of one patch do; patches are counted row by row."""
    ph, pw = patch_size
    row, column = divmod(patch, images.shape[3] // pw)
    pixels = (..., slice(row * ph, (row + 1) * ph), slice(column * pw, (column + 1) * pw))
    changed = images.clone()
    changed[pixels] += torch.randn_like(changed[pixels])
    with torch.no_grad():
        moved = (embed(changed) - embed(images)).abs().amax(dim=0)
    return moved > SAME * moved.max()


@checked
def patches_stay_together(embed: nn.Module, images: Float[Tensor, "b c H W"]) -> bool:
    """Whether changing the pixels of a patch changes exactly one token, for every patch.

    ``embed`` turns images into tokens ``(b, n, d)`` and has a ``patch_size``, (height, width). It does not matter
    which token changes.
    """
    check_finite("images", images)
    ph, pw = to_pair("the patch_size of embed", getattr(embed, "patch_size", None))
    patches = range((images.shape[2] // ph) * (images.shape[3] // pw))
    return all(moved_by_patch(embed, images, (ph, pw), patch).any(dim=1).sum() == 1 for patch in patches)


def count_dependencies(attention: Callable[[Tensor], Tensor], x: Float[Tensor, "b n d"], number: int) -> int:
    """The number of a token's ``d`` features on which one feature of the output depends."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        out = attention(x)[..., number]
    (gradient,) = torch.autograd.grad(out, x, torch.randn_like(out))  # random, since a plain sum may be constant
    return int((gradient != 0).any(dim=(0, 1)).sum())


@checked
def heads_see_everything(attention: nn.Module, x: Float[Tensor, "b n d"]) -> bool:
    """Whether each feature of the output depends on each feature of a token."""
    check_finite("x", x)
    return all(count_dependencies(attention, x, number) == x.shape[-1] for number in range(x.shape[-1]))


@checked
def weights_sum_to_one(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> bool:
    """Whether ``attend(q, k, v)`` returns means of the values: if all values are 1, so is every mean of them."""
    q, k = torch.randn(2, 2, 3, 5, 8)
    return torch.allclose(attend(q, k, torch.ones_like(k)), torch.ones_like(q), rtol=0, atol=1e-4)


def choices_of_epoch(select: Callable[[History], int]) -> list[int]:
    """The epochs that ``select`` chooses from six histories: only the test figures differ, best in epochs 0 to 5."""
    choices = []
    for best in range(6):
        history = [
            {
                "train_loss": 1 - i / 10,
                "val_loss": abs(i - 3) / 10,
                "val_accuracy": 0.9 - abs(i - 3) / 10,
                "test_loss": 1 - 0.5 * (i == best),
                "test_accuracy": 0.4 + 0.5 * (i == best),
            }
            for i in range(6)
        ]
        choices.append(select(history))
    return choices


@checked
def chosen_without_the_test_set(select: Callable[[History], int]) -> bool:
    """Whether the choice of an epoch stays the same when only the test figures of a history change."""
    return len(set(choices_of_epoch(select))) == 1
