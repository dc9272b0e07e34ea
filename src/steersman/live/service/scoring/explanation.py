"""Answer `POST /v1/explain`: why a node would be chosen, and why others would not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from steersman.cluster.constraints.reasons import counted, other_gpus
from steersman.cluster.model import Pod
from steersman.cluster.pod_query import OwnerPods, PodQuery
from steersman.cluster.provisional import with_nominated
from steersman.cluster.state import ClusterState
from steersman.live.service.messages import Explanation, FeatureContribution, PreemptedPods, RunnerUp, ScoreInputs
from steersman.live.service.scoring.node_scorer import InvalidRequestError, NodeScorer, Pods, cluster_of, running_pod
from steersman.live.service.scoring.unknown_pods import TimeBudget, UnusualPodError
from steersman.policies.base import Contribution, Policy, renamed
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.decision.selection import NodeRule
from steersman.policies.kube_scheduler.preemption import ClusterPods, preempt
from steersman.policies.kube_scheduler.spreading import scheduled_by
from steersman.policies.node_metrics import Telemetry
from steersman.simulation.run import Simulator
from steersman.workloads.profile import typical_pods
from steersman.workloads.workload import Workload

if TYPE_CHECKING:
    from steersman.live.service.api import MakeNodeScorer, WatchedState

RUNNERS_UP = 5
EXPLAIN_SHARE, EXPLAIN_SAVED_SECONDS = 0.03, 1.0
"""Share of the event loop's time for explanations, which score all nodes several times; seconds saved up at most."""


class Explainer:
    """Request handler of explanations."""

    def __init__(
        self,
        policy: Callable[[], str],
        choice: Callable[[], tuple[str, str]],
        watched: WatchedState | None,
        scorer_for: MakeNodeScorer,
        check_sent: Callable[[], None],
    ) -> None:
        self.policy, self.choice, self.watched = policy, choice, watched
        self.scorer_for, self.check_sent = scorer_for, check_sent
        self._time = TimeBudget(EXPLAIN_SHARE, EXPLAIN_SAVED_SECONDS)

    def explain(self, request: ScoreInputs) -> Explanation:
        """Answer `POST /v1/explain` over all nodes of the cluster."""
        if request.nodes is not None or request.node_set or request.among is not None:
            raise InvalidRequestError("nodes: an explanation is about all nodes; leave it out")
        if self._time.is_spent:
            raise UnusualPodError("many explanations were asked for just now; try again")
        with self._time.charged():
            return self._explain(request)

    def _explain(self, request: ScoreInputs) -> Explanation:
        if request.cluster is not None:
            self.check_sent()
            pod = Pods().decode(request.pod)
            node_scorer = self.scorer_for(cluster_of(request.cluster.nodes, request.cluster.pods), pod)
            result = explanation(self.policy(), node_scorer, node_scorer.query(pod))
        elif self.watched is not None:
            pod = Pods().decode(request.pod)
            with self.watched.query(pod) as (node_scorer, query):
                result = explanation(self.policy(), node_scorer, query)
        else:
            raise InvalidRequestError("no cluster is watched here; send one as cluster")
        result.member, result.choice = self.choice()
        result.not_scheduled = why_not_scheduled(pod)
        return result


def explain_pod(policy: Policy, workload: Workload, number: int, telemetry: Telemetry | None = None) -> Explanation:
    """Explain a policy's choice for a pod of a workload, whose other pods are where they say they run."""
    workload = scheduled_by(workload, policy.selection.kube)
    pod = workload.pods[number]
    others = [each for i, each in enumerate(workload.pods) if i != number]
    return explain_placed(policy, workload, pod, others, workload.pods, telemetry)


