"""A Vision Transformer laid open: where its parts are, and a forward pass that keeps what goes through them.

Parts are found by the names that libraries give them, and where there are none by what ran (chapter 12).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.clinic.examined import ExaminedModel
from vit_tutorial.clinic.layers import Layer, attention_layers
from vit_tutorial.clinic.symptoms import CannotTell, called_with
from vit_tutorial.clinic.trace import Call, first_tensor, hooked
from vit_tutorial.validate import to_pair

# Where the parts are in this package's models and timm's, in torchvision's, and in Hugging Face's. The part called
# ``sizes`` has patch_size.
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
ATTENTIONS = ("attn", "attention", "self_attention", "self_attn", "msa", "mhsa", "mha")


@dataclass(frozen=True)
class Anatomy(ExaminedModel):
    """The parts of a Vision Transformer that the tests ask for.

    Attributes:
        known: whether it is one of this package, timm, torchvision or Hugging Face, or made of the same parts.
        proj: the projection of the patches; None if unknown, like the others.
        blocks: of the encoder.
        attentions: of those blocks that have one.
        norm: what follows the last block.
        head: what makes the logits.
        cls_token: its name and its values; None if there is none.
        pos_embed: the table's name and its values; None if there is none.
    """

    known: bool
    proj: nn.Module | None
    blocks: list[nn.Module]
    attentions: list[nn.Module]
    norm: nn.Module | None
    head: nn.Module | None
    cls_token: tuple[str, Tensor] | None
    pos_embed: tuple[str, Tensor] | None

    @classmethod
    def find(cls, examined: ExaminedModel) -> "Anatomy":
        """The parts of a prepared model."""
        model, calls = examined.model, examined.calls
        names = known_parts(model) or {}

        def named(part: str) -> object:
            return _get(model, names[part]) if part in names else None

        def module(part: str) -> nn.Module | None:
            return value if isinstance(value := named(part), nn.Module) else None

        blocks, found = _blocks(module("blocks"), calls), [c.part for c in calls]
        attn = (names["attn"],) if names else ATTENTIONS
        attentions = [next((a for n in attn if isinstance(a := getattr(b, n, None), nn.Module)), None) for b in blocks]
        patch_size = getattr(module("sizes"), "patch_size", None) if names else None
        head = module("head") if names else _head_behind(_last(blocks, calls), calls)
        return cls(
            model=model,
            images=examined.images,
            patch_size=examined.patch_size if patch_size is None else to_pair("patch_size", patch_size),
            known=bool(names),
            proj=module("proj") if names else next((p for p in found if isinstance(p, nn.Conv2d)), None),
            blocks=blocks,
            attentions=[part for part in attentions if part in found],
            norm=module("norm") if names else _norm_behind(blocks, calls),
            head=head,
            cls_token=_tensor(model, names.get("cls_token")) if names else _class_token(model),
            pos_embed=_tensor(model, names.get("pos_embed")) if names else _table(model, blocks, calls),
        )

    @cached_property
    def last(self) -> nn.Module | None:
        """The last block, or what passes tokens on last where none were found."""
        return call.part if (call := _last(self.blocks, self.calls)) else None

    @cached_property
    def layers(self) -> list[Layer]:
        """Its attention layers, as far as their queries, keys and values are known."""
        return attention_layers(self.calls)

    @property
    def attention_differs(self) -> dict[str, str]:
        """Which bug makes attention differ from what its weights say, and the evidence; {} if it doesn't.

        Raises:
            CannotTell: see :func:`~vit_tutorial.clinic.heads.explain`.
        """
        if isinstance(self._explained, CannotTell):
            raise self._explained
        return self._explained

    @cached_property
    def _explained(self) -> dict[str, str] | CannotTell:
        """An error is kept too, since six tests ask and a search may be long."""
        from vit_tutorial.clinic.heads import explain  # which asks this class

        try:
            return explain(self)
        except CannotTell as error:
            return error

    def embed(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b n d"]:
        """The tokens that enter the first block."""
        return self.run(images).entering if self.known and self.blocks else super().embed(images)

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
            in front of it belongs to what comes before); and ``output``, the logits. They share a graph, so that one
            can be differentiated with respect to the other. What no part takes or gives is None.
        """
        if torch.is_grad_enabled() and not images.requires_grad:
            images = images.clone().requires_grad_()  # so that there is a graph in a frozen model too
        seen = dict.fromkeys(("entering", "leaving", "normed", "features"))
        inside = () if self.head is None else self.head.modules()
        reading = next((part for part in inside if isinstance(part, nn.Linear)), self.head)
        hooks = [part.register_forward_hook(_changing(by)) for part, by in (change or {}).items()]
        for part, name in ((self.blocks[0] if self.blocks else None, "entering"), (reading, "features")):
            if part is not None:
                hooks.append(part.register_forward_pre_hook(_keeping(seen, name), with_kwargs=True))
        for part, name in ((self.last, "leaving"), (self.norm, "normed")):
            if part is not None:
                hooks.append(part.register_forward_hook(_keeping_output(seen, name)))
        with hooked(hooks):
            output = called_with(self.model, swapped or {}, images)
        if seen["normed"] is None:
            seen["normed"] = seen["leaving"]
        if seen["features"] is None:
            seen["features"] = output
        return SimpleNamespace(**seen, output=output)


def is_norm(part: nn.Module) -> bool:
    """Whether this is a LayerNorm or an RMSNorm, PyTorch's or by its name one of somebody's own."""
    own = type(part).__name__.lower()
    by_name = "norm" in own and not any(word in own for word in ("batch", "group", "instance"))
    return isinstance(part, nn.LayerNorm | nn.RMSNorm) or (by_name and not any(True for _ in part.children()))


