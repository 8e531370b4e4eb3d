"""The two steps behind `make book` and `make test`: run the notebooks, render what they gave.

    python book/build.py execute     nbmake over every notebook that has to run, as many at a time as there are cores
    python book/build.py anew        the same over all of them, whatever earlier runs have left
    python book/build.py html        Jupyter Book from those results, warnings as errors
    python book/build.py slides      decks of six chapters beside the pages, which are built first if they're missing
    python book/build.py links       ask every address outside that a page names; runs no notebook
    python book/build.py fold        fold every cell that begins with `# @title`, everywhere that notebooks are shown

A notebook is executed once: what nbmake ran is what the book renders. It runs again when its code has changed,
a module of vit_tutorial/ that it imports, directly or through others, a VIT_TUTORIAL_ variable, which data are there,
Python, torch or the kind of processor. Prose, alt texts and other chapters' exercises may change at no cost. What
passed is kept beside the data sets, so that another clone on this machine need not run it again.
"""

import argparse
import ast
import hashlib
import importlib.util
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

import nbformat
import torch
import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

from vit_tutorial.data import data_root

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
EXECUTED = BUILD / "executed"  # those that passed, with a file beside each that says for which code
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vit-tutorial/executed"  # for other clones
MOST_KEPT = 5  # of a chapter: the newest
CACHE = BUILD / ".jupyter_cache"  # what Jupyter Book reads; made anew from EXECUTED each time
TIMES = BUILD / "notebook_times.json"
SLOW = 90  # seconds of one notebook that bring a warning: a clock fails no test, since machines differ
DARK = ROOT / "book/_ext/dark.py"  # every kernel loads it
MISSING = ("Going on with '", "The published weights aren't here", "Nothing is drawn, for timm")
ALONE = ("11_speed",)  # measures seconds, and runs when all the others are done


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def title_of(cell: nbformat.NotebookNode) -> str:
    """What a folded cell says of itself in its first line; "" if it is not to be folded."""
    found = re.match(r"# @title (\S.*)", cell.source) if cell.cell_type == "code" else None
    return found[1].strip() if found else ""


def fold(title: str) -> dict:
    """The metadata of a cell that is folded in the book, in JupyterLab and in Colab.

    Of what goes deeper, the output is folded, too.
    """
    deeper = title.startswith("Going deeper")
    return {
        "cellView": "form",
        "jupyter": {"source_hidden": True} | ({"outputs_hidden": True} if deeper else {}),
        "mystnb": {"code_prompt_show": title, "code_prompt_hide": title},
        "tags": ["hide-cell" if deeper else "hide-input"],
    }


def fold_all() -> None:
    """Fold what begins with a title, in all notebooks."""
    for path, notebook in notebooks().items():
        for cell in filter(title_of, notebook.cells):
            for key, value in fold(title_of(cell)).items():
                cell.metadata[key] = cell.metadata.get(key, {}) | value if isinstance(value, dict) else value
        nbformat.write(notebook, path)


def module_file(name: str) -> Path | None:
    """The file of a module of the package; None for other modules, and for names of things in modules."""
    if not re.fullmatch(r"vit_tutorial(\.\w+)*", name):
        return None
    path = ROOT.joinpath(*name.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def names_imported(code: str, package: str = "") -> frozenset[str]:
    """What ``code``, of a module in ``package``, imports: modules, and names that may be modules.

    Imports inside functions count, for they may run. So does a module's dotted name in a string.

    Raises:
        SyntaxError: if the code is not Python.
    """

    def found() -> Iterator[str]:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                yield node.value

    return frozenset(found())


def starting_points(stem: str, code: str) -> set[str]:
    """The modules that a notebook itself asks for, with those that no import statement names."""
    try:
        names = set(names_imported(re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)))
    except (SyntaxError, ImportError):  # the notebook has to run, to show where
        package = (ROOT / "vit_tutorial").rglob("*.py")
        return {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in package}
    if re.search(r"\bexercise\(", code):  # the engine loads the chapter's exercises by name
        names.add(f"vit_tutorial.exercises.{stem.partition('_')[2]}")
    if re.search(r"""["']-m["'],\s*["']vit_tutorial["']""", code):  # the command, in a process of its own
        names.add("vit_tutorial.__main__")
    return names


