"""Weights of other libraries give the same logits here, come once and whole, and misfits are named."""

import hashlib
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
import transformers
from local_host import local_host
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models import vision_transformer
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch import nn
from torchvision.models import get_model_weights

from vit_tutorial import PRESETS, ViT, ViTConfig, plain_attention, pretrained, resample_pos_embed, sincos_2d
from vit_tutorial.data import downloads
from vit_tutorial.pretrained import (
    adapt,
    convert,
    from_huggingface,
    from_state_dict,
    from_timm,
    from_torchvision,
    load_pretrained,
    load_weights,
    published,
    read_config,
)

# depth ≠ heads, mlp_ratio ≠ 4 (29 / 24 · 24 is below 29 in floating point), neither 10 nor 1000 classes, 5 × 5 patches
TINY = {"embed_dim": 24, "depth": 2, "num_heads": 3, "hidden": 29, "num_classes": 7, "patch_size": 6, "img_size": 30}
CONFIG = ViTConfig(
    img_size=(24, 40), patch_size=(4, 8), num_classes=5, embed_dim=12, depth=3, num_heads=2, mlp_ratio=1.5
)


def shaken(model: nn.Module) -> nn.Module:
    """Every parameter away from where it starts: zero heads, tokens and biases would make all models agree."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.numel() < 20_000 else 0.02))
    return model.eval()


def torchvision_model(s=TINY, **options) -> nn.Module:
    return shaken(
        torchvision.models.VisionTransformer(
            s["img_size"], s["patch_size"], s["depth"], s["num_heads"], s["embed_dim"], s["hidden"],
            num_classes=s["num_classes"], **options,
        )
    )  # fmt: skip


def hugging_face_model(s=TINY, **options) -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=s["embed_dim"], num_hidden_layers=s["depth"], num_attention_heads=s["num_heads"],
        intermediate_size=s["hidden"], num_labels=s["num_classes"], patch_size=s["patch_size"],
        image_size=s["img_size"], **options,
    )  # fmt: skip
    return shaken(transformers.ViTForImageClassification(config))


def timm_model(s=TINY, **options) -> nn.Module:
    return shaken(
        TimmViT(
            s["img_size"], s["patch_size"], embed_dim=s["embed_dim"], depth=s["depth"], num_heads=s["num_heads"],
            mlp_ratio=s["hidden"] / s["embed_dim"] + 1e-9, num_classes=s["num_classes"], **options,
        )
    )  # fmt: skip


@torch.no_grad()
def assert_same_logits(ours: ViT, theirs: nn.Module, tolerance: float = 1e-5) -> None:
    images = torch.randn(2, ours.config.in_chans, *ours.config.img_size)
    wanted = theirs(images)
    wanted = getattr(wanted, "logits", wanted)
    assert wanted.std() > 0.05  # they could disagree
    torch.testing.assert_close(ours(images), wanted, rtol=tolerance, atol=tolerance)


# The same logits ------------------------------------------------------------------------------------------------


def test_torchvision():
    theirs = torchvision_model()
    ours = from_state_dict(theirs.state_dict(), num_heads=3)
    expected = ViTConfig(
        img_size=30, patch_size=6, num_classes=7, embed_dim=24, depth=2, num_heads=3, mlp_ratio=ours.config.mlp_ratio
    )
    assert ours.config == expected and ours.blocks[0].mlp.fc1.out_features == 29
    assert not ours.training
    assert_same_logits(ours, theirs)


def test_torchvision_s_older_names_which_its_published_files_have():
    theirs = torchvision_model()
    old = {
        name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): value
        for name, value in theirs.state_dict().items()
    }
    assert "encoder.layers.encoder_layer_1.mlp.linear_2.bias" in old
    again = torchvision_model()
    again.load_state_dict(dict(old))  # torchvision itself takes them
    assert_same_logits(from_state_dict(old, num_heads=3), again)


@pytest.mark.parametrize("img_size", [30, (18, 42)], ids=str)  # 5 × 5 patches, or 3 × 7
def test_hugging_face_s_files(tmp_path, img_size):
    theirs = hugging_face_model({**TINY, "img_size": img_size}, layer_norm_eps=1e-6)
    theirs.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path / "model.safetensors", num_heads=3, img_size=img_size)
    assert_same_logits(ours, theirs)


def test_hugging_face_without_biases_and_with_grey_images_in_oblong_patches():
    options = {"qkv_bias": False, "num_channels": 1, "layer_norm_eps": 1e-6}
    theirs = hugging_face_model({**TINY, "patch_size": (3, 6), "img_size": (12, 24)}, **options)
    ours = from_state_dict(theirs.state_dict(), num_heads=3)  # 4 × 4 patches: the grid is square, the image is not
    assert ours.config.in_chans == 1 and not ours.config.qkv_bias and ours.config.img_size == (12, 24)
    assert_same_logits(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"qkv_bias": False}, {"num_classes": 0}], ids=str)
@pytest.mark.parametrize("img_size", [30, (18, 42)], ids=str)
def test_timm_loads_as_it_is(options, img_size):
    theirs = timm_model({**TINY, "img_size": img_size, "num_classes": options.pop("num_classes", 7)}, **options)
    state = theirs.state_dict()
    assert convert(state) == state
    ours = from_state_dict(state, num_heads=3, img_size=img_size)
    assert_same_logits(ours, theirs)
    ViT(ours.config).load_state_dict(state, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torchvision", "Hugging Face", "timm"])
def test_base_size(library):
    s = {
        "embed_dim": 768,
        "depth": 12,
        "num_heads": 12,
        "hidden": 3072,
        "num_classes": 1000,
        "patch_size": 16,
        "img_size": 224,
    }
    make = {
        "torchvision": torchvision_model,
        "Hugging Face": partial(hugging_face_model, layer_norm_eps=1e-6),
        "timm": timm_model,
    }
    theirs = make[library](s)
    ours = from_state_dict(theirs.state_dict())
    assert replace(ours.config, mlp_ratio=4.0) == PRESETS["vit_b_16"]
    assert_same_logits(ours, theirs)


def test_whole_models_need_no_number_of_heads_and_bring_their_epsilon():
    theirs = torchvision_model(norm_layer=partial(nn.LayerNorm, eps=0.1))
    ours = from_torchvision(theirs)
    assert_same_logits(ours, theirs)
    assert (ours.config.num_heads, ours.norm.eps, ours.training) == (3, 0.1, False)
    for img_size in (30, (18, 30)):
        theirs = hugging_face_model({**TINY, "img_size": img_size})
        assert theirs.config.layer_norm_eps == 1e-12
        with torch.no_grad():  # tokens so small that the epsilon decides
            theirs.vit.embeddings.patch_embeddings.projection.weight.mul_(1e-4)
            for name in ("position_embeddings", "cls_token"):
                getattr(theirs.vit.embeddings, name).mul_(1e-4)
            theirs.vit.embeddings.patch_embeddings.projection.bias.mul_(1e-4)
        assert_same_logits(from_huggingface(theirs), theirs, 1e-4)
        other = from_state_dict(theirs.state_dict(), num_heads=3, img_size=img_size)
        images = torch.randn(2, 3, *other.config.img_size)
        with torch.no_grad():
            assert not torch.allclose(other(images), theirs(images).logits, atol=1e-3)  # the wrong answer


MEAN = {"global_pool": "avg", "class_token": False, "fc_norm": False}
TANH = partial(nn.GELU, approximate="tanh")
FROM_TIMM = [  # timm's options, and what of our config follows from them
    ({}, {}),
    ({"qkv_bias": False}, {"qkv_bias": False}),
    ({"act_layer": TANH}, {"act": "gelu_tanh"}),
    ({"act_layer": "gelu_tanh"}, {"act": "gelu_tanh"}),
    ({"act_layer": "gelu", "norm_layer": partial(nn.LayerNorm, eps=0.1)}, {}),
    (MEAN, {"pool": "mean"}),
    (MEAN | {"pos_embed": "none", "act_layer": TANH}, {"pool": "mean", "pos_embed": "none", "act": "gelu_tanh"}),
    ({"pos_embed": "none", "final_norm": False}, {"pos_embed": "none", "final_norm": False}),
    (MEAN | {"no_embed_class": True}, {"pool": "mean"}),
    ({"num_classes": 0}, {"num_classes": 0}),
    ({"dynamic_img_size": True, "in_chans": 1}, {"in_chans": 1}),
    (dict.fromkeys(("drop_rate", "attn_drop_rate", "proj_drop_rate", "drop_path_rate", "patch_drop_rate"), 0.2), {}),
]


@pytest.mark.parametrize(("options", "expected"), FROM_TIMM, ids=lambda options: " ".join(options) or "plain")
@pytest.mark.parametrize("sizes", [{}, {"img_size": (18, 42), "patch_size": (3, 6)}], ids=["square", "oblong"])
def test_timm_s_models_tell_what_their_weights_do_not(options, expected, sizes):
    s, options = TINY | sizes, dict(options)
    theirs = timm_model(s | {"num_classes": options.pop("num_classes", 7)}, **options)
    before = torch.random.get_rng_state()
    ours = from_timm(theirs)
    assert torch.equal(torch.random.get_rng_state(), before) and not ours.training
    pairs = {name: (s[name],) * 2 if isinstance(s[name], int) else s[name] for name in ("img_size", "patch_size")}
    assert ours.config == ViTConfig(
        **pairs, **({"num_classes": 7, "embed_dim": 24, "depth": 2, "num_heads": 3} | expected),
        mlp_ratio=ours.config.mlp_ratio,
    )  # fmt: skip
    assert_same_logits(ours, theirs)


NOT_FROM_TIMM = {
    r"blocks.0.mlp.act must compute one of gelu, gelu_tanh, got QuickGELU": {"act_layer": "quick_gelu"},
    r"our ViT has a bias in patch_embed.proj, this model has none": {"pre_norm": True},
    r"fc_norm does, a timm.LayerNorm: it has nothing there": {"global_pool": "avg"},
    r"blocks.0 does, a timm.ParallelScalingBlock: it has": {"block_fn": vision_transformer.ParallelScalingBlock},
    r"global_pool 'avg' and a class token": {"global_pool": "avg", "fc_norm": False},
    r"our ViT has a bias in blocks.0.attn.proj, this model": {"proj_bias": False},
    r"leaves class token and registers out of the pool; pool_include_prefix is True": MEAN
    | {"reg_tokens": 4, "pool_include_prefix": True},
    r"blocks.0.mlp.act must compute the SiLU, .*GELU": {"mlp_layer": timm.layers.SwiGLU},
    r"blocks.0.mlp.norm does, a timm.LayerNorm": {
        "mlp_layer": timm.layers.SwiGLU,
        "act_layer": nn.SiLU,
        "scale_mlp_norm": True,
    },
}


@pytest.mark.parametrize("message", NOT_FROM_TIMM)
def test_what_ours_cannot_compute_is_named(message):
    with pytest.raises(ValueError, match=message):
        from_timm(timm_model(**NOT_FROM_TIMM[message]))


def test_other_models_are_refused(no_shape_checks):
    for other in (nn.Linear(2, 2), ViT(CONFIG), torchvision_model(), timm.create_model("test_efficientnet")):
        got = type(other).__name__
        with pytest.raises(ValueError, match=f"from_timm takes timm's VisionTransformer or Eva, got {got}"):
            from_timm(other)
    with pytest.raises(ValueError, match="takes torchvision's VisionTransformer, got Linear"):
        from_torchvision(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="takes a ViTForImageClassification, got VisionTransformer"):
        from_huggingface(torchvision_model())
    with pytest.raises(ValueError, match="hidden_act must be 'gelu', got 'relu'"):
        from_huggingface(hugging_face_model(hidden_act="relu"))


def test_published_sizes_have_their_numbers_of_heads():
    """Those of torchvision and timm, built without memory."""
    names = {"vit_b_16": "", "vit_b_32": "", "vit_l_16": "", "vit_l_32": "", "vit_h_14": ""}
    names |= {f"vit_{size}_patch{patch}_224": "timm" for size, patch in [("tiny", 16), ("small", 16), ("huge", 14)]}
    for name, library in names.items():
        with torch.device("meta"):
            model = timm.create_model(name) if library else getattr(torchvision.models, name)()
        heads = model.blocks[0].attn.num_heads if library else model.encoder.layers[0].num_heads
        config = read_config(convert(model.state_dict()))
        assert config.num_heads == heads, name
        assert config.img_size == (224, 224) and config.mlp_ratio == 4, name


# What comes out of a conversion ---------------------------------------------------------------------------------


def test_weights_are_copied_into_float32_and_no_random_number_is_drawn():
    state = {name: value.half() for name, value in ViT(CONFIG).state_dict().items()}
    before = torch.random.get_rng_state()
    ours = from_state_dict(state, num_heads=2, img_size=(24, 40))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert all(not parameter.is_meta for parameter in ours.parameters())
    state["head.bias"].fill_(9)
    assert ours.head.bias.max() < 9


# Misfits are named ----------------------------------------------------------------------------------------------


def without(*parts: str):
    """A state dict's change: names that hold one of ``parts`` are taken out."""
    return lambda state: {name: value for name, value in state.items() if not any(part in name for part in parts)}


