package policy

import (
	"fmt"
	"slices"
	"strings"
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

	GPU  GPUs
	Rack string // "" if it is unknown
}

// GPUs are a node's GPUs as its pods leave them.
type GPUs struct {
	Model     string    // "" if it is unknown
	Resources []string  // the names under which the devices are offered; empty: any
	Free      []int64   // milli left of each device; below 0 where pods were bound to more than there is
	Counted   []Counted // further GPUs, which are not looked at one by one
	Pods      []int64   // pods with devices: first those with parts, then those with one whole device, with two, ...
}

// Counted is GPUs that a node counts like an extended resource; none of its devices are among them.
type Counted struct {
	Resource string // the name under which they are offered
	Model    string // "" if it is unknown
	Free     int64
}

// State is a cluster at the moment of a decision about a pod.
type State struct {
	Nodes   []Node
	Waiting int         // pods that wait since they fit nowhere
	Peers   map[int]int // running pods of the pod's owner by the index of their node; for networks of the view cluster
}

// Pod is what a pod requests. Equal ones have equal scores in the same state.
type Pod struct {
	CPU, Memory             int64 // milli-CPU and bytes
	CPUScored, MemoryScored int64 // in kube-scheduler's scoring view, see Node
	GPU                     GPURequest
}

// GPURequest is so many devices, with so many milli of each, 1 to Whole. Without GPUs it is empty.
type GPURequest struct {
	Count, Milli int64
	Models       string // A|B: those that will do; "": all
	Resource     string // the name under which a node must offer them; "": any
}

// Accepts reports whether devices of the model will do; "" is an unknown model.
func (r *GPURequest) Accepts(model string) bool {
	if r.Models == "" {
		return true
	}
	for each := range strings.SplitSeq(r.Models, "|") {
		if each == model && model != "" {
			return true
		}
	}
	return false
}

// Kinds of pods.
const (
	noGPU = iota
	gpuShare
	oneGPU
	severalGPUs
	kinds
)

func (p *Pod) kind() int {
	switch {
	case p.GPU.Count == 0:
		return noGPU
	case p.GPU.Count > 1:
		return severalGPUs
	case p.GPU.Milli == Whole:
		return oneGPU
	default:
		return gpuShare
	}
}

func (p *Pod) check() error {
	if count, milli := p.GPU.Count, p.GPU.Milli; count < 0 || count > 0 && (milli < 1 || milli > Whole) {
		return fmt.Errorf("a pod asks for %d GPUs and %d milli of each; expected 1 to %d milli", count, milli, Whole)
	}
	return nil
}

// check checks that devices can be looked up by what is left of them.
func (n *Node) check() error {
	if len(n.GPU.Free) > MaxDevices {
		return fmt.Errorf("node %q has %d GPUs; at most %d are supported", n.Name, len(n.GPU.Free), MaxDevices)
	}
	for _, left := range n.GPU.Free {
		if left > Whole {
			return fmt.Errorf("node %q has a GPU with %d milli left; a whole one has %d", n.Name, left, Whole)
		}
	}
	return nil
}

// Fits reports whether the pod fits on the node: CPU, memory, a place, and enough devices of a model that it accepts.
//
// What is not requested is not checked, as in kube-scheduler. Other constraints are not looked at.
func (n *Node) Fits(pod *Pod) bool {
	if pod.CPU > 0 && pod.CPU > n.CPU.Free || pod.Memory > 0 && pod.Memory > n.Memory.Free || n.Pods.Free < 1 {
		return false
	}
	return n.GPU.Accepts(&pod.GPU) && (pod.GPU.Count == 0 || n.GPU.Fits(&pod.GPU))
}

// idle returns the GPU milli left on all devices; a device of which too much is in use has none.
func (g *GPUs) idle() int64 {
	var idle int64
	for _, left := range g.Free {
		idle += max(left, 0)
	}
	return idle
}

// idleFor returns the GPU milli left of what is requested: those that are counted, or all devices.
func (g *GPUs) idleFor(request *GPURequest) int64 {
	if counted := g.CountedAs(request.Resource); counted != nil {
		return Whole * counted.Free
	}
	return g.idle()
}

// CountedAs returns the GPUs of a name that are counted, so that pods get none of the devices; nil if there are none.
func (g *GPUs) CountedAs(resource string) *Counted {
	for i := range g.Counted {
		if g.Counted[i].Resource == resource {
			return &g.Counted[i]
		}
	}
	return nil
}

// Offers reports whether pods that request GPUs of a name, "" for any, may have the devices.
func (g *GPUs) Offers(resource string) bool {
	return resource == "" || len(g.Resources) == 0 || slices.Contains(g.Resources, resource)
}

// Accepts reports whether the GPUs for a request are of a model that it accepts.
func (g *GPUs) Accepts(request *GPURequest) bool {
	if counted := g.CountedAs(request.Resource); counted != nil {
		return request.Accepts(counted.Model)
	}
	return request.Accepts(g.Model)
}

// Fits reports whether enough GPUs of the name that is requested are left, of whatever model.
func (g *GPUs) Fits(request *GPURequest) bool {
	if counted := g.CountedAs(request.Resource); counted != nil {
		return request.Milli == Whole && request.Count <= counted.Free
	}
	var fitting int64
	for _, left := range g.Free {
		if left >= request.Milli {
			fitting++
		}
	}
	return fitting >= request.Count && g.Offers(request.Resource)
}

// taken returns how many devices a request takes: none where its GPUs are counted.
func (g *GPUs) taken(request *GPURequest) int64 {
	if g.CountedAs(request.Resource) != nil {
		return 0
	}
	return request.Count
}

// BestFit returns the devices that a pod, which must fit, takes by default, as a bit mask: the fullest that suffice,
// the lowest index on ties; none where its GPUs are counted.
func (g *GPUs) BestFit(request *GPURequest) uint64 {
	var chosen uint64
	for range g.taken(request) {
		best, least := -1, int64(Whole+1)
		for d, left := range g.Free {
			if request.Milli <= left && left < least && chosen>>d&1 == 0 {
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

// hasEqualBefore reports whether an earlier device has as much left as device d, so that d need not be looked at.
func (g *GPUs) hasEqualBefore(d int) bool { return slices.Contains(g.Free[:d], g.Free[d]) }
