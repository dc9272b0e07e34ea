"""Objects of the compiled core (`core/`, in Rust): a decider, a run, a batch of episodes, an order and run times.

A description of one is arrays by name, which the core checks; `core/src` documents the names where it reads them.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.core.interface import Buffers
from steersman.core.library import call

NOWHERE = -1
NO_LIMIT = 1 << 62
PLUGINS = 8  # of kube-scheduler that score, VolumeBinding among them
LEARNED_FEATURES = 31  # of a node in view `gpu`
MOST_PARTS = 64  # parts of a score, see `Decider.contributions`
BINS = 48
"""Bins of run times: from 1 s to 2^24 s, 194 days, two for each octave."""
LEVELS = 12
"""Ways in which pods are alike, by which run times are told apart, see `core/src/run_times.rs`."""
GROUP_PARTS = 5
"""Numbers that tell a group of run times, see `CoreRunTimes`."""
BELIEF_WEIGHTS = 186
"""Weights of the histograms, see `core/src/belief.rs`."""

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Flags = npt.NDArray[np.int8]
Heads = npt.NDArray[np.void]
"""The oldest pods of groups, of type `HEAD`; their scores are written."""
_NO_FLAGS = np.zeros(0, dtype=np.int8)
Described = Mapping[str, npt.NDArray[np.generic]]
"""What an object is made of: arrays by name."""


def named(**parts: Described) -> dict[str, npt.NDArray[np.generic]]:
    """Return the arrays of several parts by the names of a description, `part.name`."""
    return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def _file(arrays: Described) -> bytes:
    """Return arrays as the bytes of a safetensors file.

    The library's own function asks NumPy for the name of each type, which takes a seventh of a small run.
    """
    header, parts, end = {}, [], 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _TYPES[array.dtype], "shape": array.shape, "data_offsets": (begin, end)}
        parts.append(array.tobytes())
    text = msgspec.json.encode(header)
    return b"".join((len(text).to_bytes(8, "little"), text, *parts))


_TYPES = {
    np.dtype(np.int64): "I64",
    np.dtype(np.int32): "I32",
    np.dtype(np.uint8): "U8",
    np.dtype(np.float64): "F64",
    np.dtype(np.bool_): "BOOL",
}


class CoreDecider:
    """A cluster, and a policy that places pods on it.

    Args:
        arrays: what `Decider::read` in `core/src/decide.rs` reads, by name.

    Raises:
        SteersmanError: an array is missing, or has another type or shape, or a number in it is out of range.
    """

    def __init__(self, arrays: Described) -> None:
        content = _file(arrays)
        self._number = call("decider_new", content, len(content))
        self._nodes = len(arrays["nodes.free"])
        weakref.finalize(self, call, "forget", self._number)

    def decide(
        self, class_id: int, labels_id: int = 0, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[int, int]:
        """Return the node and the devices of a pod, which is not placed; `NOWHERE` and 0 if it fits nowhere.

        `allowed`: see `scores`.
        """
        choice, flags = np.empty(2, dtype=np.int64), _NO_FLAGS if allowed is None else allowed.view(np.int8)
        call("decider_decide", self._number, class_id, labels_id, flags, len(flags), choice)
        return int(choice[0]), int(choice[1])

    def plugin_scores(self, class_id: int, labels_id: int = 0, allowed: npt.NDArray[np.bool_] | None = None) -> Floats:
        """Return kube-scheduler's weighted scores by plugin, and of VolumeBinding after them, [P + 1, N].

        They are NaN beyond the nodes that its next search finds, which does not advance, and 0 for a single node.
        """
        scores, flags = np.empty((PLUGINS, self._nodes)), _NO_FLAGS if allowed is None else allowed.view(np.int8)
        call("decider_plugins", self._number, class_id, labels_id, flags, len(flags), scores, scores.size)
        return scores

    def search_start(self, start: int = -1) -> int:
        """Return where kube-scheduler's next search starts, after moving it there if it is given."""
        return call("decider_start", self._number, start)

    def scores(self, class_id: int, labels_id: int = 0, allowed: npt.NDArray[np.bool_] | None = None) -> Floats:
        """Return the scores of a pod, [N], -inf where it may not run.

        `allowed`: the nodes to choose from, [N]; None: all. Scores that are normalized over the feasible nodes stay so,
        but a search of kube-scheduler is among the allowed ones. It does not advance.
        """
        scores, flags = np.empty(self._nodes), _NO_FLAGS if allowed is None else allowed.view(np.int8)
        call("decider_scores", self._number, class_id, labels_id, flags, len(flags), scores, len(scores))
        return scores

    def follow(self, arrays: Described) -> None:
        """Follow changes of the cluster: what `Decider::follow_changes` in `core/src/changes.rs` reads, by name.

        After an error it is to be replaced.
        """
        content = _file(arrays)
        call("decider_follow", self._number, content, len(content))

    def set_pods(self, node: int, numbers: Integers) -> None:
        """Set what pods leave of a node, and how often they count there: what `Decider::set_pods` in the core reads."""
        call("decider_set_pods", self._number, node, numbers, len(numbers))

    def replace(self, arrays: Described) -> None:
        """Describe it anew; it goes on with its random numbers, and where kube-scheduler's search ended."""
        content = _file(arrays)
        call("decider_replace", self._number, content, len(content))
        self._nodes = len(arrays["nodes.free"])

    def devices(self, class_id: int, node: int) -> int:
        """Return the devices that a pod would get on a node that it fits on, as a bit mask."""
        return call("decider_devices", self._number, class_id, node)

    def mask(self, class_id: int, labels_id: int = 0) -> npt.NDArray[np.bool_]:
        """Return where a pod may run now, [N]."""
        mask = np.empty(self._nodes, dtype=np.int8)
        call("decider_mask", self._number, class_id, labels_id, mask, len(mask))
        return mask.view(np.bool_)

    def set_storage(self, scores: Integers) -> None:
        """Set the scores of VolumeBinding for the next decisions of kube-scheduler, [N]."""
        call("decider_storage", self._number, scores, len(scores))

    def place(self, class_id: int, labels_id: int, node: int, devices: int) -> None:
        """Place a pod with the devices of a bit mask, without checking that it fits."""
        call("decider_place", self._number, class_id, labels_id, node, devices)

    def remove(self, class_id: int, labels_id: int, node: int, devices: int) -> None:
        """Undo `place` with the same arguments, exactly."""
        call("decider_remove", self._number, class_id, labels_id, node, devices)

    def preempt(self, arrays: Described, victims: int) -> list[tuple[int, int, list[int]]]:
        """Return whom a pod that fits nowhere preempts: the candidates that are equally good, none: nothing helps.

        Each has its node, how many of its victims a budget keeps, and the numbers of the victims.

        Args:
            arrays: what `Question::read` in `core/src/preemption.rs` reads, by name.
            victims: how many pods there are of lower priority.
        """
        content, out = _file(arrays), np.empty(4 * victims, dtype=np.int64)
        found, rest = [], out
        for _ in range(call("decider_preempt", self._number, content, len(content), out, len(out))):
            node, violations, count = rest[:3].tolist()
            found.append((node, violations, rest[3 : 3 + count].tolist()))
            rest = rest[3 + count :]
        return found

    def fill(self, class_ids: Integers, labels_ids: Integers) -> tuple[Integers, Integers]:
        """Place pods one after another; return their nodes, `NOWHERE` for those that fit nowhere, and devices."""
        nodes, devices = np.empty_like(class_ids), np.empty_like(class_ids)
        call("decider_fill", self._number, class_ids, labels_ids, nodes, devices, len(class_ids))
        return nodes, devices

    def observe(self, waiting: int, eligible: npt.NDArray[np.int8], owner_pods: Mapping[int, int]) -> None:
        """Say what the next decisions of a network observe in addition to the cluster.

        Args:
            waiting: number of pods that wait besides the one to place.
            eligible: [N] 1 for nodes that some pod may enter.
            owner_pods: how many pods of the pod's owner run, by node.
        """
        pods = (np.fromiter(numbers, np.int64) for numbers in (owner_pods.keys(), owner_pods.values()))
        call("decider_observe", self._number, waiting, eligible, len(eligible), *pods, len(owner_pods))

    def watch(self, arrays: Described) -> None:
        """Observe the cluster from now on; `arrays`: what `Decider::watch` in `core/src/watch.rs` reads."""
        content = _file(arrays)
        call("decider_watch", self._number, content, len(content))

    def look(
        self,
        class_id: int,
        feasible: npt.NDArray[np.bool_],
        nodes: Singles,
        pod: Singles,
        context: Singles,
        mask: Flags,
        state: Floats,
    ) -> int:
        """Write what is observed of a pod that may run on the feasible nodes, [N]; see `observe` for the rest of it.

        Return the number of slots up to the last node; rows and flags after it are of free slots.

        Args:
            nodes: [N, F] rows of nodes.
            pod: [P] the pod.
            context: [X] the cluster.
            mask: [N] the feasible nodes.
            state: [16] see `objectives.summary`.
        """
        parts = (feasible.view(np.int8), nodes, pod, context, mask, state)
        return call("decider_look", self._number, class_id, *parts, np.array([p.size for p in parts], dtype=np.uintp))

    def write_state(self, state: Floats) -> None:
        """Write the state of the cluster that is observed, [16], see `objectives.summary`."""
        call("decider_state", self._number, state, len(state))

    def write_outcome(self, class_id: int, node: int, state: Floats) -> None:
        """Change the state of the last `look`, [16], as a placement on a node that the pod fits on would."""
        call("decider_outcome", self._number, class_id, node, state, len(state))

    def contributions(self, class_id: int, labels_id: int, node: int, other: int) -> Floats:
        """Return the parts by which a node is preferred to another, [P, 4]; the pod must fit on both.

        A part is its number, its values on both nodes, and how much the score falls with the other node's value.
        Numbers below 8 are those of rules, and features of the view follow.
        """
        parts = np.empty((MOST_PARTS, 4))
        count = call("decider_contributions", self._number, class_id, labels_id, node, other, parts, parts.size)
        return parts[:count]

    def features(self, class_id: int) -> Floats:
        """Return the features by which a learned policy scores a class, [N, 31]; 0 where it has no room."""
        out = np.empty((self._nodes, LEARNED_FEATURES))
        call("decider_features", self._number, class_id, out, out.size)
        return out

    def add_variances(self, class_id: int, sums: Floats, counts: Floats) -> None:
        """Add how features differ between the nodes that a class fits on; the policy must be linear.

        `sums`, [4, 2, 15]: variances by kind of pod, of the features' changes and of the features after a placement.
        `counts`, [4]: number of summands.
        """
        call("decider_variances", self._number, class_id, sums, counts)


