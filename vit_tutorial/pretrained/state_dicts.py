"""Three libraries, one model: their names and layouts for weights, turned into ours (chapter 9)."""

import re
from collections.abc import Iterable
from math import isqrt, nextafter

import torch
from torch import Tensor

from vit_tutorial.config import PRESETS, ViTConfig
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.parts import MODERN, maker, read_shape, unpacked, with_our_positions
from vit_tutorial.validate import listed

SHOWN = 4  # names in a message
NEEDED = ("patch_embed.proj.weight", "pos_embed", "blocks.0.mlp.fc1.weight")  # for the sizes

# What their names say, in the order of replacing, and what ours say.
TORCHVISION = {
    r"^class_token$": "cls_token",
    r"^encoder\.pos_embedding$": "pos_embed",
    r"^conv_proj\.": "patch_embed.proj.",
    r"^encoder\.layers\.encoder_layer_": "blocks.",
    r"\.ln_(\d)\.": r".norm\1.",
    r"\.self_attention\.in_proj_": ".attn.qkv.",
    r"\.self_attention\.out_proj\.": ".attn.proj.",
    r"\.mlp\.(0|linear_1)\.": ".mlp.fc1.",  # linear_1, linear_2 are of torchvision 0.12, and in the published files
    r"\.mlp\.(3|linear_2)\.": ".mlp.fc2.",
    r"^encoder\.ln\.": "norm.",
    r"^heads\.head\.": "head.",
}
HUGGING_FACE = {
    r"^vit\.embeddings\.cls_token$": "cls_token",
    r"^vit\.embeddings\.position_embeddings$": "pos_embed",
    r"^vit\.embeddings\.patch_embeddings\.projection\.": "patch_embed.proj.",
    r"^vit\.(encoder\.layer|layers)\.": "blocks.",  # in files, and in memory from transformers 5.9 on
    r"\.layernorm_before\.": ".norm1.",
    r"\.layernorm_after\.": ".norm2.",
    r"\.attention\.attention\.(query|key|value)\.": r".attn.\1.",
    r"\.attention\.q_proj\.": ".attn.query.",
    r"\.attention\.k_proj\.": ".attn.key.",
    r"\.attention\.v_proj\.": ".attn.value.",
    r"\.attention\.(output\.dense|o_proj)\.": ".attn.proj.",
    r"\.intermediate\.dense\.": ".mlp.fc1.",
    r"\.output\.dense\.": ".mlp.fc2.",  # after the attention's, which ends alike
    r"^vit\.layernorm\.": "norm.",
    r"^classifier\.": "head.",
}
# What other Vision Transformers have and ours has not, by a pattern of a name that only they have.
FOREIGN = {
    r"\.(ls\d|layer_scale\d?|lambda_?\d|gamma_\d)\b": "a LayerScale in its blocks, as DINOv2, BEiT and CaiT have",
    r"\b(dist_token|head_dist|distillation_\w+)\b": "a distillation token, as DeiT's distilled models have",
    r"\b(reg_token|register_tokens)\b": "register tokens, as DINOv2 with registers has",
    r"(relative_position|rel_pos)": "relative positions, as BEiT and Swin have",
    r"\b(rope|rope_embeddings|rotary\w*|freqs_cis)\b": "rotary positions (RoPE), as EVA and DINOv3 have",
    r"\.(q_norm|k_norm)\b": "norms for queries and keys (QK-norm), as ViT-22B has",
    r"\.(q_bias|v_bias)\b": "biases for queries and values alone, as BEiT and EVA have",
    r"\.mlp\.(w12|w3|fc1_g|fc1_x|gate_proj|weights_in)\b": "a gated MLP (SwiGLU), as EVA-02 and the large DINOv2 have",
    r"\bfc_norm\.": "fc_norm, which normalises after averaging the tokens; ours normalises before",
    r"\b(norm_pre|ln_pre|pre_layrnorm|pre_layernorm)\.": "a norm before the first block, as CLIP has",
    r"\battn_pool\.": "attention pooling in front of its head, as SigLIP has",
    r"\b(mask_token|decoder_\w+|decoder)\b": "parts for pretraining by masking, as MAE and BEiT have",
}
# What wrappers put around a state dict or in front of its names.
HOLDERS = ("model", "state_dict", "model_state_dict", "teacher", "student", "net", "model_ema", "ema")
PREFIXES = ("module.", "model.", "backbone.", "encoder.", "_orig_mod.", "net.", "student.", "teacher.")
BLOCK = re.compile(r"blocks\.(\d+)\.")
HEADS = {(c.embed_dim, c.depth): c.num_heads for name, c in PRESETS.items() if re.match(r"vit_(ti|s|b|l|h)_", name)}


