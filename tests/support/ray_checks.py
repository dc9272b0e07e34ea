"""What `test_ray.py` lets a process check that uses a cluster: `python -m tests.support.ray_checks`."""

from __future__ import annotations

import importlib
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from tests.support.ray_cluster import WORKERS, doubling

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import Evolution, SimulationTask
from steersman.core.engines import available_workers, make_workers, relayed, use_engine
from steersman.core.errors import SteersmanError
from steersman.evaluation.experiment import Experiment, run_experiment
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

KEEP = 48


class Elsewhere:
    """What no worker can unpickle."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return what imports a module that is not there."""
        return importlib.import_module, ("elsewhere",)


def small() -> Workload:
    """Return a small workload."""
    whole = embedded("default")
    return Workload("small", whole.nodes[::KEEP], whole.pods[::KEEP])


def generation(jobs: int) -> np.ndarray:
    """Return the mean of a search after two generations."""
    search = Evolution((small(),), SimulationTask(), EvolutionConfig(population=4, episodes=2), 1, jobs)
    for _ in range(2):
        search.iterate()
    search.close()
    return search.strategy.mean


def failure(prepared: object, tasks: list[int]) -> str:
    """Return the error of tasks."""
    try:
        with make_workers(WORKERS, partial(doubling, prepared)) as workers:
            list(workers.answers(tasks))
    except SteersmanError as error:
        return str(error)
    raise AssertionError("no error")


def main() -> None:
    """Check results, deaths of workers, and errors."""
    experiment = Experiment((small(),), ("fgd", "best-fit"), (1, 2, 3))
    runs, mean = run_experiment(experiment), generation(1)
    folder = Path(tempfile.mkdtemp())
    with use_engine("ray") as jobs:
        assert jobs == WORKERS == available_workers()
        assert [each.metrics for each in run_experiment(experiment, jobs=jobs)] == [each.metrics for each in runs]
        assert np.array_equal(generation(jobs), mean)
        with make_workers(jobs, partial(doubling, folder)) as workers:
            for _ in range(2):  # in the first a worker dies
                answers = dict(workers.answers(range(13)))
                assert [answers[i][0] for i in range(13)] == [2 * i for i in range(13)]
            # On a loaded machine a worker may come too late for any task, and Ray may replace one that starts slowly.
            prepared = len(list(folder.iterdir()))
            assert 2 <= prepared <= jobs + 2, f"each worker prepares once, and so do new ones, not {prepared} times"
        said: list[str] = []
        with make_workers(jobs, partial(partial, relayed(said.append))) as workers:
            list(workers.answers(["one", "two"]))
        assert sorted(said) == ["one", "two"]
        assert failure(folder, [3, -1]) == "ValueError: no double of -1 (--jobs 1 and STEERSMAN_TRACEBACK=1 show where)"
        assert (
            failure(Elsewhere(), [1])
            == "a worker has not what a task needs: ModuleNotFoundError: No module named 'elsewhere'"
        )
        assert failure(folder, [3, 13, 4]).startswith("3 workers died on the same task, perhaps for lack of memory")
    print("checked", file=sys.stderr)


if __name__ == "__main__":
    main()
