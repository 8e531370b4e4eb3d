"""The two steps behind `make book` and `make test`: run the notebooks, render what they gave.

    python book/build.py execute     nbmake over every notebook that has to run, as many at a time as there are cores
    python book/build.py anew        the same over all of them, whatever earlier runs have left
    python book/build.py html        Jupyter Book from those results, warnings as errors
    python book/build.py slides      decks of six chapters beside the pages, which are built first if they're missing
    python book/build.py fold        fold every cell that begins with `# @title`, everywhere that notebooks are shown

`execute 05_model` runs this chapter only. A notebook is executed once: what nbmake ran is what the book renders. It
runs again when its code has changed, a module of vit_tutorial/ that it imports, directly or through others, a
VIT_TUTORIAL_ variable, which data are there, Python, torch or the kind of processor. Prose, alt texts and other
chapters' exercises may change at no cost. What passed is kept beside the data sets, for other clones, too.
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from pathlib import Path

import grimp
import nbformat
import torch
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

from vit_tutorial.data.load import cache_root, data_root

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))
import claiming  # noqa: E402 what the prose says, held to what was computed

BUILD = ROOT / "_build"
EXECUTED = BUILD / "executed"  # a copy of each chapter's outputs, for the pages
KEPT = cache_root() / "executed"  # what passed, by chapter and key
MOST_KEPT = 8  # of a chapter: those used last
CACHE = BUILD / ".jupyter_cache"  # what Jupyter Book reads; made anew each time
SLOW = 90  # seconds of one notebook that bring a warning: a clock fails no test, since machines differ
# What every kernel has instead of the user's settings: figures are SVGs with letters as text, and images in them sharp
# on a screen whose pixels are finer than the page's. A reader's system may lack the first font; the next is as wide.
KERNEL = """c = get_config()
c.InlineBackend.figure_formats = {"svg"}
c.InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "dpi": 192}
"""
MATPLOTLIB = """svg.fonttype: none
svg.hashsalt: book
image.composite_image: False
font.sans-serif: DejaVu Sans, Verdana, sans-serif
"""
MISSING = ("Going on with '", "The published weights aren't here")
NAMES = "vit_tutorial.exercises.contents"  # of all chapters' exercises: a new one changes no other chapter
ALONE = ("11_speed",)  # measures seconds, and runs when all the others are done


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def title_of(cell: nbformat.NotebookNode) -> str:
    """What a folded cell says of itself in its first line; "" if it is not to be folded."""
    found = re.match(r"# @title (\S.*)", cell.source) if cell.cell_type == "code" else None
    return found[1].strip() if found else ""


def fold(title: str) -> dict:
    """The metadata of a cell that is folded in the book, in JupyterLab and in Colab.

    Of what goes deeper, the page folds the output, too; where it may fail, it stands in view.
    """
    deeper = title.startswith("Going deeper")
    return {
        "cellView": "form",
        "jupyter": {"source_hidden": True},
        "mystnb": {"code_prompt_show": title, "code_prompt_hide": title},
        "tags": ["hide-cell" if deeper else "hide-input"],
    }


def fold_all() -> None:
    """Fold what begins with a title, in all notebooks."""
    for path, notebook in notebooks().items():
        before = copy.deepcopy(notebook)
        for cell in filter(title_of, notebook.cells):
            for key, value in fold(title_of(cell)).items():
                cell.metadata[key] = cell.metadata.get(key, {}) | value if isinstance(value, dict) else value
        if notebook != before:
            nbformat.write(notebook, path)


def imported_by(stem: str, code: str) -> set[str]:
    """What a notebook imports: modules, and names that may be modules."""
    names = set()
    for node in ast.walk(ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.MULTILINE))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    if re.search(r"\bexercise\(", code):  # the engine loads the chapter's exercises by name
        names.add(f"vit_tutorial.exercises.{stem.partition('_')[2]}")
    if re.search(r"""["']-m["'],\s*["']vit_tutorial["']""", code):  # the command, in a process of its own
        names.add("vit_tutorial.__main__")
    return names


