"""One run: a workload, a policy, a protocol and a seed give a RunResult."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import zip_longest
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.constraints.reasons import unschedulable_message
from steersman.cluster.model import GPU_MILLI
from steersman.cluster.pod_query import PodQuery
from steersman.cluster.provisional import RunningPodArrays, preemption, with_nominated
from steersman.cluster.state import ClusterState, device_indices
from steersman.core.counting import first_names
from steersman.core.errors import SteersmanError
from steersman.core.handles import LOST, NOWHERE, CoreEngine, Standing, Stop
from steersman.objectives.registry import WeightedObjectives
from steersman.objectives.summary import fragmented_milli, summary_of
from steersman.orders.order import AGE
from steersman.orders.run_time_history import RunTimeHistory
from steersman.orders.scores import LAS
from steersman.policies.base import (
    Candidates,
    Need,
    Policy,
    Scorer,
    ScoringContext,
    decided_by,
    default_member,
    renamed,
    with_own_order,
)
from steersman.policies.decision.description import described_view
from steersman.policies.decision.selection import NodeRule
from steersman.policies.features import TELEMETRY, View
from steersman.policies.greedy_forecast import forecast_policy
from steersman.policies.heuristics import heuristic
from steersman.policies.kinds import as_linear, as_portfolio, heuristic_as_linear, stock_tuned
from steersman.policies.kube_scheduler.policy import StockTunedPolicy
from steersman.policies.kube_scheduler.profile import KubeProfile
from steersman.policies.kube_scheduler.spreading import scheduled_by
from steersman.policies.learned_weights import FeatureVariances, empty_variances
from steersman.policies.live_observations import TelemetryObservations
from steersman.policies.node_metrics import NodeMetricsView
from steersman.policies.portfolio_policy import KindLimit, PortfolioPolicy
from steersman.policies.registry import as_policy, resolve
from steersman.policies.user_policy import PolicyProtocol
from steersman.simulation import event_arrays, metrics
from steersman.simulation.arrivals import Schedule, draw, resample, schedule
from steersman.simulation.description import RunDescription, RunObservations, write_state
from steersman.simulation.event_arrays import gpus_taken, recount
from steersman.simulation.kind_losses import KindLosses
from steersman.simulation.pod_kinds import KINDS, kinds_of
from steersman.simulation.prepared_workload import PreparedWorkload
from steersman.simulation.reasons import Reasons
from steersman.simulation.result import Curve, FinalNodes, Metric, Placements, Protocol, RunResult
from steersman.simulation.rewards import DecisionStates, decision_states
from steersman.simulation.selection.choice import FIRST_SEED, MemberChoice, Selection, choice_of, fallback_of, select
from steersman.simulation.selection.fitting import fit_weights
from steersman.simulation.selection.stock_search import SearchOptions, StockSearchOptions, find_profile
from steersman.simulation.waiting import Waits, compared_waits, estimate_metrics, waits_of
from steersman.workloads.profile import ProfileArrays, TypicalPod, coarse
from steersman.workloads.workload import Workload

AS_IT_IS = "as it is"  # name of the recorded placement in results, where policies' names stand
MOST_PREEMPTIONS = 10_000  # refusals of a run about which it is asked whether kube-scheduler would preempt other pods
VARIANCE_SEED, ARRIVALS_BETWEEN_LOOKS = 7, 40
LEAST_LOOKS = 25  # decisions sampled of a run at least: a kind of pods never sampled has no units to move in
FIRST_STEP_EVENTS, MAX_STEP_EVENTS = 8, 20_000
"""Events between two calls of a progress callback (and two chances for Ctrl-C): the first step, and the most."""
STEP_SECONDS = 0.25  # target time of a step, in which no signal is handled; an event takes 3 µs to a second

Progress = Callable[[int, int], None]  # called with the numbers of arrivals handled and of all arrivals


class Simulator(PreparedWorkload):
    """A workload prepared once for many runs, see `PreparedWorkload`."""

    def __init__(
        self, workload: Workload, profile: tuple[TypicalPod, ...] | None = None, past: RunTimeHistory | None = None
    ) -> None:
        super().__init__(workload, profile, past)
        self._given_profile, self._past = profile, past
        self._scheduled: dict[KubeProfile, Simulator] = {}
        self._members: dict[tuple[object, ...] | StockSearchOptions, MemberChoice] = {}

    def scheduled_by(self, policy: Policy) -> Simulator:
        """Return a simulator whose pods have constraints as the policy's profile of kube-scheduler reads them.

        Most policies have none, so that it is the same simulator.
        """
        profile = policy.selection.kube.reading
        if not profile.changes_pods:
            return self
        if profile not in self._scheduled:
            workload = scheduled_by(self.workload, profile)
            self._scheduled[profile] = Simulator(workload, self.profile, self._past)
        return self._scheduled[profile]

    def member(
        self,
        policy: Policy,
        *,
        protocol: Protocol = "inflation",
        ratio: float = 1.3,
        load: float | None = None,
        mean_duration: float | None = None,
        progress: Progress | None = None,
    ) -> MemberChoice:
        """Return the member of a portfolio that short simulations choose here, or kube-scheduler's configuration.

        Any other policy is its own only member. `progress` is called with generations of a search.
        """
        kind = protocol, ratio, load, mean_duration
        if (tuned := stock_tuned(policy)) is not None:
            return self._tuned(tuned, StockSearchOptions(*kind), progress)
        if (portfolio := as_portfolio(policy)) is None:
            return MemberChoice(policy)
        # The seed is not part of the key: every seed of a run has the same member.
        percent = None if portfolio.limit is None else portfolio.limit.percent
        key = portfolio.digest, portfolio.is_fitted, percent, policy.order if protocol == "timed" else AGE, *kind
        if key not in self._members:
            self._members[key] = self.choose(portfolio, SearchOptions(*kind, portfolio.limit), progress)
        return self._members[key]

    def choose(
        self, portfolio: PortfolioPolicy, options: SearchOptions, progress: Progress | None = None
    ) -> MemberChoice:
        """Return the member that short simulations choose, or weights fitted to this cluster if those are better.

        The search starts from the weights of the best member, and plays draws that the choice does not. Without GPUs
        nothing can be fitted. `progress` is called with generations of the search.
        """
        order = portfolio.order if options.protocol == "timed" else AGE
        kind = options.protocol, options.ratio, options.load, options.mean_duration
        candidates = [replace(cast(Any, each), order=order) for each in portfolio.members]
        selection = self.select(candidates, *kind, limit=options.limit)
        choice = choice_of(portfolio.members, selection)
        simulator = self.emptied
        if not (portfolio.is_fitted and simulator.workload.gpu_capacity and any(simulator.workload.gpu_demand)):
            return choice
        leader = as_linear(candidates[selection.leader]) or forecast_policy()
        fitted = fit_weights(simulator, replace(leader, order=order), options, progress)
        pair = candidates[selection.best], fitted
        selection = self.select(pair, *kind, fallback=0, limit=options.limit)
        better = choice_of(pair, selection)
        if selection.best == 0:
            return replace(choice, evidence=f"{choice.evidence}; fitted weights are not clearly better")
        evidence = f"{better.evidence}; before, {choice.evidence}"
        return replace(better, policy=with_own_order(fitted, AGE), evidence=evidence)

    def _tuned(self, policy: StockTunedPolicy, options: StockSearchOptions, progress: Progress | None) -> MemberChoice:
        """Return kube-scheduler with the configuration that a search finds here, unless it is not clearly better."""
        if options not in self._members:
            policies, selection = find_profile(self, policy.today, options, progress)
            named = [policy.today, *(renamed(each, policy.name) for each in policies[1:])]
            choice = choice_of(named, selection)
            summary = policies[selection.best].profile.summary
            self._members[options] = replace(choice, evidence=f"{choice.evidence}; {summary}")
        return self._members[options]

    @cached_property
    def emptied(self) -> Simulator:
        """The simulator that policies are compared with: the nodes without the pods that any scheduler could move.

        Pods come in the order of their names, so that the choice does not depend on who read them. Costs only rank
        policies, so that merged classes are good enough.
        """
        unbound = self.workload.unbound()
        pods = sorted(zip_longest(unbound.pods, unbound.recorded), key=lambda each: (each[0].namespace, each[0].name))
        recorded = tuple(where for _, where in pods) if unbound.recorded else ()
        workload = coarse(replace(unbound, pods=tuple(pod for pod, _ in pods), recorded=recorded))
        return self if workload == self.workload else Simulator(workload, self._given_profile, self._past)

    def select(
        self,
        policies: Sequence[Policy],
        protocol: Protocol = "inflation",  # of the draws
        ratio: float = 1.3,
        load: float | None = None,
        mean_duration: float | None = None,
        *,
        # Index of the policy that is chosen unless another is clearly better; None: the baseline of the limit, else
        # `fgd`, else the first
        fallback: int | None = None,
        limit: KindLimit | None = None,  # what any kind of pod may lose
    ) -> Selection:
        """Compare policies by paired simulations, see `selection.choice.select`; the cost is that of `compared_cost`.

        Where no pod requests GPUs, or no node has any, `inflation` is taken for `arrivals`.
        """
        simulator = self.emptied
        workload = simulator.workload
        if protocol == "inflation" and not (workload.gpu_capacity and any(workload.gpu_demand)):
            protocol = "arrivals"
        losses = None if limit is None else KindLosses(limit.percent, protocol)

        @cache
        def drawn(seed: int) -> Schedule:
            return draw(workload, protocol, seed, ratio, load, mean_duration)

        def play(i: int, seed: int) -> float:
            execution = simulator.play(policies[i], drawn(seed), seed)
            if limit is not None and losses is not None:
                if seed not in losses.baseline:
                    baseline = simulator.play(limit.baseline, drawn(seed), seed)
                    losses.baseline[seed] = baseline.paid_by_kind(protocol)
                losses.add(i, seed, execution.paid_by_kind(protocol))
            return execution.compared_cost(protocol)

        stays = fallback_of(policies, limit) if fallback is None else fallback
        excess = None if losses is None else losses.excess
        arrivals = len(drawn(FIRST_SEED).pods)
        return select(len(policies), play, arrivals, protocol, fallback=stays, excess=excess)

    def part(self, workload: Workload) -> Simulator:
        """Return a simulator of a part of the workload, with the typical pods of the whole."""
        return self if workload is self.workload else Simulator(workload, self.profile, self._past)

    def feature_variances(self) -> FeatureVariances:
        """Return how much features of view `gpu` differ between the nodes that a pod fits on, along a run of FGD."""
        variances = empty_variances()
        plan = resample(self.workload, ratio=1.0, seed=VARIANCE_SEED)
        execution = Execution(self, plan, heuristic_as_linear(heuristic("fgd")), VARIANCE_SEED, record=False)
        between = max(1, min(ARRIVALS_BETWEEN_LOOKS, len(plan.pods) // LEAST_LOOKS))
        for until in range(between, len(plan.pods), between):
            if execution.advance(until) == Stop.DONE:
                break
            execution.engine.add_variances(int(execution.class_id[until]), variances.sums, variances.counts)
        return variances

    def play(self, policy: Policy, plan: Schedule, seed: int) -> Execution:
        """Run a policy on given arrivals to the end."""
        execution = Execution(self, plan, policy, seed, record=False)
        execution.finish(None)
        return execution

    def run(
        self,
        policy: str | Policy | PolicyProtocol,
        *,
        protocol: Protocol = "inflation",
        seed: int = 42,
        ratio: float = 1.3,
        load: float | None = None,
        mean_duration: float | None = None,
        shuffle: bool = True,
        record: bool = False,
        objectives: Sequence[WeightedObjectives] = (),
        progress: Progress | None = None,
    ) -> RunResult:
        """Schedule the workload by a policy and return the result.

        `record` keeps every placement with its reason. `shuffle` False: `inflation` keeps the order of the pods.
        `objectives` are measured: the mean of their reward over the decisions is a metric, its course in the curve.
        """
        asked = as_policy(policy)
        chosen = self.member(asked, protocol=protocol, ratio=ratio, load=load, mean_duration=mean_duration)
        plan = schedule(
            self.workload, protocol, seed=seed, ratio=ratio, load=load, mean_duration=mean_duration, shuffle=shuffle
        )
        # Results bear the portfolio's name, not the member's.
        decides = asked if chosen.policy is asked else decided_by(asked, chosen.policy)
        execution = Execution(self, plan, decides, seed, record, names_preemption=True)
        execution.finish(progress)
        return replace(execution.result(protocol, seed, ratio, objectives), choice=chosen.evidence)

    def as_it_is(self) -> RunResult | None:
        """Return the metrics of the recorded placement as a run without a policy; None if the workload has none.

        Pods that waited are those that failed.
        """
        workload = self.workload
        there = np.array([i for i, where in enumerate(workload.recorded) if where is not None], dtype=np.int64)
        if not len(there):
            return None
        count, nodes = len(there), np.arange(len(workload.nodes))
        # Nodes in the file's order: nothing is decided, so no ties are broken.
        plan = Schedule(there, np.arange(count, dtype=np.float64), np.full(count, np.inf), nodes, False, count)
        # Any policy would do: all arrivals are standing.
        run = Execution(self, plan, resolve("best-fit"), 0, record=False).result("arrivals", 0, 0.0)
        left = np.setdiff1d(np.flatnonzero(~workload.later), there)
        kinds = np.bincount(kinds_of(self._demand[left], self._devices[left]), minlength=len(KINDS)).tolist()
        waiting = {each.name: each.value for each in metrics.kind_metrics(kinds, kinds)} | {"pods_failed": len(left)}
        values = tuple(replace(each, value=float(waiting.get(each.name, each.value))) for each in run.metrics)
        return replace(run, policy=AS_IT_IS, metrics=values)


class Execution:
    """A run in progress."""

    def __init__(
        self,
        simulator: Simulator,  # of the workload
        plan: Schedule,  # the arrivals
        policy: Policy,
        seed: int,  # of random choices
        record: bool,  # whether reasons are noted
        # A run of the same policy that has not advanced, with the same nodes and the same pods standing on them: its
        # state is copied, which is faster than to place the pods again
        begun: Execution | None = None,
        names_preemption: bool = False,  # whether pods are named for which kube-scheduler may preempt others
    ) -> None:
        self.policy = default_member(policy)
        self.simulator = simulator = simulator.scheduled_by(self.policy)
        self.plan, self.recorded, self.prepared = plan, record, self.policy.prepared
        self._state = simulator.state(plan.nodes) if begun is None else begun.state
        names_preemption = names_preemption and len({pod.priority for pod in simulator.workload.pods}) > 1
        self.described = RunDescription(
            simulator, plan, self.policy, self._state, seed, notes_reasons=record or names_preemption
        )
        self.class_id, self.labels_id = self.described.class_id, self.described.labels_id
        self.eligible = self.described.eligible
        if begun is None:
            self.engine = CoreEngine.of(self.described.arrays())
        else:
            self.engine = begun.engine.again(self.described.arrivals())
        # A scorer keeps the state, which therefore must not be another one later.
        is_external = self.policy.selection.node == NodeRule.EXTERNAL
        self._is_shared, self._written = begun is not None, 0
        if begun is not None and is_external:
            self._state, self._is_shared = begun.state.copy(), False
        self._names_preemption, self._checked = names_preemption, 0
        self._preempting: dict[int, str] = {}
        self.reasons = Reasons(self._state)
        self._reason_of: dict[int, int] = {}
        self.scorer = self._scorer(seed) if is_external else None

    @property
    def state(self) -> ClusterState:
        """The cluster as it is now; the same object in every call."""
        changes = self.engine.progress.changes
        if changes != self._written:
            if self._is_shared:
                self._state, self._is_shared = self._state.copy(), False
            write_state(self.engine, self._state)
            self._written = changes
        return self._state

    @property
    def standing(self) -> Standing:
        """How the arrivals stand now."""
        return self.engine.arrivals(len(self.plan.pods))

    @cached_property
    def _without_devices(self) -> npt.NDArray[np.int64]:
        """Return [N] GPU milli that the pods which stay request on each node beyond its devices."""
        excess, first = np.zeros(len(self._state.nodes), dtype=np.int64), slice(self.plan.standing)
        standing = self.standing
        for c, slot, held in zip(self.class_id[first], standing.node[first], standing.devices[first], strict=True):
            excess[slot] += self._state.milli_without_device(int(c), int(slot), int(held))
        return excess

    def _scorer(self, seed: int) -> Scorer:
        simulator, node_metrics = self.simulator, NodeMetricsView(self._state)
        context = ScoringContext(
            self.state,
            None,
            simulator.profile,
            simulator.workload.services,
            node_metrics,
            lambda view: TelemetryObservations(node_metrics) if view == TELEMETRY else self._observations(view),
            seed,
        )
        scorer = self.policy.scorer(context)
        assert scorer is not None
        return scorer

    def _observations(self, view: View) -> RunObservations:
        places, plan = self.simulator.places, self.plan
        leftovers = partial(self.simulator.leftovers_with, self.prepared)
        profile = {"profile.accepts": self.simulator.profile_arrays(self.prepared).accepts}
        self.engine.watch(profile | described_view(view, places, plan.nodes, plan.pods, leftovers))
        return RunObservations(view, self.engine, plan, places)

    def finish(self, progress: Progress | None) -> None:
        until, events, began = 0, FIRST_STEP_EVENTS, time.perf_counter()
        stop = Stop.PAUSED
        while stop != Stop.DONE:
            if stop == Stop.PAUSED:
                if until:
                    events = _next_step(events, time.perf_counter() - began)
                until, began = until + events, time.perf_counter()
                if progress is not None:
                    progress(self.engine.progress.arrived, len(self.plan.pods))
            elif stop == Stop.NEEDS_REASON:
                self._explain()
            else:
                self.answer()
            stop = self.advance(until)
        if progress is not None:
            progress(len(self.plan.pods), len(self.plan.pods))

    def advance(self, until: int) -> Stop:
        """Handle events until `until` are recorded; see `core.handles.CoreEngine.advance`."""
        return self._checked_stop(self.engine.advance(until))

    def advance_to(self, targets: npt.NDArray[np.int64], until: float) -> Stop:
        """Handle events until arrivals have started, or until a time; see `core.handles.CoreEngine.advance_to`."""
        return self._checked_stop(self.engine.advance_to(targets, until))

    def _checked_stop(self, stop: Stop) -> Stop:
        if stop == Stop.INVALID_SCORE:
            raise SteersmanError(f"order {self.policy.order.name!r}: a score is not a number")
        return stop

    def answer(self) -> None:
        """Ask a policy in Python for the best node."""
        assert self.scorer is not None
        arrival = self.engine.question
        owner = int(self.simulator.places.owner[self.plan.pods[arrival]])
        pod = self.simulator.workload.pods[self.plan.pods[arrival]]
        query = PodQuery(int(self.class_id[arrival]), int(self.labels_id[arrival]), owner=owner, pod=pod)
        nodes = Candidates(self.engine.mask(len(self.state.nodes)), self.eligible)
        self.engine.answer(self.scorer.choose(query, nodes))

    def _explain(self) -> None:
        """Note the reason why the pod of the last event was not bound."""
        progress = self.engine.progress
        e = progress.events - 1
        arrival = int(self.engine.events(e)[1][0, event_arrays.ARRIVAL])
        c, labels = int(self.class_id[arrival]), int(self.labels_id[arrival])
        members = int(self.engine.arrivals(1, arrival).members[0])
        preempts = self._preemption(arrival, members)
        if not self.recorded:
            return
        if self.state.mask(c, labels).any() and (text := self._refusal(arrival, members, progress.head)):
            number = self.reasons.text_number(text)
        else:
            number = self.reasons.number(c, labels, progress.changes)
        if preempts:
            number = self.reasons.text_number(f"{self.reasons.texts()[number]} {preempts}")
        # Every pod of a gang has an event, the first one the last of them.
        self._reason_of.update(dict.fromkeys(range(e + 1 - members, e + 1), number))

    def _preemption(self, arrival: int, members: int) -> str:
        """Return the sentence of `preemption` about a pod that was not bound just now, "": no other is preempted."""
        if not self._names_preemption or members != 1 or self._checked >= MOST_PREEMPTIONS:
            return ""
        self._checked += 1
        pod = self.simulator.workload.pods[self.plan.pods[arrival]]
        sentence = preemption(self.state, self.running(), pod)
        if sentence:
            self._preempting[arrival] = pod.name
        return sentence

    def running(self) -> RunningPodArrays:
        """Return the pods that run now."""
        standing = self.standing
        columns = (self.class_id, self.labels_id, standing.node, standing.devices, self.described.priority)
        return RunningPodArrays(*(column[standing.runs] for column in columns))

    def _refusal(self, arrival: int, members: int, head: int) -> str:
        """Return why a pod that fits on a node, or its gang, was not bound; "": not known."""
        class_id, labels_id = int(self.class_id[arrival]), int(self.labels_id[arrival])
        workload, state = self.simulator.workload, self.state
        if len(nominated := self.described.nominated):
            pods = [workload.pods[i] for i in self.plan.pods[nominated[:, 0]]]
            with with_nominated(state, pods, workload.pods[self.plan.pods[arrival]]):
                if not state.mask(class_id, labels_id).any():
                    return unschedulable_message(state, class_id, labels_id)
        # What a gang has started without are gangs of one.
        is_whole = members == self.plan.members[arrival]
        least = int(self.plan.least[arrival]) if is_whole else 1
        if least > members:
            return f"the gang has {members} of the {least} pods that must start together"
        gang = f"the gang of {members} pods does not fit together"
        together = int(self.described.shapes.together[arrival]) if is_whole else 1
        if self.engine.lacks_room(class_id, together):
            return gang
        if head != NOWHERE:
            return f"fits, but must not delay {workload.pods[self.plan.pods[head]].name}, which goes next"
        return gang if members > 1 else ""

    def cost(self, protocol: Protocol) -> float:
        """Return the cost that a good policy minimises: percent of unallocated GPUs at the end, or the mean wait in s.

        Where pods or nodes have no GPUs, CPU counts in their place. Infinite if no pod was ever bound.
        """
        if protocol != "timed":
            used, capacity = (each[self.eligible] for each in self.state.gpu_use_by_node())
            if capacity.any() and self.simulator._demand.any():
                return 100.0 * (1.0 - float(used.sum()) / float(capacity.sum()))
            arrays = self.state.arrays
            free, allocatable = (float(each[self.eligible, CPU].sum()) for each in (arrays.free, arrays.allocatable))
            return 100.0 * free / max(1.0, allocatable)
        # Without the pods of the warm start, whose waits say nothing of what a user would submit.
        waits = self.coming_waits.bound
        return float(waits.mean()) if len(waits) else math.inf

    def compared_cost(self, protocol: Protocol) -> float:
        """Return the cost by which policies are compared in a few draws: `cost`, but of waits `compared_waits`."""
        return compared_waits(self.coming_waits) if protocol == "timed" else self.cost(protocol)

    def failed_by_kind(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the pods that fitted nowhere and those that arrived after the run began, [4] each, by `KINDS`."""
        record, pods = self.record(), self.plan.pods
        kinds = kinds_of(self.simulator._demand[pods], self.simulator._devices[pods])
        failed = record.numbers[record.numbers[:, event_arrays.OUTCOME] == event_arrays.FAILED, event_arrays.ARRIVAL]
        coming = kinds[self.plan.standing :]
        return np.bincount(kinds[failed], minlength=len(KINDS)), np.bincount(coming, minlength=len(KINDS))

    def paid_by_kind(self, protocol: Protocol) -> npt.NDArray[np.float64]:
        """Return [2, 4] what the pods of each of `KINDS` paid, and their number.

        They paid seconds of waiting of the pods that were bound (`timed`), else the pods that failed.
        """
        if protocol != "timed":
            return np.array(self.failed_by_kind(), dtype=np.float64)
        waits = self.coming_waits
        known, kind = ~np.isnan(waits.seconds), waits.kind
        seconds = np.bincount(kind[known], waits.seconds[known], minlength=len(KINDS))
        return np.array([seconds, np.bincount(kind[known], minlength=len(KINDS))], dtype=np.float64)

    @property
    def coming_waits(self) -> Waits:
        """Return the waits of the pods that came after the run began."""
        return self._waits(self.record()).after(self.plan.standing + self.plan.warm)

    def record(self) -> event_arrays.EventRecord:
        """Return the events so far."""
        columns = self.engine.events()
        reasons = np.zeros(len(columns[0]) if self.recorded else 0, dtype=np.int64)
        for e, number in self._reason_of.items():
            reasons[e] = number
        record = event_arrays.EventRecord(*columns, reasons)
        if not self.plan.waits:
            # Pods that wait for others which have not come have failed.
            outcome, arrival = (record.numbers[:, k] for k in (event_arrays.OUTCOME, event_arrays.ARRIVAL))
            is_nowhere = self.standing.node[arrival] == NOWHERE
            outcome[(outcome == event_arrays.WAITING) & is_nowhere] = event_arrays.FAILED
        return record

    def _waits(self, record: event_arrays.EventRecord) -> Waits:
        pods, simulator = self.plan.pods, self.simulator
        lost = self.engine.accounts(len(pods))[:, LOST] if self.described.evicts else None
        return waits_of(record, self.plan.duration, simulator._demand[pods], simulator._devices[pods], lost)

    def result(
        self, protocol: Protocol, seed: int, ratio: float, objectives: Sequence[WeightedObjectives] = ()
    ) -> RunResult:
        """Return the result of the run, with the rewards of objectives."""
        record, standing = self.record(), self.standing
        count = len(record.time)
        self._count_gpus(record)
        demand = self.simulator._demand[self.plan.pods]
        first = slice(self.plan.standing)
        demand[first] = np.array(self.simulator.workload.recorded_demand, dtype=np.int64)[self.plan.pods[first]]
        # An arrival counts when it arrives, not again when it is bound after waiting or leaves.
        arrived = np.zeros(count, dtype=np.int64)
        seen, where = np.unique(record.numbers[:, event_arrays.ARRIVAL], return_index=True)
        arrived[where] = demand[seen]
        events = metrics.events_of(record, np.cumsum(arrived), self._capacity())
        rewarded: list[Metric] = []
        if objectives:
            rewarded, rewards = metrics.reward_metrics(self._decision_states(record), objectives)
            events = replace(events, rewards=rewards)
        # If all pods arrive at once there is no course over arrivals, and the whole run is shown.
        until = float(standing.time[-1] if standing.time[-1] > events.x[0] else events.x[-1])
        curve = _curve(protocol, events, ratio, until)
        values = metrics.final_metrics(record, events, curve if protocol == "inflation" else None, until)
        parts: dict[str, npt.NDArray[np.float64]] = {}
        if protocol == "timed":
            waits, begins = self._waits(record), (self.plan.standing, self.plan.warm)
            values += metrics.timed_metrics(record, events, waits, *begins, until)
            if self.described.order.score == LAS:
                values += metrics.eviction_metrics(
                    waits, self.engine.accounts(len(self.plan.pods)), self.described.resumable, sum(begins)
                )
            if self.described.order.uses_estimates:
                coming = slice(sum(begins), None)
                values += estimate_metrics(standing.estimated[coming], self.plan.duration[coming])
            if self.plan.is_given:
                parts = metrics.parts_of_trace(events, waits.after(self.plan.standing), until)
        else:
            values += metrics.kind_metrics(*(each.tolist() for each in self.failed_by_kind()))
        return RunResult(
            workload=self.simulator.workload.name,
            policy=self.policy.name,
            seed=seed,
            protocol=protocol,
            curve=curve,
            metrics=(*values, *rewarded),
            final_nodes=self._final_nodes(),
            warnings=(*self.simulator.warnings, *self._own_warnings()),
            timeline=events if self.recorded else None,
            placements=self._placements(record) if self.recorded else None,
            is_given=self.plan.is_given,
            parts=parts,
        )

    def _own_warnings(self) -> Iterator[str]:
        if self.prepared is not None:
            yield from self.prepared.warnings(self.policy.name, self.state.gpu_types)
        if Need.TELEMETRY in self.policy.needs:
            instead = "it has no metrics to decide by" if self.policy.is_learned else "it decides by requests alone"
            yield (
                f"policy {self.policy.name!r} decides by nodes' metrics, and a simulated workload has none: {instead}; "
                "steersman/Latency-v0 simulates them"
            )
        if names := sorted(set(self._preempting.values())):
            yield (
                f"{self.simulator.workload.name}: pods fail or wait for which kube-scheduler may preempt pods of lower "
                f"priority, which steersman does not do: {first_names(names)}"
            )

    def _count_gpus(self, record: event_arrays.EventRecord) -> None:
        """Count in GPUs what the event loop counts in devices and units, where these are not whole GPUs.

        Fragmentation is measured by the workload's profile, as for every policy, if the policy has its own.
        """
        whole = self.simulator.whole_gpus
        if whole and self.prepared is None:
            return
        profile = self.simulator.profile_arrays(None)
        if whole and _same(profile, self.simulator.profile_arrays(self.prepared)):
            return
        # The nodes as they were at the start: the run has changed its own copy.
        state = self.simulator.state(self.plan.nodes)
        device, counted = state.gpu_weights()
        if not whole:
            record.numbers[:, event_arrays.GPU_TAKEN] = gpus_taken(
                record.numbers, state, self.class_id, self.eligible, device, counted
            )
        recount(state, profile, np.where(self.eligible, device / GPU_MILLI, 0.0), self.class_id, record)

    def _decision_states(self, record: event_arrays.EventRecord) -> DecisionStates:
        simulator, nodes = self.simulator, self.plan.nodes
        empty = simulator._state.permuted(nodes).arrays
        profile, places = simulator.profile_arrays(None), simulator.places
        first = summary_of(empty, self.eligible, fragmented_milli(profile, empty), 0)
        owner_of = places.owner[self.plan.pods]
        return decision_states(record, first, places.rack[nodes], owner_of, self.plan.standing, self.plan.waits)

    def _capacity(self) -> metrics.Capacity:
        nodes, allocatable = self.state.arrays, self.state.arrays.allocatable[self.eligible]
        return metrics.Capacity(
            gpu=self.simulator.workload.gpu_capacity,
            cpu=int(allocatable[:, CPU].sum()),
            memory=int(allocatable[:, MEMORY].sum()),
            gpu_nodes=int((nodes.gpu_count[self.eligible] > 0).sum()),
            cpu_nodes=int((allocatable[:, CPU] > 0).sum()),
        )

    def _final_nodes(self) -> FinalNodes:
        # Ranks back to the order of the node file: argsort of a permutation is its inverse.
        place = np.argsort(self.plan.nodes)[self.simulator.workload.eligible]
        nodes = self.state.arrays
        gpu_used, gpu = self.state.gpu_use_by_node()
        gpu_used = gpu_used + self._without_devices

        def share(used: npt.NDArray[np.int64], of: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
            out = np.full(len(of), np.nan)
            np.divide(used, of, out=out, where=of > 0)
            return out[place]

        used = nodes.allocatable - nodes.free
        return FinalNodes(
            names=tuple(node.name for node in self.simulator.workload.eligible_nodes),
            gpu_model=tuple(node.gpu_model for node in self.simulator.workload.eligible_nodes),
            gpu_count=(gpu / GPU_MILLI)[place],
            gpu_used_share=share(gpu_used, gpu),
            cpu_used_share=share(used[:, CPU], nodes.allocatable[:, CPU]),
        )

    def _placements(self, record: event_arrays.EventRecord) -> Placements:
        words = {
            event_arrays.BOUND: "bound",
            event_arrays.FAILED: "failed",
            event_arrays.WAITING: "waiting",
            event_arrays.FINISHED: "finished",
            event_arrays.EVICTED: "evicted",
        }
        pods = self.simulator.workload.pods
        spaced = any(pod.namespace != "default" for pod in pods)
        nodes = [self.simulator.workload.nodes[i] for i in self.plan.nodes]
        arrivals, outcomes, slots, devices = record.numbers[:, : event_arrays.DEVICES + 1].T.tolist()
        arrived = [pods[i] for i in self.plan.pods.tolist()]
        texts = self.reasons.texts()
        # Evictions come right before the pod is bound that they make room for.
        evicted: dict[int, str] = {}
        for e in np.flatnonzero(record.numbers[:, event_arrays.OUTCOME] == event_arrays.EVICTED)[::-1].tolist():
            evicted[e] = evicted.get(e + 1) or f"makes room for {arrived[arrivals[e + 1]].name}"
        return Placements(
            time=record.time,
            pod=[f"{arrived[a].namespace}/{arrived[a].name}" if spaced else arrived[a].name for a in arrivals],
            node=["" if slot < 0 else nodes[slot].name for slot in slots],
            devices=["-".join(map(str, device_indices(mask))) for mask in devices],
            outcome=[words[outcome] for outcome in outcomes],
            reason=[evicted.get(e, texts[number]) for e, number in enumerate(record.reasons.tolist())],
        )


def decider_on(workload: Workload, policy: Policy) -> Policy:
    """Return a policy as it decides: of a portfolio the member chosen here, under its name and in its order."""
    return decided_by(policy, Simulator(workload).member(policy).policy) if policy.members else policy


def _same(one: ProfileArrays, other: ProfileArrays) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _curve(protocol: Protocol, events: Curve, ratio: float, until: float) -> Curve:
    if protocol == "timed":
        return metrics.time_curve(events, until)
    # Without GPU demand there is no share of it to draw a curve over.
    if not events.arrived_percent[-1] > 0:
        return metrics.event_curve(events)
    last = round(100 * ratio) if protocol == "inflation" else int(np.round(events.arrived_percent[-1]))
    return metrics.arrival_curve(events, last)


def _next_step(events: int, seconds: float) -> int:
    """Return how many events the next step handles, after one of `events` that took `seconds`: at most 8 times more."""
    # At most 8 times more, since the next events of a run may take far longer than the last ones.
    fitting = events * min(STEP_SECONDS / max(seconds, 1e-9), 8.0)
    return min(max(int(fitting), 1), MAX_STEP_EVENTS)
