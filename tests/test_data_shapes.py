"""Shapes: told apart by shape alone, masks where the shape is, the same for the same seed."""

import math

import pytest
import torch

from vit_tutorial.data import shapes
from vit_tutorial.data.shapes import INSIDE, SHAPES, draw_shapes


@pytest.fixture(scope="module")
def drawn():
    return draw_shapes(3000, seed=7)


def linear_probe(features: torch.Tensor, labels: torch.Tensor) -> float:
    """Accuracy on the second half of a linear classifier fitted by least squares to the first half."""
    features = torch.cat([features, torch.ones(len(features), 1)], dim=1).double()
    half = len(labels) // 2
    targets = torch.nn.functional.one_hot(labels[:half], len(SHAPES)).double()
    weights = torch.linalg.lstsq(features[:half], targets).solution
    return ((features[half:] @ weights).argmax(1) == labels[half:]).double().mean().item()


def test_kinds_and_sizes(drawn):
    images, labels, masks = drawn
    assert (images.shape, images.dtype) == ((3000, 3, 32, 32), torch.uint8)
    assert (masks.shape, masks.dtype) == ((3000, 32, 32), torch.bool)
    assert (images.amin(), images.amax()) == (0, 255)
    assert len(SHAPES) == 10
    assert labels.bincount().tolist() == [300] * 10
    assert labels[:100].bincount(minlength=10).min() > 0  # in no order
    assert draw_shapes(7, 0)[1].bincount(minlength=10).max() == 1


def test_same_seed_same_images_and_the_global_random_state_is_left_alone():
    state = torch.get_rng_state()
    first, second, other = draw_shapes(60, 3), draw_shapes(60, 3), draw_shapes(60, 4)
    for ours, theirs in zip(first, second, strict=True):
        assert torch.equal(ours, theirs)
    assert (first[0] != other[0]).flatten(1).any(1).all()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_larger_drawing_shows_the_same_in_more_detail():
    (small, labels, masks), (large, same, finer) = (draw_shapes(300, 5, size) for size in (20, 60))
    assert large.shape == (300, 3, 60, 60) and torch.equal(labels, same)
    shrunk, cover = (torch.nn.functional.avg_pool2d(part.double(), 3) for part in (large, finer))
    inside = (cover < 0.01) | (cover > 0.99)  # what lies on an edge may count either way
    assert torch.equal((cover > 0.5) & inside, masks & inside)
    assert (shrunk - small).abs().mean() < 12 < (shrunk - small.flip(0)).abs().mean() / 2
    with pytest.raises(ValueError, match="size must be an int of at least 1, got 0"):
        draw_shapes(1, 0, size=0)


def test_images_drawn_in_chunks_all_differ(monkeypatch):
    monkeypatch.setattr(shapes, "CHUNK", 8)
    images, labels, masks = draw_shapes(20, 0)
    assert len(images.flatten(1).unique(dim=0)) == len(labels) == len(masks) == 20


def test_colour_tells_nothing_about_the_class(drawn):
    """Chance is 10 %; over 1,500 images three standard errors are 2.3 %."""
    images, labels, masks = drawn
    pixels = images.double() / 255
    covered = masks[:, None].double()
    core = 1 - torch.nn.functional.max_pool2d(1 - covered, 3, 1, 1)  # its edge takes in some of what lies behind
    clear = core.sum((1, 2, 3)) > 0
    assert clear.double().mean() > 0.9
    of_object = (pixels * core).sum((2, 3)) / core.sum((2, 3))
    of_background = (pixels * (1 - covered)).sum((2, 3)) / (1 - covered).sum((2, 3))
    everything = torch.ones_like(clear)
    for features, which in (
        (pixels.mean((2, 3)), everything),
        (of_object, clear),
        (of_background, everything),
    ):
        features = torch.cat([features, features**2], dim=1)[which]
        assert linear_probe(features[:, :3], labels[which]) < 0.123
        assert linear_probe(features, labels[which]) < 0.123


def test_the_probe_finds_a_colour_that_tells_the_class(drawn):
    """Else the test above would show nothing."""
    images, labels, _ = drawn
    tinted = images.double().mean((2, 3)) / 255
    tinted[:, 0] += labels
    assert linear_probe(tinted, labels) > 0.18


