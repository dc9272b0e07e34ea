"""Who goes next on RLScheduler's two traces: the published rules to the digit, its reinforcement learning, and ours."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from steersman.agents.evolution.orders import OrderSearch, OrderSearchConfig, OrderTask, learned_order, waits_under
from steersman.cluster.model import Pod
from steersman.orders import scores
from steersman.orders.order import OVERTAKING, Order
from steersman.orders.run_times import RunTimes
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import Schedule, window
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import Waits
from steersman.workloads.loading import load_workload
from steersman.workloads.workload import Workload
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk
from studies.queues.traces import arrivals_of, trace_file

NAME = "rlscheduler"
MINUTES = 60
TRACES = {"Lublin-1": "lublin_256.swf", "Lublin-2": "lublin_256_new2.swf"}
"""Of the project DIR-LAB/deep-batch-scheduler."""
JOBS = 1024
"""Jobs of a sequence."""
SEQUENCES = 10
TABLE_SEED = 1
FRESH_SEED, FRESH = 7, 40
"""Sequences that are in neither the table nor a training."""
ORACLE = RunTimes("oracle")
"""The traces state no estimates, so the run time stands for it in every column."""
MODES = {"": "none", ", backfilling": "ending-before"}
PUBLISHED: dict[str, dict[str, float]] = {
    "Lublin-1": {
        **{"FCFS": 7273.77, "WFP3": 19753.53, "UNICEP": 22274.74, "SJF": 277.35, "F1": 258.37},
        "RLScheduler": 254.67,
    },
    "Lublin-2": {
        **{"FCFS": 7842.47, "WFP3": 9523.18, "UNICEP": 11265.31, "SJF": 787.89, "F1": 698.34},
        "RLScheduler": 724.51,
    },
    "Lublin-1, backfilling": {
        **{"FCFS": 235.76, "WFP3": 133.87, "UNICEP": 307.23, "SJF": 73.31, "F1": 75.07},
        "RLScheduler": 58.64,
    },
    "Lublin-2, backfilling": {
        **{"FCFS": 247.61, "WFP3": 318.35, "UNICEP": 379.59, "SJF": 91.99, "F1": 148.25},
        "RLScheduler": 118.79,
    },
}
"""Mean bounded slowdowns of Zhang et al., "RLScheduler: An Automated HPC Batch Job Scheduler Using Reinforcement
Learning" (SC 2020)."""
LEARNERS = {"linear": 0}
"""Units on top of the linear score."""
TRAININGS = 3
GENERATIONS = {"linear": 100}

Floats = npt.NDArray[np.float64]


class _PublishedWfp3(Order):
    """WFP3 as RLScheduler computes it: the time waited counts from its mark of a job that waits, -1."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return -(w / r)^3 n with w = -1 - submit, see `Order`."""
        return np.asarray(-(((-1.0 - time) / _run_times(pods)) ** 3) * size)


class _PublishedUnicep(Order):
    """UNICEP as RLScheduler computes it, see `_PublishedWfp3`."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return -(w + 1e-15) / (log2(n + 1e-15) r) with w = -1 - submit, see `Order`."""
        return np.asarray(-((-1.0 - time) + 1e-15) / (np.log2(size + 1e-15) * _run_times(pods)))


RULES: dict[str, Order] = {
    "FCFS": Order("FCFS"),
    "WFP3": _PublishedWfp3("WFP3"),
    "UNICEP": _PublishedUnicep("UNICEP"),
    "SJF": Order("SJF", scores.SHORTEST),
    "F1": Order("F1", scores.F1),
}


def _run_times(pods: Sequence[Pod]) -> Floats:
    return np.array([(pod.deletion_time or 0.0) - (pod.creation_time or 0.0) for pod in pods])


@cache
def trace(name: str) -> Workload:
    """Return a trace without its jobs of run time 0. Raises InputError: its file is missing."""
    workload = load_workload(None, trace_file(TRACES[name]))
    ran = tuple(pod for pod in workload.pods if (pod.deletion_time or 0.0) > (pod.creation_time or 0.0))
    return replace(workload, name=name, pods=ran, recorded=())


