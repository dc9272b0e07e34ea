"""Folders of `simulate` in the screen of simulations: the same document and reasons as of the run itself."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from tests.support.dashboard import asking
from tests.support.errors import raises
from tests.unit.live.dashboard.test_simulation import POLICIES, results

from steersman.cluster.model import LatencyLimits, Pod
from steersman.core.errors import InputError, SteersmanError
from steersman.evaluation.replay_file import REPLAY, RunOptions, decode_replay, encode_replay, replay_file
from steersman.evaluation.results import RUN_FILES, check_output, is_result, write_run
from steersman.live.dashboard.runs import find_runs
from steersman.live.dashboard.simulation.document import replay_of
from steersman.live.dashboard.simulation.screen import SimulationScreen
from steersman.live.dashboard.simulation.sources import FolderRun
from steersman.workloads.workload import Recorded, Workload


def written(folder: Path, protocol: str = "arrivals", position: int = 0, policy: str = "") -> FolderRun:
    workload, runs = results(protocol)
    run = runs[position]
    folder.mkdir(parents=True)
    option = policy or run.policy
    write_run(folder, run, replay_file(workload, RunOptions(option, 1.3), run.policy, run.protocol, run.seed))
    return FolderRun(find_runs([folder])[0][0])


@pytest.mark.parametrize("protocol", ["inflation", "arrivals", "timed"])
def test_replay_file_round_trips_the_run(tmp_path: Path, protocol: str) -> None:
    workload, runs = results(protocol)
    loaded = written(tmp_path / "run", protocol).load()
    assert loaded.workload == workload
    one, other = (replay_of(workload, [run]) for run in (loaded.result, runs[0]))
    assert msgspec.structs.replace(one.runs[0], time=[]) == msgspec.structs.replace(other.runs[0], time=[])
    assert one.runs[0].time == pytest.approx(other.runs[0].time, rel=1e-8)
    assert (one.profile, one.nodes, one.pods) == (other.profile, other.nodes, other.pods)


def test_replay_file_is_deterministic_and_recognised_as_a_result(tmp_path: Path) -> None:
    written(tmp_path / "one")
    written(tmp_path / "two")
    assert (tmp_path / "one" / REPLAY).read_bytes() == (tmp_path / "two" / REPLAY).read_bytes()
    assert is_result(tmp_path / "one" / REPLAY)
    check_output(tmp_path / "one", RUN_FILES)
    (tmp_path / "one" / REPLAY).write_bytes(gzip.compress(b"mine"))
    assert not is_result(tmp_path / "one" / REPLAY)


def test_replay_file_is_readable_with_the_standard_library(tmp_path: Path) -> None:
    written(tmp_path / "run")
    with gzip.open(tmp_path / "run" / REPLAY) as file:
        content = json.load(file)
    assert [node["gpu_count"] for node in content["nodes"]] == [2, 4, 0]
    requests = [content["classes"][pod["pod_class"]]["requests"] for pod in content["pods"]]
    assert [each["gpu_count"] for each in requests] == [0, 1, 2] * 3


def test_replay_file_keeps_every_input_of_decisions(tmp_path: Path) -> None:
    workload, _ = results("arrivals")
    pod = Pod(
        "p",
        workload.pods[0].pod_class,
        "other",
        {"b": "1", "a": "2"},
        7,
        owner="Job/x",
        gpu_devices=(1,),
        latency=LatencyLimits(soft=20.0, user="berlin"),
    )
    whole = Workload("w", workload.nodes, (pod,), workload.services, recorded=(Recorded("a", 2, True),), from_now=True)
    content = replay_file(whole, RunOptions("fgd", 1.0, 0.9, 60.0), "fgd", "timed", 3)
    file = tmp_path / REPLAY
    file.write_bytes(encode_replay(content))
    with file.open("rb") as opened:
        assert decode_replay(file, opened).load_workload() == whole


BROKEN_REPLAYS = (
    (b"", "damaged"),
    (b"\x1f\x8b\x08\x00half", "damaged"),
    (gzip.compress(b"{}"), "version"),
    (gzip.compress(b'{"version":1'), "version"),
    (gzip.compress(b'{"version":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "no replay"),
)
BROKEN_TABLES = (
    ("placements.csv", "p3,", "p33,", "p33"),
    ("placements.csv", ",bound,", ",boundless,", "boundless"),
    ("placements.csv", ",0-1,", f",{'0-' * 199}00x,", "devices"),
    ("placements.csv", ",0-1,", f",{'9' * 5000},", "devices"),
    ("placements.csv", "\n2,", "\n7,", "event"),
    ("placements.csv", "event,", "number,", "line 1"),
    ("timeline.csv", "\n0,0,", "\n0,x,", "time"),
    ("timeline.csv", "\n0,0,", "\n0,", "line 2"),
)


def test_damaged_replay_fails_in_one_line(tmp_path: Path) -> None:
    source = written(tmp_path / "run")
    for content, said in BROKEN_REPLAYS:
        (tmp_path / "run" / REPLAY).write_bytes(content)
        with raises(InputError, tmp_path / "run" / REPLAY, said):
            source.load()


def test_damaged_tables_name_file_and_place(tmp_path: Path) -> None:
    source = written(tmp_path / "run")
    for file, old, new, where in BROKEN_TABLES:
        path = tmp_path / "run" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with raises(InputError, path, where):
            source.load()
        path.write_text(text)


def test_truncated_table_is_reported(tmp_path: Path) -> None:
    source = written(tmp_path / "run")
    path = tmp_path / "run" / "timeline.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:4]) + "\n")
    with raises(InputError, path, "events"):
        source.load()


def test_replay_runs_no_code_and_contacts_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path / "run")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Policy: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for option in ("evil:Policy", "http://127.0.0.1:1/score", "no-such-policy", "gone.safetensors"):
        _change(tmp_path / "run", policy_option=option, policy_fingerprint="")
        with raises(SteersmanError, option):
            source.open_policy()
    assert not (tmp_path / "ran").exists()


def test_another_policy_under_the_same_name_gives_no_reasons(tmp_path: Path) -> None:
    source = written(tmp_path / "run")
    assert source.open_policy().name == POLICIES[0]
    _change(tmp_path / "run", policy_option="steersman", policy_fingerprint="steersman.safetensors 0123")
    with raises(SteersmanError, "steersman"):
        source.open_policy()


def _change(folder: Path, **values: object) -> None:
    with (folder / REPLAY).open("rb") as file:
        content = decode_replay(folder / REPLAY, file)
    (folder / REPLAY).write_bytes(encode_replay(msgspec.structs.replace(content, **values)))


async def test_folders_with_equal_arrivals_are_compared(tmp_path: Path) -> None:
    sources = [
        written(tmp_path / "timed", "timed"),
        written(tmp_path / "one"),
        written(tmp_path / "two", position=1),
        written(tmp_path / "broken"),
    ]
    (tmp_path / "broken" / REPLAY).write_bytes(b"")
    async with asking(SimulationScreen(sources)) as ask:
        entries = (await ask("/api/simulation/runs")).content
        assert [entry["policy"] for entry in entries] == ["best-fit", "best-fit", "fgd", ""]
        assert entries[1]["arrivals"] == entries[2]["arrivals"] != entries[0]["arrivals"]
        assert REPLAY in entries[3]["problem"]
        first = (await ask("/api/simulation/replay")).content
        assert (first["sources"], first["protocol"]) == ([0], "timed")
        both = (await ask("/api/simulation/replay?first=2&second=1")).content
        assert ([run["policy"] for run in both["runs"]], both["sources"]) == (["fgd", "best-fit"], [2, 1])
        assert (await ask("/api/simulation/explanation?run=2&event=3")).content["policy"] == "fgd"
        for query, part in (
            ("first=0&second=1", "arrivals"),
            ("first=3", REPLAY),
            ("first=2&second=2", "same run"),
            ("first=9", 9),
            ("first=x", "first"),
        ):
            assert (await ask(f"/api/simulation/replay?{query}")).is_line(400, part)
        assert (await ask("/api/simulation/explanation?run=3&event=0")).is_line(400, REPLAY)


async def test_rerun_simulation_is_reloaded(tmp_path: Path) -> None:
    sources = [written(tmp_path / "one"), written(tmp_path / "two", position=1)]
    async with asking(SimulationScreen(sources)) as ask:
        former = (await ask("/api/simulation/replay?first=0&second=1")).content
        asked = f"/api/simulation/explanation?run=1&version={quote(former['versions'][1])}&event=3"
        assert (await ask(asked)).content["policy"] == "fgd"
        shutil.rmtree(tmp_path / "two")
        written(tmp_path / "two", "timed")
        assert (await ask(asked)).is_line(409, "two has changed")
        assert [entry["protocol"] for entry in (await ask("/api/simulation/runs")).content] == ["arrivals", "timed"]
        assert (await ask("/api/simulation/replay?first=0&second=1")).is_line(400, "other arrivals")
        new = (await ask("/api/simulation/replay?first=1")).content
        assert (new["protocol"], new["runs"][0]["policy"]) == ("timed", "best-fit")
        asked = f"/api/simulation/explanation?run=1&version={quote(new['versions'][0])}&event=0"
        assert (await ask(asked)).content["policy"] == "best-fit"


async def test_runs_of_one_policy_are_distinguished_by_folder(tmp_path: Path) -> None:
    sources = [written(tmp_path / name) for name in ("one", "two")]
    async with asking(SimulationScreen(sources)) as ask:
        both = (await ask("/api/simulation/replay")).content
        assert [run["policy"] for run in both["runs"]] == ["best-fit (one)", "best-fit (two)"]
        alone = (await ask("/api/simulation/replay?first=0")).content
        assert [run["policy"] for run in alone["runs"]] == ["best-fit"]


async def test_non_finite_numbers_fail_in_one_line(tmp_path: Path) -> None:
    source = written(tmp_path / "run")
    nodes = results("arrivals")[0].nodes
    _change(tmp_path / "run", nodes=(replace(nodes[0], cpu_milli=1 << 70), *nodes[1:]))
    async with asking(SimulationScreen([source])) as ask:
        assert (await ask("/api/simulation/explanation?run=0&event=3")).is_line(400, "run has numbers")


def test_a_node_with_a_billion_gpus_is_rejected(tmp_path: Path) -> None:
    source = written(tmp_path / "run")
    nodes = results("arrivals")[0].nodes
    _change(tmp_path / "run", nodes=(replace(nodes[0], gpu_count=10**9), *nodes[1:]))
    with raises(InputError, tmp_path / "run" / REPLAY, 10**9):
        source.load()
