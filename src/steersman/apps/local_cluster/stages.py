"""KWOK's rules for simulated nodes and pods, as every local cluster has them."""

from __future__ import annotations

from importlib import resources

FILE = "stages.yaml"


def stages() -> str:
    """Return KWOK's rules: nodes become and stay ready, pods run, those of Jobs complete, deleted ones go."""
    return (resources.files("steersman.data.kwok") / FILE).read_text(encoding="utf-8")
