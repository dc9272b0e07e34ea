"""Requests and responses as JSON. Unknown fields are refused; Pods and Nodes are those of the Kubernetes API.

The extender's messages are those of kube-scheduler/extender/v1, whose names are Go's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Struct

from steersman.version import __version__

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
POD: dict[str, Any] = {
    "metadata": {"name": "web-0", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
}
NODES: list[dict[str, Any]] = [
    {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}}}
    for name, cpu in (("small", "8"), ("large", "32"))
]
RUNNING: dict[str, Any] = {
    "metadata": {"name": "db-0", "namespace": "default"},
    "spec": {**POD["spec"], "nodeName": "small"},
}
_QUESTION = {"pod": POD, "cluster": {"nodes": NODES, "pods": [RUNNING]}}
_EXTENDER = {"Pod": POD, "Nodes": {"items": NODES}}
EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/scores": _QUESTION,
    "/v1/limits": _QUESTION,
    "/v1/suggestions": _QUESTION,
    "/v1/explain": _QUESTION,
    "/score": {"pod": POD, "nodes": NODES},
    "/filter": _EXTENDER,
    "/prioritize": _EXTENDER,
}
Json = dict[str, Any]
PROBLEMS = {
    400: "The body is malformed, or makes no sense; the message says where.",
    401: "There is no bearer token, or a wrong one.",
    403: "The request brings a cluster, which this service does not allow.",
    404: "The version of a list of nodes is not known; send the list.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    500: "The service failed at this; its log says why.",
    503: "Too many requests, or nothing is known of the cluster yet.",
}
TEMPLATE = "#/components/schemas/{name}"


class ScoreInputs(Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A pod and the nodes it could go to.

    Attributes:
        pod: the v1 Pod; it need not be in the cluster.
        nodes: names of nodes of the watched cluster; None: all of them.
        node_set: instead, the version of a list of names that was sent before, as a response named it.
        among: subset of `nodes` or `node_set`, as a bit mask in base64: the lowest bit of the first byte stands for the
            first node. So a list that stays the same need not be sent for each pod.
        cluster: instead, a whole cluster, for a service that watches none.
    """

    pod: KubernetesObject
    nodes: list[str] | None = None
    node_set: str = ""
    among: bytes | None = None
    cluster: SentCluster | None = None


class SentCluster(Struct, forbid_unknown_fields=True, kw_only=True):
    """A cluster in a request: v1 Nodes, and the v1 Pods that run on them."""

    nodes: list[KubernetesObject]
    pods: list[KubernetesObject] = []


class Scores(Struct, kw_only=True, rename="camel"):
    """Response of `POST /v1/scores`.

    Attributes:
        policy: name of the policy.
        node_set: version of the list of nodes, which can be sent instead of it.
        scores: of the requested nodes in the order of the request (of the cluster where it named none): 100 the best, 0
            where the pod does not fit; all equal if `neutral`.
        neutral: why all scores are equal; "" if the policy scored.
    """

    policy: str
    node_set: str
    scores: list[Score]
    neutral: str = ""


class LimitedNodes(Struct, kw_only=True, rename="camel"):
    """Response of `POST /v1/limits`: which nodes a pod's hard limit of latency leaves.

    Attributes:
        node_set: version of the list of nodes, which can be sent instead of it.
        kept: nodes that are left of the requested ones, in their order, as a bit mask in base64 like `among`; None: the
            limit restricts nothing.
        outcome: "kept safely", "kept", "kept by no node" or "not measured"; "" for a pod without a hard limit, and
            without telemetry.
        ignored: what is wrong with annotations that are invalid.
        neutral: why nothing was decided; "" if it was.
    """

    node_set: str
    kept: bytes | None = None
    outcome: str = ""
    ignored: list[str] = []
    neutral: str = ""


class Suggestion(Struct, kw_only=True):
    """Response of `POST /v1/suggestions`.

    Attributes:
        policy: name of the policy.
        node: chosen node, "" if the pod fits nowhere.
        gpus: GPU devices it would get there.
        scores: by node, as in `Scores`; without nodes where the pod does not fit.
        neutral: why the policy did not score; "" if it did.
    """

    policy: str
    node: str
    gpus: list[int]
    scores: dict[str, Score]
    neutral: str = ""


class FeatureContribution(Struct, kw_only=True):
    """One feature of a node's score.

    Attributes:
        name: see `steersman policy show`.
        value, other: its value on the chosen node and on the one that it is compared with.
        contribution: by how much the chosen node's score falls with the other node's value.
        points: the same in points, see `Explanation`.
    """

    name: str
    value: float
    other: float
    contribution: float
    points: float


class RunnerUp(Struct, kw_only=True):
    """A node that was not chosen: its score in the policy's own units, and in points (see `Explanation`)."""

    node: str
    score: float
    points: float


class PreemptedPods(Struct, kw_only=True, rename="camel"):
    """Pods that kube-scheduler would preempt on a node.

    Attributes:
        node: the node.
        pods: NAMESPACE/NAME, the most important first.
        violations: how many of them a PodDisruptionBudget would keep.
    """

    node: str
    pods: list[str]
    violations: int


