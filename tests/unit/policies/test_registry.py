"""Policies are found by name, as a mix, or where a user keeps them."""

import re
import sys
from pathlib import Path

import pytest
from tests.support.errors import check_text

from steersman.cli.main import main
from steersman.core.errors import UsageError
from steersman.policies import learned_weights
from steersman.policies.registry import names, resolve
from steersman.simulation.run import Simulator
from steersman.workloads.formats.openb import embedded

DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "add-a-policy.md"


def test_every_name_resolves_to_a_policy_of_that_name():
    for name in names():
        assert resolve(name).name == name


def test_a_mix_keeps_its_weights():
    weighted = resolve("fgd=500,gpu-packing=20")
    assert (weighted.kinds, weighted.weights, weighted.fgd_devices) == (
        (learned_weights.FGD, learned_weights.NAMES.index("gpu-packing")),
        (500.0, 20.0),
        True,
    )
    assert weighted.name == "fgd=500,gpu-packing=20"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fdg", "unknown policy 'fdg'; did you mean 'fgd'?"),
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
def test_invalid_names_fail_in_one_line(spec, message):
    with pytest.raises(UsageError) as error:
        resolve(spec)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_documented_policy_runs_unchanged(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "my_policies.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = Simulator(embedded("default")).run("my_policies:CpuFirst", seed=42)
    assert result.policy == "cpu-first"
    assert next(metric.value for metric in result.metrics if metric.name == "gpu_allocation_percent") > 50


def test_policy_module_decides_from_the_command_line(tmp_path, monkeypatch):
    (tmp_path / "only_last.py").write_text(
        "class LastNode:\n"
        "    name = 'last-node'\n"
        "    def prepare(self, state, profile, seed):\n"
        "        pass\n"
        "    def scores(self, state, class_id, feasible):\n"
        "        return [float(node.name == 'n8') for node in state.nodes]\n"
    )
    info = tmp_path / "only_last-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: only-last\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[steersman.policies]\nlast-node = only_last:LastNode\n")
    nodes = "\n".join(f"n{i},8000,8000,0," for i in range(9))
    (tmp_path / "nodes.csv").write_text(f"sn,cpu_milli,memory_mib,gpu,model\n{nodes}\n")
    (tmp_path / "pods.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,1000,0,0,\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, policy in enumerate(("only_last:LastNode", "last-node")):
        output = f"out-{number}"
        scene = ("--nodes", "nodes.csv", "--pods", "pods.csv", "--protocol", "arrivals")
        assert main(["simulate", *scene, "--policy", policy, "--output", output]) == 0
        assert ",p,n8," in (tmp_path / output / "placements.csv").read_text()


@pytest.mark.parametrize("name", ["kube-default", "random", "fgd=500,best-fit=500"])
@pytest.mark.parametrize("command", ["show", "fit"])
def test_what_has_no_file_is_neither_shown_nor_fitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, command: str
) -> None:
    output = tmp_path / "p.safetensors"
    fit = ("fit", "policy", "--policy", name, "--workload", "default-small", "--output", str(output))
    assert main([*(fit if command == "fit" else ("policy", "show", name))]) == 2
    said = capsys.readouterr().err
    check_text(said.rstrip("\n"))
    assert f"policy {name} has no file" in said
    assert not output.exists()
