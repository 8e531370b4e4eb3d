"""Exercises of chapter 9: real weights."""

import torch
from jaxtyping import Float
from torch import Tensor

from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.state_dicts import HUGGING_FACE, rename
from vit_tutorial.pretrained.transfer import linear_probe

EXERCISES: dict[str, Exercise] = {}


def memory_of(config: ViTConfig, batch: int) -> dict[str, int]:
    """Bytes in float32: of the weights, of what AdamW needs to train them, and of all attention maps of a batch."""
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in ViT(config).parameters())
    maps = batch * config.depth * config.num_heads * config.num_tokens**2
    return {"weights": 4 * parameters, "training": 16 * parameters, "maps": 4 * maps}


def _held(config, batch):
    """What PyTorch really holds: the tensors of a model, of AdamW after a step, and a map for each head."""
    model = ViT(config)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(2, config.in_chans, *config.img_size)).square().mean().backward()
    optimizer.step()
    weights = list(model.parameters())
    moments = [tensor for state in optimizer.state.values() for name, tensor in state.items() if name != "step"]
    maps = [torch.zeros(batch, config.num_heads, config.num_tokens, config.num_tokens)] * config.depth
    held = {"weights": weights, "training": [*weights, *(w.grad for w in weights), *moments], "maps": maps}
    return {name: sum(tensor.nbytes for tensor in tensors) for name, tensors in held.items()}


def _entry(key, change):
    """memory_of with one entry replaced by ``change(bytes, config, batch)``."""
    return lambda config, batch: (
        memory_of(config, batch) | {key: int(change(memory_of(config, batch)[key], config, batch))}
    )


def _config(**changes):
    sizes = {"img_size": (8, 12), "patch_size": 4, "in_chans": 1, "num_classes": 5, "embed_dim": 6, "depth": 2}
    return ViTConfig(**sizes | {"num_heads": 3, "mlp_ratio": 2.0} | changes)


# Each hint starts with the entry that is wrong.
MEMORY = {
    "weights: that is the number of parameters. A float32 has 4 bytes": lambda v, c, b: v // 4,
    "weights: those are bits. A float32 has 4 bytes": lambda v, c, b: v * 8,
    "weights: that would be half precision, 2 bytes. A float32 has 4": lambda v, c, b: v // 2,
    "weights: that would be double precision, 8 bytes. A float32 has 4": lambda v, c, b: v * 2,
    "weights: they exist once, however many images there are": lambda v, c, b: v * b,
    "weights: the positions are missing. They are learned, so they count as parameters":
        lambda v, c, b: v - 4 * c.num_tokens * c.embed_dim,
    "weights: count numbers, not tensors: p.numel()": lambda v, c, b: 4 * len(list(ViT(c).parameters())),
    "training: add the gradients and AdamW's two running means to the weights": lambda v, c, b: v // 4,
    "training: weights and gradients are in. AdamW also keeps two running means for each": lambda v, c, b: v // 2,
    "training: one of four is missing: weights, gradients, AdamW's mean and its mean of squares":
        lambda v, c, b: v * 3 // 4,
    "training: one too many: weights, gradients, AdamW's mean and its mean of squares make four":
        lambda v, c, b: v * 5 // 4,
    "training: none of these grows with the batch": lambda v, c, b: v * b,
    "maps: that is the number of weights in the maps. Each has 4 bytes": lambda v, c, b: v // 4,
    "maps: the class token looks and is looked at, too: n + 1 tokens":
        lambda v, c, b: v * c.num_patches**2 // c.num_tokens**2,
    "maps: each token has a weight for *each* token, so square the number of tokens": lambda v, c, b: v // c.num_tokens,
    "maps: each head has its own map": lambda v, c, b: v // c.num_heads,
    "maps: each layer has its own maps": lambda v, c, b: v // c.depth,
    "maps: each image of the batch has its own maps": lambda v, c, b: v // b,
}  # fmt: skip
EXERCISES["memory_of"] = Exercise(
    reference=memory_of, truth=_held, run=lambda fn, *args: {key: int(value) for key, value in fn(*args).items()},
    cases=[
        # By hand: projection 102, class token 6, positions 42; in each of two blocks 24 for the norms, 126 + 42 for the
        # attention and 84 + 78 for the MLP; norm 12, head 35: 905. Maps: 5 images, 2 blocks, 3 heads, 7 × 7 tokens.
        Case(lambda: (_config(), 5),
             "905 parameters have 3,620 bytes, four times that in training; 30 maps of 7 × 7 tokens have 5,880",
             truth={"weights": 3620, "training": 14480, "maps": 5880}),
        Case(lambda: (_config(pool="mean"), 5),
             "right with a class token, wrong without one, as with mean pooling. Use config.num_tokens",
             _entry("maps", lambda v, c, b: 4 * b * c.depth * c.num_heads * (c.num_patches + 1) ** 2)),
        Case(lambda: (_config(pos_embed="sincos_2d", embed_dim=12), 1), "fixed positions are not parameters"),
    ],
    mistakes={hint: _entry(hint.partition(":")[0], change) for hint, change in MEMORY.items()} | {
        "the keys are weights, training and maps": lambda c, b: {"weights": memory_of(c, b)["weights"]},
    },
    right=[_held], shape="A dict with the keys weights, training and maps",
)  # fmt: skip


