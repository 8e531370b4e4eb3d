"""Is attention what its own weights say? It is computed a second time, and what differs is explained (chapter 12).

The right formula is tried in every layout that a training would absorb: the order of queries, keys and values in a
packed projection, and of the heads' features. If none gives what the layer gave, mistakes are tried one by one and two
at a time, and the one that comes closest is named.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations, product

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vit_tutorial.clinic.anatomy import Anatomy
from vit_tutorial.clinic.examined import far, random_like
from vit_tutorial.clinic.layers import Layer
from vit_tutorial.clinic.symptoms import SAME, CannotTell
from vit_tutorial.validate import listed

SCALE, AXIS, TRANSPOSE = "scale by √dim", "softmax over the wrong axis", "heads without a transpose"
MASKED, NO_SOFTMAX, UNEXPLAINED = "masked attention", "attention without a softmax", "attention is something else"
NO_LAYERS = "no attention was found whose queries, keys and values are linear layers with usual names"
FITS = 0.01  # of the distance to what is right: so close a mistake comes to what was returned
MOST_TOKENS = 400  # up to so many, who reads whom is looked at

# How a third of the projection becomes heads, in einops' words. Those under "right" are absorbed by training.
SPLITS = {"right": "b n (h hd) -> b h n hd", "interleaved": "b n (hd h) -> b h n hd"}
WRONG_SPLITS = {
    "by a reshape to (b, h, n, hd) without a transpose": "view",
    "and attention runs over the heads of each token, since (b, n, h, hd) was not transposed": "b n (h hd) -> b n h hd",
    "and tokens and features of a head have changed places": "b n (h hd) -> b h hd n",
}
MERGES = {"right": "b h n hd -> b n (h hd)", "interleaved": "b h n hd -> b n (hd h)"}
WRONG_MERGES = {
    "glued by a reshape of (b, h, n, hd) without a transpose": "view",
    "glued by a reshape of (b, h, hd, n), the wrong transpose": "transposed view",
}
AXES = {-2: "queries", -3: "heads", 0: "images"}
PACKED = ("b n (three x) -> three b n x", "b n (h three hd) -> three b n (h hd)", "b n (x three) -> three b n x")
WRONG_PACKED = ("view", "(three b) n x -> three b n x")


@dataclass(frozen=True)
class Way:
    """A way to compute attention from queries, keys and values; the defaults are the right one."""

    num_heads: int
    order: tuple[int, int, int] = (0, 1, 2)
    packed: str = PACKED[0]
    split: str = SPLITS["right"]
    merge: str = MERGES["right"]
    axis: int | None = -1  # of the softmax; None for no softmax
    scale: float | None = None  # of the scores; 1/√hd if None
    after: float = 1.0  # what the weights are multiplied by, behind the softmax
    unit: bool = False  # queries and keys of length 1
    mask: Tensor | None = field(default=None, compare=False)

    def heads(self, layer: Layer) -> Tensor:
        """What the heads give, side by side, (b, n, width)."""
        b, n = layer.qkv[0].shape[:2]
        three = layer.qkv if not layer.packed else self._unpack(layer.qkv[0])
        q, k, v = (three[i] for i in self.order)
        q, k = _normed(layer, (q, k), wide=True)
        q, k, v = (self._split(x) for x in (q, k, v))
        q, k = _normed(layer, (q, k), wide=False)
        if self.unit:
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        q, k = layer.turn(q), layer.turn(k)
        scores = q @ k.mT * (q.shape[-1] ** -0.5 if self.scale is None else self.scale)
        if layer.bias is not None and scores.shape[1:] == layer.bias.shape:
            scores = scores + layer.bias
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask, -torch.inf)
        weights = scores if self.axis is None else scores.softmax(dim=self.axis)
        out = self.after * weights.nan_to_num() @ v
        if self.split == "b n (h hd) -> b n h hd":
            return out.reshape(b, n, -1)
        if self.split == "b n (h hd) -> b h hd n":
            return rearrange(out, "b h hd n -> b n (h hd)")
        if self.merge == "view":
            return out.reshape(b, n, -1)
        return out.mT.reshape(b, n, -1) if self.merge == "transposed view" else rearrange(out, self.merge)

    def _unpack(self, qkv: Tensor) -> Tensor:
        b, n, width = qkv.shape
        if self.packed == "view":
            return qkv.reshape(3, b, n, width // 3)
        if self.packed == WRONG_PACKED[1]:
            return qkv.reshape(b, 3, n, width // 3).transpose(0, 1)
        sizes = {"three": 3} | ({"h": self.num_heads} if "h three" in self.packed else {})
        return rearrange(qkv, self.packed, **sizes)

    def _split(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        if self.split == "view":
            return x.reshape(b, self.num_heads, n, width // self.num_heads)
        return rearrange(x, self.split, h=self.num_heads)


def _normed(layer: Layer, queries_and_keys: tuple[Tensor, Tensor], *, wide: bool) -> list[Tensor]:
    """Queries and keys behind their norms: those over all heads side by side, or those within a head."""
    pairs = zip(layer.norms, queries_and_keys, strict=True)
    return [norm(x) if norm is not None and _is_wide(norm, layer) == wide else x for norm, x in pairs]


def _is_wide(norm: nn.Module, layer: Layer) -> bool:
    weight = getattr(norm, "weight", None)
    return layer.width > 1 and isinstance(weight, Tensor) and weight.shape[-1:] == (layer.width,)


def explain(examined: Anatomy) -> dict[str, str]:
    """The bugs of the first layer that does not return what its weights say, with their evidence; {} if all do.

    Raises:
        CannotTell: if no layer's weights are known, or one has something beside them.
    """
    if not examined.layers:
        if evidence := _other_axis(examined):
            return {AXIS: evidence}
        raise CannotTell(NO_LAYERS)
    unclear = ""
    with torch.no_grad():
        for layer in examined.layers:
            way = healthy_way(layer)
            if way is not None:
                continue
            if layer.others:
                unclear = unclear or f"{layer.name} has {listed(layer.others, 2)} beside its weights"
                continue
            found = _explain(layer, examined)
            if isinstance(found, str):
                unclear = unclear or found
            else:
                return found
    if unclear:
        raise CannotTell(unclear)
    return {}


class Softmaxes(TorchFunctionMode):
    """In this context the shapes and axes of all softmaxes are kept."""

    def __init__(self):
        super().__init__()
        self.seen: list[tuple[torch.Size, int]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.softmax, F.softmax, Tensor.softmax):
            x = args[0] if args else kwargs["input"]
            axis = args[1] if len(args) > 1 else kwargs.get("dim")
            axis = (0 if x.ndim == 3 else 1) if axis is None else axis  # as PyTorch guesses
            self.seen.append((x.shape, axis % x.ndim))
        return func(*args, **kwargs)


def _other_axis(examined: Anatomy) -> str:
    """Whether scores between all tokens get their softmax over another axis than the keys', the last."""
    with torch.no_grad(), Softmaxes() as softmaxes:
        tokens = examined.run(examined.images).leaving
    for shape, axis in softmaxes.seen if tokens is not None else ():
        if shape[-2:] == (tokens.shape[1],) * 2 and axis != len(shape) - 1:
            return f"the softmax of scores of shape {tuple(shape)} runs over axis {axis}, not over the keys, the last"
    return ""


