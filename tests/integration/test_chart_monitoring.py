"""The chart's alerts fire and say what to do, and its dashboard asks for metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.telemetry import prometheus
from tests.support.chart.helm import CHART, find, helm, template
from website.metrics import PLACES, exported, of_plugin

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("go") is None, reason="Helm is built by Go, which is not installed"),
]

OPERATOR = "monitoring.coreos.com/v1"
EVERYTHING = (
    "service.enabled=true",
    "plugin.enabled=true",
    "plugin.policy.name=best-fit",
    "latencyProbe.enabled=true",
    "monitoring.serviceMonitors.enabled=true",
    "monitoring.alerts.enabled=true",
    "monitoring.grafanaDashboard.enabled=true",
)
OURS = '{namespace="steersman", job="steersman", pod="a"'
OTHER = '{namespace="steersman", job="other", pod="b"'
"""A second release in the same namespace."""
ALERTS: dict[str, dict[str, str]] = {
    "SteersmanSchedulerHasNoLeader": {f'steersman_leader_election_master_status{OURS}, name="steersman"}}': "0x60"},
    "SteersmanSchedulerIsMissing": {},
    "SteersmanTwoSchedulersOfOneName": {f"steersman_bound_by_others_total{OURS}}}": "0+1x60"},
    "SteersmanTwoLeadersOfOneName": {
        'steersman_leader_election_master_status{name="steersman", namespace="a"}': "1x60",
        'steersman_leader_election_master_status{name="steersman", namespace="b"}': "1x60",
    },
    "SteersmanBindingsFail": {
        f'steersman_bind_errors_total{OURS}, status="403"}}': "0+30x60",
        f'steersman_schedule_attempts_total{OURS}, result="scheduled"}}': "0+60x60",
    },
    "SteersmanDecisionsAreSlow": {
        f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="0.2"}}': "0+1x60",
        f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="0.8"}}': "0+60x60",
        f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="+Inf"}}': "0+60x60",
    },
    "SteersmanNodesNotUnderstood": {f"steersman_nodes_not_understood{OURS}}}": "2x60"},
    "SteersmanPolicyFileBroken": {f"steersman_policy_file_broken{OURS}}}": "1x60"},
    "SteersmanPolicyComparisonFails": {f"steersman_policy_comparison_failures_total{OURS}}}": "0+0.2x60"},
    "SteersmanTelemetryIsStale": {f'steersman_telemetry_age_seconds{OURS}, feature="cpu"}}': "0+60x60"},
    "SteersmanAgentDoesNotAnswer": {
        f'steersman_agent_questions_total{OURS}, result="absent"}}': "0+30x60",
        f'steersman_agent_questions_total{OURS}, result="answered"}}': "0+20x60",
    },
    "SteersmanServiceIsMissing": {},
    "SteersmanServiceStateIsStale": {f"steersman_service_state_age_seconds{OURS}}}": "0+60x60"},
    "SteersmanServiceScoresAreNeutral": {
        f'steersman_service_neutral_total{OURS}, reason="deadline"}}': "0+6x60",
        f'steersman_service_requests_total{OURS}, endpoint="/v1/score", status="200"}}': "0+60x60",
    },
    "SteersmanServiceFilesBroken": {f"steersman_service_files_broken{OURS}}}": "1x60"},
    "SteersmanPluginBreakerIsOpen": {f'steersman_plugin_breaker_state{OURS}, state="open"}}': "1x60"},
    "SteersmanPluginDoesNotScore": {
        f'steersman_plugin_unscored_total{OURS}, reason="no policy"}}': "0+6x60",
        f'steersman_plugin_decisions_total{OURS}, outcome="neutral"}}': "0+60x60",
    },
    "SteersmanPluginPolicyFileRefused": {f'steersman_plugin_policy_reads_total{OURS}, result="refused"}}': "0+1x60"},
}
"""Series under which each alert fires after an hour, in promtool's notation."""
HEALTHY = {
    f'steersman_leader_election_master_status{OURS}, name="steersman"}}': "1x60",
    'steersman_leader_election_master_status{namespace="steersman", job="steersman", name="steersman"}': "0x60",
    'steersman_leader_election_master_status{namespace="other", job="steersman", pod="d", name="other"}': "1x60",
    f"steersman_bound_by_others_total{OURS}}}": "0x60",
    f'steersman_bind_errors_total{OURS}, status="409"}}': "0+1x60",
    f'steersman_schedule_attempts_total{OURS}, result="scheduled"}}': "0+60x60",
    f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="0.2"}}': "0+60x60",
    f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="+Inf"}}': "0+60x60",
    f"steersman_nodes_not_understood{OURS}}}": "0x60",
    f"steersman_policy_file_broken{OURS}}}": "0x60",
    f"steersman_policy_comparison_failures_total{OURS}}}": "1x60",
    f'steersman_agent_questions_total{OURS}, result="late"}}': "0+1x60",
    f'steersman_agent_questions_total{OURS}, result="answered"}}': "0+20x60",
    f'steersman_telemetry_age_seconds{OURS}, feature="cpu"}}': "15x60",
    f'steersman_telemetry_nodes{OURS}, feature="cpu", state="fresh"}}': "9x60",
    f'steersman_telemetry_nodes{OURS}, feature="cpu", state="missing"}}': "1x60",
    'steersman_service_state_age_seconds{namespace="steersman", job="steersman-service", pod="a"}': "1x60",
    f'steersman_service_neutral_total{OURS}, reason="shadow"}}': "0+60x60",
    f'steersman_service_neutral_total{OURS}, reason="deadline"}}': "0+1x60",
    f'steersman_service_requests_total{OURS}, endpoint="/v1/score", status="200"}}': "0+60x60",
    f"steersman_service_files_broken{OURS}}}": "0x60",
    f'steersman_plugin_breaker_state{OURS}, state="open"}}': "0x60",
    f'steersman_plugin_unscored_total{OURS}, reason="shadow"}}': "0+60x60",
    f'steersman_plugin_decisions_total{OURS}, outcome="neutral"}}': "0+60x60",
    f'steersman_plugin_policy_reads_total{OURS}, result="refused"}}': "1x60",
}


