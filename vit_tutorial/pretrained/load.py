"""Weights that others have trained: fetched once, checked, and made to fit (chapter 9)."""

import pickle
from dataclasses import dataclass, replace
from math import isqrt, prod
from pathlib import Path

import torch
from jaxtyping import Float
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from vit_tutorial.attention import Attention
from vit_tutorial.borders import at_fault, reason
from vit_tutorial.data import data_root
from vit_tutorial.data.sources import WEIGHTS, fetch_files, weights_file
from vit_tutorial.encoder import Block
from vit_tutorial.model import ViT
from vit_tutorial.modern import ModernAttention, ModernBlock, ModernViT
from vit_tutorial.patches import PatchEmbed
from vit_tutorial.positions import resample_pos_embed
from vit_tutorial.pretrained.models import with_eps
from vit_tutorial.pretrained.parts import maker, unpacked, with_our_positions
from vit_tutorial.pretrained.state_dicts import convert, from_state_dict, read_shape, with_parts
from vit_tutorial.validate import check_option, checked, to_pair

NAMES = WEIGHTS
BLOCKS = (Block, ModernBlock, Attention, ModernAttention, nn.Identity)  # what adapt can make anew


@dataclass(frozen=True)
class Published:
    """What comes with published weights but is not in their file: see :func:`published`.

    Attributes:
        classes: a name for each class index.
        img_size: (height, width) that the model takes.
        crop_pct: fraction of the resized picture's side that the crop keeps.
        mean: of each channel, for pixels in 0..1.
        std: likewise.
    """

    classes: tuple[str, ...]
    img_size: tuple[int, int]
    crop_pct: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def preprocess(self, image: Image.Image) -> Float[Tensor, "3 H W"]:
        """A picture of any size as the model wants it: resized until the crop fits in, cut to its middle, normalised.

        With ``crop_pct`` 1 and an ``img_size`` of the picture's own proportions nothing is cut off.
        """
        import torchvision.transforms.functional as TF  # takes a second

        (height, width), (wide, tall) = self.img_size, image.size
        if height * wide >= width * tall:  # the picture is the wider one: its height decides
            height = round(height / self.crop_pct)
            width = height * wide // tall
        else:
            width = round(width / self.crop_pct)
            height = width * tall // wide
        resized = TF.resize(image.convert("RGB"), (height, width))
        pixels = TF.pil_to_tensor(TF.center_crop(resized, self.img_size))
        return TF.normalize(pixels / 255, self.mean, self.std)


def published(name: str) -> Published:
    """Class names and preprocessing of the weights ``name``; needs no network.

    Raises:
        ValueError: if there are no weights of that name.
    """
    weights = _weights(name)
    transform = weights.transforms()
    return Published(
        classes=tuple(weights.meta["categories"]),
        img_size=(transform.crop_size[0],) * 2,
        crop_pct=transform.crop_size[0] / transform.resize_size[0],
        mean=tuple(transform.mean),
        std=tuple(transform.std),
    )


def load_pretrained(
    source: str | Path,
    *,
    img_size: int | tuple[int, int] | None = None,
    num_classes: int | None = None,
    num_heads: int | None = None,
    progress: bool = True,
) -> ViT:
    """A model with trained weights, in evaluation mode.

    Args:
        source: ``"vit_b_16"``, ``"vit_b_32"``, ``"vit_l_16"`` or ``"vit_l_32"``: torchvision's weights, trained on
            ImageNet-1k, which are fetched into torch's cache on first use. Or a file, ``.safetensors`` or one of
            ``torch.save``, with timm's, torchvision's or Hugging Face's names; timm's may be of a model with
            LayerScale, RMSNorm, SwiGLU, QK-norm, registers or attention pooling, and make a
            :class:`~vit_tutorial.modern.ModernViT`.
        img_size: see :func:`adapt`. A file whose positions form no square, or that has as many of them as this size
            has patches, was trained on this size.
        num_classes: see :func:`adapt`.
        num_heads: of a file whose size is not a published one.
        progress: whether to show the download.

    Raises:
        FileNotFoundError: if the file is not there, or cannot be fetched; the message says what was tried.
        PermissionError: if the file is there and you may not read it.
        ValueError: if it is damaged or fits no ViT; the message lists what is wrong.
    """
    if source in NAMES:
        model = from_state_dict(_fetch(str(source), progress), num_heads=num_heads)
    else:
        found = _read(Path(source))
        with at_fault(f"{source}: ", why=str):
            model = _from_file(found, img_size, num_heads)
    return adapt(model, img_size=img_size, num_classes=num_classes).eval()


