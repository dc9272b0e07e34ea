package steersman

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/native"
	"steersman.dev/plugin/remote"
	"steersman.dev/plugin/scoring"
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

// think asks the source, unless the breaker is open, and then the fallback.
func (p *Plugin) think(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) *opinion {
	scores := make([]int64, len(nodes))
	err := p.ask(ctx, pod, nodes, scores)
	switch {
	case err == nil && p.args.Mode == modeShadow:
		p.meter.neutral(reasonShadow)
		return &opinion{wanted: best(nodes, scores), reason: reasonShadow}
	case err == nil:
		p.meter.scored()
		return &opinion{nodes: nodes, scores: scores, wanted: best(nodes, scores)}
	}
	reason := reasonOf(err)
	p.complain.about(reason, err)
	if p.fallback != nil && p.args.Mode != modeShadow && guarded(ctx, p.fallback, pod, nodes, scores) == nil {
		p.meter.fellBack(reason)
		return &opinion{nodes: nodes, scores: scores} // it is not the policy that wants it somewhere
	}
	p.meter.neutral(reason)
	return &opinion{reason: reason}
}

// ask asks the source within the deadline, and tells the breaker how it went.
func (p *Plugin) ask(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) error {
	if !p.breaker.Allow() {
		return errOpen
	}
	ctx, cancel := context.WithTimeout(ctx, p.args.timeout)
	defer cancel()
	err := guarded(ctx, p.source, pod, nodes, out)
	p.breaker.Done(failure(err))
	return err
}

// reasoned is an error that says what counters call it.
type reasoned interface {
	error
	Reason() string
}

// named is an error with a reason.
type named struct {
	error
	reason string
}

// Reason is what counters call it.
func (n *named) Reason() string { return n.reason }

// Unwrap is the error without it.
func (n *named) Unwrap() error { return n.error }

var errOpen = &named{errors.New("the circuit breaker is open"), reasonBreaker}

// guarded asks a source and believes nothing: a panic is an error, and so is a score that kube-scheduler would refuse.
func guarded(ctx context.Context, source scoring.Source, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &named{fmt.Errorf("panic: %v", cause), reasonPanic}
		}
	}()
	if err := source.Scores(ctx, pod, nodes, out); err != nil {
		return err
	}
	for i, score := range out {
		if score < 0 || score > scoring.Best {
			name := nodes[i].Node().Name
			return &named{fmt.Errorf("node %q has the score %d; 0 to %d is right", name, score, scoring.Best), reasonRange}
		}
	}
	return nil
}

// reasonOf is what counters call an error.
func reasonOf(err error) string {
	var said reasoned
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

// failure is the error if the source is to blame for it, else nil.
func failure(err error) error {
	var pod native.BadPod
	if errors.As(err, &pod) || errors.Is(err, native.ErrNoRoom) || errors.Is(err, native.ErrNoPolicy) {
		return nil
	}
	return remote.Failure(err)
}

// best is the node with the highest score, of equals the first.
func best(nodes []fwk.NodeInfo, scores []int64) string {
	first := 0
	for i, score := range scores {
		if score > scores[first] {
			first = i
		}
	}
	return nodes[first].Node().Name
}
