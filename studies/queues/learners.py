"""What is trained for the table of RLScheduler's traces, and how: by evolution, by PPO, and with rollouts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from steersman.orders import scores
from steersman.orders.order import NO_ONE, Estimates, Order
from steersman.orders.scores import LINEAR
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import window
from steersman.simulation.run import Simulator
from steersman.simulation.waiting import Waits
from studies.common import Desk, Json, Progress
from studies.queues.queue_network import NetworkSearch, play
from studies.queues.queue_ppo import TERMS, PPOConfig, PPOTask, QueuePPO
from studies.queues.rollouts import RolloutConfig, play_rollouts
from studies.queues.sequences import (
    CHOICE,
    JOBS,
    SEQUENCES,
    TABLE_SEED,
    TRACES,
    WindowDraw,
    choice_first_jobs,
    first_jobs,
    fresh_first_jobs,
    pooled_traces,
    trace,
)
from studies.queues.traces import arrivals_of

ORACLE = Estimates("oracle")
"""The traces state no estimates, so the run time stands for it in every column."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OrderLearner:
    """What is trained, on what, and how often.

    Attributes:
        hidden: units on top of the linear score, or of the quadratic form of a network that sees the whole queue.
        trainings: their number.
        generated: whether it is trained on generated jobs, and not on the two traces.
        continues: the learners whose best training, of the first `CONTINUED`, it begins with; (): none.
        decisions: of a training by PPO (`queue_ppo`); 0: evolution trains it.
        whole_queue: whether it sees the state of the queue, too (`queue_network`).
        rollouts_of: the learner whose trainings are played with rollouts (`rollouts`); "": no rollouts.
    """

    hidden: int
    trainings: int
    generated: bool = False
    continues: tuple[str, ...] = ()
    decisions: int = 0
    whole_queue: bool = False
    rollouts_of: str = ""


PPO_DECISIONS = 4_900_000

CONTINUED = 4
LEARNERS = {
    "linear": OrderLearner(0, 10),
    "linear, continued": OrderLearner(0, 1, continues=("linear",)),
    "network": OrderLearner(12, 10),
    "network, whole queue": OrderLearner(12, 10, whole_queue=True),
    "rollouts": OrderLearner(12, 10, rollouts_of="network, whole queue"),
    "trained on neither": OrderLearner(0, 10, generated=True),
    "PPO": OrderLearner(0, 1, decisions=PPO_DECISIONS),
    "PPO, continued": OrderLearner(0, 1, continues=("linear", "linear, continued"), decisions=PPO_DECISIONS),
}
ROLLOUTS = RolloutConfig(futures=16, seconds=12 * 3600.0)
"""Few options were tried, on windows of the choice."""
GENERATED, PARTS = 2, 16
"""Generated traces, and their parts of `JOBS` jobs with parameters and a load of their own."""
GENERATED_SEED = 11
BOTH = ("table", "fresh")
"""The sequences that trainings are played on."""
PPO_VALIDATION = 40
"""Sequences of each trace by which PPO chooses a checkpoint."""


def search_options(name: str, quick: bool) -> Json:
    """Return what the trainings of a learner depend on, except for their seeds."""
    learner = LEARNERS[name]
    if learner.rollouts_of:
        of = search_options(learner.rollouts_of, quick)
        return {**asdict(rollout_config(1, quick)), "of": of}
    if learner.decisions:
        return asdict(ppo_config(None, 1, quick))
    return asdict(search_config(name, 1, quick))


def rollout_config(seed: int, quick: bool) -> RolloutConfig:
    """Return the options of rollouts."""
    config = replace(ROLLOUTS, seed=seed)
    return replace(config, candidates=2, futures=2) if quick else config


def learner_of(name: str, quick: bool) -> OrderLearner:
    """Return a learner, in a quick run with one training at most."""
    learner = LEARNERS[name]
    return replace(learner, trainings=1) if quick else learner


def choice_windows(quick: bool) -> int:
    """Return on how many sequences of each trace a training is chosen."""
    return 2 if quick else CHOICE


def search_config(learner: str, seed: int, quick: bool) -> OrderSearchConfig:
    """Return the options of a training by evolution."""
    hidden = LEARNERS[learner].hidden
    # The table has means over sequences, which few of them decide: sums over windows are most of what is compared,
    # and windows at equal distances have all parts of a trace in every generation.
    config = OrderSearchConfig(hidden, pooled=0.7, spread=True, seed=seed)
    if quick:
        return replace(config, population=6, episodes=2, generations=2, validate_every=1, validation=2)
    config = replace(config, population=24 if hidden else 20, validate_every=8, validation=80)
    if LEARNERS[learner].whole_queue:
        # Nothing was gained after 400.
        return replace(config, generations=400)
    if LEARNERS[learner].continues:
        # Near the start, whose length is 1.
        return replace(config, episodes=24, generations=60, step=0.05)
    return replace(config, generations=75)


