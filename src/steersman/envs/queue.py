"""`steersman/Queue-v0`: an agent chooses who goes next among the pods that wait; a policy places them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from steersman.core.errors import SteersmanError, UsageError
from steersman.core.handles import NO_LIMIT, CoreOrder, CoreRunTimes, RunProgress, Standing, Stop
from steersman.envs.base import check_limits, known_options, make_options
from steersman.envs.workload import WorkloadLike, workload_of
from steersman.orders import scores
from steersman.orders.order import ANYBODY, OVERTAKING, Order, parse_estimates
from steersman.orders.registry import find_order
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import schedule, window
from steersman.simulation.run import Execution, Simulator
from steersman.simulation.waiting import bounded_slowdown
from steersman.workloads.formats.openb import SMALL

Observation = dict[str, npt.NDArray[Any]]
Floats = npt.NDArray[np.float64]
Objective = Literal["bounded-slowdown", "waiting-time"]

COMMITTING = tuple(name for name, value in OVERTAKING.items() if value != ANYBODY)
JOB_FEATURES = ("estimate", "size", "wait", "fits", "spread", "gang", "priority")
CONTEXT_FEATURES = ("free", "queue")
BOUND = 20.0  # features are clipped to plus and minus this
RESET_OPTIONS = ("workload", "seed", "first", "load")
HOUR = 3600.0
MOST_ROWS = 100_000  # of an observation


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Options of the environment."""

    workload: WorkloadLike | Sequence[WorkloadLike] = SMALL  # one or several; each episode draws one
    # Arrivals of an episode: consecutive ones of the trace from a random one on, or generated with `load`
    jobs: int = 256
    load: float | None = 1.1  # demand over capacity of generated arrivals; None: the times of the trace
    overtaking: str = "none"  # who may overtake the chosen pod while it does not fit: `none` or `easy`
    estimates: str = "auto"  # where estimates of run times come from, see `orders.order`
    # `bounded-slowdown` or `waiting-time` (in hours); an episode's return is its mean with the other sign
    objective: Objective = "bounded-slowdown"
    policy: str = "best-fit"  # the policy that chooses nodes
    max_jobs: int = 128  # M, how many waiting pods the agent sees, the oldest; of equal ones it sees the oldest alone
    penalty: float = 1.0  # cost of an illegal action, which changes nothing

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise UsageError(f"jobs must be at least 1, not {self.jobs}")
        if not 1 <= self.max_jobs <= MOST_ROWS:
            raise UsageError(f"max_jobs must be at least 1 and at most {MOST_ROWS}, not {self.max_jobs}")
        if self.overtaking not in COMMITTING:
            raise UsageError(f"overtaking {self.overtaking!r}: expected {' or '.join(COMMITTING)}")
        if self.objective not in (known := get_args(Objective)):
            raise UsageError(f"objective {self.objective!r}: expected {' or '.join(known)}")
        check_limits(self.penalty, None)


