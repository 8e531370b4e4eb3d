"""Seconds for one epoch of MNIST, from the data on disk to the mean loss: ours beside a published tutorial's.

    python benchmarks/mnist_epoch.py [--repeats 3] [--images 60000]

Both train the same model (5,689 parameters, batches of 128, Adam). The tutorial's pipeline is rebuilt here as it was
published: torchvision's MNIST with ``Resize`` and ``ToTensor`` for each image in a ``DataLoader``, heads in a Python
loop, ``loss.item()`` at each step. Ours resizes once in a run and keeps the bytes in memory; it counts the accuracy,
too. Both read their files once in a run, and each of the recipe's 5 epochs is charged a fifth of what precedes
the first. Epochs alternate, so that a busy machine slows both.
"""

import argparse
import statistics
import time
from dataclasses import replace

import torch
import torchvision
import torchvision.transforms as T
from torch import nn
from torch.utils.data import DataLoader, Subset

from vit_tutorial import PerHeadAttention, sincos_1d
from vit_tutorial.data import data_root, load_dataset
from vit_tutorial.recipes import RECIPES, load_split, make_model
from vit_tutorial.training import make_optimizer, train_epoch

EPOCHS = RECIPES["mnist-published"].epochs


class TutorialBlock(nn.Module):
    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), PerHeadAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TutorialViT(nn.Module):
    """The tutorial's model: Conv2d patches, class token, one-dimensional sines, no final norm, softmax."""

    def __init__(self, dim: int = 9, depth: int = 3, num_heads: int = 3, num_tokens: int = 5):
        super().__init__()
        self.project = nn.Conv2d(1, dim, kernel_size=16, stride=16)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.register_buffer("positions", sincos_1d(num_tokens, dim)[None])
        self.blocks = nn.Sequential(*(TutorialBlock(dim, num_heads) for _ in range(depth)))
        self.classifier = nn.Sequential(nn.Linear(dim, 10), nn.Softmax(dim=-1))

    def forward(self, images):
        x = self.project(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.classifier(self.blocks(x)[:, 0])


def tutorial_epoch(num_images: int) -> tuple[float, float]:
    """Seconds of one epoch of the tutorial's loop: in all, and without reading the files."""
    model = TutorialViT()
    assert sum(p.numel() for p in model.parameters()) == 5689
    optimizer, criterion = torch.optim.Adam(model.parameters(), lr=5e-3), nn.CrossEntropyLoss()
    start = time.perf_counter()
    transform = T.Compose([T.Resize((32, 32)), T.ToTensor()])
    train = torchvision.datasets.MNIST(data_root(), train=True, transform=transform)
    loader = DataLoader(Subset(train, range(num_images)), shuffle=True, batch_size=128)
    loaded, total = time.perf_counter(), 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    end = time.perf_counter()
    return end - start, end - loaded


def our_epoch(num_images: int) -> tuple[float, float]:
    """Seconds of one epoch of ours: in all, and without reading and resizing the images."""
    recipe = replace(RECIPES["mnist-published"], epochs=1)
    model = make_model(recipe)
    optimizer = make_optimizer(model, recipe)
    start = time.perf_counter()
    train = load_split(recipe, "train")
    numbers = torch.arange(num_images) % len(train)  # 5,000 of the 60,000 are held out: some are taken twice instead
    train = train[numbers]
    loaded = time.perf_counter()
    train_epoch(model, optimizer, train, 0, recipe)
    end = time.perf_counter()
    return end - start, end - loaded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=int, default=60_000)
    options = parser.parse_args()
    load_dataset("mnist", "test")  # downloaded, if need be, before the clock runs
    tutorial_epoch(1280), our_epoch(1280)
    pipelines = {"tutorial": tutorial_epoch, "ours": our_epoch}
    times = {name: [] for name in pipelines}
    for _ in range(options.repeats):
        for name, one_epoch in pipelines.items():
            times[name].append(one_epoch(options.images))
            whole, itself = times[name][-1]
            print(f"{name}: {whole:.1f} s, of which the epoch itself {itself:.1f} s", flush=True)
    first, later = {}, {}
    for name, taken in times.items():
        first[name], later[name] = (statistics.median(seconds) for seconds in zip(*taken, strict=True))
    mean = {name: later[name] + (first[name] - later[name]) / EPOCHS for name in pipelines}
    print(f"{options.images:,} images, {torch.get_num_threads()} threads, medians of {options.repeats}:")
    for label, spent in ((f"an epoch of a run of {EPOCHS}", mean), ("the first epoch alone", first)):
        slow, fast = spent.values()
        print(f"{label}: {slow:.1f} s against {fast:.1f} s, ratio {slow / fast:.1f}×")


if __name__ == "__main__":
    main()
