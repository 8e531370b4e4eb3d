"""What only `make check` runs: every page in every view, rehearsals, hostile and generated cases, kills."""


def pytest_collection_modifyitems(items):
    """The longest come first, so that no worker is left alone with them at the end."""
    items.sort(key=lambda item: item.path.name != "test_rehearsal.py")