def as_it_is(state: dict) -> dict:
    return state


THREE = {"num_heads": 3}
OBLONG = partial(timm_model, {**TINY, "img_size": (18, 42)})
REPRESENTATION = partial(torchvision_model, representation_size=8)
MISFITS = {
    "embed_dim 24 with depth 2 is no published size: pass num_heads": (torchvision_model, as_it_is, {}),
    "embed_dim 24 is not divisible by num_heads 5": (torchvision_model, as_it_is, {"num_heads": 5}),
    r"rows for 25 patches, but img_size \(36, 36\) .* has 36": (torchvision_model, as_it_is, THREE | {"img_size": 36}),
    "21 patches, which is not a square number: pass the img_size": (OBLONG, as_it_is, THREE),
    r"2 missing \(blocks.0.mlp.fc2.weight, blocks.0.mlp.fc2.bias\)\. They differ in the blocks 0: ": (
        torchvision_model,
        without("layer_0.mlp.3"),
        THREE,
    ),
    "2 missing .*part of the file": (timm_model, lambda s: {n: v for n, v in s.items() if n[:5] != "norm."}, THREE),
    "incomplete: blocks.1.attn.key.bias is": (hugging_face_model, without("layers.1.attention.k_proj.b"), THREE),
    r"read off: pos_embed missing among cls_token, .* more\. A fixed table is not stored: use load_recorded, or": (
        timm_model,
        without("pos_embed"),
        THREE,
    ),
    "2 unexpected .heads.pre_logits.weight, heads.pre_logits.bias": (REPRESENTATION, as_it_is, THREE),
    "it has fc_norm, which normalises after averaging the tokens; ours": (
        partial(timm_model, global_pool="avg"),
        as_it_is,
        THREE,
    ),
    r"it has a LayerScale in its blocks, .* 4 unexpected \(blocks.0.gamma_1, ": (
        partial(timm_model, init_values=0.1),
        lambda s: {n.replace("ls1.gamma", "gamma_1").replace("ls2.gamma", "gamma_2"): v for n, v in s.items()},
        THREE,
    ),
    "1 unexpected .vit.pooler.bias": (hugging_face_model, lambda s: s | {"vit.pooler.bias": torch.zeros(24)}, THREE),
    "All begin with 'module.', .* take it off": (timm_model, lambda s: {f"module.{n}": v for n, v in s.items()}, THREE),
    "it has register tokens": (timm_model, lambda s: s | {"register_tokens": torch.zeros(1, 2, 24)}, THREE),
    "Most begin with 'backbone.', .* take it off": (
        timm_model,
        lambda s: {n if n.startswith("head") else f"backbone.{n}": v for n, v in s.items()},
        THREE,
    ),
    r"neither ours .*conv1.weight, .* 118 more\. Pass": (torchvision.models.resnet18, as_it_is, {}),
    "none at all": (timm_model, lambda s: {}, {}),
}


