"""How many examples property tests draw: a quarter of what `make test-nightly` draws."""

from __future__ import annotations

import os

NIGHTLY = "STEERSMAN_NIGHTLY"
DEFAULT = 100
"""Examples of a nightly test that names no number, Hypothesis's own."""
FEWEST = 10


def examples(nightly: int) -> int:
    """Return the number of examples to draw of those that a nightly run draws."""
    return nightly if os.environ.get(NIGHTLY) else min(nightly, max(nightly // 4, FEWEST))
