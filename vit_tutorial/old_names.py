"""What things were called in earlier versions, so that old notebooks, commands, runs and answers go on working."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

OLD_NAMES = {
    # recipes, and the runs recorded with them
    "mnist-seed": "mnist-published",
    "mnist-seed-1": "mnist-published-1",
    "mnist-seed-2": "mnist-published-2",
    "cifar10-tiny-seed": "cifar10-tiny-published",
    "cifar10-tiny-seed-10-passes": "cifar10-tiny-published-10-epochs",
    "cifar10-tiny-mild-10-passes": "cifar10-tiny-mild-10-epochs",
    "cifar10-small-seed": "cifar10-small-published",
    "cifar10-small-seed-10-passes": "cifar10-small-published-10-epochs",
    "cifar10-small-10-passes": "cifar10-small-10-epochs",
    "cifar10-small-glorot-20-passes": "cifar10-small-glorot-20-epochs",
    "MNIST_SEED": "MNIST_PUBLISHED",
    "CIFAR10_TINY_SEED": "CIFAR10_TINY_PUBLISHED",
    "CIFAR10_SMALL_SEED": "CIFAR10_SMALL_PUBLISHED",
    # a variant of the sweeps, presets, an exercise
    "no-average": "no-ema",
    "mnist_000": "building_a_vit",
    "vit_002": "annotated_vit",
    "update_average": "update_ema",
}


def current_name(name: str) -> str:
    """The name that a thing has now, without a warning: for what older versions wrote into files."""
    return OLD_NAMES.get(name, name)


def renamed(name: str, stacklevel: int = 3) -> str:
    """The name that a thing has now; an old name gives a DeprecationWarning."""
    if name in OLD_NAMES:
        warnings.warn(f"{name} is now called {OLD_NAMES[name]}", DeprecationWarning, stacklevel=stacklevel)
    return current_name(name)


class WithOldNames(dict[str, Any]):
    """A dictionary whose entries are found under their old names, too, with a DeprecationWarning."""

    def __missing__(self, name: str) -> Any:
        if current_name(name) not in self:
            raise KeyError(name)
        return self[renamed(name)]


def old_attributes(namespace: Mapping[str, Any]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module with these ``globals()``: finds its attributes under their old names, too."""

    def find(name: str) -> Any:
        if current_name(name) not in namespace:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        return namespace[renamed(name)]

    return find