RELEASE = {"namespace": "steersman", "job": "steersman"}
WORST: tuple[tuple[str, dict[str, str], dict[str, str]], ...] = (
    # Of two releases in a namespace one has no leader.
    (
        "SteersmanSchedulerHasNoLeader",
        {
            f'steersman_leader_election_master_status{OURS}, name="steersman"}}': "0x60",
            f'steersman_leader_election_master_status{OTHER}, name="other"}}': "1x60",
        },
        {"namespace": "steersman", "name": "steersman"},
    ),
    # One of two releases is gone.
    (
        "SteersmanSchedulerIsMissing",
        {f'steersman_leader_election_master_status{OTHER}, name="other"}}': "1x60"},
        {"namespace": "steersman", "name": "steersman"},
    ),
    (
        "SteersmanServiceIsMissing",
        {f"steersman_service_state_age_seconds{OTHER}}}": "0x60"},
        {"namespace": "steersman", "job": "steersman-service"},
    ),
    # The first pod of another's that was bound.
    (
        "SteersmanTwoSchedulersOfOneName",
        {f"steersman_bound_by_others_total{OURS}}}": "0x54 1x5"},
        {**RELEASE, "pod": "a"},
    ),
    # No binding has ever succeeded, and those of another release do.
    (
        "SteersmanBindingsFail",
        {
            f'steersman_bind_errors_total{OURS}, status="403"}}': "0+1x60",
            f'steersman_schedule_attempts_total{OURS}, result="scheduled"}}': "0x60",
            f'steersman_schedule_attempts_total{OTHER}, result="scheduled"}}': "0+6000x60",
        },
        RELEASE,
    ),
    # Another release decides fast, and much more often.
    (
        "SteersmanDecisionsAreSlow",
        {
            f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="0.2"}}': "0x60",
            f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="+Inf"}}': "0+1x60",
            f'steersman_scheduling_algorithm_duration_seconds_bucket{OURS}, le="13"}}': "0x60",
            f'steersman_scheduling_algorithm_duration_seconds_bucket{OTHER}, le="0.2"}}': "0+6000x60",
            f'steersman_scheduling_algorithm_duration_seconds_bucket{OTHER}, le="+Inf"}}': "0+6000x60",
        },
        RELEASE,
    ),
    # The agent has never answered, and that of another release does.
    (
        "SteersmanAgentDoesNotAnswer",
        {
            f'steersman_agent_questions_total{OURS}, result="absent"}}': "0+1x60",
            f'steersman_agent_questions_total{OURS}, result="answered"}}': "0x60",
            f'steersman_agent_questions_total{OTHER}, result="answered"}}': "0+6000x60",
        },
        RELEASE,
    ),
    # Prometheus has never had a value.
    (
        "SteersmanTelemetryIsStale",
        {
            f'steersman_telemetry_nodes{OURS}, feature="cpu", state="fresh"}}': "0x60",
            f'steersman_telemetry_nodes{OURS}, feature="cpu", state="missing"}}': "9x60",
        },
        {**RELEASE, "feature": "cpu"},
    ),
    # Nodes and pods were never listed, which another replica has done.
    (
        "SteersmanServiceStateIsStale",
        {
            f"steersman_service_state_age_seconds{OURS}}}": " ".join(["Inf"] * 61),
            'steersman_service_state_age_seconds{namespace="steersman", job="steersman", pod="c"}': "0x60",
        },
        {**RELEASE, "pod": "a"},
    ),
    # Another release answers well, and much more often.
    (
        "SteersmanServiceScoresAreNeutral",
        {
            f'steersman_service_neutral_total{OURS}, reason="stale"}}': "0+1x60",
            f'steersman_service_requests_total{OURS}, endpoint="/v1/score", status="200"}}': "0+1x60",
            f'steersman_service_requests_total{OTHER}, endpoint="/v1/score", status="200"}}': "0+6000x60",
        },
        {**RELEASE, "reason": "stale"},
    ),
    (
        "SteersmanPluginDoesNotScore",
        {
            f'steersman_plugin_unscored_total{OURS}, reason="no policy"}}': "0+1x60",
            f'steersman_plugin_decisions_total{OURS}, outcome="neutral"}}': "0+1x60",
            f'steersman_plugin_decisions_total{OTHER}, outcome="scored"}}': "0+6000x60",
        },
        {**RELEASE, "reason": "no policy"},
    ),
    # The first file is refused.
    (
        "SteersmanPluginPolicyFileRefused",
        {f'steersman_plugin_policy_reads_total{OURS}, result="refused"}}': "0x50 1x10"},
        {**RELEASE, "pod": "a", "result": "refused"},
    ),
    # Each comparison fails after its limit of 5 minutes, and is tried again after 10.
    (
        "SteersmanPolicyComparisonFails",
        {f"steersman_policy_comparison_failures_total{OURS}}}": "0x14 1x14 2x14 3x14 4x3"},
        {**RELEASE, "pod": "a"},
    ),
)
"""The worst case of alerts about ratios, missing series and several releases: alert, series, and its labels."""


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return template(*EVERYTHING, versions=[OPERATOR])


