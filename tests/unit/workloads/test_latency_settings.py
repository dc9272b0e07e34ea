"""Settings of the simulated cluster with telemetry; the cluster is tested in `core/src/latency/tests.rs`."""

import math

import pytest

from steersman.core.errors import UsageError
from steersman.workloads.generators.latency_settings import LatencySettings, checked


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": 1}, "setting 'nodes': 1 is out of range; expected a whole number from 2 to 1000"),
        ({"pods": 2.5}, "setting 'pods': 2.5 is out of range; expected a whole number from 1 to 100000"),
        ({"load": math.nan}, "setting 'load': nan is out of range; expected a number from 0.01 to 2"),
        ({"noise": "much"}, "setting 'noise': 'much' is out of range; expected a number from 0 to 0.5"),
        ({"nodes": 20}, "setting 'nodes': 20 are more than 'max_nodes', 16"),
    ],
)
def test_a_wrong_setting_fails_in_one_line(change, message):
    with pytest.raises(UsageError) as error:
        checked(LatencySettings(**change))
    assert str(error.value) == message
