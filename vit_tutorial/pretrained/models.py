"""Whole models of other libraries, which know what their weights alone do not determine (chapter 9)."""

import re
from collections.abc import Hashable, Iterable
from dataclasses import replace

import torch
from torch import nn

from vit_tutorial.encoder import ACTIVATIONS
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.state_dicts import build, from_state_dict, read_config

# The parts of timm's VisionTransformer that ours has too, under their names without the number of the block.
NORMS = ("torch.LayerNorm", "timm.LayerNorm", "timm.LayerNormFp32")
TIMM_PARTS = {
    "": ("timm.VisionTransformer",),
    "patch_embed": ("timm.PatchEmbed",),
    "patch_embed.proj": ("torch.Conv2d",),
    "blocks": ("torch.Sequential", "timm.Block"),
    "blocks.norm1": NORMS,
    "blocks.attn": ("timm.Attention",),
    "blocks.attn.qkv": ("torch.Linear",),
    "blocks.attn.proj": ("torch.Linear",),
    "blocks.norm2": NORMS,
    "blocks.mlp": ("timm.Mlp",),
    "blocks.mlp.fc1": ("torch.Linear",),
    "blocks.mlp.fc2": ("torch.Linear",),
    "norm": NORMS,
    "head": ("torch.Linear",),
}
IDLE = ("torch.Identity", "torch.Dropout", "timm.DropPath", "timm.PatchDropout")  # in evaluation mode


def from_torchvision(model: nn.Module) -> ViT:
    """A :class:`~vit_tutorial.ViT` that computes what ``model`` does in evaluation mode; the weights are copied.

    Raises:
        ValueError: if it is not a ``VisionTransformer`` of torchvision, or has parts that a plain ViT does not have.
    """
    from torchvision.models import VisionTransformer  # takes a second

    if not isinstance(model, VisionTransformer):
        raise ValueError(f"from_torchvision takes torchvision's VisionTransformer, got {type(model).__name__}")
    heads = model.encoder.layers[0].num_heads
    ours = from_state_dict(model.state_dict(), num_heads=heads, img_size=model.image_size)
    return with_eps(ours, model.encoder.ln.eps)


def from_timm(model: nn.Module) -> ViT:
    """A :class:`~vit_tutorial.ViT` that computes the logits of ``model``, a ``VisionTransformer`` of timm.

    The weights are copied. What a state dict does not determine is read from the model: the number of heads, the
    activation, the epsilon of the norms, what the head reads. Rates of dropout, which do nothing in evaluation mode,
    are left out.

    Raises:
        ValueError: if it is another model, or has a part or an option that a plain ViT lacks; the message names it.
    """
    if _kind(model) != "timm.VisionTransformer":
        raise ValueError(f"from_timm takes timm's VisionTransformer, got {type(model).__name__}")
    acts = set()
    for name, part in model.named_modules():
        place = re.sub(r"\.\d+", "", name)
        wanted = TIMM_PARTS.get(place, ())
        if place == "blocks.mlp.act":
            acts.add(_activation(name, part))
        elif _kind(part) not in (*IDLE, *wanted):
            there = " or ".join(wanted) or "nothing"
            raise ValueError(f"our ViT cannot compute what {name} does, a {_kind(part)}: it has {there} there")
        elif place != "blocks.attn.qkv" and getattr(part, "bias", part) is None:
            raise ValueError(f"our ViT has a bias in {name}, this model has none")
    has_class_token = model.cls_token is not None
    if (model.global_pool, has_class_token) not in (("token", True), ("avg", False)):
        raise ValueError(
            f"our ViT reads the class token, or averages the patches and has none; this model has global_pool "
            f"{model.global_pool!r} and {'a' if has_class_token else 'no'} class token"
        )
    if model.reg_token is not None:
        raise ValueError(f"our ViT has no register tokens, this model has {model.reg_token.shape[1]} in reg_token")
    if model.no_embed_class and has_class_token and model.pos_embed is not None:
        raise ValueError("our ViT has a position for the class token, this model has none: no_embed_class is True")
    state, num_tokens = model.state_dict(), has_class_token + model.patch_embed.num_patches
    sizes = read_config(
        {"pos_embed": torch.empty(1, num_tokens, model.embed_dim), **state},  # timm's model may have no positions
        num_heads=_the_same("num_heads", (block.attn.num_heads for block in model.blocks)),
        img_size=model.patch_embed.img_size,
    )
    config = replace(
        sizes,
        act=_the_same("activation", acts),
        pos_embed="none" if model.pos_embed is None else "learned",
        final_norm=not isinstance(model.norm, nn.Identity),
    )
    norms = [part for part in model.modules() if isinstance(part, nn.LayerNorm)]
    return with_eps(build(config, state), _the_same("epsilon of the norms", (norm.eps for norm in norms)))


def _kind(part: nn.Module) -> str:
    """The library and the name of a module's class, as in ``"timm.Attention"``."""
    return f"{type(part).__module__.partition('.')[0]}.{type(part).__name__}"


def _activation(name: str, layer: nn.Module) -> str:
    """Which of our activations a layer is, by what it computes: timm has several classes for one function."""
    probe = torch.linspace(-5, 5, 1001)
    for act, make in ACTIVATIONS.items():
        if not list(layer.parameters()) and torch.allclose(layer(probe), make()(probe), rtol=0, atol=1e-6):
            return act
    raise ValueError(f"{name} must compute one of {', '.join(ACTIVATIONS)}, got {layer}")


def _the_same(name: str, values: Iterable[Hashable]) -> Hashable:
    found = set(values)
    if len(found) != 1:
        raise ValueError(f"the {name} must be the same throughout the model, got {sorted(found)}")
    return found.pop()


def from_huggingface(model: nn.Module) -> ViT:
    """A :class:`~vit_tutorial.ViT` that computes the logits of ``model``, a ``ViTForImageClassification``.

    The weights are copied, and the epsilon of its norms, 1e-12 by default, is taken over.

    Raises:
        ValueError: if it is another kind of model, or its activation is not the exact GELU.
    """
    if type(model).__name__ != "ViTForImageClassification":
        raise ValueError(f"from_huggingface takes a ViTForImageClassification, got {type(model).__name__}")
    config = model.config
    if config.hidden_act != "gelu":
        raise ValueError(f"hidden_act must be 'gelu', got {config.hidden_act!r}")
    img_size = config.image_size if isinstance(config.image_size, int) else tuple(config.image_size)
    ours = from_state_dict(model.state_dict(), num_heads=config.num_attention_heads, img_size=img_size)
    return with_eps(ours, config.layer_norm_eps)


def with_eps(model: ViT, eps: float) -> ViT:
    """The model itself, with this epsilon in all its norms."""
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = eps
    return model
