"""`steersman workbench` for real: every address answers those who may, and one signal ends everything."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from tests.e2e.conftest import STEERSMAN, until

from steersman.live.workbench import TUTORIALS

pytestmark = pytest.mark.e2e

MARK = "STEERSMAN_TEST_WORKBENCH"
"""A variable that whatever the workbench starts inherits."""
FREE_PORTS = ("--jupyter-port", "0", "--tensorboard-port", "0", "--dashboard-port", "0")


@dataclass(frozen=True)
class RunningWorkbench:
    """A workbench, the addresses that it printed by name, and the value of its mark."""

    process: subprocess.Popen[str]
    addresses: dict[str, str]
    mark: str

    def processes(self) -> set[int]:
        """Everything that it started and that still runs."""
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.add(int(folder.name))
        return found


def status(url: str) -> int:
    """The status of an address for a browser without cookies of earlier visits."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    try:
        with browser.open(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def said_in_a_terminal(base: str, token: str, command: str) -> set[str]:
    """The lines that a new terminal of JupyterLab shows for a command, up to the path of `steersman`."""

    async def ask() -> str:
        headers, said = {"Authorization": f"token {token}"}, ""
        async with aiohttp.ClientSession(headers=headers) as session, asyncio.timeout(60):
            async with session.post(f"{base}/api/terminals") as answer:
                name = (await answer.json())["name"]
            async with session.ws_connect(f"{base}/terminals/websocket/{name}") as terminal:
                await terminal.send_json(["stdin", f"{command}\r"])
                while f"{STEERSMAN}\r" not in said:
                    kind, *content = await terminal.receive_json()
                    said += content[0] if kind == "stdout" else ""
        return said

    return set(asyncio.run(ask()).splitlines())


def without_token(address: str) -> str:
    return re.sub(r"\?token=.*", "", address)


@contextmanager
def workbench(folder: Path, *arguments: str) -> Iterator[RunningWorkbench]:
    """Run a workbench until the block ends it; nothing of it is left afterwards."""
    mark = uuid.uuid4().hex
    environment = os.environ | {MARK: mark, "STEERSMAN_STATE_DIR": str(folder / "state"), "TMPDIR": str(folder)}
    environment |= {"JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTER_DATA_DIR": str(folder / "data")}
    with (folder / "stderr").open("w") as log:
        process = subprocess.Popen(
            [STEERSMAN, "workbench", "--count", "2", *FREE_PORTS, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    running = RunningWorkbench(process, {}, mark)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.match(r"(\w+): +(http://\S+)", line):
                running.addresses[found[1]] = found[2]
            if line.startswith("Ctrl-C"):
                break
        assert running.addresses.keys() == {"JupyterLab", "TensorBoard", "dashboard"}, (folder / "stderr").read_text()
        yield running
    finally:
        process.terminate()
        process.communicate(timeout=120)
        left = running.processes()
        for pid in left:  # only what was ours, and is left against all expectation
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left


def test_all_addresses_answer_and_one_ctrl_c_ends_all(tmp_path: Path) -> None:
    with workbench(tmp_path) as running:
        addresses = running.addresses
        for name in ("JupyterLab", "dashboard"):
            assert status(addresses[name]) == 200
        base, token = addresses["JupyterLab"].split("/lab?token=")
        assert status(f"{base}/api/contents") == 403
        assert status(f"{base}/api/contents?token={token}x") == 403
        assert status(without_token(addresses["dashboard"])) == 401
        assert status(addresses["TensorBoard"]) == 200
        assert len(token) >= 32
        assert token not in "".join(command_line(pid) for pid in running.processes())
        listed = json.loads(urllib.request.urlopen(f"{base}/api/contents/tutorials?token={token}", timeout=30).read())[
            "content"
        ]
        assert "01-quickstart.ipynb" in {each["name"] for each in listed}
        assert said_in_a_terminal(base, token, "pwd; command -v steersman").issuperset((str(TUTORIALS), str(STEERSMAN)))
        asked = urllib.request.Request(f"{base}/api/kernels?token={token}", method="POST", data=b"{}")
        urllib.request.urlopen(asked, timeout=60).close()
        until(lambda: any("ipykernel" in command_line(pid) for pid in running.processes()))
        assert (tmp_path / "state" / "clusters" / "workbench").is_dir()

        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGINT)  # an impatient user's second one breaks nothing
        assert running.process.wait(120) == 130
        assert not running.processes()
        for address in addresses.values():
            assert refuses(address)
        assert not (tmp_path / "state" / "clusters" / "workbench").exists()
        assert not list(tmp_path.glob("steersman-workbench-*"))
        assert (tmp_path / "stderr").read_text().endswith("interrupted\n")


def test_sigterm_or_a_dead_server_ends_all_servers(tmp_path: Path) -> None:
    with workbench(tmp_path) as running:
        running.process.terminate()
        assert running.process.wait(120) == 143
        assert not running.processes()
    with workbench(tmp_path) as running:
        victim = next(pid for pid in running.processes() if "tensorboard.main" in command_line(pid))
        os.kill(victim, signal.SIGKILL)
        assert running.process.wait(120) == 1
        assert not running.processes()
        last = (tmp_path / "stderr").read_text().splitlines()[-1]
        assert last.startswith("error: TensorBoard ended with exit status -9: ")


def command_line(pid: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().replace("\0", " ")
    return ""


def refuses(address: str) -> bool:
    """Whether nothing listens at an address; connections that have just ended may linger."""
    port = int(re.findall(r":(\d+)", address)[0])
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return True
        time.sleep(0.1)
    return False
