"""Fit an order of waiting pods to a history of arrivals, and keep what a paired test supports.

The history is divided by time. On its earlier part a search learns weights, and the best rule is found. On its later
part both are tested against `DEFAULT`, by pairs of waits in consecutive windows without a common arrival, whose times
are scaled to loads. Windows that overlap would count the same arrivals several times. An order that is not told apart
from `DEFAULT` is not recommended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import OrderSearch, OrderSearchConfig, OrderTask, learned_order, waits_under
from steersman.core.errors import UsageError
from steersman.core.statistics import Interval, mean_interval
from steersman.orders.order import AGE, ANYBODY, EASY, OVERTAKING, Order
from steersman.orders.registry import OrderCard, find_order
from steersman.orders.scores import LINEAR
from steersman.policies.base import Policy, decided_by, with_order
from steersman.simulation.arrivals import Schedule, schedule, window
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import MINUTE, Waits, percentile
from steersman.version import __version__
from steersman.workloads.workload import Workload

Floats = npt.NDArray[np.float64]

WAITS = ("mean wait", "by GPUs", "p99, several GPUs", "longest")
WEIGHTS = (0.3, 0.3, 0.25, 0.15)  # of the logarithms of the four waits in the cost
DEFAULT = "wfp3:easy"  # the order that is recommended unless another is clearly better
RULES = (
    *("age", "smallest", "shortest", "wfp3", "easy"),
    *(DEFAULT, "shortest:easy", "area:easy", "unicef:easy"),
)
"""Orders that are compared, the simplest first."""
REFERENCES = {ANYBODY: "age", EASY: "easy"}  # by who may overtake: the order that candidates are compared with
START = {"estimate": 1.0, "wait": -1.0, "size": -2 / 9}  # WFP3, -(w / r)^3 n: 3 log(r) - 3 log(w) - log(n)
FITTED = "fitted"
TRAINED_PART = 0.6  # share of the history, by arrivals, that the search draws from
LOADS, MOST_LOAD = (0.8, 1.1), 100.0
MOST_ARRIVALS, LEAST_ARRIVALS = 2_000, 100  # arrivals of a window
WINDOWS = 8  # windows of the later part, unless they would have too many or too few arrivals
AGEING = 7 * 24 * 3600.0  # ageing of a learned order in seconds; training has none, so that long waits cost
HARDLY = 0.01  # share of waiting pods below which a history says nothing of what an order would change in it
FIRST_HELD_BACK = 2_100_000_000
GENERATIONS = 40
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
    """Windows of a history, with times scaled to a load, and with the pods that would run at their beginning."""

    whole: Schedule  # arrivals of the history
    # `first`, `last`: the first arrival of the part that windows lie in, and the one after its last.
    first: int
    last: int
    demand: Floats  # [P] what each pod of the workload requests, in the unit of `capacity`
    capacity: float  # of the cluster
    loads: tuple[float, float]  # least and largest load
    count: int  # arrivals of a window

    @property
    def history_load(self) -> float:
        """Return the load of the history as it is."""
        span = max(float(self.whole.time[-1] - self.whole.time[0]), 1.0)
        return float(self.demand[self.whole.pods] @ self.whole.duration) / (self.capacity * span)

    def __call__(self, workload: Workload, seed: int) -> Schedule:
        """Return a window of a seed, see `agents.evolution.orders.Draw`."""
        random = np.random.default_rng(seed)
        load = float(random.uniform(*self.loads))
        first = self.first + int(random.integers(self.last - self.first - self.count + 1))
        return self.window_at(first, load, workload.shuffled_nodes(random))

    def consecutive(self, workload: Workload) -> list[Schedule]:
        """Return windows without a common arrival, one after the other."""
        random = np.random.default_rng(FIRST_HELD_BACK)
        return [
            self.window_at(first, float(random.uniform(*self.loads)), workload.shuffled_nodes(random))
            for first in range(self.first, self.last - self.count + 1, self.count)
        ]

    def window_at(self, first: int, load: float, nodes: npt.NDArray[np.int64]) -> Schedule:
        """Return the window that begins with an arrival, its times scaled to a load."""
        part = window(self.whole, first, self.count)
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
            nodes=nodes,
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
    # A window that is shorter than a gang might be empty.
    least = max(LEAST_ARRIVALS, 2 * int(plan.members.max(initial=0)))
    count = min(last - edge, max(least, min(MOST_ARRIVALS, (last - edge) // WINDOWS)))
    earlier, later = (HistoryWindows(plan, *part, demand, capacity, loads, count) for part in ((0, edge), (edge, last)))
    return earlier, later


@dataclass(frozen=True, slots=True)
class OrderFitOptions:
    """Options of a fit.

    Raises:
        UsageError: the loads are none, or in the wrong order.
    """

    generations: int = GENERATIONS  # of the search
    loads: tuple[float, float] = LOADS  # least and largest load of the windows
    seed: int = 1  # of the search
    search: OrderSearchConfig = SEARCH  # further options of the search

    def __post_init__(self) -> None:
        least, most = self.loads
        if not 0 < least <= most <= MOST_LOAD:
            text = f"loads {least:g}-{most:g}"
            if least > most > 0:
                raise UsageError(f"{text}: the first must be at most the second; expected {most:g}-{least:g}")
            raise UsageError(f"{text}: expected two numbers above 0, at most {MOST_LOAD:g}")


@dataclass(frozen=True, slots=True)
class OrderFit:
    """The result of a fit."""

    chosen: str  # name of the recommended order, `FITTED` if it is the search's
    best_rule: str  # the order with the least cost in the earlier part, apart from the search's
    rival: str  # that one if it is clearly better than `DEFAULT` in the later part, else `DEFAULT`
    # By order [windows, 4] the waits of `WAITS` in seconds in the later part, with a minute added
    waits: Mapping[str, Floats]
    # `order`, `card`: of the search's order, for an order file.
    order: Order
    card: OrderCard
    loads: tuple[float, float]  # least and largest load of the windows
    # `history_load`, `history_waiting`: load of the history, and share of its pods that wait for more than a minute
    # in it in the order of age.
    history_load: float
    history_waiting: float
    warnings: tuple[str, ...]  # about pods of the history that do not fit

    def ratio(self, name: str, other: str) -> tuple[float, Interval]:
        """Return the cost of an order over that of another: geometric mean over the windows and 95 % interval."""
        logarithms = log_costs(self.waits[name]) - log_costs(self.waits[other])
        return float(np.exp(logarithms.mean())), _exp(mean_interval(logarithms))

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
        return sorted(self.waits, key=lambda name: log_costs(self.waits[name]).mean())


OnGeneration = Callable[[float], None]  # called after each generation with the share of all that are done


def search_order(
    workload: Workload,  # nodes, and pods with times of arrival and end
    policy: Policy,  # places the pods
    options: OrderFitOptions,  # time and loads
    *,
    jobs: int = 1,  # number of processes of the search
    on_generation: OnGeneration | None = None,  # called after each generation
) -> OrderFit:
    """Fit an order to a history.

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
    before = waits_in_windows(simulator, policy, rules, earlier)
    best = min(RULES, key=lambda name: log_costs(before[name]).mean())
    # Reservations help where large pods starve, and cost much where nearly all pods are small.
    task = OrderTask((history,), earlier, cost, policy, find_order(REFERENCES[rules[best].overtaking]))
    config = replace(options.search, generations=options.generations, seed=options.seed)
    weights, gain = _search(task, config, jobs, on_generation)
    searched = learned_order(replace(task.reference, ageing=AGEING), weights, FITTED)
    waits = waits_in_windows(simulator, policy, {**rules, FITTED: searched}, later)
    rival = _clearly_better(waits, best, DEFAULT)
    load = earlier.history_load
    seconds = waits_under(with_order(policy, AGE), simulator, earlier.whole, FIRST_HELD_BACK).seconds
    card = _card(history, searched, task.reference, gain, config, options, load)
    return OrderFit(
        _clearly_better(waits, FITTED, rival),
        best,
        rival,
        waits,
        searched,
        card,
        options.loads,
        load,
        # Of those that never start, NaN, it is not known for how long.
        float((~(seconds <= MINUTE)).mean()),
        simulator.warnings,
    )


