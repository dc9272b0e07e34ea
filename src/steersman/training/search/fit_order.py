"""Fit an order of waiting pods to a history of arrivals, and keep what a paired test supports.

The history is divided by time: the search draws windows from its earlier part, and the other orders and the result
are compared on windows of the later part, at loads to which the windows' times are scaled. A search for weights is
noisy and a history is one history, so a learned order is kept only if it is clearly better than the best of the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import OrderSearch, OrderSearchConfig, OrderTask, learned_order, waits_under
from steersman.core.errors import UsageError
from steersman.core.statistics import Interval, mean_interval
from steersman.orders.order import AGE, OVERTAKING, Order
from steersman.orders.order_file import OrderCard
from steersman.orders.queue import ANYBODY, EASY
from steersman.orders.registry import find_order
from steersman.orders.scores import LINEAR
from steersman.policies.base import Policy, decided_by, with_order
from steersman.simulation.arrivals import Schedule, schedule, window
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import MINUTE, Waits, percentile
from steersman.version import __version__
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]

WAITS = ("mean wait", "by GPUs", "p99, several GPUs", "longest")
WEIGHTS = (0.3, 0.3, 0.25, 0.15)
"""Of the logarithms of the four waits in the cost."""
RULES = ("age", "smallest", "shortest", "wfp3", "easy", "wfp3:easy", "learned")
"""Orders that are compared, the simplest first."""
REFERENCES = {ANYBODY: "age", EASY: "easy"}
"""By who may overtake: the order that candidates of the search are compared with."""
START = {"estimate": 1.0, "wait": -1.0, "size": -2 / 9}
"""The order of WFP3, -(w / r)^3 n, is that of 3 log(r) - 3 log(w) - log(n)."""
FITTED = "fitted"
TRAINED_PART = 0.6
"""Share of the history, by arrivals, that the search draws from."""
LOADS, MOST_LOAD = (0.8, 1.1), 100.0
MOST_ARRIVALS, LEAST_ARRIVALS = 2_000, 100
"""Arrivals of a window: at most, and half of the later part at least."""
AGEING = 7 * 24 * 3600.0
"""Ageing of a learned order in seconds, as written to its file. Training has no ageing, so that long waits cost."""
HARDLY = 0.01
"""Share of waiting pods below which a history says nothing of what an order would change in it."""
DRAWS, FIRST_DRAWS = 32, 8
"""Windows of the last comparison, and of the one that says who may overtake."""
FIRST_HELD_BACK = 2_100_000_000
MOST_GENERATIONS = 100_000
SEARCH = OrderSearchConfig(population=14, episodes=12, validate_every=4, validation=24, step=0.1, delay=False)


def four_waits(waits: Waits) -> Floats:
    """Return [4] the waits of `WAITS` in seconds, each with a minute added so that waits of seconds do not decide."""
    known = ~np.isnan(waits.seconds)
    seconds, gpus, several = waits.seconds[known], waits.demand[known].astype(np.float64), waits.kind[known] == 3
    by_gpus = float(seconds @ gpus / gpus.sum()) if gpus.any() else float(seconds.mean())
    large = percentile(seconds[several] if several.any() else seconds, 99)
    return np.array([seconds.mean(), by_gpus, large, seconds.max()]) + MINUTE


def cost(waits: Waits) -> float:
    """Return the weighted geometric mean of the four waits."""
    return float(np.exp(np.log(four_waits(waits)) @ np.array(WEIGHTS)))


def history_of(workload: Workload) -> Workload:
    """Return the pods of a workload whose run times are known and that fit on its nodes, in order of arrival.

    Pods of a trace have times of creation and deletion, Kubernetes objects those of pods that ended. The warnings are
    about those that do not fit.

    Raises:
        UsageError: there are too few.
    """
    timed = (pod for pod in workload.replayed().pods if pod.creation_time is not None)
    pods = [pod.unbound() for pod in timed if pod.deletion_time is not None]
    least = math.ceil(2 * LEAST_ARRIVALS / (1 - TRAINED_PART))
    if len(pods) < least:
        raise UsageError(
            f"{workload.name}: {len(pods)} pods have times of arrival and end; fitting an order needs at least {least}"
        )
    known, simulator = len(pods), Simulator(Workload(workload.name, workload.nodes, tuple(pods), workload.services))
    pods = [pod for pod, never in zip(pods, simulator.never_fits.tolist(), strict=True) if not never]
    if len(pods) < least:
        problem = f"{len(pods)} of {known} pods with times fit on a node; fitting an order needs at least {least}"
        raise UsageError(f"{workload.name}: {problem}; expected the history of this cluster")
    pods.sort(key=lambda pod: pod.creation_time or 0.0)
    return Workload(workload.name, workload.nodes, tuple(pods), workload.services, simulator.warnings)


@dataclass(frozen=True, slots=True)
class HistoryWindows:
    """Draw windows of a history, with times scaled to a load, and with the pods that would run at their beginning.

    Attributes:
        whole: arrivals of the history.
        plan: those of the part that windows lie in.
        demand: [P] what each pod of the workload requests, in the unit of `capacity`.
        capacity: of the cluster.
        loads: least and largest load.
        count: arrivals of a window.
    """

    whole: Schedule
    plan: Schedule
    demand: Floats
    capacity: float
    loads: tuple[float, float]
    count: int

    @property
    def history_load(self) -> float:
        """Return the load of the history as it is."""
        span = max(float(self.whole.time[-1] - self.whole.time[0]), 1.0)
        return float(self.demand[self.whole.pods] @ self.whole.duration) / (self.capacity * span)

    def __call__(self, workload: Workload, seed: int) -> Schedule:
        """Return the arrivals of a seed, see `agents.evolution.orders.Draw`."""
        random = np.random.default_rng(seed)
        load = float(random.uniform(*self.loads))
        part = window(self.plan, int(random.integers(len(self.plan.pods) - self.count + 1)), self.count)
        since = part.time - part.time[0]
        work = float(self.demand[part.pods] @ part.duration)
        scale = work / (load * self.capacity * max(float(since[-1]), 1.0))
        # As if nobody before had waited. An empty cluster would take in a window of long pods without anybody waiting.
        before = int(np.flatnonzero(self.whole.pods == part.pods[0])[0])
        left = self.whole.duration[:before] - (part.time[0] - self.whole.time[:before]) * scale
        running = np.flatnonzero(left > 0.0)
        return replace(
            part,
            pods=np.concatenate([self.whole.pods[running], part.pods]),
            time=np.concatenate([np.zeros(len(running)), since * scale]),
            duration=np.concatenate([left[running], part.duration]),
            members=np.concatenate([np.ones(len(running), dtype=np.int64), part.members]),
            least=np.concatenate([np.ones(len(running), dtype=np.int64), part.least]),
            nodes=workload.shuffled_nodes(random),
            warm=len(running),
        )


def history_windows(history: Workload, loads: tuple[float, float]) -> tuple[HistoryWindows, HistoryWindows]:
    """Return windows of the earlier part of a history, for the search, and of the later one."""
    plan = schedule(history, "timed", seed=1, ratio=1.0, load=None)
    demand, capacity = np.array(history.gpu_demand, dtype=np.float64), float(history.gpu_capacity)
    if not (capacity and demand.any()):
        demand = np.array([pod.requests.cpu_milli for pod in history.pods], dtype=np.float64)
        capacity = float(sum(node.cpu_milli for node in history.eligible_nodes))
    if not (capacity and demand.any()):
        raise UsageError(f"{history.name}: its pods request no GPU and no CPU, so there is no load to scale to")
    edge, last = int(TRAINED_PART * len(plan.pods)), len(plan.pods)
    parts = window(plan, 0, edge), window(plan, edge, last - edge)
    count = min(MOST_ARRIVALS, min(len(part.pods) for part in parts) // 2)
    earlier, later = (HistoryWindows(plan, part, demand, capacity, loads, count) for part in parts)
    return earlier, later


@dataclass(frozen=True, slots=True)
class OrderFitOptions:
    """Options of a fit.

    Attributes:
        seconds: of the search; the comparison comes on top of it. None: until the generations are done.
        generations: at most; with these alone the result depends on the seed only.
        loads: least and largest load of the windows.
        seed: of the search.
        search: further options of the search.

    Raises:
        UsageError: the loads are none, or in the wrong order.
    """

    seconds: float | None = 120.0
    generations: int = MOST_GENERATIONS
    loads: tuple[float, float] = LOADS
    seed: int = 1
    search: OrderSearchConfig = SEARCH

    def __post_init__(self) -> None:
        """Check the values."""
        least, most = self.loads
        if not 0 < least <= most <= MOST_LOAD:
            text = f"loads {least:g}-{most:g}"
            if least > most > 0:
                raise UsageError(f"{text}: the first must be at most the second; expected {most:g}-{least:g}")
            raise UsageError(f"{text}: expected two numbers above 0, at most {MOST_LOAD:g}")


@dataclass(frozen=True, slots=True)
class OrderFit:
    """The result of a fit.

    Attributes:
        chosen: name of the recommended order, `FITTED` if it is the search's.
        waits: by order [draws, 4] the waits of `WAITS` in seconds, with a minute added.
        ratio: geometric mean of the cost of the search's order over that of the best other one, and its 95 %
            interval.
        rival: name of that one.
        generations: of the search.
        order, card: of the search's order, for an order file.
        loads: least and largest load of the windows.
        history_load, history_waiting: load of the history, and share of its pods that wait for more than a minute in
            it in the order of age.
        warnings: about pods of the history that do not fit.
    """

    chosen: str
    waits: Mapping[str, Floats]
    ratio: float
    interval: Interval
    rival: str
    generations: int
    order: Order
    card: OrderCard
    loads: tuple[float, float]
    history_load: float
    history_waiting: float
    warnings: tuple[str, ...]

    def relative(self, name: str) -> list[tuple[float, Interval]]:
        """Return the four waits of an order over those of the order of age: geometric means and 95 % intervals."""
        logarithms = np.log(self.waits[name] / self.waits[AGE.name])
        return [(float(np.exp(column.mean())), _exp(mean_interval(column))) for column in logarithms.T]

    @property
    def nobody_waits(self) -> bool:
        """Return whether no pod waits in any window in the order of age, so that orders cannot differ."""
        return bool((self.waits[AGE.name] <= MINUTE).all())

    @property
    def hardly_waits(self) -> bool:
        """Return whether practically no pod waits in the history as it is, whatever the order."""
        return self.history_waiting < HARDLY

    def ranking(self) -> list[str]:
        """Return the orders, the one with the least cost first; of equal ones the simpler."""
        return sorted(self.waits, key=lambda name: _cost(self.waits[name]).mean())


OnGeneration = Callable[[int, float], None]
"""Called after each generation with its number and the share of the budget that is spent."""


def fit_order(
    workload: Workload,
    policy: Policy,
    options: OrderFitOptions,
    *,
    jobs: int = 1,
    on_generation: OnGeneration | None = None,
) -> OrderFit:
    """Fit an order to a history.

    Args:
        workload: nodes, and pods with times of arrival and end.
        policy: places the pods.
        options: time and loads.
        jobs: number of processes of the search.
        on_generation: called after each generation.

    Raises:
        UsageError: too few pods have such times and fit, or they request nothing, or the policy has an order.
    """
    if policy.order != AGE:
        problem = f"policy {policy.name} has the order {policy.order.name}, and all orders are compared"
        raise UsageError(f"{problem}; expected a policy without one, such as fgd or FILE+age")
    history = history_of(workload)
    earlier, later = history_windows(history, options.loads)
    simulator = Simulator(history)
    if policy.members:
        choice = simulator.member(policy, protocol="timed", load=float(np.mean(options.loads)))
        policy = decided_by(policy, choice.policy)
    rules = {name: find_order(name) for name in RULES}
    before = _compare(simulator, policy, rules, earlier, FIRST_DRAWS)
    # Reservations help where large pods starve, and cost much where nearly all pods are small.
    best = min(RULES, key=lambda name: _cost(before[name]).mean())
    task = OrderTask((history,), earlier, cost, policy, find_order(REFERENCES[rules[best].overtaking]))
    config = replace(options.search, generations=options.generations, seed=options.seed)
    weights, gain, generations = _search(task, config, options.seconds, jobs, on_generation)
    searched = learned_order(replace(task.reference, ageing=AGEING), weights, FITTED)
    waits = _compare(simulator, policy, {**rules, FITTED: searched}, later, DRAWS)
    rival = min(RULES, key=lambda name: _cost(waits[name]).mean())
    logarithms = _cost(waits[FITTED]) - _cost(waits[rival])
    interval = mean_interval(logarithms)
    chosen = FITTED if interval.high < 0 else rival
    load = earlier.history_load
    seconds = waits_under(with_order(policy, AGE), simulator, earlier.whole, FIRST_HELD_BACK).seconds
    card = _card(history, searched, task.reference, gain, config, options, load)
    return OrderFit(
        chosen,
        waits,
        float(np.exp(logarithms.mean())),
        _exp(interval),
        rival,
        generations,
        searched,
        card,
        options.loads,
        load,
        # Of those that never start, NaN, it is not known for how long.
        float((~(seconds <= MINUTE)).mean()),
        simulator.warnings,
    )


def _search(
    task: OrderTask,
    config: OrderSearchConfig,
    seconds: float | None,
    jobs: int,
    on_generation: OnGeneration | None,
) -> tuple[Floats, float, int]:
    """Return the best weights, their gain in validation, and the number of generations."""
    began, done = time.monotonic(), 0
    start = np.array([START.get(name, 0.0) for name in LINEAR])
    search = OrderSearch(task, config, jobs=jobs, start=start)
    try:
        while done < config.generations:
            search.generation()
            done += 1
            spent = (time.monotonic() - began) / seconds if seconds else 0.0
            if on_generation is not None:
                on_generation(done, min(1.0, max(spent, done / config.generations)))
            if spent >= 1.0:
                break
        if search.best_gain == -math.inf:
            search.validate()
    finally:
        search.close()
    return search.best, search.best_gain, done


def _compare(
    simulator: Simulator, policy: Policy, orders: Mapping[str, Order], windows: HistoryWindows, draws: int
) -> dict[str, Floats]:
    """Return by order [draws, 4] the waits in the same windows."""
    found: dict[str, list[Floats]] = {name: [] for name in orders}
    for k in range(draws):
        plan = windows(simulator.workload, FIRST_HELD_BACK + k)
        for name, order in orders.items():
            waits = waits_under(with_order(policy, order), simulator, plan, FIRST_HELD_BACK + k)
            found[name].append(four_waits(waits))
    return {name: np.array(rows) for name, rows in found.items()}


def _cost(waits: Floats) -> Floats:
    """Return [draws] the logarithm of the cost from the four waits, [draws, 4]."""
    return np.asarray(np.log(waits) @ np.array(WEIGHTS))


def _exp(interval: Interval) -> Interval:
    return Interval(math.exp(interval.low), math.exp(interval.high))


def _card(
    history: Workload,
    order: Order,
    reference: Order,
    gain: float,
    config: OrderSearchConfig,
    options: OrderFitOptions,
    load: float,
) -> OrderCard:
    names = {value: name for name, value in OVERTAKING.items()}
    return OrderCard(
        name=order.name,
        overtaking=names[order.overtaking],
        estimates=order.run_times.source,
        ageing=order.ageing,
        hidden=config.hidden,
        objective=objective_text(),
        training=(history.name,),
        settings={
            **asdict(config),
            "loads": f"{options.loads[0]:g} to {options.loads[1]:g}",
            "history_load": float(f"{load:.3g}"),
        },
        gain=gain,
        reference=reference.name,
        made_by=__version__,
    )


def objective_text() -> str:
    """Return the logarithm of `cost` in words."""
    return ", ".join(f"{weight:g} log({name})" for name, weight in zip(WAITS, WEIGHTS, strict=True))
