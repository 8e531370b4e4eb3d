"""Attention layers of any make, found by what ran in them: their queries, keys and values, and what the heads gave.

Names differ from author to author, so a layer is known by its linear layers: one that makes all three, or one for
each, and one that reads what comes out of the heads (chapter 12).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_tutorial.clinic.trace import Call
from vit_tutorial.modern import BiasedAttention, ModernAttention

HEADS = (
    "num_heads", "num_attention_heads", "n_heads", "heads", "head", "nhead", "num_head", "n_head", "nheads", "n_h", "h",
    "head_num", "head_count", "no_of_heads", "number_of_heads", "number_attention_heads", "num_msa_heads",
)  # fmt: skip
OF_POSITIONS = ("rope.freqs", "relative_position_bias_table")  # of this package's attention, which _positions knows
FILLERS = re.compile(r"proj(ection)?|linear|layer|dense|net|map|lin|fc|to|in|head|mat|transform|weight|w|[_\W\d]")
ROLES = {
    "q": "q", "query": "q", "queries": "q", "k": "k", "key": "k", "keys": "k", "v": "v", "value": "v", "values": "v",
    "val": "v", "kv": "kv", "qkv": "qkv", "qvk": "qkv", "kqv": "qkv", "kvq": "qkv", "querykeyvalue": "qkv",
}  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """An attention layer as it ran.

    Attributes:
        name: of the part.
        call: of the part.
        qkv: queries, keys and values of all heads side by side, (b, n, width): one, packed, or three.
        out: what the heads gave, side by side; or what the layer returned, if that is what ``finish`` leads to.
        finish: from what the heads gave to ``out``.
        norms: of queries and of keys; None where there is none.
        num_heads: what the layer says, or None.
        others: what it has beside that its weights alone do not explain.
        turn: what happens to the queries and keys of the heads behind their norms: rotary positions.
        bias: what is added to the scores, or None.
    """

    name: str
    call: Call
    qkv: tuple[Tensor, ...]
    out: Tensor
    finish: Callable[[Tensor], Tensor]
    norms: tuple[nn.Module | None, nn.Module | None]
    num_heads: int | None
    others: tuple[str, ...]
    turn: Callable[[Tensor], Tensor] = lambda x: x
    bias: Tensor | None = None

    @property
    def packed(self) -> bool:
        return len(self.qkv) == 1

    @property
    def width(self) -> int:
        """Of all heads together."""
        return self.qkv[0].shape[-1] // (3 if self.packed else 1)


def attention_layers(calls: list[Call]) -> list[Layer]:
    """The layers whose queries, keys and values are known, in the order in which they ran; each part once."""
    found, taken = [], []
    for call in reversed(calls):  # from the inside out: a block has the linear layers of its attention as well
        if call.returned is None or call.given is None or any(call.holds(other) for other in taken):
            continue
        layer = _torch_layer(call) if isinstance(call.part, nn.MultiheadAttention) else _layer(call, calls)
        if layer:
            found.append(layer)
            taken.append(call)
    parts = {id(layer.call.part): layer for layer in found}  # the first call of a shared part comes last here
    return list(parts.values())[::-1]


def _torch_layer(call: Call) -> Layer | None:
    part, names = call.part, ("query", "key", "value")
    given = [*call.args[:3], *(call.options[name] for name in names if name in call.options)]
    if part.in_proj_weight is None or len(given) != 3 or any(x.shape != given[0].shape for x in given):
        return None
    biases = [None] * 3 if part.in_proj_bias is None else part.in_proj_bias.chunk(3)
    thirds = zip(given, part.in_proj_weight.chunk(3), biases, strict=True)
    extra = [name for name, value in call.options.items() if isinstance(value, Tensor) and name not in names]
    others = [f"the argument {name}" for name in extra] + ["bias_k"] * (part.bias_k is not None)
    if given[0].ndim != 3:
        return None
    qkv, out = tuple(F.linear(x, weight, bias) for x, weight, bias in thirds), call.returned
    if not part.batch_first:  # its tokens are axis 0, whatever was meant
        qkv, out = tuple(x.transpose(0, 1) for x in qkv), out.transpose(0, 1)
    return Layer(call.name, call, qkv, out, part.out_proj, (None, None), part.num_heads, tuple(others))


def role_of(name: str) -> str:
    """Whether a linear layer of this name makes queries, keys or values; "" if it does not say."""
    for word in reversed(name.lower().split(".")):
        if not word.isdigit() and (role := ROLES.get(FILLERS.sub("", word)) or ROLES.get(word)):
            return role
    return ""


def _layer(call: Call, calls: list[Call]) -> Layer | None:
    inner = [other for other in calls if call.holds(other)]
    linears = [other for other in inner if _is_linear(other)]
    prefix = f"{call.name}." if call.name else ""
    roles: dict[str, list[Call]] = {}
    for linear in linears:
        roles.setdefault(role_of(linear.name.removeprefix(prefix)), []).append(linear)
    makers = _makers(roles, linears) or _first_three(call, linears)
    if not makers:
        return None
    first = makers[0][0]
    if any(each.given.shape != first.given.shape for maker in makers for each in maker):
        return None
    qkv = tuple(_side_by_side(each) for each in makers)
    if roles.get("kv") and len(makers) == 2:
        qkv = (qkv[0], *qkv[1].chunk(2, dim=-1))
    width = qkv[0].shape[-1] // (3 if len(qkv) == 1 else 1)
    if any(part.shape[-1] != width for part in qkv if len(qkv) == 3) or (len(qkv) == 1 and qkv[0].shape[-1] % 3):
        return None
    last = max(each.end for maker in makers for each in maker)
    norms = tuple(_norm(call.part, letter) for letter in "qk")
    out, end = _given_to_projection(call, inner, last, (*qkv[0].shape[:2], width), norms)
    if out is None:
        return None
    num_heads = len(makers[0]) if len(makers[0]) > 1 else _num_heads(call.part)
    used = {id(p) for maker in makers for each in maker for p in each.part.parameters()}
    used |= {id(p) for norm in norms if norm is not None for p in norm.parameters()}
    turn, bias = _positions(call.part, qkv[0].shape[1])
    if isinstance(call.part, ModernAttention):
        used |= {id(p) for name, p in call.part.named_parameters() if name in OF_POSITIONS}
    used |= {id(p) for o in inner if o.start >= end or o.end < first.start for p in o.part.parameters()}
    others = [name for name, p in call.part.named_parameters() if id(p) not in used]
    others += [f"the argument {i + 1}" for i, value in enumerate(call.args[1:], 1) if _is_extra(value)]
    others += [f"the argument {name}" for name, v in call.options.items() if _is_extra(v) and v is not call.given]
    return Layer(call.name, call, qkv, out, lambda x: x, norms, num_heads, tuple(others), turn, bias)


def _positions(part: nn.Module, n: int) -> tuple[Callable[[Tensor], Tensor], Tensor | None]:
    """How this package's attention turns queries and keys, and what it adds to scores; both at its own shapes only."""
    if not isinstance(part, ModernAttention):
        return nn.Identity(), None
    shape = (part.num_heads, n, part.qkv.in_features // part.num_heads)
    bias = part.bias() if isinstance(part, BiasedAttention) else None
    return lambda x: part.rope(x) if x.shape[1:] == shape else x, bias


def _is_extra(value: object) -> bool:
    """Whether an argument may change what attention returns."""
    return isinstance(value, Tensor) or (isinstance(value, tuple | list) and any(map(_is_extra, value)))


def _is_linear(call: Call) -> bool:
    given, weight = call.given, getattr(call.part, "weight", None)
    has_tensors = isinstance(call.out, Tensor) and given is not None and isinstance(weight, Tensor)
    return has_tensors and weight.ndim == 2 and given.ndim == call.out.ndim == 3 and isinstance(call.part, nn.Linear)


def _makers(roles: dict[str, list[Call]], linears: list[Call]) -> list[list[Call]]:
    """The layers that make queries, keys and values: one, three, or as many as heads for each."""
    counts = {role: len(each) for role, each in roles.items()}
    if counts.get("qkv") == 1:
        return [roles["qkv"]]
    if counts.get("q") and counts.get("q") == counts.get("k") == counts.get("v"):
        return [roles["q"], roles["k"], roles["v"]]
    if counts.get("q") == counts.get("kv") == 1:
        return [roles["q"], roles["kv"]]
    first = linears[0] if linears else None
    if first is not None and len(linears) == 2 and first.out.shape[-1] == 3 * linears[1].given.shape[-1]:
        return [[first]]
    return []


def _first_three(call: Call, linears: list[Call]) -> list[list[Call]]:
    """In what calls itself attention: three layers without names that take what it takes, and perhaps a fourth."""
    own = type(call.part).__name__.lower()
    is_attention = any(word in own for word in ("attention", "attn", "mha", "msa"))
    same = [linear for linear in linears[:3] if linear.given is call.given and linear.out.shape == linears[0].out.shape]
    return [[linear] for linear in same] if is_attention and len(same) == 3 and len(linears) < 5 else []


def _side_by_side(calls: list[Call]) -> Tensor:
    return torch.cat([call.out for call in calls], dim=-1)


def _norm(part: nn.Module, letter: str) -> nn.Module | None:
    names = (f"{letter}_norm", f"norm_{letter}", f"{letter}norm", f"{letter}_ln", f"ln_{letter}", f"{letter}_layernorm")
    return next((norm for name in names if isinstance(norm := getattr(part, name, None), nn.Module)), None)


def _num_heads(part: nn.Module) -> int | None:
    holders = [part, *part.children(), getattr(part, "config", None)]
    said = (getattr(holder, name, None) for holder in holders for name in HEADS)
    return next((value for value in said if isinstance(value, int) and not isinstance(value, bool)), None)


def _given_to_projection(
    call: Call, inner: list[Call], after: int, shape: tuple[int, ...], norms: tuple[nn.Module | None, ...]
) -> tuple[Tensor | None, int]:
    """What the heads gave: what the projection behind them takes, or a norm in front of it, or what is returned."""
    behind = [other for other in inner if other.start > after and other.part not in norms]
    taking = [other for other in behind if isinstance(other.given, Tensor) and tuple(other.given.shape) == shape]
    for other in taking:
        if other.given.is_floating_point() and any(True for _ in other.part.parameters()):
            return other.given, other.start
    returned = call.returned
    if returned is not None and tuple(returned.shape) == shape:
        return returned, call.end
    return None, -1