def play_requests(
    sizes: Integers, sequence: Integers, grain: int, table: Floats, devices: Integers, chosen: Integers
) -> None:
    """Place requests on devices, each where the loss of a table grows least, the fullest of equals.

    Args:
        sizes: [V] milli of a device that are requested.
        sequence: [L] places in `sizes`, in order of arrival.
        grain: divides all milli that devices may have left.
        table: [1001] losses by milli left.
        devices: [1001] how many devices have so many milli left; updated.
        chosen: [L] milli left of the device of each request, -1: it fits nowhere; written.
    """
    call("requests_play", sizes, len(sizes), sequence, chosen, len(sequence), grain, table, devices)


def undo_requests(
    sizes: Integers, sequence: Integers, chosen: Integers, devices: Integers, sums: Floats, counts: Floats
) -> None:
    """Undo `play_requests`; add expected final leftovers to `sums`, in GPUs, and 1 to `counts`, both [1001]."""
    call("requests_undo", sizes, len(sizes), sequence, chosen, len(sequence), devices, sums, counts)


class PolicyHandle:
    """A policy file, or the text of a formula.

    Args:
        file: its name, of which errors speak; that of a formula ends with `.txt`.

    Raises:
        SteersmanError: one line that names the file, the place, the field and what would be right.
    """

    def __init__(self, file: str, content: bytes) -> None:
        name = file.encode(errors="backslashreplace")
        self._number = call("policy_new", content, len(content), name, len(name))
        weakref.finalize(self, call, "forget", self._number)

    @property
    def card(self) -> str:
        """Return the model card in JSON; "" of a formula."""
        text = np.empty(call("policy_card", self._number, np.empty(0, np.uint8), 0), dtype=np.uint8)
        call("policy_card", self._number, text, len(text))
        return text.tobytes().decode()

    @property
    def observes_others(self) -> bool:
        """Whether the score of a node depends on the other nodes."""
        return bool(call("policy_observes", self._number))

    def scores(
        self, nodes: Singles, pod: Singles, context: Singles, mask: npt.NDArray[np.int8], groups: Integers
    ) -> Floats:
        """Return the scores of a network over an observation, [N], -inf where the mask forbids.

        Args:
            nodes: [N, F] features of each node; a masked row of zeros is not a node.
            pod: [P].
            context: [X].
            mask: [N] where the pod may run.
            groups: [N, 2] number of the node's rack and server, below 0: none; only graph networks read it.
        """
        scores = np.empty(len(mask))
        parts = (nodes, pod, context, mask, groups)
        call("policy_scores", self._number, *parts, scores, np.array([part.size for part in parts], dtype=np.uintp))
        return scores


