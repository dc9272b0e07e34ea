"""What others add from outside, each in a file: a rule, an order, an objective, a measure, an algorithm, a network."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

pytest.importorskip("torch")
pytestmark = pytest.mark.integration

FILES = Path(__file__).parents[1] / "support" / "extensions"
ENTRY_POINTS = """
[steersman.algorithms]
reinforce = made_up_algorithm:REINFORCE
broken = made_up_algorithm:MISSING

[steersman.networks]
tanh = made_up_network:TANH

[steersman.objectives]
even-cpu = made_up_objective:EVEN
broken-objective = made_up_objective:MISSING

[steersman.policies]
most-left = made_up_policy:MostLeft

[steersman.measures]
taken_gpus = made_up_measure:TAKEN_GPUS

[steersman.orders]
largest-first = made_up_order:LARGEST_FIRST
fails = made_up_order:FAILS
no-number = made_up_order:NO_NUMBER
"""
SCENE = ("--protocol", "deployments", "--node-count", "3", "--node-cpu", "16", "--node-memory", "64Gi")
TINY = ("--validation-episodes", "1", "--hidden", "8", "--output", "run")
OPEN = (
    "from steersman.policies.policy_file import open_policy; from pathlib import Path; "
    "print(open_policy(Path('run/policy.safetensors'), 'run').network)"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder where the made-up files are as if a package of them was installed."""
    folder = tmp_path_factory.mktemp("installed")
    for file in FILES.glob("*.py"):
        (folder / file.name).write_text(file.read_text())
    info = folder / "made_up-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def run(folder: Path, *command: str, path: Path = FILES, **more: str) -> subprocess.CompletedProcess[str]:
    found = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": found, "COLUMNS": "200"} | more
    return subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)


def steersman(folder: Path, *arguments: str, path: Path = FILES, **more: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "-m", "steersman", *arguments, path=path, **more)


def test_installed_algorithm_and_network_train_from_the_command_line(installed, tmp_path):
    chosen = ("--algorithm", "reinforce", "--network", "tanh", "--made-up-rate", "0.02")
    done = steersman(tmp_path, "train", *chosen, *SCENE, *TINY, path=installed)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["algorithm"], told["network"]["name"]) == ("reinforce", "tanh")
    assert told["config"] == {"made_up_rate": 0.02, "candidates": 0}
    assert run(tmp_path, "-c", OPEN, path=installed).stdout.startswith("Tanh(")
    unknown = run(tmp_path, "-c", OPEN, path=tmp_path).stderr
    assert "card, network: is 'tanh'; known are linear, mlp, deepsets, gnn" in unknown


def test_an_installed_objective_is_trained_for_from_the_command_line(installed, tmp_path):
    learned = []
    for name in ("balance", "even-cpu"):
        folder = tmp_path / name
        folder.mkdir()
        chosen = ("--algorithm", "ppo", "--iterations", "2", "--seed", "1", "--objective", name)
        done = steersman(folder, "train", *chosen, *SCENE, *TINY, path=installed)
        assert done.returncode == 0, done.stderr
        learned.append(load_file(folder / "run" / "policy.safetensors"))
    assert learned[0].keys() == learned[1].keys()
    for name, array in learned[0].items():
        assert learned[1][name] == pytest.approx(array, abs=1e-4)
    unknown = steersman(tmp_path, "train", "--objective", "magic", *SCENE, *TINY, path=installed)
    assert unknown.returncode == 2
    assert all(name in unknown.stderr for name in ("'magic'", "balance", "even-cpu"))
    broken = steersman(tmp_path, "train", "--objective", "broken-objective", *SCENE, *TINY, path=installed)
    assert broken.returncode == 1
    assert "made_up_objective:MISSING" in broken.stderr


def test_faulty_installed_algorithm_fails_in_one_line_with_its_name(installed, tmp_path):
    chosen = ("--algorithm", "reinforce", "--made-up-rate", "0.666")
    done = steersman(tmp_path, "train", *chosen, *SCENE, *TINY, path=installed)
    assert done.returncode == 1
    assert "error: algorithm 'reinforce' failed: ValueError: a mistake of its own (made_up_algorithm.py" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_and_errors_name_what_is_installed(installed, tmp_path):
    text = steersman(tmp_path, "train", "--help-all", path=installed).stdout
    for part in ("imitation of a rule, or reinforce", "tanh (one layer)", "--made-up-rate", "3 for reinforce"):
        assert part in text
    done = steersman(tmp_path, "train", "--algorithm", "magic", *SCENE, *TINY, path=installed)
    assert done.stderr == (
        "error: unknown algorithm 'magic'; known are evolution, dqn, actor-critic, ppo, imitation, broken, "
        "reinforce, module:NAME\n"
    )
    done = steersman(tmp_path, "train", "--algorithm", "broken", *SCENE, *TINY, path=installed)
    assert done.stderr.startswith("error: algorithm 'broken' of the entry point made_up_algorithm:MISSING failed: ")
    assert done.stderr.count("\n") == 1


