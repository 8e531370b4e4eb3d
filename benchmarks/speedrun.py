"""A plain Vision Transformer learns CIFAR-10 in half an hour of two CPU cores: all in one file, for torch alone.

    python benchmarks/speedrun.py FOLDER SEED [test]

FOLDER is cifar-10-batches-py, CIFAR-10 for Python, which `vit-tutorial data cifar10` fetches. On a CPU the weights are
those of the recipe cifar10-speedrun to the last bit (tests/test_speedrun.py). The book's page "Speedrun" has rules and
records. Choose by the validation accuracy, and ask for the test when nothing is left to choose.
"""

import copy
import math
import pickle
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

PATCH, DIM, DEPTH, HEADS = 4, 128, 6, 2  # patches of 4×4 pixels make 64 tokens
EPOCHS, BATCH = 25, 128
LR, WARMUP = 1.5e-3, 0.1  # the highest rate, and the fraction of all steps in which it rises
WEIGHT_DECAY, CLIP = 0.05, 1.0  # of matrices alone; the largest norm of a gradient
MOMENTUM, BETAS = 0.95, (0.9, 0.98)  # of Muon and of AdamW
EMA = 0.998  # what is evaluated are weights averaged over about 500 steps
CROP, MAGNITUDE = 4, 0.5  # the largest shift in pixels, and how strong RandAugment is, 0 to 1
SIDE, TRAIN, HELD_OUT = 32, 50_000, 5_000  # CIFAR-10's pixels and training images; of those, for validation
BF16, DEVICE = True, "cuda" if torch.cuda.is_available() else "cpu"  # bf16 in the training's forward pass and in Muon


