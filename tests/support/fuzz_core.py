"""Fuzz the core: `python -m tests.support.fuzz_core [SECONDS [SEED]]` plays recorded calls with other values.

Whatever a host gives, an answer is a number or one line of text. A panic is a bug: exit status 1, and the call is
printed. Lengths of buffers are true, since a host that lies about these is beyond help.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.support.event_digests import digest
from tests.support.recorded_core import CREATING, Call, RecordingCore, ask
from tests.unit.core import test_compiled_core as compiled
from tests.unit.core import test_core_networks as networks
from tests.unit.policies.decision import test_live_core as live

from steersman.core import library
from steersman.core.handles import PolicyHandle
from steersman.core.interface import FUNCTIONS, NUMBER, SIZE
from steersman.core.library import NativeCore
from steersman.policies.features import CLUSTER, GPU

PANIC = "this is a bug"
MOST_MEMORY = 12 << 30
NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 2, 7, 61, 62, 63, 64, 1000, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1)
REALS = (0.0, -0.0, 1e-320, -1.0, 1e18, -1e300, float("inf"), float("-inf"), float("nan"))


def policy_files() -> None:
    for name, norm in networks.ALL:
        for view in (CLUSTER, GPU):
            PolicyHandle("n.safetensors", networks.network_file(name, norm, view)[1])
    PolicyHandle("f.txt", networks.FORMULA)


def live_cluster() -> None:
    for name in live.POLICIES:
        live.test_a_decider_follows_nodes_labels_classes_and_pods_of_the_moment(name)


def random_decisions() -> None:
    for name in ("fgd", "random", "kube-default", compiled.SUMS[0]):
        cluster = compiled.RandomCluster(compiled.sequence(compiled.RandomDraws(3), 60), compiled.resolve(name), 3)
        compiled.play(cluster, 3)


SCENARIOS: tuple[Callable[[], object], ...] = (
    policy_files,
    random_decisions,
    live_cluster,
    lambda: digest("random, wfp3:easy@history"),
    lambda: digest("learned, network"),
    lambda: digest("episodes, fragmentation"),
)


def recorded(scenario: Callable[[], object]) -> list[Call]:
    """Return the calls of a scenario, with their arguments as they were before."""
    recording, load = RecordingCore(NativeCore()), library._load
    library._load = lambda: recording  # type: ignore[assignment]
    try:
        scenario()
    finally:
        library._load = load
    return recording.calls


def mutated(call: Call, draws: random.Random) -> tuple[Any, ...]:
    """Return arguments with one that is something else; lengths stay true."""
    arguments, kinds = list(call.before), FUNCTIONS[call.name]
    at = draws.randrange(len(arguments))
    argument = arguments[at]
    match argument:
        case bytes() if at + 1 < len(arguments) and kinds[at + 1] == SIZE:
            arguments[at] = _other_bytes(argument, draws)
            arguments[at + 1] = len(arguments[at])
        case np.ndarray() if argument.size:
            changed = argument.copy()
            flat = changed.reshape(-1)
            if changed.dtype != np.uintp:
                values = REALS if changed.dtype.kind == "f" else NUMBERS
                limits = np.iinfo(changed.dtype) if changed.dtype.kind in "iu" else None
                value = draws.choice([v for v in values if limits is None or limits.min <= v <= limits.max])
                if changed.dtype.kind in "iuf":
                    flat[draws.randrange(flat.size)] = value
            arguments[at] = changed
        case int() if kinds[at] == NUMBER and at:
            arguments[at] = draws.choice(NUMBERS)
        case float():
            arguments[at] = draws.choice(REALS)
    return tuple(arguments)


def _other_bytes(content: bytes, draws: random.Random) -> bytes:
    changed = bytearray(content)
    match draws.randrange(4):
        case 0:
            return content[: draws.randrange(len(content) + 1)]
        case 1:
            for _ in range(draws.randint(1, 8)):
                if changed:
                    changed[draws.randrange(len(changed))] = draws.randrange(256)
        case 2 if len(changed) > 16:
            # A number of an array: little-endian, aligned to the header's end.
            start = 8 + int.from_bytes(content[:8], "little")
            if start + 8 <= len(changed):
                place = start + 8 * draws.randrange((len(changed) - start) // 8)
                changed[place : place + 8] = draws.choice(NUMBERS).to_bytes(8, "little", signed=True)
        case _:
            changed += changed[: draws.randrange(64)]
    return bytes(changed)


def play(calls: list[Call], core: NativeCore, draws: random.Random, counts: Counter[str]) -> str:
    """Play calls in their order, some changed, some left out; return the text of a panic."""
    numbers: dict[Any, int | str] = {}
    rate = draws.choice((0.002, 0.02, 0.2))
    for call in calls:
        if draws.random() < rate / 4:
            continue
        has_number = FUNCTIONS[call.name][0] == NUMBER
        arguments = mutated(call, draws) if draws.random() < rate else call.before
        if has_number:
            known = numbers.get(call.before[0], 0)
            arguments = (known if isinstance(known, int) else 0, *arguments[1:])
        answer = ask(core, call.name, arguments)
        counts["refused" if isinstance(answer, str) else "answered"] += 1
        if isinstance(answer, str) and (PANIC in answer or "\n" in answer):
            return f"{call.name}: {answer}"
        if call.name.endswith("_new") or call.name in CREATING:
            numbers[call.answer] = answer
    for number in numbers.values():
        if isinstance(number, int):
            core.call("forget", (number,))
    return ""


def main() -> int:
    """Play for so many seconds of processor; return the exit status."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    core, counts, draws = NativeCore(), Counter[str](), random.Random(seed)
    sequences = [recorded(scenario) for scenario in SCENARIOS]
    began, rounds = time.process_time(), 0
    while time.process_time() - began < seconds:
        calls = draws.choice(sequences)
        start = draws.randrange(len(calls)) if draws.random() < 0.3 else 0
        if panic := play(calls[start : start + 4_000], core, draws, counts):
            print(panic)
            return 1
        rounds += 1
    print(f"{rounds} sequences, {counts['answered']} calls answered, {counts['refused']} refused in one line, no panic")
    return 0


if __name__ == "__main__":
    sys.exit(main())
