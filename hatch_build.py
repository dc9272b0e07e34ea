"""Hooks of hatch: the native core if this machine can build it, and documentation if it is built.

`STEERSMAN_CORE=native` makes a build fail without the native core, `STEERSMAN_CORE=portable` builds for any machine.
"""

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = {"darwin": "libsteersman_core.dylib", "win32": "steersman_core.dll"}.get(sys.platform, "libsteersman_core.so")
OLDEST_GLIBC = 17
"""Minor of the C library that wheels need at least."""


def native_core(root: Path) -> Path | None:
    """Build the native core, or take the one already built if cargo is not installed; None: use the portable core.

    A library that this machine cannot load, of another architecture or C library, is left out.
    """
    chosen = os.environ.get("STEERSMAN_CORE")
    if chosen == "portable":
        return None
    core = root / "core"
    library = core / "target" / "release" / NAME
    problem = "" if library.exists() else "cargo is not installed (Rust 1.85 or newer)"
    if cargo := shutil.which("cargo"):
        command = [cargo, "build", "--release", "--target-dir", "target"]
        built = subprocess.run(command, cwd=core, stderr=subprocess.PIPE, text=True, check=False)
        errors = [line for line in built.stderr.splitlines() if line.startswith("error")]
        problem = f"cargo failed: {errors[0] if errors else built.stderr}" if built.returncode else ""
    if not problem:
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            problem = str(error)
        else:
            return library
    if chosen == "native":
        sys.exit(f"the native core cannot be built: {problem}")
    print(f"the portable core is used: {problem}", file=sys.stderr)
    return None


class BuildArtifactsHook(BuildHookInterface[Any]):
    """Add what is built to the package; the core is for one architecture."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what is built to what the wheel includes, or wasmtime to its dependencies.

        Not by a hook of metadata: an sdist keeps what that says on the machine that makes it.
        """
        root = Path(self.root)
        core = native_core(root)
        if core is None:
            build_data["dependencies"] += self.metadata.core.optional_dependencies["portable"]
        if version == "editable":
            return
        if (site := root / "build" / "site").is_dir():  # `make site`
            build_data["force_include"][str(site)] = "steersman/data/site"
        if core:
            build_data["force_include"][str(core)] = f"steersman/core/{NAME}"
            minors = [OLDEST_GLIBC, *map(int, re.findall(rb"\0GLIBC_2\.(\d+)", core.read_bytes()))]
            machine = re.sub(r"[-.]", "_", sysconfig.get_platform())
            if "glibc" in platform.libc_ver():
                machine = machine.replace("linux_", f"manylinux_2_{max(minors)}_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{machine}"
