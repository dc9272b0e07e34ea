"""Search for good options of training: an Optuna study with pruning, over several processes, maybe on many machines.

`study.db`, or the storage that several calls share, has every trial so far, and a further call adds to it;
`trial-007/` is a training run each (`training.run`); `best.json` has the options of the best trial, for
`steersman train --options`; `tuning.html` plots values and the importance of options.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from steersman.agents.registry import EVOLUTION, AlgorithmSpec
from steersman.core.atomic_files import naming_in_errors, write_atomically
from steersman.core.config.fields import Choices, FloatRange, config_fields, options_without_effect
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.core.extras import MissingExtraError, require_extra
from steersman.core.processes import kill, start_worker
from steersman.core.signals import defer_signals
from steersman.core.stored_command import StoredCommand
from steersman.training.plans import AnyPlan, train
from steersman.training.run import TrainingLimits, TrainingProgress, check_minutes
from steersman.training.search.evolve import EvolutionPlan
from steersman.training.tuning.storage import STARTUP_TRIALS, StudyStorage

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess
    from multiprocessing.sharedctypes import Synchronized

    import optuna

BEST, PLOTS = "best.json", "tuning.html"
ALGORITHM, COMMON, ERROR = "algorithm", "common options", "error"  # attributes of a study, and of a trial that failed
TRIAL = "trial-{:03d}"
DEFAULT_TRIALS = 20
TRIAL_SHARE = 0.4  # iterations of a trial, and between two of its validations, as a share of the defaults of training
SHORTEST_TRIAL = 0.01  # minutes: the last trial may begin just before the time is up

SPAWN = multiprocessing.get_context("spawn")

OnTrial = Callable[[int, float], None]  # called with the number of finished trials, and the best value so far
Report = Callable[[int, float], None]  # called with a trial's step and its value so far; raises if it is pruned
RunTrial = Callable[[Any, Path, TrainingLimits, Report], float]  # runs a plan in a folder, and returns its value


def run_training(plan: AnyPlan, folder: Path, limits: TrainingLimits, report: Report) -> float:
    """Train, and return the best validation."""

    def on_iteration(progress: TrainingProgress, _: dict[str, float]) -> None:
        if progress.iteration % limits.validate_every == 0:
            # The best so far, not the newest: a trial is judged by the policy that it would keep.
            report(progress.iteration, progress.best)

    return train(plan, folder, limits, on_iteration=on_iteration).best


@dataclass(frozen=True, slots=True)
class TuneOutcome:
    """The result of a study: trials finished and pruned, the best trial's number, value and options."""

    finished: int
    pruned: int
    best_trial: int
    best_value: float
    best_options: dict[str, Any]

    @property
    def train_arguments(self) -> dict[str, Any]:
        """Return the best options as arguments of `steersman.train`: `settings` and `hidden`."""
        settings = dict(self.best_options)
        hidden = settings.pop("hidden", None)
        widths = {} if hidden is None else {"hidden": tuple(int(width) for width in hidden.split(","))}
        return {"settings": settings} | widths


def trial_limits(spec: AlgorithmSpec, iterations: int | None, validate_every: int | None) -> TrainingLimits:
    """Return the limits of a trial; None: a share of the algorithm's defaults in training."""
    default_iterations, default_interval = (
        max(1, round(TRIAL_SHARE * count)) for count in (spec.iterations, spec.validate_every)
    )
    return TrainingLimits(iterations or default_iterations, validate_every=validate_every or default_interval)


@dataclass(frozen=True, slots=True)
class StudyBudget:
    """How long a study goes on, and by how many processes.

    Raises:
        UsageError: the minutes are not above 0.
    """

    # Number to add at most; None: `DEFAULT_TRIALS`, with `minutes` as many as there is time for
    trials: int | None = None
    # Of all of them together; then running trials end with what they have. None: no limit.
    minutes: float | None = None
    workers: int = 1  # number of processes. Trials know of finished ones, so their order depends on it.

    def __post_init__(self) -> None:
        check_minutes(self.minutes)

    @property
    def most(self) -> int | None:
        """Return the number of trials to add at most, None: no limit."""
        return self.trials or (None if self.minutes else DEFAULT_TRIALS)

    def stopping_criterion(self, left_trials: int | None) -> StoppingCriterion:
        """Return when the study ends, if it begins now with so many trials left; None: no limit."""
        left = None if left_trials is None else SPAWN.Value("q", left_trials)
        return StoppingCriterion(left, math.inf if self.minutes is None else time.time() + 60.0 * self.minutes)


