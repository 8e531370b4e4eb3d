"""20,000 calls with generated arguments, right ones and nonsense: a result, or an error that states value and rule.

Arguments are drawn by the annotations of each public function. Nonsense among them is a tensor of another rank, size or
dtype, NaN, infinity, a negative number, None, a word, a list.
"""

import importlib
import inspect
import math
import pkgutil
import random
import re
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any, get_args, get_origin

import matplotlib.pyplot as plt
import pytest
import torch
from jaxtyping import AbstractArray
from torch import Generator, Tensor, nn

import vit_tutorial as vt
from vit_tutorial import attention, clinic, config, live, modern, patches, positions, recipes
from vit_tutorial.attention_maps import faithfulness
from vit_tutorial.augment import Augment
from vit_tutorial.config import ViTConfig
from vit_tutorial.data import Dataset, ImageFiles, copies
from vit_tutorial.recipes import RECIPES, Recipe
from vit_tutorial.training import TrainConfig, make_optimizer, scores
from vit_tutorial.what_matters import effects

CASES, SEEDS = 20_000, 20
TINY = ViTConfig(img_size=(4, 6), patch_size=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)
MODEL = vt.ViT(TINY).eval()
DATASET = Dataset(torch.zeros(6, 3, 4, 6, dtype=torch.uint8), torch.tensor([0, 1, 2] * 2), ("a", "b", "c"), "made")
BRIEF = TrainConfig(epochs=1, batch_size=2)
EPOCH = dict.fromkeys(("train_loss", "train_accuracy", "val_loss", "val_accuracy", "lr", "seconds"), 0.5)
RECIPE = asdict(RECIPES["digits"])
ROWS = [
    {"variant": name, "seed": seed, "device": "cpu", "recipe": RECIPE, "test_accuracy": seed / 9, **EPOCH}
    for name in ("base", "one-head")
    for seed in range(3)
]
CONFUSION = [[2, 1, 0], [0, 3, 0], [1, 1, 0]]
SCORES = {"loss": 0.5, "accuracy": 0.6, "confusion": CONFUSION, "trained_on": 2, "accuracy_without": 0.5}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
KINDS = {"Float": torch.float32, "Int64": torch.int64, "UInt8": torch.uint8, "Bool": torch.bool}
NONSENSE = (None, math.nan, math.inf, -math.inf, -1, 0, 1.5, 99, "word", "", [], [1], (2, 2), (0, 0), (1,), {}, True)
SIZES = {"c": 3, "H": 4, "W": 6, "gh": 2, "gw": 3, "n": 7, "d": 8, "hd": 4, "h": 2, "two": 2, "one": 1, "k": 3, "f": 2}
GIVEN = (Dataset, ImageFiles, Generator, nn.Parameter, "Axes | None")  # made things
WORDS = {"": ("word", "a")} | {name: tuple(allowed) for name, allowed in config.OPTIONS.items()}
WORDS |= {"kind": config.OPTIONS["pos_embed"], "arch": ("vit", "resnet", "post-norm")}
WORDS |= {"schedule": ("cosine", "constant"), "optimizer": ("adamw", "adam", "muon"), "init": tuple(recipes.INITS)}
WORDS |= {"precision": ("auto", "fp32", "bf16"), "dataset": ("digits", "mnist"), "split": ("val", "test")}
WORDS |= {"base": ("base",), "variant": ("base", "one-head"), "device": ("cpu",), "part": ("patches", "model")}
# By an argument's name, where its kind doesn't tell what it is.
MADE = {
    "attend": (vt.plain_attention, vt.fused_attention),
    "attention": (nn.Identity(), vt.Attention(8, 2)),
    "choices": ({}, {"block": 1}, {"block": 1, "head": 0}, {"order": [1, 0, 2, 3, 4, 5]}, {"temperature": 2.0}),
    "classes": (["a", "b", "c"], torch.tensor([0, 2])),
    "columns": (2, 3, {"run": ["a", "b"], "s": [1, 0.5]}),
    "coordinates": (modern.grid_coordinates, modern.centred_coordinates),
    "confusion": (CONFUSION, CONFUSION, [], [[1, 2], [3]], [[0, 0], [0, 0]]),
    "embed": (MODEL.patch_embed, vt.LinearPatchEmbed((4, 6), 2, 3, 8)),
    "effect": ((0.5, 0.1, 0.9), (0.5, math.nan, math.nan)),
    "formats": (None, {"s": ".1f"}),
    "grid_size": ((2, 3),),
    "history": ([EPOCH], [EPOCH] * 3),
    "img_size": ((4, 6), 4, None),
    "marks": ({"cut": 1, "head": 2},),
    "name": ("muteHead", "muteBlock", "uniform", "temperature", "shufflePatches", "no final norm", "healthy", "digits"),
    "neurons": ([(0, 3), (1, 31)], [(5, 0)]),
    "patch_size": (2, (2, 2)),
    "patches": (torch.rand(2, 6, 12), torch.tensor([[0], [5]])),
    "num_heads": (2,),
    "per_class": (2,),
    "per_head": (vt.PerHeadAttention(8, 2),),
    "rows": (ROWS, ROWS[:4]),
    "scores": (SCORES, {"confusion": CONFUSION, "look_alikes": 2}),
    "select": (clinic.last_epoch, clinic.best_on_test),
    "state": (MODEL.state_dict(),),
    "state_dict": (MODEL.state_dict(),),
    "strokes": ([[(0, 0), (1, 2)], [(3, 3)]], [[]]),
    "sweeps": ({"one": ROWS, "two": ROWS[:4]},),
    "table": (torch.rand(6, 8), torch.rand(15, 2)),
    "variants": (["one-head"],),
}
# What isn't called here, and why.
APART = {
    "reads or writes files, or asks a host: see test_damaged_files and test_data_downloads": (
        "data_root fetch hand_in load_checkpoint load_dataset load_pretrained load_sweep published read_rows run_sweep "
        "save_checkpoint write_handouts"
    ),
    "is of the exercises, whose functions a reader writes: see test_exercises and test_classroom": (
        "Case Exercise book_cell exercise find progress"
    ),
    "begins a block, and is asked when that is entered": "process_group record_attention",
    "holds what our own code found": "CannotTell CheckFailed Diagnosis Diagram Finding Patient Published Sweep Table",
    "is a bug, or what a test of bugs asks, shown as it is": (
        "attention_over_queries attention_scaled_by_dim best_on_test best_on_validation last_epoch"
    ),
    "hands all it is given to matplotlib": "subplots",
    "takes another library's model: see test_pretrained_libraries": "from_huggingface from_timm from_torchvision",
    "is asked by our own code, with a model's own parts": (
        "EMA LiveCurves Muon MuonWithAdamW everything norms_and_biases"
    ),
}


