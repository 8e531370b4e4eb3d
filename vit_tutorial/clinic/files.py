"""A model in a Python file, and pictures in a folder: what ``vit-tutorial diagnose`` takes (chapter 12)."""

import importlib.util
import sys
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.clinic.diagnosis import diagnose
from vit_tutorial.clinic.examined import device_of, prepared
from vit_tutorial.clinic.inputs import make_images
from vit_tutorial.clinic.report import Diagnosis
from vit_tutorial.clinic.trace import FAILURES
from vit_tutorial.data.headers import IMG_EXTENSIONS
from vit_tutorial.data.images import decode_all
from vit_tutorial.data.layout import images_in

MOST_PICTURES = 4


def diagnose_file(source: str, images: str = "", *, patch_size: int | None = None) -> Diagnosis:
    """What :func:`~vit_tutorial.clinic.diagnose` finds in the model of a file.

    Args:
        source: ``FILE.py:make_model``.
        images: a folder; "" for random images.
        patch_size: pixels; None for what the model says.

    Raises:
        ValueError: if the file or the folder does not hold what is needed; and what ``diagnose`` raises.
    """
    model = load_model(source)
    if not images:
        return diagnose(model) if patch_size is None else diagnose(model, _size_of(model)[0], patch_size=patch_size)
    return diagnose(model, load_pictures(images, model), patch_size=patch_size)


def load_model(source: str) -> nn.Module:
    """The model that a name in a Python file stands for. The file is run, and may import its neighbours.

    Args:
        source: ``FILE.py:NAME``, where the name is a module, or makes one when called without arguments.

    Raises:
        ValueError: if there is no such file or name, the file fails, or what comes out is no module.
    """
    path, colon, name = source.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise ValueError(f"the model must be FILE.py:make_model, a Python file and a name in it; got {source!r}")
    if not Path(path).is_file():
        raise ValueError(f"there is no Python file {path}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # dataclasses look themselves up
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
        if not hasattr(module, name):
            found = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise ValueError(f"{path} has no {name}; it has {', '.join(found) or 'nothing that can be called'}")
        value = getattr(module, name)
        model = value if isinstance(value, nn.Module) else value()
    except (SyntaxError, ImportError, OSError, ArithmeticError, *FAILURES) as error:
        if isinstance(error, ValueError) and str(error).startswith(f"{path} has no"):
            raise
        raise ValueError(f"{source} made no model: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(Path(path).resolve().parent))
    if not isinstance(model, nn.Module):
        raise ValueError(f"{source} must make an nn.Module, got {type(model).__name__}")
    return model


def load_pictures(folder: str, model: nn.Module) -> Float[Tensor, "b c H W"]:
    """The first few pictures of a folder, in the size and with the channels that the model takes, from −1 to 1.

    Raises:
        ValueError: if there are fewer than two, one is not a whole image, or no size is known that the model takes.
    """
    files = images_in(Path(folder))
    if len(files) < 2:
        raise ValueError(f"{folder} must hold at least 2 pictures ({', '.join(IMG_EXTENSIONS)}), found {len(files)}")
    like, last = _size_of(model)
    pixels = decode_all(files[:MOST_PICTURES], tuple(like.shape[2:])) / 127.5 - 1
    channels = like.shape[1]
    pixels = pixels.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1) if channels != 3 else pixels
    pixels = pixels.to(like)
    return pixels.movedim(1, -1) if last else pixels


def _size_of(model: nn.Module) -> tuple[Tensor, bool]:
    """Images that the model takes, and whether their channels are last."""
    with prepared(model, device_of(model)):
        return make_images(model)
