"""After a reader's changes to numbers in view, a chapter runs to its end."""

import os
import subprocess
import sys

import pytest
from notebook_rules import NOTEBOOKS, ROOT


@pytest.mark.parametrize("stem", [path.stem for path in NOTEBOOKS])
def test_a_reader_s_changes_stop_no_later_cell(stem):
    command = [sys.executable, ROOT / "tests/rehearsal.py", stem, "quick", "changed"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
