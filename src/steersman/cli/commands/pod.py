"""`steersman explain` and `steersman wait`: where a policy places a pod, when it starts, and why."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steersman.cli.options.cluster import ClusterOptions, run_with_client, say_without_telemetry
from steersman.cli.options.common import (
    MAX_SEED,
    KubernetesOption,
    LiveOrderOption,
    TableOrJson,
    TableOrJsonOption,
    TelemetryOption,
    advanced_path,
    order_option,
    policy_option,
)
from steersman.cli.options.declaring import advanced, option, with_options
from steersman.cli.options.inputs import (
    AssumedNow,
    FileInputs,
    NowOption,
    check_moment,
    clock,
    is_named,
    pod_index,
    read_now,
    reads_files,
    say_if_gone,
)
from steersman.cli.options.policies import PolicyServer, check_live_order, split_order, with_minor
from steersman.cli.output.display import Warnings, print_json, print_rows, print_text, status_if_slow
from steersman.cluster.model import Pod
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.garbage_collection import no_collection
from steersman.core.quantities import format_duration
from steersman.prometheus.configuration import read_configuration
from steersman.workloads.files import YAML_SUFFIXES, input_path
from steersman.workloads.workload import RunningPods, Workload

if TYPE_CHECKING:
    from steersman.live.service.messages import Explanation
    from steersman.orders.order import Order
    from steersman.policies.base import Policy
    from steersman.prometheus.collector import TelemetryCollector
    from steersman.simulation.prediction.prediction import QueuePrediction, WaitPrediction
    from steersman.simulation.prediction.queue_place import QueuePlace

SHOWN_FEATURES = 10  # features in the table; --format json has all


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    pod: str = option("Pod to place, as NAME or NAMESPACE/NAME.", default=..., metavar="NAME")
    policy: str = policy_option("Policy to explain", default="steersman")
    kubernetes: KubernetesOption = None
    order: str | None = order_option(
        "Also say which waiting pods go before it, why, and what would put it further ahead, in this order",
        " [default: that of the policy, if it has one]",
    )
    run_times: Path | None = advanced_path(
        "--order: take run times from the FILE that 'steersman schedule --run-times' keeps. [default: from the "
        "pods of the cluster that have ended and are still listed]"
    )
    now: NowOption = None
    telemetry: TelemetryOption = None
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def explain(options: ExplainOptions, inputs: FileInputs, cluster: ClusterOptions, server: PolicyServer) -> None:
    """Explain where a policy would place a pod: what separates that node from the runner-up, and why others fail.

    Reads a live cluster, a cluster in files or a packaged workload, and changes nothing. A pod that runs already,
    is being deleted or has scheduling gates is placed as if it were pending, and the answer says so.

    **Example**: steersman explain --policy steersman --pod training/worker-0

    **Who goes before it**: steersman explain --order wfp3:easy --pod training/worker-0

    **By measured metrics**: steersman explain --policy p0 --telemetry telemetry.yaml --pod web/nginx-0
    """
    server.use()
    is_recorded = reads_files(inputs, cluster)
    if is_recorded and options.telemetry is not None:
        raise UsageError(
            "--telemetry is about a live cluster's metrics; leave it out, or leave out --nodes, --pods and --workload"
        )

    with no_collection():  # all objects live until the end, and scanning them would take 0.3 s
        from msgspec import to_builtins

        from steersman.live.service.scoring.explanation import explain_placed, explain_pod
        from steersman.policies.kube_scheduler.spreading import scheduled_by

        (name,) = with_minor([options.policy], options.kubernetes, None if is_recorded else cluster)
        about_order = {"--run-times": options.run_times, "--now": options.now}
        has_telemetry = options.telemetry is not None
        policy, follows_order = _deciding_policy(name, options.order, about_order, has_telemetry=has_telemetry)
        warn, queue, now = Warnings(), None, AssumedNow(None)
        if follows_order:
            source, now = read_now(inputs, cluster, warn, options.now)
            check_moment(source)
        else:
            as_written = RunningPods.AS_WRITTEN
            source = inputs.read(warn, as_written)[0] if is_recorded else _snapshot_of(cluster)
            warn(() if is_recorded else source.warnings)
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
        _print_place(queue, now)
    elif follows_order:
        print_text(f"{options.pod} runs already: no pod goes before it")


def _deciding_policy(
    spec: str, stated_order: str | None, about_order: Mapping[str, object] | None = None, *, has_telemetry: bool = False
) -> tuple[Policy, bool]:
    """Return a policy in its order, and whether it has one that is not that of age; `about_order`: what needs one."""
    from steersman.orders.order import AGE
    from steersman.policies.registry import in_order, resolve

    name, order = split_order(spec, stated_order)
    policy = resolve(name)
    follows_order = bool(order) or policy.order != AGE
    for flag, value in (about_order or {}).items():
        if value is not None and not follows_order:
            raise UsageError(f"{flag} is about the order of waiting pods; give --order, such as --order wfp3:easy")
    say_without_telemetry(policy, name, has_telemetry=has_telemetry)
    policy = in_order(policy, order)
    if follows_order:
        check_live_order(policy.order, name, is_own=not order)
    return policy, follows_order


def _place_in_queue(
    options: ExplainOptions, order: Order, source: Workload, number: int, now: float
) -> QueuePlace | None:
    from steersman.orders.run_time_history import read_run_times
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


def _snapshot_of(cluster: ClusterOptions) -> Workload:
    from steersman.live.recorder.snapshot import take_snapshot

    return run_with_client(cluster.find(), lambda client: take_snapshot(client, "the cluster", budgets=True))


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


def _print_place(queue: QueuePlace, now: AssumedNow) -> None:
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


ROLLOUTS, MOST_ROLLOUTS = 50, 10_000
SHOWN_PODS = 50
"""Pods of the queue in the table; --format json has all."""
MOST_PRIORITY = 1_000_000_000
"""The highest priority that Kubernetes allows to users."""


@dataclass(frozen=True, slots=True)
class WaitOptions:
    pod: str | None = option(
        "Pod that waits, as NAME or NAMESPACE/NAME, or a file (-: standard input) with a pod, Job, Deployment, ... "
        "that was not submitted yet: its pods are put behind the queue now. [default: all pods that wait]",
        metavar="NAME|FILE",
    )
    policy: str = policy_option("Policy that decides", default="steersman")
    order: LiveOrderOption = None
    run_times: Path | None = advanced_path(
        "Take run times from the FILE that 'steersman schedule --run-times' keeps. [default: from the pods of the "
        "cluster that have ended and are still listed]"
    )
    now: NowOption = None
    priority: int | None = advanced(
        "Also try this priority, which would delay others. [default: none]", min=-MOST_PRIORITY, max=MOST_PRIORITY
    )
    rollouts: int = advanced("Number of simulated futures.", default=ROLLOUTS, min=1, max=MOST_ROLLOUTS)
    seed: int = advanced("Seed of their random numbers.", default=0, min=0, max=MAX_SEED)
    output_format: TableOrJsonOption = TableOrJson.TABLE


@with_options
def wait(options: WaitOptions, inputs: FileInputs, cluster: ClusterOptions, server: PolicyServer) -> None:
    """Predict when a pod starts, say what it waits for, and what would let it start sooner; or list the whole queue.

    Simulates the cluster from now on, many times: running pods end as pods like them did, given for how long they have
    run; others arrive as they did lately; the policy and its order decide. Reads the cluster and changes nothing.

    **Example**: steersman wait --pod training/worker-0

    **Before it is submitted**: steersman wait --pod job.yaml --policy steersman --order shortest

    **The queue**: steersman wait --policy steersman --order wfp3:easy
    """
    if options.pod is None and options.priority is not None:
        raise UsageError("--priority is tried for one pod; name it with --pod")
    server.use()
    with no_collection():
        from steersman.orders.run_time_history import read_run_times
        from steersman.simulation.prediction.moment import moment_of
        from steersman.simulation.prediction.prediction import QueuePrediction, predict_queue, predict_wait
        from steersman.simulation.run import decider_on

        policy, _ = _deciding_policy(options.policy, options.order)
        history = None if options.run_times is None else read_run_times(options.run_times)
        warn = Warnings()
        source, now = read_now(inputs, cluster, warn, options.now)
        check_moment(source)
        pods, later = (None, 0) if options.pod is None else _pods(source, options.pod, warn)
        if pods and options.priority is not None and options.priority <= pods[0].priority:
            raise UsageError(f"--priority {options.priority}: must be above the pod's own, which is {pods[0].priority}")
        moment = moment_of(source, now.seconds or 0.0, history)
        sample: Any = {"rollouts": options.rollouts, "seed": options.seed}
        with status_if_slow("simulating what comes"):
            decides = decider_on(source, policy)
            prediction: WaitPrediction | QueuePrediction
            if pods is None:
                prediction = predict_queue(moment, decides, **sample)
            else:
                prediction = predict_wait(moment, pods, decides, **sample, priority=options.priority)
    if options.output_format is TableOrJson.JSON:
        more = {"now": now.seconds} if pods is None else {"now": now.seconds, "later": later}
        print_json({**asdict(prediction), **more})
    elif isinstance(prediction, QueuePrediction):
        _print_queue(prediction, now)
    else:
        _print(prediction, options, now, later)


def _pods(source: Workload, spec: str, warn: Warnings) -> tuple[list[Pod], int]:
    """Return the pods whose start is asked for, and how many their Jobs create once these have ended."""
    is_pod = any(is_named(spec, pod.namespace, pod.name) for pod in source.pods)
    if spec.endswith(YAML_SUFFIXES) or (not is_pod and input_path(spec).exists()):
        return _new_pods(source, input_path(spec), warn)
    say_if_gone(source, spec)
    number = pod_index(source, spec)
    where = source.recorded[number] if source.recorded else None
    pod = source.pods[number]
    if where is None:
        return [pod], 0
    life = source.lives.present.get((pod.namespace, pod.name))
    began = None if life is None else life.started or life.created
    since = "" if began is None else f" since {clock(began)}"
    raise SteersmanError(f"--pod {spec}: it does not wait: it runs on {where.node}{since}")


def _new_pods(source: Workload, file: Path, warn: Warnings) -> tuple[list[Pod], int]:
    from steersman.workloads.loading import further_pods

    found = further_pods(file, source)
    warn(found.warnings)
    pods = list(found.pods)
    if any(pod.gated for pod in pods):
        gates = "they have scheduling gates; leave out spec.schedulingGates to predict their start without them"
        raise SteersmanError(f"--pod {file}: no scheduler looks at its pods: {gates}")
    if any(pod.constraints.node_name for pod in pods):
        raise SteersmanError(f"--pod {file}: a pod names its node, so that it does not wait for a scheduler")
    if len({pod.pod_class for pod in pods}) > 1:
        raise SteersmanError(f"--pod {file}: its {len(pods)} pods differ; give a file of one kind of pods")
    return pods, found.later


def _print(prediction: WaitPrediction, options: WaitOptions, now: AssumedNow, later: int) -> None:
    count, spec = len(prediction.pods), options.pod
    what = prediction.pods[0] if count == 1 else f"the last of {count} pods of {spec}"
    if prediction.impossible:
        print_text(f"{what} can never start: {prediction.impossible}")
        return
    if later:
        first = f"the first {count} {'is' if count == 1 else 'are'} predicted"
        print_text(f"of the {count + later} pods of {spec} {first}: parallelism allows no more at once")
    horizon = format_duration(prediction.horizon)

    def within(seconds: float) -> str:
        if math.isinf(seconds):
            return f"not within {horizon}"
        return f"within {format_duration(seconds)}{_at(now, seconds)}"

    median = f"more than {horizon}" if math.isinf(prediction.p50) else format_duration(prediction.p50)
    rollouts = f"{prediction.rollouts} simulated futures under {prediction.policy}, order {prediction.order}"
    is_hopeless = not prediction.nodes and prediction.never == 1.0
    if is_hopeless:
        print_text(f"{what} starts in none of {rollouts}: no node could hold it next to the pods that stay")
    else:
        print_text(f"{what} starts in {median}{_at(now, prediction.p50)} (median of {rollouts})")
        print_text(f"10 %: {within(prediction.p10)}")
        print_text(f"90 %: {within(prediction.p90)}")
    if now.sentence:
        print_text(now.sentence)
    if prediction.never and not is_hopeless:
        print_text(f"in {100 * prediction.never:.0f} % of the futures it does not start within {horizon}")
    nodes = f"{prediction.nodes} node{'' if prediction.nodes == 1 else 's'} could hold it once what runs there ends"
    print_text(f"it needs {prediction.needs} on one node; {nodes}")
    if prediction.gang:
        which = (
            "which start" if prediction.together == prediction.members else f"of which {prediction.together} must start"
        )
        of_gang = f"it is one of the {prediction.members} pods of gang {prediction.gang}"
        print_text(f"{of_gang}, {which} together")
    if prediction.refused:
        print_text(f"now: {prediction.refused}")
    others = "pod goes" if prediction.waiting == 1 else "pods go"
    print_text(f"{prediction.ahead} of {prediction.waiting} other waiting {others} before it")
    for sentence in prediction.assumptions:
        print_text(f"assumed: {sentence}")
    if prediction.alternatives:
        rows = [(each.change, format_duration(each.seconds), median) for each in prediction.alternatives]
        print_rows(rows, ["Starts sooner"], ["median", "instead of"])
    tried = f"with priority {options.priority}"
    if options.priority is not None and all(each.change != tried for each in prediction.alternatives):
        print_text(f"{tried}: no clear gain")


def _print_queue(prediction: QueuePrediction, now: AssumedNow) -> None:
    if not prediction.pods:
        print_text("no pod waits")
        return
    horizon = format_duration(prediction.horizon)

    def when(seconds: float) -> str:
        return f"> {horizon}" if math.isinf(seconds) else format_duration(seconds)

    title = f"Starts in {prediction.rollouts} simulated futures under {prediction.policy}, order {prediction.order}"
    rows: list[tuple[str, ...]] = []
    for each in prediction.pods[:SHOWN_PODS]:
        times = ("never", "", "") if each.impossible else tuple(map(when, (each.p10, each.p50, each.p90)))
        name = f"{each.pod} (gang {each.gang} of {each.members})" if each.gang else each.pod
        rows.append((name, each.needs, str(each.priority), format_duration(each.waited), *times))
    if len(prediction.pods) > SHOWN_PODS:
        rows.append((f"{len(prediction.pods) - SHOWN_PODS} more", *("",) * 6))
    numbers = ["priority", "waits for", "10 %: within", "median", "90 %: within"]
    print_rows(rows, ["Next", "requests"], numbers, title)
    if now.sentence:
        print_text(now.sentence)
    for reason, count in Counter(each.impossible for each in prediction.pods if each.impossible).items():
        print_text(f"{count} can never start: {reason}")
    for sentence in prediction.assumptions:
        print_text(f"assumed: {sentence}")


def _at(now: AssumedNow, seconds: float) -> str:
    return "" if now.seconds is None or math.isinf(seconds) else f", at {clock(now.seconds + seconds)}"