class Block(nn.Module):
    """Attention, then an MLP. Plain attention: PyTorch's fused kernel can be several times slower on a CPU in bf16."""

    def __init__(self):
        super().__init__()
        self.norm1, self.qkv, self.proj = nn.LayerNorm(DIM, eps=1e-6), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(DIM, eps=1e-6), nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        weights = ((q * q.shape[-1] ** -0.5) @ k.mT).softmax(dim=-1)
        x = x + self.proj((weights @ v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """Pixels in 0..1 to logits. No class token: the head reads the mean of all tokens."""

    @torch.no_grad()
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, DIM, kernel_size=PATCH, stride=PATCH)
        self.pos_embed = nn.Parameter(torch.zeros(1, (SIDE // PATCH) ** 2, DIM))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(DIM, eps=1e-6), nn.Linear(DIM, 10)
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(layer.weight.flatten(1))
                nn.init.zeros_(layer.bias)
        nn.init.normal_(self.head.weight, std=0.02)  # small, so that the first loss is about ln(10)
        nn.init.normal_(self.pos_embed, std=0.02)  # replaced below; drawn, so that a seed gives the recipe's weights
        for block in self.blocks:  # as in trained models, patches attend to similar and nearby ones (arXiv:2305.09828)
            query, key, value = block.qkv.weight.chunk(3)
            heads = [(q.T, k, 0.7, 0.7) for q, k in zip(query.chunk(HEADS), key.chunk(HEADS), strict=True)]
            for left, right, noise, diagonal in [*heads, (block.proj.weight, value, 0.4, -0.4)]:
                u, s, vh = torch.linalg.svd(noise * torch.randn(DIM, DIM) / DIM**0.5 + diagonal * torch.eye(DIM))
                root = s[: len(right)].sqrt()  # left @ right is this product, as nearly as their rank allows
                left[:], right[:] = u[:, : len(right)] * root, root[:, None] * vh[: len(right)]
        angle = torch.arange(SIDE // PATCH)[:, None] * 10000.0 ** -(torch.arange(0, DIM // 2, 2).double() / (DIM // 2))
        waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # of a patch's row, and of its column
        self.pos_embed[:] = torch.cat([waves.repeat_interleave(len(waves), 0), waves.repeat(len(waves), 1)], dim=1)

    def forward(self, images):
        x = self.patch_embed((images - 0.5) / 0.5).flatten(2).mT + self.pos_embed
        return self.head(self.norm(self.blocks(x)).mean(dim=1))

    @torch.no_grad()
    def accuracy(self, images, labels):
        """The fraction that one look at each image gets right, in full precision."""
        answers = torch.cat([self(part.float() / 255).argmax(1) for part in images.split(BATCH)])
        return (answers == labels).float().mean().item()


@torch.no_grad()
def muon(matrices, average, lr):
    """Move matrices of one shape so that no direction is learned much faster than another (Jordan et al. 2024)."""
    gradient = torch.stack([matrix.grad for matrix in matrices])  # one large product is faster than many small ones
    average.lerp_(gradient, 1 - MOMENTUM)
    x = gradient.lerp(average, MOMENTUM)  # Nesterov
    tall = x.shape[1] > x.shape[2]
    x = (x.mT if tall else x) / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value is above 1 now,
    for _ in range(5):  # and this polynomial brings all of them to 0.7..1.2
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    scale = 0.2 * math.sqrt(max(x.shape[1:])) * lr  # so steps are as large as AdamW's (arXiv:2502.16982)
    for matrix, step in zip(matrices, x.mT if tall else x, strict=True):
        matrix.mul_(1 - lr * WEIGHT_DECAY).add_(step, alpha=-scale)


def augment(images, generator):
    """Flip and shift each image, then do two operations of eight to it: after RandAugment, arXiv:1909.13719."""
    b, on = len(images), {"device": DEVICE, "generator": generator}
    images = torch.where(torch.rand(b, 1, 1, 1, **on) < 0.5, images.flip(-1), images)
    rows, columns = torch.randint(2 * CROP + 1, (2, b, 1), **on) + torch.arange(SIDE, device=DEVICE)
    padded, each = F.pad(images, [CROP] * 4).permute(0, 2, 3, 1), torch.arange(b, device=DEVICE)[:, None, None]
    images = padded[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    for _ in range(2):
        choice, amount = torch.randint(8, (b,), **on), MAGNITUDE * (2 * torch.rand(b, **on) - 1)
        angle, shear = amount * math.radians(30) * (choice == 1), amount * 0.3 * (choice == 2)
        shift = MAGNITUDE * (0.6 * torch.rand(b, 2, **on) - 0.3)
        right, down = (shift * (choice[:, None] == 3)).unbind(1)
        source = [angle.cos(), angle.sin() - shear, -2 * right, -angle.sin(), angle.cos(), -2 * down]
        grid = F.affine_grid(torch.stack(source, dim=1).view(b, 2, 3), [b, 1, SIDE, SIDE], align_corners=False)
        moved = F.grid_sample(images, grid, align_corners=False)  # one resampling: an image has one of the three
        brightness, contrast, saturation = 1 + MAGNITUDE * (1.8 * torch.rand(3, b, 1, 1, 1, **on) - 0.9)
        bright = images * brightness
        mean = bright.mean(dim=(1, 2, 3), keepdim=True)
        coloured = mean + (bright - mean) * contrast
        grey = coloured.mean(dim=1, keepdim=True)
        coloured = (grey + (coloured - grey) * saturation).clamp(0, 1)
        strength = amount.abs()[:, None, None, None]
        levels = 2 ** (8 - 5 * strength).round()
        posterised = torch.where(levels < 256, (images * levels).floor().clamp(max=levels - 1) / (levels - 1), images)
        solarised = torch.where(images > 1 - 0.6 * strength, 1 - images, images)
        low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
        stretched = torch.lerp(images, (images - low) / (high - low).clamp(min=1e-3), strength)
        stretched = torch.where(high - low > 1e-3, stretched, images)
        for number, outcome in enumerate((moved, moved, moved, coloured, posterised, solarised, stretched), start=1):
            images = torch.where(choice[:, None, None, None] == number, outcome, images)
    return images


def train(images, labels, val, seed):
    """Returns the model with averaged weights, and its accuracy on ``val`` after each epoch."""
    torch.manual_seed(seed)
    model = ViT().to(DEVICE)
    averaged = copy.deepcopy(model)
    slow, fast = ([*each.state_dict().values()] for each in (averaged, model))
    stacks = [[getattr(block, name).weight for block in model.blocks] for name in ("qkv", "proj", "fc1", "fc2")]
    averages = [torch.zeros(len(stack), *stack[0].shape, device=DEVICE) for stack in stacks]
    outside = {"params": [model.patch_embed.weight, model.head.weight], "weight_decay": WEIGHT_DECAY}
    rest = {"params": [p for p in model.parameters() if p.ndim == 1 or p is model.pos_embed], "weight_decay": 0.0}
    adamw = torch.optim.AdamW([outside, rest], betas=BETAS, fused=True)
    autocast = torch.autocast(DEVICE, torch.bfloat16, enabled=BF16)
    steps, history, start = math.ceil(len(images) / BATCH), [], time.perf_counter()
    total, rising = EPOCHS * steps, int(WARMUP * EPOCHS * steps)
    for epoch in range(EPOCHS):
        mixed = 1_000_003 * (seed + 1) + epoch + 1  # so that neighbouring seeds and epochs share no draws
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(mixed)).to(DEVICE)
        generator = torch.Generator(DEVICE).manual_seed(1_000_003 * mixed + 1)
        for step, batch in enumerate(order.split(BATCH), start=epoch * steps):
            inputs = augment(images[batch].float() / 255, generator)
            with autocast:
                logits = model(inputs).float()
            model.zero_grad()
            F.cross_entropy(logits, labels[batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            fall = (step - rising) / max(1, total - rising)
            lr = LR * (step + 1) / rising if step < rising else LR * (1 + math.cos(math.pi * fall)) / 2
            adamw.param_groups[0]["lr"] = adamw.param_groups[1]["lr"] = lr
            adamw.step()
            with autocast:
                for matrices, average in zip(stacks, averages, strict=True):
                    muon(matrices, average, lr)
            torch._foreach_lerp_(slow, fast, 1 - min(EMA, (step + 1) / (step + 10)))  # soon forgets the initialization
        history.append(averaged.accuracy(*val))
        print(f"epoch {epoch + 1}: validation {history[-1]:.2%}, {time.perf_counter() - start:.0f} s", flush=True)
    return averaged, history


class Unpickler(pickle.Unpickler):
    """Needs no NumPy, and runs no code of the file: whatever it asks for becomes a Stored."""

    class Stored:
        def __setstate__(self, state):
            self.content = state[-1]

    def find_class(self, module, name):
        return lambda *_: self.Stored()


def load(folder):
    """Training, validation and test, each images as bytes, (n, 3, 32, 32), and their classes, (n,)."""
    files = (folder / name for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"))
    batches = [Unpickler(file.open("rb"), encoding="bytes").load() for file in files]
    pixels = bytearray(b"".join(batch[b"data"].content for batch in batches))
    images = torch.frombuffer(pixels, dtype=torch.uint8).view(-1, 3, SIDE, SIDE)
    labels = torch.tensor([label for batch in batches for label in batch[b"labels"]])
    order = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(0))
    parts = order[HELD_OUT:], order[:HELD_OUT], torch.arange(TRAIN, len(labels))
    return [(images[part].to(DEVICE), labels[part].to(DEVICE)) for part in parts]


if __name__ == "__main__":
    folder, seed, *test_it = sys.argv[1:]
    training, val, test = load(Path(folder))
    model, _ = train(*training, val, int(seed))
    if test_it:
        print(f"test {model.accuracy(*test):.2%}")
