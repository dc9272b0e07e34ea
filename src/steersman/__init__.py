"""A reinforcement-learning scheduler for Kubernetes: one state, one encoder and one policy everywhere.

The names of `steersman.api` are available here, too, and imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.version import __version__

__all__ = [
    "__version__",
    "connect",
    "evaluate",
    "load_policy",
    "load_workload",
    "register_algorithm",
    "register_format",
    "register_network",
    "register_objective",
    "register_policy",
    "simulate",
    "train",
    "tune",
]

if TYPE_CHECKING:
    from steersman.api import (
        connect,
        evaluate,
        load_policy,
        load_workload,
        register_algorithm,
        register_format,
        register_network,
        register_objective,
        register_policy,
        simulate,
        train,
        tune,
    )


def __getattr__(name: str) -> Any:
    if name in __all__:
        from steersman import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