class Stop(IntEnum):
    """Why a run stopped.

    No event is left, or as many are recorded as were asked for. Or the caller is needed: it chooses a node; it notes
    the reason of the last event, a pod that was not bound, while the cluster is as it was then; it chooses who is next.
    """

    DONE, PAUSED, NEEDS_NODE, NEEDS_REASON, NEEDS_ORDER, INVALID_SCORE = range(6)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is."""

    arrived: int  # arrivals handled
    events: int  # recorded
    changes: int  # how often a pod came to a node or left it
    head: int  # the blocked arrival that goes next, -1: none
    waiting: int  # pods that wait
    gpu_milli: int  # in use, as `cpu_milli`
    cpu_milli: int
    time: float  # of the last event


EVICTIONS, SAVED, LOST, SERVED = range(4)  # columns of `CoreEngine.accounts`


class Standing(NamedTuple):
    """How arrivals stand, [A] each."""

    node: Integers  # where it is, or was when it left; -1: it had none so far
    devices: Integers  # bit mask
    members: Integers  # how many start together, from this one on; 0 for all but the first
    runs: npt.NDArray[np.bool_]
    time: Floats  # when it arrived
    started: Floats  # when it was bound
    estimated: Floats  # its run time as estimated then, NaN where estimates do not matter


def lacks_room(arrays: Described, class_id: Integers, members: Integers) -> npt.NDArray[np.bool_]:
    """Return [S] whether `members` pods of a class, both [S], do not fit together on nodes as they are.

    Args:
        arrays: `nodes.*`, `classes.*` and `profile.accepts`.
    """
    content, lacks = _file(arrays), np.empty(len(class_id), dtype=np.int8)
    call("lacks_room", content, len(content), *map(np.ascontiguousarray, (class_id, members)), lacks, len(lacks))
    return lacks.astype(np.bool_)


def fragments(arrays: Described, nodes: int) -> Floats:
    """Return the fragmented GPU milli of nodes, and the same by cause, [N, 1 + 6]; `arrays`: `nodes.*`, `profile.*`."""
    content, out = _file(arrays), np.empty((nodes, 7))
    call("fragments", content, len(content), out, out.size)
    return out


def recount(arrays: Described, events: int) -> Floats:
    """Return the causes of fragmentation after each event of a run, [E, 6]; `arrays`: see `core/src/recount.rs`."""
    content, out = _file(arrays), np.empty((events, 6))
    call("recount", content, len(content), out, out.size)
    return out


class CoreEngine:
    """A run: pods that arrive, are bound, wait or fail, and leave. `number`: of an object of the core."""

    def __init__(self, number: int) -> None:
        self._number = number
        weakref.finalize(self, call, "forget", number)

    @classmethod
    def of(cls, arrays: Described) -> CoreEngine:
        """Return a run of what `Engine::read` in `core/src/engine.rs` reads, by name.

        Raises:
            SteersmanError: an array is missing, or has another type or shape, or a number in it is out of range.
        """
        content = _file(arrays)
        return cls(call("engine_new", content, len(content)))

    def again(self, arrays: Described) -> CoreEngine:
        """Return another run on this one's cluster, which has not advanced; see `Engine::read_again`."""
        content = _file(arrays)
        return CoreEngine(call("engine_again", self._number, content, len(content)))

    def watch(self, arrays: Described) -> None:
        """Observe the run from now on; `arrays`: what `Observer::read` in `core/src/views.rs` reads."""
        content = _file(arrays)
        call("engine_watch", self._number, content, len(content))

    def advance(self, until: int = NO_LIMIT) -> Stop:
        """Handle events until so many are recorded, or the caller is needed; return why it stopped."""
        return Stop(call("engine_advance", self._number, until))

    def advance_to(self, targets: Integers, until: float) -> Stop:
        """Handle events until these arrivals have all started, [T], or the time is past `until`; as `advance`."""
        return Stop(call("engine_advance_to", self._number, targets, len(targets), until))

    @property
    def progress(self) -> RunProgress:
        """Return how far the run is."""
        numbers, time = np.empty(7, dtype=np.int64), np.empty(1)
        call("engine_progress", self._number, numbers, time)
        arrived, events, changes, head, waiting, gpu_milli, cpu_milli = numbers.tolist()
        return RunProgress(arrived, events, changes, head, waiting, gpu_milli, cpu_milli, float(time[0]))

    def arrivals(self, count: int, first: int = 0) -> Standing:
        """Return how so many arrivals stand from number `first` on."""
        numbers, times = np.empty((count, 4), dtype=np.int64), np.empty((count, 3))
        call("engine_arrivals", self._number, first, numbers, times, count)
        node, devices, members, runs = numbers.T
        return Standing(node, devices, members, runs == 1, *times.T)

    def accounts(self, count: int) -> Floats:
        """Return of so many arrivals, [A, 4], how often they were evicted, and seconds.

        These are seconds of work that are saved, seconds that are lost, and seconds that they ran before the run that
        goes on.
        """
        accounts = np.empty((count, 4))
        call("engine_accounts", self._number, 0, accounts, count)
        return accounts

    def heads(self, count: int) -> tuple[Integers, Floats]:
        """Return the oldest pods of all groups that wait, at most `count`, [G], in their order.

        With them, [G, 2], the mean of their run times in seconds and its spread, NaN where the order does without.
        """
        heads, estimates = np.empty(count, dtype=np.int64), np.empty((count, 2))
        found = call("engine_heads", self._number, heads, estimates, count)
        order = np.argsort(heads[:found])
        return heads[order], estimates[order]

    def write_state(self, *arrays: npt.NDArray[np.generic]) -> None:
        """Write what pods have changed.

        Into free, nonzero, gpu_free and gpu_kinds of nodes, then into matched, owned, owned_total and held of terms.
        """
        call("engine_state", self._number, *arrays, np.array([array.size for array in arrays], dtype=np.uintp))

    def scores(self, class_id: int, labels_id: int, nodes: int) -> Floats:
        """Return the scores of a pod now, [N], -inf where it may not run."""
        scores = np.empty(nodes)
        call("engine_scores", self._number, class_id, labels_id, scores, nodes)
        return scores

    def add_variances(self, class_id: int, sums: Floats, counts: Floats) -> None:
        """Add how features differ between the nodes that a class fits on now, see `CoreDecider.add_variances`."""
        call("engine_variances", self._number, class_id, sums, counts)

    def lacks_room(self, class_id: int, members: int) -> bool:
        """Return whether so many pods of a class do not fit together now."""
        return bool(call("engine_lacks_room", self._number, class_id, members))

    def mask(self, nodes: int) -> npt.NDArray[np.bool_]:
        """Return where the pod of the question may run, [N]."""
        mask = np.empty(nodes, dtype=np.int8)
        call("engine_mask", self._number, mask, nodes)
        return mask.astype(np.bool_)

    @property
    def question(self) -> int:
        """Return the arrival whose node the engine asks for."""
        return call("engine_question", self._number)

    def observe(self, nodes: Singles, pod: Singles, context: Singles, mask: npt.NDArray[np.int8]) -> None:
        """Write what is observed: rows of nodes, [N, F], of the pod and of the cluster, and the feasible nodes, [N]."""
        parts = (nodes, pod, context, mask)
        call("engine_observe", self._number, *parts, np.array([part.size for part in parts], dtype=np.uintp))

    def answer(self, node: int) -> None:
        """Choose the node of the pod that the engine asked about."""
        call("engine_answer", self._number, node)

    def set_head(self, group: int) -> None:
        """Choose the group that goes next."""
        call("engine_set_head", self._number, group)

    def events(self, first: int = 0) -> tuple[Floats, Integers, Floats]:
        """Return times, [E], numbers and sums, [E, 10] each, of events from number `first` on, see `EventRecord`."""
        count = self.progress.events - first
        times, numbers, sums = np.empty(count), np.empty((count, 10), dtype=np.int64), np.empty((count, 10))
        call("engine_events", self._number, first, times, numbers, sums, count)
        return times, numbers, sums


