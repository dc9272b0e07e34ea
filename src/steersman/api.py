"""The public Python API: what the command line does, in a few lines of Python.

import steersman

workload = steersman.load_workload("nodes.yaml", "pods.yaml")  # or a packaged one: load_workload("default")
evaluation = steersman.evaluate(workload, ["kube-default", "fgd", "steersman"], seeds=5)
evaluation  # tables in a notebook
evaluation.to_frame()  # of pandas or polars
evaluation.write("out")  # report.html and CSV files
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.agents.registry import ALGORITHMS, AlgorithmSpec
from steersman.core.config.fields import checked_arguments, make_config
from steersman.core.engines import use_engine as use_engine  # one of the names of this module
from steersman.core.errors import UsageError, unknown_name
from steersman.core.processes import check_jobs
from steersman.envs.deployments import DeploymentsOptions
from steersman.envs.latency import LatencyOptions
from steersman.evaluation.criteria import check_objectives, parse_objectives
from steersman.evaluation.evaluation import Evaluation, evaluate_experiments
from steersman.evaluation.experiment import Experiment, generated_experiment
from steersman.evaluation.generated import GeneratedOptions
from steersman.live.http_policy.scheme import register_http_policies
from steersman.objectives import registry as objectives
from steersman.objectives.objective import Objective
from steersman.orders import registry as orders
from steersman.orders.order import Order
from steersman.policies import networks
from steersman.policies import registry as policy_registry
from steersman.policies.base import Policy
from steersman.policies.networks import NetworkSpec
from steersman.policies.registry import as_policy
from steersman.policies.user_policy import PolicyProtocol
from steersman.simulation.protocols import choose_protocols
from steersman.simulation.result import Protocol, RunResult
from steersman.simulation.run import Simulator
from steersman.workloads import loading
from steersman.workloads.files import input_path
from steersman.workloads.formats import registry as formats
from steersman.workloads.formats.base import WorkloadFormat
from steersman.workloads.formats.openb import embedded, known_names
from steersman.workloads.workload import FIRST_SEED, RunningPods, Workload

if TYPE_CHECKING:
    from steersman.live.learner.live_agent import LiveAgent
    from steersman.live.load.live_cluster import LiveCluster
    from steersman.live.load.load_driver import LoadDriver
    from steersman.training.plans import AnyPlan, EnvironmentOptions, TrainingResult
    from steersman.training.run import OnIteration
    from steersman.training.tuning.study import OnTrial, TuneOutcome

AnyWorkload = str | Path | Workload
"""A workload, the name of a packaged one such as `default`, or a file or folder of nodes and pods."""

AnyPolicy = str | Policy | PolicyProtocol
"""A policy, its name (also a sum such as `fgd=2,best-fit=1`, a file, the URL of a score server, or `module:Class`), or
a user's own object."""

register_http_policies()


@checked_arguments
def load_workload(
    nodes: str | Path,
    pods: str | Path | None = None,
    *,
    running: RunningPods = RunningPods.FREE,
    strict: bool = False,
) -> Workload:
    """Return a workload from files or folders in any format, or a packaged one by its name.

    Kubernetes objects that the API server would refuse are left out, and `warnings` of the workload name them.

    Args:
        nodes: file or folder of nodes, or of nodes and pods, `-` is the standard input; or the name of a packaged
            workload such as `default`.
        pods: file or folder of pods.
        running: what to do with pods that run on a node already.
        strict: whether an invalid object is an error.

    Raises:
        InputError: something is missing or invalid in the files.
        UsageError: `strict` and an object is invalid.
    """
    if pods is None and not input_path(nodes).exists():
        name = str(nodes)
        if name in known_names() or (Path(name).name == name and not Path(name).suffix):
            return embedded(name)
    return loading.load_workload(nodes, pods, running=running, strict=strict)


