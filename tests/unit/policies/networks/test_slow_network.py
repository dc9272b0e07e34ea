"""A network that takes long computes in a thread, so that the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.errors import SteersmanError
from steersman.policies import network_policy
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import CLUSTER
from steersman.policies.network_policy import NetworkPolicy


class LastNode:
    """Prefers later nodes, once it is let go."""

    def __init__(self) -> None:
        self.calls, self.score = 0, 1.0
        self.began, self.let_go = threading.Event(), threading.Event()
        self.let_go.set()

    def scores(self, nodes: np.ndarray, *_: Any) -> np.ndarray:
        self.calls += 1
        self.began.set()
        assert self.let_go.wait(10), "the event loop waits for the network"
        return self.score * np.arange(len(nodes))


@pytest.fixture
def network() -> Iterator[LastNode]:
    network = LastNode()
    yield network
    network.let_go.set()


@pytest.fixture
def decider(network: LastNode, monkeypatch: pytest.MonkeyPatch) -> Decider:
    """It has found that the network takes long."""
    state = ClusterState([Node(f"n{i}", cpu_milli=4000, memory_bytes=1 << 30, pods=1) for i in range(4)])
    decider = Decider(ClusterView(state), NetworkPolicy("n", CLUSTER, network))
    assert not decider.asks_first
    monkeypatch.setattr(network_policy, "SLICE_SECONDS", 0.0)
    network.calls = 0
    return decider


def asked(decider: Decider, name: str = "p") -> PodQuery:
    pod = Pod(name, PodClass(Requests(1000)))
    return PodQuery(decider.state.class_id(pod.pod_class), decider.state.labels_id(pod), pod=pod)


def choose(decider: Decider, query: PodQuery) -> str:
    choice = decider.choose(query)
    assert choice is not None
    node = decider.state.nodes[choice.slot]
    assert node is not None
    return node.name


def take(decider: Decider, name: str) -> None:
    """Place another pod on a node, which has room for one."""
    slot = decider.state.slots[name]
    decider.state.place(f"on-{name}", decider.state.class_id(PodClass(Requests(1000))), slot, 0)
    decider.changed(slot)


async def test_the_cluster_changes_while_a_network_computes(decider: Decider, network: LastNode) -> None:
    network.let_go.clear()
    query = asked(decider)
    asking = asyncio.create_task(decider.ask(query))
    while not network.began.is_set():
        await asyncio.sleep(0.001)
    take(decider, "n3")
    network.let_go.set()
    await asking
    assert choose(decider, query) == "n2"
    assert network.calls == 1
    assert not decider.answers_once  # a pod may be asked about without closed nodes, too
    take(decider, "n2")
    assert choose(decider, query) == "n1"
    assert network.calls == 1


async def test_nodes_that_a_network_did_not_see_are_scored_anew(decider: Decider, network: LastNode) -> None:
    for name in ("n1", "n2", "n3"):
        take(decider, name)
    query = asked(decider)
    await decider.ask(query)
    take(decider, "n0")
    decider.state.add_node(Node("later", cpu_milli=4000, memory_bytes=1 << 30, pods=1))
    assert choose(decider, query) == "later"
    assert network.calls == 2


async def test_scores_of_one_pod_do_not_decide_about_another(decider: Decider, network: LastNode) -> None:
    await decider.ask(asked(decider, "p"))
    choose(decider, asked(decider, "q"))
    assert network.calls == 2


async def test_invalid_scores_are_an_error_of_the_decision(decider: Decider, network: LastNode) -> None:
    network.score, query = float("nan"), asked(decider)
    await decider.ask(query)
    with pytest.raises(SteersmanError, match="the score of a node is not a finite number"):
        decider.choose(query)
