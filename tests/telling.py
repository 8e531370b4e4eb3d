"""How a chapter tells: folded cells, claims, captions, cards, and how much stands in a reader's way."""

import ast
import re

import nbformat
from build import fold, title_of
from notebook_rules import FENCE, SPAN, cells, tree

# Words on the spine, without folds and exercises; 2,500 elsewhere.
WORDS = {"03_attention": 3000, "07_recipes": 3000, "10_what_matters": 3000, "12_clinic": 3000}
IMPORTS = 3  # lines in view


def plumbing_and_longest(stem: str) -> tuple[float, int]:
    """Fraction of the code in view, and lines of a cell in view: chapters that train and measure may show more."""
    return (0.10, 25) if stem < "06" else (0.15, 30)


FOLDED = re.compile(r"<details.*?</details>", re.DOTALL)
TASK = re.compile(r"^> \*\*Exercise\.\*\*.*(?:\n>.*)*", re.MULTILINE)
ASIDE = re.compile(r"(?:(?<=^)|(?<=[.!?:] )|(?<=\n))\([A-Z][^()]{12,}[.!?]\)")
MATHS = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
UNITS = r"%|per ?cent\b|(?:percentage )?points?\b|×(?!\s*\d)|[mµ]s\b|[kMG]B\b"
UNITS += r"|times (?:as|more|less|faster|slower|smaller|larger)\b"
MEASURED = re.compile(rf"(?<![\w.,/-])\d[\d,]*(?:\.\d+)?[ \u00a0\u202f]?(?:{UNITS})")
NEVER_MEASURED = {"95 %", "100 %"}  # of an interval, and all
EXERCISE = re.compile(
    r"^### Exercise (\d+)\.(\d+): \S.*\n\n> \*\*Exercise\.\*\* (?:★☆☆|★★☆|★★★) · \d+ minutes\. ", re.MULTILINE
)
DRAWING = re.compile(r"\b(plt|ax|axes|fig)\.|\bplots\.|\.(imshow|legend|set_\w+)\(|figsize|linewidth")


def is_folded(cell: nbformat.NotebookNode) -> bool:
    return title_of(cell) != ""


