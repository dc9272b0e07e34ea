"""End the program in one line at signals that come before a command runs, or when it has ended.

Modules are being imported then, or the interpreter shuts down. An exception there is not ours alone to catch, and
nothing needs to be saved. This module imports next to nothing, because no signal is handled until it has been imported.
"""

from __future__ import annotations

import os
import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_program(number: int, _frame: object) -> None:
    try:
        os.write(2, b"interrupted\n")
    finally:  # standard error may be closed
        os._exit(128 + number)


def end_at_signals() -> None:
    """End the program at signals that ask for it; ignored ones (`nohup`) stay ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, end_program)