def known_parts(model: nn.Module) -> dict[str, str] | None:
    """The names of the parts of a library's Vision Transformer; None if it isn't one."""
    for parts in PARTS:
        patch_size = getattr(_get(model, parts["sizes"]) if parts["sizes"] else model, "patch_size", None)
        blocks = _get(model, parts["blocks"])
        if hasattr_at(model, parts["cls_token"]) and isinstance(blocks, nn.Module) and _is_size(patch_size):
            return parts
    return None


def _is_size(value: object) -> bool:
    try:
        return bool(to_pair("patch_size", value))
    except ValueError:
        return False


def hasattr_at(model: nn.Module, name: str) -> bool:
    """Whether the model has an attribute at this path, be it None."""
    owner, _, attribute = name.rpartition(".")
    return hasattr(_get(model, owner) if owner else model, attribute)


def _get(model: nn.Module, name: str) -> object:
    for attribute in name.split(".") if name else ():
        model = getattr(model, attribute, None)
    return model


def _changing(by: Callable[[Tensor], Tensor]) -> Callable:
    def hook(part: nn.Module, args: tuple, out: object) -> object:
        return (by(out[0]), *out[1:]) if isinstance(out, tuple) else by(out)

    return hook


def _keeping(seen: dict, name: str) -> Callable:
    return lambda part, args, options: seen.update({name: Call(part, name, args, options).given})


def _keeping_output(seen: dict, name: str) -> Callable:
    def hook(part: nn.Module, args: tuple, out: object) -> None:
        seen[name] = first_tensor(out)

    return hook


def _tensor(model: nn.Module, name: str | None) -> tuple[str, Tensor] | None:
    value = _get(model, name) if name else None
    return (name, value) if isinstance(value, Tensor) else None


def _passes_tokens(call: Call) -> bool:
    """Whether a call takes tokens (b, n, d) and returns as many of the same width."""
    given, returned = call.given, call.returned
    return given is not None and returned is not None and given.ndim == 3 and given.shape == returned.shape


def _blocks(named: nn.Module | None, calls: list[Call]) -> list[nn.Module]:
    """The parts of the container that libraries call blocks, else of the largest whose parts all pass tokens on; those
    of lists in a list belong together.

    Where there is none: what passes tokens on, has attention, and is not part of another that does. Heads side by side,
    narrower than what holds them, are no blocks.
    """
    passing = [call for call in calls if _passes_tokens(call)]
    by_part = {id(call.part): call for call in passing}

    def running(container: nn.Module) -> list[nn.Module]:
        parts = [p for child in container.children() for p in (child if isinstance(child, nn.ModuleList) else [child])]
        return parts if parts and all(id(part) in by_part for part in parts) else []

    def is_narrow(part: nn.Module) -> bool:
        call = by_part[id(part)]
        return any(other.holds(call) and other.given.shape[-1] > call.given.shape[-1] for other in passing)

    if named is not None:
        return running(named)
    containers = [part for part in calls[0].part.modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    rows = [parts for each in containers if (parts := running(each)) and _has_attention(parts)]
    if rows := [parts for parts in rows if not is_narrow(parts[0])]:
        return max(rows, key=len)
    whole = [call for call in passing if _has_attention([call.part])]
    return list({id(c.part): c.part for c in whole if not any(other.holds(c) for other in whole)}.values())


def _last(blocks: list[nn.Module], calls: list[Call]) -> Call | None:
    """The call of the last block, or of what passes tokens on last where none were found."""
    passing = [call for call in calls if (call.part is blocks[-1] if blocks else _passes_tokens(call))]
    return max(passing, key=lambda call: call.end, default=None)


def _head_behind(last: Call | None, calls: list[Call]) -> nn.Module | None:
    """The first linear layer behind the last block."""
    behind = (call.part for call in calls if last is None or call.start > last.end)
    return next((part for part in behind if isinstance(part, nn.Linear)), None)


def _has_attention(parts: list[nn.Module]) -> bool:
    words = ("attention", "attn", "msa", "mha", "head", "block", "layer", "encoder", "transformer")
    kinds = [type(inner).__name__.lower() for part in parts for inner in part.modules() if len(list(inner.children()))]
    return all(sum(1 for _ in part.parameters()) > 4 for part in parts) and any(w in k for k in kinds for w in words)


def _norm_behind(blocks: list[nn.Module], calls: list[Call]) -> nn.Module | None:
    """The first norm that runs after the last block."""
    ends = [call.end for call in calls if blocks and call.part is blocks[-1]]
    later = [call for call in calls if ends and call.start > ends[0] and is_norm(call.part)]
    tokens = [call for call in later if _passes_tokens(call)]
    return tokens[0].part if tokens else None


def _class_token(model: nn.Module) -> tuple[str, Tensor] | None:
    for name, parameter in model.named_parameters():
        last = name.rpartition(".")[2].lower()
        if ("cls" in last or "class" in last) and parameter.ndim in (1, 2, 3) and "weight" not in last:
            return (name, parameter) if "pos" not in last and "bias" not in last else None
    return None


def _table(model: nn.Module, blocks: list[nn.Module], calls: list[Call]) -> tuple[str, Tensor] | None:
    """The parameter that has a row for each token that enters the blocks, and "pos" in its name."""
    entering = next((call.given for call in calls if blocks and call.part is blocks[0]), None)
    for name, parameter in model.named_parameters():
        fits = entering is not None and parameter.shape[-2:] == entering.shape[-2:]
        if fits and "pos" in name.lower() and parameter.ndim in (2, 3):
            return name, parameter
    return None
