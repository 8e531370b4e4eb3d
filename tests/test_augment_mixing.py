"""Mixup and CutMix: targets are the fractions of the pixels that are really there."""

import pytest
import torch
from devices import DEVICES
from scipy import stats

from vit_tutorial.augment.mixing import cutmix, mixup


def batch(num, classes=4, size=(6, 10), device="cpu"):
    """Images that carry their target: channel k is 1 all over for class k, else 0."""
    labels = torch.arange(num, device=device) % classes
    targets = torch.nn.functional.one_hot(labels, classes).float()
    return targets[:, :, None, None].expand(num, classes, *size).contiguous(), targets


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mix", [mixup, cutmix])
@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_targets_are_the_fractions_of_the_pixels(mix, alpha, device):
    images, targets = batch(200, device=device)
    mixed, mixed_targets = mix(images, targets, alpha)
    torch.testing.assert_close(mixed_targets, mixed.mean((2, 3)))
    torch.testing.assert_close(mixed_targets.sum(1), torch.ones(200, device=device))
    assert ((mixed_targets > 0).sum(1) <= 2).all()
    assert len(mixed_targets.amax(1).unique()) > 20  # a fraction for each image, not one for the batch
    assert (mixed_targets.amax(1) < 0.9).float().mean() > 0.1


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_every_image_serves_once_as_a_partner(mix):
    """Images of constant, different brightness; the partner follows from pixel and fraction."""
    images = torch.arange(8.0).reshape(8, 1, 1, 1).expand(8, 1, 40, 40).contiguous() / 8
    targets = torch.eye(8)
    _, mixed = mix(images, targets, 1.0)
    partners = [(row > 0).nonzero().flatten().tolist() for row in mixed]
    assert all(number in found for number, found in enumerate(partners))
    others = sorted(next((n for n in found if n != number), number) for number, found in enumerate(partners))
    assert others == list(range(8))


def test_mixup_blends_evenly_and_keeps_what_was_mixed():
    images, targets = batch(50)
    images_before, targets_before = images.clone(), targets.clone()
    mixed, mixed_targets = mixup(images, targets, 1.0)
    assert torch.equal(images, images_before)
    assert torch.equal(targets, targets_before)
    torch.testing.assert_close(mixed, mixed_targets[:, :, None, None].expand_as(mixed))


def test_cutmix_puts_in_one_full_rectangle_of_the_images_aspect_ratio():
    images, targets = batch(2000, classes=2, size=(40, 60))
    mixed, _ = cutmix(images, targets, 1.0)
    changed = (mixed != images).any(1)
    rows, cols = changed.any(2), changed.any(1)
    assert torch.equal(changed, rows[:, :, None] & cols[:, None, :])
    inside = changed.any(2).any(1) & ~(rows[:, 0] | rows[:, -1] | cols[:, 0] | cols[:, -1])
    assert inside.sum() > 50
    height, width = rows.sum(1)[inside] / 40, cols.sum(1)[inside] / 60
    assert (height - width).abs().max() <= 1.01 / 40 + 1.01 / 60
    centre = changed.float().mean(0)
    assert centre[20, 30] > 1.2 * centre[0, 0] > 0  # cut at the border, so the corner is replaced less often


def test_mixed_targets_may_be_soft_already():
    images = torch.rand(30, 1, 5, 5)
    targets = torch.rand(30, 3).softmax(1)
    for mix in (mixup, cutmix):
        torch.testing.assert_close(mix(images, targets, 0.5)[1].sum(1), torch.ones(30))


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 3.0])
def test_mixup_fractions_are_beta_distributed(alpha):
    images = torch.zeros(4000, 1, 1, 1)
    fractions = mixup(images, torch.eye(4000), alpha, torch.Generator().manual_seed(1))[1].diagonal()
    fractions = fractions[fractions < 1]  # an image that is its own partner
    assert stats.kstest(fractions.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.01


@pytest.mark.parametrize("mix", [mixup, cutmix])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("inf"), float("nan")])
def test_alpha_must_be_above_0_and_finite(mix, alpha):
    with pytest.raises(ValueError, match=f"alpha must be above 0 and finite, got {alpha}"):
        mix(*batch(4), alpha)


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_class_numbers_are_no_targets(mix, no_shape_checks):
    images, targets = batch(4)
    with pytest.raises(ValueError, match=r"targets must be \(b, k\) in floating point, got torch.int64 of \(4,\)"):
        mix(images, targets.argmax(1), 1.0)
    with pytest.raises(ValueError, match=r"got torch.int64 of \(4, 4\)"):
        mix(images, targets.long(), 1.0)


def test_a_tiny_alpha_leaves_finite_fractions():
    """Both gamma draws underflow to 0 there."""
    images, targets = batch(500)
    mixed, mixed_targets = mixup(images, targets, 1e-4)
    assert mixed.isfinite().all()
    torch.testing.assert_close(mixed_targets.sum(1), torch.ones(500))
