"""The Python side of the page "Draw a digit": weights as text, strokes as images, and what one can do to a model."""

import base64
import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from inspect import signature

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from vit_tutorial.archs.patients import PATIENTS
from vit_tutorial.attention import Attend, plain_attention
from vit_tutorial.data import Dataset
from vit_tutorial.model import ViT
from vit_tutorial.recipes import Recipe
from vit_tutorial.runs import FOLDER
from vit_tutorial.training.loop import evaluate
from vit_tutorial.validate import check_between, check_option, checked

CAN_RUN = {"in_chans": 1, "pos_embed": "sincos_2d", "pool": "cls", "act": "gelu", "final_norm": True, "qkv_bias": True}


@checked
def export_model(model: ViT, recipe: Recipe) -> dict:
    """All that ``vit.mjs`` needs, ready for JSON: sizes, the tensors' names and lengths, and their numbers.

    The numbers are in half precision, as recorded runs keep them: all their high bytes, then all their low ones, in
    base64. High bytes are alike, so apart from the others they pack into 20 kB less.

    Raises:
        ValueError: if the page's model lacks an option that this one has, or a weight does not fit half precision.
    """
    lacking = {name: (getattr(recipe.model, name), can) for name, can in CAN_RUN.items()}
    lacking = [f"{name}={has!r}, not {can!r}" for name, (has, can) in lacking.items() if has != can]
    if recipe.arch != "vit" or lacking:
        raise ValueError(f"the page runs a vit with these options only; got {recipe.arch} with {'; '.join(lacking)}")
    tensors = {name: tensor.detach().flatten() for name, tensor in model.state_dict().items()}
    numbers = torch.cat(list(tensors.values()))
    halves = numbers.half()
    if not halves.isfinite().all():
        raise ValueError(f"weights up to {numbers.abs().max():.3g} do not fit half precision, which ends at 65,504")
    content = halves.numpy().astype(">f2").view(np.uint8).reshape(-1, 2).T.tobytes()
    sizes = ("img_size", "patch_size", "embed_dim", "depth", "num_heads", "num_classes")
    return {
        "config": {name: getattr(recipe.model, name) for name in sizes} | {"mean": recipe.mean, "std": recipe.std},
        "tensors": [[name, tensor.numel()] for name, tensor in tensors.items()],
        "checksum": zlib.adler32(content),
        "float16": base64.b64encode(content).decode(),
    }


@checked
def as_script(name: str, exported: dict) -> str:
    """What :func:`export_model` gives as a file of JavaScript: a page that was opened from disk may load no other."""
    return f"(globalThis.models ??= {{}})[{json.dumps(name)}] = {json.dumps(exported, separators=(',', ':'))};\n"


SIDE, BOX, PEN = 28, 20, 2.4  # pixels

Strokes = Sequence[Sequence[Sequence[float]]]  # points (x, y)


@checked
def draw_strokes(strokes: Strokes) -> UInt8[Tensor, "28 28"]:
    """Lists of points, in any unit, to an image made the way MNIST's were; ``digit.mjs`` gives the same bytes.

    The digit fills a box of 20 × 20, and its centre of mass is moved to the middle by whole pixels.

    Returns:
        ``(28, 28)``: 0 is paper, 255 ink.

    Source: LeCun et al. 1998, section III.A, for box and centre.
    """
    ends = np.array(
        [(points[max(i - 1, 0)], point) for points in strokes for i, point in enumerate(points)], dtype=float
    )
    if not len(ends):
        return torch.zeros(SIDE, SIDE, dtype=torch.uint8)
    if ends.shape[1:] != (2, 2) or not np.isfinite(ends).all():
        raise ValueError(f"strokes must be lists of finite points (x, y), got {strokes!r:.80}")
    low, high = ends[:, 1].min(0), ends[:, 1].max(0)
    extent = (high - low).max()
    (ax, ay), (bx, by) = np.moveaxis(
        (ends - (low + high) / 2) * ((BOX - PEN) / extent if extent else 1) + SIDE / 2, 0, -1
    )
    y, x = np.mgrid[:SIDE, :SIDE][..., None] + 0.5  # the middle of each pixel, and an axis for the segments
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    along = np.clip(((x - ax) * dx + (y - ay) * dy) / np.where(length > 0, length, 1), 0, 1)
    ex, ey = x - (ax + along * dx), y - (ay + along * dy)
    ink = np.clip(PEN / 2 + 0.5 - np.sqrt((ex * ex + ey * ey).min(-1)), 0, 1)
    image = np.floor(ink * 255 + 0.5).astype(np.uint8)
    return torch.from_numpy(_centred(image))


