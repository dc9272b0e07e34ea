"""Handle requests to end: Ctrl-C, SIGTERM, and SIGHUP of a closed terminal. All of them raise KeyboardInterrupt."""

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

from steersman.core.early_signals import SIGNALS, end_program

Handler = Callable[[int, FrameType | None], None]

ONE_REQUEST_SECONDS = 1.0
"""Repeated signals within this time are one request: a key that is held down, a Ctrl-C that several senders forward."""

AGAIN_SECONDS = 0.01


class Interrupted(KeyboardInterrupt):
    """A signal asked the program to end.

    If KeyboardInterrupt itself leaves an `exec` of source text, as of a dataclass, CPython remembers it even where it
    is caught, and ends the program by SIGINT instead of its exit status (`_Py_UnhandledKeyboardInterrupt`).
    """


class SignalState:
    """The signal that asked the program to end, None as long as none did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._heard = -math.inf

    def interrupt(self, number: int, _: FrameType | None) -> None:
        """Handle a signal: raise KeyboardInterrupt, unless one is being handled already."""
        self.signal = number
        now = time.monotonic()
        paused, self._heard = now - self._heard > ONE_REQUEST_SECONDS, now
        if paused and not _ending():
            raise Interrupted

    def lost(self, unraisable_hook_args: sys.UnraisableHookArgs) -> None:
        """Handle an exception that cannot be raised, as in `__del__`, so that a KeyboardInterrupt is not lost."""
        if self.signal is not None and issubclass(unraisable_hook_args.exc_type, KeyboardInterrupt):
            self._later()
        else:
            sys.__unraisablehook__(unraisable_hook_args)

    def _later(self) -> None:
        threading.Timer(AGAIN_SECONDS, self._again).start()

    def _again(self) -> None:
        # Else the repeated signal would count as a part of the first request.
        self._heard = -math.inf
        signal.pthread_kill(threading.main_thread().ident or 0, self.signal or signal.SIGINT)

    def status(self) -> int:
        """Return the exit status of a program that a signal ended; 130 (Ctrl-C) where none was received."""
        return 128 + (self.signal or signal.SIGINT)


def _ending() -> bool:
    """Return whether the interrupted code runs because of a KeyboardInterrupt: cleaning up, saving, reporting."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextmanager
def interruptible() -> Iterator[SignalState]:
    """Raise KeyboardInterrupt in the block at every signal that asks to end; ignored ones (`nohup`) stay ignored.

    After the first one the program is about to end, and further signals are ignored so that they do not disturb that.
    """
    state = SignalState()
    replaced = signal.SIG_DFL, signal.default_int_handler, end_program
    previous = _replace_handlers(state.interrupt, lambda handler: handler in replaced)
    hook, sys.unraisablehook = sys.unraisablehook, state.lost
    try:
        yield state
    finally:
        sys.unraisablehook = hook
        for number, handler in previous.items():
            signal.signal(number, handler if state.signal is None else signal.SIG_IGN)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Handle signals at the end of the block, for what is short and must not be interrupted."""
    deferred: list[int] = []
    previous = _replace_handlers(lambda number, _: deferred.append(number), callable)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if deferred:
            signal.raise_signal(deferred[0])


def _replace_handlers(handler: Handler, is_replaced: Callable[[Any], bool]) -> dict[int, Any]:
    """Return the previous handlers of the signals whose handler was replaced; none outside the main thread."""
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other one is ever interrupted
        for number in SIGNALS:
            if is_replaced(signal.getsignal(number)):
                previous[number] = signal.signal(number, handler)
    return previous
