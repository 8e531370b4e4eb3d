"""A model laid open: where its parts are, and one forward pass that keeps what goes through them (chapter 12)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from vit_tutorial.attention_maps.maps import is_compiled
from vit_tutorial.validate import to_pair

# Names of the parts in this package's models and timm's, and in torchvision's.
NAMES = {
    "cls_token": {
        "proj": "patch_embed.proj", "blocks": "blocks", "attn": "attn", "norm": "norm", "head": "head",
        "pos_embed": "pos_embed",
    },
    "class_token": {
        "proj": "conv_proj", "blocks": "encoder.layers", "attn": "self_attention", "norm": "encoder.ln",
        "head": "heads", "pos_embed": "encoder.pos_embedding",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Anatomy:
    """The parts of a Vision Transformer that the tests ask for.

    Attributes:
        model: the whole, in evaluation mode.
        images: random ones, as many as the model takes, and at least 2 if it takes them.
        proj: the projection of the patches.
        patch_size: pixels, (height, width).
        blocks: of the encoder.
        attentions: of those blocks that have one.
        norm: what stands after the last block.
        head: what makes the logits.
        cls_token: its name and its values; None where there is none.
        pos_embed: the table's name and its values; None where there is none.
    """

    model: nn.Module
    images: Float[Tensor, "b c H W"]
    patch_size: tuple[int, int]
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
        """The model's parts, for the time of a ``with`` block in which it is in evaluation mode.

        Raises:
            ValueError: when the model is not made of the parts that are known here, or compiled.
        """
        if is_compiled(model):
            raise ValueError("a compiled model runs no hooks: diagnose the model that was compiled")
        kind = next((kind for kind in NAMES if hasattr(model, kind)), "")
        if not kind or not hasattr(model, NAMES[kind]["blocks"].split(".")[0]):
            raise ValueError(
                f"{type(model).__name__} is no Vision Transformer of vit_tutorial's, timm's or torchvision's"
            )
        modes = {part: part.training for part in model.modules()}
        weight = next(model.parameters())
        devices = [weight.device] if weight.is_cuda else []
        with torch.random.fork_rng(devices), torch.enable_grad():
            try:
                model.eval()
                yield cls._find(model, weight, kind)
            finally:
                for part, mode in modes.items():
                    part.training = mode

    @classmethod
    def _find(cls, model: nn.Module, weight: Tensor, kind: str) -> "Anatomy":
        names = NAMES[kind]
        try:
            blocks = list(model.get_submodule(names["blocks"]))
            body = cls(
                model=model,
                images=_random_images(model, weight),
                patch_size=_patch_size(model),
                proj=model.get_submodule(names["proj"]),
                blocks=blocks,
                attentions=[getattr(block, names["attn"]) for block in blocks if hasattr(block, names["attn"])],
                norm=model.get_submodule(names["norm"]),
                head=model.get_submodule(names["head"]),
                cls_token=_named_tensor(model, kind),
                pos_embed=_named_tensor(model, names["pos_embed"]),
            )
        except AttributeError as error:
            raise ValueError(f"{type(model).__name__} is made of other parts than a plain ViT: {error}") from error
        with torch.no_grad():
            seen = body.run(body.images)
        fewest = body.num_patches if hasattr(body.proj, "weight") else 1  # a stem has a grid of its own
        for name in ("entering", "leaving"):
            tokens = getattr(seen, name, None)
            if not isinstance(tokens, Tensor) or tokens.ndim != 3 or tokens.shape[1] < fewest:
                got = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
                raise ValueError(
                    f"{type(model).__name__} is no plain ViT: the tokens {name} its blocks should be (b, n, d), with "
                    f"n at least {fewest} for patches of {body.patch_size} pixels; got {got}"
                )
        return body

    @property
    def num_patches(self) -> int:
        height, width = self.images.shape[2:]
        return (height // self.patch_size[0]) * (width // self.patch_size[1])

    def run(
        self, images: Tensor, swapped: dict[str, Tensor] | None = None, change: dict[nn.Module, Callable] | None = None
    ) -> SimpleNamespace:
        """A forward pass, with what went through the parts.

        Args:
            images: to look at.
            swapped: tensors that stand in for parameters and buffers during this pass.
            change: functions that are applied to what a part returns.

        Returns:
            ``entering``, the tokens before the first block; ``leaving``, after the last; ``normed``, after the norm,
            or as they leave where it is not called; ``features``, what the first linear layer of the head takes (a
            norm in front of it belongs to what comes before); ``attended``, what each attention takes; and
            ``output``. They hang together, so that one can be differentiated by the other.
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
            output = functional_call(self.model, swapped or {}, (images,))
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


def _named_tensor(model: nn.Module, name: str) -> tuple[str, Tensor] | None:
    owner, _, attribute = name.rpartition(".")
    value = getattr(model.get_submodule(owner), attribute)
    if value is not None and not isinstance(value, Tensor):
        raise AttributeError(f"its {name} is no tensor, but a {type(value).__name__}")
    return None if value is None else (name, value)


def _patch_size(model: nn.Module) -> tuple[int, int]:
    return to_pair("patch_size", getattr(model, "patch_embed", model).patch_size)


def _random_images(model: nn.Module, weight: Tensor) -> Float[Tensor, "b c H W"]:
    """Images of the model's size, in a batch of 4, or of as many as it insists on."""
    sizes = getattr(model, "patch_embed", model)
    img_size = getattr(sizes, "img_size", None) or getattr(sizes, "image_size", None)
    if img_size is None:
        raise AttributeError(f"its {type(sizes).__name__} has neither img_size nor image_size")
    height, width = to_pair("img_size", img_size)
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
