"""The compiled core next to the kernels that it will replace: what both read, and runs of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from steersman.core.handles import Decider, Engine
from steersman.envs.inflation import batch as layout
from steersman.envs.inflation import episodes
from steersman.envs.inflation.episodes import WorkloadOptions
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.base import Policy, default_member
from steersman.policies.decision import kernels
from steersman.policies.decision.selection import BY_SCORER, SelectionRules
from steersman.policies.features import GPU, View, view
from steersman.policies.gpu_state.arrays import LearnedArrays
from steersman.policies.gpu_state.leftover_tables import LeftoverTables
from steersman.policies.observations.encoding import number_of
from steersman.simulation import event_arrays
from steersman.simulation.arrivals import Schedule
from steersman.simulation.run import Execution, Simulator

Arrays = dict[str, npt.NDArray[np.generic]]
NOT_READ = {"scratch", "owned_total"}
"""What the core has no need of: buffers, and sums that it makes itself."""
QUEUED = ("given", "size", "total", "account", "shares", "time", "priority", "group", "stated", "keys", "shape")
MANY = 1 << 40


def arrays_of(state: kernels.DecisionState, selection: SelectionRules, seed: int) -> Arrays:
    """Return the arrays of a decision by their names in the core."""
    arrays: Arrays = {
        f"{name}.{field}": value
        for name in ("nodes", "classes", "terms", "profile")
        for field, value in getattr(state, name)._asdict().items()
        if field not in NOT_READ
    }
    arrays |= {
        "policy.node": np.int64(selection.node),
        "policy.devices": np.int64(selection.devices),
        "policy.functions": np.array(selection.functions, dtype=np.int64),
        "policy.weights": np.array(selection.weights, dtype=np.float64),
        "policy.seed": np.array(seed, dtype=np.uint64).astype(np.int64),
    }
    if selection.node == kernels.SELECT_KUBE_SCHEDULER:
        kube = state.kube
        arrays |= {f"kube.{field}": np.asarray(value) for field, value in kube._asdict().items() if field != "scored"}
        arrays |= {f"kube.scored.{field}": np.asarray(value) for field, value in kube.scored._asdict().items()}
        arrays["kube.static"] = kube.static.reshape(-1, len(state.nodes.gpu_count))
    if selection.learned is not None:
        arrays |= _learned_arrays(state.learned) | _leftover_arrays(state.learned.leftovers)
    return {name: value.astype(np.int64) if value.ndim == 0 else value for name, value in arrays.items()}


def _learned_arrays(learned: LearnedArrays) -> Arrays:
    return {
        "learned.columns": learned.columns,
        "learned.rules": learned.rules,
        "learned.pods": learned.pods,
        "learned.layers": learned.layers,
        "learned.sizes": learned.sizes,
    }


def _leftover_arrays(tables: LeftoverTables) -> Arrays:
    return {
        "leftovers.by_left": tables.by_left,
        "leftovers.steps": tables.steps.reshape(tables.steps.shape[0] * tables.steps.shape[1], -1),
        "leftovers.ratios": tables.ratios,
        "leftovers.least": tables.least,
    }


def decider_of(state: kernels.DecisionState, selection: SelectionRules, seed: int) -> Decider:
    """Return a decider of the core with these arrays."""
    return Decider(arrays_of(state, selection, seed))


def both_runs(simulator: Simulator, plan: Schedule, policy: Policy, seed: int) -> tuple[Execution, Engine]:
    """Return a run of the kernels and one of the core, at the end of both, with no reasons."""
    execution, engine = both_begun(simulator, plan, policy, seed)
    assert execution.advance(MANY) == engine.advance(MANY) == event_arrays.DONE
    return execution, engine


def both_begun(
    simulator: Simulator, plan: Schedule, policy: Policy, seed: int, view: View | None = None
) -> tuple[Execution, Engine]:
    """Return both runs before their first event; `view`: what is observed."""
    captured: Arrays = {}

    def new_run(cluster: kernels.DecisionState, *rest: Any) -> event_arrays.Run:
        # Copies, since pods are about to be placed.
        arrays = _run_arrays(cluster, plan, default_member(policy).selection, *rest)
        captured.update({name: array.copy() for name, array in arrays.items()})
        return original(cluster, *rest)

    original = event_arrays.new_run
    with patch.object(event_arrays, "new_run", new_run):
        execution = Execution(simulator, plan, policy, seed, record=False)
    if view is not None:
        captured.update(_observed_arrays(simulator, plan, execution.cluster, view))
    engine = Engine(captured)
    if plan.standing:
        node, devices = (each[plan.pods[: plan.standing]] for each in simulator.recorded)
        engine.stand(np.argsort(plan.nodes)[node], devices)
    engine.let_leave(plan.time[: plan.standing], plan.duration[: plan.standing])
    if plan.queued:
        engine.queue_first(plan.queued)
    return execution, engine


@contextmanager
def captured_episodes(objective: WeightedObjectives) -> Iterator[list[Arrays]]:
    """Yield the arrays of each episode that environments with this objective start meanwhile."""
    started: list[Arrays] = []
    begin = episodes._single

    def single(simulator: Simulator, plan: Schedule, seed: int, given: WorkloadOptions) -> Any:
        arrays: Arrays = {}

        def new_run(cluster: kernels.DecisionState, *rest: Any) -> event_arrays.Run:
            arrays.update(_run_arrays(cluster, plan, BY_SCORER, *rest))
            arrays.update(_observed_arrays(simulator, plan, cluster, view(given.view)))
            if given.view == GPU.name:
                arrays.update(_leftover_arrays(simulator.learned.leftovers))
            return original(cluster, *rest)

        original = event_arrays.new_run
        with patch.object(event_arrays, "new_run", new_run):
            item = begin(simulator, plan, seed, given)
        limit = int(item.counts[layout.STEP_LIMIT])
        arrays |= {
            "episode.objectives": np.array(objective.numbers, dtype=np.int64),
            "episode.weights": np.array(objective.compiled_weights, dtype=np.float64),
            "episode.penalty": np.array([given.penalty], dtype=np.float64),
            "episode.step_limit": np.array(limit),
        }
        started.append({name: array.copy() for name, array in arrays.items()})
        return item

    with patch.object(episodes, "_single", single):
        yield started


def _observed_arrays(simulator: Simulator, plan: Schedule, cluster: kernels.DecisionState, view: View) -> Arrays:
    places = simulator.places
    return _leftover_arrays(cluster.learned.leftovers) | {
        "observer.view": np.array(number_of(view)),
        "observer.rack": places.rack[plan.nodes],
        "observer.racks": np.array(places.racks),
        "observer.owner": places.owner[plan.pods],
        "observer.owners": np.array(places.owners),
    }


def _run_arrays(
    cluster: kernels.DecisionState,
    plan: Schedule,
    selection: SelectionRules,
    arrivals: event_arrays.Arrivals,
    queue: Any,
    infeasible: npt.NDArray[np.bool_],
    lifted: npt.NDArray[np.bool_],
    nominated: npt.NDArray[np.int64],
    room: npt.NDArray[np.int64],
    eligible: npt.NDArray[np.bool_],
    seed: int,
) -> Arrays:
    arrays = arrays_of(cluster, selection, seed)
    arrays |= {f"arrivals.{field}": value for field, value in arrivals._asdict().items()}
    arrays |= {f"queue.{field}": getattr(queue, field) for field in QUEUED}
    return arrays | {
        "queue.settings": np.append(queue.settings, len(queue.ends) > 0),
        "queue.limits": queue.limits,
        "queue.weights": queue.weights,
        "queue.history": queue.history.counts,
        "run.infeasible": infeasible,
        "run.lifted": lifted if len(lifted) else np.zeros(len(infeasible), dtype=np.bool_),
        "run.nominated": nominated,
        "run.room": room[:, 0],
        "run.eligible": eligible,
        "run.waits": np.array(int(plan.waits)),
        "run.reasons": np.array(0),
    }
