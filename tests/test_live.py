"""The page's model against PyTorch's in double precision: every intermediate, and every intervention."""

import base64
import copy
import json
import shutil
import subprocess
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import torch
from sampling import first
from torch.testing import assert_close

from vit_tutorial.attention import attention_weights
from vit_tutorial.config import ViTConfig
from vit_tutorial.data import Dataset, load_dataset
from vit_tutorial.live import (
    INTERVENTIONS,
    MEASURED,
    choices_of,
    draw_strokes,
    export_model,
    intervene,
    measure,
)
from vit_tutorial.model import ViT
from vit_tutorial.runs import load_metrics, load_recorded
from vit_tutorial.training.loop import to_input

RUN = Path(__file__).with_name("live_parity.mjs")
DRAW = f"""
import {{ readFileSync }} from "node:fs";
import {{ drawStrokes }} from "{RUN.parent.parent}/book/_static/live/digit.mjs";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((strokes) => Array.from(drawStrokes(strokes)))));
"""
TOLERANCE = 1e-9  # of the largest value; book/live.md says so
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def in_javascript(exported: dict, images: torch.Tensor, change: dict | None = None) -> dict:
    """What the page computes, by name, each ``(images, numbers)``."""
    given = {"model": exported, "images": images.flatten(1).tolist(), "change": change}
    found = subprocess.run(["node", RUN], input=json.dumps(given).encode(), capture_output=True)
    assert found.returncode == 0, found.stderr.decode()
    head, _, numbers = found.stdout.partition(b"\n")
    sizes = dict(json.loads(head))
    told = torch.frombuffer(bytearray(numbers), dtype=torch.float64).reshape(len(images), -1)
    return dict(zip(sizes, told.split(list(sizes.values()), dim=1), strict=True))


@torch.no_grad()
def in_pytorch(model: ViT, pixels: torch.Tensor) -> dict:
    """The same from the model in double precision, by hooks and by the parts' own functions."""
    found = {}

    def keep(name):
        return lambda part, args, out: found.update({name: out})

    hooks = [
        model.patch_embed.register_forward_hook(keep("embedded")),
        model.norm.register_forward_hook(keep("features")),
    ]
    hooks.append(model.blocks.register_forward_pre_hook(lambda part, args: found.update(tokens=args[0])))
    for i, block in enumerate(model.blocks):
        for name in ("norm1", "attn", "norm2", "mlp"):
            hooks.append(block.get_submodule(name).register_forward_hook(keep(f"{i}.{name}")))
        hooks.append(block.mlp.act.register_forward_hook(keep(f"{i}.hidden")))
        hooks.append(block.register_forward_hook(keep(f"{i}.out")))
    found["logits"] = model(pixels)
    for hook in hooks:
        hook.remove()
    found["probabilities"] = found["logits"].softmax(dim=-1)
    before = found["tokens"]
    answers = []
    for i, block in enumerate(model.blocks):
        found[f"{i}.middle"] = before + found[f"{i}.attn"]
        q, k, v = block.attn.project(found[f"{i}.norm1"])
        found |= {f"{i}.q": q, f"{i}.k": k, f"{i}.v": v, f"{i}.scores": q @ k.mT / q.shape[-1] ** 0.5}
        found[f"{i}.weights"] = attention_weights(q, k)
        answers.append(model.forward_head(model.norm(before)).softmax(dim=-1))
        before = found[f"{i}.out"]
    answers.append(found["probabilities"])
    found["answers"] = torch.stack(answers, dim=1)
    ph, pw = model.config.patch_size
    found["patches"] = torch.nn.functional.unfold(pixels, (ph, pw), stride=(ph, pw)).mT
    return {name: value.flatten(1) for name, value in found.items()}


@torch.no_grad()
def one_by_one(model: ViT, pixels: torch.Tensor) -> dict:
    """What the layers and the head give image by image, as in the page: attention across the batch depends on it."""
    found = {}

    def keep(name):
        return lambda part, args, out: found.setdefault(name, []).append(out)

    for i, block in enumerate(model.blocks):
        block.register_forward_hook(keep(f"{i}.out"))
    model.norm.register_forward_hook(keep("features"))
    found["logits"] = [model(image[None]) for image in pixels]
    found = {name: torch.cat(outs).flatten(1) for name, outs in found.items()}
    return found | {"probabilities": found["logits"].softmax(dim=-1)}


