"""Ctrl-C, and the requests to end that take its path: SIGTERM, and SIGHUP when the terminal goes away."""

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

from steersman.processes import SIGNALS

Handler = Callable[[int, FrameType | None], None]

ONE_REQUEST_SECONDS = 1.0
"""A key that is held down, or a Ctrl-C that several senders pass on, is one request: no pause in it is longer."""


CALLED_BY_LLVM = frozenset({"_raw_object_cache_notify", "_raw_object_cache_getbuffer"})
"""Functions of llvmlite that must not fail. A signal that comes while LLVM compiles, for seconds, is heard in them."""

AGAIN_SECONDS = 0.01


class Received:
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
def interruptible() -> Iterator[Received]:
    """Every signal that asks to end raises KeyboardInterrupt inside, but one that is ignored (`nohup`) stays so.

    After one came the program is about to end, and signals are ignored, so that nothing disturbs that.
    """
    received = Received()
    former = _handle(received.interrupt, lambda found: found in (signal.SIG_DFL, signal.default_int_handler))
    hook, sys.unraisablehook = sys.unraisablehook, received.lost
    try:
        yield received
    finally:
        sys.unraisablehook = hook
        for number, handler in former.items():
            signal.signal(number, handler if received.signal is None else signal.SIG_IGN)


@contextmanager
def undisturbed() -> Iterator[None]:
    """For cleaning up after an interruption, which is short: another Ctrl-C inside changes nothing."""
    former = _handle(_nothing, callable)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _handle(handler: Handler, replaced: Callable[[Any], bool]) -> dict[int, Any]:
    """Handle the signals whose handler may be replaced; what these were. Only the main thread can; none elsewhere."""
    former: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if replaced(signal.getsignal(number)):
                former[number] = signal.signal(number, handler)
    return former
