"""`POST /v1/explain`: why a node would be chosen, and why others would not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from steersman.cluster.explaining import counted
from steersman.cluster.latency import LatencyLimits
from steersman.cluster.state import ClusterState
from steersman.policies.decider import Decider
from steersman.policies.explanation import contributions
from steersman.policies.policy import PortfolioPolicy
from steersman.policies.registry import AnyPolicy
from steersman.service.api import Watched
from steersman.service.messages import Explanation, Feature, Question, RunnerUp
from steersman.service.opinions import BadQuestion, Opinions, Pods, cluster_of, place
from steersman.simulation.comparison import choose_member
from steersman.workloads.mix import typical_pods
from steersman.workloads.workload import Workload

RUNNERS_UP = 5


class Explainer:
    """Explains.

    Args:
        policy: the name of the one that decides now.
        member: of a portfolio, which one decides now; else "".
        watched: the cluster, None: every question brings one.
        opinions_of: the policy's opinions about another cluster.
    """

    def __init__(
        self,
        policy: Callable[[], str],
        member: Callable[[], str],
        watched: Watched | None,
        opinions_of: Callable[..., Opinions],
    ) -> None:
        self.policy, self.member, self.watched, self.opinions_of = policy, member, watched, opinions_of

    def explain(self, question: Question) -> Explanation:
        """`POST /v1/explain`; all nodes of the cluster are looked at.

        Raises:
            BadQuestion: the question makes no sense.
            SteersmanError: the policy failed.
        """
        pod = Pods().decode(question.pod)
        if question.nodes is not None or question.node_set or question.among is not None:
            raise BadQuestion("nodes: an explanation is about all nodes; leave it out")
        peers = {}
        if question.cluster is not None:
            opinions = self.opinions_of(cluster_of(question.cluster.nodes, question.cluster.pods))
            numbers = opinions.number(pod)
        elif self.watched is not None:
            numbers = self.watched.number(pod)
            opinions, peers = self.watched.opinions, dict(self.watched.peers(pod))
        else:
            raise BadQuestion("no cluster is watched here; send one as cluster")
        found = explanation(self.policy(), opinions, numbers, peers, pod.latency)
        found.member = self.member()
        return found


def explain_pod(policy: AnyPolicy, workload: Workload, number: int) -> Explanation:
    """What a policy says about a pod of a workload, whose other pods are where they say they run.

    Args:
        policy: who decides; of a portfolio that is the member that does best on this cluster, empty, with such pods.
        workload: the cluster; what is typical of its pods is the mix.
        number: of the pod.

    Raises:
        SteersmanError: the policy failed.
    """
    member = ""
    if isinstance(policy, PortfolioPolicy):
        chosen = choose_member(policy, workload)
        member, policy = chosen.name, replace(chosen, name=policy.name)
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
    made.node, made.score = ranking.names[ranking.chosen], float(ranking.raw[ranking.chosen])
    order = [int(i) for i in np.argsort(-ranking.raw, kind="stable") if np.isfinite(ranking.raw[i])]
    others = [i for i in order if i != ranking.chosen][:RUNNERS_UP]
    made.runners_up = [RunnerUp(node=ranking.names[i], score=float(ranking.raw[i])) for i in others]
    if others:
        slot, other = state.slots[made.node], state.slots[ranking.names[others[0]]]
        made.features = [
            Feature(name=each.name, value=each.value, other=each.other, contribution=each.contribution)
            for each in contributions(opinions.decider, c, labels, peers, slot, other)
            if each.contribution
        ]
    return made
