package policy

import (
	"fmt"
	"math"
)

// Features are in single precision, as they are on the Python side. Source: policies/observations/encoding.py.

const (
	podFeatures     = 11 // of a pod, the same in all views; the first four are its kind
	contextFeatures = 10 // of the cluster, the same in all views
	sharedFeatures  = podFeatures + contextFeatures

	gib = 1 << 30
	tib = 1 << 40
)

func single(x float64) float64 { return float64(float32(x)) }

// part returns a share in [0, 1]; 0 of nothing. What is free may be below zero on a node that shrank.
func part(amount, total float64) float64 {
	if total <= 0 {
		return 0
	}
	return single(min(max(amount/total, 0), 1))
}

// units returns an amount in [0, 8] units.
func units(amount, unit float64) float64 { return single(min(max(amount/unit, 0), 8)) }

// encodePod writes the features of a pod of whose owner so many pods run.
func encodePod(pod *Pod, running int, out []float64) {
	cores, memory := float64(pod.CPU)/1000, float64(pod.Memory)/gib
	clear(out)
	out[pod.kind()] = 1
	out[4] = units(cores, 32)
	out[5] = single(min(math.Log2(1+cores)/7, 2))
	out[6] = units(memory, 256)
	out[7] = single(min(math.Log2(1+memory)/10, 2))
	out[8] = units(float64(pod.GPU.Count), 8)
	out[9] = single(float64(pod.GPU.Milli) / Whole)
	out[10] = single(float64(running) / float64(running+8))
}

type clusterView struct {
	fragmenter
	before []float64 // by node, fragmented GPU milli
	mean   float32   // over nodes, of the share of CPU in use
	owner  *owner
}

const clusterNode = 28 // features of a node, of which the last six depend on others

// encode writes the features of a node; fit reports whether the pod fits on it.
func (v *clusterView) encode(state *State, n int, pod *Pod, fit bool, out []float64) {
	node := &state.Nodes[n]
	clear(out)
	cpu, memory, pods := node.CPU.Free, node.Memory.Free, node.Pods.Free
	if fit {
		cpu, memory, pods = cpu-pod.CPU, memory-pod.Memory, pods-1
	}
	out[0] = part(float64(node.CPU.Free), float64(node.CPU.Allocatable))
	out[1] = part(float64(cpu), float64(node.CPU.Allocatable))
	out[2] = part(float64(node.Memory.Free), float64(node.Memory.Allocatable))
	out[3] = part(float64(memory), float64(node.Memory.Allocatable))
	out[4] = part(float64(node.Pods.Free), float64(node.Pods.Allocatable))
	out[5] = part(float64(pods), float64(node.Pods.Allocatable))
	out[8] = units(float64(cpu), 128_000)
	out[9] = units(float64(memory), tib)
	if node.Pods.Free == node.Pods.Allocatable {
		out[19] = 1
	}
	v.encodeShared(node, n, out)
	if len(node.GPU.Free) > 0 {
		v.encodeGPUs(node, v.before[n], pod, fit, out)
	} else if fit {
		out[18] = 0.5 // FGD's score where nothing changes: sigmoid(0)
	}
}

func (v *clusterView) encodeGPUs(node *Node, before float64, pod *Pod, fit bool, out []float64) {
	var idle, wholeBefore, ints, partial, maxWeight, taken int64
	var devices uint64
	after := before
	if fit {
		devices, taken = node.GPU.BestFit(&pod.GPU), node.GPU.taken(&pod.GPU)*pod.GPU.Milli
		v.look(node)
		after = v.with(node, pod, devices)
		out[18] = single(1 / (1 + math.Exp(-(before-after)/Whole)))
	}
	for d, left := range node.GPU.Free {
		idle += max(left, 0)
		if left == Whole {
			wholeBefore++
		}
		if devices>>d&1 != 0 {
			left -= pod.GPU.Milli
		}
		if left == Whole {
			ints++
		} else if left > 0 {
			partial++
			maxWeight = max(maxWeight, left)
		}
	}
	count := int64(len(node.GPU.Free))
	out[6] = single(float64(idle) / float64(Whole*count))
	out[7] = single(float64(idle-taken) / float64(Whole*count))
	out[10] = units(float64(idle-taken), 8*Whole)
	out[11] = units(float64(count), 8)
	out[12] = units(float64(wholeBefore), 8)
	out[13] = units(float64(ints), 8)
	out[14] = units(float64(partial), 8)
	out[15] = single(float64(maxWeight) / Whole)
	out[16] = units(before, 8*Whole)
	out[17] = units(after, 8*Whole)
	if wholeBefore == count {
		out[20] = 1
	}
	if ints == count {
		out[21] = 1
	}
}