class Explanation(Struct, kw_only=True, rename="camel"):
    """Response of `POST /v1/explain`.

    Scores of policies are in units of their own. Points place a node between the worst (0) and the best (100) of the
    nodes that the pod fits on; all have 100 where scores are equal.

    Attributes:
        policy: name of the policy.
        member: the deciding member of a portfolio; else "".
        choice: the comparison that chose the member, and on how many draws; else "".
        node: chosen node, "" if the pod fits nowhere.
        score: its score in the policy's own units.
        points: the same in points.
        spread: difference between the best and the worst score among nodes that the pod fits on.
        equal: number of other nodes with the chosen one's score.
        decided_by: what decided: the score, or the rule among nodes of equal score.
        runners_up: the next best, best first.
        compared_with: the best node with another score, "" if there is none.
        features: features that separated the chosen node from that one, the largest contribution first.
        refused: number of nodes the pod does not fit, by reason, in kube-scheduler's words.
        other_gpus: a sentence on nodes that offer GPUs by other names than the pod requests, "" if there are none.
        nodes: number of nodes.
        preemption: a sentence on whom kube-scheduler would preempt for a pod that fits nowhere, or why nobody; "" if
            there is no pod of lower priority.
        preempted: the same: nodes of which it takes one by chance, with the pods there.
        not_scheduled: why no scheduler that asks this policy places the pod now, "" if it may be placed.
    """

    policy: str
    node: str
    score: float
    runners_up: list[RunnerUp]
    features: list[FeatureContribution]
    refused: dict[str, int]
    nodes: int
    member: str = ""
    choice: str = ""
    points: float = 0.0
    spread: float = 0.0
    equal: int = 0
    decided_by: str = ""
    compared_with: str = ""
    other_gpus: str = ""
    preemption: str = ""
    preempted: list[PreemptedPods] = []
    not_scheduled: str = ""


class ScoreRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /score`: v1 Pod and v1 Nodes, and optionally the `pods` that run there."""

    pod: KubernetesObject
    nodes: list[KubernetesObject]
    pods: list[KubernetesObject] = []


class ScoreResponse(Struct, kw_only=True):
    """Response of `POST /score`: scores of nodes by name."""

    scores: dict[str, Score]


class NodeListResponse(Struct, kw_only=True):
    """A v1 NodeList."""

    items: list[KubernetesObject] = []
    metadata: Object = {}
    kind: str = ""
    apiVersion: str = ""  # noqa: N815 - Kubernetes' name


class ExtenderArgs(Struct, forbid_unknown_fields=True, kw_only=True, rename="pascal"):
    """Arguments that kube-scheduler sends an extender: whole nodes, or names (`nodeCacheCapable: true`)."""

    pod: KubernetesObject
    nodes: NodeListResponse | None = None
    node_names: NodeNames = msgspec.field(default_factory=lambda: msgspec.Raw(NULL))


class ExtenderFilterResult(Struct, kw_only=True, rename="pascal"):
    """The nodes that pass, in the form they came in, and why others do not."""

    nodes: NodeListResponse | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(Struct, rename="pascal", gc=False):
    """An extender's score of a node, 0 to 10."""

    host: str
    score: Annotated[int, Meta(ge=0, le=10)]


class Problem(Struct, kw_only=True):
    """Body of a response with a status of 400 and above: one line."""

    error: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that can be requested.

    Attributes:
        path, request_type, response_type, summary: its entry in the OpenAPI document.
        answer: handler of the decoded body.
        may_be_neutral: whether an overloaded service still answers, neutrally.
    """

    path: str
    request_type: Any
    response_type: Any
    summary: str
    answer: Callable[..., Any]
    may_be_neutral: bool = True


def openapi(routes: Sequence[Endpoint], *, secured: bool) -> Json:
    """Return the OpenAPI 3.1 document."""
    types = [each for route in routes for each in (route.request_type, route.response_type)]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=TEMPLATE)
    problem, pairs = schemas[-1], zip(schemas[:-1:2], schemas[1:-1:2], strict=True)
    paths: Json = {}
    for route, (request_schema, answered) in zip(routes, pairs, strict=True):
        answers = {"200": _content("The answer.", answered)}
        answers |= {
            str(status): _content(description, problem)
            for status, description in PROBLEMS.items()
            if secured or status != 401
        }
        example = {"example": EXAMPLES[route.path]}
        body = {"required": True, "content": {"application/json": {"schema": request_schema, **example}}}
        kind = get_args(route.response_type)[0] if get_args(route.response_type) else route.response_type
        paths[route.path] = {
            "post": {
                "summary": route.summary,
                "description": inspect.getdoc(kind) or "",
                "requestBody": body,
                "responses": answers,
            }
        }
    for path, what in (("/healthz", "Whether the service works."), ("/readyz", "Whether it can answer.")):
        text = {"200": {"description": "Yes."}, "503": {"description": "No; the body says why."}}
        paths[path] = {"get": {"summary": what, "responses": text, "security": []}}
    shown = {"200": {"description": "The metrics."}}
    paths["/metrics"] = {"get": {"summary": "For Prometheus.", "responses": shown, "security": []}}
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "steersman score service",
            "version": __version__,
            "description": "Scores of nodes for pods by a scheduling policy.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _content(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
