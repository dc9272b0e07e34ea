"""Explain a decision of a simulated run: the cluster is rebuilt as it was before the event."""

from __future__ import annotations

from dataclasses import replace

from steersman.apps.dashboard.simulation.document import OUTCOMES, RunColumns
from steersman.apps.service.messages.types import Explanation
from steersman.apps.service.scoring.explanation import explain_placed
from steersman.cluster.model import Pod
from steersman.core.errors import UsageError
from steersman.policies.base import Policy, renamed
from steersman.simulation.run import Simulator
from steersman.workloads.workload import Workload

BOUND, FINISHED = OUTCOMES.index("bound"), OUTCOMES.index("finished")


def pods_before(workload: Workload, columns: RunColumns, event: int) -> list[Pod]:
    """Return the pods that run before an event, each bound to its node and devices.

    Args:
        workload: nodes and pods.
        columns: the run.
        event: position of the event.
    """
    nodes = workload.nodes
    running: dict[int, list[tuple[int, str]]] = {}
    for e in range(event):
        if columns.outcome[e] == BOUND:
            running.setdefault(columns.pod[e], []).append((columns.node[e], columns.devices[e]))
        elif columns.outcome[e] == FINISHED:
            # A pod may run several times at once; the one that was bound first ends first.
            running[columns.pod[e]].pop(0)
    result = []
    for pod, places in running.items():
        for number, (node, devices) in enumerate(places):
            original = workload.pods[pod]
            held = tuple(int(device) for device in devices.split("-")) if devices else ()
            name = f"{original.name}-{number}" if number else original.name
            result.append(replace(original, name=name).bound(nodes[node].name, held))
    return result


class RunExplainer:
    """Explanations of a run's decisions.

    Args:
        policy: policy of the run; of a portfolio the deciding member is chosen at the first question.
        workload: nodes and pods.
        columns: the run.
    """

    def __init__(self, policy: Policy, workload: Workload, columns: RunColumns) -> None:
        self._policy, self._workload, self._columns = policy, workload, columns
        self._member = self._choice = ""

    def explain(self, event: int) -> Explanation:
        """Return why the policy takes the node that it takes for the pod of an event, and why not others.

        Raises:
            UsageError: the event is no decision.
            SteersmanError: the policy failed.
        """
        columns = self._columns
        if columns.outcome[event] == FINISHED:
            raise UsageError(f"event {event} is the end of a pod, and no decision")
        if self._policy.members:
            chosen = Simulator(self._workload).member(self._policy)
            self._member, self._choice = chosen.policy.name, chosen.evidence
            self._policy = renamed(chosen.policy, self._policy.name)
        pod = self._workload.pods[columns.pod[event]]
        others = pods_before(self._workload, columns, event)
        result = explain_placed(self._policy, self._workload, pod, others)
        result.member, result.choice = self._member, self._choice
        return result
