"""Colours and RandAugment by hand; and what holds for every augmentation."""

import pytest
import torch
from devices import DEVICES, NoWaiting
from pretended_gpu import pretended_gpu

from vit_tutorial.augment import Augment, autocontrast, posterise, rand_augment, random_colour, solarise
from vit_tutorial.augment.geometry import random_affine, random_crop, random_erase, random_flip, random_resized_crop
from vit_tutorial.augment.mixing import cutmix, mixup

# each takes (images, generator) and gives images
EACH = {
    "crop": lambda images, generator: random_crop(images, 3, generator),
    "resized_crop": lambda images, generator: random_resized_crop(images, 0.3, generator),
    "flip": random_flip,
    "rotate": lambda images, generator: random_affine(images, degrees=40, generator=generator),
    "shift": lambda images, generator: random_affine(images, shift=0.3, generator=generator),
    "scale": lambda images, generator: random_affine(images, scale=0.3, generator=generator),
    "shear": lambda images, generator: random_affine(images, shear=0.3, generator=generator),
    "colour": lambda images, generator: random_colour(images, 0.5, generator),
    "rand_augment": lambda images, generator: rand_augment(images, 0.7, generator=generator),
    "erase": lambda images, generator: random_erase(images, 0.9, generator),
    "mixup": lambda images, generator: mixup(images, torch.ones(len(images), 2, device=images.device), 1.0, generator)[
        0
    ],
    "cutmix": lambda images, generator: cutmix(
        images, torch.ones(len(images), 2, device=images.device), 1.0, generator
    )[0],
    "all": lambda images, generator: EVERYTHING(images, torch.ones(len(images), 2, device=images.device), generator)[0],
}
EVERYTHING = Augment(
    crop=2,
    resized_crop=0.5,
    flip=True,
    degrees=10,
    shift=0.1,
    scale=0.1,
    shear=0.1,
    rand_magnitude=0.5,
    erase=0.5,
    mixup=0.4,
    cutmix=1.0,
)


def seeded(device, seed=0):
    return torch.Generator(device).manual_seed(seed)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EACH)
def test_drawn_for_each_image(name, device):
    """One image, many times over; mixing needs something to mix with, so there every second image is another one."""
    one = torch.rand(2, 3, 9, 13, device=device)
    images = one.repeat(32, 1, 1, 1) if name in ("mixup", "cutmix") else one[:1].repeat(64, 1, 1, 1)
    results = EACH[name](images, seeded(device))[::2]
    assert len(results.flatten(1).unique(dim=0)) >= (2 if name == "flip" else 10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EACH)
def test_the_generator_decides(name, device):
    images = torch.rand(16, 3, 9, 13, device=device)
    torch.manual_seed(1)
    first = EACH[name](images, seeded(device, 5))
    torch.manual_seed(2)
    assert torch.equal(EACH[name](images, seeded(device, 5)), first)
    assert not torch.equal(EACH[name](images, seeded(device, 6)), first)
    torch.manual_seed(5)  # without one, the global random state does
    first = EACH[name](images, None)
    torch.manual_seed(5)
    assert torch.equal(EACH[name](images, None), first)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", EACH)
