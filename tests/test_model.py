"""The whole model against timm's and torchvision's, what must change its output and what must not, and its start."""

import dataclasses
import math
import re
from functools import partial

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch import nn
from torchvision.models import VisionTransformer as TorchvisionViT

from vit_tutorial import (
    PRESETS,
    Block,
    PerHeadAttention,
    ViT,
    ViTConfig,
    fuse_heads,
    patchify,
    plain_attention,
    sincos_1d,
    sincos_2d,
    unpatchify,
)

TINY = ViTConfig(img_size=(8, 12), patch_size=4, in_chans=2, num_classes=5, embed_dim=24, depth=2, num_heads=3)


def tiny(**changes) -> ViT:
    return ViT(dataclasses.replace(TINY, **changes)).eval()


@torch.no_grad()
def perturb(model: nn.Module) -> nn.Module:
    """No parameter at zero or one any more, so that none can be mixed up or left out unnoticed."""
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def images_for(config: ViTConfig, batch: int = 3) -> torch.Tensor:
    return torch.randn(batch, config.in_chans, *config.img_size)


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_hand_computed():
    """Pixels 1, 2, 3, 6 become tokens (p, −p); the blocks add nothing; the mean is (3, −3)."""
    config = ViTConfig(
        img_size=2, patch_size=1, in_chans=1, num_classes=3, embed_dim=2, depth=2, num_heads=1,
        pos_embed="none", pool="mean", final_norm=False,
    )  # fmt: skip
    model, with_norm = ViT(config), ViT(dataclasses.replace(config, final_norm=True))
    with torch.no_grad():
        model.patch_embed.proj.weight.copy_(torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1))
        model.head.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]))
        for block in model.blocks:
            block.attn.proj.weight.zero_()
            block.mlp.fc2.weight.zero_()
    image = torch.tensor([1.0, 2.0, 3.0, 6.0]).reshape(1, 1, 2, 2)
    torch.testing.assert_close(model(image), torch.tensor([[3.0, -3.0, 6.0]]))

    with_norm.load_state_dict(model.state_dict() | {"norm.weight": torch.ones(2), "norm.bias": torch.zeros(2)})
    torch.testing.assert_close(with_norm(image), torch.tensor([[1.0, -1.0, 2.0]]))  # each token is (1, −1) now


# ---- against timm: the same parameter names, so its weights load strictly ----


@pytest.mark.parametrize(
    "changes",
    [
        {"img_size": 16, "patch_size": 8, "in_chans": 3},
        {"img_size": (8, 12), "patch_size": 4},
        {"img_size": (12, 30), "patch_size": (3, 10), "num_heads": 4},
        {"img_size": 14, "patch_size": 7, "in_chans": 1, "num_heads": 1, "depth": 4},
        {"img_size": 8, "patch_size": 8, "num_heads": 8},
        {"qkv_bias": False},
        {"mlp_ratio": 2.5, "num_classes": 7},
        {"num_classes": 0},
    ],
    ids=str,
)
def test_timm_weights_load_strictly_and_give_its_logits(changes):
    config = dataclasses.replace(TINY, **changes)
    theirs = perturb(timm_twin(config))
    ours = ViT(config).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    images = images_for(config)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.forward_features(images), theirs.forward_features(images), rtol=1e-5, atol=1e-5)


def timm_twin(config: ViTConfig, **changes) -> TimmViT:
    names = ("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "num_heads", "mlp_ratio")
    return TimmViT(**{name: getattr(config, name) for name in names}, qkv_bias=config.qkv_bias, **changes)


@pytest.mark.parametrize(
    ("changes", "timm_changes"),
    [
        ({"pool": "mean"}, {"global_pool": "avg", "class_token": False, "fc_norm": False}),
        ({"act": "gelu_tanh"}, {"act_layer": partial(nn.GELU, approximate="tanh")}),
        ({"final_norm": False}, {"final_norm": False}),
        ({"pos_embed": "none"}, {"pos_embed": "none"}),
    ],
    ids=["mean", "gelu_tanh", "no final norm", "no positions"],
)
def test_options_agree_with_timm(changes, timm_changes):
    config = dataclasses.replace(TINY, **changes)
    theirs = perturb(timm_twin(config, **timm_changes))
    ours, images = ViT(config).eval(), images_for(config)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)
    if "act" in changes:  # the two GELUs are close; the test must still tell them apart
        exact = ViT(TINY).eval()
        exact.load_state_dict(theirs.state_dict())
        assert (exact(images) - theirs(images)).abs().max() > 1e-5


