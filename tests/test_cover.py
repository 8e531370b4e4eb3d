"""The pictures on the front page are what the recorded model gives today, and do what their captions say."""

import cover
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from notebook_rules import page
from PIL import Image

from vit_tutorial.data.sources import CIFAR_CLASSES

PANELS = cover.panels()
MAPS, PROBABILITIES = cover.look()


def stored(name: str) -> np.ndarray:
    return np.asarray(Image.open(cover.STATIC / f"look-{name}.jpg")).astype(float)


def off(name: str, panel: torch.Tensor) -> float:
    """Mean distance of a stored picture from a drawn one, in grey levels of 255."""
    return np.abs(stored(name) - rearrange(panel, "c H W -> H W c").numpy()).mean()


@pytest.mark.parametrize("name", PANELS)
def test_the_stored_pictures_are_those_that_the_model_gives(name):
    assert off(name, PANELS[name]) < 3  # JPEG costs up to 2.5
    assert min(off(name, other) for key, other in PANELS.items() if key != name) > 10


@pytest.fixture(scope="module")
def from_the_middle() -> torch.Tensor:
    """Each patch's distance from the flower's middle, in radii of the flower: what is orange, taken for a disc."""
    red, _, blue = cover.photograph().float()
    flower = ((red > blue + 45) & (red > 100)).float()
    y, x = torch.meshgrid(torch.arange(cover.SIDE), torch.arange(cover.SIDE), indexing="ij")
    middle_y, middle_x = ((axis * flower).sum() / flower.sum() for axis in (y, x))
    radius = (flower.sum() / torch.pi).sqrt()
    distance = ((y - middle_y) ** 2 + (x - middle_x) ** 2).sqrt() / radius
    grid = MAPS["petals"].shape[0]
    return F.avg_pool2d(distance[None], cover.SIDE // grid)[0]


@pytest.mark.parametrize(
    ("head", "inside", "attention", "area"), [("petals", 1.05, 91, 62), ("rim", 0.5, 1, 14), ("heart", 0.5, 50, 14)]
)
def test_the_heads_look_where_the_captions_say(from_the_middle, head, inside, attention, area):
    there = from_the_middle < inside
    assert abs(100 * float(MAPS[head][there].sum() / MAPS[head].sum()) - attention) < 0.75
    assert abs(100 * float(there.float().mean()) - area) < 0.75
    assert f"{attention} %" in page("book/intro.md") and f"{area} %" in page("book/intro.md")


def test_the_model_takes_the_flower_for_a_dog():
    first, second = PROBABILITIES.topk(2).indices.tolist()
    assert (CIFAR_CLASSES[first], CIFAR_CLASSES[second]) == ("dog", "cat")
    assert "It calls the flower a dog, and very nearly a cat" in page("book/intro.md")
    assert PROBABILITIES[second] > 0.9 * PROBABILITIES[first]


def test_the_stored_card_is_the_title_over_these_pictures():
    path = cover.STATIC / "social.jpg"
    drawn, card = np.asarray(cover.social_card()).astype(float), np.asarray(Image.open(path)).astype(float)
    assert card.shape == (630, 1200, 3) and path.stat().st_size <= 80_000
    assert np.abs(card - drawn).mean() < 3
