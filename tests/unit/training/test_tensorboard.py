"""What TensorBoard shows of a run, also of a resumed one, and a disk that is full."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.full_disk import largest_file

from steersman.core.errors import InputError
from steersman.training.run import TrainingLimits, TrainingRun

pytest.importorskip("tensorboard", reason="TensorBoard is not installed")


class Steps:
    """A learner that counts."""

    def __init__(self) -> None:
        self.steps = 0

    def iterate(self) -> dict[str, Any]:
        self.steps += 1
        return {"reward": self.steps / 2, "actions": np.array([0, 1, 1]), "none": np.array([])}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def run(folder: Path, iterations: int, *, resume: bool = False) -> None:
    training = TrainingRun(folder, {}, TrainingLimits(iterations, validate_every=2), resume=resume)
    training.train(Steps(), lambda: 7.5, lambda file: file.write_text("policy"))


def test_metrics_validations_and_histograms_are_shown_over_iterations(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import HISTOGRAMS, EventAccumulator

    run(tmp_path, 2)
    run(tmp_path, 3, resume=True)
    events = EventAccumulator(str(tmp_path), size_guidance={HISTOGRAMS: 0}).Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(1, 0.5), (2, 1.0), (3, 1.5)]
    assert [(event.step, event.value) for event in events.Scalars("validation")] == [(2, 7.5), (3, 7.5)]
    assert [event.histogram_value.num for event in events.Histograms("actions")] == [3, 3, 3]
    assert events.Tags()["histograms"] == ["actions"]


@pytest.mark.parametrize("size", [0, 4000])
def test_full_disk_fails_in_one_line_and_ends_the_run(
    size: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
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