def plain(text: str) -> str:
    """Prose as a reader sees it: no emphasis, no tags, all blanks alike."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"<[^>]+>", "", text))
    return re.sub(r"\s+", " ", text.replace("*", "").replace("\\%", "%"))


def prose_of(source: str) -> str:
    """Markdown without code and maths."""
    return MATHS.sub(" ", SPAN.sub(" ", FENCE.sub("", source)))


def telling_problems(notebook: nbformat.NotebookNode, stem: str) -> list[str]:
    """Every rule of a well-told chapter that the notebook breaks, one line each."""
    return [
        *_folding(notebook),
        *_headings(notebook),
        *_captions(notebook, int(stem[:2])),
        *_cards(notebook, int(stem[:2])),
        *_claims(notebook),
        *_in_the_way(notebook, WORDS.get(stem, 2500), *plumbing_and_longest(stem)),
    ]


def _folding(notebook):
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        if title := title_of(cell):
            want = fold(title)
            have = {key: cell.metadata.get(key) for key in want}
            have["mystnb"] = {key: cell.metadata.get("mystnb", {}).get(key) for key in want["mystnb"]}
            if have != want:
                yield f"cell {number}: is not folded everywhere; run `python book/build.py fold`"
        elif any(tag.startswith(("hide", "remove")) for tag in cell.metadata.get("tags", [])):
            yield f"cell {number}: is hidden, but does not begin with `# @title …`"
        for node in ast.walk(tree(cell.source)):
            if isinstance(node, ast.Assert):
                yield f"cell {number}: asserts, which stops a reader who has changed a number; claim it"
            padded = isinstance(node, ast.FormattedValue) and node.format_spec is not None
            if padded and re.search(r"[<>^]", ast.unparse(node.format_spec)):
                yield f"cell {number}: pads what it prints; show a `plots.table`"
    if not is_folded(cells(notebook, "code")[0]):
        yield "the set-up cell is not folded"


def _headings(notebook):
    before = 1
    for cell in cells(notebook, "markdown"):
        for line in FENCE.sub("", cell.source).split("\n"):
            if level := re.match(r"(#+) \S", line):
                depth = len(level[1])
                if depth > before + 1 or depth > 3:
                    yield f"heading out of order: {line}"
                before = depth


def _captions(notebook, chapter):
    count = 0
    for number, cell in enumerate(notebook.cells):
        shown = "hide-cell" not in cell.metadata.get("tags", [])
        if not shown or not cell.metadata.get("mystnb", {}).get("image", {}).get("alt"):
            continue
        count += 1
        below = notebook.cells[number + 1].source if number + 1 < len(notebook.cells) else ""
        if not re.match(rf"\*\*Figure {chapter}\.{count}\.\*\* \S", below):
            yield f"cell {number}: draws, but the next cell does not begin with **Figure {chapter}.{count}.**"


def _cards(notebook, chapter):
    text = "\n\n".join(cell.source for cell in cells(notebook, "markdown"))
    numbers = [(int(major), int(minor)) for major, minor in EXERCISE.findall(text)]
    if numbers != [(chapter, i) for i in range(1, len(numbers) + 1)] or len(numbers) != text.count("### Exercise "):
        yield f"exercises must be `### Exercise {chapter}.k: …` and `> **Exercise.** ★☆☆ · 5 minutes. …`: {numbers}"
    if (predict := len(re.findall(r"^> \*\*Predict\.\*\* ", text, re.MULTILINE))) < 3:
        yield f"{predict} Predict cards, at least 3 are wanted"
    if "## Recap" not in text:
        yield "there is no recap"


def claims_of(notebook: nbformat.NotebookNode) -> list[tuple[int, str]]:
    """Every ``claim("phrase", …)``: the cell's index and the phrase. ``claim(None, …)`` quotes nothing.

    Raises:
        ValueError: if a phrase is not written out, or a claim is not in a folded cell.
    """
    found = []
    for number, cell in enumerate(notebook.cells):
        for node in ast.walk(tree(cell.source)) if cell.cell_type == "code" else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "claim":
                if not isinstance(node.args[0], ast.Constant) or not is_folded(cell):
                    raise ValueError(f"cell {number}: a claim's phrase is written out, in a folded cell")
                if node.args[0].value is not None:
                    found.append((number, plain(node.args[0].value)))
    return found


def _claims(notebook):
    claims = claims_of(notebook)
    for number, phrase in claims:
        above = " ".join(plain(cell.source) for cell in notebook.cells[:number] if cell.cell_type == "markdown")
        if phrase not in above:
            yield f"cell {number}: claims “{phrase}”, which the text above does not say"
    claimed = " | ".join(phrase for _, phrase in claims)
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "markdown":
            continue
        for paragraph in re.split(r"\n\s*\n|\n(?=[-*\d|] ?)", prose_of(cell.source)):
            if "](http" in paragraph:  # told with its source
                continue
            for found in MEASURED.findall(plain(paragraph)):
                if found not in NEVER_MEASURED and not re.search(rf"(?<![\d.,]){re.escape(found)}", claimed):
                    yield f"cell {number}: “{found}” has no claim"


def _in_the_way(notebook, limit, most_plumbing, longest):
    words, asides = 0, 0
    for cell in cells(notebook, "markdown"):
        spine = prose_of(TASK.sub(" ", FOLDED.sub(" ", cell.source)))
        spine = re.sub(r"^#+ .*$|^[ \t]*\|.*$", " ", spine, flags=re.MULTILINE)
        spine = re.sub(r"<[^>]+>|!?\[([^\]]*)\]\([^)]*\)", r"\1", spine)
        words += len(re.findall(r"\w[\w’'-]*", spine))
        asides += len(ASIDE.findall(spine))
    if words > limit:
        yield f"{words} words on the spine, at most {limit} are wanted"
    if asides > 0.0005 * words:
        yield f"{asides} sentences in brackets in {words} words"
    lines = imports = plumbing = 0
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or is_folded(cell):
            continue
        text = cell.source.splitlines()
        counted = {i for i, line in enumerate(text, 1) if line.strip() and not line.strip().startswith("#")}
        if len(counted) > longest:
            yield f"cell {number}: {len(counted)} lines in view, at most {longest} are wanted"
        imported, plumbed = set(), set()
        for node in ast.walk(tree(cell.source)):
            if isinstance(node, ast.stmt):
                span = set(range(node.lineno, node.end_lineno + 1))
                if isinstance(node, ast.Import | ast.ImportFrom):
                    imported |= span
                elif isinstance(node, ast.Assert) or (
                    _simple(node) and _is_plumbing("\n".join(text[node.lineno - 1 : node.end_lineno]))
                ):
                    plumbed |= span
        lines, imports, plumbing = (
            lines + len(counted),
            imports + len(counted & imported),
            plumbing + len(counted & (imported | plumbed)),
        )
    if imports > IMPORTS:
        yield f"{imports} import lines in view, at most {IMPORTS} are wanted"
    if plumbing > most_plumbing * lines:
        yield f"{plumbing} of {lines} lines in view import, print, assert or draw; {most_plumbing:.0%} may"


def _simple(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Return)


def _is_plumbing(code: str) -> bool:
    return code.lstrip().startswith("print(") or "assert_close(" in code or DRAWING.search(code) is not None