@dataclass(frozen=True, slots=True)
class StoppingCriterion:
    """When a study ends."""

    left: Synchronized[int] | None  # trials that no process has begun yet; the processes share it. None: no limit.
    until: float  # seconds since the epoch, which all processes share; inf: no limit

    def begin(self) -> bool:
        """Return whether one more trial may begin; that is counted at once."""
        if time.time() >= self.until:
            return False
        if self.left is None:
            return True
        with self.left:
            self.left.value -= 1
            return self.left.value >= 0

    def cut(self, limits: TrainingLimits) -> TrainingLimits:
        """Return the limits of a trial that begins now."""
        if self.until == math.inf:
            return limits
        return replace(limits, minutes=max(SHORTEST_TRIAL, (self.until - time.time()) / 60.0))


class FailedTrial(Exception):  # noqa: N818 - a state of a trial
    """A trial that failed, as by divergence; others may do better."""


def tune(
    plan: TunedPlan,
    folder: Path,
    limits: TrainingLimits,
    budget: StudyBudget,
    *,
    run_trial: RunTrial = run_training,
    task: Mapping[str, Any] = MappingProxyType({}),
    fixed: Collection[str] = (),
    storage: str = "",
    on_trial: OnTrial | None = None,
    resume: bool = False,
    command: StoredCommand | None = None,
) -> TuneOutcome:
    """Add trials to the study in `folder`.

    Args:
        plan: the plan of every trial; its seed also is the sampler's.
        folder: of the study.
        limits: of each trial.
        budget: of all trials together.
        run_trial: runs a trial; by default it trains, and the value is the best validation.
        task: what all trials have in common by name, in addition to the plan.
        fixed: names of options that are not searched, but stay as the plan has them.
        storage: URL of a storage that several calls share, see `training.tuning.storage`; empty: a file in `folder`.
        on_trial: progress; called in this process only.
        resume: whether the budget counts the trials that ended in `folder` before.
        command: that adds the trials; `folder` stores it.

    Raises:
        MissingExtraError: Optuna or Plotly is not installed.
        UsageError: the plan or `storage` is invalid, or the study is of another algorithm, task or other fixed options.
        InputError: the database of the study, or a result, cannot be read or written.
        SteersmanError: no trial finished.
    """
    require_extra("tuning", "train", "optuna", "plotly")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)  # a trial's log has the reason; Ctrl-C needs no traceback
    with naming_in_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    store = StudyStorage(folder, storage)
    with store.one_line_errors():
        study = store.open()
        algorithm = EVOLUTION if isinstance(plan, EvolutionPlan) else plan.algorithm
        _check_algorithm(study, algorithm, store)
        _check_common_options(study, common_options(plan, fixed) | dict(task), store)
        ended, total = _ended(study, folder), budget.most
        if total is not None and not resume:
            total += ended
        if command is not None and not resume:
            command.store(folder, *(() if total is None else ("--trials", str(total))))
        end = budget.stopping_criterion(None if total is None else total - ended)
        processes: list[SpawnProcess] = []
        try:
            for number in range(1, budget.workers):
                # Signals wait until the process is in the list, or Ctrl-C could leave it running.
                with defer_signals():
                    processes.append(
                        start_worker(
                            _work_silently, store, partial(_work, plan, run_trial, store, limits, fixed, end, number)
                        )
                    )
            _work(plan, run_trial, store, limits, fixed, end, 0, on_trial)
            for process in processes:
                process.join()
        finally:
            # After the joins these have ended; after an error they have not.
            kill(processes)
        return _conclude(store, plan, fixed)


