"""The rule that chooses an advice, on comparisons made by hand."""

import numpy as np
import pytest

from steersman.evaluation.advice import Setting, choose_way

WAYS = ("today", "file", "plugin")
NOISE = np.array([-1.0, 1.0] * 10)
WIDE = 20 * NOISE


def setting(**values: object) -> Setting:
    return Setting("now", "points", {way: 50.0 + np.asarray(value) + np.zeros(20) for way, value in values.items()})


@pytest.mark.parametrize(
    ("file", "plugin", "chosen"),
    [
        (0.0, 0.0, "today"),  # ties
        (5.0 + WIDE, 5.0 + WIDE, "today"),  # the interval includes 0
        (-3.0, -5.0, "today"),  # all are worse
        (0.4, 0.45, "today"),  # clear, and less than half a point
        (0.5, 0.0, "today"),  # half a point is not more than that
        (0.6, 0.0, "file"),
        (5.0 + NOISE, 5.4 + NOISE, "file"),  # the plugin is clearly better, and by too little
        (5.0 + NOISE, 6.0 + NOISE, "plugin"),
        (5.0, 9.0 + WIDE, "file"),  # better on average, and not clearly so
        (0.3, 0.7, "plugin"),  # measured from today, since the file was not chosen
        (-4.0, 2.0, "plugin"),
        (5.0, 3.0, "file"),
    ],
)
def test_cheapest_way_wins_unless_a_dearer_one_is_clearly_better(file: object, plugin: object, chosen: str) -> None:
    assert choose_way(WAYS, [setting(today=0.0, file=file, plugin=plugin)]) == chosen


@pytest.mark.parametrize(
    ("now", "empty", "chosen"),
    [
        (2.0, 12.0, "file"),
        (0.0, 12.0, "file"),  # the cluster is full now, and changes as its pods end
        (2.0, 0.0, "file"),
        (-2.0, 12.0, "today"),  # no way is advised that costs GPUs now
        (12.0, -2.0, "today"),
        (-0.4, 12.0, "file"),  # a loss below half a point does not count
        (-2.0 + WIDE, 12.0, "file"),  # nor does one that is not shown
    ],
)
def test_a_gain_in_one_setting_must_not_be_a_loss_in_another(now: object, empty: object, chosen: str) -> None:
    settings = [setting(today=0.0, file=now), setting(today=0.0, file=empty)]
    assert choose_way(WAYS[:2], settings) == chosen


@pytest.mark.parametrize(
    ("file", "plugin", "chosen"),
    [
        (-8.0 + WIDE, WIDE, "file"),  # shorter waits than under the file, and no shorter ones than today are shown
        (-8.0 + WIDE, 3.0 + WIDE, "file"),
        (-8.0 + WIDE, 16.0 + WIDE, "plugin"),  # from both
        (WIDE, 16.0 + WIDE, "plugin"),
        (16.0 + NOISE, 16.0 + WIDE, "file"),
        (-15.0, WIDE, "plugin"),  # the file is clearly worse in its waits
    ],
)
def test_what_is_not_told_apart_from_today_is_no_reason_to_change(file: object, plugin: object, chosen: str) -> None:
    """The file allocates more; waits are of few windows, that differ by the same in the file and the plugin."""
    settings = [setting(today=0.0, file=3.0, plugin=3.0), setting(today=0.0, file=file, plugin=plugin)]
    assert choose_way(WAYS, settings) == chosen


def test_a_single_draw_shows_nothing() -> None:
    one = Setting("now", "points", {"today": np.array([10.0]), "file": np.array([90.0])})
    assert choose_way(WAYS[:2], [one]) == "today"
    assert one.gain("file", "today").text("points") == "+80.0 points"


def test_gain_has_its_sign_and_interval() -> None:
    gain = setting(today=0.0, file=2.0 + NOISE).gain("file", "today")
    assert gain.text("points") == "+2.0 points (1.5 to 2.5)"
    assert setting(today=0.0, file=-0.01).gain("file", "today").text("points") == "+0.0 points (0.0 to 0.0)"


def test_shorter_waits_are_less_than_all_of_them() -> None:
    """Three windows with 60 to 99 % shorter waits: a symmetric interval would reach beyond 100 %."""
    values = {"today": np.zeros(3), "order": -np.log([0.4, 0.01, 0.2])}
    waits = Setting("waits", "% shorter waits", values, is_ratio=True)
    gain = waits.gain("order", "today")
    assert gain.mean == pytest.approx(100 * (1 - 0.0008 ** (1 / 3)))
    assert gain.interval.low < 0 < gain.mean < gain.interval.high < 100
    back = waits.gain("today", "order")
    assert back.mean == pytest.approx(100 * (1 - 0.0008 ** (-1 / 3)))
    nothing = Setting("waits", "% shorter waits", {"today": np.zeros(1), "order": np.ones(1)}, is_ratio=True)
    assert np.isnan(nothing.gain("order", "today").interval.low)
