"""The result on the front page: a photograph, and where three heads of a small model look in it.

    python book/cover.py     draws book/_static/look-*.jpg again, and social.jpg, which other sites show beside a link

The photograph is scikit-learn's flower.jpg, https://www.flickr.com/photos/vultilion/6056698931, CC BY 2.0.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float, UInt8
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont
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


def panels() -> dict[str, UInt8[Tensor, "3 H W"]]:
    """The photograph, and for each head a copy lit by its attention: the brightest 2 % of patches are fully lit."""
    photo = photograph()
    drawn = {"photograph": photo}
    for name, grid in look()[0].items():
        light = (grid / grid.flatten().quantile(0.98)).clamp(max=1)
        side = SIDE // len(grid)
        lit = repeat(0.12 + 0.88 * light, "gh gw -> (gh ph) (gw pw)", ph=side, pw=side)
        drawn[name] = (photo * lit).round().to(torch.uint8)
    return drawn


def social_card() -> Image.Image:
    """The title over the stored panels, in the size that other sites show beside a link."""
    card = Image.new("RGB", (1200, 630), "#121212")
    draw = ImageDraw.Draw(card)
    bold, plain = (font_manager.findfont(f"DejaVu Sans:{weight}") for weight in ("bold", "regular"))

    def write(x: int, y: int, text: str, size: int, font: str = plain, colour: str = "#b0b0b0") -> None:
        draw.text((x, y), text, colour, ImageFont.truetype(font, size))

    write(48, 44, "The Vision Transformer", 62, bold, "white")
    write(48, 122, "from Scratch", 62, bold, "white")
    for i, name in enumerate(("photograph", *HEADS)):
        left = 48 + 280 * i
        card.paste(Image.open(STATIC / f"look-{name}.jpg").resize((264, 264)), (left, 236))
        write(left, 510, "a photograph" if i == 0 else f"attention: the {name}", 24)
    write(48, 574, "Build one, train it, look inside.", 28, colour="white")
    write(816, 582, "Photograph: vultilion, CC BY 2.0", 18)
    return card


if __name__ == "__main__":
    for name, panel in panels().items():
        Image.fromarray(rearrange(panel, "c H W -> H W c").numpy()).save(
            STATIC / f"look-{name}.jpg", quality=90, subsampling=0
        )
    social_card().save(STATIC / "social.jpg", quality=78, optimize=True)
