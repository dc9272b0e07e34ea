"""The learning curve in a report, and how it is read from the folder of a training run."""

import numpy as np
from tests.support.run_results import EXPERIMENT, figures_in, made_run

from steersman.evaluation.report.curves import LearningCurve, read_learning
from steersman.evaluation.report.headline import Headline
from steersman.evaluation.report.page import Comparison, write_report
from steersman.evaluation.summary import summarise

CURVE = LearningCurve(
    "trained", "fgd", ("cpu100",), np.array([60.0, 120.0]), np.array([-40.0, 3.0]), np.array([120.0]), np.array([4.5])
)


def test_the_report_shows_how_a_policy_learned(tmp_path):
    runs = [made_run(policy, seed) for policy in ("fgd", "trained") for seed in (1, 2)]
    summary = summarise(runs, "fgd")
    file = tmp_path / "report.html"
    comparison = Comparison(runs, summary, Headline(runs, summary, "fgd"), EXPERIMENT)
    write_report(file, [comparison], command="c", learning=CURVE)
    page = file.read_text()
    assert 'id="learning"' in page
    assert "How the policy “trained” learned" in page
    figure = figures_in(page)["learning"]
    assert [trace["y"] for trace in figure["data"]] == [[-40.0, 3.0], [4.5]]
    low, high = figure["layout"]["yaxis"]["range"]
    assert low <= 0 < 4.5 < high


def test_a_curve_is_read_from_a_run(tmp_path):
    (tmp_path / "metrics.csv").write_text("iteration,seconds,steps,gain\n1,1.0,60.0,-40.0\n2,2.0,120.0,3.0\n")
    (tmp_path / "validation.csv").write_text("iteration,seconds,value\n2,2.0,4.5\n")
    curve = read_learning(tmp_path, "trained", "fgd", ("cpu100",))
    for name in LearningCurve.__slots__:
        np.testing.assert_array_equal(getattr(curve, name), getattr(CURVE, name))
