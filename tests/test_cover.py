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

MAPS, PROBABILITIES = cover.look()


@pytest.mark.parametrize(
    ("head", "radius", "share", "area"), [("petals", 1.05, 91, 62), ("rim", 0.5, 1, 14), ("heart", 0.5, 50, 14)]
)
def test_a_head_looks_where_its_caption_says(head, radius, share, area):
    """``radius`` in those of the flower: what is orange, taken for a disc."""
    stored = np.asarray(Image.open(cover.STATIC / f"look-{head}.jpg")).astype(float)
    drawn = rearrange(cover.lit(MAPS[head]), "c H W -> H W c").numpy()
    assert np.abs(stored - drawn).mean() < 3  # of 255; JPEG costs up to 2.5
    red, _, blue = cover.photograph().float()
    flower = ((red > blue + 45) & (red > 100)).float()
    y, x = torch.meshgrid(torch.arange(cover.SIDE), torch.arange(cover.SIDE), indexing="ij")
    distance = torch.hypot(*(axis - (axis * flower).sum() / flower.sum() for axis in (y, x)))
    inside = F.avg_pool2d(distance[None], cover.SIDE // len(MAPS[head]))[0] < radius * (flower.sum() / torch.pi).sqrt()
    assert 100 * float(MAPS[head][inside].sum() / MAPS[head].sum()) == pytest.approx(share, abs=0.75)
    assert 100 * float(inside.float().mean()) == pytest.approx(area, abs=0.75)
    assert f"{share} %" in page("book/intro.md") and f"{area} %" in page("book/intro.md")


def test_the_model_takes_the_flower_for_a_dog():
    first, second = PROBABILITIES.topk(2).indices.tolist()
    assert (CIFAR_CLASSES[first], CIFAR_CLASSES[second]) == ("dog", "cat")
    assert "It calls the flower a dog, and very nearly a cat" in page("book/intro.md")
    assert PROBABILITIES[second] > 0.9 * PROBABILITIES[first]
