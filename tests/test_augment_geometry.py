"""Crops, flips, affine maps and erasing against slicing, rot90 and roll, and areas counted by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICES
from torchvision.transforms.functional import resized_crop as torchvision_resized_crop

from vit_tutorial.augment.geometry import (
    affine,
    random_affine,
    random_crop,
    random_erase,
    random_flip,
    random_resized_crop,
    resized_crop,
)

SIZES = [(1, 8, 8), (3, 6, 10), (2, 9, 5)]


def at(images, angle=0.0, size=1.0, shear=0.0, shift=(0.0, 0.0)):
    """affine with the same amounts for every image."""
    b = len(images)
    amounts = (torch.full((b,), float(amount), device=images.device) for amount in (angle, size, shear))
    return affine(images, *amounts, torch.tensor(shift, device=images.device).expand(b, 2))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_random_crop_is_pad_and_slice(shape, device, dtype):
    """Each result is one of the 5×5 windows of its padded image, and every window occurs."""
    _, height, width = shape
    images = (torch.rand(400, *shape, device=device) * 250 + 1).to(dtype)
    crops = random_crop(images, 2)
    assert (crops.shape, crops.dtype) == (images.shape, dtype)
    padded = F.pad(images, (2, 2, 2, 2))
    windows = [padded[:, :, top : top + height, left : left + width] for top in range(5) for left in range(5)]
    same = torch.stack([(crops == window).flatten(1).all(1) for window in windows])
    assert same.any(0).all()
    counts = same.sum(1)
    assert counts.min() >= 4  # 16 expected of each
    assert counts.max() <= 36


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("part", [(0, 0, 12, 18), (3, 4, 6, 9), (6, 0, 6, 18), (0, 9, 4, 9)])
def test_resized_crop_is_torchvisions(part, device):
    """But for the outermost pixels, which may take in a little of what lies beside the part."""
    top, left, height, width = part
    images = torch.rand(2, 3, 12, 18, device=device)
    fractions = height / 12, width / 18, top / max(1, 12 - height), left / max(1, 18 - width)
    ours = resized_crop(images, *(torch.full((2,), fraction, device=device) for fraction in fractions))
    theirs = torchvision_resized_crop(images, *part, [12, 18], antialias=False)
    assert ours.shape == images.shape
    rows, cols = 12 // height, 18 // width  # pixels of the result that one of the part makes
    inner = (..., slice(rows, 12 - rows), slice(cols, 18 - cols))
    torch.testing.assert_close(ours[inner], theirs[inner], rtol=0, atol=1e-5)


def test_random_resized_crop_takes_parts_of_the_area_asked_for():
    """On a slope the part's sides can be read off: what it spans over what the whole spans."""
    down, right = torch.meshgrid(torch.arange(16.0), torch.arange(20.0), indexing="ij")
    images = torch.stack([down, right]).expand(4000, 2, 16, 20) / 20
    parts = random_resized_crop(images, 0.4)[..., 2:-2, 2:-2]  # beyond, the slope may end
    tall = (parts[:, 0, -1, 0] - parts[:, 0, 0, 0]) / (images[0, 0, 13, 2] - images[0, 0, 2, 2])
    wide = (parts[:, 1, 0, -1] - parts[:, 1, 0, 0]) / (images[0, 1, 2, 17] - images[0, 1, 2, 2])
    assert tall.max() < 1.001
    assert wide.max() < 1.001
    inside = (tall < 0.999) & (wide < 0.999)
    area, aspect_ratio = (tall * wide)[inside], (wide / tall)[inside]
    assert 0.399 < area.min() < 0.42
    assert (tall * wide).max() > 0.97
    assert aspect_ratio.min() == pytest.approx(3 / 4, abs=0.02)
    assert aspect_ratio.max() == pytest.approx(4 / 3, abs=0.02)
    middle = (parts[:, 0, 5:7, 0].mean(1), parts[:, 1, 0, 7:9].mean(1))
    assert all(place.std() > 0.02 for place in middle)
    assert torch.corrcoef(torch.stack(middle))[0, 1].abs() < 0.1  # across and down are drawn separately


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SIZES)
def test_random_flip_mirrors_columns_of_half_the_images(shape, device):
    images = torch.rand(400, *shape, device=device)
    flipped = random_flip(images)
    mirrored = images[..., list(range(shape[2] - 1, -1, -1))]
    is_same, is_mirrored = (((flipped == other).flatten(1).all(1)) for other in (images, mirrored))
    assert (is_same ^ is_mirrored).all()
    assert 150 < is_mirrored.sum() < 250


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize(("right", "down"), [(2, 0), (0, 3), (-1, 2), (3, -4)])
def test_shift_equals_roll_with_zeros_coming_in(shape, right, down, device):
    _, height, width = shape
    images = torch.rand(2, *shape, device=device)
    expected = images.roll((down, right), (2, 3))
    expected[:, :, : max(down, 0)] = 0
    expected[:, :, height + min(down, 0) :] = 0
    expected[:, :, :, : max(right, 0)] = 0
    expected[:, :, :, width + min(right, 0) :] = 0
    shifted = at(images, shift=(right / width, down / height))
    torch.testing.assert_close(shifted, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("height", "width"), [(4, 10), (9, 5)])
def test_turns_on_rectangles_keep_the_middle_square(height, width, device):
    images = torch.rand(2, 3, height, width, device=device)
    half = at(images, angle=math.pi)
    torch.testing.assert_close(half, images.flip(2, 3), rtol=0, atol=1e-5)
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = (..., slice(top, top + side), slice(left, left + side))
    quarter = at(images, angle=math.pi / 2)
    torch.testing.assert_close(quarter[middle], images[middle].rot90(-1, (2, 3)), rtol=0, atol=1e-5)
    quarter[middle] = 0  # what lies outside the square comes from outside the image
    torch.testing.assert_close(quarter, torch.zeros_like(quarter), rtol=0, atol=1e-5)


