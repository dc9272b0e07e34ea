"""What every step of a release uses: the version, the date, and programs that are run."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "build" / "tools"
INSTALLED_BY = {
    "buildah": "apt-get install buildah",
    "mmdebstrap": "apt-get install mmdebstrap",
    "cosign": "make release-tools",
    "crane": "make release-tools",
    "helm": "make release-tools",
    "syft": "make release-tools",
}
"""What installs each tool."""


class ReleaseError(Exception):
    """What is wrong and what would be right, in one line.

    Args:
        text: the line.
        status: exit status; 2 where the call is at fault.
    """

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def version() -> str:
    """Return the version of the package, which is the tag of every image."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "src" / "steersman" / "version.py").read_text())
    assert found is not None
    return found[1]


def tool(name: str) -> str:
    """Return the path of a tool: one of `make release-tools`, else one on the PATH."""
    found = shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None:
        raise ReleaseError(f"{name} is missing; install it: {INSTALLED_BY[name]}", 2)
    return found


def run(
    command: Sequence[str | Path],
    *,
    what: str,
    log: Path | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    """Run a program, which can ask for nothing, and return what it prints.

    Args:
        command: program and arguments.
        what: what fails if the program does, in words.
        log: file that takes all that the program prints, instead of the result; what it started is killed with it
            when this is interrupted.
        environment: additional environment variables.

    Raises:
        ReleaseError: the program fails; the text ends with the last line of its errors.
    """
    variables = os.environ | (environment or {})
    if log is None:
        nothing = subprocess.DEVNULL
        done = subprocess.run(command, stdin=nothing, capture_output=True, text=True, check=False, env=variables)
        printed, errors, status = done.stdout, done.stderr, done.returncode
    else:
        printed, status = "", _run_logged(command, log, variables)
        errors = log.read_text(errors="replace")
    if status:
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        place = f" (all of it: {log})" if log else ""
        raise ReleaseError(f"{what}: {lines[-1] if lines else f'status {status}'}{place}")
    return printed


def _run_logged(command: Sequence[str | Path], log: Path, variables: dict[str, str]) -> int:
    """Run a program in its own process group, which is killed on interruption, and return its exit status."""
    with (
        open(log, "w") as opened,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=opened, stderr=opened, env=variables, process_group=0
        ) as process,
    ):
        try:
            return process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def exit_status(work: Callable[[], None]) -> int:
    """Run the work of a command and return its exit status; a ReleaseError or interruption is printed as a line."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def source_date() -> int:
    """Return `$SOURCE_DATE_EPOCH`, else the date of the commit, in seconds."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        if not given.isdecimal():
            raise ReleaseError(f"SOURCE_DATE_EPOCH is {given!r}; it must be a number of seconds", 2)
        return int(given)
    return int(run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], what="git tells no date; set SOURCE_DATE_EPOCH"))


def check_key(key: Path) -> None:
    """Check that the private key exists. Raises ReleaseError: it does not."""
    if not key.is_file():
        raise ReleaseError(f"{key} is missing; name the private key of `cosign generate-key-pair`", 2)


def signing_options(key: Path, folder: Path) -> list[str]:
    """Return the options of cosign for a signature by a key, without a transparency log.

    Args:
        key: the private key; $COSIGN_PASSWORD is its password.
        folder: takes a file that the options name.

    Raises:
        ReleaseError: the key or its password is wrong.
    """
    what = f"{key} is not a private key whose password is $COSIGN_PASSWORD"
    run([tool("cosign"), "public-key", f"--key={key}"], what=what)
    config = folder / "signing.json"
    services = [f"--no-default-{each}" for each in ("fulcio", "oidc", "rekor", "tsa")]
    run([tool("cosign"), "signing-config", "create", *services, f"--out={config}"], what="cosign")
    return [f"--key={key}", f"--signing-config={config}", "--yes"]


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
