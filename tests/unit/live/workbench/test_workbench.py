"""The workbench before anything starts: ports in use, folders, what its servers are told, and what stops them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from steersman.cli.main import main
from steersman.core import extras
from steersman.core.errors import SteersmanError
from steersman.live import workbench
from steersman.live.workbench import LocalService

PORTS = {"--jupyter-port": "0", "--tensorboard-port": "0", "--dashboard-port": "0"}
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
SERVER = """
import http.server, sys
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda _: True)


@pytest.mark.parametrize("option", PORTS)
@pytest.mark.usefixtures("installed")
def test_a_port_in_use_is_named_with_its_option(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        options = PORTS | {option: port}
        assert main(["workbench", *(part for pair in options.items() for part in pair)]) == 1
    said = capsys.readouterr()
    assert said.err == f"error: {option} {port}: address already in use; give another port, or 0 for a free one\n"
    assert said.out == ""


def test_missing_programs_are_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "jupyterlab", None)
    assert main(["workbench"]) == 1
    assert capsys.readouterr().err.startswith("error: the workbench needs the extra 'workbench': make -C ")


@pytest.mark.usefixtures("installed")
def test_missing_folder_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workbench", "--folder", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err == f"error: --folder {tmp_path / 'none'}: there is no such folder\n"


def test_servers_listen_on_loopback_and_hide_tokens(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    jupyter, other = (workbench.jupyterlab(1234, tmp_path, folder) for folder in folders)
    token = jupyter.environment["JUPYTER_TOKEN"]
    assert token not in " ".join(jupyter.command)
    assert token != other.environment["JUPYTER_TOKEN"]
    assert "--ServerApp.ip=127.0.0.1" in jupyter.command
    assert "--host=127.0.0.1" in workbench.tensorboard(1234, tmp_path).command
    with subprocess.Popen(["true"]) as process:
        assert workbench.StartedService(jupyter, process, tmp_path / "log").address.endswith(f"?token={token}")


def test_checkout_opens_the_tutorials() -> None:
    folder = workbench.default_folder()
    assert (folder / "01-quickstart.ipynb").exists()


def test_links_of_the_tutorials_are_below_the_root_of_jupyterlab(tmp_path: Path) -> None:
    for folder, root in ((workbench.TUTORIALS, workbench.TUTORIALS.parent), (tmp_path, tmp_path)):
        scratch = tmp_path / folder.name
        scratch.mkdir()
        command = workbench.jupyterlab(1234, folder, scratch).command
        assert {f"--ServerApp.root_dir={root}", f"--ServerApp.preferred_dir={folder}"} <= set(command)


def server(port: int, program: str = SERVER) -> LocalService:
    return LocalService("web", "--web-port", port, ["-c", program, str(port)], "/", "/")


def test_servers_run_within_the_context_only(tmp_path: Path) -> None:
    services_of = [server(workbench.choose_port("--web-port", 0)) for _ in range(2)]
    with workbench.running(services_of, tmp_path, {}) as started:
        assert [each.process.poll() for each in started] == [None, None]
    assert [each.process.returncode for each in started] == [-signal.SIGTERM] * 2


def test_failing_server_is_reported_with_its_log(tmp_path: Path) -> None:
    broken = server(workbench.choose_port("--web-port", 0), "print('one'); raise SystemExit('the reason')")
    with pytest.raises(SteersmanError) as caught, workbench.running([broken], tmp_path, UNBUFFERED):
        pass
    assert str(caught.value) == "web ended with exit status 1: the reason"


def test_server_ignoring_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "STOP_SECONDS", 0.2)
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVER
    with workbench.running([server(workbench.choose_port("--web-port", 0), stubborn)], tmp_path, {}) as started:
        pass
    assert started[0].process.returncode == -signal.SIGKILL


def test_the_kernel_has_this_package() -> None:
    pytest.importorskip("ipykernel")
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "kernelspec", "list", "--json"], capture_output=True, check=True, timeout=60
    )
    specification = json.loads(listed.stdout)["kernelspecs"]["python3"]
    assert specification["spec"]["argv"][0] in (sys.executable, "python")