def test_shape_tells_the_class(drawn):
    """What a mask has of area, spread and hole tells far more than chance, even to a linear probe."""
    _, labels, masks = drawn
    area, inertia = moments(masks)
    assert linear_probe(torch.stack([area, area**2, inertia, inertia**2], dim=1), labels) > 0.3


def test_place_tells_nothing_about_the_class(drawn):
    _, labels, masks = drawn
    box = torch.stack([masks.any(1).double().argmax(1), masks.any(2).double().argmax(1)], dim=1).double()
    middle = torch.stack([centres(masks)[0], centres(masks)[1]], dim=1)
    assert linear_probe(middle, labels) < 0.123
    assert box.std(0).min() > 2  # it does move


def centres(masks):
    axis = torch.arange(masks.shape[-1]) + 0.5
    area = masks.sum((1, 2))
    return (masks.sum(1) * axis).sum(1) / area, (masks.sum(2) * axis).sum(1) / area


def moments(masks):
    """Area in pixels, and the mean squared distance from the middle over the area: the same at any size and angle."""
    axis = torch.arange(masks.shape[-1]) + 0.5
    x, y = centres(masks)
    area = masks.sum((1, 2)).double()
    spread = (masks.sum(1) * (axis - x[:, None]) ** 2).sum(1) + (masks.sum(2) * (axis - y[:, None]) ** 2).sum(1)
    return area, spread / area**2


def rectangle(width, height):
    """Second moment of a rectangle about its middle."""
    return width * height * (width**2 + height**2) / 12


# Area and second moment (about the middle) at radius 1, by hand.
BY_HAND = {
    "circle": (math.pi * 0.8, math.pi * 0.8**2 / 2),
    "ring": (math.pi * (1 - 0.56**2), math.pi * (1 - 0.56**4) / 2),
    "square": (1.6**2, rectangle(1.6, 1.6)),
    "frame": (1.7**2 - 0.9**2, rectangle(1.7, 1.7) - rectangle(0.9, 0.9)),
    # base b, height h: area bh/2, second moments (bh/2)·b²/24 across and (bh/2)·h²/18 up
    "triangle": ((b := 3.5 / 1.9) * (h := 1.75) / 2, b * h / 2 * (b**2 / 24 + h**2 / 18)),
    # half-diagonals 0.7 and 1.05: area 2·0.7·1.05, second moments a sixth of area times their squares
    "diamond": (2 * 0.7 * 1.05, 2 * 0.7 * 1.05 * (0.7**2 + 1.05**2) / 6),
    "cross": (2 * 1.9 * 0.6 - 0.6**2, 2 * rectangle(1.9, 0.6) - rectangle(0.6, 0.6)),
    "bars": (1.8**2 - 1.8 * 0.6, rectangle(1.8, 1.8) - rectangle(0.6, 1.8)),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_inside_has_the_area_computed_by_hand(name):
    axis = torch.linspace(-1.5, 1.5, 1001, dtype=torch.float64)
    inside = INSIDE[name](axis, axis[:, None])
    area, moment = BY_HAND[name]
    assert inside.double().sum() * 0.003**2 == pytest.approx(area, rel=0.01)
    assert moments(inside[None])[1].item() == pytest.approx(moment / area**2, rel=0.01)


def test_masks_lie_on_the_object(drawn):
    """One colour fills the mask, but for its edge and the noise of 0.03·255; what surrounds it has another colour."""
    images, _, masks = drawn
    grow = torch.nn.functional.max_pool2d
    core = ~grow((~masks)[:, None].float(), 3, 1, 1).bool()
    around = grow(masks[:, None].float(), 5, 1, 2).bool() & ~grow(masks[:, None].float(), 3, 1, 1).bool()
    num = core.sum((2, 3))
    clear = num[:, 0] >= 15
    assert clear.double().mean() > 0.7

    def mean(share):
        return (images * share).sum((2, 3)).double() / share.sum((2, 3))

    spread = ((images - mean(core)[:, :, None, None]) ** 2 * core).sum((2, 3)) / num
    assert spread[clear].sqrt().max() < 20
    assert spread[clear].sqrt().median() == pytest.approx(0.03 * 255, rel=0.1)
    apart = (mean(core) - mean(around)).abs().amax(1)
    assert (apart[clear] > 0.2 * 255).double().mean() > 0.95