def _workload(given: AnyWorkload, protocol: str | None = None) -> Workload:
    if isinstance(given, Workload):
        return given
    if not isinstance(given, (str, Path)):
        raise UsageError(f"{given!r} is not a workload; expected a Workload, its name, or a file or folder")
    return load_workload(given, running=RunningPods.REPLAYED if protocol == "timed" else RunningPods.FREE)


def _workloads(given: AnyWorkload | Sequence[AnyWorkload], protocol: str | None = None) -> tuple[Workload, ...]:
    several = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, Workload)) else [given]
    if not several:
        raise UsageError("no workload was given; at least one is needed")
    return tuple(_workload(each, protocol) for each in several)


def _seeds(given: int | Iterable[int]) -> tuple[int, ...]:
    """Return the seeds, or that many from the first one on. Raises UsageError: a seed is not an integer."""
    seeds = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if seeds is None and isinstance(given, Integral) and not isinstance(given, bool):
        seeds = tuple(range(FIRST_SEED, FIRST_SEED + int(given)))
    wrong = seeds is None or any(not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0 for seed in seeds)
    if wrong or not seeds:
        raise UsageError(f"seeds={given!r}: expected a number of seeds, at least 1, or integers of at least 0")
    return tuple(map(int, seeds))


def load_policy(policy: AnyPolicy) -> Policy:
    """Return the policy of a name, a file or a user's own object. Raises UsageError: there is none."""
    return as_policy(policy)


@checked_arguments
def simulate(
    workload: AnyWorkload,
    policy: AnyPolicy,
    *,
    protocol: Protocol = "inflation",
    seed: int = FIRST_SEED,
    ratio: float = 1.3,
    load: float | None = None,
    mean_duration: float | None = None,
    record: bool = False,
) -> RunResult:
    """Return the result of one run of a policy on a workload.

    Args:
        workload: nodes and pods, the name of a packaged workload, or a file or folder.
        policy: the policy that decides.
        protocol: `inflation`, `arrivals` or `timed`.
        seed: seed of the order of arrivals.
        ratio: arrived GPU demand over GPU capacity (`inflation`).
        load: demand over capacity of generated arrivals (`timed`), None: the times of the trace.
        mean_duration: mean seconds of pods whose source states no end (`timed`).
        record: whether to keep every placement with its reason.
    """
    return Simulator(_workload(workload, protocol)).run(
        policy, protocol=protocol, seed=seed, ratio=ratio, load=load, mean_duration=mean_duration, record=record
    )


