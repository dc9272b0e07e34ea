package native

import (
	"slices"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/pkg/core"
)

const (
	rackKey   = "rack"
	serverKey = "server"
)

// Columns of resources in the core: CPU, memory, pods, ephemeral storage, then GPUs that are counted, by name; the last
// one is of what no node has.
const (
	cpu = iota
	memory
	pods
	_
	counted
)

// node is a node as policies see it.
type node struct {
	allocatable, free [counted]int64 // milli-CPU, bytes of memory, pods
	scored            [2]int64       // CPU and memory in kube-scheduler's scoring view
	gpus              gpu.GPUs
	rack, server      string // "" if it is unknown; servers count within a rack
}

// nodeOf returns a node, of whose GPUs so much is left, as policies see it.
func nodeOf(info fwk.NodeInfo, gpus gpu.GPUs) node {
	object := info.Node()
	if object == nil { // it was deleted, and its pods will follow
		return node{}
	}
	all, taken, scored := info.GetAllocatable(), info.GetRequested(), info.GetNonZeroRequested()
	result := node{scored: [2]int64{scored.GetMilliCPU(), scored.GetMemory()}, gpus: gpus, rack: object.Labels[rackKey]}
	result.allocatable = [counted]int64{cpu: all.GetMilliCPU(), memory: all.GetMemory(), pods: int64(all.GetAllowedPodNumber())}
	result.free = [counted]int64{
		cpu:    result.allocatable[cpu] - taken.GetMilliCPU(),
		memory: result.allocatable[memory] - taken.GetMemory(),
		pods:   result.allocatable[pods] - int64(len(info.GetPods())),
	}
	if server := object.Labels[serverKey]; server != "" {
		result.server = result.rack + "/" + server
	}
	return result
}

// offersTheSame reports whether both nodes are the same but for what pods leave of them.
func (n *node) offersTheSame(other *node) bool {
	return n.allocatable == other.allocatable && n.rack == other.rack && n.server == other.server &&
		n.gpus.Model == other.gpus.Model && slices.Equal(n.gpus.Resources, other.gpus.Resources) &&
		len(n.gpus.Free) == len(other.gpus.Free) &&
		slices.EqualFunc(n.gpus.Counted, other.gpus.Counted, func(a, b gpu.Counted) bool {
			return a.Resource == b.Resource && a.Model == b.Model
		})
}

// equals reports whether both nodes, which offer the same, are in the same state.
func (n *node) equals(other *node) bool {
	return n.free == other.free && n.scored == other.scored && slices.Equal(n.gpus.Free, other.gpus.Free) &&
		slices.Equal(n.gpus.Pods, other.gpus.Pods) && slices.Equal(n.gpus.Counted, other.gpus.Counted)
}

// numbering is what the core knows of GPUs and places by number. A description has one; what it lacks needs another.
type numbering struct {
	devices         int            // the most of a node
	columns         map[string]int // of counted GPUs by name
	types           map[string]int // of GPUs by model and names
	described       []any          // the same types as the core reads them, models and names
	racks, servers  map[string]int
	hasTypes, sites bool // types and places are wanted
}

func newNumbering(policy *Policy) *numbering {
	return &numbering{
		columns: map[string]int{}, types: map[string]int{}, racks: map[string]int{}, servers: map[string]int{},
		described: []any{}, hasTypes: policy.content != nil, sites: !policy.Pointwise,
	}
}

// add numbers what is new of a node.
func (s *numbering) add(n *node) {
	s.devices = max(s.devices, len(n.gpus.Free))
	for i := range n.gpus.Counted {
		if name := n.gpus.Counted[i].Resource; s.columns[name] == 0 {
			s.columns[name] = counted + len(s.columns)
		}
	}
	if key := typeKey(n); s.hasTypes && len(n.gpus.Free) > 0 {
		if _, known := s.types[key]; !known {
			s.types[key] = len(s.types)
			s.described = append(s.described, []any{n.gpus.Model, append([]string{}, n.gpus.Resources...)})
		}
	}
	if s.sites {
		number(s.racks, n.rack)
		number(s.servers, n.server)
	}
}

func number(numbers map[string]int, name string) {
	if _, known := numbers[name]; !known && name != "" {
		numbers[name] = len(numbers)
	}
}

func typeKey(n *node) string { return n.gpus.Model + "\n" + strings.Join(n.gpus.Resources, "\n") }

// typeOf returns the number of the type of a node's devices; that after the last one without any.
func (s *numbering) typeOf(n *node) int64 {
	if result, known := s.types[typeKey(n)]; known && len(n.gpus.Free) > 0 {
		return int64(result)
	}
	return int64(len(s.types))
}

// site returns the number of a place, -1 if there is none.
func site(numbers map[string]int, name string) int64 {
	if result, known := numbers[name]; known {
		return int64(result)
	}
	return -1
}

// column returns that of a name of GPUs, which no node may have.
func (s *numbering) column(name string) int64 {
	if result, known := s.columns[name]; known {
		return int64(result)
	}
	return int64(s.width() - 1)
}

// width is the number of columns of resources.
func (s *numbering) width() int { return counted + len(s.columns) + 1 }

// describe writes nodes.*.
func (s *numbering) describe(described *core.Description, nodes []node) {
	count, width := len(nodes), s.width()
	var allocatable, free, scored, devices, kinds []int64
	counts, types := make([]int64, count), make([]int64, count)
	for n := range nodes {
		each := &nodes[n]
		start := len(allocatable)
		allocatable = append(append(allocatable, each.allocatable[:]...), make([]int64, width-counted)...)
		for _, gpus := range each.gpus.Counted {
			allocatable[start+s.columns[gpus.Resource]] = max(gpus.Free, 1) // it has some, or they were not counted
		}
		free, scored = s.appendFree(free, each), append(scored, each.scored[:]...)
		devices, kinds = s.appendDevices(devices, each), s.appendKinds(kinds, each)
		counts[n], types[n] = int64(len(each.gpus.Free)), s.typeOf(each)
	}
	described.Int64s("nodes.allocatable", allocatable, count, width)
	described.Int64s("nodes.free", free, count, width)
	described.Int64s("nodes.nonzero", scored, count, 2)
	described.Int64s("nodes.gpu_free", devices, count, s.devices)
	described.Int64s("nodes.gpu_count", counts, count)
	described.Int64s("nodes.gpu_model", types, count)
	described.Int64s("nodes.gpu_kinds", kinds, count, s.devices+1)
}

// appendLeft appends what pods leave of a node.
func (s *numbering) appendLeft(numbers []int64, each *node) []int64 {
	numbers = append(s.appendFree(numbers, each), each.scored[:]...)
	return s.appendKinds(s.appendDevices(numbers, each), each)
}

func (s *numbering) appendFree(free []int64, each *node) []int64 {
	start := len(free)
	free = append(append(free, each.free[:]...), make([]int64, s.width()-counted)...)
	for _, gpus := range each.gpus.Counted {
		free[start+s.columns[gpus.Resource]] = gpus.Free
	}
	return free
}

func (s *numbering) appendDevices(devices []int64, each *node) []int64 {
	return append(append(devices, each.gpus.Free...), make([]int64, s.devices-len(each.gpus.Free))...)
}

func (s *numbering) appendKinds(kinds []int64, each *node) []int64 {
	start := len(kinds)
	kinds = append(kinds, make([]int64, s.devices+1)...)
	for kind, pods := range each.gpus.Pods {
		kinds[start+min(kind, s.devices)] += pods
	}
	return kinds
}
