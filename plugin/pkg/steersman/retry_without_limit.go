package steersman

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// maxRetries is how many pods are remembered; beyond it the oldest are forgotten, and restricted once more.
const maxRetries = 10_000

// retryWithoutLimit holds the pods that are to be tried without their limit, once. Several goroutines may use it.
type retryWithoutLimit struct{ pods *lru.Cache }

func newRetryWithoutLimit() *retryWithoutLimit { return &retryWithoutLimit{lru.New(maxRetries)} }

// put adds a pod.
func (r *retryWithoutLimit) put(pod types.UID) { r.pods.Add(pod, nil) }

// take reports whether a pod is one of them, and removes it.
func (r *retryWithoutLimit) take(pod types.UID) bool {
	_, found := r.pods.Get(pod)
	r.pods.Remove(pod)
	return found
}
