"""What the native core was asked, and what it answered: asked again, the portable core has to answer the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from steersman.core.errors import SteersmanError
from steersman.core.interface import FUNCTIONS, NUMBER, Buffers, Core

CREATING = ("engine_again", "batch_engine")
"""Functions of an object that make another one."""


@dataclass
class Call:
    """A call: its arguments before and after it, and the answer or the error's text."""

    name: str
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    answer: int | str


class RecordingCore:
    """A core that remembers all calls."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.calls: list[Call] = []

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        before = _copies(arguments)
        answer = ask(self.core, name, arguments)
        self.calls.append(Call(name, before, _copies(arguments), answer))
        if isinstance(answer, str):
            raise SteersmanError(answer)
        return answer


def ask(core: Core, name: str, arguments: tuple[Any, ...]) -> int | str:
    """Return the answer, or the error's text."""
    try:
        return core.call(name, arguments)
    except SteersmanError as error:
        return str(error)


def replay(calls: list[Call], core: Core) -> int:
    """Ask again, compare every bit that is written, and return the number of bytes compared."""
    numbers, compared = {}, 0
    for call in calls:
        if call.name == "forget" and call.before[0] not in numbers:
            continue  # of another test, whose object is collected now
        is_new = call.name.endswith("_new") or call.name in CREATING
        has_number = FUNCTIONS[call.name][0] == NUMBER
        arguments = (numbers[call.before[0]], *call.before[1:]) if has_number else call.before
        answer = ask(core, call.name, arguments)
        if is_new:
            numbers[call.answer] = answer
        else:
            assert answer == call.answer, call.name
        for ours, theirs in zip(_arrays(arguments), _arrays(call.after), strict=True):
            assert ours.tobytes() == theirs.tobytes(), call.name
            compared += ours.nbytes
    return compared


def _copies(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        Buffers(*(array.copy() for array in each.arrays))
        if isinstance(each, Buffers)
        else each.copy()
        if isinstance(each, np.ndarray)
        else each
        for each in arguments
    )


def _arrays(arguments: tuple[Any, ...]) -> list[np.ndarray[Any, Any]]:
    buffers = [array for each in arguments if isinstance(each, Buffers) for array in each.arrays]
    return [*(each for each in arguments if isinstance(each, np.ndarray)), *buffers]
