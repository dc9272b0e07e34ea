"""Answer the requests of the service, message by message and without HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from steersman.cluster.model import Pod
from steersman.cluster.objects.api.metadata import named_object
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.state import ClusterState, device_indices
from steersman.core.errors import SteersmanError
from steersman.kubernetes.cache.cached_pod import CachedPod
from steersman.live.service import limits
from steersman.live.service.config import ServiceConfig
from steersman.live.service.limits import Deadline
from steersman.live.service.messages import (
    NULL,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    LimitedNodes,
    NodeListResponse,
    ScoreInputs,
    ScoreRequest,
    ScoreResponse,
    Scores,
    Suggestion,
)
from steersman.live.service.metrics import ServiceMetrics
from steersman.live.service.scoring.choice import BEST
from steersman.live.service.scoring.node_scorer import (
    HIGHEST,
    LARGEST_OBJECT,
    LARGEST_POD,
    NEUTRAL,
    InvalidRequestError,
    NodeScorer,
    NodeSet,
    NodeSets,
    NodeSubset,
    Pods,
    Ranking,
    RefusedRequestError,
    cluster_of,
    neutral,
)
from steersman.live.service.scoring.unknown_pods import TimeBudget, UnusualPodError

LARGE_SHARE, LARGE_SAVED_SECONDS = 0.002, 0.25
"""Share of the event loop's time for decoding pods of more than `LARGEST_POD` bytes, and seconds saved up at most."""
NAMES_FOR_EACH_NODE, NAMES_BEYOND = 2, 1000
"""Limit of names in a list for a watched cluster, whose nodes may change: names per node, and names in addition."""


class WatchedState(Protocol):
    """State of a watched cluster."""

    @property
    def node_scorer(self) -> NodeScorer:
        """Of the policy, about the cluster as it is now."""

    @property
    def age(self) -> float:
        """Return the seconds since the state was last known to be current."""

    @property
    def node_count(self) -> int:
        """Return the number of nodes listed so far."""

    def waiting(self, raw: msgspec.Raw) -> CachedPod | None:
        """Return the pod of this JSON if it waits in the cluster in exactly this form."""

    def query(self, pod: Pod, waiting: CachedPod | None = None) -> AbstractContextManager[tuple[NodeScorer, PodQuery]]:
        """Return a scorer and the query about a pod, in the cluster or not; both are valid inside the block only."""


MakeNodeScorer = Callable[[ClusterState, Pod], NodeScorer]
KnownPod = tuple[Pod, CachedPod | None]
"""A pod, and what the watch knows of it if it waits in the cluster in exactly the form that was sent."""


@dataclass(slots=True)
class ScoreResult:
    """A ranking, or the reason why there is none."""

    nodes: NodeSet
    ranking: Ranking | None
    reason: str = ""

    @property
    def names(self) -> Sequence[str]:
        return self.nodes.names

    def scores(self, best: int = BEST) -> npt.NDArray[np.int64]:
        """Return scores of the nodes, [K] from 0 to `best`, which is at most 100."""
        return neutral(len(self.names), best) if self.ranking is None else self.ranking.scores(best)


