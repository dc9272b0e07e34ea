//go:build before1.37

package compat

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// QueuedEntity is what waits in the queue: a pod.
type QueuedEntity = fwk.QueuedPodInfo

// Priority returns the priority of what waits.
func Priority(entity QueuedEntity) int32 { return corev1.PodPriority(entity.GetPodInfo().GetPod()) }

// PodOf returns the pod that waits.
func PodOf(entity QueuedEntity) *v1.Pod { return entity.GetPodInfo().GetPod() }

// PodsOf returns the pods of a waiting pod group. Kubernetes 1.36 and older have no pod groups.
func PodsOf(QueuedEntity) []*v1.Pod { return nil }