def ppo_config(start: Floats | None, seed: int, quick: bool) -> PPOConfig:
    """Return the options of a training by PPO from weights of a linear order; None: shortest first."""
    weights = dict(zip(LINEAR, (1.0, *(0.0 for _ in LINEAR[1:])) if start is None else start.tolist(), strict=True))
    config = PPOConfig(tuple(weights[name] for name in TERMS), decisions=PPO_DECISIONS, seed=seed)
    if quick:
        return replace(config, decisions=64, envs=4, rollout=8, width=8, layers=1, heads=2, batch_size=16)
    return config


def _ppo_task(quick: bool) -> PPOTask:
    """Return windows of both traces, of which every second one is trained on."""
    known, starts, validation = pooled_traces(), [], []
    places = known.places(choice_windows(quick))
    for k, (first, jobs) in enumerate(zip(known.offsets, known.lengths, strict=True)):
        validation.append([first + place for place in choice_first_jobs(jobs, 2 if quick else PPO_VALIDATION)])
        taken = {*validation[k], *np.concatenate([by_trace[k] for by_trace in places.values()]).tolist()}
        starts += [place for place in range(first, first + jobs - JOBS + 1, 1000 if quick else 2) if place not in taken]
    of_trace = np.repeat(np.arange(len(known.lengths)), known.lengths)
    return PPOTask(known.jobs, of_trace, JOBS, np.array(starts), np.array(validation))


def _generated_names(quick: bool) -> tuple[str, ...]:
    """Return names for `trace`, which say the parts and the seed."""
    count, parts, seed = generated_options(quick)
    return tuple(f"generated-{parts}-{seed + k}" for k in range(count))


def generated_options(quick: bool) -> list[int]:
    """Return how many traces are generated, of how many parts, and the first seed."""
    return [GENERATED, 4 if quick else PARTS, GENERATED_SEED]


def slowdown(waits: Waits) -> float:
    """Return the mean bounded slowdown."""
    return float(waits.bounded_slowdown.mean())


def played(name: str, order: Order, first: Sequence[int]) -> list[float]:
    """Return the mean bounded slowdown of an order in each sequence of a trace."""
    simulator, plan = _simulator(name), arrivals_of(trace(name))
    policy = with_order(resolve("best-fit"), replace(order, estimates=ORACLE))
    return [slowdown(waits_under(policy, simulator, window(plan, each, JOBS), 1)) for each in first]


