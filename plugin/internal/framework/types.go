package framework

import fwk "k8s.io/kube-scheduler/framework"

// Types and functions whose place is the same in all minors.
type (
	ActionType           = fwk.ActionType
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
