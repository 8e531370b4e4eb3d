"""Two processes train what one trains, started as torchrun does."""

import json
import subprocess
import sys

import pytest
from test_cli import TINY, own_folder

from vit_tutorial.cli import main


def test_two_processes_train_what_one_trains(own_folder):
    main(["train", "digits", *TINY, "--name", "one"])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "-m", "vit_tutorial", "train", "digits", *TINY, "--name", "two"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test accuracy") == 1  # only one process prints and writes
    one, two = (json.loads((own_folder / f"runs/{name}/metrics.json").read_text()) for name in ("one", "two"))
    assert (one["processes"], two["processes"]) == (1, 2)
    for first, second in zip(one["history"], two["history"], strict=True):
        for key in ("train_loss", "train_accuracy", "val_loss"):
            assert second[key] == pytest.approx(first[key], abs=1e-4), key
    assert two["test"]["loss"] == pytest.approx(one["test"]["loss"], abs=1e-4)
