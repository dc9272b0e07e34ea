package remote

import (
	"encoding/json"
	"hash/maphash"
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
)

// keptSets is how many node sets are remembered; a service remembers 64 (service/opinions.py), of all its askers.
const keptSets = 32

// seed makes hashes of names that nobody else can foresee.
var seed = maphash.MakeSeed()

// nodeSet is a list of nodes that the service has a version for.
type nodeSet struct {
	version   []byte // as JSON
	names     []string
	positions map[string]int
}

// nodeSets are those that were sent last, in whatever order: kube-scheduler filters with many workers, so the same nodes
// come in another order each time. The zero value is none.
type nodeSets struct {
	mutex sync.Mutex
	known map[uint64]*nodeSet
	used  []uint64 // keys, the one that was used longest ago first
}

// find is the set of these nodes, nil if it is not known.
func (s *nodeSets) find(nodes []fwk.NodeInfo) *nodeSet {
	key := uint64(0)
	for _, node := range nodes {
		key += maphash.String(seed, node.Node().Name)
	}
	s.mutex.Lock()
	found := s.known[key]
	if found != nil {
		s.touch(key)
	}
	s.mutex.Unlock()
	if found == nil || len(found.names) != len(nodes) {
		return nil
	}
	for _, node := range nodes {
		if _, there := found.positions[node.Node().Name]; !there {
			return nil // another set with the same hash
		}
	}
	return found
}

// order is where scores go that come in the order of the set.
func (s *nodeSet) order(nodes []fwk.NodeInfo, out []int64) *target {
	positions := make([]int, len(nodes))
	for i, node := range nodes {
		positions[s.positions[node.Node().Name]] = i
	}
	return &target{out: out[:len(nodes)], positions: positions}
}

// keep remembers the version of a list of names.
func (s *nodeSets) keep(version string, names []string) {
	written, err := json.Marshal(version)
	if err != nil {
		return
	}
	set := &nodeSet{written, names, make(map[string]int, len(names))}
	key := uint64(0)
	for i, name := range names {
		set.positions[name] = i
		key += maphash.String(seed, name)
	}
	if len(set.positions) < len(names) {
		return // a node twice, which no scheduler does
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.known == nil {
		s.known = map[uint64]*nodeSet{}
	}
	s.known[key] = set
	s.touch(key)
	if len(s.used) > keptSets {
		delete(s.known, s.used[0])
		s.used = s.used[1:]
	}
}

// forget drops a set that the service does not know any more.
func (s *nodeSets) forget(set *nodeSet) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for key, each := range s.known {
		if each == set {
			delete(s.known, key)
			s.used = slices.DeleteFunc(s.used, func(other uint64) bool { return other == key })
		}
	}
}

// touch makes a set the one that was used last.
func (s *nodeSets) touch(key uint64) {
	s.used = append(slices.DeleteFunc(s.used, func(other uint64) bool { return other == key }), key)
}

func namesOf(nodes []fwk.NodeInfo) []string {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Node().Name
	}
	return names
}
