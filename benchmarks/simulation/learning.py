"""How fast learned policies run, and how fast evolution plays episodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

from steersman.agents.configs import EvolutionConfig
from steersman.agents.evolution.simulations import Evolution, SimulationTask
from steersman.policies.registry import resolve
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator
from steersman.workloads.formats.openb import embedded

Result = dict[str, float | str]

PAIRS = 9
GENERATIONS = 4
FLOOR_EPISODES = 10.0


def learned_run() -> Result:
    """One run of `default` by the shipped policy against one by FGD: the event loop alone, alternated.

    The policy's first run on a mix also plans (`policies.leftovers`), once for any number of runs; that is
    told apart. Every run has a different seed.
    """
    plans = [schedule(embedded("default"), "inflation", seed=seed, ratio=1.3, load=None) for seed in range(PAIRS + 1)]
    simulators = {name: Simulator(embedded("default")) for name in ("fgd", "steersman")}
    begin = time.perf_counter()
    simulators["steersman"].leftovers_with(None)
    planning = time.perf_counter() - begin
    seconds: dict[str, list[float]] = {"fgd": [], "steersman": []}
    for seed, plan in enumerate(plans):
        for name, simulator in simulators.items():
            execution = Execution(simulator, plan, resolve(name), seed, record=False)
            seconds[name].append(_timed(partial(execution.finish, None)))
    fgd = median(seconds["fgd"][1:])
    return {
        "fgd_seconds": round(fgd, 4),
        "ratio": round(median(s / f for s, f in zip(seconds["steersman"][1:], seconds["fgd"][1:], strict=True)), 2),
        "planning_seconds": round(planning, 2),
    }


def evolution() -> Result:
    """Whole `default` episodes a second, played by evolution with the shipped policy's network in 2 processes."""
    search = Evolution([embedded("default")], SimulationTask(), EvolutionConfig(episodes=2), seed=1, jobs=2)
    try:
        search.iterate()  # starts the processes
        rates = []
        for _ in range(GENERATIONS):
            before = search.steps
            seconds = _timed(search.iterate)
            rates.append((search.steps - before) / seconds)
    finally:
        search.close()
    return {
        "episodes_per_second": round(median(rates), 1),
        "over_floor": round(median(rates) / FLOOR_EPISODES, 2),
    }


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
