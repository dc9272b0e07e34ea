package policy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	cpuScale = 128_000.0 // milli-CPU of the largest node of the openb cluster, by which the artifact divides
	gpuScale = 8_000.0   // GPU milli, likewise
	maxScore = 100       // of kube-scheduler's scores
)

// FGD is the name of the policy that follows fragmentation gradient descent.
const FGD = "fgd"

// heuristic is a policy without weights and without a profile: it gives integers to the nodes that the pod fits on.
type heuristic struct {
	name   string
	score  func(*Node, *Pod) int64
	points bool // scores are 0 to 100; others may leave that on nodes larger than any of the openb cluster
}

// heuristics are in the order of the tensor of their weights; that of fgd stands among the features.
var heuristics = [...]heuristic{
	{"dot-product", dotProduct, false},
	{"gpu-clustering", gpuClustering, true},
	{"gpu-packing", gpuPacking, true},
	{"best-fit", bestFit, false},
	{name: FGD},
	{"least-allocated", leastAllocated, true},
	{"most-allocated", mostAllocated, true},
	{"balanced-allocation", balancedAllocation, true},
}

// Builtin returns a built-in policy by name: fgd, dot-product, gpu-clustering, gpu-packing, best-fit, least-allocated,
// most-allocated or balanced-allocation. Only fgd needs a profile.
//
// Formulas of the first five: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, in the artifact's integer
// arithmetic; of the others: kube-scheduler 1.37.
func Builtin(name string, profile *Profile) (*Policy, error) {
	names := make([]string, len(heuristics))
	for i, each := range heuristics {
		if names[i] = each.name; name == each.name && name != FGD {
			return newPolicy(name, profile, Traits{Pointwise: true, Points: each.points}, each.scorer), nil
		}
	}
	switch {
	case name != FGD:
		slices.Sort(names)
		return nil, fmt.Errorf("unknown policy %q; known are %s", name, strings.Join(names, ", "))
	case profile == nil:
		return nil, fmt.Errorf("policy %q needs a workload profile: that of a policy file that %q made", name, prepareCommand)
	}
	return newPolicy(name, profile, Traits{Pointwise: true, Points: true}, newFGD(profile)), nil
}

func newFGD(profile *Profile) func() scorer {
	return func() scorer { return &fgd{newFragmenter(profile)} }
}

func (h heuristic) scorer() scorer { return h }

func (h heuristic) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	score := func(_ int, node *Node) float64 { return float64(h.score(node, pod)) }
	return scoreFitting(ctx, state, pod, candidates, out, score)
}

func (h heuristic) devices(node *Node, pod *Pod) uint64 { return node.GPU.BestFit(&pod.GPU) }

// dotProduct returns int(100 (1 - (c/128000 rc/128000 + g/8000 rg/8000) / 2)): where little is left of what is
// requested.
func dotProduct(node *Node, pod *Pod) int64 {
	cpu := float64(node.CPU.Free) / cpuScale * (float64(pod.CPU) / cpuScale)
	gpus := float64(node.GPU.idleFor(&pod.GPU)) / gpuScale * (float64(pod.GPU.Count*pod.GPU.Milli) / gpuScale)
	return int64(100 * (1 - (float64(cpu)+float64(gpus))/2))
}

// bestFit returns int(100 (1 - (c-rc)/128000/2 - (g-rg)/8000/2)): the least left afterwards.
func bestFit(node *Node, pod *Pod) int64 {
	cpu := float64(node.CPU.Free-pod.CPU) / cpuScale
	gpus := float64(node.GPU.idleFor(&pod.GPU)-pod.GPU.Count*pod.GPU.Milli) / gpuScale
	return int64(100 * (1 - (float64(0.5*cpu) + float64(0.5*gpus))))
}

