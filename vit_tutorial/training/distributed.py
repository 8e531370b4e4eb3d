"""What a run needs to know if torchrun starts it in several processes; without torchrun there is only one."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


def rank_and_world() -> tuple[int, int]:
    """The rank of this process and the number of processes; (0, 1) without torchrun."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


@contextmanager
def process_group(device: str) -> Iterator[str]:
    """Join the other processes within a ``with`` block, which gets the device of this one.

    ``torchrun`` names each process in environment variables. If they are missing, nothing happens.

    Args:
        device: ``"cpu"``, or ``"cuda"``, of which each process takes a GPU of its own.

    Raises:
        ValueError: if there are fewer GPUs than processes on this machine, or ``device`` is one GPU for several.
    """
    if "RANK" not in os.environ:
        yield device
        return
    processes = int(os.environ["LOCAL_WORLD_SIZE"])
    if device.startswith("cuda:") and processes > 1:
        raise ValueError(f"{processes} processes cannot share {device}: say cuda, and each takes a GPU of its own")
    if device == "cuda":
        if processes > (gpus := torch.cuda.device_count()):
            raise ValueError(
                f"{processes} processes need a GPU each, and PyTorch finds {gpus} here: start at most {gpus} "
                "(--nproc-per-node), or use --device cpu"
            )
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(device)
    # The patch projection of grey images has an axis of size 1. Its stride means nothing, but DDP warns about it.
    warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()
