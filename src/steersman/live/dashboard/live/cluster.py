"""A watched cluster: its state, which nodes changed since when, and the bindings of the last time."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median, quantiles

from steersman.cluster.account import ClusterAccount, account_of
from steersman.cluster.arrays import CPU, MEMORY
from steersman.cluster.model import GPU_MILLI, Node
from steersman.cluster.state import device_indices
from steersman.kubernetes.cache.cached_pod import CachedPod, Listener
from steersman.kubernetes.cache.cluster_cache import NODES_PATH, PODS_PATH, UNFINISHED, ClusterCache, NodeFeed, PodFeed
from steersman.kubernetes.client import Client
from steersman.kubernetes.selectors import Selectors
from steersman.kubernetes.watch import Reflector, TeeHandler
from steersman.live.dashboard.columns import NodeColumns, node_columns
from steersman.live.dashboard.live.agreement import RuleAgreement
from steersman.live.dashboard.live.documents import NodeLatency, RuleRate, Snapshot, Summary, UseColumns, WaitingGroup
from steersman.live.dashboard.live.status import ReadinessFeed, WaitingFeed, reason_without_counts
from steersman.live.runtime.cluster_use import BindingRate
from steersman.workloads.recorded import live_account
from steersman.workloads.warnings import gpu_warnings

BINDINGS_KEPT = 2000  # bindings that latency by node is of
MOST_GROUPS = 12  # different reasons of waiting pods that are shown
MOST_BARS = 20  # nodes with bars of latency


@dataclass(frozen=True, slots=True)
class SeenBinding:
    """A binding of a pod that was seen waiting: Unix time, pod, node, seconds waited, and whether rules agree."""

    time: float
    pod: str
    node: str
    waited: float
    rules: dict[str, bool] = field(default_factory=dict)


class ClusterWatch(Listener):
    """State of a live cluster for the page."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.cache = ClusterCache(client, self, Selectors(client))  # nodes and pods
        self.waiting = WaitingFeed(self._pod_bound, clock)  # pods without a node
        self.rules = RuleAgreement()  # what rules would have decided
        self._readiness = ReadinessFeed(self._readiness_changed)
        self._main = (
            Reflector(client, NODES_PATH, TeeHandler(NodeFeed(self.cache), self._readiness)),
            # The cache first: a binding is compared with rules in the state that has it.
            Reflector(client, PODS_PATH, TeeHandler(PodFeed(self.cache), self.waiting), {"fieldSelector": UNFINISHED}),
        )
        self.reflectors: tuple[Reflector, ...] = (*self._main, *self.cache.related_reflectors)  # to be run
        # `layout`: incremented when nodes come, go or look different: positions of nodes are others then
        # `change`: incremented with every change of a node's pods
        # `bound`: number of all that were seen
        self.layout = self.change = self.bound = 0
        self.bindings: deque[SeenBinding] = deque(maxlen=BINDINGS_KEPT)  # the last ones, the newest last
        self._changed_at: dict[int, int] = {}
        self._laid_out: dict[int, NodeColumns | None] = {}
        self._order: list[int] = []
        self._positions: dict[int, int] = {}
        self._unknown: list[str] = []
        self._order_of = -1
        self._rate = BindingRate()
        self._groups_of, self._groups = -1, list[WaitingGroup]()
        self._reasons_of, self._reasons = -1, Counter[str]()
        self._account_of, self._account = (-1, -1, -1), account_of((), ())
        self.began = False  # whether the first lists of nodes and pods are complete

    async def listed(self) -> None:
        """Return when nodes and pods are known."""
        for reflector in self._main:
            await reflector.synced.wait()

    @property
    def synced(self) -> bool:
        """Whether all is known that rules read, also Services, controllers and what pods refer to."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    def begin(self) -> None:
        """Count bindings from now on: nodes and pods are known. Bindings are compared while everything is."""
        self.rules.renew_profile(self.cache)
        self.began = True
        self.layout += 1

    @property
    def age(self) -> float:
        """Seconds since the API server was last heard, 0 while nodes and pods are watched."""
        return max(reflector.age for reflector in self._main)

    # Changes of the cache ---------------------------------------------------------------------------------------------

    def on_pod_added(self, pod: CachedPod) -> None:
        self.rules.see(pod)

    def on_node_changed(self, slot: int, *, may_have_grown: bool) -> None:
        self.rules.changed(slot)
        self.change += 1
        self._changed_at[slot] = self.change
        node = self.cache.state.nodes[slot]
        looks = None if node is None else node_columns([node])
        # A new layout costs every browser a whole snapshot, and pods come and go without one.
        if self._laid_out.get(slot) != looks:
            self._laid_out[slot] = looks
            self.layout += 1

    def on_pod_bound(self, pod: CachedPod) -> None:
        self._count_change_on_unknown(pod)

    def on_pod_deleted(self, pod: CachedPod) -> None:
        self._count_change_on_unknown(pod)

    def _count_change_on_unknown(self, pod: CachedPod) -> None:
        """Count a change of a node that is not in the state, which `on_node_changed` does not report."""
        if pod.node and pod.node not in self.cache.state.slots:
            self.change += 1

    def on_rebuilt(self) -> None:
        self.rules.renew(self.cache)
        nodes = enumerate(self.cache.state.nodes)
        self._laid_out = {slot: node_columns([node]) for slot, node in nodes if node is not None}
        self.layout += 1

    def _pod_bound(self, key: str, waited: float) -> None:
        pod = self.cache.pods.get(key)
        # The cache handles the event first, and has dropped the pod if it has finished.
        if not self.began or pod is None:
            return
        self.bound += 1
        rules: dict[str, bool] = {}
        if self.synced:
            rules = self.rules.compare(self.cache, pod)
        else:
            self.rules.skipped += 1
        self.bindings.append(SeenBinding(self._clock(), key, pod.node, waited, rules))

    def _readiness_changed(self, name: str) -> None:
        if (slot := self.cache.state.slots.get(name)) is not None:
            self.change += 1
            self._changed_at[slot] = self.change

    # Documents --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return nodes and what is on all of them."""
        self._lay_out()
        present = [node for node in self.cache.state.nodes if node is not None]
        left_out = [self.account.sentence] if self.account.left_out else []
        return Snapshot(
            nodes=self.columns(),
            use=self._with_unknown(self._use(self._order)),
            profile=self.rules.profile,
            layout=self.layout,
            warnings=[*left_out, *gpu_warnings(present, [pod.pod for pod in self.cache.pods.values()])],
        )

    @property
    def account(self) -> ClusterAccount:
        """Return which nodes are counted. It depends on nodes and constraints of pods, which rarely change."""
        state, pods = self.cache.state, self.cache.pods
        version = self.layout, len(pods), len(state.classes)
        if version != self._account_of:
            present = [node for node in state.nodes if node is not None]
            self._account_of = version
            self._account = live_account(present, (pod.pod for pod in pods.values()), self._unknown)
        return self._account

    def columns(self) -> NodeColumns:
        """Return the columns of all nodes, in the order of their positions.

        The last are those that were never understood: of them only the name is known.
        """
        self._lay_out()
        nodes, unknown = self.cache.state.nodes, [Node(name, 0, 0) for name in self._unknown]
        return node_columns([node for slot in self._order if (node := nodes[slot]) is not None] + unknown)

    def uses_since(self, change: int) -> UseColumns:
        """Return what is on the nodes that changed after a change, and on all that were never understood."""
        self._lay_out()
        slots = [slot for slot, at in self._changed_at.items() if at > change and slot in self._positions]
        return self._with_unknown(self._use(slots))

    def use_of(self, slot: int) -> UseColumns:
        self._lay_out()
        return self._use([slot])

    def pods_by_node(self) -> dict[str, int]:
        """Return the number of pods on each node."""
        state = self.cache.state
        known = {name: len(state.pods_on(slot)) for name, slot in state.slots.items()}
        return known | {name: len(self.cache.pods_on(name)) for name in self._unknown}

    def waiting_by_reason(self) -> Mapping[str, int]:
        """Return the number of waiting pods by reason, without the numbers of nodes in it."""
        if self._reasons_of != self.waiting.version:
            self._reasons_of = self.waiting.version
            self._reasons = Counter(reason_without_counts(pod) for pod in self.waiting.pods.values())
        return self._reasons

    def summary(self, now: float) -> Summary:
        """Return counts of the whole cluster."""
        self._lay_out()
        state, pods = self.cache.state, self.cache.pods
        slots = [state.slots[node.name] for node in self.account.counted]
        used, whole = (each[slots] for each in state.gpu_use_by_node())
        cpu = state.arrays.allocatable[slots, CPU].sum()
        return Summary(
            # Infinite before the first list, which JSON cannot express.
            age=round(self.age) if self.age < 1e9 else None,
            nodes=len(self._order) + len(self._unknown),
            not_ready=len(self._readiness.not_ready),
            pods=len(pods),
            waiting=len(self.waiting.pods),
            groups=self._waiting_groups(),
            bound=self.bound,
            rate=round(self._rate.of(now, self.bound), 1),
            gpu=round(100.0 * float(used.sum()) / float(whole.sum()), 2) if whole.sum() else None,
            cpu=round(100.0 * float(cpu - state.arrays.free[slots, CPU].sum()) / float(cpu), 2) if cpu else None,
            rules=[
                RuleRate(rule=rule, agreed=sum(outcomes), of=len(outcomes))
                for rule, outcomes in self.rules.recent.items()
            ],
            skipped=self.rules.skipped,
            odd=len(self.cache.node_problems),
        )

    def latencies(self, since: float, until: float) -> list[NodeLatency]:
        """Return how long pods waited that were bound in a time, by node: those with the highest medians."""
        waited: dict[str, list[float]] = {}
        for binding in self.bindings:
            if since <= binding.time <= until:
                waited.setdefault(binding.node, []).append(binding.waited)
        rows = [
            NodeLatency(node=node, pods=len(waits), median=round(median(waits), 3), p90=round(_p90(waits), 3))
            for node, waits in waited.items()
        ]
        rows.sort(key=lambda row: (-row.median, row.node))
        return rows[:MOST_BARS]

    def state_of(self, name: str) -> str:
        """Return what keeps pods off a node, "" for nothing."""
        if name in self.cache.node_problems:
            return "not understood"
        if name in self._readiness.not_ready:
            return "not ready"
        slot = self.cache.state.slots.get(name)
        node = None if slot is None else self.cache.state.nodes[slot]
        return "cordoned" if node is not None and node.unschedulable else ""

    def find(self, text: str, most: int) -> Iterator[tuple[str, str]]:
        """Yield kind and name of nodes and pods whose names contain a text, at most so many."""
        left = most
        for kind, names in (("node", (*self.cache.state.slots, *self._unknown)), ("pod", self.cache.pods)):
            for name in names:
                if text in name:
                    yield kind, name
                    left -= 1
                    if not left:
                        return

    def _waiting_groups(self) -> list[WaitingGroup]:
        if self._groups_of != self.waiting.version:
            self._groups_of = self.waiting.version
            counts, longest = Counter[tuple[str, str]](), dict[tuple[str, str], tuple[float, str]]()
            for key, pod in self.waiting.pods.items():
                group = pod.scheduler, pod.message or pod.reason
                counts[group] += 1
                longest[group] = min(longest.get(group, (pod.since, key)), (pod.since, key))
            self._groups = [
                WaitingGroup(
                    scheduler=group[0], reason=group[1], pods=count, since=longest[group][0], pod=longest[group][1]
                )
                for group, count in counts.most_common(MOST_GROUPS)
            ]
        return self._groups

    def _lay_out(self) -> None:
        slots = self.cache.state.slots
        unknown = sorted(name for name in self.cache.node_problems if name not in slots)
        if unknown != self._unknown:
            self._unknown = unknown
            self.layout += 1
        if self._order_of != self.layout:
            self._order_of = self.layout
            self._order = [slot for slot, node in enumerate(self.cache.state.nodes) if node is not None]
            self._positions = {slot: i for i, slot in enumerate(self._order)}

    def _use(self, slots: list[int]) -> UseColumns:
        state, arrays = self.cache.state, self.cache.state.arrays
        result = UseColumns()
        counted = ((arrays.allocatable - arrays.free) * state.gpu_weights()[1]).sum(axis=1) / GPU_MILLI
        for slot in slots:
            node = state.nodes[slot]
            assert node is not None
            sharing = [0] * node.gpu_count
            placements = state.pods_on(slot)
            for placement in placements.values():
                for device in device_indices(placement.devices):
                    if device < len(sharing):
                        sharing[device] += 1
            result.at.append(self._positions[slot])
            result.cpu.append(int(arrays.allocatable[slot, CPU] - arrays.free[slot, CPU]))
            result.memory.append(int(arrays.allocatable[slot, MEMORY] - arrays.free[slot, MEMORY]) >> 20)
            result.pods.append(len(placements))
            gpu = [GPU_MILLI - left for left in arrays.gpu_free[slot, : node.gpu_count].tolist()]
            result.gpu.append(gpu)
            result.counted.append(round(float(counted[slot]), 3))
            result.sharing.append(sharing)
            result.state.append(self.state_of(node.name))
        return result

    def _with_unknown(self, use: UseColumns) -> UseColumns:
        for at, name in enumerate(self._unknown, len(self._order)):
            pods = len(self.cache.pods_on(name))
            for column, value in ((use.at, at), (use.cpu, 0), (use.memory, 0), (use.pods, pods), (use.counted, 0)):
                column.append(value)
            use.gpu.append([])
            use.sharing.append([])
            use.state.append(self.state_of(name))
        return use


def _p90(values: list[float]) -> float:
    return quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