def test_gradients_agree_with_timm():
    theirs = perturb(timm_twin(TINY))
    ours = tiny()
    ours.load_state_dict(theirs.state_dict())
    images, labels = images_for(TINY), torch.tensor([0, 4, 2])
    for model in (ours, theirs):
        F.cross_entropy(model(images), labels).backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5, msg=name)


def test_thirds_of_qkv_in_another_order_are_caught():
    """Keys and values swapped: the shapes fit, the logits do not."""
    theirs = perturb(timm_twin(TINY))
    state = dict(theirs.state_dict())
    for name in [name for name in state if "qkv" in name]:
        q, k, v = state[name].chunk(3)
        state[name] = torch.cat([q, v, k])
    ours, images = tiny(), images_for(TINY)
    ours.load_state_dict(state)
    assert (ours(images) - theirs(images)).abs().max() > 1e-2


# ---- against torchvision: the same model under other names ----

TORCHVISION_NAMES = {
    "class_token": "cls_token",
    "encoder.pos_embedding": "pos_embed",
    "conv_proj": "patch_embed.proj",
    "encoder.layers.encoder_layer_": "blocks.",
    "ln_1": "norm1",
    "ln_2": "norm2",
    "self_attention.in_proj_": "attn.qkv.",
    "self_attention.out_proj": "attn.proj",
    "mlp.0": "mlp.fc1",
    "mlp.3": "mlp.fc2",
    "encoder.ln": "norm",
    "heads.head": "head",
}


@pytest.mark.parametrize(("size", "patch", "heads"), [(16, 4, 3), (14, 7, 4)])
def test_torchvision_weights_under_new_names_give_its_logits(size, patch, heads):
    theirs = perturb(TorchvisionViT(size, patch, 3, heads, hidden_dim=24, mlp_dim=60, num_classes=5))
    state = {}
    for name, value in theirs.state_dict().items():
        for old, new in TORCHVISION_NAMES.items():
            name = name.replace(old, new)
        state[name] = value
    config = ViTConfig(size, patch, num_classes=5, embed_dim=24, depth=3, num_heads=heads, mlp_ratio=2.5)
    ours, images = ViT(config).eval(), images_for(config)
    ours.load_state_dict(state, strict=True)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


# ---- what must not change the output, and what must ----


def test_forward_is_head_of_features():
    for pool in ("cls", "mean"):
        model = perturb(tiny(pool=pool))
        images = images_for(TINY)
        features = model.forward_features(images)
        assert features.shape == (3, model.config.num_tokens, 24)
        pooled = features[:, 0] if pool == "cls" else features.mean(dim=1)
        torch.testing.assert_close(model(images), F.linear(pooled, model.head.weight, model.head.bias))
        assert torch.equal(model(images), model.forward_head(features))


def test_any_attend_runs_inside():
    fused, images = perturb(tiny()), images_for(TINY)
    plain = ViT(TINY, attend=plain_attention).eval()
    plain.load_state_dict(fused.state_dict())
    torch.testing.assert_close(plain(images), fused(images), rtol=1e-5, atol=1e-5)
    calls = []
    counting = ViT(TINY, attend=lambda q, k, v: (calls.append(q.shape), v)[1]).eval()
    counting(images)
    assert calls == [(3, 3, 7, 8)] * 2  # (b, h, n, hd), once in each of two blocks


class ParallelBlock(Block):
    """Attention and MLP read the same tokens."""

    def forward(self, x):
        return x + self.attn(self.norm1(x)) + self.mlp(self.norm2(x))


@torch.no_grad()
def test_blocks_of_one_s_own_run_inside():
    torch.manual_seed(0)
    usual = tiny(pos_embed="none", pool="mean", depth=1)
    torch.manual_seed(0)
    own, images = ViT(usual.config, block=ParallelBlock), images_for(TINY)
    assert all(torch.equal(ours, value) for ours, value in zip(own.parameters(), usual.parameters(), strict=True))
    x, (block,) = usual.patch_embed(images), usual.blocks
    x = x + block.attn(block.norm1(x)) + block.mlp(block.norm2(x))
    torch.testing.assert_close(own(images), usual.head(usual.norm(x).mean(dim=1)))


def test_attention_of_one_s_own_runs_inside():
    images, loop = images_for(TINY), perturb(ViT(TINY, block=partial(Block, attn=PerHeadAttention)))
    fused = ViT(TINY).eval()
    fused.load_state_dict(loop.state_dict(), strict=False)
    for block, of_loop in zip(fused.blocks, loop.blocks, strict=True):
        block.attn = fuse_heads(of_loop.attn)
    torch.testing.assert_close(loop(images), fused(images))


