"""Who goes next on RLScheduler's two traces: the published rules to the digit, its reinforcement learning, and ours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial

import numba
import numpy as np
import numpy.typing as npt
import torch

from steersman.agents.evolution.orders import (
    OrderSearch,
    OrderSearchConfig,
    OrderTask,
    learned_order,
    waits_under,
)
from steersman.cluster.model import Pod
from steersman.orders import scores
from steersman.orders.order import OVERTAKING, Order
from steersman.orders.queue import ENDING_BEFORE
from steersman.orders.run_times import RunTimes
from steersman.orders.scores import LINEAR
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import window
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import Waits
from studies import tables
from studies.common import Desk, Json, Progress, Say, desk, plain, published
from studies.queues.queue_network import NetworkSearch, play, weight_count
from studies.queues.queue_ppo import TERMS, PPOConfig, PPOTask, QueuePPO
from studies.queues.rollouts import RolloutConfig, play_rollouts
from studies.queues.sequences import (
    CHOICE,
    FRESH,
    JOBS,
    SEQUENCES,
    TABLE_SEED,
    TRACES,
    Windows,
    choice_first_jobs,
    first_jobs,
    fresh_first_jobs,
    pooled_traces,
    run_times_of,
    trace,
)
from studies.queues.traces import arrivals_of

NAME = "rlscheduler"
MINUTES = 150
ORACLE = RunTimes("oracle")
"""The traces state no estimates, so the run time stands for it in every column."""
BACKFILLING = ", backfilling"
MODES = {"": "none", BACKFILLING: "ending-before"}
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


@dataclass(frozen=True, slots=True)
class OrderLearner:
    """What is trained, on what, and how often.

    Attributes:
        hidden: units on top of the linear score, or of the quadratic form of a network that sees the whole queue.
        trainings: by who may overtake.
        generated: whether it is trained on generated jobs, and not on the two traces.
        continues: the learners whose best training, of the first `CONTINUED`, it begins with; (): none.
        decisions: of a training by PPO (`queue_ppo`), by who may overtake; {}: evolution trains it.
        whole_queue: whether it sees the state of the queue, too (`queue_network`).
        rollouts_of: the learner whose trainings are played with rollouts (`rollouts`); "": no rollouts.
    """

    hidden: int
    trainings: dict[str, int]
    generated: bool = False
    continues: tuple[str, ...] = ()
    decisions: dict[str, int] = field(default_factory=dict)
    whole_queue: bool = False
    rollouts_of: str = ""


PPO_DECISIONS = {"none": 4_900_000, "ending-before": 9_000_000}

CONTINUED = 4
LEARNERS = {
    "linear": OrderLearner(0, {"none": 10, "ending-before": 10}),
    "linear, continued": OrderLearner(0, {"none": 1, "ending-before": 1}, continues=("linear",)),
    "network": OrderLearner(12, {"none": 10, "ending-before": 10}),
    "network, whole queue": OrderLearner(12, {"none": 10, "ending-before": 10}, whole_queue=True),
    "rollouts": OrderLearner(12, {"none": 10, "ending-before": 10}, rollouts_of="network, whole queue"),
    "trained on neither": OrderLearner(0, {"none": 10, "ending-before": 10}, generated=True),
    "PPO": OrderLearner(0, {"none": 1, "ending-before": 1}, decisions=PPO_DECISIONS),
    "PPO, continued": OrderLearner(
        0, {"none": 1, "ending-before": 1}, continues=("linear", "linear, continued"), decisions=PPO_DECISIONS
    ),
}
ROLLOUTS = {
    "none": RolloutConfig(futures=16, seconds=12 * 3600.0),
    "ending-before": RolloutConfig(futures=64, seconds=18 * 3600.0),
}
"""By who may overtake. Few options were tried, on windows of the choice."""
GENERATED, PARTS = 2, 16
"""Generated traces, and their parts of `JOBS` jobs with parameters and a load of their own."""
GENERATED_SEED = 11
PPO_VALIDATION = 40
"""Sequences of each trace by which PPO chooses a checkpoint."""

Floats = npt.NDArray[np.float64]


class _PublishedWfp3(Order):
    """WFP3 as RLScheduler computes it: the time waited counts from its mark of a job that waits, -1."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return -(w / r)^3 n with w = -1 - submit, see `Order`."""
        return np.asarray(-(((-1.0 - time) / run_times_of(pods)) ** 3) * size)


