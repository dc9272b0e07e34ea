"""`steersman/Latency-v0`: a simulated cluster with telemetry, in which an agent chooses the nodes of arriving pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import MEMORY, PODS
from steersman.core.errors import SteersmanError, UsageError, unknown_name
from steersman.envs.base import Arrays, EnvCore, arrays_of, check_limits, known_options, make_options, restored
from steersman.envs.environment import SchedulingEnv, SteersmanVectorEnv
from steersman.envs.latency import kernels as stepping
from steersman.envs.latency import state
from steersman.envs.latency.state import NOW, USE_CPU, USE_MEMORY, new_simulator_state
from steersman.envs.observation import StepResults
from steersman.objectives import registry, summary
from steersman.objectives.latency import WITHIN_HARD, WITHIN_SOFT
from steersman.objectives.telemetry import TELEMETRY_OBJECTIVES
from steersman.objectives.telemetry import check as check_objectives
from steersman.policies.features import TELEMETRY
from steersman.policies.node_metrics.arrays import NODES
from steersman.policies.node_metrics.latency_filter import filter_environments
from steersman.policies.node_metrics.rules import decide_all, rule_number
from steersman.workloads.generators.latency_settings import LatencySettings, checked

FIGURES = {
    "empty_nodes": "nodes",
    "used_nodes": "nodes",
    "cpu_use_deviation_percent": "percent",
    "connections_peak": "connections",
    "connections_maximum_mean": "connections",
    "hard_limits_broken_avoidable": "pods",
    "hard_limits_broken": "pods",
    "soft_limits_kept_percent": "percent",
    "soft_limits_kept_running_percent": "percent",
    "hard_limits_broken_running_percent": "percent",
    "saturated_nodes_percent": "percent",
    "refused_pods": "pods",
    "placed_pods": "pods",
}
"""Names of the figures and their units.