def _ended(study: optuna.Study, folder: Path) -> int:
    """Return how many trials in a folder came to an end, be it by an error; one that was interrupted did not."""
    trials = [each for each in study.trials if (folder / TRIAL.format(each.number)).exists()]
    return sum(each.state.name in ("COMPLETE", "PRUNED") or ERROR in each.user_attrs for each in trials)


def _check_algorithm(study: optuna.Study, algorithm: str, store: StudyStorage) -> None:
    """Note of which algorithm a study is. Raises UsageError: it is of another, whose options its trials have."""
    known = study.user_attrs.get(ALGORITHM, algorithm)
    if known != algorithm:
        raise UsageError(f"{store.name}: the study is of {known}; name another {store.place} for {algorithm}")
    study.set_user_attr(ALGORITHM, algorithm)


def _check_common_options(study: optuna.Study, common: dict[str, Any], store: StudyStorage) -> None:
    """Note what all trials have in common. Raises UsageError: earlier trials had something else in common."""
    now = json.loads(json.dumps(common))
    was = study.user_attrs.get(COMMON, now)
    for name in sorted(was.keys() | now.keys()):
        if was.get(name) != now.get(name):
            before, after = (repr(each[name]) if name in each else "searched" for each in (was, now))
            raise UsageError(
                f"{store.name}: {name} was {before}, now {after}: a study of other trials; name another {store.place}"
            )
    study.set_user_attr(COMMON, now)


def _work_silently(store: StudyStorage, work: Callable[[], None]) -> None:
    """Run trials in a worker process; the first process reports errors."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with suppress(SteersmanError), store.one_line_errors():
        work()


def _work(
    plan: TunedPlan,
    run_trial: RunTrial,
    store: StudyStorage,
    limits: TrainingLimits,
    fixed: Collection[str],
    end: StoppingCriterion,
    worker: int,
    on_trial: OnTrial | None = None,
) -> None:
    import optuna

    study = store.open()

    def objective(trial: optuna.Trial) -> float:
        def report(step: int, value: float) -> None:
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned

        run = store.folder / TRIAL.format(trial.number)
        try:
            return run_trial(apply_trial(trial, plan, fixed), run, end.cut(limits), report)
        except (UsageError, InputError, MissingExtraError):
            raise  # the next trial would fail likewise
        except SteersmanError as error:
            trial.set_user_attr(ERROR, str(error))
            raise FailedTrial from error

    while end.begin():
        # By the trials that ended: a study that was interrupted draws what it would have drawn.
        study.sampler = store.sampler(plan.seed, worker, _ended(study, store.folder))
        study.optimize(objective, n_trials=1, catch=(FailedTrial,))
        if on_trial is not None:
            complete = [trial.value for trial in study.trials if trial.value is not None]
            on_trial(len(study.trials), max(complete, default=float("nan")))


def _conclude(store: StudyStorage, plan: TunedPlan, fixed: Collection[str]) -> TuneOutcome:
    import optuna

    study, folder = store.open(), store.folder
    states = [trial.state for trial in study.trials]
    finished = states.count(optuna.trial.TrialState.COMPLETE)
    if not finished:
        raise SteersmanError(f"{folder}: no trial came to an end; the last one's log.txt says why")
    # A trial that is given the best values suggests those.
    options = to_options(apply_trial(cast("optuna.Trial", optuna.trial.FixedTrial(study.best_params)), plan, fixed))
    write_atomically(folder / BEST, (json.dumps(options, indent=2, sort_keys=True) + "\n").encode())
    _plot(study, folder / PLOTS)
    pruned = states.count(optuna.trial.TrialState.PRUNED)
    return TuneOutcome(finished, pruned, study.best_trial.number, study.best_value, study.best_params)


def _plot(study: optuna.Study, file: Path) -> None:
    """Write one page with the study's plots; those that need more trials are left out."""
    from optuna import visualization
    from plotly.offline import get_plotlyjs

    figures = [visualization.plot_optimization_history(study), visualization.plot_intermediate_values(study)]
    if len([trial for trial in study.trials if trial.value is not None]) > STARTUP_TRIALS:
        figures += [visualization.plot_param_importances(study), visualization.plot_slice(study)]
    parts = "\n".join(figure.to_html(full_html=False, include_plotlyjs=False) for figure in figures)
    page = "<!DOCTYPE html><meta charset=utf-8><title>Tuning</title><script>{}</script>\n{}\n"
    write_atomically(file, page.format(get_plotlyjs(), parts).encode())


