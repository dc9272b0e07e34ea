"""`steersman/Inflation-v0` and `steersman/Timed-v0`: workloads in the simulator's own event loop."""

from __future__ import annotations

from typing import Any

from steersman.envs.base import make_options
from steersman.envs.inflation.episodes import WorkloadCore, WorkloadOptions
from steersman.envs.single import SchedulingEnv
from steersman.envs.vector import SteersmanVectorEnv


class InflationEnv(SchedulingEnv):
    """Pods of a workload arrive until their GPU demand is `ratio` times the capacity; none leaves.

    Args:
        render_mode: see `SchedulingEnv`.
        **options: see `envs.inflation.episodes.WorkloadOptions`.
    """

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(WorkloadCore(1, "inflation", make_options(WorkloadOptions, options)), render_mode=render_mode)


class InflationVectorEnv(SteersmanVectorEnv):
    """`InflationEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        core = WorkloadCore(num_envs, "inflation", make_options(WorkloadOptions, options))
        super().__init__(core, copy=copy, render_mode=render_mode)


class TimedEnv(SchedulingEnv):
    """Pods of a workload arrive, run for their time and leave; those that fit nowhere wait.

    Args:
        render_mode: see `SchedulingEnv`.
        **options: see `envs.inflation.episodes.WorkloadOptions`.
    """

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(WorkloadCore(1, "timed", make_options(WorkloadOptions, options)), render_mode=render_mode)


class TimedVectorEnv(SteersmanVectorEnv):
    """`TimedEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(
            WorkloadCore(num_envs, "timed", make_options(WorkloadOptions, options)), copy=copy, render_mode=render_mode
        )
