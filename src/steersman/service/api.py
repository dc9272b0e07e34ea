"""The questions that the service answers, without HTTP: from a message to a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from steersman.service.budget import TimeBudget
from steersman.service.config import Config
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
from steersman.service.opinions import (
    LARGEST_OBJECT,
    LARGEST_POD,
    BadQuestion,
    NodeSet,
    NodeSets,
    Numbers,
    Opinions,
    Part,
    Pods,
    RefusedQuestion,
    cluster_of,
)
from steersman.service.ranking import HIGHEST, NEUTRAL, Ranking, neutral
from steersman.service.unknown_pods import UnusualPod

LARGE_SHARE, LARGE_SAVED_SECONDS = 0.002, 0.25
"""Share of the event loop's time for decoding pods of more than `LARGEST_POD` bytes."""
NAMES_FOR_EACH_NODE, NAMES_BEYOND = 2, 1000
"""So many names may a list have of a watched cluster, in which nodes come and go."""


class Watched(Protocol):
    """A cluster that is watched."""

    @property
    def opinions(self) -> Opinions:
        """Of the policy, about the cluster as it is now."""

    @property
    def age(self) -> float:
        """Seconds since what is known was right."""

    @property
    def node_count(self) -> int:
        """How many nodes there are, as far as they were listed."""

    def waiting(self, raw: msgspec.Raw) -> CachedPod | None:
        """The pod of this JSON if it waits in the cluster, and just as the JSON says."""

    def numbered(self, pod: Pod) -> AbstractContextManager[tuple[Opinions, Numbers]]:
        """Opinions to be asked about a pod, here or not, and its numbers; both hold inside the block alone."""

    def peers(self, pod: Pod) -> Mapping[int, int]:
        """Slot -> how many pods of the pod's owner run there."""


