"""What runs on a GPU is rehearsed on one that is pretended: training, recipes, and the code of chapters 6 to 12."""

import copy
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from notebook_rules import NOTEBOOKS, ROOT
from pretended_gpu import pretended_gpu
from rehearsal import INSTEAD, code_of, run_cells
from torch import nn

from vit_tutorial import ViT, ViTConfig
from vit_tutorial.recipes import RECIPES
from vit_tutorial.runs import load_recorded, run_recipe


def test_a_training_on_it_gives_the_numbers_of_the_cpu(tmp_path):
    model = replace(RECIPES["digits"].model, embed_dim=12, depth=1)
    recipe = replace(RECIPES["digits"], epochs=2, batch_size=512, model=model, optimizer="muon", ema=0.9)
    recipe = replace(recipe, augment=replace(recipe.augment, crop=0))  # a GPU's generator draws otherwise
    wanted = run_recipe("digits", recipe, tmp_path / "cpu", progress=False)["history"]
    with pretended_gpu():
        metrics = run_recipe("digits", recipe, tmp_path / "gpu", device="cuda", progress=False)
    assert metrics["device"] == "a pretended GPU"
    for got, here in zip(metrics["history"], wanted, strict=True):  # the fused kernel rounds otherwise
        assert got["train_loss"] == pytest.approx(here["train_loss"], rel=1e-4)
        assert got["val_loss"] == pytest.approx(here["val_loss"], rel=1e-4)
    model, _ = load_recorded(tmp_path / "gpu")
    assert {value.device.type for value in model.state_dict().values()} == {"cpu"}


FAULTS = {
    "same device": lambda x: x + torch.ones(4, 3),
    "a generator on": lambda x: torch.rand(3, device="cuda", generator=torch.Generator()),
    "to numpy": lambda x: x.numpy(),
}


@pytest.mark.parametrize("message", FAULTS)
def test_it_refuses_what_a_gpu_refuses(message):
    with pretended_gpu():
        x = torch.rand(4, 3, device="cuda")
        assert (x[torch.tensor([0, 2])] * torch.tensor(2.0)).device.type == "cuda"  # which a GPU allows
        with pytest.raises((RuntimeError, TypeError), match=message):
            FAULTS[message](x)


# The chapters ---------------------------------------------------------------------------------------------------------

STEMS = [path.stem for path in NOTEBOOKS if path.stem >= "06"]


def rehearsed(*arguments: str) -> str:
    """What a rehearsal says of its error; "" if there was none."""
    command = [sys.executable, ROOT / "tests/slow/rehearsal.py", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    return (done.stderr[-3000:] or "it failed without a word") if done.returncode else ""


@pytest.mark.parametrize("stem", STEMS)
def test_the_code_of_a_chapter_runs_on_a_gpu(stem):
    assert rehearsed(stem, "full") == ""  # a GPU's default; quick runs in the build


def test_a_fault_in_a_chapter_is_named_with_its_cell():
    cells = ["import torch", "x = torch.ones(2, device='cuda')", "y = x + torch.ones(2)"]
    run_cells("00_sound", cells[:2])
    with pytest.raises(RuntimeError, match="same device") as caught:
        run_cells("00_faulty", cells)
    assert caught.value.__notes__ == ["in 00_faulty, code cell 2:\ny = x + torch.ones(2)"]


def test_what_a_rehearsal_replaces_is_there(monkeypatch):
    assert any("at_once = 1" in cell for cell in code_of("11_speed"))
    monkeypatch.setitem(INSTEAD, "11_speed", {"no such code": ""})
    with pytest.raises(ValueError, match="11_speed has no 'no such code'"):
        code_of("11_speed")