def source_of(names: Iterable[str]) -> str:
    """Whose names these are: ``"ours and timm's"``, ``"torchvision's"`` or ``"Hugging Face's"``.

    Raises:
        ValueError: if they are unknown.
    """
    names = list(names)
    if "patch_embed.proj.weight" in names:
        return "ours and timm's"
    if "class_token" in names:
        return "torchvision's"
    if any(name.startswith("vit.embeddings.") for name in names):
        return "Hugging Face's"
    advice = "Pass the state dict of a whole ViT."
    prefix = names[0].partition(".")[0] + "." if names else ""
    most = max(PREFIXES, key=lambda each: sum(name.startswith(each) for name in names))
    if len(names) > 1 and all(name.startswith(prefix) for name in names):
        advice = f"All begin with {prefix!r}, which a wrapper has put there: take it off."
    elif sum(name.startswith(most) for name in names) * 2 > len(names):
        advice = f"Most begin with {most!r}, which a wrapper has put there: take it off, and leave the others out."
    if parts := foreign_parts(names):
        advice = f"They are of a model with {'; and '.join(parts)}: our ViT cannot compute it."
    if holders := [name for name in names if name in HOLDERS]:
        advice = f"The weights are in its entry {holders[0]!r}: pass state_dict[{holders[0]!r}]."
    known = "neither ours (timm's) nor torchvision's nor Hugging Face's"
    raise ValueError(f"these names of weights are {known}: {listed(names, SHOWN) or 'none at all'}. {advice}")