class Batch:
    """Episodes in which the caller chooses nodes, stepped together; E of them.

    Args:
        observations: buffers of nodes, pods, clusters and masks: [E, N, F], [E, P], [E, X] float32 and [E, N] int8.
        results: buffers of rewards, whether episodes are terminated, whether they are truncated, [E] float64, int8 and
            int8; and of the states now, before the last action and after it, [E, 3, 16], see `objectives.summary`.
    """

    def __init__(
        self, observations: tuple[Singles, Singles, Singles, Flags], results: tuple[Floats, Flags, Flags, Floats]
    ) -> None:
        self._count = len(results[0])
        self._number = call("batch_new", self._count)
        self._buffers = Buffers(*observations, *results)
        weakref.finalize(self, call, "forget", self._number)

    def begin(self, e: int, arrays: Described) -> bool:
        """Begin an episode, see `Batch::begin` in `core/src/batch.rs`; return whether it asks for a node."""
        content = _file(arrays)
        return bool(call("batch_begin", self._number, e, content, len(content), self._buffers))

    def step(self, actions: Integers) -> None:
        """Take an action in every episode, [E]."""
        call("batch_step", self._number, actions, self._count, self._buffers)

    def replay(self, e: int, actions: Integers) -> None:
        """Take actions in an episode that has begun, one after another."""
        call("batch_replay", self._number, e, actions, len(actions), self._buffers)

    def actions(self, e: int) -> Integers:
        """Return the actions of an episode so far: taking them again leads to the same state."""
        actions = np.empty(call("batch_actions", self._number, e, np.empty(0, dtype=np.int64), 0), dtype=np.int64)
        call("batch_actions", self._number, e, actions, len(actions))
        return actions

    def rule_actions(self, rule: int) -> Integers:
        """Return the nodes that a rule prefers, [E]; 0 where an episode has ended."""
        actions = np.empty(self._count, dtype=np.int64)
        call("batch_rule", self._number, rule, actions, self._count)
        return actions

    def counts(self) -> Integers:
        """Return how many pods were bound and dropped so far, and how the last one's limits are kept, [E, 3]."""
        counts = np.empty((self._count, 3), dtype=np.int64)
        call("batch_counts", self._number, counts, counts.size)
        return counts

    def figures(self) -> Floats:
        """Return the figures of episodes with latencies so far, [E, 13], see `simulation.measures.LATENCY`."""
        figures = np.empty((self._count, 13))
        call("batch_figures", self._number, figures, figures.size)
        return figures

    def truth(self, e: int, nodes: int) -> tuple[float, Floats]:
        """Return what is true in an episode with latencies: its time in seconds, and of nodes, [N, 2].

        That is the number of pods, and the milliseconds that the current pod's users would have, NaN without users.
        """
        time, truth = np.empty(1), np.empty((nodes, 2))
        call("batch_truth", self._number, e, time, truth, truth.size)
        return float(time[0]), truth

    def loads(self, e: int, nodes: int) -> Floats:
        """Return the shares of CPU and memory in use on the nodes of an episode, [N, 2]."""
        loads = np.empty((nodes, 2))
        call("batch_loads", self._number, e, loads, loads.size)
        return loads

    def engine(self, e: int) -> CoreEngine:
        """Return a copy of an episode's run."""
        return CoreEngine(call("batch_engine", self._number, e))


