"""Objects of the compiled core (`core/`, in Rust): a decider, a run, a batch of episodes.

A description of one is arrays by name, which the core checks; `core/src` documents the names where it reads them.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from steersman.core.interface import Buffers
from steersman.core.library import call

NOWHERE = -1

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]


def _file(arrays: Mapping[str, npt.NDArray[np.generic]]) -> bytes:
    """Return arrays as the bytes of a safetensors file."""
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


class Decider:
    """A cluster, and a policy that places pods on it.

    Args:
        arrays: what `Decider::read` in `core/src/decide.rs` reads, by name.

    Raises:
        SteersmanError: an array is missing, or has another type or shape, or a number in it is out of range.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        content = _file(arrays)
        self._number = call("decider_new", content, len(content))
        self._nodes = len(arrays["nodes.free"])
        weakref.finalize(self, call, "forget", self._number)

    def decide(self, class_id: int, labels_id: int = 0) -> tuple[int, int]:
        """Return the node and the devices of a pod, which is not placed; `NOWHERE` and 0 if it fits nowhere."""
        choice = np.empty(2, dtype=np.int64)
        call("decider_decide", self._number, class_id, labels_id, choice)
        return int(choice[0]), int(choice[1])

    def scores(self, class_id: int, labels_id: int = 0) -> Floats:
        """Return the scores of a pod, [N], -inf where it may not run."""
        scores = np.empty(self._nodes)
        call("decider_scores", self._number, class_id, labels_id, scores, len(scores))
        return scores

    def place(self, class_id: int, labels_id: int, node: int, devices: int) -> None:
        """Place a pod with the devices of a bit mask, without checking that it fits."""
        call("decider_place", self._number, class_id, labels_id, node, devices)

    def remove(self, class_id: int, labels_id: int, node: int, devices: int) -> None:
        """Undo `place` with the same arguments, exactly."""
        call("decider_remove", self._number, class_id, labels_id, node, devices)

    def fill(self, class_ids: Integers, labels_ids: Integers) -> tuple[Integers, Integers]:
        """Place pods one after another; return their nodes, `NOWHERE` for those that fit nowhere, and devices."""
        nodes, devices = np.empty_like(class_ids), np.empty_like(class_ids)
        call("decider_fill", self._number, class_ids, labels_ids, nodes, devices, len(class_ids))
        return nodes, devices


class Engine:
    """A run: pods that arrive, are bound, wait or fail, and leave.

    Args:
        arrays: what `Engine::read` in `core/src/engine.rs` reads, by name.

    Raises:
        SteersmanError: an array is missing, or has another type or shape, or a number in it is out of range.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        content = _file(arrays)
        self._number = call("engine_new", content, len(content))
        weakref.finalize(self, call, "forget", self._number)

    def stand(self, nodes: Integers, devices: Integers) -> None:
        """Bind the first arrivals to nodes for the whole run, [S] each; they may take more than there is."""
        call("engine_stand", self._number, nodes, devices, len(nodes))

    def let_leave(self, started: Floats, duration: Floats) -> None:
        """Let the first arrivals, which run already, leave after their durations; [S] seconds each."""
        call("engine_let_leave", self._number, started, duration, len(started))

    def queue_first(self, count: int) -> None:
        """Let the next arrivals wait since their times, and try them all at time 0."""
        call("engine_queue_first", self._number, count)

    def advance(self, until: int) -> int:
        """Handle events until so many are recorded; return why it stopped, see `event_arrays.DONE`."""
        return call("engine_advance", self._number, until)

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

    def events(self) -> tuple[Floats, Integers, Floats]:
        """Return times, [E], numbers and sums, [E, 10] each, as in `event_arrays.EventRecord`."""
        count = call("engine_count", self._number)
        times, numbers, sums = np.empty(count), np.empty((count, 10), dtype=np.int64), np.empty((count, 10))
        call("engine_events", self._number, times, numbers, sums, count)
        return times, numbers, sums


class Batch:
    """Episodes in which the caller chooses nodes, stepped together.

    Attributes:
        nodes, pods, contexts, masks: observations, [E, N, F], [E, P], [E, X] and [E, N].
        rewards, terminated, truncated: of the last step, [E].
    """

    def __init__(self, count: int, nodes: int, features: tuple[int, int, int]) -> None:
        width, pod, context = features
        self._number = call("batch_new", count)
        self.nodes = np.zeros((count, nodes, width), dtype=np.float32)
        self.pods, self.contexts = np.zeros((count, pod), np.float32), np.zeros((count, context), np.float32)
        self.masks = np.zeros((count, nodes), dtype=np.int8)
        self.rewards = np.zeros(count)
        self.terminated, self.truncated = np.zeros(count, dtype=np.int8), np.zeros(count, dtype=np.int8)
        self._buffers = Buffers(self.nodes, self.pods, self.contexts, self.masks)
        weakref.finalize(self, call, "forget", self._number)

    def begin(self, e: int, arrays: Mapping[str, npt.NDArray[np.generic]]) -> bool:
        """Begin an episode; return whether it asks for a node."""
        content = _file(arrays)
        return bool(call("batch_begin", self._number, e, content, len(content), self._buffers))

    def step(self, actions: Integers) -> None:
        """Take an action in every episode."""
        results = (self.rewards, self.terminated, self.truncated)
        call("batch_step", self._number, actions, *results, len(actions), self._buffers)

    def states(self, e: int) -> Floats:
        """Return the states now, before the last action and after it, [3, 15], see `objectives.summary`."""
        states = np.empty((3, 15))
        call("batch_states", self._number, e, states)
        return states
