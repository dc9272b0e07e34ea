package policy

import (
	"context"
	"fmt"
	"math"
	"sort"
	"strings"
)

const (
	cpuScale = 128_000.0 // milli-CPU of the largest node of the openb cluster, by which the artifact divides
	gpuScale = 8_000.0   // GPU milli, likewise
	maxScore = 100       // of kube-scheduler's scores
)

// FGD is the name of the policy that follows fragmentation gradient descent.
const FGD = "fgd"

// heuristics are the policies without weights and without a profile, by name: integers for a node that the pod fits on.
var heuristics = map[string]func(*Node, *Pod) int64{
	"dot-product":         dotProduct,
	"gpu-clustering":      gpuClustering,
	"gpu-packing":         gpuPacking,
	"best-fit":            bestFit,
	"least-allocated":     leastAllocated,
	"most-allocated":      mostAllocated,
	"balanced-allocation": balancedAllocation,
}

// rules is how many heuristics a linear policy may weigh.
const rules = 8

// ruleScores are the heuristics in the order of the tensor of their weights; that of fgd stands among the features.
var ruleScores = [rules]func(*Node, *Pod) int64{
	dotProduct, gpuClustering, gpuPacking, bestFit, nil, leastAllocated, mostAllocated, balancedAllocation,
}

// Builtin returns a built-in policy by name: fgd, dot-product, gpu-clustering, gpu-packing, best-fit, least-allocated,
// most-allocated or balanced-allocation. Only fgd needs a profile.
//
// Formulas of the first five: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, in the artifact's integer
// arithmetic; of the others: kube-scheduler 1.37.
func Builtin(name string, profile *Profile) (*Policy, error) {
	if name == FGD {
		if profile == nil {
			return nil, fmt.Errorf("policy %q needs a workload profile: that of a policy file that %q made", name, prepareCommand)
		}
		return newPolicy(name, profile, Traits{true, true}, newFGD(profile)), nil
	}
	score, ok := heuristics[name]
	if !ok {
		known := []string{FGD}
		for each := range heuristics {
			known = append(known, each)
		}
		sort.Strings(known)
		return nil, fmt.Errorf("unknown policy %q; known are %s", name, strings.Join(known, ", "))
	}
	// The two may leave 0 to 100 on nodes larger than any of the openb cluster.
	traits := Traits{Pointwise: true, Points: name != "dot-product" && name != "best-fit"}
	return newPolicy(name, profile, traits, func() scorer { return heuristic(score) }), nil
}

func newFGD(profile *Profile) func() scorer {
	return func() scorer { return &fgd{newFragmenter(profile)} }
}

// heuristic is a scorer that needs no room.
type heuristic func(*Node, *Pod) int64

func (h heuristic) scores(ctx context.Context, state *State, pod *Pod, candidates []int, out []float64) error {
	return scoreFitting(ctx, state, pod, candidates, out, func(node *Node) float64 { return float64(h(node, pod)) })
}

func (h heuristic) devices(node *Node, pod *Pod) uint64 { return node.bestDevices(pod) }

// dotProduct returns int(100 (1 - (c/128000 rc/128000 + g/8000 rg/8000) / 2)): where little is left of what is
// requested.
func dotProduct(node *Node, pod *Pod) int64 {
	cpu := float64(node.CPU.Free) / cpuScale * (float64(pod.CPU) / cpuScale)
	gpus := float64(node.idleFor(pod)) / gpuScale * (float64(pod.GPUCount*pod.GPUMilli) / gpuScale)
	return int64(100 * (1 - (float64(cpu)+float64(gpus))/2))
}

// bestFit returns int(100 (1 - (c-rc)/128000/2 - (g-rg)/8000/2)): the least left afterwards.
func bestFit(node *Node, pod *Pod) int64 {
	cpu := float64(node.CPU.Free-pod.CPU) / cpuScale
	gpus := float64(node.idleFor(pod)-pod.GPUCount*pod.GPUMilli) / gpuScale
	return int64(100 * (1 - (float64(0.5*cpu) + float64(0.5*gpus))))
}

// gpuClustering keeps pods of one kind (shares, or k whole devices) together: 75, 50, 25 or 0, and up to 25 for a fuller
// node. 0 for pods that get none of the devices.
func gpuClustering(node *Node, pod *Pod) int64 {
	if node.taken(pod) == 0 {
		return 0
	}
	kind, others := 0, 0
	if pod.GPUMilli == Whole {
		kind = int(pod.GPUCount)
	}
	for _, count := range node.GPUPods {
		if count > 0 {
			others++
		}
	}
	fullness := int64(25 * (gpuScale - float64(node.idle())) / gpuScale)
	switch {
	case others == 0:
		return fullness + 25
	case kind >= len(node.GPUPods) || node.GPUPods[kind] == 0:
		return fullness
	case others == 1:
		return fullness + 75
	default:
		return fullness + 50
	}
}

// gpuPacking takes devices in use first, then free devices of nodes in use, then untouched nodes with few devices. 0 for
// pods that get none of the devices.
func gpuPacking(node *Node, pod *Pod) int64 {
	if node.taken(pod) == 0 {
		return 0
	}
	var free, leftSum, wholeTaken int64
	devices := node.bestDevices(pod)
	for d, left := range node.GPUFree {
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
	if free == int64(len(node.GPUFree)) {
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
