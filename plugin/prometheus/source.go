package prometheus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/scoring"
)

// ByFeature ranks nodes by one feature, as reference C's plugin NetworkTraffic did.
type ByFeature struct {
	collector *Collector
	feature   string
}

var _ scoring.Source = (*ByFeature)(nil)

// NewByFeature is a source by a feature: the lowest value is the best, of memory_available_bytes the highest. Of
// latencies the largest of a node's counts.
func NewByFeature(collector *Collector, feature string) (*ByFeature, error) {
	if !slices.Contains(Features, feature) {
		return nil, fmt.Errorf("%q is no feature; one of %q is right", feature, Features)
	}
	if collector.configuration.Features[feature].Query == "" {
		return nil, fmt.Errorf("%q is turned off in the telemetry configuration", feature)
	}
	return &ByFeature{collector, feature}, nil
}

// ErrStale is the error where no node has a value that is not stale.
var ErrStale error = stale{errors.New("no node has a value that is not too old")}

type stale struct{ error }

// Reason is what counters call it.
func (stale) Reason() string { return "stale" }

// Scores ranks nodes by the feature, see scoring.Source. A node without a value, and without one that stands for it,
// counts as the mean of the others. The error is ErrStale where no node's value is fresh, whatever stands for it.
func (s *ByFeature) Scores(_ context.Context, _ *v1.Pod, nodes []fwk.NodeInfo, out []int64) error {
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = node.Node().Name
	}
	column := s.collector.Readings().Column(s.feature, "", names, time.Now())
	if !slices.Contains(column.Fresh, true) {
		return ErrStale
	}
	total, count := 0.0, 0.0
	for _, value := range column.Values {
		if !math.IsNaN(value) {
			total += value
			count++
		}
	}
	best := 0
	for i, value := range column.Values {
		if math.IsNaN(value) {
			value = total / count
		}
		if s.feature != MemoryAvailable {
			value = -value
		}
		column.Values[i] = value
		if value > column.Values[best] {
			best = i
		}
	}
	scoring.Rank(column.Values, best, out)
	return nil
}