def _possible(layer: Layer) -> list[int]:
    """All numbers of heads that divide the width."""
    return [h for h in range(1, layer.width + 1) if layer.width % h == 0]


def _numbers_of_heads(layer: Layer) -> list[int]:
    """What the layer says, or all that are possible."""
    possible = _possible(layer)
    return [layer.num_heads] if layer.num_heads in possible else possible


def _error(way: Way, layer: Layer, out: Tensor) -> float:
    try:
        return far(layer.finish(way.heads(layer)), out)
    except RuntimeError:  # the shapes do not fit
        return float("inf")


def _outs(layer: Layer) -> list[Tensor]:
    """What the heads gave; or that, without a stream that was added to it."""
    out, given = layer.out, layer.call.given
    return [out, out - given] if out is layer.call.returned and out.shape == given.shape else [out]


def _orders(layer: Layer) -> list[tuple[tuple[int, int, int], str]]:
    """The orders of queries, keys and values, and how they may lie in a packed projection."""
    if layer.packed:
        return list(product(permutations(range(3)), PACKED))
    return [((0, 1, 2), PACKED[0]), ((1, 0, 2), PACKED[0])]


def healthy_way(layer: Layer) -> Way | None:
    """In which layout the layer returns what its weights say, if it does so in any."""
    outs = _outs(layer)
    few = layer.others or layer.qkv[0].shape[1] > MOST_TOKENS  # where the search would be in vain, or long

    def fits(way: Way) -> bool:
        return any(_error(way, layer, out) < SAME for out in outs)

    layouts = [()] if few else [(*a, *b) for a, b in product(_orders(layer), product(SPLITS.values(), MERGES.values()))]
    ways = (Way(h, *layout) for layout, h in product(list(layouts), _numbers_of_heads(layer)))
    return next(filter(fits, ways), None)


