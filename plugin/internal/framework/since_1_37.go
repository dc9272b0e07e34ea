//go:build !before1.37

package framework

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// QueuedEntity is what waits in the queue: a pod or, since 1.37, a pod group.
type QueuedEntity = fwk.QueuedEntityInfo

// Priority returns the priority of what waits.
func Priority(entity QueuedEntity) int32 { return entity.GetPriority() }

// ForEachPod calls a function for each pod of what waits.
func ForEachPod(entity QueuedEntity, each func(*v1.Pod)) {
	switch queued := entity.(type) {
	case *framework.QueuedPodInfo: // most; the closure below allocates
		each(queued.Pod)
	case framework.QueuedEntityInfo:
		queued.ForEachPodInfo(func(info *framework.QueuedPodInfo) bool {
			each(info.Pod)
			return true
		})
	}
}
