"""Shapes in signatures are checked here, at test time, by beartype through jaxtyping's import hook."""

import jaxtyping
import pytest
import torch
from beartype import BeartypeConf, beartype

# The hook takes its type checker by name; this one also takes an int where a float is asked for, as Python does.
check_signature = beartype(conf=BeartypeConf(is_pep484_tower=True))
jaxtyping.install_import_hook("vit_tutorial", "conftest.check_signature")


def pytest_collection_modifyitems(items):
    """The longest come first, so that no worker is left alone with them at the end."""
    items.sort(key=lambda item: item.path.name != "test_rehearsal.py")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def no_shape_checks():
    """Turn the signature checks off, to see the error that a user gets who has none."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
