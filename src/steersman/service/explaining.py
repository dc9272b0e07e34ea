"""`POST /v1/explain`: why a node would be chosen, and why others would not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from steersman.cluster.explaining import counted
from steersman.cluster.latency import LatencyLimits
from steersman.cluster.state import ClusterState
from steersman.policies.base import Policy
from steersman.policies.contributions import Contribution
from steersman.policies.decider import Decider
from steersman.service.budget import TimeBudget
from steersman.service.messages import Explanation, Feature, Question, RunnerUp
from steersman.service.opinions import BadQuestion, Opinions, Pods, cluster_of, place
from steersman.service.unknown_pods import UnusualPod
from steersman.simulation.comparison import choose_member
from steersman.workloads.mix import typical_pods
from steersman.workloads.workload import Workload

if TYPE_CHECKING:
    from steersman.service.api import MakeOpinions, Watched

RUNNERS_UP = 5
EXPLAIN_SHARE, EXPLAIN_SAVED_SECONDS = 0.03, 1.0
"""Share of the event loop's time for explanations: they are for people, and each looks at all nodes in many ways."""


class Explainer:
    """Explains.

    Args:
        policy: the name of the one that decides now.
        member: of a portfolio, which one decides now; else "".
        watched: the cluster, None: every question brings one.
        opinions_of: the policy's opinions about another cluster, for a pod.
        check_sent: raises RefusedQuestion where questions may not bring a cluster.
    """

    def __init__(
        self,
        policy: Callable[[], str],
        member: Callable[[], str],
        watched: Watched | None,
        opinions_of: MakeOpinions,
        check_sent: Callable[[], None],
    ) -> None:
        self.policy, self.member, self.watched = policy, member, watched
        self.opinions_of, self.check_sent = opinions_of, check_sent
        self._time = TimeBudget(EXPLAIN_SHARE, EXPLAIN_SAVED_SECONDS)

    def explain(self, question: Question) -> Explanation:
        """`POST /v1/explain`; all nodes of the cluster are looked at.

        Raises:
            BadQuestion: the question makes no sense.
            RefusedQuestion: it brings a cluster, which is not allowed here.
            UnusualPod: there were so many questions that there is no time for this one.
            SteersmanError: the policy failed.
        """
        if question.nodes is not None or question.node_set or question.among is not None:
            raise BadQuestion("nodes: an explanation is about all nodes; leave it out")
        if self._time.is_spent:
            raise UnusualPod("many explanations were asked for just now; try again")
        with self._time.charged():
            return self._explain(question)

    def _explain(self, question: Question) -> Explanation:
        if question.cluster is not None:
            self.check_sent()
            pod = Pods().decode(question.pod)
            opinions = self.opinions_of(cluster_of(question.cluster.nodes, question.cluster.pods), pod)
            found = explanation(self.policy(), opinions, opinions.number(pod), {}, pod.latency)
        elif self.watched is not None:
            pod = Pods().decode(question.pod)
            with self.watched.numbered(pod) as (opinions, numbers):
                peers = dict(self.watched.peers(pod))
                found = explanation(self.policy(), opinions, numbers, peers, pod.latency)
        else:
            raise BadQuestion("no cluster is watched here; send one as cluster")
        found.member = self.member()
        return found


def explain_pod(policy: Policy, workload: Workload, number: int) -> Explanation:
    """What a policy says about a pod of a workload, whose other pods are where they say they run.

    Args:
        policy: who decides; of a portfolio the member that `policy prepare` takes: the one that does best on this
            cluster, empty, with such pods.
        workload: the cluster; what is typical of its pods is the mix.
        number: of the pod.

    Raises:
        SteersmanError: the policy failed.
    """
    member = ""
    if policy.members:
        chosen = choose_member(policy, workload)
        member, policy = chosen.name, chosen.renamed(policy.name)
    state = ClusterState(workload.nodes)
    pod, there = workload.pods[number], Counter[int]()
    for i, each in enumerate(workload.pods):
        if i == number or each.constraints.node_name not in state.slots:
            continue
        slot = place(state, each)
        if each.owner and (each.namespace, each.owner) == (pod.namespace, pod.owner):
            there[slot] += 1
    opinions = Opinions(Decider(state, policy, mix=typical_pods(workload.pods), services=lambda: workload.services))
    found = explanation(policy.name, opinions, opinions.number(pod.unbound()), dict(there), pod.latency)
    found.member = member
    return found


def explanation(
    policy: str, opinions: Opinions, numbers: tuple[int, int], peers: dict[int, int], limits: LatencyLimits
) -> Explanation:
    """What a policy says about a pod, whose class and labels have these numbers."""
    ranking = opinions.ask(*numbers, None, lambda: peers, limits)
    state, (c, labels) = opinions.decider.state, numbers
    made = Explanation(
        policy=policy,
        node="",
        score=0.0,
        runners_up=[],
        features=[],
        refused=counted(state, c, labels),
        nodes=len(state.slots),
    )
    if ranking.chosen < 0:
        return made
    raw = ranking.raw
    fits = np.isfinite(raw)
    worst, best = float(raw[fits].min()), float(raw[fits].max())

    def points(difference: float) -> float:
        return 100.0 * difference / (best - worst) if best > worst else 0.0

    def place_of(score: float) -> float:
        return points(score - worst) if best > worst else 100.0

    made.node, made.score = ranking.names[ranking.chosen], float(raw[ranking.chosen])
    made.points, made.spread = place_of(made.score), best - worst
    made.equal = int((raw[fits] == made.score).sum()) - 1
    made.decided_by = _decided_by(opinions.decider.policy, made.equal, others=int(fits.sum()) - 1)
    order = [int(i) for i in np.argsort(-raw, kind="stable") if fits[i] and i != ranking.chosen]
    made.runners_up = [
        RunnerUp(node=ranking.names[i], score=float(raw[i]), points=place_of(float(raw[i]))) for i in order[:RUNNERS_UP]
    ]
    different = next((i for i in order if raw[i] != made.score), None)
    if different is not None:
        made.compared_with = ranking.names[different]
        slot, other = state.slots[made.node], state.slots[made.compared_with]
        made.features = [
            _feature(each, points(each.contribution))
            for each in opinions.decider.contributions(c, labels, peers, slot, other, limits)
            if each.contribution
        ]
    return made


def _feature(part: Contribution, points: float) -> Feature:
    return Feature(name=part.name, value=part.value, other=part.other, contribution=part.contribution, points=points)


def _decided_by(policy: Policy, equal: int, others: int) -> str:
    """What decided, where so many of the other nodes that a pod fits on have an equal score."""
    if not others:
        return "it fits on no other node"
    return policy.tie_rule if equal or policy.scores_nothing else "the score"
