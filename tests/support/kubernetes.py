"""Minor of Kubernetes whose control plane, plugin and kube-scheduler end-to-end tests start."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from steersman.live.local_cluster.control_plane import build

VARIABLE = "STEERSMAN_TEST_KUBERNETES"
"""Environment variable with the minor, such as `1.35`; `make test-versions` sets it."""


@cache
def minor() -> str:
    """Return the minor: the newest where the variable is not set. Raises UsageError: it cannot be built."""
    return build.find_minor(os.environ.get(VARIABLE))


def is_since(earliest: str) -> bool:
    """Return whether the minor is this one or a later one."""
    this, first = (tuple(map(int, each.split("."))) for each in (minor(), earliest))
    return this >= first


def control_plane_programs() -> Path:
    """Return the folder of the control plane's programs. Raises SteersmanError: they could not be built."""
    return build.programs(lambda *_: None, print, minor())
