"""What was simulated is what a real kube-scheduler with our plugins does."""

from pathlib import Path

import pytest
from tests.support import reality
from tests.support.nightly import by_default
from tests.support.servers.plugin_scheduler import scheduler_program

__all__ = ["scheduler_program"]

pytestmark = pytest.mark.e2e

POINTS = 0.5
EVERY = 12


@pytest.mark.parametrize("policy", by_default(["steersman"], ["steersman", "fgd"]))
def test_simulation_equals_reality(policy: str, scheduler_program: Path, tmp_path: Path) -> None:
    nodes = reality.some_nodes(tmp_path, EVERY)
    with reality.cluster_of(tmp_path, nodes) as kubeconfig:
        found = reality.compare(scheduler_program, kubeconfig, tmp_path, nodes, policy)
    print(f"{policy}: {found}")
    assert not found.wrong
    assert found.out_of_order == 0
    assert found.fullest_device <= 1000
    assert abs(found.real - found.simulated) <= POINTS
    assert found.same_devices == found.pods