def test_every_kind_of_position_runs_and_differs():
    learned, images = perturb(tiny()), images_for(TINY)
    state = {name: value for name, value in learned.state_dict().items() if name != "pos_embed"}
    logits = [learned(images)]
    for kind in ("sincos_1d", "sincos_2d", "none"):
        model = tiny(pos_embed=kind)
        assert "pos_embed" not in model.state_dict()
        assert "pos_embed" not in dict(model.named_parameters())
        model.load_state_dict(state, strict=True)
        logits.append(model(images))
    assert all((logits[i] - logits[j]).abs().max() > 1e-3 for i in range(4) for j in range(i))


def test_where_the_fixed_tables_put_the_class_token():
    """In 1-D it is position 0; in 2-D it has no place in the grid, so its row is zero."""
    torch.testing.assert_close(tiny(pos_embed="sincos_1d").pos_embed, sincos_1d(7, 24)[None])
    table = tiny(pos_embed="sincos_2d").pos_embed
    assert table[0, 0].abs().max() == 0
    torch.testing.assert_close(table[:, 1:], sincos_2d((2, 3), 24)[None])
    torch.testing.assert_close(tiny(pos_embed="sincos_1d", pool="mean").pos_embed, sincos_1d(6, 24)[None])
    torch.testing.assert_close(tiny(pos_embed="sincos_2d", pool="mean").pos_embed, sincos_2d((2, 3), 24)[None])


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_only_positions_tell_patches_in_another_order_apart(pool):
    images = images_for(TINY)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = unpatchify(patchify(images, 4)[:, order], 4, (2, 3))
    blind = perturb(tiny(pos_embed="none", pool=pool))
    torch.testing.assert_close(blind(shuffled), blind(images), rtol=1e-4, atol=1e-5)
    seeing = perturb(tiny(pool=pool))
    assert (seeing(shuffled) - seeing(images)).abs().max() > 1e-3


def test_images_of_a_batch_do_not_see_each_other():
    model, images = perturb(tiny()), images_for(TINY)
    together = model(images)
    torch.testing.assert_close(torch.cat([model(image[None]) for image in images]), together)
    images[1] = torch.randn_like(images[1])
    changed = (model(images) - together).abs().amax(dim=1)
    assert changed[1] > 1e-3
    assert changed[[0, 2]].max() < 1e-5


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_every_preset_runs(config):
    with torch.device("meta"):
        assert ViT(config)(torch.empty(2, config.in_chans, *config.img_size)).shape == (2, config.num_classes)


# ---- how many parameters ----


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("vit_b_16", 86_567_656),
        ("building_a_vit", 5_689),
        ("annotated_vit", 86_567_656),  # the number of heads changes no matrix
        ("cifar10_tiny", 119_098),
        ("cifar10_small", 2_693_578),
    ],
)
def test_parameters_as_published(preset, count):
    with torch.device("meta"):
        assert parameter_count(ViT(PRESETS[preset])) == count


@pytest.mark.parametrize(
    ("preset", "timm_name"),
    [
        ("vit_ti_16", "vit_tiny_patch16_224"),
        ("vit_s_16", "vit_small_patch16_224"),
        ("vit_s_32", "vit_small_patch32_224"),
        ("vit_b_16", "vit_base_patch16_224"),
        ("vit_b_32", "vit_base_patch32_224"),
        ("vit_l_16", "vit_large_patch16_224"),
        ("vit_l_32", "vit_large_patch32_224"),
        ("vit_h_14", "vit_huge_patch14_224"),
    ],
)
def test_presets_have_timms_parameters(preset, timm_name):
    with torch.device("meta"):
        ours, theirs = ViT(PRESETS[preset]), timm.create_model(timm_name, num_classes=1000)
    shapes = [{name: tuple(value.shape) for name, value in model.state_dict().items()} for model in (ours, theirs)]
    assert shapes[0] == shapes[1]
    assert ours.config.num_heads == theirs.blocks[0].attn.num_heads


# ---- the start ----


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_the_first_loss_is_that_of_guessing(pool):
    classes = 100
    model = ViT(
        ViTConfig(img_size=32, patch_size=8, num_classes=classes, embed_dim=96, depth=4, num_heads=3, pool=pool)
    )
    logits = model(torch.randn(20, 3, 32, 32))
    loss = logits.logsumexp(1).mean() - logits.mean()  # averaged over all labels that there are
    assert abs(loss - math.log(classes)) < 0.1


