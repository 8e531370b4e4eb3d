"""Whole models of other libraries, which know what their weights alone do not determine (chapter 9)."""

import re
from collections.abc import Hashable, Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from vit_tutorial.encoder import ACTIVATIONS
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.parts import maker, unpacked, with_our_positions
from vit_tutorial.pretrained.rotary import from_eva
from vit_tutorial.pretrained.state_dicts import build, from_state_dict, read_config

# The parts of timm's VisionTransformer that ours have too, under their names without the number of the block.
LAYER_NORMS = ("torch.LayerNorm", "timm.LayerNorm", "timm.LayerNormFp32")
NORMS = (*LAYER_NORMS, "torch.RMSNorm", "timm.RmsNorm")
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
    "blocks.attn.q_norm": NORMS,
    "blocks.attn.k_norm": NORMS,
    "blocks.ls1": ("timm.LayerScale",),
    "blocks.ls2": ("timm.LayerScale",),
    "blocks.mlp": ("timm.Mlp", "timm.SwiGLU", "timm.GluMlp"),
    "blocks.mlp.fc1": ("torch.Linear",),
    "blocks.mlp.fc1_g": ("torch.Linear",),
    "blocks.mlp.fc1_x": ("torch.Linear",),
    "blocks.mlp.fc2": ("torch.Linear",),
    "attn_pool": ("timm.AttentionPoolLatent",),
    "attn_pool.q": ("torch.Linear",),
    "attn_pool.kv": ("torch.Linear",),
    "attn_pool.proj": ("torch.Linear",),
    "attn_pool.norm": LAYER_NORMS,
    "attn_pool.mlp": ("timm.Mlp",),
    "attn_pool.mlp.fc1": ("torch.Linear",),
    "attn_pool.mlp.fc2": ("torch.Linear",),
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
    """A :class:`~vit_tutorial.ViT` that computes the logits of ``model``, a ``VisionTransformer`` or ``Eva`` of timm.

    The weights are copied. What a state dict does not determine is read from the model: the number of heads, the
    activation, the epsilon of the norms, what the head reads. Rates of dropout, which do nothing in evaluation mode,
    are left out. With LayerScale, RMSNorm, SwiGLU, QK-norm, registers, attention pooling or rotary positions it is a
    :class:`~vit_tutorial.modern.ModernViT`.

    Raises:
        ValueError: if it is another model, or has a part or an option that a plain ViT lacks; the message names it.
    """
    if _kind(model) == "timm.Eva":
        return from_eva(model)
    if _kind(model) != "timm.VisionTransformer":
        raise ValueError(f"from_timm takes timm's VisionTransformer or Eva, got {type(model).__name__}")
    acts = set()
    for name, part in model.named_modules():
        place = re.sub(r"\.\d+", "", name)
        wanted = TIMM_PARTS.get(place, ())
        if place == "blocks.mlp.act" and _kind(mlp := model.get_submodule(name[: -len(".act")])) != "timm.Mlp":
            _check_gate(name, mlp)
        elif place in ("blocks.mlp.act", "attn_pool.mlp.act"):
            acts.add(_activation(name, part))
        elif _kind(part) not in (*IDLE, *wanted):
            there = " or ".join(wanted) or "nothing"
            raise ValueError(f"our ViT cannot compute what {name} does, a {_kind(part)}: it has {there} there")
        elif place != "blocks.attn.qkv" and getattr(part, "bias", part) is None:
            raise ValueError(f"our ViT has a bias in {name}, this model has none")
    has_class_token = model.cls_token is not None
    if (model.global_pool, has_class_token) not in (("token", True), ("avg", False), ("map", True), ("map", False)):
        raise ValueError(
            f"our ViT reads the class token, or averages the patches and has none; this model has global_pool "
            f"{model.global_pool!r} and {'a' if has_class_token else 'no'} class token"
        )
    if model.pool_include_prefix and model.num_prefix_tokens and model.global_pool != "token":
        raise ValueError("our ViT leaves class token and registers out of the pool; pool_include_prefix is True here")
    num_patches, num_tokens = model.patch_embed.num_patches, has_class_token + model.patch_embed.num_patches
    state = with_our_positions(unpacked(model.state_dict()), num_patches)
    sizes = read_config(
        {"pos_embed": torch.empty(1, num_tokens, model.embed_dim), **state},  # timm's model may have no positions
        num_heads=_the_same("num_heads", (part.num_heads for part in model.modules() if hasattr(part, "num_heads"))),
        img_size=model.patch_embed.img_size,
    )
    config = replace(
        sizes,
        act=_the_same("activation", acts or {"gelu"}),  # all may be gates
        pos_embed="none" if model.pos_embed is None else "learned",
        final_norm=not isinstance(model.norm, nn.Identity),
    )
    norms = [part for part in model.modules() if _kind(part) in NORMS]
    return with_eps(build(config, state, maker(state)), _the_same("epsilon of the norms", (norm.eps for norm in norms)))


def _kind(part: nn.Module) -> str:
    """The library and the name of a module's class, as in ``"timm.Attention"``."""
    return f"{type(part).__module__.partition('.')[0]}.{type(part).__name__}"


def _check_gate(name: str, mlp: nn.Module) -> None:
    """Raise a ValueError unless a gated MLP of timm is a SwiGLU; one in a single layer has its gate in front."""
    probe = torch.linspace(-5, 5, 1001)
    if list(mlp.act.parameters()) or not torch.allclose(mlp.act(probe), F.silu(probe), rtol=0, atol=1e-6):
        raise ValueError(f"{name} must compute the SiLU, as the gate of our SwiGLU does; got {mlp.act}")
    if getattr(mlp, "gate_last", False):
        raise ValueError(f"{name} must gate by the first half of fc1, as our SwiGLU does; here gate_last is True")


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
        if isinstance(part, nn.LayerNorm | nn.RMSNorm):
            part.eps = eps
    return model