@pytest.mark.parametrize("message", MISFITS)
def test_a_misfit_is_named(message):
    make, change, options = MISFITS[message]
    with pytest.raises(ValueError, match=message):
        from_state_dict(change(make().state_dict()), **options)


FOREIGN = {  # models of other kinds, and what keeps them from being ours
    "a distillation token": lambda: timm.create_model("deit_tiny_distilled_patch16_224", img_size=32, depth=2),
    "relative positions": lambda: timm.models.VisionTransformerRelPos(
        img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3
    ),
    r"a gated MLP \(SwiGLU\)": lambda: transformers.Dinov2ForImageClassification(
        transformers.Dinov2Config(
            image_size=32, patch_size=8, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, use_swiglu_ffn=True
        )
    ),
    "biases for queries and values alone": lambda: timm.models.Eva(
        img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, swiglu_mlp=True, scale_mlp=True
    ),
    "a LayerScale": lambda: transformers.Dinov2ForImageClassification(
        transformers.Dinov2Config(
            image_size=32, patch_size=8, hidden_size=24, num_hidden_layers=2, num_attention_heads=3
        )
    ),
}


@pytest.mark.parametrize("part", FOREIGN)
def test_what_other_models_have_is_named_whatever_size_is_asked_for(part):
    state = FOREIGN[part]().state_dict()
    for options in ({}, {"img_size": 32}, {"img_size": 64}):
        with pytest.raises(ValueError, match=part) as caught:
            from_state_dict(state, num_heads=3, **options)
        assert "another depth" not in str(caught.value) and "pass the img_size" not in str(caught.value)


