"""Whole runs of every built-in policy on clusters of many shapes, with every index checked."""

import pytest
from tests.bounds.clusters import SHAPES, workload

from steersman.policies.registry import BUILT_IN
from steersman.simulation.run import Simulator


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", [*BUILT_IN, "fgd=500,best-fit=500"])
def test_runs(shape, policy):
    simulator = Simulator(workload(SHAPES[shape], seed=1))
    for protocol, load in (("arrivals", None), ("timed", None)):
        simulator.run(policy, protocol=protocol, load=load, seed=3, record=True)
