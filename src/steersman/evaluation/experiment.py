"""An experiment: every workload, policy and seed, over processes; the order of results does not depend on these."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from steersman.core.engines import ClusterLostError, make_workers, runs_here
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.redaction import redact_url
from steersman.evaluation.generated import (
    GeneratedOptions,
    check_generated,
    default_objectives,
    nominal_workload,
    protocol_of,
    run_generated,
)
from steersman.evaluation.summary import ALL, ARRIVED, BOUND
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.base import Policy
from steersman.policies.registry import portable
from steersman.policies.user_policy import PolicyProtocol
from steersman.simulation.arrivals import check_arrivals
from steersman.simulation.result import FinalNodes, Protocol, RunResult
from steersman.simulation.run import AS_IT_IS, Simulator
from steersman.workloads.workload import Workload

OnRun = Callable[[int, int], None]  # called after each run with the numbers of finished and of all runs
Finished = Callable[[], Mapping[int, RunResult]]  # returns the finished runs by their position
RESERVED = {BOUND: "the bound", AS_IT_IS: "the recorded placement", ARRIVED: "the row of the pods that arrive"}
"""Names that no policy may have, since they stand for something else where policies' names stand."""
Keep = Callable[[Finished], None]  # called after each run, so that the finished ones may be written


@dataclass(frozen=True, slots=True)
class Experiment:
    """The product of workloads, policies and seeds."""

    workloads: tuple[Workload, ...]  # their names are unique
    # Of unique names; policies that are objects must be picklable if there are several processes
    policies: tuple[str | Policy | PolicyProtocol, ...]
    seeds: tuple[int, ...]  # unique. A run is a function of its workload, policy, seed and what follows here alone.
    protocol: Protocol = "inflation"
    ratio: float = 1.3  # arrived GPU demand over GPU capacity (`inflation` only)
    load: float | None = None  # demand over capacity of generated arrivals (`timed` only), None: the times of the trace
    # Seconds, of pods whose source states no end (`timed` only), see `simulation.arrivals.schedule`
    mean_duration: float | None = None
    # What policies are compared by, the first of which decides; empty: the default of the protocol
    objectives: tuple[WeightedObjectives, ...] = ()
    # Of `deployments` and `latency`: the clusters and pods that the seeds generate; there is one workload then,
    # without nodes and pods, whose name stands for them in results
    environment: GeneratedOptions | None = None
    loads: tuple[float, ...] = ()  # the load of each workload, in place of `load`; empty: it is the same for all

    def __post_init__(self) -> None:
        _check_unique("workload", [workload.name for workload in self.workloads])
        policies = [redact_url(each) if isinstance(each, str) else each.name for each in self.policies]
        _check_unique("policy", policies)
        for name in filter(RESERVED.get, policies):
            raise UsageError(f"a policy is called {name}, as {RESERVED[name]} is in results; rename it")
        _check_unique("seed", [str(seed) for seed in self.seeds])
        if len(self.workloads) > 1 and ALL in [workload.name for workload in self.workloads]:
            raise UsageError(f"a workload is called {ALL}, as the mean over all workloads is; rename its file")

    @property
    def distinct_loads(self) -> tuple[float, ...]:
        """Return the loads of generated arrivals, each once; empty: the times are those of the trace."""
        return tuple(dict.fromkeys(self.loads)) or (() if self.load is None else (self.load,))

    @property
    def runs(self) -> int:
        return len(self.workloads) * len(self.policies) * len(self.seeds)


class InterruptionError(SteersmanError):
    """Ctrl-C, or a cluster that was lost.

    Args:
        finished: the finished runs by their position among all runs.
        kept: a clause on where the finished ones are, and how to continue from them.
        cause: what ended the runs; None: Ctrl-C.
    """

    exit_status = 130

    def __init__(
        self, finished: Mapping[int, RunResult], total: int, kept: str = "", cause: BaseException | None = None
    ) -> None:
        self.cause = cause if isinstance(cause, SteersmanError) else None
        why = "" if self.cause is None else f"{self.cause}; "
        super().__init__(f"{why}interrupted after {len(finished)} of {total} runs{kept and f'; {kept}'}")
        self.finished, self.total = finished, total
        if self.cause is not None:
            self.exit_status = self.cause.exit_status


@dataclass(frozen=True, slots=True)
class _Task:
    """Positions in the experiment, but for the seed: nothing large is sent with a task."""

    position: int
    workload: int
    policy: int
    seed: int
    keep_nodes: bool


def generated_experiment(
    environment: GeneratedOptions,
    policies: tuple[str | Policy | PolicyProtocol, ...],
    seeds: tuple[int, ...],
    objectives: tuple[WeightedObjectives, ...] = (),
) -> Experiment:
    """Return a comparison on generated clusters; without objectives, by those of `default_objectives`."""
    objectives = objectives or default_objectives(environment)
    check_generated(environment, objectives, policies)
    workloads = (nominal_workload(environment),)
    return Experiment(
        workloads, policies, seeds, protocol_of(environment), objectives=objectives, environment=environment
    )


