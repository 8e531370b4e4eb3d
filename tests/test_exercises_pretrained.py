"""The checks of chapter 9 accept the reference and name each mistake."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from hints import assert_hints
from safetensors import safe_open
from sklearn.linear_model import Ridge
from torch import nn
from transformers import ViTConfig as HuggingFaceConfig
from transformers import ViTForImageClassification

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.attention_maps import record_attention
from vit_tutorial.exercises.pretrained import (
    linear_probe,
    loading_report,
    memory_of,
    rename_key,
    split_in_proj,
    top_k_names,
)

CONFIG = ViTConfig(img_size=(8, 20), patch_size=4, num_classes=7, embed_dim=24, depth=3, num_heads=2, mlp_ratio=1.5)


# memory_of ------------------------------------------------------------------------------------------------------


def _changed(key, change):
    """memory_of with one entry replaced by ``change(bytes, config, batch)``."""

    def fn(config, batch):
        result = memory_of(config, batch)
        return result | {key: change(result[key], config, batch)}

    return fn


def test_memory_of():
    assert_hints(
        "memory_of",
        memory_of,
        {
            "weights: that is the number of parameters": _changed("weights", lambda v, c, b: v // 4),
            "those are bits": _changed("weights", lambda v, c, b: v * 8),
            "half precision": _changed("weights", lambda v, c, b: v // 2),
            "double precision": _changed("weights", lambda v, c, b: v * 2),
            "there once": _changed("weights", lambda v, c, b: v * b),
            "positions are missing": _changed("weights", lambda v, c, b: v - 4 * c.num_tokens * c.embed_dim),
            "count numbers, not tensors": _changed("weights", lambda v, c, b: 4 * len(list(ViT(c).parameters()))),
            "expected 3620 bytes": _changed("weights", lambda v, c, b: v + 4),
            "beside the weights": _changed("training", lambda v, c, b: v // 4),
            "weights and gradients are counted": _changed("training", lambda v, c, b: v // 2),
            "one of four": _changed("training", lambda v, c, b: v * 3 // 4),
            "none of these grows": _changed("training", lambda v, c, b: v * b),
            "number of weights in the maps": _changed("maps", lambda v, c, b: v // 4),
            "the class token looks": _changed("maps", lambda v, c, b: v * 36 // 49),
            "for *each* token": _changed("maps", lambda v, c, b: v // 7),
            "each head": _changed("maps", lambda v, c, b: v // c.num_heads),
            "each layer": _changed("maps", lambda v, c, b: v // c.depth),
            "each image": _changed("maps", lambda v, c, b: v // b),
            "expected 5880 bytes": _changed("maps", lambda v, c, b: v + 1),
            "wrong without one": _changed(
                "maps", lambda v, c, b: 4 * b * c.depth * c.num_heads * (c.num_patches + 1) ** 2
            ),
            "expected a dict": lambda c, b: 3620,
            "the keys are": lambda c, b: {"weights": 3620},
        },
    )


def test_memory_of_is_what_torch_holds():
    model, batch = ViT(CONFIG), 5

    def held(tensors):
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    with record_attention(model) as maps:
        loss = model(torch.rand(batch, 3, 8, 20)).square().mean()
    optimizer = torch.optim.AdamW(model.parameters())
    loss.backward()
    optimizer.step()
    moments = [tensor for state in optimizer.state.values() for name, tensor in state.items() if name != "step"]
    gradients = [parameter.grad for parameter in model.parameters()]
    assert memory_of(CONFIG, batch) == {
        "weights": held(model.parameters()),
        "training": held([*model.parameters(), *gradients, *moments]),
        "maps": held(maps),
    }


# rename_key -----------------------------------------------------------------------------------------------------


def _replacing(*pairs):
    def fn(name):
        for old, new in pairs:
            name = name.replace(old, new)
        return name

    return fn


EMBEDDINGS = [
    ("vit.embeddings.cls_token", "cls_token"),
    ("vit.embeddings.position_embeddings", "pos_embed"),
    ("vit.embeddings.patch_embeddings.projection", "patch_embed.proj"),
]
BLOCK = [
    ("vit.encoder.layer.", "blocks."),
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    ("attention.attention.query", "attn.qkv"),
    ("attention.attention.key", "attn.qkv"),
    ("attention.attention.value", "attn.qkv"),
    ("attention.output.dense", "attn.proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
]
ENDS = [("vit.layernorm", "norm"), ("classifier", "head")]
ALL = [*EMBEDDINGS, *BLOCK, *ENDS]


def _with(old, new):
    """All replacements, with that of ``old`` replaced."""
    return _replacing(*((theirs, new if theirs == old else ours) for theirs, ours in ALL))


def test_rename_key():
    right = _replacing(*ALL)
    assert_hints(
        "rename_key",
        rename_key,
        {
            "Nothing was replaced": lambda name: name,
            "Nothing of `vit.embeddings.` stays": _with(
                "vit.embeddings.patch_embeddings.projection", "vit.embeddings.x"
            ),
            "Something of `vit.encoder.` is left": _with("vit.encoder.layer.", "vit.blocks."),
            "replace the longer name first": _replacing(*EMBEDDINGS, ("output.dense", "mlp.fc2"), *BLOCK, *ENDS),
            "comes after attention, before the MLP": _replacing(
                *EMBEDDINGS, ("layernorm_before", "norm2"), ("layernorm_after", "norm1"), *BLOCK, *ENDS
            ),
            "`vit.layernorm` is the final norm": _replacing(*EMBEDDINGS, ("layernorm", "norm"), *BLOCK, *ENDS),
            "their order is settled": _with("attention.attention.key", "attn.key"),
            "tells weights from biases": lambda name: right(name).replace(".bias", ".weight"),
            "all digits": lambda name: right(name).replace("blocks.11", "blocks.1"),
            "`intermediate` is the first": _replacing(
                *EMBEDDINGS, *BLOCK[:-2], ("intermediate.dense", "mlp.fc2"), ("output.dense", "mlp.fc1"), *ENDS
            ),
            "It is head.bias": _with("classifier", "fc"),
            "It is cls_token": _with("vit.embeddings.cls_token", "class_token"),
            "expected a name": lambda name: [name],
            "returned None": lambda name: None,
        },
    )
    names = ["vit.encoder.layer.3.attention.output.dense.bias", "vit.embeddings.cls_token", "classifier.weight"]
    assert [rename_key(name) for name in names] == [right(name) for name in names]


def test_rename_key_on_a_file_that_transformers_wrote(tmp_path):
    config = HuggingFaceConfig(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=8)
    ViTForImageClassification(config).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        renamed = {rename_key(name) for name in file.keys()}  # noqa: SIM118, it is no dict
    with torch.device("meta"):
        assert renamed == set(ViT(ViTConfig(embed_dim=12, depth=2, num_heads=3)).state_dict())


# split_in_proj --------------------------------------------------------------------------------------------------


def test_split_in_proj():
    def parts(change):
        return lambda weight, heads: tuple(change(weight, heads, weight.shape[1], weight.shape[1] // heads))

    assert_hints(
        "split_in_proj",
        split_in_proj,
        {
            "matrix of all heads together": lambda weight, heads: weight.chunk(3),
            "head_dim and heads are swapped": parts(lambda w, h, d, hd: w.reshape(3, hd, h, d)),
            "shape (2, 6, 12), got (2, 12, 6). the columns": parts(lambda w, h, d, hd: w.reshape(3, h, d, hd)),
            "shape (2, 6, 12), got (12, 2, 6). the columns": parts(lambda w, h, d, hd: w.reshape(3, d, h, hd)),
            "queries and keys are swapped": parts(lambda w, h, d, hd: w.reshape(3, h, hd, d)[[1, 0, 2]]),
            "turned round": parts(lambda w, h, d, hd: w.reshape(3, h, hd, d).flip(0)),
            "interleaved row by row": parts(
                lambda w, h, d, hd: w.reshape(d, 3, d).transpose(0, 1).reshape(3, h, hd, d)
            ),
            "*within* the queries": parts(lambda w, h, d, hd: w.reshape(h, 3, hd, d).transpose(0, 1)),
            "every third row": parts(lambda w, h, d, hd: w.reshape(3, hd, h, d).transpose(1, 2)),
            "was transposed": parts(lambda w, h, d, hd: w.T.reshape(3, h, hd, d)),
            "all three are the queries": parts(lambda w, h, d, hd: w[:d].reshape(1, h, hd, d).expand(3, -1, -1, -1)),
            "looks elsewhere": parts(lambda w, h, d, hd: w.reshape(3, h, hd, d) * 1.5),
            "the values are not": parts(
                lambda w, h, d, hd: w.reshape(3, h, hd, d) * torch.tensor([1.0, 1, 2])[:, None, None, None]
            ),
            "expected three tensors, queries": lambda weight, heads: weight.chunk(2),
            "got int": lambda weight, heads: 3,
        },
    )


# loading_report -------------------------------------------------------------------------------------------------


def _report(**changes):
    return lambda wanted, given: (
        loading_report(wanted, given) | {key: change(wanted, given) for key, change in changes.items()}
    )


def _numel(wanted, given):
    same = [name for name in wanted if name in given and wanted[name].numel() == given[name].numel()]
    return loading_report(wanted, given) | {"fits": same, "misfits": ["head.weight", "c.weight"]}


def _first_axis(wanted, given):
    same = [name for name in wanted if name in given and len(wanted[name]) == len(given[name])]
    return loading_report(wanted, given) | {"fits": same, "misfits": ["head.weight", "b.weight"]}


def _loads(wanted, given):
    report = loading_report(wanted, given)
    for name in report["fits"]:
        wanted[name].copy_(given[name])
    return report


def test_loading_report():
    assert_hints(
        "loading_report",
        loading_report,
        {
            "they do not fit": _report(fits=lambda w, g: [name for name in w if name in g]),
            "not how many numbers": _numel,
            "swapped: missing is what the *model* wants": _report(
                missing=lambda w, g: list(g.keys() - w.keys()), spare=lambda w, g: list(w.keys() - g.keys())
            ),
            "not the first axis alone": _first_axis,
            "a misfit and not missing": _report(missing=lambda w, g: ["head.bias", "head.weight", "b.weight"]),
            "a misfit and not spare": _report(spare=lambda w, g: ["old.bias", "old.weight", "head.weight"]),
            "are of two kinds": _report(missing=lambda w, g: list(w.keys() ^ g.keys())),
            "names a weight twice": _report(missing=lambda w, g: ["head.bias"] * 2),
            "fits should be": _report(fits=lambda w, g: ["a.weight"]),
            "misfits should be": _report(misfits=lambda w, g: []),
            "in place": _loads,
            "expected a dict": lambda w, g: list(w),
            "the keys are": lambda w, g: {"missing": [], "spare": []},
        },
    )


def test_loading_report_agrees_with_torch():
    wanted, given = ViT(CONFIG), ViT(replace(CONFIG, depth=2)).state_dict()
    given["extra"] = given.pop("blocks.0.norm1.bias")
    report = loading_report(wanted.state_dict(), given)
    result = wanted.load_state_dict(given, strict=False)
    assert report["missing"] == result.missing_keys and report["spare"] == result.unexpected_keys
    assert report["misfits"] == [] and len(report["fits"]) == len(given) - 1


# top_k_names ----------------------------------------------------------------------------------------------------


def _top(values=None, pick=None, pair=lambda name, value: (name, value)):
    """top_k_names with other values, another choice of classes or other pairs."""

    def fn(logits, names, k):
        chances = logits.softmax(-1) if values is None else values(logits, k)
        numbers = logits.argsort(-1, descending=True)[:, :k] if pick is None else pick(logits, k)
        return [
            [pair(names[n], row[n].item()) for n in chosen]
            for row, chosen in zip(chances, numbers.tolist(), strict=True)
        ]

    return fn


def _softmax_of_best(logits, k):
    best, numbers = logits.topk(k)
    return torch.zeros_like(logits).scatter(-1, numbers, best.softmax(-1))


def test_top_k_names():
    assert_hints(
        "top_k_names",
        top_k_names,
        {
            "turned round": _top(pick=lambda logits, k: logits.topk(k).indices.flip(-1)),
            "least likely": _top(pick=lambda logits, k: logits.argsort(-1)[:, :k]),
            "the first classes": _top(pick=lambda logits, k: torch.arange(k).expand(len(logits), k)),
            "logits, not probabilities": _top(values=lambda logits, k: logits),
            "over the k best alone": _top(values=_softmax_of_best),
            "over the images": _top(values=lambda logits, k: logits.softmax(0)),
            "percentages": _top(values=lambda logits, k: 100 * logits.softmax(-1)),
            "sigmoids": _top(values=lambda logits, k: logits.sigmoid()),
            "probabilities are not": _top(values=lambda logits, k: logits.softmax(-1) ** 2),
            "swapped: the name comes first": _top(pair=lambda name, value: (value, name)),
            "expected pairs": _top(pair=lambda name, value: name),
            "for each of 3 images": lambda logits, names, k: top_k_names(logits, names, k)[0],
            "entry is a list": lambda logits, names, k: [iter(row) for row in top_k_names(logits, names, k)],
            "expected 2 classes": lambda logits, names, k: top_k_names(logits, names, len(names)),
            "expected a list, got": lambda logits, names, k: logits.topk(k),
            "the second's": _top(pick=lambda logits, k: logits.topk(k + 1).indices[:, [0, 2]]),
        },
    )


def test_top_k_names_can_be_given_all_classes():
    (row,) = top_k_names(torch.tensor([[0.0, 1.0]]), ("a", "b"), 2)
    assert [name for name, _ in row] == ["b", "a"] and abs(sum(value for _, value in row) - 1) < 1e-6


# linear_probe ---------------------------------------------------------------------------------------------------


def _ridge(targets=lambda one_hot: 2 * one_hot - 1, penalty=lambda ridge, n: ridge, bias=None, sign=-1):
    """linear_probe with other targets or penalty, or another way to the bias."""

    def fn(features, labels, num_classes, ridge):
        y = targets(torch.eye(num_classes)[labels])
        n, dim = features.shape
        diagonal = penalty(ridge, n) * torch.ones(dim)
        x = features
        if bias == "penalised":
            x, diagonal = torch.cat([x, torch.ones(n, 1)], 1), penalty(ridge, n) * torch.ones(dim + 1)
        elif bias != "none":
            x = x - x.mean(0)
        centre = torch.zeros(num_classes) if bias in ("none", "penalised") else y.mean(0)
        weight = torch.linalg.solve(x.T @ x + torch.diag(diagonal), x.T @ (y - centre)).T
        if bias == "penalised":
            return weight[:, :-1], weight[:, -1]
        if bias in ("none", "of centred"):
            return weight, centre
        return weight, centre + sign * weight @ features.mean(0)

    return fn


def test_linear_probe():
    right = _ridge()
    assert_hints(
        "linear_probe",
        linear_probe,
        {
            "the targets are 0 and 1": _ridge(targets=lambda y: y),
            "the bias is penalised": _ridge(bias="penalised"),
            "there is no bias": _ridge(bias="none"),
            "the penalty is missing": _ridge(penalty=lambda r, n: 0.0),
            "ridge², but": _ridge(penalty=lambda r, n: r**2),
            "multiplied by": _ridge(penalty=lambda r, n: r * n),
            "divided by": _ridge(penalty=lambda r, n: r / n),
            "of centred features": _ridge(bias="of centred"),
            "the sign of the bias": _ridge(sign=1),
            "no minimum": lambda *a: (right(*a)[0] * 1.1, right(*a)[1]),
            "transpose it": lambda *a: (right(*a)[0].T, right(*a)[1]),
            "a bias is a vector": lambda *a: (right(*a)[0], right(*a)[1][:, None]),
            "expected two tensors": lambda *a: right(*a)[0],
            "in place": lambda x, *rest: right(x.sub_(x.mean(0)), *rest),
            "(4, 5), got (3, 5)": lambda x, y, k, ridge: right(x, y, int(y.max()) + 1, ridge),
        },
    )


def test_linear_probe_is_scikit_learn_s_and_a_minimum():
    torch.manual_seed(0)
    features, labels = torch.randn(40, 6) + 2, torch.randint(5, (40,))
    weight, bias = linear_probe(features, labels, 5, 3.0)
    targets = 2 * F.one_hot(labels, 5) - 1
    theirs = Ridge(3.0).fit(features.numpy(), targets.numpy())
    torch.testing.assert_close(weight, torch.tensor(theirs.coef_).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(bias, torch.tensor(theirs.intercept_).float(), rtol=1e-4, atol=1e-5)
    layer = nn.Linear(6, 5)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    ((layer(features) - targets).square().sum() + 3.0 * layer.weight.square().sum()).backward()
    assert layer.weight.grad.abs().max() < 1e-3 and layer.bias.grad.abs().max() < 1e-3
