"""Time and peak memory of multi-head attention, written in several ways, side by side.

    python benchmarks/attention.py
    python benchmarks/attention.py --tokens 197 577 --dim 768 --num-heads 12 --batch 4 --threads 1

Every variant gets the same weights, and its output is first asserted equal. Ratios are relative to one fused kernel
(``vit_tutorial.Attention``): 2.00 is twice its time or memory. Each time is the best of several rounds, and the
variants take turns within a round, so that noise hits all alike. With a GPU both devices are measured. timm's attention
joins in where timm is installed.
"""

import argparse
import platform
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vit_tutorial.attention import Attention, PerHeadAttention, fuse_heads, plain_attention
from vit_tutorial.speed import peak_memory, seconds

BASE = "one matrix, one kernel (ours)"


def make_variants(dim: int, num_heads: int) -> dict[str, nn.Module]:
    """The layers by name, all with the same weights."""
    per_head = PerHeadAttention(dim, num_heads)
    fused = fuse_heads(per_head)
    variants = {
        "loop over heads": per_head,
        "one matrix, formula": fuse_heads(per_head, attend=plain_attention),
        "nn.MultiheadAttention": TorchAttention(fused, need_weights=True),
        "  the same, need_weights=False": TorchAttention(fused, need_weights=False),
    }
    try:
        from timm.layers import Attention as TimmAttention
    except ImportError:
        print("timm is not installed, so it is left out")
    else:
        variants["timm.layers.Attention"] = TimmAttention(dim, num_heads=num_heads, qkv_bias=True)
        variants["timm.layers.Attention"].load_state_dict(fused.state_dict())
    return variants | {BASE: fused}


class TorchAttention(nn.Module):
    """PyTorch's layer, with our weights, called on one argument."""

    def __init__(self, ours: Attention, need_weights: bool):
        super().__init__()
        self.layer = nn.MultiheadAttention(ours.proj.in_features, ours.num_heads, batch_first=True)
        self.layer.load_state_dict(
            {
                "in_proj_weight": ours.qkv.weight,
                "in_proj_bias": ours.qkv.bias,
                "out_proj.weight": ours.proj.weight,
                "out_proj.bias": ours.proj.bias,
            }
        )
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x, x, need_weights=self.need_weights)[0]


def forward(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    @torch.no_grad()
    def run() -> None:
        layer(x)

    return run


def forward_and_backward(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    inputs = [x, *layer.parameters()]

    def run() -> None:
        torch.autograd.grad(layer(x).sum(), inputs)

    return run


def measure(runs: dict[str, Callable[[], object]], rounds: int, min_run_time: float) -> dict[str, tuple[float, int]]:
    """Seconds and peak bytes by name; within a round, each is timed once, in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run, min_run_time))
    return {name: (min(times[name]), peak_memory(run)) for name, run in runs.items()}


def compare(device: str, args: argparse.Namespace) -> None:
    """Print one table for each number of tokens."""
    torch.manual_seed(0)
    variants = {name: layer.to(device) for name, layer in make_variants(args.dim, args.num_heads).items()}
    for n in args.tokens:
        x = torch.randn(args.batch, n, args.dim, device=device, requires_grad=True)
        with torch.no_grad():
            for layer in variants.values():
                torch.testing.assert_close(layer(x), variants[BASE](x), rtol=1e-3, atol=1e-4)
        costs = [
            measure({name: way(layer, x) for name, layer in variants.items()}, args.rounds, args.min_run_time)
            for way in (forward, forward_and_backward)
        ]
        print(
            f"\n{device}: batch {args.batch}, {n} tokens, dim {args.dim}, {args.num_heads} heads; all outputs are equal"
        )
        print(f"{'':>31}{'forward':^18}{'forward+backward':^19}")
        print(f"{'relative to the last line':>31}{'time':>8}{'memory':>9}{'time':>10}{'memory':>9}")
        for name in variants:
            ratios = [cost / base for way in costs for cost, base in zip(way[name], way[BASE], strict=True)]
            print(f"{name:<31}{ratios[0]:>8.2f}{ratios[1]:>9.2f}{ratios[2]:>10.2f}{ratios[3]:>9.2f}")
        (time, memory), (time_both, memory_both) = (way[BASE] for way in costs)
        print(
            f"{'  that is':<31}{time * 1e3:>5.1f} ms{memory / 1e6:>6.1f} MB"
            f"{time_both * 1e3:>7.1f} ms{memory_both / 1e6:>6.1f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 197, 577, 1024], help="numbers of tokens")
    parser.add_argument("--dim", type=int, default=192, help="width of a token (default 192, ViT-Ti)")
    parser.add_argument("--num-heads", type=int, default=3, help="attention heads (default 3, ViT-Ti)")
    parser.add_argument("--batch", type=int, default=2, help="images in the batch (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which the variants take turns (default 5)")
    parser.add_argument("--min-run-time", type=float, default=0.05, help="seconds for each variant in a round")
    parser.add_argument("--threads", type=int, help="CPU threads (default: PyTorch's own choice)")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    devices = ["cpu"]
    print(f"{platform.platform()}, Python {platform.python_version()}, torch {torch.__version__}")
    print(f"cpu: {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        devices.append("cuda")
        print(f"cuda: {torch.cuda.get_device_name()}")
    for device in devices:
        compare(device, args)


if __name__ == "__main__":
    main()
