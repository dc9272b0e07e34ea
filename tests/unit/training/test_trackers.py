"""Where a run's metrics go: the calls of a tracker's module, and what it keeps if it is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.full_disk import largest_file

from steersman.cli.commands.training.train import Track
from steersman.cli.main import main
from steersman.core.errors import InputError, SteersmanError, UsageError
from steersman.training.run import TrainingLimits, TrainingRun
from steersman.training.trackers import TRACKERS, check_tracker

OPTIONS = {"name": "mine", "config": {"population": 4, "hidden": [8, 4]}, "seed": 1}


class Steps:
    """A learner that counts, and fails at a step if asked to."""

    def __init__(self, fails_at: int = 0) -> None:
        self.steps, self._fails_at = 0, fails_at

    def iterate(self) -> dict[str, Any]:
        self.steps += 1
        if self.steps == self._fails_at:
            raise SteersmanError("diverged")
        return {"reward": self.steps / 2, "actions": np.array([0, 1, 1]), "none": np.array([])}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def run(folder: Path, tracker: str, iterations: int = 2, *, resume: bool = False, learner: Steps | None = None) -> None:
    training = TrainingRun(folder, OPTIONS, TrainingLimits(iterations, validate_every=2), resume=resume)
    training.train(learner or Steps(), lambda: 7.5, lambda file: file.write_text("policy"), tracker=tracker)


class Recorder(types.ModuleType):
    """A module that takes every call: the names of functions with their arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = importlib.util.spec_from_loader(name, loader=None)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, arguments, named))
            print(f"{name} was called")
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id=f"id-{len(self.calls)}"))

        return call

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(arguments, named) for called, arguments, named in self.calls if called == name]


@pytest.fixture
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder(request.param)
    monkeypatch.setitem(sys.modules, request.param, found)
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"):
        monkeypatch.delenv(name, raising=False)
    return found


def only(recorder: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recorder", [recorder], indirect=True)


FLAT = {"name": "mine", "config.population": 4, "config.hidden": "[8, 4]", "seed": 1}


@only("mlflow")
def test_mlflow_receives_options_metrics_and_the_policy(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    run(folder, "mlflow")
    assert [name for name, _, _ in recorder.calls] == [
        *("set_experiment", "start_run", "log_params"),
        *("log_metrics", "log_metrics", "log_metrics", "log_artifact", "end_run"),
    ]
    assert recorder.of("start_run") == [((), {"run_id": None, "run_name": "mine"})]
    assert recorder.of("log_params") == [((FLAT,), {})]
    (first, validation) = (recorder.of("log_metrics")[i] for i in (0, 2))
    assert (first[0][0]["reward"], first[1]) == (0.5, {"step": 1})
    assert validation == (({"validation": 7.5},), {"step": 2})
    assert recorder.of("log_artifact") == [((str(folder / "policy.safetensors"),), {})]
    assert recorder.of("end_run") == [(("FINISHED",), {})]
    assert not list(folder.glob("events.out.tfevents.*")), "TensorBoard is another tracker"
    assert capsys.readouterr().out == "", "what a tracker prints is no result"
    recorder.calls.clear()
    run(folder, "mlflow", 3, resume=True)
    assert recorder.of("start_run") == [((), {"run_id": "id-2", "run_name": None})]
    assert not recorder.of("log_params")


@only("mlflow")
def test_mlflow_receives_failures_and_honours_its_environment(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ours")
    with raises(SteersmanError, "diverged"):
        run(tmp_path / "mine", "mlflow", learner=Steps(fails_at=2))
    assert not recorder.of("set_experiment")
    assert recorder.of("end_run") == [(("FAILED",), {})]


@only("trackio")
def test_trackio_receives_options_metrics_and_histograms(recorder: Recorder, tmp_path: Path) -> None:
    run(tmp_path / "mine", "trackio")
    ((arguments, started),) = recorder.of("init")
    assert (*arguments, started["config"]) == ("steersman", "mine", FLAT)
    logged = recorder.of("log")
    assert [list(arguments[0]) for arguments, _ in logged] == [
        *(["actions"], ["reward", "throughput"], ["actions"], ["reward", "throughput"], ["validation"])
    ]
    assert [named["step"] for _, named in logged] == [1, 1, 2, 2, 2]
    assert len(recorder.of("Histogram")) == 2
    assert recorder.of("log_artifact")[0][0] == (str(tmp_path / "mine" / "policy.safetensors"),)
    assert len(recorder.of("finish")) == 1


@only("mlflow")
def test_an_error_of_a_tracker_fails_in_one_line(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no server\nat all")

    monkeypatch.setattr(recorder, "start_run", refuse, raising=False)
    with raises(SteersmanError, "mlflow", "no server at all"):
        run(tmp_path / "mine", "mlflow")


@pytest.mark.parametrize(("name", "package"), [("mlflow", "mlflow"), ("trackio", "trackio")])
def test_missing_package_is_reported_before_anything_is_written(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    output = tmp_path / "run"
    assert main(["train", "--workload", "default-small", "--output", str(output), "--track", name]) == 1
    said = capsys.readouterr().err
    assert said == f"error: --track {name}: {name} is not installed; pip install {package}\n"
    assert not output.exists()


def test_the_command_line_has_all_trackers() -> None:
    assert set(Track) == TRACKERS.keys()
    with raises(UsageError, "wandb"):
        check_tracker("wandb")


def test_mlflow_keeps_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    run(tmp_path / "mine", "mlflow")
    run(tmp_path / "mine", "mlflow", 3, resume=True)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("steersman")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("mine", "FINISHED")
    assert found.data.params == {name: str(value) for name, value in FLAT.items()}
    assert [point.value for point in client.get_metric_history(found.info.run_id, "reward")] == [0.5, 1.0, 1.5]
    assert [each.path for each in client.list_artifacts(found.info.run_id)] == ["policy.safetensors"]


def test_trackio_keeps_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "store"))
    trackio = pytest.importorskip("trackio", reason="trackio is not installed")
    run(tmp_path / "mine", "trackio")
    (found,) = trackio.Api().runs("steersman")
    assert found.name == "mine"
    assert json.loads(json.dumps(found.config))["config.population"] == 4


@pytest.mark.parametrize("size", [0, 4000])
def test_full_disk_fails_in_one_line_and_ends_the_run(
    size: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    folder = tmp_path / "mine"
    folder.mkdir()
    training = TrainingRun(folder, {}, TrainingLimits(1000))
    with raises(InputError, folder, "cannot be written"), largest_file(size):
        training.train(Steps(), lambda: 7.5, lambda _: None)
    for thread in threading.enumerate():
        if type(thread).__module__.startswith("tensorboard."):
            thread.join(60)
    assert capfd.readouterr().err == ""
    assert not list(folder.glob(".*"))
