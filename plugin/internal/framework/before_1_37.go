//go:build before1.37

package framework

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// QueuedEntity is what waits in the queue: a pod.
type QueuedEntity = fwk.QueuedPodInfo

// Priority returns the priority of what waits.
func Priority(entity QueuedEntity) int32 { return corev1.PodPriority(entity.GetPodInfo().GetPod()) }

// ForEachPod calls a function for each pod of what waits.
func ForEachPod(entity QueuedEntity, each func(*v1.Pod)) { each(entity.GetPodInfo().GetPod()) }