def files_behind(stem: str, code: str) -> set[Path]:
    """The files of the package on which a notebook's outputs depend: modules and data."""
    files, todo = set(), starting_points(stem, code)
    while todo:
        name = todo.pop()
        file = module_file(name)
        if file is None or file in files:
            continue
        files.add(file)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        todo |= {package, name.rpartition(".")[0], *names_imported(file.read_text(encoding="utf-8"), package)}
    whole = ROOT / "vit_tutorial"
    readers = {whole / "recorded" / "live": "live.py", whole / "recorded": "runs.py"}  # nothing else opens these
    for path in whole.rglob("*") if files else ():
        is_data = path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
        reader = next((reader for folder, reader in readers.items() if path.is_relative_to(folder)), None)
        if is_data and (reader is None or whole / reader in files):
            files.add(path)
    return files


@cache
def machine() -> list[str]:
    """What decides a chapter's numbers beside its code."""
    packages = [f"{name} {version(name)}" for name in ("torch", "torchvision", "numpy", "matplotlib", "scikit-learn")]
    processor = [platform.machine(), torch.backends.cpu.get_cpu_capability(), f"cuda {torch.cuda.is_available()}"]
    return [platform.python_version(), *packages, *processor]


def data_at_hand() -> list[str]:
    """The data sets and weights that are there, wherever that is."""
    places = [data_root() / name for name in ("MNIST/raw", "cifar10", "cifar-10-batches-py")]
    places += Path(torch.hub.get_dir(), "checkpoints").glob("vit_*.pth")
    return sorted(place.name for place in places if place.exists())


def notebook_key(path: Path, notebook: nbformat.NotebookNode) -> str:
    """A hash of what decides a notebook's outputs: its code, the files behind it, settings, data and the machine.

    Prose and alt texts are not in it.
    """
    settings = {key: value for key, value in os.environ.items() if key.startswith("VIT_TUTORIAL_")}
    settings["VIT_TUTORIAL_DATA"] = data_at_hand()  # which, not where
    cells = [
        [cell.source, {key: value for key, value in cell.metadata.items() if key != "mystnb"}]
        for cell in code_cells(notebook)
    ]
    digest = hashlib.sha256(json.dumps([settings, machine(), cells], sort_keys=True).encode() + DARK.read_bytes())
    for file in sorted(files_behind(path.stem, "\n".join(source for source, _ in cells))):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"\0{file.relative_to(ROOT).as_posix()}\0{content}".encode())
    return digest.hexdigest()


