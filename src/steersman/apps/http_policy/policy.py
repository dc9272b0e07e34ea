"""The policy of a URL: `POST {pod, nodes}` with the feasible nodes, answered with their scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from steersman.apps.http_policy.client import BlockingScoreClient, blocking_client
from steersman.apps.http_policy.request_encoder import RequestEncoder
from steersman.cluster.model import Pod
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState
from steersman.core.redaction import redact_url
from steersman.orders.order import AGE, Order
from steersman.policies.base import Candidates, Need, Policy, Scorer, ScoringContext
from steersman.policies.decision.selection import SelectionRules


@dataclass(frozen=True, slots=True)
class HttpPolicy(Policy):
    """Policy whose scores an HTTP server computes.

    Attributes:
        url: the server's URL, which may have a secret in its query.
    """

    url: str = field(repr=False)
    order: Order = AGE

    @property
    def name(self) -> str:  # type: ignore[override]
        """The URL without secrets, which is the name in results, logs, metrics and leases, and the order if any."""
        return redact_url(self.url) + ("" if self.order == AGE else f"+{self.order.name}")

    @property
    def needs(self) -> frozenset[Need]:
        """See `Policy`."""
        return frozenset({Need.SERVER})

    @property
    def selection(self) -> SelectionRules:
        """See `Policy`."""
        return SelectionRules(follows_classes=False)

    def scorer(self, context: ScoringContext) -> Scorer:
        """Return a scorer that waits for the server, see `Policy`; a live scheduler has `live.HttpDecider`."""
        return HttpScorer(blocking_client(self.url), context.state)


def server_url(policy: Policy) -> str:
    """Return the URL of the server that scores for a policy; "" if scores are computed in this process."""
    return cast(HttpPolicy, policy).url if Need.SERVER in policy.needs else ""


class HttpScorer(Scorer):
    """Scorer that asks a server about every pod.

    Args:
        client: client of the server.
        state: the cluster's state.
    """

    def __init__(self, client: BlockingScoreClient, state: ClusterState) -> None:
        self._client, self._state = client, state
        self._encoder = RequestEncoder(state)

    def scores(self, query: PodQuery, nodes: Candidates) -> npt.NDArray[np.float64]:
        """Return the server's scores, see `Scorer`."""
        slots = np.flatnonzero(nodes.feasible).tolist()
        pod = query.pod or Pod("pod", self._state.classes[query.class_id])
        result = np.full(len(nodes.feasible), -np.inf)
        result[slots] = self._client.scores(self._encoder.encode(pod, slots), node_names(self._state, slots))
        return result


def node_names(state: ClusterState, slots: list[int]) -> list[str]:
    """Return the names of the nodes in slots."""
    return [node.name for slot in slots if (node := state.nodes[slot]) is not None]
