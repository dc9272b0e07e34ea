//go:build !before1.37

package compat

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// QueuedEntity is what waits in the queue: a pod or, since 1.37, a pod group.
type QueuedEntity = fwk.QueuedEntityInfo

// Priority returns the priority of what waits.
func Priority(entity QueuedEntity) int32 { return entity.GetPriority() }

// PodOf returns the pod that waits, nil if it is a pod group.
func PodOf(entity QueuedEntity) *v1.Pod {
	if queued, ok := entity.(*framework.QueuedPodInfo); ok {
		return queued.Pod
	}
	return nil
}

// PodsOf returns the pods of a waiting pod group.
func PodsOf(entity QueuedEntity) []*v1.Pod {
	var pods []*v1.Pod
	if group, ok := entity.(framework.QueuedEntityInfo); ok {
		group.ForEachPodInfo(func(info *framework.QueuedPodInfo) bool {
			pods = append(pods, info.Pod)
			return true
		})
	}
	return pods
}
