package remote

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// LimitKeys are the annotations that limit a pod's latency to its users, in milliseconds: ours, and Matranga's.
var LimitKeys = append([]string{
	"steersman.dev/latency-soft-constraint", "latencySoftConstraint",
}, HardLimitKeys...)

// HardLimitKeys are those of hard limits.
var HardLimitKeys = []string{"steersman.dev/latency-hard-constraint", "latencyHardConstraint"}

// Limit is what a pod's hard limit of latency leaves.
type Limit struct {
	Nodes   []string // that keep it, of those that were asked about; nil: it restricts nothing
	Outcome string   // kept safely, kept, kept by no node, not measured; "" without a hard limit
	Ignored []string // what is wrong with annotations that are invalid
}

// Limit asks the service which nodes keep the hard limit of a pod. The errors are those of Scores.
func (c *Client) Limit(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*Limit, error) {
	answer, order, err := c.ask(ctx, limitsPath, pod, nodes, bytesOverhead+len(nodes))
	if err != nil {
		return nil, err
	}
	outcome := oneOf(answer.Outcome, "", "kept safely", "kept", "kept by no node", "not measured")
	limit := &Limit{Outcome: outcome, Ignored: answer.Ignored}
	if answer.Kept == nil {
		return limit, nil
	}
	if len(answer.Kept) != (len(nodes)+7)/8 {
		return nil, fmt.Errorf("kept: %d bytes are no mask of %d nodes", len(answer.Kept), len(nodes))
	}
	for i, n := range order {
		if answer.Kept[i/8]&(1<<(i%8)) != 0 {
			limit.Nodes = append(limit.Nodes, nodes[n].Node().Name)
		}
	}
	if len(limit.Nodes) == 0 {
		return nil, errors.New("kept: leaves no node")
	}
	return limit, nil
}
