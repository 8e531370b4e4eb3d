"""Whole models of other libraries, which know what their weights do not say (chapter 9)."""

from torch import nn
from torchvision.models import VisionTransformer

from vit_tutorial.model import ViT
from vit_tutorial.pretrained.state_dicts import from_state_dict


def from_torchvision(model: VisionTransformer) -> ViT:
    """A :class:`~vit_tutorial.ViT` that computes what ``model`` does in evaluation mode; the weights are copied.

    Raises:
        ValueError: when it is no ``VisionTransformer`` of torchvision, or has parts that a plain ViT has not.
    """
    if not isinstance(model, VisionTransformer):
        raise ValueError(f"from_torchvision takes torchvision's VisionTransformer, got {type(model).__name__}")
    heads = model.encoder.layers[0].num_heads
    ours = from_state_dict(model.state_dict(), num_heads=heads, img_size=model.image_size)
    return with_eps(ours, model.encoder.ln.eps)


def from_huggingface(model: nn.Module) -> ViT:
    """A :class:`~vit_tutorial.ViT` that computes the logits of ``model``, a ``ViTForImageClassification``.

    The weights are copied, and the epsilon of its norms, 1e-12 by default, is taken over.

    Raises:
        ValueError: when it is another model, or its activation is not the exact GELU.
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
