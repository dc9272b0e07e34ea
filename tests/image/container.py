"""Run an image of an OCI layout as a container, without an engine: umoci unpacks it, crun runs it.

As in a pod of deploy/: the image's user, a read-only root, /tmp in memory, no capabilities. The network is not its own.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

CGROUPS = "mount -t cgroup2 none /sys/fs/cgroup"
"""In a namespace of mounts of its own: crun needs one of the two kinds of cgroups, and machines may mix them."""
OMITTED = ("cgroup", "mqueue", "sysfs")
"""Mounts that need a network or cgroups of its own."""
WRITABLE = ("/tmp", "/home/steersman")
"""Folders in memory, if the image has them."""


@dataclass(frozen=True)
class Container:
    """An unpacked image.

    Attributes:
        bundle: folder of its files and of its configuration for a runtime.
    """

    bundle: Path

    @classmethod
    def unpack(cls, layout: Path, tag: str, bundle: Path) -> Container:
        """Unpack an image of a layout."""
        subprocess.run(["umoci", "unpack", "--image", f"{layout}:{tag}", str(bundle)], check=True, timeout=900)
        return cls(bundle)

    @property
    def user(self) -> int:
        """The number of the image's user."""
        found: int = self._configuration()["process"]["user"]["uid"]
        return found

    def command(
        self, *words: str, entrypoint: Sequence[str] | None = None, mounts: Mapping[Path, str] | None = None
    ) -> list[str]:
        """Return the command that runs a container.

        Args:
            words: arguments of its entrypoint.
            entrypoint: another entrypoint than the image's.
            mounts: files of the machine that it reads, and where.
        """
        name = f"test-{uuid4().hex}"
        configuration = self._configuration()
        process, linux = configuration["process"], configuration["linux"]
        process["args"] = [*(self._entrypoint() if entrypoint is None else entrypoint), *words]
        process |= {"terminal": False, "capabilities": {}, "noNewPrivileges": True}
        configuration["root"]["readonly"] = True
        hosts = self.bundle / f"{name}.hosts"
        hosts.write_text(f"127.0.0.1 localhost {configuration.get('hostname', '')}\n")  # as every engine does
        bound = [
            {"destination": place, "type": "bind", "source": str(file), "options": ["bind", "ro"]}
            for file, place in ({hosts: "/etc/hosts"} | dict(mounts or {})).items()
        ]
        kept = [mount for mount in configuration["mounts"] if mount["type"] not in OMITTED]
        memory = [
            {"destination": folder, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]}
            for folder in WRITABLE
            if (self.bundle / "rootfs" / folder.lstrip("/")).exists()
        ]
        configuration["mounts"] = [*kept, *memory, *bound]
        linux["namespaces"] = [each for each in linux["namespaces"] if each["type"] != "network"]
        linux.pop("resources", None)
        file = self.bundle / f"{name}.json"
        file.write_text(json.dumps(configuration))
        run = ["crun", "--cgroup-manager=disabled", f"--root={self.bundle}/state", "run"]
        run += [f"--bundle={self.bundle}", f"--config={file}", name]
        return ["unshare", "--mount", "sh", "-c", f"{CGROUPS} && exec {shlex.join(run)}"]

    def run(self, *words: str, entrypoint: Sequence[str] | None = None, seconds: float = 600) -> str:
        """Run a container to its end, which has to be a good one; what it printed."""
        done = subprocess.run(
            self.command(*words, entrypoint=entrypoint),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _configuration(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.bundle / "config.json").read_text())
        return read

    def _entrypoint(self) -> list[str]:
        # umoci joins entrypoint and arguments; an entrypoint is one word in all images.
        words: list[str] = self._configuration()["process"]["args"]
        return words[:1]