// encodeShared writes what depends on the rest of the cluster, in single precision throughout.
func (v *clusterView) encodeShared(node *Node, n int, out []float64) {
	if node.CPU.Allocatable > 0 {
		before, after := 1-float32(out[0])-v.mean, 1-float32(out[1])-v.mean
		out[22], out[23] = float64(before), float64(after)
		out[24], out[25] = float64(before*before), float64(after*after)
	}
	if v.owner.running > 0 {
		out[26] = single(float64(v.owner.onNode[n]) / float64(v.owner.running))
		if node.Rack != "" {
			out[27] = single(float64(v.owner.inRack[node.Rack]) / float64(v.owner.running))
		}
	}
}

// gpuView writes features of nodes in the view gpu, on the devices of the best-fit rule; 0 where the pod does not fit.
type gpuView struct{ stateCache *stateCache }

func (v *gpuView) encode(state *State, n int, pod *Pod, fit bool, out []float64) {
	clear(out)
	if !fit {
		return
	}
	node := &state.Nodes[n]
	before := v.stateCache.look(node)
	after := v.stateCache.with(node, pod, node.GPU.BestFit(&pod.GPU))
	for i, x := range after.row {
		low, high := bounds(i)
		out[i] = float64(min(max(x, low), high))
		out[features+i] = float64(min(max(x-before.row[i], -high), high))
	}
	out[2*features] = float64(gradient(before.fragmented, after.fragmented))
}

// bounds returns the lowest and the highest value of a feature of a state; changes go from -highest to highest.
func bounds(feature int) (float32, float32) {
	switch feature {
	case fUntouched:
		return 0, 1
	case fCPULeft:
		return -1, 1024
	case fCPUShort, fCPUSpare:
		return 0, 1024
	case fLostPlanned:
		return -64, 64
	}
	return 0, 64
}

const roundingVariance = 1e-12 // a variance below it is rounding

// summary is a cluster's state in a few numbers. Sources: objectives/summary.py, policies/observations/encoder.py.
type summary struct {
	nodes, used, withCPU int     // nodes; those that hold a pod; those with CPU
	share, square        float64 // sums over nodes of the share of CPU in use, and of its square
	cpuTaken, cpu        int64   // milli-CPU in use, and in all
	memoryTaken, memory  int64   // bytes
	gpuTaken, gpu        int64   // GPU milli
	fragmented           float64 // GPU milli
	waiting              int     // pods
}

// add counts a node with so much fragmented GPU milli.
func (s *summary) add(node *Node, fragmented float64) {
	s.nodes++
	if node.Pods.Allocatable > node.Pods.Free {
		s.used++
	}
	taken := node.CPU.Allocatable - node.CPU.Free
	if node.CPU.Allocatable > 0 {
		share := float64(taken) / float64(node.CPU.Allocatable)
		s.withCPU, s.share, s.square = s.withCPU+1, s.share+share, s.square+float64(share*share)
	}
	s.cpuTaken, s.cpu = s.cpuTaken+taken, s.cpu+node.CPU.Allocatable
	s.memoryTaken += node.Memory.Allocatable - node.Memory.Free
	s.memory += node.Memory.Allocatable
	for _, left := range node.GPU.Free {
		s.gpuTaken += Whole - left
	}
	s.gpu += int64(len(node.GPU.Free)) * Whole
	s.fragmented += fragmented
}

// cpuMean returns the mean over nodes of the share of CPU in use.
func (s *summary) cpuMean() float64 { return s.share / float64(max(s.withCPU, 1)) }

// cpuDeviation returns its standard deviation.
func (s *summary) cpuDeviation() float64 {
	mean := s.cpuMean()
	variance := s.square/float64(max(s.withCPU, 1)) - float64(mean*mean)
	if variance <= roundingVariance {
		return 0
	}
	return math.Sqrt(variance)
}

// encode writes the features of the cluster, on so many of whose nodes the pod has room.
func (s *summary) encode(feasible int, out []float64) {
	nodes := float64(max(s.nodes, 1))
	out[0] = part(float64(s.cpuTaken), float64(s.cpu))
	out[1] = part(float64(s.memoryTaken), float64(s.memory))
	out[2] = part(float64(s.gpuTaken), float64(s.gpu))
	out[3] = part(s.fragmented, float64(s.gpu-s.gpuTaken))
	out[4] = single(min(max(s.cpuMean(), 0), 1))
	out[5] = single(min(s.cpuDeviation(), 1))
	out[6] = single(float64(s.used) / nodes)
	out[7] = single(float64(feasible) / nodes)
	out[8] = single(float64(s.waiting) / float64(s.waiting+16))
	out[9] = single(math.Log2(1+nodes) / 20)
}

// owner is where the running pods of a pod's owner are.
type owner struct {
	running int
	onNode  map[int]int
	inRack  map[string]int
}

func ownerOf(state *State) (*owner, error) {
	result := &owner{onNode: state.Peers}
	if len(state.Peers) > 0 {
		result.inRack = map[string]int{}
	}
	for n, count := range state.Peers {
		if n < 0 || n >= len(state.Nodes) || count < 0 {
			return nil, fmt.Errorf("%d pods of the owner run on node %d of %d", count, n, len(state.Nodes))
		}
		result.running += count
		result.inRack[state.Nodes[n].Rack] += count
	}
	return result, nil
}
