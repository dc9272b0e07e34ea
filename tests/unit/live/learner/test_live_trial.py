"""The value of a trial on a live cluster."""

import numpy as np
import pytest
from tests.support.errors import raises

from steersman.core.errors import SteersmanError
from steersman.live.learner.live_trial import later_reward
from steersman.training.run import METRICS, read_metrics


@pytest.mark.parametrize(
    ("steps", "rewards", "decisions", "value"),
    [
        ((1, 2, 3, 4), (0.0, 0.0, 1.0, 0.5), 4, 0.75),
        ((1, 2, 3, 4), (0.0, 1.0, 7.0, 7.0), 2, 1.0),
        ((64, 128), (0.2, 0.4), 100, 0.2),
        ((64,), (0.2,), 50, 0.2),
        ((10, 20, 30), (0.0, 0.5, 1.0), 500, 0.75),
    ],
)
def test_later_half_counts(steps, rewards, decisions, value):
    assert later_reward({"steps": np.array(steps, float), "reward": np.array(rewards)}, decisions) == value


def test_agent_without_a_decision_has_no_value(tmp_path):
    with raises(SteersmanError, "learned nothing"):
        later_reward(read_metrics(tmp_path), 100)


def test_metrics_are_read_while_they_are_written(tmp_path):
    (tmp_path / METRICS).write_text("steps,reward,loss\n")
    assert read_metrics(tmp_path) == {}
    with (tmp_path / METRICS).open("a") as file:
        file.write("1,0.5,\n2,0.7,0.01\n")
    metrics = read_metrics(tmp_path)
    assert metrics["reward"].tolist() == [0.5, 0.7]
    assert np.isnan(metrics["loss"][0])
    assert metrics["loss"][1] == 0.01
