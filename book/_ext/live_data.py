"""What the live figures of the chapters show, computed when the book is built from what only this book has."""

import io
import math
from base64 import b64encode

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch.nn.functional import normalize

from vit_tutorial.attention_maps import attention_map, attention_mass, record_attention
from vit_tutorial.clinic import PATIENTS
from vit_tutorial.data import Dataset, load_dataset
from vit_tutorial.model import ViT
from vit_tutorial.recipes import Recipe, make_model
from vit_tutorial.runs import FOLDER, load_metrics, load_recorded
from vit_tutorial.training import to_input
from vit_tutorial.what_matters import CHANGES, SWEEPS, accuracies, effect, effect_interval, read_rows


def per_cent(sweep: str, column: str) -> dict[str, torch.Tensor]:
    """A column of a recorded sweep, times 100: for each variant, a number for each run that came to its end."""
    found = {}
    for row in read_rows(FOLDER / f"sweeps/{sweep}.jsonl", SWEEPS[sweep]):
        if "broke" not in row:
            found.setdefault(row["variant"], []).append(100 * row[column])
    return {variant: torch.tensor(values, dtype=torch.float64) for variant, values in found.items()}


def webp(pixels: np.ndarray, quality: int) -> str:
    """An image ``(H, W, 3)`` of bytes as an address that has it inside."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "webp", quality=quality, method=6)
    return f"data:image/webp;base64,{b64encode(file.getvalue()).decode()}"


def patches() -> dict:
    """Chapter 1's photograph, 224 pixels square, and the patch sizes that tile it."""
    photo = load_sample_image("china.jpg")[96:320, 208:432]
    side = len(photo)
    return {"side": side, "sizes": [size for size in range(1, side + 1) if side % size == 0], "photo": webp(photo, 50)}


def positions() -> dict:
    """The cosines, in hundredths, of a learned table's rows with those before them. The others are formulas."""
    model, _ = load_recorded("cifar10-tiny-mild")
    rows = normalize(model.pos_embed[0, 1:].detach(), dim=1)  # without the class token's
    learned = (100 * rows @ rows.T).round().int().tolist()
    return {
        "side": model.config.grid_size[0],
        "dim": 32,
        "lowest": 0.6,
        "learned": [row[:i] for i, row in enumerate(learned)],
    }


def attention() -> dict:
    """Chapter 3's three tokens: rows of queries and keys, and their values in the plane."""
    return {
        "names": ["roof", "tree", "sky"],
        "features": ["roof-like", "tree-like", "sky-like", "any patch"],
        "queries": [[2, 0, 0, 2], [0, 0, 2, 0], [0, 0, 0, 2]],
        "keys": [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]],
        "values": [[12, 0], [0, 12], [0, 0]],
        "base": math.log(2),  # with a pencil, powers of 2
    }


def recipes() -> dict:
    """Chapter 7's three runs: per cent right after each epoch, and the learning rate in per cent of its highest."""
    runs = []
    for name in ("cifar10-small", "cifar10-small-10-epochs", "cifar10-small-published-10-epochs"):
        history = load_metrics(name)["history"]
        peak = max(entry["lr"] for entry in history)
        runs.append(
            {
                "accuracy": [round(100 * entry["val_accuracy"], 2) for entry in history],
                "rate": [round(100 * entry["lr"] / peak, 1) for entry in history],
            }
        )
    return {"runs": runs}


CODE = {"levels": 12, "top": 0.16}  # of attention: so many steps on a scale of roots, and what is drawn no stronger


def digits(maps: torch.Tensor) -> str:
    """Attention as digits in base 36, coarse enough to travel lightly."""
    steps = ((maps / CODE["top"]).clamp(0, 1).sqrt() * (CODE["levels"] - 1)).round().int()
    return "".join("0123456789abcdefghijklmnopqrstuvwxyz"[step] for step in steps.flatten().tolist())


def first_of_each_class(images: Dataset) -> Dataset:
    """Ten images, chosen by no eye."""
    return images[torch.tensor([(images.labels == label).nonzero()[0, 0].item() for label in range(10)])]


def strip(images: Dataset) -> str:
    """Small images side by side, as one address."""
    return webp(np.concatenate(images.images.permute(0, 2, 3, 1).numpy(), axis=1), 80)


@torch.no_grad()
def weights_of(model: ViT, images: Dataset, recipe: Recipe) -> torch.Tensor:
    """A model's attention on images, ``(layers, images, heads, n, n)``."""
    with record_attention(model) as maps:
        model(to_input(images.images, recipe))
    return torch.stack(maps)