class _PublishedUnicep(Order):
    """UNICEP as RLScheduler computes it, see `_PublishedWfp3`."""

    __slots__ = ()

    def given(self, time: Floats, size: Floats, pods: Sequence[Pod]) -> Floats:
        """Return -(w + 1e-15) / (log2(n + 1e-15) r) with w = -1 - submit, see `Order`."""
        return np.asarray(-((-1.0 - time) + 1e-15) / (np.log2(size + 1e-15) * run_times_of(pods)))


RULES: dict[str, Order] = {
    "FCFS": Order("FCFS"),
    "WFP3": _PublishedWfp3("WFP3"),
    "UNICEP": _PublishedUnicep("UNICEP"),
    "SJF": Order("SJF", scores.SHORTEST),
    "F1": Order("F1", scores.F1),
}


def _generated_names(quick: bool) -> tuple[str, ...]:
    """Return names for `trace`, which say the parts and the seed."""
    parts = 4 if quick else PARTS
    return tuple(f"generated-{parts}-{GENERATED_SEED + k}" for k in range(GENERATED))


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
        "learners": {name: asdict(_learner(name, quick)) for name in LEARNERS},
        "generated": [GENERATED, 4 if quick else PARTS, GENERATED_SEED],
        "choice": _choice(quick),
        "searches": {
            name: {overtaking: _search_options(name, overtaking, quick) for overtaking in MODES.values()}
            for name in LEARNERS
        },
    }


def _search_options(name: str, overtaking: str, quick: bool) -> Json:
    learner = LEARNERS[name]
    if learner.rollouts_of:
        of = _search_options(learner.rollouts_of, overtaking, quick)
        return {**asdict(_rollout_config(overtaking, 1, quick)), "of": of}
    if learner.decisions:
        return asdict(_ppo_config(None, overtaking, 1, quick))
    return asdict(_config(name, overtaking, 1, quick))


def _rollout_config(overtaking: str, seed: int, quick: bool) -> RolloutConfig:
    config = replace(ROLLOUTS[overtaking], seed=seed)
    return replace(config, candidates=2, futures=2) if quick else config


def _learner(name: str, quick: bool) -> OrderLearner:
    learner = LEARNERS[name]
    return replace(learner, trainings={mode: min(1, n) for mode, n in learner.trainings.items()}) if quick else learner


def _choice(quick: bool) -> int:
    return 2 if quick else CHOICE


def _config(learner: str, overtaking: str, seed: int, quick: bool) -> OrderSearchConfig:
    hidden = LEARNERS[learner].hidden
    # The table has means over sequences, which few of them decide: sums over windows are most of what is compared,
    # and windows at equal distances have all parts of a trace in every generation.
    config = OrderSearchConfig(hidden, pooled=0.7, spread=True, seed=seed)
    if quick:
        return replace(config, population=6, episodes=2, generations=2, validate_every=1, validation=2)
    config = replace(config, population=24 if hidden else 20, validate_every=8, validation=80)
    if LEARNERS[learner].whole_queue:
        # Without backfilling nothing was gained after 400, and a window takes five times as long.
        is_long = OVERTAKING[overtaking] == ENDING_BEFORE
        return replace(config, episodes=24, generations=1600) if is_long else replace(config, generations=400)
    if LEARNERS[learner].continues:
        # Near the start, whose length is 1.
        return replace(config, episodes=24, generations=60, step=0.05)
    return replace(config, generations=75)


def _ppo_config(start: Floats | None, overtaking: str, seed: int, quick: bool) -> PPOConfig:
    """Return the options of a training by PPO from weights of a linear order; None: shortest first."""
    weights = dict(zip(LINEAR, (1.0, *(0.0 for _ in LINEAR[1:])) if start is None else start.tolist(), strict=True))
    config = PPOConfig(tuple(weights[name] for name in TERMS), decisions=PPO_DECISIONS[overtaking], seed=seed)
    if quick:
        return replace(config, decisions=64, envs=4, rollout=8, width=8, layers=1, heads=2, batch_size=16)
    return config


