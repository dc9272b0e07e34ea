package steersman

import (
	"context"

	v1 "k8s.io/api/core/v1"

	fwk "steersman.dev/plugin/internal/framework"
	"steersman.dev/plugin/internal/native"
)

// signature is what the scores of nodes depend on.
type signature struct {
	Policy int // which one, in the order in which they were read
	Pod    native.Signature
}

// SignPod lets kube-scheduler place equal pods by the scores of the first one, the next best node after the best, as
// long as each pod leaves no room for another on its node.
//
// That is what the policy would decide if a placement changes no other node's score, and if integers tell apart all
// nodes that the policy does: for built-in policies of integer scores (policy.Traits). Of all others, scores from
// 0 to 100 are too coarse for the second best; networks that see the cluster, and a service, may think otherwise after
// each placement; and a shadow is to see all pods.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if p.policyStore == nil || p.args.Mode == modeShadow {
		return nil, fwk.NewStatus(fwk.Unschedulable, "scores are not those of a policy in this process")
	}
	loaded := p.policyStore.LoadedPolicy()
	if loaded == nil || !loaded.Policy.Pointwise || !loaded.Policy.Points {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the next best node is not known before the pod is placed")
	}
	if p.limits != nil && isLimited(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the service is asked about the latency limit of each pod")
	}
	asked, err := native.SignatureOf(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return []fwk.SignFragment{{Key: Name, Value: signature{loaded.Number, asked}}}, nil
}
