"""A run that every host of the core plays to the same bits: native, WebAssembly in Python, WebAssembly in Go.

`run.description.gz` describes it to the core, and `run.json` has how many events it has and the SHA-256 of their times,
numbers and sums. `python -m tests.contract.run` writes both.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

import numpy as np
from tests.contract.cases import FOLDER, Json
from tests.support.event_digests import events_of, learned_policy
from tests.support.recorded_core import RecordingCore

from steersman.core import library
from steersman.core.interface import Core
from steersman.core.library import NativeCore
from steersman.workloads.formats.openb import embedded

DESCRIPTION, ANSWER = FOLDER / "run.description.gz", FOLDER / "run.json"
NUMBERS = 10
SEED = 7


def play(core: Core, description: bytes) -> Json:
    """Play the run."""
    number = core.call("engine_new", (description, len(description)))
    assert core.call("engine_advance", (number, 1 << 31)) == 0
    none: tuple[Any, ...] = (np.empty(0), np.empty(0, np.int64), np.empty(0))
    count = core.call("engine_events", (number, 0, *none, 0))
    arrays = np.empty(count), np.empty((count, NUMBERS), np.int64), np.empty((count, NUMBERS))
    core.call("engine_events", (number, 0, *arrays, count))
    core.call("forget", (number,))
    return {"events": count, "sha256": hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()}


def description() -> bytes:
    """The file, unpacked."""
    return gzip.decompress(DESCRIPTION.read_bytes())


def main() -> None:
    """Write both files: a policy with a network on embedded workload `default-small`, whose pods come and end."""
    recording = RecordingCore(NativeCore())
    library._load = lambda: recording  # type: ignore[assignment]
    for _ in events_of(embedded("default-small"), "timed", learned_policy("network", SEED), SEED, 1.1):
        pass
    content = next(call.before[0] for call in recording.calls if call.name == "engine_new")
    DESCRIPTION.write_bytes(gzip.compress(content, 9, mtime=0))
    ANSWER.write_text(json.dumps(play(NativeCore(), content)) + "\n")


if __name__ == "__main__":
    main()