class CoreRunTimes:
    """Run times of what ended in a live cluster, by groups of pods, see `core/src/run_times.rs`.

    A pod is told by its requests, in any form that tells them apart, its namespace, its owner, its image ("": none) and
    its stated run time in seconds (NaN: none). A group is told by `GROUP_PARTS` numbers and the bytes of its names: how
    many bytes its requests, namespace, owner and image have, and the bin of the stated run time, -1 for what it lacks.
    That of all pods has nothing; the owner "" is the namespace's.

    Args:
        most: groups beyond which some are forgotten, at least 1.
    """

    def __init__(self, most: int) -> None:
        self.number = call("run_times_new", most)
        weakref.finalize(self, call, "forget", self.number)

    def note(self, pod: PodKind, seconds: float) -> bool:
        """Count a pod that ended after so many seconds; return whether it is the first one of its owner."""
        return bool(call("run_times_note", self.number, *_kind(pod), seconds))

    def knows(self, namespace: str, owner: str) -> bool:
        """Return whether a pod of an owner has ended, maybe in another run of it."""
        return bool(call("run_times_knows", self.number, *_name(namespace), *_name(owner)))

    def estimate(self, pod: PodKind) -> float:
        """Return the estimate of a pod's run time in seconds; its groups are used."""
        estimate = np.empty(3)
        call("run_times_estimate", self.number, *_kind(pod), estimate)
        return float(estimate[0])

    def distribution(self, pod: PodKind) -> Floats:
        """Return [BINS] the probability of each bin of a pod's run time; its groups are used."""
        distribution = np.empty(BINS)
        call("run_times_distribution", self.number, *_kind(pod), distribution)
        return distribution

    def set(self, parts: Sequence[int], text: bytes, after: int, last: int, all_pods: Floats, recent: Floats) -> None:
        """Set what is known of one group alone, whose owner is not that of any run.

        Args:
            parts: of the group.
            text: of the group.
            after: the bin of the run time after which these pods came, -1: they are all pods of the group.
            last: the bin of the last pod, -1: none.
            all_pods: [BINS] the pods that ended.
            recent: [BINS] the same, of which older ones count less.
        """
        numbers = np.array(parts, dtype=np.int64)
        call("run_times_set", self.number, numbers, text, len(text), after, last, all_pods, recent)

    def counts(self, parts: Sequence[int], text: bytes) -> Floats:
        """Return [BINS] the pods of a group that ended, by run time."""
        counts = np.empty(BINS)
        call("run_times_counts", self.number, np.array(parts, dtype=np.int64), text, len(text), counts)
        return counts

    def groups(self) -> tuple[Floats, Integers, bytes]:
        """Return all groups, that of all pods first, then those that were not used for longest.

        Behind each are those of its pods that came after a run time. They are the pods that ended, [K, 2 * BINS], all
        and recent ones; [K, GROUP_PARTS + 2] what tells each group, the bin after which its pods came, and that of the
        last one, -1 for none; and the names behind each other.
        """
        size = np.empty(1, dtype=np.int64)
        count = call("run_times_size", self.number, size)
        counts, parts = np.empty((count, 2 * BINS)), np.empty((count, GROUP_PARTS + 2), dtype=np.int64)
        text = np.empty(int(size[0]), dtype=np.uint8)
        call("run_times_groups", self.number, counts, parts, count, text, len(text))
        return counts, parts, text.tobytes()

    @property
    def weights(self) -> Floats:
        """Return [2, BELIEF_WEIGHTS] how much each histogram counts, and the squares of their gradients."""
        weights = np.empty((2, BELIEF_WEIGHTS))
        call("run_times_weights", self.number, weights[0], weights[1])
        return weights

    @weights.setter
    def weights(self, weights: Floats) -> None:
        call("run_times_set_weights", self.number, *np.ascontiguousarray(weights, dtype=np.float64))


