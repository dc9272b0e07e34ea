"""An upper bound on the GPU that any scheduler could allocate, by linear programming, for one sequence of arrivals.

The bound holds for every scheduler that never refuses a pod while some node fits it, whatever it knows of the future.
While nothing leaves, free resources only shrink: a pod that fits nowhere will never fit again. So of the pods of one
kind such a scheduler places those up to some moment and none after it; and if kind a fits wherever kind b does, the
moment of a is not before that of b. These moments are variables of the LP. Without them (`refuses`) a scheduler could
keep devices free for pods that it knows will come, which bounds less.

    maximise    sum of the GPU milli of the placed pods
    subject to  each resource of each type of node, pooled over its nodes
                every device holds a pattern of shares that together take at most 1000 milli (whole GPUs: one of 1000)
                at most q - 1 pods a node that each take more than 1/q of its devices, CPU or memory (q = 2, 3, 4)
                at most as many pods of a kind as arrive
                between the envelopes of a kind's arrivals: how many of it are placed by its moment
                moment of the harder kind <= moment of the easier kind

Relaxed, so that the bound can be too high but not too low: numbers of pods and devices may be fractions; resources are
pooled over the nodes of a type; the devices of a pod may be on several nodes; a pod's constraints about other pods
(affinity, spread, ports) are ignored, and pods with such constraints may be placed or not as suits the bound.

Sources: patterns are those of Gilmore and Gomory (Operations Research 9, 1961). The value returned is that of the
dual solution, made feasible: weak duality makes it a bound however inexact the solver is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.gpu_units import counted_milli, device_milli
from steersman.cluster.model import GPU_MILLI, UNLIMITED
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.extras import require_extra
from steersman.core.quantities import ceil_div
from steersman.evaluation.bound.pod_kinds import find_kinds
from steersman.simulation.arrivals import schedule
from steersman.simulation.result import Protocol
from steersman.workloads.workload import Workload

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Ints = npt.NDArray[np.int64]


class Patterns(NamedTuple):
    """The ways to fill a device, P patterns of S sizes."""

    sizes: Ints  # [S] milli of a device, descending
    # [P, S] number of shares of each size in a pattern. Together they take at most 1000 milli, and nothing of the
    # smallest size fits beside them.
    counts: Ints
    exact: bool  # whether `sizes` are all that were requested

    def size_of(self, milli: Ints) -> Ints:
        """Return [G] the index of the largest size that is at most `milli`, S if there is none."""
        return np.asarray((self.sizes[np.newaxis] > milli[:, np.newaxis]).sum(axis=1), dtype=np.int64)


def device_patterns(demand: dict[int, int], limit: int) -> Patterns:
    """Return the patterns of the sizes in `demand` (milli -> GPU milli requested in that size), at most `limit`.

    Their number grows exponentially with that of the sizes. If it exceeds `limit`, only the sizes with the highest
    demand are kept; a share of another size then counts as one of the next smaller size that is kept, which can only
    make more shares fit (a relaxation).
    """
    ranked = sorted(demand, key=lambda milli: (-demand[milli], milli))
    counts = _maximal(ranked, limit)
    if counts is not None:
        return Patterns(np.array(sorted(ranked, reverse=True), dtype=np.int64), counts, True)
    # One size has one maximal pattern, which is always within the limit.
    kept, counts = 1, np.array([[GPU_MILLI // ranked[0]]], dtype=np.int64)
    fewest, most = 2, len(ranked) - 1
    # Bisection: more sizes never have fewer patterns.
    while fewest <= most:
        tried = (fewest + most) // 2
        maximal = _maximal(ranked[:tried], limit)
        if maximal is None:
            most = tried - 1
        else:
            kept, counts, fewest = tried, maximal, tried + 1
    return Patterns(np.array(sorted(ranked[:kept], reverse=True), dtype=np.int64), counts, False)


def _maximal(sizes: Iterable[int], limit: int) -> Ints | None:
    """Return [P, S] all patterns of the sizes, in descending order; None if there are more than `limit`."""
    descending = sorted(sizes, reverse=True)
    last = len(descending) - 1
    result: list[tuple[int, ...]] = []

    def extend(begun: tuple[int, ...], left: int) -> bool:
        size = descending[len(begun)]
        if len(begun) == last:
            result.append((*begun, left // size))
            return len(result) <= limit
        return all(extend((*begun, count), left - count * size) for count in range(left // size, -1, -1))

    return np.array(result, dtype=np.int64) if extend((), GPU_MILLI) else None


Floats = npt.NDArray[np.float64]

MAX_PATTERN_COLUMNS = 40_000  # most patterns by types of nodes: HiGHS solves so many in a second
SHARES_OF_A_NODE = (2, 3, 4)
ROUNDING = 1e-9  # share of all GPU: more than rounding of a sum of floats, less than two decimals show
VERTICAL = 1e-9  # part of the normal of an edge of a hull that rounding leaves upwards where the edge is vertical
PATIENCE_SECONDS = 60.0  # time limit of an LP; the LPs of the published workloads take 1 to 2 seconds
OUT_OF_TIME, INFEASIBLE = 1, 2  # statuses of scipy.optimize.linprog


def check_bound(workload: Workload, protocol: Protocol) -> None:
    if protocol == "timed":
        raise UsageError("the bound is one of GPU allocated at the end: --protocol inflation or arrivals, not timed")
    counting = next((node for node in workload.nodes if node.counted_gpus), None)
    if counting is not None:
        name, amount = next(iter(counting.counted_gpus.items()))
        raise UsageError(
            f"{workload.name}: node {counting.name} counts its {amount} {name}, and the bound is one of devices "
            f"that are tracked one by one; leave --bound out"
        )
    sliced = next((node for node in workload.nodes if device_milli(node) != GPU_MILLI or counted_milli(node)), None)
    if sliced is not None:
        raise UsageError(
            f"{workload.name}: node {sliced.name} offers slices or replicas of GPUs, and the bound is one of whole "
            f"devices; leave --bound out"
        )
    if not any(node.gpu_count for node in workload.eligible_nodes):
        raise UsageError(
            f"{workload.name}: its nodes have no GPU, and the bound is one of GPU allocation; leave it out"
        )
    if not any(pod.requests.gpu_count for pod in workload.pods):
        raise UsageError(
            f"{workload.name}: its pods request no GPU, and the bound is one of GPU allocation; leave it out"
        )
    require_extra("the bound", "report", "scipy")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows `sum of value * variable <= limit` of an LP, collected one by one."""

    row: list[Ints]
    column: list[Ints]
    value: list[Floats]
    limit: list[float]

    @staticmethod
    def none() -> _Rows:
        return _Rows([], [], [], [])

    def add(self, column: npt.ArrayLike, value: npt.ArrayLike, limit: float) -> None:
        columns = np.asarray(column, dtype=np.int64)
        self.row.append(np.full(len(columns), len(self.limit)))
        self.column.append(columns)
        self.value.append(np.broadcast_to(np.asarray(value, dtype=np.float64), columns.shape))
        self.limit.append(limit)

    def matrix(self, columns: int) -> csr_matrix:
        from scipy.sparse import csr_matrix

        if not self.limit:
            return csr_matrix((0, columns))
        entries = (np.concatenate(self.value), (np.concatenate(self.row), np.concatenate(self.column)))
        return csr_matrix(entries, shape=(len(self.limit), columns))


