"""Keys of a terminal that a program draws on."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import select
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

HELD_SECONDS = 0.05
"""Time after which an ESC that nothing follows is the key Escape, and not the first byte of another key."""
KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])|.", re.DOTALL)
INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
CHARACTERS = {"\x03": "ctrl+c", "\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"}
SEQUENCES = {
    **{"A": "up", "B": "down", "H": "home", "F": "end", "1~": "home", "7~": "home", "4~": "end", "8~": "end"},
    **{"5~": "page up", "6~": "page down"},
}
"""Keys by what follows ESC [ or ESC O, as xterm, rxvt, screen and the Linux console send it."""


@contextmanager
def pressed_keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` with the keys that are pressed during the block; afterwards the terminal is as it was before.

    A key is a character or a name, such as `page up`. `ctrl+c` is one, and sends no signal; so is the terminal's end.
    """
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    before, mode = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    stop, stopping = os.pipe()

    def read() -> None:
        text = ""
        while stop not in (ready := select.select([terminal, stop], [], [], HELD_SECONDS if text else None)[0]):
            if ready:
                try:
                    data = os.read(terminal, 4096)
                except OSError:
                    data = b""
                if not data:
                    loop.call_soon_threadsafe(press, "ctrl+c")
                    return
                text += decoder.decode(data)
            if not ready or not INCOMPLETE.search(text):
                for key in KEY.findall(text):
                    if name := CHARACTERS.get(key, key) if len(key) == 1 else SEQUENCES.get(key[2:]):
                        loop.call_soon_threadsafe(press, name)
                text = ""

    # A thread, since uvloop would make the terminal non-blocking, and frames that are written to it incomplete.
    reader = threading.Thread(target=read, daemon=True)
    termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
    reader.start()
    try:
        yield
    finally:
        os.close(stopping)
        reader.join()
        os.close(stop)
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
