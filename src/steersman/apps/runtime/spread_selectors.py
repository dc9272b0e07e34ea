"""Selectors of services and controllers in a live cluster, for `kube-default`'s default topology spread."""

from __future__ import annotations

from steersman.kubernetes.selectors import Selectors
from steersman.workloads.formats.kubernetes.controllers import services_of
from steersman.workloads.workload import SpreadSelectors


class LiveSpreadSelectors:
    """Callable that returns the current selectors; the object stays the same while they do not change.

    Args:
        selectors: selectors that watches keep up to date; None if the policy does not spread pods by default.
    """

    def __init__(self, selectors: Selectors | None) -> None:
        self._selectors, self._version, self._current = selectors, 0, SpreadSelectors()

    def __call__(self) -> SpreadSelectors:
        """Return the current selectors."""
        if self._selectors is not None and self._version != self._selectors.version:
            self._version, self._current = self._selectors.version, services_of(self._selectors)
        return self._current