def concave_envelope(x: npt.NDArray[Any], y: Floats) -> list[tuple[float, float]]:
    """Return the lines, slope and intercept, whose minimum is the smallest concave function nowhere below the points.

    Args:
        x: [n] ascending, the first less than the last. Integers of the size of `y` lose no digits.
        y: [n].
    """
    from scipy.spatial import ConvexHull

    corners = np.array([[x[0], y.min() - 1], [x[-1], y.min() - 1]])  # below, so that points on a line have a hull
    normal_x, normal_y, _ = ConvexHull(np.concatenate([np.stack([x, y], axis=1), corners])).equations.T
    is_upper = normal_y > VERTICAL
    slopes = np.unique(-normal_x[is_upper] / normal_y[is_upper])
    # Qhull rounds; so each line is raised or lowered to touch the points, and no point is above it.
    intercepts = (y - slopes[:, np.newaxis] * x).max(axis=1)
    return list(zip(slopes.tolist(), intercepts.tolist(), strict=True))


class GpuBound:
    """A workload prepared for bounds of many sequences of arrivals.

    The variables are y (pods of a kind on a type of node, where it fits), z (devices of a type with a pattern) and, of
    ordered kinds, their moment: the share of all arrivals after which none is placed, 0..1.
    """

    def __init__(self, workload: Workload) -> None:
        check_bound(workload, "inflation")
        self.workload = workload
        self.kinds = kinds = find_kinds(workload)
        self._names = {node.name for node in workload.eligible_nodes}
        self.capacity = sum(node.gpu_count for node in workload.eligible_nodes) * GPU_MILLI
        self._kind, self._type = np.nonzero(kinds.fits)
        self._gpu_types = np.flatnonzero(kinds.devices)
        demand_by_kind = np.bincount(kinds.of_pod, minlength=len(kinds.demand)) * kinds.demand
        demand = {int(m): int(demand_by_kind[kinds.gpu_milli == m].sum()) for m in kinds.gpu_milli if m > 0}
        self.patterns = device_patterns(demand, MAX_PATTERN_COLUMNS // len(self._gpu_types))
        self._z = len(self._kind)
        self._moment = self._z + len(self._gpu_types) * len(self.patterns.counts)
        self._columns = self._moment + len(kinds.demand)
        rows = _Rows.none()
        for t in range(len(kinds.nodes)):
            self._pooled_rows(rows, t)
            self._crowding_rows(rows, t)
        for place, gpu_type in enumerate(self._gpu_types):
            self._device_rows(rows, place, int(gpu_type))
        self._static = rows.matrix(self._columns), np.array(rows.limit)
        order = _Rows.none()
        for easy, hard in kinds.harder:
            order.add([self._moment + hard, self._moment + easy], [1, -1], 0)
        self._order = order.matrix(self._columns), np.array(order.limit)

    def solve(
        self,
        # `inflation` or `arrivals`; with `seed` and `ratio` it decides which pods arrive
        protocol: Protocol = "inflation",
        *,
        seed: int = 42,
        ratio: float = 1.3,
        # False bounds schedulers that place every pod that fits somewhere; True also those that refuse pods
        refuses: bool = False,
        # Above 0, only schedulers are bounded that place every pod (which fits on some empty node) until the demand
        # that has arrived is this percentage of all GPU
        placed_percent: float = 0.0,
    ) -> float:
        """Return an upper bound on the GPU allocated at the end, in percent of all GPU, rounded up to two decimals.

        Returns:
            The bound; NaN if no scheduler can place what `placed_percent` demands.
        """
        check_bound(self.workload, protocol)
        plan = schedule(self.workload, protocol, seed=seed, ratio=ratio, load=None)
        # Pods that stay on nodes that do not count are no arrivals of the LP.
        arriving = self.kinds.of_pod[[i for i in plan.pods[: plan.standing].tolist() if self._counts(i)]]
        arriving = np.append(arriving, self.kinds.of_pod[plan.pods[plan.standing :]])
        count = np.bincount(arriving, minlength=len(self.kinds.demand))
        arrived = 100.0 * np.cumsum(self.kinds.demand[arriving]) / self.capacity
        must = np.bincount(arriving[arrived <= placed_percent] if placed_percent > 0 else [], minlength=len(count))
        rows = _Rows.none()
        for kind in range(len(count)):
            self._count_rows(rows, kind, count[kind], must[kind])
            if self.kinds.ordered[kind] and not refuses:
                self._moment_rows(rows, kind, np.flatnonzero(arriving == kind), len(arriving))
        blocks = [self._static, (rows.matrix(self._columns), np.array(rows.limit))]
        # A scheduler that refuses pods keeps no order of moments.
        most = self._most_allocated(blocks if refuses else [*blocks, self._order], count)
        if math.isnan(most):
            return math.nan
        # Allocations are integers of milli, so that nothing is lost by rounding the optimum down to one; to
        # two decimals it is rounded up: a bound is never below what it bounds.
        room = int(self.kinds.devices.sum()) * GPU_MILLI
        # Rounding of the solver may leave the optimum a little too low, which would be no bound any more.
        milli = min(math.floor(most + ROUNDING * self.capacity), int(self.kinds.demand[arriving].sum()), room)
        return ceil_div(10_000 * milli, self.capacity) / 100

    def _counts(self, pod: int) -> bool:
        where = self.workload.recorded[pod]
        return where is not None and where.node in self._names

    def _pooled_rows(self, rows: _Rows, t: int) -> None:
        kinds = self.kinds
        here = np.flatnonzero(self._type == t)
        for r in range(kinds.request.shape[1]):
            request = kinds.request[self._kind[here], r]
            if request.any() and kinds.capacity[t, r] < UNLIMITED:
                scale = float(request.max())  # bytes beside milli-CPU would be 1e7 times as large
                rows.add(here, request / scale, kinds.capacity[t, r] / scale)

    def _crowding_rows(self, rows: _Rows, t: int) -> None:
        kinds = self.kinds
        here = np.flatnonzero(self._type == t)
        kind = self._kind[here]
        whole = np.where(2 * kinds.gpu_milli > GPU_MILLI, kinds.gpu_count, 0)  # two of these never share a device
        for size, largest in (
            (whole, kinds.largest_devices[t]),
            *((kinds.request[:, r], kinds.largest[t, r]) for r in (CPU, MEMORY)),
        ):
            for q in SHARES_OF_A_NODE:
                # On one node at most q - 1 pods fit that each take more than 1/q of it.
                big = here[q * size[kind] > largest]
                if len(big):
                    rows.add(big, 1, float(q - 1) * kinds.nodes[t])

    def _device_rows(self, rows: _Rows, place: int, t: int) -> None:
        kinds, patterns = self.kinds, self.patterns
        here = np.flatnonzero((self._type == t) & (kinds.gpu_count[self._kind] > 0))
        kind = self._kind[here]
        begin = self._z + place * len(patterns.counts)
        rows.add(np.arange(begin, begin + len(patterns.counts)), 1, float(kinds.devices[t]))
        size = patterns.size_of(kinds.gpu_milli[kind])
        for s in range(len(patterns.sizes)):
            pods, holding = here[size == s], np.flatnonzero(patterns.counts[:, s])
            value = np.concatenate([kinds.gpu_count[kind[size == s]], -patterns.counts[holding, s]])
            # Devices that the pods take <= places of this size in the patterns.
            rows.add(np.concatenate([pods, begin + holding]), value, 0)
        # Sizes that were left out count as smaller ones; their own milli are bounded here.
        if not patterns.exact:
            rows.add(here, kinds.demand[kind] / GPU_MILLI, float(kinds.devices[t]))

    def _count_rows(self, rows: _Rows, kind: int, count: int, must: int) -> None:
        here = np.flatnonzero(self._kind == kind)
        rows.add(here, 1, float(count))
        if must and len(here):
            rows.add(here, -1, -float(must))

    def _moment_rows(self, rows: _Rows, kind: int, position: Ints, arrivals: int) -> None:
        """Add rows that keep the placed pods of the kind between the envelopes of its arrivals by its moment."""
        if not len(position):
            return
        columns = np.append(np.flatnonzero(self._kind == kind), self._moment + kind)
        by = np.arange(len(position) + 1, dtype=np.float64)  # so many have arrived after the arrival `after`
        after = np.concatenate([[0], position + 1, [arrivals]])
        before = np.concatenate([[0], position, [arrivals]])
        # Placed by the moment: at most what had arrived by then, and at least what arrived before it.
        for sign, x, y in ((1.0, after, np.append(by, by[-1])), (-1.0, before, -np.append(by[0], by))):
            for slope, intercept in concave_envelope(x, y):
                value = np.full(len(columns), sign)
                # The moment is a share of all arrivals, the envelope's x a number of them.
                value[-1] = -slope * arrivals
                rows.add(columns, value, intercept)

    def _most_allocated(self, blocks: Sequence[tuple[csr_matrix, Floats]], count: Ints) -> float:
        from scipy.optimize import linprog
        from scipy.sparse import vstack

        matrix = vstack([block for block, _ in blocks], format="csr")
        limit = np.concatenate([limits for _, limits in blocks])
        cost = np.zeros(self._columns)
        cost[: self._z] = -self.kinds.demand[self._kind] / GPU_MILLI
        # Upper limits of the variables in any solution; weak duality below needs finite ones.
        highest = np.ones(self._columns)
        highest[: self._z] = count[self._kind]
        highest[self._z : self._moment] = np.repeat(self.kinds.devices[self._gpu_types], len(self.patterns.counts))
        upper = np.full(self._columns, np.inf)
        upper[self._moment :] = 1
        between = np.stack([np.zeros(self._columns), upper], axis=1)
        solution: Any = linprog(cost, A_ub=matrix, b_ub=limit, bounds=between, options={"time_limit": PATIENCE_SECONDS})
        if solution.status == INFEASIBLE:
            return float("nan")
        if solution.status != 0:
            reason = f"not within {PATIENCE_SECONDS:g} s" if solution.status == OUT_OF_TIME else solution.message
            raise SteersmanError(f"{self.workload.name}: the LP of the bound was not solved: {reason}")
        # For any dual <= 0: cost @ x >= dual @ limit + (cost - matrix.T @ dual) @ x, and 0 <= x <= highest.
        # Marginals of `<=` rows are at most 0; the solver's may exceed it by rounding.
        dual = np.minimum(solution.ineqlin.marginals, 0)
        reduced = cost - matrix.T @ dual
        return float(-GPU_MILLI * (dual @ limit + np.minimum(reduced, 0) @ highest))