MakeOpinions = Callable[[ClusterState, Pod], Opinions]
Subject = tuple[Pod, Numbers | None]
"""A pod in question, and its numbers where it waits in the watched cluster just as it was sent."""


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
        opinions_of: the policy's opinions about another cluster, for a pod.
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
        self._large = TimeBudget(LARGE_SHARE, LARGE_SAVED_SECONDS)
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
        names = [_name_of(raw, f"nodes[{i}]") for i, raw in enumerate(question.nodes)]
        self._check_names(names)
        if self.watched is not None and not question.pods and self._knows(names):
            opinion = self._watched_opinion(lambda: self._subject(question.pod), NodeSet(names), deadline, overloaded)
        else:
            opinion = self._sent_opinion(question.pod, question.nodes, question.pods, deadline, overloaded)
        return ScoreAnswer(scores=dict(zip(opinion.names, opinion.scores().tolist(), strict=True)))

    # kube-scheduler's extender ---------------------------------------------------------------------------------------

    def filter(self, args: ExtenderArgs, deadline: Deadline, overloaded: bool = False) -> ExtenderFilterResult:
        """`POST /filter`. Where the policy has no say, every node passes."""
        nodes = self._extender_nodes(args)
        refused: dict[str, str] = {}
        if said := admission.refusal(deadline, overloaded=overloaded):
            self._neutral(None, nodes, said)
        else:
            refused = self._refused(args, nodes)
        result = ExtenderFilterResult(failed_nodes=refused)
        if args.nodes is None:
            result.node_names = [name for name in nodes.names if name not in refused]
        else:
            items = zip(args.nodes.items, nodes.names, strict=True)
            kept = [item for item, name in items if name not in refused]
            result.nodes = NodeList(items=kept, metadata=args.nodes.metadata)
        return result

    def _refused(self, args: ExtenderArgs, nodes: NodeSet) -> dict[str, str]:
        """Node -> why the pod may not run there; nothing where the policy has no say."""
        try:
            pod, known = self._extender_subject(args.pod)
            if said := self._excuse(pod) or (admission.SHADOW if self.config.shadow else ""):
                self._neutral(pod, nodes, said)
                return {}
            with self._extender_opinions(args, pod, known) as (opinions, numbers):
                here, why = opinions.decider.state.slots, opinions.refused(*numbers)
        except UnusualPod as error:
            self._unusual(nodes, error)
            return {}
        refused = {name: ", ".join(why[name]) for name in nodes.names if name in why}
        return refused | {name: "node is not known to steersman" for name in nodes.names if name not in here}

    def prioritize(self, args: ExtenderArgs, deadline: Deadline, overloaded: bool = False) -> list[HostPriority]:
        """`POST /prioritize`."""
        nodes = self._extender_nodes(args)
        if self.watched is not None or args.nodes is None:
            opinion = self._watched_opinion(lambda: self._extender_subject(args.pod), nodes, deadline, overloaded)
        else:
            opinion = self._sent_opinion(args.pod, args.nodes.items, (), deadline, overloaded)
        return list(map(HostPriority, opinion.names, opinion.scores(HIGHEST).tolist()))

    def _extender_nodes(self, args: ExtenderArgs) -> NodeSet:
        """The nodes in question. Raises BadQuestion: there are none, or one twice."""
        if (args.nodes is None) == (bytes(args.node_names) == NULL):
            raise BadQuestion("Nodes or NodeNames: one of them is right")
        if args.nodes is not None:
            names = [_name_of(raw, f"Nodes.items[{i}]") for i, raw in enumerate(args.nodes.items)]
        else:
            names = _node_names(args.node_names)
        self._check_names(names)
        return NodeSet(names)

    def _subject(self, raw: msgspec.Raw) -> Subject:
        """The pod as it was sent. Raises UnusualPod: it is large, and many large ones came just now."""
        size = len(memoryview(raw))
        if not LARGEST_POD < size <= LARGEST_OBJECT:
            return self._pods.decode(raw), None
        if self._large.is_spent:
            raise UnusualPod(f"the pod has {size} bytes, and many such pods were asked about just now")
        with self._large.charged():
            return self._pods.decode(raw), None

    def _extender_subject(self, raw: msgspec.Raw) -> Subject:
        """The pod, which need not be decoded if kube-scheduler and we have the same of it from the API."""
        known = None if self.watched is None else self.watched.waiting(raw)
        return self._subject(raw) if known is None else (known.pod, (known.class_id, known.labels_id))

    @contextmanager
    def _extender_opinions(
        self, args: ExtenderArgs, pod: Pod, known: Numbers | None
    ) -> Iterator[tuple[Opinions, Numbers]]:
        if self.watched is not None:
            with self._numbered(self.watched, pod, known) as found:
                yield found
            return
        if args.nodes is None:
            raise BadQuestion("nodeNames: no cluster is watched; send Nodes (nodeCacheCapable: false), or watch one")
        opinions = self.opinions_of(cluster_of(args.nodes.items, ()), pod)
        yield opinions, opinions.number(pod)

    def _numbered(
        self, watched: Watched, pod: Pod, known: Numbers | None
    ) -> AbstractContextManager[tuple[Opinions, Numbers]]:
        return watched.numbered(pod) if known is None else nullcontext((watched.opinions, known))

    # Opinions --------------------------------------------------------------------------------------------------------

    def _opinion_of(self, question: Question, deadline: Deadline, overloaded: bool) -> Opinion:
        if sum((question.nodes is not None, bool(question.node_set), question.cluster is not None)) > 1:
            raise BadQuestion("nodes, nodeSet and cluster: one of them says which nodes are meant")
        if question.cluster is not None:
            if question.among is not None:
                raise BadQuestion("among: of a cluster that is sent, all nodes are meant; leave it out")
            sent = question.cluster
            return self._sent_opinion(question.pod, sent.nodes, sent.pods, deadline, overloaded)
        nodes = None
        if question.nodes is not None:
            self._check_names(question.nodes)
            nodes = NodeSet(question.nodes)
        elif question.node_set:
            nodes = self.sets.get(question.node_set)
        if question.among is not None:
            if nodes is None:
                raise BadQuestion("among: of which nodes? send nodes or nodeSet, too")
            nodes = Part(nodes, question.among)
        return self._watched_opinion(lambda: self._subject(question.pod), nodes, deadline, overloaded)

    def _watched_opinion(
        self, subject: Callable[[], Subject], nodes: NodeSet | None, deadline: Deadline, overloaded: bool
    ) -> Opinion:
        watched = self.watched
        if watched is None:
            raise BadQuestion("no cluster is watched here; send one as cluster")
        asked = watched.opinions.everywhere if nodes is None else nodes
        if said := admission.refusal(deadline, overloaded=overloaded):
            return self._neutral(None, asked, said)
        try:
            pod, known = subject()
        except UnusualPod as error:
            return self._unusual(asked, error)

        def ask() -> Ranking:
            with self._numbered(watched, pod, known) as (opinions, numbers):
                ranking = opinions.ask(*numbers, asked, lambda: watched.peers(pod), pod.latency)
                return ranking if opinions is watched.opinions else ranking.settled()

        return self._opinion(pod, asked, ask, deadline)

    def _sent_opinion(
        self,
        raw: msgspec.Raw,
        nodes: Sequence[msgspec.Raw],
        pods: Sequence[msgspec.Raw],
        deadline: Deadline,
        overloaded: bool,
    ) -> Opinion:
        self.check_sent()
        if said := admission.refusal(deadline, overloaded=overloaded):
            names = [_name_of(each, f"nodes[{i}]") for i, each in enumerate(nodes)]
            _check_names(names)
            return self._neutral(None, NodeSet(names), said)
        pod, state = self._pods.decode(raw), cluster_of(nodes, pods)
        asked = NodeSet(list(state.slots))

        def ask() -> Ranking:
            opinions = self.opinions_of(state, pod)
            return opinions.ask(*opinions.number(pod), asked, limits=pod.latency)

        return self._opinion(pod, asked, ask, deadline, is_sent=True)

    def _check_names(self, names: Sequence[str]) -> None:
        """Raise BadQuestion: there are none, many more than nodes, or one twice."""
        if self.watched is not None and (count := self.watched.node_count):
            most = NAMES_FOR_EACH_NODE * count + NAMES_BEYOND
            if len(names) > most:
                raise BadQuestion(f"nodes: there are {len(names)} names; at most {most} are right for this cluster")
        _check_names(names)

    @property
    def takes_sent(self) -> bool:
        """Return whether questions may bring clusters."""
        return self.watched is None or self.config.allow_sent_clusters

    def check_sent(self) -> None:
        """Raise RefusedQuestion: questions may not bring clusters."""
        if not self.takes_sent:
            raise RefusedQuestion(
                "a cluster is watched here, so questions may bring none of their own; allowSentClusters lets them"
            )

    def _opinion(
        self, pod: Pod, nodes: NodeSet, ask: Callable[[], Ranking], deadline: Deadline, *, is_sent: bool = False
    ) -> Opinion:
        if said := self._excuse(pod, is_sent=is_sent) or admission.refusal(deadline, overloaded=False):
            return self._neutral(pod, nodes, said)
        try:
            ranking = ask()
        except UnusualPod as error:
            return self._unusual(nodes, error)
        except RefusedQuestion:
            raise
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
        self.metrics.scored("" if is_sent else _key(pod), node)
        return Opinion(nodes, ranking)

    def _excuse(self, pod: Pod, *, is_sent: bool = False) -> str:
        age = None if is_sent or self.watched is None else self.watched.age
        return admission.excuse(self.config, pod, age)

    def _neutral(self, pod: Pod | None, nodes: NodeSet, reason: str) -> Opinion:
        self._log.debug("neutral", pod="" if pod is None else _key(pod), reason=reason)
        self.metrics.fell_back(reason)
        return Opinion(nodes, None, reason)

    def _unusual(self, nodes: NodeSet, error: UnusualPod) -> Opinion:
        self._log.debug("unusual", why=str(error))
        return self._neutral(None, nodes, admission.UNUSUAL)

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