def files_behind(stem: str, code: str) -> set[Path]:
    """The files of the package on which a notebook's outputs depend: modules and recorded runs."""
    graph, behind = grimp.build_graph("vit_tutorial", cache_dir=None), set()
    try:
        todo = imported_by(stem, code)
    except SyntaxError:  # the notebook has to run, to show where
        todo = set(graph.modules)
    while todo:
        name = todo.pop()
        if name in graph.modules and name not in behind | {NAMES}:
            behind.add(name)
            todo |= {name.rpartition(".")[0], *graph.find_modules_directly_imported_by(name)}
    paths = [ROOT.joinpath(*name.split(".")) for name in behind]
    files = {path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths}
    if "vit_tutorial.runs" in behind:  # nothing else opens these
        files |= {path for path in (ROOT / "vit_tutorial/recorded").rglob("*") if path.is_file()}
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
    digest = hashlib.sha256(json.dumps([settings, machine(), KERNEL, MATPLOTLIB, cells], sort_keys=True).encode())
    files = files_behind(path.stem, "\n".join(source for source, _ in cells))
    if (claims := claiming.claims_file(path.stem[3:])).exists():
        files |= {claims}
    for file in sorted(files):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"\0{file.relative_to(ROOT).as_posix()}\0{content}".encode())
    return digest.hexdigest()


def notebooks() -> dict[Path, nbformat.NotebookNode]:
    return {path: nbformat.read(path, as_version=4) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def kept(path: Path, key: str) -> Path:
    """Where an executed notebook is kept."""
    return KEPT / f"{path.stem}-{key[:32]}.ipynb"


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
    """The environment of the kernels: no setting of the user's reaches them.

    They download nothing: ``make executed`` has fetched what can be had.
    Matplotlib lists its fonts once, before the first figure: a list found in the user's home may lack some, and the
    page would show the warning.
    """
    ipython, matplotlib = BUILD / "ipython", BUILD / "matplotlib"
    for folder, file, settings in (
        (ipython, "profile_default/ipython_kernel_config.py", KERNEL),
        (matplotlib, "matplotlibrc", MATPLOTLIB),
    ):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text(settings)
    if os.environ.get("VIT_TUTORIAL_ROUNDING"):
        startup = ipython / "profile_default/startup"
        startup.mkdir()
        shutil.copy(ROOT / "book/rounding.py", startup)
    theirs = {"OMP_NUM_THREADS": "1", "IPYTHONDIR": str(ipython), "MPLCONFIGDIR": str(matplotlib)}
    theirs |= {"VIT_TUTORIAL_DOWNLOAD": "0"}
    kept = {key: value for key, value in os.environ.items() if key not in ("MPLBACKEND", "MATPLOTLIBRC")}
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=kept | theirs, check=True)
    return kept | theirs | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def run(notebook: nbformat.NotebookNode, path: Path, environment: dict[str, str]) -> bool:
    """Run nbmake over the notebook in ``path``, with its claims, and leave it there with outputs and without claims.

    Returns:
        whether it passed.
    """
    notebook = copy.deepcopy(notebook)
    claiming.inject(notebook, path.stem[3:])
    nbformat.write(notebook, path)
    command = ["-m", "pytest", path, "--nbmake", "--overwrite", "--nbmake-timeout=600", "--quiet", "--no-header"]
    command += ["-c", ROOT / "pyproject.toml", "-p", "no:cacheprovider", "--color=yes"]
    start = time.monotonic()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - start
    notebook = nbformat.read(path, as_version=4)
    claiming.strip(notebook)
    nbformat.write(notebook, path)
    if done.returncode:
        print(f"  {path.stem:20} FAILED\n{done.stdout}{done.stderr}", flush=True)
    else:
        print(f"  {path.stem:20} {seconds:6.1f} s" + f"   WARNING: over {SLOW} s" * (seconds > SLOW), flush=True)
    return done.returncode == 0


