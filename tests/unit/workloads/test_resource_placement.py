"""Pods of custom resources go where kube-scheduler puts those that their controllers make."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from tests.support.cluster_dump import Object, node, pod_spec
from tests.unit.workloads.test_account import bound, cluster, run

HOST, RACK = "kubernetes.io/hostname", "rack"
NODES = [node(f"n{i}", labels={HOST: f"n{i}", RACK: f"r{i // 2}"}) for i in range(4)]


def placed(*objects: Object) -> dict[str, str]:
    return bound(run(cluster(*NODES, *objects), "kube-default"))


def made(version: str, kind: str, spec: Any, **annotations: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "it", "annotations": annotations}, "spec": spec}


def racks(places: dict[str, str], parts: int) -> dict[str, set[str]]:
    """Racks by the first parts of the names of pods."""
    found = defaultdict(set)
    for name, where in places.items():
        found["-".join(name.split("-")[:parts])].add(f"r{int(where[1]) // 2}")
    return dict(found)


@pytest.mark.parametrize("count", [2, 3])
def test_exclusive_jobs_have_a_rack_each(count: int) -> None:
    """A third Job finds no rack."""
    job = {"parallelism": 3, "completions": 3, "template": {"spec": pod_spec(4)}}
    spec = {"replicatedJobs": [{"name": "w", "replicas": count, "template": {"spec": job}}]}
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK}
    places = placed(made("jobset.x-k8s.io/v1alpha2", "JobSet", spec, **exclusive))
    assert len(places) == 6
    assert sorted(map(sorted, racks(places, 3).values())) == [["r0"], ["r1"]]


def test_exclusive_groups_of_leaders_and_workers_have_a_rack_each() -> None:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": pod_spec(4)}}}
    kind, key = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), "leaderworkerset.sigs.k8s.io/exclusive-topology"
    plain, exclusive = made(*kind, spec), made(*kind, spec, **{key: RACK})
    assert sorted(map(sorted, racks(placed(exclusive), 2).values())) == [["r0"], ["r1"]]
    assert len(placed(plain)) == 6
