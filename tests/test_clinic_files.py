"""``vit-tutorial diagnose FILE.py:make_model``: a model in a file, with pictures or without."""

import pytest
import torch
from fake_data import write_image
from torch import nn

from vit_tutorial.cli import main
from vit_tutorial.clinic.files import load_model, load_pictures

MODEL = """
import torch
from torch import nn

from parts import Tokens


class Mine(nn.Module):
    def __init__(self, batch_first=True):
        super().__init__()
        self.tokens = Tokens()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.classes = nn.Linear(16, 5)

    def forward(self, images):
        return self.classes(self.body(self.tokens(images)).mean(dim=1))


def sick():
    return Mine(batch_first=False)


ready, number = Mine(), 3
broken = lambda: 1 / 0
"""
PARTS = """
import torch
from torch import nn


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut, self.pos = nn.Conv2d(3, 16, 8, 8), nn.Parameter(torch.randn(1, 9, 16))

    def forward(self, images):
        return self.cut(images).flatten(2).mT + self.pos
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my models").mkdir()
    (tmp_path / "my models/vit.py").write_text(MODEL)
    (tmp_path / "my models/parts.py").write_text(PARTS)
    for i in range(3):
        write_image(tmp_path / f"photos/day {i}/picture.png", i)
    return tmp_path


@pytest.mark.parametrize("images", [[], ["--images", "photos"]], ids=["random", "pictures"])
def test_the_command(images, capsys):
    main(["diagnose", "my models/vit.py:Mine", *images])
    healthy = capsys.readouterr().out
    assert healthy.startswith("no bug found, ") and "attention across the batch" in healthy
    assert ("The images were random, 4×3×24×24" in healthy) == (not images)
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", "my models/vit.py:sick", *images])
    assert ended.value.code == 1
    sick = capsys.readouterr().out
    assert sick.startswith("1 bug found") and "batch_first=True" in sick and "evidence:" in sick


def test_a_function_a_class_or_a_model():
    assert isinstance(load_model("my models/vit.py:ready"), nn.Module)
    assert type(load_model("my models/vit.py:sick")).__name__ == "Mine"


def test_pictures_have_the_size_that_the_model_takes():
    model = load_model("my models/vit.py:ready")
    images = load_pictures("photos", model)
    assert images.shape == (3, 3, 24, 24) and -1 <= images.min() < images.max() <= 1
    grey = nn.Sequential(nn.Conv2d(1, 4, 8, 8), nn.Flatten(), nn.Linear(36, 5))
    assert load_pictures("photos", nn.Sequential(nn.AdaptiveAvgPool2d(24), grey)).shape[:2] == (3, 1)
    assert torch.equal(load_pictures("photos", model), images)


WRONG = {
    "vit.py": r"must be FILE.py:make_model, a Python file and a name in it; got 'vit.py'",
    "nope.py:f": "there is no Python file nope.py",
    "my models/vit.py:nope": "vit.py has no nope; it has Tokens, Mine, sick",
    "my models/vit.py:number": "made no model: TypeError: 'int' object is not callable",
    "my models/vit.py:broken": "made no model: ZeroDivisionError: division by zero",
    "my models/bad.py:f": "made no model: SyntaxError",
}


@pytest.mark.parametrize("source", WRONG)
def test_what_is_no_model_is_one_line(source, own_folder):
    (own_folder / "my models/bad.py").write_text("def f(:")
    with pytest.raises(SystemExit, match=f"vit-tutorial: .*{WRONG[source]}"):
        main(["diagnose", source])


def test_folders_without_pictures(own_folder):
    (own_folder / "empty").mkdir()
    with pytest.raises(SystemExit, match=r"empty must hold at least 2 pictures .*, found 0"):
        main(["diagnose", "my models/vit.py:Mine", "--images", "empty"])
