"""The compiled core (`core/`, in Rust), called with numbers and flat arrays.

It is a shared library where one was built for this machine, and else WebAssembly, which runs everywhere and gives the
same results (`steersman.core.portable`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from steersman.core.errors import SteersmanError, checkout_of_this, unknown_name
from steersman.core.interface import BYTES, ERROR_BYTES, FUNCTIONS, NUMBER, SIZE, Core
from steersman.core.portable import PortableCore
from steersman.core.signals import Interrupted

NAME = {"darwin": "libsteersman_core.dylib", "win32": "steersman_core.dll"}.get(sys.platform, "libsteersman_core.so")
CHECKOUT = checkout_of_this()
LIBRARY = CHECKOUT / "core" / "target" / "release" / NAME if CHECKOUT else Path(__file__).with_name(NAME)
MODULE = (CHECKOUT / "plugin/pkg/core" if CHECKOUT else Path(__file__).parents[1] / "data") / "core.wasm"
VARIABLE = "STEERSMAN_CORE"


class NativeCore:
    """The core as a shared library. Calls release the interpreter's lock."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(str(LIBRARY))
            self._functions = {name: getattr(self._library, f"steersman_{name}") for name in FUNCTIONS}
            for name, function in self._functions.items():
                function.argtypes, function.restype = FUNCTIONS[name], NUMBER
            for name in ("error", "compiler"):
                function = getattr(self._library, f"steersman_{name}")
                function.argtypes, function.restype = [BYTES, SIZE], SIZE
        except (OSError, AttributeError) as error:
            build = "build it again: make core" if CHECKOUT else f"{VARIABLE}=portable does without"
            raise SteersmanError(f"the native core cannot be loaded: {error}; {build}") from None

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        try:
            answer: int = self._functions[name](*arguments)
        except ctypes.ArgumentError:
            # ctypes replaces whatever is raised while it converts an argument, also at a signal. What is wrong with an
            # argument is raised again.
            for kind, value in zip(FUNCTIONS[name], arguments, strict=True):
                kind.from_param(value)
            raise Interrupted from None
        if answer < 0:
            raise SteersmanError(self._text("error"))
        return answer

    def __str__(self) -> str:
        return f"native ({' '.join(self._text('compiler').split()[:2])})"

    def _text(self, name: str) -> str:
        text = ctypes.create_string_buffer(ERROR_BYTES)
        length = getattr(self._library, f"steersman_{name}")(text, len(text))
        return text.raw[:length].decode(errors="replace")


def _chosen() -> str:
    chosen = os.environ.get(VARIABLE) or ("native" if LIBRARY.exists() else "portable")
    if chosen not in (names := ("native", "portable")):
        raise unknown_name(f"core in ${VARIABLE}", chosen, names)
    return chosen


@cache
def _load() -> Core:
    if _chosen() == "native":
        return NativeCore()
    return PortableCore(MODULE)


_loading = threading.RLock()


def core() -> Core:
    """Return the core of this process, which `$STEERSMAN_CORE` may choose.

    Raises:
        SteersmanError: it cannot be loaded.
    """
    with _loading:  # threads that ask first at the same time would get two
        return _load()


def core_line() -> str:
    """Return which core this process uses, for people."""
    return f"core {core()}" if _chosen() == "native" else "core portable (WebAssembly)"


def call(name: str, *arguments: Any) -> int:
    """Call a function of the core and return its answer.

    Raises:
        SteersmanError: the core says what is wrong.
    """
    return core().call(name, arguments)
