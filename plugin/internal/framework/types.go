// Package framework has what the plugins use of kube-scheduler's framework, under one name for all supported minors of
// Kubernetes. Up to 1.34 the interfaces of plugins belong to k8s.io/kubernetes, later all of it to k8s.io/kube-scheduler.
package framework

import (
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// Types and functions whose place is the same in all minors.
type (
	ClusterEvent         = fwk.ClusterEvent
	ClusterEventWithHint = fwk.ClusterEventWithHint
	Code                 = fwk.Code
	CycleState           = fwk.CycleState
	NodeInfo             = fwk.NodeInfo
	PodInfo              = fwk.PodInfo
	QueueingHint         = fwk.QueueingHint
	QueueingHintFn       = fwk.QueueingHintFn
	StateData            = fwk.StateData
	StateKey             = fwk.StateKey
	Status               = fwk.Status
)

const (
	Success                      = fwk.Success
	Error                        = fwk.Error
	Skip                         = fwk.Skip
	Unschedulable                = fwk.Unschedulable
	UnschedulableAndUnresolvable = fwk.UnschedulableAndUnresolvable

	Queue     = fwk.Queue
	QueueSkip = fwk.QueueSkip

	Add                   = fwk.Add
	Delete                = fwk.Delete
	Update                = fwk.Update
	UpdateNodeAllocatable = fwk.UpdateNodeAllocatable
	UpdateNodeLabel       = fwk.UpdateNodeLabel

	Node = fwk.Node
	Pod  = fwk.Pod
)

var (
	AsStatus  = fwk.AsStatus
	NewStatus = fwk.NewStatus
)

// Deleted returns an object that an informer says was deleted; false if it is of another type.
func Deleted[T any](obj any) (T, bool) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
