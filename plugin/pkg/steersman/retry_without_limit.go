package steersman

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// maxRetries is how many pods are remembered; beyond it the oldest are forgotten, and restricted once more.
const maxRetries = 10_000

// retryWithoutLimit are the pods that are to be tried without their limit, once.
type retryWithoutLimit struct {
	mutex sync.Mutex
	pods  map[types.UID]bool
	order []types.UID
}

func newRetryWithoutLimit() *retryWithoutLimit { return &retryWithoutLimit{pods: map[types.UID]bool{}} }

func (r *retryWithoutLimit) put(pod types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.pods[pod] = true
	r.order = append(r.order, pod)
	for len(r.order) > maxRetries {
		delete(r.pods, r.order[0])
		r.order = r.order[1:]
	}
}

// take reports whether a pod is one of them, which it is no more afterwards.
func (r *retryWithoutLimit) take(pod types.UID) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	result := r.pods[pod]
	delete(r.pods, pod)
	return result
}
