"""Run chapters as Colab does: each notebook alone, where only its own set-up cell can bring the package.

    python book/colab.py                                every chapter
    python book/colab.py notebooks/01_patches.ipynb     these

Each gets an empty folder and a fresh virtual environment. That sees every package of the Python that runs this, Colab's
own in Colab's image and those of .venv elsewhere, but not the book's. The set-up cell asks GitHub for a release, as it
does for a reader, and git is told to take the last commit of this checkout instead; URL=https://… names another
repository that has the release. A chapter fails on an error, on a warning, and where the installation replaces a
package: Colab would want a restart.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = "vit-tutorial"
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
sys.exit("".join(output.text for output in outputs if output.get("name") == "stderr") or 0)
"""


def fresh_python(folder: Path) -> Path:
    """A virtual environment that sees this Python's packages, but none that is installed editable: the book's."""
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    seen = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (own_packages(folder) / "seen.pth").write_text("\n".join(seen) + "\n")
    command = [python, "-c", "import vit_tutorial"]
    if not subprocess.run(command, cwd=folder, env=settings(folder), capture_output=True).returncode:
        sys.exit(f"{sys.executable} has the package already, so no set-up cell would install it: uninstall it first.")
    return python


def own_packages(folder: Path) -> Path:
    """Where a virtual environment keeps what is installed into it."""
    return next((folder / "lib").glob("python*/site-packages"))


def settings(folder: Path, notebook: str = "") -> dict[str, str]:
    """The environment of a fresh Python. In it, git takes what ``notebook`` installs from here, or from $URL."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    kept |= {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    if address := re.search(r"git\+(https://[\w./-]+)@([\w.]+)", notebook):
        url = os.environ.get("URL") or released(folder / "released", address[2])
        kept |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{url}.insteadOf", "GIT_CONFIG_VALUE_0": address[1]}
    return {"VIT_TUTORIAL_BUDGET": "quick"} | kept | {"VIT_TUTORIAL_CHECK": "1"}


def released(folder: Path, tag: str) -> str:
    """The address of a copy of this checkout whose last commit has the tag, whether there is such a release or not."""
    if not folder.exists():
        subprocess.run(["git", "clone", "--quiet", "--bare", ROOT, folder], check=True)
        subprocess.run(["git", "-C", folder, "tag", "--force", tag, "HEAD"], check=True, stdout=subprocess.DEVNULL)
    return folder.as_uri()


def replaced(own: Path) -> list[str]:
    """What this Python had and the installation has brought again."""
    brought = {found.name for found in distributions(path=[str(own)])}
    return sorted(brought & {found.name for found in distributions()} - {OURS})


def problems(path: Path) -> str:
    """What went wrong when the notebook ran by itself; "" if nothing did."""
    with tempfile.TemporaryDirectory() as folder:
        python, content = fresh_python(Path(folder, "venv")), Path(folder, "content")
        content.mkdir()
        shutil.copy(path, content)
        environment = settings(Path(folder, "venv"), path.read_text(encoding="utf-8"))
        command = [python, "-c", EXECUTE, path.name]
        done = subprocess.run(command, cwd=content, env=environment, capture_output=True, text=True)
        again = replaced(own_packages(Path(folder, "venv")))
    said = [done.stderr or "it failed without a word"] if done.returncode else []
    return "\n".join(said + [f"the installation replaced {name}" for name in again])


def main(paths: list[Path]) -> None:
    """One line a notebook; exit with 1 where one failed."""
    source = os.environ.get("URL", ROOT)
    print(f"{len(paths)} notebooks on Python {sys.version.split()[0]}, the package from {source}", flush=True)
    failed = []
    for path in paths:
        start = time.monotonic()
        wrong = problems(path)
        print(f"  {path.stem:20} {time.monotonic() - start:6.1f} s", f"   FAILED\n{wrong}" * bool(wrong), flush=True)
        failed += [path.stem] * bool(wrong)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}. What they said stands above.")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb")))
