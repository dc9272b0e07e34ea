"""Files of `workload run` and recordings of a scheduler: what pages are sent of them is what they say."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.dashboard import asking
from tests.support.errors import error_of
from tests.support.scheduler_csv import write_scheduler_csv

from steersman.cli.commands.dashboard import screens_of
from steersman.core.errors import SteersmanError
from steersman.live.dashboard import runs as run_files
from steersman.live.dashboard.runs import find_runs
from steersman.live.dashboard.simulation import sources
from steersman.live.dashboard.simulation.document import replay_of
from steersman.live.dashboard.simulation.screen import SimulationScreen
from steersman.live.dashboard.simulation.sources import RecordingRun
from steersman.live.dashboard.workload import WorkloadScreen, bindings_document, chosen_rows, deployments_document
from steersman.workloads.experiments import clearings, read_bindings
from steersman.workloads.generators.deployments import DELETE, Row, write_rows

WEB, DB = Row("web", 3, "500m", "1", "1Gi", "2Gi"), Row("db", 2, "2", "2", "4Gi", "4Gi")
GONE = replace(WEB, action=DELETE), replace(DB, action=DELETE)


def recorded(file: Path, **options: Any) -> Path:
    write_scheduler_csv(file, **options)
    return file


def test_deployment_requests_are_summed_per_step() -> None:
    document = deployments_document([WEB, DB, *GONE, WEB])
    assert document.step == [1, 2, 3, 4], "what is deleted together is one step"
    assert document.pods == [3, 5, 0, 3]
    assert document.deployments == [1, 2, 0, 1]
    assert document.cpu == [1.5, 5.5, 0, 1.5]
    assert document.memory == [3, 11, 0, 3]
    assert document.resets == [3]
    assert [(each.steps, each.pods, each.cpu) for each in document.fillings] == [((1, 3), 5, 5.5), ((4, 4), 3, 1.5)]
    assert [(each.name, each.created, each.deleted) for each in document.list] == [
        ("web", 1, 3),
        ("db", 2, 3),
        ("web", 4, None),
    ]


def test_files_starting_with_deletions_or_ending_filled_are_read() -> None:
    document = deployments_document([*GONE, WEB, DB, GONE[0]])
    assert document.pods == [0, 3, 5, 2]
    assert document.resets == []
    assert [each.steps for each in document.fillings] == [(1, 4)]


def test_long_file_keeps_peaks_and_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_rows, "__defaults__", (10, ()))
    rows = [row for _ in range(8) for row in (WEB, DB, *GONE)]
    document = deployments_document(rows)
    assert len(document.step) <= 10 + 10
    assert max(document.pods) == 5
    assert document.step[-1] == 24


def test_recording_has_use_per_node(tmp_path: Path) -> None:
    rows = read_bindings(recorded(tmp_path / "sched_1.csv", nodes=4))
    document = bindings_document(rows)
    cpu, memory, pods = document.quantities
    assert (document.pods, document.bound[-1], len(document.nodes)) == (len(rows), len(rows), 4)
    assert document.resets == clearings(rows)
    assert len(document.resets) == 1
    used = 100 * (1 - np.array([row.usage for row in rows]))
    assert np.allclose(np.array(cpu.values).T, used, atol=0.01)
    assert np.allclose(document.deviation, used.std(axis=1), atol=0.01)
    assert np.allclose(document.mean, used.mean(axis=1), atol=0.01)
    assert [pods.values[n][-1] for n in range(4)] == list(rows[-1].pods)
    assert not pods.counted
    assert max(map(max, memory.values)) > 0


def test_pods_are_counted_if_columns_are_missing(tmp_path: Path) -> None:
    rows = read_bindings(recorded(tmp_path / "sched_1.csv", nodes=4))
    document = bindings_document([replace(row, memory_usage=(), pods=()) for row in rows])
    assert [each.title for each in document.quantities] == ["CPU in use", "Pods"]
    pods = document.quantities[-1]
    assert pods.counted
    assert np.array(pods.values).T.tolist() == [list(row.pods) for row in rows]


def test_many_nodes_reduce_the_time_resolution(tmp_path: Path) -> None:
    document = bindings_document(read_bindings(recorded(tmp_path / "sched_1.csv", nodes=900, fillings=1, load=0.05)))
    assert len(document.nodes) == 900
    assert len(document.bound) <= 222 + 1
    assert document.bound[-1] == document.pods


def test_a_recording_is_replayed_as_a_run(tmp_path: Path) -> None:
    (found,) = find_runs([recorded(tmp_path / "sched_1.csv", nodes=4)])[0]
    rows, run = read_bindings(tmp_path / "sched_1.csv"), RecordingRun(found)
    loaded = run.load()
    replay = replay_of(loaded.workload, [loaded.result], loaded.profile)
    (columns,) = replay.runs
    bound = [node for node, outcome in zip(columns.node, columns.outcome, strict=True) if outcome == 0]
    assert bound == [row.node for row in rows]
    finished = columns.outcome.count(3)
    assert finished == clearings(rows)[0], "all pods from before the clearing"
    left: dict[int, int] = {}
    for node, outcome in zip(columns.node, columns.outcome, strict=True):
        left[node] = left.get(node, 0) + (1 if outcome == 0 else -1)
    assert [left[n] for n in range(4)] == list(rows[-1].pods)
    assert columns.cpu[-1] == pytest.approx(100 * (1 - np.mean(rows[-1].usage)), abs=0.1)
    assert (replay.protocol, run.describe().protocol) == ("recorded", "recorded")
    with pytest.raises(SteersmanError, match="reasons"):
        run.open_policy()


def test_duplicate_pod_names_are_distinguished(tmp_path: Path) -> None:
    file = recorded(tmp_path / "sched_1.csv", nodes=4)
    header, first, second, *_ = file.read_text().splitlines()
    cells = second.split(",")
    file.write_text("\n".join((header, first, ",".join([first.split(",")[0], *cells[1:]]))) + "\n")
    (found,) = find_runs([file])[0]
    names = [pod.name for pod in RecordingRun(found).load().workload.pods]
    assert names == [first.split(",")[0], f"{first.split(',')[0]} (2)"]


def desk(folder: Path) -> Path:
    write_rows([WEB, DB, *GONE], folder / "run.csv")
    recorded(folder / "sched_1.csv", nodes=4)
    (folder / "notes.csv").write_text("a,b\n1,2\n")
    return folder


def test_folder_and_files_have_their_pages(tmp_path: Path) -> None:
    desk(tmp_path)
    assert [screen.name for screen in screens_of([], [tmp_path])] == ["workload", "simulation"]
    assert [screen.name for screen in screens_of([], [tmp_path / "run.csv"])] == ["workload"]
    runs, _ = find_runs([tmp_path, tmp_path / "run.csv"])
    assert [(run.kind, run.table) for run in runs] == [("deployments", "run.csv"), ("bindings", "sched_1.csv")]
    assert len({run.id for run in runs}) == 2


@pytest.mark.parametrize("name", ["notes.csv", "notes.txt"])
def test_foreign_file_fails_in_one_line(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text("a,b\n1,2\n")
    error_of(capsys, 2, ["dashboard", str(tmp_path / name), "--no-open"], name, "workload run")


def test_compressed_files_are_found_and_outside_links_are_not(tmp_path: Path) -> None:
    folder, other = tmp_path / "desk", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    write_rows([WEB], other / "run.csv")
    (folder / "run.csv.gz").write_bytes(gzip.compress((other / "run.csv").read_bytes()))
    (folder / "link.csv").symlink_to(other / "run.csv")
    assert [run.table for run in find_runs([folder])[0]] == ["run.csv.gz"]


async def test_grown_file_is_sent_again(tmp_path: Path) -> None:
    file = desk(tmp_path) / "run.csv"
    screen = WorkloadScreen(find_runs([tmp_path])[0])
    async with asking(screen) as ask:
        first, second = (await ask("/api/workload/files")).content
        assert [first["kind"], second["kind"]] == ["deployments", "bindings"]
        assert (await ask(f"/api/workload/file?file={first['id']}")).content["pods"] == [3, 5, 0]
        assert (await ask(f"/api/workload/file?file={second['id']}")).content["nodes"][0] == "node-0000"
        write_rows([WEB, DB, *GONE, DB], file)
        (again, _) = (await ask("/api/workload/files")).content
        assert again["version"] != first["version"]
        assert (await ask(f"/api/workload/file?file={first['id']}")).content["pods"] == [3, 5, 0, 2]
        assert (await ask("/api/workload/file?file=no")).is_line(404, "no such file")


@pytest.mark.parametrize(("line", "said"), [(b"web,x,\n", "run.csv"), (b"\xff\n", "UTF-8")])
async def test_damaged_file_is_reported_until_repaired(tmp_path: Path, line: bytes, said: str) -> None:
    file = desk(tmp_path) / "run.csv"
    whole = file.read_text()
    file.write_bytes(whole.encode() + line)
    screen = WorkloadScreen(find_runs([file])[0])
    async with asking(screen) as ask:
        (entry,) = (await ask("/api/workload/files")).content
        assert (await ask(f"/api/workload/file?file={entry['id']}")).is_line(400, "run.csv", "line 6", said)
        (entry,) = (await ask("/api/workload/files")).content
        assert "line 6" in entry["problem"]
        file.write_text(whole)
        assert (await ask(f"/api/workload/file?file={entry['id']}")).content["pods"] == [3, 5, 0]
        file.unlink()
        (entry,) = (await ask("/api/workload/files")).content
        assert "missing" in entry["problem"]


async def test_partial_line_is_read_when_complete(tmp_path: Path) -> None:
    desk(tmp_path)
    whole = {name: (tmp_path / name).read_text() for name in ("run.csv", "sched_1.csv")}
    for name, text in whole.items():
        (tmp_path / name).write_text(text[: text.rindex(",") - 1])
    found = [run for run in find_runs([tmp_path])[0] if run.table in whole]
    rows = whole["sched_1.csv"].count("\n") - 1
    async with asking(WorkloadScreen(found), SimulationScreen([RecordingRun(found[1])])) as ask:
        ids = [entry["id"] for entry in (await ask("/api/workload/files")).content]
        deployments, bindings = [(await ask(f"/api/workload/file?file={each}")).content for each in ids]
        assert (deployments["pods"], bindings["pods"]) == ([3, 5, 2], rows - 1)
        (entry,) = (await ask("/api/simulation/runs")).content
        assert entry["problem"] == ""
        for end in ("\n", ""):  # also of a file that a person wrote, without the last end of a line
            for name, text in whole.items():
                (tmp_path / name).write_text(text.rstrip() + end)
            deployments, bindings = [(await ask(f"/api/workload/file?file={each}")).content for each in ids]
            assert (deployments["pods"], bindings["pods"]) == ([3, 5, 0], rows)


async def test_changed_recording_is_read_again_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = recorded(tmp_path / "sched_1.csv", nodes=4)
    whole = file.read_text()
    file.write_text(whole + "web,\n")
    read = list[Path]()
    parse = sources.parse_bindings
    monkeypatch.setattr(sources, "parse_bindings", lambda path, lines: (read.append(path), parse(path, lines))[1])
    async with asking(SimulationScreen([RecordingRun(find_runs([file])[0][0])])) as ask:
        for _ in range(2):
            (entry,) = (await ask("/api/simulation/runs")).content
            assert "sched_1.csv" in entry["problem"]
            assert (await ask("/api/simulation/replay?first=0")).is_line(400, "sched_1.csv")
        assert len(read) == 1, "as long as the file is the same"
        file.write_text(whole)
        replay = (await ask("/api/simulation/replay?first=0")).content
        assert len(replay["pods"]["name"]) == whole.count("\n") - 1
        assert (await ask("/api/simulation/runs")).content[0]["problem"] == ""


@pytest.mark.parametrize("name", ["run.csv", "run.csv.gz"])
async def test_oversized_decompressed_file_fails_in_one_line(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "MOST_TEXT_BYTES", 1 << 20)
    write_rows([WEB], tmp_path / "small.csv")
    content = (tmp_path / "small.csv").read_bytes() + b"\n" * (1 << 20)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    runs = find_runs([tmp_path / name])[0]
    async with asking(WorkloadScreen(runs)) as ask:
        (entry,) = (await ask("/api/workload/files")).content
        assert (await ask(f"/api/workload/file?file={entry['id']}")).is_line(400, name, "more than 1 MiB")