def _ppo_task(overtaking: str, quick: bool) -> PPOTask:
    """Return windows of both traces, of which every second one is trained on."""
    known, starts, validation = pooled_traces(), [], []
    places = known.places(_choice(quick))
    for k, (first, jobs) in enumerate(zip(known.offsets, known.lengths, strict=True)):
        validation.append([first + place for place in choice_first_jobs(jobs, 2 if quick else PPO_VALIDATION)])
        taken = {*validation[k], *np.concatenate([by_trace[k] for by_trace in places.values()]).tolist()}
        starts += [place for place in range(first, first + jobs - JOBS + 1, 1000 if quick else 2) if place not in taken]
    of_trace = np.repeat(np.arange(len(known.lengths)), known.lengths)
    overtakes = OVERTAKING[overtaking] == ENDING_BEFORE
    return PPOTask(known.jobs, of_trace, JOBS, np.array(starts), np.array(validation), overtakes)


def run(say: Say, quick: bool = False) -> Json:
    """Play the rules, train orders, and play these on the sequences of the table and on others, also with rollouts."""
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
            others = fresh_first_jobs(jobs)
            fresh[where] = {name: played(trace_name, order, others) for name, order in orders.items()}
    learned: Json = {mode: {} for mode in MODES}
    same = {name: asked[name] for name in ("traces", "jobs", "choice", "generated")}
    earlier = published("queues", NAME, same, quick)
    known = earlier.get("learned", {})
    # A training does not depend on how many there are, so that more can be added. The first one of everything comes
    # before the second one of anything, so that a study that is cut off has some of each.
    wanted = [
        (seed, mode, overtaking, name)
        for name in LEARNERS
        for mode, overtaking in MODES.items()
        for seed in range(1, _learner(name, at.quick).trainings[overtaking] + 1)
    ]
    # A learner that needs others comes after them.
    for seed, mode, overtaking, name in sorted(wanted, key=lambda each: (_prerequisites(each[3]), each[0])):
        learner, start = LEARNERS[name], None
        played_on: tuple[str, ...] = ("table", "fresh")
        if learner.continues:
            trained = [made for each in learner.continues for made in learned[mode][each][:CONTINUED]]
            start = np.array(_chosen(trained)["weights"])
            # Only the order of scores matters, so that all starts can be of length 1.
            start /= np.linalg.norm(start)
        depends = {key: asked[key] for key in ("traces", "jobs", "choice")}
        part = f"{overtaking}-{name.replace(', ', '-').replace(' ', '-')}-{seed}"
        if learner.rollouts_of:
            bases, rollouts = learned[mode][learner.rollouts_of], _rollout_config(overtaking, seed, at.quick)
            base = bases[seed - 1]
            # On the other windows only the chosen one, since they take long.
            if base is not _chosen(bases):
                played_on = ("table",)
            train = partial(_play_rollouts, at, part, overtaking, base, rollouts, played_on)
            depends |= asdict(rollouts) | {"weights": base["weights"], "played_on": played_on}
        elif learner.decisions:
            training = _ppo_config(start, overtaking, seed, at.quick)
            train, depends = partial(_train_ppo, at, part, overtaking, training), depends | asdict(training)
        else:
            config = _config(name, overtaking, seed, at.quick)
            train, depends = partial(_train, at, overtaking, name, config, start), depends | asdict(config)
            if learner.whole_queue:
                train = partial(_train_network, at, overtaking, name, config)
            if learner.generated:
                depends["generated"] = asked["generated"]
            if start is not None:
                depends["start"] = start.tolist()
        made = learned[mode].setdefault(name, [])
        has = known.get(mode, {}).get(name, [])
        is_same = seed <= len(has) and earlier["searches"][name][overtaking] == plain(
            asked["searches"][name][overtaking]
        )
        if is_same and learner.rollouts_of:
            # With more trainings another one may be the chosen one.
            is_same = bool(has[seed - 1]["fresh"]) == ("fresh" in played_on)
        made.append(has[seed - 1] if is_same else at.once(part, depends, train))
    return {**asked, "rules": rules, "fresh_rules": fresh, "learned": learned}


