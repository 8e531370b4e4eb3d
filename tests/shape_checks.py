"""The type checker of the tests: jaxtyping's import hook takes it by its name."""

from collections.abc import Callable

from beartype import BeartypeConf, beartype

CONF = BeartypeConf(is_pep484_tower=True)  # an int will do where a float is asked for, as Python has it


def check_signature(function: Callable) -> Callable:
    """The function with its signature checked at each call; one within another, made anew each time, as it is."""
    return function if "<locals>" in function.__qualname__ else beartype(function, conf=CONF)
