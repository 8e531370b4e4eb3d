"""Chapter 10 trains with one seed and says that others put valleys and peaks in the same places."""

import pytest
from notebook_rules import NOTEBOOKS, read

CELLS = ("3f852acf", "shuffled-digits", "9846b430", "shift-recipes", "shift-train", "shift-test")


@pytest.mark.parametrize("seed", [1, 2])
def test_valleys_and_peaks_stay(seed, monkeypatch):
    monkeypatch.setenv("VIT_TUTORIAL_BUDGET", "quick")
    code = {cell.id: cell.source for cell in read(next(p for p in NOTEBOOKS if p.stem == "10_what_matters")).cells}
    assert "seed, shift_epochs = 0," in code["shift-recipes"]
    names = {}
    for cell in CELLS:
        source = code[cell].replace("seed, shift_epochs = 0,", f"seed, shift_epochs = {seed},")
        exec(source.replace("%pip", "pass  #"), names)
        if names.get("dataset", "mnist") != "mnist":
            pytest.skip("is about MNIST")
    bag, ordinary, resnet = (names["shifted"][name] for name in ("ViT, no positions", "ViT, fixed table", "ResNet"))
    for curve in (bag, ordinary):
        assert min(range(8), key=curve.get) in (3, 4) and max(range(4, 11), key=curve.get) == 7
    assert min(range(8), key=resnet.get) in (4, 5, 6) and max(range(5, 11), key=resnet.get) == 8
