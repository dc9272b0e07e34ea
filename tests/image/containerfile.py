"""Follow a Containerfile without a container engine: its instructions in a fresh root that debootstrap makes.

Its mounts of /proc and /dev are in a namespace of their own; the network is the machine's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

MOUNTS = "mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev"
CACHE = "UV_CACHE_DIR"
"""If it is set, packages come from this folder of the machine instead of being downloaded once more."""
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
TRUSTED = "/machine-certificates.crt"
"""A copy of the machine's certificates, which may be those of a proxy, where no package overwrites it."""
TRUSTING = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
PROXIES = re.compile(".*_proxy$", re.IGNORECASE)


@dataclass
class FreshRoot:
    """A root that instructions change.

    Attributes:
        root: its folder.
        context: the folder that COPY copies from.
        environment: variables of all that runs in it.
        workdir, user, entrypoint: as the last instructions said.
    """

    root: Path
    context: Path
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)

    def follow(self, containerfile: Path) -> None:
        """Follow all instructions."""
        for line in re.sub(r"\\\n\s*", " ", containerfile.read_text()).splitlines():
            kind, _, rest = line.partition(" ")
            if kind and not kind.startswith("#"):
                print(line, flush=True)
                getattr(self, f"_{kind.lower()}")(rest.strip())

    def command(self, program: str) -> list[str]:
        """Return the command that runs a shell's command in the root, as its user."""
        variables = [f"{name}={value}" for name, value in self._variables().items()]
        inside = ["env", "-i", *variables, "sh", "-c", f"cd {self.workdir} && {program}"]
        chroot = ["--userspec", self.user, str(self.root), *inside]
        mounts = MOUNTS.format(root=self.root)
        if CACHE in os.environ:
            (self.root / "uv-cache").mkdir(exist_ok=True)
            mounts += f" && mount --bind {os.environ[CACHE]} {self.root}/uv-cache"
        return ["unshare", "--mount", "sh", "-c", f"{mounts} && exec chroot {shlex.join(chroot)}"]

    def _variables(self) -> dict[str, str]:
        home = "/root" if self.user == "root" else f"/home/{self.user}"
        inherited = {name: value for name, value in os.environ.items() if PROXIES.match(name)}
        inherited |= dict.fromkeys(TRUSTING, TRUSTED)
        if CACHE in os.environ:
            inherited[CACHE] = "/uv-cache"
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return inherited | {"PATH": path, "HOME": home, "LANG": "C.UTF-8"} | self.environment

    def _from(self, image: str) -> None:
        release = re.fullmatch(r"docker\.io/library/debian:(\w+)-slim", image)
        assert release is not None, image
        subprocess.run(["debootstrap", "--variant=minbase", release[1], str(self.root)], check=True, timeout=600)
        shutil.copy(CERTIFICATES, self.root / TRUSTED.lstrip("/"))
        for name in ("hosts", "resolv.conf"):  # an engine makes both
            shutil.copy(f"/etc/{name}", self.root / "etc" / name)

    def _workdir(self, folder: str) -> None:
        self.workdir = folder
        (self.root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def _copy(self, arguments: str) -> None:
        *sources, target = arguments.split()
        for source in sources:
            tracked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", source]
            listed = subprocess.run(tracked, cwd=self.context, check=True, capture_output=True, text=True).stdout
            assert listed, source
            for name in filter(None, listed.split("\0")):
                relative = Path(name).name if target == "./" else Path(target) / Path(name).relative_to(source)
                place = self.root / self.workdir.lstrip("/") / relative
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.context / name, place)

    def _run(self, program: str) -> None:
        subprocess.run(self.command(program), check=True, timeout=3000)

    def _env(self, pair: str) -> None:
        name, _, value = pair.partition("=")
        self.environment[name] = value

    def _user(self, name: str) -> None:
        self.user = name

    def _entrypoint(self, words: str) -> None:
        self.entrypoint = json.loads(words)