def _prerequisites(learner: str) -> int:
    """Return how many others must be trained before a learner."""
    return len(LEARNERS[learner].continues) + bool(LEARNERS[learner].rollouts_of)


def _chosen(trainings: Sequence[Json]) -> Json:
    """Return the training that was best on the sequences for the choice."""
    return min(trainings, key=lambda each: float(each["choice"]))


def _train(at: Desk, overtaking: str, learner: str, config: OrderSearchConfig, start: Floats | None) -> Json:
    """Train one order, and return its weights, what they took, and its slowdowns on both traces."""
    reference = Order("reference", scores.SHORTEST, OVERTAKING[overtaking], run_times=ORACLE)
    names = _generated_names(at.quick) if LEARNERS[learner].generated else tuple(TRACES)
    task = OrderTask(tuple(trace(name) for name in names), Windows(), slowdown, resolve("best-fit"), reference)
    progress = Progress(at.say, f"{overtaking}, {learner}, training {config.seed}, generations")
    began = time.monotonic()
    search = OrderSearch(task, config, jobs=at.jobs, start=start)
    try:
        search.run(lambda done, _: progress(done, config.generations))
    finally:
        search.close()
    minutes = at.jobs * (time.monotonic() - began) / 60
    order = learned_order(reference, search.best)
    chosen = [
        np.mean(played(name, order, choice_first_jobs(len(trace(name).pods), _choice(at.quick)))) for name in names
    ]
    values: Json = {
        "weights": search.best.tolist(),
        "gain": search.best_gain,
        "choice": float(np.log(chosen).mean()),
        "decisions": search.runs * JOBS,
        "core_minutes": minutes,
        "table": {},
        "fresh": {},
    }
    for name in TRACES:
        jobs = len(trace(name).pods)
        values["table"][name] = played(name, order, first_jobs(jobs, TABLE_SEED, SEQUENCES))
        values["fresh"][name] = played(name, order, fresh_first_jobs(jobs))
    return values


def _train_network(at: Desk, overtaking: str, learner: str, config: OrderSearchConfig) -> Json:
    """Train a network that sees the whole queue, and return what `_train` does."""
    known, overtakes = pooled_traces(), OVERTAKING[overtaking] == ENDING_BEFORE
    progress = Progress(at.say, f"{overtaking}, {learner}, training {config.seed}, generations")
    began = time.monotonic()
    search = NetworkSearch(known.jobs, len(TRACES), known.first, JOBS, overtakes, config)
    search.run(lambda done, _: progress(done, config.generations))
    values: Json = {"weights": search.best.tolist(), "gain": search.best_gain, "decisions": search.runs * JOBS}
    values["core_minutes"] = numba.get_num_threads() * (time.monotonic() - began) / 60
    slowdowns = {
        kind: [play(known.jobs, firsts, JOBS, overtakes, search.best[None])[0].tolist() for firsts in by_trace]
        for kind, by_trace in known.places(_choice(at.quick), 2 if at.quick else None).items()
    }
    return {**values, **_slowdowns_by_trace(slowdowns)}


def _slowdowns_by_trace(slowdowns: dict[str, list[list[float]]]) -> Json:
    """Return the slowdowns of the table and of other sequences by trace, and the mean log of those of the choice."""
    values: Json = {
        kind: {name: list(each) for name, each in zip(TRACES, slowdowns[kind], strict=True)}
        for kind in ("table", "fresh")
    }
    return {**values, "choice": float(np.log([np.mean(each) for each in slowdowns["choice"]]).mean())}


def _play_rollouts(
    at: Desk, part: str, overtaking: str, base: Json, config: RolloutConfig, played_on: Sequence[str]
) -> Json:
    """Play a network with rollouts, and return what `_train` does; `choice` is that of the network."""
    known, overtakes = pooled_traces(), OVERTAKING[overtaking] == ENDING_BEFORE
    began, windows, places = time.monotonic(), 0, known.places(_choice(at.quick), 2 if at.quick else None)
    progress, total = (
        Progress(at.say, f"{part}, windows"),
        sum(len(each) for kind in played_on for each in places[kind]),
    )
    values: Json = {"choice": base["choice"], "table": {}, "fresh": {}}
    for kind in played_on:
        for name, begins, firsts in zip(TRACES, known.offsets, places[kind], strict=True):
            trace_begins = np.full(len(firsts), begins)
            found = play_rollouts(known.jobs, firsts, trace_begins, JOBS, overtakes, np.array(base["weights"]), config)
            values[kind][name] = found.tolist()
            windows += len(firsts)
            progress(windows, total)
    return {
        **values,
        "decisions": windows * JOBS,
        "core_minutes": numba.get_num_threads() * (time.monotonic() - began) / 60,
    }


