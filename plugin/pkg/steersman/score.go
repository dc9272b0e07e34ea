package steersman

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/breaker"
	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/native"
	"steersman.dev/plugin/internal/policy"
	"steersman.dev/plugin/internal/scoring"
)

// Reasons why scores did not count (neutral, or in shadow), as labels of counters; errors of sources have further ones.
const (
	reasonShadow   = "shadow"
	reasonBreaker  = "breaker"
	reasonDeadline = "deadline"
	reasonPanic    = "panic"
	reasonRange    = "range"
	reasonFailed   = "failed"
)

// scoreNodes requests scores of the source; on an error or with an open breaker scores are neutral.
func (p *Plugin) scoreNodes(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) *scoreResult {
	scores := make([]int64, len(nodes))
	err := p.guard(ctx, p.breaker, func(ctx context.Context) error {
		return checkedScores(ctx, p.source, pod, nodes, scores)
	})
	switch {
	case err == nil && p.args.Mode == modeShadow:
		p.recorder.observeNeutral(reasonShadow)
		return &scoreResult{nodes: nodes, found: scores, wanted: bestNode(nodes, scores), reason: reasonShadow}
	case err == nil:
		p.recorder.observeScored()
		return &scoreResult{nodes: nodes, found: scores, scores: scores, wanted: bestNode(nodes, scores)}
	}
	reason := reasonOf(err)
	p.logger.log(noScores, reason, err)
	p.recorder.observeNeutral(reason)
	return &scoreResult{reason: reason}
}

var errOpen = &scoring.Error{Err: errors.New("the circuit breaker is open"), Reason: reasonBreaker}

// guard asks a source within the deadline, unless its breaker is open, and tells the breaker how it went. A panic is an
// error.
func (p *Plugin) guard(ctx context.Context, guarding *breaker.Breaker, ask func(context.Context) error) (err error) {
	if !guarding.Allow() {
		return errOpen
	}
	ctx, cancel := context.WithTimeout(ctx, p.args.timeout)
	defer cancel()
	defer func() {
		if cause := recover(); cause != nil {
			err = &scoring.Error{Err: fmt.Errorf("panic: %v", cause), Reason: reasonPanic}
		}
		guarding.Done(scoring.Failure(err))
	}()
	return ask(ctx)
}

// checkedScores requests scores of a source; one that kube-scheduler would refuse is an error.
func checkedScores(ctx context.Context, source scoring.Source, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) error {
	if err := source.Scores(ctx, pod, nodes, out); err != nil {
		return err
	}
	for i, score := range out {
		if score < 0 || score > scoring.Best {
			err := fmt.Errorf("node %q has the score %d; expected 0 to %d", nodes[i].Node().Name, score, scoring.Best)
			return &scoring.Error{Err: err, Reason: reasonRange}
		}
	}
	return nil
}

// reasonOf returns an error's label in counters.
func reasonOf(err error) string {
	var labelled *scoring.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return reasonDeadline
	case errors.As(err, &labelled):
		return labelled.Reason
	}
	return reasonFailed
}

// bestNode returns the name of the node with the highest score, of equals the first.
func bestNode(nodes []fwk.NodeInfo, scores []int64) string {
	first := 0
	for i, score := range scores {
		if score > scores[first] {
			first = i
		}
	}
	return nodes[first].Node().Name
}

// signature is what the scores of nodes depend on.
type signature struct {
	Policy int // which one, in the order in which they were read
	Pod    policy.Pod
}

// SignPod lets kube-scheduler place equal pods by the scores of the first one, the next best node after the best, as
// long as each pod leaves no room for another on its node.
//
// That is what the policy would decide if a placement changes no other node's score, and if integers tell apart all
// nodes that the policy does: for built-in policies of integer scores (policy.Traits). Of all others, scores from
// 0 to 100 are too coarse for the second best; networks that see the cluster, and a service, may think otherwise after
// each placement; and a shadow is to see all pods.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]compat.SignFragment, *fwk.Status) {
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
	asked, err := native.PodOf(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return []compat.SignFragment{{Key: Name, Value: signature{loaded.Number, asked}}}, nil
}
