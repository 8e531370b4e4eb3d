"""Seconds for one epoch of CIFAR-10 with 2.7 million parameters, data to metrics: ours beside published pipelines.

    python benchmarks/cifar10_epoch.py [--repeats 3] [--images 45000] [--device cuda] [--compile]
        [--precision bf16]

Both train the same model (192 wide, 6 blocks, patches of 4×4) in batches of 128 and end with loss and accuracy over
training and validation images. The tutorial is rebuilt as it was published: each image through PIL transforms in a
``DataLoader`` without workers, ``nn.MultiheadAttention`` as it comes, which returns the weights too, the norm before it
computed three times, fp32, ``loss.item()`` at each step. Ours keeps the bytes on the device, changes whole batches
there, in bf16 on a GPU and where ``--precision`` says so, and reads its sums once. Epochs alternate, so that a busy
machine slows both. ``--images`` takes a part of the images, and as large a part of the validation's, for a CPU.

On a GPU, the last lines give the fraction of the card's own rate for a large product of matrices in the precision of
the training. What is loaded once in a run (files to bytes) is not part of an epoch, on either side.
"""

import argparse
import statistics
import time
from contextlib import nullcontext
from dataclasses import replace

import torch
import torchvision.transforms as T
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from vit_tutorial.data import Dataset
from vit_tutorial.recipes import RECIPES, Recipe, load_split, make_model
from vit_tutorial.runs import provenance
from vit_tutorial.speed import seconds, training_flops
from vit_tutorial.training import evaluate, in_bf16, make_optimizer, train_epoch
from vit_tutorial.training.ema import EMA

PUBLISHED, OURS = RECIPES["cifar10-small-published"], RECIPES["cifar10-small"]


class ThroughPil(torch.utils.data.Dataset):
    """Images one by one, as torchvision's CIFAR10 hands them out: PIL image, transforms, tensor."""

    def __init__(self, dataset: Dataset, transform):
        self.images, self.labels = dataset.images.permute(0, 2, 3, 1).numpy(), dataset.labels.tolist()
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, number):
        return self.transform(Image.fromarray(self.images[number])), self.labels[number]


class TutorialBlock(nn.Module):
    """The tutorial's block: the norm is computed for queries, keys and values each, and the weights are returned."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, num_heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x), self.norm1(x), self.norm1(x))[0]
        return x + self.mlp(self.norm2(x))


class TutorialViT(nn.Module):
    """The tutorial's model: Conv2d patches, class token, learned positions, final norm over all tokens."""

    def __init__(self, dim: int = 192, depth: int = 6, num_heads: int = 3, patch_size: int = 4, num_patches: int = 64):
        super().__init__()
        self.project = nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1, num_patches + 1, dim))
        self.blocks = nn.Sequential(*(TutorialBlock(dim, num_heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)

    def forward(self, images):
        x = self.project(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def published_epoch(train: Dataset, val: Dataset, device: str) -> float:
    """Seconds of one epoch of the tutorials' loop."""
    normalise = [T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)]
    changes = T.Compose([T.RandomHorizontalFlip(), T.RandomRotation(PUBLISHED.augment.degrees), *normalise])
    train_loader = DataLoader(ThroughPil(train, changes), batch_size=PUBLISHED.batch_size, shuffle=True)
    val_loader = DataLoader(ThroughPil(val, T.Compose(normalise)), batch_size=PUBLISHED.batch_size)
    model, criterion = TutorialViT().to(device), nn.CrossEntropyLoss()
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in make_model(PUBLISHED).parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=PUBLISHED.lr)
    start = time.perf_counter()
    for loader in (train_loader, val_loader):
        model.train(loader is train_loader)
        total = correct = 0.0
        with torch.set_grad_enabled(loader is train_loader):
            for images, labels in loader:
                images, labels = images.to(device), labels.to(device)
                logits = model(images)
                loss = criterion(logits, labels)
                if loader is train_loader:
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                total += loss.item()
                correct += (logits.argmax(1) == labels).sum().item()
    return time.perf_counter() - start


class OurEpoch:
    """One epoch after the other of a single run, so that what is compiled is compiled once."""

    def __init__(self, recipe: Recipe, train: Dataset, val: Dataset, device: str):
        self.recipe, self.train, self.val = recipe, train.to(device), val.to(device)
        self.model = make_model(recipe).to(device)
        self.optimizer = make_optimizer(self.model, recipe)
        self.ema = EMA(self.model, recipe.ema) if recipe.ema else None
        self.run = torch.compile(self.model) if recipe.compile else self.model
        self.epoch = 0

    def __call__(self) -> float:
        """Seconds of one epoch."""
        start = time.perf_counter()
        train_epoch(self.run, self.optimizer, self.train, self.epoch, self.recipe, self.ema)
        with self.ema.weights() if self.ema else nullcontext():
            evaluate(self.model, self.val, self.recipe)
        self.epoch += 1
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=int, default=45_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="run our model through torch.compile")
    parser.add_argument("--precision", default="auto", help="of our forward pass: auto, fp32 or bf16")
    options = parser.parse_args()
    how = {"epochs": 100, "compile": options.compile, "precision": options.precision}
    whole, val = load_split(OURS, "train"), load_split(OURS, "val")
    train = whole[: options.images]
    val = val[: max(1, len(val) * len(train) // len(whole))]
    # Long enough that the schedule goes on: an epoch costs the same at every learning rate.
    ours = OurEpoch(replace(OURS, **how), train, val, options.device)
    # The same with the tutorials' recipe: what the pipeline alone brings, with the work for each image unchanged.
    same = OurEpoch(replace(PUBLISHED, **how), train, val, options.device)
    published_epoch(train[:256], val[:128], options.device), ours(), same()  # the first is slower, and does not count
    times: dict[str, list[float]] = {"published": [], "ours": [], "same recipe": []}
    for _ in range(options.repeats):
        times["published"].append(published_epoch(train, val, options.device))
        times["ours"].append(ours())
        times["same recipe"].append(same())
        print(", ".join(f"{name} {values[-1]:.2f} s" for name, values in times.items()), flush=True)
    published, our_recipe, same_recipe = (statistics.median(values) for values in times.values())
    machine = f"{provenance(options.device)['device']}, precision {options.precision}"
    print(f"{len(train):,} + {len(val):,} images of {train.variant}, {machine}, medians of {options.repeats}:")
    print(f"published pipeline                 {published:.2f} s")
    print(f"ours with the tutorial's recipe    {same_recipe:.2f} s, ratio {published / same_recipe:.2f}×")
    print(f"ours with our recipe               {our_recipe:.2f} s, ratio {published / our_recipe:.2f}×")
    if options.device.startswith("cuda"):
        dtype = torch.bfloat16 if in_bf16(options.device, options.precision) else torch.float32
        square = torch.randn(8192, 8192, device=options.device, dtype=dtype)
        peak = 2 * 8192**3 / seconds(lambda: square @ square)
        # The validation images are only looked at: a third of the work of a training image.
        used = training_flops(OURS.model) * (len(train) + len(val) / 3) / our_recipe
        print(f"a product of 8192×8192 matrices, {dtype}: {peak / 1e12:.0f} TFLOP/s")
        print(f"our epoch: {used / 1e12:.1f} TFLOP/s, {used / peak:.1%} of that")


if __name__ == "__main__":
    main()
