"""The questions that the service answers, without HTTP: from a message to a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from steersman.cluster.model import Pod
from steersman.cluster.state import ClusterState, device_indices
from steersman.errors import SteersmanError
from steersman.kube.cache import CachedPod
from steersman.kube.objects import named_head
from steersman.service import admission
from steersman.service.admission import Deadline
from steersman.service.config import Config
from steersman.service.kernels.extending import HIGHEST
from steersman.service.kernels.ranking import BEST
from steersman.service.messages import (
    NULL,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    NodeList,
    Question,
    ScoreAnswer,
    ScoreQuestion,
    Scores,
    Suggestion,
)
from steersman.service.metrics import Metrics
from steersman.service.opinions import BadQuestion, NodeSet, NodeSets, Opinions, Part, Pods, cluster_of
from steersman.service.ranking import NEUTRAL, Ranking, neutral

Numbers = tuple[int, int]
"""Of a pod's class and labels in a state."""


class Watched(Protocol):
    """A cluster that is watched."""

    @property
    def opinions(self) -> Opinions:
        """Of the policy, about the cluster as it is now."""

    @property
    def age(self) -> float:
        """Seconds since what is known was right."""

    def waiting(self, raw: msgspec.Raw) -> CachedPod | None:
        """The pod of this JSON if it waits in the cluster, and just as the JSON says."""

    def find(self, names: msgspec.Raw) -> NodeSet | None:
        """The nodes of a JSON array of names, if it plainly names different ones that are there."""

    def number(self, pod: Pod) -> Numbers:
        """Of a pod; opinions may be others afterwards."""

    def peers(self, pod: Pod) -> Mapping[int, int]:
        """Slot -> how many pods of the pod's owner run there."""


MakeOpinions = Callable[[ClusterState], Opinions]


@dataclass(slots=True)
class Opinion:
    """A ranking, or why there is none.

    Attributes:
        nodes: in question.
        ranking: None where scores are neutral.
        reason: why they are.
    """

    nodes: NodeSet
    ranking: Ranking | None
    reason: str = ""

    @property
    def names(self) -> Sequence[str]:
        """Of the nodes."""
        return self.nodes.names

    def scores(self, best: int = BEST) -> npt.NDArray[np.int64]:
        """[K] 0 to `best`, which is at most 100."""
        return neutral(len(self.names), best) if self.ranking is None else self.ranking.scores(best)


