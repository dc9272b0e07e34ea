"""`steersman/Latency-v0`: a simulated cluster with telemetry, in which an agent chooses the nodes of arriving pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import MEMORY
from steersman.envs.buffers import arrays_of, restored
from steersman.envs.core import Arrays, Core, known_options
from steersman.envs.kernels import latency as stepping
from steersman.envs.single import SchedulingEnv
from steersman.envs.vector import SteersmanVectorEnv
from steersman.errors import SteersmanError, UsageError
from steersman.objectives import measures, registry, summary
from steersman.policies.telemetry_filter import keep_hard_limits
from steersman.policies.telemetry_rules import decide_all, rule_number
from steersman.policies.telemetry_view import TELEMETRY
from steersman.telemetry.figures import figures
from steersman.telemetry.model import NODES, USE_CPU, USE_MEMORY, WITHIN_HARD, WITHIN_SOFT, new_world
from steersman.telemetry.settings import Settings, checked

RESET_OPTIONS = ("seed", "nodes")
SEEDS = 1 << 31
DEFAULT_SETTINGS = Settings()

OBJECTIVES = {
    "balance": measures.BALANCE,
    "most-allocated": measures.MOST_ALLOCATED,
    "least-allocated": measures.LEAST_ALLOCATED,
    "least-connections": stepping.LEAST_CONNECTIONS,
    "latency-aware": stepping.LATENCY_AWARE,
}
"""What can be rewarded here; CPU is what is used, not what is requested."""


@dataclass(frozen=True, slots=True)
class LatencyOptions:
    """What an environment plays.

    Attributes:
        objective: what is rewarded, see `objectives.registry`; one of `OBJECTIVES`, or a mix of them.
        settings: the cluster and its workload.
        penalty: what an illegal action costs; it changes nothing else.
        step_limit: steps after which an episode is truncated; None: twice the pods, which only illegal actions reach.
        keep_hard_limits: whether the mask leaves out nodes that put the hard limit of a pod's latency at risk where
            others do not, see `policies.telemetry_filter`; None: if `latency-aware` is rewarded.
    """

    objective: str = "latency-aware"
    settings: Settings = DEFAULT_SETTINGS
    penalty: float = 1.0
    step_limit: int | None = None
    keep_hard_limits: bool | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.penalty < 1e9:
            raise UsageError(f"penalty {self.penalty} is out of range; 0 or more is right")
        if self.step_limit is not None and self.step_limit < 1:
            raise UsageError(f"step_limit {self.step_limit} is out of range; 1 or more is right")


class LatencyCore(Core):
    """E clusters with telemetry.

    Every pod that fits on some node is asked for; a pod that fits nowhere is refused without a question. The reward is
    about what is true after the action; agents see what is measured.

    Args:
        count: E.
        options: what to play.

    Raises:
        UsageError: an option is wrong, or an objective means nothing here.
    """

    def __init__(self, count: int, options: LatencyOptions) -> None:
        self.options, self.settings = options, checked(options.settings)
        mix = registry.resolve(options.objective)
        for objective in mix.objectives:
            if objective.name not in OBJECTIVES:
                raise UsageError(
                    f"objective {objective.name!r} means nothing in steersman/Latency-v0; these do: "
                    f"{', '.join(OBJECTIVES)}"
                )
        super().__init__(count, TELEMETRY, self.settings.max_nodes)
        asked = any(objective.name == "latency-aware" for objective in mix.objectives)
        self.filters = asked if options.keep_hard_limits is None else options.keep_hard_limits
        self.world = new_world(self.settings, count)
        self.task = stepping.Task(
            objectives=np.array([OBJECTIVES[objective.name] for objective in mix.objectives], dtype=np.int64),
            weights=np.array(mix.weights, dtype=np.float64),
            row=np.zeros((count, summary.COLUMNS)),
            counts=np.zeros((count, stepping.COUNTS), dtype=np.int64),
            penalty=float(options.penalty),
            step_limit=2 * self.settings.pods if options.step_limit is None else options.step_limit,
        )

    def start(self, e: int, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """See `Core`. Options: `seed` (of the cluster and its workload), `nodes` (how many, up to `max_nodes`)."""
        known = known_options(options, RESET_OPTIONS)
        drawn = int(rng.integers(SEEDS))
        seed = known.get("seed", drawn)
        nodes = known.get("nodes", self.settings.nodes)
        if not (isinstance(seed, int) and 0 <= seed < 1 << 63):
            raise UsageError(f"reset option 'seed' {seed!r} is not a whole number of 0 or more")
        if not (isinstance(nodes, int) and 2 <= nodes <= self.max_nodes):
            raise UsageError(f"reset option 'nodes' {nodes!r} is out of range; 2 to {self.max_nodes} is right")
        if not stepping.begin(self.world, self.settings, self.task, self.observation, e, np.uint64(seed), nodes):
            raise SteersmanError("no pod fits on any node")
        if self.filters:
            keep_hard_limits(self.world.seen, self.observation.mask, e, e + 1)

    def step(self, actions: npt.NDArray[np.int64]) -> None:
        """See `Core`."""
        stepping.step(
            self.world,
            self.settings,
            self.task,
            self.observation,
            actions,
            self.rewards,
            self.terminated,
            self.truncated,
        )
        if self.filters:
            keep_hard_limits(self.world.seen, self.observation.mask, 0, self.count)

    def heuristic(self, rule: int) -> npt.NDArray[np.int64]:
        """[E] what a rule of `policies.telemetry_rules` would do among the nodes of the mask."""
        actions = np.zeros(self.count, dtype=np.int64)
        decide_all(rule, self.world.seen, self.observation.mask, actions)
        return actions

    def rule_actions(self, name: str) -> npt.NDArray[np.int64]:
        """The same by the rule's name. Raises UsageError: there is none."""
        return self.heuristic(rule_number(name))

    def infos(self) -> Arrays:
        """Mean share of CPU used and its variance, nodes in use, illegal actions, how the pod's limits are kept.

        When an episode ends its figures, see `telemetry.figures`, are there, too.
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
        """What each episode came to so far, [E] by name, see `telemetry.figures`; read it before the next reset."""
        return figures(self.world.total)

    def state(self) -> Arrays:
        """See `Core`."""
        arrays = dict(arrays_of(self.world, "world."))
        arrays |= {"task.row": self.task.row, "task.counts": self.task.counts}
        return arrays | {f"observation.{name}": array for name, array in arrays_of(self.observation)}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """See `Core`."""
        self.world = restored(self.world, arrays, "world.")
        self.task.row[:] = arrays["task.row"]
        self.task.counts[:] = arrays["task.counts"]
        for name, array in arrays_of(self.observation):
            array[:] = arrays[f"observation.{name}"]

    def names(self, e: int) -> list[str]:
        """See `Core`."""
        zones = self.world.seen.zone[e, : self.world.seen.counts[e, NODES]]
        return [f"node-{n}-zone-{zone}" for n, zone in enumerate(zones)]

    def loads(self, e: int) -> npt.NDArray[np.float64]:
        """See `Core`: CPU and memory that are used."""
        count = int(self.world.seen.counts[e, NODES])
        first = e * self.max_nodes
        total = self.world.seen.nodes.allocatable[first : first + count]
        use = self.world.node_use[e, :count]
        cpu = self.world.system[e, :count] + (use[:, :, USE_CPU] * self.world.load[e]).sum(axis=1)
        shares = np.full((count, 3), np.nan)
        shares[:, 0] = np.minimum(cpu / total[:, 0], 1.0)
        shares[:, 1] = use[:, :, USE_MEMORY].sum(axis=1) / total[:, MEMORY]
        return shares


class LatencyEnv(SchedulingEnv):
    """Pods of Deployments come and leave; what nodes use is measured late, with errors, and sometimes not at all.

    Args:
        render_mode: see `SchedulingEnv`.
        **options: see `LatencyOptions`, and of `telemetry.settings.Settings` what is to be different.
    """

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(LatencyCore(1, _options(options)), render_mode=render_mode)


class LatencyVectorEnv(SteersmanVectorEnv):
    """`LatencyEnv` `num_envs` times, see `SteersmanVectorEnv`."""

    def __init__(self, num_envs: int = 1, *, copy: bool = True, render_mode: str | None = None, **options: Any) -> None:
        super().__init__(LatencyCore(num_envs, _options(options)), copy=copy, render_mode=render_mode)


def _options(given: Mapping[str, Any]) -> LatencyOptions:
    """Options with those settings that are named by themselves. Raises UsageError: one is unknown."""
    known = LatencyOptions.__dataclass_fields__
    for name in given:
        if name not in known and name not in Settings._fields:
            raise UsageError(f"option {name!r} is unknown; there are {', '.join((*known, *Settings._fields))}")
    changes = {name: value for name, value in given.items() if name in Settings._fields}
    options = {name: value for name, value in given.items() if name in known}
    options["settings"] = options.get("settings", Settings())._replace(**changes)
    return LatencyOptions(**options)
