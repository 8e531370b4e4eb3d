"""Pages for a class and for each of its students."""

import html
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vit_tutorial.borders import write_whole
from vit_tutorial.classroom.grading import Grade
from vit_tutorial.classroom.similarity import alike

STOPPED = "broken or stopped"  # what isn't one of the other statuses
COLOURS = {"right": "#009E73", "wrong": "#D55E00", STOPPED: "#CC79A7", "not attempted": "#999999", "missing": "#dddddd"}
# What a teacher has to look at, in this order; it costs points that the answer may deserve.
ODD = ("unreadable", "refused", "crashed", "broken", "time", "memory", "output")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse }}
td, th {{ text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0 }}
th {{ white-space: nowrap }}
th button {{ all: unset; cursor: pointer }} th button:focus-visible {{ outline: 2px solid }}
th button::after {{ content: " ↕"; color: #767676 }}
[aria-sort=ascending] button::after {{ content: " ↑" }} [aria-sort=descending] button::after {{ content: " ↓" }}
h1, h2, p {{ overflow-wrap: anywhere }}
td {{ overflow-wrap: anywhere; min-width: 6rem; max-width: 28rem }} td.number {{ white-space: nowrap }}
tr {{ border-bottom: 1px solid #ccc }} pre {{ background: #f4f4f4; padding: .8rem; overflow-x: auto }}
.figure {{ overflow-x: auto }} svg {{ width: 100%; min-width: 34rem; height: auto }}
@media (max-width: 40rem) {{
  thead {{ display: none }}
  table, tbody, tr {{ display: block }} tr {{ padding: .3rem 0 }}
  td {{ padding: 0 }} td, td.number {{ display: inline; white-space: normal; overflow-wrap: anywhere }}
  td:first-child {{ display: block; font-weight: 600 }} td:nth-child(n+3)::before {{ content: "· " }}
}}
</style></head><body><main>
<h1>{title}</h1>
{body}
</main>{script}</body></html>
"""
# The tables are in a good order without it; with it, each column's heading sorts.
SCRIPT = """<script>
for (const table of document.querySelectorAll("table"))
  table.querySelectorAll("th").forEach((head, i) => {
    const button = document.createElement("button")
    button.append(...head.childNodes)
    head.append(button)
    button.onclick = () => {
      const up = head.getAttribute("aria-sort") !== "ascending"
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"))
      head.setAttribute("aria-sort", up ? "ascending" : "descending")
      const order = (one, other) => {
        const [a, b] = [one, other].map((row) => row.cells[i].textContent)
        return parseFloat(a) - parseFloat(b) || a.localeCompare(b)
      }
      const rows = [...table.tBodies[0].rows].sort(order)
      table.tBodies[0].append(...(up ? rows : rows.reverse()))
    }
  })
</script>"""


def write_reports(folder: str | Path, grades: Sequence[Grade]) -> Path:
    """Write a page for each student, and one of the whole class.

    Returns:
        The page of the class.
    """
    folder = Path(folder)
    (folder / "students").mkdir(parents=True, exist_ok=True)
    by_student: dict[str, list[Grade]] = {}
    for grade in grades:
        by_student.setdefault(grade.student, []).append(grade)
    links = {}
    for number, (student, own) in enumerate(by_student.items(), 1):
        links[student] = f"students/{number:03}-{re.sub(r'[^-.a-zA-Z0-9]+', '-', student)[:60]}.html"
        write_whole(folder / links[student], _bytes(_student_page(student, own)))
    page = folder / "class.html"
    write_whole(page, _bytes(_class_page(by_student, grades, links)))
    return page


def _bytes(page: str) -> bytes:
    return page.encode(errors="backslashreplace")  # a name may hold what is no text


def _page(title: str, *parts: str) -> str:
    return PAGE.format(title=html.escape(title), body="\n".join(parts), script=SCRIPT)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Cells are text, numbers, or tuples of text and a link."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    body = "\n".join("<tr>" + " ".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _cell(cell: object) -> str:
    if isinstance(cell, tuple):
        return f'<td><a href="{html.escape(cell[1])}">{html.escape(cell[0])}</a></td>'
    number = re.match(r"[\d.]+( of [\d.]+|%| ×|)$", text := f"{cell:g}" if isinstance(cell, float) else str(cell))
    return f"<td{' class=number' if number else ''}>{html.escape(text)}</td>"


def _student_page(student: str, grades: Sequence[Grade]) -> str:
    points, worth = sum(each.points for each in grades), sum(each.worth for each in grades)
    rows = [(each.exercise, f"{each.points:g} of {each.worth:g}", each.status) for each in grades]
    parts = [f"<p>Points: {points:g} of {worth:g}. {_counted(grades)}</p>"]
    parts.append(_table(("exercise", "points", "status"), rows))
    for each in grades:
        if each.hint or (each.source and each.status != "not attempted"):
            parts.append(f"<h2>{html.escape(each.exercise)}: {each.status}</h2>\n<p>{html.escape(each.hint)}</p>")
            parts.append(f"<p>Found in {html.escape(each.path)}</p>\n<pre>{html.escape(each.source)}</pre>")
    return _page(student, *parts)


def _counted(grades: Sequence[Grade]) -> str:
    counted = Counter(each.status for each in grades)
    ordered = ("right", "wrong", *ODD, "not attempted", "missing")
    return ", ".join(f"{counted[status]} {status}" for status in ordered if counted[status]) + "."


def _class_page(by_student: dict[str, list[Grade]], grades: Sequence[Grade], links: dict[str, str]) -> str:
    went, hints, asides = {}, {}, {}
    for each in grades:
        went.setdefault(each.exercise, Counter())[each.status if each.status in COLOURS else STOPPED] += 1
        hints.setdefault(each.exercise, Counter())[each.hint] += bool(each.hint) and each.status != "unreadable"
        if each.note:
            asides[each.student, "", each.note] = []
        if each.status in ODD:
            why = f"{each.path}: {each.hint}"
            asides.setdefault((each.student, each.status, why), []).append(each.exercise)
    common = [(name, f"{n} ×", hint) for name, said in hints.items() for hint, n in said.most_common(3) if n]
    totals = {student: sum(each.points for each in own) for student, own in by_student.items()}
    worth = {student: sum(each.worth for each in own) for student, own in by_student.items()}

    def link(student: str) -> tuple[str, str]:
        return student, links[student]

    pairs = alike((each.student, each.exercise, each.source) for each in grades if each.status in ("right", "wrong"))
    copies = [(link(a), link(b), name, f"{near:.0%}") for name, found in pairs.items() for a, b, near in found]
    first = sorted(asides.items(), key=lambda item: ("", *ODD).index(item[0][1]))
    odd = [
        (link(student), status or "odd", "all" if len(names) in (0, len(went)) else ", ".join(names), why)
        for (student, status, why), names in first
    ]
    students = [
        (link(student), f"{totals[student]:g} of {worth[student]:g}", _counted(own))
        for student, own in by_student.items()
    ]
    return _page(
        "The class",
        f"<p>{len(by_student)} students, {len(went)} exercises. {_counted(grades)}</p>",
        "<h2>To look at</h2>",
        _table(("student", "status", "exercises", "why"), odd)
        if odd
        else "<p>Nothing was odd, refused or stopped.</p>",
        "<p>Answers that are alike once variables are renamed. That's a reason to ask, not a proof.</p>",
        _table(("student", "student", "exercise", "alike"), copies) if copies else "<p>There are none.</p>",
        "<h2>Points</h2>",
        _histogram(list(totals.values())),
        _table(("student", "points", "answers"), students),
        "<h2>Which exercises</h2>",
        _bars(went),
        "<h2>Which mistakes</h2>\n<p>The three commonest hints of each exercise.</p>",
        _table(("exercise", "times", "hint"), common),
    )


def _figure(height: float):
    from matplotlib.figure import Figure  # takes long to import

    return Figure(figsize=(8, height), layout="constrained")


def _bars(went: dict[str, Counter]) -> str:
    """How each exercise went, as bars."""
    figure = _figure(1.2 + 0.28 * len(went))
    axes, left = figure.subplots(), [0] * len(went)
    for status, colour in COLOURS.items():
        width = [number[status] for number in went.values()]
        axes.barh(list(went), width, left=left, label=status, color=colour)
        left = [sum(both) for both in zip(left, width, strict=True)]
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xlabel("students")
    axes.locator_params(axis="x", integer=True)
    figure.legend(loc="outside upper center", ncols=5, frameon=False)
    said = "; ".join(f"{name}: {number['right']} of {number.total()} right" for name, number in went.items())
    return _svg(figure, said)


def _histogram(totals: Sequence[float]) -> str:
    figure = _figure(2.5)
    axes = figure.subplots()
    axes.hist(totals, bins=20, color=COLOURS["right"])
    axes.set(xlabel="points", ylabel="students")
    axes.locator_params(axis="y", integer=True)
    return _svg(figure, f"Histogram of the points, from {min(totals):g} to {max(totals):g}")


def _svg(figure, said: str) -> str:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    file = io.StringIO()
    figure.savefig(file, format="svg")
    drawn = file.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{html.escape(said)}"', 1)
    return f'<div class="figure" tabindex="0">{drawn}</div>'
