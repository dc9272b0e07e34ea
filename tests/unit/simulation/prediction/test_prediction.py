"""Predictions of waits in clusters whose future is nearly known."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.support.errors import raises
from tests.support.frozen import ranks, simulated_history

from steersman.cluster.model import (
    Constraints,
    Node,
    Pod,
    PodAffinityTerm,
    PodClass,
    PodSelector,
    Requests,
    Requirement,
)
from steersman.core.errors import UsageError
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import RunTimeHistory
from steersman.policies.base import with_order
from steersman.policies.registry import resolve
from steersman.simulation.prediction import rollouts
from steersman.simulation.prediction.moment import Arrived, ClusterMoment
from steersman.simulation.prediction.obstacles import needs_of
from steersman.simulation.prediction.prediction import WaitPrediction, predict_queue, predict_wait
from steersman.simulation.prediction.queue_place import WaitingQueue
from steersman.workloads.generators.clusters import random_cluster
from steersman.workloads.workload import Recorded, Workload

GIB = 1 << 30
FGD = resolve("fgd")
BIN = 90.5, 128.0
"""Seconds between which a pod ends where all that ended took 100 s: the bin of the histogram."""


def pod(name: str, gpus: int = 1, owner: str = "Job/a", priority: int = 0, models: tuple[str, ...] = ()) -> Pod:
    requests = Requests(cpu_milli=1000, memory_bytes=GIB, gpu_count=gpus, gpu_milli=1000)
    return Pod(name, PodClass(requests, Constraints(gpu_models=models)), owner=owner, priority=priority)


def node(name: str, gpus: int = 1, model: str = "A100") -> Node:
    return Node(name, 64_000, 64 * GIB, gpu_count=gpus, gpu_model=model)


def known(*owners: str) -> RunTimeHistory:
    """Return a history of pods that ran for 100 s."""
    history = RunTimeHistory()
    for _ in range(1000):
        for owner in owners or ("Job/a",):
            history.note(pod("p", owner=owner), 100.0)
    return history


def moment(
    running: list[tuple[Pod, str, float]],
    waiting: list[tuple[Pod, float]],
    nodes: tuple[Node, ...] = (node("n"),),
    history: RunTimeHistory | None = None,
    **more: object,
) -> ClusterMoment:
    """Return a cluster: pods with their nodes and the seconds that they ran, and pods with the seconds they waited."""
    pods = (*(each for each, _, _ in running), *(each for each, _ in waiting))
    recorded = (*(Recorded(where, 1) for _, where, _ in running), *(None for _ in waiting))
    began = np.array([*(-ran for _, _, ran in running), *(-waited for _, waited in waiting)])
    workload = Workload("w", nodes, pods, recorded=recorded, from_now=True)
    return ClusterMoment(workload, began, known() if history is None else history, **more)  # type: ignore[arg-type]


def predicted(there: ClusterMoment, of: Pod, order: str = "age", **more: int) -> WaitPrediction:
    return predict_wait(there, [of], with_order(FGD, find_order(order)), **more)


def test_a_pod_starts_when_the_running_one_ends() -> None:
    waits = pod("w")
    found = predicted(moment([(pod("r"), "n", 50.0)], [(waits, 5.0)]), waits)
    assert BIN[0] - 50 <= found.p10 <= found.p50 <= found.p90 <= BIN[1] - 50
    assert (found.never, found.ahead, found.waiting, found.nodes) == (0.0, 0, 0, 1)
    assert found.refused == "0/1 nodes are available: 1 Insufficient GPU."
    assert found.needs == "1 GPU, 1 CPU, 1 GiB"


def test_older_pods_and_those_of_higher_priority_go_first() -> None:
    young, old, urgent = pod("young"), pod("old"), pod("urgent", priority=1)
    there = moment([(pod("r"), "n", 50.0)], [(urgent, 1.0), (old, 60.0), (young, 30.0)])
    found = [predicted(there, each) for each in (urgent, old, young)]
    assert [each.ahead for each in found] == [0, 1, 2]
    for before, then in pairwise(found):
        assert BIN[0] <= then.p50 - before.p50 <= BIN[1]


def test_the_order_decides_who_is_ahead() -> None:
    """`shortest` lets a pod that stated a minute go before an older one of unknown run time."""
    quick, old = replace(pod("quick"), estimated_seconds=60.0), pod("old")
    there = moment([(pod("r"), "n", 50.0)], [(old, 60.0), (quick, 30.0)])
    assert predicted(there, quick).ahead == 1
    by_length = predicted(there, quick, "shortest")
    assert by_length.ahead == 0
    assert by_length.p90 <= BIN[1] - 50


def test_the_whole_queue_is_predicted_in_its_order() -> None:
    """Each pod as if it were asked about alone, in the same futures; what can never start has its reason."""
    young, old, large, urgent = pod("young"), pod("old"), pod("large", gpus=2), pod("urgent", priority=1)
    there = moment([(pod("r"), "n", 50.0)], [(old, 60.0), (large, 50.0), (young, 30.0), (urgent, 1.0)])
    found = predict_queue(there, FGD)
    assert [each.pod for each in found.pods] == [f"default/{name}" for name in ("urgent", "old", "large", "young")]
    assert [each.waited for each in found.pods] == [1.0, 60.0, 50.0, 30.0]
    for each, one in zip(found.pods, (urgent, old, large, young), strict=True):
        alone = predicted(there, one)
        assert (each.p10, each.p50, each.p90) == (alone.p10, alone.p50, alone.p90)
        assert each.never == alone.never
        assert each.impossible == alone.impossible
    assert found.pods[2].impossible == "0/1 nodes are available: 1 Insufficient GPU."
    shortest = predict_queue(there, with_order(FGD, find_order("smallest")))
    assert [each.pod for each in shortest.pods][-1] == "default/large"
    assert predict_queue(moment([(pod("r"), "n", 50.0)], []), FGD).pods == ()


def test_pods_that_can_never_start_and_its_own_gang_are_no_other_pods() -> None:
    """In a prediction as in the explanation of a pod's place."""
    waits, of_gang = (replace(pod(name), gang="g") for name in ("w", "v"))
    others = [(of_gang, 70.0), (pod("old"), 60.0), (pod("large", gpus=3), 60.0)]
    there = moment([(pod("r"), "n", 50.0)], [*others, (waits, 30.0)], (node("n", 2),))
    found = predicted(there, waits)
    place = WaitingQueue(there, find_order("age")).place(waits, -30.0)
    assert (found.ahead, found.waiting) == (place.ahead, place.waiting) == (1, 1)
    assert [each.pod for each in place.first] == ["default/old"]


