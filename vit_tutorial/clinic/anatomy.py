"""A model laid open: where its parts are, and a forward pass that keeps what goes through them (chapter 12)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from vit_tutorial.attention_maps.maps import is_compiled
from vit_tutorial.clinic.symptoms import CannotTell, as_logits, evaluating
from vit_tutorial.validate import check_tiles, to_pair

# Where the parts are in this package's models and timm's, in torchvision's, and in Hugging Face's. The part called
# ``sizes`` has patch_size, and img_size or image_size.
PARTS = (
    {
        "sizes": "patch_embed", "proj": "patch_embed.proj", "cls_token": "cls_token", "pos_embed": "pos_embed",
        "blocks": "blocks", "attn": "attn", "norm": "norm", "head": "head",
    },
    {
        "sizes": "", "proj": "conv_proj", "cls_token": "class_token", "pos_embed": "encoder.pos_embedding",
        "blocks": "encoder.layers", "attn": "self_attention", "norm": "encoder.ln", "head": "heads",
    },
    {
        "sizes": "vit.embeddings.patch_embeddings", "proj": "vit.embeddings.patch_embeddings.projection",
        "cls_token": "vit.embeddings.cls_token", "pos_embed": "vit.embeddings.position_embeddings",
        "blocks": "vit.layers", "attn": "attention", "norm": "vit.layernorm", "head": "classifier",
    },
)  # fmt: skip
HALF = (torch.float16, torch.bfloat16)
MOST_EXTRA_TOKENS = 8  # class token, distillation token, registers


@contextmanager
def _examined(model: nn.Module, device: torch.device, *, shaken: bool = False) -> Iterator[None]:
    """The model as the tests need it, for the length of a ``with`` block: evaluating and with gradients.

    Half precision becomes float32, since its rounding is as large as what some tests look for. If ``shaken``, some
    noise is added to the parameters: a head, a layer scale or a table of positions that starts at 0 then hides nothing.
    """
    if is_compiled(model):
        raise ValueError("a compiled model runs no hooks: diagnose the model that was compiled")
    kept = [(tensor, tensor.data) for tensor in (*model.parameters(), *model.buffers())]
    with (
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
                    fan_in = parameter[0].numel() if parameter.ndim > 1 else 1
                    parameter.data = parameter.data + 0.1 * fan_in**-0.5 * torch.randn_like(parameter)
            yield
        finally:
            for tensor, data in kept:
                tensor.data = data


@dataclass(frozen=True)
class ExaminedModel:
    """Any model from images to logits, as far as it can be examined without knowing its parts.

    Attributes:
        model: the whole, in evaluation mode, its parameters with a little noise.
        images: at least 2.
        patch_size: pixels, (height, width); None if unknown.
    """

    model: nn.Module
    images: Float[Tensor, "b c H W"]
    patch_size: tuple[int, int] | None

    @classmethod
    @contextmanager
    def of(
        cls, model: nn.Module, images: Tensor, patch_size: int | tuple[int, int] | None
    ) -> Iterator["ExaminedModel"]:
        """The model for the length of a ``with`` block.

        Raises:
            ValueError: if the model is compiled or returns no logits, the images are not a floating-point batch of at
                least 2, or the patches do not tile them.
        """
        if images.ndim != 4 or len(images) < 2 or not images.is_floating_point():
            got = f"{tuple(images.shape)}, {images.dtype}"
            raise ValueError(f"images must be floating point, (b, c, H, W) with b at least 2; got {got}")
        if patch_size is not None:
            _, patch_size = check_tiles(tuple(images.shape[2:]), patch_size)
        with _examined(model, images.device, shaken=True):
            images = images.detach().clone()  # made in inference mode, they could have no gradient
            examined = cls(model, images.float() if images.dtype in HALF else images, patch_size)
            if examined.logits.ndim not in (2, 3) or len(examined.logits) != len(images):
                raise ValueError(f"{len(images)} images should give logits (b, k), got {tuple(examined.logits.shape)}")
            yield examined

    @property
    def num_patches(self) -> int:
        height, width = self.images.shape[2:]
        return (height // self.patch_size[0]) * (width // self.patch_size[1])

    @cached_property
    @torch.no_grad()
    def logits(self) -> Float[Tensor, "b ..."]:
        return as_logits(self.model(self.images))

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

        hooks = [part.register_forward_pre_hook(look) for part in self.model.modules()]
        try:
            self.model(images)
        finally:
            for hook in hooks:
                hook.remove()
        if not seen:
            raise CannotTell(f"no part of the model takes a sequence of {fewest} patches, or of a few tokens more")
        return seen[0]


@dataclass(frozen=True)
class Anatomy(ExaminedModel):
    """The parts of a Vision Transformer that the tests ask for; its images are random.

    Attributes:
        proj: the projection of the patches.
        blocks: of the encoder.
        attentions: of those blocks that have one.
        norm: what follows the last block.
        head: what makes the logits.
        cls_token: its name and its values; None if there is none.
        pos_embed: the table's name and its values; None if there is none.
    """

    proj: nn.Module
    blocks: list[nn.Module]
    attentions: list[nn.Module]
    norm: nn.Module
    head: nn.Module
    cls_token: tuple[str, Tensor] | None
    pos_embed: tuple[str, Tensor] | None

    @classmethod
    @contextmanager
    def of(cls, model: nn.Module) -> Iterator["Anatomy"]:
        """The model's parts, for the length of a ``with`` block.

        Raises:
            ValueError: if the model is not made of the parts that are known here, or is compiled.
        """
        known = (parts for parts in PARTS if _has(model, parts["cls_token"]) and _has(model, parts["blocks"]))
        parts = next(known, None)
        if not parts:
            raise ValueError(
                f"{type(model).__name__} is not a Vision Transformer of vit_tutorial, timm, torchvision or Hugging "
                "Face. diagnose(model, images) takes any model from images to logits"
            )
        with _examined(model, next(model.parameters()).device):
            yield cls._find(model, parts)

    @classmethod
    def _find(cls, model: nn.Module, parts: dict[str, str]) -> "Anatomy":
        try:
            sizes = model.get_submodule(parts["sizes"])
            blocks = list(model.get_submodule(parts["blocks"]))
            examined = cls(
                model=model,
                images=_random_images(model, sizes),
                patch_size=to_pair("patch_size", sizes.patch_size),
                proj=model.get_submodule(parts["proj"]),
                blocks=blocks,
                attentions=[getattr(block, parts["attn"]) for block in blocks if hasattr(block, parts["attn"])],
                norm=model.get_submodule(parts["norm"]),
                head=model.get_submodule(parts["head"]),
                cls_token=_named_tensor(model, parts["cls_token"]),
                pos_embed=_named_tensor(model, parts["pos_embed"]),
            )
        except AttributeError as error:
            raise ValueError(
                f"{type(model).__name__} is made of other parts than a plain ViT: {error}. "
                "diagnose(model, images) takes any model from images to logits"
            ) from error
        with torch.no_grad():
            seen = examined.run(examined.images)
        fewest = examined.num_patches if hasattr(examined.proj, "weight") else 1  # a stem has a grid of its own
        for name in ("entering", "leaving"):
            tokens = getattr(seen, name, None)
            if not isinstance(tokens, Tensor) or tokens.ndim != 3 or tokens.shape[1] < fewest:
                got = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
                raise ValueError(
                    f"{type(model).__name__} is not a plain ViT: the tokens {name} its blocks should be (b, n, d), "
                    f"with n at least {fewest} for patches of {examined.patch_size} pixels; got {got}"
                )
        return examined

    def embed(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        """The tokens that enter the first block."""
        return self.run(images).entering

    def run(
        self, images: Tensor, swapped: dict[str, Tensor] | None = None, change: dict[nn.Module, Callable] | None = None
    ) -> SimpleNamespace:
        """A forward pass, with what went through the parts.

        Args:
            images: to look at.
            swapped: tensors that stand in for parameters and buffers during this call.
            change: functions that are applied to what a part returns.

        Returns:
            ``entering``, the tokens before the first block; ``leaving``, after the last; ``normed``, after the norm,
            or as they leave if it is not called; ``features``, what the first linear layer of the head takes (a norm
            in front of it belongs to what comes before); ``attended``, what each attention takes; and ``output``, the
            logits. They share a graph, so that one can be differentiated with respect to the other.
        """
        if torch.is_grad_enabled() and not images.requires_grad:
            images = images.clone().requires_grad_()  # so that there is a graph in a frozen model too
        seen: dict[str, Tensor] = {}
        attended: dict[int, Tensor] = {}
        reading = next((part for part in self.head.modules() if isinstance(part, nn.Linear)), self.head)
        hooks = [part.register_forward_hook(_changing(by)) for part, by in (change or {}).items()]
        hooks += [
            self.blocks[0].register_forward_pre_hook(lambda part, args: seen.update(entering=args[0])),
            self.blocks[-1].register_forward_hook(lambda part, args, out: seen.update(leaving=out)),
            self.norm.register_forward_hook(lambda part, args, out: seen.update(normed=out)),
            reading.register_forward_pre_hook(lambda part, args: seen.update(features=args[0])),
        ]
        for i, attn in enumerate(self.attentions):
            hooks.append(attn.register_forward_pre_hook(lambda part, args, i=i: attended.update({i: args[0]})))
        try:
            output = as_logits(functional_call(self.model, swapped or {}, (images,)))
        finally:
            for hook in hooks:
                hook.remove()
        seen.setdefault("normed", seen.get("leaving"))
        seen.setdefault("features", output)
        return SimpleNamespace(**seen, attended=attended, output=output)


def random_like(tensor: Tensor) -> Tensor:
    """Normal numbers in the shape of ``tensor``, drawn without touching anybody's generator."""
    numbers = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0))
    return numbers.to(tensor)


