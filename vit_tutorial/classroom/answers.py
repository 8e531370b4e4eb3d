"""An answer is a function with a name: it is found in whatever cell it is, together with all it needs."""

import ast
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vit_tutorial.borders import at_fault
from vit_tutorial.old_names import current_name

# A line that IPython understands and Python doesn't: a magic, a shell command, a question.
MAGIC = re.compile(r"^(\s*)(?:[%!?].*|[\w, ]+=\s*[%!].*|[%\w.]+\?{1,2}\s*)$", re.MULTILINE)
# Where a new statement may begin, for text that isn't Python as a whole.
BEGINNING = re.compile(r"^(?=(?:@|def |class |import |from |[A-Za-z_]\w*\s*=|# ?%%|# In\[))", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """A statement of a submission, or a text in it that isn't Python.

    Args:
        text: its code.
        reads: the global names that it needs.
        at_once: those of them that it reads as soon as it runs, and not only when what it defines is called.
        writes: those that it assigns, imports or defines.
        stub: whether it is a function that hasn't been written yet.
        defines: the names of the functions and classes that it defines, inside ``if``, ``try`` and ``with`` as well.
        perhaps: the names to which it assigns what may be callable: a call, another name, an attribute.
        checks: the exercise, if it is ``f = exercise("f", f)``: that defines nothing.
        problem: why it isn't Python.
        ours: whether the book wrote it; then it isn't an answer, even if it has the name of an exercise.
    """

    text: str
    reads: frozenset[str] = frozenset()
    at_once: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    stub: bool = False
    defines: frozenset[str] = frozenset()
    perhaps: frozenset[str] = frozenset()
    checks: str = ""
    problem: str = ""
    ours: bool = False


@dataclass(frozen=True)
class Answer:
    """An answer to an exercise.

    Args:
        source: the function and everything in the submission that it needs; empty if there is none.
        borrowed: other exercises' functions that it calls; it gets the references for them.
        status: "" if it has to be judged, else "missing", "unreadable", "not attempted" or "broken".
        hint: what is broken or unreadable.
    """

    source: str = ""
    borrowed: tuple[str, ...] = ()
    status: str = "missing"
    hint: str = ""


def parse(text: str) -> list[ast.stmt]:
    """A cell's syntax; magics count as ``pass``.

    Raises:
        ValueError: if it isn't Python: null bytes and a thousand parentheses aren't, either.
    """
    with warnings.catch_warnings(), at_fault("", why=_said, memory=True):
        warnings.simplefilter("ignore")  # a student's "\d" is not our concern
        try:
            return ast.parse(text).body
        except SyntaxError:  # only now: a line of a longer expression may begin with %, too
            without = re.sub(r"\A\s*%%.*", "", text)
            return ast.parse(MAGIC.sub(r"\1pass", without)).body


def statements(cells: Iterable[tuple[str, str]]) -> list[Statement]:
    """All statements of a submission.

    Args:
        cells: (kind, text) in their order. Text that isn't "code" counts if all of it is Python, and comes before all
            code: a cell may have been turned into text by mistake, or on purpose.
    """
    found = []
    for kind, text in sorted(cells, key=lambda cell: cell[0] == "code"):
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = re.sub(r"\w+", lambda name: current_name(name[0]), text)  # of an exercise that was renamed since
        try:
            found += _statements_of(text)
        except ValueError:
            for part in BEGINNING.split(text) if kind == "code" or BEGINNING.match(text) else ():
                try:
                    found += _statements_of(part)
                except ValueError as error:
                    found.append(Statement(part, problem=str(error)))
    return found


def _statements_of(text: str) -> list[Statement]:
    with at_fault("", why=_said, memory=True):  # of what parse let through, unparse and symtable may refuse some
        return _looked_at(text, parse(text))


def _looked_at(text: str, nodes: list[ast.stmt]) -> list[Statement]:
    found, lines = [], text.split("\n")
    for i, node in enumerate(nodes):
        call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "exercise" and len(call.args) >= 2:
            name, answer = (ast.unparse(each).strip("'") for each in call.args[:2])
            found.append(Statement("", checks=name))
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) != answer:
                found.append(_statement(node, f"{ast.unparse(node.targets[0])} = {answer}"))
        else:
            shared = _first_line(node) <= (nodes[i - 1].end_lineno if i else 0)
            shared |= i + 1 < len(nodes) and _first_line(nodes[i + 1]) <= node.end_lineno
            own = "\n".join(lines[_first_line(node) - 1 : node.end_lineno])
            found.append(_statement(node, ast.unparse(node) if shared or MAGIC.search(own) else own))
    return found


def _said(error: Exception) -> str:
    if isinstance(error, SyntaxError) and error.text:
        return f"{error.msg} in the line `{error.text.strip()[:80]}`"
    return str(error) or type(error).__name__


def _first_line(node: ast.stmt) -> int:
    """Of a statement with its decorators."""
    return min([node.lineno, *(line.lineno for line in getattr(node, "decorator_list", ()))])


