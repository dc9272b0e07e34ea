"""What studies share: what was finished stays finished, trainings that go on where they were, and evaluations."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from steersman.agents.configs import EvolutionConfig
from steersman.core.atomic_files import write_atomically
from steersman.core.engines import available_workers, make_workers
from steersman.evaluation.experiment import Experiment, run_experiment
from steersman.simulation.result import RunResult
from steersman.training import plans
from steersman.training.environment import VALIDATION_SEEDS
from steersman.training.plans import AnyPlan
from steersman.training.run import CHECKPOINT, OPTIONS, POLICY, TrainingLimits
from steersman.training.search.evolve import EvolutionPlan
from steersman.workloads.formats.openb import POD_FILE, embedded
from steersman.workloads.workload import Workload

Say = Callable[[str], None]
Json = dict[str, Any]
NOTHING: Mapping[str, Json] = {}

RECIPE = EvolutionConfig()
"""Options of trainings on openb."""

BUILD = Path(__file__).parents[1] / "build" / "study"
SEEDS = tuple(range(142, 162))
"""Of evaluations; neither training nor validation uses them."""
EVERY_SECONDS = 15.0
"""Between two lines about the same thing."""
QUICK_KEEP = 24
"""A quick study plays every 24th node and pod."""


def short_name(workload: str) -> str:
    """`default` for `openb_pod_list_default`."""
    return workload.removeprefix(POD_FILE)


def workloads(names: Sequence[str], quick: bool) -> tuple[Workload, ...]:
    """Embedded workloads by name; thinned out for a quick study."""
    whole = [embedded(short_name(name)) for name in names]
    if not quick:
        return tuple(whole)
    return tuple(Workload(w.name, w.nodes[::QUICK_KEEP], w.pods[::QUICK_KEEP]) for w in whole)


class Progress:
    """Says now and then how far something is, and how long it may still take.

    Called with how many parts are done and how many there are. The pace is that of this sitting, from the first call
    on.
    """

    def __init__(self, say: Say, what: str) -> None:
        self._say, self._what = say, what
        self._began = self._said = time.monotonic()
        self._first = -1

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` parts are finished."""
        now = time.monotonic()
        if self._first < 0:
            self._first, self._began = done, now
        if done < total and now - self._said < EVERY_SECONDS:
            return
        self._said = now
        left = ""
        if self._first < done < total:
            left = f", {duration((total - done) * (now - self._began) / (done - self._first))} left"
        self._say(f"{self._what}: {done} of {total}{left}")


def duration(seconds: float) -> str:
    """`40 s`, `12 min` or `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a study works, and what it says.

    Attributes:
        folder: of what it has finished, and of its trainings.
        quick: whether this only shows that everything works.
        say: prints progress.
    """

    folder: Path
    quick: bool
    say: Say

    @property
    def jobs(self) -> int:
        """Workers to use: a quick study is too small for several."""
        return 1 if self.quick else available_workers()

    def once(self, name: str, options: Json, compute: Callable[[], Json]) -> Json:
        """Return what `compute` returns, as JSON; from the folder if it was computed before with the same options."""
        kept = self._kept(name, options)
        if kept is not None:
            self.say(f"{name}: is there already")
            return kept
        value = plain(compute())
        write_json(self.folder / f"{name}.json", {"options": plain(options), "value": value})
        return dict(value)

    def each(
        self,
        parts: Mapping[str, Json],
        compute: Callable[[Json], Json],
        on_part: Callable[[int, int], None],
        known: Mapping[str, Json] = NOTHING,
    ) -> dict[str, Json]:
        """`once` for many parts, by several workers.

        Args:
            parts: options by name.
            compute: a function of a module, which is called with a part's options.
            on_part: called with how many parts are done and how many there are.
            known: values of parts that are there already, see `published`.
        """
        result = {name: known[name] for name in parts if name in known}
        for name, options in parts.items():
            kept = None if name in result else self._kept(name, options)
            if kept is not None:
                result[name] = kept
        missing = [name for name in parts if name not in result]
        if missing:
            with make_workers(min(self.jobs, len(missing)), partial(_computer, compute)) as workers:
                for i, value in workers.answers([parts[name] for name in missing]):
                    name = missing[i]
                    write_json(self.folder / f"{name}.json", {"options": plain(parts[name]), "value": value})
                    result[name] = value
                    on_part(len(result), len(parts))
        return {name: result[name] for name in parts}

    def _kept(self, name: str, options: Json) -> Json | None:
        """Return what was computed before with the same options."""
        path, wanted = self.folder / f"{name}.json", json.loads(json.dumps(options))
        if not path.exists():
            return None
        kept: Json = json.loads(path.read_text())
        return dict(kept["value"]) if kept["options"] == wanted else None

    def forget(self, name: str) -> None:
        """Remove a part and the folder of its name."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder / name, ignore_errors=True)


def _computer(compute: Callable[[Json], Json]) -> Callable[[Json], Json]:
    """In a worker: what computes a part."""
    return lambda options: dict(plain(compute(options)))


def published(group: str, study: str, depends: Json, quick: bool) -> Json:
    """Return a study's result in the repository if it was made from these options, else an empty one.

    What a result has needs not be computed again when more is added to it.
    """
    path = Path(__file__).parent / "results" / group / f"{study}.json"
    if quick or not path.exists():
        return {}
    result: Json = json.loads(path.read_text())["result"]
    wanted = plain(depends)
    return result if {name: result.get(name) for name in wanted} == wanted else {}


def desk(study: str, quick: bool, say: Say) -> Desk:
    """Return the result folder of a study; results of quick runs are kept apart."""
    return Desk(BUILD / "quick" / study if quick else BUILD / study, quick, say)


def plain(value: Any) -> Any:
    """`value` as JSON has it: lists, dictionaries with texts as keys, Python's numbers, None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Write JSON that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