def rename_key(name: str) -> str:
    """Our name for a parameter in a file of Hugging Face's ViT; queries, keys and values all belong to ``qkv``."""
    return rename(rename(name, HUGGING_FACE), {r"\.attn\.(query|key|value)\.": ".attn.qkv."})


BLOCK = {
    "vit.encoder.layer.": "blocks.", "layernorm_before": "norm1", "layernorm_after": "norm2",
    "attention.attention.query": "attn.qkv", "attention.attention.key": "attn.qkv",
    "attention.attention.value": "attn.qkv", "attention.output.dense": "attn.proj",
    "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2",
}  # fmt: skip
OUTER = {
    "vit.embeddings.cls_token": "cls_token", "vit.embeddings.position_embeddings": "pos_embed",
    "vit.embeddings.patch_embeddings.projection": "patch_embed.proj", "vit.layernorm": "norm", "classifier": "head",
}  # fmt: skip


def _replaced(name, pairs):
    for old, new in pairs.items():
        name = name.replace(old, new)
    return name


def _with(changes):
    """All replacements, some of them changed."""
    return lambda name: _replaced(name, BLOCK | OUTER | changes)


def _then(pairs):
    """rename_key, and more replacements after it."""
    return lambda name: _replaced(rename_key(name), pairs)


def _names():
    """Names of Hugging Face's and ours: of those outside the blocks, and of the first and the twelfth block."""
    for old, new in OUTER.items():
        for end in ("",) if old.endswith(("cls_token", "position_embeddings")) else (".weight", ".bias"):
            yield old + end, new + end
    for i in (0, 11):
        for old, new in list(BLOCK.items())[1:]:
            for end in (".weight", ".bias"):
                yield f"vit.encoder.layer.{i}.{old}{end}", f"blocks.{i}.{new}{end}"


EXERCISES["rename_key"] = Exercise(
    reference=rename_key,
    cases=[Case(lambda old=old: (old,), f"{old} is {new}", truth=new) for old, new in _names()],
    mistakes={
        "Nothing was replaced": lambda name: name,
        "Nothing of `vit.embeddings.` stays":
            _with({old: f"vit.embeddings.{new}" for old, new in OUTER.items() if "embeddings" in old}),
        "Something of `vit.encoder.` is left: `vit.encoder.layer.` becomes `blocks.`":
            _with({"vit.encoder.layer.": "vit.blocks."}),
        "Something of `encoder.layer.` is left: `vit.encoder.layer.` becomes `blocks.`":
            _with({"vit.encoder.layer.": "encoder.layer."}),
        "`attention.output.dense` ends in `output.dense`, too: replace the longer name first":
            lambda name: _replaced(name, {"output.dense": "mlp.fc2"} | BLOCK | OUTER),
        "`layernorm_before` is norm1 and `layernorm_after` is norm2, which comes after attention":
            _with({"layernorm_before": "norm2", "layernorm_after": "norm1"}),
        "`vit.layernorm` is the final norm; those with `_before` and `_after` belong to a block":
            lambda name: _replaced(name, {"layernorm": "norm"} | BLOCK | OUTER),
        "Queries, keys and values are one layer here, attn.qkv; their order matters only when they are stacked":
            _with({f"attention.attention.{part}": f"attn.{part}" for part in ("query", "key", "value")}),
        "The end tells weights from biases, and must stay": _then({".bias": ".weight"}),
        "The end, .weight or .bias, is lost": _then({".bias": "", ".weight": ""}),
        "The block's number must stay, all digits of it": _then({"blocks.11": "blocks.1"}),
        "Blocks are numbered from 0 on both sides": _then({"blocks.11": "blocks.12", "blocks.0": "blocks.1"}),
        "`intermediate` is the first layer of the MLP, fc1, and `output` the second, fc2":
            _with({"intermediate.dense": "mlp.fc2", "output.dense": "mlp.fc1"}),
        "The layers of the MLP are mlp.fc1 and mlp.fc2": _with({"intermediate.dense": "fc1", "output.dense": "fc2"}),
        "`classifier` is head": _with({"classifier": "fc"}),
        "`vit.embeddings.cls_token` is cls_token": _with({"vit.embeddings.cls_token": "class_token"}),
    },
    right=[_with({})], otherwise="the names are those of the table above",
)  # fmt: skip


