"""Which policy decides on a live cluster: a learned one only after it was compared there with every rule.

The comparison is a short simulation on the cluster's nodes, empty, with pods like those that came last. It runs in a
process of its own, and no pod waits for it: until it is done a rule decides, and whatever goes wrong in it changes
nothing but a line in the log and a metric.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from steersman.cluster.model import Constraints, Node, Pod, PodClass
from steersman.errors import SteersmanError
from steersman.live.policy_file import PolicyFile
from steersman.policies.base import Policy
from steersman.policies.heuristics import heuristic
from steersman.processes import ask_process
from steersman.simulation.comparison import RuleComparison, compare, members_of
from steersman.workloads.shapes import GpuRequest, Shape, mix_distance, node_shapes, shapes_digest
from steersman.workloads.workload import Workload

FALLBACK = "fgd"
"""The rule that decides until there was a comparison: the best published one."""
LEAST_PODS = 20
"""That were seen before there is a comparison."""
MOST_PODS = 2000
"""That a comparison draws from; of more an even sample."""
GROWTH = 4
"""Times as many pods in the window as at the last comparison say so much more that there is another one."""
NODES_CHANGED = 0.05
"""Share of the nodes that came, went or have another shape, beyond which there is another comparison."""
MIX_CHANGED = 0.1
"""Distance between two mixes beyond which there is another; on top of what chance makes of as many pods."""
MOST_UNUSED = 50.0
"""Percent of the GPUs that the best candidate may leave; beyond that CPU or memory of the pods seen so far runs out
long before the GPUs do, whoever decides, and differences say nothing of how GPUs would be used."""
LIMIT_SECONDS = 300.0
"""After which a comparison is given up. It takes seconds; the first one on a machine compiles for a minute."""
RETRY_SECONDS = 600.0
"""After a comparison that failed."""
NICENESS = 10

Compare = Callable[[Workload, Policy, str], RuleComparison]
"""Of a policy with every rule on a workload, among them the one that decides now."""

log = structlog.get_logger("policy")


@dataclass(frozen=True, slots=True)
class Basis:
    """What a comparison holds for.

    Attributes:
        nodes: by shape.
        requests: the share of pods by what they ask of GPUs.
        pods: how many were seen; None: as many as need be.
    """

    nodes: Mapping[Shape, int]
    requests: Mapping[GpuRequest, float]
    pods: int | None

    def holds_for(self, now: Basis) -> bool:
        """Return whether nodes and pods are still much the same."""
        shapes = self.nodes.keys() | now.nodes.keys()
        changed = sum(abs(self.nodes.get(shape, 0) - now.nodes.get(shape, 0)) for shape in shapes)
        if changed > NODES_CHANGED * max(sum(self.nodes.values()), sum(now.nodes.values())):
            return False
        assert now.pods is not None
        if now.pods < LEAST_PODS:
            return True  # too few to say that they are others
        if self.pods is not None and now.pods >= GROWTH * self.pods:
            return False
        fewest = now.pods if self.pods is None else min(now.pods, self.pods)
        by_chance = 0.5 * math.sqrt(len(self.requests.keys() | now.requests.keys()) / fewest)
        return mix_distance(self.requests, now.requests) <= MIX_CHANGED + by_chance

    @property
    def obstacle(self) -> str:
        """Why there is nothing to compare; "" if there is."""
        if not any(gpus for _, _, gpus, _ in self.nodes):
            return "no node has a GPU"
        if self.pods is not None and self.pods < LEAST_PODS:
            return f"fewer than {LEAST_PODS} pods were seen"
        return "" if any(count for count, _ in self.requests) else "no pod asks for a GPU"


def basis_of(nodes: Iterable[Node], classes: Sequence[PodClass]) -> Basis:
    """Return what a comparison on these nodes and pods would hold for."""
    counts = Counter((each.requests.gpu_count, each.requests.gpu_milli) for each in classes)
    return Basis(node_shapes(nodes), {kind: n / len(classes) for kind, n in counts.items()}, len(classes))


def fitted_basis(file: PolicyFile, now: Basis) -> Basis | None:
    """Return what a policy file was compared on when it was made, if that is as the cluster is now; else None."""
    made, policy = file.compared_on, file.policy
    if made is None or policy.prepared is None or made.shapes != shapes_digest(now.nodes):
        return None
    shares: dict[GpuRequest, float] = {}
    for pod in policy.prepared.pods:
        kind = pod.gpu_count, pod.gpu_milli
        shares[kind] = shares.get(kind, 0.0) + pod.share
    basis = Basis(now.nodes, shares, None)
    return basis if basis.holds_for(now) else None


@dataclass(frozen=True, slots=True)
class Choice:
    """Who decides.

    Attributes:
        policy: that one; a portfolio's member has the portfolio's name.
        member: of a portfolio, which one; else "".
        version: of the policy file that it is from, "" for a rule that decides in its place.
    """

    policy: Policy
    member: str = ""
    version: str = ""

    def is_same(self, other: Choice) -> bool:
        """Return whether both decide alike."""
        mine, others = (self.policy.name, self.member, self.version), (other.policy.name, other.member, other.version)
        return mine == others


class PolicyComparison:
    """Chooses who decides on a live cluster, and says why in the log.

    Args:
        file: the policy that the user named.
        unchecked: whether it decides without any comparison; of a portfolio the first member then.
        clock: seconds.
        work: compares, in a process of its own; a function of a module.
        limit: seconds after which a comparison is given up.

    Attributes:
        file: the policy that the user named.
        choice: who decides.
        result: of the last comparison; None: there was none yet.
        finished: when it ended, in seconds of the clock.
        failures: comparisons that failed.
    """

    def __init__(
        self,
        file: PolicyFile,
        *,
        unchecked: bool = False,
        clock: Callable[[], float] = time.time,
        work: Compare = compare,
        limit: float = LIMIT_SECONDS,
    ) -> None:
        self.file, self._unchecked, self._clock, self._work, self._limit = file, unchecked, clock, work, limit
        self.result: RuleComparison | None = None
        self.finished, self.failures = 0.0, 0
        self._basis: Basis | None = None
        self._retry_at = 0.0
        self._said = ""
        self.choice = Choice(heuristic(FALLBACK)) if self.is_needed else self._as_given()
        self._version = self.choice.version

    @property
    def is_needed(self) -> bool:
        """Whether the policy is one that decides only after a comparison."""
        return self.file.is_learned and not self._unchecked and not self.file.other_objective

    @property
    def is_settled(self) -> bool:
        """Whether who decides was chosen for the policy file as it is now."""
        return self._version == self.file.version

    def _as_given(self) -> Choice:
        policy = self.file.policy
        member = policy.members[0].name if policy.members else ""
        if self.file.is_learned and self.file.other_objective and not self._unchecked:
            log.info("the policy is not compared with rules: it has another aim", objective=self.file.other_objective)
        return Choice(policy.default_member, member, self.file.version)

    async def look(self, nodes: Sequence[Node], classes: Sequence[PodClass]) -> bool:
        """Compare where that is due; whether somebody else decides now.

        Args:
            nodes: of the cluster.
            classes: of the pods that came last.
        """
        if not self.is_needed:
            return not self.is_settled and self._decide(self._as_given())
        if self.recognise(nodes, classes):
            return True
        now = basis_of(nodes, classes)
        is_new = not self.is_settled
        if self._basis is not None and not is_new and self._basis.holds_for(now):
            return False
        if now.obstacle:
            self._say_once(now.obstacle)
            return False
        if self._clock() < self._retry_at and not is_new:
            return False
        return await self._compare(nodes, classes, now)

    def recognise(self, nodes: Iterable[Node], classes: Sequence[PodClass]) -> bool:
        """Let a policy decide that was compared on such a cluster when it was made; whether another one did before."""
        if not self.is_needed or self.is_settled:
            return False
        fitted = fitted_basis(self.file, basis_of(nodes, classes))
        if fitted is None:
            return False
        self._basis = fitted
        log.info("the policy was compared on such a cluster when it was made", policy=self.file.policy.name)
        return self._decide(self._as_given())

    async def _compare(self, nodes: Sequence[Node], classes: Sequence[PodClass], now: Basis) -> bool:
        policy, version = self.file.policy, self.file.version
        log.info("comparing the policy with every rule", policy=policy.name, nodes=len(nodes), pods=len(classes))
        began = self._clock()
        try:
            task = _workload(nodes, classes), policy, self._deciding
            result = await ask_process(_Work(self._work), task, seconds=self._limit, niceness=NICENESS)
        except SteersmanError as error:
            self.failures += 1
            self._retry_at, self._version, self._basis = self._clock() + RETRY_SECONDS, version, None
            log.error("no comparison; nothing changes", decides=self.choice.policy.name, error=str(error))
            return False
        if self.file.version != version:
            return False  # of a policy that is no more
        self.result, self.finished, self._basis = result, self._clock(), now
        return self._decide(self._chosen(policy, result, self.finished - began))

    def _chosen(self, policy: Policy, result: RuleComparison, seconds: float) -> Choice:
        """Who decides after a comparison, which is logged."""
        own, rule, best = result.best_own, result.best_rule, result.ranking[0]
        figures = {
            "policy": policy.name,
            "difference": round(result.difference, 3),
            "best": [f"{result.names[i]} {result.mean(i):.2f} %" for i in result.ranking[:3]],
            "draws": result.draws,
            "seconds": round(seconds, 1),
        }
        if result.mean(best) > MOST_UNUSED:
            decides = self.choice.policy.name
            log.info(
                "most GPUs stay unused whoever decides for these pods; nothing changes", decides=decides, **figures
            )
            return self.choice
        now = result.names.index(self._deciding) if self._deciding in result.names else None
        if policy.members and now is not None and now != best and not result.is_clearly_better(best, now):
            log.info("nobody is clearly better than who decides", decides=result.names[now], **figures)
            return self._choice(policy, result, now)
        if not result.is_good:
            name = result.names[rule]
            log.warning("the policy is worse than a rule on this cluster; the rule decides", rule=name, **figures)
            return self._choice(policy, result, rule)
        choice = self._choice(policy, result, own)
        log.info("the policy was compared", member=choice.member, **figures)
        return choice

    @property
    def _deciding(self) -> str:
        """Who decides now, as candidates are named."""
        return self.choice.member or self.choice.policy.name

    def _choice(self, policy: Policy, result: RuleComparison, candidate: int) -> Choice:
        name = result.names[candidate]
        if not result.own[candidate]:
            return Choice(heuristic(name))
        member = name if policy.members else ""
        decides = members_of(policy)[name].renamed(policy.name) if policy.members else policy
        return Choice(decides, member, self.file.version)

    def _decide(self, choice: Choice) -> bool:
        """Let somebody decide from now on; whether it was somebody else before."""
        self._version, former, self.choice = self.file.version, self.choice, choice
        return not choice.is_same(former)

    def _say_once(self, obstacle: str) -> None:
        if obstacle != self._said:
            self._said = obstacle
            decides = self.choice.policy.name
            log.info("nothing to compare the policy on yet", why=obstacle, decides=decides)


@dataclass(frozen=True, slots=True)
class _Work:
    """What the process does; a comparison takes three arguments, a process's task is one."""

    compare: Compare

    def __call__(self, task: tuple[Workload, Policy, str]) -> RuleComparison:
        return self.compare(*task)


def _workload(nodes: Sequence[Node], classes: Sequence[PodClass]) -> Workload:
    """The cluster, and pods that may run where those did whose classes these are.

    What depends on other pods' labels is left out: draws are of pods without owners.
    """
    if len(classes) > MOST_PODS:
        classes = random.Random(0).sample(classes, MOST_PODS)
    known: dict[Constraints, Constraints] = {}
    pods = []
    for i, each in enumerate(classes):
        made = known.setdefault(each.constraints, _of_nodes_alone(each.constraints))
        pods.append(Pod(f"pod-{i}", PodClass(each.requests, made)))
    return Workload("the cluster", tuple(nodes), tuple(pods))


def _of_nodes_alone(constraints: Constraints) -> Constraints:
    return Constraints(
        gpu_models=constraints.gpu_models,
        tolerations=constraints.tolerations,
        node_selector=constraints.node_selector,
        node_affinity=constraints.node_affinity,
    )
