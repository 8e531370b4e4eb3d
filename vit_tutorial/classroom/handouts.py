"""A chapter to hand out: without solutions and answers, and with a last cell that hands in."""

import ast
import difflib
import json
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vit_tutorial.borders import write_whole
from vit_tutorial.classroom.answers import parse, read_cell
from vit_tutorial.exercises.contents import CHAPTERS

PLACES = [Path(__file__).resolve().parents[i] / "notebooks" for i in (1, 2)]  # of a wheel, and of a clone
FOLDED = re.compile(r"<details><summary>(?:Solution|Answers)</summary>.*?</details>\n*", re.DOTALL)
SOLUTION = re.compile(r"<summary>Solution</summary>\s*\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXERCISE = re.compile(r"""\bexercise\(\s*["'](\w+)["']""")
BADGE = re.compile(
    r"\[!\[Open In Colab\]\([^)]*\)\]\([^)]*/github/(?P<book>[^)]*)/notebooks/(?P<name>\w+\.ipynb)\)(?: · )?"
)
LINK = re.compile(r"\]\((?!\w+:)(?P<file>[\w./-]+\.(?:ipynb|md))(?P<anchor>#[^)\s]*)?\)")
GITHUB = re.compile(r"https://github\.com/(?P<slug>[^/]+/[^/]+)/(?:blob|tree)/(?P<rest>.+?)/?")

NAME = '# @title Your name or number\nSTUDENT = ""  # @param {type:"string"}'
# A wrong answer must not stop the notebook: the cells below would never run, and not be handed in.
STOPS, GOES_ON = (f"from vit_tutorial.{room} import exercise" for room in ("exercises", "classroom"))
AI = "\n\nIn Colab, hide the built-in AI while you solve the exercises: *Tools → Settings → AI Assistance*."
LAST = """## Hand in

Run all cells above first. `classroom.progress()` shows what's done and what's next, as often as you like. \
`classroom.hand_in()` checks your functions once more and writes them into one small file. Hand that in; nothing is \
sent anywhere."""
PROGRESS = "from vit_tutorial import classroom  # whatever a chapter calls its own functions\n\nclassroom.progress()"
HAND_IN = "classroom.hand_in()"


def chosen_chapters(chapters: str = "") -> list[str]:
    """The stems of chapters such as "1-3,8", like ``01_patches``; all of them for "".

    Raises:
        ValueError: if that names no chapters.
    """
    stems, numbers = [f"{number:02}_{name}" for number, name in enumerate(CHAPTERS, 1)], set()
    for part in chapters.split(",") if chapters else [f"1-{len(stems)}"]:
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= first <= last <= len(stems):
            raise ValueError(f"chapters are numbers from 1 to {len(stems)}, as in 1-3,8; got {chapters!r}")
        numbers |= set(range(first, last + 1))
    return [stems[number - 1] for number in sorted(numbers)]


def book_folder() -> Path:
    """Where the chapters lie.

    Raises:
        ValueError: if they aren't there.
    """
    if found := next((place for place in PLACES if (place / "01_patches.ipynb").is_file()), None):
        return found
    raise ValueError(
        f"the chapters are neither in {PLACES[0]} nor in {PLACES[1]}, and hand-outs and grading need them: "
        "install the package as a whole, or run this in a clone of the repository"
    )


def refuse_unknown(points: Iterable[str], own: Iterable[str] = ()) -> None:
    """Raise a ValueError if a name in ``points`` isn't an exercise of the book or of the teacher's ``own``."""
    known = [*(name for names in CHAPTERS.values() for name in names), *own]
    for name in points:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"is {near[0]} meant? " if near else ""
            raise ValueError(f"there are points for {name}, and no such exercise: {meant}--exercises names your own")


def chapter_cells(path: Path) -> list[tuple[str, str]]:
    """(kind, text) of a chapter's code, without its exercises: what an answer may lean on."""
    cells = map(read_cell, json.loads(path.read_text(encoding="utf-8"))["cells"])
    return [(kind, text) for kind, text in cells if kind == "code" and not EXERCISE.search(text)]


def write_handouts(
    out: str | Path,
    chapters: str = "",
    points: Mapping[str, float] | None = None,
    url: str = "",
    own: Iterable[str] = (),
) -> list:
    """Write hand-outs of chapters into a folder.

    Args:
        out: the folder.
        chapters: such as "1-3,8"; all of them for "".
        points: of each exercise, to be shown in its card.
        url: the folder on GitHub where they will lie; the Colab badges open them there. Without it there are no badges.
        own: names of the teacher's own exercises, which ``points`` may name, too.

    Returns:
        The files.

    Raises:
        ValueError: if a chapter isn't there, ``url`` isn't a folder on GitHub, or ``points`` names what isn't an
            exercise.
    """
    book = book_folder()
    if (out := Path(out)).resolve() == book:
        raise ValueError(f"{out} holds the chapters themselves: choose another folder")
    refuse_unknown(points or (), own)
    made, stems = {}, chosen_chapters(chapters)
    for stem in stems:
        notebook = json.loads((book / f"{stem}.ipynb").read_text(encoding="utf-8"))
        notebook["cells"] = handout(notebook["cells"], stem, points or {}, url, stems)
        made[out / f"{stem}.ipynb"] = json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    for file, text in made.items():
        write_whole(file, text.encode())
    return list(made)


def handout(
    cells: list[dict], stem: str, points: Mapping[str, float], url: str, stems: Sequence[str] = ()
) -> list[dict]:
    """The cells of a chapter without its solutions, its answers and what would give them away.

    Args:
        cells: the chapter's.
        stem: the chapter's, such as "01_patches".
        points: of each exercise.
        url: where the copy will lie.
        stems: of the chapters that are handed out, so that links to them lead to the copies.
    """
    texts = [read_cell(cell)[1] for cell in cells]
    link = _links(texts[0], stems, url)
    names = [found[1] if (found := EXERCISE.search(text)) else "" for text in texts]
    secrets: dict[str, set[str]] = {}  # of the exercises above
    made = []
    for i, (cell, text) in enumerate(zip(cells, texts, strict=True)):
        if cell["cell_type"] == "markdown":
            task = next((name for name in names[i:] if name), "")
            text = LINK.sub(link, FOLDED.sub("", text).rstrip())
            if "### Exercise" in text and task in points:
                text = re.sub(r"(> \*\*Exercise\.\*\* [^.]*?minutes)", rf"\1 · {_points(points[task])}", text)
            if i == 0:
                text = BADGE.sub(_badge(url), text) + AI
        elif STOPS in text:
            text = text.replace(STOPS, GOES_ON)
        elif names[i]:
            solutions = (found[1] for below in texts[i:] if (found := SOLUTION.search(below)))
            secrets[names[i]] = _pieces(next(solutions, ""))
        else:
            above = [n for n, pieces in secrets.items() if any(piece in _plain(text) for piece in pieces)]
            if gives_away := [*cell["metadata"].get("gives_away", ()), *above]:  # the cell names those below itself
                text = _by_name(stem, cell["id"], text, gives_away)
        if text:
            made.append({**cell, "source": text.splitlines(keepends=True)})
    return [
        made[0],
        _new("name", NAME),
        *made[1:],
        _new("last", LAST, "markdown"),
        _new("progress", PROGRESS),
        _new("hand-in", HAND_IN),
    ]


def _new(name: str, text: str, kind: str = "code") -> dict:
    cell = {"cell_type": kind, "id": f"handout-{name}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


def _points(number: float) -> str:
    return f"{number:g} point{'' if number == 1 else 's'}"


def _badge(url: str) -> str | Callable[[re.Match], str]:
    """What takes a badge's place."""
    if not url:
        return ""
    picture = "[![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    return lambda found: f"{picture}({_colab(url)}/{found['name']}) · "


def _colab(url: str) -> str:
    """What opens notebooks in a folder on GitHub."""
    if not (where := GITHUB.fullmatch(url)):
        raise ValueError(f"--url wants a folder such as https://github.com/ME/COURSE/blob/main/handouts, got {url!r}")
    return (
        f"https://colab.research.google.com/github/{where['slug']}/blob/{urllib.parse.quote(where['rest'], safe='/%')}"
    )


def _links(first: str, stems: Sequence[str], url: str) -> Callable[[re.Match], str]:
    """What takes a link's place: chapters that are handed out link to each other, all else leads to the book's source.

    Args:
        first: the chapter's first cell, whose badge knows the book's address.
        stems: of the chapters that are handed out.
        url: where they will lie.
    """
    book = badge["book"] if (badge := BADGE.search(first)) else None

    def link(found: re.Match) -> str:
        file = found["file"]
        if file.removesuffix(".ipynb") in stems:
            address = f"{_colab(url)}/{file}" if url else file
        elif book is None:
            return found[0]
        else:
            address = f"https://github.com/{book}/{posixpath.normpath(f'notebooks/{file}')}"
        return f"]({address}{found['anchor'] or ''})"

    return link


def _plain(code: str) -> str:
    """Code without its layout, so that it can be compared."""
    with suppress(ValueError):
        code = ast.unparse(ast.Module(parse(code), []))
    return re.sub(r"\s", "", code)


def _pieces(solution: str) -> set[str]:
    """What would give a solution away: its longer statements, results and strings."""
    nodes = list(ast.walk(ast.parse(solution)))
    statements = [node for node in nodes if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef)]
    statements += [node.value for node in nodes if isinstance(node, ast.Assign | ast.Return) and node.value]
    long = {plain for node in statements if len(plain := _plain(ast.unparse(node))) >= 22}
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return long | {plain for text in strings if len(plain := re.sub(r"\s", "", text)) >= 12}


def _by_name(stem: str, cell: str, code: str, names: list[str]) -> str:
    """What stands for a cell that would give answers away: a call that runs the installed book's."""
    title = "" if not code.startswith("# @title") else code.split("\n")[0] + "\n"
    note = f"# The book's cell would give {' and '.join(names)} away. It runs, and is shown when your answer is right."
    call = f"book_cell({json.dumps(stem)}, {json.dumps(cell)}, {json.dumps(names)})"
    return f"{title}{note}\nfrom vit_tutorial.classroom import book_cell\n\n{call}"