def worst(ours: dict, theirs: dict) -> tuple[float, str]:
    """The largest error, as a fraction of the largest value, and where it is."""
    assert ours.keys() == theirs.keys()
    errors = {name: ((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max()).item() for name in ours}
    return max((error, name) for name, error in errors.items())


@pytest.fixture(scope="module", params=["mnist", "mnist-patch4"])
def digits(request):
    """A recorded model, what the page gets of it, and images in 0..1: real ones where they are, else digits."""
    model, recipe = load_recorded(request.param)
    try:
        images = load_dataset("mnist", "test", download=False).images[:40]
    except FileNotFoundError:
        small = load_dataset("digits", "test").images[:40]
        images = torch.nn.functional.interpolate(small.float(), 28, mode="bilinear").byte()
    return model.double(), export_model(model, recipe), images.double() / 255, recipe


@needs_node
def test_each_intermediate_equals_pytorch(digits):
    model, exported, images, recipe = digits
    error, where = worst(in_javascript(exported, images), in_pytorch(model, to_input(images, recipe)))
    assert error < TOLERANCE, where


def rough_erf(x: torch.Tensor) -> torch.Tensor:
    """Off by up to 1.5e-7. Source: Abramowitz and Stegun, 7.1.26."""
    t = 1 / (1 + 0.3275911 * x.abs())
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    return x.sign() * (1 - reduce(lambda sum_, factor: (sum_ + factor) * t, factors, 0) * (-x * x).exp())


class RoughGELU(torch.nn.Module):
    def forward(self, x):
        return x * (1 + rough_erf(x / 2**0.5)) / 2


@needs_node
@pytest.mark.parametrize("gelu", [torch.nn.GELU(approximate="tanh"), RoughGELU()], ids=["tanh", "rough erf"])
def test_a_wrong_gelu_is_caught(digits, gelu):
    model, exported, images, recipe = digits
    model = copy.deepcopy(model)
    for block in model.blocks:
        block.mlp.act = gelu
    error, _ = worst(in_javascript(exported, images[:20]), in_pytorch(model, to_input(images[:20], recipe)))
    assert error > 2 * TOLERANCE


ERF = f"""
import {{ readFileSync }} from "node:fs";
import {{ erf }} from "{RUN.parent.parent}/book/_static/live/vit.mjs";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(erf)));
"""


@needs_node
def test_the_error_function_is_exact():
    x = torch.cat([torch.linspace(-8, 8, 4001).double(), torch.tensor([1e-300, 1e-9, -1e-9, 1e9], dtype=torch.float64)])
    found = subprocess.run(
        ["node", "--input-type=module", "-e", ERF], input=json.dumps(x.tolist()), capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert_close(torch.tensor(json.loads(found.stdout), dtype=torch.float64), x.erf(), rtol=1e-14, atol=0)
    assert (rough_erf(x) - x.erf()).abs().max() > 1e-8  # what this test would catch


CHOICES = {
    "muteHead": [{"block": 0, "head": 2}, {"block": 3, "head": 0}],
    "muteBlock": [{"block": 2}],
    "shuffleTokens": "order",
    "shufflePatches": "order",
    "temperature": [{"temperature": 4.0}],
}


@needs_node
@pytest.mark.parametrize("name", first(3, INTERVENTIONS))
@torch.no_grad()
def test_each_intervention_does_what_it_does_in_pytorch(digits, name):
    model, exported, images, recipe = digits
    images = images[:10]
    healthy = model(to_input(images, recipe))
    order = torch.randperm(model.config.num_patches, generator=torch.Generator().manual_seed(1)).tolist()
    choices = CHOICES.get(name, [{}])
    for chosen in [{"order": order}] if choices == "order" else choices:
        theirs = one_by_one(intervene(model, name, **chosen), to_input(images, recipe))
        ours = in_javascript(exported, images, {"name": name, "choices": chosen})
        error, where = worst({part: ours[part] for part in theirs}, theirs)
        assert error < TOLERANCE, where
        nothing = (theirs["logits"] - healthy).abs().max() < 1e-6
        assert nothing == (name == "shuffleTokens")


STROKES = [
    [],
    [[(3, 3)]],
    [[(1, 2), (1, 2)]],
    [[(0, 0), (0, 100)]],
    *([[(37 * i % 101, 53 * i % 97 + 0.1 * j) for i in range(j, 9 * j)] for _ in range(2)] for j in range(1, 20)),
]


@needs_node
def test_strokes_become_the_same_image_in_the_page():
    found = subprocess.run(
        ["node", "--input-type=module", "-e", DRAW], input=json.dumps(STROKES), capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    theirs = torch.tensor(json.loads(found.stdout), dtype=torch.uint8).reshape(-1, 28, 28)
    assert torch.equal(theirs, torch.stack([draw_strokes(strokes) for strokes in STROKES]))


def test_a_line_is_drawn_as_one_counts_it():
    """A vertical line fills the box but for the pen, from 5.2 to 22.8; its centre, at 13.5, is moved to 14.5."""
    image = draw_strokes([[(0, 0), (0, 100)]])
    assert image[14].nonzero().flatten().tolist() == [13, 14, 15, 16]
    assert image[14, 14] == image[14, 15] == 255  # half a pixel from the line, and the pen reaches 1.2
    assert image[14, 13] == image[14, 16] == round(0.2 * 255)  # 1.5 pixels from it: 1.2 + 0.5 − 1.5
    assert image.any(dim=1).nonzero().flatten().tolist() == list(range(5, 25))
    assert not draw_strokes([]).any()


def test_an_export_is_the_model():
    model, recipe = load_recorded("mnist")
    exported = export_model(model, recipe)
    high, low = np.frombuffer(base64.b64decode(exported["float16"]), np.uint8).reshape(2, -1).astype(np.uint16)
    numbers = (256 * high + low).view(np.float16).astype(np.float32)
    assert_close(
        torch.from_numpy(numbers), torch.cat([t.flatten() for t in model.state_dict().values()]), rtol=0, atol=0
    )
    assert [name for name, _ in exported["tensors"]] == list(model.state_dict())


def test_what_the_page_cannot_run_is_refused():
    model, recipe = load_recorded("mnist")
    pooled = replace(recipe, model=replace(recipe.model, pool="mean"))
    with pytest.raises(ValueError, match="pool='mean', not 'cls'"):
        export_model(ViT(pooled.model), pooled)
    model.head.weight.data[0, 0] = 1e5
    with pytest.raises(ValueError, match=r"1e\+05 do not fit half precision"):
        export_model(model, recipe)


# What interventions cost on the test set -----------------------------------------------------------------------------


def test_what_was_measured_is_whole_and_of_the_recorded_models():
    found = json.loads(MEASURED.read_text())
    assert found["commit"] and not found["commit"].endswith("+")
    for run, rows in found["runs"].items():
        assert found["images"][run] == 10_000 and found["data"][run] == "MNIST"
        (healthy,) = (row["accuracy"] for row in rows if row["name"] == "healthy")
        assert healthy == load_metrics(run)["test"]["accuracy"]
        model, _ = load_recorded(run)
        assert [(row["name"], row["choices"]) for row in rows[1:]] == [
            (name, choices) for name in INTERVENTIONS for choices in choices_of(name, model)
        ]
        together = [row["accuracy"] for row in rows if row["name"] == "shuffleTokens"]
        assert max(abs(accuracy - healthy) for accuracy in together) <= 1e-4  # a tie may fall otherwise


def test_measuring_counts_right_answers():
    model, recipe = load_recorded("mnist")
    images = torch.stack([draw_strokes(strokes) for strokes in STROKES[-8:]])[:, None]
    labels = torch.arange(8)
    test = Dataset(images, labels, tuple("0123456789"), "strokes")
    rows = list(measure(model, test, recipe))
    assert len(rows) == 1 + sum(len(choices_of(name, model)) for name in INTERVENTIONS)
    for row in [rows[0], rows[14], rows[-1]]:
        changed = model if row["name"] == "healthy" else intervene(model, row["name"], **row["choices"])
        with torch.no_grad():
            answers = torch.cat([changed(to_input(image[None], recipe)).argmax(-1) for image in images])
        assert row["accuracy"] == pytest.approx((answers == labels).float().mean().item())


def test_a_patient_without_a_class_token_keeps_dtype_and_mode():
    config = ViTConfig(
        img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=12, depth=1, num_heads=2, pool="mean"
    )
    sick = intervene(ViT(config).double().eval(), "deadNorm")
    assert not sick.training and {weight.dtype for weight in sick.parameters()} == {torch.float64}


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("mute", {}, "name must be one of muteHead, .* got 'mute'"),
        ("muteHead", {"block": 0}, "choices for muteHead must be block, head; got {'block': 0}"),
        ("muteHead", {"block": 0, "head": 4}, "head must be at least 0 and at most 3, got 4"),
        ("muteBlock", {"block": -1}, "block must be at least 0 and at most 1, got -1"),
        ("shufflePatches", {"order": [0, 1, 1, 3]}, r"order must have each of 4 patches once, got \[0, 1, 1, 3\]"),
        ("temperature", {"temperature": 0.0}, "temperature must be above 0 and finite, got 0.0"),
        ("uniform", {"block": 0}, "choices for uniform must be none; got {'block': 0}"),
    ],
)
def test_an_intervention_that_cannot_be_made_is_refused(name, choices, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        intervene(ViT(ViTConfig(img_size=4, patch_size=2, embed_dim=8, depth=2, num_heads=4)), name, **choices)


def test_points_of_a_stroke_are_finite_pairs(no_shape_checks):
    for point in [(1.0, float("nan")), (1.0, 2.0, 3.0)]:
        with pytest.raises(ValueError, match=r"strokes must be lists of finite points \(x, y\), got "):
            draw_strokes([[point]])