def notebooks() -> dict[Path, nbformat.NotebookNode]:
    return {path: nbformat.read(path, as_version=4) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def results(path: Path) -> tuple[Path, Path]:
    """Where the executed notebook stands, and the file with its key."""
    return EXECUTED / path.name, EXECUTED / f"{path.stem}.key"


def has_to_run(path: Path, key: str) -> bool:
    executed, key_file = results(path)
    return not executed.exists() or not key_file.exists() or key_file.read_text() != key


def tidy_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Printed text in one piece, and of a progress bar only its last state, as a terminal would leave it."""
    tidy = []
    for output in outputs:
        if tidy and output.output_type == "stream" == tidy[-1].output_type and output.name == tidy[-1].name:
            tidy[-1].text += output.text
        else:
            tidy.append(output)
    for output in tidy:
        if output.output_type == "stream":
            output.text = re.sub(r"[^\n]*\r(?!\n)", "", output.text)
    return tidy


def surroundings() -> dict[str, str]:
    """The environment of the kernels: each starts with ``dark.register``, and no setting of the user's reaches them.

    They download nothing: ``make executed`` has fetched what can be had.
    Matplotlib lists its fonts once, before the first figure: a list found in the user's home may lack some, and the
    page would show the warning.
    """
    ipython, matplotlib = BUILD / "ipython", BUILD / "matplotlib"
    startup = ipython / "profile_default/startup"
    startup.mkdir(parents=True, exist_ok=True)
    lines = ["import sys", f"sys.path.append({str(DARK.parent)!r})", "import dark", "dark.register()"]
    (startup / "00-dark.py").write_text("\n".join([*lines, "sys.path.pop()", "del dark, sys", ""]))
    shutil.rmtree(matplotlib, ignore_errors=True)
    matplotlib.mkdir()
    theirs = {"OMP_NUM_THREADS": "1", "IPYTHONDIR": str(ipython), "MPLCONFIGDIR": str(matplotlib)}
    theirs |= {"VIT_TUTORIAL_DOWNLOAD": "0"}
    kept = {key: value for key, value in os.environ.items() if key not in ("MPLBACKEND", "MATPLOTLIBRC")}
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=kept | theirs, check=True)
    return kept | theirs | {"VIT_TUTORIAL_CHECK": "1"}  # a claim that fails ends the run


def run(notebook: nbformat.NotebookNode, path: Path, environment: dict[str, str]) -> float | None:
    """Run nbmake over the notebook in ``path``, which gets its outputs: the seconds, or None when it failed."""
    nbformat.write(notebook, path)
    command = ["-m", "pytest", path, "--nbmake", "--overwrite", "--nbmake-timeout=600", "--quiet", "--no-header"]
    command += ["-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", "--color=yes"]
    start = time.monotonic()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    seconds = round(time.monotonic() - start, 1)
    if done.returncode:
        print(f"  {path.stem:20} FAILED\n{done.stdout}{done.stderr}", flush=True)
        return None
    print(f"  {path.stem:20} {seconds:6.1f} s" + f"   WARNING: over {SLOW} s" * (seconds > SLOW), flush=True)
    return seconds


def kept(path: Path, key: str) -> Path:
    """Where an executed notebook is kept for other clones."""
    return KEPT / f"{path.stem}-{key[:32]}.ipynb"


def keep(path: Path, key: str) -> None:
    """Keep an executed notebook, whole or not at all, and the newest few of the chapter."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        shutil.copy(results(path)[0], folder)
        os.replace(Path(folder) / path.name, kept(path, key))
    oldest_first = sorted(KEPT.glob(f"{path.stem}-*.ipynb"), key=lambda file: file.stat().st_mtime)
    for file in oldest_first[:-MOST_KEPT]:
        file.unlink(missing_ok=True)


def take_kept(path: Path, key: str) -> bool:
    """Take what another clone has executed; whether there was any."""
    if not kept(path, key).exists():
        return False
    executed, key_file = results(path)
    shutil.copy(kept(path, key), executed)
    key_file.write_text(key)
    return True


def execute(anew: bool = False) -> None:
    """Run what has to run, keep what passed, and lay it where Jupyter Book looks; exit with 1 where one failed.

    Args:
        anew: whether to run all of them.
    """
    sources = notebooks()
    keys = {path: notebook_key(path, notebook) for path, notebook in sources.items()}
    EXECUTED.mkdir(parents=True, exist_ok=True)
    stale = [p for p in sources if anew or (has_to_run(p, keys[p]) and not take_kept(p, keys[p]))]
    print(f"{len(sources)} notebooks, {len(stale)} to execute", flush=True)
    environment = surroundings() if stale else {}
    times = json.loads(TIMES.read_text()) if TIMES.exists() else {}

    def run_and_keep(path: Path) -> bool:
        executed, key_file = results(path)
        key_file.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:  # nbmake passes over every path with _build in it
            seconds = run(sources[path], Path(folder) / path.name, environment)
            if seconds is None:
                return False
            shutil.copy(Path(folder) / path.name, executed)
        key_file.write_text(keys[path])
        keep(path, keys[path])
        times[path.stem] = seconds
        return True

    # The longest first, so that none is left running by itself at the end; of an unknown one, its number decides.
    stale.sort(key=lambda path: (times.get(path.stem, math.inf), path.stem), reverse=True)
    together, alone = ([path for path in stale if (path.stem in ALONE) == last] for last in (False, True))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()) as pool:
        passed = dict(zip(together, pool.map(run_and_keep, together), strict=True))
    passed |= {path: run_and_keep(path) for path in alone}
    times = {path.stem: times[path.stem] for path in sources if path.stem in times}
    TIMES.write_text(json.dumps(times, indent=1) + "\n")
    fill_cache(sources, keys)

    if failed := [path.name for path in passed if not passed[path]]:
        sys.exit(f"failed: {', '.join(failed)}. The cell and its error stand above.")


