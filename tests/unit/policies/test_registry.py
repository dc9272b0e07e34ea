"""Policies are found by name, as a mix, or where a user keeps them."""

import re
import sys
from pathlib import Path

import pytest

from steersman.core.errors import UsageError
from steersman.policies.heuristics import local_scores
from steersman.policies.registry import names, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb.traces import embedded

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "add-a-policy.md"


def test_every_name_resolves_to_a_policy_of_that_name():
    for name in names():
        assert resolve(name).name == name


def test_a_mix_keeps_its_weights():
    weighted = resolve("fgd=500,gpu-packing=20")
    assert (weighted.kinds, weighted.weights, weighted.fgd_devices) == (
        (local_scores.FGD, local_scores.GPU_PACKING),
        (500.0, 20.0),
        True,
    )
    assert weighted.name == "fgd=500,gpu-packing=20"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fdg", "unknown policy 'fdg'; known are random, dot-product"),
        ("fgd=500,nothing=1", "'nothing' cannot be part of a weighted sum"),
        ("fgd=500,random=1", "'random' cannot be part of a weighted sum"),
        ("fgd=0", "the weight of 'fgd' must be a whole number of 1 or more, not '0'"),
        ("fgd=-1", "not '-1'"),
        ("fgd=1.5", "not '1.5'"),
        ("fgd=", "not ''"),
        ("fgd=99999999999", "not '99999999999'"),
        ("fgd=1,fgd=2", "'fgd' is given twice"),
        ("no_such_module:Policy", "cannot import 'no_such_module'"),
        ("math:nothing", "module 'math' has no 'nothing'"),
        ("math:pi", "has no method 'prepare'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec, message):
    with pytest.raises(UsageError) as error:
        resolve(spec)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_documented_policy_runs_as_it_stands(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "my_policies.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = Simulator(embedded("default")).run("my_policies:CpuFirst", seed=42)
    assert result.policy == "cpu-first"
    assert next(metric.value for metric in result.metrics if metric.name == "gpu_allocation_percent") > 50
