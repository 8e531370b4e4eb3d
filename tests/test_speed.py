"""Costs match computations by hand, and measuring prints nothing."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vit_tutorial.attention import fused_attention, plain_attention
from vit_tutorial.speed import count_operations, peak_memory, seconds, time_by_operation


@pytest.mark.parametrize(("min_run_time", "median"), [(16.5, 4.0), (0, 2.0)])
def test_seconds_is_the_median_of_all_calls_but_the_first_on_all_threads(monkeypatch, min_run_time, median):
    now, costs, threads = [0.0], iter([100.0, 2.0, 5.0, 3.0, 7.0, 1000.0]), torch.get_num_threads()

    def fn():
        now[0] += next(costs)
        assert torch.get_num_threads() == threads + 1

    monkeypatch.setattr("timeit.default_timer", lambda: now[0])
    torch.set_num_threads(threads + 1)
    try:
        assert seconds(fn, min_run_time) == median  # 2, 5, 3 and 7 s; 17 s are then over
    finally:
        torch.set_num_threads(threads)


def test_peak_of_a_case_computed_by_hand():
    def two_at_once():
        first = torch.ones(1000)  # 4000 bytes
        second = torch.ones(2000)  # 12000
        del first  # 8000
        third = torch.ones(500)  # 10000
        return second, third

    assert peak_memory(two_at_once) == 12_000


def test_memory_allocated_before_does_not_count():
    before = torch.ones(100_000)
    assert peak_memory(lambda: torch.neg(before[:250])) == 1_000


@pytest.mark.parametrize("backward", [False, True])
def test_the_fused_kernel_never_holds_the_matrix(backward):
    b, h, n, hd = 2, 3, 256, 8
    q, k, v = (torch.randn(b, h, n, hd, requires_grad=backward) for _ in range(3))

    def run(attend):
        out = attend(q, k, v)
        if backward:
            torch.autograd.grad(out.sum(), (q, k, v))

    matrix = b * h * n * n * 4
    assert peak_memory(lambda: run(plain_attention)) >= matrix * (2 if backward else 1)
    assert peak_memory(lambda: run(fused_attention)) < matrix


def test_an_error_in_the_function_is_raised_and_the_next_measurement_works():
    calls = []

    def fails_when_measured():
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        peak_memory(fails_when_measured)
    assert peak_memory(lambda: torch.ones(1000)) == 4_000


@pytest.mark.slow
def test_measuring_prints_nothing_and_mutes_nothing():
    # In a process of its own: the profiler also writes when it is first loaded.
    script = (
        "import os, torch; from vit_tutorial.speed import peak_memory, seconds, time_by_operation\n"
        "fn = lambda: os.write(2, b'mine ') and torch.ones(10)\n"
        "seconds(fn, min_run_time=0); peak_memory(fn); time_by_operation(fn)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr == "mine " * 6


def test_the_benchmark_prints_a_table(monkeypatch, capsys):
    script = Path(__file__).parents[1] / "benchmarks" / "attention.py"
    sizes = "--tokens 5 --dim 12 --num-heads 3 --batch 2 --rounds 1 --min-run-time 0"
    monkeypatch.setattr(sys, "argv", [str(script), *sizes.split()])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert f"torch {torch.__version__}" in printed
    for name in ("loop over heads", "one matrix, formula", "nn.MultiheadAttention", "one matrix, one kernel (ours)"):
        assert name in printed


def test_operations_are_counted_and_the_longest_comes_first():
    a, b = torch.randn(300, 300), torch.randn(3)

    def fn():
        for _ in range(3):
            torch.mm(a, a)
        return b + b

    taken = time_by_operation(fn)
    assert taken["aten::mm"][1] == 3
    assert taken["aten::add"][1] == 1
    seconds_each = [time for time, _ in taken.values()]
    assert seconds_each == sorted(seconds_each, reverse=True)
    assert taken["aten::mm"][0] > taken["aten::add"][0] >= 0


def test_what_a_call_starts_is_counted_without_its_views():
    a = torch.randn(4, 6, requires_grad=True)

    def forward():
        return (a.T.reshape(4, 6) @ a.view(6, 4)).exp().sum()  # the copy of reshape, the product, exp and sum

    assert count_operations(forward) == 4
    assert count_operations(lambda: a.view(6, 4).T[1:, None]) == 0
    # Backward: ones to begin with; of the sum only a view; of exp one product; of @ two; both paths to a are added.
    assert count_operations(lambda: torch.autograd.grad(forward(), a)) >= 4 + 5