def test_a_rotation_on_a_rectangle_keeps_lengths():
    """A bar of 41×3 pixels in a 61×121 image; a rotation by 30° that forgot the aspect ratio would bend its size."""
    images = torch.zeros(1, 1, 61, 121)
    images[:, :, 29:32, 40:81] = 1
    turned = at(images, angle=math.pi / 6)[0, 0]
    assert turned.sum().item() == pytest.approx(123, rel=0.01)
    rows, cols = (turned > 0.5).nonzero(as_tuple=True)
    assert (cols.max() - cols.min() + 1).item() == pytest.approx(41 * math.cos(math.pi / 6) + 3 * 0.5, abs=2)
    assert (rows.max() - rows.min() + 1).item() == pytest.approx(41 * 0.5 + 3 * math.cos(math.pi / 6), abs=2)
    # clockwise: its right end is lower
    assert rows[cols == cols.max()].float().mean() > 35
    assert rows[cols == cols.min()].float().mean() < 25


def test_size_two_shows_everything_twice_as_large():
    images = F.interpolate(torch.rand(1, 2, 3, 4), scale_factor=2)
    enlarged = at(F.pad(images, (4, 4, 3, 3)), size=2)  # 12×16 pixels whose middle 6×8 now fill them
    expected = F.interpolate(images, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(enlarged[..., 1:-1, 1:-1], expected[..., 1:-1, 1:-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(5, 9), (9, 5)])
def test_shear_moves_rows_below_the_middle_to_the_right(height, width):
    images = torch.rand(1, 1, height, width)
    sheared = at(images, shear=1)
    for row in range(height):
        moved = row - height // 2
        expected = images[0, 0, row].roll(moved)
        if moved > 0:
            expected[:moved] = 0
        elif moved < 0:
            expected[moved:] = 0
        torch.testing.assert_close(sheared[0, 0, row], expected, rtol=0, atol=1e-5)


def test_order_is_shear_size_rotation_shift():
    images = torch.rand(1, 1, 9, 9)
    together = at(images, angle=math.pi / 2, shear=1, shift=(2 / 9, -1 / 9))
    step_by_step = at(at(at(images, shear=1), angle=math.pi / 2), shift=(2 / 9, -1 / 9))
    inner = (..., slice(0, 6), slice(3, 9))  # where neither cut anything off before the last step
    torch.testing.assert_close(together[inner], step_by_step[inner], rtol=0, atol=1e-5)


def test_random_affine_stays_within_its_amounts():
    """A dot's place gives the shift away: uniform up to ±20 % of width and height."""
    images = torch.zeros(2000, 1, 20, 40)
    images[:, :, 9:11, 19:21] = 1
    moved = random_affine(images, shift=0.2)[:, 0]
    across = (moved.sum(1) * (torch.arange(40) + 0.5)).sum(1) / moved.sum((1, 2)) - 20
    down = (moved.sum(2) * (torch.arange(20) + 0.5)).sum(1) / moved.sum((1, 2)) - 10
    for offset, side in ((across, 40), (down, 20)):
        assert offset.abs().max().item() == pytest.approx(0.2 * side, rel=0.02)
        assert offset.mean().item() == pytest.approx(0, abs=0.02 * side)
        assert offset.std().item() == pytest.approx(0.2 * side / math.sqrt(3), rel=0.05)
    assert torch.corrcoef(torch.stack([across, down]))[0, 1].abs() < 0.1


@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_random_affine_scales_areas(scale):
    images = torch.zeros(500, 1, 64, 64)
    images[:, :, 22:42, 22:42] = 1
    size = random_affine(images, scale=scale, degrees=180).sum((1, 2, 3)).sqrt() / 20
    assert size.min().item() == pytest.approx(1 - scale, abs=0.02)
    assert size.max().item() == pytest.approx(1 + scale, abs=0.02)


def boxes_of(changed):
    """Height and width of what changed in each image; each must be a full rectangle."""
    rows, cols = changed.any(2), changed.any(1)
    assert torch.equal(changed, rows[:, :, None] & cols[:, None, :])
    for line in (rows, cols):
        assert ((line[:, 1:] & ~line[:, :-1]).sum(1) + line[:, 0] <= 1).all()  # without gaps
    return rows.sum(1), cols.sum(1)


@pytest.mark.parametrize("device", DEVICES)
def test_erased_rectangles(device):
    images = torch.full((2000, 3, 60, 90), 2.0, device=device)
    erased = random_erase(images, 1.0)
    changed = (erased != images).any(1)
    height, width = boxes_of(changed.cpu())
    area = height * width / (60 * 90)
    assert 0.012 < area.min() < 0.03
    assert 0.32 < area.max() < 0.345
    assert area.mean().item() == pytest.approx((0.02 + 0.33) / 2, rel=0.05)
    large = area > 0.1
    aspect_ratio = (height / 60 / (width / 90))[large]
    assert 0.45 < aspect_ratio.min() < 0.55
    assert 1.8 < aspect_ratio.max() < 2.2
    noise = erased[:, 0][changed]
    assert noise.amin() >= 0
    assert noise.amax() <= 1
    assert noise.mean().item() == pytest.approx(0.5, abs=0.01)
    assert changed.any(0).float().mean() > 0.99  # every pixel has its turn, but for some at the corners


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_erase_probability(probability):
    images = torch.full((2000, 1, 12, 16), 2.0)
    fraction = (random_erase(images, probability) != images).flatten(1).any(1).float().mean()
    assert fraction.item() == pytest.approx(probability, abs=0.03)