def functions() -> dict[str, Callable]:
    """What is public, by room and name: each ``__all__``, and these files. Layers are made of sizes and asked inside a
    model: of a tensor they say what PyTorch says."""
    found = {"split_product": recipes.split_product, "look_alikes": copies.look_alikes}
    names = ["vit_tutorial", *(each.name for each in pkgutil.iter_modules(vt.__path__, "vit_tutorial."))]
    for room in map(importlib.import_module, (name for name in names if not name.endswith("__main__"))):
        found |= {name: each for name in getattr(room, "__all__", ()) if callable(each := getattr(room, name))}
    for room in (patches, positions, attention, faithfulness, live, scores, effects):
        found |= {name: each for name, each in vars(room).items() if getattr(each, "__module__", "") == room.__name__}
    found |= {each.__name__: each for each in (Recipe,)}
    apart = set(" ".join(APART.values()).split())
    assert apart <= found.keys(), f"{apart - found.keys()} is gone"
    return {
        name: each
        for name, each in found.items()
        if name not in apart
        and name[0] != "_"
        and get_origin(each) is None
        and not (isinstance(each, type) and issubclass(each, nn.Module))
    }


def a_tensor(kind: type[AbstractArray], sizes: dict[str, int], rng: random.Random) -> Tensor:
    """As the annotation has it; or of another rank, size, dtype, or with a NaN in it."""
    shape = []
    for axis in kind.dim_str.split():
        if axis == "..." or axis.startswith("*"):
            shape += [rng.randint(0, 3) for _ in range(rng.randint(0, 2))]
        else:
            shape.append(int(axis) if axis.isdigit() else sizes.setdefault(axis, SIZES.get(axis, rng.randint(0, 5))))
    dtype = KINDS.get(kind.dtype.__name__, torch.float32)
    if rng.random() < 0.4:
        what = rng.randrange(4)
        if what == 0:
            shape = [rng.randint(0, 4) for _ in range(rng.randint(0, 5))]
        elif what == 1 and shape:
            shape[rng.randrange(len(shape))] = rng.randint(0, 9)
        elif what == 2:
            dtype = rng.choice(DTYPES)
    values = torch.rand(shape, dtype=torch.float64)
    if dtype in (torch.int64, torch.int32, torch.uint8):
        values = values * 4
    values = values.to(dtype)
    if rng.random() < 0.1 and values.is_floating_point() and values.numel():
        values.flatten()[rng.randrange(values.numel())] = rng.choice((math.nan, math.inf, -1e30))
    return values


