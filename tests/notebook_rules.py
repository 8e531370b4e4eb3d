"""What every notebook has to keep to, and what can be read out of one: its exercises and their solutions."""

import ast
import re
import tomllib
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REPOSITORY = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
SLUG = REPOSITORY["url"].removeprefix("https://github.com/")  # OWNER/REPO
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
INSTALL = f"vit-tutorial @ git+https://github.com/{SLUG}@v{VERSION}"  # the package that the notebook was written for

FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*\s*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
HINT = re.compile(r"^<details><summary>Hint</summary>\n\n\S.*?\n\n</details>$", re.MULTILINE | re.DOTALL)
CDN = re.compile(r"\bcdn\.|cdnjs|jsdelivr|unpkg|googleapis\.com/ajax|[\w-]\.cdn\b", re.IGNORECASE)


def badge(name: str) -> str:
    """The address that a notebook's Colab badge has to open."""
    return f"https://colab.research.google.com/github/{SLUG}/blob/{REPOSITORY['branch']}/notebooks/{name}"


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def cells(notebook: nbformat.NotebookNode, kind: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def page(name: str) -> str:
    """The text of a file, named from the repository's root."""
    return (ROOT / name).read_text(encoding="utf-8")


def code_of(stem: str) -> str:
    """All code of a chapter."""
    return "\n".join(cell.source for cell in cells(read(ROOT / f"notebooks/{stem}.ipynb"), "code"))


def tree(source: str) -> ast.Module:
    """A cell's syntax; IPython's magics count as `pass`."""
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE))


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def _draws(node: ast.AST, drawing: set[str]) -> bool:
    """Whether running ``node`` shows a figure. To define a function does not; ``drawing`` keeps its name."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        if isinstance(node, ast.FunctionDef) and any(_draws(child, drawing) for child in node.body):
            drawing.add(node.name)
        return False
    if isinstance(node, ast.Call):
        name = _called(node)
        plots = name.startswith(("plots.", "figures.")) and name not in ("plots.use_style", "plots.table")
        if plots or name in drawing or name in ("model_diagram", "plt.show", "plt.subplots", "plt.figure"):
            return True
    return any(_draws(child, drawing) for child in ast.iter_child_nodes(node))


def without_code(markdown: str) -> str:
    return SPAN.sub("`code`", FENCE.sub("", markdown))


def problems(notebook: nbformat.NotebookNode, name: str, badge: str, install: str) -> list[str]:
    """Every rule that the notebook breaks, one line each.

    Args:
        notebook: to be looked at.
        name: its file's name.
        badge: the address that its Colab badge has to open.
        install: what its set-up cell has to install.
    """
    found = []
    _check_shape(notebook, name, badge, install, found)
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            found += [f"cell {number}: {problem}" for problem in _prose_problems(cell.source)]
    drawing: set[str] = set()
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        if cell.outputs or cell.execution_count is not None:
            found.append(f"cell {number}: has outputs or an execution count; strip them")
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
        drawn = [_draws(node, drawing) for node in tree(cell.source).body]  # all of them: a function may come last
        if any(drawn) and alt is None:
            found.append(f"cell {number}: draws, but has no alt text")
        if alt is not None and (len(alt) < 30 or '"' in alt or not alt.rstrip().endswith(".")):
            found.append(f"cell {number}: alt text is no sentence or holds double quotes: {alt}")
    return found


def _check_shape(notebook: nbformat.NotebookNode, name: str, badge: str, install: str, found: list[str]) -> None:
    if notebook.nbformat < 4 or len({cell.get("id") for cell in notebook.cells}) != len(notebook.cells):
        found.append("cell ids are missing or not unique")
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("the kernel is not python3")
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not re.match(r"# \d+ · ", first.source):
        found.append("cell 0 is no title like `# 1 · An image becomes a sequence`")
    if re.findall(r"\]\((https://colab\.research\.google\.com/github/[^)]*)\)", first.source) != [badge]:
        found.append(f"cell 0 has no Colab badge of its own, for {badge}")
    headings = [line for cell in cells(notebook, "markdown") for line in FENCE.sub("", cell.source).split("\n")]
    if sum(line.startswith("# ") for line in headings) != 1:
        found.append("there is not exactly one title")
    numbers = [int(match[1]) for line in headings if (match := re.match(r"### Exercise (?:\d+\.)?(\d+): \S", line))]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"exercises are numbered {numbers}")
    for cell in cells(notebook, "markdown"):
        for exercise in re.split(r"^(?=### Exercise )", cell.source, flags=re.MULTILINE)[1:]:
            if len(HINT.findall(exercise)) != 1:
                found.append(f"{exercise.splitlines()[0].strip('# ')}: not exactly one folded hint")
    if not any(f'"{install}"' in cell.source for cell in cells(notebook, "code")[:1]):
        found.append(f"the first code cell does not install {install}")


def _prose_problems(source: str) -> list[str]:
    found = []
    if re.search(r"^\s*(`{3,}|~{3,}|:{3,})\s*\{", source, re.MULTILINE) or re.search(r"^:{3,}", source, re.MULTILINE):
        found.append("a MyST directive, which only the book renders")
    prose = without_code(source)
    if re.search(r"\{[a-zA-Z][\w:.+-]*\}`", prose):
        found.append("a MyST role, which only the book renders")
    if re.search(r"^\(\S+\)=\s*$", prose, re.MULTILINE):
        found.append("a MyST label, which only the book renders")
    if re.search(r"<(img|iframe|script|video)\b", prose):
        found.append("raw HTML that does not render everywhere")
    if CDN.search(prose):
        found.append("a CDN's address")
    if any("$$" in line and line.strip() != "$$" for line in prose.split("\n")):
        found.append("`$$` does not stand on a line of its own")
    if prose.count("$$") % 2:
        found.append("`$$` is opened and not closed")
    return found


def exercise_calls(notebook: nbformat.NotebookNode) -> list[tuple[int, str, str]]:
    """Every ``exercise("name", fn)``: the cell's index, the exercise's name, the function's name."""
    return [
        (number, ast.literal_eval(node.args[0]), ast.unparse(node.args[1]))
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code"
        for node in ast.walk(tree(cell.source))
        if isinstance(node, ast.Call) and _called(node) == "exercise"
    ]


