"""A wheel from the sdist has the native core where there is one, else wasmtime among its dependencies; both decide."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.support.differential.draws import RandomDraws
from tests.support.differential.sequences import sequence
from tests.unit.core.test_compiled_core import RandomCluster

from steersman.core.handles import CoreDecider
from steersman.core.library import LIBRARY
from steersman.policies.registry import resolve

CHECKOUT = Path(__file__).resolve().parents[2]
DECIDE = """
import sys
from pathlib import Path
from safetensors.numpy import load_file
import steersman
from steersman.core.handles import CoreDecider
from steersman.core.library import core_line

assert Path(steersman.__file__).is_relative_to(sys.argv[2])
decider = CoreDecider(load_file(sys.argv[1]))
print(core_line(), decider.decide(0), decider.scores(0).tolist(), sep=";")
"""


def run(*command: str | Path, **environment: str) -> str:
    """Run a command on a machine without cargo, and return what it printed."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    settings = inherited | {"PATH": str(Path(sys.executable).parent)} | environment
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, CHECKOUT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (unpacked,) = (each for each in folder.iterdir() if each.is_dir())
    assert not (unpacked / "core" / "target").exists()
    return unpacked


@pytest.mark.integration
@pytest.mark.parametrize(
    ("native", "chosen", "tag", "line"),
    [
        (False, "", "-py3-none-any.whl", "core portable (WebAssembly)"),
        (True, "", f"_{os.uname().machine}.whl", "core native (rustc "),
        (True, "portable", "-py3-none-any.whl", "core portable (WebAssembly)"),
    ],
)
def test_wheel_of_the_sdist_decides(
    sources: Path, tmp_path: Path, native: bool, chosen: str, tag: str, line: str
) -> None:
    library = sources / "core" / "target" / "release" / LIBRARY.name
    library.unlink(missing_ok=True)
    if native:
        if not LIBRARY.exists():
            pytest.skip("`make core` builds it (needs Rust)")
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(LIBRARY.read_bytes())
    run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, sources, STEERSMAN_CORE=chosen
    )
    (wheel,) = tmp_path.glob("steersman-*.whl")
    assert wheel.name.endswith(tag)
    assert "-py3-none-" in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "installed")
        (metadata,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        required = [each for each in opened.read(metadata).decode().splitlines() if each.startswith("Requires-Dist: ")]
    assert any("wasmtime" in each and "extra" not in each for each in required) == ("portable" in line)

    cluster = RandomCluster(sequence(RandomDraws(3), 5), resolve("fgd"), 1)
    description = cluster.described
    save_file({name: np.asarray(array, order="C") for name, array in description.items()}, tmp_path / "cluster")
    path = os.pathsep.join([str(tmp_path / "installed"), *(each for each in sys.path if "site-packages" in each)])
    printed = run(sys.executable, "-c", DECIDE, tmp_path / "cluster", tmp_path / "installed", PYTHONPATH=path)
    decider = CoreDecider(description)
    decided = f"{decider.decide(0)};{decider.scores(0).tolist()}"
    assert printed.startswith(line)
    assert printed.strip().partition(";")[2] == decided


@pytest.mark.integration
def test_library_of_another_machine_is_left_out(sources: Path, tmp_path: Path) -> None:
    library = sources / "core" / "target" / "release" / LIBRARY.name
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"\x7fELF of another architecture")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, sources)
    assert next(tmp_path.glob("*.whl")).name.endswith("-py3-none-any.whl")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, sources]
    refused = subprocess.run(
        command, env={"PATH": "", "STEERSMAN_CORE": "native"}, capture_output=True, text=True, check=False
    )
    assert refused.returncode
    assert "the native core cannot be built: " in refused.stdout + refused.stderr
