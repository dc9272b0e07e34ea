"""Code on pages runs: Python from top to bottom of a page, and commands that need neither a cluster nor minutes."""

from __future__ import annotations

import csv
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.support.pages import PAGES, ROOT, Block, blocks, commands

import steersman.api
from steersman.agents.registry import ALGORITHMS
from steersman.cli.main import main
from steersman.cluster.objects.manifests import node_to_object, pod_to_object
from steersman.objectives import registry as objectives
from steersman.policies import networks
from steersman.policies import registry as policies
from steersman.workloads.formats import registry as formats
from steersman.workloads.formats.openb import embedded
from steersman.workloads.workload import Workload

pytestmark = pytest.mark.integration

DATA: dict[str, Callable[[str], object]] = {
    "csv": lambda text: list(csv.reader(text.splitlines(), strict=True)),
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "text": str,
}
"""Readers of the languages that are no programs."""
TRAINED: dict[str, Any] = {"iterations": 1}
TUNED: dict[str, Any] = {"iterations": 1, "trials": 1}
"""What a page's training and tuning are cut down to: that they work is shown, not that anything is learned."""
QUICK = (
    "aliases",
    "completion",
    "evaluate",
    "explain",
    "simulate",
    "fit policy",
    "workload convert",
    "workload topology",
)
"""Commands that run where all they read is there."""
SEARCH = ("--generations", "1")
"""What the search of `fit policy` is cut down to."""
ELSEWHERE = ("--cluster", "--engine", "--telemetry", "--kubeconfig", "--data-dir", "http://", "training/worker-0")
"""Options and values of what is not here."""
TABLES = {
    "nodes.csv": "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,4,T4\nn2,32000,64000,0,\n",
    "pods.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np1,1000,1000,1,500,\np2,1000,1000,0,0,\n",
    "log.swf": "; MaxProcs: 4\n1 0 -1 60 4 -1 -1 4 90 -1 1 1 1 -1 1 -1 -1 -1\n",
}
"""Files of a reader; others have the nodes and pods of `small_workload`, by the names that pages give them."""
NODES, PODS, BOTH = ("nodes.json", "nodes.yaml", "n.yaml"), ("pods.json", "pods.yaml", "p.yaml"), ("mine.yaml",)


def small_workload() -> Workload:
    """Return 25 nodes and 170 pods."""
    whole = embedded("gpushare40")
    return Workload("mine", whole.nodes[::49], whole.pods[::49])


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of somebody who reads pages, with nodes and pods; what pages register and import is gone afterwards."""
    workload = small_workload()
    nodes, pods = [*map(node_to_object, workload.nodes)], [*map(pod_to_object, workload.pods)]
    for names, items in ((NODES, nodes), (PODS, pods), (BOTH, nodes + pods)):
        for name in names:  # JSON is YAML
            (tmp_path / name).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for name, text in TABLES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    train, tune = steersman.api.train, steersman.api.tune
    monkeypatch.setattr(steersman.api, "train", lambda *given, **options: train(*given, **options | TRAINED))
    monkeypatch.setattr(steersman.api, "tune", lambda *given, **options: tune(*given, **options | TUNED))
    for registry in (policies.REGISTRY, objectives.REGISTRY, networks.REGISTRY, ALGORITHMS, formats.registry()):
        monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(steersman.api, "connect", lambda: SimpleNamespace(workload=small_workload))


def execute(block: Block, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a block; one that begins with a file's name in its docstring is that module."""
    code = compile("\n" * (block.line - 1) + block.text, block.place, "exec")
    first = block.text.removeprefix('"""').partition(":")[0]
    if first.endswith(".py"):
        Path(first).write_text(block.text)
        module = ModuleType(first.removesuffix(".py"))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        names = module.__dict__
    exec(code, names)


def is_quick(words: tuple[str, ...]) -> bool:
    """Whether a call can run here: it reads what is there, and takes seconds."""
    named = [word for word in words if Path(word).suffix in (".csv", ".json", ".yaml", ".swf", ".safetensors", ".txt")]
    made = words[words.index("--output") + 1] if "--output" in words else ""
    return (
        " ".join(words).startswith(QUICK)
        and not any(word.startswith(ELSEWHERE) for word in words)
        and all(Path(word).exists() or word == made for word in named)
        and not Path(made).is_absolute()
        and words[words.index("--workload") + 1 if "--workload" in words else 0] in (words[0], "default-small")
    )


PROGRAMS = [page for page in PAGES if any(block.language == "python" or block.is_shell for block in blocks(page))]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("reader")
def test_a_page_runs_from_top_to_bottom(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python":
            execute(block, names, monkeypatch)
        elif block.is_shell:
            for program, *words in commands(block):
                if program == "steersman" and is_quick(tuple(words)):
                    words += SEARCH if words[:2] == ["fit", "policy"] and words[3] != "my-rule.txt" else ()
                    assert main(words) == 0, f"{block.place}: {' '.join(words)}"


@pytest.mark.usefixtures("reader")
def test_quick_commands_are_recognised() -> None:
    for quick in ("completion", "evaluate --workload default-small --policy fgd --output o", "explain --nodes n.yaml"):
        assert is_quick(tuple(quick.split())), quick
    for slow in ("evaluate --workload default", "evaluate --cluster", "explain --nodes missing.yaml", "train", "top"):
        assert not is_quick(tuple(slow.split())), slow


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_data_blocks_parse_in_their_language(page: Path) -> None:
    for block in blocks(page):
        if block.language and block.language != "python" and not block.is_shell:
            assert DATA[block.language](block.text), block.place