def _mistakes(layer: Layer, num_heads: int) -> list[tuple[str, str, dict]]:
    """Bug, what is said about it, and how the right way with so many heads changes."""
    dim, width = layer.call.given.shape[-1], layer.width // num_heads
    scales = {f"√{dim}": dim**-0.5, "1": 1.0, f"{width}": 1 / width, f"1/√{width}": width**0.5, f"{dim}": 1 / dim}
    found = [
        (SCALE, f"the scores are divided by {name} where head_dim is {width}", {"scale": scale})
        for name, scale in scales.items()
        if abs(scale - width**-0.5) > 1e-9
    ]
    for name, after in {f"√{width}": width**-0.5, f"√{dim}": dim**-0.5}.items():
        words = f"the scores are not scaled, and the weights are divided by {name} behind the softmax"
        found.append((SCALE, words, {"scale": 1.0, "after": after}))
    found += [(AXIS, f"the softmax runs over the {name}, not the keys", {"axis": axis}) for axis, name in AXES.items()]
    found += [(TRANSPOSE, f"heads are split {name}", {"split": split}) for name, split in WRONG_SPLITS.items()]
    both = {"split": "view", "merge": "view"}
    found.append((TRANSPOSE, "heads are split and glued by reshapes without a transpose", both))
    found += [(TRANSPOSE, f"heads are {name}", {"merge": merge}) for name, merge in WRONG_MERGES.items()]
    if layer.packed:
        words = "queries, keys and values are cut from the packed projection by a reshape that mixes tokens"
        found += [(TRANSPOSE, words, {"packed": packed}) for packed in WRONG_PACKED]
    found.append((NO_SOFTMAX, "the scores are the weights, without a softmax", {"axis": None}))
    return found


def _explain(layer: Layer, examined: Anatomy) -> dict[str, str] | str:
    """What differs in this layer: bugs and their evidence, {} if another test has it, or why it cannot be told."""
    if examined.draws and far(layer.call.again(layer.call.given), layer.call.returned) > 10 * SAME:
        return f"{layer.name} draws random numbers"
    out, heads = layer.out, _numbers_of_heads(layer)
    error = min(_error(Way(h), layer, out) for h in heads)
    moved = f"which moves what attention returns by {error:.1%} of its length"
    if _is_across(layer, heads):
        return {}
    others = [("", "", {"order": order, "packed": packed}) for order, packed in _orders(layer)[1:]]
    least, mistakes = error, ()
    for tried in (_alone, _in_pairs)[: 1 if out.shape[1] > MOST_TOKENS else 2]:
        for number, each in ((h, each) for h in heads for each in tried(_mistakes(layer, h), others)):
            change = {name: value for one in each for name, value in one[2].items()}
            if (distance := _error(Way(number, **change), layer, out)) < least:
                least, mistakes = distance, each
        if least < 10 * SAME:
            break
    if least < FITS * error and {bug for bug, *_ in mistakes if bug} == {SCALE} and _scales_itself(layer):
        return f"the norms of queries and keys in {layer.name} have weights, and may learn the scale"
    if least < FITS * error:
        named: dict[str, list[str]] = {}
        for bug, words, _ in mistakes:
            if bug:
                named.setdefault(bug, []).append(words)
        more = ", with what else is wrong in it" if len(named) > 1 else ""
        return {bug: f"in {layer.name} {', and '.join(words)}, {moved}{more}" for bug, words in named.items()}
    if out.shape[1] > MOST_TOKENS:
        return f"in {layer.name} attention differs from its weights, and {out.shape[1]} tokens are too many to ask why"
    for h in _possible(layer):
        if healthy_way(replace(layer, num_heads=h)):
            words = f"in {layer.name} attention runs with {h} heads where it says {layer.num_heads}"
            return {UNEXPLAINED: f"{words}, {moved}"}
    for h in heads:
        if _fits_some_scale(Way(h, unit=True), layer) is not None:
            return f"in {layer.name} queries and keys have length 1, as in cosine attention, which is a design"
        if (scale := _fits_some_scale(Way(h), layer)) is not None:
            return {SCALE: f"in {layer.name} the scores are divided by {1 / scale:.4g}, not √head_dim, {moved}"}
    return _explain_by_running(layer, examined, heads, moved)


def _scales_itself(layer: Layer) -> bool:
    return all(norm is not None and any(True for _ in norm.parameters()) for norm in layer.norms)


def _alone(mistakes: list[tuple], others: list[tuple]) -> list[tuple]:
    """Each mistake by itself."""
    return [(one,) for one in mistakes]


def _in_pairs(mistakes: list[tuple], others: list[tuple]) -> list[tuple]:
    """Mistakes two at a time, or one in another layout."""
    turned = [(a, b) for a, b in product(mistakes, others) if "packed" not in a[2]]
    return turned + [(a, b) for i, a in enumerate(mistakes) for b in mistakes[i + 1 :] if not a[2].keys() & b[2].keys()]


