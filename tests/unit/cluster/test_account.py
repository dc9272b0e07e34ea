"""The account of a cluster: which nodes and GPUs are counted, and why others are not."""

from __future__ import annotations

import pytest
from tests.support.cluster_dump import Object, controller, node, pod

from steersman.cluster.account import NOT_READY, account_of
from steersman.cluster.model import Constraints, Node, Taint, Toleration
from steersman.workloads.formats.yaml_documents import Document
from steersman.workloads.loading import workload_of_objects
from steersman.workloads.recorded import live_account
from steersman.workloads.workload import RunningPods


def made(name: str, gpus: int = 0, *taints: str, cordoned: bool = False) -> Node:
    return Node(name, 8000, 1 << 34, gpu_count=gpus, taints=tuple(map(Taint, taints)), unschedulable=cordoned)


CORDONED = [made(f"c{i}", cordoned=True) for i in range(5)]


@pytest.mark.parametrize(
    ("nodes", "invalid", "sentence"),
    [
        ([made("a")], [], "1 node"),
        ([made("a", 8), made("b", 4)], [], "2 nodes with 12 GPUs"),
        ([made("a", 8), made("b")], [], "2 nodes with 8 GPUs, 1 of them without GPUs"),
        (
            [made("a1", 8), made("a7", 8, cordoned=True), made("l3", 1, NOT_READY[0])],
            [],
            "1 of 3 nodes counted with 8 of 17 GPUs: a7 is cordoned, l3 is not ready",
        ),
        ([made("a"), CORDONED[0]], ["x"], "1 of 3 nodes counted: c0 is cordoned, x is invalid"),
        ([made("a"), *CORDONED], [], "1 of 6 nodes counted: c0, c1, c2 and 2 more are cordoned"),
        (
            # The node controller taints a node that is not ready, and may have been cordoned before.
            [made("a"), made("d", 0, NOT_READY[1], cordoned=True), made("t", 3, "team"), made("u", 0, "team")],
            [],
            "1 of 4 nodes counted with 0 of 3 GPUs: d is not ready, t, u have the taint team, which no pod tolerates",
        ),
        ([made("a", 0, "team")], [], "0 of 1 node counted: a has the taint team, which no pod tolerates"),
    ],
)
def test_sentence_names_what_is_left_out_and_why(nodes: list[Node], invalid: list[str], sentence: str) -> None:
    assert account_of(nodes, [], invalid).sentence == sentence


def test_nodes_that_no_pod_selects_and_tolerated_taints() -> None:
    on_b = Constraints(node_selector=(("zone", "b"),), tolerations=(Toleration("team", "Exists"),))
    nodes = [made("a", 2), Node("b", 8000, 1 << 34, gpu_count=4, labels={"zone": "b"}, taints=(Taint("team"),))]
    assert account_of(nodes, [on_b]).sentence == "1 of 2 nodes counted with 4 of 6 GPUs: a is entered by no pod"


NAMED = {"kubernetes.io/hostname": "tied"}


def closed(name: str, **spec: object) -> Object:
    return {**node(name, 2, labels={"kubernetes.io/hostname": name}), "spec": spec}


def test_live_cluster_and_its_dump_have_the_same_account() -> None:
    """Pods of DaemonSets and those that are tied to their node let no node count."""
    agent = controller("DaemonSet", "agent")
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    invalid = node("bad", 1)
    invalid["status"]["allocatable"]["cpu"] = "many"
    objects = [
        node("a", 8),
        closed("gone", unschedulable=True),
        closed("tied", taints=[{"key": "team", "effect": "NoSchedule"}]),
        invalid,
        agent,
        pod("agent-1", agent, on="gone", **tolerant),
        pod("db", on="tied", nodeSelector=NAMED, **tolerant),
        pod("old", on="gone", gpus=1),
        pod("next", gpus=1),
    ]
    documents = [Document(each, "w.json", "") for each in objects]
    for running in (RunningPods.FREE, RunningPods.FROM_NOW):
        account = workload_of_objects("w", documents, running=running).account
        assert account.sentence == (
            "1 of 4 nodes counted with 8 of 12 GPUs: gone is cordoned, "
            "tied has the taint team, which no pod tolerates, bad is invalid"
        )
    written = workload_of_objects("w", documents, running=RunningPods.AS_WRITTEN)
    assert live_account(written.nodes, written.pods, written.invalid_nodes).sentence == account.sentence