def split_in_proj(in_proj: Float[Tensor, "three_d d"], num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """torchvision's fused projection as queries, keys and values, each ``(num_heads, head_dim, d)``."""
    dim = in_proj.shape[1]
    return tuple(part.reshape(num_heads, dim // num_heads, dim) for part in in_proj.chunk(3))


def _by_splitting(in_proj, num_heads):
    return tuple(torch.stack(part.split(len(part) // num_heads)) for part in in_proj.split(in_proj.shape[1]))


def _stacked(fn, in_proj, num_heads):
    """Three parts of one shape as one tensor, of which the engine can say more."""
    parts = tuple(fn(in_proj, num_heads))
    return torch.stack(parts) if len({part.shape for part in parts}) == 1 and len(parts) == 3 else parts


def _parts(change):
    return lambda w, h: tuple(change(w, h, w.shape[1], w.shape[1] // h))


SPLIT_IN_PROJ = {
    "that is the matrix of all heads together: cut its rows into heads": lambda w, h: w.chunk(3),
    "head_dim and heads are swapped: the rows of one head are contiguous":
        _parts(lambda w, h, d, hd: w.reshape(3, hd, h, d)),
    "the columns were cut, behind the rows. A head has some of the *outputs*, the rows, and sees all inputs":
        _parts(lambda w, h, d, hd: w.reshape(3, h, d, hd)),
    "the columns were cut. A head has some of the *outputs*, the rows, and sees all inputs":
        _parts(lambda w, h, d, hd: w.reshape(3, d, h, hd)),
    "queries and keys are swapped: the order is queries, keys, values":
        _parts(lambda w, h, d, hd: w.reshape(3, h, hd, d)[[1, 0, 2]]),
    "the order is reversed: queries, keys, values": _parts(lambda w, h, d, hd: w.reshape(3, h, hd, d).flip(0)),
    "keys and values are swapped: the order is queries, keys, values":
        _parts(lambda w, h, d, hd: w.reshape(3, h, hd, d)[[0, 2, 1]]),
    "the three are interleaved row by row: all rows of the queries come first, then all keys":
        _parts(lambda w, h, d, hd: w.reshape(d, 3, d).transpose(0, 1).reshape(3, h, hd, d)),
    "the rows go head by head *within* the queries, not queries, keys and values within a head":
        _parts(lambda w, h, d, hd: w.reshape(h, 3, hd, d).transpose(0, 1)),
    "a head got every h-th row. Its rows are contiguous: reshape to (heads, head_dim, d)":
        _parts(lambda w, h, d, hd: w.reshape(3, hd, h, d).transpose(1, 2)),
    "the matrix was transposed: torch's Linear has outputs as rows":
        _parts(lambda w, h, d, hd: w.T.reshape(3, h, hd, d)),
    "all three are the queries": _parts(lambda w, h, d, hd: w[:d].reshape(1, h, hd, d).expand(3, -1, -1, -1)),
    "two tensors were returned. Return three: queries, keys and values": lambda w, h: split_in_proj(w, h)[:2],
    "the heads are reversed: head 0 has the first rows": lambda w, h: tuple(p.flip(0) for p in split_in_proj(w, h)),
}  # fmt: skip
EXERCISES["split_in_proj"] = Exercise(
    reference=split_in_proj, truth=_by_splitting, run=_stacked, mistakes=SPLIT_IN_PROJ,
    given=lambda h=2, hd=6: (torch.randn(3 * h * hd, h * hd), h), smallest={"hd": 2},
    right=[_by_splitting, lambda w, h: [part.unflatten(0, (h, -1)) for part in w.chunk(3)]],
    shape="Three tensors, queries, keys and values, each (num_heads, head_dim, d)",
)  # fmt: skip


def top_k_names(logits: Float[Tensor, "b c"], names: tuple[str, ...], k: int) -> list[list[tuple[str, float]]]:
    """For each image the ``k`` likeliest classes, likeliest first, as pairs of name and probability."""
    values, numbers = logits.softmax(dim=-1).topk(k)
    return [
        [(names[number], value) for number, value in zip(row, chances, strict=True)]
        for row, chances in zip(numbers.tolist(), values.tolist(), strict=True)
    ]


def _sorted_names(logits, names, k):
    """Row by row, through a sorted list."""
    rows = logits.softmax(dim=-1).tolist()
    return [sorted(zip(names, row, strict=True), key=lambda pair: -pair[1])[:k] for row in rows]


def _top(values=lambda logits, k: logits.softmax(-1), pick=None):
    """top_k_names with other values or another choice of classes."""

    def fn(logits, names, k):
        chosen = pick(logits, k) if pick else logits.argsort(-1, descending=True)[:, :k]
        rows = zip(values(logits, k).tolist(), chosen.tolist(), strict=True)
        return [[(names[n], row[n]) for n in numbers] for row, numbers in rows]

    return fn


def _pairs(change):
    """top_k_names with ``change(name, probability)`` in place of each pair."""
    return lambda *args: [[change(*pair) for pair in row] for row in top_k_names(*args)]


def _softmax_of_best(logits, k):
    best, numbers = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, numbers, best.softmax(-1))


def _rounded(result):
    """A result with its probabilities, tensors too, as Python's numbers of few digits."""
    if isinstance(result, list | tuple):
        return type(result)(map(_rounded, result))
    value = result.item() if isinstance(result, Tensor) and result.ndim == 0 else result
    return round(value, 5) if isinstance(value, float) else value


ANIMALS = ("ant", "bee", "cat", "dog", "eel")
CHANCES = [[0.1, 0.4, 0.05, 0.25, 0.2], [0.3, 0.02, 0.6, 0.03, 0.05], [0.15, 0.2, 0.24, 0.01, 0.4]]


def _asked(k=2, images=3):
    # Any constant may be added to a row.
    return (torch.tensor(CHANCES).log() + torch.tensor([[-1.0], [2.0], [0.5]]))[:images], ANIMALS, k


EXERCISES["top_k_names"] = Exercise(
    reference=top_k_names, truth=_sorted_names, run=lambda fn, *args: _rounded(fn(*args)),
    cases=[
        Case(_asked, "the first image's classes are bee with 0.40 and dog with 0.25"),
        Case(lambda: _asked(5), "k may be as large as the number of classes"),
        Case(lambda: _asked(1), "with k = 1 each image still has a list, of one pair"),
        Case(lambda: _asked(2, 1), "a batch of one image still gives a list of one list"),
    ],
    mistakes={
        "those are logits, not probabilities: take the softmax": _top(lambda logits, k: logits),
        "the softmax ran over the k best alone, so they add up to 1. Take it over *all* classes":
            _top(_softmax_of_best),
        "the softmax ran over the images: dim=-1": _top(lambda logits, k: logits.softmax(0)),
        "the order is reversed: the likeliest comes first":
            _top(pick=lambda logits, k: logits.topk(k).indices.flip(-1)),
        "those are the least likely classes": _top(pick=lambda logits, k: logits.argsort(-1)[:, :k]),
        "those are the first classes: sort by the logits":
            _top(pick=lambda logits, k: torch.arange(k).expand(len(logits), k)),
        "those are percentages: leave them in 0..1": _top(lambda logits, k: 100 * logits.softmax(-1)),
        "those are sigmoids, each class by itself: take the softmax": _top(lambda logits, k: logits.sigmoid()),
        "those are logarithms of the probabilities": _top(lambda logits, k: logits.log_softmax(-1)),
        "name and probability are swapped: the name comes first": _pairs(lambda name, value: (value, name)),
        "those are names alone: return pairs of name and probability": _pairs(lambda name, value: name),
        "those are probabilities alone: return pairs of name and probability": _pairs(lambda name, value: value),
        "those are dicts: return lists of pairs, likeliest first": lambda *args: [*map(dict, top_k_names(*args))],
        "only the first image is there: return a list for each image": lambda *args: top_k_names(*args)[0],
        "every image got the first image's names": lambda *args: [
            [(first[0], pair[1]) for first, pair in zip(top_k_names(*args)[0], row, strict=True)]
            for row in top_k_names(*args)
        ],
        "those are class indices: look them up in names": _pairs(lambda name, value: (ANIMALS.index(name), value)),
        "all classes were returned; return k of them": lambda logits, names, k: top_k_names(logits, names, len(names)),
    },
    right=[_sorted_names, lambda *args: [[(n, torch.tensor(p)) for n, p in row] for row in top_k_names(*args)]],
    shape="For each image a list of k pairs (name, probability)", tolerance=1e-4,
)  # fmt: skip


def _by_sklearn(features, labels, num_classes, ridge):
    from sklearn.linear_model import Ridge

    targets = 2 * torch.eye(num_classes)[labels] - 1
    fitted = Ridge(ridge).fit(features.double().numpy(), targets.double().numpy())
    return torch.from_numpy(fitted.coef_), torch.from_numpy(fitted.intercept_)


def _ridge(targets=lambda one_hot: 2 * one_hot - 1, penalty=lambda ridge, n: ridge, centred=True, ones=False):
    """linear_probe with other targets or penalty, without centring, or with the bias as the weight of a column of 1."""

    def fn(x, labels, num_classes, ridge):
        y = targets(torch.eye(num_classes, dtype=x.dtype)[labels])
        x = torch.cat([x, x.new_ones(len(x), 1)], 1) if ones else x
        mean, target_mean = centred * x.mean(0), centred * y.mean(0)
        gram = (x - mean).T @ (x - mean) + penalty(ridge, len(x)) * torch.eye(x.shape[1], dtype=x.dtype)
        weight = torch.linalg.solve(gram, (x - mean).T @ (y - target_mean)).T
        return (weight[:, :-1], weight[:, -1]) if ones else (weight, target_mean - weight @ mean)

    return fn


def _probe(change):
    """linear_probe, and then ``change(weight, bias, mean)``, of the features' mean."""
    return lambda x, *args: change(*linear_probe(x, *args), x.mean(0))


def _features(n=14, d=5, k=4):
    labels = torch.arange(n) % (k - 1)  # the last class has no image
    labels[-3:] = 0  # classes of different sizes
    return torch.randn(n, d) + torch.arange(d), labels, k, 2.0


LINEAR_PROBE = {
    "the targets are 0 and 1; here they are −1 and 1": _ridge(targets=lambda y: y),
    "the bias is penalised too. Centre features and targets first, and the penalty spares it":
        _ridge(centred=False, ones=True),
    "there is no bias: what the features have in common goes into it": _ridge(centred=False),
    "the penalty is missing": _ridge(penalty=lambda r, n: 1e-6),
    "the penalty is ridge, not ridge²": _ridge(penalty=lambda r, n: r**2),
    "the penalty was multiplied by the number of images": _ridge(penalty=lambda r, n: r * n),
    "the penalty was divided by the number of images": _ridge(penalty=lambda r, n: r / n),
    "the bias is that of centred features: subtract weight · mean": _probe(lambda w, b, mean: (w, b + w @ mean)),
    "the sign of the bias is wrong: it is the targets' mean *minus* weight · mean":
        _probe(lambda w, b, mean: (w, b + 2 * w @ mean)),
    "a Linear's weight is (classes, d): transpose it": _probe(lambda w, b, mean: (w.T, b)),
    "a bias is a vector, (k,)": _probe(lambda w, b, mean: (w, b[:, None])),
    "weight and bias are swapped": _probe(lambda w, b, mean: (b, w)),
    "only the weight was returned: return two tensors, weight and bias": _probe(lambda w, b, mean: w),
    "a class without images has its row, too: take the number of classes from num_classes":
        lambda x, y, k, ridge: linear_probe(x, y, int(y.max()) + 1, ridge),
}  # fmt: skip
EXERCISES["linear_probe"] = Exercise(
    reference=linear_probe, truth=_by_sklearn, mistakes=LINEAR_PROBE, right=[_ridge(), _by_sklearn],
    given=_features, smallest={"n": 10, "d": 2, "k": 3}, without=("gradient",), tolerance=1e-3,
    cases=[Case(lambda: (_features()[0].double(), *_features()[1:]),
                "right for float32, wrong for float64: weight and bias have the dtype of the features")],
    shape="Two tensors, weight (k, d) and bias (k,)",
    otherwise="that is not the minimum of the squared error plus the penalty",
)  # fmt: skip


def loading_report(wanted: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, list[str]]:
    """Which names fit, which are missing, which are unexpected, and which are on both sides with different shapes."""
    shared = [name for name in wanted if name in given]
    return {
        "fits": [name for name in shared if wanted[name].shape == given[name].shape],
        "missing": [name for name in wanted if name not in given],
        "unexpected": [name for name in given if name not in wanted],
        "misfits": [name for name in shared if wanted[name].shape != given[name].shape],
    }


def _compared(alike):
    """The report by sets, with another idea of shapes that fit."""

    def fn(wanted, given):
        both = wanted.keys() & given.keys()
        fits = {name for name in both if alike(wanted[name], given[name])}
        sets = {
            "fits": fits,
            "missing": wanted.keys() - both,
            "unexpected": given.keys() - both,
            "misfits": both - fits,
        }
        return {key: sorted(names) for key, names in sets.items()}

    return fn


_by_sets = _compared(lambda a, b: tuple(a.shape) == tuple(b.shape))


def _report(key, change):
    """loading_report with one list replaced by ``change(report)``."""
    return lambda *sides: (report := loading_report(*sides)) | {key: change(report)}


WANTED = {"a.weight": (2, 3), "a.bias": (2,), "b.weight": (4, 2), "c.weight": (3, 2)}
WANTED |= {"head.weight": (5, 4), "head.bias": (5,)}
GIVEN = {"a.weight": (2, 3), "a.bias": (2,), "b.weight": (2, 4), "c.weight": (3, 5)}
GIVEN |= {"head.weight": (7, 4), "old.weight": (4, 2), "old.bias": (5,)}
EXERCISES["loading_report"] = Exercise(
    reference=loading_report, truth=_by_sets,
    right=[_by_sets, lambda *sides: {key: set(names) for key, names in loading_report(*sides).items()}],
    run=lambda fn, *args: {key: sorted(names) for key, names in fn(*args).items()},
    cases=[
        Case(lambda: tuple({name: torch.zeros(shape) for name, shape in side.items()} for side in (WANTED, GIVEN)),
             "a.weight and a.bias fit, head.bias is missing, old.* are unexpected; b, c and head have misfit weights"),
        Case(lambda: ({"a": torch.ones(2)}, {}), "in an empty file everything is missing"),
        Case(lambda: ({"a": torch.ones(2)}, {"a": torch.ones(2, dtype=torch.half)}),
             "only names and shapes count: half precision fits as well"),
        Case(lambda: ({"a": torch.ones(2)}, {"a": torch.zeros(2)}), "only names and shapes count, not the numbers"),
    ],
    mistakes={
        "head.weight and b.weight have the same names on both sides, but other shapes: they don't fit":
            _report("fits", lambda report: report["fits"] + report["misfits"]),
        "b.weight is (4, 2) in the model and (2, 4) in the file. Compare shapes, not how many numbers there are":
            _compared(lambda a, b: a.numel() == b.numel()),
        "c.weight is (3, 2) in the model and (3, 5) in the file. Compare whole shapes, not just the first axis":
            _compared(lambda a, b: len(a) == len(b)),
        "shapes may differ though the number of axes is the same": _compared(lambda a, b: a.ndim == b.ndim),
        "missing and unexpected are swapped: missing is what the *model* wants and the file lacks":
            lambda *sides: (r := loading_report(*sides)) | {"missing": r["unexpected"], "unexpected": r["missing"]},
        "a name with the wrong shape is there, so it is a misfit and not missing":
            _report("missing", lambda report: report["missing"] + report["misfits"]),
        "a name with the wrong shape is wanted, so it is a misfit and not unexpected":
            _report("unexpected", lambda report: report["unexpected"] + report["misfits"]),
        "names on one side only are of two kinds: missing in the file, or unexpected in it":
            _report("missing", lambda report: report["missing"] + report["unexpected"]),
        "missing names a weight twice": _report("missing", lambda report: 2 * report["missing"]),
        "misfits should be the names with another shape": _report("misfits", lambda report: []),
        "the keys are fits, missing, unexpected and misfits": lambda *sides: {"missing": [], "unexpected": []},
        "the numbers were compared as well: only names and shapes count":
            _compared(lambda a, b: a.shape == b.shape and torch.equal(a, b)),
    },
    shape="A dict of lists of names, with the keys fits, missing, unexpected and misfits",
)  # fmt: skip
