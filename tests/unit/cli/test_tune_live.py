"""`steersman tune --live`: what it refuses before anything is written or any cluster is asked."""

from pathlib import Path

import pytest
from tests.support.kubeconfig import UNREACHABLE

from steersman.cli.main import main

LIVE = ("tune", "--live", "--output", "study", "--kubeconfig", "kubeconfig")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kubeconfig").write_text(UNREACHABLE)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "this would bind pods by untrained agents"),
        (("--algorithm", "evolution", "--yes"), "--algorithm evolution cannot learn on a cluster"),
        (("--protocol", "deployments", "--yes"), "--protocol does not apply to --live"),
        (("--environments", "4", "--yes"), "--environments does not apply to --live"),
        (("--node-count", "4", "--yes"), "--node-count does not apply to --live"),
        (("--dropout", "0.1", "--yes"), "--dropout does not apply to --live"),
        (("--jobs", "2", "--yes"), "--jobs 2: with --live trials run one after the other"),
        (("--cluster", "--yes"), "--live and --cluster exclude each other"),
        (("--cpu-load", "0", "--yes"), "--cpu-load 0.0 is out of range"),
        (("--gae-lambda", "0.9", "--yes"), "--gae-lambda is not an option of dqn"),
        (("--objective", "no-such", "--yes"), "no-such"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(
    arguments: tuple[str, ...], problem: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LIVE, *arguments]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    assert not (folder / "study").exists()


@pytest.mark.parametrize("option", [("--yes",), ("--name", "mine"), ("--kubeconfig", "kubeconfig")])
def test_options_of_the_cluster_belong_to_it(option: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--protocol", "deployments", "--output", "study", *option]) == 2
    assert f"{option[0]} belongs to --" in capsys.readouterr().err