def spoiled(whole: Any, rng: random.Random) -> Any:
    """A copy in which a value is gone, or of another kind."""
    node = whole = deepcopy(whole)
    while isinstance(node, dict | list) and node:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        if not isinstance(node[key], dict | list) or rng.random() < 0.3:
            if rng.random() < 0.5:
                del node[key]
            else:
                node[key] = rng.choice(NONSENSE)
            break
        node = node[key]
    return whole


def an_argument(name: str, kind: Any, sizes: dict[str, int], rng: random.Random) -> Any:
    """A value for an annotation."""
    if rng.random() < 0.08 and kind not in GIVEN:
        return rng.choice(NONSENSE)
    if name in MADE and rng.random() < 0.8:
        made = rng.choice(MADE[name])
        return spoiled(made, rng) if rng.random() < 0.3 else made
    if isinstance(kind, type) and issubclass(kind, AbstractArray):
        return a_tensor(kind, sizes, rng)
    if kind == "Axes | None":
        return rng.choice((None, plt.figure().gca()))
    if isinstance(kind, types.UnionType):
        return an_argument(name, rng.choice(get_args(kind)), sizes, rng)
    if get_origin(kind) is tuple:
        return tuple(an_argument(name, part, sizes, rng) for part in get_args(kind) if part is not Ellipsis)
    if get_origin(kind) in (list, Sequence):
        return [an_argument(name, get_args(kind)[0], sizes, rng) for _ in range(rng.randint(0, 3))]
    simple = {
        int: lambda: rng.choice((0, 1, 2, 3, 4, 6, 8, 12, 16)),
        float: lambda: rng.choice((0.0, 0.1, 0.5, 1.0, 3.0)),
        bool: lambda: rng.random() < 0.5,
        str: lambda: rng.choice(WORDS.get(name, WORDS[""])),
        Generator: lambda: torch.Generator().manual_seed(rng.randrange(99)),
        ViTConfig: lambda: rng.choice((TINY, replace(TINY, pool="mean"))),
        TrainConfig: lambda: rng.choice((BRIEF, replace(BRIEF, optimizer="muon", ema=0.5))),
        Recipe: lambda: rng.choice((RECIPES["digits"], RECIPES["mnist"])),
        Augment: Augment,
        Dataset: lambda: DATASET,
        ImageFiles: lambda: DATASET,
        vt.ViT: lambda: deepcopy(MODEL),
        nn.Module: lambda: deepcopy(MODEL),
        nn.Parameter: lambda: MODEL.head.bias,
        torch.optim.Optimizer: lambda: make_optimizer(MODEL, BRIEF),
        torch.device: lambda: torch.device("cpu"),
        Tensor: lambda: torch.rand([rng.randint(0, 4) for _ in range(rng.randint(0, 4))]),
        torch.dtype: lambda: torch.float32,
        type(None): lambda: None,
        dict: dict,
    }
    return simple.get(kind, lambda: rng.choice(NONSENSE))()


