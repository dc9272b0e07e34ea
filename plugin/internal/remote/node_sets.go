package remote

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	fwk "steersman.dev/plugin/internal/framework"
	"steersman.dev/plugin/internal/scoring"
)

// snapshotNodes are the nodes of the snapshot, of which every question is about some. The service is sent their names
// once, as long as the nodes stay the same, and then which of them are meant.
type snapshotNodes struct {
	list scoring.Snapshot

	mutex   sync.Mutex
	places  scoring.Places
	lists   int    // of names so far
	version []byte // that the service gave the last one, as JSON; nil: it does not know it
	ranks   []int  // by node: 1 + its place in the question, 0 if it is not in it
}

// nodeSetRequest is what a question says about nodes.
type nodeSetRequest struct {
	list    int    // which list of names
	version []byte // see snapshotNodes
	names   []byte // of all nodes, as JSON, if there is no version
	among   []byte // those that are meant, a bit mask in base64 as JSON
	order   []int  // for each score of the answer, which of the nodes it is of
}

// ask makes a question about nodes of the snapshot.
func (s *snapshotNodes) ask(nodes []fwk.NodeInfo) (nodeSetRequest, error) {
	all, err := s.list()
	if err != nil {
		return nodeSetRequest{}, fmt.Errorf("the scheduler's snapshot cannot be read: %w", err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.places.Follow(all) {
		s.lists++
		s.version, s.ranks = nil, make([]int, len(all))
	}
	clear(s.ranks)
	mask := make([]byte, (len(all)+7)/8)
	for i, node := range nodes {
		n, knownReason := s.places.Find(node)
		if !knownReason || s.ranks[n] > 0 {
			return nodeSetRequest{}, fmt.Errorf("node %q is not in the scheduler's snapshot, or asked about twice", node.Node().Name)
		}
		s.ranks[n] = i + 1
		mask[n/8] |= 1 << (n % 8)
	}
	result := nodeSetRequest{list: s.lists, version: s.version, order: make([]int, 0, len(nodes))}
	for _, rank := range s.ranks {
		if rank > 0 {
			result.order = append(result.order, rank-1)
		}
	}
	result.among = base64.StdEncoding.AppendEncode([]byte{'"'}, mask)
	result.among = append(result.among, '"')
	if s.version == nil {
		result.names, err = json.Marshal(namesOf(all))
	}
	return result, err
}

// setVersion records the version of a list of names, "" if the service does not know it any more. It counts for nothing
// if the nodes are others by now.
func (s *snapshotNodes) setVersion(list int, version string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if list != s.lists {
		return
	}
	s.version = nil
	if written, err := json.Marshal(version); err == nil && version != "" {
		s.version = written
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
