"""Claims that hang on rounding are found, and others are left alone."""

import nbformat
import pytest
import rounding
from nbformat.v4 import new_code_cell, new_notebook

CELLS = [
    "import torch\nfrom torch import nn\nfrom vit_tutorial.claims import claim",
    "# @title Two equal models, and their start\n"
    "start = moved = None  # names of its own\n"
    "layers = nn.Linear(3, 5), nn.Linear(3, 5), nn.LayerNorm(4)\n"
    "layers[1].load_state_dict(layers[0].state_dict())\n"
    "before = [layer.weight.detach().clone() for layer in layers]\n"
    "for layer in layers:\n    torch.optim.SGD(layer.parameters(), lr=0.1)",
    "# @title The numbers above, checked\n"
    "claim('to the last bit', torch.equal(layers[0].weight, before[0]))\n"
    "claim('about so', torch.allclose(layers[0].weight, before[0], rtol=1e-4))\n"
    "claim('twins stay twins', torch.equal(layers[0].weight, layers[1].weight))\n"
    "claim('a norm starts at one', bool((layers[2].weight == 1).all()))",
    "# @title Check\nif not torch.equal(layers[0].weight, before[0]):\n    raise ValueError('another bit')",
]


@pytest.fixture
def notebook(tmp_path):
    def write(stem, cells):
        path = tmp_path / f"{stem}.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), path)
        return path

    return write


def test_what_hangs_on_the_last_bit_is_named(notebook, capsys):
    sound = notebook("01_x", [*CELLS[:2], CELLS[2].replace("claim('to the last bit'", "('not claimed'")])
    with pytest.raises(SystemExit, match="2 of 4 runs disagree"):
        rounding.main([sound, notebook("02_y", CELLS)], times=2)
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines[:2] == [f"  01_x                 run {number}: all holds" for number in (1, 2)]
    wrong = "“to the last bit”; not so here; # @title Check: ValueError: another bit"
    assert lines[2:] == [f"  02_y                 run {number}: {wrong}" for number in (1, 2)]
