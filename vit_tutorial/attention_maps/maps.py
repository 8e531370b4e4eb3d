"""What a model looks at: its attention maps, and what becomes of them over the layers (chapter 8)."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vit_tutorial.attention import Attention, attention_weights
from vit_tutorial.config import ViTConfig
from vit_tutorial.model import ViT
from vit_tutorial.modern import ShawAttention
from vit_tutorial.validate import check_differentiable, checked, working_dtype


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[Float[Tensor, "b h n n"]]]:
    """Within this context a forward pass leaves its attention weights in a list, ``(b, h, n, n)`` for each layer.

    The model runs as always, on its fused path: hooks take each attention's input and compute the weights a second
    time, by :func:`~vit_tutorial.attention.attention_weights`. A second forward pass replaces the maps of the first.
    Works on this package's models, timm's and torchvision's. A warning tells which layers have scores that a half
    precision can't hold, so that their maps are NaN although the model's outputs are not.

    Raises:
        ValueError: if the model is compiled, since hooks that are added afterwards never run, or if none of its layers
            is a known attention layer.
        RuntimeError: if the context ends before a forward pass.
    """
    if is_compiled(model):
        raise ValueError("a compiled model runs no hooks: record the attention of the model that was compiled")
    known = [(part, weights) for part in model.modules() if (weights := _weights_of(part))]
    if not known:
        raise ValueError(f"{type(model).__name__} has no attention of vit_tutorial's, timm's or torchvision's kind")
    maps: list[Tensor] = []
    overflown: set[int] = set()

    def keep(layer: int, weights: Callable[[Tensor], Tensor]):
        @torch.no_grad()
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            del maps[layer:]  # those of an earlier pass
            maps.append(weights(inputs[0]))
            if inputs[0].isfinite().all() and not maps[layer].isfinite().all():
                overflown.add(layer)

        return hook

    hooks = [part.register_forward_pre_hook(keep(i, weights)) for i, (part, weights) in enumerate(known)]
    try:
        yield maps
    finally:
        for hook in hooks:
            hook.remove()
    if not maps:
        raise RuntimeError("nothing was recorded: call the model within the context")
    if overflown:
        dtype, layers = maps[0].dtype, ", ".join(map(str, sorted(overflown)))
        what = f"scores beyond {torch.finfo(dtype).max:,.0f} don't fit {dtype}, so the maps of layers {layers} hold NaN"
        warnings.warn(f"{what}, counted from 0. Record model.float() instead", stacklevel=3)


def is_compiled(model: nn.Module) -> bool:
    """Whether ``torch.compile`` has wrapped the model or a part of it, so that hooks added now may never run."""
    return any(hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) for part in model.modules())


def _weights_of(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """A function from a layer's input to its attention weights; None if it is not an attention layer."""
    if isinstance(module, Attention):
        return module.weights
    # The other two as their libraries' Vision Transformers call them: self-attention without a mask.
    if isinstance(module, nn.MultiheadAttention) and module.batch_first and module.in_proj_weight is not None:

        def weights_of_torch(x: Tensor) -> Tensor:
            qkv = F.linear(x, module.in_proj_weight, module.in_proj_bias)
            return attention_weights(*_queries_and_keys(qkv, module.num_heads))

        return weights_of_torch
    # Where timm keeps that of its Vision Transformers; other models of timm have other layers of this name.
    if (type(module).__module__, type(module).__name__) in (
        ("timm.layers.attention", "Attention"),
        ("timm.models.vision_transformer", "Attention"),  # in older versions
    ):

        def weights_of_timm(x: Tensor) -> Tensor:
            q, k = _queries_and_keys(module.qkv(x), module.num_heads)
            return attention_weights(module.q_norm(q), module.k_norm(k))

        return weights_of_timm
    return None


def _queries_and_keys(qkv: Float[Tensor, "b n three_d"], num_heads: int) -> Float[Tensor, "two b h n hd"]:
    return rearrange(qkv, "b n (three h hd) -> three b h n hd", three=3, h=num_heads)[:2]


