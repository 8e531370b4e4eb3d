"""The encoder block against torch, torchvision and timm, and the ways in which it must not be wrong."""

import math

import pytest
import torch
import torch.nn.functional as F
from timm.layers import Mlp as TimmMlp
from timm.models.vision_transformer import Block as TimmBlock
from torch import nn
from torch.testing import assert_close
from torchvision.models.vision_transformer import EncoderBlock, MLPBlock
from torchvision.ops import stochastic_depth

from vit_tutorial import Attention, Block, DropPath, Mlp, fused_attention, plain_attention
from vit_tutorial.encoder import NORM_EPS
from vit_tutorial.exercises.encoder import norm_is_alive

BATCH, TOKENS, DIM, HEADS, RATIO = 2, 7, 12, 3, 2.5
HIDDEN = int(DIM * RATIO)
NORMS = ["norm1", "norm2"]

TORCH_NAMES = {
    "norm1": "norm1",
    "attn.qkv": "self_attn.in_proj_",
    "attn.proj": "self_attn.out_proj",
    "norm2": "norm2",
    "mlp.fc1": "linear1",
    "mlp.fc2": "linear2",
}
TORCHVISION_NAMES = {
    "norm1": "ln_1",
    "attn.qkv": "self_attention.in_proj_",
    "attn.proj": "self_attention.out_proj",
    "norm2": "ln_2",
    "mlp.fc1": "mlp.0",
    "mlp.fc2": "mlp.3",
}


def _tokens(*shape):
    return torch.randn(*(shape or (BATCH, TOKENS, DIM)))