class PodKind(NamedTuple):
    """What tells the run time of a pod, see `CoreRunTimes`."""

    requests: bytes
    namespace: str
    owner: str
    image: str = ""
    stated: float = math.nan


def _name(name: str) -> tuple[bytes, int]:
    text = name.encode(errors="surrogatepass")
    return text, len(text)


def _kind(pod: PodKind) -> tuple[bytes | float, ...]:
    names = (part for each in (pod.namespace, pod.owner, pod.image) for part in _name(each))
    return pod.requests, len(pod.requests), *names, pod.stated


class CoreOrder:
    """An order of the waiting pods of a live cluster, see `core/src/live_order.rs`.

    Args:
        run_times: what estimates follow.
        kind: kind of score, see `orders.scores`.
        weights: those of a learned order.
        ageing: seconds after which a pod goes before all others of its priority; inf: never.
        began: when arrivals count from.
    """

    def __init__(
        self, run_times: CoreRunTimes, kind: int, weights: Floats, ageing: float = np.inf, began: float = 0.0
    ) -> None:
        self._number = call("order_new", run_times.number, kind, weights, len(weights), ageing, began)
        weakref.finalize(self, call, "forget", self._number)

    def join(self, priority: int, size: float, given: float, stated: float, pod: PodKind) -> tuple[int, bool]:
        """Count a pod in its group, see `LiveOrder.join`.

        `stated` is its estimate in seconds, NaN: by the run times; `given` its score, where the order's are given.
        """
        answer = call("order_join", self._number, priority, size, given, stated, *_kind(pod))
        return answer >> 1, bool(answer & 1)

    def leave(self, group: int) -> None:
        """Count a pod of a group no more."""
        call("order_leave", self._number, group)

    def give(self, groups: Integers, scores: Floats) -> None:
        """Set the scores of groups, [K] each, of an order whose scores are given."""
        call("order_give", self._number, groups, scores, len(groups))

    def estimate(self, group: int) -> float:
        """Return the estimate of a group in seconds, NaN if the order does without."""
        estimate = np.empty(3)
        call("order_estimate", self._number, group, estimate)
        return float(estimate[0])

    def first(self, heads: Heads, count: int, now: float, *, capacity: float, free: float, waiting: float) -> int:
        """Return which of the first `count` groups goes next by priority, score and age, and write their scores.

        Args:
            heads: their oldest pods.
            count: at least 1.
            now: the time in seconds.
            capacity: the size of the cluster.
            free: its free share.
            waiting: how many pods wait.
        """
        return call("order_first", self._number, heads, count, now, capacity, free, waiting)

    def scores(self, pods: Floats) -> Floats:
        """Return the scores of pods, [K], of an order whose scores are computed.

        `pods`, [K, 9]: estimated seconds, spread, size, share of the cluster, seconds waited, arrival, free share of
        the cluster, pods that wait, delay.
        """
        scores = np.empty(len(pods))
        call("order_scores", self._number, pods, scores, len(scores))
        return scores


