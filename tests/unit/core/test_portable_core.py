"""The portable core: the same bits as the native one, and one line where it cannot go on."""

from __future__ import annotations

import gc
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.support.event_digests import digest
from tests.support.nightly import examples
from tests.support.recorded_core import RecordingCore, ask, replay
from tests.unit.core import test_compiled_core as native
from tests.unit.live.scheduler import test_queue_order
from tests.unit.live.scheduler.test_queue import Clock

from steersman.cluster.model import Pod, PodClass, Requests
from steersman.core import extras, handles, library
from steersman.core.errors import SteersmanError, UsageError
from steersman.core.handles import CoreDecider
from steersman.core.interface import FUNCTIONS
from steersman.core.library import LIBRARY, MODULE, NativeCore
from steersman.core.portable import FULL, LOST, PortableCore
from steersman.orders.registry import find_order
from steersman.orders.run_time_history import RunTimeHistory
from steersman.policies.registry import resolve

needs_native = pytest.mark.skipif(not LIBRARY.exists(), reason="`make core` builds it (needs Rust)")
ROOT = Path(__file__).resolve().parents[3]
ALL_NODES = np.zeros(0, dtype=np.int8)


@pytest.fixture(scope="module")
def portable() -> PortableCore:
    return PortableCore(MODULE)


@pytest.fixture
def lost() -> PortableCore:
    """An instance that ran out of memory."""
    core = PortableCore(MODULE)
    core._store.set_limits(memory_size=64 << 20)
    with pytest.raises(SteersmanError, match=f"^{re.escape(FULL)}$"):  # noqa: PT012 - each takes 8 MB
        for _ in range(9):
            core.call("batch_new", (1 << 20,))
    return core


@pytest.fixture
def description() -> bytes:
    """The bytes that describe a small cluster."""
    twins = native.RandomCluster(sequence(RandomDraws(3), 5), resolve("kube-default"), 1)
    return handles._file(twins.described)


def decisions() -> None:
    for seed, name in enumerate(("fgd", native.SUMS[0], "random", "kube-default")):
        native.play(native.RandomCluster(sequence(RandomDraws(seed), native.PODS), resolve(name), seed), seed)


def orders_and_gangs() -> None:
    for order in ("", "easy", "wfp3:easy@history", "age:any@ageing:10m"):
        digest(f"random, {order}")


def live_orders() -> None:
    draws = random.Random(1)
    for name in test_queue_order.NAMES:
        clock, order = Clock(), find_order(name)
        steps = [
            (draws.choice(("add", "add", "pop", "failed", "wake", "time")), draws.randrange(25)) for _ in range(60)
        ]
        queue = test_queue_order.queue_of(order, clock)
        test_queue_order.compare(queue, test_queue_order.PlainQueue(clock, order), clock, steps)
    history = RunTimeHistory(9)
    for k in range(50):
        pod = Pod("p", PodClass(Requests(cpu_milli=1 + k % 4)), namespace=f"n{k % 3}", owner=f"Job/{'x' * (k % 5)}")
        history.note(pod, 2.0**k)
        history.counts(history.groups(pod.requests, pod.namespace, pod.owner)[k % 4])
    assert len(history.copy().groups) == 10


def learned_scores() -> None:
    digest("learned, network")


def episodes() -> None:
    digest("episodes, fragmentation")


def telemetry() -> None:
    for name in ("5 deployments, mixed", "latency, missed", "live model, missed", "live decisions, 0"):
        digest(name)


def openb() -> None:
    digest("openb, fgd")