def _train_ppo(at: Desk, part: str, overtaking: str, config: PPOConfig) -> Json:
    """Train a network over the queue, and return what it took, and its slowdowns on both traces."""
    progress = Progress(at.say, f"{part}, decisions")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    training, began = QueuePPO(_ppo_task(overtaking, at.quick), config, device), time.monotonic()
    at.folder.mkdir(parents=True, exist_ok=True)
    training.run(lambda figures: progress(int(figures["decisions"]), config.decisions), at.folder / f"{part}.pt")
    minutes = at.jobs * (time.monotonic() - began) / 60
    training.actor.load_state_dict(training.best)
    slowdowns = {
        kind: [training.slowdowns(firsts) for firsts in by_trace]
        for kind, by_trace in pooled_traces().places(_choice(at.quick), 2 if at.quick else None).items()
    }
    values = {"validated": training.validated, "decisions": training.decisions, **_slowdowns_by_trace(slowdowns)}
    # On a GPU the cores do little.
    return {**values, "core_minutes": None if device == "cuda" else minutes}


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


def _is_chosen_from(result: Json, name: str) -> bool:
    """Return whether a learner has several trainings."""
    return any(count > 1 for count in result["learners"][name]["trainings"].values())


def _table_rows(result: Json, sequences: str) -> list[list[str]]:
    """Return rows: rules, what is published, and by learner the mean over trainings and the one that was chosen."""
    places = [(mode, name) for mode in MODES for name in TRACES]
    rules = result["rules" if sequences == "table" else "fresh_rules"]
    rows = [
        [rule, *(tables.number(float(np.mean(rules[f"{trace_name}{mode}"][rule]))) for mode, trace_name in places)]
        for rule in RULES
    ]
    if sequences == "table":
        published = [tables.number(PUBLISHED[f"{trace_name}{mode}"]["RLScheduler"]) for mode, trace_name in places]
        rows.append(["RLScheduler, published", *published])
    for name in result["learners"]:
        made = {mode: result["learned"][mode].get(name, []) for mode in MODES}
        cells = []
        for mode, trace_name in places:
            means = [float(np.mean(each[sequences][trace_name])) for each in made[mode] if each[sequences]]
            is_all = bool(means) and len(means) == len(made[mode])
            cells.append(tables.interval(tables.spread(means), sign=False, unit="times") if is_all else "–")
        if set(cells) != {"–"}:
            rows.append([name, *cells])
        if _is_chosen_from(result, name) and all(made.values()):
            chosen = [
                tables.number(float(np.mean(_chosen(made[mode])[sequences][trace_name]))) for mode, trace_name in places
            ]
            rows.append([f"{name}, chosen", *chosen])
    return rows


def _milliseconds_per_job(result: Json, mode: str) -> str:
    """Return how much of a core a job takes with rollouts."""
    made = [each for name, each in result["learned"][mode].items() if result["learners"][name]["rollouts_of"]]
    known = [one for each in made for one in each]
    minutes, decisions = (sum(each[what] for each in known) for what in ("core_minutes", "decisions"))
    return tables.number(60_000 * minutes / decisions if known else None, 1)


def _budgets(result: Json) -> list[list[str]]:
    """Return rows: mode and learner, trainings, and what one of them took on average."""
    rows = []
    for mode, learners in result["learned"].items():
        for name, made in learners.items():
            if result["learners"][name]["rollouts_of"]:
                continue
            decisions = float(np.mean([each["decisions"] for each in made]))
            known = [each["core_minutes"] for each in made if each["core_minutes"] is not None]
            minutes = tables.number(float(np.mean(known)) if known else None, 1)
            row = [str(len(made)), tables.number(decisions / 1e6, 1), minutes]
            rows.append([f"{name}{mode}", *row])
    return rows


