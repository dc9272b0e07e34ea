"""Read a workload for a command: with a message if it is slow, a summary, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from steersman.cli.output.display import Warnings, one_line, say, status_if_slow
from steersman.core.errors import SteersmanError, UsageError
from steersman.workloads.files import check_writable
from steersman.workloads.workload import RunningPods, Workload

MODEL_SUFFIX = ".safetensors"  # of policy files and order files
FASTER = " (kubectl's -o json is read some 25 times as fast)"


def read_workload(
    nodes: Path | None, pods: Path, running: RunningPods, warn: Warnings, *, strict: bool = False, lives: bool = False
) -> Workload:
    from steersman.workloads.loading import load_workload

    yaml = pods.name.removesuffix(".gz").endswith((".yaml", ".yml"))
    with status_if_slow(f"reading {pods}{FASTER if yaml else ''}"):
        workload = load_workload(nodes, pods, running=running, strict=strict, lives=lives)
    say_understood(workload, warn)
    return workload


def holds_nodes(file: Path) -> bool:
    """Return whether a file or folder of pods holds nodes, too. Raises InputError: it is missing or invalid."""
    from steersman.workloads.loading import open_source

    return open_source(file).has_nodes()


def say_understood(workload: Workload, warn: Warnings) -> None:
    if workload.understood:
        say(one_line(f"{workload.name}: {workload.understood}"))
    if workload.nodes and workload.account.left_out:
        say(one_line(f"{workload.name}: {workload.account.sentence}"))
    warn(workload.warnings)


def is_named(spec: str, namespace: str, name: str) -> bool:
    """Return whether NAME or NAMESPACE/NAME specifies a pod of this namespace and name."""
    wanted, slash, own = spec.rpartition("/")
    return name == own and (not slash or namespace == wanted)


def pod_index(workload: Workload, spec: str) -> int:
    """Return the index of the pod that NAME or NAMESPACE/NAME specifies."""
    matches = [i for i, pod in enumerate(workload.pods) if is_named(spec, pod.namespace, pod.name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise several_pods(spec, [(workload.pods[i].namespace, workload.pods[i].name) for i in matches])
    raise SteersmanError(f"--pod {spec}: there is no such pod among the {len(workload.pods)} of {workload.name}")


def several_pods(spec: str, keys: Sequence[tuple[str, str]]) -> SteersmanError:
    candidates = ", ".join(sorted(f"{namespace}/{name}" for namespace, name in keys))
    return SteersmanError(f"--pod {spec}: several pods have that name; choose one of {candidates}")


def check_model_output(output: Path, kind: str, read: Callable[[Path], object], else_what: str = "") -> None:
    """Check that a file of weights can be written, before anything is computed.

    Args:
        kind: what it will be, such as `a policy file`.
        else_what: end of the error about its name, for other files that the command writes.
    """
    if output.suffix != MODEL_SUFFIX:
        raise UsageError(f"--output {output}: the name of {kind} must end in {MODEL_SUFFIX}{else_what}")
    check_overwriting(output, kind, read)


def check_overwriting(output: Path, kind: str, read: Callable[[Path], object]) -> None:
    """Check that --output can be written and overwrites nothing but a file of its kind, see `check_model_output`."""
    if output.exists():
        try:
            read(output)
        except SteersmanError:
            raise UsageError(f"--output {output}: exists and is not {kind}; name another file") from None
    check_writable("--output", output)
