"""The outlook as kernels read it: by what is left of a device, by group, by model; and beside other mixes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.cluster.model import GPU_MILLI, GpuType, Node, Pod, PodClass, Requests
from steersman.envs.workload import InflationVectorEnv
from steersman.policies.leftovers import LEAST_WASTE, NEVER, PLANNED, leftover_arrays, leftover_tables
from steersman.workloads.profile import TypicalPod, profile_arrays
from steersman.workloads.workload import Workload

SHAPES = st.sampled_from([(0, 0), (1, 190), (1, 500), (1, 1000), (2, 1000)])


@st.composite
def mixes(draw):
    kinds = draw(st.lists(st.tuples(st.sampled_from([500, 4000]), SHAPES, st.booleans()), min_size=1, max_size=4))
    return tuple(
        TypicalPod(cpu, milli, count, ("A",) if only_a and count else (), 1 / len(kinds))
        for cpu, (count, milli), only_a in kinds
    )


@settings(max_examples=8, deadline=None)
@given(mixes(), st.lists(st.integers(0, GPU_MILLI), min_size=1, max_size=5))
def test_tables_match_their_names(pods, amounts):
    profile = profile_arrays(pods, [GpuType("A", ()), GpuType("B", ())])
    leftovers = leftover_arrays(pods)
    tables = leftover_tables(leftovers, profile)
    sizes = sorted({pod.gpu_milli for pod in pods if pod.gpu_count})
    for left in amounts:
        fitting = [size for size in sizes if size <= left]
        dead = 0 if fitting or not sizes else left / GPU_MILLI
        own = [(left - max(fitting, default=0)) / GPU_MILLI, dead, (left / GPU_MILLI) ** 2]
        assert tables.by_left[left, LEAST_WASTE:] == pytest.approx(own)
        assert tables.by_left[left, PLANNED] == leftovers.planned[left]
    for s, sequence in enumerate(leftovers.sequences):
        for j, m in enumerate(sequence):
            for model in range(3):
                refused = pods[m].gpu_models and model != 0
                expected = (NEVER if refused else pods[m].cpu_milli, pods[m].gpu_count, pods[m].gpu_milli)
                assert tuple(tables.steps[model, s, j]) == expected


def workload(name, *requests):
    nodes = tuple(Node(f"{name}{i}", 32000, 1 << 40, gpu_count=2, gpu_model="A") for i in range(4))
    pods = tuple(
        Pod(f"{name}-{i}-{k}", PodClass(Requests(cpu_milli=cpu, memory_bytes=1, gpu_count=count, gpu_milli=milli)))
        for i, (cpu, count, milli) in enumerate(requests)
        for k in range(4)
    )
    return Workload(name, nodes, pods)


def test_features_do_not_depend_on_other_workloads():
    few = workload("few", (4000, 1, 300), (2000, 1, 700))
    many = workload("many", *((1000 * i, 1, 90 * i) for i in range(1, 11)), (8000, 2, 1000), (1000, 0, 0))
    alone, together = (InflationVectorEnv(1, workload=of, view="gpu") for of in ((few,), (many, few)))
    together.reset(seed=1, options={"workload": "many", "seed": 4})
    start = [env.reset(seed=1, options={"workload": "few", "seed": 3})[0] for env in (alone, together)]
    for _ in range(8):
        np.testing.assert_array_equal(start[0]["nodes"], start[1]["nodes"])
        action = alone.heuristic("best-fit")
        start = [env.step(action)[0] for env in (alone, together)]
