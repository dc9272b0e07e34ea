package steersman

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/breaker"
	"steersman.dev/plugin/internal/compat"
	"steersman.dev/plugin/internal/native"
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
	return nodes[slices.Index(scores, slices.Max(scores))].Node().Name
}

// signature is what the scores of nodes depend on.
type signature struct {
	Policy int // which one, in the order in which they were read
	Pod    native.Pod
}

// SignPod lets kube-scheduler place equal pods by the scores of the first one, the next best node after the best, as
// long as each pod leaves no room for another on its node.
//
// That is what the policy would decide if a placement changes no other node's score, and if integers tell apart all
// nodes that the policy does: for built-in policies of integer scores (Policy.Points). Of all others, scores from
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

// maxLoggedNodes limits the scores in a log line, which has the best nodes first.
const maxLoggedNodes = 10

type nodeScore struct {
	Node  string `json:"node"`
	Score int64  `json:"score"`
}

// logScores logs what the source gave a pod's nodes, where args.logScores asks for it: the best ones, of equals in the
// order of the nodes, or why there are no scores.
func (p *Plugin) logScores(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, result *scoreResult) {
	if !p.args.LogScores {
		return
	}
	logger := klog.FromContext(ctx).WithValues("plugin", Name, "pod", klog.KObj(pod), "nodes", len(nodes))
	if result.found == nil {
		logger.Info("Pod has no scores", "reason", result.reason)
		return
	}
	logger.Info("Pod scored", "wanted", result.wanted, "mode", p.args.Mode, "scores", bestScores(nodes, result.found))
}

// logBinding logs where a pod went, and the score that the source gave this node.
func (p *Plugin) logBinding(ctx context.Context, pod *v1.Pod, node string, result *scoreResult) {
	if !p.args.LogScores || result.found == nil {
		return
	}
	i := slices.IndexFunc(result.nodes, func(each fwk.NodeInfo) bool { return each.Node().Name == node })
	if i >= 0 {
		klog.FromContext(ctx).Info("Pod bound", "plugin", Name, "pod", klog.KObj(pod), "node", node,
			"score", result.found[i], "wanted", result.wanted)
	}
}

// bestScores returns the nodes with the highest scores, at most maxLoggedNodes.
func bestScores(nodes []fwk.NodeInfo, scores []int64) []nodeScore {
	result := make([]nodeScore, len(nodes))
	for i, node := range nodes {
		result[i] = nodeScore{node.Node().Name, scores[i]}
	}
	slices.SortStableFunc(result, func(a, b nodeScore) int { return cmp.Compare(b.Score, a.Score) })
	return result[:min(len(result), maxLoggedNodes)]
}
