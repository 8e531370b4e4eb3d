"""Checks of chapter 9, real weights."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_tutorial.config import ViTConfig
from vit_tutorial.exercises.engine import call, checks, close, compare, expect, expect_shape, rule_out
from vit_tutorial.model import ViT
from vit_tutorial.pretrained.state_dicts import HUGGING_FACE, rename


def memory_of(config: ViTConfig, batch: int) -> dict[str, int]:
    """Bytes in float32: of the weights, of what AdamW needs to train them, and of all attention maps of a batch."""
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in ViT(config).parameters())
    maps = batch * config.depth * config.num_heads * config.num_tokens**2
    return {"weights": 4 * parameters, "training": 16 * parameters, "maps": 4 * maps}


@checks(memory_of)
def check_memory_of(fn):
    # A grid of 2 × 3 patches and a class token. By hand: projection 102, class token 6, positions 42; in each of two
    # blocks 24 for the norms, 126 + 42 for the attention and 84 + 78 for the MLP; norm 12, head 35.
    config = ViTConfig(
        img_size=(8, 12), patch_size=4, in_chans=1, num_classes=5, embed_dim=6, depth=2, num_heads=3, mlp_ratio=2.0
    )
    parameters, batch, tokens, layers, heads = 905, 5, 7, 2, 3
    result = call(fn, config, batch)
    keys = {"weights", "training", "maps"}
    expect(isinstance(result, dict), f"expected a dict, got {type(result).__name__}")
    expect(set(result) == keys, f"the keys are {', '.join(sorted(keys))}; got {', '.join(map(str, result))}")
    got = {key: int(value) for key, value in result.items()}

    def name_mistake(key: str, truth: int, mistakes: dict[int, str], otherwise: str) -> None:
        expect(got[key] == truth, f"{key}: {mistakes.get(got[key], otherwise)}")

    name_mistake(
        "weights",
        4 * parameters,
        {
            parameters: "that is the number of parameters. A float32 has 4 bytes",
            32 * parameters: "those are bits. A float32 has 4 bytes",
            2 * parameters: "that would be half precision: 2 bytes. A float32 has 4",
            8 * parameters: "that would be double precision: 8 bytes. A float32 has 4",
            4 * parameters * batch: "the weights are there once, however many images there are",
            4 * len(list(ViT(config).parameters())): "count numbers, not tensors: p.numel()",
            4 * (parameters - 42): "the positions are missing: they are learned, so they are parameters",
        },
        f"expected {4 * parameters} bytes for {parameters} parameters, got {got['weights']}",
    )
    name_mistake(
        "training",
        16 * parameters,
        {
            4 * parameters: "beside the weights there are gradients and AdamW's two running means",
            8 * parameters: "weights and gradients are counted. AdamW keeps two running means for each weight as well",
            12 * parameters: "one of four is missing: weights, gradients, AdamW's mean and its mean of squares",
            16 * parameters * batch: "none of these grows with the batch",
        },
        f"expected 4 numbers for each of {parameters} parameters, {16 * parameters} bytes, got {got['training']}",
    )
    right = batch * layers * heads * tokens**2
    name_mistake(
        "maps",
        4 * right,
        {
            right: "that is the number of weights in the maps; each has 4 bytes",
            4 * batch * layers * heads * 36: "the class token looks and is looked at, too: n + 1 tokens",
            4
            * batch
            * layers
            * heads
            * tokens: "each token has a weight for *each* token: the number of tokens squared",
            4 * batch * layers * tokens**2: "each head has a map of its own",
            4 * batch * heads * tokens**2: "each layer has maps of its own",
            4 * layers * heads * tokens**2: "each image of the batch has maps of its own",
        },
        f"expected {4 * right} bytes for {layers} layers × {heads} heads × {tokens}² tokens × {batch} images, "
        f"got {got['maps']}",
    )
    averaging = replace(config, pool="mean")
    expect(
        int(call(fn, averaging, batch)["maps"]) == memory_of(averaging, batch)["maps"],
        "right with a class token, wrong without one: a model with mean pooling has none. config.num_tokens knows",
    )


def rename_key(name: str) -> str:
    """Our name for a parameter in a file of Hugging Face's ViT; queries, keys and values all belong to ``qkv``."""
    return rename(rename(name, HUGGING_FACE), {r"\.attn\.(query|key|value)\.": ".attn.qkv."})