def explain_placed(
    policy: Policy,  # the policy; of a portfolio the member that does best on this cluster, empty, with such pods
    workload: Workload,
    pod: Pod,
    others: Sequence[Pod],  # pods that run on the node that they name, or wait
    typical: Sequence[Pod] | None = None,  # pods that give the workload profile; None: the workload's demand
    telemetry: Telemetry | None = None,  # the nodes' metrics; None without telemetry
) -> Explanation:
    """Explain a policy's choice for a pod beside other pods."""
    member = choice = ""
    if policy.members:
        chosen = Simulator(workload).member(policy)
        member, choice, policy = chosen.policy.name, chosen.evidence, renamed(chosen.policy, policy.name)
    state = ClusterState(workload.nodes)
    running = [each for each in others if each.constraints.node_name in state.slots]
    state.place_running([running_pod(state, each) for each in running])
    owner = pod.namespace, pod.owner
    names = [each.constraints.node_name for each in others if pod.owner and (each.namespace, each.owner) == owner]
    on_nodes = Counter(state.slots[name] for name in names if name in state.slots)
    siblings = OwnerPods(on_nodes, 1 + len(names) - on_nodes.total())
    profile = typical_pods([workload.pods[i] for i in workload.demand()] if typical is None else typical)
    node_scorer = NodeScorer(
        Decider(ClusterView(state, profile=profile, selectors=lambda: workload.services, telemetry=telemetry), policy)
    )
    query = replace(node_scorer.query(pod.unbound()), owner_pods=siblings)
    waiting = [each for each in others if not each.constraints.node_name]
    with with_nominated(state, waiting, pod) as nominated:
        if nominated:
            query = query.within(state.mask(query.class_id, query.labels_id))
        refused = counted(state, query.class_id, query.labels_id)
    result = explanation(policy.name, node_scorer, query)
    result.member, result.choice, result.refused = member, choice, refused
    result.not_scheduled = why_not_scheduled(pod)
    if not result.node and any(each.priority < pod.priority for each in running):
        there = ClusterPods(running, waiting, workload.budgets)
        kube, decider = policy.selection.kube, node_scorer.decider.live
        found = preempt(state, lambda: decider.decider, there, pod.unbound(), kube)
        result.preemption = found.sentence(pod)
        result.preempted = [
            PreemptedPods(
                node=each.node,
                pods=[f"{victim.namespace}/{victim.name}" for victim in each.victims],
                violations=each.violations,
            )
            for each in found.choices
        ]
    return result


def why_not_scheduled(pod: Pod) -> str:
    """Return why no scheduler that asks a policy here places a pod now, "" if it may be placed."""
    if pod.terminating:
        return "it is being deleted"
    if pod.constraints.node_name:
        return f"it is bound to {pod.constraints.node_name} already"
    if pod.gated:
        return "it has scheduling gates, and no scheduler looks at it before they are removed"
    return f"its schedulerName is {pod.other_scheduler}, and that scheduler places it" if pod.other_scheduler else ""


def explanation(policy: str, node_scorer: NodeScorer, query: PodQuery) -> Explanation:
    ranking, state = node_scorer.ask(query), node_scorer.decider.state
    explanation = Explanation(
        policy=policy,
        node="",
        score=0.0,
        runners_up=[],
        features=[],
        refused=counted(state, query.class_id, query.labels_id),
        other_gpus=other_gpus(state, query.class_id),
        nodes=len(state.slots),
    )
    if ranking.chosen < 0:
        return explanation
    raw = ranking.raw
    fits = np.isfinite(raw)
    worst, best = float(raw[fits].min()), float(raw[fits].max())

    def points(difference: float) -> float:
        return 100.0 * difference / (best - worst) if best > worst else 0.0

    def place_of(score: float) -> float:
        return points(score - worst) if best > worst else 100.0

    explanation.node, explanation.score = ranking.names[ranking.chosen], float(raw[ranking.chosen])
    explanation.points, explanation.spread = place_of(explanation.score), best - worst
    explanation.equal = int((raw[fits] == explanation.score).sum()) - 1
    explanation.decided_by = _decided_by(node_scorer.decider.policy, explanation.equal, others=int(fits.sum()) - 1)
    order = [int(i) for i in np.argsort(-raw, kind="stable") if fits[i] and i != ranking.chosen]
    explanation.runners_up = [
        RunnerUp(node=ranking.names[i], score=float(raw[i]), points=place_of(float(raw[i]))) for i in order[:RUNNERS_UP]
    ]
    different = next((i for i in order if raw[i] != explanation.score), None)
    if different is not None:
        explanation.compared_with = ranking.names[different]
        slot, other = state.slots[explanation.node], state.slots[explanation.compared_with]
        explanation.features = [
            _feature(each, points(each.contribution))
            for each in node_scorer.decider.contributions(query, slot, other)
            if each.contribution
        ]
    return explanation


def _feature(part: Contribution, points: float) -> FeatureContribution:
    return FeatureContribution(
        name=part.name, value=part.value, other=part.other, contribution=part.contribution, points=points
    )


def _decided_by(policy: Policy, equal: int, others: int) -> str:
    if not others:
        return "it fits on no other node"
    selection = policy.selection
    return selection.tie_rule if equal or selection.node == NodeRule.RANDOM else "the score"
