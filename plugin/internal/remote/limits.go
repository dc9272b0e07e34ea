package remote

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	fwk "steersman.dev/plugin/internal/framework"
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

// limitAnswer is what the service says. A newer service may say more.
type limitAnswer struct {
	NodeSet once[string]   `json:"nodeSet"`
	Kept    once[*string]  `json:"kept"`
	Outcome once[string]   `json:"outcome"`
	Ignored once[[]string] `json:"ignored"`
	Neutral once[string]   `json:"neutral"`
}

// Limit asks the service which nodes keep the hard limit of a pod. The errors are those of Scores.
func (c *Client) Limit(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*Limit, error) {
	var result *Limit
	most := bytesOverhead + len(nodes)
	err := c.ask(ctx, limitsPath, pod, nodes, most, func(content []byte, asked *nodeSetRequest) (string, error) {
		var version string
		var err error
		result, version, err = decodeLimit(content, asked, nodes)
		return version, err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// decodeLimit returns an answer about nodes and the version of their set, or what is wrong with it.
func decodeLimit(content []byte, asked *nodeSetRequest, nodes []fwk.NodeInfo) (*Limit, string, error) {
	var decoded limitAnswer
	if err := json.Unmarshal(content, &decoded); err != nil {
		return nil, "", fmt.Errorf("the answer is malformed: %s", quoted([]byte(err.Error())))
	}
	switch {
	case decoded.Neutral.value != "":
		return nil, "", &Declined{knownReason(decoded.Neutral.value)}
	case decoded.NodeSet.value == "":
		return nil, "", errors.New("the answer names no version of the node set")
	}
	result := &Limit{Outcome: knownOutcome(decoded.Outcome.value), Ignored: decoded.Ignored.value}
	if decoded.Kept.value == nil {
		return result, decoded.NodeSet.value, nil
	}
	mask, err := base64.StdEncoding.DecodeString(*decoded.Kept.value)
	if err != nil || len(mask) != (len(nodes)+7)/8 {
		return nil, "", fmt.Errorf("kept: %s is no mask of %d nodes", quoted([]byte(*decoded.Kept.value)), len(nodes))
	}
	for i, n := range asked.order {
		if mask[i/8]&(1<<(i%8)) != 0 {
			result.Nodes = append(result.Nodes, nodes[n].Node().Name)
		}
	}
	if len(result.Nodes) == 0 {
		return nil, "", errors.New("kept: leaves no node")
	}
	return result, decoded.NodeSet.value, nil
}

// knownOutcome returns an outcome as one of those that a service has, so that they can be counted.
func knownOutcome(outcome string) string {
	switch outcome {
	case "", "kept safely", "kept", "kept by no node", "not measured":
		return outcome
	}
	return "other"
}
