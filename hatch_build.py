"""Build hook of hatch: what is built before the wheel becomes a part of it, the documentation and compiled kernels."""

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = {"site": "steersman/data/site", "kernels": "steersman/data/kernels"}
"""Folders below build/ (`make site`, `make kernels`) and where the package has them."""


class BuildArtifactsHook(BuildHookInterface[Any]):
    """Add what is built to the data of the package; with machine code the wheel is for one Python and architecture."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders that exist to what the wheel includes."""
        if version == "editable":
            return
        folders = {name: Path(self.root) / "build" / name for name in BUILT}
        for name, folder in folders.items():
            if folder.is_dir():
                build_data["force_include"][str(folder)] = BUILT[name]
        if folders["kernels"].is_dir():
            python = f"cp{sysconfig.get_config_var('py_version_nodot')}"
            # Kernels call functions of Numba and the oldest of the C library alone.
            machine = sysconfig.get_platform().replace("-", "_").replace(".", "_").replace("linux_", "manylinux_2_17_")
            build_data["pure_python"] = False
            build_data["tag"] = f"{python}-{python}-{machine}"