def _changing(by: Callable[[Tensor], Tensor]) -> Callable:
    return lambda part, args, out: by(out)


def _has(model: nn.Module, name: str) -> bool:
    for attribute in name.split("."):
        if not hasattr(model, attribute):
            return False
        model = getattr(model, attribute)
    return True


def _named_tensor(model: nn.Module, name: str) -> tuple[str, Tensor] | None:
    owner, _, attribute = name.rpartition(".")
    value = getattr(model.get_submodule(owner), attribute)
    if value is not None and not isinstance(value, Tensor):
        raise AttributeError(f"its {name} is not a tensor, but a {type(value).__name__}")
    return None if value is None else (name, value)


def _random_images(model: nn.Module, sizes: nn.Module) -> Float[Tensor, "b c H W"]:
    """Images of the model's size, in a batch of 4, or of as many as it insists on."""
    img_size = getattr(sizes, "img_size", None) or getattr(sizes, "image_size", None)
    if img_size is None:
        raise AttributeError(f"its {type(sizes).__name__} has neither img_size nor image_size")
    height, width = to_pair("img_size", img_size)
    weight = next(model.parameters())
    projections = (part for part in model.modules() if isinstance(part, nn.Conv2d))
    channels = next((part.in_channels for part in projections), getattr(sizes, "in_chans", 3))
    rows = sorted({p.shape[0] for p in model.parameters() if p.ndim == 3 and p.shape[0] > 1} - {4})
    for attempt in (4, *rows):
        images = random_like(torch.empty(attempt, channels, height, width, device=weight.device, dtype=weight.dtype))
        try:
            with torch.no_grad():
                model(images)
            return images
        except (RuntimeError, ValueError) as error:
            failure = error
    raise failure