def solutions(notebook: nbformat.NotebookNode) -> list[tuple[int, str]]:
    """Every solution: the cell's index and the code."""
    pattern = re.compile(r"<summary>Solution</summary>\s*\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        (number, code)
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "markdown"
        for code in pattern.findall(cell.source)
    ]


def imports(notebook: nbformat.NotebookNode) -> str:
    """The import statements of all code cells that stand outside of functions and conditions."""
    statements = [node for cell in cells(notebook, "code") for node in tree(cell.source).body]
    return "\n".join(ast.unparse(node) for node in statements if isinstance(node, ast.Import | ast.ImportFrom))


def paired(notebook: nbformat.NotebookNode) -> dict[str, tuple[str, str, str]]:
    """Each exercise's function name, stub and solution.

    Raises:
        ValueError: if an exercise has no solution of its own, or a solution no exercise.
    """
    calls, answers = exercise_calls(notebook), solutions(notebook)
    pairs = {}
    for i, (number, name, function) in enumerate(calls):
        until = calls[i + 1][0] if i + 1 < len(calls) else len(notebook.cells)
        own = [code for place, code in answers if number < place < until]
        if len(own) != 1:
            raise ValueError(f"exercise {name!r} has {len(own)} solutions below it, not one")
        if name in pairs:
            raise ValueError(f"exercise {name!r} appears twice")
        pairs[name] = function, notebook.cells[number].source, own[0]
    if len(answers) != len(pairs):
        raise ValueError(f"{len(answers)} solutions for {len(pairs)} exercises")
    return pairs