def _is_across(layer: Layer, heads: list[int]) -> bool:
    """Whether tokens attend to those of other images: what was (n, b, d) for the layer is (b, n, d)."""
    turned = replace(layer, qkv=tuple(x.transpose(0, 1) for x in layer.qkv))
    return any(_error(Way(h), turned, layer.out.transpose(0, 1)) < 10 * SAME for h in heads)


def _fits_some_scale(way: Way, layer: Layer) -> float | None:
    """The scale of the scores with which attention is what the layer gave, looked for on a grid that gets finer."""
    low, high = 1e-3, 1e3
    for _ in range(6):
        scales = torch.logspace(torch.tensor(low).log10(), torch.tensor(high).log10(), 25).tolist()
        errors = [_error(replace(way, scale=scale), layer, layer.out) for scale in scales]
        best = min(range(25), key=errors.__getitem__)
        low, high = scales[max(best - 1, 0)], scales[min(best + 1, 24)]
    return scales[best] if errors[best] < 10 * SAME and far_from_flat(way, layer) else None


def far_from_flat(way: Way, layer: Layer) -> bool:
    """Whether the scale matters for what comes out."""
    ways = [replace(way, scale=scale) for scale in (0.1, 1.0)]
    return far(*(layer.finish(each.heads(layer)) for each in ways)) > SAME


def _explain_by_running(layer: Layer, examined: Anatomy, heads: list[int], moved: str) -> dict[str, str] | str:
    """What a layer's answers to other tokens tell: a mask, positions within attention, or neither."""
    x = layer.call.given
    n = x.shape[1]
    reads = who_reads_whom(layer)
    if not reads.all():
        for h, mask in product(heads, (reads, reads & ~torch.eye(n, dtype=torch.bool, device=x.device))):
            if _error(Way(h, mask=mask), layer, layer.out) < 10 * SAME:
                if torch.equal(mask, ~torch.eye(n, dtype=torch.bool, device=x.device)):
                    return f"in {layer.name} no token reads itself, as in locality self-attention, which is a design"
                if mask.sum() > n and torch.equal(mask, mask.mT) and torch.equal(mask, mask.float() @ mask.float() > 0):
                    return f"in {layer.name} tokens read those of their window alone, which is a design"
                kind = "those before it" if not reads.triu(1).any() else "some"
                left = f"{int(mask.sum())} of {n * n} pairs are left"
                return {MASKED: f"in {layer.name} a token reads only {kind}: {left}"}
    alike = x[:, :1].expand_as(x).contiguous()
    out = layer.call.again(alike)
    if far(out, out[:, :1].expand_as(out)) > 10 * SAME:
        words = f"{n} equal tokens come out of {layer.name} as different ones, which no weighted mean of values does"
        return {UNEXPLAINED: f"{words}; it returns something else than its own weights say, {moved}"}
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(x.device)
    if far(layer.call.again(x[:, order]), layer.call.again(x)[:, order]) > 10 * SAME:
        return (
            f"in {layer.name} attention depends on the order of its tokens, as rotary or relative positions do, and "
            "is not determined by its weights alone"
        )
    return {UNEXPLAINED: f"{layer.name} returns something else than its own weights say, {moved}"}


def who_reads_whom(layer: Layer) -> Tensor:
    """Which token of the output depends on which of the input, (n, n)."""
    with torch.enable_grad():
        x = layer.call.given.detach().clone().requires_grad_()
        out = layer.call.again(x)
        direction = random_like(out[:, 0])
        rows = [torch.autograd.grad((row * direction).sum(), x, retain_graph=True)[0] for row in out.unbind(1)]
    return torch.stack([(row != 0).any(dim=0).any(dim=-1) for row in rows])


def explained(bug: str) -> Callable[[Anatomy], str]:
    """The probe for one of the bugs of attention."""

    def probe(examined: Anatomy) -> str:
        found = examined.attention_differs
        if found and bug not in found and not examined.layers:
            raise CannotTell(NO_LAYERS)
        if not found and bug in (SCALE, AXIS):
            _check_it_matters(examined, bug)
        return found.get(bug, "")

    probe.__name__ = "explain"
    probe.__doc__ = f"Whether {bug} is what makes attention differ from its own weights."
    return probe


@torch.no_grad()
def _check_it_matters(examined: Anatomy, bug: str) -> None:
    """Raise CannotTell if a wrong scale or axis would give the same numbers as the right one."""
    ways = [(layer, way) for layer in examined.layers if (way := healthy_way(layer)) is not None]
    if not ways:
        raise CannotTell("attention does not run over the tokens of an image")
    for layer, way in ways:
        change = {"scale": 2 * (layer.width / way.num_heads) ** -0.5} if bug == SCALE else {"axis": -2}
        if far(replace(way, **change).heads(layer), way.heads(layer)) > SAME:
            return
    what = "scale" if bug == SCALE else "axis of the softmax"
    raise CannotTell(f"the {what} changes nothing in this attention")
