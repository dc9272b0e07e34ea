"""Pods made from templates have what kube-controller-manager adds to them: labels, names, tolerations, volumes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster_dump import Object, controller, expanded, item, node, parsed, pod, pod_spec

from steersman.cluster.model import Pod, Toleration

JOB = "batch.kubernetes.io/"


def pods(*content: Object) -> list[Pod]:
    return list(expanded(*content).pods)


def by_name(*content: Object) -> dict[str, Pod]:
    return {each.name: each for each in pods(*content)}


def template(spec: Object | None = None, **labels: Any) -> Object:
    return {"metadata": {"labels": labels}, "spec": pod_spec() | (spec or {})}


def test_pods_of_a_job_have_its_labels() -> None:
    job = controller("Job", "alpha", parallelism=2, completions=2)
    made = pods(job)
    expected = {"app": "alpha", "job-name": "alpha", f"{JOB}job-name": "alpha"}
    uids = {"controller-uid": "uid-Job-alpha", f"{JOB}controller-uid": "uid-Job-alpha"}
    assert [each.labels for each in made] == [expected | uids] * 2
    del job["metadata"]["uid"]
    other = controller("Job", "beta")
    del other["metadata"]["uid"]
    made = pods(job, other)
    assert len({each.labels["controller-uid"] for each in made}) == 2
    assert made[0].labels["controller-uid"] == made[0].labels[f"{JOB}controller-uid"]


def test_labels_that_a_template_states_stay() -> None:
    job = controller("Job", "alpha", template=template({}, app="alpha", **{f"{JOB}controller-uid": "u"}))
    assert pods(job)[0].labels[f"{JOB}controller-uid"] == "u"
    manual = controller("Job", "alpha", manualSelector=True)
    assert pods(manual)[0].labels == {"app": "alpha"}


def test_selectors_see_the_labels_of_a_job() -> None:
    """Affinity and spread by `job-name` count the pods of the Job."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "alpha"}},
        "matchLabelKeys": ["job-name"],
    }
    job = controller("Job", "alpha", template=template({"topologySpreadConstraints": [spread]}, app="alpha"))
    requirements = pods(job)[0].constraints.spread[0].selector.requirements
    assert requirements is not None
    assert [(each.key, each.values) for each in requirements] == [("app", ("alpha",)), ("job-name", ("alpha",))]


@pytest.mark.parametrize(
    ("status", "present", "names"),
    [
        ({}, {}, ["j-0", "j-1", "j-2", "j-3"]),
        ({"completedIndexes": "0,2"}, {}, ["j-1", "j-3"]),
        ({"completedIndexes": "0-2", "startTime": "t"}, {}, ["j-3"]),
        ({"startTime": "t"}, {"1": "Running"}, ["j-0"]),
        ({"startTime": "t"}, {"0": "Succeeded", "1": "Running"}, ["j-2"]),
        ({"startTime": "t"}, {"0": "Failed"}, ["j-0", "j-1"]),
    ],
)
def test_indexed_job_adds_its_missing_indices(status: Object, present: dict[str, str], names: list[str]) -> None:
    job = controller("Job", "j", completions=4, parallelism=2, completionMode="Indexed", status=status)
    key = f"{JOB}job-completion-index"
    there = []
    for index, phase in present.items():
        there.append(pod(f"j-{index}-abcde", job, on="n", phase=phase, metadata={"annotations": {key: index}}))
    made = [each for each in pods(job, *there) if not each.constraints.node_name]
    if status.get("completedIndexes") == "0,2":  # two have succeeded
        job["status"]["succeeded"] = 2
        made = pods(job, *there)
    assert [each.name for each in made] == names
    assert [each.labels[key] for each in made] == [name.removeprefix("j-") for name in names]


