"""The order `learned`: trained on arrivals of many clusters, compared with rules on others.

The pod that is next has a reservation while it fits nowhere, and others start if they do not delay it, as with `easy`;
the policy `fgd` places them. Loads are 0.7 to 1.2. Everything is relative to the order of age on the same arrivals: the
mean wait, the mean by GPUs, the 99th percentile of pods of several GPUs, and the longest wait, each with a minute
added, so that waits of seconds do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import combinations

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import OrderSearch, OrderSearchConfig, OrderTask, learned_order, waits_under
from steersman.cluster.model import Node
from steersman.orders.order import Order
from steersman.orders.order_file import OrderCard, write_order
from steersman.orders.registry import find_order
from steersman.orders.run_times import RunTimes, parse_run_times
from steersman.orders.scores import LINEAR
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule, schedule, window
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import MINUTE, Waits
from steersman.training.search.fit_order import START, WAITS, WEIGHTS, cost, four_waits, objective_text
from steersman.version import __version__
from steersman.workloads.formats.openb.traces import embedded
from steersman.workloads.formats.philly import PhillyTrace
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk, published
from studies.queues.least_waits import least_weighted_wait
from studies.queues.traces import arrivals_of, trace_file

NAME = "learned_order"
MINUTES = 60
PHILLY = "philly_first.csv"
"""The earlier part of Microsoft's Philly trace, see `workloads.formats.philly`."""
TRAINED_PART = 0.6
"""Share of the trace, by jobs, that training draws from; comparisons draw from the rest."""
NODES_OF_PHILLY = (8, 12, 20)
"""Nodes of 8 GPUs that its jobs run on."""
LOADS = (0.7, 1.2)
JOBS = 2_000
"""Arrivals that are followed."""
POLICY = "fgd"
SOURCES = ("oracle:3", "history", "none")
"""What is known of run times in training: 90 % within a factor of 3, what ended before, nothing."""
COMPARED = {
    "oracle": "exact",
    "oracle:3": "within a factor of 3",
    "history": "from what ended before",
    "none": "unknown",
}
"""What is known of them in comparisons, and how results say that."""
RULES = ("smallest", "shortest", "unicef", "wfp3", "easy", "wfp3:easy")
AGEING = 7 * 24 * 3600.0
"""Of the shipped order; it is trained without, so that it learns to let nobody wait for so long."""
REFERENCE = find_order("easy")
"""It also tells who may overtake: a pod that is next and fits nowhere has a reservation."""
TEST_SEED = 10_000
FAMILIES = ("generated", "Philly", "openb")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Draw arrivals at a load of `LOADS`: a part of a real trace with its times scaled, or generated ones.

    Attributes:
        begin, end: part of the real trace.
    """

    begin: float
    end: float

    def __call__(self, workload: Workload, seed: int) -> Schedule:
        """Return the arrivals of a seed, see `agents.evolution.orders.Draw`."""
        random = np.random.default_rng(seed)
        load = float(random.uniform(*LOADS))
        if not workload.name.startswith("philly"):
            plan = schedule(workload, "timed", seed=seed, ratio=1.0, load=load)
            return window(plan, 0, min(plan.standing + plan.warm + JOBS, len(plan.pods)))
        plan = arrivals_of(workload)
        first, last = (int(share * len(plan.pods)) for share in (self.begin, self.end))
        part = window(plan, int(random.integers(first, last - JOBS)), JOBS)
        work = float(np.array(workload.gpu_demand, dtype=np.float64)[part.pods] @ part.duration)
        scale = work / (load * workload.gpu_capacity * float(part.time[-1] - part.time[0]))
        return replace(part, time=(part.time - part.time[0]) * scale)


def generated(distribution: Distribution, count: int) -> list[Workload]:
    """Return the first generated clusters of a distribution with GPUs, of up to 60 nodes and 6,000 pods."""
    found: list[Workload] = []
    seed = 0
    while len(found) < count:
        workload = random_cluster(seed, distribution=distribution, nodes=(5, 60))
        if workload.gpu_capacity and 200 <= len(workload.pods) <= 6_000:
            found.append(workload)
        seed += 1
    return found


@cache
def philly(nodes: int) -> Workload:
    """Return the Philly trace on so many nodes. Raises InputError: its file is missing."""
    cluster = tuple(Node(f"node-{i}", 96_000, 1 << 40, gpu_count=8) for i in range(nodes))
    return Workload(f"philly-{nodes}", cluster, tuple(PhillyTrace().open([trace_file(PHILLY)]).pods(cluster)[0]))


def families(*, training: bool) -> dict[str, list[Workload]]:
    """Return workloads by family."""
    distribution = Distribution.TRAINING if training else Distribution.VALIDATION
    found = (
        generated(distribution, 24 if training else 12),
        [philly(nodes) for nodes in NODES_OF_PHILLY],
        [embedded("default-small" if training else "default")],
    )
    return dict(zip(FAMILIES, found, strict=True))


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "loads": LOADS,
        "jobs": JOBS,
        "cost": dict(zip(WAITS, WEIGHTS, strict=True)),
        "policy": POLICY,
        "sources": SOURCES,
        "compared_sources": tuple(COMPARED),
        "rules": RULES,
        "ageing": AGEING,
        "start": START,
        "search": asdict(_config(quick)),
        "draws": 2 if quick else 60,
    }


def _training_options(quick: bool) -> Json:
    """Return what the weights depend on."""
    return {name: value for name, value in options(quick).items() if name not in ("draws", "compared_sources")}


def _config(quick: bool) -> OrderSearchConfig:
    if quick:
        return OrderSearchConfig(population=4, episodes=2, generations=2, validate_every=1, validation=2)
    return OrderSearchConfig(
        population=14, episodes=24, generations=40, validate_every=4, validation=72, step=0.1, delay=False
    )


def run(say: Say, quick: bool = False) -> Json:
    """Train the order, write it to a file, and compare it with rules."""
    at, asked, of_training = desk(NAME, quick, say), options(quick), _training_options(quick)
    earlier = published("queues", NAME, of_training, quick)
    if earlier:
        trained = {name: earlier[name] for name in ("weights", "gain")}
    else:
        trained = at.once("training", of_training, partial(_train, at))
    order = _order(trained["weights"])
    file = at.folder / "learned.safetensors"
    write_order(file, order_card(order, trained["gain"], quick=quick), order.weights)
    say(f"{file} is the order")
    depends = {**asked, "weights": trained["weights"]}
    parts = {
        f"{family}-{source}": {**depends, "family": family, "source": source}
        for family in FAMILIES
        for source in COMPARED
    }
    compared = at.each(parts, _compare, Progress(say, "comparisons"))
    return {**asked, **trained, "compared": compared}


def _task() -> OrderTask:
    known = families(training=True)
    # Of each family as many, in turn.
    workloads = tuple(family[k % len(family)] for k in range(len(known["generated"])) for family in known.values())
    sources = tuple(map(parse_run_times, SOURCES))
    return OrderTask(workloads, Arrivals(0.0, TRAINED_PART), cost, resolve(POLICY), REFERENCE, sources)


def _train(at: Desk) -> Json:
    config = _config(at.quick)
    progress = Progress(at.say, "generations")
    start = np.array([START.get(name, 0.0) for name in LINEAR])
    search = OrderSearch(_task(), config, jobs=at.jobs, start=start)
    try:
        search.run(lambda done, _: progress(done, config.generations))
    finally:
        search.close()
    return {"weights": search.best.tolist(), "gain": search.best_gain}


def trained_weights() -> list[float]:
    """Return the weights of the order in the repository's result, none if it was made with other options."""
    return list(published("queues", NAME, _training_options(False), quick=False).get("weights", ()))


