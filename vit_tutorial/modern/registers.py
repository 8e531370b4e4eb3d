"""Registers for a model that was trained without: outliers in a few patches are moved to a token that nobody reads."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.model import ViT
from vit_tutorial.modern.tokens import ModernViT
from vit_tutorial.validate import check_int, check_number, checked

Neuron = tuple[int, int]  # block, and feature behind its MLP's activation


@torch.no_grad()
@checked
def register_neurons(
    model: ViT, images: Float[Tensor, "b c H W"], *, block: int, number: int, threshold: float = 3.0
) -> list[Neuron]:
    """Which neurons of the MLPs fire where a token is an outlier, the strongest first.

    Args:
        model: trained without registers; its MLPs have an ``act``, as :class:`~vit_tutorial.encoder.Mlp` has.
        images: ``(b, c, H, W)``; outliers are in few patches, so some dozens.
        block: behind it outliers are looked for, and up to it neurons.
        number: of neurons that are wanted.
        threshold: how many times as long as its image's median a patch's token must be to be an outlier.

    Returns:
        ``(block, neuron)`` pairs, by their mean activation at the outliers.

    Raises:
        ValueError: if there are no outliers, no such block, or an MLP without ``act``.

    Source: Jiang et al. 2025, "Vision Transformers don't need trained registers".
    """
    check_int("number", number, 1)
    check_number("threshold", threshold, 1)
    if not 0 <= block < len(model.blocks):
        raise ValueError(f"there is no block {block}: the model has blocks 0 to {len(model.blocks) - 1}")
    first, fired, leaving = model.config.num_prefix_tokens, [], []
    hooks = [
        _act(model, i).register_forward_hook(lambda part, args, out: fired.append(out[:, first:]))
        for i in range(block + 1)
    ]
    hooks.append(model.blocks[block].register_forward_hook(lambda part, args, out: leaving.append(out[:, first:])))
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    lengths = leaving[0].norm(dim=-1)
    times = lengths / lengths.median(dim=1, keepdim=True).values
    if not (times > threshold).any():
        raise ValueError(
            f"behind block {block} no patch is more than {threshold:g} times as long as its image's median; the "
            f"longest is {times.max():.2f} times"
        )
    means = torch.stack([activations[times > threshold].mean(dim=0) for activations in fired])
    order = means.flatten().argsort(descending=True)[:number]
    return [(int(i) // means.shape[1], int(i) % means.shape[1]) for i in order]


@checked
def with_test_time_register(model: ViT, neurons: Sequence[Neuron]) -> ModernViT:
    """A copy of a plain model with one register, into which some neurons fire instead of into patches.

    The register starts as zeros. Behind the activation of an MLP the largest number that a neuron has in any token is
    given to the register, and the others lose theirs.

    Args:
        model: a plain :class:`~vit_tutorial.model.ViT`; it isn't changed.
        neurons: as :func:`register_neurons` finds them.

    Raises:
        ValueError: if the model is not plain, or has no such neuron.

    Source: Jiang et al. 2025, arXiv:2506.08010; in their code the class token keeps its activation, and the largest is
    chosen by size, with its sign.
    """
    if type(model) is not ViT:
        raise ValueError(f"a test-time register is for a plain ViT, got {type(model).__name__}")
    modern = ModernViT(model.config, model.blocks[0].attn.attend, reg_tokens=1)
    modern.load_state_dict(model.state_dict() | {"reg_token": torch.zeros_like(modern.reg_token)}, strict=True)
    for norm, own in zip(_norms(modern), _norms(model), strict=True):
        norm.eps = own.eps
    width, place = model.blocks[0].mlp.fc1.out_features, model.config.num_prefix_tokens
    by_block: dict[int, list[int]] = {}
    for block, neuron in neurons:
        if not (0 <= block < len(model.blocks) and 0 <= neuron < width):
            raise ValueError(f"there is no neuron {(block, neuron)} in {len(model.blocks)} blocks of {width} neurons")
        by_block.setdefault(block, []).append(neuron)
    for block, chosen in by_block.items():
        hook = _moving(torch.tensor(chosen), place)
        _act(modern, block).register_forward_hook(hook)
    return modern.to(model.patch_embed.proj.weight).train(model.training)


def move_to_register(activations: Float[Tensor, "b n h"], neurons: Tensor, register: int) -> Float[Tensor, "b n h"]:
    """Give the largest activation of each neuron to one token, and none to the others."""
    moved = activations.clone()
    moved[:, :, neurons] = 0
    moved[:, register, neurons] = activations[:, :, neurons].amax(dim=1)
    return moved


def _moving(neurons: Tensor, register: int):
    return lambda part, args, out: move_to_register(out, neurons.to(out.device), register)


def _norms(model: nn.Module) -> list[nn.LayerNorm]:
    return [part for part in model.modules() if isinstance(part, nn.LayerNorm)]


def _act(model: ViT, block: int) -> nn.Module:
    mlp = model.blocks[block].mlp
    if not isinstance(getattr(mlp, "act", None), nn.Module):
        raise ValueError(f"the MLP of block {block}, a {type(mlp).__name__}, has no part called act")
    return mlp.act
