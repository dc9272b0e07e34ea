"""`steersman explain`: a policy's decision for one pod, with its reasons."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from steersman.cli.options.cluster import ClusterOptions, run_with_client, say_without_telemetry
from steersman.cli.options.common import (
    KubernetesOption,
    TableOrJson,
    TableOrJsonOption,
    TelemetryOption,
    advanced_path,
    order_option,
    policy_option,
)
from steersman.cli.options.declaring import option, with_options
from steersman.cli.options.inputs import (
    AssumedNow,
    ClusterOfNow,
    NowOption,
    RecordedCluster,
    check_moment,
    pod_index,
    read_now,
    say_if_gone,
)
from steersman.cli.options.policies import PolicyServer, check_live_order, split_order, with_minor
from steersman.cli.output.display import Warnings, print_json, print_rows, print_text, status_if_slow
from steersman.cluster.model import Pod
from steersman.core.errors import UsageError
from steersman.core.garbage_collection import no_collection
from steersman.core.quantities import format_duration
from steersman.prometheus.configuration import read_configuration
from steersman.workloads.workload import Workload

if TYPE_CHECKING:
    from steersman.apps.service.messages import Explanation
    from steersman.cluster.model import Pod
    from steersman.kubernetes.client import Client
    from steersman.orders.order import Order
    from steersman.policies.base import Policy
    from steersman.prometheus.collector import TelemetryCollector
    from steersman.simulation.prediction.queue_place import QueuePlace

SHOWN_FEATURES = 10  # features in the table; --format json has all


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    pod: Annotated[str, option("Pod to place, as NAME or NAMESPACE/NAME.", metavar="NAME")]
    policy: Annotated[str, policy_option("Policy to explain")] = "steersman"
    kubernetes: KubernetesOption = None
    order: Annotated[
        str | None,
        order_option(
            "Also say which waiting pods go before it, why, and what would put it further ahead, in this order",
            " [default: that of the policy, if it has one]",
        ),
    ] = None
    run_times: Annotated[
        Path | None,
        advanced_path(
            "--order: take run times from the FILE that 'steersman schedule --run-times' keeps. [default: from the "
            "pods of the cluster that have ended and are still listed]"
        ),
    ] = None
    now: NowOption = None
    telemetry: TelemetryOption = None
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def explain(options: ExplainOptions, inputs: RecordedCluster, cluster: ClusterOptions, server: PolicyServer) -> None:
    """Explain where a policy would place a pod: what separates that node from the runner-up, and why others fail.

    Reads a live cluster, a cluster in files or a packaged workload, and changes nothing. A pod that runs already,
    is being deleted or has scheduling gates is placed as if it were pending, and the answer says so.

    **Example**: steersman explain --policy steersman --pod training/worker-0

    **Who goes before it**: steersman explain --order wfp3:easy --pod training/worker-0

    **By measured metrics**: steersman explain --policy p0 --telemetry telemetry.yaml --pod web/nginx-0
    """
    server.use()
    is_recorded = inputs.is_chosen(cluster)
    if is_recorded and options.telemetry is not None:
        raise UsageError(
            "--telemetry is about a live cluster's metrics; leave it out, or leave out --nodes, --pods and --workload"
        )

    with no_collection():  # all objects live until the end, and scanning them would take 0.3 s
        from msgspec import to_builtins

        from steersman.apps.service.scoring.explanation import explain_placed, explain_pod
        from steersman.policies.node_scores.default_spreading import scheduled_by

        (name,) = with_minor([options.policy], options.kubernetes, None if is_recorded else cluster)
        policy, follows_order = _policy(replace(options, policy=name))
        warn, queue, now = Warnings(), None, AssumedNow(None)
        if follows_order:
            inputs_now = ClusterOfNow(**{each.name: getattr(inputs, each.name) for each in fields(inputs)})
            source, now = read_now(inputs_now, cluster, warn, options.now)
            check_moment(source)
        else:
            source = inputs.read(warn)[0] if is_recorded else _take_snapshot(cluster, warn)
        source = scheduled_by(source, policy.selection.kube)
        say_if_gone(source, options.pod)
        number = pod_index(source, options.pod)
        measured = None if options.telemetry is None else _measure(options.telemetry, source)
        with status_if_slow("computing the explanation"):
            if follows_order:
                queue = _place_in_queue(options, policy.order, source, number, now.seconds or 0.0)
                others = _as_they_run(source)
                pod = others.pop(number)
                explanation = explain_placed(policy, source, pod, others, source.pods, measured)
            else:
                explanation = explain_pod(policy, source, number, measured)
    if options.output_format is TableOrJson.JSON:
        place = None if queue is None else {**asdict(queue), "now": now.seconds}
        print_json({**to_builtins(explanation), "queue": place} if follows_order else explanation)
        return
    _print_tables(explanation, options.pod)
    if queue is not None:
        _print_queue(queue, now)
    elif follows_order:
        print_text(f"{options.pod} runs already: no pod goes before it")


def _policy(options: ExplainOptions) -> tuple[Policy, bool]:
    from steersman.orders.order import AGE
    from steersman.policies.registry import in_order, resolve

    name, order = split_order(options.policy, options.order)
    policy = resolve(name)
    follows_order = bool(order) or policy.order != AGE
    for flag, value in (("--run-times", options.run_times), ("--now", options.now)):
        if value is not None and not follows_order:
            raise UsageError(f"{flag} is about the order of waiting pods; give --order, such as --order wfp3:easy")
    say_without_telemetry(policy, name, has_telemetry=options.telemetry is not None)
    policy = in_order(policy, order)
    if follows_order:
        check_live_order(policy.order, name, is_own=not order)
    return policy, follows_order


def _place_in_queue(
    options: ExplainOptions, order: Order, source: Workload, number: int, now: float
) -> QueuePlace | None:
    from steersman.orders.live_history import read_run_times
    from steersman.simulation.prediction.moment import moment_of
    from steersman.simulation.prediction.queue_place import WaitingQueue

    history = None if options.run_times is None else read_run_times(options.run_times)
    moment = moment_of(source, now, history)
    if moment.runs(number):
        return None
    return WaitingQueue(moment, order).place(source.pods[number], float(moment.began[number]))


def _as_they_run(source: Workload) -> list[Pod]:
    from steersman.cluster.state import device_indices

    recorded = source.recorded or (None,) * len(source.pods)
    return [
        pod if where is None else pod.bound(where.node, device_indices(where.devices))
        for pod, where in zip(source.pods, recorded, strict=True)
    ]


def _take_snapshot(target: ClusterOptions, warn: Warnings) -> Workload:
    from steersman.apps.recorder import snapshot

    async def take(client: Client) -> Workload:
        return await snapshot.take_snapshot(client, "the cluster", free=False)

    cluster = run_with_client(target.find(), take)
    warn(cluster.warnings)
    return cluster


def _measure(file: Path, cluster: Workload) -> TelemetryCollector:
    from steersman.prometheus.collector import TelemetryCollector, addresses_of

    addresses = addresses_of(cluster.nodes)
    collector = TelemetryCollector(read_configuration(file), lambda: addresses)
    with status_if_slow("querying Prometheus"):
        asyncio.run(collector.query_once())
    return collector


def _print_tables(explanation: Explanation, pod: str) -> None:
    policy = explanation.policy
    if explanation.member:
        policy = f"{explanation.policy} (its member {explanation.member})"
    if explanation.choice:
        print_text(f"short simulations with these nodes and pods: {explanation.choice}")
    if explanation.not_scheduled:
        print_text(f"{pod} is not placed now: {explanation.not_scheduled}")
    if not explanation.node:
        print_text(f"{policy} finds no node for {pod}: it fits on none of {explanation.nodes}")
    else:
        others = ", ".join(f"{runner_up.node} {runner_up.points:.1f}" for runner_up in explanation.runners_up)
        then = f"; then {others}" if others else ""
        print_text(
            f"{policy} {'would place' if explanation.not_scheduled else 'places'} {pod} on {explanation.node} "
            f"({explanation.points:.1f} points, score {explanation.score:.4g}){then}"
        )
        equal = explanation.equal
        ties = f"{equal} other {'nodes have' if equal > 1 else 'node has'} the same score; " if equal else ""
        print_text(f"{ties}deciding criterion: {explanation.decided_by}")
        if explanation.runners_up:
            print_text(
                "0 and 100 points are the worst and the best score of the nodes on which it fits; they are "
                f"{explanation.spread:.4g} apart"
            )
    if explanation.features:
        nodes = explanation.node, explanation.compared_with
        rows = [
            (feature.name, f"{feature.value:.4g}", f"{feature.other:.4g}", f"{feature.points:+.1f}")
            for feature in explanation.features[:SHOWN_FEATURES]
        ]
        if rest := explanation.features[SHOWN_FEATURES:]:
            rows.append((f"{len(rest)} more", "", "", f"{sum(feature.points for feature in rest):+.1f}"))
        print_rows(rows, ["Contribution to the difference"], [*nodes, "points"], " and ".join(nodes))
    if explanation.refused:
        counts = sorted(explanation.refused.items(), key=lambda item: -item[1])
        print_rows([(reason, str(count)) for reason, count in counts], ["Reason why nodes are out"], ["nodes"])
    for sentence in filter(None, (explanation.other_gpus, explanation.preemption)):
        print_text(sentence)


def _print_queue(queue: QueuePlace, now: AssumedNow) -> None:
    pod, others = queue.pod, "waiting pod goes" if queue.ahead == 1 else "waiting pods go"
    print_text(f"order {queue.order}: {queue.ahead or 'no'} other {others} before {pod.pod} ({queue.waiting} wait)")
    if now.sentence:
        print_text(now.sentence)
    rows: list[tuple[str, ...]] = []
    for each in (*queue.first, pod):
        runs = "" if each.estimate is None else format_duration(each.estimate)
        numbers = str(each.priority), format_duration(each.waited), f"{each.size:.3g}", runs
        if each is pod and queue.ahead > len(queue.first):
            rows.append((f"{queue.ahead - len(queue.first)} more", "", "", "", "", ""))
        rows.append((each.pod, *numbers, each.reason))
    print_rows(rows, ["Next"], ["priority", "waits for", "size", "runs for", "before it by"])
    if queue.changes:
        print_rows([(each.change, str(each.ahead)) for each in queue.changes], ["Further ahead"], ["before it"])
