"""kube-router, which enforces NetworkPolicies by iptables, built once into the user's cache folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from steersman.core.cache import cache_root
from steersman.live.local_cluster.control_plane.build import Module, built

SOURCES = Path(__file__).with_name("program")


@cache
def kube_router_program() -> Path:
    """The program. Raises SteersmanError: it could not be built."""
    without_go = "kube-router needs Go 1.26 or newer to be built"
    module = Module(SOURCES, "kube-router", "3 minutes", without_go, "-s -w", lambda part: part)
    return built(module, cache_root().absolute() / "kube-router", lambda *_: None, print) / "kube-router"
