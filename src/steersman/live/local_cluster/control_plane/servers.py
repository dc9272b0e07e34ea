"""Control plane of processes on this machine: kwokctl writes certificates and arguments and starts them.

They are stopped here and not by kwokctl, which kills whatever process has a recorded id, even after a reboot, and whose
build may be gone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

from steersman.core.errors import SteersmanError

FILE = "stages.yaml"
KWOK = "kwok"  # KWOK's work folder in the folder of a cluster
KWOKCTL = "kwokctl.pid"
TELEMETRY = "telemetry"  # folder of the processes of telemetry in the folder of a cluster
SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")
STOP_SECONDS = 10.0
START_SECONDS = 90
LAST_LINES = 2
LOCALHOST = "127.0.0.1"
UNPLAYED = "kwok.x-k8s.io/status=custom"
"""Annotation of pods whose status KWOK leaves alone, as in KWOK's documentation. Others run at once, and end at once if
they are a Job's."""
PORTS = (
    "kubeApiserverPort",
    "etcdPort",
    "etcdPeerPort",
    "kubeControllerManagerPort",
    "kubeSchedulerPort",
    "kwokControllerPort",
)
ENGINES = ("docker", "podman", "nerdctl")
ANSWER_SECONDS = 10.0


def stages() -> str:
    """Return KWOK's rules: nodes become and stay ready, pods run, those of Jobs complete, deleted ones go."""
    return (resources.files("steersman.data.kwok") / FILE).read_text(encoding="utf-8")


def start(programs: Path, folder: Path, name: str, kubeconfig: Path, port: int | None) -> None:
    work = folder / KWOK
    work.mkdir(parents=True, exist_ok=True)
    configuration = work / "kwok.yaml"  # JSON is YAML
    content = json.dumps(kwok_configuration(programs, port), indent=2) + "\n" + stages()
    configuration.write_text(content, encoding="utf-8")
    command = ["--name", name, "create", "cluster", "--kubeconfig", str(kubeconfig), "--wait", f"{START_SECONDS}s"]
    run_kwokctl([programs / "kwokctl", *command], folder)
    missing = [server for server in SERVERS if server not in running(folder)]
    if missing:
        raise failure(f"{missing[0]} did not start", _cluster_folder(folder) / "logs" / f"{missing[0]}.log", folder)


