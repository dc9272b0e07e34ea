package remote

import (
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/scoring"
)

// snapshotNodes are the nodes of the snapshot, of which every question is about some. The service is sent their names
// once, as long as the nodes stay the same, and then which of them are meant.
type snapshotNodes struct {
	list scoring.Snapshot

	mutex   sync.Mutex
	places  scoring.Places
	lists   int    // of names so far
	version string // that the service gave the last one; "": it does not know it
	ranks   []int  // by node: 1 + its place in the question, 0 if it is not in it
}

type question struct {
	Pod     *v1.Pod  `json:"pod"`
	NodeSet string   `json:"nodeSet,omitempty"` // see snapshotNodes
	Names   []string `json:"nodes,omitempty"`   // of all nodes, if there is no version
	Among   []byte   `json:"among"`             // those that are meant, a bit mask

	list  int   // which list of names
	order []int // for each score of the answer, which of the nodes it is of
}

func (s *snapshotNodes) ask(nodes []fwk.NodeInfo) (*question, error) {
	all, err := s.list()
	if err != nil {
		return nil, fmt.Errorf("the scheduler's snapshot cannot be read: %w", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.places.Follow(all) {
		s.lists++
		s.version, s.ranks = "", make([]int, len(all))
	}
	clear(s.ranks)
	asked := &question{
		NodeSet: s.version, Among: make([]byte, (len(all)+7)/8), list: s.lists, order: make([]int, 0, len(nodes)),
	}
	for i, node := range nodes {
		n, ok := s.places.Find(node)
		if !ok || s.ranks[n] > 0 {
			return nil, fmt.Errorf("node %q is not in the scheduler's snapshot, or asked about twice", node.Node().Name)
		}
		s.ranks[n] = i + 1
		asked.Among[n/8] |= 1 << (n % 8)
	}
	for _, rank := range s.ranks {
		if rank > 0 {
			asked.order = append(asked.order, rank-1)
		}
	}
	if s.version == "" {
		asked.Names = namesOf(all)
	}
	return asked, nil
}

// setVersion records the version of a list of names, "" if the service does not know it any more. It counts for nothing
// if the nodes are others by now.
func (s *snapshotNodes) setVersion(list int, version string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if list == s.lists {
		s.version = version
	}
}

func namesOf(nodes []fwk.NodeInfo) []string {
	names := make([]string, len(nodes))
	for i, info := range nodes {
		if node := info.Node(); node != nil {
			names[i] = node.Name
		} else {
			names[i] = fmt.Sprintf("(%d)", i) // it was deleted, and its pods will follow; no node is called so
		}
	}
	return names
}
