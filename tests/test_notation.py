"""The names on the notation page are those of the models that are installed."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import torch
import torchvision
import transformers
from safetensors import safe_open
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch import nn

from vit_tutorial import ViT, ViTConfig

PAGE = (Path(__file__).parent.parent / "book/notation.md").read_text(encoding="utf-8")
SMALL = ViTConfig(img_size=32, patch_size=16, num_classes=5, embed_dim=24, depth=2, num_heads=3)


def table(first_heading: str) -> list[list[str]]:
    """The rows of the table whose first column has this heading, cell by cell."""
    lines = iter(PAGE.splitlines())
    for line in lines:
        if line.startswith(f"| {first_heading} |"):
            break
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def code(cell: str) -> list[str]:
    """The names in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def layers(column: int) -> dict[str, list[str]]:
    """For each of our layers in a model of two blocks, the names that a column has for it."""
    rows = table("ours and timm")
    (block,) = [code(row[column])[0] for row in rows if row[0] == "`blocks.i`"]
    names = {code(row[0])[0]: code(row[column]) for row in rows if row[0] != "`blocks.i`"}
    for row in table("inside a block"):
        first, *rest = code(row[column])
        parts = [first, *(f"{first.rpartition('.')[0]}.{word}" for word in rest)]
        for i in "01":
            prefix = re.sub(r"\bi$|(?<=_)i$", i, block)
            names[f"blocks.{i}.{code(row[0])[0]}"] = [f"{prefix}.{part}" for part in parts]
    return names


def state_names(column: int) -> set[str]:
    """All parameter names that a column stands for."""
    names = set()
    for ours, theirs in layers(column).items():
        for name in theirs:
            dot = "" if name.endswith("_") else "."
            names |= {name} if ours in ("cls_token", "pos_embed") else {f"{name}{dot}weight", f"{name}{dot}bias"}
    return names


def torchvision_model():
    return torchvision.models.VisionTransformer(
        image_size=32, patch_size=16, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=96, num_classes=5
    )


def timm_model(**options):
    return TimmViT(img_size=32, patch_size=16, num_classes=5, embed_dim=24, depth=2, num_heads=3, **options)


def test_the_tables_are_found():
    assert len(table("ours and timm")) == 6 and len(table("inside a block")) == 6
    assert len(layers(0)) == 5 + 2 * 6 and len(table("ours")) == 15


def test_parameter_names_are_ours():
    assert state_names(0) == set(ViT(SMALL).state_dict())


def test_parameter_names_are_those_of_timm():
    assert state_names(0) == set(timm_model().state_dict())


def test_parameter_names_are_those_of_torchvision():
    assert state_names(1) == set(torchvision_model().state_dict())


def test_parameter_names_are_those_of_hugging_face(tmp_path):
    """Compared with what transformers writes to a file, which is what one meets."""
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96, image_size=32, num_labels=5
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert state_names(2) == set(file.keys())


def test_the_rows_of_the_fused_projection_have_the_same_order():
    """torchvision's parameters, renamed by the table and nothing else, give torchvision's results."""
    ours, theirs = ViT(SMALL).eval(), torchvision_model().eval()
    nn.init.normal_(theirs.heads.head.weight)
    state, renamed = theirs.state_dict(), {}
    for our_name, (their_name,) in layers(1).items():
        for kind in ("", "weight", "bias"):
            source = their_name + ("" if their_name.endswith("_") or not kind else ".") + kind
            if source in state:
                renamed[f"{our_name}.{kind}".rstrip(".")] = state[source]
    ours.load_state_dict(renamed)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_configuration_fields_are_ours_and_complete():
    named = {name for row in table("ours") for name in code(row[0])}
    assert named == {field.name for field in fields(ViTConfig)}


def test_configuration_fields_are_those_of_timm_and_torchvision():
    for column, model in ((1, timm_model()), (2, torchvision_model())):
        known = set(inspect.signature(type(model).__init__).parameters)
        named = {name for row in table("ours") for name in code(row[column])} - {"nn.GELU"}
        assert named <= known, named - known


def test_epsilons():
    assert ViT(SMALL).norm.eps == torchvision_model().encoder.ln.eps == timm_model().norm.eps == 1e-6
    assert nn.LayerNorm(4).eps == 1e-5


def test_timm_normalises_after_averaging():
    model = timm_model(global_pool="avg")
    assert isinstance(model.norm, nn.Identity) and isinstance(model.fc_norm, nn.LayerNorm)


def test_example_sizes():
    config = ViTConfig()
    values = {name: row[3] for row in table("letter") for name in code(row[2])}
    for name in ("in_chans", "embed_dim", "num_heads", "head_dim", "num_tokens", "num_classes"):
        assert values[name] == str(getattr(config, name))
    for name in ("img_size", "patch_size", "grid_size"):
        assert values[name] == ", ".join(map(str, getattr(config, name)))
