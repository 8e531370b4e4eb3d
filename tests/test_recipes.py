"""Recipes are complete: each builds its model and finds its data, and reproductions match their tutorials."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from fake_data import write_image, write_tree
from torch import nn

from vit_tutorial.archs import ARCHS
from vit_tutorial.metrics import recipe_from_dict
from vit_tutorial.recipes import RECIPES, fit_to_data, load_images, load_split, make_model
from vit_tutorial.training import loss_of, make_optimizer, to_input


@pytest.mark.parametrize("name", RECIPES)
def test_each_recipe_takes_a_step(name):
    recipe = RECIPES[name]
    recipe = replace(recipe, model=replace(recipe.model, num_classes=10))  # photos takes it from its data
    model = make_model(recipe)
    images = torch.randint(256, (4, recipe.model.in_chans, *recipe.model.img_size), dtype=torch.uint8)
    loss = loss_of(model(to_input(images, recipe)), torch.eye(10)[:4], recipe)
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_seed_determines_the_weights():
    for name in ("mnist-published", "digits"):
        one, again, other = (make_model(replace(RECIPES[name], seed=seed)) for seed in (3, 3, 4))
        for key, value in one.state_dict().items():
            assert torch.equal(value, again.state_dict()[key]), key
        assert not torch.equal(one.blocks[0].attn.qkv.weight, other.blocks[0].attn.qkv.weight)


def test_torch_init_is_the_default_of_plain_layers():
    # Uniform within ±1/√fan_in for weights and biases, nn.Linear's and nn.Conv2d's own rule; the class token N(0, 1).
    model = make_model(RECIPES["mnist-published"])
    layers = {"patch_embed.proj": 256, "blocks.0.attn.qkv": 9, "blocks.2.mlp.fc2": 36, "head": 9}
    for name, fan_in in layers.items():
        layer = model.get_submodule(name)
        for values in (layer.weight, layer.bias):
            assert values.abs().max() <= fan_in**-0.5
        assert layer.weight.abs().max() > 0.9 * fan_in**-0.5
    tokens = [make_model(replace(RECIPES["mnist-published"], seed=seed)).cls_token for seed in range(30)]
    assert 0.8 < torch.cat(tokens).std() < 1.2


def test_normal_init_is_the_first_cifar_tutorial_s_rule():
    # From its script: matrices, kernel, class token and positions with std 0.02, biases 0, norms by default.
    model = make_model(RECIPES["cifar10-tiny-published"])
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if name.endswith("bias"):
            assert not values.any(), name
        elif "norm" in name:
            assert (values == 1).all(), name
        else:
            assert abs(values.mean()) < 6 * 0.02 / values.numel() ** 0.5, name
            assert abs(values.std() / 0.02 - 1) < 5 / (2 * values.numel()) ** 0.5, name


def test_the_second_cifar_tutorial_starts_tokens_and_positions_at_zero():
    recipe = RECIPES["cifar10-small-published"]
    model, plain = make_model(recipe), make_model(replace(recipe, init="torch"))
    assert not model.cls_token.any() and not model.pos_embed.any()
    assert plain.cls_token.any() and plain.pos_embed.any()
    weight = model.blocks[5].mlp.fc2.weight
    assert torch.equal(weight, plain.blocks[5].mlp.fc2.weight) and weight.abs().max() <= (4 * 192) ** -0.5


def test_mimetic_init_has_the_two_products_of_its_paper():
    # Trockman and Kolter 2023: queries times keys near 0.7 (Z + I), as far as a head's rank goes, values times output
    # near 0.4 (Z - I), with Z normal of variance 1/d.
    model, other = (make_model(replace(RECIPES["cifar10-small"], seed=seed)) for seed in (0, 1))
    dim, heads = 192, 3
    for block in model.blocks:
        query, key, value = block.attn.qkv.weight.detach().chunk(3)
        out = block.attn.proj.weight.detach() @ value
        noise = out / 0.4 + torch.eye(dim)
        assert abs(noise.std() * dim**0.5 - 1) < 0.03 and abs(noise.mean()) < 0.01
        assert abs(noise.diagonal().mean()) < 0.03
        for q, k in zip(query.chunk(heads), key.chunk(heads), strict=True):
            product = q.T @ k
            diagonal = product.diagonal().mean()
            assert diagonal > 0.25 and abs(product.mean() - diagonal / dim) < 0.01
            values = torch.linalg.svdvals(product)[: dim // heads]
            # The strongest of 0.7 (Z + I): free probability puts the largest singular value near 0.7 · 2.6.
            assert 1.6 < values[0] < 2.0 and values[-1] > 1.0
            torch.testing.assert_close(torch.linalg.svdvals(q), torch.linalg.svdvals(k), rtol=1e-3, atol=1e-4)
    first, second = (m.blocks[0].attn.qkv.weight[:64] for m in (model, other))
    assert not torch.allclose(first, second)
    assert not model.blocks[0].attn.qkv.bias.any() and not model.blocks[0].attn.proj.bias.any()


@pytest.mark.parametrize("init", ["torch", "torch_zeros", "normal", "mimetic"])
def test_every_init_takes_a_model_without_a_class_token(init):
    recipe = replace(RECIPES["digits"], init=init, model=replace(RECIPES["digits"].model, pool="mean"))
    assert make_model(recipe).cls_token is None


class TutorialHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(9, 3) for _ in range(3))


def test_the_published_recipe_is_the_tutorial():
    # Counted from the article: patch projection, class token, three blocks of three heads, classifier; no final norm.
    head = sum(p.numel() for p in TutorialHead().parameters())
    block = 3 * head + (9 * 9 + 9) + (9 * 36 + 36) + (36 * 9 + 9) + 2 * (9 + 9)
    assert (
        sum(p.numel() for p in make_model(RECIPES["mnist-published"]).parameters())
        == 265 * 9 - 72 + 9 + 3 * block + 100
    )
    recipe = RECIPES["mnist-published"]
    assert (recipe.optimizer, recipe.lr, recipe.schedule, recipe.epochs, recipe.batch_size) == (
        "adam", 5e-3, "constant", 5, 128,
    )  # fmt: skip
    assert (recipe.weight_decay, recipe.clip_grad, recipe.label_smoothing, recipe.ema) == (0, 0, 0, 0)
    assert recipe.arch == "softmax-head"
    white = torch.full((1, 1, 32, 32), 255, dtype=torch.uint8)
    assert to_input(white, recipe).unique().tolist() == [1.0]


def test_resizing_matches_pillow():
    import numpy as np
    from PIL import Image

    recipe = RECIPES["digits"]
    small = load_split(recipe, "val").images[:5]
    ours = load_split(replace(recipe, model=replace(recipe.model, img_size=(10, 14))), "val").images[:5]
    theirs = [
        np.array(Image.fromarray(image[0].numpy()).resize((14, 10), Image.Resampling.BILINEAR)) for image in small
    ]
    difference = ours[:, 0].int() - torch.from_numpy(np.stack(theirs)).int()
    assert difference.abs().max() <= 1  # one step of 255: they round differently


@pytest.mark.parametrize(("field", "value", "need"), [("num_classes", 7, 10), ("in_chans", 3, 1)])
def test_a_model_that_does_not_fit_the_data(field, value, need):
    recipe = replace(RECIPES["digits"], model=replace(RECIPES["digits"].model, **{field: value}))
    with pytest.raises(ValueError, match=f"digits needs model.{field} {need}, the recipe has {value}"):
        load_split(recipe, "val")


def test_decay_all_decays_all():
    for optimizer in ("adamw", "muon"):
        for decay_all, amounts in ((False, {0.0, 0.01}), (True, {0.01})):
            recipe = replace(RECIPES["cifar10-tiny"], optimizer=optimizer, decay_all=decay_all)
            groups = make_optimizer(make_model(recipe), recipe).param_groups
            assert {group["weight_decay"] for group in groups} == amounts
            assert sum(len(group["params"]) for group in groups) == len(list(make_model(recipe).parameters()))


def test_the_cifar10_tutorials_and_ours_have_the_same_models_and_epochs():
    for size, parameters in (("tiny", 118_000), ("small", 2_695_000)):
        published, ours = RECIPES[f"cifar10-{size}-published"], RECIPES[f"cifar10-{size}"]
        assert published.epochs == ours.epochs
        assert replace(published.model, final_norm=True) == ours.model
        count = sum(p.numel() for p in make_model(published).parameters())
        assert abs(count / parameters - 1) < 0.02, count


def test_a_fraction_of_the_images_takes_as_many_steps():
    whole = load_split(RECIPES["digits"], "train")
    part = load_split(replace(RECIPES["digits"], fraction=0.03), "train")
    assert len(part) == len(whole) == 1257
    rows, times = part.images.flatten(1).unique(dim=0, return_counts=True)
    assert len(rows) == 38  # 3 % of 1,257; how often each is repeated differs by one at most
    assert times.max() - times.min() <= 1
    inside = {bytes(image.flatten().tolist()) for image in whole.images}
    assert all(bytes(row.tolist()) in inside for row in rows)
    other = load_split(replace(RECIPES["digits"], fraction=0.03, seed=1), "train")
    assert not torch.equal(part.images, other.images)
    assert len(load_split(replace(RECIPES["digits"], fraction=0.03), "val")) == 180


def test_a_short_try_takes_some_images_of_each_split():
    recipe = replace(RECIPES["digits"], images=200)
    splits = [load_split(recipe, split) for split in ("train", "val", "test")]
    assert [len(split) for split in splits] == [200, 180, 200]  # the validation set has no more
    assert all(split.labels.bincount(minlength=10).min() > 8 for split in splits)  # not the first of a sorted set
    other = load_split(replace(recipe, seed=1), "train")
    assert not torch.equal(splits[0].images, other.images)
    assert len(load_split(replace(recipe, fraction=0.1), "train")) == 200


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("init", "glorot", "init must be one of xavier, torch, torch_zeros, normal, mimetic; got 'glorot'"),
        ("fraction", 0.0, "fraction must be above 0 and at most 1, got 0.0"),
        ("images", -1, "images must be an int of at least 0, got -1"),
        ("arch", "patient:flu", f"arch must be one of {', '.join(ARCHS)}; got 'patient:flu'"),
    ],
)
def test_a_value_that_there_is_not_is_refused_when_the_recipe_is_made(field, value, message, no_shape_checks):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(RECIPES["digits"], **{field: value})


def test_a_recipe_that_contradicts_its_arch_is_refused():
    recipe = RECIPES["digits"]
    with pytest.raises(ValueError, match=r"arch 'patient:no final norm' needs model.final_norm False, got True"):
        replace(recipe, arch="patient:no final norm")
    with pytest.raises(ValueError, match="'colours last' needs in_chans above 1"):  # digits are grey
        replace(recipe, arch="patient:colours last")
    with pytest.raises(ValueError, match="init must be 'xavier' for arch 'resnet', which has its own; got 'mimetic'"):
        replace(recipe, arch="resnet", init="mimetic")


def test_photos_takes_its_sizes_from_the_data(tmp_path):
    photos = replace(RECIPES["photos"], dataset="digits")
    model = fit_to_data(photos).model
    assert (model.img_size, model.patch_size, model.in_chans, model.num_classes) == ((8, 8), (1, 1), 1, 10)
    assert replace(model, img_size=64, patch_size=8, in_chans=3, num_classes=0) == photos.model
    for i in range(40):
        write_image(tmp_path / f"mine/{'ab'[i % 2]}/{i}.png", i, (32, 32))
    large = replace(photos, dataset=f"folder:{tmp_path / 'mine'}")
    large = replace(large, model=replace(photos.model, img_size=(16, 32), patch_size=(4, 8)))
    assert fit_to_data(large).model == replace(large.model, num_classes=2)
    assert fit_to_data(RECIPES["mnist"]) is RECIPES["mnist"]


def test_the_size_of_photographs_is_their_median(tmp_path, monkeypatch):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", str(tmp_path / "root"))
    for i in range(40):
        write_image(tmp_path / f"mine/{'ab'[i % 2]}/{i}.png", i, (300, 40) if i > 5 else (8, 9))
    model = fit_to_data(replace(RECIPES["photos"], dataset=f"folder:{tmp_path / 'mine'}")).model
    assert (model.img_size, model.patch_size, model.num_classes) == ((40, 40), (5, 5), 2)


def test_an_error_names_all_that_does_not_fit_a_folder(tmp_path):
    for i in range(40):
        write_image(tmp_path / f"mine/{'ab'[i % 2]}/{i}.png", i)
    recipe = replace(RECIPES["digits"], dataset=f"folder:{tmp_path / 'mine'}")
    needs = "mine needs model.num_classes 2 and model.in_chans 3, the recipe has 10 and 1; the recipe photos takes them"
    with pytest.raises(ValueError, match=needs):
        load_split(recipe, "train", memory=0)


def test_a_recipe_can_take_some_classes_only():
    recipe = replace(RECIPES["digits"], classes=("7", "3"), model=replace(RECIPES["digits"].model, num_classes=2))
    whole = load_split(RECIPES["digits"], "test")
    part = load_split(recipe, "test")
    assert part.classes == ("7", "3")
    for index, digit in enumerate((7, 3)):
        assert torch.equal(part.images[part.labels == index], whole.images[whole.labels == digit])
    assert len(part) == ((whole.labels == 7) | (whole.labels == 3)).sum()
    assert recipe_from_dict(json.loads(json.dumps(asdict(recipe)))) == recipe


@pytest.mark.parametrize(
    ("classes", "message"),
    [(("3", "seven"), "classes must be one of 0, 1, .*; got 'seven'"), (("3", "3"), "named once each, got 3, 3")],
)
def test_classes_that_are_not_there_or_twice(classes, message):
    with pytest.raises(ValueError, match=message):
        load_split(replace(RECIPES["digits"], classes=classes), "test")


def test_a_folder_can_be_cut_to_some_classes(tmp_path):
    write_tree(tmp_path / "mine", ("ant", "bee", "cow"), 20)
    recipe = replace(RECIPES["photos"], dataset=f"folder:{tmp_path / 'mine'}", classes=("bee", "cow"))
    assert fit_to_data(recipe).model.num_classes == 2
    parts = [load_images(recipe, split, memory=memory) for split in ("train", "test") for memory in (0, 2**30)]
    assert {part.classes for part in parts} == {("bee", "cow")}
    assert {Path(file).parent.name for file in parts[0].files} == {"bee", "cow"}
    assert all(set(part.labels.tolist()) == {0, 1} for part in parts)
