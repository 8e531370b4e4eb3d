"""Any model as the tests need it: what it takes, what it returns, and whether it does so twice (chapter 12)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import isqrt, prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.attention_maps.maps import is_compiled
from vit_tutorial.clinic.symptoms import CannotTell, as_logits, evaluating
from vit_tutorial.clinic.trace import Call, hooked, trace
from vit_tutorial.validate import check_tiles, to_pair

HALF = (torch.float16, torch.bfloat16)
MOST_EXTRA_TOKENS = 8  # class token, distillation token, registers
CHANNELS = (1, 3, 4)
SIDES = (224, 32, 28, 64, 96, 128, 384, 256, 48, 16, 8)  # of images that are tried where the model says nothing
# What other people's code raises when it is given something that does not fit.
FAILURES = (RuntimeError, ValueError, AssertionError, TypeError, AttributeError, LookupError)
DROPOUTS = tuple(getattr(F, name) for name in dir(F) if name.endswith("dropout") and not name.startswith("_"))


class WithoutDropout(TorchFunctionMode):
    """In this context every dropout passes its input on, even one that was told to drop while evaluating."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in DROPOUTS or func is torch.dropout:
            return args[0] if args else kwargs["input"]
        return func(*args, **(kwargs or {}))


@contextmanager
def prepared(
    model: nn.Module, device: torch.device, *, channels_last: bool = False, shaken: bool = False
) -> Iterator[None]:
    """The model as the tests need it, for the length of a ``with`` block: evaluating and with gradients.

    It takes ``(b, c, H, W)`` and returns a tensor of logits, whatever it does otherwise. Half precision becomes
    float32, since its rounding is as large as what some tests look for. If ``shaken``, some noise is added to the
    parameters: a head, a layer scale or a table of positions that starts at 0 then hides nothing.

    Args:
        channels_last: whether it takes ``(b, H, W, c)``.

    Raises:
        ValueError: if it is compiled.
    """
    if is_compiled(model):
        raise ValueError("a compiled model runs no hooks: diagnose the model that was compiled")
    kept = [(tensor, tensor.data) for tensor in (*model.parameters(), *model.buffers())]
    hooks = [model.register_forward_hook(lambda part, args, out: as_logits(out))]
    if channels_last:
        hooks.append(model.register_forward_pre_hook(lambda part, args: (args[0].movedim(1, -1), *args[1:])))
    with (
        hooked(hooks),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
        evaluating(model),
    ):
        try:
            for tensor, data in kept:
                tensor.data = data.float() if data.dtype in HALF else data
            for parameter in model.parameters() if shaken else ():
                if parameter.is_floating_point():
                    fan_in = max(prod(parameter.shape[1:]), 1)
                    parameter.data = parameter.data + 0.1 * fan_in**-0.5 * torch.randn_like(parameter)
            yield
        finally:
            for tensor, data in kept:
                tensor.data = data


def random_like(tensor: Tensor) -> Tensor:
    """Normal numbers in the shape of ``tensor``, drawn without touching anybody's generator."""
    numbers = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0))
    return numbers.to(tensor)


def far(a: Tensor, b: Tensor) -> float:
    """The distance from ``a`` to ``b``, as a fraction of b's length."""
    return ((a - b).norm() / b.norm().clamp(min=1e-12)).item()


def device_of(model: nn.Module) -> torch.device:
    """Where the model's weights are, and the CPU if it has none."""
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))


# Images ---------------------------------------------------------------------------------------------------------------