def test_a_new_pod_is_put_behind_the_queue() -> None:
    there, new = moment([(pod("r"), "n", 50.0)], [(pod("w"), 5.0)]), pod("new")
    found = predicted(there, new)
    assert (found.ahead, found.waiting) == (1, 1)
    assert found.p50 > 2 * BIN[0] - 50
    assert predicted(moment([], []), new).p90 == 0.0


def test_of_several_pods_the_last_one_counts() -> None:
    there, new = moment([(pod("r"), "n", 50.0)], []), [pod("new-0"), pod("new-1")]
    assert predict_wait(there, new, FGD).p50 > 2 * BIN[0] - 50


def test_a_pod_that_fits_on_no_node_is_said_at_once() -> None:
    large = pod("large", 2)
    found = predicted(moment([], [(large, 1.0)]), large)
    assert found.impossible == "0/1 nodes are available: 1 Insufficient GPU."
    assert found.rollouts == 0


def test_a_gang_that_never_fits_together_is_said_at_once() -> None:
    """Though each of its pods would fit alone; two of three do, and others wait for none of it."""
    gang = [replace(pod(f"g{k}", 8), gang="train") for k in range(3)]
    nodes, other = (node("n", 8), node("m", 8)), pod("other")
    there = moment([], [*((each, 5.0) for each in gang), (other, 1.0)], nodes)
    found = predicted(there, gang[1])
    said = "gang train of 3 pods does not fit on the empty cluster: it needs 24 GPUs, 3 CPUs, 3 GiB at once"
    assert found.impossible == said
    assert (found.gang, found.members) == ("train", 3)
    queue = predict_queue(there, FGD)
    assert [each.impossible for each in queue.pods] == [*[found.impossible] * 3, ""]
    assert [(each.gang, each.members) for each in queue.pods] == [*[("train", 3)] * 3, ("", 1)]
    assert predicted(there, other).waiting == 0
    assert predict_wait(moment([], [], nodes), gang, FGD).impossible == found.impossible
    two = moment([], [(each, 5.0) for each in gang[:2]], nodes)
    assert (predicted(two, gang[1]).impossible, predicted(two, gang[1]).p90) == ("", 0.0)
    # One that can never start keeps the others from it.
    large = [gang[0], replace(gang[1], pod_class=pod("g1", 9).pod_class)]
    assert predicted(moment([], [(each, 5.0) for each in large], nodes), large[0]).impossible == (
        "gang train of 2 pods starts as one, and default/g1 never can: 0/2 nodes are available: 2 Insufficient GPU."
    )


