"""`kube-default` decides what a real kube-scheduler decides: feasibility, scores by plugin, choice and reasons.

`STEERSMAN_PARITY=FILE` runs the long histories (more than 2,000 decisions) instead of the short ones, and writes their
summary to FILE as JSON.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.parity import comparison
from tests.support.parity.cluster import control_plane
from tests.support.parity.objects import Maker, Object
from tests.support.parity.replay import ALL_NODES, Findings, Replay, counts
from tests.support.parity.scheduler import Attempt, Deletion, Log

from steersman.cluster.objects.decoding import pod_from_object
from steersman.policies.kube_scheduler.profile import PLUGINS

pytestmark = pytest.mark.e2e

LONG = os.environ.get("STEERSMAN_PARITY")
REASONS = {
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient nvidia.com/gpu",
    "node(s) had untolerated taint(s)",
    "node(s) were unschedulable",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod topology spread constraints",
}
"""What is certain to come up in the long histories; other reasons do, too."""


def test_decisions_match_kube_scheduler(tmp_path: Path) -> None:
    folder = tmp_path / "parity"
    folder.mkdir()
    with control_plane(folder) as (kubeconfig, program):
        found = comparison.run(kubeconfig, program, folder, comparison.LONG if LONG else comparison.SHORT)
    summary = comparison.summary(found)
    print(json.dumps(summary, indent=2))
    if LONG:
        Path(LONG).write_text(json.dumps(summary, indent=2) + "\n")
    assert summary["differences"] == {}, "\n".join(line for each in found for line in each.examples)
    assert summary["not_comparable_percent"] <= 1
    assert summary["same_choice"] == summary["bound_to_top_scorer"] == summary["bound"]
    assert summary["decisions"] >= (2000 if LONG else 300)
    # What was compared was worth it.
    assert summary["refused"] >= 8
    assert summary["decisions_with_ties"] >= 20
    assert set().union(*(each.varied for each in found)) == set(PLUGINS)
    reasons = set(summary["refused_by_reason"])
    assert reasons >= REASONS if LONG else len(reasons) >= 5


# The comparison itself, without servers -------------------------------------------------------------------------------


def made() -> tuple[Replay, Object, Attempt]:
    """A replay of a small cluster, a pod, and what `kube-default` itself would decide on it."""
    replay = Replay(Maker(1, 12).nodes(), Findings(1, 12), ALL_NODES)
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    obj = {"metadata": {"name": "p", "namespace": "parity-a"}, "spec": {"containers": [container]}}
    pod, state, kube = pod_from_object(obj), replay.state, replay.kube
    ids = state.class_id(pod.pod_class), state.labels_id(pod)
    mask = state.mask(*ids)
    names = {node.name: slot for slot, node in enumerate(state.nodes) if node is not None and mask[slot]}
    breakdown = kube.breakdown(*ids)
    parts = {plugin: {name: int(scores[slot]) for name, slot in names.items()} for plugin, scores in breakdown.items()}
    total = {name: sum(part[name] for part in parts.values()) for name in names}
    chosen = next(name for name, slot in names.items() if slot == kube.choose(*ids))
    return replay, obj, Attempt("parity-a/p", parts, total, chosen, len(total), decided=True)


def spoil(attempt: Attempt, what: str) -> None:
    node = next(iter(attempt.total))
    if what == "TaintToleration":
        attempt.parts[what][node] += 3
    elif what == "total":
        attempt.total[node] += 1
    elif what == "feasibility":
        attempt.total.pop(node)
        for part in attempt.parts.values():
            part.pop(node)
    elif what == "choice":
        attempt.node = min(attempt.total, key=lambda each: attempt.total[each])


@pytest.mark.parametrize("what", ["", "TaintToleration", "total", "feasibility", "choice"])
def test_comparison_detects_other_decisions(what: str) -> None:
    replay, pod, attempt = made()
    spoil(attempt, what)
    replay.compare(attempt, pod)
    assert set(replay.findings.differences) == ({what} if what else set())
    assert replay.findings.same_choice == (what != "choice")
    assert replay.state.placements.keys() == {"parity-a/p"}
    replay.remove("parity-a/p")
    assert not replay.state.placements


def test_comparison_detects_other_reasons() -> None:
    replay, _, _ = made()
    pod: Any = {
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "image": "x"}], "nodeSelector": {"a": "b"}},
    }
    why = "node(s) didn't match Pod's node affinity/selector"
    replay.compare(Attempt("default/q", message=f"0/12 nodes are available: 12 {why}."), pod)
    assert set(replay.findings.differences) == {"message"}


def test_counts_of_reasons() -> None:
    why = "0/7 nodes are available: 3 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint(s)."
    expected = {"Insufficient nvidia.com/gpu": 3, "node(s) had untolerated taint(s)": 4}
    assert counts(why) == expected
    assert counts(f"{why} no new claims to deallocate, preemption: 0/7 nodes are available: 7 No.") == expected
    conflict = "0/7 nodes are available: pod affinity terms conflict. not found"
    assert counts(conflict) == {"pod affinity terms conflict": 7}


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    log = Log(path)
    lines = (
        'I1 1 eventhandlers.go:63] "Add event for node" node="n2"',
        'I1 1 schedule_one.go:123] "Attempting to schedule pod" pod="a/p"',
        'I1 1 schedule_one.go:982] "Plugin scored node for pod" pod="a/p" plugin="ImageLocality" node="n2" score=7',
        'I1 1 schedule_one.go:1050] "Calculated node\'s final score for pod" pod="a/p" node="n2" score=9',
        'I1 1 schedule_one.go:481] "Successfully bound pod to node" pod="a/p" node="n2" evaluated=3 feasibleNodes=2',
        'I1 1 eventhandlers.go:335] "Delete event for unscheduled pod" pod="a/p"',
        'I1 1 eventhandlers.go:443] "Delete event for scheduled pod" pod="a/p"',
        'I1 1 schedule_one.go:123] "Attempting to schedule pod" pod="a/q"',
        'I1 1 schedule_one.go:1239] "Unable to schedule pod; no fit; waiting" pod="a/q" err="0/1: it\'s \\"full\\"."',
        'I1 1 eventhandlers.go:335] "Delete event for unscheduled pod" pod="a/q"',
        'I1 1 eventhandlers.go:82] "Update event for node" node="n2"',
    )
    with path.open("a") as file:
        for line in lines:
            file.write(line[:40])
            file.flush()
            log.read()
            file.write(line[40:] + "\n")
            file.flush()
            log.read()
    log.close()
    assert log.events == [
        Attempt("a/p", {"ImageLocality": {"n2": 7}}, {"n2": 9}, "n2", 2, decided=True),
        Deletion("a/p"),
        Attempt("a/q", message='0/1: it\'s "full".', decided=True),
        Deletion("a/q"),
    ]
    assert (log.nodes, log.updates["n2"]) == (["n2"], 1)


def test_a_broken_scheduler_ends_the_comparison(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('E1 1 schedule_one.go:1243] "Error scheduling pod; retrying" err="x" pod="a/p"\n')
    log = Log(path)
    with pytest.raises(AssertionError, match="Error scheduling"):
        log.read()
    log.close()
