"""The same run in every host of the core: Go plays it in `plugin/pkg/core`."""

import json

import pytest
from tests.contract.run import ANSWER, description, play

from steersman.core.library import LIBRARY, MODULE, NativeCore
from steersman.core.portable import PortableCore


def test_webassembly_in_python_plays_the_run() -> None:
    assert play(PortableCore(MODULE), description()) == json.loads(ANSWER.read_text())


@pytest.mark.skipif(not LIBRARY.exists(), reason="`make core` builds it (needs Rust)")
def test_native_core_plays_the_run() -> None:
    assert play(NativeCore(), description()) == json.loads(ANSWER.read_text())
