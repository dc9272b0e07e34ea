"""A formula as a file of Go that compiles on its own: the score of a node, and the GPUs that a pod takes there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from steersman.policies.features import POD_KINDS
from steersman.policies.formulas.features import CHANGE, FORMULA_FEATURES, FormulaFeature
from steersman.policies.formulas.formula import Formula, FormulaTerm

_CASES = ("pod.GPUs == 0", "pod.GPUs == 1 && pod.GPUMilli < 1000", "pod.GPUs == 1", "")
_COMMENTS = ("no GPU", "a share of a GPU", "one GPU", "several GPUs")

GO_HEADER = "// Package rule is a policy of steersman as a formula, made by steersman policy export."
"""First line."""

_SUMS = {
    "total": "total += left",
    "squares": "squares += left * left",
    "waste": "waste += left - largest(left)",
    "dead": "dead += left * flag(largest(left) == 0)",
    "whole": "whole += flag(left == 1000)",
    "shared": "shared += flag(left > 0 && left < 1000)",
}
"""What is summed over GPUs by name."""
_VALUES = {
    "count": "count := float64(len(node.GPUFree))",
    "cpu": "",
    "cpuShare": "cpuShare := share(node.CPU, node.CPUAll)",
    "memoryShare": "memoryShare := share(node.Memory, node.MemoryAll)",
    "claims": "claims := claimed[node.Model]",
}
_HELPERS = {
    "flag": """func flag(is bool) float64 {
\tif is {
\t\treturn 1
\t}
\treturn 0
}""",
    "square": "func square(x float64) float64 { return x * x }",
    "share": """func share(free, all int64) float64 {
\tif all <= 0 {
\t\treturn 0
\t}
\treturn float64(free) / float64(all)
}""",
    "largest": """// largest returns the largest of sizes that fits, 0 if none does.
func largest(left float64) float64 {
\tfound := 0.0
\tfor _, size := range sizes {
\t\tif size <= left {
\t\t\tfound = size
\t\t}
\t}
\treturn found
}""",
}
"""Functions that the description of a node calls, by name."""

_TYPES = """// Pod is what a pod requests: milli-CPU, bytes, and GPUs with so many milli of each, 1000 for whole ones.
type Pod struct{ CPU, Memory, GPUs, GPUMilli int64 }

// Node is a node: free milli-CPU and bytes, all of them, and the free milli of each GPU.
type Node struct {
\tCPU, Memory, CPUAll, MemoryAll int64
\tGPUFree                        []int64
\tModel                          string // of the GPUs
}"""

_DEVICES = """\
// Devices returns the GPUs that a pod takes: those with the least free that suffice, of equal ones the first.
func Devices(pod Pod, node Node) []int {
\tvar taken []int
\tfor range pod.GPUs {
\t\tbest := -1
\t\tfor d, left := range node.GPUFree {
\t\t\tif left >= pod.GPUMilli && !slices.Contains(taken, d) && (best < 0 || left < node.GPUFree[best]) {
\t\t\t\tbest = d
\t\t\t}
\t\t}
\t\tif best >= 0 {
\t\t\ttaken = append(taken, best)
\t\t}
\t}
\treturn taken
}