def _search(
    task: OrderTask, config: OrderSearchConfig, jobs: int, on_generation: OnGeneration | None
) -> tuple[Floats, float]:
    start = np.array([START.get(name, 0.0) for name in LINEAR])
    search = OrderSearch(task, config, jobs=jobs, start=start)
    try:
        for done in range(1, config.generations + 1):
            search.generation()
            if on_generation is not None:
                on_generation(done / config.generations)
        if search.best_gain == -math.inf:
            search.validate()
    finally:
        search.close()
    return search.best, search.best_gain


def waits_in_windows(
    simulator: Simulator, policy: Policy, orders: Mapping[str, Order], windows: HistoryWindows
) -> dict[str, Floats]:
    """Return by order [windows, 4] the waits in the same windows."""
    plans = windows.consecutive(simulator.workload)
    return {
        name: np.array(
            [four_waits(waits_under(with_order(policy, order), simulator, plan, FIRST_HELD_BACK)) for plan in plans]
        )
        for name, order in orders.items()
    }


def _clearly_better(waits: Mapping[str, Floats], one: str, other: str) -> str:
    """Return an order if a paired test over windows shows that it costs less than another, else the other."""
    return one if mean_interval(log_costs(waits[one]) - log_costs(waits[other])).high < 0 else other


def log_costs(waits: Floats) -> Floats:
    """Return [windows] the logarithm of the cost from the four waits, [windows, 4]."""
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
        estimates=order.estimates.source,
        ageing=order.ageing,
        hidden=config.hidden,
        objective=", ".join(f"{weight:g} log({name})" for name, weight in zip(WAITS, WEIGHTS, strict=True)),
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
