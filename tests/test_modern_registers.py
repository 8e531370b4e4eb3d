"""Test-time registers: a planted neuron that makes outliers is found, and fires into the register instead."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vit_tutorial import Block, ViT, ViTConfig
from vit_tutorial.modern import ModernViT, SwiGLU, register_neurons, with_test_time_register
from vit_tutorial.modern.registers import move_to_register

CONFIG = ViTConfig(32, 8, num_classes=5, embed_dim=16, depth=4, num_heads=2, pos_embed="none")
PLANTED = (1, 7)


def _model():
    """Neuron 7 of block 1 fires for dark patches, and writes a long vector into their tokens."""
    torch.manual_seed(2)
    model = ViT(CONFIG).eval()
    with torch.no_grad():
        mlp = model.blocks[PLANTED[0]].mlp
        mlp.fc1.weight[PLANTED[1]], mlp.fc1.bias[PLANTED[1]] = 0, -50
        mlp.fc1.weight[PLANTED[1], 0] = 20
        mlp.fc2.weight[:, PLANTED[1]] = 5 * torch.randn(16)
        model.patch_embed.proj.weight *= 0.2
        model.patch_embed.proj.weight[0] = -1 / 100
        for block in model.blocks:
            block.attn.proj.weight *= 0.1
    return model


def _images():
    """Bright noise with one dark patch in each image."""
    images = 0.1 * torch.randn(6, 3, 32, 32)
    for i, image in enumerate(images):
        row, column = divmod(3 * i % 16, 4)
        image[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] -= 1.5
    return images


def _lengths(model, images, block):
    """Of the tokens that leave a block."""
    kept = []
    hook = model.blocks[block].register_forward_hook(lambda part, args, out: kept.append(out.norm(dim=-1)))
    with torch.no_grad():
        model(images)
    hook.remove()
    return kept[0]


def test_moving_by_hand():
    activations = torch.tensor([[[1.0, 5.0], [2.0, -3.0], [4.0, -1.0]]])
    moved = move_to_register(activations, torch.tensor([1]), register=1)
    assert_close(moved, torch.tensor([[[1.0, 0.0], [2.0, 5.0], [4.0, 0.0]]]))
    assert activations[0, 0, 1] == 5


def test_the_planted_neuron_is_found_and_the_model_left_as_it_was():
    model, images = _model(), _images()
    lengths = _lengths(model, images, 2)[:, 1:]
    outliers = (lengths > 3 * lengths.median()).nonzero().tolist()
    assert outliers == [[i, 3 * i % 16] for i in range(6)], "one in each image, in its dark patch"
    assert register_neurons(model, images, block=2, number=3)[0] == PLANTED
    assert not any(part._forward_hooks for block in model.blocks for part in block.modules() if part is not block)


def test_outliers_move_into_the_register():
    model, images = _model(), _images()
    modern = with_test_time_register(model, [PLANTED])
    assert not modern.training
    before, after = _lengths(model, images, 2), _lengths(modern, images, 2)
    register, patches = after[:, 1], after[:, 2:]
    assert (before[:, 1:].amax(dim=1) > 3 * before[:, 1:].median()).all()
    assert (patches.amax(dim=1) < 3 * patches.median()).all()
    assert (register > 3 * patches.median()).all()
    with torch.no_grad():
        assert modern(images).shape == (6, 5)
    other = _lengths(with_test_time_register(model, [(1, 8)]), images, 2)
    assert (other[:, 2:].amax(dim=1) > 3 * other[:, 2:].median()).all(), "the wrong neuron should leave them"


def test_without_neurons_it_is_a_register_of_zeros():
    model, images = _model(), _images()
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 0.1
    ours = ModernViT(CONFIG, reg_tokens=1)
    ours.load_state_dict(model.state_dict() | {"reg_token": torch.zeros(1, 1, 16)})
    for part in ours.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 0.1
    with torch.no_grad():
        assert_close(with_test_time_register(model, [])(images), ours(images), rtol=0, atol=0)


def test_errors_state_the_numbers_and_the_rule(no_shape_checks):
    model, images = _model(), _images()
    with pytest.raises(ValueError, match=r"behind block 0 no patch is more than 50 times as long .* longest is \d"):
        register_neurons(model, images, block=0, number=1, threshold=50)
    with pytest.raises(ValueError, match="there is no block 4: the model has blocks 0 to 3"):
        register_neurons(model, images, block=4, number=1)
    with pytest.raises(ValueError, match=r"there is no neuron \(1, 64\) in 4 blocks of 64 neurons"):
        with_test_time_register(model, [(1, 64)])
    with pytest.raises(ValueError, match="a test-time register is for a plain ViT, got ModernViT"):
        with_test_time_register(ModernViT(CONFIG, block=Block), [])
    model.blocks[0].mlp = SwiGLU(16, 8)
    with pytest.raises(ValueError, match="the MLP of block 0, a SwiGLU, has no part called act"):
        register_neurons(model, images, block=1, number=1)
