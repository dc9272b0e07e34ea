"""What is computed in Python about runs, with every index checked; runs themselves are the core's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.bounds.clusters import SHAPES, workload
from tests.bounds.policies import policy_of
from tests.support.decision_states import decision_state

from steersman.policies.decision import kernels
from steersman.policies.gpu_state.arrays import WEIGHTS
from steersman.policies.gpu_state.views import feature_spread, write_node_features
from steersman.simulation import run as run_module
from steersman.simulation.arrivals import schedule
from steersman.simulation.run import Execution, Simulator


@pytest.mark.parametrize("shape", ["one node", "everything"])
def test_fragmentation_by_another_profile_stays_in_bounds(shape: str, tmp_path: Path) -> None:
    simulator = Simulator(workload(SHAPES[shape], seed=1))
    for protocol in ("arrivals", "timed"):
        simulator.run(policy_of("prepared", tmp_path), protocol=protocol, load=None, seed=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["one node", "models that no node has", "everything"])
def test_evolution_features_stay_in_bounds(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ARRIVALS_BETWEEN_LOOKS", 2)
    there = workload(SHAPES[shape], seed=1)
    simulator = Simulator(there)
    assert np.isfinite(feature_spread([simulator.feature_variances()])).all()
    plan = schedule(there, "arrivals", seed=1, ratio=1.3, load=None)
    execution = Execution(simulator, plan, policy_of("steersman", tmp_path), 1, record=False)
    kernels.follow(decision_state(execution), np.zeros(len(there.nodes) + 2, dtype=np.int64))
    cluster, wanted = decision_state(execution), np.zeros((len(there.nodes), WEIGHTS))
    for c in range(len(cluster.classes.gpu_count)):
        write_node_features(cluster.learned, cluster.profile, cluster.nodes, cluster.classes, c, wanted)