def execute(anew: bool = False, chapters: Sequence[str] = ()) -> None:
    """Run what has to run, and keep what passed; exit with 1 where one failed.

    Args:
        anew: whether to run even those that have passed.
        chapters: those that may run, by file or stem; all if there are none.
    """
    sources, chapters = notebooks(), {Path(chapter).stem for chapter in chapters}
    if unknown := chapters - {path.stem for path in sources}:
        sys.exit(f"no such chapter: {', '.join(sorted(unknown))}; there are {', '.join(p.stem for p in sources)}")
    places = {path: kept(path, notebook_key(path, notebook)) for path, notebook in sources.items()}
    stale = [path for path in sources if anew or not places[path].exists()]
    stale = [path for path in stale if not chapters or path.stem in chapters]
    print(f"{len(sources)} notebooks, {len(stale)} to execute", flush=True)
    environment = surroundings() if stale else {}
    KEPT.mkdir(parents=True, exist_ok=True)

    def run_and_keep(path: Path) -> bool:
        """Whether it passed; what passed is kept whole or not at all."""
        places[path].unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            if passed := run(sources[path], Path(folder) / path.name, environment):
                os.replace(Path(folder) / path.name, places[path])
        for file in sorted(KEPT.glob(f"{path.stem}-*.ipynb"), key=lambda file: file.stat().st_mtime)[:-MOST_KEPT]:
            file.unlink(missing_ok=True)
        return passed

    # The last come first: they take longest, and none is left running by itself at the end.
    together, alone = ([path for path in stale[::-1] if (path.stem in ALONE) == last] for last in (False, True))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()) as pool:
        passed = dict(zip(together, pool.map(run_and_keep, together), strict=True))
    passed |= {path: run_and_keep(path) for path in alone}
    if failed := [path.name for path in passed if not passed[path]]:
        sys.exit(f"failed: {', '.join(failed)}. The cell and its error stand above.")


def fill_cache() -> dict[str, nbformat.NotebookNode]:
    """Lay each notebook, with what its run gave, into Jupyter Book's cache; the executed notebooks by their stems."""
    sources = notebooks()
    places = {path: kept(path, notebook_key(path, notebook)) for path, notebook in sources.items()}
    if stale := [path.name for path in sources if not places[path].exists()]:
        sys.exit(f"not executed yet: {', '.join(stale)}. Run `python book/build.py execute` first.")
    for folder in (CACHE, EXECUTED):
        shutil.rmtree(folder, ignore_errors=True)
    EXECUTED.mkdir(parents=True)
    cache, twins = get_cache(CACHE), {}
    for path, notebook in sources.items():
        places[path].touch()
        twin = twins[path.stem] = nbformat.read(shutil.copy(places[path], EXECUTED / path.name), as_version=4)
        for cell, done in zip(code_cells(notebook), code_cells(twin), strict=True):
            cell.outputs = tidy_streams(copy.deepcopy(done.outputs))
            cell.execution_count = done.execution_count
        cache.cache_notebook_bundle(CacheBundleIn(notebook, str(path)), check_validity=False, overwrite=True)
    return twins


def stand_ins(notebook: nbformat.NotebookNode) -> list[str]:
    """What an executed notebook says of data and weights that it lacked."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    said = " ".join("".join(output.text for output in outputs if output.output_type == "stream").split())
    return [words for words in MISSING if words in said]


def jupyter_book(*options: str) -> None:
    """Jupyter Book over this repository; exit with 1 where it warns."""
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-W", "--keep-going", "--quiet", *options]
    if subprocess.run(command, cwd=ROOT).returncode:
        sys.exit("the book was not built: each warning above counts as an error.")


def html() -> None:
    """Build the pages from an empty folder: Sphinx's own memory knows nothing of outputs or of the package."""
    executed = fill_cache()
    if os.environ.get("VIT_TUTORIAL_STRICT", "0") != "0":
        lacking = {stem: words for stem, notebook in executed.items() if (words := stand_ins(notebook))}
        if lacking:
            sys.exit(f"VIT_TUTORIAL_STRICT is set, and data or weights were missing: {lacking}")
    for folder in ("html", ".doctrees", "jupyter_execute"):
        shutil.rmtree(BUILD / folder, ignore_errors=True)
    jupyter_book()
    if len(get_cache(CACHE).list_cache_records()) != len(executed):
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
    parser.add_argument("step", choices=["execute", "anew", "html", "slides", "fold"])
    parser.add_argument("chapters", nargs="*", help="such as 05_model: for execute and anew")
    given = parser.parse_args()
    if given.step in ("execute", "anew"):
        execute(given.step == "anew", given.chapters)
    else:
        {"html": html, "slides": slides, "fold": fold_all}[given.step]()
