"""Attention: by hand, against PyTorch and timm, and the wrong variants that must not pass for it."""

import math

import pytest
import timm.layers
import torch
import torch.nn.functional as F
from torch import nn

from vit_tutorial.attention import (
    Attention,
    PerHeadAttention,
    attention_weights,
    fuse_heads,
    fused_attention,
    plain_attention,
)

# Batch, tokens, heads and head_dim all differ, so that no two axes can be swapped unnoticed.
B, N, H, HD = 2, 5, 3, 4
DIM = H * HD


def random_qkv(n: int = N, m: int = N, hd: int = HD) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(B, H, n, hd), torch.randn(B, H, m, hd), torch.randn(B, H, m, hd)


def cosine_attention(q, k, v):
    return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(dim=-1) @ v


def as_torch(ours: Attention) -> nn.MultiheadAttention:
    """PyTorch's own layer with our weights."""
    dim, has_bias = ours.proj.in_features, ours.qkv.bias is not None
    theirs = nn.MultiheadAttention(dim, ours.num_heads, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias if has_bias else torch.zeros(3 * dim))
        theirs.out_proj.load_state_dict(ours.proj.state_dict())
    return theirs


# By hand


def test_three_tokens_with_a_pencil():
    # In units of ln 2 each e^score is a power of 2. Scores over √4: (2, 1, 1), (0, 0, 1), (1, 1, 1).
    q = math.log(2) * torch.tensor([[2.0, 0, 0, 2], [0, 0, 2, 0], [0, 0, 0, 2]])
    k = torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]])
    v = torch.tensor([[12.0, 0], [0, 12], [0, 0]])
    weights = torch.tensor([[1 / 2, 1 / 4, 1 / 4], [1 / 4, 1 / 4, 1 / 2], [1 / 3, 1 / 3, 1 / 3]])
    out = torch.tensor([[6.0, 3], [3, 3], [4, 4]])
    torch.testing.assert_close(attention_weights(q, k), weights)
    torch.testing.assert_close(plain_attention(q, k, v), out)
    torch.testing.assert_close(fused_attention(q[None], k[None], v[None])[0], out)


def test_a_layer_whose_heads_only_copy_gives_the_mean_of_the_tokens():
    layer = Attention(DIM, H)
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([torch.zeros(2 * DIM, DIM), torch.eye(DIM)]))  # all scores are 0
        layer.qkv.bias.zero_()
        layer.proj.weight.copy_(torch.eye(DIM))
        layer.proj.bias.zero_()
    x = torch.randn(B, N, DIM)
    torch.testing.assert_close(layer(x), x.mean(dim=1, keepdim=True).expand(B, N, DIM))


# Against PyTorch and timm