TunedPlan = Any  # `EvolutionPlan`, `LearningPlan`, or `LivePlan` of the live learner, which this layer does not know
HIDDEN: Choices = ("16", "32,32", "64,64", "128,128")  # widths of the hidden layers, for networks that have any


def apply_trial(trial: optuna.Trial, plan: TunedPlan, fixed: Collection[str]) -> TunedPlan:
    """Return the plan with the options of a trial; those in `fixed` stay as they are."""
    fixed = _never_searched(plan, fixed)
    if isinstance(plan, EvolutionPlan):
        return replace(plan, config=replace(plan.config, **_suggest(trial, plan.config, fixed)))
    network = plan.network
    if _searches_hidden(plan, fixed):
        widths = trial.suggest_categorical("hidden", HIDDEN)
        network = replace(network, hidden=tuple(int(width) for width in str(widths).split(",")))
    config = replace(plan.config, **_suggest(trial, plan.config, fixed))
    return replace(plan, network=network, config=config)


def common_options(plan: TunedPlan, fixed: Collection[str]) -> dict[str, Any]:
    """Return what all trials of a study have in common: the plan as JSON without name, seed and what is searched.

    Only with the same ones are values of trials comparable, and options of the best trial known. Names of nested
    options have dots, such as `task.objective`.
    """
    fixed = _never_searched(plan, fixed)
    left_out = {"name", "seed", *(f"config.{name}" for name in _searched(plan.config, fixed))}
    if not isinstance(plan, EvolutionPlan) and _searches_hidden(plan, fixed):
        left_out.add("network.hidden")
    flat = _flat(plan.options())
    return {name: value for name, value in flat.items() if name not in left_out}


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _never_searched(plan: TunedPlan, fixed: Collection[str]) -> Collection[str]:
    if isinstance(plan, EvolutionPlan) and plan.start is not None:
        # It only shapes the start of a search from the beginning.
        return {*fixed, "planned_weight"}
    return fixed


def _searches_hidden(plan: TunedPlan, fixed: Collection[str]) -> bool:
    return bool(plan.network.layers) and plan.network.start is None and "hidden" not in fixed


def _searched(config: Any, fixed: Collection[str]) -> dict[str, FloatRange | Choices]:
    useless = options_without_effect(config)  # what they depend on is not searched
    return {
        name: field.option.search
        for name, field in config_fields(type(config)).items()
        if field.option.search is not None and name not in fixed and name not in useless
    }


def _suggest(trial: optuna.Trial, config: Any, fixed: Collection[str]) -> dict[str, Any]:
    suggested: dict[str, Any] = {}
    for name, search in _searched(config, fixed).items():
        match search:
            case FloatRange(low, high, log):
                suggested[name] = trial.suggest_float(name, low, high, log=log)
            case tuple(choices):
                suggested[name] = trial.suggest_categorical(name, choices)
    return suggested


def to_options(plan: TunedPlan) -> dict[str, Any]:
    """Return the options of a plan by the names that `steersman train --options` reads."""
    if isinstance(plan, EvolutionPlan):
        config = _effective(plan.config)
        if not plan.config.widths:
            del config["hidden"]  # not applicable to a linear policy
        task = {"protocol": plan.task.protocol, "objective": plan.task.full_objective}
        return {"algorithm": EVOLUTION} | task | config
    return {"algorithm": plan.algorithm, **plan.task_options, **_network(plan), **_effective(plan.config)}


def _effective(config: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(config).items() if name not in options_without_effect(config)}


def _network(plan: TunedPlan) -> dict[str, Any]:
    network = plan.network
    result: dict[str, Any] = {"network": network.name}
    if network.layers:
        result["hidden"] = ",".join(map(str, network.layers))
    if plan.algorithm != EVOLUTION:
        result |= {"dropout": network.dropout, "normalisation": network.norm}
    return result
