"""A training that is killed in the middle of an epoch and started again ends with the weights of one left alone."""

import os
import signal
import subprocess
import sys

from test_training import CONFIG, same_weights, small_model
from torch.optim.optimizer import register_optimizer_step_post_hook

from vit_tutorial.data import load_dataset
from vit_tutorial.training import fit


def train(checkpoint=None, last: int = 0):
    """The model and its number of steps, seven an epoch; after step ``last`` the process kills itself."""
    model, steps, digits = small_model(), [], [load_dataset("digits", split)[:200] for split in ("train", "val")]
    kill = lambda *_: steps.append(1) or (len(steps) == last and os.kill(os.getpid(), signal.SIGKILL))  # noqa: E731
    hook = register_optimizer_step_post_hook(kill)
    fit(model, *digits, CONFIG, checkpoint=checkpoint, progress=False)
    hook.remove()
    return model, len(steps)


def test_killed_and_started_again(tmp_path):
    path = str(tmp_path / "c.pt")
    code = f"import sys; sys.path = {sys.path}; import test_training_killed as t; t.train({path!r}, 17)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == -signal.SIGKILL
    (alone, whole), (resumed, steps) = train(), train(path)
    assert (whole, steps) == (21, 7) and same_weights(alone, resumed)