def run_kwokctl(command: Sequence[str | Path], folder: Path) -> None:
    """Run kwokctl with a work folder of ours. Raises SteersmanError: it failed."""
    # A user's KWOK_ variables would override the configuration.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KWOK_")}
    log = folder / "kwokctl.log"
    _kept_log(folder).unlink(missing_ok=True)
    command = [str(part) for part in command]
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command,
            env=environment | {"KWOK_WORKDIR": str(folder / KWOK)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            (folder / KWOKCTL).write_text(str(process.pid), encoding="ascii")  # the servers go on if we are killed
            process.wait()
        except BaseException:
            # kwokctl is interrupted, and what it started is stopped by `stop`.
            process.kill()
            raise
    if process.returncode:
        raise failure("kwokctl failed", log, folder)


def failure(what: str, log: Path, folder: Path) -> SteersmanError:
    """Return an error with the end of a log, which is kept beside the cluster's folder, since that will be removed."""
    kept = _kept_log(folder)
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
        kept.write_text(text, encoding="utf-8")
    except OSError as error:
        return SteersmanError(f"{what}, and its log is not there ({error.strerror})")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return SteersmanError(f"{what}: {' | '.join(lines[-LAST_LINES:]) or 'it said nothing'} (log: {kept})")


def running(folder: Path) -> dict[str, int]:
    """Return the process ids of a cluster's running servers by program, those of telemetry included.

    While kwokctl starts them it is one of them.

    An id in a file may be another process's by now, so the process must have been started with files of the cluster.
    """
    result = {}
    pids = (*_cluster_folder(folder).glob("pids/*.pid"), *(folder / TELEMETRY).glob("*.pid"))
    for file in (folder / KWOKCTL, *sorted(pids)):
        try:
            pid = int(file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        # With the separator, since a folder's name may be the beginning of another's.
        if f"{folder}{os.sep}" in command_line(pid):
            result[file.stem] = pid
    return result


def ended(folder: Path) -> list[str]:
    """Return the servers of a cluster that should run and do not."""
    return sorted(set(SERVERS) - running(folder).keys())


def stop(folder: Path) -> None:
    """Kill the servers of a cluster, whose data goes with them, and wait until they have ended.

    On SIGTERM the API server waits ten seconds and more for its clients and for etcd.
    """
    until = time.monotonic() + STOP_SECONDS
    while servers := running(folder):
        if time.monotonic() > until:
            raise SteersmanError(f"cannot be stopped: {', '.join(f'{name} {pid}' for name, pid in servers.items())}")
        for pid in servers.values():
            # Repeatedly: kwokctl may have started another one meanwhile.
            _kill(pid)
        time.sleep(0.05)


def kwok_configuration(programs: Path, port: int | None) -> dict[str, object]:
    binaries = {
        "kubeApiserverBinary": "kube-apiserver",
        "kubeControllerManagerBinary": "kube-controller-manager",
        "kubeSchedulerBinary": "kube-scheduler",
        "kubectlBinary": "kubectl",
        "etcdBinary": "etcd",
        "kwokControllerBinary": "kwok",
    }
    options: dict[str, object] = {
        "runtime": "binary",
        "bindAddress": LOCALHOST,
        "disableQPSLimits": True,
        **{option: str(programs / program) for option, program in binaries.items()},
        **dict(zip(PORTS, free_ports([port or 0, *(0 for _ in PORTS[1:])]), strict=True)),
    }
    unplayed = {"key": "disregard-status-with-annotation-selector", "value": UNPLAYED}
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": options,
        "componentsPatches": [{"name": "kwok-controller", "extraArgs": [unplayed]}],
    }


def free_ports(wanted: Sequence[int]) -> list[int]:
    """Return ports that are free, all held at once so that they differ; 0 stands for any."""
    with ExitStack() as held:
        result = []
        for port in wanted:
            server = held.enter_context(socket.socket())
            # Connections of a cluster that was just stopped do not count.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((LOCALHOST, port))
            except OSError as error:
                raise SteersmanError(f"--port {port}: {(error.strerror or str(error)).lower()}") from None
            result.append(int(server.getsockname()[1]))
        return result


def _kept_log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def _cluster_folder(folder: Path) -> Path:
    return folder / KWOK / "clusters" / folder.name


def command_line(pid: int) -> str:
    """Return the command line of a process, "" if there is no such process or it has ended."""
    if Path("/proc/self").exists():
        try:
            return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    command = ["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)]  # macOS
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return "" if shown.startswith("Z") else shown


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise SteersmanError(f"process {pid} is another user's; they must stop it") from None


def find_engine() -> str:
    """Return the first container engine that answers, if kwokctl is installed too; else ""."""
    if shutil.which("kwokctl") is None:
        return ""
    return next((engine for engine in ENGINES if _answers(engine)), "")


def start_containers(engine: str, version: str, folder: Path, name: str, kubeconfig: Path, port: int | None) -> None:
    """Start the containers of a cluster with a version of Kubernetes. Raises SteersmanError: it failed."""
    (folder / KWOK).mkdir(parents=True, exist_ok=True)
    configuration = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {"kubeVersion": version},
    }
    content = json.dumps(configuration, indent=2) + "\n" + stages()  # JSON is YAML
    (folder / KWOK / "kwok.yaml").write_text(content, encoding="utf-8")
    command: list[str | Path] = ["kwokctl", "--name", name, "create", "cluster", "--runtime", engine]
    command += ["--kubeconfig", kubeconfig, "--disable-qps-limits", "--quiet-pull", "--wait", "300s"]
    if port is not None:
        command += ["--kube-apiserver-port", str(port)]
    run_kwokctl(command, folder)


def _answers(engine: str) -> bool:
    try:
        done = subprocess.run([engine, "info"], capture_output=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
