"""How a chapter tells: folded cells, claims, captions, cards, and how much stands in a reader's way."""

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from build import fold, title_of
from claiming import anchors, claims_file
from notebook_rules import FENCE, SPAN, cells, tree

# Words on the spine, without folds and exercises; 2,500 elsewhere.
WORDS = {
    "03_attention": 3000,
    "07_recipes": 3000,
    "09_pretrained": 2600,
    "10_what_matters": 3000,
    "12_clinic": 3000,
    "13_modern": 3000,
}
SET_UP, LINES, FOLDED_LINES, CELLS = 30, 20, 150, 90  # of the set-up, any other cell, all folded cells; cells at most
DRAWS = re.compile(  # lines of code that draw, and belong into vit_tutorial/figures/
    r"\b(plt|ax|axes|fig|figure)\.\w+|\.(imshow|add_patch|set_title|annotate|colorbar|text)\(|figsize|linewidth"
)
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
        *_claimed(notebook, stem[3:]),
        *_in_the_way(notebook, WORDS.get(stem, 2500)),
        *_open(notebook),
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


def _claimed(notebook, name):
    """Of `tests/claims/<name>.py`, and of the numbers that nothing there holds."""
    told = " ".join(plain(cell.source) for cell in cells(notebook, "markdown"))
    phrases = []
    for node in ast.walk(ast.parse(claims_file(name).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "claim":
            continue
        if not isinstance(node.args[0], ast.Constant):
            yield f"line {node.lineno} of the claims: a phrase is written out"
        elif node.args[0].value is not None:
            phrases.append(plain(node.args[0].value))
            if phrases[-1] not in told:
                yield f"claims “{phrases[-1]}”, which the text doesn't say"
    if lost := anchors(name) - {cell.id for cell in notebook.cells}:
        yield f"has claims after cells that aren't there: {sorted(lost)}"
    yield from _unclaimed(notebook, " | ".join(phrases))


def _unclaimed(notebook, claimed):
    for number, cell in enumerate(notebook.cells):
        for paragraph in re.split(r"\n\s*\n|\n(?=[-*\d|] ?)", prose_of(cell.source) * (cell.cell_type == "markdown")):
            if "](http" in paragraph:  # told with its source
                continue
            for found in MEASURED.findall(plain(paragraph)):
                if found not in NEVER_MEASURED and not re.search(rf"(?<![\d.,]){re.escape(found)}", claimed):
                    yield f"cell {number}: “{found}” has no claim"


def counted_lines(source):
    """Lines of code that count: no blank ones, no comments."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in source.split("\n"))


def _open(notebook):
    """A chapter is an open notebook: what it tells is done in view, and each section runs by itself."""
    set_up, *rest = cells(notebook, "code")
    lines = {True: 0, False: 0}
    if counted_lines(set_up.source) > SET_UP or any(
        isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree(set_up.source))
    ):
        yield f"the set-up has more than {SET_UP} lines, or defines something"
    for cell in rest:
        lines[is_folded(cell)] += (here := counted_lines(cell.source))
        if here > LINES:
            yield f"{cell.id}: {here} lines, at most {LINES} are wanted"
        if is_folded(cell) and not title_of(cell).startswith("Going deeper"):
            yield f"{cell.id}: only the set-up and what goes deeper is folded"
    drawing = sum(bool(DRAWS.search(line)) for cell in [set_up, *rest] for line in cell.source.split("\n"))
    if lines[False] < 0.6 * sum(lines.values()) or lines[True] > FOLDED_LINES:
        yield f"{lines[False]} lines in view, {lines[True]} folded"
    if drawing > 10 or len(notebook.cells) > CELLS:
        yield f"{drawing} lines draw, at most 10 may; {len(notebook.cells)} cells, at most {CELLS} are wanted"
    yield from _names_from_elsewhere(notebook)


def sections_of(notebook):
    """Each section's code, by its heading, and the headings of those that have to run first."""
    found, title = {"": ([], [])}, ""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            found[title][0].append(cell.source)
            continue
        for line in FENCE.sub("", cell.source).split("\n"):
            if heading := re.match(r"## (\S.*)", line):
                title = heading[1].strip()
                found[title] = ([], [])
            elif line.startswith("*Run first: "):
                found[title][1].extend(re.findall(r"“([^”]+)”", line))
    return found


def _names_from_elsewhere(notebook):
    """What a section uses and neither makes nor gets from the set-up or the sections that its head names."""
    sections = sections_of(notebook)
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, (code, needs)) in enumerate(sections.items()):
            if unknown := set(needs) - set(sections):
                yield f"“{title}” names no such section: {sorted(unknown)}"
            first, todo = {""}, list(needs)
            while todo:
                if (name := todo.pop()) in sections and name not in first:
                    first.add(name)
                    todo += sections[name][1]
            parts = [part for name in sections if name in first for part in sections[name][0]] + (code if title else [])
            text = re.sub(r"^(\s*)[%!].*$", r"\1pass", "\n".join(parts), flags=re.MULTILINE)
            Path(folder, f"{number}.py").write_text(text, encoding="utf-8")
        command = ["-m", "ruff", "check", ".", "--isolated", "--select", "F821", "--output-format", "concise"]
        done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True)
    titles = list(sections)
    for number, name in sorted(set(re.findall(r"^(\d+)\.py:.*Undefined name `(\w+)`", done.stdout, re.MULTILINE))):
        yield f"“{titles[int(number)]}” needs {name}, which neither it nor a section that it names makes"


def _in_the_way(notebook, limit):
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
