package policy

import (
	"fmt"
	"math"
)

const residue = 1e-12 // a variance below it is rounding

// summary is a cluster's state in a few numbers. Sources: objectives/summary.py, policies/observer.py.
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
	all := int64(len(node.GPUFree)) * Whole
	s.gpuTaken, s.gpu = s.gpuTaken+all-node.idle(), s.gpu+all
	s.fragmented += fragmented
}

// cpuMean is the mean over nodes of the share of CPU in use.
func (s *summary) cpuMean() float64 { return s.share / float64(max(s.withCPU, 1)) }

// cpuDeviation is its standard deviation.
func (s *summary) cpuDeviation() float64 {
	mean := s.cpuMean()
	variance := s.square/float64(max(s.withCPU, 1)) - float64(mean*mean)
	if variance <= residue {
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

func ownerOf(state *State, pod *Pod) (*owner, error) {
	found := &owner{onNode: pod.Peers}
	if len(pod.Peers) > 0 {
		found.inRack = map[string]int{}
	}
	for n, count := range pod.Peers {
		if n < 0 || n >= len(state.Nodes) || count < 0 {
			return nil, fmt.Errorf("%d pods of the owner run on node %d of %d", count, n, len(state.Nodes))
		}
		found.running += count
		found.inRack[state.Nodes[n].Rack] += count
	}
	return found, nil
}