def test_initialisation_follows_glorot_for_each_third():
    model = ViT(ViTConfig(img_size=32, patch_size=8, embed_dim=192, depth=2, num_heads=3))

    def glorot(fan_in: int, fan_out: int) -> float:
        return math.sqrt(2 / (fan_in + fan_out))

    for block in model.blocks:
        for third in block.attn.qkv.weight.chunk(3):
            assert third.std().item() == pytest.approx(glorot(192, 192), rel=0.03)
            assert third.abs().max() <= math.sqrt(3) * glorot(192, 192)  # uniform, so bounded
        assert block.attn.proj.weight.std().item() == pytest.approx(glorot(192, 192), rel=0.03)
        assert block.mlp.fc1.weight.std().item() == pytest.approx(glorot(192, 768), rel=0.03)
        assert block.mlp.fc2.weight.std().item() == pytest.approx(glorot(768, 192), rel=0.03)
    assert model.patch_embed.proj.weight.std().item() == pytest.approx(glorot(3 * 64, 192), rel=0.03)
    for small in (model.head.weight, model.pos_embed, model.cls_token):
        assert small.std().item() == pytest.approx(0.02, rel=0.25)
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    assert len(biases) == 2 * 6 + 3
    assert all(bias.abs().max() == 0 for bias in biases)


@pytest.mark.parametrize("changes", [{}, {"pool": "mean"}, {"pos_embed": "sincos_2d"}, {"qkv_bias": False}], ids=str)
def test_gradients_reach_every_parameter(changes):
    model = perturb(tiny(**changes)).train()
    F.cross_entropy(model(images_for(TINY)), torch.tensor([0, 4, 2])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if "qkv.bias" in name:  # the same number added to all scores of a row is lost in the softmax: keys need no bias
            q, k, v = parameter.grad.chunk(3)
            assert q.abs().max() > 1e-7 and k.abs().max() < 1e-6 and v.abs().max() > 1e-7, name
        else:
            assert parameter.grad.abs().max() > 1e-7, name


def test_drop_rates():
    model = tiny(depth=5, drop_rate=0.3, drop_path_rate=0.2)
    assert [block.drop_path.p for block in model.blocks] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert tiny(depth=1, drop_path_rate=0.2).blocks[0].drop_path.p == 0
    dropouts = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert dropouts == [0.3] * (1 + 5 * 2)  # after the positions; in each block one in attention, one in the MLP
    images = images_for(TINY)
    assert torch.equal(model(images), model(images))
    model.train()
    assert not torch.equal(model(images), model(images))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 8, 12), r"images must have 4 axes \(b, c, H, W\), got 3: \(2, 8, 12\)"),
        (torch.zeros(1, 3, 8, 12), "images have 3 channels, the model takes in_chans 2"),
        (torch.zeros(1, 2, 12, 8), r"images are \(12, 8\) pixels, the model takes img_size \(8, 12\)"),
        (torch.zeros(1, 2, 8, 12, dtype=torch.uint8), "images must be floating point, got torch.uint8"),
    ],
)
def test_bad_images(images, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        tiny()(images)


def test_a_config_that_is_none(no_shape_checks):
    with pytest.raises(ValueError, match=r"config must be a ViTConfig, .* PRESETS\['vit_b_16'\]; got 'vit_b_16'"):
        ViT("vit_b_16")


@pytest.mark.parametrize("part", ["block", "patch_embed"])
@pytest.mark.parametrize("factory", ["post-norm", nn.Identity()])
def test_what_makes_no_part_of_the_model(part, factory, no_shape_checks):
    rule = f"{part} must be a class or function that makes a module, not a module; got {factory!r}"
    with pytest.raises(ValueError, match=re.escape(rule)):
        ViT(TINY, **{part: factory})


@pytest.mark.parametrize(
    ("layer", "got"), [(nn.Linear(24, 23), r"Linear returns \(3, 7, 23\)"), (nn.LSTM(24, 24), "LSTM returns a tuple")]
)
def test_a_block_that_returns_another_shape(layer, got, no_shape_checks):
    model = ViT(TINY, block=lambda dim, num_heads, **options: layer)
    with pytest.raises(ValueError, match=rf"must return a tensor of the shape that it is given, \(3, 7, 24\); {got}"):
        model(images_for(TINY))


# ---- what PyTorch makes of it ----


def test_exports_for_any_batch_size(no_shape_checks):
    model, images = perturb(tiny()), images_for(TINY)
    dynamic = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(model, (images,), dynamic_shapes=dynamic).module()
    torch.testing.assert_close(exported(images[:2]), model(images[:2]))


def test_compiles_as_one_graph(no_shape_checks):
    model, images = perturb(ViT(TINY, block=ParallelBlock)), images_for(TINY)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images), model(images))
