"""Runs in folders: which are found, and that damaged, foreign, linked and half-written files are one line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.errors import raises

from steersman.apps.dashboard.runs import tables
from steersman.apps.dashboard.runs.entries import RunEntries
from steersman.apps.dashboard.runs.folders import FoundRun, find_runs
from steersman.apps.dashboard.runs.tables import GrowingTable
from steersman.cli.main import main
from steersman.core.errors import InputError, UsageError


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("")
    return folder


def kinds(*folders: Path) -> list[tuple[str, str]]:
    return [(run.name, run.kind) for run in find_runs(folders)[0]]


def test_run_folders_are_recognised_by_their_files(tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    touch(desk / "a", "placements.csv", "timeline.csv", "replay.json.gz", "metrics.csv")
    touch(desk / "b" / "c", "summary.csv", "metrics.csv")
    touch(desk / "study" / "trial-000", "run.json", "metrics.csv", "log.txt")
    touch(desk / ".hidden", "run.json")
    expected = [("desk/a", "simulation"), ("desk/b/c", "evaluation"), ("desk/study/trial-000", "training")]
    assert kinds(desk) == expected
    assert kinds(desk / "a") == [("a", "simulation")]
    assert kinds(desk, desk / "a", desk / "b") == expected, "each once"
    assert len({run.id for run in find_runs([desk])[0]}) == 3


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("x/results y/results", "x/results y/results"),
        ("x/results y/results z/other", "x/results y/results other"),
        ("1/x/results 2/x/results", "1/x/results 2/x/results"),
        ("1/x/results 1/x 2/x", "results 1/x 2/x"),
        # The run in x/results below 1/x is called as the second folder would be.
        ("1/x 2/x/results 3/y/results", "1/x 1/x/results 2/x/results y/results"),
        ("x x/results", "x x/results"),
        ("1/x/x 1/x", "x/x 1/x"),
    ],
)
def test_folders_with_equal_names_are_distinguished_by_parents(tmp_path: Path, given: str, names: str) -> None:
    folders = [touch(tmp_path / folder, "summary.csv") for folder in given.split()]
    if "1/x/results" in names and "1/x " in given:
        touch(tmp_path / "1" / "x" / "results", "summary.csv")
    assert [name for name, _ in kinds(*folders)] == names.split()


def test_files_with_equal_names_are_distinguished_by_parents(tmp_path: Path) -> None:
    for name in ("x", "y"):
        touch(tmp_path / name)
        (tmp_path / name / "one.csv").write_text("pod_name,action,reward\n")
    assert [name for name, _ in kinds(tmp_path / "x" / "one.csv", tmp_path / "y" / "one.csv")] == [
        "x/one.csv",
        "y/one.csv",
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("placements.csv", "timeline.csv"), "replay.json.gz"),
        (("placements.csv",), "timeline.csv"),
        (("results.partial.csv",), "interrupted"),
        ((), "no run"),
        (("pods.csv",), "no run"),
    ],
)
def test_non_run_folder_error_names_what_is_expected(
    tmp_path: Path, names: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    touch(tmp_path, *names)
    assert main(["dashboard", str(tmp_path), "--no-open"]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert str(tmp_path) in line
    assert said in line


def test_broken_run_does_not_hide_others(tmp_path: Path) -> None:
    touch(tmp_path / "a", "placements.csv")
    touch(tmp_path / "b", "summary.csv")
    runs, problems = find_runs([tmp_path])
    assert ([run.kind for run in runs], len(problems)) == (["evaluation"], 1)


def test_missing_folders_are_reported(tmp_path: Path) -> None:
    for path in (tmp_path / "no", touch(tmp_path, "file") / "file"):
        with raises(UsageError, path):
            find_runs([path])


def run_in(folder: Path) -> FoundRun:
    touch(folder, "run.json")
    return find_runs([folder])[0][0]


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    touch(tmp_path / "other", "run.json")
    (tmp_path / "secret").write_text("iteration,reward\n1,2\n")
    desk = touch(tmp_path / "desk" / "run", "run.json").parent
    (desk / "link").symlink_to(tmp_path / "other")
    assert kinds(desk) == [("desk/run", "training")], "links are not followed"
    (run,) = find_runs([desk])[0]
    (run.folder / "metrics.csv").symlink_to(tmp_path / "secret")
    with raises(InputError, run.folder / "metrics.csv", "link"):
        run.open("metrics.csv")
    with raises(InputError, run.folder / "metrics.csv", "link"):
        GrowingTable(run, "metrics.csv").read()
    os.mkfifo(run.folder / "pipe")
    with raises(InputError, run.folder / "pipe"):
        run.open("pipe")
    with raises(InputError, run.folder / "no"):
        run.open("no")


def test_cyclic_link_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert main(["dashboard", str(tmp_path / "self"), "--no-open"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path / 'self'}: there is no such file or folder")
    run = run_in(tmp_path / "run")
    (run.folder / "metrics.csv").symlink_to("metrics.csv")
    with raises(InputError, run.folder / "metrics.csv"):
        GrowingTable(run, "metrics.csv").read()


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run")
    (run.folder / "real.csv").write_text("iteration,reward\n1,2\n")
    (run.folder / "metrics.csv").symlink_to("real.csv")
    table = GrowingTable(run, "metrics.csv")
    table.read()
    assert table.rows == 1
    (tmp_path / "short").symlink_to(tmp_path / "run")
    assert kinds(tmp_path / "short") == [("run", "training")]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    (tmp_path / "run.json").write_text("x" * 100)
    with raises(InputError, tmp_path / "run.json", "100"):
        run.open("run.json", 99)


def columns(table: GrowingTable) -> dict[str, list[float | None]]:
    return table.since(0, 0)[1]


def test_growing_table_reads_only_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path)
    file, table = tmp_path / "metrics.csv", GrowingTable(run, "metrics.csv")
    table.read()
    assert columns(table) == {}
    file.write_text("iteration,reward\n1,0.5\n2,")
    table.read()
    assert columns(table) == {"iteration": [1], "reward": [0.5]}
    with file.open("a") as out:
        out.write("\n3,1.5\n")
    generation = table.generation
    read = list[int]()
    adds = GrowingTable._add
    monkeypatch.setattr(GrowingTable, "_add", lambda self, line: (read.append(1), adds(self, line))[1])
    table.read()
    assert len(read) == 2
    assert table.since(generation, 1) == (1, {"iteration": [2, 3], "reward": [None, 1.5]})
    table.read()
    assert len(read) == 2, "nothing is read twice"


def test_rewritten_table_is_reread(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    file, table = tmp_path / "metrics.csv", GrowingTable(run, "metrics.csv")
    file.write_text("iteration,reward\n1,1\n2,2\n3,3\n")
    table.read()
    first = table.generation
    file.write_text("iteration,reward,loss\n1,1,\n2,2,\n3,3,\n4,4,9\n")  # a column more
    table.read()
    assert table.generation > first
    assert columns(table) == {"iteration": [1, 2, 3, 4], "reward": [1, 2, 3, 4], "loss": [None, None, None, 9]}
    assert table.since(first, 3)[0] == 0, "who has rows of another generation gets all"
    file.write_text("iteration,reward,loss\n1,1,\n2,7,7\n3,7,7\n4,7,7\n5,7,7\n")  # resumed after iteration 1
    table.read()
    assert columns(table)["reward"] == [1, 7, 7, 7, 7]
    file.unlink()
    table.read()
    assert columns(table) == {}


DAMAGED = (
    ("a,b\n1,2\n", "line 1"),
    ("iteration,reward\n1,2\n2\n", "line 3"),
    ("iteration,reward\n1,x\n", "line 2"),
    ("iteration,reward\n1,2,3\n", "line 2"),
    ("iteration,reward\n1," + "9" * 70_000, "line 2"),
    ("iteration,reward" + ",x" * 40_000 + "\n1,2\n", "line 1"),
)


def test_damaged_table_error_names_file_and_line(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    for text, where in DAMAGED:
        (tmp_path / "metrics.csv").write_text(text)
        table = GrowingTable(run, "metrics.csv")
        for _ in range(2):
            with raises(InputError, tmp_path / "metrics.csv", where):
                table.read()


def test_invalid_utf_8_line_is_reported(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    for text, where in ((b"a,b\n" + b"1,2\n" * 3 + b"\xff,2\n", "line 5"), (b"a,b\n\xc3\xbc,\xc3\n", "line 2")):
        (tmp_path / "metrics.csv").write_bytes(text)
        with raises(InputError, tmp_path / "metrics.csv", where, "UTF-8"):
            list(tables.rows_of(run, "metrics.csv", ("a", "b")))
        with raises(InputError, tmp_path / "metrics.csv", where, "UTF-8"):
            tables.parse_growing(run, "metrics.csv", lambda _, lines: list(lines))


def test_list_entries_match_current_files(tmp_path: Path) -> None:
    file, read = tmp_path / "run.json", list[str]()

    def entry(run: FoundRun) -> Entry:
        with run.open("run.json") as opened:
            read.append(opened.read().decode())
        return Entry(read[-1])

    run = run_in(tmp_path)
    file.write_text("former")
    entries = RunEntries([run], lambda run: run.version("run.json"), entry)
    assert [entries.read()[0].text for _ in range(2)] == ["former", "former"]
    file.write_text("newer, and longer")
    assert [entries.read()[0].text for _ in range(2)] == ["newer, and longer"] * 2
    assert read == ["former", "newer, and longer"], "nothing is read twice"


@dataclass
class Entry:
    """What a list says of a run."""

    text: str
    problem: str = ""


def test_long_table_is_downsampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_ROWS", 10)
    monkeypatch.setattr(tables, "CHUNK_BYTES", 7)
    run = run_in(tmp_path)
    (tmp_path / "metrics.csv").write_text("iteration\n" + "".join(f"{i}\n" for i in range(100)))
    table = GrowingTable(run, "metrics.csv")
    table.read()
    kept = columns(table)["iteration"]
    assert len(kept) <= 10
    assert kept == list(range(0, 100, 16))