# These have no checks for their own sake: a tensor is a tensor there, with two axes at least and a feature, and a model
# a model.
CORE = ("vit_tutorial.attention", "vit_tutorial.patches", "vit_tutorial.model")


def is_core_s(kind: Any, value: object) -> bool:
    if isinstance(value, Tensor):
        return value.ndim > 1 and value.shape[-1] > 0
    return not isinstance(kind, type) or isinstance(value, kind)


def in_words(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of {tuple(value.shape)}".removeprefix("torch.")
    return f"[{', '.join(map(in_words, value))}]" if isinstance(value, list | tuple) else repr(value)[:60]


def is_clear(error: Exception) -> bool:
    """A ValueError of ours, or what PyTorch itself says of tensors that don't fit one another."""
    if isinstance(error, ValueError | FloatingPointError):
        return PYTHON.search(str(error)) is None
    if isinstance(error, TypeError):
        return re.search(r"\w\(\): argument|invalid combination of arguments", str(error)) is not None
    return isinstance(error, RuntimeError | IndexError) and PYTORCH.search(str(error)) is not None


PYTHON = re.compile(
    r"^$|to unpack|could not convert|math domain|is not in list|empty (sequence|iterable)|is empty|^zip\("
)
PYTORCH = re.compile(
    r"size|shape|dimension|dtype|expected|not implemented for|must be|must match|scalar type|index .* out of|broadcast"
    "|non-finite|must not be|should be the same|not supported",
    re.IGNORECASE,
)


def arguments(function: Callable, rng: random.Random) -> dict[str, Any]:
    """Values for what a function must be given, and for some of its options; no file is written."""
    sizes, given = {"b": rng.randint(0, 3)}, {}
    for each in inspect.signature(function).parameters.values():
        if (each.default is each.empty or rng.random() < 0.3) and each.name != "checkpoint":
            given[each.name] = an_argument(each.name, each.annotation, sizes, rng)
    return given


def call(function: Callable, given: dict[str, Any]) -> None:
    """An iterator is read, a figure is closed; what is given as ``**choices`` is."""
    try:
        options = given.pop("choices", {}) if function is live.intervene else {}
        found = function(**given, **(options if isinstance(options, dict) else {}))
        list(found) if inspect.isgenerator(found) else None
    finally:
        plt.close("all")


def try_all(cases: int, seed: int) -> dict:
    """How many calls gave a result, how many were refused; what is neither, in words."""
    rng, counts, faults = random.Random(seed), {"result": 0, "refused": 0}, {}
    torch.manual_seed(seed)
    asked = sorted(functions().items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(cases):
            name, function = asked[number % len(asked)]
            given = arguments(function, rng)
            kinds = function.__annotations__
            if function.__module__ in CORE and not all(is_core_s(kinds[key], value) for key, value in given.items()):
                continue
            try:
                call(function, dict(given))
                counts["result"] += 1
            except Exception as error:
                counts["refused"] += 1
                if not is_clear(error):
                    said = f"{name}: {type(error).__name__}: {str(error)[:120]}"
                    faults.setdefault(said, ", ".join(f"{key}={in_words(value)}" for key, value in given.items()))
    return counts | {"faults": faults}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_call_gives_a_result_or_says_why_not(seed, no_shape_checks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = try_all(CASES // SEEDS, seed)
    print(found)
    assert found.pop("faults") == {} and not any(tmp_path.iterdir())
    assert sum(found.values()) > 0.9 * CASES // SEEDS and found["result"] > CASES // SEEDS // 10


@pytest.mark.parametrize("name", functions())
def test_every_function_gives_a_result_sometimes(name, no_shape_checks):
    """Otherwise it is met with nonsense alone: a new one needs arguments in ``MADE``, or a reason in ``APART``."""
    rng, function = random.Random(0), functions()[name]
    for _ in range(500):
        with suppress(Exception):
            return call(function, arguments(function, rng))
    pytest.fail(f"500 calls of {name} were refused")