@cache
def _simulator(name: str) -> Simulator:
    return Simulator(trace(name))


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One training of a learner.

    Attributes:
        learner: a name of `LEARNERS`.
        seed: of the training, from 1.
    """

    learner: str
    seed: int

    @property
    def part(self) -> str:
        """Return the name under which it is kept."""
        return f"{self.learner.replace(', ', '-').replace(' ', '-')}-{self.seed}"

    @property
    def turn(self) -> tuple[int, int]:
        """Return when it is its turn.

        The first training of everything comes before the second one of anything, so that a study that is cut off has
        some of each. A learner that needs others comes after them.
        """
        learner = LEARNERS[self.learner]
        return len(learner.continues) + bool(learner.rollouts_of), self.seed


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """A training that may be made already.

    Attributes:
        depends: what its result depends on, besides what all trainings do.
        make: trains and plays, and returns the result.
        played_on: the sequences that it is played on.
    """

    depends: Json
    make: Callable[[], Json]
    played_on: tuple[str, ...] = BOTH


def plan_training(at: Desk, training: TrainingRun, others: Mapping[str, Sequence[Json]]) -> PlannedTraining:
    """Return how a training is made.

    Args:
        at: where it is kept.
        training: which one.
        others: other trainings, by learner.
    """
    learner, seed = LEARNERS[training.learner], training.seed
    if learner.rollouts_of:
        bases, rollouts = others[learner.rollouts_of], rollout_config(seed, at.quick)
        base = bases[seed - 1]
        # On the other windows only the chosen one, since they take long.
        played_on = BOTH if base is chosen_training(bases) else ("table",)
        depends = asdict(rollouts) | {"weights": base["weights"], "played_on": played_on}
        return PlannedTraining(depends, partial(_play_rollouts, at, training, base, rollouts, played_on), played_on)
    start = None
    if learner.continues:
        trained = [made for each in learner.continues for made in others[each][:CONTINUED]]
        start = np.array(chosen_training(trained)["weights"])
        # Only the order of scores matters, so that all starts can be of length 1.
        start /= np.linalg.norm(start)
    if learner.decisions:
        ppo = ppo_config(start, seed, at.quick)
        return PlannedTraining(asdict(ppo), partial(_train_ppo, at, training, ppo))
    config = search_config(training.learner, seed, at.quick)
    if learner.whole_queue:
        return PlannedTraining(asdict(config), partial(_train_network, at, training, config))
    depends = asdict(config)
    if learner.generated:
        depends["generated"] = generated_options(at.quick)
    if start is not None:
        depends["start"] = start.tolist()
    return PlannedTraining(depends, partial(_train, at, training, config, start))


def chosen_training(trainings: Sequence[Json]) -> Json:
    """Return the training that was best on the sequences for the choice."""
    return min(trainings, key=lambda each: float(each["choice"]))


def _train(at: Desk, training: TrainingRun, config: OrderSearchConfig, start: Floats | None) -> Json:
    """Train one order, and return its weights, what they took, and its slowdowns on both traces."""
    reference = Order("reference", scores.SHORTEST, NO_ONE, estimates=ORACLE)
    names = _generated_names(at.quick) if LEARNERS[training.learner].generated else tuple(TRACES)
    task = OrderTask(tuple(trace(name) for name in names), WindowDraw(), slowdown, resolve("best-fit"), reference)
    progress = Progress(at.say, f"{training.part}, generations")
    began = time.monotonic()
    search = OrderSearch(task, config, jobs=at.jobs, start=start)
    try:
        search.run(lambda done, _: progress(done, config.generations))
    finally:
        search.close()
    minutes = at.jobs * (time.monotonic() - began) / 60
    order = learned_order(reference, search.best)
    windows = choice_windows(at.quick)
    means = [np.mean(played(name, order, choice_first_jobs(len(trace(name).pods), windows))) for name in names]
    values: Json = {
        "weights": search.best.tolist(),
        "gain": search.best_gain,
        "choice": float(np.log(means).mean()),
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


def _train_network(at: Desk, training: TrainingRun, config: OrderSearchConfig) -> Json:
    """Train a network that sees the whole queue, and return what `_train` does."""
    known = pooled_traces()
    progress = Progress(at.say, f"{training.part}, generations")
    began = time.monotonic()
    search = NetworkSearch(known.jobs, len(TRACES), known.first, JOBS, config)
    search.run(lambda done, _: progress(done, config.generations))
    values: Json = {"weights": search.best.tolist(), "gain": search.best_gain, "decisions": search.runs * JOBS}
    values["core_minutes"] = numba.get_num_threads() * (time.monotonic() - began) / 60
    slowdowns = {
        kind: [play(known.jobs, firsts, JOBS, search.best[None])[0].tolist() for firsts in by_trace]
        for kind, by_trace in known.places(choice_windows(at.quick), 2 if at.quick else None).items()
    }
    return {**values, **_slowdowns_by_trace(slowdowns)}


def _slowdowns_by_trace(slowdowns: dict[str, list[list[float]]]) -> Json:
    """Return the slowdowns of the table and of other sequences by trace, and the mean log of those of the choice."""
    values: Json = {
        kind: {name: list(each) for name, each in zip(TRACES, slowdowns[kind], strict=True)} for kind in BOTH
    }
    return {**values, "choice": float(np.log([np.mean(each) for each in slowdowns["choice"]]).mean())}


def _play_rollouts(
    at: Desk, training: TrainingRun, base: Json, config: RolloutConfig, played_on: Sequence[str]
) -> Json:
    """Play a network with rollouts, and return what `_train` does; `choice` is that of the network."""
    known = pooled_traces()
    began, windows, places = time.monotonic(), 0, known.places(choice_windows(at.quick), 2 if at.quick else None)
    progress, total = Progress(at.say, f"{training.part}, windows"), sum(len(b) for a in played_on for b in places[a])
    values: Json = {"choice": base["choice"], "table": {}, "fresh": {}}
    for kind in played_on:
        for name, begins, firsts in zip(TRACES, known.offsets, places[kind], strict=True):
            trace_begins = np.full(len(firsts), begins)
            found = play_rollouts(known.jobs, firsts, trace_begins, JOBS, np.array(base["weights"]), config)
            values[kind][name] = found.tolist()
            windows += len(firsts)
            progress(windows, total)
    return {
        **values,
        "decisions": windows * JOBS,
        "core_minutes": numba.get_num_threads() * (time.monotonic() - began) / 60,
    }


def _train_ppo(at: Desk, training: TrainingRun, config: PPOConfig) -> Json:
    """Train a network over the queue, and return what it took, and its slowdowns on both traces."""
    progress = Progress(at.say, f"{training.part}, decisions")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ppo, began = QueuePPO(_ppo_task(at.quick), config, device), time.monotonic()
    at.folder.mkdir(parents=True, exist_ok=True)
    ppo.run(lambda figures: progress(int(figures["decisions"]), config.decisions), at.folder / f"{training.part}.pt")
    minutes = at.jobs * (time.monotonic() - began) / 60
    ppo.actor.load_state_dict(ppo.best)
    slowdowns = {
        kind: [ppo.slowdowns(firsts) for firsts in by_trace]
        for kind, by_trace in pooled_traces().places(choice_windows(at.quick), 2 if at.quick else None).items()
    }
    values = {"validated": ppo.validated, "decisions": ppo.decisions, **_slowdowns_by_trace(slowdowns)}
    # On a GPU the cores do little.
    return {**values, "core_minutes": None if device == "cuda" else minutes}
