"""What `kube-default` spreads pods of by default in a live cluster, as a policy wants to hear it."""

from __future__ import annotations

from steersman.kube.selectors import Selectors
from steersman.workloads.selecting import services_of
from steersman.workloads.workload import Services


class LiveServices:
    """What selects pods to be spread by default; the same object while nothing changes.

    Args:
        selectors: that watches follow; None: pods are not spread.
    """

    def __init__(self, selectors: Selectors | None) -> None:
        self._selectors, self._version, self._services = selectors, 0, Services()

    def __call__(self) -> Services:
        """What it is now."""
        if self._selectors is not None and self._version != self._selectors.version:
            self._version, self._services = self._selectors.version, services_of(self._selectors)
        return self._services
