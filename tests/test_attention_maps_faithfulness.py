"""Shares of a map on the object, and patches painted over, against cases done by hand."""

import pytest
import torch
from pretended_gpu import pretended_gpu

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.attention_maps import (
    attention_mass,
    hide_patches,
    mask_coverage,
    patch_saliency,
    peak_coverage,
    pointing_game,
)


def corner_mask() -> torch.Tensor:
    """4×6 pixels; the object fills the upper right patch of 2×3 pixels, and one pixel of the lower left one."""
    mask = torch.zeros(1, 4, 6, dtype=torch.bool)
    mask[0, :2, 3:] = True
    mask[0, 3, 0] = True
    return mask


def test_coverage_by_hand():
    torch.testing.assert_close(mask_coverage(corner_mask(), (2, 2)), torch.tensor([[[0, 1], [1 / 6, 0]]]))


def test_mass_by_hand():
    maps = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    torch.testing.assert_close(attention_mass(maps, corner_mask()), torch.tensor([(2 + 3 / 6) / 10]))


def test_a_uniform_map_gets_the_object_s_share_of_the_image_whatever_its_scale():
    mask = torch.rand(5, 6, 12) < 0.3
    for scale in (0.01, 7.0):
        torch.testing.assert_close(attention_mass(torch.full((5, 3, 4), scale), mask), mask.float().mean((1, 2)))


def test_pointing_by_hand():
    maps = torch.tensor([[[0.0, 9.0], [1.0, 2.0]], [[0.0, 1.0], [9.0, 2.0]], [[9.0, 1.0], [0.0, 2.0]]])
    masks = corner_mask().expand(3, 4, 6)
    torch.testing.assert_close(peak_coverage(maps, masks), torch.tensor([1, 1 / 6, 0]))
    torch.testing.assert_close(pointing_game(maps, masks), torch.tensor([1.0, 0, 0]))


def test_the_highest_patches_share_the_point():
    mask = torch.rand(5, 6, 12) < 0.3
    even, hits = torch.full((5, 3, 4), 0.7), mask_coverage(mask, (3, 4)) >= 0.5
    torch.testing.assert_close(peak_coverage(even, mask), mask.float().mean((1, 2)))
    torch.testing.assert_close(pointing_game(even, mask), hits.float().mean((1, 2)))
    two = torch.tensor([[[0.0, 9.0], [9.0, 2.0]]])
    torch.testing.assert_close(peak_coverage(two, corner_mask()), torch.tensor([(1 + 1 / 6) / 2]))
    torch.testing.assert_close(pointing_game(two, corner_mask()), torch.tensor([0.5]))


def test_a_grid_that_does_not_divide_the_mask_is_refused():
    with pytest.raises(ValueError, match="mask width 6 is not divisible by the map's grid of 4"):
        attention_mass(torch.rand(1, 2, 4), corner_mask())
    with pytest.raises(ValueError, match="mask height 4 is not divisible by the map's grid of 3"):
        pointing_game(torch.rand(1, 3, 2), corner_mask())


def test_hidden_patches_are_painted_and_nothing_else():
    images = torch.rand(2, 3, 4, 6) + 1
    kept = images.clone()
    colour = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    got = hide_patches(images, torch.tensor([[1], [2]]), (2, 3), colour)
    want = images.clone()
    want[0, :, :2, 3:] = colour
    want[1, :, 2:, :3] = colour
    assert torch.equal(got, want) and torch.equal(images, kept)


def test_hiding_all_none_or_one_twice():
    images = torch.rand(2, 1, 4, 6)
    assert torch.equal(hide_patches(images, torch.arange(4).expand(2, 4), (2, 3), 0.5), torch.full_like(images, 0.5))
    assert torch.equal(hide_patches(images, torch.zeros(2, 0, dtype=torch.long), (2, 3)), images)
    twice = hide_patches(images, torch.tensor([[3, 3], [3, 3]]), (2, 3))
    assert torch.equal(twice, hide_patches(images, torch.tensor([[3], [3]]), (2, 3)))


@pytest.mark.parametrize(
    ("patches", "patch_size", "message"),
    [
        ([[0, 4]], (2, 3), "there is no patch 4: patch indices are 0 to 3"),
        ([[1]] * 3, (2, 3), r"1 images need 1 rows of patch indices, got shape \(3, 1\)"),
        ([[0]], 4, "img_size width 6 is not divisible by patch_size width 4"),
    ],
)
def test_patches_that_do_not_fit_are_refused(patches, patch_size, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        hide_patches(torch.rand(1, 1, 4, 6), torch.tensor(patches), patch_size)


def test_saliency_is_gradient_times_pixel_summed_over_each_patch():
    model, images, classes = small_model()
    pixels = images.clone().requires_grad_()
    logits = model(pixels)
    want = torch.zeros(3, 2, 2)
    for i in range(3):
        (gradient,) = torch.autograd.grad(logits[i, classes[i]], pixels, retain_graph=True)
        product = (gradient * images)[i].abs()
        for row in range(2):
            for col in range(2):
                want[i, row, col] = product[:, 2 * row : 2 * row + 2, 3 * col : 3 * col + 3].sum()
    model.requires_grad_(False)
    with torch.no_grad():
        torch.testing.assert_close(patch_saliency(model, images, classes), want)
    assert not images.requires_grad
    with pytest.raises(ValueError, match="there is no class 5: class indices are 0 to 4"):
        patch_saliency(model, images, torch.tensor([0, 1, 5]))


def small_model() -> tuple[ViT, torch.Tensor, torch.Tensor]:
    model = ViT(ViTConfig(img_size=(4, 6), patch_size=(2, 3), num_classes=5, embed_dim=8, depth=2, num_heads=2))
    return model.eval(), torch.randn(3, 3, 4, 6), torch.tensor([4, 0, 2])


def test_saliency_in_inference_mode_and_of_what_was_made_in_it():
    model, images, classes = small_model()
    wanted = patch_saliency(model, images, classes)
    with torch.inference_mode():
        torch.testing.assert_close(patch_saliency(model, images, classes), wanted)
        made, late = (images.clone(), classes.clone()), small_model()[0]
    torch.testing.assert_close(patch_saliency(model, *made), wanted)
    with pytest.raises(ValueError, match=r"this ViT was made under torch.inference_mode\(\)"):
        patch_saliency(late, images, classes)


def test_classes_patches_and_masks_may_be_on_another_device():
    model, images, classes = small_model()
    maps, mask, patches = torch.rand(3, 2, 2), torch.rand(3, 4, 6) < 0.5, torch.tensor([[0], [3], [2]])
    grey = torch.rand(3, 1, 1)
    questions = [
        lambda model, images, maps: patch_saliency(model, images, classes),
        lambda model, images, maps: hide_patches(images, patches, (2, 3), grey),
        lambda model, images, maps: attention_mass(maps, mask),
        lambda model, images, maps: pointing_game(maps, mask),
        lambda model, images, maps: peak_coverage(maps, mask),
    ]
    wanted = [ask(model, images, maps) for ask in questions]
    with pretended_gpu():
        model.cuda()
        got = [ask(model, images.cuda(), maps.cuda()).cpu() for ask in questions]
    torch.testing.assert_close(got, wanted)
