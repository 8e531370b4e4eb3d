"""The type checker of the tests: jaxtyping's import hook takes it by its name."""

from beartype import BeartypeConf, beartype

# An int will do where a float is asked for, as Python has it.
check_signature = beartype(conf=BeartypeConf(is_pep484_tower=True))