@checked
def attention_map(
    weights: Float[Tensor, "*batch n n"], config: ViTConfig, query: tuple[int, int] | None = None
) -> Float[Tensor, "*batch gh gw"]:
    """One row of attention weights, laid out as the grid of patches.

    Args:
        weights: of a layer, of one of its heads, or rolled out; ``(..., n, n)``.
        config: of the model that the weights come from.
        query: which patch looks, (row, column). By default it is what the head reads: the class token, or with mean
            pooling the mean over all patches.

    Returns:
        ``(..., gh, gw)``. A class token's attention to itself is left out, so the sum may be below 1.

    Raises:
        ValueError: if the weights are those of another grid, or ``query`` is outside it.
    """
    _check_tokens(weights, config)
    gh, gw = config.grid_size
    if query is not None:
        if not isinstance(query, tuple | list) or len(query) != 2 or not all(isinstance(side, int) for side in query):
            raise ValueError(f"query must be the (row, column) of a patch, got {query!r}")
        if not (0 <= query[0] < gh and 0 <= query[1] < gw):
            raise ValueError(f"query {query} is outside the grid of {gh}×{gw} patches")
        row = weights[..., config.num_prefix_tokens + query[0] * gw + query[1], :]
    else:
        row = weights[..., 0, :] if config.pool == "cls" else weights.mean(dim=-2)
    return rearrange(row[..., config.num_prefix_tokens :], "... (gh gw) -> ... gh gw", gh=gh)


@checked
def attention_rollout(maps: Sequence[Float[Tensor, "b h n n"]]) -> Float[Tensor, "b n n"]:
    """How much of each input token arrives in each token of the last layer, if layers only mix tokens by attention.

    Each layer counts as the mean of its heads plus the identity for the residual connection, with rows that sum to 1;
    the layers are multiplied, first to last. MLPs, values and projections are ignored.

    Args:
        maps: one ``(b, h, n, n)`` for each layer, as :func:`record_attention` gives them; not changed.

    Returns:
        ``(b, n, n)``, in the dtype of the maps; each row sums to 1.

    Raises:
        ValueError: if there are no maps, one is not ``(b, h, n, n)`` or floating point, or models differ.

    Source: Abnar and Zuidema 2020, "Quantifying attention flow in transformers", section 3.
    """
    _check_alike(maps)
    dtype = working_dtype("maps", maps[0])
    rollout = identity = torch.eye(maps[0].shape[-1], device=maps[0].device, dtype=dtype)
    for weights in maps:
        mixed = weights.mean(dim=1, dtype=dtype) + identity
        rollout = mixed / mixed.sum(dim=-1, keepdim=True) @ rollout
    return rollout.to(maps[0].dtype)


@checked
def attention_gradients(
    model: nn.Module, images: Float[Tensor, "b c H W"], classes: Int64[Tensor, " b"] | None = None
) -> tuple[list[Float[Tensor, "b h n n"]], list[Float[Tensor, "b h n n"]]]:
    """Attention weights, and how much each of them raises the logit of a class.

    The matrix of weights A need not exist: a head computes A v, so the gradient at A is that at the head's output
    times vᵀ. The model stays on its fused path, and the gradients of its parameters are left alone.

    Args:
        model: this package's; unlike :func:`record_attention`, this function knows no others.
        images: ``(b, c, H, W)``, as the model takes them.
        classes: the class to explain, ``(b,)``; by default the predicted one.

    Returns:
        two lists with a tensor ``(b, h, n, n)`` for each layer: the weights, and the gradients.

    Raises:
        ValueError: if the model is not this package's or was made in inference mode, there is not one class for each
            image, or the model does not have it.
    """
    check_ours(model)
    values: list[Tensor] = []
    outputs: list[Tensor] = []  # of the heads, side by side, as the projection takes them
    hooks = []

    def keep_values(module: Attention, inputs: tuple[Tensor]) -> None:
        values.append(module.project(inputs[0])[2].detach())

    for block in model.blocks:
        hooks.append(block.attn.register_forward_pre_hook(keep_values))
        hooks.append(block.attn.proj.register_forward_pre_hook(lambda _, inputs: outputs.append(inputs[0])))
    try:
        # The images ask for gradients, so that there are some in a frozen model too.
        with gradients_on(), record_attention(model) as maps:
            logits = model(images.detach().clone().requires_grad_())
            chosen = logits.argmax(dim=-1) if classes is None else classes.to(logits.device).clone()
            check_chosen("class", chosen, *logits.shape)
            gradients = torch.autograd.grad(logits.gather(1, chosen[:, None]).sum(), outputs)
    finally:
        for hook in hooks:
            hook.remove()
    at_heads = [
        rearrange(grad, "b n (h hd) -> b h n hd", h=v.shape[1]) for grad, v in zip(gradients, values, strict=True)
    ]
    by_weight = [grad @ v.mT for grad, v in zip(at_heads, values, strict=True)]
    for i, attn in enumerate(block.attn for block in model.blocks):
        if isinstance(attn, ShawAttention):  # adds to a value what depends on its distance
            by_weight[i] = by_weight[i] + torch.einsum("bhif,ijf->bhij", at_heads[i], attn.vectors(attn.rel_v).detach())
    return maps, by_weight


