"""The order of the integration tests."""

import pytest

LONGEST = ("test_wheel.py", "test_notebooks.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no worker waits for another at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
