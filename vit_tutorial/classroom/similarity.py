"""Answers that are alike once their variables are renamed."""

import ast
import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress

from vit_tutorial.borders import at_fault

LONG = 60  # tokens; shorter answers are alike by themselves
USUAL = 0.2  # of a class: what so many wrote is the usual answer


def tokens(source: str) -> list[str]:
    """The syntax of an answer with names, comments, docstrings and annotations taken out.

    A name that the source itself defines becomes its number in the order of appearance.
    """
    tree = ast.parse(source)
    defined = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    defined |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    numbers: dict[str, int] = {}
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.expr_context):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        found.append(type(node).__name__)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "type_comment"):
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    visit(each)
                elif isinstance(each, str) and each in defined and field in ("id", "arg", "name"):
                    found.append(str(numbers.setdefault(each, len(numbers))))
                elif each is not None:
                    found.append(repr(each))

    visit(tree)
    return found


def runs(found: list[str], length: int = 5) -> set[tuple[str, ...]]:
    """All runs of so many tokens."""
    return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}


def similarity(a: set, b: set) -> float:
    """The fraction of runs of tokens that two answers share: 1 if they are alike, 0 if they have none in common."""
    return len(a & b) / max(1, len(a | b))


def alike(answers: Iterable[tuple[str, str, str]], least: float = 0.9) -> Mapping[str, list[tuple[str, str, float]]]:
    """Pairs of students by exercise, the most alike first.

    Args:
        answers: (student, exercise, source).
        least: similarity from which a pair is listed.
    """
    by_exercise: dict[str, dict[str, set]] = {}
    for student, exercise, source in answers:
        with suppress(ValueError), at_fault(""):  # one that is nested too deeply is compared with no other
            if len(found := tokens(source)) >= LONG:
                by_exercise.setdefault(exercise, {})[student] = runs(found)
    pairs = {}
    for exercise, each in by_exercise.items():
        near = [(a, b, similarity(each[a], each[b])) for a, b in itertools.combinations(sorted(each), 2)]
        near = [pair for pair in near if pair[2] >= least]
        times = {student: sum(student in pair[:2] for pair in near) for student in each}
        rare = [pair for pair in near if max(times[pair[0]], times[pair[1]]) <= max(2, USUAL * len(each))]
        pairs[exercise] = sorted(rare, key=lambda pair: -pair[2])
    return {exercise: found for exercise, found in pairs.items() if found}
