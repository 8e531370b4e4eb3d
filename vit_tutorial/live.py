"""A trained model for the page "Draw a digit": its weights as text, and what one can do to it there, in PyTorch."""

import base64
import zlib
from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from vit_tutorial.archs.patients import PATIENTS
from vit_tutorial.attention import Attention, plain_attention
from vit_tutorial.model import ViT
from vit_tutorial.recipes import Recipe

CAN_RUN = {"in_chans": 1, "pos_embed": "sincos_2d", "pool": "cls", "act": "gelu", "final_norm": True, "qkv_bias": True}


def export_model(model: ViT, recipe: Recipe) -> dict:
    """All that ``vit.mjs`` needs, ready for JSON: sizes, the tensors' names and lengths, and their numbers.

    The numbers are in half precision, as recorded runs keep them, little-endian, in base64.

    Raises:
        ValueError: if the page's model lacks an option that this one has, or a weight does not fit half precision.
    """
    lacking = {name: (getattr(recipe.model, name), can) for name, can in CAN_RUN.items()}
    lacking = [f"{name}={has!r}, not {can!r}" for name, (has, can) in lacking.items() if has != can]
    if recipe.arch != "vit" or lacking:
        raise ValueError(f"the page runs a vit with these options only; got {recipe.arch} with {'; '.join(lacking)}")
    tensors = {name: tensor.detach().flatten() for name, tensor in model.state_dict().items()}
    numbers = torch.cat(list(tensors.values()))
    halves = numbers.half()
    if not halves.isfinite().all():
        raise ValueError(f"weights up to {numbers.abs().max():.3g} do not fit half precision, which ends at 65,504")
    content = halves.numpy().astype("<f2").tobytes()
    sizes = ("img_size", "patch_size", "embed_dim", "depth", "num_heads", "num_classes")
    return {
        "config": {name: getattr(recipe.model, name) for name in sizes} | {"mean": recipe.mean, "std": recipe.std},
        "tensors": [[name, tensor.numel()] for name, tensor in tensors.items()],
        "checksum": zlib.adler32(content),
        "float16": base64.b64encode(content).decode(),
    }


def _replace_attend(model: ViT, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    for part in model.modules():
        if isinstance(part, Attention):
            part.attend = attend


def _mute_head(model: ViT, block: int, head: int) -> None:
    attn = model.blocks[block].attn
    width = model.config.embed_dim // model.config.num_heads

    def mute(proj: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        mixed = args[0].clone()
        mixed[..., head * width : (head + 1) * width] = 0
        return (mixed,)

    attn.proj.register_forward_pre_hook(mute)


def _mute_block(model: ViT, block: int) -> None:
    model.blocks[block] = nn.Identity()


def _shuffle_tokens(model: ViT, order: Sequence[int]) -> None:
    rows = torch.tensor([0, *(1 + row for row in order)])  # the class token stays in front
    model.blocks[0].register_forward_pre_hook(lambda part, args: (args[0][:, rows],))


def _shuffle_patches(model: ViT, order: Sequence[int]) -> None:
    model.patch_embed.register_forward_hook(lambda part, args, out: out[:, list(order)])


def _as_patient(name: str) -> Callable[[ViT], None]:
    def fall_ill(model: ViT) -> None:
        sick = PATIENTS[name].make(model.config)
        for part, ill in zip(model.modules(), sick.modules(), strict=True):
            part.__class__ = ill.__class__

    return fall_ill


# What one can do to a healthy model, by the names in interventions.mjs: each changes the model it is given.
INTERVENTIONS: dict[str, Callable[..., None]] = {
    "muteHead": _mute_head,
    "muteBlock": _mute_block,
    "uniform": lambda model: _replace_attend(model, lambda q, k, v: v.mean(-2, keepdim=True).expand_as(v)),
    "shuffleTokens": _shuffle_tokens,
    "shufflePatches": _shuffle_patches,
    "noPositions": lambda model: model.pos_embed.zero_(),
    "temperature": lambda model, temperature: _replace_attend(
        model, lambda q, k, v: plain_attention(q / temperature, k, v)
    ),
    "unscaled": lambda model: _replace_attend(model, lambda q, k, v: (q @ k.mT).softmax(dim=-1) @ v),
    "reshape": _as_patient("reshape without permute"),
    "deadNorm": _as_patient("dead residual norm"),
    "allTokens": _as_patient("head on all tokens"),
    "acrossBatch": _as_patient("attention across the batch"),
}


def intervene(model: ViT, name: str, **choices) -> ViT:
    """A copy of the model with one thing changed, by its name in ``INTERVENTIONS``.

    Raises:
        ValueError: if there is no such intervention.
    """
    if name not in INTERVENTIONS:
        raise ValueError(f"there is no intervention {name!r}; there are {', '.join(INTERVENTIONS)}")
    changed = deepcopy(model)
    INTERVENTIONS[name](changed, **choices)
    return changed
