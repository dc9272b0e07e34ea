package steersman

import (
	"context"
	"fmt"
	"strings"

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

// restriction marks, in the CycleState, a pod that is left only the nodes that keep its limit.
type restriction struct{}

// Clone is that of fwk.StateData.
func (r restriction) Clone() fwk.StateData { return r }

const restrictionKey = fwk.StateKey(Name + "/latency")

// PreFilter leaves a pod with a hard limit of its latency the nodes that keep it, if there are such nodes among those
// that have room for it. It never refuses a pod.
//
// Which nodes have room is told by what a node says for itself: resources, GPUs, taints, node affinity, ports. A pod
// that no such node takes for another reason, such as anti-affinity, is tried again without its limit (PostFilter).
func (p *Plugin) PreFilter(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (found *fwk.PreFilterResult, status *fwk.Status) {
	if p.limits == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	defer func() {
		if cause := recover(); cause != nil {
			p.complain.about(reasonPanic, fmt.Errorf("panic: %v", cause))
			found, status = nil, fwk.NewStatus(fwk.Skip)
		}
	}()
	limits := objectives.LimitsOf(pod)
	if len(limits.Ignored) > 0 {
		p.handle.EventRecorder().Eventf(
			pod, nil, v1.EventTypeWarning, "LatencyLimitIgnored", "Scheduling", "%s", strings.Join(limits.Ignored, "; "))
	}
	if !limits.HasHard() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if p.relaxed.take(pod.UID) {
		p.meter.limited("relaxed")
		return nil, fwk.NewStatus(fwk.Skip)
	}
	kept, err := p.within(pod, nodes)
	if err != nil {
		p.complain.about(reasonOf(err), err)
	}
	if len(kept) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(restrictionKey, restriction{})
	return &fwk.PreFilterResult{NodeNames: sets.New(kept...)}, nil
}

// within is the nodes that keep the pod's limit; none: it is not to be restricted.
func (p *Plugin) within(pod *v1.Pod, nodes []fwk.NodeInfo) ([]string, error) {
	var open []fwk.NodeInfo
	for _, node := range nodes {
		if hasRoom(pod, node) {
			open = append(open, node)
		}
	}
	kept, outcome, err := p.limits.Keep(pod, open)
	if err != nil {
		return nil, err
	}
	p.meter.limited(outcome.String())
	if outcome != objectives.KeptSafely && outcome != objectives.Kept || len(kept) == len(open) {
		return nil, nil
	}
	return kept, nil
}

// PostFilter has a pod that found no node among those that keep its limit tried again without it, at once.
func (p *Plugin) PostFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	if _, err := state.Read(restrictionKey); err == nil {
		p.relaxed.put(pod.UID)
		p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{klog.KObj(pod).String(): pod})
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
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
	return there.Err == nil && there.Accepts(request) && there.Fits(request)
}

func blocks(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}
