"""Decisions of formulas in their three forms: the text in steersman, the module of Python, the file of Go."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from steersman.cluster.arrays import CPU, MEMORY, best_devices
from steersman.cluster.model import GPU_MILLI, Node, PodClass, Requests
from steersman.cluster.state import ClusterState
from steersman.policies.formulas.features import FEATURE_COUNT, TERM_NAMES
from steersman.policies.formulas.formula import Formula, FormulaTerm, read_formula
from steersman.policies.formulas.go_form import go_file
from steersman.policies.formulas.kernels import formula_scores
from steersman.policies.formulas.python_form import python_module

NODES = 12
MODELS = ("T4", "V100", "")
MAIN = """package main

import (
	"bufio"
	"encoding/json"
	"os"

	"check/rule"
)

type question struct {
	Pod   rule.Pod
	Nodes []rule.Node
}

type answer struct {
	Scores  []float64
	Devices [][]int
}

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for in.More() {
		var asked question
		if err := in.Decode(&asked); err != nil {
			panic(err)
		}
		var found answer
		for _, node := range asked.Nodes {
			found.Scores = append(found.Scores, rule.Score(asked.Pod, node))
			found.Devices = append(found.Devices, append([]int{}, rule.Devices(asked.Pod, node)...))
		}
		if err := encoder.Encode(found); err != nil {
			panic(err)
		}
	}
}
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """A pod and the nodes that it fits on, as the Go program reads them, and what steersman and Python say.

    Attributes:
        question: the pod and the nodes.
        text, python: [K] scores.
        devices: [K] the GPUs that the pod takes in steersman.
    """

    question: dict[str, Any]
    text: npt.NDArray[np.float64]
    python: npt.NDArray[np.float64]
    devices: list[list[int]]


def random_formula(random: np.random.Generator, terms: int = 6) -> Formula:
    """Return a formula of random terms and constants, `terms` for each kind of pod."""
    names = random.permutation(np.array(TERM_NAMES))
    some = [
        tuple(FormulaTerm(float(f"{random.normal():.3g}"), str(name)) for name in names[k::4][:terms]) for k in range(4)
    ]
    sizes = sorted({*random.choice([50, 220, 250, 330, 500, 700], 3).tolist(), GPU_MILLI})
    claimed = {"T4": float(f"{random.random():g}"), "V100": 0.25}
    memory = float(f"{random.uniform(1e5, 1e7):g}") if random.random() < 0.7 else 0.0
    return Formula(tuple(some), float(f"{random.uniform(500, 20_000):g}"), memory, tuple(sizes), claimed)


def write_forms(formula: Formula, folder: Path) -> None:
    """Write `rule.txt`, `rule.py` and a Go program that answers on standard output."""
    (folder / "rule.txt").write_text(formula.text(), encoding="utf-8")
    (folder / "rule.py").write_text(python_module(formula, "rule"), encoding="utf-8")
    package = folder / "go" / "rule"
    package.mkdir(parents=True)
    (package / "rule.go").write_text(go_file(formula), encoding="utf-8")
    (folder / "go" / "main.go").write_text(MAIN, encoding="utf-8")
    (folder / "go" / "go.mod").write_text("module check\n\ngo 1.26\n", encoding="utf-8")


def load_module(file: Path) -> ModuleType:
    """Return the module of a file, executed."""
    module = ModuleType(file.stem)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module.__dict__)
    return module


def decisions(folder: Path, count: int, random: np.random.Generator) -> Iterator[Decision]:
    """Yield decisions about random pods on random nodes in random states, by `rule.txt` and `rule.py`."""
    formula, policy = read_formula(folder / "rule.txt"), load_module(folder / "rule.py").Policy()
    while count > 0:
        state = _random_state(random)
        arrays = formula.arrays(state.gpu_types)
        scores, values = np.empty(NODES), np.zeros(2 * FEATURE_COUNT)
        for _ in range(min(count, 50)):
            _fill(state, random)
            c = int(random.integers(len(state.classes)))
            feasible = state.mask(c)
            if not feasible.any():
                continue
            formula_scores(arrays, state.arrays, state.class_arrays, c, feasible, values, scores)
            slots = np.flatnonzero(feasible).tolist()
            taken = [int(best_devices(state.arrays, state.class_arrays, c, n)) for n in slots]
            yield Decision(
                _question(state, c, slots),
                scores[slots],
                policy.scores(state, c, feasible)[slots],
                [[d for d in range(64) if mask >> d & 1] for mask in taken],
            )
            count -= 1


def ask_go(folder: Path, asked: Sequence[Decision]) -> list[dict[str, Any]]:
    """Return the scores and devices of the Go program for each decision."""
    questions = "\n".join(json.dumps(each.question) for each in asked)
    command = ["go", "run", "."]
    answered = subprocess.run(command, cwd=folder / "go", input=questions, capture_output=True, text=True, check=False)
    assert answered.returncode == 0, answered.stderr
    return [json.loads(line) for line in answered.stdout.splitlines()]


def _random_state(random: np.random.Generator) -> ClusterState:
    """Return empty nodes of several kinds, and classes of pods."""
    nodes = [
        Node(
            f"n{i}",
            cpu_milli=int(random.integers(1, 128)) * 1000,
            memory_bytes=int(random.integers(1, 512)) << 30,
            gpu_count=int(random.choice([0, 1, 2, 4, 8])),
            gpu_model=str(random.choice(MODELS)),
        )
        for i in range(NODES)
    ]
    state = ClusterState(nodes)
    for count, shares in ((0, [0]), (1, [50, 220, 250, 500, 999]), (1, [1000]), (2, [500, 1000]), (4, [1000])):
        for milli in shares:
            cpu, memory = int(random.integers(1, 32)) * 500, int(random.integers(0, 64)) << 28
            state.class_id(PodClass(Requests(cpu, memory, gpu_count=count, gpu_milli=milli)))
    return state


def _fill(state: ClusterState, random: np.random.Generator) -> None:
    """Overwrite what is free of every node: GPUs often whole or empty, CPU and memory anything."""
    arrays = state.arrays
    share = random.random((NODES, 2))
    arrays.free[:, CPU] = (arrays.allocatable[:, CPU] * share[:, 0]).astype(np.int64)
    arrays.free[:, MEMORY] = (arrays.allocatable[:, MEMORY] * share[:, 1]).astype(np.int64)
    free = random.choice([0, 80, 250, 500, 750, GPU_MILLI, GPU_MILLI], arrays.gpu_free.shape)
    some = random.random(free.shape) < 0.2
    free[some] = random.integers(0, GPU_MILLI + 1, int(some.sum()))
    devices = np.arange(free.shape[1])
    arrays.gpu_free[:] = np.where(devices < arrays.gpu_count[:, None], free, 0)


def _question(state: ClusterState, c: int, slots: Sequence[int]) -> dict[str, Any]:
    requests, arrays = state.classes[c].requests, state.arrays
    pod = {
        "CPU": requests.cpu_milli,
        "Memory": requests.memory_bytes,
        "GPUs": requests.gpu_count,
        "GPUMilli": requests.gpu_milli,
    }
    nodes = [
        {
            "CPU": int(arrays.free[n, CPU]),
            "Memory": int(arrays.free[n, MEMORY]),
            "CPUAll": int(arrays.allocatable[n, CPU]),
            "MemoryAll": int(arrays.allocatable[n, MEMORY]),
            "GPUFree": arrays.gpu_free[n, : arrays.gpu_count[n]].tolist(),
            "Model": getattr(state.nodes[n], "gpu_model", ""),
        }
        for n in slots
    ]
    return {"Pod": pod, "Nodes": nodes}