def rewards_of(numbers: Integers, weights: Floats, before: Floats, after: Floats) -> Floats:
    """Return the rewards of actions, [E], from the states before and after them, [E, 16], see `objectives.summary`.

    `numbers`, `weights`: [K] of `objectives.objective`.
    """
    rewards = np.empty(len(before))
    states = (np.ascontiguousarray(each, dtype=np.float64) for each in (before, after))
    call("rewards", numbers, weights, len(numbers), *states, rewards, len(rewards))
    return rewards


class MetricsQuestion:
    """A pod that wants a node of a live cluster, and what is known of the nodes by their metrics.

    Args:
        arrays: what `Question::read` in `core/src/telemetry.rs` reads, by name.
    """

    def __init__(self, arrays: Described) -> None:
        self._content = _file(arrays)
        self._nodes = len(arrays["mask"])

    def scores(self, rule: int) -> Floats:
        """Return a rule's scores, [N], -inf where the pod may not run; see `policies.node_metrics`."""
        scores = np.empty(self._nodes)
        call("telemetry_scores", self._content, len(self._content), rule, scores, len(scores))
        return scores

    def contributions(self, rule: int, node: int, other: int) -> Floats:
        """Return what distinguishes a node from another, [P, 3].

        A part is its values on both nodes, and how much the first one's score falls with the other's. Parts are the
        metrics, the latency to the pod's users if it has some, the share of CPU requested, and the owner's pods.
        """
        parts = np.empty((MOST_PARTS, 3))
        count = call("telemetry_contributions", self._content, len(self._content), rule, node, other, parts, parts.size)
        return parts[:count]

    def within_hard_limit(self) -> tuple[npt.NDArray[np.bool_], int]:
        """Return the nodes that the pod's hard limit leaves, [N], and what became of it: `LimitOutcome` of the core."""
        mask = np.empty(self._nodes, dtype=np.int8)
        outcome = call("telemetry_limit", self._content, len(self._content), mask, len(mask))
        return mask.astype(np.bool_), outcome

    def observe(self, nodes: Singles, pod: Singles, context: Singles) -> None:
        """Write what a network observes in the view `telemetry`: rows of nodes, [N, F], the pod, the cluster."""
        parts = (nodes, pod, context)
        sizes = np.array([part.size for part in parts], dtype=np.uintp)
        call("telemetry_observe", self._content, len(self._content), *parts, sizes)

    def outcome(self, node: int, numbers: Integers, weights: Floats) -> tuple[Floats, float]:
        """Return the estimated state after the pod's placement on a node, [15], and its reward."""
        outcome = np.empty(16)
        call("telemetry_outcome", self._content, len(self._content), node, numbers, weights, len(numbers), outcome)
        return outcome[:-1], float(outcome[-1])