@pytest.mark.parametrize("m", [N, 7])
def test_attention_is_pytorchs(m):
    q, k, v = random_qkv(m=m)
    truth = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(plain_attention(q, k, v), truth)
    torch.testing.assert_close(fused_attention(q, k, v), truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_fused_attention_is_the_kernel_and_plain_attention_the_formula(dtype):
    """Bit by bit, so that a comparison of the two measures what its labels say; and the two agree."""
    q, k, v = (part.to(dtype) for part in random_qkv(m=7))
    kernel, formula = fused_attention(q, k, v), plain_attention(q, k, v)
    assert torch.equal(kernel, F.scaled_dot_product_attention(q, k, v))
    assert torch.equal(formula, ((q * HD**-0.5) @ k.mT).softmax(dim=-1) @ v)
    assert kernel.dtype == formula.dtype == dtype and not torch.equal(kernel, formula)
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-5  # 8 bits of a number
    torch.testing.assert_close(kernel, formula, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("score", [12_800, 60_000])
def test_half_precision_holds_every_score_that_it_can_hold(score):
    """The product before the root is 8 times as large, and 65,504 is the largest float16."""
    q = torch.tensor([[1.0], [-1.0]]).expand(2, 64) * (score / 8) ** 0.5
    q, k = q.half(), q[:1].expand(3, 64).half()
    weights = attention_weights(q, k)
    assert ((q @ k.mT) * 64**-0.5).softmax(dim=-1).isnan().any(), "the other order would do, too"
    torch.testing.assert_close(weights, torch.full((2, 3), 1 / 3).half())
    values = torch.randn(3, 64).half()
    torch.testing.assert_close(plain_attention(q, k, values), fused_attention(q, k, values), rtol=1e-2, atol=1e-2)


def test_weights_are_what_the_kernel_gives_for_the_identity():
    q, k, _ = random_qkv(m=7)
    torch.testing.assert_close(attention_weights(q, k), fused_attention(q, k, torch.eye(7).expand(B, H, 7, 7)))


@pytest.mark.parametrize("attend", [plain_attention, fused_attention])
@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize(("n", "dim", "num_heads"), [(5, 12, 3), (7, 10, 1), (3, 6, 6), (1, 8, 2)])
def test_layer_is_pytorchs(n, dim, num_heads, qkv_bias, attend):
    layer = Attention(dim, num_heads, qkv_bias=qkv_bias, attend=attend)
    x = torch.randn(B, n, dim)
    truth, weights = as_torch(layer)(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(layer(x), truth)
    torch.testing.assert_close(layer.weights(x), weights)


def test_gradients_are_pytorchs():
    layer = Attention(DIM, H)
    theirs = as_torch(layer)
    x, target = torch.randn(B, N, DIM), torch.randn(B, N, DIM)
    F.mse_loss(layer(x), target).backward()
    F.mse_loss(theirs(x, x, x)[0], target).backward()
    torch.testing.assert_close(layer.qkv.weight.grad, theirs.in_proj_weight.grad)
    torch.testing.assert_close(layer.qkv.bias.grad, theirs.in_proj_bias.grad)
    torch.testing.assert_close(layer.proj.weight.grad, theirs.out_proj.weight.grad)


@pytest.mark.parametrize("qkv_bias", [True, False])
def test_timms_weights_load_strictly(qkv_bias):
    theirs = timm.layers.Attention(DIM, num_heads=H, qkv_bias=qkv_bias)
    ours = Attention(DIM, H, qkv_bias=qkv_bias)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(B, N, DIM)
    torch.testing.assert_close(ours(x), theirs(x))


# One loop, one matrix


@pytest.mark.parametrize("attend", [plain_attention, fused_attention, cosine_attention])
@pytest.mark.parametrize("qkv_bias", [True, False])
def test_fused_heads_are_the_loop_over_heads(qkv_bias, attend):
    per_head = PerHeadAttention(DIM, H, qkv_bias=qkv_bias, attend=attend)
    x = torch.randn(B, N, DIM)
    torch.testing.assert_close(fuse_heads(per_head, attend=attend)(x), per_head(x))


def test_fusing_keeps_dtype_mode_and_dropout():
    per_head = PerHeadAttention(DIM, H, drop=0.25).double().eval()
    fused = fuse_heads(per_head)
    assert fused.qkv.weight.dtype == torch.float64
    assert not fused.training
    assert fused.drop.p == 0.25


# What weights must be


def test_rows_sum_to_one_and_reproduce_forward():
    layer = Attention(DIM, H)
    x = torch.randn(B, N, DIM)
    weights = layer.weights(x)
    assert weights.shape == (B, H, N, N)
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, H, N))
    assert not torch.allclose(weights.sum(dim=-2), torch.ones(B, H, N))
    _, _, v = layer.project(x)
    out = torch.cat([weights[:, i] @ v[:, i] for i in range(H)], dim=-1)
    torch.testing.assert_close(layer.proj(out), layer(x))


def test_scale_keeps_the_variance_of_scores():
    for hd in (4, 64, 1024):
        q, k, _ = random_qkv(n=200, m=200, hd=hd)
        scores = attention_weights(q, k).log()  # softmax is undone up to one number for each row
        spread = (scores - scores.mean(dim=-1, keepdim=True)).var()
        assert 0.8 < spread < 1.2, f"head_dim {hd}: variance {spread}"


@pytest.mark.parametrize("make", [PerHeadAttention, Attention])
def test_images_of_a_batch_do_not_meet(make):
    layer = make(DIM, H)
    x = torch.randn(3, N, DIM)
    alone = torch.cat([layer(row[None]) for row in x])
    torch.testing.assert_close(layer(x), alone)


def test_drop_acts_in_training_only():
    layer = Attention(DIM, H, drop=0.5)
    x = torch.randn(B, N, DIM)
    assert (layer(x) == 0).any()
    assert not (layer.eval()(x) == 0).any()


# Wrong answers that must be caught


def test_forgotten_batch_first_is_another_function():
    layer = Attention(DIM, H)
    sick = as_torch(layer)
    sick.batch_first = False
    x = torch.randn(3, N, DIM)
    other = x.clone()
    other[1] += 1
    assert not torch.allclose(sick(x, x, x)[0][0], sick(other, other, other)[0][0])
    torch.testing.assert_close(layer(x)[0], layer(other)[0])


def test_scaling_by_the_whole_width_is_another_function():
    q, k, v = random_qkv()
    wrong = (q @ k.mT / DIM**0.5).softmax(dim=-1) @ v
    assert not torch.allclose(wrong, plain_attention(q, k, v), atol=1e-2)
    # It is attention with queries that are √num_heads too small: why a network can train around it.
    torch.testing.assert_close(wrong, plain_attention(q / H**0.5, k, v))


def test_heads_on_slices_are_another_function():
    layer = Attention(DIM, H, qkv_bias=False)
    x = torch.randn(B, N, DIM)
    block = torch.block_diag(*torch.ones(H, HD, HD)).repeat(3, 1)
    sliced = Attention(DIM, H, qkv_bias=False)
    sliced.load_state_dict(layer.state_dict() | {"qkv.weight": layer.qkv.weight * block})
    other = x.clone()
    other[..., :HD] += 1  # what head 0 is fed

    def reaches_last_head(layer):
        return not torch.allclose(layer.project(x)[:, :, -1], layer.project(other)[:, :, -1])

    assert reaches_last_head(layer)
    assert not reaches_last_head(sliced)


# Bad input


@pytest.mark.parametrize("make", [PerHeadAttention, Attention])
def test_dim_not_divisible_by_heads(make):
    with pytest.raises(ValueError, match="dim 10 is not divisible by num_heads 3"):
        make(10, 3)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("attend", [lambda q, k, v: attention_weights(q, k), plain_attention, fused_attention])
def test_queries_and_keys_of_different_width(attend):
    with pytest.raises(ValueError, match="head_dim of q, 4, and of k, 6, must be equal"):
        attend(torch.randn(5, 4), torch.randn(5, 6), torch.randn(5, 4))


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("attend", [plain_attention, fused_attention])
@pytest.mark.parametrize("m", [1, 4, 6, 2000])
def test_keys_and_values_of_different_number(attend, m):
    with pytest.raises(ValueError, match=f"the number of keys, 5, and of values, {m}, must be equal"):
        attend(torch.randn(2, 7, 8), torch.randn(2, 5, 8), torch.randn(2, m, 8))
