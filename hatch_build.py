"""Build hook of hatch: the documentation as a site is part of the wheel if `make site` has built it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SiteBuildHook(BuildHookInterface[Any]):
    """Add build/site to the data of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folder to what the wheel includes."""
        site = Path(self.root) / "build" / "site"
        if site.is_dir():
            build_data["force_include"][str(site)] = "steersman/data/site"
