"""Orders measure pods as the file says, to which the plugin is held as well."""

import json
from typing import Any

import pytest
from tests.contract.make_orders import FILE, content


def equal(found: Any, wanted: Any) -> bool:
    """Return whether two documents are the same, numbers to 1e-12."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(equal(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(equal, found, wanted))
    return bool(found == pytest.approx(wanted, rel=1e-12, abs=1e-12)) if isinstance(wanted, float) else found == wanted


def test_orders_match_the_vectors() -> None:
    wanted = json.loads(FILE.read_text())
    found = json.loads(json.dumps(content()))
    assert found.keys() == wanted.keys()
    for key in wanted:
        assert equal(found[key], wanted[key]), f"{key}: python -m tests.contract.make_orders"