def test_a_pod_may_start_beside_one_that_it_needs() -> None:
    """Though it could not if the cluster were empty."""
    needs = PodAffinityTerm(PodSelector((Requirement("app", "In", ("db",)),), None), "zone")
    there = replace(node("n"), labels={"zone": "z"})
    database = replace(pod("db", 0, owner=""), labels={"app": "db"})
    waits = pod("w")
    waits = replace(waits, pod_class=replace(waits.pod_class, constraints=Constraints(affinity=(needs,))))
    running = [(pod("r"), "n", 50.0), (database, "n", 50.0)]
    found = predicted(moment(running, [(waits, 1.0)], (there,)), waits)
    assert found.impossible == ""
    assert BIN[0] - 50 <= found.p50 <= BIN[1] - 50


def test_pods_that_a_controller_replaces_stay() -> None:
    waits, server = pod("w"), pod("server", owner="ReplicaSet/s")
    there = moment([(server, "n", 1e5)], [(waits, 1.0)])
    found = predicted(there, waits)
    assert (found.never, found.p50, found.nodes) == (1.0, math.inf, 0)
    assert "1 running pods have a controller that replaces them: they are taken to stay" in found.assumptions
    # Unless such pods are known to end.
    assert predicted(replace(there, history=known("ReplicaSet/s")), waits).never < 1.0


def test_pods_that_arrive_may_overtake() -> None:
    """A pod of two GPUs needs both at once, and others of one GPU take each as it comes free."""
    waits, nodes = pod("w", 2), (node("n", 2),)
    running = [(pod("r"), "n", 50.0), (pod("s"), "n", 90.0)]
    there = moment(running, [(waits, 1.0)], nodes)
    there = replace(there, workload=replace(there.workload, recorded=(Recorded("n", 1), Recorded("n", 2), None)))
    alone = predicted(there, waits)
    assert alone.assumptions == ("no arrivals are known: nobody else is taken to be submitted",)
    arrived = tuple(Arrived(pod(f"a{k}"), 10.0 * k) for k in range(1, 361))
    busy = replace(there, arrived=arrived, observed=3600.0)
    assert not predicted(busy, waits).assumptions
    few = predicted(replace(there, arrived=arrived[:1], observed=5.0), waits)
    assert few.assumptions == ("arrivals are known for 5 s: the same number is assumed for each hour",)
    assert predicted(busy, waits).p90 > 3 * alone.p90
    # Nobody overtakes here.
    assert predicted(busy, waits, "fcfs").p90 <= BIN[1] - 50


def test_changes_that_help_are_found_and_others_are_not() -> None:
    waits = pod("w", models=("A100",))
    nodes = (node("n"), node("m", model="T4"))
    found = predicted(moment([(pod("r"), "n", 1.0)], [(waits, 5.0)], nodes), waits)
    assert [(each.change, each.seconds) for each in found.alternatives] == [("without the GPU model", 0.0)]
    assert found.alternatives[0].gain == pytest.approx(found.p50, rel=0.01)


def test_a_higher_priority_is_tried_on_demand_alone() -> None:
    young = pod("young")
    there = moment([(pod("r"), "n", 10.0)], [(pod("old"), 60.0), (young, 30.0)])
    assert predicted(there, young).alternatives == ()
    assert [each.change for each in predicted(there, young, priority=5).alternatives] == ["with priority 5"]


def test_a_stated_run_time_helps_under_an_order_that_uses_it() -> None:
    history = RunTimeHistory()
    for _ in range(100):
        history.note(pod("p"), 7200.0)
    waits = pod("w", owner="")
    old = replace(pod("old"), estimated_seconds=4000.0)
    there = moment([(pod("r"), "n", 10.0)], [(old, 60.0), (waits, 30.0)], history=history)
    changes = {each.change for each in predicted(there, waits, "shortest").alternatives}
    assert "stating a run time of 1 h" in changes
    assert predicted(there, waits).alternatives == ()


