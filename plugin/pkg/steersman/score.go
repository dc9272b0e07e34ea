package steersman

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/native"
	"steersman.dev/plugin/internal/remote"
	"steersman.dev/plugin/internal/scoring"
)

// Why scores are neutral, as counters have it; native.Source and others add their own reasons.
const (
	reasonShadow   = "shadow"
	reasonBreaker  = "breaker"
	reasonDeadline = "deadline"
	reasonPanic    = "panic"
	reasonRange    = "range"
	reasonDeclined = "declined"
	reasonFailed   = "failed"
)

// scoreNodes asks the source; on an error or with an open breaker scores are neutral.
func (p *Plugin) scoreNodes(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) *scoreResult {
	scores := make([]int64, len(nodes))
	err := p.requestScores(ctx, pod, nodes, scores)
	switch {
	case err == nil && p.args.Mode == modeShadow:
		p.recorder.observeNeutral(reasonShadow)
		return &scoreResult{nodes: nodes, found: scores, wanted: bestNode(nodes, scores), reason: reasonShadow}
	case err == nil:
		p.recorder.observeScored()
		return &scoreResult{nodes: nodes, found: scores, scores: scores, wanted: bestNode(nodes, scores)}
	}
	reason := reasonOf(err)
	p.logger.log(reason, err)
	p.recorder.observeNeutral(reason)
	return &scoreResult{reason: reason}
}

// requestScores asks the source within the deadline, and tells the breaker how it went.
func (p *Plugin) requestScores(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) error {
	if !p.breaker.Allow() {
		return errOpen
	}
	ctx, cancel := context.WithTimeout(ctx, p.args.timeout)
	defer cancel()
	err := checkedScores(ctx, p.source, pod, nodes, out)
	p.breaker.Done(sourceFailure(err))
	return err
}

// errorWithReason is an error that says what counters call it.
type errorWithReason interface {
	error
	Reason() string
}

// reasonError is an error with a reason.
type reasonError struct {
	error
	reason string
}

// Reason is what counters call it.
func (n *reasonError) Reason() string { return n.reason }

// Unwrap is the error without it.
func (n *reasonError) Unwrap() error { return n.error }

var errOpen = &reasonError{errors.New("the circuit breaker is open"), reasonBreaker}

// checkedScores asks a source and validates the result: a panic is an error, and so is a score that kube-scheduler would refuse.
func checkedScores(ctx context.Context, source scoring.Source, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &reasonError{fmt.Errorf("panic: %v", cause), reasonPanic}
		}
	}()
	if err := source.Scores(ctx, pod, nodes, out); err != nil {
		return err
	}
	for i, score := range out {
		if score < 0 || score > scoring.Best {
			name := nodes[i].Node().Name
			return &reasonError{fmt.Errorf("node %q has the score %d; 0 to %d is right", name, score, scoring.Best), reasonRange}
		}
	}
	return nil
}

// reasonOf is what counters call an error.
func reasonOf(err error) string {
	var said errorWithReason
	var declined *remote.Declined
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return reasonDeadline
	case errors.As(err, &declined):
		return reasonDeclined
	case errors.As(err, &said):
		return said.Reason()
	}
	return reasonFailed
}

// sourceFailure is the error if the source is to blame for it, else nil.
func sourceFailure(err error) error {
	var pod native.BadPod
	if errors.As(err, &pod) || errors.Is(err, native.ErrNoRoom) || errors.Is(err, native.ErrNoPolicy) {
		return nil
	}
	return remote.Failure(err)
}

// bestNode is the node with the highest score, of equals the first.
func bestNode(nodes []fwk.NodeInfo, scores []int64) string {
	first := 0
	for i, score := range scores {
		if score > scores[first] {
			first = i
		}
	}
	return nodes[first].Node().Name
}