// gpuClustering keeps pods of one kind (shares, or k whole devices) together: 75, 50, 25 or 0, and up to 25 for a
// fuller node. 0 for pods that get none of the devices.
func gpuClustering(node *Node, pod *Pod) int64 {
	if node.GPU.taken(&pod.GPU) == 0 {
		return 0
	}
	kind, others := 0, 0
	if pod.GPU.Milli == Whole {
		kind = int(pod.GPU.Count)
	}
	for _, count := range node.GPU.Pods {
		if count > 0 {
			others++
		}
	}
	fullness := int64(25 * (gpuScale - float64(node.GPU.idle())) / gpuScale)
	switch {
	case others == 0:
		return fullness + 25
	case kind >= len(node.GPU.Pods) || node.GPU.Pods[kind] == 0:
		return fullness
	case others == 1:
		return fullness + 75
	default:
		return fullness + 50
	}
}

// gpuPacking takes devices in use first, then free devices of nodes in use, then untouched nodes with few devices. 0
// for pods that get none of the devices.
func gpuPacking(node *Node, pod *Pod) int64 {
	if node.GPU.taken(&pod.GPU) == 0 {
		return 0
	}
	var free, leftSum, wholeTaken int64
	devices := node.GPU.BestFit(&pod.GPU)
	for d, left := range node.GPU.Free {
		if left == Whole {
			free++
		}
		if devices>>d&1 != 0 {
			leftSum += left * 100 / Whole
			if left == Whole {
				wholeTaken++
			}
		}
	}
	if free == int64(len(node.GPU.Free)) {
		return max(33-free, free)
	}
	if wholeTaken > 0 {
		return max(50-wholeTaken, 33)
	}
	return max(100-leftSum/10, 50)
}

// leastAllocated returns (a - q) 100 / a, the mean over CPU and memory: q of the a allocatable are taken, the pod's
// included.
func leastAllocated(node *Node, pod *Pod) int64 {
	return meanOfResources(node, pod, func(taken, all int64) int64 { return max(all-taken, 0) * maxScore / all })
}

// mostAllocated returns min(q, a) 100 / a, the mean over CPU and memory.
func mostAllocated(node *Node, pod *Pod) int64 {
	return meanOfResources(node, pod, func(taken, all int64) int64 { return min(taken, all) * maxScore / all })
}

// meanOfResources leaves out a resource that the node does not have.
func meanOfResources(node *Node, pod *Pod, score func(taken, all int64) int64) int64 {
	var total, counted int64
	if all := node.CPU.Allocatable; all != 0 {
		total, counted = total+score(node.CPUScored+pod.CPUScored, all), counted+1
	}
	if all := node.Memory.Allocatable; all != 0 {
		total, counted = total+score(node.MemoryScored+pod.MemoryScored, all), counted+1
	}
	return total / max(counted, 1)
}

// balancedAllocation returns 50 + (50 + B(with the pod) - B(without)) / 2: how much it brings CPU and memory into
// balance; 0 for a pod that requests neither, which kube-scheduler does not score.
func balancedAllocation(node *Node, pod *Pod) int64 {
	if pod.CPU == 0 && pod.Memory == 0 {
		return 0
	}
	cpu, memory := node.CPU.Allocatable-node.CPU.Free, node.Memory.Allocatable-node.Memory.Free
	before := balance(cpu, node.CPU.Allocatable, memory, node.Memory.Allocatable)
	after := balance(cpu+pod.CPU, node.CPU.Allocatable, memory+pod.Memory, node.Memory.Allocatable)
	return maxScore/2 + (maxScore/2+after-before)>>1
}

// balance returns int(100 (1 - |f - g| / 2)) with f and g the shares of CPU and memory taken, at most 1.
func balance(cpu, cpuAll, memory, memoryAll int64) int64 {
	if cpuAll == 0 || memoryAll == 0 {
		return maxScore
	}
	apart := min(float64(cpu)/float64(cpuAll), 1) - min(float64(memory)/float64(memoryAll), 1)
	return int64((1 - math.Abs(apart/2)) * maxScore)
}
