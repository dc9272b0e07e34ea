package steersman

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	fwk "steersman.dev/plugin/internal/framework"
	"steersman.dev/plugin/internal/native"
	"steersman.dev/plugin/internal/remote"
	"steersman.dev/plugin/internal/scoring"
)

// Reasons why scores did not count (neutral, or in shadow), as labels of counters; the errors of native.Source and remote.Client have further ones.
const (
	reasonShadow   = "shadow"
	reasonBreaker  = "breaker"
	reasonDeadline = "deadline"
	reasonPanic    = "panic"
	reasonRange    = "range"
	reasonDeclined = "declined"
	reasonFailed   = "failed"
)

// scoreNodes requests scores of the source; on an error or with an open breaker scores are neutral.
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
	p.logger.log(noScores, reason, err)
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

// errorWithReason is an error with its label in counters.
type errorWithReason interface {
	error
	Reason() string
}

// reasonError is an error with a reason.
type reasonError struct {
	error
	reason string
}

// Reason returns its label in counters.
func (e *reasonError) Reason() string { return e.reason }

// Unwrap returns the error without its reason.
func (e *reasonError) Unwrap() error { return e.error }

var errOpen = &reasonError{errors.New("the circuit breaker is open"), reasonBreaker}

// checkedScores requests scores of a source and validates them: a panic is an error, and so is a score that
// kube-scheduler would refuse.
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
			return &reasonError{fmt.Errorf("node %q has the score %d; expected 0 to %d", name, score, scoring.Best), reasonRange}
		}
	}
	return nil
}

// reasonOf returns an error's label in counters.
func reasonOf(err error) string {
	var named errorWithReason
	var declined *remote.Declined
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return reasonDeadline
	case errors.As(err, &declined):
		return reasonDeclined
	case errors.As(err, &named):
		return named.Reason()
	}
	return reasonFailed
}

// sourceFailure returns the error if the source is to blame for it, else nil.
func sourceFailure(err error) error {
	var pod native.BadPod
	if errors.As(err, &pod) || errors.Is(err, native.ErrNoRoom) || errors.Is(err, native.ErrNoPolicy) {
		return nil
	}
	return remote.Failure(err)
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