def _statement(node: ast.stmt, text: str) -> Statement:
    reads, at_once, writes = set(), set(), set()

    def look(table: symtable.SymbolTable, now: bool = True) -> None:
        now = now and table.get_type() != "function"
        for symbol in table.get_symbols():
            top = table.get_type() == "module"
            if symbol.is_referenced() and (top or symbol.is_global()):
                (at_once if now else reads).add(symbol.get_name())
            if (symbol.is_assigned() or symbol.is_imported()) and (top or symbol.is_declared_global()):
                writes.add(symbol.get_name())
        for child in table.get_children():
            look(child, now)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        look(symtable.symtable(text, "answer", "exec"))
    grown = [each.target for each in ast.walk(node) if isinstance(each, ast.AugAssign)]
    at_once |= {target.id for target in grown if isinstance(target, ast.Name)} & writes
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        writes.add("*")
    defines = frozenset(_named(node, ast.Lambda))
    reads -= defines  # a function that calls itself needs no older one
    if isinstance(node, ast.If | ast.Try | ast.For | ast.While | ast.Match):
        at_once |= defines  # it may define nothing, and then the older one stays
    perhaps = frozenset(_named(node, ast.Call, ast.Name, ast.Attribute, ast.Subscript))
    reads, at_once, writes = frozenset(reads | at_once), frozenset(at_once), frozenset(writes)
    return Statement(text, reads, at_once, writes, _is_stub(node), defines, perhaps)


def _named(node: ast.AST, *kinds: type) -> Iterator[str]:
    """The names of functions and classes, and those to which a value of these kinds is assigned, in blocks as well."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        if ast.Lambda in kinds:
            yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node.value, kinds):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
    elif not isinstance(node, ast.AsyncFunctionDef):
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.stmt | ast.excepthandler | ast.match_case):
                yield from _named(inner, *kinds)


def _is_stub(node: ast.stmt) -> bool:
    """Whether a function only says that it hasn't been written yet, as the engine understands it."""
    if not isinstance(node, ast.FunctionDef):
        return False
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return bool(body) and ast.unparse(body[0]) in ("raise NotImplementedError", "raise NotImplementedError()")


def find_answer(name: str, known: Sequence[Statement], exercises: Iterable[str] = ()) -> Answer:
    """The last definition of a function and all it needs; an untouched stub counts only if there is nothing else.

    Each answer is judged by itself: if it calls another exercise's function, it gets the reference, whatever the
    submission has for that one. So a mistake costs one exercise, not those that build on it.

    Args:
        name: the function.
        known: the submission's statements; before them the chapter's own, which a submission may lack.
        exercises: names of all exercises.
    """

    def answers(wanted: str) -> list[int]:
        """Where an exercise is answered: by a definition, or whatever the submission checks under its name."""
        checked = any(statement.checks == wanted for statement in known)
        named = [i for i, each in enumerate(known) if wanted in each.writes and not each.ours]
        return [i for i in named if checked or wanted in known[i].defines]

    # Without either, a callable object may be the answer, or a function that another one made.
    given = answers(name) or [i for i, each in enumerate(known) if name in each.perhaps and not each.ours]
    attempts = [i for i in given if not known[i].stub]
    if not attempts:
        for each in reversed(known):
            if each.problem and re.search(rf"^\s*(?:def\s+{name}\b|{name}\s*=)", each.text, re.MULTILINE):
                return Answer(status="broken", hint=each.problem)
    if not given:
        return Answer()
    needs: dict[int, dict[int, bool]] = {}  # of a statement: the others, and whether it needs them at once
    borrowed = set()

    def places(wanted: str, i: int) -> list[int]:
        """Which statement ``i`` gets a name from."""
        found = [j for j, each in enumerate(known) if wanted in each.writes and not each.stub and j != i]
        if wanted in exercises and wanted != name:
            found = sorted(set(found) - set(answers(wanted)))
            if not found:
                borrowed.add(wanted)
        before = [j for j in found if j < i]
        if wanted in known[i].writes:
            found = before
        elif wanted in known[i].at_once:  # what is below is meant only if nothing is above
            found = before or found
        return found[-1:] or [j for j, each in enumerate(known) if "*" in each.writes and j != i]

    def add(i: int) -> None:
        if i not in needs:
            needs[i] = {}
            for other in sorted(known[i].reads):
                for j in places(other, i):
                    needs[i][j] = needs[i].get(j, False) or other in known[i].at_once
                    add(j)

    def ready(i: int) -> list[int]:
        """What must have run before statement ``i``: what it reads at once, and all that this may call."""
        found, left = set(), [j for j, now in needs[i].items() if now]
        while left:
            if (j := left.pop()) not in found:
                found.add(j)
                left += needs[j]
        above = {each for j in needs if j < i for each in known[j].writes}
        return sorted(j for j in found if j < i or not above & known[j].writes)

    ordered: dict[int, None] = {}

    def order(i: int, below: frozenset[int] = frozenset()) -> None:
        """In the notebook's order, except that what is needed at once comes first even if it is further down."""
        if i not in ordered and i not in below:
            for j in ready(i):
                order(j, below | {i})
            ordered.setdefault(i)

    add((attempts or given)[-1])
    for i in sorted(needs):
        order(i)
    source = "\n\n".join(known[i].text for i in ordered) + "\n"
    return Answer(source, tuple(sorted(borrowed)), "" if attempts else "not attempted")


def read_cell(cell: dict) -> tuple[str, str]:
    """(kind, text) of a notebook's cell, which keeps it as a string or as lines, or has lost half of itself."""
    source = cell.get("source", cell.get("input", ""))  # "input" before nbformat 4
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    return str(cell.get("cell_type", "code")), text
