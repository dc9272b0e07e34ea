package gpu

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ledger is the devices of pods that were decided upon and that the scheduler's cache does not know of yet.
//
// A pod has an entry from its reservation until it is seen with the annotation that says the same, is deleted, or its
// reservation is taken back. As long as there is an entry, it is right and the annotation is not: a pod may have come
// with an annotation that another component wrote. Many goroutines may use a Ledger at a time.
type Ledger struct {
	mutex sync.RWMutex
	held  map[types.UID]holding
}

type holding struct {
	node    string
	devices uint64
	milli   int64 // of each device
}

// Assumed is the ledger of this process: all profiles of a scheduler decide on the same devices.
var Assumed = &Ledger{}

// Reserve notes the devices of a node, a bit mask, of each of which a pod will get so many milli.
func (l *Ledger) Reserve(pod types.UID, node string, devices uint64, milli int64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.held == nil {
		l.held = map[types.UID]holding{}
	}
	l.held[pod] = holding{node, devices, milli}
}

// Release forgets a pod. Nothing happens if it has no entry.
func (l *Ledger) Release(pod types.UID) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.held, pod)
}

// on lists what the pods of a node, but for those that are known already, will get.
func (l *Ledger) on(node string, known func(types.UID) bool) []holding {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	var result []holding
	for pod, each := range l.held {
		if each.node == node && !known(pod) {
			result = append(result, each)
		}
	}
	return result
}

// Reserved returns the devices of a node that a pod will get; false if it has no entry there.
func (l *Ledger) Reserved(pod types.UID, node string) (uint64, bool) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	result, ok := l.held[pod]
	return result.devices, ok && result.node == node
}

// Len returns the number of entries.
func (l *Ledger) Len() int {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return len(l.held)
}

// devices returns those that a pod on a node holds, 0 if nothing valid says so.
func (l *Ledger) devices(pod *v1.Pod, node string, count int64) uint64 {
	noted, _ := ParseIndex(pod.Annotations[IndexKey], count)
	reserved, ok := l.Reserved(pod.UID, node)
	if !ok {
		return noted
	}
	if reserved == noted {
		l.Release(pod.UID)
	}
	return reserved
}
