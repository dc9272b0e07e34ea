"""Runs in folders: which are found, and that damaged, foreign, linked and half-written files are one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.errors import error_of, raises

from steersman.core.errors import InputError, UsageError
from steersman.live.dashboard import runs
from steersman.live.dashboard.runs import FoundRun, find_runs


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
    touch(desk / ".hidden", "summary.csv")
    expected = [("desk/a", "simulation"), ("desk/b/c", "evaluation")]
    assert kinds(desk) == expected
    assert kinds(desk / "a") == [("a", "simulation")]
    assert kinds(desk, desk / "a", desk / "b") == expected, "each once"
    assert len({run.id for run in find_runs([desk])[0]}) == 2


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
        ("x/one.csv y/one.csv", "x/one.csv y/one.csv"),
    ],
)
def test_runs_with_equal_names_are_distinguished_by_parents(tmp_path: Path, given: str, names: str) -> None:
    folders = [tmp_path / each for each in given.split()]
    for each in folders:
        if each.suffix:
            (touch(each.parent) / each.name).write_text("pod_name,action,reward\n")
        else:
            touch(each, "summary.csv")
    if "1/x/results" in names and "1/x " in given:
        touch(tmp_path / "1" / "x" / "results", "summary.csv")
    assert [name for name, _ in kinds(*folders)] == names.split()


@pytest.mark.parametrize(
    ("names", "status", "said"),
    [
        (("placements.csv", "timeline.csv"), 1, "replay.json.gz"),
        (("placements.csv",), 1, "timeline.csv"),
        (("results.partial.csv",), 1, "interrupted"),
        ((), 2, "no run"),
        (("pods.csv",), 2, "no run"),
        (("run.json", "metrics.csv", "policy.safetensors"), 2, "tensorboard --logdir"),
    ],
)
def test_non_run_folder_error_names_what_is_expected(
    tmp_path: Path, names: tuple[str, ...], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    touch(tmp_path, *names)
    error_of(capsys, status, ["dashboard", str(tmp_path), "--no-open"], tmp_path, said)


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
    touch(folder, "summary.csv")
    return find_runs([folder])[0][0]


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    touch(tmp_path / "other", "summary.csv")
    (tmp_path / "secret").write_text("a,b\n1,2\n")
    desk = touch(tmp_path / "desk" / "run", "summary.csv").parent
    (desk / "link").symlink_to(tmp_path / "other")
    assert kinds(desk) == [("desk/run", "evaluation")], "links are not followed"
    (run,) = find_runs([desk])[0]
    (run.folder / "metrics.csv").symlink_to(tmp_path / "secret")
    with raises(InputError, run.folder / "metrics.csv", "link"):
        run.open("metrics.csv")
    with raises(InputError, run.folder / "metrics.csv", "link"):
        list(runs.rows_of(run, "metrics.csv", ("a", "b")))
    os.mkfifo(run.folder / "pipe")
    with raises(InputError, run.folder / "pipe"):
        run.open("pipe")
    with raises(InputError, run.folder / "no"):
        run.open("no")


def test_cyclic_link_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "self").symlink_to(tmp_path / "self")
    link = tmp_path / "self"
    error_of(capsys, 2, ["dashboard", str(link), "--no-open"], f"error: {link}: there is no such file or folder")
    run = run_in(tmp_path / "run")
    (run.folder / "metrics.csv").symlink_to("metrics.csv")
    with raises(InputError, run.folder / "metrics.csv"):
        list(runs.rows_of(run, "metrics.csv", ("a", "b")))


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    run = run_in(tmp_path / "run")
    (run.folder / "real.csv").write_text("a,b\n1,2\n")
    (run.folder / "metrics.csv").symlink_to("real.csv")
    assert list(runs.rows_of(run, "metrics.csv", ("a", "b"))) == [(2, ["1", "2"])]
    (tmp_path / "short").symlink_to(tmp_path / "run")
    assert kinds(tmp_path / "short") == [("run", "evaluation")]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    (tmp_path / "summary.csv").write_text("x" * 100)
    with raises(InputError, tmp_path / "summary.csv", "100"):
        run.open("summary.csv", 99)


DAMAGED = (("a,c\n1,2\n", "line 1"), ("a,b\n1,2\n2\n", "line 3"), ("a,b\n1,2,3\n", "line 2"), ("", "line 1"))


def test_damaged_table_error_names_file_and_line(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    for text, where in DAMAGED:
        (tmp_path / "metrics.csv").write_text(text)
        with raises(InputError, tmp_path / "metrics.csv", where):
            list(runs.rows_of(run, "metrics.csv", ("a", "b")))


def test_invalid_utf_8_line_is_reported(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    for text, where in ((b"a,b\n" + b"1,2\n" * 3 + b"\xff,2\n", "line 5"), (b"a,b\n\xc3\xbc,\xc3\n", "line 2")):
        (tmp_path / "metrics.csv").write_bytes(text)
        with raises(InputError, tmp_path / "metrics.csv", where, "UTF-8"):
            list(runs.rows_of(run, "metrics.csv", ("a", "b")))
        with raises(InputError, tmp_path / "metrics.csv", where, "UTF-8"):
            runs.parse_growing(run, "metrics.csv", lambda _, lines: list(lines))
