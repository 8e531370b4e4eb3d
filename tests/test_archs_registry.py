"""Each name in the registry builds what it says, and only from a config that describes it."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from vit_tutorial import ViT, ViTConfig, modern
from vit_tutorial.archs import ARCHS, FIELDS, MODERN, OWN_WEIGHTS, PostNormBlock, ResNet, Shuffled, patients
from vit_tutorial.archs.patients import SoftmaxHead
from vit_tutorial.live import export_model
from vit_tutorial.patches import patchify, unpatchify
from vit_tutorial.recipes import INITS, RECIPES, Recipe, load_split, make_model
from vit_tutorial.runs import load_recorded, run_recipe
from vit_tutorial.training import evaluate

CONFIG = ViTConfig(img_size=(12, 8), patch_size=(4, 2), num_classes=5, embed_dim=24, depth=2, num_heads=3)

# What distinguishes an architecture from the healthy ViT: the class of the model, or of one of its parts.
PARTS = {
    "vit": ViT,
    "post-norm": PostNormBlock,
    "softmax-head": SoftmaxHead,
    "resnet": ResNet,
    "shuffled-patches": Shuffled,
    "shuffled-pixels": Shuffled,
    "resnet-shuffled-patches": Shuffled,
    "resnet-shuffled-pixels": Shuffled,
    "patient:softmax before cross-entropy": SoftmaxHead,
    "patient:attention across the batch": patients.SequenceFirstAttention,
    "patient:dead residual norm": patients.DeadNormBlock,
    "patient:reshape without permute": patients.ReshapedPatches,
    "patient:colours last": patients.ColoursLastPatches,
    "patient:no final norm": nn.Identity,
    "patient:per-head slices": patients.SlicedHeads,
    "patient:scale by √dim": ViT,
    "patient:batch-sized class token": patients.BatchSizedClassToken,
    "patient:head on all tokens": patients.HeadOnAllTokens,
    "patient:no position on the class token": patients.NoClassPosition,
    "patient:softmax over the wrong axis": ViT,
    "patient:heads without a transpose": patients.ReshapedHeads,
    "patient:random while evaluating": patients.AlwaysDropout,
    "modern:rope": modern.Rope,
    "modern:rope-mixed": modern.MixedRope,
    "modern:relative": modern.ShawAttention,
    "modern:bias-table": modern.BiasedAttention,
    "modern:registers": modern.ModernViT,
    "modern:qk-norm": modern.RMSNorm,
    "modern:layer-scale": modern.LayerScale,
    "modern:rms-norm": modern.RMSNorm,
    "modern:swiglu": modern.SwiGLU,
    "modern:sequence-pool": modern.SequencePool,
    "modern:attention-pool": modern.AttentionPoolLatent,
    "modern:patch-dropout": modern.PatchDropout,
    "modern:conv-stem": modern.ConvStem,
    "modern:rope-layer-scale": modern.Rope,
    "modern:swiglu-layer-scale": modern.SwiGLU,
    "modern:dinov3": modern.LayerScale,
    "modern:vit5": modern.LayerScale,
}


def config_of(arch: str) -> ViTConfig:
    return replace(CONFIG, **{"final_norm": arch != "post-norm"} | FIELDS.get(arch, {}))


def build(arch: str) -> nn.Module:
    torch.manual_seed(0)
    return ARCHS[arch](config_of(arch))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_name_builds_what_it_says(arch):
    model, healthy, images = build(arch), build("vit"), torch.randn(3, 3, 12, 8)
    assert any(type(part) is PARTS[arch] for part in model.modules())
    assert model(images).shape == (3, 5)
    if isinstance(model, ViT):
        assert model.config == config_of(arch)  # so recorded sizes are the model's
    assert torch.allclose(model(images), healthy(images), atol=1e-4) == (arch == "vit")


def test_the_softmax_head_is_the_vit_followed_by_a_softmax():
    images = torch.randn(3, 3, 12, 8)
    assert torch.equal(build("softmax-head")(images), build("vit")(images).softmax(dim=-1))


@pytest.mark.parametrize("inside", ["vit", "resnet"])
@pytest.mark.parametrize(("what", "patch_size"), [("patches", (4, 2)), ("pixels", (1, 1))])
def test_a_shuffled_model_is_the_plain_one_on_shuffled_images(inside, what, patch_size):
    arch = f"shuffled-{what}" if inside == "vit" else f"resnet-shuffled-{what}"
    model, plain, images = build(arch).eval(), build(inside).eval(), torch.randn(3, 3, 12, 8)
    assert all(torch.equal(value, plain.state_dict()[key[6:]]) for key, value in model.state_dict().items())
    pieces = patchify(images, patch_size)
    order = torch.randperm(pieces.shape[1], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        model(images), plain(unpatchify(pieces[:, order], patch_size, (12 // patch_size[0], 8 // patch_size[1])))
    )


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_recipe_s_init_reaches_every_layer_or_is_refused(arch, init):
    if init != "xavier" and arch in OWN_WEIGHTS:
        with pytest.raises(ValueError, match=f"init must be 'xavier' for arch '{arch}'"):
            Recipe(dataset="shapes", model=config_of(arch), arch=arch, init=init)
        return
    drawn = make_model(Recipe(dataset="shapes", model=config_of(arch), arch=arch, init=init, seed=5))
    torch.manual_seed(5)
    expected = ARCHS[arch](config_of(arch))
    INITS[init](expected)
    torch.testing.assert_close(drawn.state_dict(), expected.state_dict(), rtol=0, atol=0)


# The parts of today's blocks


def plain(arch: str) -> nn.Module:
    torch.manual_seed(0)
    return ViT(config_of(arch))


def test_a_part_is_the_only_difference_from_the_plain_model():
    """What both have starts alike where the part draws nothing before it, and what only one has is the part."""
    swiglu = {"mlp.fc1_g", "mlp.fc1_x", "mlp.fc1", "mlp.fc2"}
    block = {
        "rope-mixed": {"attn.rope"},
        "relative": {"attn"},
        "bias-table": {"attn"},
        "qk-norm": {"attn.q_norm", "attn.k_norm"},
        "layer-scale": {"ls1", "ls2"},
        "rms-norm": {"norm1", "norm2"},
        "swiglu": swiglu,
        "rope-layer-scale": {"ls1", "ls2"},
        "swiglu-layer-scale": {"ls1", "ls2"} | swiglu,
        "dinov3": {"ls1", "ls2"},
        "vit5": {"ls1", "ls2", "attn.q_norm", "attn.k_norm", "norm1", "norm2"},
    }
    model = {
        "rms-norm": {"norm"},
        "vit5": {"norm", "reg_token"},
        "dinov3": {"reg_token"},
        "registers": {"reg_token"},
        "sequence-pool": {"attn_pool.attention_pool"},
        "attention-pool": {f"attn_pool{name}" for name in ("", ".q", ".kv", ".proj", ".norm", ".mlp.fc1", ".mlp.fc2")},
        "conv-stem": {f"patch_embed.proj{name}" for name in ("", ".0", ".1", ".3", ".4", ".6")},
    }
    for name in MODERN:
        ours, theirs = build(f"modern:{name}").state_dict(), plain(f"modern:{name}").state_dict()
        shapes = [{key: value.shape for key, value in state.items()} for state in (ours, theirs)]
        differ = {key.rpartition(".")[0] or key for key in dict(shapes[0].items() ^ shapes[1].items())}
        expected = {f"blocks.{i}.{part}" for i in range(2) for part in block.get(name, ())} | model.get(name, set())
        assert differ == expected, name


def test_a_gate_has_as_many_parameters_as_an_mlp():
    count = [sum(p.numel() for p in model.parameters()) for model in (build("modern:swiglu"), plain("modern:swiglu"))]
    assert count[0] - count[1] == 2 * (2 * 64 - 96), "only the biases of the two first layers differ from that of one"


def test_a_part_s_numbers_by_hand():
    """What no shape shows: the numbers that the papers chose."""
    dinov3, vit5 = build("modern:dinov3"), build("modern:vit5")
    assert {norm.eps for norm in dinov3.modules() if isinstance(norm, nn.LayerNorm)} == {1e-5}
    assert dinov3.blocks[0].attn.rope.halves and not vit5.blocks[0].attn.rope.halves
    assert dinov3.reg_token.shape == vit5.reg_token.shape == build("modern:registers").reg_token.shape == (1, 4, 24)
    assert build("modern:patch-dropout").patch_drop.prob == 0.5
    for model, places in ((dinov3, 5), (vit5, 1), (build("modern:rope"), 1)):
        turned = model.blocks[0].attn.rope.sin.abs().sum(dim=-1) > 0
        assert not turned[:places].any(), "class token, and DINOv3's registers, have no place"
    assert turned[2:].all() and not turned[1], "the first patch is in row 0 and column 0"


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", MODERN)
def test_every_init_leaves_the_parts_what_they_are(name, init):
    """LayerScale starts near 0, frequencies and registers differ from each other, norms multiply by 1."""
    arch = f"modern:{name}"
    recipe = Recipe(dataset="shapes", model=config_of(arch), arch=arch, init=init)
    model = make_model(recipe)
    scales = {"layer-scale": 1e-5, "rope-layer-scale": 1e-5, "swiglu-layer-scale": 1e-5, "dinov3": 1e-5, "vit5": 1e-4}
    scale = scales.get(name)
    for key, value in model.named_parameters():
        if "gamma" in key:
            assert torch.equal(value, torch.full((24,), scale))
        elif "norm" in key:
            assert torch.equal(value, torch.ones_like(value) * (not key.endswith("bias"))), key
        elif "freqs" in key:
            lengths = value.square().sum(dim=0).sqrt()
            torch.testing.assert_close(lengths, torch.tensor([1, 10**-0.5, 1, 10**-0.5]).expand(3, 4))
        elif "reg_token" in key:
            assert 0.01 < value.std() < 0.03 and len(value[0].unique(dim=0)) == 4
        elif key.endswith("rel_k") or key.endswith("rel_v") or "bias_table" in key:
            assert value.abs().max() < 0.1, key
        elif value.ndim > 1 and "pos_embed" not in key and "cls_token" not in key:
            assert 0 < value.std() < 1, key
    images = torch.randn(3, 3, 12, 8)
    loss = nn.functional.cross_entropy(model(images), torch.tensor([0, 2, 4]))
    assert loss < 8
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_config_that_does_not_describe_a_part_is_refused():
    make = partial(Recipe, dataset="shapes")
    for arch, wrong in (("rope", "pos_embed none, got learned"), ("sequence-pool", "pool mean, got cls")):
        with pytest.raises(ValueError, match=f"arch 'modern:{arch}' needs model.{wrong}"):
            make(arch=f"modern:{arch}", model=CONFIG)
    with pytest.raises(ValueError, match="head_dim 6 is not divisible by the four parts"):
        make(arch="modern:rope", model=replace(config_of("modern:rope"), num_heads=4))
    with pytest.raises(ValueError, match=r"patch_size \(3, 2\) must be powers of 2"):
        make(arch="modern:conv-stem", model=replace(CONFIG, patch_size=(3, 2)))
    with torch.random.fork_rng():
        before = torch.get_rng_state()
        make(arch="modern:rope-mixed", model=config_of("modern:rope-mixed"))
        assert torch.equal(torch.get_rng_state(), before), "asking whether parts fit must move no seed"


@pytest.mark.parametrize("name", MODERN)
def test_a_recorded_run_of_a_part_comes_back_with_equal_logits(name, tmp_path):
    digits = RECIPES["digits"]
    sizes = {"embed_dim": 12, "depth": 1, "pos_embed": "learned"} | FIELDS.get(f"modern:{name}", {})
    model = replace(digits.model, **sizes)
    recipe = replace(digits, arch=f"modern:{name}", model=model, epochs=2, batch_size=512)
    trained = []

    def keep(model, history):
        trained.append({key: value.clone() for key, value in model.state_dict().items()})

    metrics = run_recipe(name, recipe, tmp_path, progress=False, after_epoch=keep)
    ours, known = load_recorded(tmp_path)
    assert known.fresh() == recipe and metrics["parameters"] == sum(p.numel() for p in ours.parameters())
    expected = ARCHS[recipe.arch](model)
    expected.load_state_dict({key: v.half().float() if v.is_floating_point() else v for key, v in trained[-1].items()})
    test = load_split(known, "test")
    images = test.images[:7] / 255
    torch.testing.assert_close(ours(images), expected.eval()(images), rtol=0, atol=0)
    assert evaluate(ours, test, known)["loss"] == pytest.approx(metrics["test"]["loss"], abs=2e-3)
    with pytest.raises(ValueError, match=f"the page runs a vit with these options only; got modern:{name}"):
        export_model(ours, known)
