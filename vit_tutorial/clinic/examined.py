"""Any model as the tests need it: what it takes, what it returns, and whether it does so twice (chapter 12)."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.attention_maps.maps import is_compiled
from vit_tutorial.clinic.symptoms import CannotTell, as_logits, evaluating
from vit_tutorial.clinic.trace import Call, DoesNotRun, hooked, opened, trace
from vit_tutorial.validate import check_tiles

HALF = (torch.float16, torch.bfloat16)
NO_GRADIENT = "the outputs have no gradient"
MOST_EXTRA_TOKENS = 8  # class token, distillation token, registers
DROPOUTS = tuple(getattr(F, name) for name in dir(F) if name.endswith("dropout") and not name.startswith("_"))


class WithoutDropout(TorchFunctionMode):
    """In this context every dropout passes its input on, even one that was told to drop while evaluating."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in DROPOUTS or func is torch.dropout:
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention and len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])
        elif func is F.scaled_dot_product_attention:
            kwargs = kwargs | {"dropout_p": 0.0}
        return func(*args, **kwargs)


def draw_from(seed: int) -> None:
    """Start all generators that a model may draw from."""
    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    # Without a GPU, torch.manual_seed notes each time from where it was called, for one that might come.
    (torch.manual_seed if has_gpu else torch.default_generator.manual_seed)(seed)
    random.seed(seed)
    np.random.seed(seed)


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """At the end of a ``with`` block all generators go on where they were."""
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def prepared(
    model: nn.Module, device: torch.device, *, channels_last: bool = False, shaken: bool = False
) -> Iterator[None]:
    """The model as the tests need it, for the length of a ``with`` block: evaluating and with gradients.

    It takes ``(b, c, H, W)`` and returns a tensor of logits, whatever it does otherwise. Half precision becomes
    float32, since its rounding is as large as what some tests look for. If it draws random numbers, they are the same
    in each pass. If ``shaken``, some noise is added to the parameters: a head, a layer scale or a table of positions
    that starts at 0 then hides nothing.

    Args:
        channels_last: whether it takes ``(b, H, W, c)``.

    Raises:
        ValueError: if it is compiled.
    """
    if is_compiled(model):
        raise ValueError("a compiled model runs no hooks: diagnose the model that was compiled")
    if isinstance(model, nn.DataParallel | torch.jit.ScriptModule):
        kind = "nn.DataParallel copies" if isinstance(model, nn.DataParallel) else "TorchScript compiles"
        raise ValueError(f"{kind} a model: diagnose the model itself")
    kept = [(tensor, tensor.data) for tensor in (*model.parameters(), *model.buffers())]
    hooks = [model.register_forward_hook(lambda part, args, out: as_logits(out))]
    hooks.append(model.register_forward_pre_hook(lambda part, args: draw_from(0)))
    if channels_last:
        hooks.append(model.register_forward_pre_hook(lambda part, args: (args[0].movedim(1, -1), *args[1:])))
    with (
        hooked(hooks),
        opened(model),
        generators_kept(device),
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
                    fan_in = max(prod(parameter.shape[2 if parameter.ndim == 3 else 1 :]), 1)
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


# A model and its images -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExaminedModel:
    """Any model from images to logits, as far as it can be examined without knowing its parts.

    Attributes:
        model: the whole, prepared.
        images: at least 2, or the only one that it takes at a time.
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
            logits = examined.logits
        except DoesNotRun as error:
            shape = tuple(images.shape)
            raise ValueError(f"{type(model).__name__} does not take images {shape}: {error}") from error
        if logits.ndim not in (2, 3) or len(logits) != len(images):
            raise ValueError(f"{len(images)} images should give logits (b, k), got {tuple(logits.shape)}")
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

    @cached_property
    @torch.no_grad()
    def draws(self) -> bool:
        """Whether a forward pass draws from a generator."""
        self.model(self.images)
        after = self._states()
        draw_from(0)
        return after != self._states()

    def _states(self) -> tuple:
        states = [torch.get_rng_state()]
        states += [torch.cuda.get_rng_state(self.images.device)] if self.images.is_cuda else []
        _, keys, place, *_ = np.random.get_state()
        return [state.tolist() for state in states], random.getstate(), keys.tolist(), place

    @torch.no_grad()
    def moved_by_chance(self) -> float:
        """How far the outputs for the same batch are from those of a pass before, at most; 0 up to rounding.

        A model that draws random numbers is asked often: its dropout may be one of whole layers, and rare.
        """
        outputs = self.logits
        for seed in range(1, 4000 if self.draws else 100, 97):  # 42 passes, or 2
            with hooked([self.model.register_forward_pre_hook(lambda part, args, seed=seed: draw_from(seed))]):
                again = self.model(self.images)
            if not torch.allclose(again, outputs, rtol=1e-5, atol=1e-7):
                return far(again, outputs)
        return 0.0

    @cached_property
    def no_gradient(self) -> str:
        """Why the outputs have no gradient; "" if they have one."""
        images = self.images.clone().requires_grad_()
        wanted = [parameter for parameter in self.model.parameters() if parameter.requires_grad] or [images]
        try:
            outputs = self.model(images)
            if not outputs.requires_grad:
                return NO_GRADIENT
            torch.autograd.grad(outputs.sum(), wanted, allow_unused=True)
        except RuntimeError as error:
            return str(DoesNotRun(error))
        return ""

    def embed(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        """The first sequence that any part of the model takes: as many vectors as patches, or a few more.

        Raises:
            CannotTell: if no part takes one.
        """
        fewest, seen, windows = self.num_patches, [], []

        def look(part: nn.Module, args: tuple) -> None:
            x = args[0] if args else None
            if isinstance(x, Tensor) and x.ndim == 3 and len(x) > len(images) and not seen:
                windows.append(tuple(x.shape))
            is_sequence = isinstance(x, Tensor) and x.ndim == 3 and len(x) == len(images)
            if is_sequence and not seen and fewest <= x.shape[1] <= fewest + MOST_EXTRA_TOKENS:
                seen.append(x.clone())  # the model may go on in place

        with hooked([part.register_forward_pre_hook(look) for part in self.model.modules()]):
            self.model(images)
        if windows:
            raise CannotTell(f"a part takes {windows[0]}, more sequences than images, before one takes all the patches")
        if not seen:
            raise CannotTell(f"no part of the model takes a sequence of {fewest} patches, or of a few tokens more")
        return seen[0]