@pytest.fixture(scope="module")
def rules(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The rules as a file of Prometheus has them."""
    spec: dict[str, Any] = find(objects, "PrometheusRule", "steersman")["spec"]
    return spec


def promtool(*arguments: str | Path) -> None:
    """Run promtool, which has to succeed."""
    done = subprocess.run(
        [prometheus.programs() / "promtool", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def named(rules: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (rule for group in rules["groups"] for rule in group["rules"])


def test_each_alert_fires_when_it_must_and_rests_when_all_is_well(rules: dict[str, Any], tmp_path: Path) -> None:
    assert {rule["alert"] for rule in named(rules)} == set(ALERTS)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    promtool("check", "rules", tmp_path / "rules.yaml")
    tests = []
    for rule in named(rules):
        for series, fires in ((ALERTS[rule["alert"]], True), (HEALTHY, False)):
            expected = [{"exp_labels": labels_of(rule), "exp_annotations": rule["annotations"]}] if fires else []
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "alert_rule_test": [{"eval_time": "1h", "alertname": rule["alert"], "exp_alerts": expected}],
                }
            )
    run_tests(tests, tmp_path)


def run_tests(tests: list[dict[str, Any]], folder: Path) -> None:
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    promtool("test", "rules", folder / "tests.yaml")


@pytest.mark.parametrize(("alert", "series", "labels"), WORST, ids=[alert for alert, _, _ in WORST])
def test_alert_fires_in_its_worst_case(
    rules: dict[str, Any], alert: str, series: dict[str, str], labels: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (rule,) = (rule for rule in named(rules) if rule["alert"] == alert)
    expected = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": rule["annotations"]}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "1h", "alertname": alert, "exp_alerts": [expected]}],
    }
    run_tests([test], tmp_path)


def labels_of(rule: dict[str, Any]) -> dict[str, str]:
    """Return the labels of an alert under its series: those of the first series that the expression keeps."""
    series = ALERTS[rule["alert"]]
    labels = dict(rule["labels"])
    if not series:  # `absent` has the labels that it asks for
        return {**dict(re.findall(r'(\w+)="([^"]*)"', rule["expr"])), **labels}
    stated = dict(re.findall(r'(\w+)="([^"]*)"', next(iter(series))))
    by = re.search(r"by \(([^)]*)\)", rule["expr"])
    kept = (
        stated if by is None else {name: stated[name] for name in by[1].split(", ") if name in stated and name != "le"}
    )
    return {**kept, **labels}


def test_each_alert_has_a_remedy(rules: dict[str, Any]) -> None:
    for rule in named(rules):
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert all(text.endswith(".") for text in rule["annotations"].values())


def test_alerts_and_dashboard_name_metrics_that_are_exported(
    rules: dict[str, Any], objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    metrics = {each.name for place in PLACES for each in exported(place)} | {each.name for each in of_plugin()}
    board = json.loads(find(objects, "ConfigMap", "steersman-grafana")["data"]["steersman.json"])
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 20
    for text in (*(rule["expr"] for rule in named(rules)), *queries):
        for name in re.findall(r"\bsteersman_\w+", text):
            assert name.removesuffix("_bucket") in metrics, name
    filled = [each.replace("$__rate_interval", "5m").replace("$namespace", ".*") for each in queries]
    recorded = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(filled)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")


def test_monitors_select_what_the_components_have(objects: list[dict[str, Any]]) -> None:
    monitors = [each for each in objects if each["kind"] in ("ServiceMonitor", "PodMonitor")]
    components = {"steersman", "steersman-service", "steersman-latency-probe", "steersman-plugin"}
    assert {each["metadata"]["name"] for each in monitors} == components
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        kind = "Service" if monitor["kind"] == "ServiceMonitor" else "Deployment"
        chosen = [each for each in objects if each["kind"] == kind and wanted <= each["metadata"]["labels"].items()]
        assert len(chosen) == 1, monitor["metadata"]["name"]
        (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
        spec = chosen[0]["spec"]
        ports = spec["ports"] if kind == "Service" else spec["template"]["spec"]["containers"][0]["ports"]
        assert endpoint["port"] in [port["name"] for port in ports]


def test_alerts_of_disabled_components_are_left_out() -> None:
    found = template("monitoring.alerts.enabled=true", versions=[OPERATOR])
    groups = [group["name"] for group in find(found, "PrometheusRule", "steersman")["spec"]["groups"]]
    assert groups == ["steersman-scheduler"]


def test_missing_operator_is_told_in_one_line(tmp_path: Path) -> None:
    done = helm("template", "steersman", CHART, "--set=monitoring.alerts.enabled=true", home=tmp_path)
    assert done.returncode == 1
    assert "the cluster lacks the CRDs of the Prometheus Operator (monitoring.coreos.com/v1)" in done.stderr
    assert done.stderr.count("\n") == 3, "Helm adds a hint about --debug"
