package steersman

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/gpus"
	"steersman.dev/plugin/objectives"
)

// PreFilter leaves a pod with a hard limit of its latency the nodes that keep it, if there are such nodes among those
// that have room for it. It never refuses a pod.
//
// Which nodes have room is told by what a node says for itself: resources, GPUs, taints, node affinity, ports. A pod
// that no such node takes for another reason, such as anti-affinity, waits until one does.
func (p *Plugin) PreFilter(
	_ context.Context, _ fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (found *fwk.PreFilterResult, status *fwk.Status) {
	limits := objectives.LimitsOf(pod)
	if p.limits == nil || !limits.HasHard() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	defer func() {
		if cause := recover(); cause != nil {
			p.complain.about(reasonPanic, fmt.Errorf("panic: %v", cause))
			found, status = nil, fwk.NewStatus(fwk.Skip)
		}
	}()
	var open []fwk.NodeInfo
	for _, node := range nodes {
		if hasRoom(pod, node) {
			open = append(open, node)
		}
	}
	kept, outcome, err := p.limits.Keep(pod, open)
	if err != nil {
		p.complain.about(reasonOf(err), err)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.meter.limited(outcome.String())
	if outcome != objectives.KeptSafely && outcome != objectives.Kept || len(kept) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(kept...)}, nil
}

// PreFilterExtensions are none.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// hasRoom tells whether the pod could go to the node, other pods aside.
func hasRoom(pod *v1.Pod, node fwk.NodeInfo) bool {
	info, ok := node.(*framework.NodeInfo)
	if !ok || info.Node() == nil || len(scheduler.AdmissionCheck(pod, info, false)) > 0 {
		return false
	}
	_, tainted := v1helper.FindMatchingUntoleratedTaint(
		klog.Background(), info.Node().Spec.Taints, pod.Spec.Tolerations, blocks, false)
	request, err := gpus.RequestOf(pod)
	if tainted || err != nil {
		return false
	}
	if request.Count == 0 {
		return true
	}
	there := gpus.Look(node)
	return there.Err == nil && request.Accepts(there.Model) && request.Fits(there.Free)
}

func blocks(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}