func withPod(pod Pod, node Node) Node {
\tfree := slices.Clone(node.GPUFree)
\tfor _, d := range Devices(pod, node) {
\t\tfree[d] -= pod.GPUMilli
\t}
\tnode.CPU, node.Memory, node.GPUFree = node.CPU-pod.CPU, node.Memory-pod.Memory, free
\treturn node
}"""


def go_file(formula: Formula) -> str:
    """Return the text of a Go file of the package `rule` with the functions `Score` and `Devices`."""
    used = [feature for feature in FORMULA_FEATURES if feature.name in formula.used_features]
    description = "\n".join(_description(formula, used))
    imports = 'import (\n\t"math"\n\t"slices"\n)' if "math." in description else 'import "slices"'
    helpers = [text for name, text in _HELPERS.items() if f"{name}(" in description]
    fields = ", ".join(_field(feature.name) for feature in used)
    parts = [
        "\n".join([GO_HEADER, *(f"// {each}" for each in formula.comments), "package rule"]),
        imports,
        *_constants(formula),
        _TYPES,
        "\n".join(_score(formula)),
        f"type features struct{{ {fields} float64 }}" if used else "type features struct{}",
        description,
        _DEVICES,
        *helpers,
    ]
    return "\n\n".join(parts) + "\n"


def _constants(formula: Formula) -> Iterator[str]:
    yield f"// cpuPerGPU is the milli-CPU that pods request per GPU.\nconst cpuPerGPU = {formula.cpu_per_gpu!r}"
    if formula.memory_per_cpu:
        yield (
            "// memoryPerCPU is the bytes of memory that pods request per milli-CPU.\n"
            f"const memoryPerCPU = {formula.memory_per_cpu!r}"
        )
    if {"dead", "waste"} & set(formula.used_features):
        sizes = ", ".join(map(str, formula.sizes))
        yield f"// sizes are the thousandths of a GPU that typical pods request.\nvar sizes = []float64{{{sizes}}}"
    if "claimed" in formula.used_features:
        shares = ", ".join(f'"{_quoted(model)}": {share!r}' for model, share in formula.claimed.items())
        yield (
            "// claimed is the share of the requested GPUs that must be of the model.\n"
            f"var claimed = map[string]float64{{{shares}}}"
        )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _field(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _score(formula: Formula) -> Iterator[str]:
    yield "// Score returns the score of a node that a pod fits on: the highest wins. float64 rounds every product."
    yield "func Score(pod Pod, node Node) float64 {"
    names = [term.name for terms in formula.terms for term in terms]
    if names:
        yield "\tnow := describe(withPod(pod, node))"
    if any(name.endswith(CHANGE) for name in names):
        yield "\twas := describe(node)"
    yield "\tswitch {"
    for kind in range(POD_KINDS):
        yield f"\tcase {_CASES[kind]}: // {_COMMENTS[kind]}" if _CASES[kind] else f"\tdefault: // {_COMMENTS[kind]}"
        some = formula.terms[kind]
        terms = " +\n\t\t\t".join(_term(term, is_only=len(some) == 1) for term in some)
        yield f"\t\treturn {terms or '0'}"
    yield "\t}"
    yield "}"


def _term(term: FormulaTerm, *, is_only: bool) -> str:
    name = _field(term.name.removesuffix(CHANGE))
    # gofmt writes the operators of a sum of products without spaces.
    gap = " " if is_only else ""
    value = f"(now.{name}{gap}-{gap}was.{name})" if term.name.endswith(CHANGE) else f"now.{name}"
    return f"float64({term.weight!r}{gap}*{gap}{value})"


def _description(formula: Formula, used: Sequence[FormulaFeature]) -> Iterator[str]:
    needed = {name for feature in used for name in re.findall(r"\w+", feature.go)}
    sums = [name for name in _SUMS if name in needed]
    yield "func describe(node Node) features {"
    if sums:
        yield f"\tvar {', '.join(sums)} float64"
        yield "\tfor _, free := range node.GPUFree {"
        yield "\t\tleft := float64(max(free, 0))"
        yield from (f"\t\t{_SUMS[name]}" for name in sums)
        yield "\t}"
    for name, line in _VALUES.items():
        if name not in needed:
            continue
        if name != "cpu":
            yield f"\t{line}"
        elif formula.memory_per_cpu:
            yield "\tcpu := min(float64(node.CPU), float64(node.Memory)/memoryPerCPU) / cpuPerGPU"
        else:
            yield "\tcpu := float64(node.CPU) / cpuPerGPU"
    yield "\tvar now features"
    assignments = [f"\tnow.{_field(feature.name)} = {feature.go}" for feature in used]
    width = max(map(len, assignments), default=0)
    for feature, assignment in zip(used, assignments, strict=True):
        yield f"{assignment:<{width}} // {feature.meaning}"
    yield "\treturn now"
    yield "}"