def growing() -> dict:
    """Chapter 8's class token on ten drawn images, at four times of its training; on 200, how much is on the object."""
    final, recipe = load_recorded("shapes-by-epoch")
    epochs = [0, 1, 4, 8]
    models = [make_model(recipe).eval(), *(load_recorded("shapes-by-epoch", epoch)[0] for epoch in epochs[1:-1]), final]
    many = load_dataset("shapes", "test")[:200]
    ten = first_of_each_class(many)
    on_object = []
    for model in models:
        maps = attention_map(weights_of(model, many, recipe), model.config)
        maps = torch.cat([maps.mean(dim=0, keepdim=True), maps])  # the mean over layers first, and over heads
        maps = torch.cat([maps.mean(dim=2, keepdim=True), maps], dim=2)
        on_object.append(
            [
                [100 * attention_mass(maps[layer, :, head], many.masks).mean().item() for head in range(3)]
                for layer in range(5)
            ]
        )
    return {
        "epochs": epochs,
        "accuracy": [round(100 * entry["val_accuracy"], 1) for entry in load_metrics("shapes-by-epoch")["history"]],
        "layers": final.config.depth,
        "heads": final.config.num_heads,
        "places": final.config.num_patches,
        "names": list(many.classes),
        "side": many.images.shape[-1],
        "images": strip(ten),
        "maps": [digits(attention_map(weights_of(model, ten, recipe), model.config)) for model in models],
        "limit": 0.08,
        **CODE,
        "on_object": [[[round(head, 1) for head in layer] for layer in model] for model in on_object],
        "even": round(100 * many.masks.float().mean().item(), 1),
    }


def heads() -> dict:
    """Chapter 8's `shapes` model and ten drawn images."""
    model, _ = load_recorded("shapes")
    ten = first_of_each_class(load_dataset("shapes", "test"))
    return {
        "names": list(ten.classes),
        "side": ten.images.shape[-1],
        "images": strip(ten),
        "layers": model.config.depth,
        "heads": model.config.num_heads,
        "grid": model.config.grid_size[0],
        "limit": 0.1,
        **CODE,
    }


def every_row() -> dict:
    """What each patch reads in each layer and head, and how far it looks, in pixels."""
    model, recipe = load_recorded("shapes")
    weights = weights_of(model, first_of_each_class(load_dataset("shapes", "test")), recipe)
    rows = weights[..., 1:, 1:]  # without the class token
    (gh, gw), (ph, pw) = model.config.grid_size, model.config.patch_size
    places = torch.cartesian_prod(torch.arange(gh) * ph, torch.arange(gw) * pw).float()
    distances = torch.cdist(places, places)
    far = (rows / rows.sum(dim=-1, keepdim=True) * distances).sum(dim=-1)  # (layers, images, heads, patches)
    return {
        "rows": digits(rows),
        "far": [round(each, 1) for each in far.flatten().tolist()],
        "mean": [[round(head, 1) for head in layer] for layer in far.mean(dim=(1, 3)).tolist()],
        "even": round(distances.mean().item(), 1),
    }


def forest() -> dict:
    """Chapter 10's effects with their 95 % intervals: for each kind of change, for each change, for each data set."""
    sets = ("mnist", "shapes", "cifar10")
    kinds = {kind: {words: {} for words in changes.values()} for kind, changes in CHANGES.items()}
    for name in sets:
        rows = [row for row in read_rows(FOLDER / f"sweeps/{name}.jsonl", SWEEPS[name]) if "broke" not in row]
        for kind, changes in CHANGES.items():
            for variant, words in changes.items():
                if (runs := len(accuracies(rows, variant))) > 1:
                    kinds[kind][words][name] = [*(round(end, 2) for end in effect(rows, variant)), runs]
    return {"kinds": kinds, "sets": sets}


def ward() -> dict:
    """Chapter 12's patients and healthy twins: equally many runs of each, and the effect of all with its interval."""
    columns = {"accuracy": per_cent("clinic", "test_accuracy"), "loss": per_cent("clinic", "train_loss")}
    columns["loss"] = {variant: values / 100 for variant, values in columns["loss"].items()}
    patients, names = [], list(PATIENTS)
    for variant in sorted(columns["loss"], key=lambda name: (*names, "healthy").index(name.partition(",")[0])):
        bug, comma, kind = variant.partition(",")
        if bug != "healthy":
            pairs = {name: (values[f"healthy{comma}{kind}"], values[variant]) for name, values in columns.items()}
            told = {
                name: {
                    "healthy": [round(run, 3) for run in healthy.tolist()[: len(sick)]],
                    "sick": [round(run, 3) for run in sick.tolist()],
                    "effect": [round(end, 3) for end in effect_interval(healthy, sick)],
                }
                for name, (healthy, sick) in pairs.items()
            }
            patients.append({"number": names.index(bug) + 1, "kind": kind.strip(), **told})
    return {"patients": patients}
