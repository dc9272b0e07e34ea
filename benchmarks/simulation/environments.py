"""How fast the environments are: steps a second of the vector form, observations and rewards included."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import numpy.typing as npt

from steersman.envs.deployments import DeploymentsVectorEnv
from steersman.envs.environment import SteersmanVectorEnv
from steersman.envs.workload import InflationVectorEnv

Result = dict[str, float | str]

FLOOR_DEPLOYMENTS = 1_000_000
FLOOR_INFLATION = 30_000
REPEATS = 5
STEPS = 200
DECISIONS = 11_000


def _random_legal(mask: npt.NDArray[np.int8], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """[E] a random legal action each: the first legal one from a random slot on, which is cheap to draw."""
    count, nodes = mask.shape
    start = rng.integers(0, nodes, (count,))
    first = np.array([int(np.roll(mask[e], -int(start[e])).argmax()) for e in range(count)])
    return np.asarray((first + start) % nodes)


def deployments_env() -> Result:
    """`steersman/Deployments-v0`, 10 nodes, 1,024 environments, uniformly random actions, zero-copy mode."""
    env, rng = DeploymentsVectorEnv(1024, copy=False), np.random.default_rng(1)
    env.reset(seed=1)
    rates = []
    for _ in range(REPEATS + 1):
        actions = rng.integers(0, env.core.max_nodes, (STEPS, env.num_envs))
        begin = time.perf_counter()
        for each in actions:
            env.step(each)
        rates.append(STEPS * env.num_envs / (time.perf_counter() - begin))
    rates = rates[1:]  # the first round compiles, or reads the machine code
    return {
        "environments": env.num_envs,
        "steps_per_second": round(median(rates)),
        "over_floor": round(median(rates) / FLOOR_DEPLOYMENTS, 2),
    }


def inflation_env() -> Result:
    """`steersman/Inflation-v0` on `default` (1,213 nodes): whole episodes with their resets, zero-copy mode.

    What a step costs depends on how many nodes changed since a class was last asked for: with best-fit, which packs, it
    is few, with random legal actions the most there can be.
    """
    env, rng = InflationVectorEnv(8, workload="default", copy=False), np.random.default_rng(1)
    result: Result = {"environments": env.num_envs}
    for name in ("best-fit", "random"):
        env.reset(seed=1)
        _decide(env, 200, rng, name)
        env.reset(seed=1)
        rate = DECISIONS * env.num_envs / _decide(env, DECISIONS, rng, name)
        result[f"decisions_per_second_{name}"] = round(rate)
        result[f"over_floor_{name}"] = round(rate / FLOOR_INFLATION, 2)
    return result


def _decide(env: SteersmanVectorEnv, steps: int, rng: np.random.Generator, name: str) -> float:
    """Seconds that `steps` calls of `step` take; choosing actions is not counted."""
    total = 0.0
    for _ in range(steps):
        actions = env.heuristic(name) if name != "random" else _random_legal(env.core.observation.mask, rng)
        begin = time.perf_counter()
        env.step(actions)
        total += time.perf_counter() - begin
    return total