def order_at_speed(weights: Sequence[float], speed: float) -> Order:
    """Return the order for a cluster whose clock shows one second where `speed` seconds have passed in training.

    The order of pods is the same wherever they run for more than a second and have waited for more than a few, of
    the shorter clock: times count by their logarithms, and a sum is a polynomial of these.
    """
    shift = math.log(speed) / 3.0  # see `learned_score`
    shifted = dict.fromkeys(LINEAR, 0.0)
    for term, weight in zip(LINEAR, weights, strict=True):
        base, square, _ = term.partition("^")
        factors = [base, base] if square else term.split("*")
        timed = [i for i, name in enumerate(factors) if name in ("estimate", "wait")]
        for count in range(len(timed) + 1):
            for constant in combinations(timed, count):
                left = [name for i, name in enumerate(factors) if i not in constant]
                name = f"{left[0]}^2" if len(left) == 2 and left[0] == left[1] else "*".join(left)
                # What is left may be the same for all pods, such as the free share.
                if name in shifted:
                    shifted[name] += weight * shift**count
    return _order(list(shifted.values()), AGEING / speed)


def _order(weights: Sequence[float], ageing: float = AGEING) -> Order:
    return learned_order(replace(REFERENCE, ageing=ageing, run_times=RunTimes()), np.array(weights))


def order_card(order: Order, gain: float = 0.0, *, quick: bool = False) -> OrderCard:
    """Return the card of an order that was trained here."""
    config = _config(quick)
    return OrderCard(
        name=order.name,
        overtaking="easy",
        estimates="auto",
        ageing=order.ageing,
        hidden=config.hidden,
        objective=objective_text(),
        training=("generated clusters", "Philly, first part", "openb default-small"),
        settings=asdict(config),
        gain=gain,
        reference=REFERENCE.name,
        made_by=__version__,
    )