def test_shape_kind_range_and_input_are_kept(name, channels, device):
    images = torch.rand(64, channels, 9, 13, device=device)
    images[:8] = images[:8].round()
    before = images.clone()
    results = EACH[name](images, seeded(device))
    assert (results.shape, results.dtype, results.device) == (images.shape, images.dtype, images.device)
    assert results.isfinite().all()
    assert results.amin() >= -1e-6
    assert results.amax() <= 1 + 1e-6
    assert torch.equal(images, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", EACH)
def test_the_dtype_is_kept_and_half_is_computed_in_float32(name, dtype):
    """A half precision is rounded once, so the result is that of float32, rounded."""
    images = torch.rand(16, 3, 9, 13, dtype=torch.float64).to(dtype)
    result, single = EACH[name](images, seeded("cpu")), EACH[name](images.float(), seeded("cpu"))
    assert result.dtype == dtype and single.dtype == torch.float32
    if dtype == torch.float64:
        torch.testing.assert_close(result.float(), single, rtol=0, atol=1e-5)
    else:
        assert torch.equal(result, single.to(dtype))


@pytest.mark.parametrize("name", EACH)
def test_one_image_is_no_batch(name, no_shape_checks):
    with pytest.raises(ValueError, match=r"images must be \(b, c, H, W\).*, got .*\(3, 9, 13\); images\[None\]"):
        EACH[name](torch.rand(3, 9, 13), None)


@pytest.mark.parametrize("name", EACH)
def test_an_empty_batch_stays_empty(name):
    assert EACH[name](torch.rand(0, 3, 9, 13), None).shape == (0, 3, 9, 13)


@pytest.mark.parametrize("mix", [mixup, cutmix, Augment(mixup=1.0, cutmix=1.0)])
def test_targets_may_be_on_another_device(mix):
    options = () if isinstance(mix, Augment) else (1.0,)
    images, targets = torch.rand(8, 3, 9, 13), torch.eye(8)
    torch.manual_seed(0)
    wanted = mix(images, targets, *options)
    torch.manual_seed(0)
    with pretended_gpu():
        got = [away.cpu() for away in mix(images.cuda(), targets, *options)]
    torch.testing.assert_close(got, list(wanted))


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_each_image_needs_a_target(mix, no_shape_checks):
    with pytest.raises(ValueError, match="8 images need as many targets, got 7"):
        mix(torch.rand(8, 3, 9, 13), torch.rand(7, 5), 1.0)


@pytest.mark.parametrize("name", ["rotate", "resized_crop", "colour", "rand_augment", "erase", "mixup", "all"])
def test_bytes_are_refused(name, no_shape_checks):
    """They would be taken for pixels in 0..1, and come out black and white."""
    with pytest.raises(ValueError, match=r"images must be \(b, c, H, W\) in floating point, got torch\.uint8"):
        EACH[name](torch.zeros(4, 3, 9, 13, dtype=torch.uint8), seeded("cpu"))


@pytest.mark.parametrize("name", EACH)
def test_no_operation_waits_for_the_device(name):
    images = torch.rand(16, 3, 9, 13)
    with NoWaiting():
        results = EACH[name](images, seeded("cpu"))
    assert results.shape == images.shape


def test_the_watch_sees_what_waits():
    with NoWaiting(), pytest.raises(AssertionError, match="makes a GPU wait"):
        torch.rand(4).sum().item()


def each(*values):
    return torch.tensor(values)[:, None, None, None]


def test_posterise_by_hand():
    """One bit leaves black and white; two bits 0, ⅓, ⅔ and 1; eight bits change nothing."""
    images = torch.tensor([0.0, 0.2, 0.45, 0.55, 0.8, 1.0]).expand(3, 1, 1, 6).contiguous()
    one, two, eight = posterise(images, each(1.0, 2.0, 8.0))[:, 0, 0]
    assert one.tolist() == [0, 0, 0, 1, 1, 1]
    torch.testing.assert_close(two * 3, torch.tensor([0.0, 0, 1, 2, 3, 3]))
    assert torch.equal(eight, images[2, 0, 0])


def test_solarise_by_hand():
    images = torch.tensor([0.1, 0.6, 0.9]).expand(2, 1, 1, 3).contiguous()
    first, second = solarise(images, each(0.7, 1.0))[:, 0, 0]
    torch.testing.assert_close(first, torch.tensor([0.1, 0.6, 0.1]))
    assert torch.equal(second, images[1, 0, 0])


def test_autocontrast_by_hand():
    """0.2…0.6 becomes 0…1, channel by channel; an even channel stays; half the fraction goes half the way."""
    images = torch.tensor([[0.2, 0.4, 0.6], [0.3, 0.3, 0.3]]).reshape(1, 2, 1, 3).repeat(2, 1, 1, 1)
    full, half = autocontrast(images, each(1.0, 0.5))[:, :, 0]
    torch.testing.assert_close(full, torch.tensor([[0.0, 0.5, 1.0], [0.3, 0.3, 0.3]]))
    torch.testing.assert_close(half, torch.tensor([[0.1, 0.45, 0.8], [0.3, 0.3, 0.3]]))


def test_colour_by_hand():
    """Even grey shows brightness alone: contrast and saturation leave it, so it is scaled by 1 ± strength."""
    grey = random_colour(torch.full((2000, 3, 2, 2), 0.5), 0.4)
    assert (grey.flatten(1).amax(1) - grey.flatten(1).amin(1)).max() < 1e-6
    assert grey.amin().item() == pytest.approx(0.3, abs=0.005)
    assert grey.amax().item() == pytest.approx(0.7, abs=0.005)
    images = torch.rand(4, 3, 5, 5)
    torch.testing.assert_close(random_colour(images, 0.0), images)


def test_colour_changes_contrast_and_saturation():
    """Two even grey halves stay grey and even; two colours change their distance from grey by the saturation."""
    halves = torch.tensor([0.4, 0.6]).expand(500, 3, 1, 2)
    changed = random_colour(halves, 0.4)
    assert (changed.amax(1) - changed.amin(1)).max() < 1e-6
    contrast = ((changed[:, 0, 0, 1] - changed[:, 0, 0, 0]) / changed[:, 0, 0].mean(1)) / 0.4
    assert contrast.min().item() == pytest.approx(0.6, abs=0.02)
    assert contrast.max().item() == pytest.approx(1.4, abs=0.02)


@pytest.mark.parametrize("device", DEVICES)
def test_rand_augment_at_magnitude_0_changes_nothing(device):
    images = torch.rand(200, 3, 9, 13, device=device)
    torch.testing.assert_close(rand_augment(images, 0.0, num_ops=3), images, rtol=0, atol=1e-5)


def test_rand_augment_takes_each_operation_as_often():
    """An even image of ½ tells them apart: see the comments, for one operation of eight each."""
    results = rand_augment(torch.full((4000, 1, 17, 17), 0.5), 1.0, num_ops=1)[:, 0]
    kept = (results[:, 8, 8] - 0.5).abs() < 1e-5
    even = (results - results[:, 8:9, 8:9]).flatten(1).abs().amax(1) < 1e-5
    fraction = {"moved": kept & ~even, "same": kept & even, "other": ~kept & even}
    # rotate, shear and shift bring in zeros at the border
    assert fraction["moved"].float().mean().item() == pytest.approx(3 / 8, abs=0.03)
    # nothing, solarise (1 − ½ = ½), autocontrast, and the tenth of posterise that leaves 8 bits
    assert fraction["same"].float().mean().item() == pytest.approx(3.1 / 8, abs=0.03)
    # colour, and the rest of posterise
    assert fraction["other"].float().mean().item() == pytest.approx(1.9 / 8, abs=0.03)


def test_augment_off_changes_nothing():
    images, targets = torch.rand(5, 3, 8, 8), torch.eye(5)
    same, same_targets = Augment()(images, targets)
    assert same is images
    assert same_targets is targets


def test_augment_applies_what_is_switched_on():
    images, targets = torch.rand(40, 3, 8, 8), torch.eye(40)
    for option, expected in (
        ({"crop": 2}, lambda g: random_crop(images, 2, g)),
        ({"resized_crop": 0.4}, lambda g: random_resized_crop(images, 0.4, g)),
        ({"flip": True}, lambda g: random_flip(images, g)),
        ({"degrees": 9}, lambda g: random_affine(images, degrees=9, generator=g)),
        ({"shear": 0.2}, lambda g: random_affine(images, shear=0.2, generator=g)),
        ({"rand_magnitude": 0.5}, lambda g: rand_augment(images, 0.5, generator=g)),
        ({"erase": 0.5}, lambda g: random_erase(images, 0.5, g)),
        ({"mixup": 0.5}, lambda g: mixup(images, targets, 0.5, g)[0]),
        ({"cutmix": 1}, lambda g: cutmix(images, targets, 1.0, g)[0]),
    ):
        result, result_targets = Augment(**option)(images, targets, seeded("cpu"))
        assert torch.equal(result, expected(seeded("cpu"))), option
        assert torch.equal(result_targets, targets) == ("mixup" not in option and "cutmix" not in option)


def test_mixup_and_cutmix_share_the_images():
    """An image all over 1 among images all over 0: blended ones have one brightness, cut ones have two."""
    targets = torch.nn.functional.one_hot(torch.arange(400) % 2, 2).float()
    images = targets[:, :, None, None].expand(400, 2, 12, 12).contiguous()
    mixed, mixed_targets = Augment(mixup=1.0, cutmix=1.0)(images, targets)
    torch.testing.assert_close(mixed_targets, mixed.mean((2, 3)))
    between = (mixed_targets > 0.05) & (mixed_targets < 0.95)
    blended = ((mixed[:, 0].flatten(1).std(1) < 1e-6) & between[:, 0]).sum()
    cut = ((mixed[:, 0].flatten(1).std(1) > 0.1) & between[:, 0]).sum()
    assert 50 < blended < 150  # of about 200 whose partner is of the other class
    assert 50 < cut < 150


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"crop": -1}, "crop must be an int of at least 0, got -1"),
        ({"erase": 1.5}, "erase must be at least 0 and at most 1, got 1.5"),
        ({"mixup": -0.2}, "mixup must be a finite number of at least 0, got -0.2"),
        ({"flip": 1}, "flip must be True or False, got 1"),
        ({"shift": float("nan")}, "shift must be at least 0 and at most 1, got nan"),
    ],
)
def test_bad_options(option, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        Augment(**option)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda images: random_crop(images, 5), "padding must be below the shorter side of images of 5×8, got 5"),
        (lambda images: rand_augment(images, 9), "magnitude must be at least 0 and at most 1, got 9"),
        (lambda images: random_erase(images, 25), "probability must be at least 0 and at most 1, got 25"),
    ],
)
def test_values_that_mean_nothing_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.rand(2, 3, 5, 8))
