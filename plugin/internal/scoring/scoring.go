// Package scoring is what the sources of scores have in common: the plugin Steersman asks one of them about each pod.
package scoring

import (
	"context"
	"errors"
	"math"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// Best is the score of the node that a source would choose, alone at the top.
	Best = 100
	// Others is the most that any other node gets.
	Others = Best - 1
	// Neutral is the score of every node where there are no scores.
	Neutral = 50
)

// Source has scores about nodes. Several goroutines may ask at a time.
type Source interface {
	// Scores writes into out the score of each node, 0 to Best, in the order of the nodes: those that passed the
	// filters, one at least. An error means that there are no scores; what it left in out then counts for nothing.
	//
	// It returns when ctx is done, and does not keep pod, nodes or out.
	Scores(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) error
}

// Error says why a pod has no scores, or no latency limit.
type Error struct {
	Err      error
	Reason   string // its label in counters
	Harmless bool   // the source works: a circuit breaker does not count it as a failure
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its label.
func (e *Error) Unwrap() error { return e.Err }

// Failure returns the error that a circuit breaker counts for an error of a source: nil where the source works.
func Failure(err error) error {
	if reason := (*Error)(nil); errors.As(err, &reason) && reason.Harmless {
		return nil
	}
	return err
}

// DeviceSelector chooses GPU devices on a node. Several goroutines may ask at a time.
type DeviceSelector interface {
	// Devices returns the devices of the node that the pod, which fits there, would get, as a bit mask; false if the
	// selector does not choose. The node is that of the snapshot of this scheduling cycle, without the pod.
	Devices(pod *v1.Pod, node fwk.NodeInfo) (uint64, bool)
}

var selectors sync.Map // of DeviceSelector by the profile's name

// RegisterSelector makes a profile's selector known to the other plugins of the profile, in place of an earlier one.
func RegisterSelector(profile string, selector DeviceSelector) { selectors.Store(profile, selector) }

// DeviceSelectorFor returns the selector of a profile, nil if there is none. Plugins are created in any order, so ask
// when it is needed, not when a plugin is created.
func DeviceSelectorFor(profile string) DeviceSelector {
	result, _ := selectors.Load(profile)
	selector, _ := result.(DeviceSelector)
	return selector
}

// Rank writes the integer scores of nodes whose raw scores are given, -Inf where the pod does not fit.
//
// The chosen node gets Best and is alone at the top, so that neither rounding nor a draw among equals can change the
// choice; the others get 0 to Others by how near they come, and 0 where there is no room. With chosen below 0 all get
// 0. Source: live/service/scoring/ranking.py.
func Rank(raw []float64, chosen int, out []int64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, score := range raw {
		if !math.IsInf(score, -1) {
			low, high = min(low, score), max(high, score)
		}
	}
	span := high - low
	for i, score := range raw {
		switch {
		case chosen < 0 || math.IsInf(score, -1):
			out[i] = 0
		case i == chosen:
			out[i] = Best
		case span > 0:
			out[i] = int64(math.Floor(Others * (score - low) / span))
		default:
			out[i] = Others
		}
	}
}