@dataclass(frozen=True, slots=True)
class Split:
    """Names of embedded workloads: trained on, for choosing among checkpoints, and neither."""

    training: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]


def shipped_split() -> Split:
    """How the openb workloads are divided: what trainings see, and what they do not."""
    seen = "default cpu050 cpu200 gpushare40 gpushare80 gpuspec10 gpuspec25 multigpu20 multigpu40"
    return Split(tuple(seen.split()), ("cpu100", "gpuspec20", "multigpu30"), ("cpu072", "cpu235", "gpushare60"))


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a study trains: generations, candidates and workloads in each, and the seeds of the search."""

    generations: int
    seeds: tuple[int, ...] = (1,)
    population: int = RECIPE.population
    episodes: int = RECIPE.episodes

    def shrunk(self) -> Budget:
        """For a quick study."""
        return Budget(2, self.seeds[:2], population=4, episodes=2)


def train(at: Desk, name: str, split: Split, budget: Budget, seed: int) -> tuple[Path, Json]:
    """Train a policy in the desk's folder `name`; a run that was cut off goes on.

    Returns:
        The policy file, and `best` (validation, percent of FGD's loss saved), `iteration` (of the best), `seconds`.
    """
    plan = EvolutionPlan(
        name=name,
        training=workloads(split.training[: 2 if at.quick else None], at.quick),
        validation=workloads(split.validation[: 1 if at.quick else None], at.quick),
        test=split.test,
        config=EvolutionConfig(population=budget.population, episodes=budget.episodes),
        seed=seed,
        validation_seeds=VALIDATION_SEEDS[:1] if at.quick else VALIDATION_SEEDS,
    )
    return train_plan(at, name, plan, TrainingLimits(budget.generations, validate_every=min(10, budget.generations)))


def train_plan(at: Desk, name: str, plan: AnyPlan, limits: TrainingLimits) -> tuple[Path, Json]:
    """Train to the limits in the desk's folder `name`; see `train`. What `best` means is the plan's affair."""
    folder = at.folder / name

    def compute() -> Json:
        options = json.loads(json.dumps(plan.options()))
        asked = folder / OPTIONS
        resume = (folder / CHECKPOINT).exists() and asked.exists() and json.loads(asked.read_text()) == options
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)
        progress = Progress(at.say, f"training {name}, iteration")
        standing = plans.train(
            plan,
            folder,
            limits,
            jobs=at.jobs,
            resume=resume,
            on_iteration=lambda now, _: progress(now.iteration, limits.iterations),
        )
        return {"best": standing.best, "iteration": standing.best_iteration, "seconds": round(standing.seconds, 1)}

    if (at.folder / f"{name}.json").exists() and not (folder / POLICY).exists():
        at.forget(name)
    return folder / POLICY, at.once(name, {**plan.options(), "limits": asdict(limits)}, compute)


def evaluate(at: Desk, experiment: Experiment, what: str = "evaluating") -> list[RunResult]:
    """All runs of an experiment."""
    return run_experiment(experiment, jobs=at.jobs, on_run=Progress(at.say, f"{what}, runs"))