def convert(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights under our names, which are timm's; timm's and ours come back as they are.

    torchvision's differ in their names only: its ``in_proj_weight`` has the rows of our ``qkv``. Of Hugging Face's,
    both the names in files and those in memory from transformers 5.9 on are known; its queries, keys and values are
    three layers and get stacked. What has no name here keeps its own.

    Raises:
        ValueError: if the names are unknown, or a query, key or value is missing.
    """
    source = source_of(state_dict)
    table = {"torchvision's": TORCHVISION, "Hugging Face's": HUGGING_FACE}.get(source, {})
    converted = {rename(name, table): value for name, value in state_dict.items()}
    for name in [name for name in converted if ".attn.query." in name]:
        parts = [name.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        missing = [part for part in parts if part not in converted]
        if missing:
            raise ValueError(f"these weights are incomplete: {listed(missing, SHOWN)} is missing beside {name}")
        converted[name.replace(".query.", ".qkv.")] = torch.cat([converted.pop(part) for part in parts])
    return converted


def foreign_parts(names: Iterable[str]) -> list[str]:
    """What a model with weights of these names has that our ViT does not compute, in words."""
    names = list(names)
    return [what for pattern, what in FOREIGN.items() if any(re.search(pattern, name) for name in names)]


def _check_own(state: dict[str, object]) -> None:
    """Raise a ValueError if the weights are of a model with parts that ours lacks; the message names them."""
    state = {name: value for name, value in state.items() if not MODERN.search(name)}
    if parts := foreign_parts(state):
        names = [name for name in state if any(re.search(pattern, name) for pattern in FOREIGN)]
        what = f"our ViT cannot compute this model: it has {'; and '.join(parts)}"
        raise ValueError(f"{what}. {len(names)} unexpected ({listed(names, SHOWN)})")


def rename(name: str, table: dict[str, str]) -> str:
    """``name`` after all replacements of a table such as ``TORCHVISION``."""
    for theirs, ours in table.items():
        name = re.sub(theirs, ours, name)
    return name


def read_config(
    state: dict[str, Tensor], *, num_heads: int | None = None, img_size: int | tuple[int, int] | None = None
) -> ViTConfig:
    """The sizes of the model that has these weights, under our names.

    Args:
        num_heads: cannot be inferred, since heads only cut rows into groups; known for the published sizes.
        img_size: of the images that the weights were trained on; by default, they were square.

    Raises:
        ValueError: if the weights do not determine the sizes, or do not agree with what is given.
    """
    state = {name.replace(".mlp.fc1_g.", ".mlp.fc1."): value for name, value in state.items()}  # as wide as any fc1
    missing = [name for name in NEEDED if name not in state]
    if missing:
        fixed = " A fixed table is not stored: use load_recorded, or ViT(config) and load_weights."
        advice = fixed if missing == ["pos_embed"] else ""
        raise ValueError(
            f"the sizes cannot be read off: {listed(missing, SHOWN)} missing among {listed(state, SHOWN)}.{advice}"
        )
    embed_dim, in_chans, *patch_size = read_shape(state, "patch_embed.proj.weight")
    hidden = read_shape(state, "blocks.0.mlp.fc1.weight")[0]
    depth = _read_depth(state)
    pool = "cls" if "cls_token" in state else "mean"
    patches = read_shape(state, "pos_embed")[1] - (pool == "cls")
    if num_heads is None and (embed_dim, depth) not in HEADS:
        raise ValueError(
            f"weights do not say how many heads there are, and embed_dim {embed_dim} with depth {depth} is no "
            "published size: pass num_heads"
        )
    if img_size is None:
        side = isqrt(patches)
        if side * side != patches:
            raise ValueError(
                f"pos_embed has rows for {patches} patches, which is not a square number: pass the img_size=(height, "
                "width) that the weights were trained on"
            )
        img_size = (side * patch_size[0], side * patch_size[1])
    ratio = hidden / embed_dim
    config = ViTConfig(
        img_size=img_size,
        patch_size=tuple(patch_size),
        in_chans=in_chans,
        num_classes=read_shape(state, "head.weight")[0] if "head.weight" in state else 0,
        embed_dim=embed_dim,
        depth=depth,
        num_heads=HEADS[embed_dim, depth] if num_heads is None else num_heads,
        mlp_ratio=ratio if int(embed_dim * ratio) == hidden else nextafter(ratio, hidden),  # 7 · (29 / 7) < 29
        qkv_bias=any(name.endswith(".attn.qkv.bias") for name in state),
        pool=pool,
    )
    if config.num_patches != patches:
        raise ValueError(
            f"pos_embed has rows for {patches} patches, but img_size {config.img_size} with patches of "
            f"{config.patch_size} has {config.num_patches}"
        )
    return config


def _read_depth(state: dict[str, Tensor]) -> int:
    """How many blocks there really are: the numbers in names may be wrong."""
    found = {match[1]: name for name in state if (match := BLOCK.match(name))}
    for number in found.keys() - set(map(str, range(len(found)))):
        raise ValueError(
            f"{found[number]} does not fit: there are {len(found)} blocks, which must be numbered 0 to {len(found) - 1}"
        )
    return len(found)


def from_state_dict(
    state_dict: dict[str, Tensor], *, num_heads: int | None = None, img_size: int | tuple[int, int] | None = None
) -> ViT:
    """A :class:`ViT` with the weights of timm, of torchvision's ``VisionTransformer`` or of Hugging Face's
    ``ViTForImageClassification``, in evaluation mode. They are recognised by their names, copied, and in float32.

    timm's weights may be of a model with LayerScale, RMSNorm, SwiGLU, QK-norm, registers or attention pooling: then it
    is a :class:`~vit_tutorial.modern.ModernViT`.

    Args and most errors are those of :func:`read_config`.

    A state dict cannot tell the number of heads, the activation, the epsilon of the norms, or what the head reads. Here
    the activation is taken to be the exact GELU, that of a gated MLP the SiLU, the head to read the class token if
    there is one, and epsilon to be 1e-6, as in timm, in torchvision and in the paper's own code; a model that differs
    would silently give other logits. If you have the model itself, ``from_timm``, ``from_torchvision`` and
    ``from_huggingface`` look at it.

    Hugging Face's epsilon is 1e-12. On random weights of ViT-B/16, whose tokens are small, that moves logits of up to
    2.3 by 4e-4; with ``eps`` of all norms set to it, they are equal again.

    Raises:
        ValueError: if names are unknown, missing or unexpected, or sizes disagree.
    """
    state = with_our_positions(unpacked(convert(state_dict)))
    _check_own(state)
    return build(read_config(state, num_heads=num_heads, img_size=img_size), state)


def build(config: ViTConfig, state: dict[str, Tensor]) -> ViT:
    """A model of these sizes with these weights, in evaluation mode; errors are those of :func:`load_weights`."""
    make = maker(state)
    with torch.device("meta"):  # no memory, and no random numbers drawn for weights that are overwritten at once
        model = make(config)
    _check_fit(model, state)  # before there is memory for what the names and shapes claim
    model.to_empty(device="cpu").load_state_dict(state)
    return model.eval()


def load_weights(model: ViT, state_dict: dict[str, Tensor]) -> None:
    """Copy weights under our names into ``model``: all of them, or none.

    Raises:
        ValueError: if a name is missing or unexpected or a size differs; the message says which, and the likely cause.
    """
    _check_fit(model, state_dict)
    model.load_state_dict(state_dict)


def _check_fit(model: ViT, state_dict: dict[str, Tensor]) -> None:
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in state_dict]
    unexpected = [name for name in state_dict if name not in wanted]
    if missing or unexpected:
        sides = {"missing": missing, "unexpected": unexpected}
        lists = ", ".join(f"{len(names)} {word} ({listed(names, SHOWN)})" for word, names in sides.items() if names)
        raise ValueError(f"these weights do not fit: {lists}. {_cause(missing, unexpected, state_dict)}".strip())
    for name, value in wanted.items():
        if state_dict[name].shape != value.shape:
            raise ValueError(_misfit(name, tuple(state_dict[name].shape), tuple(value.shape), model.config))


def _cause(missing: list[str], unexpected: list[str], state: dict[str, Tensor]) -> str:
    """What has most likely happened."""
    try:
        source = source_of(state)
    except ValueError as error:
        return str(error).rpartition(". ")[2]  # the advice
    if source != "ours and timm's" and "patch_embed.proj.weight" in missing:
        return f"These are {source} names: use from_state_dict, or convert them first."
    if parts := foreign_parts(unexpected):
        return f"They are of a model with {'; and '.join(parts)}: our ViT cannot compute it."
    blocks = [BLOCK.match(name) for name in missing + unexpected]
    if all(blocks) and not (missing and unexpected):
        numbers = sorted({match[1] for match in blocks}, key=lambda number: (len(number), number))
        return f"They differ in the blocks {', '.join(numbers)}: another depth, or a part of a file."
    if unexpected:
        return "Unexpected weights belong to layers that this model does not have."
    return "A part of the file is missing."


def _misfit(name: str, got: tuple[int, ...], wanted: tuple[int, ...], config: ViTConfig) -> str:
    reason = "It is another architecture: from_state_dict reads the sizes off the weights."
    if name.startswith("head.") and got[1:] == wanted[1:]:
        reason = f"The head has {got[0]} rows, num_classes is {config.num_classes}: adapt makes a fresh one."
    if name == "pos_embed" and got[2:] == wanted[2:]:
        reason = f"It has {got[1]} rows, img_size {config.img_size} needs {wanted[1]}: adapt resamples positions."
    return f"{name} has shape {got}, this model needs {wanted}. {reason}"