class Api:
    """Request handlers of the service."""

    def __init__(
        self,
        config: ServiceConfig,
        policy: Callable[[], str],
        watched: WatchedState | None,
        scorer_for: MakeNodeScorer,
        metrics: ServiceMetrics,
    ) -> None:
        self.config, self.policy, self.watched = config, policy, watched
        self.scorer_for, self.metrics = scorer_for, metrics
        self.sets, self._pods = NodeSets(), Pods()
        self._large = TimeBudget(LARGE_SHARE, LARGE_SAVED_SECONDS)
        self._log = structlog.get_logger("service").bind()  # bound once, since every answer reads it

    # Scores ----------------------------------------------------------------------------------------------------------

    def scores(self, request: ScoreInputs, deadline: Deadline, overloaded: bool = False) -> Scores:
        """Answer `POST /v1/scores`."""
        result = self._result_of(request, deadline, overloaded)
        return Scores(
            policy=self.policy(),
            node_set=self.sets.keep(result.nodes),
            scores=result.scores().tolist(),
            neutral=result.reason,
        )

    def suggest(self, request: ScoreInputs, deadline: Deadline, overloaded: bool = False) -> Suggestion:
        """Answer `POST /v1/suggestions`."""
        result = self._result_of(request, deadline, overloaded)
        ranking = result.ranking
        if ranking is None:
            scores = dict.fromkeys(result.names, NEUTRAL)
            return Suggestion(policy=self.policy(), node="", gpus=[], scores=scores, neutral=result.reason)
        fits = np.isfinite(ranking.raw)
        return Suggestion(
            policy=self.policy(),
            node=ranking.names[ranking.chosen] if ranking.chosen >= 0 else "",
            gpus=list(device_indices(ranking.devices())),
            scores={
                name: score
                for name, score, feasible in zip(result.names, result.scores().tolist(), fits, strict=True)
                if feasible
            },
        )

    def limit(self, request: ScoreInputs, deadline: Deadline, overloaded: bool = False) -> LimitedNodes:
        """Answer `POST /v1/limits`; in a cluster that is sent no latency is measured, so nothing is restricted."""
        watched = self.watched
        _check_sources(request)
        if request.cluster is not None:
            self.check_sent()
            pod = self._pods.decode(request.pod)
            state = cluster_of(request.cluster.nodes, request.cluster.pods)
            return LimitedNodes(node_set=NodeSet(list(state.slots)).version, ignored=list(pod.latency.ignored))
        if watched is None:
            raise InvalidRequestError("no cluster is watched here; send one as cluster")
        nodes = self._nodes_of(request) or watched.node_scorer.all_nodes
        if reason := limits.request_neutral_reason(deadline, overloaded=overloaded):
            return self._no_limit(nodes, reason)
        try:
            pod, _ = self._decode_pod(request.pod)
            if reason := self._stale_reason() or (limits.SHADOW if self.config.shadow else ""):
                return self._no_limit(nodes, reason)
            if not pod.latency.limited:
                return LimitedNodes(node_set=self.sets.keep(nodes), ignored=list(pod.latency.ignored))
            with watched.query(pod) as (node_scorer, query):
                left, outcome = node_scorer.limited(query, nodes)
        except UnusualPodError as error:
            self._log.debug("unusual", why=str(error))
            return self._no_limit(nodes, limits.UNUSUAL)
        kept = None if left is None else np.packbits(left, bitorder="little").tobytes()
        return LimitedNodes(
            node_set=self.sets.keep(nodes), kept=kept, outcome=outcome, ignored=list(pod.latency.ignored)
        )

    def _no_limit(self, nodes: NodeSet, reason: str) -> LimitedNodes:
        self.metrics.neutral(reason)
        return LimitedNodes(node_set=self.sets.keep(nodes), neutral=reason)

    def score(self, request: ScoreRequest, deadline: Deadline, overloaded: bool = False) -> ScoreResponse:
        """Answer `POST /score`; nodes of the watched cluster are taken from the watch, others as they are sent."""
        names = [_name_of(raw, f"nodes[{i}]") for i, raw in enumerate(request.nodes)]
        self._check_names(names)
        # Pods that are sent describe another cluster than the watched one.
        watched = self.watched
        if watched is not None and not request.pods and watched.node_scorer.decider.state.slots.keys() >= set(names):
            result = self._watched_result(lambda: self._decode_pod(request.pod), NodeSet(names), deadline, overloaded)
        else:
            result = self._sent_result(request.pod, request.nodes, request.pods, deadline, overloaded)
        return ScoreResponse(scores=dict(zip(result.names, result.scores().tolist(), strict=True)))

    # kube-scheduler's extender ---------------------------------------------------------------------------------------

    def filter(self, args: ExtenderArgs, deadline: Deadline, overloaded: bool = False) -> ExtenderFilterResult:
        """Answer `POST /filter`; every node passes where scores are neutral."""
        nodes = self._extender_nodes(args)
        refused: dict[str, str] = {}
        if reason := limits.request_neutral_reason(deadline, overloaded=overloaded):
            self._neutral(None, nodes, reason)
        else:
            refused = self._refused(args, nodes)
        result = ExtenderFilterResult(failed_nodes=refused)
        if args.nodes is None:
            result.node_names = [name for name in nodes.names if name not in refused]
        else:
            items = zip(args.nodes.items, nodes.names, strict=True)
            passing = [item for item, name in items if name not in refused]
            result.nodes = NodeListResponse(items=passing, metadata=args.nodes.metadata)
        return result

    def _refused(self, args: ExtenderArgs, nodes: NodeSet) -> dict[str, str]:
        try:
            pod, known = self._extender_pod(args.pod)
            if reason := self._stale_reason() or (limits.SHADOW if self.config.shadow else ""):
                self._neutral(pod, nodes, reason)
                return {}
            with self._extender_scorer(args, pod, known) as (node_scorer, query):
                here, why = node_scorer.decider.state.slots, node_scorer.refused(query)
        except UnusualPodError as error:
            self._unusual(nodes, error)
            return {}
        refused = {name: ", ".join(why[name]) for name in nodes.names if name in why}
        return refused | {name: "node is not known to steersman" for name in nodes.names if name not in here}

    def prioritize(self, args: ExtenderArgs, deadline: Deadline, overloaded: bool = False) -> list[HostPriority]:
        """Answer `POST /prioritize`."""
        nodes = self._extender_nodes(args)
        if self.watched is not None or args.nodes is None:
            result = self._watched_result(lambda: self._extender_pod(args.pod), nodes, deadline, overloaded)
        else:
            result = self._sent_result(args.pod, args.nodes.items, (), deadline, overloaded)
        return list(map(HostPriority, result.names, result.scores(HIGHEST).tolist()))

    def _extender_nodes(self, args: ExtenderArgs) -> NodeSet:
        if (args.nodes is None) == (bytes(args.node_names) == NULL):
            raise InvalidRequestError("Nodes or NodeNames: expected one of them")
        if args.nodes is not None:
            names = [_name_of(raw, f"Nodes.items[{i}]") for i, raw in enumerate(args.nodes.items)]
        else:
            names = _node_names(args.node_names)
        self._check_names(names)
        return NodeSet(names)

    def _decode_pod(self, raw: msgspec.Raw) -> KnownPod:
        """Decode the pod that was sent. Raises UnusualPodError: it is large, and many large pods were sent lately."""
        size = len(memoryview(raw))
        if not LARGEST_POD < size <= LARGEST_OBJECT:
            return self._pods.decode(raw), None
        if self._large.is_spent:
            raise UnusualPodError(f"the pod has {size} bytes, and many such pods were asked about just now")
        with self._large.charged():
            return self._pods.decode(raw), None

    def _extender_pod(self, raw: msgspec.Raw) -> KnownPod:
        """Return the pod; it is not decoded if the watch has the very same object."""
        known = None if self.watched is None else self.watched.waiting(raw)
        return self._decode_pod(raw) if known is None else (known.pod, known)

    @contextmanager
    def _extender_scorer(
        self, args: ExtenderArgs, pod: Pod, cached: CachedPod | None
    ) -> Iterator[tuple[NodeScorer, PodQuery]]:
        if self.watched is not None:
            with self.watched.query(pod, cached) as result:
                yield result
            return
        if args.nodes is None:
            raise InvalidRequestError(
                "nodeNames: no cluster is watched; send Nodes (nodeCacheCapable: false), or watch one"
            )
        node_scorer = self.scorer_for(cluster_of(args.nodes.items, ()), pod)
        yield node_scorer, node_scorer.query(pod)

    # Score results: a ranking, or why scores are neutral --------------------------------------------------------------

    def _result_of(self, request: ScoreInputs, deadline: Deadline, overloaded: bool) -> ScoreResult:
        _check_sources(request)
        if request.cluster is not None:
            sent = request.cluster
            return self._sent_result(request.pod, sent.nodes, sent.pods, deadline, overloaded)
        nodes = self._nodes_of(request)
        return self._watched_result(lambda: self._decode_pod(request.pod), nodes, deadline, overloaded)

    def _nodes_of(self, request: ScoreInputs) -> NodeSet | None:
        nodes = None
        if request.nodes is not None:
            self._check_names(request.nodes)
            nodes = NodeSet(request.nodes)
        elif request.node_set:
            nodes = self.sets.get(request.node_set)
        if request.among is not None:
            if nodes is None:
                raise InvalidRequestError("among: of which nodes? send nodes or nodeSet, too")
            nodes = NodeSubset(nodes, request.among)
        return nodes

    def _watched_result(
        self, pod_of_request: Callable[[], KnownPod], nodes: NodeSet | None, deadline: Deadline, overloaded: bool
    ) -> ScoreResult:
        watched = self.watched
        if watched is None:
            raise InvalidRequestError("no cluster is watched here; send one as cluster")
        node_set = watched.node_scorer.all_nodes if nodes is None else nodes
        if reason := limits.request_neutral_reason(deadline, overloaded=overloaded):
            return self._neutral(None, node_set, reason)
        try:
            pod, known = pod_of_request()
        except UnusualPodError as error:
            return self._unusual(node_set, error)

        def ask() -> Ranking:
            with watched.query(pod, known) as (node_scorer, query):
                ranking = node_scorer.ask(query, node_set)
                # Provisional numbers of the pod are taken back at the end of the block, so its devices are computed
                # before.
                return ranking if node_scorer is watched.node_scorer else ranking.settled()

        return self._result(pod, node_set, ask, deadline)

    def _sent_result(
        self,
        raw: msgspec.Raw,
        nodes: Sequence[msgspec.Raw],
        pods: Sequence[msgspec.Raw],
        deadline: Deadline,
        overloaded: bool,
    ) -> ScoreResult:
        self.check_sent()
        if reason := limits.request_neutral_reason(deadline, overloaded=overloaded):
            names = [_name_of(each, f"nodes[{i}]") for i, each in enumerate(nodes)]
            _check_names(names)
            return self._neutral(None, NodeSet(names), reason)
        pod, state = self._pods.decode(raw), cluster_of(nodes, pods)
        node_set = NodeSet(list(state.slots))

        def ask() -> Ranking:
            node_scorer = self.scorer_for(state, pod)
            return node_scorer.ask(node_scorer.query(pod), node_set)

        return self._result(pod, node_set, ask, deadline, is_sent=True)

    def _check_names(self, names: Sequence[str]) -> None:
        # 0 nodes: nothing is listed yet, and the request is refused for that reason later.
        if self.watched is not None and (count := self.watched.node_count):
            most = NAMES_FOR_EACH_NODE * count + NAMES_BEYOND
            if len(names) > most:
                raise InvalidRequestError(
                    f"nodes: there are {len(names)} names; expected at most {most} for this cluster"
                )
        _check_names(names)

    @property
    def takes_sent(self) -> bool:
        """Return whether requests may bring clusters."""
        return self.watched is None or self.config.allow_sent_clusters

    def check_sent(self) -> None:
        """Raise RefusedRequestError: requests may not bring clusters."""
        if not self.takes_sent:
            raise RefusedRequestError(
                "a cluster is watched here, so requests may bring none of their own; allowSentClusters lets them"
            )

    def _result(
        self, pod: Pod, nodes: NodeSet, ask: Callable[[], Ranking], deadline: Deadline, *, is_sent: bool = False
    ) -> ScoreResult:
        if reason := self._stale_reason(is_sent=is_sent) or limits.request_neutral_reason(deadline, overloaded=False):
            return self._neutral(pod, nodes, reason)
        try:
            ranking = ask()
        except UnusualPodError as error:
            return self._unusual(nodes, error)
        # Not a failure of the policy, which the next clause counts.
        except RefusedRequestError:
            raise
        except SteersmanError as error:
            self._log.error("no scores", pod=_key(pod), error=str(error))
            return self._neutral(pod, nodes, limits.POLICY)
        # Whoever asked has given up by now, so these scores will not decide, and are not counted as a choice.
        if deadline.passed:
            return self._neutral(pod, nodes, limits.DEADLINE)
        node = nodes.names[ranking.chosen] if ranking.chosen >= 0 else ""
        if self.config.shadow:
            scores = dict(zip(ranking.names, ranking.scores().tolist(), strict=True))
            self._log.info("shadow", pod=_key(pod), node=node, policy=self.policy(), scores=scores)
            return self._neutral(pod, nodes, limits.SHADOW)
        self._log.debug("scored", pod=_key(pod), node=node, nodes=len(nodes.names))
        self.metrics.scored("" if is_sent else _key(pod), node)
        return ScoreResult(nodes, ranking)

    def _stale_reason(self, *, is_sent: bool = False) -> str:
        watched = None if is_sent else self.watched
        return limits.STALE if watched is not None and watched.age > self.config.stale_seconds else ""

    def _neutral(self, pod: Pod | None, nodes: NodeSet, reason: str) -> ScoreResult:
        self._log.debug("neutral", pod="" if pod is None else _key(pod), reason=reason)
        self.metrics.neutral(reason)
        return ScoreResult(nodes, None, reason)

    def _unusual(self, nodes: NodeSet, error: UnusualPodError) -> ScoreResult:
        self._log.debug("unusual", why=str(error))
        return self._neutral(None, nodes, limits.UNUSUAL)


def _check_sources(request: ScoreInputs) -> None:
    if sum((request.nodes is not None, bool(request.node_set), request.cluster is not None)) > 1:
        raise InvalidRequestError("nodes, nodeSet and cluster: one of them says which nodes are meant")
    if request.cluster is not None and request.among is not None:
        raise InvalidRequestError("among: of a cluster that is sent, all nodes are meant; leave it out")


def _key(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _node_names(raw: msgspec.Raw) -> list[str]:
    try:
        return msgspec.json.decode(raw, type=list[str])
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"NodeNames: {error}") from None


def _name_of(raw: msgspec.Raw, where: str) -> str:
    try:
        return named_object(raw).metadata.name
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"{where}: {error}") from None


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise InvalidRequestError("nodes: expected at least one")
    if len(set(names)) < len(names):
        ((twice, _),) = Counter(names).most_common(1)
        raise InvalidRequestError(f"nodes: {twice!r} is there twice")