@checked_arguments
def evaluate(
    workloads: AnyWorkload | Sequence[AnyWorkload] | DeploymentsOptions | LatencyOptions,
    policies: AnyPolicy | Sequence[AnyPolicy],
    *,
    seeds: int | Iterable[int] = 5,
    protocol: Protocol | None = None,
    ratio: float = 1.3,
    load: float | None = None,
    mean_duration: float | None = None,
    baseline: AnyPolicy | None = None,
    objective: str | Sequence[str] = (),
    bound: bool = False,
    jobs: int = 1,
) -> Evaluation:
    """Compare policies on workloads over seeds, with confidence intervals.

    Args:
        workloads: one, or several of different names, as of `simulate`; or the options of clusters and pods that the
            seeds generate (`DeploymentsOptions`, `LatencyOptions`).
        policies: one, or several of different names.
        seeds: the seeds, or their number.
        protocol: None: all that the workloads have the data for.
        ratio: arrived GPU demand over GPU capacity (`inflation`).
        load: demand over capacity of generated arrivals (`timed`), None: the times of the trace.
        mean_duration: mean seconds of pods whose source states no end (`timed`).
        baseline: the policy that others are compared with; None: the first.
        objective: what decides: `balance`, several such as `balance,most-allocated`, of which the first decides, or a
            weighted sum; empty: the GPU (or CPU) allocated, in `timed` the mean wait.
        bound: whether to compute an upper bound on any scheduler's allocation (needs SciPy), which a process of its
            own does.
        jobs: number of processes, 1 or more; policies that are objects must be picklable for more than one. Processes
            run a script again: with `bound` or several of them its call belongs under `if __name__ == "__main__":`.

    Raises:
        UsageError: an argument is empty, repeated or contradicts another, or `jobs` is below 1.
        SteersmanError: a run failed.
    """
    numbers = _seeds(seeds)
    wanted = parse_objectives([objective] if isinstance(objective, str) else objective)
    chosen = tuple(policies) if isinstance(policies, Iterable) and not isinstance(policies, str) else (policies,)
    for each in chosen:
        if not isinstance(each, str):
            as_policy(each)
    check_jobs(jobs)
    if not chosen:
        raise UsageError("there is no policy; give at least one")
    first = chosen[0] if baseline is None else baseline
    if first not in chosen:
        raise UsageError(f"baseline {first!r} is none of the policies")
    if isinstance(workloads, GeneratedOptions):
        generated = generated_experiment(workloads, chosen, numbers, wanted)
        return evaluate_experiments([generated], baseline=first, jobs=jobs)
    several = _workloads(workloads, protocol)
    protocols = choose_protocols(several, mean_duration=mean_duration).protocols if protocol is None else (protocol,)
    protocols = check_objectives(wanted, several, protocols)
    experiments = [
        Experiment(several, chosen, numbers, each, ratio, load, mean_duration if each == "timed" else None, wanted)
        for each in protocols
    ]
    return evaluate_experiments(experiments, baseline=first, jobs=jobs, bound=bound)