def _compare(asked: Json) -> Json:
    """Return [draws, 4] the waits of each order in one family, with one source of estimates.

    With exact run times also `least`, [draws, 2]: see `_least_waits`.
    """
    workloads, source = families(training=False)[asked["family"]], asked["source"]
    orders = {name: find_order(f"{name}@{source}") for name in ("age", *asked["rules"])}
    orders["learned"] = replace(_order(asked["weights"]), run_times=parse_run_times(source))
    arrivals = Arrivals(TRAINED_PART, 1.0)
    values: dict[str, list[list[float]]] = {name: [] for name in orders}
    least: list[list[float]] = []
    for draw in range(asked["draws"]):
        workload, seed = workloads[draw % len(workloads)], TEST_SEED + draw
        plan, simulator = arrivals(workload, seed), _simulator(asked["family"], draw % len(workloads))
        waits = {
            name: waits_under(with_order(resolve(asked["policy"]), order), simulator, plan, seed)
            for name, order in orders.items()
        }
        for name, each in waits.items():
            values[name].append(four_waits(each).round(1).tolist())
        if source == "oracle":
            least.append(_least_waits(workload, plan, waits).round(1).tolist())
    return {"waits": values, "least": least}


def _least_waits(workload: Workload, plan: Schedule, waits: Mapping[str, Waits]) -> Floats:
    """Return [2] bounds on the mean wait and on that by GPUs in seconds, a minute added: no order has less.

    They are the larger of those of GPUs, CPUs and memory.

    Args:
        workload: nodes and pods.
        plan: the arrivals.
        waits: of the pods that came after the run began, by order.
    """
    by_age = waits["age"]
    fits = ~np.isnan(by_age.seconds)
    first = len(plan.pods) - len(fits)
    arrival, duration = plan.time[first:][fits], plan.duration[first:][fits]
    gpus = by_age.demand[fits].astype(np.float64)
    nodes, requests = workload.eligible_nodes, [workload.pods[p].requests for p in plan.pods[first:][fits]]
    resources = [
        (gpus, workload.gpu_capacity),
        (np.array([float(each.cpu_milli) for each in requests]), sum(node.cpu_milli for node in nodes)),
        (np.array([float(each.memory_bytes) for each in requests]), sum(node.memory_bytes for node in nodes)),
    ]
    last = float((arrival + by_age.seconds[fits]).max())
    result = []
    for weight in (np.ones(len(gpus)), gpus):
        reached = min(float(each.seconds[fits] @ weight) for each in waits.values())
        bounds = [
            least_weighted_wait(arrival, duration, size, weight, float(capacity), reached, last)
            for size, capacity in resources
            if reached > 0
        ]
        result.append(max(bounds, default=0.0) / max(float(weight.sum()), 1.0))
    return np.array(result) + MINUTE


@cache
def _simulator(family: str, number: int) -> Simulator:
    return Simulator(families(training=False)[family][number])


def section(result: Json) -> str:
    """Return the section of docs/results.md."""
    lines = [
        "## Who goes next, on clusters with GPUs",
        "",
        f"A linear order, `learned`, was trained by evolution on generated clusters, the first {TRAINED_PART:.0%} of a "
        "part of Microsoft's Philly trace and small clusters of openb; the search began at the weights of `wfp3`, and "
        "others overtake as with `easy`. Here it is compared on other arrivals: generated clusters of another "
        f"distribution, the rest of that part of Philly, and openb `default`, {result['draws']} draws each at loads of "
        f"{LOADS[0]:g} to {LOADS[1]:g}. `{result['policy']}` places the pods. Times the order of age on the same "
        "arrivals, geometric means with 95 % intervals; a minute is added to each wait. No order is below `bound`, not "
        "even one that knows what comes: the cluster is one node there, and only GPUs, CPUs or memory are scarce "
        "(Lagrangian relaxation of the time-indexed program).",
    ]
    for source, what in COMPARED.items():
        found = [
            {name: np.log(np.array(each)) for name, each in result["compared"][f"{family}-{source}"]["waits"].items()}
            for family in FAMILIES
        ]
        pairs = [*((name, "age") for name in (*result["rules"], "learned")), ("learned", "wfp3:easy")]
        rows = [
            [
                name if other == "age" else f"{name}, times {other}",
                "all",
                *_ratios([each[name] - each[other] for each in found]),
            ]
            for name, other in pairs
        ]
        for family, waits in zip(FAMILIES, found, strict=True):
            rows.append(["wfp3:easy", family, *_ratios([waits["wfp3:easy"] - waits["age"]])])
            rows.append(["learned, times wfp3:easy", family, *_ratios([waits["learned"] - waits["wfp3:easy"]])])
        if source == "oracle":
            rows += [["bound", "all", *_least(result, FAMILIES), "", ""]]
            rows += [["bound", family, *_least(result, [family]), "", ""] for family in FAMILIES]
        lines += ["", f"Run times {what}:", "", tables.markdown(["order", "clusters", *WAITS], rows)]
    return "\n".join(lines)


def _least(result: Json, families: Sequence[str]) -> list[str]:
    """Return cells of the bounds on the first two waits in some families, times age."""
    parts = [result["compared"][f"{family}-oracle"] for family in families]
    return _ratios([np.log(np.array(each["least"])) - np.log(np.array(each["waits"]["age"]))[:, :2] for each in parts])


def _ratios(logarithms: Sequence[Floats]) -> list[str]:
    """Return cells of the geometric means of ratios from their logarithms, [draws, waits] of each family."""
    return [tables.interval(tables.geometric(column), sign=False) for column in np.concatenate(logarithms).T]
