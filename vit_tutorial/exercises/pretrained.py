"""Exercises of chapter 9: real weights."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.declaration import Case, Exercise
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.state_dicts import HUGGING_FACE, rename

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
    moments = [tensor for state in optimizer.state.values() for name, tensor in state.items() if name != "step"]
    weights = list(model.parameters())

    def size(tensors):
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    maps = torch.zeros(batch, config.num_heads, config.num_tokens, config.num_tokens)
    training = size([*weights, *(parameter.grad for parameter in weights), *moments])
    return {"weights": size(weights), "training": training, "maps": size([maps] * config.depth)}


def _changed(key, change):
    """memory_of with one entry replaced by ``change(bytes, config, batch)``."""
    return lambda config, batch: (
        memory_of(config, batch) | {key: int(change(memory_of(config, batch)[key], config, batch))}
    )


def _config(**changes):
    sizes = {"img_size": (8, 12), "patch_size": 4, "in_chans": 1, "num_classes": 5, "embed_dim": 6, "depth": 2}
    return ViTConfig(**sizes | {"num_heads": 3, "mlp_ratio": 2.0} | changes)


EXERCISES["memory_of"] = Exercise(
    reference=memory_of,
    truth=_held,
    run=lambda fn, *args: {key: int(value) for key, value in fn(*args).items()},
    cases=[
        # By hand: projection 102, class token 6, positions 42; in each of two blocks 24 for the norms, 126 + 42 for the
        # attention and 84 + 78 for the MLP; norm 12, head 35: 905. Maps: 5 images, 2 blocks, 3 heads, 7 × 7 tokens.
        Case(
            given=lambda: (_config(), 5),
            truth={"weights": 3620, "training": 14480, "maps": 5880},
            hint="a model of 905 parameters has 3,620 bytes of weights, four times as much in training, and maps of "
            "7 × 7 tokens for 2 blocks, 3 heads and 5 images: 5,880 bytes",
        ),
        Case(
            given=lambda: (_config(pool="mean"), 5),
            hint="right with a class token, wrong without one: a model with mean pooling has none. config.num_tokens "
            "knows",
            caught=_changed("maps", lambda v, c, b: 4 * b * c.depth * c.num_heads * (c.num_patches + 1) ** 2),
        ),
        Case(
            given=lambda: (_config(pos_embed="sincos_2d", embed_dim=12), 1), hint="fixed positions are not parameters"
        ),
    ],
    mistakes={
        "weights: that is the number of parameters. A float32 has 4 bytes": _changed("weights", lambda v, c, b: v // 4),
        "weights: those are bits. A float32 has 4 bytes": _changed("weights", lambda v, c, b: v * 8),
        "weights: that would be half precision, 2 bytes. A float32 has 4": _changed("weights", lambda v, c, b: v // 2),
        "weights: that would be double precision, 8 bytes. A float32 has 4": _changed("weights", lambda v, c, b: v * 2),
        "weights: they are there once, however many images there are": _changed("weights", lambda v, c, b: v * b),
        "weights: the positions are missing: they are learned, so they are parameters": _changed(
            "weights", lambda v, c, b: v - 4 * c.num_tokens * c.embed_dim
        ),
        "weights: count numbers, not tensors: p.numel()": _changed(
            "weights", lambda v, c, b: 4 * len(list(ViT(c).parameters()))
        ),
        "training: beside the weights there are gradients and AdamW's two running means": _changed(
            "training", lambda v, c, b: v // 4
        ),
        "training: weights and gradients are counted. AdamW keeps two running means for each weight as well": _changed(
            "training", lambda v, c, b: v // 2
        ),
        "training: one of four is missing: weights, gradients, AdamW's mean and its mean of squares": _changed(
            "training", lambda v, c, b: v * 3 // 4
        ),
        "training: one too many: weights, gradients, AdamW's mean and its mean of squares are four": _changed(
            "training", lambda v, c, b: v * 5 // 4
        ),
        "training: none of these grows with the batch": _changed("training", lambda v, c, b: v * b),
        "maps: that is the number of weights in the maps; each has 4 bytes": _changed("maps", lambda v, c, b: v // 4),
        "maps: the class token looks and is looked at, too: n + 1 tokens": _changed(
            "maps", lambda v, c, b: v * c.num_patches**2 // c.num_tokens**2
        ),
        "maps: each token has a weight for *each* token: the number of tokens squared": _changed(
            "maps", lambda v, c, b: v // c.num_tokens
        ),
        "maps: each head has a map of its own": _changed("maps", lambda v, c, b: v // c.num_heads),
        "maps: each layer has maps of its own": _changed("maps", lambda v, c, b: v // c.depth),
        "maps: each image of the batch has maps of its own": _changed("maps", lambda v, c, b: v // b),
        "the keys are weights, training and maps": lambda c, b: {"weights": memory_of(c, b)["weights"]},
    },
    right=[_held],
    shape="A dict with the keys weights, training and maps",
)


def rename_key(name: str) -> str:
    """Our name for a parameter in a file of Hugging Face's ViT; queries, keys and values all belong to ``qkv``."""
    return rename(rename(name, HUGGING_FACE), {r"\.attn\.(query|key|value)\.": ".attn.qkv."})


