"""Choice of the active policy on a live cluster: a portfolio's member, or a policy file unless a rule beats it there.

The choice is the one of all commands (`simulation.selection.choice`), on the cluster's nodes, empty, with pods drawn
from the recent arrivals. It runs in a separate process and no pod waits for it: a rule decides until the result is
there. A failed comparison leaves the active policy in place and only logs an error and increments a metric. No
comparison is made of a policy with another objective, of one that is used unchecked, and where there are no GPUs or too
few pods.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog

from steersman.cluster.model import Constraints, Node, Pod, PodClass
from steersman.core.errors import SteersmanError
from steersman.core.processes import ask_process
from steersman.kubernetes.credentials import file_stamp
from steersman.policies.base import Policy, decided_by, default_member
from steersman.policies.heuristics import HEURISTIC_IDS, heuristic
from steersman.policies.policy_file import SUFFIX, Card, ComparedOn, read_policy, tensors_of
from steersman.policies.portfolio_policy import DEFAULT_RULE
from steersman.policies.registry import PORTFOLIO_NAMES, check_telemetry, policy_path, resolve, split_limit
from steersman.simulation.run import Simulator
from steersman.simulation.selection.choice import MemberChoice, choice_of
from steersman.workloads.profile import GpuRequest, Shape, node_shapes, profile_distance, shapes_digest
from steersman.workloads.workload import Workload

COMPARED_OBJECTIVE = "allocation"  # objective by which a comparison with rules ranks policies
FALLBACK_RULE = DEFAULT_RULE  # decides until the first comparison ends, and where a policy behind HTTP does not answer
LEAST_PODS = 20  # pods that must have arrived before a comparison
MAX_SAMPLED_PODS = 2000  # pods that a comparison draws from; a larger window is sampled uniformly
PODS_GROWTH_FACTOR = 4  # growth of the number of pods in the window since the last comparison that triggers another one
MAX_NODE_CHANGE = 0.05  # share of the nodes that were added, removed or reshaped beyond which it is repeated
MAX_PROFILE_DISTANCE = 0.1  # distance of two profiles, beyond sampling noise, at which it is repeated
LIMIT_SECONDS = 1800.0
"""Timeout of a comparison, whose draws are bounded: seconds on 1,000 nodes; the first one on a machine compiles for
about a minute."""
RETRY_SECONDS = 600.0  # delay after a failed comparison
NICENESS = 10
Compare = Callable[[tuple[Workload, Policy]], MemberChoice]  # returns what decides on a workload, see `compare`

log = structlog.get_logger("policy")


class PolicyReloader:
    """A policy by name or file, with change detection for files.

    Args:
        spec: name or file of the policy.
        has_telemetry: whether nodes' metrics are queried, without which a policy trained on them cannot decide.
        policy: a policy that has neither; `spec` is then its name.

    Attributes:
        policy: the loaded policy.
        version: digest of the policy's file; "" for a policy without a file.
        problem: why the file's present content is unusable; "" if it is usable.
        reads: number of reads by result, "loaded" or "refused".
    """

    def __init__(self, spec: str, *, has_telemetry: bool = False, policy: Policy | None = None) -> None:
        self.spec, self._given, self.problem = spec, policy, ""
        self._has_telemetry = has_telemetry
        self.reads = {"loaded": 1, "refused": 0}
        # Before the file is read: a change in between is then noticed at the next check.
        self._stamp = self._file_stamp()
        self._read()

    @property
    def has_file(self) -> bool:
        """Whether the policy comes from a policy file; rules and user code have none."""
        return self._card is not None

    @property
    def other_objective(self) -> str:
        """Objective that the policy was trained for if it is not GPU allocation, else ""."""
        objective = self._card.objective if self._card is not None else COMPARED_OBJECTIVE
        return "" if objective == COMPARED_OBJECTIVE else objective

    @property
    def compared_on(self) -> ComparedOn | None:
        """Cluster on which the policy was compared with rules when its file was written; None if it was not."""
        return None if self._card is None else self._card.compared_on

    def renewed(self) -> bool:
        """Reload the file if it changed, and return True if it was reloaded.

        A file that cannot be used is logged once and leaves the present policy in place.
        """
        stamp = self._file_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._read()
        except SteersmanError as error:
            self.problem = str(error)
            self.reads["refused"] += 1
            log.error("policy file cannot be used; the previous policy stays active", error=self.problem)
            return False
        self.problem = ""
        self.reads["loaded"] += 1
        log.info("policy file reloaded", policy=self.policy.name)
        return True

    def _read(self) -> None:
        source = self.spec
        policy = resolve(source) if self._given is None else self._given
        check_telemetry(policy, source, has_telemetry=self._has_telemetry)
        card: Card | None = None
        version = ""
        if self._given is None and ((name := split_limit(source)[0]) in PORTFOLIO_NAMES or name.endswith(SUFFIX)):
            with policy_path(source) as path:
                card = read_policy(path)[0]
                version = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self.policy, self._card, self.version = policy, card, version

    def _file_stamp(self) -> tuple[str, int, int, int] | None:
        """Return a value that changes with the file, or None without a file."""
        stamp = file_stamp(Path(self.spec)) if self.spec.endswith(SUFFIX) else None
        return None if stamp is None else (self.spec, *stamp)


@dataclass(frozen=True, slots=True)
class ComparisonBasis:
    """Cluster and workload for which a comparison's result is valid."""

    nodes: Mapping[Shape, int]  # number of nodes by shape
    requests: Mapping[GpuRequest, float]  # share of the pods by GPU request
    pods: int | None  # number of pods observed; None for a policy file's basis, which is exact

    def holds_for(self, now: ComparisonBasis) -> bool:
        """Return True if nodes and pods have not changed enough to repeat the comparison."""
        shapes = self.nodes.keys() | now.nodes.keys()
        changed = sum(abs(self.nodes.get(shape, 0) - now.nodes.get(shape, 0)) for shape in shapes)
        if changed > MAX_NODE_CHANGE * max(sum(self.nodes.values()), sum(now.nodes.values())):
            return False
        assert now.pods is not None
        if now.pods < LEAST_PODS:
            return True  # too few pods to detect a change
        if self.pods is not None and now.pods >= PODS_GROWTH_FACTOR * self.pods:
            return False
        smaller_sample = now.pods if self.pods is None else min(now.pods, self.pods)
        # About as much as two samples of so many pods differ by chance alone.
        sampling_noise = 0.5 * math.sqrt(len(self.requests.keys() | now.requests.keys()) / smaller_sample)
        return profile_distance(self.requests, now.requests) <= MAX_PROFILE_DISTANCE + sampling_noise

    @property
    def skip_reason(self) -> str:
        """Reason why a comparison is impossible; "" if it is possible."""
        if not any(gpus for _, _, gpus, _ in self.nodes):
            return "no node has a GPU"
        if self.pods is not None and self.pods < LEAST_PODS:
            return f"fewer than {LEAST_PODS} pods have arrived"
        return "" if any(count for count, _ in self.requests) else "no pod requests a GPU"


