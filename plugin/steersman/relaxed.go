package steersman

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// mostRelaxed is how many pods are remembered; beyond it the oldest are forgotten, and restricted once more.
const mostRelaxed = 10_000

// relaxed are the pods that are to be tried without their limit, once.
type relaxed struct {
	mutex sync.Mutex
	pods  map[types.UID]bool
	order []types.UID
}

func newRelaxed() *relaxed { return &relaxed{pods: map[types.UID]bool{}} }

func (r *relaxed) put(pod types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.pods[pod] = true
	r.order = append(r.order, pod)
	for len(r.order) > mostRelaxed {
		delete(r.pods, r.order[0])
		r.order = r.order[1:]
	}
}

// take says whether a pod is one of them, which it is no more afterwards.
func (r *relaxed) take(pod types.UID) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := r.pods[pod]
	delete(r.pods, pod)
	return found
}
