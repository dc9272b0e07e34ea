"""Policy whose decisions come from an agent that learns from them, and from a fallback where there is no answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from steersman.cluster.pod_query import PodQuery
from steersman.live.scheduler.agent_link import AgentLink, DecisionOutcome, Question
from steersman.objectives import summary
from steersman.objectives.registry import WeightedObjectives
from steersman.policies.base import Candidates, Floats, Need, Policy, Scorer, ScoringContext, default_member
from steersman.policies.decision.decider import Decider
from steersman.policies.decision.live_core import ClusterView
from steersman.policies.features import View
from steersman.policies.live_observations import LiveObservations, TelemetryObservations
from steersman.policies.network_policy import needs_of_view
from steersman.policies.node_metrics import Telemetry
from steersman.prometheus.families import counter_family

NO_SLOT = -1
NO_OUTCOME = DecisionOutcome(NO_SLOT, np.zeros(summary.COLUMNS), np.zeros(summary.COLUMNS), 0.0)
"""Outcome of the first question if its pod was deleted."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Settings of a learning agent."""

    name: str  # name of its policy in results
    view: View  # the view that it observes
    objective: WeightedObjectives  # what it learns
    link: AgentLink | None  # connection to it; None: it only observes, and the fallback decides


class PendingTransition:
    """The agent's last question: its answer, and what came of it, which the agent is told with the next question."""

    def __init__(self) -> None:
        # Slot that the agent chose for the pod that is decided next; None: there is no answer
        self.answer: int | None = None
        self.has_ended = False  # whether all pods of the scheduler have gone since the last decision
        self._waiting, self._time = 0, 0.0
        self._was_asked = self._is_open = False
        self._outcome = NO_OUTCOME

    def clear(self) -> None:
        """Forget the answer; a pod of the last question that was not placed by now was deleted."""
        if self._is_open:
            self._outcome = replace(self._outcome, slot=NO_SLOT)
        self.answer, self._is_open = None, False

    def asked(self) -> None:
        """Record that the agent is asked now."""
        self._was_asked = self._is_open = True

    def placed(self, outcome: DecisionOutcome, waiting: int) -> None:
        """Record the outcome of the open question, decided now while `waiting` pods waited; do nothing if none is open.

        A late answer leaves later pods unasked; the agent learns from the pod that it was asked about.
        """
        if self._is_open:
            self._outcome, self._is_open, self.has_ended = outcome, False, False
            self._waiting, self._time = waiting, time.monotonic()

    def take(self) -> DecisionOutcome | None:
        """Return what came of the last question, with all that is known now; None before the first.

        If its pod was deleted before it could be placed, nothing is known; the outcome before is returned again, with
        the slot -1, so that nothing is learned from it.
        """
        if not self._was_asked:
            return None
        done = self._outcome
        after = done.after.copy()
        # How long the decision's state lasts is known only now; waiting pods are counted as of the decision.
        after[summary.POD_SECONDS_WAITED] = self._waiting * (time.monotonic() - self._time)
        return DecisionOutcome(done.slot, done.before, after, done.reward, self.has_ended)


@dataclass(frozen=True, eq=False, slots=True)
class AgentPolicy(Policy):
    """Decisions of an agent; GPU devices are chosen by the best-fit rule, as for any network."""

    name: str  # its name in results
    view: View  # the view that the agent observes
    objective: WeightedObjectives  # what it learns
    fallback: Policy  # policy that decides where the agent does not answer, and that it may explore by
    link: AgentLink | None  # see `AgentSettings`
    transition: PendingTransition  # its last question; outlives deciders
    telemetry: Telemetry | None = None  # the nodes' metrics for the fallback

    @property
    def needs(self) -> frozenset[Need]:
        """See `Policy`; what the agent observes, and the leftover tables of the fallback."""
        return frozenset({Need.PEERS}) | needs_of_view(self.view) | (self.fallback.needs & {Need.LEFTOVER_TABLES})

    def scorer(self, context: ScoringContext) -> Scorer:
        """Return a scorer that asks the agent, see `Policy`."""
        return AgentScorer(self, context)