def basis_of(nodes: Iterable[Node], classes: Sequence[PodClass]) -> ComparisonBasis:
    """Return the basis of a comparison on these nodes and pods."""
    counts = Counter((pod.requests.gpu_count, pod.requests.gpu_milli) for pod in classes)
    shares = {request: count / len(classes) for request, count in counts.items()}
    return ComparisonBasis(node_shapes(nodes), shares, len(classes))


def stored_basis(file: PolicyReloader, now: ComparisonBasis) -> ComparisonBasis | None:
    """Return the basis of the comparison that a policy file records, or None if it does not hold for `now`."""
    compared_on, policy = file.compared_on, file.policy
    if compared_on is None or policy.prepared is None or compared_on.shapes != shapes_digest(now.nodes):
        return None
    shares: dict[GpuRequest, float] = {}
    for pod in policy.prepared.pods:
        request = pod.gpu_count, pod.gpu_milli
        shares[request] = shares.get(request, 0.0) + pod.share
    basis = ComparisonBasis(now.nodes, shares, None)
    return basis if basis.holds_for(now) else None


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """Active policy."""

    policy: Policy  # the policy; a portfolio's member carries the portfolio's name
    member: str = ""  # name of the portfolio's member; "" if the policy is no portfolio
    version: str = ""  # digest of the policy file; "" for a rule that replaces the policy
    evidence: str = ""  # the comparison that chose it, in a sentence; "" without one

    def is_same(self, other: PolicyChoice) -> bool:
        """Return True if both choices select the same policy, member, file version and weights."""
        # Weights that were fitted to the cluster again have the same name.
        one, two = tensors_of(self.policy), tensors_of(other.policy)
        return (
            (self.policy.name, self.member, self.version) == (other.policy.name, other.member, other.version)
            and one.keys() == two.keys()
            and all(np.array_equal(one[name], two[name]) for name in one)
        )