class TelemetryModel:
    """What the nodes of a real cluster would use and measure, by its nodes and pods.

    Times are seconds since the model began. Nodes have numbers in the order in which they came; those after one that is
    removed move up.

    Args:
        arrays: what `LiveModel::read` in `core/src/latency_live.rs` reads, by name.
    """

    def __init__(self, arrays: Described) -> None:
        content = _file(arrays)
        self._number = call("model_new", content, len(content))
        weakref.finalize(self, call, "forget", self._number)

    def add_node(self, capacity: Integers, zone: int, system: float, time: float) -> None:
        """Add a node, which uses `system` milli-CPU without pods. `capacity`: milli-CPU, bytes of memory, pods."""
        call("model_add_node", self._number, capacity, zone, system, time)

    def change_node(self, node: int, capacity: Integers, time: float) -> None:
        """Change the capacity of a node."""
        call("model_change_node", self._number, node, capacity, time)

    def remove_node(self, node: int, time: float) -> None:
        """Remove a node. Its pods run no more, until they are bound again."""
        call("model_remove_node", self._number, node, time)

    def bind(self, pod: int, node: int, numbers: Integers, limits: Floats, time: float) -> None:
        """Bind a pod of any number that runs nowhere.

        Args:
            numbers: milli-CPU, bytes of memory, kind of application, whether it has users, the seed of its owner's use
                and that of its own.
            limits: soft and hard limit in milliseconds.
        """
        call("model_bind", self._number, pod, node, numbers, limits, time)

    def unbind(self, pod: int, time: float) -> None:
        """Forget a pod, if it is known."""
        call("model_unbind", self._number, pod, time)

    def scrape(self, node: int, time: float) -> Floats | None:
        """Return what a scrape shows, [7], None if the node cannot be reached; see `LiveModel::scrape` in the core."""
        sample = np.empty(7)
        return sample if call("model_scrape", self._number, node, time, sample) else None

    def truth(self, time: float) -> Floats:
        """Return what is true now, [12], see `envs.latency.Truth`."""
        truth = np.empty(12)
        call("model_truth", self._number, time, truth)
        return truth


class OrderFileHandle:
    """The content of an order file, or of a policy file.

    Attributes:
        card: its card in JSON; that of a policy file is not checked.
        weights: those of an order file; none: it is a policy file.

    Raises:
        SteersmanError: `FIELD: PROBLEM`, or `: PROBLEM` where it is of no field.
    """

    def __init__(self, content: bytes) -> None:
        number = call("order_file_new", content, len(content), b"", 0)
        weakref.finalize(self, call, "forget", number)
        card = np.empty(call("order_file_card", number, np.empty(0, np.uint8), 0), dtype=np.uint8)
        call("order_file_card", number, card, len(card))
        self.card = card.tobytes().decode()
        self.weights = np.empty(call("order_file_weights", number, np.empty(0), 0))
        call("order_file_weights", number, self.weights, len(self.weights))
