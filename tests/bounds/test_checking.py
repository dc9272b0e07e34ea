"""What checks the kernels' indices notices those that are out of range: the check is checked."""

import numpy as np
import pytest
from tests.bounds.checking import KERNELS, Checked, checked

from steersman.cluster import arrays
from steersman.cluster.model import Node, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.core import compiled


@compiled.kernel
def _read(table, i, j):
    return table[i, j]


@compiled.inlined_kernel
def _write(row, i):
    row[i] = 1.0


@compiled.kernel
def _write_in_row(table, i, j):
    _write(table[i], j)


@compiled.kernel
def _cut(table, i, j):
    return table[i:j].sum()


@pytest.mark.parametrize(("i", "j"), [(3, 0), (-1, 0), (0, 4), (0, -1), (-4, 0), (1 << 40, 0)])
def test_an_index_out_of_range_is_an_error(i, j):
    for kernel in (_read, _write_in_row):
        with pytest.raises(IndexError, match="on axis 0" if not 0 <= i < 3 else "on axis"):
            kernel(np.zeros((3, 4)), i, j)


@pytest.mark.parametrize(("i", "j"), [(0, 4), (-1, 3), (2, 1)])
def test_a_slice_out_of_range_is_an_error(i, j):
    with pytest.raises(IndexError):
        _cut(np.zeros((3, 4)), i, j)


def test_index_in_range_is_no_error_and_writes_to_its_element():
    table = np.zeros((3, 4))
    _write_in_row(table, np.int64(2), 3)
    assert table[2, 3] == _read(table, 2, 3) == _cut(table, 2, 3) == 1.0
    assert type(table) is np.ndarray


def test_arrays_in_named_tuples_are_checked_in_place():
    nodes = ClusterState([Node("a", 10, 10, gpu_count=2)]).arrays
    found = checked((nodes, 3))
    assert all(isinstance(each, Checked) for each in found[0])
    assert np.shares_memory(found[0].free, nodes.free)
    assert found[1] == 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda nodes: nodes._replace(gpu_free=nodes.gpu_free[:, :1]),  # beyond the end of the second axis
        lambda nodes: nodes._replace(free=nodes.free[:0]),  # beyond the end of the first
        lambda nodes: nodes._replace(gpu_count=nodes.gpu_count + 1),  # one device too many
    ],
)
def test_a_fault_in_the_arrays_of_a_real_kernel_is_found(spoil):
    state = ClusterState([Node("a", 1000, 1000, gpu_count=2), Node("b", 1000, 1000, gpu_count=2)])
    c = state.class_id(PodClass(Requests(cpu_milli=10, gpu_count=1, gpu_milli=10)))
    assert arrays.best_devices(state.arrays, state.class_arrays, c, 1) == 1
    for node in (-1, 2):
        with pytest.raises(IndexError):
            arrays.fits(state.arrays, state.class_arrays, c, node)
    with pytest.raises(IndexError):
        _place_and_look(spoil(state.arrays), state.class_arrays, c)


def _place_and_look(nodes, classes, c):
    arrays.place(nodes, classes, c, 1, 1)
    arrays.fits(nodes, classes, c, 1)


def test_kernels_are_not_compiled_here():
    assert "cluster.arrays.fits" in KERNELS
    assert not hasattr(arrays.fits, "signatures")