@pytest.mark.parametrize("over", ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"])
def test_finished_job_makes_no_pods(over: str) -> None:
    conditions = [{"type": over, "status": "True"}]
    assert pods(controller("Job", "j", completions=3, status={"conditions": conditions})) == []
    assert pods(controller("Job", "j", managedBy="kueue.x-k8s.io/multikueue")) == []


def test_a_stateful_set_counts_from_its_first_ordinal() -> None:
    made = by_name(controller("StatefulSet", "pg", replicas=2))
    assert list(made) == ["pg-0", "pg-1"]
    labels = dict(made["pg-1"].labels)
    assert labels.pop("controller-revision-hash").startswith("pg-")
    names = {"statefulset.kubernetes.io/pod-name": "pg-1", "apps.kubernetes.io/pod-index": "1"}
    assert labels == {"app": "pg"} | names
    assert list(by_name(controller("StatefulSet", "pg", replicas=2, ordinals={"start": 5}))) == ["pg-5", "pg-6"]


def test_stateful_set_adds_its_missing_ordinals() -> None:
    pg = controller("StatefulSet", "pg", replicas=4, status={"updateRevision": "pg-new"})
    there = [pod(f"pg-{i}", pg, on="n", app="pg") for i in (0, 2)]
    made = by_name(pg, *there)
    assert sorted(made) == ["pg-0", "pg-1", "pg-2", "pg-3"]
    assert made["pg-3"].labels["controller-revision-hash"] == "pg-new"
    there[0]["status"]["phase"] = "Failed"  # it is replaced under the same name
    assert sorted(by_name(pg, *there)) == ["pg-0", "pg-1", "pg-2", "pg-3"]
    orphan = pod("pg-1", on="n", app="pg")
    assert sorted(by_name(pg, orphan)) == ["pg-0", "pg-1", "pg-2", "pg-3"]


def test_volume_claim_templates_are_reported() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    pg = controller("StatefulSet", "pg", replicas=2, volumeClaimTemplates=claims)
    objects = parsed(pg)
    assert "persistentVolumeClaim is not modelled" in objects.warnings()[0]
    assert [each.name for each in objects.expanded(()).pods] == ["pg-0", "pg-1"]


HASH = "pod-template-hash"


def test_deployments_have_a_hash_of_their_template() -> None:
    one, other = controller("Deployment", "a", replicas=2), controller("Deployment", "b")
    same = controller("Deployment", "c", template=one["spec"]["template"], selector=one["spec"]["selector"])
    made = pods(one, other, same)
    hashes = [each.labels[HASH] for each in made]
    assert hashes[0] == hashes[1] == hashes[3] != hashes[2]
    assert HASH not in pods(controller("ReplicaSet", "r"))[0].labels


def test_template_hash_is_replaced_by_deployments_and_kept_by_replica_sets() -> None:
    named = template({}, app="x", **{HASH: "mine"})
    assert pods(controller("Deployment", "x", template=named))[0].labels[HASH] != "mine"
    assert pods(controller("ReplicaSet", "x", template=named))[0].labels[HASH] == "mine"


def rollout(old: int, new: int, replicas: int, *present: tuple[str, int]) -> list[Object]:
    """A Deployment in the middle of a rolling update; `present` are pods of its ReplicaSets."""
    web = controller("Deployment", "web", replicas=replicas)
    sets = {}
    for revision, (name, count) in enumerate((("old", old), ("new", new)), start=1):
        made = controller("ReplicaSet", f"web-{name}", owner=web, replicas=count)
        made["metadata"] |= {"labels": {"app": "web", HASH: name}}
        made["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": str(revision)}
        made["spec"]["selector"]["matchLabels"] = {"app": "web"}
        made["spec"]["template"]["metadata"]["labels"] = {"app": "web", HASH: name}
        sets[name] = made
    there = []
    for name, count in present:
        for i in range(count):
            each = pod(f"web-{name}-{i}", sets[name], on="n", app="web")
            each["metadata"]["labels"][HASH] = name
            there.append(each)
    return [web, *sets.values(), *there]


@pytest.mark.parametrize(
    ("objects", "old", "new"),
    [
        (rollout(4, 4, 8, ("old", 4), ("new", 2)), 4, 6 - 2),
        (rollout(3, 2, 4, ("old", 3), ("new", 1)), 3, 2),
        (rollout(0, 3, 3), 0, 3),
        (rollout(0, 3, 5, ("new", 3)), 0, 5),
        (rollout(2, 2, 3, ("old", 2), ("new", 2)), 2, 2),
    ],
)
def test_a_rollout_is_counted_by_its_replica_sets(objects: list[Object], old: int, new: int) -> None:
    result = expanded(*objects)
    hashes = [each.labels[HASH] for each in result.pods]
    assert (hashes.count("old"), hashes.count("new"), len(hashes)) == (old, new, old + new)
    assert {each.owner for each in result.pods} <= {"ReplicaSet/web-old", "ReplicaSet/web-new"}
    assert set(result.owners.values()) == {("Deployment", "default", "web")}


def test_generated_pod_names_are_unique() -> None:
    web, _, new = rollout(0, 1, 3)
    made = pods(web, new, controller("ReplicaSet", "other"), controller("ReplicationController", "web-new"))
    assert len({each.name for each in made}) == len(made) == 5


def test_missing_pods_take_the_template_hash_of_existing_ones() -> None:
    web, replica_set, _, *there = rollout(2, 0, 3, ("old", 2))
    assert [each.labels[HASH] for each in pods(web, *there)] == ["old"] * 3
    assert replica_set


def daemon_set(**spec: Any) -> Object:
    return controller("DaemonSet", "agent", template=template(spec, app="agent"))


def test_daemon_set_pods_tolerate_node_conditions() -> None:
    (made,) = pods(node("n"), daemon_set())
    lasting = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    effects = dict.fromkeys(("not-ready", "unreachable"), "NoExecute") | dict.fromkeys(lasting, "NoSchedule")
    assert made.constraints.tolerations == tuple(
        Toleration(f"node.kubernetes.io/{key}", "Exists", "", effect) for key, effect in effects.items()
    )
    labels = dict(made.labels)
    assert labels.pop("controller-revision-hash")
    assert labels == {"app": "agent", "pod-template-generation": "1"}


def test_host_network_daemons_tolerate_unavailable_networks() -> None:
    key = "node.kubernetes.io/network-unavailable"
    down = node("down", taints=[{"key": key, "effect": "NoSchedule"}])
    assert len(pods(node("n"), down, daemon_set())) == 1
    made = pods(node("n"), down, daemon_set(hostNetwork=True))
    assert len(made) == 2
    assert Toleration(key, "Exists", "", "NoSchedule") in made[0].constraints.tolerations


@pytest.mark.parametrize(
    ("stated", "least", "most", "count"),
    [(None, 4, 10, 4), (2, 4, 10, 4), (20, 4, 10, 10), (5, 4, 10, 5), (0, 4, 10, 0), (None, None, 10, 1)],
)
def test_autoscaler_sets_the_number_of_replicas(stated: int | None, least: int | None, most: int, count: int) -> None:
    web = controller("Deployment", "web", **({} if stated is None else {"replicas": stated}))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": most, **({} if least is None else {"minReplicas": least})}
    scaler = item("HorizontalPodAutoscaler", "web", spec=spec) | {"apiVersion": "autoscaling/v2"}
    other = item("HorizontalPodAutoscaler", "o", spec=spec | {"scaleTargetRef": target | {"name": "else"}})
    assert len(pods(web, scaler, other | {"apiVersion": "autoscaling/v2"})) == count