@contextmanager
def gradients_on() -> Iterator[None]:
    """Compute gradients within this context, even if the caller turned them off."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def check_ours(model: nn.Module) -> None:
    """Raise a ValueError unless the model is this package's and can have gradients."""
    if not isinstance(model, ViT):
        raise ValueError(
            f"model must be vit_tutorial's ViT, got {type(model).__name__}; vit_tutorial.pretrained converts others"
        )
    check_differentiable(model)


def check_chosen(kind: str, indices: Tensor, images: int, num: int) -> None:
    """Raise a ValueError unless ``indices`` has a row for each of so many images, and all are from 0 to num − 1."""
    if indices.shape[:1] != (images,):
        raise ValueError(f"{images} images need {images} rows of {kind} indices, got shape {tuple(indices.shape)}")
    wrong = indices[(indices < 0) | (indices >= num)]
    if len(wrong):
        raise ValueError(f"there is no {kind} {wrong[0]}: {kind} indices are 0 to {num - 1}")


@checked
def gradient_rollout(
    maps: Sequence[Float[Tensor, "b h n n"]], gradients: Sequence[Float[Tensor, "b h n n"]]
) -> Float[Tensor, "b n n"]:
    """Rollout in which a weight counts by how much it raises the class's logit: heads are fused by weight × gradient.

    What lowers the logit counts as 0. Unlike :func:`attention_rollout` this depends on the class, and its rows
    need not sum to 1.

    Args:
        maps, gradients: as :func:`attention_gradients` gives them; not changed.

    Returns:
        ``(b, n, n)``, the identity included, in the dtype of the maps.

    Raises:
        ValueError: if there are no maps, one is not ``(b, h, n, n)`` in floating point, or maps and gradients are of
            different models.

    Source: Chefer et al. 2021, "Generic attention-model explainability", equations 5 and 6.
    """
    _check_alike([*maps, *gradients])
    if len(maps) != len(gradients):
        raise ValueError(f"there are {len(maps)} layers of maps, and {len(gradients)} of gradients")
    dtype = working_dtype("maps", maps[0])
    rollout = torch.eye(maps[0].shape[-1], device=maps[0].device, dtype=dtype).expand_as(maps[0][:, 0])
    for weights, gradient in zip(maps, gradients, strict=True):
        rollout = rollout + (weights.to(dtype) * gradient.to(dtype)).clamp(min=0).mean(dim=1) @ rollout
    return rollout.to(maps[0].dtype)


@checked
def attention_distance(weights: Float[Tensor, "b h n n"], config: ViTConfig) -> Float[Tensor, "b h"]:
    """How far a patch looks on average, in pixels: distance between patch centres, weighted by attention.

    A class token has no place in the image, so it is left out and the other weights are scaled to sum to 1.

    Returns:
        ``(b, h)``, the mean over all patches that look, in the dtype of the weights.

    Raises:
        ValueError: if the weights are those of another grid or not floating point.

    Source: Dosovitskiy et al. 2021, figure 7 (right) and appendix D.7.
    """
    _check_tokens(weights, config)
    patches = weights[..., config.num_prefix_tokens :, config.num_prefix_tokens :]
    patches = patches.to(working_dtype("weights", weights))
    rows, cols = (torch.arange(side, device=weights.device) for side in config.grid_size)
    places = torch.cartesian_prod(rows * config.patch_size[0], cols * config.patch_size[1]).to(patches.dtype)
    fractions = patches / patches.sum(dim=-1, keepdim=True)
    return (fractions * torch.cdist(places, places)).sum(dim=-1).mean(dim=-1).to(weights.dtype)


def _check_tokens(weights: Tensor, config: ViTConfig) -> None:
    if weights.shape[-1] != config.num_tokens:
        prefix = "a class token and " if config.num_prefix_tokens else ""
        raise ValueError(
            f"the maps are of {weights.shape[-1]} tokens, the config has {config.num_tokens}: {prefix}a grid of "
            f"{config.grid_size[0]}×{config.grid_size[1]} patches"
        )


def _check_alike(maps: Sequence[Tensor]) -> None:
    if len(maps) == 0:
        raise ValueError("there are no maps, so nothing can be rolled out")
    for layer, weights in enumerate(maps):
        if weights.shape[0] != maps[0].shape[0] or weights.shape[-2:] != maps[0].shape[-2:]:
            raise ValueError(
                f"maps of different models: layer 0 is {tuple(maps[0].shape)}, layer {layer} {tuple(weights.shape)}"
            )