def first_jobs(jobs: int, seed: int, count: int) -> list[int]:
    """Return the first jobs of sequences of a trace, by the seeding of old versions of Gym."""
    digest = hashlib.sha512(str(seed).encode()).digest()[:8]
    random = np.random.RandomState()
    random.seed(list(struct.unpack("<II", digest)))
    return [int(random.randint(JOBS, jobs - JOBS - 1)) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Windows:
    """Draw consecutive jobs from anywhere but where a sequence of the table begins."""

    jobs: int = JOBS

    def __call__(self, workload: Workload, seed: int) -> Schedule:
        """Return the arrivals of a seed, see `agents.evolution.orders.Draw`."""
        random = np.random.default_rng(seed)
        begins = first_jobs(len(workload.pods), TABLE_SEED, SEQUENCES)
        while (first := int(random.integers(0, len(workload.pods) - self.jobs))) in begins:
            pass
        return window(arrivals_of(workload), first, self.jobs)


def slowdown(waits: Waits) -> float:
    """Return the mean bounded slowdown."""
    return float(waits.bounded_slowdown.mean())


def played(name: str, order: Order, first: Sequence[int]) -> list[float]:
    """Return the mean bounded slowdown of an order in each sequence of a trace."""
    simulator, plan = _simulator(name), arrivals_of(trace(name))
    policy = with_order(resolve("best-fit"), replace(order, run_times=ORACLE))
    return [slowdown(waits_under(policy, simulator, window(plan, each, JOBS), 1)) for each in first]


@cache
def _simulator(name: str) -> Simulator:
    return Simulator(trace(name))


def options(quick: bool = False) -> Json:
    """Return what the result depends on."""
    return {
        "traces": TRACES,
        "jobs": JOBS,
        "learners": {"linear": 0} if quick else LEARNERS,
        "trainings": 1 if quick else TRAININGS,
        "generations": {"linear": 2} if quick else GENERATIONS,
        "search": asdict(_config("linear", 1, quick)),
    }


def _config(learner: str, seed: int, quick: bool) -> OrderSearchConfig:
    hidden = LEARNERS[learner]
    if quick:
        return OrderSearchConfig(
            hidden, population=6, episodes=2, generations=2, validate_every=1, validation=2, pooled=True
        )
    # The table has means over sequences, so the sums over windows are compared.
    return OrderSearchConfig(
        hidden,
        population=24 if hidden else 20,
        episodes=12,
        generations=GENERATIONS[learner],
        validation=80,
        pooled=True,
        seed=seed,
    )


def run(say: Say, quick: bool = False) -> Json:
    """Play the rules, train orders, and play these on the sequences of the table and on fresh ones."""
    at, asked = desk(NAME, quick, say), options(quick)
    rules: Json = {}
    fresh: Json = {}
    for trace_name in TRACES:
        jobs = len(trace(trace_name).pods)
        for mode, overtaking in MODES.items():
            where = f"{trace_name}{mode}"
            orders = {name: replace(rule, overtaking=OVERTAKING[overtaking]) for name, rule in RULES.items()}
            first = first_jobs(jobs, TABLE_SEED, SEQUENCES)
            rules[where] = {name: played(trace_name, order, first) for name, order in orders.items()}
            others = _fresh(jobs)
            fresh[where] = {name: played(trace_name, order, others) for name, order in orders.items()}
    learned: Json = {}
    # A training does not depend on how many there are, so that more can be added.
    depends = {name: asked[name] for name in ("traces", "jobs")}
    for mode, overtaking in MODES.items():
        for learner in asked["learners"]:
            for seed in range(1, asked["trainings"] + 1):
                name = f"{overtaking}-{learner}-{seed}"
                config = asdict(_config(learner, seed, at.quick))
                made = at.once(name, {**depends, **config}, partial(_train, at, overtaking, learner, seed))
                learned.setdefault(mode, {}).setdefault(learner, []).append(made)
    return {**asked, "rules": rules, "fresh_rules": fresh, "learned": learned}


def _fresh(jobs: int) -> list[int]:
    return [int(first) for first in np.random.default_rng(FRESH_SEED).integers(0, jobs - JOBS, FRESH)]


def _train(at: Desk, overtaking: str, learner: str, seed: int) -> Json:
    """Train one order for both traces, and return its weights and its slowdowns by trace."""
    config = _config(learner, seed, at.quick)
    reference = Order("reference", scores.SHORTEST, OVERTAKING[overtaking], run_times=ORACLE)
    task = OrderTask(tuple(trace(name) for name in TRACES), Windows(), slowdown, resolve("best-fit"), reference)
    progress = Progress(at.say, f"{overtaking}, {learner}, training {seed}, generations")
    search = OrderSearch(task, config, jobs=at.jobs)
    try:
        search.run(lambda done, _: progress(done, config.generations))
    finally:
        search.close()
    order = learned_order(reference, search.best)
    values: Json = {"weights": search.best.tolist(), "gain": search.best_gain, "table": {}, "fresh": {}}
    for name in TRACES:
        jobs = len(trace(name).pods)
        values["table"][name] = played(name, order, first_jobs(jobs, TABLE_SEED, SEQUENCES))
        values["fresh"][name] = played(name, order, _fresh(jobs))
    return values


def _compared_with_published(rules: Json) -> str:
    differences = differing(rules)
    count = sum(len(values) for values in rules.values())
    equal = f"{count - len(differences)} of {count} figures of rules are those published, in every digit"
    return f"{equal}; {'; '.join(differences)}." if differences else f"{equal}."


def differing(rules: Json) -> list[str]:
    """Return what differs from the published figures of rules, which have two decimals."""
    result = []
    for where, values in rules.items():
        for name, each in values.items():
            mean, published = float(np.mean(each)), PUBLISHED[where][name]
            if abs(mean - published) > 0.005:
                result.append(f"{name} on {where} has {mean:.2f} here and {published:.2f} there")
    return result


def _learned_cells(learned: Json, sequences: str, trace_name: str) -> list[str]:
    """Return by learner the mean over trainings, and the training that was best in validation."""
    cells = []
    for made in learned.values():
        means = [float(np.mean(each[sequences][trace_name])) for each in made]
        chosen = means[int(np.argmax([each["gain"] for each in made]))]
        cells += [tables.interval(tables.spread(means), sign=False), tables.number(chosen)]
    return cells


def section(result: Json) -> str:
    """Return the section of docs/results.md."""
    ours = [f"ours, {name}{which}" for name in result["learners"] for which in ("", ", chosen")]
    header = ["mean bounded slowdown", *RULES, "RLScheduler", *ours]
    rows, fresh = [], []
    for mode in MODES:
        for trace_name in TRACES:
            where = f"{trace_name}{mode}"
            learned = result["learned"][mode]
            means = {name: float(np.mean(values)) for name, values in result["rules"][where].items()}
            cells = [*(tables.number(means[name]) for name in RULES), tables.number(PUBLISHED[where]["RLScheduler"])]
            rows.append([where, *cells, *_learned_cells(learned, "table", trace_name)])
            cells = [tables.number(float(np.mean(values))) for values in result["fresh_rules"][where].values()]
            fresh.append([where, *cells, "–", *_learned_cells(learned, "fresh", trace_name)])
    return "\n".join(
        [
            "## Who goes next, on RLScheduler's traces",
            "",
            "One pool of 256 processors, ten sequences of 1,024 jobs, the protocol of Zhang et al. (SC 2020). Rules "
            "were played here; RLScheduler's column is the published one. Ours is one order for both traces, trained "
            f"by evolution on windows that begin elsewhere: means over {result['trainings']} trainings, with 95 % "
            "intervals, and the one that was best on 80 further windows (`chosen`).",
            "",
            _compared_with_published(result["rules"]),
            "",
            tables.markdown(header, rows),
            "",
            f"On {FRESH} other sequences of each trace:",
            "",
            tables.markdown(header, fresh),
        ]
    )
