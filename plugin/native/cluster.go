package native

import (
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/gpus"
	"steersman.dev/plugin/policy"
)

// rackKey is the label of a node's rack.
const rackKey = "rack"

// cluster is the scheduler's snapshot as policies see it. Only nodes that changed are looked at anew.
type cluster struct {
	state    policy.State
	infos    []fwk.NodeInfo // by node, of the snapshot: the same object as long as it is the same node
	seen     []int64        // by node, the generation that was looked at
	changed  []uint64       // by node, the time of its last change, never 0
	now      uint64         // counts the changes of nodes
	index    map[string]int // the nodes by name
	next     [runs]int      // where nodes that are found by their place are expected
	owners   *owners        // nil if nobody asks
	replaced bool           // the nodes are others than before the last follow
}

// follow brings everything up to date with the snapshot.
func (c *cluster) follow(infos []fwk.NodeInfo) {
	c.replaced = !c.has(infos)
	if c.replaced {
		c.reset(infos)
	}
	for n, info := range infos {
		if generation := info.GetGeneration(); generation != c.seen[n] {
			c.now++
			c.seen[n], c.changed[n] = generation, c.now
			look(info, &c.state.Nodes[n])
			if c.owners != nil {
				c.owners.look(n, info)
			}
		}
	}
}

// has tells whether these are the nodes that are known, in the same order.
func (c *cluster) has(infos []fwk.NodeInfo) bool {
	if len(infos) != len(c.infos) {
		return false
	}
	for n, info := range infos {
		if c.infos[n] != info {
			return false
		}
	}
	return true
}

// runs is how many stretches of the snapshot are followed at a time: kube-scheduler filters several side by side.
const runs = 4

// find is the number of a node of the snapshot. Nodes that passed the filters come nearly in the order of the snapshot,
// so most are the next one of a run, which takes a fraction of the time of a look at the index.
func (c *cluster) find(info fwk.NodeInfo) (int, bool) {
	for r, n := range c.next {
		if n < len(c.infos) && c.infos[n] == info {
			c.next[r] = n + 1
			return n, true
		}
	}
	n, known := c.index[info.Node().Name]
	copy(c.next[1:], c.next[:])
	c.next[0] = n + 1
	return n, known
}

// unseen is a generation that no node has.
const unseen = -1

func (c *cluster) reset(infos []fwk.NodeInfo) {
	count := len(infos)
	c.infos = append([]fwk.NodeInfo(nil), infos...)
	c.state.Nodes, c.seen, c.changed = make([]policy.Node, count), make([]int64, count), make([]uint64, count)
	c.index = make(map[string]int, count) // a new one: cycles under way may still read the old one
	for n, info := range infos {
		c.seen[n] = unseen
		if node := info.Node(); node != nil {
			c.index[node.Name] = n
		}
	}
	if c.owners != nil {
		c.owners = newOwners(count)
	}
}

// watchOwners begins or ends to count pods by owner.
func (c *cluster) watchOwners(wanted bool) {
	if wanted == (c.owners != nil) {
		return
	}
	c.owners = nil
	if wanted {
		c.owners = newOwners(len(c.infos))
		for n, info := range c.infos {
			c.owners.look(n, info)
		}
	}
}

// look writes a node as policies see it.
func look(info fwk.NodeInfo, out *policy.Node) {
	node := info.Node()
	if node == nil { // it is gone, and its pods will follow
		*out = policy.Node{}
		return
	}
	all, taken, scored, found := info.GetAllocatable(), info.GetRequested(), info.GetNonZeroRequested(), gpus.Look(info)
	*out = policy.Node{
		Name:         node.Name,
		CPU:          left(all.GetMilliCPU(), taken.GetMilliCPU()),
		Memory:       left(all.GetMemory(), taken.GetMemory()),
		Pods:         left(int64(all.GetAllowedPodNumber()), int64(len(info.GetPods()))),
		CPUScored:    scored.GetMilliCPU(),
		MemoryScored: scored.GetMemory(),
		GPUModel:     found.Model,
		GPUFree:      found.Free,
		GPUPods:      found.Pods,
		Rack:         node.Labels[rackKey],
	}
}

func left(all, taken int64) policy.Amount { return policy.Amount{Allocatable: all, Free: all - taken} }
