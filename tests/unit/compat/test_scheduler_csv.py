"""AAML's recordings of a scheduler: what was seen before each decision is worked out, and nonsense has a line."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.agents.buffers import Recording, check_file
from steersman.cli.main import main
from steersman.core.errors import InputError
from steersman.envs.deployments import DeploymentsVectorEnv
from steersman.policies.features import CLUSTER

HEADER = "pod_name,action,reward,done,cpu_request,memory_request"
FREE = CLUSTER.node_column("cpu_free_before")


def rows(nodes=3, deployments=4, replicas=6, *, free=True, start=0):
    """A scheduler that takes the nodes in turn; usage is read when a Deployment has been bound, as AAML did."""
    used, lines = [0] * nodes, []
    for d in range(deployments):
        actions = [(start + d * replicas + i) % nodes for i in range(replicas)]
        for action in actions:
            used[action] += 1
        shares = [round(1 - u / 64 if free else u / 64, 4) for u in used]
        for i, action in enumerate(actions):
            pod = f"odd-name-{d}-597cf48c97-x{i}"
            lines.append(f"{pod},{action},0.5,{int(i == replicas - 1)},1,2,{','.join(map(str, shares))}")
    return lines


def written(tmp_path, lines, header=None, name="sched_20231204_084827.csv", nodes=3):
    file = tmp_path / name
    columns = header or f"{HEADER},{','.join(f'cpu_usage_node_{i}' for i in range(nodes))}"
    file.write_text("\n".join([columns, *lines]) + "\n")
    return file


@pytest.mark.parametrize("free", [True, False])
def test_recording_holds_the_state_before_each_decision(tmp_path: Path, free: bool):
    recording = Recording.load(written(tmp_path, rows(free=free)))
    assert len(recording) == 24
    assert recording.actions.tolist() == [i % 3 for i in range(24)]
    assert recording.terminated.tolist() == ([False] * 5 + [True]) * 4
    assert not recording.truncated.any()
    assert (recording.rewards == 0.5).all()
    pods_before = np.array([[(i - node + 2) // 3 for node in range(3)] for i in range(24)])
    assert np.allclose(recording.before["nodes"][:, :, FREE], 1 - pods_before / 64, atol=1e-6)
    assert np.array_equal(recording.after["nodes"][:-1, :, FREE], recording.before["nodes"][1:, :, FREE])
    on_node = recording.before["nodes"][:, :, CLUSTER.node_column("owner_on_node")]
    assert on_node[5].tolist() == pytest.approx([0.4, 0.4, 0.2]), "pods of the same Deployment"
    assert (on_node[6] == 0).all()


def test_an_agent_of_the_same_cluster_can_learn_from_it(tmp_path: Path):
    file = written(tmp_path, rows())
    check_file(file)
    space = DeploymentsVectorEnv(1, nodes=3).single_observation_space
    recording = Recording.load(file)
    recording.check(file, space, 0)
    assert {name: part.dtype for name, part in recording.before.items()} == {
        name: space[name].dtype for name in recording.before
    }
    with raises(InputError, "3 nodes", "5"):
        recording.check(file, DeploymentsVectorEnv(1, nodes=5).single_observation_space, 0)


@pytest.mark.parametrize("algorithm", ["imitation", "dqn"])
def test_a_policy_is_trained_from_it(tmp_path: Path, algorithm: str, capsys):
    file = written(tmp_path, rows())
    options = f"--algorithm {algorithm} --protocol deployments --node-count 3 --iterations 1 --recording {file}".split()
    assert main(["train", *options, "--output", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    assert (tmp_path / "run" / "policy.safetensors").exists()


def test_cleared_cluster_is_empty(tmp_path: Path):
    recording = Recording.load(written(tmp_path, rows(deployments=6) + rows(deployments=6, start=1)))
    assert (recording.before["nodes"][36, :, FREE] == 1).all()
    assert recording.terminated[35]


def test_last_row_without_successor_is_dropped(tmp_path: Path):
    lines = rows()
    recording = Recording.load(written(tmp_path, [*lines, lines[-1].replace(",1,1,2,", ",0,1,2,")]))
    assert len(recording) == 24


@pytest.mark.parametrize(
    ("cpu", "memory", "cores", "gib"), [("500", "512", 0.5, 0.5), ("2", "20", 2, 20), ("3500", "1536", 3.5, 1.5)]
)
def test_requests_without_units_are_understood(tmp_path: Path, cpu, memory, cores, gib):
    lines = [line.replace(",1,2,", f",{cpu},{memory},") for line in rows(deployments=1)]
    pod = Recording.load(written(tmp_path, lines)).before["pod"][0]
    assert pod[CLUSTER.pod_column("cpu")] == pytest.approx(cores / 32)
    assert pod[CLUSTER.pod_column("memory")] == pytest.approx(gib / 256)


def test_extra_node_columns_and_column_orders_are_read(tmp_path: Path):
    header = "done,reward,action,pod_name,memory_request,cpu_request,"
    header += ",".join(f"{kind}_node_{i}" for i in (1, 0) for kind in ("pod_count", "memory_usage", "cpu_usage"))
    lines = [f"{int(i == 3)},0.1,{i % 2},a-b-{i},2,1,0.0,0.99,1.0,1,0.5,1.0" for i in range(4)]
    assert Recording.load(written(tmp_path, lines, header)).actions.tolist() == [0, 1, 0, 1]


GOOD = rows()
FULL = [",".join([*line.split(",")[:6], *["0.6" if i == 0 else "0.1"] * 3]) for i, line in enumerate(GOOD[:18])]
MALFORMED = {
    "empty": ([], "", "line 1"),
    "only a header": ([], None, "no pods"),
    "no action": (GOOD, "pod_name,reward,done,cpu_request,memory_request,cpu_usage_node_0", "action"),
    "a column twice": (GOOD, f"{HEADER},done,cpu_usage_node_0", "done"),
    "a node twice": (GOOD, f"{HEADER},cpu_usage_node_0,cpu_usage_node_0", "cpu_usage_node_0"),
    "a gap in the nodes": (GOOD, f"{HEADER},cpu_usage_node_0,cpu_usage_node_2,memory_usage_node_0", "cpu_usage_node_1"),
    "no node": (GOOD, HEADER, "cpu_usage_node_0"),
    "an unknown column": (GOOD, f"{HEADER},cpu_usage_node_0,hello,x", "hello"),
    "a short row": ([*GOOD, "a-b-c,1"], None, "line 26"),
    "an action beyond": ([*GOOD, "a-b-c,3,0.5,1,1,2,1,1,1"], None, "line 26, action"),
    "a negative action": ([*GOOD, "a-b-c,-1,0.5,1,1,2,1,1,1"], None, "line 26, action"),
    "half an action": ([*GOOD, "a-b-c,0.5,0.5,1,1,2,1,1,1"], None, "line 26, action"),
    "a reward that is none": ([*GOOD, "a-b-c,1,nan,1,1,2,1,1,1"], None, "line 26, reward"),
    "an infinite reward": ([*GOOD, "a-b-c,1,inf,1,1,2,1,1,1"], None, "line 26, reward"),
    "done twice": ([*GOOD, "a-b-c,1,0.5,2,1,2,1,1,1"], None, "line 26, done"),
    "a request with a unit": ([*GOOD, "a-b-c,1,0.5,1,1m,2,1,1,1"], None, "line 26, cpu_request"),
    "a negative request": ([*GOOD, "a-b-c,1,0.5,1,1,-2,1,1,1"], None, "line 26, memory_request"),
    "a usage above one": ([*GOOD, "a-b-c,1,0.5,1,1,2,1.5,1,1"], None, "line 26, cpu_usage_node_0"),
    "a usage that is none": ([*GOOD, "a-b-c,1,0.5,1,1,2,1,,1"], None, "line 26, cpu_usage_node_1"),
    "no name": ([*GOOD, ",1,0.5,1,1,2,1,1,1"], None, "line 26, pod_name"),
    "a name that cannot be printed": ([*GOOD, "a\x07b,1,0.5,1,1,2,1,1,1"], None, "line 26, pod_name"),
    "a quote that is open": ([*GOOD, '"a,1,0.5,1,1,2,1,1,1'], None, "line "),
    "more than fits": (["a-b-c,0,0.5,1,65000,2,1,1,1"], None, "line 2, action"),
    "a cluster that was full before": (FULL, None, "line 19"),
    "one row that is not done": ([GOOD[0]], None, "line 2, done"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_recording_fails_in_one_line(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines, header, named = MALFORMED[case]
    file = written(Path(), lines, header)
    if header == "":
        file.write_text("")
    with raises(InputError, file, named):
        Recording.load(file)
