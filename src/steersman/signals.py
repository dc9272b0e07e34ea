"""Requests to end: Ctrl-C, SIGTERM, and SIGHUP when the terminal goes away. All of them raise KeyboardInterrupt."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a program to end."""

Handler = Callable[[int, FrameType | None], None]

ONE_REQUEST_SECONDS = 1.0
"""A key that is held down, or a Ctrl-C that several senders pass on, is one request: no pause in it is longer."""

CALLED_BY_LLVM = frozenset({"_raw_object_cache_notify", "_raw_object_cache_getbuffer"})
"""Functions of llvmlite that must not fail. A signal that comes while LLVM compiles, for seconds, is heard in them."""

AGAIN_SECONDS = 0.01


class SignalState:
    """Which signal asked the program to end, None as long as none did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._heard = -math.inf

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: raise KeyboardInterrupt, unless one is being dealt with already."""
        self.signal = number
        if _names(frame) & CALLED_BY_LLVM:
            self._later()
            return
        now = time.monotonic()
        paused, self._heard = now - self._heard > ONE_REQUEST_SECONDS, now
        if paused and not _ending():
            raise KeyboardInterrupt

    def lost(self, found: sys.UnraisableHookArgs) -> None:
        """Handle an exception that came where none can be raised, as in `__del__`: ours must not be lost there."""
        if self.signal is not None and issubclass(found.exc_type, KeyboardInterrupt):
            self._later()
        else:
            sys.__unraisablehook__(found)

    def _later(self) -> None:
        threading.Timer(AGAIN_SECONDS, self._again).start()

    def _again(self) -> None:
        self._heard = -math.inf
        signal.pthread_kill(threading.main_thread().ident or 0, self.signal or signal.SIGINT)

    def status(self) -> int:
        """What a shell is told of a program that a signal ended; 130 (Ctrl-C) where none was seen."""
        return 128 + (self.signal or signal.SIGINT)


def _names(frame: FrameType | None) -> set[str]:
    """What is being called."""
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names


def _ending() -> bool:
    """Whether the code that a signal stopped runs because of a KeyboardInterrupt: cleaning up, keeping, telling."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextmanager
def interruptible() -> Iterator[SignalState]:
    """Raise KeyboardInterrupt inside at every signal that asks to end; one that is ignored (`nohup`) stays so.

    After one came the program is about to end, and signals are ignored, so that nothing disturbs that.
    """
    state = SignalState()
    former = _replace_handlers(state.interrupt, lambda handler: handler in (signal.SIG_DFL, signal.default_int_handler))
    hook, sys.unraisablehook = sys.unraisablehook, state.lost
    try:
        yield state
    finally:
        sys.unraisablehook = hook
        for number, handler in former.items():
            signal.signal(number, handler if state.signal is None else signal.SIG_IGN)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Handle a signal that comes inside at the end of the block, for what is short and must not be done by halves."""
    deferred: list[int] = []
    former = _replace_handlers(lambda number, _: deferred.append(number), callable)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        if deferred:
            signal.raise_signal(deferred[0])


def _replace_handlers(handler: Handler, is_replaced: Callable[[Any], bool]) -> dict[int, Any]:
    """Return the former handlers of the signals whose handler was replaced: none but in the main thread."""
    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other one is ever interrupted
        for number in SIGNALS:
            if is_replaced(signal.getsignal(number)):
                former[number] = signal.signal(number, handler)
    return former
