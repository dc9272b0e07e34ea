package scoring

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Snapshot lists all nodes of the snapshot of the scheduling cycle under way:
// handle.SnapshotSharedLister().NodeInfos().
type Snapshot func() ([]fwk.NodeInfo, error)

// runs is how many stretches of the snapshot are followed at a time: kube-scheduler filters several side by side.
const runs = 4

// Places knows which node is where in kube-scheduler's snapshot. The zero value knows none.
type Places struct {
	infos []fwk.NodeInfo // of the snapshot: the same object as long as it is the same node
	index map[string]int // by name
	next  [runs]int      // where nodes that are found by their place are expected
}

// Follow records the nodes of a snapshot, and reports whether they are others than before, or in another order.
func (p *Places) Follow(infos []fwk.NodeInfo) bool {
	if slices.Equal(infos, p.infos) {
		return false
	}
	p.infos = slices.Clone(infos)
	p.index = make(map[string]int, len(infos))
	for n, info := range infos {
		if node := info.Node(); node != nil {
			p.index[node.Name] = n
		}
	}
	return true
}

// Find returns where a node is. Nodes that passed the filters come nearly in the order of the snapshot, so most are the
// next one of a run, which takes a fraction of the time of a look at the index.
func (p *Places) Find(info fwk.NodeInfo) (int, bool) {
	for r, n := range p.next {
		if n < len(p.infos) && p.infos[n] == info {
			p.next[r] = n + 1
			return n, true
		}
	}
	n, known := p.index[info.Node().Name]
	copy(p.next[1:], p.next[:])
	p.next[0] = n + 1
	return n, known
}

// Revision tells states of a node of the snapshot apart: two that are equal are of the same state. The zero value is of
// none.
//
// The generation alone does not: while kube-scheduler tries a pod group, it adds each member that found a node to the
// snapshot, and leaves the node's generation as it was (Snapshot.AssumePod). A member is added as the last pod of its
// node and is an object of its own, so the number of pods and the last one tell.
type Revision struct {
	generation int64
	pods       int
	last       *v1.Pod
	known      bool
}

// RevisionOf returns the revision of a node as it is now.
func RevisionOf(info fwk.NodeInfo) Revision {
	revision := Revision{generation: info.GetGeneration(), known: true}
	if pods := info.GetPods(); len(pods) > 0 {
		revision.pods, revision.last = len(pods), pods[len(pods)-1].GetPod()
	}
	return revision
}