@checked_arguments
def train(
    source: AnyWorkload | Sequence[AnyWorkload] | EnvironmentOptions,
    output: str | Path,
    *,
    algorithm: str = "evolution",
    name: str | None = None,
    iterations: int | None = None,
    minutes: float | None = None,
    patience: int = 0,
    validate_every: int | None = None,
    jobs: int = 1,
    resume: bool = False,
    on_iteration: OnIteration | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a policy by evolution or reinforcement learning; `steersman train` writes the same files.

    Args:
        source: workloads, as of `evaluate`, or the options of an environment (`WorkloadOptions`,
            `DeploymentsOptions`, `LatencyOptions`).
        output: folder of the run.
        algorithm: name of a registered algorithm.
        name: name of the policy, None: that of the folder.
        iterations: maximum number of iterations, None: the algorithm's default.
        minutes: maximum duration, None: no limit.
        patience: stop after this many validations without improvement; 0: never.
        validate_every: iterations between validations, None: the algorithm's default.
        jobs: number of processes of evolution on workloads.
        resume: resume the run in `output`.
        on_iteration: called after each iteration.
        **options: of `training.plans.PlanOptions`: `protocol`, `objective`, `network`, `hidden`, `seed` and others.

    Raises:
        UsageError: an option is invalid or contradicts another.
        MissingExtraError: torch or Gymnasium is not installed.
        SteersmanError: the run failed.
    """
    from steersman.training.plans import TrainingResult, algorithm_of
    from steersman.training.plans import train as run_training
    from steersman.training.run import TrainingLimits

    check_jobs(jobs)
    folder = Path(output)
    plan = _plan(train, source, name or folder.name, algorithm, options)
    spec = algorithm_of(plan)
    limits = TrainingLimits(iterations or spec.iterations, minutes, validate_every or spec.validate_every, patience)
    progress = run_training(plan, folder, limits, jobs=jobs, resume=resume, on_iteration=on_iteration)
    return TrainingResult(plan, folder, progress)


@checked_arguments
def tune(
    source: AnyWorkload | Sequence[AnyWorkload] | EnvironmentOptions,
    output: str | Path,
    *,
    algorithm: str = "evolution",
    trials: int | None = None,
    minutes: float | None = None,
    iterations: int | None = None,
    validate_every: int | None = None,
    jobs: int = 1,
    storage: str = "",
    on_trial: OnTrial | None = None,
    **options: Any,
) -> TuneOutcome:
    """Search for good options of `train` with Optuna; `steersman tune` writes the same files.

    Args:
        source: workloads, or the options of an environment, as of `train`.
        output: folder of the study; an existing study is continued.
        algorithm: name of a registered algorithm.
        trials: number of trials to add, None: 20, with `minutes` as many as time allows.
        minutes: maximum duration of all trials together, None: no limit.
        iterations: of a trial, None: 40 % of the algorithm's default.
        validate_every: iterations between validations, after each of which a trial may be pruned, None: likewise.
        jobs: number of processes.
        storage: URL of a storage that several studies share, see `training.tuning.storage`; empty: a file in `output`.
        on_trial: called after each trial with the number of trials and the best value so far.
        **options: of `train`, with `settings` as a part; what they name is fixed, the algorithm's other options are
            searched.

    Raises:
        UsageError: an option is invalid or contradicts another.
        MissingExtraError: torch or Optuna is not installed.
        SteersmanError: no trial finished.
    """
    from steersman.training.plans import algorithm_of
    from steersman.training.tuning.study import StudyBudget, trial_limits
    from steersman.training.tuning.study import tune as run_trials

    check_jobs(jobs)
    folder = Path(output)
    plan = _plan(tune, source, folder.name, algorithm, options)
    limits = trial_limits(algorithm_of(plan), iterations, validate_every)
    fixed = {*options, *(options.get("settings") or {})}
    return run_trials(
        plan, folder, limits, StudyBudget(trials, minutes, jobs), fixed=fixed, storage=storage, on_trial=on_trial
    )


def _plan(function: Callable[..., Any], source: Any, name: str, algorithm: str, options: Mapping[str, Any]) -> AnyPlan:
    from steersman.envs.workload import WorkloadOptions
    from steersman.training.plans import PlanOptions, make_plan

    known = signature(PlanOptions).parameters
    for each in options:
        if each not in known:
            raise unknown_name(f"option of {function.__name__}", each, (*signature(function).parameters, *known))
    is_environment = isinstance(source, (WorkloadOptions, DeploymentsOptions, LatencyOptions))
    return make_plan(source if is_environment else _workloads(source), name, algorithm, PlanOptions(**options))


@checked_arguments
def connect(
    kubeconfig: str | Path | None = None, context: str | None = None, *, name: str | None = None
) -> LiveCluster:
    """Return a live cluster: the one that kubectl would use, unless arguments name another. Nothing is changed in it.

    Args:
        kubeconfig: a file, None: as kubectl finds it.
        context: a context of that file, None: its current one.
        name: a cluster of `steersman cluster up --name` instead.

    Raises:
        UsageError: a name and a file are given.
        SteersmanError: the cluster does not exist.
    """
    from steersman.live.load.live_cluster import LiveCluster, find_target

    return LiveCluster(find_target(None if kubeconfig is None else Path(kubeconfig), context, name))


@checked_arguments
def live_agent(
    folder: str | Path,
    *,
    cluster: LiveCluster | None = None,
    scheduler_name: str = "steersman",
    policy: str | None = None,
    algorithm: str | None = None,
    network: str | None = None,
    hidden: Sequence[int] | None = None,
    objective: str | None = None,
    seed: int = 1,
    explore_anyway: bool = False,
    **settings: Any,
) -> LiveAgent:
    """Return an agent that schedules a live cluster while it learns; `steersman schedule --learn` runs the same.

    Its `run` blocks until `stop`, so call it in a thread. Learning runs in its own process: a script calls `run` under
    `if __name__ == "__main__":`.

    Args:
        folder: folder of the run; a run in it is continued.
        cluster: of `connect`; None: the one that kubectl would use, else that of `steersman cluster up`.
        scheduler_name: `spec.schedulerName` of its pods.
        policy: decides where the agent does not answer in time; a policy file is what the agent starts from. None: the
            rule of the objective.
        algorithm: None: that of the policy file, else `dqn`.
        network: None: that of the policy file, else `mlp`.
        hidden: None: the widths of the policy file's layers, else (64, 64).
        objective: None: that of the policy file, else `balance`.
        seed: of first weights and exploration.
        explore_anyway: whether to explore in a cluster that steersman did not start.
        **settings: options of the algorithm such as `learning_rate`.

    Raises:
        UsageError: an option is invalid, or the agent would explore in a cluster that steersman did not start.
        SteersmanError: the cluster does not exist.
    """
    from steersman.live.learner.live_agent import LiveAgent, log_warnings, scheduler_settings
    from steersman.live.learner.plan import AgentOptions, file_to_start_from, live_plan

    log_warnings()
    options = AgentOptions(algorithm, network, None if hidden is None else tuple(hidden), objective=objective)
    plan = live_plan(scheduler_name, file_to_start_from(policy), options, seed=seed).with_settings(settings)
    target = (cluster or connect()).target
    return LiveAgent(target, plan, Path(folder), scheduler_settings(plan, policy), explore_anyway=explore_anyway)


@checked_arguments
def load_driver(
    *,
    cluster: LiveCluster | None = None,
    scheduler_name: str = "steersman",
    pods: int = 0,
    seeds: int | Iterable[int] = 1,
    output: str | Path | None = None,
    yes: bool = False,
    **settings: Any,
) -> LoadDriver:
    """Return a driver that fills and clears a live cluster; `steersman workload run` runs the same.

    Its `run` blocks until all is done or another thread calls `stop`.

    Args:
        cluster: of `connect`; None: as in `live_agent`.
        scheduler_name: `spec.schedulerName` of the pods.
        pods: number of pods to create in all; 0: as `resets` and `seeds` say.
        seeds: the seeds of the Deployments, or their number.
        output: CSV file of the run.
        yes: whether to act in a cluster that steersman did not start.
        **settings: of `workloads.generators.deployments.DeploymentSettings`, such as `cpu_load` and `resets`.

    Raises:
        UsageError: an option is invalid, or steersman did not start the cluster.
        SteersmanError: the cluster does not exist.
    """
    from steersman.live.learner.live_agent import log_warnings
    from steersman.live.load.driver import FillOptions
    from steersman.live.load.load_driver import LoadDriver
    from steersman.workloads.generators.deployments import DeploymentSettings

    log_warnings()
    filling = make_config(DeploymentSettings, settings, "load_driver")
    manner = FillOptions(scheduler_name, interval=filling.interval_seconds, wait=filling.wait_seconds)
    file = None if output is None else Path(output)
    return LoadDriver((cluster or connect()).target, filling, manner, _seeds(seeds), output=file, pods=pods, yes=yes)


def register_policy(name: str, policy: object) -> None:
    """Register a policy of your own for this process: a class or an object with the methods of `PolicyProtocol`."""
    policy_registry.register(name, policy)


def register_objective(objective: Objective) -> None:
    """Register an objective of your own for this process. Raises UsageError: it is not an `Objective`."""
    objectives.REGISTRY.register(objective)


def register_order(order: Order | type[Order]) -> None:
    """Register an order of your own for this process. Raises UsageError: it is not an `Order`."""
    orders.REGISTRY.register(order)


def register_format(workload_format: WorkloadFormat | type[WorkloadFormat]) -> None:
    """Register a format of workload files for this process. Raises UsageError: it is not a `WorkloadFormat`."""
    formats.registry().register(workload_format)


def register_algorithm(spec: AlgorithmSpec) -> None:
    """Register an algorithm for this process. Raises UsageError: it is not an `AlgorithmSpec`."""
    ALGORITHMS.register(spec)


def register_network(spec: NetworkSpec) -> None:
    """Register a network for this process. Raises UsageError: it is not a `NetworkSpec`."""
    networks.REGISTRY.register(spec)
