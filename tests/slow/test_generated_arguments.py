"""20,000 calls with generated arguments, right ones and nonsense: a result, or an error that states value and rule.

Arguments are drawn by the annotations of each public function. Nonsense among them is a tensor of another rank, size or
dtype, NaN, infinity, a negative number, None, a word, a list.
"""

import inspect
import math
import random
import re
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args, get_origin

import pytest
import torch
from jaxtyping import AbstractArray
from torch import Generator, Tensor, nn

import vit_tutorial as vt
from vit_tutorial import attention_maps, augment, config, positions, recipes
from vit_tutorial.attention_maps import faithfulness
from vit_tutorial.augment import Augment
from vit_tutorial.config import ViTConfig
from vit_tutorial.data import Dataset, ImageFiles, copies, shapes
from vit_tutorial.recipes import RECIPES, Recipe
from vit_tutorial.training import loop, optimizers
from vit_tutorial.training.loop import TrainConfig
from vit_tutorial.what_matters import sweeps

CASES, SEEDS = 20_000, 20
TINY = ViTConfig(img_size=(4, 6), patch_size=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)
MODEL = vt.ViT(TINY).eval()
DATASET = Dataset(torch.zeros(4, 3, 4, 6, dtype=torch.uint8), torch.tensor([0, 1, 2, 0]), ("a", "b", "c"), "made")
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
KINDS = {"Float": torch.float32, "Int64": torch.int64, "UInt8": torch.uint8, "Bool": torch.bool}
NONSENSE = (None, math.nan, math.inf, -math.inf, -1, 0, 1.5, 99, "word", "", [], [1], (2, 2), (0, 0), (1,), {}, True)
SIZES = {"c": 3, "H": 4, "W": 6, "gh": 2, "gw": 3, "n": 7, "d": 8, "hd": 4, "h": 2, "two": 2, "one": 1, "k": 3}
GIVEN = (ViTConfig, TrainConfig, Dataset, ImageFiles, Dataset | ImageFiles, vt.ViT, nn.Module, Generator)  # made things
WORDS = {"": ("word", "a")} | {name: tuple(allowed) for name, allowed in config.OPTIONS.items()}
WORDS |= {"kind": config.OPTIONS["pos_embed"], "arch": ("vit", "resnet", "post-norm")}
WORDS |= {"schedule": ("cosine", "constant"), "optimizer": ("adamw", "adam", "muon"), "init": tuple(recipes.INITS)}
WORDS |= {"precision": ("auto", "fp32", "bf16"), "dataset": ("digits", "mnist")}


def functions() -> dict[str, Callable]:
    """What takes data or numbers, and is cheap to ask."""
    found = {}
    for room in (augment, positions, vt.patches, vt.attention, attention_maps, faithfulness):
        found |= {name: each for name, each in vars(room).items() if inspect.isfunction(each) and name[0] != "_"}
    for room, names in {
        loop: ("to_input", "loss_of", "evaluate", "predict"),
        optimizers: ("orthogonalize",),
        recipes: ("split_product",),
        copies: ("look_alikes",),
        shapes: ("draw_shapes",),
        sweeps: ("effect_interval",),
    }.items():
        found |= {name: vars(room)[name] for name in names}
    found |= {each.__name__: each for each in (ViTConfig, Augment, TrainConfig, Recipe, Dataset)}
    apart = ("check", "record_attention", "fuse_heads", "is_compiled", "working_dtype", "to_pair")
    ours = {name: each for name, each in found.items() if "vit_tutorial" in each.__module__}
    return {name: each for name, each in ours.items() if not name.startswith(apart)}


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


def an_argument(name: str, kind: Any, sizes: dict[str, int], rng: random.Random) -> Any:
    """A value for an annotation."""
    if rng.random() < 0.08 and kind not in GIVEN:
        return rng.choice(NONSENSE)
    if isinstance(kind, type) and issubclass(kind, AbstractArray):
        return a_tensor(kind, sizes, rng)
    if get_origin(kind) in (types.UnionType, __import__("typing").Union):
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
        TrainConfig: lambda: rng.choice((TrainConfig(), RECIPES["digits"])),
        Augment: Augment,
        Dataset: lambda: DATASET,
        ImageFiles: lambda: DATASET,
        vt.ViT: lambda: MODEL,
        nn.Module: lambda: MODEL,
        Tensor: lambda: torch.rand([rng.randint(0, 4) for _ in range(rng.randint(0, 4))]),
        torch.dtype: lambda: torch.float32,
        type(None): lambda: None,
        dict: dict,
    }
    return simple.get(kind, lambda: rng.choice(NONSENSE))()


# These have no checks for their own sake: a tensor is a tensor there, with two axes at least.
CORE = ("vit_tutorial.attention", "vit_tutorial.patches")


def is_core_s(kind: Any, value: object) -> bool:
    if isinstance(value, Tensor):
        return value.ndim > 1
    return not (isinstance(kind, type) and issubclass(kind, AbstractArray))


def in_words(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of {tuple(value.shape)}".removeprefix("torch.")
    return f"[{', '.join(map(in_words, value))}]" if isinstance(value, list | tuple) else repr(value)[:60]


def is_clear(error: Exception) -> bool:
    """A ValueError of ours, or what PyTorch itself says of tensors that don't fit one another."""
    if isinstance(error, ValueError | FloatingPointError):
        return bool(str(error))
    return isinstance(error, RuntimeError | IndexError | TypeError) and PYTORCH.search(str(error)) is not None


PYTORCH = re.compile(
    r"size|shape|dimension|dtype|expected|not implemented for|must be|must match|scalar type|index .* out of|broadcast"
    "|non-finite|should be the same|not supported"
)


def try_all(cases: int, seed: int) -> dict:
    """How many calls gave a result, how many were refused; what is neither, in words."""
    rng, counts, faults = random.Random(seed), {"result": 0, "refused": 0}, {}
    torch.manual_seed(seed)
    asked = sorted(functions().items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(cases):
            name, function = asked[number % len(asked)]
            sizes, given = {"b": rng.randint(0, 3)}, {}
            for each in inspect.signature(function).parameters.values():
                if each.default is each.empty or rng.random() < 0.3:
                    given[each.name] = an_argument(each.name, each.annotation, sizes, rng)
            kinds = function.__annotations__
            if function.__module__ in CORE and not all(is_core_s(kinds[key], value) for key, value in given.items()):
                continue
            try:
                function(**given)
                counts["result"] += 1
            except Exception as error:
                counts["refused"] += 1
                if not is_clear(error):
                    said = f"{name}: {type(error).__name__}: {str(error)[:120]}"
                    faults.setdefault(said, ", ".join(f"{key}={in_words(value)}" for key, value in given.items()))
    return counts | {"faults": faults}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_call_gives_a_result_or_says_why_not(seed, no_shape_checks):
    found = try_all(CASES // SEEDS, seed)
    assert found.pop("faults") == {}
    assert sum(found.values()) > 0.9 * CASES // SEEDS and found["result"] > CASES // SEEDS // 10
