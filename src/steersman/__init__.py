"""A GPU-aware, learning scheduler for Kubernetes: one state, one encoder and one policy everywhere.

The names of `steersman.api` are available here, too, and imported on first use. Environments are registered with
Gymnasium (`gymnasium.make("steersman/Inflation-v0")`), whether it is imported before or after this package.
"""

from __future__ import annotations

import sys
from importlib import import_module

from steersman.version import __version__

TYPE_CHECKING = False  # the module typing takes 12 ms, in which Ctrl-C is a traceback

__all__ = [
    "__version__",
    "connect",
    "evaluate",
    "live_agent",
    "load_driver",
    "load_policy",
    "load_workload",
    "register_algorithm",
    "register_format",
    "register_network",
    "register_objective",
    "register_order",
    "register_policy",
    "simulate",
    "train",
    "tune",
    "use_engine",
]

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from steersman.api import (
        connect,
        evaluate,
        live_agent,
        load_driver,
        load_policy,
        load_workload,
        register_algorithm,
        register_format,
        register_network,
        register_objective,
        register_order,
        register_policy,
        simulate,
        train,
        tune,
    )
    from steersman.core.engines import use_engine


def __getattr__(name: str) -> Any:
    if name in __all__:
        from steersman import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _EnvironmentRegistration:
    """Register the environments when Gymnasium is imported: importing it for that would slow down every command."""

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return Gymnasium's own module specification, after whose execution the environments are registered."""
        if fullname != "gymnasium":
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                import_module("steersman.envs")

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    import_module("steersman.envs")
else:
    sys.meta_path.insert(0, _EnvironmentRegistration())