_BLOCK = {
    "layernorm_before": "norm1",
    "attention.attention.query": "attn.qkv",
    "attention.attention.key": "attn.qkv",
    "attention.attention.value": "attn.qkv",
    "attention.output.dense": "attn.proj",
    "layernorm_after": "norm2",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
_OUTER = {
    "vit.embeddings.patch_embeddings.projection.bias": "patch_embed.proj.bias",
    "vit.embeddings.cls_token": "cls_token",
    "vit.embeddings.position_embeddings": "pos_embed",
    "vit.layernorm.weight": "norm.weight",
    "classifier.bias": "head.bias",
}


@checks(rename_key)
def check_rename_key(fn):
    names = dict(_OUTER)
    for theirs, ours in _BLOCK.items():
        names[f"vit.encoder.layer.0.{theirs}.weight"] = f"blocks.0.{ours}.weight"
        names[f"vit.encoder.layer.11.{theirs}.bias"] = f"blocks.11.{ours}.bias"
    for theirs, ours in names.items():
        result = call(fn, theirs)
        expect(isinstance(result, str), f"expected a name, got {type(result).__name__}")
        expect(result == ours, f"{theirs} became {result}. {_rename_mistake(theirs, ours, result)}".strip())


def _rename_mistake(theirs: str, ours: str, result: str) -> str:
    if result == theirs:
        return f"Nothing was replaced; it is {ours}"
    if theirs.startswith("vit.layernorm"):
        return f"`vit.layernorm` is the final norm, {ours}; those with `_before` and `_after` belong to a block"
    if result.startswith("vit.embeddings"):
        return f"Nothing of `vit.embeddings.` stays: {ours}"
    if result.startswith(("vit.", "encoder.")):
        return "Something of `vit.encoder.` is left: `vit.encoder.layer.` becomes `blocks.`"
    if "." in ours and result.split(".")[-1] != ours.split(".")[-1]:
        return f"The end tells weights from biases: {ours}"
    if result.startswith("blocks.") and result.split(".")[1] != ours.split(".")[1]:
        return f"The block's number must stay, all digits of it: {ours}"
    if "attention.output.dense" in theirs and ("fc2" in result or "attention" in result):
        return "`output.dense` is the end of `attention.output.dense`, too: replace the longer name first"
    if "layernorm_" in theirs and {"norm1", "norm2"} & set(result.split(".")):
        return "`layernorm_before` is norm1 and `layernorm_after` is norm2: it comes after attention, before the MLP"
    if any(f".attention.{part}." in theirs for part in ("query", "key", "value")):
        return f"Queries, keys and values are one layer here, {ours}; their order is settled when they are stacked"
    if {"fc1", "fc2"} & set(result.split(".")):
        return "`intermediate` is the first layer of the MLP, fc1, and `output` the second, fc2"
    return f"It is {ours}"


def split_in_proj(in_proj: Float[Tensor, "three_d d"], num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """torchvision's fused projection as queries, keys and values, each ``(num_heads, head_dim, d)``."""
    dim = in_proj.shape[1]
    return tuple(part.reshape(num_heads, dim // num_heads, dim) for part in in_proj.chunk(3))


@checks(split_in_proj)
def check_split_in_proj(fn):
    dim, heads = 12, 2  # not as many heads as parts
    layer = torch.nn.MultiheadAttention(dim, heads, batch_first=True, bias=False)
    weight = layer.in_proj_weight.detach().clone()
    result = call(fn, weight, heads)
    expect(
        isinstance(result, torch.Tensor | tuple | list) and len(result) == 3,
        f"expected three tensors, queries, keys and values; got {type(result).__name__} of {len(result)}"
        if hasattr(result, "__len__")
        else f"expected three tensors, got {type(result).__name__}",
    )
    hd = dim // heads
    usual = {
        (dim, dim): "that is the matrix of all heads together: cut its rows into heads",
        (hd, heads, dim): "head_dim and heads are swapped: the rows of one head stand together",
        (heads, dim, hd): "the columns were cut. A head has some of the *outputs*, which are rows, and sees all inputs",
        (dim, heads, hd): "the columns were cut. A head has some of the *outputs*, which are rows, and sees all inputs",
    }
    for part in result:
        expect_shape(part, (heads, hd, dim), "(num_heads, head_dim, d)", usual)
    parts = torch.stack(tuple(result)).float()
    truth = weight.reshape(3, heads, hd, dim)
    by_head = weight.reshape(heads, 3, hd, dim).transpose(0, 1)
    rule_out(
        parts,
        {
            "queries and keys are swapped: the order is queries, keys, values": truth[[1, 0, 2]],
            "the order is queries, keys, values; yours is turned round": truth[[2, 1, 0]],
            "the three are interleaved row by row: all rows of the queries come first, then all keys": (
                weight.reshape(dim, 3, dim).transpose(0, 1).reshape(3, heads, hd, dim)
            ),
            "the rows go head by head *within* the queries, not queries, keys and values within a head": by_head,
            "a head got every third row: its rows stand together, so reshape to (heads, head_dim, d)": (
                weight.reshape(3, hd, heads, dim).transpose(1, 2)
            ),
            "the matrix was transposed: torch's Linear has outputs as rows": weight.T.reshape(3, heads, hd, dim),
            "all three are the queries": truth[[0, 0, 0]],
        },
    )
    # The truth is torch's own attention: its weights on some tokens must be those of the split projections.
    x = torch.randn(2, 5, dim)
    _, wanted = layer(x, x, x, average_attn_weights=False)
    q, k = (torch.einsum("bnd,hcd->bhnc", x, parts[i]) for i in (0, 1))
    weights = (q @ k.mT / hd**0.5).softmax(dim=-1)
    expect(close(weights, wanted, 1e-4), "torch's own attention layer looks elsewhere than with these queries and keys")
    expect(close(parts[2], truth[2]), "queries and keys are right, the values are not")


def loading_report(wanted: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, list[str]]:
    """Which names fit, which are missing, which are spare, and which are on both sides with different shapes."""
    shared = [name for name in wanted if name in given]
    return {
        "fits": [name for name in shared if wanted[name].shape == given[name].shape],
        "missing": [name for name in wanted if name not in given],
        "spare": [name for name in given if name not in wanted],
        "misfits": [name for name in shared if wanted[name].shape != given[name].shape],
    }


@checks(loading_report)
def check_loading_report(fn):
    wanted = {"a.weight": torch.zeros(2, 3), "a.bias": torch.zeros(2), "b.weight": torch.zeros(4, 2)}
    wanted |= {"head.weight": torch.zeros(5, 4), "head.bias": torch.zeros(5)}
    given = {"a.weight": torch.ones(2, 3), "old.weight": torch.ones(4, 2), "head.weight": torch.ones(7, 4)}
    wanted["c.weight"], given["c.weight"] = torch.zeros(3, 2), torch.ones(3, 5)
    given |= {"b.weight": torch.ones(2, 4), "a.bias": torch.ones(2), "old.bias": torch.ones(5)}
    result = call(fn, wanted, given)
    expect(isinstance(result, dict), f"expected a dict of lists, got {type(result).__name__}")
    keys = ("fits", "missing", "spare", "misfits")
    expect(set(result) == set(keys), f"the keys are {', '.join(keys)}; got {', '.join(map(str, result))}")
    got = {key: sorted(result[key]) for key in keys}
    truth = {
        "fits": ["a.bias", "a.weight"],
        "missing": ["head.bias"],
        "spare": ["old.bias", "old.weight"],
        "misfits": ["b.weight", "c.weight", "head.weight"],
    }
    expect(
        "c.weight" not in got["fits"] or "b.weight" in got["fits"],
        "c.weight is (3, 2) in the model and (3, 5) in the file. Compare whole shapes, not the first axis alone",
    )
    expect(
        not {"b.weight", "head.weight"} <= set(got["fits"]),
        "head.weight and b.weight have the same names on both sides, but other shapes: they do not fit",
    )
    expect(
        "b.weight" not in got["fits"],
        "b.weight is (4, 2) in the model and (2, 4) in the file. Compare shapes, not how many numbers there are",
    )
    expect(
        (got["missing"], got["spare"]) != (truth["spare"], truth["missing"]),
        "missing and spare are swapped: missing is what the *model* wants and the file lacks",
    )
    expect(
        not {"b.weight", "head.weight"} <= set(got["missing"]),
        "a name with the wrong shape is there, so it is a misfit and not missing",
    )
    expect(
        not set(got["spare"]) & {"b.weight", "head.weight"},
        "a name with the wrong shape is wanted, so it is a misfit and not spare",
    )
    expect(
        set(got["missing"]) != {"head.bias", "old.bias", "old.weight"},
        "names on one side only are of two kinds: missing in the file, or spare in it",
    )
    for key in keys:
        expect(len(got[key]) == len(set(got[key])), f"{key} names a weight twice")
        expect(got[key] == truth[key], f"{key} should be {truth[key]}, got {got[key]}")


def top_k_names(logits: Float[Tensor, "b c"], names: tuple[str, ...], k: int) -> list[list[tuple[str, float]]]:
    """For each image the ``k`` likeliest classes, likeliest first, as pairs of name and probability."""
    values, numbers = logits.softmax(dim=-1).topk(k)
    return [
        [(names[number], value) for number, value in zip(row, chances, strict=True)]
        for row, chances in zip(numbers.tolist(), values.tolist(), strict=True)
    ]


@checks(top_k_names)
def check_top_k_names(fn):
    names = ("ant", "bee", "cat", "dog", "eel")
    chances = torch.tensor([[0.1, 0.4, 0.05, 0.25, 0.2], [0.3, 0.02, 0.6, 0.03, 0.05], [0.15, 0.2, 0.24, 0.01, 0.4]])
    logits = chances.log() + torch.tensor([[-1.0], [2.0], [0.5]])  # any constant may be added to a row
    k = 2
    result = call(fn, logits, names, k)
    expect(isinstance(result, list), f"expected a list, got {type(result).__name__}")
    expect(len(result) == 3, f"expected a list for each of 3 images, got {len(result)}")
    expect(all(isinstance(row, list | tuple) for row in result), "each image's entry is a list of pairs")
    rows = [list(row) for row in result]
    expect(
        all(len(row) == k for row in rows),
        f"expected {k} classes for each image, got {[len(row) for row in rows]}",
    )
    pairs = all(isinstance(pair, tuple | list) and len(pair) == 2 for row in rows for pair in row)
    expect(pairs, f"expected pairs (name, probability), got {rows[0][0]!r}")
    expect(
        not isinstance(rows[0][0][1], str),
        "name and probability are swapped: the name comes first",
    )
    expect(
        isinstance(rows[0][0][0], str), f"expected a class's name, got {rows[0][0][0]!r}: look the number up in names"
    )
    got = [[pair[0] for pair in row] for row in rows]
    truth = [["bee", "dog"], ["cat", "ant"], ["eel", "cat"]]
    expect(got != [row[::-1] for row in truth], "the order is turned round: the likeliest comes first")
    expect(got[0][0] != "cat", "those are the least likely classes")
    expect(got != [["ant", "bee"]] * 3, "those are the first classes: sort by the logits")
    expect(
        got == truth, f"the first image's classes are {truth[0]}, got {got[0]}; the second's {truth[1]}, got {got[1]}"
    )
    values = torch.tensor([[float(pair[1]) for pair in row] for row in rows])
    best = chances.sort(dim=-1, descending=True).values[:, :k]
    compare(
        values,
        best,
        {
            "those are logits, not probabilities: take the softmax": logits.sort(dim=-1, descending=True).values[:, :k],
            "the softmax ran over the k best alone, so they add up to 1. It belongs to *all* classes": (
                best / best.sum(dim=-1, keepdim=True)
            ),
            "the softmax ran over the images: dim=-1": logits.softmax(dim=0).gather(1, logits.argsort(-1, True)[:, :k]),
            "those are percentages: leave them in 0..1": 100 * best,
            "those are sigmoids, each class by itself: take the softmax": logits.sigmoid()
            .sort(dim=-1, descending=True)
            .values[:, :k],
        },
        "the names are right, the probabilities are not",
        1e-4,
    )


def linear_probe(
    features: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], num_classes: int, ridge: float
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """Weight and bias of the linear layer with the least squared error on targets −1 and 1, plus ridge · |weight|²."""
    targets = 2 * torch.eye(num_classes)[labels] - 1
    mean, target_mean = features.mean(dim=0), targets.mean(dim=0)
    centred = features - mean
    gram = centred.T @ centred + ridge * torch.eye(features.shape[1])
    weight = torch.linalg.solve(gram, centred.T @ (targets - target_mean)).T
    return weight, target_mean - weight @ mean


@checks(linear_probe)
def check_linear_probe(fn):
    n, d, k, ridge = 14, 5, 4, 2.0
    features = torch.randn(n, d) + torch.tensor([1.0, -2, 0, 3, 0])
    labels = torch.arange(n) % 3  # class 3 has no image
    labels[-3:] = 0  # classes of different sizes
    result = call(fn, features, labels, k, ridge)
    expect(
        isinstance(result, tuple | list) and len(result) == 2,
        f"expected two tensors, weight and bias; got {type(result).__name__}",
    )
    usual = {(d, k): "a Linear's weight is (classes, d): transpose it", (k, d + 1): "keep the bias apart"}
    expect_shape(result[0], (k, d), "a row of weights for each class", usual)
    expect_shape(result[1], (k,), "a bias for each class", {(k, 1): "a bias is a vector: (k,)", (1, k): "(k,)"})

    def solve(low=-1.0, penalty=ridge, penalise_bias=False, intercept=True, add_to=None):
        """Least squares with the penalty as extra rows of data, by torch's own solver."""
        ones = torch.ones(n, 1) if intercept else torch.zeros(n, 1)
        rows = torch.cat([features, ones], dim=1)
        targets = torch.where(labels[:, None] == torch.arange(k), 1.0, low)
        extra = penalty**0.5 * torch.eye(d + 1)
        extra[-1, -1] = penalty**0.5 if penalise_bias or not intercept else 0.0
        rows, targets = torch.cat([rows, extra]).double(), torch.cat([targets, torch.zeros(d + 1, k)]).double()
        solution = torch.linalg.lstsq(rows, targets, driver="gelsd").solution.float()
        return torch.cat([solution[:d].T, solution[d:].T], dim=1)

    both = torch.cat([result[0], result[1][:, None]], dim=1).float()
    centred = solve()
    no_mean = torch.cat([centred[:, :d], (centred[:, d:] + centred[:, :d] @ features.mean(0)[:, None])], dim=1)
    compare(
        both,
        solve(),
        {
            "the targets are 0 and 1; here they are −1 and 1": solve(low=0.0),
            "the bias is penalised too. Centre features and targets first, and the penalty leaves it alone": solve(
                penalise_bias=True
            ),
            "there is no bias: what the features have in common goes into it": solve(intercept=False),
            "the penalty is missing": solve(penalty=1e-12),
            "the penalty is ridge², but it is ridge": solve(penalty=ridge**2),
            "the penalty was multiplied by the number of images": solve(penalty=ridge * n),
            "the penalty was divided by the number of images": solve(penalty=ridge / n),
            "the bias is that of centred features: take weight · mean off": no_mean,
            "the sign of the bias is wrong: it is the targets' mean *minus* weight · mean": torch.cat(
                [centred[:, :d], 2 * no_mean[:, d:] - centred[:, d:]], dim=1
            ),
        },
        "that is no minimum of the squared error plus the penalty",
        1e-3,
    )
