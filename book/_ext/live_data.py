"""What the live figures of the chapters show, computed when the book is built: one function for each."""

import io
import math
from base64 import b64encode

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image
from torch.nn.functional import normalize

from vit_tutorial.runs import load_recorded


def webp(pixels: np.ndarray, quality: int) -> str:
    """An image ``(H, W, 3)`` of bytes as an address that has it inside."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "webp", quality=quality, method=6)
    return f"data:image/webp;base64,{b64encode(file.getvalue()).decode()}"


def patches() -> dict:
    """Chapter 1's photograph, 224 pixels square, and the patch sizes that tile it."""
    photo = load_sample_image("china.jpg")[96:320, 208:432]
    side = len(photo)
    return {"side": side, "sizes": [size for size in range(1, side + 1) if side % size == 0], "photo": webp(photo, 50)}


def positions() -> dict:
    """The cosines, in hundredths, of a learned table's rows with those before them; the formulas' tables need no data."""
    model, _ = load_recorded("cifar10-tiny-mild")
    rows = normalize(model.pos_embed[0, 1:].detach(), dim=1)  # without the class token's
    learned = (100 * rows @ rows.T).round().int().tolist()
    return {
        "side": model.config.grid_size[0],
        "dim": 32,
        "lowest": 0.6,
        "learned": [row[:i] for i, row in enumerate(learned)],
    }


def attention() -> dict:
    """Chapter 3's three tokens: rows of queries and keys, and their values in the plane."""
    return {
        "names": ["roof", "tree", "sky"],
        "features": ["roof-like", "tree-like", "sky-like", "any patch"],
        "queries": [[2, 0, 0, 2], [0, 0, 2, 0], [0, 0, 0, 2]],
        "keys": [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]],
        "values": [[12, 0], [0, 12], [0, 0]],
        "base": math.log(2),  # with a pencil, powers of 2
    }
