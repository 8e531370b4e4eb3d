"""The result on the front page: a photograph, and where three heads of a small model look in it.

    python book/cover.py     draws book/_static/look-*.jpg again

The photograph is scikit-learn's flower.jpg, https://www.flickr.com/photos/vultilion/6056698931, CC BY 2.0.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float, UInt8
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor

from vit_tutorial.attention_maps import attention_map, record_attention
from vit_tutorial.pretrained import adapt
from vit_tutorial.runs import load_recorded
from vit_tutorial.training import to_input

STATIC = Path(__file__).parent / "_static"
RUN, SIZE = "cifar10-small", 64  # pixels that the model gets, twice the side it was trained on
TOP, LEFT, SIDE = 60, 180, 320  # a square of the photograph
HEADS = {"petals": (1, 3), "rim": (2, 3), "heart": (5, 1)}  # (layer, head), from 1: picked from 18 by eye


def photograph() -> UInt8[Tensor, "3 H W"]:
    photo = torch.tensor(load_sample_image("flower.jpg"))[TOP : TOP + SIDE, LEFT : LEFT + SIDE]
    return rearrange(photo, "H W c -> c H W")


def look() -> tuple[dict[str, Float[Tensor, "gh gw"]], Float[Tensor, " k"]]:
    """The class token's attention to each patch, for each of HEADS, and the probabilities of the model's classes."""
    trained, recipe = load_recorded(RUN)
    model = adapt(trained, img_size=SIZE).eval()
    small = F.interpolate(photograph()[None].float(), size=(SIZE, SIZE), mode="area").round().to(torch.uint8)
    with torch.no_grad(), record_attention(model) as weights:
        probabilities = model(to_input(small, recipe)).softmax(dim=-1)[0]
    maps = {
        name: attention_map(weights[layer - 1][:, head - 1], model.config)[0] for name, (layer, head) in HEADS.items()
    }
    return maps, probabilities


def lit(grid: Float[Tensor, "gh gw"]) -> UInt8[Tensor, "3 H W"]:
    """The photograph, lit by a head's attention: the brightest 2 % of patches fully."""
    light = 0.12 + 0.88 * (grid / grid.flatten().quantile(0.98)).clamp(max=1)
    side = SIDE // len(grid)
    return (photograph() * repeat(light, "gh gw -> (gh ph) (gw pw)", ph=side, pw=side)).round().to(torch.uint8)


if __name__ == "__main__":
    for name, panel in {"photograph": photograph(), **{name: lit(grid) for name, grid in look()[0].items()}}.items():
        image = Image.fromarray(rearrange(panel, "c H W -> H W c").numpy())
        image.save(STATIC / f"look-{name}.jpg", quality=90, subsampling=0)