class AgentScorer(Scorer):
    """Ask the agent where a pod goes, then choose by its answer, and keep what it needs to learn from that.

    Args:
        context: the cluster.
    """

    def __init__(self, policy: AgentPolicy, context: ScoringContext) -> None:
        self._policy, self._context = policy, context
        self._observations = context.observations(policy.view)
        self._fallback: Decider | None = None

    def scores(self, query: PodQuery, nodes: Candidates) -> Floats:
        """Return 1 for the chosen node and 0 for other feasible ones, see `Scorer`: an agent's choice has no scores."""
        scores = np.where(nodes.feasible, 0.0, -np.inf)
        scores[self.choose(query, nodes)] = 1.0
        return scores

    @property
    def asks_first(self) -> bool:
        return self._policy.link is not None

    @property
    def answers_once(self) -> bool:
        return True

    async def ask(self, query: PodQuery, nodes: Candidates) -> None:
        """Ask the agent about a pod, and keep its answer for `choose`, see `Scorer`."""
        policy, link = self._policy, self._policy.link
        transition = policy.transition
        transition.clear()
        if link is None or not link.is_free_or_count():
            return
        fallback = self._choose_by_fallback(query, nodes) if link.asks_fallback else -1
        question = Question(self.observe(query, nodes), fallback, transition.take())
        transition.asked()
        transition.answer = await link.ask(question)

    def choose(self, query: PodQuery, nodes: Candidates) -> int:
        """Return the agent's answer to `ask`, once; the fallback's choice where it is none of the feasible slots."""
        transition, link = self._policy.transition, self._policy.link
        slot, transition.answer = transition.answer, None
        is_feasible = slot is not None and 0 <= slot < len(nodes.feasible) and bool(nodes.feasible[slot])
        if slot is not None and link is not None:
            link.count_answer(is_feasible=is_feasible)
        if slot is None or not is_feasible:
            slot = self._choose_by_fallback(query, nodes)
        self._observations.observe(query, nodes)  # the cluster may have changed since the question
        transition.placed(self.outcome(query, nodes, slot), nodes.waiting)
        return slot

    def observe(self, query: PodQuery, nodes: Candidates) -> dict[str, npt.NDArray[Any]]:
        """Return the parts of the observation of a pod by name."""
        seen, groups = self._observations.observe(query, nodes)
        parts = {"nodes": seen.nodes, "pod": seen.pod, "context": seen.context, "mask": seen.mask, "groups": groups}
        return {name: np.array(part) for name, part in parts.items()}

    def outcome(self, query: PodQuery, nodes: Candidates, slot: int) -> DecisionOutcome:
        """Return what comes of the placement on a slot of the pod that was last observed."""
        observations = self._observations
        if isinstance(observations, TelemetryObservations):
            after, reward = observations.outcome(query, nodes, slot, self._policy.objective)
            return DecisionOutcome(slot, after, after, reward)
        assert isinstance(observations, LiveObservations)
        before, after = observations.outcome(query, nodes, slot)
        return DecisionOutcome(slot, before, after)

    def _choose_by_fallback(self, query: PodQuery, nodes: Candidates) -> int:
        """Return the fallback's choice among the feasible slots, of which there is at least one."""
        context = self._context
        if self._fallback is None:
            self._fallback = Decider(
                ClusterView(
                    context.state,
                    profile=context.typical_pods,
                    selectors=lambda: context.selectors,
                    telemetry=self._policy.telemetry,
                ),
                self._policy.fallback,
            )
        for slot in range(len(context.state.nodes)):  # it is told of no changes in between, so all slots are marked
            self._fallback.changed(slot)
        self._fallback.waiting = nodes.waiting
        choice = self._fallback.choose_among(query.within(nodes.feasible))
        return int(np.argmax(nodes.feasible)) if choice is None else choice.slot


def agent_policy(settings: AgentSettings, fallback: Policy, telemetry: Telemetry | None) -> AgentPolicy:
    """Return the policy of an agent. `fallback`: policy where it does not answer."""
    return AgentPolicy(
        name=settings.name,
        view=settings.view,
        objective=settings.objective,
        fallback=default_member(fallback),
        link=settings.link,
        transition=PendingTransition(),
        telemetry=telemetry,
    )


class AgentMetrics(Collector):
    """Collector of an agent's metrics."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link

    def collect(self) -> Iterator[Metric]:
        yield counter_family(
            "steersman_agent_questions",
            "Decisions by what the learning agent did: answered; infeasible (it answered with a node that the pod does "
            "not fit on, or no longer), late, absent (not ready, still busy or ended), where the fallback decided.",
            "result",
            self._link.results,
        )