def _from_file(state: dict[str, Tensor], img_size: int | tuple[int, int] | None, num_heads: int | None) -> ViT:
    state = with_our_positions(unpacked(convert(state)))
    patches = read_shape(state, "pos_embed")[1] - ("cls_token" in state) if "pos_embed" in state else 0
    square = isqrt(patches) ** 2 == patches
    own_size = img_size if not square or _num_patches(state, img_size) == patches else None
    return with_parts(state, num_heads=num_heads, img_size=own_size)


@checked
def adapt(model: ViT, *, img_size: int | tuple[int, int] | None = None, num_classes: int | None = None) -> ViT:
    """A copy of ``model`` for another image size or other classes, or ``model`` itself where nothing changes.

    Learned positions are resampled to the new grid, sine-cosine tables computed for it. For another number of classes
    the head is drawn anew, as :func:`~vit_tutorial.init_weights` does.

    Args:
        img_size: pixels, an int or a (height, width) pair; None keeps what is there.
        num_classes: outputs of the head, 0 for none; None keeps what is there.

    Raises:
        ValueError: if the patches do not tile the image, or the model has parts of other kinds: rotary or relative
            positions, for example, are made for a grid.

    Source: Dosovitskiy et al. 2021, section 3.2.
    """
    _check_known(model)
    changes = {"img_size": img_size, "num_classes": num_classes}
    config = replace(model.config, **{name: value for name, value in changes.items() if value is not None})
    if config == model.config:
        return model
    state = model.state_dict()
    make = type(model) if maker(state) is ViT else maker(state)
    adapted = with_eps(make(config, attend=model.blocks[0].attn.attend), model.blocks[0].norm1.eps)
    if isinstance(model, ModernViT):
        adapted.patch_drop.prob = model.patch_drop.prob
    if "pos_embed" in state:
        old, new = model.config.grid_size, config.grid_size
        state["pos_embed"] = resample_pos_embed(state["pos_embed"], old, new, config.num_prefix_tokens)
    if config.num_classes != model.config.num_classes:
        state = {name: value for name, value in state.items() if not name.startswith("head.")}
        state |= {f"head.{name}": value for name, value in adapted.head.state_dict().items()}
    adapted.load_state_dict(state)
    return adapted.to(model.patch_embed.proj.weight).train(model.training)


def _check_known(model: ViT) -> None:
    """Raise a ValueError unless a model of another size can be made from what the weights tell."""
    parts = [part for block in model.blocks for part in (block, block.attn, getattr(block.attn, "rope", None))]
    for part in (model, model.patch_embed, *parts):
        if part is not None and type(part) not in (ViT, ModernViT, PatchEmbed, *BLOCKS):
            raise ValueError(
                f"adapt does not know how to make a {type(part).__name__} for another size. Make the model anew, and "
                "load the weights into it; resample_pos_embed and resample_bias_table fit them"
            )


def _num_patches(state: dict[str, Tensor], img_size: int | tuple[int, int] | None) -> int | None:
    """The number of patches of an image of this size, for these weights; None if they don't determine it."""
    weight = state.get("patch_embed.proj.weight")
    if img_size is None or weight is None or weight.ndim != 4:
        return None
    return prod(side // p for side, p in zip(to_pair("img_size", img_size), weight.shape[2:], strict=True))


def _weights(name: str):
    """torchvision's member of ``WeightsEnum``."""
    from torchvision.models import get_model_weights

    check_option("name", name, NAMES)
    return get_model_weights(name).DEFAULT


def _fetch(name: str, progress: bool) -> dict[str, Tensor]:
    """torchvision's state dict: from torch's cache, else downloaded and compared with the hash in its name."""
    fetch_files(name, data_root(), progress=progress)
    _, file = weights_file(name)
    try:
        return _read(file)
    except ValueError as error:
        raise ValueError(f"{error}. Move it elsewhere, and it is fetched again") from error


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file; nothing in it is run."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}, and published weights are called {', '.join(NAMES)}")
    try:
        path.open("rb").close()
    except PermissionError as error:  # it says nothing about what is in the file
        raise PermissionError(f"{path} cannot be opened: {error.strerror}. Ask for the right to read it") from error
    with at_fault(f"{path} is damaged, or no file of weights: ", why=_why):
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        inside = ", ".join(map(str, list(state)[:6])) if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"{path} isn't a state dict, but holds {inside}. Save the state dict in it by itself")
    return state


def _why(error: Exception) -> str:
    """The first sentence of what torch has to say."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors, which could run code of its author"
    return reason(error).partition(". ")[0].rstrip(".")