def test_a_state_dict_within_another_dict(no_shape_checks):
    with pytest.raises(ValueError, match=r"in its entry 'model': pass state_dict\['model'\]"):
        from_state_dict({"model": timm_model().state_dict(), "epoch": 3}, num_heads=3)


@pytest.mark.parametrize("number", ["99999999999", "9" * 5000, "2", "01"], ids=["huge", "endless", "a gap", "twice"])
def test_a_small_file_cannot_claim_many_blocks(tmp_path, number):
    """Names are claims: ``blocks.99999999999`` is one more block, and not that many."""
    state = ViT(replace(CONFIG, depth=1)).state_dict()
    state[f"blocks.{number}.norm1.weight"] = torch.ones(12)
    path = tmp_path / "weights.safetensors"
    save_file(state, path)
    assert path.stat().st_size < 20_000
    message = f"blocks.{number}.norm1.weight does not fit: there are 2 blocks, which must be numbered 0 to 1"
    with pytest.raises(ValueError, match=re.escape(message)):
        load_pretrained(path, num_heads=2, img_size=(24, 40))
    with pytest.raises(
        ValueError, match=re.escape(f"1 unexpected (blocks.{number}.norm1.weight). They differ in the blocks")
    ):
        load_weights(ViT(replace(CONFIG, depth=1)), state)