def section(result: Json) -> str:
    """Return the section of docs/results.md."""
    header = ["mean bounded slowdown", *(f"{trace_name}{mode}" for mode in MODES for trace_name in TRACES)]
    generated, parts, _ = result["generated"]
    searches, units = result["searches"], result["learners"]["network, whole queue"]["hidden"]
    alone, backfilling = (searches["rollouts"][overtaking] for overtaking in MODES.values())
    few, many = (searches["network, whole queue"][overtaking] for overtaking in MODES.values())
    others = searches["network"]["none"]
    return "\n".join(
        [
            "## Who goes next, on RLScheduler's traces",
            "",
            "One pool of 256 processors, ten sequences of 1,024 jobs, the protocol of Zhang et al. (SC 2020). We "
            "ran the rules ourselves; RLScheduler's row is the published one. The other rows are ours: one order for "
            "both traces, unless said trained by evolution (CMA-ES) on windows that begin elsewhere. These windows "
            "overlap with the sequences of the table. `network` has 12 units on top of the linear score. `continued` "
            "begins with the chosen linear training, and has 24 windows in each generation instead of 12. The linear "
            "order `trained on neither` saw only jobs by the model of Lublin and Feitelson: "
            f"{generated} traces of {parts} parts, each with its own parameters and load.",
            "",
            "`network, whole queue` also sees the state of the queue (`studies.queues.queue_network`). That is how "
            "much its slowdowns grow in an hour, how much work it is, and the share that fits now. It also sees when a "
            f"quarter, a half and all of the pool will be free. Its {weight_count(units)} weights had "
            f"{few['generations']:,} generations of {few['episodes']} windows. With backfilling, where a window takes "
            f"a fifth of the time, it had {many['generations']:,} of {many['episodes']}. The other networks had "
            f"{others['generations']} of {others['episodes']}.",
            "",
            "`rollouts` plays these networks with rollouts one decision deep (`studies.queues.rollouts`). The "
            f"{alone['candidates']} jobs with the best scores are each tried on {alone['futures']} futures of "
            f"{alone['seconds'] / 3600:.0f} hours; with backfilling on {backfilling['futures']} of "
            f"{backfilling['seconds'] / 3600:.0f} hours. The network plays the rest of each. Its choice gives way to a "
            "job that is cheaper by more than a standard error. A future is a stretch of the same trace that has come "
            "before, at the same time of day within two hours. It may lie before the sequence, which in the table has "
            "at least 1,024 jobs before it. Nothing else is known of the trace. On average a job takes "
            f"{_milliseconds_per_job(result, '')} ms of a core, and {_milliseconds_per_job(result, BACKFILLING)} ms "
            "with backfilling.",
            "",
            "`PPO` is one training a mode of a network with attention over 128 waiting jobs, the shortest, with 73,000 "
            "weights (`studies.queues.queue_ppo`). It begins as evolution does, with the shortest first; `PPO, "
            "continued` begins as the best of the linear orders. "
            f"The checkpoint is the best of one in each million decisions, on {PPO_VALIDATION} further windows of each "
            "trace. The trainings shared a GPU (H200) and were ended after 8 minutes, those with backfilling after 10 "
            "minutes, in which they were stopped and went on once; the weights are not kept.",
            "",
            "Means over trainings with 95 % intervals, and the one training that was best on "
            f"{result['choice']} windows of each trace that it was trained on (`chosen`). These begin elsewhere than "
            "the sequences of both tables. `rollouts, chosen` is the network that was best without rollouts.",
            "",
            _compared_with_published(result["rules"]),
            "",
            tables.markdown(header, _table_rows(result, "table")),
            "",
            f"On {FRESH} other sequences of each trace, of the rollouts the chosen one alone:",
            "",
            tables.markdown(header, _table_rows(result, "fresh")),
            "",
            "What a training took, in runs of candidates, references and validations; the machine had other work, too. "
            "A decision of evolution is a job; one of PPO is a choice between jobs that wait, of which a window has "
            "about 900 without and 350 with backfilling. What a learner began with is not counted again:",
            "",
            tables.markdown(["order", "trainings", "million decisions", "core minutes"], _budgets(result)),
        ]
    )