def test_an_algorithm_that_is_not_installed_is_named_by_its_module(tmp_path):
    (tmp_path / "options.json").write_text('{"made_up_rate": 0.05, "network": "linear"}')
    chosen = ("--algorithm", "made_up_algorithm:REINFORCE", "--options", "options.json")
    done = steersman(tmp_path, "train", *chosen, *SCENE, *TINY)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["config"] == {"made_up_rate": 0.05, "candidates": 0}
    for wrong, message in (
        ("made_up_algorithm:Reinforce", ": expected an AlgorithmSpec, not "),
        ("made_up_algorithm:NOTHING", "module 'made_up_algorithm' has no 'NOTHING'"),
        ("nowhere:NOTHING", "cannot import 'nowhere'"),
    ):
        done = steersman(tmp_path, "train", "--algorithm", wrong, *SCENE, *TINY)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


TIMED = ("--workload", "default-small", "--protocol", "timed", "--load", "1.1")


def test_an_installed_rule_order_and_measure_are_simulated_and_compared(installed, tmp_path):
    chosen = ("--policy", "most-left", "--order", "largest-first:easy")
    done = steersman(tmp_path, "simulate", *TIMED, *chosen, "--output", "run", path=installed)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "run" / "timeline.csv").open() as file:
        taken = {float(row["taken_gpus"]) for row in csv.DictReader(file)}
    assert len(taken) > 100
    policies = ("most-left", "most-left+largest", "most-left+largest-first")
    compared = ("--policy", *policies, "--format", "json", "--seeds", "1", "--output", "out")
    done = steersman(tmp_path, "evaluate", *TIMED, *compared, path=installed)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    found = {policy: [row["mean"] for row in rows if row["policy"] == policy] for policy in policies}
    assert found["most-left+largest-first"] == found["most-left+largest"] != found["most-left"]
    assert {row["unit"] for row in rows if row["metric"] == "taken_gpus"} == {"GPUs"}
    assert "Whole GPUs that pods hold." in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("option", "beginning", "name"),
    [
        ("--policy", "most-", "most-left"),
        ("--order", "largest", "largest-first"),
        ("--objective", "even", "even-cpu"),
        ("--algorithm", "rein", "reinforce"),
        ("--network", "ta", "tanh"),
    ],
)
def test_what_is_installed_is_completed(installed, tmp_path, option, beginning, name):
    command = "schedule" if option in ("--policy", "--order") else "train"
    words = {"COMP_WORDS": f"steersman {command} {option} {beginning}", "COMP_CWORD": "3"}
    done = steersman(tmp_path, path=installed, **words, _STEERSMAN_COMPLETE="complete_bash")
    assert name in done.stdout.split(), done.stderr


NOWHERE = {
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "users": [{"name": "u", "user": {}}],
    "current-context": "c",
}


def test_a_scheduler_takes_an_installed_rule_and_order(installed, tmp_path):
    """It gets as far as the cluster, which does not answer; a name that is not installed is refused before."""
    (tmp_path / "config").write_text(json.dumps(NOWHERE))
    chosen = ("schedule", "--kubeconfig", "config", "--policy", "most-left", "--order")
    done = steersman(tmp_path, *chosen, "largest-first", path=installed)
    assert "cannot be reached: Connection refused" in done.stderr
    done = steersman(tmp_path, *chosen, "largest-last", path=installed)
    assert "unknown order 'largest-last'" in done.stderr


@pytest.mark.parametrize(
    ("measure", "says"),
    [
        ("FAILS", "measure 'fails' failed: "),
        ("TOO_FEW", "measure 'too-few': expected a value after each of "),
        ("NO_MEASURE", "expected a Measure"),
    ],
)
def test_a_measure_that_fails_is_one_line(installed, tmp_path, measure, says):
    names = {"FAILS": "fails", "TOO_FEW": "too-few", "NO_MEASURE": "no-measure"}
    for file in installed.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    info = tmp_path / "made_up-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[steersman.measures]\n{names[measure]} = made_up_measure:{measure}\n")
    done = steersman(tmp_path, "simulate", *TIMED, "--policy", "fgd", "--output", "run", path=tmp_path)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("fails", "order 'fails' failed: ZeroDivisionError: division by zero (made_up_order.py, line "),
        ("no-number", "order 'no-number': expected a score of each of "),
        ("larges-first", "unknown order 'larges-first'; did you mean 'largest-first'?"),
    ],
)
def test_an_order_that_fails_is_one_line(installed, tmp_path, order, says):
    done = steersman(
        tmp_path, "simulate", *TIMED, "--policy", "fgd", "--order", order, "--output", "run", path=installed
    )
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