def test_the_seed_decides() -> None:
    waits = pod("w")
    there = moment([(pod("r"), "n", 50.0)], [(waits, 5.0)])
    assert predicted(there, waits, seed=1) == predicted(there, waits, seed=1)
    assert predicted(there, waits, seed=1).p50 != predicted(there, waits, seed=2).p50


@pytest.mark.parametrize("order", ["age", "wfp3:easy"])
def test_the_queue_and_one_of_its_pods_have_the_same_times(order: str) -> None:
    """In the same futures, though changes of the pod are tried, and futures of a pod end when it has started."""
    policy = with_order(FGD, find_order(order))
    history = simulated_history(random_cluster(3), policy, 1.1, 3)
    there, _ = history.moment(float(history.plan.time[-1]) / 2.0)
    pods = {f"{each.namespace}/{each.name}": each for each in there.workload.pods}
    queue = predict_queue(there, policy, rollouts=20).pods
    assert len(queue) > 3
    assert any(each.p50 > 60.0 for each in queue)
    for each in (*queue[:3], *queue[-3:]):
        alone = predict_wait(there, [pods[each.pod]], policy, rollouts=20)
        assert (each.p10, each.p50, each.p90, each.never) == (alone.p10, alone.p50, alone.p90, alone.never)


def test_times_are_no_finer_than_their_errors() -> None:
    """Minutes do not count where the median of fifty futures may be off by hours."""
    history = RunTimeHistory()
    for k in range(200):
        history.note(pod("p"), 60.0 * 2.0 ** (k / 20))
    waits = pod("w")
    vague = predicted(moment([(pod("r"), "n", 50.0)], [(waits, 5.0)], history=history), waits)
    assert vague.p50 % 600.0 == 0.0
    assert vague.p10 % 10.0 == 0.0
    assert 0.0 < vague.p10 < vague.p50 < vague.p90
    # More futures make it finer.
    many = predicted(moment([(pod("r"), "n", 50.0)], [(waits, 5.0)], history=history), waits, rollouts=5000)
    assert many.p50 % 600.0 != 0.0


def test_rollouts_beside_each_other_are_those_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores make a prediction faster and change nothing, also where starts are late and rollouts are played longer."""
    policy = resolve("fgd+wfp3:easy")
    history = simulated_history(random_cluster(3), policy, 1.1, 3)
    there, starts = history.moment(float(history.plan.time[-1]) / 2.0)
    pods = there.workload.pods
    oldest = pods[len(pods) - len(starts)]
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(rollouts, "default_jobs", lambda cores=cores: cores)
        found.append((predict_queue(there, policy, rollouts=10), predict_wait(there, [oldest], policy, rollouts=20)))
    assert found[0] == found[1]
    assert len(found[0][0].pods) > 3


@pytest.mark.parametrize("rollouts", [0, -1, 10_001])
def test_invalid_rollouts_are_refused(rollouts: int) -> None:
    waits = pod("w")
    with raises(UsageError, rollouts):
        predicted(moment([], [(waits, 5.0)]), waits, rollouts=rollouts)


def test_orders_of_simulations_alone_are_refused() -> None:
    waits = pod("w")
    with raises(UsageError, "area@oracle"):
        predicted(moment([], [(waits, 5.0)]), waits, "area@oracle")


def test_intervals_hold_what_happens() -> None:
    """Of small clusters stopped at random moments; `wait-calibration` of the benchmarks measures more."""
    outside = [
        each
        for seed in range(1, 9)
        for load in ((1.0, 1.05, 1.1)[seed % 3],)
        for each in ranks(simulated_history(random_cluster(seed), FGD, load, seed), FGD, 4, 3, 20)
    ]
    before, after, _ = np.array(outside).mean(axis=0)
    assert len(outside) > 80
    # 16 of 21 with exact predictions of 20 rollouts; a third if the time that pods have run already is left out.
    assert 0.65 < 1.0 - before - after < 0.88


def test_replicas_of_a_gpu_are_named_by_their_resource() -> None:
    shared = Requests(1000, 1 << 30, gpu_count=2, gpu_milli=1000, gpu_resource="nvidia.com/gpu.shared")
    assert needs_of(Pod("p", PodClass(shared))) == "2 nvidia.com/gpu.shared, 1 CPU, 1 GiB"
    assert needs_of(Pod("p", PodClass(replace(shared, gpu_resource="nvidia.com/gpu")))) == "2 GPUs, 1 CPU, 1 GiB"
