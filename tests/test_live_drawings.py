"""Drawings as readers make them: does the model read them, and does Python see what the page saw?"""

import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from _ext.live import MODULES, examples

from vit_tutorial.live import draw_strokes, export_model
from vit_tutorial.runs import load_recorded
from vit_tutorial.training import to_input

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
SHEET = 280


def by_another_hand(strokes: list[list], rng: np.random.Generator) -> list[list]:
    """Our strokes as someone else might draw them.

    The whole digit is turned by up to 15°, sheared, made wider or narrower; each stroke is bent and moved a little;
    the hand trembles, and a fast pen leaves out points.
    """
    turn, shear, wide = np.radians(rng.uniform(-15, 15)), rng.uniform(-0.2, 0.2), rng.uniform(0.75, 1.3)
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ [[wide, shear], [0, 1]]
    drawn = []
    for stroke in strokes:
        points = (np.array(stroke, dtype=float) - SHEET / 2) @ matrix.T + SHEET / 2
        along = np.linspace(0, 1, len(points))[:, None]
        bends = sum(rng.normal(0, 5 / wave, 2) * np.sin(np.pi * wave * along + rng.uniform(0, 6)) for wave in (1, 2, 3))
        points += bends + rng.normal(0, 4, 2) + rng.normal(0, 1.2, points.shape)
        kept = rng.random(len(points)) > rng.uniform(0, 0.6)
        kept[[0, -1]] = True
        drawn.append(points[kept].tolist())
    return drawn


def drawings(count: int) -> tuple[list, torch.Tensor]:
    """``count`` drawings, each digit and each way of writing it as often as the others, and their labels."""
    rng = np.random.default_rng(0)
    ways = examples()
    labels = torch.arange(count) % 10
    return [
        by_another_hand(ways[digit][i // 10 % len(ways[digit])], rng) for i, digit in enumerate(labels.tolist())
    ], labels


@torch.no_grad()
@pytest.mark.parametrize("run", ["mnist", "mnist-patch4"])
def test_a_thousand_drawings_are_read(run):
    model, recipe = load_recorded(run)
    drawn, labels = drawings(1000)
    images = torch.stack([draw_strokes(strokes) for strokes in drawn])[:, None]
    right = model(to_input(images, recipe)).argmax(-1) == labels
    assert right.float().mean() >= 0.97, labels[~right].bincount(minlength=10)


PASTED = f"""
import {{ readFileSync }} from "node:fs";
import {{ drawStrokes }} from "{MODULES}/digit.mjs";
import {{ asPython }} from "{MODULES}/python.mjs";
import {{ forward, loadModel }} from "{MODULES}/vit.mjs";
const {{ strokes, exported }} = JSON.parse(readFileSync(0, "utf8"));
const {{ logits }} = forward(loadModel(exported), Float64Array.from(drawStrokes(strokes), (grey) => grey / 255));
console.log(JSON.stringify([asPython(strokes, "mnist"), Array.from(logits)]));
"""


@needs_node
def test_the_page_s_python_gives_the_page_s_logits():
    for strokes in ([], *(ways[-1] for ways in examples())):
        given = json.dumps({"strokes": strokes, "exported": export_model(*load_recorded("mnist"))})
        done = subprocess.run(
            ["node", "--input-type=module", "-e", PASTED], input=given, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        code, logits = json.loads(done.stdout)
        exec(code, pasted := {})
        torch.testing.assert_close(pasted["logits"].double(), torch.tensor(logits).double(), rtol=1e-4, atol=1e-4)
