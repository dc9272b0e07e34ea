"""Connection between a scheduler and the process of an agent that decides for it while it learns.

The scheduler asks, the agent answers with a slot: one question at a time, each with the outcome of the decision before
it. Where the answer does not come in time, the fallback policy decides; the scheduler drops the answer when it comes,
and only then asks again. So an agent that is slow, stuck or dead delays waiting pods by one deadline for each of its
late answers; the event loop of the scheduler goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import structlog

ANSWER_SECONDS = 2.0  # time that the pods wait for the agent's answer; an update of PPO takes a few tenths of a second
END_SECONDS = 10.0  # time for the agent to write its last checkpoint

ANSWERED, INFEASIBLE, LATE, ABSENT = "answered", "infeasible", "late", "absent"
"""Results of a question: the agent decided; its node is not feasible, or not any more; it did not answer in time; it is
not there (yet, or any more), or still busy."""

Row = npt.NDArray[np.float64]

log = structlog.get_logger("learning")


@dataclass(frozen=True, slots=True)
class DecisionOutcome:
    """Outcome of a decision: the node taken and its reward, or the states that determine it."""

    slot: int  # chosen slot, by the agent or by the fallback in its stead; -1: none, the pod was deleted before
    # `before`, `after`: the states before and after it, [16] each, see `objectives.summary`; where nodes' metrics are
    # rewarded, both are the state after it.
    before: Row
    after: Row
    reward: float | None = None  # its reward where nodes' metrics are rewarded; None: the states determine it
    ended: bool = False  # whether all pods of the scheduler were gone before the next decision


@dataclass(frozen=True, slots=True)
class Question:
    """A pod to place."""

    observation: Mapping[str, npt.NDArray[Any]]  # parts of the observation by name, without a leading axis
    fallback: int  # slot that the fallback would choose; -1 if the agent does not ask
    previous: DecisionOutcome | None  # outcome of the decision before, None for the first


class AgentLink:
    """The scheduler's end.

    Args:
        connection: to the agent's process.
        asks_fallback: whether the agent needs the fallback's choice.
        seconds: time for an answer.
    """

    def __init__(self, connection: Connection, *, asks_fallback: bool, seconds: float = ANSWER_SECONDS) -> None:
        self.asks_fallback, self.seconds, self._connection = asks_fallback, seconds, connection
        # Number of questions by result
        self.results: Counter[str] = Counter(dict.fromkeys((ANSWERED, INFEASIBLE, LATE, ABSENT), 0))
        # A message larger than the pipe's buffer waits for its reader, so that all is sent in a thread.
        self._thread = ThreadPoolExecutor(1, "agent")
        self._pending: Future[Any] = self._thread.submit(connection.recv)  # the agent's first message: it is ready
        self._is_ready = self._is_over = False

    def replace(self, connection: Connection) -> None:
        """Ask another process, since the last one has ended. May be called in another thread."""
        self._connection = connection
        self._pending = self._thread.submit(connection.recv)
        self._is_ready = self._is_over = False

    @property
    def is_ready(self) -> bool:
        """Return whether the agent has said that it can be asked."""
        return self._is_ready or (self._pending.done() and self._pending.exception() is None)

    def is_free_or_count(self) -> bool:
        """Return whether the agent can be asked; count the question as `absent` if not."""
        is_free = self._is_free()
        self.results[ABSENT] += not is_free
        return is_free

    async def ask(self, question: Question) -> int | None:
        """Return the slot that the agent chooses; None, counted by reason, if there is no answer in time.

        The agent must be free. The caller counts an answer, by `count_answer`.
        """
        connection, self._pending = self._connection, self._thread.submit(self._ask, question)
        answer = asyncio.wrap_future(self._pending)
        answer.add_done_callback(_retrieve)
        await asyncio.wait([answer], timeout=self.seconds)  # which does not cancel it
        if not answer.done():
            if not self.results[LATE]:
                log.warning("the agent did not answer in time; the fallback decided", seconds=self.seconds)
            self.results[LATE] += 1
            return None
        if answer.exception() is not None:
            self.results[ABSENT] += 1
            if connection is self._connection:  # else another process was started meanwhile
                self._end()
            return None
        return int(answer.result())

    def count_answer(self, *, is_feasible: bool) -> None:
        """Count an answer by whether a pod can go there."""
        self.results[ANSWERED if is_feasible else INFEASIBLE] += 1

    def close(self, seconds: float = END_SECONDS) -> None:
        """Tell the agent to save and to end, and wait until it has, at most so long."""
        # An agent that is not ready yet reads no messages, and the thread still waits for its first one.
        was_ready, self._is_over = self._is_ready and not self._is_over, True
        if was_ready:
            with suppress(LateError, EOFError, OSError):
                self._thread.submit(self._end_agent).result(seconds)
        # The thread may be blocked in `recv` by an agent that never answers, so it is not waited for.
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ask(self, question: Question) -> Any:
        self._connection.send(question)
        return self._connection.recv()

    def _end_agent(self) -> None:
        """Send the end, and wait until the other end of the pipe is closed (EOFError)."""
        self._connection.send(None)
        while True:
            self._connection.recv()

    def _is_free(self) -> bool:
        if self._is_over or not self._pending.done():
            return False
        if isinstance(self._pending.exception(), EOFError | OSError):
            self._end()
            return False
        if not self._is_ready:
            self._is_ready = True
            log.info("the agent decides")
        return True

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            log.error("the agent has ended; the fallback decides")


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """Read the error of an answer that came late, so that asyncio does not log it."""
    if not answer.cancelled():
        answer.exception()