BLOCK = {
    "vit.encoder.layer.": "blocks.",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "attention.attention.query": "attn.qkv",
    "attention.attention.key": "attn.qkv",
    "attention.attention.value": "attn.qkv",
    "attention.output.dense": "attn.proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
OUTER = {
    "vit.embeddings.cls_token": "cls_token",
    "vit.embeddings.position_embeddings": "pos_embed",
    "vit.embeddings.patch_embeddings.projection": "patch_embed.proj",
    "vit.layernorm": "norm",
    "classifier": "head",
}


def _replacing(pairs):
    def fn(name):
        for old, new in pairs.items():
            name = name.replace(old, new)
        return name

    return fn


def _with(**changes):
    """All replacements, but for some; a key's dots are underscores here."""
    pairs = BLOCK | OUTER
    return _replacing({old: changes.get(old.replace(".", "_"), new) for old, new in pairs.items()})


def _names():
    """Names of Hugging Face's and ours: of what stands outside the blocks, and of the first and the twelfth block."""
    for old, new in OUTER.items():
        whole = old.endswith(("cls_token", "position_embeddings"))
        for end in ("",) if whole else (".weight", ".bias"):
            yield old + end, new + end
    for i in (0, 11):
        for old, new in list(BLOCK.items())[1:]:
            for end in (".weight", ".bias"):
                yield f"vit.encoder.layer.{i}.{old}{end}", f"blocks.{i}.{new}{end}"


EXERCISES["rename_key"] = Exercise(
    reference=rename_key,
    cases=[Case(given=lambda old=old: (old,), truth=new, hint=f"{old} is {new}") for old, new in _names()],
    mistakes={
        "Nothing was replaced": lambda name: name,
        "Nothing of `vit.embeddings.` stays": _with(
            vit_embeddings_cls_token="vit.embeddings.cls_token",
            vit_embeddings_position_embeddings="vit.embeddings.pos_embed",
            vit_embeddings_patch_embeddings_projection="vit.embeddings.patch_embed.proj",
        ),
        "Something of `vit.encoder.` is left: `vit.encoder.layer.` becomes `blocks.`": _with(
            vit_encoder_layer_="vit.blocks."
        ),
        "Something of `encoder.layer.` is left: `vit.encoder.layer.` becomes `blocks.`": _with(
            vit_encoder_layer_="encoder.layer."
        ),
        "`output.dense` is the end of `attention.output.dense`, too: replace the longer name first": _replacing(
            OUTER | {"output.dense": "mlp.fc2"} | BLOCK
        ),
        "`layernorm_before` is norm1 and `layernorm_after` is norm2: it comes after attention, before the MLP": _with(
            layernorm_before="norm2", layernorm_after="norm1"
        ),
        "`vit.layernorm` is the final norm; those with `_before` and `_after` belong to a block": _replacing(
            {"layernorm": "norm"} | BLOCK | OUTER
        ),
        "Queries, keys and values are one layer here, attn.qkv; their order is settled when they are stacked": _with(
            attention_attention_query="attn.query",
            attention_attention_key="attn.key",
            attention_attention_value="attn.value",
        ),
        "The end tells weights from biases, and must stay": lambda name: rename_key(name).replace(".bias", ".weight"),
        "The end, .weight or .bias, is lost": lambda name: (
            rename_key(name).removesuffix(".bias").removesuffix(".weight")
        ),
        "The block's number must stay, all digits of it": lambda name: rename_key(name).replace(
            "blocks.11", "blocks.1"
        ),
        "blocks are numbered from 0 on both sides": lambda name: (
            rename_key(name).replace("blocks.11", "blocks.12").replace("blocks.0", "blocks.1")
        ),
        "`intermediate` is the first layer of the MLP, fc1, and `output` the second, fc2": _with(
            intermediate_dense="mlp.fc2", output_dense="mlp.fc1"
        ),
        "the layers of the MLP are mlp.fc1 and mlp.fc2": _with(intermediate_dense="fc1", output_dense="fc2"),
        "`classifier` is head": _with(classifier="fc"),
        "`vit.embeddings.cls_token` is cls_token": _with(vit_embeddings_cls_token="class_token"),
    },
    right=[_replacing(BLOCK | OUTER)],
    otherwise="the names are those of the table above",
)


def split_in_proj(in_proj: Float[Tensor, "three_d d"], num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """torchvision's fused projection as queries, keys and values, each ``(num_heads, head_dim, d)``."""
    dim = in_proj.shape[1]
    return tuple(part.reshape(num_heads, dim // num_heads, dim) for part in in_proj.chunk(3))


def _row_by_row(in_proj, num_heads):
    dim = in_proj.shape[1]
    hd = dim // num_heads
    return tuple(
        torch.stack([in_proj[i * dim + j * hd : i * dim + (j + 1) * hd] for j in range(num_heads)]) for i in range(3)
    )


def _by_attention(fn, in_proj, num_heads):
    """PyTorch's own attention layer must look where these queries and keys look, and the parts must be its rows."""
    parts = tuple(fn(in_proj, num_heads))
    return torch.stack(parts) if len({part.shape for part in parts}) == 1 and len(parts) == 3 else parts


def _parts(change):
    return lambda w, h: tuple(change(w, h, w.shape[1], w.shape[1] // h))


EXERCISES["split_in_proj"] = Exercise(
    reference=split_in_proj,
    truth=_row_by_row,
    run=_by_attention,
    given=lambda h=2, hd=6: (torch.randn(3 * h * hd, h * hd), h),
    smallest={"hd": 2},
    mistakes={
        "that is the matrix of all heads together: cut its rows into heads": lambda w, h: w.chunk(3),
        "head_dim and heads are swapped: the rows of one head stand together": _parts(
            lambda w, h, d, hd: w.reshape(3, hd, h, d)
        ),
        "the columns were cut, behind the rows. A head has some of the *outputs*, which are rows, "
        "and sees all inputs": _parts(lambda w, h, d, hd: w.reshape(3, h, d, hd)),
        "the columns were cut. A head has some of the *outputs*, which are rows, and sees all inputs": _parts(
            lambda w, h, d, hd: w.reshape(3, d, h, hd)
        ),
        "queries and keys are swapped: the order is queries, keys, values": _parts(
            lambda w, h, d, hd: w.reshape(3, h, hd, d)[[1, 0, 2]]
        ),
        "the order is queries, keys, values; yours is turned round": _parts(
            lambda w, h, d, hd: w.reshape(3, h, hd, d).flip(0)
        ),
        "keys and values are swapped: the order is queries, keys, values": _parts(
            lambda w, h, d, hd: w.reshape(3, h, hd, d)[[0, 2, 1]]
        ),
        "the three are interleaved row by row: all rows of the queries come first, then all keys": _parts(
            lambda w, h, d, hd: w.reshape(d, 3, d).transpose(0, 1).reshape(3, h, hd, d)
        ),
        "the rows go head by head *within* the queries, not queries, keys and values within a head": _parts(
            lambda w, h, d, hd: w.reshape(h, 3, hd, d).transpose(0, 1)
        ),
        "a head got every h-th row: its rows stand together, so reshape to (heads, head_dim, d)": _parts(
            lambda w, h, d, hd: w.reshape(3, hd, h, d).transpose(1, 2)
        ),
        "the matrix was transposed: torch's Linear has outputs as rows": _parts(
            lambda w, h, d, hd: w.T.reshape(3, h, hd, d)
        ),
        "all three are the queries": _parts(lambda w, h, d, hd: w[:d].reshape(1, h, hd, d).expand(3, -1, -1, -1)),
        "two parts came out: three tensors were wanted, queries, keys and values": lambda w, h: split_in_proj(w, h)[:2],
        "the heads are in reverse: head 0 has the first rows": lambda w, h: tuple(
            part.flip(0) for part in split_in_proj(w, h)
        ),
    },
    right=[_row_by_row, lambda w, h: [part.unflatten(0, (h, -1)) for part in w.chunk(3)]],
    shape="Three tensors, queries, keys and values, each (num_heads, head_dim, d)",
)


def top_k_names(logits: Float[Tensor, "b c"], names: tuple[str, ...], k: int) -> list[list[tuple[str, float]]]:
    """For each image the ``k`` likeliest classes, likeliest first, as pairs of name and probability."""
    values, numbers = logits.softmax(dim=-1).topk(k)
    return [
        [(names[number], value) for number, value in zip(row, chances, strict=True)]
        for row, chances in zip(numbers.tolist(), values.tolist(), strict=True)
    ]


def _sorted_names(logits, names, k):
    """Row by row, through a sorted list."""
    return [
        sorted(zip(names, row.tolist(), strict=True), key=lambda pair: -pair[1])[:k] for row in logits.softmax(dim=-1)
    ]


def _top(values=lambda logits, k: logits.softmax(-1), pick=None, pair=lambda name, value: (name, value)):
    """top_k_names with other values, another choice of classes or other pairs."""

    def fn(logits, names, k):
        chosen = pick(logits, k) if pick else logits.argsort(-1, descending=True)[:, :k]
        return [
            [pair(names[n], row[n].item()) for n in numbers]
            for row, numbers in zip(values(logits, k), chosen.tolist(), strict=True)
        ]

    return fn


def _softmax_of_best(logits, k):
    best, numbers = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, numbers, best.softmax(-1))


def _as_numbers(result):
    """Pairs as they are; probabilities as Python's numbers."""
    if not all(isinstance(row, list | tuple) and all(len(pair) == 2 for pair in row) for row in result):
        return result
    return [[(name, value.item() if isinstance(value, Tensor) else value) for name, value in row] for row in result]


ANIMALS = ("ant", "bee", "cat", "dog", "eel")
CHANCES = [[0.1, 0.4, 0.05, 0.25, 0.2], [0.3, 0.02, 0.6, 0.03, 0.05], [0.15, 0.2, 0.24, 0.01, 0.4]]


def _asked(k=2, images=3):
    # Any constant may be added to a row.
    return (torch.tensor(CHANCES).log() + torch.tensor([[-1.0], [2.0], [0.5]]))[:images], ANIMALS, k


EXERCISES["top_k_names"] = Exercise(
    reference=top_k_names,
    truth=_sorted_names,
    run=lambda fn, *args: _as_numbers(fn(*args)),
    cases=[
        Case(given=_asked, hint="the first image's classes are bee with 0.40 and dog with 0.25"),
        Case(given=lambda: _asked(5), hint="k may be as large as the number of classes"),
        Case(given=lambda: _asked(1), hint="with k = 1 each image still has a list, of one pair"),
        Case(given=lambda: _asked(2, 1), hint="a batch of one image still gives a list of one list"),
    ],
    mistakes={
        "those are logits, not probabilities: take the softmax": _top(lambda logits, k: logits),
        "the softmax ran over the k best alone, so they add up to 1. It belongs to *all* classes": _top(
            _softmax_of_best
        ),
        "the softmax ran over the images: dim=-1": _top(lambda logits, k: logits.softmax(0)),
        "the order is turned round: the likeliest comes first": _top(
            pick=lambda logits, k: logits.topk(k).indices.flip(-1)
        ),
        "those are the least likely classes": _top(pick=lambda logits, k: logits.argsort(-1)[:, :k]),
        "those are the first classes: sort by the logits": _top(
            pick=lambda logits, k: torch.arange(k).expand(len(logits), k)
        ),
        "those are percentages: leave them in 0..1": _top(lambda logits, k: 100 * logits.softmax(-1)),
        "those are sigmoids, each class by itself: take the softmax": _top(lambda logits, k: logits.sigmoid()),
        "those are logarithms of the probabilities": _top(lambda logits, k: logits.log_softmax(-1)),
        "name and probability are swapped: the name comes first": _top(pair=lambda name, value: (value, name)),
        "the first image alone came out: a list for each image was wanted": lambda *args: top_k_names(*args)[0],
        "the names are those of the first image for all": lambda logits, names, k: [
            [(name, value) for (name, _), (_, value) in zip(top_k_names(logits, names, k)[0], row, strict=True)]
            for row in top_k_names(logits, names, k)
        ],
        "the number of the class came out; look it up in names": lambda logits, names, k: top_k_names(
            logits, tuple(range(len(names))), k
        ),
        "all classes came out; k were asked for": lambda logits, names, k: top_k_names(logits, names, len(names)),
    },
    right=[_sorted_names],
    shape="For each image a list of k pairs (name, probability)",
    tolerance=1e-4,
)


def linear_probe(
    features: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], num_classes: int, ridge: float
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """Weight and bias of the linear layer with the least squared error on targets −1 and 1, plus ridge · |weight|²."""
    targets = 2 * torch.eye(num_classes, dtype=features.dtype)[labels] - 1
    mean, target_mean = features.mean(dim=0), targets.mean(dim=0)
    centred = features - mean
    gram = centred.T @ centred + ridge * torch.eye(features.shape[1], dtype=features.dtype)
    weight = torch.linalg.solve(gram, centred.T @ (targets - target_mean)).T
    return weight, target_mean - weight @ mean


def _by_sklearn(features, labels, num_classes, ridge):
    from sklearn.linear_model import Ridge

    targets = 2 * torch.eye(num_classes)[labels] - 1
    fitted = Ridge(ridge).fit(features.double().numpy(), targets.double().numpy())
    return torch.from_numpy(fitted.coef_), torch.from_numpy(fitted.intercept_)


def _ridge(targets=lambda one_hot: 2 * one_hot - 1, penalty=lambda ridge, n: ridge, bias="", sign=-1):
    """linear_probe with other targets or penalty, or another way to the bias."""

    def fn(features, labels, num_classes, ridge):
        y = targets(torch.eye(num_classes, dtype=features.dtype)[labels])
        n = len(features)
        x = features
        if bias == "penalised":
            x = torch.cat([x, x.new_ones(n, 1)], 1)
        elif bias != "none":
            x = x - x.mean(0)
        centre = torch.zeros_like(y[0]) if bias in ("none", "penalised") else y.mean(0)
        gram = x.T @ x + penalty(ridge, n) * torch.eye(x.shape[1], dtype=x.dtype)
        weight = torch.linalg.solve(gram, x.T @ (y - centre)).T
        if bias == "penalised":
            return weight[:, :-1], weight[:, -1]
        return weight, centre if bias in ("none", "of centred") else centre + sign * weight @ features.mean(0)

    return fn


def _features(n=14, d=5, k=4):
    labels = torch.arange(n) % (k - 1)  # the last class has no image
    labels[-3:] = 0  # classes of different sizes
    return torch.randn(n, d) + torch.arange(d), labels, k, 2.0


EXERCISES["linear_probe"] = Exercise(
    reference=linear_probe,
    truth=_by_sklearn,
    given=_features,
    smallest={"n": 10, "d": 2, "k": 3},
    without=("gradient",),
    mistakes={
        "the targets are 0 and 1; here they are −1 and 1": _ridge(targets=lambda y: y),
        "the bias is penalised too. Centre features and targets first, and the penalty leaves it alone": _ridge(
            bias="penalised"
        ),
        "there is no bias: what the features have in common goes into it": _ridge(bias="none"),
        "the penalty is missing": _ridge(penalty=lambda r, n: 1e-6),
        "the penalty is ridge², but it is ridge": _ridge(penalty=lambda r, n: r**2),
        "the penalty was multiplied by the number of images": _ridge(penalty=lambda r, n: r * n),
        "the penalty was divided by the number of images": _ridge(penalty=lambda r, n: r / n),
        "the bias is that of centred features: take weight · mean off": _ridge(bias="of centred"),
        "the sign of the bias is wrong: it is the targets' mean *minus* weight · mean": _ridge(sign=1),
        "a Linear's weight is (classes, d): transpose it": lambda *args: (_ridge()(*args)[0].T, _ridge()(*args)[1]),
        "a bias is a vector, (k,)": lambda *args: (_ridge()(*args)[0], _ridge()(*args)[1][:, None]),
        "weight and bias are swapped": lambda *args: _ridge()(*args)[::-1],
        "the weight alone came out: two tensors were wanted, weight and bias": lambda *args: _ridge()(*args)[0],
        "a class without images has its row, too: take the number of classes from num_classes": lambda x, y, k, ridge: (
            _ridge()(x, y, int(y.max()) + 1, ridge)
        ),
    },
    right=[_ridge(), _by_sklearn],
    shape="Two tensors, weight (k, d) and bias (k,)",
    otherwise="that is not the minimum of the squared error plus the penalty",
    tolerance=1e-3,
)


def loading_report(wanted: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, list[str]]:
    """Which names fit, which are missing, which are unexpected, and which are on both sides with different shapes."""
    shared = [name for name in wanted if name in given]
    return {
        "fits": [name for name in shared if wanted[name].shape == given[name].shape],
        "missing": [name for name in wanted if name not in given],
        "spare": [name for name in given if name not in wanted],
        "misfits": [name for name in shared if wanted[name].shape != given[name].shape],
    }


def _by_sets(wanted, given):
    shapes = [{(name, tuple(value.shape)) for name, value in side.items()} for side in (wanted, given)]
    fits = sorted(name for name, _ in shapes[0] & shapes[1])
    misfits = sorted((wanted.keys() & given.keys()) - set(fits))
    missing, spare = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    return {"fits": fits, "missing": missing, "spare": spare, "misfits": misfits}


def _report(**changes):
    return lambda wanted, given: (
        loading_report(wanted, given) | {key: change(wanted, given) for key, change in changes.items()}
    )


def _compared(alike):
    """Another idea of shapes that fit."""

    def fn(wanted, given):
        shared = [name for name in wanted if name in given]
        fits = [name for name in shared if alike(wanted[name], given[name])]
        return loading_report(wanted, given) | {"fits": fits, "misfits": [name for name in shared if name not in fits]}

    return fn


def _two_sides():
    wanted = {
        "a.weight": (2, 3),
        "a.bias": (2,),
        "b.weight": (4, 2),
        "head.weight": (5, 4),
        "head.bias": (5,),
        "c.weight": (3, 2),
    }
    given = {"a.weight": (2, 3), "old.weight": (4, 2), "head.weight": (7, 4), "c.weight": (3, 5), "b.weight": (2, 4)}
    given |= {"a.bias": (2,), "old.bias": (5,)}
    return tuple({name: torch.zeros(shape) for name, shape in side.items()} for side in (wanted, given))


def _wrong_shapes(wanted, given):
    return [name for name in wanted if name in given and wanted[name].shape != given[name].shape]


EXERCISES["loading_report"] = Exercise(
    reference=loading_report,
    truth=_by_sets,
    run=lambda fn, *args: {key: sorted(names) for key, names in fn(*args).items()},
    cases=[
        Case(
            given=_two_sides,
            hint="a.weight and a.bias fit, head.bias is missing, old.weight and old.bias are spare, and b, c and "
            "head have weights of other shapes",
        ),
        Case(given=lambda: ({"a": torch.ones(2)}, {}), hint="in an empty file everything is missing"),
        Case(
            given=lambda: ({"a": torch.ones(2)}, {"a": torch.ones(2, dtype=torch.half)}),
            hint="only names and shapes count: half precision fits as well",
        ),
        Case(
            given=lambda: ({"a": torch.ones(2)}, {"a": torch.zeros(2)}),
            hint="only names and shapes count, not the numbers",
        ),
    ],
    mistakes={
        "head.weight and b.weight have the same names on both sides, but other shapes: they do not fit": _report(
            fits=lambda w, g: [name for name in w if name in g]
        ),
        "b.weight is (4, 2) in the model and (2, 4) in the file. Compare shapes, not how many "
        "numbers there are": _compared(lambda a, b: a.numel() == b.numel()),
        "c.weight is (3, 2) in the model and (3, 5) in the file. Compare whole shapes, not the first "
        "axis alone": _compared(lambda a, b: len(a) == len(b)),
        "shapes may differ though the number of axes is the same": _compared(lambda a, b: a.ndim == b.ndim),
        "missing and spare are swapped: missing is what the *model* wants and the file lacks": _report(
            missing=lambda w, g: list(g.keys() - w.keys()), spare=lambda w, g: list(w.keys() - g.keys())
        ),
        "a name with the wrong shape is there, so it is a misfit and not missing": _report(
            missing=lambda w, g: [*(w.keys() - g.keys()), *_wrong_shapes(w, g)]
        ),
        "a name with the wrong shape is wanted, so it is a misfit and not spare": _report(
            spare=lambda w, g: [*(g.keys() - w.keys()), *_wrong_shapes(w, g)]
        ),
        "names on one side only are of two kinds: missing in the file, or spare in it": _report(
            missing=lambda w, g: list(w.keys() ^ g.keys())
        ),
        "missing names a weight twice": _report(missing=lambda w, g: 2 * list(w.keys() - g.keys())),
        "misfits should be the names with another shape": _report(misfits=lambda w, g: []),
        "the keys are fits, missing, spare and misfits": lambda w, g: {"missing": [], "spare": []},
        "the numbers were compared as well: only names and shapes count": _compared(
            lambda a, b: a.shape == b.shape and torch.equal(a, b)
        ),
    },
    right=[_by_sets],
    shape="A dict of lists of names, with the keys fits, missing, spare and misfits",
)
