package policy

import (
	"fmt"
	"slices"
)

const (
	// Whole is the milli of a whole GPU device.
	Whole = 1000
	// MaxDevices is how many GPU devices of a node are looked at: those of a placement are a bit mask.
	MaxDevices = 62
)

// Amount is what a node has of a resource, and what is left of it: milli-CPU, bytes of memory, or pods.
//
// What is free may be below zero where a node shrank.
type Amount struct{ Allocatable, Free int64 }

// Node is a node as policies see it.
type Node struct {
	Name              string
	CPU, Memory, Pods Amount

	// CPUScored and MemoryScored are what pods take in kube-scheduler's scoring view, in which a container
	// without a request counts as 100 milli-CPU and 200 MiB. least-allocated and most-allocated look at them.
	CPUScored, MemoryScored int64

	GPUModel string  // "" if none is known
	GPUFree  []int64 // milli left of each device, 0 to Whole

	GPUResources []string  // the names under which the devices are offered; none: any
	Counted      []Counted // further GPUs, which are not looked at one by one

	// GPUPods counts the pods with GPUs on the node: first those with less than a whole device (or several parts),
	// then those with one device, two devices, and so on. gpu-clustering looks at it.
	GPUPods []int64

	Rack string // "" if none is known
}

// Counted is GPUs that a node counts like an extended resource; none of its devices are among them.
type Counted struct {
	Resource string // the name under which they are offered
	Model    string // "" if none is known
	Free     int64
}

// State is a cluster at the moment of a decision.
type State struct {
	Nodes   []Node
	Waiting int // pods that wait since they fit nowhere
}

// Pod is what a pod requests.
type Pod struct {
	CPU, Memory             int64    // milli-CPU and bytes
	CPUScored, MemoryScored int64    // in kube-scheduler's scoring view, see Node
	GPUCount, GPUMilli      int64    // so many devices, and so many milli of each, 1 to Whole
	GPUModels               []string // that it may run on; none: on all
	GPUResource             string   // the name under which a node must offer the GPUs; "": any

	// Peers counts the running pods of the pod's owner by the index of their node. Networks of the view cluster look
	// at it.
	Peers map[int]int
}

// Kinds of pods.
const (
	noGPU = iota
	gpuShare
	oneGPU
	severalGPUs
	kinds
)

// kind returns what the pod requests: no GPU, a share of one, a whole one, several.
func (p *Pod) kind() int {
	switch {
	case p.GPUCount == 0:
		return noGPU
	case p.GPUCount > 1:
		return severalGPUs
	case p.GPUMilli == Whole:
		return oneGPU
	default:
		return gpuShare
	}
}

// check checks that the request is one.
func (p *Pod) check() error {
	if p.GPUCount < 0 || p.GPUCount > 0 && (p.GPUMilli < 1 || p.GPUMilli > Whole) {
		return fmt.Errorf("a pod asks for %d GPUs and %d milli of each; expected 1 to %d milli", p.GPUCount, p.GPUMilli, Whole)
	}
	return nil
}

// check checks that devices can be looked up by what is left of them.
func (n *Node) check() error {
	if len(n.GPUFree) > MaxDevices {
		return fmt.Errorf("node %q has %d GPUs; at most %d are supported", n.Name, len(n.GPUFree), MaxDevices)
	}
	for _, left := range n.GPUFree {
		if left > Whole {
			return fmt.Errorf("node %q has a GPU with %d milli left; a whole one has %d", n.Name, left, Whole)
		}
	}
	return nil
}

// idle returns the GPU milli left on all devices; a device of which too much is in use has none.
func (n *Node) idle() int64 {
	var idle int64
	for _, left := range n.GPUFree {
		idle += max(left, 0)
	}
	return idle
}

// Fits reports whether the pod fits on the node: CPU, memory, a place, and enough devices of a model that it accepts.
//
// What is not requested is not checked, as in kube-scheduler. Other constraints are not looked at.
func (n *Node) Fits(pod *Pod) bool {
	if pod.CPU > 0 && pod.CPU > n.CPU.Free || pod.Memory > 0 && pod.Memory > n.Memory.Free || n.Pods.Free < 1 {
		return false
	}
	if counted := n.counted(pod); counted != nil {
		return pod.accepts(counted.Model) && pod.GPUMilli == Whole && pod.GPUCount <= counted.Free
	}
	if !pod.accepts(n.GPUModel) || pod.GPUCount > 0 && !n.offers(pod.GPUResource) {
		return false
	}
	var result int64
	for _, left := range n.GPUFree {
		if left >= pod.GPUMilli {
			result++
		}
	}
	return pod.GPUCount == 0 || result >= pod.GPUCount
}

// counted returns where the node counts the GPUs that the pod requests, so that it gets none of the devices; nil:
// nowhere.
func (n *Node) counted(pod *Pod) *Counted {
	if pod.GPUCount > 0 {
		for i := range n.Counted {
			if n.Counted[i].Resource == pod.GPUResource {
				return &n.Counted[i]
			}
		}
	}
	return nil
}

// offers reports whether pods that request GPUs of a name, "" for any, may have the devices.
func (n *Node) offers(resource string) bool {
	return resource == "" || len(n.GPUResources) == 0 || slices.Contains(n.GPUResources, resource)
}

// taken returns how many devices the pod takes: none where its GPUs are counted.
func (n *Node) taken(pod *Pod) int64 {
	if n.counted(pod) != nil {
		return 0
	}
	return pod.GPUCount
}

// idleFor returns the GPU milli left of what the pod requests: those that are counted, or all devices.
func (n *Node) idleFor(pod *Pod) int64 {
	if counted := n.counted(pod); counted != nil {
		return Whole * counted.Free
	}
	return n.idle()
}

func (p *Pod) accepts(model string) bool {
	for _, each := range p.GPUModels {
		if each == model && model != "" {
			return true
		}
	}
	return len(p.GPUModels) == 0
}

// bestDevices returns the devices that the pod, which must fit, takes by default, as a bit mask: the fullest that
// suffice, the lowest index on ties; none where its GPUs are counted.
func (n *Node) bestDevices(pod *Pod) uint64 {
	var chosen uint64
	for range n.taken(pod) {
		best, least := -1, int64(Whole+1)
		for d, left := range n.GPUFree {
			if pod.GPUMilli <= left && left < least && chosen>>d&1 == 0 {
				best, least = d, left
			}
		}
		if best < 0 {
			break
		}
		chosen |= 1 << best
	}
	return chosen
}

// hasEqualBefore reports whether an earlier device has as much left as device d, so that d is as good as looked at.
func (n *Node) hasEqualBefore(d int) bool {
	for _, left := range n.GPUFree[:d] {
		if left == n.GPUFree[d] {
			return true
		}
	}
	return false
}
