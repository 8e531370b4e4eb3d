"""The names on the notation page are those of the models that are installed."""

import inspect
import re
from dataclasses import fields

import pytest
import torchvision
import transformers
from notebook_rules import page
from safetensors import safe_open
from timm.models.vision_transformer import VisionTransformer as TimmViT

from vit_tutorial import ViT, ViTConfig

SIZES = {"img_size": 32, "patch_size": 16, "num_classes": 5, "embed_dim": 24, "depth": 2, "num_heads": 3}
TIMM, OURS = TimmViT(**SIZES), ViT(ViTConfig(**SIZES))
TORCHVISION = torchvision.models.VisionTransformer(
    image_size=32, patch_size=16, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=96, num_classes=5
)


def table(first_heading: str) -> list[list[str]]:
    """The rows of the table whose first column has this heading, cell by cell."""
    [found] = re.findall(rf"^\| {first_heading} \|.*\n\|[-:| ]+\n((?:\|.*\n)+)", page("book/notation.md"), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()]


def code(cell: str) -> list[str]:
    """The names in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def state_names(column: int) -> set[str]:
    """All parameter names of a model of two blocks that a column stands for."""
    rows = table("ours and timm")
    [block] = [code(row[column])[0] for row in rows if row[0] == "`blocks.i`"]
    names = [(code(row[0])[0], name) for row in rows if row[0] != "`blocks.i`" for name in code(row[column])]
    for row in table("inside a block"):
        first, *rest = code(row[column])
        parts = [first, *(f"{first.rpartition('.')[0]}.{word}" for word in rest)]
        names += [("", f"{re.sub(r'(?<![a-z])i$', i, block)}.{part}") for i in "01" for part in parts]
    found = set()
    for ours, name in names:
        dot = "" if name.endswith("_") else "."
        found |= {name} if ours in ("cls_token", "pos_embed") else {f"{name}{dot}weight", f"{name}{dot}bias"}
    return found


@pytest.mark.parametrize(("column", "model"), [(0, OURS), (0, TIMM), (1, TORCHVISION)])
def test_parameter_names(column, model):
    assert state_names(column) == set(model.state_dict())


def test_parameter_names_are_those_of_hugging_face(tmp_path):
    """Compared with what transformers writes to a file, which is what one meets."""
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96, image_size=32, num_labels=5
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert state_names(2) == set(file.keys())


def test_configuration_fields():
    named = [{name for row in table("ours") for name in code(row[column])} - {"nn.GELU"} for column in range(3)]
    assert named[0] == {field.name for field in fields(ViTConfig)}
    assert OURS.norm.eps == TIMM.norm.eps == TORCHVISION.encoder.ln.eps == 1e-6
    for names, model in ((named[1], TIMM), (named[2], TORCHVISION)):
        assert names <= set(inspect.signature(type(model).__init__).parameters)


def test_example_sizes():
    config = ViTConfig()
    values = {name: row[3] for row in table("letter") for name in code(row[2])}
    for name in ("in_chans", "embed_dim", "num_heads", "head_dim", "num_tokens", "num_classes"):
        assert values[name] == str(getattr(config, name))
    for name in ("img_size", "patch_size", "grid_size"):
        assert values[name] == ", ".join(map(str, getattr(config, name)))