def run_experiment(
    experiment: Experiment,
    *,
    # Number of workers, see `core.engines`; a single local one is this process.
    jobs: int = 1,
    on_run: OnRun | None = None,
    # Runs by their position that were done before, and are not done again
    finished: Mapping[int, RunResult] = MappingProxyType({}),
    keep: Keep | None = None,
) -> list[RunResult]:
    """Run everything; the result is ordered by workload, policy and seed.

    `final_nodes` is kept for the first seed of a workload and policy and empty for the others, `placements` is None.
    """
    for workload in experiment.workloads if experiment.environment is None else ():
        check_arrivals(workload, experiment.protocol)
        if not workload.eligible.any():
            raise SteersmanError(f"{workload.name}: no node takes pods: {workload.account.sentence}")
    total = experiment.runs
    done = dict(finished)
    tasks = [task for task in _tasks(experiment) if task.position not in done]
    jobs = min(jobs, len(tasks))

    def collect(task: _Task, run: RunResult) -> None:
        done[task.position] = run
        if on_run is not None:
            on_run(len(done), total)
        if keep is not None:
            keep(lambda: done)

    if not tasks:
        return [done[position] for position in range(total)]
    try:
        policies = [portable(policy) for policy in experiment.policies]
        if runs_here(jobs):
            bench = _RunnerCache(experiment, policies, lambda index: experiment.workloads[index])
            for task in tasks:
                collect(task, bench.run(task))
            return [done[position] for position in range(total)]
        # All that a run needs is sent: workers on other machines do not see files of this one.
        workloads = [pickle.dumps(workload, protocol=pickle.HIGHEST_PROTOCOL) for workload in experiment.workloads]
        settings = replace(experiment, workloads=tuple(replace(w, nodes=(), pods=()) for w in experiment.workloads))
        with make_workers(jobs, partial(_open_runner_cache, settings, policies, workloads)) as workers:
            for position, run in workers.answers(tasks):
                collect(tasks[position], run)
    except (KeyboardInterrupt, ClusterLostError) as error:
        raise InterruptionError(done, total, cause=error) from None
    return [done[position] for position in range(total)]


def _check_unique(what: str, values: Sequence[str]) -> None:
    if not values:
        raise UsageError(f"there is no {what}; give at least one")
    for value in values:
        if values.count(value) > 1:
            raise UsageError(f"the {what} {value} is there twice; results could not tell them apart")


def _tasks(experiment: Experiment) -> Iterator[_Task]:
    position = 0
    for workload in range(len(experiment.workloads)):
        for policy in range(len(experiment.policies)):
            for seed in experiment.seeds:
                yield _Task(position, workload, policy, seed, keep_nodes=seed == experiment.seeds[0])
                position += 1


class _RunnerCache:
    """The experiment's settings, and the simulator of the last run's workload.

    Args:
        experiment: its workloads may lack their nodes and pods.
        policies: its policies, those of files and URLs as objects.
    """

    def __init__(
        self, experiment: Experiment, policies: Sequence[str | Policy | PolicyProtocol], load: Callable[[int], Workload]
    ) -> None:
        self._experiment, self._policies, self._load = experiment, policies, load
        self._index = -1
        self._simulator: Simulator | None = None

    def run(self, task: _Task) -> RunResult:
        run = self._generated(task) if self._experiment.environment is not None else self._simulated(task)
        return run if task.keep_nodes else replace(run, final_nodes=_NO_NODES)

    def _generated(self, task: _Task) -> RunResult:
        settings = self._experiment
        assert settings.environment is not None
        with self._name_run_in_errors(task):
            return run_generated(settings.environment, self._policies[task.policy], task.seed, settings.objectives)

    def _simulated(self, task: _Task) -> RunResult:
        if self._simulator is None or self._index != task.workload:
            self._simulator = None  # two large workloads may not fit into memory
            self._simulator, self._index = Simulator(self._load(task.workload)), task.workload
        settings = self._experiment
        with self._name_run_in_errors(task):
            return self._simulator.run(
                self._policies[task.policy],
                protocol=settings.protocol,
                seed=task.seed,
                ratio=settings.ratio,
                load=settings.loads[task.workload] if settings.loads else settings.load,
                mean_duration=settings.mean_duration,
                objectives=settings.objectives,
            )

    @contextmanager
    def _name_run_in_errors(self, task: _Task) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            policy = self._policies[task.policy]
            name = redact_url(policy) if isinstance(policy, str) else policy.name
            error.add_note(f"policy {name!r}, seed {task.seed}")
            raise


_NO_NODES = FinalNodes((), (), np.zeros(0), np.zeros(0), np.zeros(0))


def _open_runner_cache(
    experiment: Experiment, policies: Sequence[str | Policy | PolicyProtocol], workloads: Sequence[bytes]
) -> Callable[[_Task], RunResult]:
    """Return the function that makes runs in a worker, which unpickles a workload when it first needs it."""
    return _RunnerCache(experiment, policies, lambda index: pickle.loads(workloads[index])).run
