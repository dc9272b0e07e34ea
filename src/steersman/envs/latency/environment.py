"""`steersman/Latency-v0`: a simulated cluster with telemetry, in which an agent chooses the nodes of arriving pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.core.errors import SteersmanError, UsageError, unknown_name
from steersman.envs.base import Arrays, BatchedCore, check_limits, known_options, make_options
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.envs.latency.description import described_settings
from steersman.envs.observation import AFTER
from steersman.objectives import registry, summary
from steersman.objectives.latency import WITHIN_HARD, WITHIN_SOFT
from steersman.objectives.summary import spread_of
from steersman.objectives.telemetry import TELEMETRY_OBJECTIVES
from steersman.objectives.telemetry import check as check_objectives
from steersman.policies.features import TELEMETRY
from steersman.policies.node_metrics.rules import rule_number
from steersman.simulation.measures import LATENCY
from steersman.workloads.generators.latency_settings import LatencySettings, checked

RESET_OPTIONS = ("seed", "nodes")
SEEDS = 1 << 31
DEFAULT_SETTINGS = LatencySettings()


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """Options of the environment.

    Attributes:
        objective: the rewarded objective, one of `objectives.telemetry.TELEMETRY_OBJECTIVES` or a weighted sum of them.
        settings: the cluster and its workload.
        penalty: cost of an illegal action, which changes nothing else.
        step_limit: steps after which an episode is truncated; None: twice the pods, which only illegal actions reach.
        keep_hard_limits: whether the mask leaves out nodes that put the hard limit of a pod's latency at risk while
            others do not, see `core/src/telemetry.rs`; None: if `latency-aware` is rewarded.
    """

    objective: str = "latency-aware"
    settings: LatencySettings = DEFAULT_SETTINGS
    penalty: float = 1.0
    step_limit: int | None = None
    keep_hard_limits: bool | None = None

    def __post_init__(self) -> None:
        check_limits(self.penalty, self.step_limit)


class EpisodeTruth(NamedTuple):
    """What is true in an episode now; no policy knows it."""

    time: float  # seconds since its start
    pods: npt.NDArray[np.int64]  # [n] on each node
    # [n] milliseconds that the users of the current pod would have if it ran there; NaN: it has none
    latency: npt.NDArray[np.float64]


class LatencyCore(BatchedCore):
    """E clusters with telemetry.

    Every pod that fits on some node is a decision; a pod that fits nowhere is dropped. The reward is computed from the
    true state after the action; agents observe measurements.
    """

    def __init__(self, count: int, options: LatencyOptions) -> None:
        self.options, self.settings = options, checked(options.settings)
        objective = registry.resolve(options.objective)
        check_objectives(objective, "steersman/Latency-v0")
        super().__init__(count, TELEMETRY, self.settings.max_nodes, objective, options.penalty)
        is_latency_aware = any(each.name == "latency-aware" for each in objective.objectives)
        self.filters = is_latency_aware if options.keep_hard_limits is None else options.keep_hard_limits
        self._seeds, self._nodes = np.zeros((2, count), dtype=np.int64)

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Begin an episode, see `EnvCore`. Options: `seed`, `nodes` (up to `max_nodes`)."""
        known = known_options(options, RESET_OPTIONS)
        # Drawn even if a seed is given: later episodes do not depend on it.
        drawn = int(rng.integers(SEEDS))
        seed = known.get("seed", drawn)
        nodes = known.get("nodes", self.settings.nodes)
        if seed >= 1 << 63:
            raise UsageError(f"reset option 'seed' must be less than 2^63, not {seed}")
        if not 2 <= nodes <= self.max_nodes:
            raise UsageError(f"reset option 'nodes' must be from 2 to {self.max_nodes}, not {nodes}")
        self._start(e, seed, nodes)

    def _start(self, e: int, seed: int, nodes: int) -> None:
        drawn = {"latency.seed": np.array(seed), "latency.nodes": np.array(nodes)}
        zones = self.observation.groups[e, :, 0]
        zones[:] = -1
        zones[:nodes] = np.arange(nodes) % self.settings.zones
        if self._nodes[e]:
            asks = self._begin_again(e, drawn)
        else:
            numbers = [TELEMETRY_OBJECTIVES[each.name] for each in self.objective.objectives]
            limit = 2 * self.settings.pods if self.options.step_limit is None else self.options.step_limit
            task = {
                "episode.objectives": np.array(numbers, dtype=np.int64),
                "episode.weights": np.array(self.objective.weights, dtype=np.float64),
                "latency.filters": np.array(int(self.filters)),
            }
            asks = self._begin(e, drawn | task | described_settings(self.settings), limit)
        self._seeds[e], self._nodes[e] = seed, nodes
        if not asks:
            raise SteersmanError("no pod fits on any node")

    def rule_actions(self, name: str) -> npt.NDArray[np.int64]:
        """Return [E] what the rule of that name (`policies.node_metrics.rules`) would do. Raises UsageError: none."""
        return self.heuristic(rule_number(name))

    def infos(self) -> Arrays:
        """Return the mean share of CPU used and its variance, nodes in use, illegal actions, limits kept.

        When an episode ends its metrics, see `simulation.measures.LATENCY`, are included.
        """
        row, kept = self.states[:, AFTER], self._batch.counts()[:, 2]
        ended = (self.terminated | self.truncated).any()
        return (self.figures() if ended else {}) | {
            "cpu_used": row[:, summary.CPU_SHARE] / np.maximum(row[:, summary.CPU_NODES], 1),
            **spread_of(row),
            "illegal": self.illegal,
            "within_soft": kept == WITHIN_SOFT,
            "within_hard": kept <= WITHIN_HARD,
        }

    def figures(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return metrics of each episode so far, [E] by name (`measures.LATENCY`); read them before the next reset."""
        return dict(zip(LATENCY, self._batch.figures().T, strict=True))

    def truth(self, e: int) -> EpisodeTruth:
        """Return what is true in environment `e` now."""
        time, nodes = self._batch.truth(e, self._nodes[e])
        return EpisodeTruth(time, nodes[:, 0].astype(np.int64), nodes[:, 1])

    def state(self) -> Arrays:
        """Return how each episode began, and what was done since: playing that again leads to the same state."""
        return {"seed": self._seeds, "nodes": self._nodes} | self._played()

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        for e, (seed, nodes) in enumerate(zip(arrays["seed"].tolist(), arrays["nodes"].tolist(), strict=True)):
            self._start(e, seed, nodes)
            self._replay(e, arrays)

    def names(self, e: int) -> list[str]:
        return [f"node-{n}-zone-{n % self.settings.zones}" for n in range(self._nodes[e])]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        loads = np.full((self._nodes[e], 3), np.nan)
        loads[:, :2] = self._batch.loads(e, len(loads))
        return loads


class LatencyEnv(SchedulingEnv):
    """Pods of Deployments arrive and leave; nodes' use is measured late, with errors, and sometimes not at all.

    Options: those of `LatencyOptions`, and those of `latency_settings.LatencySettings` that differ.
    """

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(LatencyCore(1, _options(options)), render_mode=render_mode)


class LatencyVectorEnv(SteersmanVectorEnv):
    """`LatencyEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(LatencyCore(num_envs, _options(options)), copy=copy, render_mode=render_mode)


def _options(given: Mapping[str, Any]) -> LatencyOptions:
    known = (*LatencyOptions.__dataclass_fields__, *LatencySettings._fields)
    for name in given:
        if name not in known:
            raise unknown_name("option of the environment", name, known)
    changes = {name: value for name, value in given.items() if name in LatencySettings._fields}
    options = {name: value for name, value in given.items() if name not in changes}
    options["settings"] = options.get("settings", LatencySettings())._replace(**changes)
    return make_options(LatencyOptions, options)
