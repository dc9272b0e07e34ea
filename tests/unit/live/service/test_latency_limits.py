"""`POST /v1/limits`: which nodes a pod's hard limit of latency leaves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.support.servers.fake_prometheus import LATENCY, Told

from steersman.cluster.model import Node, Pod, PodClass, Requests
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.live.service.api import Api
from steersman.live.service.config import ServiceConfig
from steersman.live.service.limits import Deadline
from steersman.live.service.messages import LimitedNodes, ScoreInputs, SentCluster
from steersman.live.service.metrics import ServiceMetrics
from steersman.live.service.scoring.node_scorer import NodeScorer, RefusedRequestError
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.registry import resolve

NODES = ("n0", "n1", "n2", "n3")
LATENCIES = {"n0": 20.0, "n1": 150.0, "n2": 30.0, "n3": 25.0}


class Watched:
    """A watched cluster of four nodes, of which n3 is full."""

    age = 0.0

    def __init__(self, told: Told | None) -> None:
        state = ClusterState([Node(name, 4000, 16 << 30, pods=110) for name in NODES])
        state.place("big", state.class_id(PodClass(Requests(cpu_milli=4000))), 3)
        self.node_scorer = NodeScorer(Decider(ClusterView(state, telemetry=told), resolve("fgd")))
        self.node_scorer.changed(3)
        self.node_count = len(NODES)

    def waiting(self, _: msgspec.Raw) -> None: ...

    @contextmanager
    def query(self, pod: Pod, waiting: None = None) -> Iterator[tuple[NodeScorer, PodQuery]]:
        yield self.node_scorer, self.node_scorer.query(pod)


def told(latencies: dict[str, float], age: float = 0.0) -> Told:
    made = Told()
    made.tell(LATENCY, latencies, age)
    return made


def ask(
    known: Told | None, annotations: dict[str, str], config: ServiceConfig | None = None, **question: Any
) -> LimitedNodes:
    api = Api(config or ServiceConfig(), lambda: "fgd", Watched(known), lambda *_: None, ServiceMetrics())
    requests = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": requests}]},
    }
    raw = msgspec.Raw(msgspec.json.encode(pod))
    return api.limit(ScoreInputs(pod=raw, **question), Deadline(60.0))


def kept(answer: LimitedNodes, names: tuple[str, ...] = NODES) -> list[str] | None:
    if answer.kept is None:
        return None
    bits = np.unpackbits(np.frombuffer(answer.kept, dtype=np.uint8), bitorder="little")
    assert not bits[len(names) :].any()
    return [name for name, bit in zip(names, bits, strict=False) if bit]


def test_nodes_that_keep_the_limit_and_have_room_are_left() -> None:
    answer = ask(told(LATENCIES), {"latencyHardConstraint": "100"})
    assert (kept(answer), answer.outcome, answer.neutral) == (["n0", "n2"], "kept safely", "")
    names = ["n2", "n1", "unknown"]
    answer = ask(told(LATENCIES), {"latencyHardConstraint": "100"}, nodes=names)
    assert kept(answer, tuple(names)) == ["n2"]
    answer = ask(told(LATENCIES), {"latencyHardConstraint": "100"}, nodes=[*NODES], among=bytes([0b0110]))
    assert kept(answer, ("n1", "n2")) == ["n2"]


@pytest.mark.parametrize(
    ("known", "annotations", "outcome"),
    [
        (told(LATENCIES), {"latencyHardConstraint": "1000"}, "kept safely"),
        (told(LATENCIES), {"latencyHardConstraint": "10"}, "kept by no node"),
        (told(LATENCIES, age=3600), {"latencyHardConstraint": "100"}, "not measured"),
        (told(LATENCIES), {"latencySoftConstraint": "100"}, ""),
        (told(LATENCIES), {}, ""),
        (None, {"latencyHardConstraint": "100"}, ""),
    ],
)
def test_unsatisfiable_or_unknown_limits_restrict_nothing(
    known: Told | None, annotations: dict[str, str], outcome: str
) -> None:
    answer = ask(known, annotations)
    assert (kept(answer), answer.outcome, answer.neutral) == (None, outcome, "")


def test_invalid_annotations_are_named_and_a_shadow_restricts_nothing() -> None:
    (ignored,) = ask(told(LATENCIES), {"latencyHardConstraint": "soon"}).ignored
    assert ignored.startswith("annotation latencyHardConstraint: 'soon' is not a number")
    answer = ask(told(LATENCIES), {"latencyHardConstraint": "100"}, ServiceConfig(shadow=True))
    assert (kept(answer), answer.neutral) == (None, "shadow")


def test_a_cluster_that_is_sent_has_no_latencies() -> None:
    node = msgspec.Raw(
        msgspec.json.encode({"metadata": {"name": "n9"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi"}}})
    )
    sent = SentCluster(nodes=[node])
    answer = ask(
        told(LATENCIES), {"latencyHardConstraint": "100"}, ServiceConfig(allow_sent_clusters=True), cluster=sent
    )
    assert (kept(answer), answer.outcome) == (None, "")
    with pytest.raises(RefusedRequestError):
        ask(told(LATENCIES), {}, cluster=sent)