class QueueEnv(gymnasium.Env[Observation, np.int64]):
    """Pods arrive, and an agent chooses which of those that wait goes next.

    The chosen pod starts as soon as it fits; until then others may overtake it only as `overtaking` allows. The agent
    is asked when nobody is chosen and several may be; of several priorities the highest alone may be chosen.

    Observation (`gymnasium.spaces.Dict`): `jobs` [M, 7] float32 (`JOB_FEATURES`), `context` [2] float32
    (`CONTEXT_FEATURES`), `mask` [M] int8 (what may be chosen). Action: the row of a pod, 0 to M - 1. The reward is what
    the pods that have started since the last action add to the objective, with the other sign.

    Args:
        render_mode: `ansi`, a line of text.
        **options: see `QueueOptions`.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 (gymnasium's way)

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        if render_mode not in (None, "ansi"):
            raise UsageError(f"render_mode {render_mode!r} is unknown; there is ansi")
        self.options, self.render_mode = make_options(QueueOptions, options), render_mode
        given = self.options.workload
        several = [given] if isinstance(given, str) or not isinstance(given, Sequence) else list(given)
        if not several:
            raise UsageError("workload: give one or more")
        self._simulators = [Simulator(workload_of(each)) for each in several]
        order = Order(
            "agent",
            scores.EXTERNAL,
            OVERTAKING[self.options.overtaking],
            estimates=parse_estimates(self.options.estimates),
        )
        self._policy = with_order(resolve(self.options.policy), order)
        count = self.options.max_jobs
        space: Any = spaces.Dict(
            {
                "jobs": spaces.Box(-BOUND, BOUND, (count, len(JOB_FEATURES)), dtype=np.float32),
                "context": spaces.Box(-BOUND, BOUND, (len(CONTEXT_FEATURES),), dtype=np.float32),
                "mask": spaces.Box(0, 1, (count,), dtype=np.int8),
            }
        )
        self.observation_space = space
        self.action_space = spaces.Discrete(count)
        self._execution: Execution | None = None
        self._rows = np.zeros(0, dtype=np.int64)
        self._mask = np.zeros(count, dtype=np.int8)
        self._estimates = np.zeros((0, 2))
        self._followed, self._cost, self._over = 0, 0.0, True
        self._owed = 0.0
        self._now: RunProgress
        self._standing: Standing

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new episode, at the first choice between pods.

        Options: `workload` (a name), `seed` (of arrivals and ties), `first` (the first arrival), `load`.

        Raises:
            UsageError: an option is unknown or out of range.
            SteersmanError: in 100 draws nobody had to wait.
        """
        super().reset(seed=seed)
        known = known_options(options, RESET_OPTIONS)
        for _ in range(1 if "first" in known else 100):
            self._begin(known)
            if not self._over:
                return self._observe(), {}
        raise SteersmanError(f"{self._policy.name}: nobody had to choose between waiting pods; give more jobs or load")

    def _begin(self, options: Mapping[str, Any]) -> None:
        names = [simulator.workload.name for simulator in self._simulators]
        if options.get("workload", names[0]) not in names:
            raise UsageError(
                f"reset option 'workload' {options['workload']!r} is unknown; there are {', '.join(names)}"
            )
        drawn = int(self.np_random.integers(len(names)))
        simulator = self._simulators[names.index(options["workload"]) if "workload" in options else drawn]
        seed = int(options.get("seed", self.np_random.integers(1 << 31)))
        load = options.get("load", self.options.load)
        if load is not None and "first" in options:
            raise UsageError("reset option 'first': arrivals are generated by 'load'; set load to None")
        plan = schedule(simulator.workload, "timed", seed=seed, ratio=1.0, load=load)
        count = min(self.options.jobs, len(plan.pods))
        if load is None:
            latest = len(plan.pods) - count
            first = int(options.get("first", self.np_random.integers(latest + 1)))
            if not 0 <= first <= latest:
                raise UsageError(f"reset option 'first' {first}: expected 0 to {latest}")
            plan = window(plan, first, count)
        else:
            plan = window(plan, 0, min(plan.standing + plan.warm + count, len(plan.pods)))
        self._execution = Execution(simulator, plan, self._policy, seed, record=False)
        self._followed, self._cost = 0, 0.0
        # What is added before the first choice counts in the first reward, so that rewards sum up to the objective.
        self._owed = self._advance()

    def _advance(self) -> float:
        assert self._execution is not None
        stop = Stop.NEEDS_NODE
        while stop == Stop.NEEDS_NODE:
            stop = self._execution.advance(NO_LIMIT)
            if stop == Stop.NEEDS_NODE:
                self._execution.answer()
        self._over = stop == Stop.DONE
        self._now = self._execution.engine.progress
        self._standing = self._execution.standing
        return self._follow()

    def _follow(self) -> float:
        """Return what pods that started since the last call add to the mean of the objective."""
        assert self._execution is not None
        time, numbers, _ = self._execution.engine.events(self._followed)
        self._followed = self._now.events
        started = numbers[:, event_arrays.OUTCOME] == event_arrays.BOUND
        who = numbers[:, event_arrays.ARRIVAL][started]
        wait, duration = time[started] - self._standing.time[who], self._execution.plan.duration[who]
        values = wait / HOUR if self.options.objective == "waiting-time" else bounded_slowdown(wait, duration)
        added = float(values.sum()) / len(self._execution.plan.pods)
        self._cost += added
        return added

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Choose who goes next.

        Raises:
            UsageError: the action is not in the action space, or no episode is under way.
        """
        if self._over or self._execution is None:
            raise UsageError("no episode is under way; call reset() first")
        given = np.asarray(action)
        if given.shape != () or not np.issubdtype(given.dtype, np.integer):
            raise UsageError(f"action {action!r} is not a row; expected a whole number")
        row = int(given)
        if not 0 <= row < self.options.max_jobs:
            raise UsageError(f"action {row} is out of range; expected a row from 0 to {self.options.max_jobs - 1}")
        if not self._mask[row]:
            infos = {self.options.objective: self._cost, "illegal": True}
            return self._observe(), -self.options.penalty, False, False, infos
        self._execution.engine.set_head(int(self._execution.described.groups[self._rows[row]]))
        reward, self._owed = -self._owed - self._advance(), 0.0
        infos = {self.options.objective: self._cost, "illegal": False}
        return self._observe(), reward, self._over, False, infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return [M] which actions are legal now, for SB3's `MaskablePPO`."""
        return self._mask.astype(np.bool_)

    def order_action(self, name: str) -> int:
        """Return whom an order of `orders.registry` would choose now, by its score alone.

        Raises:
            UsageError: the order is unknown or cannot be computed here, or no episode is under way.
        """
        if self._over or self._execution is None:
            raise UsageError("no episode is under way; call reset() first")
        order = find_order(name)
        if order.score == scores.FAIR or order.uses_delay:
            reads = "what namespaces have running" if order.score == scores.FAIR else "the delay"
            raise UsageError(f"order {name!r} reads {reads}, which is not known here")
        chosen = self._mask[: len(self._rows)] == 1
        heads, estimates = self._rows[chosen], self._estimates[chosen]
        total, time = self._execution.described.totals[heads], self._standing.time[heads]
        pods = [self._execution.simulator.workload.pods[i] for i in self._execution.plan.pods[heads]]
        if order.score == scores.GIVEN:
            values = order.scores_at_arrival(time, total, pods)
        else:
            now = self._now.time
            moment = np.full((len(heads), 3), (self._free(), self._now.waiting, 0.0))
            columns = *_seconds_and_spread(estimates), total, self._share(heads), now - time, time
            ordered = CoreOrder(CoreRunTimes(1), order.score, np.array(order.weights, dtype=np.float64))
            values = ordered.scores(np.column_stack([*columns, moment]))
        return int(np.flatnonzero(self._mask)[int(np.argmin(values))])

    def render(self) -> Any:
        """Return a line about the queue, if the render mode is `ansi`."""
        if self.render_mode is None or self._execution is None:
            return None
        return f"{self._now.time:.0f} s: {self._now.waiting} wait, {self._free():.0%} free, cost {self._cost:.2f}\n"

    def _free(self) -> float:
        assert self._execution is not None
        queued = self._execution.simulator.queued
        used = self._now.gpu_milli if queued.by_gpu else self._now.cpu_milli
        return 1.0 - used / (1000.0 * queued.capacity)

    def _share(self, heads: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        assert self._execution is not None
        capacity = self._execution.simulator.queued.capacity
        return np.asarray(np.minimum(self._execution.described.totals[heads] / capacity, 1.0))

    def _observe(self) -> Observation:
        assert self._execution is not None
        count = self.options.max_jobs
        jobs = np.zeros((count, len(JOB_FEATURES)), dtype=np.float32)
        self._mask = np.zeros(count, dtype=np.int8)
        heads, estimates = self._execution.engine.heads(len(self._execution.plan.pods))
        priority = self._execution.described.priority
        # Those that may be chosen come first, or a longer queue would hide them.
        first = np.argsort(-priority[heads], kind="stable")[: 0 if self._over else count]
        self._rows, self._estimates = heads, estimates = heads[first], estimates[first]
        if len(heads):
            highest = priority[heads].max()
            self._mask[: len(heads)] = priority[heads] == highest
            share, free = self._share(heads), self._free()
            seconds, spread = _seconds_and_spread(estimates)
            columns = (
                (np.log(seconds) - 7.0) / 3.0,
                (np.log(np.maximum(share, 1e-6)) + 3.0) / 2.0,
                (np.log1p(self._now.time - self._standing.time[heads]) - 6.0) / 3.0,
                (share <= free + 1e-9).astype(np.float64),
                spread,
                (self._standing.members[heads] > 1).astype(np.float64),
                (priority[heads] - highest).astype(np.float64),
            )
            jobs[: len(heads)] = np.clip(np.stack(columns, axis=1), -BOUND, BOUND)
        context = np.array([self._free(), (math.log1p(self._now.waiting) - 4.0) / 2.0], dtype=np.float32)
        return {"jobs": jobs, "context": np.clip(context, -BOUND, BOUND), "mask": self._mask.copy()}


def _seconds_and_spread(estimates: Floats) -> tuple[Floats, Floats]:
    """Return run times in seconds, [J], and their spreads, [J], of estimates, [J, 2], which are NaN where unknown.

    The event loop computes an estimate when it first needs it; until then the prior's median stands for it.
    """
    seconds, spread = estimates.T
    return np.maximum(np.nan_to_num(seconds, nan=HOUR), 1.0), np.nan_to_num(spread)
