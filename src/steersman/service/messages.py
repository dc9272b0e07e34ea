"""What is asked and answered, as JSON. Unknown fields are refused; Pods and Nodes are as the Kubernetes API has them.

The extender's messages are those of kube-scheduler/extender/v1, whose names are Go's.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

Object = dict[str, Any]
KubernetesObject = Annotated[
    msgspec.Raw,
    Meta(extra_json_schema={"type": "object", "additionalProperties": True, "description": "as in its API"}),
]
NULL = b"null"
NodeNames = Annotated[
    msgspec.Raw,
    Meta(extra_json_schema={"type": ["array", "null"], "items": {"type": "string"}, "description": "of nodes"}),
]
Score = Annotated[int, Meta(ge=0, le=100)]


class Question(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A pod, and the nodes it could go to.

    Attributes:
        pod: the v1 Pod; it need not be in the cluster.
        nodes: names of nodes of the cluster that the service watches; None: all of them.
        node_set: instead, the version of a list of names that was sent before, as an answer named it.
        among: of the nodes in `nodes` or `node_set`, those that are meant, as a bit mask in base64: the lowest bit of
            the first byte stands for the first node. So a list that stays the same need not be sent for each pod.
        cluster: instead, a whole cluster, for a service that watches none.
    """

    pod: KubernetesObject
    nodes: list[str] | None = None
    node_set: str = ""
    among: bytes | None = None
    cluster: Snapshot | None = None


class Snapshot(Struct, forbid_unknown_fields=True, kw_only=True):
    """A cluster: v1 Nodes, and the v1 Pods that run on them."""

    nodes: list[KubernetesObject]
    pods: list[KubernetesObject] = []


class Scores(Struct, kw_only=True, rename="camel"):
    """The answer to `POST /v1/scores`.

    Attributes:
        policy: whose opinion.
        node_set: the version of the list of nodes, which can be sent instead of it.
        scores: of the nodes that were meant, in the order of the question (of the cluster where it named none): 100 the
            best, 0 where the pod does not fit; all equal if `neutral`.
        neutral: why there is no opinion; "" if there is one.
    """

    policy: str
    node_set: str
    scores: list[Score]
    neutral: str = ""


class Suggestion(Struct, kw_only=True):
    """The answer to `POST /v1/suggestions`.

    Attributes:
        policy: whose.
        member: of a portfolio, which of its members decides; else "".
        node: that would be chosen, "" if the pod fits nowhere.
        gpus: the devices it would get there.
        scores: by node, as in `Scores`; nodes where it does not fit are left out.
        neutral: why there is no opinion.
    """

    policy: str
    node: str
    gpus: list[int]
    scores: dict[str, Score]
    neutral: str = ""


class Feature(Struct, kw_only=True):
    """One feature of a node's score.

    Attributes:
        name: see `steersman policy show`.
        value, other: its value on the chosen node and on the one that it is compared with.
        contribution: by how much the chosen node's score falls if the feature is as on the runner-up.
        points: the same in points, see `Explanation`.
    """

    name: str
    value: float
    other: float
    contribution: float
    points: float


class RunnerUp(Struct, kw_only=True):
    """A node that was not chosen: its score in the policy's own units, and in points, see `Explanation`."""

    node: str
    score: float
    points: float


class Explanation(Struct, kw_only=True, rename="camel"):
    """The answer to `POST /v1/explain`.

    Scores of policies are in units of their own, which say little by themselves. Points say where a node is between
    the worst one that the pod fits on, which has 0, and the best, which has 100; all have 100 where scores are equal.

    Attributes:
        policy: whose.
        member: of a portfolio, which of its members decides; else "".
        node: that would be chosen, "" if the pod fits nowhere.
        score: its score in the policy's own units.
        points: the same in points.
        spread: by how much the scores of the best and the worst node differ that the pod fits on.
        equal: how many other nodes have the chosen one's score.
        decided_by: what decided: the score, or what decides among nodes of equal score.
        runners_up: the next best, best first.
        compared_with: the best node with another score, "" if there is none.
        features: what told the chosen node from that one, the largest contribution first.
        refused: how many nodes the pod does not fit, by reason, in kube-scheduler's words.
        nodes: how many nodes there are.
    """

    policy: str
    node: str
    score: float
    runners_up: list[RunnerUp]
    features: list[Feature]
    refused: dict[str, int]
    nodes: int
    member: str = ""
    points: float = 0.0
    spread: float = 0.0
    equal: int = 0
    decided_by: str = ""
    compared_with: str = ""


class ScoreQuestion(Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /score`: v1 Pod and v1 Nodes; `pods` that run there may be added."""

    pod: KubernetesObject
    nodes: list[KubernetesObject]
    pods: list[KubernetesObject] = []


class ScoreAnswer(Struct, kw_only=True):
    """Its answer: scores of nodes by name."""

    scores: dict[str, Score]


class NodeList(Struct, kw_only=True):
    """A v1 NodeList."""

    items: list[KubernetesObject] = []
    metadata: Object = {}
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - Kubernetes' name


class ExtenderArgs(Struct, forbid_unknown_fields=True, kw_only=True, rename="pascal"):
    """What kube-scheduler sends an extender: whole nodes, or names (`nodeCacheCapable: true`)."""

    pod: KubernetesObject
    nodes: NodeList | None = None
    node_names: NodeNames = msgspec.field(default_factory=lambda: msgspec.Raw(NULL))


class ExtenderFilterResult(Struct, kw_only=True, rename="pascal"):
    """The nodes that pass, in the form they came in, and why others do not."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(Struct, rename="pascal", gc=False):
    """An extender's score of a node, 0 to 10."""

    host: str
    score: Annotated[int, Meta(ge=0, le=10)]


class Problem(Struct, kw_only=True):
    """What an answer with a status of 400 and above says, in one line."""

    error: str
