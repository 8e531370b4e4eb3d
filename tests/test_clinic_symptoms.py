"""The vital symptoms distinguish sick models from healthy ones, and leave both as they were."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from vit_tutorial import Attention, PatchEmbed, ViT, ViTConfig, fused_attention, plain_attention
from vit_tutorial.clinic import (
    CannotTell,
    ReshapedPatches,
    SlicedHeads,
    any_batch_size,
    attention_over_queries,
    attention_scaled_by_dim,
    best_on_test,
    best_on_validation,
    chosen_without_the_test_set,
    dead_norms,
    dead_parameters,
    heads_see_everything,
    images_are_independent,
    last_epoch,
    make_patient,
    outputs_are_probabilities,
    patch_order_matters,
    patches_stay_together,
    weights_sum_to_one,
)
from vit_tutorial.clinic.symptoms import choices_of_epoch, count_dependencies, evaluating, moved_by_patch

# Mean pooling, because a class token that attends across the batch never sees a pixel.
CONFIG = ViTConfig(
    img_size=(12, 8), patch_size=(4, 2), in_chans=3, num_classes=5, embed_dim=24, depth=2, num_heads=3, pool="mean",
    drop_rate=0.3,
)  # fmt: skip
IMAGES = (4, 3, 12, 8)


def test_images_that_are_not_finite_are_refused():
    images = torch.rand(IMAGES)
    images[1, 2, 3, 4] = torch.nan
    for symptom in (outputs_are_probabilities, images_are_independent, any_batch_size, order_matters):
        with pytest.raises(ValueError, match="images must be finite, got NaN or infinity in 1 of 1152 places"):
            symptom(ViT(CONFIG), images)


def by_row() -> nn.Module:
    model = make_patient("batch-sized class token", replace(CONFIG, pool="cls"))
    nn.init.normal_(model.cls_token)
    return model


def order_matters(model: nn.Module, images: torch.Tensor) -> bool:
    return patch_order_matters(model, images, (4, 2))


SYMPTOMS = {
    outputs_are_probabilities: (False, True, lambda: make_patient("softmax before cross-entropy", CONFIG)),
    images_are_independent: (True, False, lambda: make_patient("attention across the batch", CONFIG)),
    any_batch_size: (True, False, by_row),
    order_matters: (True, False, lambda: ViT(replace(CONFIG, pos_embed="none"))),
    dead_norms: (
        [],
        [f"blocks.{i}.norm{j}" for i in (0, 1) for j in (1, 2)],
        lambda: make_patient("dead residual norm", CONFIG),
    ),
}


@pytest.mark.parametrize("sign", SYMPTOMS)
def test_sick_and_healthy_are_told_apart_and_left_in_their_modes(sign):
    of_healthy, of_sick, make_sick = SYMPTOMS[sign]
    for expected, model in ((of_healthy, ViT(CONFIG)), (of_sick, make_sick())):
        model.blocks[0].eval()
        modes = [part.training for part in model.modules()]
        assert sign(model, torch.randn(IMAGES)) == expected
        assert [part.training for part in model.modules()] == modes


def test_modes_come_back_after_an_error():
    model = ViT(CONFIG)
    with pytest.raises(RuntimeError), evaluating(model):
        assert not model.training
        raise RuntimeError
    assert all(part.training for part in model.modules())


class WithSpares(nn.Module):
    def __init__(self):
        super().__init__()
        self.spare, self.head, self.scale = nn.LayerNorm(3), nn.Linear(288, 5), nn.Parameter(torch.ones(()))

    def forward(self, images):
        return self.head(images.flatten(1))


def test_dead_parameters_are_named_even_if_frozen():
    model, images = WithSpares().requires_grad_(False), torch.randn(IMAGES)
    model.spare.weight.grad = torch.zeros(3)
    assert dead_parameters(model, images) == ["scale", "spare.weight", "spare.bias"]
    assert dead_norms(model, images) == ["spare"]
    assert model.spare.weight.grad.tolist() == [0, 0, 0] and model.scale.grad is None
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_gradient_of_zero_is_not_dead():
    model = nn.Sequential(nn.Flatten(), nn.Linear(288, 5), nn.ReLU())
    nn.init.constant_(model[1].bias, -100.0)
    assert dead_parameters(model, torch.randn(IMAGES)) == []


def test_the_effect_of_patch_order_is_compared_with_that_of_the_image():
    model, images = ViT(CONFIG), torch.randn(IMAGES)
    with torch.no_grad():
        model.head.weight *= 1e-6
    assert order_matters(model, images)
    nn.init.zeros_(model.head.weight)
    with pytest.raises(CannotTell, match="the same for every image"):
        order_matters(model, images)


class ByDistance(nn.Module):
    """Sums over pairs of patches, the product of their sums divided by their distance: direction does not matter."""

    def forward(self, images):
        sums = images.sum(dim=(1, 2))  # patches of one column each
        distances = (torch.arange(8.0)[:, None] - torch.arange(8.0)).abs() + 1
        return torch.stack([sums.sum(dim=1), (sums[:, :, None] * sums[:, None] / distances).sum(dim=(1, 2))], dim=1)


class OnlyTheLast(nn.Module):
    def forward(self, images):
        return images[..., -2:].flatten(1)


def test_orders_that_keep_the_distances_or_one_end():
    model, images = ByDistance(), torch.randn(IMAGES)
    torch.testing.assert_close(model(images.flip(3)), model(images), rtol=1e-3, atol=1e-3)  # all reversed
    assert patch_order_matters(model, images, (12, 1)) and patch_order_matters(OnlyTheLast(), images, (12, 2))


def test_a_patch_reshaped_by_hand():
    # Token 0 holds pixels 0 to 5 and token 1 pixels 6 to 11; patch 0 has pixels 0 1 2 6 7 8.
    sizes, images = ((4, 6), (2, 3), 1, 5), torch.randn(2, 1, 4, 6)
    scrambled, healthy = ReshapedPatches(*sizes), PatchEmbed(*sizes)
    for patch, tokens in enumerate(([0, 1], [0, 1], [2, 3], [2, 3])):
        assert moved_by_patch(scrambled, images, (2, 3), patch).any(dim=1).nonzero().flatten().tolist() == tokens
        assert moved_by_patch(healthy, images, (2, 3), patch).any(dim=1).nonzero().flatten().tolist() == [patch]
    assert patches_stay_together(healthy, images) and not patches_stay_together(scrambled, images)


def test_the_size_of_the_weights_does_not_matter_for_patches():
    embed = PatchEmbed((12, 8), (4, 2), 3, 10)
    nn.init.normal_(embed.proj.weight, std=1e-6)
    assert patches_stay_together(embed, torch.randn(IMAGES))


def test_numbers_that_a_head_hears():
    assert count_dependencies(lambda x: x - x.mean(dim=1, keepdim=True), torch.randn(1, 4, 6), 2) == 1  # its sum is 0
    x = torch.randn(2, 5, 12)
    assert [count_dependencies(SlicedHeads(12, 3), x, number) for number in (0, 5, 11)] == [4, 4, 4]
    assert count_dependencies(Attention(12, 3), x, 0) == 12
    assert heads_see_everything(Attention(12, 3), x) and not heads_see_everything(SlicedHeads(12, 3), x)


def test_choices_of_an_epoch():
    assert choices_of_epoch(best_on_test) == [0, 1, 2, 3, 4, 5] and not chosen_without_the_test_set(best_on_test)
    assert choices_of_epoch(best_on_validation) == [3] * 6 and chosen_without_the_test_set(best_on_validation)
    assert choices_of_epoch(last_epoch) == [5] * 6 and chosen_without_the_test_set(last_epoch)


def test_weights_that_sum_to_one():
    for attend in (plain_attention, fused_attention, attention_scaled_by_dim):  # a wrong scale still gives means
        assert weights_sum_to_one(attend)
    assert not weights_sum_to_one(attention_over_queries)
    for axis in (0, 1):  # the images, the heads
        assert not weights_sum_to_one(lambda q, k, v, axis=axis: (q @ k.mT).softmax(dim=axis) @ v)
