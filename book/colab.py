"""Run chapters as Colab does: each notebook alone, where only its own set-up cell can bring the package.

    python book/colab.py                                every chapter
    python book/colab.py notebooks/01_patches.ipynb     these

Each gets an empty folder and a fresh virtual environment. That sees every package of the Python that runs this, Colab's
own in Colab's image and those of .venv elsewhere, but not the book's. The set-up cell asks GitHub for a release, as it
does for a reader, and git is told to take the last commit of this checkout instead. A chapter fails on an error, on a
warning, and where the installation replaces a package: Colab would want a restart.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXECUTE = """
import importlib.util, sys, nbclient, nbformat
if importlib.util.find_spec("vit_tutorial"):
    sys.exit("this Python has the package already, so no set-up cell would install it: uninstall it first")
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
sys.exit("".join(output.text for output in outputs if output.get("name") == "stderr") or 0)
"""


def released(folder: Path) -> dict[str, str]:
    """Variables with which git takes the release that set-up cells ask for from this checkout's last commit.

    The repository in ``folder`` has no history: git can loop over one that was cut short, as GitHub's own runners check
    it out.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    commit = ["-c", "user.name=colab", "-c", "user.email=", "-c", "commit.gpgsign=false", "commit", "-qm", "a release"]
    for arguments in (["init", "-q"], ["add", "--all", "--force"], commit, ["tag", f"v{project['version']}"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    here = f"url.{folder.as_uri()}.insteadOf"
    return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": here, "GIT_CONFIG_VALUE_0": project["urls"]["Repository"]}


def problems(path: Path, variables: dict[str, str]) -> str:
    """What went wrong when the notebook ran by itself; "" if nothing did."""
    with tempfile.TemporaryDirectory() as folder:
        own, content = Path(folder, "venv"), Path(folder, "content")
        venv.create(own, symlinks=True)
        [packages] = (own / "lib").glob(
            "python*/site-packages"
        )  # a package installed editable isn't seen through these
        (packages / "seen.pth").write_text(
            "\n".join(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))
        )
        content.mkdir()
        shutil.copy(path, content)
        environment = {"VIT_TUTORIAL_BUDGET": "quick"} | os.environ | variables
        environment["PATH"] = f"{own / 'bin'}{os.pathsep}{environment['PATH']}"
        for name in ("PYTHONPATH", "VIRTUAL_ENV"):
            environment.pop(name, None)
        command = [own / "bin/python", "-c", EXECUTE, path.name]
        done = subprocess.run(command, cwd=content, env=environment, capture_output=True, text=True)
        brought = {found.name for found in distributions(path=[str(packages)])} - {"vit-tutorial"}
    again = sorted(brought & {found.name for found in distributions()})
    said = [done.stderr or "it failed without a word"] if done.returncode else []
    return "\n".join(said + [f"the installation replaced {name}" for name in again])


def main(paths: list[Path]) -> None:
    """One line a notebook; exit with 1 where one failed."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        variables = released(Path(folder))
        for path in paths:
            wrong = problems(path, variables)
            print(f"  {path.stem:20}", f"FAILED\n{wrong}" if wrong else "passed", flush=True)
            failed += [path.stem] * bool(wrong)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}. What they said stands above.")


if __name__ == "__main__":
    main([Path(path) for path in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb")))
