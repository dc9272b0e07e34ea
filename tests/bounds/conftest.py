"""These tests need a process of their own, in which no kernel is compiled: `make test-bounds`."""

import os

import pytest

if "STEERSMAN_CHECK_BOUNDS" in os.environ:
    from tests.bounds.checking import install

    install()

    from steersman.policies.gpu_state import planning

    # Planning places millions of pods; a few hundred read the same arrays.
    planning.DEVICES, planning.ITERATIONS, planning.GENERATIONS = 6, 2, 1
else:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ask last whether every kernel ran."""
    items.sort(key=lambda item: item.path.name == "test_every_kernel.py")
