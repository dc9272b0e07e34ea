package steersman

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/gpu"
	"steersman.dev/plugin/internal/remote"
)

// limitSource tells which nodes keep a pod's hard limit of latency.
type limitSource interface {
	Limit(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*remote.Limit, error)
}

// marker is CycleState data that says all by being there.
type marker struct{}

func (m marker) Clone() fwk.StateData { return m }

const (
	// limitAppliedKey: PreFilter left the pod only the nodes that keep its limit.
	limitAppliedKey = fwk.StateKey(Name + "/latency")
	// preemptionDryRunKey: preemption has removed pods from the state of a node that it considers.
	preemptionDryRunKey = fwk.StateKey(Name + "/preemption-dry-run")

	// maxRetries is how many pods are remembered that are to be tried without their limit; beyond it the oldest are
	// forgotten, and restricted once more.
	maxRetries = 10_000
)

// PreFilter leaves a pod with a hard limit of its latency the nodes that keep it, if there are such nodes among those
// that fit for it. The service says which these are; if it does not within the timeout, the pod has no limit. It never
// refuses a pod.
//
// Whether a node fits is decided by its own state: resources, GPUs, taints, node affinity, ports. A pod
// that no such node takes for another reason, such as anti-affinity, is tried again without its limit (PostFilter).
func (p *Plugin) PreFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (result *compat.PreFilterResult, status *fwk.Status) {
	if p.limits == nil || !isLimited(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	defer func() {
		if cause := recover(); cause != nil {
			p.logger.log(noLatencyLimit, reasonPanic, fmt.Errorf("panic: %v", cause))
			result, status = nil, fwk.NewStatus(fwk.Skip)
		}
	}()
	if _, retried := p.retryWithoutLimit.Get(pod.UID); retried {
		p.retryWithoutLimit.Remove(pod.UID)
		p.recorder.observeLimit("relaxed")
		return nil, fwk.NewStatus(fwk.Skip)
	}
	kept := p.nodesWithinLimit(ctx, pod, nodes)
	if len(kept) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(limitAppliedKey, marker{})
	return &compat.PreFilterResult{NodeNames: sets.New(kept...)}, nil
}

// isLimited reports whether a pod has an annotation that limits its latency, valid or not. The service is asked about a
// pod with a soft limit alone, too: that restricts nothing, but the answer says whether the annotation is invalid.
func isLimited(pod *v1.Pod) bool { return hasAnnotation(pod, remote.LimitKeys) }

func hasAnnotation(pod *v1.Pod, keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return metav1.HasAnnotation(pod.ObjectMeta, key) })
}

// nodesWithinLimit returns the nodes that keep the pod's limit; none: it is not to be restricted.
func (p *Plugin) nodesWithinLimit(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) []string {
	var open []fwk.NodeInfo
	for _, node := range nodes {
		if isFeasible(pod, node) {
			open = append(open, node)
		}
	}
	if len(open) == 0 {
		return nil
	}
	var limit *remote.Limit
	err := p.guard(ctx, p.limitBreaker, func(ctx context.Context) (err error) {
		limit, err = p.limits.Limit(ctx, pod, open)
		return err
	})
	if err != nil {
		p.logger.log(noLatencyLimit, reasonOf(err), err)
		if hasAnnotation(pod, remote.HardLimitKeys) {
			p.recorder.observeLimit("no answer")
		}
		return nil
	}
	if len(limit.Ignored) > 0 {
		p.handle.EventRecorder().Eventf(
			pod, nil, v1.EventTypeWarning, "LatencyLimitIgnored", "Scheduling", "%s", strings.Join(limit.Ignored, "; "))
	}
	if limit.Outcome != "" {
		p.recorder.observeLimit(limit.Outcome)
	}
	return limit.Nodes
}

// PostFilter retries a pod at once without its limit if no node that keeps the limit can take it.
func (p *Plugin) PostFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ compat.NodeToStatusReader,
) (*compat.PostFilterResult, *fwk.Status) {
	if _, err := state.Read(limitAppliedKey); err == nil {
		p.retryWithoutLimit.Add(pod.UID, nil)
		p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{klog.KObj(pod).String(): pod})
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

func (p *Plugin) PreFilterExtensions() compat.PreFilterExtensions { return p }

func (p *Plugin) AddPod(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}

// RemovePod records that preemption considers a node, see Filter.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	state.Write(preemptionDryRunKey, marker{})
	return nil
}

// Filter refuses nodes in the dry run of a preemption as long as the pod is restricted by its limit: before anything is
// evicted it is tried without the limit, on all nodes. PostFilter plugins run in the order of the configuration, so
// DefaultPreemption may come before PostFilter of this plugin. It refuses no node to a pod that is placed.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.NodeInfo) *fwk.Status {
	if _, err := state.Read(limitAppliedKey); err != nil {
		return nil
	}
	if _, err := state.Read(preemptionDryRunKey); err != nil {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, "no pod is evicted for a latency limit before other nodes were tried")
}

// isFeasible reports whether the pod fits on the node, without inter-pod affinity, spreading and volumes.
func isFeasible(pod *v1.Pod, node fwk.NodeInfo) bool {
	info, ok := node.(*framework.NodeInfo)
	if !ok || info.Node() == nil || len(scheduler.AdmissionCheck(pod, info, false)) > 0 {
		return false
	}
	tainted := compat.IsTainted(info.Node().Spec.Taints, pod.Spec.Tolerations, preventsScheduling)
	request, err := gpu.RequestOf(pod)
	if tainted || err != nil {
		return false
	}
	if request.Count == 0 {
		return true
	}
	gpus := gpu.Assumed.NodeState(node)
	return gpus.Err == nil && gpus.Accepts(&request) && gpus.Fits(&request)
}

func preventsScheduling(taint *v1.Taint) bool {
	return taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute
}