CLAIMS = {  # what is changed in the file of a model of (24, 40) pixels, and the image size that is asked for
    r"pos_embed must be the \(1, n, d\) .*, got \(1, 1000000000001, 0\)": ("pos_embed", (1, 10**12 + 1, 0), (24, 40)),
    r"pos_embed must be the \(1, n, d\) .*, got \(12,\)": ("pos_embed", (12,), (24, 40)),
    r"pos_embed has shape \(1, 10001, 1\), this model needs \(1, 10001, 12\)": ("pos_embed", (1, 10001, 1), None),
    r"mlp.fc1.weight must be the \(hidden, d\) .*, got \(1000000000000000, 0\)": (
        "blocks.0.mlp.fc1.weight", (10**15, 0), (24, 40)
    ),
    r"head.weight must be the \(classes, d\) .*, got \(10000000000000000, 0\)": ("head.weight", (10**16, 0), (24, 40)),
    r"head.weight must be the \(classes, d\) .*, got \(\)": ("head.weight", (), (24, 40)),
    r"proj.weight must be the \(d, c, ph, pw\) of a Conv2d, got \(1000000, 0, 4, 8\)": (
        "patch_embed.proj.weight", (10**6, 0, 4, 8), (24, 40)
    ),
    r"cls_token has shape \(1, 1, 12\), this model needs \(1, 1, 5000\)": (
        "patch_embed.proj.weight", (5000, 1, 1, 1), (5, 6)
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", CLAIMS)
def test_sizes_are_checked_before_there_is_memory_for_them(message, tmp_path, monkeypatch):
    name, shape, img_size = CLAIMS[message]
    torch.save(ViT(CONFIG).state_dict() | {name: torch.zeros(shape)}, tmp_path / "weights.pth")
    monkeypatch.setattr(nn.Module, "to_empty", lambda *_, **__: pytest.fail("memory was taken"))
    with pytest.raises(ValueError, match=message):
        load_pretrained(tmp_path / "weights.pth", num_heads=2, img_size=img_size)


def test_weights_that_do_not_fit_a_model_are_named_and_leave_it_as_it_was():
    model = ViT(CONFIG)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    others = {
        "44 missing .*These are torchvision's names: use from_state_dict": torchvision_model(),
        "Hugging Face's names: use from_state_dict": hugging_face_model(),
        "The head has 9 rows, num_classes is 5: adapt": adapt(model, num_classes=9),
        r"It has 21 rows, img_size \(24, 40\) needs 31: adapt": adapt(model, img_size=(20, 32)),
        r"fc1.weight has shape \(24, 12\), .*\(18, 12\)\. It is another arch": ViT(replace(CONFIG, mlp_ratio=2)),
        r"12 missing .* and 8 more\)\. They differ in the blocks 2: another depth": ViT(replace(CONFIG, depth=2)),
        "24 unexpected .* They differ in the blocks 3, 4: another depth": ViT(replace(CONFIG, depth=5)),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=message):
            load_weights(model, other.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    other = shaken(ViT(CONFIG))
    load_weights(model, other.state_dict())
    assert_same_logits(model.eval(), other)


# Another size, other classes ------------------------------------------------------------------------------------


def test_another_image_size_resamples_positions_and_keeps_the_rest():
    model = shaken(ViT(CONFIG))
    adapted = adapt(model, img_size=(32, 24))
    assert adapted.config == replace(CONFIG, img_size=(32, 24)) and not adapted.training
    torch.testing.assert_close(adapted.pos_embed, resample_pos_embed(model.pos_embed, (6, 5), (8, 3)))
    assert torch.equal(adapted.pos_embed[:, 0], model.pos_embed[:, 0])
    for name, value in model.state_dict().items():
        assert name == "pos_embed" or torch.equal(adapted.state_dict()[name], value)
    assert adapted(torch.randn(2, 3, 32, 24)).shape == (2, 5)


def test_positions_are_resampled_as_timm_does_it():
    theirs = timm_model()
    ours = adapt(from_state_dict(theirs.state_dict(), num_heads=3), img_size=(42, 24))
    theirs.set_input_size((42, 24))
    assert_same_logits(ours, theirs)


def test_sine_cosine_tables_are_computed_anew():
    model = ViT(replace(CONFIG, pos_embed="sincos_2d"))
    adapted = adapt(model, img_size=(32, 24))
    assert torch.equal(adapted.pos_embed[0, 1:], sincos_2d((8, 3), 12))
    assert torch.equal(adapted.blocks[2].attn.qkv.weight, model.blocks[2].attn.qkv.weight)


def test_other_classes_get_a_fresh_head_and_the_same_number_keeps_it():
    model = shaken(ViT(CONFIG)).train()
    adapted = adapt(model, num_classes=9)
    assert adapted.head.weight.shape == (9, 12) and adapted.training
    assert not adapted.head.bias.any() and 0 < adapted.head.weight.std() < 0.05
    assert torch.equal(adapted.pos_embed, model.pos_embed)
    assert adapt(model, num_classes=5) is model
    for part in (norm for norm in model.modules() if isinstance(norm, nn.LayerNorm)):
        part.eps = 1e-2
    slow = ViT(CONFIG, attend=plain_attention)
    assert {norm.eps for norm in adapt(model, num_classes=9).modules() if isinstance(norm, nn.LayerNorm)} == {1e-2}
    assert adapt(slow, num_classes=9).blocks[-1].attn.attend is plain_attention
    features = adapt(model, num_classes=0).eval()
    images = torch.randn(2, 3, 24, 40)
    torch.testing.assert_close(features(images), model.eval().forward_features(images)[:, 0])
    with pytest.raises(ValueError, match="img_size height 23 is not divisible by patch_size height 4"):
        adapt(model, img_size=(23, 40))


# Files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_files(tmp_path, suffix):
    theirs = torchvision_model()
    path = tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save(theirs.state_dict(), path)
    else:
        save_file(theirs.state_dict(), path)
    assert_same_logits(load_pretrained(str(path), num_heads=3), theirs)
    other = load_pretrained(path, num_heads=3, img_size=(30, 48), num_classes=4)
    assert other(torch.randn(1, 3, 30, 48)).shape == (1, 4) and not other.training
    whole = path.read_bytes()
    for part in (whole[: len(whole) // 2], whole[:50], b""):
        path.write_bytes(part)
        with pytest.raises(ValueError, match=rf"weights.{suffix} is damaged"):
            load_pretrained(path, num_heads=3)


def test_a_file_of_a_rectangle_with_a_square_number_of_patches(tmp_path):
    """2 × 8 patches are as many as 4 × 4."""
    model = shaken(ViT(replace(CONFIG, img_size=(8, 64), patch_size=(4, 8)))).eval()
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    images = torch.randn(2, 3, 8, 64)
    loaded = load_pretrained(tmp_path / "weights.pth", num_heads=CONFIG.num_heads, img_size=(8, 64))
    torch.testing.assert_close(loaded(images), model(images))


# Instructions to a reader of pickles that end in a KeyError, an IndexError, a UnicodeDecodeError, a struct.error
NO_WEIGHTS = {"hello": b"hello", "a word": b"a word", "a letter": b"U\x01\xb1", "a picture": b"GIF89a"}


@pytest.mark.parametrize("kind", NO_WEIGHTS)
def test_bytes_that_are_no_weights(tmp_path, kind):
    (tmp_path / "weights.pth").write_bytes(NO_WEIGHTS[kind])
    with pytest.raises(ValueError, match=r"weights.pth is damaged, or no file of weights: .+"):
        load_pretrained(tmp_path / "weights.pth")


def test_a_fixed_table_s_weights_are_loaded_into_a_model_of_their_config(tmp_path):
    """As the refusal of the file alone advises; recorded weights are stored in half precision."""
    trained = shaken(ViT(replace(CONFIG, pos_embed="sincos_2d")))
    path = tmp_path / "model.safetensors"
    save_file({name: value.half() for name, value in trained.state_dict().items()}, path)
    with pytest.raises(ValueError, match=r"A fixed table is not stored: .* ViT\(config\) and load_weights"):
        load_pretrained(path, num_heads=2)
    model = ViT(trained.config).eval()
    load_weights(model, load_file(path))
    assert_same_logits(model, trained, 1e-2)


class Stranger:
    """Its pickle runs a function where it is loaded."""

    def __reduce__(self):
        return Path.touch, (Path("ran"),)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_stranger_s_pickle_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("old.pth").write_bytes(pickle.dumps(Stranger()))
    torch.save({"head.weight": Stranger()}, "new.pth")
    for name in ("old.pth", "new.pth"):
        with pytest.raises(ValueError, match=r"holds more than tensors, which could run code"):
            load_pretrained(name)
        assert not Path("ran").exists()
    torch.load("new.pth", weights_only=False)
    assert Path("ran").exists()  # it would have


def test_what_is_no_state_dict(tmp_path):
    torch.save({"model": ViT(CONFIG).state_dict(), "epoch": 3}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="isn't a state dict, but holds model, epoch"):
        load_pretrained(tmp_path / "a.pth")
    torch.save([1], tmp_path / "a.pth")
    with pytest.raises(ValueError, match="isn't a state dict, but holds list"):
        load_pretrained(tmp_path / "a.pth")
    with pytest.raises(
        FileNotFoundError, match="there is no file vit_b_17, and published weights are called vit_b_16,"
    ):
        load_pretrained("vit_b_17")


# Downloads ------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path, monkeypatch):
    """torchvision's ``vit_b_16`` is a small one, on this machine."""
    model = torchvision_model()
    torch.save(model.state_dict(), tmp_path / "made.pth")
    content = (tmp_path / "made.pth").read_bytes()
    name = f"fake-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    weights = get_model_weights("vit_b_16").DEFAULT
    with local_host({name: content}) as server:
        server.model, server.name = model, name
        monkeypatch.setattr(weights, "_value_", replace(weights.value, url=server.url(name)))
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(downloads, "PAUSE", 0.0)
        yield server


def cached(tmp_path) -> list[Path]:
    files = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    return [path for path in files if path.suffix not in (".lock", ".part")]


def test_the_first_use_downloads_and_the_second_does_not(host, tmp_path, capsys):
    first = load_pretrained("vit_b_16", num_heads=3)
    assert f"{host.name} from 127.0.0.1" in capsys.readouterr().err  # it showed its progress
    assert cached(tmp_path) == [tmp_path / "cache/hub/checkpoints" / host.name]
    second = load_pretrained("vit_b_16", num_heads=3, img_size=(36, 24), num_classes=2, progress=False)
    assert len(host.requests) == 1
    assert capsys.readouterr().err == ""
    assert_same_logits(first, host.model)
    assert second.config.grid_size == (6, 4) and second.config.num_classes == 2
    assert torch.equal(second.blocks[1].mlp.fc2.weight, first.blocks[1].mlp.fc2.weight)


def test_a_download_that_breaks_off_is_not_used_and_the_next_one_works(host, tmp_path):
    host.broken = True
    with pytest.raises(FileNotFoundError, match=r"vit_b_16 is missing: .* http://127.*: IncompleteRead"):
        load_pretrained("vit_b_16", num_heads=3, progress=False)
    assert cached(tmp_path) == []
    host.broken = False
    load_pretrained("vit_b_16", num_heads=3, progress=False)
    assert len(cached(tmp_path)) == 1


def test_another_file_than_the_one_that_was_promised(host, tmp_path):
    host.files[host.name] = host.files[host.name][:-1] + b"x"
    with pytest.raises(FileNotFoundError, match=rf"another one: its sha256 is \w+, not {host.name[5:13]}\."):
        load_pretrained("vit_b_16", num_heads=3, progress=False)
    assert cached(tmp_path) == []


def test_a_damaged_file_in_the_cache_is_named(host, tmp_path):
    load_pretrained("vit_b_16", num_heads=3, progress=False)
    (file,) = cached(tmp_path)
    for content in (file.read_bytes()[:1000], b"hello"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{file} is damaged, .*Move it elsewhere, and it is fetched again"):
            load_pretrained("vit_b_16", num_heads=3, progress=False)


def test_a_file_in_the_cache_that_may_not_be_read_is_not_to_be_deleted(host, tmp_path, monkeypatch):
    load_pretrained("vit_b_16", num_heads=3, progress=False)
    (file,) = cached(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        with pytest.raises(PermissionError, match=rf"^{file} cannot be opened: Permission denied") as caught:
            load_pretrained("vit_b_16", num_heads=3, progress=False)
    assert "elete" not in str(caught.value)
    load_pretrained("vit_b_16", num_heads=3, progress=False)
    assert len(host.requests) == 1  # it was never fetched again


def refused(path, *_, **__):
    raise PermissionError(13, "Permission denied", str(path))


def test_a_silent_host_is_given_up(host, tmp_path, monkeypatch):
    host.silent_for = 2.0
    monkeypatch.setattr(downloads, "TIMEOUT", 0.1)
    with pytest.raises(FileNotFoundError, match=r"failed: .*timed out"):
        load_pretrained("vit_b_16", num_heads=3, progress=False)
    assert cached(tmp_path) == []


def test_without_a_network(host, tmp_path):
    host.stop()
    with pytest.raises(
        FileNotFoundError,
        match=r"vit_b_16 is missing: .*hub/checkpoints lacks fake-\w+.pth, .* failed: http.*refused.*TORCH_HOME",
    ):
        load_pretrained("vit_b_16", progress=False)
    assert cached(tmp_path) == []


# What belongs to the weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(97, 61), (300, 431), (640, 427), (224, 224)], ids=str)
@pytest.mark.parametrize("name", pretrained.NAMES)
def test_preprocessing_is_torchvision_s(name, size):
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    wanted = get_model_weights(name).DEFAULT.transforms()(image)
    torch.testing.assert_close(published(name).preprocess(image), wanted)


RECTANGLES = [((30, 20), (40, 60)), ((31, 20), (40, 60)), ((20, 31), (60, 40)), ((7, 3), (48, 112))]


@pytest.mark.parametrize(("picture", "img_size"), RECTANGLES)
def test_a_whole_rectangle(picture, img_size):
    """With share 1 the picture is resized until it just covers, so nothing is padded."""
    info = replace(published("vit_b_16"), img_size=img_size, crop_pct=1.0, mean=(0, 0, 0), std=(1, 1, 1))
    result = info.preprocess(Image.new("RGB", picture, (255, 0, 0)))
    assert result.shape == (3, *img_size)
    assert result[0].min() == 1 and result[1:].max() == 0


def test_class_names():
    info = published("vit_l_16")
    assert len(info.classes) == 1000 and info.classes[0] == "tench" and info.classes[985] == "daisy"
    assert (info.img_size, round(224 / info.crop_pct)) == ((224, 224), 242)
    with pytest.raises(ValueError, match=r"name must be one of vit_b_16, .*; got 'vit_s_16'"):
        published("vit_s_16")


def test_files_of_hugging_face_can_be_read_twice(tmp_path):
    """Stacking must not eat the tensors that were given."""
    hugging_face_model().save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    names = set(state)
    from_state_dict(state, num_heads=3)
    assert set(state) == names
