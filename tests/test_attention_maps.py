"""Recorded maps against the manual path and other libraries; rollout and distance against cases done by hand."""

import warnings

import pytest
import timm
import torch
import torchvision
from pretended_gpu import pretended_gpu
from torch import nn

from vit_tutorial import ViT, ViTConfig, attention_weights, plain_attention
from vit_tutorial.attention_maps import (
    attention_distance,
    attention_gradients,
    attention_map,
    attention_rollout,
    gradient_rollout,
    record_attention,
)

# Unequal everywhere, so that a swapped axis shows: 3×5 patches, 2 heads, 3 layers.
SIZES = {"img_size": (12, 10), "patch_size": (4, 2), "num_classes": 7, "embed_dim": 16, "depth": 3, "num_heads": 2}


def lively(model: nn.Module) -> nn.Module:
    """All weights drawn large enough that maps are far from uniform, and none is zero."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def make(**changes) -> tuple[ViT, torch.Tensor]:
    config = ViTConfig(**{**SIZES, **changes})
    return lively(ViT(config)), torch.randn(4, config.in_chans, *config.img_size)


def no_hooks(model: nn.Module) -> bool:
    return not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())


# record_attention -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_maps_of_the_fused_path_are_those_of_the_manual_one(pool):
    model, images = make(pool=pool)
    seen = []

    def visible(q, k, v):
        seen.append(attention_weights(q, k))
        return plain_attention(q, k, v)

    manual = ViT(model.config, attend=visible).eval()
    manual.load_state_dict(model.state_dict())
    manual(images)
    with record_attention(model) as maps:
        model(images)
    assert [tuple(weights.shape) for weights in maps] == [(4, 2, model.config.num_tokens, model.config.num_tokens)] * 3
    torch.testing.assert_close(maps, seen, rtol=0, atol=1e-5)
    assert maps[0].std() > 0.01 and not maps[0].requires_grad


def test_the_model_is_the_same_before_within_and_after():
    model, images = make()
    keys = set(model.state_dict())
    before = model(images)
    with record_attention(model):
        within = model(images)
    assert torch.equal(before, within) and torch.equal(before, model(images))
    assert (
        no_hooks(model)
        and set(model.state_dict()) == keys
        and set(vars(model.blocks[0].attn)) == set(vars(ViT(model.config).blocks[0].attn))
    )


def test_no_hook_is_left_after_an_exception():
    model, images = make()
    with pytest.raises(ZeroDivisionError), record_attention(model):
        model(images)
        raise ZeroDivisionError
    assert no_hooks(model)


def test_a_second_pass_replaces_the_first():
    model, images = make()
    with record_attention(model) as maps:
        model(images)
        first = list(maps)
        model(images[:2])
    assert [len(weights) for weights in maps] == [2, 2, 2]
    torch.testing.assert_close(maps, [weights[:2] for weights in first])


def test_scores_that_half_precision_cannot_hold_are_told():
    model, images = make()
    with torch.no_grad():
        model.blocks[1].attn.qkv.bias[:32] = 300.0  # queries and keys; a head is 8 wide: 8 · 300² / √8 is 254,558
    model, images = model.half(), images.half()
    told = r"beyond 65,504 don't fit torch\.float16, so the maps of layers 1 hold NaN"
    with pytest.warns(UserWarning, match=told), record_attention(model) as maps:
        logits = model(images)
    assert logits.isfinite().all() and [weights.isnan().any().item() for weights in maps] == [False, True, False]
    with warnings.catch_warnings(), record_attention(model.float()) as maps:
        warnings.simplefilter("error")
        model(images.float())
    assert all(weights.isfinite().all() for weights in maps)


def test_a_compiled_model_is_refused(no_shape_checks):
    model, images = make()
    model.compile(backend="eager")
    model(images)
    with pytest.raises(ValueError, match="compiled model runs no hooks"), record_attention(model):
        model(images)
    assert no_hooks(model)


def test_a_context_without_a_forward_pass_raises():
    model, _ = make()
    with pytest.raises(RuntimeError, match="nothing was recorded: call the model within"), record_attention(model):
        pass
    assert no_hooks(model)


def test_a_model_without_known_attention_is_refused():
    beit = timm.models.beit.Beit(img_size=16, patch_size=8, embed_dim=12, depth=1, num_heads=3)  # not a ViT's layers
    for model in (nn.Linear(2, 2), beit):
        with pytest.raises(ValueError, match=f"{type(model).__name__} has no attention"), record_attention(model):
            pass


def test_timm_model():
    other = lively(
        timm.models.VisionTransformer(
            img_size=(12, 10), patch_size=(4, 2), num_classes=7, embed_dim=16, depth=3, num_heads=2
        )
    )
    model, images = make()
    model.load_state_dict(other.state_dict())
    with record_attention(model) as ours, record_attention(other) as theirs:
        before = other(images)
        model(images)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    assert torch.equal(before, other(images))


def test_torchvision_model():
    other = lively(
        torchvision.models.VisionTransformer(
            image_size=12, patch_size=4, num_layers=3, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=7
        )
    )
    images, seen = torch.randn(4, 3, 12, 12), []

    def ask(module, inputs, output):  # MultiheadAttention's own weights, on the same input
        x = inputs[0]
        seen.append(nn.MultiheadAttention.forward(module, x, x, x, need_weights=True, average_attn_weights=False)[1])

    for layer in other.encoder.layers:
        layer.self_attention.register_forward_hook(ask)
    before = other(images)
    seen.clear()
    with record_attention(other) as maps:
        within = other(images)
    assert torch.equal(before, within)
    torch.testing.assert_close(maps, seen, rtol=0, atol=1e-5)


# attention_map --------------------------------------------------------------------------------------------------


def test_map_of_the_class_token_by_hand():
    config = ViTConfig(**SIZES)
    weights = torch.arange(2 * 3 * 16 * 16.0).reshape(2, 3, 16, 16)
    got = attention_map(weights, config)
    assert got.shape == (2, 3, 3, 5)
    assert got[0, 0].tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15]]


def test_map_of_a_patch_by_hand():
    weights = torch.arange(16 * 16.0).reshape(16, 16)
    got = attention_map(weights, ViTConfig(**SIZES), query=(2, 1))  # token 1 + 2·5 + 1 = 12
    assert got[0].tolist() == [12 * 16 + i for i in (1, 2, 3, 4, 5)]


def test_map_of_a_mean_pool_model_is_the_mean_over_patches():
    config = ViTConfig(**{**SIZES, "pool": "mean"})
    weights = torch.rand(2, 15, 15)
    want = torch.stack([weights[:, i] for i in range(15)]).mean(0).reshape(2, 3, 5)
    torch.testing.assert_close(attention_map(weights, config), want)


@pytest.mark.parametrize(("tokens", "pool"), [(15, "cls"), (16, "mean"), (50, "cls")])
def test_maps_of_another_model_are_refused(tokens, pool):
    config = ViTConfig(**{**SIZES, "pool": pool})
    prefix = "a class token and a grid" if pool == "cls" else "a grid"
    with pytest.raises(ValueError, match=f"maps are of {tokens} tokens, the config has .*: {prefix} of 3×5 patches"):
        attention_map(torch.rand(1, tokens, tokens), config)
    with pytest.raises(ValueError, match=f"maps are of {tokens} tokens"):
        attention_distance(torch.rand(1, 2, tokens, tokens), config)


# Rollout --------------------------------------------------------------------------------------------------------


def test_rollout_by_hand():
    """Two layers, three tokens, one head; (A + I) / 2, second times first."""
    first = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0, 1]])
    second = torch.tensor([[0.0, 1, 0], [0, 1, 0], [0.5, 0, 0.5]])
    # halves: first [[1, 0, 0], [.25, .75, 0], [0, 0, 1]], second [[.5, .5, 0], [0, 1, 0], [.25, 0, .75]]
    want = torch.tensor([[[0.625, 0.375, 0], [0.25, 0.75, 0], [0.25, 0, 0.75]]])
    torch.testing.assert_close(attention_rollout([first[None, None], second[None, None]]), want)


def test_rollout_of_a_batch_keeps_rows_and_inputs():
    maps = [torch.rand(3, heads, 5, 5).softmax(-1) for heads in (2, 2, 2, 2)]
    kept = [weights.clone() for weights in maps]
    got = attention_rollout(maps)
    assert got.shape == (3, 5, 5)
    torch.testing.assert_close(got.sum(-1), torch.ones(3, 5))
    torch.testing.assert_close(got[1:2], attention_rollout([weights[1:2] for weights in maps]))
    assert all(torch.equal(a, b) for a, b in zip(maps, kept, strict=True))
    wrong_order = attention_rollout(maps[::-1])
    assert not torch.allclose(got, wrong_order)


MAP = torch.rand(1, 2, 5, 5)
REFUSED = {
    r"query \(0, 5\) is outside the grid of 3×5 patches": lambda: attention_map(
        torch.rand(16, 16), ViTConfig(**SIZES), query=(0, 5)
    ),
    r"maps must be a list of \(b, h, n, n\) in floating point, got torch\.int64": lambda: gradient_rollout(
        [MAP.long()], [MAP]
    ),
    "no maps": lambda: attention_rollout([]),
    r"layer 0 is \(1, 2, 5, 5\), layer 1 \(1, 2, 6, 6\)": lambda: attention_rollout([MAP, torch.rand(1, 2, 6, 6)]),
    r"a list of \(b, h, n, n\) in floating point, got .* of \(1, 5, 5\)": lambda: attention_rollout([MAP, MAP.mean(1)]),
    r"a list of \(b, h, n, n\) .*, got .* of \(1, 2, 4, 5\)": lambda: attention_rollout([MAP[:, :, :4]]),
    "3 layers of maps, and 2 of gradients": lambda: gradient_rollout([MAP] * 3, [MAP] * 2),
    "different models": lambda: gradient_rollout([MAP], [torch.rand(1, 2, 6, 6)]),
    "must be vit_tutorial's ViT, got Linear": lambda: attention_gradients(nn.Linear(3, 2), torch.randn(1, 3, 4, 6)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused(message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_gradients_are_autograd_s_on_the_manual_path(pool):
    model, images = make(pool=pool)
    matrices = []

    def visible(q, k, v):
        weights = attention_weights(q, k)
        weights.retain_grad()
        matrices.append(weights)
        return weights @ v

    manual = ViT(model.config, attend=visible).eval()
    manual.load_state_dict(model.state_dict())
    classes = torch.tensor([3, 0, 6, 1])
    manual(images)[torch.arange(4), classes].sum().backward()
    model.requires_grad_(False)
    with torch.no_grad():
        maps, gradients = attention_gradients(model, images, classes)
    torch.testing.assert_close(maps, [weights.detach() for weights in matrices], rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients, [weights.grad for weights in matrices], rtol=1e-4, atol=1e-5)
    assert no_hooks(model) and not images.requires_grad


def test_gradients_are_of_the_predicted_class_unless_told_and_leave_the_model_alone():
    model, images = make()
    predicted = attention_gradients(model, images)[1]
    torch.testing.assert_close(predicted, attention_gradients(model, images, model(images).argmax(1))[1])
    assert not torch.allclose(predicted[0], attention_gradients(model, images, model(images).argmin(1))[1][0])
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([1], r"4 images need 4 rows of class indices, got shape \(1,\)"),  # not a gradient of 0 for the others
        ([0, -1, 1, 2], "there is no class -1: class indices are 0 to 6"),
    ],
)
def test_classes_that_do_not_fit_are_refused(classes, message, no_shape_checks):
    model, images = make()
    with pytest.raises(ValueError, match=message):
        attention_gradients(model, images, torch.tensor(classes))
    assert no_hooks(model)


def test_gradient_rollout_by_hand():
    """One image, two heads, two tokens, two layers."""
    first = torch.tensor([[[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.5, 0.5]]]])
    up = torch.tensor([[[[2.0, 4.0], [1.0, -3.0]], [[-1.0, 5.0], [2.0, 4.0]]]])
    # products, negatives gone: [[1, 2], [0, 0]] and [[0, 0], [1, 2]]; mean [[.5, 1], [.5, 1]]
    after_one = torch.tensor([[[1.5, 1.0], [0.5, 2.0]]])
    torch.testing.assert_close(gradient_rollout([first], [up]), after_one)
    mean = torch.tensor([[0.5, 1.0], [0.5, 1.0]])
    torch.testing.assert_close(gradient_rollout([first, first], [up, up]), after_one + mean @ after_one)


# attention_distance ---------------------------------------------------------------------------------------------


def test_distance_by_hand():
    """Patches of 3×4 pixels in a row of two: from each centre to the other it is 4 pixels."""
    config = ViTConfig(img_size=(3, 8), patch_size=(3, 4), num_classes=2, embed_dim=8, depth=1, num_heads=2)
    stay = torch.eye(3).expand(1, 3, 3)
    # The class token takes half of each row and does not count; of the rest a quarter goes to the other patch.
    part = torch.tensor([[1.0, 0, 0], [0.5, 0.375, 0.125], [0.5, 0.125, 0.375]])[None]
    got = attention_distance(torch.stack([stay, part], dim=1), config)
    torch.testing.assert_close(got, torch.tensor([[0.0, 1.0]]))


def test_distance_on_a_rectangle_is_the_sum_written_out():
    config = ViTConfig(**{**SIZES, "pool": "mean"})
    weights = torch.rand(2, 2, 15, 15).softmax(-1)
    want = torch.zeros(2, 2)
    for i in range(15):
        for j in range(15):
            down, right = 4 * (i // 5 - j // 5), 2 * (i % 5 - j % 5)
            want += weights[:, :, i, j] * (down**2 + right**2) ** 0.5 / 15
    torch.testing.assert_close(attention_distance(weights, config), want)


# Contexts and devices --------------------------------------------------------------------------------------------


def test_gradients_in_inference_mode_and_of_what_was_made_in_it():
    model, images = make()
    classes = torch.arange(4)
    wanted = attention_gradients(model, images, classes)
    with torch.inference_mode():
        torch.testing.assert_close(attention_gradients(model, images, classes), wanted)
        made = images.clone(), classes.clone()
        late = make()[0]
    torch.testing.assert_close(attention_gradients(model, *made), wanted)
    with pytest.raises(ValueError, match=r"this ViT was made under torch.inference_mode\(\), so it has no gradients"):
        attention_gradients(late, images)


def test_classes_may_be_on_another_device():
    model, images = make()
    classes = torch.arange(4)
    wanted = attention_gradients(model, images, classes)
    with pretended_gpu():
        got = [[away.cpu() for away in part] for part in attention_gradients(model.cuda(), images.cuda(), classes)]
    torch.testing.assert_close(got, list(wanted))
