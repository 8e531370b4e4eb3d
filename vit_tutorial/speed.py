"""Costs: seconds, peak memory and operations, measured on CPU or GPU; operations of a training step, derived."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from vit_tutorial.config import ViTConfig
from vit_tutorial.model import ViT


def seconds(fn: Callable[[], object], min_run_time: float = 0.2) -> float:
    """Median seconds per call of ``fn``, by ``torch.utils.benchmark``, on all of PyTorch's threads.

    A first call warms up and doesn't count. Short calls are timed many at once, so that neither the clock nor waiting
    for the GPU counts.

    Args:
        fn: what to measure.
        min_run_time: keep calling for at least this many seconds; 0 for a single call.
    """
    # PyTorch imports its compiler of extensions along with the timer, which warns of a CUDA toolkit without a GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    from torch.utils.benchmark import Timer

    timer = Timer("fn()", globals={"fn": fn}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=min_run_time).median


def training_flops(config: ViTConfig | ViT) -> int:
    """Floating-point operations of all matrix products in one training step on one image, forward and backward.

    A multiply-add counts as two. Chapter 11 derives the formula and compares it with PyTorch's own count.

    Args:
        config: of a plain ViT. Or a model with other parts: what PyTorch counts in a forward pass of a copy without
            numbers, patch dropout included, three times.
    """
    if isinstance(config, ViT):
        from torch.utils.flop_counter import FlopCounterMode  # takes a quarter of a second

        copy = deepcopy(config).to("meta", torch.float32).train()
        with FlopCounterMode(display=False) as counter:
            copy(torch.empty(1, config.config.in_chans, *config.config.img_size, device="meta"))
        return 3 * counter.get_total_flops()
    n, d = config.num_tokens, config.embed_dim
    hidden = int(d * config.mlp_ratio)
    pixels = config.in_chans * config.patch_size[0] * config.patch_size[1]
    block = n * d * 3 * d + 2 * n * n * d + n * d * d + 2 * n * d * hidden
    multiply_adds = config.num_patches * pixels * d + config.depth * block + d * config.num_classes
    return 2 * 3 * multiply_adds


def peak_memory(fn: Callable[[], object]) -> int:
    """Peak bytes of tensors during a call of ``fn``, beyond those allocated before it.

    ``fn`` runs at least twice, and only the last call counts, because the first may allocate what stays (a workspace on
    the GPU, a gradient).

    On a GPU the allocator keeps count. On CPU the profiler reports each allocation, and this function adds them up.
    """
    _finish(fn)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        _finish(fn)
        on_gpu = torch.cuda.max_memory_allocated() - before
        if on_gpu:
            return on_gpu
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _muted_stderr():
        profiler.start()
    try:
        fn()
    finally:
        with _muted_stderr():
            profiler.stop()
    with TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        trace = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((event for event in trace if event["name"] == "[memory]"), key=lambda event: event["ts"])
    return max(accumulate((event["args"]["Bytes"] for event in changes), initial=0))


def time_by_operation(fn: Callable[[], object]) -> dict[str, tuple[float, int]]:
    """For each PyTorch operation, slowest first: its own seconds in one call of ``fn``, and how often it is called.

    ``fn`` runs twice, and only the second call counts. On a GPU the seconds are those of the kernels, which run
    asynchronously.
    """
    _finish(fn)
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    profiler = profile(activities=activities, acc_events=True)
    with _muted_stderr():
        profiler.start()
    try:
        _finish(fn)
    finally:
        with _muted_stderr():
            profiler.stop()
    taken = {
        event.key: ((event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e6, event.count)
        for event in profiler.key_averages()
        if event.device_type == DeviceType.CPU  # operations only: their kernels would count twice
    }
    return dict(sorted(taken.items(), key=lambda item: -item[1][0]))


def count_operations(fn: Callable[[], object]) -> int:
    """How many PyTorch operations one call of ``fn`` starts, backward included; views, which move nothing, don't count.

    On a GPU each of them is a kernel that Python has to launch, or a few.
    """
    with _Counting() as counting:
        fn()
    return counting.started


class _Counting(TorchDispatchMode):
    started = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        free = func.is_view or func is torch.ops.aten._unsafe_view.default
        self.started += not free
        return func(*args, **(kwargs or {}))


def _finish(fn: Callable[[], object]) -> None:
    """Call ``fn`` and wait for the GPU, which keeps working after the call returns."""
    fn()
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Drop what C++ writes to file descriptor 2, where the profiler announces itself, even in a notebook."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