def fill_cache(sources: dict[Path, nbformat.NotebookNode], keys: dict[Path, str]) -> None:
    """Lay each source notebook with its executed twin's outputs into Jupyter Book's cache."""
    shutil.rmtree(CACHE, ignore_errors=True)
    cache = get_cache(CACHE)
    for path, notebook in sources.items():
        if has_to_run(path, keys[path]):
            continue
        executed = nbformat.read(results(path)[0], as_version=4)
        for cell, done in zip(code_cells(notebook), code_cells(executed), strict=True):
            cell.outputs = tidy_streams(done.outputs)
            for output in cell.outputs:
                if output.get("metadata"):  # of figures; book/_ext/figures.py reads it, MyST-NB would make links of it
                    output.metadata.clear()
            cell.execution_count = done.execution_count
        cache.cache_notebook_bundle(CacheBundleIn(notebook, str(path)), check_validity=False, overwrite=True)


def stand_ins(notebook: nbformat.NotebookNode) -> list[str]:
    """What an executed notebook says of data and weights that it lacked."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    said = " ".join("".join(output.text for output in outputs if output.output_type == "stream").split())
    return [words for words in MISSING if words in said]


def jupyter_book(*arguments: str | Path) -> None:
    """Jupyter Book over this repository; exit with 1 where it warns."""
    command = [
        Path(sys.executable).with_name("jupyter-book"),
        "build",
        ".",
        "-W",
        "--keep-going",
        "--quiet",
        *arguments,
    ]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit("the book was not built: each warning above counts as an error.")


def links() -> None:
    """Ask every address outside that a page names."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["execute"]["execute_notebooks"] = "off"
    extensions = config["sphinx"]["local_extensions"]  # their folders count from the file's own
    config["sphinx"]["local_extensions"] = {name: str(ROOT / folder) for name, folder in extensions.items()}
    config["sphinx"]["config"] |= {"linkcheck_retries": 3, "linkcheck_report_timeouts_as_broken": False}
    BUILD.mkdir(exist_ok=True)
    (BUILD / "links.yml").write_text(yaml.safe_dump(config))
    jupyter_book("--builder", "linkcheck", "--config", BUILD / "links.yml", "--path-output", BUILD / "links")


def html() -> None:
    """Build the pages from an empty folder: Sphinx's own memory knows nothing of outputs or of the package."""
    sources = notebooks()
    if stale := [path.name for path in sources if has_to_run(path, notebook_key(path, sources[path]))]:
        sys.exit(f"not executed yet: {', '.join(stale)}. Run `python book/build.py execute` first.")
    if os.environ.get("VIT_TUTORIAL_STRICT", "0") != "0":
        lacking = {path.name: stand_ins(nbformat.read(results(path)[0], as_version=4)) for path in sources}
        if any(lacking.values()):
            sys.exit(f"VIT_TUTORIAL_STRICT is set, and data or weights were missing: {lacking}")
    for folder in ("html", ".doctrees", "jupyter_execute"):
        shutil.rmtree(BUILD / folder, ignore_errors=True)
    cached = len(get_cache(CACHE).list_cache_records())
    jupyter_book()
    if len(get_cache(CACHE).list_cache_records()) != cached:
        sys.exit("Jupyter Book executed a notebook itself instead of taking what nbmake ran.")
    print(f"\nThe book is built. Open\n  {(BUILD / 'html' / 'index.html').as_uri()}")


def slides() -> None:
    """Decks of some chapters, from what Jupyter Book has read for the pages: see book/_ext/slides.py."""
    if not (BUILD / "html/index.html").exists():
        execute()
        html()
    for folder in ("decks", "html/slides"):
        shutil.rmtree(BUILD / folder, ignore_errors=True)
    jupyter_book("--builder", "custom", "--custom-builder", "decks")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = {"execute": execute, "anew": partial(execute, anew=True), "html": html, "slides": slides}
    steps |= {"links": links, "fold": fold_all}
    parser.add_argument("step", choices=steps)
    steps[parser.parse_args().step]()