def compare(task: tuple[Workload, Policy]) -> MemberChoice:
    """Return the chosen member of a portfolio; of another policy itself, unless a rule is clearly better."""
    workload, policy = task
    simulator = Simulator(workload)
    if policy.members:
        return simulator.member(policy)
    candidates = [policy, *(heuristic(name) for name in HEURISTIC_IDS if name != policy.name)]
    return choice_of(candidates, simulator.select(candidates, fallback=0))


class PolicyComparison:
    """Choice of the active policy on a live cluster, with its reasons in the log."""

    def __init__(
        self,
        file: PolicyReloader,
        *,
        # Whether the configured policy is used without a comparison; a portfolio then uses its first member
        unchecked: bool = False,
        clock: Callable[[], float] = time.time,  # function that returns the time in seconds
        # Function that compares; it runs in a separate process, so it must be a module-level function
        work: Compare = compare,
        limit: float = LIMIT_SECONDS,  # timeout of a comparison in seconds
    ) -> None:
        self.file, self._unchecked, self._clock, self._work, self._limit = file, unchecked, clock, work, limit
        self.result: MemberChoice | None = None  # result of the last comparison; None before the first one
        # `finished`: end of the last comparison in seconds of the clock
        # `failures`: number of failed comparisons
        self.finished, self.failures = 0.0, 0
        self._basis: ComparisonBasis | None = None
        self._retry_at = 0.0
        self._logged_reason = ""
        self.choice = PolicyChoice(heuristic(FALLBACK_RULE)) if self.is_needed else self._configured_choice()
        self._version = self.choice.version

    @property
    def is_needed(self) -> bool:
        """Whether the configured policy must be compared with the rules before it is used."""
        return self.file.has_file and not self._unchecked and not self.file.other_objective

    @property
    def is_settled(self) -> bool:
        """Whether the active policy was chosen for the policy file's present version."""
        return self._version == self.file.version

    def _configured_choice(self) -> PolicyChoice:
        policy = self.file.policy
        member = policy.members[0].name if policy.members else ""
        if self.file.has_file and self.file.other_objective and not self._unchecked:
            log.info(
                "the policy is not compared with rules: it has another objective", objective=self.file.other_objective
            )
        return PolicyChoice(default_member(policy), member, self.file.version)

    async def compare_if_due(self, nodes: Sequence[Node], classes: Sequence[PodClass]) -> bool:
        """Compare if a comparison is due, activate what it chose, and return True if the active policy changed."""
        if not self.is_needed:
            return not self.is_settled and self._activate(self._configured_choice())
        if self.recognise(nodes, classes):
            return True
        now = basis_of(nodes, classes)
        is_new = not self.is_settled
        if self._basis is not None and not is_new and self._basis.holds_for(now):
            return False
        if now.skip_reason:
            if nodes and now.skip_reason != self._logged_reason:  # without nodes they are not listed yet
                self._logged_reason = now.skip_reason
                decides = self.choice.policy.name
                log.info("the policy cannot be compared with rules yet", why=now.skip_reason, decides=decides)
            return False
        if self._clock() < self._retry_at and not is_new:
            return False
        return await self._compare(nodes, classes, now)

    def recognise(self, nodes: Iterable[Node], classes: Sequence[PodClass]) -> bool:
        """Activate a policy file that was compared on an equal cluster; return True if the active policy changed."""
        if not self.is_needed or self.is_settled:
            return False
        basis = stored_basis(self.file, basis_of(nodes, classes))
        if basis is None:
            return False
        self._basis = basis
        log.info("the policy file was compared on an equal cluster when it was written", policy=self.file.policy.name)
        return self._activate(self._configured_choice())

    async def _compare(self, nodes: Sequence[Node], classes: Sequence[PodClass], now: ComparisonBasis) -> bool:
        policy, version = self.file.policy, self.file.version
        log.info("comparing the policy with every rule", policy=policy.name, nodes=len(nodes), pods=len(classes))
        began = self._clock()
        try:
            task = cluster_workload(nodes, classes), policy
            result = await ask_process(self._work, task, seconds=self._limit, niceness=NICENESS)
        except SteersmanError as error:
            self.failures += 1
            # With the version set the file counts as settled, so it is compared again after RETRY_SECONDS and not at
            # every look.
            self._retry_at, self._version, self._basis = self._clock() + RETRY_SECONDS, version, None
            log.error(
                "the comparison failed; the active policy stays", decides=self.choice.policy.name, error=str(error)
            )
            return False
        if self.file.version != version:
            return False  # the file changed meanwhile, so the result is of an old policy
        self.result, self.finished, self._basis = result, self._clock(), now
        return self._activate(self._select(policy, result, self.finished - began))

    def _select(self, policy: Policy, result: MemberChoice, seconds: float) -> PolicyChoice:
        figures = {"policy": policy.name, "evidence": result.evidence, "draws": len(result.savings)}
        figures["seconds"] = round(seconds, 1)
        chosen = result.policy
        if policy.members:
            log.info("the policy was compared", member=chosen.name, **figures)
            return PolicyChoice(decided_by(policy, chosen), chosen.name, self.file.version, result.evidence)
        if chosen.name == policy.name:
            log.info("the policy was compared", **figures)
            return PolicyChoice(policy, version=self.file.version, evidence=result.evidence)
        log.warning("the policy is worse than a rule on this cluster; the rule decides", rule=chosen.name, **figures)
        return PolicyChoice(chosen, evidence=result.evidence)

    def _activate(self, choice: PolicyChoice) -> bool:
        self._version, previous, self.choice = self.file.version, self.choice, choice
        return not choice.is_same(previous)


def cluster_workload(nodes: Sequence[Node], classes: Sequence[PodClass]) -> Workload:
    """Return a workload of the cluster's nodes and pods of these classes.

    Constraints on other pods' labels are left out: the drawn pods have no owners.
    """
    if len(classes) > MAX_SAMPLED_PODS:
        # A fixed seed: the same window gives the same comparison.
        classes = random.Random(0).sample(classes, MAX_SAMPLED_PODS)
    reduced: dict[Constraints, Constraints] = {}
    pods = []
    for i, pod_class in enumerate(classes):
        constraints = reduced.setdefault(pod_class.constraints, _node_constraints(pod_class.constraints))
        pods.append(Pod(f"pod-{i}", PodClass(pod_class.requests, constraints)))
    return Workload("the cluster", tuple(nodes), tuple(pods))


def _node_constraints(constraints: Constraints) -> Constraints:
    return Constraints(
        gpu_models=constraints.gpu_models,
        tolerations=constraints.tolerations,
        node_selector=constraints.node_selector,
        node_affinity=constraints.node_affinity,
        node_features=constraints.node_features,
    )
