"""The baselines against torch's encoder layer and torchvision's ResNet."""

from dataclasses import replace

import torch
import torchvision
from torch import nn

from vit_tutorial import ViT
from vit_tutorial.recipes import RECIPES
from vit_tutorial.what_matters import ResidualBlock, ResNet, Shuffled, post_norm, resnet_like

CONFIG = replace(RECIPES["digits"].model, embed_dim=12, depth=1, final_norm=False)


def test_post_norm_is_torch_s_encoder_layer():
    model = post_norm(CONFIG)
    dim, heads = CONFIG.embed_dim, CONFIG.num_heads
    layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True)
    block = model.blocks[0]
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = block.state_dict()
    names = {
        "self_attn.in_proj_weight": "attn.qkv.weight",
        "self_attn.in_proj_bias": "attn.qkv.bias",
        "self_attn.out_proj.weight": "attn.proj.weight",
        "self_attn.out_proj.bias": "attn.proj.bias",
        **{f"linear{i}.{part}": f"mlp.fc{i}.{part}" for i in (1, 2) for part in ("weight", "bias")},
        **{f"norm{i}.{part}": f"norm{i}.{part}" for i in (1, 2) for part in ("weight", "bias")},
    }
    layer.load_state_dict({theirs: ours[mine] for theirs, mine in names.items()})
    x = torch.randn(3, 5, dim)
    torch.testing.assert_close(block(x), layer(x), rtol=1e-4, atol=1e-5)
    assert isinstance(model.norm, nn.Identity)
    assert isinstance(post_norm(replace(CONFIG, final_norm=True)).norm, nn.LayerNorm)  # as the config says


def randomise(module: nn.Module) -> nn.Module:
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, mean=float("norm" in name), std=0.3)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            nn.init.uniform_(buffer, 0.5, 1.5)
    return module


def test_residual_block_is_torchvision_s():
    for chans, stride in (((6, 6), 1), ((6, 10), 2)):
        ours = randomise(ResidualBlock(*chans, stride))
        shortcut = nn.Sequential(nn.Conv2d(*chans, 1, stride, bias=False), nn.BatchNorm2d(chans[1]))
        theirs = torchvision.models.resnet.BasicBlock(*chans, stride, shortcut if stride == 2 else None)
        state = {
            key.replace("norm", "bn").replace("shortcut", "downsample"): value
            for key, value in ours.state_dict().items()
        }
        theirs.load_state_dict(state)
        images = torch.randn(3, 6, 9, 7)
        for training in (True, False):
            torch.testing.assert_close(ours.train(training)(images), theirs.train(training)(images))


def test_resnet_takes_any_size_and_halves_it_three_times():
    model = ResNet(in_chans=2, num_classes=7, width=4)
    assert model(torch.randn(3, 2, 17, 30)).shape == (3, 7)
    assert model.blocks(model.stem(torch.randn(3, 2, 16, 32))).shape == (3, 16, 2, 4)


def test_resnet_like_has_nearly_as_many_parameters_as_the_vit_and_no_more():
    for name in ("mnist", "shapes", "cifar10-tiny", "cifar10-small"):
        config = RECIPES[name].model
        torch.manual_seed(3)
        vit, resnet = ViT(config), resnet_like(config)
        ours, theirs = (sum(p.numel() for p in model.parameters()) for model in (vit, resnet))
        assert 0.9 * ours <= theirs <= ours, (name, ours, theirs)


def test_shuffled_images_have_the_same_patches_in_another_order():
    images = torch.arange(2 * 3 * 6 * 8.0).reshape(2, 3, 6, 8)
    got = Shuffled(nn.Identity(), (6, 8), (2, 4))(images)
    pieces = {
        tuple(images[0, :, i : i + 2, j : j + 4].flatten().tolist()): (i, j) for i in range(0, 6, 2) for j in (0, 4)
    }
    places = [pieces[tuple(got[0, :, i : i + 2, j : j + 4].flatten().tolist())] for i in range(0, 6, 2) for j in (0, 4)]
    assert sorted(places) == sorted(pieces.values()) and places != sorted(places)
    torch.testing.assert_close(got[1] - got[0], torch.full_like(got[0], 3 * 6 * 8))  # the same order for both
    again = Shuffled(nn.Identity(), (6, 8), (2, 4))
    assert torch.equal(got, again(images)) and not again.state_dict()
