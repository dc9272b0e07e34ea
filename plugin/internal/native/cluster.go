package native

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/podowner"
	"steersman.dev/plugin/internal/policy"
	"steersman.dev/plugin/internal/scoring"
)

const rackKey = "rack"

// cluster is the scheduler's snapshot as policies see it. Only nodes that changed are read again.
type cluster struct {
	state    policy.State
	places   scoring.Places
	seen     []scoring.Revision // by node, that was looked at
	changed  []uint64           // by node, the time of its last change, never 0
	now      uint64             // counts the changes of nodes
	owners   *owners            // nil unless the policy needs them
	replaced bool               // the nodes are others than before the last follow
}

func (c *cluster) follow(infos []fwk.NodeInfo) {
	c.replaced = c.places.Follow(infos)
	if c.replaced {
		c.reset(len(infos))
	}
	for n, info := range infos {
		if revision := scoring.RevisionOf(info); revision != c.seen[n] {
			c.now++
			c.seen[n], c.changed[n] = revision, c.now
			c.state.Nodes[n] = convertNode(info, gpu.Assumed.NodeState(info).GPUs)
			if c.owners != nil {
				c.owners.recount(n, info)
			}
		}
	}
}

func (c *cluster) reset(count int) {
	c.state.Nodes, c.seen, c.changed = make([]policy.Node, count), make([]scoring.Revision, count), make([]uint64, count)
	if c.owners != nil {
		c.owners = newOwners(count)
	}
}

// watchOwners starts or stops counting pods by owner, for which all nodes are read again.
func (c *cluster) watchOwners(wanted bool) {
	if wanted == (c.owners != nil) {
		return
	}
	clear(c.seen)
	if c.owners = nil; wanted {
		c.owners = newOwners(len(c.seen))
	}
}

// convertNode returns a node, of whose GPUs so much is left, as policies see it.
func convertNode(info fwk.NodeInfo, gpus policy.GPUs) policy.Node {
	node := info.Node()
	if node == nil { // it was deleted, and its pods will follow
		return policy.Node{}
	}
	all, taken, scored := info.GetAllocatable(), info.GetRequested(), info.GetNonZeroRequested()
	return policy.Node{
		Name:         node.Name,
		CPU:          amount(all.GetMilliCPU(), taken.GetMilliCPU()),
		Memory:       amount(all.GetMemory(), taken.GetMemory()),
		Pods:         amount(int64(all.GetAllowedPodNumber()), int64(len(info.GetPods()))),
		CPUScored:    scored.GetMilliCPU(),
		MemoryScored: scored.GetMemory(),
		GPU:          gpus,
		Rack:         node.Labels[rackKey],
	}
}

func amount(all, taken int64) policy.Amount {
	return policy.Amount{Allocatable: all, Free: all - taken}
}

// owners counts the pods on nodes by their owners.
type owners struct {
	nodes  map[podowner.Owner]map[int]int
	onNode []map[podowner.Owner]int
}

func newOwners(nodes int) *owners {
	return &owners{map[podowner.Owner]map[int]int{}, make([]map[podowner.Owner]int, nodes)}
}

func (o *owners) recount(n int, info fwk.NodeInfo) {
	for each := range o.onNode[n] {
		delete(o.nodes[each], n)
		if len(o.nodes[each]) == 0 {
			delete(o.nodes, each)
		}
	}
	result := map[podowner.Owner]int{}
	for _, each := range info.GetPods() {
		if whose := podowner.Of(each.GetPod()); whose.Name != "" {
			result[whose]++
		}
	}
	o.onNode[n] = result
	for each, count := range result {
		if o.nodes[each] == nil {
			o.nodes[each] = map[int]int{}
		}
		o.nodes[each][n] = count
	}
}

// peers returns the number of running pods of the pod's owner by node.
func (o *owners) peers(pod *v1.Pod) map[int]int {
	if whose := podowner.Of(pod); whose.Name != "" {
		return maps.Clone(o.nodes[whose])
	}
	return nil
}
