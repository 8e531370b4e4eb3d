"""Check what the text says in numbers against the data."""

import ast
import inspect
import linecache
import os
from collections.abc import Iterator
from types import FrameType
from typing import Any

# calls that may be made once more
HARMLESS = {"abs", "float", "int", "item", "len", "max", "mean", "min", "norm", "round", "std", "sum", "tolist"}


def claim(phrase: str | None, holds: Any, *, when: Any = True) -> None:
    """Check a phrase of the text above against what was measured.

    A claim that does not hold prints one line for a reader, who may have changed a number, and is an error where the
    book is built (``VIT_TUTORIAL_CHECK=1``).

    Args:
        phrase: as the text has it; a test looks for it there. None if the text shows something without words that
            could be quoted.
        holds: whether the measurement agrees: one truth value, a bool or a tensor or array with one element.
        when: whether the phrase is about this run: False if stand-in data or another budget were used. Such a claim
            is not checked.

    Raises:
        AssertionError: if the measurement does not agree and ``VIT_TUTORIAL_CHECK`` is 1.
        TypeError: if ``holds`` or ``when`` is not a truth value.
    """
    about_this_run, agrees = (_truth(name, value) for name, value in (("when", when), ("holds", holds)))
    if agrees or not about_this_run:
        return
    condition, measured = _seen_by_caller(inspect.currentframe().f_back)
    said = f"The text says “{phrase}”" if phrase else f"The text counts on {condition or 'something else'}"
    said += f"; here: {measured}." if measured else "; not so here."
    if os.environ.get("VIT_TUTORIAL_CHECK") == "1":
        raise AssertionError(said)
    print(said)


def _truth(name: str, value: Any) -> bool:
    if getattr(value, "shape", None) in ((), (1,)):  # a tensor or array with one element
        value = value.item()
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be one truth value, such as 0.96 < accuracy < 0.98; got {value!r}")
    return value


def _seen_by_caller(frame: FrameType) -> tuple[str, str]:
    """The condition as the caller wrote it, and the numbers in it, such as ``gain = 0.48``; "" where unknown."""
    place = inspect.getframeinfo(frame, context=0).positions
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    if not source or place is None or None in place:
        return "", ""
    try:
        _, condition, *_ = ast.parse(ast.get_source_segment(source, place), mode="eval").body.args
    except (AttributeError, SyntaxError, TypeError, ValueError):  # the file has changed since, or another call
        return "", ""
    bound = {n.id for n in ast.walk(condition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    numbers = dict(_numbers(condition, frame, bound))
    return ast.unparse(condition), ", ".join(f"{name} = {number}" for name, number in list(numbers.items())[:4])


def _numbers(node: ast.AST, frame: FrameType, bound: set[str]) -> Iterator[tuple[str, str]]:
    """The largest parts of an expression that are a number or a few, as the caller wrote them, with their values."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    called = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    harmless = all(getattr(function, "id", getattr(function, "attr", "")) in HARMLESS for function in called)
    if isinstance(node, ast.expr) and names and harmless and not names & bound:
        part = compile(ast.Expression(node), "part of a claim", "eval")
        try:
            shown = _in_short(eval(part, frame.f_globals, frame.f_locals))
        except Exception:  # a part that `and` or `or` never reached: the line says less
            shown = ""
        if shown:
            yield ast.unparse(node), shown
            return
    for child in ast.iter_child_nodes(node):
        yield from _numbers(child, frame, bound)


def _in_short(value: Any) -> str:
    """A number, or up to six of them, with four digits; "" for anything else."""
    values = value.tolist() if hasattr(value, "tolist") else value
    several = values if isinstance(values, list | tuple) else [values]
    if not 0 < len(several) <= 6 or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in several):
        return ""
    return f"{values:.4g}" if several is not values else f"[{', '.join(f'{v:.4g}' for v in several)}]"