def _centred(image: np.ndarray) -> np.ndarray:
    """Moved by whole pixels until the centre of mass lies in pixel 14 of both axes; what leaves the image is lost."""
    mass = image.sum(dtype=int)
    down, right = (SIDE // 2 - (image.sum(axis=1 - axis, dtype=int) @ np.arange(SIDE)) // mass for axis in (0, 1))
    moved = np.pad(image, SIDE)
    return moved[SIDE - down : 2 * SIDE - down, SIDE - right : 2 * SIDE - right].copy()


def _replace_attend(model: ViT, attend: Attend) -> None:
    for block in model.blocks:
        block.attn.attend = attend


@checked
def _mute_head(model: ViT, block: int, head: int) -> None:
    check_between("block", block, 0, model.config.depth - 1)
    check_between("head", head, 0, model.config.num_heads - 1)
    attn = model.blocks[block].attn
    width = model.config.embed_dim // model.config.num_heads

    def mute(proj: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        mixed = args[0].clone()
        mixed[..., head * width : (head + 1) * width] = 0
        return (mixed,)

    attn.proj.register_forward_pre_hook(mute)


@checked
def _mute_block(model: ViT, block: int) -> None:
    check_between("block", block, 0, model.config.depth - 1)
    model.blocks[block] = nn.Identity()


@checked
def _shuffle_tokens(model: ViT, order: Sequence[int]) -> None:
    _check_order(model, order)
    rows = torch.tensor([0, *(1 + row for row in order)])  # the class token stays in front
    model.blocks[0].register_forward_pre_hook(lambda part, args: (args[0][:, rows],))


@checked
def _shuffle_patches(model: ViT, order: Sequence[int]) -> None:
    _check_order(model, order)
    model.patch_embed.register_forward_hook(lambda part, args, out: out[:, list(order)])


def _check_order(model: ViT, order: Sequence[int]) -> None:
    if sorted(order) != [*range(model.config.num_patches)]:
        raise ValueError(f"order must have each of {model.config.num_patches} patches once, got {order}")


@checked
def _set_temperature(model: ViT, temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be above 0 and finite, got {temperature}")
    _replace_attend(model, lambda q, k, v: plain_attention(q / temperature, k, v))


def _as_patient(name: str) -> Callable[[ViT], ViT]:
    def fall_ill(model: ViT) -> ViT:
        sick = PATIENTS[name].make(model.config).to(model.patch_embed.proj.weight).train(model.training)
        sick.load_state_dict(model.state_dict())
        return sick

    return fall_ill


# What one can do to a healthy model, by the names in interventions.mjs. Each changes the model that it is given; those
# of the clinic return a sick one with its weights instead.
INTERVENTIONS: dict[str, Callable[..., object]] = {
    "muteHead": _mute_head,
    "muteBlock": _mute_block,
    "uniform": lambda model: _replace_attend(model, lambda q, k, v: v.mean(-2, keepdim=True).expand_as(v)),
    "shuffleTokens": _shuffle_tokens,
    "shufflePatches": _shuffle_patches,
    "noPositions": lambda model: model.pos_embed.zero_(),
    "temperature": _set_temperature,
    "unscaled": lambda model: _replace_attend(model, lambda q, k, v: (q @ k.mT).softmax(dim=-1) @ v),
    "reshape": _as_patient("reshape without permute"),
    "deadNorm": _as_patient("dead residual norm"),
    "allTokens": _as_patient("head on all tokens"),
    "acrossBatch": _as_patient("attention across the batch"),
}


@checked
@torch.no_grad()
def intervene(model: ViT, name: str, **choices) -> ViT:
    """A copy of the model with one thing changed, by its name in ``INTERVENTIONS``.

    Raises:
        ValueError: if there is no such intervention, or the choices are others than :func:`choices_of` has.
    """
    check_option("name", name, INTERVENTIONS)
    _, *wanted = signature(INTERVENTIONS[name]).parameters
    if set(wanted) != choices.keys():
        raise ValueError(f"choices for {name} must be {', '.join(wanted) or 'none'}; got {choices}")
    changed = deepcopy(model)
    sick = INTERVENTIONS[name](changed, **choices)
    return sick if isinstance(sick, ViT) else changed


MEASURED = FOLDER / "live" / "interventions.json"  # book/interventions.py writes it
ORDERS = 5  # shuffles, each the same for all images
TEMPERATURES = (0.25, 0.5, 2.0, 4.0)


@checked
def choices_of(name: str, model: ViT) -> list[dict]:
    """What the page lets one choose for an intervention, as the arguments of :func:`intervene`."""
    check_option("name", name, INTERVENTIONS)
    config = model.config
    if name == "muteHead":
        return [{"block": block, "head": head} for block in range(config.depth) for head in range(config.num_heads)]
    if name == "muteBlock":
        return [{"block": block} for block in range(config.depth)]
    if name == "temperature":
        return [{"temperature": temperature} for temperature in TEMPERATURES]
    if name.startswith("shuffle"):
        seeds = [torch.Generator().manual_seed(seed) for seed in range(ORDERS)]
        return [{"order": torch.randperm(config.num_patches, generator=seed).tolist()} for seed in seeds]
    return [{}]


@checked
def measure(model: ViT, test: Dataset, recipe: Recipe) -> Iterator[dict]:
    """The accuracy on ``test``, in 0..1, of the model as it is and after each intervention, one row for each choice."""
    yield {"name": "healthy", "choices": {}, "accuracy": evaluate(model, test, recipe)["accuracy"]}
    for name in INTERVENTIONS:
        one_by_one = replace(recipe, batch_size=1) if name == "acrossBatch" else recipe  # as in the page
        for choices in choices_of(name, model):
            accuracy = evaluate(intervene(model, name, **choices), test, one_by_one)["accuracy"]
            yield {"name": name, "choices": choices, "accuracy": accuracy}
