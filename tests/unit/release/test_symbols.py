"""release.symbols: a library is smaller without what nothing loads, and is loaded as before."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from release.symbols import cut


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of a library as its wheel has it, with symbols."""
    found = importlib.util.find_spec("frozenlist._frozenlist")
    assert found is not None
    assert found.origin is not None
    return Path(shutil.copy(found.origin, tmp_path))


def test_cut_library_is_smaller_and_loads(library: Path) -> None:
    before = library.stat().st_size
    saved = cut(library)
    assert saved > 0
    assert library.stat().st_size == before - saved
    load = (
        "import importlib.util as util, sys\n"
        "spec = util.spec_from_file_location('frozenlist._frozenlist', sys.argv[1])\n"
        "module = util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(list(module.FrozenList([1, 2])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", load, library], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "[1, 2]\n", done.stderr


def test_cut_library_names_no_sections(library: Path) -> None:
    cut(library)
    place, sections = struct.unpack("<40xQ12xHxx", library.read_bytes()[:64])
    assert (place, sections) == (0, 0)
    assert cut(library) == 0


def test_other_file_stays_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "libm.so"
    script.write_text("/* GNU ld script */ GROUP ( libm.so.6 )\n" * 5)
    assert cut(script) == 0
    assert script.read_text() == "/* GNU ld script */ GROUP ( libm.so.6 )\n" * 5