@needs_native
@pytest.mark.parametrize(
    ("scenario", "least"),
    [
        (decisions, 10_000),
        (orders_and_gangs, 20_000),
        (live_orders, 10_000),
        (learned_scores, 1_000),
        (episodes, 100_000),
        (telemetry, 1_000_000),
        (openb, 10_866 * 21 * 8),
        (native.test_core_steps_many_episodes_as_it_steps_one, 1_000_000),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_portable_core_writes_the_same_bits(
    scenario: Callable[[], None], least: int, portable: PortableCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = RecordingCore(NativeCore())
    monkeypatch.setattr(library, "_load", lambda: recording)
    scenario()
    gc.collect()  # objects that are left would be forgotten by another core
    assert replay(recording.calls, portable) >= least


def hostile(content: bytes, draws: random.Random) -> Iterator[bytes]:
    """Yield descriptions that are cut, have other bytes, or other numbers in their header."""
    start = 8 + int.from_bytes(content[:8], "little")
    numbers = [match.span() for match in re.finditer(rb"\d+", content[:start])]
    for _ in range(examples(300)):
        yield content[: draws.randrange(len(content))]
        changed = bytearray(content)
        for _ in range(draws.randint(1, 4)):
            changed[draws.randrange(start if draws.random() < 0.7 else len(changed))] = draws.randrange(256)
        yield bytes(changed)
        begin, end = draws.choice(numbers)
        number = draws.choice([0, 1, 7, 2**31, 2**32, 2**33 + 8, 2**63, 2**64 - 1, 2**64, 10**30])
        header = content[8:begin] + str(number).encode() + content[end:start]
        yield len(header).to_bytes(8, "little") + header + content[start:]
    for length in (2**31, 2**32 - 1, 2**32 + start - 8, 2**63, 2**64 - 1):
        yield length.to_bytes(8, "little") + content[8:]


@needs_native
@pytest.mark.parametrize("name", ["decider_new", "engine_new"])
def test_bad_descriptions_have_the_same_text(description: bytes, name: str, portable: PortableCore) -> None:
    native_core, refused = NativeCore(), 0
    for content in hostile(description, random.Random(5)):
        answers = [ask(core, name, (content, len(content))) for core in (native_core, portable)]
        assert isinstance(answers[0], str) == isinstance(answers[1], str), answers
        if isinstance(answers[0], str):
            assert answers[0] == answers[1]
            assert "\n" not in answers[0]
            refused += 1
    assert refused > 100


@needs_native
def test_calls_that_mean_nothing_have_the_same_text(description: bytes, portable: PortableCore) -> None:
    draws = random.Random(6)
    cores = (NativeCore(), portable)
    numbers = [core.call("decider_new", (description, len(description))) for core in cores]
    for _ in range(examples(300)):
        name = draws.choice(["decider_place", "decider_remove", "engine_answer", "engine_advance", "batch_engine"])
        count = len(FUNCTIONS[name]) - 1
        words = [draws.choice([-(2**63), -1, 0, 1, 9, 2**31, 2**32, 2**63 - 1]) for _ in range(count)]
        if name == "batch_engine":
            words = [abs(words[0])]
        texts = [ask(core, name, (number, *words)) for core, number in zip(cores, numbers, strict=True)]
        assert texts[0] == re.sub(rf"\bobject {numbers[1]}\b", f"object {numbers[0]}", str(texts[1])) or texts == [0, 0]


def test_more_than_four_gigabytes_is_one_line(portable: PortableCore) -> None:
    large = np.empty(1 << 29, dtype=np.int64)  # not a page of it is ever read
    for array in (large, large[: 1 << 28], large[: (1 << 28) + 1]):
        with pytest.raises(SteersmanError, match=f"^{re.escape(FULL)}$"):
            portable.call("decider_fill", (1, array, array, array, array, len(array)))
    with pytest.raises(SteersmanError, match="there is no object 12345"):
        portable.call("engine_question", (12345,))


def test_instance_that_stopped_is_not_asked_again(lost: PortableCore) -> None:
    for name, arguments in (("batch_new", (1,)), ("engine_question", (1,))):
        with pytest.raises(SteersmanError, match=f"^{re.escape(LOST)}$"):
            lost.call(name, arguments)
    assert lost.call("forget", (1,)) == 0  # as the garbage collector does, at any time


def test_arrays_of_another_type_are_refused(portable: PortableCore) -> None:
    for array in (np.zeros(2, dtype=np.int32), np.zeros((2, 2), dtype=np.int64)[:, 0], [0, 0]):
        with pytest.raises(TypeError):
            portable.call("decider_decide", (1, 0, 0, ALL_NODES, 0, array))
    read_only = np.zeros(2, dtype=np.int64)
    read_only.flags.writeable = False
    with pytest.raises(TypeError, match="WRITEABLE"):
        portable.call("decider_decide", (1, 0, 0, ALL_NODES, 0, read_only))


def test_threads_ask_the_portable_core(
    description: bytes, portable: PortableCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_load", lambda: portable)
    number = portable.call("decider_new", (description, len(description)))
    failures: list[object] = []

    def work(seed: int) -> None:
        choice, expected = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
        portable.call("decider_decide", (number, 0, 0, ALL_NODES, 0, expected))
        for _ in range(200):
            portable.call("decider_decide", (number, 0, 0, ALL_NODES, 0, choice))
            text = ask(portable, "decider_place", (number, 0, 0, 10_000 + seed, 0))
            if choice.tolist() != expected.tolist() or not str(text).startswith(f"node: {10_000 + seed} "):
                failures.append((choice, text))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_machine_code_is_kept_and_damage_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(tmp_path))
    PortableCore(MODULE)
    (kept,) = (tmp_path / "core").iterdir()
    whole = kept.read_bytes()
    for content in (whole[:-1], b"", whole[:1000] + b"x" + whole[1001:]):
        kept.write_bytes(content)
        PortableCore(MODULE).call("forget", (1,))
        assert kept.read_bytes() == whole


@pytest.mark.parametrize("folder", ["file", "missing/file"])
def test_cache_that_cannot_be_written_is_done_without(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEERSMAN_CACHE_DIR", str(tmp_path / "file" / folder))
    assert PortableCore(MODULE).call("forget", (1,)) == 0


def test_core_is_chosen_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEERSMAN_CORE", "portable")
    assert library.core_line() == "core portable (WebAssembly)"
    monkeypatch.setenv("STEERSMAN_CORE", "portabel")
    with pytest.raises(UsageError, match="did you mean 'portable'"):
        library.core_line()


def test_core_that_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "libsteersman_core.so")
    with pytest.raises(SteersmanError, match=r"the native core cannot be loaded: .*make core"):
        NativeCore()
    with pytest.raises(SteersmanError, match=r"core\.wasm: cannot be read: .*; build it: make core-wasm"):
        PortableCore(tmp_path / "core.wasm")
    monkeypatch.setattr(extras, "is_installed", lambda _: False)
    with pytest.raises(SteersmanError, match="the portable core needs the extra 'portable'"):
        PortableCore(MODULE)


def test_decider_works_on_the_chosen_core(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = native.RandomCluster(sequence(RandomDraws(3), 5), resolve("fgd"), 1)
    for core in (PortableCore(MODULE), *([NativeCore()] if LIBRARY.exists() else [])):
        monkeypatch.setattr(library, "_load", lambda core=core: core)
        decider = CoreDecider(twins.described)
        assert decider.decide(0) == (int(np.argmax(decider.scores(0))), 0)
        del decider


def test_committed_module_is_built_of_these_sources(tmp_path: Path) -> None:
    made_by = re.search(rb"rustc \d[^)]*\)(?: \([a-z ]*\))?", MODULE.read_bytes())
    assert made_by
    compilers = {shutil.which("rustc"), "/usr/bin/rustc"} - {None}
    versions = {
        subprocess.run([str(each), "--version"], capture_output=True, check=False).stdout.strip()
        for each in compilers
        if Path(str(each)).exists()
    }
    if made_by[0] not in versions:
        pytest.skip(f"core.wasm was made by {made_by[0].decode()}, which is not installed")
    built = subprocess.run(
        [ROOT / "core" / "build-wasm.sh", tmp_path / "core.wasm"], capture_output=True, text=True, check=False
    )
    if built.returncode and "needs Rust's library" in built.stderr:
        pytest.skip(built.stderr.strip())
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "core.wasm").read_bytes() == MODULE.read_bytes(), "build it again: make core-wasm"


def test_committed_module_names_no_folder_and_imports_nothing() -> None:
    import wasmtime

    content = MODULE.read_bytes()
    assert wasmtime.Module(wasmtime.Engine(), content).imports == []
    assert not re.findall(rb"/(?:root|home|usr|tmp|build|work)/[\w./-]*", content)
    assert len(content) < 1_050_000