def _shake(module):
    """Give every parameter its own value: fresh norms and biases are all alike, and no mix-up would show."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    return module


def _copy(theirs, names):
    """Our state dict from theirs. In names that end in ``_``, weight and bias follow without a dot."""
    state = theirs.state_dict()
    return {
        f"{ours}.{kind}": state[f"{name}{kind}" if name.endswith("_") else f"{name}.{kind}"]
        for ours, name in names.items()
        for kind in ("weight", "bias")
    }


def _post_norm(block, x):
    x = block.norm1(x + block.attn(x))
    return block.norm2(x + block.mlp(x))


class DeadNormBlock(Block):
    """The bug of a published tutorial: the wrapper norms its input, and the branch it is given looks elsewhere."""

    def forward(self, x):
        def residual(x, norm, branch):
            return x + branch(norm(x))

        attended = self.attn(x)
        x = residual(x, self.norm1, lambda _: attended)
        transformed = self.mlp(x)
        return residual(x, self.norm2, lambda _: transformed)


# The block, against others


@pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("attend", [plain_attention, fused_attention])
def test_block_equals_torch_encoder_layer(act, attend):
    def activation(x):
        return F.gelu(x, approximate="tanh" if act == "gelu_tanh" else "none")

    theirs = nn.TransformerEncoderLayer(
        DIM, HEADS, HIDDEN, activation=activation, layer_norm_eps=NORM_EPS, batch_first=True, norm_first=True
    )
    _shake(theirs).eval()
    ours = Block(DIM, HEADS, mlp_ratio=RATIO, act=act, attend=attend).eval()
    ours.load_state_dict(_copy(theirs, TORCH_NAMES))
    x = _tokens()
    assert_close(ours(x), theirs(x))


def test_block_equals_torchvision_encoder_block():
    theirs = _shake(EncoderBlock(HEADS, DIM, HIDDEN, dropout=0.0, attention_dropout=0.0)).eval()
    ours = Block(DIM, HEADS, mlp_ratio=RATIO).eval()
    ours.load_state_dict(_copy(theirs, TORCHVISION_NAMES))
    x = _tokens()
    assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
def test_block_loads_timm_weights_strictly(qkv_bias, act):
    def activation():
        return nn.GELU(approximate="tanh" if act == "gelu_tanh" else "none")

    theirs = _shake(TimmBlock(DIM, HEADS, mlp_ratio=RATIO, qkv_bias=qkv_bias, act_layer=activation)).eval()
    assert theirs.norm1.eps == NORM_EPS
    ours = Block(DIM, HEADS, mlp_ratio=RATIO, qkv_bias=qkv_bias, act=act).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = _tokens()
    assert_close(ours(x), theirs(x))


def test_block_equals_timm_with_drop_path_under_the_same_draws():
    theirs = _shake(TimmBlock(DIM, HEADS, mlp_ratio=RATIO, qkv_bias=True, drop_path=0.4)).train()
    ours = Block(DIM, HEADS, mlp_ratio=RATIO, drop_path=0.4).train()
    ours.load_state_dict(theirs.state_dict())
    x = _tokens(32, TOKENS, DIM)
    torch.manual_seed(1)
    expected = theirs(x)
    torch.manual_seed(1)
    assert_close(ours(x), expected)
    assert (expected == x).flatten(1).all(1).any(), "some image should skip both branches, or nothing was tested"


# The MLP


def test_mlp_by_hand():
    mlp = Mlp(1, 2)
    state = {"fc1.weight": [[1.0], [-2.0]], "fc1.bias": [0.0, 1.0], "fc2.weight": [[3.0, 5.0]], "fc2.bias": [0.5]}
    mlp.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    # Token 1: hidden 1 and −1. GELU: 1·Φ(1) = 0.8413447, −1·Φ(−1) = −0.1586553. Out: 3·0.8413447 − 5·0.1586553 + 0.5.
    # Token 0: hidden 0 and 1. Out: 5·0.8413447 + 0.5.
    assert_close(mlp(torch.tensor([[1.0], [0.0]])), torch.tensor([[2.2307577], [4.7067237]]))


@pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
def test_mlp_equals_timm(act):
    theirs = _shake(
        TimmMlp(DIM, HIDDEN, act_layer=lambda: nn.GELU(approximate="none" if act == "gelu" else "tanh"))
    ).eval()
    ours = Mlp(DIM, HIDDEN, act=act).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = _tokens()
    assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("training", [True, False])
def test_mlp_equals_torchvision(training):
    theirs = _shake(MLPBlock(DIM, HIDDEN, dropout=0.3)).train(training)
    ours = Mlp(DIM, HIDDEN, drop=0.3).train(training)
    state = theirs.state_dict()
    ours.load_state_dict({f"fc{i}.{kind}": state[f"{3 * i - 3}.{kind}"] for i in (1, 2) for kind in ("weight", "bias")})
    x = _tokens()
    torch.manual_seed(1)
    expected = theirs(x)
    torch.manual_seed(1)
    assert_close(ours(x), expected)


# LayerNorm and the order of things


def test_layer_norm_by_hand():
    norm = Block(2, 1).norm1
    # Mean 3, variance 1 (over d = 2, not d − 1), so −1 and 1 up to eps. The second token's variance is eps itself:
    # its root is √(2·eps), and each channel comes out as ±√½.
    quiet = math.sqrt(NORM_EPS)
    x = torch.tensor([[[2.0, 4.0], [-quiet, quiet]]])
    half = math.sqrt(0.5)
    assert_close(norm(x), torch.tensor([[[-1.0, 1.0], [-half, half]]]), rtol=1e-5, atol=1e-5)


def test_a_block_whose_branches_are_silent_is_the_identity():
    block = _shake(Block(DIM, HEADS))
    for layer in (block.attn.proj, block.mlp.fc2):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    x = _tokens()
    assert_close(block(x), x, rtol=0, atol=0)
    assert not torch.allclose(_post_norm(block, x), x, atol=0.1), "post-norm should fail this test"


@pytest.mark.parametrize("name", NORMS)
def test_dead_norms_are_found(name):
    x = _tokens()
    healthy, sick = _shake(Block(DIM, HEADS)), _shake(DeadNormBlock(DIM, HEADS))
    assert norm_is_alive(healthy, name, x)
    assert not norm_is_alive(sick, name, x)
    sick(x).square().sum().backward()
    assert sick.get_submodule(name).weight.grad is None
    assert all(p.grad is not None for key, p in sick.named_parameters() if not key.startswith("norm"))


def test_the_input_is_left_alone():
    block, x = Block(DIM, HEADS, drop=0.5, drop_path=0.5).train(), _tokens()
    kept = x.clone()
    block(x)
    assert torch.equal(x, kept)


# DropPath


@pytest.mark.parametrize("shape", [(64, 3), (64, 5, 3), (64, 2, 3, 4)])
def test_drop_path_equals_torchvision_under_the_same_draws(shape):
    x = _tokens(*shape)
    torch.manual_seed(1)
    expected = stochastic_depth(x, 0.3, mode="row")
    torch.manual_seed(1)
    assert_close(DropPath(0.3)(x), expected)
    assert 0 < (expected == 0).flatten(1).all(1).sum() < len(x)


def test_drop_path_does_nothing_in_evaluation_or_at_zero():
    x = _tokens()
    assert DropPath(0.9).eval()(x) is x
    assert DropPath(0.0).train()(x) is x


def test_block_in_evaluation_ignores_drop_and_drop_path():
    x = _tokens()
    block = Block(DIM, HEADS, drop=0.5, drop_path=0.5).eval()
    plain = Block(DIM, HEADS).eval()
    plain.load_state_dict(block.state_dict())
    assert_close(block(x), plain(x), rtol=0, atol=0)
    assert not torch.equal(block.train()(x), plain(x))


# Bad input


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5])
def test_drop_path_needs_a_probability_below_one(p, no_shape_checks):
    with pytest.raises(ValueError, match=rf"p must be at least 0 and below 1, got {p}"):
        DropPath(p)


def test_mlp_wants_a_width_and_a_known_activation(no_shape_checks):
    with pytest.raises(ValueError, match="hidden_dim must be an int of at least 1, got 0"):
        Mlp(8, 0)
    with pytest.raises(ValueError, match=r"act must be one of gelu, gelu_tanh; got 'relu'"):
        Mlp(DIM, HIDDEN, act="relu")


def test_attn_must_make_a_layer_and_dim_be_divisible_by_heads(no_shape_checks):
    with pytest.raises(ValueError, match=r"attn must be a class or function that makes a module, .*; got Attention"):
        Block(12, 3, attn=Attention(12, 3))
    with pytest.raises(ValueError, match=r"dim 12 is not divisible by num_heads 5"):
        Block(DIM, 5)
