"""LayerScale, RMSNorm, SwiGLU, QK-norm, and blocks of them: against timm's and PyTorch's, by hand, and wrong ones."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from timm.layers import GluMlp, RmsNorm, SwiGLUPacked
from timm.layers import LayerScale as TimmLayerScale
from timm.layers import SwiGLU as TimmSwiGLU
from timm.models.vision_transformer import Block as TimmBlock
from torch import nn
from torch.testing import assert_close

from vit_tutorial import Attention, Block, Mlp, ViT, ViTConfig, plain_attention
from vit_tutorial.modern import LayerScale, ModernAttention, ModernBlock, RMSNorm, SwiGLU

BATCH, TOKENS, DIM, HEADS, RATIO = 2, 7, 12, 3, 2.5
HIDDEN = int(DIM * RATIO)


def _tokens():
    return torch.randn(BATCH, TOKENS, DIM)


def _shake(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return module


# The parts


def test_layer_scale_is_timm_s_and_starts_near_zero():
    ours, theirs, x = LayerScale(DIM), _shake(TimmLayerScale(DIM)), _tokens()
    assert_close(ours(x), 1e-5 * x)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert_close(ours(x), theirs(x))
    assert_close(LayerScale(2, 0.5)(torch.tensor([2.0, -4.0])), torch.tensor([1.0, -2.0]))


def test_rms_norm_by_hand():
    # The squares of 1 and 7 have the mean 25. LayerNorm gives −1 and 1.
    x = torch.tensor([1.0, 7.0])
    assert_close(RMSNorm(2)(x), torch.tensor([0.2, 1.4]))
    assert_close(nn.LayerNorm(2)(x), torch.tensor([-1.0, 1.0]))


@pytest.mark.parametrize("make", [RmsNorm, partial(nn.RMSNorm, eps=1e-6)])
def test_rms_norm_equals_timm_s_and_pytorch_s(make):
    theirs, x = _shake(make(DIM)), _tokens() + 1
    ours = RMSNorm(DIM)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert ours.eps == theirs.eps
    assert_close(ours(x), theirs(x))
    assert not torch.allclose(ours(x), F.layer_norm(x, (DIM,), theirs.weight), atol=0.1)
    small = 1e-4 * x  # where eps counts
    assert_close(ours(small), theirs(small))


def test_rms_norm_squares_in_single_precision():
    x = torch.full((1, DIM), 300.0, dtype=torch.float16)  # its square is beyond the largest number
    out = RMSNorm(DIM).half()(x)
    assert out.dtype == torch.float16
    assert_close(out, torch.ones_like(x))


def test_swiglu_by_hand():
    mlp = SwiGLU(1, 2)
    state = {
        "fc1_g.weight": [[1.0], [-1.0]], "fc1_g.bias": [0.0, 0.0], "fc1_x.weight": [[2.0], [3.0]],
        "fc1_x.bias": [0.0, 1.0], "fc2.weight": [[1.0, 10.0]], "fc2.bias": [0.5],
    }  # fmt: skip
    mlp.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    # SiLU(1) = 0.7310586 and SiLU(−1) = −0.2689414; what they gate is 2 and 4.
    assert_close(mlp(torch.tensor([[1.0]])), torch.tensor([[0.5 + 2 * 0.7310586 - 40 * 0.2689414]]))


@pytest.mark.parametrize("training", [True, False])
def test_swiglu_equals_timm_s(training):
    theirs = _shake(TimmSwiGLU(DIM, HIDDEN, drop=0.3)).train(training)
    ours, x = SwiGLU(DIM, HIDDEN, drop=0.3).train(training), _tokens()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    torch.manual_seed(1)
    expected = theirs(x)
    torch.manual_seed(1)
    assert_close(ours(x), expected)


def test_swiglu_equals_timm_s_packed_one_whose_first_rows_are_the_gate():
    theirs, ours, x = _shake(SwiGLUPacked(DIM, 2 * HIDDEN)), SwiGLU(DIM, HIDDEN), _tokens()
    state = theirs.state_dict()
    for kind in ("weight", "bias"):
        state[f"fc1_g.{kind}"], state[f"fc1_x.{kind}"] = state.pop(f"fc1.{kind}").chunk(2)
    ours.load_state_dict(state, strict=True)
    assert_close(ours(x), theirs(x))
    gate_last = GluMlp(DIM, 2 * HIDDEN, act_layer=nn.SiLU)
    gate_last.load_state_dict(theirs.state_dict())
    assert not torch.allclose(ours(x), gate_last(x), atol=0.05), "the wrong half as the gate should fail"


def test_two_thirds_of_the_width_are_as_many_parameters():
    count = [sum(p.numel() for p in mlp.parameters() if p.ndim == 2) for mlp in (Mlp(DIM, 48), SwiGLU(DIM, 32))]
    assert count[0] == count[1] == 2 * DIM * 48


# QK-norm


@pytest.mark.parametrize("norm", [RMSNorm, nn.LayerNorm])
def test_with_qk_norm_scores_do_not_grow_with_queries_and_keys(norm):
    x, plain = _tokens(), Attention(DIM, HEADS, qkv_bias=False)
    normed = ModernAttention(DIM, HEADS, qkv_bias=False, qk_norm=norm)
    normed.load_state_dict(plain.state_dict(), strict=False)
    before = [layer.weights(x) for layer in (plain, normed)]
    with torch.no_grad():
        for layer in (plain, normed):
            layer.qkv.weight[: 2 * DIM] *= 1000
    after = [layer.weights(x) for layer in (plain, normed)]
    assert after[0].amax(dim=-1).min() > 0.9 > before[0].amax(dim=-1).max(), "without a norm they become one-hot"
    assert_close(after[1], before[1], rtol=1e-3, atol=1e-3)
    q, k, _ = normed.project(x)
    bound = (DIM / HEADS) ** 0.5  # |q| |k| / √hd, with lengths of √hd
    assert ((q @ k.mT) * bound**-1 <= bound + 1e-4).all()


# The block


def test_a_block_without_choices_is_the_plain_one():
    theirs = _shake(Block(DIM, HEADS, mlp_ratio=RATIO, drop=0.1, drop_path=0.3))
    ours = ModernBlock(DIM, HEADS, mlp_ratio=RATIO, drop=0.1, drop_path=0.3)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = _tokens()
    torch.manual_seed(1)
    expected = theirs(x)
    torch.manual_seed(1)
    assert_close(ours(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"init_values": 0.1}, {"init_values": 0.1}),
        ({"norm_layer": RmsNorm}, {"norm": RMSNorm}),
        ({"mlp_layer": TimmSwiGLU, "act_layer": nn.SiLU}, {"mlp": SwiGLU}),
        ({"qk_norm": True}, {"attn": partial(ModernAttention, qk_norm=partial(nn.LayerNorm, eps=1e-6))}),
        (
            {"mlp_layer": TimmSwiGLU, "act_layer": nn.SiLU, "init_values": 0.1, "norm_layer": RmsNorm, "qk_norm": True},
            {"init_values": 0.1, "norm": RMSNorm, "mlp": SwiGLU, "attn": partial(ModernAttention, qk_norm=RMSNorm)},
        ),
    ],
    ids=["LayerScale", "RMSNorm", "SwiGLU", "QK-norm", "all"],
)
def test_block_loads_timm_weights_strictly(theirs, ours, qkv_bias):
    theirs = _shake(TimmBlock(DIM, HEADS, mlp_ratio=RATIO, qkv_bias=qkv_bias, **theirs)).eval()
    ours = ModernBlock(DIM, HEADS, mlp_ratio=RATIO, qkv_bias=qkv_bias, **ours).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = _tokens()
    assert_close(ours(x), theirs(x))


def test_with_layer_scale_a_deep_stack_starts_as_the_identity():
    config = ViTConfig(8, 4, 3, 5, embed_dim=DIM, depth=20, num_heads=HEADS)
    x = _tokens()
    scaled = ViT(config, block=partial(ModernBlock, init_values=1e-5)).blocks(x)
    assert_close(scaled, x, rtol=1e-3, atol=1e-3)
    assert (ViT(config).blocks(x) - x).abs().mean() > 0.5


def test_a_whole_model_of_chosen_parts_trains_in_every_parameter():
    attn = partial(ModernAttention, qk_norm=RMSNorm)
    block = partial(ModernBlock, attn=attn, mlp=SwiGLU, norm=RMSNorm, init_values=1e-4)
    model = ViT(ViTConfig(8, 4, 3, 5, embed_dim=DIM, depth=2, num_heads=HEADS), plain_attention, block=block)
    assert model.blocks[1].attn.attend is plain_attention
    model(torch.randn(2, 3, 8, 8)).square().sum().backward()
    assert all(parameter.grad.norm() > 0 for parameter in model.parameters())


def test_errors_state_the_numbers_and_the_rule(no_shape_checks):
    with pytest.raises(ValueError, match=r"init_values must be a finite number of at least 0, got -1"):
        LayerScale(4, -1)
    with pytest.raises(ValueError, match=r"hidden_dim must be an int of at least 1, got 0"):
        SwiGLU(4, 0)
    with pytest.raises(ValueError, match=r"mlp must be a class or function that makes a module, not a module; got Mlp"):
        ModernBlock(DIM, HEADS, mlp=Mlp(DIM, HIDDEN))
    with pytest.raises(ValueError, match=r"norm must be a class or function that makes a module, .* RMSNorm"):
        ModernBlock(DIM, HEADS, norm=RMSNorm(DIM))
    with pytest.raises(ValueError, match=r"qk_norm must be a class or function that makes a module, .* RMSNorm"):
        ModernAttention(DIM, HEADS, qk_norm=RMSNorm(4))
    with pytest.raises(ValueError, match=r"dim 12 is not divisible by num_heads 5"):
        ModernBlock(DIM, 5)
