package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"steersman.dev/plugin/internal/gpu"
)

// EventsToRegister returns the events after which a pod that was refused here may fit: a pod with GPUs leaves, the pod
// itself is changed, or a node comes or offers something else.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	podEvents := fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.Update}
	nodeEvents := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel}
	return []fwk.ClusterEventWithHint{
		{Event: podEvents, QueueingHintFn: p.afterPod},
		{Event: nodeEvents, QueueingHintFn: p.afterNode},
	}, nil
}

// afterPod reports whether a pod that left, or was changed, may have made room for a waiting one.
func (*Plugin) afterPod(_ klog.Logger, waiting *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	was, is, err := util.As[*v1.Pod](before, after)
	switch {
	case err != nil:
		return fwk.Queue, err
	case is == nil:
		return queueIf(holdsGPUs(was)), nil
	case is.UID == waiting.UID:
		return queueIf(!sameRequest(was, is)), nil
	default: // the annotations of a pod that runs say something else now
		return queueIf(is.Spec.NodeName != "" && !sameRequest(was, is)), nil
	}
}

// holdsGPUs reports whether a pod is on a node, or about to be, and requests GPUs.
func holdsGPUs(pod *v1.Pod) bool {
	request, err := gpu.RequestOf(pod)
	onNode := pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != ""
	return onNode && err == nil && request.Count > 0
}

// sameRequest reports whether what pods say of GPUs is the same, in the same words.
func sameRequest(one, other *v1.Pod) bool {
	for _, key := range [...]string{gpu.CountKey, gpu.MilliKey, gpu.ModelKey, gpu.IndexKey} {
		was, had := one.Annotations[key]
		is, has := other.Annotations[key]
		if was != is || had != has {
			return false
		}
	}
	return true
}

// afterNode reports whether a node that came, or was changed, may have the devices that a waiting pod requests.
func (*Plugin) afterNode(_ klog.Logger, waiting *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	was, is, err := util.As[*v1.Node](before, after)
	if err != nil {
		return fwk.Queue, err
	}
	request, err := requestOf(waiting)
	if err != nil {
		return fwk.QueueSkip, nil
	}
	if !gpu.IsShared(request) { // which was refused for the model, or for pods that share
		return queueIf(acceptsModel(is, request) && !(was != nil && acceptsModel(was, request))), nil
	}
	capacity, err := gpu.CapacityOf(is)
	if err != nil {
		return fwk.QueueSkip, nil
	}
	var former gpu.GPUs
	if was != nil {
		former, _ = gpu.CapacityOf(was)
	}
	return queueIf(gpu.MayFitNow(&capacity, &former, &request)), nil
}

func acceptsModel(node *v1.Node, request gpu.Request) bool {
	return request.Accepts(gpu.ModelOf(node, request.Resource))
}

func queueIf(worthIt bool) fwk.QueueingHint {
	if worthIt {
		return fwk.Queue
	}
	return fwk.QueueSkip
}
