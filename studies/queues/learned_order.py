"""An order that was trained on arrivals of many clusters, compared with rules on others.

The pod that is next has a reservation while it fits nowhere, and others start if they do not delay it, as with `easy`;
the policy `fgd` places them. Loads are 0.7 to 1.2. Everything is relative to the order of age on the same arrivals: the
mean wait, the mean by GPUs, the 99th percentile of pods of several GPUs, and the longest wait, each with a minute
added, so that waits of seconds do not decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import OrderSearch, OrderSearchConfig, OrderTask, learned_order, waits_under
from steersman.cluster.model import Node
from steersman.orders.order import parse_estimates
from steersman.orders.registry import find_order
from steersman.orders.scores import LINEAR
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule, schedule, window
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import MINUTE, Waits
from steersman.training.search.orders import START, WAITS, WEIGHTS, cost, four_waits
from steersman.workloads.formats.openb import embedded
from steersman.workloads.formats.published import PhillyTrace
from steersman.workloads.generators.clusters import Distribution, random_cluster
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk, published
from studies.queues.least_waits import least_weighted_wait
from studies.queues.traces import arrivals_of, trace_file

NAME = "learned_order"
MINUTES = 60
DATA = ("openb", "philly")
PHILLY = "philly_first.csv"
"""The earlier part of Microsoft's Philly trace, see `workloads.formats.published`."""
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
"""Of the trained order; it is trained without, so that it learns to let nobody wait for so long."""
REFERENCE = find_order("easy")
"""It also tells who may overtake: a pod that is next and fits nowhere has a reservation."""
TEST_SEED = 10_000
FAMILIES = ("generated", "Philly", "openb")
CLUSTERS = 12
"""Generated clusters of the comparison, each of which has as many draws; Philly is one trace and openb one list."""

HELD_OUT = (
    "On a log that no training or choice used, examined from outside, with nothing known of run times: `wfp3:easy` "
    "waits 1.26 times as long as the order of age in the mean, and 0.75 times at the tail of large pods. `smallest` "
    "and `unicef` trade the other way. `learned` waits 1.07 times as long there as `wfp3:easy`. Where waits are long, "
    "its ageing of 7 days decides. It is not part of the package."
)

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
        generated(distribution, 24 if training else CLUSTERS),
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
    """Train the order, and compare it with rules."""
    at, asked, of_training = desk(NAME, quick, say), options(quick), _training_options(quick)
    earlier = published("queues", NAME, of_training, quick)
    if earlier:
        trained = {name: earlier[name] for name in ("weights", "gain")}
    else:
        trained = at.once("training", of_training, partial(_train, at))
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
    sources = tuple(map(parse_estimates, SOURCES))
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


def _compare(asked: Json) -> Json:
    """Return [draws, 4] the waits of each order in one family, with one source of estimates.

    With exact run times also `least`, [draws, 2]: see `_least_waits`.
    """
    workloads, source = families(training=False)[asked["family"]], asked["source"]
    orders = {name: find_order(f"{name}@{source}") for name in ("age", *asked["rules"])}
    aged = replace(REFERENCE, ageing=AGEING, estimates=parse_estimates(source))
    orders["learned"] = learned_order(aged, np.array(asked["weights"]))
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


def claim(result: Json) -> str:
    """Return what it shows, in a sentence."""
    waits = result["compared"][f"{FAMILIES[0]}-history"]["waits"]
    logarithms = {name: np.log(np.array(waits[name])) for name in ("wfp3:easy", "age")}
    ratios = _ratios([logarithms["wfp3:easy"] - logarithms["age"]], FAMILIES[0])
    return (
        "Under the order `wfp3:easy`, which learns run times from pods that have ended, waits by GPUs are "
        f"{ratios[1]} times those by age, on {CLUSTERS} generated clusters."
    )


def section(result: Json) -> str:
    """Return the page of docs/results."""
    lines = [
        "## Who goes next, on clusters with GPUs",
        "",
        f"A linear order, `learned`, was trained by evolution on generated clusters, the first {TRAINED_PART:.0%} of a "
        "part of Microsoft's Philly trace and small clusters of openb; the search began at the weights of `wfp3`, and "
        "others overtake as with `easy`. Here it is compared on other arrivals: generated clusters of another "
        f"distribution, the rest of that part of Philly, and openb `default`, {result['draws']} draws each at loads of "
        f"{LOADS[0]:g} to {LOADS[1]:g}. `{result['policy']}` places the pods. Times the order of age on the same "
        "arrivals, geometric means; a minute is added to each wait. Draws of generated clusters have 95 % intervals, "
        f"over the means of {CLUSTERS} clusters. Those of Philly are overlapping windows of one trace and those of "
        "openb draws of one list, so that their means, and those of all, have none. No order is below `bound`, not "
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
            for name, other in (("wfp3:easy", "age"), ("learned", "wfp3:easy")):
                title = name if other == "age" else f"{name}, times {other}"
                rows.append([title, family, *_ratios([waits[name] - waits[other]], family)])
        if source == "oracle":
            rows += [["bound", "all", *_least(result, FAMILIES), "", ""]]
            rows += [["bound", family, *_least(result, [family]), "", ""] for family in FAMILIES]
        lines += ["", f"Run times {what}:", "", tables.markdown(["order", "clusters", *WAITS], rows)]
    return "\n".join([*lines, "", HELD_OUT])


def _least(result: Json, families: Sequence[str]) -> list[str]:
    """Return cells of the bounds on the first two waits in some families, times age."""
    parts = [result["compared"][f"{family}-oracle"] for family in families]
    least = [np.log(np.array(each["least"])) - np.log(np.array(each["waits"]["age"]))[:, :2] for each in parts]
    return _ratios(least, families[0] if len(families) == 1 else "all")


def _ratios(logarithms: Sequence[Floats], family: str = "all") -> list[str]:
    """Return cells of the geometric means of ratios from their logarithms, [draws, waits] of each family.

    They have intervals where draws are of independent units, which are the generated clusters.
    """
    draws = np.concatenate(logarithms)
    if family != FAMILIES[0]:
        return [tables.number(float(np.exp(each))) for each in draws.mean(axis=0)]
    of_clusters = tables.by_unit(draws, np.arange(len(draws)) % CLUSTERS)
    return [tables.interval(tables.geometric(column), sign=False) for column in of_clusters.T]
