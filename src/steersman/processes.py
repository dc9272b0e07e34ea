"""What every worker process does first, whoever starts it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing import connection


def become_worker() -> None:
    """Leave Ctrl-C to the parent, and end when it does.

    A parent that was killed cannot stop its workers; they would wait for tasks for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