Means over time, from the truth every 15 seconds after the warm-up: nodes without and with pods; standard deviation over
nodes of the share of CPU used; connections of the node that has most (and the highest number ever); running pods with
limits whose latency is within the soft one, and beyond the hard one; used nodes whose pods want more CPU than there is.
Of placements after the warm-up, at the moment after: pods beyond their hard limit though some node with room could have
met it, and in all; pods with limits placed within the soft one; pods refused for lack of room.
"""


def figures(total: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the metrics, each [E], of `SimulatorState.total`, [E, 16]; NaN if nothing was counted."""
    column = total.T

    def share(part: int, whole: int) -> npt.NDArray[np.float64]:
        quotient = np.full(len(total), np.nan)
        np.divide(column[part], column[whole], out=quotient, where=column[whole] > 0)
        return quotient

    result = {
        "empty_nodes": share(state.EMPTY, state.SAMPLES),
        "used_nodes": share(state.USED, state.SAMPLES),
        "cpu_use_deviation_percent": 100.0 * share(state.DEVIATION, state.SAMPLES),
        "connections_peak": np.where(column[state.SAMPLES] > 0, column[state.PEAK], np.nan),
        "connections_maximum_mean": share(state.MOST_CONNECTIONS, state.SAMPLES),
        "hard_limits_broken_avoidable": column[state.HARD_AVOIDABLE].copy(),
        "hard_limits_broken": column[state.HARD_BROKEN].copy(),
        "soft_limits_kept_percent": 100.0 * share(state.SOFT_MET, state.LIMITED),
        "soft_limits_kept_running_percent": 100.0 * share(state.SOFT_NOW, state.LIMITED_NOW),
        "hard_limits_broken_running_percent": 100.0 * share(state.HARD_NOW, state.LIMITED_NOW),
        "saturated_nodes_percent": 100.0 * share(state.SATURATED, state.USED),
        "refused_pods": column[state.REFUSED].copy(),
        "placed_pods": column[state.PLACED].copy(),
    }
    return {name: result[name] for name in FIGURES}


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
            others do not, see `policies.node_metrics.latency_filter`; None: if `latency-aware` is rewarded.
    """

    objective: str = "latency-aware"
    settings: LatencySettings = DEFAULT_SETTINGS
    penalty: float = 1.0
    step_limit: int | None = None
    keep_hard_limits: bool | None = None

    def __post_init__(self) -> None:
        check_limits(self.penalty, self.step_limit)


class LatencyCore(EnvCore):
    """E clusters with telemetry.

    Every pod that fits on some node is a decision; a pod that fits nowhere is dropped. The reward is computed from the
    true state after the action; agents observe measurements.
    """

    def __init__(self, count: int, options: LatencyOptions) -> None:
        self.options, self.settings = options, checked(options.settings)
        objective = registry.resolve(options.objective)
        check_objectives(objective, "steersman/Latency-v0")
        super().__init__(count, TELEMETRY, self.settings.max_nodes)
        is_latency_aware = any(each.name == "latency-aware" for each in objective.objectives)
        self.filters = is_latency_aware if options.keep_hard_limits is None else options.keep_hard_limits
        self.simulator = new_simulator_state(self.settings, count)
        self.task = stepping.LatencyConfig(
            objectives=np.array([TELEMETRY_OBJECTIVES[each.name] for each in objective.objectives], dtype=np.int64),
            weights=np.array(objective.weights, dtype=np.float64),
            row=np.zeros((count, summary.COLUMNS)),
            counts=np.zeros((count, stepping.COUNTS), dtype=np.int64),
            penalty=float(options.penalty),
            step_limit=2 * self.settings.pods if options.step_limit is None else options.step_limit,
        )

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
        if not stepping.begin(self.simulator, self.settings, self.task, self.observation, e, np.uint64(seed), nodes):
            raise SteersmanError("no pod fits on any node")
        # The filter narrows the mask that agents see; a node outside it counts as illegal.
        if self.filters:
            filter_environments(self.simulator.scheduler_view, self.observation.mask, e, e + 1)

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        stepping.step(
            self.simulator,
            self.settings,
            self.task,
            self.observation,
            actions,
            StepResults(self.rewards, self.terminated, self.truncated),
        )
        if self.filters:
            filter_environments(self.simulator.scheduler_view, self.observation.mask, 0, self.count)

    def heuristic(self, rule: int) -> npt.NDArray[np.int64]:
        """Return [E] what a rule of `policies.node_metrics.rules` would do among the nodes of the mask."""
        actions = np.zeros(self.count, dtype=np.int64)
        decide_all(rule, self.simulator.scheduler_view, self.observation.mask, actions)
        return actions

    def rule_actions(self, name: str) -> npt.NDArray[np.int64]:
        """Return [E] what the rule of that name would do. Raises UsageError: there is none."""
        return self.heuristic(rule_number(name))

    def infos(self) -> Arrays:
        """Return the mean share of CPU used and its variance, nodes in use, illegal actions, limits kept.

        When an episode ends its metrics, see `envs.latency.environment`, are included.
        """
        row, counts = self.task.row, self.task.counts
        nodes = np.maximum(row[:, summary.CPU_NODES], 1)
        mean = row[:, summary.CPU_SHARE] / nodes
        ended = (self.terminated | self.truncated).any()
        return (self.figures() if ended else {}) | {
            "cpu_used": mean,
            "node_variance": np.maximum(row[:, summary.CPU_SQUARE] / nodes - mean**2, 0.0),
            "nodes_used": row[:, summary.NODES_USED].copy(),
            "illegal": counts[:, stepping.ILLEGAL] == 1,
            "within_soft": counts[:, stepping.KEPT] == WITHIN_SOFT,
            "within_hard": counts[:, stepping.KEPT] <= WITHIN_HARD,
        }

    def figures(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return metrics of each episode so far, [E] by name (`episode_metrics`); read them before the next reset."""
        return figures(self.simulator.total)

    def now(self, e: int) -> float:
        """Return the seconds since the start of the episode of environment `e`."""
        return float(self.simulator.clock[e, NOW])

    def pods_on_nodes(self, e: int) -> npt.NDArray[np.int64]:
        """Return [n] the pods on each node of environment `e`."""
        # Flat arrays: environment `e` has the rows from e N on, see `policies.node_metrics.arrays`.
        first, count = e * self.max_nodes, int(self.simulator.scheduler_view.counts[e, NODES])
        nodes = self.simulator.scheduler_view.nodes
        return (nodes.allocatable - nodes.free)[first : first + count, PODS]

    def latency_of_placement(self, e: int, n: int) -> float:
        """Return the milliseconds to its users that the current pod would have on a node; NaN if it has no users."""
        return float(stepping.placement_latency(self.simulator, self.settings, e, n))

    def state(self) -> Arrays:
        arrays = dict(arrays_of(self.simulator, "world."))
        arrays |= {"task.row": self.task.row, "task.counts": self.task.counts}
        return arrays | {f"observation.{name}": array for name, array in arrays_of(self.observation)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.simulator = restored(self.simulator, arrays, "world.")
        self.task.row[:] = arrays["task.row"]
        self.task.counts[:] = arrays["task.counts"]
        for name, array in arrays_of(self.observation):
            array[:] = arrays[f"observation.{name}"]

    def names(self, e: int) -> list[str]:
        zones = self.simulator.scheduler_view.zone[e, : self.simulator.scheduler_view.counts[e, NODES]]
        return [f"node-{n}-zone-{zone}" for n, zone in enumerate(zones)]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        count = int(self.simulator.scheduler_view.counts[e, NODES])
        first = e * self.max_nodes
        total = self.simulator.scheduler_view.nodes.allocatable[first : first + count]
        use = self.simulator.node_use[e, :count]
        cpu = self.simulator.system[e, :count] + (use[:, :, USE_CPU] * self.simulator.load[e]).sum(axis=1)
        shares = np.full((count, 3), np.nan)
        shares[:, 0] = np.minimum(cpu / total[:, 0], 1.0)
        shares[:, 1] = use[:, :, USE_MEMORY].sum(axis=1) / total[:, MEMORY]
        return shares


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
