"""A config that exists fits together; one that does not says why."""

import dataclasses

import pytest

from vit_tutorial import ViTConfig


def test_a_rectangle_counted_by_hand():
    config = ViTConfig(img_size=(28, 56), patch_size=(4, 8), embed_dim=24, num_heads=3)
    assert config.grid_size == (7, 7)
    assert config.num_patches == 49
    assert config.num_tokens == 50
    assert config.head_dim == 8
    assert dataclasses.replace(config, pool="mean").num_tokens == 49


def test_int_sizes_become_pairs():
    assert ViTConfig(img_size=32, patch_size=4) == ViTConfig(img_size=(32, 32), patch_size=(4, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"img_size": 30, "patch_size": 4}, "img_size height 30 is not divisible by patch_size height 4"),
        ({"patch_size": 0}, "patch_size must be a positive int or a pair .*, got 0"),
        ({"img_size": (32, 32, 3)}, r"img_size must be .* got \(32, 32, 3\)"),
        ({"embed_dim": 100, "num_heads": 12}, "embed_dim 100 is not divisible by num_heads 12"),
        ({"depth": 0}, "depth must be an int of at least 1, got 0"),
        ({"depth": True}, "depth must be an int of at least 1, got True"),
        ({"qkv_bias": "no"}, "qkv_bias must be True or False, got 'no'"),
        ({"mlp_ratio": float("nan")}, "mlp_ratio must be a finite number of at least 0, got nan"),
        ({"mlp_ratio": 0.0}, "embed_dim 768 times mlp_ratio 0.0 must be at least 1"),
        ({"embed_dim": 9, "num_heads": 3, "pos_embed": "sincos_2d"}, "embed_dim 9 is not divisible by .* 4"),
        ({"pos_embed": "sinus"}, "pos_embed must be one of learned, sincos_1d, sincos_2d, none; got 'sinus'"),
        ({"drop_rate": 1.0}, "drop_rate must be at least 0 and below 1, got 1.0"),
    ],
)
def test_bad_config_states_the_values_and_the_rule(arguments, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        ViTConfig(**arguments)