class Api:
    """Answers.

    Args:
        config: of the service.
        policy: the policy's name, as it is now.
        watched: the cluster, None: every question brings one.
        opinions_of: the policy's opinions about another cluster.
        metrics: are told of every answer.
    """

    def __init__(
        self,
        config: Config,
        policy: Callable[[], str],
        watched: Watched | None,
        opinions_of: MakeOpinions,
        metrics: Metrics,
    ) -> None:
        self.config, self.policy, self.watched, self.opinions_of, self.metrics = (
            config,
            policy,
            watched,
            opinions_of,
            metrics,
        )
        self.sets, self._pods = NodeSets(), Pods()
        self._log = structlog.get_logger("service").bind()  # bound once: it is on the path of every answer

    # Scores ----------------------------------------------------------------------------------------------------------

    def scores(self, question: Question, deadline: Deadline, overloaded: bool = False) -> Scores:
        """`POST /v1/scores`."""
        opinion = self._opinion_of(question, deadline, overloaded)
        return Scores(
            policy=self.policy(),
            node_set=self.sets.keep(opinion.nodes),
            scores=opinion.scores().tolist(),
            neutral=opinion.reason,
        )

    def suggest(self, question: Question, deadline: Deadline, overloaded: bool = False) -> Suggestion:
        """`POST /v1/suggestions`."""
        opinion = self._opinion_of(question, deadline, overloaded)
        ranking = opinion.ranking
        if ranking is None:
            scores = dict.fromkeys(opinion.names, NEUTRAL)
            return Suggestion(policy=self.policy(), node="", gpus=[], scores=scores, neutral=opinion.reason)
        fits = np.isfinite(ranking.raw)
        return Suggestion(
            policy=self.policy(),
            node=ranking.names[ranking.chosen] if ranking.chosen >= 0 else "",
            gpus=list(device_indices(ranking.devices())),
            scores={
                name: score
                for name, score, there in zip(opinion.names, opinion.scores().tolist(), fits, strict=True)
                if there
            },
        )

    def score(self, question: ScoreQuestion, deadline: Deadline, overloaded: bool = False) -> ScoreAnswer:
        """`POST /score`: nodes of the watched cluster are taken as they are there, others as they are sent."""
        pod = self._pods.decode(question.pod)
        names = [_name_of(raw, f"nodes[{i}]") for i, raw in enumerate(question.nodes)]
        _check_names(names)
        if self.watched is not None and not question.pods and self._knows(names):
            opinion = self._watched_opinion(pod, NodeSet(names), deadline, overloaded)
        else:
            opinion = self._sent_opinion(pod, question.nodes, question.pods, deadline, overloaded)
        return ScoreAnswer(scores=dict(zip(opinion.names, opinion.scores().tolist(), strict=True)))

    # kube-scheduler's extender ---------------------------------------------------------------------------------------

    def filter(self, args: ExtenderArgs, deadline: Deadline, overloaded: bool = False) -> ExtenderFilterResult:
        """`POST /filter`. Where the policy has no say, every node passes."""
        pod, known = self._extender_pod(args.pod)
        nodes = self._extender_nodes(args)
        refused: dict[str, str] = {}
        said = self._excuse(pod, overloaded, deadline) or (admission.SHADOW if self.config.shadow else "")
        if said:
            self._neutral(pod, nodes, said)
        else:
            opinions, numbers = self._extender_opinions(args, pod, known)
            here, why = opinions.decider.state.slots, opinions.refused(*numbers)
            refused = {name: ", ".join(why[name]) for name in nodes.names if name in why}
            refused |= {name: "node is not known to steersman" for name in nodes.names if name not in here}
        result = ExtenderFilterResult(failed_nodes=refused)
        if args.nodes is None:
            result.node_names = [name for name in nodes.names if name not in refused]
        else:
            items = zip(args.nodes.items, nodes.names, strict=True)
            kept = [item for item, name in items if name not in refused]
            result.nodes = NodeList(items=kept, metadata=args.nodes.metadata)
        return result

    def prioritize(
        self, args: ExtenderArgs, deadline: Deadline, overloaded: bool = False
    ) -> list[HostPriority] | msgspec.Raw:
        """`POST /prioritize`."""
        pod, known = self._extender_pod(args.pod)
        nodes = self._extender_nodes(args)
        if self.watched is not None or args.nodes is None:
            opinion = self._watched_opinion(pod, nodes, deadline, overloaded, known)
        else:
            opinion = self._sent_opinion(pod, args.nodes.items, (), deadline, overloaded)
        scores = opinion.scores(HIGHEST)
        if self.watched is not None and opinion.ranking is not None:
            answer = self.watched.opinions.priorities(opinion.nodes, scores)
            if answer is not None:
                return answer
        return list(map(HostPriority, opinion.names, scores.tolist()))

    def _extender_nodes(self, args: ExtenderArgs) -> NodeSet:
        """The nodes in question. Raises BadQuestion: there are none, or one twice."""
        if (args.nodes is None) == (bytes(args.node_names) == NULL):
            raise BadQuestion("Nodes or NodeNames: one of them is right")
        if args.nodes is not None:
            names = [_name_of(raw, f"Nodes.items[{i}]") for i, raw in enumerate(args.nodes.items)]
        else:
            found = None if self.watched is None else self.watched.find(args.node_names)
            if found is not None:
                return found
            names = _node_names(args.node_names)
        _check_names(names)
        return NodeSet(names)

    def _extender_pod(self, raw: msgspec.Raw) -> tuple[Pod, Numbers | None]:
        """The pod, and its numbers if kube-scheduler and we have the same of it from the API: it is decoded then."""
        known = None if self.watched is None else self.watched.waiting(raw)
        return (self._pods.decode(raw), None) if known is None else (known.pod, (known.class_id, known.labels_id))

    def _extender_opinions(self, args: ExtenderArgs, pod: Pod, known: Numbers | None) -> tuple[Opinions, Numbers]:
        if self.watched is not None:
            numbers = known or self.watched.number(pod)
            return self.watched.opinions, numbers
        if args.nodes is None:
            raise BadQuestion("nodeNames: no cluster is watched; send Nodes (nodeCacheCapable: false), or watch one")
        opinions = self.opinions_of(cluster_of(args.nodes.items, ()))
        return opinions, opinions.number(pod)

    # Opinions --------------------------------------------------------------------------------------------------------

    def _opinion_of(self, question: Question, deadline: Deadline, overloaded: bool) -> Opinion:
        pod = self._pods.decode(question.pod)
        if sum((question.nodes is not None, bool(question.node_set), question.cluster is not None)) > 1:
            raise BadQuestion("nodes, nodeSet and cluster: one of them says which nodes are meant")
        if question.cluster is not None:
            if question.among is not None:
                raise BadQuestion("among: of a cluster that is sent, all nodes are meant; leave it out")
            return self._sent_opinion(pod, question.cluster.nodes, question.cluster.pods, deadline, overloaded)
        nodes = None
        if question.nodes is not None:
            _check_names(question.nodes)
            nodes = NodeSet(question.nodes)
        elif question.node_set:
            nodes = self.sets.get(question.node_set)
        if question.among is not None:
            if nodes is None:
                raise BadQuestion("among: of which nodes? send nodes or nodeSet, too")
            nodes = Part(nodes, question.among)
        return self._watched_opinion(pod, nodes, deadline, overloaded)

    def _watched_opinion(
        self, pod: Pod, nodes: NodeSet | None, deadline: Deadline, overloaded: bool, known: Numbers | None = None
    ) -> Opinion:
        watched = self.watched
        if watched is None:
            raise BadQuestion("no cluster is watched here; send one as cluster")
        asked = watched.opinions.everywhere if nodes is None else nodes

        def ask() -> Ranking:
            numbers = known or watched.number(pod)
            return watched.opinions.ask(*numbers, asked, lambda: watched.peers(pod), pod.latency)

        return self._opinion(pod, asked, ask, deadline, overloaded)

    def _sent_opinion(
        self,
        pod: Pod,
        nodes: Sequence[msgspec.Raw],
        pods: Sequence[msgspec.Raw],
        deadline: Deadline,
        overloaded: bool,
    ) -> Opinion:
        state = cluster_of(nodes, pods)  # before anything else: what is wrong with it is said in any case
        asked = NodeSet(list(state.slots))

        def ask() -> Ranking:
            opinions = self.opinions_of(state)
            return opinions.ask(*opinions.number(pod), asked, limits=pod.latency)

        return self._opinion(pod, asked, ask, deadline, overloaded, is_sent=True)

    def _opinion(
        self,
        pod: Pod,
        nodes: NodeSet,
        ask: Callable[[], Ranking],
        deadline: Deadline,
        overloaded: bool,
        *,
        is_sent: bool = False,
    ) -> Opinion:
        said = self._excuse(pod, overloaded, deadline, is_sent=is_sent)
        if said:
            return self._neutral(pod, nodes, said)
        try:
            ranking = ask()
        except SteersmanError as error:
            self._log.error("no scores", pod=_key(pod), error=str(error))
            return self._neutral(pod, nodes, admission.POLICY)
        if deadline.passed:
            return self._neutral(pod, nodes, admission.DEADLINE)
        node = nodes.names[ranking.chosen] if ranking.chosen >= 0 else ""
        if self.config.shadow:
            self._log.info("shadow", pod=_key(pod), node=node, policy=self.policy(), scores=_named(ranking))
            return self._neutral(pod, nodes, admission.SHADOW)
        self._log.debug("scored", pod=_key(pod), node=node, nodes=len(nodes.names))
        self.metrics.scored(_key(pod), node)
        return Opinion(nodes, ranking)

    def _excuse(self, pod: Pod, overloaded: bool, deadline: Deadline, *, is_sent: bool = False) -> str:
        if overloaded:
            return admission.OVERLOAD
        if deadline.passed:
            return admission.DEADLINE
        age = None if is_sent or self.watched is None else self.watched.age
        return admission.excuse(self.config, pod, age)

    def _neutral(self, pod: Pod, nodes: NodeSet, reason: str) -> Opinion:
        self._log.debug("neutral", pod=_key(pod), reason=reason)
        self.metrics.fell_back(reason)
        return Opinion(nodes, None, reason)

    def _knows(self, names: Sequence[str]) -> bool:
        assert self.watched is not None
        slots = self.watched.opinions.decider.state.slots
        return all(name in slots for name in names)


def _key(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _named(ranking: Ranking) -> dict[str, int]:
    return dict(zip(ranking.names, ranking.scores().tolist(), strict=True))


def _node_names(raw: msgspec.Raw) -> list[str]:
    try:
        return msgspec.json.decode(raw, type=list[str])
    except msgspec.ValidationError as error:
        raise BadQuestion(f"NodeNames: {error}") from None


def _name_of(raw: msgspec.Raw, where: str) -> str:
    try:
        return named_head(raw).metadata.name
    except msgspec.ValidationError as error:
        raise BadQuestion(f"{where}: {error}") from None


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise BadQuestion("nodes: there is none; one or more are right")
    if len(set(names)) < len(names):
        ((twice, _),) = Counter(names).most_common(1)
        raise BadQuestion(f"nodes: {twice!r} is there twice")