def is_channels_last(model: nn.Module, images: Float[Tensor, "b ..."]) -> bool:
    """Whether a batch is ``(b, H, W, c)``, as Keras and Flax have it."""
    first = next((part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    if first is not None:
        return images.shape[-1] == first != images.shape[1]
    return images.shape[-1] in CHANNELS and images.shape[1] >= 8


def check_images(images: Tensor) -> None:
    """Raise a ValueError unless these are a floating-point batch of at least 2 images."""
    if images.ndim != 4 or len(images) < 2 or not images.is_floating_point():
        got = f"{tuple(images.shape)}, {images.dtype}"
        raise ValueError(f"images must be floating point, (b, c, H, W) with b at least 2; got {got}")


def make_images(model: nn.Module) -> tuple[Float[Tensor, "b c H W"], bool]:
    """Random images that the model takes, and whether it takes them with the channels last.

    Their size is what some part of the model says, or what its positions tell, or a usual one. There are 4 of them, or
    as many as the model insists on.

    Raises:
        ValueError: if it takes none of those that were tried.
    """
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    channels = _channels(model)
    rows = sorted({p.shape[0] for p in model.parameters() if p.ndim == 3 and p.shape[0] > 1} - {4})
    sizes = _sizes(model)
    said, failure = "", None
    for height, width in sizes:
        for c in channels:
            for b in (4, *(rows if (height, width) == sizes[0] else ())):
                images = random_like(torch.empty(b, c, height, width, device=weight.device, dtype=weight.dtype))
                for last in (False, True):
                    try:
                        with torch.no_grad():
                            out = as_logits(model(images.movedim(1, -1) if last else images))
                    except FAILURES as error:
                        failure = failure or error
                        continue
                    if out.ndim in (2, 3) and len(out) == b:
                        return images, last
                    said = said or f"it returned {tuple(out.shape)} for {b} images"
    tried = ", ".join(f"{h}×{w}" for h, w in sizes)
    why = said or f"{type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}"
    raise ValueError(
        f"{type(model).__name__} is not a Vision Transformer of vit_tutorial, timm, torchvision or Hugging Face, and "
        f"random images of {tried} pixels did not make logits (b, k): {why}. Pass a batch that it takes: "
        "diagnose(model, images)"
    )


def _attributes(model: nn.Module, names: tuple[str, ...]) -> list:
    """What the parts of a model, or their configs, say under these names."""
    holders = [holder for part in model.modules() for holder in (part, getattr(part, "config", None)) if holder]
    return [value for holder in holders for name in names if (value := getattr(holder, name, None)) is not None]


def _pairs(values: list) -> list[tuple[int, int]]:
    """Those that are a size in pixels."""
    pairs = []
    for value in values:
        try:
            pairs.append(to_pair("size", value))
        except ValueError:
            continue
    return list(dict.fromkeys(pairs))


def _channels(model: nn.Module) -> tuple[int, ...]:
    first = next((part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)), None)
    names = ("in_chans", "in_channels", "num_channels", "channels", "n_channels")
    said = [first] if first else _attributes(model, names)
    return tuple(dict.fromkeys([*(c for c in said if isinstance(c, int) and 0 < c <= 16)][:1] or (3, 1)))


def _sizes(model: nn.Module) -> list[tuple[int, int]]:
    said = _pairs(_attributes(model, ("img_size", "image_size", "input_size", "img_dim", "image_dim")))
    patches = _pairs(_attributes(model, ("patch_size",)))
    patches += [part.kernel_size for part in model.modules() if _cuts(part)]
    for name, parameter in model.named_parameters():
        if (parameter.ndim == 3 and len(parameter) == 1) or (parameter.ndim == 2 and "pos" in name.lower()):
            for extra in range(3):
                side = isqrt(max(parameter.shape[-2] - extra, 0))
                if side > 1 and side * side == parameter.shape[-2] - extra:
                    said += [(side * ph, side * pw) for ph, pw in patches[:1]]
    return list(dict.fromkeys([*said, *((side, side) for side in SIDES)]))


def _cuts(part: nn.Module) -> bool:
    """Whether this is a convolution that cuts images into patches side by side."""
    return isinstance(part, nn.Conv2d) and part.kernel_size == part.stride and prod(part.stride) > 1


def guess_patch_size(model: nn.Module, images: Float[Tensor, "b c H W"]) -> tuple[int, int] | None:
    """What the first convolution cuts, or a part says, or the first linear layer takes, if it tiles the images."""
    first = next((part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)), None)
    said = [first.kernel_size] if first is not None and _cuts(first) else []
    said += _attributes(model, ("patch_size",))
    if isinstance(first, nn.Linear) and (side := isqrt(first.in_features // images.shape[1])) > 1:
        said += [side] * (side * side * images.shape[1] == first.in_features)
    for patch_size in _pairs(said):
        if all(side % p == 0 for side, p in zip(images.shape[2:], patch_size, strict=True)):
            return patch_size
    return None


# A model and its images -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExaminedModel:
    """Any model from images to logits, as far as it can be examined without knowing its parts.

    Attributes:
        model: the whole, prepared.
        images: at least 2.
        patch_size: pixels, (height, width); None if unknown.
    """

    model: nn.Module
    images: Float[Tensor, "b c H W"]
    patch_size: tuple[int, int] | None

    @classmethod
    def of(
        cls, model: nn.Module, images: Float[Tensor, "b c H W"], patch_size: int | tuple[int, int] | None
    ) -> "ExaminedModel":
        """A prepared model with its images.

        Raises:
            ValueError: if it returns no logits for them, or the patches do not tile them.
        """
        if patch_size is not None:
            _, patch_size = check_tiles(tuple(images.shape[2:]), patch_size)
        images = images.detach().clone(memory_format=torch.contiguous_format)  # of inference mode, they had no gradient
        examined = cls(model, images.float() if images.dtype in HALF else images, patch_size)
        try:
            _ = examined.logits
        except FAILURES as error:
            if str(error).startswith("a model must return logits"):
                raise
            shape = tuple(images.shape)
            raise ValueError(f"{type(model).__name__} does not take images {shape}: {error}") from error
        if examined.logits.ndim not in (2, 3) or len(examined.logits) != len(images):
            raise ValueError(f"{len(images)} images should give logits (b, k), got {tuple(examined.logits.shape)}")
        return examined

    @property
    def num_patches(self) -> int:
        height, width = self.images.shape[2:]
        return (height // self.patch_size[0]) * (width // self.patch_size[1])

    @cached_property
    @torch.no_grad()
    def logits(self) -> Float[Tensor, "b ..."]:
        return self.model(self.images)

    @cached_property
    def calls(self) -> list[Call]:
        """Of all parts, in the order in which they began."""
        return trace(self.model, self.images)

    def repeats(self) -> bool:
        """Whether the same batch gives the same outputs a second and a third time."""
        with torch.no_grad():
            again = [self.model(self.images) for _ in range(2)]
        return all(torch.allclose(outputs, self.logits, rtol=1e-5, atol=1e-7) for outputs in again)

    def embed(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        """The first sequence that any part of the model takes: as many vectors as patches, or a few more.

        Raises:
            CannotTell: if no part takes one.
        """
        fewest, seen = self.num_patches, []

        def look(part: nn.Module, args: tuple) -> None:
            x = args[0] if args else None
            is_sequence = isinstance(x, Tensor) and x.ndim == 3 and len(x) == len(images)
            if is_sequence and not seen and fewest <= x.shape[1] <= fewest + MOST_EXTRA_TOKENS:
                seen.append(x.clone())  # the model may go on in place

        with hooked([part.register_forward_pre_hook(look) for part in self.model.modules()]):
            self.model(images)
        if not seen:
            raise CannotTell(f"no part of the model takes a sequence of {fewest} patches, or of a few tokens more")
        return seen[0]
