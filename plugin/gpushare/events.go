package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"steersman.dev/plugin/gpus"
)

// EventsToRegister are the events after which a pod that was refused here may fit: a pod with GPUs leaves, the pod itself
// is changed, or a node comes or offers something else.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	podEvents := fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.Update}
	nodeEvents := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeLabel}
	return []fwk.ClusterEventWithHint{
		{Event: podEvents, QueueingHintFn: p.afterPod},
		{Event: nodeEvents, QueueingHintFn: p.afterNode},
	}, nil
}

// afterPod tells whether a pod that left, or was changed, may have made room for a waiting one.
func (*Plugin) afterPod(_ klog.Logger, waiting *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	was, is, err := util.As[*v1.Pod](before, after)
	switch {
	case err != nil:
		return fwk.Queue, err
	case is == nil:
		return queueIf(holdsGPUs(was)), nil
	case is.UID == waiting.UID:
		return queueIf(!sameWish(was, is)), nil
	default: // the annotations of a pod that runs say something else now
		return queueIf(is.Spec.NodeName != "" && !sameWish(was, is)), nil
	}
}

// holdsGPUs tells whether a pod is on a node, or about to be, and asks for GPUs.
func holdsGPUs(pod *v1.Pod) bool {
	request, err := gpus.RequestOf(pod)
	onNode := pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != ""
	return onNode && err == nil && request.Count > 0
}

// sameWish tells whether what pods say of GPUs is the same, in the same words.
func sameWish(one, other *v1.Pod) bool {
	for _, key := range [...]string{gpus.CountKey, gpus.MilliKey, gpus.ModelKey, gpus.IndexKey} {
		was, had := one.Annotations[key]
		is, has := other.Annotations[key]
		if was != is || had != has {
			return false
		}
	}
	return true
}

// afterNode tells whether a node that came, or was changed, may have the devices that a waiting pod asks for.
func (*Plugin) afterNode(_ klog.Logger, waiting *v1.Pod, before, after any) (fwk.QueueingHint, error) {
	was, is, err := util.As[*v1.Node](before, after)
	if err != nil {
		return fwk.Queue, err
	}
	request, err := requestOf(waiting)
	if err != nil {
		return fwk.QueueSkip, nil
	}
	if !request.IsShared() { // which was refused for the model, or for pods that share
		return queueIf(acceptsModel(is, request) && !(was != nil && acceptsModel(was, request))), nil
	}
	offer, err := gpus.OfferOf(is)
	if err != nil {
		return fwk.QueueSkip, nil
	}
	var former *gpus.Offer
	if was != nil {
		if found, err := gpus.OfferOf(was); err == nil {
			former = &found
		}
	}
	return queueIf(offer.MayServeBetter(former, request)), nil
}

func acceptsModel(node *v1.Node, request gpus.Request) bool {
	return request.Accepts(gpus.ModelOf(node, request.Resource))
}

func queueIf(worthIt bool) fwk.QueueingHint {
	if worthIt {
		return fwk.Queue
	}
	return fwk.QueueSkip
}
