"""What the text says in numbers, held to the data."""

from typing import Any


def claim(phrase: str, holds: Any, *, when: Any = True) -> None:
    """Hold a phrase of the text above to what was measured.

    Args:
        phrase: as the text has it; a test wants it there.
        holds: whether the measurement agrees: one truth value, a bool or a tensor or array with one element.
        when: whether the phrase is about this run: False where stand-in data or another budget were used. Such a
            claim rests, and says so.

    Raises:
        AssertionError: if the measurement does not agree.
        TypeError: if ``holds`` or ``when`` is not a truth value.
    """
    about_this_run, agrees = (_truth(name, value) for name, value in (("when", when), ("holds", holds)))
    if not about_this_run:
        print(f"“{phrase}” is about another run than this one (other data or another budget), so it isn't checked.")
    elif not agrees:
        raise AssertionError(f"the text says “{phrase}”, and this run does not agree")


def _truth(name: str, value: Any) -> bool:
    if getattr(value, "shape", None) in ((), (1,)):  # a tensor or array with one element
        value = value.item()
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be one truth value, such as 0.96 < accuracy < 0.98; got {value!r}")
    return value
